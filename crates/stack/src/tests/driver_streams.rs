//! Proxy between the driver's streams and our TCP's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ::pep::{self, Pep};
use ::tcp::{self, CloseReason, ConnectionId, Indication, Options, Stack};
use engine::{
    Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Receive, Rng,
    StreamEffect, Ticket, Time, TxBuf,
};

use super::bytes;
use crate::{Config, OverTcp};

/// Interface between the two.
const LINE: PathId = PathId(u32::MAX);
/// A stream of the driver.
const LAN: PathId = PathId(3);

fn client() -> SocketAddr {
    "10.1.0.7:41000".parse().expect("an address")
}

fn server() -> SocketAddr {
    "10.2.0.9:80".parse().expect("an address")
}

/// A gateway, its driver, and a host at the other end of its line.
struct Desk {
    now: Time,
    gateway: OverTcp<Pep>,
    peer: Stack,
    /// Data of the gateway on the driver's streams.
    got: BTreeMap<PathId, Vec<u8>>,
    /// Effects of the gateway, with the bytes that had been sent before each.
    effects: Vec<(Effect, usize)>,
    /// Connection of the peer, data it read, and how it ended.
    connection: Option<ConnectionId>,
    read: Vec<u8>,
    ended: bool,
    closed: Option<CloseReason>,
    ends: Option<(SocketAddr, SocketAddr)>,
    /// Bytes that the driver's buffer takes at once.
    takes: usize,
}

impl Desk {
    fn new() -> Self {
        let config = Config {
            listen: vec!["0.0.0.0:0".parse().expect("an address")],
            has_driver_streams: true,
            ..Config::default()
        };
        let pep = Pep::new(pep::Config { buffer: 1 << 20, ..pep::Config::default() });
        let mut desk = Self {
            now: Time::ZERO,
            gateway: OverTcp::new(config, pep, Rng::new(1, "gateway")),
            peer: Stack::new(tcp::Config::default(), Rng::new(2, "peer")),
            got: BTreeMap::new(),
            effects: Vec::new(),
            connection: None,
            read: Vec::new(),
            ended: false,
            closed: None,
            ends: None,
            takes: 10_000,
        };
        let up = || Input::Path(LINE, PathEvent::Up(PathInfo::datagram(1500)));
        desk.gateway.handle_input(desk.now, up());
        desk.peer.handle_input(desk.now, up());
        desk
    }

    fn notify(&mut self, path: PathId, event: PathEvent) {
        self.gateway.handle_input(self.now, Input::Path(path, event));
        self.run();
    }

    fn up(&mut self, ends: (SocketAddr, SocketAddr), ticket: Option<Ticket>) {
        let info = PathInfo { ends: Some(ends), ticket, ..PathInfo::stream() };
        self.notify(LAN, PathEvent::Up(info));
    }

    fn hand_in(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(Receive::PIECE_MAX) {
            let receive = Receive::datagram(LAN, piece);
            self.gateway.handle_input(self.now, Input::Receive(receive));
            self.run();
        }
    }

    /// Runs all events of half a minute.
    fn run(&mut self) {
        let until = self.now + std::time::Duration::from_secs(30);
        loop {
            while self.drain() {}
            let deadlines = [self.gateway.poll_timeout(), self.peer.poll_timeout()];
            let next = deadlines.into_iter().flatten().map(|deadline| deadline.at).min();
            match next.filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => return,
            }
            self.gateway.handle_timeout(self.now);
            self.peer.handle_timeout(self.now);
        }
    }

    fn drain(&mut self) -> bool {
        let mut worked = false;
        while let Some(effect) = self.gateway.poll_effect() {
            self.effects.push((effect, self.got.get(&LAN).map_or(0, Vec::len)));
            worked = true;
        }
        while self.gateway.poll_indication().is_some() {}
        let mut tx = TxBuf::with_limits(64, self.takes);
        if let Some(transmit) = self.gateway.poll_transmit(self.now, &mut tx) {
            worked = true;
            if transmit.path == LINE {
                let receive =
                    Receive { stride: transmit.segment, ..Receive::datagram(LINE, tx.bytes()) };
                self.peer.handle_input(self.now, Input::Receive(receive));
            } else {
                assert_eq!(transmit.len, tx.bytes().len());
                self.got.entry(transmit.path).or_default().extend(tx.bytes());
            }
        }
        let mut tx = TxBuf::new(64);
        if let Some(transmit) = self.peer.poll_transmit(self.now, &mut tx) {
            worked = true;
            let receive =
                Receive { stride: transmit.segment, ..Receive::datagram(LINE, tx.bytes()) };
            self.gateway.handle_input(self.now, Input::Receive(receive));
        }
        while let Some(indication) = self.peer.poll_indication() {
            worked = true;
            self.indicated(indication);
        }
        worked
    }

    fn indicated(&mut self, indication: Indication) {
        match indication {
            Indication::Incoming { connection, local, remote, .. } => {
                self.connection = Some(connection);
                self.ends = Some((local, remote));
            }
            Indication::Readable { connection } => {
                let read = self.peer.receive(self.now, connection, &mut self.read);
                assert!(read.is_ok());
            }
            Indication::PeerClosed { .. } => self.ended = true,
            Indication::Closed { reason, .. } => self.closed = Some(reason),
            Indication::Connected { .. }
            | Indication::Writable { .. }
            | Indication::BacklogFull { .. }
            | Indication::PlainTcp { .. }
            | Indication::Record { .. }
            | Indication::Holes { .. } => {}
        }
    }

    fn peer_sends(&mut self, bytes: &[u8]) {
        let connection = self.connection.expect("it is connected");
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.peer.send(self.now, connection, rest).expect("it is open");
            rest = &rest[taken..];
            self.run();
        }
    }

    fn happened(&self, effect: &Effect) -> Option<usize> {
        self.effects.iter().find(|(other, _)| other == effect).map(|(_, bytes)| *bytes)
    }

    /// Opens a client's stream at the driver, which the peer accepts as the server.
    fn from_lan() -> Self {
        let mut desk = Self::new();
        let backlog = tcp::Backlog::default();
        desk.peer.listen(server(), Options::default(), backlog).expect("connection refused");
        desk.up((server(), client()), None);
        desk
    }

    /// Opens a connection of the peer as the client; returns it with the connect request to the
    /// driver.
    fn from_wan() -> (Self, Ticket) {
        let mut desk = Self::new();
        let connection = desk.peer.connect(desk.now, client(), server(), Options::default());
        desk.connection = Some(connection.expect("there is a way"));
        desk.run();
        let request = desk.effects.iter().find_map(|(effect, _)| match effect {
            Effect::Stream(StreamEffect::Connect { ticket, from, to, .. }) => {
                Some((*ticket, *from, *to))
            }
            _ => None,
        });
        let (ticket, from, to) = request.expect("the driver has a request");
        assert_eq!((from, to), (Some(client()), server()));
        (desk, ticket)
    }
}

