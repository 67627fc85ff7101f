//! Streams over TCP, with engines that check their driver's contract, and with FTP.

mod driver_streams;
mod files;
mod gateway;
mod programs;
mod talker;
mod transfer;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use engine::{PathEffect, PathEvent, PathId, PathInfo, StreamEffect, Ticket};
use proptest::prelude::*;
use tcp::{Buffer, Options};

use super::Config;
use crate::test_world::{Fate, content as bytes};
use talker::{Manner, Talk, Talker};
use world::{INTERFACE, PORT, SERVICE, World, address, config};

fn talkers(first: Manner, second: Manner) -> World<Talker> {
    with(first, second, |_| {})
}

/// Two hosts, the first of which opens a stream to the second.
fn with(first: Manner, second: Manner, change: impl Fn(&mut Config)) -> World<Talker> {
    let configs = [0, 1].map(|host| {
        let mut config = config(host);
        change(&mut config);
        config
    });
    let mut manners = [Some(first), Some(second)];
    let mut world =
        World::new(configs, |host| Talker::new(manners[host].take().expect("each once")), 1);
    world.on(0, |talker| talker.effects.push_back(PathEffect::Open { path: SERVICE }.into()));
    world
}

fn talk(world: &World<Talker>, host: usize) -> &Talk {
    world.above(host).talks.values().next().expect("there was a stream")
}

fn sends(count: usize) -> Manner {
    Manner { data: bytes(count), ends: true, ..Manner::default() }
}

fn small(config: &mut Config) {
    config.options.send_buffer = Buffer::Fixed(4000);
    config.options.receive_buffer = Buffer::Fixed(5000);
}

#[test]
fn bytes_and_ends_cross_both_ways() {
    for change in [(|_: &mut Config| {}) as fn(&mut Config), small] {
        let mut world = with(sends(200_000), sends(70_001), change);
        world.finish();
        assert!(talk(&world, 1).received == bytes(200_000));
        assert!(talk(&world, 0).received == bytes(70_001));
        for host in 0..2 {
            let talk = talk(&world, host);
            assert!(talk.ended && talk.down, "first the end, then down");
        }
    }
}

#[test]
fn a_new_stream_reports_its_addresses() {
    let mut world = talkers(sends(1), sends(1));
    world.finish();
    let (near, far) = talk(&world, 0).ends.unwrap();
    assert_eq!((near.ip(), far), (address(0).ip(), address(1)));
    assert_eq!(talk(&world, 1).ends, Some((far, near)));
    assert_eq!((talk(&world, 0).ticket, talk(&world, 1).ticket), (None, None));
}

#[test]
fn at_most_one_transmit_is_kept() {
    let mut world = with(sends(1_000_000), sends(0), small);
    let mut memory = 0;
    while world.step() {
        memory = memory.max(world.hosts[0].engine.memory());
    }
    assert!(talk(&world, 0).was_blocked > 10);
    assert!(talk(&world, 1).received == bytes(1_000_000));
    // Buffers of two connections, one transmission of 64 KiB and the world's buffer for the next.
    assert!(memory < 160_000, "{memory}");
}

#[test]
fn retransmissions_are_counted() {
    let mut world = talkers(sends(100_000), sends(0));
    world.lose(|from, number, _| (from, number) == (0, 20));
    world.finish();
    let engine = &world.hosts[0].engine;
    // Closed connections count, too.
    assert_eq!(engine.below().connections().count(), 0);
    let totals = engine.below().totals();
    assert_eq!((totals.retransmissions, totals.timeouts), (1, 0));
    assert!(totals.bytes_sent > 100_000, "retransmissions count, too");
}

#[test]
fn a_pause_closes_the_window_and_a_resumption_opens_it() {
    let pauses = Some((30_000, Duration::from_secs(20)));
    let listener = Manner { pauses, ..sends(0) };
    let mut world = with(sends(150_000), listener, small);
    world.run_for(Duration::from_secs(15));
    let received = talk(&world, 1).received.len();
    assert!((30_000..36_000).contains(&received), "{received}");
    world.finish();
    assert!(talk(&world, 1).received == bytes(150_000));
}

