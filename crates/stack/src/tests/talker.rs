//! Engine of streams that sends given data, records received data, and checks its driver's
//! contract.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{
    Completion, Deadline, Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId,
    Receive, StreamEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

/// Behaviour of a talker.
#[derive(Clone, Default)]
pub(super) struct Manner {
    /// Data sent on each stream.
    pub(super) data: Vec<u8>,
    /// Whether it ends its half when all is sent.
    pub(super) ends: bool,
    /// Whether it leaves a stream when all is sent.
    pub(super) leaves: bool,
    /// Whether it leaves a stream whose peer has ended, when all is sent.
    pub(super) follows: bool,
    /// Bytes between pauses, and their length.
    pub(super) pauses: Option<(usize, Duration)>,
    /// Minimum time between two transmissions.
    pub(super) paces: Option<Duration>,
}

/// Omits the data.
impl fmt::Debug for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, ends, leaves, follows, pauses, paces } = self;
        let data = data.len();
        write!(f, "sends {data}, ends {ends}, leaves {leaves}, follows {follows}, ")?;
        write!(f, "pauses {pauses:?}, paces {paces:?}")
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Talk {
    sent: usize,
    blocked: bool,
    paused: bool,
    since_pause: usize,
    done: bool,
    pub(super) received: Vec<u8>,
    pub(super) ended: bool,
    pub(super) down: bool,
    pub(super) left: bool,
    pub(super) was_blocked: u32,
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    pub(super) ticket: Option<Ticket>,
}

#[derive(Debug, Default)]
pub(super) struct Talker {
    manner: Manner,
    pub(super) talks: BTreeMap<PathId, Talk>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) completions: Vec<(Ticket, Result<Completion, EffectError>)>,
    /// Paths that went down without having been up.
    pub(super) not_up: Vec<PathId>,
    opening: BTreeSet<PathId>,
    timers: Timers<PathId>,
    next_send: Time,
}

impl Talker {
    pub(super) fn new(manner: Manner) -> Self {
        Self { manner, ..Self::default() }
    }

    fn finish(&mut self, path: PathId) {
        let Some(talk) = self.talks.get_mut(&path) else { return };
        if talk.sent < self.manner.data.len() || talk.left || talk.down {
            return;
        }
        if self.manner.ends && !std::mem::replace(&mut talk.done, true) {
            self.effects.push_back(StreamEffect::ShutdownWrite { path }.into());
        }
        if self.manner.leaves || (self.manner.follows && talk.ended) {
            talk.left = true;
            self.timers.cancel(path);
            self.effects.push_back(PathEffect::Close { path }.into());
        }
    }

    fn event(&mut self, path: PathId, event: PathEvent) {
        let was_opening = self.opening.remove(&path);
        if let PathEvent::Up(info) = event {
            let talk = Talk { ends: info.ends, ticket: info.ticket, ..Talk::default() };
            let before = self.talks.insert(path, talk);
            assert!(before.is_none_or(|talk| talk.left || talk.down), "it was up");
            return self.finish(path);
        }
        let Some(talk) = self.talks.get_mut(&path).filter(|_| !was_opening) else {
            assert_eq!(event, PathEvent::Down, "of a path that is not up");
            return self.not_up.push(path);
        };
        assert!(!talk.left, "{event:?} of a path that was left");
        assert!(!talk.down, "{event:?} of a path that is down");
        match event {
            PathEvent::Up(_)
            | PathEvent::Missing { .. }
            | PathEvent::Unsent
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {
                unreachable!("nothing was requested")
            }
            PathEvent::Down => {
                talk.down = true;
                self.timers.cancel(path);
            }
            PathEvent::Blocked => {
                assert!(!std::mem::replace(&mut talk.blocked, true), "reported once");
                talk.was_blocked += 1;
            }
            PathEvent::Writable => {
                assert!(std::mem::replace(&mut talk.blocked, false), "it was not blocked");
            }
            PathEvent::ReadClosed => {
                assert!(!talk.paused, "the end waits as bytes do");
                assert!(!std::mem::replace(&mut talk.ended, true), "reported once");
                self.finish(path);
            }
        }
    }

    fn receive(&mut self, now: Time, receive: Receive<'_>) {
        let talk = self.talks.get_mut(&receive.path).expect("it is up");
        assert!(!talk.left && !talk.down && !talk.ended, "bytes out of place");
        assert!(!talk.paused, "nothing is handed in while reading is paused");
        assert!((1..=Receive::PIECE_MAX).contains(&receive.bytes.len()));
        talk.received.extend_from_slice(receive.bytes);
        talk.since_pause += receive.bytes.len();
        if let Some((bytes, time)) = self.manner.pauses
            && talk.since_pause >= bytes
        {
            (talk.since_pause, talk.paused) = (0, true);
            self.timers.set(receive.path, now + time, "a pause");
            self.effects.push_back(PathEffect::PauseRead { path: receive.path }.into());
        }
    }
}

impl Engine for Talker {
    type Indication = ();

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Path(path, event) => self.event(path, event),
            Input::Receive(receive) => self.receive(now, receive),
            Input::Done(ticket, result) => self.completions.push((ticket, result)),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(path) = self.timers.pop_due(now) {
            if let Some(talk) = self.talks.get_mut(&path) {
                talk.paused = false;
                self.effects.push_back(PathEffect::ResumeRead { path }.into());
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let data = &self.manner.data;
        let speaks =
            |talk: &Talk| !talk.blocked && !talk.down && !talk.left && talk.sent < data.len();
        let (path, talk) = self.talks.iter_mut().find(|(_, talk)| speaks(talk))?;
        let len = tx.longest().min(data.len() - talk.sent);
        tx.push(len)?.copy_from_slice(&data[talk.sent..talk.sent + len]);
        talk.sent += len;
        let path = *path;
        let at = self.next_send.max(now);
        if let Some(pace) = self.manner.paces {
            self.next_send = at + pace;
        }
        self.finish(path);
        tx.transmit(path, at)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if let Some(Effect::Path(PathEffect::Open { path })) = effect {
            self.opening.insert(path);
        }
        effect
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
