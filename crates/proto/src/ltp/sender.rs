//! A session at the engine that sends the block (RFC 5326 §6, §8.1).

mod checkpoints;
mod fill;
mod onward;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{Completion, EffectError, FileId, OpenMode, Time};
use wire::checksum::ChecksumType;
use wire::ltp::{
    AGGREGATION_SERVICE, Body, CancelReason, Checkpoint, Data, DataKind, End, SessionId,
};
use wire::ltpt::Congestion;

use self::checkpoints::{Late, Outstanding};
use super::config::{Format, Remote};
use super::core::{Alarm, Core, Job, Peer};
use super::file::Description;
use super::indication::{Cause, Failure, Finished, Indication, Limit, PeerError, Report};
use super::request::{Red, SendRequest};
use super::silence::backed_off;
use super::supply::Supply;
use super::transport::flow::{Last, Outcome, Seq};
use crate::path::{Burst, Class, Path, Turn};
use crate::ranges::Ranges;
use crate::session::Base;
use crate::source::Source;
use crate::storage::Storage as _;
use crate::thin_return::fill::Fill;
use crate::window::Window;

/// Runs of reports' serial numbers that are remembered, to see one that comes again.
const REPORTS_KEPT: usize = 256;

/// Acknowledgements that wait to be sent. Reports beyond it come again.
const ACKS_MAX: usize = 1024;

/// Octets of a checkpoint's two serial numbers, while they are below 2^21.
const SERIALS: usize = 6;

/// Greatest serial number of three bytes; few sessions count beyond it.
const SERIAL_MAX: u64 = (1 << 21) - 1;

/// Transmissions of a cancellation after which it backs off.
const STEADY_CANCELS: u32 = 2;

/// Bytes of the longest segment that a block of `content` bytes and a description cannot do
/// without: the description is one segment, of other data one byte at least must fit.
pub(super) fn least_segment(
    session: SessionId,
    service: u64,
    content: u64,
    description: u64,
) -> u64 {
    let len = description.max(1);
    let checkpoint = Checkpoint { serial: SERIAL_MAX, report: SERIAL_MAX };
    Data::overhead(session, service, content, len, Some(checkpoint)) as u64 + len
}

/// A session that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) peer: Peer,
    destination: u64,
    /// The file's name there; empty if it is none.
    name: String,
    color: Red,
    /// Octets of the block, if it is one of units.
    units: usize,
    service: u64,
    /// The transfer of LTP-T of which this session is a hop.
    flow: Option<Seq>,
    source: Option<Supply>,
    /// Octets of the file.
    content: u64,
    /// Octets of the block: the file, and its description.
    total: u64,
    /// The last segment of a block of another engine.
    last: Option<Last>,
    /// Whether it is known where that block ends.
    is_end_known: bool,
    /// Octets of the red part, or an upper bound on it.
    red: u64,
    /// Whether it is known where the red part ends; a block that still arrives does not say so at first.
    is_red_known: bool,
    /// The description of the file, once all of that was sent; it is a segment of its own.
    description: Vec<u8>,
    described: bool,
    description_due: bool,
    /// What the receiver has of the red part.
    acked: Ranges,
    checkpoints: BTreeMap<u64, Outstanding>,
    late: Late,
    /// Repeats while reports are delayed, and whether a pass of them is under way.
    fill: Fill,
    is_filling: bool,
    /// Where a checkpoint ends, and its serial number.
    ends: BTreeMap<u64, u64>,
    serial: u64,
    /// New red octets since the last checkpoint among them, and when that left; before the first,
    /// when the first segment did.
    unchecked: u64,
    /// Without a rate, how far it runs ahead of the receiver.
    window: Option<Window>,
    checked_at: Option<Time>,
    /// Serial numbers of reports. They count up, so that however many they are, few runs hold them.
    reports_seen: Ranges,
    acks_due: VecDeque<u64>,
    /// Reports in a row that brought nothing.
    cycles: u32,
    /// What the receiver said it had not enough of when it ended the session.
    congestion: Option<Congestion>,
    cancel_ack_due: bool,
    phase: Phase,
}

