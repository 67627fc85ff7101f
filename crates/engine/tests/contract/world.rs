//! A driver for the toys: datagram routes and streams between boxed engines, a virtual clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use slowlight_engine::{
    Effect, EffectError, Engine, Input, MemoryStore, PathEffect, PathEvent, PathId, PathInfo,
    Receive, StreamEffect, Time, TxBuf,
};

/// Indication of a toy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Message(Vec<u8>),
    Secured(Vec<String>),
    /// The peer sends no more.
    PeerDone,
    Down(PathId),
    Done,
    Failed,
}

/// Engines of different kinds are driven alike, so the trait must be object-safe.
pub(crate) type Boxed = Box<dyn Engine<Indication = Note>>;

pub(crate) const TICK: Duration = Duration::from_millis(1);
/// First bytes of the simulated TLS client.
const HELLO: &[u8] = b"<hello>";

/// An engine, its store and its indications.
pub(crate) struct Node {
    pub(crate) engine: Boxed,
    pub(crate) store: MemoryStore,
    pub(crate) notes: Vec<Note>,
    held: Option<(PathId, Time, Vec<Bytes>)>,
}

#[derive(Clone, Copy)]
struct Route {
    node: usize,
    path: PathId,
    from: PathId,
    latency: Duration,
}

/// One direction of a stream.
#[derive(Default)]
struct Half {
    /// Bytes the driver keeps because the kernel did not take them.
    kept: VecDeque<u8>,
    kernel: VecDeque<u8>,
    capacity: usize,
    piece: usize,
    every: Duration,
    shut: bool,
    /// Whether the writer closed the path, so that the end of its data is the end of the path.
    gone: bool,
    paused: bool,
    /// Whether the reader was notified of the end.
    notified: bool,
    scheduled: bool,
    /// Early bytes the reader returned with its `StartTls`.
    tls_reader: Option<VecDeque<u8>>,
}

struct Stream {
    ends: [(usize, PathId); 2],
    /// `halves[i]` leads away from `ends[i]`.
    halves: [Half; 2],
}

enum Event {
    Datagram { node: usize, path: PathId, from: PathId, bytes: Bytes },
    Pump { stream: usize, end: usize },
    Path { node: usize, path: PathId, event: PathEvent },
    Release { node: usize },
}

/// A pulled transmit: node, path, and lengths of its datagrams.
pub(crate) type Pulled = (usize, PathId, Vec<usize>);

#[derive(Default)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Time,
    /// Datagrams to lose, by number in order of sending; each copy to a group has its own number.
    pub(crate) lose: BTreeSet<u64>,
    pub(crate) pulled: Vec<Pulled>,
    routes: BTreeMap<(usize, PathId), Vec<Route>>,
    streams: Vec<Stream>,
    queue: BTreeMap<(Time, u64), Event>,
    queued: u64,
    carried: u64,
}

impl World {
    pub(crate) fn add(&mut self, engine: impl Engine<Indication = Note> + 'static) -> usize {
        let (store, notes) = (MemoryStore::new(), Vec::new());
        self.nodes.push(Node { engine: Box::new(engine), store, notes, held: None });
        self.nodes.len() - 1
    }

    /// Routes datagrams that `node` sends on `path` to `to` on its path, from its path `from`.
    pub(crate) fn route(&mut self, node: usize, path: PathId, to: (usize, PathId), from: PathId) {
        let latency = TICK * 10;
        let route = Route { node: to.0, path: to.1, from, latency };
        self.routes.entry((node, path)).or_default().push(route);
    }

    /// Adds a stream between two ends, each direction with its kernel buffer and piece length.
    pub(crate) fn stream(
        &mut self,
        ends: [(usize, PathId); 2],
        capacity: usize,
        piece: usize,
    ) -> usize {
        let half = || Half { capacity, piece, every: TICK, ..Half::default() };
        self.streams.push(Stream { ends, halves: [half(), half()] });
        self.streams.len() - 1
    }

    /// Makes the reader of `end`'s data read only at this interval.
    pub(crate) fn slow(&mut self, stream: usize, end: usize, every: Duration) {
        self.streams[stream].halves[end].every = every;
    }

    pub(crate) fn up(&mut self, node: usize, path: PathId, info: PathInfo) {
        self.notify(node, path, PathEvent::Up(info));
    }

    pub(crate) fn notify(&mut self, node: usize, path: PathId, event: PathEvent) {
        self.nodes[node].engine.handle_input(self.now, Input::Path(path, event));
        self.drain(node);
    }

    pub(crate) fn notify_at(&mut self, at: Time, node: usize, path: PathId, event: PathEvent) {
        self.schedule(at, Event::Path { node, path, event });
    }

