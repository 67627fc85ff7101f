//! Four nodes with a contact plan that does not hold: contacts are missed, late, interrupted and
//! slower than planned.
//!
//! At last there are contacts as planned between all nodes, by which an oracle that follows the
//! plan delivers every bundle that lives that long.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Rng, Time};
use wire::bp7::{BundleId, Eid};

use super::super::agent::{Config, Indication, Routing, SendRequest, State};
use super::super::contacts::{Contact, ContactPlan};
use super::super::routes::Router;
use super::world::{World, chain, endpoint, node};
use crate::routing::settings::Settings;

const NODES: usize = 4;
/// Contacts begin before this time, in seconds; bundles are made until then.
const UNRELIABLE: u64 = 600;
/// Contacts that take place as planned, in seconds.
const RELIABLE: (u64, u64) = (700, 1500);
/// Planned rate in bytes per second, and bytes of a piece.
const RATE: u64 = 1000;
const PIECE: usize = 100;
/// Longest wait of a bundle although its destination is reached, in seconds.
const WAIT_MAX: u64 = 61;

/// A contact as planned, and as it takes place.
struct Meeting {
    ends: (usize, usize),
    planned: (u64, u64),
    /// Intervals in which the link is up.
    up: Vec<(u64, u64)>,
    rate: u64,
}

impl Meeting {
    fn random(ends: (usize, usize), (start, end): (u64, u64), rng: &mut Rng) -> Self {
        let up = match rng.below(100) {
            0..45 => vec![(start, end)],
            // Missed.
            45..60 => Vec::new(),
            // Late, by more or less than the timeout.
            60..75 => vec![(start + 1 + rng.below(end - start - 1), end)],
            // Interrupted.
            _ => {
                let mut up = Vec::new();
                let mut at = start;
                while at < end {
                    let down = at + 1 + rng.below(15);
                    up.push((at, down.min(end)));
                    at = down + 1 + rng.below(15);
                }
                up
            }
        };
        let rate = if rng.below(100) < 30 { RATE * 2 / 5 } else { RATE };
        Self { ends, planned: (start, end), up, rate }
    }

    fn contacts(&self) -> [Contact; 2] {
        let (a, b) = (self.ends.0 as u64 + 1, self.ends.1 as u64 + 1);
        let (start, end) = (Time::from_secs(self.planned.0), Time::from_secs(self.planned.1));
        [(a, b), (b, a)].map(|(from, to)| Contact {
            from,
            to,
            start,
            end,
            rate_bps: 8 * RATE,
            confidence: 1.0,
        })
    }

    fn is_up(&self, at: u64) -> bool {
        self.up.iter().any(|(start, end)| (*start..*end).contains(&at))
    }
}

fn meetings(rng: &mut Rng) -> Vec<Meeting> {
    let mut all = Vec::new();
    for a in 0..NODES {
        for b in a + 1..NODES {
            let mut at = 10 + rng.below(60);
            while at < UNRELIABLE && rng.below(10) > 0 {
                let end = at + 10 + rng.below(80);
                all.push(Meeting::random((a, b), (at, end), rng));
                at = end + 5 + rng.below(150);
            }
            let up = vec![RELIABLE];
            all.push(Meeting { ends: (a, b), planned: RELIABLE, up, rate: RATE });
        }
    }
    all
}

struct Bed {
    world: World,
    rng: Rng,
    meetings: Vec<Meeting>,
    /// Bundles that were sent, and their destinations.
    sent: BTreeMap<BundleId, usize>,
    /// Since when a bundle waits at a node although its destination is reached, in seconds.
    waits: BTreeMap<(usize, BundleId), u64>,
}

