//! Datagrams of several protocols at one port.

use std::collections::BTreeMap;

use engine::conformance::{self, Options, Subject, Verdict};
use engine::{FileName, MemoryStore, drain};

use super::*;
use crate::adapter::configure;
use crate::contract::{Process, Role};
use crate::event::Ended;

const PROCESS: Process = Process {
    role: Role::Server { gets: false, deletes: false },
    catch_up: Duration::ZERO,
    unpaced_window: 1 << 20,
    reply_interval: Duration::from_secs(1),
    is_group: false,
    clock_ms: 0,
    rate_bps: None,
    remote: None,
    udp_lite: false,
};

/// Configuration of a process for a protocol.
fn configured(protocol: Protocol, number: u64, role: Role) -> (Box<dyn Configuration>, Protocol) {
    let process = Process { role, ..PROCESS };
    let mut configuration = configure(&protocol, number, None).unwrap();
    configuration.prepare(&process).unwrap();
    configuration.finish(&process).unwrap();
    (configuration, protocol)
}

fn door(seed: u64) -> Door {
    let members = protocols().map(|protocol| configured(protocol, 2, PROCESS.role));
    Door::new(&members.collect::<Vec<_>>(), &mut Rng::new(seed, "door"))
}

/// Path of a sender in its own engine.
const AWAY: PathId = PathId(0);

fn up(path: PathId) -> Input<'static> {
    Input::Path(path, PathEvent::Up(PathInfo::datagram(1400)))
}

/// A sender of one file.
struct Sender {
    /// Its path at the door.
    path: PathId,
    kind: &'static str,
    transport: Box<dyn Transport>,
    store: MemoryStore,
    end: Option<Ended>,
}

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed, "content").fill(&mut bytes);
    bytes
}

impl Sender {
    /// Sends a file called like the path, of this length.
    fn new(name: &'static str, path: u32, len: usize) -> Self {
        let (mut configuration, protocol) =
            configured(name.parse().unwrap(), u64::from(10 + path), Role::Client { keeps: false });
        configuration.set_path(2, AWAY);
        let mut transport = configuration.build(Rng::new(u64::from(path), "sender"));
        let mut store = MemoryStore::default();
        let file = FileName::file("f").unwrap();
        store.insert(file.clone(), content(len, path.into()));
        transport.handle_input(Time::ZERO, up(AWAY));
        drain(Time::ZERO, &mut transport, &mut store);
        let request = SendRequest::new(file, &format!("f{path}"), 2, protocol.kind);
        transport.send(Time::ZERO, &request).unwrap();
        Self { path: PathId(path), kind: protocol.kind.name(), transport, store, end: None }
    }
}

/// A door with its store, and senders; datagrams arrive at once.
struct World {
    now: Time,
    door: Door,
    store: MemoryStore,
    senders: Vec<Sender>,
    ends: Vec<Ended>,
    /// Datagrams that reached the door.
    datagrams: u64,
}

