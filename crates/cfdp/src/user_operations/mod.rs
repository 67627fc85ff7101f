//! User operations in messages to user (CCSDS 727.0-B-5 §6), the store-and-forward overlay, and
//! the extended procedures of issues 1 to 4.
//!
//! A request is part of the Metadata of an ordinary transaction. Once that has finished at the
//! receiving entity, the request is carried out; the response is sent in a separate transaction.
//! The record of an acknowledged reception keeps its request until the response was delivered, so
//! a restart in between carries it out again: at least once.
//!
//! | operation | section | [permission](crate::Permissions) |
//! |---|---|---|
//! | proxy put, response, cancel | §6.2 | `proxy_put` |
//! | directory listing | §6.3 | `directory_listing` |
//! | remote status report | §6.4 | `status_report` |
//! | remote suspend, remote resume | §6.5, §6.6 | `suspend` |
//! | store-and-forward overlay | §6.7, bit layout not verified | `store_and_forward` |
//! | class 3 and class 4 (`extended-b3`) | issues 1 to 4, not verified | `relay` |

mod custody;
mod extended;
mod files;
mod message;
mod proxy;
mod remote;
mod request;
mod sfo;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{FileName, IndexRequest, PathId, Time};
use session::Credit;
use session::path::Handle;

pub use self::request::{ProxyPutRequest, SfoPutRequest};
pub use crate::pdu::TraceControl;

use self::custody::Custody;
use self::extended::Relays;
use self::files::FileJob;
use self::sfo::Hop;
use super::config::user_operations::Access;
use super::core::{Base, Core, Job};
use super::finished::Outcome;
use super::indication::user_operations::{OperationIndication, Refusal, SfoReported};
use super::indication::{Indication, Role, TransactionFinished};
use super::request::{PutRequest, RequestError};
use super::{Entity, Transaction, journal};
use crate::pdu::{
    Body, ConditionCode, DeliveryCode, EntityId, FileStatus, Header, Pdu, Tlv, TransactionId,
    TransmissionMode, UserOperation, UserRequest,
};

/// Services of an entity for others.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    notices: VecDeque<Notice>,
    /// Puts made for others, until they end.
    puts: BTreeMap<TransactionId, Purpose>,
    /// Puts that wait because too many transactions are under way.
    deferred: VecDeque<(PutRequest, Purpose)>,
    /// Files being written to be sent.
    jobs: BTreeMap<u64, FileJob>,
    job: u64,
    /// Files stored for forwarding, and storage reserved for those that arrive.
    custody: BTreeMap<TransactionId, Custody>,
    /// Receptions whose record keeps a request, with their order numbers.
    owed: BTreeMap<TransactionId, u64>,
    /// Whether a put is being started whose identifier is not known yet.
    submitting: bool,
    relays: Relays,
}

/// Event that requires an action.
#[derive(Debug)]
enum Notice {
    Received(Box<Received>),
    Sent(Box<TransactionFinished>),
    /// A put ended without an indication.
    Gone(TransactionId),
}

/// Finished reception.
#[derive(Debug)]
struct Received {
    finished: TransactionFinished,
    header: Header,
    /// Metadata PDU; only kept for relayed transactions.
    metadata: Vec<u8>,
    /// Path to the entity from which the transaction came.
    path: Option<PathId>,
    /// Bytes that may be sent in response.
    credit: Credit,
    /// Whether an earlier run of this entity received it.
    restored: bool,
}

impl Received {
    fn id(&self) -> TransactionId {
        self.finished.id
    }

    fn has_file(&self) -> bool {
        !self.finished.destination_name.is_empty()
    }

    fn asker(&self) -> Asker {
        let (entity, mode) = (self.finished.peer.0, self.header.mode);
        Asker { original: self.id(), entity, mode, path: self.path, credit: self.credit }
    }
}

/// Origin of a request: entity, transaction, and mode of the response.
#[derive(Clone, Copy, Debug)]
struct Asker {
    original: TransactionId,
    entity: u64,
    mode: TransmissionMode,
    /// Path of the request, for an entity without a configured path.
    path: Option<PathId>,
    /// Bytes that may be sent in response before the requester acknowledges any.
    credit: Credit,
}

/// Purpose of a put.
#[derive(Debug)]
enum Purpose {
    /// Requested by another entity.
    Proxy(Asker),
    /// Response to a request; the file it carries is deleted afterwards.
    Answer { asker: Asker, spool: Option<FileName> },
    /// Forwarding of a file.
    Hop(Box<Hop>),
    /// Notification only.
    Note,
}

impl Purpose {
    /// Path of the put's request, if the destination is the requester.
    fn origin(&self, destination: u64) -> Option<PathId> {
        match self {
            Self::Proxy(asker) | Self::Answer { asker, .. } => {
                asker.path.filter(|_| asker.entity == destination)
            }
            Self::Hop(_) | Self::Note => None,
        }
    }
}

