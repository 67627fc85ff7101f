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
    let end = |told: &Indication| match told {
        Indication::Closed { end, .. } => Some(*end),
        _ => None,
    };
    desk.told.iter().filter_map(end).collect()
}

#[test]
fn bytes_and_ends_cross_both_ways() {
    let mut desk = desk();
    let near = desk.open(1);
    let ticket = Ticket(0);
    assert_eq!(desk.asked[&ticket], (Some(client(1)), server()), "from the client's own address");
    // Data received before the server has accepted wait.
    desk.say(near, &bytes(1000), false);
    desk.now += Duration::from_millis(600);
    let far = desk.accept(ticket);
    assert_eq!(desk.streams[&far].heard, bytes(1000));
    desk.say(far, &bytes(300_000), false);
    desk.say(near, &bytes(5), true);
    assert!(desk.streams[&near].heard == bytes(300_000));
    assert!(desk.streams[&far].heard_end && !desk.streams[&near].heard_end);
    // The end of one half does not end the other.
    desk.say(far, &bytes(7), true);
    assert_eq!(desk.streams[&near].heard.len(), 300_007);
    assert!(desk.streams[&near].heard_end);
    for path in [near, far] {
        assert!(desk.streams[&path].closed && !desk.streams[&path].reset);
    }
    let Some(Indication::Closed { report, end: End::Complete }) = desk.told.last() else {
        panic!("{:?}", desk.told)
    };
    assert_eq!((report.client, report.server), (client(1), server()));
    assert_eq!(report.bytes, [1005, 300_007]);
    let took = Duration::from_millis(600);
    assert_eq!(report.connected.unwrap().since(report.opened), took);
    assert!(desk.told.contains(&Indication::Connected { id: report.id, took }));
    let statistics = desk.pep.statistics();
    assert_eq!((statistics.accepted, statistics.connected, statistics.completed), (1, 1, 1));
    assert_eq!(statistics.bytes, [1005, 300_007]);
    assert!(desk.is_clean());
}

#[test]
fn a_reader_that_stands_still_holds_the_sender_back() {
    for side in 0..2 {
        let mut desk = Desk::new(small());
        let paths = desk.pair(1);
        let (from, to) = (paths[side], paths[1 - side]);
        desk.streams.get_mut(&to).unwrap().window = 0;
        desk.say(from, &bytes(1_000_000), true);
        assert!(desk.streams[&from].paused);
        let held = desk.pep.statistics().buffered;
        assert!((PIECE..=2 * PIECE).contains(&held), "{held}");
        // One transmission is in flight, at most two pieces are held.
        let rest = desk.streams[&from].says.len();
        assert!(rest >= 1_000_000 - 3 * PIECE, "{rest}");
        desk.take(to, 500_000);
        assert!(desk.streams[&from].paused);
        desk.take(to, usize::MAX);
        assert!(desk.streams[&to].heard == bytes(1_000_000));
        assert!(desk.streams[&to].heard_end);
        // The other direction works.
        desk.say(to, &bytes(10), true);
        assert!(desk.is_clean());
    }
}

#[test]
fn all_together_hold_no_more_than_they_may() {
    let config = Config { connections: 4, buffer: 8 * PIECE, buffer_total: 12 * PIECE, ..small() };
    let mut desk = Desk::new(config);
    let pairs: Vec<_> = (0..4).map(|number| desk.pair(number)).collect();
    for [near, far] in &pairs {
        desk.streams.get_mut(far).unwrap().window = 0;
        desk.say(*near, &bytes(2_000_000), true);
    }
    let held = desk.pep.statistics().buffered;
    assert!((8 * PIECE..=12 * PIECE).contains(&held), "{held}");
    // Stalled connections do not delay others.
    let [near, far] = pairs[3];
    desk.take(far, usize::MAX);
    assert!(desk.streams[&far].heard == bytes(2_000_000));
    for [_, far] in &pairs[..3] {
        desk.take(*far, usize::MAX);
        assert!(desk.streams[far].heard == bytes(2_000_000));
    }
    assert!(!desk.streams[&near].paused);
}

