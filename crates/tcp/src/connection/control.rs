//! Congestion control of a connection: window, rounds, pacing.

use std::time::Duration;

use engine::Time;

use crate::cc::{self, Ack, Cause, Congestion, Control, Idle, Recovery, Sent, Timeout};
use crate::config::Options;
use crate::recovery::Phase;
use crate::rtt::Rtt;

/// Time by which a paced connection may run ahead, so that a fast one sends several segments at
/// once.
const BURST: Duration = Duration::from_millis(1);

/// Congestion control, and transmission times.
#[derive(Debug)]
pub(super) struct SendControl {
    algorithm: Box<dyn Control>,
    seed: u64,
    /// Sequence number whose acknowledgment ends a round trip.
    round_end: u64,
    /// Sequence number up to which the congestion window held data back.
    limited_to: Option<u64>,
    last_sent: Time,
    /// Earliest time for the next segment, if paced.
    pace_next: Time,
    /// CWR is due with the next new data (RFC 3168 §6.1.2).
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

    /// Starts with the initial window once the connection is established.
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

    /// Whether everything in flight is retransmitted after a loss.
    pub(super) fn restarts(&self) -> bool {
        self.algorithm.recovery() == Recovery::Restart
    }

    /// Whether the first acknowledgment of new data ends a recovery.
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

    /// Reports a loss or mark while `flight_size` bytes were in flight.
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

    /// Reports a spurious loss.
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

    /// Notes that the congestion window held data back at `nxt`.
    pub(super) fn limit(&mut self, nxt: u64) {
        self.limited_to = Some(nxt);
    }

    /// Whether the congestion window limited the flight that begins at `una`.
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

    /// Notes the sending of a SYN, or of unpaced data.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.last_sent = now;
    }

    /// Handles an idle time before data is sent with nothing in flight.
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

    /// Excludes an outage of the link from all times.
    pub(super) fn put_off(&mut self, by: Duration) {
        self.last_sent += by;
    }

    /// Pacing rate in bit/s, if any.
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

    /// Time of the next segment, if pacing holds it back.
    pub(super) fn held_until(&self, now: Time) -> Option<Time> {
        (self.pace_next > now + BURST).then_some(self.pace_next)
    }

    /// Accounts for bytes sent at this rate.
    pub(super) fn pace(&mut self, now: Time, bytes: u64, rate_bps: u64) {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps);
        let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.pace_next = self.pace_next.max(now) + took;
    }
}
