//! Effects of the engine above: opening, listening, closing.

use std::net::SocketAddr;

use engine::{
    Completion, Effect, EffectError, Engine, PathEffect, PathEvent, PathId, StreamEffect, Ticket,
    Time,
};
use tcp::scps::Scps;
use tcp::{ConnectionId, ListenerId, Options, RequestError, State};

use super::OverTcp;
use crate::streams::{Awaited, Phase, Stream};

/// Attempts to find a free port before a listener is refused.
const PORT_TRIES: u32 = 64;

impl<A: Engine> OverTcp<A> {
    /// Executes an effect of the engine above, or passes it to the driver.
    pub(super) fn carry_out(&mut self, now: Time, effect: Effect) {
        if self.config.has_driver_streams && self.outside.takes(&effect, &self.streams) {
            self.effects.push_back(effect);
            return;
        }
        match effect {
            Effect::Store(_) => self.effects.push_back(effect),
            Effect::Path(effect) => self.path_effect(now, effect),
            Effect::Stream(effect) => self.stream_effect(now, &effect),
        }
    }

    fn path_effect(&mut self, now: Time, effect: PathEffect) {
        match effect {
            PathEffect::Open { path } => self.open(now, path),
            PathEffect::Close { path } => self.leave(now, path),
            PathEffect::PauseRead { path } => {
                if let Some(stream) = self.streams.by_path.get_mut(&path) {
                    stream.paused = true;
                }
            }
            PathEffect::ResumeRead { path } => {
                if let Some(stream) = self.streams.by_path.get_mut(&path) {
                    stream.paused = false;
                    self.streams.readable.insert(path);
                }
            }
            // A connection lasts until it is closed.
            PathEffect::Retain { .. } | PathEffect::Release { .. } => {}
        }
    }

    fn stream_effect(&mut self, now: Time, effect: &StreamEffect) {
        match *effect {
            StreamEffect::Connect { ticket, from, to, best_effort } => {
                let peers = &self.config.peers;
                let path = self.streams.new_path(|path| peers.contains_key(&path));
                let options = self.options(best_effort);
                self.connect(now, path, from, to, Some(ticket), options);
            }
            StreamEffect::Listen { ticket, near, best_effort } => {
                let result = self.listen(ticket, near, best_effort).map(Completion::Listening);
                self.complete(now, ticket, result);
            }
            StreamEffect::StopListening { ticket } => {
                if let Some(id) = self.streams.listener(ticket) {
                    self.stop_listening(now, id);
                }
            }
            StreamEffect::StopConnecting { ticket } => {
                if let Some(path) = self.streams.opening(ticket) {
                    self.leave(now, path);
                }
            }
            StreamEffect::Reset { path } => {
                if self.holds(path) {
                    self.held = None;
                }
                if let Some(stream) = self.streams.remove(path) {
                    let _ = self.below.abort(now, stream.connection);
                }
            }
            StreamEffect::ShutdownWrite { path } => {
                let holds = self.holds(path);
                let Some(stream) = self.streams.by_path.get_mut(&path) else { return };
                stream.shut = true;
                if stream.kept.is_empty() && stream.is_up() && !holds {
                    let _ = self.below.shut_down(now, stream.connection);
                }
            }
            StreamEffect::StartTls { path, .. } => {
                // There is no TLS below: no stream is better than an insecure one.
                if let Some(stream) = self.streams.remove(path) {
                    let _ = self.below.abort(now, stream.connection);
                    self.notify(now, path, PathEvent::Down);
                }
            }
            StreamEffect::NoDelay { path } => {
                if let Some(stream) = self.streams.by_path.get(&path) {
                    let _ = self.below.set_no_delay(now, stream.connection, true);
                }
            }
        }
    }

    /// Opens a configured path. One that is up stays unchanged.
    fn open(&mut self, now: Time, path: PathId) {
        if self.streams.by_path.contains_key(&path) {
            return;
        }
        match self.config.peers.get(&path).copied() {
            Some(to) => self.connect(now, path, None, to, None, self.options(false)),
            None => self.notify(now, path, PathEvent::Down),
        }
    }

    fn connect(
        &mut self,
        now: Time,
        path: PathId,
        from: Option<SocketAddr>,
        to: SocketAddr,
        ticket: Option<Ticket>,
        options: Options,
    ) {
        if let Some(connection) = from.and_then(|from| self.late.claim((from, to))) {
            self.timers.cancel(connection);
            self.streams.insert(path, Stream::new(connection, Phase::Opening(ticket)));
            return self.claimed(now, path, connection);
        }
        let full = self.streams.count() >= self.config.limits.streams;
        let mut addresses = self.config.addresses.iter();
        let own = addresses.find(|address| address.is_ipv4() == to.is_ipv4());
        let local = from.or(own.map(|address| SocketAddr::new(*address, 0)));
        let connection = match local.filter(|_| !full) {
            Some(local) => self.below.connect(now, local, to, options),
            None if full => Err(RequestError::Full),
            None => Err(RequestError::Address),
        };
        match connection {
            Ok(connection) => {
                self.statistics.connections += 1;
                let stream = Stream::new(connection, Phase::Opening(ticket));
                self.streams.insert(path, stream);
            }
            Err(error) => {
                self.not_made(now, path, ticket, EffectError::Failed(error.to_string()));
            }
        }
    }

    /// Attaches an open connection to a stream, with the data received over it.
    fn claimed(&mut self, now: Time, path: PathId, connection: ConnectionId) {
        self.statistics.connections += 1;
        self.connected(now, connection);
        let state = self.below.info(connection).map(|info| info.state);
        let ended = [State::CloseWait, State::LastAck, State::Closing, State::TimeWait];
        if let Some(stream) = self.streams.by_path.get_mut(&path) {
            stream.ended = state.is_ok_and(|state| ended.contains(&state));
            self.streams.readable.insert(path);
        }
    }

    /// Listens for one stream at the local address of `near`, at an unpredictable port.
    fn listen(
        &mut self,
        ticket: Ticket,
        near: PathId,
        best_effort: bool,
    ) -> Result<SocketAddr, EffectError> {
        let stream = self.streams.by_path.get(&near).ok_or(EffectError::NotFound)?;
        let (local, _) = stream.ends.ok_or(EffectError::NotFound)?;
        if self.streams.listeners.len() >= self.config.limits.listeners + self.config.listen.len() {
            return Err(EffectError::NotAllowed);
        }
        let (first, last) = (*self.config.tcp.ports.start(), *self.config.tcp.ports.end());
        let count = u64::from(last.saturating_sub(first)) + 1;
        for _ in 0..PORT_TRIES {
            let address = SocketAddr::new(local.ip(), first + self.rng.below(count) as u16);
            let (options, backlog) = (self.options(best_effort), self.config.backlog);
            if let Ok(id) = self.below.listen(address, options, backlog) {
                self.streams.listeners.insert(id, Awaited::One(ticket));
                return Ok(address);
            }
        }
        Err(EffectError::Failed(RequestError::InUse.to_string()))
    }

    pub(super) fn stop_listening(&mut self, now: Time, id: ListenerId) {
        self.streams.listeners.remove(&id);
        let _ = self.below.unlisten(now, id);
    }

    /// Options of a connection, with the best-effort service or as configured.
    fn options(&self, best_effort: bool) -> Options {
        let mut options = self.config.options.clone();
        if best_effort {
            // A host without SCPS-TP gets only this part of it.
            let alone = Scps { snack: None, suspends: false, ..Scps::default() };
            let scps = options.scps.get_or_insert(alone);
            scps.bets.get_or_insert(self.config.best_effort);
        }
        options
    }
}
