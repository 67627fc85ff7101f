//! Packets in the world: times, routes, queues, outages, damage.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::toy::*;
use engine::{Deadline, PathId, PathInfo, Time};
use link::{Delay, ErrorKind, ErrorModel, Outages, Queue, Rate, WhileDown, Window};
use slowlight_sim::{Action, HostConfig, HostId, Limit, Outcome, Packet, World};

const MS: u64 = 1_000_000;

fn idle(world: &mut World<Toy>) {
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    world.check_conservation().unwrap();
}

#[test]
fn packets_arrive_at_the_computed_moments() {
    let Pair { mut world, earth, moon, forward, .. } =
        pair(|host| host, &line(Duration::from_millis(250)));
    world.call(earth, |toy, _| toy.send(3, 1024));
    idle(&mut world);
    // 1,024 + 42 bytes at 10 Mbit/s take 852.8 us; the sender paces at the same rate.
    let expected: Vec<_> =
        (1..=3).map(|n| (Time::from_nanos(n * 852_800 + 250 * MS), n as u32 - 1)).collect();
    assert_eq!(received(&world.drain_indications(), moon), expected);
    assert_eq!(world.link_stats(forward).delivered.packets, 3);
    let (sent, stats) = (world.host_stats(earth).sent, world.host_stats(moon));
    assert_eq!((sent.packets, sent.ip_bytes, sent.payload_bytes), (3, 3 * 1052, 3 * 1024));
    assert_eq!((sent.first, sent.last), (Some(Time::ZERO), Some(Time::from_nanos(2 * 852_800))));
    assert_eq!(stats.received.last, Some(expected[2].0));
    assert_eq!((stats.ports[0].port, stats.ports[0].received), (PORT, stats.received));
    assert_eq!(world.now(), expected[2].0);
}

#[test]
fn long_delays_cost_no_simulation_time() {
    let hour = Duration::from_secs(3600);
    let Pair { mut world, earth, moon, .. } = pair(|host| host, &line(hour));
    world.call(moon, |toy, _| toy.echo = true);
    world.call(earth, |toy, _| toy.send(100, 500));
    idle(&mut world);
    let notes = world.drain_indications();
    let (there, back) = (received(&notes, moon), received(&notes, earth));
    assert_eq!((there.len(), back.len()), (100, 100));
    // 542 bytes take 433.6 us each way, and an echo leaves when its packet arrives.
    assert_eq!(back[0].0, Time::from_secs(7200) + Duration::from_nanos(2 * 433_600));
    assert_eq!(back[99].0.since(there[99].0), hour + Duration::from_nanos(433_600));
}

#[test]
fn batches_of_any_size_arrive_equally() {
    let run = |batch| {
        let Pair { mut world, earth, moon, .. } =
            pair(|host| HostConfig { batch, ..host }, &line(Duration::from_millis(5)));
        world.call(earth, |toy, _| toy.send(1000, 1000));
        idle(&mut world);
        received(&world.drain_indications(), moon)
    };
    let one = run(1);
    assert_eq!(one.len(), 1000);
    assert_eq!(run(16), one);
    assert_eq!(run(64), one);
}

fn relayed(bent_pipe: bool) -> (World<Toy>, [HostId; 3]) {
    let mut world = World::new(1);
    let earth = world.add_host(HostConfig { ttl: 2, ..HostConfig::new("earth", EARTH) });
    let relay = HostConfig { bent_pipe, ..HostConfig::new("relay", RELAY) };
    let relay = world.add_host(relay);
    let moon = world.add_host(HostConfig::new("moon", MOON));
    let mut link = |from, to| world.add_link(from, to, line(Duration::from_millis(100))).unwrap();
    let (up, down) = (link(earth, relay), link(relay, moon));
    let (back_up, back_down) = (link(moon, relay), link(relay, earth));
    world.add_route(earth, MOON, up);
    world.add_route(relay, MOON, down);
    world.add_route(moon, EARTH, back_up);
    world.add_route(relay, EARTH, back_down);
    for (host, peer) in [(earth, MOON), (moon, EARTH)] {
        world.add_path(host, PATH, PORT, SocketAddrV4::new(peer, PORT), info());
        world.install(host, move |_, _| Toy::echoing(host == moon));
    }
    (world, [earth, relay, moon])
}

