//! CFDP over layers other than datagrams: the unitdata transfer (UT) layers of CCSDS 727.0-B-5
//! §4.1.
//!
//! A [`LayeredEntity`] is an [entity](::cfdp::Entity) on an engine below it. [`OverLtp`]
//! carries each PDU in a block of [LTP](::ltp); to its driver it is one engine, with the paths of
//! the engine below. [`OverService`] carries it in a bundle: it is an [application](bp::app) of a
//! bundle node, in one engine with it ([`OverBundles`]) or of another program's.
//!
//! * *The layer below is slow and reliable.* An entity makes a PDU only when fewer than
//!   [`Limits::window`] are in transit to its peer; PDUs are long; one that failed below is sent
//!   again.
//! * *Delivered data survive.* A PDU of class 1 is never retransmitted by its sender. It stays
//!   below (its block unclaimed, its bundle unconfirmed) until its content is in the store by the
//!   entity's records, or its transaction has ended. So does a PDU of class 2 in a bundle, because
//!   timeouts are hours there; in blocks, PDUs of class 2 are accepted at once. PDUs for which an
//!   entity has no room are delivered again.
//! * *Sent means delivered below.* A put of class 1 is reported as finished when all of its PDUs
//!   have been carried. If one was lost, it is reported as incomplete and cancelled.

#![forbid(unsafe_code)]

mod arrivals;
mod below;
mod config;
mod ltp;
mod service;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ::cfdp::pdu::{
    Body, ConditionCode, DeliveryCode, FileStatus, Header, Pdu, TransactionId, TransmissionMode,
};
use ::cfdp::{self, Entity, PutRequest, RequestError, Role, TransactionFinished};
use bytes::Bytes;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId,
    PathKind, Rng, Tickets, Time, Transmit, TxBuf,
};

pub use self::below::{Arrival, Below, Event, Note, Refused, Unit};
pub use self::config::{Config, Limits};
pub use self::ltp::{CFDP_SERVICE, Color, LtpConfig, LtpLayer, OverLtp};
pub use self::service::{
    BundlesConfig, CFDP_ENDPOINT, OverBundles, OverService, Receives, ServiceLayer,
};

use self::arrivals::Arrivals;

/// Entities silent for the longest time among which an idle one is searched.
const IDLE_AMONG: usize = 8;

/// Indications to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Indication of the entity.
    Cfdp(cfdp::Indication),
    /// A PDU of a transaction was lost after the last attempt.
    Lost {
        /// The transaction.
        id: TransactionId,
        /// Reason as text.
        why: &'static str,
    },
    /// The layer below reports something that concerns no PDU.
    Noted(Note),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// PDUs passed to the layer below, without retries.
    pub carried: u64,
    /// Retries.
    pub repeated: u64,
    /// PDUs lost.
    pub lost: u64,
    /// Arrivals that were no PDUs.
    pub malformed: u64,
    /// Arrivals refused because their entity exceeds the number of known ones.
    pub strangers: u64,
    /// Arrivals whose file could not be read.
    pub unread: u64,
    /// Ends of files refused because their beginnings did not arrive.
    pub ends_refused: u64,
    /// Arrivals accepted before their content was safe, because others waited behind them.
    pub unsafe_ends: u64,
}

/// Owner of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Entity,
    Below,
    /// Reading an arrival.
    Read(Arrival),
    /// No continuation.
    Nobody,
}

/// Another entity.
#[derive(Debug)]
struct Peer {
    path: PathId,
    is_up: bool,
    /// Whether the entity was notified that the window is full.
    is_blocked: bool,
    /// Order of the last arrival of an unconfigured entity.
    last: Option<u64>,
}

/// Entity on a layer below it.
pub struct LayeredEntity<B> {
    entity: Entity,
    below: B,
    config: Config,
    peers: BTreeMap<u64, Peer>,
    by_path: BTreeMap<PathId, u64>,
    next_path: u32,
    /// Unconfigured entities that sent, in the order of their last arrivals.
    strangers: BTreeSet<(u64, u64)>,
    next_arrival: u64,
    sending: Sending,
    arrivals: Arrivals,
    tickets: Tickets<Owner>,
    effects: VecDeque<Effect>,
    indications: VecDeque<Indication>,
    statistics: Statistics,
    tx: TxBuf,
}

/// A PDU in transit.
#[derive(Debug)]
struct Flight {
    to: u64,
    /// The PDU, while it may have to be sent again.
    pdu: Bytes,
    tries: u32,
    id: Option<TransactionId>,
    is_acknowledged: bool,
    /// Whether it ends a file of class 2, to which the receiver replies with all missing parts.
    is_end: bool,
}

