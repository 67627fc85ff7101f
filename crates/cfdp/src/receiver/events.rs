//! Events of a receiving transaction: directives, storage, timers, requests.

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, Time};
use session::delivery::Event;
use session::path::{Class, Clock};
use session::sum::Sum;
use session::timer::TICK;
use session::{Reason, StoreRefusal};

use super::{End, Metadata, Phase, Receiver, Round};
use crate::core::{Alarm, Core, Job, Task};
use crate::indication::{Indication, MetadataReceived, PeerError};
use crate::pdu::{
    self, Ack, Acknowledged, ChecksumType, ConditionCode, Eof, FaultHandler, Prompt,
    PromptResponse, Tlv,
};
use crate::request::FilestoreRequest;

/// Number of Finished PDUs sent without an ACK after a cancellation, if no limit is set. They are
/// bounded, because nothing depends on them.
const CANCEL_ATTEMPTS: u32 = 30;

type Answer = Result<Completion, EffectError>;

impl Receiver {
    pub(crate) fn on_metadata(
        &mut self,
        core: &mut Core,
        now: Time,
        metadata: &pdu::Metadata<'_>,
        pdu: &[u8],
    ) {
        self.base.last_received = now;
        if self.metadata.is_some() {
            if self.metadata_pdu != pdu {
                self.peer_error(core, PeerError::ConflictingMetadata);
            }
            return;
        }
        if self.phase != Phase::Receiving {
            return;
        }
        if metadata.tlvs.iter().count() > core.config.limits.options {
            self.peer_error(core, PeerError::TooManyOptions);
            return;
        }
        let refused = self.take_metadata(core, metadata, pdu);
        let described = self.metadata.as_ref();
        let size = described.and_then(|described| described.size);
        if refused {
            core.stats.names_refused += 1;
            self.peer_error(core, PeerError::NameRefused);
            let name = metadata.destination_name.to_str().map(FileName::file);
            let error = name.and_then(Result::err);
            let reason = error.as_ref().map_or(StoreRefusal::NameRefused, StoreRefusal::from);
            self.cannot_store(core, now, reason);
            return;
        }
        if let (Some(announced), Some(eof)) = (size, self.eof)
            && announced > 0
            && announced != eof.size
        {
            self.fatal(core, now, ConditionCode::FileSizeError);
            return;
        }
        if !metadata.checksum_type.is_supported() {
            self.fault(core, now, ConditionCode::UnsupportedChecksumType);
            if self.phase != Phase::Receiving {
                return;
            }
        }
        self.open_file(core);
        self.save(core, now);
        if matches!(self.nak.round, Round::Asking { metadata: true, end: 0, .. }) {
            self.nak.round = Round::Idle;
        }
        self.nak.progressed();
        self.check_complete(core, now);
    }

    /// Opens the working file, if the Metadata named one.
    fn open_file(&mut self, core: &mut Core) {
        let described = self.metadata.as_ref().filter(|described| described.destination.is_some());
        let Some(checksum) = described.map(|described| described.checksum) else { return };
        if self.phase != Phase::Receiving || self.delivery.spool.is_started() {
            return;
        }
        let sum = Sum::checksum(checksum);
        self.delivery.open(&mut core.shared, self.base.seat.handle, sum);
    }

    /// Processes a Metadata PDU and indicates it. Returns whether its name is refused.
    pub(super) fn take_metadata(
        &mut self,
        core: &mut Core,
        metadata: &pdu::Metadata<'_>,
        pdu: &[u8],
    ) -> bool {
        self.metadata_pdu = pdu.to_vec();
        let (mut described, mut refused) = self.describe(metadata);
        let (has_file, size) = (!metadata.destination_name.is_empty(), metadata.file_size);
        if let Some(place) = core.place(&self.base, has_file, size, &described.messages) {
            refused = place.refused || refused && place.name.is_none();
            described.destination = place.name;
            described.requests = place.requests.unwrap_or(described.requests);
            described.size = if place.stored { Some(size) } else { described.size };
        }
        core.user.indicate(Indication::MetadataReceived(MetadataReceived {
            id: self.base.id(),
            source: self.base.header.source,
            size: described.size,
            source_name: described.source_name.clone(),
            destination_name: described.destination_name.clone(),
            messages: described.messages.clone(),
        }));
        self.metadata = Some(described);
        refused
    }

