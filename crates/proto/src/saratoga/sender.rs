//! A session at the peer that sends the file (draft-wood-tsvwg-saratoga-22 §6).
//!
//! Each request for a STATUS carries a number in its timestamp, which the receiver sends back. So
//! the sender knows what it sent after it asked, and does not send that again because the answer
//! could not know of it.

mod fill;
mod heed;
mod silence;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::{Completion, EffectError, FileId, FileName, FilestoreRequest, OpenMode, Time};
use wire::checksum::ChecksumType;
use wire::saratoga::{
    Content, Data, Entry, EntryKind, FileChecksum, Metadata, Packet, Request, RequestKind, Status,
    StatusCode, TIMESTAMP_LEN, Timestamp, Width, v0,
};

use super::codec;
use super::config::{Remote, Version};
use super::congestion::Control;
use super::core::{Alarm, Core, Job, Task};
use super::directory;
use super::ending;
use super::indication::{Failure, Finished, Indication, Put, Report, SessionId};
use super::times;
use crate::path::{Burst, Class, Path, Turn};
use crate::ranges::Ranges;
use crate::session::Base;
use crate::source::Source;
use crate::storage::Storage as _;
use crate::sum::{Reading, Value};
use crate::thin_return::fill::Fill;
use crate::window::Window;

/// The shortest and the longest time between two requests that `Timer::Auto` chooses.
const ASK_LEAST: Duration = Duration::from_millis(10);
const ASK_MOST: Duration = Duration::from_secs(60);

/// Shorter waits for a reply may be those of the path.
const OUTAGE_LEAST: Duration = Duration::from_secs(10);

/// An answer that takes longer makes a lost METADATA dear.
const LONG: Duration = Duration::from_millis(200);

/// What a session sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The file here, or the directory of which the listing is sent.
    pub(crate) source: FileName,
    /// Its name there.
    pub(crate) name: String,
    pub(crate) content: Content,
    pub(crate) put: Put,
    /// Whether the other peer asked for it.
    pub(crate) is_asked_for: bool,
    /// Whether to delete it once it is there.
    pub(crate) delete: bool,
    /// The widest descriptor that the other peer takes.
    pub(crate) descriptor: Width,
    /// Whether its content may be damaged on the way, so that it may go by UDP-Lite (§3.3).
    pub(crate) udp_lite: bool,
}

/// A session that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) id: SessionId,
    version: Version,
    remote: Remote,
    order: Order,
    width: Width,
    /// Octets, as far as they are known.
    size: Option<u64>,
    /// When the file was last changed.
    modified: Option<u64>,
    checksum: Option<Value>,
    /// The file, while it is summed up.
    summing: Option<(FileId, Reading)>,
    source: Option<Source>,
    metadata_due: bool,
    /// Whether the receiver said that it has the METADATA, or does not care.
    metadata_known: bool,
    request_due: bool,
    /// Whether to say that the file is going to be sent.
    accept_due: bool,
    /// Whether something was sent to which a STATUS must be asked for once all else is sent.
    ask_due: bool,
    /// Whether the end was sent, and with which question first.
    end_sent: bool,
    end_asked: u64,
    /// Requests for a STATUS so far.
    asked: u64,
    /// When the next one is due while new data is sent.
    next_ask: Option<Time>,
    /// What was sent again and not reported on since: its end, how many requests were made before
    /// it, and when it left.
    in_flight: BTreeMap<u64, (u64, u64, Time)>,
    window: Option<Window>,
    /// What heeds congestion.
    control: Option<Control>,
    /// Octets that an earlier session brought.
    resumed: u64,
    /// Parts that the receiver confirmed.
    confirmed: Ranges,
    /// Data that goes again while replies are delayed.
    fill: Fill,
    /// Whether the end was just sent, so that a pass may begin.
    fill_due: bool,
    /// Whether a STATUS arrived.
    is_known: bool,
    /// Questions in a row without an answer.
    misses: u32,
    /// Questions so far when the last one was overdue.
    overdue: u64,
    /// Whether a question is unanswered.
    is_waiting: bool,
    /// How far the transfer was at the last STATUS: its progress, what it answers, what is missing
    /// before that, and what had been sent.
    standing: (u64, u64, u64, u64),
    /// Whether anything of the file was to be sent.
    began: bool,
    /// Whether this peer ended it, so that the other one has to be told.
    is_ended_here: bool,
    /// Why it failed.
    failure: Option<StatusCode>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The file is being opened, or the directory listed.
    Opening,
    Summing,
    /// The receiver is asked whether it takes the file.
    Asking,
    Sending,
    /// Ended here; the receiver is to be told.
    Ending,
    Done,
}

