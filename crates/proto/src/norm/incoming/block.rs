//! A block of which something is here.

use bytes::BytesMut;
use engine::Time;

use super::{Bits, Shape};

/// A block that came in part.
#[derive(Debug)]
pub(super) struct Block {
    /// Source segments in their places, as far as the last that came, and parity in the places of
    /// segments that did not come.
    pub(super) buffer: BytesMut,
    pub(super) have: Bits,
    /// Parity segments, and whose places they have.
    pub(super) parity: Vec<(u16, u16)>,
    pub(super) cost: usize,
    /// Symbols that other receivers asked for.
    pub(super) by_others: Bits,
    /// When it was last asked for, and whether something of it came since.
    pub(super) requested_at: Option<Time>,
    pub(super) is_answered: bool,
    /// Whether there was no room for it: what comes of it goes to the file at once, and it has no use
    /// for parity.
    pub(super) is_direct: bool,
}

impl Block {
    pub(super) fn new(buffer: BytesMut, cost: usize) -> Self {
        Self {
            buffer,
            have: Bits::new(),
            parity: Vec::new(),
            cost,
            by_others: Bits::new(),
            requested_at: None,
            is_answered: true,
            is_direct: false,
        }
    }

    #[inline]
    pub(super) fn put(&mut self, at: usize, payload: &[u8]) {
        match self.buffer.len() {
            len if len == at => self.buffer.extend_from_slice(payload),
            len => {
                if len < at + payload.len() {
                    self.buffer.resize(at + payload.len(), 0);
                }
                self.buffer[at..at + payload.len()].copy_from_slice(payload);
            }
        }
    }

    /// Puts a parity segment into the place of a source segment.
    pub(super) fn put_whole(&mut self, place: u16, segment: usize, payload: &[u8]) {
        let at = usize::from(place) * segment;
        self.put(at, payload);
        if self.buffer.len() < at + segment {
            self.buffer.resize(at + segment, 0);
        }
        self.buffer[at + payload.len()..at + segment].fill(0);
    }

    /// The place of a source segment that did not come, and that no parity has.
    pub(super) fn free_place(&self, block_len: u16) -> Option<u16> {
        let is_free = |place: &u16| self.parity.iter().all(|(_, taken)| taken != place);
        self.have.missing(block_len).find(is_free)
    }

    /// Moves parity out of the place of a source segment that came.
    #[inline]
    pub(super) fn make_place(&mut self, symbol: u16, block_len: u16, segment: usize) {
        let Some(which) = self.parity.iter().position(|(_, place)| *place == symbol) else {
            return;
        };
        // As long as the block is not complete, there are as many places as segments.
        let Some(place) = self.free_place(block_len) else { return };
        let (from, to) = (usize::from(symbol) * segment, usize::from(place) * segment);
        if self.buffer.len() < to + segment {
            self.buffer.resize(to + segment, 0);
        }
        self.buffer.copy_within(from..from + segment, to);
        self.parity[which].1 = place;
    }

    /// Whether it was requested after a moment. A timer that ends exactly when the hold-off is over
    /// finds that the request is due again.
    pub(super) fn was_requested(&self, since: Time) -> bool {
        self.requested_at.is_some_and(|at| at > since)
    }

    /// Whether others asked for all that is wanted. Any parity mends any loss, so that of parity only
    /// how much they asked for counts.
    pub(super) fn is_requested(&self, wanted: &[u16], block_len: u16) -> bool {
        let parity = wanted.iter().filter(|symbol| **symbol >= block_len).count();
        let count = self.by_others.iter().filter(|symbol| *symbol >= block_len).count();
        let mut explicit = wanted.iter().filter(|symbol| **symbol < block_len);
        count >= parity && explicit.all(|symbol| self.by_others.contains(*symbol))
    }

    /// Bytes of it that came as they are.
    pub(super) fn counted(&self, shape: &Shape, number: u32) -> u64 {
        let lens = self.have.iter().map(|symbol| shape.partition.segment_len(number, symbol));
        lens.map(u64::from).sum()
    }

    /// A block for which there is no room, but for what came of it.
    pub(super) fn direct(cost: usize) -> Self {
        Self { is_direct: true, ..Self::new(BytesMut::new(), cost) }
    }

    /// What it costs to know what came of a block of so many segments.
    pub(super) fn direct_cost(block_len: u16) -> usize {
        size_of::<Self>() + usize::from(block_len).div_ceil(64) * size_of::<u64>()
    }

    /// The symbols to ask for.
    pub(super) fn wanted(&self, block_len: u16, parity: u16) -> Vec<u16> {
        if self.is_direct {
            return self.have.missing(block_len).collect();
        }
        let lacks = usize::from(block_len).saturating_sub(self.have.len() as usize);
        let fresh = (block_len..block_len + parity).filter(|at| !self.have.contains(*at));
        let fresh: Vec<_> = fresh.take(lacks).collect();
        // So many of the segments themselves as parity cannot make up for.
        let rest = lacks - fresh.len();
        let missing: Vec<_> = self.have.missing(block_len).collect();
        let explicit = &missing[missing.len().saturating_sub(rest)..];
        explicit.iter().copied().chain(fresh).collect()
    }
}
