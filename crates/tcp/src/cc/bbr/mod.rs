//! BBR version 1 (Cardwell and others 2016), as in Linux. Window and rate follow the path's
//! delivery rate and its round trip without queues; losses have little effect.

mod aggregation;
mod estimates;
mod filter;
mod policer;

use std::time::Duration;

use engine::{Rng, Time};

use self::aggregation::Aggregation;
use self::estimates::{FullPipe, MinRtt, Rounds};
use self::filter::MaxFilter;
use self::policer::{Finding, Policer};
use super::{Ack, Cause, Congestion, Control, Idle, Recovery, Sent, Timeout};

/// 2 / ln 2: minimum gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;

/// Gains of a cycle's phases: probe, drain, cruise.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Number of phases in which a cycle may start: all but the draining one.
const CYCLE_RANDOM: u64 = 7;

/// Window as a multiple of the path's capacity: delayed and aggregated ACKs need more than one.
const CWND_GAIN: f64 = 2.0;

/// Pacing rate as a share of the estimate: 1 % below it, so that no queue builds up.
const PACING_SHARE: f64 = 0.99;

/// Round trips over which the maximum rate is taken.
const BANDWIDTH_ROUNDS: u64 = CYCLE.len() as u64 + 2;

/// Minimum time for which the window is reduced to measure the round trip without queues.
const PROBE_RTT: Duration = Duration::from_millis(200);

/// Segments of the minimum window.
const WINDOW_LEAST: u64 = 4;

/// Segments of the window before the round trip is known.
const WINDOW_BLIND: u64 = 10;

/// Assumed round trip before one is known, in seconds.
const RTT_NOMINAL: f64 = 0.001;

/// Rate, in bytes per second, below which hosts send single segments, and above which at least
/// two.
const SINGLY_BELOW: f64 = 150_000.0;

/// Maximum bytes, and segments, that a host sends at once.
const BURST_MOST: f64 = 65_215.0;
const BURST_SEGMENTS_MOST: u64 = 127;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Doubles the rate each round trip until it stops growing.
    Startup,
    /// Drains the resulting queue.
    Drain,
    /// Cycles around the estimate.
    ProbeBandwidth { phase: usize, began: Time },
    /// Reduces the window to measure the round trip without queues: until the given time, once it
    /// is small, and for one round.
    ProbeRtt { until: Option<Time>, is_round_over: bool },
}

/// State of BBR. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Bbr {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Window before a recovery or a probe reduced it.
    prior_cwnd: u64,
    mode: Mode,
    pacing_gain: f64,
    cwnd_gain: f64,
    pacing: f64,
    has_seen_rtt: bool,
    bandwidth: MaxFilter,
    rounds: Rounds,
    min_rtt: MinRtt,
    pipe: FullPipe,
    in_recovery: bool,
    /// `in_recovery` at the last ACK that delivered data: a recovery that immediately follows
    /// another continues it.
    was_in_recovery: bool,
    /// First round of a recovery: each delivered packet is replaced by one.
    conserves: bool,
    /// Whether the connection sends again after an idle time.
    is_idle_restart: bool,
    /// Delivered bytes up to which rates are limited by a probe.
    limited_until: Option<u64>,
    policer: Policer,
    aggregation: Aggregation,
    rng: Rng,
}

impl Bbr {
    pub(super) fn new(mss: u64, initial: u64, seed: u64) -> Self {
        let mss = mss.max(1);
        let cwnd = initial.max(mss);
        Self {
            mss,
            cwnd,
            ssthresh: u64::MAX,
            prior_cwnd: 0,
            mode: Mode::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing: HIGH_GAIN * PACING_SHARE * cwnd as f64 / RTT_NOMINAL,
            has_seen_rtt: false,
            bandwidth: MaxFilter::new(BANDWIDTH_ROUNDS),
            rounds: Rounds::default(),
            min_rtt: MinRtt::default(),
            pipe: FullPipe::default(),
            in_recovery: false,
            was_in_recovery: false,
            conserves: false,
            is_idle_restart: false,
            limited_until: None,
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            rng: Rng::new(seed, "bbr"),
        }
    }

