//! Events on one side, and their effect on the other.

use std::time::Duration;

use engine::{Receive, Ticket};

use super::super::{Config, End, Indication, Refusal};
use super::desk::{Desk, client, server};

const PIECE: usize = Receive::PIECE_MAX;

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

fn desk() -> Desk {
    Desk::new(Config::default())
}

fn small() -> Config {
    Config { buffer: 2 * PIECE, ..Config::default() }
}

fn ends(desk: &Desk) -> Vec<End> {
    let end = |indication: &Indication| match indication {
        Indication::Closed { end, .. } => Some(*end),
        _ => None,
    };
    desk.indications.iter().filter_map(end).collect()
}

#[test]
fn bytes_and_ends_cross_both_ways() {
    let mut desk = desk();
    let near = desk.open(1);
    let ticket = Ticket(0);
    assert_eq!(
        desk.requested[&ticket],
        (Some(client(1)), server()),
        "from the client's own address"
    );
    // Data received before the server has accepted waits.
    desk.send(near, &bytes(1000), false);
    desk.now += Duration::from_millis(600);
    let far = desk.accept(ticket);
    assert_eq!(desk.streams[&far].received, bytes(1000));
    desk.send(far, &bytes(300_000), false);
    desk.send(near, &bytes(5), true);
    assert!(desk.streams[&near].received == bytes(300_000));
    assert!(desk.streams[&far].received_end && !desk.streams[&near].received_end);
    // The end of one half does not end the other.
    desk.send(far, &bytes(7), true);
    assert_eq!(desk.streams[&near].received.len(), 300_007);
    assert!(desk.streams[&near].received_end);
    for path in [near, far] {
        assert!(desk.streams[&path].closed && !desk.streams[&path].reset);
    }
    let Some(Indication::Closed { report, end: End::Complete }) = desk.indications.last() else {
        panic!("{:?}", desk.indications)
    };
    assert_eq!((report.client, report.server), (client(1), server()));
    assert_eq!(report.bytes, [1005, 300_007]);
    let took = Duration::from_millis(600);
    assert_eq!(report.connected.unwrap().since(report.opened), took);
    assert!(desk.indications.contains(&Indication::Connected { id: report.id, took }));
    let statistics = desk.pep.statistics();
    assert_eq!((statistics.accepted, statistics.connected, statistics.completed), (1, 1, 1));
    assert_eq!(statistics.bytes, [1005, 300_007]);
    assert!(desk.is_clean());
}

#[test]
fn a_stalled_reader_pauses_the_sender() {
    for side in 0..2 {
        let mut desk = Desk::new(small());
        let paths = desk.pair(1);
        let (from, to) = (paths[side], paths[1 - side]);
        desk.streams.get_mut(&to).unwrap().window = 0;
        desk.send(from, &bytes(1_000_000), true);
        assert!(desk.streams[&from].paused);
        let held = desk.pep.statistics().buffered;
        assert!((PIECE..=2 * PIECE).contains(&held), "{held}");
        // One transmission is in flight, at most two pieces are held.
        let rest = desk.streams[&from].data.len();
        assert!(rest >= 1_000_000 - 3 * PIECE, "{rest}");
        desk.take(to, 500_000);
        assert!(desk.streams[&from].paused);
        desk.take(to, usize::MAX);
        assert!(desk.streams[&to].received == bytes(1_000_000));
        assert!(desk.streams[&to].received_end);
        // The other direction works.
        desk.send(to, &bytes(10), true);
        assert!(desk.is_clean());
    }
}

#[test]
fn the_shared_buffer_is_bounded() {
    let config = Config { connections: 4, buffer: 8 * PIECE, buffer_total: 12 * PIECE, ..small() };
    let mut desk = Desk::new(config);
    let pairs: Vec<_> = (0..4).map(|number| desk.pair(number)).collect();
    for [near, far] in &pairs {
        desk.streams.get_mut(far).unwrap().window = 0;
        desk.send(*near, &bytes(2_000_000), true);
    }
    let held = desk.pep.statistics().buffered;
    assert!((8 * PIECE..=12 * PIECE).contains(&held), "{held}");
    // Stalled connections do not delay others.
    let [near, far] = pairs[3];
    desk.take(far, usize::MAX);
    assert!(desk.streams[&far].received == bytes(2_000_000));
    for [_, far] in &pairs[..3] {
        desk.take(*far, usize::MAX);
        assert!(desk.streams[far].received == bytes(2_000_000));
    }
    assert!(!desk.streams[&near].paused);
}

#[test]
fn a_reset_is_forwarded() {
    for side in 0..2 {
        let mut desk = desk();
        let paths = desk.pair(1);
        let (from, to) = (paths[side], paths[1 - side]);
        desk.streams.get_mut(&to).unwrap().window = 10;
        desk.send(from, &bytes(100_000), false);
        desk.down(from);
        assert!(desk.streams[&to].reset);
        assert_eq!(desk.streams[&to].received, bytes(10));
        assert_eq!(ends(&desk), [[End::ClientReset, End::ServerReset][side]]);
        assert!(desk.is_clean());
    }
}

