//! Four nodes with a contact plan that does not hold, in real time: contacts of a second are
//! missed, late, interrupted and slower than planned. At last all nodes are connected as planned.
//!
//! `SLOWLIGHT_BEDS` is the number of runs (3), `SLOWLIGHT_BED` the first seed (0).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bp::agent::{self, Agent, Indication, Limits, Routing, SendRequest};
use bp::codec::bp7::BundleId;
use bp::contacts::ContactPlan;
use bp::routes::Router;
use engine::{Rng, Time};
use routing::settings::Settings;
use slowlight_rt::node::Node;
use testing::meetings::{Meeting, Meetings};

use crate::link::Link;
use crate::node::{Spec, ask, endpoint, payload, wait_until_ready};
use crate::number;

const NODES: usize = 4;
/// Contacts begin before this time, in milliseconds; bundles are made until then.
const UNRELIABLE: u64 = 6000;
/// Contacts that take place as planned, in milliseconds.
const RELIABLE: Range<u64> = 7000..3_600_000;
/// Planned rate in bytes per second.
const RATE: u64 = 200_000;
/// Longest wait until each bundle is delivered or deleted, after all nodes are connected.
const PATIENCE: Duration = Duration::from_secs(180);
/// Concurrent runs.
const AT_ONCE: u64 = 3;

fn meetings(rng: &mut Rng) -> Vec<Meeting> {
    let bounds = Meetings {
        first: 500..1100,
        lasts: 200..1200,
        pause: 50..1550,
        interval: 30..230,
        begin_before: UNRELIABLE,
        end_max: RELIABLE.start - 100,
        rate: RATE,
    };
    let mut all = Vec::new();
    for a in 0..NODES {
        for b in a + 1..NODES {
            all.extend(bounds.between([a, b], rng));
            all.push(bounds.kept([a, b], RELIABLE));
        }
    }
    all
}

/// End of a bundle at a node.
enum Event {
    Delivered { at: usize, id: BundleId, bytes: Vec<u8> },
    Deleted { id: BundleId },
}

/// A bundle that was sent.
struct Sent {
    to: usize,
    bytes: Vec<u8>,
}

struct Bed {
    begin: Instant,
    rng: Rng,
    meetings: Vec<Meeting>,
    links: BTreeMap<(usize, usize), Link>,
    nodes: BTreeMap<usize, Node>,
    events: Receiver<Event>,
    sent: BTreeMap<BundleId, Sent>,
    delivered: BTreeMap<BundleId, usize>,
    deleted: BTreeSet<BundleId>,
}

/// Settings of a node whose clock starts `since` after the plan.
fn config(number: usize, meetings: &[Meeting], since: Duration) -> agent::Config {
    let at = |ms| Time::ZERO + Duration::from_millis(ms).saturating_sub(since);
    let contacts = meetings.iter().flat_map(|meeting| meeting.contacts(at));
    let contacts = contacts.filter(|contact| contact.start < contact.end).collect();
    let plan = ContactPlan::new(contacts, &[]).unwrap();
    let router = Router::new(number as u64, plan, Settings::default());
    agent::Config {
        contact_timeout: Duration::from_millis(300),
        routing: Routing::ContactGraph(Box::new(router), Vec::new()),
        limits: Limits { inline: usize::MAX, inline_total: usize::MAX, ..Limits::default() },
        ..agent::Config::default()
    }
}

fn record(number: usize, events: Sender<Event>) -> impl FnMut(Time, &mut Agent, Indication) {
    move |now, agent, indication| match indication {
        Indication::Delivered { delivery, id, payload: content, .. } => {
            let bytes = payload(&content, None);
            agent.confirm(now, delivery).unwrap();
            let _ = events.send(Event::Delivered { at: number, id, bytes });
        }
        Indication::Deleted { id, .. } => {
            let _ = events.send(Event::Deleted { id });
        }
        _ => {}
    }
}

