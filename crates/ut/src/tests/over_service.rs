//! Conversations of entities that are applications of another program's node, which comes and
//! goes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use cfdp::pdu::{ConditionCode, DeliveryCode, TransmissionMode};
use engine::{Rng, Time};

use super::super::{BundlesConfig, OverService};
use super::world::{
    CLASS_1, CLASS_2, Case, World, assert_arrived, content, end, is_good, name, put,
};
use bp::app::{Application as _, ArrivalId, Delivery, Event, NodeFacts, Order, Piece};
use bp::codec::bp7::Eid;
use bp::layer::Content;
use testing::memory::Counted;
use testing::world::path_info;

const DAY: Duration = Duration::from_secs(86_400);

/// Two entities with their nodes' bundles.
struct Nodes {
    case: Case,
    world: World<OverService>,
    /// Unconfirmed bundles for a side, in order of arrival.
    held: [BTreeMap<u64, Bytes>; 2],
    /// Delivered bundles among them.
    handed: [BTreeMap<ArrivalId, u64>; 2],
    next: u64,
    rng: Rng,
    /// One in this many bundles is sent twice, as if the node's reply was lost.
    doubles: u64,
}

impl Nodes {
    fn new(mode: TransmissionMode) -> Self {
        let case = Case { mode, ..Case::default() };
        let engines = [case.over_service(1, 1), case.over_service(2, 2)];
        let mut nodes = Self {
            case,
            world: World::between(engines, path_info()),
            held: Default::default(),
            handed: Default::default(),
            next: 0,
            rng: Rng::new(7, "nodes"),
            doubles: u64::MAX,
        };
        for side in 0..2 {
            nodes.at(side, Event::Up(NodeFacts::default()));
        }
        nodes
    }

    fn at(&mut self, side: usize, event: Event) {
        let now = self.world.now;
        self.world.hosts[side].engine.handle_event(now, event);
        self.world.drain(side);
    }

    /// Executes a side's orders; returns whether there were any.
    fn work(&mut self, side: usize) -> bool {
        let mut some = false;
        while let Some(order) = self.world.hosts[side].engine.poll_order() {
            some = true;
            match order {
                Order::Send(outgoing) => {
                    let Eid::Ipn { node, .. } = outgoing.request.destination else {
                        panic!("an entity's node")
                    };
                    let Content::Bytes(pdu) = &outgoing.request.payload else { panic!("a PDU") };
                    let there = usize::try_from(node - 1).expect("one of two");
                    let times = if self.rng.below(self.doubles) == 0 { 2 } else { 1 };
                    for _ in 0..times {
                        self.next += 1;
                        self.held[there].insert(self.next, pdu.clone());
                    }
                    self.at(side, Event::Stored(outgoing.id));
                }
                Order::Confirm(arrival) => {
                    if let Some(number) = self.handed[side].remove(&arrival) {
                        self.held[side].remove(&number);
                    }
                }
                Order::Leave(_) | Order::Read(_) | Order::Forget(_) => {}
            }
        }
        some
    }

    /// Delivers one more bundle; returns whether there was one and room for it.
    fn hand_over(&mut self, side: usize) -> bool {
        let handed: Vec<u64> = self.handed[side].values().copied().collect();
        let waiting = self.held[side].keys().filter(|number| !handed.contains(number));
        let waiting: Vec<u64> = waiting.copied().collect();
        if waiting.is_empty() || !self.world.hosts[side].engine.takes_more() {
            return false;
        }
        let at = usize::try_from(self.rng.below(waiting.len() as u64)).expect("one of them");
        let payload = self.held[side][&waiting[at]].clone();
        self.next += 1;
        let arrival = ArrivalId(self.next);
        self.handed[side].insert(arrival, waiting[at]);
        self.at(side, came(arrival, if side == 0 { 2 } else { 1 }, payload));
        true
    }

    /// One more step; whether there was any.
    fn step(&mut self) -> bool {
        self.work_and_hand_over() || self.world.step()
    }

    fn work_and_hand_over(&mut self) -> bool {
        (0..2).any(|side| self.work(side) || self.hand_over(side))
    }

    fn run(&mut self) {
        while self.step() {}
    }

    /// Runs for this time.
    fn run_for(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.work_and_hand_over() || self.world.next_is_by(until) && self.world.step() {}
    }

    /// Restarts a node.
    fn restart_node(&mut self, side: usize) {
        self.handed[side].clear();
        self.at(side, Event::Down);
        self.at(side, Event::Up(NodeFacts::default()));
    }

    /// Restarts an entity.
    fn restart_entity(&mut self, side: usize) {
        self.handed[side].clear();
        let engine = self.case.over_service(side as u64 + 1, self.rng.next_u64());
        self.world.replace(side, engine);
        self.at(side, Event::Up(NodeFacts::default()));
    }
}

impl Case {
    fn over_service(&self, number: u64, seed: u64) -> OverService {
        let (entity, mut config) = (self.entity(number), self.config(number));
        config.peers.clear();
        let below = BundlesConfig { lifetime: DAY, ..BundlesConfig::default() };
        OverService::over_service(entity, config, below, Rng::new(seed, "over service"))
    }
}

/// A bundle that came from a node.
fn came(arrival: ArrivalId, from: u64, payload: Bytes) -> Event {
    Event::Came(Delivery {
        arrival,
        bundle: format!("ipn:{from}.65 1.{}", arrival.0),
        source: Eid::Ipn { node: from, service: 65 },
        len: payload.len() as u64,
        first: Piece { bytes: payload, is_last: true },
    })
}

