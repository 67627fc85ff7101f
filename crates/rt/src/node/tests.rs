mod hostile;
mod secured;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use bp::agent::{Entry, Limits, Pattern, Routing, SendRequest};
use bp::codec::bp7::{BundleId, Eid};
use bp::layer::Content;
use bp::tcpcl::{self, Peer, Tcpcl};
use crossbeam_channel::Receiver;

use super::*;
use crate::StoreConfig;
use crate::streams::{Listening, StreamOptions};

const LINK: LinkId = LinkId(1);
const PATH: PathId = PathId(1);

struct Place {
    node: Node,
    stored: Receiver<BundleId>,
    delivered: Receiver<(BundleId, Vec<u8>)>,
}

impl Place {
    fn address(&self) -> SocketAddr {
        self.node.listening().next().unwrap().1[0]
    }

    fn send(&self, to: usize, bytes: Vec<u8>) -> BundleId {
        let (answer, answered) = bounded(1);
        let request = SendRequest::new(endpoint(to), bytes);
        self.node.handle().ask(move |now, agent| {
            assert!(agent.is_ready(), "it was waited for");
            answer.send(agent.send(now, request)).unwrap();
        });
        answered.recv().unwrap().unwrap()
    }

    fn wait_until_ready(&self) {
        let (answer, answered) = bounded(1);
        let limit = Instant::now() + Duration::from_secs(10);
        while Instant::now() < limit {
            let answer = answer.clone();
            self.node.handle().ask(move |_, agent| answer.send(agent.is_ready()).unwrap());
            if answered.recv().unwrap() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the store is not read");
    }
}

fn node_id(number: usize) -> Eid {
    Eid::ipn(number as u32, 0)
}

fn endpoint(number: usize) -> Eid {
    Eid::ipn(number as u32, 1)
}

/// Node `number`, which connects to `next` if given; bundles for greater numbers go there, others
/// back.
fn place(number: usize, next: Option<SocketAddr>, store: Option<&Path>) -> Place {
    place_as(number, next, store, |_, _| {})
}

/// Like `place`, with other settings.
fn place_as(
    number: usize,
    next: Option<SocketAddr>,
    store: Option<&Path>,
    adapt: impl FnOnce(&mut tcpcl::Config, &mut StreamConfig),
) -> Place {
    let mut layer = tcpcl::Config { node: node_id(number), ..tcpcl::Config::default() };
    let mut links = BTreeMap::new();
    let mut peers = BTreeMap::new();
    let mut open = BTreeSet::new();
    if let Some(address) = next {
        layer.peers.insert(LINK, Peer { path: PATH, server_name: String::new(), node: None });
        peers.insert(PATH, address.into());
        links.insert(LinkRef { layer: 0, link: LINK }, node_id(number + 1));
        open.insert(LINK);
    }
    let agent = agent::Config {
        node: node_id(number),
        persistent: store.is_some(),
        links,
        routing: Routing::Static(routes(number)),
        limits: match store {
            Some(_) => Limits::default(),
            None => Limits { inline: usize::MAX, inline_total: usize::MAX, ..Limits::default() },
        },
        ..agent::Config::default()
    };
    let listening = Listening {
        address: "127.0.0.1:0".parse().unwrap(),
        options: StreamOptions::default(),
        onward: None,
    };
    let mut streams = StreamConfig { listen: vec![listening], peers, ..StreamConfig::default() };
    adapt(&mut layer, &mut streams);
    let carrier = Carrier::Streams(streams);
    let layer = Box::new(Tcpcl::new(layer));
    let layers = vec![LayerConfig { name: "tcpcl".to_owned(), layer, carrier, open }];
    let waker = Waker::new().unwrap();
    let files = match store {
        Some(path) => FileStore::open(StoreConfig::new(path), &waker).unwrap(),
        None => FileStore::in_memory(1 << 30, &waker),
    };
    let (stores, stored) = unbounded();
    let (delivers, delivered) = unbounded();
    let spool = store.map(|path| path.join(".slowlight/spool"));
    let on = move |now: Time, agent: &mut Agent, indication| match indication {
        Indication::Stored { id } => stores.send(id).unwrap(),
        Indication::Delivered { delivery, id, payload, .. } => {
            let bytes = match payload {
                Content::Bytes(bytes) => bytes.to_vec(),
                Content::File { name, offset, len } => {
                    let all = std::fs::read(spool.as_ref().unwrap().join(name.path())).unwrap();
                    all[offset as usize..(offset + len) as usize].to_vec()
                }
            };
            delivers.send((id, bytes)).unwrap();
            agent.confirm(now, delivery).unwrap();
        }
        _ => {}
    };
    let config =
        NodeConfig { agent, seed: number as u64, layers, wall: WallClock::Unused, on_step: None };
    let node = Node::start(config, files, waker, on).unwrap();
    node.handle().ask(move |_, agent| agent.register(&endpoint(number)).unwrap());
    let place = Place { node, stored, delivered };
    place.wait_until_ready();
    place
}

/// Static routes of a place along the line.
fn routes(number: usize) -> Vec<Entry> {
    let others = (1..5).filter(|to| *to != number);
    let route = |to| {
        let via = if to > number { node_id(number + 1) } else { node_id(number - 1) };
        Entry { to: Pattern::Node(node_id(to)), via: vec![via] }
    };
    others.map(route).collect()
}

fn bytes(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ first).collect()
}

