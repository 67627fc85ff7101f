//! What has arrived of a block, and the recovery of what has not.

use thiserror::Error;

use super::code::{Code, CodeError};
use super::kernel::{self, SOURCES, Source, TILE};
use super::symbols::Symbols;

/// Holds the symbols of one block after another; one buffer for all of them.
///
/// Recovery needs no matrix: the block is a polynomial, its values at as many points as it has
/// coefficients are known, and its missing values are linear combinations of those with
/// coefficients after Lagrange. `e` missing symbols cost `e · k` multiplications of symbols.
#[derive(Debug)]
pub struct Decoder {
    code: Code,
    block_len: usize,
    /// Source symbols of the longest block, and behind them parity symbols as they arrived.
    symbols: Symbols,
    /// Source symbols for which there is room.
    room: usize,
    present: Vec<bool>,
    /// Source symbols that have not arrived.
    missing: usize,
    /// Parity symbols that have arrived, by their encoding symbol id.
    parity: Vec<usize>,
    scratch: Scratch,
}

/// Too few symbols to recover the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{missing} source symbols are missing, and {parity} parity symbols are there")]
pub struct RecoverError {
    /// Source symbols of the block that have not arrived.
    pub missing: usize,
    /// Parity symbols that have.
    pub parity: usize,
}

/// What a recovery works with, kept for the next one.
#[derive(Debug)]
struct Scratch {
    /// Source symbols to be recovered.
    missing: Vec<usize>,
    /// As many symbols that have arrived as the block is long, with the point and the logarithm of
    /// the weight of each.
    known: Vec<KnownSymbol>,
    /// Some recovered symbols.
    made: Symbols,
}

#[derive(Clone, Copy, Debug)]
struct KnownSymbol {
    index: usize,
    /// Where it is kept.
    place: usize,
    point: u16,
    weight: u64,
}

impl Decoder {
    /// A decoder for symbols of `symbol_len` bytes, at the start of a full block.
    ///
    /// # Errors
    ///
    /// [`CodeError::SymbolLength`] for a length that the field cannot have.
    pub fn new(code: Code, symbol_len: usize) -> Result<Self, CodeError> {
        let room = (code.source(), code.parity());
        Self::with_room(code, symbol_len, room)
    }

    /// The same for blocks of at most so many source symbols, and as many parity symbols of each: no
    /// more than these need is held.
    ///
    /// # Errors
    ///
    /// As [`Decoder::new`].
    pub fn with_room(
        code: Code,
        symbol_len: usize,
        (source, parity): (usize, usize),
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

    /// For how many source and parity symbols of a block there is room.
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.room, self.symbols.count() - self.room)
    }

    /// Bytes of a symbol.
    #[must_use]
    pub fn symbol_len(&self) -> usize {
        self.symbols.symbol_len()
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Starts a block of `block_len` source symbols; nothing of it has arrived.
    ///
    /// # Panics
    ///
    /// If that is more than there is room for.
    pub fn start(&mut self, block_len: u16) {
        let block_len = usize::from(block_len);
        assert!(block_len <= self.room, "a block of {block_len} symbols");
        self.block_len = block_len;
        self.present.fill(false);
        self.missing = block_len;
        self.parity.clear();
    }

    /// Source symbols of the block.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// Takes the symbol with this encoding symbol id: source symbols come first, parity symbol `j`
    /// is `block length + j`. A short one counts as followed by zeros. Returns whether it is one
    /// of the block's, of no more than its length, had not arrived yet, and there was room for it.
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

    /// Whether the symbol with this encoding symbol id is there.
    #[must_use]
    pub fn has(&self, esi: u16) -> bool {
        self.index(esi).is_some_and(|index| self.present[index])
    }

    /// How many source symbols are missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// How many parity symbols are there.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity.len()
    }

    /// Whether all source symbols are there or can be recovered.
    #[must_use]
    pub fn is_sufficient(&self) -> bool {
        self.missing <= self.parity.len()
    }

    /// The source or parity symbol with this encoding symbol id, if it is there: zeros behind a
    /// short one included.
    #[must_use]
    pub fn symbol(&self, esi: u16) -> Option<&[u8]> {
        let index = self.index(esi).filter(|&index| self.present[index])?;
        let parity = || self.parity.iter().position(|&other| other == index);
        let place = if index < self.block_len { index } else { self.room + parity()? };
        Some(self.symbols.get(place))
    }

    /// Recovers all missing source symbols. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`RecoverError`] if too few symbols are there.
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

    /// The number of the symbol with this encoding symbol id in its block.
    fn index(&self, esi: u16) -> Option<usize> {
        let esi = usize::from(esi);
        (esi < self.block_len + self.code.parity()).then_some(esi)
    }

    /// The position in a code word of a symbol of the block.
    fn position(&self, index: usize) -> usize {
        // The zeros that a shortened block ends with are not kept.
        if index < self.block_len { index } else { index - self.block_len + self.code.source() }
    }

    /// Says what is to be recovered, and from what: all source symbols there are, and as many
    /// parity symbols as are needed.
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

    /// Gives each known symbol its weight: the logarithm of `1 / Π (x − x(m))` over the other known
    /// points, among them those of the zeros behind a shortened block.
    ///
    /// They come from the products over all source points, with those of the missing symbols taken
    /// out and those of the parity symbols brought in.
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

    /// Recovers `count` missing symbols from the one number `first` on.
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
