//! Products by the vector instructions of x86-64 processors.
//!
//! Multiplication with a constant is linear over bits. With GFNI it is an affine transformation:
//! the constant becomes a matrix of 8 × 8 bits (four of them for an element of 16 bits). With AVX2
//! it is a sum of one table look-up for each four bits of an element.

use std::sync::LazyLock;

use archmage::prelude::*;

use super::nibbles::{NIBBLES8, nibbles16};
use super::{COLUMN, SOURCES, Source, TILE};
use crate::fec::field::{Field, Tables};

/// The matrix of each coefficient of GF(2⁸), as `vgf2p8affineqb` expects it: the byte `7 − i`
/// selects the bits of an element that make bit `i` of the product.
static MATRICES8: LazyLock<[u64; 256]> = LazyLock::new(|| {
    let tables = Field::Gf8.tables();
    std::array::from_fn(|coefficient| matrix(&powers(tables, coefficient as u16), 0, 0))
});

/// The matrices of coefficients of GF(2¹⁶), by their low and their high byte, whose sum is the
/// matrix of the coefficient: from low to low, high to high, high to low, low to high byte of an
/// element.
static MATRICES16: LazyLock<[[[u64; 4]; 256]; 2]> = LazyLock::new(|| {
    let tables = Field::Gf16.tables();
    std::array::from_fn(|byte| {
        std::array::from_fn(|value| {
            let powers = powers(tables, (value << (8 * byte)) as u16);
            [(0, 0), (8, 8), (8, 0), (0, 8)].map(|(from, to)| matrix(&powers, from, to))
        })
    })
});

/// The coefficient times α to each power below 16.
fn powers(tables: &Tables, coefficient: u16) -> [u16; 16] {
    std::array::from_fn(|exponent| tables.mul(coefficient, tables.exp(exponent as u64)))
}

/// The matrix from the eight bits at `from` of an element to the eight at `to` of the product.
fn matrix(powers: &[u16; 16], from: usize, to: usize) -> u64 {
    let mut rows = [0; 8];
    for (bit, row) in rows.iter_mut().rev().enumerate() {
        for (input, power) in powers[from..from + 8].iter().enumerate() {
            *row |= (((power >> (to + bit)) & 1) as u8) << input;
        }
    }
    u64::from_le_bytes(rows)
}

pub(super) fn avx2_is_available() -> bool {
    X64V3Token::summon().is_some()
}

pub(super) fn gfni_is_available() -> bool {
    X64V4xToken::summon().is_some()
}

