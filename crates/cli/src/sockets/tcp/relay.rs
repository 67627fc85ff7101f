//! Relay between one connection and standard streams or files.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Time;
use tcp::{Backlog, CloseReason, ConnectionId, Indication, Info, ListenerId, Options, Stack};

use super::streams::{Sink, Source};

/// Bytes to move before packets are processed again.
const TURN: usize = 4 << 20;

/// Side that opens the connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Connect to a peer, from this port if given.
    Connect { to: SocketAddr, from_port: Option<u16> },
    /// Accept a connection on a port.
    Listen(u16),
}

/// Outcome of the connection.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Reason of the end; `None` if a request to stop came first.
    pub(super) reason: Option<CloseReason>,
    /// Local error.
    pub(super) fault: Option<String>,
    /// Bytes that the peer acknowledged, and bytes received.
    pub(super) bytes: (u64, u64),
    /// Whether the connection was established.
    pub(super) connected: bool,
    /// Time from the establishment to the end of both directions.
    pub(super) lasted: Duration,
    /// State of the connection at the last poll.
    pub(super) info: Option<Info>,
}

enum Phase {
    Waiting,
    Open(ConnectionId),
    /// The connection has ended; received data is being written, and the peer may retransmit its
    /// FIN.
    Over {
        until: Time,
    },
}

/// Moves bytes between a connection and streams.
pub(super) struct Relay {
    role: Role,
    listener: Option<ListenerId>,
    phase: Phase,
    source: Option<Source>,
    /// Bytes that the connection accepted.
    taken: u64,
    /// Destination; without one, received bytes are counted and discarded.
    sink: Option<Sink>,
    started: Time,
    ended: Option<Time>,
    /// Whether this side and the peer have closed.
    closed: (bool, bool),
    closed_first: bool,
    outcome: Outcome,
}

impl Relay {
    pub(super) fn new(role: Role, source: Option<Source>, sink: Option<Sink>) -> Self {
        let outcome = Outcome {
            reason: None,
            fault: None,
            bytes: (0, 0),
            connected: false,
            lasted: Duration::ZERO,
            info: None,
        };
        Self {
            role,
            listener: None,
            phase: Phase::Waiting,
            source,
            taken: 0,
            sink,
            started: Time::ZERO,
            ended: None,
            closed: (false, false),
            closed_first: false,
            outcome,
        }
    }