    /// Runs until no event is left.
    pub(crate) fn run(&mut self) {
        for _ in 0..200_000 {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let timer = (0..self.nodes.len())
                .filter_map(|node| Some((self.nodes[node].engine.poll_timeout()?.at, node)))
                .min();
            match (event, timer) {
                (None, None) => return,
                (event, Some((at, node))) if event.is_none_or(|event| at < event) => {
                    self.now = self.now.max(at);
                    self.nodes[node].engine.handle_timeout(self.now);
                    self.drain(node);
                    let next = self.nodes[node].engine.poll_timeout();
                    assert!(next.is_none_or(|next| next.at > self.now), "{next:?} is past");
                }
                _ => {
                    let ((at, _), event) = self.queue.pop_first().expect("there is an event");
                    self.now = self.now.max(at);
                    self.event(event);
                }
            }
        }
        panic!("the world does not come to rest");
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Datagram { node, path, from, bytes } => {
                let receive = Receive { from, ..Receive::datagram(path, &bytes) };
                self.nodes[node].engine.handle_input(self.now, Input::Receive(receive));
                self.drain(node);
            }
            Event::Pump { stream, end } => self.pump(stream, end),
            Event::Path { node, path, event } => self.notify(node, path, event),
            Event::Release { node } => {
                if let Some((path, _, datagrams)) = self.nodes[node].held.take() {
                    self.send(node, path, datagrams);
                }
                self.drain(node);
            }
        }
    }

    /// Pulls an engine's outputs until there are none.
    fn drain(&mut self, node: usize) {
        let mut tx = TxBuf::new(16);
        loop {
            let mut more = false;
            while let Some(effect) = self.nodes[node].engine.poll_effect() {
                more = true;
                self.effect(node, effect);
            }
            tx.clear();
            let this = &mut self.nodes[node];
            if this.held.is_none()
                && let Some(transmit) = this.engine.poll_transmit(self.now, &mut tx)
            {
                more = true;
                assert_eq!(transmit.len, tx.bytes().len());
                let datagrams: Vec<_> = tx.datagrams().map(Bytes::copy_from_slice).collect();
                let lengths = datagrams.iter().map(Bytes::len).collect();
                self.pulled.push((node, transmit.path, lengths));
                if transmit.not_before > self.now {
                    this.held = Some((transmit.path, transmit.not_before, datagrams));
                    self.schedule(transmit.not_before, Event::Release { node });
                } else {
                    self.send(node, transmit.path, datagrams);
                }
            }
            while let Some(note) = self.nodes[node].engine.poll_indication() {
                more = true;
                self.nodes[node].notes.push(note);
            }
            if !more {
                return;
            }
        }
    }

    fn send(&mut self, node: usize, path: PathId, datagrams: Vec<Bytes>) {
        if let Some((stream, end)) = self.find(node, path) {
            let half = &mut self.streams[stream].halves[end];
            assert!(half.kept.is_empty(), "the engine was notified that the stream is full");
            assert!(!half.shut, "the engine shut the stream down");
            half.kept.extend(datagrams.iter().flatten());
            self.accept(stream, end);
            if !self.streams[stream].halves[end].kept.is_empty() {
                self.nodes[node]
                    .engine
                    .handle_input(self.now, Input::Path(path, PathEvent::Blocked));
            }
            return;
        }
        let routes = self.routes.get(&(node, path)).expect("the path leads somewhere").clone();
        for bytes in datagrams {
            for route in &routes {
                let Route { node, path, from, latency } = *route;
                self.carried += 1;
                if !self.lose.contains(&(self.carried - 1)) {
                    let bytes = bytes.clone();
                    let event = Event::Datagram { node, path, from, bytes };
                    self.schedule(self.now + latency, event);
                }
            }
        }
    }

    fn find(&self, node: usize, path: PathId) -> Option<(usize, usize)> {
        self.streams.iter().enumerate().find_map(|(stream, this)| {
            Some((stream, this.ends.iter().position(|end| *end == (node, path))?))
        })
    }

    /// Lets the kernel take bytes that it has room for.
    fn accept(&mut self, stream: usize, end: usize) {
        let half = &mut self.streams[stream].halves[end];
        let room = half.capacity - half.kernel.len();
        let taken = room.min(half.kept.len());
        half.kernel.extend(half.kept.drain(..taken));
        if !half.scheduled {
            half.scheduled = true;
            let at = self.now + half.every;
            self.schedule(at, Event::Pump { stream, end });
        }
    }

    /// Delivers a piece or the end to the reader; then the writer may have room again.
    fn pump(&mut self, stream: usize, end: usize) {
        let this = &mut self.streams[stream];
        let (node, path) = this.ends[1 - end];
        let writer = this.ends[end];
        let half = &mut this.halves[end];
        half.scheduled = false;
        if half.paused {
            return;
        }
        let was_full = !half.kept.is_empty();
        let piece: Vec<u8> = {
            let len = half.piece.min(half.kernel.len());
            half.kernel.drain(..len).collect()
        };
        if let Some(shake) = &mut half.tls_reader {
            shake.extend(&piece);
            if !piece.is_empty() {
                self.accept(stream, end);
            }
            return self.handshake(stream);
        }
        if piece.is_empty() {
            if half.shut && !half.notified {
                half.notified = true;
                let event = if half.gone { PathEvent::Down } else { PathEvent::ReadClosed };
                self.notify(node, path, event);
            }
            return;
        }
        self.accept(stream, end);
        let now_empty = self.streams[stream].halves[end].kept.is_empty();
        let receive = Receive::datagram(path, &piece);
        self.nodes[node].engine.handle_input(self.now, Input::Receive(receive));
        self.drain(node);
        if was_full && now_empty {
            self.notify(writer.0, writer.1, PathEvent::Writable);
        }
    }

    /// Secures both sides once both requested it and the server has the client's whole hello.
    fn handshake(&mut self, stream: usize) {
        let this = &mut self.streams[stream];
        let has_hello = |half: &Half| half.tls_reader.as_ref().map(|bytes| *bytes == HELLO);
        let (Some(at_one), Some(at_other)) =
            (has_hello(&this.halves[0]), has_hello(&this.halves[1]))
        else {
            return;
        };
        if at_one || at_other {
            let ends = this.ends;
            for half in &mut this.halves {
                half.tls_reader = None;
            }
            for (node, path) in ends {
                self.notify(node, path, PathEvent::Secured(vec!["peer.example".into()]));
            }
        }
    }

    fn effect(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Stream(StreamEffect::ShutdownWrite { path }) => {
                let (stream, end) = self.find(node, path).expect("a stream");
                self.streams[stream].halves[end].shut = true;
                self.accept(stream, end);
            }
            Effect::Stream(StreamEffect::StartTls { path, server_name, early }) => {
                let (stream, end) = self.find(node, path).expect("a stream");
                self.streams[stream].halves[1 - end].tls_reader = Some(early.to_vec().into());
                if server_name.is_some() {
                    let half = &mut self.streams[stream].halves[end];
                    half.kept.extend(HELLO);
                    self.accept(stream, end);
                }
                self.handshake(stream);
            }
            Effect::Path(PathEffect::PauseRead { path }) => {
                let (stream, end) = self.find(node, path).expect("a stream");
                self.streams[stream].halves[1 - end].paused = true;
            }
            Effect::Path(PathEffect::ResumeRead { path }) => {
                let (stream, end) = self.find(node, path).expect("a stream");
                self.streams[stream].halves[1 - end].paused = false;
                self.accept(stream, 1 - end);
            }
            Effect::Path(PathEffect::Close { path })
            | Effect::Stream(StreamEffect::Reset { path }) => self.close(node, path),
            Effect::Path(
                PathEffect::Open { .. } | PathEffect::Retain { .. } | PathEffect::Release { .. },
            )
            | Effect::Stream(
                StreamEffect::NoDelay { .. }
                | StreamEffect::StopConnecting { .. }
                | StreamEffect::StopListening { .. },
            ) => {}
            // The streams of this world are set up by the test.
            Effect::Stream(
                StreamEffect::Connect { ticket, .. } | StreamEffect::Listen { ticket, .. },
            ) => {
                let input = Input::Done(ticket, Err(EffectError::NotAllowed));
                self.nodes[node].engine.handle_input(self.now, input);
            }
            Effect::Store(effect) => {
                if let Some((ticket, answer)) = self.nodes[node].store.execute(effect) {
                    let input = Input::Done(ticket, answer);
                    self.nodes[node].engine.handle_input(self.now, input);
                }
            }
        }
    }

    /// Closes a path: pulled data still arrives, followed by the path's end; data in the other
    /// direction is lost.
    fn close(&mut self, node: usize, path: PathId) {
        let Some((stream, end)) = self.find(node, path) else { return };
        let back = &mut self.streams[stream].halves[1 - end];
        (back.kept, back.kernel) = (VecDeque::new(), VecDeque::new());
        (back.shut, back.notified, back.tls_reader) = (true, true, None);
        let away = &mut self.streams[stream].halves[end];
        (away.shut, away.gone) = (true, true);
        self.accept(stream, end);
    }
}
