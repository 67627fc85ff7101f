//! SCPS-TP (CCSDS 714.0-B-2): features offered beyond TCP, and the handling of losses.
//!
//! Features in both SYNs are used; a peer without SCPS-TP gets TCP. One-sided features (the
//! assumed cause of losses, the rate, suspension in outages) apply whether the peer supports
//! SCPS-TP or not.

mod best_effort;
mod rate;
mod records;
mod snack;

use std::time::Duration;

use session::settings;
use session::settings::form::{Leaf, OFF, Off, Word, visit_part};
use session::settings::{Base, Kind, Value, Visited, Visitor};
use session::words;

pub(crate) use self::best_effort::BestEffort;
pub use self::best_effort::{Bets, Hole, Holes};
pub use self::rate::RateControl;
pub(crate) use self::rate::{Bucket, Wire};
pub(crate) use self::records::{Ends, Marks};
pub use self::snack::{Snack, SnackForm};
pub(crate) use self::snack::{SnackOption, Snacking, holes};

use crate::segment::Capabilities;

settings! {
    /// Settings of SCPS-TP. The defaults are the reference implementation's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scps [more: Self::visit_parts] {
        /// Selective negative acknowledgment: `short`, `bits` or `off`. If both sides offer it,
        /// neither sends selective acknowledgments.
        pub snack: Option<Snack> as ByForm = Some(Snack::default()),
        /// Assumed cause of a loss without a report: `congestion` or `corruption`.
        pub assume: LossCause as Word = LossCause::Congestion,
        /// Duration of the effect of a peer's corruption report, and of reporting corruption after
        /// it occurred here.
        pub dwell: Duration as Span = Duration::from_secs(1),
        /// Whether a connection is suspended during an outage of the link: nothing is sent and
        /// timers stop. Afterwards it continues with the former window and round trip. Otherwise
        /// timers expire as in TCP.
        pub suspends: bool as Flag = true,
        /// Rate of IP packets on the route, shared by all its connections; `interface` uses the
        /// link's rate, `off` sets none.
        pub rate: Option<RateControl> as ByRate = None,
        /// IP protocol of connections opened by this side: `tcp` (6) or `scps` (106). Connections
        /// opened by the peer use the peer's protocol.
        pub protocol: Carrier as Word = Carrier::Tcp,
        /// Header compression. Not together with ECN, for which a compressed header has no room.
        pub header_compression: bool as Flag = false,
        /// Best-effort service: both sides continue without lost data. Data may be missing.
        pub bets: Option<Bets> as Off<Table> = None,
        /// Number of record ends remembered in either direction.
        pub records: usize as Number = 1024,
    }
}

/// Form of a [`Snack`].
#[derive(Debug)]
struct ByForm;

impl Leaf<Option<Snack>> for ByForm {
    fn kind() -> Kind {
        <Off<Word> as Leaf<Option<SnackForm>>>::kind()
    }

    fn get(snack: &Option<Snack>) -> Option<Value> {
        Off::<Word>::get(&snack.map(|snack| snack.form))
    }

    fn set(snack: &mut Option<Snack>, value: Value) -> Result<(), String> {
        let mut form = None;
        Off::<Word>::set(&mut form, value)?;
        *snack = form.map(|form| Snack { form, ..snack.unwrap_or_default() });
        Ok(())
    }
}

/// Form of a [`RateControl`].
#[derive(Debug)]
struct ByRate;

const INTERFACE: &str = "interface";

impl Leaf<Option<RateControl>> for ByRate {
    fn kind() -> Kind {
        Kind::from(Base::Rate).or(INTERFACE).or(OFF)
    }

    fn get(rate: &Option<RateControl>) -> Option<Value> {
        Some(match rate.map(|rate| rate.bps) {
            None => Value::Word(OFF),
            Some(None) => Value::Word(INTERFACE),
            Some(Some(bps)) => Value::Rate(bps),
        })
    }

    fn set(rate: &mut Option<RateControl>, value: Value) -> Result<(), String> {
        match value {
            Value::Word(INTERFACE) => rate.get_or_insert_default().bps = None,
            Value::Rate(0) => return Err(" is 0; write \"off\" for no rate".to_owned()),
            Value::Rate(bps) => rate.get_or_insert_default().bps = Some(bps),
            _ => *rate = None,
        }
        Ok(())
    }
}

words!(LossCause { "congestion" = Self::Congestion, "corruption" = Self::Corruption });
words!(Carrier { "tcp" = Self::Tcp, "scps" = Self::Scps });
words!(SnackForm { "short" = Self::Short, "bits" = Self::Bits });

/// IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// 6, as for TCP.
    Tcp,
    /// 106, SCPS-TP's own.
    Scps,
}

impl Carrier {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => crate::segment::PROTOCOL,
            Self::Scps => crate::segment::scps::PROTOCOL,
        }
    }
}

impl Scps {
    fn visit_parts(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit_part(&mut self.snack, " is given, but tcp.scps.snack is off", visitor)?;
        visit_part(&mut self.rate, " is given, but tcp.scps.rate is off", visitor)
    }

    /// Capabilities in a SYN; `own` is the connection's number for compressed headers, or 0.
    pub(crate) fn capabilities(&self, own: u8) -> Capabilities {
        let all = Agreed {
            snack: self.snack.map(|snack| snack.form),
            compression: Some(0).filter(|_| self.header_compression && own != 0),
            bets: self.bets.is_some(),
        };
        all.capabilities(own)
    }

    /// Negotiated features with a peer that offers `theirs`.
    pub(crate) fn agree(&self, own: u8, theirs: Capabilities) -> Agreed {
        let bits = self.capabilities(own).bits & theirs.bits;
        let has = |bit| bits & bit != 0;
        let snack = if has(Capabilities::SNACK_LONG) {
            Some(SnackForm::Bits)
        } else if has(Capabilities::SNACK_SHORT) {
            Some(SnackForm::Short)
        } else {
            None
        };
        let numbered = has(Capabilities::COMPRESSION) && theirs.connection != 0;
        Agreed {
            snack,
            compression: numbered.then_some(theirs.connection),
            bets: has(Capabilities::BETS),
        }
    }
}

/// Cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Full queue: reported to the congestion control.
    Congestion,
    /// Damage on the path: retransmitted, with unchanged rate, window and timeout.
    Corruption,
}

/// Negotiated SCPS-TP features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Form of selective negative acknowledgments.
    pub snack: Option<SnackForm>,
    /// Peer's number of the connection in compressed headers.
    pub compression: Option<u8>,
    /// Best-effort service.
    pub bets: bool,
}

impl Agreed {
    /// Capabilities for the reply to a SYN: only the negotiated ones.
    pub(crate) fn capabilities(self, own: u8) -> Capabilities {
        let snack = match self.snack {
            None => 0,
            Some(SnackForm::Short) => Capabilities::SNACK_SHORT,
            Some(SnackForm::Bits) => Capabilities::SNACK_SHORT | Capabilities::SNACK_LONG,
        };
        let bets = if self.bets { Capabilities::BETS } else { 0 };
        match self.compression {
            None => Capabilities { bits: snack | bets, connection: 0 },
            Some(_) => {
                Capabilities { bits: snack | bets | Capabilities::COMPRESSION, connection: own }
            }
        }
    }
}
