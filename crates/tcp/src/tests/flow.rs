//! Windows, losses, acknowledgments and marks.

use std::time::Duration;

use engine::Ecn;

use super::raw::{ACK, ISN, Raw, Received, brief};
use super::world::{User, World, content, finished, lose};
use crate::cc::{Algorithm, Counting};
use crate::packet;
use crate::segment::{Flags, Header, SackBlock, SackBlocks, TcpOption};
use crate::test_world::Sent;
use crate::{
    AckPolicy, Backlog, Buffer, Config, Indication, InitialWindow, LossRecovery, Options, Profile,
};

const MSS: u32 = 1460;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn sizes(received: &[Received]) -> Vec<(u32, usize)> {
    received.iter().map(|h| (h.sequence, h.len)).collect()
}

/// Connection whose peer has a large window and large segments.
fn established(raw: &mut Raw, options: Options) -> crate::ConnectionId {
    raw.establish(options, &[TcpOption::MaximumSegmentSize(1460), TcpOption::SackPermitted])
}

#[test]
fn short_segments_wait_for_data_in_flight() {
    for nagle in [true, false] {
        let mut raw = Raw::new(Config::default());
        let id = established(&mut raw, Options { nagle, ..Raw::bare() });
        assert_eq!(sizes(&raw.write(id, 10)), [(1, 10)]);
        let second = sizes(&raw.write(id, 10));
        if nagle {
            assert!(second.is_empty());
            raw.write(id, 20);
            assert_eq!(sizes(&raw.say(ACK, (1, 11), &[], &[])), [(11, 30)]);
        } else {
            assert_eq!(second, [(11, 10)]);
        }
    }
}

#[test]
fn behind_full_segments_a_short_one_waits_only_if_a_short_one_is_in_flight() {
    for minshall in [true, false] {
        let mut raw = Raw::new(Config::default());
        let id = established(&mut raw, Options { nagle: true, minshall, ..Raw::bare() });
        let full = 1460;
        let first = sizes(&raw.write(id, full + 10));
        assert_eq!(first.len(), if minshall { 2 } else { 1 }, "{first:?}");
        let next = sizes(&raw.write(id, 10));
        assert!(next.is_empty(), "{next:?}");
        raw.stack.set_no_delay(raw.now, id, true).unwrap();
        let before = raw.received.len();
        raw.drain();
        assert_eq!(raw.received.len(), before + 1, "nothing waits any more");
    }
}

#[test]
fn every_second_segment_is_acknowledged_and_others_after_a_delay() {
    let mut raw = Raw::new(Config::default());
    let acks = AckPolicy { every: 2, max_delay: millis(100), quick: 0 };
    established(&mut raw, Options { acks, ..Raw::bare() });
    let full = [0; 1460];
    let mut at = 1;
    let mut counts = Vec::new();
    for _ in 0..6 {
        counts.push(raw.say(ACK, (at, 1), &full, &[]).len());
        at += MSS;
    }
    assert_eq!(counts, [0, 1, 0, 1, 0, 1]);
    assert!(raw.say(ACK, (at, 1), b"x", &[]).is_empty());
    assert!(raw.wait(millis(99)).is_empty());
    assert_eq!(brief(&raw.wait(millis(1))), [(ACK, 1, at + 1, 0)]);
    // Beyond a gap, and where one is filled: at once.
    assert_eq!(brief(&raw.say(ACK, (at + 11, 1), b"x", &[])), [(ACK, 1, at + 1, 0)]);
    assert_eq!(brief(&raw.say(ACK, (at + 1, 1), &[0; 10], &[])), [(ACK, 1, at + 12, 0)]);
}

#[test]
fn duplicate_segments_are_reported_by_dsack() {
    let mut raw = Raw::new(Config::default());
    established(&mut raw, Options { sack: true, ..Raw::bare() });
    raw.say(ACK, (1, 1), &[1; 100], &[]);
    let received = raw.say(ACK, (1, 1), &[1; 100], &[]);
    assert_eq!(received[0].blocks, [(1, 101)]);
    let received = raw.say(ACK, (201, 1), &[1; 100], &[]);
    assert_eq!(received[0].blocks, [(201, 301)]);
    let received = raw.say(ACK, (201, 1), &[1; 50], &[]);
    assert_eq!(received[0].blocks, [(201, 251), (201, 301)]);
}