/// Runs with GFNI and AVX-512. Returns whether the processor supports them.
pub(super) fn gfni(field: Field, sums: &mut [u8], stride: usize, sources: &[Source<'_>]) -> bool {
    let Some(token) = X64V4xToken::summon() else { return false };
    match field {
        Field::Gf8 => by_rows!(gfni8(token, sums, stride, sources)),
        Field::Gf16 => by_rows!(gfni16(token, sums, stride, sources)),
    }
    true
}

/// Runs with AVX2. Returns whether the processor supports it.
pub(super) fn avx2(field: Field, sums: &mut [u8], stride: usize, sources: &[Source<'_>]) -> bool {
    let Some(token) = X64V3Token::summon() else { return false };
    match field {
        Field::Gf8 => by_rows!(avx2_8(token, sums, stride, sources)),
        Field::Gf16 => by_rows!(avx2_16(token, sums, stride, sources)),
    }
    true
}

/// The two halves of a column.
#[inline(always)]
fn halves(column: &[u8; COLUMN]) -> [&[u8; 64]; 2] {
    let (low, high) = column.split_at(64);
    [low, high].map(|half| half.first_chunk().expect("half of 128 is 64"))
}

#[arcane(import_intrinsics)]
fn gfni8<const ROWS: usize>(
    _token: X64V4xToken,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let mut matrices = [[0_i64; TILE]; SOURCES];
    for (to, source) in matrices.iter_mut().zip(sources) {
        *to = source.coefficients.map(|c| MATRICES8[usize::from(c) & 0xff] as i64);
    }
    for offset in (0..stride).step_by(COLUMN) {
        let mut sum = [[_mm512_setzero_si512(); 2]; ROWS];
        for (source, matrices) in sources.iter().zip(&matrices) {
            let x = halves(source.column(offset));
            let x = x.map(|half| _mm512_loadu_si512(half));
            for (sum, &matrix) in sum.iter_mut().zip(matrices) {
                let matrix = _mm512_set1_epi64(matrix);
                for (sum, x) in sum.iter_mut().zip(x) {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix);
                    *sum = _mm512_xor_si512(*sum, product);
                }
            }
        }
        for (row, sum) in sums.chunks_exact_mut(stride).zip(&sum) {
            let to = row[offset..].first_chunk_mut::<COLUMN>().expect("rows are whole columns");
            let [low, high] = halves(to).map(|half| _mm512_loadu_si512(half));
            let (to_low, to_high) = to.split_at_mut(64);
            let to_low: &mut [u8; 64] = to_low.first_chunk_mut().expect("half of 128 is 64");
            _mm512_storeu_si512(to_low, _mm512_xor_si512(low, sum[0]));
            let to_high: &mut [u8; 64] = to_high.first_chunk_mut().expect("half of 128 is 64");
            _mm512_storeu_si512(to_high, _mm512_xor_si512(high, sum[1]));
        }
    }
}

/// Brings the low bytes of eight elements of 16 bits in front of their high bytes, in each
/// 16 bytes.
const APART: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
/// The inverse.
const TOGETHER: [u8; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

#[arcane(import_intrinsics)]
fn gfni16<const ROWS: usize>(
    _token: X64V4xToken,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let mut matrices = [[[0_u64; 4]; TILE]; SOURCES];
    let all = &*MATRICES16;
    for (to, source) in matrices.iter_mut().zip(sources) {
        for (to, coefficient) in to.iter_mut().zip(source.coefficients) {
            let [low, high] = coefficient.to_le_bytes().map(usize::from);
            *to = std::array::from_fn(|index| all[0][low][index] ^ all[1][high][index]);
        }
    }
    let apart = _mm512_broadcast_i32x4(_mm_loadu_si128(&APART));
    let together = _mm512_broadcast_i32x4(_mm_loadu_si128(&TOGETHER));
    for offset in (0..stride).step_by(COLUMN) {
        let mut sum = [[_mm512_setzero_si512(); 2]; ROWS];
        for (source, matrices) in sources.iter().zip(&matrices) {
            let x = halves(source.column(offset));
            let x = x.map(|half| _mm512_shuffle_epi8(_mm512_loadu_si512(half), apart));
            let swapped = x.map(|half| _mm512_shuffle_epi32::<0b01_00_11_10>(half));
            for (sum, [ll, hh, hl, lh]) in sum.iter_mut().zip(matrices) {
                let same = _mm512_broadcast_i32x4(_mm_loadu_si128(&[*ll, *hh]));
                let other = _mm512_broadcast_i32x4(_mm_loadu_si128(&[*hl, *lh]));
                for (sum, (x, swapped)) in sum.iter_mut().zip(x.into_iter().zip(swapped)) {
                    let same = _mm512_gf2p8affine_epi64_epi8::<0>(x, same);
                    let other = _mm512_gf2p8affine_epi64_epi8::<0>(swapped, other);
                    *sum = _mm512_ternarylogic_epi64::<0x96>(*sum, same, other);
                }
            }
        }
        for (row, sum) in sums.chunks_exact_mut(stride).zip(&sum) {
            let to = row[offset..].first_chunk_mut::<COLUMN>().expect("rows are whole columns");
            let [low, high] = halves(to).map(|half| _mm512_loadu_si512(half));
            let sum = sum.map(|half| _mm512_shuffle_epi8(half, together));
            let (to_low, to_high) = to.split_at_mut(64);
            let to_low: &mut [u8; 64] = to_low.first_chunk_mut().expect("half of 128 is 64");
            _mm512_storeu_si512(to_low, _mm512_xor_si512(low, sum[0]));
            let to_high: &mut [u8; 64] = to_high.first_chunk_mut().expect("half of 128 is 64");
            _mm512_storeu_si512(to_high, _mm512_xor_si512(high, sum[1]));
        }
    }
}

/// The width that AVX2 has registers for.
const NARROW: usize = 64;

/// Two vectors of a source.
#[rite(v3, import_intrinsics)]
fn fetch_narrow(source: &Source<'_>, offset: usize) -> [__m256i; 2] {
    let from = source.data[offset..].first_chunk::<NARROW>().expect("symbols are whole columns");
    let (low, high) = from.split_at(32);
    [low, high].map(|half| {
        let half: &[u8; 32] = half.first_chunk().expect("half of 64 is 32");
        _mm256_loadu_si256(half)
    })
}

/// Adds two vectors to the sum at `offset`.
#[rite(v3, import_intrinsics)]
fn add_narrow(row: &mut [u8], offset: usize, sum: [__m256i; 2]) {
    let to = row[offset..].first_chunk_mut::<NARROW>().expect("rows are whole columns");
    for (to, sum) in to.as_chunks_mut::<32>().0.iter_mut().zip(sum) {
        let before = _mm256_loadu_si256(&*to);
        _mm256_storeu_si256(to, _mm256_xor_si256(before, sum));
    }
}

#[arcane(import_intrinsics)]
fn avx2_8<const ROWS: usize>(
    _token: X64V3Token,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let all = &*NIBBLES8;
    let mask = _mm256_set1_epi8(0x0f);
    for offset in (0..stride).step_by(NARROW) {
        let mut sum = [[_mm256_setzero_si256(); 2]; ROWS];
        for source in sources {
            let x = fetch_narrow(source, offset);
            let low = x.map(|x| _mm256_and_si256(x, mask));
            let high = x.map(|x| _mm256_and_si256(_mm256_srli_epi64::<4>(x), mask));
            for (sum, coefficient) in sum.iter_mut().zip(source.coefficients) {
                let [of_low, of_high] = &all[usize::from(coefficient) & 0xff];
                let of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_low));
                let of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_high));
                for (sum, (low, high)) in sum.iter_mut().zip(low.into_iter().zip(high)) {
                    let low = _mm256_shuffle_epi8(of_low, low);
                    let high = _mm256_shuffle_epi8(of_high, high);
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(low, high));
                }
            }
        }
        for (row, sum) in sums.chunks_exact_mut(stride).zip(sum) {
            add_narrow(row, offset, sum);
        }
    }
}

