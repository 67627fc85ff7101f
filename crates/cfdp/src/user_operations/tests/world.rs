//! Entities in a network of links with a delay and losses, each with a store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{
    Area, Effect, Engine, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng,
    Time, TxBuf,
};

use crate::pdu::TransactionId;
use crate::{
    Config, Entity, Indication, OperationIndication, PutRequest, Remote, TransactionFinished,
};

/// One-way delay of every link.
pub(super) const DELAY: Duration = Duration::from_millis(20);

/// Whether a datagram from the first to the second entity is lost.
type Fate = Box<dyn FnMut(u64, u64, &[u8]) -> bool>;

pub(super) struct Host {
    pub(super) entity: Entity,
    pub(super) store: MemoryStore,
    pub(super) config: Config,
    pub(super) indications: Vec<Indication>,
    neighbours: Vec<u64>,
    starts: u64,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: BTreeMap<u64, Host>,
    events: BTreeMap<(Time, u64), (u64, u64, Vec<u8>)>,
    event: u64,
    /// Probability that a datagram is lost.
    pub(super) loss: f64,
    rng: Rng,
    /// Datagrams sent, in all.
    pub(super) sent: u64,
    /// Whether a datagram from the first to the second entity is lost.
    pub(super) lose: Fate,
}

/// A path is numbered by the entity at its other end.
fn path(to: u64) -> PathId {
    PathId(u32::try_from(to).expect("small numbers"))
}

impl World {
    /// Entities with these links. `change` adjusts the settings of each.
    pub(super) fn new(links: &[(u64, u64)], change: impl Fn(u64, &mut Config)) -> Self {
        let numbers: BTreeSet<u64> = links.iter().flat_map(|&(a, b)| [a, b]).collect();
        let mut hosts = BTreeMap::new();
        for &number in &numbers {
            let neighbours: Vec<u64> = links
                .iter()
                .filter_map(|&(a, b)| match (a == number, b == number) {
                    (true, _) => Some(b),
                    (_, true) => Some(a),
                    (false, false) => None,
                })
                .collect();
            let mut config =
                Config { entity: number, first_sequence: Some(1), ..Config::default() };
            for &other in &neighbours {
                let remote = Remote { path: Some(path(other)), ..Remote::default() };
                config.remotes.insert(other, remote);
            }
            change(number, &mut config);
            let entity = Entity::new(config.clone(), Rng::new(number, "cfdp"));
            let host = Host {
                entity,
                store: MemoryStore::new(),
                config,
                indications: Vec::new(),
                neighbours,
                starts: 0,
            };
            hosts.insert(number, host);
        }
        let mut world = Self {
            now: Time::ZERO,
            hosts,
            events: BTreeMap::new(),
            event: 0,
            loss: 0.0,
            rng: Rng::new(1, "loss"),
            sent: 0,
            lose: Box::new(|_, _, _| false),
        };
        for number in numbers {
            world.up(number);
        }
        world
    }

    fn up(&mut self, number: u64) {
        for other in self.hosts[&number].neighbours.clone() {
            let info = PathInfo { owlt: Some(DELAY), ..PathInfo::datagram(1400) };
            self.input(number, Input::Path(path(other), PathEvent::Up(info)));
        }
    }

    pub(super) fn host(&mut self, number: u64) -> &mut Host {
        self.hosts.get_mut(&number).expect("there is such an entity")
    }

    pub(super) fn insert(&mut self, number: u64, file: &str, content: &[u8]) {
        self.host(number).store.insert(name(file), content.to_vec());
    }

    pub(super) fn file(&self, number: u64, file: &str) -> Option<&[u8]> {
        self.hosts[&number].store.get(&name(file))
    }

    /// Makes a request to an entity.
    pub(super) fn ask<T>(&mut self, number: u64, ask: impl FnOnce(&mut Entity, Time) -> T) -> T {
        let now = self.now;
        let answer = ask(&mut self.host(number).entity, now);
        self.drain(number);
        answer
    }

    pub(super) fn put(&mut self, number: u64, request: PutRequest) -> TransactionId {
        self.ask(number, |entity, now| entity.put(now, request)).expect("the put is sound")
    }

    fn input(&mut self, number: u64, input: Input<'_>) {
        let now = self.now;
        self.host(number).entity.handle_input(now, input);
        self.drain(number);
    }

