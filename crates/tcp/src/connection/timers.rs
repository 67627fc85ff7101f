//! Timers: retransmission, persist, probes, delayed acknowledgments, keep-alive.

use std::time::Duration;

use engine::{Deadline, Time};

use super::Connection;
use crate::cc::Timeout;
use crate::indication::{CloseReason, State};

/// Purpose of the main timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Retransmission of data in flight.
    Retransmit,
    /// Tail loss probe before that.
    TailLossProbe,
    /// Probe of the peer's window.
    Persist,
}

/// Times of due events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    pub(super) main: Option<(Time, Purpose)>,
    /// Consecutive timeouts of the main timer.
    pub(super) timeouts: u32,
    pub(super) syn_at: Option<Time>,
    pub(super) ack_at: Option<Time>,
    pub(super) reorder_at: Option<Time>,
    pub(super) keep_alive_at: Option<Time>,
    pub(super) pace_at: Option<Time>,
    pub(super) linger_at: Option<Time>,
    pub(super) snack_at: Option<Time>,
    pub(super) skip_at: Option<Time>,
}

impl Timers {
    /// Shifts all timers by the length of an outage, except the wait for a peer's FIN.
    pub(super) fn put_off(&mut self, by: Duration) {
        if let Some((at, _)) = &mut self.main {
            *at += by;
        }
        let others = [
            &mut self.syn_at,
            &mut self.ack_at,
            &mut self.reorder_at,
            &mut self.keep_alive_at,
            &mut self.pace_at,
            &mut self.snack_at,
            &mut self.skip_at,
        ];
        others.into_iter().flatten().for_each(|at| *at += by);
    }
}

/// Signs of life of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    last_received: Time,
    /// Number of keep-alive probes since then.
    unanswered: u32,
    /// Whether a segment is due that the peer must reply to.
    is_probe_due: bool,
}

impl Liveness {
    pub(super) fn new(now: Time) -> Self {
        Self { last_received: now, unanswered: 0, is_probe_due: false }
    }

    /// Notes a segment of the peer.
    pub(super) fn received(&mut self, now: Time) {
        (self.last_received, self.unanswered) = (now, 0);
    }

    /// Excludes an outage of the link from the idle time.
    pub(super) fn put_off(&mut self, by: Duration) {
        self.last_received += by;
    }

