//! SCPS-TP: negotiation, holes, causes of losses, rates.

use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathInfo};

use super::raw::{ACK, Raw, SYN};
use super::world::{PATH, User, World, content, finished, lose};
use crate::cc::Algorithm;
use crate::scps::{LossCause, RateControl, Scps, Snack, SnackForm};
use crate::segment::{Capabilities, Flags, TcpOption};
use crate::{
    Backlog, Buffer, Config, ConnectionId, Cookies, Indication, Info, InitialWindow, Options,
    Profile,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// SNACK without timestamps: a unit is 1,460 bytes.
fn plain(scps: Scps) -> Options {
    Options {
        timestamps: false,
        initial_window: InitialWindow::Segments(10),
        scps: Some(scps),
        ..Profile::ScpsVj.options()
    }
}

/// Sends `len` bytes from the first host to the second. Returns the first host's final
/// information.
fn transfer(options: &Options, len: usize, lost: &'static [usize]) -> (World, Info) {
    let mut world = World::plain(1);
    world.lose(lose(lost, &[]));
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(len), ..User::default() };
    let id = world.connect(options.clone(), user);
    let mut last = world.info(0, id);
    while world.step() {
        if let Ok(info) = world.hosts[0].engine.stack.info(id) {
            last = info;
        }
    }
    finished(&world).unwrap();
    (world, last)
}

/// Ranges of bytes that the first host sent more than once.
fn sent_again(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let mut again = Vec::new();
    for line in world.transcript() {
        let Some(range) = line.strip_prefix("> ").or(line.strip_prefix(">x ")) else { continue };
        let range = range.split(' ').find(|word| word.contains('+')).unwrap_or_default().to_owned();
        if range.ends_with("+0") {
            continue;
        }
        if found.contains(&range) {
            again.push(range.clone());
        }
        found.push(range);
    }
    again
}

#[test]
fn options_supported_by_both_ends_are_used() {
    let short = Some(Snack::default());
    let bits = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
    let cases = [
        (short, short, Some(SnackForm::Short)),
        (short, bits, Some(SnackForm::Short)),
        (bits, short, Some(SnackForm::Short)),
        (bits, bits, Some(SnackForm::Bits)),
        (None, short, None),
        (short, None, None),
    ];
    for (first, second, expected) in cases {
        let options = |snack| Options {
            sack: true,
            scps: Some(Scps { snack, ..Scps::default() }),
            ..Options::default()
        };
        let mut world = World::plain(1);
        world.hosts[1].engine.template.closes = false;
        world.listen(options(second), Backlog::default());
        let id = world.connect(options(first), User { closes: false, ..User::default() });
        world.run_for(millis(500));
        let other = world.accepted().expect("it came");
        for info in [world.info(0, id), world.info(1, other)] {
            let scps = info.scps.expect("both have it");
            assert_eq!(scps.snack, expected, "{first:?} {second:?}");
            // A hole is reported in one way.
            assert_eq!(info.sack, expected.is_none());
        }
    }
}

#[test]
fn syn_ack_contains_only_offered_options() {
    let mut raw = Raw::new(Config::default());
    let snack = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
    let options =
        Options { sack: true, scps: Some(Scps { snack, ..Scps::default() }), ..Raw::bare() };
    raw.listen(options, Backlog::default());
    let capabilities = |bits| TcpOption::ScpsCapabilities(Capabilities { bits, connection: 0 });
    for (port, offered, answered) in [
        (5001, &[capabilities(0xff)][..], Some(0x60)),
        (5002, &[capabilities(0x4f)], Some(0x40)),
        (5003, &[capabilities(0x80)], Some(0)),
        // Extended capabilities alone are not that option.
        (5004, &[TcpOption::ScpsExtended(&[0x40, 0, 1, 0])], None),
        (5005, &[], None),
    ] {
        raw.speak_from(port);
        let mut all = offered.to_vec();
        all.push(TcpOption::SackPermitted);
        let received = raw.say(SYN, (0, 0), &[], &all);
        assert_eq!(received[0].scps.map(|scps| scps.bits), answered, "{offered:?}");
        let snack = answered.is_some_and(|bits| bits & 0x60 != 0);
        assert_eq!(received[0].sack, !snack, "{offered:?}");
    }
}

