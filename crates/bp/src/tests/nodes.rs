//! Nodes with layers over streams that are cut at random places, and break.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{
    Effect, Engine as _, Input, PathEffect, PathEvent, PathInfo, Receive, Rng, StreamEffect, Time,
    TxBuf,
};

use super::super::agent::{Agent, Config, LinkRef, SendRequest};
use super::super::layer::{Command, LinkId};
use super::super::node::Paths;
use super::super::tcpcl::{self, Peer, Protocol, Tcpcl, Version3};
use super::place::{Place, behind, path};
use super::world::{chain, endpoint, node};

struct World {
    now: Time,
    places: Vec<Place>,
    /// Bytes in transit, by sender and receiver.
    streams: BTreeMap<(usize, usize), VecDeque<u8>>,
    /// Streams being opened, by the opening node.
    opening: Vec<(usize, usize)>,
    /// Streams closed by one end and not yet at the other.
    closed: Vec<(usize, usize)>,
    rng: Rng,
}

impl World {
    fn new(count: usize, protocol: Protocol, seed: u64) -> Self {
        let now = Time::from_secs(1);
        let places = (0..count).map(|at| {
            let mut layer = tcpcl::Config { node: node(at), protocol, ..tcpcl::Config::default() };
            let mut links = BTreeMap::new();
            let mut paths = Paths { streams: Some(0), ..Paths::default() };
            // Each opens the stream to the next on its right.
            if at + 1 < count {
                let link = LinkId(at as u32 + 1);
                let peer = Peer { path: path(at + 1), server_name: String::new(), node: None };
                layer.peers.insert(link, peer);
                links.insert(LinkRef { layer: 0, link }, node(at + 1));
                paths.known.insert(path(at + 1), 0);
            }
            let config = Config { links, ..chain(count, at, true) };
            Place::new(config, Box::new(Tcpcl::new(layer)), paths, seed)
        });
        let places = places.collect();
        let (streams, opening, closed) = (BTreeMap::new(), Vec::new(), Vec::new());
        let rng = Rng::new(seed, "streams");
        let mut world = Self { now, places, streams, opening, closed, rng };
        for at in 0..count {
            world.places[at].register(now, at);
            let open = Command::Open { link: LinkId(at as u32 + 1) };
            world.places[at].node.command(now, 0, open);
            world.drain(at);
        }
        world
    }

    fn up(&mut self, a: usize, b: usize) {
        for (at, to) in [(a, b), (b, a)] {
            self.streams.insert((at, to), VecDeque::new());
        }
        for (at, to) in [(a, b), (b, a)] {
            let up = PathEvent::Up(PathInfo::stream());
            self.places[at].node.handle_input(self.now, Input::Path(path(to), up));
            self.drain(at);
        }
    }

    fn down(&mut self, a: usize, b: usize) {
        if self.streams.remove(&(a, b)).is_none() {
            return;
        }
        self.streams.remove(&(b, a));
        for (at, to) in [(a, b), (b, a)] {
            self.places[at].node.handle_input(self.now, Input::Path(path(to), PathEvent::Down));
            self.drain(at);
        }
    }

    fn drain(&mut self, at: usize) {
        loop {
            let mut some = false;
            let mut tx = TxBuf::new(1);
            let place = &mut self.places[at];
            if let Some(transmit) = place.node.poll_transmit(self.now, &mut tx) {
                some = true;
                let to = behind(transmit.path);
                if let Some(stream) = self.streams.get_mut(&(at, to)) {
                    stream.extend(tx.bytes());
                }
            }
            some |= place.turn(self.now, |effect| match effect {
                Effect::Path(PathEffect::Open { path }) => self.opening.push((at, behind(path))),
                Effect::Path(PathEffect::Close { path })
                | Effect::Stream(StreamEffect::Reset { path }) => {
                    self.closed.push((at, behind(path)));
                }
                other => panic!("{other:?}"),
            });
            if !some {
                return;
            }
        }
    }

