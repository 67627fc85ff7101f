//! No congestion control.

use engine::Time;

use super::{Ack, Congestion, Control, Idle, Recovery, Sent, Timeout};

/// Constant window.
#[derive(Debug)]
pub(super) struct Unlimited {
    window: u64,
}

impl Unlimited {
    pub(super) fn new(window: u64) -> Self {
        Self { window }
    }
}

impl Control for Unlimited {
    fn on_sent(&mut self, _now: Time, _sent: &Sent) {}

    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

    fn on_congestion(&mut self, _now: Time, _congestion: &Congestion) {}

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time, _timeout: &Timeout) {}

    fn on_spurious(&mut self, _now: Time) {}

    fn on_idle(&mut self, _now: Time, _idle: &Idle) {}

    fn on_mss(&mut self, mss: u64) {
        self.window = self.window.max(mss);
    }

    fn cwnd(&self) -> u64 {
        self.window
    }

    fn ssthresh(&self) -> u64 {
        self.window
    }

    fn recovery(&self) -> Recovery {
        Recovery::Own
    }
}
