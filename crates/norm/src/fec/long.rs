//! Reed–Solomon code over GF(2^16) of long blocks, whose encoding and recovery take O(n log n).
//!
//! The code is Leopard's: additive FFT over GF(2^16) with polynomial 0x1002d and Cantor's basis,
//! in its form for high rates. Crate `reed-solomon-simd` computes it. No standard has its code
//! words.
//!
//! * The number of source symbols `k` and the number of parity positions `m`, a power of two,
//!   determine the code. Rows of parity are numbered from 0 to `m − 1`.
//! * A block that is shorter than `k` is coded as a block of its own length.
//! * Symbols have an even length. They are computed in groups of 64 bytes, which hold the 32 low
//!   and then the 32 high bytes of 32 elements. The last group may be shorter: half low, half
//!   high.
//!
//! Symbols are computed in stripes: the same columns of all symbols, a multiple of 64 bytes. This
//! bounds the memory, whatever the length of the symbols.

use std::ops::Range;

use engine::EffectError;
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{
    DecoderWork, EncoderWork, HighRateDecoder, HighRateEncoder, RateDecoder as _, RateEncoder as _,
};
use thiserror::Error;

use super::code::CodeError;
use super::decoder::RecoverError;

/// Maximum memory of the symbols of a stripe, in bytes. All symbols are read once for each stripe.
const STRIPE_MEMORY: usize = 16 << 20;

/// Columns computed together in a group.
const GROUP: usize = 64;

/// Code of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    source: u16,
    parity: u16,
    symbol_len: usize,
    stripe_memory: usize,
}

/// Working memory, kept from one block to the next.
#[derive(Default)]
pub struct LongWork {
    encoder: Option<EncoderWork>,
    decoder: Option<DecoderWork>,
    bytes: usize,
}

impl std::fmt::Debug for LongWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongWork").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl LongWork {
    /// Bytes held.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes
    }
}

/// Symbols of a block in a file or in memory.
pub trait Columns {
    /// Bytes `at..at + len` of the symbol at a place; zeros beyond the end of the data.
    ///
    /// Places are read in ascending order.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read.
    fn get(&mut self, place: u16, at: usize, len: usize) -> Result<&[u8], EffectError>;

    /// Stores bytes of the symbol at a place from `at` on. Bytes beyond the end of the data are
    /// dropped.
    ///
    /// # Errors
    ///
    /// The bytes cannot be written.
    fn put(&mut self, place: u16, at: usize, bytes: &[u8]) -> Result<(), EffectError>;
}

