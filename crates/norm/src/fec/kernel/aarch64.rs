//! Products by the vector instructions of AArch64 processors: a sum of one table look-up for each
//! four bits of an element.

use archmage::prelude::*;

use super::nibbles::{NIBBLES8, nibbles16};
use super::{Source, TILE};
use crate::fec::field::Field;

/// Bytes processed at once: few enough for registers.
const STEP: usize = 32;

pub(super) fn is_available() -> bool {
    NeonToken::summon().is_some()
}

/// Returns whether the processor has the instructions.
pub(super) fn neon(field: Field, sums: &mut [u8], stride: usize, sources: &[Source<'_>]) -> bool {
    let Some(token) = NeonToken::summon() else { return false };
    match field {
        Field::Gf8 => by_rows!(neon8(token, sums, stride, sources)),
        Field::Gf16 => by_rows!(neon16(token, sums, stride, sources)),
    }
    true
}

/// Two vectors of a source.
#[rite(neon, import_intrinsics)]
fn fetch(source: &Source<'_>, offset: usize) -> [uint8x16_t; 2] {
    let from = source.data[offset..].first_chunk::<STEP>().expect("symbols are whole columns");
    let (low, high) = from.split_at(16);
    [low, high].map(|half| vld1q_u8(half.first_chunk().expect("half of 32 is 16")))
}

/// Adds two vectors to the sum at `offset`.
#[rite(neon, import_intrinsics)]
fn add(row: &mut [u8], offset: usize, sum: [uint8x16_t; 2]) {
    let to = row[offset..].first_chunk_mut::<STEP>().expect("rows are whole columns");
    for (to, sum) in to.as_chunks_mut::<16>().0.iter_mut().zip(sum) {
        let before = vld1q_u8(&*to);
        vst1q_u8(to, veorq_u8(before, sum));
    }
}

#[arcane(import_intrinsics)]
fn neon8<const ROWS: usize>(
    _token: NeonToken,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let all = &*NIBBLES8;
    let mask = vdupq_n_u8(0x0f);
    for offset in (0..stride).step_by(STEP) {
        let mut sum = [[vdupq_n_u8(0); 2]; ROWS];
        for source in sources {
            let x = fetch(source, offset);
            let low = x.map(|x| vandq_u8(x, mask));
            let high = x.map(|x| vshrq_n_u8::<4>(x));
            for (sum, coefficient) in sum.iter_mut().zip(source.coefficients) {
                let [of_low, of_high] = all[usize::from(coefficient) & 0xff];
                let (of_low, of_high) = (vld1q_u8(&of_low), vld1q_u8(&of_high));
                for (sum, (low, high)) in sum.iter_mut().zip(low.into_iter().zip(high)) {
                    let low = vqtbl1q_u8(of_low, low);
                    let high = vqtbl1q_u8(of_high, high);
                    *sum = veorq_u8(*sum, veorq_u8(low, high));
                }
            }
        }
        for (row, sum) in sums.chunks_exact_mut(stride).zip(sum) {
            add(row, offset, sum);
        }
    }
}

#[arcane(import_intrinsics)]
fn neon16<const ROWS: usize>(
    _token: NeonToken,
    sums: &mut [u8],
    stride: usize,
    sources: &[Source<'_>],
) {
    let nibbles = nibbles16(sources);
    let mask = vdupq_n_u8(0x0f);
    for offset in (0..stride).step_by(STEP) {
        // The low bytes of the elements, and the high ones.
        let mut sum = [[vdupq_n_u8(0); 2]; ROWS];
        for (source, nibbles) in sources.iter().zip(&nibbles) {
            let [a, b] = fetch(source, offset);
            let (low, high) = (vuzp1q_u8(a, b), vuzp2q_u8(a, b));
            let digits = [
                vandq_u8(low, mask),
                vshrq_n_u8::<4>(low),
                vandq_u8(high, mask),
                vshrq_n_u8::<4>(high),
            ];
            for (sum, tables) in sum.iter_mut().zip(nibbles) {
                for (digit, tables) in digits.iter().zip(tables.as_chunks::<2>().0) {
                    for (sum, table) in sum.iter_mut().zip(tables) {
                        *sum = veorq_u8(*sum, vqtbl1q_u8(vld1q_u8(table), *digit));
                    }
                }
            }
        }
        for (row, [low, high]) in sums.chunks_exact_mut(stride).zip(sum) {
            add(row, offset, [vzip1q_u8(low, high), vzip2q_u8(low, high)]);
        }
    }
}