#[test]
fn sent_data_arrive_after_their_sender_leaves() {
    // The sender's buffer is much smaller than the data it sends before it leaves.
    let leaves = Manner { leaves: true, ..sends(60_000) };
    let mut world = with(leaves.clone(), sends(0), small);
    world.finish();
    assert!(talk(&world, 1).received == bytes(60_000));
    // Nor is it lost if the other side sends at the same time.
    let mut world = with(leaves, sends(60_000), small);
    world.finish();
    assert!(talk(&world, 1).received == bytes(60_000));
}

#[test]
fn a_peer_that_sends_to_a_left_stream_is_reset() {
    let leaves = Manner { leaves: true, ..sends(0) };
    let mut world = with(leaves, sends(50_000_000), |config| {
        config.linger = Duration::from_secs(2);
    });
    world.line().rate_bps = Some(1_000_000);
    let began = world.now;
    world.finish();
    assert!(talk(&world, 1).down);
    assert!(world.now.since(began) < Duration::from_secs(120));
}

#[test]
fn pacing_is_kept() {
    let manner = Manner { paces: Some(Duration::from_secs(3)), ..sends(200_000) };
    let mut world = talkers(manner, sends(0));
    // Each transmission is 65,536 bytes, except the last.
    world.run_for(Duration::from_millis(2900));
    assert_eq!(talk(&world, 1).received.len(), 65_536);
    world.run_for(Duration::from_secs(3));
    assert_eq!(talk(&world, 1).received.len(), 131_072);
    world.finish();
    assert!(talk(&world, 1).received == bytes(200_000));
}

#[test]
fn pacing_is_kept_when_a_stream_is_left() {
    let manner = Manner { paces: Some(Duration::from_secs(3)), leaves: true, ..sends(100_000) };
    let mut world = talkers(manner, sends(0));
    world.run_for(Duration::from_millis(2900));
    assert_eq!(talk(&world, 1).received.len(), 65_536);
    world.finish();
    assert!(talk(&world, 1).received == bytes(100_000));
}

#[test]
fn unreachable_hosts_and_closed_ports() {
    let mut world = talkers(sends(1), sends(1));
    world.finish();
    // A connection to a port without a listener.
    let (to, ticket) = (std::net::SocketAddr::new(address(1).ip(), 99), Ticket(7));
    world.on(0, |talker| {
        talker
            .effects
            .push_back(StreamEffect::Connect { ticket, from: None, to, best_effort: false }.into());
    });
    world.finish();
    assert!(matches!(world.above(0).completions[..], [(Ticket(7), Err(_))]));
    // A connection to a host that is switched off.
    world.switch_off(1);
    world.on(0, |talker| {
        talker.effects.push_back(
            StreamEffect::Connect {
                ticket: Ticket(8),
                from: None,
                to: address(1),
                best_effort: false,
            }
            .into(),
        );
        talker.effects.push_back(PathEffect::Open { path: SERVICE }.into());
        // A path that leads nowhere.
        talker.effects.push_back(PathEffect::Open { path: PathId(77) }.into());
    });
    assert_eq!(world.above(0).not_up, [PathId(77)]);
    world.finish();
    assert!(matches!(world.above(0).completions[..], [_, (Ticket(8), Err(_))]));
    assert_eq!(world.above(0).not_up, [PathId(77), SERVICE]);
    assert_eq!(world.next_time(), None);
}

#[test]
fn a_listener_has_its_own_address() {
    // Neither side ends the first stream before the second is made.
    let mut world = talkers(Manner::default(), Manner::default());
    world.run_for(Duration::from_secs(1));
    let near = *world.above(1).talks.keys().next().unwrap();
    let ticket = Ticket(5);
    world.on(1, |talker| {
        talker.effects.push_back(StreamEffect::Listen { ticket, near, best_effort: false }.into());
        talker.effects.push_back(
            StreamEffect::Listen { ticket: Ticket(6), near: PathId(1000), best_effort: false }
                .into(),
        );
    });
    let completions = &world.above(1).completions;
    let [(Ticket(5), Ok(engine::Completion::Listening(to))), (Ticket(6), Err(_))] = completions[..]
    else {
        panic!("{completions:?}")
    };
    assert_eq!(to.ip(), address(1).ip());
    assert_ne!(to.port(), PORT);
    world.on(0, |talker| {
        talker.effects.push_back(
            StreamEffect::Connect { ticket: Ticket(1), from: None, to, best_effort: false }.into(),
        );
    });
    world.run_for(Duration::from_secs(1));
    let tickets = |world: &World<Talker>, host: usize| -> BTreeSet<_> {
        world.above(host).talks.values().map(|talk| talk.ticket).collect()
    };
    assert_eq!(tickets(&world, 0), BTreeSet::from([None, Some(Ticket(1))]));
    assert_eq!(tickets(&world, 1), BTreeSet::from([None, Some(ticket)]));
    // It was for one stream.
    world.on(0, |talker| {
        talker.effects.push_back(
            StreamEffect::Connect { ticket: Ticket(2), from: None, to, best_effort: false }.into(),
        );
    });
    world.run_for(Duration::from_secs(1));
    assert!(matches!(world.above(0).completions[..], [(Ticket(2), Err(_))]));
}