impl World {
    fn new(senders: Vec<Sender>) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            door: door(1),
            store: MemoryStore::default(),
            senders,
            ends: Vec::new(),
            datagrams: 0,
        };
        world.restart(1);
        world
    }

    /// Replaces the door by a new one with the same store.
    fn restart(&mut self, seed: u64) {
        self.door = door(seed);
        self.store.close_all();
        for sender in &self.senders {
            self.door.handle_input(self.now, up(sender.path));
        }
    }

    fn drain_door(&mut self) -> bool {
        let drained = drain(self.now, &mut self.door, &mut self.store);
        self.ends.extend(drained.indications.iter().filter_map(Event::end));
        for datagram in &drained.datagrams {
            let sender = self.senders.iter_mut().find(|sender| sender.path == datagram.path);
            let received = Receive::datagram(AWAY, &datagram.bytes);
            sender.unwrap().transport.handle_input(self.now, Input::Receive(received));
        }
        !drained.datagrams.is_empty()
    }

    /// Exchanges datagrams until nobody has any, or this many have arrived.
    fn settle(&mut self, most: u64) {
        let mut is_busy = true;
        while is_busy && self.datagrams < most {
            is_busy = self.drain_door();
            for place in 0..self.senders.len() {
                let sender = &mut self.senders[place];
                let drained = drain(self.now, &mut sender.transport, &mut sender.store);
                let mut events = drained.indications.into_iter();
                let ended = events.find_map(|event| sender.transport.reported(event).end());
                sender.end = ended.or(sender.end.take());
                let path = sender.path;
                for datagram in drained.datagrams {
                    is_busy = true;
                    self.datagrams += 1;
                    let received = Receive::datagram(path, &datagram.bytes);
                    self.door.handle_input(self.now, Input::Receive(received));
                }
            }
        }
    }

    /// Runs until all senders are done, or this many datagrams have arrived.
    fn run(&mut self, most: u64) {
        for _ in 0..20_000 {
            self.settle(most);
            let is_over = self.senders.iter().all(|sender| sender.end.is_some());
            if is_over || self.datagrams >= most {
                return;
            }
            let senders = self.senders.iter().map(|sender| sender.transport.poll_timeout());
            let next = senders.chain([self.door.poll_timeout()]).flatten().map(|it| it.at).min();
            let Some(next) = next else { return };
            self.now = self.now.max(next);
            self.door.handle_timeout(self.now);
            for sender in &mut self.senders {
                sender.transport.handle_timeout(self.now);
            }
        }
    }

    fn assert_complete(&self, len: usize) {
        for sender in &self.senders {
            let path = sender.path.0;
            let file = FileName::file(&format!("f{path}")).unwrap();
            let stored = self.store.get(&file);
            assert!(stored == Some(&content(len, path.into())), "{} at path {path}", sender.kind);
            assert!(sender.end.as_ref().unwrap().is_success(), "{}", sender.kind);
        }
    }
}

const SENDERS: [&str; 9] = [
    "cfdp",
    "cfdp-1",
    "ltp",
    "ltp-green",
    "saratoga",
    "saratoga-blind",
    "norm",
    "norm/coded",
    "norm/coded-cc",
];

fn senders(len: usize) -> Vec<Sender> {
    SENDERS.into_iter().zip(0..).map(|(name, path)| Sender::new(name, path, len)).collect()
}

#[test]
fn senders_of_all_protocols_send_at_once() {
    const LEN: usize = 60_000;
    let mut world = World::new(senders(LEN));
    world.run(u64::MAX);
    world.assert_complete(LEN);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for end in &world.ends {
        assert!(end.is_success(), "{end:?}");
        *names.entry(end.id.protocol().unwrap()).or_default() += 1;
    }
    let expected = [("cfdp", 2), ("ltp", 2), ("norm", 3), ("saratoga", 2)];
    assert_eq!(names, BTreeMap::from(expected));
    assert_eq!(world.door.unknown(), 0);
}

#[test]
fn a_killed_door_resumes_each_protocol() {
    const LEN: usize = 400_000;
    for (seed, most) in (2..).zip([40, 300, 700, 1200]) {
        let mut world = World::new(senders(LEN));
        world.run(most);
        // Records of all protocols are in one store.
        world.restart(seed);
        world.datagrams = 0;
        world.run(u64::MAX);
        for sender in &world.senders {
            let file = FileName::file(&format!("f{}", sender.path.0)).unwrap();
            let content = content(LEN, sender.path.0.into());
            let stored = world.store.get(&file);
            // Senders without acknowledgements do not repeat what the killed door lost.
            let is_lossy = ["cfdp-1", "ltp-green", "saratoga-blind"].contains(&sender.kind);
            let is_there = stored.is_some();
            assert!(is_there || is_lossy, "{} after {most}", sender.kind);
            assert!(!is_there || stored == Some(&content), "{} is not whole", sender.kind);
        }
    }
}

#[test]
fn no_transport_sees_the_records_of_another() {
    let mut world = World::new(senders(400_000));
    world.run(900);
    world.drain_door();
    let keys: Vec<String> = world.store.records().map(|(key, _)| key.to_owned()).collect();
    // NORM keeps none of files that arrive within two seconds.
    for name in ["cfdp", "ltp", "saratoga"] {
        let mut members = world.door.members.iter();
        let member = members.find(|member| member.name == name).unwrap();
        assert!(keys.iter().any(|key| member.owns(key)), "{name} has no record among {keys:?}");
    }
    for key in keys.iter().map(String::as_str).chain(["norm-0000000000000001"]) {
        let owners = world.door.members.iter().filter(|member| member.owns(key)).count();
        assert_eq!(owners, 1, "{key}");
    }
}

