//! FTP over TCP.

use std::time::Duration;

use engine::{PathId, PathInfo, Rng, Time, conformance};
use models::ftp::{self, DataConnection, Failure, Indication, Node, RequestId, ScpsClient};
use proptest::prelude::*;
use testing::memory::Counted;

use super::super::{Config, OverTcp};
use super::transfer::{self, file};
use super::world::{SERVICE, World, config};
use super::{bytes, case, fate, small};

fn node(data: DataConnection) -> Node {
    let mut config = ftp::Config::default();
    config.client.data = data;
    Node::new(config)
}

/// Client and server of SCPS-FP.
fn scps_node(change: impl Fn(&mut ScpsClient)) -> Node {
    let mut config = ftp::Config::default();
    let mut scps = ScpsClient::default();
    change(&mut scps);
    config.client.scps = Some(scps);
    config.client.data = DataConnection::Port;
    config.client.timeout = Duration::from_secs(30);
    config.server.scps = true;
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

fn insert(world: &mut World<Node>, host: usize, name: &str, count: usize) {
    world.hosts[host].store.insert(file(name), bytes(count));
}

fn content<'a>(world: &'a World<Node>, host: usize, name: &str) -> Option<&'a [u8]> {
    world.hosts[host].store.get(&file(name))
}

fn put(world: &mut World<Node>) -> RequestId {
    world.on(0, |node| node.put(SERVICE, file("here"), "there").unwrap())
}

fn outcome(world: &World<Node>, id: RequestId) -> Result<u64, Failure> {
    let mut ends = world.hosts[0].indications.iter().filter_map(|reported| match reported {
        Indication::Finished { request, bytes, .. } if *request == id => Some(Ok(*bytes)),
        Indication::Failed { request, why } if *request == id => Some(Err(why.clone())),
        _ => None,
    });
    let end = ends.next().expect("the request ended");
    assert_eq!(ends.next(), None, "it ended once");
    end
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
            world.finish();
            assert_eq!(outcome(&world, there), Ok(300_000));
            assert_eq!(outcome(&world, back), Ok(123_456));
            assert_eq!(content(&world, 1, "there"), Some(&bytes(300_000)[..]));
            assert_eq!(content(&world, 0, "near"), Some(&bytes(123_456)[..]));
            assert_eq!(world.next_time(), None, "nothing is left to be done");
        }
    }
}

#[test]
fn a_refused_connection_fails() {
    let mut world = worlds(DataConnection::Pasv, |config| config.listen.clear());
    insert(&mut world, 0, "here", 10);
    let id = put(&mut world);
    world.finish();
    assert_eq!(outcome(&world, id), Err(Failure::Control));
    assert!(world.now < Time::from_secs(101));
}

#[test]
fn data_connections_that_are_blocked_on_the_way_fail() {
    for data in WAYS {
        let mut world = worlds(data, |_| {});
        insert(&mut world, 0, "here", 10_000);
        // A firewall that lets only packets of the control connection pass, at port 21.
        world.lose(|_, _, packet| {
            let ports = [&packet[20..22], &packet[22..24]];
            !ports.contains(&&21u16.to_be_bytes()[..])
        });
        let id = put(&mut world);
        world.finish();
        assert!(outcome(&world, id).is_err(), "{data:?}");
        assert_eq!(world.next_time(), None);
    }
}

/// A file of 40,000 bytes by best effort; the segment of the data connection behind 14,600 bytes
/// never arrives.
fn best_effort(get: bool, peer_knows: bool) -> World<Node> {
    let configs = [0, 1].map(config);
    let mut world = World::new(
        configs,
        |host| match host {
            1 if !peer_knows => node(DataConnection::Port),
            _ => scps_node(|scps| {
                scps.best_effort = true;
                scps.restarts = 0;
            }),
        },
        1,
    );
    let mut sequence = None;
    let mut full = 0;
    world.lose(move |_, _, packet| {
        let ports = [&packet[20..22], &packet[22..24]];
        let is_data = !ports.contains(&&21u16.to_be_bytes()[..]) && packet.len() > 1000;
        let own = packet[24..28].to_vec();
        full += usize::from(is_data);
        if is_data && full == 11 {
            sequence = Some(own.clone());
        }
        is_data && sequence == Some(own)
    });
    insert(&mut world, usize::from(get), "here", 40_000);
    world.on(0, |node| {
        if get {
            node.get(SERVICE, "here", file("there")).unwrap()
        } else {
            node.put(SERVICE, file("here"), "there").unwrap()
        }
    });
    world.finish();
    world
}

