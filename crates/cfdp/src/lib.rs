//! CCSDS File Delivery Protocol, classes 1 and 2 (CCSDS 727.0-B-5, and the PDUs of issues 1 to 4).
//!
//! An [`Entity`] sends and receives files in any number of concurrent transactions. It is an
//! [`engine::Engine`]: it holds no socket, file or clock.
//!
//! Received data is written to a working file, verified, synced and renamed in one step; only then
//! is the sender notified that the file was retained. The progress of receptions and all puts
//! under way are recorded, so both sides resume after a restart.
//!
//! # States
//!
//! A sender opens its file, sends Metadata, data and EOF, and replies to NAKs until Finished
//! arrives, which it acknowledges; it then remembers the transaction for repeated Finished PDUs.
//! Without acknowledgment (class 1) it ends with the EOF, or with Finished if closure is
//! requested.
//!
//! A receiver collects data in any order. When the EOF has arrived it requests what is missing.
//! When nothing is missing it verifies the checksum, syncs the file, records the outcome, renames
//! the file, carries out filestore requests, and sends Finished until it is acknowledged. Either
//! side suspends, resumes, reports and cancels. Timers stop while the path or its return is down.
//!
//! # Driving it
//!
//! `examples/cfdp_lossy_link.rs` has a driver of 15 lines: pass datagrams and path events to
//! [`handle_input`](engine::Engine::handle_input), then poll effects, indications and datagrams
//! until there are none, then wait for the earlier of
//! [`poll_timeout`](engine::Engine::poll_timeout) and the next datagram. [`Entity::put`] starts a
//! transaction, whose end is [`Indication::TransactionFinished`].
//!
//! # What it bounds
//!
//! [`Limits`] bounds transactions, unwritten data, requests for missing data and replies to
//! strangers; reaching one is an [`Indication`]. A file is never held in memory.

#![forbid(unsafe_code)]

mod closed;
mod config;
mod core;
mod finished;
mod indication;
mod input;
mod journal;
mod keeping;
pub mod pdu;
mod profile;
mod receiver;
mod request;
mod restore;
mod sender;
mod stats;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;
#[cfg(test)]
mod tests;
mod user_operations;
mod width;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use engine::{Deadline, Effect, Engine, IndexRequest, Input, PathId, Rng, Time, Transmit, TxBuf};
use session::path::{Burst, Class, Clock, Handle, Turn};
use session::recent::Recent;
use session::{Reason, Seat, Slots, Turns};

/// The contract with a driver.
pub use engine;

pub use self::config::user_operations::{Access, Permissions, UserOperations};
pub use self::config::{
    Config, Faults, HostDelays, Indications, JournalPolicy, Limits, NakMode, Naks, Remote, Timer,
};
pub use self::indication::user_operations::{OperationIndication, Refusal, SfoReported};
pub use self::indication::{
    Indication, Limit, MetadataParts, MetadataReceived, NoRoom, PeerError, Report, Role, State,
    TransactionFinished,
};
pub use self::journal::RECORD_PREFIX;
pub use self::keeping::{Keeping, Part};
pub use self::profile::profile;
pub use self::receiver::SPOOL_PREFIX;
pub use self::request::{
    FilestoreRequest, FilestoreResponse, PutRequest, RequestError, SegmentMetadata,
};
pub use self::stats::{PduCounts, Stats};
pub use self::user_operations::{ProxyPutRequest, SfoPutRequest, TraceControl};

use self::closed::{Closed, Over};
use self::core::{Alarm, Base, Core, Job, Shared, Task};
use self::receiver::Receiver;
use self::sender::Sender;
use crate::pdu::{
    ConditionCode, Direction, EntityId, Header, Pdu, PromptResponse, TransactionId, Width,
};

/// Number of sequence numbers reserved at a time, so that few records are written.
const SEQUENCE_BLOCK: u64 = 64;

