//! Program of an end host: sends its bytes on each stream, receives, and reads, ends and resets as
//! configured.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, Receive, StreamEffect, Ticket,
    Time, Timers, Transmit, TxBuf,
};

/// Behaviour on each stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Bytes to send.
    pub(crate) sends: usize,
    /// Whether it ends its half after the last byte.
    pub(crate) ends: bool,
    /// Whether it sends nothing before the peer has ended.
    pub(crate) waits: bool,
    /// Received bytes at which it resets a stream.
    pub(crate) resets_at: Option<usize>,
    /// Received bytes at which it stops reading, and for how long.
    pub(crate) stops: Option<(usize, Duration)>,
}

/// A stream as its host sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    pub(crate) up_at: Time,
    sent: usize,
    blocked: bool,
    shut: bool,
    stopped: bool,
    pub(crate) received: usize,
    /// Whether received bytes differ from the peer's.
    pub(crate) wrong: bool,
    pub(crate) peer_ended: bool,
    pub(crate) left: bool,
    /// Whether it went down before both halves had ended.
    pub(crate) reset: bool,
    pub(crate) over_at: Option<Time>,
}

/// Returns byte `n` of any stream.
fn byte(n: usize) -> u8 {
    ((n as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8
}

#[derive(Debug, Default)]
pub(crate) struct Talker {
    manner: Manner,
    pub(crate) streams: BTreeMap<PathId, Stream>,
    effects: VecDeque<Effect>,
    pub(crate) refused: Vec<(Time, Ticket)>,
    next: u64,
    timers: Timers<PathId>,
}

impl Talker {
    pub(crate) fn new(manner: Manner) -> Self {
        Self { manner, ..Self::default() }
    }

    pub(crate) fn connect(&mut self, to: SocketAddr) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.effects
            .push_back(StreamEffect::Connect { ticket, from: None, to, best_effort: false }.into());
    }

    fn end(&mut self, path: PathId) {
        let Some(stream) = self.streams.get_mut(&path) else { return };
        let all = stream.sent == self.manner.sends && (!self.manner.waits || stream.peer_ended);
        if all && self.manner.ends && !std::mem::replace(&mut stream.shut, true) {
            self.effects.push_back(StreamEffect::ShutdownWrite { path }.into());
        }
    }

    fn event(&mut self, now: Time, path: PathId, event: PathEvent) {
        if let PathEvent::Up(info) = event {
            let stream = Stream { ends: info.ends, up_at: now, ..Stream::default() };
            self.streams.insert(path, stream);
            return self.end(path);
        }
        let Some(stream) = self.streams.get_mut(&path).filter(|stream| !stream.left) else {
            return;
        };
        match event {
            PathEvent::Up(_)
            | PathEvent::Missing { .. }
            | PathEvent::Unsent
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
            PathEvent::Down => {
                stream.reset = !(stream.peer_ended && stream.shut);
                stream.left = true;
                stream.over_at = Some(now);
            }
            PathEvent::Blocked => stream.blocked = true,
            PathEvent::Writable => stream.blocked = false,
            PathEvent::ReadClosed => {
                stream.peer_ended = true;
                self.end(path);
            }
        }
    }

    fn receive(&mut self, now: Time, receive: Receive<'_>) {
        let Some(stream) = self.streams.get_mut(&receive.path) else { return };
        let right = (stream.received..).zip(receive.bytes).all(|(n, got)| byte(n) == *got);
        stream.wrong |= !right || stream.peer_ended;
        stream.received += receive.bytes.len();
        let path = receive.path;
        if self.manner.resets_at.is_some_and(|at| stream.received >= at) && !stream.left {
            stream.left = true;
            stream.over_at = Some(now);
            self.effects.push_back(StreamEffect::Reset { path }.into());
        } else if let Some((at, time)) = self.manner.stops
            && stream.received >= at
            && !std::mem::replace(&mut stream.stopped, true)
        {
            self.effects.push_back(PathEffect::PauseRead { path }.into());
            self.timers.set(path, now + time, "a pause");
        }
    }
}

impl Engine for Talker {
    type Indication = ();

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Path(path, event) => self.event(now, path, event),
            Input::Receive(receive) => self.receive(now, receive),
            Input::Done(ticket, answer) => {
                assert!(answer.is_err(), "only failures complete");
                self.refused.push((now, ticket));
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(path) = self.timers.pop_due(now) {
            self.effects.push_back(PathEffect::ResumeRead { path }.into());
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let manner = &self.manner;
        let can_send = |stream: &Stream| {
            !stream.blocked
                && !stream.left
                && stream.sent < manner.sends
                && (!manner.waits || stream.peer_ended)
        };
        let (path, stream) = self.streams.iter_mut().find(|(_, stream)| can_send(stream))?;
        let path = *path;
        let len = tx.longest().min(manner.sends - stream.sent);
        let place = tx.push(len)?;
        place.iter_mut().zip(stream.sent..).for_each(|(to, n)| *to = byte(n));
        stream.sent += len;
        self.end(path);
        tx.transmit(path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
