//! The reports of a session that receives (RFC 5326 §6.11): when they are made, what they claim, when they are repeated.

use std::time::Duration;

use engine::Time;
use wire::ltp::{CancelReason, Checkpoint, sdnv};

use super::super::core::{Alarm, Core};
use super::super::gaps::{GapWatch, OUTSTANDING_MAX};
use super::super::reports::{self, CHECKPOINTS_KEPT, REPORTS_MAX};
use super::{Phase, Receiver};
use crate::path::{Class, Path};
use crate::thin_return;

/// Reports that wait to be sent, beyond which no more are made: who asks will ask again.
const DUE_MAX: usize = 1024;

/// Octets of a report, about.
const COPY_LEN: usize = 80;

/// Bytes that a claim adds to a report: two numbers below 2^21.
const CLAIM_LEN: usize = 6;

/// A copy of a report is sent if this many of them fit between two reports.
const COPY_SHARE: u32 = 1000;

impl Receiver {
    /// The sender asks what is here (§6.11), with a segment that ends at `end`; from `start` on it
    /// has to be told even if that was reported.
    pub(super) fn on_checkpoint(
        &mut self,
        core: &mut Core,
        checkpoint: Checkpoint,
        start: u64,
        end: u64,
    ) {
        if self.due.len() >= DUE_MAX {
            return;
        }
        if let Some(serials) = self.reports.on(checkpoint.serial) {
            let due = &self.due;
            let again: Vec<_> =
                serials.iter().filter(|serial| !due.contains(serial)).copied().collect();
            self.due.extend(again);
            self.base.want(&mut core.kernel, Class::Control);
            return;
        }
        if self.red_is_here() && !self.is_safe {
            if !self.waiting.iter().any(|other| other.serial == checkpoint.serial)
                && self.waiting.len() < CHECKPOINTS_KEPT
            {
                self.waiting.push(checkpoint);
            }
            return;
        }
        if matches!(self.phase, Phase::Cancelling { .. } | Phase::Closing | Phase::Done) {
            return;
        }
        let (lower, upper) = match self.reports.get(checkpoint.report) {
            Some(before) => (before.lower, before.upper),
            // It is one that was made here and forgotten.
            None if (self.first_serial..self.serial).contains(&checkpoint.report) => (0, end),
            // An earlier run of this engine said something that this one knows nothing of, and the
            // sender counts on it.
            None if checkpoint.report != 0 => {
                self.cancel(core, CancelReason::System);
                return;
            }
            None if self.reported < end => (std::mem::replace(&mut self.reported, end), end),
            // Another report overtook it. What brought it is here, and the sender gets its answer.
            None => (start, end),
        };
        if self.reported >= self.gaps.front() {
            self.gaps.reported();
        }
        self.may_report(core);
        self.make_reports(core, checkpoint.serial, lower, upper);
    }

    /// Makes the reports on a checkpoint, or on none if it is 0: more than one if the claims do not
    /// fit (§6.11). Their serial numbers.
    pub(super) fn make_reports(
        &mut self,
        core: &mut Core,
        checkpoint: u64,
        lower: u64,
        upper: u64,
    ) -> Vec<u64> {
        let path = self.base.seat.path.and_then(|id| core.kernel.paths.get(&id));
        let max = self.peer.segment_max(path.map_or(1024, Path::mtu));
        // Control octet, session, counts, and the numbers before the claims.
        let id = self.peer.session;
        let fixed = 2 + sdnv::len(id.originator) + sdnv::len(id.number) + 4 * sdnv::LEN_MAX + 3;
        let room = max.saturating_sub(fixed);
        if self.reports.make_room(core.config.limits.gaps) {
            let reports = &self.reports;
            self.due.retain(|serial| reports.get(*serial).is_some());
        }
        let mut serials = Vec::new();
        for (lower, upper) in self.reports.scopes(lower, upper) {
            let here = self.here(core, lower, upper);
            if here.is_empty() {
                // It would claim nothing; the checkpoint will come again.
                self.reports.owe(lower, upper);
                continue;
            }
            let left = REPORTS_MAX - serials.len();
            let (made, rest) = reports::split(checkpoint, (lower, upper), here, room, left);
            if let Some(from) = rest {
                self.reports.owe(from, upper);
            }
            for sent in made {
                self.reports.insert(self.serial, sent);
                self.due.push_back(self.serial);
                serials.push(self.serial);
                self.serial += 1;
            }
        }
        if serials.is_empty() {
            return serials;
        }
        if checkpoint > 0 {
            self.reports.answered(checkpoint, serials.clone());
        }
        if self.peer.remote.report_gaps && self.copy_is_cheap(core) {
            self.due.extend(&serials);
        }
        self.base.want(&mut core.kernel, Class::Control);
        serials
    }

    /// Whether a second copy of each report is next to nothing beside the round trip that one lost
    /// report costs.
    fn copy_is_cheap(&self, core: &Core) -> bool {
        let path = self.base.seat.path.and_then(|id| core.kernel.paths.get(&id));
        let times = path.and_then(|path| path.times(COPY_LEN));
        // 80 octets at 10 Mbit/s are 0.06 ms with headers: from 0.5 s of round trip on.
        times.is_some_and(|(packet, round_trip)| packet * COPY_SHARE < GapWatch::pause(round_trip))
    }

