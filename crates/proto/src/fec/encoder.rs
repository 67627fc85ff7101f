//! The parity symbols of a block, made as its source symbols go by.

use super::code::{Code, CodeError};
use super::kernel::{self, SOURCES, Source, TILE};
use super::symbols::Symbols;

/// Holds the parity symbols of one block after another; one buffer for all of them.
#[derive(Debug)]
pub struct Encoder {
    code: Code,
    parity: Symbols,
}

impl Encoder {
    /// An encoder for symbols of `symbol_len` bytes, at the start of a block.
    ///
    /// # Errors
    ///
    /// [`CodeError::SymbolLength`] for a length that the field cannot have.
    pub fn new(code: Code, symbol_len: usize) -> Result<Self, CodeError> {
        code.check_symbol_len(symbol_len)?;
        let parity = Symbols::new(code.parity(), symbol_len);
        Ok(Self { code, parity })
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Starts the next block.
    pub fn reset(&mut self) {
        self.parity.clear();
    }

    /// Adds one source symbol of the block; a short one counts as followed by zeros. Each is to be
    /// added once, in any order.
    ///
    /// # Panics
    ///
    /// If the code has no source symbol `esi`, or the segment is longer than a symbol.
    pub fn add(&mut self, esi: u16, segment: &[u8]) {
        self.add_group(usize::from(esi), &[segment]);
    }

    /// Adds source symbols that follow each other, the first with number `first`, from one run of
    /// bytes; only the last may be short. Faster than one at a time.
    ///
    /// # Panics
    ///
    /// If the code has no source symbol with one of the numbers.
    pub fn add_run(&mut self, first: u16, segments: &[u8]) {
        let mut esi = usize::from(first);
        let symbol_len = self.parity.symbol_len();
        for run in segments.chunks(SOURCES * symbol_len) {
            let mut group = [&run[..0]; SOURCES];
            let count = run.len().div_ceil(symbol_len);
            for (slot, segment) in group.iter_mut().zip(run.chunks(symbol_len)) {
                *slot = segment;
            }
            self.add_group(esi, &group[..count]);
            esi += count;
        }
    }

    /// The parity symbol `row`, counted from 0, of the source symbols added so far.
    ///
    /// In a shortened block it has the encoding symbol id `block length + row`.
    ///
    /// # Panics
    ///
    /// If the code has no such parity symbol.
    #[must_use]
    pub fn parity(&self, row: usize) -> &[u8] {
        self.parity.get(row)
    }

    /// Adds at most [`SOURCES`] consecutive symbols.
    fn add_group(&mut self, first: usize, segments: &[&[u8]]) {
        let symbol_len = self.parity.symbol_len();
        let longest = segments.iter().map(|segment| segment.len()).max().unwrap_or(0);
        assert!(longest <= symbol_len, "a segment of {longest} bytes, symbols have {symbol_len}");
        let (stride, rows) = (self.parity.stride(), self.parity.count());
        for row in (0..rows).step_by(TILE) {
            let tile = TILE.min(rows - row);
            let mut group = [Source::default(); SOURCES];
            for (index, (slot, data)) in group.iter_mut().zip(segments).enumerate() {
                let mut coefficients = [0; TILE];
                for (offset, coefficient) in coefficients[..tile].iter_mut().enumerate() {
                    *coefficient = self.code.coefficient(first + index, row + offset);
                }
                *slot = Source { data, coefficients };
            }
            let to = &mut self.parity.padded_from_mut(row)[..tile * stride];
            let (path, field) = (self.code.path(), self.code.field());
            kernel::accumulate(path, field, to, stride, &group[..segments.len()]);
        }
    }
}
