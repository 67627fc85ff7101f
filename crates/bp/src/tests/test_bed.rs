//! Four nodes with a contact plan that does not hold: contacts are missed, late, interrupted and
//! slower than planned.
//!
//! At last there are contacts as planned around a ring of the nodes, by which an oracle that
//! follows the plan delivers every bundle that lives that long. For bundles with shorter
//! lifetimes, the oracle uses the contacts that take place: nearly all that it delivers alone
//! arrive. Each other bundle is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Range};
use std::time::Duration;

use engine::{Rng, Time};
use routing::settings::Settings;
use testing::meetings::{Meeting, Meetings};

use super::super::agent::{Config, Indication, Reports, Routing, SendRequest, State};
use super::super::contacts::ContactPlan;
use super::super::routes::Router;
use super::world::{World, chain, endpoint, node};
use crate::codec::bp7::{BundleFlags, BundleId, Eid};

const NODES: usize = 4;
/// Contacts begin before this time, in seconds; bundles are made until then.
const UNRELIABLE: u64 = 600;
/// Contacts that take place as planned, in seconds.
const RELIABLE: Range<u64> = 700..1500;
/// Lifetime in seconds that outlives the test bed.
const LONG: u64 = 3000;
/// Planned rate in bytes per second, and bytes of a piece.
const RATE: u64 = 1000;
const PIECE: usize = 200;
/// Longest wait of a bundle although its destination is reached, or although contacts around the
/// ring lead there, in seconds.
const WAIT_MAX: u64 = 61;
/// Part of the bundles with short lifetimes that arrive, of those that an oracle delivers: without
/// new routes after missed contacts it is 0.927, with them 0.936.
const ARRIVE_MIN: f64 = 0.93;

fn meetings(rng: &mut Rng) -> Vec<Meeting> {
    let bounds = Meetings {
        first: 10..70,
        lasts: 10..90,
        pause: 5..155,
        interval: 1..16,
        begin_before: UNRELIABLE,
        end_max: RELIABLE.start,
        rate: RATE,
    };
    let mut all = Vec::new();
    // The ring has all pairs but two without a common node.
    let across = 1 + rng.below(3) as usize;
    for a in 0..NODES {
        for b in a + 1..NODES {
            all.extend(bounds.between([a, b], rng));
            if [a, b].contains(&0) != [a, b].contains(&across) {
                all.push(bounds.kept([a, b], RELIABLE));
            }
        }
    }
    all
}

/// A bundle that was sent.
struct Sent {
    from: usize,
    to: usize,
    len: usize,
    at: u64,
    expires: u64,
}

impl Sent {
    /// Whether the bundle is delivered in time if nothing else is sent, and the contacts that take
    /// place are known.
    fn is_possible(&self, meetings: &[Meeting]) -> bool {
        let mut times = [u64::MAX; NODES];
        times[self.from] = self.at;
        // A link carries whole pieces: the first and the last have no data, some have the head.
        let pieces = self.len.div_ceil(PIECE) as u64 + 3;
        for _ in 1..NODES {
            for meeting in meetings {
                let seconds = pieces.div_ceil(meeting.rate / PIECE as u64);
                let [a, b] = meeting.ends;
                for up in &meeting.up {
                    for (from, to) in [(a, b), (b, a)] {
                        let done = times[from].max(up.start).saturating_add(seconds);
                        if done <= up.end {
                            times[to] = times[to].min(done);
                        }
                    }
                }
            }
        }
        times[self.to] <= self.expires
    }
}

/// Bundles with short lifetimes.
#[derive(Debug, Default)]
struct Numbers {
    sent: u64,
    /// Bundles that an oracle delivers.
    possible: u64,
    /// Bundles among them that arrived.
    delivered: u64,
}

impl AddAssign for Numbers {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.possible += other.possible;
        self.delivered += other.delivered;
    }
}

struct Bed {
    world: World,
    rng: Rng,
    meetings: Vec<Meeting>,
    sent: BTreeMap<BundleId, Sent>,
    /// Since when a bundle waits at a node although there is a way, in seconds.
    waits: BTreeMap<(usize, BundleId), u64>,
}