#[test]
fn a_driver_stream_continues_over_our_tcp() {
    let mut desk = Desk::from_lan();
    assert_eq!(desk.ends, Some((server(), client())), "with the addresses that it has");
    assert!(desk.effects.is_empty(), "{:?}", desk.effects);
    let (to, back) = (bytes(300_000), bytes(200_001));
    desk.hand_in(&to);
    assert!(desk.read == to);
    desk.peer_sends(&back);
    desk.notify(LAN, PathEvent::ReadClosed);
    assert!(desk.ended && desk.closed.is_none());
    let connection = desk.connection.expect("it is connected");
    desk.peer.shut_down(desk.now, connection).expect("it is open");
    desk.run();
    assert!(desk.got[&LAN] == back);
    let before = desk.happened(&Effect::Stream(StreamEffect::ShutdownWrite { path: LAN }));
    let closed = desk.happened(&Effect::Path(PathEffect::Close { path: LAN }));
    assert_eq!(before.or(closed), Some(back.len()), "the end is behind the last byte");
    assert_eq!(desk.gateway.above().statistics().completed, 1);
}

#[test]
fn a_connection_of_our_tcp_continues_over_the_driver() {
    let (mut desk, request) = Desk::from_wan();
    desk.peer_sends(b"before");
    desk.up((client(), server()), Some(request));
    desk.peer_sends(b" and after");
    assert_eq!(desk.got[&LAN], b"before and after");
    let back = bytes(150_000);
    desk.hand_in(&back);
    assert!(desk.read == back);
    desk.notify(LAN, PathEvent::Down);
    assert_eq!(desk.closed, Some(CloseReason::Reset), "the driver's was reset");
}

#[test]
fn a_failed_connection_of_the_driver_is_reset() {
    let (mut desk, request) = Desk::from_wan();
    let refused = Err(EffectError::Failed("connection refused".to_owned()));
    desk.gateway.handle_input(desk.now, Input::Done(request, refused));
    desk.run();
    assert_eq!(desk.closed, Some(CloseReason::Reset));
}

#[test]
fn a_reset_of_our_tcp_resets_the_drivers() {
    let mut desk = Desk::from_lan();
    let connection = desk.connection.expect("it is connected");
    desk.peer.abort(desk.now, connection).expect("it is open");
    desk.run();
    assert_eq!(desk.happened(&Effect::Stream(StreamEffect::Reset { path: LAN })), Some(0));
}

#[test]
fn a_blocked_driver_pauses_the_peer() {
    let mut desk = Desk::from_lan();
    desk.peer_sends(&bytes(10_000));
    desk.notify(LAN, PathEvent::Blocked);
    let connection = desk.connection.expect("it is connected");
    let more = bytes(20_000_000);
    let mut taken = 0;
    loop {
        let now = desk.peer.send(desk.now, connection, &more[taken..]).expect("it is open");
        taken += now;
        desk.run();
        if now == 0 {
            break;
        }
    }
    assert!(taken < more.len() && desk.got[&LAN].len() == 10_000);
    desk.notify(LAN, PathEvent::Writable);
    desk.peer_sends(&more[taken..]);
    assert!(desk.got[&LAN][10_000..] == more);
}

#[test]
fn a_pause_overtakes_waiting_bytes() {
    let mut desk = Desk::from_lan();
    // The peer's bytes wait for the driver, which receives more before it takes them.
    let connection = desk.connection.expect("it is connected");
    desk.peer.send(desk.now, connection, &bytes(5000)).expect("it is open");
    let mut tx = TxBuf::new(64);
    while let Some(transmit) = desk.peer.poll_transmit(desk.now, &mut tx) {
        let receive = Receive { stride: transmit.segment, ..Receive::datagram(LINE, tx.bytes()) };
        desk.gateway.handle_input(desk.now, Input::Receive(receive));
        tx.clear();
    }
    let piece = bytes(Receive::PIECE_MAX);
    let pause = Effect::Path(PathEffect::PauseRead { path: LAN });
    let handed = (1..400).find(|_| {
        desk.gateway.handle_input(desk.now, Input::Receive(Receive::datagram(LAN, &piece)));
        let effects: Vec<_> = std::iter::from_fn(|| desk.gateway.poll_effect()).collect();
        effects.contains(&pause)
    });
    // The proxy's bound of 1 MiB, and our TCP's buffer.
    assert!(handed.is_some_and(|pieces| pieces < 100), "{handed:?}");
    desk.takes = 1000;
    desk.run();
    assert!(desk.got[&LAN] == bytes(5000), "in pieces that the driver's buffer takes");
}