/// PDUs in transit.
#[derive(Debug, Default)]
struct Sending {
    flights: BTreeMap<Unit, Flight>,
    /// PDUs to send again: refused by the layer below for lack of room, or failed.
    again: VecDeque<Flight>,
    /// Number for each entity, including those waiting.
    counts: BTreeMap<u64, usize>,
    /// Finished puts with PDUs in transit.
    ends: BTreeMap<TransactionId, TransactionFinished>,
    /// Whether the layer below may have room since the last refusal.
    is_room: bool,
}

impl Sending {
    fn under_way(&self) -> usize {
        self.flights.len() + self.again.len()
    }

    fn has(&self, id: TransactionId) -> bool {
        self.flights.values().chain(&self.again).any(|flight| flight.id == Some(id))
    }

    /// Forgets an entity without PDUs in transit.
    fn forget(&mut self, number: u64) {
        self.counts.remove(&number);
    }

    fn count(&self, to: u64) -> usize {
        self.counts.get(&to).copied().unwrap_or_default()
    }
}

impl<B: Below + std::fmt::Debug> std::fmt::Debug for LayeredEntity<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { entity, below, .. } = self;
        f.debug_struct("LayeredEntity")
            .field("entity", entity)
            .field("below", below)
            .finish_non_exhaustive()
    }
}

impl<B: Below> LayeredEntity<B> {
    /// Builds an entity on a layer. The entity's settings for paths, rates and copies of repairs
    /// are ignored.
    fn new(mut entity: cfdp::Config, config: Config, below: B, rng: Rng) -> Self {
        let mut peers = BTreeMap::new();
        for (number, path) in config.peers.iter().zip(0..) {
            let peer = Peer { path: PathId(path), is_up: false, is_blocked: false, last: None };
            peers.insert(*number, peer);
            let remote = entity.remote(*number).clone();
            entity.remotes.entry(*number).or_insert(remote);
        }
        let remotes = entity.remotes.iter_mut().map(|(number, remote)| (Some(*number), remote));
        for (number, remote) in remotes.chain([(None, &mut entity.default_remote)]) {
            remote.path = number.and_then(|number| peers.get(&number)).map(|peer| peer.path);
            remote.rate_bps = Some(0);
            remote.repair_copies = 1;
        }
        let by_path = peers.iter().map(|(number, peer)| (peer.path, *number)).collect();
        let next_path = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        let tx = TxBuf::with_limits(1, config.pdu_max);
        let mut layered = Self {
            entity: Entity::new(entity, rng),
            below,
            config,
            peers,
            by_path,
            next_path,
            strangers: BTreeSet::new(),
            next_arrival: 0,
            sending: Sending::default(),
            arrivals: Arrivals::default(),
            tickets: Tickets::new(),
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            statistics: Statistics::default(),
            tx,
        };
        for number in layered.config.peers.clone() {
            layered.below.meet(number);
        }
        layered.pump(Time::ZERO);
        layered
    }

    /// The entity.
    #[must_use]
    pub fn entity(&self) -> &Entity {
        &self.entity
    }

    /// The layer below.
    #[must_use]
    pub fn below(&self) -> &B {
        &self.below
    }

    pub(crate) fn below_mut(&mut self) -> &mut B {
        &mut self.below
    }

    /// Calls the layer below with a request.
    pub fn with_below<T>(&mut self, now: Time, request: impl FnOnce(&mut B) -> T) -> T {
        let result = request(&mut self.below);
        self.pump(now);
        result
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Number of PDUs in transit below, and of arrivals not accepted.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.sending.under_way() + self.arrivals.len()
    }

    /// Sends a file, messages or filestore requests to another entity, as [`Entity::put`] does.
    ///
    /// # Errors
    ///
    /// The request is invalid; nothing was started.
    pub fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, RequestError> {
        let number = request.destination;
        if !self.peers.contains_key(&number) && number != self.entity.config().entity {
            self.below.meet(number);
            self.pump(now);
        }
        let path = self.peers.get(&number).map(|peer| peer.path);
        let path = path.ok_or(RequestError::NoPath(number))?;
        self.with_entity(now, |entity| entity.put_by(now, request, Some(path)))
    }

    /// Ends a transaction early, as [`Entity::cancel`] does.
    ///
    /// # Errors
    ///
    /// There is no such transaction, or its result is already decided.
    pub fn cancel(&mut self, now: Time, id: TransactionId) -> Result<(), RequestError> {
        self.with_entity(now, |entity| entity.cancel(now, id))
    }

