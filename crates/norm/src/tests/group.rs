//! Nodes on one link that receive each other's messages to the group, each with its own losses.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Ecn, Effect, Engine, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time, TxBuf,
};

use super::world::name;
use crate::message::{Body, Command, Message};
use crate::{Config, Content, Finished, Indication, Node, ObjectId, SendRequest};

pub(super) const GROUP: PathId = PathId(1);

/// Number of the path to the first host.
const FIRST: u32 = 100;

/// One-way delay between hosts.
pub(super) const DELAY: Duration = Duration::from_millis(25);

pub(super) struct Host {
    pub(super) node: Node,
    pub(super) store: MemoryStore,
    pub(super) indications: Vec<Indication>,
    held: Option<(PathId, Vec<Vec<u8>>, Time)>,
    /// Receives and sends nothing while off.
    pub(super) is_on: bool,
}

/// Whether a message from one host is lost on the way to another; the third number counts that
/// host's messages.
type Losses = Box<dyn FnMut(usize, usize, usize, &Message<'_>) -> bool>;

/// Receiver, its path, sender, and datagram.
type Arrival = (usize, PathId, usize, Vec<u8>);

pub(super) struct Group {
    pub(super) now: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) info: PathInfo,
    pub(super) lose: Losses,
    pub(super) log: Vec<(Time, usize, Vec<u8>)>,
    sent: Vec<usize>,
    events: BTreeMap<(Time, u64), Arrival>,
    event: u64,
}

/// Path to a host.
pub(super) fn path_to(host: usize) -> PathId {
    PathId(FIRST + host as u32)
}

impl Group {
    /// Creates hosts with these settings, at 10 Mbit/s.
    pub(super) fn new(configs: Vec<Config>) -> Self {
        let rate_bps = Some(10_000_000);
        let info = PathInfo { rate_bps, owlt: Some(DELAY), ..PathInfo::datagram(1024) };
        Self::on(configs, info)
    }

    pub(super) fn on(configs: Vec<Config>, info: PathInfo) -> Self {
        let hosts: Vec<_> =
            (1..).zip(configs).map(|(number, config)| host(number, config)).collect();
        let mut group = Self {
            now: Time::ZERO,
            sent: vec![0; hosts.len()],
            hosts,
            info,
            lose: Box::new(|_, _, _, _| false),
            log: Vec::new(),
            events: BTreeMap::new(),
            event: 0,
        };
        (0..group.hosts.len()).for_each(|host| group.bring_up(host));
        group
    }

    /// Creates one sender, number 0, and `receivers` receivers with the same settings.
    pub(super) fn of(receivers: usize, config: &Config) -> Self {
        Self::new(vec![config.clone(); receivers + 1])
    }

    fn bring_up(&mut self, host: usize) {
        let others = (0..self.hosts.len()).filter(|other| *other != host).map(path_to);
        for path in others.chain([GROUP]) {
            let event = PathEvent::Up(self.info.clone());
            self.hosts[host].node.handle_input(self.now, Input::Path(path, event));
        }
        self.drain(host);
    }

    /// Restarts a host with nothing but its store.
    pub(super) fn restart(&mut self, at: usize) {
        let config = self.hosts[at].node.config().clone();
        let seed = 1000 + self.now.as_nanos();
        let old = &mut self.hosts[at];
        old.node = Node::new(config, Rng::new(seed, "norm"));
        old.held = None;
        old.store.close_all();
        self.bring_up(at);
    }

    /// Sends a file to the group, stored as `copy`.
    pub(super) fn send(&mut self, from: usize, file: &[u8], copy: &str) -> ObjectId {
        self.hosts[from].store.insert(name(copy), file.to_vec());
        self.request(from, Content::File(name(copy)), copy)
    }

    pub(super) fn request(&mut self, from: usize, content: Content, info: &str) -> ObjectId {
        let info = Bytes::copy_from_slice(info.as_bytes());
        let request = SendRequest { peer: GROUP, content, info };
        let id = self.hosts[from].node.send(self.now, request).expect("the request is sound");
        self.drain(from);
        id
    }

    pub(super) fn cancel(&mut self, host: usize, id: ObjectId) {
        self.hosts[host].node.cancel(self.now, id).expect("it is under way");
        self.drain(host);
    }

    /// Delivers a message that no host sent.
    pub(super) fn deliver(&mut self, to: usize, path: PathId, from: PathId, message: &Message<'_>) {
        let bytes = message.to_vec().expect("a message");
        self.arrive(to, path, from, &bytes);
    }

    fn arrive(&mut self, to: usize, path: PathId, from: PathId, bytes: &[u8]) {
        let receive = Receive { path, from, ecn: Ecn::NotEct, stride: bytes.len(), bytes };
        self.hosts[to].node.handle_input(self.now, Input::Receive(receive));
        self.drain(to);
    }

