//! What of an object was asked for: by this receiver, so that it does not ask twice, and by others,
//! so that it need not ask at all (RFC 5740 §5.3).

use engine::Time;

use crate::ranges::Ranges;

/// Ranges of blocks that are remembered as asked for by others. What is beyond them is asked for
/// once more than it would have to be.
pub(crate) const HEARD_MAX: usize = 1024;

/// What of an object was asked for, but for blocks that came in part.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// When NORM_INFO, or all of the object, was last asked for.
    info_at: Option<Time>,
    /// Blocks of which nothing came: the first, the one behind the last, and when they were asked
    /// for, with the latest at the end.
    blocks: Vec<(u32, u32, Time)>,
    heard_info: bool,
    heard_all: bool,
    heard_blocks: Ranges,
}

impl Asked {
    pub(crate) fn memory(&self) -> usize {
        self.blocks.capacity() * size_of::<(u32, u32, Time)>() + self.heard_blocks.len() * 32
    }

    pub(crate) fn ask_info(&mut self, at: Time) {
        self.info_at = Some(at);
    }

    /// Whether NORM_INFO was requested after a moment.
    pub(crate) fn has_info(&self, since: Time) -> bool {
        self.info_at.is_some_and(|at| at > since)
    }

    pub(crate) fn ask_blocks(&mut self, (first, end): (u32, u32), at: Time) {
        self.blocks.push((first, end, at));
    }

    /// What others asked for of these blocks counts as asked for here.
    pub(crate) fn ask_heard(&mut self, (first, end): (u32, u32), at: Time) {
        for (from, to) in self.heard_blocks.iter() {
            let (from, to) = (from.max(first.into()), to.min(end.into()));
            if from < to {
                self.blocks.push((from as u32, to as u32, at));
            }
        }
    }

    /// Forgets requests up to a moment.
    pub(crate) fn forget_before(&mut self, since: Time) {
        self.blocks.retain(|(_, _, at)| *at > since);
    }

    /// Blocks of which nothing arrived that were requested after a moment.
    pub(crate) fn blocks(&self, since: Time) -> Ranges {
        let mut ranges = Ranges::new();
        for (first, end, _) in self.blocks.iter().filter(|(_, _, at)| *at > since) {
            ranges.insert(u64::from(*first), u64::from(*end));
        }
        ranges
    }

    /// The same, and those that others asked for.
    pub(crate) fn covered(&self, since: Time) -> Ranges {
        let mut ranges = self.blocks(since);
        for (first, end) in self.heard_blocks.iter() {
            ranges.insert(first, end);
        }
        ranges
    }

    pub(crate) fn hear_info(&mut self) {
        self.heard_info = true;
    }

    pub(crate) fn hear_all(&mut self) {
        (self.heard_info, self.heard_all) = (true, true);
    }

    pub(crate) fn hear_blocks(&mut self, first: u32, last: u32) {
        let (start, end) = (u64::from(first), u64::from(last) + 1);
        if self.heard_blocks.len() < HEARD_MAX || !self.heard_blocks.would_add_range(start, end) {
            self.heard_blocks.insert(start, end);
        }
    }

    pub(crate) fn is_info_heard(&self) -> bool {
        self.heard_info
    }

    pub(crate) fn is_all_heard(&self) -> bool {
        self.heard_all
    }

    pub(crate) fn is_block_heard(&self, block: u32) -> bool {
        self.heard_blocks.contains(u64::from(block))
    }

    /// Forgets what others asked for: a new round begins.
    pub(crate) fn forget_heard(&mut self) {
        (self.heard_info, self.heard_all) = (false, false);
        self.heard_blocks = Ranges::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_does_not_count() {
        let mut asked = Asked::default();
        let [start, early, late] = [0, 1, 2].map(Time::from_secs);
        asked.ask_info(early);
        asked.ask_blocks((3, 5), early);
        asked.ask_blocks((5, 9), late);
        assert!(asked.has_info(start) && !asked.has_info(early));
        assert_eq!(asked.blocks(start).iter().collect::<Vec<_>>(), [(3, 9)]);
        assert_eq!(asked.blocks(early).iter().collect::<Vec<_>>(), [(5, 9)]);
        assert_eq!(asked.blocks(late).len(), 0, "a request made at that moment is due again");
        asked.forget_before(early);
        assert_eq!(asked.blocks(start).iter().collect::<Vec<_>>(), [(5, 9)]);
    }

    #[test]
    fn what_others_asked_for_is_forgotten_with_the_round() {
        let mut asked = Asked::default();
        asked.hear_blocks(4, 6);
        assert!(asked.is_block_heard(6) && !asked.is_block_heard(7));
        assert_eq!(asked.covered(Time::ZERO).iter().collect::<Vec<_>>(), [(4, 7)]);
        asked.ask_heard((0, 6), Time::from_secs(1));
        asked.ask_heard((8, 9), Time::from_secs(1));
        assert_eq!(asked.blocks(Time::ZERO).iter().collect::<Vec<_>>(), [(4, 6)]);
        asked.hear_all();
        assert!(asked.is_all_heard() && asked.is_info_heard());
        asked.forget_heard();
        assert!(!asked.is_all_heard() && !asked.is_info_heard() && !asked.is_block_heard(4));
    }
}
