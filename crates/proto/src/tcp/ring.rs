//! Octets at absolute positions, in memory that goes round.

/// A window of a stream: octet `n` lies at `n` modulo the size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    /// A power of two of octets, or none.
    octets: Vec<u8>,
}

/// The least memory that is taken.
const LEAST: usize = 4096;

impl Ring {
    /// Memory held, in octets.
    pub(crate) fn memory(&self) -> usize {
        self.octets.len()
    }

    /// Makes room for `start..end`; what lies in `start..used` is kept.
    pub(crate) fn reserve(&mut self, start: u64, used: u64, end: u64) {
        let needed = (end - start) as usize;
        if needed <= self.octets.len() {
            return;
        }
        let size = needed.max(LEAST).next_power_of_two();
        let old = std::mem::replace(&mut self.octets, vec![0; size]);
        if old.is_empty() {
            return;
        }
        let old = Self { octets: old };
        let (first, second) = old.slices(start, (used - start) as usize);
        self.write(start, first);
        self.write(start + first.len() as u64, second);
    }

    /// Gives the memory back.
    pub(crate) fn clear(&mut self) {
        self.octets = Vec::new();
    }

    fn index(&self, at: u64) -> usize {
        at as usize & (self.octets.len() - 1)
    }

    /// Writes octets for which there is room.
    pub(crate) fn write(&mut self, at: u64, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        let start = self.index(at);
        let first = octets.len().min(self.octets.len() - start);
        let (head, tail) = octets.split_at(first);
        self.octets[start..start + first].copy_from_slice(head);
        self.octets[..tail.len()].copy_from_slice(tail);
    }

    /// The octets from `at` on, in one piece or in two.
    pub(crate) fn slices(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let start = self.index(at);
        let first = len.min(self.octets.len() - start);
        (&self.octets[start..start + first], &self.octets[..len - first])
    }

    /// Copies octets from `at` on.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        let (first, second) = self.slices(at, out.len());
        let (head, tail) = out.split_at_mut(first.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(second);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_long_array(
            origin in 0..1_u64 << 40,
            ops in prop::collection::vec((0..3000_u64, 0..3000_usize), 1..20),
        ) {
            let mut ring = Ring::default();
            let mut model: Vec<u8> = Vec::new();
            let (mut start, mut fill) = (0, 0_u8);
            for (skip, len) in ops {
                let end = model.len() + len;
                ring.reserve(origin + start as u64, origin + model.len() as u64, origin + end as u64);
                fill = fill.wrapping_add(1);
                let octets: Vec<u8> = (0..len).map(|i| fill.wrapping_mul(31) ^ i as u8).collect();
                ring.write(origin + model.len() as u64, &octets);
                model.extend(octets);
                let mut out = vec![0; model.len() - start];
                ring.read(origin + start as u64, &mut out);
                prop_assert_eq!(&out[..], &model[start..]);
                start = (start + skip as usize).min(model.len());
            }
            prop_assert!(ring.memory().is_power_of_two() || ring.memory() == 0);
        }
    }
}
