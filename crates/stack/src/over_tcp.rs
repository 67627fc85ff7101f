//! Engine of streams on top of TCP.

mod config;
mod effects;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use ::tcp::scps::Hole;
use ::tcp::{self, CloseReason, ConnectionId, Indication, ListenerId, RequestError, State};
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, Input, PathEvent, PathId, PathInfo, Receive,
    Rng, Ticket, Time, Timers, Transmit, TxBuf,
};

pub use self::config::{Acceptance, Config, Host, Limits};

use super::late::{Late, PendingSyn};
use super::outside::Outside;
use super::streams::{Awaited, Owner, Phase, Stream, Streams};

/// Counters of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections attempted or accepted.
    pub connections: u64,
    /// Incoming streams rejected for lack of room or of a listener.
    pub turned_away: u64,
}

/// Reason for the deadline of a stream that was left.
const LEFT: &str = "a lingering stream";

/// Reason for the deadline of a connection opened for a peer.
const UNCLAIMED: &str = "an unclaimed connection for a peer";

/// Minimum [`Config::linger`].
const LINGER_MIN: Duration = Duration::from_millis(1);

/// A transmission that must not be sent yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    transmit: Transmit,
    /// Connection of its stream, if that was left in the meantime.
    left: Option<ConnectionId>,
}

/// Engine `A`, whose paths are streams, over TCP, whose paths are IP interfaces.
#[derive(Debug)]
pub struct OverTcp<A: Engine> {
    above: A,
    below: tcp::Stack,
    config: Config,
    rng: Rng,
    streams: Streams,
    /// Connections for peers that are not accepted yet.
    late: Late,
    /// Storage effects of the engine above, for the driver.
    effects: VecDeque<Effect>,
    /// Linger timers of streams that were left.
    timers: Timers<ConnectionId>,
    tx: TxBuf,
    /// Polled transmission in `tx` that must not be sent before a moment.
    held: Option<Held>,
    /// Streams of the driver.
    outside: Outside,
    /// Stream whose last transmission was taken only in part; the engine above is to be notified.
    full: Option<PathId>,
    statistics: Statistics,
}

impl<A: Engine> OverTcp<A> {
    /// Engine `above` over a new stack.
    #[must_use]
    pub fn new(config: Config, above: A, mut rng: Rng) -> Self {
        let config = Config { linger: config.linger.max(LINGER_MIN), ..config };
        let below = tcp::Stack::new(config.tcp.clone(), Rng::new(rng.next_u64(), "tcp"));
        let named = config.peers.keys().next_back().map_or(0, |path| path.0.saturating_add(1));
        let first = if config.has_driver_streams { named.max(Config::DRIVERS.0) } else { named };
        let mut this = Self {
            above,
            below,
            streams: Streams::from(first),
            rng,
            late: Late::default(),
            effects: VecDeque::new(),
            timers: Timers::new(),
            tx: TxBuf::with_limits(1, Receive::PIECE_MAX),
            held: None,
            outside: Outside::default(),
            full: None,
            statistics: Statistics::default(),
            config,
        };
        for address in &this.config.listen {
            let (options, backlog) = (this.config.options.clone(), this.config.backlog);
            // A repeated address is listened on once.
            if let Ok(id) = this.below.listen(*address, options, backlog) {
                this.streams.listeners.insert(id, Awaited::Any);
            }
        }
        this
    }

    /// The engine above.
    #[must_use]
    pub fn above(&self) -> &A {
        &self.above
    }

