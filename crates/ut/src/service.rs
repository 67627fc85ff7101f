//! Service of another program's bundle node below an entity: a PDU is the payload of a bundle.
//!
//! The driver executes [orders](Order) at the node's interface, and reports their results.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bp::layer::Content;
use bytes::Bytes;
use engine::{Deadline, Effect, Engine, Input, PathInfo, PathKind, Rng, Time, Transmit, TxBuf};

use super::below::{Arrival, Below, Event, Refused, Unit};
use super::bundles::fit;
use super::{Config, LayeredEntity};

/// Order to be executed at the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends a bundle. The driver reports the result by [`LayeredEntity::with_below`] to
    /// [`ServiceLayer::sent`] or [`ServiceLayer::not_sent`].
    Send {
        /// Identifier of the bundle here.
        unit: Unit,
        /// The destination entity, with the number of its node.
        to: u64,
        /// The payload.
        pdu: Bytes,
    },
    /// Confirms a delivered bundle.
    Confirm(Arrival),
}

/// Maximum bytes of unaccepted arrivals; further bundles wait in the node.
const BYTES_MAX: usize = 16 << 20;

/// Maximum unaccepted arrivals: ends of files that arrived first wait for their beginnings.
const ARRIVALS_MAX: usize = 960;

/// Number of recent transactions whose Finished PDU is re-sent after a restart. A crash can have
/// kept at most this number of them from the node, and most sources already received theirs.
const FINISHED_RESENDS: usize = 4;

/// Another program's bundle node below an entity.
#[derive(Debug)]
pub struct ServiceLayer {
    pdu_max: usize,
    met: BTreeSet<u64>,
    is_up: bool,
    /// Units passed to the node, with their bytes.
    units: BTreeMap<Unit, usize>,
    /// Unaccepted arrivals, with their bytes and time of arrival.
    arrivals: BTreeMap<Arrival, (usize, Time)>,
    /// Longest time for which the node keeps unconfirmed bundles.
    lifetime: Duration,
    bytes: usize,
    next: u64,
    orders: VecDeque<Order>,
    events: VecDeque<Event>,
}

/// Entity that is an application of a bundle node.
pub type OverService = LayeredEntity<ServiceLayer>;

impl LayeredEntity<ServiceLayer> {
    /// Builds an entity whose node is reached by orders; both have the same number. Timers not
    /// configured are derived from the lifetime of bundles, as over an own node.
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

    /// Next order for the node.
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

    /// Reports that the node responds.
    pub fn is_there(&mut self) {
        if !std::mem::replace(&mut self.is_up, true) {
            for entity in self.met.clone() {
                self.up(entity);
            }
        }
    }

    /// Reports that the node no longer responds. Timers stop until it does; it then delivers
    /// unconfirmed bundles again.
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

    /// Reports a bundle that came from an entity; returns its identifier.
    pub fn came(&mut self, now: Time, from: u64, payload: Bytes) -> Arrival {
        let arrival = Arrival(self.number());
        self.arrivals.insert(arrival, (payload.len(), now));
        self.bytes += payload.len();
        let (content, leaves_file) = (Content::Bytes(payload), false);
        self.events.push_back(Event::Came { arrival, from, content, leaves_file });
        arrival
    }

    /// Whether more bundles are accepted.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.bytes < BYTES_MAX && self.arrivals.len() < ARRIVALS_MAX
    }

    /// Reports that a bundle is safe in the node's store.
    pub fn sent(&mut self, unit: Unit) {
        if self.units.remove(&unit).is_some() {
            self.events.push_back(Event::Delivered { unit });
        }
    }

    /// Reports that the node refused a bundle.
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

    /// Expiry of the oldest arrival: the node does not report the expiry of delivered bundles.
    fn next_end(&self) -> Option<(Arrival, Time)> {
        // Arrivals are numbered in order of arrival.
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
    /// The driver retries until the node has the bundle.
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

    /// The node keeps it, and delivers it again after a restart of either side.
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

    /// There is no path to fill between here and the node.
    fn window(&self, _to: u64) -> Option<usize> {
        None
    }

    fn memory(&self) -> usize {
        self.units.values().sum::<usize>() + self.bytes
    }
}

impl Engine for ServiceLayer {
    type Indication = Event;

    /// The engine receives input through its methods only.
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
