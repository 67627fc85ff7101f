//! A session at the engine that receives the block (RFC 5326 §6, §8.2).
//!
//! A report is a promise: the sender forgets what it claims. So the report that claims all of the
//! red part is sent only when that is safe, which for a file means that it has its name.

mod blocks;
mod giving_way;
mod relaying;
mod reporting;
mod units;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, FilestoreRequest, Time};
use wire::ltp::{
    AGGREGATION_SERVICE, Body, CancelReason, Checkpoint, Claims, Data, DataKind, End,
    Report as ReportSegment, SessionId,
};

use super::config::Format;
use super::core::{Alarm, Core, Job, Peer, Task};
use super::file::{Description, NAME_MAX};
use super::gaps::{GapWatch, Repeats};
use super::indication::{Cause, Failure, Finished, Indication, Limit, PeerError, Report};
use super::marks::{self, Mark};
use super::reports::Reports;
use super::silence::backed_off;
use crate::kernel::Base;
use crate::ltpt::flow::{Last, Outcome, Relay, Seq, Shape};
use crate::ltpt::record;
use crate::path::{Burst, Class, Turn};
use crate::ranges::Ranges;
use crate::spool::Spool;
use crate::storage::Storage as _;
use crate::thin_return::ArrivalRate;

/// Silence after which a session with a single segment is forgotten, beside two reply times.
const HALF_OPEN_MAX: Duration = Duration::from_secs(60);

/// Transmissions of a cancellation after which it backs off.
const STEADY_CANCELS: u32 = 2;

/// A session that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) peer: Peer,
    /// All that has arrived, red and green.
    ranges: Ranges,
    /// The rate at which its data arrives.
    arrivals: ArrivalRate,
    /// How many of them the engine counts.
    ranges_counted: usize,
    /// Where the red part ends.
    red: Option<u64>,
    /// Where the block ends.
    end: Option<u64>,
    /// Where green data begins, as far as it is known.
    green: u64,
    /// Behind the highest red octet that came.
    red_front: u64,
    /// The client service it is for.
    service: u64,
    /// A block in memory: one of units, or as long as it is short one that is handed over.
    units: Option<Vec<u8>>,
    /// The transfer of LTP-T of which this session is a hop.
    flow: Option<Seq>,
    /// A block for another engine, which is kept until that has it.
    relay: Option<Relay>,
    spool: Spool,
    /// What describes the file, and where it stands.
    description: Option<(u64, Vec<u8>)>,
    file: Option<Description>,
    serial: u64,
    /// Up to here the checkpoints that answer nothing were reported on.
    reported: u64,
    reports: Reports,
    /// When the sender last acknowledged a report, or had a reason to.
    acked_at: Time,
    due: VecDeque<u64>,
    gaps: GapWatch,
    repeats: Repeats,
    /// The first serial number of reports.
    first_serial: u64,
    /// Checkpoints that came when all is there, but not safe yet.
    waiting: Vec<Checkpoint>,
    is_safe: bool,
    cancel_ack_due: bool,
    syncs: u32,
    mark: Mark,
    is_half_open: bool,
    /// Data segments that arrived.
    segments: u32,
    /// Whether the sender acknowledged a report.
    is_answered: bool,
    refused: Option<CancelReason>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    /// All is there; the checksum is being completed.
    Verifying,
    Syncing,
    Installing,
    /// All is well: the sender is told.
    Telling,
    /// Cancelled here; waits for the answer.
    Cancelling {
        reason: CancelReason,
        due: bool,
        attempts: u32,
        /// Retransmissions before the session closes without a reply.
        most: u32,
    },
    /// The sender ended it: the answer is on its way.
    Closing,
    Done,
}

impl Receiver {
    pub(crate) fn new(
        base: Base<Alarm>,
        peer: Peer,
        core: &mut Core,
        now: Time,
        service: u64,
    ) -> Self {
        let is_units = service == AGGREGATION_SERVICE && core.config.aggregation.is_some();
        let service = if is_units { AGGREGATION_SERVICE } else { core.config.service };
        let mut receiver = Self::with(base, peer, core, service);
        if is_units || core.blocks.is_some() {
            receiver.units = Some(Vec::new());
        }
        receiver.is_half_open = true;
        receiver.begin(core, now)
    }