    /// Estimated bottleneck rate.
    fn rate(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.bandwidth.max())
    }

    /// Bandwidth-delay product at this rate, times `gain`.
    fn bdp(&self, rate: f64, gain: f64) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt) => {
                let segments = rate * min_rtt.as_secs_f64() * gain / self.mss as f64;
                (segments.ceil() as u64).saturating_mul(self.mss)
            }
            None => WINDOW_BLIND * self.mss,
        }
    }

    /// Segments that a host sends at once at the current pacing rate.
    fn burst(&self) -> u64 {
        let least = if self.pacing < SINGLY_BELOW { 1 } else { 2 };
        let bytes = (self.pacing / 1024.0).min(BURST_MOST);
        ((bytes / self.mss as f64) as u64).clamp(least, BURST_SEGMENTS_MOST)
    }

    /// `bytes` plus an allowance for segments sent and acknowledged in batches.
    fn with_room(&self, bytes: u64) -> u64 {
        let mut segments = bytes.div_ceil(self.mss) + 3 * self.burst();
        segments += segments % 2;
        if matches!(self.mode, Mode::ProbeBandwidth { phase: 0, .. }) {
            segments += 2;
        }
        segments.saturating_mul(self.mss)
    }

    fn in_flight_at(&self, rate: f64, gain: f64) -> u64 {
        self.with_room(self.bdp(rate, gain))
    }

    fn set_pacing(&mut self, gain: f64, srtt: Option<Duration>) {
        if let Some(srtt) = srtt.filter(|_| !self.has_seen_rtt) {
            self.has_seen_rtt = true;
            let rtt = srtt.as_secs_f64().max(1e-6);
            self.pacing = HIGH_GAIN * PACING_SHARE * self.cwnd as f64 / rtt;
        }
        let pacing = self.rate() * gain * PACING_SHARE;
        if self.pipe.is_full() || pacing > self.pacing {
            self.pacing = pacing;
        }
    }

    /// Saves the window, to restore it later.
    fn save_cwnd(&mut self) {
        let is_cut = self.was_in_recovery || matches!(self.mode, Mode::ProbeRtt { .. });
        self.prior_cwnd = if is_cut { self.prior_cwnd.max(self.cwnd) } else { self.cwnd };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    /// Starts a cycle in a random phase.
    fn enter_probe_bandwidth(&mut self, now: Time) {
        let before = CYCLE.len() - 1 - self.rng.below(CYCLE_RANDOM) as usize;
        self.mode = Mode::ProbeBandwidth { phase: (before + 1) % CYCLE.len(), began: now };
    }

    fn update_rate(&mut self, now: Time, ack: &Ack) {
        let prior = ack.rate.as_ref().map(|sample| sample.prior_delivered);
        self.rounds.acknowledged(prior, ack.delivered);
        let Some(sample) = &ack.rate else { return };
        let is_round_start = self.rounds.is_start();
        self.conserves &= !is_round_start;
        let is_probed = self.limited_until.is_some_and(|until| sample.prior_delivered <= until);
        let app_limited = sample.app_limited || is_probed;
        let in_cycle = matches!(self.mode, Mode::ProbeBandwidth { .. });
        match self.policer.sample(now, ack, app_limited, is_round_start, in_cycle) {
            Finding::None => {}
            Finding::Over => self.enter_probe_bandwidth(now),
        }
        let rate = sample.bytes_per_second();
        if !app_limited || rate >= self.bandwidth.max() {
            self.bandwidth.add(self.rounds.count(), rate);
        }
        if is_round_start && !app_limited {
            self.pipe.round(self.bandwidth.max());
        }
    }

    /// Advances the cycle when a phase has ended.
    fn update_cycle(&mut self, now: Time, ack: &Ack) {
        let Mode::ProbeBandwidth { phase, began } = self.mode else { return };
        let is_full_length = now.since(began) > self.min_rtt.get().unwrap_or(Duration::MAX);
        let rate = self.bandwidth.max();
        let gain = self.pacing_gain;
        let is_over = if gain > 1.0 {
            // The probing phase lasts until the higher rate is in flight, unless the path cannot
            // hold that much.
            let in_flight = ack.prior_in_flight + self.burst() * self.mss;
            is_full_length && (ack.lost > 0 || in_flight >= self.in_flight_at(rate, gain))
        } else if gain < 1.0 {
            is_full_length || ack.prior_in_flight <= self.in_flight_at(rate, 1.0)
        } else {
            is_full_length
        };
        if is_over {
            self.mode = Mode::ProbeBandwidth { phase: (phase + 1) % CYCLE.len(), began: now };
        }
    }

    fn check_drain(&mut self, now: Time, ack: &Ack) {
        let rate = self.bandwidth.max();
        if self.mode == Mode::Startup && self.pipe.is_full() {
            self.mode = Mode::Drain;
            self.ssthresh = self.in_flight_at(rate, 1.0);
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.in_flight_at(rate, 1.0) {
            self.enter_probe_bandwidth(now);
        }
    }

    fn update_min_rtt(&mut self, now: Time, ack: &Ack) {
        let is_old = self.min_rtt.update(now, ack.rtt, &mut self.rng);
        if is_old && !self.is_idle_restart && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.mode = Mode::ProbeRtt { until: None, is_round_over: false };
            self.save_cwnd();
        }
        self.probe_rtt(now, ack);
        if ack.newly_delivered > 0 {
            self.is_idle_restart = false;
        }
    }

    fn probe_rtt(&mut self, now: Time, ack: &Ack) {
        let Mode::ProbeRtt { until, is_round_over } = self.mode else { return };
        // Data sent now does not measure the path's rate.
        self.limited_until = Some(ack.delivered + ack.in_flight);
        match until {
            None if ack.in_flight <= WINDOW_LEAST * self.mss => {
                let until = Some(now + PROBE_RTT);
                self.mode = Mode::ProbeRtt { until, is_round_over: false };
                self.rounds.end_after(ack.delivered);
            }
            None => {}
            Some(_) => {
                let is_round_over = is_round_over || self.rounds.is_start();
                self.mode = Mode::ProbeRtt { until, is_round_over };
                if is_round_over {
                    self.end_probe_rtt(now);
                }
            }
        }
    }

    fn end_probe_rtt(&mut self, now: Time) {
        let Mode::ProbeRtt { until: Some(until), .. } = self.mode else { return };
        if now <= until {
            return;
        }
        self.min_rtt.renew(now);
        self.restore_cwnd();
        if self.pipe.is_full() {
            self.enter_probe_bandwidth(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth { .. } if self.policer.rate().is_some() => (1.0, CWND_GAIN),
            Mode::ProbeBandwidth { phase, .. } => (CYCLE[phase], CWND_GAIN),
            Mode::ProbeRtt { .. } => (1.0, 1.0),
        };
    }

    fn set_cwnd(&mut self, ack: &Ack) {
        let acked = ack.newly_delivered;
        if acked > 0 {
            self.grow_cwnd(acked, ack);
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.cwnd = self.cwnd.min(WINDOW_LEAST * self.mss);
        }
    }

    fn grow_cwnd(&mut self, acked: u64, ack: &Ack) {
        let mut cwnd = self.cwnd.saturating_sub(ack.lost).max(self.mss);
        match (std::mem::replace(&mut self.was_in_recovery, self.in_recovery), self.in_recovery) {
            (false, true) => {
                self.conserves = true;
                self.rounds.end_after(ack.delivered);
                cwnd = ack.in_flight + acked;
            }
            (true, false) => {
                self.conserves = false;
                cwnd = cwnd.max(self.prior_cwnd);
            }
            (false, false) | (true, true) => {}
        }
        if self.conserves {
            self.cwnd = cwnd.max(ack.in_flight + acked).max(self.mss);
            return;
        }
        let rate = self.rate();
        let mut target = self.bdp(rate, self.cwnd_gain);
        if self.pipe.is_full() {
            target += self.aggregation.extra(rate);
        }
        let target = self.with_room(target);
        if self.pipe.is_full() {
            cwnd = (cwnd + acked).min(target);
        } else if cwnd < target || ack.delivered < WINDOW_BLIND * self.mss {
            cwnd += acked;
        }
        self.cwnd = cwnd.max(WINDOW_LEAST * self.mss);
    }
}

impl Control for Bbr {
    fn on_established(&mut self, now: Time, rtt: Option<Duration>) {
        self.min_rtt.begin(now, rtt);
        self.set_pacing(HIGH_GAIN, rtt);
    }

    fn on_sent(&mut self, now: Time, sent: &Sent) {
        if sent.in_flight > 0 || !sent.app_limited {
            return;
        }
        self.is_idle_restart = true;
        self.aggregation.restart(now);
        match self.mode {
            Mode::Startup | Mode::Drain => {}
            Mode::ProbeBandwidth { .. } => self.set_pacing(1.0, None),
            Mode::ProbeRtt { .. } => self.end_probe_rtt(now),
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.update_rate(now, ack);
        if ack.rate.is_some() {
            let rate = self.rate();
            self.aggregation.update(
                now,
                ack.newly_delivered,
                rate,
                self.rounds.is_start(),
                self.cwnd,
            );
        }
        self.update_cycle(now, ack);
        self.check_drain(now, ack);
        self.update_min_rtt(now, ack);
        self.update_gains();
        self.set_pacing(self.pacing_gain, ack.srtt);
        self.set_cwnd(ack);
    }

    fn on_congestion(&mut self, _now: Time, congestion: &Congestion) {
        match congestion.cause {
            Cause::Loss => {
                self.save_cwnd();
                self.in_recovery = true;
            }
            // Version 1 ignores ECN marks.
            Cause::Ecn => {}
        }
    }

    fn on_recovered(&mut self, _now: Time) {
        self.in_recovery = false;
    }

    fn on_timeout(&mut self, now: Time, _timeout: &Timeout) {
        self.save_cwnd();
        (self.in_recovery, self.was_in_recovery) = (true, true);
        self.conserves = false;
        self.cwnd = self.mss;
        self.pipe.forget_rate();
        self.policer.timed_out(now);
    }

    fn on_spurious(&mut self, _now: Time) {
        self.pipe.restart();
        self.policer.restart();
        if self.in_recovery {
            self.restore_cwnd();
        }
        (self.in_recovery, self.was_in_recovery, self.conserves) = (false, false, false);
    }

    /// The known rate paces data after a pause.
    fn on_idle(&mut self, _now: Time, _idle: &Idle) {}

    fn on_mss(&mut self, mss: u64) {
        self.mss = mss.max(1);
        self.cwnd = self.cwnd.max(self.mss);
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn pacing_rate_bps(&self) -> Option<u64> {
        // At least one segment per second, whatever the estimate.
        Some((self.pacing.max(self.mss as f64) * 8.0) as u64)
    }

    fn recovery(&self) -> Recovery {
        Recovery::Own
    }

    /// The window may double in a recovery, too.
    fn windows_buffered(&self) -> u64 {
        3
    }
}
