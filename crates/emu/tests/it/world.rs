//! Worlds with real packets. They need root or a user namespace; elsewhere the tests report that
//! and pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use engine::Time;

use link::{Config, Delay, Erasure, ErrorKind, ErrorModel, OnError, Rate};
use slowlight_emu::{CaptureLimits, GroupRoute, Host, HostPlan, LinkPlan, Plan, Route, World};

use crate::calm::{assert_in_time, calmly};

const PORT: u16 = 4000;

/// Starts the world, unless the system forbids it to this user.
fn start(plan: &Plan) -> Option<World> {
    match World::start(plan) {
        Ok(world) => Some(world),
        Err(error) if is_root() && Path::new("/dev/net/tun").exists() => panic!("{error}"),
        Err(error) => {
            testing::skipped!("worlds need root and /dev/net/tun: {error}");
            None
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn host(index: usize) -> HostPlan {
    let number = index as u8 + 1;
    HostPlan {
        name: format!("host-{number}"),
        address: Ipv4Addr::new(10, 0, 0, number),
        address6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
        forwards: true,
    }
}

/// Hosts in a row, with links of one kind in one direction and of another back.
fn row(hosts: usize, there: &Config, back: &Config) -> Plan {
    let mut links = Vec::new();
    for from in 0..hosts - 1 {
        let link =
            |from, to, config: &Config| LinkPlan { from, to, config: config.clone(), mtu: 1500 };
        links.extend([link(from, from + 1, there), link(from + 1, from, back)]);
    }
    let mut routes = Vec::new();
    for at in 0..hosts {
        for to in (0..hosts).filter(|to| *to != at) {
            let over = if to > at { 2 * at } else { 2 * at - 1 };
            routes.push(Route { at, to, over });
        }
    }
    let hosts = (0..hosts).map(host).collect();
    Plan {
        hosts,
        links,
        hubs: Vec::new(),
        routes,
        group_routes: Vec::new(),
        seed: 1,
        memory: 64 << 20,
        uplink: None,
    }
}

fn delayed(delay: Duration) -> Config {
    Config { delay: Delay::Constant(delay), ..Config::default() }
}

fn losing(packets: &[u64]) -> Config {
    Config {
        errors: vec![ErrorModel::dropping(ErrorKind::DropList(packets.to_vec()))],
        ..Config::default()
    }
}

fn udp(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.within(|| UdpSocket::bind((address, PORT))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Both ends of a connection between two hosts.
fn connection(from: &Host, to: &Host, address: IpAddr) -> (TcpStream, TcpStream) {
    let listener = to.within(|| TcpListener::bind((address, PORT))).unwrap().unwrap();
    let connected = from.within(|| TcpStream::connect((address, PORT))).unwrap().unwrap();
    (connected, listener.accept().unwrap().0)
}

/// Bytes of which no two pieces are equal.
fn content(len: usize) -> Vec<u8> {
    let mut rng = engine::Rng::new(7, "content");
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// Sends bytes over a connection and returns those received.
fn carry(from: TcpStream, mut to: TcpStream, bytes: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut from = from;
            from.write_all(bytes).unwrap();
        });
        let mut received = Vec::new();
        to.read_to_end(&mut received).unwrap();
        received
    })
}

#[test]
fn datagrams_take_the_delay_in_order_in_both_versions() {
    calmly(|| {
        let delay = Duration::from_millis(40);
        let Some(world) = start(&row(2, &delayed(delay), &Config::default())) else { return };
        let [near, far] = world.hosts() else { panic!("two hosts") };
        for v6 in [false, true] {
            let of = |host: &Host| {
                if v6 { IpAddr::V6(host.plan().address6) } else { IpAddr::V4(host.plan().address) }
            };
            let (sender, receiver) = (udp(near, of(near)), udp(far, of(far)));
            let started = Instant::now();
            for number in 0..60_u8 {
                sender.send_to(&[number; 700], (of(far), PORT)).unwrap();
            }
            let mut bytes = [0; 2000];
            for number in 0..60_u8 {
                let (len, from) = receiver.recv_from(&mut bytes).unwrap();
                assert_eq!((len, bytes[0]), (700, number));
                assert_eq!(from, SocketAddr::new(of(near), PORT));
                assert!(started.elapsed() >= delay, "{:?}", started.elapsed());
            }
            assert_in_time(started.elapsed() < delay * 10, &started.elapsed());
        }
        let report = world.stop().unwrap();
        assert!(report.links[0].stats.delivered.packets >= 120);
        assert_eq!(report.links[0].lateness.packets(), report.links[0].stats.delivered.packets);
    });
}

#[test]
fn packets_in_flight_are_counted_until_delivery() {
    calmly(|| {
        let delay = Duration::from_millis(200);
        let Some(world) = start(&row(2, &delayed(delay), &Config::default())) else { return };
        let [near, far] = world.hosts() else { panic!("two hosts") };
        let of = |host: &Host| IpAddr::V4(host.plan().address);
        let (sender, receiver) = (udp(near, of(near)), udp(far, of(far)));
        assert_eq!(world.links().on_the_way(), Some(0));
        for number in 0..7 {
            sender.send_to(&[number; 100], (of(far), PORT)).unwrap();
        }
        let started = Instant::now();
        let mut most = 0;
        while started.elapsed() < delay / 2 {
            most = most.max(world.links().on_the_way().unwrap());
            let came = world.links().report().unwrap().links[0].lateness.packets();
            assert_in_time(came == 0, &came);
        }
        assert_in_time(most == 7, &most);
        for _ in 0..7 {
            receiver.recv_from(&mut [0; 200]).unwrap();
        }
        // Counters are updated after delivery.
        while world.links().on_the_way() != Some(0) {
            assert!(started.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(world.links().report().unwrap().links[0].lateness.packets(), 7);
        let links = world.links();
        world.stop().unwrap();
        assert_eq!(links.on_the_way(), None);
    });
}

#[test]
fn listed_packets_are_lost_exactly() {
    let Some(world) = start(&row(2, &losing(&[2, 5, 6]), &Config::default())) else { return };
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let (sender, receiver) = (udp(near, a), udp(far, b));
    for number in 0..10_u8 {
        sender.send_to(&[number], (b, PORT)).unwrap();
    }
    let mut bytes = [0; 10];
    let arrived: Vec<_> =
        (0..7).map(|_| receiver.recv(&mut bytes).map(|_| bytes[0]).unwrap()).collect();
    assert_eq!(arrived, [0, 1, 3, 4, 7, 8, 9]);
    assert_eq!(world.stop().unwrap().links[0].stats.lost_total().packets, 3);
}

#[test]
fn an_erasure_code_recovers_lost_packets() {
    let erasure = Some(Erasure { k: 10, n: 15, close: Duration::from_secs(2) });
    // At this rate, parity arrives after the last packet.
    let rate = Rate::Constant(10_000_000);
    let config = Config { erasure, rate, ..losing(&[2, 5, 6]) };
    let Some(world) = start(&row(2, &config, &Config::default())) else { return };
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let (sender, receiver) = (udp(near, a), udp(far, b));
    for number in 0..10_u8 {
        sender.send_to(&[number], (b, PORT)).unwrap();
    }
    let mut bytes = [0; 10];
    let arrived: Vec<_> =
        (0..10).map(|_| receiver.recv(&mut bytes).map(|_| bytes[0]).unwrap()).collect();
    assert_eq!(arrived, [0, 1, 3, 4, 7, 8, 9, 2, 5, 6]);
    let stats = &world.stop().unwrap().links[0].stats;
    assert_eq!((stats.lost_total().packets, stats.recovered.packets), (0, 3));
    // The world may end before the last two of five leave.
    assert!((3..=5).contains(&stats.parity.packets), "{:?}", stats.parity);
}

#[test]
fn a_row_of_hosts_forwards_and_discovers_the_path_mtu() {
    let mut plan = row(3, &delayed(Duration::from_millis(5)), &delayed(Duration::from_millis(5)));
    plan.links[2].mtu = 1300;
    plan.links[3].mtu = 1300;
    let Some(world) = start(&plan) else { return };
    let bytes = content(3_000_000);
    for address in
        [IpAddr::V4(world.hosts()[2].plan().address), IpAddr::V6(world.hosts()[2].plan().address6)]
    {
        // Path MTU discovery must find the second link's MTU.
        let (from, to) = connection(&world.hosts()[0], &world.hosts()[2], address);
        assert!(carry(from, to, &bytes) == bytes);
    }
    let report = world.stop().unwrap();
    let second = &report.links[2].stats;
    assert!(second.delivered.bytes / second.delivered.packets <= 1300);
}

#[test]
fn tcp_survives_loss_at_the_rate_of_the_link() {
    let config = Config {
        rate: Rate::Constant(100_000_000),
        errors: vec![ErrorModel::dropping(ErrorKind::PerPacket(0.01))],
        ..delayed(Duration::from_millis(2))
    };
    let Some(world) = start(&row(2, &config, &config)) else { return };
    let bytes = content(5_000_000);
    let address = IpAddr::V4(world.hosts()[1].plan().address);
    let (from, to) = connection(&world.hosts()[0], &world.hosts()[1], address);
    let started = Instant::now();
    assert!(carry(from, to, &bytes) == bytes);
    // 5 MB take 400 ms at 100 Mbit/s.
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
    let report = world.stop().unwrap();
    assert!(report.links[0].stats.lost_total().packets > 5);
}

/// With damage delivered, checksums must match the sender's data: otherwise TCP would accept
/// damaged data.
#[test]
fn damage_is_found_by_the_checksum_of_tcp() {
    let errors =
        vec![ErrorModel { kind: ErrorKind::BitErrorRate(3e-7), on_error: OnError::Damage }];
    let config = Config { errors, ..delayed(Duration::from_millis(1)) };
    let Some(world) = start(&row(2, &config, &Config::default())) else { return };
    let bytes = content(20_000_000);
    let address = IpAddr::V4(world.hosts()[1].plan().address);
    let (from, to) = connection(&world.hosts()[0], &world.hosts()[1], address);
    assert!(carry(from, to, &bytes) == bytes);
    let report = world.stop().unwrap();
    let damaged = report.links[0].stats.damaged.packets;
    // 160 million bits and the retransmissions: about 48 flips.
    assert!((15..150).contains(&damaged), "{damaged} packets were damaged");
}

#[test]
fn compressed_headers_carry_a_kernels_tcp_and_losses_are_repaired() {
    let framing = link::Framing::Ppp {
        fcs: link::Fcs::Bits16,
        compressed: true,
        stuffing: link::Stuffing::Exact,
        serial: false,
    };
    let header_compression = Some(link::HeaderCompression::default());
    let back = Config { framing, header_compression, ..delayed(Duration::from_millis(1)) };
    let errors = vec![ErrorModel::dropping(ErrorKind::DropList(vec![100, 300, 500]))];
    let there = Config { rate: Rate::Constant(50_000_000), errors, ..back.clone() };
    let Some(world) = start(&row(2, &there, &back)) else { return };
    for host in world.hosts() {
        // With timestamps every header has options that change.
        host.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0")).unwrap().unwrap();
    }
    let bytes = content(2_000_000);
    let address = IpAddr::V4(world.hosts()[1].plan().address);
    let (from, to) = connection(&world.hosts()[0], &world.hosts()[1], address);
    assert!(carry(from, to, &bytes) == bytes);
    let report = world.stop().unwrap();
    let [there, back] = [0, 1].map(|link: usize| report.links[link].line.unwrap());
    assert!(there.compressed > 1_000 && there.uncompressed >= 4, "{there:?}");
    // Packets after a lost frame could not be decompressed until the kernel retransmitted.
    assert!(there.tossed > 3, "{there:?}");
    // 3 to 8 of 40 bytes remain.
    let saved = (there.before - there.after) / there.compressed;
    assert!((32..=37).contains(&saved), "{there:?}");
    assert!(back.compressed > 100 && back.tossed == 0, "{back:?}");
}

#[test]
fn a_group_receives_each_datagram_once() {
    let link = |from, to| LinkPlan { from, to, config: Config::default(), mtu: 1500 };
    let mut links: Vec<_> = (1..4).map(|to| link(0, to)).collect();
    links.extend((1..4).map(|from| link(from, 0)));
    links[1].config = losing(&[0]);
    let routes = (1..4).flat_map(|other| {
        [Route { at: 0, to: other, over: other - 1 }, Route { at: other, to: 0, over: other + 2 }]
    });
    let plan = Plan {
        hosts: (0..4).map(host).collect(),
        links,
        hubs: vec![vec![0, 1, 2]],
        routes: routes.collect(),
        group_routes: Vec::new(),
        seed: 1,
        memory: 16 << 20,
        uplink: None,
    };
    let Some(world) = start(&plan) else { return };
    let group = Ipv4Addr::new(224, 1, 2, 3);
    let members: Vec<_> = world.hosts()[1..]
        .iter()
        .map(|host| {
            let socket = udp(host, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            host.within(|| socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED))
                .unwrap()
                .unwrap();
            socket
        })
        .collect();
    let sender = udp(&world.hosts()[0], IpAddr::V4(world.hosts()[0].plan().address));
    // The kernel sends packets to join a group; the routes lead them to the sender only.
    sender.send_to(b"1", (group, PORT)).unwrap();
    sender.send_to(b"2", (group, PORT)).unwrap();
    let mut bytes = [0; 8];
    for (index, member) in members.iter().enumerate() {
        let expected: &[&[u8]] = if index == 1 { &[b"2"] } else { &[b"1", b"2"] };
        for datagram in expected {
            let len = member.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], *datagram, "member {index}");
        }
    }
    // To one member, one way.
    let one = world.hosts()[2].plan().address;
    sender.send_to(b"you", (one, PORT)).unwrap();
    let len = members[1].recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"you");
    let report = world.stop().unwrap();
    assert_eq!(report.links[0].stats.pushed.packets + 1, report.links[1].stats.pushed.packets);
}

#[test]
fn intermediate_hosts_forward_to_groups() {
    // 0 is the ground station, 1 the satellite, 2 to 4 its terminals.
    let link = |from, to| LinkPlan { from, to, config: Config::default(), mtu: 1500 };
    let mut links = vec![link(0, 1), link(1, 0)];
    links.extend((2..5).map(|to| link(1, to)));
    links.extend((2..5).map(|from| link(from, 1)));
    let mut routes = vec![(0, 1, 0), (1, 0, 1)];
    for terminal in 2..5 {
        let (down, up) = (terminal, terminal + 3);
        routes.extend([(0, terminal, 0), (1, terminal, down), (terminal, 1, up)]);
        routes.extend((0..5).filter(|to| ![1, terminal].contains(to)).map(|to| (terminal, to, up)));
    }
    let routes = routes.into_iter().map(|(at, to, over)| Route { at, to, over }).collect();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let over = |source, over: &[usize]| GroupRoute { source, group, over: over.to_vec() };
    let plan = Plan {
        hosts: (0..5).map(host).collect(),
        links,
        hubs: vec![vec![2, 3, 4]],
        routes,
        group_routes: vec![over(0, &[0, 2, 3, 4]), over(2, &[5, 1, 3, 4])],
        seed: 1,
        memory: 16 << 20,
        uplink: None,
    };
    let Some(world) = start(&plan) else { return };
    let member = |host: &Host| {
        let socket = udp(host, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let join = || socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED);
        host.within(join).unwrap().unwrap();
        socket.set_multicast_ttl_v4(8).unwrap();
        socket.set_multicast_loop_v4(false).unwrap();
        socket
    };
    let sockets: Vec<_> = world.hosts().iter().map(member).collect();
    let mut bytes = [0; 8];
    let mut hears = |member: usize, expected: &[u8]| {
        let len = sockets[member].recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], expected, "host {member}");
    };
    // A sender does not receive its own packet, and the others receive it once: the next packet is
    // the next one sent.
    for (from, what) in [(0, b"a"), (2, b"b"), (0, b"c"), (2, b"d")] {
        sockets[from].send_to(what, (group, PORT)).unwrap();
        (0..5).filter(|member| ![1, from].contains(member)).for_each(|member| hears(member, what));
    }
    world.stop().unwrap();
}