    /// The stack below.
    #[must_use]
    pub fn below(&self) -> &tcp::Stack {
        &self.below
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// State of each connection that is a stream of the engine above.
    pub fn connections(&mut self) -> Vec<(PathId, tcp::Info)> {
        let below = &mut self.below;
        let streams = self.streams.by_path.iter();
        streams
            .filter_map(|(path, stream)| Some((*path, below.info(stream.connection).ok()?)))
            .collect()
    }

    /// Calls the engine above with a request.
    pub fn call<R>(&mut self, now: Time, request: impl FnOnce(&mut A) -> R) -> R {
        let result = request(&mut self.above);
        self.settle(now);
        result
    }

    fn notify(&mut self, now: Time, path: PathId, event: PathEvent) {
        self.above.handle_input(now, Input::Path(path, event));
    }

    fn complete(&mut self, now: Time, ticket: Ticket, result: Result<Completion, EffectError>) {
        self.above.handle_input(now, Input::Done(ticket, result));
    }

    /// Moves data, events and effects between the two until there are none left.
    fn settle(&mut self, now: Time) -> bool {
        let mut worked = false;
        loop {
            // Effects of the engine above come first: it gets no events of a stream that it has
            // left.
            if let Some(effect) = self.above.poll_effect() {
                self.carry_out(now, effect);
            } else if let Some(path) = self.full.take() {
                if self.streams.by_path.get(&path).is_some_and(|stream| stream.blocked) {
                    self.notify(now, path, PathEvent::Blocked);
                }
            } else if let Some(indication) = self.below.poll_indication() {
                self.indicated(now, indication);
            } else if !self.hand_in(now) && !self.pull(now) {
                // When polled for a transmission, the engine above may emit an effect instead: to
                // read data first.
                let Some(effect) = self.above.poll_effect() else { return worked };
                self.carry_out(now, effect);
            }
            worked = true;
        }
    }

    fn indicated(&mut self, now: Time, indication: Indication) {
        match indication {
            Indication::Connected { connection } => self.connected(now, connection),
            Indication::Incoming { listener, connection, local, remote } => {
                self.incoming(now, listener, connection, local, remote);
            }
            Indication::Readable { connection } | Indication::PeerClosed { connection } => {
                let ended = matches!(indication, Indication::PeerClosed { .. });
                self.arrived(now, connection, ended);
            }
            Indication::Writable { connection } => self.write_on(now, connection),
            Indication::Closed { connection, reason } => self.closed(now, connection, reason),
            // Rejected peers retry by themselves.
            Indication::BacklogFull { .. }
            | Indication::Record { .. }
            | Indication::PlainTcp { .. } => {}
            Indication::Holes { connection } => self.left_out(now, connection),
        }
    }

    /// Passes packets to the stack, except SYNs that must wait for a connection.
    fn arrive(&mut self, now: Time, receive: Receive<'_>) {
        let Acceptance::WhenConnected { most } = self.config.acceptance else {
            return self.below.handle_input(now, Input::Receive(receive));
        };
        for packet in receive.datagrams() {
            if !self.request_connection(now, most, receive.path, packet) {
                let packet = Receive { stride: packet.len(), bytes: packet, ..receive };
                self.below.handle_input(now, Input::Receive(packet));
            }
        }
    }

    /// Opens a connection on behalf of a peer with a SYN. Returns whether its packet waits or got a
    /// reply.
    fn request_connection(&mut self, now: Time, most: usize, path: PathId, packet: &[u8]) -> bool {
        let Some(ends) = self.below.asks(packet) else { return false };
        let (client, server) = ends;
        // This host's own streams are not proxied.
        if self.late.is_ready(ends) || self.config.addresses.contains(&server.ip()) {
            return false;
        }
        if self.late.is_pending(ends) {
            return true;
        }
        let taken = self.streams.by_path.len() + 2 * self.late.count();
        let connection = if taken + 2 > most {
            Err(RequestError::Full)
        } else {
            self.below.connect(now, client, server, self.config.options.clone())
        };
        match connection {
            Ok(connection) => {
                self.late.insert(connection, PendingSyn { ends, path, syn: packet.to_vec() });
            }
            Err(_) => {
                self.statistics.turned_away += 1;
                self.below.refuse(path, packet);
            }
        }
        true
    }

    /// Accepts a peer whose connection is now open.
    fn accept_late(&mut self, now: Time, connection: ConnectionId, pending: &PendingSyn) {
        self.timers.set(connection, now + self.config.linger, UNCLAIMED);
        let syn = Receive::datagram(pending.path, &pending.syn);
        self.below.handle_input(now, Input::Receive(syn));
    }

    fn connected(&mut self, now: Time, connection: ConnectionId) {
        if let Some(pending) = self.late.connected(connection) {
            return self.accept_late(now, connection, &pending);
        }
        let ends = self.below.info(connection).ok().map(|info| (info.local, info.remote));
        let Some((path, stream)) = self.streams.get_by_connection(connection) else { return };
        let Phase::Opening(ticket) = stream.phase else { return };
        stream.phase = Phase::Up;
        stream.ends = ends;
        if stream.shut {
            let _ = self.below.shut_down(now, connection);
        }
        self.notify(now, path, PathEvent::Up(PathInfo { ends, ticket, ..PathInfo::stream() }));
    }

    fn incoming(
        &mut self,
        now: Time,
        listener: ListenerId,
        connection: ConnectionId,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        let awaited = self.streams.listeners.get(&listener).copied();
        let ticket = match awaited {
            Some(Awaited::Any) if self.streams.count() < self.config.limits.streams => None,
            Some(Awaited::One(ticket)) if self.streams.count() < self.config.limits.streams => {
                self.stop_listening(now, listener);
                Some(ticket)
            }
            Some(Awaited::Any | Awaited::One(_)) | None => {
                self.statistics.turned_away += 1;
                let _ = self.below.abort(now, connection);
                return;
            }
        };
        self.statistics.connections += 1;
        let ends = Some((local, remote));
        let peers = &self.config.peers;
        let path = self.streams.new_path(|path| peers.contains_key(&path));
        let stream = Stream { ends, ..Stream::new(connection, Phase::Up) };
        self.streams.insert(path, stream);
        self.notify(now, path, PathEvent::Up(PathInfo { ends, ticket, ..PathInfo::stream() }));
    }

    /// Reports missing data. Gaps that this side gave up are reported by the peer to its own user.
    /// Gaps that nobody fetches would stall the service.
    fn left_out(&mut self, now: Time, connection: ConnectionId) {
        let Ok(holes) = self.below.take_holes(now, connection) else { return };
        let Some((path, _)) = self.streams.get_by_connection(connection) else { return };
        for Hole { offset, bytes } in holes.received {
            self.notify(now, path, PathEvent::Missing { offset, bytes });
        }
    }

    /// Records data to read, or the end of the peer's data.
    fn arrived(&mut self, now: Time, connection: ConnectionId, ended: bool) {
        if let Some((path, stream)) = self.streams.get_by_connection(connection) {
            stream.ended |= ended;
            self.streams.readable.insert(path);
            return;
        }
        if self.streams.owners.get(&connection) == Some(&Owner::Nobody) {
            let _ = self.below.consume(now, connection, usize::MAX);
            if ended && !self.streams.left.contains_key(&connection) {
                self.forget(now, connection);
            }
        }
    }

    /// Writes kept bytes to a connection with room again.
    fn write_on(&mut self, now: Time, connection: ConnectionId) {
        if let Some(kept) = self.streams.left.get_mut(&connection) {
            drain_into(&mut self.below, now, connection, kept);
            if kept.is_empty() {
                self.streams.left.remove(&connection);
                self.leave_written(now, connection);
            }
            return;
        }
        let Some((path, stream)) = self.streams.get_by_connection(connection) else { return };
        let (below, blocked) = (&mut self.below, stream.blocked);
        drain_into(below, now, connection, &mut stream.kept);
        if !stream.kept.is_empty() {
            return;
        }
        stream.kept = Vec::new();
        stream.blocked = false;
        if stream.shut {
            let _ = below.shut_down(now, connection);
        }
        if blocked {
            self.notify(now, path, PathEvent::Writable);
        }
    }

    /// Handles the end of a connection.
    fn closed(&mut self, now: Time, connection: ConnectionId, reason: CloseReason) {
        self.timers.cancel(connection);
        if self.late.has(connection) {
            let pending = self.late.over(connection);
            pending.into_iter().for_each(|pending| self.below.refuse(pending.path, &pending.syn));
            return;
        }
        self.streams.left.remove(&connection);
        let Some((path, stream)) = self.streams.get_by_connection(connection) else {
            self.streams.owners.remove(&connection);
            return;
        };
        match stream.phase {
            Phase::Opening(ticket) => {
                self.streams.remove(path);
                let why = EffectError::Failed(describe(reason).to_owned());
                self.not_made(now, path, ticket, why);
            }
            // Data received before the end can still be read.
            Phase::Up if reason == CloseReason::Graceful => {
                stream.over = true;
                self.streams.readable.insert(path);
            }
            Phase::Up => {
                self.streams.remove(path);
                self.notify(now, path, PathEvent::Down);
            }
        }
    }

    /// Reports a stream that failed to open.
    fn not_made(&mut self, now: Time, path: PathId, ticket: Option<Ticket>, why: EffectError) {
        match ticket {
            Some(ticket) => self.complete(now, ticket, Err(why)),
            None => self.notify(now, path, PathEvent::Down),
        }
    }

    /// Leaves a stream for the engine above: sent data is still delivered.
    fn leave(&mut self, now: Time, path: PathId) {
        let holds = self.holds(path);
        let Some(stream) = self.streams.remove(path) else { return };
        let connection = stream.connection;
        if !stream.is_up() {
            let _ = self.below.abort(now, connection);
            return;
        }
        if stream.over {
            let _ = self.below.close(now, connection);
            return;
        }
        self.streams.owners.insert(connection, Owner::Nobody);
        self.timers.set(connection, now + self.config.linger, LEFT);
        // The waiting data has no reader any more.
        let _ = self.below.consume(now, connection, usize::MAX);
        if holds && let Some(held) = &mut self.held {
            held.left = Some(connection);
        }
        if stream.kept.is_empty() && !holds {
            self.leave_written(now, connection);
        } else {
            self.streams.left.insert(connection, stream.kept);
        }
    }

    /// Whether a transmission is held for a stream that was not left.
    fn holds(&self, path: PathId) -> bool {
        self.held.is_some_and(|held| held.transmit.path == path && held.left.is_none())
    }

    /// All data of a left stream are with its connection. The rest is too, unless the peer may
    /// still send: a reset for that would discard undelivered data.
    fn leave_written(&mut self, now: Time, connection: ConnectionId) {
        let _ = self.below.shut_down(now, connection);
        let info = self.below.info(connection);
        let settled = info.is_ok_and(|info| {
            let peer_ended =
                matches!(info.state, State::CloseWait | State::LastAck | State::Closing);
            info.unacknowledged == 0 || peer_ended
        });
        if settled {
            self.forget(now, connection);
        }
    }

    /// Leaves a connection to the stack.
    fn forget(&mut self, now: Time, connection: ConnectionId) {
        self.timers.cancel(connection);
        self.streams.owners.remove(&connection);
        self.streams.left.remove(&connection);
        let _ = self.below.close(now, connection);
    }

    /// Delivers one piece of one stream, or its end.
    fn hand_in(&mut self, now: Time) -> bool {
        let Some(path) = self.streams.readable.pop_first() else { return false };
        let Some(stream) = self.streams.by_path.get_mut(&path) else { return true };
        if stream.paused || !stream.is_up() {
            // The stream is checked again on resumption.
            return true;
        }
        let connection = stream.connection;
        // An ended connection that was fully read is unknown.
        let (first, second) = self.below.peek(connection).unwrap_or_default();
        let piece = if first.is_empty() { second } else { first };
        if !piece.is_empty() {
            let piece = &piece[..piece.len().min(Receive::PIECE_MAX)];
            let len = piece.len();
            self.above.handle_input(now, Input::Receive(Receive::datagram(path, piece)));
            let _ = self.below.consume(now, connection, len);
            self.streams.readable.insert(path);
            return true;
        }
        if stream.ended && !stream.end_reported {
            stream.end_reported = true;
            self.streams.readable.insert(path);
            self.notify(now, path, PathEvent::ReadClosed);
        } else if stream.over {
            self.streams.remove(path);
            self.notify(now, path, PathEvent::Down);
        }
        true
    }

    /// Polls the engine above for one transmission.
    fn pull(&mut self, now: Time) -> bool {
        if let Some(held) = self.held {
            if held.transmit.not_before > now {
                return false;
            }
            self.held = None;
            match held.left {
                None => self.send(now, held.transmit.path),
                Some(connection) => {
                    if let Some(kept) = self.streams.left.get_mut(&connection) {
                        kept.extend_from_slice(self.tx.bytes());
                    }
                    self.write_on(now, connection);
                }
            }
            return true;
        }
        if self.outside.is_waiting() {
            return false;
        }
        self.tx.clear();
        let Some(transmit) = self.above.poll_transmit(now, &mut self.tx) else { return false };
        if self.outside.contains(transmit.path) {
            // The driver handles its departure time.
            self.outside.wait(transmit);
        } else if transmit.not_before > now {
            self.held = Some(Held { transmit, left: None });
        } else {
            self.send(now, transmit.path);
        }
        true
    }

    /// Writes polled data to a connection, and keeps the rest.
    fn send(&mut self, now: Time, path: PathId) {
        let bytes = self.tx.bytes();
        let Some(stream) = self.streams.by_path.get_mut(&path) else { return };
        if !stream.is_up() {
            return;
        }
        let taken = if stream.kept.is_empty() {
            // An ended connection accepts no data; its end is reported next.
            self.below.send(now, stream.connection, bytes).unwrap_or(bytes.len())
        } else {
            0
        };
        stream.kept.extend_from_slice(&bytes[taken..]);
        if stream.kept.is_empty() {
            if stream.shut {
                let _ = self.below.shut_down(now, stream.connection);
            }
        } else if !std::mem::replace(&mut stream.blocked, true) {
            self.full = Some(path);
        }
    }
}

/// Writes to a connection as much as it accepts of the kept bytes.
fn drain_into(below: &mut tcp::Stack, now: Time, connection: ConnectionId, kept: &mut Vec<u8>) {
    let taken = below.send(now, connection, kept).unwrap_or(kept.len());
    kept.drain(..taken);
}

fn describe(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Graceful => "the connection is closed",
        CloseReason::Refused => "connection refused",
        CloseReason::Reset => "the peer has reset the connection",
        CloseReason::TimedOut => "the peer does not respond",
        CloseReason::Aborted => "the connection was aborted",
    }
}

