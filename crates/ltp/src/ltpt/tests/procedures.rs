//! Procedures of the profile, one transcript each.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Engine as _, PathKind, Time};

use super::world::{World, chain_settings, content, hop, hops, small};
use crate::ltpt::{Config, Indication, Limits, Otherwise, Routing, Undeliverable};
use crate::sealed::extensions;
use crate::segment::ltpt::Transport;
use crate::segment::{CancelReason, End, Extensions, Segment};
use crate::{Red, Remote};

const SIZE: usize = 2500;

fn three() -> World {
    World::chain(3, &Config::default(), &small())
}

#[test]
fn a_segment_is_relayed_before_the_block_is_whole() {
    let file = content(SIZE);
    let mut world = three();
    world.send_to(3, &file, Red::All);
    world.run();
    world.assert_relayed(&file);
    let expected = [
        "0 > red 0-1000",
        "0 > red 1000-2000",
        "0 > red 2000-2500",
        "0 > red EOB 2500-2524",
        "1 > red 0-1000",
        "1 > red 1000-2000",
        "1 > red 2000-2500",
        "1 > red EOB 2500-2524",
        "0 < RS 0-2524: 0-2524",
        "0 > RA",
        "1 < RS 0-2524: 0-2524",
        "1 > RA",
    ];
    let mut found = world.hop_lines();
    // The relay acknowledges and relays at the same moment.
    found.sort_by_key(|line| expected.iter().position(|other| other == line));
    assert_eq!(found, expected);
    // The first segment leaves the relay on arrival: 1,000 bytes and their headers take 0.9 ms.
    let on = world.log.iter().find(|sent| sent.hop == 1).expect("it goes on");
    assert!(on.at < Time::ZERO + Duration::from_micros(25_950), "{}", on.at);
    assert_eq!(world.transport_indications(1).len(), 3, "{:?}", world.transport_indications(1));
}

#[test]
fn without_cut_through_the_block_is_whole_first() {
    let file = content(SIZE);
    let config = Config { cut_through: false, ..Config::default() };
    let mut world = World::chain(3, &config, &small());
    world.send_to(3, &file, Red::All);
    world.run();
    world.assert_relayed(&file);
    let on = world.log.iter().find(|sent| sent.hop == 1).expect("it goes on");
    // 2,500 bytes at 10 Mbit/s, without headers.
    assert!(on.at > Time::ZERO + Duration::from_millis(27), "{}", on.at);
}

#[test]
fn every_loss_on_either_hop_is_repaired() {
    let file = content(SIZE);
    for hop in 0..2 {
        for end in 0..2 {
            for number in 0..8 {
                let mut world = three();
                world.lose_on(move |h, e, n| (h, e, n) == (hop, end, number));
                world.send_to(3, &file, Red::All);
                world.run();
                world.assert_relayed(&file);
            }
        }
    }
}

#[test]
fn a_gap_on_the_first_hop_does_not_delay_the_second() {
    let file = content(5000);
    let mut world = three();
    world.lose_on(|hop, end, number| (hop, end, number) == (0, 0, 1));
    world.send_to(3, &file, Red::All);
    world.run();
    world.assert_relayed(&file);
    let on: Vec<_> = world.hop_lines().into_iter().filter(|line| line.starts_with("1 >")).collect();
    assert_eq!(
        on,
        [
            "1 > red 0-1000",
            "1 > red 2000-3000",
            "1 > red 3000-4000",
            "1 > red 4000-5000",
            // The segment lost before is late, and the end is kept back.
            "1 > red 1000-2000",
            "1 > red EOB 5000-5024",
            "1 > RA",
        ],
        "{:#?}",
        world.hop_lines()
    );
}

#[test]
fn the_first_hop_is_settled_while_the_second_is_down() {
    let file = content(40_000);
    for is_known in [true, false] {
        let mut world = three();
        world.outage(1, Time::ZERO, Duration::from_secs(600), is_known);
        world.send_to(3, &file, Red::All);
        world.run_until(Time::ZERO + Duration::from_secs(10));
        let sender = world.results(0);
        assert_eq!(sender.len(), 1);
        assert!(sender[0].result.is_ok() && sender[0].is_confirmed);
        assert!(
            world
                .transport_indications(1)
                .iter()
                .any(|indication| matches!(indication, Indication::Kept(_)))
        );
        assert_eq!(world.hosts[1].engine.stored(), 40_024);
        world.run();
        world.assert_relayed(&file);
    }
}