impl Bed {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "test bed");
        let meetings = meetings(&mut rng);
        let contacts = meetings.iter().flat_map(|meeting| meeting.contacts(Time::from_secs));
        let plan = ContactPlan::new(contacts.collect(), &[]).unwrap();
        let configs = (0..NODES).map(|at| {
            let router = Router::new(at as u64 + 1, plan.clone(), Settings::default());
            let routing = Routing::ContactGraph(Box::new(router), Vec::new());
            let reports = Reports { deletion: true, ..Reports::default() };
            Config { routing, reports, ..chain(NODES, at, false) }
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
            let [a, b] = meeting.ends;
            if meeting.is_up(at) {
                self.world.connect(a, b);
            } else if (meeting.planned.start..=meeting.planned.end).contains(&at) {
                // Sometimes bundles arrive whose acknowledgements are lost.
                if self.rng.below(4) == 0 {
                    for (from, to) in [(a, b), (b, a)] {
                        while self.world.carry_over(from, to) {}
                    }
                }
                self.world.disconnect(a, b);
            }
        }
        self.act();
        let up = self.meetings.iter().filter(|meeting| meeting.is_up(at));
        let up: Vec<_> = up.map(|meeting| (meeting.ends, meeting.rate)).collect();
        for ([a, b], rate) in up {
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
        let lifetime = if self.rng.below(10) < 3 { 20 + self.rng.below(300) } else { LONG };
        let request = SendRequest {
            lifetime: Duration::from_secs(lifetime),
            flags: BundleFlags::REPORT_DELETION,
            ..SendRequest::new(endpoint(to), vec![at as u8; len])
        };
        let now = self.world.now;
        let id = self.world.nodes[from].agent.send(now, request).unwrap();
        self.sent.insert(id, Sent { from, to, len, at, expires: at + lifetime });
        self.world.drain(from);
        self.act();
    }

    /// Whether no node holds a bundle.
    fn is_over(&self) -> bool {
        self.world.nodes.iter().all(|node| node.agent.bundles().next().is_none())
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
                    State::Waiting
                        if at > RELIABLE.start
                            || number(&bundle.destination).is_some_and(is_idle) =>
                    {
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

    /// Checks that each bundle was delivered once, or deleted with an indication, of which its
    /// source has a report, unless that has expired, too.
    fn judge(&self) -> Result<Numbers, String> {
        let nodes = &self.world.nodes;
        let deleted = nodes.iter().flat_map(|node| &node.indications).filter_map(|indication| {
            if let Indication::Deleted { id, .. } = indication { Some(id) } else { None }
        });
        let deleted: BTreeSet<&BundleId> = deleted.collect();
        let lost_reports = deleted.iter().filter(|id| !self.sent.contains_key(id)).count();
        let (mut numbers, mut unreported) = (Numbers::default(), 0);
        for (id, sent) in &self.sent {
            let times = nodes[sent.to].taken.iter().filter(|(of, _)| of == id).count();
            if times > 1 || times == 0 && !deleted.contains(id) {
                return Err(format!("{id:?} to {} was delivered {times} times", sent.to));
            }
            let mut reports = nodes[sent.from].reports();
            if times == 0 && !reports.any(|(_, report)| report.creation == id.creation) {
                unreported += 1;
            }
            if sent.expires < sent.at + LONG {
                numbers.sent += 1;
                if sent.is_possible(&self.meetings) {
                    numbers.possible += 1;
                    numbers.delivered += times as u64;
                }
            }
        }
        if unreported > lost_reports {
            return Err(format!("{unreported} are not reported, {lost_reports} reports expired"));
        }
        Ok(numbers)
    }
}

fn story(seed: u64) -> Result<Numbers, String> {
    let mut bed = Bed::new(seed);
    bed.act();
    for at in 10..RELIABLE.end {
        if at < UNRELIABLE && bed.rng.below(10) == 0 {
            bed.send(at);
        }
        bed.second(at);
        bed.check(at)?;
        bed.world.pass_a_little(Duration::from_secs(1));
        bed.act();
        if at > RELIABLE.start && bed.is_over() {
            break;
        }
    }
    bed.judge()
}

fn stories(seeds: Range<u64>) {
    let mut all = Numbers::default();
    for seed in seeds {
        all += story(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(all.delivered as f64 > ARRIVE_MIN * all.possible as f64, "{all:?}");
}

#[test]
fn no_bundle_waits_on_a_link_that_is_up() {
    stories(0..1000);
}

#[test]
#[ignore = "thousands of stories, at night"]
fn no_bundle_waits_on_a_link_that_is_up_in_very_many_runs() {
    stories(1000..10_000);
}