    /// The ranges of `lower..upper` to claim: what has arrived, but for short parts between gaps that cost more time to claim on
    /// the return link than to receive a second time.
    fn here(&self, core: &Core, lower: u64, upper: u64) -> Vec<(u64, u64)> {
        let mut gaps = self.ranges.gaps(lower, upper).peekable();
        if gaps.peek().is_none() {
            return outside([], (lower, upper));
        }
        let path = self.base.seat.path.and_then(|id| core.kernel.paths.get(&id));
        let bridge =
            thin_return::bridge(CLAIM_LEN, self.arrivals.bps(), path.and_then(Path::rate_bps));
        // A part before the first gap or behind the last costs a claim, too.
        let ends = std::iter::once((lower, lower)).chain(gaps).chain([(upper, upper)]);
        let here = outside(thin_return::join(ends, bridge), (lower, upper));
        if !here.is_empty() {
            return here;
        }
        // A report claims something.
        let all = outside(self.ranges.gaps(lower, upper), (lower, upper));
        all.into_iter().max_by_key(|(start, end)| end - start).into_iter().collect()
    }

    /// Reports the gaps up to where red data came, without being asked (§6.11).
    pub(super) fn report_gaps(&mut self, core: &mut Core, now: Time) {
        if !self.gaps.is_due() || !self.peer.remote.report_gaps {
            return;
        }
        // Once the red part's end is known, the checkpoint there asks.
        if self.phase != Phase::Receiving || self.red.is_some() {
            self.gaps.reported();
            return;
        }
        let Self { reports, ranges, gaps, .. } = self;
        // What all of came, nobody will ask about again.
        gaps.serials.retain(|serial| {
            let is_open = reports.get(*serial).is_some_and(|sent| {
                !sent.acknowledged || ranges.gaps(sent.lower, sent.upper).next().is_some()
            });
            if !is_open {
                reports.remove(*serial);
            }
            is_open
        });
        let mut outstanding = self.gaps.serials.iter();
        let unacknowledged =
            |serial: &&u64| self.reports.get(**serial).is_some_and(|s| !s.acknowledged);
        let must_wait = self.gaps.serials.len() >= CHECKPOINTS_KEPT
            || self.reports.is_full(core.config.limits.gaps)
            || outstanding.by_ref().filter(unacknowledged).count() >= OUTSTANDING_MAX;
        if !must_wait {
            let upper = self.gaps.front();
            let lower = std::mem::replace(&mut self.reported, upper);
            let serials = self.make_reports(core, 0, lower, upper);
            self.gaps.serials.extend(&serials);
        }
        self.gaps.rest(must_wait);
        let round_trip = match self.base.seat.round_trip(&core.kernel.paths).least() {
            Duration::ZERO => self.peer.remote.initial_rtt,
            known => known,
        };
        self.base.alarm(&mut core.kernel, Alarm::Gaps, now, GapWatch::pause(round_trip));
    }

    /// Whether what is here may be told; asks for the mark if that is what is missing.
    pub(super) fn may_report(&mut self, core: &mut Core) -> bool {
        let (id, handle) = (self.peer.session, self.base.seat.handle);
        self.is_safe || self.mark.allows(core, handle, id)
    }

    pub(super) fn report_left(&mut self, core: &mut Core, at: Time, serial: u64) {
        let auto = core.answer_time(&self.base, &self.peer.remote);
        let Some(sent) = self.reports.get_mut(serial) else { return };
        sent.attempts += 1;
        sent.left = at;
        if !sent.acknowledged {
            let wait = self.peer.remote.report_timer.duration(auto, sent.attempts);
            self.base.alarm(&mut core.kernel, Alarm::Report(serial), at, wait);
        }
    }

    /// A report has arrived.
    pub(crate) fn on_report_ack(&mut self, core: &mut Core, now: Time, serial: u64) {
        self.base.last_heard = now;
        let Some(sent) = self.reports.get_mut(serial) else { return };
        let first = !std::mem::replace(&mut sent.acknowledged, true);
        let (attempts, left) = (sent.attempts, sent.left);
        self.base.disarm(&mut core.kernel, Alarm::Report(serial));
        if first && attempts == 1 {
            self.base.seat.sample(&mut core.kernel.paths, now.since(left));
        }
        self.close_if_told(core);
    }

    /// Ends the session once the sender knows that all is well.
    pub(super) fn close_if_told(&mut self, core: &mut Core) {
        let told = self.reports.are_acknowledged();
        if self.phase == Phase::Telling && told && self.due.is_empty() {
            self.close(core);
        }
    }
}

/// What of `lower..upper` no gap covers.
fn outside(
    gaps: impl IntoIterator<Item = (u64, u64)>,
    (lower, upper): (u64, u64),
) -> Vec<(u64, u64)> {
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
