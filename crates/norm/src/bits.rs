//! A set of segments of a block, and runs of them.

use std::ops::Range;

/// Set of segments of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u32,
}

impl Bits {
    pub(crate) const fn new() -> Self {
        Self { words: Vec::new(), count: 0 }
    }

    /// Adds a segment. Returns `false` if it was already in the set.
    #[inline]
    pub(crate) fn insert(&mut self, at: u16) -> bool {
        let (word, bit) = (usize::from(at) / 64, 1_u64 << (at % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    /// Removes a segment.
    pub(crate) fn remove(&mut self, at: u16) {
        let (word, bit) = (usize::from(at) / 64, 1_u64 << (at % 64));
        if let Some(word) = self.words.get_mut(word) {
            self.count -= u32::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// Bytes of memory beyond its own size.
    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Highest segment.
    pub(crate) fn last(&self) -> Option<u16> {
        let (at, word) = self.words.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some((at as u16) * 64 + word.ilog2() as u16)
    }

    /// Adds all segments from `first` to `last`, a word at a time.
    pub(crate) fn insert_all(&mut self, first: u16, last: u16) {
        if first > last {
            return;
        }
        let (from, to) = (usize::from(first) / 64, usize::from(last) / 64);
        if self.words.len() <= to {
            self.words.resize(to + 1, 0);
        }
        for (index, word) in self.words.iter_mut().enumerate().take(to + 1).skip(from) {
            let low = if index == from { first % 64 } else { 0 };
            let high = if index == to { last % 64 } else { 63 };
            let mask = u64::MAX >> (63 - high) & u64::MAX << low;
            self.count += (mask & !*word).count_ones();
            *word |= mask;
        }
    }

    /// Adds all segments of another set.
    pub(crate) fn union(&mut self, others: &Self) {
        if self.words.len() < others.words.len() {
            self.words.resize(others.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            self.count += (other & !*word).count_ones();
            *word |= other;
        }
    }

    pub(crate) fn contains(&self, at: u16) -> bool {
        let word = self.words.get(usize::from(at) / 64);
        word.is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// Number of segments in the set.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Segments in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(|(index, word)| {
            let bits = (0..64).filter(move |bit| word & (1 << bit) != 0);
            bits.map(move |bit| u16::try_from(index * 64 + bit).unwrap_or(u16::MAX))
        })
    }

    /// Runs of consecutive segments as (first, last), without the first `skip` segments.
    pub(crate) fn runs(&self, skip: usize) -> Vec<(u16, u16)> {
        runs(self.iter().skip(skip))
    }

    /// Number of segments from `first` on.
    pub(crate) fn len_from(&self, first: u16) -> u32 {
        let (word, mask) = (usize::from(first) / 64, u64::MAX << (first % 64));
        let rest = self.words.get(word..).unwrap_or_default();
        let (head, tail) = rest.split_first().map_or((0, rest), |(head, tail)| (head & mask, tail));
        head.count_ones() + tail.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// Runs of segments in a range that are not in the set, as (first, last), a word at a time.
    pub(crate) fn gaps(&self, range: Range<u16>) -> impl Iterator<Item = (u16, u16)> + '_ {
        let (mut at, end) = (u32::from(range.start), u32::from(range.end));
        std::iter::from_fn(move || {
            let first = self.next(at, false);
            if first >= end {
                return None;
            }
            at = self.next(first, true).min(end);
            Some((first as u16, (at - 1) as u16))
        })
    }

    /// First place from `at` on that is in the set, or that is not; 65,536 if there is none.
    fn next(&self, at: u32, is_in: bool) -> u32 {
        let mut mask = u64::MAX << (at % 64);
        for index in at / 64..1024 {
            let word = self.words.get(index as usize).copied();
            let found = mask & if is_in { word.unwrap_or(0) } else { !word.unwrap_or(0) };
            if found != 0 {
                return index * 64 + found.trailing_zeros();
            }
            if word.is_none() {
                break;
            }
            mask = u64::MAX;
        }
        1 << 16
    }

    /// Segments below `len` that are not in the set.
    pub(crate) fn missing(&self, len: u16) -> impl Iterator<Item = u16> + '_ {
        (0..len).filter(|at| !self.contains(*at))
    }
}

/// Runs of consecutive segments as (first, last).
pub(crate) fn runs(segments: impl Iterator<Item = u16>) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for at in segments {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(at) => *last = at,
            _ => runs.push((at, at)),
        }
    }
    runs
}

/// Number of segments in runs.
pub(crate) fn len_of(runs: &[(u16, u16)]) -> u32 {
    runs.iter().map(|(first, last)| u32::from(last - first) + 1).sum()
}

/// The first `most` segments of runs.
pub(crate) fn take(runs: &[(u16, u16)], mut most: u32) -> Vec<(u16, u16)> {
    let cut = |&(first, last): &(u16, u16)| {
        let len = (u32::from(last - first) + 1).min(most);
        most -= len;
        (len > 0).then(|| (first, first + (len - 1) as u16))
    };
    runs.iter().map_while(cut).collect()
}

/// Runs without their first `less` segments.
pub(crate) fn skip(runs: &[(u16, u16)], mut less: u32) -> Vec<(u16, u16)> {
    let cut = |&(first, last): &(u16, u16)| {
        let len = u32::from(last - first) + 1;
        let cut = less.min(len);
        less -= cut;
        (cut < len).then(|| (first + cut as u16, last))
    };
    runs.iter().filter_map(cut).collect()
}

/// Joins runs with later ones.
pub(crate) fn join(mut runs: Vec<(u16, u16)>, others: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    let mut others = others.into_iter().peekable();
    if let (Some((_, last)), Some((first, end))) = (runs.last_mut(), others.peek())
        && last.checked_add(1) == Some(*first)
    {
        *last = *end;
        others.next();
    }
    runs.extend(others);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_bits_are_found() {
        let mut bits = Bits::new();
        assert!(bits.insert(3) && bits.insert(64) && bits.insert(254) && !bits.insert(64));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [3, 64, 254]);
        assert_eq!((bits.len(), bits.contains(254), bits.contains(255)), (3, true, false));
        bits.insert(4);
        assert_eq!(bits.runs(0), [(3, 4), (64, 64), (254, 254)]);
        assert_eq!(bits.runs(1), [(4, 4), (64, 64), (254, 254)]);
        assert_eq!(bits.missing(6).collect::<Vec<_>>(), [0, 1, 2, 5]);
        [64, 64, 65, 9_999].into_iter().for_each(|at| bits.remove(at));
        assert_eq!((bits.len(), bits.contains(64), bits.contains(254)), (3, false, true));
        assert_eq!((bits.last(), Bits::new().last()), (Some(254), None));
        bits.remove(254);
        assert_eq!(bits.last(), Some(4));
    }