impl Sender {
    pub(crate) fn new(base: Base<Alarm>, id: SessionId, order: Order, core: &mut Core) -> Self {
        let remote = core.config.remote(id.peer).clone();
        let handle = base.seat.handle;
        if order.content == Content::Directory {
            let request = FilestoreRequest::List(order.source.clone());
            core.shared.filestore(handle, Job::Own(Task::List), request);
        } else {
            core.shared.open(handle, order.source.clone(), OpenMode::Read);
        }
        Self {
            base,
            id,
            version: core.config.version,
            remote,
            width: Width::W16,
            size: None,
            modified: None,
            checksum: None,
            summing: None,
            source: None,
            metadata_due: false,
            metadata_known: order.put == Put::Blind,
            request_due: false,
            accept_due: false,
            ask_due: false,
            end_sent: false,
            end_asked: 0,
            asked: 0,
            next_ask: None,
            in_flight: BTreeMap::new(),
            window: None,
            control: None,
            resumed: 0,
            confirmed: Ranges::new(),
            fill: Fill::default(),
            fill_due: false,
            is_known: false,
            misses: 0,
            overdue: 0,
            is_waiting: false,
            standing: (0, 0, 0, 0),
            began: false,
            is_ended_here: false,
            failure: None,
            phase: Phase::Opening,
            order,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether the peer asked for it.
    pub(crate) fn is_theirs(&self) -> bool {
        self.order.is_asked_for
    }

    /// Makes room for another session, if the peer that asked for the file left requests for a
    /// STATUS without a reply for twice the time of one, and never sent any.
    pub(crate) fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        let patience = 2 * core.answer_time(&self.base, &self.remote);
        let is_silent = now.since(self.base.last_heard) >= patience;
        let is_half_open =
            self.order.is_asked_for && self.is_waiting && !self.is_known && is_silent;
        is_half_open.then_some((true, self.base.last_heard))
    }

    /// Whether a file of this name is being sent, so that it must not be deleted.
    pub(crate) fn uses(&self, name: &FileName) -> bool {
        self.order.source == *name
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.id,
            progress: self.source.as_ref().map_or(0, Source::sent),
            size: self.size,
            name: self.order.name.clone(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.source.as_ref().map_or(0, Source::memory)
            + self.in_flight.len() * 64
            + self.confirmed.len() * 2 * size_of::<u64>()
            + self.control.as_ref().map_or(0, Control::memory)
            + self.order.name.len()
    }

    /// An effect of this session was carried out.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        now: Time,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let failed = StatusCode::Unspecified;
        match (job, answer) {
            (Job::Open, Ok(Completion::Opened { file, len, modified })) => {
                self.modified = modified;
                if self.phase == Phase::Opening {
                    self.opened(core, now, file, len);
                } else {
                    core.shared.close(file);
                }
            }
            (Job::Open | Job::Own(Task::List), Err(error)) => {
                let code = match error {
                    EffectError::NotFound | EffectError::WrongKind => StatusCode::NotFound,
                    EffectError::NotAllowed => StatusCode::AccessDenied,
                    EffectError::Exists
                    | EffectError::NotEmpty
                    | EffectError::NoSpace
                    | EffectError::Failed(_) => StatusCode::SenderResources,
                };
                self.end(core, code);
            }
            (Job::Own(Task::List), Ok(Completion::Listing(entries))) => {
                let (widest, most) = (self.order.descriptor, core.config.limits.directory);
                match directory::encode(&entries, widest, most, core.config.udp_lite) {
                    Some(octets) => self.list(core, now, octets),
                    None => self.end(core, StatusCode::TooLong),
                }
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                if self.read(core, now, offset, len, bytes).is_err() {
                    self.end(core, failed);
                }
            }
            (Job::Repair { offset }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.repair_done(offset, bytes) {
                    Ok(()) => self.base.want(&mut core.shared, Class::Repair),
                    Err(()) => self.end(core, failed),
                }
            }
            (Job::Own(Task::List) | Job::Open | Job::Read { .. } | Job::Repair { .. }, _) => {
                core.stats.storage_errors += 1;
                self.end(core, failed);
            }
            (
                Job::Write { .. }
                | Job::Sync
                | Job::Install
                | Job::Forget
                | Job::Own(Task::Load | Task::Delete | Task::Record { .. }),
                _,
            ) => {}
        }
    }

    /// A listing is sent from memory.
    fn list(&mut self, core: &mut Core, now: Time, octets: Bytes) {
        let len = octets.len() as u64;
        if !self.takes(core, len) {
            return;
        }
        if len > core.config.limits.directory.saturating_sub(core.listings) {
            self.end(core, StatusCode::SenderResources);
            return;
        }
        core.listings += len;
        if let Some(mut sum) = core.config.checksum.sum() {
            sum.update(0, &octets);
            self.checksum = Some(sum.finish());
        }
        let source = Source::in_memory(octets, ChecksumType::Null);
        self.begin(core, now, source);
    }

    fn opened(&mut self, core: &mut Core, now: Time, file: FileId, len: u64) {
        if !self.takes(core, len) {
            core.shared.close(file);
            return;
        }
        // A receiver has to discard a file that its checksum does not fit (§4.3), damaged or not.
        let has_no_sum = self.order.content == Content::Stream || self.order.udp_lite;
        match core.config.checksum.sum().filter(|_| !has_no_sum) {
            Some(sum) => {
                self.phase = Phase::Summing;
                self.summing = Some((file, Reading::new(sum)));
                self.sum_up(core, now);
            }
            None => self.begin_file(core, now, file),
        }
    }

    /// Whether something of this size can be sent; ends the session if not.
    fn takes(&mut self, core: &mut Core, len: u64) -> bool {
        let is_stream = self.order.content == Content::Stream;
        self.size = (!is_stream).then_some(len);
        let least = if is_stream { Width::W64 } else { Width::fitting(len) };
        self.width = least.max(self.remote.descriptor_min).min(self.order.descriptor);
        let takes = (self.width >= least || is_stream) && len <= core.config.limits.file;
        if !takes {
            self.end(core, StatusCode::TooLong);
        }
        takes
    }

    /// Reads the file through: its checksum goes ahead of it, so that a receiver knows whether what
    /// it has of a file is of this one.
    fn sum_up(&mut self, core: &mut Core, now: Time) {
        let Some((file, reading)) = self.summing.as_mut() else { return };
        let size = self.size.unwrap_or_default();
        if reading.sum.position() < size {
            reading.read_on(&mut core.shared, self.base.seat.handle, *file, size);
            return;
        }
        self.checksum = Some(reading.sum.finish());
        let file = *file;
        self.summing = None;
        self.begin_file(core, now, file);
    }

    fn read(
        &mut self,
        core: &mut Core,
        now: Time,
        offset: u64,
        len: usize,
        bytes: Bytes,
    ) -> Result<(), ()> {
        if let Some((_, reading)) = self.summing.as_mut() {
            reading.take(offset, len, bytes)?;
            self.sum_up(core, now);
            return Ok(());
        }
        let Some(source) = self.source.as_mut() else { return Ok(()) };
        // A stream has an end only once that was read.
        source.read_done(offset, len, bytes, core.config.limits.file)?;
        self.size = source.size;
        self.read_ahead(core);
        self.base.want(&mut core.shared, Class::Bulk);
        Ok(())
    }

    fn begin_file(&mut self, core: &mut Core, now: Time, file: FileId) {
        // What is sent was summed up before.
        let source = Source::new(file, self.size, 0, ChecksumType::Null);
        self.begin(core, now, source);
    }

    /// All is known of the file: asks for leave to send it, or begins.
    fn begin(&mut self, core: &mut Core, now: Time, source: Option<Source>) {
        self.source = source;
        if self.order.put == Put::Ask && !self.order.is_asked_for {
            self.phase = Phase::Asking;
            self.request_due = true;
            self.base.want(&mut core.shared, Class::Control);
        } else {
            self.go_ahead(core);
        }
        self.base.last_heard = now;
        let inactivity = core.given_up_at(&self.base, &self.remote).since(now);
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, inactivity);
    }