impl Core {
    /// Processes the end of a reception.
    pub(crate) fn received(
        &mut self,
        base: &mut Base,
        finished: &TransactionFinished,
        metadata: &[u8],
    ) {
        let relayed = self.is_relayed(&base.header);
        if !relayed && !message::has_operation(&finished.messages) {
            return;
        }
        self.take_custody(base.id(), finished.condition == ConditionCode::NoError);
        let received = Received {
            finished: finished.clone(),
            header: base.header,
            metadata: if relayed { metadata.to_vec() } else { Vec::new() },
            path: base.seat.path,
            credit: base.credit.share(),
            restored: false,
        };
        self.operations.notices.push_back(Notice::Received(Box::new(received)));
    }

    /// Processes the end of a put.
    pub(crate) fn sent(&mut self, finished: &TransactionFinished) {
        let operations = &mut self.operations;
        if operations.submitting
            || operations.puts.contains_key(&finished.id)
            || operations.relays.forwards(finished.id)
        {
            operations.notices.push_back(Notice::Sent(Box::new(finished.clone())));
        }
    }

    /// Whether the record of a reception must keep its request; `order` is the reception's order
    /// number.
    pub(crate) fn owes(
        &mut self,
        base: &Base,
        condition: ConditionCode,
        messages: &[Bytes],
        order: u64,
    ) -> bool {
        let asks = || message::first_request(&message::operations(messages)).is_some();
        let owes = condition == ConditionCode::NoError && (self.is_relayed(&base.header) || asks());
        if owes {
            self.operations.owed.insert(base.id(), order);
        }
        owes
    }

    pub(crate) fn is_relayed(&self, header: &Header) -> bool {
        header.destination.0 != self.config.entity
    }

    fn indicate_operation(&mut self, indication: OperationIndication) {
        self.user.indicate(Indication::UserOperation(indication));
    }

    fn refuse(&mut self, asker: Asker, reason: Refusal) {
        let (from, id) = (EntityId(asker.entity), asker.original);
        self.indicate_operation(OperationIndication::Refused { from, id, reason });
    }
}

impl Operations {
    fn is_idle(&self) -> bool {
        self.notices.is_empty() && self.deferred.is_empty()
    }

    /// Processes a forgotten transaction.
    pub(crate) fn gone(&mut self, role: Role, id: TransactionId) {
        match role {
            Role::Receiver => self.reception_over(id),
            Role::Sender => {
                let is_reported = self
                    .notices
                    .iter()
                    .any(|notice| matches!(notice, Notice::Sent(sent) if sent.id == id));
                let watched = self.puts.contains_key(&id) || self.relays.forwards(id);
                if watched && !is_reported {
                    self.notices.push_back(Notice::Gone(id));
                }
            }
        }
    }

    fn in_hand(&self) -> usize {
        self.puts.len() + self.deferred.len() + self.jobs.len()
    }
}

impl Entity {
    /// Carries out the actions required by finished receptions and puts.
    #[inline]
    pub(super) fn serve(&mut self, now: Time) {
        if !self.core.operations.is_idle() {
            self.serve_notices(now);
        }
    }

    fn serve_notices(&mut self, now: Time) {
        while let Some(notice) = self.core.operations.notices.pop_front() {
            match notice {
                Notice::Received(received) if self.core.is_relayed(&received.header) => {
                    self.relay_received(now, &received);
                }
                Notice::Received(received) => self.dispatch(now, &received),
                Notice::Sent(finished) if finished.id.source.0 != self.core.config.entity => {
                    self.relay_sent(&finished);
                }
                Notice::Sent(finished) => self.put_ended(now, &finished),
                Notice::Gone(id) if id.source.0 != self.core.config.entity => {
                    self.relay_sent(&abandoned(id));
                }
                Notice::Gone(id) => self.put_ended(now, &abandoned(id)),
            }
        }
        let limit = self.core.config.limits.transactions;
        while self.by_id.len() < limit
            && let Some((request, purpose)) = self.core.operations.deferred.pop_front()
        {
            if let Err((purpose, _)) = self.submit(now, request, purpose) {
                self.purpose_ended(now, purpose, &abandoned(self.nobodys_id()));
            }
        }
    }

    fn nobodys_id(&self) -> TransactionId {
        TransactionId { source: EntityId(self.core.config.entity), sequence: 0 }
    }

