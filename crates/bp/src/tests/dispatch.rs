//! Bundles that are routed again: after flaps, missed contacts, refusals, and released volume.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::{Engine as _, Rng, Time};
use routing::settings::Settings;

use super::super::agent::{
    Agent, Config, Entry, Indication, Pattern, Routing, SendRequest, State, Version,
};
use super::super::contacts::{Contact, ContactPlan};
use super::super::layer::{Event, LinkId, Neighbour};
use super::super::routes::{Priority, Router};
use super::contacts::contact;
use super::world::{World, chain, chains, endpoint, node};
use crate::agent::LinkRef;
use crate::codec::bp7::BundleFlags;

const DAY: u64 = 86_400;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Nodes with this plan, not connected.
fn planned(count: usize, plan: &[Contact]) -> World {
    let plan = ContactPlan::new(plan.to_vec(), &[]).unwrap();
    let configs = (0..count).map(|at| {
        let router = Router::new(at as u64 + 1, plan.clone(), Settings::default());
        // Entries for neighbours, as those of a node's file.
        let Routing::Static(entries) = chain(count, at, true).routing else { unreachable!() };
        let routing = Routing::ContactGraph(Box::new(router), entries);
        Config { routing, ..chain(count, at, true) }
    });
    let mut world = World::new(configs.collect(), 1);
    world.settle();
    world
}

/// Nodes of which the first has this route to all others, not connected.
fn routed(count: usize, via: &[usize]) -> World {
    let mut configs = chains(count, true);
    let via = via.iter().map(|at| node(*at)).collect();
    configs[0].routing = Routing::Static(vec![Entry { to: Pattern::Any, via }]);
    for (at, config) in configs.iter_mut().enumerate().skip(1) {
        let to = |to: usize| Entry { to: Pattern::Node(node(to)), via: vec![node(to)] };
        config.routing = Routing::Static((0..count).filter(|to| *to != at).map(to).collect());
    }
    let mut world = World::new(configs, 1);
    world.settle();
    world
}

/// Sends a bundle of about 1,000 bytes from the first node.
fn send(world: &mut World, to: usize) {
    let request = SendRequest::new(endpoint(to), vec![7; 900]);
    let now = world.now;
    world.nodes[0].agent.send(now, request).unwrap();
    world.drain(0);
    world.settle();
}

fn taken(world: &World, at: usize) -> usize {
    world.nodes[at].taken.len()
}

fn states(world: &World) -> Vec<State> {
    world.nodes[0].agent.bundles().map(|bundle| bundle.state).collect()
}

/// Nodes to which the first node sent bundles.
fn hops(world: &World) -> Vec<usize> {
    world.crossed.iter().filter(|(from, ..)| *from == 0).map(|(_, to, _)| *to).collect()
}

/// A contact with a rate of 1 MB/s.
fn fast(from: u64, to: u64, start: u64, end: u64) -> Contact {
    Contact { rate_bps: 8_000_000, ..contact(from, to, start, end) }
}

/// Requirements: B44, B50.
#[test]
fn a_flap_of_the_only_contact_strands_no_bundle() {
    let mut world = planned(3, &[fast(1, 2, 0, DAY), fast(2, 3, 0, DAY)]);
    world.connect(0, 1);
    world.connect(1, 2);
    world.settle();
    world.disconnect(0, 1);
    // The contact has failed, and there is no other.
    send(&mut world, 2);
    assert_eq!(states(&world), [State::Waiting]);
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 2), 1);
    // One in transit when the link breaks.
    let request = SendRequest::new(endpoint(2), vec![7; 5000]);
    let now = world.now;
    world.nodes[0].agent.send(now, request).unwrap();
    world.drain(0);
    while !world.nodes[0].agent.bundles().any(|bundle| bundle.state == State::Sending) {
        world.act(0, 0);
    }
    world.act(0, 1);
    world.carry(0);
    world.disconnect(0, 1);
    world.settle();
    assert_eq!(states(&world), [State::Waiting]);
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 2), 2);
}