impl<A: Engine> Engine for OverTcp<A> {
    type Indication = A::Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            // All completions from outside are of the store, whose tickets are not changed.
            Input::Done(..) => self.above.handle_input(now, input),
            Input::Receive(Receive { path, .. }) if self.outside.contains(path) => {
                self.above.handle_input(now, input);
            }
            Input::Path(path, event)
                if self.config.has_driver_streams && self.outside.path_event(path, &event) =>
            {
                self.above.handle_input(now, Input::Path(path, event));
            }
            Input::Receive(receive) => self.arrive(now, receive),
            Input::Path(..) => self.below.handle_input(now, input),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.below.handle_timeout(now);
        self.above.handle_timeout(now);
        while let Some(connection) = self.timers.pop_due(now) {
            if self.late.has(connection) {
                self.late.over(connection);
                let _ = self.below.abort(now, connection);
            } else if self.streams.left.contains_key(&connection) {
                // The wait continues as long as the peer acknowledges data.
                self.timers.set(connection, now + self.config.linger, LEFT);
            } else {
                self.forget(now, connection);
            }
        }
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        loop {
            if self.outside.is_waiting() {
                let transmit = self.outside.give(&self.tx, tx);
                self.settle(now);
                return transmit;
            }
            let transmit = self.below.poll_transmit(now, tx);
            // The last acknowledgment of a connection ends it.
            let worked = self.settle(now);
            if transmit.is_some() || !worked {
                return transmit;
            }
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.outside.next(&mut self.effects)
    }

    fn poll_indication(&mut self) -> Option<A::Indication> {
        self.above.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let held = self.held.map(|held| Deadline { at: held.transmit.not_before, why: "pacing" });
        let both = [self.below.poll_timeout(), self.above.poll_timeout()];
        both.into_iter().chain([self.timers.next(), held]).flatten().min()
    }
}
