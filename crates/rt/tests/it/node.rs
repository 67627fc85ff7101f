//! Nodes with one layer, TCPCL.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bp::agent::{self, Agent, Entry, Indication, LinkRef, Pattern, Routing};
use bp::codec::bp7::Eid;
use bp::layer::{Content, LinkId};
use bp::tcpcl::{self, Peer, Tcpcl};
use engine::{PathId, Time};
use slowlight_rt::node::{Carrier, LayerConfig, Node, NodeConfig, WallClock};
use slowlight_rt::streams::{Listening, StreamConfig, StreamOptions};
use slowlight_rt::{FileStore, RecordsIn, StoreConfig, Waker};

/// Bytes of a store in memory.
const MEMORY: u64 = 1 << 30;

pub(crate) fn node_id(number: usize) -> Eid {
    Eid::ipn(number as u32, 0)
}

pub(crate) fn endpoint(number: usize) -> Eid {
    Eid::ipn(number as u32, 1)
}

/// Routes of node `number` in a row of `count` nodes, from 1.
pub(crate) fn row(number: usize, count: usize) -> Routing {
    let others = (1..=count).filter(|to| *to != number);
    let routes = others.map(|to| {
        let via = if to > number { number + 1 } else { number - 1 };
        Entry { to: Pattern::Node(node_id(to)), via: vec![node_id(via)] }
    });
    Routing::Static(routes.collect())
}

/// A node and its neighbours.
pub(crate) struct Spec {
    pub(crate) number: usize,
    pub(crate) listen: SocketAddr,
    /// Neighbours to connect to.
    pub(crate) peers: BTreeMap<usize, SocketAddr>,
    /// Whether connections are established at once, not in contacts of a plan.
    pub(crate) is_open: bool,
    /// Folder of the store; without one it is in memory.
    pub(crate) place: Option<PathBuf>,
    pub(crate) agent: agent::Config,
}

impl Spec {
    /// Starts the node and registers its endpoint.
    pub(crate) fn start(
        self,
        on: impl FnMut(Time, &mut Agent, Indication) + Send + 'static,
    ) -> Node {
        let mut layer = tcpcl::Config {
            node: node_id(self.number),
            reconnect: Duration::from_millis(20),
            reconnect_max: Duration::from_millis(100),
            ..tcpcl::Config::default()
        };
        let mut agent = self.agent;
        let mut peers = BTreeMap::new();
        for (to, address) in &self.peers {
            let (link, path) = (LinkId(*to as u32), PathId(*to as u32));
            layer.peers.insert(link, Peer { path, server_name: String::new(), node: None });
            peers.insert(path, (*address).into());
            agent.links.insert(LinkRef { layer: 0, link }, node_id(*to));
        }
        let open = layer.peers.keys().filter(|_| self.is_open).copied().collect();
        agent.node = node_id(self.number);
        agent.persistent = self.place.is_some();
        let options = StreamOptions::default();
        let listen = vec![Listening { address: self.listen, options, onward: None }];
        let carrier = Carrier::Streams(StreamConfig { listen, peers, ..StreamConfig::default() });
        let layer = Box::new(Tcpcl::new(layer));
        let layers = vec![LayerConfig { name: "tcpcl".to_owned(), layer, carrier, open }];
        let waker = Waker::new().unwrap();
        let files = match &self.place {
            Some(place) => {
                let index = RecordsIn::Log;
                let config = StoreConfig { index, ..StoreConfig::new(place) };
                FileStore::open(config, &waker).unwrap()
            }
            None => FileStore::in_memory(MEMORY, &waker),
        };
        let seed = self.number as u64;
        let config = NodeConfig { agent, seed, layers, wall: WallClock::Always, on_step: None };
        let node = Node::start(config, files, waker, on).unwrap();
        let endpoint = endpoint(self.number);
        node.handle().ask(move |_, agent| agent.register(&endpoint).unwrap());
        node
    }
}

/// Runs a request on the agent of a node and returns its result.
pub(crate) fn ask<T: Send + 'static>(
    node: &Node,
    request: impl FnOnce(Time, &mut Agent) -> T + Send + 'static,
) -> T {
    let (reply, replied) = std::sync::mpsc::sync_channel(1);
    node.handle().ask(move |now, agent| reply.send(request(now, agent)).unwrap());
    replied.recv().unwrap()
}

/// Waits until a node accepts bundles.
pub(crate) fn wait_until_ready(node: &Node) {
    while !ask(node, |_, agent| agent.is_ready()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Payload of a delivered bundle.
pub(crate) fn payload(content: &Content, place: Option<&Path>) -> Vec<u8> {
    match content {
        Content::Bytes(bytes) => bytes.to_vec(),
        Content::File { name, offset, len } => {
            let spool = place.unwrap().join(".slowlight/spool");
            let all = std::fs::read(spool.join(name.path())).unwrap();
            all[*offset as usize..(*offset + *len) as usize].to_vec()
        }
    }
}

/// Port that the system picked on this address.
pub(crate) fn free_address(ip: [u8; 4]) -> SocketAddr {
    let listener = std::net::TcpListener::bind(SocketAddr::from((ip, 0))).unwrap();
    listener.local_addr().unwrap()
}
