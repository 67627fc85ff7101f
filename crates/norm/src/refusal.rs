//! Report of a receiver that cannot store an object: header extension EXT_REFUSED of this
//! implementation, in a NORM_ACK that replies to a probe. RFC 5740 has no message for it.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 74 |
//! | 1 | `hel`, 2 |
//! | 2 | object |
//! | 1 | [`StoreRefusal`] |
//! | 3 | 0 |

use session::StoreRefusal;

use crate::indication::Failure;
use crate::message::{Extensions, find_extension};

/// Type of the extension.
pub(crate) const EXT_REFUSED: u8 = 74;

impl Failure {
    /// Reason why an object could not be stored here.
    pub fn store_refusal(&self) -> Option<StoreRefusal> {
        match self {
            Self::Storage(error) => Some(error.into()),
            Self::Name(error) => Some(error.into()),
            Self::Cancelled
            | Self::Abandoned
            | Self::Ended
            | Self::Silence
            | Self::Resumed
            | Self::NoReceiver
            | Self::Unacknowledged { .. }
            | Self::Refused(_)
            | Self::Changed
            | Self::Damaged
            | Self::Settings(_) => None,
        }
    }
}

/// Content of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) object: u16,
    pub(crate) reason: StoreRefusal,
}

impl Refusal {
    /// Content of the extension.
    pub(crate) fn encode(self) -> [u8; 6] {
        let [high, low] = self.object.to_be_bytes();
        [high, low, self.reason.code(), 0, 0, 0]
    }

    /// Finds the extension among others.
    pub(crate) fn find(extensions: &Extensions<'_>) -> Option<Self> {
        let [high, low, reason] = *find_extension(extensions, EXT_REFUSED)?.first_chunk::<3>()?;
        let reason = StoreRefusal::from_code(reason);
        Some(Self { object: u16::from_be_bytes([high, low]), reason })
    }
}

/// Last object that a receiver could not store.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    last: Option<(u64, StoreRefusal)>,
    is_due: bool,
}

impl Refused {
    /// Notes an object that cannot be stored.
    pub(crate) fn note(&mut self, number: u64, reason: StoreRefusal) {
        self.last = Some((number, reason));
        self.is_due = true;
    }

    /// Repeats the report if it is about this object. Returns whether it is.
    pub(crate) fn repeat(&mut self, number: u64) -> bool {
        self.is_due |= self.last.is_some_and(|(last, _)| last == number);
        self.is_due
    }

    /// Report to be sent.
    pub(crate) fn due(&self) -> Option<Refusal> {
        let (number, reason) = self.last.filter(|_| self.is_due)?;
        Some(Refusal { object: number as u16, reason })
    }

    /// Notes that the report was sent.
    pub(crate) fn sent(&mut self) {
        self.is_due = false;
    }
}

#[cfg(test)]
mod tests {
    use crate::message::Extension;

    use super::*;

    #[test]
    fn refusals_round_trip() {
        for reason in [StoreRefusal::Failed, StoreRefusal::NoSpace, StoreRefusal::Other(77)] {
            let refusal = Refusal { object: 0x1234, reason };
            let value = refusal.encode();
            let fields = [Extension { kind: EXT_REFUSED, value: &value }];
            assert_eq!(Refusal::find(&Extensions::new(&fields)), Some(refusal));
        }
        assert_eq!(Refusal::find(&Extensions::NONE), None);
    }
}
