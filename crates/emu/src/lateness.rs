//! How late packets were.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest lateness that is told apart, in nanoseconds: a minute.
const MOST: u64 = 60_000_000_000;

/// How much later than their logical times packets were handed over, to half a microsecond or three digits.
#[derive(Clone)]
pub struct Lateness(Histogram<u64>);

impl Lateness {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1_000, MOST, 3);
        Self(histogram.expect("from a microsecond to a minute is a range"))
    }

    pub(crate) fn record(&mut self, late: Duration, count: u32) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(MOST);
        self.0.saturating_record_n(nanos.max(1), u64::from(count));
    }

    /// Packets counted.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.0.len()
    }

    /// What the share `quantile` of the packets, from 0 to 1, was not later than.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }

    /// The latest packet's.
    #[must_use]
    pub fn most(&self) -> Duration {
        Duration::from_nanos(self.0.max())
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
        let mut lateness = Lateness::new();
        lateness.record(Duration::from_micros(20), 99);
        lateness.record(Duration::from_hours(1), 1);
        assert_eq!(lateness.packets(), 100);
        let half = lateness.quantile(0.5).as_nanos();
        assert!((19_000..21_000).contains(&half), "{half} ns");
        assert!(lateness.most() >= Duration::from_secs(59), "{:?}", lateness.most());
    }
}
