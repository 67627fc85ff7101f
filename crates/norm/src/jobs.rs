//! Computations over the file of a coded object: parity, recovery and digests of a block.
//!
//! They run off the packet path and read a block in pieces, so that no block is in memory.

use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use engine::{EffectError, FileBytes, FileJob};
use sha2::{Digest as _, Sha256};

use crate::fec::{BlockCode, Columns, LongError, LongWork, Received};

/// Bytes read at once.
const PIECE: usize = 1 << 20;

thread_local! {
    /// Memory of the codes, kept by the thread that computes: fresh memory for each block costs
    /// thousands of page faults.
    static WORK: RefCell<LongWork> = RefCell::default();
}

/// A block in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Offset of the block in the file.
    pub(crate) offset: u64,
    /// Bytes of the block.
    pub(crate) len: u64,
}

/// Computes the digest of a received block, after it recovers missing segments.
#[derive(Debug)]
pub(crate) struct Recover {
    pub(crate) code: BlockCode,
    pub(crate) span: Span,
    /// Places of missing source segments, in ascending order.
    pub(crate) missing: Vec<u16>,
    /// Rows of parity segments, and their places.
    pub(crate) parity: Vec<(u16, u16)>,
    /// Parity segment that has no place in the file, and the place of the segment that it replaces.
    pub(crate) spare: Option<(u16, Bytes)>,
    /// Rows of parity segments beyond the missing ones.
    pub(crate) extra: Vec<(u16, Bytes)>,
}

impl FileJob for Recover {
    /// Returns the digest, or nothing if the code needs more segments.
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        if !self.missing.is_empty() {
            let spare = self.spare.as_ref().map(|(place, bytes)| (*place, &bytes[..]));
            let mut columns = FileColumns::new(file, self.span, self.code.symbol_len(), spare);
            let Self { missing, parity, extra, .. } = self;
            let received = Received { missing, parity, extra };
            let recovered =
                WORK.with_borrow_mut(|work| self.code.recover(work, &mut columns, &received));
            match recovered {
                Err(LongError::Dependent) => return Ok(Bytes::new()),
                recovered => recovered.map_err(stored)?,
            }
        }
        Ok(Bytes::copy_from_slice(&digest(file, self.span)?))
    }

    fn cost(&self) -> u64 {
        let recovered = self.missing.len() as u64 * self.code.symbol_len() as u64;
        if self.missing.is_empty() { self.span.len } else { 2 * self.span.len + recovered }
    }
}

/// Computes parity segments of a block.
#[derive(Debug)]
pub(crate) struct Encode {
    pub(crate) code: BlockCode,
    pub(crate) span: Span,
    pub(crate) rows: Range<u16>,
}

impl FileJob for Encode {
    /// Returns the segments, one behind the other.
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        let mut made = vec![0; self.rows.len() * self.code.symbol_len()];
        let mut columns = FileColumns::new(file, self.span, self.code.symbol_len(), None);
        let rows = self.rows.clone();
        let encoded =
            WORK.with_borrow_mut(|work| self.code.encode(work, &mut columns, rows, &mut made));
        encoded.map_err(stored)?;
        Ok(made.into())
    }

    fn cost(&self) -> u64 {
        self.span.len
    }
}

/// Error of a computation as one of the store.
fn stored(error: LongError) -> EffectError {
    match error {
        LongError::Store(error) => error,
        error @ (LongError::TooFew(_) | LongError::NoSymbol | LongError::Dependent) => {
            EffectError::Failed(error.to_string())
        }
    }
}

/// Digest of a block.
fn digest(file: &mut dyn FileBytes, span: Span) -> Result<super::digest::Digest, EffectError> {
    let mut sum = Sha256::new();
    let mut piece = vec![0; span.len.min(PIECE as u64 / 4) as usize];
    let mut at = 0;
    while at < span.len {
        let len = (span.len - at).min(piece.len() as u64) as usize;
        let read = file.read_at(span.offset + at, &mut piece[..len])?;
        if read < len {
            return Err(EffectError::Failed("the file is shorter than its blocks".to_owned()));
        }
        sum.update(&piece[..len]);
        at += len as u64;
    }
    Ok(super::digest::first_bytes(&sum.finalize()))
}

/// Segments of a block in a file.
struct FileColumns<'a> {
    file: &'a mut dyn FileBytes,
    span: Span,
    symbol_len: usize,
    /// Segment that is not in the file.
    spare: Option<(u16, &'a [u8])>,
    /// Segments in memory, from `first` on.
    piece: Vec<u8>,
    first: u16,
}

impl<'a> FileColumns<'a> {
    fn new(
        file: &'a mut dyn FileBytes,
        span: Span,
        symbol_len: usize,
        spare: Option<(u16, &'a [u8])>,
    ) -> Self {
        Self { file, span, symbol_len, spare, piece: Vec::new(), first: 0 }
    }

    /// Offset of a segment in the block.
    fn offset(&self, place: u16) -> u64 {
        u64::from(place) * self.symbol_len as u64
    }

    /// Reads segments from `place` on. Those that were not written yet are zeros.
    fn load(&mut self, place: u16) -> Result<(), EffectError> {
        let at = self.offset(place);
        let most = (PIECE / self.symbol_len).max(1) * self.symbol_len;
        let rest = self.span.len.saturating_sub(at).min(most as u64) as usize;
        self.piece.resize(rest.next_multiple_of(self.symbol_len).max(self.symbol_len), 0);
        let read = self.file.read_at(self.span.offset + at, &mut self.piece[..rest])?;
        self.piece[read..].fill(0);
        self.first = place;
        Ok(())
    }
}

impl Columns for FileColumns<'_> {
    fn get(&mut self, place: u16, at: usize, len: usize) -> Result<&[u8], EffectError> {
        if let Some((_, bytes)) = self.spare.filter(|(spare, _)| *spare == place) {
            return bytes.get(at..at + len).ok_or(EffectError::NotAllowed);
        }
        let end = usize::from(self.first) + self.piece.len() / self.symbol_len;
        if place < self.first || usize::from(place) >= end {
            self.load(place)?;
        }
        let start = usize::from(place - self.first) * self.symbol_len + at;
        self.piece.get(start..start + len).ok_or(EffectError::NotAllowed)
    }

    fn put(&mut self, place: u16, at: usize, bytes: &[u8]) -> Result<(), EffectError> {
        // Nobody reads these columns again.
        let start = self.offset(place) + at as u64;
        let len = self.span.len.saturating_sub(start).min(bytes.len() as u64) as usize;
        if len == 0 {
            return Ok(());
        }
        self.file.write_at(self.span.offset + start, &bytes[..len])
    }
}
