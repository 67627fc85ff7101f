//! Receivers' requests for an object, before they become repairs.
//!
//! A few bytes can request all of a large object. Blocks of which a receiver lacks everything are
//! therefore kept as ranges. They are examined one by one only when their segments are about to be
//! sent.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::Time;
use session::ranges::Ranges;

use crate::bits::Bits;
use crate::message::{Position, RequestFlags, RequestWriter};

/// Missing segments of a block.
#[derive(Debug, Default)]
pub(super) struct Mark {
    pub(super) symbols: Bits,
    /// Whether a receiver has nothing of the block.
    pub(super) is_whole: bool,
    /// Largest number of segments of this block that one receiver misses.
    pub(super) missing: u32,
}

impl Mark {
    /// Mark for a block of `block_len` segments of which a receiver has nothing.
    pub(super) fn whole(block_len: u16) -> Self {
        Self { symbols: Bits::new(), is_whole: true, missing: block_len.into() }
    }
}

/// Missing segments of an object.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Blocks with missing segments; for streams also completely missing blocks.
    pub(super) parts: BTreeMap<u32, Mark>,
    /// Blocks of which a receiver has nothing.
    pub(super) whole: Ranges,
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.whole.len() == 0
    }

    /// Adds the blocks from `first` to before `end`. Returns `false` if that would take more than
    /// `most` ranges.
    pub(super) fn add_whole(
        &mut self,
        Range { start: first, end }: Range<u64>,
        most: usize,
    ) -> bool {
        if self.whole.len() >= most && self.whole.would_add_range(first, end) {
            return false;
        }
        self.whole.insert(first, end);
        true
    }

    /// Merges other marks, up to `most` entries of either kind.
    pub(super) fn add(&mut self, others: &Self, most: usize) {
        for (first, end) in others.whole.iter() {
            self.add_whole(first..end, most);
        }
        for (block, mark) in &others.parts {
            if self.parts.len() >= most && !self.parts.contains_key(block) {
                return;
            }
            let own = self.parts.entry(*block).or_default();
            own.symbols.union(&mark.symbols);
            own.is_whole |= mark.is_whole;
            own.missing = own.missing.max(mark.missing);
        }
    }

    /// Writes all marks as requests. With parity, only the number of missing segments matters.
    /// Returns `false` if there was no room for all.
    pub(super) fn write(
        &self,
        writer: &mut RequestWriter<'_>,
        position: impl Fn(u32, u16) -> Position,
        has_parity: bool,
    ) -> bool {
        let mut whole = self.whole.iter().peekable();
        for (block, mark) in &self.parts {
            while let Some((first, end)) = whole.next_if(|(first, _)| *first <= u64::from(*block)) {
                if !write_blocks(writer, &position, first, end) {
                    return false;
                }
            }
            if mark.is_whole {
                if writer.item(RequestFlags::BLOCK, position(*block, 0)).is_err() {
                    return false;
                }
                continue;
            }
            // Only the number of parity segments matters; the requested ones come last.
            let len = if has_parity { mark.missing as usize } else { usize::MAX };
            let skip = (mark.symbols.len() as usize).saturating_sub(len);
            for (first, last) in mark.symbols.runs(skip) {
                let (first, last) = (position(*block, first), position(*block, last));
                if writer.range(RequestFlags::SEGMENT, first, last).is_err() {
                    return false;
                }
            }
        }
        whole.all(|(first, end)| write_blocks(writer, &position, first, end))
    }
}

/// Requests blocks of which a receiver has nothing. Returns `false` if there was no room.
fn write_blocks(
    writer: &mut RequestWriter<'_>,
    position: impl Fn(u32, u16) -> Position,
    first: u64,
    end: u64,
) -> bool {
    let (first, last) = (position(first as u32, 0), position((end - 1) as u32, 0));
    if first == last {
        writer.item(RequestFlags::BLOCK, first).is_ok()
    } else {
        writer.range(RequestFlags::BLOCK, first, last).is_ok()
    }
}

