//! Vectors: of CCSDS 734.3-B-1 as computed by hand, of verified-sabr (MIT), of A-SABR (MIT), and
//! of issues of HDTN. Those by time alone have bundles of 0 bytes.

use super::*;
use crate::settings::{Exclusion, LightTime, List, Margin, Queueing, Ties};

/// Best route by time alone.
fn by_time(text: &str, (from, to): (u64, u64), now: u64) -> Option<(Vec<u64>, f64)> {
    let mut router = router(from, text);
    let route = router.best(at(now), &wanted(to, 0))?;
    Some(nodes(&router, &route))
}

const TUTORIAL: &str = "1-2 0-60/1, 2-3 0-60/1, 1-3 0-60/1, 3-4 0-30/1, 1-5 10-20/1, 4-5 0-10/1, \
                        4-5 30-40/1, 4-5 50-60/1";

#[test]
fn volumes_and_times_of_a_bundle() {
    let settings = Settings::default();
    let plan = plan("1-2 0-100/1*1000, 2-3 5-60/2*500");
    let mut router = Router::new(1, plan, settings);
    let route = router.best(at(0), &wanted(3, 1000)).unwrap();
    let firsts: Vec<f64> = route.legs.iter().map(|leg| leg.first.as_secs_f64()).collect();
    assert_eq!(firsts, [0.0, 5.0]);
    assert_eq!(route.arrives.as_secs_f64(), 9.2);
    assert_eq!(router.best_case(at(0), &route), Some(at(7)));
    assert_eq!(router.volume_limits(&route, Priority::Normal), [60_000, 27_500]);
    // 3,884 bytes and 3 % are 4,000 bytes of backlog.
    let before = router.best(at(0), &wanted(2, 3884)).unwrap();
    router.promise(&before, 3884, Priority::Normal);
    let route = router.best(at(0), &wanted(3, 1000)).unwrap();
    let firsts: Vec<f64> = route.legs.iter().map(|leg| leg.first.as_secs_f64()).collect();
    assert_eq!(firsts, [4.0, 6.1]);
    assert_eq!(route.arrives.as_secs_f64(), 10.3);
    assert_eq!(router.volume_limits(&route, Priority::Normal), [56_000, 26_950]);
    // Higher priorities do not wait for it.
    let urgent = Wanted { priority: Priority::Expedited, ..wanted(3, 1000) };
    assert_eq!(router.best(at(0), &urgent).unwrap().arrives.as_secs_f64(), 9.2);
}

#[test]
fn overheads_of_the_standard_and_of_ion() {
    let settings = Settings::default();
    assert_eq!([1, 1000, 10_000].map(|bytes| settings.volume(bytes)), [101, 1100, 10_300]);
    let ion = Settings { overhead_ppm: 62_500, overhead_min: 36, ..settings };
    assert_eq!([0, 1, 1000].map(|bytes| ion.volume(bytes)), [0, 37, 1062]);
}