/// RFC 2883 §4.2: the first contiguous part that had arrived.
#[test]
fn partial_duplicates_are_reported_by_dsack() {
    let mut raw = Raw::new(Config::default());
    let acks = AckPolicy { every: 1, ..AckPolicy::default() };
    established(&mut raw, Options { sack: true, acks, ..Raw::bare() });
    for at in [1001, 2001, 4001, 7001] {
        raw.say(ACK, (at, 1), &[1; 1000], &[]);
    }
    // In order, with two parts that had arrived.
    let received = raw.say(ACK, (1, 1), &[1; 6000], &[]);
    assert_eq!(brief(&received), [(ACK, 1, 6001, 0)]);
    assert_eq!(received[0].blocks, [(1001, 3001), (7001, 8001)]);
    // Over the gap.
    let received = raw.say(ACK, (6501, 1), &[1; 1000], &[]);
    assert_eq!(received[0].blocks, [(7001, 7501), (6501, 8001)]);
    // Acknowledged data, and new data behind it.
    let received = raw.say(ACK, (5001, 1), &[1; 1200], &[]);
    assert_eq!(brief(&received), [(ACK, 1, 6201, 0)]);
    assert_eq!(received[0].blocks, [(5001, 6001), (6501, 8001)]);
    // Nothing twice.
    let received = raw.say(ACK, (6201, 1), &[1; 300], &[]);
    assert_eq!(brief(&received), [(ACK, 1, 8001, 0)]);
    assert_eq!(received[0].blocks, []);
}

#[test]
fn a_closed_window_is_probed_and_opens() {
    let mut world = World::plain(1);
    let options = Options { receive_buffer: Buffer::Fixed(8_000), ..Options::default() };
    world.hosts[1].engine.template = User { reads: false, waits_for_peer: true, ..User::default() };
    world.listen(options, Backlog::default());
    let id =
        world.connect(Options::default(), User { content: content(30_000), ..User::default() });
    world.run_for(Duration::from_secs(4000));
    let info = world.info(0, id);
    assert_eq!((info.counts.bytes_acknowledged, info.peer_window), (8_000, 0));
    // 0.3, 0.6, 1.2 ... 120, 120, ...: some forty of them, and it is not given up.
    assert!((35..50).contains(&info.counts.window_probes), "{}", info.counts.window_probes);
    let other = world.accepted().unwrap();
    world.hosts[1].engine.users.get_mut(&other).unwrap().reads = true;
    world.use_connection(1, other);
    let before = world.now;
    world.run();
    finished(&world).unwrap();
    let closed = world.hosts[1].engine.users[&other].closed.unwrap().0;
    assert!(closed.since(before) < Duration::from_secs(2), "{:?}", closed.since(before));
}

#[test]
fn window_probes_get_one_reply_and_their_ack_counts() {
    let mut raw = Raw::new(Config::default());
    let options = Options { receive_buffer: Buffer::Fixed(1000), ..Raw::bare() };
    let id = established(&mut raw, options);
    raw.say(ACK, (1, 1), &[0; 1000], &[]);
    raw.wait(millis(100));
    assert_eq!(raw.received.last().map(|h| h.window), Some(0));
    raw.write(id, 10);
    let received = raw.say(ACK, (1001, 11), b"x", &[]);
    assert_eq!(brief(&received), [(ACK, 11, 1001, 0)]);
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.readable, info.unacknowledged), (1000, 0));
}

#[test]
fn an_acknowledgment_right_behind_the_window_counts() {
    let mut raw = Raw::new(Config::default());
    let options = Options { receive_buffer: Buffer::Fixed(1000), ..Raw::bare() };
    let id = established(&mut raw, options);
    raw.write(id, 10);
    // The peer has used up the window, and the last of it is lost.
    raw.say(ACK, (1, 1), &[0; 500], &[]);
    raw.say(ACK, (1002, 11), &[], &[]);
    assert_eq!(raw.stack.info(id).unwrap().unacknowledged, 10, "beyond that");
    raw.say(ACK, (1001, 11), &[], &[]);
    assert_eq!(raw.stack.info(id).unwrap().unacknowledged, 0);
}