/// First datagrams of senders of each protocol.
fn first_datagrams() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut firsts = Vec::new();
    for (name, path) in SENDERS.into_iter().zip(0..) {
        let mut sender = Sender::new(name, path, 60_000);
        let drained = drain(Time::ZERO, &mut sender.transport, &mut sender.store);
        let bytes = drained.datagrams.into_iter().map(|datagram| datagram.bytes).collect();
        firsts.push((sender.kind, bytes));
    }
    firsts
}

/// Name of the protocol of a sender's kind behind the door.
fn door_name(kind: &str) -> &'static str {
    let dissector = |kind: &str| Kind::named(kind).unwrap().dissector();
    let mut names = protocols().map(|protocol| protocol.kind.name());
    names.find(|name| dissector(name) == dissector(kind)).unwrap()
}

#[test]
fn every_datagram_of_a_sender_decides() {
    for (kind, datagrams) in first_datagrams() {
        assert!(!datagrams.is_empty(), "{kind}");
        for datagram in datagrams {
            let mut door = door(3);
            door.handle_input(Time::ZERO, up(PathId(1)));
            door.handle_input(Time::ZERO, Input::Receive(Receive::datagram(PathId(1), &datagram)));
            assert_eq!(door.protocol_of(PathId(1)), Some(door_name(kind)), "{kind}: {datagram:?}");
        }
    }
}

#[test]
fn ten_thousand_random_or_hostile_first_datagrams_are_nobodys() {
    let mut rng = Rng::new(7, "hostile");
    let firsts: Vec<Vec<u8>> =
        first_datagrams().into_iter().flat_map(|(_, datagrams)| datagrams).collect();
    let mut door = door(4);
    let mut store = MemoryStore::default();
    let mut expected = 0;
    for number in 0..10_000 {
        let path = PathId(number);
        let len = 1 + rng.below(1_472) as usize;
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        match number % 5 {
            // Random bytes behind a first byte that some protocol has.
            1 => bytes[0] = [0x00, 0x03, 0x0c, 0x10, 0x12, 0x13, 0x20, 0x22, 0x23, 0x30][len % 10],
            // Zeros and ones.
            2 => bytes.fill([0x00, 0xff][len % 2]),
            // A datagram of a sender without its end, or with more behind it.
            3 => {
                let first = &firsts[rng.below(firsts.len() as u64) as usize];
                bytes = first[..rng.below(first.len() as u64) as usize].to_vec();
            }
            4 => {
                let first = &firsts[rng.below(firsts.len() as u64) as usize];
                bytes = [&first[..], &[0x5a; 4][..len % 4 + 1]].concat();
            }
            _ => {}
        }
        let reader = begun_with(&bytes);
        door.handle_input(Time::ZERO, up(path));
        door.handle_input(Time::ZERO, Input::Receive(Receive::datagram(path, &bytes)));
        drain(Time::ZERO, &mut door, &mut store);
        assert_eq!(door.protocol_of(path).is_some(), reader.is_some());
        // Only NORM and Saratoga have no length: data that is cut or longer is still theirs.
        let has_length = [&crate::dissect::cfdp::DISSECTOR, &crate::dissect::ltp::DISSECTOR];
        let is_open = reader.is_some_and(|reader| !has_length.contains(&reader));
        assert!(reader.is_none() || number % 5 >= 3 && is_open, "{number}: {bytes:?}");
        expected += u32::from(reader.is_none());
        door.handle_input(Time::ZERO, Input::Path(path, PathEvent::Down));
    }
    assert_eq!(door.unknown(), u64::from(expected));
    drain(Time::ZERO, &mut door, &mut store);
    assert_eq!(door.counters().datagrams.unwrap().1, u64::from(10_000 - expected));
}