/// Why a segment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// For the first time.
    First,
    /// For the first time, and behind it all of the red part was sent, though not in its order.
    Completing,
    /// It was asked for again.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Sending,
    /// All is well, or the receiver ended it: the last answers are on their way.
    Closing,
    /// Cancelled here; waits for the answer.
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
            units: 0,
            service: core.config.service,
            flow: None,
            source: None,
            content: 0,
            total: 0,
            last: None,
            is_end_known: true,
            red: 0,
            is_red_known: true,
            description: Vec::new(),
            described: core.config.format == Format::Described,
            description_due: false,
            acked: Ranges::new(),
            checkpoints: BTreeMap::new(),
            late: Late::default(),
            fill: Fill::default(),
            is_filling: false,
            ends: BTreeMap::new(),
            serial: core.first_serial(),
            unchecked: 0,
            window: None,
            checked_at: None,
            reports_seen: Ranges::new(),
            acks_due: VecDeque::new(),
            cycles: 0,
            congestion: None,
            cancel_ack_due: false,
            phase: Phase::Opening,
        }
    }

    /// Begins to send a file.
    pub(crate) fn of_file(
        base: Base<Alarm>,
        peer: Peer,
        request: SendRequest,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, request.destination, core);
        (sender.name, sender.color) = (request.name, request.red);
        core.shared.open(sender.base.seat.handle, request.source, OpenMode::Read);
        sender
    }

    /// Begins to send a block of units.
    pub(crate) fn of_units(
        base: Base<Alarm>,
        peer: Peer,
        destination: u64,
        block: Bytes,
        core: &mut Core,
    ) -> Self {
        let to = (destination, AGGREGATION_SERVICE);
        let len = block.len();
        let mut sender = Self::of_octets(base, peer, to, block, Red::All, core);
        sender.units = len;
        core.units += sender.units;
        sender
    }

    /// Begins to send octets to a client service of an engine.
    pub(crate) fn of_octets(
        base: Base<Alarm>,
        peer: Peer,
        (destination, service): (u64, u64),
        block: Bytes,
        red: Red,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, destination, core);
        (sender.service, sender.described, sender.color) = (service, false, red);
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
            size: self.source.as_ref().map(|_| self.content).filter(|size| *size < u64::MAX),
            name: self.name.clone(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let ranges = (self.acked.len() + self.reports_seen.len()) * 2 * size_of::<u64>();
        let checkpoints = self.checkpoints.len() * (size_of::<Outstanding>() + 32);
        let reports = self.reports_seen.len() * 2 + self.acks_due.len();
        ranges
            + checkpoints
            + reports * size_of::<u64>()
            + self.last.as_ref().map_or(0, |last| last.octets.len())
            + self.description.len()
            + self.source.as_ref().map_or(0, Supply::memory)
    }

    /// An effect of this session was carried out.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let system = CancelReason::System;
        match (job, answer) {
            (Job::Open, Ok(Completion::Opened { file, len, .. })) => {
                if self.phase != Phase::Opening {
                    core.shared.close(file);
                    return;
                }
                self.opened(core, file, len);
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.read_done(offset, len, bytes) {
                    Ok(()) => {
                        self.read_ahead(core);
                        self.base.want(&mut core.shared, Class::Bulk);
                    }
                    Err(()) => self.cancel(core, system),
                }
            }
            (Job::Repair { offset }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.repair_done(offset, bytes) {
                    Ok(()) => self.base.want(&mut core.shared, Class::Repair),
                    Err(()) => self.cancel(core, system),
                }
            }
            (Job::Open | Job::Read { .. } | Job::Repair { .. }, _) => {
                core.stats.storage_errors += 1;
                self.cancel(core, system);
            }
            (Job::Write { .. } | Job::Sync | Job::Install | Job::Forget | Job::Own(_), _) => {}
        }
    }

    fn opened(&mut self, core: &mut Core, file: FileId, len: u64) {
        if let Some(Supply::Passage(passage)) = self.source.as_mut() {
            passage.own(file);
            self.start(core);
            return;
        }
        let Some(source) = Source::new(file, Some(len), 0, ChecksumType::Crc32c) else { return };
        self.begin(core, source, len);
    }

    fn begin(&mut self, core: &mut Core, source: Source, len: u64) {
        self.source = Some(Supply::Source(source));
        self.content = len;
        let description = self.described.then(|| Description::len(&self.name));
        self.total = len + description.unwrap_or_default();
        self.red = match self.color {
            Red::All => self.total,
            // A segment is red or green, and the description is one segment.
            Red::Prefix(red) if red > len => self.total,
            Red::Prefix(red) => red,
            Red::None => 0,
        };
        if self.described {
            self.peer.set_block_size(self.total);
        }
        let failure = Failure::new(End::Sender, CancelReason::System);
        if let Some(cause) = self.obstacle(core, description.unwrap_or_default()) {
            self.fail(core, Failure { cause: Some(cause), ..failure });
            return;
        }
        self.start(core);
    }

    /// Cause that keeps the block from being sent, known before any of it is. Its description has
    /// so many bytes.
    fn obstacle(&self, core: &Core, description: u64) -> Option<Cause> {
        if self.total == 0 {
            return Some(Cause::Empty);
        }
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let mtu = path.filter(|path| path.is_up()).map(Path::mtu)?;
        let (session, service) = (self.peer.session, self.service);
        let extensions = self.peer.extensions_len() as u64;
        let least = extensions + least_segment(session, service, self.content, description);
        let mtu = self.peer.datagram_max(mtu) as u64;
        (least > mtu).then_some(Cause::TooNarrow { least, mtu })
    }

    fn start(&mut self, core: &mut Core) {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let is_paced = path.is_some_and(Path::is_paced) || !self.peer.remote.interval.is_zero();
        if !is_paced && self.red == self.total {
            self.window = self.peer.remote.unpaced_window.map(|most| Window::new(most, 0));
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

    /// Octets of the block in a full segment.
    fn segment(&self, core: &Core) -> usize {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        self.room(path.map_or(0, Path::mtu).max(64), 0, None).unwrap_or(1)
    }

    /// Most octets of the block in a segment at `offset`; `None` if not even one fits.
    fn room(&self, mtu: usize, offset: u64, checkpoint: Option<Checkpoint>) -> Option<usize> {
        let max = self.peer.segment_max(mtu);
        let head = Data::overhead(self.peer.session, self.service, offset, max as u64, checkpoint);
        // A repair of one segment is a checkpoint, too, and shall not need a second one for that.
        let spare = if self.peer.remote.report_gaps && checkpoint.is_none() { SERIALS } else { 0 };
        let room = max.saturating_sub(head + spare);
        let most = self.peer.remote.segment_max.map_or(room, |most| most.min(room));
        (most > 0).then_some(most.min(65_000))
    }

    /// Most octets of a segment that begins at `offset`: it is red or green, not both.
    fn of_one_color(&self, offset: u64) -> usize {
        let left = if offset < self.red { self.red - offset } else { u64::MAX };
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Sends what it has of one class.
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
        while let Some(&serial) = self.acks_due.front() {
            if !self.peer.push(core, burst, Body::ReportAck { serial }) {
                return Turn::More;
            }
            self.acks_due.pop_front();
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

    /// Whether `len` new red octets that leave at `at` are to be a checkpoint (§6.2: discretionary).
    fn is_checkpoint_due(&self, len: u64, at: Time) -> bool {
        let Remote { checkpoint_every, checkpoint_interval, .. } = self.peer.remote;
        let waited = self.checked_at.map(|before| at.since(before));
        let asked_every = self.window.as_ref().map(Window::every);
        [checkpoint_every, asked_every]
            .into_iter()
            .flatten()
            .min()
            .is_some_and(|every| self.unchecked + len >= every)
            || checkpoint_interval.zip(waited).is_some_and(|(most, waited)| waited >= most)
    }

    /// What a segment `offset..end` of the block is that leaves at `at`, and its serial numbers if it
    /// is a checkpoint.
    fn kind(
        &mut self,
        offset: u64,
        end: u64,
        pass: Pass,
        at: Time,
    ) -> (DataKind, Option<Checkpoint>) {
        if offset >= self.red {
            let last = end == self.total;
            return (if last { DataKind::EndOfGreenBlock } else { DataKind::Green }, None);
        }
        let due = match pass {
            Pass::First => self.is_checkpoint_due(end - offset, at),
            Pass::Completing => true,
            Pass::Again => false,
        };
        let kind = if end == self.red {
            if self.red == self.total { DataKind::EndOfRedBlock } else { DataKind::EndOfRedPart }
        } else if due || self.ends.contains_key(&end) {
            DataKind::Checkpoint
        } else {
            return (DataKind::Red, None);
        };
        let serial = match self.ends.get(&end) {
            Some(serial) => *serial,
            None => self.new_checkpoint(end, 0, None),
        };
        let report = self.checkpoints.get(&serial).map_or(0, |checkpoint| checkpoint.report);
        (kind, Some(Checkpoint { serial, report }))
    }

    /// Writes a data segment; what it took of `data`, or `None` if the batch is full.
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
            // With its serial numbers it does not fit; the rest follows and is the checkpoint.
            (kind, checkpoint) = (DataKind::Red, None);
            data = &data[..room];
        }
        let body = Body::Data(Data { kind, service: self.service, offset, checkpoint, data });
        if !self.peer.push(core, burst, body) {
            return None;
        }
        if kind.is_red() && is_new {
            self.unchecked += data.len() as u64;
            self.checked_at.get_or_insert(at);
        }
        if let Some(Checkpoint { serial, .. }) = checkpoint {
            if is_new {
                (self.unchecked, self.checked_at) = (0, Some(at));
            }
            self.checkpoint_left(core, burst.departure(), serial, offset);
        }
        Some(data.len())
    }

    /// Most octets of the next segment, which needs room for serial numbers if it is a checkpoint.
    fn room_of_checkpoint(&self, burst: &Burst<'_>, offset: u64, room: usize) -> usize {
        if offset >= self.red || !self.is_checkpoint_due(room as u64, burst.departure()) {
            return room;
        }
        let checkpoint = Checkpoint { serial: self.serial, report: 0 };
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
            let room = room.min(self.of_one_color(offset));
            let room = self.room_of_checkpoint(burst, offset, room);
            if self.window.as_ref().is_some_and(|window| window.room(offset) < room as u64) {
                // The report on a checkpoint makes room; that is asked for again if need be.
                self.source = Some(source);
                break Turn::Over;
            }
            let sent = match source.next_new(room) {
                Some(next) => {
                    let end = next.offset + next.data.len() as u64;
                    let completes = self.is_red_known && source.completes(offset, end, self.red);
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

    /// After the content, what describes it: once, and again when asked for.
    fn emit_description(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(source) = self.source.as_ref().filter(|source| source.at_end()) else {
            return Turn::Over;
        };
        let first = self.described && self.description.is_empty();
        if first {
            let (name, size, checksum) = (self.name.clone(), self.content, source.checksum());
            self.description = match &self.last {
                Some(last) => last.octets.to_vec(),
                None => Description { name, size, checksum }.to_vec(),
            };
        }
        if first || self.description_due {
            let description = std::mem::take(&mut self.description);
            let pass = if first { Pass::First } else { Pass::Again };
            let sent = self.push_data(core, burst, self.content, &description, pass);
            self.description = description;
            match sent {
                None => {
                    // It counts as sent only when it is.
                    if first {
                        self.description.clear();
                    }
                    return Turn::More;
                }
                Some(len) if len < self.description.len() => {
                    // The description is one segment; a path that does not take it takes no file.
                    self.cancel(core, CancelReason::System);
                    return Turn::Over;
                }
                Some(_) => self.description_due = false,
            }
        }
        if !self.is_settled() && self.acked.covered() >= self.red {
            self.red_is_there(core);
        }
        Turn::Over
    }

    fn is_settled(&self) -> bool {
        !matches!(self.phase, Phase::Opening | Phase::Sending)
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = loop {
            if !source.has_repairs() {
                self.go_on_filling(core, &mut source);
            }
            let room = self.room(burst.mtu(), self.content, None).unwrap_or(1);
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
        if over && self.description_due {
            return self.emit_description(core, burst);
        }
        turn
    }

    /// The receiver says what it has (§8.1).
    pub(crate) fn on_report(&mut self, core: &mut Core, now: Time, report: &wire::ltp::Report<'_>) {
        self.base.last_heard = now;
        if self.acks_due.len() < ACKS_MAX && !self.acks_due.contains(&report.serial) {
            self.acks_due.push_back(report.serial);
        }
        self.base.want(&mut core.shared, Class::Control);
        if self.phase != Phase::Sending {
            return;
        }
        if !self.is_repeated(report) {
            self.take_report(core, now, report);
        }
        self.release_held(core);
    }

    fn take_report(&mut self, core: &mut Core, now: Time, report: &wire::ltp::Report<'_>) {
        self.expect_more(core, now);
        if report.upper > self.red {
            let error = PeerError::ReportBeyondEnd;
            core.user.indicate(Indication::PeerError { id: self.peer.session, error });
            // The two know different ends, which no repair changes, and each replies to the other.
            self.cycles += 1;
            if self.cycles > self.peer.remote.cycle_limit {
                self.cancel(core, CancelReason::CycleLimit);
            }
            return;
        }
        self.checkpoint_answered(core, now, report);
        if let (Some(window), Some(source)) = (self.window.as_mut(), self.source.as_ref()) {
            window.answered(report.upper, source.sent());
            self.base.want(&mut core.shared, Class::Bulk);
        }
        let before = self.acked.covered();
        // A claim is a promise, which a report that is older or claims less does not take back. A
        // receiver that lost what it claimed cancels the session.
        for (start, end) in report.received() {
            if self.acked.len() > core.config.limits.gaps && self.acked.would_add_range(start, end)
            {
                // It is sent again, and gone once what is between is there.
                core.user.limit_reached(Limit::Gaps);
                continue;
            }
            self.acked.insert(start, end);
        }
        let brings = self.acked.covered() > before;
        self.cycles = if brings { 0 } else { self.cycles + 1 };
        if brings {
            self.fill.news();
        }
        if self.acked.covered() >= self.red {
            self.red_is_there(core);
        } else if self.cycles > self.peer.remote.cycle_limit {
            self.cancel(core, CancelReason::CycleLimit);
        } else if !self.fills(core) {
            self.repair(core, report.lower, report.upper, report.serial);
        }
        if self.phase == Phase::Sending {
            self.begin_fill(core);
        }
    }

    /// Whether a report was seen before; takes note of it.
    fn is_repeated(&mut self, report: &wire::ltp::Report<'_>) -> bool {
        let (start, end) = (report.serial, report.serial.saturating_add(1));
        let is_seen = self.reports_seen.gaps(start, end).next().is_none();
        self.reports_seen.insert(start, end);
        let oldest = self.reports_seen.iter().next();
        if let Some((start, end)) = oldest.filter(|_| self.reports_seen.len() > REPORTS_KEPT) {
            self.reports_seen.remove(start, end);
        }
        // A receiver that was restarted may count through the same numbers, but not in answer to
        // something that the one before it answered.
        is_seen && !self.checkpoints.contains_key(&report.checkpoint)
    }

    fn red_is_there(&mut self, core: &mut Core) {
        let source_over = self.is_red_known && self.source.as_ref().is_some_and(Supply::at_end);
        let described = !self.described || !self.description.is_empty();
        if source_over && described {
            // Nobody says what became of green data.
            self.succeed(core, self.red > 0 && self.red == self.total);
        }
    }

    /// Sends again what is missing between two bounds, and asks for a report on it.
    fn repair(&mut self, core: &mut Core, lower: u64, upper: u64, report: u64) {
        let max = core.config.limits.gaps;
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let segment = self.room(path.map_or(0, Path::mtu).max(64), 0, None);
        let times = segment.and_then(|segment| path?.times(segment));
        let gaps: Vec<_> = self.acked.gaps(lower, upper).collect();
        let Some(source) = self.source.as_mut() else { return };
        let mut last = None;
        let sent = gaps.into_iter().flat_map(|(start, end)| source.sent_of(start, end));
        for (start, end) in sent.collect::<Vec<_>>() {
            if start < self.content && !source.request(start, end.min(self.content), max) {
                break;
            }
            self.description_due |= end > self.content;
            last = Some(end);
        }
        // Copies bring the end sooner. While new data takes longer than two round trips, the end is
        // not waiting for repairs: one that is lost comes again before.
        let new = self.total.saturating_sub(source.sent());
        let busy = times.is_some_and(|(packet, round_trip)| {
            let packets = new as f64 / segment.unwrap_or(1) as f64;
            packet.as_secs_f64() * packets > 2.0 * round_trip.as_secs_f64()
        });
        let copies = if busy { 1 } else { self.peer.remote.repair_copies };
        source.choose_copies(copies, segment.unwrap_or(1), times);
        source.read_repairs(core, self.base.seat.handle);
        if let Some(end) = last {
            self.new_checkpoint(end, report, Some((lower, upper)));
        }
        self.base.want(&mut core.shared, Class::Repair);
    }

    /// A timer went off.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match (alarm, self.phase) {
            (Alarm::Checkpoint(serial), Phase::Sending) => self.is_overdue(core, now, serial),
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

    /// The receiver ends the session.
    pub(crate) fn on_cancel(
        &mut self,
        core: &mut Core,
        reason: CancelReason,
        congestion: Option<Congestion>,
    ) {
        self.congestion = congestion;
        self.cancel_ack_due = true;
        self.base.want(&mut core.shared, Class::Control);
        if matches!(self.phase, Phase::Opening | Phase::Sending) {
            self.finished(core, Err(Failure::new(End::Receiver, reason)), true);
            self.end(core);
        }
    }

    /// The receiver has heard of the cancellation.
    pub(crate) fn on_cancel_ack(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Cancelling { .. }) {
            self.close(core);
        }
    }

    /// Ends the session, and tells the receiver.
    pub(crate) fn cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.fail(core, Failure::new(End::Sender, reason));
    }

    fn fail(&mut self, core: &mut Core, failure: Failure) {
        let reason = failure.reason;
        let silent = match self.phase {
            Phase::Opening => true,
            Phase::Sending => self.source.as_ref().is_none_or(|source| source.sent() == 0),
            Phase::Closing | Phase::Cancelling { .. } | Phase::Done => return,
        };
        self.finished(core, Err(failure), false);
        self.end(core);
        if silent {
            // The receiver knows nothing of it.
            self.close(core);
            return;
        }
        let most = self.peer.remote.cancel_limit(failure.cause);
        self.phase = Phase::Cancelling { reason, due: true, attempts: 0, most };
        self.base.want(&mut core.shared, Class::Control);
    }

    fn succeed(&mut self, core: &mut Core, is_confirmed: bool) {
        self.finished(core, Ok(()), is_confirmed);
        self.end(core);
    }

    fn finished(&mut self, core: &mut Core, result: Result<(), Failure>, is_confirmed: bool) {
        if let Some(flow) = self.flow {
            let (size, congestion) = (self.content, self.congestion);
            core.outcomes.push_back(Outcome::Sent { flow, result, is_confirmed, size, congestion });
            return;
        }
        core.user.indicate(Indication::Finished(Finished {
            id: self.peer.session,
            role: End::Sender,
            result,
            is_confirmed,
            name: self.name.clone(),
            size: self.content,
        }));
    }

    /// Nothing more of the block is sent; answers that are due still are.
    fn end(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.checkpoints.clear();
        self.ends.clear();
        if let Some(source) = self.source.take() {
            source.close(core);
        }
        self.phase = Phase::Closing;
        self.base.want(&mut core.shared, Class::Control);
    }

    fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.phase = Phase::Done;
    }

    /// The path or its return came up: it is used at once.
    pub(crate) fn resume(&mut self, core: &mut Core) {
        match &mut self.phase {
            Phase::Sending => self.resume_checkpoints(core),
            Phase::Cancelling { due, .. } => *due = true,
            Phase::Opening | Phase::Closing | Phase::Done => {}
        }
        self.want_all(core);
    }

    /// Asks for a turn for all that waits to be sent.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        for class in [Class::Control, Class::Repair, Class::Bulk] {
            self.base.want(&mut core.shared, class);
        }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.peer.session
    }

    /// Octets of a block of units, which the bound on those counts.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    pub(crate) fn destination(&self) -> u64 {
        self.destination
    }
}
