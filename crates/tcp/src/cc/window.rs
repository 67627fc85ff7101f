//! Congestion window and slow start threshold, with operations common to window-based algorithms.

use super::{Congestion, Idle, IdleRule, Timeout};

/// Window and threshold, in bytes.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) mss: u64,
    initial: u64,
    pub(super) cwnd: u64,
    pub(super) ssthresh: u64,
    /// Acknowledged bytes that have not grown the window yet.
    credit: f64,
    /// Window and threshold before the last reduction.
    prior: Option<(u64, u64)>,
}

impl Window {
    pub(super) fn new(mss: u64, initial: u64, ssthresh: u64) -> Self {
        let mss = mss.max(1);
        let initial = initial.max(mss);
        Self { mss, initial, cwnd: initial, ssthresh, credit: 0.0, prior: None }
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Sets the initial threshold to this many segments.
    pub(super) fn first_threshold(&mut self, segments: Option<u64>) {
        if let Some(segments) = segments.filter(|_| self.ssthresh == u64::MAX) {
            self.ssthresh = segments.saturating_mul(self.mss);
        }
    }

    /// Window in segments.
    pub(super) fn segments(&self) -> f64 {
        self.cwnd as f64 / self.mss as f64
    }

    /// Grows by `bytes` up to the threshold. Returns the rest.
    pub(super) fn slow_start(&mut self, bytes: u64) -> u64 {
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let grown = bytes.min(room);
        self.cwnd += grown;
        bytes - grown
    }

    /// Grows by one segment for each `per_segment` acknowledged bytes in total.
    pub(super) fn grow(&mut self, acked: u64, per_segment: f64) {
        let per_segment = per_segment.max(1.0);
        // Credit gathered while a segment cost more buys at most one.
        self.credit = self.credit.min(per_segment) + acked as f64;
        let times = (self.credit / per_segment).floor();
        if times >= 1.0 {
            self.credit -= times * per_segment;
            self.cwnd = self.cwnd.saturating_add((times as u64).saturating_mul(self.mss));
        }
    }

    /// Base of a reduction: the window, or the bytes in flight if less (RFC 5681 §3.1, equation 4).
    /// Data sent by limited transmit does not count.
    pub(super) fn in_use(&self, flight_size: u64, cwnd_limited: bool) -> u64 {
        if cwnd_limited { self.cwnd } else { flight_size.min(self.cwnd) }
    }

    /// Saves the state, and sets the threshold, at least two segments.
    fn lower(&mut self, ssthresh: u64) {
        self.prior = Some((self.cwnd, self.ssthresh));
        self.ssthresh = ssthresh.max(2 * self.mss);
        self.credit = 0.0;
    }

    /// Sets threshold and window to `share` of the window in use.
    pub(super) fn reduce(&mut self, congestion: &Congestion, share: f64) {
        let in_use = self.in_use(congestion.flight_size, congestion.cwnd_limited);
        self.lower((in_use as f64 * share) as u64);
        self.cwnd = self.ssthresh;
    }

    /// Sets the threshold to `share` of the bytes in flight, and the window to one segment
    /// (RFC 5681 §3.1).
    pub(super) fn time_out(&mut self, timeout: &Timeout, share: f64) {
        if timeout.is_first {
            self.lower((timeout.flight_size.min(self.cwnd) as f64 * share) as u64);
        }
        self.cwnd = self.mss;
        self.credit = 0.0;
    }

    /// Undoes the last reduction. Returns whether there was one.
    pub(super) fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.prior.take() else { return false };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        true
    }

    /// Reduces the window after an idle time.
    pub(super) fn idle(&mut self, idle: &Idle) {
        let restart = self.initial.min(self.cwnd);
        match idle.rule {
            IdleRule::Restart => self.cwnd = restart,
            IdleRule::Decay => {
                // The threshold keeps the former window, which slow start regains.
                self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
                let rto = idle.rto.as_nanos().max(1);
                let halvings = (idle.lasted.as_nanos() / rto).min(63) as u32;
                self.cwnd = (self.cwnd >> halvings).max(restart);
            }
        }
        self.credit = 0.0;
    }

    /// Changes the segment size; the window keeps its bytes, and at least one segment.
    pub(super) fn set_mss(&mut self, mss: u64) {
        self.mss = mss.max(1);
        self.initial = self.initial.max(self.mss);
        self.cwnd = self.cwnd.max(self.mss);
    }
}