    /// Calls the entity with a request.
    pub fn with_entity<T>(&mut self, now: Time, request: impl FnOnce(&mut Entity) -> T) -> T {
        let result = request(&mut self.entity);
        self.pump(now);
        result
    }

    /// Exchanges events, effects and PDUs between the two until there are none left.
    fn pump(&mut self, now: Time) {
        loop {
            let mut some = self.pass_effects();
            while let Some(event) = self.below.poll_indication() {
                some = true;
                self.on_event(now, event);
            }
            some |= self.hand_up(now);
            some |= self.hand_down(now);
            while let Some(indication) = self.entity.poll_indication() {
                some = true;
                self.indicate(indication);
            }
            if !some {
                return;
            }
        }
    }

    fn pass_effects(&mut self) -> bool {
        let mut some = false;
        while let Some(effect) = self.entity.poll_effect() {
            some = true;
            match effect {
                // PDUs it cannot accept wait here.
                Effect::Path(PathEffect::PauseRead { .. }) => self.arrivals.is_paused = true,
                Effect::Path(PathEffect::ResumeRead { .. }) => self.arrivals.is_paused = false,
                // The layer below has the transfers with peers.
                Effect::Path(PathEffect::Retain { .. } | PathEffect::Release { .. }) => {}
                effect => self.ask(Owner::Entity, effect),
            }
        }
        while let Some(effect) = self.below.poll_effect() {
            some = true;
            self.ask(Owner::Below, effect);
        }
        some
    }

