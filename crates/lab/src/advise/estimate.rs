//! Estimated times of files too long to simulate, derived from shorter files.
//!
//! A transfer takes the bound of its file and an overhead: headers, round trips, retransmissions.
//! The bound of the whole file is known, so only the overhead is estimated, from files of three
//! sizes. It grows in proportion to the file (headers, a small window), with its logarithm (rounds
//! of retransmission) or not at all (connection setup). The interval spans all three, the noise of
//! the runs, and the rounds that a longer file may need.

use crate::stats::Summary;
use crate::theory;

/// Runs with files of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Size of the file in bytes.
    pub(super) size: u64,
    /// Seconds to delivery.
    pub(super) delivered: Summary,
    /// Runs.
    pub(super) runs: usize,
    /// Mean of their bounds, in seconds.
    pub(super) bound_s: f64,
}

impl Sample {
    fn overhead(&self) -> f64 {
        self.delivered.mean - self.bound_s
    }
}

/// Properties of the path, and lower bounds of the whole file's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Rate of the narrowest hop.
    pub(super) rate_bps: Option<u64>,
    /// Rate of the return link, if it is thin.
    pub(super) return_bps: Option<u64>,
    /// One-way light time in seconds.
    pub(super) delay_s: f64,
    /// Round-trip light time in seconds.
    pub(super) rtt_s: f64,
    /// Probability of losing a packet or its reply; `None` if losses are correlated.
    pub(super) loss: Option<f64>,
    /// Mean share of lost packets on the way to the receiver, correlated or not.
    pub(super) loss_there: f64,
    /// Bytes of the file per packet.
    pub(super) payload: u64,
    /// Bound of the whole file in seconds; `None` if it cannot arrive, with some seed.
    pub(super) bound_s: Option<f64>,
    /// Whether the file can arrive.
    pub(super) is_possible: bool,
    /// Bound without losses in seconds: no run is faster.
    pub(super) floor_s: f64,
}

/// Estimated time of a file that was not simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean_s: f64,
    pub(super) low_s: f64,
    /// `None` where shorter files give no upper limit.
    pub(super) high_s: Option<f64>,
    /// Time with the overhead's slowest growth between two sizes. Transports are ordered by it,
    /// because extrapolation multiplies the noise of a slope.
    pub(super) likely_s: f64,
    /// Time allowed by the slowest growth of the overhead and the noise of the runs.
    pub(super) promise_s: f64,
}

/// Minimum overhead of a longer file, as a share of the smallest one measured.
const LOW_SHARE: f64 = 0.9;
/// Losses that a congestion control must have had in the shorter files.
const LOSSES_MIN: f64 = 20.0;
/// Round trips until the end of a congestion control's slow start.
const ROUNDS_MIN: f64 = 30.0;
/// Factor on a congestion control's overhead per byte, since its rate varies over minutes.
const CONTROL_MARGIN: f64 = 1.5;

