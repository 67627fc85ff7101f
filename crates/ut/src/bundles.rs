//! Bundle node below an entity: a PDU is the payload of a bundle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ::cfdp::{self, Timer};
use bp::agent::{Agent, DeliveryId, Indication, RequestError, SendRequest, Version};
use bp::codec::bp7::{BundleFlags, BundleId, Eid};
use bp::layer::Content;
use bp::node::Node;
use bp::routes::Priority;
use bytes::Bytes;
use engine::{Deadline, Effect, Engine, Input, PathInfo, PathKind, Rng, Time, Transmit, TxBuf};

use super::below::{Arrival, Below, Event, Refused, Unit};
use super::{Config, LayeredEntity};

/// Service number for PDUs in ION networks, where they are sent from 64. RFC 7116 registers 1.
pub const CFDP_ENDPOINT: u64 = 65;

/// Settings of [`OverBundles`].
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
}

impl Default for BundlesConfig {
    fn default() -> Self {
        Self {
            service: CFDP_ENDPOINT,
            lifetime: Duration::from_secs(86_400),
            version: Version::Seven,
            custody: false,
        }
    }
}

/// Bundle node below an entity.
pub struct BundleLayer {
    node: Node,
    entity: u64,
    config: BundlesConfig,
    pdu_max: usize,
    /// Entities to report as reachable once the agent is ready.
    met: Vec<u64>,
    is_ready: bool,
    units: BTreeMap<BundleId, Unit>,
    /// Unconfirmed deliveries.
    arrivals: BTreeMap<BundleId, Arrival>,
    next: u64,
    /// Shortest PDU for which the node had no room, in bytes.
    refused: Option<u64>,
    events: VecDeque<Event>,
}

impl std::fmt::Debug for BundleLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleLayer").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Entity over bundles.
pub type OverBundles = LayeredEntity<BundleLayer>;

impl LayeredEntity<BundleLayer> {
    /// Builds an entity over `node`, which must be new and have the entity's number. Timers not
    /// configured are derived from the lifetime of bundles: long silence is normal, and
    /// retransmissions take as long.
    #[must_use]
    pub fn over_bundles(
        mut entity: cfdp::Config,
        config: Config,
        below: &BundlesConfig,
        node: Node,
        mut rng: Rng,
    ) -> Self {
        let remotes = entity.remotes.values_mut().chain([&mut entity.default_remote]);
        remotes.for_each(|remote| fit(remote, below.lifetime));
        let layer = BundleLayer::new(entity.entity, &config, below.clone(), node);
        Self::new(entity, config, layer, Rng::new(rng.next_u64(), "cfdp"))
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.below().node
    }

    /// Calls the node with a request.
    pub fn with_node<T>(&mut self, now: Time, request: impl FnOnce(&mut Node) -> T) -> T {
        self.with_below(now, |below| {
            let result = request(&mut below.node);
            below.listen(now);
            result
        })
    }
}

/// Retries in the lifetime of a bundle, if no limit is set.
const RETRIES: u32 = 30;

