//! Two or three nodes, their stores, and streams made by a driver on request.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use engine::{
    Completion, Effect, EffectError, Engine, FileName, Input, MemoryStore, PathEffect, PathEvent,
    PathId, PathInfo, Receive, StoreEffect, StreamEffect, Ticket, Time, TxBuf,
};

use super::super::{Config, Indication, Node};

/// Client's path to the server.
pub(super) const SERVER: PathId = PathId(1);
/// Client's path to another server.
pub(super) const OTHER: PathId = PathId(2);
const DELAY: Duration = Duration::from_millis(300);
/// Maximum bytes in flight in one direction.
const WINDOW: usize = 100_000;

pub(super) struct Host {
    pub(super) node: Node,
    pub(super) store: MemoryStore,
    pub(super) reported: Vec<Indication>,
    listening: BTreeMap<SocketAddr, Ticket>,
    next_path: u32,
    next_port: u16,
}

#[derive(Clone, Debug)]
enum Item {
    Bytes(Vec<u8>),
    End,
    Gone,
    /// Overtakes data waiting to be read.
    Reset,
}

/// One direction of a stream.
#[derive(Default)]
struct Half {
    kept: VecDeque<Vec<u8>>,
    under_way: usize,
    paused: bool,
    /// Data that arrived while reading was paused.
    arrived: VecDeque<Item>,
    closed: bool,
}

struct Stream {
    ends: [(usize, PathId); 2],
    /// `halves[i]` leads away from `ends[i]`.
    halves: [Half; 2],
}

enum Event {
    Arrive { stream: usize, end: usize, item: Item },
    Connect { from: usize, ticket: Ticket, to: SocketAddr },
    Answer { host: usize, ticket: Ticket, answer: Result<Completion, EffectError> },
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: Vec<Host>,
    streams: Vec<Stream>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    /// Bytes of a piece on arrival.
    pub(super) piece: usize,
    /// Whether data connections are blocked.
    pub(super) firewall: bool,
    /// Whether reads of stores fail from now on.
    pub(super) fail_reads: bool,
    /// Number of data connections that were reset.
    pub(super) resets: usize,
    /// All lines on the first control connection, with their senders.
    pub(super) lines: Vec<(usize, String)>,
}

fn address(host: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], port))
}

fn host_of(address: SocketAddr) -> usize {
    (0..).find(|host| address.ip() == self::address(*host, 0).ip()).expect("a host")
}

impl World {
    pub(super) fn new(configs: impl IntoIterator<Item = Config>) -> Self {
        let hosts = configs.into_iter().map(|config| Host {
            node: Node::new(config),
            store: MemoryStore::new(),
            reported: Vec::new(),
            listening: BTreeMap::new(),
            next_path: 100,
            next_port: 5000,
        });
        Self {
            now: Time::ZERO,
            hosts: hosts.collect(),
            streams: Vec::new(),
            events: BTreeMap::new(),
            count: 0,
            piece: 1460,
            firewall: false,
            fail_reads: false,
            resets: 0,
            lines: Vec::new(),
        }
    }

    pub(super) fn file(&mut self, host: usize, name: &str, content: &[u8]) {
        let name = FileName::file(name).unwrap();
        self.hosts[host].store.insert(name, content.to_vec());
    }

    pub(super) fn content(&self, host: usize, name: &str) -> Option<Vec<u8>> {
        let name = FileName::file(name).unwrap();
        self.hosts[host].store.get(&name).map(<[u8]>::to_vec)
    }

    pub(super) fn on_node<R>(&mut self, host: usize, call: impl FnOnce(&mut Node) -> R) -> R {
        let answer = call(&mut self.hosts[host].node);
        self.drain(host);
        answer
    }

    fn at(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// Runs until no event is left, or until a time.
    pub(super) fn run_until(&mut self, until: Time) {
        for _ in 0..1_000_000 {
            let event = self.events.keys().next().map(|key| key.0);
            let timers = self.hosts.iter().map(|host| host.node.poll_timeout().map(|next| next.at));
            let timer = timers.enumerate().filter_map(|(host, at)| Some((at?, host))).min();
            let is_timer = timer.is_some_and(|(at, _)| event.is_none_or(|event| at < event));
            let Some(at) = (if is_timer { timer.map(|(at, _)| at) } else { event }) else { return };
            if at > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(at);
            if let Some((_, host)) = timer.filter(|_| is_timer) {
                self.hosts[host].node.handle_timeout(self.now);
                self.drain(host);
            } else if let Some((_, event)) = self.events.pop_first() {
                self.event(event);
            }
        }
        panic!("the world does not come to rest");
    }

    pub(super) fn run(&mut self) {
        self.run_until(Time::MAX);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Arrive { stream, end, item } => self.arrive(stream, end, item),
            Event::Connect { from, ticket, to } => self.connect(from, ticket, to),
            Event::Answer { host, ticket, answer } => {
                self.hosts[host].node.handle_input(self.now, Input::Done(ticket, answer));
                self.drain(host);
            }
        }
    }