    /// Makes a segment due that the peer must reply to.
    pub(super) fn call_probe(&mut self) {
        self.is_probe_due = true;
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    /// Clears the due probe.
    pub(super) fn probe_sent(&mut self) {
        self.is_probe_due = false;
    }
}

impl Connection {
    /// Time of the next due event.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        if self.is_suspended() {
            let linger = self.timers.linger_at.map(|at| Deadline { at, why: "FIN-WAIT-2" });
            let probe = self.probe_at().map(|at| Deadline { at, why: "probe of a link" });
            return linger.into_iter().chain(probe).min();
        }
        let main = self.timers.main.map(|(at, purpose)| {
            let why = match purpose {
                Purpose::Retransmit => "retransmission",
                Purpose::TailLossProbe => "tail loss probe",
                Purpose::Persist => "persist",
            };
            Deadline { at, why }
        });
        let others = [
            (self.timers.syn_at, "SYN"),
            (self.timers.ack_at, "delayed ACK"),
            (self.timers.reorder_at, "reordering"),
            (self.timers.keep_alive_at, "keep-alive"),
            (self.timers.pace_at, "pacing"),
            (self.timers.linger_at, "FIN-WAIT-2"),
            (self.timers.snack_at, "SNACK delay"),
            (self.timers.skip_at, "BETS"),
        ];
        let others = others.into_iter().filter_map(|(at, why)| Some(Deadline { at: at?, why }));
        main.into_iter().chain(others).min()
    }

    /// Processes due events.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        if self.is_suspended() {
            if due(&mut self.timers.linger_at) {
                self.end(CloseReason::Graceful);
            } else if self.probe_at().is_some_and(|at| at <= now) {
                self.probe_link(now);
            }
            return;
        }
        // Pacing only needs a wake-up.
        due(&mut self.timers.pace_at);
        if due(&mut self.timers.ack_at) {
            self.acks.hasten();
        }
        if due(&mut self.timers.syn_at) {
            self.syn_timed_out();
        }
        if due(&mut self.timers.linger_at) {
            self.end(CloseReason::Graceful);
        }
        if due(&mut self.timers.snack_at) {
            self.snack_due(now);
        }
        if due(&mut self.timers.skip_at) {
            self.skip_hole(now);
        }
        if due(&mut self.timers.reorder_at) {
            self.reordering_timed_out(now);
        }
        if due(&mut self.timers.keep_alive_at) {
            self.keep_alive(now);
        }
        if let Some((_, purpose)) = self.timers.main.take_if(|(at, _)| *at <= now) {
            match purpose {
                Purpose::Retransmit => self.retransmission_timed_out(now),
                Purpose::TailLossProbe => self.probe_timed_out(now),
                Purpose::Persist => self.persist_timed_out(now),
            }
        }
    }

    fn syn_timed_out(&mut self) {
        if self.handshake.timed_out() > self.options.syn_retries {
            return self.end(CloseReason::TimedOut);
        }
        self.rtt.back_off();
        self.handshake.call_syn();
    }

    fn retransmission_timed_out(&mut self, now: Time) {
        if self.board.is_empty() {
            return;
        }
        if self.timers.timeouts == 0 {
            self.space.give_up_at = self.blames_corruption(now).then(|| now + self.patience());
        }
        if self
            .space
            .give_up_at
            .map_or(self.timers.timeouts >= self.options.retries, |at| now >= at)
        {
            return self.end(CloseReason::TimedOut);
        }
        self.timers.timeouts = self.timers.timeouts.saturating_add(1);
        self.counts.timeouts += 1;
        self.losses.timed_out();
        self.timers.reorder_at = None;
        self.suspect_black_hole(now);
        if self.blames_corruption(now) {
            self.corrupted_at_time_out();
            self.rtt.keep();
        } else {
            self.restart(now);
            self.rtt.back_off();
        }
        self.arm_retransmission(now);
    }

    /// Restarts as the congestion control requires.
    fn restart(&mut self, now: Time) {
        let flight_size = self.board.out();
        let is_first = self.timers.timeouts == 1;
        if is_first {
            self.note_undo(now);
        }
        self.board.lose_all();
        self.control.timed_out(now, &Timeout { flight_size, is_first });
        self.losses.restart(self.snd.nxt(), false);
    }

    /// Keeps window and timeout (CCSDS 714.0-B-2). To a peer that reports holes, the first and the
    /// last segment are sent: the first is missing, and the last reveals other holes.
    fn corrupted_at_time_out(&mut self) {
        self.counts.corruptions += 1;
        if self.snack().is_some() {
            self.board.lose_ends();
            return;
        }
        self.board.lose_all();
        self.losses.restart(self.snd.nxt(), true);
    }

    fn probe_timed_out(&mut self, now: Time) {
        if self.board.is_empty() {
            return;
        }
        if !self.losses.is_open() {
            return self.arm_retransmission(now);
        }
        self.losses.call_probe();
        self.timers.main = Some((now + self.rtt.timeout(), Purpose::Retransmit));
    }

    fn persist_timed_out(&mut self, now: Time) {
        if self.timers.timeouts >= self.options.retries {
            return self.end(CloseReason::TimedOut);
        }
        self.rtt.back_off();
        if self.snd.usable() > 0 {
            self.snd.override_window();
        } else {
            // The probe counts until a reply arrives (RFC 9293 §3.8.6.1).
            self.timers.timeouts += 1;
            self.counts.window_probes += 1;
            self.liveness.call_probe();
        }
        self.timers.main = Some((now + self.rtt.timeout(), Purpose::Persist));
    }

    fn keep_alive(&mut self, now: Time) {
        let Some(keep_alive) = self.options.keep_alive else { return };
        let due = self.liveness.last_received + keep_alive.idle;
        if self.liveness.unanswered == 0 && due > now {
            self.timers.keep_alive_at = Some(due);
            return;
        }
        if self.board.is_empty() && self.send.is_empty() {
            if self.liveness.unanswered >= keep_alive.probes {
                return self.end(CloseReason::TimedOut);
            }
            self.liveness.unanswered += 1;
            self.liveness.call_probe();
        }
        self.timers.keep_alive_at = Some(now + keep_alive.interval);
    }

    pub(super) fn rearm_keep_alive(&mut self, now: Time) {
        self.liveness.unanswered = 0;
        if let Some(keep_alive) = self.options.keep_alive
            && self.timers.keep_alive_at.is_none()
        {
            self.timers.keep_alive_at = Some(now + keep_alive.idle);
        }
    }

    /// Rearms the main timer, after news or a transmission.
    pub(super) fn arm_retransmission(&mut self, now: Time) {
        if self.board.is_empty() || self.state == State::Closed {
            self.timers.main = None;
            return;
        }
        let timeout = self.rtt.timeout();
        self.timers.main = match self.probe_patience() {
            Some(patience) if patience < timeout => Some((now + patience, Purpose::TailLossProbe)),
            Some(_) | None => Some((now + timeout, Purpose::Retransmit)),
        };
    }

    /// Schedules a tail loss probe before the timeout started by the first segment, which was alone
    /// and would have waited for the peer's delayed acknowledgment.
    pub(super) fn arm_earlier_probe(&mut self, now: Time) {
        let at = self.probe_patience().map(|patience| now + patience);
        let (Some(at), Some((timeout, _))) = (at, self.timers.main) else { return };
        if at < timeout {
            self.timers.main = Some((at, Purpose::TailLossProbe));
        }
    }

    /// Delay of a tail loss probe (RFC 8985 §7.2), if allowed.
    fn probe_patience(&self) -> Option<Duration> {
        let wanted = self.options.tail_loss_probe && self.losses.sack() && self.losses.is_open();
        if !wanted || !self.losses.has_no_probe() || self.board.has_sacked() {
            return None;
        }
        let smoothed = self.rtt.smoothed()?;
        // A single segment may wait for the peer's delayed acknowledgment.
        let single = self.board.out() <= self.mss();
        let patience =
            smoothed * 2 + if single { Duration::from_millis(200) } else { Duration::ZERO };
        // A round trip may be below the clock's resolution, and a deadline lies in the future.
        Some(patience.max(Duration::from_millis(1)))
    }

    /// Waits for the peer's window, unless something else will arrive.
    pub(super) fn arm_persist(&mut self, now: Time) {
        if self.timers.main.is_none() {
            self.timers.main = Some((now + self.rtt.timeout(), Purpose::Persist));
        }
    }

    /// Stops the persist timer: something can be sent, or nothing needs to be.
    pub(super) fn end_persist(&mut self) {
        if matches!(self.timers.main, Some((_, Purpose::Persist))) {
            self.timers.main = None;
            self.rtt.end_backoff();
        }
    }
}
