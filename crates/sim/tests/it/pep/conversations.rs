//! Scenarios: the actions of one host, and the observations of the other.

use std::time::Duration;

use engine::Time;
use link::{ErrorKind, ErrorModel};
use slowlight_sim::Action;
use tcp::{Buffer, KeepAlive};

use super::talker::Manner;
use super::world::{CLIENT, GATES, PORT, Plan, SERVER, address};

fn sends(count: usize) -> Manner {
    Manner { sends: count, ends: true, ..Manner::default() }
}

fn dropping(list: Vec<u64>) -> Vec<ErrorModel> {
    vec![ErrorModel::dropping(ErrorKind::DropList(list))]
}

#[test]
fn bytes_and_ends_cross_in_both_directions_and_gateways_are_invisible() {
    for early_accept in [true, false] {
        let mut plan = Plan::new(sends(500_000), sends(300_000));
        plan.early_accept = early_accept;
        let mut play = plan.build();
        play.connect(1, PORT);
        play.run();
        let (client, server) = (play.streams(CLIENT), play.streams(SERVER));
        let [client, server] = [client[0], server[0]];
        assert_eq!((client.received, server.received), (300_000, 500_000));
        assert!(!client.wrong && !server.wrong && !client.reset && !server.reset);
        let (near, far) = client.ends.unwrap();
        assert_eq!(server.ends, Some((far, near)), "the server sees the client's own address");
        // An early accept takes no round trip; otherwise the client waits for the server's.
        let up_after = client.up_at.since(Time::ZERO);
        let ten_ms = Duration::from_millis(10);
        assert_eq!(up_after < ten_ms, early_accept, "{up_after:?}");
        assert!(up_after < Duration::from_millis(600) + ten_ms, "{up_after:?}");
        for gate in GATES {
            let statistics = play.statistics(gate);
            assert_eq!((statistics.accepted, statistics.completed), (1, 1));
            assert_eq!(statistics.bytes, [500_000, 300_000]);
        }
    }
}

#[test]
fn connections_work_with_one_gateway_or_none() {
    for gates in [[true, false], [false, true], [false, false]] {
        let mut plan = Plan::new(sends(200_000), sends(100_000));
        plan.gates = gates;
        let mut play = plan.build();
        play.connect(2, PORT);
        play.run();
        assert_eq!(play.streams(SERVER).len(), 2);
        assert!(
            play.streams(SERVER).iter().all(|stream| stream.received == 200_000 && !stream.wrong)
        );
        assert!(
            play.streams(CLIENT).iter().all(|stream| stream.received == 100_000 && !stream.wrong)
        );
    }
}

#[test]
fn losses_are_retransmitted_by_the_gateway_before_the_loss() {
    let mut plan = Plan::new(sends(2_000_000), sends(0));
    // Packets that cross to the far side: data in the middle, and retransmissions.
    plan.wan[0].errors = dropping(vec![100, 101, 300, 310]);
    let mut play = plan.build();
    play.connect(1, PORT);
    play.run();
    assert_eq!(play.streams(SERVER)[0].received, 2_000_000);
    assert!(!play.streams(SERVER)[0].wrong);
    assert_eq!(play.world.link_stats(play.wan[0]).lost_total().packets, 4);
    assert_eq!(play.repairs(GATES[0], GATES[0] + 1), 4);
    assert_eq!((play.repairs(GATES[0], CLIENT), play.repairs(GATES[1], SERVER)), (0, 0));
}

#[test]
fn each_side_has_its_own_settings() {
    let mut plan = Plan::new(sends(10), Manner::default());
    plan.lan_options.timestamps = false;
    let mut play = plan.build();
    play.connect(1, PORT);
    play.run_for(Duration::from_secs(3));
    for gate in GATES {
        let below = play.gateway(gate).unwrap().below();
        let infos: Vec<_> = below.connections().map(|id| below.info(id).unwrap()).collect();
        let with_timestamps = infos.iter().map(|info| info.timestamps).collect::<Vec<_>>();
        assert_eq!(with_timestamps.iter().filter(|with| **with).count(), 1, "{infos:?}");
        assert_eq!(with_timestamps.len(), 2);
        // The connection over the link has the configured buffer.
        assert!(infos.iter().any(|info| info.timestamps && info.buffers == (1_200_000, 1_200_000)));
    }
}

