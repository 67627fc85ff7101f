//! Parity symbols of a block, computed as its source symbols pass.

use std::ops::Range;

use super::code::{Code, CodeError};
use super::kernel::{self, SOURCES, Source, TILE};
use super::symbols::Symbols;

/// Encoder of one block after another, with one buffer for all of them.
///
/// Source symbols are copied and processed several at a time, because adding each to all parity
/// symbols would load and store those every time.
#[derive(Debug)]
pub struct Encoder {
    code: Code,
    /// Parity symbols to compute.
    rows: Range<usize>,
    /// Memory for all of them.
    parity: Symbols,
    /// Source symbols not processed yet, and their numbers.
    waiting: Symbols,
    numbers: Vec<usize>,
}

impl Encoder {
    /// Creates an encoder of all parity symbols, for symbols of `symbol_len` bytes, at the start of
    /// a block.
    ///
    /// # Errors
    ///
    /// [`CodeError::SymbolLength`] for an unusable length.
    pub fn new(code: Code, symbol_len: usize) -> Result<Self, CodeError> {
        let parity = code.parity();
        Self::with_rows(code, symbol_len, parity)
    }

    /// Creates an encoder of at most `most` parity symbols at a time, initially the first ones:
    /// others cost nothing.
    ///
    /// # Errors
    ///
    /// As [`Encoder::new`].
    pub fn with_rows(code: Code, symbol_len: usize, most: usize) -> Result<Self, CodeError> {
        code.check_symbol_len(symbol_len)?;
        let most = most.min(code.parity());
        Ok(Self {
            rows: 0..most,
            parity: Symbols::new(most, symbol_len),
            waiting: Symbols::new(SOURCES, symbol_len),
            numbers: Vec::with_capacity(SOURCES),
            code,
        })
    }

    /// Number of parity symbols that fit in memory.
    #[must_use]
    pub fn room(&self) -> usize {
        self.parity.count()
    }

    /// Starts the next block, with as many of the first parity symbols as there is room for.
    pub fn reset(&mut self) {
        self.reset_rows(0..self.parity.count());
    }

    /// Starts the next block with some parity symbols, counted from 0: those sent as repairs, from
    /// source symbols read again.
    ///
    /// # Panics
    ///
    /// If the code does not have these parity symbols, or there is no room for them.
    pub fn reset_rows(&mut self, rows: Range<usize>) {
        assert!(rows.end <= self.code.parity(), "{rows:?} of {}", self.code.parity());
        let room = self.parity.count();
        assert!(rows.len() <= room, "{rows:?} with room for {room}");
        self.rows = rows;
        self.parity.clear();
        self.numbers.clear();
    }

    /// Adds a source symbol of the block; a short one is padded with zeros. Each is added once, in
    /// any order; a missing one counts as zero.
    ///
    /// # Panics
    ///
    /// If the code has no source symbol `esi`, or the segment is longer than a symbol.
    pub fn add(&mut self, esi: u16, segment: &[u8]) {
        let esi = usize::from(esi);
        assert!(esi < self.code.source(), "source symbol {esi} of {}", self.code.source());
        self.waiting.put(self.numbers.len(), segment);
        self.numbers.push(esi);
        if self.numbers.len() == SOURCES {
            self.work_in();
        }
    }

    /// Adds consecutive source symbols, starting with number `first`, from contiguous bytes; only
    /// the last may be short.
    ///
    /// # Panics
    ///
    /// If the code has no source symbol with one of the numbers.
    pub fn add_run(&mut self, first: u16, segments: &[u8]) {
        for (esi, segment) in (first..).zip(segments.chunks(self.parity.symbol_len())) {
            self.add(esi, segment);
        }
    }

    /// Parity symbol `row`, counted from 0, of the source symbols added so far. More may be added
    /// afterwards.
    ///
    /// In a shortened block it has the encoding symbol id `block length + row`.
    ///
    /// # Panics
    ///
    /// If this parity symbol is not computed.
    #[must_use]
    pub fn parity(&mut self, row: usize) -> &[u8] {
        assert!(self.rows.contains(&row), "parity symbol {row} of {:?}", self.rows);
        self.work_in();
        self.parity.get(row - self.rows.start)
    }

    /// Processes the waiting symbols.
    fn work_in(&mut self) {
        if self.numbers.is_empty() {
            return;
        }
        let stride = self.parity.stride();
        for row in self.rows.clone().step_by(TILE) {
            let tile = TILE.min(self.rows.end - row);
            let mut group = [Source::default(); SOURCES];
            for (index, (slot, &esi)) in group.iter_mut().zip(&self.numbers).enumerate() {
                slot.data = self.waiting.padded(index);
                for (offset, coefficient) in slot.coefficients[..tile].iter_mut().enumerate() {
                    *coefficient = self.code.coefficient(esi, row + offset);
                }
            }
            let to = self.parity.padded_from_mut(row - self.rows.start);
            let (path, field) = (self.code.path(), self.code.field());
            let group = &group[..self.numbers.len()];
            kernel::accumulate(path, field, &mut to[..tile * stride], stride, group);
        }
        self.numbers.clear();
    }
}
