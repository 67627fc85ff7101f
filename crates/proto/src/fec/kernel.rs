//! Sums of products of symbols with elements of a field.

/// Calls a function of as many sums as there are, or a few more: those that are not there cost
/// work but have no place to go to.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
macro_rules! by_rows {
    ($function:ident($token:expr, $sums:expr, $stride:expr, $sources:expr)) => {
        match $sums.len() / $stride {
            0 | 1 => $function::<1>($token, $sums, $stride, $sources),
            2 => $function::<2>($token, $sums, $stride, $sources),
            _ => $function::<TILE>($token, $sums, $stride, $sources),
        }
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod nibbles;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

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
    /// The Galois field instructions of x86-64 on vectors of 512 bits.
    Gfni,
    /// AVX2, the vectors of 256 bits of x86-64.
    Avx2,
    /// NEON, the vectors of 128 bits of AArch64.
    Neon,
    /// Shifts and exclusive ors of machine words, which compilers turn into vector instructions.
    Portable,
}

impl Path {
    /// All paths, the best first.
    pub const ALL: [Self; 4] = [Self::Gfni, Self::Avx2, Self::Neon, Self::Portable];

    /// Whether this machine has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => x86::gfni_is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::avx2_is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Gfni | Self::Avx2 => false,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => aarch64::is_available(),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon => false,
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
    /// The symbol, padded with zeros to the length of the sums.
    pub(super) data: &'a [u8],
    /// One coefficient for each sum.
    pub(super) coefficients: [u16; TILE],
}

impl<'a> Source<'a> {
    /// The column that starts at `offset`.
    #[inline(always)]
    fn column(&self, offset: usize) -> &'a [u8; COLUMN] {
        self.data[offset..].first_chunk().expect("symbols are whole columns")
    }
}

/// Adds the products of at most [`SOURCES`] sources with their coefficients to at most [`TILE`]
/// sums, which are `stride` bytes apart in `sums`, a multiple of [`COLUMN`].
pub(super) fn accumulate(
    path: Path,
    field: Field,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    debug_assert!(stride.is_multiple_of(COLUMN) && sums.len() <= TILE * stride);
    debug_assert!(sources.len() <= SOURCES);
    debug_assert!(sources.iter().all(|source| source.data.len() == stride));
    let done = match path {
        #[cfg(target_arch = "x86_64")]
        Path::Gfni => x86::gfni(field, sums, stride, sources),
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => x86::avx2(field, sums, stride, sources),
        #[cfg(not(target_arch = "x86_64"))]
        Path::Gfni | Path::Avx2 => false,
        #[cfg(target_arch = "aarch64")]
        Path::Neon => aarch64::neon(field, sums, stride, sources),
        #[cfg(not(target_arch = "aarch64"))]
        Path::Neon => false,
        Path::Portable => false,
    };
    if !done {
        portable::accumulate(field, sums, stride, sources);
    }
}