#[test]
fn peers_without_scps_get_tcp_with_an_indication() {
    let plain = Options::default();
    let scps = Options { scps: Some(Scps::default()), ..Options::default() };
    for (first, second, reported) in
        [(&scps, &plain, [true, false]), (&plain, &scps, [false, true])]
    {
        let mut world = World::plain(1);
        world.lose(lose(&[5, 9], &[]));
        world.hosts[1].engine.template.waits_for_peer = true;
        world.listen(second.clone(), Backlog::default());
        world.connect(first.clone(), User { content: content(60_000), ..User::default() });
        world.run();
        finished(&world).unwrap();
        for (host, reported) in world.hosts.iter().zip(reported) {
            let plain = |i: &&Indication| matches!(i, Indication::PlainTcp { .. });
            assert_eq!(host.indications.iter().filter(plain).count(), usize::from(reported));
            assert_eq!(host.engine.stack.statistics().plain_tcp, u64::from(reported));
            assert_eq!(host.engine.stack.totals().snacks, (0, 0));
        }
        assert!(world.transcript().iter().any(|line| line.contains('[')), "SACK does its work");
    }
}

#[test]
fn middleboxes_that_strip_the_option_leave_plain_tcp() {
    let options = Options { scps: Some(Scps::default()), ..Options::default() };
    let mut world = World::plain(1);
    world.hosts[1].engine.template.waits_for_peer = true;
    // Option 20 of the SYN becomes padding.
    world.lose(|_, _, bytes| {
        let at = bytes.windows(2).position(|pair| pair == [20, 4]);
        if let Some(at) = at.filter(|at| *at >= 40) {
            bytes[at..at + 4].fill(1);
            super::world::mend_checksum(bytes);
        }
        false
    });
    world.listen(options.clone(), Backlog::default());
    let id = world.connect(options, User { content: content(3000), ..User::default() });
    world.run_for(millis(120));
    assert_eq!(world.info(0, id).scps, None);
    world.run();
    finished(&world).unwrap();
    assert_eq!(world.hosts[0].engine.stack.statistics().plain_tcp, 1);
}

#[test]
fn syn_cookies_omit_scps() {
    let options = Options { scps: Some(Scps::default()), ..Options::default() };
    let mut world = World::plain(1);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog { half_open: 8, cookies: Cookies::Always });
    world.connect(options, User { content: content(3000), ..User::default() });
    world.run();
    finished(&world).unwrap();
    assert_eq!([0, 1].map(|host| world.hosts[host].engine.stack.statistics().plain_tcp), [1, 1]);
}

#[test]
fn a_hole_is_sent_again_once_and_nothing_else() {
    // Packets: SYN, ACK, then data: number 4 is 2,920 bytes in, 6 and 7 are 5,840 and 7,300 in.
    let (world, info) = transfer(&plain(Scps::default()), 30_000, &[4, 6, 7]);
    assert_eq!(sent_again(&world), ["2921+1460", "5841+1460", "7301+1460"]);
    assert_eq!((info.counts.retransmissions, info.counts.timeouts), (3, 0));
    assert_eq!(info.counts.recoveries, 1, "one window, one halving");
    let snacks: Vec<String> = world
        .transcript()
        .iter()
        .filter_map(|line| Some(line.split_once(" ack 2921 snack ")?.1.to_owned()))
        .collect();
    // The first hole three times, then the next one.
    assert_eq!(snacks[..4], ["0+1", "0+1", "0+1", "2+2"], "{snacks:?}");
}

