//! Transaction at the entity that receives the file (CCSDS 727.0-B-5 §4.6.1).

mod completion;
mod events;
mod nak;

use std::time::Duration;

use bytes::Bytes;
use engine::{FileName, Time};
use session::delivery::Delivery;
use session::path::{Burst, Class, Turn};
use session::ranges::Ranges;
use session::timer::{TICK, Timer};

use self::nak::{NakState, Round};
use super::closed::Subject;
use super::core::{Alarm, Base, Core};
use super::finished::{self, Outcome};
use super::indication::{Indication, Limit, NoRoom, Report, Role, State};
use super::journal::ReceiverRecord;
use super::request::FilestoreRequest;
use crate::pdu::{
    Acknowledged, Body, ChecksumType, ConditionCode, DeliveryCode, EntityId, Eof, FileData,
    KeepAlive, Nak, Pdu, SegmentRequests,
};

/// Prefix of the names of working files.
pub const SPOOL_PREFIX: &str = "rx-";

/// Approximate bytes of a probe of a silent sender.
const PROBE_LEN: u64 = 64;

/// Longest Metadata PDU that is kept of a reception that gave way before its data arrived.
const STAGED_LEN: usize = 512;

/// Transaction that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base,
    metadata: Option<Metadata>,
    /// Metadata PDU as received, to store it and to compare it with later ones.
    metadata_pdu: Vec<u8>,
    eof: Option<End>,
    eof_pdu: Vec<u8>,
    ranges: Ranges,
    /// Number of ranges included in the entity's total.
    ranges_counted: usize,
    delivery: Delivery,
    nak: NakState,
    phase: Phase,
    /// Due ACK of an EOF, and its time.
    ack_due: Option<(ConditionCode, Time)>,
    /// Host delay: no NAK before this time.
    nak_from: Time,
    finished: FinishedProgress,
    keep_alive_due: bool,
    checks: u32,
    record: Record,
    outcome: Outcome,
    /// Arrival of the last byte, to model a slow host.
    complete_at: Time,
    /// Whether it was removed to make room for another.
    is_displaced: bool,
    /// Whether it is suspended because of its sender's silence, and resumes with its next PDU.
    is_asleep: bool,
}

/// Finished PDU of a transaction.
#[derive(Debug, Default)]
struct FinishedProgress {
    /// Encoded PDU, once the transaction has ended.
    pdu: Vec<u8>,
    due: Option<Time>,
    /// Number of transmissions without a reply.
    attempts: u32,
}

/// Content of the Metadata PDU.
#[derive(Debug)]
struct Metadata {
    /// Size in bytes; `None` if it is known only at the end.
    size: Option<u64>,
    /// Destination of the file; `None` if there is no file.
    destination: Option<FileName>,
    source_name: String,
    destination_name: String,
    closure: bool,
    checksum: ChecksumType,
    messages: Vec<Bytes>,
    requests: Vec<FilestoreRequest>,
}

/// Content of an EOF without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    size: u64,
    checksum: u32,
}

