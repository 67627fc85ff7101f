//! Opening, closing and resets by RFC 9293 and RFC 5961.

use std::time::Duration;

use engine::{Engine as _, Time};

use super::raw::{ACK, FIN, ISN, RST, Raw, SYN, brief};
use super::world::{User, World, content, finished};
use crate::segment::{Header, TcpOption};
use crate::{
    Backlog, CloseReason, Config, Cookies, Indication, KeepAlive, Limits, Options, RequestError,
    State,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn closed_ports_reply_with_resets() {
    let mut raw = Raw::new(Config::default());
    assert_eq!(brief(&raw.say(SYN, (0, 0), &[], &[])), [(RST | ACK, 0, 1, 0)]);
    let header = Header { acknowledgment: 77, sequence: 5, flags: ACK, ..Header::default() };
    let received = raw.say_exactly(header, b"data", &[]);
    assert_eq!((received[0].flags, received[0].sequence), (RST, 77));
    assert!(raw.say(RST, (0, 0), &[], &[]).is_empty());
    assert!(raw.stack.poll_timeout().is_none());
    let mut silent = Raw::new(Config { reset_strangers: false, ..Config::default() });
    assert!(silent.say(SYN, (0, 0), &[], &[]).is_empty());
}

#[test]
fn a_connection_is_refused() {
    let mut raw = Raw::new(Config::default());
    raw.connect(Raw::bare());
    // A reset that acknowledges nothing of it, and one that does.
    raw.say(RST | ACK, (0, 9), &[], &[]);
    assert_eq!(raw.closed(), None);
    raw.say(RST | ACK, (0, 1), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Refused));
    assert!(raw.stack.poll_timeout().is_none());
}

#[test]
fn old_syn_acks_are_reset() {
    let mut raw = Raw::new(Config::default());
    let id = raw.connect(Raw::bare());
    let received = raw.say(SYN | ACK, (0, 50), &[], &[]);
    assert_eq!((received[0].flags, received[0].sequence), (RST, 50));
    assert_eq!(raw.state(id), Some(State::SynSent));
    assert_eq!(brief(&raw.say(SYN | ACK, (0, 1), &[], &[])), [(ACK, 1, 1, 0)]);
    assert_eq!(raw.state(id), Some(State::Established));
}

#[test]
fn simultaneous_open_establishes_one_connection() {
    let mut raw = Raw::new(Config::default());
    let id = raw.connect(Raw::bare());
    assert_eq!(brief(&raw.say(SYN, (0, 0), &[], &[])), [(SYN | ACK, 0, 1, 0)]);
    assert_eq!(raw.state(id), Some(State::SynReceived));
    raw.say(SYN | ACK, (0, 1), &[], &[]);
    assert_eq!(raw.state(id), Some(State::Established));
    assert_eq!(raw.indications, [Indication::Connected { connection: id }]);
}

#[test]
fn two_stacks_open_at_the_same_time() {
    for options in [Options::default(), Raw::bare()] {
        let mut world = World::plain(3);
        let ends = [([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 7).into()];
        for host in 0..2 {
            let now = world.now;
            let here = &mut world.hosts[host].engine;
            let id = here.stack.connect(now, ends[host], ends[1 - host], options.clone()).unwrap();
            here.users.insert(id, User { content: content(20_000), ..User::default() });
        }
        (0..2).for_each(|host| world.drain(host));
        world.run();
        finished(&world).unwrap();
    }
}

#[test]
fn syns_are_retransmitted_after_one_three_and_seven_seconds() {
    let mut raw = Raw::new(Config::default());
    let start = raw.now;
    raw.connect(Options { syn_retries: 3, ..Raw::bare() });
    raw.wait(Duration::from_secs(100));
    let times: Vec<_> = raw.received.iter().map(|h| h.at.since(start).as_secs()).collect();
    assert_eq!(times, [0, 1, 3, 7]);
    assert_eq!(raw.closed(), Some(CloseReason::TimedOut));
    assert!(raw.stack.poll_timeout().is_none());
}

#[test]
fn repeated_syns_get_the_same_reply() {
    let mut raw = Raw::new(Config::default());
    raw.listen(Raw::bare(), Backlog::default());
    let first = raw.say(SYN, (0, 0), &[], &[]);
    let second = raw.say(SYN, (0, 0), &[], &[]);
    assert_eq!(brief(&first), [(SYN | ACK, 0, 1, 0)]);
    assert_eq!(brief(&first), brief(&second));
    // A wrong acknowledgment is reset; a reset ends it silently.
    assert_eq!(raw.say(ACK, (1, 9), &[], &[])[0].flags, RST);
    assert!(raw.say(RST, (1, 0), &[], &[]).is_empty());
    assert!(raw.indications.is_empty() && raw.stack.poll_timeout().is_none());
}

#[test]
fn a_reset_counts_with_the_exact_number() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    assert!(raw.say(RST, (100_000, 0), &[], &[]).is_empty(), "out of the window");
    assert_eq!(brief(&raw.say(RST, (50, 0), &[], &[])), [(ACK, 1, 1, 0)], "challenged");
    assert!(raw.say(RST, (51, 0), &[], &[]).is_empty(), "not twice within 500 ms");
    assert!(raw.say(SYN, (60, 0), &[], &[]).is_empty());
    raw.wait(millis(500));
    assert_eq!(brief(&raw.say(SYN, (60, 0), &[], &[])), [(ACK, 1, 1, 0)]);
    assert_eq!(raw.state(id), Some(State::Established));
    raw.say(RST, (1, 0), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Reset));
    assert_eq!(raw.state(id), None);
}

