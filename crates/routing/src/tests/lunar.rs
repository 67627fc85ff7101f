//! A thousand lunar plans of 13 nodes and about 400 contacts, checked by labels that keep all four
//! keys, contact by contact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::Rng;

use super::*;
use crate::changes::{Change, Draft};

/// Three stations (1 to 3), two relays (4, 5), four orbiters (6 to 9), four landers (10 to 13).
const NODES: u64 = 13;
const DAY: u64 = 86_400;

/// Both directions of a pass.
fn pass(draft: &mut Draft, pair: (u64, u64), (start, end): (u64, u64), rates: [u64; 2], owlt: u64) {
    let (start, end) = (at(start), at(end.min(DAY)));
    for ((from, to), rate_bps) in [pair, (pair.1, pair.0)].into_iter().zip(rates) {
        let contact = Contact { from, to, start, end, rate_bps, confidence: 1.0 };
        if draft.apply(&Change::AddContact(contact)).is_ok() {
            let owlt = Duration::from_millis(owlt);
            let range = Range { from, to, start, end, owlt };
            draft.apply(&Change::AddRange(range)).unwrap();
        }
    }
}

/// Passes with a period, a length and a phase.
fn passes(
    draft: &mut Draft,
    rng: &mut Rng,
    pair: (u64, u64),
    (period, length): (u64, u64),
    (rates, owlt): ([u64; 2], u64),
) {
    let mut start = rng.below(period);
    while start + 300 < DAY {
        let lasts = length / 2 + rng.below(length);
        pass(draft, pair, (start, start + lasts), rates, owlt);
        start += period + rng.below(period / 20 + 1);
    }
}

/// Plan of a day.
fn day(seed: u64) -> ContactPlan {
    let mut rng = Rng::new(seed, "lunar");
    let mut draft = Draft::default();
    for relay in 4..6 {
        for station in 1..4 {
            let share = (9 * 3600, 5 * 3600);
            passes(&mut draft, &mut rng, (relay, station), share, ([40_000_000, 2_000_000], 1280));
        }
        for orbiter in 6..10 {
            let share = (5 * 3600, 5400);
            passes(&mut draft, &mut rng, (relay, orbiter), share, ([8_000_000; 2], 20));
        }
        for lander in 10..14 {
            let share = (6 * 3600, 7200);
            passes(&mut draft, &mut rng, (relay, lander), share, ([1_000_000; 2], 20));
        }
    }
    for orbiter in 6..10 {
        let station = 1 + rng.below(3);
        let share = (7200, 3000);
        passes(&mut draft, &mut rng, (orbiter, station), share, ([5_000_000, 64_000], 1280));
        for lander in 10..14 {
            let share = (5 * 3600, 600);
            passes(&mut draft, &mut rng, (orbiter, lander), share, ([256_000; 2], 3));
        }
    }
    draft.plan().unwrap()
}

/// Keys of a load after some contacts, and the node where it is then.
type Label = ((Time, usize, Reverse<Time>, u64), u64);

/// Whether one is never worse than another, whatever follows.
fn dominates(one: &Label, other: &Label) -> bool {
    let (one, other) = (&one.0, &other.0);
    one.0 <= other.0 && one.1 <= other.1 && one.2 <= other.2 && one.3 <= other.3
}

/// Best keys of all nodes, by all labels that no other dominates.
fn best(plan: &ContactPlan, from: u64, now: Time, volume: u64) -> Vec<Option<Label>> {
    let mut of: Vec<Vec<&Contact>> = vec![Vec::new(); NODES as usize + 1];
    for contact in plan.contacts() {
        of[contact.from as usize].push(contact);
    }
    let mut known: Vec<Vec<Label>> = vec![Vec::new(); NODES as usize + 1];
    let mut open = BinaryHeap::from([Reverse(((now, 0, Reverse(Time::MAX), 0), from))]);
    while let Some(Reverse(label)) = open.pop() {
        let ((ready, hops, ends, entry), node) = label;
        if known[node as usize].iter().any(|other| *other != label && dominates(other, &label)) {
            continue;
        }
        for contact in of[node as usize].iter().filter(|contact| contact.end >= ready) {
            let last = ready.max(contact.start) + contact.transmission_time(volume);
            if contact.to == from || last > contact.end {
                continue;
            }
            let arrives = last + plan.owlt(contact.from, contact.to, contact.start);
            let entry = if hops == 0 { contact.to } else { entry };
            let next = ((arrives, hops + 1, ends.max(Reverse(contact.end)), entry), contact.to);
            let others = &mut known[contact.to as usize];
            if !others.iter().any(|other| dominates(other, &next)) {
                others.retain(|other| !dominates(&next, other));
                others.push(next);
                open.push(Reverse(next));
            }
        }
    }
    known.into_iter().map(|labels| labels.into_iter().min()).collect()
}

#[test]
fn routes_of_1000_lunar_plans_conform() {
    let (mut routed, mut contacts) = (0, 0);
    for seed in 0..1000 {
        let plan = day(seed);
        contacts += plan.contacts().len();
        let mut rng = Rng::new(seed, "bundles");
        let (from, now) = (1 + rng.below(NODES), at(rng.below(DAY / 2)));
        let volume = [0, 10_000, 1_000_000, 20_000_000][rng.below(4) as usize];
        let expected = best(&plan, from, now, volume);
        let mut router = Router::new(from, plan, bare());
        for to in (1..=NODES).filter(|to| *to != from) {
            let found = router.best(now, &wanted(to, volume)).map(|route| {
                let hops = route.legs.len();
                ((route.arrives, hops, Reverse(route.terminates), route.next_hop), to)
            });
            assert_eq!(found, expected[to as usize], "seed {seed}: {from} to {to} at {now}");
            routed += usize::from(found.is_some());
        }
    }
    assert!((380_000..420_000).contains(&contacts), "{contacts}");
    assert!(routed > 9000, "{routed}");
}