/// Blocks to be retransmitted as a whole: each once per pass, regardless of requests meanwhile.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Ranges by first block: the block after the last, and the time of the latest request.
    ranges: BTreeMap<u32, (u32, Time)>,
    /// Next block of the current pass.
    next: u32,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether a block is queued.
    pub(super) fn contains(&self, block: u32) -> bool {
        let before = self.ranges.range(..=block).next_back();
        before.is_some_and(|(_, (end, _))| block < *end)
    }

    /// Queues the blocks from `first` to before `end`.
    pub(super) fn insert(&mut self, Range { start: first, end }: Range<u32>, at: Time) {
        if first >= end {
            return;
        }
        if let Some((_, (stop, requested))) = self.ranges.range_mut(..first).next_back()
            && *stop > first
        {
            let behind = (*stop > end).then_some((*stop, *requested));
            *stop = first;
            if let Some(behind) = behind {
                self.ranges.insert(end, behind);
            }
        }
        while let Some((&from, &(stop, requested))) = self.ranges.range(first..end).next() {
            self.ranges.remove(&from);
            if stop > end {
                self.ranges.insert(end, (stop, requested));
            }
        }
        self.ranges.insert(first, (end, at));
    }

    /// Takes the next block, with the time of its request.
    pub(super) fn take(&mut self) -> Option<(u32, Time)> {
        let before = self.ranges.range(..=self.next).next_back();
        let under_way = before.filter(|(_, (end, _))| self.next < *end);
        let after = || self.ranges.range(self.next..).next();
        // After the last block the pass starts over.
        let found = under_way.or_else(after).or_else(|| self.ranges.first_key_value());
        let (&first, &(end, at)) = found?;
        let block = if first <= self.next && self.next < end { self.next } else { first };
        self.ranges.remove(&first);
        if first < block {
            self.ranges.insert(first, (block, at));
        }
        if block + 1 < end {
            self.ranges.insert(block + 1, (end, at));
        }
        self.next = block + 1;
        Some((block, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Time = Time::from_secs(1);
    const LATER: Time = Time::from_secs(2);

    #[test]
    fn blocks_are_due_once_in_turn() {
        let mut due = Due::default();
        due.insert(10..14, SOON);
        assert_eq!(due.take(), Some((10, SOON)));
        // Blocks already sent are requested again: they wait for the next pass.
        due.insert(9..12, LATER);
        assert!(due.contains(9) && due.contains(10) && due.contains(13) && !due.contains(14));
        let rest: Vec<_> = std::iter::from_fn(|| due.take()).collect();
        assert_eq!(rest, [(11, LATER), (12, SOON), (13, SOON), (9, LATER), (10, LATER)]);
        assert!(due.is_empty());
    }

    #[test]
    fn the_last_request_counts() {
        let mut due = Due::default();
        due.insert(0..100, SOON);
        due.insert(40..42, LATER);
        assert_eq!(due.len(), 3);
        due.insert(41..60, SOON);
        due.insert(20..30, LATER);
        due.insert(0..0, LATER);
        let all: Vec<_> = std::iter::from_fn(|| due.take()).collect();
        assert!(all.iter().map(|(block, _)| *block).eq(0..100));
        let late: Vec<_> = all.iter().filter(|(_, at)| *at == LATER).map(|(at, _)| *at).collect();
        assert_eq!(late, [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 40]);
    }

    #[test]
    fn number_of_ranges_is_bounded() {
        let mut marks = Marks::default();
        assert!(marks.add_whole(0..2, 2) && marks.add_whole(4..6, 2));
        assert!(!marks.add_whole(8..9, 2) && marks.add_whole(2..4, 2));
        assert_eq!((marks.whole.len(), marks.whole.covered()), (1, 6));
        let mut others = Marks::default();
        others.parts.insert(7, Mark::whole(3));
        others.parts.insert(8, Mark::whole(3));
        marks.add(&others, 1);
        assert_eq!(marks.parts.keys().collect::<Vec<_>>(), [&7]);
    }
}
