//! CUBIC (RFC 9438).

use engine::Time;

use super::bic::aim;
use super::hystart::{Detector, HyStart, Verdict};
use super::window::Window;
use super::{Ack, Congestion, Control, Counting, Idle, Sent, Timeout};

/// Maximum growth: half of the window per round (RFC 9438 §4.4).
const GROWTH_MOST: f64 = 2.0;

/// Parameters of CUBIC; windows are in segments, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cubic {
    /// Scaling factor of the cubic growth, in segments per second cubed.
    pub c: f64,
    /// Multiplicative decrease after a loss.
    pub beta: f64,
    /// Whether a connection with a loss before regaining its former window yields to others (§4.7).
    pub fast_convergence: bool,
    /// Reno-friendly growth (§4.3).
    pub friendliness: Friendliness,
    /// End of slow start without a loss.
    pub hystart: HyStart,
    /// Maximum growth in a tenth of a second; `None`: half of the window per round.
    pub increment_max: Option<f64>,
    /// Minimum growth before the first loss: acknowledged segments per segment.
    pub first_search: Option<f64>,
    /// Initial slow start threshold.
    pub ssthresh_first: Option<u64>,
    /// Counting of acknowledgments in slow start.
    pub counting: Counting,
}

/// Reno-friendly growth of CUBIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Friendliness {
    /// None.
    Off,
    /// At least α = 3(1 - β)/(1 + β) segments per round.
    Fixed,
    /// Like `Fixed`, but one segment per round once Reno would have regained its window (§4.3).
    Rfc9438,
}

impl Cubic {
    /// CUBIC of RFC 9438, with HyStart++.
    pub const RFC9438: Self = Self {
        c: 0.4,
        beta: 0.7,
        fast_convergence: true,
        friendliness: Friendliness::Rfc9438,
        hystart: HyStart::PlusPlus,
        increment_max: None,
        first_search: None,
        ssthresh_first: None,
        counting: Counting::Bytes { limit: 8 },
    };

    /// CUBIC of Linux since 3.15.
    pub const LINUX: Self = Self {
        c: 410.0 / 1024.0,
        beta: 717.0 / 1024.0,
        fast_convergence: true,
        friendliness: Friendliness::Fixed,
        hystart: HyStart::Train,
        increment_max: None,
        first_search: Some(20.0),
        ssthresh_first: None,
        counting: Counting::Bytes { limit: u64::MAX },
    };

    /// CUBIC of Linux 2.6.29 to 2.6.38.
    pub const LINUX_2_6_32: Self = Self { counting: Counting::Acks, ..Self::LINUX };

    /// CUBIC of Linux 2.6.19 to 2.6.22.
    pub const LINUX_2_6_19: Self = Self {
        beta: 819.0 / 1024.0,
        hystart: HyStart::Off,
        increment_max: Some(16.0),
        first_search: Some(50.0),
        ssthresh_first: Some(100),
        ..Self::LINUX_2_6_32
    };
}

impl Default for Cubic {
    fn default() -> Self {
        Self::LINUX
    }
}

/// Time from the start of an epoch to the plateau, in seconds (RFC 9438 §4.2, figure 2).
pub(super) fn plateau(c: f64, w_max: f64, cwnd_epoch: f64) -> f64 {
    if w_max > cwnd_epoch { libm::cbrt((w_max - cwnd_epoch) / c) } else { 0.0 }
}

/// Window at time `t` (RFC 9438 §4.2, figure 1).
pub(super) fn w_cubic(c: f64, t: f64, k: f64, w_max: f64) -> f64 {
    let off = t - k;
    c * off * off * off + w_max
}

/// Time since the last reduction.
#[derive(Debug)]
struct Epoch {
    began: Time,
    /// Seconds to the plateau, and its height.
    k: f64,
    plateau: f64,
    /// Estimate of Reno's window.
    w_est: f64,
}

#[derive(Debug)]
pub(super) struct CubicControl {
    window: Window,
    cubic: Cubic,
    detector: Detector,
    /// Window at the last loss, or the target of growth; 0 if unknown.
    w_max: f64,
    /// Window before the last reduction (§4.3's `cwnd_prior`).
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    /// Time of the last transmission.
    last_sent: Time,
    /// `w_max` before the last reduction.
    prior: f64,
}

impl CubicControl {
    pub(super) fn new(mut window: Window, cubic: Cubic) -> Self {
        window.first_threshold(cubic.ssthresh_first);
        Self {
            window,
            detector: Detector::new(cubic.hystart),
            cubic,
            w_max: 0.0,
            cwnd_prior: 0.0,
            epoch: None,
            last_sent: Time::ZERO,
            prior: 0.0,
        }
    }