#[test]
fn data_beyond_memory_are_read_back() {
    let file = content(300_000);
    let limits = crate::Limits {
        buffers: session::Buffers {
            write_piece: 8192,
            read_ahead: 4096,
            read_piece: 2048,
            ..session::Buffers::default()
        },
        ..crate::Limits::default()
    };
    let settings = (0..3).map(|i| crate::Config {
        limits: limits.clone(),
        ..chain_settings(i, 3, &Config::default(), &small())
    });
    for seed in 0..4 {
        let mut world = World::relays(settings.clone().collect(), hops(2));
        world.hops[1].info.rate_bps = Some(1_000_000);
        let mut rng = engine::Rng::new(seed, "losses");
        world.lose_on(move |_, _, _| rng.chance(0.05));
        world.outage(1, Time::ZERO + Duration::from_millis(300), Duration::from_secs(2), true);
        world.send_to(3, &file, Red::All);
        world.run();
        world.assert_relayed(&file);
    }
}

#[test]
fn a_congested_source_waits_and_retries() {
    let file = content(40_000);
    let limits = Limits { storage: 60_000, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let mut world = World::chain(3, &config, &small());
    world.outage(1, Time::ZERO, Duration::from_secs(60), true);
    world.send_to(3, &file, Red::All);
    world.run_until(Time::ZERO + Duration::from_secs(5));
    world.hosts[0].store.insert(super::world::name("source"), file.clone());
    let second = crate::SendRequest {
        destination: 3,
        source: super::world::name("source"),
        name: "second".into(),
        red: Red::All,
    };
    let now = world.now;
    world.hosts[0].engine.send(now, second).expect("a sound request");
    world.drain(0);
    world.run();
    assert!(world.copy(2) == Some(&file[..]));
    assert!(world.hosts[2].store.get(&super::world::name("second")) == Some(&file[..]));
    assert!(world.hop_lines().contains(&"0 < CR SYS_CNCLD, wait 10 s".to_owned()));
    let congested = world
        .transport_indications(0)
        .iter()
        .filter(|t| matches!(t, Indication::Congested { .. }))
        .count();
    assert!((5..8).contains(&congested), "{congested} in 55 s, one each 10 s");
    assert!(world.results(0).iter().all(|finished| finished.result.is_ok()));
    world.assert_clean();
}

#[test]
fn a_block_that_never_fits_is_refused() {
    let limits = Limits { storage: 10_000, ..Limits::default() };
    let mut world = World::chain(3, &Config { limits, ..Config::default() }, &small());
    world.send_to(3, &content(40_000), Red::All);
    world.run();
    let failure = world.results(0)[0].result.expect_err("it does not fit");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::Unreachable));
    world.assert_clean();
}

#[test]
fn a_block_without_a_route_is_refused() {
    let mut settings: Vec<_> =
        (0..3).map(|i| chain_settings(i, 3, &Config::default(), &small())).collect();
    let routing = &mut settings[1].transport.as_mut().expect("it speaks LTP-T").routing;
    *routing = Routing::Static { to: BTreeMap::new(), otherwise: Otherwise::Nowhere };
    let mut world = World::relays(settings, hops(2));
    world.send_to(3, &content(SIZE), Red::All);
    world.run();
    let failure = world.results(0)[0].result.expect_err("there is no way");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::Unreachable));
    assert!(world.hop_lines().iter().all(|line| line.starts_with('0')));
    world.assert_clean();
}

