//! An application and its node in one engine.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{
    Completion, Deadline, Effect, EffectResult, Engine, FileId, FileName, FilestoreRequest, Input,
    OpenMode, Ticket, Time, Transmit, TxBuf,
};

use crate::agent::{self, Agent, DeliveryId, RequestError};
use crate::app::{
    Application, ArrivalId, CHANGED, Delivery, Event, NodeFacts, Order, Outgoing, OutgoingId, Piece,
};
use crate::codec::bp7::{BundleFlags, BundleId, Status, StatusReport};
use crate::codec::file_part::crc_append;
use crate::effects::Effects;
use crate::layer::Content;
use crate::node::Node;

/// Indication of a hosted application or its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication<I> {
    /// Indication of the application.
    Application(I),
    /// Indication of the node, other than a delivery to the application.
    Node(agent::Indication),
}

/// Owner of an effect.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Application,
    Node,
    /// Reading a delivery.
    Reading(ArrivalId),
    /// Copying the payload of a bundle.
    Copying(OutgoingId),
    /// No continuation.
    Nobody,
}

/// A bundle that the node has.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: OutgoingId,
    is_reported: bool,
}

/// An unconfirmed delivery.
#[derive(Debug)]
struct Held {
    bundle: BundleId,
    content: Content,
    /// File with the payload, once open, and the offset of the next read.
    open: Option<FileId>,
    at: u64,
}

/// A payload that is being copied, because part of it is in a file of the application.
#[derive(Debug)]
struct Copying {
    outgoing: Box<Outgoing>,
    source: Option<FileId>,
    into: Into,
    /// Bytes of the excerpt so far, with their checksum.
    bytes: u64,
    crc: u32,
}

/// Destination of a copied payload.
#[derive(Debug)]
enum Into {
    Memory(BytesMut),
    File { name: FileName, file: Option<FileId>, is_syncing: bool },
}

/// An application and its node in one engine, for a driver with all paths and one store.
#[derive(Debug)]
pub struct Hosted<A> {
    application: A,
    node: Node,
    is_up: bool,
    sent: BTreeMap<BundleId, Sent>,
    copying: BTreeMap<OutgoingId, Copying>,
    /// Bundles for which the agent has no room, in order.
    waiting: VecDeque<Box<Outgoing>>,
    held: BTreeMap<ArrivalId, Held>,
    /// Deliveries for which the application has no room.
    offered: VecDeque<ArrivalId>,
    effects: Effects<Owner>,
    indications: VecDeque<agent::Indication>,
}

