//! Stacked layers. A parent engine owns an upper and a lower engine, offers the lower one's
//! service to the upper one as a message path, and is itself one engine to its driver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use slowlight_engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileName, IndexRequest, Input, OpenMode,
    PathEvent, PathId, PathInfo, PathKind, Receive, StoreEffect, Ticket, Time, Timers, Transmit,
    TxBuf,
};

use crate::framed::messages;
use crate::world::{Note, TICK, World};

/// Datagram path of the lower engine.
const LINK: PathId = PathId(2);
/// Message path of the upper engine.
const SPAN: PathId = PathId(70);
/// Maximum message length, longer than any UDP datagram: blocks and bundles exist to carry such
/// messages.
const MESSAGE_MAX: usize = 200_000;
const SEGMENT: usize = 1_000;

/// Lower engine: carries one message at a time in segments, and retransmits unacknowledged ones.
/// It keeps a record of each message before it sends it, under a ticket numbered from 0.
struct Span {
    up: bool,
    sending: Option<Sending>,
    receiving: BTreeSet<u16>,
    buffer: Vec<u8>,
    expected: u8,
    ack: Option<(u8, u16)>,
    tickets: u64,
    timers: Timers<()>,
    effects: VecDeque<Effect>,
    delivered: VecDeque<Vec<u8>>,
}

struct Sending {
    number: u8,
    message: Vec<u8>,
    pending: BTreeSet<u16>,
    unacknowledged: BTreeSet<u16>,
    recorded: bool,
}

fn count(message: &[u8]) -> u16 {
    message.len().div_ceil(SEGMENT) as u16
}

impl Span {
    fn new() -> Self {
        Self {
            up: false,
            sending: None,
            receiving: BTreeSet::new(),
            buffer: Vec::new(),
            expected: 0,
            ack: None,
            tickets: 0,
            timers: Timers::new(),
            effects: VecDeque::new(),
            delivered: VecDeque::new(),
        }
    }

    /// Whether it accepts a message now.
    fn has_room(&self) -> bool {
        self.up && self.sending.as_ref().is_none_or(|sending| sending.unacknowledged.is_empty())
    }

    /// Service request: sends a message.
    fn send(&mut self, message: &[u8]) {
        let number = self.sending.as_ref().map_or(0, |sending| sending.number.wrapping_add(1));
        let pending: BTreeSet<_> = (0..count(message)).collect();
        let unacknowledged = pending.clone();
        let message = message.to_vec();
        let (key, value) = (format!("span/{number}"), Bytes::from(vec![number]));
        let request = IndexRequest::Put { key, value };
        self.effects.push_back(StoreEffect::Index { ticket: Ticket(self.tickets), request }.into());
        self.tickets += 1;
        self.sending = Some(Sending { number, message, pending, unacknowledged, recorded: false });
    }

    fn receive(&mut self, bytes: &[u8]) {
        let &[number, kind, high, low, ref payload @ ..] = bytes else { return };
        let index = u16::from_be_bytes([high, low]);
        if kind == 0 {
            if let Some(sending) = &mut self.sending
                && sending.number == number
                && sending.unacknowledged.remove(&index)
                && sending.unacknowledged.is_empty()
            {
                self.timers.cancel(());
            }
            return;
        }
        self.ack = Some((number, index));
        if number != self.expected || !self.receiving.insert(index) {
            return;
        }
        let start = usize::from(index) * SEGMENT;
        self.buffer.resize(self.buffer.len().max(start + payload.len()), 0);
        self.buffer[start..start + payload.len()].copy_from_slice(payload);
        // Kind 1 is a segment. Kind 2 is a segment of a message that is complete with the number of
        // segments received so far.
        let last = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if self.receiving.len() == last {
            self.receiving.clear();
            self.expected = self.expected.wrapping_add(1);
            let buffer = std::mem::take(&mut self.buffer);
            // Each segment repeats the count in its first two bytes, which are not part of the
            // message.
            let parts = buffer.chunks(SEGMENT).flat_map(|part| &part[2..]);
            self.delivered.push_back(parts.copied().collect());
        }
    }
}

