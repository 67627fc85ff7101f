//! TCP over an IP interface: the lower engine's path carries whole packets, and its service is a
//! stream. The engine above also runs on the driver's streams.

use std::collections::VecDeque;
use std::time::Duration;

use slowlight_engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, PathKind, Receive, StreamEffect,
    Time, Timers, Transmit, TxBuf,
};

use crate::framed::{Framed, Security, messages, received};
use crate::world::{Note, TICK, World};

/// Interface, which leads to every address.
const INTERFACE: PathId = PathId(0);
/// Stream of the upper engine.
const CONNECTION: PathId = PathId(50);

const HEADER: usize = 13;
const SEND_BUFFER: usize = 5_000;
const RECEIVE_BUFFER: usize = 4_000;
const SYN: u8 = 1;
const FIN: u8 = 2;
const RESEND: Duration = Duration::from_millis(200);

/// Byte stream in the manner of TCP: sequence numbers, cumulative acknowledgements, a receive
/// window, go-back-N.
struct MiniTcp {
    address: u8,
    peer: u8,
    mtu: usize,
    up: bool,
    active: bool,
    connected: bool,
    /// Bytes from `acknowledged` on; sequence 0 is the SYN, the FIN is behind the last byte.
    send: VecDeque<u8>,
    acknowledged: u32,
    next: u32,
    window: u32,
    fin: bool,
    expected: u32,
    receive: VecDeque<u8>,
    peer_fin: bool,
    ack_due: bool,
    timers: Timers<()>,
}

impl MiniTcp {
    fn new(address: u8, peer: u8, active: bool) -> Self {
        Self {
            address,
            peer,
            mtu: 0,
            up: false,
            active,
            connected: false,
            send: VecDeque::new(),
            acknowledged: 0,
            next: 0,
            window: 1,
            fin: false,
            expected: 0,
            receive: VecDeque::new(),
            peer_fin: false,
            ack_due: false,
            timers: Timers::new(),
        }
    }

    /// Service request: takes as many bytes as there is room for, from the front.
    fn write(&mut self, bytes: &mut VecDeque<u8>) {
        let taken = bytes.len().min(SEND_BUFFER - self.send.len());
        self.send.extend(bytes.drain(..taken));
    }

    /// Takes all received bytes, which opens the window again.
    fn read(&mut self) -> Vec<u8> {
        self.ack_due |= self.receive.len() > RECEIVE_BUFFER / 2;
        self.receive.drain(..).collect()
    }

    fn end(&self) -> u32 {
        // The SYN counts as one; the FIN as another.
        let syn = u32::from(self.acknowledged == 0);
        self.acknowledged + syn + self.send.len() as u32 + u32::from(self.fin)
    }

    fn packet(&mut self, packet: &[u8]) {
        let Some((header, payload)) = packet.split_at_checked(HEADER) else { return };
        if header[0] != self.address || header[1] != self.peer {
            return;
        }
        let four =
            |at| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (flags, seq, ack) = (header[2], four(3), four(7));
        self.window = u32::from(u16::from_be_bytes([header[11], header[12]]));
        if ack > self.acknowledged && ack <= self.end() {
            let syn = u32::from(self.acknowledged == 0);
            let bytes = (ack - self.acknowledged - syn).min(self.send.len() as u32);
            self.send.drain(..bytes as usize);
            self.fin &= ack < self.acknowledged + syn + bytes + 1;
            self.acknowledged = ack;
            self.next = self.next.max(ack);
            self.timers.cancel(());
        }
        let occupies = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.ack_due |= occupies > 0;
        let room = RECEIVE_BUFFER - self.receive.len();
        if seq == self.expected && occupies > 0 && payload.len() <= room {
            self.expected += occupies;
            self.receive.extend(payload);
            self.connected |= flags & SYN != 0;
            self.peer_fin |= flags & FIN != 0;
        }
    }

    fn push(&mut self, tx: &mut TxBuf, flags: u8, seq: u32, payload: usize) -> bool {
        let Some(place) = tx.push(HEADER + payload) else { return false };
        let window = (RECEIVE_BUFFER - self.receive.len()) as u16;
        place[..3].copy_from_slice(&[self.peer, self.address, flags]);
        place[3..7].copy_from_slice(&seq.to_be_bytes());
        place[7..11].copy_from_slice(&self.expected.to_be_bytes());
        place[11..13].copy_from_slice(&window.to_be_bytes());
        let start = seq.saturating_sub(self.acknowledged) as usize;
        for (to, byte) in place[HEADER..].iter_mut().zip(self.send.iter().skip(start)) {
            *to = *byte;
        }
        self.ack_due = false;
        true
    }
}

