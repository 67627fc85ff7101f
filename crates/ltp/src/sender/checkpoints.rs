//! Checkpoints of a sending session: those that await a report, and their retransmission (RFC 5326
//! §6.2, §6.7).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;
use session::path::Class;

use super::super::config::Timer;
use super::super::core::{Alarm, Core};
use super::super::indication::{Cause, Failure};
use super::super::silence::{Probe, Silence};
use super::super::supply::Supply;
use super::{Phase, Sender};
use crate::segment::{CancelReason, End, Report};

/// Number of checkpoints, the newest, retransmitted at once when a path comes back.
const RESUMED_MAX: usize = 16;

/// Checkpoint without a report.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    start: u64,
    end: u64,
    /// Scope of the report to which the checkpoint replies.
    scope: Option<(u64, u64)>,
    /// Serial number of the report to which the checkpoint replies; 0 if none.
    report: u64,
    attempts: u32,
    /// Whether the next segment that carries the checkpoint is another attempt rather than a copy.
    is_due: bool,
    /// Whether the checkpoint waits for a reply while another checkpoint is retransmitted.
    is_held: bool,
    left: Time,
    first_left: Time,
}

/// Consecutive late replies.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    replies: u32,
    least: Duration,
}

impl Late {
    /// Number of consecutive late replies that show a longer round trip. After a single one, a
    /// report may have been lost.
    const GROWTH: u32 = 3;

    /// Records a reply that took `took`. Returns the time to add to the estimate.
    fn sample(&mut self, took: Duration, is_late: bool) -> Option<Duration> {
        if !is_late {
            *self = Self::default();
            return Some(took);
        }
        let least = if self.replies == 0 { took } else { self.least.min(took) };
        *self = Self { replies: self.replies + 1, least };
        (self.replies >= Self::GROWTH).then(|| std::mem::take(self).least)
    }
}

impl Outstanding {
    fn new(end: u64, report: u64, scope: Option<(u64, u64)>) -> Self {
        Self {
            start: end,
            end,
            scope,
            report,
            attempts: 0,
            is_due: true,
            is_held: false,
            left: Time::ZERO,
            first_left: Time::ZERO,
        }
    }

    /// Whether a report on this scope covers the checkpoint's scope.
    fn is_within(&self, lower: u64, upper: u64) -> bool {
        let (start, end) = self.scope.unwrap_or((self.start, self.end));
        lower <= start && end <= upper
    }
}

/// Checkpoints of a session.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Checkpoints without a report.
    open: BTreeMap<u64, Outstanding>,
    /// Serial number of the checkpoint at each end offset.
    ends: BTreeMap<u64, u64>,
    /// Serial number of the next checkpoint.
    serial: u64,
    late: Late,
    /// New red bytes sent since the last checkpoint that was set in new data, and the time of that
    /// checkpoint; before the first one, the time of the first segment.
    unchecked: u64,
    checked_at: Option<Time>,
}

impl Checkpoints {
    pub(super) fn new(serial: u64) -> Self {
        let (open, ends, late) = (BTreeMap::new(), BTreeMap::new(), Late::default());
        Self { open, ends, serial, late, unchecked: 0, checked_at: None }
    }

    /// Serial number of the next checkpoint.
    pub(super) fn next(&self) -> u64 {
        self.serial
    }

    /// Serial number of the checkpoint that ends at `end`.
    pub(super) fn serial_at(&self, end: u64) -> Option<u64> {
        self.ends.get(&end).copied()
    }

    /// Serial number of the report to which the checkpoint replies; 0 if none.
    pub(super) fn report(&self, serial: u64) -> u64 {
        self.open.get(&serial).map_or(0, |checkpoint| checkpoint.report)
    }

    /// Whether this checkpoint awaits a report.
    pub(super) fn contains(&self, serial: u64) -> bool {
        self.open.contains_key(&serial)
    }

    /// Whether `len` new red bytes sent at `at` become a checkpoint, if one is due after `every`
    /// bytes or `interval`.
    pub(super) fn is_due(
        &self,
        len: u64,
        at: Time,
        every: Option<u64>,
        interval: Option<Duration>,
    ) -> bool {
        let waited = self.checked_at.map(|before| at.since(before));
        every.is_some_and(|every| self.unchecked + len >= every)
            || interval.zip(waited).is_some_and(|(most, waited)| waited >= most)
    }

    /// Counts new red data that was sent.
    pub(super) fn data_left(&mut self, len: u64, at: Time) {
        self.unchecked += len;
        self.checked_at.get_or_insert(at);
    }

    /// Notes that new data was sent as a checkpoint.
    pub(super) fn new_left(&mut self, at: Time) {
        (self.unchecked, self.checked_at) = (0, Some(at));
    }

