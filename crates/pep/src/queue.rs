//! Queue of bytes to forward.

use std::collections::VecDeque;

/// Size of a memory block in bytes.
pub(super) const BLOCK: usize = 16 << 10;

/// Maximum spare blocks kept for reuse: 1 MiB.
const SPARE_MAX: usize = 64;

/// Unused memory blocks.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Box<[u8]>>);

impl Spare {
    fn take(&mut self) -> Box<[u8]> {
        self.0.pop().unwrap_or_else(|| vec![0; BLOCK].into_boxed_slice())
    }

    fn give(&mut self, block: Box<[u8]>) {
        if self.0.len() < SPARE_MAX {
            self.0.push(block);
        }
    }

    /// Frees all memory.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(super) fn memory(&self) -> usize {
        self.0.len() * BLOCK
    }
}

/// Bytes in order, in blocks taken from and returned to [`Spare`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    blocks: VecDeque<Box<[u8]>>,
    /// Offset of the first byte in the first block.
    start: usize,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn memory(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    pub(super) fn push(&mut self, mut bytes: &[u8], spare: &mut Spare) {
        while !bytes.is_empty() {
            let at = (self.start + self.len) % BLOCK;
            if self.start + self.len == self.blocks.len() * BLOCK {
                self.blocks.push_back(spare.take());
            }
            let block = self.blocks.back_mut().expect("the last byte's block, or a new one");
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - at));
            block[at..at + now.len()].copy_from_slice(now);
            self.len += now.len();
            bytes = later;
        }
    }

    /// Moves the first bytes into `out`, which is not longer than the queue.
    pub(super) fn pop(&mut self, mut out: &mut [u8], spare: &mut Spare) {
        while !out.is_empty() {
            let block = self.blocks.front().expect("there are as many bytes");
            let count = out.len().min(BLOCK - self.start);
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&block[self.start..self.start + count]);
            (self.start, self.len, out) = (self.start + count, self.len - count, later);
            if self.start == BLOCK || self.len == 0 {
                self.start = 0;
                self.blocks.pop_front().into_iter().for_each(|block| spare.give(block));
            }
        }
    }

    /// Discards all bytes.
    pub(super) fn clear(&mut self, spare: &mut Spare) {
        std::mem::take(&mut self.blocks).into_iter().for_each(|block| spare.give(block));
        (self.start, self.len) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn returns_the_bytes_in_order(
            ops in prop::collection::vec((0..50_000_usize, 0..50_000_usize), 1..30),
        ) {
            let (mut queue, mut spare) = (Queue::default(), Spare::default());
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0_u32;
            for (push, pop) in ops {
                let bytes: Vec<u8> = (0..push)
                    .map(|_| {
                        next += 1;
                        (next.wrapping_mul(0x9e37_79b1) >> 24) as u8
                    })
                    .collect();
                queue.push(&bytes, &mut spare);
                model.extend(&bytes);
                let mut out = vec![0; pop.min(model.len())];
                queue.pop(&mut out, &mut spare);
                let expected: Vec<u8> = model.drain(..out.len()).collect();
                prop_assert!(out == expected);
                prop_assert_eq!(queue.len(), model.len());
                // The first and the last block may be partly used.
                prop_assert!(queue.memory() < model.len() + 2 * BLOCK);
                prop_assert!(!queue.is_empty() || queue.memory() == 0);
            }
            queue.clear(&mut spare);
            prop_assert_eq!((queue.len(), queue.memory()), (0, 0));
            prop_assert!(spare.memory() <= SPARE_MAX * BLOCK);
        }
    }
}
