//! The CFDP entity, driven by a script of bytes.
//!
//! Two entities with a store each and the datagrams between them. The script delivers, drops,
//! repeats, damages and invents datagrams, lets time pass, lets storage fail, asks for transfers
//! and kills entities. Whatever it does, an entity answers in bounded work, has no deadline in the
//! past, and never delivers a wrong file unless bytes were damaged or invented.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Effect, EffectError, Engine, FileName, IndexRequest, Input, MemoryStore, PathEvent, PathId,
    PathInfo, Receive, Rng, Ticket, Time, TxBuf,
};
use proto::cfdp::{Config, Entity, PutRequest};
use wire::cfdp::{Checksum, ChecksumType, TransmissionMode};

/// More than an entity of these limits may do without anything happening to it.
const WORK_MAX: usize = 20_000;
/// Datagrams under way to one entity; beyond it they are lost, as in any queue.
const QUEUE_MAX: usize = 256;
const MTU: usize = 300;
const PATH: PathId = PathId(0);
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";

/// A script for two entities that transfer files to each other.
///
/// # Panics
/// If an entity breaks the contract or delivers a wrong file.
pub fn cfdp_entity(data: &[u8]) {
    let mut world = World::new();
    let mut script = Script(data);
    while let Some(op) = script.byte() {
        let who = usize::from(op & 1);
        match op >> 1 {
            0..=39 => world.deliver(who),
            40..=47 => drop(world.sides[who].inbox.pop_front()),
            48..=55 => world.repeat(who),
            56..=63 => world.damage(who, &mut script),
            64..=71 => world.invent(who, &mut script),
            72..=87 => world.timeout(who),
            88..=93 => world.wait(script.byte().unwrap_or(0)),
            94..=103 => world.put(who, &mut script),
            104..=109 => world.request(who, op, &mut script),
            110..=115 => world.path(who, op),
            116..=119 => world.restart(who),
            120..=127 => world.fail_next(who),
            _ => {}
        }
    }
    world.finish();
}

/// Records of an earlier run, as a damaged disk might hold them, with a checksum that is right.
///
/// # Panics
/// If the entity breaks the contract.
pub fn cfdp_journal(data: &[u8]) {
    const KEYS: [&str; 4] = ["cfdp-sequence", "cfdp-rx-2-1", "cfdp-tx-1-1", "cfdp-rx-1-7"];
    let mut script = Script(data);
    let mut world = World::new();
    while let Some(key) = script.byte() {
        let len = usize::from(script.byte().unwrap_or(0));
        let mut value = vec![1];
        value.extend(script.bytes(len));
        let check = Checksum::of(ChecksumType::Crc32c, &value).expect("a known type");
        value.extend(check.to_be_bytes());
        let key = KEYS[usize::from(key) % KEYS.len()].to_owned();
        let request = IndexRequest::Put { key, value: value.into() };
        world.sides[0].store.execute(Effect::Index { ticket: Ticket(0), request });
    }
    // What the records claim is not what the store holds.
    world.honest = false;
    world.restart(0);
    world.finish();
}

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Side {
    entity: Entity,
    store: MemoryStore,
    inbox: VecDeque<Vec<u8>>,
    fail_next: bool,
    up: bool,
    restarts: u64,
}

struct World {
    now: Time,
    sides: [Side; 2],
    tx: TxBuf,
    /// Every datagram was written by an entity and arrives as it was written.
    honest: bool,
    content: Bytes,
}

fn config(side: usize) -> Config {
    let mut config = Config {
        entity: side as u64 + 1,
        first_sequence: Some(1),
        // What stays of an unfinished file is not what the sender has.
        keep_incomplete: false,
        ..Config::default()
    };
    config.limits.transactions = 8;
    config.limits.finished = 8;
    config.limits.gaps = 16;
    config.limits.write_buffer = 4096;
    config.limits.write_piece = 512;
    config.limits.read_ahead = 2048;
    config.limits.read_piece = 512;
    config.limits.file_size = 1 << 16;
    config.limits.replies = 8;
    config
}

