//! Greatest round trip of a group as its sender estimates it, and the random back-off that keeps
//! receivers from sending at once (RFC 5740 §2.4, §5.4; RFC 5401 §4.2).

use std::time::Duration;

use engine::Rng;

use crate::message;

/// Consecutive probe rounds with a smaller greatest round trip before the estimate decreases.
const DECREASE_AFTER: u32 = 3;

/// Largest ratio of an accepted sample to the estimate. Larger samples are clipped and followed in
/// later rounds: one odd reply must not slow down a group for long.
const RISE_MAX: u32 = 10;

/// Round trip sample that is always accepted, because a busy host may reply this late.
const RISE_FREE: Duration = Duration::from_millis(100);

/// Greatest round trip estimate of a sender.
#[derive(Debug)]
pub(crate) struct Grtt {
    measured: Duration,
    /// Largest sample of the current round of probes.
    peak: Option<Duration>,
    /// Consecutive rounds with smaller samples.
    smaller: u32,
    /// Largest sample accepted in the current round of probes.
    believed: Duration,
    /// Whether there was a sample: the estimate is no guess.
    is_measured: bool,
    /// Transmission time of one segment at the rate: the lower limit.
    least: Duration,
    most: Duration,
    /// Quantised estimate, cached for every message, and its value.
    announced: (u8, Duration),
}

impl Grtt {
    pub(crate) fn new(initial: Duration, least: Duration, most: Duration) -> Self {
        let announced = (0, Duration::ZERO);
        let (measured, believed) = (initial, most);
        let mut grtt = Self {
            measured,
            peak: None,
            smaller: 0,
            believed,
            is_measured: false,
            least,
            most,
            announced,
        };
        grtt.round_begins();
        grtt.update_announced();
        grtt
    }

    /// Fixes the limit of accepted samples for the round of probes that begins.
    fn round_begins(&mut self) {
        let now = self.measured.max(self.least);
        self.believed = now.saturating_mul(RISE_MAX).max(RISE_FREE).min(self.most);
    }

    /// Sets the transmission time of one segment.
    pub(crate) fn set_least(&mut self, least: Duration) {
        if self.least != least {
            self.least = least;
            self.update_announced();
        }
    }

    /// Quantised estimate as messages carry it.
    pub(crate) fn quantised(&self) -> u8 {
        self.announced.0
    }

    /// Updates the quantised estimate.
    fn update_announced(&mut self) {
        let code = message::quantise_rtt(self.measured.max(self.least).min(self.most));
        self.announced = (code, message::rtt(code));
    }

    /// Value of the quantised estimate: timers of both sides are multiples of it.
    pub(crate) fn advertised(&self) -> Duration {
        self.announced.1
    }

    /// Processes a sample. A larger one raises the estimate at once, by three quarters of the
    /// difference. Returns the accepted part.
    ///
    /// 0.25 s and a sample of 2.5 s: 0.25 · 0.25 + 0.75 · 2.5 = 1.9375 s.
    pub(crate) fn answered(&mut self, took: Duration) -> Duration {
        self.is_measured = true;
        let took = took.min(self.believed);
        if self.peak.is_some_and(|peak| took <= peak) {
            return took;
        }
        self.peak = Some(took);
        if took > self.measured {
            self.measured = self.measured / 4 + took * 3 / 4;
            self.smaller = 0;
            self.update_announced();
        }
        took
    }

    /// Sets the estimate to the sample of the only receiver.
    pub(crate) fn believe(&mut self, took: Duration) {
        self.measured = self.measured / 4 + took.min(self.believed) * 3 / 4;
        self.update_announced();
    }

    /// Whether a sample is so much larger than former ones that it would be clipped.
    pub(crate) fn is_odd(&self, took: Duration) -> bool {
        self.is_measured && took > self.believed
    }

    /// Decreases the estimate step by step (RFC 4654 §3.2), once a greatest round trip, as often as
    /// the reference implementation does.
    pub(crate) fn decay(&mut self) {
        if let Some(peak) = self.peak.take() {
            self.measured = self.measured.min(peak.max(self.measured * 9 / 10));
        }
        self.round_begins();
        self.update_announced();
    }

