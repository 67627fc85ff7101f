//! SCPS-TP: compressed headers, outages, corruption reports, records, the best-effort service.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::PathEvent;
use wire::ip::{HEADER_LEN as IP_LEN, Ipv4};

use super::world::{PATH, User, World, content, finished, lose};
use crate::packet::{Flow, Tuple};
use crate::scps::{Bets, Carrier, Hole, LossCause, Scps, Snack, SnackForm};
use crate::segment::scps::{COMPRESSED_PROTOCOL, Compressed, Head, PROTOCOL};
use crate::segment::{Flags, PseudoHeader, Segment, TcpOption};
use crate::{
    Backlog, CloseReason, Config, ConnectionId, Indication, Options, Profile, RequestError,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn options(timestamps: bool, scps: Scps) -> Options {
    Options { timestamps, scps: Some(scps), ..Profile::ScpsVj.options() }
}

fn compressing() -> Scps {
    Scps { header_compression: true, ..Scps::default() }
}

/// Sends data from the first host to the second, and as much back.
fn begin(world: &mut World, [first, second]: [Options; 2], len: usize) -> ConnectionId {
    world.hosts[1].engine.template.content = content(len);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(second, Backlog::default());
    world.connect(first, User { content: content(len), ..User::default() })
}

/// Protocol, header length and data length of each packet of a host.
fn packets(world: &World, host: usize) -> Vec<(u8, usize, usize)> {
    let sent = world.log.iter().filter(|sent| sent.from == host);
    sent.map(|sent| {
        let (ip, payload) = Ipv4::decode(&sent.bytes).unwrap();
        let data = match ip.protocol {
            COMPRESSED_PROTOCOL => Compressed::decode_unchecked(payload).unwrap().0.payload.len(),
            _ => Segment::decode_unchecked(payload).unwrap().payload.len(),
        };
        (ip.protocol, payload.len() - data, data)
    })
    .collect()
}

#[test]
fn compressed_headers_carry_a_conversation_with_losses() {
    for (timestamps, header) in [(false, 8), (true, 16)] {
        for form in [SnackForm::Short, SnackForm::Bits] {
            let snack = Some(Snack { form, ..Snack::default() });
            let both = options(timestamps, Scps { snack, ..compressing() });
            let mut world = World::plain(1);
            world.lose(lose(&[5, 9, 20, 21], &[4, 12, 13, 30]));
            begin(&mut world, [both.clone(), both], 120_000);
            world.run();
            finished(&world).unwrap();
            for host in 0..2 {
                let packets = packets(&world, host);
                assert_eq!(packets[0].0, crate::segment::PROTOCOL, "a SYN is whole");
                let rest: Vec<_> = packets.iter().filter(|p| p.2 > 0).collect();
                assert!(
                    rest.iter().all(|p| (p.0, p.1) == (COMPRESSED_PROTOCOL, header)),
                    "{rest:?}"
                );
                // The data uses the bytes that the header saves.
                assert!(rest.iter().any(|p| p.2 == 1480 - header), "{rest:?}");
                assert!(packets.iter().all(|p| p.1 + p.2 <= 1480));
                assert_eq!(world.hosts[host].engine.stack.statistics().strangers, 0);
            }
        }
    }
}

#[test]
fn sack_works_with_compression_and_ecn_does_not() {
    let scps = Scps { snack: None, ..compressing() };
    for ecn in [false, true] {
        let both = Options { sack: true, ecn, ..options(true, scps) };
        let mut world = World::plain(1);
        world.lose(lose(&[5, 9, 20, 21], &[]));
        begin(&mut world, [both.clone(), both], 60_000);
        world.run();
        finished(&world).unwrap();
        let compressed = packets(&world, 0).iter().any(|p| p.0 == COMPRESSED_PROTOCOL);
        assert_eq!(compressed, !ecn);
    }
}

#[test]
fn compression_is_negotiated_with_a_number_per_connection() {
    let mut world = World::plain(1);
    begin(&mut world, [options(true, compressing()), options(true, Scps::default())], 3000);
    world.run();
    finished(&world).unwrap();
    assert!(packets(&world, 0).iter().all(|p| p.0 == crate::segment::PROTOCOL));

    let both = options(true, compressing());
    let mut world = World::plain(1);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(both.clone(), Backlog::default());
    let user = || User { content: content(30_000), closes: false, ..User::default() };
    let ids: Vec<_> = (0..40).map(|_| world.connect(both.clone(), user())).collect();
    world.run_for(millis(5000));
    let mut numbers: Vec<_> =
        ids.iter().map(|id| world.info(0, *id).scps.unwrap().compression.unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 40, "{numbers:?}");
    assert!(world.hosts[1].engine.users.values().all(|user| user.received == content(30_000)));
}

#[test]
fn compressed_packets_of_unknown_connections_are_dropped() {
    let mut world = World::plain(1);
    let tuple =
        Tuple { local: world.hosts[0].engine.address, remote: world.hosts[1].engine.address };
    let head = Head { connection: 7, flags: Flags::ACK, sequence: Some(1), ..Head::default() };
    let mut bytes = vec![0; IP_LEN + head.encoded_len(&[]) + 4];
    Flow::new(tuple, 64, 0, 0).write_compressed(&mut bytes, &head, &[]);
    world.hear(1, &bytes);
    assert_eq!(world.hosts[1].engine.stack.statistics().strangers, 1);
    bytes[22] ^= 1;
    world.hear(1, &bytes);
    assert_eq!(world.hosts[1].engine.stack.statistics().bad_checksums, 1);
    assert!(world.log.is_empty());
}

#[test]
fn data_without_its_number_is_refused() {
    let both = options(false, compressing());
    let mut world = World::plain(1);
    world.listen(both.clone(), Backlog::default());
    let id = world.connect(both, User { closes: false, ..User::default() });
    world.run_for(millis(500));
    let number = world.info(0, id).scps.unwrap().compression.unwrap();
    let tuple = Tuple { local: world.hosts[1].engine.address, remote: world.info(0, id).local };
    let head = Head { connection: number, flags: Flags::ACK, ..Head::default() };
    let mut bytes = vec![7; IP_LEN + 4 + 4];
    Flow::new(tuple, 64, 0, 0).write_compressed(&mut bytes, &head, &[]);
    world.hear(0, &bytes);
    assert_eq!(world.hosts[0].engine.stack.statistics().malformed, 1);
    assert_eq!(world.info(0, id).readable, 0);
}

#[test]
fn scps_protocol_number_is_used_in_replies() {
    let scps = Scps { protocol: Carrier::Scps, ..Scps::default() };
    let mut world = World::plain(1);
    world.lose(lose(&[5], &[3]));
    begin(&mut world, [options(true, scps), options(true, Scps::default())], 30_000);
    world.run();
    finished(&world).unwrap();
    for host in 0..2 {
        assert!(packets(&world, host).iter().all(|p| p.0 == PROTOCOL));
    }
    for sent in &world.log {
        let (ip, payload) = Ipv4::decode(&sent.bytes).unwrap();
        let pseudo = PseudoHeader::new(ip.source.into(), ip.destination.into(), PROTOCOL);
        Segment::decode(payload, pseudo).expect("the checksum counts this protocol");
    }
    // No listener there: the reset uses the same protocol.
    let mut world = World::plain(1);
    let id = world.connect(options(true, scps), User::default());
    world.run();
    assert_eq!(world.hosts[0].engine.users[&id].closed.unwrap().1, CloseReason::Refused);
    assert_eq!(packets(&world, 1)[0].0, PROTOCOL);
}

/// Loses all packets while the returned cell is set.
fn cut(world: &mut World) -> Rc<Cell<bool>> {
    let away = Rc::new(Cell::new(false));
    let lost = Rc::clone(&away);
    world.lose(move |_, _, _| lost.get());
    away
}

/// A world in the middle of a transfer whose link has just been cut.
fn world_with_a_cut_link() -> (World, Rc<Cell<bool>>, ConnectionId) {
    let both = options(true, Scps::default());
    let mut world = World::plain(1);
    let away = cut(&mut world);
    let id = begin(&mut world, [both.clone(), both], 300_000);
    world.run_for(millis(450));
    away.set(true);
    (world, away, id)
}

#[test]
fn an_outage_stops_the_timers_and_changes_nothing() {
    let after = |suspends| {
        let both = options(true, Scps { suspends, ..Scps::default() });
        let mut world = World::plain(1);
        world.line().rate_bps = Some(2_000_000);
        let away = cut(&mut world);
        let id = begin(&mut world, [both.clone(), both], 400_000);
        world.run_for(millis(650));
        away.set(true);
        world.run_for(millis(50));
        let before = world.info(0, id);
        world.path(0, PathEvent::Down);
        world.run_for(Duration::from_secs(100));
        away.set(false);
        let during = world.info(0, id);
        assert_eq!(during.suspended, suspends);
        world.up(0);
        world.run_for(millis(10));
        let back = world.info(0, id);
        world.run();
        finished(&world).unwrap();
        (before, during, back)
    };
    let (before, during, back) = after(true);
    assert_eq!(during.counts.timeouts, 0);
    assert_eq!((back.cwnd, back.srtt), (before.cwnd.max(back.cwnd), during.srtt));
    assert!(back.cwnd >= before.cwnd && back.rto <= before.rto * 2, "{before:?} {back:?}");
    let (_, during, _) = after(false);
    assert!(during.counts.timeouts > 3, "{during:?}");
}

#[test]
fn losses_in_an_outage_are_detected_at_its_end() {
    let (mut world, away, id) = world_with_a_cut_link();
    world.run_for(millis(20));
    world.path(0, PathEvent::Down);
    world.run_for(Duration::from_secs(1000));
    away.set(false);
    world.up(0);
    let start = world.now;
    // The peer's own timers run: they are long by now.
    while world.info(0, id).counts.bytes_acknowledged < 200_000 {
        assert!(world.step());
    }
    assert!(world.now.since(start) < Duration::from_secs(5), "{:?}", world.now.since(start));
    assert_eq!(world.hosts[0].engine.stack.totals().timeouts, 0);
}

#[test]
fn a_remote_link_is_probed_until_it_is_back() {
    let (mut world, away, id) = world_with_a_cut_link();
    let now = world.now;
    world.hosts[0].engine.stack.link_away(now, id).unwrap();
    let logged = world.log.len();
    world.run_for(millis(10_000));
    let questions: Vec<_> = world.log[logged..]
        .iter()
        .filter(|sent| sent.from == 0)
        .map(|sent| sent.at.since(now).as_millis())
        .collect();
    // After 1 s, then 2, then 4.
    assert_eq!(questions, [1000, 3000, 7000]);
    assert!(world.info(0, id).suspended);
    away.set(false);
    world.run();
    finished(&world).unwrap();
    assert_eq!(world.hosts[0].engine.stack.totals().timeouts, 0);
    assert_eq!(
        world.hosts[0].engine.stack.link_back(world.now, id),
        Err(RequestError::UnknownConnection)
    );
}

#[test]
fn peers_report_corruption() {
    let count = |damaged: bool, reported: bool| {
        let both = options(false, Scps { dwell: Duration::from_secs(5), ..Scps::default() });
        let mut world = World::plain(1);
        world.lose(move |from, number, bytes| {
            let chosen = (from, number) == (0, 4);
            if chosen && damaged {
                *bytes.last_mut().expect("a packet") ^= 0x40;
            }
            chosen && !damaged
        });
        world.hosts[1].engine.template.waits_for_peer = true;
        world.listen(both.clone(), Backlog::default());
        world.connect(both, User { content: content(60_000), ..User::default() });
        if reported {
            let now = world.now;
            world.hosts[1].engine.stack.corruption_experienced(now, PATH);
        }
        world.run();
        finished(&world).unwrap();
        let words = world.log.iter().filter(|sent| sent.from == 1).filter(|sent| {
            let (_, payload) = Ipv4::decode(&sent.bytes).unwrap();
            let mut all = Segment::decode_unchecked(payload).unwrap().options;
            all.any(|option| option == Ok(TcpOption::CorruptionExperienced))
        });
        let sent = words.count() > 0;
        let counts = world.hosts[0].engine.stack.totals();
        (sent, counts.recoveries, counts.corruptions > 0)
    };
    assert_eq!(count(false, false), (false, 1, false), "a loss is congestion");
    assert_eq!(count(false, true), (true, 0, true));
    assert_eq!(count(true, false), (true, 0, true), "a checksum that fails says it, too");
}

/// Connection without any data yet.
fn quiet(world: &mut World, both: Options) -> (ConnectionId, ConnectionId) {
    world.hosts[1].engine.template = User { reads: false, closes: false, ..User::default() };
    world.listen(both.clone(), Backlog::default());
    let id = world.connect(both, User { closes: false, ..User::default() });
    world.run_for(millis(500));
    (id, world.accepted().expect("it came"))
}

#[test]
fn records_end_where_they_were_ended() {
    for (header_compression, timestamps) in [(false, false), (false, true), (true, true)] {
        let both = options(timestamps, Scps { header_compression, ..Scps::default() });
        let mut world = World::plain(1);
        world.lose(lose(&[3, 5, 6], &[]));
        let (id, other) = quiet(&mut world, both);
        let lens = [100, 1460, 1448, 1, 5000, 2920];
        for (number, len) in lens.into_iter().enumerate() {
            let now = world.now;
            let stack = &mut world.hosts[0].engine.stack;
            stack.send(now, id, &vec![number as u8; len]).unwrap();
            stack.end_record(now, id).unwrap();
        }
        world.drain(0);
        world.run_for(Duration::from_secs(20));
        let stack = &mut world.hosts[1].engine.stack;
        for (number, len) in lens.into_iter().enumerate() {
            let info = stack.info(other).unwrap();
            assert_eq!(stack.record(other), Ok(Some(len as u64)), "{number} {info:?}");
            let (first, second) = stack.peek(other).unwrap();
            let record: Vec<u8> = first.iter().chain(second).take(len).copied().collect();
            assert!(record.iter().all(|byte| *byte == number as u8) && record.len() == len);
            stack.consume(world.now, other, len).unwrap();
        }
        assert_eq!(stack.record(other), Ok(None));
        let records = |i: &&Indication| matches!(i, Indication::Record { .. });
        assert!(world.hosts[1].indications.iter().filter(records).count() >= 1);
        assert!(world.log.iter().all(|sent| sent.bytes.len() <= 1500));
    }
}

#[test]
fn record_ends_are_bounded_and_negotiated() {
    let both = options(true, Scps { records: 2, ..Scps::default() });
    let mut world = World::plain(1);
    let (id, _) = quiet(&mut world, both);
    let now = world.now;
    let stack = &mut world.hosts[0].engine.stack;
    for expected in [Ok(()), Ok(()), Err(RequestError::TooManyRecords)] {
        stack.send(now, id, &[7; 10]).unwrap();
        assert_eq!(stack.end_record(now, id), expected);
    }
    world.drain(0);
    world.run_for(millis(500));
    let now = world.now;
    assert_eq!(world.hosts[0].engine.stack.end_record(now, id), Err(RequestError::RecordSent));
    let mut world = World::plain(1);
    let (id, _) = quiet(&mut world, Options::default());
    let now = world.now;
    world.hosts[0].engine.stack.send(now, id, &[7; 10]).unwrap();
    assert_eq!(world.hosts[0].engine.stack.end_record(now, id), Err(RequestError::NoRecords));
}

/// Sends 20,000 bytes from the first host, of which the segment at 2,920 is always lost.
fn best_effort(first: Option<Bets>, second: Option<Bets>) -> World {
    let snack = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
    let both = |bets| options(false, Scps { bets, snack, ..Scps::default() });
    let mut world = World::new([Config::default(), Config::default()], 1, false);
    let mut sequence = None;
    world.lose(move |from, number, bytes| {
        let own = bytes[24..28].to_vec();
        if (from, number) == (0, 4) {
            sequence = Some(own.clone());
        }
        from == 0 && bytes.len() > 100 && sequence == Some(own)
    });
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(both(second), Backlog::default());
    world.connect(both(first), User { content: content(20_000), ..User::default() });
    assert!(world.ends_within(100_000));
    world
}

fn with_zeros() -> Vec<u8> {
    let mut expected = content(20_000);
    expected[2920..4380].fill(0);
    expected
}

#[test]
fn best_effort_receivers_skip_missing_data() {
    let bets = Some(Bets::default());
    let world = best_effort(bets, bets);
    let user = world.hosts[1].engine.users.values().next().unwrap();
    assert_eq!(user.received, with_zeros());
    assert_eq!(user.closed.unwrap().1, CloseReason::Graceful);
    let hole = Hole { offset: 2920, bytes: 1460 };
    assert_eq!(world.hosts[1].engine.holes.received, [hole]);
    assert_eq!(world.hosts[0].engine.holes.sent, []);
}

#[test]
fn best_effort_senders_give_up_after_retransmissions() {
    let (sender, receiver) = (
        Bets { transmissions: 2, ..Bets::default() },
        Bets { receive_timeout: Duration::from_secs(30), ..Bets::default() },
    );
    let world = best_effort(Some(sender), Some(receiver));
    let hole = Hole { offset: 2920, bytes: 1460 };
    assert_eq!(world.hosts[0].engine.holes.sent, [hole]);
    assert_eq!(world.hosts[1].engine.holes.received, [hole]);
    assert_eq!(world.hosts[1].engine.users.values().next().unwrap().received, with_zeros());
    let closed = [0, 1].map(|host| world.hosts[host].engine.users.values().next().unwrap().closed);
    assert!(closed.iter().all(|closed| closed.unwrap().1 == CloseReason::Graceful), "{closed:?}");
}

#[test]
fn best_effort_needs_support_of_the_peer() {
    let world = best_effort(Some(Bets::default()), None);
    let user = world.hosts[0].engine.users.values().next().unwrap();
    assert_eq!(user.closed.unwrap().1, CloseReason::TimedOut);
    assert!(world.hosts.iter().all(|host| host.engine.holes == crate::scps::Holes::default()));
}

#[test]
fn unrequested_holes_delay_best_effort_delivery() {
    let bets = Bets { holes: 1, receive_timeout: millis(100), ..Bets::default() };
    let both = options(
        false,
        Scps { snack: None, bets: Some(bets), assume: LossCause::Congestion, ..Scps::default() },
    );
    let mut world = World::plain(1);
    world.hosts.iter_mut().for_each(|host| host.engine.takes_holes = false);
    // The second and the fourth segment never come.
    world.lose(|from, _, bytes| from == 0 && bytes.len() > 100 && [2, 4].contains(&bytes[40]));
    let (id, other) = quiet(&mut world, both);
    world.hosts[1].engine.users.get_mut(&other).unwrap().reads = true;
    let now = world.now;
    for number in 1..=5 {
        world.hosts[0].engine.stack.send(now, id, &[number; 1460]).unwrap();
    }
    world.drain(0);
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        world.hosts[1].engine.users[&other].received.len(),
        3 * 1460,
        "the first hole is left out"
    );
    let now = world.now;
    let holes = world.hosts[1].engine.stack.take_holes(now, other).unwrap();
    assert_eq!(holes.received, [Hole { offset: 1460, bytes: 1460 }]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.hosts[1].engine.users[&other].received.len(), 5 * 1460);
}