impl<A: Application> Hosted<A> {
    /// An application of `node`, which must be new.
    #[must_use]
    pub fn new(application: A, mut node: Node) -> Self {
        if let Some(endpoint) = application.endpoint() {
            // A node with another number only forwards.
            let register = |agent: &mut Agent| agent.register(&endpoint);
            let _ = node.with_agent(Time::ZERO, register);
        }
        let mut hosted = Self {
            application,
            node,
            is_up: false,
            sent: BTreeMap::new(),
            copying: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: BTreeMap::new(),
            offered: VecDeque::new(),
            effects: Effects::default(),
            indications: VecDeque::new(),
        };
        hosted.exchange(Time::ZERO);
        hosted
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &A {
        &self.application
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Calls the application with a request.
    pub fn with_application<T>(&mut self, now: Time, request: impl FnOnce(&mut A) -> T) -> T {
        let result = request(&mut self.application);
        self.exchange(now);
        result
    }

    /// Calls the node with a request.
    pub fn with_node<T>(&mut self, now: Time, request: impl FnOnce(&mut Node) -> T) -> T {
        let result = request(&mut self.node);
        self.exchange(now);
        result
    }

    /// Exchanges orders and events between the two until there are none left.
    fn exchange(&mut self, now: Time) {
        loop {
            let mut some = false;
            if !self.is_up && self.node.agent().is_ready() {
                self.is_up = true;
                let facts = NodeFacts { memory_of: None, follows: true };
                self.application.handle_event(now, Event::Up(facts));
            }
            while let Some(indication) = self.node.poll_indication() {
                some = true;
                self.on_indication(now, indication);
            }
            while self.application.takes_more()
                && let Some(arrival) = self.offered.pop_front()
            {
                some = true;
                self.deliver(now, arrival);
            }
            while let Some(order) = self.application.poll_order() {
                some = true;
                self.on_order(now, order);
            }
            some |= self.retry(now);
            if !some {
                return;
            }
        }
    }

    fn on_indication(&mut self, now: Time, indication: agent::Indication) {
        match indication {
            agent::Indication::Delivered { delivery, id, payload, endpoint, .. }
                if self.application.endpoint() == Some(endpoint.clone()) =>
            {
                let arrival = ArrivalId(delivery.0);
                let held = Held { bundle: id, content: payload, open: None, at: 0 };
                self.held.insert(arrival, held);
                self.offered.push_back(arrival);
                return;
            }
            agent::Indication::Stored { ref id } => {
                if let Some(sent) = self.sent.get(id) {
                    self.application.handle_event(now, Event::Stored(sent.id));
                }
            }
            agent::Indication::Forwarded { ref id, .. }
            | agent::Indication::CustodyTaken { ref id, .. } => {
                if let Some(sent) = self.sent.get(id).copied() {
                    if !sent.is_reported {
                        self.sent.remove(id);
                    }
                    self.application.handle_event(now, Event::Forwarded(sent.id));
                }
            }
            agent::Indication::Deleted { ref id, .. } => {
                if let Some(sent) = self.sent.remove(id) {
                    self.application.handle_event(now, Event::Deleted(sent.id));
                }
                self.expire(now, id);
            }
            agent::Indication::Report { ref report, .. } => self.on_report(now, report),
            agent::Indication::Delivered { .. }
            | agent::Indication::SignalIgnored { .. }
            | agent::Indication::Discarded { .. }
            | agent::Indication::Up { .. }
            | agent::Indication::Down { .. }
            | agent::Indication::LimitReached(_)
            | agent::Indication::Notice { .. }
            | agent::Indication::StoreFailed(_) => {}
        }
        self.indications.push_back(indication);
    }

    fn on_report(&mut self, now: Time, report: &StatusReport) {
        let StatusReport { source, creation, .. } = report;
        let bundle = BundleId { source: source.clone(), creation: *creation, offset: None };
        let event = if report.deleted != Status::NotAsserted {
            Event::Deleted
        } else if report.delivered != Status::NotAsserted {
            Event::Delivered
        } else {
            return;
        };
        if let Some(sent) = self.sent.remove(&bundle) {
            self.application.handle_event(now, event(sent.id));
        }
    }

    fn on_order(&mut self, now: Time, order: Order) {
        match order {
            Order::Send(outgoing) => self.send(now, outgoing),
            Order::Read(arrival) => self.read(now, arrival),
            Order::Confirm(arrival) => {
                self.drop_arrival(arrival);
                let delivery = DeliveryId(arrival.0);
                // The bundle may have expired.
                let confirm = |agent: &mut Agent| agent.confirm(now, delivery);
                let _ = self.node.with_agent(now, confirm);
            }
            Order::Leave(arrival) => self.drop_arrival(arrival),
            Order::Forget(id) => self.forget(id),
        }
    }

    fn forget(&mut self, id: OutgoingId) {
        self.sent.retain(|_, sent| sent.id != id);
        if let Some(copying) = self.copying.remove(&id) {
            self.drop_copy(copying);
        }
        if let Some(at) = self.waiting.iter().position(|outgoing| outgoing.id == id)
            && let Some(outgoing) = self.waiting.remove(at)
        {
            self.discard(&outgoing);
        }
    }

    // Deliveries.

    fn deliver(&mut self, now: Time, arrival: ArrivalId) {
        let Some(held) = self.held.get_mut(&arrival) else { return };
        let first = match &held.content {
            Content::Bytes(bytes) => Piece { bytes: bytes.clone(), is_last: true },
            Content::File { .. } => Piece::default(),
        };
        let delivery = Delivery {
            arrival,
            bundle: held.bundle.to_string(),
            source: held.bundle.source.clone(),
            len: held.content.len(),
            first,
        };
        self.application.handle_event(now, Event::Came(delivery));
    }

    fn drop_arrival(&mut self, arrival: ArrivalId) {
        if let Some(held) = self.held.remove(&arrival) {
            self.effects.close(held.open);
        }
    }

    fn expire(&mut self, now: Time, bundle: &BundleId) {
        let found = self.held.iter().find(|(_, held)| held.bundle == *bundle);
        let Some(arrival) = found.map(|(arrival, _)| *arrival) else { return };
        self.drop_arrival(arrival);
        match self.offered.iter().position(|offered| *offered == arrival) {
            Some(at) => drop(self.offered.remove(at)),
            None => self.application.handle_event(now, Event::Expired(arrival)),
        }
    }

    fn read(&mut self, now: Time, arrival: ArrivalId) {
        let Some(held) = self.held.get(&arrival) else { return };
        match (&held.content, held.open) {
            (Content::Bytes(_), _) => {
                let piece = Piece { bytes: Bytes::new(), is_last: true };
                self.application.handle_event(now, Event::Read { arrival, piece });
            }
            (Content::File { name, .. }, None) => {
                let name = name.clone();
                self.effects.open(Owner::Reading(arrival), name, OpenMode::Read);
            }
            (Content::File { offset, len, .. }, Some(file)) => {
                let (offset, left) = (offset + held.at, len - held.at);
                self.effects.read(Owner::Reading(arrival), file, offset, left);
            }
        }
    }

    fn on_read(&mut self, now: Time, arrival: ArrivalId, result: EffectResult) {
        let Some(held) = self.held.get_mut(&arrival) else {
            return self.effects.close_orphan(&result);
        };
        match result {
            Ok(Completion::Opened { file, .. }) => {
                held.open = Some(file);
                self.read(now, arrival);
            }
            Ok(Completion::Read(bytes)) if !bytes.is_empty() => {
                held.at += bytes.len() as u64;
                let is_last = held.at == held.content.len();
                let piece = Piece { bytes, is_last };
                self.application.handle_event(now, Event::Read { arrival, piece });
            }
            // The bundle stays in the node until it expires.
            Ok(_) | Err(_) => {
                self.drop_arrival(arrival);
                self.application.handle_event(now, Event::Expired(arrival));
            }
        }
    }

    // Bundles to send.

    fn send(&mut self, now: Time, outgoing: Box<Outgoing>) {
        let id = outgoing.id;
        let Some(excerpt) = &outgoing.excerpt else { return self.submit(now, outgoing) };
        let (file, crc) = (excerpt.file.clone(), excerpt.crc_before);
        let inline = self.node.agent().config().limits.inline as u64;
        let into = if outgoing.payload_len() <= inline {
            Into::Memory(match &outgoing.request.payload {
                Content::Bytes(head) => BytesMut::from(&head[..]),
                Content::File { .. } => BytesMut::new(),
            })
        } else {
            let working = |agent: &mut Agent| agent.working_file();
            let name = self.node.with_agent(now, working);
            Into::File { name, file: None, is_syncing: false }
        };
        self.copying.insert(id, Copying { outgoing, source: None, into, bytes: 0, crc });
        self.effects.open(Owner::Copying(id), file, OpenMode::Read);
    }

    fn on_copied(&mut self, now: Time, id: OutgoingId, result: EffectResult) {
        let Some(copying) = self.copying.get_mut(&id) else {
            return self.effects.close_orphan(&result);
        };
        match result {
            Ok(Completion::Opened { file, .. }) if copying.source.is_none() => {
                copying.source = Some(file);
                match &copying.into {
                    Into::Memory(_) => self.copy(now, id),
                    Into::File { name, .. } => {
                        let name = name.clone();
                        self.effects.open(Owner::Copying(id), name, OpenMode::Truncate);
                    }
                }
            }
            Ok(Completion::Opened { file: opened, .. }) => {
                if let (Into::File { file, .. }, Content::Bytes(head)) =
                    (&mut copying.into, &copying.outgoing.request.payload)
                {
                    *file = Some(opened);
                    self.effects.write(Owner::Copying(id), opened, 0, head.clone());
                }
            }
            Ok(Completion::Read(bytes)) => self.append(now, id, bytes),
            Ok(_) => match copying.into {
                Into::File { is_syncing: true, .. } => self.copied(now, id),
                Into::File { .. } | Into::Memory(_) => self.copy(now, id),
            },
            Err(error) => self.on_copy_failure(now, id, error.to_string()),
        }
    }

    /// Reads the next bytes of an excerpt, or ends.
    fn copy(&mut self, now: Time, id: OutgoingId) {
        let Some(copying) = self.copying.get_mut(&id) else { return };
        let (Some(excerpt), Some(file)) = (&copying.outgoing.excerpt, copying.source) else {
            return;
        };
        if copying.bytes < excerpt.len {
            let (offset, left) = (excerpt.offset + copying.bytes, excerpt.len - copying.bytes);
            return self.effects.read(Owner::Copying(id), file, offset, left);
        }
        if copying.crc != excerpt.crc_after {
            return self.on_copy_failure(now, id, CHANGED.to_owned());
        }
        match &mut copying.into {
            Into::Memory(_) => self.copied(now, id),
            Into::File { file: Some(file), is_syncing, .. } => {
                *is_syncing = true;
                self.effects.sync(Owner::Copying(id), *file);
            }
            Into::File { file: None, .. } => {}
        }
    }

    fn append(&mut self, now: Time, id: OutgoingId, bytes: Bytes) {
        let Some(copying) = self.copying.get_mut(&id) else { return };
        if bytes.is_empty() {
            return self.on_copy_failure(now, id, CHANGED.to_owned());
        }
        let offset = copying.outgoing.request.payload.len() + copying.bytes;
        copying.crc = crc_append(copying.crc, &bytes);
        copying.bytes += bytes.len() as u64;
        let passed = Event::Passed { id, bytes: copying.bytes };
        match &mut copying.into {
            Into::Memory(buffer) => {
                buffer.extend_from_slice(&bytes);
                self.copy(now, id);
            }
            Into::File { file: Some(file), .. } => {
                self.effects.write(Owner::Copying(id), *file, offset, bytes);
            }
            Into::File { file: None, .. } => {}
        }
        self.application.handle_event(now, passed);
    }

    fn copied(&mut self, now: Time, id: OutgoingId) {
        let Some(copying) = self.copying.remove(&id) else { return };
        self.effects.close(copying.source);
        let mut outgoing = copying.outgoing;
        let len = outgoing.payload_len();
        outgoing.excerpt = None;
        match copying.into {
            Into::Memory(buffer) => outgoing.request.payload = Content::Bytes(buffer.freeze()),
            Into::File { name, file, .. } => {
                self.effects.close(file);
                outgoing.request.payload = Content::File { name, offset: 0, len };
                outgoing.request.owns_file = true;
            }
        }
        self.submit(now, outgoing);
    }

    fn on_copy_failure(&mut self, now: Time, id: OutgoingId, why: String) {
        if let Some(copying) = self.copying.remove(&id) {
            self.drop_copy(copying);
            self.application.handle_event(now, Event::Refused { id, why });
        }
    }

    fn drop_copy(&mut self, copying: Copying) {
        self.effects.close(copying.source);
        if let Into::File { name, file, .. } = copying.into {
            self.effects.close(file);
            self.remove(name);
        }
    }

    fn remove(&mut self, name: FileName) {
        self.effects.filestore(Owner::Nobody, FilestoreRequest::DenyFile(name));
    }

    /// Passes a bundle to the agent.
    fn submit(&mut self, now: Time, outgoing: Box<Outgoing>) {
        if !self.waiting.is_empty() {
            return self.waiting.push_back(outgoing);
        }
        if let Some(outgoing) = self.try_to_submit(now, outgoing) {
            let (id, why) = (outgoing.id, RequestError::Full.to_string());
            self.waiting.push_back(outgoing);
            self.application.handle_event(now, Event::Waiting { id, why });
        }
    }

    /// Passes a bundle to the agent; returns it if there is no room.
    fn try_to_submit(&mut self, now: Time, outgoing: Box<Outgoing>) -> Option<Box<Outgoing>> {
        let Outgoing { id, request, .. } = &*outgoing;
        let is_reported = request.flags.contains(BundleFlags::REPORT_DELIVERY);
        let earlier = request.key.and_then(|key| self.node.agent().sent_for(key));
        if let Some(bundle) = earlier {
            self.discard(&outgoing);
            let id = outgoing.id;
            self.application.handle_event(now, Event::Stored(id));
            if self.node.agent().holds(&bundle) {
                self.sent.insert(bundle, Sent { id, is_reported });
            } else {
                // It has left since, and no report on it comes to this run.
                let event = if is_reported { Event::Delivered } else { Event::Forwarded };
                self.application.handle_event(now, event(id));
            }
            return None;
        }
        let (id, copy) = (*id, request.clone());
        match self.node.with_agent(now, |agent: &mut Agent| agent.send(now, copy)) {
            Ok(bundle) => {
                self.sent.insert(bundle, Sent { id, is_reported });
                None
            }
            Err(RequestError::Full | RequestError::NotReady) => Some(outgoing),
            Err(error) => {
                self.discard(&outgoing);
                self.application.handle_event(now, Event::Refused { id, why: error.to_string() });
                None
            }
        }
    }

    /// Removes the working file of a bundle that the agent does not get.
    fn discard(&mut self, outgoing: &Outgoing) {
        if let Content::File { name, .. } = &outgoing.request.payload
            && outgoing.request.owns_file
        {
            self.remove(name.clone());
        }
    }

    /// Passes waiting bundles to the agent, in order; returns whether one was accepted.
    fn retry(&mut self, now: Time) -> bool {
        let mut some = false;
        while let Some(first) = self.waiting.front()
            && self.node.agent().takes(first.request.payload.len())
            && let Some(outgoing) = self.waiting.pop_front()
        {
            if let Some(outgoing) = self.try_to_submit(now, outgoing) {
                self.waiting.push_front(outgoing);
                return some;
            }
            some = true;
        }
        some
    }

    fn on_done(&mut self, now: Time, ticket: Ticket, result: EffectResult) {
        match self.effects.take_renumbered(ticket) {
            Some((Owner::Application, theirs)) => {
                self.application.handle_input(now, Input::Done(theirs, result));
            }
            Some((Owner::Node, theirs)) => {
                self.node.handle_input(now, Input::Done(theirs, result));
            }
            Some((Owner::Reading(arrival), _)) => self.on_read(now, arrival, result),
            Some((Owner::Copying(id), _)) => self.on_copied(now, id, result),
            Some((Owner::Nobody, _)) | None => self.effects.close_orphan(&result),
        }
    }
}

impl<A: Application> Engine for Hosted<A> {
    type Indication = Indication<A::Indication>;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, result) => self.on_done(now, ticket, result),
            Input::Path(..) | Input::Receive(_) => self.node.handle_input(now, input),
        }
        self.exchange(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        // The node may report what the application would no longer wait for.
        self.node.handle_timeout(now);
        self.exchange(now);
        self.application.handle_timeout(now);
        self.exchange(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.node.poll_transmit(now, tx);
        self.exchange(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.poll() {
            return Some(effect);
        }
        if let Some(effect) = self.application.poll_effect() {
            return Some(self.effects.renumbered(Owner::Application, effect));
        }
        let effect = self.node.poll_effect()?;
        Some(self.effects.renumbered(Owner::Node, effect))
    }

    fn poll_indication(&mut self) -> Option<Self::Indication> {
        let own = self.application.poll_indication().map(Indication::Application);
        own.or_else(|| self.indications.pop_front().map(Indication::Node))
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let both = [self.node.poll_timeout(), self.application.poll_timeout()];
        both.into_iter().flatten().min_by_key(|deadline| deadline.at)
    }
}