    /// Ends a round of probes. The estimate decreases slowly, as the farthest receivers may just
    /// not have been received.
    pub(crate) fn round_over(&mut self) {
        self.learn_smaller();
        self.round_begins();
        self.update_announced();
    }

    fn learn_smaller(&mut self) {
        let Some(peak) = self.peak.take() else { return };
        if peak >= self.measured {
            self.smaller = 0;
            return;
        }
        self.smaller += 1;
        if self.smaller > DECREASE_AFTER {
            self.measured = (self.measured + peak) / 2;
        }
    }
}

/// Random wait of up to `most` for one of `group` receivers. Its distribution lets few waits end
/// before the first reply can have suppressed them (RFC 5401 §4.2).
pub(crate) fn backoff(rng: &mut Rng, most: Duration, group: f64) -> Duration {
    let most = most.as_secs_f64();
    if most <= 0.0 {
        return Duration::ZERO;
    }
    let lambda = libm::log(group.max(1.0)) + 1.0;
    let span = libm::exp(lambda) - 1.0;
    let x = rng.unit() * lambda / most + lambda / (most * span);
    let wait = most / lambda * libm::log(x * span * most / lambda);
    Duration::from_secs_f64(wait.clamp(0.0, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn grtt_grows_as_in_the_captures_of_2011() {
        // Advertised values of the first paper's run with a round trip of 2.5 s.
        let mut grtt = Grtt::new(Duration::from_millis(250), Duration::ZERO, 10 * SECOND);
        let mut found = Vec::new();
        for _ in 0..4 {
            grtt.answered(Duration::from_millis(2500));
            grtt.round_over();
            found.push(grtt.quantised());
        }
        assert_eq!(found, [0xae, 0xb1, 0xb1, 0xb2]);
    }

    #[test]
    fn grtt_shrinks_only_after_several_rounds() {
        let mut grtt = Grtt::new(SECOND, Duration::ZERO, 10 * SECOND);
        let before = grtt.quantised();
        for round in 0..5 {
            grtt.answered(SECOND / 10);
            grtt.round_over();
            assert_eq!(grtt.quantised() == before, round < DECREASE_AFTER, "{round}");
        }
        for _ in 0..10 {
            grtt.round_over();
        }
        assert!(grtt.advertised() > SECOND / 4, "rounds without an answer say nothing");
    }

    #[test]
    fn single_outliers_are_limited() {
        let before = Duration::from_millis(25);
        let mut grtt = Grtt::new(before, Duration::ZERO, 1000 * SECOND);
        (0..5).for_each(|_| assert_eq!(grtt.answered(900 * SECOND), before * 10));
        assert!(grtt.advertised() < before * 10, "{:?}", grtt.advertised());
        // A larger round trip that is real is learnt within some rounds.
        let mut rounds = 0;
        while grtt.advertised() < 800 * SECOND {
            grtt.answered(900 * SECOND);
            grtt.round_over();
            rounds += 1;
        }
        assert!((4..8).contains(&rounds), "{rounds}");
    }

    #[test]
    fn only_samples_beside_usual_ones_are_odd() {
        let mut grtt = Grtt::new(SECOND / 2, Duration::ZERO, 1000 * SECOND);
        assert!(!grtt.is_odd(650 * SECOND), "it may be far away");
        grtt.answered(SECOND / 2);
        assert!(grtt.is_odd(650 * SECOND) && !grtt.is_odd(4 * SECOND));
    }

    #[test]
    fn few_of_a_large_group_are_early() {
        let mut rng = Rng::new(1, "backoff");
        let waits: Vec<_> = (0..10_000).map(|_| backoff(&mut rng, 4 * SECOND, 1e4)).collect();
        let early = waits.iter().filter(|wait| **wait < SECOND).count();
        // (e^(lambda / 4) - 1) / (e^lambda - 1) with lambda = ln(10,000) + 1 is 0.00044.
        assert!((1..=15).contains(&early), "{early}");
        assert!(waits.iter().all(|wait| *wait <= 4 * SECOND));
        assert_eq!(backoff(&mut rng, Duration::ZERO, 1e4), Duration::ZERO);
    }
}
