//! Two applications and their nodes in random order: pieces of any length, bundles in any order
//! and twice, full and restarted nodes, and applications that are killed at any moment.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{
    Area, Effect, Engine as _, FileName, IndexRequest, Input, MemoryStore, Rng, StoreEffect,
    Ticket, Time,
};

use super::{Config, Failure, FileId, Files, Indication, SendError};
use crate::app::{Application as _, ArrivalId, Delivery, Event, NodeFacts, Order, Outgoing, Piece};
use crate::codec::bp7::Eid;
use crate::codec::file_part::{FilePart, crc_append};
use crate::layer::Content;

fn endpoint(side: usize) -> Eid {
    Eid::Ipn { node: side as u64 + 1, service: 10 }
}

fn name(name: &str) -> FileName {
    FileName::file(name).expect("a plain name")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// One application with its store, and what its node holds for it.
struct Side {
    files: Files,
    store: MemoryStore,
    /// Effects not carried out yet.
    pending: VecDeque<StoreEffect>,
    synced: BTreeMap<FileName, Vec<u8>>,
    /// Bundles by their numbers, and deliveries of them with the bytes handed over.
    held: BTreeMap<u64, Bytes>,
    handed: BTreeMap<ArrivalId, (u64, usize)>,
    /// Deliveries of which more bytes are wanted.
    wanted: Vec<ArrivalId>,
    left: Vec<u64>,
    indications: Vec<Indication>,
}

struct World {
    sides: [Side; 2],
    config: Config,
    rng: Rng,
    next: u64,
    /// Keys of the bundles that the sender's node has stored.
    keys: Vec<u128>,
    /// Bundles that wait for room in the sender's node.
    waiting: VecDeque<Box<Outgoing>>,
    memory_of: Option<u32>,
    /// Whether a reply of the node may be lost with the sender.
    loses_replies: bool,
}

impl World {
    fn new(config: Config, seed: u64) -> Self {
        let mut rng = Rng::new(seed, "files");
        let sides = [0, 1].map(|side| Side {
            files: files(&config, side, &mut rng),
            store: MemoryStore::new(),
            pending: VecDeque::new(),
            synced: BTreeMap::new(),
            held: BTreeMap::new(),
            handed: BTreeMap::new(),
            wanted: Vec::new(),
            left: Vec::new(),
            indications: Vec::new(),
        });
        let (keys, waiting) = (Vec::new(), VecDeque::new());
        let mut world = Self {
            sides,
            config,
            rng,
            next: 0,
            keys,
            waiting,
            memory_of: None,
            loses_replies: false,
        };
        for side in 0..2 {
            world.node_is_up(side);
        }
        world
    }

    fn node_is_up(&mut self, side: usize) {
        let facts = NodeFacts { memory_of: self.memory_of, follows: false };
        self.sides[side].files.handle_event(Time::ZERO, Event::Up(facts));
    }

    fn tell(&mut self, side: usize, event: Event) {
        self.sides[side].files.handle_event(Time::ZERO, event);
    }

    /// Takes what a side wants.
    fn drain(&mut self, side: usize) {
        let it = &mut self.sides[side];
        while let Some(effect) = it.files.poll_effect() {
            if let Effect::Store(effect) = effect {
                it.pending.push_back(effect);
            }
        }
        while let Some(indication) = it.files.poll_indication() {
            it.indications.push(indication);
        }
        while let Some(order) = self.sides[side].files.poll_order() {
            match order {
                Order::Send(outgoing) => self.waiting.push_back(outgoing),
                Order::Read(arrival) => self.sides[side].wanted.push(arrival),
                Order::Confirm(arrival) => {
                    let it = &mut self.sides[side];
                    if let Some((number, _)) = it.handed.remove(&arrival) {
                        it.held.remove(&number);
                    }
                }
                Order::Leave(arrival) => {
                    let it = &mut self.sides[side];
                    it.left.extend(it.handed.remove(&arrival).map(|(number, _)| number));
                }
                Order::Forget(_) => {}
            }
        }
    }

    /// Does one thing; returns whether there was any.
    fn step(&mut self) -> bool {
        (0..2).for_each(|side| self.drain(side));
        let first = self.rng.below(8);
        (0..8).any(|turn| {
            let choice = (first + turn) % 8;
            let side = usize::from(choice % 2 == 1);
            match choice / 2 {
                0 => self.carry_out(side),
                1 => self.store_bundle(),
                2 => self.hand_over(side),
                _ => self.read(side),
            }
        })
    }

    /// Carries out an effect.
    fn carry_out(&mut self, side: usize) -> bool {
        let it = &mut self.sides[side];
        let Some(effect) = it.pending.pop_front() else { return false };
        if let StoreEffect::Sync { file, .. } = &effect
            && let Some(name) = it.store.name_of(*file).cloned()
            && let Some(bytes) = it.store.get(&name)
        {
            it.synced.insert(name, bytes.to_vec());
        }
        if let Some((ticket, answer)) = it.store.execute(effect) {
            it.files.handle_input(Time::ZERO, Input::Done(ticket, answer));
        }
        true
    }

    /// Stores a bundle in the sender's node, which passes it on at once.
    fn store_bundle(&mut self) -> bool {
        let Some(outgoing) = self.waiting.pop_front() else { return false };
        let id = outgoing.id;
        if self.rng.below(5) == 0 {
            self.waiting.push_front(outgoing);
            self.tell(0, Event::Waiting { id, why: "full".to_owned() });
            return true;
        }
        let Content::Bytes(head) = &outgoing.request.payload else { panic!("bytes") };
        let mut payload = head.to_vec();
        if let Some(excerpt) = &outgoing.excerpt {
            let file = self.sides[0].store.get(&excerpt.file).expect("it is there");
            let from = excerpt.offset as usize;
            let bytes = &file[from..from + excerpt.len as usize];
            assert_eq!(crc_append(excerpt.crc_before, bytes), excerpt.crc_after);
            payload.extend_from_slice(bytes);
            self.tell(0, Event::Passed { id, bytes: excerpt.len });
        }
        let key = outgoing.request.key.expect("a key");
        if !self.keys.contains(&key) {
            self.keys.push(key);
            for _ in 0..if self.rng.below(6) == 0 { 2 } else { 1 } {
                self.next += 1;
                self.sides[1].held.insert(self.next, payload.clone().into());
            }
        }
        if self.loses_replies && self.rng.below(30) == 0 {
            self.kill(0);
        } else {
            self.tell(0, Event::Stored(id));
        }
        true
    }

    /// Delivers a bundle, with its first bytes.
    fn hand_over(&mut self, side: usize) -> bool {
        let it = &mut self.sides[side];
        let out = |number: &u64| it.handed.values().any(|(other, _)| other == number);
        let waiting = it.held.keys().filter(|number| !out(number) && !it.left.contains(number));
        let waiting: Vec<u64> = waiting.copied().collect();
        if waiting.is_empty() || !it.files.takes_more() {
            return false;
        }
        let number = waiting[self.rng.below(waiting.len() as u64) as usize];
        let payload = it.held[&number].clone();
        self.next += 1;
        let arrival = ArrivalId(self.next);
        let most = self.rng.below(payload.len() as u64 + 1) as usize;
        it.handed.insert(arrival, (number, most));
        let first = Piece { bytes: payload.slice(..most), is_last: most == payload.len() };
        let (bundle, len) = (format!("ipn:1.10 5.{number}"), payload.len() as u64);
        let delivery = Delivery { arrival, bundle, source: endpoint(0), len, first };
        self.tell(side, Event::Came(delivery));
        true
    }

    /// Hands over more bytes of a delivery.
    fn read(&mut self, side: usize) -> bool {
        let it = &mut self.sides[side];
        let Some(arrival) = it.wanted.pop() else { return false };
        let Some((number, at)) = it.handed.get_mut(&arrival) else {
            self.tell(side, Event::Expired(arrival));
            return true;
        };
        let payload = &it.held[number];
        let most = (1 + self.rng.below(3000) as usize).min(payload.len() - *at);
        let bytes = payload.slice(*at..*at + most);
        *at += most;
        let piece = Piece { bytes, is_last: *at == payload.len() };
        self.tell(side, Event::Read { arrival, piece });
        true
    }

    /// Kills an application: it begins again, with what survives of its store.
    fn kill(&mut self, side: usize) {
        let files = files(&self.config, side, &mut self.rng);
        let it = &mut self.sides[side];
        it.files = files;
        it.pending.clear();
        it.store.close_all();
        let working: Vec<_> = it.store.names(Area::Spool).cloned().collect();
        for name in working {
            if it.store.get(&name).is_some() && self.rng.chance(0.5) {
                it.store.insert(name.clone(), it.synced.get(&name).cloned().unwrap_or_default());
            }
        }
        (it.handed, it.wanted, it.left) = Default::default();
        if side == 0 {
            self.waiting.clear();
        }
        self.node_is_up(side);
    }

    /// A node that is gone for a while; one with its store in memory has lost what it had.
    fn restart_node(&mut self, side: usize) {
        let it = &mut self.sides[side];
        (it.handed, it.wanted, it.left) = Default::default();
        self.tell(side, Event::Down);
        self.node_is_up(side);
    }

    /// Sends the file again if its sender does not know it any more.
    fn command(&mut self) {
        self.drain(0);
        let it = &mut self.sides[0];
        let is_sent = it.indications.iter().any(|it| matches!(it, Indication::Sent { .. }));
        if it.files.is_ready() && it.files.sending.is_empty() && !is_sent {
            it.files.send(Time::ZERO, name("source"), "a/copy", &endpoint(1)).unwrap();
        }
    }

    fn received(&self) -> Vec<(FileName, Vec<u8>)> {
        let store = &self.sides[1].store;
        let names: Vec<FileName> = store.names(Area::Files).cloned().collect();
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), store.get(&name)?.to_vec())))
            .collect()
    }

    /// Runs without faults until nothing is left to do.
    fn finish(&mut self) {
        loop {
            self.command();
            if !self.step() {
                (0..2).for_each(|side| self.drain(side));
                if self.sides.iter().all(|side| side.pending.is_empty()) && self.waiting.is_empty()
                {
                    return;
                }
            }
        }
    }
}

