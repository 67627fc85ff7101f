//! Reports of a receiving session (RFC 5326 §6.11): when they are made, their claims, and their
//! retransmission.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use session::path::{Class, Path};
use session::ranges::Ranges;
use session::thin_return::{self, ArrivalRate};
use wire::sdnv;

use super::super::config::Timer;
use super::super::core::{Alarm, Core};
use super::super::gaps::{GapWatch, OUTSTANDING_MAX, Repeats};
use super::super::reports::{self, CHECKPOINTS_KEPT, REPORTS_MAX, Reports, Sent};
use super::super::silence::{Probe, Silence, backed_off};
use super::{Phase, Receiver};
use crate::segment::{CancelReason, Checkpoint};

/// Number of queued reports above which no more are made. The sender will retransmit its
/// checkpoint.
const DUE_MAX: usize = 1024;

/// Approximate bytes of a report.
const COPY_LEN: usize = 80;

/// Bytes that a claim adds to a report: two numbers below 2^21.
const CLAIM_LEN: usize = 6;

/// Bytes arriving in the time of one claim above which a return link is thin: its rate is about
/// 2,700 times lower. Such a link carries four reports per second.
const THIN: u64 = 16 << 10;

/// Number of reports, the newest, sent at once when a path comes back.
const RESUMED_MAX: usize = 16;

/// Transmissions of the last report after which the session ends without its acknowledgement, if
/// no limit is set.
const TELLING_MAX: u32 = 30;

/// Transmissions of the last report after which the interval between them grows.
const STEADY_REPORTS: u32 = 24;

/// Number of such transmissions to a peer that has not proven that it receives reports.
const STEADY_UNPROVEN: u32 = 4;

/// A copy of a report is sent if this many copies fit in the time between two reports.
const COPY_SHARE: u32 = 1000;

/// On a path with heavy loss, a copy is sent if this many copies fit in a round trip.
const LOSSY_SHARE: u32 = 100;

/// A path has heavy loss if one byte in this many is missing of a scope of this length: fewer
/// segments prove little about a path.
const LOSSY: u64 = 8;
const LOSSY_LEN: u64 = 64 << 10;

/// Reports of a session and their reasons.
#[derive(Debug)]
pub(super) struct Reporting {
    /// Serial number of the next report.
    serial: u64,
    /// First serial number of reports.
    first_serial: u64,
    /// Offset up to which reports were made on checkpoints that reply to no report.
    reported: u64,
    pub(super) reports: Reports,
    /// Time of the last acknowledgement of a report, or of the first reason for one.
    acked_at: Time,
    /// Whether the sender has acknowledged a report.
    pub(super) is_answered: bool,
    /// Queued reports.
    pub(super) due: VecDeque<u64>,
    pub(super) gaps: GapWatch,
    repeats: Repeats,
    /// Checkpoints that arrived while the complete block was not stored yet.
    pub(super) waiting: Vec<Checkpoint>,
    /// Rate at which data arrives.
    pub(super) arrivals: ArrivalRate,
}

impl Reporting {
    /// Reports with serial numbers from `serial` on.
    pub(super) fn new(serial: u64) -> Self {
        Self {
            serial,
            first_serial: serial,
            reported: 0,
            reports: Reports::new(),
            acked_at: Time::ZERO,
            is_answered: false,
            due: VecDeque::new(),
            gaps: GapWatch::new(),
            repeats: Repeats::default(),
            waiting: Vec::new(),
            arrivals: ArrivalRate::new(),
        }
    }

    /// Whether no report was made, so that the sender still has all data.
    pub(super) fn is_silent(&self) -> bool {
        self.serial == self.first_serial
    }

    /// Forgets all reports, sent and queued.
    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.reports.clear();
        self.waiting.clear();
    }
}