impl Engine for Span {
    type Indication = Vec<u8>;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => receive.datagrams().for_each(|bytes| self.receive(bytes)),
            Input::Path(_, PathEvent::Up(_) | PathEvent::Writable) => self.up = true,
            Input::Path(_, PathEvent::Down | PathEvent::Blocked) => self.up = false,
            Input::Path(
                _,
                PathEvent::Unsent
                | PathEvent::ReadClosed
                | PathEvent::Missing { .. }
                | PathEvent::Secured(_)
                | PathEvent::ReturnDown
                | PathEvent::ReturnUp,
            ) => {}
            Input::Done(ticket, answer) => {
                assert_eq!((ticket.0 + 1, answer), (self.tickets, Ok(Completion::Done)));
                if let Some(sending) = &mut self.sending {
                    sending.recorded = true;
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.timers.pop_due(now).is_some() {
            if let Some(sending) = &mut self.sending {
                sending.pending = sending.unacknowledged.clone();
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.up {
            return None;
        }
        if let Some((number, index)) = self.ack.take() {
            let [high, low] = index.to_be_bytes();
            tx.push(4)?.copy_from_slice(&[number, 0, high, low]);
            return tx.transmit(LINK, now);
        }
        let sending = self.sending.as_mut().filter(|sending| sending.recorded)?;
        while let Some(&index) = sending.pending.first() {
            let start = usize::from(index) * SEGMENT;
            let part = &sending.message[start..sending.message.len().min(start + SEGMENT)];
            let Some(place) = tx.push(4 + part.len()) else { break };
            place[..2].copy_from_slice(&[sending.number, 1]);
            place[2..4].copy_from_slice(&index.to_be_bytes());
            place[4..].copy_from_slice(part);
            sending.pending.pop_first();
        }
        let transmit = tx.transmit(LINK, now)?;
        self.timers.set((), now + Duration::from_secs(1), "segment");
        Some(transmit)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Vec<u8>> {
        self.delivered.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}

/// Upper engine: sends files as messages, at most one every ten seconds, and stores received ones.
/// Its tickets are also numbered from 0.
struct Courier {
    up: bool,
    files: VecDeque<String>,
    loaded: Option<Bytes>,
    loading: bool,
    received: VecDeque<Vec<u8>>,
    storing: bool,
    stored: u64,
    tickets: u64,
    pause: Timers<()>,
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
}

impl Courier {
    fn new(files: &[&str]) -> Self {
        Self {
            up: false,
            files: files.iter().map(|name| (*name).to_owned()).collect(),
            loaded: None,
            loading: false,
            received: VecDeque::new(),
            storing: false,
            stored: 0,
            tickets: 0,
            pause: Timers::new(),
            effects: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets - 1)
    }

    fn go_on(&mut self) {
        let may_load = self.up && !self.loading && self.loaded.is_none() && self.pause.is_empty();
        if may_load && let Some(name) = self.files.pop_front() {
            self.open(&name, OpenMode::Read);
            self.loading = true;
        }
        if !self.storing && !self.received.is_empty() {
            self.storing = true;
            self.stored += 1;
            self.open(&format!("got-{}", self.stored), OpenMode::Truncate);
        }
    }

    fn open(&mut self, name: &str, mode: OpenMode) {
        let name = FileName::file(name).expect("a plain name");
        let ticket = self.ticket();
        self.effects.push_back(StoreEffect::Open { ticket, name, mode }.into());
    }

    fn done(&mut self, answer: Result<Completion, EffectError>) {
        match answer.expect("the store works") {
            Completion::Opened { file, len, .. } if len > 0 => {
                let (ticket, offset, len) = (self.ticket(), 0, len as usize);
                self.effects.push_back(StoreEffect::Read { ticket, file, offset, len }.into());
            }
            Completion::Opened { file, .. } => {
                let bytes = Bytes::from(self.received.pop_front().expect("it is being stored"));
                let ticket = self.ticket();
                self.effects
                    .push_back(StoreEffect::Write { ticket, file, offset: 0, bytes }.into());
            }
            Completion::Read(bytes) => {
                self.loading = false;
                self.loaded = Some(bytes);
            }
            Completion::Done => {
                self.storing = false;
                self.notes.push_back(Note::Done);
            }
            Completion::Listing(_) | Completion::Records(_) | Completion::Listening(_) => {
                panic!("not requested")
            }
        }
    }
}

impl Engine for Courier {
    type Indication = Note;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                assert_eq!(receive.path, SPAN);
                self.received.push_back(receive.bytes.to_vec());
            }
            Input::Path(_, PathEvent::Up(info)) => {
                assert_eq!(info.kind, PathKind::Message { max: MESSAGE_MAX });
                self.up = true;
            }
            Input::Path(_, PathEvent::Writable) => self.up = true,
            Input::Path(_, PathEvent::Down | PathEvent::Blocked) => self.up = false,
            Input::Path(
                _,
                PathEvent::Unsent
                | PathEvent::ReadClosed
                | PathEvent::Missing { .. }
                | PathEvent::Secured(_)
                | PathEvent::ReturnDown
                | PathEvent::ReturnUp,
            ) => {}
            Input::Done(_, answer) => self.done(answer),
        }
        self.go_on();
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.pause.pop_due(now).is_some() {}
        self.go_on();
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.up {
            return None;
        }
        let bytes = self.loaded.take()?;
        tx.push(bytes.len())
            .expect("the path takes a message of this size")
            .copy_from_slice(&bytes);
        self.pause.set((), now + Duration::from_secs(10), "pause");
        tx.transmit(SPAN, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.pause.next()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Upper,
    Lower,
}

/// The parent. It passes each input to its layer and then [settles](Self::settle) the two, so that
/// its driver's polls find each layer's outputs in place.
struct Stack {
    upper: Courier,
    lower: Span,
    /// State of the path as reported to the upper engine: whether it has room.
    shown: Option<bool>,
    /// Layer and inner ticket of each effect, by its outer ticket.
    tickets: BTreeMap<u64, (Layer, Ticket)>,
    next_ticket: u64,
    message: TxBuf,
}

impl Stack {
    fn new(upper: Courier) -> Self {
        Self {
            upper,
            lower: Span::new(),
            shown: None,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            message: TxBuf::with_limits(1, MESSAGE_MAX),
        }
    }

    fn settle(&mut self, now: Time) {
        while let Some(message) = self.lower.poll_indication() {
            let receive = Receive::datagram(SPAN, &message);
            self.upper.handle_input(now, Input::Receive(receive));
        }
        loop {
            let room = self.lower.has_room();
            let event = match self.shown {
                None if room => {
                    let kind = PathKind::Message { max: MESSAGE_MAX };
                    Some(PathEvent::Up(PathInfo { kind, ..PathInfo::datagram(0) }))
                }
                Some(false) if room => Some(PathEvent::Writable),
                Some(true) if !room => Some(PathEvent::Blocked),
                None | Some(_) => None,
            };
            if let Some(event) = event {
                self.shown = Some(room);
                self.upper.handle_input(now, Input::Path(SPAN, event));
            }
            // The upper engine is pulled only when there is room, so it may still change its
            // choice.
            self.message.clear();
            if !room || self.upper.poll_transmit(now, &mut self.message).is_none() {
                return;
            }
            let bytes = self.message.bytes();
            let with_counts = with_counts(bytes);
            self.lower.send(&with_counts);
        }
    }
}

/// Prepends the number of segments to each segment's part of the message.
fn with_counts(message: &[u8]) -> Vec<u8> {
    let parts = message.chunks(SEGMENT - 2);
    let count = (parts.len() as u16).to_be_bytes();
    parts.flat_map(|part| count.iter().chain(part)).copied().collect()
}

impl Engine for Stack {
    type Indication = Note;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, answer) => {
                let (layer, inner) = self.tickets.remove(&ticket.0).expect("one that was given");
                let input = Input::Done(inner, answer);
                match layer {
                    Layer::Upper => self.upper.handle_input(now, input),
                    Layer::Lower => self.lower.handle_input(now, input),
                }
            }
            Input::Receive(_) | Input::Path(..) => self.lower.handle_input(now, input),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.lower.handle_timeout(now);
        self.upper.handle_timeout(now);
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.lower.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let lower = self.lower.poll_effect().map(|effect| (Layer::Lower, effect));
        let (layer, mut effect) =
            lower.or_else(|| Some((Layer::Upper, self.upper.poll_effect()?)))?;
        if let Some(ticket) = effect.ticket() {
            self.tickets.insert(self.next_ticket, (layer, ticket));
            effect.set_ticket(Ticket(self.next_ticket));
            self.next_ticket += 1;
        }
        Some(effect)
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.upper.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.lower.poll_timeout().into_iter().chain(self.upper.poll_timeout()).min()
    }
}

#[test]
fn messages_cross_two_layers_and_a_loss() {
    let contents = messages(&[3_000, 150_000, 7]);
    let mut world = World::default();
    let sender = world.add(Stack::new(Courier::new(&["a", "b", "c"])));
    let receiver = world.add(Stack::new(Courier::new(&[])));
    for (name, content) in ["a", "b", "c"].iter().zip(&contents) {
        world.nodes[sender].store.insert(FileName::file(name).unwrap(), content.clone());
    }
    world.route(sender, LINK, (receiver, LINK), LINK);
    world.route(receiver, LINK, (sender, LINK), LINK);
    world.lose = [1, 20, 21, 100, 101, 102].into();
    for node in [sender, receiver] {
        world.up(node, LINK, PathInfo::datagram(SEGMENT + 4));
    }
    world.run();
    for (n, content) in contents.iter().enumerate() {
        let name = FileName::file(&format!("got-{}", n + 1)).unwrap();
        assert!(world.nodes[receiver].store.get(&name) == Some(&content[..]), "{name}");
    }
    assert_eq!(world.nodes[receiver].notes, vec![Note::Done; 3]);
    // The lower engine's batches reach the driver whole: 16 segments of 1,004 bytes.
    let batch = (sender, LINK, vec![SEGMENT + 4; 16]);
    assert!(world.pulled.contains(&batch));
    // Two layers kept files and records in one store, both with tickets from 0.
    assert_eq!(world.nodes[sender].store.records().count(), 3);
    // Includes the upper engine's pause of ten seconds after each file, and the lower one's
    // retransmissions.
    assert!(world.now >= Time::from_secs(20));
}

#[test]
fn the_parent_shows_the_earlier_deadline() {
    let mut stack = Stack::new(Courier::new(&[]));
    let at = |seconds| Time::from_secs(seconds);
    stack.upper.pause.set((), at(10), "pause");
    assert_eq!(stack.poll_timeout(), Some(Deadline { at: at(10), why: "pause" }));
    stack.lower.timers.set((), at(3), "segment");
    assert_eq!(stack.poll_timeout(), Some(Deadline { at: at(3), why: "segment" }));
    stack.handle_timeout(at(3) + TICK);
    assert_eq!(stack.poll_timeout(), Some(Deadline { at: at(10), why: "pause" }));
    stack.handle_timeout(at(10));
    assert_eq!(stack.poll_timeout(), None);
}

#[test]
fn a_full_lower_layer_blocks_the_upper_one() {
    let mut stack = Stack::new(Courier::new(&["a"]));
    stack.handle_input(Time::ZERO, Input::Path(LINK, PathEvent::Up(PathInfo::datagram(1_004))));
    assert!(stack.upper.up);
    stack.lower.send(&with_counts(b"full"));
    stack.settle(Time::ZERO);
    assert!(!stack.upper.up, "notified that there is no room");
    stack.upper.loaded = Some(Bytes::from_static(b"waits"));
    stack.settle(Time::ZERO);
    assert!(stack.upper.loaded.is_some(), "not pulled while there is no room");
}
