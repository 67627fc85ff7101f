//! Losses, the recovery from them, and spurious ones (RFC 6582, RFC 6675, RFC 8985, RFC 3708,
//! RFC 4015).

use std::time::Duration;

use engine::Time;

use super::Connection;
use super::ack::News;
use crate::cc::Cause;
use crate::recovery::{Phase, Recovery};
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::seq;

/// Duplicate acknowledgments that indicate a loss (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;

/// Reaction to a loss that may be spurious.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Timestamp that only a later transmission carries: an older echo shows a spurious loss.
    stamp: Option<u32>,
    /// Retransmitted bytes that are not reported as duplicates.
    unexplained: u64,
    any: bool,
}

/// Tail loss probe (RFC 8985 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailProbe {
    None,
    Due,
    /// Sent up to this end.
    Sent {
        end: u64,
        resent: bool,
    },
}

/// Losses of a connection, and the recovery from them.
#[derive(Debug)]
pub(super) struct Losses {
    phase: Phase,
    /// Whether the current recovery is not due to congestion, and unknown to the congestion
    /// control.
    spared: bool,
    /// Whether the peer sends SACK.
    sack: bool,
    /// Consecutive duplicate acknowledgments.
    duplicates: u32,
    /// SND.NXT when a recovery or a timeout last began.
    recover: u64,
    /// Whether the first lost segment is sent regardless of the window.
    urgent: bool,
    undo: Option<Undo>,
    probe: TailProbe,
}

impl Losses {
    pub(super) fn new(iss: u64) -> Self {
        Self {
            phase: Phase::Open,
            spared: false,
            sack: false,
            duplicates: 0,
            recover: iss,
            urgent: false,
            undo: None,
            probe: TailProbe::None,
        }
    }

    pub(super) fn agree_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    pub(super) fn sack(&self) -> bool {
        self.sack
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase.is_open()
    }

    /// Whether the congestion control must not grow its window, because of a loss or a mark.
    pub(super) fn holds_window(&self) -> bool {
        self.phase.holds_window()
    }

    /// Whether the current recovery is not due to congestion.
    pub(super) fn is_spared(&self) -> bool {
        self.spared
    }

    pub(super) fn recovery(&mut self) -> Option<&mut Recovery> {
        match &mut self.phase {
            Phase::Recovery(recovery) => Some(recovery),
            Phase::Open | Phase::Reduced { .. } | Phase::Restarted { .. } => None,
        }
    }

    /// Whether a recovery must start.
    fn begins(&self, board: &Scoreboard) -> bool {
        match self.phase {
            Phase::Open | Phase::Reduced { .. } => board.lost() > 0,
            Phase::Recovery(_) | Phase::Restarted { .. } => false,
        }
    }

    /// Starts a recovery.
    fn begin(&mut self, phase: Phase, point: u64, spared: bool) {
        self.phase = phase;
        self.spared = spared;
        self.recover = point;
        self.urgent = true;
    }

    /// Reduces the window for a mark until `point` is acknowledged.
    pub(super) fn reduce(&mut self, point: u64) {
        self.phase = Phase::Reduced { point };
        self.undo = None;
    }

    /// Retransmits everything until `point` is acknowledged.
    pub(super) fn restart(&mut self, point: u64, spared: bool) {
        self.phase = Phase::Restarted { point };
        self.spared = spared;
        self.recover = point;
    }

    /// Retransmits segments in flight as shorter ones, which is not due to congestion.
    pub(super) fn cut(&mut self, point: u64) {
        self.restart(point, self.spared || self.phase.is_open());
        (self.duplicates, self.urgent) = (0, true);
        (self.undo, self.probe) = (None, TailProbe::None);
    }

    /// Notes an expired retransmission timer.
    pub(super) fn timed_out(&mut self) {
        (self.duplicates, self.probe) = (0, TailProbe::None);
        self.urgent = true;
    }

    /// Whether an acknowledgment up to `una` ends a recovery, a reduction or a restart. The first
    /// that advances may end a recovery.
    pub(super) fn is_over(&self, una: u64, by_first: bool, advanced: bool) -> bool {
        match &self.phase {
            Phase::Open => false,
            Phase::Reduced { point } | Phase::Restarted { point } => una >= *point,
            Phase::Recovery(recovery) => una >= recovery.point || (by_first && advanced),
        }
    }

    /// Ends a recovery, a reduction or a restart. Returns whether it was due to congestion.
    pub(super) fn end(&mut self, board: &mut Scoreboard) -> bool {
        board.clear_phantom();
        if matches!(self.phase, Phase::Recovery(_)) {
            board.recovered();
        }
        self.duplicates = 0;
        self.phase = Phase::Open;
        !std::mem::take(&mut self.spared)
    }

