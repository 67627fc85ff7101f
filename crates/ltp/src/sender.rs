//! Session at the engine that sends the block (RFC 5326 §6, §8.1).
//!
//! [`Layout`] describes the block, [`Checkpoints`] the checkpoints that await a report,
//! [`Reports`] the receiver's claims, and [`Filling`] retransmits data while reports are delayed.

mod checkpoints;
mod fill;
mod layout;
mod onward;
mod reports;

use bytes::Bytes;
use engine::{Completion, EffectError, FileId, OpenMode, Time};
use session::path::{Burst, Class, Path, Turn};
use session::source::Source;
use session::storage::Storage as _;
use session::window::Window;
use session::{Base, UnexpectedLength};
use wire::checksum::ChecksumType;

use self::checkpoints::Checkpoints;
use self::fill::Filling;
use self::layout::Layout;
use self::reports::Reports;
use super::config::{Format, Remote};
use super::core::{Alarm, Core, Job, Peer};
use super::file::Description;
use super::indication::{Cause, Failure, Finished, Indication, Limit, PeerError, Report};
use super::records::{self, Sending};
use super::request::{Red, SendRequest};
use super::silence::backed_off;
use super::supply::Supply;
use super::transport::flow::{Outcome, Seq};
use crate::segment::ltpt::Congestion;
use crate::segment::{
    AGGREGATION_SERVICE, Body, CancelReason, Checkpoint, Data, DataKind, End, SessionId,
    least_segment,
};

/// Bytes of a checkpoint's two serial numbers, while they are below 2^21.
const SERIALS: usize = 6;

/// Transmissions of a cancellation after which it backs off.
const STEADY_CANCELS: u32 = 2;

/// Session that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) peer: Peer,
    destination: u64,
    /// Name of the file at the receiver; empty if the block is not a file.
    name: String,
    color: Red,
    /// The file, if a restarted engine goes on with it.
    kept: Option<Sending>,
    /// Whether it continues a session of an earlier run.
    is_resumed: bool,
    /// Bytes of a block of units, otherwise 0.
    units: usize,
    service: u64,
    /// The transfer of LTP-T of which this session is a hop.
    flow: Option<Seq>,
    source: Option<Supply>,
    layout: Layout,
    reports: Reports,
    checkpoints: Checkpoints,
    filling: Filling,
    /// Limit of an unpaced sender on data ahead of the receiver's reports.
    window: Option<Window>,
    /// Congestion reported by the receiver when it ended the session.
    congestion: Option<Congestion>,
    cancel_ack_due: bool,
    phase: Phase,
}

/// Reason for sending a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// First transmission.
    First,
    /// First transmission, after which all of the red part was sent, though out of order.
    Completing,
    /// Retransmission.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Sending,
    /// Finished, or ended by the receiver: the last replies are queued.
    Closing,
    /// Cancelled here; waits for the acknowledgement.
    Cancelling {
        reason: CancelReason,
        due: bool,
        attempts: u32,
        /// Retransmissions before the session closes without a reply.
        most: u32,
    },
    Done,
}

impl Sender {
    fn new(base: Base<Alarm>, peer: Peer, destination: u64, core: &mut Core) -> Self {
        Self {
            base,
            peer,
            destination,
            name: String::new(),
            color: Red::All,
            kept: None,
            is_resumed: false,
            units: 0,
            service: core.config.service,
            flow: None,
            source: None,
            layout: Layout::new(core.config.format == Format::Described),
            reports: Reports::new(),
            checkpoints: Checkpoints::new(core.first_serial()),
            filling: Filling::default(),
            window: None,
            congestion: None,
            cancel_ack_due: false,
            phase: Phase::Opening,
        }
    }