#[test]
fn a_cancellation_by_the_source_reaches_the_destination() {
    let mut world = three();
    let id = world.send_to(3, &content(400_000), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(120));
    let now = world.now;
    world.hosts[0].engine.cancel(now, id).expect("it is under way");
    world.drain(0);
    world.run();
    for (host, by) in [(0, End::Sender), (2, End::Sender)] {
        let failure = world.results(host)[0].result.expect_err("it was cancelled");
        assert_eq!((failure.by, failure.reason), (by, CancelReason::User));
    }
    world.assert_clean();
}

#[test]
fn a_cancellation_by_the_destination_reaches_the_source() {
    let mut world = three();
    world.send_to(3, &content(400_000), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(120));
    let (now, id) = (world.now, world.hosts[2].engine.sessions().next().expect("one").id);
    world.hosts[2].engine.cancel(now, id).expect("it is under way");
    world.drain(2);
    world.run();
    let failure = world.results(0)[0].result.expect_err("it was cancelled");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::User));
    world.assert_clean();
}

#[test]
fn a_cancellation_after_custody_reaches_the_relay_only() {
    let mut world = three();
    world.outage(1, Time::ZERO + Duration::from_millis(60), Duration::from_secs(10), true);
    world.send_to(3, &content(400_000), Red::All);
    world.run_until(Time::ZERO + Duration::from_secs(5));
    assert!(world.results(0)[0].result.is_ok(), "the relay has it");
    let (now, id) = (world.now, world.hosts[2].engine.sessions().next().expect("one").id);
    world.hosts[2].engine.cancel(now, id).expect("it is under way");
    world.run();
    let indications = world.transport_indications(1);
    let reason = Undeliverable::Cancelled(CancelReason::User);
    assert!(
        indications
            .iter()
            .any(|t| matches!(t, Indication::Undeliverable { reason: r, .. } if *r == reason)),
        "{indications:?}"
    );
    world.assert_clean();
}

#[test]
fn a_lifetime_ends_at_the_relay() {
    let config = Config { lifetime: Duration::from_secs(100), ..Config::default() };
    let mut world = World::chain(3, &config, &small());
    world.outage(1, Time::ZERO, Duration::from_secs(1000), true);
    world.send_to(3, &content(SIZE), Red::All);
    world.run();
    let indications = world.transport_indications(1);
    assert!(
        indications
            .iter()
            .any(|t| matches!(t, Indication::Undeliverable { reason: Undeliverable::Expired, .. })),
        "{indications:?}"
    );
    assert!(world.copy(2).is_none());
    world.assert_clean();
}

#[test]
fn relays_are_limited_by_the_hop_limit() {
    for (hops, arrives) in [(3, true), (2, false)] {
        let mut world = World::chain(5, &Config { hops, ..Config::default() }, &small());
        world.send_to(5, &content(SIZE), Red::All);
        world.run();
        assert_eq!(world.copy(4).is_some(), arrives, "{hops}");
        world.assert_clean();
    }
}

/// A relay that has forwarded everything sleeps until the next event, however fast its hops are.
#[test]
fn idle_relays_sleep_until_the_next_event() {
    let file = content(40_000);
    for report_gaps in [false, true] {
        let remote = Remote { checkpoint_every: Some(4_000), report_gaps, ..small() };
        let mut world = World::chain(3, &Config::default(), &remote);
        world.hops.iter_mut().for_each(|hop| hop.info.owlt = Some(Duration::from_micros(100)));
        // The block takes 34 ms to leave the source, and some of it is lost on either hop.
        world.lose_on(|_, end, number| end == 0 && number == 3);
        world.outage(0, Time::ZERO + Duration::from_millis(17), Duration::from_secs(600), false);
        world.send_to(3, &file, Red::All);
        world.run_until(Time::ZERO + Duration::from_secs(2));
        let before = world.hosts[1].wakes;
        world.run_until(Time::ZERO + Duration::from_secs(302));
        let wakes = world.hosts[1].wakes - before;
        assert!(wakes < 30, "{wakes} in 300 s: {:?}", world.hosts[1].engine.poll_timeout());
        world.run();
        world.assert_relayed(&file);
    }
}