    fn ask(&mut self, owner: Owner, effect: Effect) {
        self.effects.push_back(self.tickets.renumbered(owner, effect));
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Up { entity, info } => {
                debug_assert!(matches!(info.kind, PathKind::Message { .. }), "it carries PDUs");
                let path = self.path_to(entity);
                let Some(peer) = self.peers.get_mut(&entity) else { return };
                peer.is_up = true;
                // A new report of the path clears the block.
                peer.is_blocked = false;
                self.entity.handle_input(now, Input::Path(path, PathEvent::Up(info)));
                self.look_at_window(now, entity);
            }
            Event::Down { entity } => {
                // A new peer is blocked from the start.
                self.path_to(entity);
                if let Some(peer) = self.peers.get_mut(&entity).filter(|peer| peer.is_up) {
                    peer.is_up = false;
                    let path = peer.path;
                    self.entity.handle_input(now, Input::Path(path, PathEvent::Down));
                }
            }
            Event::ReturnDown { entity } => {
                let path = self.path_to(entity);
                self.entity.handle_input(now, Input::Path(path, PathEvent::ReturnDown));
            }
            Event::ReturnUp { entity } => {
                let path = self.path_to(entity);
                self.entity.handle_input(now, Input::Path(path, PathEvent::ReturnUp));
            }
            Event::Came { arrival, from, content, leaves_file } => {
                if !self.peers.contains_key(&from) {
                    if !self.make_room_for_stranger(now) {
                        self.statistics.strangers += 1;
                        self.below.refuse(now, arrival);
                        return self.below.part(from);
                    }
                    self.path_to(from);
                    self.below.meet(from);
                }
                self.sends(from);
                self.arrivals.came(arrival, from, content, leaves_file);
            }
            Event::Gone { arrival } => self.arrivals.forget(arrival),
            Event::Delivered { unit } => self.delivered(now, unit),
            Event::Room => self.sending.is_room = true,
            Event::Noted(note) => self.indications.push_back(Indication::Noted(note)),
            Event::Failed { unit, is_final, why } => self.failed(now, unit, is_final, why),
        }
    }

    /// Notes that an entity sends.
    fn sends(&mut self, number: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if self.config.peers.contains(&number) {
            return;
        }
        let now = self.next_arrival;
        self.next_arrival += 1;
        if let Some(before) = peer.last.replace(now) {
            self.strangers.remove(&(before, number));
        }
        self.strangers.insert((now, number));
    }

    /// Returns whether one more unconfigured entity can be remembered. One without anything under
    /// way is forgotten for it; if there is none, the weakest reception gives way.
    fn make_room_for_stranger(&mut self, now: Time) -> bool {
        let Config { peers, limits, .. } = &self.config;
        if self.peers.len() < peers.len() + limits.strangers {
            return true;
        }
        let mut oldest = self.strangers.iter().take(IDLE_AMONG).map(|(_, number)| *number);
        let idle = oldest.find(|number| !self.is_busy(*number)).or_else(|| {
            let path = self.entity.displace_weakest(now)?;
            let number = self.by_path.get(&path).copied()?;
            (!self.config.peers.contains(&number) && !self.is_busy(number)).then_some(number)
        });
        let Some(number) = idle else { return false };
        self.forget(now, number);
        true
    }

    /// Whether anything of an entity is under way.
    fn is_busy(&self, number: u64) -> bool {
        let path = self.peers.get(&number).map(|peer| peer.path);
        self.sending.count(number) > 0
            || self.arrivals.are_from(number)
            || path.is_some_and(|path| self.entity.uses(path))
    }

    /// Forgets an unconfigured entity.
    fn forget(&mut self, now: Time, number: u64) {
        let Some(peer) = self.peers.remove(&number) else { return };
        if let Some(last) = peer.last {
            self.strangers.remove(&(last, number));
        }
        self.by_path.remove(&peer.path);
        self.sending.forget(number);
        self.entity.handle_input(now, Input::Path(peer.path, PathEvent::Down));
        self.below.part(number);
    }

    /// Learns the entities in the records of an earlier run, so that receptions from them resume.
    fn prepare_ways(&mut self, result: &Result<Completion, EffectError>) {
        let Ok(Completion::Records(records)) = result else { return };
        for number in Entity::sources(records).collect::<BTreeSet<_>>() {
            let path = self.path_to(number);
            self.entity.set_way(number, path);
            self.below.meet(number);
        }
    }

    /// Path to an entity, as the entity above sees it.
    fn path_to(&mut self, entity: u64) -> PathId {
        if let Some(peer) = self.peers.get(&entity) {
            return peer.path;
        }
        let path = PathId(self.next_path);
        self.next_path = self.next_path.wrapping_add(1);
        self.peers.insert(entity, Peer { path, is_up: false, is_blocked: false, last: None });
        self.by_path.insert(path, entity);
        path
    }

    /// Passes waiting PDUs and new ones of the entity to the layer below, as far as there is room;
    /// returns whether there were any.
    fn hand_down(&mut self, now: Time) -> bool {
        let mut some = self.hand_down_again(now);
        loop {
            self.tx.clear();
            let Some(transmit) = self.entity.poll_transmit(now, &mut self.tx) else { return some };
            some = true;
            let Some(to) = self.by_path.get(&transmit.path).copied() else { continue };
            let pdu = Bytes::copy_from_slice(self.tx.bytes());
            let header = Header::decode(&pdu).ok();
            let flight = Flight {
                to,
                pdu,
                tries: 0,
                id: header.map(|header| header.transaction()),
                is_acknowledged: header
                    .is_some_and(|header| header.mode == TransmissionMode::Acknowledged),
                is_end: false,
            };
            let flight = Flight { is_end: flight.is_acknowledged && is_end(&flight.pdu), ..flight };
            self.statistics.carried += 1;
            *self.sending.counts.entry(to).or_default() += 1;
            if let Some(flight) = self.carry(now, flight) {
                self.sending.again.push_back(flight);
            }
            self.look_at_window(now, to);
        }
    }

    fn hand_down_again(&mut self, now: Time) -> bool {
        if !std::mem::take(&mut self.sending.is_room) {
            return false;
        }
        let waiting = std::mem::take(&mut self.sending.again);
        let before = waiting.len();
        for flight in waiting {
            if let Some(flight) = self.carry(now, flight) {
                self.sending.again.push_back(flight);
            }
        }
        self.sending.again.len() < before
    }

    /// Passes a PDU to the layer below; returns it if there is no room.
    fn carry(&mut self, now: Time, mut flight: Flight) -> Option<Flight> {
        // The layer below may deliver it first: then all data in transit would be requested again.
        if flight.is_end && flight.id.is_some_and(|id| self.sending.has(id)) {
            return Some(flight);
        }
        match self.below.carry(now, flight.to, flight.pdu.clone()) {
            Ok(unit) => {
                if flight.tries > 0 {
                    self.statistics.repeated += 1;
                }
                flight.tries += 1;
                if !B::REPEATS {
                    flight.pdu = Bytes::new();
                }
                self.sending.flights.insert(unit, flight);
                None
            }
            Err(Refused::Later) => Some(flight),
            Err(Refused::Never(why)) => {
                self.lost(now, &flight, why);
                None
            }
        }
    }

    /// Handles a PDU that was delivered, or sent.
    fn delivered(&mut self, now: Time, unit: Unit) {
        let Some(flight) = self.sending.flights.remove(&unit) else { return };
        self.gone(now, &flight);
    }

    fn failed(&mut self, now: Time, unit: Unit, is_final: bool, why: &'static str) {
        let Some(flight) = self.sending.flights.remove(&unit) else { return };
        self.sending.is_room = true;
        if B::REPEATS && !is_final && flight.tries < self.config.attempts {
            self.sending.again.push_back(flight);
        } else {
            self.lost(now, &flight, why);
        }
    }

    /// Removes a PDU from those in transit.
    fn gone(&mut self, now: Time, flight: &Flight) {
        self.sending.is_room = true;
        let count = self.sending.counts.entry(flight.to).or_default();
        *count -= 1;
        if *count == 0 {
            self.sending.counts.remove(&flight.to);
        }
        self.look_at_window(now, flight.to);
        if let Some(id) = flight.id.filter(|id| !self.sending.has(*id))
            && let Some(finished) = self.sending.ends.remove(&id)
        {
            let indication = cfdp::Indication::TransactionFinished(finished);
            self.indications.push_back(Indication::Cfdp(indication));
        }
    }

    /// Handles a lost PDU. In class 2 the receiver requests it again; a put of class 1 has failed.
    fn lost(&mut self, now: Time, flight: &Flight, why: &'static str) {
        self.statistics.lost += 1;
        if let Some(id) = flight.id {
            self.indications.push_back(Indication::Lost { id, why });
            let is_ours = id.source.0 == self.entity.config().entity;
            if is_ours && !flight.is_acknowledged {
                if let Some(finished) = self.sending.ends.get_mut(&id) {
                    finished.condition = ConditionCode::CancelRequestReceived;
                    finished.delivery = DeliveryCode::Incomplete;
                } else {
                    // The transaction may already be over.
                    let _over = self.entity.cancel(now, id);
                }
            }
        }
        self.gone(now, flight);
    }

    /// Blocks or unblocks the entity's PDUs for a peer, by the window.
    fn look_at_window(&mut self, now: Time, to: u64) {
        let most = self.config.limits.window;
        let window = self.below.window(to).map_or(most, |fills| fills.min(most));
        let is_full = self.sending.count(to) >= window.max(1);
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.is_up) else { return };
        if peer.is_blocked == is_full {
            return;
        }
        peer.is_blocked = is_full;
        let event = if is_full { PathEvent::Blocked } else { PathEvent::Writable };
        let path = peer.path;
        self.entity.handle_input(now, Input::Path(path, event));
    }

    /// Reports an indication of the entity. Holds back Transaction-Finished of a complete
    /// but unconfirmed put until its PDUs are delivered below.
    fn indicate(&mut self, indication: cfdp::Indication) {
        match indication {
            cfdp::Indication::TransactionFinished(finished)
                if finished.role == Role::Sender
                    && finished.delivery == DeliveryCode::Complete
                    && finished.file_status == FileStatus::Unreported
                    && self.sending.has(finished.id) =>
            {
                self.sending.ends.insert(finished.id, finished);
            }
            indication => self.indications.push_back(Indication::Cfdp(indication)),
        }
    }
}

