//! Vegas (Brakmo and Peterson 1995): the window follows the number of the connection's segments in
//! queues, which increases the round trip before anything is lost.

use std::time::Duration;

use engine::Time;

use super::reno::increase;
use super::window::Window;
use super::{Ack, Cause, Congestion, Control, Counting, Idle, Sent, Timeout};

/// Minimum number of round trip samples for a decision: two samples may both be of delayed ACKs.
const SAMPLES_LEAST: u32 = 3;

/// Variant of Vegas, and its thresholds in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vegas {
    /// Queued segments below which the window grows.
    pub alpha: u32,
    /// Queued segments above which the window shrinks.
    pub beta: u32,
    /// Queued segments above which slow start ends.
    pub gamma: u32,
    /// Variant.
    pub variant: VegasVariant,
}

/// Variants of Vegas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VegasVariant {
    /// Linux: slow start doubles each round and ends with the window that the path carried;
    /// compares a round's minimum round trip with the overall minimum; halves after losses.
    Linux,
    /// Authors: slow start doubles every other round and ends with a window smaller by an eighth;
    /// uses a round's mean round trip; reduces by a quarter after losses.
    Paper,
    /// SCPS reference implementation: uses the bytes in flight instead of the window, which shrinks
    /// by half of the excess plus one segment; slow start doubles at the end of a round with a
    /// sample. Losses halve the window down to one segment, from where, as after a timeout, slow
    /// start begins again.
    Scps,
}

impl Vegas {
    /// Linux, with its parameters.
    pub const LINUX: Self = Self { alpha: 2, beta: 4, gamma: 1, variant: VegasVariant::Linux };
    /// Authors, with the smaller of their pairs of parameters.
    pub const PAPER: Self = Self { alpha: 1, beta: 3, gamma: 1, variant: VegasVariant::Paper };
    /// SCPS reference implementation.
    pub const SCPS: Self = Self { alpha: 3, beta: 5, gamma: 4, variant: VegasVariant::Scps };
}

impl Default for Vegas {
    fn default() -> Self {
        Self::LINUX
    }
}

#[derive(Debug)]
pub(super) struct VegasControl {
    window: Window,
    vegas: Vegas,
    /// Minimum round trip so far: an empty path's.
    base: Option<Duration>,
    /// Minimum round trip of this round, sum and number of its samples.
    least: Duration,
    sum: Duration,
    samples: u32,
    /// Whether the round began before the last recovery or idle time, and is ignored.
    is_stale: bool,
    /// Whether the recovery from a timeout has not ended; until then the control behaves like
    /// Reno.
    is_reno: bool,
    /// Whether the authors' slow start grows in this round.
    grows: bool,
}

impl VegasControl {
    pub(super) fn new(window: Window, vegas: Vegas) -> Self {
        Self {
            window,
            vegas,
            base: None,
            least: Duration::MAX,
            sum: Duration::ZERO,
            samples: 0,
            is_stale: false,
            is_reno: false,
            grows: true,
        }
    }

    fn forget_round(&mut self) {
        (self.least, self.sum, self.samples) = (Duration::MAX, Duration::ZERO, 0);
    }

    /// Round trips of this round and of an empty path, if there are enough samples.
    fn round_trips(&self) -> Option<(f64, f64)> {
        let enough = match self.vegas.variant {
            VegasVariant::Linux | VegasVariant::Paper => SAMPLES_LEAST,
            VegasVariant::Scps => 1,
        };
        let base = self.base.filter(|_| self.samples >= enough)?.as_secs_f64();
        let rtt = match self.vegas.variant {
            VegasVariant::Linux => self.least.as_secs_f64(),
            VegasVariant::Paper | VegasVariant::Scps => {
                self.sum.as_secs_f64() / f64::from(self.samples)
            }
        };
        Some((rtt.max(1e-9), base.max(1e-9)))
    }

    /// Number of the connection's segments in queues.
    fn queued(&self, ack: &Ack, rtt: f64, base: f64) -> f64 {
        let segments = |bytes: u64| bytes as f64 / self.window.mss as f64;
        match self.vegas.variant {
            // Relative to the empty path's round trip, which overestimates if the queue is long
            // compared to the path.
            VegasVariant::Linux => (segments(self.window.cwnd) * (rtt - base) / base).floor(),
            VegasVariant::Paper => segments(self.window.cwnd) * (1.0 - base / rtt),
            VegasVariant::Scps => {
                segments(ack.prior_in_flight.max(self.window.mss)) * (1.0 - base / rtt)
            }
        }
    }

    fn set_window(&mut self, bytes: u64, least_segments: u64) {
        self.window.cwnd = bytes.max(least_segments * self.window.mss);
    }

    /// Decides at the end of a round.
    fn decide(&mut self, ack: &Ack) {
        let Some((rtt, base)) = self.round_trips() else {
            match self.vegas.variant {
                VegasVariant::Linux | VegasVariant::Paper => {
                    increase(&mut self.window, Counting::default(), ack);
                }
                // The window of this variant changes with samples only.
                VegasVariant::Scps => {}
            }
            return;
        };
        let queued = self.queued(ack, rtt, base);
        if self.window.is_slow_start() {
            self.decide_slow_start(ack, queued, base / rtt);
        } else {
            self.decide_avoidance(queued);
        }
    }

