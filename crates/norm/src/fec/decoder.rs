//! Received symbols of a block, and recovery of the missing ones.

use thiserror::Error;

use super::code::{Code, CodeError};
use super::kernel::{self, SOURCES, Source, TILE};
use super::symbols::Symbols;

/// Decoder of one block after another, with one buffer for all of them.
///
/// Recovery needs no matrix: the block is a polynomial with known values at as many points as it
/// has coefficients. Its missing values are linear combinations of the known ones, with Lagrange
/// coefficients. `e` missing symbols cost `e · k` multiplications of symbols.
#[derive(Debug)]
pub struct Decoder {
    code: Code,
    block_len: usize,
    /// Source symbols of the longest block, followed by parity symbols as they arrived.
    symbols: Symbols,
    /// Number of source symbols that fit in the buffer.
    room: usize,
    present: Vec<bool>,
    /// Number of source symbols that have not arrived.
    missing: usize,
    /// Parity symbols that have arrived, by encoding symbol id.
    parity: Vec<usize>,
    scratch: Scratch,
}

/// Error when too few symbols have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{missing} source symbols are missing, and {parity} parity symbols are there")]
pub struct RecoverError {
    /// Number of source symbols that have not arrived.
    pub missing: usize,
    /// Number of parity symbols that have arrived.
    pub parity: usize,
}

/// Working memory of a recovery, kept for the next one.
#[derive(Debug)]
struct Scratch {
    /// Source symbols to be recovered.
    missing: Vec<usize>,
    /// Received symbols used for the recovery, as many as the block is long, each with its point
    /// and the logarithm of its weight.
    known: Vec<KnownSymbol>,
    /// Recovered symbols.
    made: Symbols,
}

#[derive(Clone, Copy, Debug)]
struct KnownSymbol {
    index: usize,
    /// Index in the buffer.
    place: usize,
    point: u16,
    weight: u64,
}

impl Decoder {
    /// Creates a decoder for symbols of `symbol_len` bytes, at the start of a full block.
    ///
    /// # Errors
    ///
    /// [`CodeError::SymbolLength`] for an unusable length.
    pub fn new(code: Code, symbol_len: usize) -> Result<Self, CodeError> {
        let (source, parity) = (code.source(), code.parity());
        Self::with_room(code, symbol_len, source, parity)
    }

    /// Creates a decoder for blocks of at most this many source symbols, and as many parity symbols
    /// of each, which limits its memory.
    ///
    /// # Errors
    ///
    /// As [`Decoder::new`].
    pub fn with_room(
        code: Code,
        symbol_len: usize,
        source: usize,
        parity: usize,
    ) -> Result<Self, CodeError> {
        code.check_symbol_len(symbol_len)?;
        let (source, parity) = (source.min(code.source()), parity.min(code.parity()));
        Ok(Self {
            block_len: source,
            symbols: Symbols::new(source + parity, symbol_len),
            room: source,
            present: vec![false; source + code.parity()],
            missing: source,
            parity: Vec::with_capacity(parity),
            scratch: Scratch {
                missing: Vec::new(),
                known: Vec::new(),
                made: Symbols::new(TILE.min(parity.max(1)), symbol_len),
            },
            code,
        })
    }

