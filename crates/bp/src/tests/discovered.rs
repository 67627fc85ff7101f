//! Bundles to and from a node that announced itself.

use std::collections::BTreeMap;

use super::super::agent::{Agent, Config, LinkRef, Routing, SendRequest, State};
use super::super::layer::{Command, Event, LinkId, Neighbour, Outcome, Tag};
use super::attacks::{bytes_of_seven, seven};
use super::world::{World, chain};
use crate::codec::bp7::Eid;

const FOUND: LinkId = LinkId(70);

/// Node 2 of 3, with the found node 9.
struct Host {
    world: World,
    links: BTreeMap<LinkRef, Eid>,
    sent: Vec<(LinkId, Tag)>,
}

impl Host {
    fn new(config: Config) -> Self {
        let links = config.links.clone();
        Self { world: World::alone(config), links, sent: Vec::new() }
    }

    fn agent(&mut self) -> &mut Agent {
        &mut self.world.nodes[0].agent
    }

    fn find(&mut self, is_there: bool) {
        let at = LinkRef { layer: 0, link: FOUND };
        let (now, mut links) = (self.world.now, self.links.clone());
        if is_there {
            links.insert(at, Eid::ipn(9, 0));
        }
        self.agent().set_links(now, links, is_there.then_some(at).into_iter().collect());
        self.settle();
    }

    fn settle(&mut self) {
        for command in self.world.commands(0) {
            if let Command::Send { link, tag, .. } = command {
                self.sent.push((link, tag));
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.world.event(0, event);
        self.settle();
    }

    fn up(&mut self, node: Option<Eid>) {
        let neighbour = Neighbour {
            node,
            is_authenticated: false,
            bundle_max: 1 << 20,
            window: 1,
            window_bytes: 0,
        };
        self.event(Event::Up { link: FOUND, neighbour });
    }

    fn send(&mut self, to: u32) {
        let request = SendRequest::new(Eid::ipn(to, 5), vec![7; 100]);
        let now = self.world.now;
        self.agent().send(now, request).unwrap();
        self.settle();
    }

    /// Links over which bundles were sent since the last call; all are acknowledged.
    fn sent(&mut self) -> Vec<LinkId> {
        let mut links = Vec::new();
        while !self.sent.is_empty() {
            for (link, tag) in std::mem::take(&mut self.sent) {
                links.push(link);
                self.event(Event::Sent { link, tag, outcome: Outcome::Acknowledged });
            }
        }
        links
    }

    fn states(&self) -> Vec<State> {
        self.world.nodes[0].agent.bundles().map(|bundle| bundle.state).collect()
    }
}

#[test]
fn bundles_to_it_take_its_link_while_it_is_there() {
    let mut host = Host::new(chain(3, 1, false));
    host.send(9);
    host.find(true);
    assert_eq!(host.sent(), []);
    host.up(None);
    assert_eq!(host.sent(), [FOUND]);
    host.send(9);
    assert_eq!(host.sent(), [FOUND]);
    // Bundles for others do not take it.
    host.send(8);
    assert_eq!(host.sent(), []);
    // One is in transit, and one in the queue. When the node is lost, the latter waits for a route
    // at once, and the other when the session has ended.
    host.send(9);
    host.send(9);
    assert_eq!(host.states(), [State::Waiting, State::Sending, State::Queued]);
    host.find(false);
    assert_eq!(host.states(), [State::Waiting, State::Sending, State::Waiting]);
    let tag = host.sent.pop().unwrap().1;
    host.event(Event::Sent { link: FOUND, tag, outcome: Outcome::Failed { acknowledged: 0 } });
    host.event(Event::Down { link: FOUND, why: "the session ended" });
    assert_eq!(host.states(), [State::Waiting; 3]);
    host.find(true);
    host.up(None);
    assert_eq!(host.sent(), [FOUND; 2]);
}

#[test]
fn a_broken_link_frees_its_queue() {
    let mut host = Host::new(chain(3, 1, false));
    host.find(true);
    host.up(None);
    host.send(9);
    host.send(9);
    let tag = host.sent.pop().unwrap().1;
    host.event(Event::Sent { link: FOUND, tag, outcome: Outcome::Failed { acknowledged: 0 } });
    host.event(Event::Down { link: FOUND, why: "the stream broke" });
    assert_eq!(host.states(), [State::Waiting; 2]);
}

#[test]
fn its_bundles_are_those_of_a_stranger() {
    for counts in [false, true] {
        let mut config = chain(3, 1, false);
        // No room for strangers.
        config.limits.strangers_share = 0;
        config.limits.bundles = 100;
        let mut host = Host::new(config);
        host.find(true);
        host.up(counts.then(|| Eid::ipn(9, 0)));
        for number in 0..3 {
            let source = Eid::ipn(1000 + number, 1);
            let bytes = bytes_of_seven(seven(source, Eid::ipn(3, 5)), b"hello");
            host.world.hand_in(0, FOUND.0 as usize, &bytes);
            host.settle();
        }
        assert_eq!(host.agent().bundles().count(), if counts { 3 } else { 0 });
    }
}

#[test]
fn copies_for_others_do_not_go_to_it() {
    for (counts, expected) in [(false, 1), (true, 2)] {
        let mut host = Host::new(Config { routing: Routing::Epidemic, ..chain(3, 1, false) });
        host.find(true);
        host.send(9);
        host.send(8);
        host.up(counts.then(|| Eid::ipn(9, 0)));
        assert_eq!(host.sent(), vec![FOUND; expected]);
        // An unproved destination does not end the search for the true one.
        assert_eq!(host.agent().bundles().count(), 3 - expected, "{counts}");
    }
}

#[test]
fn routes_and_neighbours_come_first() {
    let mut host = Host::new(chain(3, 1, false));
    host.find(true);
    host.up(None);
    // Node 3 is a neighbour, whose link is down.
    host.send(3);
    assert_eq!(host.sent(), []);
}