#[test]
fn a_relay_stores_and_forwards() {
    for bent_pipe in [false, true] {
        let (mut world, [earth, relay, moon]) = relayed(bent_pipe);
        world.call(earth, |toy, _| toy.send(2, 1024));
        idle(&mut world);
        let notes = world.drain_indications();
        // Two hops: twice the delay and twice the first packet's serialisation.
        let first = Time::from_nanos(200 * MS + 2 * 852_800);
        let second = first + Duration::from_nanos(852_800);
        assert_eq!(received(&notes, moon), [(first, 0), (second, 1)]);
        assert_eq!(received(&notes, earth).len(), 2);
        assert_eq!(world.host_stats(relay).forwarded, 4);
    }
}

#[test]
fn a_router_decrements_the_ttl_and_needs_a_route() {
    let (mut world, [earth, relay, moon]) = relayed(false);
    let lost = Ipv4Addr::new(10, 9, 9, 9);
    world.add_path(earth, PathId(9), PORT + 1, SocketAddrV4::new(lost, PORT), info());
    let mut short = HostConfig::new("mars", Ipv4Addr::new(10, 0, 0, 4));
    short.ttl = 1;
    let address = short.address;
    let mars = world.add_host(short);
    let to_relay = world.add_link(mars, relay, line(Duration::ZERO)).unwrap();
    world.add_route(mars, MOON, to_relay);
    world.add_path(mars, PATH, PORT, SocketAddrV4::new(MOON, PORT), info());
    world.add_path(moon, PathId(2), PORT, SocketAddrV4::new(address, PORT), info());
    world.install(mars, |_, _| Toy::default());
    world.call(mars, |toy, _| toy.send(3, 100));
    world.call(earth, |toy, _| {
        toy.path = PathId(9);
        toy.send(2, 100);
    });
    idle(&mut world);
    assert_eq!(world.host_stats(relay).ttl_expired, 3);
    assert_eq!(world.host_stats(earth).no_route, 2);
    assert_eq!(received(&world.drain_indications(), moon), []);
}

#[test]
fn an_unknown_peer_gets_its_own_path() {
    let mut world = World::new(1);
    let earth = world.add_host(HostConfig::new("earth", EARTH));
    let moon = world.add_host(HostConfig { unknown_peers_max: 1, ..HostConfig::new("moon", MOON) });
    world.add_link(earth, moon, line(Duration::ZERO)).unwrap();
    world.add_link(moon, earth, line(Duration::ZERO)).unwrap();
    world.listen(moon, PORT, PathInfo::datagram(999));
    for (path, port) in [(1, 5000), (2, 5001)] {
        world.add_path(earth, PathId(path), port, SocketAddrV4::new(MOON, PORT), info());
    }
    world.add_path(earth, PathId(3), 5000, SocketAddrV4::new(MOON, PORT + 1), info());
    world.install(earth, |_, _| Toy::default());
    world.install(moon, |_, _| Toy::echoing(true));
    for path in 1..=3 {
        world.call(earth, |toy, _| {
            toy.path = PathId(path);
            toy.send(1, 100);
        });
        idle(&mut world);
    }
    let notes = world.drain_indications();
    let of = |host| notes.iter().filter(move |(_, at, _)| *at == host).map(|(_, _, note)| note);
    let moons: Vec<_> = of(moon).cloned().collect();
    let path = PathId(0);
    assert_eq!(
        moons,
        [Note::Up(path, PathInfo::datagram(999)), Note::Received(path, 0, 100)],
        "the first peer is known, the second exceeds the limit, the third's port is closed"
    );
    assert!(of(earth).any(|note| *note == Note::Received(PathId(1), 0, 100)));
    assert_eq!(world.host_stats(moon).no_port, 2);
}