/// Estimates the time of a file of `size` bytes whose bound is `bound_s`, from files of three
/// sizes, the smallest first.
pub(super) fn estimate(
    samples: &[Sample; 3],
    size: u64,
    bound_s: f64,
    facts: &Facts,
    is_controlled: bool,
) -> Estimate {
    let [small, middle, large] = samples;
    let rest = size.saturating_sub(large.size) as f64;
    let slope = |from: &Sample, to: &Sample| {
        (to.overhead() - from.overhead()) / (to.size - from.size).max(1) as f64
    };
    let slopes = [slope(small, middle), slope(middle, large), slope(small, large)];
    let [first, second, all] = slopes;
    // The range of a few runs is a conservative estimate of their deviation.
    let range = samples.iter().map(|s| s.delivered.max - s.delivered.min).fold(0.0, f64::max);
    let noise = 3.0 * range / (large.runs.max(1) as f64).sqrt();
    let noise_slope = std::f64::consts::SQRT_2 * noise / (large.size - small.size).max(1) as f64;
    let overhead = large.overhead().max(0.0);
    let more = if second < 0.7 * first {
        // The overhead grows ever more slowly: by the same amount for each doubling.
        let doublings = (size as f64 / large.size.max(1) as f64).log2();
        (large.overhead() - middle.overhead()).max(0.0) * doublings
    } else {
        all.max(0.0) * rest
    };
    let least_overhead = samples.iter().map(Sample::overhead).fold(f64::INFINITY, f64::min);
    let low_s = if is_controlled {
        bound_s
    } else {
        bound_s + (LOW_SHARE * least_overhead - noise).max(0.0)
    };
    let mean_s = (bound_s + overhead + more).max(low_s);
    let least = slopes.into_iter().fold(f64::INFINITY, f64::min);
    let likely_s = bound_s + overhead + least.max(0.0) * rest;
    let promise_s = bound_s + (overhead - noise).max(0.0) + (least - noise_slope).max(0.0) * rest;
    let packets = |size: u64| size.div_ceil(facts.payload.max(1)) as f64;
    let high_s = facts.loss.filter(|p| *p < 1.0).and_then(|p| {
        let (observed, expected) = (p * packets(large.size), p * packets(size));
        let is_steady = large.delivered.min >= ROUNDS_MIN * facts.rtt_s
            && (expected < 0.01 || observed >= LOSSES_MIN);
        let margin = match is_controlled {
            false => 1.0,
            true if is_steady => CONTROL_MARGIN,
            true => return None,
        };
        let steepest = slopes.into_iter().fold(0.0, f64::max) * margin;
        let rounds = |size| theory::expected_rounds(packets(size), p);
        let later = facts.rtt_s * (1.0 + rounds(size) - rounds(large.size));
        let high = bound_s + overhead + (steepest + noise_slope) * rest + noise + later;
        Some(high.max(mean_s))
    });
    Estimate { mean_s, low_s, high_s, likely_s, promise_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(size: u64, bound_s: f64, times: &[f64]) -> Sample {
        let delivered = Summary::from_samples(times).expect("there are times");
        Sample { size, delivered, runs: times.len(), bound_s }
    }

    /// Samples of 1, 2 and 4 MB over 8 Mbit/s with this overhead, in seconds.
    fn samples(overhead: impl Fn(f64) -> f64) -> [Sample; 3] {
        [1, 2, 4].map(|mb| {
            let bound = f64::from(mb);
            sample(u64::from(mb as u32) * 1_000_000, bound, &[bound + overhead(bound); 2])
        })
    }

    const CLEAR: Facts = Facts {
        rate_bps: Some(8_000_000),
        return_bps: None,
        delay_s: 0.05,
        rtt_s: 0.1,
        loss: Some(0.0),
        loss_there: 0.0,
        payload: 1000,
        is_possible: true,
        bound_s: None,
        floor_s: 0.0,
    };

    #[test]
    fn overhead_that_grows_with_the_file_is_drawn_on() {
        let found = estimate(&samples(|mb| 0.5 + 0.02 * mb), 400_000_000, 400.0, &CLEAR, false);
        assert!((found.mean_s - 408.5).abs() < 1e-6, "{found:?}");
        assert!((found.promise_s - 408.5).abs() < 1e-6, "{found:?}");
        assert!(found.low_s >= 400.4 && found.high_s.is_some_and(|high| high >= 408.5));
    }

    #[test]
    fn overhead_that_grows_with_each_doubling_stays_small() {
        let found = estimate(&samples(|mb| mb.log2()), 1_024_000_000, 1024.0, &CLEAR, false);
        // Two seconds at four MB, and ten seconds eight doublings later.
        assert!((found.mean_s - 1034.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn estimates_are_never_faster_than_the_bound() {
        let found = estimate(&samples(|mb| 0.5 - 0.1 * mb), 400_000_000, 400.0, &CLEAR, false);
        assert!(found.low_s >= 400.0 && found.mean_s >= found.low_s, "{found:?}");
    }

    #[test]
    fn a_congestion_control_that_met_no_loss_has_no_upper_limit() {
        let lossy = Facts { loss: Some(1e-5), ..CLEAR };
        let found = estimate(&samples(|_| 0.5), 400_000_000, 400.0, &lossy, true);
        assert_eq!((found.low_s, found.high_s), (400.0, None));
        let met = Facts { loss: Some(1e-2), ..CLEAR };
        let found = estimate(&samples(|mb| 0.5 + mb), 400_000_000, 400.0, &met, true);
        assert!(found.high_s.is_some_and(|high| high > 1.4 * 400.0), "{found:?}");
    }
}
