//! Products by shifts and exclusive ors, on any machine.
//!
//! The product with a coefficient is the sum of those `x · α^b` whose bit `b` is set in it. They are
//! made once for each column of a source and used for all sums. Everything is done on arrays of
//! machine words, element by element, which compilers turn into vector instructions.

use super::{COLUMN, Source};
use crate::fec::field::Field;

const WORDS: usize = COLUMN / 8;
type Words = [u64; WORDS];

pub(super) fn accumulate(field: Field, sums: &mut [u8], stride: usize, sources: &[Source<'_>]) {
    for offset in (0..stride).step_by(COLUMN) {
        for source in sources {
            let words = words_of(source.column(offset));
            match field {
                Field::Gf8 => add::<8>(sums, stride, offset, source, &powers8(words)),
                Field::Gf16 => add::<16>(sums, stride, offset, source, &powers16(words)),
            }
        }
    }
}

/// Adds one column of a source to that of each sum.
fn add<const BITS: usize>(
    sums: &mut [u8],
    stride: usize,
    offset: usize,
    source: &Source<'_>,
    powers: &[Words; BITS],
) {
    for (sum, &coefficient) in sums.chunks_exact_mut(stride).zip(&source.coefficients) {
        let Some(to) = sum[offset..].first_chunk_mut::<COLUMN>() else { continue };
        let mut words = words_of(to);
        let mut bits = coefficient;
        while bits != 0 {
            let power = &powers[bits.trailing_zeros() as usize % BITS];
            for (word, power) in words.iter_mut().zip(power) {
                *word ^= power;
            }
            bits &= bits - 1;
        }
        for (bytes, word) in to.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }
}

fn words_of(column: &[u8; COLUMN]) -> Words {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(column.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// The elements times α to the powers 0 to 7.
fn powers8(words: Words) -> [Words; 8] {
    let mut powers = [words; 8];
    for bit in 1..8 {
        powers[bit] = powers[bit - 1].map(|x| {
            let high = (x >> 7) & 0x0101_0101_0101_0101;
            // α⁸ = α⁴ + α³ + α² + 1, and nothing is shifted into a neighbour.
            ((x & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ high ^ (high << 2) ^ (high << 3) ^ (high << 4)
        });
    }
    powers
}

/// The elements times α to the powers 0 to 15.
fn powers16(words: Words) -> [Words; 16] {
    let mut powers = [words; 16];
    for bit in 1..16 {
        powers[bit] = powers[bit - 1].map(|x| {
            let high = (x >> 15) & 0x0001_0001_0001_0001;
            // α¹⁶ = α¹² + α³ + α + 1.
            ((x & 0x7fff_7fff_7fff_7fff) << 1) ^ high ^ (high << 1) ^ (high << 3) ^ (high << 12)
        });
    }
    powers
}
