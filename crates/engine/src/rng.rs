//! Seeded randomness.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// A random generator whose output depends on its seed alone.
///
/// In a simulation its seed is derived from the scenario's seed and the component's name, so
/// adding a component does not change the numbers of the others. Over real sockets the operating
/// system's entropy seeds it, because session numbers must not be guessable.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha12Rng);

impl Rng {
    /// Creates the generator of the component `name` in a world seeded with `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a over seed and name, stretched to a key by the generator's own expansion.
        let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(ChaCha12Rng::seed_from_u64(hash))
    }

    /// Creates a generator keyed by 32 bytes of entropy.
    #[must_use]
    pub fn from_entropy(key: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(key))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift: its bias is below bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns `true` with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Returns the number of failed trials before the first success, if each trial succeeds with
    /// probability `p`: the distance to the next bit in error. `u64::MAX` if `p` is 0.
    pub fn geometric(&mut self, p: f64) -> u64 {
        if p <= 0.0 {
            return u64::MAX;
        }
        if p >= 1.0 {
            return 0;
        }
        let skip = (1.0 - self.unit()).ln() / (-p).ln_1p();
        // A float beyond the range converts to the range's end.
        skip as u64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_name_same_numbers() {
        let draw = |seed, name| Rng::new(seed, name).next_u64();
        assert_eq!(draw(1, "link"), draw(1, "link"));
        assert_ne!(draw(1, "link"), draw(2, "link"));
        assert_ne!(draw(1, "link"), draw(1, "host"));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut rng = Rng::new(7, "test");
        let n = 200_000;
        let mean = |sum: f64| sum / f64::from(n);
        let unit = mean((0..n).map(|_| rng.unit()).sum());
        let exponential = mean((0..n).map(|_| rng.exponential(3.0)).sum());
        let geometric = mean((0..n).map(|_| rng.geometric(0.01) as f64).sum());
        let below = mean((0..n).map(|_| rng.below(10) as f64).sum());
        // Each bound is five standard errors.
        assert!((unit - 0.5).abs() < 5.0 * 0.289 / f64::from(n).sqrt(), "{unit}");
        assert!((exponential - 3.0).abs() < 5.0 * 3.0 / f64::from(n).sqrt(), "{exponential}");
        assert!((geometric - 99.0).abs() < 5.0 * 99.5 / f64::from(n).sqrt(), "{geometric}");
        assert!((below - 4.5).abs() < 5.0 * 2.88 / f64::from(n).sqrt(), "{below}");
    }

    #[test]
    fn geometric_distribution_handles_edge_cases() {
        let mut rng = Rng::new(1, "edge");
        assert_eq!((rng.geometric(0.0), rng.geometric(1.0)), (u64::MAX, 0));
        assert!(rng.geometric(1e-300) > 1 << 60);
    }
}
