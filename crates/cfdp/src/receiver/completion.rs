//! End of a reception: the file is verified, synced and renamed, filestore requests are carried
//! out, and then the sender is notified. Records of its progress survive a restart.

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, IndexRequest, Time};
use session::StoreRefusal;
use session::delivery::Step;
use session::path::{Class, Path};
use session::ranges::Ranges;
use session::sum::Value;

use super::{Phase, Receiver, Recorded};
use crate::core::{Alarm, Core, Job, Task};
use crate::indication::{Indication, Role, TransactionFinished};
use crate::journal::{self, Decided, ReceiverRecord};
use crate::keeping::{Keeping, Part};
use crate::pdu::{
    ConditionCode, DeliveryCode, EntityId, FaultHandler, FileStatus, FilestoreAction,
    FilestoreStatus,
};
use crate::request::{FilestoreRequest, FilestoreResponse};

impl Receiver {
    /// Finishes the transaction if everything has arrived.
    pub(super) fn check_complete(&mut self, core: &mut Core, now: Time) {
        let (Some(eof), Some(metadata)) = (self.eof, self.metadata.as_ref()) else { return };
        if self.phase != Phase::Receiving || self.base.is_suspended() {
            return;
        }
        if metadata.destination.is_none() {
            self.complete_at = now;
            self.outcome.delivery = DeliveryCode::Complete;
            self.next_request(core, now, 0);
            return;
        }
        if self.delivery.spool.file().is_none() {
            return;
        }
        if self.delivery.spool.was_longer_than(eof.size) {
            // An earlier run wrote beyond the end, which cannot be truncated.
            self.fatal(core, now, ConditionCode::FileSizeError);
            return;
        }
        if self.ranges.covered() < eof.size {
            self.summed_up(core, now);
            return;
        }
        self.complete_at = now;
        self.phase = Phase::Storing;
        self.base.disarm_protocol(core);
        self.base.disarm(core, Alarm::Journal);
        self.delivery.complete(&mut core.shared, self.base.seat.handle);
        self.summed_up(core, now);
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core, now: Time) {
        let (handle, prefix) = (self.base.seat.handle, self.ranges.prefix());
        let size = self.eof.map(|eof| eof.size);
        let sum = self.delivery.verify(&mut core.shared, handle, prefix, size);
        let (Some(eof), Some(sum)) = (self.eof, sum) else { return };
        let unchecked =
            self.metadata.as_ref().is_some_and(|m| m.checksum == crate::pdu::ChecksumType::Null);
        if !unchecked && sum != Value::Check(eof.checksum) {
            self.fault(core, now, ConditionCode::FileChecksumFailure);
            if self.delivery.step() != Step::Verifying {
                return;
            }
            self.outcome.condition = ConditionCode::FileChecksumFailure;
            self.outcome.fault_location = Some(EntityId(core.config.entity));
        }
        self.delivery.sync(&mut core.shared, handle);
    }

    /// Notes that the complete file is safely stored.
    pub(super) fn stored(&mut self, core: &mut Core, now: Time) {
        self.delivery.spool.close(&mut core.shared);
        if core.config.journal.enabled {
            self.put_record(core);
        } else {
            self.install(core, now);
        }
    }

    /// Notes that the last record is stored.
    pub(super) fn recorded(&mut self, core: &mut Core, now: Time) {
        match self.phase {
            Phase::Storing if self.delivery.step() == Step::Stored => self.install(core, now),
            Phase::Concluding => self.report_outcome(core, now),
            Phase::Receiving
            | Phase::Storing
            | Phase::Requests(_)
            | Phase::Telling
            | Phase::Done => {}
        }
    }

    pub(super) fn install(&mut self, core: &mut Core, now: Time) {
        let destination = self.metadata.as_ref().and_then(|metadata| metadata.destination.clone());
        let Some(to) = destination else {
            // The settings changed since the record was made, and refuse the name now.
            self.not_installed(core, now, StoreRefusal::NameRefused);
            return;
        };
        self.delivery.install(&mut core.shared, self.base.seat.handle, to);
    }

    /// Notes that the file was renamed.
    pub(super) fn installed(&mut self, core: &mut Core, now: Time) {
        self.outcome.file_status = FileStatus::Retained;
        if self.outcome.condition == ConditionCode::NoError {
            self.outcome.delivery = DeliveryCode::Complete;
            self.next_request(core, now, 0);
        } else {
            // The requests were meant for the complete file.
            self.outcome.delivery = DeliveryCode::Incomplete;
            self.refuse_requests(0);
            self.conclude(core, now);
        }
    }

