//! Application of a bundle node below an entity: a PDU is the payload of a bundle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ::cfdp::pdu::{Body, Direction, Header, Pdu};
use ::cfdp::{self, Timer};
use bp::agent::{SendRequest, Version};
use bp::app::{Application, ArrivalId, Delivery, Order, Outgoing, OutgoingId, Piece};
use bp::codec::bp7::Eid;
use bp::hosted::Hosted;
use bp::layer::Content;
use bytes::{Bytes, BytesMut};
use engine::{Deadline, Effect, Engine, Input, PathInfo, PathKind, Rng, Time, Transmit, TxBuf};

use super::below::{Arrival, Below, Event, Note, Refused, Unit};
use super::{Config, LayeredEntity};

/// Service number for PDUs in ION networks, where they are sent from 64. RFC 7116 registers 1.
pub const CFDP_ENDPOINT: u64 = 65;

/// Maximum bytes of unaccepted arrivals; further bundles wait in the node.
const BYTES_MAX: usize = 16 << 20;

/// Maximum unaccepted arrivals: ends of files that arrived first wait for their beginnings.
const ARRIVALS_MAX: usize = 960;

/// Maximum length of a payload: a longer one contains no PDUs.
const PAYLOAD_MAX: u64 = 1 << 20;

/// Number of recent transactions whose Finished PDU is re-sent after a restart. A crash can have
/// kept at most this number of them from the node, and most sources already received theirs.
const FINISHED_RESENDS: usize = 4;

/// Settings of the bundles of an [`OverService`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundlesConfig {
    /// Service number for PDUs at each node, of the `ipn` scheme. Node numbers are entity numbers.
    pub service: u64,
    /// Lifetime of bundles.
    pub lifetime: Duration,
    /// Version of bundles.
    pub version: Version,
    /// Whether custody is requested, in version 6.
    pub custody: bool,
    /// Bundles that the entity receives.
    pub receives: Receives,
}

impl Default for BundlesConfig {
    fn default() -> Self {
        Self {
            service: CFDP_ENDPOINT,
            lifetime: Duration::from_secs(86_400),
            version: Version::Seven,
            custody: false,
            receives: Receives::All,
        }
    }
}

/// Bundles to its endpoint that an entity receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// None: another entity may use the endpoint.
    Nothing,
    /// Replies to its puts. The next entity receives the other PDUs.
    Answers,
    /// All.
    All,
}

/// Bundle node below an entity.
#[derive(Debug)]
pub struct ServiceLayer {
    entity: u64,
    config: BundlesConfig,
    pdu_max: usize,
    /// Entities with a path.
    met: Vec<u64>,
    is_up: bool,
    /// Whether the node tells what becomes of bundles that it has stored.
    is_followed: bool,
    is_stopped: bool,
    /// Units passed to the node, with their bytes.
    units: BTreeMap<Unit, usize>,
    /// Unaccepted arrivals.
    arrivals: BTreeMap<Arrival, Held>,
    /// Bytes of them.
    bytes: usize,
    next: u64,
    orders: VecDeque<Order>,
    events: VecDeque<Event>,
}

/// An unaccepted arrival.
#[derive(Debug)]
struct Held {
    from: u64,
    len: usize,
    came: Time,
    /// The bytes so far, until they are complete.
    payload: BytesMut,
}

/// Entity that is an application of a bundle node.
pub type OverService = LayeredEntity<ServiceLayer>;

/// Entity with its node.
pub type OverBundles = Hosted<OverService>;

impl LayeredEntity<ServiceLayer> {
    /// Builds an entity that is an application of a node of the same number. Timers not configured
    /// are derived from the lifetime of bundles: long silence is normal, and retransmissions take
    /// as long.
    #[must_use]
    pub fn over_service(
        mut entity: cfdp::Config,
        config: Config,
        below: BundlesConfig,
        mut rng: Rng,
    ) -> Self {
        let remotes = entity.remotes.values_mut().chain([&mut entity.default_remote]);
        remotes.for_each(|remote| fit(remote, below.lifetime));
        entity.finished_resends = FINISHED_RESENDS;
        let layer = ServiceLayer::new(entity.entity, below, config.pdu_max);
        Self::new(entity, config, layer, Rng::new(rng.next_u64(), "cfdp"))
    }

    /// Whether bundles may be delivered: not at the end, and not before there is something to which
    /// they are answers.
    fn is_open(&self) -> bool {
        let below = self.below();
        let is_known = match below.config.receives {
            Receives::Nothing => false,
            Receives::Answers => self.entity().transactions().next().is_some(),
            Receives::All => true,
        };
        is_known && !below.is_stopped && below.takes_more()
    }
}