#[test]
fn a_stopped_listener_accepts_nothing() {
    let mut world = talkers(Manner::default(), Manner::default());
    world.run_for(Duration::from_secs(1));
    let near = *world.above(1).talks.keys().next().unwrap();
    let ticket = Ticket(5);
    world.on(1, |talker| {
        talker.effects.push_back(StreamEffect::Listen { ticket, near, best_effort: false }.into());
    });
    let Some((_, Ok(engine::Completion::Listening(to)))) =
        world.above(1).completions.first().cloned()
    else {
        panic!("{:?}", world.above(1).completions)
    };
    world.on(1, |talker| talker.effects.push_back(StreamEffect::StopListening { ticket }.into()));
    world.on(0, |talker| {
        talker.effects.push_back(
            StreamEffect::Connect { ticket: Ticket(2), from: None, to, best_effort: false }.into(),
        );
    });
    world.run_for(Duration::from_secs(1));
    assert!(matches!(world.above(0).completions[..], [(Ticket(2), Err(_))]));
    assert_eq!(world.above(1).talks.len(), 1);
}

#[test]
fn streams_are_bounded() {
    let mut world = with(Manner::default(), Manner::default(), |config| {
        config.limits.streams = 2;
    });
    world.on(0, |talker| {
        for ticket in (1..=3).map(Ticket) {
            talker.effects.push_back(
                StreamEffect::Connect { ticket, from: None, to: address(1), best_effort: false }
                    .into(),
            );
        }
    });
    world.run_for(Duration::from_secs(2));
    // One was opened as a path; only one more was made.
    assert_eq!(world.above(0).talks.len(), 2);
    assert_eq!(world.above(1).talks.len(), 2);
    assert_eq!(world.above(0).completions.len(), 2);
    // A stream beyond the bound of its destination is reset.
    let mut world = with(Manner::default(), Manner::default(), |config| {
        config.limits.streams = if config.listen.is_empty() { 9 } else { 1 };
    });
    world.on(0, |talker| {
        talker.effects.push_back(
            StreamEffect::Connect {
                ticket: Ticket(1),
                from: None,
                to: address(1),
                best_effort: false,
            }
            .into(),
        );
    });
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.above(1).talks.len(), 1);
    let engine = &world.hosts[1].engine;
    assert_eq!(engine.statistics().turned_away, 1);
    assert!(world.above(0).talks.values().any(|talk| talk.down));
}

#[test]
fn restarted_hosts_reset_their_streams() {
    let mut world = talkers(Manner { pauses: None, ..sends(3_000_000) }, Manner::default());
    world.run_for(Duration::from_secs(1));
    world.switch_off(1);
    world.run_for(Duration::from_secs(1));
    world.boot(1, config(1), Talker::default());
    world.finish();
    assert!(talk(&world, 0).down);
    assert!(world.above(1).talks.is_empty());
}

#[test]
fn an_interface_may_be_down_for_a_while() {
    let mut world = talkers(sends(1_000_000), sends(0));
    world.run_for(Duration::from_millis(600));
    for event in [PathEvent::Down, PathEvent::Up(PathInfo::datagram(1500))] {
        world.path(0, event);
        world.run_for(Duration::from_secs(8));
    }
    world.finish();
    assert!(talk(&world, 1).received == bytes(1_000_000));
    // Without an interface there is no stream.
    world.path(0, PathEvent::Down);
    world.on(0, |talker| talker.effects.push_back(PathEffect::Open { path: SERVICE }.into()));
    assert_eq!(world.above(0).not_up, [SERVICE]);
    assert_eq!(INTERFACE, PathId(0));
}

