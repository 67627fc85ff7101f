//! Streams of the driver, in addition to the stack's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use engine::{
    Effect, PathEffect, PathEvent, PathId, PathInfo, PathKind, StreamEffect, Transmit, TxBuf,
};

use super::streams::Streams;

/// Streams of the driver.
#[derive(Debug, Default)]
pub(super) struct Outside {
    streams: BTreeMap<PathId, Option<(SocketAddr, SocketAddr)>>,
    ends: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Transmission of the engine above on one of them, waiting in the buffer it was polled into.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    transmit: Transmit,
    /// Bytes taken by the driver.
    given: usize,
}

impl Outside {
    pub(super) fn contains(&self, path: PathId) -> bool {
        self.streams.contains_key(&path)
    }

    /// Whether an event belongs to one of these streams; updates their state.
    pub(super) fn path_event(&mut self, path: PathId, event: &PathEvent) -> bool {
        match event {
            PathEvent::Up(PathInfo { kind: PathKind::Stream, ends, .. }) => {
                self.streams.insert(path, *ends);
                self.ends.extend(*ends);
                true
            }
            PathEvent::Down => {
                self.drop_waiting(path);
                self.remove(path)
            }
            PathEvent::Up(_)
            | PathEvent::Blocked
            | PathEvent::Writable
            | PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => self.contains(path),
        }
    }

    fn remove(&mut self, path: PathId) -> bool {
        let known = self.streams.remove(&path);
        if let Some(Some(ends)) = known {
            self.ends.remove(&ends);
        }
        known.is_some()
    }

    fn drop_waiting(&mut self, path: PathId) {
        self.waiting.take_if(|waiting| waiting.transmit.path == path);
    }

    /// Whether an effect of the engine above is for the driver; updates the state.
    pub(super) fn takes(&mut self, effect: &Effect, streams: &Streams) -> bool {
        match effect {
            Effect::Store(_) => false,
            // A stream from the driver continues as a stream of the stack, and vice versa.
            Effect::Stream(StreamEffect::Connect { from, to, .. }) => {
                !from.is_some_and(|from| self.ends.contains(&(*to, from)))
            }
            Effect::Stream(StreamEffect::StopConnecting { ticket }) => {
                streams.opening(*ticket).is_none()
            }
            Effect::Stream(StreamEffect::StopListening { ticket }) => {
                streams.listener(*ticket).is_none()
            }
            Effect::Path(
                PathEffect::Open { path }
                | PathEffect::PauseRead { path }
                | PathEffect::ResumeRead { path }
                | PathEffect::Retain { path }
                | PathEffect::Release { path },
            )
            | Effect::Stream(
                StreamEffect::Listen { near: path, .. }
                | StreamEffect::ShutdownWrite { path }
                | StreamEffect::StartTls { path, .. }
                | StreamEffect::NoDelay { path },
            ) => self.contains(*path),
            Effect::Path(PathEffect::Close { path }) => self.remove(*path),
            Effect::Stream(StreamEffect::Reset { path }) => {
                self.drop_waiting(*path);
                self.remove(*path)
            }
        }
    }

    /// Keeps a polled transmission for the driver.
    pub(super) fn wait(&mut self, transmit: Transmit) {
        self.waiting = Some(Waiting { transmit, given: 0 });
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Passes waiting bytes from `from` to the driver, as many as it takes at once.
    pub(super) fn give(&mut self, from: &TxBuf, to: &mut TxBuf) -> Option<Transmit> {
        let Waiting { transmit, given } = self.waiting.take()?;
        let rest = &from.bytes()[given..];
        let len = rest.len().min(to.longest());
        to.push(len)?.copy_from_slice(&rest[..len]);
        if len < rest.len() {
            self.waiting = Some(Waiting { transmit, given: given + len });
        }
        Some(Transmit { len, segment: len, ..transmit })
    }

    /// Next effect: a stream's end waits for its pending transmission.
    pub(super) fn next(&self, effects: &mut VecDeque<Effect>) -> Option<Effect> {
        let Some(Waiting { transmit, .. }) = self.waiting else { return effects.pop_front() };
        let ends = |effect: &Effect| match effect {
            Effect::Stream(StreamEffect::ShutdownWrite { path })
            | Effect::Path(PathEffect::Close { path }) => *path == transmit.path,
            Effect::Store(_) | Effect::Path(_) | Effect::Stream(_) => false,
        };
        let at = effects.iter().position(|effect| !ends(effect))?;
        effects.remove(at)
    }
}
