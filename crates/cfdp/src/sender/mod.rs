//! Transaction at the entity that sends the file (CCSDS 727.0-B-5 §4.6.1).

mod events;
mod fill;

use std::time::Duration;

use engine::{FileName, IndexRequest, OpenMode, Time};
use session::journal::Slot;
use session::path::{Burst, Class, Turn};
use session::source::Source;
use session::storage::Storage as _;
use session::timer::TICK;
use session::window::Window;

use self::fill::Repeats;
use super::core::{Alarm, Base, Core};
use super::finished::Outcome;
use super::indication::{Indication, Report, Role, State, TransactionFinished};
use super::journal;
use super::request::PutRequest;
use crate::pdu::{
    Body, ConditionCode, DeliveryCode, EntityId, Eof, FileDataHeader, IdField, Lv, Metadata, Pdu,
    Prompt, PromptResponse, SegmentMetadata, Tlv, Tlvs, Version,
};

/// Longest wait for a prompted Keep Alive.
const PATIENCE_MAX: Duration = Duration::from_millis(250);

/// Approximate bytes of the EOF, which must not be held back for lack of credit.
const EOF_LEN: usize = 40;

/// Transaction that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base,
    request: PutRequest,
    closure: bool,
    checksum: crate::pdu::ChecksumType,
    source: Option<Source>,
    /// Limit on new data ahead of the receiver's progress; created with the first data.
    window: Option<Window>,
    metadata: MetadataProgress,
    /// Host delay: no new data before this time.
    data_from: Time,
    /// Host delay: no repair before this time.
    repair_from: Time,
    /// Sending time of the last repair.
    repaired: Time,
    eof: EofProgress,
    phase: Phase,
    /// Due ACK of a Finished PDU, and its time.
    ack_due: Option<(ConditionCode, Time)>,
    /// Whether the end system sent Finished, not only a waypoint.
    end_system_finished: bool,
    prompts_due: Vec<PromptResponse>,
    /// Highest progress reported by Keep Alive.
    kept_alive: u64,
    /// Sending time of the last EOF, to measure the round trip; set only if the EOF was sent once.
    eof_left: Option<Time>,
    repeats: Repeats,
    record: Slot,
    /// Size of the file in an earlier run, if announced; set only for a put of an earlier run.
    restored: Option<Option<u64>>,
}

#[derive(Debug, Default)]
struct MetadataProgress {
    /// Encoded PDU, once the file's size is known.
    pdu: Option<Vec<u8>>,
    due: bool,
    sent: bool,
    /// Number of PDUs sent, and time of the last one.
    times: u32,
    left: Time,
    /// Requests for it after it was sent.
    refusals: u32,
}

#[derive(Debug, Default)]
struct EofProgress {
    due: bool,
    /// Transmissions without a reply since the last sign of life.
    attempts: u32,
    acknowledged: bool,
    ever_sent: bool,
    /// Consecutive probes, or checks for closure.
    waits: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The file is being opened.
    Opening,
    /// Sending, and waiting for the outcome.
    Sending,
    /// Cancelled here: the EOF with the condition waits for its ACK.
    Cancelled { condition: ConditionCode },
    /// Finished except for the ACK of the Finished PDU.
    Acknowledging,
    /// Over.
    Done,
}

impl Sender {
    pub(crate) fn new(mut base: Base, request: PutRequest, restored: Option<Option<u64>>) -> Self {
        let closure = request.closure.unwrap_or(base.remote.closure);
        let checksum = request.checksum.unwrap_or(base.remote.checksum);
        base.overrides = request.fault_handlers.clone();
        Self {
            base,
            request,
            closure,
            checksum,
            source: None,
            window: None,
            metadata: MetadataProgress::default(),
            data_from: Time::ZERO,
            repair_from: Time::ZERO,
            repaired: Time::ZERO,
            eof: EofProgress::default(),
            phase: Phase::Opening,
            ack_due: None,
            end_system_finished: false,
            prompts_due: Vec::new(),
            kept_alive: 0,
            eof_left: None,
            repeats: Repeats::default(),
            record: Slot::default(),
            restored,
        }
    }

    /// Put of an earlier run; the receiver may have any part of it.
    pub(crate) fn restored(base: Base, request: PutRequest, size: Option<u64>) -> Self {
        let mut sender = Self::new(base, request, Some(size));
        sender.record.mark_used();
        sender
    }

