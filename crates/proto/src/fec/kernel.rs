//! Sums of products of symbols with elements of a field.

mod portable;

use super::field::Field;

/// The width in bytes that symbols are worked through in.
pub(super) const COLUMN: usize = 128;

/// How many sums are made at once, so that a source is fetched once for all of them.
pub(super) const TILE: usize = 4;

/// How many sources are added at once, so that a sum is fetched and stored once for all of them.
pub(super) const SOURCES: usize = 16;

/// How the arithmetic is done. All ways have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Shifts and exclusive ors of machine words, which compilers turn into vector instructions.
    Portable,
}

impl Path {
    /// All paths, the best first.
    pub const ALL: [Self; 1] = [Self::Portable];

    /// Whether this machine has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
        }
    }

    /// The best one that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|path| path.is_available()).unwrap_or(Self::Portable)
    }
}

/// A symbol, and what it is multiplied with in each sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Source<'a> {
    /// The symbol, followed by any number of zeros that are not there.
    pub(super) data: &'a [u8],
    /// One coefficient for each sum.
    pub(super) coefficients: [u16; TILE],
}

/// Adds the products of at most [`SOURCES`] sources with their coefficients to at most [`TILE`]
/// sums, which are `stride` bytes apart in `sums` and a multiple of [`COLUMN`] long.
pub(super) fn accumulate(
    path: Path,
    field: Field,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    debug_assert!(stride.is_multiple_of(COLUMN) && sums.len() <= TILE * stride);
    debug_assert!(sources.len() <= SOURCES);
    match path {
        Path::Portable => portable::accumulate(field, sums, stride, sources),
    }
}

/// One column of a symbol, with zeros for what is not there.
fn column(data: &[u8], offset: usize) -> [u8; COLUMN] {
    let mut column = [0; COLUMN];
    if let Some(rest) = data.get(offset..) {
        let length = rest.len().min(COLUMN);
        column[..length].copy_from_slice(&rest[..length]);
    }
    column
}