/// A CFDP entity.
#[derive(Debug)]
pub struct Entity {
    core: Core,
    slots: Slots<Transaction>,
    by_id: BTreeMap<TransactionId, Handle>,
    /// Transaction of the last PDU, because the next PDU probably belongs to it too.
    last: Option<(TransactionId, Handle)>,
    closed: Closed,
    /// Metadata PDUs of receptions that gave way before their data arrived.
    staged: Recent<TransactionId, Vec<u8>>,
    /// Time from which a lost file is indicated again.
    lost_from: Time,
    sequence: u64,
    /// Sequence numbers below this one were requested to be reserved.
    sequence_reserved: u64,
    /// Sequence numbers below this one are reserved on disk, so that no restart reuses them.
    sequence_safe: u64,
    /// Puts that start once their sequence number is reserved.
    unsafe_puts: Vec<Handle>,
    /// Other entities whose PDUs arrived here.
    misdirected: Vec<u64>,
    /// Time from which another PDU that cannot be decoded is indicated.
    undecodable_from: Time,
    loaded: bool,
}

#[derive(Debug)]
enum Transaction {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

impl Transaction {
    fn base(&self) -> &Base {
        match self {
            Self::Sender(sender) => &sender.base,
            Self::Receiver(receiver) => &receiver.base,
        }
    }

    fn base_mut(&mut self) -> &mut Base {
        match self {
            Self::Sender(sender) => &mut sender.base,
            Self::Receiver(receiver) => &mut receiver.base,
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Sender(_) => Role::Sender,
            Self::Receiver(_) => Role::Receiver,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_done(),
            Self::Receiver(receiver) => receiver.is_done(),
        }
    }

    fn report(&self) -> Report {
        match self {
            Self::Sender(sender) => sender.report(),
            Self::Receiver(receiver) => receiver.report(),
        }
    }

    /// Starts or stops the timers with the path's clock, and sends pending PDUs.
    fn follow(&mut self, core: &mut Core, now: Time) {
        let clock = core.shared.paths.clock(self.base().seat.path);
        if clock == Clock::Running {
            self.rearm(core, now);
            return;
        }
        match self {
            Self::Sender(sender) => sender.base.freeze(&mut core.shared, now, Reason::Path),
            Self::Receiver(receiver) => receiver.freeze(core, now),
        }
        if clock == Clock::Sending {
            self.want_all(core);
        }
    }

    fn rearm(&mut self, core: &mut Core, now: Time) {
        match self {
            Self::Sender(sender) => sender.rearm(core, now),
            Self::Receiver(receiver) => receiver.rearm(core, now),
        }
    }

    fn want_all(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.want_all(core),
            Self::Receiver(receiver) => receiver.want_all(core),
        }
    }
}

