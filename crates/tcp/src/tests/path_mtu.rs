//! Packets that are too long for a path: reports of routers, and packets that vanish.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use engine::Receive;
use wire::icmp;
use wire::ip::{self, Ipv4};
use wire::ipv6::{self, Ipv6};

use super::raw::{ACK, Raw};
use super::world::{PATH, PORT, User, World, content, finished};
use crate::cc::Algorithm;
use crate::{Backlog, Config, ConnectionId, Options, Profile};

/// Builds a router's report about a packet (RFC 1812, RFC 4443).
fn report(packet: &[u8], mtu: u32) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(500)];
    let head = if packet[0] >> 4 == 6 { ipv6::HEADER_LEN } else { ip::HEADER_LEN };
    let mut bytes = [&vec![0; head + icmp::HEADER_LEN][..], quoted].concat();
    let (start, message) = bytes.split_at_mut(head);
    if let Ok((ip, _)) = Ipv6::decode(packet) {
        let source = "2001:db8::99".parse().unwrap();
        icmp::encode_v6(mtu, source, ip.source, message);
        let ip = Ipv6 {
            source,
            destination: ip.source,
            next_header: icmp::PROTOCOL_V6,
            payload_len: message.len() as u16,
            ..ip
        };
        ip.encode(start.first_chunk_mut().unwrap());
        return bytes;
    }
    let (ip, _) = Ipv4::decode(packet).unwrap();
    icmp::encode(mtu, message);
    let total_len = (head + message.len()) as u16;
    let (source, destination) = ([10, 0, 0, 99].into(), ip.source);
    let ip = Ipv4 { source, destination, protocol: icmp::PROTOCOL, total_len, ..ip };
    ip.encode(start.first_chunk_mut().unwrap());
    bytes
}

/// Behaviour of a router when a packet does not fit its next link.
#[derive(Clone, Copy, PartialEq)]
enum Router {
    Reports,
    IsSilent,
}

/// Packets that were too long, each with the end that sent it.
type Dropped = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

/// Path whose middle forwards packets of at most `mtu` bytes, both ways. Reports take no time.
struct Narrow {
    world: World,
    dropped: Dropped,
}

impl Narrow {
    fn new(mut world: World, mtu: usize) -> Self {
        let dropped = Rc::new(RefCell::new(Vec::new()));
        let note = Rc::clone(&dropped);
        world.lose(move |from, _, bytes| {
            let may_cut = bytes[0] >> 4 == 4 && bytes[6] & 0x40 == 0;
            let is_lost = bytes.len() > mtu && !may_cut;
            if is_lost {
                note.borrow_mut().push((from, bytes.clone()));
            }
            is_lost
        });
        Self { world, dropped }
    }

    /// Runs until no event is left.
    fn run(&mut self, router: Router, mtu: u32) {
        for _ in 0..1_000_000 {
            for (from, packet) in self.dropped.take() {
                if router == Router::Reports {
                    self.world.hear(from, &report(&packet, mtu));
                }
            }
            if self.dropped.borrow().is_empty() && !self.world.step() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.world.deadlines());
    }
}

/// Sends 300 kB over a path with an MTU in the middle. Returns seconds, the connection's MSS, its
/// timeouts and the window's reductions.
fn transfer(options: &Options, router: Router, mtu: u32, v6: bool) -> (f64, u64, u64, u64) {
    let mut world = World::new([Config::default(), Config::default()], 1, v6);
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(300_000), closes: false, ..User::default() };
    let id = world.connect(options.clone(), user);
    let start = world.now;
    let mut narrow = Narrow::new(world, mtu as usize);
    narrow.run(router, mtu);
    let mut world = narrow.world;
    let info = world.info(0, id);
    assert_eq!(info.counts.bytes_acknowledged, 300_000);
    let took = world.now.since(start).as_secs_f64();
    world.use_and_close(id);
    finished(&world).unwrap();
    (took, info.mss, info.counts.timeouts, info.counts.recoveries)
}

impl World {
    /// Closes the first host's connection, and runs to the end.
    fn use_and_close(&mut self, id: ConnectionId) {
        self.hosts[0].engine.users.get_mut(&id).unwrap().closes = true;
        self.use_connection(0, id);
        self.run();
    }
}

/// SCPS-TP that sends everything the peer's window allows.
fn scps_without_rate(header_compression: bool) -> Options {
    let mut options = Profile::ScpsRate.options();
    let scps = options.scps.as_mut().expect("it is SCPS-TP");
    (scps.rate, scps.header_compression) = (None, header_compression);
    options.congestion = Algorithm::None { window: None };
    // An acknowledgment that is delayed for 200 ms comes after the timeout of this profile.
    options.acks.max_delay = Duration::from_millis(50);
    options
}