    /// Notes that the store refused to rename the file.
    pub(super) fn not_installed(&mut self, core: &mut Core, now: Time, reason: StoreRefusal) {
        core.stats.storage_errors += 1;
        self.note_refusal(reason);
        self.delivery.discard(&mut core.shared, self.base.seat.handle);
        self.outcome.condition = ConditionCode::FilestoreRejection;
        self.outcome.file_status = FileStatus::FilestoreRejection;
        self.outcome.fault_location = Some(EntityId(core.config.entity));
        self.refuse_requests(0);
        self.conclude(core, now);
    }

    /// Ends the transaction because the file cannot be stored.
    pub(super) fn cannot_store(&mut self, core: &mut Core, now: Time, reason: StoreRefusal) {
        self.note_refusal(reason);
        self.fatal(core, now, ConditionCode::FilestoreRejection);
    }

    /// Notes the first reason why the file cannot be stored, for the user and the sender.
    fn note_refusal(&mut self, reason: StoreRefusal) {
        if self.outcome.responses.is_empty() {
            let name = self.metadata.as_ref().map_or("", |it| it.destination_name.as_str());
            self.outcome.responses.push(FilestoreResponse::refused(name, reason));
        }
    }

    /// Carries out the filestore requests one after the other (§4.9).
    fn next_request(&mut self, core: &mut Core, now: Time, index: usize) {
        let request = self.metadata.as_ref().and_then(|metadata| metadata.requests.get(index));
        let Some(request) = request else {
            self.conclude(core, now);
            return;
        };
        self.phase = Phase::Requests(index);
        let permitted = self.base.remote.permissions.filestore;
        match store_request(request).filter(|_| permitted) {
            Some(store) => {
                core.shared.filestore(self.base.seat.handle, Job::Own(Task::Request), store);
            }
            None => {
                core.stats.names_refused += 1;
                let error = EffectError::NotAllowed;
                self.request_done(core, now, Err(error));
            }
        }
    }

    pub(super) fn request_done(
        &mut self,
        core: &mut Core,
        now: Time,
        answer: Result<Completion, EffectError>,
    ) {
        let Phase::Requests(index) = self.phase else { return };
        let request = self.metadata.as_ref().and_then(|metadata| metadata.requests.get(index));
        let Some(request) = request.cloned() else { return };
        let error = answer.err();
        let status = match &error {
            None => FilestoreStatus::SUCCESSFUL,
            Some(error) => failure(request.action, error),
        };
        self.outcome.responses.push(FilestoreResponse {
            action: request.action,
            status,
            first: request.first,
            second: request.second,
            message: String::new(),
        });
        if error.is_some() {
            // Requests after a failed request are not carried out (§4.9.4).
            self.refuse_requests(index + 1);
            self.conclude(core, now);
        } else {
            self.next_request(core, now, index + 1);
        }
    }

    fn refuse_requests(&mut self, from: usize) {
        let requests = self.metadata.as_ref().map_or(&[][..], |metadata| &metadata.requests);
        let refused = requests.iter().skip(from).map(|request| FilestoreResponse {
            action: request.action,
            status: FilestoreStatus::NOT_PERFORMED,
            first: request.first.clone(),
            second: request.second.clone(),
            message: String::new(),
        });
        self.outcome.responses.extend(refused);
    }

    /// Records the decided outcome before reporting it.
    fn conclude(&mut self, core: &mut Core, now: Time) {
        self.base.settle(core, now);
        self.base.disarm(core, Alarm::Journal);
        // The transaction ends at a waypoint that gives up.
        let end_system =
            !core.is_relayed(&self.base.header) || self.outcome.condition != ConditionCode::NoError;
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let max = self.base.pdu_max(path.map_or(usize::MAX, Path::mtu));
        self.finished.pdu = self.outcome.encode(&self.base.header, end_system, max);
        self.phase = Phase::Concluding;
        if core.config.journal.enabled && self.base.acknowledged() {
            let order = core.finished_order();
            let subject = self.subject();
            let messages = self.metadata.as_ref().map_or(&[][..], |metadata| &metadata.messages);
            let value = if core.owes(&self.base, self.outcome.condition, messages, order) {
                journal::encode_owed(order, &self.finished.pdu, &subject, &self.metadata_pdu)
            } else {
                journal::encode_finished(order, &self.finished.pdu, &subject)
            };
            let key = journal::receiver_key(self.base.id());
            self.base.record(core, &mut self.delivery.record, IndexRequest::Put { key, value });
        } else {
            self.report_outcome(core, now);
        }
    }