    /// This session is the last hop of a transfer, which is told what becomes of it.
    pub(crate) fn set_flow(&mut self, flow: Seq) {
        self.flow = Some(flow);
    }

    fn begin(mut self, core: &mut Core, now: Time) -> Self {
        self.watch_silence(core, now);
        self
    }

    fn with(base: Base<Alarm>, peer: Peer, core: &mut Core, service: u64) -> Self {
        let spool = Spool::new(marks::spool_name(peer.session));
        let serial = core.first_serial();
        Self {
            base,
            peer,
            ranges: Ranges::new(),
            arrivals: ArrivalRate::new(),
            ranges_counted: 0,
            red: None,
            end: None,
            green: u64::MAX,
            red_front: 0,
            service,
            units: None,
            flow: None,
            relay: None,
            spool,
            description: None,
            file: None,
            serial,
            first_serial: serial,
            gaps: GapWatch::new(),
            repeats: Repeats::default(),
            reported: 0,
            reports: Reports::new(),
            acked_at: Time::ZERO,
            due: VecDeque::new(),
            waiting: Vec::new(),
            is_safe: false,
            cancel_ack_due: false,
            syncs: 0,
            mark: Mark::None,
            is_half_open: false,
            segments: 0,
            is_answered: false,
            refused: None,
            phase: Phase::Receiving,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(crate) fn id(&self) -> SessionId {
        self.peer.session
    }

    /// Why it was cancelled here, if it was.
    pub(crate) fn refused(&self) -> Option<CancelReason> {
        self.refused
    }

    /// The red part's end, if all of it is here and safe.
    pub(crate) fn delivered(&self) -> Option<u64> {
        self.red.filter(|_| self.is_safe)
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.peer.session,
            role: End::Receiver,
            progress: self.ranges.covered(),
            size: self.end,
            name: self.file.as_ref().map(|file| file.name.clone()).unwrap_or_default(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.ranges.len() * size_of::<(u64, u64)>()
            + self.reports.memory()
            + self.waiting.len() * size_of::<Checkpoint>()
            + self.due.len() * size_of::<u64>()
            + self.gaps.memory()
            + self.units()
            + self.relay.as_ref().map_or(0, Relay::memory)
            + self.description.as_ref().map_or(0, |(_, octets)| octets.len())
    }

    /// A data segment arrived.
    pub(crate) fn on_data(&mut self, core: &mut Core, now: Time, data: &Data<'_>) {
        self.base.last_heard = now;
        self.segments = self.segments.saturating_add(1);
        let is_first = self.segments == 1;
        self.arrivals.arrived(now, data.data.len());
        let is_last = data.kind.ends_red() || data.kind == DataKind::EndOfGreenBlock;
        if self.is_half_open && (!is_first || is_last || data.checkpoint.is_some()) {
            self.establish(core);
        }
        let (start, end) = (data.offset, data.offset + data.data.len() as u64);
        // A sender that repeats what is here to ask has missed a report: it needs to hear all.
        let is_here = self.ranges.gaps(start, end).next().is_none();
        if self.phase == Phase::Receiving {
            if data.service != self.service && is_first {
                self.cancel(core, CancelReason::Unreachable);
                return;
            }
            if data.service != self.service {
                // Damage, as the block is for the service here.
                core.stats.data_dropped += 1;
                return;
            }
            self.open_file(core);
            if !self.take(core, data) {
                return;
            }
            self.open_file(core);
        } else {
            core.stats.duplicate_data += 1;
        }
        self.count_ranges(core, self.ranges.len());
        if let Some(checkpoint) = data.checkpoint {
            self.on_checkpoint(core, checkpoint, if is_here { 0 } else { start }, end);
        }
        self.check_complete(core);
    }

    /// Takes what a segment brings; `false` if the session ends of it, or the data was dropped.
    fn take(&mut self, core: &mut Core, data: &Data<'_>) -> bool {
        let (start, end) = (data.offset, data.offset + data.data.len() as u64);
        let is_red = data.kind.is_red();
        let miscolored = if is_red {
            end > self.green || self.red.is_some_and(|red| end > red)
        } else {
            start < self.red_front || self.red.is_some_and(|red| start < red)
        };
        if miscolored {
            self.cancel(core, CancelReason::Miscolored);
            return false;
        }
        if end > core.config.limits.block || self.end.is_some_and(|known| end > known) {
            core.stats.data_dropped += 1;
            return false;
        }
        let last = matches!(data.kind, DataKind::EndOfRedBlock | DataKind::EndOfGreenBlock);
        let conflict = |known: Option<u64>| known.is_some_and(|known| known != end);
        // Nor does anything end before what is here.
        let is_low =
            data.kind.ends_red() && end < self.red_front || last && end < self.ranges.end();
        if is_low || data.kind.ends_red() && conflict(self.red) || last && conflict(self.end) {
            let error = PeerError::ConflictingEnd;
            core.user.indicate(Indication::PeerError { id: self.peer.session, error });
            return false;
        }
        if !self.accept(core, start, end, data.data, last) {
            return false;
        }
        if is_red {
            self.red_front = self.red_front.max(end);
        }
        if is_red {
            self.look_for_gaps(core, start, end);
        }
        if data.kind.ends_red() {
            self.red = Some(end);
        }
        if last {
            if let Some(relay) = self.relay.as_mut().filter(|_| self.end.is_none()) {
                let octets = Bytes::copy_from_slice(data.data);
                relay.last = Some(Last { offset: start, octets });
            }
            self.end = Some(end);
            // A block without a red part ends with this.
            if !is_red && self.red.is_none() && self.green == 0 {
                self.red = Some(0);
            }
        }
        if !is_red {
            self.green = self.green.min(start);
            if self.green == 0 {
                self.red = Some(0);
            }
        }
        true
    }

    fn accept(&mut self, core: &mut Core, start: u64, end: u64, data: &[u8], last: bool) -> bool {
        if start == end {
            return true;
        }
        let (limits, len) = (&core.config.limits, self.ranges.len());
        // Each may have one, so that what comes in order is always taken.
        let is_full = len > limits.gaps || len > 0 && core.ranges > limits.gaps_total;
        if is_full && self.ranges.would_add_range(start, end) {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Gaps);
            return false;
        }
        let gaps: Vec<_> = self.ranges.gaps(start, end).collect();
        if gaps.is_empty() {
            core.stats.duplicate_data += 1;
            return true;
        }
        if self.units.is_some() && self.is_beyond_memory(core, end) {
            self.spill(core);
        }
        if self.units.is_some() {
            return self.accept_units(core, start, end, data);
        }
        if last && core.config.format == Format::Described && self.relay.is_none() {
            if data.len() > NAME_MAX + 64 {
                let error = PeerError::NotDescribed;
                core.user.indicate(Indication::PeerError { id: self.peer.session, error });
                return false;
            }
            self.description = Some((start, data.to_vec()));
            self.ranges.insert(start, end);
            return true;
        }
        for (from, to) in gaps {
            let part = &data[(from - start) as usize..(to - start) as usize];
            if !self.spool.append(&mut core.kernel, self.base.seat.handle, from, part) {
                core.no_room();
                if let Some(path) = self.base.seat.path.filter(|_| self.spool.is_writing()) {
                    core.kernel.pause(path);
                }
                return false;
            }
            self.ranges.insert(from, to);
            if let Some(relay) = self.relay.as_mut() {
                relay.fresh.push((from, Bytes::copy_from_slice(part)));
            }
        }
        true
    }

    /// Accounts for the ranges tracked here.
    fn count_ranges(&mut self, core: &mut Core, len: usize) {
        core.ranges = core.ranges - self.ranges_counted + len;
        self.ranges_counted = len;
    }

    /// What it held is free.
    pub(crate) fn let_go(&mut self, core: &mut Core) {
        self.count_ranges(core, 0);
        core.units -= self.units();
    }

    /// Whether all of the red part is here.
    fn red_is_here(&self) -> bool {
        self.red.is_some_and(|red| self.ranges.gaps(0, red).next().is_none())
    }

    /// Sends what it has: a receiver only has reports and cancellations.
    pub(crate) fn emit(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        self.report_gaps(core, burst.departure());
        self.report_repeats(core);
        let may_report = self.due.is_empty() || self.may_report(core);
        while let Some(&serial) = self.due.front().filter(|_| may_report) {
            self.refresh(core, serial);
            let Some(sent) = self.reports.get(serial) else {
                self.due.pop_front();
                continue;
            };
            let body = Body::Report(ReportSegment {
                serial,
                checkpoint: sent.checkpoint,
                upper: sent.upper,
                lower: sent.lower,
                claims: Claims::new(&sent.claims),
            });
            if !self.peer.push(core, burst, body) {
                return Turn::More;
            }
            self.due.pop_front();
            self.report_left(core, burst.departure(), serial);
        }
        if self.cancel_ack_due {
            if !self.peer.push(core, burst, Body::CancelAck { by: End::Sender }) {
                return Turn::More;
            }
            self.cancel_ack_due = false;
        }
        match self.phase {
            Phase::Closing => self.close(core),
            Phase::Cancelling { reason, due: true, attempts, most } => {
                let path = self.base.seat.path.unwrap_or_default();
                if !core.kernel.replies.refusals.admit(core.now, path) {
                    // The sender learns of it when it asks again.
                    core.stats.refusals_left_out += 1;
                    core.user.limit_reached(Limit::Refusals);
                    self.close(core);
                    return Turn::Over;
                }
                if !self.peer.push(core, burst, Body::Cancel { by: End::Receiver, reason }) {
                    return Turn::More;
                }
                let attempts = attempts + 1;
                self.phase = Phase::Cancelling { reason, due: false, attempts, most };
                let auto = core.answer_time(&self.base, &self.peer.remote);
                let timer = self.peer.remote.cancel_timer;
                let wait = backed_off(timer, auto, attempts - 1, STEADY_CANCELS);
                self.base.alarm(&mut core.kernel, Alarm::Cancel, burst.departure(), wait);
            }
            Phase::Cancelling { .. }
            | Phase::Receiving
            | Phase::Verifying
            | Phase::Syncing
            | Phase::Installing
            | Phase::Telling
            | Phase::Done => {}
        }
        Turn::Over
    }

    /// Goes on to the end if everything is here.
    fn check_complete(&mut self, core: &mut Core) {
        if self.phase != Phase::Receiving {
            return;
        }
        if self.units.is_some() {
            self.check_units(core);
            return;
        }
        let whole = self.end.filter(|end| self.ranges.gaps(0, *end).next().is_none());
        let handle = self.base.seat.handle;
        if whole.is_none() {
            if self.spool.file().is_some() && self.end.is_some() {
                self.spool.sum_up(&mut core.kernel, handle, self.ranges.prefix());
            }
            // Its last segment would have told where the block ends, if it ended there.
            let mixed = self.red.is_some_and(|red| red > 0 && self.end.is_none_or(|e| e > red));
            let is_recorded = self.relay.as_ref().is_some_and(|relay| relay.is_recorded);
            if self.red_is_here() && mixed && !self.is_safe && self.syncs == 0 && !is_recorded {
                // Green data takes its time, or never comes; the red part is safe without it.
                self.spool.flush(&mut core.kernel, handle);
                self.sync(core);
            }
            return;
        }
        if self.spool.file().is_none() {
            return;
        }
        if self.relay.is_some() {
            self.keep_all(core);
            return;
        }
        self.phase = Phase::Verifying;
        self.base.disarm(&mut core.kernel, Alarm::Inactivity);
        self.spool.flush(&mut core.kernel, handle);
        self.summed_up(core);
    }

    fn sync(&mut self, core: &mut Core) {
        let Some(file) = self.spool.file() else { return };
        self.syncs += 1;
        if let Some(relay) = self.relay.as_mut() {
            relay.synced = self.ranges.clone();
        }
        core.kernel.sync(self.base.seat.handle, file);
    }

    /// More of the file was summed up.
    fn summed_up(&mut self, core: &mut Core) {
        let content = match (&self.description, self.end) {
            (Some((at, _)), _) => *at,
            (None, Some(end)) => end,
            (None, None) => return,
        };
        self.spool.sum_up(
            &mut core.kernel,
            self.base.seat.handle,
            self.ranges.prefix().min(content),
        );
        if self.phase != Phase::Verifying {
            return;
        }
        let Some(checksum) = self.spool.checksum(content) else { return };
        let file = match &core.config.format {
            Format::Raw { name } => {
                Some(Description { name: name.clone(), size: content, checksum })
            }
            Format::Described => {
                self.description.as_ref().and_then(|(_, octets)| Description::decode(octets))
            }
        };
        let Some(file) = file else {
            self.refuse(core, PeerError::NotDescribed);
            return;
        };
        if file.size != content || file.checksum != checksum {
            self.refuse(core, PeerError::WrongContent);
            return;
        }
        self.file = Some(file);
        self.phase = Phase::Syncing;
        self.sync(core);
    }

    fn refuse(&mut self, core: &mut Core, error: PeerError) {
        core.user.indicate(Indication::PeerError { id: self.peer.session, error });
        self.cancel(core, CancelReason::System);
    }

    /// An effect of this session was carried out.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        now: Time,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let is_over = matches!(
            self.phase,
            Phase::Cancelling { .. } | Phase::Closing | Phase::Done | Phase::Telling
        );
        match (job, answer) {
            (Job::Write { cost }, answer) => {
                self.spool.written();
                core.kernel.written(cost);
                if answer.is_err() && !is_over {
                    self.storage_failed(core);
                }
            }
            (Job::Open, Ok(Completion::Opened { file, len, .. })) => {
                if is_over {
                    core.kernel.close(file);
                    self.remove(core);
                    return;
                }
                let handle = self.base.seat.handle;
                let described =
                    self.description.as_ref().map(|(at, octets)| (*at, at + octets.len() as u64));
                self.spool.opened(&mut core.kernel, handle, file, len, &mut self.ranges);
                if let Some((start, end)) = described {
                    self.ranges.insert(start, end);
                }
                self.check_complete(core);
            }
            _ if is_over => {}
            (Job::Own(Task::Mark), Ok(_)) => {
                self.mark = Mark::Kept;
                self.base.want(&mut core.kernel, Class::Control);
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                match self.spool.read_done(offset, len, bytes) {
                    Ok(()) => self.summed_up(core),
                    Err(()) => self.storage_failed(core),
                }
            }
            (Job::Own(Task::Record), Ok(_)) => self.written_down(core),
            (Job::Sync, Ok(_)) => self.synced(core),
            (Job::Install, Ok(_)) => self.installed(core, now),
            (
                Job::Open
                | Job::Read { .. }
                | Job::Sync
                | Job::Install
                | Job::Own(Task::Mark | Task::Record),
                _,
            ) => {
                self.storage_failed(core);
            }
            (Job::Repair { .. } | Job::Forget | Job::Own(Task::Load), _) => {}
        }
    }