    /// Interprets a Metadata PDU. Returns also whether its name is refused.
    fn describe(&mut self, metadata: &pdu::Metadata<'_>) -> (Metadata, bool) {
        let no_file = metadata.destination_name.is_empty() && metadata.source_name.is_empty();
        let name = metadata.destination_name.to_str();
        let destination = name.and_then(|name| FileName::file(name).ok());
        let refused = !no_file && destination.is_none();
        let (mut messages, mut requests) = (Vec::new(), Vec::new());
        for tlv in metadata.tlvs {
            match tlv {
                Tlv::FilestoreRequest(request) => {
                    requests.push(FilestoreRequest::from_wire(&request));
                }
                Tlv::MessageToUser(message) => messages.push(Bytes::copy_from_slice(message.0)),
                Tlv::FaultHandlerOverride { condition, handler } => {
                    if is_permitted(condition, handler) {
                        self.base.overrides.push((condition, handler));
                    }
                }
                Tlv::FilestoreResponse(_)
                | Tlv::FlowLabel(_)
                | Tlv::EntityId(_)
                | Tlv::Other { .. } => {}
            }
        }
        let checksum = metadata.checksum_type;
        let described = Metadata {
            size: (metadata.file_size > 0 && !no_file).then_some(metadata.file_size),
            destination,
            source_name: metadata.source_name.to_str_lossy().into_owned(),
            destination_name: metadata.destination_name.to_str_lossy().into_owned(),
            closure: metadata.closure_requested,
            // If this fault is ignored, the file stays unverified (§4.2.2).
            checksum: if checksum.is_supported() { checksum } else { ChecksumType::Null },
            messages,
            requests,
        };
        (described, refused)
    }

    pub(super) fn peer_error(&self, core: &mut Core, error: PeerError) {
        let path = self.base.seat.path.unwrap_or_default();
        core.user.indicate(Indication::PeerError { path, id: self.base.id(), error });
    }

    pub(crate) fn on_eof(&mut self, core: &mut Core, now: Time, eof: &Eof, pdu: &[u8]) {
        self.base.last_received = now;
        // A suspended reception replies once. Then the sender's inactivity limit decides how long
        // it waits.
        let answers = !self.base.is_suspended() || self.eof.is_none();
        if self.base.acknowledged() && answers {
            let at = now + self.base.remote.host_delays.eof_to_ack;
            self.ack_due = Some((eof.condition, at));
            self.nak_from = at;
            self.base.want_at(core, Class::Control, now, at);
        }
        if self.phase == Phase::Telling {
            // The sender still waits, so it has not received the outcome.
            self.finished.due = self.finished.due.or(Some(now));
            return;
        }
        if self.phase != Phase::Receiving {
            return;
        }
        if eof.condition != ConditionCode::NoError {
            let location = eof.fault_location.map(|id| id.entity());
            self.cancelled_by_sender(core, now, eof.condition, location);
            return;
        }
        let end = End::from_eof(eof);
        match self.eof {
            Some(known) if known == end => return,
            Some(_) => {
                self.peer_error(core, PeerError::ConflictingEof);
                return;
            }
            None => {}
        }
        if core.config.indications.eof_received {
            core.user.indicate(Indication::EofReceived(self.base.id()));
        }
        self.eof_pdu = pdu.to_vec();
        self.eof = Some(end);
        if !core.admits(self.base.id(), end.size) {
            self.peer_error(core, PeerError::NoRoomToStore);
            self.cannot_store(core, now, StoreRefusal::NoSpace);
            return;
        }
        let announced = self.metadata.as_ref().and_then(|metadata| metadata.size);
        let differs = announced.is_some_and(|size| size > 0 && size != end.size);
        if differs || end.size < self.ranges.end() {
            // The receiver cannot know which of the sender's PDUs is right, so no handler saves the
            // file.
            self.fatal(core, now, ConditionCode::FileSizeError);
            return;
        }
        self.check_complete(core, now);
        if self.phase == Phase::Receiving {
            self.save(core, now);
            if self.base.acknowledged() {
                self.ask_after_eof(core, now);
            } else {
                self.base.alarm(core, Alarm::Check, now + self.base.check_time(core));
            }
        }
    }