#[test]
fn segments_are_as_long_as_both_sides_and_the_interface_take() {
    for (own, peer, expected) in [(None, 1460, 1448), (Some(1000), 1460, 988), (None, 536, 524)] {
        let mut raw = Raw::new(Config::default());
        let options = Options { mss: own, timestamps: true, ..Raw::bare() };
        let stamps = TcpOption::Timestamps { value: 1, echo: 0 };
        let id = raw.establish(options, &[TcpOption::MaximumSegmentSize(peer), stamps]);
        let received = raw.write(id, 5000);
        assert_eq!(received[0].len, expected, "{own:?} {peer}");
    }
}

#[test]
fn a_slow_reader_makes_no_silly_windows() {
    let mut world = World::plain(1);
    let options = Options { receive_buffer: Buffer::Fixed(10_000), ..Options::default() };
    world.hosts[1].engine.template = User { reads: false, ..User::default() };
    world.hosts[1].engine.template.closes = false;
    world.listen(options, Backlog::default());
    world.connect(Options::default(), User { content: content(60_000), ..User::default() });
    world.run_for(millis(500));
    let other = world.accepted().unwrap();
    let mut out = Vec::new();
    while out.len() < 60_000 {
        // A hundred bytes a time.
        let now = world.now;
        let stack = &mut world.hosts[1].engine.stack;
        let (first, second) = stack.peek(other).unwrap();
        let next: Vec<u8> = first.iter().chain(second).take(100).copied().collect();
        stack.consume(now, other, next.len()).unwrap();
        out.extend(next);
        world.drain(1);
        world.run_for(millis(5));
    }
    assert!(out == content(60_000));
    let short = |sent: &&Sent| sent.from == 0 && (53..1400).contains(&sent.bytes.len());
    let short = world.log.iter().filter(short).count();
    assert!(short <= 15, "{short} short segments");
}

#[test]
fn without_a_shift_no_window_is_longer_than_65_535() {
    let mut world = World::plain(1);
    let options = Options {
        window_scale: false,
        receive_buffer: Buffer::Fixed(1 << 20),
        ..Options::default()
    };
    world.listen(options, Backlog::default());
    let user = User { content: content(500_000), ..User::default() };
    let id =
        world.connect(Options { send_buffer: Buffer::Fixed(1 << 20), ..Options::default() }, user);
    let mut most = 0;
    while world.step() {
        most = most.max(world.hosts[0].engine.stack.info(id).map_or(0, |info| info.in_flight));
    }
    finished(&world).unwrap();
    assert!((60_000..=65_535).contains(&most), "{most}");
}

/// Sends segments from 1 on, of which these are lost; without options that interfere.
fn with_losses(options: Options, lost: &'static [usize]) -> World {
    let mut world = World::plain(1);
    world.lose(lose(lost, &[]));
    transfer_60(&mut world, options);
    world
}

fn transfer_60(world: &mut World, options: Options) {
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, User { content: content(60 * 1460), ..User::default() });
    world.run();
    finished(world).unwrap();
}

/// Milliseconds since the start at which the first host retransmitted anything.
fn sent_again(world: &World) -> Vec<u128> {
    let mut found = std::collections::BTreeSet::new();
    let start = world.log[0].at;
    let mut times = Vec::new();
    for (sent, line) in world.log.iter().zip(world.transcript()) {
        let number: String =
            line.chars().skip_while(|c| !c.is_ascii_digit()).take_while(|c| *c != ' ').collect();
        if sent.from == 0 && !number.ends_with("+0") && !found.insert(number) {
            times.push(sent.at.since(start).as_millis());
        }
    }
    times
}

fn reno(sack: bool, recovery: LossRecovery) -> Options {
    Options {
        congestion: Algorithm::NewReno(Counting::default()),
        initial_window: InitialWindow::Segments(20),
        timestamps: false,
        sack,
        recovery,
        rack: false,
        acks: AckPolicy { every: 1, max_delay: millis(40), quick: 0 },
        send_buffer: Buffer::Fixed(1 << 20),
        ..Options::default()
    }
}

#[test]
fn without_sack_one_loss_is_repaired_a_round_trip() {
    // SYN, ACK, then data: the segments 5, 7 and 9 are lost.
    let world = with_losses(reno(false, LossRecovery::NewReno), &[6, 8, 10]);
    assert_eq!(sent_again(&world), [200, 300, 400]);
    let id = *world.hosts[0].engine.users.keys().next().unwrap();
    assert!(world.hosts[0].engine.users[&id].closed.is_some());
}