    fn storage_failed(&mut self, core: &mut Core) {
        core.stats.storage_errors += 1;
        self.cancel(core, CancelReason::System);
    }

    fn synced(&mut self, core: &mut Core) {
        self.syncs = self.syncs.saturating_sub(1);
        match self.phase {
            Phase::Syncing if self.syncs == 0 && self.relay.is_some() => {
                self.phase = Phase::Installing;
                self.write_down(core);
            }
            Phase::Syncing if self.syncs == 0 && core.blocks.is_some() => self.hand_over_file(core),
            Phase::Syncing if self.syncs == 0 => {
                let name = self.file.as_ref().map_or("", |file| &file.name);
                let Ok(to) = FileName::file(name) else {
                    self.cancel(core, CancelReason::Unreachable);
                    return;
                };
                self.phase = Phase::Installing;
                self.spool.close(&mut core.kernel);
                let request = FilestoreRequest::Install { from: self.spool.name.clone(), to };
                core.kernel.filestore(self.base.seat.handle, Job::Install, request);
            }
            Phase::Receiving if self.relay.is_some() => self.write_down(core),
            Phase::Receiving => self.safe(core),
            Phase::Syncing
            | Phase::Verifying
            | Phase::Installing
            | Phase::Telling
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {}
        }
    }