impl<B: Below> Engine for LayeredEntity<B> {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, result) => match self.tickets.take(ticket) {
                Some((Owner::Entity, theirs)) => {
                    self.prepare_ways(&result);
                    self.entity.handle_input(now, Input::Done(theirs, result));
                    self.arrivals.look_again();
                }
                Some((Owner::Below, theirs)) => {
                    self.below.handle_input(now, Input::Done(theirs, result));
                }
                Some((Owner::Read(arrival), _)) => self.read(now, arrival, result),
                Some((Owner::Nobody, _)) | None => self.close_orphan(&result),
            },
            Input::Path(..) | Input::Receive(_) => self.below.handle_input(now, input),
        }
        self.pump(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let due = |deadline: Option<Deadline>| deadline.is_some_and(|deadline| deadline.at <= now);
        if due(self.below.poll_timeout()) {
            self.below.handle_timeout(now);
        }
        if due(self.entity.poll_timeout()) {
            self.entity.handle_timeout(now);
            self.arrivals.look_again();
        }
        self.give_up_ends(now);
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.below.poll_transmit(now, tx);
        self.pump(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let end = self.arrivals.next_end().map(|at| Deadline { at, why: "missing beginning" });
        let all = [self.below.poll_timeout(), self.entity.poll_timeout(), end];
        all.into_iter().flatten().min_by_key(|deadline| deadline.at)
    }
}

/// Whether a PDU announces the end of a file.
fn is_end(pdu: &[u8]) -> bool {
    let decoded = Pdu::decode(pdu).map(|pdu| pdu.body);
    matches!(decoded, Ok(Body::Eof(eof)) if eof.condition == ConditionCode::NoError)
}
