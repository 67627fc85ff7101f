//! Nodes in a chain, each with one layer, over paths of datagrams or streams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{
    Effect, Engine as _, Input, MemoryStore, PathEffect, PathEvent, PathId, PathInfo, Receive, Rng,
    StreamEffect, Time, TxBuf,
};

use super::super::agent::{Agent, Config, Indication, LinkRef, SendRequest};
use super::super::layer::{Command, Layer, LinkId};
use super::super::node::{Node, Paths};
use super::world::{chain, endpoint, node};
use crate::codec::bp7::BundleId;

/// Time from a place to the next.
const DELAY: Duration = Duration::from_millis(20);

/// Paths between the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// Datagrams, which are lost, doubled and late. The loss is in thousandths.
    Datagrams { loss: u64 },
    /// Streams in pieces of random lengths. A place opens the stream to the next.
    Streams,
}

/// Path to another place.
pub(super) fn path(to: usize) -> PathId {
    PathId(100 + to as u32)
}

/// Place at the end of a path.
fn behind(path: PathId) -> usize {
    (path.0 - 100) as usize
}

/// Link to another place.
pub(super) fn link(to: usize) -> LinkId {
    LinkId(to as u32)
}

/// A node with a store in memory and a user that takes every delivery.
pub(super) struct Place {
    pub(super) node: Node,
    store: MemoryStore,
    /// Bundles taken by its user, and their payload lengths.
    taken: Vec<(BundleId, usize)>,
    /// Number of the user's bundles that were stored.
    pub(super) stored: usize,
}

impl Place {
    /// Executes pending effects and indications. Returns the effects on paths, or `None` if nothing
    /// was pending.
    fn turn(&mut self, now: Time) -> Option<Vec<Effect>> {
        let mut effects = engine::execute_effects(now, &mut self.node, &mut self.store);
        let mut offered = Vec::new();
        while let Some(indication) = self.node.poll_indication() {
            effects.get_or_insert_default();
            match indication {
                Indication::Delivered { delivery, id, payload, .. } => {
                    offered.push((delivery, id, payload.len() as usize));
                }
                Indication::Stored { .. } => self.stored += 1,
                _ => {}
            }
        }
        for (delivery, id, len) in offered {
            let confirm = |agent: &mut Agent| agent.confirm(now, delivery);
            self.node.with_agent(now, confirm).expect("it was handed over");
            self.taken.push((id, len));
        }
        effects
    }

    /// Payload lengths of a bundle, for each time it was taken.
    pub(super) fn lengths(&self, id: &BundleId) -> Vec<usize> {
        self.taken.iter().filter(|(of, _)| of == id).map(|(_, len)| *len).collect()
    }
}

enum Event {
    Datagram {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// The next piece of a stream arrives.
    Piece {
        from: usize,
        to: usize,
    },
    Opened {
        left: usize,
    },
    Closed {
        by: usize,
        to: usize,
    },
}

pub(super) struct World {
    now: Time,
    pub(super) places: Vec<Place>,
    medium: Medium,
    /// Ends of paths that are up: the place there, and the other.
    up: BTreeSet<(usize, usize)>,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    /// Bytes in transit, by sender and receiver.
    streams: BTreeMap<(usize, usize), VecDeque<u8>>,
    pub(super) rng: Rng,
}

impl World {
    /// A chain of nodes; `layer` makes the layer of each for the places that it reaches.
    pub(super) fn new(
        count: usize,
        medium: Medium,
        seed: u64,
        layer: impl Fn(usize, &[usize]) -> Box<dyn Layer>,
    ) -> Self {
        let is_reached = |at: usize, to: usize| match medium {
            Medium::Datagrams { .. } => at.abs_diff(to) == 1,
            Medium::Streams => to == at + 1,
        };
        let around = |at| (0..count).filter(|to| is_reached(at, *to)).collect::<Vec<_>>();
        let places = (0..count).map(|at| {
            let around = around(at);
            let links = around.iter().map(|to| (LinkRef { layer: 0, link: link(*to) }, node(*to)));
            let config = Config { links: links.collect(), ..chain(count, at, true) };
            let agent = Agent::new(config, Rng::new(seed, "agent"));
            let known = around.iter().map(|to| (path(*to), 0)).collect();
            let paths = Paths { known, streams: Some(0), ..Paths::default() };
            let node = Node::new(agent, vec![layer(at, &around)], paths);
            Place { node, store: MemoryStore::new(), taken: Vec::new(), stored: 0 }
        });
        let mut world = Self {
            now: Time::from_secs(1),
            places: places.collect(),
            medium,
            up: BTreeSet::new(),
            events: BTreeMap::new(),
            number: 0,
            streams: BTreeMap::new(),
            rng: Rng::new(seed, "paths"),
        };
        for at in 0..count {
            let register = |agent: &mut Agent| agent.register(&endpoint(at));
            let registered = world.places[at].node.with_agent(world.now, register);
            registered.expect("it is nobody's");
            world.drain(at);
            for to in around(at) {
                world.command(at, Command::Open { link: link(to) });
            }
        }
        (0..count - 1).for_each(|left| world.restore(left));
        world
    }

    /// Passes a command to the layer of a place.
    pub(super) fn command(&mut self, at: usize, command: Command) {
        self.places[at].node.command(self.now, 0, command);
        self.drain(at);
    }

    /// Sends a bundle.
    pub(super) fn send(&mut self, from: usize, request: SendRequest) -> BundleId {
        let now = self.now;
        let send = |agent: &mut Agent| agent.send(now, request);
        let id = self.places[from].node.with_agent(now, send).expect("there is room");
        self.drain(from);
        id
    }

