//! Two entities, their stores, and a link between them whose losses are chosen one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Effect, Engine, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    Transmit, TxBuf,
};
use wire::cfdp::{Body, Pdu, TransactionId};

use crate::cfdp::{Config, Entity, Indication, PutRequest, Remote, TransactionFinished};

/// The path of either side to the other.
pub(super) const PATH: PathId = PathId(7);

/// The entity numbers of the two sides.
pub(super) const ENTITIES: [u64; 2] = [1, 2];

/// One host.
pub(super) struct Side {
    pub(super) entity: Entity,
    pub(super) store: MemoryStore,
    pub(super) config: Config,
    pub(super) indications: Vec<Indication>,
    held: Option<(Vec<Vec<u8>>, Time)>,
    paused: bool,
    starts: u64,
    /// Effects that are not carried out yet, when the store is slow.
    pub(super) slow: Option<Vec<Effect>>,
    /// How many more effects are carried out before the process dies.
    pub(super) dies_after: Option<usize>,
}

/// What happens on the way: the number of the datagram in its direction, and its bytes.
type Fate = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

pub(super) struct World {
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    pub(super) info: PathInfo,
    pub(super) batch: usize,
    events: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    event: u64,
    sent: [usize; 2],
    /// Whether a datagram is lost.
    pub(super) lose: Fate,
    /// Every datagram: when it left, from which side, what it said, and whether it was lost.
    pub(super) log: Vec<(Time, usize, String, bool)>,
    pub(super) logging: bool,
}

