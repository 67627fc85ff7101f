//! Two bundle nodes over LTP, and a link in memory that loses one datagram in ten.
//!
//! `cargo run --package slowlight-bp --example bp_lossy_link`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::time::Duration;

use slowlight_bp::agent::{self, Agent, Entry, Indication, LinkRef, Pattern, Routing, SendRequest};
use slowlight_bp::codec::eid::Eid;
use slowlight_bp::engine::{
    Engine as _, Input, MemoryLink, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    drain,
};
use slowlight_bp::layer::{Command, LinkId};
use slowlight_bp::ltp;
use slowlight_bp::ltpcl::{self, Ltpcl};
use slowlight_bp::node::{Node, Paths};

/// The datagram path to the other node, and the link of the convergence layer over it.
const PATH: PathId = PathId(1);
const LINK: LinkId = LinkId(1);
const LIGHT: Duration = Duration::from_millis(1_300);

const fn endpoint(node: u64, service: u64) -> Eid {
    Eid::Ipn { node, service }
}

/// Node 1 or 2, which reaches the other by LTP, and its store.
fn node(number: u64) -> (Node, MemoryStore) {
    let peer = endpoint(3 - number, 0);
    let route = Entry { to: Pattern::Node(peer.clone()), via: vec![peer.clone()] };
    let config = agent::Config {
        node: endpoint(number, 0),
        clock: Some(800_000_000_000),
        routing: Routing::Static(vec![route]),
        links: [(LinkRef { layer: 0, link: LINK }, peer)].into(),
        ..agent::Config::default()
    };
    let layer = ltpcl::Config {
        ltp: ltp::Config { engine: number, ..ltp::Config::default() },
        peers: [(LINK, ltpcl::Peer { engine: 3 - number, path: PATH })].into(),
        ..ltpcl::Config::default()
    };
    let agent = Agent::new(config, Rng::new(number, "agent"));
    let layer = Ltpcl::new(layer, Rng::new(number, "layer"));
    let paths = Paths { known: [(PATH, 0)].into(), ..Paths::default() };
    let (mut node, mut store) =
        (Node::new(agent, vec![Box::new(layer)], paths), MemoryStore::new());
    node.command(Time::ZERO, 0, Command::Open { link: LINK });
    let info = PathInfo { owlt: Some(LIGHT), ..PathInfo::datagram(1_024) };
    node.handle_input(Time::ZERO, Input::Path(PATH, PathEvent::Up(info)));
    // It reads the records of an earlier run first.
    drain(Time::ZERO, &mut node, &mut store);
    (node, store)
}

fn main() {
    let (mut now, mut delivered) = (Time::ZERO, 0);
    let mut nodes = [node(1), node(2)];
    nodes[1].0.with_agent(now, |agent| agent.register(&endpoint(2, 1))).expect("a free endpoint");
    let request = SendRequest::new(endpoint(2, 1), vec![7; 100]);
    nodes[0].0.with_agent(now, |agent| agent.send(now, request)).expect("a sound request");

    let mut link = MemoryLink::new(LIGHT, 0.1, Rng::new(1, "losses"));
    while now < Time::from_secs(60) {
        for (from, (node, store)) in nodes.iter_mut().enumerate() {
            let drained = drain(now, node, store);
            link.send(now, 1 - from, drained.datagrams);
            for indication in drained.indications {
                println!("{now}: {indication:?}");
                if let Indication::Delivered { delivery, .. } = indication {
                    let confirmed = node.with_agent(now, |agent| agent.confirm(now, delivery));
                    confirmed.expect("it was delivered");
                    delivered += 1;
                }
            }
        }
        let timers = nodes.iter().filter_map(|(node, _)| node.poll_timeout()).map(|it| it.at);
        let Some(next) = timers.chain(link.next()).min() else { break };
        now = next;
        if let Some((to, datagram)) = link.receive(now) {
            nodes[to].0.handle_input(now, Input::Receive(Receive::datagram(PATH, &datagram)));
        }
        nodes.iter_mut().for_each(|(node, _)| node.handle_timeout(now));
    }
    assert_eq!(delivered, 1);
}