    pub(crate) fn start(&mut self, core: &mut Core, now: Time) {
        self.base.last_received = now;
        match self.request.source.clone() {
            Some(name) => core.shared.open(self.base.seat.handle, name, OpenMode::Read),
            None => self.prepare(core, now, Some(0)),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done && !self.record.is_busy()
    }

    /// Whether it may still be cancelled.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Opening | Phase::Sending)
    }

    /// Whether a repeated put would resume this transaction.
    pub(crate) fn resumes(&self, request: &PutRequest) -> bool {
        self.restored.is_some()
            && self.request.destination == request.destination
            && self.request.source == request.source
            && self.request.destination_name == request.destination_name
    }

    /// Creates the Metadata once the file is known, and starts.
    fn prepare(&mut self, core: &mut Core, now: Time, size: Option<u64>) {
        let large = size.is_none_or(|size| size > u64::from(u32::MAX));
        if large && self.base.header.version == Version::V0 && size.is_some() {
            self.give_up(core, ConditionCode::FileSizeError);
            return;
        }
        self.base.header.large_file = large && self.base.header.version == Version::V1;
        let Ok(pdu) = self.encode_metadata(size.unwrap_or(0)) else {
            self.give_up(core, ConditionCode::InvalidFileStructure);
            return;
        };
        self.metadata.pdu = Some(pdu);
        self.metadata.due = true;
        self.phase = Phase::Sending;
        let worth = self.source.is_some() || !self.request.messages.is_empty();
        if core.config.journal.enabled && self.base.acknowledged() && worth {
            self.save(core);
        }
        self.base.want(core, Class::Metadata);
        self.read_ahead(core);
        self.eof_when_ready(core);
        if let Some(every) = self.base.remote.prompt {
            self.base.alarm(core, Alarm::Prompt, now + every.max(TICK));
        }
        self.await_progress(core, now);
    }

    fn encode_metadata(&self, size: u64) -> Result<Vec<u8>, wire::EncodeError> {
        let request = &self.request;
        let mut tlvs: Vec<Tlv<'_>> = Vec::new();
        let requests = request.filestore_requests.iter();
        tlvs.extend(requests.map(|request| Tlv::FilestoreRequest(request.to_wire())));
        tlvs.extend(request.messages.iter().map(|message| Tlv::MessageToUser(Lv(message))));
        let handlers = request.fault_handlers.iter();
        tlvs.extend(
            handlers.map(|&(condition, handler)| Tlv::FaultHandlerOverride { condition, handler }),
        );
        tlvs.extend(request.flow_label.iter().map(|label| Tlv::FlowLabel(Lv(label))));
        let body = Body::Metadata(Metadata {
            closure_requested: self.closure,
            checksum_type: self.checksum,
            file_size: size,
            source_name: self.source_name().into(),
            destination_name: self.destination_name().into(),
            tlvs: Tlvs::new(&tlvs),
        });
        Pdu { header: self.base.header, body }.to_vec()
    }

    pub(crate) fn request(&self) -> &PutRequest {
        &self.request
    }

    pub(crate) fn source_name(&self) -> &str {
        let path = || self.request.source.as_ref().map_or("", FileName::path);
        self.request.source_name.as_deref().unwrap_or_else(path)
    }

    pub(crate) fn destination_name(&self) -> &str {
        match self.request.source {
            Some(_) => &self.request.destination_name,
            None => "",
        }
    }

    /// Saves the state needed to resume after a restart of this entity.
    fn save(&mut self, core: &mut Core) {
        let Some(metadata) = self.metadata.pdu.as_deref() else { return };
        let source = self.request.source.as_ref();
        let value = journal::encode_sender(source, self.request.unbounded, metadata);
        let request = IndexRequest::Put { key: journal::sender_key(self.base.id()), value };
        self.base.record(core, &mut self.record, request);
    }

    /// Maximum bytes of file data in a PDU; `None` if not even one fits.
    fn segment(&self, mtu: usize) -> Option<usize> {
        let overhead = self.data_header(0).overhead();
        let room = self.base.pdu_max(mtu).saturating_sub(overhead);
        let most = self.base.remote.segment_max.map_or(room, |max| max.min(room));
        (most > 0).then_some(most.min(65_000))
    }

