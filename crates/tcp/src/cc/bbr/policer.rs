//! Detection of a policer that drops traffic above a rate: the long-term rate then replaces the
//! maximum.

use std::time::Duration;

use engine::Time;

use super::super::Ack;

/// Minimum rounds of an interval; four times as many are the maximum.
const ROUNDS_LEAST: u32 = 4;

/// Minimum loss rate in a policer: 50 / 256.
const LOSS_LEAST: f64 = 50.0 / 256.0;

/// Relative difference, or 4 kbit/s, below which the rates of two intervals agree.
const DIFFERENCE_SHARE: f64 = 1.0 / 8.0;
const DIFFERENCE: f64 = 500.0;

/// Rounds for which a detected policer is assumed.
const ROUNDS_BELIEVED: u32 = 48;

/// Minimum length of a usable interval.
const INTERVAL_LEAST: Duration = Duration::from_millis(1);

/// Result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing to do.
    None,
    /// The policer is no longer assumed: measure the rate again.
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Policer {
    /// Bytes lost over the connection, and delivered at the last sample.
    lost: u64,
    delivered: u64,
    is_sampling: bool,
    rounds: u32,
    began: Time,
    began_lost: u64,
    began_delivered: u64,
    /// Rate of the previous interval.
    former: Option<f64>,
    /// Rate of the policer in bytes per second.
    rate: Option<f64>,
}

impl Policer {
    /// Rate of the policer, if detected.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Resets everything except the counters.
    pub(super) fn restart(&mut self) {
        *self = Self { lost: self.lost, delivered: self.delivered, ..Self::default() };
    }

    fn begin_interval(&mut self, now: Time) {
        (self.began, self.began_lost, self.began_delivered) = (now, self.lost, self.delivered);
        self.rounds = 0;
    }

    /// Counts a timeout as the end of a round with a loss.
    pub(super) fn timed_out(&mut self, now: Time) {
        self.step(now, true, false, true, false);
    }

    pub(super) fn sample(
        &mut self,
        now: Time,
        ack: &Ack,
        app_limited: bool,
        is_round: bool,
        in_cycle: bool,
    ) -> Finding {
        // Losses reported by this ACK belong to the interval that it ends, not to one that it
        // starts.
        self.delivered = ack.delivered;
        self.lost += ack.lost;
        self.step(now, ack.lost > 0, app_limited, is_round, in_cycle)
    }

    fn step(
        &mut self,
        now: Time,
        has_lost: bool,
        app_limited: bool,
        is_round: bool,
        in_cycle: bool,
    ) -> Finding {
        if self.rate.is_some() {
            if in_cycle && is_round {
                self.rounds += 1;
                if self.rounds >= ROUNDS_BELIEVED {
                    self.restart();
                    return Finding::Over;
                }
            }
            return Finding::None;
        }
        if !self.is_sampling {
            // The policer's bucket is empty at the first loss and not before.
            if !has_lost {
                return Finding::None;
            }
            self.begin_interval(now);
            self.is_sampling = true;
        }
        if app_limited {
            self.restart();
            return Finding::None;
        }
        self.rounds += u32::from(is_round);
        if self.rounds > 4 * ROUNDS_LEAST {
            self.restart();
        } else if self.rounds >= ROUNDS_LEAST && has_lost {
            self.end_interval(now);
        }
        Finding::None
    }

    fn end_interval(&mut self, now: Time) {
        let lost = (self.lost - self.began_lost) as f64;
        let delivered = (self.delivered - self.began_delivered) as f64;
        let took = now.since(self.began);
        if delivered == 0.0 || lost < LOSS_LEAST * delivered || took < INTERVAL_LEAST {
            return;
        }
        let rate = delivered / took.as_secs_f64();
        if let Some(former) = self.former {
            let difference = (rate - former).abs();
            if difference <= DIFFERENCE_SHARE * former || difference <= DIFFERENCE {
                self.rate = Some(f64::midpoint(rate, former));
                self.rounds = 0;
                return;
            }
        }
        self.former = Some(rate);
        self.begin_interval(now);
    }
}