#[test]
fn released_volume_is_used_by_waiting_bundles() {
    // One contact of 10,000 bytes.
    let mut world = planned(2, &[contact(1, 2, 100, 110)]);
    let now = world.now;
    let long = SendRequest::new(endpoint(1), vec![7; 9000]);
    let id = world.nodes[0].agent.send(now, long).unwrap();
    world.drain(0);
    world.settle();
    let second = SendRequest::new(endpoint(1), vec![8; 5000]);
    world.nodes[0].agent.send(now, second).unwrap();
    world.drain(0);
    world.settle();
    assert_eq!(states(&world), [State::Queued, State::Waiting]);
    world.nodes[0].agent.cancel(now, &id).unwrap();
    world.drain(0);
    world.pass(secs(2));
    assert_eq!(states(&world), [State::Queued]);
}

#[test]
fn a_missed_contact_is_routed_around() {
    // Nobody comes to the contact with 2, which ends at 16 s.
    let plan = [fast(1, 2, 10, 16), fast(2, 4, 10, 100), fast(1, 3, 13, 100), fast(3, 4, 13, 100)];
    let mut world = planned(4, &plan);
    world.connect(0, 2);
    world.connect(2, 3);
    send(&mut world, 3);
    assert_eq!(states(&world), [State::Queued]);
    world.pass(secs(8));
    assert_eq!((taken(&world, 3), hops(&world)), (1, vec![2]));
}

/// Requirements: B44, B48.
#[test]
fn a_contact_without_a_neighbour_fails_after_the_timeout() {
    // The route by 2 is a contact shorter.
    let plan = [
        fast(1, 2, 0, DAY),
        fast(2, 5, 0, DAY),
        fast(1, 3, 0, DAY),
        fast(3, 4, 0, DAY),
        fast(4, 5, 0, DAY),
    ];
    let mut world = planned(5, &plan);
    for (a, b) in [(0, 2), (2, 3), (3, 4)] {
        world.connect(a, b);
    }
    send(&mut world, 4);
    world.pass(secs(29));
    assert_eq!((taken(&world, 4), states(&world)), (0, vec![State::Queued]));
    world.pass(secs(2));
    assert_eq!((taken(&world, 4), hops(&world)), (1, vec![2]));
    // As long as it is failed, no bundle waits for it.
    send(&mut world, 4);
    assert_eq!(taken(&world, 4), 2);
    // When it comes after all, the shorter route is used again.
    world.connect(0, 1);
    world.connect(1, 4);
    send(&mut world, 4);
    assert_eq!((taken(&world, 4), hops(&world)), (3, vec![2, 2, 1]));
}

#[test]
fn a_layer_that_cannot_connect_ends_the_wait_for_a_contact() {
    let plan = [fast(1, 2, 0, DAY), fast(2, 4, 0, DAY), fast(1, 3, 1000, DAY), fast(3, 4, 0, DAY)];
    let mut world = planned(4, &plan);
    let at = LinkRef { layer: 0, link: LinkId(1) };
    world.nodes[0].config.links.insert(at, node(1));
    world.crash(0);
    world.settle();
    world.connect(1, 3);
    send(&mut world, 3);
    let now = world.now;
    let down = Event::Down { link: LinkId(1), why: "connection refused" };
    world.nodes[0].agent.handle_event(now, 0, down);
    world.drain(0);
    // It is queued for the contact with 3, which begins later; then 2 comes after all.
    assert_eq!(world.nodes[0].agent.wanted().into_iter().collect::<Vec<_>>(), [node(2)]);
    world.connect(0, 1);
    world.settle();
    assert_eq!((taken(&world, 3), hops(&world)), (1, vec![1]));
}

#[test]
fn routes_have_several_next_hops() {
    let mut world = routed(4, &[1, 2]);
    world.connect(1, 3);
    world.connect(2, 3);
    // Neither is up: it is queued for the first, and taken by the second, which comes up.
    send(&mut world, 3);
    assert_eq!(states(&world), [State::Queued]);
    world.connect(0, 2);
    world.settle();
    assert_eq!((taken(&world, 3), hops(&world)), (1, vec![2]));
    world.connect(0, 1);
    send(&mut world, 3);
    world.disconnect(0, 1);
    send(&mut world, 3);
    assert_eq!((taken(&world, 3), hops(&world)), (3, vec![2, 1, 2]));
}

