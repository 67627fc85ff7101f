//! Driver of streams whose far ends are the test: delivers data, holds the proxy to the contract,
//! and keeps its output.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{
    Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Receive,
    StreamEffect, Ticket, Time, TxBuf,
};

use super::super::{Config, Indication, Pep};

pub(super) fn client(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, 1], 40_000 + number))
}

pub(super) fn server() -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 1], 80))
}

/// Far end of a stream.
#[derive(Debug, Default)]
pub(super) struct Far {
    /// Bytes it sends that the proxy has not received yet.
    pub(super) data: Vec<u8>,
    /// Whether its end follows those bytes.
    pub(super) ends: bool,
    sent_end: bool,
    /// Bytes it received.
    pub(super) received: Vec<u8>,
    /// Bytes it still accepts.
    pub(super) window: usize,
    /// Polled bytes that found no room.
    kept: Vec<u8>,
    blocked: bool,
    pub(super) paused: bool,
    /// Whether it received the proxy's end.
    pub(super) received_end: bool,
    shut: bool,
    /// Whether the proxy left it.
    pub(super) closed: bool,
    pub(super) reset: bool,
}

/// The proxy with its driver.
pub(super) struct Desk {
    pub(super) now: Time,
    pub(super) pep: Pep,
    config: Config,
    pub(super) streams: BTreeMap<PathId, Far>,
    /// Requested streams: from and to.
    pub(super) requested: BTreeMap<Ticket, (Option<SocketAddr>, SocketAddr)>,
    pub(super) indications: Vec<Indication>,
    next: u32,
    /// Longest piece delivered.
    pub(super) piece: usize,
}

impl Desk {
    pub(super) fn new(config: Config) -> Self {
        Self {
            now: Time::from_secs(50),
            pep: Pep::new(config.clone()),
            config,
            streams: BTreeMap::new(),
            requested: BTreeMap::new(),
            indications: Vec::new(),
            next: 0,
            piece: Receive::PIECE_MAX,
        }
    }

    fn new_path(&mut self) -> PathId {
        self.next += 1;
        PathId(self.next)
    }

    /// Opens a client's stream to the server.
    pub(super) fn open(&mut self, number: u16) -> PathId {
        let path = self.new_path();
        self.streams.insert(path, Far { window: usize::MAX, ..Far::default() });
        let info = PathInfo { ends: Some((server(), client(number))), ..PathInfo::stream() };
        self.event(path, PathEvent::Up(info));
        path
    }

    /// Accepts a stream as the server.
    pub(super) fn accept(&mut self, ticket: Ticket) -> PathId {
        let (from, to) = self.requested.remove(&ticket).expect("it was requested");
        let path = self.new_path();
        self.streams.insert(path, Far { window: usize::MAX, ..Far::default() });
        let near = from.unwrap_or(SocketAddr::from(([10, 9, 0, 1], 1)));
        let info = PathInfo { ends: Some((near, to)), ticket: Some(ticket), ..PathInfo::stream() };
        self.event(path, PathEvent::Up(info));
        path
    }

    /// Opens a client's stream and the server's.
    pub(super) fn pair(&mut self, number: u16) -> [PathId; 2] {
        let near = self.open(number);
        let ticket = *self.requested.keys().next_back().expect("the proxy connects to the server");
        [near, self.accept(ticket)]
    }

    pub(super) fn refuse(&mut self, ticket: Ticket) {
        self.requested.remove(&ticket).expect("it was requested");
        let result = Err(EffectError::Failed("connection refused".to_owned()));
        self.pep.handle_input(self.now, Input::Done(ticket, result));
        self.drain();
    }

    pub(super) fn event(&mut self, path: PathId, event: PathEvent) {
        self.pep.handle_input(self.now, Input::Path(path, event));
        self.drain();
    }

    pub(super) fn down(&mut self, path: PathId) {
        self.streams.remove(&path);
        self.event(path, PathEvent::Down);
    }

    /// Sends from the far end of a stream, and may end it.
    pub(super) fn send(&mut self, path: PathId, bytes: &[u8], ends: bool) {
        let far = self.streams.get_mut(&path).expect("a stream");
        far.data.extend_from_slice(bytes);
        far.ends |= ends;
        self.work();
    }