#[test]
fn a_full_queue_blocks_and_frees() {
    let mut config = line(Duration::from_millis(1));
    config.queue = Queue { packets: Some(4), bytes: None };
    let run = |polite| {
        let Pair { mut world, earth, moon, forward, .. } = pair(|host| host, &config);
        world.call(earth, |toy, _| {
            toy.polite = polite;
            // Unpaced: as fast as the queue accepts.
            if let Some(info) = &mut toy.info {
                info.rate_bps = None;
            }
            toy.send(100, 1024);
        });
        idle(&mut world);
        let notes = world.drain_indications();
        let count = |what: Note| notes.iter().filter(|(_, _, note)| *note == what).count();
        let numbers = received(&notes, moon);
        let rejected = world.host_stats(earth).rejected;
        assert_eq!(world.link_stats(forward).lost_total().packets, rejected);
        (numbers, rejected, count(Note::Blocked), count(Note::Writable))
    };
    let (numbers, rejected, blocked, writable) = run(true);
    assert_eq!((numbers.len(), rejected), (100, 0));
    assert!(blocked > 50 && writable == blocked, "{blocked} {writable}");
    // Flow control by the queue keeps the line busy: 100 packets back to back.
    assert_eq!(numbers[99].0, Time::from_nanos(100 * 852_800 + MS));
    let (numbers, rejected, blocked, _) = run(false);
    // One in service and four waiting; all others were pushed at the same moment.
    assert_eq!((numbers.len(), rejected, blocked), (5, 95, 1));
}

fn outage(from: u64, to: u64) -> Outages {
    Outages::List(vec![Window { start: Time::from_secs(from), end: Time::from_secs(to) }])
}

#[test]
fn outages_are_cues_where_the_host_has_them() {
    let mut config = line(Duration::from_millis(1));
    config.outages = outage(1, 3);
    config.while_down = WhileDown::Drop;
    let run = |cues| {
        let Pair { mut world, earth, moon, .. } = pair(|host| HostConfig { cues, ..host }, &config);
        world.schedule(
            Time::from_secs(2),
            Action::Call(earth, Box::new(|toy, _| toy.send(10, 1000))),
        );
        idle(&mut world);
        let notes = world.drain_indications();
        let of_earth = notes.into_iter().filter(move |(_, host, _)| *host == earth);
        let events: Vec<_> = of_earth.map(|(at, _, note)| (at, note)).collect();
        (events, world.host_stats(moon).received.packets, world.host_stats(earth).rejected)
    };
    let contact = |until| Note::Up(PATH, PathInfo { until, ..info() });
    let (events, received, rejected) = run(true);
    let expected = [
        (Time::ZERO, contact(Some(Time::from_secs(1)))),
        (Time::from_secs(1), Note::Down),
        (Time::from_secs(3), contact(None)),
    ];
    assert_eq!(events, expected);
    assert_eq!((received, rejected), (10, 0), "queued packets are sent when the link is up");
    let (events, received, rejected) = run(false);
    assert_eq!(events, [(Time::ZERO, contact(None))]);
    assert_eq!((received, rejected), (0, 10), "a host without cues sends into the outage");
}

#[test]
fn a_world_with_endless_outages_ends() {
    let mut config = line(Duration::ZERO);
    config.outages = Outages::Periodic {
        period: Duration::from_secs(10),
        down: Duration::from_secs(4),
        offset: Time::ZERO,
    };
    let Pair { mut world, earth, moon, .. } = pair(|host| host, &config);
    world.call(earth, |toy, _| toy.send(1, 100));
    idle(&mut world);
    let first = Time::from_secs(4) + Duration::from_nanos(113_600);
    assert_eq!(received(&world.drain_indications(), moon), [(first, 0)]);
    assert!(world.now() < Time::from_secs(15));
}