impl End {
    fn from_eof(eof: &Eof) -> Self {
        Self { size: eof.file_size, checksum: eof.checksum }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Data is missing.
    Receiving,
    /// Complete, or kept though incomplete; the file is being verified, stored, recorded and
    /// renamed.
    Storing,
    /// Carrying out filestore requests; this one is next.
    Requests(usize),
    /// Storing the record of the outcome.
    Concluding,
    /// Reporting the outcome to the sender.
    Telling,
    /// Over.
    Done,
}

/// Record of a reception.
#[derive(Debug, Default)]
struct Record {
    /// Whether the state being restored is saved already.
    restoring: bool,
    /// Whether the timer that saves the progress is armed.
    alarmed: bool,
    /// Content of the last record given to the store.
    submitted: Recorded,
    /// Content of the record known to be stored.
    recorded: Recorded,
}

/// Content of a reception's record.
#[derive(Clone, Debug, Default)]
struct Recorded {
    ranges: Ranges,
    metadata: bool,
    eof: bool,
}

impl Recorded {
    fn from_record(record: &ReceiverRecord) -> Self {
        let ReceiverRecord { ranges, metadata, eof, .. } = record;
        Self { ranges: ranges.clone(), metadata: !metadata.is_empty(), eof: !eof.is_empty() }
    }
}

impl Receiver {
    pub(crate) fn new(base: Base, core: &mut Core, now: Time) -> Self {
        let id = base.id();
        let name = format!("{SPOOL_PREFIX}{}-{}", id.source, id.sequence);
        let working = FileName::spool(&name).expect("digits and dashes are a name");
        let mut receiver = Self {
            base,
            metadata: None,
            metadata_pdu: Vec::new(),
            eof: None,
            eof_pdu: Vec::new(),
            ranges: Ranges::new(),
            ranges_counted: 0,
            delivery: Delivery::new(working),
            nak: NakState::default(),
            phase: Phase::Receiving,
            ack_due: None,
            nak_from: Time::ZERO,
            finished: FinishedProgress::default(),
            keep_alive_due: false,
            checks: 0,
            record: Record::default(),
            outcome: Outcome::new(DeliveryCode::Incomplete),
            complete_at: Time::ZERO,
            is_displaced: false,
            is_asleep: false,
        };
        receiver.start_timers(core, now);
        receiver
    }

    /// Resumes a reception of an earlier run.
    pub(crate) fn restore(&mut self, core: &mut Core, now: Time, record: ReceiverRecord) {
        self.delivery.record.mark_used();
        let received = record.ranges.covered() as usize + record.metadata.len() + record.eof.len();
        self.base.credit.earn(received);
        core.shared.places.gained(self.base.seat.handle, record.ranges.covered());
        self.record.submitted = Recorded::from_record(&record);
        self.record.recorded = self.record.submitted.clone();
        self.ranges = record.ranges;
        self.count_ranges(core, self.ranges.len());
        self.delivery.resume(self.ranges.clone());
        let metadata = match Pdu::decode(&record.metadata) {
            Ok(Pdu { body: Body::Metadata(metadata), .. }) => Some(metadata),
            Ok(_) | Err(_) => None,
        };
        let eof = match Pdu::decode(&record.eof) {
            Ok(Pdu { body: Body::Eof(eof), .. }) => Some(eof),
            Ok(_) | Err(_) => None,
        };
        if let (Some(decided), Some(metadata)) = (record.decided, &metadata) {
            self.take_metadata(core, metadata, &record.metadata);
            self.eof = eof.map(|eof| End::from_eof(&eof));
            self.eof_pdu.clone_from(&record.eof);
            self.outcome.condition = decided.condition;
            self.outcome.fault_location = decided.fault_location;
            self.delivery.resume_installing();
            self.phase = Phase::Storing;
            self.complete_at = now;
            self.install(core, now);
            return;
        }
        self.record.restoring = true;
        if let Some(metadata) = metadata {
            self.on_metadata(core, now, &metadata, &record.metadata);
        }
        if let Some(eof) = eof {
            self.on_eof(core, now, &eof, &record.eof);
            self.ack_due = None;
        }
        self.record.restoring = false;
    }

    fn start_timers(&mut self, core: &mut Core, now: Time) {
        let limit = self.base.last_received + self.base.inactivity(core);
        self.base.alarm(core, Alarm::Inactivity, limit.max(now + TICK));
        if let Some(every) = self.base.remote.keep_alive.filter(|_| self.base.acknowledged()) {
            self.base.alarm(core, Alarm::KeepAlive, now + every.max(TICK));
        }
        if let super::config::NakMode::Asynchronous(every) = self.base.remote.naks.mode {
            self.base.alarm(core, Alarm::Periodic, now + every.max(TICK));
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done && !self.delivery.record.is_busy()
    }

    /// Whether it may still be cancelled.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Receiving || self.phase == Phase::Storing && !self.delivery.is_stored()
    }

    /// Whether it was removed to make room for another: its number may begin again.
    pub(crate) fn is_displaced(&self) -> bool {
        self.is_displaced
    }