    /// Sends the first lost segment regardless of the window.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub(super) fn take_urgent(&mut self) -> bool {
        std::mem::take(&mut self.urgent)
    }

    /// Makes a tail loss probe due.
    pub(super) fn call_probe(&mut self) {
        self.probe = TailProbe::Due;
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.probe == TailProbe::Due
    }

    /// Whether no tail loss probe is due or in flight.
    pub(super) fn has_no_probe(&self) -> bool {
        self.probe == TailProbe::None
    }

    /// Takes a due tail loss probe. Returns whether there was one.
    pub(super) fn take_due_probe(&mut self) -> bool {
        let is_due = self.is_probe_due();
        if is_due {
            self.probe = TailProbe::None;
        }
        is_due
    }

    /// Notes a sent tail loss probe.
    pub(super) fn probe_sent(&mut self, end: u64, resent: bool) {
        self.probe = TailProbe::Sent { end, resent };
    }

    /// Ends a tail loss probe. Returns whether it repaired a loss (RFC 8985 §7.4).
    fn probe_repaired(&mut self, una: u64, news: &News) -> bool {
        let TailProbe::Sent { end, resent } = self.probe else { return false };
        if una < end {
            return false;
        }
        let arrived = !resent || news.twice.is_some();
        if arrived || una > end || (!news.advanced && !news.sacked) {
            self.probe = TailProbe::None;
        }
        !arrived && una > end
    }

    /// Stops sending.
    pub(super) fn stop(&mut self) {
        self.urgent = false;
        if self.is_probe_due() {
            self.probe = TailProbe::None;
        }
    }

    /// Counts duplicate acknowledgments.
    fn count(&mut self, news: &News) {
        if news.duplicate {
            self.duplicates += 1;
        } else if news.advanced {
            self.duplicates = 0;
        }
    }

    fn lost_by_scoreboard(&self, board: &mut Scoreboard, mss: u64) -> u64 {
        let edge = board.loss_edge(mss);
        let lost = edge.map_or(0, |edge| board.lose_to(edge));
        if self.duplicates >= DUPLICATES && self.is_open() {
            return lost + board.lose_first();
        }
        lost
    }

    /// Time by which a segment may arrive after a later one (RFC 8985 §6.2).
    fn allowance(&self, board: &Scoreboard, rtt: &Rtt, mss: u64) -> Duration {
        let enough = board.sacked() >= u64::from(DUPLICATES) * mss;
        if !board.is_reordered() && (!self.is_open() || enough) {
            return Duration::ZERO;
        }
        let least = rtt.least().unwrap_or_default();
        let allowance = least / 4 * board.reordering_steps();
        allowance.min(rtt.smoothed().unwrap_or_default())
    }

    /// Applies duplicate acknowledgments, which count delivered segments without naming them
    /// (RFC 6582).
    fn lost_without_sack(
        &mut self,
        board: &mut Scoreboard,
        news: &News,
        una: u64,
        mss: u64,
    ) -> u64 {
        match &self.phase {
            Phase::Open | Phase::Reduced { .. } => {
                if news.advanced {
                    board.clear_phantom();
                }
                if news.duplicate {
                    board.add_phantom(mss);
                }
                if self.duplicates >= DUPLICATES && una > self.recover {
                    return board.lose_first();
                }
            }
            Phase::Recovery(recovery) => {
                let over = una >= recovery.point;
                if news.duplicate {
                    board.add_phantom(mss);
                } else if news.advanced && !over {
                    // Partial acknowledgment: all but the retransmitted segment were already
                    // counted.
                    board.take_phantom(news.delivery.acked.saturating_sub(mss));
                    self.urgent = true;
                    return board.lose_first();
                }
            }
            Phase::Restarted { .. } => {}
        }
        0
    }

    /// Notes the start of a reaction that may have to be undone; `resent` bytes of earlier
    /// retransmissions are in flight.
    fn note_undo(&mut self, stamp: Option<u32>, resent: u64) {
        // The acknowledgment of an earlier retransmission echoes an older timestamp, too.
        let stamp = stamp.filter(|_| resent == 0);
        self.undo = Some(Undo { stamp, unexplained: resent, any: false });
    }

    /// Notes retransmitted bytes.
    pub(super) fn note_resent(&mut self, bytes: u64) {
        if let Some(undo) = &mut self.undo {
            undo.unexplained += bytes;
            undo.any = true;
        }
    }

    /// Returns whether a loss was spurious: the acknowledgment echoes the original (RFC 3522), or
    /// everything retransmitted arrived twice (RFC 3708).
    fn detect_spurious(&mut self, news: &News) -> bool {
        let Some(undo) = &mut self.undo else { return false };
        if let Some((left, right)) = news.twice
            && right <= self.recover
        {
            undo.unexplained = undo.unexplained.saturating_sub(right - left);
        }
        let came_twice = undo.any && undo.unexplained == 0 && news.twice.is_some();
        let echoed = news.advanced.then_some(news.echo).flatten().zip(undo.stamp);
        let original = echoed.is_some_and(|(echo, stamp)| seq::is_older(echo, stamp));
        if news.advanced {
            // Only the first acknowledgment can show a spurious loss by its echo.
            undo.stamp = None;
        }
        came_twice || (original && undo.any && !self.phase.is_open())
    }

    /// Undoes the reaction to a spurious loss.
    fn forgive(&mut self) {
        (self.undo, self.phase) = (None, Phase::Open);
        (self.duplicates, self.urgent) = (0, false);
    }
}

