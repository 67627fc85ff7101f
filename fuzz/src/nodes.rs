//! Two engines of one protocol, driven by a script of bytes.
//!
//! Each has a store, and datagrams are in flight between them. The script delivers, drops,
//! duplicates, damages and invents datagrams, advances time, makes storage slow or fail, takes
//! paths down, and kills engines. Whatever it does, an engine replies in bounded work and memory,
//! has no deadline in the past, and never delivers a wrong file unless bytes were damaged or
//! invented.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectError, Engine, FileName, IndexRequest, Input, MemoryStore, PathEvent,
    PathId, PathInfo, Receive, StoreEffect, Ticket, Time, TxBuf,
};
use testing::memory::Counted;

use crate::script::Script;

/// Longer than any timer with these settings, except timers that mean "never".
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Bound on an engine's work without input, with small limits.
const WORK_MAX: usize = 20_000;

/// Maximum timers until two engines come to rest: an engine without peer probes ten times a second
/// for an hour.
const REST_MAX: usize = 100_000;
/// Maximum datagrams in flight to one engine; more are lost, as in any queue.
const QUEUE_MAX: usize = 256;
/// Bound on memory with the limits of the engines, with some margin.
const MEMORY_MAX: usize = 1 << 20;
pub(crate) const MTU: usize = 300;
pub(crate) const PATH: PathId = PathId(0);
const SOURCE: &str = "source";
pub(crate) const DESTINATION: &str = "destination";

/// Protocol-specific part.
pub(crate) trait Protocol {
    type Node: Engine;

    /// Creates an engine for one side; its settings survive a restart.
    fn node(&self, side: usize, restarts: u64) -> Self::Node;

    /// Ends activity that an engine would otherwise continue as long as its user wants.
    fn rest(_node: &mut Self::Node, _now: Time) {}
}