#[test]
fn damage_is_detected_by_checksums_when_present() {
    let mut config = line(Duration::ZERO);
    config.errors = vec![ErrorModel::damaging(ErrorKind::BitErrorRate(1e-4))];
    let run = |udp_checksum| {
        let Pair { mut world, earth, moon, forward, .. } =
            pair(|host| HostConfig { udp_checksum, ..host }, &config);
        world.call(earth, |toy, _| toy.send(2000, 1000));
        idle(&mut world);
        let notes = world.drain_indications();
        let corrupt = notes.iter().filter(|(_, _, note)| *note == Note::Corrupt).count() as u64;
        let stats = world.host_stats(moon).clone();
        let damaged = world.link_stats(forward).damaged.packets;
        assert_eq!(stats.received.packets + stats.bad_ip + stats.bad_udp + stats.no_port, 2000);
        (damaged, corrupt, stats)
    };
    // 1,028 bytes at 1e-4: 1 - (1 - 1e-4)^8224 = 0.56 of the packets.
    let (damaged, corrupt, stats) = run(true);
    assert!((1050..1190).contains(&damaged), "{damaged}");
    assert!(stats.bad_ip > 0 && stats.bad_udp > 900);
    assert!(corrupt <= 2, "two errors may cancel in the checksum: {corrupt}");
    let (_, corrupt, stats) = run(false);
    assert!(corrupt > 900 && stats.bad_udp < 20, "{corrupt} {}", stats.bad_udp);
}

#[test]
fn links_may_change_during_a_run() {
    let Pair { mut world, earth, moon, forward, .. } = pair(|host| host, &line(Duration::ZERO));
    let slower = move |link: &mut link::Link<Packet>, now| {
        link.set_rate(now, Rate::Constant(1_000_000)).unwrap();
        link.set_delay(now, Delay::Constant(Duration::from_secs(1))).unwrap();
    };
    let at = Time::from_nanos(852_800 + 1000);
    world.schedule(at, Action::SetLink(forward, Box::new(slower)));
    world.call(earth, |toy, _| toy.send(3, 1024));
    idle(&mut world);
    let times = received(&world.drain_indications(), moon);
    assert_eq!(times[0].0, Time::from_nanos(852_800));
    // The third packet takes 8.528 ms at 1 Mbit/s, after the second.
    assert_eq!(times[2].0, Time::from_nanos(2 * 852_800 + 8_528_000 + 1000 * MS));
}

#[test]
fn limits_end_runs_of_engines_that_never_rest() {
    let Pair { mut world, earth, moon, .. } = pair(|host| host, &line(Duration::from_secs(1)));
    world.call(earth, |toy, _| toy.send(100, 1000));
    assert_eq!(world.run(Limit { events: 5, ..Limit::default() }), Outcome::EventLimit);
    assert_eq!(world.events(), 5);
    let cancelled = AtomicBool::new(true);
    assert_eq!(world.run_unless(&cancelled, Limit::default()), Outcome::Cancelled);
    assert_eq!(world.events(), 5);
    assert_eq!(world.run_until(Time::from_nanos(500 * MS)), Outcome::TimeLimit);
    assert_eq!(world.now(), Time::from_nanos(500 * MS));
    let timer = Some(Deadline { at: Time::from_secs(9), why: "stays" });
    world.call(moon, |toy, _| {
        toy.timer = timer;
        toy.stubborn = true;
    });
    let why = "its timer \"stays\" is still due at 9.000000000 after handle_timeout";
    let stuck = Outcome::Stuck { host: moon, why: why.into() };
    assert_eq!(world.run(Limit::default()), stuck);
    assert_eq!((world.now(), world.step()), (Time::from_secs(9), None));
}

#[test]
fn a_timer_fires_once_at_its_time() {
    let Pair { mut world, earth, .. } = pair(|host| host, &line(Duration::ZERO));
    let at = Time::from_secs(42);
    world.call(earth, |toy, _| toy.timer = Some(Deadline { at, why: "wake" }));
    idle(&mut world);
    let woke: Vec<_> = world
        .drain_indications()
        .into_iter()
        .filter(|(_, _, t)| *t == Note::Woke("wake"))
        .collect();
    assert_eq!(woke, [(at, earth, Note::Woke("wake"))]);
    assert_eq!(world.events(), 1);
}