/// Requirements: B48.
#[test]
fn a_refused_bundle_goes_to_another_neighbour() {
    let mut world = routed(4, &[1, 2]);
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        world.connect(a, b);
    }
    world.refusing.insert(1);
    send(&mut world, 3);
    assert_eq!((taken(&world, 3), hops(&world)), (1, vec![1, 2]));
    // The same with a plan.
    let plan = [fast(1, 2, 0, DAY), fast(2, 4, 0, DAY), fast(1, 3, 0, DAY), fast(3, 4, 0, DAY)];
    let mut world = planned(4, &plan);
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        world.connect(a, b);
    }
    world.refusing.insert(1);
    send(&mut world, 3);
    assert_eq!((taken(&world, 3), hops(&world)), (1, vec![1, 2]));
}

#[test]
fn a_refused_bundle_is_offered_once_a_session() {
    let by_plan = planned(2, &[fast(1, 2, 0, DAY)]);
    for mut world in [routed(2, &[1]), by_plan] {
        world.connect(0, 1);
        world.refusing.insert(1);
        send(&mut world, 1);
        world.pass(secs(600));
        assert_eq!((hops(&world), states(&world)), (vec![1], vec![State::Waiting]));
        world.disconnect(0, 1);
        world.connect(0, 1);
        world.pass(secs(600));
        assert_eq!((hops(&world), states(&world)), (vec![1, 1], vec![State::Waiting]));
        world.disconnect(0, 1);
        world.refusing.clear();
        world.connect(0, 1);
        world.settle();
        assert_eq!((taken(&world, 1), hops(&world)), (1, vec![1, 1, 1]));
        assert_eq!(world.nodes[0].agent.statistics().bundles, 0);
    }
}

#[test]
fn bundles_too_long_for_a_neighbour_wait_for_another_session() {
    let mut world = routed(2, &[1]);
    world.bundle_max = 500;
    world.connect(0, 1);
    let now = world.now;
    for _ in 0..20 {
        let request = SendRequest::new(endpoint(1), vec![7; 900]);
        let request = SendRequest { flags: BundleFlags::MUST_NOT_FRAGMENT, ..request };
        world.nodes[0].agent.send(now, request).unwrap();
    }
    world.drain(0);
    world.settle();
    assert!(states(&world).iter().all(|state| *state == State::Waiting));
    let request = SendRequest::new(endpoint(1), vec![7; 90]);
    world.nodes[0].agent.send(now, request).unwrap();
    world.drain(0);
    world.settle();
    assert_eq!((taken(&world, 1), states(&world).len()), (1, 20));
    world.disconnect(0, 1);
    world.bundle_max = 5000;
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 1), 21);
}

#[test]
fn an_expedited_bundle_passes_a_long_one() {
    let mut config = chain(2, 0, true);
    config.fragment = Some(10_000);
    let mut world = World::new(vec![config, chain(2, 1, true)], 1);
    world.piece = 1000;
    world.connect(0, 1);
    world.settle();
    let now = world.now;
    let request = |len: usize, priority| SendRequest {
        priority,
        version: Version::Six,
        ..SendRequest::new(endpoint(1), vec![7; len])
    };
    for (len, priority) in [(200_000, Priority::Normal), (100, Priority::Expedited)] {
        world.nodes[0].agent.send(now, request(len, priority)).unwrap();
        world.drain(0);
        while world.act(0, 0) {}
    }
    // Two fragments are in transit when it comes; it leaves with the end of the first.
    assert_eq!(world.in_transit(0, 1), 2);
    world.settle();
    let lengths: Vec<usize> = world.crossed.iter().map(|(_, _, bytes)| bytes.len()).collect();
    assert!(lengths[2] < 300 && lengths.iter().all(|len| *len <= 10_000), "{lengths:?}");
    let mut taken: Vec<usize> = world.nodes[1].taken.iter().map(|(_, it)| it.len()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [100, 200_000]);
}