#[test]
fn a_path_changes_its_protocol_only_while_it_is_idle() {
    let at = |door: &Door| door.protocol_of(PathId(1));
    let firsts = first_datagrams();
    let of_kind = |name: &str| firsts.iter().find(|(kind, _)| *kind == name).unwrap().1[0].clone();
    let (cfdp, ltp, norm) = (of_kind("cfdp"), of_kind("ltp"), of_kind("norm"));
    let mut door = door(5);
    let mut store = MemoryStore::default();
    drain(Time::ZERO, &mut door, &mut store);
    door.handle_input(Time::ZERO, up(PathId(1)));
    // A single batch: the driver pulls effects only after it.
    for (datagram, now) in [(&cfdp, "cfdp"), (&ltp, "cfdp"), (&norm, "cfdp")] {
        let received = Receive::datagram(PathId(1), datagram);
        door.handle_input(Time::ZERO, Input::Receive(received));
        assert_eq!(at(&door), Some(now));
    }
    assert_eq!(door.under_way(), 1);
    let id = door.transfers()[0].id.clone();
    door.cancel(Time::ZERO, &id);
    let mut now = Time::ZERO;
    while door.under_way() > 0 {
        drain(now, &mut door, &mut store);
        let Some(deadline) = door.poll_timeout() else { break };
        now = deadline.at;
        door.handle_timeout(now);
    }
    drain(now, &mut door, &mut store);
    door.handle_input(now, Input::Receive(Receive::datagram(PathId(1), &ltp)));
    assert_eq!((at(&door), door.under_way()), (Some("ltp"), 1));
}

#[test]
fn the_table_of_paths_is_that_of_the_driver() {
    let firsts = first_datagrams();
    let mut door = door(6);
    let mut store = MemoryStore::default();
    for number in 0..5_000 {
        let (_, datagrams) = &firsts[number as usize % firsts.len()];
        door.handle_input(Time::ZERO, up(PathId(number)));
        let received = Receive::datagram(PathId(number), &datagrams[0]);
        door.handle_input(Time::ZERO, Input::Receive(received));
        drain(Time::ZERO, &mut door, &mut store);
        // The driver forgets the oldest peer.
        if let Some(oldest) = number.checked_sub(64) {
            door.handle_input(Time::ZERO, Input::Path(PathId(oldest), PathEvent::Down));
            drain(Time::ZERO, &mut door, &mut store);
        }
        assert!(door.paths() <= 65 + door.under_way(), "{} paths", door.paths());
    }
}

/// Suite of the engine contract with a door as the receiver of a protocol.
struct Behind(&'static str);

impl Subject for Behind {
    type Engine = Box<dyn Transport>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Self::Engine {
        // Processes keep silent transfers for hours.
        if role == conformance::Role::Receiver {
            let members = protocols().map(|it| (configure(&it, 2, None).unwrap(), it));
            return Box::new(Door::new(&members.collect::<Vec<_>>(), &mut Rng::new(seed, "door")));
        }
        let mut configuration = configure(&self.0.parse().unwrap(), 1, None).unwrap();
        configuration.set_path(2, conformance::PATH);
        configuration.build(Rng::new(seed, "sender"))
    }

    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool {
        let protocol: Protocol = self.0.parse().unwrap();
        let request = SendRequest::new(conformance::source(), "copy", 2, protocol.kind);
        engine.is_ready() && engine.send(now, &request).is_ok()
    }

    fn verdict(&self, _role: conformance::Role, event: &Event) -> Option<Verdict> {
        if let Event::Abandoned { .. } = event {
            return Some(Verdict::Failed);
        }
        if let Event::Entity(indication) = event
            && let cfdp::Indication::Abandoned { .. } = **indication
        {
            return Some(Verdict::Failed);
        }
        let ended = event.end()?;
        Some(match (ended.is_success(), ended.is_confirmed) {
            (true, true) => Verdict::Delivered,
            (true, false) => Verdict::Unconfirmed,
            (false, _) => Verdict::Failed,
        })
    }

    fn is_busy(&self, engine: &Self::Engine) -> bool {
        engine.under_way() > 0
    }

    /// The suites of the protocols measure memory.
    fn memory(&self, _engine: &Self::Engine) -> usize {
        0
    }

    fn memory_max(&self) -> usize {
        0
    }

    fn path(&self) -> PathInfo {
        PathInfo { rate_bps: Some(1_000_000), overhead: 42, ..PathInfo::datagram(256) }
    }

    fn detects_damage(&self) -> bool {
        false
    }
}

#[test]
fn a_door_keeps_the_contract_of_engines() {
    let options = Options { runs: 4, fuzz: 300, flood: 500, positions: 8, ..Options::default() };
    for name in ["cfdp", "ltp", "saratoga", "norm"] {
        conformance::check_all(&Behind(name), &options);
    }
}
