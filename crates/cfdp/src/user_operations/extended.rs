//! Waypoints of the extended procedures: class 3 (unreliable) and class 4 (reliable) of issues 1
//! to 4 (profile `extended-b3`).
//!
//! **Medium confidence.** The book removed these procedures, and no implementation to verify
//! against was found. Only the fields are certain: all PDUs of a transaction keep its id and its
//! final destination on every hop, and Finished distinguishes the end system from a waypoint.
//!
//! * Class 3: unacknowledged PDUs are forwarded one by one. A transaction arrives on one path and
//!   leaves on another; other PDUs are dropped, which ends every loop.
//! * Class 4: the waypoint receives the whole file like an acknowledged receiver, with its own
//!   NAKs and retransmissions. It has custody, and sends Finished as a waypoint. It then sends the
//!   file to the next entity under the same identifier. The Finished of the end system is returned
//!   hop by hop; a source that sends another EOF gets it again. Only version-000 PDUs can
//!   distinguish the two kinds of Finished, so only those are relayed.

use std::collections::{BTreeMap, VecDeque};

use engine::{IndexRequest, PathId, Time};
use session::path::Handle;
use session::{Credit, Turns as _};

use super::{OperationIndication, Received, custody};
use crate::closed::Over;
use crate::core::{Base, Job, reverse};
use crate::finished::Outcome;
use crate::indication::TransactionFinished;
use crate::pdu::{
    Body, ConditionCode, Direction, EntityId, Header, Metadata, Pdu, TransactionId,
    TransmissionMode, Version,
};
use crate::request::PutRequest;
use crate::restore::described_put;
use crate::sender::Sender;
use crate::{Entity, Transaction, journal};

/// Transactions relayed by the extended procedures.
#[derive(Debug, Default)]
pub(super) struct Relays {
    /// Class 3: origin and destination paths of transactions.
    flows: BTreeMap<TransactionId, Flow>,
    order: VecDeque<TransactionId>,
    /// Class 4: sending halves of relayed transactions.
    forwards: BTreeMap<TransactionId, Forward>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    from: PathId,
    to: PathId,
}

#[derive(Clone, Copy, Debug)]
struct Forward {
    handle: Handle,
    /// Header of PDUs towards the source.
    back: Header,
    /// Path to the previous entity, if known.
    from: Option<PathId>,
}

impl Relays {
    pub(super) fn forwards(&self, id: TransactionId) -> bool {
        self.forwards.contains_key(&id)
    }

    /// Records a class 3 transaction. If there are too many, the oldest is forgotten.
    fn flow(&mut self, id: TransactionId, flow: Flow, max: usize) -> Flow {
        if let Some(known) = self.flows.get(&id) {
            return *known;
        }
        while self.order.len() >= max.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.flows.remove(&oldest);
        }
        self.order.push_back(id);
        self.flows.insert(id, flow);
        flow
    }
}

impl Entity {
    /// Processes a PDU for another entity. Returns `false` if it is not relayed.
    pub(crate) fn relay(
        &mut self,
        now: Time,
        from: PathId,
        pdu: &Pdu<'_>,
        datagram: &[u8],
    ) -> bool {
        let header = &pdu.header;
        let own = EntityId(self.core.config.entity);
        // Replies return to where a transaction was permitted before.
        let permitted = header.direction == Direction::TowardSender || self.may_relay(from);
        if header.source == own || header.destination == own || !permitted {
            return false;
        }
        match (header.mode, header.version) {
            (TransmissionMode::Unacknowledged, _) => self.relay_class_3(from, header, datagram),
            (TransmissionMode::Acknowledged, Version::V0) => {
                self.relay_class_4(now, from, pdu, datagram);
                true
            }
            (TransmissionMode::Acknowledged, Version::V1) => false,
        }
    }

    /// Whether PDUs of the neighbour on a path may be relayed.
    fn may_relay(&self, from: PathId) -> bool {
        let config = &self.core.config;
        let mut neighbours = config.remotes.values().filter(|remote| remote.path == Some(from));
        neighbours.any(|remote| remote.permissions.relay) || config.default_remote.permissions.relay
    }

    fn relay_class_3(&mut self, from: PathId, header: &Header, datagram: &[u8]) -> bool {
        let id = header.transaction();
        let max = self.core.config.user_operations.flows;
        let way = match header.direction {
            Direction::TowardReceiver => {
                let next = self.core.config.user_operations.next_hop(header.destination.0);
                let Some(to) = self.core.config.remote(next).path else { return false };
                let flow = Flow { from, to };
                let known = self.core.operations.relays.flow(id, flow, max);
                (known.from == from && known.to != from).then_some(known.to)
            }
            Direction::TowardSender => {
                let known = self.core.operations.relays.flows.get(&id);
                known.filter(|flow| flow.to == from).map(|flow| flow.from)
            }
        };
        let Some(to) = way else { return false };
        self.reply(to, Some(datagram.to_vec()), &mut Credit::Unlimited);
        true
    }

