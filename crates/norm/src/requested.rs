//! Requested parts of an object: by this receiver, which does not request them twice, and by
//! others, which makes requests here needless (RFC 5740 §5.3).

use std::ops::Range;

use engine::Time;
use session::ranges::Ranges;

/// Number of remembered ranges of blocks requested by others. Blocks in further ranges are
/// requested once too often.
const OTHERS_MAX: usize = 1024;

/// Requests for NORM_INFO or the whole object.
#[derive(Debug, Default)]
pub(crate) struct InfoRequested {
    /// Time of the last request.
    pub(crate) at: Option<Time>,
    pub(crate) by_others: bool,
    /// Whether others requested the whole object.
    pub(crate) all_by_others: bool,
}

impl InfoRequested {
    /// Whether nothing was requested after `since`.
    pub(crate) fn is_due(&self, since: Time) -> bool {
        self.at.is_none_or(|at| at <= since)
    }

    /// Notes a request of another receiver: for NORM_INFO, or for everything.
    pub(crate) fn note_others(&mut self, info: bool, all: bool) {
        self.by_others |= info || all;
        self.all_by_others |= all;
    }

    /// Forgets the requests of others when a new round begins.
    pub(crate) fn forget_others(&mut self) {
        (self.by_others, self.all_by_others) = (false, false);
    }
}

/// Requested blocks of an object, except incomplete ones.
#[derive(Debug, Default)]
pub(crate) struct Requested {
    /// Blocks without any received segment: first, end (exclusive) and time of the request, the
    /// latest last.
    blocks: Vec<(u64, u64, Time)>,
    blocks_by_others: Ranges,
}

impl Requested {
    pub(crate) fn note_blocks(&mut self, blocks: Range<u64>, at: Time) {
        self.blocks.push((blocks.start, blocks.end, at));
    }

    /// Records blocks of the given ones that others requested, as requested at `at`.
    pub(crate) fn count_others(&mut self, blocks: Range<u64>, at: Time) {
        for (from, to) in self.blocks_by_others.iter() {
            let (from, to) = (from.max(blocks.start), to.min(blocks.end));
            if from < to {
                self.blocks.push((from, to, at));
            }
        }
    }

    /// Forgets requests up to `since`.
    pub(crate) fn forget_before(&mut self, since: Time) {
        self.blocks.retain(|(_, _, at)| *at > since);
    }

    /// Blocks requested after `since` without any received segment.
    pub(crate) fn blocks(&self, since: Time) -> Ranges {
        let mut ranges = Ranges::new();
        for (first, end, _) in self.blocks.iter().filter(|(_, _, at)| *at > since) {
            ranges.insert(*first, *end);
        }
        ranges
    }

    /// Blocks requested here, and those requested by others.
    pub(crate) fn covered(&self, since: Time) -> Ranges {
        let mut ranges = self.blocks(since);
        for (first, end) in self.blocks_by_others.iter() {
            ranges.insert(first, end);
        }
        ranges
    }

    pub(crate) fn note_blocks_by_others(&mut self, Range { start, end }: Range<u64>) {
        if self.blocks_by_others.len() < OTHERS_MAX
            || !self.blocks_by_others.would_add_range(start, end)
        {
            self.blocks_by_others.insert(start, end);
        }
    }

    pub(crate) fn is_block_requested(&self, block: u64) -> bool {
        self.blocks_by_others.contains(block)
    }

    /// Forgets blocks before this one.
    pub(crate) fn forget_blocks(&mut self, before: u64) {
        self.blocks.retain(|(_, end, _)| *end > before);
        self.blocks_by_others.remove(0, before);
    }

    /// Forgets that others requested a block.
    pub(crate) fn forget_others_of(&mut self, block: u64) {
        self.blocks_by_others.remove(block, block + 1);
    }

    /// Forgets the requests of others when a new round begins.
    pub(crate) fn forget_others(&mut self) {
        self.blocks_by_others = Ranges::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_requests_do_not_count() {
        let mut requested = Requested::default();
        let [start, early, late] = [0, 1, 2].map(Time::from_secs);
        let info = InfoRequested { at: Some(early), ..InfoRequested::default() };
        requested.note_blocks(3..5, early);
        requested.note_blocks(5..9, late);
        assert!(!info.is_due(start) && info.is_due(early));
        assert_eq!(requested.blocks(start).iter().collect::<Vec<_>>(), [(3, 9)]);
        assert_eq!(requested.blocks(early).iter().collect::<Vec<_>>(), [(5, 9)]);
        assert_eq!(requested.blocks(late).len(), 0, "a request made at that moment is due again");
        requested.forget_before(early);
        assert_eq!(requested.blocks(start).iter().collect::<Vec<_>>(), [(5, 9)]);
    }

    #[test]
    fn requests_of_others_are_forgotten_with_the_round() {
        let mut requested = Requested::default();
        requested.note_blocks_by_others(4..7);
        assert!(requested.is_block_requested(6) && !requested.is_block_requested(7));
        assert_eq!(requested.covered(Time::ZERO).iter().collect::<Vec<_>>(), [(4, 7)]);
        requested.count_others(0..6, Time::from_secs(1));
        requested.count_others(8..9, Time::from_secs(1));
        assert_eq!(requested.blocks(Time::ZERO).iter().collect::<Vec<_>>(), [(4, 6)]);
        requested.forget_others_of(4);
        assert!(!requested.is_block_requested(4) && requested.is_block_requested(5));
        requested.forget_others();
        assert!(!requested.is_block_requested(5));
        let mut info = InfoRequested::default();
        info.note_others(true, false);
        assert!(info.by_others && !info.all_by_others);
        info.note_others(false, true);
        assert!(info.by_others && info.all_by_others);
        info.forget_others();
        assert!(!info.by_others && !info.all_by_others);
    }
}