#[test]
fn loops_are_detected() {
    // Engine 3 sends blocks for 4 back to 2.
    let mut settings: Vec<_> =
        (0..3).map(|i| chain_settings(i, 4, &Config::default(), &small())).collect();
    let routing = &mut settings[2].transport.as_mut().expect("it speaks LTP-T").routing;
    let Routing::Static { to, .. } = routing else { panic!("a static one") };
    to.insert(4, 2);
    let mut world = World::relays(settings, hops(2));
    world.send_to(4, &content(400_000), Red::All);
    world.run();
    let failure = world.results(0)[0].result.expect_err("there is no way");
    assert_eq!(failure.reason, CancelReason::Unreachable);
    assert!(world.log.len() < 400, "{} datagrams", world.log.len());
    world.assert_clean();
}

#[test]
fn kept_blocks_survive_the_relay() {
    let file = content(40_000);
    let mut world = three();
    world.outage(1, Time::ZERO, Duration::from_secs(60), true);
    world.crash_at(1, Time::from_secs(20));
    world.send_to(3, &file, Red::All);
    world.run();
    assert!(
        world
            .transport_indications(1)
            .iter()
            .any(|t| matches!(t, Indication::Restored { blocks: 1 }))
    );
    world.assert_relayed(&file);
}

/// A restarted engine may reuse the number of a session.
#[test]
fn kept_blocks_are_not_overwritten() {
    let file = content(SIZE);
    let mut world = three();
    world.outage(1, Time::ZERO, Duration::from_secs(60), true);
    world.send_to(3, &file, Red::All);
    world.run_until(Time::ZERO + Duration::from_secs(5));
    world.crash_at(1, Time::from_secs(6));
    world.run_until(Time::ZERO + Duration::from_secs(7));
    // The first segment again, as if it were of the source's next block.
    let first = world.log.first().expect("it was sent").bytes.clone();
    let segment = Segment::decode(&first).expect("what an engine sends can be read");
    let mut transport = Transport::from_extensions(segment.header).expect("and its extensions");
    transport.flow = transport.flow.map(|number| number + 1);
    let values = transport.values();
    let header: Vec<_> = extensions(&values).collect();
    let header = Extensions::new(&header);
    let other = Segment { header, ..Segment::new(segment.session, segment.body) };
    let relay = world.hops[0].ends[1];
    world.receive(relay, &other.to_vec().expect("it has a form"));
    assert_eq!(world.hop_lines().last().expect("it has a reply"), "0 < CR SYS_CNCLD");
    world.run();
    assert!(world.copy(2) == Some(&file[..]));
    world.assert_nothing_is_invented();
}

/// Wherever the relay dies, the file arrives once: unclaimed data comes again, and claimed data is
/// relayed.
#[test]
fn the_relay_may_die_before_any_effect() {
    let file = content(20_000);
    let remote = Remote { checkpoint_every: Some(6_000), ..small() };
    let mut deaths = 0;
    for effects in 0..60 {
        let mut world = World::chain(3, &Config::default(), &remote);
        world.lose_on(|hop, end, number| end == 0 && number % 7 == 3 && hop < 2);
        world.hosts[1].dies_after = Some(effects);
        world.send_to(3, &file, Red::All);
        world.run();
        deaths += usize::from(world.hosts[1].dies_after.is_none());
        assert!(world.copy(2) == Some(&file[..]), "after {effects}: {:#?}", world.hop_lines());
        let received = world.results(2).iter().filter(|f| f.result.is_ok()).count();
        assert_eq!(received, 1, "after {effects}");
        world.assert_clean();
    }
    assert!(deaths > 10, "{deaths}");
}

#[test]
fn the_source_and_the_destination_may_die_too() {
    let file = content(20_000);
    for effects in 0..40 {
        let mut world = three();
        world.hosts[2].dies_after = Some(effects);
        world.send_to(3, &file, Red::All);
        world.run();
        assert!(world.copy(2) == Some(&file[..]), "after {effects}: {:#?}", world.hop_lines());
        assert!(world.results(0)[0].result.is_ok());
        world.assert_clean();
    }
}