#[test]
fn without_rfc_5961_any_reset_in_the_window_counts() {
    let mut raw = Raw::new(Config { robust: false, ..Config::default() });
    raw.establish(Raw::bare(), &[]);
    raw.say(RST, (50, 0), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Reset));
}

#[test]
fn data_with_an_invalid_acknowledgment_is_dropped() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    for ack in [2_u32, 0_u32.wrapping_sub(200_000)] {
        raw.wait(millis(600));
        assert_eq!(brief(&raw.say(ACK, (1, ack), b"evil", &[])), [(ACK, 1, 1, 0)]);
    }
    assert_eq!(raw.stack.info(id).unwrap().readable, 0);
}

#[test]
fn segments_with_old_timestamps_are_dropped() {
    let stamp = |value| [TcpOption::Timestamps { value, echo: 0 }];
    let mut raw = Raw::new(Config::default());
    let options = Options { timestamps: true, ..Raw::bare() };
    let id = raw.establish(options, &stamp(u32::MAX - 5));
    raw.say(ACK, (1, 1), b"good", &stamp(3));
    let received = raw.say(ACK, (5, 1), b"old", &stamp(u32::MAX - 1));
    assert_eq!((received[0].flags, received[0].acknowledgment), (ACK, 5));
    assert!(raw.say(ACK, (5, 1), b"bare", &[]).is_empty(), "without any it is dropped");
    assert_eq!(raw.stack.info(id).unwrap().readable, 4);
    // After 24 days the last one is not compared any more.
    raw.wait(Duration::from_secs(25 * 86_400));
    raw.say(ACK, (5, 1), b"new", &stamp(u32::MAX - 1));
    assert_eq!(raw.stack.info(id).unwrap().readable, 7);
}

#[test]
fn half_closed_connections_carry_the_other_direction() {
    let mut world = World::plain(1);
    world.hosts[1].engine.template =
        User { content: content(50_000), waits_for_peer: true, ..User::default() };
    world.listen(Options::default(), Backlog::default());
    world.connect(Options::default(), User::default());
    world.run();
    finished(&world).unwrap();
}

#[test]
fn both_close_at_the_same_time() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    raw.stack.shut_down(raw.now, id).unwrap();
    raw.drain();
    assert_eq!(brief(&raw.received)[1..], [(FIN | ACK, 1, 1, 0)]);
    assert_eq!(raw.state(id), Some(State::FinWait1));
    // Its FIN does not acknowledge ours.
    assert_eq!(brief(&raw.say(FIN | ACK, (1, 1), &[], &[])), [(ACK, 2, 2, 0)]);
    assert_eq!(raw.state(id), Some(State::Closing));
    raw.say(ACK, (2, 2), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Graceful));
}

#[test]
fn the_peer_closes_first() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    assert_eq!(brief(&raw.say(FIN | ACK, (1, 1), b"end", &[])), [(ACK, 1, 5, 0)]);
    assert_eq!(raw.state(id), Some(State::CloseWait));
    raw.stack.shut_down(raw.now, id).unwrap();
    raw.drain();
    assert_eq!(raw.state(id), Some(State::LastAck));
    assert_eq!(raw.stack.send(raw.now, id, b"x"), Err(RequestError::Closing));
    raw.say(ACK, (5, 2), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Graceful));
    // Received data can still be read; after that the connection is unknown.
    let mut out = Vec::new();
    assert_eq!(raw.stack.receive(raw.now, id, &mut out), Ok(3));
    assert_eq!((out.as_slice(), raw.state(id)), (&b"end"[..], None));
    assert!(raw.stack.poll_timeout().is_none());
}