#[test]
fn files_of_any_length_cross_in_any_order_in_both_classes() {
    for mode in [CLASS_1, CLASS_2] {
        for size in [0, 1, 4_981, 50_001, 300_000] {
            let mut nodes = Nodes::new(mode);
            put(&mut nodes.world, size);
            nodes.run();
            assert_arrived(&nodes.world, size);
            assert!(nodes.held.iter().all(BTreeMap::is_empty), "all is confirmed");
        }
    }
}

#[test]
fn duplicate_bundles_make_one_file() {
    for mode in [CLASS_1, CLASS_2] {
        let mut nodes = Nodes::new(mode);
        nodes.doubles = 3;
        put(&mut nodes.world, 200_000);
        nodes.run();
        assert!(nodes.world.hosts[1].store.get(&name("copy")) == Some(&content(200_000)[..]));
    }
}

#[test]
fn nodes_may_restart_at_any_point() {
    for mode in [CLASS_1, CLASS_2] {
        for seed in 0..60 {
            let mut nodes = Nodes::new(mode);
            nodes.rng = Rng::new(seed, "restarts");
            put(&mut nodes.world, 60_000);
            loop {
                for _ in 0..nodes.rng.below(12) {
                    nodes.step();
                }
                if nodes.rng.below(6) == 0 {
                    break;
                }
                let side = usize::from(nodes.rng.below(2) == 0);
                nodes.restart_node(side);
            }
            nodes.run();
            assert_arrived(&nodes.world, 60_000);
            assert!(nodes.held.iter().all(BTreeMap::is_empty), "seed {seed}: all is confirmed");
        }
    }
}

#[test]
fn a_receiver_may_restart_at_any_point() {
    for mode in [CLASS_1, CLASS_2] {
        for steps in 0..90 {
            let mut nodes = Nodes::new(mode);
            put(&mut nodes.world, 60_000);
            for _ in 0..steps {
                nodes.step();
            }
            nodes.restart_entity(1);
            nodes.run_for(Duration::from_secs(60));
            let copy = nodes.world.hosts[1].store.get(&name("copy"));
            assert!(copy == Some(&content(60_000)[..]), "{mode:?}, after {steps} steps");
            // No wait for a retransmission is needed.
            let finished = end(&nodes.world, 0).unwrap_or_else(|| panic!("{mode:?}, {steps}"));
            assert!(is_good(finished), "{mode:?}, after {steps} steps: {finished:?}");
        }
    }
}

#[test]
fn a_receiver_may_die_after_any_effect() {
    for mode in [CLASS_1, CLASS_2] {
        for effects in 1.. {
            let mut nodes = Nodes::new(mode);
            nodes.world.hosts[1].dies_after = Some(effects);
            put(&mut nodes.world, 60_000);
            while nodes.world.hosts[1].dies_after != Some(0) && nodes.step() {}
            let has_died = nodes.world.hosts[1].dies_after == Some(0);
            nodes.world.hosts[1].dies_after = None;
            if has_died {
                // Its last orders have reached the node.
                nodes.work(1);
                nodes.restart_entity(1);
            }
            // A retransmission would come after hours.
            nodes.run_for(Duration::from_secs(60));
            let copy = nodes.world.hosts[1].store.get(&name("copy"));
            assert!(copy == Some(&content(60_000)[..]), "{mode:?}, after {effects} effects");
            assert!(end(&nodes.world, 0).is_some_and(is_good), "{mode:?}, {effects}");
            if !has_died {
                assert!(effects > 20, "{effects}");
                break;
            }
        }
    }
}

#[test]
fn a_bundle_refused_by_the_node_breaks_a_put_of_class_1() {
    let mut nodes = Nodes::new(CLASS_1);
    put(&mut nodes.world, 60_000);
    let Some(Order::Send(outgoing)) = nodes.world.hosts[0].engine.poll_order() else {
        panic!("something is to be sent");
    };
    nodes.at(0, Event::Refused { id: outgoing.id, why: "too long".to_owned() });
    nodes.run();
    let finished = end(&nodes.world, 0).expect("it is over");
    assert_eq!(finished.condition, ConditionCode::CancelRequestReceived);
    assert_eq!(finished.delivery, DeliveryCode::Incomplete);
}

#[test]
fn arrivals_are_bounded() {
    for (len, most) in [(60_000, 300), (30, 1_000)] {
        // An entity that has not read its records accepts nothing, so everything waits.
        let mut engine = Counted::new(|| Case::default().over_service(2, 2));
        let mut taken = 0;
        while engine.takes_more() {
            taken += 1;
            assert!(taken < most, "memory is bounded");
            engine.charge(|engine| {
                let payload = Bytes::from(vec![0; len]);
                engine.handle_event(Time::ZERO, came(ArrivalId(taken), 1, payload));
            });
        }
        assert!(engine.memory() < 40 << 20, "{}", engine.memory());
        assert!(engine.poll_order().is_none(), "nothing is confirmed");
        engine.charge(|engine| engine.handle_event(Time::ZERO, Event::Down));
        assert!(engine.takes_more() && engine.memory() < 1 << 20);
    }
}

#[test]
fn without_a_node_no_pdus_are_made() {
    let mut nodes = Nodes::new(CLASS_2);
    nodes.at(0, Event::Down);
    put(&mut nodes.world, 60_000);
    assert!(nodes.world.hosts[0].engine.poll_order().is_none());
    nodes.at(0, Event::Up(NodeFacts::default()));
    assert!(nodes.world.hosts[0].engine.poll_order().is_some());
}
