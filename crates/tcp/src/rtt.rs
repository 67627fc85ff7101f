//! The round trip and the retransmission timeout (RFC 6298), as Linux estimates them.
//!
//! Every acknowledgment is a sample with the weights of RFC 6298, however many arrive per round
//! trip: the estimate follows a growing queue. The variation rises with each sample and falls once
//! per round trip (`tcp_rtt_estimator`), so that many equal samples do not reduce it to zero.

use std::time::Duration;

use super::config::Timeouts;

/// Round trip estimate.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    timeouts: Timeouts,
    smoothed: Option<Duration>,
    /// Four times the mean deviation, and its maximum in this round trip.
    deviation: Duration,
    deviation_most: Duration,
    /// Timeout beyond the smoothed round trip.
    allowance: Duration,
    /// Sequence number whose acknowledgment ends the round trip.
    round_end: u64,
    least: Option<Duration>,
    /// Number of doublings of the timeout.
    backoff: u32,
    /// Timeouts without doubling since the last sample.
    kept: u32,
}

impl Rtt {
    /// Creates an estimate. If the minimum timeout exceeds the maximum, the minimum applies.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts: Timeouts { max: timeouts.max.max(timeouts.min), ..timeouts },
            smoothed: None,
            deviation: Duration::ZERO,
            deviation_most: Duration::ZERO,
            allowance: Duration::ZERO,
            round_end: 0,
            least: None,
            backoff: 0,
            kept: 0,
        }
    }

    /// Takes a sample from an acknowledgment: `una` is the first unacknowledged byte, `nxt` the
    /// next to send. It ends the back-off.
    pub(crate) fn sample(&mut self, took: Duration, una: u64, nxt: u64) {
        (self.backoff, self.kept) = (0, 0);
        self.note_least(took);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(took);
            self.deviation = took * 2;
            self.allowance = self.deviation.max(self.timeouts.margin);
            (self.deviation_most, self.round_end) = (self.allowance, nxt);
            return;
        };
        let nanos = |duration: Duration| duration.as_nanos() as i128;
        let error = nanos(took) - nanos(smoothed);
        self.smoothed = Some(from_nanos(nanos(smoothed) + error / 8));
        let deviation = nanos(self.deviation);
        let change = error.abs() - deviation / 4;
        // A falling round trip must not lengthen the timeout.
        let change = if error < 0 && change > 0 { change / 8 } else { change };
        self.deviation = from_nanos(deviation + change);
        self.deviation_most = self.deviation_most.max(self.deviation);
        self.allowance = self.allowance.max(self.deviation_most);
        if una > self.round_end {
            self.allowance -= self.allowance.saturating_sub(self.deviation_most) / 4;
            (self.deviation_most, self.round_end) = (self.timeouts.margin, nxt);
        }
    }

    /// Takes a sample for the minimum round trip only.
    pub(crate) fn note_least(&mut self, took: Duration) {
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Mean deviation of the samples (RTTVAR).
    pub(crate) fn variation(&self) -> Duration {
        self.deviation / 4
    }

    pub(crate) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Retransmission timeout, with its doublings.
    pub(crate) fn timeout(&self) -> Duration {
        let base = self.base();
        let doubled = base.checked_mul(1_u32.checked_shl(self.backoff).unwrap_or(u32::MAX));
        doubled.unwrap_or(Duration::MAX).min(self.timeouts.max).max(self.timeouts.min)
    }

    /// Timeout without back-off.
    pub(crate) fn base(&self) -> Duration {
        let Some(smoothed) = self.smoothed else { return self.timeouts.initial };
        smoothed.saturating_add(self.allowance).clamp(self.timeouts.min, self.timeouts.max)
    }

    /// Doubles the timeout.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(31);
    }

    /// Keeps an expired timeout a few times: without a sample it may be too short for any reply,
    /// which only a longer one can show.
    pub(crate) fn keep(&mut self) {
        const TIMES: u32 = 3;
        self.kept = self.kept.saturating_add(1);
        if self.kept > TIMES {
            self.back_off();
        }
    }

    pub(crate) fn end_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Sets the data timeout to at least three seconds after a timeout of the SYN, which gives no
    /// sample (RFC 6298 §5.7).
    pub(crate) fn syn_timed_out(&mut self) {
        if self.smoothed.is_none() {
            self.timeouts.initial = self.timeouts.initial.max(Duration::from_secs(3));
        }
    }
}

