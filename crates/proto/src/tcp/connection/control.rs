//! Congestion control of a connection: its window, its rounds, its pace.

use std::time::Duration;

use engine::Time;

use crate::tcp::cc::{self, Ack, Cause, Congestion, Control, Idle, Recovery, Sent, Timeout};
use crate::tcp::config::Options;
use crate::tcp::recovery::Phase;
use crate::tcp::rtt::Rtt;

/// Time by which a paced connection may run ahead, so that a fast one sends several at once.
const BURST: Duration = Duration::from_millis(1);

/// Congestion control, and when data was sent and may be sent.
#[derive(Debug)]
pub(super) struct SendControl {
    algorithm: Box<dyn Control>,
    seed: u64,
    /// A round trip ends when that is acknowledged.
    round_end: u64,
    /// The congestion window stopped what would have been sent before that.
    limited_to: Option<u64>,
    last_sent: Time,
    /// Earliest time for the next segment, if there is a pace.
    pace_next: Time,
    /// CWR is due: the next new data reports that the window is reduced (RFC 3168 §6.1.2).
    reports_reduction: bool,
}

impl SendControl {
    pub(super) fn new(now: Time, options: &Options, seed: u64, first: u64) -> Self {
        Self {
            algorithm: cc::new(options.congestion, 536, 536, u64::MAX, seed),
            seed,
            round_end: first,
            limited_to: None,
            last_sent: now,
            pace_next: Time::ZERO,
            reports_reduction: false,
        }
    }

    /// The connection is established: begins with the initial window for its segments.
    pub(super) fn establish(
        &mut self,
        now: Time,
        options: &Options,
        mss: u64,
        rtt: Option<Duration>,
    ) {
        let initial = options.initial_window.bytes(mss);
        self.algorithm = cc::new(options.congestion, mss, initial, u64::MAX, self.seed);
        self.algorithm.on_established(now, rtt);
        self.last_sent = now;
    }

    pub(super) fn cwnd(&self) -> u64 {
        self.algorithm.cwnd()
    }

    pub(super) fn ssthresh(&self) -> u64 {
        self.algorithm.ssthresh()
    }

    pub(super) fn windows_buffered(&self) -> u64 {
        self.algorithm.windows_buffered()
    }

    pub(super) fn governs_recovery(&self) -> bool {
        self.algorithm.governs_recovery()
    }

    /// Whether everything in flight is sent again after a loss.
    pub(super) fn restarts(&self) -> bool {
        self.algorithm.recovery() == Recovery::Restart
    }

    /// Whether the first acknowledgment of something new ends a recovery.
    pub(super) fn recovers_with_first(&self) -> bool {
        self.algorithm.recovery() == Recovery::FirstAck
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self, phase: &Phase) -> u64 {
        match phase {
            Phase::Recovery(recovery) if !self.governs_recovery() => recovery.window,
            Phase::Open | Phase::Reduced { .. } | Phase::Recovery(_) | Phase::Restarted { .. } => {
                self.cwnd()
            }
        }
    }

    pub(super) fn set_mss(&mut self, mss: u64) {
        self.algorithm.on_mss(mss);
    }

    /// Something was lost or marked while `flight_size` bytes were in flight.
    pub(super) fn congested(
        &mut self,
        now: Time,
        cause: Cause,
        flight_size: u64,
        cwnd_limited: bool,
    ) {
        self.algorithm.on_congestion(now, &Congestion { cause, flight_size, cwnd_limited });
        self.reports_reduction |= cause == Cause::Ecn;
    }

    pub(super) fn recovered(&mut self, now: Time) {
        self.algorithm.on_recovered(now);
    }

    pub(super) fn timed_out(&mut self, now: Time, timeout: &Timeout) {
        self.algorithm.on_timeout(now, timeout);
    }

    /// A loss was none.
    pub(super) fn spurious(&mut self, now: Time) {
        self.algorithm.on_spurious(now);
    }

    pub(super) fn acknowledged(&mut self, now: Time, ack: &Ack) {
        self.algorithm.on_ack(now, ack);
    }

    /// Whether an acknowledgment up to `una` ends a round trip. The next one ends at `nxt`.
    pub(super) fn ends_round(&mut self, una: u64, nxt: u64) -> bool {
        let ends = una > self.round_end;
        if ends {
            self.round_end = nxt;
        }
        ends
    }

    /// The congestion window stopped what would have been sent at `nxt`.
    pub(super) fn limit(&mut self, nxt: u64) {
        self.limited_to = Some(nxt);
    }

    /// Whether the congestion window stopped the sender in the flight that begins at `una`.
    pub(super) fn is_limited(&self, una: u64) -> bool {
        self.limited_to.is_some_and(|to| una < to)
    }

    /// Whether the next new data reports a reduced window.
    pub(super) fn reports_reduction(&self) -> bool {
        self.reports_reduction
    }

    pub(super) fn reduction_reported(&mut self) {
        self.reports_reduction = false;
    }

    pub(super) fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// A SYN left, or data whose pace is of no account.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.last_sent = now;
    }

    /// Data is about to be sent with nothing in flight: was the connection idle?
    pub(super) fn end_idle(&mut self, now: Time, rto: Duration, options: &Options) {
        let lasted = now.since(self.last_sent);
        if let Some(rule) = options.idle
            && lasted > rto
        {
            self.algorithm.on_idle(now, &Idle { lasted, rto, rule });
            self.last_sent = now;
        }
    }

    pub(super) fn sent(&mut self, now: Time, sent: &Sent) {
        self.algorithm.on_sent(now, sent);
        self.last_sent = now;
    }

    /// The link was away for so long.
    pub(super) fn put_off(&mut self, by: Duration) {
        self.last_sent += by;
    }

    /// Bits a second to send at, if there is such a rate.
    pub(super) fn pacing_rate_bps(&self, options: &Options, rtt: &Rtt) -> Option<u64> {
        let own = || {
            let smoothed = rtt.smoothed().filter(|_| options.pacing)?;
            let nanos = smoothed.as_nanos().max(1);
            let cwnd = self.cwnd();
            let factor = if cwnd < self.ssthresh() / 2 { 200 } else { 120 };
            let bits = u128::from(cwnd) * 8 * 1_000_000_000 * factor / 100;
            u64::try_from(bits / nanos).ok()
        };
        self.algorithm.pacing_rate_bps().or_else(own).filter(|rate| *rate > 0)
    }

    /// When the next segment may leave, if the pace holds it back.
    pub(super) fn held_until(&self, now: Time) -> Option<Time> {
        (self.pace_next > now + BURST).then_some(self.pace_next)
    }

    /// Bytes left at this rate.
    pub(super) fn pace(&mut self, now: Time, bytes: u64, rate_bps: u64) {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps);
        let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.pace_next = self.pace_next.max(now) + took;
    }
}
