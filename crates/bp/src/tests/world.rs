//! Agents, their stores, and layers without a protocol: bundles cross in pieces.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Effect, EffectError, Engine as _, FileName, IndexRequest, Input, MemoryStore, OpenMode, Rng,
    StoreEffect, Time,
};

use super::super::agent::{Agent, Config, DeliveryId, Entry, Indication, Pattern, Routing};
use super::super::layer::{
    Command, Content, Event, Identity, LinkId, Neighbour, Outcome, Outgoing, Refusal, Tag,
    TransferId,
};
use crate::codec::bp7::{BundleId, Eid, StatusReport};

/// Bytes of a written record.
const RECORD: u64 = 100;

/// Store that loses unsynced data in a crash.
#[derive(Debug, Default)]
pub(super) struct Disk {
    live: MemoryStore,
    /// Synced data.
    safe: BTreeMap<FileName, Bytes>,
    records: BTreeMap<String, Bytes>,
    pub(super) capacity: Option<u64>,
}

impl Disk {
    fn execute(&mut self, effect: StoreEffect) -> Option<(engine::Ticket, Answer)> {
        self.live.set_capacity(self.capacity);
        let is_full = |value: &Bytes| {
            let more = RECORD.max(value.len() as u64);
            self.capacity.is_some_and(|capacity| self.live.used() + more > capacity)
        };
        match &effect {
            StoreEffect::Index { ticket, request: IndexRequest::Put { value, .. } }
                if is_full(value) =>
            {
                return Some((*ticket, Err(EffectError::NoSpace)));
            }
            StoreEffect::Open { name, mode: OpenMode::Truncate, .. } => {
                self.safe.insert(name.clone(), Bytes::new());
            }
            StoreEffect::Sync { file, .. } => {
                if let Some(name) = self.live.name_of(*file).cloned() {
                    let content = Bytes::copy_from_slice(self.live.get(&name).unwrap_or(&[]));
                    self.safe.insert(name, content);
                }
            }
            StoreEffect::Index { request: IndexRequest::Put { key, value }, .. } => {
                self.records.insert(key.clone(), value.clone());
            }
            StoreEffect::Index { request: IndexRequest::Remove { key }, .. } => {
                self.records.remove(key);
            }
            StoreEffect::Filestore {
                request: engine::FilestoreRequest::DeleteFile(name), ..
            } => {
                self.safe.remove(name);
            }
            _ => {}
        }
        self.live.execute(effect)
    }

    /// Ends the process and its machine.
    fn crash(&mut self) {
        let mut fresh = MemoryStore::new();
        for (name, content) in &self.safe {
            fresh.insert(name.clone(), content.clone());
        }
        for (n, (key, value)) in self.records.iter().enumerate() {
            let ticket = engine::Ticket(n as u64);
            let request = IndexRequest::Put { key: key.clone(), value: value.clone() };
            fresh.execute(StoreEffect::Index { ticket, request });
        }
        self.live = fresh;
    }