    /// Sets a checkpoint at `end`, in reply to a report with this scope or to none. Returns its
    /// serial number.
    pub(super) fn set(&mut self, end: u64, report: u64, scope: Option<(u64, u64)>) -> u64 {
        let serial = self.serial;
        self.serial += 1;
        if let Some(before) = self.ends.insert(end, serial) {
            // The segment that ends there carries the new number from now on.
            self.open.remove(&before);
        }
        self.open.insert(serial, Outstanding::new(end, report, scope));
        serial
    }

    /// Checkpoints sent, by serial number.
    fn sent(&self) -> impl DoubleEndedIterator<Item = (&u64, &Outstanding)> {
        self.open.iter().filter(|(_, checkpoint)| checkpoint.attempts > 0)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.ends.clear();
    }

    /// Forgets one.
    fn remove(&mut self, serial: u64) {
        if let Some(over) = self.open.remove(&serial)
            && self.ends.get(&over.end) == Some(&serial)
        {
            self.ends.remove(&over.end);
        }
    }
}

impl Sender {
    /// Notes that a segment with a checkpoint was sent.
    pub(super) fn checkpoint_left(&mut self, core: &mut Core, at: Time, serial: u64, start: u64) {
        if self.checkpoints.sent().next().is_none() {
            // Nothing required a reply before.
            self.base.last_received = self.base.last_received.max(at);
        }
        let silence = self.silence(core, at);
        let Some(checkpoint) = self.checkpoints.open.get_mut(&serial) else { return };
        if checkpoint.attempts == 0 {
            checkpoint.first_left = at;
        }
        checkpoint.start = start;
        checkpoint.left = at;
        checkpoint.is_held = false;
        checkpoint.attempts += u32::from(std::mem::take(&mut checkpoint.is_due));
        let wait = core.probe_wait(
            self.base.seat.path,
            at,
            silence,
            self.peer.remote.checkpoint_timer,
            Probe::Checkpoint,
        );
        self.base.alarm(&mut core.shared, Alarm::Checkpoint(serial), at, wait);
    }

    /// Silence of the receiver since a checkpoint first awaited a report. Segments of other
    /// sessions end it.
    fn silence(&self, core: &Core, now: Time) -> Silence {
        let reply = core.answer_time(&self.base, &self.peer.remote);
        let of_path = self.base.seat.path.and_then(|path| core.received_at.get(&path)).copied();
        let last_sign =
            of_path.map_or(self.base.last_received, |at| at.max(self.base.last_received));
        Silence { reply, lasts: now.since(last_sign) }
    }

    /// Handles a missing report on a checkpoint (§6.7).
    pub(super) fn on_checkpoint_overdue(&mut self, core: &mut Core, now: Time, serial: u64) {
        let Some(checkpoint) = self.checkpoints.open.get_mut(&serial) else { return };
        let attempts = checkpoint.attempts;
        let silence = self.silence(core, now);
        let remote = &self.peer.remote;
        if remote.retransmission_limit.is_some_and(|limit| attempts > limit) {
            self.cancel(core, CancelReason::RetransmissionLimit);
            return;
        }
        if now.since(self.base.last_received) >= remote.silence_max(silence.reply) {
            let failure = Failure::new(End::Sender, CancelReason::RetransmissionLimit);
            self.fail(core, Failure { cause: Some(Cause::Silence), ..failure });
            return;
        }
        let newest = |(serial, checkpoint): &(&u64, &Outstanding)| (checkpoint.end, **serial);
        let is_probe =
            self.checkpoints.sent().max_by_key(newest).is_some_and(|(newest, _)| *newest == serial);
        let may_hold = remote.checkpoint_timer == Timer::Auto;
        if let Some(checkpoint) = self.checkpoints.open.get_mut(&serial) {
            checkpoint.is_due = true;
            checkpoint.is_held = may_hold && silence.is_long() && !is_probe;
            if checkpoint.is_held {
                return;
            }
        }
        self.retransmit(core, serial);
    }

    /// Queues the segment of a checkpoint for retransmission.
    fn retransmit(&mut self, core: &mut Core, serial: u64) {
        let Some(checkpoint) = self.checkpoints.open.get(&serial) else { return };
        let (start, end, content) = (checkpoint.start, checkpoint.end, self.layout.content);
        if let Some(source) = self.source.as_mut()
            && start < content
        {
            source.request(start, end.min(content), usize::MAX);
            source.read_repairs(core, self.base.seat.handle);
        }
        self.layout.description_due |= end > content;
        self.base.want(&mut core.shared, Class::Repair);
    }

    /// Retransmits held checkpoints once the receiver replies.
    pub(super) fn release_held(&mut self, core: &mut Core) {
        if self.phase != Phase::Sending {
            return;
        }
        let held = self.checkpoints.open.iter().filter(|(_, checkpoint)| checkpoint.is_held);
        for serial in held.map(|(serial, _)| *serial).collect::<Vec<_>>() {
            if let Some(checkpoint) = self.checkpoints.open.get_mut(&serial) {
                checkpoint.is_held = false;
            }
            self.retransmit(core, serial);
        }
    }

