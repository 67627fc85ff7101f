//! Bytes that may be sent to a peer that has not proven that it receives them.
//!
//! Anyone can write a foreign address into a datagram. Until the peer there has replied to
//! something, it gets at most [`FACTOR`] times the bytes that arrived, counted without IP and UDP
//! headers on both sides. What exceeds them counts as sent and lost: it is retransmitted later.

/// Bytes sent for each byte received.
pub const FACTOR: u64 = 3;

/// Maximum bytes that may be saved up.
const SAVED_MAX: u64 = 1 << 20;

/// Bytes that may be sent to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// Any number: the peer has replied, or is not the one that began.
    Unlimited,
    /// At most this many.
    Limited(u64),
}

impl Credit {
    /// Credit for `received` bytes.
    pub const fn for_received(received: u64) -> Self {
        Self::Limited(received.saturating_mul(FACTOR))
    }

    /// Notes received bytes.
    pub fn earn(&mut self, received: usize) {
        if let Self::Limited(left) = self {
            *left = left.saturating_add((received as u64).saturating_mul(FACTOR));
        }
    }

    /// Passes two thirds on to the response to a request.
    pub fn share(&mut self) -> Self {
        match self {
            Self::Unlimited => Self::Unlimited,
            Self::Limited(left) => {
                let share = *left / 3 * 2;
                *left -= share;
                Self::Limited(share)
            }
        }
    }

    /// Limits the bytes saved up.
    pub fn cap(&mut self) {
        if let Self::Limited(left) = self {
            *left = (*left).min(SAVED_MAX);
        }
    }

    /// Bytes left.
    pub fn left(self) -> usize {
        match self {
            Self::Unlimited => usize::MAX,
            Self::Limited(left) => usize::try_from(left).unwrap_or(usize::MAX),
        }
    }

    /// Takes `len` bytes; `false` if they exceed the credit.
    pub fn spend(&mut self, len: usize) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Limited(left) => match left.checked_sub(len as u64) {
                Some(rest) => {
                    *left = rest;
                    true
                }
                None => false,
            },
        }
    }
}
