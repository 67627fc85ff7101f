//! Session at the engine that receives the block (RFC 5326 §6, §8.2).
//!
//! A report is a promise: the sender forgets the claimed data. The report that claims all of the
//! red part is therefore sent only when that part is safely stored. For a file, this is when it
//! has its name.

mod ending;
mod extent;
mod filing;
mod reporting;
mod sink;

use std::time::Duration;

use bytes::Bytes;
use engine::{Completion, EffectError, Time};
use session::Base;
use session::delivery::Delivery;
use session::path::{Burst, Class, Turn};
use session::ranges::Ranges;

use self::extent::{Extent, Misfit, ends_block};
pub(crate) use self::filing::Stored;
use self::reporting::Reporting;
use self::sink::{Filing, Sink};
use super::config::Format;
use super::core::{Alarm, Core, Job, Peer, Task};
use super::file::NAME_MAX;
use super::indication::{
    Block, BlockContent, Cause, Failure, Indication, Limit, PeerError, Report,
};
use super::records::Record;
use super::silence::backed_off;
use super::transport::flow::{Last, Seq};
use crate::segment::{
    AGGREGATION_SERVICE, Body, CancelReason, Claims, Data, End, Report as ReportSegment, SessionId,
    Unit,
};

/// Transmissions of a cancellation after which it backs off.
const STEADY_CANCELS: u32 = 2;

/// Maximum segments of a session that may be dropped for others.
const WEAK_SEGMENTS: u32 = 2;

/// Maximum silence after which such a session may be dropped: over long links, a few datagrams
/// would otherwise keep others out for a light time.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// Session that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) peer: Peer,
    /// All data received, red and green.
    ranges: Ranges,
    /// Number of ranges included in the engine's total.
    ranges_counted: usize,
    extent: Extent,
    /// Client service of the block.
    service: u64,
    sink: Sink,
    /// LTP-T transfer of which this session is a hop.
    flow: Option<Seq>,
    reporting: Reporting,
    /// Whether the red part is safely stored.
    is_safe: bool,
    cancel_ack_due: bool,
    record: Record,
    /// Time of the last save, or of the first data.
    saved_at: Time,
    /// Whether it continues one of an earlier run.
    is_resumed: bool,
    is_half_open: bool,
    /// Number of data segments received.
    segments: u32,
    refused: Option<CancelReason>,
    /// Whether it was removed to make room for another, and may begin again.
    is_displaced: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    /// Complete, or silent without its green part; the working file is being verified, stored and
    /// renamed or recorded.
    Storing,
    /// Complete and offered to the user, who has not accepted it yet.
    Offered,
    /// Successful: the final report is being sent.
    Telling,
    /// Cancelled here; waits for the acknowledgement.
    Cancelling {
        reason: CancelReason,
        due: bool,
        attempts: u32,
        /// Retransmissions before the session closes without a reply.
        most: u32,
    },
    /// Ended by the sender: the acknowledgement is queued.
    Closing,
    Done,
}

