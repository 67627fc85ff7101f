//! Finds out whether a policer drops what exceeds a rate: then the rate over a longer time counts, not
//! the greatest.

use std::time::Duration;

use engine::Time;

use super::super::Ack;

/// An interval has so many rounds at least, and four times as many at most.
const ROUNDS_LEAST: u32 = 4;

/// The share of what was delivered that is lost in a policer, at least: 50 / 256.
const LOSS_LEAST: f64 = 50.0 / 256.0;

/// Two intervals agree if their rates differ by an eighth, or by 4 kbit/s.
const DIFFERENCE_SHARE: f64 = 1.0 / 8.0;
const DIFFERENCE: f64 = 500.0;

/// Rounds for which a policer is believed in.
const ROUNDS_BELIEVED: u32 = 48;

/// The shortest interval that says something.
const INTERVAL_LEAST: Duration = Duration::from_millis(1);

/// What a sample told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing to do.
    None,
    /// The policer is no longer believed in: look for the rate anew.
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Policer {
    /// Bytes lost over the connection, and delivered as of the last sample.
    lost: u64,
    delivered: u64,
    is_sampling: bool,
    rounds: u32,
    began: Time,
    began_lost: u64,
    began_delivered: u64,
    /// The rate of the interval before.
    former: Option<f64>,
    /// The policer's rate in bytes a second.
    rate: Option<f64>,
}

impl Policer {
    /// The policer's rate, if there is one.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Forgets all but the counters.
    pub(super) fn restart(&mut self) {
        *self = Self { lost: self.lost, delivered: self.delivered, ..Self::default() };
    }

    fn begin_interval(&mut self, now: Time) {
        (self.began, self.began_lost, self.began_delivered) = (now, self.lost, self.delivered);
        self.rounds = 0;
    }

    /// A time-out counts as the end of a round with a loss.
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
        // What this ACK reports as lost belongs to the interval that ends with it, and not to one that
        // begins with it.
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