    /// Carries out the first operation requested by a reception, or indicates a response.
    fn dispatch(&mut self, now: Time, received: &Received) {
        let operations = message::operations(&received.finished.messages);
        match message::first_request(&operations) {
            Some(_) if received.restored && self.take_up(received) => {}
            Some(request) if received.finished.condition == ConditionCode::NoError => {
                self.carry_out(now, received, request, &operations);
            }
            Some(_) => {}
            None => self.answered(received, &operations),
        }
    }

    fn carry_out(
        &mut self,
        now: Time,
        received: &Received,
        request: UserRequest<'_>,
        all: &[UserOperation<'_>],
    ) {
        let asker = received.asker();
        let full = self.core.operations.in_hand() >= self.core.config.user_operations.pending;
        if full && !matches!(request, UserRequest::Sfo(_)) {
            self.core.refuse(asker, Refusal::Full);
            self.discharge(asker.original);
            return;
        }
        match request {
            UserRequest::Sfo(request) => self.sfo_arrived(now, received, &request, all),
            UserRequest::ProxyPut(put) => self.proxy_requested(now, asker, &put, all),
            UserRequest::ProxyPutCancel => self.proxy_cancelled(now, asker, all),
            UserRequest::DirectoryListing { directory, file } => {
                self.listing_requested(now, asker, directory, file);
            }
            UserRequest::RemoteStatusReport { transaction, file } => {
                self.status_requested(now, asker, transaction, file);
            }
            UserRequest::RemoteSuspend(transaction) => {
                self.suspend_requested(now, asker, transaction, true);
            }
            UserRequest::RemoteResume(transaction) => {
                self.suspend_requested(now, asker, transaction, false);
            }
        }
    }

    /// After a restart, finds the put that already serves a request of an earlier run.
    fn take_up(&mut self, received: &Received) -> bool {
        let original = received.id();
        let spools = [files::spool_name(original), custody::spool_name(original)];
        let mut found = None;
        for (id, handle) in &self.by_id {
            let Some(Transaction::Sender(sender)) = self.slots.get(*handle) else { continue };
            let request = sender.request();
            let operations = message::operations(&request.messages);
            let linked = message::originating(&operations) == Some(original)
                || request.source.as_ref().is_some_and(|source| spools.contains(source));
            if linked && !self.core.operations.puts.contains_key(id) {
                found = Some((*id, request.clone()));
                break;
            }
        }
        let Some((id, request)) = found else { return false };
        let purpose = self.purpose_of(received, request);
        self.core.operations.puts.insert(id, purpose);
        true
    }

    /// Purpose of a put of an earlier run.
    fn purpose_of(&self, received: &Received, request: PutRequest) -> Purpose {
        let asker = received.asker();
        let operations = message::operations(&received.finished.messages);
        match message::first_request(&operations) {
            Some(UserRequest::Sfo(sfo)) => {
                Purpose::Hop(Box::new(Hop::new(asker.original, request.destination, &sfo)))
            }
            Some(UserRequest::ProxyPut(_)) if !is_response(&request.messages) => {
                Purpose::Proxy(asker)
            }
            Some(_) | None => Purpose::Answer { asker, spool: request.source },
        }
    }

    /// Starts a put for others. Returns the purpose if that fails.
    fn submit(
        &mut self,
        now: Time,
        request: PutRequest,
        purpose: Purpose,
    ) -> Result<Option<TransactionId>, (Purpose, Refusal)> {
        // Files stored for forwarding have a limit of their own.
        let stored =
            matches!(&purpose, Purpose::Hop(hop) if self.core.operations.holds(hop.original));
        let in_hand = self.core.operations.in_hand();
        if in_hand >= self.core.config.user_operations.pending && !stored {
            return Err((purpose, Refusal::Full));
        }
        if self.by_id.len() >= self.core.config.limits.transactions {
            self.core.operations.deferred.push_back((request, purpose));
            return Ok(None);
        }
        let origin = purpose.origin(request.destination);
        self.core.operations.submitting = true;
        let started = self.put_by(now, request, origin);
        self.core.operations.submitting = false;
        match started {
            Ok(id) => {
                if let Purpose::Answer { asker, .. } = &purpose
                    && let Some(handle) = self.by_id.get(&id)
                    && let Some(put) = self.slots.get_mut(*handle)
                {
                    put.base_mut().credit = asker.credit;
                }
                self.core.operations.puts.insert(id, purpose);
                Ok(Some(id))
            }
            Err(error) => {
                let lost = matches!(error, RequestError::NoPath(_));
                Err((purpose, if lost { Refusal::NoRoute } else { Refusal::Impossible }))
            }
        }
    }

    /// Sends a response of messages alone, in the mode of the request.
    fn answer(&mut self, now: Time, asker: Asker, messages: Vec<Bytes>) {
        let request = PutRequest {
            destination: asker.entity,
            mode: Some(asker.mode),
            messages,
            ..PutRequest::default()
        };
        let purpose = Purpose::Answer { asker, spool: None };
        if let Err((_, reason)) = self.submit(now, request, purpose) {
            self.core.refuse(asker, reason);
            self.discharge(asker.original);
        }
    }

    fn put_ended(&mut self, now: Time, finished: &TransactionFinished) {
        if let Some(purpose) = self.core.operations.puts.remove(&finished.id) {
            self.purpose_ended(now, purpose, finished);
        }
    }

    fn purpose_ended(&mut self, now: Time, purpose: Purpose, finished: &TransactionFinished) {
        match purpose {
            Purpose::Proxy(asker) => self.proxy_ended(now, asker, finished),
            Purpose::Answer { asker, spool } => {
                self.discharge(asker.original);
                if let Some(spool) = spool {
                    self.core.delete(spool);
                }
            }
            Purpose::Hop(hop) => self.hop_ended(now, &hop, finished),
            Purpose::Note => {}
        }
    }

    /// Removes the request of a reception from its record, once it was served.
    fn discharge(&mut self, id: TransactionId) {
        let Some(order) = self.core.operations.owed.remove(&id) else { return };
        let telling = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        let (pdu, subject) = match telling {
            Some(Transaction::Receiver(receiver)) => (receiver.finished_pdu(), receiver.subject()),
            Some(Transaction::Sender(_)) | None => match self.closed.get(id) {
                Some(over) => (&over.pdu[..], over.subject),
                None => return,
            },
        };
        if pdu.is_empty() || !self.core.config.journal.enabled {
            return;
        }
        let value = journal::encode_finished(order, pdu, &subject);
        let key = journal::receiver_key(id);
        self.core.shared.index(Handle::NOBODY, Job::Forget, IndexRequest::Put { key, value });
    }

    /// Restores a request that an earlier run received and did not serve.
    pub(super) fn restore_owed(&mut self, order: u64, finished: &[u8], metadata: &[u8]) {
        let Some(received) = read_owed(finished, metadata) else { return };
        let id = received.id();
        self.core.operations.owed.insert(id, order);
        let operations = message::operations(&received.finished.messages);
        let entity = self.core.config.entity;
        let handed_on = self.core.is_relayed(&received.header)
            || message::sfo_request(&operations).is_some_and(|r| r.destination.value != entity);
        if handed_on && received.has_file() {
            self.core.take_custody_again(id, received.finished.size);
        }
        self.core.operations.notices.push_back(Notice::Received(Box::new(received)));
    }

    /// Checks a name of a user before it is sent to another entity.
    fn check_name(name: &str) -> Result<(), RequestError> {
        FileName::file(name)
            .map(|_| ())
            .map_err(|error| RequestError::Name { name: name.to_owned(), error })
    }
}

/// Whether these messages are the response to a proxy put.
fn is_response(messages: &[Bytes]) -> bool {
    let mut operations = message::operations(messages).into_iter();
    operations.any(|operation| matches!(operation, UserOperation::ProxyPutResponse { .. }))
}

/// Result of a put if only its end is known.
fn abandoned(id: TransactionId) -> TransactionFinished {
    TransactionFinished {
        id,
        role: Role::Sender,
        peer: id.source,
        condition: ConditionCode::CancelRequestReceived,
        delivery: DeliveryCode::Incomplete,
        file_status: FileStatus::Unreported,
        source_name: String::new(),
        destination_name: String::new(),
        size: 0,
        messages: Vec::new(),
        filestore_responses: Vec::new(),
        fault_location: None,
    }
}

/// Decodes the request kept in a reception's record.
fn read_owed(finished: &[u8], metadata: &[u8]) -> Option<Received> {
    let Ok(Pdu { header, body: Body::Finished(end) }) = Pdu::decode(finished) else { return None };
    let described = Pdu::decode(metadata).ok()?;
    let Body::Metadata(described) = described.body else { return None };
    let outcome = Outcome::from_wire(&end);
    let messages = described.tlvs.iter().filter_map(|tlv| {
        if let Tlv::MessageToUser(text) = tlv { Some(Bytes::copy_from_slice(text.0)) } else { None }
    });
    let finished = TransactionFinished {
        id: header.transaction(),
        role: Role::Receiver,
        peer: header.source,
        condition: end.condition,
        delivery: end.delivery,
        file_status: end.file_status,
        source_name: described.source_name.to_str_lossy().into_owned(),
        destination_name: described.destination_name.to_str_lossy().into_owned(),
        size: described.file_size,
        messages: messages.collect(),
        filestore_responses: outcome.responses,
        fault_location: None,
    };
    Some(Received {
        finished,
        header,
        metadata: metadata.to_vec(),
        path: None,
        credit: Credit::Unlimited,
        restored: true,
    })
}