#[test]
fn a_router_that_reports_costs_no_timeout_and_no_window() {
    for v6 in [false, true] {
        for congestion in
            [Algorithm::Bbr, Options::default().congestion, Algorithm::NewReno(Default::default())]
        {
            let options = Options { congestion, ..Profile::Modern.options() };
            let (took, mss, timeouts, recoveries) = transfer(&options, Router::Reports, 1280, v6);
            assert!(took < 1.0, "{took} s, {congestion:?}");
            assert_eq!(mss, 1280 - if v6 { 72 } else { 52 });
            assert_eq!((timeouts, recoveries), (0, 0), "{congestion:?}");
        }
        // Without helpful options.
        let old = [Raw::bare(), Profile::Linux22.options()];
        for options in old.into_iter().chain([false, true].map(scps_without_rate)) {
            let (took, _, timeouts, _) = transfer(&options, Router::Reports, 1280, v6);
            assert!(took < 4.0 && timeouts == 0, "{took} s, {timeouts} timeouts, {options:?}");
        }
    }
}

#[test]
fn routers_without_an_mtu_lead_to_the_next_common_one() {
    let options = Profile::Modern.options();
    let mut world = World::plain(1);
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(100_000), ..User::default() };
    let id = world.connect(options, user);
    let mut narrow = Narrow::new(world, 1100);
    // 1500, then 1280, then 1006: RFC 1191 §7.1.
    narrow.run(Router::Reports, 0);
    finished(&narrow.world).unwrap();
    assert!(narrow.world.hosts[0].engine.stack.info(id).is_err());
    // Each segment in flight was reported; the first of either length made segments shorter.
    let stack = &narrow.world.hosts[0].engine.stack;
    assert_eq!(stack.totals().path_mtu_reports, 2);
    assert!(stack.statistics().reports_taken > 2, "{:?}", stack.statistics());
}

/// Below the minimum accepted MTU (552 bytes), packets are sent without DF.
#[test]
fn very_small_path_mtus_allow_fragmentation() {
    let options = Profile::Modern.options();
    let (took, mss, timeouts, _) = transfer(&options, Router::Reports, 300, false);
    assert!(took < 1.5 && timeouts == 0, "{took} s, {timeouts} timeouts");
    assert_eq!(mss, 552 - 52);
}

#[test]
fn the_next_connection_knows_the_path() {
    let options = Profile::Modern.options();
    let mut world = World::plain(1);
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(20_000), ..User::default() };
    world.connect(options.clone(), user.clone());
    let mut narrow = Narrow::new(world, 1280);
    narrow.run(Router::Reports, 1280);
    let reports = |narrow: &Narrow| narrow.world.hosts[0].engine.stack.statistics().reports_taken;
    let before = reports(&narrow);
    assert!(before > 0);
    narrow.world.connect(options.clone(), user.clone());
    narrow.run(Router::Reports, 1280);
    assert_eq!(reports(&narrow), before, "no packet was too long");
    // Ten minutes later it may have changed.
    narrow.world.now += Duration::from_secs(601);
    narrow.world.connect(options, user);
    narrow.run(Router::Reports, 1280);
    assert!(reports(&narrow) > before);
}