/// Sets timers not configured: each limit is reached when the first bundle sent has expired.
pub(super) fn fit(remote: &mut cfdp::Remote, lifetime: Duration) {
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

impl BundleLayer {
    fn new(entity: u64, config: &Config, below: BundlesConfig, mut node: Node) -> Self {
        let endpoint = Eid::Ipn { node: entity, service: below.service };
        // A node with another number only forwards.
        let register = |agent: &mut Agent| agent.register(&endpoint);
        let _taken = node.with_agent(Time::ZERO, register);
        let mut layer = Self {
            node,
            entity,
            config: below,
            pdu_max: config.pdu_max,
            met: Vec::new(),
            is_ready: false,
            units: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next: 0,
            refused: None,
            events: VecDeque::new(),
        };
        layer.listen(Time::ZERO);
        layer
    }

    fn endpoint(&self, entity: u64) -> Eid {
        Eid::Ipn { node: entity, service: self.config.service }
    }

    fn up(&mut self, entity: u64) {
        let kind = PathKind::Message { max: self.pdu_max };
        self.events
            .push_back(Event::Up { entity, info: PathInfo { kind, ..PathInfo::datagram(0) } });
    }

    /// Handles the agent's indications.
    fn listen(&mut self, _now: Time) {
        if !self.is_ready && self.node.agent().is_ready() {
            self.is_ready = true;
            for entity in std::mem::take(&mut self.met) {
                self.up(entity);
            }
        }
        let here = self.endpoint(self.entity);
        while let Some(indication) = self.node.poll_indication() {
            match indication {
                Indication::Delivered {
                    delivery: DeliveryId(number),
                    endpoint,
                    id,
                    payload,
                    ..
                } if endpoint == here => {
                    let arrival = Arrival(number);
                    // The entity of a node with a `dtn` name identifies itself in its PDUs; here
                    // its number is 0.
                    let from = match id.source {
                        Eid::Ipn { node, .. } => node,
                        Eid::None | Eid::Dtn(_) | Eid::Uri(_) | Eid::Unknown { .. } => 0,
                    };
                    self.arrivals.insert(id, arrival);
                    let (content, leaves_file) = (payload, false);
                    self.events.push_back(Event::Came { arrival, from, content, leaves_file });
                }
                Indication::Forwarded { id, .. } | Indication::CustodyTaken { id, .. } => {
                    if let Some(unit) = self.units.remove(&id) {
                        self.events.push_back(Event::Delivered { unit });
                    }
                }
                Indication::Deleted { id, .. } => {
                    if let Some(unit) = self.units.remove(&id) {
                        let why = "a bundle was deleted before it was sent";
                        self.events.push_back(Event::Failed { unit, is_final: true, why });
                    }
                    if let Some(arrival) = self.arrivals.remove(&id) {
                        self.events.push_back(Event::Gone { arrival });
                    }
                }
                Indication::Delivered { .. }
                | Indication::Stored { .. }
                | Indication::Report { .. }
                | Indication::SignalIgnored { .. }
                | Indication::Discarded { .. }
                | Indication::Up { .. }
                | Indication::Down { .. }
                | Indication::LimitReached(_)
                | Indication::Notice { .. }
                | Indication::StoreFailed(_) => {}
            }
        }
        if self.refused.is_some_and(|len| self.node.agent().takes(len)) {
            self.refused = None;
            self.events.push_back(Event::Room);
        }
    }
}

impl Below for BundleLayer {
    const REPEATS: bool = false;

    fn carry(&mut self, now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused> {
        let len = pdu.len() as u64;
        let request = SendRequest {
            source: Some(self.endpoint(self.entity)),
            destination: self.endpoint(to),
            report_to: None,
            lifetime: self.config.lifetime,
            flags: BundleFlags::default(),
            priority: Priority::Normal,
            version: self.config.version,
            custody: self.config.custody,
            hop_limit: None,
            key: None,
            payload: Content::Bytes(pdu),
            owns_file: false,
        };
        let sent = self.node.with_agent(now, |agent: &mut Agent| agent.send(now, request));
        let id = sent.map_err(|error| match error {
            RequestError::Full | RequestError::NotReady => {
                self.refused = Some(self.refused.map_or(len, |least| least.min(len)));
                Refused::Later
            }
            RequestError::TooLong { .. } => {
                Refused::Never("a PDU is longer than the longest bundle")
            }
            RequestError::NoDestination
            | RequestError::NotOurs
            | RequestError::Taken
            | RequestError::NoBundle
            | RequestError::NoDelivery
            | RequestError::Conflict(_) => Refused::Never("the bundle node refuses it"),
        })?;
        let unit = Unit(self.next);
        self.next += 1;
        self.units.insert(id, unit);
        self.listen(now);
        Ok(unit)
    }

    fn accept(&mut self, now: Time, arrival: Arrival) {
        let delivery = DeliveryId(arrival.0);
        self.arrivals.retain(|_, other| *other != arrival);
        // The bundle may have expired.
        let _over = self.node.with_agent(now, |agent: &mut Agent| agent.confirm(now, delivery));
        self.listen(now);
    }

    /// The bundle stays until it expires, or a restart of this node delivers it again.
    fn refuse(&mut self, _now: Time, _arrival: Arrival) {}

    fn meet(&mut self, entity: u64) {
        if self.is_ready {
            self.up(entity);
        } else if !self.met.contains(&entity) {
            self.met.push(entity);
        }
    }

    /// The capacity of the paths behind the next nodes is not known here.
    fn window(&self, _to: u64) -> Option<usize> {
        None
    }

    /// Bundles are in the node's store, which has its own bounds.
    fn memory(&self) -> usize {
        self.units.len() * size_of::<(BundleId, Unit)>()
    }
}

impl Engine for BundleLayer {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.node.handle_input(now, input);
        self.listen(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.listen(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.node.poll_transmit(now, tx);
        self.listen(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.node.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.node.poll_timeout()
    }
}