/// Error of a computation over a block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LongError {
    /// Too few symbols.
    #[error(transparent)]
    TooFew(#[from] RecoverError),
    /// Symbols that the code does not have, or the same symbol twice.
    #[error("the code has no such symbols")]
    NoSymbol,
    /// The symbols do not determine the block, although they are enough in number.
    #[error("the symbols depend on each other")]
    Dependent,
    /// The symbols cannot be read or written.
    #[error(transparent)]
    Store(#[from] EffectError),
}

impl From<reed_solomon_simd::Error> for LongError {
    fn from(_: reed_solomon_simd::Error) -> Self {
        Self::NoSymbol
    }
}

impl Long {
    /// Highest number of source symbols and parity positions together.
    pub const SYMBOLS_MAX: usize = 65_535;

    /// Creates the code of blocks of `source` symbols of `symbol_len` bytes with `parity`
    /// positions of parity, a power of two.
    ///
    /// # Errors
    ///
    /// See [`CodeError`].
    pub fn new(source: u16, parity: u16, symbol_len: usize) -> Result<Self, CodeError> {
        Self::check(source, parity)?;
        if symbol_len == 0 || symbol_len % 2 == 1 {
            return Err(CodeError::SymbolLength(symbol_len));
        }
        Ok(Self { source, parity, symbol_len, stripe_memory: STRIPE_MEMORY })
    }

    /// Checks whether a code with these parameters exists.
    ///
    /// # Errors
    ///
    /// As [`Long::new`], except for the length of symbols.
    pub fn check(source: u16, parity: u16) -> Result<(), CodeError> {
        if source == 0 {
            return Err(CodeError::NoSource);
        }
        let (source_symbols, positions) = (usize::from(source), usize::from(parity));
        if !parity.is_power_of_two() || source_symbols + positions > Self::SYMBOLS_MAX {
            let max = Self::SYMBOLS_MAX;
            return Err(CodeError::TooLong { source_symbols, parity: positions, max });
        }
        Ok(())
    }

    /// Number of parity positions for blocks of `source` symbols, of which a share `loss` is lost,
    /// if known. Once they run out, all symbols are sent again in turn, of which a receiver has
    /// most.
    ///
    /// The time of a recovery grows with the next power of two of all symbols: there are as many
    /// positions as do not change it, and at least as many as source symbols if the loss is
    /// unknown. 6,888 symbols have 8,192 positions, 23,109 have 32,768.
    #[must_use]
    pub fn positions(source: u16, loss: Option<f64>) -> u16 {
        const LEAST: usize = 64;
        const SHORT: usize = 4_096;
        let source = usize::from(source);
        // A known loss may be wrong by some percent. At most 27 times the source symbols.
        let lost = loss.map_or(1.0, |loss| (3.0 * loss / (1.0 - loss.min(0.9))).max(1.0 / 16.0));
        let least = (lost * source as f64).ceil() as usize;
        let least = if source <= SHORT { least.max(source) } else { least };
        let least = least.max(LEAST).next_power_of_two().min(1 << 15);
        let free = (source + least).next_power_of_two() - source;
        // The greatest power of two that is free, or less if there are not as many symbols.
        let mut positions = if source <= SHORT { least } else { 1 << free.ilog2().min(15) };
        while positions > 1 && source + positions > Self::SYMBOLS_MAX {
            positions /= 2;
        }
        positions as u16
    }

    /// Limits the memory of a stripe, for tests.
    #[must_use]
    pub fn with_stripe_memory(self, bytes: usize) -> Self {
        Self { stripe_memory: bytes, ..self }
    }

    /// Length of a symbol in bytes.
    #[must_use]
    pub fn symbol_len(&self) -> usize {
        self.symbol_len
    }

    /// Maximum memory of encoding or recovery, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let width = self.width();
        width * self.stripe(width).min(self.symbol_len.next_multiple_of(GROUP))
    }

    /// Number of symbols in memory for a recovery, which takes more than encoding.
    fn width(&self) -> usize {
        (usize::from(self.source) + usize::from(self.parity)).next_power_of_two()
    }

    /// Columns of a stripe of `width` symbols.
    fn stripe(&self, width: usize) -> usize {
        (self.stripe_memory / width / GROUP * GROUP).max(GROUP)
    }

    /// Columns of each stripe.
    fn stripes(&self, width: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (stripe, end) = (self.stripe(width), self.symbol_len);
        (0..end).step_by(stripe).map(move |at| at..end.min(at + stripe))
    }

    /// Computes parity rows from all source symbols, one behind the other into `out`.
    ///
    /// # Errors
    ///
    /// The code has no such rows, `out` has another length, or `source` cannot be read.
    pub fn encode(
        &self,
        work: &mut LongWork,
        source: &mut dyn Columns,
        rows: Range<u16>,
        out: &mut [u8],
    ) -> Result<(), LongError> {
        if rows.end > self.parity || out.len() != rows.len() * self.symbol_len {
            return Err(LongError::NoSymbol);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let count = usize::from(self.source);
        // The code depends on the next power of two of the number of rows.
        let made = usize::from(rows.end.max(self.parity / 2 + 1));
        let width = count.next_multiple_of(self.parity.into());
        for columns in self.stripes(width) {
            let engine = DefaultEngine::new();
            let memory = work.encoder.take();
            let mut encoder = HighRateEncoder::new(count, made, columns.len(), engine, memory)?;
            for place in 0..self.source {
                encoder.add_original_shard(source.get(place, columns.start, columns.len())?)?;
            }
            let parity = encoder.encode()?;
            for (row, to) in rows.clone().zip(out.chunks_exact_mut(self.symbol_len)) {
                let made = parity.recovery(row.into()).ok_or(LongError::NoSymbol)?;
                to[columns.clone()].copy_from_slice(made);
            }
            drop(parity);
            work.encoder = Some(encoder.into_parts().1);
            work.bytes = work.bytes.max(width * columns.len().next_multiple_of(GROUP));
        }
        Ok(())
    }

    /// Recovers missing source symbols in place.
    ///
    /// `missing` has the places of missing source symbols in ascending order, `parity` the rows of
    /// received parity symbols with their places, which may be those of missing symbols. Only as
    /// many parity symbols as needed are used.
    ///
    /// # Errors
    ///
    /// Too few parity symbols, symbols that the code does not have, or `block` cannot be read or
    /// written. The missing symbols are undefined then.
    pub fn recover(
        &self,
        work: &mut LongWork,
        block: &mut dyn Columns,
        missing: &[u16],
        parity: &[(u16, u16)],
    ) -> Result<(), LongError> {
        if missing.len() > parity.len() {
            let too_few = RecoverError { missing: missing.len(), parity: parity.len() };
            return Err(too_few.into());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut used = parity[..missing.len()].to_vec();
        used.sort_by_key(|(_, place)| *place);
        let (count, positions) = (usize::from(self.source), usize::from(self.parity));
        for columns in self.stripes(self.width()) {
            let engine = DefaultEngine::new();
            let (at, len) = (columns.start, columns.len());
            let memory = work.decoder.take();
            let mut decoder = HighRateDecoder::new(count, positions, len, engine, memory)?;
            let mut lost = missing.iter().copied().peekable();
            let mut rows = used.iter().copied().peekable();
            for place in 0..self.source {
                if lost.next_if_eq(&place).is_none() {
                    decoder.add_original_shard(place.into(), block.get(place, at, len)?)?;
                }
                while let Some((row, place)) = rows.next_if(|(_, other)| *other == place) {
                    decoder.add_recovery_shard(row.into(), block.get(place, at, len)?)?;
                }
            }
            if lost.next().is_some() || rows.next().is_some() {
                return Err(LongError::NoSymbol);
            }
            let restored = decoder.decode()?;
            for place in missing {
                let made = restored.restored_original(usize::from(*place));
                block.put(*place, at, made.ok_or(LongError::NoSymbol)?)?;
            }
            drop(restored);
            work.decoder = Some(decoder.into_parts().1);
            work.bytes = work.bytes.max(self.width() * len.next_multiple_of(GROUP));
        }
        Ok(())
    }
}

/// Symbols one behind the other in memory, to be read. The last may be short or missing.
#[derive(Debug)]
pub struct ReadColumns<'a> {
    bytes: &'a [u8],
    symbol_len: usize,
    /// A symbol that lies beyond the end in part.
    padded: Vec<u8>,
}

impl<'a> ReadColumns<'a> {
    /// Symbols of `symbol_len` bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8], symbol_len: usize) -> Self {
        Self { bytes, symbol_len, padded: Vec::new() }
    }
}