    pub(super) fn files(&self) -> usize {
        self.live.names(engine::Area::Spool).filter(|name| self.live.get(name).is_some()).count()
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// Payloads that have records of their own.
    pub(super) fn payloads(&self) -> usize {
        self.records.keys().filter(|key| key.contains("payload")).count()
    }

    /// Leaves room for `bytes` more bytes.
    pub(super) fn leave_room(&mut self, bytes: u64) {
        self.capacity = Some(self.live.used() + bytes);
    }

    pub(super) fn insert(&mut self, name: FileName, content: Vec<u8>) {
        self.safe.insert(name.clone(), content.clone().into());
        self.live.insert(name, content);
    }

    fn content(&self, content: &Content) -> Option<Vec<u8>> {
        match content {
            Content::Bytes(bytes) => Some(bytes.to_vec()),
            Content::File { name, offset, len } => {
                let all = self.live.get(name)?;
                Some(all.get(*offset as usize..(*offset + *len) as usize)?.to_vec())
            }
        }
    }
}

type Answer = Result<engine::Completion, EffectError>;

pub(super) struct Node {
    pub(super) config: Config,
    pub(super) agent: Agent,
    pub(super) disk: Disk,
    /// Pending effects.
    effects: VecDeque<Effect>,
    commands: VecDeque<Command>,
    pub(super) indications: Vec<Indication>,
    /// Bundles taken by users, with their payloads.
    pub(super) taken: Vec<(BundleId, Vec<u8>)>,
    /// Deliveries not yet taken.
    offered: VecDeque<(DeliveryId, BundleId, Content)>,
    /// Registered endpoints.
    pub(super) endpoints: Vec<Eid>,
    life: u64,
}

impl Node {
    /// Status reports to its users, with the reporting nodes.
    pub(super) fn reports(&self) -> impl Iterator<Item = (&Eid, &StatusReport)> {
        self.indications.iter().filter_map(|indication| match indication {
            Indication::Report { from, report } => Some((from, report)),
            _ => None,
        })
    }
}

/// A bundle in transit between two nodes.
#[derive(Debug)]
struct Transfer {
    from: usize,
    to: usize,
    tag: Tag,
    id: TransferId,
    bytes: Bytes,
    at: usize,
    has_begun: bool,
    is_reported: bool,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) nodes: Vec<Node>,
    /// Pairs of connected nodes.
    pub(super) up: BTreeSet<(usize, usize)>,
    transfers: Vec<Transfer>,
    next: u64,
    pub(super) rng: Rng,
    /// Bytes of a piece.
    pub(super) piece: usize,
    /// Longest bundle that neighbours accept, in bytes.
    pub(super) bundle_max: u64,
    pub(super) window_bytes: u64,
    /// Whether the received part of a bundle is kept when its link breaks.
    pub(super) reactive: bool,
    /// Links whose acknowledgements wait until they are released: from, to.
    pub(super) slow: BTreeSet<(usize, usize)>,
    late: Vec<(TransferId, Outcome)>,
    /// Nodes that refuse bundles as not acceptable.
    pub(super) refusing: BTreeSet<usize>,
    /// Transmissions: from, to, and the bundle.
    pub(super) crossed: Vec<(usize, usize, Bytes)>,
    /// Identities of these over restarts.
    pub(super) identities: Vec<Option<Identity>>,
}

pub(super) fn node(number: usize) -> Eid {
    Eid::ipn(number as u32 + 1, 0)
}

pub(super) fn endpoint(number: usize) -> Eid {
    Eid::ipn(number as u32 + 1, 5)
}

/// Settings of a node in a chain.
pub(super) fn chain(count: usize, at: usize, persistent: bool) -> Config {
    let entries = (0..count).filter(|to| *to != at).map(|to| {
        let via = node(if to > at { at + 1 } else { at - 1 });
        Entry { to: Pattern::Node(node(to)), via: vec![via] }
    });
    Config {
        node: node(at),
        clock: Some(800_000_000_000),
        persistent,
        routing: Routing::Static(entries.collect()),
        ..Config::default()
    }
}

/// Settings of all nodes in a chain.
pub(super) fn chains(count: usize, persistent: bool) -> Vec<Config> {
    (0..count).map(|at| chain(count, at, persistent)).collect()
}

impl World {
    pub(super) fn new(configs: Vec<Config>, seed: u64) -> Self {
        let endpoints = (0..configs.len()).map(endpoint);
        Self::with(configs.into_iter().zip(endpoints), seed)
    }

    /// Nodes with links between some of them.
    pub(super) fn connected(configs: Vec<Config>, links: &[(usize, usize)]) -> Self {
        let mut world = Self::new(configs, 1);
        links.iter().for_each(|(a, b)| world.connect(*a, *b));
        world.settle();
        world
    }

    /// Node 2 of 3 alone: the test is its neighbours.
    pub(super) fn alone(config: Config) -> Self {
        let mut world = Self::with([(config, endpoint(1))], 1);
        world.settle();
        world
    }

    fn with(configs: impl IntoIterator<Item = (Config, Eid)>, seed: u64) -> Self {
        let rng = Rng::new(seed, "world");
        let nodes = configs.into_iter().map(|(config, endpoint)| Node {
            agent: Agent::new(config.clone(), Rng::new(seed, "agent")),
            config,
            disk: Disk::default(),
            effects: VecDeque::new(),
            commands: VecDeque::new(),
            indications: Vec::new(),
            taken: Vec::new(),
            offered: VecDeque::new(),
            endpoints: vec![endpoint],
            life: 0,
        });
        let mut world = Self {
            now: Time::from_secs(10),
            nodes: nodes.collect(),
            up: BTreeSet::new(),
            transfers: Vec::new(),
            next: 0,
            rng,
            piece: 100,
            bundle_max: u64::MAX,
            window_bytes: 0,
            reactive: false,
            slow: BTreeSet::new(),
            late: Vec::new(),
            refusing: BTreeSet::new(),
            crossed: Vec::new(),
            identities: Vec::new(),
        };
        for n in 0..world.nodes.len() {
            world.register(n);
        }
        world
    }