#[arcane(import_intrinsics)]
fn avx2_16<const ROWS: usize>(
    _token: X64V3Token,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let nibbles = nibbles16(sources);
    let mask = _mm256_set1_epi8(0x0f);
    let low_bytes = _mm256_set1_epi16(0xff);
    for offset in (0..stride).step_by(NARROW) {
        // The low bytes of the elements, and the high ones.
        let mut sum = [[_mm256_setzero_si256(); 2]; ROWS];
        for (source, nibbles) in sources.iter().zip(&nibbles) {
            let [a, b] = fetch_narrow(source, offset);
            let low =
                _mm256_packus_epi16(_mm256_and_si256(a, low_bytes), _mm256_and_si256(b, low_bytes));
            let high = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
            let digits = [
                _mm256_and_si256(low, mask),
                _mm256_and_si256(_mm256_srli_epi64::<4>(low), mask),
                _mm256_and_si256(high, mask),
                _mm256_and_si256(_mm256_srli_epi64::<4>(high), mask),
            ];
            for (sum, tables) in sum.iter_mut().zip(nibbles) {
                for (digit, tables) in digits.iter().zip(tables.as_chunks::<2>().0) {
                    for (sum, table) in sum.iter_mut().zip(tables) {
                        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table));
                        *sum = _mm256_xor_si256(*sum, _mm256_shuffle_epi8(table, *digit));
                    }
                }
            }
        }
        for (row, [low, high]) in sums.chunks_exact_mut(stride).zip(sum) {
            let together = [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)];
            add_narrow(row, offset, together);
        }
    }
}