    pub(super) fn drain(&mut self, at: usize) {
        loop {
            let host = &mut self.hosts[at];
            let mut busy = false;
            while let Some(effect) = host.node.poll_effect() {
                busy = true;
                let Effect::Store(effect) = effect else { continue };
                if let Some((ticket, answer)) = host.store.execute(effect) {
                    host.node.handle_input(self.now, Input::Done(ticket, answer));
                }
            }
            while let Some(indication) = host.node.poll_indication() {
                busy = true;
                host.indications.push(indication);
            }
            let mut tx = TxBuf::new(1);
            if host.held.is_none()
                && let Some(transmit) = host.node.poll_transmit(self.now, &mut tx)
            {
                busy = true;
                let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                if transmit.not_before > self.now {
                    host.held = Some((transmit.path, datagrams, transmit.not_before));
                } else {
                    self.launch(at, transmit.path, datagrams);
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn launch(&mut self, from: usize, path: PathId, datagrams: Vec<Vec<u8>>) {
        let to: Vec<_> = match path {
            GROUP => (0..self.hosts.len()).filter(|to| *to != from).collect(),
            path => vec![(path.0 - FIRST) as usize],
        };
        for datagram in datagrams {
            let number = self.sent[from];
            self.sent[from] += 1;
            let arrives = self.now + self.info.transmission_time(datagram.len()) + DELAY;
            for to in &to {
                let message = Message::decode(&datagram).expect("nodes send messages");
                let is_lost = !self.hosts[from].is_on || !self.hosts[*to].is_on;
                if !(self.lose)(from, *to, number, &message) && !is_lost {
                    self.event += 1;
                    let event = (*to, path, from, datagram.clone());
                    self.events.insert((arrives, self.event), event);
                }
            }
            if self.hosts[from].is_on {
                self.log.push((self.now, from, datagram));
            }
        }
    }

    fn next(&self, host: &Host) -> Option<Time> {
        let held = host.held.as_ref().map(|(_, _, at)| *at);
        let timer = host.node.poll_timeout().map(|deadline| deadline.at);
        held.into_iter().chain(timer).min()
    }

    /// Processes the next event, if it is before `until`.
    fn step(&mut self, until: Time) -> bool {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let timer = (0..self.hosts.len()).filter_map(|at| Some((self.next(&self.hosts[at])?, at)));
        let timer = timer.min();
        let Some(next) = event.into_iter().chain(timer.map(|(at, _)| at)).min() else {
            return false;
        };
        if next > until {
            return false;
        }
        self.now = self.now.max(next);
        if event == Some(next) {
            let (_, (to, path, from, bytes)) = self.events.pop_first().expect("there is an event");
            if self.hosts[to].is_on {
                let path = if path == GROUP { GROUP } else { path_to(from) };
                self.arrive(to, path, path_to(from), &bytes);
            }
            return true;
        }
        let Some((_, at)) = timer else { return false };
        let host = &mut self.hosts[at];
        if let Some((path, datagrams, _)) = host.held.take_if(|(_, _, at)| *at <= self.now) {
            self.launch(at, path, datagrams);
            self.drain(at);
            return true;
        }
        host.node.handle_timeout(self.now);
        self.drain(at);
        let after = self.hosts[at].node.poll_timeout();
        assert!(after.is_none_or(|after| after.at > self.now), "a deadline in the past: {after:?}");
        true
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step(Time::MAX) {
                return;
            }
        }
        panic!("no end at {}", self.now);
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// Results of objects at a host.
    pub(super) fn finished(&self, host: usize) -> Vec<&Finished> {
        let all = self.hosts[host].indications.iter().filter_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        });
        all.collect()
    }

    pub(super) fn assert_has(&self, host: usize, copy: &str, file: &[u8]) {
        let found = self.hosts[host].store.get(&name(copy));
        assert!(found == Some(file), "host {host}: {:#?}", self.transcript());
        assert_eq!(self.hosts[host].node.objects().count(), 0, "host {host}");
    }

    /// Number of a host's messages for which `holds`.
    pub(super) fn count(&self, host: usize, holds: impl Fn(&Body<'_>) -> bool) -> usize {
        let ours = self.log.iter().filter(|(_, from, _)| *from == host);
        let messages = ours.filter_map(|(_, _, bytes)| Message::decode(bytes).ok());
        messages.filter(|message| holds(&message.body)).count()
    }

    pub(super) fn flushes(&self) -> usize {
        self.count(0, |body| matches!(body, Body::Command(Command::Flush { .. })))
    }

    /// Number of NACKs of all hosts.
    pub(super) fn nacks(&self) -> usize {
        let hosts = 0..self.hosts.len();
        hosts.map(|host| self.count(host, |body| matches!(body, Body::Nack(_)))).sum()
    }

    pub(super) fn transcript(&self) -> Vec<String> {
        let line = |(at, from, bytes): &(Time, usize, Vec<u8>)| match Message::decode(bytes) {
            Ok(message) => format!("{at} {from}: {message}"),
            Err(error) => format!("{at} {from}: {error}"),
        };
        self.log.iter().map(line).collect()
    }
}

fn host(number: u32, config: Config) -> Host {
    let node = if config.node == 0 { number } else { config.node };
    let config = Config { node, groups: vec![GROUP], ..config };
    Host {
        node: Node::new(config, Rng::new(u64::from(number), "norm")),
        store: MemoryStore::new(),
        indications: Vec::new(),
        held: None,
        is_on: true,
    }
}