    /// Reports the outcome to the user, and to the sender if it waits.
    fn report_outcome(&mut self, core: &mut Core, now: Time) {
        self.indicate_finished(core);
        let closure = self.metadata.as_ref().is_some_and(|metadata| metadata.closure);
        // Without a path to the sender, the sender will retry, and then gets a reply from memory.
        if self.base.seat.path.is_none() || (!self.base.acknowledged() && !closure) {
            self.close(core);
            return;
        }
        self.phase = Phase::Telling;
        core.shared.places.include(self.base.seat.handle);
        let delays = &self.base.remote.host_delays;
        let millionths = u32::try_from(self.ranges.covered() / 1000).unwrap_or(u32::MAX);
        let per_file = delays.complete_to_finished_per_mb * millionths / 1000;
        let at = self.complete_at + delays.complete_to_finished + per_file;
        let at = if at > now { at } else { now };
        self.finished.due = Some(at);
        self.base.want_at(core, Class::Control, now, at);
        // The Finished PDU may never be sent, and then no other timer is ever armed.
        self.base.alarm(core, Alarm::Inactivity, now + self.base.inactivity(core));
    }

    fn indicate_finished(&mut self, core: &mut Core) {
        let metadata = self.metadata.as_ref();
        let finished = TransactionFinished {
            id: self.base.id(),
            role: Role::Receiver,
            peer: EntityId(self.base.peer),
            condition: self.outcome.condition,
            delivery: self.outcome.delivery,
            file_status: self.outcome.file_status,
            source_name: metadata.map(|m| m.source_name.clone()).unwrap_or_default(),
            destination_name: metadata.map(|m| m.destination_name.clone()).unwrap_or_default(),
            size: self.eof.map_or(self.ranges.covered(), |eof| eof.size),
            messages: metadata.map(|m| m.messages.clone()).unwrap_or_default(),
            filestore_responses: self.outcome.responses.clone(),
            fault_location: self.outcome.fault_location,
        };
        core.received(&mut self.base, &finished, &self.metadata_pdu);
        if core.config.indications.transaction_finished {
            core.user.indicate(Indication::TransactionFinished(finished));
        }
    }

    /// Handles a fault according to its handler (§4.8).
    pub(super) fn fault(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        if !self.is_open() {
            return;
        }
        let (id, progress) = (self.base.id(), self.ranges.covered());
        match self.base.handler(core, condition) {
            FaultHandler::Cancel | FaultHandler::Other(_) => self.cancel(core, now, condition),
            FaultHandler::Suspend if self.phase == Phase::Receiving => {
                self.suspend(core, now, condition);
            }
            // Waiting does not repair a complete but wrong file.
            FaultHandler::Suspend => self.cancel(core, now, condition),
            FaultHandler::Ignore => {
                core.user.indicate(Indication::Fault { id, condition, progress });
            }
            FaultHandler::Abandon => self.abandon(core, condition),
        }
    }

    /// Handles a fault that no handler can repair: the file cannot be completed.
    pub(super) fn fatal(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        match self.base.handler(core, condition) {
            FaultHandler::Abandon => self.abandon(core, condition),
            FaultHandler::Cancel
            | FaultHandler::Suspend
            | FaultHandler::Ignore
            | FaultHandler::Other(_) => self.cancel(core, now, condition),
        }
    }

    /// Removes the reception to make room for another. A sender of class 2 that is still active
    /// gets a request for everything at its next PDU. Returns `false` if the reception ends by
    /// itself.
    pub(crate) fn give_way(&mut self, core: &mut Core) -> bool {
        match self.phase {
            Phase::Receiving => {
                self.is_displaced = true;
                if self.metadata.is_some() {
                    core.user.indicate(Indication::Displaced(self.base.id()));
                }
                self.delivery.discard(&mut core.shared, self.base.seat.handle);
                self.close(core);
                true
            }
            // A sender that still waits gets the outcome from memory.
            Phase::Telling => {
                self.close(core);
                true
            }
            Phase::Storing | Phase::Requests(_) | Phase::Concluding | Phase::Done => false,
        }
    }

