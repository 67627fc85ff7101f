//! Record boundaries (CCSDS 714.0-B-2, option 22).

use std::collections::{BTreeSet, VecDeque};

/// Ends of the user's unacknowledged records, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    ends: VecDeque<u64>,
}

impl Marks {
    /// Adds the end of a record before `at`; `false` if there are `most` already.
    pub(crate) fn add(&mut self, at: u64, most: usize) -> bool {
        if self.ends.back() == Some(&at) {
            return true;
        }
        if self.ends.len() >= most {
            return false;
        }
        self.ends.push_back(at);
        true
    }

    /// First end after `at`.
    pub(crate) fn after(&self, at: u64) -> Option<u64> {
        self.ends.get(self.ends.partition_point(|end| *end <= at)).copied()
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        self.ends.binary_search(&at).is_ok()
    }

    /// Removes ends before the acknowledged `una`.
    pub(crate) fn release(&mut self, una: u64) {
        while self.ends.front().is_some_and(|end| *end <= una) {
            self.ends.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ends.clear();
    }

    pub(crate) fn memory(&self) -> usize {
        self.ends.len() * size_of::<u64>()
    }
}

/// Ends of the peer's unread records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    ends: BTreeSet<u64>,
    /// Position up to which the user was notified.
    reported: u64,
}

impl Ends {
    /// Adds the end of a record before `at`; `false` if there are `most` already.
    pub(crate) fn add(&mut self, at: u64, most: usize) -> bool {
        if self.ends.len() >= most && !self.ends.contains(&at) {
            return false;
        }
        self.ends.insert(at);
        true
    }

    /// First end.
    pub(crate) fn first(&self) -> Option<u64> {
        self.ends.first().copied()
    }

    /// Whether there is an end before `next` without a notification, which is then marked as
    /// notified.
    pub(crate) fn take_end_before(&mut self, next: u64) -> bool {
        let last = self.ends.range(..=next).next_back().copied().unwrap_or(0);
        let news = last > self.reported;
        self.reported = self.reported.max(last);
        news
    }

    /// Removes ends before the read position `start`.
    pub(crate) fn release(&mut self, start: u64) {
        while self.ends.first().is_some_and(|end| *end <= start) {
            self.ends.pop_first();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.ends.len() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_bounded_and_found() {
        let mut marks = Marks::default();
        assert!(marks.add(10, 2) && marks.add(10, 2) && marks.add(30, 2) && !marks.add(40, 2));
        assert_eq!((marks.after(9), marks.after(10), marks.after(30)), (Some(10), Some(30), None));
        assert!(marks.has(30) && !marks.has(20));
        marks.release(10);
        assert!(marks.after(0) == Some(30) && marks.add(40, 2));
    }

    #[test]
    fn ends_are_reported_once_and_in_order() {
        let mut ends = Ends::default();
        assert!(ends.add(30, 2) && ends.add(10, 2) && ends.add(10, 2) && !ends.add(20, 2));
        assert!(
            !ends.take_end_before(9)
                && ends.take_end_before(10)
                && !ends.take_end_before(29)
                && ends.take_end_before(30)
        );
        ends.release(10);
        assert_eq!(ends.first(), Some(30));
    }
}