    /// Metadata PDU of a displaced reception without data: the data may still arrive.
    pub(crate) fn staged_pdu(&mut self) -> Option<Vec<u8>> {
        let is_staged = self.is_displaced && self.ranges.covered() == 0;
        let pdu = std::mem::take(&mut self.metadata_pdu);
        (is_staged && !pdu.is_empty() && pdu.len() <= STAGED_LEN).then_some(pdu)
    }

    /// File that is lost with a displaced reception, because its sender retransmits nothing.
    pub(crate) fn lost_file(&self) -> Option<NoRoom> {
        let progress = self.ranges.covered();
        let is_lost = self.is_displaced && progress > 0 && !self.base.acknowledged();
        let described = self.metadata.as_ref();
        let name = || described.map(|described| described.destination_name.clone());
        is_lost.then(|| NoRoom { id: self.base.id(), name: name().unwrap_or_default(), progress })
    }

    /// Finished PDU; empty until the outcome is decided.
    pub(crate) fn finished_pdu(&self) -> &[u8] {
        &self.finished.pdu
    }

    /// Known content of the transaction.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            metadata: Subject::digest(&self.metadata_pdu),
            end: self.eof.map(|eof| (eof.size, eof.checksum)),
        }
    }

    /// Replaces the Finished PDU by the end system's.
    pub(crate) fn set_finished_pdu(&mut self, pdu: Vec<u8>) {
        self.finished.pdu = pdu;
    }

    /// Finished PDU for later requests, once the transaction has ended.
    pub(crate) fn take_finished_pdu(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.finished.pdu)
    }

    /// Processes a file data PDU.
    #[inline]
    pub(crate) fn on_data(&mut self, core: &mut Core, now: Time, data: &FileData<'_>) {
        self.base.last_received = now;
        if self.phase != Phase::Receiving {
            core.stats.duplicate_data += 1;
            return;
        }
        self.nak.arrivals.arrived(now, data.data.len());
        let len = data.data.len() as u64;
        let offset = data.offset;
        let Some(end) = offset.checked_add(len) else {
            self.fault(core, now, ConditionCode::FileSizeError);
            return;
        };
        if self.out_of_bounds(core, now, end) || len == 0 {
            return;
        }
        if core.config.indications.file_segment_received {
            let metadata = data.segment_metadata.map_or(&[][..], |metadata| metadata.metadata);
            core.user.indicate(Indication::FileSegmentReceived {
                id: self.base.id(),
                offset,
                len,
                metadata: Bytes::copy_from_slice(metadata),
            });
        }
        let (before, covered) = (self.ranges.end(), self.ranges.covered());
        let accepted = if offset == before {
            self.accept(core, offset, data.data)
        } else {
            self.accept_parts(core, offset, end, data.data)
        };
        if self.metadata.is_none() {
            self.ask_for_metadata(core, now);
        }
        if !accepted {
            self.repeated(core, now, end);
            return;
        }
        self.checks = 0;
        // Ranking at each doubling keeps the work of a PDU small.
        if covered.leading_zeros() != self.ranges.covered().leading_zeros() {
            core.shared.places.gained(self.base.seat.handle, self.ranges.covered());
        }
        self.nak_progress(core, now, before, offset, end);
        self.after_data(core, now);
    }

    /// Whether data up to `end` lies outside the file.
    fn out_of_bounds(&mut self, core: &mut Core, now: Time, end: u64) -> bool {
        if let Some(eof) = self.eof {
            if end > eof.size {
                self.fault(core, now, ConditionCode::FileSizeError);
                return true;
            }
            return false;
        }
        let announced = self.metadata.as_ref().and_then(|metadata| metadata.size);
        let most = announced.unwrap_or(core.config.limits.file_size);
        // Larger offsets could not be requested in PDUs like the sender's.
        let tellable = if self.base.header.large_file { u64::MAX } else { u64::from(u32::MAX) };
        if end > most.min(tellable) {
            // The EOF will show whether the Metadata or the data is wrong.
            core.stats.data_dropped += 1;
            return true;
        }
        false
    }

    /// Takes the new parts of `offset..end`. Returns whether there were any.
    fn accept_parts(&mut self, core: &mut Core, offset: u64, end: u64, data: &[u8]) -> bool {
        let limits = &core.config.limits;
        let full = self.ranges.len() > limits.gaps || core.ranges > limits.gaps_total;
        if full && self.ranges.would_add_range(offset, end) {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Gaps);
            return false;
        }
        // A lost segment is missing as a whole, except with hostile or odd peers.
        let first = self.ranges.gaps(offset, end).next();
        let Some((from, to)) = first else {
            core.stats.duplicate_data += 1;
            return false;
        };
        if (from, to) == (offset, end) {
            return self.accept(core, offset, data);
        }
        let gaps: Vec<_> = self.ranges.gaps(offset, end).collect();
        let mut any = false;
        for (from, to) in gaps {
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            any |= self.accept(core, from, part);
        }
        any
    }

    /// Takes data that was not received before, not even in part.
    #[inline]
    fn accept(&mut self, core: &mut Core, offset: u64, data: &[u8]) -> bool {
        let (shared, seat) = (&mut core.shared, &self.base.seat);
        if !self.delivery.append(shared, seat, &mut self.ranges, offset, data) {
            Self::no_room(core);
            return false;
        }
        if self.ranges.len() != self.ranges_counted {
            self.count_ranges(core, self.ranges.len());
        }
        true
    }

    /// Accounts for the ranges tracked here.
    fn count_ranges(&mut self, core: &mut Core, len: usize) {
        core.ranges = core.ranges - self.ranges_counted + len;
        self.ranges_counted = len;
    }

    /// Counts data that is dropped because the store is behind, and requested later.
    fn no_room(core: &mut Core) {
        core.stats.data_dropped += 1;
        if core.shared.became_full() {
            core.user.indicate(Indication::LimitReached(Limit::WriteBuffer));
        }
    }

    fn after_data(&mut self, core: &mut Core, now: Time) {
        if self.eof.is_some() {
            self.check_complete(core, now);
        } else if core.config.journal.enabled {
            if self.delivery.is_save_due(&self.ranges, core.config.journal) {
                self.save_progress(core, now);
            } else if !self.record.alarmed {
                self.record.alarmed = true;
                let interval = self.delivery.save_wait(core.config.journal).max(TICK);
                self.base.alarm(core, Alarm::Journal, now + interval);
            }
        }
    }

    /// Sends queued PDUs: a receiver only has control PDUs.
    pub(crate) fn emit(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let now = burst.departure();
        // A NAK acknowledges the EOF, too, and repairs wait for it.
        let asks_first = matches!(self.nak.round, Round::Asking { .. })
            && self.nak_from <= now
            && !self.base.is_suspended()
            && self.return_is_thin(core);
        if asks_first && self.emit_naks(core, burst) == Turn::More {
            return Turn::More;
        }
        if let Some(turn) = self.emit_ack(core, burst) {
            return turn;
        }
        // A suspended sender must still receive the acknowledgement of its EOF.
        if self.base.is_suspended() {
            return Turn::Over;
        }
        if let Some(at) = self.finished.due {
            if at > now {
                self.base.alarm(core, Alarm::Ready(Class::Control), at);
            } else if self.emit_finished(core, burst) == Turn::More {
                return Turn::More;
            }
        }
        if self.keep_alive_due {
            let progress = self.ranges.end();
            if !self.base.push(core, burst, Body::KeepAlive(KeepAlive { progress })) {
                return Turn::More;
            }
            self.keep_alive_due = false;
        }
        if self.nak.empty_due {
            let requests = SegmentRequests::new(&[]);
            let nak = Nak { scope_start: 0, scope_end: self.ranges.end(), requests };
            if !self.base.push(core, burst, Body::Nak(nak)) {
                return Turn::More;
            }
            self.nak.empty_due = false;
        }
        if matches!(self.nak.round, Round::Asking { .. }) {
            if self.nak_from > now {
                self.base.alarm(core, Alarm::Ready(Class::Control), self.nak_from);
                return Turn::Over;
            }
            return self.emit_naks(core, burst);
        }
        Turn::Over
    }

    /// Sends the ACK of an EOF if due. Returns the turn's outcome if it ends there.
    fn emit_ack(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Option<Turn> {
        let (condition, at) = self.ack_due?;
        let now = burst.departure();
        if at > now {
            self.base.alarm(core, Alarm::Ready(Class::Control), at);
            return Some(Turn::Over);
        }
        let ack = self.base.ack(Acknowledged::Eof, condition);
        if !self.base.push(core, burst, ack) {
            return Some(Turn::More);
        }
        self.ack_due = None;
        self.nak_from = now + self.base.remote.host_delays.ack_to_nak;
        None
    }

    fn emit_finished(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let pdu = std::mem::take(&mut self.finished.pdu);
        self.finished.pdu = finished::fitted(pdu, self.base.pdu_max(burst.mtu()));
        // All responses follow once the sender has shown that it receives them.
        let left = self.base.credit.left();
        let short = (self.finished.pdu.len() > left)
            .then(|| finished::fitted(self.finished.pdu.clone(), left));
        let pdu = short.as_ref().unwrap_or(&self.finished.pdu);
        if pdu.len() > burst.mtu() {
            core.stats.oversize += 1;
        } else if !burst.has_room(pdu.len()) {
            return Turn::More;
        } else if !self.base.credit.spend(pdu.len()) {
            core.stats.held_back += 1;
        } else if let Some(place) = burst.push(pdu.len()) {
            place.copy_from_slice(pdu);
            core.stats.sent.finished += 1;
        }
        self.finished.due = None;
        if self.base.acknowledged() {
            self.finished.attempts += 1;
            let auto = self.base.answer_time(core);
            let (timer, misses) = (self.base.remote.ack_timer, self.finished.attempts);
            let wait = if self.outcome.condition == ConditionCode::NoError {
                self.wait_for_reply(timer, auto, misses - 1)
            } else {
                timer.duration(auto, misses)
            };
            self.base.alarm(core, Alarm::Ack, burst.departure() + wait);
        } else {
            self.close(core);
        }
        Turn::Over
    }

    /// Wait after the last of `misses` PDUs without a reply; `auto` is a reply time.
    ///
    /// A silent sender is probed frequently while the probes amount to less than three times the
    /// data it sent: anyone can write its address into a datagram. 100 kB allow 4,687 probes.
    fn wait_for_reply(&self, timer: Timer, auto: Duration, misses: u32) -> Duration {
        let allowed = self.ranges.covered().saturating_mul(3);
        if u64::from(misses) * PROBE_LEN <= allowed {
            timer.probe(auto, misses)
        } else {
            timer.duration(auto, misses)
        }
    }

    pub(crate) fn report(&self) -> Report {
        let state = match self.phase {
            _ if self.base.is_suspended() => State::Suspended,
            Phase::Receiving => State::Transferring,
            Phase::Storing | Phase::Requests(_) => State::Completing,
            Phase::Concluding | Phase::Telling | Phase::Done => State::Closing,
        };
        let name = |name: fn(&Metadata) -> &String| {
            self.metadata.as_ref().map(name).cloned().unwrap_or_default()
        };
        Report {
            id: self.base.id(),
            role: Role::Receiver,
            peer: EntityId(self.base.peer),
            progress: self.ranges.covered(),
            confirmed: None,
            size: self.size(),
            state,
            condition: self.outcome.condition,
            status: crate::pdu::TransactionStatus::Active,
            source_name: name(|metadata| &metadata.source_name),
            destination_name: name(|metadata| &metadata.destination_name),
        }
    }

    fn size(&self) -> Option<u64> {
        let announced = self.metadata.as_ref().and_then(|metadata| metadata.size);
        self.eof.map(|eof| eof.size).or(announced)
    }

    /// Hands collected data to the store, because too much waits in this entity.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        if self.phase == Phase::Receiving {
            self.delivery.spool.flush(&mut core.shared, self.base.seat.handle);
        }
    }
}
