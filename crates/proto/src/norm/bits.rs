//! A set of segments of a block.

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
}