    /// Processes the sender's ACK of the outcome.
    pub(crate) fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        self.base.last_received = now;
        let finished = match ack.directive {
            Acknowledged::Finished => true,
            Acknowledged::Eof | Acknowledged::Other(_) => false,
        };
        if finished && self.phase == Phase::Telling {
            self.close(core);
        }
    }

    pub(crate) fn on_prompt(&mut self, core: &mut Core, now: Time, prompt: Prompt) {
        self.base.last_received = now;
        if !self.base.acknowledged() || self.phase != Phase::Receiving {
            return;
        }
        match prompt.response {
            PromptResponse::Nak => {
                if self.nak.round == Round::Idle {
                    self.ask_for_all(core, now);
                }
                if self.nak.round == Round::Idle {
                    self.nak.empty_due = true;
                    self.base.want(core, Class::Control);
                }
            }
            PromptResponse::KeepAlive => {
                self.keep_alive_due = true;
                self.base.want(core, Class::Control);
            }
        }
    }

    /// Processes the result of an effect of this transaction.
    pub(crate) fn done(&mut self, core: &mut Core, now: Time, job: Job, answer: Answer) {
        match job {
            Job::Own(Task::Request) => self.request_done(core, now, answer),
            Job::Own(Task::Journal) => {
                if answer.is_err() {
                    core.stats.record_errors += 1;
                }
                if self.base.recorded(core, &mut self.delivery.record) {
                    self.record_is_there(answer.is_ok());
                    self.recorded(core, now);
                }
            }
            Job::Open
            | Job::Read { .. }
            | Job::Write { .. }
            | Job::Sync
            | Job::Install
            | Job::Repair { .. }
            | Job::Forget
            | Job::Own(Task::Load | Task::Sequence(_) | Task::Operation(_)) => {
                let (shared, handle) = (&mut core.shared, self.base.seat.handle);
                let ranges = &mut self.ranges;
                let event = self.delivery.on_done(shared, handle, now, ranges, &job, answer);
                if let Some(event) = event {
                    self.on_delivery(core, now, &event);
                }
            }
        }
    }

    fn on_delivery(&mut self, core: &mut Core, now: Time, event: &Event) {
        match event {
            Event::Opened => {
                self.check_complete(core, now);
                if self.phase == Phase::Receiving && self.eof.is_some() {
                    self.ask_after_eof(core, now);
                }
            }
            Event::Summed => self.summed_up(core, now),
            Event::Saved => self.put_record(core),
            Event::Stored => self.stored(core, now),
            Event::Installed => self.installed(core, now),
            Event::NotInstalled(reason) => self.not_installed(core, now, *reason),
            Event::Failed(reason) => self.storage_failed(core, now, *reason),
        }
    }

    fn storage_failed(&mut self, core: &mut Core, now: Time, reason: StoreRefusal) {
        core.stats.storage_errors += 1;
        if self.is_open() {
            // Unwritten data is lost permanently, although it counts as received.
            self.cannot_store(core, now, reason);
        }
    }

    /// Processes a timer.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Ready(class) => self.base.want(core, class),
            Alarm::Nak => self.nak_overdue(core, now),
            Alarm::Ack => self.finished_overdue(core, now),
            Alarm::Periodic => self.ask_periodically(core, now),
            Alarm::Check => self.check_again(core, now),
            Alarm::KeepAlive => {
                if let Some(every) = self.base.remote.keep_alive
                    && self.phase == Phase::Receiving
                {
                    self.keep_alive_due = true;
                    self.base.want(core, Class::Control);
                    self.base.alarm(core, Alarm::KeepAlive, now + every.max(TICK));
                }
            }
            Alarm::Inactivity => self.look_for_life(core, now),
            Alarm::Journal => {
                if self.phase == Phase::Receiving {
                    // An idle reception needs no saving; the next data arms the timer again.
                    self.record.alarmed = false;
                    self.save_progress(core, now);
                }
            }
            Alarm::Probe | Alarm::Prompt | Alarm::Progress | Alarm::Window => {}
        }
    }

    fn look_for_life(&mut self, core: &mut Core, now: Time) {
        if self.phase == Phase::Telling {
            let limit = self.base.last_received + self.base.inactivity(core);
            if limit <= now {
                self.give_up_telling(core, ConditionCode::InactivityDetected);
            } else {
                self.base.alarm(core, Alarm::Inactivity, limit);
            }
            return;
        }
        if self.phase != Phase::Receiving {
            return;
        }
        if self.base.last_received + self.base.inactivity(core) <= now {
            self.base.last_received = now;
            self.fall_silent(core, now);
        }
        if self.phase == Phase::Receiving && !self.base.is_suspended() {
            let next = self.base.last_received + self.base.inactivity(core);
            self.base.alarm(core, Alarm::Inactivity, next);
        }
    }

    /// Handles the sender's silence. A suspended reception resumes with the sender's next PDU, which
    /// comes from a sender that was restarted.
    fn fall_silent(&mut self, core: &mut Core, now: Time) {
        let silence = ConditionCode::InactivityDetected;
        let is_cancelled = self.base.handler(core, silence) == FaultHandler::Cancel;
        if core.config.keep_silent && is_cancelled && self.base.acknowledged() {
            self.suspend(core, now, silence);
        } else {
            self.fault(core, now, silence);
        }
        self.is_asleep = self.base.acknowledged() && self.base.is_suspended();
    }

    /// Resumes a reception that its sender's silence suspended.
    pub(crate) fn wake(&mut self, core: &mut Core, now: Time) {
        if std::mem::take(&mut self.is_asleep) {
            self.resume(core, now);
        }
    }

    fn check_again(&mut self, core: &mut Core, now: Time) {
        if self.phase != Phase::Receiving || self.eof.is_none() || self.base.is_suspended() {
            return;
        }
        self.checks += 1;
        if self.base.remote.check_limit.is_some_and(|limit| self.checks > limit) {
            self.checks = 0;
            self.fault(core, now, ConditionCode::CheckLimitReached);
        }
        if self.phase == Phase::Receiving && !self.base.is_suspended() {
            self.base.alarm(core, Alarm::Check, now + self.base.check_time(core));
        }
    }

    fn finished_overdue(&mut self, core: &mut Core, now: Time) {
        if self.phase != Phase::Telling {
            return;
        }
        let is_good = self.outcome.condition == ConditionCode::NoError;
        let limit = self.base.remote.ack_limit.or((!is_good).then_some(CANCEL_ATTEMPTS));
        let is_last = limit.is_some_and(|limit| self.finished.attempts >= limit.max(1));
        let is_silent = self.base.last_received + self.base.inactivity(core) <= now;
        if is_last || is_silent {
            let condition = if is_last {
                ConditionCode::PositiveAckLimitReached
            } else {
                ConditionCode::InactivityDetected
            };
            self.give_up_telling(core, condition);
            return;
        }
        self.finished.due = Some(now);
        self.base.want(core, Class::Control);
    }

    /// Ends the wait for the ACK of the Finished PDU. The user has the outcome; replies to the
    /// sender's EOF PDUs come from memory.
    fn give_up_telling(&mut self, core: &mut Core, condition: ConditionCode) {
        let (id, progress) = (self.base.id(), self.ranges.covered());
        core.user.indicate(Indication::Fault { id, condition, progress });
        self.close(core);
    }

    pub(crate) fn suspend(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        if self.base.is_suspended() || self.phase != Phase::Receiving {
            return;
        }
        self.base.suspend(core, now, condition);
    }

    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        if !self.base.resume(core, now, self.ranges.covered()) {
            return;
        }
        self.rearm(core, now);
        self.check_complete(core, now);
    }

    /// Rearms the timers after they were stopped, and requests turns.
    pub(crate) fn rearm(&mut self, core: &mut Core, now: Time) {
        self.want_all(core);
        if !self.base.running(core) {
            return;
        }
        let left = self.base.path_resumed(now);
        match self.phase {
            Phase::Receiving => {
                self.start_timers(core, now);
                if self.base.acknowledged() {
                    self.ask_again(core, now);
                } else if self.eof.is_some() {
                    self.base.alarm(core, Alarm::Check, now + self.base.check_time(core));
                }
            }
            Phase::Telling => {
                self.finished.due = self.finished.due.or(Some(now));
                self.base.want(core, Class::Control);
                let limit = self.base.last_received + self.base.inactivity(core);
                self.base.alarm(core, Alarm::Inactivity, limit.max(now + TICK));
            }
            Phase::Storing | Phase::Requests(_) | Phase::Concluding | Phase::Done => {}
        }
        self.base.rearm_no_later(core, now, left);
    }

    /// Stops the timers when a direction of the path goes down (§4.12).
    pub(crate) fn freeze(&mut self, core: &mut Core, now: Time) {
        let before = self.base.clock();
        if before == Clock::Running {
            self.stop_asking(now);
        }
        self.base.freeze(&mut core.shared, now, Reason::Path);
        if (before, self.base.clock()) == (Clock::Stopped, Clock::Sending) {
            self.ask_at_contact(core, now);
        }
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        if self.phase != Phase::Done {
            self.base.want(core, Class::Control);
        }
    }
}

/// Whether a sender may set this handler. Limits end a transaction whose sender vanished: a sender
/// that could bypass them could fill an entity for good.
fn is_permitted(condition: ConditionCode, handler: FaultHandler) -> bool {
    let is_limit = matches!(
        condition,
        ConditionCode::InactivityDetected
            | ConditionCode::NakLimitReached
            | ConditionCode::CheckLimitReached
            | ConditionCode::PositiveAckLimitReached
            | ConditionCode::KeepAliveLimitReached
    );
    let waits = matches!(handler, FaultHandler::Suspend | FaultHandler::Ignore);
    !(is_limit && waits)
}