fn files(config: &Config, side: usize, rng: &mut Rng) -> Files {
    let config = Config { endpoint: Some(endpoint(side)), ..config.clone() };
    Files::new(config, Rng::new(rng.next_u64(), "application"))
}

fn parts_of(bytes: u64) -> Config {
    Config { part: Some(bytes), ..Config::default() }
}

/// Runs a world without faults, or with those of `seed`, to its end.
fn story(seed: u64, size: usize, part: u64, is_killed: bool) -> World {
    let mut world = World::new(parts_of(part), seed);
    world.memory_of = seed.is_multiple_of(3).then_some(1);
    world.sides[0].store.insert(name("source"), content(size));
    world.restart_node(0);
    world.loses_replies = is_killed;
    for _ in 0..if is_killed { 400 } else { 0 } {
        world.command();
        world.step();
        match world.rng.below(120) {
            chance @ 0..4 => world.kill(chance as usize % 2),
            4 => world.restart_node(1),
            5 if world.memory_of.is_some() => {
                // What the receiver's node has stays.
                world.memory_of = world.memory_of.map(|process| process + 1);
                world.keys.clear();
                world.restart_node(0);
            }
            _ => {}
        }
    }
    world.finish();
    world
}

fn check(world: &World, size: usize, seed: u64) {
    let received = world.received();
    assert!(!received.is_empty(), "seed {seed}: no file arrived");
    assert_eq!(received[0].0, name("copy"), "seed {seed}");
    let is_whole = received.iter().all(|(_, bytes)| *bytes == content(size));
    assert!(is_whole, "seed {seed}: {:?}", received.iter().map(|it| &it.0).collect::<Vec<_>>());
    assert!(world.sides[1].held.is_empty(), "seed {seed}: all is confirmed");
    for side in &world.sides {
        let left: Vec<_> = side.store.names(Area::Spool).collect();
        let left = left.iter().filter(|name| side.store.get(name).is_some());
        assert_eq!(left.count(), 0, "seed {seed}");
    }
    assert_eq!(world.sides[0].files.under_way(), 0, "seed {seed}");
}