    /// Starts a session that sends a file.
    pub(crate) fn of_file(
        base: Base<Alarm>,
        peer: Peer,
        request: SendRequest,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, request.destination, core);
        (sender.name, sender.color) = (request.name.clone(), request.red);
        core.shared.open(sender.base.seat.handle, request.source.clone(), OpenMode::Read);
        // Without a description, nothing shows whether both runs sent the same file.
        let is_described = core.config.format == Format::Described;
        if core.config.journal && is_described && request.red == Red::All {
            sender.kept = Some(Sending { request, len: 0, modified: None });
        }
        sender
    }

    /// Continues a session of an earlier run. What of the file was sent is unknown: the description
    /// at its end requests a report, and what that does not claim is sent.
    pub(crate) fn resumed(
        base: Base<Alarm>,
        peer: Peer,
        sending: Sending,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::of_file(base, peer, sending.request.clone(), core);
        (sender.kept, sender.is_resumed) = (Some(sending), true);
        sender
    }

    /// Continues a block of an earlier run of which the receiver may have a part: its last byte
    /// requests a report.
    pub(crate) fn go_on(&mut self) {
        self.is_resumed = self.color == Red::All;
    }

    /// Whether an earlier run began it with this request.
    pub(crate) fn continues(&self, request: &SendRequest) -> bool {
        let kept = self.kept.as_ref().filter(|_| self.is_resumed);
        kept.is_some_and(|kept| kept.request == *request)
    }

    /// Starts a session that sends a block of units.
    pub(crate) fn of_units(
        base: Base<Alarm>,
        peer: Peer,
        destination: u64,
        block: Bytes,
        core: &mut Core,
    ) -> Self {
        let len = block.len();
        let mut sender =
            Self::of_bytes(base, peer, destination, AGGREGATION_SERVICE, block, Red::All, core);
        sender.units = len;
        core.units += sender.units;
        sender
    }

    /// Starts a session that sends bytes to a client service of an engine.
    pub(crate) fn of_bytes(
        base: Base<Alarm>,
        peer: Peer,
        destination: u64,
        service: u64,
        block: Bytes,
        red: Red,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, destination, core);
        (sender.service, sender.color) = (service, red);
        sender.layout.set_bare();
        let len = block.len() as u64;
        let source = Source::in_memory(block, ChecksumType::Crc32c);
        sender.begin(core, source.expect("CRC-32C is a known type"), len);
        sender
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.peer.session,
            role: End::Sender,
            progress: self.source.as_ref().map_or(0, Supply::sent),
            confirmed: Some(self.reports.claimed().covered().min(self.layout.content))
                .filter(|claimed| *claimed > 0 || self.is_resumed),
            size: self.source.as_ref().map(|_| self.layout.content).filter(|size| *size < u64::MAX),
            name: self.name.clone(),
        }
    }

    /// Processes the result of an effect of this session.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let system = CancelReason::System;
        match (job, answer) {
            (Job::Open, Ok(Completion::Opened { file, len, modified })) => {
                if self.phase != Phase::Opening {
                    core.shared.close(file);
                    return;
                }
                self.opened(core, file, len, modified);
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.read_done(offset, len, bytes) {
                    Ok(()) => {
                        self.read_ahead(core);
                        self.base.want(&mut core.shared, Class::Bulk);
                    }
                    Err(UnexpectedLength) => self.cancel(core, system),
                }
            }
            (Job::Repair { offset }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.repair_done(offset, bytes) {
                    Ok(()) => self.base.want(&mut core.shared, Class::Repair),
                    Err(UnexpectedLength) => self.cancel(core, system),
                }
            }
            (Job::Open | Job::Read { .. } | Job::Repair { .. }, _) => {
                core.stats.storage_errors += 1;
                self.cancel(core, system);
            }
            (Job::Write { .. } | Job::Sync | Job::Install | Job::Forget | Job::Own(_), _) => {}
        }
    }

    fn opened(&mut self, core: &mut Core, file: FileId, len: u64, modified: Option<u64>) {
        if let Some(Supply::Passage(passage)) = self.source.as_mut() {
            passage.take_over(file);
            self.start(core);
            return;
        }
        // The checksum of the whole file is in its description.
        let (checksum, skip) = match (self.layout.is_described(), self.is_resumed) {
            (true, true) => (ChecksumType::Crc32c, len),
            (true, false) => (ChecksumType::Crc32c, 0),
            (false, _) => (ChecksumType::Null, 0),
        };
        let Some(mut source) = Source::new(file, Some(len), skip, checksum) else { return };
        if self.is_resumed && !self.layout.is_described() {
            source.skip_to(self.layout.asks_from(len));
        }
        match &mut self.kept {
            Some(sending)
                if self.is_resumed && (sending.len, sending.modified) != (len, modified) =>
            {
                core.shared.close(file);
                self.cancel(core, CancelReason::System);
                return;
            }
            Some(sending) => {
                (sending.len, sending.modified) = (len, modified);
                sending.record(core, self.peer.session);
            }
            None => {}
        }
        self.begin(core, source, len);
    }

    fn begin(&mut self, core: &mut Core, source: Source, len: u64) {
        self.source = Some(Supply::Source(source));
        let description = self.layout.measure(len, &self.name, self.color);
        if self.layout.is_described() {
            self.peer.set_block_size(self.layout.total);
        }
        let failure = Failure::new(End::Sender, CancelReason::System);
        if let Some(cause) = self.obstacle(core, description) {
            self.fail(core, Failure { cause: Some(cause), ..failure });
            return;
        }
        self.start(core);
    }

    /// Cause that prevents sending the block, whose description has `description` bytes.
    fn obstacle(&self, core: &Core, description: u64) -> Option<Cause> {
        if self.layout.total == 0 {
            return Some(Cause::Empty);
        }
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let mtu = path.filter(|path| path.is_up()).map(Path::mtu)?;
        let (session, service) = (self.peer.session, self.service);
        let extensions = self.peer.extensions_len() as u64;
        let least = extensions + least_segment(session, service, self.layout.content, description);
        let mtu = self.peer.datagram_max(mtu) as u64;
        (least > mtu).then_some(Cause::TooNarrow { least, mtu })
    }

    fn start(&mut self, core: &mut Core) {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let is_paced = path.is_some_and(Path::is_paced) || !self.peer.remote.interval.is_zero();
        if !is_paced && self.layout.is_red() {
            let sent = self.source.as_ref().map_or(0, Supply::sent);
            self.window = self.peer.remote.unpaced_window.map(|most| Window::new(most, sent));
        }
        self.phase = Phase::Sending;
        self.read_ahead(core);
        self.base.want(&mut core.shared, Class::Bulk);
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let segment = self.segment(core);
        if let Some(source) = self.source.as_mut() {
            source.read_ahead(core, self.base.seat.handle, segment);
        }
    }

    /// Bytes of block data in a full segment.
    fn segment(&self, core: &Core) -> usize {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        self.room(path.map_or(0, Path::mtu).max(64), 0, None).unwrap_or(1)
    }

    /// Maximum bytes of block data in a segment at `offset`; `None` if not even one fits.
    fn room(&self, mtu: usize, offset: u64, checkpoint: Option<Checkpoint>) -> Option<usize> {
        let max = self.peer.segment_max(mtu);
        let head = Data::overhead(self.peer.session, self.service, offset, max as u64, checkpoint);
        // A repair of one segment is a checkpoint, too, and must not need a second segment.
        let spare = if self.peer.remote.report_gaps && checkpoint.is_none() { SERIALS } else { 0 };
        let room = max.saturating_sub(head + spare);
        let most = self.peer.remote.segment_max.map_or(room, |most| most.min(room));
        (most > 0).then_some(most.min(65_000))
    }

    /// Sends queued segments of one class.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        let is_sending = self.phase == Phase::Sending;
        let turn = match class {
            Class::Control => return self.emit_control(core, burst),
            Class::Repair if is_sending => self.emit_repairs(core, burst),
            Class::Bulk if is_sending => self.emit_new(core, burst),
            Class::Repair | Class::Bulk | Class::Metadata => return Turn::Over,
        };
        if turn == Turn::Over {
            self.begin_fill(core);
        }
        turn
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        while let Some(serial) = self.reports.next_ack() {
            if !self.peer.push(core, burst, Body::ReportAck { serial }) {
                return Turn::More;
            }
            self.reports.acknowledged();
        }
        if self.cancel_ack_due {
            if !self.peer.push(core, burst, Body::CancelAck { by: End::Receiver }) {
                return Turn::More;
            }
            self.cancel_ack_due = false;
        }
        match self.phase {
            Phase::Closing => self.close(core),
            Phase::Cancelling { reason, due: true, attempts, most } => {
                if !self.peer.push(core, burst, Body::Cancel { by: End::Sender, reason }) {
                    return Turn::More;
                }
                let attempts = attempts + 1;
                self.phase = Phase::Cancelling { reason, due: false, attempts, most };
                let auto = core.answer_time(&self.base, &self.peer.remote);
                let timer = self.peer.remote.cancel_timer;
                let wait = backed_off(timer, auto, attempts - 1, STEADY_CANCELS);
                self.base.alarm(&mut core.shared, Alarm::Cancel, burst.departure(), wait);
            }
            Phase::Cancelling { .. } | Phase::Opening | Phase::Sending | Phase::Done => {}
        }
        Turn::Over
    }

    /// Whether `len` new red bytes sent at `at` become a checkpoint (§6.2: discretionary).
    fn is_checkpoint_due(&self, len: u64, at: Time) -> bool {
        let Remote { checkpoint_every, checkpoint_interval, .. } = self.peer.remote;
        let window_every = self.window.as_ref().map(Window::every);
        let every = checkpoint_every.into_iter().chain(window_every).min();
        self.checkpoints.is_due(len, at, every, checkpoint_interval)
    }

    /// Kind of a segment `offset..end` sent at `at`, with the serial numbers of a checkpoint.
    fn kind(
        &mut self,
        offset: u64,
        end: u64,
        pass: Pass,
        at: Time,
    ) -> (DataKind, Option<Checkpoint>) {
        let layout = &self.layout;
        if offset >= layout.red {
            let last = end == layout.total;
            return (if last { DataKind::EndOfGreenBlock } else { DataKind::Green }, None);
        }
        let due = match pass {
            Pass::First => self.is_checkpoint_due(end - offset, at),
            Pass::Completing => true,
            Pass::Again => false,
        };
        let serial = self.checkpoints.serial_at(end);
        let kind = if end == layout.red {
            if layout.is_red() { DataKind::EndOfRedBlock } else { DataKind::EndOfRedPart }
        } else if due || serial.is_some() {
            DataKind::Checkpoint
        } else {
            return (DataKind::Red, None);
        };
        let serial = serial.unwrap_or_else(|| self.checkpoints.set(end, 0, None));
        (kind, Some(Checkpoint { serial, report: self.checkpoints.report(serial) }))
    }

    /// Writes a data segment. Returns the bytes taken of `data`, or `None` if the batch is full.
    fn push_data(
        &mut self,
        core: &mut Core,
        burst: &mut Burst<'_>,
        offset: u64,
        data: &[u8],
        pass: Pass,
    ) -> Option<usize> {
        let at = burst.departure();
        let is_new = pass != Pass::Again;
        let (mut kind, mut checkpoint) = self.kind(offset, offset + data.len() as u64, pass, at);
        let mut data = data;
        let room = self.room(burst.mtu(), offset, checkpoint).unwrap_or(0);
        if checkpoint.is_some() && data.len() > room && room > 0 {
            // The data does not fit together with serial numbers; the rest follows and is the
            // checkpoint.
            (kind, checkpoint) = (DataKind::Red, None);
            data = &data[..room];
        }
        let body = Body::Data(Data { kind, service: self.service, offset, checkpoint, data });
        if !self.peer.push(core, burst, body) {
            return None;
        }
        if kind.is_red() && is_new {
            self.checkpoints.data_left(data.len() as u64, at);
        }
        if let Some(Checkpoint { serial, .. }) = checkpoint {
            if is_new {
                self.checkpoints.new_left(at);
            }
            self.checkpoint_left(core, burst.departure(), serial, offset);
        }
        Some(data.len())
    }

    /// Maximum bytes of the next segment; a checkpoint needs room for serial numbers.
    fn room_of_checkpoint(&self, burst: &Burst<'_>, offset: u64, room: usize) -> usize {
        if offset >= self.layout.red || !self.is_checkpoint_due(room as u64, burst.departure()) {
            return room;
        }
        let checkpoint = Checkpoint { serial: self.checkpoints.next(), report: 0 };
        self.room(burst.mtu(), offset, Some(checkpoint)).map_or(room, |most| most.min(room))
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let turn = loop {
            let Some(mut source) = self.source.take() else { return Turn::Over };
            let offset = source.next_offset();
            let Some(room) = self.room(burst.mtu(), offset, None) else {
                self.source = Some(source);
                self.cancel(core, CancelReason::System);
                return Turn::Over;
            };
            let room = room.min(self.layout.of_one_color(offset));
            let room = self.room_of_checkpoint(burst, offset, room);
            if self.window.as_ref().is_some_and(|window| window.room(offset) < room as u64) {
                // The report on a checkpoint opens the window; it is requested again if necessary.
                self.source = Some(source);
                break Turn::Over;
            }
            let sent = match source.next_new(room) {
                Some(next) => {
                    let end = next.offset + next.data.len() as u64;
                    let Layout { red, is_red_known, .. } = self.layout;
                    let completes = is_red_known && source.completes(offset, end, red);
                    let pass = if completes { Pass::Completing } else { Pass::First };
                    self.push_data(core, burst, next.offset, next.data, pass)
                }
                None => Some(0),
            };
            match sent {
                Some(0) => {
                    self.source = Some(source);
                    break Turn::Over;
                }
                Some(len) => source.new_sent(len),
                None => {
                    self.source = Some(source);
                    break Turn::More;
                }
            }
            self.source = Some(source);
        };
        self.read_ahead(core);
        if turn == Turn::More {
            return turn;
        }
        self.emit_description(core, burst)
    }

    /// Sends the description after the content: once, and again when requested.
    fn emit_description(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(source) = self.source.as_ref().filter(|source| source.at_end()) else {
            return Turn::Over;
        };
        let first = !self.layout.is_description_sent();
        if first || self.layout.description_due {
            let (name, checksum) = (self.name.clone(), source.checksum());
            let describe = |size| Description { name, size, checksum };
            let description = self.layout.take_description(describe);
            let pass = if first { Pass::First } else { Pass::Again };
            let sent = self.push_data(core, burst, self.layout.content, &description, pass);
            let len = description.len();
            // The description counts as sent only after transmission.
            if sent.is_some() || !first {
                self.layout.set_description(description);
            }
            match sent {
                None => return Turn::More,
                Some(sent) if sent < len => {
                    // A path too narrow for the description, one segment, cannot carry the file.
                    self.cancel(core, CancelReason::System);
                    return Turn::Over;
                }
                Some(_) => self.layout.description_due = false,
            }
        }
        if matches!(self.phase, Phase::Opening | Phase::Sending) && self.is_red_claimed() {
            self.red_is_there(core);
        }
        Turn::Over
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = loop {
            if !source.has_repairs() {
                self.go_on_filling(core, &mut source);
            }
            let room = self.room(burst.mtu(), self.layout.content, None).unwrap_or(1);
            let Some(next) = source.next_repair(room) else { break Turn::Over };
            let (offset, wanted) = (next.offset, next.data.len());
            let Some(len) = self.push_data(core, burst, offset, next.data, Pass::Again) else {
                break Turn::More;
            };
            core.stats.repair_bytes += len as u64;
            source.repair_sent(len.min(wanted));
        };
        source.read_repairs(core, self.base.seat.handle);
        let over = turn == Turn::Over && !source.has_repairs();
        self.source = Some(source);
        if over && self.layout.description_due {
            return self.emit_description(core, burst);
        }
        turn
    }

    /// Processes a report of the receiver (§8.1).
    pub(crate) fn on_report(
        &mut self,
        core: &mut Core,
        now: Time,
        report: &crate::segment::Report<'_>,
    ) {
        self.base.last_received = now;
        if self.phase == Phase::Opening {
            // It is repeated, and its claims count once the file is open.
            return;
        }
        self.reports.acknowledge(report.serial);
        self.base.want(&mut core.shared, Class::Control);
        if self.phase != Phase::Sending {
            return;
        }
        // A restarted receiver may reuse serial numbers, but not in reply to a checkpoint to which
        // the previous receiver replied.
        let is_repeated = self.reports.note_serial(report);
        if !is_repeated || self.checkpoints.contains(report.checkpoint) {
            self.take_report(core, now, report);
        }
        self.release_held(core);
    }

    fn take_report(&mut self, core: &mut Core, now: Time, report: &crate::segment::Report<'_>) {
        self.expect_more(core, now);
        if report.upper > self.layout.red {
            let error = PeerError::ReportBeyondEnd;
            core.user.indicate(Indication::PeerError { id: self.peer.session, error });
            // The two sides have different ends, which no repair changes, and would reply to each
            // other for ever.
            self.reports.cycles += 1;
            if self.reports.cycles > self.peer.remote.cycle_limit {
                self.cancel(core, CancelReason::CycleLimit);
            }
            return;
        }
        self.checkpoint_answered(core, now, report);
        if let (Some(window), Some(source)) = (self.window.as_mut(), self.source.as_ref()) {
            window.replied(report.upper, source.sent());
            self.base.want(&mut core.shared, Class::Bulk);
        }
        let (brings, is_cut) = self.reports.claim(report, core.config.limits.gaps);
        if is_cut {
            core.user.limit_reached(Limit::Gaps);
        }
        if brings {
            self.filling.news();
        }
        if self.is_red_claimed() {
            self.red_is_there(core);
        } else if self.reports.cycles > self.peer.remote.cycle_limit {
            self.cancel(core, CancelReason::CycleLimit);
        } else if !self.fills(core) {
            self.repair(core, report.lower, report.upper, report.serial);
        }
        if self.phase == Phase::Sending {
            self.begin_fill(core);
        }
    }

    /// Retransmits missing data between two offsets, with a checkpoint.
    fn repair(&mut self, core: &mut Core, lower: u64, upper: u64, report: u64) {
        let max = core.config.limits.gaps;
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let segment = self.room(path.map_or(0, Path::mtu).max(64), 0, None);
        let times = segment.and_then(|segment| path?.times(segment));
        let handle = self.base.seat.handle;
        let is_needed = path.is_some_and(|path| path.is_wanted_by_others(Class::Bulk, handle));
        let gaps: Vec<_> = self.reports.claimed().gaps(lower, upper).collect();
        let content = self.layout.content;
        let Some(source) = self.source.as_mut() else { return };
        let (mut last, mut has_rest) = (None, false);
        let sent = gaps.into_iter().flat_map(|(start, end)| source.sent_of(start, end));
        for (start, end) in sent.collect::<Vec<_>>() {
            if self.is_resumed && end >= self.layout.asks_from(content) {
                // Perhaps an earlier run did not send it: it is not lost.
                source.repeat(start, end, max);
                has_rest = true;
            } else if start < content && !source.request(start, end.min(content), max) {
                break;
            }
            self.layout.description_due |= end > content;
            last = Some(end);
        }
        // Copies bring the end sooner. While new data takes longer than two round trips, the end
        // does not wait for repairs: a lost one is repeated before. Neither does new data, here or
        // of other sessions, wait for copies.
        let new = self.layout.total.saturating_sub(source.sent());
        let is_long = times.is_some_and(|(packet, round_trip)| {
            let packets = new as f64 / segment.unwrap_or(1) as f64;
            packet.as_secs_f64() * packets > 2.0 * round_trip.as_secs_f64()
        });
        let busy = is_long || has_rest || is_needed;
        let copies = if busy { 1 } else { self.peer.remote.repair_copies };
        source.choose_copies(copies, segment.unwrap_or(1), times);
        source.read_repairs(core, self.base.seat.handle);
        if let Some(end) = last {
            self.checkpoints.set(end, report, Some((lower, upper)));
        }
        self.base.want(&mut core.shared, Class::Repair);
    }

    /// Processes a timer.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match (alarm, self.phase) {
            (Alarm::Checkpoint(serial), Phase::Sending) => {
                self.on_checkpoint_overdue(core, now, serial);
            }
            (Alarm::Inactivity, Phase::Sending) => self.ask_again(core, now),
            (Alarm::Cancel, Phase::Cancelling { reason, attempts, most, .. }) => {
                if attempts > most {
                    self.close(core);
                    return;
                }
                self.phase = Phase::Cancelling { reason, due: true, attempts, most };
                self.base.want(&mut core.shared, Class::Control);
            }
            (
                Alarm::Checkpoint(_)
                | Alarm::Cancel
                | Alarm::Report(_)
                | Alarm::Inactivity
                | Alarm::Gaps
                | Alarm::Units(_)
                | Alarm::Host
                | Alarm::Retry(_)
                | Alarm::Expiry(_),
                Phase::Opening
                | Phase::Sending
                | Phase::Closing
                | Phase::Cancelling { .. }
                | Phase::Done,
            ) => {}
        }
    }

    /// Resumes at once when the path or its return link comes up.
    pub(crate) fn resume(&mut self, core: &mut Core) {
        match &mut self.phase {
            Phase::Sending => self.resume_checkpoints(core),
            Phase::Cancelling { due, .. } => *due = true,
            Phase::Opening | Phase::Closing | Phase::Done => {}
        }
        self.want_all(core);
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        for class in [Class::Control, Class::Repair, Class::Bulk] {
            self.base.want(&mut core.shared, class);
        }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.peer.session
    }

    /// Bytes of a block of units, which count towards the limit on those.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    pub(crate) fn destination(&self) -> u64 {
        self.destination
    }

    /// Whether the receiver holds all of the red part.
    fn is_red_claimed(&self) -> bool {
        self.reports.claimed().covered() >= self.layout.red
    }

    fn red_is_there(&mut self, core: &mut Core) {
        let is_over = self.source.as_ref().is_some_and(Supply::at_end);
        if self.layout.is_red_known && is_over && self.layout.is_description_sent() {
            // Green data is never confirmed.
            self.succeed(core, self.layout.red > 0 && self.layout.is_red());
        }
    }

    /// Processes the receiver's cancellation.
    pub(crate) fn on_cancel(
        &mut self,
        core: &mut Core,
        failure: Failure,
        congestion: Option<Congestion>,
    ) {
        self.congestion = congestion;
        self.cancel_ack_due = true;
        self.base.want(&mut core.shared, Class::Control);
        if matches!(self.phase, Phase::Opening | Phase::Sending) {
            self.finished(core, Err(failure), true);
            self.end(core);
        }
    }

    /// Processes the receiver's acknowledgement of the cancellation.
    pub(crate) fn on_cancel_ack(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Cancelling { .. }) {
            self.close(core);
        }
    }

    /// Cancels the session and notifies the receiver.
    pub(crate) fn cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.fail(core, Failure::new(End::Sender, reason));
    }

    fn fail(&mut self, core: &mut Core, failure: Failure) {
        let reason = failure.reason;
        let silent = match self.phase {
            Phase::Opening => !self.is_resumed,
            Phase::Sending => self.source.as_ref().is_none_or(|source| source.sent() == 0),
            Phase::Closing | Phase::Cancelling { .. } | Phase::Done => return,
        };
        self.finished(core, Err(failure), false);
        self.end(core);
        if silent {
            // The receiver has no such session.
            self.close(core);
            return;
        }
        let most = self.peer.remote.cancel_limit(failure.cause);
        self.phase = Phase::Cancelling { reason, due: true, attempts: 0, most };
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Finishes the session once the whole red part, if any, is confirmed.
    fn succeed(&mut self, core: &mut Core, is_confirmed: bool) {
        self.finished(core, Ok(()), is_confirmed);
        self.end(core);
    }

    fn finished(&mut self, core: &mut Core, result: Result<(), Failure>, is_confirmed: bool) {
        if let Some(flow) = self.flow {
            let (size, congestion) = (self.layout.content, self.congestion);
            core.outcomes.push_back(Outcome::Sent { flow, result, is_confirmed, size, congestion });
            return;
        }
        core.user.indicate(Indication::Finished(Finished {
            id: self.peer.session,
            role: End::Sender,
            result,
            is_confirmed,
            name: self.name.clone(),
            size: self.layout.content,
        }));
    }

    /// Stops sending data; queued replies are still sent.
    fn end(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.checkpoints.clear();
        if self.kept.take().is_some() {
            records::forget_sending(core, self.peer.session);
        }
        if let Some(source) = self.source.take() {
            source.close(core);
        }
        self.phase = Phase::Closing;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Ends a session whose receiver never replied, to make room for another.
    pub(crate) fn give_way(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Opening | Phase::Sending) {
            let failure = Failure::new(End::Sender, CancelReason::RetransmissionLimit);
            let failure = Failure { cause: Some(Cause::Silence), ..failure };
            self.finished(core, Err(failure), false);
            self.end(core);
        }
        self.close(core);
    }

    fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.phase = Phase::Done;
    }
}