    fn relay_class_4(&mut self, now: Time, from: PathId, pdu: &Pdu<'_>, datagram: &[u8]) {
        let id = pdu.header.transaction();
        if pdu.header.direction == Direction::TowardSender {
            match self.core.operations.relays.forwards.get(&id) {
                Some(forward) => self.deliver(now, from, forward.handle, pdu, datagram),
                None => self.answer_stranger(now, from, pdu),
            }
            return;
        }
        if let Some(handle) = self.by_id.get(&id).copied() {
            self.deliver(now, from, handle, pdu, datagram);
            return;
        }
        if let Body::Eof(eof) = pdu.body
            && eof.condition != ConditionCode::NoError
            && let Some(forward) = self.core.operations.relays.forwards.get(&id)
        {
            let handle = forward.handle;
            self.cancel_forward(now, handle, eof.condition);
        }
        let next = self.core.config.user_operations.next_hop(pdu.header.destination.0);
        let way = self.core.config.remote(next).path;
        let has_way = next != self.core.config.entity && way.is_some_and(|path| path != from);
        let known = self.core.operations.relays.forwards(id);
        let started = if has_way && !known { self.accept(now, from, pdu, datagram) } else { None };
        let Some(handle) = started else {
            self.answer_stranger(now, from, pdu);
            return;
        };
        if let Some(receiver) = self.slots.get_mut(handle) {
            receiver.base_mut().seat.set_path(&mut self.core.shared.paths, from);
        }
        self.deliver(now, from, handle, pdu, datagram);
    }

    fn cancel_forward(&mut self, now: Time, handle: Handle, condition: ConditionCode) {
        if let Some(Transaction::Sender(sender)) = self.slots.get_mut(handle) {
            sender.cancel(&mut self.core, now, condition);
        }
        self.settle(handle);
    }

    /// Sends a complete class 4 file to the next entity.
    pub(super) fn relay_received(&mut self, now: Time, received: &Received) {
        let id = received.id();
        let known = self.core.operations.relays.forwards(id);
        if received.finished.condition != ConditionCode::NoError || known {
            return;
        }
        let Ok(Pdu { header, body: Body::Metadata(described) }) = Pdu::decode(&received.metadata)
        else {
            return;
        };
        let source = received.has_file().then(|| custody::spool_name(id));
        let request = described_put(&header, &described, source, false);
        self.forward(now, &header, request, None);
    }

    /// Restores the sending half of a relayed transaction of an earlier run.
    pub(crate) fn restore_forward(
        &mut self,
        now: Time,
        header: &Header,
        described: &Metadata<'_>,
        request: PutRequest,
    ) -> bool {
        if self.core.operations.relays.forwards(header.transaction()) {
            return false;
        }
        self.forward(now, header, request, Some(described.file_size));
        true
    }

    fn forward(&mut self, now: Time, header: &Header, request: PutRequest, restored: Option<u64>) {
        let id = header.transaction();
        let next = self.core.config.user_operations.next_hop(header.destination.0);
        let remote = self.core.config.remote(next).clone();
        let handle = self.slots.reserve();
        let base = Base::new(handle, *header, next, remote);
        let mut sender = match restored {
            Some(size) => Sender::restored(base, request, Some(size)),
            None => Sender::new(base, request, None),
        };
        let receiver = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        let from = receiver.and_then(|receiver| receiver.base().seat.path);
        let forward = Forward { handle, back: reverse(header), from };
        self.core.operations.relays.forwards.insert(id, forward);
        sender.start(&mut self.core, now);
        self.core.shared.senders += 1;
        self.core.shared.paths.take_seat(handle, sender.base.seat.path);
        self.slots.fill(handle, Transaction::Sender(Box::new(sender)));
        self.settle(handle);
    }

    /// Notifies the source that a relayed transaction has ended at the end system.
    pub(super) fn relay_sent(&mut self, finished: &TransactionFinished) {
        let id = finished.id;
        let Some(forward) = self.core.operations.relays.forwards.remove(&id) else { return };
        self.core.release(id);
        self.core
            .indicate_operation(OperationIndication::Relayed { id, condition: finished.condition });
        // Finished PDU of the end system, shortened to fit the path.
        let pdu = Outcome::reported(finished).encode(&forward.back, true, usize::MAX);
        if let Some(from) = forward.from {
            self.reply(from, Some(pdu.clone()), &mut Credit::Unlimited);
        }
        // A source that has not received the Finished PDU repeats its request, and gets the PDU
        // from here.
        let order = self.core.operations.owed.remove(&id);
        let telling = self.by_id.get(&id).copied();
        let subject = match telling.and_then(|handle| self.slots.get_mut(handle)) {
            Some(Transaction::Receiver(receiver)) => {
                receiver.set_finished_pdu(pdu.clone());
                receiver.subject()
            }
            Some(Transaction::Sender(_)) | None => {
                let before = self.closed.get(id);
                let since = before.map_or(Time::ZERO, |over| over.since);
                let subject = before.map(|over| over.subject).unwrap_or_default();
                self.remember(id, Over { pdu: pdu.clone(), subject, since });
                subject
            }
        };
        if let Some(order) = order.filter(|_| self.core.config.journal.enabled) {
            let value = journal::encode_finished(order, &pdu, &subject);
            let key = journal::receiver_key(id);
            self.core.shared.index(Handle::NOBODY, Job::Forget, IndexRequest::Put { key, value });
        }
    }
}