#[test]
fn with_sack_all_losses_are_repaired_in_one_round_trip() {
    for recovery in [LossRecovery::Sack6675, LossRecovery::Prr, LossRecovery::RateHalving] {
        let times = sent_again(&with_losses(reno(true, recovery), &[6, 8]));
        assert_eq!(times, [200, 200], "{recovery:?}");
    }
}

#[test]
fn a_retransmission_that_is_lost_waits_for_the_timer_or_for_rack() {
    // The fifth segment is lost twice.
    let times = |options: Options| {
        let mut numbers = Vec::new();
        let mut world = World::plain(1);
        world.lose(move |from, _, bytes| {
            let segment = packet::decode(bytes).expect("our own packet").segment;
            let sequence = segment.header.sequence;
            if from == 1 || segment.payload.is_empty() {
                return false;
            }
            numbers.push(sequence);
            let again = numbers.iter().filter(|number| **number == sequence).count();
            let fifth = numbers.get(4) == Some(&sequence);
            fifth && again <= 2
        });
        transfer_60(&mut world, options);
        sent_again(&world)
    };
    let plain = times(reno(true, LossRecovery::Prr));
    let rack = times(Options { rack: true, ..reno(true, LossRecovery::Prr) });
    assert_eq!((plain[0], rack[0]), (200, 200));
    assert!(rack[1] <= 305 && plain[1] >= 400, "{rack:?} {plain:?}");
}

#[test]
fn the_first_two_duplicates_bring_new_data() {
    for (limited_transmit, expected) in [(true, [1, 1, 1]), (false, [0, 0, 1])] {
        let mut raw = Raw::new(Config::default());
        let options = Options {
            limited_transmit,
            initial_window: InitialWindow::Segments(6),
            rack: false,
            ..reno(false, LossRecovery::NewReno)
        };
        let id = established(&mut raw, options);
        assert_eq!(raw.write(id, 12 * MSS as usize).len(), 6);
        let counts = [0; 3].map(|_| raw.say(ACK, (1, 1), &[], &[]).len());
        assert_eq!(counts, expected, "{limited_transmit}");
        assert_eq!(raw.received.last().unwrap().sequence, 1, "the third: a fast retransmission");
    }
}

#[test]
fn writable_is_indicated_at_a_third_or_any_free_space() {
    for (any_room, told_at) in [(false, 4), (true, 1)] {
        let mut raw = Raw::new(Config::default());
        let options = Options {
            any_room,
            send_buffer: Buffer::Fixed(u64::from(12 * MSS)),
            initial_window: InitialWindow::Segments(12),
            ..reno(false, LossRecovery::NewReno)
        };
        let id = established(&mut raw, options);
        raw.write(id, 12 * MSS as usize);
        // Nothing is accepted now, so the user waits.
        assert_eq!(raw.stack.send(raw.now, id, &[7]), Ok(0));
        let reported = (1..=12).find(|segments| {
            raw.say(ACK, (1, 1 + segments * MSS), &[], &[]);
            raw.indications.contains(&Indication::Writable { connection: id })
        });
        assert_eq!(reported, Some(told_at), "{any_room}");
    }
}

#[test]
fn reno_halves_and_a_partial_acknowledgment_brings_the_next_hole() {
    let mut raw = Raw::new(Config::default());
    let options = Options {
        initial_window: InitialWindow::Segments(10),
        ..reno(false, LossRecovery::NewReno)
    };
    let id = established(&mut raw, options);
    raw.write(id, 40 * MSS as usize);
    (0..3).for_each(|_| _ = raw.say(ACK, (1, 1), &[], &[]));
    let info = raw.stack.info(id).unwrap();
    // Ten segments in flight, and two of limited transmit that do not count.
    assert_eq!((info.ssthresh, info.cwnd), (5 * 1460, 5 * 1460));
    // Seven more have left; then the hole is filled up to the second.
    (0..7).for_each(|_| _ = raw.say(ACK, (1, 1), &[], &[]));
    let received = raw.say(ACK, (1, 1 + 3 * MSS), &[], &[]);
    assert_eq!(received[0].sequence, 1 + 3 * MSS);
    // All of it: the window is the threshold.
    let end = raw.received.iter().map(|h| h.sequence + h.len as u32).max().unwrap();
    raw.say(ACK, (1, end), &[], &[]);
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.cwnd, info.counts.recoveries), (5 * 1460, 1));
}