impl Entity {
    /// Creates an entity with these settings. With a journal it first requests the records of an
    /// earlier run, and resumes their transactions.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let first = rng.below(config.sequence_width.max_value().min(1 << 62)).max(1);
        let sequence = config.first_sequence.unwrap_or(first);
        let mut core = Core::new(config);
        let loaded = !core.config.journal.enabled;
        if !loaded {
            let load = IndexRequest::Load { prefix: RECORD_PREFIX.to_owned() };
            core.shared.index(Handle::NOBODY, Job::Own(Task::Load), load);
        }
        let closed = Closed::new(core.config.limits.finished);
        Self {
            core,
            slots: Slots::new(),
            by_id: BTreeMap::new(),
            last: None,
            closed,
            staged: Recent::new(),
            lost_from: Time::ZERO,
            sequence,
            sequence_reserved: sequence,
            sequence_safe: sequence,
            unsafe_puts: Vec::new(),
            misdirected: Vec::new(),
            undecodable_from: Time::ZERO,
            loaded,
        }
    }

    /// Settings of the entity.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters since the entity's start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Whether the records of an earlier run were read.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.loaded
    }

    /// Transactions under way, in order of their identifiers.
    pub fn transactions(&self) -> impl Iterator<Item = Report> + '_ {
        self.by_id.values().filter_map(|handle| self.slots.get(*handle)).map(Transaction::report)
    }

    /// Address of the peer of a transaction under way, if it is known.
    #[must_use]
    pub fn peer_address(&self, id: TransactionId) -> Option<SocketAddr> {
        let transaction = self.slots.get(*self.by_id.get(&id)?)?;
        self.core.shared.paths.get(&transaction.base().seat.path?)?.peer()
    }

    /// Sends a file, messages or filestore requests to another entity (§3.4.1).
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, RequestError> {
        self.put_by(now, request, None)
    }

    /// Starts a put on a given path, which is used if none is configured for the destination.
    pub fn put_by(
        &mut self,
        now: Time,
        request: PutRequest,
        origin: Option<PathId>,
    ) -> Result<TransactionId, RequestError> {
        if !self.loaded {
            return Err(RequestError::NotReady);
        }
        if request.destination == self.core.config.entity {
            return Err(RequestError::Conflict("an entity sends nothing to itself"));
        }
        if let Some(id) = self.resumable(&request).filter(|_| request.resume) {
            return Ok(id);
        }
        if self.by_id.len() >= self.core.config.limits.transactions {
            return Err(RequestError::TooManyTransactions);
        }
        let remote = self.core.config.remote(request.destination).clone();
        let way = remote.path.or(origin);
        if way.is_none() && self.core.shared.paths.len() > 1 {
            return Err(RequestError::NoPath(request.destination));
        }
        request.check(&remote)?;
        let header = self.new_header(&request, &remote)?;
        let id = header.transaction();
        let handle = self.slots.reserve();
        let mut base = Base::new(handle, header, request.destination, remote);
        base.seat.path = way.or_else(|| self.core.shared.only_path());
        let mut sender = Sender::new(base, request, None);
        self.core.user.indicate(Indication::Transaction(id));
        if self.is_safe(id.sequence) {
            sender.start(&mut self.core, now);
        } else {
            self.unsafe_puts.push(handle);
        }
        self.fill(handle, id, Transaction::Sender(Box::new(sender)));
        self.settle(handle);
        Ok(id)
    }

    fn resumable(&self, request: &PutRequest) -> Option<TransactionId> {
        let mut handles = self.by_id.iter();
        let found = handles.find(|(_, handle)| match self.slots.get(**handle) {
            Some(Transaction::Sender(sender)) => sender.resumes(request),
            Some(Transaction::Receiver(_)) | None => false,
        });
        found.map(|(id, _)| *id)
    }

    fn new_header(
        &mut self,
        request: &PutRequest,
        remote: &Remote,
    ) -> Result<Header, RequestError> {
        let entity = self.core.config.entity;
        let fitting = Width::fitting(entity.max(request.destination));
        let entity_width = remote.entity_width.unwrap_or(fitting);
        if entity.max(request.destination) > entity_width.max_value() {
            return Err(RequestError::Width("an entity number"));
        }
        Ok(Header {
            version: remote.version,
            direction: Direction::TowardReceiver,
            mode: request.mode.unwrap_or(remote.mode),
            crc: remote.crc,
            large_file: false,
            segmentation_control: request.segmentation_control,
            entity_width,
            sequence_width: self.core.config.sequence_width,
            source: EntityId(entity),
            sequence: self.next_sequence().ok_or(RequestError::NoSequenceNumber)?,
            destination: EntityId(request.destination),
        })
    }

    /// Next sequence number that is not used by any transaction under way.
    fn next_sequence(&mut self) -> Option<u64> {
        let max = self.core.config.sequence_width.max_value();
        let source = EntityId(self.core.config.entity);
        let after = |sequence: u64| if sequence >= max { 0 } else { sequence + 1 };
        let first = self.sequence.min(max);
        let candidates = std::iter::successors(Some(first), |sequence| {
            Some(after(*sequence)).filter(|next| *next != first)
        });
        let is_free = |sequence: &u64| {
            !self.by_id.contains_key(&TransactionId { source, sequence: *sequence })
        };
        // There is one more candidate than transactions under way, so one is free.
        let sequence = candidates.take(self.by_id.len() + 1).find(is_free)?;
        self.sequence = after(sequence);
        self.reserve_sequences();
        Some(sequence)
    }

    /// Reserves sequence numbers, so that a restart does not reuse them. They are reserved well
    /// before they are needed, because nothing is sent under an unreserved number.
    fn reserve_sequences(&mut self) {
        if !self.core.config.journal.enabled {
            return;
        }
        let block = self.sequence.saturating_add(SEQUENCE_BLOCK);
        let wrapped = self.sequence_reserved > block;
        if self.sequence.saturating_add(SEQUENCE_BLOCK / 2) >= self.sequence_reserved || wrapped {
            self.sequence_reserved = block;
            let value = journal::encode_sequence(block);
            let key = journal::SEQUENCE_KEY.to_owned();
            self.core.shared.index(
                Handle::NOBODY,
                Job::Own(Task::Sequence(block)),
                IndexRequest::Put { key, value },
            );
        }
    }

    fn is_safe(&self, sequence: u64) -> bool {
        sequence < self.sequence_safe || self.sequence_safe == self.sequence_reserved
    }

    /// Notes that sequence numbers below `safe` were reserved, or cannot be.
    fn sequences_reserved(&mut self, now: Time, safe: u64) {
        self.sequence_safe = safe;
        if safe != self.sequence_reserved {
            // Reservations of more numbers were requested since; their result is pending.
            return;
        }
        let waiting = std::mem::take(&mut self.unsafe_puts);
        for handle in waiting {
            let Some(Transaction::Sender(sender)) = self.slots.get_mut(handle) else { continue };
            sender.start(&mut self.core, now);
            self.settle(handle);
        }
    }

    /// Cancels a transaction and notifies the peer (§4.11).
    ///
    /// # Errors
    /// No such transaction is under way, or its outcome is already decided.
    pub fn cancel(&mut self, now: Time, id: TransactionId) -> Result<(), RequestError> {
        let result = self.with(id, |core, transaction| {
            let condition = ConditionCode::CancelRequestReceived;
            let open = match transaction {
                Transaction::Sender(sender) => sender.is_open(),
                Transaction::Receiver(receiver) => receiver.is_open(),
            };
            if !open {
                return Err(RequestError::NotApplicable("how it ends is settled already"));
            }
            match transaction {
                Transaction::Sender(sender) => sender.cancel(core, now, condition),
                Transaction::Receiver(receiver) => receiver.cancel(core, now, condition),
            }
            Ok(())
        });
        self.serve(now);
        result
    }

    /// Suspends a transaction until it is resumed; the peer is not notified.
    ///
    /// # Errors
    /// No such transaction is under way.
    pub fn suspend(&mut self, now: Time, id: TransactionId) -> Result<(), RequestError> {
        self.with(id, |core, transaction| {
            let condition = ConditionCode::SuspendRequestReceived;
            match transaction {
                Transaction::Sender(sender) => sender.suspend(core, now, condition),
                Transaction::Receiver(receiver) => receiver.suspend(core, now, condition),
            }
            Ok(())
        })
    }

    /// Resumes a suspended transaction.
    ///
    /// # Errors
    /// No such transaction is under way.
    pub fn resume(&mut self, now: Time, id: TransactionId) -> Result<(), RequestError> {
        self.with(id, |core, transaction| {
            match transaction {
                Transaction::Sender(sender) => sender.resume(core, now),
                Transaction::Receiver(receiver) => receiver.resume(core, now),
            }
            Ok(())
        })
    }

    /// Requests an [`Indication::Report`].
    ///
    /// # Errors
    /// No such transaction is under way.
    pub fn report(&mut self, _now: Time, id: TransactionId) -> Result<(), RequestError> {
        self.with(id, |core, transaction| {
            core.user.indicate(Indication::Report(transaction.report()));
            Ok(())
        })
    }

    /// Prompts the receiver of a file for a NAK or a Keep Alive (§4.6.5).
    ///
    /// # Errors
    /// No such transaction is under way, or it is not an acknowledged put.
    pub fn prompt(
        &mut self,
        _now: Time,
        id: TransactionId,
        response: PromptResponse,
    ) -> Result<(), RequestError> {
        self.with(id, |core, transaction| match transaction {
            Transaction::Sender(sender) => sender.prompt(core, response),
            Transaction::Receiver(_) => {
                Err(RequestError::NotApplicable("only the sender of a file prompts"))
            }
        })
    }

    fn with(
        &mut self,
        id: TransactionId,
        act: impl FnOnce(&mut Core, &mut Transaction) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let missing = RequestError::NoTransaction(id);
        let handle = *self.by_id.get(&id).ok_or(missing.clone())?;
        let transaction = self.slots.get_mut(handle).ok_or(missing)?;
        let result = act(&mut self.core, transaction);
        self.settle(handle);
        result
    }

    fn fill(&mut self, handle: Handle, id: TransactionId, transaction: Transaction) {
        self.core.shared.senders += usize::from(transaction.role() == Role::Sender);
        let path = transaction.base().seat.path;
        self.core.shared.paths.take_seat(handle, path);
        self.slots.fill(handle, transaction);
        self.by_id.insert(id, handle);
    }

    /// Remembers the outcome of a reception. If there are too many, the oldest is forgotten.
    fn remember(&mut self, id: TransactionId, over: Over) {
        for forgotten in self.closed.insert(id, over) {
            if self.core.config.journal.enabled {
                let key = journal::receiver_key(forgotten);
                self.core.shared.index(Handle::NOBODY, Job::Forget, IndexRequest::Remove { key });
            }
        }
    }
}