    /// Lets the far end of a stream accept `bytes` more bytes.
    pub(super) fn take(&mut self, path: PathId, bytes: usize) {
        let far = self.streams.get_mut(&path).expect("a stream");
        far.window = far.window.saturating_add(bytes);
        self.work();
    }

    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.pep.poll_timeout().filter(|next| next.at <= until) {
            self.now = self.now.max(deadline.at);
            self.pep.handle_timeout(self.now);
            self.drain();
            let next = self.pep.poll_timeout();
            assert!(next.is_none_or(|next| next.at > self.now), "{next:?}");
        }
        self.now = until;
    }

    /// Delivers all data to read, one piece of each stream after the other.
    pub(super) fn work(&mut self) {
        let mut worked = true;
        while worked {
            worked = false;
            let paths: Vec<_> = self.streams.keys().copied().collect();
            for path in paths {
                worked |= self.flush(path) | self.hand_in(path);
            }
        }
    }

    fn hand_in(&mut self, path: PathId) -> bool {
        let Some(far) = self.streams.get_mut(&path) else { return false };
        if far.paused {
            return false;
        }
        if far.data.is_empty() {
            if !far.ends || std::mem::replace(&mut far.sent_end, true) {
                return false;
            }
            self.event(path, PathEvent::ReadClosed);
            return true;
        }
        let rest = far.data.split_off(far.data.len().min(self.piece));
        let piece = std::mem::replace(&mut far.data, rest);
        self.pep.handle_input(self.now, Input::Receive(Receive::datagram(path, &piece)));
        self.drain();
        true
    }

    /// Passes waiting bytes to a far end, as far as it accepts them.
    fn flush(&mut self, path: PathId) -> bool {
        let Some(far) = self.streams.get_mut(&path) else { return false };
        let count = far.kept.len().min(far.window);
        far.window -= count;
        far.received.extend(far.kept.drain(..count));
        far.received_end = far.shut && far.kept.is_empty();
        if far.blocked && far.kept.is_empty() {
            far.blocked = false;
            self.event(path, PathEvent::Writable);
            return true;
        }
        false
    }

    fn drain(&mut self) {
        let mut tx = TxBuf::with_limits(1, Receive::PIECE_MAX);
        loop {
            let mut worked = false;
            while let Some(effect) = self.pep.poll_effect() {
                self.carry_out(effect);
                worked = true;
            }
            tx.clear();
            if let Some(transmit) = self.pep.poll_transmit(self.now, &mut tx) {
                let far = self.streams.get_mut(&transmit.path).expect("a stream that is up");
                assert!(!far.blocked && !far.shut && !far.closed, "{:?}: {far:?}", transmit.path);
                far.kept.extend_from_slice(tx.bytes());
                let full = far.kept.len() > far.window;
                far.blocked = full;
                self.flush(transmit.path);
                if full {
                    self.pep.handle_input(self.now, Input::Path(transmit.path, PathEvent::Blocked));
                }
                worked = true;
            }
            while let Some(indication) = self.pep.poll_indication() {
                self.indications.push(indication);
                worked = true;
            }
            self.check();
            if !worked {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Stream(StreamEffect::Connect { ticket, from, to, .. }) => {
                _ = self.requested.insert(ticket, (from, to));
            }
            Effect::Stream(StreamEffect::StopConnecting { ticket }) => {
                self.requested.remove(&ticket).expect("it was requested");
            }
            Effect::Path(PathEffect::PauseRead { path }) => self.far(path).paused = true,
            Effect::Path(PathEffect::ResumeRead { path }) => {
                assert!(self.far(path).paused, "only what is paused is resumed");
                self.far(path).paused = false;
            }
            Effect::Stream(StreamEffect::ShutdownWrite { path }) => {
                let far = self.far(path);
                assert!(!far.shut, "once");
                far.shut = true;
                far.received_end = far.kept.is_empty();
            }
            Effect::Path(PathEffect::Close { path }) => self.far(path).closed = true,
            Effect::Stream(StreamEffect::Reset { path }) => {
                let far = self.far(path);
                (far.closed, far.reset) = (true, true);
                far.data.clear();
                far.ends = false;
            }
            other => panic!("a proxy has no use for {other:?}"),
        }
    }

    fn far(&mut self, path: PathId) -> &mut Far {
        let far = self.streams.get_mut(&path).expect("a stream");
        assert!(!far.closed, "the stream was left");
        far
    }

    /// Checks the invariants.
    fn check(&self) {
        let statistics = self.pep.statistics();
        let reports: Vec<_> = self.pep.connections().collect();
        let held: usize = reports.iter().flat_map(|report| report.buffered).sum();
        assert_eq!(held, statistics.buffered);
        assert!(held <= self.config.bytes_max(), "{held}");
        assert!(reports.len() <= self.config.connections);
        for report in reports {
            assert!(report.buffer_peak.into_iter().all(|peak| peak <= self.config.direction_max()));
        }
    }

    /// Whether nothing is left of any connection.
    pub(super) fn is_clean(&self) -> bool {
        let statistics = self.pep.statistics();
        (statistics.open, statistics.buffered, self.pep.memory()) == (0, 0, 0)
            && self.pep.poll_timeout().is_none()
            && self.requested.is_empty()
    }
}
