//! Received and unread data: in order, and beyond gaps.

use session::ranges::Ranges;

use super::ring::Ring;
use super::seq;
use crate::segment::{SackBlock, SackBlocks};

/// Receiving half of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Reassembly {
    ring: Ring,
    /// First unread byte.
    start: u64,
    /// Next expected byte.
    next: u64,
    /// Data beyond it.
    beyond: Ranges,
    /// Blocks of that data, the latest first (RFC 2018 §4).
    recent: Vec<(u64, u64)>,
    capacity: u64,
    /// Whether data beyond a gap uses the room for new data.
    charges_beyond: bool,
    gaps_max: usize,
}

/// Result for a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// In order: this many bytes became readable.
    InOrder { bytes: u64, filled_gap: bool },
    /// Beyond a gap.
    Beyond,
    /// Duplicate: nothing in it is new.
    Duplicate,
    /// No room for another gap.
    Refused,
}

impl Reassembly {
    /// Empty buffer that first expects `next`.
    pub(crate) fn new(next: u64, capacity: u64, gaps_max: usize) -> Self {
        Self {
            ring: Ring::default(),
            start: next,
            next,
            beyond: Ranges::new(),
            recent: Vec::new(),
            capacity,
            charges_beyond: false,
            gaps_max,
        }
    }