/// Connection closed by the stack first, so that it is in TIME-WAIT.
fn waiting(config: Config) -> Raw {
    let mut raw = Raw::new(config);
    let id = raw.establish(Raw::bare(), &[]);
    raw.stack.shut_down(raw.now, id).unwrap();
    raw.drain();
    raw.say(FIN | ACK, (1, 2), &[], &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Graceful));
    raw
}

#[test]
fn in_time_wait_a_fin_is_acknowledged_and_a_new_syn_opens() {
    let mut raw = waiting(Config::default());
    raw.wait(Duration::from_secs(40));
    assert_eq!(brief(&raw.say(FIN | ACK, (1, 2), &[], &[])), [(ACK, 2, 2, 0)]);
    assert!(raw.say(RST, (2, 0), &[], &[]).is_empty(), "RFC 1337: it stays");
    // It lasts for as long again.
    raw.wait(Duration::from_secs(59));
    assert_eq!(raw.stack.poll_timeout().map(|d| d.why), Some("TIME-WAIT"));
    assert_eq!(brief(&raw.say(SYN, (1, 0), &[], &[])), [(ACK, 2, 2, 0)], "an old one");
    let reply = raw.say(SYN, (5000, 0), &[], &[]);
    assert_eq!(brief(&reply), [(SYN | ACK, 0, 5001, 0)]);
    raw.say(ACK, (5001, 1), &[], &[]);
    assert_eq!(raw.stack.connections().count(), 1);
}

#[test]
fn time_wait_ends_and_is_bounded() {
    let mut raw = waiting(Config::default());
    raw.wait(Duration::from_secs(61));
    assert!(raw.stack.poll_timeout().is_none());
    assert_eq!(raw.say(FIN | ACK, (1, 2), &[], &[])[0].flags, RST, "forgotten");
    let limits = Limits { time_wait: 3, ..Limits::default() };
    let mut raw = Raw::new(Config { limits, ..Config::default() });
    raw.listen(Raw::bare(), Backlog::default());
    for port in 0..10_u16 {
        raw.speak_from(6000 + port);
        raw.say(SYN, (0, 0), &[], &[]);
        raw.say(ACK, (1, 1), &[], &[]);
        let id = raw.incoming().unwrap();
        raw.stack.shut_down(raw.now, id).unwrap();
        raw.drain();
        raw.say(FIN | ACK, (1, 2), &[], &[]);
    }
    let mut answers = |port: u16| {
        raw.speak_from(6000 + port);
        let header = Header { sequence: ISN + 1, flags: FIN | ACK, ..Header::default() };
        raw.say_exactly(header, &[], &[])[0].flags
    };
    assert_eq!((answers(6), answers(7), answers(9)), (RST, ACK, ACK));
}

#[test]
fn data_to_closed_connections_is_reset() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    raw.stack.close(raw.now, id).unwrap();
    raw.drain();
    assert_eq!(raw.say(ACK, (1, 2), b"late", &[])[0].flags, RST);
    assert_eq!(raw.closed(), Some(CloseReason::Aborted));
    // Unread data: the peer must not consider it delivered.
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    raw.say(ACK, (1, 1), b"unread", &[]);
    raw.stack.close(raw.now, id).unwrap();
    raw.drain();
    assert_eq!(raw.received.last().map(|h| h.flags), Some(RST | ACK));
}

#[test]
fn peers_that_never_close_are_abandoned() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    raw.stack.close(raw.now, id).unwrap();
    raw.drain();
    raw.say(ACK, (1, 2), &[], &[]);
    assert_eq!(raw.state(id), Some(State::FinWait2));
    raw.wait(Duration::from_secs(61));
    assert_eq!((raw.state(id), raw.stack.poll_timeout()), (None, None));
}

#[test]
fn an_abort_resets_the_peer() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Raw::bare(), &[]);
    raw.stack.abort(raw.now, id).unwrap();
    raw.drain();
    assert_eq!(brief(&raw.received)[1..], [(RST | ACK, 1, 1, 0)]);
    assert_eq!(raw.closed(), Some(CloseReason::Aborted));
    assert_eq!(raw.stack.abort(raw.now, id), Err(RequestError::UnknownConnection));
}

#[test]
fn keep_alives_detect_vanished_peers() {
    let keep_alive =
        KeepAlive { idle: Duration::from_secs(100), interval: Duration::from_secs(10), probes: 3 };
    let mut raw = Raw::new(Config::default());
    let options = Options { keep_alive: Some(keep_alive), ..Raw::bare() };
    raw.establish(options, &[]);
    let start = raw.now;
    raw.received.clear();
    raw.wait(Duration::from_secs(105));
    assert_eq!(brief(&raw.received), [(ACK, 0, 1, 0)], "a byte that it has");
    raw.say(ACK, (1, 1), &[], &[]);
    raw.received.clear();
    raw.wait(Duration::from_secs(300));
    let times: Vec<_> = raw.received.iter().map(|h| h.at.since(start).as_secs()).collect();
    assert_eq!(times, [205, 215, 225]);
    assert_eq!(raw.closed(), Some(CloseReason::TimedOut));
}

