//! The earliest route, compared with an exhaustive search.

use std::collections::BTreeSet;

use engine::Time;
use proptest::prelude::*;
use routing::settings::Settings;

use super::super::contacts::{Contact, ContactPlan, Range};
use super::super::routes::{ContactId, Priority, Route, Router, Wanted};
use super::contacts::{at, contact, range};

static NOBODY: BTreeSet<u64> = BTreeSet::new();

fn wanted(destination: u64, bytes: u64) -> Wanted<'static> {
    let priority = Priority::Normal;
    Wanted { destination, bytes, priority, expires: Time::MAX, excluded: &NOBODY }
}

fn router(contacts: &[Contact], ranges: &[Range]) -> Router {
    Router::new(1, ContactPlan::new(contacts.to_vec(), ranges).unwrap(), exact())
}

/// No overhead of lower layers.
fn exact() -> Settings {
    Settings { overhead_ppm: 0, overhead_min: 0, ..Settings::default() }
}

fn ends(route: &Route) -> (u64, f64, f64) {
    (route.next_hop, route.leaves.as_secs_f64(), route.arrives.as_secs_f64())
}

#[test]
fn a_faster_detour_is_taken() {
    // 1 to 3 directly from 100 s on, or earlier over 2.
    let contacts = [contact(1, 3, 100, 200), contact(1, 2, 10, 20), contact(2, 3, 30, 40)];
    let mut router = router(&contacts, &[range(1, 2, 0, 1000, 2), range(2, 3, 0, 1000, 5)]);
    let route = router.best(at(0), &wanted(3, 1000)).unwrap();
    assert_eq!(ends(&route), (2, 10.0, 36.0));
    assert_eq!(route.legs.len(), 2);
    // 9,500 bytes leave 2 at 30 + 9.5 s; 10,001 are more than its contact holds.
    assert_eq!(ends(&router.best(at(0), &wanted(3, 9500)).unwrap()), (2, 10.0, 44.5));
    assert_eq!(ends(&router.best(at(0), &wanted(3, 10_001)).unwrap()), (3, 100.0, 110.001));
    // Too late for the first contact.
    assert_eq!(ends(&router.best(at(19), &wanted(3, 2000)).unwrap()), (3, 100.0, 102.0));
    let excluded = BTreeSet::from([2]);
    let without = Wanted { excluded: &excluded, ..wanted(3, 1000) };
    assert_eq!(ends(&router.best(at(0), &without).unwrap()), (3, 100.0, 101.0));
    let soon = Wanted { expires: at(35), ..wanted(3, 1000) };
    assert_eq!(router.best(at(0), &soon), None);
    assert_eq!(router.best(at(201), &wanted(3, 1)), None);
    assert_eq!(router.best(at(0), &wanted(9, 1)), None);
}

#[test]
fn reserved_volume_counts_by_priority() {
    let mut router = router(&[contact(1, 2, 10, 20), contact(1, 2, 50, 60)], &[]);
    let first = router.best(at(0), &wanted(2, 6000)).unwrap();
    router.promise(&first, 6000, Priority::Normal);
    assert_eq!(ends(&router.best(at(0), &wanted(2, 4000)).unwrap()), (2, 16.0, 20.0));
    assert_eq!(ends(&router.best(at(0), &wanted(2, 4001)).unwrap()), (2, 50.0, 54.001));
    let urgent = Wanted { priority: Priority::Expedited, ..wanted(2, 6000) };
    assert_eq!(ends(&router.best(at(0), &urgent).unwrap()), (2, 10.0, 16.0));
    router.release(&first, 6000, Priority::Normal);
    assert_eq!(ends(&router.best(at(0), &wanted(2, 4001)).unwrap()), (2, 10.0, 14.001));
    // Expired contacts are forgotten, which changes nothing.
    router.forget_before(at(30));
    assert_eq!(ends(&router.best(at(30), &wanted(2, 1000)).unwrap()), (2, 50.0, 51.0));
    let next = router.next_contact(at(20), 2).unwrap();
    assert_eq!(next.start, at(50));
}

/// The earliest arrival over all sequences of contacts that visit no node twice.
fn exhaustive(
    plan: &ContactPlan,
    node: u64,
    at: Time,
    to: u64,
    seen: &mut Vec<u64>,
) -> Option<Time> {
    if node == to {
        return Some(at);
    }
    seen.push(node);
    let mut best = None;
    for contact in plan.contacts().iter().filter(|c| c.from == node) {
        if seen.contains(&contact.to) {
            continue;
        }
        let leaves = at.max(contact.start);
        let sent = leaves + contact.transmission_time(1000);
        if sent <= contact.end {
            let there = sent + plan.owlt(node, contact.to, leaves);
            let arrives = exhaustive(plan, contact.to, there, to, seen);
            best = [best, arrives].into_iter().flatten().min();
        }
    }
    seen.pop();
    best
}

proptest! {
    #[test]
    fn no_route_arrives_earlier(
        given in prop::collection::vec((1u64..6, 1u64..6, 0u64..60, 1u64..20, 1u64..4), 0..24),
        owlts in prop::collection::vec((1u64..6, 1u64..6, 0u64..5), 0..10),
        to in 2u64..6,
        from in 0u64..30,
    ) {
        let mut contacts: Vec<Contact> = Vec::new();
        for (a, b, start, len, rate) in given {
            let new = Contact { rate_bps: 8000 / rate, ..contact(a, b, start, start + len) };
            let all: Vec<Contact> = contacts.iter().copied().chain([new]).collect();
            if ContactPlan::new(all, &[]).is_ok() {
                contacts.push(new);
            }
        }
        let mut ranges: Vec<Range> = Vec::new();
        for (a, b, owlt) in owlts {
            let new = range(a, b, 0, 1000, owlt);
            if !ranges.iter().any(|known| (known.from, known.to) == (a, b)) {
                ranges.push(new);
            }
        }
        let plan = ContactPlan::new(contacts, &ranges).unwrap();
        let least = exhaustive(&plan, 1, at(from), to, &mut Vec::new());
        let mut router = Router::new(1, plan, exact());
        let route = router.best(at(from), &wanted(to, 1000));
        prop_assert_eq!(route.as_ref().map(|route| route.arrives), least);
        if let Some(route) = route {
            let ids: Vec<ContactId> = route.contacts().collect();
            let way: Vec<&Contact> = ids.iter().map(|id| router.contact(*id).unwrap()).collect();
            prop_assert_eq!(way[0].from, 1);
            prop_assert_eq!(way[0].to, route.next_hop);
            prop_assert!(way.windows(2).all(|pair| pair[0].to == pair[1].from));
            prop_assert_eq!(way[way.len() - 1].to, to);
        }
    }
}