impl World {
    /// Two entities with the same settings, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(config: &Config) -> Self {
        let info = PathInfo {
            rate_bps: Some(10_000_000),
            overhead: 42,
            owlt: Some(Duration::from_millis(25)),
            ..PathInfo::datagram(1024)
        };
        Self::with_path(config, info)
    }

    pub(super) fn with_path(config: &Config, info: PathInfo) -> Self {
        let side = |entity: u64| {
            let config = Config { entity, ..config.clone() };
            Side {
                entity: Entity::new(config.clone(), Rng::new(entity, "cfdp")),
                store: MemoryStore::new(),
                config,
                indications: Vec::new(),
                held: None,
                paused: false,
                starts: 0,
                slow: None,
                dies_after: None,
            }
        };
        let mut world = Self {
            now: Time::ZERO,
            sides: [side(ENTITIES[0]), side(ENTITIES[1])],
            info,
            batch: 1,
            events: BTreeMap::new(),
            event: 0,
            sent: [0; 2],
            lose: Box::new(|_, _, _| false),
            log: Vec::new(),
            logging: true,
        };
        for side in 0..2 {
            world.up(side);
        }
        world
    }

    pub(super) fn up(&mut self, side: usize) {
        let event = PathEvent::Up(self.info.clone());
        self.input(side, Input::Path(PATH, event));
    }

    pub(super) fn input(&mut self, side: usize, input: Input<'_>) {
        self.sides[side].entity.handle_input(self.now, input);
        self.drain(side);
    }

    /// Ends a process without a warning and starts it again: only the store survives.
    pub(super) fn restart(&mut self, side: usize) {
        let host = &mut self.sides[side];
        host.store.close_all();
        host.held = None;
        host.paused = false;
        host.starts += 1;
        if let Some(slow) = host.slow.as_mut() {
            slow.clear();
        }
        let rng = Rng::new(ENTITIES[side] + 100 * host.starts, "cfdp");
        host.entity = Entity::new(host.config.clone(), rng);
        self.up(side);
    }

    pub(super) fn put(&mut self, request: PutRequest) -> TransactionId {
        let id = self.sides[0].entity.put(self.now, request).expect("the put is sound");
        self.drain(0);
        id
    }

    /// Does what a driver does before it waits.
    pub(super) fn drain(&mut self, side: usize) {
        loop {
            let mut busy = false;
            while let Some(effect) = self.sides[side].entity.poll_effect() {
                busy = true;
                self.effect(side, effect);
            }
            while let Some(indication) = self.sides[side].entity.poll_indication() {
                busy = true;
                self.sides[side].indications.push(indication);
            }
            if self.sides[side].held.is_none() {
                let mut tx = TxBuf::new(self.batch);
                if let Some(transmit) = self.sides[side].entity.poll_transmit(self.now, &mut tx) {
                    busy = true;
                    self.transmit(side, &tx, transmit);
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn effect(&mut self, side: usize, effect: Effect) {
        match effect {
            Effect::PauseRead { .. } => self.sides[side].paused = true,
            Effect::ResumeRead { .. } => self.sides[side].paused = false,
            effect => {
                match self.sides[side].dies_after.as_mut() {
                    Some(0) => return,
                    Some(left) => *left -= 1,
                    None => {}
                }
                if let Some(slow) = self.sides[side].slow.as_mut() {
                    slow.push(effect);
                } else {
                    self.execute(side, effect);
                }
            }
        }
    }

    fn execute(&mut self, side: usize, effect: Effect) {
        let host = &mut self.sides[side];
        if let Some((ticket, answer)) = host.store.execute(effect) {
            host.entity.handle_input(self.now, Input::Done(ticket, answer));
        }
    }

    /// Carries out what a slow store has waiting.
    pub(super) fn work_off(&mut self, side: usize) {
        let Some(waiting) = self.sides[side].slow.as_mut().map(std::mem::take) else { return };
        for effect in waiting {
            self.execute(side, effect);
        }
        self.drain(side);
    }

    fn transmit(&mut self, side: usize, tx: &TxBuf, transmit: Transmit) {
        let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
        assert!(datagrams.iter().all(|datagram| datagram.len() <= 1472));
        if transmit.not_before > self.now {
            self.sides[side].held = Some((datagrams, transmit.not_before));
        } else {
            self.launch(side, datagrams);
        }
    }

    fn launch(&mut self, side: usize, datagrams: Vec<Vec<u8>>) {
        let mut at = self.now;
        for mut datagram in datagrams {
            let number = self.sent[side];
            self.sent[side] += 1;
            let line = if self.logging { describe(&datagram) } else { String::new() };
            let lost = (self.lose)(side, number, &mut datagram);
            if self.logging {
                self.log.push((at, side, line, lost));
            }
            at += self.info.transmission_time(datagram.len());
            if !lost {
                let delay = self.info.owlt.unwrap_or_default();
                self.event += 1;
                self.events.insert((at + delay, self.event), (1 - side, datagram));
            }
        }
    }

    /// Lets the next thing happen; `false` if nothing is left to happen.
    pub(super) fn step(&mut self) -> bool {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let held = |side: &Side| side.held.as_ref().map(|(_, at)| *at);
        let timer = |side: &Side| side.entity.poll_timeout().map(|deadline| deadline.at);
        let sides = &self.sides;
        let times = [event, held(&sides[0]), held(&sides[1]), timer(&sides[0]), timer(&sides[1])];
        let Some(next) = times.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        if event == Some(next) {
            let (_, (to, datagram)) = self.events.pop_first().expect("there is an event");
            if !self.sides[to].paused {
                self.input(to, Input::Receive(Receive::datagram(PATH, &datagram)));
            }
            return true;
        }
        for side in 0..2 {
            if self.sides[side].held.as_ref().is_some_and(|(_, at)| *at <= self.now) {
                let (datagrams, _) = self.sides[side].held.take().expect("something is held");
                self.launch(side, datagrams);
                self.drain(side);
                return true;
            }
            if timer(&self.sides[side]).is_some_and(|at| at <= self.now) {
                self.sides[side].entity.handle_timeout(self.now);
                self.drain(side);
                let after = timer(&self.sides[side]);
                assert!(after.is_none_or(|at| at > self.now), "a deadline in the past: {after:?}");
                return true;
            }
        }
        true
    }

    /// Runs until nothing is left to happen.
    pub(super) fn run(&mut self) {
        for _ in 0..5_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end at {}: {:?}", self.now, self.sides[0].entity.poll_timeout());
    }

    /// Runs until a moment.
    pub(super) fn run_until(&mut self, until: Time) {
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let sides = self.sides.iter().flat_map(|side| {
            let held = side.held.as_ref().map(|(_, at)| *at);
            [held, side.entity.poll_timeout().map(|deadline| deadline.at)]
        });
        sides.chain([event]).flatten().min()
    }

    /// How a transaction ended at a side; the last word if there are several.
    pub(super) fn finished(&self, side: usize) -> Option<&TransactionFinished> {
        self.sides[side].indications.iter().rev().find_map(|indication| match indication {
            Indication::TransactionFinished(finished) => Some(finished),
            _ => None,
        })
    }

    /// What was said, without times: `>` from the sender, `<` from the receiver, `x` if lost.
    pub(super) fn transcript(&self) -> Vec<String> {
        let line = |(_, side, line, lost): &(Time, usize, String, bool)| {
            format!("{}{} {line}", if *side == 0 { '>' } else { '<' }, if *lost { "x" } else { "" })
        };
        self.log.iter().map(line).collect()
    }
}

fn describe(datagram: &[u8]) -> String {
    match Pdu::decode(datagram).expect("what an entity sends can be read").body {
        Body::FileData(data) => format!("data {}+{}", data.offset, data.data.len()),
        Body::Eof(eof) => format!("EOF {} {}", eof.file_size, eof.condition),
        Body::Finished(finished) => {
            format!(
                "Finished {} {:?} {}",
                finished.condition, finished.delivery, finished.file_status
            )
        }
        Body::Ack(ack) => format!("ACK {} {}", ack.directive, ack.status),
        Body::Metadata(metadata) => format!("Metadata {}", metadata.file_size),
        Body::Nak(nak) => {
            let requests: Vec<_> =
                nak.requests.iter().map(|r| format!("{}-{}", r.start, r.end)).collect();
            format!("NAK {}-{}: {}", nak.scope_start, nak.scope_end, requests.join(" "))
        }
        Body::Prompt(prompt) => format!("Prompt {:?}", prompt.response),
        Body::KeepAlive(keep_alive) => format!("Keep Alive {}", keep_alive.progress),
        Body::Unknown { code, .. } => format!("directive {code}"),
    }
}

/// A file whose bytes all differ from their neighbours'.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub(super) fn name(path: &str) -> FileName {
    FileName::file(path).expect("a plain name")
}

/// A put of a file `source` to `copy`.
pub(super) fn put_request() -> PutRequest {
    PutRequest {
        destination: ENTITIES[1],
        source: Some(name("source")),
        destination_name: "copy".to_owned(),
        ..PutRequest::default()
    }
}

/// Settings with one change for all remotes.
pub(super) fn config(change: impl FnOnce(&mut Remote)) -> Config {
    let mut config = Config { first_sequence: Some(1), ..Config::default() };
    change(&mut config.default_remote);
    config
}

/// Loses the datagrams whose description begins so, each as often as it is named.
pub(super) fn lose_these(names: &[(usize, &str)]) -> Fate {
    let mut names: Vec<(usize, String)> =
        names.iter().map(|(side, name)| (*side, (*name).to_owned())).collect();
    Box::new(move |side, _, datagram| {
        let line = describe(datagram);
        let hit = names.iter().position(|(from, name)| *from == side && line.starts_with(name));
        hit.map(|i| names.remove(i)).is_some()
    })
}