#[test]
fn files_of_any_length_are_split_and_joined() {
    for (size, part) in [(0, 10), (1, 10), (10, 10), (11, 10), (5_000, 777), (700_000, 300_000)] {
        for seed in 0..20 {
            let world = story(seed, size, part, false);
            check(&world, size, seed);
            let names: Vec<_> = world.received().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [name("copy")], "seed {seed}, {size} bytes in parts of {part}");
            let bundles = (size as u64).div_ceil(part).max(1);
            let sent = world.sides[0].indications.iter().find_map(|indication| match indication {
                Indication::Sent { bundles, result, .. } => Some((*bundles, result.clone())),
                _ => None,
            });
            assert_eq!(sent, Some((bundles, Ok(()))));
        }
    }
}

#[test]
fn applications_and_nodes_may_end_at_any_moment() {
    for seed in 0..400 {
        let size = [0, 1, 3_000, 20_000][seed as usize % 4];
        let world = story(seed, size, [500, 5_000][seed as usize / 4 % 2], true);
        check(&world, size, seed);
    }
}

/// Delivers payloads to an application, and returns the files that it makes of them.
fn receive(payloads: &[(u64, Vec<u8>)]) -> World {
    let mut world = World::new(Config::default(), 7);
    for (number, payload) in payloads {
        world.sides[1].held.insert(*number, payload.clone().into());
    }
    world.sides[0].indications.push(Indication::Sent {
        file: FileId(0),
        name: String::new(),
        bundles: 0,
        result: Ok(()),
        is_reported: false,
    });
    world.finish();
    world
}