    fn up(&mut self, host: usize, path: PathId, info: PathInfo) {
        let event = Input::Path(path, PathEvent::Up(info));
        self.hosts[host].node.handle_input(self.now, event);
        self.drain(host);
    }

    fn new_path(&mut self, host: usize) -> PathId {
        self.hosts[host].next_path += 1;
        PathId(self.hosts[host].next_path)
    }

    fn join(
        &mut self,
        one: (usize, PathId),
        other: usize,
        requested: [Option<Ticket>; 2],
        port: u16,
    ) {
        let path = self.new_path(other);
        let halves = [Half::default(), Half::default()];
        self.streams.push(Stream { ends: [one, (other, path)], halves });
        let here = address(one.0, 4000 + self.streams.len() as u16);
        let there = address(other, port);
        let info = |ends, ticket| PathInfo { ends: Some(ends), ticket, ..PathInfo::stream() };
        self.up(other, path, info((there, here), requested[1]));
        self.up(one.0, one.1, info((here, there), requested[0]));
    }

    /// Delivers a connection request to the other host.
    fn connect(&mut self, from: usize, ticket: Ticket, to: SocketAddr) {
        let other = host_of(to);
        let listener = self.hosts[other].listening.remove(&to).filter(|_| !self.firewall);
        match listener {
            Some(listener) => {
                let path = self.new_path(from);
                self.join((from, path), other, [Some(ticket), Some(listener)], to.port());
            }
            None => {
                let answer = Err(EffectError::Failed("nobody listens there".to_owned()));
                self.hosts[from].node.handle_input(self.now, Input::Done(ticket, answer));
                self.drain(from);
            }
        }
    }

    fn arrive(&mut self, stream: usize, end: usize, item: Item) {
        let half = &mut self.streams[stream].halves[end];
        let waits = half.paused || !half.arrived.is_empty();
        if waits && !matches!(item, Item::Reset) {
            half.arrived.push_back(item);
            return;
        }
        self.hand_in(stream, end, &item);
    }

    fn hand_in(&mut self, stream: usize, end: usize, item: &Item) {
        let this = &mut self.streams[stream];
        let ((host, path), (writer, writer_path)) = (this.ends[1 - end], this.ends[end]);
        if this.halves[1 - end].closed {
            return;
        }
        let mut is_writable = false;
        let input = match item {
            Item::Bytes(bytes) => {
                let half = &mut this.halves[end];
                half.under_way -= bytes.len();
                is_writable = !half.kept.is_empty();
                Input::Receive(Receive::datagram(path, bytes))
            }
            Item::End => Input::Path(path, PathEvent::ReadClosed),
            Item::Gone | Item::Reset => Input::Path(path, PathEvent::Down),
        };
        self.hosts[host].node.handle_input(self.now, input);
        self.drain(host);
        if is_writable {
            self.push(stream, end);
            if self.streams[stream].halves[end].kept.is_empty() {
                let event = Input::Path(writer_path, PathEvent::Writable);
                self.hosts[writer].node.handle_input(self.now, event);
                self.drain(writer);
            }
        }
    }

    /// Sends as many bytes as the window allows.
    fn push(&mut self, stream: usize, end: usize) {
        loop {
            let half = &mut self.streams[stream].halves[end];
            let Some(front) = half.kept.pop_front() else { return };
            if half.under_way + front.len() > WINDOW {
                half.kept.push_front(front);
                return;
            }
            half.under_way += front.len();
            self.at(self.now + DELAY, Event::Arrive { stream, end, item: Item::Bytes(front) });
        }
    }

    fn find(&self, host: usize, path: PathId) -> Option<(usize, usize)> {
        self.streams.iter().enumerate().rev().find_map(|(stream, this)| {
            Some((stream, this.ends.iter().position(|end| *end == (host, path))?))
        })
    }

    /// Breaks the newest stream for both sides.
    pub(super) fn break_data(&mut self) {
        let stream = self.streams.len() - 1;
        for end in 0..2 {
            let (host, path) = self.streams[stream].ends[end];
            self.streams[stream].halves[end].closed = true;
            self.hosts[host].node.handle_input(self.now, Input::Path(path, PathEvent::Down));
            self.drain(host);
        }
    }