impl Bed {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "test bed");
        let meetings = meetings(&mut rng);
        let contacts = meetings.iter().flat_map(Meeting::contacts).collect();
        let plan = ContactPlan::new(contacts, &[]).unwrap();
        let configs = (0..NODES).map(|at| {
            let router = Router::new(at as u64 + 1, plan.clone(), Settings::default());
            let routing = Routing::ContactGraph(Box::new(router), Vec::new());
            Config { routing, ..chain(NODES, at, false) }
        });
        let mut world = World::new(configs.collect(), seed);
        world.piece = PIECE;
        Self { world, rng, meetings, sent: BTreeMap::new(), waits: BTreeMap::new() }
    }

    fn act(&mut self) {
        while (0..NODES).filter(|n| self.world.act(*n, 0)).count() > 0 {}
    }

    /// Connects and disconnects nodes; carries as many bytes as their links do in a second.
    fn second(&mut self, at: u64) {
        for meeting in &self.meetings {
            let (a, b) = meeting.ends;
            if meeting.is_up(at) {
                self.world.connect(a, b);
            } else if (meeting.planned.0..=meeting.planned.1).contains(&at) {
                self.world.disconnect(a, b);
            }
        }
        self.act();
        let up = self.meetings.iter().filter(|meeting| meeting.is_up(at));
        let up: Vec<_> = up.map(|meeting| (meeting.ends, meeting.rate)).collect();
        for ((a, b), rate) in up {
            for (from, to) in [(a, b), (b, a)] {
                for _ in 0..rate / PIECE as u64 {
                    if self.world.carry_over(from, to) {
                        self.act();
                    }
                }
            }
        }
    }

    fn send(&mut self, at: u64) {
        let from = self.rng.below(NODES as u64) as usize;
        let to = (from + 1 + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let len = 50 + self.rng.below(3000) as usize;
        let lifetime = if self.rng.below(10) < 3 { 20 + self.rng.below(300) } else { 3000 };
        let request = SendRequest {
            lifetime: Duration::from_secs(lifetime),
            ..SendRequest::new(endpoint(to), vec![at as u8; len])
        };
        let now = self.world.now;
        let id = self.world.nodes[from].agent.send(now, request).unwrap();
        self.sent.insert(id, to);
        self.world.drain(from);
        self.act();
    }

    /// Checks that no bundle waits for a link that is up and has nothing to send.
    fn check(&mut self, at: u64) -> Result<(), String> {
        let mut waits = BTreeMap::new();
        for n in 0..NODES {
            let agent = &self.world.nodes[n].agent;
            for bundle in agent.bundles() {
                let number = |eid: &Eid| (0..NODES).find(|m| node(*m) == eid.node());
                let hop = bundle.next_hops.first().and_then(number);
                let is_idle =
                    |to: usize| agent.reaches(&node(to)) && self.world.in_transit(n, to) == 0;
                match bundle.state {
                    State::Queued if hop.is_some_and(is_idle) => {
                        return Err(format!("{at} s: node {n} is idle with {bundle:?}"));
                    }
                    State::Waiting if number(&bundle.destination).is_some_and(is_idle) => {
                        let key = (n, bundle.id);
                        let since = self.waits.get(&key).copied().unwrap_or(at);
                        if at - since > WAIT_MAX {
                            return Err(format!("{at} s: {key:?} waits since {since} s"));
                        }
                        waits.insert(key, since);
                    }
                    State::Storing | State::Delivering | State::Sending => {}
                    State::Queued | State::Waiting => {}
                }
            }
        }
        self.waits = waits;
        Ok(())
    }

    /// Checks that each bundle was delivered once, or deleted with an indication.
    fn judge(&self) -> Result<(), String> {
        for (id, to) in &self.sent {
            let times = self.world.nodes[*to].taken.iter().filter(|(of, _)| of == id).count();
            let is_deleted = |indication: &Indication| matches!(indication, Indication::Deleted { id: of, .. } if of == id);
            let is_reported = self.world.nodes.iter().any(|n| n.indications.iter().any(is_deleted));
            if times > 1 || times == 0 && !is_reported {
                return Err(format!("{id:?} to {to} was delivered {times} times"));
            }
        }
        Ok(())
    }
}

fn story(seed: u64) -> Result<(), String> {
    let mut bed = Bed::new(seed);
    bed.act();
    for at in 10..RELIABLE.1 {
        if at < UNRELIABLE && bed.rng.below(10) == 0 {
            bed.send(at);
        }
        bed.second(at);
        bed.check(at)?;
        bed.world.pass_a_little(Duration::from_secs(1));
        bed.act();
    }
    bed.judge()
}

fn stories(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        story(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn no_bundle_waits_on_a_link_that_is_up() {
    stories(0..50);
}

#[test]
#[ignore = "a thousand stories, by hand"]
fn no_bundle_waits_on_a_link_that_is_up_in_many_runs() {
    stories(0..1_000);
}