fn from_nanos(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn rtt() -> Rtt {
        Rtt::new(Timeouts {
            initial: millis(1000),
            min: millis(200),
            max: millis(60_000),
            margin: millis(10),
        })
    }

    #[test]
    fn estimator_matches_rfc_6298() {
        let mut rtt = rtt();
        assert_eq!(rtt.timeout(), millis(1000));
        rtt.sample(millis(100), 1, 1);
        // 100 + 4 * 50.
        assert_eq!((rtt.smoothed(), rtt.timeout()), (Some(millis(100)), millis(300)));
        rtt.sample(millis(180), 1, 1);
        // RTTVAR = 3/4 * 50 + 1/4 * 80 = 57.5; SRTT = 7/8 * 100 + 1/8 * 180 = 110.
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(millis(110)), millis(115) / 2));
        assert_eq!(rtt.timeout(), millis(110 + 230));
        assert_eq!(rtt.least(), Some(millis(100)));
    }

    #[test]
    fn timeout_doubles_to_its_bound_until_a_sample() {
        let mut rtt = rtt();
        rtt.sample(millis(100), 1, 1);
        for (n, expected) in [600, 1200, 2400].into_iter().enumerate() {
            rtt.back_off();
            assert_eq!(rtt.timeout(), millis(expected), "{n}");
        }
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), millis(60_000));
        (1..=100).for_each(|n| rtt.sample(millis(100), n + 1, n + 1));
        assert_eq!(rtt.timeout(), millis(200), "the least: 100 + 10 is below it");
    }

    #[test]
    fn timeout_is_kept_a_few_times_without_samples() {
        let mut rtt = rtt();
        rtt.sample(millis(100), 1, 1);
        let kept: Vec<_> = (0..5)
            .map(|_| {
                rtt.keep();
                rtt.timeout()
            })
            .collect();
        assert_eq!(kept, [300, 300, 300, 600, 1200].map(millis));
        rtt.sample(millis(100), 1, 1);
        rtt.keep();
        assert_eq!(rtt.timeout(), rtt.base());
    }

    #[test]
    fn every_sample_weighs_an_eighth_however_many_come() {
        let mut rtt = rtt();
        rtt.sample(millis(600), 1, 100);
        // A queue grows by 1 ms with each of 300 segments of one round trip.
        (1..=300).for_each(|n| rtt.sample(millis(600 + n), 1, 100));
        let smoothed = rtt.smoothed().expect("there were samples");
        assert!(smoothed > millis(890), "{smoothed:?}");
        assert!(rtt.timeout() > millis(900) + rtt.timeouts.margin, "{:?}", rtt.timeout());
    }

    #[test]
    fn the_allowance_falls_once_a_round_trip() {
        let mut rtt = Rtt::new(Timeouts { margin: millis(200), ..rtt().timeouts });
        rtt.sample(millis(600), 1, 100);
        assert_eq!(rtt.timeout(), millis(1800), "three round trips after the first sample");
        (0..50).for_each(|_| rtt.sample(millis(600), 1, 100));
        assert_eq!(rtt.timeout(), millis(1800), "it is the same round trip");
        for round in 1..40 {
            rtt.sample(millis(600), 100 * round + 1, 100 * round + 100);
        }
        let timeout = rtt.timeout();
        assert!(timeout >= millis(800) && timeout < millis(805), "{timeout:?}: 200 ms at least");
    }

    #[test]
    fn extreme_bounds_never_panic() {
        let bounds = [Duration::ZERO, millis(1), millis(60_000), Duration::MAX];
        for (min, max) in bounds.into_iter().flat_map(|min| bounds.map(|max| (min, max))) {
            let mut rtt = Rtt::new(Timeouts { initial: max, min, max, margin: max });
            for _ in 0..3 {
                rtt.sample(millis(100), 1, 1);
                rtt.back_off();
                let timeout = rtt.timeout();
                assert!(min <= timeout && timeout <= min.max(max), "{min:?} {max:?} {timeout:?}");
            }
        }
    }

    #[test]
    fn a_lost_syn_makes_three_seconds() {
        let mut rtt = rtt();
        rtt.syn_timed_out();
        assert_eq!(rtt.base(), millis(3000));
        rtt.sample(millis(100), 1, 1);
        assert_eq!(rtt.base(), millis(300));
    }
}