impl Receiver {
    /// Replies to a checkpoint (§6.11) whose segment ends at `end`. The report covers everything
    /// from `start` on, even if earlier reports did.
    pub(super) fn on_checkpoint(
        &mut self,
        core: &mut Core,
        checkpoint: Checkpoint,
        start: u64,
        end: u64,
    ) {
        if self.reporting.due.len() >= DUE_MAX {
            return;
        }
        if let Some(serials) = self.reporting.reports.on(checkpoint.serial) {
            // A report sent within the last round trip crossed this checkpoint. Over a thin return
            // link, it may not even have been sent.
            let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
            let light = path.and_then(Path::light).unwrap_or_default();
            let is_crossing = |serial: &u64| {
                let sent = self.reporting.reports.get(*serial).filter(|sent| sent.attempts > 0);
                sent.is_some_and(|sent| core.now < sent.left + light)
            };
            let due = &self.reporting.due;
            let again = serials.iter().filter(|serial| !due.contains(serial));
            let again: Vec<_> = again.filter(|serial| !is_crossing(serial)).copied().collect();
            self.reporting.due.extend(again);
            self.base.want(&mut core.shared, Class::Control);
            return;
        }
        if self.red_is_here() && !self.is_safe {
            if !self.reporting.waiting.iter().any(|other| other.serial == checkpoint.serial)
                && self.reporting.waiting.len() < CHECKPOINTS_KEPT
            {
                self.reporting.waiting.push(checkpoint);
            }
            return;
        }
        if matches!(self.phase, Phase::Cancelling { .. } | Phase::Closing | Phase::Done) {
            return;
        }
        let (lower, upper) = match self.reporting.reports.get(checkpoint.report) {
            Some(before) => (before.lower, before.upper),
            // The report was made here and forgotten.
            None if (self.reporting.first_serial..self.reporting.serial)
                .contains(&checkpoint.report) =>
            {
                (0, end)
            }
            // An earlier run of this engine sent the report.
            None if checkpoint.report != 0 && self.is_resumed => (0, end),
            // That run left no record, and the sender relies on its report.
            None if checkpoint.report != 0 => {
                self.cancel(core, CancelReason::System);
                return;
            }
            None if self.reporting.reported < end => {
                (std::mem::replace(&mut self.reporting.reported, end), end)
            }
            // Data retransmitted before this run was reported on. A sender that requests a report
            // again needs everything.
            None if start == 0 && self.reporting.repeats.is_long(1) => {
                (self.reporting.repeats.take().map_or(0, |(from, _)| from), end)
            }
            // Another report overtook this checkpoint. The data that triggered that report has
            // arrived, and the sender gets a reply to this checkpoint.
            None => (start, end),
        };
        if self.reporting.reported >= self.reporting.gaps.front() {
            self.reporting.gaps.reported();
        }
        self.record_parts(core);
        self.make_reports(core, checkpoint.serial, lower, upper);
    }

    /// Makes the reports on a checkpoint, 0 for none: several if the claims do not fit (§6.11).
    /// Returns their serial numbers.
    pub(super) fn make_reports(
        &mut self,
        core: &mut Core,
        checkpoint: u64,
        lower: u64,
        upper: u64,
    ) -> Vec<u64> {
        let room = self.room_for_claims(core);
        if self.reporting.reports.make_room(core.config.limits.gaps) {
            let reports = &self.reporting.reports;
            self.reporting.due.retain(|serial| reports.get(*serial).is_some());
        }
        let mut serials = Vec::new();
        for (lower, upper) in self.reporting.reports.scopes(lower, upper) {
            let here = self.here(core, &self.ranges, lower, upper);
            if here.is_empty() {
                // The report would claim nothing; the checkpoint will be retransmitted.
                self.reporting.reports.owe(lower, upper);
                continue;
            }
            let left = REPORTS_MAX - serials.len();
            let (made, rest) = reports::split(checkpoint, lower, upper, here, room, left);
            if let Some(from) = rest {
                self.reporting.reports.owe(from, upper);
            }
            for sent in made {
                self.reporting.reports.insert(self.reporting.serial, sent);
                self.reporting.due.push_back(self.reporting.serial);
                serials.push(self.reporting.serial);
                self.reporting.serial += 1;
            }
        }
        if serials.is_empty() {
            return serials;
        }
        if checkpoint > 0 {
            self.reporting.reports.answered(checkpoint, serials.clone());
        }
        self.drop_superseded(core, lower, upper, &serials);
        let is_lossy = self.is_lossy(lower, upper);
        if (is_lossy || self.peer.remote.report_gaps) && self.copy_is_cheap(core, is_lossy) {
            self.reporting.due.extend(&serials);
        }
        self.base.want(&mut core.shared, Class::Control);
        serials
    }

