//! What is lost, what follows from that, and what turns out not to have been lost
//! (RFC 6582, RFC 6675, RFC 8985, RFC 3708, RFC 4015).

use std::time::Duration;

use engine::Time;

use super::ack::News;
use super::{Connection, Undo};
use crate::tcp::cc::{self, Cause, Congestion};
use crate::tcp::recovery::{Phase, Recovery};
use crate::tcp::seq;

/// Duplicate acknowledgments that make a loss (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;

impl Connection {
    /// Judges what an acknowledgment means for what is in flight. Returns octets newly held for lost.
    pub(super) fn judge(&mut self, now: Time, news: &News) -> u64 {
        self.end_probe(now, news);
        if news.duplicate {
            self.duplicates += 1;
            self.counts.duplicate_acks += 1;
        } else if news.advanced {
            self.duplicates = 0;
        }
        let lost = if self.snack().is_some() {
            self.lost_by_snack(news)
        } else if !self.sack {
            self.lost_without_sack(news)
        } else if self.options.rack {
            self.lost_by_time(now)
        } else {
            self.lost_by_scoreboard()
        };
        let begins = match self.phase {
            Phase::Open | Phase::Reduced { .. } => self.board.lost() > 0,
            Phase::Recovery(_) | Phase::Restarted { .. } => false,
        };
        if begins {
            self.begin_recovery(now);
        }
        lost
    }

    fn lost_by_scoreboard(&mut self) -> u64 {
        let edge = self.board.loss_edge(self.mss());
        let lost = edge.map_or(0, |edge| self.board.lose_to(edge));
        if self.duplicates >= DUPLICATES && self.phase.is_open() {
            return lost + self.board.lose_first();
        }
        lost
    }

    fn lost_by_time(&mut self, now: Time) -> u64 {
        let (lost, again) = self.board.lose_by_time(now, self.allowance());
        self.timers.reorder_at = again;
        lost
    }

    /// How much later than what was sent after it a segment may come (RFC 8985 §6.2).
    fn allowance(&self) -> Duration {
        let enough = self.board.sacked() >= u64::from(DUPLICATES) * self.mss();
        if !self.board.is_reordered() && (!self.phase.is_open() || enough) {
            return Duration::ZERO;
        }
        let least = self.rtt.least().unwrap_or_default();
        let allowance = least / 4 * self.board.reordering_steps();
        allowance.min(self.rtt.smoothed().unwrap_or_default())
    }

    /// The reordering timer ran out: what has not come by now is lost.
    pub(super) fn reordering_timed_out(&mut self, now: Time) {
        self.lost_by_time(now);
        let begins = match self.phase {
            Phase::Open | Phase::Reduced { .. } => self.board.lost() > 0,
            Phase::Recovery(_) | Phase::Restarted { .. } => false,
        };
        if begins {
            self.begin_recovery(now);
        }
    }

    /// Duplicate acknowledgments say how many segments have left, but not which (RFC 6582).
    fn lost_without_sack(&mut self, news: &News) -> u64 {
        match &self.phase {
            Phase::Open | Phase::Reduced { .. } => {
                if news.advanced {
                    self.board.clear_phantom();
                }
                if news.duplicate {
                    self.board.add_phantom(self.mss());
                }
                if self.duplicates >= DUPLICATES && self.una > self.recover {
                    return self.board.lose_first();
                }
            }
            Phase::Recovery(recovery) => {
                let over = self.una >= recovery.point;
                if news.duplicate {
                    self.board.add_phantom(self.mss());
                } else if news.advanced && !over {
                    // A partial acknowledgment: all but the segment sent again had left before.
                    self.board.take_phantom(news.delivery.acked.saturating_sub(self.mss()));
                    self.urgent = true;
                    return self.board.lose_first();
                }
            }
            Phase::Restarted { .. } => {}
        }
        0
    }

    /// Something was lost.
    pub(super) fn begin_recovery(&mut self, now: Time) {
        let corrupted = self.blames_corruption(now);
        self.counts.corruptions += u64::from(corrupted);
        let blameless = corrupted || self.lost_probe_alone();
        if corrupted && self.snack().is_some() {
            // The peer says what is missing, so there is nothing to probe for.
            self.urgent = true;
            return;
        }
        let flight = self.board.out();
        let before = self.control.cwnd();
        let cwnd_limited = self.limited_to.is_some_and(|to| self.una < to);
        self.space.spared = blameless && self.phase.is_open();
        if self.phase.is_open() && !blameless {
            let congestion = Congestion { cause: Cause::Loss, flight_size: flight, cwnd_limited };
            self.control.on_congestion(now, &congestion);
        }
        self.counts.recoveries += 1;
        if !blameless {
            self.note_undo(now);
        }
        (self.recover, self.urgent) = (self.nxt, true);
        self.phase = if self.control.recovery() == cc::Recovery::Restart && !blameless {
            self.board.lose_all();
            Phase::Restarted { point: self.nxt }
        } else {
            let target = self.control.cwnd();
            let how = self.options.recovery;
            Phase::Recovery(Recovery::new(how, self.nxt, flight, before, target))
        };
    }

    /// What is done from now on may have to be taken back.
    pub(super) fn note_undo(&mut self, now: Time) {
        if self.options.undo {
            let stamp = self.stamps.map(|_| self.stamp(now));
            self.undo = Some(Undo { stamp, unexplained: 0, any: false });
        }
    }

    /// Octets are sent again.
    pub(super) fn note_resent(&mut self, octets: u64) {
        if let Some(undo) = &mut self.undo {
            undo.unexplained += octets;
            undo.any = true;
        }
    }

    /// Takes back what was done for a loss that was none: the acknowledgment echoes the original
    /// (RFC 3522), or all that was sent again has come twice (RFC 3708).
    pub(super) fn undo_if_spurious(&mut self, now: Time, news: &News) {
        let Some(undo) = &mut self.undo else { return };
        if let Some((left, right)) = news.twice
            && right <= self.recover
        {
            undo.unexplained = undo.unexplained.saturating_sub(right - left);
        }
        let came_twice = undo.any && undo.unexplained == 0 && news.twice.is_some();
        let echoed = news.advanced.then_some(news.echo).flatten().zip(undo.stamp);
        let original = echoed.is_some_and(|(echo, stamp)| seq::is_older(echo, stamp));
        if news.advanced {
            // Only the first acknowledgment can tell by its echo.
            undo.stamp = None;
        }
        if !(came_twice || (original && undo.any && !self.phase.is_open())) {
            return;
        }
        self.undo = None;
        self.counts.spurious += 1;
        self.control.on_spurious(now);
        self.board.was_reordered();
        self.board.forgive();
        self.duplicates = 0;
        self.urgent = false;
        self.rtt.end_backoff();
        self.phase = Phase::Open;
    }

    /// Whether a tail loss probe has repaired something (RFC 8985 §7.4).
    fn end_probe(&mut self, now: Time, news: &News) {
        let Some((end, resent)) = self.probe_end.filter(|(end, _)| self.una >= *end) else {
            return;
        };
        if !resent || news.twice.is_some() {
            self.probe_end = None;
        } else if self.una > end {
            self.probe_end = None;
            if self.phase.is_open() && !self.blames_corruption(now) {
                let flight_size = self.board.out() + self.mss();
                let congestion = Congestion { cause: Cause::Loss, flight_size, cwnd_limited: true };
                self.control.on_congestion(now, &congestion);
                self.control.on_recovered(now);
            }
        } else if !news.advanced && !news.sacked {
            self.probe_end = None;
        }
    }
}