#[test]
fn links_change_while_they_run() {
    let Some(world) = start(&row(2, &Config::default(), &Config::default())) else { return };
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let (sender, receiver) = (udp(near, a), udp(far, b));
    let mut bytes = [0; 8];
    let links = world.links();
    let delay = Duration::from_millis(150);
    links
        .change(0, move |config| Config { delay: Delay::Constant(delay), ..config.clone() })
        .unwrap();
    let started = Instant::now();
    sender.send_to(b"x", (b, PORT)).unwrap();
    receiver.recv(&mut bytes).unwrap();
    assert!(started.elapsed() >= delay);
    let nonsense = links.change(0, |config| Config { rate: Rate::Constant(0), ..config.clone() });
    assert!(nonsense.is_err());
    assert!(links.report().unwrap().links[0].stats.delivered.packets >= 1);
    world.stop().unwrap();
    assert!(links.report().is_none());
}

/// Packets of a capture: time, source host, length, and comment.
fn captured(path: &Path) -> Vec<(Time, u8, usize, Option<String>)> {
    let reader = pcap::Reader::new(File::open(path).unwrap()).unwrap();
    let records = reader.map(Result::unwrap);
    records.map(|r| (r.at, r.bytes[15], r.bytes.len(), r.comment)).collect()
}

