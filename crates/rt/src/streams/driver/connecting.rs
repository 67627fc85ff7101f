//! Streams that a driver opens.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crossbeam_channel::Receiver;
use engine::{EffectError, Engine, Input, PathEvent, PathId, PathInfo, Ticket};

use super::super::attempts::{PATIENCE, Start};
use super::super::kernel_stream::{KernelStream, Phase};
use super::super::options::why_not;
use super::super::timer::Timer;
use super::StreamDriver;
use crate::lookup::Destination;

/// First number of accepted streams in a driver whose configured peers change: later ones of these
/// have lower numbers.
const ACCEPTED: u32 = 1 << 30;

impl<E: Engine> StreamDriver<E> {
    /// Replaces the configured peers by what comes through a channel, before a path is opened.
    /// Streams to former peers stay until the engine closes them. Their paths have numbers below
    /// 2^30.
    pub fn follow_peers(&mut self, updates: Receiver<BTreeMap<PathId, Destination>>) {
        self.streams.begin_at(ACCEPTED);
        self.updates = Some(updates);
    }

    #[cfg(test)]
    pub(in super::super) fn set_resolver(&mut self, resolver: crate::lookup::Resolver) {
        self.attempts.set_resolver(resolver);
    }

    fn look_for_peers(&mut self) {
        while let Some(peers) = self.updates.as_ref().and_then(|updates| updates.try_recv().ok()) {
            // Each has a place of its own.
            let others = self.config.streams_max.saturating_sub(self.config.peers.len());
            self.config.streams_max = others.saturating_add(peers.len());
            self.config.peers = peers;
        }
    }

    /// Opens a configured path. Does nothing if it exists.
    pub(super) fn open(&mut self, path: PathId) {
        self.look_for_peers();
        if self.streams.get(path).is_some() {
            return;
        }
        match (self.config.peers.get(&path).cloned(), &self.port) {
            (Some(Destination::Address(to)), _) => self.connect(path, None, to, None),
            (Some(Destination::Host(host)), _) => match self.attempts.begin(path, host) {
                Start::Before => {}
                Start::Waits => {
                    let until = self.now() + PATIENCE;
                    self.timers.set(Timer::Lookup(path), until, Timer::LOOKUP);
                }
                Start::Resolved(to) => self.connect(path, None, to, None),
            },
            (None, Some(port)) if path == Self::INTERFACE => {
                let event = port.event();
                self.pump.pass(Input::Path(path, event));
            }
            (None, _) => self.pump.pass(Input::Path(path, PathEvent::Down)),
        }
    }

    /// Connects to the names that are resolved.
    pub(super) fn resolved(&mut self) {
        while let Some((path, address)) = self.attempts.poll() {
            self.timers.cancel(Timer::Lookup(path));
            match address {
                Some(to) => self.connect(path, None, to, None),
                None => self.fail_open(path, None, EffectError::NotFound),
            }
        }
    }

    pub(super) fn end_attempt(&mut self, path: PathId) {
        self.timers.cancel(Timer::Lookup(path));
        self.attempts.end(path);
    }

    pub(super) fn connect(
        &mut self,
        path: PathId,
        from: Option<SocketAddr>,
        to: SocketAddr,
        ticket: Option<Ticket>,
    ) {
        let place = from.and_then(|from| self.streams.place(to, from));
        let onward = place.and_then(|place| self.config.listen[place].onward.as_ref());
        let options = onward.unwrap_or(&self.config.options);
        let options = options.clone();
        let started = if self.make_place() {
            options.connect(from, to).map_err(|error| why_not(&error))
        } else {
            Err(EffectError::NotAllowed)
        };
        let started = started.and_then(|socket| {
            let stream = KernelStream::opening(socket, ticket, &options);
            self.streams.insert(&self.poll, path, stream).map_err(|error| why_not(&error))
        });
        if let Err(why) = started {
            self.fail_open(path, ticket, why);
        }
    }

    /// Tries the next address of a requested stream, or reports that it does not come up.
    pub(super) fn fail_open(&mut self, path: PathId, ticket: Option<Ticket>, why: EffectError) {
        self.statistics.failed += 1;
        if ticket.is_none()
            && let Some(to) = self.attempts.next(path)
        {
            return self.connect(path, None, to, None);
        }
        match ticket {
            Some(ticket) => self.pump.answer(ticket, Err(why)),
            None => self.pump.pass(Input::Path(path, PathEvent::Down)),
        }
    }

    /// Handles the end of an attempt to connect.
    pub(super) fn opened(&mut self, path: PathId, ticket: Option<Ticket>) {
        let Some(stream) = self.streams.get_mut(path) else { return };
        match stream.connected() {
            Ok(()) => {
                self.statistics.connected += 1;
                stream.phase = Phase::Up;
                let ends = stream.ends;
                self.attempts.end(path);
                let info = PathInfo { ends, ticket, ..PathInfo::stream() };
                self.notify(path, PathEvent::Up(info));
                self.streams.enqueue(path);
            }
            Err(error) => {
                self.forget(path);
                self.fail_open(path, ticket, why_not(&error));
                self.effects();
            }
        }
    }
}
