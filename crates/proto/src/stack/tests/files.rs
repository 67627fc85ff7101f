//! FTP over TCP.

use std::time::Duration;

use engine::{FileName, MemoryStore, PathId, PathInfo, Rng, Time, conformance};
use proptest::prelude::*;

use super::super::{Config, OverTcp};
use super::world::{SERVICE, World, address, config};
use super::{case, fate, octets, small};
use crate::ftp::{self, DataConnection, Failure, Indication, Node, RequestId};

fn node(data: DataConnection) -> Node {
    let mut config = ftp::Config::default();
    config.client.data = data;
    Node::new(config)
}

fn worlds(data: DataConnection, change: impl Fn(&mut Config)) -> World<Node> {
    let configs = [0, 1].map(|host| {
        let mut config = config(host);
        change(&mut config);
        config
    });
    World::new(configs, |_| node(data), 1)
}

fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

fn insert(world: &mut World<Node>, host: usize, name: &str, count: usize) {
    world.hosts[host].store.insert(file(name), octets(count));
}

fn content<'a>(world: &'a World<Node>, host: usize, name: &str) -> Option<&'a [u8]> {
    world.hosts[host].store.get(&file(name))
}

fn put(world: &mut World<Node>) -> RequestId {
    world.on(0, |node| node.put(SERVICE, file("here"), "there").unwrap())
}

fn outcome(world: &World<Node>, id: RequestId) -> Result<u64, Failure> {
    let mut found = world.hosts[0].told.iter().filter_map(|told| match told {
        Indication::Finished { request, octets } if *request == id => Some(Ok(*octets)),
        Indication::Failed { request, why } if *request == id => Some(Err(why.clone())),
        _ => None,
    });
    let outcome = found.next().expect("the request ended");
    assert_eq!(found.next(), None, "it ended once");
    outcome
}

const WAYS: [DataConnection; 3] =
    [DataConnection::Pasv, DataConnection::Epsv, DataConnection::Port];

#[test]
fn files_cross_both_ways_by_every_kind_of_data_connection() {
    for data in WAYS {
        for change in [(|_: &mut Config| {}) as fn(&mut Config), small] {
            let mut world = worlds(data, change);
            insert(&mut world, 0, "here", 300_000);
            insert(&mut world, 1, "far", 123_456);
            let there = put(&mut world);
            let back = world.on(0, |node| node.get(SERVICE, "far", file("near")).unwrap());
            world.run();
            assert_eq!(outcome(&world, there), Ok(300_000));
            assert_eq!(outcome(&world, back), Ok(123_456));
            assert_eq!(content(&world, 1, "there"), Some(&octets(300_000)[..]));
            assert_eq!(content(&world, 0, "near"), Some(&octets(123_456)[..]));
            assert_eq!(world.next_time(), None, "nothing is left to be done");
        }
    }
}

#[test]
fn nobody_listens() {
    let mut world = worlds(DataConnection::Pasv, |config| config.listen.clear());
    insert(&mut world, 0, "here", 10);
    let id = put(&mut world);
    world.run();
    assert_eq!(outcome(&world, id), Err(Failure::Control));
    assert!(world.now < Time::from_secs(101));
}

#[test]
fn data_connections_that_are_blocked_on_the_way_fail() {
    for data in WAYS {
        let mut world = worlds(data, |_| {});
        insert(&mut world, 0, "here", 10_000);
        // A firewall that lets packets of the control connection pass, which alone has port 21.
        world.fate = Box::new(|_, _, packet| {
            let ports = [&packet[20..22], &packet[22..24]];
            if ports.contains(&&21u16.to_be_bytes()[..]) { vec![Duration::ZERO] } else { vec![] }
        });
        let id = put(&mut world);
        world.run();
        assert!(outcome(&world, id).is_err(), "{data:?}");
        assert_eq!(world.next_time(), None);
    }
}

/// Where a run without trouble is at each step, and how many there are.
fn steps(data: DataConnection) -> u64 {
    let mut world = worlds(data, |_| {});
    insert(&mut world, 0, "here", 40_000);
    put(&mut world);
    world.run();
    world.steps
}

#[test]
fn either_host_may_be_switched_off_at_any_moment() {
    for data in WAYS {
        for at in 0..steps(data) {
            // The server, for ever or for a second, and the client for ever.
            for (host, boots) in [(1, false), (1, true), (0, false)] {
                let mut world = worlds(data, |_| {});
                insert(&mut world, 0, "here", 40_000);
                let id = put(&mut world);
                while world.steps < at && world.step() {}
                world.kill(host);
                if boots {
                    world.run_for(Duration::from_secs(1));
                    world.boot(host, config(host), node(data));
                }
                world.run();
                assert_eq!(world.next_time(), None);
                if host == 1 {
                    let ended = outcome(&world, id);
                    let arrived = content(&world, 1, "there") == Some(&octets(40_000)[..]);
                    assert!(ended.is_err() || arrived, "step {at}: {ended:?}");
                }
            }
        }
    }
}

