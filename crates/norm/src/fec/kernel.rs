//! Sums of products of symbols with elements of a field.

/// Calls a function for as many sums as there are, or a few more: extra ones cost work but are not
/// stored.
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

/// Bytes of symbols processed at a time.
pub(super) const COLUMN: usize = 128;

/// Number of sums computed at once, so that a source is loaded once for all of them.
pub(super) const TILE: usize = 4;

/// Number of sources added at once, so that a sum is loaded and stored once for all of them.
pub(super) const SOURCES: usize = 16;

/// Implementation of the arithmetic. All have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Galois field instructions of x86-64, on vectors of 512 bits.
    Gfni,
    /// AVX2, on vectors of 256 bits.
    Avx2,
    /// NEON, on vectors of 128 bits.
    Neon,
    /// Shifts and exclusive ors of machine words, which compilers turn into vector instructions.
    Portable,
}

impl Path {
    /// All paths, the fastest first.
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

    /// Fastest path of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|path| path.is_available()).unwrap_or(Self::Portable)
    }
}

/// Symbol, and its coefficient in each sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Source<'a> {
    /// Symbol, padded with zeros to the length of the sums.
    pub(super) data: &'a [u8],
    /// Coefficient for each sum.
    pub(super) coefficients: [u16; TILE],
}

impl<'a> Source<'a> {
    /// Column that starts at `offset`.
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
