//! Counters of all packets pushed into a link.

use crate::LossCause;

/// Packets and the bytes of their IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets, without framing.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    pub(crate) fn remove(&mut self, len: usize) {
        self.packets -= 1;
        self.bytes -= len as u64;
    }
}

/// Ledger of one direction. After every operation `pushed = delivered + lost + queued`, in packets
/// and in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Every packet offered, including rejected ones.
    pub pushed: Count,
    /// Left the far end, including damaged ones.
    pub delivered: Count,
    /// Left the far end with flipped bits; part of `delivered`.
    pub damaged: Count,
    /// Delayed by [`Reorder`](crate::Reorder) so that others may overtake, with any fate.
    pub held: Count,
    /// Waiting, in transmission or propagating: accepted and not yet popped, with any fate.
    pub queued: Count,
    /// Lost on the line and recovered by the [`Erasure`](crate::Erasure) code; part of `delivered`
    /// once popped.
    pub recovered: Count,
    /// Parity frames of the erasure code whose transmission began.
    pub parity: Count,
    /// Frames whose transmission began, parity included, in bytes on the line with framing.
    pub line: Count,
    lost: [Count; LossCause::ALL.len()],
}

impl Stats {
    /// Returns losses by this cause. Rejections ([`LossCause::QueueFull`], and
    /// [`LossCause::Outage`] where the policy is to drop) count when they happen, all others when
    /// popped.
    #[must_use]
    pub fn lost(&self, cause: LossCause) -> Count {
        self.lost[cause as usize]
    }

    /// Returns losses by any cause.
    #[must_use]
    pub fn lost_total(&self) -> Count {
        self.lost.iter().fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }

    pub(crate) fn lose(&mut self, cause: LossCause, len: usize) {
        self.lost[cause as usize].add(len);
    }
}