#[test]
fn a_reset_is_passed_on_as_one() {
    for side in 0..2 {
        let mut desk = desk();
        let paths = desk.pair(1);
        let (from, to) = (paths[side], paths[1 - side]);
        desk.streams.get_mut(&to).unwrap().window = 10;
        desk.say(from, &bytes(100_000), false);
        desk.down(from);
        assert!(desk.streams[&to].reset);
        assert_eq!(desk.streams[&to].heard, bytes(10));
        assert_eq!(ends(&desk), [[End::ClientReset, End::ServerReset][side]]);
        assert!(desk.is_clean());
    }
}

#[test]
fn a_reset_after_one_half_has_ended_is_one() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.say(near, &bytes(10), true);
    assert!(desk.streams[&far].heard_end);
    desk.down(near);
    assert!(desk.streams[&far].reset);
    assert_eq!(ends(&desk), [End::ClientReset]);
    assert!(desk.is_clean());
}

#[test]
fn what_a_side_sent_before_both_halves_ended_is_still_passed_on() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.streams.get_mut(&far).unwrap().window = 0;
    desk.say(far, &bytes(10), true);
    desk.say(near, &bytes(200_000), true);
    // Its stream is fully closed.
    desk.down(near);
    assert!(!desk.streams[&far].closed);
    desk.take(far, usize::MAX);
    assert!(desk.streams[&far].heard == bytes(200_000));
    assert!(desk.streams[&far].heard_end && !desk.streams[&far].reset);
    assert_eq!(ends(&desk), [End::Complete]);
    assert!(desk.is_clean());
}

#[test]
fn where_nobody_listens_the_client_is_reset() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.say(near, &bytes(100), true);
    desk.refuse(Ticket(0));
    assert!(desk.streams[&near].reset);
    assert_eq!(ends(&desk), [End::NotConnected]);
    assert!(desk.is_clean());
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.wait(Config::default().connect_timeout);
    assert!(desk.streams[&near].reset);
    assert_eq!(ends(&desk), [End::ConnectTimeout]);
    assert!(desk.is_clean(), "nobody asks for it any more");
}

#[test]
fn a_client_that_goes_away_first_is_not_connected() {
    let mut desk = desk();
    let near = desk.open(1);
    desk.down(near);
    assert!(desk.asked.is_empty());
    assert_eq!(ends(&desk), [End::ClientReset]);
    // A late completion has no effect.
    desk.asked.insert(Ticket(0), (None, server()));
    let far = desk.accept(Ticket(0));
    assert!(desk.streams[&far].reset);
    assert!(desk.is_clean());
}

#[test]
fn silence_ends_a_connection_and_bytes_put_it_off() {
    let idle = Duration::from_secs(100);
    let mut desk = Desk::new(Config { idle: Some(idle), ..Config::default() });
    let [near, far] = desk.pair(1);
    desk.wait(idle / 2);
    desk.say(far, b"x", false);
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
    assert_eq!(desk.told.last(), Some(&turned_away));
    for (number, [near, far]) in pairs.iter().enumerate() {
        desk.say(*near, &bytes(number + 1), true);
        desk.say(*far, &bytes(2 * number + 1), true);
        assert_eq!(desk.streams[far].heard, bytes(number + 1));
        assert_eq!(desk.streams[near].heard, bytes(2 * number + 1));
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
    assert!(matches!(desk.told[..], [Indication::TurnedAway { why: Refusal::Loop, .. }]));
    assert!(desk.is_clean());
}

#[test]
fn a_proxy_that_stops_lets_what_there_is_go_on() {
    let mut desk = desk();
    let [near, far] = desk.pair(1);
    desk.pep.stop_accepting();
    let late = desk.open(2);
    assert!(desk.streams[&late].reset);
    desk.say(near, &bytes(100), false);
    assert_eq!(desk.streams[&far].heard, bytes(100));
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
fn an_opaque_proxy_goes_by_its_own_address() {
    let mut desk = Desk::new(Config { transparent: false, ..Config::default() });
    desk.open(1);
    assert_eq!(desk.asked[&Ticket(0)], (None, server()));
}