    /// Makes data beyond a gap use the room for new data, as in Linux, whose buffer grows by as
    /// much.
    pub(crate) fn charge_beyond(&mut self) {
        self.charges_beyond = true;
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Readable bytes.
    pub(crate) fn readable(&self) -> u64 {
        self.next - self.start
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Enlarges the buffer; it never shrinks.
    pub(crate) fn grow(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// End of the range with room.
    pub(crate) fn edge(&self) -> u64 {
        let beyond = if self.charges_beyond { self.beyond.covered() } else { 0 };
        self.start + self.capacity.saturating_sub(beyond)
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// First unread byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Fills missing data before `to`, the end of a hole, with zeros.
    pub(crate) fn skip(&mut self, to: u64) {
        const ZEROS: [u8; 1024] = [0; 1024];
        self.ring.reserve(self.start, self.used(), to);
        while self.next < to {
            let len = (to - self.next).min(ZEROS.len() as u64);
            self.ring.write(self.next, &ZEROS[..len as usize]);
            self.next += len;
        }
        self.join();
    }

    /// Missing ranges from `at` on, in order, before the last byte received.
    pub(crate) fn holes_from(&self, at: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.beyond.gaps(at.max(self.next), self.beyond.end())
    }

    /// End of the last byte received.
    pub(crate) fn highest(&self) -> u64 {
        self.used()
    }

    /// Whether all of `start..end` has arrived.
    pub(crate) fn has(&self, start: u64, end: u64) -> bool {
        end <= self.next || self.beyond.gaps(start.max(self.next), end).next().is_none()
    }

    /// First contiguous part of `start..end` that has arrived already (RFC 2883 §4.2).
    pub(crate) fn duplicate(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (begin, stop) = if start < self.next {
            (start, self.next)
        } else {
            // The data at `start`, or after a first gap.
            let missing = self.beyond.gaps(start, end).next().filter(|gap| gap.0 == start);
            let begin = missing.map_or(start, |gap| gap.1);
            (begin, self.beyond.containing(begin)?.1)
        };
        Some((begin, stop.min(end))).filter(|(begin, stop)| begin < stop)
    }

    /// Inserts bytes that lie at least partly within `next..edge`, up to `limit`.
    pub(crate) fn insert(&mut self, at: u64, bytes: &[u8], limit: u64) -> Arrival {
        let end = (at + bytes.len() as u64).min(limit).max(at);
        if end <= self.next {
            return Arrival::Duplicate;
        }
        let from = at.max(self.next);
        let bytes = &bytes[(from - at) as usize..(end - at) as usize];
        if from > self.next {
            return self.insert_beyond(from, bytes);
        }
        let before = self.next;
        self.ring.reserve(self.start, self.used(), end);
        self.ring.write(from, bytes);
        self.next = end;
        let filled_gap = self.has_gaps();
        if filled_gap {
            self.join();
        }
        Arrival::InOrder { bytes: self.next - before, filled_gap }
    }

    fn used(&self) -> u64 {
        self.next.max(self.beyond.end())
    }

    fn insert_beyond(&mut self, from: u64, bytes: &[u8]) -> Arrival {
        let end = from + bytes.len() as u64;
        if self.beyond.gaps(from, end).next().is_none() {
            self.report(from);
            return Arrival::Duplicate;
        }
        if self.beyond.would_add_range(from, end) && self.beyond.len() >= self.gaps_max {
            return Arrival::Refused;
        }
        self.ring.reserve(self.start, self.used(), end);
        self.ring.write(from, bytes);
        self.beyond.insert(from, end);
        self.report(from);
        Arrival::Beyond
    }

    /// Moves the block that contains `at` to the front.
    fn report(&mut self, at: u64) {
        let Some(block) = self.block(at) else { return };
        self.recent.retain(|(start, end)| *end < block.0 || *start > block.1);
        self.recent.insert(0, block);
        self.recent.truncate(SackBlocks::MAX);
    }

    fn block(&self, at: u64) -> Option<(u64, u64)> {
        // A block has no gap of one byte at `at`.
        self.beyond.containing(at)
    }

    /// Joins data after a filled gap.
    fn join(&mut self) {
        if let Some((_, end)) = self.beyond.containing(self.next) {
            self.next = end;
        }
        self.beyond.remove(0, self.next);
        let next = self.next;
        self.recent.retain(|(_, end)| *end > next);
    }

    /// Blocks to report, at most `most`.
    pub(crate) fn blocks(&self, most: usize) -> impl Iterator<Item = SackBlock> + '_ {
        self.recent
            .iter()
            .take(most)
            .map(|(start, end)| SackBlock { left: seq::wire(*start), right: seq::wire(*end) })
    }

    /// Readable data, in one or two pieces.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.ring.slices(self.start, self.readable() as usize)
    }

    /// Removes bytes that were read.
    pub(crate) fn consume(&mut self, bytes: u64) {
        self.start = (self.start + bytes).min(self.next);
    }

    /// Removes everything, and frees the memory.
    pub(crate) fn clear(&mut self) {
        self.start = self.next;
        self.beyond = Ranges::new();
        self.recent.clear();
        self.ring.clear();
    }

    pub(crate) fn memory(&self) -> usize {
        // A range takes some 50 bytes in its map.
        self.ring.memory() + self.beyond.len() * 64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(reassembly: &Reassembly) -> Vec<(u32, u32)> {
        reassembly.blocks(4).map(|block| (block.left, block.right)).collect()
    }

    #[test]
    fn the_latest_block_comes_first() {
        let mut all = Reassembly::new(100, 10_000, 16);
        for (at, expected) in [
            (300, &[(300, 350)][..]),
            (500, &[(500, 550), (300, 350)]),
            (200, &[(200, 250), (500, 550), (300, 350)]),
            (350, &[(300, 400), (200, 250), (500, 550)]),
        ] {
            assert_eq!(all.insert(at, &[7; 50], 9999), Arrival::Beyond);
            assert_eq!(blocks(&all), expected);
        }
        assert_eq!(all.insert(500, &[7; 20], 9999), Arrival::Duplicate);
        assert_eq!(blocks(&all)[0], (500, 550));
        let filled = Arrival::InOrder { bytes: 150, filled_gap: true };
        assert_eq!(all.insert(80, &[7; 120], 9999), filled);
        assert_eq!(blocks(&all), [(500, 550), (300, 400)]);
        assert_eq!(all.insert(200, &[7; 50], 9999), Arrival::Duplicate);
        assert_eq!(
            all.insert(250, &[7; 9000], 400),
            Arrival::InOrder { bytes: 150, filled_gap: true }
        );
        assert_eq!((all.readable(), all.next()), (300, 400));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut all = Reassembly::new(0, 10_000, 2);
        assert_eq!(all.insert(10, &[1], 9999), Arrival::Beyond);
        assert_eq!(all.insert(20, &[1], 9999), Arrival::Beyond);
        assert_eq!(all.insert(30, &[1], 9999), Arrival::Refused);
        assert_eq!(all.insert(11, &[1], 9999), Arrival::Beyond, "no gap is added");
    }

    proptest! {
        #[test]
        fn any_order_gives_the_stream(
            pieces in prop::collection::vec((0..400_u64, 1..80_usize), 1..60),
            read_every in 1..5_usize,
        ) {
            let content: Vec<u8> = (0..500_u64).map(|i| ((i * 37) >> 2) as u8).collect();
            let origin = seq::begin(u32::MAX - 100);
            let mut all = Reassembly::new(origin, 500, 1000);
            let mut out = Vec::new();
            let mut arrived = [false; 500];
            // In the end all of it, so that it is complete.
            let rest = (0..500).step_by(50).map(|at| (at, 50));
            for (n, (at, len)) in pieces.into_iter().chain(rest).enumerate() {
                let end = content.len().min(at as usize + len);
                let first = (at as usize..end).find(|at| arrived[*at]);
                let part = first.map(|first| {
                    let stop = (first..end).find(|at| !arrived[*at]).unwrap_or(end);
                    (origin + first as u64, origin + stop as u64)
                });
                prop_assert_eq!(all.duplicate(origin + at, origin + end as u64), part);
                arrived[at as usize..end].fill(true);
                all.insert(origin + at, &content[at as usize..end], origin + 500);
                if n % read_every == 0 {
                    let (first, second) = all.peek();
                    out.extend([first, second].concat());
                    all.consume(all.readable());
                }
                for block in all.blocks(4) {
                    prop_assert!(seq::expand(all.next(), block.left) > all.next());
                }
            }
            let (first, second) = all.peek();
            out.extend([first, second].concat());
            prop_assert!(!all.has_gaps());
            prop_assert_eq!(out, content);
        }
    }
}