    fn go_ahead(&mut self, core: &mut Core) {
        self.phase = Phase::Sending;
        self.began = true;
        // In version 1 the METADATA says so.
        self.accept_due = self.order.is_asked_for && self.version == Version::V0;
        self.metadata_due = true;
        let path = core.shared.paths.get(&self.id.peer);
        let is_paced = path.is_some_and(Path::is_paced) || !self.remote.interval.is_zero();
        if !is_paced && self.order.put != Put::Blind {
            self.window = self.remote.unpaced_window.map(|window| Window::new(window, 0));
        }
        self.control = self.control(core);
        self.read_ahead(core);
        self.want_all(core);
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let mtu = core.shared.paths.get(&self.id.peer).map_or(0, Path::mtu).max(64);
        let segment = self.room(mtu, false).unwrap_or(1);
        if let Some(source) = self.source.as_mut() {
            source.read_ahead(&mut core.shared, self.base.seat.handle, segment);
        }
    }

    /// Most octets of the file in a DATA packet; `None` if not even one fits.
    fn room(&self, mtu: usize, stamped: bool) -> Option<usize> {
        let max = self.remote.datagram_max.map_or(mtu, |max| max.min(mtu));
        let head = match self.version {
            Version::V0 => v0::DATA_OVERHEAD,
            Version::V1 => Data::overhead(self.width, stamped),
        };
        let room = max.saturating_sub(head);
        let most = self.remote.payload_max.map_or(room, |most| most.min(room));
        (most > 0).then_some(most)
    }