impl Application for LayeredEntity<ServiceLayer> {
    fn endpoint(&self) -> Option<Eid> {
        let below = self.below();
        (below.config.receives != Receives::Nothing).then(|| below.endpoint(below.entity))
    }

    fn poll_order(&mut self) -> Option<Order> {
        self.below_mut().orders.pop_front()
    }

    fn handle_event(&mut self, now: Time, event: bp::app::Event) {
        self.with_below(now, |below| below.on_node(now, event));
    }

    fn takes_more(&self) -> bool {
        self.is_open()
    }

    fn stop(&mut self) {
        self.below_mut().is_stopped = true;
    }
}

/// Retries in the lifetime of a bundle, if no limit is set.
const RETRIES: u32 = 30;

/// Sets timers not configured: each limit is reached when the first bundle sent has expired.
fn fit(remote: &mut cfdp::Remote, lifetime: Duration) {
    let part = |limit: Option<u32>| Timer::Fixed(lifetime / limit.unwrap_or(RETRIES).max(1));
    for (timer, value) in [
        // With a lifetime of one day and 30 retries: one every 48 min.
        (&mut remote.ack_timer, part(remote.ack_limit)),
        (&mut remote.naks.timer, part(remote.naks.limit)),
        (&mut remote.check_timer, part(remote.check_limit)),
        (&mut remote.inactivity, Timer::Fixed(lifetime)),
        (&mut remote.probe, Timer::Fixed(lifetime / 2)),
    ] {
        if *timer == Timer::Auto {
            *timer = value;
        }
    }
}

