//! Cost of the simulator itself: a paced sender of 10,000 datagrams of 1 KB and a counting
//! receiver, or a hundred receivers behind a relay. This is the shape of a 10 MB transfer with
//! engines that do next to nothing.

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::{Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, Time, Transmit, TxBuf};
use link::{Delay, ErrorKind, ErrorModel, Framing, Rate};
use sim::{HostConfig, HostId, Limit, Outcome, World};

const PACKETS: u32 = 10_000;
const LEN: usize = 1024;

#[derive(Default)]
struct Paced {
    left: u32,
    next_at: Time,
    gap: Duration,
    received: u64,
}

impl Engine for Paced {
    type Indication = ();

    fn handle_input(&mut self, _: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => self.received += receive.bytes.len() as u64,
            Input::Path(PathId(1), PathEvent::Up(info)) => self.gap = info.transmission_time(LEN),
            Input::Path(_, _) | Input::Done(_, _) => {}
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.left = self.left.checked_sub(1)?;
        tx.push(LEN)?.fill(self.left as u8);
        let at = self.next_at.max(now);
        self.next_at = at + self.gap;
        tx.transmit(PathId(1), at)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

fn world(rtt: bool) -> (World<Paced>, [HostId; 2]) {
    let mut world = World::new(1);
    let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let hosts =
        addresses.map(|address| world.add_host(HostConfig::new(address.to_string(), address)));
    let config = link::Config {
        rate: Rate::Constant(10_000_000),
        framing: Framing::Ethernet { fcs: false, preamble: false, ifg: false },
        delay: Delay::Constant(Duration::from_millis(if rtt { 1280 } else { 25 })),
        errors: vec![ErrorModel::dropping(ErrorKind::PerPacket(1e-3))],
        ..link::Config::default()
    };
    for (here, there) in [(0, 1), (1, 0)] {
        world.add_link(hosts[here], hosts[there], config.clone()).expect("a valid link");
        let info = PathInfo { rate_bps: Some(10_000_000), overhead: 42, ..PathInfo::datagram(LEN) };
        let peer = SocketAddrV4::new(addresses[there], 4556);
        world.add_path(hosts[here], PathId(1), 4556, peer, info);
        world.install(hosts[here], |_, _| Paced::default());
    }
    (world, hosts)
}

/// Creates a sender, and receivers behind a relay that forwards packets from the one link with a
/// rate.
fn star(receivers: u8) -> (World<Paced>, Vec<HostId>) {
    let mut world = World::new(1);
    let group = SocketAddrV4::new(Ipv4Addr::new(224, 1, 2, 3), 4556);
    let info = PathInfo { rate_bps: Some(10_000_000), overhead: 42, ..PathInfo::datagram(LEN) };
    let mut host = |last| {
        let address = Ipv4Addr::new(10, 0, 0, last);
        (world.add_host(HostConfig::new(address.to_string(), address)), address)
    };
    let ((sender, source), (relay, _)) = (host(1), host(2));
    let receivers: Vec<_> = (0..receivers).map(|index| host(3 + index).0).collect();
    let up = link::Config { rate: Rate::Constant(10_000_000), ..link::Config::default() };
    let branch = link::Config {
        delay: Delay::Constant(Duration::from_millis(25)),
        errors: vec![ErrorModel::dropping(ErrorKind::PerPacket(1e-2))],
        ..link::Config::default()
    };
    let up = world.add_link(sender, relay, up).expect("a valid link");
    world.add_group_route(sender, source, *group.ip(), up);
    for receiver in &receivers {
        let down = world.add_link(relay, *receiver, branch.clone()).expect("a valid link");
        world.add_group_route(relay, source, *group.ip(), down);
    }
    let hosts: Vec<_> = [sender].into_iter().chain(receivers).collect();
    for host in &hosts {
        world.add_path(*host, PathId(1), 4556, group, info.clone());
        world.install(*host, |_, _| Paced::default());
    }
    (world, hosts)
}

fn transfer((mut world, hosts): (World<Paced>, [HostId; 2]), capture: bool) -> u64 {
    if capture {
        world.capture_host_link(hosts[0], hosts[1], io::sink()).expect("a sink takes all");
    }
    world.call(hosts[0], |engine, _| engine.left = PACKETS);
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    world.engine(hosts[1]).map_or(0, |engine| engine.received)
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("10 MB");
    group.throughput(Throughput::Elements(u64::from(PACKETS)));
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    group.bench_function("25 ms", |b| b.iter(|| black_box(transfer(world(false), false))));
    group.bench_function("1.28 s", |b| b.iter(|| black_box(transfer(world(true), false))));
    group.bench_function("25 ms, captured", |b| b.iter(|| black_box(transfer(world(false), true))));
    group.throughput(Throughput::Elements(100 * u64::from(PACKETS)));
    group.bench_function("to a hundred", |b| {
        b.iter(|| {
            let (mut world, hosts) = star(100);
            world.call(hosts[0], |engine, _| engine.left = PACKETS);
            assert_eq!(world.run(Limit::default()), Outcome::Idle);
            let received = |host: &HostId| world.engine(*host).map_or(0, |engine| engine.received);
            black_box(hosts.iter().map(received).sum::<u64>())
        });
    });
    group.finish();
}

criterion_group!(world_benches, benches);
criterion_main!(world_benches);