fn part_of(header: FilePart<'_>, bytes: &[u8], is_sound: bool) -> Vec<u8> {
    let crc = crc_append(header.crc().unwrap(), bytes);
    [header.encode(if is_sound { crc } else { crc + 1 }).unwrap(), bytes.to_vec()].concat()
}

#[test]
fn payloads_that_are_no_parts_become_files() {
    let header = FilePart { transfer: 9, total: 5_000, offset: 10, name: "log" };
    let beyond = FilePart { total: u64::MAX, offset: u64::MAX - 3, ..header };
    let payloads = [
        (1, b"text".to_vec()),
        (2, Vec::new()),
        (3, part_of(header, &content(3_000), false)),
        (4, part_of(header, &content(4_991), true)),
        (5, part_of(beyond, b"abc", true)),
        (6, content(600_000)),
    ];
    let world = receive(&payloads);
    let mut expected: Vec<Vec<u8>> = payloads.into_iter().map(|(_, payload)| payload).collect();
    let mut found: Vec<Vec<u8>> = world.received().into_iter().map(|(_, bytes)| bytes).collect();
    expected.sort();
    found.sort();
    assert!(found == expected, "{:?}", found.iter().map(Vec::len).collect::<Vec<_>>());
    assert!(world.sides[1].held.is_empty());
    let damaged = |it: &&Indication| matches!(it, Indication::Damaged { .. });
    assert_eq!(world.sides[1].indications.iter().filter(damaged).count(), 1);
    assert_eq!(world.sides[1].store.names(Area::Spool).count(), 0, "nothing is left over");
}