#[test]
fn bits_report_all_holes_at_once() {
    let snack = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
    let (world, info) = transfer(&plain(Scps { snack, ..Scps::default() }), 30_000, &[4, 6, 8]);
    assert_eq!(sent_again(&world), ["2921+1460", "5841+1460", "8761+1460"]);
    assert_eq!((info.counts.retransmissions, info.counts.timeouts), (3, 0));
}

#[test]
fn lost_retransmissions_are_requested_again() {
    let options = plain(Scps::default());
    let mut world = World::plain(1);
    // Packet 4, and the next one with its sequence number.
    let (mut lost, mut number) = (0, None);
    world.lose(move |from, packet, bytes| {
        let sequence = bytes.get(24..28).map(<[u8]>::to_vec);
        if (from, packet) == (0, 4) {
            number = sequence.clone();
        }
        let again = from == 0 && sequence.is_some() && sequence == number && lost < 2;
        lost += u32::from(again);
        again
    });
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, User { content: content(200_000), ..User::default() });
    world.run();
    finished(&world).unwrap();
    assert_eq!(sent_again(&world), ["2921+1460", "2921+1460"]);
    assert_eq!(world.hosts[0].engine.stack.totals().timeouts, 0);
}

#[test]
fn without_a_hole_in_time_nothing_is_sent_again() {
    let snack = Some(Snack { delay: millis(30), ..Snack::default() });
    let options = plain(Scps { snack, ..Scps::default() });
    let mut world = World::plain(1);
    // One packet comes 20 ms late.
    world.fate = Box::new(|passing| {
        let late = passing.from == 0 && passing.number == 4;
        vec![if late { millis(20) } else { Duration::ZERO }]
    });
    world.line().rate_bps = Some(10_000_000);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, User { content: content(60_000), ..User::default() });
    world.run();
    finished(&world).unwrap();
    assert_eq!(sent_again(&world), [""; 0]);
    assert_eq!(world.hosts[1].engine.stack.totals().snacks.0, 0);
}

#[test]
fn a_hole_is_reported_after_its_delay_without_new_data() {
    let mut raw = Raw::new(Config::default());
    let snack = Some(Snack { delay: millis(300), ..Snack::default() });
    let options = Options { scps: Some(Scps { snack, ..Scps::default() }), ..Raw::bare() };
    let capabilities = TcpOption::ScpsCapabilities(Capabilities { bits: 0x40, connection: 0 });
    raw.establish(options, &[TcpOption::MaximumSegmentSize(1000), capabilities]);
    let received = raw.say(ACK, (2001, 1), &[7; 1000], &[]);
    assert_eq!(received[0].snack, None);
    assert!(raw.wait(millis(299)).is_empty());
    let received = raw.wait(millis(1));
    assert_eq!(received.iter().map(|h| h.snack).collect::<Vec<_>>(), [Some((0, 2))]);
}

#[test]
fn congestion_halves_the_window_once_and_corruption_leaves_it() {
    let window = |assume| {
        let scps = Scps { assume, ..Scps::default() };
        transfer(&plain(scps), 200_000, &[8, 9, 12]).1
    };
    let congestion = window(LossCause::Congestion);
    assert_eq!((congestion.counts.recoveries, congestion.counts.corruptions), (1, 0));
    assert!(congestion.ssthresh < 20_000, "{}", congestion.ssthresh);
    let corruption = window(LossCause::Corruption);
    assert_eq!(corruption.counts.recoveries, 0);
    assert!(corruption.counts.corruptions > 0);
    assert_eq!(corruption.ssthresh, u64::MAX, "slow start goes on");
    assert_eq!(corruption.counts.retransmissions, 3);
    assert!(corruption.cwnd > congestion.cwnd, "{} {}", corruption.cwnd, congestion.cwnd);
}