    fn abandon(&mut self, core: &mut Core, condition: ConditionCode) {
        let (id, progress) = (self.base.id(), self.ranges.covered());
        core.user.indicate(Indication::Abandoned { id, condition, progress });
        self.delivery.discard(&mut core.shared, self.base.seat.handle);
        self.close(core);
    }

    /// Cancels: the file is discarded, and the sender is notified by Finished.
    pub(crate) fn cancel(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        if !self.is_open() {
            // Too late: the file is renamed, or about to be.
            return;
        }
        let location = EntityId(core.config.entity);
        self.cancelled(core, now, condition, Some(location));
    }

    pub(super) fn cancelled_by_sender(
        &mut self,
        core: &mut Core,
        now: Time,
        condition: ConditionCode,
        location: Option<EntityId>,
    ) {
        self.cancelled(core, now, condition, location.or(Some(self.base.header.source)));
    }

    fn cancelled(
        &mut self,
        core: &mut Core,
        now: Time,
        condition: ConditionCode,
        location: Option<EntityId>,
    ) {
        self.base.settle(core, now);
        self.nak.round = super::Round::Idle;
        self.outcome.condition = condition;
        self.outcome.delivery = DeliveryCode::Incomplete;
        self.outcome.fault_location = location;
        let installable = self.metadata.as_ref().is_some_and(|m| m.destination.is_some())
            && self.delivery.spool.file().is_some();
        if core.config.keep_incomplete
            && installable
            && condition != ConditionCode::FilestoreRejection
        {
            self.complete_at = now;
            self.phase = Phase::Storing;
            self.delivery.sync(&mut core.shared, self.base.seat.handle);
            return;
        }
        self.outcome.file_status = match condition {
            ConditionCode::FilestoreRejection => FileStatus::FilestoreRejection,
            _ => FileStatus::Discarded,
        };
        self.delivery.discard(&mut core.shared, self.base.seat.handle);
        self.complete_at = now;
        self.refuse_requests(0);
        self.conclude(core, now);
    }

    /// Ends the transaction.
    pub(super) fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(core);
        self.finished.due = None;
        self.delivery.leave(&mut core.shared);
        self.count_ranges(core, 0);
        let remembered = self.base.acknowledged() && !self.finished.pdu.is_empty();
        if self.delivery.record.is_used() && !remembered {
            let key = journal::receiver_key(self.base.id());
            self.base.record(core, &mut self.delivery.record, IndexRequest::Remove { key });
        }
        self.phase = Phase::Done;
    }

    /// Saves the state of the transaction, with the last progress known to be synced.
    pub(super) fn save(&mut self, core: &mut Core, now: Time) {
        if !self.record.restoring {
            self.save_progress(core, now);
        }
    }

    /// Syncs written data, and then saves the progress.
    pub(super) fn save_progress(&mut self, core: &mut Core, now: Time) {
        if !core.config.journal.enabled {
            return;
        }
        let (shared, handle) = (&mut core.shared, self.base.seat.handle);
        if !self.delivery.save(shared, handle, now, &self.ranges) {
            self.put_record(core);
        }
    }

    pub(super) fn put_record(&mut self, core: &mut Core) {
        if self.metadata_pdu.is_empty() && self.eof_pdu.is_empty() {
            // Only data arrived, which cannot be written without a Metadata PDU.
            return;
        }
        let record = ReceiverRecord {
            decided: (self.delivery.step() == Step::Stored).then_some(Decided {
                condition: self.outcome.condition,
                fault_location: self.outcome.fault_location,
            }),
            metadata: self.metadata_pdu.clone(),
            eof: self.eof_pdu.clone(),
            ranges: self.delivery.recordable(&self.ranges),
        };
        self.record.submitted = Recorded::from_record(&record);
        let value: Bytes = journal::encode_receiver(&record);
        let key = journal::receiver_key(self.base.id());
        self.base.record(core, &mut self.delivery.record, IndexRequest::Put { key, value });
    }

    /// Durability of a received part of the transaction.
    pub(crate) fn keeping(&self, core: &Core, part: Part) -> Keeping {
        let holds = |ranges: &Ranges, offset: u64, len: u64| {
            ranges.gaps(offset, offset.saturating_add(len)).next().is_none()
        };
        let recorded = &self.record.recorded;
        let (is_here, is_safe) = match part {
            Part::Metadata => (self.metadata.is_some(), recorded.metadata),
            Part::End => (self.eof.is_some(), recorded.eof),
            Part::Data { offset, len } => {
                (holds(&self.ranges, offset, len), holds(&recorded.ranges, offset, len))
            }
        };
        match (is_here, is_safe || !core.config.journal.enabled) {
            (false, _) => Keeping::Dropped,
            (true, false) => Keeping::Taken,
            (true, true) => Keeping::Safe,
        }
    }

    /// Saves the progress now, unless that is under way or there is nothing new to save.
    pub(crate) fn keep(&mut self, core: &mut Core, now: Time) {
        let (delivery, submitted) = (&self.delivery, &self.record.submitted);
        let is_saving = delivery.is_saving() || delivery.record.is_busy();
        let is_new =
            delivery.spool.file().is_some() && submitted.ranges.covered() < self.ranges.covered();
        if self.phase == Phase::Receiving && !is_saving && is_new {
            self.save_progress(core, now);
        }
    }

    /// Notes that the last record is stored, or could not be.
    pub(super) fn record_is_there(&mut self, is_kept: bool) {
        if is_kept {
            self.record.recorded = self.record.submitted.clone();
        }
    }
}

