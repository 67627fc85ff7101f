//! FTP: files over a control connection and data connections (RFC 959; RFC 1123 §4.1, 2428 and
//! 3659 where they amend it).
//!
//! A [`Node`] is a client for its user's requests and a server for its peers. Its paths are
//! streams over the driver's sockets or slowlight's TCP. Data connections use the addresses in
//! the protocol's messages, with [`engine::StreamEffect::Connect`] and
//! [`engine::StreamEffect::Listen`].
//!
//! ```text
//! client                                server
//!   |---- control connection ----------->|
//!   |<--- 220                            |
//!   |---- USER -->  331, PASS -->  230   |
//!   |---- TYPE I -->  200                |
//!   |---- PASV -->  227 (address)        |
//!   |---- data connection -------------->|
//!   |---- STOR name -->  150             |
//!   |==== the file =====================>|  ends with the data connection
//!   |<--- 226 when it is stored          |
//!   |---- QUIT -->  221                  |
//! ```
//!
//! A downloaded file is a working file until it is complete. An uploaded file grows in its place,
//! as with every server, so that SIZE and REST can resume it after a break.
//!
//! With [`ServerConfig::scps`] and [`ClientConfig::scps`] it is SCPS-FP (CCSDS 717.0-B-1):
//! transfers that resume, access to single records, checksums, copies.
//!
//! Not supported: STOU, the modes B and C, the structures R and P, TLS (RFC 4217).

mod client;
mod config;
mod core;
mod indication;
mod listing;
mod relay;
mod server;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileName, Input, PathEffect, PathEvent,
    PathId, PathInfo, StoreEffect, Ticket, Time, Transmit, TxBuf,
};

use crate::message::{CONTROL_FILE, Command, ReadControl, UpdateControl};
pub use config::{
    Accounts, ClientConfig, Config, DataConnection, Limits, Representation, ScpsClient,
    ServerConfig,
};
pub use indication::{Failure, Indication, RequestError, RequestId};

use client::{Request, Source, What};
use core::{Control, Core, DataId, DataState, Use};
use relay::{Half, Relay};

/// Client and server of FTP.
#[derive(Debug)]
pub struct Node {
    client: ClientConfig,
    server: ServerConfig,
    core: Core,
    /// Client sessions by control connection.
    clients: BTreeMap<PathId, client::Session>,
    servers: BTreeMap<PathId, server::Session>,
    requests: u64,
    relays: BTreeMap<RequestId, Relay>,
    /// Control connection that sent last.
    last: PathId,
}