#[test]
fn a_reaction_to_a_late_segment_is_undone() {
    // A segment that is 30 ms late, with the peer's report when it arrives twice.
    for (timestamps, duplicate_sack) in [(true, false), (false, true)] {
        let options =
            Options { timestamps, duplicate_sack, rack: false, ..reno(true, LossRecovery::Prr) };
        let mut world = World::plain(1);
        world.fate = Box::new(|passing| {
            let late = passing.from == 0 && passing.number == 6;
            vec![millis(if late { 30 } else { 0 })]
        });
        // Otherwise everything would be sent at the same moment, including late segments.
        world.line().rate_bps = Some(10_000_000);
        world.hosts[1].engine.template.waits_for_peer = true;
        world.listen(options.clone(), Backlog::default());
        let user = User { content: content(200 * 1460), ..User::default() };
        let id = world.connect(options, user);
        world.run_for(millis(600));
        let info = world.info(0, id);
        assert_eq!((info.counts.recoveries, info.counts.spurious), (1, 1), "{timestamps}");
        assert!(info.cwnd >= 20 * 1448, "{}", info.cwnd);
        world.run();
        finished(&world).unwrap();
    }
}

#[test]
fn marks_reduce_the_window_once_a_round_trip() {
    let mut raw = Raw::new(Config::default());
    raw.listen(Options { ecn: true, ..reno(false, LossRecovery::NewReno) }, Backlog::default());
    let flags = Flags::SYN | Flags::ECE | Flags::CWR;
    let received = raw.say(flags, (0, 0), &[], &[TcpOption::MaximumSegmentSize(1460)]);
    assert!(received[0].flags.contains(Flags::ECE) && !received[0].flags.contains(Flags::CWR));
    raw.say(ACK, (1, 1), &[], &[]);
    let id = raw.incoming().unwrap();
    let data = raw.write(id, 60 * MSS as usize);
    assert!(data.iter().all(|h| h.ecn == Ecn::Ect0));
    raw.say(ACK | Flags::ECE, (1, 1 + MSS), &[], &[]);
    let halved = raw.stack.info(id).unwrap().cwnd;
    assert!(halved <= 11 * 1460, "{halved}");
    raw.say(ACK | Flags::ECE, (1, 1 + 2 * MSS), &[], &[]);
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.cwnd, info.counts.ecn_reductions), (halved, 1));
    // The next new data reports it.
    let received = raw.say(ACK, (1, 1 + 15 * MSS), &[], &[]);
    assert!(received[0].flags.contains(Flags::CWR) && !received[1].flags.contains(Flags::CWR));
    // And in reverse: a mark is echoed until the peer confirms it.
    raw.ecn = Ecn::Ce;
    let received = raw.say(ACK, (1, 1 + 15 * MSS), b"marked", &[]);
    assert!(received[0].flags.contains(Flags::ECE));
    raw.ecn = Ecn::Ect0;
    raw.say(ACK, (7, 1 + 15 * MSS), b"more", &[]);
    let received = raw.wait(millis(200));
    assert!(received[0].flags.contains(Flags::ECE));
    let mut received = raw.say(ACK | Flags::CWR, (11, 1 + 15 * MSS), b"more", &[]);
    received.extend(raw.wait(millis(200)));
    assert!(!received[0].flags.contains(Flags::ECE));
}

#[test]
fn the_last_segments_are_sent_again_before_the_timer() {
    let time = |tail_loss_probe| {
        let options = Options { tail_loss_probe, ..Options::default() };
        let mut world = World::plain(1);
        world.lose(lose(&[12, 13], &[]));
        world.hosts[1].engine.template.waits_for_peer = true;
        world.listen(options.clone(), Backlog::default());
        let user = User { content: content(12 * 1448), ..User::default() };
        world.connect(options, user);
        world.run();
        finished(&world).unwrap();
        sent_again(&world)
    };
    let (with, without) = (time(true), time(false));
    assert!(with[0] + 50 < without[0], "{with:?} {without:?}");
}

