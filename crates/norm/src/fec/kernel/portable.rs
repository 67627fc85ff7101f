//! Products by shifts and exclusive ors, on any machine.
//!
//! A sum of products is computed by the bits of the coefficients, from the highest: the previous
//! sum times α, plus all sources whose coefficient has the bit. The number of shifts equals one
//! symbol's, for any number of sources. Everything works on arrays of machine words, element by
//! element, which compilers turn into vector instructions.

use super::{COLUMN, Source, TILE};
use crate::fec::field::Field;

const WORDS: usize = COLUMN / 8;
type Words = [u64; WORDS];

pub(super) fn accumulate(field: Field, sums: &mut [u8], stride: usize, sources: &[Source<'_>]) {
    for (row, sum) in sums.chunks_exact_mut(stride).enumerate() {
        let mut sets = [0; 16];
        for (bit, set) in sets.iter_mut().enumerate() {
            *set = members(sources, row, bit);
        }
        for (index, to) in sum.as_chunks_mut::<COLUMN>().0.iter_mut().enumerate() {
            let offset = index * COLUMN;
            let product = match field {
                Field::Gf8 => horner(&sets[..8], sources, offset, double8),
                Field::Gf16 => horner(&sets, sources, offset, double16),
            };
            let words = words_of(to);
            let bytes = to.as_chunks_mut::<8>().0;
            for ((bytes, word), product) in bytes.iter_mut().zip(words).zip(product) {
                *bytes = (word ^ product).to_le_bytes();
            }
        }
    }
}

/// Bitmap of the sources whose coefficient in the sum `row` has a bit.
fn members(sources: &[Source<'_>], row: usize, bit: usize) -> u32 {
    debug_assert!(row < TILE);
    let bits = sources.iter().map(|source| u32::from(source.coefficients[row] >> bit) & 1);
    bits.enumerate().fold(0, |set, (index, bit)| set | bit << index)
}

/// Sum of products at `offset`: `sets` has a bitmap of sources for each bit.
#[inline(always)]
fn horner(
    sets: &[u32],
    sources: &[Source<'_>],
    offset: usize,
    double: impl Fn(u64) -> u64,
) -> Words {
    let mut sum = [0; WORDS];
    for &set in sets.iter().rev() {
        sum = sum.map(&double);
        let mut rest = set;
        while rest != 0 {
            let source = &sources[rest.trailing_zeros() as usize];
            for (sum, word) in sum.iter_mut().zip(words_of(source.column(offset))) {
                *sum ^= word;
            }
            rest &= rest - 1;
        }
    }
    sum
}

#[inline(always)]
fn words_of(bytes: &[u8; COLUMN]) -> Words {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Eight elements of GF(2⁸) times α.
#[inline(always)]
fn double8(x: u64) -> u64 {
    let high = (x >> 7) & 0x0101_0101_0101_0101;
    // α⁸ = α⁴ + α³ + α² + 1, and nothing is shifted into a neighbour.
    ((x & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ high ^ (high << 2) ^ (high << 3) ^ (high << 4)
}

/// Four elements of GF(2¹⁶) times α.
#[inline(always)]
fn double16(x: u64) -> u64 {
    let high = (x >> 15) & 0x0001_0001_0001_0001;
    // α¹⁶ = α¹² + α³ + α + 1.
    ((x & 0x7fff_7fff_7fff_7fff) << 1) ^ high ^ (high << 1) ^ (high << 3) ^ (high << 12)
}
