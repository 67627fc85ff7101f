//! Random runs: nodes in a chain over layers of datagrams, whose paths lose, duplicate and delay
//! datagrams, and fail for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{
    Effect, Engine as _, Input, PathEffect, PathEvent, PathInfo, Receive, Rng, Time, TxBuf,
};

use super::super::agent::{Agent, Config, LinkRef, SendRequest};
use super::super::layer::{Command, Layer, LinkId};
use super::super::ltpcl::{self, Ltpcl};
use super::super::node::Paths;
use super::super::normcl::{self, NormCl};
use super::super::saratogacl::{self, SaratogaCl};
use super::super::udpcl::{self, Fragmentation, Udpcl};
use super::place::{Place, behind, path};
use super::world::{chain, endpoint, node};

/// Convergence layer under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Udpcl,
    Ltpcl,
    Saratoga,
    Norm,
}

impl Kind {
    /// Whether it retransmits.
    const fn is_reliable(self) -> bool {
        match self {
            Self::Udpcl => false,
            Self::Ltpcl | Self::Saratoga | Self::Norm => true,
        }
    }

    fn layer(self, at: usize, around: &[usize], seed: u64) -> Box<dyn Layer> {
        match self {
            Self::Udpcl => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let fragmentation = Fragmentation::OfLayer;
                Box::new(Udpcl::new(udpcl::Config {
                    peers,
                    fragmentation,
                    ..udpcl::Config::default()
                }))
            }
            Self::Saratoga => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let patience = Duration::from_secs(20);
                let config =
                    saratogacl::Config { peers, patience, ..saratogacl::Config::default() };
                Box::new(SaratogaCl::new(config, Rng::new(seed, &format!("saratoga {at}"))))
            }
            Self::Norm => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let engine = norm::Config { node: at as u32 + 1, ..norm::Config::default() };
                let patience = Duration::from_secs(20);
                let config = normcl::Config { engine, peers, patience, ..Default::default() };
                Box::new(NormCl::new(config, Rng::new(seed, &format!("norm {at}"))))
            }
            Self::Ltpcl => {
                let peer = |to: &usize| ltpcl::Peer { engine: *to as u64 + 1, path: path(*to) };
                let peers = around.iter().map(|to| (link(*to), peer(to))).collect();
                let form = match seed % 4 {
                    0 => Some(ltpcl::Sharing::Units),
                    2 => Some(ltpcl::Sharing::Bundles),
                    _ => None,
                };
                let sharing = form.map(|form| ltpcl::Aggregation { form, ..Default::default() });
                let limits = ltp::Limits { units: 8000, ..ltp::Limits::default() };
                let engine = at as u64 + 1;
                let aggregation = sharing.is_some().then(ltp::Aggregation::default);
                let ltp = ltp::Config { engine, limits, aggregation, ..ltp::Config::default() };
                let patience = Duration::from_secs(20);
                let config = ltpcl::Config { ltp, peers, patience, ..ltpcl::Config::default() };
                let config = ltpcl::Config { aggregation: sharing, ..config };
                Box::new(Ltpcl::new(config, Rng::new(seed, &format!("ltp {at}"))))
            }
        }
    }
}

fn link(to: usize) -> LinkId {
    LinkId(to as u32)
}

struct World {
    now: Time,
    places: Vec<Place>,
    /// Paths that are up, by the place on their left.
    up: BTreeSet<usize>,
    /// Datagrams in transit: from and to.
    flying: BTreeMap<(Time, u64), (usize, usize, Vec<u8>)>,
    number: u64,
    loss: u64,
    rng: Rng,
}

impl World {
    fn new(kind: Kind, count: usize, loss: u64, seed: u64) -> Self {
        let places = (0..count).map(|at| {
            let around: Vec<usize> = (0..count).filter(|to| at.abs_diff(*to) == 1).collect();
            let layer = kind.layer(at, &around, seed);
            let links = around.iter().map(|to| (LinkRef { layer: 0, link: link(*to) }, node(*to)));
            let known = around.iter().map(|to| (path(*to), 0)).collect();
            let config = Config { links: links.collect(), ..chain(count, at, true) };
            Place::new(config, layer, Paths { known, ..Paths::default() }, seed)
        });
        let mut world = Self {
            now: Time::from_secs(1),
            places: places.collect(),
            up: BTreeSet::new(),
            flying: BTreeMap::new(),
            number: 0,
            loss,
            rng: Rng::new(seed, "paths"),
        };
        for at in 0..count {
            world.places[at].register(world.now, at);
            for to in (0..count).filter(|to| at.abs_diff(*to) == 1) {
                world.places[at].node.command(world.now, 0, Command::Open { link: link(to) });
            }
            world.drain(at);
        }
        for left in 0..count - 1 {
            world.change(left, true);
        }
        world
    }

    /// Takes the path between a place and the next up or down.
    fn change(&mut self, left: usize, is_up: bool) {
        let changes = if is_up { self.up.insert(left) } else { self.up.remove(&left) };
        if !changes {
            return;
        }
        for (at, to) in [(left, left + 1), (left + 1, left)] {
            let rate_bps = Some(10_000_000);
            let owlt = Some(Duration::from_millis(20));
            let event = if is_up {
                PathEvent::Up(PathInfo { rate_bps, owlt, ..PathInfo::datagram(1472) })
            } else {
                PathEvent::Down
            };
            self.places[at].node.handle_input(self.now, Input::Path(path(to), event));
            self.drain(at);
        }
    }