#[test]
fn best_effort_skips_and_reports_gaps() {
    for get in [false, true] {
        let world = best_effort(get, true);
        let at = usize::from(!get);
        let holes = world.hosts[at].indications.iter().filter_map(|indication| match indication {
            Indication::Missing { offset, bytes, .. } => Some((*offset as usize, *bytes as usize)),
            _ => None,
        });
        let holes: Vec<_> = holes.collect();
        let [(offset, count)] = holes[..] else { panic!("{holes:?}") };
        let mut expected = bytes(40_000);
        expected[offset..offset + count].fill(0);
        assert!(offset >= 10_000 && (1000..1500).contains(&count), "{offset} {count}");
        assert!(content(&world, at, "there") == Some(&expected[..]), "get: {get}");
        // Both users are notified, for requests of either.
        let holes = |host: usize| {
            world.hosts[host].indications.iter().find_map(|indication| match indication {
                Indication::Finished { missing, .. } | Indication::Received { missing, .. } => {
                    Some(*missing as usize)
                }
                _ => None,
            })
        };
        assert_eq!(holes(0), Some(count));
        assert_eq!(holes(1), if get { None } else { Some(count) });
    }
}

#[test]
fn plain_ftp_servers_get_complete_files() {
    let world = best_effort(false, false);
    let failed = |indication: &Indication| matches!(indication, Indication::Failed { .. });
    assert!(world.hosts[0].indications.iter().any(failed), "{:?}", world.hosts[0].indications);
    let received = |indication: &Indication| matches!(indication, Indication::Received { .. });
    assert!(!world.hosts[1].indications.iter().any(received));
}

/// Times of the steps of a run without faults.
fn steps(data: DataConnection) -> u64 {
    let mut world = worlds(data, |_| {});
    insert(&mut world, 0, "here", 40_000);
    put(&mut world);
    world.finish();
    world.steps
}

#[test]
fn either_host_may_crash_at_any_moment() {
    for data in WAYS {
        for at in 0..steps(data) {
            // The server, for ever or for a second, and the client for ever.
            for (host, boots) in [(1, false), (1, true), (0, false)] {
                let mut world = worlds(data, |_| {});
                insert(&mut world, 0, "here", 40_000);
                let id = put(&mut world);
                while world.steps < at && world.step() {}
                world.switch_off(host);
                if boots {
                    world.run_for(Duration::from_secs(1));
                    world.boot(host, config(host), node(data));
                }
                world.finish();
                assert_eq!(world.next_time(), None);
                if host == 1 {
                    let ended = outcome(&world, id);
                    let arrived = content(&world, 1, "there") == Some(&bytes(40_000)[..]);
                    assert!(ended.is_err() || arrived, "step {at}: {ended:?}");
                }
            }
        }
    }
}

#[test]
fn either_side_may_cancel_at_any_moment() {
    for at in (0..steps(DataConnection::Pasv)).step_by(3) {
        let mut world = worlds(DataConnection::Pasv, |_| {});
        insert(&mut world, 0, "here", 40_000);
        let id = put(&mut world);
        while world.steps < at && world.step() {}
        let now = world.now;
        let under_way = world.on(0, |node| node.cancel(now, id));
        let again = put(&mut world);
        world.finish();
        assert_eq!(outcome(&world, id).is_err(), under_way, "step {at}");
        assert_eq!(outcome(&world, again), Ok(40_000), "step {at}");
        assert_eq!(content(&world, 1, "there"), Some(&bytes(40_000)[..]));
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
        world.line().delay = case.delay;
        world.batch = case.batch;
        insert(&mut world, usize::from(get), "here", size);
        let id = world.on(0, |node| if get { node.get(SERVICE, "here", file("there")) } else { node.put(SERVICE, file("here"), "there") });
        world.finish();
        prop_assert_eq!(outcome(&world, id.unwrap()), Ok(size as u64));
        prop_assert_eq!(content(&world, usize::from(!get), "there"), Some(&bytes(size)[..]));
        prop_assert_eq!(world.next_time(), None);
    }
}

/// A transfer by FTP for the conformance suite: its datagrams are IP packets.
struct Transfer {
    /// Whether by SCPS-FP, whose clients retry.
    scps: bool,
}

const SIZE: usize = 12_000;

impl conformance::Subject for Transfer {
    type Engine = Counted<OverTcp<Node>>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Self::Engine {
        let node = if self.scps {
            scps_node(|scps| scps.restarts = 3)
        } else {
            node(DataConnection::Pasv)
        };
        Counted::new(|| OverTcp::new(transfer::host(role), node, Rng::new(seed, "host")))
    }

    fn size(&self) -> usize {
        SIZE
    }

    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool {
        engine.charge(|host| {
            host.call(now, |node| node.put(SERVICE, conformance::source(), "copy").unwrap());
        });
        true
    }

    fn verdict(
        &self,
        _role: conformance::Role,
        indication: &Indication,
    ) -> Option<conformance::Verdict> {
        transfer::verdict(indication)
    }

    fn is_busy(&self, engine: &Self::Engine) -> bool {
        engine.above().under_way() > 0
    }

    fn memory(&self, engine: &Self::Engine) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        transfer::HOST_MAX
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1500)
    }

    fn detects_damage(&self) -> bool {
        // The Internet checksum misses two exchanged bits in one of some thirty pairs.
        false
    }
}

#[test]
fn keeps_the_contract() {
    assert_eq!(conformance::PATH, PathId(1));
    let options =
        conformance::Options { runs: 8, positions: 24, ..conformance::Options::default() };
    for scps in [false, true] {
        conformance::check_all(&Transfer { scps }, &options);
    }
}
