//! Bytes at absolute positions, in a ring buffer.

/// Window of a stream: byte `n` is at `n` modulo the size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    /// Memory: a power of two of bytes, or empty.
    bytes: Vec<u8>,
}

/// Minimum memory.
const LEAST: usize = 4096;

impl Ring {
    /// Bytes of memory used.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `start..end`; keeps `start..used`.
    pub(crate) fn reserve(&mut self, start: u64, used: u64, end: u64) {
        let needed = (end - start) as usize;
        if needed <= self.bytes.len() {
            return;
        }
        let size = needed.max(LEAST).next_power_of_two();
        let old = std::mem::replace(&mut self.bytes, vec![0; size]);
        if old.is_empty() {
            return;
        }
        let old = Self { bytes: old };
        let (first, second) = old.slices(start, (used - start) as usize);
        self.write(start, first);
        self.write(start + first.len() as u64, second);
    }

    /// Frees the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    fn index(&self, at: u64) -> usize {
        at as usize & (self.bytes.len() - 1)
    }

    /// Writes bytes that there is room for.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.index(at);
        let first = bytes.len().min(self.bytes.len() - start);
        let (head, tail) = bytes.split_at(first);
        self.bytes[start..start + first].copy_from_slice(head);
        self.bytes[..tail.len()].copy_from_slice(tail);
    }

    /// Bytes from `at` on, in one or two pieces.
    pub(crate) fn slices(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let start = self.index(at);
        let first = len.min(self.bytes.len() - start);
        (&self.bytes[start..start + first], &self.bytes[..len - first])
    }

    /// Copies bytes from `at` on.
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
                let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_mul(31) ^ i as u8).collect();
                ring.write(origin + model.len() as u64, &bytes);
                model.extend(bytes);
                let mut out = vec![0; model.len() - start];
                ring.read(origin + start as u64, &mut out);
                prop_assert_eq!(&out[..], &model[start..]);
                start = (start + skip as usize).min(model.len());
            }
            prop_assert!(ring.memory().is_power_of_two() || ring.memory() == 0);
        }
    }
}