#[test]
fn a_new_plan_and_new_routes_apply_to_queued_bundles() {
    let late = [fast(1, 2, 1000, DAY), fast(2, 4, 0, DAY), fast(3, 4, 0, DAY)];
    let mut world = planned(4, &late);
    for (a, b) in [(0, 2), (1, 3), (2, 3)] {
        world.connect(a, b);
    }
    let expired =
        SendRequest { lifetime: secs(500), ..SendRequest::new(endpoint(3), vec![7; 900]) };
    let now = world.now;
    world.nodes[0].agent.send(now, expired).unwrap();
    send(&mut world, 3);
    assert_eq!(states(&world), [State::Waiting, State::Queued]);
    // A contact with 3 that is current.
    let plan: Vec<Contact> = late.into_iter().chain([fast(1, 3, 0, DAY)]).collect();
    let plan = ContactPlan::new(plan, &[]).unwrap();
    let router = Router::new(1, plan, Settings::default());
    let change = |old: &mut Router| *old = router;
    assert!(world.nodes[0].agent.change_plan(now, change).is_some());
    world.drain(0);
    world.settle();
    assert_eq!((taken(&world, 3), hops(&world)), (2, vec![2, 2]));
    // Routes in place of the plan, by 2, and back to 3.
    let mut config = world.nodes[0].agent.config().clone();
    let entry = |via| vec![Entry { to: Pattern::Any, via: vec![node(via)] }];
    config.routing = Routing::Static(entry(1));
    world.nodes[0].agent.reload(now, config.clone());
    world.drain(0);
    assert!(world.nodes[0].agent.change_plan(now, |_| ()).is_none());
    send(&mut world, 3);
    assert_eq!(states(&world), [State::Queued]);
    config.routing = Routing::Static(entry(2));
    world.nodes[0].agent.reload(now, config);
    world.drain(0);
    world.settle();
    assert_eq!((taken(&world, 3), hops(&world)), (3, vec![2, 2, 2]));
}

#[test]
fn a_bundle_for_a_neighbour_heeds_the_plan() {
    // 10,000 bytes in each contact.
    let plan = [contact(1, 2, 100, 110), contact(1, 2, 200, 210)];
    let mut world = planned(2, &plan);
    let now = world.now;
    let request = |bytes: usize, lifetime| SendRequest {
        lifetime: secs(lifetime),
        ..SendRequest::new(endpoint(1), vec![7; bytes])
    };
    // Longer than a contact; expires before the second, and the first is full.
    for (bytes, lifetime) in [(9000, 1000), (20_000, 1000), (5000, 150), (5000, 1000)] {
        world.nodes[0].agent.send(now, request(bytes, lifetime)).unwrap();
    }
    world.drain(0);
    world.settle();
    use State::{Queued, Waiting};
    assert_eq!(states(&world), [Queued, Waiting, Waiting, Queued]);
    // A neighbour that comes unplanned takes them all the same.
    world.now += secs(10);
    world.connect(0, 1);
    world.pass(secs(10));
    assert_eq!(taken(&world, 1), 4);
    assert_eq!(world.now, Time::from_secs(30));
}

/// A bundle whose acknowledgement was lost comes back in a loop to a node that still holds it.
#[test]
fn copies_of_a_bundle_do_not_end_each_other() {
    let configs = [1, 2, 0].into_iter().enumerate().map(|(at, via)| {
        let entry = Entry { to: Pattern::Any, via: vec![node(via)] };
        Config { routing: Routing::Static(vec![entry]), ..chain(3, at, false) }
    });
    let mut world = World::new(configs.collect(), 1);
    world.settle();
    world.connect(0, 1);
    let now = world.now;
    world.nodes[0].agent.send(now, SendRequest::new(endpoint(3), vec![1; 10])).unwrap();
    world.drain(0);
    while world.act(0, 0) {}
    while world.carry(0) {}
    world.disconnect(0, 1);
    let held = |world: &World| [0, 1, 2].map(|n| world.nodes[n].agent.bundles().count());
    assert_eq!(held(&world), [1, 1, 0]);
    for (from, to) in [(1, 2), (2, 0), (0, 1)] {
        world.connect(from, to);
        world.settle();
        world.disconnect(from, to);
    }
    assert_eq!(held(&world), [0, 1, 0]);
}