impl Engine for MiniTcp {
    type Indication = ();

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => receive.datagrams().for_each(|packet| self.packet(packet)),
            Input::Path(_, PathEvent::Up(PathInfo { kind: PathKind::Datagram { mtu }, .. })) => {
                (self.mtu, self.up) = (mtu, true);
            }
            Input::Path(..) | Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.timers.pop_due(now).is_some() {
            self.next = self.acknowledged;
            // Probes a closed window with one byte.
            self.window = self.window.max(1);
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.up {
            return None;
        }
        let before = self.next;
        if self.next == 0 && (self.active || self.expected > 0) {
            self.push(tx, SYN, 0, 0);
            self.next = 1;
        } else if self.acknowledged > 0 {
            let data_end = self.acknowledged + self.send.len() as u32;
            let limit = data_end.min(self.acknowledged + self.window);
            while self.next < limit {
                let len = (limit - self.next).min((self.mtu - HEADER) as u32);
                if !self.push(tx, 0, self.next, len as usize) {
                    break;
                }
                self.next += len;
            }
            if tx.is_empty() && self.fin && self.next == data_end {
                self.push(tx, FIN, self.next, 0);
                self.next += 1;
            }
        }
        if tx.is_empty() && self.ack_due {
            self.push(tx, 0, self.next, 0);
        }
        // The timer also runs while data waits for a closed window; otherwise a lost window update
        // would stall the connection.
        let waits = self.next > before || self.next < self.end();
        if waits && self.timers.is_empty() && (self.active || self.expected > 0) {
            self.timers.set((), now + RESEND, "retransmission");
        }
        tx.transmit(INTERFACE, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}

/// The parent: to the upper engine it behaves like a driver with a kernel's stream.
struct Host {
    upper: Framed,
    tcp: MiniTcp,
    tx: TxBuf,
    /// Bytes from the upper engine that the connection has not taken yet.
    kept: VecDeque<u8>,
    blocked: bool,
    shut: bool,
    told_up: bool,
    told_end: bool,
}

impl Host {
    fn new(tcp: MiniTcp, upper: Framed) -> Self {
        Self {
            upper,
            tcp,
            tx: TxBuf::new(1),
            kept: VecDeque::new(),
            blocked: false,
            shut: false,
            told_up: false,
            told_end: false,
        }
    }

    fn notify(&mut self, now: Time, event: PathEvent) {
        self.upper.handle_input(now, Input::Path(CONNECTION, event));
    }

    /// Moves data between the two.
    fn settle(&mut self, now: Time) {
        if self.tcp.connected && !self.told_up {
            self.told_up = true;
            self.notify(now, PathEvent::Up(PathInfo::stream()));
        }
        let bytes = self.tcp.read();
        if !bytes.is_empty() {
            let receive = Receive::datagram(CONNECTION, &bytes);
            self.upper.handle_input(now, Input::Receive(receive));
        }
        if self.tcp.peer_fin && !self.told_end {
            self.told_end = true;
            self.notify(now, PathEvent::ReadClosed);
        }
        loop {
            self.tcp.write(&mut self.kept);
            if !self.kept.is_empty() {
                break;
            }
            if std::mem::take(&mut self.blocked) {
                self.notify(now, PathEvent::Writable);
            }
            self.tx.clear();
            if self.upper.poll_transmit(now, &mut self.tx).is_none() {
                break;
            }
            self.kept.extend(self.tx.bytes());
        }
        while let Some(effect) = self.upper.poll_effect() {
            self.shut |= effect == Effect::Stream(StreamEffect::ShutdownWrite { path: CONNECTION });
        }
        if !self.kept.is_empty() && !self.blocked {
            self.blocked = true;
            self.notify(now, PathEvent::Blocked);
        }
        if self.shut && self.kept.is_empty() {
            self.shut = false;
            self.tcp.fin = true;
        }
    }
}

impl Engine for Host {
    type Indication = Note;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.tcp.handle_input(now, input);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tcp.handle_timeout(now);
        self.upper.handle_timeout(now);
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.tcp.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.upper.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.tcp.poll_timeout().into_iter().chain(self.upper.poll_timeout()).min()
    }
}

/// Creates two hosts that communicate, and a third on the same interface that receives all packets
/// too.
fn three(to: &[Vec<u8>], back: &[Vec<u8>]) -> World {
    let mut world = World::default();
    let host = |address, peer, active, messages: &[Vec<u8>]| {
        let upper = Framed::new(CONNECTION, Security::Plain, messages);
        Host::new(MiniTcp::new(address, peer, active), upper)
    };
    world.add(host(10, 20, true, to));
    world.add(host(20, 10, false, back));
    world.add(host(30, 10, false, &messages(&[1])));
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            world.route(from, INTERFACE, (to, INTERFACE), INTERFACE);
        }
    }
    world
}

fn up_and_run(world: &mut World) {
    for node in [2, 1, 0] {
        world.up(node, INTERFACE, PathInfo::datagram(500));
    }
    world.run();
}

#[test]
fn the_engine_for_kernel_streams_runs_on_our_own_tcp() {
    let (to, back) = (messages(&[70_000, 0, 9]), messages(&[20_000]));
    let mut world = three(&to, &back);
    up_and_run(&mut world);
    assert!(received(&world.nodes[1].notes) == to);
    assert!(received(&world.nodes[0].notes) == back);
    for node in [0, 1] {
        assert_eq!(world.nodes[node].notes.last(), Some(&Note::Done));
    }
    assert!(world.nodes[2].notes.is_empty(), "packets for another address are not its own");
    // Full segments leave as batches that segmentation offload can take.
    assert!(world.pulled.iter().any(|(_, _, lens)| lens.len() > 4 && lens[..4] == [500; 4]));
}

#[test]
fn losses_are_repaired_below_the_stream() {
    let (to, back) = (messages(&[30_000]), messages(&[30_000]));
    for seed in 1..20u64 {
        let mut world = three(&to, &back);
        // Loses about every eleventh packet; with some seeds that includes the first ones, with the
        // SYN.
        world.lose = (0..400).filter(|n| (n * 7 + seed) % 11 == 0).collect();
        up_and_run(&mut world);
        assert!(received(&world.nodes[1].notes) == to, "seed {seed}");
        assert!(received(&world.nodes[0].notes) == back, "seed {seed}");
        assert!(world.now > Time::ZERO + TICK, "time passed");
    }
}