#[test]
fn a_half_that_has_ended_does_not_end_the_other() {
    // The server replies only when the client has sent everything and ended.
    let server = Manner { waits: true, ..sends(400_000) };
    let mut plan = Plan::new(sends(300_000), server.clone());
    // The client's FIN is lost once.
    plan.wan[0].errors = dropping(vec![210]);
    for (client, server) in [(sends(300_000), server.clone()), (server, sends(300_000))] {
        (plan.client, plan.server) = (client, server);
        let mut play = plan.build();
        play.connect(1, PORT);
        play.run();
        let all = (play.streams(CLIENT)[0].received, play.streams(SERVER)[0].received);
        assert!(all == (400_000, 300_000) || all == (300_000, 400_000), "{all:?}");
        for host in [CLIENT, SERVER] {
            let stream = play.streams(host)[0];
            assert!(stream.peer_ended && !stream.wrong && !stream.reset);
        }
    }
}

#[test]
fn a_reset_reaches_the_other_end_as_a_reset() {
    for by_server in [true, false] {
        let resets = Manner { resets_at: Some(100_000), sends: 10, ..Manner::default() };
        let (client, server) =
            if by_server { (sends(5_000_000), resets) } else { (resets, sends(5_000_000)) };
        let mut play = Plan::new(client, server).build();
        play.connect(1, PORT);
        play.run();
        let (resetting, other) = if by_server { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
        assert!(play.streams(other)[0].reset);
        assert!(!play.streams(resetting)[0].wrong);
        let at = |host: usize| play.streams(host)[0].over_at.unwrap();
        let took = at(other).since(at(resetting));
        assert!((300..320).contains(&took.as_millis()), "{took:?}");
        for gate in GATES {
            assert_eq!(play.statistics(gate).reset, 1);
        }
    }
}

#[test]
fn a_closed_port_refuses_or_resets_the_client() {
    for early_accept in [true, false] {
        let mut plan = Plan::new(sends(1000), sends(1000));
        plan.early_accept = early_accept;
        let mut play = plan.build();
        play.connect(1, 99);
        play.run();
        let talker = play.talker(CLIENT);
        // A gateway that accepts early sends its SYN behind the client's acknowledgment, so the
        // reset takes two round trips. In neither case does the client see a success.
        let round_trips = if early_accept { 2 } else { 1 };
        let at = if early_accept {
            let stream = play.streams(CLIENT)[0];
            assert!(stream.reset && stream.received == 0);
            assert_eq!(play.statistics(GATES[0]).accepted, 1);
            stream.over_at.unwrap()
        } else {
            assert!(talker.streams.is_empty());
            assert_eq!(play.gateway(GATES[0]).unwrap().statistics().turned_away, 0);
            talker.refused[0].0
        };
        let took = at.since(Time::ZERO);
        let least = 600 * round_trips;
        assert!((least..least + 20).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn a_stopped_reader_stops_the_sender_at_the_bound() {
    let stops = Manner { stops: Some((50_000, Duration::from_secs(120))), ..sends(0) };
    let mut plan = Plan::new(sends(20_000_000), stops);
    plan.pep.buffer = 200_000;
    let bounded = Buffer::Fixed(1_000_000);
    for options in [&mut plan.lan_options, &mut plan.host_options] {
        options.send_buffer = bounded;
        options.receive_buffer = bounded;
    }
    let mut play = plan.build();
    play.connect(1, PORT);
    play.run_for(Duration::from_secs(100));
    let received = play.streams(SERVER)[0].received;
    assert!((50_000..200_000).contains(&received), "{received}");
    for gate in GATES {
        let statistics = play.statistics(gate);
        // A paused gateway reads on when half of its buffer is free.
        assert!((100_001..=200_000).contains(&statistics.buffered), "{statistics:?}");
        // Both connections' buffers, the proxy's, and a piece of each.
        let gateway = play.gateway(gate).unwrap();
        let memory = gateway.below().memory() + gateway.above().memory();
        assert!(memory < 8_000_000, "{memory}");
    }
    // Windows close all the way back to the client, which stops it. Beyond the near gateway are its
    // 1.2 MB, the far gateway's 1.2 MB, 200 kB and 1 MB, the server's 1 MB.
    let passed_on = play.statistics(GATES[0]).bytes[0];
    assert!(passed_on < 4_700_000, "{passed_on}");
    play.run();
    assert_eq!(play.streams(SERVER)[0].received, 20_000_000);
    assert!(!play.streams(SERVER)[0].wrong);
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    for early_accept in [true, false] {
        let mut plan = Plan::new(sends(20_000), sends(10_000));
        plan.pep.connections = 500;
        plan.early_accept = early_accept;
        let mut play = plan.build();
        play.connect(501, PORT);
        play.run();
        let server = play.streams(SERVER);
        assert_eq!(server.len(), 500);
        assert!(
            server.iter().all(|stream| stream.received == 20_000 && !stream.wrong && !stream.reset)
        );
        let client = play.streams(CLIENT);
        let good = client
            .iter()
            .filter(|stream| stream.received == 10_000 && !stream.wrong && !stream.reset);
        assert_eq!(good.count(), 500);
        let reset = client.iter().filter(|stream| stream.reset).count();
        assert_eq!(reset + play.talker(CLIENT).refused.len(), 1);
        // SYNs dropped by the link's queue are retransmitted after a second. Where a connection
        // opens only when the server accepts, the first ones have ended by then.
        let open_peak = play.statistics(GATES[0]).open_peak;
        let least = if early_accept { 500 } else { 400 };
        assert!((least..=500).contains(&open_peak), "{open_peak}");
    }
}

#[test]
fn restarted_far_gateways_cause_clean_errors() {
    let mut plan = Plan::new(sends(30_000_000), sends(0));
    plan.wan_options.retries = 6;
    // A server that waits for data probes at times whether its peer is alive.
    let keep_alive = KeepAlive { idle: Duration::from_secs(60), ..KeepAlive::default() };
    plan.host_options.keep_alive = Some(keep_alive);
    let mut play = plan.build();
    play.connect(5, PORT);
    play.run_for(Duration::from_secs(5));
    let far = play.hosts[GATES[1]];
    play.world.schedule(play.world.now(), Action::Crash(far));
    play.world.schedule(play.world.now() + Duration::from_secs(10), Action::Restart(far));
    play.run();
    // The far gateway has forgotten them; nothing probes the server.
    assert!(play.streams(CLIENT).iter().all(|stream| stream.reset));
    assert_eq!(play.statistics(GATES[0]).reset, 5);
    // The far gateway forwarded correct bytes, and signalled no end of the stream in place of
    // missing ones.
    for stream in play.streams(SERVER) {
        assert!(stream.reset && !stream.wrong && !stream.peer_ended && stream.received > 0);
    }
}

#[test]
fn clients_get_an_error_when_the_far_gateway_stays_off() {
    let mut plan = Plan::new(sends(3_000_000), sends(3_000_000));
    plan.wan_options.retries = 5;
    plan.lan_options.retries = 5;
    plan.host_options.retries = 5;
    let mut play = plan.build();
    play.connect(5, PORT);
    play.run_for(Duration::from_secs(3));
    let far = play.hosts[GATES[1]];
    play.world.schedule(play.world.now(), Action::Crash(far));
    let off_at = play.world.now();
    play.run();
    for host in [CLIENT, SERVER] {
        assert_eq!(play.streams(host).len(), 5);
        for stream in play.streams(host) {
            assert!(stream.reset && !stream.wrong);
            let took = stream.over_at.unwrap().since(off_at);
            assert!(took < Duration::from_secs(120), "{took:?}");
        }
    }
    // Failures of new connections are reported too, within the time the proxy gives a server.
    let asked_at = play.world.now();
    play.connect(1, PORT);
    play.run();
    let streams = play.streams(CLIENT);
    let last = streams.last().unwrap();
    assert!(last.reset);
    assert_eq!(last.over_at.unwrap().since(asked_at).as_secs(), 75);
    assert_eq!(play.statistics(GATES[0]).not_connected, 1);
}

#[test]
fn idle_connections_are_ended() {
    let mut plan = Plan::new(Manner { sends: 10, ..Manner::default() }, Manner::default());
    plan.pep.idle = Some(Duration::from_secs(60));
    let mut play = plan.build();
    play.connect(1, PORT);
    play.run();
    assert!(play.streams(CLIENT)[0].reset && play.streams(SERVER)[0].reset);
    let idle: u64 = GATES.map(|gate| play.statistics(gate).idle).into_iter().sum();
    assert!(idle >= 1);
    assert!(play.world.now() < Time::from_secs(200), "{}", play.world.now());
}

#[test]
fn gateway_addresses_are_not_proxied() {
    let mut plan = Plan::new(sends(10), sends(10));
    plan.pep.own = Vec::new();
    let mut play = plan.build();
    let to = std::net::SocketAddr::new(address(GATES[1]).into(), 80);
    play.world.call(play.hosts[CLIENT], |node, now| {
        let super::world::Node::Host(host) = node else { panic!("the client is a host") };
        host.call(now, |talker| talker.connect(to));
    });
    play.run();
    // The near gateway forwards it like any other; the far one refuses to proxy to itself.
    assert!(play.streams(CLIENT)[0].reset);
    assert_eq!(play.statistics(GATES[1]).turned_away, 1);
    assert_eq!(play.statistics(GATES[1]).accepted, 0);
    let notes = play.world.drain_indications();
    let why = notes.iter().filter_map(|(_, _, note)| match note {
        Some(pep::Indication::TurnedAway { why, .. }) => Some(*why),
        _ => None,
    });
    assert_eq!(why.collect::<Vec<_>>(), [pep::Refusal::Loop]);
}
