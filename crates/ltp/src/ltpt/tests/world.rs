//! Several engines, their stores, and hops between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{
    Area, Completion, Effect, Engine, FileId, FileName, Input, MemoryStore, PathEvent, PathId,
    PathInfo, Receive, Rng, StoreEffect, Time, TxBuf,
};

pub(super) use crate::test_world::{content, name};

use crate::ltpt::{Config, Otherwise, Routing};
use crate::segment::ltpt::Transport;
use crate::segment::{Body, DataKind, End, Segment, SessionId};
use crate::tests::world::reason_name;
use crate::{Finished, Indication, Node, Red, Remote, SendRequest};

type Settings = crate::Config;

/// A hop between two hosts. Its path has the hop's number at both.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub(super) ends: [usize; 2],
    pub(super) delay: Duration,
    pub(super) rate_bps: u64,
}

/// One host.
pub(super) struct Host {
    pub(super) engine: Node,
    pub(super) store: MemoryStore,
    pub(super) indications: Vec<Indication>,
    held: Option<(PathId, Vec<Vec<u8>>, Time)>,
    open: BTreeMap<FileId, FileName>,
    /// Files with unsynced writes, which a crash loses.
    dirty: BTreeSet<FileName>,
    /// Content of files at their last sync.
    synced: BTreeMap<FileName, Vec<u8>>,
    /// Effects until the process dies.
    pub(super) dies_after: Option<usize>,
    runs: u64,
    /// Expired deadlines of the engine.
    pub(super) wakes: usize,
    settings: Settings,
}

/// Datagram: time, hop, sending end, its number there, its bytes, and whether it was lost.
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) hop: usize,
    pub(super) from: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) lost: bool,
}

/// Whether a datagram is lost: its hop, the sending end, and its number there.
pub(super) type Fate = Box<dyn FnMut(usize, usize, usize) -> bool>;

pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) hops: Vec<Hop>,
    mtu: usize,
    events: BTreeMap<(Time, u64), Event>,
    event: u64,
    down: BTreeSet<usize>,
    /// Hops that are down, announced to their ends.
    known_down: BTreeSet<usize>,
    numbers: BTreeMap<(usize, usize), usize>,
    pub(super) lose: Fate,
    pub(super) log: Vec<Sent>,
}

enum Event {
    Arrival { host: usize, hop: usize, bytes: Vec<u8> },
    Down { hop: usize, is_known: bool },
    Up { hop: usize, is_known: bool },
    Crash { host: usize },
}

/// Settings of host `index` of a chain of `count`, numbered from 1: blocks for higher numbers go
/// up.
pub(super) fn chain_settings(
    index: usize,
    count: usize,
    transport: &Config,
    remote: &Remote,
) -> Settings {
    let own = index as u64 + 1;
    let mut to = BTreeMap::new();
    let mut remotes = BTreeMap::new();
    for other in (1..=count as u64).filter(|other| *other != own) {
        let next = if other > own { own + 1 } else { own - 1 };
        to.insert(other, next);
        // Hop n is between hosts n and n + 1, counted from 0.
        let path = PathId(if next > own { index as u32 } else { index as u32 - 1 });
        remotes.insert(next, Remote { path: Some(path), ..remote.clone() });
    }
    let routing = Routing::Static { to, otherwise: Otherwise::Itself };
    let transport = Some(Config { routing, ..transport.clone() });
    Settings {
        engine: own,
        remotes,
        default_remote: remote.clone(),
        transport,
        ..Settings::default()
    }
}

pub(super) fn small() -> Remote {
    Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() }
}

impl World {
    /// Engines 1, 2, 3 in a row, 25 ms from each other at 10 Mbit/s.
    pub(super) fn chain(count: usize, transport: &Config, remote: &Remote) -> Self {
        let settings = (0..count).map(|i| chain_settings(i, count, transport, remote)).collect();
        let hop =
            |i| Hop { ends: [i, i + 1], delay: Duration::from_millis(25), rate_bps: 10_000_000 };
        Self::of(settings, (0..count - 1).map(hop).collect())
    }

    pub(super) fn of(settings: Vec<Settings>, hops: Vec<Hop>) -> Self {
        Self::with_mtu(settings, hops, 1400)
    }

    /// A world with an MTU of `mtu` bytes.
    pub(super) fn with_mtu(settings: Vec<Settings>, hops: Vec<Hop>, mtu: usize) -> Self {
        let host = |settings: Settings| Host {
            engine: Node::new(settings.clone(), Rng::new(settings.engine, "ltpt")),
            store: MemoryStore::new(),
            indications: Vec::new(),
            held: None,
            open: BTreeMap::new(),
            dirty: BTreeSet::new(),
            synced: BTreeMap::new(),
            dies_after: None,
            runs: 0,
            wakes: 0,
            settings,
        };
        let mut world = Self {
            now: Time::ZERO,
            hosts: settings.into_iter().map(host).collect(),
            hops,
            mtu,
            events: BTreeMap::new(),
            event: 0,
            down: BTreeSet::new(),
            known_down: BTreeSet::new(),
            numbers: BTreeMap::new(),
            lose: Box::new(|_, _, _| false),
            log: Vec::new(),
        };
        for host in 0..world.hosts.len() {
            world.begin(host);
        }
        world
    }

