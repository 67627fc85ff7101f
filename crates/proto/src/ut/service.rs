//! A service of a bundle node below an entity, where the node is another program's: a PDU is the payload of a bundle.
//!
//! The driver carries out [orders](Order) at the node's interface, and tells what came of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{Deadline, Effect, Engine, Input, PathInfo, PathKind, Rng, Time, Transmit, TxBuf};

use super::below::{Arrival, Below, Event, Refused, Unit};
use super::bundles::fit;
use super::{Config, LayeredEntity};
use crate::bp::layer::Content;
use crate::cfdp;

/// What is to be done at the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A bundle is to be sent. [`LayeredEntity::with_below`] then tells [`ServiceLayer::sent`] or
    /// [`ServiceLayer::not_sent`].
    Send {
        /// What it is called here.
        unit: Unit,
        /// The entity for which it is, whose node has its number.
        to: u64,
        /// Its payload.
        pdu: Bytes,
    },
    /// A bundle that was handed over is to be confirmed.
    Confirm(Arrival),
}

/// Bytes of what came and was not accepted, at most: what is beyond waits in the node.
const BYTES_MAX: usize = 16 << 20;

/// The same, counted in bundles: ends of files that came first wait for their beginnings.
const ARRIVALS_MAX: usize = 960;

/// Of how many transactions the sources are told again how they ended, when the entity begins anew: as many as the moment of a
/// crash can have kept from the node, for most of them know.
const FINISHED_RESENDS: usize = 4;

/// A bundle node elsewhere, as an entity uses it.
#[derive(Debug)]
pub struct ServiceLayer {
    pdu_max: usize,
    met: BTreeSet<u64>,
    is_up: bool,
    /// Units at the node, with their bytes.
    units: BTreeMap<Unit, usize>,
    /// What came and was not accepted, with its bytes and when it came.
    arrivals: BTreeMap<Arrival, (usize, Time)>,
    /// How long the node keeps what is not confirmed, at most.
    lifetime: Duration,
    bytes: usize,
    next: u64,
    orders: VecDeque<Order>,
    events: VecDeque<Event>,
}

/// An entity that is an application of a bundle node.
pub type OverService = LayeredEntity<ServiceLayer>;

impl LayeredEntity<ServiceLayer> {
    /// An entity whose node is reached by orders, and which has the entity's number. Timers that are left to the entity fit how
    /// long bundles live, as over a node of its own.
    #[must_use]
    pub fn over_service(
        mut entity: cfdp::Config,
        config: Config,
        lifetime: Duration,
        rng: &mut Rng,
    ) -> Self {
        let remotes = entity.remotes.values_mut().chain([&mut entity.default_remote]);
        remotes.for_each(|remote| fit(remote, lifetime));
        entity.told_again = FINISHED_RESENDS;
        let layer = ServiceLayer::new(config.pdu_max, lifetime);
        Self::new(entity, config, layer, Rng::new(rng.next_u64(), "cfdp"))
    }

    /// What is to be done at the node next.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.below.orders.pop_front()
    }
}

impl ServiceLayer {
    fn new(pdu_max: usize, lifetime: Duration) -> Self {
        Self {
            pdu_max,
            lifetime,
            met: BTreeSet::new(),
            is_up: false,
            units: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            bytes: 0,
            next: 0,
            orders: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The node answers.
    pub fn is_there(&mut self) {
        if !std::mem::replace(&mut self.is_up, true) {
            for entity in self.met.clone() {
                self.up(entity);
            }
        }
    }

    /// The node answers no longer: it hands over again what was not confirmed, and time stands still until then.
    pub fn is_gone(&mut self) {
        for (arrival, _) in std::mem::take(&mut self.arrivals) {
            self.events.push_back(Event::Gone { arrival });
        }
        self.bytes = 0;
        self.orders.retain(|order| !matches!(order, Order::Confirm(_)));
        if std::mem::replace(&mut self.is_up, false) {
            self.events.extend(self.met.iter().map(|entity| Event::Down { entity: *entity }));
        }
    }

    /// A bundle came from an entity; returns what it is called here.
    pub fn came(&mut self, now: Time, from: u64, payload: Bytes) -> Arrival {
        let arrival = Arrival(self.number());
        self.arrivals.insert(arrival, (payload.len(), now));
        self.bytes += payload.len();
        let (content, leaves_file) = (Content::Bytes(payload), false);
        self.events.push_back(Event::Came { arrival, from, content, leaves_file });
        arrival
    }

    /// Whether more may come.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.bytes < BYTES_MAX && self.arrivals.len() < ARRIVALS_MAX
    }

    /// A bundle is safe in the node's store.
    pub fn sent(&mut self, unit: Unit) {
        if self.units.remove(&unit).is_some() {
            self.events.push_back(Event::Delivered { unit });
        }
    }

    /// The node will not take a bundle.
    pub fn not_sent(&mut self, unit: Unit, why: &'static str) {
        if self.units.remove(&unit).is_some() {
            self.events.push_back(Event::Failed { unit, is_final: true, why });
        }
    }

    fn drop_arrival(&mut self, arrival: Arrival) -> bool {
        let dropped = self.arrivals.remove(&arrival);
        self.bytes -= dropped.map_or(0, |(bytes, _)| bytes);
        dropped.is_some()
    }

    /// When what waits longest is of no use any more: nobody tells that a bundle has expired that was handed over.
    fn next_end(&self) -> Option<(Arrival, Time)> {
        // They are numbered in the order in which they came.
        self.arrivals
            .first_key_value()
            .map(|(arrival, (_, came))| (*arrival, *came + self.lifetime))
    }

    fn up(&mut self, entity: u64) {
        let kind = PathKind::Message { max: self.pdu_max };
        let info = PathInfo { kind, ..PathInfo::datagram(0) };
        self.events.push_back(Event::Up { entity, info });
    }
}

impl Below for ServiceLayer {
    /// Who carries out orders tries until the node has the bundle.
    const REPEATS: bool = false;

    fn carry(&mut self, _now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused> {
        let unit = Unit(self.number());
        self.units.insert(unit, pdu.len());
        self.orders.push_back(Order::Send { unit, to, pdu });
        Ok(unit)
    }

    fn accept(&mut self, _now: Time, arrival: Arrival) {
        if self.drop_arrival(arrival) {
            self.orders.push_back(Order::Confirm(arrival));
        }
    }

    /// The node keeps it, and hands it over again when it or this application begins anew.
    fn refuse(&mut self, _now: Time, arrival: Arrival) {
        self.drop_arrival(arrival);
    }

    fn meet(&mut self, entity: u64) {
        self.met.insert(entity);
        if self.is_up {
            self.up(entity);
        } else {
            self.events.push_back(Event::Down { entity });
        }
    }

    /// Between here and the node is nothing that had to be filled.
    fn window(&self, _to: u64) -> Option<usize> {
        None
    }

    fn memory(&self) -> usize {
        self.units.values().sum::<usize>() + self.bytes
    }
}

impl Engine for ServiceLayer {
    type Indication = Event;

    /// Nothing comes but by its methods.
    fn handle_input(&mut self, _now: Time, _input: Input<'_>) {}

    fn handle_timeout(&mut self, now: Time) {
        while let Some((arrival, _)) = self.next_end().filter(|(_, end)| *end <= now) {
            self.drop_arrival(arrival);
            self.events.push_back(Event::Gone { arrival });
        }
    }

    fn poll_transmit(&mut self, _now: Time, _tx: &mut TxBuf) -> Option<Transmit> {
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.next_end().map(|(_, at)| Deadline { at, why: "arrival expires" })
    }
}
