//! Products of each coefficient with the four-bit digits of an element, for processors that look
//! up sixteen bytes at once.

use std::sync::LazyLock;

use super::{SOURCES, Source, TILE};
use crate::fec::field::Field;

/// The products of each coefficient of GF(2⁸) with the elements below 16, and with their multiples
/// of 16.
pub(super) static NIBBLES8: LazyLock<[[[u8; 16]; 2]; 256]> = LazyLock::new(|| {
    let tables = Field::Gf8.tables();
    std::array::from_fn(|coefficient| {
        [0, 4].map(|shift| {
            std::array::from_fn(|x| tables.mul(coefficient as u16, (x << shift) as u16) as u8)
        })
    })
});

/// The products of coefficients of GF(2¹⁶), by their four digits, with the digits of an element.
static NIBBLES16: LazyLock<[[Nibbles16; 16]; 4]> = LazyLock::new(|| {
    let tables = Field::Gf16.tables();
    let product = |a: usize, b: usize| tables.mul(a as u16, b as u16).to_le_bytes();
    std::array::from_fn(|digit| {
        std::array::from_fn(|value| {
            std::array::from_fn(|table| {
                let (shift, half) = (4 * (table / 2), table % 2);
                std::array::from_fn(|x| product(value << (4 * digit), x << shift)[half])
            })
        })
    })
});

/// Low and high bytes of the products, for each digit of an element of GF(2¹⁶), from the lowest.
pub(super) type Nibbles16 = [[u8; 16]; 8];

/// The products of all coefficients of GF(2¹⁶). The products of a coefficient are the sums of the
/// products of its digits.
#[inline(always)]
pub(super) fn nibbles16(sources: &[Source<'_>]) -> [[Nibbles16; TILE]; SOURCES] {
    let mut nibbles = [[[[0; 16]; 8]; TILE]; SOURCES];
    let all = &*NIBBLES16;
    for (to, source) in nibbles.iter_mut().zip(sources) {
        for (to, coefficient) in to.iter_mut().zip(source.coefficients) {
            for (part, shift) in all.iter().zip([0, 4, 8, 12]) {
                let part = &part[usize::from(coefficient >> shift) & 0xf];
                for (to, part) in to.as_flattened_mut().iter_mut().zip(part.as_flattened()) {
                    *to ^= part;
                }
            }
        }
    }
    nibbles
}