/// Further parts of a protocol needed by `play`.
pub(crate) trait Play: Protocol {
    /// Makes a user's request.
    fn request(&self, node: &mut Self::Node, now: Time, side: usize, script: &mut Script<'_>);

    /// Returns a record that an engine finds at a restart, as from a damaged disk.
    fn record(&self, script: &mut Script<'_>) -> Option<(String, Vec<u8>)>;
}

type Answer = (Ticket, Result<Completion, EffectError>);

struct Side<N> {
    node: Counted<N>,
    store: MemoryStore,
    inbox: VecDeque<Vec<u8>>,
    /// Delayed completions of the store.
    answers: VecDeque<Answer>,
    is_slow: bool,
    fail_next: Option<EffectError>,
    up: bool,
    restarts: u64,
}

pub(crate) struct World<P: Protocol> {
    protocol: P,
    now: Time,
    sides: [Side<P::Node>; 2],
    tx: TxBuf,
    /// Whether every datagram was written by an engine and arrives unchanged.
    honest: bool,
    content: Bytes,
}

/// Returns the name of the file that is sent.
pub(crate) fn source() -> FileName {
    FileName::file(SOURCE).expect("a good name")
}

pub(crate) fn destination() -> FileName {
    FileName::file(DESTINATION).expect("a good name")
}

/// Runs a script.
pub(crate) fn play<P: Play>(protocol: P, script: &mut Script<'_>) {
    let mut world = World::new(protocol);
    while let Some(op) = script.byte() {
        let who = usize::from(op & 1);
        match op >> 1 {
            0..=35 => world.deliver(who),
            36..=43 => world.lose(who),
            44..=51 => world.repeat(who),
            52..=59 => world.damage(who, |datagram| change(datagram, script)),
            60..=67 => world.invent(who, script),
            68..=83 => world.timeout(who),
            84..=89 => world.wait(script.or_zero()),
            90..=103 => world.request(who, script),
            104..=109 => {
                let kind = script.or_zero();
                world.path(who, kind, 20 + usize::from(kind));
            }
            110..=113 => {
                if let Some((key, value)) = world.protocol.record(script) {
                    world.plant(who, key, value);
                }
                world.restart(who);
            }
            114..=119 => world.answer(who, op),
            _ => world.fail_next(who, failure(op >> 1)),
        }
    }
    world.finish();
}

/// Changes a byte of a datagram, or truncates it, or replaces its end.
pub(crate) fn change(datagram: &mut Vec<u8>, script: &mut Script<'_>) {
    let at = usize::from(script.or_zero()) % datagram.len().max(1);
    match script.or_zero() {
        0 => datagram.truncate(at),
        len @ 1..=16 => {
            datagram.truncate(at);
            datagram.extend(script.bytes(usize::from(len)));
        }
        mask => {
            if let Some(place) = datagram.get_mut(at) {
                *place ^= mask;
            }
        }
    }
}

fn failure(kind: u8) -> EffectError {
    match kind % 4 {
        0 => EffectError::NoSpace,
        1 => EffectError::NotFound,
        2 => EffectError::NotAllowed,
        _ => EffectError::Failed("the disk is broken".to_owned()),
    }
}

impl<P: Play> World<P> {
    fn request(&mut self, who: usize, script: &mut Script<'_>) {
        let (protocol, now) = (&self.protocol, self.now);
        self.sides[who].node.charge(|node| protocol.request(node, now, who, script));
        self.drain(who);
    }
}

impl<P: Protocol> World<P> {
    pub(crate) fn new(protocol: P) -> Self {
        let content: Bytes = (0..1500_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let sides = [0, 1].map(|side| {
            let mut store = MemoryStore::new();
            store.set_capacity(Some(1 << 20));
            store.insert(source(), content.clone());
            let (inbox, answers) = (VecDeque::new(), VecDeque::new());
            let (is_slow, fail_next, up) = (false, None, false);
            let node = Counted::new(|| protocol.node(side, 0));
            Side { node, store, inbox, answers, is_slow, fail_next, up, restarts: 0 }
        });
        let (now, tx) = (Time::ZERO, TxBuf::new(4));
        let mut world = Self { protocol, now, sides, tx, honest: true, content };
        for who in 0..2 {
            world.bring_up(who, MTU);
        }
        world
    }

    /// Drains an engine: carries effects out, and sends datagrams to the other.
    fn drain(&mut self, who: usize) {
        for _ in 0..WORK_MAX {
            let side = &mut self.sides[who];
            let mut idle = true;
            while let Some(effect) = side.node.poll_effect() {
                idle = false;
                let Effect::Store(effect) = effect else { continue };
                let ticket = effect.ticket();
                let failure = ticket.and_then(|_| side.fail_next.take());
                let answer = match failure {
                    Some(error) => ticket.map(|ticket| (ticket, Err(error))),
                    None => side.store.execute(effect),
                };
                side.answers.extend(answer);
            }
            if !side.is_slow {
                while let Some((ticket, result)) = side.answers.pop_front() {
                    idle = false;
                    side.node.handle_input(self.now, Input::Done(ticket, result));
                }
            }
            while side.node.poll_indication().is_some() {
                idle = false;
            }
            self.tx.clear();
            if let Some(transmit) = side.node.poll_transmit(self.now, &mut self.tx) {
                idle = false;
                assert_eq!(transmit.len, self.tx.bytes().len());
                let datagrams: Vec<_> = self.tx.datagrams().map(<[u8]>::to_vec).collect();
                let inbox = &mut self.sides[1 - who].inbox;
                inbox.extend(datagrams);
                inbox.truncate(QUEUE_MAX);
            }
            if idle {
                self.check(who);
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Checks the invariants of a drained engine.
    fn check(&self, who: usize) {
        let held = self.sides[who].node.memory();
        assert!(held <= MEMORY_MAX, "{held} bytes held");
        if self.honest {
            self.check_content(who);
        }
    }

    fn receive(&mut self, who: usize, datagram: &[u8]) {
        if self.sides[who].up {
            let receive = Receive::datagram(PATH, datagram);
            self.sides[who].node.handle_input(self.now, Input::Receive(receive));
            self.drain(who);
        }
    }

    pub(crate) fn deliver(&mut self, who: usize) {
        if let Some(datagram) = self.sides[who].inbox.pop_front() {
            self.receive(who, &datagram);
        }
    }

    pub(crate) fn repeat(&mut self, who: usize) {
        if let Some(datagram) = self.sides[who].inbox.front().cloned() {
            self.sides[who].inbox.push_back(datagram.clone());
            self.receive(who, &datagram);
        }
    }

    /// Drops the next datagram.
    pub(crate) fn lose(&mut self, who: usize) {
        self.sides[who].inbox.pop_front();
    }

    /// Changes the next datagram before it arrives.
    pub(crate) fn damage(&mut self, who: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut datagram) = self.sides[who].inbox.pop_front() else { return };
        change(&mut datagram);
        self.honest = false;
        self.receive(who, &datagram);
    }

    pub(crate) fn invent(&mut self, who: usize, script: &mut Script<'_>) {
        let len = usize::from(script.or_zero());
        let datagram = script.bytes(len);
        self.honest = false;
        self.receive(who, datagram);
    }

    /// Calls the engine at its deadline.
    pub(crate) fn timeout(&mut self, who: usize) {
        let deadline = self.sides[who].node.poll_timeout();
        // Activity in progress must not seem to have taken years: timers would follow that.
        if let Some(deadline) = deadline.filter(|deadline| deadline.at <= self.now + YEAR) {
            self.now = self.now.max(deadline.at);
            self.sides[who].node.handle_timeout(self.now);
            self.drain(who);
            let next = self.sides[who].node.poll_timeout();
            assert!(next.is_none_or(|next| next.at > self.now), "{next:?} at {}", self.now);
        }
    }

    /// Advances time; the engines are called late or before their deadline.
    pub(crate) fn wait(&mut self, tenths: u8) {
        self.now += Duration::from_millis(100) * u32::from(tenths);
        for who in 0..2 {
            self.sides[who].node.handle_timeout(self.now);
            self.drain(who);
        }
    }

    /// Makes a user's request.
    pub(crate) fn make_request(&mut self, who: usize, request: impl FnOnce(&mut P::Node, Time)) {
        self.sides[who].node.charge(|node| request(node, self.now));
        self.drain(who);
    }

    fn bring_up(&mut self, who: usize, mtu: usize) {
        self.sides[who].up = true;
        self.event(who, PathEvent::Up(PathInfo::datagram(mtu)));
    }

    fn event(&mut self, who: usize, event: PathEvent) {
        self.sides[who].node.handle_input(self.now, Input::Path(PATH, event));
        self.drain(who);
    }

    pub(crate) fn path(&mut self, who: usize, kind: u8, mtu: usize) {
        let is_up = self.sides[who].up;
        match kind % 6 {
            0 => self.bring_up(who, mtu),
            1 if is_up => self.event(who, PathEvent::Blocked),
            2 if is_up => self.event(who, PathEvent::Writable),
            4 => self.event(who, PathEvent::ReturnDown),
            5 => self.event(who, PathEvent::ReturnUp),
            _ => {
                self.sides[who].up = false;
                self.event(who, PathEvent::Down);
            }
        }
    }

    /// Stores a record where an engine finds it at a restart.
    pub(crate) fn plant(&mut self, who: usize, key: String, value: Vec<u8>) {
        let request = IndexRequest::Put { key, value: value.into() };
        self.sides[who].store.execute(StoreEffect::Index { ticket: Ticket(0), request });
        // Its claims differ from the content of the store.
        self.honest = false;
    }

    /// Content of the file that is sent.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Stores a file, changed from the one that is sent, where an engine finds it at a restart.
    pub(crate) fn fill(&mut self, who: usize, name: FileName, change: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.content.to_vec();
        change(&mut content);
        self.sides[who].store.insert(name, content);
        self.honest = false;
    }

    /// Checks the delivered file, if there is one, although bytes were damaged.
    pub(crate) fn check_content(&self, who: usize) {
        if let Some(found) = self.sides[who].store.get(&destination()) {
            assert!(found == self.content, "a wrong file of {} bytes", found.len());
        }
    }

    /// Kills and restarts the process; the store stays.
    pub(crate) fn restart(&mut self, who: usize) {
        let side = &mut self.sides[who];
        side.restarts += 1;
        side.store.close_all();
        side.store.insert(source(), self.content.clone());
        side.answers.clear();
        (side.is_slow, side.fail_next) = (false, None);
        side.node = Counted::new(|| self.protocol.node(who, side.restarts));
        self.bring_up(who, MTU);
    }

    /// Starts to delay the store, completes one effect, or all.
    fn answer(&mut self, who: usize, op: u8) {
        let side = &mut self.sides[who];
        match (op >> 1) % 3 {
            0 => side.is_slow = true,
            1 => {
                if let Some((ticket, result)) = side.answers.pop_front() {
                    side.node.handle_input(self.now, Input::Done(ticket, result));
                }
            }
            _ => side.is_slow = false,
        }
        self.drain(who);
    }

    /// Makes the next effect fail.
    pub(crate) fn fail_next(&mut self, who: usize, error: EffectError) {
        self.sides[who].fail_next = Some(error);
    }

    /// Without further losses, both engines come to rest.
    pub(crate) fn finish(&mut self) {
        for who in 0..2 {
            self.sides[who].is_slow = false;
            self.bring_up(who, MTU);
            self.sides[who].node.charge(|node| P::rest(node, self.now));
            self.drain(who);
        }
        for _ in 0..REST_MAX {
            let before = self.now;
            while self.sides.iter().any(|side| !side.inbox.is_empty()) {
                self.deliver(0);
                self.deliver(1);
            }
            let next = |who: usize| self.sides[who].node.poll_timeout().map(|next| next.at);
            let Some(at) = [next(0), next(1)].into_iter().flatten().min() else { return };
            if at > before + YEAR {
                return;
            }
            let who = usize::from(next(0) != Some(at));
            self.timeout(who);
        }
        let waits = [0, 1].map(|who| self.sides[who].node.poll_timeout());
        panic!("the engines do not come to rest at {}: {waits:?}", self.now);
    }
}
