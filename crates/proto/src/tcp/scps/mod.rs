//! SCPS-TP (CCSDS 714.0-B-2): what a connection offers its peer beyond TCP, and how it takes losses.
//!
//! What both SYNs carry is used; a peer without it gets TCP. What only one side does (the cause that
//! losses are put down to, the rate) holds whether the peer understands SCPS-TP or not.

mod rate;
mod snack;

use wire::tcp::Capabilities;

pub use self::rate::RateControl;
pub(crate) use self::rate::{Bucket, Wire};
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
    /// The rate of the route, which all its connections share; `None`: nothing holds them back.
    pub rate: Option<RateControl>,
}

impl Scps {
    /// What a SYN says of it.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let snack = match self.snack.map(|snack| snack.form) {
            None => 0,
            Some(SnackForm::Short) => Capabilities::SNACK_SHORT,
            Some(SnackForm::Bits) => Capabilities::SNACK_SHORT | Capabilities::SNACK_LONG,
        };
        Capabilities { bits: snack, connection: 0 }
    }

    /// What is used of it with a peer that offers `theirs`.
    pub(crate) fn agree(&self, theirs: Capabilities) -> Agreed {
        let bits = self.capabilities().bits & theirs.bits;
        let snack = if bits & Capabilities::SNACK_LONG != 0 {
            Some(SnackForm::Bits)
        } else if bits & Capabilities::SNACK_SHORT != 0 {
            Some(SnackForm::Short)
        } else {
            None
        };
        Agreed { snack }
    }
}

impl Default for Scps {
    /// The reference implementation's: the short form of SNACK, losses are congestion, no rate.
    fn default() -> Self {
        Self { snack: Some(Snack::default()), assume: LossCause::Congestion, rate: None }
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
}

impl Agreed {
    /// How the answer to a SYN says it: what both have, and nothing else.
    pub(crate) fn answer(self) -> Capabilities {
        let snack = match self.snack {
            None => 0,
            Some(SnackForm::Short) => Capabilities::SNACK_SHORT,
            Some(SnackForm::Bits) => Capabilities::SNACK_SHORT | Capabilities::SNACK_LONG,
        };
        Capabilities { bits: snack, connection: 0 }
    }
}