impl Columns for ReadColumns<'_> {
    fn get(&mut self, place: u16, at: usize, len: usize) -> Result<&[u8], EffectError> {
        let start = usize::from(place) * self.symbol_len + at;
        Ok(padded(self.bytes, &mut self.padded, start, len))
    }

    fn put(&mut self, _: u16, _: usize, _: &[u8]) -> Result<(), EffectError> {
        Err(EffectError::NotAllowed)
    }
}

/// Symbols one behind the other in memory. The last may be short.
#[derive(Debug)]
pub struct SliceColumns<'a> {
    bytes: &'a mut [u8],
    symbol_len: usize,
    padded: Vec<u8>,
}

impl<'a> SliceColumns<'a> {
    /// Symbols of `symbol_len` bytes.
    #[must_use]
    pub fn new(bytes: &'a mut [u8], symbol_len: usize) -> Self {
        Self { bytes, symbol_len, padded: Vec::new() }
    }
}

impl Columns for SliceColumns<'_> {
    fn get(&mut self, place: u16, at: usize, len: usize) -> Result<&[u8], EffectError> {
        let start = usize::from(place) * self.symbol_len + at;
        Ok(padded(self.bytes, &mut self.padded, start, len))
    }

    fn put(&mut self, place: u16, at: usize, bytes: &[u8]) -> Result<(), EffectError> {
        let start = usize::from(place) * self.symbol_len + at;
        let len = bytes.len().min(self.bytes.len().saturating_sub(start));
        if len > 0 {
            self.bytes[start..start + len].copy_from_slice(&bytes[..len]);
        }
        Ok(())
    }
}

/// Bytes from `start` on, followed by zeros beyond the end.
fn padded<'a>(bytes: &'a [u8], room: &'a mut Vec<u8>, start: usize, len: usize) -> &'a [u8] {
    if let Some(whole) = bytes.get(start..start + len) {
        return whole;
    }
    room.clear();
    room.extend_from_slice(bytes.get(start..).unwrap_or_default());
    room.resize(len, 0);
    room
}

#[cfg(test)]
mod tests;
