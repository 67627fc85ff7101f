//! Arithmetic of single elements of GF(2⁸) and GF(2¹⁶), by logarithms.

use std::sync::LazyLock;

/// Finite field of the symbols' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// GF(2⁸), polynomial 0x11d: FEC encoding ids 5 and 129.
    Gf8,
    /// GF(2¹⁶), polynomial 0x1100b, elements in little endian: FEC encoding id 2 with m = 16.
    Gf16,
}

impl Field {
    /// Maximum number of symbols of a block, source and parity: 255 or 65,535.
    #[must_use]
    pub fn symbols_max(self) -> usize {
        match self {
            Self::Gf8 => 255,
            Self::Gf16 => 65_535,
        }
    }

    /// Bytes of an element; the length of a symbol is a multiple of it.
    #[must_use]
    pub fn element_len(self) -> usize {
        match self {
            Self::Gf8 => 1,
            Self::Gf16 => 2,
        }
    }

    pub(super) fn tables(self) -> &'static Tables {
        match self {
            Self::Gf8 => &GF8,
            Self::Gf16 => &GF16,
        }
    }
}

static GF8: LazyLock<Tables> = LazyLock::new(|| Tables::new(8, 0x11d));
static GF16: LazyLock<Tables> = LazyLock::new(|| Tables::new(16, 0x1_100b));

/// Logarithms to the base α, a root of the field's polynomial, and their inverse.
///
/// Products of many elements are sums of logarithms, taken modulo [`Tables::order`] once at the
/// end.
pub(super) struct Tables {
    /// Logarithm of each nonzero element; 0 for 0.
    log: Vec<u16>,
    /// α to each power below the order.
    exp: Vec<u16>,
}

impl Tables {
    fn new(bits: u32, polynomial: u32) -> Self {
        let order = (1_usize << bits) - 1;
        let (mut log, mut exp) = (vec![0; order + 1], Vec::with_capacity(order));
        let mut power = 1_u32;
        for exponent in 0..order {
            exp.push(power as u16);
            log[power as usize] = exponent as u16;
            power <<= 1;
            if power > order as u32 {
                power ^= polynomial;
            }
        }
        Self { log, exp }
    }

    /// Number of nonzero elements, the modulus of exponents.
    pub(super) fn order(&self) -> u64 {
        self.exp.len() as u64
    }

    /// Logarithm of a nonzero element.
    pub(super) fn log(&self, element: u16) -> u64 {
        u64::from(self.log[usize::from(element)])
    }

    /// α to the power of `exponent`.
    pub(super) fn exp(&self, exponent: u64) -> u16 {
        self.exp[(exponent % self.order()) as usize]
    }

    /// Product of two elements, for kernels and tests.
    #[cfg(any(test, target_arch = "aarch64", target_arch = "x86_64"))]
    pub(super) fn mul(&self, a: u16, b: u16) -> u16 {
        if a == 0 || b == 0 { 0 } else { self.exp(self.log(a) + self.log(b)) }
    }

    /// Point of the code word position `index`.
    pub(super) fn point(&self, index: usize) -> u16 {
        if index == 0 { 0 } else { self.exp(index as u64 - 1) }
    }
}