    /// Bytes available for the claims of one report.
    fn room_for_claims(&self, core: &Core) -> usize {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let max = self.peer.segment_max(path.map_or(1024, Path::mtu));
        // Control byte, session, counts, and the numbers before the claims.
        let id = self.peer.session;
        let fixed = 2 + sdnv::len(id.originator) + sdnv::len(id.number) + 4 * sdnv::LEN_MAX + 3;
        max.saturating_sub(fixed)
    }

    /// Drops reports queued for a thin return link that the later `serials` supersede.
    fn drop_superseded(&mut self, core: &Core, lower: u64, upper: u64, serials: &[u64]) {
        if self.reporting.due.is_empty() || !self.is_thin(core) {
            return;
        }
        let reports = &self.reporting.reports;
        self.reporting.due.retain(|serial| {
            let is_within = |sent: &Sent| lower <= sent.lower && sent.upper <= upper;
            serials.contains(serial) || !reports.get(*serial).is_some_and(is_within)
        });
    }

    /// Updates a report queued for a thin return link with data received meanwhile. The one that
    /// claims all of the red part is made when that is safely stored.
    pub(super) fn refresh(&mut self, core: &Core, serial: u64) {
        let Some(sent) = self.reporting.reports.get(serial).filter(|sent| sent.attempts == 0)
        else {
            return;
        };
        let (checkpoint, lower, upper) = (sent.checkpoint, sent.lower, sent.upper);
        if !self.is_thin(core) || self.red_is_here() {
            return;
        }
        let here = self.here(core, self.claimable(core), lower, upper);
        let room = self.room_for_claims(core);
        let (mut made, rest) = reports::split(checkpoint, lower, upper, here, room, 1);
        if let Some(one) = made.pop().filter(|_| rest.is_none()) {
            self.reporting.reports.remove(serial);
            self.reporting.reports.insert(serial, one);
        }
    }

    /// Maximum bytes between gaps that are faster to receive again than to claim.
    fn bridge(&self, core: &Core) -> u64 {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        thin_return::bridge(CLAIM_LEN, self.reporting.arrivals.bps(), path.and_then(Path::rate_bps))
    }

    /// Whether the return link is so thin that a sender cannot wait for its reports.
    fn is_thin(&self, core: &Core) -> bool {
        self.bridge(core) >= THIN
    }