impl ServiceLayer {
    fn new(entity: u64, config: BundlesConfig, pdu_max: usize) -> Self {
        Self {
            entity,
            config,
            pdu_max,
            met: Vec::new(),
            is_up: false,
            is_followed: false,
            is_stopped: false,
            units: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            bytes: 0,
            next: 0,
            orders: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn endpoint(&self, entity: u64) -> Eid {
        Eid::Ipn { node: entity, service: self.config.service }
    }

    fn on_node(&mut self, now: Time, event: bp::app::Event) {
        use bp::app::Event as Node;
        match event {
            Node::Up(facts) => {
                self.is_followed = facts.follows;
                if !std::mem::replace(&mut self.is_up, true) {
                    self.met.clone().into_iter().for_each(|entity| self.up(entity));
                }
            }
            Node::Down => self.down(),
            Node::Came(delivery) => self.came(now, delivery),
            Node::Read { arrival, piece } => self.read(Arrival(arrival.0), piece),
            Node::Expired(arrival) => self.gone(Arrival(arrival.0)),
            Node::Stored(id) if !self.is_followed => self.carried(id),
            Node::Stored(_) | Node::Waiting { .. } | Node::Passed { .. } => {}
            Node::Forwarded(id) | Node::Delivered(id) => self.carried(id),
            Node::Refused { id, why } => {
                self.events.push_back(Event::Noted(Note::Refused(why)));
                self.lost(id, "the bundle node does not take a bundle");
            }
            Node::Deleted(id) => self.lost(id, "a bundle was deleted before it was sent"),
        }
    }

    /// Timers stop until the node is back; it then delivers unconfirmed bundles again.
    fn down(&mut self) {
        for (arrival, _) in std::mem::take(&mut self.arrivals) {
            self.events.push_back(Event::Gone { arrival });
        }
        self.bytes = 0;
        self.orders.retain(|order| matches!(order, Order::Send(_)));
        if std::mem::replace(&mut self.is_up, false) {
            self.events.extend(self.met.iter().map(|entity| Event::Down { entity: *entity }));
        }
    }

    fn came(&mut self, now: Time, delivery: Delivery) {
        let Delivery { arrival, bundle: _, source, len, first } = delivery;
        let (arrival, id) = (Arrival(arrival.0), arrival);
        if len > PAYLOAD_MAX {
            if self.config.receives == Receives::Answers {
                return self.orders.push_back(Order::Leave(id));
            }
            self.events.push_back(Event::Noted(Note::TooLong(len)));
            return self.orders.push_back(Order::Confirm(id));
        }
        // The entity of a node with a name in place of a number identifies itself in its PDUs;
        // here its number is 0.
        let from = match source {
            Eid::Ipn { node, .. } => node,
            Eid::None | Eid::Dtn(_) | Eid::Uri(_) | Eid::Unknown { .. } => 0,
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.arrivals.insert(arrival, Held { from, len, came: now, payload: BytesMut::new() });
        self.bytes += len;
        self.read(arrival, first);
    }

    /// Adds bytes to an arrival, and reports it once it is complete.
    fn read(&mut self, arrival: Arrival, piece: Piece) {
        let Some(held) = self.arrivals.get_mut(&arrival) else { return };
        if !piece.is_last {
            held.payload.extend_from_slice(&piece.bytes);
            return self.orders.push_back(Order::Read(ArrivalId(arrival.0)));
        }
        // Most payloads are one piece.
        let payload = if held.payload.is_empty() {
            piece.bytes
        } else {
            held.payload.extend_from_slice(&piece.bytes);
            std::mem::take(&mut held.payload).freeze()
        };
        let from = held.from;
        if self.config.receives == Receives::Answers && !self.is_answer(&payload) {
            self.drop_arrival(arrival);
            return self.orders.push_back(Order::Leave(ArrivalId(arrival.0)));
        }
        let (content, leaves_file) = (Content::Bytes(payload), false);
        self.events.push_back(Event::Came { arrival, from, content, leaves_file });
    }

    /// Whether PDUs reply to this entity, including to an earlier put: a resumed one gets another
    /// reply.
    fn is_answer(&self, pdus: &[u8]) -> bool {
        Header::decode(pdus).is_ok_and(|header| {
            header.direction == Direction::TowardSender && header.source.0 == self.entity
        })
    }

    fn gone(&mut self, arrival: Arrival) {
        if self.drop_arrival(arrival) {
            self.events.push_back(Event::Gone { arrival });
        }
    }

    fn carried(&mut self, id: OutgoingId) {
        let unit = Unit(id.0);
        if self.units.remove(&unit).is_some() {
            self.events.push_back(Event::Delivered { unit });
        }
    }

    fn lost(&mut self, id: OutgoingId, why: &'static str) {
        let unit = Unit(id.0);
        if self.units.remove(&unit).is_some() {
            self.events.push_back(Event::Failed { unit, is_final: true, why });
        }
    }

    fn takes_more(&self) -> bool {
        self.bytes < BYTES_MAX && self.arrivals.len() < ARRIVALS_MAX
    }

    fn drop_arrival(&mut self, arrival: Arrival) -> bool {
        let dropped = self.arrivals.remove(&arrival);
        self.bytes -= dropped.as_ref().map_or(0, |held| held.len);
        dropped.is_some()
    }

    /// Expiry of the oldest arrival: not every node reports the expiry of delivered bundles.
    fn next_end(&self) -> Option<(Arrival, Time)> {
        // Arrivals are numbered in order of arrival.
        let (arrival, held) = self.arrivals.first_key_value()?;
        Some((*arrival, held.came + self.config.lifetime))
    }

    fn up(&mut self, entity: u64) {
        let kind = PathKind::Message { max: self.pdu_max };
        let info = PathInfo { kind, ..PathInfo::datagram(0) };
        self.events.push_back(Event::Up { entity, info });
    }
}

/// Whether a PDU is file data.
fn is_data(pdu: &[u8]) -> bool {
    Pdu::decode(pdu).is_ok_and(|pdu| matches!(pdu.body, Body::FileData(_)))
}

impl Below for ServiceLayer {
    /// The node retries.
    const REPEATS: bool = false;

    fn carry(&mut self, _now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused> {
        self.next += 1;
        let unit = Unit(self.next);
        // A stopped transfer sends no more data; replies are still sent.
        if self.is_stopped && is_data(&pdu) {
            return Ok(unit);
        }
        self.units.insert(unit, pdu.len());
        let request = SendRequest {
            source: Some(self.endpoint(self.entity)),
            lifetime: self.config.lifetime,
            version: self.config.version,
            custody: self.config.custody,
            ..SendRequest::new(self.endpoint(to), pdu)
        };
        let outgoing = Outgoing { id: OutgoingId(unit.0), request, excerpt: None };
        self.orders.push_back(Order::Send(Box::new(outgoing)));
        Ok(unit)
    }

    fn accept(&mut self, _now: Time, arrival: Arrival) {
        if self.drop_arrival(arrival) {
            self.orders.push_back(Order::Confirm(ArrivalId(arrival.0)));
        }
    }

    /// The node keeps it, and delivers it again after a restart of either side.
    fn refuse(&mut self, _now: Time, arrival: Arrival) {
        if self.drop_arrival(arrival) {
            self.orders.push_back(Order::Leave(ArrivalId(arrival.0)));
        }
    }

    fn meet(&mut self, entity: u64) {
        if !self.met.contains(&entity) {
            self.met.push(entity);
        }
        if self.is_up {
            self.up(entity);
        } else {
            self.events.push_back(Event::Down { entity });
        }
    }

    /// The capacity of the paths behind the node is not known here.
    fn window(&self, _to: u64) -> Option<usize> {
        None
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