impl Turns for Entity {
    type Alarm = Alarm;
    type Job = Task;

    fn shared(&mut self) -> &mut Shared {
        &mut self.core.shared
    }

    fn seat(&mut self, handle: Handle) -> Option<&mut Seat> {
        self.slots.get_mut(handle).map(|transaction| &mut transaction.base_mut().seat)
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        let Core { shared, stats, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |bytes| {
            if let Ok(pdu) = Pdu::decode(bytes) {
                stats.sent.count(&pdu.body);
            }
        });
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        match self.slots.get_mut(handle) {
            Some(Transaction::Sender(sender)) => sender.emit(&mut self.core, class, burst),
            Some(Transaction::Receiver(receiver)) => receiver.emit(&mut self.core, burst),
            None => Turn::Over,
        }
    }

    fn settle(&mut self, handle: Handle) {
        if self.slots.get(handle).is_some_and(Transaction::is_done) {
            let Some(mut transaction) = self.slots.take(handle) else { return };
            self.core.shared.senders -= usize::from(transaction.role() == Role::Sender);
            let id = transaction.base().id();
            // The two halves of a relayed transaction have the same identifier.
            if self.by_id.get(&id) == Some(&handle) {
                self.by_id.remove(&id);
            }
            self.last = None;
            self.core.operations.gone(transaction.role(), id);
            // One that made room for another leaves the limit reached.
            if self.by_id.len() * 2 <= self.core.config.limits.transactions {
                self.core.user.limit_left(Limit::Transactions);
            }
            transaction.base_mut().disarm_all(&mut self.core);
            self.core.shared.places.leave(handle);
            if let Transaction::Receiver(mut receiver) = transaction
                && !receiver.is_displaced()
            {
                let (subject, since) = (receiver.subject(), receiver.base.last_received);
                let pdu = receiver.take_finished_pdu();
                self.remember(receiver.base.id(), Over { pdu, subject, since });
            }
        }
        if std::mem::take(&mut self.core.shared.flush_wanted) {
            for transaction in self.slots.iter_mut() {
                if let Transaction::Receiver(receiver) = transaction {
                    receiver.flush(&mut self.core);
                }
            }
        }
    }

    fn after_turn(&mut self, now: Time) {
        self.serve(now);
    }
}

impl Engine for Entity {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                for datagram in receive.datagrams() {
                    self.receive(now, receive.from, datagram);
                }
            }
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, answer) => self.effect_done(now, ticket, answer),
        }
        self.serve(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((handle, alarm)) = self.core.shared.timers.pop_due(now) {
            let Some(transaction) = self.slots.get_mut(handle) else { continue };
            transaction.base_mut().disarm(&mut self.core, alarm);
            match transaction {
                Transaction::Sender(sender) => sender.alarm(&mut self.core, now, alarm),
                Transaction::Receiver(receiver) => receiver.alarm(&mut self.core, now, alarm),
            }
            self.settle(handle);
        }
        self.serve(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.take_turns(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.shared.next_effect()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.core.user.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.core.shared.timers.next()
    }
}
