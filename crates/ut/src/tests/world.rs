//! Two entities over LTP or bundles, and a link between them with chosen losses.

use std::time::Duration;

use ::cfdp::pdu::{ConditionCode, DeliveryCode, Pdu, TransactionId, TransmissionMode};
use ::cfdp::{self, Entity, PutRequest, RequestError, Role, TransactionFinished};
use ::ltp::segment::{Body, Segment};
use bp::agent::{self, Agent, Entry, LinkRef, Pattern, Routing};
use bp::codec::bp7::Eid;
use bp::hosted::{self, Hosted};
use bp::layer::{Command, LinkId};
use bp::ltpcl::{self, Ltpcl};
use bp::node::{Node, Paths};
use engine::{Engine, FilestoreRequest, Input, PathEvent, PathId, Rng, StoreEffect, Ticket, Time};

use super::super::{
    Below, BundlesConfig, Color, Config, Indication, LayeredEntity, Limits, LtpConfig, OverBundles,
    OverLtp, OverService,
};
pub(super) use testing::world::{
    PATH, World, content, lose_numbers, name, path_info, small_buffers,
};

/// An entity over a layer, or with its node.
pub(super) trait Carried: Engine {
    fn entity(&self) -> &Entity;
    fn under_way(&self) -> usize;
    fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, RequestError>;
    fn indication(indication: &Self::Indication) -> Option<&Indication>;
}

impl<B: Below> Carried for LayeredEntity<B> {
    fn entity(&self) -> &Entity {
        self.entity()
    }

    fn under_way(&self) -> usize {
        self.under_way()
    }

    fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, RequestError> {
        self.put(now, request)
    }

    fn indication(indication: &Indication) -> Option<&Indication> {
        Some(indication)
    }
}

impl Carried for OverBundles {
    fn entity(&self) -> &Entity {
        self.application().entity()
    }

    fn under_way(&self) -> usize {
        self.application().under_way()
    }

    fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, RequestError> {
        self.with_application(now, |entity| entity.put(now, request))
    }

    fn indication(indication: &hosted::Indication<Indication>) -> Option<&Indication> {
        match indication {
            hosted::Indication::Application(indication) => Some(indication),
            hosted::Indication::Node(_) => None,
        }
    }
}

const LINK: LinkId = LinkId(1);

/// A bundle node whose only neighbour is at the other end of `path`, over LTP.
pub(super) fn bundle_node(number: u64, ltp: ltp::Config, path: PathId, seed: u64) -> Node {
    let node = |number| Eid::Ipn { node: number, service: 0 };
    let peer = 3 - number;
    let config = agent::Config {
        node: node(number),
        clock: Some(800_000_000_000),
        routing: Routing::Static(vec![Entry {
            to: Pattern::Node(node(peer)),
            via: vec![node(peer)],
        }]),
        links: [(LinkRef { layer: 0, link: LINK }, node(peer))].into(),
        ..agent::Config::default()
    };
    let agent = Agent::new(config, Rng::new(seed, "agent"));
    let layer = ltpcl::Config {
        ltp: ltp::Config { engine: number, ..ltp },
        peers: [(LINK, ltpcl::Peer { engine: peer, path })].into(),
        ..ltpcl::Config::default()
    };
    let layer = Ltpcl::new(layer, Rng::new(seed, "ltp"));
    let paths = Paths { known: [(path, 0)].into(), ..Paths::default() };
    Node::new(agent, vec![Box::new(layer)], paths)
}

/// Opens its link.
pub(super) fn open(node: &mut Node) {
    node.command(Time::ZERO, 0, Command::Open { link: LINK });
}

pub(super) const CLASS_1: TransmissionMode = TransmissionMode::Unacknowledged;
pub(super) const CLASS_2: TransmissionMode = TransmissionMode::Acknowledged;

/// Settings of one of the two.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) mode: TransmissionMode,
    pub(super) color: Color,
    pub(super) pdu_max: usize,
    pub(super) window: usize,
    pub(super) closure: bool,
    pub(super) ltp: ltp::Config,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            mode: CLASS_1,
            color: Color::Red,
            pdu_max: 5_000,
            window: 16,
            closure: false,
            ltp: ltp::Config::default(),
        }
    }
}

impl Case {
    pub(super) fn entity(&self, number: u64) -> cfdp::Config {
        let remote = cfdp::Remote { mode: self.mode, closure: self.closure, ..Default::default() };
        cfdp::Config { entity: number, default_remote: remote, ..cfdp::Config::default() }
    }

    pub(super) fn config(&self, number: u64) -> Config {
        Config {
            pdu_max: self.pdu_max,
            peers: [3 - number].into(),
            limits: Limits { window: self.window, ..Limits::default() },
            ..Config::default()
        }
    }

    pub(super) fn over_ltp(&self, number: u64, seed: u64) -> OverLtp {
        let below = LtpConfig { ltp: self.ltp.clone(), color: self.color };
        let rng = Rng::new(seed, "over ltp");
        OverLtp::over_ltp(self.entity(number), self.config(number), &below, rng)
    }

