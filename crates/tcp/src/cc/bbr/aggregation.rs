//! Excess of acknowledged bytes over the path's rate: hosts and links that aggregate ACKs leave
//! pauses, in which the window must not run dry.

use engine::Time;

/// Rounds after which the older of two maxima is forgotten.
const ROUNDS: u32 = 5;

/// Longest pause provided for, in seconds.
const PAUSE_MOST: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct Aggregation {
    /// Start of the time in which ACKs exceed the rate, and bytes acknowledged in it.
    since: Time,
    acked: u64,
    /// Largest excess of the current and the previous rounds.
    excess: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    pub(super) fn restart(&mut self, now: Time) {
        (self.since, self.acked) = (now, 0);
    }

    pub(super) fn update(&mut self, now: Time, acked: u64, rate: f64, is_round: bool, cwnd: u64) {
        if acked == 0 {
            return;
        }
        if is_round {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.excess = [0, self.excess[0]];
            }
        }
        let mut expected = (rate * now.since(self.since).as_secs_f64()) as u64;
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked += acked;
        let excess = (self.acked - expected).min(cwnd);
        self.excess[0] = self.excess[0].max(excess);
    }

    /// Additional bytes to keep in flight.
    pub(super) fn extra(&self, rate: f64) -> u64 {
        self.excess[0].max(self.excess[1]).min((rate * PAUSE_MOST) as u64)
    }
}