    /// Kills a process and restarts it: only the store survives.
    pub(super) fn restart(&mut self, number: u64) {
        let host = self.host(number);
        host.store.close_all();
        host.starts += 1;
        let rng = Rng::new(number + 100 * host.starts, "cfdp");
        host.entity = Entity::new(host.config.clone(), rng);
        self.drain(number);
        self.up(number);
    }

    fn drain(&mut self, number: u64) {
        loop {
            let mut busy = false;
            let now = self.now;
            let host = self.host(number);
            while let Some(effect) = host.entity.poll_effect() {
                busy = true;
                let Effect::Store(effect) = effect else { continue };
                if let Some((ticket, answer)) = host.store.execute(effect) {
                    host.entity.handle_input(now, Input::Done(ticket, answer));
                }
            }
            while let Some(indication) = host.entity.poll_indication() {
                busy = true;
                host.indications.push(indication);
            }
            let mut tx = TxBuf::new(1);
            let transmit = host.entity.poll_transmit(now, &mut tx);
            if let Some(transmit) = transmit {
                busy = true;
                let to = u64::from(transmit.path.0);
                let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                for datagram in datagrams {
                    self.launch(number, to, datagram);
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn launch(&mut self, from: u64, to: u64, datagram: Vec<u8>) {
        self.sent += 1;
        let unlucky = (self.rng.below(1_000_000) as f64) < self.loss * 1e6;
        if (self.lose)(from, to, &datagram) || unlucky {
            return;
        }
        self.event += 1;
        self.events.insert((self.now + DELAY, self.event), (from, to, datagram));
    }

    fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let timers =
            self.hosts.values().filter_map(|host| host.entity.poll_timeout().map(|d| d.at));
        timers.chain(event).min()
    }

    fn step(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.now = self.now.max(next);
        if self.events.keys().next().is_some_and(|(at, _)| *at <= self.now) {
            let (_, (from, to, datagram)) = self.events.pop_first().expect("there is an event");
            self.input(to, Input::Receive(Receive::datagram(path(from), &datagram)));
            return true;
        }
        let now = self.now;
        let due = |host: &Host| host.entity.poll_timeout().is_some_and(|d| d.at <= now);
        let number = *self.hosts.iter().find(|(_, host)| due(host)).expect("a timer is due").0;
        self.host(number).entity.handle_timeout(now);
        self.drain(number);
        let after = self.hosts[&number].entity.poll_timeout();
        assert!(after.is_none_or(|d| d.at > now), "a deadline in the past: {after:?}");
        true
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end at {}", self.now);
    }

    /// Runs for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// Indications of an entity about user operations.
    pub(super) fn reported(&self, number: u64) -> Vec<&OperationIndication> {
        let indications = self.hosts[&number].indications.iter();
        indications
            .filter_map(|indication| match indication {
                Indication::UserOperation(operation) => Some(operation),
                _ => None,
            })
            .collect()
    }

    /// Result of a transaction at an entity.
    pub(super) fn finished(&self, number: u64, id: TransactionId) -> Option<&TransactionFinished> {
        self.hosts[&number].indications.iter().find_map(|indication| match indication {
            Indication::TransactionFinished(finished) if finished.id == id => Some(finished),
            _ => None,
        })
    }

    /// Asserts that nothing is under way, no working file is left, and no request is kept.
    pub(super) fn assert_clean(&self) {
        for (number, host) in &self.hosts {
            assert_eq!(host.entity.transactions().count(), 0, "entity {number}");
            let spool: Vec<_> = host.store.names(Area::Spool).collect();
            assert!(spool.is_empty(), "entity {number} keeps {spool:?}");
            for (key, value) in host.store.records() {
                let plain = key.starts_with("cfdp-rx-") && value[1] == 3;
                assert!(plain || key == "cfdp-sequence", "entity {number} keeps {key}");
            }
        }
    }
}

pub(super) fn name(path: &str) -> FileName {
    FileName::file(path).expect("a plain name")
}

/// File whose adjacent bytes all differ.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Grants every neighbour the permissions in `change`.
pub(super) fn permit(config: &mut Config, change: impl Fn(&mut crate::Permissions)) {
    for remote in config.remotes.values_mut() {
        change(&mut remote.permissions);
    }
}