    /// Brings up the paths of a host.
    fn begin(&mut self, host: usize) {
        for hop in 0..self.hops.len() {
            if self.hops[hop].ends.contains(&host) {
                self.path_up(host, hop);
                if self.known_down.contains(&hop) {
                    self.input(host, Input::Path(PathId(hop as u32), PathEvent::Down));
                }
            }
        }
        self.drain(host);
    }

    fn path_up(&mut self, host: usize, hop: usize) {
        let info = PathInfo {
            rate_bps: Some(self.hops[hop].rate_bps),
            overhead: 42,
            owlt: Some(self.hops[hop].delay),
            ..PathInfo::datagram(self.mtu)
        };
        self.input(host, Input::Path(PathId(hop as u32), PathEvent::Up(info)));
    }

    fn at(&mut self, at: Time, event: Event) {
        self.event += 1;
        self.events.insert((at, self.event), event);
    }

    /// Takes a hop down from a moment on, for a time; `is_known` announces it to its ends.
    pub(super) fn outage(&mut self, hop: usize, from: Duration, lasts: Duration, is_known: bool) {
        self.at(Time::ZERO + from, Event::Down { hop, is_known });
        self.at(Time::ZERO + from + lasts, Event::Up { hop, is_known });
    }

    /// Kills the process of a host at a moment, and restarts it at once.
    pub(super) fn crash_at(&mut self, host: usize, at: Duration) {
        self.at(Time::ZERO + at, Event::Crash { host });
    }

    fn crash(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.runs += 1;
        host.store.close_all();
        host.open.clear();
        for name in std::mem::take(&mut host.dirty) {
            if host.store.get(&name).is_some() {
                let left = host.synced.get(&name).cloned().unwrap_or_default();
                host.store.insert(name, left);
            }
        }
        // Like drivers at the start: working files without a record are removed.
        let kept: BTreeSet<String> =
            records(&mut host.store).into_iter().map(|(key, _)| key).collect();
        let spool: Vec<_> = host.store.names(Area::Spool).cloned().collect();
        for name in spool.into_iter().filter(|name| !kept.contains(name.path())) {
            let request = engine::FilestoreRequest::DenyFile(name);
            let ticket = engine::Ticket(u64::MAX);
            host.store.execute(StoreEffect::Filestore { ticket, request });
        }
        host.held = None;
        host.dies_after = None;
        host.engine = Node::new(
            host.settings.clone(),
            Rng::new(host.settings.engine + 1000 * host.runs, "ltpt"),
        );
        self.begin(index);
    }

    pub(super) fn input(&mut self, host: usize, input: Input<'_>) {
        self.hosts[host].engine.handle_input(self.now, input);
        self.drain(host);
    }

    pub(super) fn deliver(&mut self, host: usize, hop: usize, datagram: &[u8]) {
        self.input(host, Input::Receive(Receive::datagram(PathId(hop as u32), datagram)));
    }

    /// Sends a file of these bytes from the first host to another.
    pub(super) fn send(&mut self, to: u64, content: &[u8], red: Red) -> SessionId {
        self.hosts[0].store.insert(name("source"), content.to_vec());
        let (source, copy) = (name("source"), "copy".to_owned());
        let request = SendRequest { destination: to, source, name: copy, red };
        let id = self.hosts[0].engine.send(self.now, request).expect("the request is sound");
        self.drain(0);
        id
    }