    pub(super) fn chain(count: usize, persistent: bool, seed: u64) -> Self {
        let configs = chains(count, persistent);
        let mut world = Self::new(configs, seed);
        for at in 1..count {
            world.connect(at - 1, at);
        }
        world
    }

    fn register(&mut self, n: usize) {
        let Node { agent, endpoints, .. } = &mut self.nodes[n];
        for endpoint in endpoints.clone() {
            agent.register(&endpoint).expect("it is nobody's");
        }
        self.drain(n);
    }

    pub(super) fn connect(&mut self, a: usize, b: usize) {
        if self.up.insert((a.min(b), a.max(b))) {
            for (at, to) in [(a, b), (b, a)] {
                let neighbour = Neighbour {
                    node: Some(node(to)),
                    is_authenticated: false,
                    bundle_max: self.bundle_max,
                    window: 2,
                    window_bytes: self.window_bytes,
                };
                let link = LinkId(to as u32);
                self.event(at, Event::Up { link, neighbour });
            }
        }
    }

    pub(super) fn disconnect(&mut self, a: usize, b: usize) {
        if !self.up.remove(&(a.min(b), a.max(b))) {
            return;
        }
        let cut: Vec<Transfer>;
        (cut, self.transfers) = std::mem::take(&mut self.transfers)
            .into_iter()
            .partition(|t| (t.from, t.to) == (a, b) || (t.from, t.to) == (b, a));
        for transfer in cut {
            let (link, id) = (LinkId(transfer.from as u32), transfer.id);
            if transfer.has_begun {
                let broken = Event::Broken { link, transfer: id, keep: self.reactive };
                self.nodes[transfer.to].agent.handle_event(self.now, 0, broken);
            }
            let acknowledged = if self.reactive { transfer.at as u64 } else { 0 };
            let outcome = Outcome::Failed { acknowledged };
            let (link, tag) = (LinkId(transfer.to as u32), transfer.tag);
            let sent = Event::Sent { link, tag, outcome };
            self.nodes[transfer.from].agent.handle_event(self.now, 0, sent);
        }
        for (at, to) in [(a, b), (b, a)] {
            let down = Event::Down { link: LinkId(to as u32), why: "a test" };
            self.event(at, down);
        }
    }

    /// Crashes and restarts the machine of a node.
    pub(super) fn crash(&mut self, n: usize) {
        let neighbours: Vec<usize> =
            (0..self.nodes.len()).filter(|m| self.up.contains(&(n.min(*m), n.max(*m)))).collect();
        // Data that was not stored is lost, even acknowledged ones.
        let reactive = std::mem::replace(&mut self.reactive, false);
        for m in &neighbours {
            self.disconnect(n, *m);
        }
        self.reactive = reactive;
        let node = &mut self.nodes[n];
        node.disk.crash();
        node.life += 1;
        let rng = Rng::new(node.life, "agent after a crash");
        node.agent = Agent::new(node.config.clone(), rng);
        node.effects.clear();
        node.commands.clear();
        node.offered.clear();
        self.register(n);
        for m in neighbours {
            self.connect(n, m);
        }
    }

    /// Collects commands, effects and indications of an agent.
    pub(super) fn drain(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        loop {
            let mut some = false;
            while let Some(effect) = node.agent.poll_effect() {
                node.effects.push_back(effect);
                some = true;
            }
            while let Some((layer, command)) = node.agent.poll_command() {
                assert_eq!(layer, 0);
                node.commands.push_back(command);
                some = true;
            }
            while let Some(indication) = node.agent.poll_indication() {
                if let Indication::Delivered { delivery, id, payload, .. } = &indication {
                    node.offered.push_back((*delivery, id.clone(), payload.clone()));
                }
                node.indications.push(indication);
                some = true;
            }
            if !some {
                return;
            }
        }
    }