#[test]
fn either_side_may_take_a_transfer_back_at_any_moment() {
    for at in (0..steps(DataConnection::Pasv)).step_by(3) {
        let mut world = worlds(DataConnection::Pasv, |_| {});
        insert(&mut world, 0, "here", 40_000);
        let id = put(&mut world);
        while world.steps < at && world.step() {}
        let now = world.now;
        let under_way = world.on(0, |node| node.cancel(now, id));
        let again = put(&mut world);
        world.run();
        assert_eq!(outcome(&world, id).is_err(), under_way, "step {at}");
        assert_eq!(outcome(&world, again), Ok(40_000), "step {at}");
        assert_eq!(content(&world, 1, "there"), Some(&octets(40_000)[..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn files_arrive_through_losses_and_all_options(
        case in case(), size in 0usize..150_000, way in 0usize..3, get in any::<bool>(),
    ) {
        let configs = [0, 1].map(|host| {
            Config { options: case.options[host].clone(), ..config(host) }
        });
        let mut world = World::new(configs, |_| node(WAYS[way]), case.seed);
        world.fate = fate(&case);
        world.delay = case.delay;
        world.batch = case.batch;
        insert(&mut world, usize::from(get), "here", size);
        let id = world.on(0, |node| match get {
            true => node.get(SERVICE, "here", file("there")),
            false => node.put(SERVICE, file("here"), "there"),
        });
        world.run();
        prop_assert_eq!(outcome(&world, id.unwrap()), Ok(size as u64));
        prop_assert_eq!(content(&world, usize::from(!get), "there"), Some(&octets(size)[..]));
        prop_assert_eq!(world.next_time(), None);
    }
}

/// A transfer by FTP, for the suite that every engine passes: its datagrams are IP packets.
struct Transfer;

const SIZE: usize = 12_000;

impl conformance::Subject for Transfer {
    type Engine = OverTcp<Node>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Self::Engine {
        let host = match role {
            conformance::Role::Sender => 0,
            conformance::Role::Receiver => 1,
        };
        let mut config = config(host);
        // A peer that is gone is given up within the time that the suite allows, and what the suite
        // bounds is reached soon.
        config.tcp.addresses = vec![address(host).ip()];
        config.tcp.limits.connections = 64;
        config.tcp.limits.time_wait = 256;
        config.options.send_buffer = crate::tcp::Buffer::Fixed(16 << 10);
        config.options.receive_buffer = crate::tcp::Buffer::Fixed(16 << 10);
        config.limits.streams = 32;
        OverTcp::new(config, node(DataConnection::Pasv), Rng::new(seed, "host"))
    }

    fn prepare(&self, role: conformance::Role, store: &mut MemoryStore) {
        if role == conformance::Role::Sender {
            store.insert(file("here"), octets(SIZE));
        }
    }

    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool {
        engine.call(now, |node| node.put(SERVICE, file("here"), "there").unwrap());
        true
    }

    fn verdict(
        &self,
        _role: conformance::Role,
        indication: &Indication,
    ) -> Option<conformance::Verdict> {
        match indication {
            Indication::Finished { .. } | Indication::Received { .. } => {
                Some(conformance::Verdict::Delivered)
            }
            Indication::Failed { .. } | Indication::Aborted { .. } => {
                Some(conformance::Verdict::Failed)
            }
            Indication::LoggedIn { .. }
            | Indication::Answered { .. }
            | Indication::Begun { .. }
            | Indication::Sent { .. }
            | Indication::Refused { .. } => None,
        }
    }

    fn check(&self, receiver: &MemoryStore) -> Result<(), String> {
        match receiver.get(&file("there")) {
            Some(content) if content == octets(SIZE) => Ok(()),
            Some(content) => Err(format!("another content, of {} octets", content.len())),
            None => Err("no file".to_owned()),
        }
    }

    fn is_busy(&self, engine: &Self::Engine) -> bool {
        engine.above().under_way() > 0
    }

    fn memory(&self, engine: &Self::Engine) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        // 32 streams with two buffers of 16 KiB and 64 KiB kept, and what the stack remembers.
        6 << 20
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1500)
    }

    fn detects_damage(&self) -> bool {
        // The Internet checksum does not see two bits that change places: one in some thirty pairs.
        false
    }
}

#[test]
fn keeps_the_contract() {
    assert_eq!(conformance::PATH, PathId(1));
    let options =
        conformance::Options { runs: 8, positions: 24, ..conformance::Options::default() };
    conformance::check_all(&Transfer, &options);
}