    pub(super) fn over_bundles(&self, number: u64, seed: u64) -> OverBundles {
        let node = bundle_node(number, self.ltp.clone(), PATH, seed);
        let (entity, below) = (self.entity(number), BundlesConfig::default());
        let rng = Rng::new(seed, "over bundles");
        let entity = OverService::over_service(entity, self.config(number), below, rng);
        let mut engine = Hosted::new(entity, node);
        engine.with_node(Time::ZERO, open);
        engine
    }

    pub(super) fn world(&self) -> World<OverLtp> {
        World::between([self.over_ltp(1, 1), self.over_ltp(2, 2)], path_info())
    }

    pub(super) fn bundle_world(&self) -> World<OverBundles> {
        let mut world =
            World::between([self.over_bundles(1, 1), self.over_bundles(2, 2)], path_info());
        for side in &mut world.hosts {
            let request = FilestoreRequest::CreateDirectory(agent::Config::default().directory);
            side.store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
        }
        world
    }
}

pub(super) fn request() -> PutRequest {
    PutRequest {
        destination: 2,
        source: Some(name("source")),
        destination_name: "copy".to_owned(),
        ..PutRequest::default()
    }
}

/// Lets the first send a file of `size` bytes.
pub(super) fn put<C: Carried>(world: &mut World<C>, size: usize) -> TransactionId {
    world.hosts[0].store.insert(name("source"), content(size));
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    let id = engine.charge(|entity| entity.put(now, request())).expect("a sound put");
    world.drain(0);
    id
}

/// Result of the transaction at a side.
pub(super) fn end<C: Carried>(world: &World<C>, side: usize) -> Option<&TransactionFinished> {
    let role = [Role::Sender, Role::Receiver][side];
    let mut indications = world.hosts[side].indications.iter().filter_map(C::indication);
    indications.find_map(|indication| match indication {
        Indication::Cfdp(cfdp::Indication::TransactionFinished(finished))
            if finished.role == role =>
        {
            Some(finished)
        }
        _ => None,
    })
}

pub(super) fn is_good(finished: &TransactionFinished) -> bool {
    finished.condition == ConditionCode::NoError && finished.delivery == DeliveryCode::Complete
}

/// Checks that the copy arrived and both sides report success.
pub(super) fn assert_arrived<C: Carried>(world: &World<C>, size: usize) {
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&content(size)[..]), "no such copy");
    for side in 0..2 {
        let finished = end(world, side).unwrap_or_else(|| panic!("no end at {side}"));
        assert!(is_good(finished), "{finished:?}");
        assert_eq!(world.hosts[side].engine.under_way(), 0);
        assert!(world.hosts[side].engine.entity().transactions().next().is_none());
    }
}

/// Takes both directions down in the middle of a transfer, for this long; it continues afterwards.
pub(super) fn wait_out<C: Carried>(mut world: World<C>, outage: Duration) {
    put(&mut world, 300_000);
    world.run_until(world.now + Duration::from_millis(60));
    for side in 0..2 {
        world.input(side, Input::Path(PATH, PathEvent::Down));
    }
    world.run_until(world.now + outage);
    assert!(end(&world, 0).is_none() && end(&world, 1).is_none());
    for side in 0..2 {
        world.up(side);
    }
    world.run();
    assert_arrived(&world, 300_000);
}

/// Restarts the receiver after each number of effects, until it is done before; at least `least`
/// effects.
pub(super) fn restart_receiver<C: Carried>(
    new_world: impl Fn() -> World<C>,
    new_receiver: impl Fn() -> C,
    least: usize,
) {
    for dies_after in 1.. {
        let mut world = new_world();
        world.hosts[1].dies_after = Some(dies_after);
        put(&mut world, 60_000);
        while world.hosts[1].dies_after != Some(0) && world.step() {}
        let died = world.hosts[1].dies_after == Some(0);
        world.hosts[1].dies_after = None;
        if died {
            world.replace(1, new_receiver());
        }
        world.run();
        let copy = world.hosts[1].store.get(&name("copy"));
        let is_whole = copy == Some(&content(60_000)[..]);
        assert!(is_whole, "after {dies_after} effects, {:?}", end(&world, 1));
        if !died {
            assert!(dies_after > least, "{dies_after}");
            return;
        }
    }
}

/// Checks that a cancelled transfer has left no copy.
pub(super) fn assert_cancelled<C: Carried>(world: &World<C>) {
    assert_eq!(world.hosts[1].store.get(&name("copy")), None);
    let condition = end(world, 1).expect("it is over").condition;
    assert_eq!(condition, ConditionCode::CancelRequestReceived);
}

/// A segment, and the PDU that begins with it.
pub(super) fn describe(datagram: &[u8]) -> String {
    let Ok(segment) = Segment::decode(datagram) else { return "?".to_owned() };
    match segment.body {
        Body::Data(data) if data.offset == 0 => {
            let Ok(len) = Pdu::len_of_first(data.data) else {
                return format!("{} {}", data.service, "PDU, cut");
            };
            let pdu = Pdu::decode(&data.data[..len]).expect("a PDU");
            format!("{} {pdu}", data.service)
        }
        Body::Data(_) => "data".to_owned(),
        Body::Report(_) => "report".to_owned(),
        Body::ReportAck { .. } => "report ack".to_owned(),
        Body::Cancel { reason, .. } => format!("cancel {reason}"),
        Body::CancelAck { .. } => "cancel ack".to_owned(),
    }
}
