//! One connection between our TCP and streams.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Time;
use proto::tcp::{
    Backlog, CloseReason, ConnectionId, Indication, Info, ListenerId, Options, Stack,
};

use super::streams::{Sink, Source};

/// Bytes that are moved before packets are looked at again.
const TURN: usize = 4 << 20;

/// Who begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// We connect to a peer, from this port if it is said.
    Connect { to: SocketAddr, from_port: Option<u16> },
    /// We wait for one.
    Listen(u16),
}

/// What became of the connection.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Why it ended; `None` if it did not, because we were told to stop.
    pub(super) reason: Option<CloseReason>,
    /// What was wrong at our side.
    pub(super) fault: Option<String>,
    /// Bytes that the peer acknowledged, and bytes received.
    pub(super) bytes: (u64, u64),
    /// Whether there was a connection.
    pub(super) connected: bool,
    /// From the connection's beginning to the end of both directions.
    pub(super) lasted: Duration,
    /// Its condition at the last look.
    pub(super) info: Option<Info>,
}

enum Phase {
    Waiting,
    Open(ConnectionId),
    /// The connection is over, what was received is being written, and the peer may still ask
    /// whether we have its end.
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
    /// Bytes that the connection took to send.
    taken: u64,
    /// Where to; without one, what is received is counted and forgotten.
    sink: Option<Sink>,
    begun: Time,
    ended: Option<Time>,
    /// We have closed, and the peer has.
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
            begun: Time::ZERO,
            ended: None,
            closed: (false, false),
            closed_first: false,
            outcome,
        }
    }

    /// Whom it connects to, if it does.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self.role {
            Role::Connect { to, .. } => Some(to),
            Role::Listen(_) => None,
        }
    }

    /// Asks for the connection, once there is an interface.
    pub(super) fn begin(
        &mut self,
        now: Time,
        stack: &mut Stack,
        local: SocketAddr,
        options: &Options,
    ) -> Result<(), proto::tcp::RequestError> {
        match self.role {
            Role::Connect { to, from_port } => {
                let local = SocketAddr::new(local.ip(), from_port.unwrap_or(local.port()));
                let connection = stack.connect(now, local, to, options.clone())?;
                self.phase = Phase::Open(connection);
                self.begun = now;
            }
            Role::Listen(port) => {
                let local = SocketAddr::new(local.ip(), port);
                self.listener = Some(stack.listen(local, options.clone(), Backlog::default())?);
            }
        }
        Ok(())
    }

    /// What the stack says. Returns a line for people, where there is one.
    pub(super) fn on(
        &mut self,
        now: Time,
        stack: &mut Stack,
        indication: Indication,
    ) -> Option<String> {
        match indication {
            Indication::Incoming { connection, remote, .. } => {
                if !matches!(self.phase, Phase::Waiting) {
                    // It was established before the listener was gone. It may have ended by itself.
                    let _ = stack.abort(now, connection);
                    return None;
                }
                self.phase = Phase::Open(connection);
                self.begun = now;
                self.connected();
                if let Some(listener) = self.listener.take() {
                    // Nobody else is waited for: a second peer is refused.
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

    /// Moves what can be moved.
    pub(super) fn turn(&mut self, now: Time, stack: &mut Stack) {
        let Phase::Open(connection) = self.phase else { return };
        self.look(stack, connection);
        self.write(now, stack, connection);
        let emptied = self.read(now, stack, connection);
        if self.outcome.fault.is_some() {
            // The peer is told that it is not as it should be; it may know already.
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

    /// How long the peer may still ask for the acknowledgment of its end: as it does again after its
    /// time-out, which is about ours.
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
            // Who only receives closes after the peer.
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
                    // One that is not open yet, or no more, takes nothing.
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

    /// Whether nothing is left to read.
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

    /// Whether everything is done.
    pub(super) fn is_over(&mut self, now: Time) -> bool {
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

    /// Ends it at once; the peer is reset.
    pub(super) fn stop(&mut self, now: Time, stack: &mut Stack) {
        if let Phase::Open(connection) = self.phase {
            self.look(stack, connection);
            // One that has ended meanwhile needs no reset.
            let _ = stack.abort(now, connection);
        }
    }

    pub(super) fn outcome(self, now: Time) -> Outcome {
        let ended = self.ended.unwrap_or(now);
        // After a graceful end the peer has all of it, which the last look did not know yet.
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
        Outcome { bytes, lasted: ended.since(self.begun), ..self.outcome }
    }
}
