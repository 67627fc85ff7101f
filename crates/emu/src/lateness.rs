//! How late packets were.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest lateness that is told apart, in nanoseconds: a minute.
const MOST: u64 = 60_000_000_000;
/// Nanoseconds are counted in units of 2^9: about half a microsecond.
const UNIT: u32 = 9;
/// Of so many bits of the units what is counted together differs in the last one: three digits.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);

/// Where what is so many nanoseconds late is counted. Up to 2^11 units each has a place of its own;
/// from there on, each doubling has 2^10 places.
const fn place(nanos: u64) -> usize {
    let units = nanos >> UNIT;
    let shift = (u64::BITS - units.leading_zeros()).saturating_sub(BITS);
    shift as usize * HALF + (units >> shift) as usize
}

/// The most nanoseconds that are counted at this place.
const fn most_at(place: usize) -> u64 {
    let shift = (place / HALF).saturating_sub(1);
    let units = (place - shift * HALF + 1) as u64;
    (units << shift << UNIT) - 1
}

/// Counts how late things were, in the threads that do them. Others look at the counts meanwhile,
/// without a word to those threads: they are the ones that must be in time.
pub struct Timings {
    counts: Box<[AtomicU64]>,
    most: AtomicU64,
}

impl Default for Timings {
    fn default() -> Self {
        Self::new()
    }
}

impl Timings {
    /// Nothing was counted.
    #[must_use]
    pub fn new() -> Self {
        let counts = (0..=place(MOST)).map(|_| AtomicU64::new(0)).collect();
        Self { counts, most: AtomicU64::new(0) }
    }

    /// Counts `count` of them that were so late.
    pub fn record(&self, late: Duration, count: u32) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let counted = &self.counts[place(nanos.min(MOST))];
        // The engines of several transfers may share a host's.
        counted.fetch_add(u64::from(count), Ordering::Relaxed);
        if nanos > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn so_far(&self) -> Lateness {
        let counts = self.counts.iter().enumerate();
        let counts = counts.map(|(place, count)| (place as u32, count.load(Ordering::Relaxed)));
        let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        let packets = counts.iter().map(|(_, count)| count).sum();
        Lateness { counts, packets, most: self.most.load(Ordering::Relaxed) }
    }
}

impl fmt::Debug for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.so_far().fmt(f)
    }
}

/// How much later than their logical times packets were handed over, to half a microsecond or three
/// digits.
#[derive(Clone, Default)]
pub struct Lateness {
    /// Places with their counts, in order.
    counts: Vec<(u32, u64)>,
    packets: u64,
    most: u64,
}

impl Lateness {
    /// Packets counted.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// What the share `quantile` of the packets, from 0 to 1, was not later than.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile * self.packets as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.counts.iter().find(|(_, count)| {
            below += count;
            below >= rank
        });
        let nanos = reached.map_or(0, |(place, _)| most_at(*place as usize));
        Duration::from_nanos(nanos.min(self.most))
    }

    /// The latest packet's.
    #[must_use]
    pub fn most(&self) -> Duration {
        Duration::from_nanos(self.most)
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("packets", &self.packets())
            .field("half", &self.quantile(0.5))
            .field("most", &self.most())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let timings = Timings::new();
        assert_eq!(timings.so_far().quantile(0.5), Duration::ZERO);
        timings.record(Duration::from_micros(20), 99);
        timings.record(Duration::from_hours(1), 1);
        let lateness = timings.so_far();
        assert_eq!(lateness.packets(), 100);
        for quantile in [0.0, 0.5, 0.99] {
            let nanos = lateness.quantile(quantile).as_nanos();
            assert!((20_000..20_512).contains(&nanos), "{quantile}: {nanos} ns");
        }
        assert!(lateness.quantile(1.0) >= Duration::from_secs(59), "{lateness:?}");
        assert_eq!(lateness.most(), Duration::from_hours(1));
    }

    #[test]
    fn every_time_is_told_to_three_digits() {
        let mut before = 0;
        for step in 0..60_000_u64 {
            let nanos = step * step * 16;
            let place = place(nanos);
            assert!(place >= before, "{nanos} ns");
            let told = most_at(place);
            assert!(told >= nanos && told - nanos <= (nanos / 1000).max(511), "{nanos}: {told}");
            before = place;
        }
        assert!(place(MOST) < 18_500, "{} places", place(MOST));
    }

    #[test]
    fn what_is_counted_is_seen_by_others_meanwhile() {
        let timings = Timings::new();
        std::thread::scope(|scope| {
            let count = || {
                for micros in 0..100_000 {
                    timings.record(Duration::from_micros(micros % 3_000), 2);
                }
            };
            let counting = [scope.spawn(count), scope.spawn(count)];
            let mut before = 0;
            while !counting.iter().all(|thread| thread.is_finished()) {
                let seen = timings.so_far().packets();
                assert!(seen >= before && seen.is_multiple_of(2), "{seen} after {before}");
                before = seen;
            }
        });
        assert_eq!(timings.so_far().packets(), 400_000, "none is lost where two count");
        assert_eq!(timings.so_far().most(), Duration::from_micros(2_999));
    }
}
