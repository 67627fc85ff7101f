//! Two hosts with stores, connected by IP packets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{
    Completion, Effect, EffectError, Engine, Input, MemoryStore, PathEvent, PathId, PathInfo,
    Receive, Rng, Ticket, Time, TxBuf,
};

use super::super::{Config, OverTcp};

/// Interface of both hosts.
pub(super) const INTERFACE: PathId = PathId(0);
/// Path of the first host to the second one's service.
pub(super) const SERVICE: PathId = PathId(1);
/// Port of the service.
pub(super) const PORT: u16 = 21;

/// Delays of a packet beyond the usual, one for each copy that arrives, given the sending host,
/// the packet's number and its bytes.
pub(super) type Fate = Box<dyn FnMut(usize, usize, &[u8]) -> Vec<Duration>>;

pub(super) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], PORT))
}

/// Settings of the first host, which has the address of the second, or of the second, which
/// listens.
pub(super) fn config(host: usize) -> Config {
    let mut config = Config { addresses: vec![address(host).ip()], ..Config::default() };
    match host {
        0 => _ = config.peers.insert(SERVICE, address(1)),
        _ => config.listen.push(address(1)),
    }
    config
}

pub(super) struct Host<A: Engine> {
    /// `None` while it is off.
    pub(super) engine: Option<OverTcp<A>>,
    pub(super) store: MemoryStore,
    pub(super) indications: Vec<A::Indication>,
    pub(super) sent: usize,
    blocked: bool,
}

enum Event {
    Packet(usize, Vec<u8>),
    Completion(usize, Ticket, Result<Completion, EffectError>),
}

pub(super) struct World<A: Engine> {
    pub(super) now: Time,
    pub(super) hosts: [Host<A>; 2],
    events: BTreeMap<(Time, u64), Event>,
    serial: u64,
    pub(super) steps: u64,
    pub(super) delay: Duration,
    pub(super) fate: Fate,
    /// Rate in bit/s in each direction, and the times at which each is free.
    pub(super) rate_bps: u64,
    free_at: [Time; 2],
    pub(super) batch: usize,
    /// Maximum memory held by a host.
    pub(super) memory: usize,
}

impl<A: Engine> World<A> {
    pub(super) fn new(configs: [Config; 2], mut above: impl FnMut(usize) -> A, seed: u64) -> Self {
        let mut number = 0;
        let hosts = configs.map(|config| {
            let rng = Rng::new(seed, if number == 0 { "first" } else { "second" });
            let engine = Some(OverTcp::new(config, above(number), rng));
            number += 1;
            Host {
                engine,
                store: MemoryStore::new(),
                indications: Vec::new(),
                sent: 0,
                blocked: false,
            }
        });
        let mut world = Self {
            now: Time::from_secs(100),
            hosts,
            events: BTreeMap::new(),
            serial: 0,
            steps: 0,
            delay: Duration::from_millis(50),
            fate: Box::new(|_, _, _| vec![Duration::ZERO]),
            rate_bps: 10_000_000,
            free_at: [Time::ZERO; 2],
            batch: 16,
            memory: 0,
        };
        for host in 0..2 {
            world.path(host, PathEvent::Up(PathInfo::datagram(1500)));
        }
        world
    }

    pub(super) fn path(&mut self, host: usize, event: PathEvent) {
        match event {
            PathEvent::Blocked | PathEvent::Down => self.hosts[host].blocked = true,
            PathEvent::Up(_) | PathEvent::Writable => self.hosts[host].blocked = false,
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
        }
        self.input(host, Input::Path(INTERFACE, event));
    }

    fn input(&mut self, host: usize, input: Input<'_>) {
        let Some(engine) = &mut self.hosts[host].engine else { return };
        engine.handle_input(self.now, input);
        self.drain(host);
    }

    /// Switches a host off; only its store survives.
    pub(super) fn kill(&mut self, host: usize) {
        self.hosts[host].engine = None;
    }

