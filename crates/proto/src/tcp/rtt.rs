//! The round trip and the retransmission time-out (RFC 6298, RFC 7323 appendix G).

use std::time::Duration;

use super::config::Timeouts;

/// What is known of the round trip.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    timeouts: Timeouts,
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
    latest: Duration,
    /// How often the time-out was doubled.
    backoff: u32,
    /// Time-outs that left it as it is since a sample last came.
    kept: u32,
}

impl Rtt {
    /// With a least time-out above the most, the least counts.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts: Timeouts { max: timeouts.max.max(timeouts.min), ..timeouts },
            smoothed: None,
            variation: Duration::ZERO,
            least: None,
            latest: Duration::ZERO,
            backoff: 0,
            kept: 0,
        }
    }

    /// Learns from one sample, of which about `samples` come in a round trip. It ends the back-off.
    pub(crate) fn sample(&mut self, took: Duration, samples: u64) {
        (self.backoff, self.kept) = (0, 0);
        self.latest = took;
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(took);
            self.variation = took / 2;
            return;
        };
        // With one sample a round trip: 3/4 and 1/4, 7/8 and 1/8. With n the weights are n-th parts.
        let nanos = |duration: Duration| duration.as_nanos() as i128;
        let n = i128::from(samples.max(1));
        let deviation = nanos(smoothed.abs_diff(took));
        let variation = nanos(self.variation);
        self.variation = from_nanos(variation + (deviation - variation) / (4 * n));
        self.smoothed =
            Some(from_nanos(nanos(smoothed) + (nanos(took) - nanos(smoothed)) / (8 * n)));
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    pub(crate) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The retransmission time-out, doubled as often as it ran out.
    pub(crate) fn timeout(&self) -> Duration {
        let base = self.base();
        let doubled = base.checked_mul(1_u32.checked_shl(self.backoff).unwrap_or(u32::MAX));
        doubled.unwrap_or(Duration::MAX).min(self.timeouts.max).max(self.timeouts.min)
    }

    /// The time-out without its back-off.
    pub(crate) fn base(&self) -> Duration {
        let Some(smoothed) = self.smoothed else { return self.timeouts.initial };
        let margin = (self.variation * 4).max(self.timeouts.margin);
        smoothed.saturating_add(margin).clamp(self.timeouts.min, self.timeouts.max)
    }

    /// Doubles the time-out.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(31);
    }

    /// It ran out, and stays as it is for a few times: without a sample it may be too short for any
    /// answer, which none but a longer one can show.
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

    /// The SYN timed out, so there is no sample: the time-out for data is three seconds at least
    /// (RFC 6298 §5.7).
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
    fn the_formulas_of_rfc_6298() {
        let mut rtt = rtt();
        assert_eq!(rtt.timeout(), millis(1000));
        rtt.sample(millis(100), 1);
        // 100 + 4 * 50.
        assert_eq!((rtt.smoothed(), rtt.timeout()), (Some(millis(100)), millis(300)));
        rtt.sample(millis(180), 1);
        // RTTVAR = 3/4 * 50 + 1/4 * 80 = 57.5; SRTT = 7/8 * 100 + 1/8 * 180 = 110.
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(millis(110)), millis(115) / 2));
        assert_eq!(rtt.timeout(), millis(110 + 230));
        assert_eq!(rtt.least(), Some(millis(100)));
    }

    #[test]
    fn it_doubles_up_to_its_bound_and_a_sample_ends_that() {
        let mut rtt = rtt();
        rtt.sample(millis(100), 1);
        for (n, expected) in [600, 1200, 2400].into_iter().enumerate() {
            rtt.back_off();
            assert_eq!(rtt.timeout(), millis(expected), "{n}");
        }
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), millis(60_000));
        (0..100).for_each(|_| rtt.sample(millis(100), 1));
        assert_eq!(rtt.timeout(), millis(200), "the least: 100 + 10 is below it");
    }

    #[test]
    fn it_stays_for_a_few_times_only_unless_samples_come() {
        let mut rtt = rtt();
        rtt.sample(millis(100), 1);
        let kept: Vec<_> = (0..5)
            .map(|_| {
                rtt.keep();
                rtt.timeout()
            })
            .collect();
        assert_eq!(kept, [300, 300, 300, 600, 1200].map(millis));
        rtt.sample(millis(100), 1);
        rtt.keep();
        assert_eq!(rtt.timeout(), rtt.base());
    }

    #[test]
    fn many_samples_weigh_as_much_as_one() {
        let (mut one, mut many) = (rtt(), rtt());
        for rtt in [&mut one, &mut many] {
            rtt.sample(millis(100), 1);
        }
        one.sample(millis(200), 1);
        (0..50).for_each(|_| many.sample(millis(200), 50));
        let (one, many) = (one.smoothed().unwrap(), many.smoothed().unwrap());
        assert!(one.abs_diff(many) < millis(1), "{one:?} {many:?}");
    }

    #[test]
    fn no_bounds_make_it_panic() {
        let bounds = [Duration::ZERO, millis(1), millis(60_000), Duration::MAX];
        for (min, max) in bounds.into_iter().flat_map(|min| bounds.map(|max| (min, max))) {
            let mut rtt = Rtt::new(Timeouts { initial: max, min, max, margin: max });
            for _ in 0..3 {
                rtt.sample(millis(100), 1);
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
        rtt.sample(millis(100), 1);
        assert_eq!(rtt.base(), millis(300));
    }
}