    fn fly(&mut self, from: usize, to: usize, datagram: &[u8]) {
        if self.rng.below(1000) < self.loss {
            return;
        }
        let copies = 1 + u64::from(self.rng.below(20) == 0);
        for _ in 0..copies {
            let late = if self.rng.below(10) == 0 { self.rng.below(100) } else { 0 };
            self.number += 1;
            let at = self.now + Duration::from_millis(20 + late);
            self.flying.insert((at, self.number), (from, to, datagram.to_vec()));
        }
    }

    fn drain(&mut self, at: usize) {
        loop {
            let mut some = false;
            let mut tx = TxBuf::new(4);
            if let Some(transmit) = self.places[at].node.poll_transmit(self.now, &mut tx) {
                some = true;
                let to = behind(transmit.path);
                assert!(self.up.contains(&at.min(to)), "sent on a path that is down");
                let datagrams: Vec<Vec<u8>> = tx.datagrams().map(<[u8]>::to_vec).collect();
                for datagram in datagrams {
                    self.fly(at, to, &datagram);
                }
            }
            some |= self.places[at].turn(self.now, |effect| match effect {
                Effect::Path(
                    PathEffect::PauseRead { .. }
                    | PathEffect::ResumeRead { .. }
                    | PathEffect::Retain { .. }
                    | PathEffect::Release { .. },
                ) => {}
                other => panic!("{other:?}"),
            });
            if !some {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
            let due = self.places.iter().filter_map(|place| place.node.poll_timeout());
            let next = flying.into_iter().chain(due.map(|deadline| deadline.at)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (from, to, datagram) = entry.remove();
                if self.up.contains(&from.min(to)) {
                    let receive = Receive::datagram(path(from), &datagram);
                    self.places[to].node.handle_input(self.now, Input::Receive(receive));
                    self.drain(to);
                }
            }
            for at in 0..self.places.len() {
                self.places[at].node.handle_timeout(self.now);
                self.drain(at);
                let after = self.places[at].node.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
            }
        }
        self.now = until;
    }
}

fn story(kind: Kind, seed: u64) -> Result<(), String> {
    let count = 2 + (seed % 3) as usize;
    // Without retransmissions, bundles only arrive if nothing is lost.
    let calm = !kind.is_reliable() && seed.is_multiple_of(2);
    let loss = if calm { 0 } else { seed % 5 * 40 };
    let mut world = World::new(kind, count, loss, seed);
    let mut sent = BTreeMap::new();
    for step in 0..60u64 {
        match world.rng.below(10) {
            0..3 => {
                let from = world.rng.below(count as u64) as usize;
                let to = (from + 1) % count;
                let longest = [300, 5000, 40_000][world.rng.below(3) as usize];
                let len = world.rng.below(longest) as usize;
                let request = SendRequest::new(endpoint(to), vec![step as u8; len]);
                let now = world.now;
                let send = |agent: &mut Agent| agent.send(now, request);
                let id = world.places[from].node.with_agent(now, send).expect("there is room");
                sent.insert(id, (to, len));
                world.drain(from);
            }
            3 if !calm => {
                let left = world.rng.below(count as u64 - 1) as usize;
                world.change(left, false);
            }
            4 | 5 => {
                let left = world.rng.below(count as u64 - 1) as usize;
                world.change(left, true);
            }
            _ => {
                let ms = world.rng.below(30_000);
                world.pass(Duration::from_millis(ms / (1 + ms % 40)));
            }
        }
    }
    for left in 0..count - 1 {
        world.change(left, true);
    }
    world.pass(Duration::from_secs(3000));
    for (id, (to, len)) in &sent {
        let taken = world.places[*to].lengths(id);
        let may_be_lost = !kind.is_reliable() && !calm;
        if taken != [*len] && !(may_be_lost && taken.is_empty()) {
            return Err(format!("{id:?} of {len} bytes for {to} arrived as {taken:?}"));
        }
    }
    for (at, place) in world.places.iter().enumerate() {
        let held = place.node.agent().statistics().bundles;
        if held > 0 {
            return Err(format!("{at} holds {held} bundles"));
        }
    }
    Ok(())
}

fn stories(kind: Kind, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        story(kind, seed).unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
    }
}

#[test]
fn bundles_cross_datagrams_once() {
    stories(Kind::Udpcl, 0..100);
}

#[test]
fn bundles_cross_ltp_once_with_any_losses() {
    stories(Kind::Ltpcl, 0..100);
}

#[test]
fn bundles_cross_saratoga_once_with_any_losses() {
    stories(Kind::Saratoga, 0..60);
}

#[test]
fn bundles_cross_norm_once_with_any_losses() {
    stories(Kind::Norm, 0..60);
}

#[test]
#[ignore = "thousands of stories, by hand"]
fn bundles_cross_once_in_many_runs() {
    for kind in [Kind::Udpcl, Kind::Ltpcl, Kind::Saratoga, Kind::Norm] {
        stories(kind, 1_000..6_000);
    }
}
