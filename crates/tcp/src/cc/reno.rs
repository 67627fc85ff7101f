//! Tahoe, Reno and NewReno (RFC 5681). They differ in the end of a recovery, which is up to the
//! connection.

use engine::Time;

use super::window::Window;
use super::{Ack, Congestion, Control, Idle, Recovery, Sent, Timeout};

/// Counting of acknowledgments for growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// One segment per ACK, for any acknowledged length (RFC 2581, kernels before 2006): delayed
    /// ACKs halve the growth.
    Acks,
    /// Acknowledged bytes, in slow start at most `limit` segments per ACK (RFC 3465's L; RFC 5681
    /// allows 1).
    Bytes {
        /// Segments per ACK.
        limit: u64,
    },
}

impl Default for Counting {
    fn default() -> Self {
        Self::Bytes { limit: 2 }
    }
}

impl Counting {
    /// Bytes counted for this ACK in slow start.
    pub(super) fn slow_start(self, ack: &Ack, mss: u64) -> u64 {
        match self {
            Self::Acks => {
                if ack.acked > 0 {
                    mss
                } else {
                    0
                }
            }
            Self::Bytes { limit } => ack.acked.min(limit.saturating_mul(mss)),
        }
    }

    /// Bytes counted for this ACK in congestion avoidance.
    pub(super) fn avoidance(self, ack: &Ack, mss: u64) -> u64 {
        match self {
            Self::Acks => self.slow_start(ack, mss),
            Self::Bytes { .. } => ack.acked,
        }
    }
}

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
pub(super) struct Reno {
    window: Window,
    counting: Counting,
    recovery: Recovery,
}

impl Reno {
    pub(super) fn new(window: Window, counting: Counting, recovery: Recovery) -> Self {
        Self { window, counting, recovery }
    }
}

/// Applies slow start, then one segment per window (RFC 5681 §3.1).
pub(super) fn increase(window: &mut Window, counting: Counting, ack: &Ack) {
    let mut bytes = counting.avoidance(ack, window.mss);
    if window.is_slow_start() {
        bytes = window.slow_start(counting.slow_start(ack, window.mss));
    }
    if bytes > 0 {
        let per_segment = window.cwnd as f64;
        window.grow(bytes, per_segment);
    }
}

impl Control for Reno {
    fn on_sent(&mut self, _now: Time, _sent: &Sent) {}

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        if !ack.in_recovery && ack.cwnd_limited {
            increase(&mut self.window, self.counting, ack);
        }
    }

    fn on_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.reduce(congestion, 0.5);
        if self.recovery == Recovery::Restart {
            self.window.cwnd = self.window.mss;
        }
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time, timeout: &Timeout) {
        self.window.time_out(timeout, 0.5);
    }

    fn on_spurious(&mut self, _now: Time) {
        self.window.undo();
    }

    fn on_idle(&mut self, _now: Time, idle: &Idle) {
        self.window.idle(idle);
    }

    fn on_mss(&mut self, mss: u64) {
        self.window.set_mss(mss);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }

    fn recovery(&self) -> Recovery {
        self.recovery
    }
}