/// Bundles of all sizes via a relay, in both directions.
fn over_a_relay(folders: [Option<&Path>; 3]) {
    let third = place(3, None, folders[2]);
    let second = place(2, Some(third.address()), folders[1]);
    let first = place(1, Some(second.address()), folders[0]);
    let mut expected: BTreeMap<(usize, BundleId), Vec<u8>> = BTreeMap::new();
    for (turn, len) in [0, 1, 100, 4096, 4097, 65_536, 300_000, 3_000_000].into_iter().enumerate() {
        for (from, to) in [(&first, 3), (&third, 1), (&first, 2)] {
            let content = bytes(len, turn as u8);
            expected.insert((to, from.send(to, content.clone())), content);
        }
    }
    let patience = Duration::from_secs(30);
    for _ in 0..expected.len() {
        let (at, (id, content)) = crossbeam_channel::select! {
            recv(first.delivered) -> got => (1, got.unwrap()),
            recv(second.delivered) -> got => (2, got.unwrap()),
            recv(third.delivered) -> got => (3, got.unwrap()),
            default(patience) => panic!("{} are missing", expected.len()),
        };
        assert_eq!(expected.remove(&(at, id.clone())), Some(content), "{id:?} at {at}");
    }
    assert_eq!(first.stored.len(), 16);
    assert_eq!(third.stored.len(), 8);
    let started = Instant::now();
    for place in [first, second, third] {
        assert!(!place.node.has_failed());
        place.node.stop(patience);
    }
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "sessions end in order: {:?}",
        started.elapsed()
    );
}

/// Requirements: B45.
#[test]
fn bundles_cross_a_relay_in_memory() {
    over_a_relay([None; 3]);
}

#[test]
fn bundles_cross_a_relay_on_disk() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    over_a_relay([0, 1, 2].map(|at| Some(folders[at].path())));
}

#[test]
fn bundles_wait_on_disk_for_a_neighbour_across_a_restart() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = taken.local_addr().unwrap();
    drop(taken);
    let content = bytes(100_000, 7);
    let first = place(1, Some(nobody), Some(folders[0].path()));
    let id = first.send(2, content.clone());
    assert_eq!(first.stored.recv_timeout(Duration::from_secs(10)), Ok(id.clone()));
    first.node.stop(Duration::from_secs(1));
    let second = place(2, None, Some(folders[1].path()));
    let first = place(1, Some(second.address()), Some(folders[0].path()));
    let got = second.delivered.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(got, (id, content));
    first.node.stop(Duration::from_secs(5));
    second.node.stop(Duration::from_secs(5));
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listening = Listening {
        address: taken.local_addr().unwrap(),
        options: StreamOptions::default(),
        onward: None,
    };
    let config = StreamConfig { listen: vec![listening], ..StreamConfig::default() };
    let layer = Box::new(Tcpcl::new(tcpcl::Config::default()));
    let carrier = Carrier::Streams(config);
    let open = BTreeSet::new();
    let layers = vec![LayerConfig { name: "far".to_owned(), layer, carrier, open }];
    let waker = Waker::new().unwrap();
    let store = FileStore::in_memory(1 << 20, &waker);
    let config = NodeConfig {
        agent: agent::Config::default(),
        seed: 1,
        layers,
        wall: WallClock::Unused,
        on_step: None,
    };
    let error = Node::start(config, store, waker, |_, _, _| {}).unwrap_err();
    assert!(error.to_string().starts_with("layer far: "), "{error}");
}