impl Side {
    fn new(side: usize, content: &Bytes) -> Self {
        let mut store = MemoryStore::new();
        store.set_capacity(Some(1 << 20));
        store.insert(FileName::file(SOURCE).expect("a good name"), content.clone());
        let entity = Entity::new(config(side), Rng::new(0, "entity"));
        Self { entity, store, inbox: VecDeque::new(), fail_next: false, up: false, restarts: 0 }
    }
}

impl World {
    fn new() -> Self {
        let content: Bytes = (0..1500_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let sides = [Side::new(0, &content), Side::new(1, &content)];
        let mut world = Self { now: Time::ZERO, sides, tx: TxBuf::new(4), honest: true, content };
        for who in 0..2 {
            world.path(who, 0);
        }
        world
    }

    /// Pulls everything out of an entity: effects are carried out, datagrams go to the other.
    fn drain(&mut self, who: usize) {
        for _ in 0..WORK_MAX {
            let side = &mut self.sides[who];
            let mut idle = true;
            while let Some(effect) = side.entity.poll_effect() {
                idle = false;
                let ticket = effect.ticket();
                let answer = if std::mem::take(&mut side.fail_next) {
                    ticket.map(|ticket| (ticket, Err(EffectError::NoSpace)))
                } else {
                    side.store.execute(effect)
                };
                if let Some((ticket, result)) = answer {
                    side.entity.handle_input(self.now, Input::Done(ticket, result));
                }
            }
            while side.entity.poll_indication().is_some() {
                idle = false;
            }
            self.tx.clear();
            if let Some(transmit) = side.entity.poll_transmit(self.now, &mut self.tx) {
                idle = false;
                assert_eq!(transmit.len, self.tx.bytes().len());
                let datagrams: Vec<_> = self.tx.datagrams().map(<[u8]>::to_vec).collect();
                let inbox = &mut self.sides[1 - who].inbox;
                inbox.extend(datagrams);
                inbox.truncate(QUEUE_MAX);
            }
            if idle {
                return;
            }
        }
        panic!("the entity does not come to rest");
    }

    fn receive(&mut self, who: usize, datagram: &[u8]) {
        let receive = Receive::datagram(PATH, datagram);
        self.sides[who].entity.handle_input(self.now, Input::Receive(receive));
        self.drain(who);
        self.check(who);
    }

    fn deliver(&mut self, who: usize) {
        if let Some(datagram) = self.sides[who].inbox.pop_front() {
            self.receive(who, &datagram);
        }
    }

    fn repeat(&mut self, who: usize) {
        if let Some(datagram) = self.sides[who].inbox.front().cloned() {
            self.sides[who].inbox.push_back(datagram.clone());
            self.receive(who, &datagram);
        }
    }

    fn damage(&mut self, who: usize, script: &mut Script<'_>) {
        let Some(mut datagram) = self.sides[who].inbox.pop_front() else { return };
        let at = usize::from(script.byte().unwrap_or(0)) % datagram.len().max(1);
        if let Some(place) = datagram.get_mut(at) {
            *place ^= script.byte().unwrap_or(1);
        }
        self.honest = false;
        self.receive(who, &datagram);
    }

    fn invent(&mut self, who: usize, script: &mut Script<'_>) {
        let len = usize::from(script.byte().unwrap_or(0));
        let datagram = script.bytes(len);
        self.honest = false;
        self.receive(who, datagram);
    }

    /// Calls the entity when it asked to be called.
    fn timeout(&mut self, who: usize) {
        if let Some(deadline) = self.sides[who].entity.poll_timeout() {
            self.now = self.now.max(deadline.at);
            self.sides[who].entity.handle_timeout(self.now);
            self.drain(who);
            let next = self.sides[who].entity.poll_timeout();
            assert!(next.is_none_or(|next| next.at > self.now), "{next:?} at {}", self.now);
        }
    }

    /// Time passes; the entities are called late or for nothing.
    fn wait(&mut self, tenths: u8) {
        self.now += Duration::from_millis(100) * u32::from(tenths);
        for who in 0..2 {
            self.sides[who].entity.handle_timeout(self.now);
            self.drain(who);
        }
    }

    fn put(&mut self, who: usize, script: &mut Script<'_>) {
        let options = script.byte().unwrap_or(0);
        let mode = if options & 1 == 0 {
            TransmissionMode::Acknowledged
        } else {
            TransmissionMode::Unacknowledged
        };
        let request = PutRequest {
            destination: 2 - who as u64,
            source: Some(FileName::file(SOURCE).expect("a good name")),
            destination_name: DESTINATION.to_owned(),
            mode: Some(mode),
            closure: Some(options & 2 != 0),
            unbounded: options & 4 != 0,
            resume: options & 8 != 0,
            messages: (0..options >> 6).map(|_| Bytes::copy_from_slice(script.bytes(20))).collect(),
            ..PutRequest::default()
        };
        let _ = self.sides[who].entity.put(self.now, request);
        self.drain(who);
    }

    fn request(&mut self, who: usize, op: u8, script: &mut Script<'_>) {
        let entity = &mut self.sides[who].entity;
        let nth = usize::from(script.byte().unwrap_or(0));
        let Some(id) = entity.transactions().nth(nth % 8).map(|report| report.id) else { return };
        let _ = match (op >> 1) % 4 {
            0 => entity.cancel(self.now, id),
            1 => entity.suspend(self.now, id),
            2 => entity.resume(self.now, id),
            _ => entity.report(self.now, id),
        };
        self.drain(who);
    }

    fn path(&mut self, who: usize, op: u8) {
        let side = &mut self.sides[who];
        let event = match (op >> 1) % 4 {
            0 => {
                side.up = true;
                PathEvent::Up(PathInfo::datagram(MTU))
            }
            1 if side.up => PathEvent::Blocked,
            2 if side.up => PathEvent::Writable,
            _ => {
                side.up = false;
                PathEvent::Down
            }
        };
        side.entity.handle_input(self.now, Input::Path(PATH, event));
        self.drain(who);
    }

    /// The process is killed and started again; the store stays.
    fn restart(&mut self, who: usize) {
        let side = &mut self.sides[who];
        side.restarts += 1;
        side.store.close_all();
        side.fail_next = false;
        side.entity = Entity::new(config(who), Rng::new(side.restarts, "entity"));
        self.path(who, 0);
    }

    fn fail_next(&mut self, who: usize) {
        self.sides[who].fail_next = true;
    }

    /// What has the file's name is the file, if nobody forged a datagram.
    fn check(&self, who: usize) {
        let name = FileName::file(DESTINATION).expect("a good name");
        if let (true, Some(found)) = (self.honest, self.sides[who].store.get(&name)) {
            assert!(found == self.content, "a wrong file of {} bytes", found.len());
        }
    }

    /// Without losses from here on, both entities come to rest.
    fn finish(&mut self) {
        for who in 0..2 {
            self.path(who, 0);
        }
        for _ in 0..WORK_MAX {
            let before = self.now;
            while self.sides.iter().any(|side| !side.inbox.is_empty()) {
                self.deliver(0);
                self.deliver(1);
            }
            let next = |who: usize| self.sides[who].entity.poll_timeout().map(|next| next.at);
            let Some(at) = [next(0), next(1)].into_iter().flatten().min() else { return };
            // A year: longer than any timer with these settings.
            if at > before + Duration::from_secs(365 * 86_400) {
                return;
            }
            let who = usize::from(next(0) != Some(at));
            self.timeout(who);
        }
        panic!("the entities do not come to rest");
    }
}
