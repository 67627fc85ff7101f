//! Models of programs: scp, sftp and rsync, and a terminal session.
//!
//! The messages of a [`Node`] have the order, round trips, windows and lengths of these programs'
//! messages, and carry the file. Their content differs: SSH is not encrypted, and rsync sends
//! zeros except for the file. A node therefore interoperates only with other nodes.
//!
//! | program | transport | limits |
//! |---|---|---|
//! | scp, sftp | a channel of SSH | the channel's window; outstanding requests; `LoginGraceTime` |
//! | rsync | a channel of SSH, or a stream | round trips at the beginning and the end |
//! | telnet | a stream | delay of short segments |
//!
//! Its paths are streams. A program has processing times ([`Costs`]) and makes one write after
//! another: the effect of Nagle's algorithm depends on that.

mod app;
mod config;
mod conn;
mod core;
mod files;
mod indication;
mod rsync;
mod scp;
mod session;
mod sftp;
mod ssh;
mod telnet;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, VecDeque};

use engine::{
    Deadline, Effect, Engine, FileName, Input, PathEffect, PathEvent, PathId, PathInfo, Rng, Time,
    Transmit, TxBuf,
};

pub use config::{Config, Costs, Limits, Tool, Version};
pub use indication::{Failure, Indication, Latency, RequestError, RequestId};

use core::{Core, Wait};
use session::{Request, Session};

/// Client and server of one program.
#[derive(Debug)]
pub struct Node {
    config: Config,
    core: Core,
    rng: Rng,
    sessions: BTreeMap<PathId, Session>,
    /// Requests that wait for the previous one to the same peer.
    waiting: BTreeMap<PathId, VecDeque<Request>>,
    requests: u64,
    /// Path served last.
    last: PathId,
}

impl Node {
    /// Creates a node without connections.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        Self {
            core: Core::new(config.limits),
            config,
            rng,
            sessions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            requests: 0,
            last: PathId(0),
        }
    }

    /// Sends a file to the server on `path`, under `name`; or types its content.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn put(
        &mut self,
        path: PathId,
        source: FileName,
        name: &str,
    ) -> Result<RequestId, RequestError> {
        if name.is_empty() || name.len() > rsync::NAME_MAX || name.chars().any(char::is_control) {
            return Err(RequestError::Name);
        }
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        if waiting >= self.core.limits.requests {
            return Err(RequestError::Full);
        }
        self.requests += 1;
        let id = RequestId(self.requests);
        let request = Request { id, source, name: name.to_owned() };
        self.waiting.entry(path).or_default().push_back(request);
        self.begin_next(path);
        Ok(id)
    }

    /// Unfinished requests of the user, and files being received.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let busy = self.sessions.values().filter(|session| session.is_busy()).count();
        busy + self.waiting.values().map(VecDeque::len).sum::<usize>()
    }

    fn begin_next(&mut self, path: PathId) {
        if self.sessions.contains_key(&path) {
            return;
        }
        let Some(queue) = self.waiting.get_mut(&path) else { return };
        if let Some(request) = queue.pop_front() {
            self.core.effects.push_back(PathEffect::Open { path }.into());
            let session = Session::client(path, request, &self.config, &mut self.core);
            self.sessions.insert(path, session);
        }
        if queue.is_empty() {
            self.waiting.remove(&path);
        }
    }

    fn path_event(&mut self, now: Time, path: PathId, event: PathEvent) {
        match event {
            PathEvent::Up(info) => self.up(now, path, &info),
            PathEvent::Down => {
                if let Some(session) = self.sessions.get_mut(&path) {
                    session.gone(&mut self.core);
                }
            }
            PathEvent::Blocked | PathEvent::Writable => {
                if let Some(session) = self.sessions.get_mut(&path) {
                    session.set_writable(matches!(event, PathEvent::Writable));
                }
            }
            PathEvent::ReadClosed => {
                if let Some(session) = self.sessions.get_mut(&path) {
                    session.read_closed();
                }
            }
            // TLS is never requested here.
            PathEvent::Missing { .. }
            | PathEvent::Unsent
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
        }
    }

    fn up(&mut self, now: Time, path: PathId, info: &PathInfo) {
        let (config, core) = (&self.config, &mut self.core);
        if !self.sessions.contains_key(&path) {
            let servers =
                self.sessions.values().filter(|session| session.request.is_none()).count();
            if info.ticket.is_some() || servers >= core.limits.sessions {
                core.effects.push_back(PathEffect::Close { path }.into());
                return core.indicate(Indication::Refused { path });
            }
            self.sessions.insert(path, Session::server(path, config));
        }
        if let Some(session) = self.sessions.get_mut(&path) {
            session.up(now, config, core);
        }
    }

    /// Advances a session, and forgets it once it has ended.
    fn turn(&mut self, now: Time, path: PathId) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        session.turn(now, &self.config, &mut self.core, &mut self.rng);
        if session.is_over() {
            self.sessions.remove(&path);
            self.core.forget(path);
            return self.begin_next(path);
        }
        match session.next_write().filter(|at| *at > now) {
            Some(at) => self.core.timers.set((path, Wait::Write), at, "a program's next write"),
            None => _ = self.core.timers.cancel((path, Wait::Write)),
        }
    }
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        let path = match input {
            Input::Receive(received) => {
                if let Some(session) = self.sessions.get_mut(&received.path) {
                    session.receive(now, received.bytes, &mut self.core);
                    session.received(now, &self.config, &mut self.core);
                }
                received.path
            }
            Input::Path(path, event) => {
                self.path_event(now, path, event);
                path
            }
            Input::Done(ticket, answer) => {
                let Some((path, job)) = self.core.uses.remove(&ticket) else { return };
                match self.sessions.get_mut(&path) {
                    Some(session) => session.done(job, answer, &mut self.core),
                    // File opened for a session that no longer exists.
                    None => {
                        if let Ok(engine::Completion::Opened { file, .. }) = answer {
                            self.core.effects.push_back(engine::StoreEffect::Close { file }.into());
                        }
                    }
                }
                path
            }
        };
        self.turn(now, path);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((path, wait)) = self.core.timers.pop_due(now) {
            if let Some(session) = self.sessions.get_mut(&path) {
                match wait {
                    Wait::Write | Wait::Key => {}
                    Wait::Grace => session.refuse(&mut self.core),
                    Wait::Silence => session.fail(Failure::Silence, &mut self.core),
                }
            }
            self.turn(now, path);
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let later = self.sessions.range(self.last..).map(|(path, _)| *path);
        let later = later.skip_while(|path| *path == self.last);
        let paths: Vec<_> =
            later.chain(self.sessions.range(..=self.last).map(|(path, _)| *path)).collect();
        for path in paths {
            let Some(session) = self.sessions.get_mut(&path) else { continue };
            let Some(bytes) = session.take(now, tx.longest()) else { continue };
            session.received(now, &self.config, &mut self.core);
            self.last = path;
            tx.push(bytes.len())?.copy_from_slice(&bytes);
            let transmit = tx.transmit(path, now);
            // There is more room, or everything was sent.
            self.turn(now, path);
            return transmit;
        }
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.core.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.core.timers.next()
    }
}