    /// Processes red data, perhaps after a new gap. Over a thin return link, gaps are always
    /// reported before a checkpoint requests a report, as are missing parts of retransmitted
    /// ranges. From these reports, the sender measures how long a report takes, and knows the gaps
    /// when it reaches the end of the block.
    pub(super) fn look_for_gaps(&mut self, core: &mut Core, start: u64, end: u64) {
        let is_again = end <= self.reporting.gaps.front();
        let is_new = self.reporting.gaps.arrived(start, end);
        let is_requested = self.peer.remote.report_gaps;
        let may_be = is_again || !is_requested && self.reporting.gaps.is_due();
        let is_due = if is_requested && is_new {
            true
        } else if !may_be || !self.is_thin(core) {
            false
        } else if is_again {
            self.reporting.repeats.arrived(start, end);
            self.reporting.repeats.is_long(self.run_least(core))
        } else {
            true
        };
        if is_due {
            self.record_parts(core);
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// Minimum number of retransmitted bytes for a report on them, because the header of a report
    /// takes the time of some claims.
    fn run_least(&self, core: &Core) -> u64 {
        self.bridge(core).saturating_mul(8)
    }

    /// Reports on retransmitted data if the thin return link is idle.
    pub(super) fn report_repeats(&mut self, core: &mut Core) {
        let is_idle = self.reporting.due.is_empty() && self.phase == Phase::Receiving;
        let is_long = self.reporting.repeats.is_long(self.run_least(core).max(1));
        if !is_idle || !is_long || self.red_is_here() || !self.is_thin(core) {
            return;
        }
        self.forget_moot();
        if self.must_wait(core) {
            return;
        }
        if let Some((lower, upper)) = self.reporting.repeats.take() {
            let serials = self.make_reports(core, 0, lower, upper);
            self.reporting.gaps.serials.extend(&serials);
        }
    }

    /// Forgets asynchronous reports whose scopes have arrived completely and will not be requested
    /// again.
    fn forget_moot(&mut self) {
        let Self { reporting: Reporting { reports, gaps, .. }, ranges, .. } = self;
        gaps.serials.retain(|serial| {
            let is_open = reports.get(*serial).is_some_and(|sent| {
                !sent.acknowledged || ranges.gaps(sent.lower, sent.upper).next().is_some()
            });
            if !is_open {
                reports.remove(*serial);
            }
            is_open
        });
    }

    /// Whether the maximum number of asynchronous reports is kept.
    fn must_wait(&self, core: &Core) -> bool {
        let unacknowledged =
            |serial: &&u64| self.reporting.reports.get(**serial).is_some_and(|s| !s.acknowledged);
        self.reporting.gaps.serials.len() >= CHECKPOINTS_KEPT
            || self.reporting.reports.is_full(core.config.limits.gaps)
            || self.reporting.gaps.serials.iter().filter(unacknowledged).count() >= OUTSTANDING_MAX
    }

    /// Whether a second copy of each report is negligible compared with the round trip that a lost
    /// report costs.
    fn copy_is_cheap(&self, core: &Core, is_lossy: bool) -> bool {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let times = path.and_then(|path| path.times(COPY_LEN));
        // 80 bytes at 10 Mbit/s take 0.06 ms with headers: from a round trip of 0.5 s on.
        times.is_some_and(|(packet, round_trip)| {
            if is_lossy {
                packet * LOSSY_SHARE < round_trip
            } else {
                packet * COPY_SHARE < GapWatch::pause(round_trip)
            }
        })
    }

    /// Whether the missing share of a scope indicates that the report is probably lost, too.
    fn is_lossy(&self, lower: u64, upper: u64) -> bool {
        let is_auto = self.peer.remote.retransmission_limit.is_none();
        let missing: u64 = self.ranges.gaps(lower, upper).map(|(start, end)| end - start).sum();
        is_auto && upper - lower >= LOSSY_LEN && missing > (upper - lower) / LOSSY
    }

    /// Ranges of `lower..upper` to claim of these: all, except short parts between gaps that are
    /// faster to receive again than to claim on the return link.
    fn here(&self, core: &Core, ranges: &Ranges, lower: u64, upper: u64) -> Vec<(u64, u64)> {
        let mut gaps = ranges.gaps(lower, upper).peekable();
        if gaps.peek().is_none() {
            return outside([], lower, upper);
        }
        let bridge = self.bridge(core);
        // A part before the first gap or after the last costs a claim, too.
        let ends = std::iter::once((lower, lower)).chain(gaps).chain([(upper, upper)]);
        let here = outside(thin_return::join(ends, bridge), lower, upper);
        if !here.is_empty() {
            return here;
        }
        // A report must claim something.
        let all = outside(ranges.gaps(lower, upper), lower, upper);
        all.into_iter().max_by_key(|(start, end)| end - start).into_iter().collect()
    }

    /// Reports gaps up to the red data received, without a request (§6.11).
    pub(super) fn report_gaps(&mut self, core: &mut Core, now: Time) {
        if !self.reporting.gaps.is_due() || !self.peer.remote.report_gaps && !self.is_thin(core) {
            return;
        }
        // Once the end of the red part is known, the checkpoint there requests the report.
        if self.phase != Phase::Receiving || self.extent.red.is_some() {
            self.reporting.gaps.reported();
            return;
        }
        self.forget_moot();
        let must_wait = self.must_wait(core);
        if !must_wait {
            let upper = self.reporting.gaps.front();
            let lower = std::mem::replace(&mut self.reporting.reported, upper);
            let serials = self.make_reports(core, 0, lower, upper);
            self.reporting.gaps.serials.extend(&serials);
        }
        self.reporting.gaps.rest(must_wait);
        let round_trip = match self.base.seat.round_trip(&core.shared.paths).least() {
            Duration::ZERO => self.peer.remote.initial_rtt,
            known => known,
        };
        self.base.alarm(&mut core.shared, Alarm::Gaps, now, GapWatch::pause(round_trip));
    }

    pub(super) fn report_left(&mut self, core: &mut Core, at: Time, serial: u64) {
        if self.reporting.reports.awaited().next().is_none() {
            // Nothing required a reply before.
            self.reporting.acked_at = self.reporting.acked_at.max(at);
        }
        let silence = self.silence(core, at);
        let Some(sent) = self.reporting.reports.get_mut(serial) else { return };
        sent.attempts += 1;
        sent.left = at;
        sent.is_held = false;
        if sent.acknowledged {
            return;
        }
        let attempts = sent.attempts;
        let timer = self.peer.remote.report_timer;
        let wait = match self.phase {
            // The block is complete, and the sender may be gone.
            Phase::Telling if self.peer.is_proven => {
                backed_off(timer, silence.reply, attempts, STEADY_REPORTS)
            }
            Phase::Telling => backed_off(timer, silence.reply, attempts, STEADY_UNPROVEN),
            Phase::Receiving
            | Phase::Storing
            | Phase::Offered
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {
                let path = self.base.seat.path;
                let wait = core.probe_wait(path, at, silence, timer, Probe::Report);
                if self.peer.is_proven {
                    wait
                } else {
                    wait.max(backed_off(timer, silence.reply, attempts, STEADY_UNPROVEN))
                }
            }
        };
        self.base.alarm(&mut core.shared, Alarm::Report(serial), at, wait);
    }

    /// Silence of the sender since a report first awaited its acknowledgement. Arriving data does
    /// not show that reports arrive.
    fn silence(&self, core: &Core, now: Time) -> Silence {
        let reply = core.answer_time(&self.base, &self.peer.remote);
        let of_path = self.base.seat.path.and_then(|path| core.acked.get(&path)).copied();
        let acked = of_path.map_or(self.reporting.acked_at, |at| at.max(self.reporting.acked_at));
        Silence { reply, lasts: now.since(acked) }
    }

    /// Handles a missing acknowledgement of a report (§6.8).
    pub(super) fn on_report_overdue(&mut self, core: &mut Core, now: Time, serial: u64) {
        let silence = self.silence(core, now);
        let newest = self.reporting.reports.awaited().next_back();
        let may_hold = self.peer.remote.report_timer == Timer::Auto;
        let limit = self.peer.remote.retransmission_limit;
        let Some(sent) = self.reporting.reports.get_mut(serial) else { return };
        let attempts = sent.attempts;
        sent.is_held = may_hold && silence.is_long() && newest != Some(serial);
        if sent.is_held {
            return;
        }
        if self.phase == Phase::Telling && attempts > limit.unwrap_or(TELLING_MAX) {
            // The block is complete; a sender that is still active will request a report.
            self.close(core);
            return;
        }
        if limit.is_some_and(|limit| attempts > limit) {
            self.cancel(core, CancelReason::RetransmissionLimit);
            return;
        }
        self.send_report(core, serial);
    }

    /// Queues a report.
    fn send_report(&mut self, core: &mut Core, serial: u64) {
        if !self.reporting.due.contains(&serial) {
            self.reporting.due.push_back(serial);
        }
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Resends unacknowledged reports at once when the path or its return link comes up: they or
    /// their acknowledgements may have been lost. A retransmission limit keeps counting.
    pub(super) fn resume_reports(&mut self, core: &mut Core, now: Time) {
        if self.peer.remote.retransmission_limit.is_some() {
            return;
        }
        self.reporting.acked_at = now;
        for serial in self.reporting.reports.awaited().rev().take(RESUMED_MAX).collect::<Vec<_>>() {
            self.send_report(core, serial);
        }
        self.report_before_outage(core);
    }

    /// Reports gaps of data received before an outage (§6.11, asynchronous reports): a contact may
    /// be too short for a checkpoint, its report and the repairs.
    fn report_before_outage(&mut self, core: &mut Core) {
        let upper = self.reporting.gaps.front();
        if self.phase != Phase::Receiving || self.reporting.reported >= upper {
            return;
        }
        if self.ranges.gaps(self.reporting.reported, upper).next().is_none() {
            return;
        }
        let lower = std::mem::replace(&mut self.reporting.reported, upper);
        self.reporting.gaps.reported();
        self.record_parts(core);
        self.make_reports(core, 0, lower, upper);
    }

    /// Processes a report acknowledgement.
    pub(crate) fn on_report_ack(&mut self, core: &mut Core, now: Time, serial: u64) {
        self.base.last_received = now;
        self.reporting.acked_at = now;
        if let Some(path) = self.base.seat.path {
            core.acked.insert(path, now);
        }
        let Some(sent) = self.reporting.reports.get(serial) else { return };
        // The report's serial number is random.
        self.reporting.is_answered = true;
        self.peer.is_proven = true;
        core.proven.extend(self.base.seat.path);
        if !sent.acknowledged && sent.attempts == 1 {
            self.base.seat.sample(&mut core.shared.paths, now.since(sent.left));
        }
        let over = self.reporting.reports.acknowledged(serial, core.config.limits.gaps);
        self.reporting.due.retain(|serial| !over.contains(serial));
        for serial in over {
            self.base.disarm(&mut core.shared, Alarm::Report(serial));
        }
        let held =
            |serial: &u64| self.reporting.reports.get(*serial).is_some_and(|sent| sent.is_held);
        for serial in self.reporting.reports.awaited().filter(held).collect::<Vec<_>>() {
            if let Some(sent) = self.reporting.reports.get_mut(serial) {
                sent.is_held = false;
            }
            self.send_report(core, serial);
        }
        self.close_if_reported(core);
    }

    /// Ends the session once the sender has acknowledged the complete delivery.
    pub(super) fn close_if_reported(&mut self, core: &mut Core) {
        if self.phase != Phase::Telling {
            return;
        }
        let is_confirmed =
            self.extent.red.is_some_and(|red| self.reporting.reports.is_confirmed(red));
        if is_confirmed
            || self.reporting.reports.are_acknowledged() && self.reporting.due.is_empty()
        {
            self.close(core);
        }
    }
}

/// Parts of `lower..upper` that no gap covers.
fn outside(gaps: impl IntoIterator<Item = (u64, u64)>, lower: u64, upper: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = lower;
    for (start, end) in gaps {
        if start > at {
            parts.push((at, start));
        }
        at = end;
    }
    if at < upper {
        parts.push((at, upper));
    }
    parts
}