#[test]
fn captures_record_the_fate_of_each_packet() {
    let config = Config { rate: Rate::Constant(1_000_000), ..losing(&[1]) };
    let Some(world) = start(&row(2, &config, &Config::default())) else { return };
    let folder = tempfile::tempdir().unwrap();
    let links = world.links();
    links.capture(None, folder.path(), CaptureLimits::default()).unwrap();
    assert!(links.capture(None, folder.path(), CaptureLimits::default()).is_err());
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let (sender, receiver) = (udp(near, a), udp(far, b));
    let mut bytes = [0; 2000];
    // Each takes 8 ms, so that they queue; replies arrive in between.
    for _ in 0..5 {
        sender.send_to(&[7; 972], (b, PORT)).unwrap();
    }
    for _ in 0..4 {
        receiver.recv(&mut bytes).unwrap();
        receiver.send_to(&[8; 72], (a, PORT)).unwrap();
    }
    for _ in 0..4 {
        sender.recv(&mut bytes).unwrap();
    }
    let report = links.end_capture().unwrap();
    assert_eq!((report.packets, report.missed, report.files.len()), (17, 0, 2));
    assert!(links.end_capture().is_err());
    let near = captured(&folder.path().join("host-1.pcapng"));
    let far = captured(&folder.path().join("host-2.pcapng"));
    assert!(near.is_sorted_by_key(|record| record.0) && far.is_sorted_by_key(|record| record.0));
    let sent: Vec<_> = near.iter().filter(|r| r.1 == 1).collect();
    assert_eq!(sent.iter().map(|r| r.2).collect::<Vec<_>>(), [1000; 5]);
    let says: Vec<_> = sent.iter().map(|record| record.3.as_deref()).collect();
    let lost = says[1].unwrap();
    assert!(lost.starts_with("lost on the way: "), "{lost}");
    assert_eq!((says[0], &says[2..]), (None, &[None; 3][..]));
    assert_eq!(far.iter().filter(|r| r.1 == 1).count(), 4);
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let age = today.as_secs_f64() - near[0].0.as_secs_f64();
    assert!((0.0..60.0).contains(&age), "stamps are times of day, not {age} s off");
}