#[test]
fn timeouts_by_corruption_keep_window_and_timeout() {
    let scps = Scps { assume: LossCause::Corruption, ..Scps::default() };
    // The last two segments are lost, so that nothing reveals them.
    let (world, info) = transfer(&plain(scps), 14_600, &[10, 11]);
    assert_eq!(info.counts.timeouts, 1);
    assert_eq!(info.ssthresh, u64::MAX);
    assert!(info.cwnd >= 10 * 1460, "{}", info.cwnd);
    // The first and the last segment in flight, and no other.
    assert_eq!(sent_again(&world), ["11681+1460", "13141+1460"]);
}

#[test]
fn plain_tcp_may_attribute_losses_to_corruption() {
    let scps = Scps { snack: None, assume: LossCause::Corruption, ..Scps::default() };
    for sack in [false, true] {
        let options = Options { sack, ..plain(scps) };
        let (_, info) = transfer(&options, 200_000, &[8, 9, 12, 40]);
        assert_eq!(info.ssthresh, u64::MAX, "{sack}");
        assert!(info.counts.corruptions > 0 && info.counts.retransmissions >= 4);
    }
}

#[test]
fn a_route_has_one_rate_for_all_its_connections() {
    let rate = RateControl { bps: Some(1_000_000), tick: millis(10) };
    let options = Options {
        congestion: Algorithm::None { window: None },
        send_buffer: Buffer::Fixed(1 << 20),
        receive_buffer: Buffer::Fixed(1 << 20),
        ..plain(Scps { rate: Some(rate), ..Scps::default() })
    };
    let mut world = World::plain(1);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    let user = || User { content: content(100_000), ..User::default() };
    let ids: Vec<ConnectionId> = (0..3).map(|_| world.connect(options.clone(), user())).collect();
    let start = world.now;
    world.run();
    let ends = ids.iter().map(|id| world.hosts[0].engine.users[id].closed.expect("over").0);
    let all: u64 =
        world.log.iter().filter(|sent| sent.from == 0).map(|sent| sent.bytes.len() as u64).sum();
    let took = ends.clone().max().expect("three").since(start).as_secs_f64();
    // 7,500 bytes may be sent at once at the start.
    let rate = (all as f64 - 7500.0) * 8.0 / took;
    assert!((900_000.0..=1_000_001.0).contains(&rate), "{rate} bit/s over {took} s");
    // They share it: none finishes much before the others.
    let first = ends.min().expect("three").since(start).as_secs_f64();
    assert!(first > 0.85 * took, "{first} {took}");
    // No sender exceeds the bucket.
    let ours: Vec<_> = world.log.iter().filter(|sent| sent.from == 0).collect();
    for first in 0..ours.len() {
        let some = &ours[first..ours.len().min(first + 20)];
        let bytes: usize = some.iter().map(|sent| sent.bytes.len()).sum();
        let took = some.last().expect("itself").at.since(some[0].at);
        let allowed = 7500.0 + 1250.0 + took.as_secs_f64() * 125_000.0;
        assert!(bytes as f64 <= allowed, "{bytes} bytes in {took:?}");
    }
}

#[test]
fn interface_rate_counts_link_overhead() {
    let options = Options {
        congestion: Algorithm::None { window: None },
        send_buffer: Buffer::Fixed(1 << 20),
        receive_buffer: Buffer::Fixed(1 << 20),
        ..plain(Scps { rate: Some(RateControl::default()), ..Scps::default() })
    };
    let mut world = World::plain(1);
    let up = PathInfo { rate_bps: Some(800_000), overhead: 500, ..PathInfo::datagram(1500) };
    world.hosts[0].engine.stack.handle_input(world.now, Input::Path(PATH, PathEvent::Up(up)));
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, User { content: content(146_000), ..User::default() });
    let start = world.now;
    world.run();
    finished(&world).unwrap();
    // 100 segments of 1,500 bytes, and 500 each: 200,000 bytes at 100,000 a second, of which ten
    // thousand are saved up; then a round trip.
    let took = world.now.since(start).as_secs_f64();
    let end = world.log.iter().rev().find(|sent| sent.from == 0 && sent.bytes.len() > 100);
    let end = end.expect("data").at;
    let took_data = end.since(start).as_secs_f64();
    assert!((1.85..2.15).contains(&took_data), "{took_data} of {took}");
}