#[test]
fn the_tutorial_has_seven_routes() {
    assert_eq!(by_time(TUTORIAL, (1, 5), 0), Some((vec![3, 4, 5], 3.0)));
    let router = router(1, TUTORIAL);
    let routes = router.routes(at(0), &wanted(5, 0), 20);
    let found: Vec<_> = routes.iter().map(|route| nodes(&router, route)).collect();
    let (by_3, by_2) = (vec![3, 4, 5], vec![2, 3, 4, 5]);
    let expected = [
        (by_3.clone(), 3.0),
        (by_2.clone(), 4.0),
        (vec![5], 11.0),
        (by_3.clone(), 31.0),
        (by_2.clone(), 31.0),
        (by_3, 51.0),
        (by_2, 51.0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn key_2_fewest_contacts() {
    let text = "1-2 0-10/0, 2-3 0-10/0, 1-3 0-10/0";
    assert_eq!(by_time(text, (1, 3), 0), Some((vec![3], 0.0)));
}

#[test]
fn key_3_latest_termination() {
    let text = "1-2 0-10/1, 2-4 2-20/1, 1-3 0-8/1, 3-4 2-30/1";
    assert_eq!(by_time(text, (1, 4), 0), Some((vec![2, 4], 3.0)));
}

#[test]
fn key_4_smallest_number_of_the_entry_node() {
    let text = "1-2 0-10/1, 2-4 2-20/1, 1-3 0-20/1, 3-4 2-10/1";
    assert_eq!(by_time(text, (1, 4), 0), Some((vec![2, 4], 3.0)));
    // Numbers are not compared as text.
    let text = "1-10 0-10/1, 10-4 2-10/1, 1-2 0-10/1, 2-4 2-10/1";
    assert_eq!(by_time(text, (1, 4), 0), Some((vec![2, 4], 3.0)));
}

#[test]
fn a_node_reached_early_by_many_contacts_is_not_closed() {
    let text = "1-2 0-100/1, 2-3 0-100/1, 1-3 0-100/3, 3-4 0-100/1, 4-5 5-100/1";
    assert_eq!(by_time(text, (1, 5), 0), Some((vec![3, 4, 5], 6.0)));
}

#[test]
fn the_end_of_a_window_is_part_of_it() {
    let text = "1-2 100-200/3, 2-3 100-200/3, 1-2 300-400/3";
    assert_eq!(by_time(text, (1, 3), 197), Some((vec![2, 3], 203.0)));
    assert_eq!(by_time(text, (1, 3), 198), None);
}

#[test]
fn the_stored_route_of_a_full_tie_pays() {
    // Two routes from 1 by 2, then 3 or 4; 4,000 bytes fit over each contact to 5. What is left
    // from node 3 afterwards depends on the route that was taken.
    let text = "1-2 0-10/0*4000000, 2-3 0-10/0*4000000, 2-4 0-10/0*4000000, 3-5 5-9/0, \
                4-5 5-9/0";
    for (ties, taken) in [(Ties::First, 3), (Ties::Last, 4)] {
        let mut router = Router::new(1, plan(text), Settings { ties, ..bare() });
        let route = router.best(at(0), &wanted(5, 4000)).unwrap();
        assert_eq!(nodes(&router, &route), (vec![2, taken, 5], 9.0));
        router.promise(&route, 4000, Priority::Normal);
        let next = router.best(at(0), &wanted(5, 4000)).unwrap();
        assert_eq!(nodes(&router, &next), (vec![2, 7 - taken, 5], 9.0));
        let other = BTreeSet::from([7 - taken]);
        let settings = Settings { ties, exclusion: Exclusion::Everywhere, ..bare() };
        let mut strict = Router::new(1, plan(text), settings);
        strict.promise(&route, 4000, Priority::Normal);
        let only = Wanted { excluded: &other, ..wanted(5, 4000) };
        assert_eq!(strict.best(at(0), &only), None);
    }
}

#[test]
fn a_sabr_plan_1_two_contacts() {
    let text = "0-1 0-10/0*1, 0-2 25-35/0*1, 1-2 10-20/0*1, 2-3 30-40/0*1";
    assert_eq!(by_time(text, (0, 3), 0), Some((vec![2, 3], 30.0)));
}

#[test]
fn a_sabr_plan_2_three_contacts() {
    let text = "0-1 0-10/0*1, 0-2 25-35/0*1, 1-2 10-20/0*1, 2-3 20-40/0*1, 3-4 50-60/0*1";
    assert_eq!(by_time(text, (0, 4), 0), Some((vec![2, 3, 4], 50.0)));
}

#[test]
fn the_last_byte_counts_for_the_arrival() {
    // By 2 the first byte arrives earlier, and the last byte later.
    let mut router = router(1, "1-2 0-90/1*1000, 2-4 0-90/1*100, 1-3 5-90/1*1000, 3-4 5-90/1*1000");
    assert_eq!(router.best(at(0), &wanted(4, 100)).unwrap().next_hop, 2);
    assert_eq!(router.best(at(0), &wanted(4, 1000)).unwrap().next_hop, 3);
}

#[test]
fn margins_of_light_times() {
    for (margin, light, arrival) in [
        (Margin::Off, 1491, 1491.0),
        (Margin::Ion, 1490, 1490.0),
        (Margin::Ion, 1491, 1492.0),
        // 186,282 s * 125 / 186,282 = 125 s.
        (Margin::Exact, 186_282, 186_407.0),
    ] {
        let plan = plan(&format!("1-2 0-10/{light}"));
        let mut router = Router::new(1, plan, Settings { margin, ..bare() });
        let route = router.best(at(0), &wanted(2, 0)).unwrap();
        assert_eq!(route.arrives.as_secs_f64(), arrival);
    }
}

#[test]
fn the_first_candidate_has_the_earliest_best_case() {
    // The first byte arrives earlier by 2, the last byte by 3.
    let text = "1-2 0-90/1*10, 2-4 0-90/1*1000, 1-3 5-90/1*1000, 3-4 5-90/1*1000";
    for (list, entry) in [(List::Complete, 3), (List::First, 2)] {
        let mut router = Router::new(1, plan(text), Settings { list, ..bare() });
        assert_eq!(router.best(at(0), &wanted(4, 500)).unwrap().next_hop, entry);
        // 1,000 bytes are too many for the contact with 2.
        assert_eq!(router.best(at(0), &wanted(4, 1000)).unwrap().next_hop, 3);
    }
}

#[test]
fn parts_leave_if_the_settings_allow_it() {
    let text = "1-2 0-10/1, 1-3 20-90/1, 3-2 20-90/1";
    for (partial, entry) in [(false, 3), (true, 2)] {
        let mut router = Router::new(1, plan(text), Settings { partial, ..bare() });
        assert_eq!(router.best(at(0), &wanted(2, 15_000)).unwrap().next_hop, entry);
        assert_eq!(router.best(at(10), &wanted(2, 15_000)).unwrap().next_hop, 3);
    }
}

#[test]
fn excluded_nodes_are_no_entry_or_not_visited() {
    let text = "1-2 0-90/1, 1-3 0-90/1, 3-2 0-90/1, 2-4 0-90/1";
    let excluded = BTreeSet::from([2]);
    for (exclusion, found) in [(Exclusion::Entry, Some(3)), (Exclusion::Everywhere, None)] {
        let mut router = Router::new(1, plan(text), Settings { exclusion, ..bare() });
        let wanted = Wanted { excluded: &excluded, ..wanted(4, 0) };
        assert_eq!(router.best(at(0), &wanted).map(|route| route.next_hop), found);
    }
}

#[test]
fn bookings_of_later_contacts_delay_or_take_volume() {
    let text = "1-2 0-90/0, 2-3 50-60/0";
    for (queueing, arrivals) in [(Queueing::Every, [54.0, 58.0]), (Queueing::First, [54.0, 54.0])] {
        let mut router = Router::new(1, plan(text), Settings { queueing, ..bare() });
        for arrival in arrivals {
            let route = router.best(at(0), &wanted(3, 4000)).unwrap();
            assert_eq!(route.arrives.as_secs_f64(), arrival);
            router.promise(&route, 4000, Priority::Normal);
        }
        assert_eq!(router.best(at(0), &wanted(3, 4000)), None);
    }
}

#[test]
fn a_bundle_for_here_may_take_a_loop() {
    assert_eq!(by_time("1-2 0-90/1, 2-1 0-90/1", (1, 1), 5), Some((vec![2, 1], 7.0)));
    // No route leads back here on its way to another node.
    let router = router(1, "1-2 0-90/1, 2-1 0-90/1, 1-3 0-90/1");
    assert_eq!(router.routes(at(0), &wanted(3, 0), 9).len(), 1);
    // Unless nodes may be visited twice, others are not either.
    let text = "1-2 0-90/1, 2-3 0-90/1, 3-2 0-90/1, 3-4 0-90/1";
    for (revisits, routes) in [(false, 1), (true, 5)] {
        let router = Router::new(1, plan(text), Settings { revisits, ..bare() });
        assert_eq!(router.routes(at(0), &wanted(4, 0), 5).len(), routes);
    }
}

#[test]
fn bytes_do_not_overtake_each_other_when_light_times_shrink() {
    let contact = plan("1-2 0-100/0").contacts()[0];
    let range = |start, end, owlt| Range {
        from: 1,
        to: 2,
        start: at(start),
        end: at(end),
        owlt: Duration::from_secs(owlt),
    };
    let plan = ContactPlan::new(vec![contact], &[range(0, 50, 9), range(50, 100, 5)]).unwrap();
    for (light_time, arrivals) in
        [(LightTime::Sending, [49, 59, 59, 65]), (LightTime::Start, [49, 59, 61, 69])]
    {
        let mut router = Router::new(1, plan.clone(), Settings { light_time, ..bare() });
        let found = [40, 50, 52, 60].map(|now| {
            let route = router.best(at(now), &wanted(2, 0)).unwrap();
            route.arrives.as_nanos().div_ceil(1_000_000_000)
        });
        // What leaves at 50 s would arrive at 55 s, after what left just before and arrives at 59 s.
        assert_eq!(found, arrivals);
    }
}

#[test]
fn the_hop_limit_bounds_routes() {
    let text = "1-2 0-90/1, 2-3 0-90/1, 3-4 0-90/1, 1-4 50-90/1";
    for (hops, arrival) in [(3, 3.0), (2, 51.0)] {
        let mut router = Router::new(1, plan(text), Settings { hops, ..bare() });
        assert_eq!(router.best(at(0), &wanted(4, 0)).unwrap().arrives.as_secs_f64(), arrival);
    }
}

#[test]
fn contacts_of_little_confidence_are_left_out() {
    let mut contacts = plan("1-2 0-90/1, 1-3 0-90/1, 3-2 0-90/1").contacts().to_vec();
    contacts[0].confidence = 0.5;
    let plan = ContactPlan::new(contacts, &[]).unwrap();
    for (confidence_min, entry) in [(50, 2), (51, 3)] {
        let mut router = Router::new(1, plan.clone(), Settings { confidence_min, ..bare() });
        assert_eq!(router.best(at(0), &wanted(2, 0)).unwrap().next_hop, entry);
    }
}
