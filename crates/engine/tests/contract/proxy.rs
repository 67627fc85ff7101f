//! A performance-enhancing proxy: one engine, two connections, a bounded buffer each way.

use std::collections::VecDeque;

use slowlight_engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Receive,
    StreamEffect, Time, Transmit, TxBuf,
};

use crate::framed::{Framed, Security, messages, received};
use crate::world::{Note, TICK, World};

/// Sides of the proxy.
const SIDES: [PathId; 2] = [PathId(1), PathId(2)];
/// Path of a client or server to the proxy.
const PATH: PathId = PathId(4);
/// Capacity for two pieces, so that one can leave while the next arrives.
const BUFFER: usize = 2 * Receive::PIECE_MAX;
const OFFER: usize = 10_000;

/// One direction: from side `i` to the other.
#[derive(Default)]
struct Flow {
    buffer: VecDeque<u8>,
    paused: bool,
    /// Whether the source has ended.
    ended: bool,
    /// Whether the destination was shut down.
    shut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Up,
    Blocked,
    Down,
    Closed,
}

struct Proxy {
    /// `flows[i]` comes from side `i`.
    flows: [Flow; 2],
    sides: [Side; 2],
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
}

impl Proxy {
    fn new() -> Self {
        Self {
            flows: [Flow::default(), Flow::default()],
            sides: [Side::Down; 2],
            effects: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    fn receive(&mut self, side: usize, bytes: &[u8]) {
        let flow = &mut self.flows[side];
        assert!(!flow.paused, "a paused path delivers nothing");
        flow.buffer.extend(bytes);
        assert!(flow.buffer.len() <= BUFFER, "the pause comes in time");
        if BUFFER - flow.buffer.len() < Receive::PIECE_MAX {
            flow.paused = true;
            self.effects.push_back(PathEffect::PauseRead { path: SIDES[side] }.into());
            self.notes.push_back(Note::Message(format!("pause {side}").into_bytes()));
        }
    }

    fn path_event(&mut self, side: usize, event: &PathEvent) {
        match event {
            PathEvent::Up(_) | PathEvent::Writable => self.sides[side] = Side::Up,
            PathEvent::Blocked => self.sides[side] = Side::Blocked,
            PathEvent::ReadClosed => self.flows[side].ended = true,
            PathEvent::Missing { .. }
            | PathEvent::Unsent
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
            PathEvent::Down => {
                // Data from the closed side is still forwarded; data for it is dropped.
                self.sides[side] = Side::Closed;
                self.flows[side].ended = true;
                self.flows[1 - side].buffer.clear();
                self.flows[1 - side].shut = true;
                self.notes.push_back(Note::Down(SIDES[side]));
            }
        }
        self.pass_on_the_end(side);
    }

    /// Shuts down the destination behind the source's last byte.
    fn pass_on_the_end(&mut self, side: usize) {
        let other = 1 - side;
        let flow = &mut self.flows[side];
        if !flow.ended || !flow.buffer.is_empty() || self.sides[other] == Side::Closed {
            return;
        }
        let path = SIDES[other];
        if self.sides[side] == Side::Closed {
            self.sides[other] = Side::Closed;
            self.effects.push_back(PathEffect::Close { path }.into());
        } else if !flow.shut {
            flow.shut = true;
            self.effects.push_back(StreamEffect::ShutdownWrite { path }.into());
        }
    }
}

impl Engine for Proxy {
    type Indication = Note;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        let side_of = |path| usize::from(path == SIDES[1]);
        match input {
            Input::Receive(Receive { path, bytes, .. }) => self.receive(side_of(path), bytes),
            Input::Path(path, event) => self.path_event(side_of(path), &event),
            Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        for side in 0..2 {
            let flow = &mut self.flows[side];
            if self.sides[1 - side] != Side::Up || flow.buffer.is_empty() {
                continue;
            }
            let len = flow.buffer.len().min(OFFER);
            let place = tx.push(len).expect("an offer fits an empty buffer");
            for (to, byte) in place.iter_mut().zip(flow.buffer.drain(..len)) {
                *to = byte;
            }
            if flow.paused && flow.buffer.len() <= BUFFER - Receive::PIECE_MAX {
                flow.paused = false;
                self.effects.push_back(PathEffect::ResumeRead { path: SIDES[side] }.into());
            }
            self.pass_on_the_end(side);
            return tx.transmit(SIDES[1 - side], now);
        }
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// Creates a client, the proxy and a server with two streams.
fn chain(to: &[Vec<u8>], back: &[Vec<u8>]) -> (World, [usize; 2]) {
    let mut world = World::default();
    let client = world.add(Framed::new(PATH, Security::Plain, to));
    let proxy = world.add(Proxy::new());
    let server = world.add(Framed::new(PATH, Security::Plain, back));
    let near = world.stream([(client, PATH), (proxy, SIDES[0])], 300_000, Receive::PIECE_MAX);
    let far = world.stream([(proxy, SIDES[1]), (server, PATH)], 20_000, 9_000);
    for (node, path) in [(proxy, SIDES[0]), (proxy, SIDES[1]), (client, PATH), (server, PATH)] {
        world.up(node, path, PathInfo::stream());
    }
    (world, [near, far])
}

fn pauses(world: &World) -> usize {
    received(&world.nodes[1].notes).len()
}

#[test]
fn a_slow_reader_holds_the_sender_back_through_the_proxy() {
    let to = messages(&[90_000; 12]);
    let (mut world, [_, far]) = chain(&to, &[]);
    world.slow(far, 0, TICK * 20);
    world.run();
    assert_eq!(received(&world.nodes[2].notes).len(), 12);
    assert!(received(&world.nodes[2].notes) == to);
    assert!(pauses(&world) > 5, "{} pauses", pauses(&world));
}

#[test]
fn the_other_direction_continues_after_a_half_close() {
    let (to, back) = (messages(&[10]), messages(&[80_000, 80_000, 5]));
    let (mut world, [_, far]) = chain(&to, &back);
    // The client ended long before the last of the reply arrives.
    world.slow(far, 1, TICK * 50);
    world.run();
    let client = &world.nodes[0].notes;
    assert!(received(client) == back);
    for node in [0, 2] {
        assert_eq!(world.nodes[node].notes.last(), Some(&Note::Done));
    }
}

#[test]
fn side_going_down_closes_the_other_after_the_last_byte() {
    let to = messages(&[60_000, 60_000]);
    let (mut world, [_, far]) = chain(&to, &[]);
    world.slow(far, 0, TICK * 30);
    world.notify_at(world.now + TICK * 8, 1, SIDES[0], PathEvent::Down);
    world.run();
    let server = &world.nodes[2].notes;
    assert!(received(server) == to, "data the proxy had accepted still arrives");
    assert_eq!(server.last(), Some(&Note::Down(PATH)));
    assert_eq!(world.nodes[1].notes.last(), Some(&Note::Down(SIDES[0])));
}