impl Bed {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "test bed");
        let meetings = meetings(&mut rng);
        let begin = Instant::now();
        let (ended, events) = channel();
        let mut nodes: BTreeMap<usize, Node> = BTreeMap::new();
        let mut links = BTreeMap::new();
        // Each node connects to those with greater numbers, which listen already.
        for number in (1..=NODES).rev() {
            let mut peers = BTreeMap::new();
            for (to, node) in &nodes {
                let link = Link::new(node.listening().next().unwrap().1[0]);
                peers.insert(*to, link.address);
                links.insert((number, *to), link);
            }
            let spec = Spec {
                number,
                listen: "127.0.0.1:0".parse().unwrap(),
                peers,
                is_open: false,
                place: None,
                agent: config(number, &meetings, begin.elapsed()),
            };
            let node = spec.start(record(number, ended.clone()));
            wait_until_ready(&node);
            nodes.insert(number, node);
        }
        let (sent, delivered, deleted) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { begin, rng, meetings, links, nodes, events, sent, delivered, deleted }
    }

    fn ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Sets the links as they are now.
    fn set_links(&self) {
        let ms = self.ms();
        for ((a, b), link) in &self.links {
            let mut of = self.meetings.iter().filter(|meeting| meeting.ends == [a - 1, b - 1]);
            link.set_rate(of.find(|meeting| meeting.is_up(ms)).map_or(0, |meeting| meeting.rate));
        }
    }

    fn send(&mut self) {
        let from = 1 + self.rng.below(NODES as u64) as usize;
        let to = 1 + (from + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let mut bytes = vec![0; 50 + self.rng.below(40_000) as usize];
        self.rng.fill(&mut bytes);
        let is_short = self.rng.below(10) < 3;
        let lifetime_ms = if is_short { 200 + self.rng.below(4000) } else { 3_600_000 };
        let request = SendRequest {
            lifetime: Duration::from_millis(lifetime_ms),
            ..SendRequest::new(endpoint(to), bytes.clone())
        };
        let id = ask(&self.nodes[&from], move |now, agent| agent.send(now, request)).unwrap();
        self.sent.insert(id, Sent { to, bytes });
    }

    /// Takes the ends of bundles.
    fn look(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Delivered { at, id, bytes } => {
                    let sent = &self.sent[&id];
                    assert!(at == sent.to && bytes == sent.bytes, "{id:?} at {at}");
                    *self.delivered.entry(id).or_default() += 1;
                }
                Event::Deleted { id } => {
                    self.deleted.insert(id);
                }
            }
        }
    }

    /// Bundles that were neither delivered nor deleted.
    fn open(&self) -> Vec<&BundleId> {
        let ended = |id: &&BundleId| self.delivered.contains_key(id) || self.deleted.contains(id);
        self.sent.keys().filter(|id| !ended(id)).collect()
    }

    /// Bundles at the nodes, as text.
    fn held(&self) -> String {
        let mut text = String::new();
        for (number, node) in &self.nodes {
            let (up, held) =
                ask(node, |_, agent| (agent.nodes_up(), agent.bundles().collect::<Vec<_>>()));
            text += &format!("node {number} reaches {up:?}, holds {held:?}\n");
        }
        text
    }

    fn is_empty(&self) -> bool {
        self.nodes.values().all(|node| ask(node, |_, agent| agent.bundles().next().is_none()))
    }

    /// Lets the time of unreliable contacts pass.
    fn unreliable(&mut self) {
        let mut next = 300;
        while self.ms() < RELIABLE.start {
            self.set_links();
            if self.ms() >= next && next < UNRELIABLE {
                self.send();
                next += self.rng.below(250);
            }
            self.look();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no bundle is left; returns the time that it took.
    fn reliable(&mut self) -> Duration {
        self.set_links();
        let begin = Instant::now();
        loop {
            self.look();
            if self.open().is_empty() && self.is_empty() {
                return begin.elapsed();
            }
            let is_late = begin.elapsed() > PATIENCE;
            assert!(!is_late, "{:?} were not delivered\n{}", self.open(), self.held());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs one test bed; returns its numbers as text.
fn story(seed: u64) -> String {
    let mut bed = Bed::new(seed);
    bed.unreliable();
    let took = bed.reliable();
    bed.look();
    let twice: Vec<_> = bed.delivered.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "delivered twice: {twice:?}");
    let text = format!(
        "bed {seed}: {} bundles, {} delivered, the last {took:.1?} after all were connected",
        bed.sent.len(),
        bed.delivered.len(),
    );
    for node in std::mem::take(&mut bed.nodes).into_values() {
        assert!(!node.has_failed());
        node.stop(Duration::from_secs(1));
    }
    text
}

#[test]
fn each_bundle_is_delivered_or_reported_although_contacts_fail() {
    let (first, count) = (number("SLOWLIGHT_BED", 0), number("SLOWLIGHT_BEDS", 3));
    let mut seeds = (first..first + count).collect::<Vec<_>>();
    while !seeds.is_empty() {
        let rest = seeds.split_off(seeds.len().min(AT_ONCE as usize));
        let runs = seeds.into_iter().map(|seed| (seed, std::thread::spawn(move || story(seed))));
        for (seed, run) in runs.collect::<Vec<_>>() {
            match run.join() {
                Ok(text) => eprintln!("{text}"),
                Err(_) => panic!("seed {seed}, SLOWLIGHT_BED={seed}"),
            }
        }
        seeds = rest;
    }
}