    /// Retransmits checkpoints that await a report at once when the path or its return link comes
    /// up: they or their reports may have been lost. A retransmission limit keeps counting.
    pub(super) fn resume_checkpoints(&mut self, core: &mut Core) {
        if self.peer.remote.retransmission_limit.is_some() {
            return;
        }
        let newest = self.checkpoints.sent().rev().take(RESUMED_MAX).map(|(serial, _)| *serial);
        for serial in newest.collect::<Vec<_>>() {
            if let Some(checkpoint) = self.checkpoints.open.get_mut(&serial) {
                (checkpoint.is_due, checkpoint.is_held) = (true, false);
            }
            self.retransmit(core, serial);
        }
    }

    /// Processes the report on a checkpoint, which also settles earlier checkpoints that it covers.
    pub(super) fn checkpoint_answered(&mut self, core: &mut Core, now: Time, report: &Report<'_>) {
        let Some(answered) = self.checkpoints.open.get(&report.checkpoint).copied() else { return };
        if answered.attempts == 1
            && let Some(took) =
                self.checkpoints.late.sample(now.since(answered.left), answered.is_due)
        {
            self.base.seat.sample(&mut core.shared.paths, took);
        }
        // A receiver detects the end of a forwarded block only by its last segment.
        let keeps_end = matches!(self.source, Some(Supply::Passage(_)));
        let red = self.layout.red;
        let is_moot = |checkpoint: &Outstanding| {
            checkpoint.attempts > 0
                && checkpoint.first_left <= answered.first_left
                && checkpoint.is_within(report.lower, report.upper)
                && !(keeps_end && checkpoint.end == red)
        };
        let moot = self.checkpoints.open.iter().filter(|(_, checkpoint)| is_moot(checkpoint));
        let moot = moot.map(|(serial, _)| *serial).chain([report.checkpoint]);
        for serial in moot.collect::<Vec<_>>() {
            if self.checkpoints.contains(serial) {
                self.base.disarm(&mut core.shared, Alarm::Checkpoint(serial));
                self.checkpoints.remove(serial);
            }
        }
    }

    /// Makes sure that some reply is awaited until all of the red part is confirmed.
    pub(super) fn expect_more(&mut self, core: &mut Core, now: Time) {
        let timer = self.peer.remote.checkpoint_timer;
        let once = self.silence(core, now).wait(timer, Probe::Checkpoint, Duration::ZERO, 1);
        // By then a receiver with the same timer has retransmitted a lost report.
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, once * 2);
    }

    /// Requests a report after a time without one. If none is outstanding, a report was lost that
    /// may never be retransmitted, because its receiver was restarted.
    pub(super) fn ask_again(&mut self, core: &mut Core, now: Time) {
        let Some(source) = self.source.as_mut() else { return };
        let layout = &self.layout;
        if self.reports.claimed().covered() >= layout.red {
            return;
        }
        let is_described = layout.is_described() && layout.is_description_sent();
        let sent = if is_described { layout.total } else { source.sent() };
        let may_go_on = sent < layout.red && self.window.is_none();
        let is_requested = self.checkpoints.open.values().any(|cp| cp.attempts > 0 && !cp.is_due);
        let is_busy = source.has_repairs() || layout.description_due;
        if may_go_on && !is_requested && !is_busy {
            // A later checkpoint will request it.
            return;
        }
        let end = sent.min(layout.red);
        if !may_go_on && !is_requested && !is_busy && end > 0 {
            if let Some(mut source) = self.source.take() {
                self.ask_at(core, &mut source, end);
                self.source = Some(source);
            }
            self.base.want(&mut core.shared, Class::Repair);
        }
        self.expect_more(core, now);
    }

    /// Queues a checkpoint at `end`, after which nothing was sent.
    pub(super) fn ask_at(&mut self, core: &mut Core, source: &mut Supply, end: u64) {
        if end > self.layout.content {
            self.layout.description_due = true;
        } else {
            // One byte suffices for a request.
            source.request(end - 1, end, usize::MAX);
            source.read_repairs(core, self.base.seat.handle);
        }
        self.checkpoints.set(end, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_replies_count_once_three_came_in_a_row() {
        let mut late = Late::default();
        let mut sample = |took, is_late| {
            late.sample(Duration::from_millis(took), is_late).map(|took| took.as_millis())
        };
        assert_eq!(
            [sample(200, false), sample(640, true), sample(420, true)],
            [Some(200), None, None]
        );
        assert_eq!(sample(210, false), Some(210), "reports were lost");
        assert_eq!(
            [sample(900, true), sample(700, true), sample(800, true)],
            [None, None, Some(700)]
        );
        assert_eq!(sample(800, true), None);
    }
}