#[test]
fn a_stream_without_tls_is_closed() {
    let mut world = talkers(Manner::default(), Manner::default());
    world.run_for(Duration::from_secs(1));
    let (server_name, early) = (None, bytes::Bytes::new());
    world.on(0, |talker| {
        talker
            .effects
            .push_back(StreamEffect::StartTls { path: SERVICE, server_name, early }.into());
    });
    world.finish();
    assert!(talk(&world, 0).down && talk(&world, 1).down);
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    loss: f64,
    reorder: f64,
    duplicate: f64,
    delay: Duration,
    batch: usize,
    options: [Options; 2],
    manners: [Manner; 2],
}

fn manner() -> impl Strategy<Value = Manner> {
    let pauses = prop::option::weighted(0.3, (500usize..30_000, 1u64..900));
    let data = prop_oneof![0usize..10, 1usize..5_000, 5_000usize..200_000];
    (data, pauses, prop::option::weighted(0.2, 1u64..300), any::<bool>()).prop_map(
        |(count, pauses, paces, ends)| Manner {
            data: bytes(count),
            ends,
            leaves: false,
            // At least one side must end, and each follows.
            follows: true,
            pauses: pauses.map(|(bytes, ms)| (bytes, Duration::from_millis(ms))),
            paces: paces.map(Duration::from_millis),
        },
    )
}

fn options() -> impl Strategy<Value = Options> {
    let buffer = || {
        prop_oneof![
            (1500u64..40_000).prop_map(Buffer::Fixed),
            (2000u64..40_000, 40_000u64..300_000)
                .prop_map(|(initial, max)| Buffer::Auto { initial, max }),
        ]
    };
    (buffer(), buffer(), any::<[bool; 5]>(), prop::option::of(200u16..1500)).prop_map(
        |(send_buffer, receive_buffer, flags, mss)| {
            let [sack, timestamps, window_scale, nagle, rack] = flags;
            Options {
                send_buffer,
                receive_buffer,
                sack,
                timestamps,
                window_scale,
                nagle,
                rack,
                mss,
                ..Options::default()
            }
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let rates = (0.0..0.12f64, 0.0..0.2f64, 0.0..0.05f64);
    (any::<u64>(), rates, 1u64..400, 1usize..20, [options(), options()], [manner(), manner()])
        .prop_map(|(seed, (loss, reorder, duplicate), delay, batch, options, manners)| Case {
            seed,
            loss,
            reorder,
            duplicate,
            delay: Duration::from_millis(delay),
            batch,
            options,
            manners,
        })
}

fn fate(case: &Case) -> Fate {
    let mut rng = engine::Rng::new(case.seed, "fate");
    let (loss, reorder, duplicate) = (case.loss, case.reorder, case.duplicate);
    Box::new(move |_| {
        if rng.chance(loss) {
            return Vec::new();
        }
        let late = |rng: &mut engine::Rng| Duration::from_millis(rng.below(300));
        let mut arrivals = vec![if rng.chance(reorder) { late(&mut rng) } else { Duration::ZERO }];
        if rng.chance(duplicate) {
            arrivals.push(late(&mut rng));
        }
        arrivals
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn streams_survive_random_networks(case in case()) {
        let mut case = case;
        case.manners[0].ends |= !case.manners[1].ends;
        let configs = [0, 1].map(|host| {
            Config { options: case.options[host].clone(), ..config(host) }
        });
        let manners = case.manners.clone();
        let mut world = World::new(configs, |host| Talker::new(manners[host].clone()), case.seed);
        world.fate = fate(&case);
        world.line().delay = case.delay;
        world.batch = case.batch;
        world.on(0, |talker| talker.effects.push_back(PathEffect::Open { path: SERVICE }.into()));
        world.finish();
        for host in 0..2 {
            let talk = talk(&world, host);
            // A side that leaves after the other's end has received all data. A side that ended
            // first and was left may have been notified of the full end at once.
            prop_assert!(talk.received == case.manners[1 - host].data, "host {host}");
            prop_assert!(talk.left || talk.down, "host {host}");
        }
        prop_assert_eq!(world.next_time(), None);
    }
}