/// A window that begins when nothing is in flight, and whose only acknowledgment is lost, does not
/// wait for the timeout, although its first segment alone would.
#[test]
fn tail_loss_probe_follows_a_lost_acknowledgment() {
    let mut raw = Raw::new(Config::default());
    let initial_window = InitialWindow::Segments(4);
    let settings = reno(true, LossRecovery::Prr);
    let options = Options { tail_loss_probe: true, initial_window, ..settings };
    let id = established(&mut raw, options);
    raw.write(id, 4 * MSS as usize);
    raw.say(ACK, (1, 1 + 4 * MSS), &[], &[]);
    let window = raw.write(id, 4 * MSS as usize);
    assert_eq!(window.len(), 4, "{:?}", brief(&window));
    let received = raw.wait(millis(100));
    assert_eq!(sizes(&received), [(1 + 7 * MSS, MSS as usize)], "{:?}", brief(&received));
    let counts = raw.stack.info(id).unwrap().counts;
    assert_eq!((counts.tail_loss_probes, counts.timeouts), (1, 0));
}

#[test]
fn reneging_peers_get_retransmissions() {
    let mut raw = Raw::new(Config::default());
    let id = established(
        &mut raw,
        Options { initial_window: InitialWindow::Segments(4), ..reno(true, LossRecovery::Prr) },
    );
    raw.write(id, 4 * MSS as usize);
    let first = raw.received.iter().find(|h| h.len > 0).unwrap().sequence;
    assert_eq!(first, 1);
    let numbers = raw.received.iter().map(|h| h.sequence).max().unwrap();
    assert_eq!(numbers, 1 + 3 * MSS);
    // It reports the second and third, acknowledges the first, and forgets the rest.
    let absolute = |raw: &Raw, at: u32| raw.absolute(at);
    let block = SackBlock { left: absolute(&raw, 1 + MSS), right: absolute(&raw, 1 + 3 * MSS) };
    let sack: SackBlocks = [block].into_iter().collect();
    raw.say(ACK, (1, 1), &[], &[TcpOption::Sack(sack)]);
    raw.say(ACK, (1, 1 + MSS), &[], &[]);
    raw.received.clear();
    raw.wait(Duration::from_secs(30));
    assert!(raw.received.iter().any(|h| h.sequence == 1 + MSS), "{:?}", brief(&raw.received));
}

#[test]
fn a_window_that_shrinks_does_no_harm() {
    let mut raw = Raw::new(Config::default());
    let id = established(&mut raw, reno(false, LossRecovery::NewReno));
    raw.write(id, 20 * MSS as usize);
    let header = Header {
        sequence: ISN + 1,
        acknowledgment: raw.absolute(1),
        flags: ACK,
        window: 1000,
        ..Header::default()
    };
    raw.say_exactly(header, &[], &[]);
    let again = raw.wait(Duration::from_secs(1));
    assert_eq!(sizes(&again)[0], (1, 1460), "what was sent is sent again");
    raw.say(ACK, (1, 1 + 20 * MSS), &[], &[]);
    assert_eq!(raw.stack.info(id).unwrap().unacknowledged, 0);
}

/// Throughput, in bytes per second, of a transfer over 10 Mbit/s and 600 ms.
fn long_link(options: &Options, len: usize) -> f64 {
    let mut world = World::plain(1);
    world.logging = false;
    world.line().delay = millis(300);
    world.line().rate_bps = Some(10_000_000);
    world.line().queue = 1_000_000;
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options.clone(), User { content: content(len), ..User::default() });
    let start = world.now;
    world.run();
    finished(&world).unwrap();
    let end = world.hosts[0].engine.users.values().next().unwrap().closed.unwrap().0;
    len as f64 / end.since(start).as_secs_f64()
}

#[test]
fn automatic_buffers_grow_with_the_link_and_fixed_ones_do_not() {
    let reno = Algorithm::NewReno(Counting::default());
    let options = Options { congestion: reno, ..Profile::Modern.options() };
    let modern = long_link(&options, 12_000_000);
    assert!(modern > 0.6 * 1_250_000.0, "{modern}");
    // 32,767 bytes in each 600 ms and a little more.
    let old = long_link(&Profile::Linux22.options(), 600_000);
    let bound = 32_767.0 / 0.6;
    assert!((0.7 * bound..=bound).contains(&old), "{old}");
}

#[test]
fn all_profiles_carry_a_file() {
    for profile in Profile::ALL {
        assert!(long_link(&profile.options(), 200_000) > 20_000.0, "{profile:?}");
    }
}