    /// The red part will not be lost: what was asked about it is answered.
    fn safe(&mut self, core: &mut Core) {
        self.is_safe = true;
        let red = self.red.unwrap_or_default();
        for checkpoint in std::mem::take(&mut self.waiting) {
            let (lower, upper) = match self.reports.get(checkpoint.report) {
                Some(before) => (before.lower, before.upper),
                None => (0, red),
            };
            self.make_reports(core, checkpoint.serial, lower, upper);
        }
    }

    fn installed(&mut self, core: &mut Core, now: Time) {
        // From now on it does no harm if a later run hears of it again.
        self.mark.clear(core, self.peer.session);
        if self.file.is_some() {
            marks::record_done(core, self.peer.session, self.red.unwrap_or_default());
        }
        self.safe(core);
        self.phase = Phase::Telling;
        self.finished(core, Ok(()));
        self.watch_silence(core, now);
        if self.red == Some(0) || self.base.seat.path.is_none() {
            self.close(core);
        } else {
            self.close_if_told(core);
        }
    }

    fn finished(&mut self, core: &mut Core, result: Result<(), Failure>) {
        if self.is_half_open {
            // The user knows nothing of it.
            return;
        }
        if let Some(flow) = self.flow {
            let outcome = match result {
                Err(failure) => Outcome::Broken { flow, failure },
                Ok(()) if self.relay.is_none() => Outcome::Delivered { flow },
                Ok(()) => Outcome::Kept {
                    flow,
                    file: self.spool.release(),
                    shape: Shape {
                        parts: self.ranges.clone(),
                        end: self.end,
                        red: self.red.unwrap_or_default(),
                        last: self.relay.as_ref().and_then(|relay| relay.last.clone()),
                    },
                },
            };
            core.outcomes.push_back(outcome);
            if self.relay.is_some() {
                return;
            }
        }
        let file = self.file.as_ref();
        core.user.indicate(Indication::Finished(Finished {
            id: self.peer.session,
            role: End::Receiver,
            result,
            is_confirmed: result.is_ok(),
            name: file.map(|file| file.name.clone()).unwrap_or_default(),
            size: file.map_or(self.ranges.covered(), |file| file.size),
        }));
    }

