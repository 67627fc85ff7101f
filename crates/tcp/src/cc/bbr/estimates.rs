//! Estimates of the path: minimum round trip, full pipe, round trips.

use std::time::Duration;

use engine::{Rng, Time};

/// Validity of a minimum round trip.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// Growth of the rate in three rounds below which the pipe is full.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;

/// Minimum round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRtt {
    least: Option<Duration>,
    at: Option<Time>,
    /// Number of equally low samples.
    lowest: u64,
}

impl MinRtt {
    pub(super) fn begin(&mut self, now: Time, rtt: Option<Duration>) {
        (self.least, self.at) = (rtt, Some(now));
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.least
    }

    /// Restarts the validity of the minimum round trip.
    pub(super) fn renew(&mut self, now: Time) {
        self.at = Some(now);
    }

    /// Returns whether a sample of the round trip is the lowest so far. Linux requires it to be
    /// lower than all before. With a clock without jitter many are equal, and the n-th of them
    /// counts as the lowest with probability 1/n.
    fn count_lowest(&mut self, rtt: Duration, rng: &mut Rng) -> bool {
        let Some(least) = self.least else { return true };
        if rtt != least {
            return rtt < least;
        }
        self.lowest += 1;
        rng.below(self.lowest) == 0
    }

    /// Takes a sample. Returns whether the previous minimum had expired.
    pub(super) fn update(&mut self, now: Time, rtt: Option<Duration>, rng: &mut Rng) -> bool {
        let known_at = *self.at.get_or_insert(now);
        let is_old = now > known_at + MIN_RTT_WINDOW;
        if let Some(rtt) = rtt
            && (is_old || self.count_lowest(rtt, rng))
        {
            self.lowest = if self.least == Some(rtt) { self.lowest } else { 1 };
            (self.least, self.at) = (Some(rtt), Some(now));
        }
        is_old
    }
}

/// Detector of a full pipe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// Rate at its last growth by a quarter, and rounds since.
    rate: f64,
    rounds: u32,
    is_full: bool,
}

impl FullPipe {
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes the rate at the start of a round.
    pub(super) fn round(&mut self, rate: f64) {
        if self.is_full {
            return;
        }
        if rate >= self.rate * FULL_GROWTH {
            (self.rate, self.rounds) = (rate, 0);
            return;
        }
        self.rounds += 1;
        self.is_full = self.rounds >= FULL_ROUNDS;
    }

    /// Forgets the rate after a timeout.
    pub(super) fn forget_rate(&mut self) {
        self.rate = 0.0;
    }

    /// Restarts after a spurious loss.
    pub(super) fn restart(&mut self) {
        (self.rate, self.rounds) = (0.0, 0);
    }
}

/// Round trips, counted by delivered bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    count: u64,
    /// A round ends when data sent after this many delivered bytes is acknowledged.
    end: u64,
    is_start: bool,
}

impl Rounds {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the last acknowledgment started a round.
    pub(super) fn is_start(&self) -> bool {
        self.is_start
    }

    /// Ends the round when data sent from now on is acknowledged.
    pub(super) fn end_after(&mut self, delivered: u64) {
        self.end = delivered;
    }

    /// Processes an acknowledgment: bytes delivered when the segment was sent, if known, and now.
    pub(super) fn acknowledged(&mut self, prior_delivered: Option<u64>, delivered: u64) {
        self.is_start = prior_delivered.is_some_and(|prior| prior >= self.end);
        if self.is_start {
            self.end = delivered;
            self.count += 1;
        }
    }
}
