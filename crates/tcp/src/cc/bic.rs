//! BIC (Xu, Harfoush and Rhee 2004), the default of Linux 2.6.8 to 2.6.18.

use engine::Time;

use super::window::Window;
use super::{Ack, Congestion, Control, Counting, Idle, Sent, Timeout};

/// Share of the distance by which a binary search advances: 1 / `SEARCH_PART` (Linux's
/// `BICTCP_B`).
const SEARCH_PART: f64 = 4.0;

/// Before the first loss, acknowledged segments per segment of growth: at least 5 % per round.
const FIRST_SEARCH: f64 = 20.0;

/// Parameters of BIC; windows are in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bic {
    /// Multiplicative decrease after a loss.
    pub beta: f64,
    /// Maximum growth per round (the paper's `S_max`).
    pub increment_max: f64,
    /// Window up to which it behaves like Reno.
    pub low_window: f64,
    /// Round trips for a growth of four segments near `W_max`.
    pub smooth_part: f64,
    /// Whether a connection with a loss before regaining its former window yields to others.
    pub fast_convergence: bool,
    /// Initial slow start threshold.
    pub ssthresh_first: Option<u64>,
    /// Counting of acknowledgments in slow start.
    pub counting: Counting,
}

impl Default for Bic {
    /// Parameters of Linux 2.6.18.
    fn default() -> Self {
        Self {
            beta: 819.0 / 1024.0,
            increment_max: 16.0,
            low_window: 14.0,
            smooth_part: 20.0,
            fast_convergence: true,
            ssthresh_first: Some(100),
            counting: Counting::Acks,
        }
    }
}

/// Acknowledged segments per segment of growth.
pub(super) fn per_increment(bic: &Bic, cwnd: f64, w_max: f64, has_lost: bool) -> f64 {
    if cwnd <= bic.low_window {
        return cwnd;
    }
    let linear = cwnd / bic.increment_max;
    let smooth = cwnd * bic.smooth_part / SEARCH_PART;
    let count = if cwnd < w_max {
        // Linux computes in whole segments.
        let distance = ((w_max - cwnd) / SEARCH_PART).floor();
        if distance > bic.increment_max {
            linear
        } else if distance <= 1.0 {
            smooth
        } else {
            cwnd / distance
        }
    } else if cwnd < w_max + SEARCH_PART {
        smooth
    } else if cwnd < w_max + bic.increment_max * (SEARCH_PART - 1.0) {
        cwnd * (SEARCH_PART - 1.0) / (cwnd - w_max)
    } else {
        linear
    };
    if has_lost { count.max(1.0) } else { count.clamp(1.0, FIRST_SEARCH) }
}

/// Target of the next search after a loss at this window.
pub(super) fn aim(cwnd: f64, w_max: f64, beta: f64, fast_convergence: bool) -> f64 {
    if fast_convergence && cwnd < w_max { cwnd * f64::midpoint(1.0, beta) } else { cwnd }
}

#[derive(Debug)]
pub(super) struct BicControl {
    window: Window,
    bic: Bic,
    /// Window at the last loss, or the search's target, in segments.
    w_max: f64,
    has_lost: bool,
    /// State before the last reduction.
    prior: (f64, bool),
}

impl BicControl {
    pub(super) fn new(mut window: Window, bic: Bic) -> Self {
        window.first_threshold(bic.ssthresh_first);
        Self { window, bic, w_max: 0.0, has_lost: false, prior: (0.0, false) }
    }

    fn share(&self) -> f64 {
        if self.window.segments() <= self.bic.low_window { 0.5 } else { self.bic.beta }
    }
}

impl Control for BicControl {
    fn on_sent(&mut self, _now: Time, _sent: &Sent) {}

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        if ack.in_recovery || !ack.cwnd_limited {
            return;
        }
        let mut bytes = ack.acked;
        if self.window.is_slow_start() {
            bytes = self.window.slow_start(self.bic.counting.slow_start(ack, self.window.mss));
        }
        if bytes > 0 {
            let segments = self.window.segments();
            let count = per_increment(&self.bic, segments, self.w_max, self.has_lost);
            self.window.grow(bytes, count * self.window.mss as f64);
        }
    }

    fn on_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.prior = (self.w_max, self.has_lost);
        let used = self.window.in_use(congestion.flight_size, congestion.cwnd_limited);
        let segments = used as f64 / self.window.mss as f64;
        self.w_max = aim(segments, self.w_max, self.bic.beta, self.bic.fast_convergence);
        self.has_lost = true;
        let share = self.share();
        self.window.reduce(congestion, share);
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time, timeout: &Timeout) {
        if timeout.is_first {
            self.prior = (self.w_max, self.has_lost);
        }
        let share = self.share();
        self.window.time_out(timeout, share);
        // Knowledge about the path is outdated.
        (self.w_max, self.has_lost) = (0.0, false);
    }

    fn on_spurious(&mut self, _now: Time) {
        if self.window.undo() {
            (self.w_max, self.has_lost) = self.prior;
        }
    }

    fn on_idle(&mut self, _now: Time, idle: &Idle) {
        self.window.idle(idle);
    }

    fn on_mss(&mut self, mss: u64) {
        self.w_max *= self.window.mss as f64 / mss.max(1) as f64;
        self.window.set_mss(mss);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }
}