    /// Executes one pending action of a node; returns whether there was one.
    pub(super) fn act(&mut self, n: usize, choice: u64) -> bool {
        let kinds = [0, 1, 2].map(|kind| (choice + kind) % 3);
        kinds.into_iter().any(|kind| match kind {
            0 => self.store(n),
            1 => self.obey(n),
            _ => self.take(n),
        })
    }

    /// Hands an event of a layer to a node.
    pub(super) fn event(&mut self, n: usize, event: Event) {
        self.nodes[n].agent.handle_event(self.now, 0, event);
        self.drain(n);
    }

    /// Commands of a node to its layer, after all that its store is to do.
    pub(super) fn commands(&mut self, n: usize) -> Vec<Command> {
        self.drain(n);
        while self.store(n) {}
        self.nodes[n].commands.drain(..).collect()
    }

    fn store(&mut self, n: usize) -> bool {
        let node = &mut self.nodes[n];
        let Some(effect) = node.effects.pop_front() else { return false };
        let Effect::Store(effect) = effect else { panic!("{effect:?}") };
        if let Some((ticket, result)) = node.disk.execute(effect) {
            node.agent.handle_input(self.now, Input::Done(ticket, result));
        }
        self.drain(n);
        true
    }

    /// Executes a command to the layer.
    fn obey(&mut self, n: usize) -> bool {
        let Some(command) = self.nodes[n].commands.pop_front() else { return false };
        match command {
            Command::Send { link, tag, bundle } => {
                let to = link.0 as usize;
                if !self.up.contains(&(n.min(to), n.max(to))) {
                    return true;
                }
                // A command may be older than the last end of its link, and its bundle gone.
                let Some(bytes) = self.whole(n, &bundle) else {
                    let outcome = Outcome::Failed { acknowledged: 0 };
                    let sent = Event::Sent { link, tag, outcome };
                    self.event(n, sent);
                    return true;
                };
                let id = TransferId(self.next);
                self.next += 1;
                assert!(bytes.len() as u64 <= self.bundle_max, "{} bytes", bytes.len());
                self.crossed.push((n, to, bytes.clone()));
                self.identities.push(bundle.identity);
                if self.refusing.contains(&to) {
                    let outcome = Outcome::Refused(Refusal::NotAcceptable);
                    let sent = Event::Sent { link, tag, outcome };
                    self.event(n, sent);
                    return true;
                }
                let transfer = Transfer {
                    from: n,
                    to,
                    tag,
                    id,
                    bytes,
                    at: 0,
                    has_begun: false,
                    is_reported: false,
                };
                self.transfers.push(transfer);
            }
            Command::Accept { transfer, .. } => self.reply(transfer, Outcome::Acknowledged),
            Command::Refuse { transfer, why, .. } => self.reply(transfer, Outcome::Refused(why)),
            Command::Cancel { link, tag } => {
                let to = link.0 as usize;
                let at = self.transfers.iter().position(|t| (t.from, t.to, t.tag) == (n, to, tag));
                if let Some(at) = at {
                    let transfer = self.transfers.remove(at);
                    let link = LinkId(n as u32);
                    let broken = Event::Broken { link, transfer: transfer.id, keep: false };
                    self.event(to, broken);
                }
            }
            Command::Open { .. } | Command::Close { .. } => {}
            Command::Pause { .. } | Command::Resume { .. } => {}
        }
        true
    }

    fn whole(&self, n: usize, bundle: &Outgoing) -> Option<Bytes> {
        let payload = self.nodes[n].disk.content(&bundle.payload)?;
        Some([&bundle.head[..], &payload, &bundle.tail].concat().into())
    }

    fn reply(&mut self, id: TransferId, outcome: Outcome) {
        let Some(at) = self.transfers.iter().position(|t| t.id == id) else { return };
        let Transfer { from, to, .. } = self.transfers[at];
        if self.slow.contains(&(from, to)) && self.late.iter().all(|(late, _)| *late != id) {
            return self.late.push((id, outcome));
        }
        self.late.retain(|(late, _)| *late != id);
        let Transfer { from, to, tag, .. } = self.transfers.remove(at);
        let sent = Event::Sent { link: LinkId(to as u32), tag, outcome };
        self.event(from, sent);
    }

    /// Delivers the acknowledgements that wait.
    pub(super) fn release(&mut self) {
        for (id, outcome) in self.late.clone() {
            self.reply(id, outcome);
        }
    }