/// Limit that leaves no room for a block in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// Limit on a single block.
    Leave,
    /// Limit on all blocks together.
    Memory,
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
        let sink = match (core.blocks.is_some(), is_units) {
            (true, _) => Sink::Block(Vec::new()),
            (false, true) => Sink::Units(Vec::new()),
            (false, false) => Sink::File(Box::new(Filing::new(peer.session))),
        };
        let mut receiver = Self::with(base, peer, core, service, sink);
        receiver.is_half_open = true;
        receiver.begin(core, now)
    }

    /// Makes this session the last hop of a transfer, which receives its result.
    pub(crate) fn set_flow(&mut self, flow: Seq) {
        self.flow = Some(flow);
    }

    fn begin(mut self, core: &mut Core, now: Time) -> Self {
        self.watch_silence(core, now);
        self
    }

    fn with(base: Base<Alarm>, peer: Peer, core: &mut Core, service: u64, sink: Sink) -> Self {
        Self {
            base,
            peer,
            ranges: Ranges::new(),
            ranges_counted: 0,
            extent: Extent::new(),
            service,
            sink,
            flow: None,
            reporting: Reporting::new(core.first_serial()),
            is_safe: false,
            cancel_ack_due: false,
            record: Record::default(),
            saved_at: core.now,
            is_resumed: false,
            is_half_open: false,
            segments: 0,
            refused: None,
            is_displaced: false,
            phase: Phase::Receiving,
        }
    }

    /// Whether it has ended, and its last record was written.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done && !self.record.is_busy()
    }

    pub(crate) fn id(&self) -> SessionId {
        self.peer.session
    }

    /// Reason of the local cancellation, if any.
    pub(crate) fn refused(&self) -> Option<CancelReason> {
        self.refused
    }

    /// End of the red part, if all of it is safely stored.
    pub(crate) fn delivered(&self) -> Option<u64> {
        self.extent.red.filter(|_| self.is_safe)
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.peer.session,
            role: End::Receiver,
            progress: self.ranges.covered(),
            confirmed: None,
            size: self.extent.end,
            name: self.sink.file().map(|file| file.name.clone()).unwrap_or_default(),
        }
    }

    /// Processes a data segment.
    pub(crate) fn on_data(&mut self, core: &mut Core, now: Time, data: &Data<'_>) {
        self.base.last_received = now;
        self.segments = self.segments.saturating_add(1);
        let is_first = self.segments == 1 && !self.is_resumed;
        self.reporting.arrivals.arrived(now, data.data.len());
        let is_last = data.kind.ends_red() || ends_block(data.kind);
        if self.is_half_open && (!is_first || is_last || data.checkpoint.is_some()) {
            self.establish(core);
        }
        let (start, end) = (data.offset, data.offset + data.data.len() as u64);
        // A sender that retransmits known data as a checkpoint has missed a report: it needs a full
        // one.
        let is_here = self.ranges.gaps(start, end).next().is_none();
        let covered = self.ranges.covered();
        if self.phase == Phase::Receiving {
            if data.service != self.service && is_first {
                self.cancel(core, CancelReason::Unreachable);
                return;
            }
            if data.service != self.service {
                // The segment is damaged, because the block is for the service here.
                core.stats.data_dropped += 1;
                return;
            }
            self.open_file(core);
            if !self.take(core, data) {
                return;
            }
            self.open_file(core);
            self.save_in_time(core);
        } else {
            core.stats.duplicate_data += 1;
        }
        self.count_ranges(core, self.ranges.len());
        // Ranking at each doubling keeps the work of a segment small.
        if covered.leading_zeros() != self.ranges.covered().leading_zeros() {
            core.shared.places.gained(self.base.seat.handle, self.ranges.covered());
        }
        if let Some(checkpoint) = data.checkpoint {
            self.on_checkpoint(core, checkpoint, if is_here { 0 } else { start }, end);
        }
        self.check_complete(core);
    }

    /// Takes the data of a segment. Returns `false` if the segment ends the session, or was
    /// dropped.
    fn take(&mut self, core: &mut Core, data: &Data<'_>) -> bool {
        let (start, end) = (data.offset, data.offset + data.data.len() as u64);
        let misfit = self.extent.misfit(data.kind, start, end, self.ranges.end());
        if misfit == Some(Misfit::Miscolored) {
            self.cancel(core, CancelReason::Miscolored);
            return false;
        }
        let is_too_long = end > core.config.limits.block;
        if is_too_long && misfit.is_none() && ends_block(data.kind) && core.blocks.is_some() {
            // No retransmission would help the block's sender.
            let failure = Failure::new(End::Receiver, CancelReason::Unreachable);
            self.fail(core, Failure { cause: Some(Cause::TooLong), ..failure });
            return false;
        }
        if is_too_long || misfit == Some(Misfit::Beyond) {
            core.stats.data_dropped += 1;
            return false;
        }
        if misfit == Some(Misfit::ConflictingEnd) {
            let error = PeerError::ConflictingEnd;
            core.user.indicate(Indication::PeerError { id: self.peer.session, error });
            return false;
        }
        let is_last = ends_block(data.kind);
        if !self.accept(core, start, end, data.data, is_last) {
            return false;
        }
        if data.kind.is_red() {
            self.look_for_gaps(core, start, end);
        }
        if is_last
            && self.extent.end.is_none()
            && let Some(relay) = self.sink.relay_mut()
        {
            let bytes = Bytes::copy_from_slice(data.data);
            relay.last = Some(Last { offset: start, bytes });
        }
        self.extent.learn(data.kind, start, end);
        true
    }

    fn accept(&mut self, core: &mut Core, start: u64, end: u64, data: &[u8], last: bool) -> bool {
        if start == end {
            return true;
        }
        let (limits, len) = (&core.config.limits, self.ranges.len());
        // Each session may have one range, so that data in order is always accepted.
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
        if self.is_beyond_memory(core, end) {
            self.spill(core);
        }
        match &mut self.sink {
            Sink::Units(_) | Sink::Block(_) => self.accept_in_memory(core, start, end, data),
            Sink::File(filing) if last && core.config.format == Format::Described => {
                if data.len() > NAME_MAX + 64 {
                    let error = PeerError::NotDescribed;
                    core.user.indicate(Indication::PeerError { id: self.peer.session, error });
                    return false;
                }
                filing.describe(start, data);
                self.ranges.insert(start, end);
                true
            }
            Sink::File(_) | Sink::Relay(_) => self.append(core, start, data, &gaps),
        }
    }

    /// Appends the new part of a segment to the working file. Returns `false` if there is no room
    /// for it.
    fn append(&mut self, core: &mut Core, start: u64, data: &[u8], new: &[(u64, u64)]) -> bool {
        for &(from, to) in new {
            let part = &data[(from - start) as usize..(to - start) as usize];
            let Some(delivery) = self.sink.delivery_mut() else { return false };
            let (shared, seat) = (&mut core.shared, &self.base.seat);
            if !delivery.append(shared, seat, &mut self.ranges, from, part) {
                core.no_room();
                return false;
            }
            if let Some(relay) = self.sink.relay_mut() {
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

    /// Releases accounted resources.
    pub(crate) fn let_go(&mut self, core: &mut Core) {
        self.count_ranges(core, 0);
        core.units -= self.sink.in_memory();
    }

    /// Whether the block is complete in a working file, and safely stored.
    fn is_stored(&self) -> bool {
        self.sink.delivery().is_some_and(Delivery::is_stored)
    }

    /// Whether all of the red part has arrived.
    fn red_is_here(&self) -> bool {
        self.extent.red.is_some_and(|red| self.ranges.gaps(0, red).next().is_none())
    }

    /// Sends queued segments: a receiver only has reports and cancellations.
    pub(crate) fn emit(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        self.report_gaps(core, burst.departure());
        self.report_repeats(core);
        while let Some(&serial) = self.reporting.due.front() {
            if !self.may_claim(core, serial) {
                self.record_parts(core);
                break;
            }
            self.refresh(core, serial);
            let Some(sent) = self.reporting.reports.get(serial) else {
                self.reporting.due.pop_front();
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
            self.reporting.due.pop_front();
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
                if !core.shared.replies.refusals.admit(core.now, path) {
                    // The sender is informed when it retransmits.
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
                self.base.alarm(&mut core.shared, Alarm::Cancel, burst.departure(), wait);
            }
            Phase::Cancelling { .. }
            | Phase::Receiving
            | Phase::Storing
            | Phase::Offered
            | Phase::Telling
            | Phase::Done => {}
        }
        Turn::Over
    }

    /// Processes the result of an effect of this session.
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
            (Job::Own(Task::Record), result) => {
                let is_last = self.record.written(core, self.base.seat.handle);
                match result {
                    _ if is_over => {}
                    Ok(_) if is_last => self.recorded(core),
                    Ok(_) => {}
                    Err(error) => self.cannot_store(core, (&error).into()),
                }
            }
            (Job::Own(_), _) if is_over => {}
            (Job::Own(Task::Route), Ok(_)) => self.written_down(core),
            (Job::Own(Task::Route), Err(error)) => self.cannot_store(core, (&error).into()),
            (job, answer) => {
                let Some(delivery) = self.sink.delivery_mut() else { return };
                let (shared, handle) = (&mut core.shared, self.base.seat.handle);
                let ranges = &mut self.ranges;
                let event = delivery.on_done(shared, handle, now, ranges, &job, answer);
                if let Some(event) = event.filter(|_| !is_over) {
                    self.on_delivery(core, now, &event);
                }
            }
        }
    }

    /// Processes a timer.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Report(serial) => self.on_report_overdue(core, now, serial),
            Alarm::Cancel => {
                let Phase::Cancelling { reason, attempts, most, .. } = self.phase else { return };
                if attempts > most {
                    self.close(core);
                    return;
                }
                self.phase = Phase::Cancelling { reason, due: true, attempts, most };
                self.base.want(&mut core.shared, Class::Control);
            }
            Alarm::Inactivity => self.look_for_life(core, now),
            Alarm::Gaps => {
                if self.reporting.gaps.rested() {
                    self.base.want(&mut core.shared, Class::Control);
                }
            }
            Alarm::Checkpoint(_)
            | Alarm::Units(_)
            | Alarm::Host
            | Alarm::Retry(_)
            | Alarm::Expiry(_) => {}
        }
    }

    /// Resumes at once when the path or its return link comes up.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        if let Phase::Cancelling { due, .. } = &mut self.phase {
            *due = true;
        }
        self.resume_reports(core, now);
        self.want_all(core);
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Whether a block for hand-over is too long to be held in memory up to `end`.
    fn is_beyond_memory(&self, core: &Core, end: u64) -> bool {
        matches!(self.sink, Sink::Block(_))
            && self.service != AGGREGATION_SERVICE
            && self.lacks_room(core, end).is_some()
    }

    /// Moves a block from memory to a working file. Data without room is requested again.
    fn spill(&mut self, core: &mut Core) {
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        let (shared, seat) = (&mut core.shared, &self.base.seat);
        let mut filing = Box::new(Filing::new(self.peer.session));
        filing.delivery.open(shared, seat.handle, None);
        for (start, end) in std::mem::take(&mut self.ranges).iter() {
            let part = &block[start as usize..end as usize];
            filing.delivery.append(shared, seat, &mut self.ranges, start, part);
        }
        self.sink = Sink::File(filing);
    }

    /// Hands over a complete block in memory.
    fn hand_over_memory(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        self.hand_over(core, BlockContent::Bytes(block.into()));
    }

    /// Hands over a complete block in a synced working file.
    fn hand_over_file(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        filing.delivery.spool.close(&mut core.shared);
        let len = filing.file().map_or(0, |file| file.size);
        let content = BlockContent::File(filing.delivery.spool.name.clone(), len);
        self.hand_over(core, content);
    }

    fn hand_over(&mut self, core: &mut Core, content: BlockContent) {
        self.phase = Phase::Offered;
        let (id, service, path) = (self.peer.session, self.service, self.base.seat.path);
        if let Some(blocks) = &mut core.blocks {
            blocks.push_back(Block { id, service, path, content });
        }
    }

    /// Processes the user's acceptance of the block.
    pub(crate) fn accepted(&mut self, core: &mut Core, now: Time) {
        if self.phase == Phase::Offered {
            self.installed(core, now);
        }
    }

    fn accept_in_memory(&mut self, core: &mut Core, start: u64, end: u64, data: &[u8]) -> bool {
        let lacks = self.lacks_room(core, end);
        let (Sink::Units(block) | Sink::Block(block)) = &mut self.sink else { return false };
        if let Some(lacks) = lacks {
            core.stats.data_dropped += 1;
            if lacks == Lacks::Memory {
                core.user.limit_reached(Limit::Units);
            }
            return false;
        }
        let len = block.len().max(end as usize);
        core.units += len - block.len();
        block.resize(len, 0);
        block[start as usize..end as usize].copy_from_slice(data);
        self.ranges.insert(start, end);
        true
    }

    /// Reason why the block cannot be held in memory up to `end`, if any.
    fn lacks_room(&self, core: &Core, end: u64) -> Option<Lacks> {
        let limits = &core.config.limits;
        let more = end.saturating_sub(self.sink.in_memory() as u64);
        if end > limits.units as u64 {
            return Some(Lacks::Leave);
        }
        (more > limits.units_total.saturating_sub(core.units) as u64).then_some(Lacks::Memory)
    }

    /// Finishes the session if the block is complete.
    fn check_memory(&mut self, core: &mut Core) {
        if self.extent.end.is_none_or(|end| self.ranges.gaps(0, end).next().is_some()) {
            if self.red_is_here() && self.extent.red > Some(0) && !self.is_safe {
                // Green data may never arrive.
                self.safe(core);
            }
            return;
        }
        match &self.sink {
            Sink::Block(_) => self.hand_over_memory(core),
            Sink::Units(block) => {
                let block = Bytes::copy_from_slice(block);
                self.indicate_units(core, &block);
            }
            Sink::File(_) | Sink::Relay(_) => {}
        }
    }

    /// Indicates the units of a complete block.
    fn indicate_units(&mut self, core: &mut Core, block: &Bytes) {
        let Ok(units) = Unit::decode_all(block) else {
            self.refuse(core, PeerError::NotUnits);
            return;
        };
        for Unit { service, data } in units {
            let (id, bytes) = (self.peer.session, block.slice_ref(data));
            core.user.indicate(Indication::Data { id, service, bytes });
        }
        self.installed(core, self.base.last_received);
    }

    /// Whether a single segment arrived that requires no reply. Anyone can send such a segment:
    /// such a session has no file, and is dropped for others.
    pub(crate) fn is_half_open(&self) -> bool {
        self.is_half_open
    }

    /// Marks the session as more than half-open.
    pub(crate) fn establish(&mut self, core: &mut Core) {
        self.is_half_open = false;
        let (id, service) = (self.peer.session, self.service);
        core.user.indicate(Indication::Receiving { id, service });
        self.watch_silence(core, core.now);
    }

    /// Opens the file with the second segment, or with a first one that is all of the red part: a
    /// lone checkpoint costs only memory.
    fn open_file(&mut self, core: &mut Core) {
        let is_worth = self.segments > 1 || self.red_is_here();
        if self.phase != Phase::Receiving || self.is_half_open || !is_worth {
            return;
        }
        self.start_file(core);
    }

    /// Silence of a session of at most two segments whose reports were not acknowledged; `None` for
    /// others.
    pub(crate) fn weak_for(&self, now: Time) -> Option<Duration> {
        let is_weak = self.phase == Phase::Receiving
            && !self.is_half_open
            && self.segments <= WEAK_SEGMENTS
            && !self.reporting.is_answered
            && !self.is_resumed
            && self.sink.relay().is_none();
        is_weak.then(|| now.since(self.base.last_received))
    }

    /// Silence after which a session of at most two segments may be dropped: two reply times, as
    /// its sender retransmits.
    pub(crate) fn patience(&self, core: &Core) -> Duration {
        (core.answer_time(&self.base, &self.peer.remote) * 2).min(PATIENCE_MAX)
    }

    /// Whether it was removed to make room for another, and may begin again.
    pub(crate) fn is_displaced(&self) -> bool {
        self.is_displaced
    }

    /// Whether no report was made, by an earlier run either, so that the sender still has all data.
    fn is_unclaimed(&self) -> bool {
        self.reporting.is_silent() && !self.is_resumed
    }

    /// Makes room for another session. Returns `false` if this one ends by itself.
    pub(crate) fn make_way(&mut self, core: &mut Core) -> bool {
        match self.phase {
            Phase::Receiving if self.is_half_open => self.give_way(core),
            Phase::Receiving if self.is_unclaimed() && self.flow.is_none() => {
                core.user.indicate(Indication::Displaced(self.peer.session));
                self.is_displaced = true;
                self.discard(core);
                self.close(core);
            }
            Phase::Receiving => self.evict(core),
            // The user has not accepted the block.
            Phase::Offered => self.evict(core),
            // A sender that still waits gets the reply from memory.
            Phase::Telling | Phase::Cancelling { .. } => self.close(core),
            Phase::Storing | Phase::Closing | Phase::Done => return false,
        }
        true
    }

    /// Ends a session to make room for another. Its reported data is lost, so its further segments
    /// are refused.
    fn evict(&mut self, core: &mut Core) {
        let reason = CancelReason::System;
        self.finished(core, Err(Failure::new(End::Receiver, reason)));
        self.discard(core);
        self.refused = Some(reason);
        self.close(core);
    }

    /// Forgets a half-open session silently: the peer's next segment starts it again.
    pub(crate) fn give_way(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.leave(core);
        self.phase = Phase::Done;
    }
}