    /// Numbers of source and parity symbols of a block that fit in the buffer.
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.room, self.symbols.count() - self.room)
    }

    /// Bytes of a symbol.
    #[must_use]
    pub fn symbol_len(&self) -> usize {
        self.symbols.symbol_len()
    }

    /// Code of the blocks.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Starts a block of `block_len` source symbols, none of which has arrived.
    ///
    /// # Panics
    ///
    /// If the block is longer than the buffer allows.
    pub fn start(&mut self, block_len: u16) {
        let block_len = usize::from(block_len);
        assert!(block_len <= self.room, "a block of {block_len} symbols");
        self.block_len = block_len;
        self.present.fill(false);
        self.missing = block_len;
        self.parity.clear();
    }

    /// Adds the symbol with this encoding symbol id: source symbols come first, parity symbol `j`
    /// is `block length + j`. Short symbols are padded with zeros. Returns whether it belongs to
    /// the block, is not too long, had not arrived yet, and there was room for it.
    pub fn add(&mut self, esi: u16, data: &[u8]) -> bool {
        let Some(index) = self.index(esi) else { return false };
        if self.present[index] || data.len() > self.symbols.symbol_len() {
            return false;
        }
        let place = if index < self.block_len { index } else { self.room + self.parity.len() };
        if place >= self.symbols.count() {
            return false;
        }
        self.symbols.put(place, data);
        self.present[index] = true;
        if index < self.block_len {
            self.missing -= 1;
        } else {
            self.parity.push(index);
        }
        true
    }

    /// Number of missing source symbols.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Number of parity symbols that have arrived.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity.len()
    }

    /// Whether all source symbols have arrived or can be recovered.
    #[must_use]
    pub fn is_sufficient(&self) -> bool {
        self.missing <= self.parity.len()
    }

    /// Source or parity symbol with this encoding symbol id, if it has arrived, including padding.
    #[must_use]
    pub fn symbol(&self, esi: u16) -> Option<&[u8]> {
        let index = self.index(esi).filter(|&index| self.present[index])?;
        let parity = || self.parity.iter().position(|&other| other == index);
        let place = if index < self.block_len { index } else { self.room + parity()? };
        Some(self.symbols.get(place))
    }

    /// Recovers all missing source symbols. Returns their number.
    ///
    /// # Errors
    ///
    /// [`RecoverError`] if too few symbols have arrived.
    pub fn recover(&mut self) -> Result<usize, RecoverError> {
        if !self.is_sufficient() {
            return Err(RecoverError { missing: self.missing, parity: self.parity.len() });
        }
        let recovered = self.missing;
        if recovered > 0 {
            self.choose();
            self.weigh();
            for tile in (0..recovered).step_by(TILE) {
                self.recover_tile(tile, TILE.min(recovered - tile));
            }
            self.present[..self.block_len].fill(true);
            self.missing = 0;
        }
        Ok(recovered)
    }

    /// Number in its block of the symbol with this encoding symbol id.
    fn index(&self, esi: u16) -> Option<usize> {
        let esi = usize::from(esi);
        (esi < self.block_len + self.code.parity()).then_some(esi)
    }

    /// Position of a block's symbol in a code word.
    fn position(&self, index: usize) -> usize {
        // The trailing zeros of a shortened block are not kept.
        if index < self.block_len { index } else { index - self.block_len + self.code.source() }
    }

    /// Chooses the symbols to recover, and those used for that: all source symbols, and as many
    /// parity symbols as needed.
    fn choose(&mut self) {
        let tables = self.code.field().tables();
        let mut missing = std::mem::take(&mut self.scratch.missing);
        let mut known = std::mem::take(&mut self.scratch.known);
        missing.clear();
        missing.extend((0..self.block_len).filter(|&index| !self.present[index]));
        known.clear();
        let source = (0..self.block_len).filter(|&index| self.present[index]);
        let parity = self.parity.iter().zip(self.room..).map(|(&index, place)| (index, place));
        known.extend(source.map(|index| (index, index)).chain(parity).take(self.block_len).map(
            |(index, place)| {
                let point = tables.point(self.position(index));
                KnownSymbol { index, place, point, weight: 0 }
            },
        ));
        (self.scratch.missing, self.scratch.known) = (missing, known);
    }

    /// Computes the weight of each known symbol: the logarithm of `1 / Π (x − x(m))` over the other
    /// known points, including the points of the zeros of a shortened block.
    ///
    /// The weights follow from the products over all source points, divided by the products of the
    /// missing symbols and multiplied by the products of the parity symbols.
    fn weigh(&mut self) {
        let tables = self.code.field().tables();
        let order = tables.order();
        let parity_from = self.block_len - self.scratch.missing.len();
        let parity_points: Vec<u16> =
            self.scratch.known[parity_from..].iter().map(|known| known.point).collect();
        let missing_points: Vec<u16> =
            self.scratch.missing.iter().map(|&esi| tables.point(esi)).collect();
        for known in &mut self.scratch.known {
            let others = parity_points.iter().filter(|&&point| point != known.point);
            let brought: u64 = others.map(|point| tables.log(point ^ known.point)).sum();
            let taken: u64 =
                missing_points.iter().map(|point| tables.log(point ^ known.point)).sum();
            let start = if known.index < self.block_len {
                self.code.weight(known.index)
            } else {
                order - self.code.product(known.index - self.block_len)
            };
            known.weight = (start + taken + (order - brought % order)) % order;
        }
    }

    /// Recovers `count` missing symbols, starting with number `first`.
    fn recover_tile(&mut self, first: usize, count: usize) {
        let Scratch { missing, known, made } = &mut self.scratch;
        let tables = self.code.field().tables();
        let order = tables.order();
        let targets = &missing[first..first + count];
        let parity_from = self.block_len - missing.len();
        let mut points = [0; TILE];
        let mut products = [0; TILE];
        for ((&esi, to), product) in targets.iter().zip(&mut points).zip(&mut products) {
            let point = tables.point(esi);
            *to = point;
            let parity = known[parity_from..].iter();
            let brought: u64 = parity.map(|known| tables.log(point ^ known.point)).sum();
            let others = missing.iter().filter(|&&other| other != esi);
            let taken: u64 = others.map(|&other| tables.log(point ^ tables.point(other))).sum();
            let start = order - self.code.weight(esi);
            *product = (start + brought + (order - taken % order)) % order;
        }
        made.clear();
        let stride = made.stride();
        for some in known.chunks(SOURCES) {
            let mut group = [Source::default(); SOURCES];
            for (slot, known) in group.iter_mut().zip(some) {
                let mut coefficients = [0; TILE];
                for (index, coefficient) in coefficients[..count].iter_mut().enumerate() {
                    let divisor = tables.log(points[index] ^ known.point);
                    *coefficient = tables.exp(products[index] + known.weight + order - divisor);
                }
                *slot = Source { data: self.symbols.padded(known.place), coefficients };
            }
            let to = &mut made.padded_from_mut(0)[..count * stride];
            let (path, field) = (self.code.path(), self.code.field());
            kernel::accumulate(path, field, to, stride, &group[..some.len()]);
        }
        for (index, &esi) in targets.iter().enumerate() {
            self.symbols.put(esi, made.get(index));
        }
    }
}