/// RFC 5927 §4.1: an off-path attacker does not know the sequence numbers in flight.
#[test]
fn a_forged_report_changes_nothing() {
    let mut raw = Raw::new(Config::default());
    let offered = [crate::segment::TcpOption::MaximumSegmentSize(1460)];
    let id = raw.establish(Raw::bare(), &offered);
    let sent = raw.write(id, 4000);
    assert_eq!(sent.iter().map(|h| h.len).collect::<Vec<_>>(), [1460, 1460, 1080]);
    let ours = |raw: &Raw, at: u32, local: SocketAddr, len: usize| {
        let remote: SocketAddr = ([10, 0, 0, 1], 4000).into();
        let tuple = crate::packet::Tuple { local, remote };
        let mut packet = vec![0; len];
        let sequence = raw.absolute(at);
        let header = crate::segment::Header { sequence, flags: ACK, ..Default::default() };
        let mut flow = crate::packet::Flow::new(tuple, 64, 0, 0);
        flow.write(&mut packet, header, &[], engine::Ecn::NotEct);
        packet
    };
    let local = SocketAddr::new(IpAddr::from([10, 0, 0, 2]), PORT);
    let other = SocketAddr::new(local.ip(), PORT + 1);
    for (at, from, len, mtu) in [
        // Acknowledged, beyond sent data, another connection's, not longer than the new MTU.
        (0, local, 1500, 1280),
        (4001, local, 1500, 1280),
        (1, other, 1500, 1280),
        (1, local, 1280, 1280),
    ] {
        let packet = ours(&raw, at, from, len);
        let sent = raw.hear(Receive::datagram(PATH, &report(&packet, mtu)));
        assert!(sent.is_empty(), "{at} {from} {len} {mtu}: {sent:?}");
    }
    assert_eq!(raw.stack.info(id).unwrap().mss, 1460);
    let statistics = raw.stack.statistics();
    assert_eq!((statistics.reports_ignored, statistics.reports_taken), (4, 0));
    // A segment in flight counts: the two long ones are retransmitted, and the short one is not.
    let packet = ours(&raw, 1461, local, 1500);
    let sent = raw.hear(Receive::datagram(PATH, &report(&packet, 1280)));
    let again: Vec<_> = sent.iter().map(|h| (h.sequence, h.len)).collect();
    assert_eq!(again, [(1, 1240), (1241, 220), (1461, 1240), (2701, 220)]);
    assert_eq!(raw.stack.info(id).unwrap().mss, 1240);
}

#[test]
fn black_holes_lead_to_shorter_packets() {
    for v6 in [false, true] {
        let options = Options { mtu_probing: true, ..Profile::Modern.options() };
        let (took, mss, timeouts, _) = transfer(&options, Router::IsSilent, 1280, v6);
        // 0.5 s and 0.6 s until it is suspected. The timeouts leave a threshold of five segments,
        // from which the window grows by one a round trip, as after any loss.
        assert!(took < 4.0, "{took} s");
        assert_eq!((mss, timeouts), (1280 - if v6 { 72 } else { 52 }, 2));
    }
}

/// As Linux's `tcp_mtu_probing`, which is 0 by default.
#[test]
fn mtu_probing_is_off_by_default() {
    let options = Options { retries: 5, ..Profile::Modern.options() };
    let mut world = World::plain(1);
    world.listen(options.clone(), Backlog::default());
    let id = world.connect(options, User { content: content(5000), ..User::default() });
    let mut narrow = Narrow::new(world, 1280);
    narrow.run(Router::IsSilent, 0);
    let user = &narrow.world.hosts[0].engine.users[&id];
    assert!(matches!(user.closed, Some((_, crate::CloseReason::TimedOut))), "{user:?}");
}

/// An outage looks like a black hole; afterwards one long packet shows its end.
#[test]
fn after_an_outage_segments_become_long_again() {
    let options = Options { mtu_probing: true, ..Profile::Modern.options() };
    let mut world = World::plain(1);
    world.line().rate_bps = Some(4_000_000);
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(2_000_000), ..User::default() };
    let id = world.connect(options, user);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.info(0, id).mss, 1448);
    world.lose(|_, _, _| true);
    world.run_for(Duration::from_secs(20));
    let during = world.info(0, id);
    assert!(during.mss < 1448 && during.counts.black_holes > 0, "{during:?}");
    world.lose(|_, _, _| false);
    // The next timeout is at most 25 s later.
    while world.info(0, id).mss < 1448 {
        assert!(world.step(), "it ends with short segments");
    }
    world.run();
    finished(&world).unwrap();
}

/// The probe of a path with a smaller MTU is lost alone, and does not reduce the window.
#[test]
fn failed_probes_do_not_count_as_congestion() {
    let options = Options { mtu_probing: true, ..Profile::Modern.options() };
    let mut world = World::plain(1);
    world.line().rate_bps = Some(8_000_000);
    world.listen(options.clone(), Backlog::default());
    let user = User { content: content(1_000_000), closes: false, ..User::default() };
    let id = world.connect(options, user);
    let mut narrow = Narrow::new(world, 1280);
    narrow.run(Router::IsSilent, 0);
    let info = narrow.world.info(0, id);
    assert_eq!(info.mss, 1228);
    assert_eq!(info.counts.timeouts, 2, "no more than before it was suspected");
    assert_eq!(info.ssthresh, info.ssthresh.max(2 * 1228));
    assert!(info.counts.recoveries >= 1, "the probe's loss was noticed");
    // Window and threshold follow the timeout, not one more loss.
    assert!(info.cwnd > 20 * 1228, "{info:?}");
}
