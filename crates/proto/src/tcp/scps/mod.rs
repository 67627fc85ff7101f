//! SCPS-TP (CCSDS 714.0-B-2): what a connection offers its peer beyond TCP, and how it takes losses.
//!
//! What both SYNs carry is used; a peer without it gets TCP. What only one side does (the cause that
//! losses are put down to, the rate, what is done in outages) holds whether the peer understands
//! SCPS-TP or not.

mod best_effort;
mod rate;
mod records;
mod snack;

use std::time::Duration;

use wire::tcp::Capabilities;

pub(crate) use self::best_effort::BestEffort;
pub use self::best_effort::{Bets, Hole, Holes};
pub use self::rate::RateControl;
pub(crate) use self::rate::{Bucket, Wire};
pub(crate) use self::records::{Ends, Marks};
pub use self::snack::{Snack, SnackForm};
pub(crate) use self::snack::{SnackSaid, Snacking, holes};

/// What a connection does of SCPS-TP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scps {
    /// Selective negative acknowledgment, if it is offered. Where both sides offer it, neither sends
    /// selective acknowledgments.
    pub snack: Option<Snack>,
    /// What a loss is put down to when nothing is said of its cause.
    pub assume: LossCause,
    /// How long a peer's word holds that it sees data lost to corruption, and how long this side says
    /// so after it has seen that.
    pub dwell: Duration,
    /// While the link is away nothing is sent and no timer runs; afterwards it goes on with the window
    /// and the round trip of before. Otherwise it is as in TCP: timers run out.
    pub suspends: bool,
    /// The rate of the route, which all its connections share; `None`: nothing holds them back.
    pub rate: Option<RateControl>,
    /// What packets of connections that this side opens are called in IP's header. Those of the peer
    /// are answered as they come.
    pub protocol: Carrier,
    /// Headers are compressed. Not together with ECN, for which a compressed header has no room.
    pub header_compression: bool,
    /// The best-effort service: both sides go on without what is lost. Data may be missing.
    pub bets: Option<Bets>,
    /// Ends of records that are remembered in either direction.
    pub records: usize,
}

/// A protocol number of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// 6, as TCP.
    Tcp,
    /// 106, which is SCPS-TP's own.
    Scps,
}

impl Carrier {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => wire::tcp::PROTOCOL,
            Self::Scps => wire::scps::PROTOCOL,
        }
    }
}

impl Scps {
    /// What a SYN says of it; `own` is the connection's number for compressed headers, or 0.
    pub(crate) fn capabilities(&self, own: u8) -> Capabilities {
        let all = Agreed {
            snack: self.snack.map(|snack| snack.form),
            compression: Some(0).filter(|_| self.header_compression && own != 0),
            bets: self.bets.is_some(),
        };
        all.capabilities(own)
    }

    /// What is used of it with a peer that offers `theirs`.
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

impl Default for Scps {
    /// The reference implementation's: the short form of SNACK, losses are congestion, no rate.
    fn default() -> Self {
        Self {
            snack: Some(Snack::default()),
            assume: LossCause::Congestion,
            dwell: Duration::from_secs(1),
            suspends: true,
            rate: None,
            protocol: Carrier::Tcp,
            header_compression: false,
            bets: None,
            records: 1024,
        }
    }
}

/// What a loss is put down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// A queue that is full: the congestion control hears of it.
    Congestion,
    /// Damage on the way: it is sent again, at the same rate with the same window and time-out.
    Corruption,
}

/// What both sides do of SCPS-TP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The form of selective negative acknowledgments.
    pub snack: Option<SnackForm>,
    /// Headers are compressed; the number by which the peer calls the connection.
    pub compression: Option<u8>,
    /// The best-effort service.
    pub bets: bool,
}

impl Agreed {
    /// How it is said: in the answer to a SYN what both have, and nothing else.
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