    /// Sends what it has of one class.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        let sending = self.phase == Phase::Sending;
        match class {
            Class::Control => self.emit_control(core, burst),
            Class::Metadata if sending => self.emit_metadata(core, burst),
            Class::Repair if sending => self.emit_repairs(core, burst),
            Class::Bulk if sending => {
                let turn = self.emit_new(core, burst);
                self.begin_fill(core, burst.departure());
                turn
            }
            Class::Metadata | Class::Repair | Class::Bulk => Turn::Over,
        }
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.accept_due {
            if !core.push(burst, &Packet::Status(codec::acceptance(self.id.number))) {
                return Turn::More;
            }
            self.accept_due = false;
        }
        if self.phase == Phase::Asking && self.request_due {
            let request = Packet::Request(Request {
                kind: if self.order.delete { RequestKind::Give } else { RequestKind::Put },
                descriptor: self.width,
                bundles: false,
                streams: self.order.content == Content::Stream,
                udp_lite: core.config.udp_lite,
                session: self.id.number,
                path: self.order.name.as_bytes(),
                authentication: &[],
            });
            if !core.push(burst, &request) {
                return Turn::More;
            }
            self.request_due = false;
            let auto = core.answer_time(&self.base, &self.remote);
            let wait = self.remote.request_timer.probe(auto, self.misses);
            self.base.alarm(&mut core.shared, Alarm::Request, burst.departure(), wait);
        }
        if self.phase == Phase::Ending {
            // Metadata that says so is how a sender ends a session (§4.3, bit 12).
            let size = self.size.unwrap_or_default();
            if !core.push(burst, &Packet::Metadata(self.metadata(size, true))) {
                return Turn::More;
            }
            self.close(core);
        }
        Turn::Over
    }

    fn metadata(&self, size: u64, is_over: bool) -> Metadata<'_> {
        let is_stream = self.order.content == Content::Stream;
        Metadata {
            descriptor: self.width,
            content: self.order.content,
            is_over,
            udp_lite: self.order.udp_lite,
            session: self.id.number,
            checksum: match self.checksum {
                None => FileChecksum::None,
                Some(Value::Check(crc)) => FileChecksum::Crc32(crc),
                Some(Value::Md5(md5)) => FileChecksum::Md5(md5),
                Some(Value::Sha1(sha1)) => FileChecksum::Sha1(sha1),
            },
            entry: Entry {
                kind: match self.order.content {
                    Content::Directory => EntryKind::Directory,
                    Content::File | Content::Bundle | Content::Stream => EntryKind::File,
                },
                udp_lite: self.order.udp_lite,
                width: self.width,
                size: if is_stream { 0 } else { size },
                modified: times::to_wire(self.modified),
                created: 0,
                path: self.order.name.as_bytes(),
            },
        }
    }

    /// The packet that says that the session is over, for those who ask later.
    pub(crate) fn last_word(&self) -> Vec<u8> {
        if let Some(code) = self.failure.filter(|_| self.is_refusal()) {
            return ending::status(self.id.number, code);
        }
        if !self.is_ended_here {
            return Vec::new();
        }
        let packet = Packet::Metadata(self.metadata(self.size.unwrap_or_default(), true));
        packet.to_vec().unwrap_or_default()
    }

    fn emit_metadata(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.metadata_due {
            let metadata = self.metadata(self.size.unwrap_or_default(), false);
            if !core.push(burst, &Packet::Metadata(metadata)) {
                return Turn::More;
            }
            self.metadata_due = false;
        }
        Turn::Over
    }

    /// Writes a DATA packet; `false` if the batch is full. One that asks for a STATUS carries a
    /// timestamp, unless nobody answers.
    fn push_data(
        &mut self,
        core: &mut Core,
        burst: &mut Burst<'_>,
        (offset, data): (u64, &[u8]),
        wants_status: bool,
        is_end: bool,
    ) -> bool {
        let (at, asked) = (burst.departure(), self.asked);
        let packet = Packet::Data(Data {
            descriptor: self.width,
            content: self.order.content,
            timestamp: wants_status.then(|| stamp(at, self.asked + 1)),
            wants_status,
            is_end,
            session: self.id.number,
            offset,
            data,
        });
        let before = burst.len();
        if !core.push(burst, &packet) {
            return false;
        }
        let went = burst.len() > before;
        if wants_status && went {
            self.question_went(at);
            let auto = core.answer_time(&self.base, &self.remote);
            let interval = self.remote.status_interval;
            let usual =
                interval.map(|timer| timer.duration((auto / 2).clamp(ASK_LEAST, ASK_MOST), 0));
            let within = self.control.as_ref().map(Control::ask_within);
            self.next_ask = usual.into_iter().chain(within).min().map(|wait| at + wait);
            // Until it is known that the METADATA is there, it goes again with each question; a probe
            // of a silent receiver comes after it. Where that takes long, it goes twice at the
            // beginning.
            let again = (self.asked > 1 || auto > LONG) && self.misses == 0;
            if !self.metadata_known && again && self.version == Version::V1 {
                self.metadata_due = true;
                self.base.want(&mut core.shared, Class::Metadata);
            }
        }
        if went && !data.is_empty() {
            self.data_went(core, at, (offset, data.len()), asked);
        }
        true
    }

    /// Whether a packet asks for a STATUS because it is time to, or because it is the first: so the
    /// round trip is known.
    fn is_ask_due(&self, at: Time) -> bool {
        let asks = self.remote.status_interval.is_some() || self.control.is_some();
        let is_due = self.next_ask.is_some_and(|next| next <= at);
        self.order.put != Put::Blind && (is_due || self.asked == 0 && asks)
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = self.emit_source(core, burst, &mut source);
        self.source = Some(source);
        self.read_ahead(core);
        if turn == Turn::More {
            return turn;
        }
        self.emit_end(core, burst)
    }

    fn emit_source(&mut self, core: &mut Core, burst: &mut Burst<'_>, source: &mut Source) -> Turn {
        let answers = self.order.put != Put::Blind;
        loop {
            let offset = source.sent();
            let mut asks = self.is_ask_due(burst.departure());
            if answers && let Some(window) = self.window.as_mut() {
                asks |= window.asks(offset);
            }
            let Some(room) = self.room(burst.mtu(), asks) else {
                self.end(core, StatusCode::SenderResources);
                return Turn::Over;
            };
            if let Some(window) = self.window.as_ref()
                && window.room(offset) < room as u64
            {
                if !self.base.is_armed(Alarm::Window) {
                    let auto = core.answer_time(&self.base, &self.remote);
                    self.base.alarm(&mut core.shared, Alarm::Window, burst.departure(), auto);
                }
                return Turn::Over;
            }
            let Some(next) = source.next_new(room) else { return Turn::Over };
            if !self.may_send(core, burst.departure()) {
                return Turn::Over;
            }
            let (len, end) = (next.data.len(), next.offset + next.data.len() as u64);
            if self.width < Width::W64 && Width::fitting(end) > self.width {
                // A stream became longer than the descriptor that the other peer takes.
                self.end(core, StatusCode::TooLong);
                return Turn::Over;
            }
            let is_end = source.size == Some(end);
            // What the last packet has room for without a timestamp need not fit with one.
            let last_fits = self.room(burst.mtu(), true).is_some_and(|room| len <= room);
            let asks = asks || is_end && answers && last_fits;
            if !self.push_data(
                core,
                burst,
                (next.offset, next.data),
                asks,
                is_end && (asks || !answers),
            ) {
                return Turn::More;
            }
            source.new_sent(len);
            if is_end && (asks || !answers) {
                self.end_went(core, burst);
            }
        }
    }

    /// Once all is sent, a packet without data asks how much of it is there (§6.1.1).
    fn emit_end(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(source) = self.source.as_ref() else { return Turn::Over };
        let Some(size) = source.size.filter(|_| source.at_end()) else { return Turn::Over };
        if self.end_sent && (!self.ask_due || source.has_repairs()) {
            return Turn::Over;
        }
        let answers = self.order.put != Put::Blind;
        if !self.push_data(core, burst, (size, &[]), answers, true) {
            return Turn::More;
        }
        self.end_went(core, burst);
        Turn::Over
    }

    /// The end was sent, with the question how much is there.
    fn end_went(&mut self, core: &mut Core, burst: &Burst<'_>) {
        if !std::mem::replace(&mut self.end_sent, true) {
            self.end_asked = self.asked;
        }
        self.ask_due = false;
        if self.order.put == Put::Blind {
            self.succeed(core, false);
            return;
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = self.remote.answer_timer.probe(auto, self.misses);
        self.base.alarm(&mut core.shared, Alarm::Poll, burst.departure(), wait);
        self.fill_due = true;
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = loop {
            // Once the end of a stream was sent, only what asks about the end says that all is there.
            let may_ask = !(self.end_sent && self.order.content == Content::Stream);
            let asks = may_ask && self.is_ask_due(burst.departure());
            let room = self.room(burst.mtu(), asks).unwrap_or(1);
            if !source.has_repairs() {
                self.go_on_filling(core, &mut source, burst.departure());
            }
            let Some(next) = source.next_repair(room) else { break Turn::Over };
            if !self.may_send(core, burst.departure()) {
                break Turn::Over;
            }
            let (offset, len, asked) = (next.offset, next.data.len(), self.asked);
            if !self.push_data(core, burst, (offset, next.data), asks, false) {
                break Turn::More;
            }
            core.stats.repair_bytes += len as u64;
            self.in_flight.insert(offset, (offset + len as u64, asked, burst.departure()));
            source.repair_sent(len);
            self.ask_due = true;
        };
        source.read_repairs(&mut core.shared, self.base.seat.handle);
        if turn == Turn::Over && !source.has_repairs() && self.end_sent && self.ask_due {
            self.base.want(&mut core.shared, Class::Bulk);
        }
        self.source = Some(source);
        turn
    }

    /// The receiver says what it has, or that it gives up (§4.5).
    pub(crate) fn on_status(&mut self, core: &mut Core, now: Time, status: &Status<'_>) {
        if matches!(self.phase, Phase::Ending | Phase::Done) {
            return;
        }
        if status.code != StatusCode::Ok {
            self.fail(core, Failure { is_ours: false, code: status.code });
            self.close(core);
            return;
        }
        self.heard(now, status);
        match self.phase {
            Phase::Asking => {
                self.base.disarm(&mut core.shared, Alarm::Request);
                self.go_ahead(core);
                return;
            }
            // Where nothing is expected back, nothing is repeated, or it might be for ever.
            Phase::Sending if self.order.put == Put::Blind => return,
            Phase::Sending => {}
            Phase::Opening | Phase::Summing | Phase::Ending | Phase::Done => return,
        }
        let echo = status.timestamp.and_then(|timestamp| unstamp(&timestamp));
        let echo = echo.filter(|&(at, asked)| at <= now && (1..=self.asked).contains(&asked));
        // What waited for the end of an outage says nothing of replies after it: one sample of 650 s
        // would have the next probe wait for longer than that.
        let limit = OUTAGE_LEAST + 8 * core.answer_time(&self.base, &self.remote);
        let is_late = |(at, asked)| asked <= self.overdue && now.since(at) > limit;
        if let Some((at, _)) = echo.filter(|it| !status.is_voluntary && !is_late(*it)) {
            self.base.seat.sample(&mut core.shared.paths, now.since(at));
        }
        if let Some((at, asked)) = echo {
            self.heed(core, now, status, (at, asked));
        }
        if status.lacks_metadata {
            self.metadata_due |= self.order.put != Put::Blind;
            self.base.want(&mut core.shared, Class::Metadata);
        } else {
            self.metadata_known = true;
        }
        let Some(source) = self.source.as_ref() else { return };
        let is_stream = self.order.content == Content::Stream;
        // Before a stream's end came, nothing is missing either.
        let of_end = !is_stream
            || self.end_sent
                && echo.map_or(!status.is_voluntary, |(_, asked)| asked >= self.end_asked);
        let is_whole =
            !status.is_partial && !status.lacks_metadata && status.holes.is_empty() && of_end;
        if is_whole && source.at_end() && source.size.is_some_and(|size| status.progress >= size) {
            self.succeed(core, true);
            return;
        }
        self.confirm(core, status);
        if !self.fills(core, now) {
            self.repair(core, now, status, echo.map(|(_, asked)| asked));
        }
    }

    /// Sends again what the receiver lacks, unless that is on its way.
    fn repair(&mut self, core: &mut Core, now: Time, status: &Status<'_>, asked: Option<u64>) {
        let path = core.shared.paths.get(&self.id.peer);
        let segment = self.room(path.map_or(0, Path::mtu).max(64), false).unwrap_or(1);
        let times = path.and_then(|path| path.times(segment));
        // Without a timestamp nothing is known of queues on the way: some packets may wait there.
        let waiting = times.map_or(Duration::ZERO, |(packet, _)| 8 * packet);
        let recent = 3 * core.answer_time(&self.base, &self.remote) + waiting;
        // Sent before the question to which this is the answer: it is there, or lost.
        self.in_flight.retain(|_, (_, before, left)| match asked {
            Some(asked) => *before >= asked,
            None => now.since(*left) < recent,
        });
        let Some(source) = self.source.as_mut() else { return };
        if !status.is_partial && status.in_response_to > source.sent() {
            // The receiver has more than was sent: an earlier session brought it.
            let holes = status.holes.iter().map(|hole| (hole.last - hole.start).saturating_add(1));
            let missing = holes.fold(0, u64::saturating_add);
            let there = status.in_response_to.saturating_sub(missing);
            self.resumed = self.resumed.max(there.saturating_sub(source.sent()));
            source.skip_to(status.in_response_to);
            source.read_ahead(&mut core.shared, self.base.seat.handle, segment);
            self.base.want(&mut core.shared, Class::Bulk);
        }
        let max = core.config.limits.gaps;
        'holes: for hole in status.holes.iter() {
            let (mut at, end) = (hole.start, hole.last.saturating_add(1));
            while at < end {
                // Up to the next part that is on its way, and on behind that.
                let before = self.in_flight.range(..=at).next_back();
                if let Some((_, &(until, _, _))) = before.filter(|(_, (until, _, _))| *until > at) {
                    at = until;
                    continue;
                }
                let next = self.in_flight.range(at..end).next().map_or(end, |(start, _)| *start);
                if !source.request(at, next, max) {
                    break 'holes;
                }
                at = next;
            }
        }
        // While there is new data to send, a copy of a repair costs what that could have brought.
        // On a way that is shared, it costs the others, too.
        let spares = source.at_end() && self.control.is_none();
        let copies = if spares { self.remote.repair_copies } else { 1 };
        // Over a thin return link a reply takes longer than light does.
        let reply = core.answer_time(&self.base, &self.remote);
        let times = times.map(|(packet, round_trip)| (packet, round_trip.max(reply)));
        source.choose_copies(copies, segment, times);
        source.read_repairs(&mut core.shared, self.base.seat.handle);
        if let Some(window) = self.window.as_mut() {
            window.answered(status.in_response_to, source.sent());
            self.base.disarm(&mut core.shared, Alarm::Window);
            self.base.want(&mut core.shared, Class::Bulk);
        }
        if source.has_repairs() {
            self.base.want(&mut core.shared, Class::Repair);
        }
    }

    /// Ends the session, and tells the receiver.
    pub(crate) fn end(&mut self, core: &mut Core, code: StatusCode) {
        let told = match self.phase {
            // It asked, and gets an answer; or it knows nothing yet.
            Phase::Opening | Phase::Summing | Phase::Asking => false,
            Phase::Sending => true,
            Phase::Ending | Phase::Done => return,
        };
        self.fail(core, Failure { is_ours: true, code });
        self.is_ended_here = told;
        if told {
            self.phase = Phase::Ending;
            self.base.disarm_all(&mut core.shared);
            self.base.want(&mut core.shared, Class::Control);
        } else {
            self.close(core);
        }
    }

    /// Whether it ends with a refusal of what the other peer asked for.
    pub(crate) fn is_refusal(&self) -> bool {
        self.order.is_asked_for && self.failure.is_some() && self.source.is_none() && !self.began
    }

    fn succeed(&mut self, core: &mut Core, is_confirmed: bool) {
        self.finished(core, Ok(()), is_confirmed);
        self.release(core);
        if self.order.delete && is_confirmed {
            let request = FilestoreRequest::DeleteFile(self.order.source.clone());
            core.shared.filestore(self.base.seat.handle, Job::Forget, request);
        }
        self.close(core);
    }

    fn fail(&mut self, core: &mut Core, failure: Failure) {
        self.failure = Some(failure.code);
        self.finished(core, Err(failure), false);
        self.release(core);
    }

    fn finished(&self, core: &mut Core, result: Result<(), Failure>, is_confirmed: bool) {
        core.user.indicate(Indication::Finished(Finished {
            id: self.id,
            result,
            is_confirmed,
            name: self.order.name.clone(),
            size: self.size.unwrap_or_default(),
            resumed: self.resumed,
        }));
    }

    pub(crate) fn release(&mut self, core: &mut Core) {
        if let Some((file, _)) = self.summing.take() {
            core.shared.close(file);
        }
        let Some(source) = self.source.take() else { return };
        source.close(&mut core.shared);
        if self.order.content == Content::Directory {
            core.listings -= self.size.unwrap_or_default();
        }
    }

    fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.phase = Phase::Done;
    }

    /// Asks for a turn for all that waits to be sent.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        for class in Class::ALL {
            self.base.want(&mut core.shared, class);
        }
    }
}

/// A timestamp of the kind that means something only to its sender (appendix A, type 0): when it
/// left, and the number of the question.
fn stamp(at: Time, asked: u64) -> Timestamp {
    let mut octets = [0; TIMESTAMP_LEN];
    octets[..8].copy_from_slice(&at.as_nanos().to_be_bytes());
    octets[8..15].copy_from_slice(&asked.to_be_bytes()[1..]);
    octets
}

/// When the packet with this timestamp left, and the number of its question.
fn unstamp(octets: &Timestamp) -> Option<(Time, u64)> {
    let (at, rest) = octets.split_first_chunk::<8>()?;
    let asked = rest.first_chunk::<8>().filter(|rest| rest[7] == 0)?;
    Some((Time::from_nanos(u64::from_be_bytes(*at)), u64::from_be_bytes(*asked) >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_come_back() {
        let at = Time::from_nanos(123_456_789_000);
        assert_eq!(unstamp(&stamp(at, 77)), Some((at, 77)));
        assert_eq!(unstamp(&[1; 16]), None);
    }
}