    /// Breaks all streams, which only the first host notices.
    pub(super) fn cut(&mut self) {
        for stream in 0..self.streams.len() {
            for end in 0..2 {
                let (host, path) = self.streams[stream].ends[end];
                self.streams[stream].halves[end].closed = true;
                if host == 0 {
                    let down = Input::Path(path, PathEvent::Down);
                    self.hosts[host].node.handle_input(self.now, down);
                    self.drain(host);
                }
            }
        }
        self.events.retain(|_, event| !matches!(event, Event::Arrive { .. }));
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    fn drain(&mut self, host: usize) {
        let mut tx = TxBuf::new(1);
        loop {
            let mut busy = false;
            while let Some(effect) = self.hosts[host].node.poll_effect() {
                busy = true;
                self.effect(host, effect);
            }
            tx.clear();
            if let Some(transmit) = self.hosts[host].node.poll_transmit(self.now, &mut tx) {
                busy = true;
                self.send(host, transmit.path, tx.bytes());
            }
            while let Some(reported) = self.hosts[host].node.poll_indication() {
                busy = true;
                self.hosts[host].reported.push(reported);
            }
            if !busy {
                return;
            }
        }
    }

    fn send(&mut self, host: usize, path: PathId, bytes: &[u8]) {
        let (stream, end) = self.find(host, path).expect("a stream");
        // The first stream is the control connection.
        if stream == 0 {
            let text = String::from_utf8_lossy(bytes).into_owned();
            self.lines.extend(text.lines().map(|line| (host, line.to_owned())));
        }
        let half = &mut self.streams[stream].halves[end];
        assert!(half.kept.is_empty(), "it was notified of the lack of room");
        if half.closed {
            return;
        }
        half.kept.extend(bytes.chunks(self.piece).map(<[u8]>::to_vec));
        self.push(stream, end);
        if !self.streams[stream].halves[end].kept.is_empty() {
            let event = Input::Path(path, PathEvent::Blocked);
            self.hosts[host].node.handle_input(self.now, event);
        }
    }

    fn effect(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::Store(effect) => {
                let fails = self.fail_reads && matches!(effect, StoreEffect::Read { .. });
                if let Some((ticket, answer)) = self.hosts[host].store.execute(effect) {
                    let failure = EffectError::Failed("a bad sector".to_owned());
                    let answer = if fails { Err(failure) } else { answer };
                    let at = self.now + Duration::from_millis(1);
                    self.at(at, Event::Answer { host, ticket, answer });
                }
            }
            Effect::Path(PathEffect::Open { path }) => {
                assert_eq!(host, 0);
                let server = if path == SERVER { 1 } else { 2 };
                self.join((host, path), server, [None, None], 21);
            }
            Effect::Stream(StreamEffect::Connect { ticket, to, .. }) => {
                self.at(self.now + DELAY, Event::Connect { from: host, ticket, to });
            }
            Effect::Stream(StreamEffect::Listen { ticket, .. }) => {
                self.hosts[host].next_port += 1;
                let address = address(host, self.hosts[host].next_port);
                self.hosts[host].listening.insert(address, ticket);
                let answer = Ok(Completion::Listening(address));
                self.at(self.now, Event::Answer { host, ticket, answer });
            }
            Effect::Stream(StreamEffect::StopListening { ticket }) => {
                self.hosts[host].listening.retain(|_, other| *other != ticket);
            }
            Effect::Path(PathEffect::Close { path }) => self.close(host, path),
            Effect::Path(PathEffect::PauseRead { path }) => self.pause(host, path, true),
            Effect::Path(PathEffect::ResumeRead { path }) => self.pause(host, path, false),
            Effect::Path(PathEffect::Retain { .. } | PathEffect::Release { .. }) => {}
            Effect::Stream(StreamEffect::StopConnecting { ticket }) => {
                self.events.retain(|_, event| {
                    !matches!(event, Event::Connect { from, ticket: other, .. }
                        if (*from, *other) == (host, ticket))
                });
            }
            Effect::Stream(StreamEffect::Reset { path }) => self.reset(host, path),
            Effect::Stream(
                StreamEffect::NoDelay { .. }
                | StreamEffect::ShutdownWrite { .. }
                | StreamEffect::StartTls { .. },
            ) => {
                panic!("nobody asks for it")
            }
        }
    }

    /// Closes a stream: sent data still arrives, followed by the end.
    fn close(&mut self, host: usize, path: PathId) {
        let Some((stream, end)) = self.find(host, path) else { return };
        self.streams[stream].halves[end].closed = true;
        let kept = std::mem::take(&mut self.streams[stream].halves[end].kept);
        for bytes in kept {
            self.streams[stream].halves[end].under_way += bytes.len();
            let item = Item::Bytes(bytes);
            self.at(self.now + DELAY, Event::Arrive { stream, end, item });
        }
        for item in [Item::End, Item::Gone] {
            self.at(self.now + DELAY, Event::Arrive { stream, end, item });
        }
    }

    /// Resets a stream: sent data does not arrive any more, and the peer is notified.
    fn reset(&mut self, host: usize, path: PathId) {
        let Some((stream, end)) = self.find(host, path) else { return };
        let half = &mut self.streams[stream].halves[end];
        half.closed = true;
        half.kept.clear();
        self.resets += 1;
        self.events.retain(|_, event| {
            !matches!(event, Event::Arrive { stream: other, end: from, .. }
                if (*other, *from) == (stream, end))
        });
        self.at(self.now + DELAY, Event::Arrive { stream, end, item: Item::Reset });
    }

    fn pause(&mut self, host: usize, path: PathId, paused: bool) {
        let Some((stream, end)) = self.find(host, path) else { return };
        let half = &mut self.streams[stream].halves[1 - end];
        half.paused = paused;
        if !paused {
            for item in std::mem::take(&mut half.arrived) {
                self.at(self.now, Event::Arrive { stream, end: 1 - end, item });
            }
        }
    }
}
