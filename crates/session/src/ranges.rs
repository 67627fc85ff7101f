//! Set of byte ranges: the data that have arrived, and the gaps between them.

use std::collections::BTreeMap;

/// Disjoint half-open ranges that do not touch, in order.
///
/// The highest range is kept apart, because data that arrives in order only ever extends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    below: BTreeMap<u64, u64>,
    last: Option<(u64, u64)>,
    covered: u64,
}

impl Ranges {
    /// No ranges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes covered.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// End of the highest range, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.last.map_or(0, |(_, end)| end)
    }

    /// End of the range that starts at 0, 0 if there is none.
    pub fn prefix(&self) -> u64 {
        self.iter().next().filter(|&(start, _)| start == 0).map_or(0, |(_, end)| end)
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.below.len() + usize::from(self.last.is_some())
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `at` is covered.
    pub fn contains(&self, at: u64) -> bool {
        if self.last.is_some_and(|(start, _)| at >= start) {
            return at < self.end();
        }
        self.below.range(..=at).next_back().is_some_and(|(_, &end)| at < end)
    }

    /// Range that contains `at`.
    pub fn containing(&self, at: u64) -> Option<(u64, u64)> {
        let below = self.below.range(..=at).next_back().map(|(&start, &end)| (start, end));
        let range = self.last.filter(|&(start, _)| start <= at).or(below);
        range.filter(|&(_, end)| at < end)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.below.iter().map(|(&start, &end)| (start, end)).chain(self.last)
    }

    /// Whether `start..end` would become a separate range, touching no other.
    pub fn would_add_range(&self, start: u64, end: u64) -> bool {
        let Some((last_start, last_end)) = self.last else { return true };
        if start > last_end {
            return true;
        }
        if end >= last_start {
            return false;
        }
        let before = self.below.range(..=end).next_back();
        before.is_none_or(|(_, &stop)| stop < start)
    }

    /// Adds `start..end`.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let Some((last_start, last_end)) = self.last else {
            self.last = Some((start, end));
            self.covered = end - start;
            return;
        };
        if start >= last_start && start <= last_end {
            // Fast path: in order, or already covered.
            if end > last_end {
                self.covered += end - last_end;
                self.last = Some((last_start, end));
            }
            return;
        }
        if start > last_end {
            self.below.insert(last_start, last_end);
            self.last = Some((start, end));
            self.covered += end - start;
            return;
        }
        self.insert_below(start, end);
    }

    /// Adds a range that starts before the last range.
    fn insert_below(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &stop)) = self.below.range(..=start).next_back()
            && stop >= start
        {
            if stop >= end {
                return;
            }
            self.below.remove(&before);
            self.covered -= stop - before;
            start = before;
        }
        while let Some((&next, &stop)) = self.below.range(start..=end).next() {
            self.below.remove(&next);
            self.covered -= stop - next;
            end = end.max(stop);
        }
        self.covered += end - start;
        match self.last {
            Some((last_start, last_end)) if last_start <= end => {
                self.covered -= last_end - last_start;
                // The part of the new range that lies in the last one was counted above.
                self.covered += last_end.max(end) - end;
                self.last = Some((start, last_end.max(end)));
            }
            Some(_) | None => {
                self.below.insert(start, end);
            }
        }
    }

    /// Removes `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let hit: Vec<_> = self.overlapping(start, end).collect();
        for (from, to) in hit {
            if self.last == Some((from, to)) {
                self.last = None;
            } else {
                self.below.remove(&from);
            }
            self.covered -= to - from;
            if from < start {
                self.below.insert(from, start);
                self.covered += start - from;
            }
            if to > end {
                self.below.insert(end, to);
                self.covered += to - end;
            }
        }
        if self.last.is_none() {
            self.last = self.below.pop_last();
        }
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.below.range(..start).next_back().map(|(&from, &to)| (from, to));
        let inside = self.below.range(start..end).map(|(&from, &to)| (from, to));
        let all = before.into_iter().chain(inside).chain(self.last);
        all.filter(move |&(from, to)| from < end && to > start)
    }

    /// The parts of `start..end` that are not covered, in order.
    pub fn gaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut at, end) = (start, end.max(start));
        // An empty range at the end lets the last gap be found like the others.
        let stop = (start < end).then_some((end, end));
        self.overlapping(start, end).chain(stop).filter_map(move |(from, to)| {
            let gap = (at < from).then_some((at, from.min(end)));
            at = at.max(to);
            gap
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_between_ranges() {
        let mut ranges = Ranges::new();
        assert_eq!(ranges.gaps(0, 10).collect::<Vec<_>>(), [(0, 10)]);
        assert_eq!(ranges.gaps(5, 5).count(), 0);
        ranges.insert(10, 20);
        ranges.insert(30, 40);
        assert_eq!(ranges.gaps(0, 50).collect::<Vec<_>>(), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(ranges.gaps(15, 35).collect::<Vec<_>>(), [(20, 30)]);
        assert!(ranges.would_add_range(22, 28) && !ranges.would_add_range(20, 25));
        assert!(ranges.would_add_range(41, 50) && !ranges.would_add_range(25, 30));
        ranges.insert(0, 35);
        assert_eq!((ranges.prefix(), ranges.len(), ranges.covered()), (40, 1, 40));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_bytes(
            ops in prop::collection::vec((any::<bool>(), 0..64u64, 0..20u64), 0..60),
        ) {
            let mut ranges = Ranges::new();
            let mut model = [false; 96];
            for (insert, start, len) in ops {
                let end = start + len;
                if insert {
                    let touches = (start.saturating_sub(1)..end + 1).any(|i| model[i as usize]);
                    if len > 0 {
                        prop_assert_eq!(ranges.would_add_range(start, end), !touches);
                    }
                    ranges.insert(start, end);
                } else {
                    ranges.remove(start, end);
                }
                model[start as usize..end as usize].fill(insert);
                let covered = model.iter().filter(|x| **x).count() as u64;
                prop_assert_eq!(ranges.covered(), covered);
                let all: Vec<_> = ranges.iter().collect();
                prop_assert_eq!(all.len(), ranges.len());
                prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", all);
                let gaps: u64 = ranges.gaps(3, 90).map(|(from, to)| to - from).sum();
                let missing = model[3..90].iter().filter(|x| !**x).count() as u64;
                prop_assert_eq!(gaps, missing);
            }
        }
    }
}
