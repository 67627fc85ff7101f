//! All four keys, against an enumeration of all routes that visit no node twice. The enumeration
//! knows the definitions of CCSDS 734.3-B-1 §3.2.6 and no shortest paths.

use std::cmp::Reverse;

use engine::Rng;

use super::*;
use crate::changes::{Change, Draft};

/// Keys of a route, then its place in the order of the plan.
pub(super) type Key = (Time, usize, Reverse<Time>, u64, Vec<usize>);

/// Candidate by the definitions: §3.2.6.2 to 3.2.6.9, for a bundle that must not be fragmented.
fn candidate(plan: &ContactPlan, route: &[usize], now: Time, volume: u64) -> Option<Key> {
    let contacts: Vec<&Contact> = route.iter().map(|n| &plan.contacts()[*n]).collect();
    let mut ready = now;
    let mut firsts = Vec::new();
    for contact in &contacts {
        let first = ready.max(contact.start);
        firsts.push(first);
        let last = first + contact.transmission_time(volume);
        ready = last + plan.owlt(contact.from, contact.to, contact.start);
    }
    for (n, first) in firsts.iter().enumerate() {
        let stop = contacts[n..].iter().map(|contact| contact.end).min()?;
        if volume == 0 {
            // By time alone: a window includes its end.
            if *first > stop {
                return None;
            }
            continue;
        }
        let left = u128::from(stop.since(*first).as_nanos() as u64);
        let limit = left * u128::from(contacts[n].rate_bps) / 8_000_000_000;
        if limit < u128::from(volume) {
            return None;
        }
    }
    let ends = contacts.iter().map(|contact| contact.end).min()?;
    Some((ready, route.len(), Reverse(ends), contacts[0].to, route.to_vec()))
}

/// All candidates, in no order.
fn all(
    plan: &ContactPlan,
    (from, to): (u64, u64),
    (now, volume): (Time, u64),
    route: &mut Vec<usize>,
    found: &mut Vec<Key>,
) {
    for (n, contact) in plan.contacts().iter().enumerate() {
        let mut visited = route.iter().map(|n| plan.contacts()[*n].from).chain([from]);
        if contact.from != from || visited.any(|node| node == contact.to) {
            continue;
        }
        route.push(n);
        // No continuation of what cannot be sent is a candidate.
        if let Some(key) = candidate(plan, route, now, volume) {
            if contact.to == to {
                found.push(key);
            } else {
                all(plan, (contact.to, to), (now, volume), route, found);
            }
        }
        route.pop();
    }
}

/// Keys of a route of the router.
pub(super) fn key(router: &Router, route: &Route) -> Key {
    let plan = router.plan().contacts();
    let place = |id| {
        let contact = router.contact(id).unwrap();
        plan.iter().position(|known| known == contact).unwrap()
    };
    let places: Vec<usize> = route.contacts().map(place).collect();
    (route.arrives, places.len(), Reverse(route.terminates), route.next_hop, places)
}

/// Random plan of nodes from 1 on, with many equal times.
pub(super) fn random_plan(rng: &mut Rng, nodes: u64, contacts: u64) -> ContactPlan {
    let mut draft = Draft::default();
    // A node may have a twin, which makes routes that differ in their nodes alone.
    let twin = if rng.chance(0.4) { Some((2 + rng.below(nodes - 1), nodes)) } else { None };
    let twin_of = |node| twin.filter(|(one, _)| *one == node).map_or(node, |(_, other)| other);
    for _ in 0..contacts {
        let (from, to) = (1 + rng.below(nodes), 1 + rng.below(nodes));
        let start = rng.below(6) * 10;
        let end = start + 10 * (1 + rng.below(3));
        let rate_bps = [8000, 8000, 8000, 8000, 4000, 24_000, 7000][rng.below(7) as usize];
        let (start, end) = (at(start), at(end));
        let owlt = Duration::from_secs([0, 1, 1, 1, 3][rng.below(5) as usize]);
        for (from, to) in [(from, to), (twin_of(from), twin_of(to))] {
            let new = Contact { from, to, start, end, rate_bps, confidence: 1.0 };
            // Not all contacts find a place.
            if draft.apply(&Change::AddContact(new)).is_ok() {
                draft.apply(&Change::AddRange(Range { from, to, start, end, owlt })).unwrap();
            }
        }
    }
    draft.plan().unwrap()
}

#[test]
fn the_best_route_of_2000_plans_has_the_best_keys() {
    let (mut routed, mut decided) = (0, [0; 5]);
    for seed in 0..2000 {
        let mut rng = Rng::new(seed, "plans");
        let nodes = 3 + rng.below(6);
        let contacts = 6 + rng.below(14);
        let plan = random_plan(&mut rng, nodes, contacts);
        let mut router = Router::new(1, plan.clone(), bare());
        for _ in 0..4 {
            let (to, now) = (2 + rng.below(nodes - 1), at(rng.below(40)));
            let volume = [0, 1000, 3000, 9999][rng.below(4) as usize];
            let mut keys = Vec::new();
            all(&plan, (1, to), (now, volume), &mut Vec::new(), &mut keys);
            keys.sort();
            let best = router.best(now, &wanted(to, volume));
            let found = best.as_ref().map(|route| key(&router, route));
            assert_eq!(found.as_ref(), keys.first(), "seed {seed}, to {to} at {now}, {volume}");
            if let [first, second, ..] = keys.as_slice() {
                let equal = [
                    first.0 == second.0,
                    first.1 == second.1,
                    first.2 == second.2,
                    first.3 == second.3,
                ];
                decided[equal.iter().take_while(|equal| **equal).count()] += 1;
            }
            routed += usize::from(found.is_some());
        }
    }
    // Each key decides often enough, and so does the order of the plan.
    assert!(routed > 3000 && decided.iter().all(|count| *count > 5), "{routed} {decided:?}");
}

#[test]
fn lists_have_all_routes_in_order() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed, "lists");
        let contacts = 6 + rng.below(12);
        let plan = random_plan(&mut rng, 6, contacts);
        let router = Router::new(1, plan.clone(), bare());
        let volume = [0, 2000][rng.below(2) as usize];
        let mut keys = Vec::new();
        all(&plan, (1, 2), (at(0), volume), &mut Vec::new(), &mut keys);
        keys.sort();
        let routes = router.routes(at(0), &wanted(2, volume), 1000);
        let found: Vec<Key> = routes.iter().map(|route| key(&router, route)).collect();
        assert_eq!(found.len(), keys.len(), "seed {seed}");
        assert_eq!(found, keys, "seed {seed}");
    }
}