    /// Peer to connect to, if this side connects.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self.role {
            Role::Connect { to, .. } => Some(to),
            Role::Listen(_) => None,
        }
    }

    /// Opens the connection or the listener, once the interface is up.
    pub(super) fn begin(
        &mut self,
        now: Time,
        stack: &mut Stack,
        local: SocketAddr,
        options: &Options,
    ) -> Result<(), tcp::RequestError> {
        match self.role {
            Role::Connect { to, from_port } => {
                let local = SocketAddr::new(local.ip(), from_port.unwrap_or(local.port()));
                let connection = stack.connect(now, local, to, options.clone())?;
                self.phase = Phase::Open(connection);
                self.started = now;
            }
            Role::Listen(port) => {
                let local = SocketAddr::new(local.ip(), port);
                self.listener = Some(stack.listen(local, options.clone(), Backlog::default())?);
            }
        }
        Ok(())
    }

    /// Handles an indication of the stack. Returns a line for people, if there is one.
    pub(super) fn on(
        &mut self,
        now: Time,
        stack: &mut Stack,
        indication: Indication,
    ) -> Option<String> {
        match indication {
            Indication::Incoming { connection, remote, .. } => {
                if !matches!(self.phase, Phase::Waiting) {
                    // It was established before the listener closed. It may have ended already.
                    let _ = stack.abort(now, connection);
                    return None;
                }
                self.phase = Phase::Open(connection);
                self.started = now;
                self.connected();
                if let Some(listener) = self.listener.take() {
                    // A second peer is refused.
                    let _ = stack.unlisten(now, listener);
                }
                Some(format!("connection from {remote}"))
            }
            Indication::Connected { connection } => {
                self.connected();
                let remote = stack.info(connection).ok()?.remote;
                Some(format!("connected to {remote}"))
            }
            Indication::PeerClosed { .. } => {
                self.closed.1 = true;
                None
            }
            Indication::Closed { connection, reason } => {
                let ours = matches!(self.phase, Phase::Open(open) if open == connection);
                if ours {
                    self.outcome.reason = Some(reason);
                    self.ended.get_or_insert(now);
                }
                None
            }
            Indication::Readable { .. }
            | Indication::Writable { .. }
            | Indication::BacklogFull { .. }
            | Indication::Record { .. }
            | Indication::Holes { .. } => None,
            Indication::PlainTcp { .. } => {
                Some("the peer, or something on the way, has no SCPS-TP: it is TCP".to_owned())
            }
        }
    }

    fn connected(&mut self) {
        self.outcome.connected = true;
        if let Some(sink) = &self.sink {
            sink.begin();
        }
    }

    /// Moves as many bytes as possible.
    pub(super) fn turn(&mut self, now: Time, stack: &mut Stack) {
        let Phase::Open(connection) = self.phase else { return };
        self.look(stack, connection);
        self.write(now, stack, connection);
        let emptied = self.read(now, stack, connection);
        if self.outcome.fault.is_some() {
            // Reset the peer, which may have closed already.
            let _ = stack.abort(now, connection);
            self.outcome.reason = Some(CloseReason::Aborted);
        }
        if self.outcome.reason.is_some() && emptied {
            if let Some(sink) = &mut self.sink {
                sink.end();
            }
            self.phase = Phase::Over { until: now + self.linger() };
        }
    }

    fn look(&mut self, stack: &Stack, connection: ConnectionId) {
        if let Ok(info) = stack.info(connection) {
            self.outcome.info = Some(info);
        }
    }

    /// Time for retransmissions of the peer's FIN, from its retransmission timeout, which is about
    /// as long as ours.
    fn linger(&self) -> Duration {
        let graceful = self.outcome.reason == Some(CloseReason::Graceful);
        let rto = self.outcome.info.as_ref().map_or(Duration::ZERO, |info| info.rto);
        if self.closed_first && graceful { rto * 2 } else { Duration::ZERO }
    }

    fn write(&mut self, now: Time, stack: &mut Stack, connection: ConnectionId) {
        if self.closed.0 {
            return;
        }
        let is_over = match &mut self.source {
            // A side that only receives closes after the peer.
            None => self.closed.1,
            Some(source) => {
                let mut moved = 0;
                while moved < TURN {
                    let piece = match source.peek() {
                        Ok(piece) => piece,
                        Err(error) => {
                            self.outcome.fault = Some(format!("reading what to send: {error}"));
                            return;
                        }
                    };
                    // A connection that is not open accepts nothing.
                    let taken = stack.send(now, connection, piece).unwrap_or(0);
                    if taken == 0 {
                        break;
                    }
                    source.consume(taken);
                    moved += taken;
                }
                self.taken += moved as u64;
                source.is_over()
            }
        };
        if is_over && stack.shut_down(now, connection).is_ok() {
            self.closed.0 = true;
            self.closed_first = !self.closed.1;
        }
    }

    /// Reads received bytes; returns whether none are left.
    fn read(&mut self, now: Time, stack: &mut Stack, connection: ConnectionId) -> bool {
        if let Some(Err(error)) = self.sink.as_ref().and_then(Sink::ended) {
            self.outcome.fault = Some(format!("writing what was received: {error}"));
            return true;
        }
        for _ in 0..16 {
            let Ok((first, second)) = stack.peek(connection) else { return true };
            let there = first.len() + second.len();
            if there == 0 {
                return true;
            }
            let taken = match &mut self.sink {
                Some(sink) => sink.take(first, second),
                None => there,
            };
            if taken == 0 || stack.consume(now, connection, taken).is_err() {
                return false;
            }
            self.outcome.bytes.1 += taken as u64;
        }
        false
    }

    /// Finishes the relay if nothing is left to do. Returns whether it has finished.
    pub(super) fn try_finish(&mut self, now: Time) -> bool {
        let Phase::Over { until } = self.phase else { return false };
        if self.outcome.fault.is_some() {
            return true;
        }
        if let Some(sink) = &self.sink {
            match sink.ended() {
                None => return false,
                Some(Ok(())) => self.sink = None,
                Some(Err(error)) => {
                    self.outcome.fault = Some(format!("writing what was received: {error}"));
                    return true;
                }
            }
        }
        now >= until
    }

    /// Aborts the connection with a reset.
    pub(super) fn stop(&mut self, now: Time, stack: &mut Stack) {
        if let Phase::Open(connection) = self.phase {
            self.look(stack, connection);
            // A connection that has ended needs no reset.
            let _ = stack.abort(now, connection);
        }
    }

    pub(super) fn outcome(self, now: Time) -> Outcome {
        let ended = self.ended.unwrap_or(now);
        // After a graceful end the peer has all bytes, which the last poll may have missed.
        let acknowledged = match self.outcome.reason {
            Some(CloseReason::Graceful) => self.taken,
            Some(
                CloseReason::Refused
                | CloseReason::Reset
                | CloseReason::TimedOut
                | CloseReason::Aborted,
            )
            | None => self.outcome.info.as_ref().map_or(0, |info| info.counts.bytes_acknowledged),
        };
        let bytes = (acknowledged, self.outcome.bytes.1);
        Outcome { bytes, lasted: ended.since(self.started), ..self.outcome }
    }
}
