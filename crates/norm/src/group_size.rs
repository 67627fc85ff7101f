//! Estimate of a group's size from the delay of its replies to probes (RFC 5740 §5.5.4).
//!
//! Each receiver waits at random before it replies to a probe; the more receivers, the shorter the
//! first wait. With `F` the share of waits that are shorter, `-ln(1 - F)` of the first wait is
//! distributed exponentially around `1 / N`. `N` is therefore the number of rounds divided by the
//! sum of these values, however many replies are suppressed.

use std::time::Duration;

use engine::Time;

/// Smallest size that messages can express, assumed at first.
pub(crate) const LEAST: u32 = 10;

/// Share of a receiver's wait that depends on its rate (RFC 5740 §5.5.2.2).
pub(crate) const BIASED: f64 = 0.25;

/// Factor by which a round's weight shrinks each round. Sizes are announced in steps of 2 and 5:
/// few rounds suffice.
const KEPT: f64 = 0.7;

/// Estimated group size.
#[derive(Debug)]
pub(crate) struct GroupSize {
    probe: Option<Probe>,
    rounds: f64,
    sum: f64,
}

/// Probe, and the distribution of the waits for replies to it.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sequence: u16,
    sent: Time,
    most: Duration,
    group: u32,
    /// Shortest wait so far.
    first: Option<Duration>,
    /// Whether receivers that wait for the previous probe may reply to this one.
    is_blurred: bool,
}

impl GroupSize {
    pub(crate) fn new() -> Self {
        // One round of a group of the smallest size.
        Self { probe: None, rounds: 1.0, sum: 1.0 / f64::from(LEAST) }
    }

    /// Processes the sending of a probe, to which receivers reply after at most `most`, as in a
    /// group of this size. Evaluates the previous probe; a round without replies is ignored.
    pub(crate) fn probed(&mut self, sequence: u16, sent: Time, most: Duration, group: u32) {
        let before = self.probe.take();
        if let Some(probe) = before.filter(|probe| !probe.is_blurred)
            && let Some(first) = probe.first
        {
            self.rounds = self.rounds * KEPT + 1.0;
            self.sum = self.sum * KEPT + rarity(first, probe.most, probe.group);
        }
        let is_blurred = before.is_some_and(|probe| sent.since(probe.sent) < probe.most);
        self.probe = Some(Probe { sequence, sent, most, group, first: None, is_blurred });
    }

    /// Processes a reply to a probe that spent `way` on the path, both ways. A fixed part
    /// ([`BIASED`]) of the wait scales by `bias` with the receiver's rate.
    pub(crate) fn answered(&mut self, now: Time, sequence: u16, way: Duration, bias: f64) {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.sequence == sequence) else {
            return;
        };
        let fixed = probe.most.mul_f64(BIASED * bias.clamp(0.0, 1.0));
        let waited = now.since(probe.sent).saturating_sub(way).saturating_sub(fixed);
        let waited = waited.div_f64(1.0 - BIASED);
        probe.first = Some(probe.first.map_or(waited, |first| first.min(waited)));
    }

    /// Estimated number of receivers, of which `received` reported.
    pub(crate) fn estimate(&self, received: u32) -> u32 {
        let judged = self.rounds / self.sum;
        (judged as u32).max(received).max(LEAST)
    }
}

/// `-ln(1 - F)` of a wait drawn by [`backoff`](super::grtt::backoff).
fn rarity(wait: Duration, most: Duration, group: u32) -> f64 {
    let most = most.as_secs_f64();
    if most <= 0.0 {
        return 1.0 / f64::from(LEAST);
    }
    let lambda = libm::log(f64::from(group).max(1.0)) + 1.0;
    let share = libm::expm1(lambda * (wait.as_secs_f64() / most).min(1.0)) / libm::expm1(lambda);
    // Clocks have steps, and no wait exceeds the maximum.
    -libm::log1p(-share.clamp(1e-9, 1.0 - 1e-9))
}

#[cfg(test)]
mod tests {
    use engine::Rng;

    use super::super::grtt::backoff;
    use super::*;

    #[test]
    fn the_order_of_magnitude_is_found() {
        let most = Duration::from_secs(4);
        for size in [1_u32, 3, 30, 300, 3_000, 30_000] {
            for seed in 0..5 {
                let mut rng = Rng::new(seed, "group");
                let mut group = GroupSize::new();
                let mut announced = LEAST;
                for round in 0..20 {
                    let sent = Time::from_secs(100 * round);
                    group.probed(round as u16, sent, most, announced);
                    let way = Duration::from_millis(500);
                    for _ in 0..size {
                        let wait = backoff(&mut rng, most, f64::from(announced));
                        let wait = wait.mul_f64(0.75) + most.mul_f64(0.25 * 0.4);
                        group.answered(sent + way + wait, round as u16, way, 0.4);
                    }
                    announced = crate::message::group_size(crate::message::quantise_group_size(
                        group.estimate(0),
                    ));
                }
                let found = f64::from(announced) / f64::from(size.max(LEAST));
                assert!((0.3..8.0).contains(&found), "{size}: {announced}");
            }
        }
    }

    #[test]
    fn silence_and_late_replies_leave_the_estimate() {
        let mut group = GroupSize::new();
        let before = group.estimate(0);
        let mut blurred = GroupSize::new();
        blurred.probed(99, Time::ZERO, Duration::from_secs(10), 10);
        for round in 0..30 {
            group.probed(round, Time::from_secs(u64::from(round)), Duration::from_secs(1), 100);
            group.answered(Time::from_secs(100), round.wrapping_sub(1), Duration::ZERO, 0.0);
            // Receivers that wait for the previous probe have hardly waited for this one.
            let often = Duration::from_secs(10);
            blurred.probed(round, Time::from_secs(u64::from(round)), often, 10);
            blurred.answered(Time::from_secs(u64::from(round)), round, Duration::ZERO, 0.0);
        }
        assert_eq!((before, group.estimate(0), group.estimate(70)), (LEAST, LEAST, 70));
        assert_eq!(blurred.estimate(0), LEAST);
    }
}