#[test]
fn a_capture_keeps_within_its_limits() {
    let Some(world) = start(&row(2, &Config::default(), &Config::default())) else { return };
    let folder = tempfile::tempdir().unwrap();
    let links = world.links();
    let limits = CaptureLimits { file: 20_000, files: 2 };
    links.capture(Some(vec!["host-2".to_owned()]), folder.path(), limits).unwrap();
    let unknown = links.capture(Some(vec!["nobody".to_owned()]), folder.path(), limits);
    assert!(unknown.is_err());
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let (sender, receiver) = (udp(near, a), udp(far, b));
    let mut bytes = [0; 2000];
    for _ in 0..100 {
        sender.send_to(&[7; 972], (b, PORT)).unwrap();
        receiver.recv(&mut bytes).unwrap();
    }
    let report = links.end_capture().unwrap();
    assert_eq!((report.packets, report.files.len()), (100, 2));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2);
    for path in &report.files {
        assert!(path.metadata().unwrap().len() <= 20_000);
        assert!(captured(path).len() >= 5);
    }
}

#[test]
fn captures_report_packets_without_memory_or_refused() {
    let mut plan = row(2, &delayed(Duration::from_secs(3)), &Config::default());
    plan.memory = 4 << 20;
    let Some(world) = start(&plan) else { return };
    let folder = tempfile::tempdir().unwrap();
    let links = world.links();
    links.capture(None, folder.path(), CaptureLimits::default()).unwrap();
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let [a, b] = [near, far].map(|host| IpAddr::V4(host.plan().address));
    let sender = udp(near, a);
    let mut command = Command::new("ip");
    far.command(command.args(["link", "set", "dev", "host-1", "down"]));
    assert!(command.status().unwrap().success());
    // Fewer bytes than there is room for, in packets so small that records take more than that.
    let sent = 30_000_u64;
    for _ in 0..sent {
        sender.send_to(&[7], (b, PORT)).unwrap();
    }
    let started = Instant::now();
    let report = loop {
        let report = links.report().unwrap();
        if report.links[0].refused + report.no_memory == sent {
            break report;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{report:?}");
        thread::sleep(Duration::from_millis(5));
    };
    let pushed = report.links[0].stats.pushed.packets;
    assert_eq!((report.links[0].refused, report.no_memory), (pushed, sent - pushed));
    // 4 MiB for packets of 64 bytes, each with twice as much overhead.
    assert!((1..(4 << 20) / 200).contains(&pushed), "{pushed} packets in 4 MiB");
    let captured_all = links.end_capture().unwrap();
    assert_eq!(captured_all.missed, 0);
    let says = |name: &str, what: &str| {
        let records = captured(&folder.path().join(name));
        let about = |r: &&(_, _, _, Option<String>)| {
            r.3.as_ref().is_some_and(|comment| comment.starts_with(what))
        };
        records.iter().filter(about).count() as u64
    };
    assert_eq!(says("host-1.pcapng", "not taken: the emulator's memory"), report.no_memory);
    assert_eq!(says("host-2.pcapng", "refused by the host"), pushed);
}