    /// Switches it on again.
    pub(super) fn boot(&mut self, host: usize, config: Config, above: A) {
        let rng = Rng::new(self.steps, "again");
        self.hosts[host].engine = Some(OverTcp::new(config, above, rng));
        self.path(host, PathEvent::Up(PathInfo::datagram(1500)));
    }

    pub(super) fn on<R>(&mut self, host: usize, call: impl FnOnce(&mut A) -> R) -> R {
        let now = self.now;
        let engine = self.hosts[host].engine.as_mut().expect("it is on");
        let result = engine.call(now, call);
        self.drain(host);
        result
    }

    pub(super) fn above(&self, host: usize) -> &A {
        self.hosts[host].engine.as_ref().expect("it is on").above()
    }

    pub(super) fn drain(&mut self, host: usize) {
        let mut tx = TxBuf::new(self.batch);
        for _ in 0..100_000 {
            let mut busy = false;
            let now = self.now;
            let Some(engine) = &mut self.hosts[host].engine else { return };
            tx.clear();
            let transmit = engine.poll_transmit(now, &mut tx);
            if let Some(transmit) = transmit {
                busy = true;
                assert!(!self.hosts[host].blocked, "nothing is sent on a blocked path");
                assert_eq!(transmit.path, INTERFACE);
                let at = now.max(transmit.not_before);
                let packets: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                packets.iter().for_each(|packet| self.launch(host, at, packet));
            }
            let here = &mut self.hosts[host];
            let Some(engine) = &mut here.engine else { return };
            while let Some(indication) = engine.poll_indication() {
                busy = true;
                here.indications.push(indication);
            }
            while let Some(effect) = engine.poll_effect() {
                busy = true;
                let Effect::Store(effect) = effect else { panic!("a path effect: {effect:?}") };
                if let Some((ticket, result)) = here.store.execute(effect) {
                    self.serial += 1;
                    let key = (now + Duration::from_millis(1), self.serial);
                    self.events.insert(key, Event::Completion(host, ticket, result));
                }
            }
            if !busy {
                self.memory = self.memory.max(engine.memory());
                return;
            }
        }
        panic!("a drain does not end");
    }

    fn launch(&mut self, from: usize, at: Time, packet: &[u8]) {
        let number = self.hosts[from].sent;
        self.hosts[from].sent += 1;
        let took = Duration::from_nanos(packet.len() as u64 * 8_000_000_000 / self.rate_bps);
        let gone = self.free_at[from].max(at) + took;
        self.free_at[from] = gone;
        for later in (self.fate)(from, number, packet) {
            self.serial += 1;
            let key = (gone + self.delay + later, self.serial);
            self.events.insert(key, Event::Packet(1 - from, packet.to_vec()));
        }
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|key| key.0);
        let engines = self.hosts.iter().filter_map(|host| host.engine.as_ref());
        let timers = engines.filter_map(|engine| engine.poll_timeout().map(|next| next.at));
        timers.chain(event).min()
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.steps += 1;
        self.now = self.now.max(next);
        let now = self.now;
        if let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Event::Packet(to, packet) => {
                    self.input(to, Input::Receive(Receive::datagram(INTERFACE, &packet)));
                }
                Event::Completion(host, ticket, result) => {
                    self.input(host, Input::Done(ticket, result));
                }
            }
            return true;
        }
        for host in 0..2 {
            let Some(engine) = &mut self.hosts[host].engine else { continue };
            if engine.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
                engine.handle_timeout(now);
                self.drain(host);
                let engine = self.hosts[host].engine.as_ref().expect("it is on");
                let after = engine.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > now), "{after:?}");
            }
        }
        true
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        let most = self.steps + 2_000_000;
        while self.step() {
            assert!(self.steps < most, "it does not end: {:?}", self.next_time());
        }
        for host in &self.hosts {
            let Some(engine) = &host.engine else { continue };
            assert_eq!(engine.below().connections().count(), 0, "a connection is left");
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }
}