impl Node {
    /// Creates a node without connections.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            client: config.client,
            server: config.server,
            core: Core::new(config.limits),
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            requests: 0,
            relays: BTreeMap::new(),
            last: PathId(0),
        }
    }

    /// Stores a file at the server on `path`, under `name`.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn put(
        &mut self,
        path: PathId,
        source: FileName,
        name: &str,
    ) -> Result<RequestId, RequestError> {
        let name = checked(name)?;
        self.request(path, What::Put { source: Source::File(source), name })
    }

    /// Fetches the server's file `name`.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn get(
        &mut self,
        path: PathId,
        name: &str,
        target: FileName,
    ) -> Result<RequestId, RequestError> {
        let name = checked(name)?;
        self.request(path, What::Get { name, target, records: false })
    }

    /// Fetches bytes of a server's file, by a control file that is stored there first (READ).
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn read_records(
        &mut self,
        path: PathId,
        control: &ReadControl,
        target: FileName,
    ) -> Result<RequestId, RequestError> {
        let text = control.encode().ok_or(RequestError::Name)?;
        let get = What::Get { name: CONTROL_FILE.to_owned(), target, records: true };
        self.by_control(path, Source::Text(text.into()), get)
    }

    /// Changes a server's file, by a control file that is stored there first (UPDT).
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn update(
        &mut self,
        path: PathId,
        control: &UpdateControl,
    ) -> Result<RequestId, RequestError> {
        let text = control.encode().ok_or(RequestError::Name)?;
        self.by_control(path, Source::Text(text.into()), update())
    }

    /// Changes a server's file, by a control file in the local store.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn update_by(
        &mut self,
        path: PathId,
        control: FileName,
    ) -> Result<RequestId, RequestError> {
        self.by_control(path, Source::File(control), update())
    }

    /// Requests a server to copy one of its files; neither name may contain a blank.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn copy(&mut self, path: PathId, from: &str, to: &str) -> Result<RequestId, RequestError> {
        let (from, to) = (checked(from)?, checked(to)?);
        if from.contains(' ') || to.contains(' ') {
            return Err(RequestError::Name);
        }
        self.request(path, What::Command(Command::Copy(&from, &to).to_string()))
    }

    /// Requests the CRC of a file from a server; the reply contains it.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn checksum(&mut self, path: PathId, name: &str) -> Result<RequestId, RequestError> {
        let site = format!("crc {}", checked(name)?);
        self.request(path, What::Command(Command::Site(&site).to_string()))
    }

    /// Has one server send its file `source` to another, which calls it `destination`. Both must
    /// accept third parties ([`ServerConfig::third_party`]); the data does not pass this host.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn relay(
        &mut self,
        from: PathId,
        source: &str,
        to: PathId,
        destination: &str,
    ) -> Result<RequestId, RequestError> {
        if from == to {
            return Err(RequestError::Same);
        }
        if self.waiting() + 2 > self.core.limits.requests {
            return Err(RequestError::Full);
        }
        let source = What::Relay { name: checked(source)?, half: Half::Gives };
        let destination = What::Relay { name: checked(destination)?, half: Half::Takes };
        self.requests += 1;
        let id = RequestId(self.requests);
        self.relays.insert(id, Relay::new(from, to));
        for (path, what) in [(from, source), (to, destination)] {
            self.enqueue(path, Request { id, what, needs: None, attempts: 0 });
        }
        Ok(id)
    }

    /// Stores a control file, and then sends the command that uses it.
    fn by_control(
        &mut self,
        path: PathId,
        source: Source,
        what: What,
    ) -> Result<RequestId, RequestError> {
        if self.waiting() + 2 > self.core.limits.requests {
            return Err(RequestError::Full);
        }
        let put = What::Put { source, name: CONTROL_FILE.to_owned() };
        let control = self.request_after(path, put, None);
        Ok(self.request_after(path, what, Some(control)))
    }

    /// Cancels a request; `false` if it is not under way.
    pub fn cancel(&mut self, now: Time, id: RequestId) -> bool {
        let core = &mut self.core;
        let found = self.clients.values_mut().any(|client| client.cancel(id, core));
        self.settle(now);
        found
    }

    /// Number of peers' control connections.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.servers.len()
    }

    /// Number of unfinished requests of the user, and of peers' transfers.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let requests: usize = self.clients.values().map(client::Session::under_way).sum();
        let transfers = self.servers.values().filter(|server| server.has_transfer());
        requests + transfers.count()
    }

    fn request(&mut self, path: PathId, what: What) -> Result<RequestId, RequestError> {
        if self.waiting() >= self.core.limits.requests {
            return Err(RequestError::Full);
        }
        Ok(self.request_after(path, what, None))
    }

    /// Number of queued requests.
    fn waiting(&self) -> usize {
        self.clients.values().map(|client| client.queue.len()).sum()
    }

    /// Queues a request that depends on another one.
    fn request_after(&mut self, path: PathId, what: What, needs: Option<RequestId>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.enqueue(path, Request { id, what, needs, attempts: 0 });
        id
    }

    fn enqueue(&mut self, path: PathId, request: Request) {
        let (core, config) = (&mut self.core, &self.client);
        let client = self.clients.entry(path).or_insert_with(|| {
            core.effects.push_back(PathEffect::Open { path }.into());
            client::Session::new(path, VecDeque::new(), config)
        });
        client.queue.push_back(request);
    }

    fn path_event(&mut self, now: Time, path: PathId, event: PathEvent) {
        match event {
            PathEvent::Up(info) => self.up(now, path, &info),
            PathEvent::Down => self.down(now, path),
            PathEvent::Blocked => self.set_blocked(path, true),
            PathEvent::Writable => self.set_blocked(path, false),
            PathEvent::ReadClosed => self.read_closed(path),
            // TLS is never requested here.
            PathEvent::Unsent
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
            PathEvent::Missing { offset, bytes } => {
                // Control connections are not best-effort.
                if let Some(id) = self.core.data_paths.get(&path) {
                    self.core.data_missing(*id, offset, bytes);
                }
            }
        }
    }

    fn up(&mut self, now: Time, path: PathId, info: &PathInfo) {
        if let Some(ticket) = info.ticket {
            match self.core.requested(ticket) {
                Some(id) if self.is_expected(id, info) => self.core.data_up(id, path),
                Some(id) => {
                    self.core.reset_path(path);
                    self.core.data_not_made(id, EffectError::NotAllowed);
                }
                // The requested stream was given up in the meantime.
                None => self.core.reset_path(path),
            }
            return;
        }
        if let Some(client) = self.clients.get_mut(&path) {
            client.up(info.ends);
            self.core.expect(path, now, self.client.timeout, "no reply");
            return;
        }
        if self.servers.contains_key(&path) {
            return;
        }
        if !self.server.enabled || self.servers.len() >= self.core.limits.sessions {
            self.core.close_path(path);
            self.core.indicate(Indication::Refused { path });
            return;
        }
        self.servers.insert(path, server::Session::new(path, info.ends, &self.server));
        self.core.expect(path, now, self.server.idle, "silence of a client");
    }

    /// Whether a data connection comes from the host of its control connection, or need not
    /// (RFC 2577 §6). An unknown address is no reason to refuse it.
    fn is_expected(&self, id: DataId, info: &PathInfo) -> bool {
        let Some(data) = self.core.data.get(&id) else { return false };
        let (ends, any) = match (self.clients.get(&data.control), self.servers.get(&data.control)) {
            (Some(client), _) => (client.control.ends, self.client.third_party),
            (None, Some(server)) => (server.control.ends, self.server.third_party),
            (None, None) => return false,
        };
        match (ends, info.ends) {
            (Some((_, control)), Some((_, data))) => any || control.ip() == data.ip(),
            (Some(_) | None, _) => true,
        }
    }

    fn down(&mut self, now: Time, path: PathId) {
        if let Some(id) = self.core.data_paths.get(&path) {
            return self.core.data_down(*id);
        }
        self.core.timers.cancel(path);
        if let Some(mut client) = self.clients.remove(&path) {
            client.give_up(&Failure::Control, &mut self.core);
            self.begin_again(now, path, client.queue);
        }
        if let Some(mut server) = self.servers.remove(&path) {
            server.abort_transfer(&mut self.core);
        }
    }

    fn set_blocked(&mut self, path: PathId, now_blocked: bool) {
        if let Some(id) = self.core.data_paths.get(&path) {
            if let Some(data) = self.core.data.get_mut(id)
                && let DataState::Up { blocked, .. } = &mut data.state
            {
                *blocked = now_blocked;
            }
        } else if let Some(client) = self.clients.get_mut(&path) {
            client.control.set_blocked(now_blocked);
        } else if let Some(server) = self.servers.get_mut(&path) {
            server.control.set_blocked(now_blocked);
        }
    }

    fn read_closed(&mut self, path: PathId) {
        if let Some(id) = self.core.data_paths.get(&path) {
            return self.core.data_ended(*id);
        }
        if let Some(client) = self.clients.get_mut(&path) {
            client.give_up(&Failure::Control, &mut self.core);
        }
        // A client that has sent everything may still listen: it is closed after the last reply.
        if let Some(server) = self.servers.get_mut(&path) {
            server.leave(&mut self.core);
        }
    }

    fn received(&mut self, now: Time, path: PathId, bytes: &[u8]) {
        if let Some(id) = self.core.data_paths.get(&path).copied() {
            self.core.data_received(id, bytes);
            self.progress(now, id);
        } else if let Some(client) = self.clients.get_mut(&path) {
            client.received(now, bytes, &self.client, &mut self.core);
        } else if let Some(server) = self.servers.get_mut(&path) {
            server.received(now, bytes, &self.server, &mut self.core);
        }
    }

    /// Notes data on a data connection, which ends the silence of both sides.
    fn progress(&mut self, now: Time, id: DataId) {
        let Some(control) = self.core.data.get(&id).map(|data| data.control) else { return };
        if self.clients.contains_key(&control) {
            self.core.expect(control, now, self.client.timeout, "no data");
        } else if let Some(server) = self.servers.get_mut(&control) {
            server.watch(now, &self.server, &mut self.core);
        }
    }

    fn done(&mut self, ticket: Ticket, answer: Result<Completion, EffectError>) {
        match self.core.use_of(ticket) {
            Some(Use::Flow(id, job)) => self.core.flow_done(id, job, answer),
            Some(Use::Data(id)) => self.data_answer(ticket, id, answer),
            Some(Use::Client(path, job)) => {
                if let Some(client) = self.clients.get_mut(&path) {
                    client.done(job, answer, &self.client, &mut self.core);
                } else {
                    self.close_late(&answer);
                }
            }
            Some(Use::Server(path, job)) => {
                if let Some(server) = self.servers.get_mut(&path) {
                    server.done(job, answer, &mut self.core);
                } else {
                    self.close_late(&answer);
                }
            }
            None => {}
        }
    }

    /// Closes a file opened for a session that no longer exists.
    fn close_late(&mut self, answer: &Result<Completion, EffectError>) {
        if let Ok(Completion::Opened { file, .. }) = *answer {
            self.core.effects.push_back(StoreEffect::Close { file }.into());
        }
    }

    /// Processes the driver's listening address, or the failure of a connection.
    fn data_answer(&mut self, ticket: Ticket, id: DataId, answer: Result<Completion, EffectError>) {
        let Some(control) = self.core.data.get(&id).map(|data| data.control) else { return };
        let address = match answer {
            Ok(Completion::Listening(address)) => {
                // The connection has not been established yet.
                self.core.waits_on(ticket, id);
                Ok(address)
            }
            Ok(_) => Err(EffectError::Failed("the driver's answer makes no sense".to_owned())),
            Err(error) => Err(error),
        };
        if let Some(server) = self.servers.get_mut(&control)
            && server.is_listening()
        {
            server.listening(address, &mut self.core);
        } else {
            match address {
                Ok(address) => {
                    if let Some(client) = self.clients.get_mut(&control) {
                        client.listening(address);
                    }
                }
                Err(error) => self.core.data_not_made(id, error),
            }
        }
    }

    /// Passes events of data connections to their sessions, and ends finished sessions.
    fn settle(&mut self, now: Time) {
        while let Some((id, event)) = self.core.data_events.pop_front() {
            let Some(control) = self.core.data.get(&id).map(|data| data.control) else { continue };
            if let Some(client) = self.clients.get_mut(&control) {
                client.data_event(event, &mut self.core);
            } else if let Some(server) = self.servers.get_mut(&control) {
                server.data_event(event, &mut self.core);
            }
        }
        while let Some((id, outcome)) = self.core.relayed.pop_front() {
            self.relayed(id, outcome);
        }
        while let Some(path) = self.core.superseded.pop_front() {
            if let Some(server) = self.servers.get_mut(&path) {
                server.superseded(&mut self.core);
            }
        }
        for server in self.servers.values_mut().filter(|server| server.has_work()) {
            server.work(now, &self.server, &mut self.core);
        }
        self.end_sessions(now);
    }

    /// Opens a new control connection for queued requests; for an interrupted one, after a delay.
    fn begin_again(&mut self, now: Time, path: PathId, queue: VecDeque<Request>) {
        if queue.is_empty() {
            return;
        }
        let mut client = client::Session::new(path, queue, &self.client);
        match client.wait() {
            Some(wait) => self.core.expect(path, now, wait, "a restart"),
            None => self.core.effects.push_back(PathEffect::Open { path }.into()),
        }
        self.clients.insert(path, client);
    }

    /// Forgets finished control connections. Queued requests get a new one.
    fn end_sessions(&mut self, now: Time) {
        let spent = |(path, client): (&PathId, &client::Session)| {
            client.control.is_spent().then_some(*path)
        };
        for path in self.clients.iter().filter_map(spent).collect::<Vec<_>>() {
            self.core.timers.cancel(path);
            self.core.close_path(path);
            let Some(client) = self.clients.remove(&path) else { continue };
            self.begin_again(now, path, client.queue);
        }
        let spent = |(path, server): (&PathId, &server::Session)| {
            server.control.is_spent().then_some(*path)
        };
        for path in self.servers.iter().filter_map(spent).collect::<Vec<_>>() {
            self.core.timers.cancel(path);
            self.core.close_path(path);
            if let Some(mut server) = self.servers.remove(&path) {
                server.abort_transfer(&mut self.core);
            }
        }
    }

    /// Next output of a control connection, in turn.
    fn control_to_send(&mut self, len: usize) -> Option<(PathId, Bytes)> {
        let ready = |range: (Bound<PathId>, Bound<PathId>)| {
            let clients = self.clients.range(range).map(|(path, client)| (*path, &client.control));
            let servers = self.servers.range(range).map(|(path, server)| (*path, &server.control));
            let is_ready = |(path, control): (PathId, &Control)| control.is_ready().then_some(path);
            // The first of each is enough, because a node is mostly either a client or a server.
            [clients.filter_map(is_ready).next(), servers.filter_map(is_ready).next()]
        };
        let later = (Bound::Excluded(self.last), Bound::Unbounded);
        let earlier = (Bound::Unbounded, Bound::Included(self.last));
        let first = |found: [Option<PathId>; 2]| found.into_iter().flatten().min();
        let path = first(ready(later)).or_else(|| first(ready(earlier)))?;
        let control = match (self.clients.get_mut(&path), self.servers.get_mut(&path)) {
            (Some(client), _) => &mut client.control,
            (None, Some(server)) => &mut server.control,
            (None, None) => return None,
        };
        let bytes = control.take(len)?;
        self.last = path;
        Some((path, bytes))
    }
}

/// UPDT with the control file stored last.
fn update() -> What {
    What::Command(Command::Updt(CONTROL_FILE).to_string())
}

/// Checks that a name can be used in a command.
fn checked(name: &str) -> Result<String, RequestError> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(RequestError::Name);
    }
    Ok(name.to_owned())
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(received) => self.received(now, received.path, received.bytes),
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, answer) => self.done(ticket, answer),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(path) = self.core.timers.pop_due(now) {
            if let Some(client) = self.clients.get_mut(&path) {
                if client.tries_again() {
                    self.core.effects.push_back(PathEffect::Open { path }.into());
                } else {
                    client.give_up(&Failure::Silence, &mut self.core);
                }
            } else if let Some(server) = self.servers.get_mut(&path) {
                server.silent(&mut self.core);
            }
        }
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if let Some((path, bytes)) = self.control_to_send(tx.longest()) {
            let transmit = Core::transmit(path, &bytes, now, tx);
            self.end_sessions(now);
            return transmit;
        }
        let (id, path, bytes) = self.core.data_to_send(tx.longest())?;
        self.progress(now, id);
        self.settle(now);
        Core::transmit(path, &bytes, now, tx)
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