#[test]
fn unacknowledged_data_times_out() {
    let mut raw = Raw::new(Config::default());
    let id = raw.establish(Options { retries: 4, ..Raw::bare() }, &[]);
    let start = raw.now;
    raw.received.clear();
    raw.write(id, 10);
    raw.wait(Duration::from_secs(1000));
    // The round trip took no time: 200 ms at first, then twice as long each.
    let times: Vec<_> = raw.received.iter().map(|h| h.at.since(start).as_millis()).collect();
    assert_eq!(times, [0, 200, 600, 1400, 3000]);
    assert_eq!(raw.closed(), Some(CloseReason::TimedOut));
    assert!(raw.stack.poll_timeout().is_none());
}

#[test]
fn a_backlog_is_bounded_and_cookies_take_no_memory() {
    let mut raw = Raw::new(Config::default());
    raw.listen(Raw::bare(), Backlog { half_open: 3, cookies: Cookies::Never });
    let answered = |raw: &mut Raw, count: u16| {
        (0..count)
            .filter(|port| {
                raw.speak_from(7000 + port);
                !raw.say(SYN, (0, 0), &[], &[]).is_empty()
            })
            .count()
    };
    assert_eq!(answered(&mut raw, 20), 3);
    let full = |i: &&Indication| matches!(i, Indication::BacklogFull { .. });
    assert_eq!(raw.indications.iter().filter(full).count(), 1);
    let mut raw = Raw::new(Config::default());
    raw.listen(Options::default(), Backlog { half_open: 3, cookies: Cookies::WhenFull });
    assert_eq!(answered(&mut raw, 3), 3);
    let before = raw.stack.memory();
    assert_eq!(answered(&mut raw, 2000), 2000);
    assert!(raw.stack.memory() < before + 500, "{before} {}", raw.stack.memory());
    assert!(raw.stack.statistics().cookies_sent >= 1997);
}

#[test]
fn returned_syn_cookies_establish_their_connection() {
    let mut raw = Raw::new(Config::default());
    raw.listen(Options::default(), Backlog { half_open: 0, cookies: Cookies::WhenFull });
    let offered = [
        TcpOption::MaximumSegmentSize(1400),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 50, echo: 0 },
        TcpOption::NoOperation,
        TcpOption::WindowScale(5),
    ];
    let answer = raw.say(SYN, (0, 0), &[], &offered).remove(0);
    assert_eq!((answer.flags, answer.sack), (SYN | ACK, true));
    let (value, echo) = answer.stamps.unwrap();
    assert_eq!(echo, 50);
    // A mismatching one is reset, and creates nothing.
    let stamps = [TcpOption::Timestamps { value: 60, echo: value }];
    assert_eq!(raw.say(ACK, (1, 2), &[], &stamps)[0].flags, RST);
    assert_eq!(raw.stack.connections().count(), 0);
    raw.wait(Duration::from_secs(20));
    raw.say(ACK, (1, 1), b"hello", &stamps);
    let id = raw.incoming().expect("it is established");
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.mss, info.sack, info.timestamps), (1360 - 12, true, true));
    assert_eq!((info.window_scale.0, info.readable), (5, 5));
    assert_eq!(info.peer_window, 60_000 << 5);
}

#[test]
fn invalid_requests_are_refused() {
    let mut raw = Raw::new(Config::default());
    raw.listen(Raw::bare(), Backlog::default());
    let now = raw.now;
    let v4 = ([10, 0, 0, 2], 80).into();
    let v6 = "[::1]:80".parse().unwrap();
    let any = ([0, 0, 0, 0], 80).into();
    let again = raw.stack.listen(v4, Options::default(), Backlog::default());
    assert_eq!(again, Err(RequestError::InUse));
    let mut connect = |local, remote| raw.stack.connect(now, local, remote, Options::default());
    assert_eq!(connect(v4, v6), Err(RequestError::Address));
    assert_eq!(connect(any, v4), Err(RequestError::Address));
    assert!(connect(v4, ([10, 0, 0, 9], 80).into()).is_ok());
    assert_eq!(connect(v4, ([10, 0, 0, 9], 80).into()), Err(RequestError::InUse));
    let mut lonely = crate::Stack::new(Config::default(), engine::Rng::new(1, "x"));
    let none = lonely.connect(Time::ZERO, v4, ([10, 0, 0, 9], 80).into(), Options::default());
    assert_eq!(none, Err(RequestError::NoRoute));
}