/// Store request for a peer's request; `None` if a name in it is refused.
fn store_request(request: &FilestoreRequest) -> Option<engine::FilestoreRequest> {
    use engine::FilestoreRequest as Store;
    let first = FileName::file(&request.first).ok()?;
    let second = || FileName::file(&request.second).ok();
    Some(match request.action {
        FilestoreAction::CreateFile => Store::CreateFile(first),
        FilestoreAction::DeleteFile => Store::DeleteFile(first),
        FilestoreAction::RenameFile => Store::RenameFile { from: first, to: second()? },
        FilestoreAction::AppendFile => Store::AppendFile { to: first, from: second()? },
        FilestoreAction::ReplaceFile => Store::ReplaceFile { to: first, from: second()? },
        FilestoreAction::CreateDirectory => Store::CreateDirectory(first),
        FilestoreAction::RemoveDirectory => Store::RemoveDirectory(first),
        FilestoreAction::DenyFile => Store::DenyFile(first),
        FilestoreAction::DenyDirectory => Store::DenyDirectory(first),
        FilestoreAction::Other(_) => return None,
    })
}

/// Status for the store's reason to refuse a request (§5.4.2).
fn failure(action: FilestoreAction, error: &EffectError) -> FilestoreStatus {
    let missing = *error == EffectError::NotFound;
    match action {
        FilestoreAction::CreateFile => FilestoreStatus::CREATE_FILE_NOT_ALLOWED,
        FilestoreAction::DeleteFile if missing => FilestoreStatus::DELETE_FILE_MISSING,
        FilestoreAction::DeleteFile => FilestoreStatus::DELETE_FILE_NOT_ALLOWED,
        FilestoreAction::RenameFile if missing => FilestoreStatus::RENAME_OLD_MISSING,
        FilestoreAction::RenameFile if *error == EffectError::Exists => {
            FilestoreStatus::RENAME_NEW_EXISTS
        }
        FilestoreAction::RenameFile => FilestoreStatus::RENAME_NOT_ALLOWED,
        FilestoreAction::AppendFile if missing => FilestoreStatus::APPEND_FIRST_MISSING,
        FilestoreAction::AppendFile => FilestoreStatus::APPEND_NOT_ALLOWED,
        FilestoreAction::ReplaceFile if missing => FilestoreStatus::REPLACE_FIRST_MISSING,
        FilestoreAction::ReplaceFile => FilestoreStatus::REPLACE_NOT_ALLOWED,
        FilestoreAction::CreateDirectory => FilestoreStatus::CREATE_DIRECTORY_NOT_POSSIBLE,
        FilestoreAction::RemoveDirectory if missing => FilestoreStatus::REMOVE_DIRECTORY_MISSING,
        FilestoreAction::RemoveDirectory => FilestoreStatus::REMOVE_DIRECTORY_NOT_ALLOWED,
        FilestoreAction::DenyFile => FilestoreStatus::DENY_FILE_NOT_ALLOWED,
        FilestoreAction::DenyDirectory => FilestoreStatus::DENY_DIRECTORY_NOT_ALLOWED,
        FilestoreAction::Other(_) => FilestoreStatus::NOT_PERFORMED,
    }
}