    pub(super) fn drain(&mut self, host: usize) {
        loop {
            let mut busy = false;
            while let Some(effect) = self.hosts[host].engine.poll_effect() {
                busy = true;
                if !self.effect(host, effect) {
                    self.crash(host);
                    return;
                }
            }
            while let Some(indication) = self.hosts[host].engine.poll_indication() {
                busy = true;
                self.hosts[host].indications.push(indication);
            }
            if self.hosts[host].held.is_none() {
                let mut tx = TxBuf::new(1);
                if let Some(transmit) = self.hosts[host].engine.poll_transmit(self.now, &mut tx) {
                    busy = true;
                    let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                    if transmit.not_before > self.now {
                        self.hosts[host].held =
                            Some((transmit.path, datagrams, transmit.not_before));
                    } else {
                        self.launch(host, transmit.path, datagrams);
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// Executes an effect; `false` if the process dies first.
    fn effect(&mut self, host: usize, effect: Effect) -> bool {
        let Effect::Store(effect) = effect else { return true };
        let host = &mut self.hosts[host];
        match host.dies_after.as_mut() {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        let opened = match &effect {
            StoreEffect::Open { name, .. } => {
                host.synced.remove(name);
                Some(name.clone())
            }
            StoreEffect::Write { file, .. } => {
                host.dirty.extend(host.open.get(file).cloned());
                None
            }
            StoreEffect::Sync { file, .. } => {
                if let Some(name) = host.open.get(file) {
                    host.dirty.remove(name);
                    let content = host.store.get(name).unwrap_or_default().to_vec();
                    host.synced.insert(name.clone(), content);
                }
                None
            }
            _ => None,
        };
        if let Some((ticket, result)) = host.store.execute(effect) {
            if let (Some(name), Ok(Completion::Opened { file, .. })) = (opened, &result) {
                host.open.insert(*file, name);
            }
            host.engine.handle_input(self.now, Input::Done(ticket, result));
        }
        true
    }

    fn launch(&mut self, host: usize, path: PathId, datagrams: Vec<Vec<u8>>) {
        let hop = path.0 as usize;
        let Hop { ends, delay, rate_bps } = self.hops[hop].clone();
        let from = usize::from(ends[1] == host);
        for bytes in datagrams {
            let number = self.numbers.entry((hop, from)).or_default();
            let lost = (self.lose)(hop, from, *number) || self.down.contains(&hop);
            *number += 1;
            self.log.push(Sent { at: self.now, hop, from, bytes: bytes.clone(), lost });
            if !lost {
                let took =
                    Duration::from_nanos((bytes.len() as u64 + 42) * 8_000_000_000 / rate_bps);
                let to = ends[1 - from];
                self.at(self.now + took + delay, Event::Arrival { host: to, hop, bytes });
            }
        }
    }

    fn next_time(&self) -> Option<Time> {
        let hosts = self.hosts.iter().flat_map(|host| {
            let held = host.held.as_ref().map(|(_, _, at)| *at);
            [held, host.engine.poll_timeout().map(|deadline| deadline.at)]
        });
        hosts.chain([self.events.keys().next().map(|(at, _)| *at)]).flatten().min()
    }

    /// Executes the next event; `false` if there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.now = self.now.max(next);
        if self.events.keys().next().is_some_and(|(at, _)| *at == next) {
            let (_, event) = self.events.pop_first().expect("there is one");
            self.happen(event);
            return true;
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].held.as_ref().is_some_and(|(_, _, at)| *at <= self.now) {
                let (path, datagrams, _) = self.hosts[host].held.take().expect("something is held");
                self.launch(host, path, datagrams);
                self.drain(host);
                return true;
            }
            let timer = |world: &Self| world.hosts[host].engine.poll_timeout().map(|d| d.at);
            if timer(self).is_some_and(|at| at <= self.now) {
                self.hosts[host].wakes += 1;
                self.hosts[host].engine.handle_timeout(self.now);
                self.drain(host);
                let after = timer(self);
                assert!(after.is_none_or(|at| at > self.now), "a deadline in the past: {after:?}");
                return true;
            }
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival { host, hop, bytes } => self.deliver(host, hop, &bytes),
            Event::Down { hop, is_known } => {
                self.down.insert(hop);
                if is_known {
                    self.known_down.insert(hop);
                    for host in self.hops[hop].ends {
                        self.input(host, Input::Path(PathId(hop as u32), PathEvent::Down));
                    }
                }
            }
            Event::Up { hop, is_known } => {
                self.down.remove(&hop);
                if is_known || self.known_down.remove(&hop) {
                    for host in self.hops[hop].ends {
                        self.path_up(host, hop);
                    }
                }
            }
            Event::Crash { host } => self.crash(host),
        }
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        for _ in 0..300_000 {
            if !self.step() {
                return;
            }
        }
        for line in self.transcript().iter().rev().take(60).rev() {
            eprintln!("{line}");
        }
        let timers: Vec<_> = self.hosts.iter().map(|h| h.engine.poll_timeout()).collect();
        panic!("no end at {}: {timers:?}", self.now);
    }

    pub(super) fn run_until(&mut self, until: Duration) {
        while self.next_time().is_some_and(|at| at <= Time::ZERO + until) {
            self.step();
        }
        self.now = self.now.max(Time::ZERO + until);
    }

    pub(super) fn copy(&self, host: usize) -> Option<&[u8]> {
        self.hosts[host].store.get(&name("copy"))
    }

    /// Results of the sessions reported to a host's user.
    pub(super) fn finished(&self, host: usize) -> Vec<&Finished> {
        let all = self.hosts[host].indications.iter();
        let ended = all.filter_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        });
        ended.collect()
    }

    /// Indications of a host about relayed blocks.
    pub(super) fn transport_indications(&self, host: usize) -> Vec<crate::ltpt::Indication> {
        let transport = |indication: &Indication| match indication {
            Indication::Transport(indication) => Some(*indication),
            _ => None,
        };
        self.hosts[host].indications.iter().filter_map(transport).collect()
    }

    /// Checks that nothing is left of any transfer: no session, working file, record or byte of
    /// storage.
    pub(super) fn assert_clean(&mut self) {
        for host in &mut self.hosts {
            let engine = host.settings.engine;
            assert_eq!(host.engine.sessions().count(), 0, "engine {engine} has sessions");
            assert_eq!((host.engine.transfers(), host.engine.stored()), (0, 0), "engine {engine}");
            let spool: Vec<_> = host.store.names(Area::Spool).collect();
            assert!(spool.is_empty(), "engine {engine} keeps {spool:?}");
            let mut records = records(&mut host.store);
            // The mark of an earlier run stays until its sender is received again, if ever.
            records.retain(|(key, _)| host.runs == 0 || !key.starts_with("ltp-"));
            // Received files are remembered.
            records.retain(|(key, _)| !key.starts_with("ltpd-"));
            assert!(records.is_empty(), "engine {engine} keeps {records:?}");
        }
    }

    /// Asserts that the file arrived at the last host, that both ends are informed, and that
    /// nothing is left.
    pub(super) fn assert_delivered(&mut self, content: &[u8]) {
        let last = self.hosts.len() - 1;
        assert!(self.copy(last) == Some(content), "{:#?}", self.transcript());
        for host in [0, last] {
            let results: Vec<_> =
                self.finished(host).iter().map(|finished| finished.result).collect();
            assert_eq!(results, [Ok(())], "host {host}: {:#?}", self.transcript());
        }
        self.assert_clean();
    }

    /// Checks that a relay only forwards data it received: bytes on a hop arrived on the one
    /// before.
    pub(super) fn assert_nothing_is_invented(&self) {
        let mut came = BTreeMap::new();
        for sent in &self.log {
            let segment = Segment::decode(&sent.bytes).expect("what an engine sends can be read");
            let Body::Data(data) = segment.body else { continue };
            for (at, byte) in (data.offset..).zip(data.data) {
                let before = sent.hop.checked_sub(1).map(|hop| came.get(&(hop, at)));
                assert!(before.is_none_or(|b| b == Some(byte)), "hop {}, byte {at}", sent.hop);
                if !sent.lost {
                    came.insert((sent.hop, at), *byte);
                }
            }
        }
    }

    /// Transcript: the hop, `>` up and `<` down, `x` if lost.
    pub(super) fn transcript(&self) -> Vec<String> {
        let line = |sent: &Sent| {
            let (way, lost) =
                (if sent.from == 0 { '>' } else { '<' }, if sent.lost { "x" } else { "" });
            format!("{} {way}{lost} {}", sent.hop, describe(&sent.bytes))
        };
        self.log.iter().map(line).collect()
    }
}

fn records(store: &mut MemoryStore) -> Vec<(String, bytes::Bytes)> {
    let (ticket, request) =
        (engine::Ticket(u64::MAX), engine::IndexRequest::Load { prefix: String::new() });
    match store.execute(StoreEffect::Index { ticket, request }) {
        Some((_, Ok(Completion::Records(records)))) => records,
        other => panic!("records can be read: {other:?}"),
    }
}

/// One segment, without random numbers.
pub(super) fn describe(datagram: &[u8]) -> String {
    let segment = Segment::decode(datagram).expect("what an engine sends can be read");
    let transport = Transport::from_extensions(segment.header).expect("and its extensions");
    match segment.body {
        Body::Data(data) => {
            let color = match data.kind {
                DataKind::Red => "red",
                DataKind::Checkpoint => "red CP",
                DataKind::EndOfRedPart => "red EORP",
                DataKind::EndOfRedBlock => "red EOB",
                DataKind::Green => "green",
                DataKind::EndOfGreenBlock => "green EOB",
            };
            format!("{color} {}-{}", data.offset, data.offset + data.data.len() as u64)
        }
        Body::Report(report) => {
            let claims: Vec<_> =
                report.received().map(|(start, end)| format!("{start}-{end}")).collect();
            format!("RS {}-{}: {}", report.lower, report.upper, claims.join(" "))
        }
        Body::ReportAck { .. } => "RA".to_owned(),
        Body::Cancel { by, reason } => {
            let kind = if by == End::Sender { "CS" } else { "CR" };
            let short = transport.congestion.map(|c| format!(", wait {} s", c.retry_after_s));
            format!("{kind} {}{}", reason_name(reason), short.unwrap_or_default())
        }
        Body::CancelAck { by: End::Sender } => "CAS".to_owned(),
        Body::CancelAck { by: End::Receiver } => "CAR".to_owned(),
    }
}