    fn data_header(&self, offset: u64) -> FileDataHeader<'_> {
        let metadata = self.request.segment_metadata.as_ref();
        FileDataHeader {
            header: self.base.header,
            segment_metadata: metadata.map(|metadata| SegmentMetadata {
                continuation: metadata.continuation,
                metadata: &metadata.metadata,
            }),
            offset,
        }
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let segment = self.segment(path.map_or(0, |path| path.mtu()).max(64)).unwrap_or(1);
        if let Some(source) = self.source.as_mut() {
            source.read_ahead(&mut core.shared, self.base.seat.handle, segment);
        }
    }

    /// Sends the EOF once everything was sent once.
    fn eof_when_ready(&mut self, core: &mut Core) {
        let ready = self.source.as_ref().is_none_or(Source::at_end);
        let first = !self.eof.ever_sent && !self.eof.due;
        if self.phase == Phase::Sending && ready && first && self.metadata.sent {
            self.eof.due = true;
            self.base.want(core, Class::Bulk);
        }
    }

    /// Sends queued PDUs of one class.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        if self.base.is_suspended() {
            return Turn::Over;
        }
        match class {
            Class::Control => self.emit_control(core, burst),
            Class::Metadata => self.emit_metadata(core, burst),
            Class::Repair => self.emit_repairs(core, burst),
            Class::Bulk => self.emit_bulk(core, burst),
        }
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if let Some((condition, at)) = self.ack_due {
            if at > burst.departure() {
                self.base.alarm(core, Alarm::Ready(Class::Control), at);
            } else {
                let mut ack = self.base.ack(crate::pdu::Acknowledged::Finished, condition);
                if let Body::Ack(ack) = &mut ack {
                    ack.subtype = u8::from(self.end_system_finished);
                }
                if !self.base.push(core, burst, ack) {
                    return Turn::More;
                }
                self.ack_due = None;
                if self.phase == Phase::Acknowledging {
                    self.close(core);
                    return Turn::Over;
                }
            }
        }
        while let Some(&response) = self.prompts_due.last() {
            if !self.base.push(core, burst, Body::Prompt(Prompt { response })) {
                return Turn::More;
            }
            self.prompts_due.pop();
        }
        Turn::Over
    }

    fn emit_metadata(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(pdu) = self.metadata.pdu.as_deref().filter(|_| self.metadata.due) else {
            return Turn::Over;
        };
        if pdu.len() > burst.mtu() {
            // The path's MTU is too small for the user's options.
            self.metadata.due = false;
            self.cancel(core, burst.departure(), ConditionCode::InvalidTransmissionMode);
            return Turn::Over;
        }
        if !burst.has_room(pdu.len()) {
            return Turn::More;
        }
        if !self.base.credit.spend(pdu.len()) {
            core.stats.held_back += 1;
        } else if let Some(place) = burst.push(pdu.len()) {
            place.copy_from_slice(pdu);
            core.stats.sent.metadata += 1;
        }
        self.metadata.due = false;
        self.metadata.times += 1;
        self.metadata.left = burst.departure();
        if !self.metadata.sent {
            self.metadata.sent = true;
            let delay = self.base.remote.host_delays.metadata_to_data;
            self.data_from = burst.departure() + delay;
            self.eof_when_ready(core);
            if delay.is_zero() {
                self.data_from = Time::ZERO;
                self.base.want(core, Class::Bulk);
            } else {
                self.base.alarm(core, Alarm::Ready(Class::Bulk), self.data_from);
            }
        }
        Turn::Over
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.phase != Phase::Sending {
            return Turn::Over;
        }
        if self.repair_from > burst.departure() {
            self.base.alarm(core, Alarm::Ready(Class::Repair), self.repair_from);
            return Turn::Over;
        }
        let Some(segment) = self.segment(burst.mtu()) else {
            self.cancel(core, burst.departure(), ConditionCode::InvalidTransmissionMode);
            return Turn::Over;
        };
        let overhead = self.data_header(0).overhead();
        let metadata = self.request.segment_metadata.clone();
        let header = self.base.header;
        let turn = loop {
            let Some(source) = self.source.as_mut() else { return Turn::Over };
            let Some(next) = source.next_repair(segment) else { break Turn::Over };
            let len = next.data.len();
            let Some(place) = burst.push(overhead + len) else { break Turn::More };
            let segment_metadata = metadata.as_ref().map(|metadata| SegmentMetadata {
                continuation: metadata.continuation,
                metadata: &metadata.metadata,
            });
            write_data(
                FileDataHeader { header, segment_metadata, offset: next.offset },
                next.data,
                place,
            );
            core.stats.sent.file_data += 1;
            core.stats.repair_bytes += len as u64;
            source.repair_sent(len);
            self.repaired = burst.departure();
            if !source.has_repairs() {
                self.fill(core);
            }
        };
        if let Some(source) = self.source.as_mut() {
            source.read_repairs(&mut core.shared, self.base.seat.handle);
        }
        turn
    }

    fn emit_bulk(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if !self.metadata.sent {
            return Turn::Over;
        }
        if self.data_from > burst.departure() {
            self.base.alarm(core, Alarm::Ready(Class::Bulk), self.data_from);
            return Turn::Over;
        }
        if self.phase == Phase::Sending {
            let turn = self.emit_data(core, burst);
            self.read_ahead(core);
            self.eof_when_ready(core);
            if turn == Turn::More {
                return turn;
            }
        }
        if self.eof.due { self.emit_eof(core, burst) } else { Turn::Over }
    }

    fn emit_data(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let now = burst.departure();
        let until = self.progress().saturating_add(self.room(core));
        let Some(segment) = self.segment(burst.mtu()) else {
            // The path's MTU is too small for a single byte of the file.
            self.cancel(core, burst.departure(), ConditionCode::InvalidTransmissionMode);
            return Turn::Over;
        };
        let overhead = self.data_header(0).overhead();
        let metadata = self.request.segment_metadata.as_ref();
        let Some(source) = self.source.as_mut() else { return Turn::Over };
        let segment_metadata = metadata.map(|metadata| SegmentMetadata {
            continuation: metadata.continuation,
            metadata: &metadata.metadata,
        });
        let mut head = FileDataHeader { header: self.base.header, segment_metadata, offset: 0 };
        let turn = loop {
            // The last datagram may exceed the limit: a short datagram would cost more than the
            // excess.
            let next = source.next_new(segment).filter(|next| next.offset < until);
            let Some(next) = next else { break Turn::Over };
            let len = next.data.len();
            if !burst.has_room(overhead + len) {
                break Turn::More;
            }
            // The requester of a response proves itself by its reply to the EOF. It requests the
            // data that was held back.
            let is_held_back = self.base.credit.left() < overhead + len + EOF_LEN;
            if is_held_back || !self.base.credit.spend(overhead + len) {
                core.stats.held_back += 1;
            } else if let Some(place) = burst.push(overhead + len) {
                head.offset = next.offset;
                write_data(head, next.data, place);
                core.stats.sent.file_data += 1;
                core.stats.data_bytes += len as u64;
            }
            source.new_sent(len);
        };
        self.look_at_window(core, now);
        turn
    }

    /// Bytes of new data that may be sent now.
    fn room(&mut self, core: &Core) -> u64 {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let free = path.is_some_and(|path| !path.is_paced()) && self.base.acknowledged();
        let Some(most) = self.base.remote.unpaced_window.filter(|_| free) else { return u64::MAX };
        let sent = self.progress();
        self.window.get_or_insert_with(|| Window::new(most, sent)).room(sent)
    }

    /// Prompts the receiver for its progress when due, after data was sent. Once the limit is
    /// reached, waits for its reply.
    fn look_at_window(&mut self, core: &mut Core, now: Time) {
        let sent = self.progress();
        let Some(window) = self.window.as_mut() else { return };
        let (asks, full) = (window.prompts(sent), window.room(sent) == 0);
        if asks {
            self.want_prompt(core, PromptResponse::KeepAlive);
        }
        if full {
            let patience = self.base.answer_time(core).min(PATIENCE_MAX);
            self.base.alarm_no_later(core, Alarm::Window, now + patience);
        }
    }

    fn emit_eof(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let (condition, fault_location) = match &self.phase {
            Phase::Cancelled { condition } => {
                let id = EntityId(core.config.entity);
                (*condition, Some(IdField::new(id, self.base.header.entity_width)))
            }
            Phase::Opening | Phase::Sending | Phase::Acknowledging | Phase::Done => {
                (ConditionCode::NoError, None)
            }
        };
        let eof = Eof {
            condition,
            checksum: self.source.as_ref().map_or(0, Source::checksum),
            file_size: self.source.as_ref().map_or(0, Source::sent),
            fault_location,
        };
        if !self.base.push(core, burst, Body::Eof(eof)) {
            return Turn::More;
        }
        self.eof.due = false;
        self.eof_sent(core, burst.departure());
        self.fill(core);
        Turn::Over
    }

    /// Notes an EOF sent at `at`, and starts the wait that follows.
    fn eof_sent(&mut self, core: &mut Core, at: Time) {
        let first = !self.eof.ever_sent;
        self.eof.ever_sent = true;
        self.eof_left = (first || self.eof.attempts == 0).then_some(at);
        let cancelled = matches!(self.phase, Phase::Cancelled { .. });
        if first {
            // No reply was due before.
            self.base.last_received = self.base.last_received.max(at);
        }
        if first && !cancelled && core.config.indications.eof_sent {
            core.user.indicate(Indication::EofSent(self.base.id()));
        }
        if self.base.acknowledged() {
            if first {
                self.base.alarm_no_later(core, Alarm::Inactivity, self.silence_limit(core));
            }
            if self.eof.acknowledged {
                self.wait(core, at);
            } else {
                self.eof.attempts += 1;
                let (timer, misses) = (self.base.remote.ack_timer, self.eof.attempts);
                let auto = self.base.answer_time(core);
                let wait = if cancelled {
                    timer.duration(auto, misses)
                } else {
                    timer.probe(auto, misses - 1)
                };
                self.base.alarm(core, Alarm::Ack, at + wait);
            }
        } else if cancelled {
            self.close(core);
        } else if self.closure {
            self.base.alarm(core, Alarm::Check, at + self.base.check_time(core));
        } else {
            self.finished(core, Outcome::new(DeliveryCode::Complete));
            self.close(core);
        }
    }

    /// Waits for Finished, and sends another EOF after a long silence.
    fn wait(&mut self, core: &mut Core, now: Time) {
        let auto = (self.base.answer_time(core) * 8).max(Duration::from_secs(2));
        let wait = self.base.remote.probe.duration(auto, self.eof.waits + 2);
        self.base.alarm(core, Alarm::Probe, now + wait);
    }

    /// Indicates the outcome to the user.
    fn finished(&mut self, core: &mut Core, outcome: Outcome) {
        let finished = TransactionFinished {
            id: self.base.id(),
            role: Role::Sender,
            peer: EntityId(self.base.peer),
            condition: outcome.condition,
            delivery: outcome.delivery,
            file_status: outcome.file_status,
            source_name: self.source_name().to_owned(),
            destination_name: self.destination_name().to_owned(),
            size: self.size().unwrap_or(0),
            messages: self.request.messages.clone(),
            filestore_responses: outcome.responses,
            fault_location: outcome.fault_location,
        };
        core.sent(&finished);
        core.user.indicate(Indication::TransactionFinished(finished));
    }

    /// Ends the transaction before it started.
    fn give_up(&mut self, core: &mut Core, condition: ConditionCode) {
        let outcome = Outcome { condition, ..Outcome::new(DeliveryCode::Complete) };
        self.finished(core, Outcome { delivery: DeliveryCode::Incomplete, ..outcome });
        self.close(core);
    }

    /// Drops queued PDUs when the receiver is done: an EOF would restart the transaction.
    fn say_no_more(&mut self) {
        self.eof.due = false;
        self.metadata.due = false;
        self.prompts_due.clear();
    }

    /// Ends the transaction.
    fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(core);
        self.say_no_more();
        if let Some(source) = self.source.take() {
            core.shared.close(source.file);
        }
        if self.record.is_used() {
            let key = journal::sender_key(self.base.id());
            self.base.record(core, &mut self.record, IndexRequest::Remove { key });
        }
        self.phase = Phase::Done;
    }

    pub(crate) fn size(&self) -> Option<u64> {
        match self.source.as_ref() {
            Some(source) => source.size,
            None => self.request.source.is_none().then_some(0),
        }
    }

    pub(crate) fn report(&self) -> Report {
        let state = match self.phase {
            _ if self.base.is_suspended() => State::Suspended,
            Phase::Opening => State::Opening,
            Phase::Sending if self.eof.ever_sent => State::Waiting,
            Phase::Sending => State::Transferring,
            Phase::Cancelled { .. } | Phase::Acknowledging | Phase::Done => State::Closing,
        };
        Report {
            id: self.base.id(),
            role: Role::Sender,
            peer: EntityId(self.base.peer),
            progress: self.progress(),
            confirmed: (self.kept_alive > 0).then_some(self.kept_alive),
            size: self.size(),
            state,
            condition: match self.phase {
                Phase::Cancelled { condition } => condition,
                Phase::Opening | Phase::Sending | Phase::Acknowledging | Phase::Done => {
                    ConditionCode::NoError
                }
            },
            status: crate::pdu::TransactionStatus::Active,
            source_name: self.source_name().to_owned(),
            destination_name: self.destination_name().to_owned(),
        }
    }

    pub(crate) fn progress(&self) -> u64 {
        self.source.as_ref().map_or(0, Source::sent)
    }
}

/// Writes a file data PDU to exactly `place`.
fn write_data(head: FileDataHeader<'_>, data: &[u8], place: &mut [u8]) {
    match head.encode(data.len(), place) {
        Ok(range) => {
            place[range].copy_from_slice(data);
            head.finish(place);
        }
        // The offset lies within the size that the header's width was chosen for.
        Err(_) => place.fill(0),
    }
}