#[test]
fn strictly_delayed_acknowledgments_follow_the_timer() {
    let mut raw = Raw::new(Config::default());
    let acks = crate::AckPolicy { every: 0, max_delay: millis(300), quick: 0 };
    let options = Options { acks, scps: Some(Scps::default()), ..Raw::bare() };
    let capabilities = TcpOption::ScpsCapabilities(Capabilities { bits: 0x40, connection: 0 });
    raw.establish(options, &[TcpOption::MaximumSegmentSize(1000), capabilities]);
    let mut counts = Vec::new();
    // In order, in order, beyond a gap, twice.
    for at in [1, 1001, 4001, 1] {
        counts.push(raw.say(ACK, (at, 1), &[7; 1000], &[]).len());
        counts.push(raw.wait(millis(10)).len());
    }
    assert_eq!(counts[..6], [0; 6]);
    let received = raw.wait(millis(300));
    let snacks: Vec<_> = received.iter().map(|h| (h.acknowledgment, h.snack)).collect();
    assert!(snacks.contains(&(2001, Some((0, 2)))), "{snacks:?}");
}

#[test]
fn options_stay_within_the_mtu_and_syns_within_option_space() {
    for timestamps in [false, true] {
        let snack = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
        let options = Options { timestamps, ..plain(Scps { snack, ..Scps::default() }) };
        let mut world = World::plain(1);
        world.lose(|_, number, _| number % 5 == 4);
        world.hosts[1].engine.template = User { content: content(80_000), ..User::default() };
        world.listen(options.clone(), Backlog::default());
        world.connect(options, User { content: content(80_000), ..User::default() });
        world.run();
        finished(&world).unwrap();
        assert!(world.log.iter().all(|sent| sent.bytes.len() <= 1500));
        assert!(world.hosts[0].engine.stack.totals().snacks.0 > 0);
    }
}

#[test]
fn invalid_holes_are_ignored() {
    let mut raw = Raw::new(Config::default());
    let snack = Some(Snack { form: SnackForm::Bits, ..Snack::default() });
    let options = Options { scps: Some(Scps { snack, ..Scps::default() }), ..Raw::bare() };
    let capabilities = TcpOption::ScpsCapabilities(Capabilities { bits: 0x60, connection: 0 });
    raw.listen(options, Backlog::default());
    raw.say(SYN, (0, 0), &[], &[TcpOption::MaximumSegmentSize(1000), capabilities]);
    raw.wait(millis(100));
    raw.say(ACK, (1, 1), &[], &[]);
    let id = raw.incoming().expect("it is established");
    assert_eq!(raw.write(id, 5000).len(), 5);
    raw.wait(millis(100));
    let mut say = |offset, size, bits: &[u8]| {
        let snack = TcpOption::Snack { offset, size, bits };
        raw.say(ACK, (1, 1), &[], &[snack]).iter().map(|h| h.sequence).collect::<Vec<_>>()
    };
    // None; beyond sent data; zero units; then the third, with the fourth received and the fifth
    // unreported.
    assert_eq!(say(9, 3, &[0xff]), [0; 0]);
    assert_eq!(say(u16::MAX, u16::MAX, &[0xff; 20]), [0; 0]);
    assert_eq!(say(0, 0, &[]), [0; 0]);
    assert_eq!(say(2, 1, &[0x80]), [2001]);
    // It was sent a moment ago.
    assert_eq!(say(2, 1, &[0x80]), [0; 0]);
    let received = raw.wait(Duration::from_secs(5));
    assert!(received.iter().all(|h| !h.flags.contains(Flags::RST)));
    assert!(received.iter().all(|h| h.sequence != 3001), "that has arrived: {received:?}");
}