#[test]
fn green_and_mixed_blocks_pass_on_receipt() {
    let file = content(SIZE);
    for red in [Red::None, Red::Prefix(1000), Red::Prefix(1500)] {
        let mut world = three();
        world.send_to(3, &file, red);
        world.run();
        world.assert_relayed(&file);
        let on = world.log.iter().find(|sent| sent.hop == 1).expect("it goes on");
        assert!(on.at < Time::ZERO + Duration::from_millis(26), "{}", on.at);
    }
}

#[test]
fn lost_green_data_leave_nothing_behind() {
    let file = content(SIZE);
    for (red, lost) in
        [(Red::None, 1), (Red::Prefix(1000), 1), (Red::None, 3), (Red::Prefix(1000), 3)]
    {
        let mut world = three();
        world.lose_on(move |hop, end, number| (hop, end, number) == (0, 0, lost));
        world.send_to(3, &file, red);
        world.run();
        assert!(world.copy(2).is_none());
        world.assert_clean();
    }
}

#[test]
fn a_hop_with_smaller_datagrams_splits_segments() {
    let file = content(20_000);
    let mut settings: Vec<_> =
        (0..3).map(|i| chain_settings(i, 3, &Config::default(), &small())).collect();
    settings[1].remotes.get_mut(&3).expect("the next one").datagram_max = Some(300);
    let mut world = World::relays(settings, hops(2));
    world.lose_on(|_, end, number| end == 0 && number % 9 == 4);
    world.send_to(3, &file, Red::All);
    world.run();
    world.assert_relayed(&file);
    assert!(world.log.iter().filter(|sent| sent.hop == 1).all(|sent| sent.bytes.len() <= 300));
}

#[test]
fn plain_blocks_are_accepted_too() {
    let file = content(SIZE);
    let mut settings: Vec<_> =
        (0..2).map(|i| chain_settings(i, 2, &Config::default(), &small())).collect();
    settings[0].transport = None;
    let mut world = World::relays(settings, hops(1));
    world.send_to(2, &file, Red::All);
    world.run();
    world.assert_relayed(&file);
}

/// KiB per second from the source's start until the file is at the destination, without the light
/// time, for a file of this many KiB: one packet each 20 ms, and a light time of `light` behind
/// the relay.
fn discounted_goodput(kib: usize, light: Duration, cut_through: bool) -> f64 {
    let profile = crate::profile("ltplib-2007").expect("there is one");
    // Timers of the light time.
    let timer = crate::Timer::Auto;
    let remote = Remote { checkpoint_timer: timer, report_timer: timer, ..profile.default_remote };
    let transport = Config { cut_through, ..Config::default() };
    let settings = (0..3).map(|i| chain_settings(i, 3, &transport, &remote)).collect();
    let delays = [Duration::from_micros(50), light];
    let mut hops: Vec<_> = (0..).zip(delays).map(|(i, delay)| hop(i, delay, 100_000_000)).collect();
    hops.iter_mut().for_each(|hop| hop.info.kind = PathKind::Datagram { mtu: 1472 });
    let mut world = World::relays(settings, hops);
    let file = content(kib << 10);
    world.send_to(3, &file, Red::All);
    while world.copy(2).is_none() && world.step() {}
    assert!(world.copy(2) == Some(&file[..]));
    kib as f64 / (world.now.since(Time::ZERO) - light).as_secs_f64()
}

/// Measurement of LTP-T over two hops in a study of 2007: 64 KB/s for 4 MB, against 36 for a
/// bundle protocol that received the whole bundle first.
#[test]
fn cut_through_halves_the_time_of_two_hops() {
    for light in [10, 100, 1_000, 10_000].map(Duration::from_millis) {
        for kib in [512, 1024, 2048, 4096] {
            let (at_once, whole_first) =
                (discounted_goodput(kib, light, true), discounted_goodput(kib, light, false));
            println!("{light:?} {kib} KiB: {at_once:.2} and {whole_first:.2} KiB/s");
            assert!((69.0..71.5).contains(&at_once), "{light:?}, {kib} KiB: {at_once}");
            assert!((34.0..36.0).contains(&whole_first), "{light:?}, {kib} KiB: {whole_first}");
        }
    }
}