impl Connection {
    /// Detects losses after an acknowledgment. Returns the bytes newly considered lost.
    pub(super) fn judge(&mut self, now: Time, news: &News) -> u64 {
        self.end_probe(now, news);
        self.losses.count(news);
        self.counts.duplicate_acks += u64::from(news.duplicate);
        let (una, mss) = (self.snd.una(), self.mss());
        let lost = if self.snack().is_some() {
            self.lost_by_snack(news)
        } else if !self.losses.sack() {
            self.losses.lost_without_sack(&mut self.board, news, una, mss)
        } else if self.options.rack {
            self.lost_by_time(now)
        } else {
            self.losses.lost_by_scoreboard(&mut self.board, mss)
        };
        self.begin_recovery_if_lost(now);
        lost
    }

    fn lost_by_time(&mut self, now: Time) -> u64 {
        let allowance = self.losses.allowance(&self.board, &self.rtt, self.mss());
        let (lost, again) = self.board.lose_by_time(now, allowance);
        self.timers.reorder_at = again;
        lost
    }

    /// Handles the reordering timer: segments still missing are lost.
    pub(super) fn reordering_timed_out(&mut self, now: Time) {
        self.lost_by_time(now);
        self.begin_recovery_if_lost(now);
    }

    fn begin_recovery_if_lost(&mut self, now: Time) {
        if self.losses.begins(&self.board) {
            self.begin_recovery(now);
        }
    }

    /// Starts the recovery from a loss.
    pub(super) fn begin_recovery(&mut self, now: Time) {
        let corrupted = self.blames_corruption(now);
        self.counts.corruptions += u64::from(corrupted);
        let blameless = corrupted || self.lost_probe_alone();
        if corrupted && self.snack().is_some() {
            // The peer reports missing data, so no probe is necessary.
            self.losses.hurry();
            return;
        }
        let (flight, nxt) = (self.board.out(), self.snd.nxt());
        let before = self.control.cwnd();
        let spared = blameless && self.losses.is_open();
        if self.losses.is_open() && !blameless {
            let cwnd_limited = self.control.is_limited(self.snd.una());
            self.control.congested(now, Cause::Loss, flight, cwnd_limited);
        }
        self.counts.recoveries += 1;
        if !blameless {
            self.note_undo(now);
        }
        let phase = if self.control.restarts() && !blameless {
            self.board.lose_all();
            Phase::Restarted { point: nxt }
        } else {
            let target = self.control.cwnd();
            let how = self.options.recovery;
            Phase::Recovery(Recovery::new(how, nxt, flight, before, target))
        };
        self.losses.begin(phase, nxt, spared);
    }

    /// Notes the start of a reaction that may have to be undone.
    pub(super) fn note_undo(&mut self, now: Time) {
        if self.options.undo {
            let stamp = self.stamps.are_agreed().then(|| self.stamps.clock(now));
            self.losses.note_undo(stamp, self.board.resent());
        }
    }

    /// Undoes the reaction to a spurious loss.
    pub(super) fn undo_if_spurious(&mut self, now: Time, news: &News) {
        if !self.losses.detect_spurious(news) {
            return;
        }
        self.counts.spurious += 1;
        self.control.spurious(now);
        self.board.on_late_segment();
        self.board.forgive();
        self.losses.forgive();
        self.rtt.end_backoff();
    }

    /// Ends a tail loss probe; one that repaired a loss indicates congestion.
    fn end_probe(&mut self, now: Time, news: &News) {
        let repaired = self.losses.probe_repaired(self.snd.una(), news);
        if repaired && self.losses.is_open() && !self.blames_corruption(now) {
            let flight_size = self.board.out() + self.mss();
            self.control.congested(now, Cause::Loss, flight_size, true);
            self.control.recovered(now);
        }
    }
}