    #[test]
    fn batch_and_single_insertions_agree() {
        let ends = [0, 1, 62, 63, 64, 65, 127, 128, 200, u16::MAX];
        for (first, last) in ends.iter().flat_map(|first| ends.map(|last| (*first, last))) {
            let (mut all, mut each) = (Bits::new(), Bits::new());
            for bits in [&mut all, &mut each] {
                bits.insert(63);
                bits.insert(100);
            }
            all.insert_all(first, last);
            (first..=last).for_each(|at| _ = each.insert(at));
            assert_eq!(all, each, "{first} {last}");
            let mut both = Bits::new();
            both.insert(7);
            both.union(&each);
            assert_eq!(both.len(), each.len() + u32::from(!each.contains(7)));
            assert!(each.iter().all(|at| both.contains(at)));
        }
    }

    #[test]
    fn gaps_and_runs_agree_with_single_segments() {
        let mut bits = Bits::new();
        [0, 1, 5, 63, 64, 65, 128, 200, 4_095, 4_096]
            .into_iter()
            .for_each(|at| _ = bits.insert(at));
        let ranges = [0..0, 0..1, 0..64, 3..70, 64..129, 5..6, 190..9_000, 4_096..u16::MAX];
        for range in ranges {
            let single = runs(range.clone().filter(|at| !bits.contains(*at)));
            let gaps: Vec<_> = bits.gaps(range.clone()).collect();
            assert_eq!(gaps, single, "{range:?}");
            assert_eq!(len_of(&gaps) as usize, range.filter(|at| !bits.contains(*at)).count());
        }
        assert!([0, 1, 64, 65, 201, 5_000].map(|at| bits.len_from(at)) == [10, 9, 6, 5, 2, 0]);
        let gaps = [(2, 4), (6, 6), (9, 20)];
        assert_eq!(take(&gaps, 5), [(2, 4), (6, 6), (9, 9)]);
        assert_eq!(take(&gaps, 4), [(2, 4), (6, 6)]);
        assert_eq!(skip(&gaps, 4), [(9, 20)]);
        assert_eq!(skip(&gaps, 5), [(10, 20)]);
        assert_eq!((take(&gaps, 0), skip(&gaps, 99)), (vec![], vec![]));
        assert_eq!(join(vec![(1, 3)], vec![(4, 5), (7, 7)]), [(1, 5), (7, 7)]);
        assert_eq!(join(vec![(1, 3)], vec![(5, 5)]), [(1, 3), (5, 5)]);
    }
}