    /// Delivers a piece of a stream; returns whether there was one.
    fn carry(&mut self) -> bool {
        let full = self.streams.iter().filter(|(_, bytes)| !bytes.is_empty());
        let full: Vec<(usize, usize)> = full.map(|(ends, _)| *ends).collect();
        if full.is_empty() {
            return false;
        }
        let (from, to) = full[self.rng.below(full.len() as u64) as usize];
        let stream = self.streams.get_mut(&(from, to)).expect("it is there");
        let most = stream.len().min(20_000) as u64;
        let piece = 1 + self.rng.below(most) as usize;
        let bytes: Vec<u8> = stream.drain(..piece).collect();
        if self.closed.contains(&(to, from)) {
            return true;
        }
        let receive = Receive::datagram(path(from), &bytes);
        self.places[to].node.handle_input(self.now, Input::Receive(receive));
        self.drain(to);
        true
    }

    fn command(&mut self, at: usize, command: Command) {
        self.places[at].node.command(self.now, 0, command);
        self.drain(at);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for (at, to) in std::mem::take(&mut self.closed) {
            self.streams.remove(&(at, to));
            if self.streams.remove(&(to, at)).is_some() {
                let down = Input::Path(path(at), PathEvent::Down);
                self.places[to].node.handle_input(self.now, down);
                self.drain(to);
            }
        }
        for (a, b) in std::mem::take(&mut self.opening) {
            self.up(a, b);
        }
        for at in 0..self.places.len() {
            self.places[at].node.handle_timeout(self.now);
            self.drain(at);
            let after = self.places[at].node.poll_timeout();
            assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
        }
    }
}

#[test]
fn bundles_cross_streams_that_break() {
    for seed in 0..60 {
        story(Protocol::Tcpcl4, seed);
        story(Protocol::Tcpcl3(Version3::default()), seed);
    }
}

#[test]
#[ignore = "thousands of stories, by hand"]
fn bundles_cross_streams_that_break_in_many_runs() {
    for seed in 1_000..6_000 {
        story(Protocol::Tcpcl4, seed);
        story(Protocol::Tcpcl3(Version3::default()), seed);
    }
}

fn story(protocol: Protocol, seed: u64) {
    let count = 2 + (seed % 3) as usize;
    let mut world = World::new(count, protocol, seed);
    let mut lengths = BTreeMap::new();
    for step in 0..300u64 {
        match world.rng.below(40) {
            0 | 1 => {
                let from = world.rng.below(count as u64) as usize;
                let to = (from + 1) % count;
                let len = world.rng.below(60_000) as usize;
                let request = SendRequest::new(endpoint(to), vec![step as u8; len]);
                let now = world.now;
                let send = |agent: &mut Agent| agent.send(now, request);
                let id = world.places[from].node.with_agent(now, send).unwrap();
                lengths.insert(id, (to, len));
                world.drain(from);
            }
            2 => {
                let a = world.rng.below(count as u64 - 1) as usize;
                world.down(a, a + 1);
            }
            3..6 => world.pass(Duration::from_millis(700)),
            6 | 7 => {
                // A contact ends in order, with bundles in transit, or begins again.
                let a = world.rng.below(count as u64 - 1) as usize;
                let link = LinkId(a as u32 + 1);
                let begins = world.rng.below(2) == 0;
                world.command(
                    a,
                    if begins { Command::Open { link } } else { Command::Close { link } },
                );
            }
            _ => {
                world.carry();
            }
        }
    }
    for a in 0..count - 1 {
        world.command(a, Command::Open { link: LinkId(a as u32 + 1) });
    }
    for _ in 0..120 {
        while world.carry() {}
        world.pass(Duration::from_secs(10));
    }
    for (id, (to, len)) in &lengths {
        let taken = world.places[*to].lengths(id);
        assert_eq!(taken, [*len], "seed {seed}: {id:?} to {to} {protocol:?}");
    }
    let held: usize =
        world.places.iter().map(|place| place.node.agent().statistics().bundles).sum();
    assert_eq!(held, 0, "seed {seed}");
    let stored: usize = world.places.iter().map(|place| place.stored).sum();
    assert_eq!(stored, lengths.len());
}