/// A bundle comes back in a loop before the acknowledgement of its transmission.
#[test]
fn bundles_that_overtake_their_acknowledgements_are_not_lost() {
    for (version, hop_limit, returns) in [
        (Version::Seven, Some(30), 8),
        (Version::Seven, Some(200), 2),
        (Version::Seven, Some(200), 0),
        (Version::Seven, None, 8),
        (Version::Six, None, 2),
    ] {
        let configs = [1, 2, 0].into_iter().enumerate().map(|(at, via)| {
            let entry = Entry { to: Pattern::Any, via: vec![node(via)] };
            let mut config = Config { hop_limit, ..chain(3, at, false) };
            config.routing = Routing::Static(vec![entry]);
            config.limits.returns = returns;
            config
        });
        let mut world = World::new(configs.collect(), 1);
        world.settle();
        world.slow = [(0, 1), (1, 2), (2, 0)].into();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            world.connect(from, to);
        }
        let request = SendRequest { version, ..SendRequest::new(endpoint(3), vec![1; 10]) };
        let now = world.now;
        world.nodes[0].agent.send(now, request).unwrap();
        world.drain(0);
        for round in 0..100 {
            world.settle();
            let held: usize = world.nodes.iter().map(|it| it.agent.bundles().count()).sum();
            let is_end = |it: &Indication| matches!(it, Indication::Deleted { .. });
            let ends =
                world.nodes.iter().flat_map(|node| &node.indications).filter(|it| is_end(it));
            let what = format!("{version:?}, {hop_limit:?}, {returns}, round {round}");
            assert!(held > 0 || ends.count() > 0, "{what}: it is lost in silence");
            world.release();
        }
        assert!(world.crossed.len() < 200, "{}", world.crossed.len());
        world.pass(secs(2 * DAY));
        let held: usize = world.nodes.iter().map(|it| it.agent.bundles().count()).sum();
        assert_eq!(held, 0);
    }
}

/// A reload removes a link of a protocol without names, whose layer still reports on it.
#[test]
fn removed_links_keep_their_names_and_do_not_come_up() {
    let at = |link| LinkRef { layer: 0, link: LinkId(link) };
    let up = |agent: &mut Agent, link, window| {
        let neighbour = Neighbour {
            node: None,
            is_authenticated: false,
            bundle_max: u64::MAX,
            window,
            window_bytes: 0,
        };
        let now = Time::from_secs(10);
        agent.handle_event(now, 0, Event::Up { link: LinkId(link), neighbour });
    };
    let changes = |agent: &mut Agent| {
        let indications = std::iter::from_fn(|| agent.poll_indication());
        let change = |indication| match indication {
            Indication::Up { node } => Some((true, node)),
            Indication::Down { node, .. } => Some((false, node)),
            _ => None,
        };
        indications.filter_map(change).collect::<Vec<_>>()
    };
    let now = Time::from_secs(10);
    for was_up in [true, false] {
        let config = Config { links: [(at(1), node(1))].into(), ..chain(2, 0, false) };
        let mut agent = Agent::new(config, Rng::new(1, "agent"));
        if was_up {
            up(&mut agent, 1, 2);
            assert_eq!(changes(&mut agent), [(true, Some(node(1)))]);
        }
        agent.set_links(now, [(at(5), node(1))].into(), BTreeSet::new());
        up(&mut agent, 1, 2);
        up(&mut agent, 1, 0);
        agent.handle_event(now, 0, Event::Down { link: LinkId(1), why: "a test" });
        let expected: &[_] = if was_up { &[(false, Some(node(1)))] } else { &[] };
        assert_eq!(changes(&mut agent), expected);
        assert!(agent.nodes_up().is_empty());
        up(&mut agent, 5, 2);
        assert_eq!(changes(&mut agent), [(true, Some(node(1)))]);
    }
}