    /// Lets a place reach the next.
    pub(super) fn restore(&mut self, left: usize) {
        match self.medium {
            Medium::Datagrams { .. } => self.up(left),
            Medium::Streams => self.command(left, Command::Open { link: link(left + 1) }),
        }
    }

    /// Brings the path between a place and the next up.
    fn up(&mut self, left: usize) {
        for (at, to) in [(left, left + 1), (left + 1, left)] {
            self.set_up(at, to, true);
        }
    }

    /// Takes the path between a place and the next down.
    pub(super) fn down(&mut self, left: usize) {
        for (at, to) in [(left, left + 1), (left + 1, left)] {
            self.set_up(at, to, false);
        }
    }

    fn set_up(&mut self, at: usize, to: usize, is_up: bool) {
        let ends = (at, to);
        let changes = if is_up { self.up.insert(ends) } else { self.up.remove(&ends) };
        if !changes {
            return;
        }
        self.streams.remove(&ends);
        let event = match self.medium {
            _ if !is_up => PathEvent::Down,
            Medium::Streams => PathEvent::Up(PathInfo::stream()),
            Medium::Datagrams { .. } => PathEvent::Up(PathInfo {
                rate_bps: Some(10_000_000),
                owlt: Some(DELAY),
                ..PathInfo::datagram(1472)
            }),
        };
        self.places[at].node.handle_input(self.now, Input::Path(path(to), event));
        self.drain(at);
    }

    fn after(&mut self, time: Duration, event: Event) {
        self.number += 1;
        self.events.insert((self.now + time, self.number), event);
    }

    fn transmit(&mut self, from: usize, to: usize, bytes: &[u8]) {
        assert!(self.up.contains(&(from, to)), "sent on a path that is down");
        match self.medium {
            Medium::Streams => {
                let stream = self.streams.entry((from, to)).or_default();
                let is_idle = stream.is_empty();
                stream.extend(bytes);
                if is_idle {
                    self.after(DELAY, Event::Piece { from, to });
                }
            }
            Medium::Datagrams { loss } if self.rng.below(1000) < loss => {}
            Medium::Datagrams { .. } => {
                for _ in 0..1 + u64::from(self.rng.below(20) == 0) {
                    let late = if self.rng.below(10) == 0 { self.rng.below(100) } else { 0 };
                    let event = Event::Datagram { from, to, bytes: bytes.to_vec() };
                    self.after(DELAY + Duration::from_millis(late), event);
                }
            }
        }
    }

    fn drain(&mut self, at: usize) {
        loop {
            let mut tx = TxBuf::new(4);
            let transmit = self.places[at].node.poll_transmit(self.now, &mut tx);
            if let Some(transmit) = &transmit {
                let to = behind(transmit.path);
                tx.datagrams().for_each(|datagram| self.transmit(at, to, datagram));
            }
            let effects = self.places[at].turn(self.now);
            if transmit.is_none() && effects.is_none() {
                return;
            }
            effects.into_iter().flatten().for_each(|effect| self.on_effect(at, effect));
        }
    }

    fn on_effect(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Path(PathEffect::Open { path }) => {
                self.after(DELAY, Event::Opened { left: at.min(behind(path)) });
            }
            Effect::Path(PathEffect::Close { path })
            | Effect::Stream(StreamEffect::Reset { path }) => {
                let to = behind(path);
                self.up.remove(&(at, to));
                self.streams.remove(&(to, at));
                let late = Duration::from_millis(self.rng.below(700));
                self.after(late, Event::Closed { by: at, to });
            }
            Effect::Path(
                PathEffect::PauseRead { .. }
                | PathEffect::ResumeRead { .. }
                | PathEffect::Retain { .. }
                | PathEffect::Release { .. },
            ) => {}
            other => panic!("{other:?}"),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Datagram { from, to, bytes } => self.receive(from, to, &bytes),
            Event::Piece { from, to } => self.carry(from, to),
            Event::Opened { left } => {
                // The other end may not know that the last stream was closed.
                self.down(left);
                self.up(left);
            }
            Event::Closed { by, to } if self.up.contains(&(by, to)) => {}
            Event::Closed { by, to } => self.set_up(to, by, false),
        }
    }

    fn receive(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if self.up.contains(&(to, from)) {
            let receive = Receive::datagram(path(from), bytes);
            self.places[to].node.handle_input(self.now, Input::Receive(receive));
            self.drain(to);
        }
    }

    /// Delivers a piece of a stream.
    fn carry(&mut self, from: usize, to: usize) {
        let stream = self.streams.get_mut(&(from, to)).filter(|stream| !stream.is_empty());
        let Some(stream) = stream else { return };
        let most = stream.len().min(20_000) as u64;
        let piece = 1 + self.rng.below(most) as usize;
        let bytes: Vec<u8> = stream.drain(..piece).collect();
        if !stream.is_empty() {
            let wait = Duration::from_millis(self.rng.below(1000));
            self.after(wait, Event::Piece { from, to });
        }
        self.receive(from, to, &bytes);
    }

    /// Advances time, and executes all events until then.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let first = self.events.first_key_value().map(|((at, _), _)| *at);
            let due = self.places.iter().filter_map(|place| place.node.poll_timeout());
            let next = first.into_iter().chain(due.map(|deadline| deadline.at)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.events.first_entry().filter(|e| e.key().0 <= self.now) {
                let event = entry.remove();
                self.on_event(event);
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