    fn decide_slow_start(&mut self, ack: &Ack, queued: f64, emptiness: f64) {
        let cwnd = self.window.cwnd;
        if queued > f64::from(self.vegas.gamma) {
            match self.vegas.variant {
                VegasVariant::Linux => {
                    let mss = self.window.mss;
                    let carried = ((cwnd / mss) as f64 * emptiness) as u64 + 1;
                    self.set_window(cwnd.min(carried * mss), 2);
                }
                VegasVariant::Paper => self.set_window(cwnd - cwnd / 8, 2),
                VegasVariant::Scps => {}
            }
            self.window.ssthresh = self.window.cwnd;
        } else {
            match self.vegas.variant {
                VegasVariant::Linux => {
                    self.window.slow_start(ack.acked);
                }
                VegasVariant::Paper => self.grows = !self.grows,
                VegasVariant::Scps => {
                    self.window.slow_start(cwnd);
                }
            }
        }
    }

    fn decide_avoidance(&mut self, queued: f64) {
        let (alpha, beta) = (f64::from(self.vegas.alpha), f64::from(self.vegas.beta));
        let mss = self.window.mss;
        if queued > beta {
            let too_much = match self.vegas.variant {
                VegasVariant::Linux | VegasVariant::Paper => mss,
                VegasVariant::Scps => mss + ((queued - beta) / 2.0 * mss as f64) as u64,
            };
            match self.vegas.variant {
                VegasVariant::Linux | VegasVariant::Paper => {
                    self.set_window(self.window.cwnd.saturating_sub(too_much), 2);
                    self.window.ssthresh = self.window.ssthresh.min(self.window.cwnd);
                }
                VegasVariant::Scps => {
                    self.set_window(self.window.cwnd.saturating_sub(too_much), 1);
                    self.linear_above_bottom();
                }
            }
        } else if queued < alpha {
            self.window.cwnd += mss;
        }
    }

    /// SCPS variant: at one segment slow start begins again.
    fn linear_above_bottom(&mut self) {
        let is_bottom = self.window.cwnd == self.window.mss;
        self.window.ssthresh = if is_bottom { u64::MAX } else { self.window.cwnd };
    }

    /// Grows the window for ACKs within a round, in slow start only.
    fn within_round(&mut self, ack: &Ack) {
        if !self.window.is_slow_start() {
            return;
        }
        match self.vegas.variant {
            VegasVariant::Linux => {
                self.window.slow_start(ack.acked);
            }
            VegasVariant::Paper => {
                if self.grows {
                    self.window.slow_start(ack.acked);
                }
            }
            VegasVariant::Scps => {}
        }
    }
}

impl Control for VegasControl {
    fn on_sent(&mut self, _now: Time, sent: &Sent) {
        // Linux assumes another path after an idle time. The round begins with data sent now, so it
        // is not stale: a window of one segment, which always idles, has to grow.
        if sent.in_flight == 0 && self.vegas.variant == VegasVariant::Linux {
            self.base = None;
            self.forget_round();
            self.is_stale = false;
        }
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.least = self.least.min(rtt);
            self.sum += rtt;
            self.samples += 1;
        }
        if ack.in_recovery {
            return;
        }
        if self.is_reno {
            if ack.cwnd_limited {
                increase(&mut self.window, Counting::default(), ack);
            }
        } else if ack.round {
            if self.is_stale {
                self.is_stale = false;
            } else if ack.cwnd_limited {
                self.decide(ack);
            }
            self.forget_round();
        } else if ack.cwnd_limited {
            self.within_round(ack);
        }
    }

    fn on_congestion(&mut self, _now: Time, congestion: &Congestion) {
        let share = match (self.vegas.variant, congestion.cause) {
            (VegasVariant::Paper, Cause::Loss) => 0.75,
            (VegasVariant::Paper, Cause::Ecn)
            | (VegasVariant::Linux | VegasVariant::Scps, Cause::Loss | Cause::Ecn) => 0.5,
        };
        let in_use = self.window.in_use(congestion.flight_size, congestion.cwnd_limited);
        self.window.reduce(congestion, share);
        if self.vegas.variant == VegasVariant::Scps {
            // The minimum is one segment, not two.
            self.set_window(in_use / 2, 1);
            self.linear_above_bottom();
        }
        self.grows = true;
    }

    fn on_recovered(&mut self, _now: Time) {
        self.is_reno = false;
        self.is_stale = self.vegas.variant != VegasVariant::Scps;
        self.forget_round();
    }

    fn on_timeout(&mut self, _now: Time, timeout: &Timeout) {
        self.window.time_out(timeout, 0.5);
        match self.vegas.variant {
            VegasVariant::Linux | VegasVariant::Paper => self.is_reno = true,
            VegasVariant::Scps => self.linear_above_bottom(),
        }
        self.grows = true;
    }

    fn on_spurious(&mut self, _now: Time) {
        self.window.undo();
    }

    fn on_idle(&mut self, _now: Time, idle: &Idle) {
        self.window.idle(idle);
        self.base = None;
        self.forget_round();
        self.is_stale = true;
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
}