    /// Applies slow start. Returns bytes left for congestion avoidance.
    fn slow_start(&mut self, now: Time, ack: &Ack) -> u64 {
        let mss = self.window.mss;
        let counted = self.cubic.counting.slow_start(ack, mss);
        // RFC 9406 §4.3 looks for a queue only on an unknown path; Linux always does.
        let is_unknown = self.window.ssthresh == u64::MAX;
        let verdict = if is_unknown || self.cubic.hystart == HyStart::Train {
            self.detector.judge(now, ack, self.window.cwnd, mss, counted)
        } else {
            Verdict::Grow(counted)
        };
        match verdict {
            Verdict::Grow(bytes) => self.window.slow_start(bytes),
            Verdict::Leave => {
                self.window.ssthresh = self.window.cwnd;
                0
            }
        }
    }

    fn avoidance(&mut self, now: Time, bytes: u64, ack: &Ack) {
        let cubic = self.cubic;
        let cwnd = self.window.segments();
        let acked = bytes as f64 / self.window.mss as f64;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            k: plateau(cubic.c, w_max, cwnd),
            plateau: w_max.max(cwnd),
            w_est: cwnd,
        });
        let alpha = match cubic.friendliness {
            Friendliness::Rfc9438 if epoch.w_est >= self.cwnd_prior => 1.0,
            Friendliness::Off | Friendliness::Fixed | Friendliness::Rfc9438 => {
                3.0 * (1.0 - cubic.beta) / (1.0 + cubic.beta)
            }
        };
        epoch.w_est += alpha * acked / cwnd;
        let t = now.since(epoch.began).as_secs_f64();
        let rtt = ack.min_rtt.unwrap_or_default().as_secs_f64();
        // Target window in one round trip (§4.4).
        let target = w_cubic(cubic.c, t + rtt, epoch.k, epoch.plateau);
        let mut count = if target > cwnd { cwnd / (target - cwnd) } else { 100.0 * cwnd };
        count = count.max(GROWTH_MOST);
        if let Some(most) = cubic.increment_max.filter(|_| rtt > 0.0) {
            count = count.max(cwnd / (most * rtt / 0.1));
        }
        if let Some(first) = cubic.first_search.filter(|_| w_max == 0.0) {
            count = count.min(first);
        }
        if cubic.friendliness != Friendliness::Off && epoch.w_est > cwnd {
            count = count.min(cwnd / (epoch.w_est - cwnd));
        }
        self.window.grow(bytes, count * self.window.mss as f64);
    }

    /// Records the window that led to congestion (§4.7).
    fn note_peak(&mut self, in_use: u64) {
        self.prior = self.w_max;
        let segments = in_use as f64 / self.window.mss as f64;
        self.cwnd_prior = segments;
        self.w_max = aim(segments, self.w_max, self.cubic.beta, self.cubic.fast_convergence);
        self.epoch = None;
    }
}

impl Control for CubicControl {
    fn on_sent(&mut self, now: Time, sent: &Sent) {
        // An idle time does not count as use of the window (§5.8).
        if sent.in_flight == 0
            && let Some(epoch) = &mut self.epoch
        {
            let pause = now.since(self.last_sent.max(epoch.began));
            epoch.began = (epoch.began + pause).min(now);
        }
        self.last_sent = now;
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if ack.in_recovery || !ack.cwnd_limited {
            return;
        }
        let mut bytes = ack.acked;
        if self.window.is_slow_start() {
            bytes = self.slow_start(now, ack);
        }
        if bytes > 0 && !self.window.is_slow_start() {
            self.avoidance(now, bytes, ack);
        }
    }

    fn on_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.note_peak(self.window.in_use(congestion.flight_size, congestion.cwnd_limited));
        self.window.reduce(congestion, self.cubic.beta);
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time, timeout: &Timeout) {
        if timeout.is_first {
            self.note_peak(timeout.flight_size.min(self.window.cwnd));
        }
        self.window.time_out(timeout, self.cubic.beta);
        // The plateau is where slow start ends (§4.8).
        self.w_max = 0.0;
        self.epoch = None;
        self.detector.restart();
    }

    fn on_spurious(&mut self, _now: Time) {
        if self.window.undo() {
            self.w_max = self.prior;
            self.epoch = None;
        }
    }

    fn on_idle(&mut self, _now: Time, idle: &Idle) {
        self.window.idle(idle);
        self.detector.restart();
    }

    fn on_mss(&mut self, mss: u64) {
        let factor = self.window.mss as f64 / mss.max(1) as f64;
        self.w_max *= factor;
        self.cwnd_prior *= factor;
        self.prior *= factor;
        self.epoch = None;
        self.window.set_mss(mss);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }
}
