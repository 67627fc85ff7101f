//! Volume that is booked of a contact fits into what is left of it.

use engine::Rng;

use super::oracle::random_plan;
use super::*;

#[test]
fn a_contact_that_has_begun_is_booked_for_what_is_left_of_it() {
    // 30 of 40 s have passed without a bundle: 10 of 100 bundles of 1,000 bytes still fit.
    let mut router = router(1, "1-2 0-40/0, 1-3 0-400/1, 3-2 0-400/1");
    let mut direct = 0;
    for _ in 0..100 {
        let route = router.best(at(30), &wanted(2, 1000)).unwrap();
        router.promise(&route, 1000, Priority::Normal);
        direct += usize::from(route.next_hop == 2);
    }
    assert_eq!(direct, 10);
}

#[test]
fn bookings_leave_gaps_to_bundles_that_are_ready_earlier() {
    // A bundle that node 2 has at 50 s does not keep the contact with 3 from one at 0 s.
    let mut router = router(1, "1-2 50-60/0, 1-4 0-60/0, 4-2 0-60/0, 2-3 0-90/0");
    let late = Wanted { excluded: &BTreeSet::from([4]), ..wanted(3, 5000) };
    let route = router.best(at(0), &late).unwrap();
    assert_eq!(nodes(&router, &route), (vec![2, 3], 60.0));
    router.promise(&route, 5000, Priority::Normal);
    let route = router.best(at(0), &wanted(3, 1000)).unwrap();
    assert_eq!(nodes(&router, &route), (vec![4, 2, 3], 3.0));
}

#[test]
fn what_is_booked_is_less_than_what_is_left() {
    let mut booked = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed, "bookings");
        let contacts = 10 + rng.below(30);
        let mut router = Router::new(1, random_plan(&mut rng, 5, contacts), Settings::default());
        let mut legs = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..80 {
            let bytes = 1 + rng.below(3000);
            if let Some(route) = router.best(now, &wanted(2 + rng.below(4), bytes)) {
                router.promise(&route, bytes, Priority::Normal);
                if rng.chance(0.1) {
                    router.release(&route, bytes, Priority::Normal);
                } else {
                    let volume = router.settings().volume(bytes);
                    legs.extend(route.legs.iter().map(|leg| (leg.contact, leg.last, volume)));
                    booked += 1;
                }
                for leg in &route.legs {
                    let contact = router.contact(leg.contact).unwrap();
                    assert!(leg.first >= now.max(contact.start) && leg.last <= contact.end);
                }
            }
            for leg in &legs {
                let contact = router.contact(leg.0).unwrap();
                let same = legs.iter().filter(|other| other.0 == leg.0 && other.1 > now);
                let promised: u64 = same.map(|other| other.2).sum();
                // One bundle may be under way.
                let left = contact.end.since(now).as_nanos() * u128::from(contact.rate_bps);
                let left = u64::try_from(left / 8_000_000_000).unwrap();
                assert!(promised <= left + 3100, "seed {seed}: {promised} of {left}");
            }
            if rng.chance(0.4) {
                now += Duration::from_millis(rng.below(2000));
            }
        }
    }
    assert!(booked > 3000, "{booked}");
}