    /// Takes a delivery.
    fn take(&mut self, n: usize) -> bool {
        let node = &mut self.nodes[n];
        let Some((delivery, id, content)) = node.offered.pop_front() else { return false };
        let content = node.disk.content(&content);
        // It may have expired in the meantime.
        if node.agent.confirm(self.now, delivery).is_ok() {
            node.taken.push((id, content.expect("what was handed over is there until then")));
        }
        self.drain(n);
        true
    }

    /// Delivers the next piece of a bundle; returns whether there was one.
    pub(super) fn carry(&mut self, choice: usize) -> bool {
        let open: Vec<usize> =
            (0..self.transfers.len()).filter(|n| !self.transfers[*n].is_reported).collect();
        let Some(&which) = open.get(choice % open.len().max(1)) else { return false };
        let piece = self.piece;
        let transfer = &mut self.transfers[which];
        let (to, link, id) = (transfer.to, LinkId(transfer.from as u32), transfer.id);
        let event = if !transfer.has_begun {
            transfer.has_begun = true;
            let bytes = Some(transfer.bytes.len() as u64).filter(|len| len % 2 == 0);
            Event::Begins { link, transfer: id, bytes }
        } else if transfer.at < transfer.bytes.len() {
            let end = (transfer.at + piece).min(transfer.bytes.len());
            let bytes = transfer.bytes.slice(transfer.at..end);
            transfer.at = end;
            Event::Piece { link, transfer: id, bytes }
        } else {
            transfer.is_reported = true;
            Event::Whole { link, transfer: id, file: None }
        };
        self.event(to, event);
        true
    }

    /// Delivers the next piece of a bundle over a link; returns whether there was one.
    pub(super) fn carry_over(&mut self, from: usize, to: usize) -> bool {
        let open = |transfer: &&Transfer| !transfer.is_reported;
        let ends = self.transfers.iter().filter(open).map(|transfer| (transfer.from, transfer.to));
        let first = ends.enumerate().find(|(_, ends)| *ends == (from, to));
        first.is_some_and(|(which, _)| self.carry(which))
    }

    /// Number of bundles in transit over a link.
    pub(super) fn in_transit(&self, from: usize, to: usize) -> usize {
        let over = |transfer: &&Transfer| (transfer.from, transfer.to) == (from, to);
        self.transfers.iter().filter(over).count()
    }

    /// Executes everything that needs no time.
    pub(super) fn settle(&mut self) {
        for step in 0..1_000_000u64 {
            let carried = self.carry(step as usize);
            let acted = (0..self.nodes.len()).filter(|n| self.act(*n, step)).count() > 0;
            if !carried && !acted {
                return;
            }
        }
        panic!("it does not end");
    }

    /// Advances time, and executes all events until then.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            let deadlines = self.nodes.iter().filter_map(|node| node.agent.poll_timeout());
            let Some(next) = deadlines.map(|deadline| deadline.at).min() else { break };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            for n in 0..self.nodes.len() {
                self.nodes[n].agent.handle_timeout(self.now);
                self.drain(n);
                let after = self.nodes[n].agent.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
            }
        }
        self.now = until;
    }

    /// Advances time without executing events.
    pub(super) fn pass_a_little(&mut self, time: Duration) {
        self.now += time;
        for n in 0..self.nodes.len() {
            self.nodes[n].agent.handle_timeout(self.now);
            self.drain(n);
        }
    }

    /// Delivers bytes to a node from a neighbour.
    pub(super) fn hand_in(&mut self, to: usize, from: usize, bytes: &[u8]) {
        self.hand_in_pieces(to, from, bytes, bytes.len());
    }

    /// Delivers bytes to a node from a neighbour, in pieces of so many.
    pub(super) fn hand_in_pieces(&mut self, to: usize, from: usize, bytes: &[u8], piece: usize) {
        let (link, transfer) = (LinkId(from as u32), TransferId(1 << 40 | self.next));
        self.next += 1;
        let pieces = bytes.chunks(piece.max(1)).map(|bytes| {
            let bytes = Bytes::copy_from_slice(bytes);
            Event::Piece { link, transfer, bytes }
        });
        let begins = Event::Begins { link, transfer, bytes: None };
        let whole = Event::Whole { link, transfer, file: None };
        for event in [begins].into_iter().chain(pieces).chain([whole]) {
            self.event(to, event);
        }
    }
}
