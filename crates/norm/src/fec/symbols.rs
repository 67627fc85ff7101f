//! Symbols of equal length in one buffer.

use super::kernel::COLUMN;

/// A fixed number of symbols of one length in one buffer.
///
/// Each starts on a boundary of 64 bytes (a cache line) and is followed by zeros up to a multiple
/// of the width that the arithmetic works in.
#[derive(Debug)]
pub(super) struct Symbols {
    bytes: Vec<u8>,
    start: usize,
    count: usize,
    symbol_len: usize,
    stride: usize,
}

const ALIGNMENT: usize = 64;

impl Symbols {
    /// `count` symbols of `symbol_len` bytes, all zero.
    pub(super) fn new(count: usize, symbol_len: usize) -> Self {
        let mut stride = symbol_len.next_multiple_of(COLUMN);
        if stride.is_multiple_of(4_096) {
            // Equal columns of all symbols would fall into one set of the first-level cache.
            stride += COLUMN;
        }
        let bytes = vec![0; count * stride + ALIGNMENT];
        // The bytes of a vector do not move until it grows.
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, count, symbol_len, stride }
    }

    /// Number of symbols.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a symbol.
    pub(super) fn symbol_len(&self) -> usize {
        self.symbol_len
    }

    /// The symbol `index`.
    ///
    /// # Panics
    ///
    /// If there is no such symbol.
    pub(super) fn get(&self, index: usize) -> &[u8] {
        assert!(index < self.count, "symbol {index} of {}", self.count);
        &self.bytes[self.start + index * self.stride..][..self.symbol_len]
    }

    /// The symbol `index`, to be changed.
    ///
    /// # Panics
    ///
    /// If there is no such symbol.
    pub(super) fn get_mut(&mut self, index: usize) -> &mut [u8] {
        assert!(index < self.count, "symbol {index} of {}", self.count);
        &mut self.bytes[self.start + index * self.stride..][..self.symbol_len]
    }

    /// Makes `data` the symbol `index`, with zeros behind it if it is short.
    ///
    /// # Panics
    ///
    /// If there is no such symbol, or `data` is longer than a symbol.
    pub(super) fn put(&mut self, index: usize, data: &[u8]) {
        let (head, tail) = self.get_mut(index).split_at_mut(data.len());
        head.copy_from_slice(data);
        tail.fill(0);
    }

    /// Makes all symbols zero.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Distance of one symbol from the next, a multiple of [`COLUMN`].
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// A symbol with the zeros behind it.
    pub(super) fn padded(&self, index: usize) -> &[u8] {
        &self.bytes[self.start + index * self.stride..][..self.stride]
    }

    /// All symbols with the zeros behind them, from the symbol `first` on.
    pub(super) fn padded_from_mut(&mut self, first: usize) -> &mut [u8] {
        let end = self.start + self.count * self.stride;
        &mut self.bytes[self.start + first * self.stride..end]
    }
}