    /// A timer went off.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Report(serial) => self.is_overdue(core, now, serial),
            Alarm::Cancel => {
                let Phase::Cancelling { reason, attempts, most, .. } = self.phase else { return };
                if attempts > most {
                    self.close(core);
                    return;
                }
                self.phase = Phase::Cancelling { reason, due: true, attempts, most };
                self.base.want(&mut core.kernel, Class::Control);
            }
            Alarm::Inactivity => self.look_for_life(core, now),
            Alarm::Gaps => {
                if self.gaps.rested() {
                    self.base.want(&mut core.kernel, Class::Control);
                }
            }
            Alarm::Checkpoint(_)
            | Alarm::Units(_)
            | Alarm::Host
            | Alarm::Retry(_)
            | Alarm::Expiry(_) => {}
        }
    }

    /// Silence of the sender after which the session ends.
    fn silence_max(&self, core: &Core) -> Duration {
        let reply = core.answer_time(&self.base, &self.peer.remote);
        let most = self.peer.remote.silence_max(reply);
        match self.is_half_open {
            true => most.min(HALF_OPEN_MAX + 2 * reply),
            false => most,
        }
    }

    fn watch_silence(&mut self, core: &mut Core, now: Time) {
        let wait = self.silence_max(core);
        self.base.alarm(&mut core.kernel, Alarm::Inactivity, now, wait);
    }

    fn look_for_life(&mut self, core: &mut Core, now: Time) {
        let limit = self.base.last_heard + self.silence_max(core);
        if limit > now {
            self.base.alarm(&mut core.kernel, Alarm::Inactivity, now, limit.since(now));
            return;
        }
        let is_kept = self.relay.is_some() && (self.is_safe || self.red == Some(0));
        match self.phase {
            // The rest is green and will not come; what came is on its way.
            Phase::Receiving if self.is_half_open => self.give_way(core),
            Phase::Receiving if is_kept && self.spool.file().is_some() => self.keep_all(core),
            Phase::Receiving => {
                let failure = Failure::new(End::Receiver, CancelReason::System);
                self.fail(core, Failure { cause: Some(Cause::Silence), ..failure });
            }
            Phase::Telling => self.close(core),
            Phase::Verifying
            | Phase::Syncing
            | Phase::Installing
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {}
        }
    }

    /// The sender ends the session.
    pub(crate) fn on_cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.cancel_ack_due = true;
        self.base.want(&mut core.kernel, Class::Control);
        match self.phase {
            Phase::Receiving | Phase::Verifying | Phase::Syncing => {
                self.finished(core, Err(Failure::new(End::Sender, reason)));
                self.discard(core);
                self.phase = Phase::Closing;
            }
            // Nobody took the block yet.
            Phase::Installing if core.blocks.is_some() => {
                self.finished(core, Err(Failure::new(End::Sender, reason)));
                self.discard(core);
                self.phase = Phase::Closing;
            }
            // Too late: the file has its name, or is about to.
            Phase::Installing | Phase::Done | Phase::Closing => {}
            Phase::Telling | Phase::Cancelling { .. } => self.phase = Phase::Closing,
        }
    }

    /// The sender has heard of the cancellation.
    pub(crate) fn on_cancel_ack(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Cancelling { .. }) {
            self.close(core);
        }
    }

    /// Ends the session, and tells the sender.
    pub(crate) fn cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.fail(core, Failure::new(End::Receiver, reason));
    }

    fn fail(&mut self, core: &mut Core, failure: Failure) {
        let reason = failure.reason;
        match self.phase {
            Phase::Receiving | Phase::Verifying | Phase::Syncing | Phase::Installing => {}
            Phase::Telling | Phase::Cancelling { .. } | Phase::Closing | Phase::Done => return,
        }
        self.finished(core, Err(failure));
        self.discard(core);
        self.refused = Some(reason);
        let most = self.peer.remote.cancel_limit(failure.cause);
        self.phase = Phase::Cancelling { reason, due: true, attempts: 0, most };
        self.base.want(&mut core.kernel, Class::Control);
        if self.base.seat.path.is_none() {
            self.close(core);
        }
    }

    /// Forgets what was received.
    fn discard(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.kernel);
        self.due.clear();
        self.reports.clear();
        self.waiting.clear();
        self.spool.abandon(&mut core.kernel);
        self.remove(core);
        if self.relay.as_ref().is_some_and(|relay| relay.is_recorded) {
            record::remove(core, self.peer.session);
        }
    }

    fn remove(&mut self, core: &mut Core) {
        if self.units.is_some() || !self.spool.is_begun() {
            return;
        }
        let request = FilestoreRequest::DenyFile(self.spool.name.clone());
        core.kernel.filestore(self.base.seat.handle, Job::Forget, request);
    }

    fn close(&mut self, core: &mut Core) {
        self.mark.clear(core, self.peer.session);
        self.base.disarm_all(&mut core.kernel);
        self.spool.abandon(&mut core.kernel);
        self.phase = Phase::Done;
    }

    /// The path or its return came up: it is used at once.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        if let Phase::Cancelling { due, .. } = &mut self.phase {
            *due = true;
        }
        self.resume_reports(core, now);
        self.want_all(core);
    }

    /// Asks for a turn for all that waits to be sent.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        self.base.want(&mut core.kernel, Class::Control);
    }
}