#[test]
fn a_reset_after_half_close_is_forwarded() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.send(near, &bytes(10), true);
    assert!(desk.streams[&far].received_end);
    desk.down(near);
    assert!(desk.streams[&far].reset);
    assert_eq!(ends(&desk), [End::ClientReset]);
    assert!(desk.is_clean());
}

#[test]
fn bytes_before_both_ends_are_still_forwarded() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.streams.get_mut(&far).unwrap().window = 0;
    desk.send(far, &bytes(10), true);
    desk.send(near, &bytes(200_000), true);
    // Its stream is fully closed.
    desk.down(near);
    assert!(!desk.streams[&far].closed);
    desk.take(far, usize::MAX);
    assert!(desk.streams[&far].received == bytes(200_000));
    assert!(desk.streams[&far].received_end && !desk.streams[&far].reset);
    assert_eq!(ends(&desk), [End::Complete]);
    assert!(desk.is_clean());
}

#[test]
fn a_refused_connection_resets_the_client() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.send(near, &bytes(100), true);
    desk.refuse(Ticket(0));
    assert!(desk.streams[&near].reset);
    assert_eq!(ends(&desk), [End::NotConnected]);
    assert!(desk.is_clean());
}

#[test]
fn an_unresponsive_server_times_out() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.wait(Config::default().connect_timeout);
    assert!(desk.streams[&near].reset);
    assert_eq!(ends(&desk), [End::ConnectTimeout]);
    assert!(desk.is_clean(), "no request is left");
}

#[test]
fn a_client_that_leaves_early_is_not_connected() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.down(near);
    assert!(desk.requested.is_empty());
    assert_eq!(ends(&desk), [End::ClientReset]);
    // A late completion has no effect.
    desk.requested.insert(Ticket(0), (None, server()));
    let far = desk.accept(Ticket(0));
    assert!(desk.streams[&far].reset);
    assert!(desk.is_clean());
}

#[test]
fn idle_connections_end() {
    let idle = Duration::from_secs(100);
    let mut desk = Desk::new(Config { idle: Some(idle), ..Config::default() });
    let [near, far] = desk.pair(1);
    desk.wait(idle / 2);
    desk.send(far, b"x", false);
    desk.wait(idle - Duration::from_secs(1));
    assert_eq!(ends(&desk), []);
    desk.wait(Duration::from_secs(1));
    assert_eq!(ends(&desk), [End::Idle]);
    assert!(desk.streams[&near].reset && desk.streams[&far].reset);
    assert_eq!(desk.pep.statistics().idle, 1);
    assert!(desk.is_clean());
}

#[test]
fn the_five_hundred_and_first_is_refused() {
    let mut desk = Desk::new(Config { connections: 500, ..small() });
    let pairs: Vec<_> = (0..500).map(|number| desk.pair(number)).collect();
    let refused = desk.open(500);
    assert!(desk.streams[&refused].reset);
    let ends = Some((client(500), server()));
    let turned_away = Indication::TurnedAway { ends, why: Refusal::Full };
    assert_eq!(desk.indications.last(), Some(&turned_away));
    for (number, [near, far]) in pairs.iter().enumerate() {
        desk.send(*near, &bytes(number + 1), true);
        desk.send(*far, &bytes(2 * number + 1), true);
        assert_eq!(desk.streams[far].received, bytes(number + 1));
        assert_eq!(desk.streams[near].received, bytes(2 * number + 1));
    }
    let statistics = desk.pep.statistics();
    assert_eq!((statistics.open_peak, statistics.completed), (500, 500));
    assert_eq!(statistics.turned_away, 1);
    assert!(desk.is_clean());
    // There is room again.
    let [near, _] = desk.pair(600);
    assert!(!desk.streams[&near].reset);
}

#[test]
fn streams_to_the_proxy_itself_or_to_nowhere_are_refused() {
    let mut desk = Desk::new(Config { own: vec![server()], ..Config::default() });
    let near = desk.open(1);
    assert!(desk.streams[&near].reset);
    assert!(matches!(desk.indications[..], [Indication::TurnedAway { why: Refusal::Loop, .. }]));
    assert!(desk.is_clean());
}

#[test]
fn a_stopped_proxy_keeps_its_connections() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.pep.stop_accepting();
    let late = desk.open(2);
    assert!(desk.streams[&late].reset);
    desk.send(near, &bytes(100), false);
    assert_eq!(desk.streams[&far].received, bytes(100));
    let now = desk.now;
    desk.pep.reset_all(now);
    desk.work();
    desk.wait(Duration::ZERO);
    desk.event(far, engine::PathEvent::Down);
    assert!(desk.streams[&near].reset && desk.streams[&far].reset);
    assert_eq!(ends(&desk), [End::Aborted]);
    assert!(desk.is_clean());
}

#[test]
fn an_opaque_proxy_uses_its_own_address() {
    let mut desk = Desk::new(Config { transparent: false, ..Config::default() });
    desk.open(1);
    assert_eq!(desk.requested[&Ticket(0)], (None, server()));
}