#[test]
fn no_file_is_replaced_and_a_repeated_delivery_is_one_file() {
    let mut world = receive(&[(1, b"one".to_vec())]);
    let first = world.received();
    let mut again = |content: &[u8]| {
        world.sides[1].held.insert(1, content.to_vec().into());
        world.finish();
        world.received()
    };
    assert_eq!(again(b"one"), first);
    let second = again(b"two");
    assert_eq!(again(b"two"), second);
    assert_eq!(again(b"one"), second);
    let mut contents: Vec<_> = second.into_iter().map(|(_, bytes)| bytes).collect();
    contents.sort();
    assert_eq!(contents, [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_payload_that_cannot_be_stored_stays_in_the_node() {
    let mut world = World::new(Config::default(), 1);
    world.sides[1].held.insert(1, content(100).into());
    world.sides[1].store.set_capacity(Some(10));
    world.command();
    while !matches!(world.sides[1].indications.last(), Some(Indication::SetAside { .. })) {
        assert!(world.step());
    }
    world.sides[1].store.set_capacity(None);
    world.kill(1);
    world.finish();
    assert_eq!(world.received().len(), 1);
}

#[test]
fn memory_is_bounded() {
    let mut config = Config::default();
    config.limits.joining = 3;
    config.limits.ranges = 4;
    let mut world = World::new(config, 1);
    for number in 0..20 {
        let header = FilePart { transfer: number, total: 100, offset: 0, name: "log" };
        world.sides[1].held.insert(number, part_of(header, &content(10), true).into());
        let header = FilePart { transfer: 0, offset: 2 * number, ..header };
        world.sides[1].held.insert(100 + number, part_of(header, &[1], true).into());
    }
    while world.step() {}
    let files = &world.sides[1].files;
    assert!(files.joined().count() <= 3);
    assert!(files.joined().all(|file| file.there.len() <= 4));
    assert!(world.sides[1].held.is_empty(), "the others are files of their own");
}

#[test]
fn requests_are_refused_beyond_the_limits() {
    let mut config = Config::default();
    config.limits.sending = 1;
    let mut files = Files::new(config, Rng::new(1, "files"));
    let mut send = |to: &str| files.send(Time::ZERO, name("source"), to, &endpoint(1));
    assert_eq!(send(&"n".repeat(1025)), Err(SendError::Name));
    let id = send("copy").unwrap();
    assert_eq!(send("another"), Err(SendError::Full));
    files.end(id, Err(Failure::Deleted));
    assert_eq!((files.outgoing.len(), files.under_way()), (0, 0), "nothing is kept of a file");
}

#[test]
fn records_are_read_as_they_were_written() {
    let put = |request| match request {
        IndexRequest::Put { key, value } => (key, value),
        other => panic!("{other:?}"),
    };
    let mut world = story(1, 20_000, 500, false);
    world.sides[1].held.insert(1, {
        let header = FilePart { transfer: 9, total: 100, offset: 20, name: "log" };
        part_of(header, &content(10), true).into()
    });
    world.finish();
    let load = StoreEffect::Index {
        ticket: Ticket(0),
        request: IndexRequest::Load { prefix: String::new() },
    };
    let Some((_, Ok(engine::Completion::Records(records)))) = world.sides[1].store.execute(load)
    else {
        panic!("records")
    };
    assert_eq!(records.len(), 2);
    for (key, value) in records {
        let again = super::reencoded(&key, &value).expect("a record");
        assert_eq!(put(again), (key.clone(), value.clone()));
        for len in 0..value.len() {
            assert!(super::reencoded(&key, &value.slice(..len)).is_none());
        }
        assert!(super::reencoded("file-1", &value).is_none());
    }
}

/// Bundles of an earlier attempt may still be in the node, and expire there: they count no more.
#[test]
fn a_file_whose_first_parts_expired_begins_again_with_other_keys() {
    let keys = |clock_ms: u64, world: &mut World| {
        world.config.clock_ms = Some(clock_ms);
        world.kill(0);
        world.command();
        let mut keys = Vec::new();
        while keys.len() < 3 {
            world.command();
            world.drain(0);
            if let Some(outgoing) = world.waiting.pop_front() {
                keys.push(outgoing.request.key.expect("a key"));
                world.tell(0, Event::Stored(outgoing.id));
            } else {
                assert!(world.carry_out(0));
            }
        }
        keys
    };
    let day = 86_400_000;
    let mut world = World::new(Config { part: Some(10), ..Config::default() }, 3);
    world.sides[0].store.insert(name("source"), content(1_000));
    let first = keys(day, &mut world);
    let resumed = keys(day + 1_000, &mut world);
    assert_eq!(resumed[0], first[2], "a part that was not recorded is sent by the same key");
    let again = keys(3 * day, &mut world);
    assert_eq!(again[0] & u128::from(u64::MAX), 0, "it begins again");
    assert!(!first.contains(&again[0]));
}

/// The process ended after it had renamed a file, and before it recorded that.
#[test]
fn a_renamed_file_is_reported_after_a_restart() {
    let header = FilePart { transfer: 9, total: 100, offset: 0, name: "log" };
    let mut world = World::new(Config::default(), 7);
    world.sides[1].held.insert(1, part_of(header, &content(100), true).into());
    world.command();
    while world.received().is_empty() {
        assert!(world.step());
    }
    world.kill(1);
    world.drain(0);
    while world.step() {}
    let is_reported = |it: &Indication| matches!(it, Indication::Received { bytes: 100, .. });
    assert_eq!(world.sides[1].indications.iter().filter(|it| is_reported(it)).count(), 1);
    assert!(world.sides[1].held.is_empty());
    // A repeated part is a duplicate.
    world.sides[1].held.insert(2, part_of(header, &content(100), true).into());
    while world.step() {}
    assert_eq!((world.received().len(), world.sides[1].held.len()), (1, 0));
    assert_eq!(world.sides[1].indications.len(), 1);
}
