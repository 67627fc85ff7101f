//! Saratoga version 1 (draft-wood-tsvwg-saratoga-22).
//!
//! A [`Node`] puts, gets, lists and deletes files, in any number of concurrent sessions. It is an
//! [`engine::Engine`]: it holds no socket, file or clock. Saratoga fills a link at its configured
//! rate without sharing it: it is for private links. On shared paths, [`Congestion::Tfrc`] adds
//! congestion control.
//!
//! Incomplete files are kept, so that a later session resumes them, even after a restart of either
//! side: a file is recognised by its METADATA.
//!
//! # States
//!
//! A sender opens its file, computes the checksum, announces it (METADATA, or after a request),
//! and sends DATA. A STATUS of the receiver lists holes, which are retransmitted. The session ends
//! when a STATUS claims everything.
//!
//! A receiver collects data in any order, and reports holes on request, at its interval, or at
//! the end. When nothing is missing it verifies the checksum, syncs and renames the file, and
//! only then claims it. Either side ends a session with an error code. Timers stop while the path
//! or its return is down.
//!
//! # Driving it
//!
//! `examples/saratoga_lossy_link.rs` has a driver of 15 lines. [`Node::put`] and [`Node::get`]
//! start a session, whose end is [`Indication::Finished`].
//!
//! # What it bounds
//!
//! [`Limits`] bounds sessions, unwritten data, directory listings and replies to strangers;
//! reaching one is an [`Indication`].

#![forbid(unsafe_code)]

mod beacons;
mod codec;
mod config;
mod congestion;
mod core;
mod directory;
mod ending;
mod errand;
mod incoming;
mod indication;
pub mod lite;
pub mod packet;
mod partials;
mod profile;
mod received;
mod receiver;
mod sender;
mod sessions;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;
#[cfg(test)]
mod tests;
mod tfrc;
mod times;

use std::net::SocketAddr;

use engine::{
    Completion, Deadline, Effect, EffectError, Engine, IndexRequest, Input, PathEvent, PathId, Rng,
    Ticket, Time, Transmit, TxBuf,
};
use session::path::{Burst, Class, Handle, Pacing, Turn};
use session::{Change, Seat, Turns};

/// The contract with a driver.
pub use engine;

pub use self::config::{
    Beacons, ChecksumKind, Config, Congestion, JournalPolicy, Limits, Named, Permissions, Remote,
    Timer, Version,
};
pub use self::indication::{
    About, Failure, Finished, GetRequest, Indication, Limit, Listed, PacketCounts, Put, PutRequest,
    Report, RequestError, Role, SessionId, Stats,
};
pub use self::partials::{RECORD_PREFIX, SPOOL_PREFIX};
pub use self::profile::profile;

use self::core::{Alarm, Core, Job, Shared, Task};
use self::ending::{is_refusal, status};
use self::errand::Errand;
use self::partials::Partial;
use self::receiver::{Receiver, Wish};
use self::sender::{Order, Sender};
use self::sessions::{Session, Sessions};
use crate::packet::{Content, RequestKind, StatusCode};

/// A Saratoga peer.
#[derive(Debug)]
pub struct Node {
    core: Core,
    sessions: Sessions,
    /// Whether the records of an earlier run were read.
    is_restored: bool,
    /// Free space announced in beacons, in KiB.
    free_kib: Option<u64>,
}

impl Node {
    /// Creates a peer with these settings. It requests the records of an earlier run from its store
    /// at once.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let mut core = Core::new(config, rng);
        let is_restored = !core.config.journal.enabled;
        if !is_restored {
            let load = IndexRequest::Load { prefix: RECORD_PREFIX.to_owned() };
            core.shared.index(Handle::NOBODY, Job::Own(Task::Load), load);
        }
        Self { core, sessions: Sessions::new(), is_restored, free_kib: None }
    }

    /// Creates a peer that accepts only bundles (draft-wood-dtnrg-saratoga), as files with the
    /// names of the bundles.
    #[must_use]
    pub fn for_bundles(config: Config, rng: Rng) -> Self {
        let mut node = Self::new(config, rng);
        node.core.takes_bundles = true;
        node
    }

    /// Received file that waits for the effect with this ticket.
    pub fn asker(&self, ticket: Ticket) -> Option<Report> {
        match self.sessions.get(self.core.shared.asker(ticket)?)? {
            Session::Receiver(receiver) => Some(receiver.report()),
            Session::Sender(_) | Session::Errand(_) => None,
        }
    }

    /// Settings of the peer.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters since the peer's start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Whether the records of an earlier run were read. Until then nothing is received.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// Sessions under way.
    pub fn sessions(&self) -> impl Iterator<Item = Report> + '_ {
        self.sessions.iter().map(Session::report)
    }

    /// Address of the peer of a session under way, if it is known.
    #[must_use]
    pub fn peer_address(&self, id: SessionId) -> Option<SocketAddr> {
        self.core.shared.paths.get(&id.peer)?.peer()
    }

    /// Sets the free space, in KiB, for later beacons.
    pub fn set_free_space(&mut self, kib: Option<u64>) {
        self.free_kib = kib;
    }

    /// Sends a file.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn put(&mut self, now: Time, request: PutRequest) -> Result<SessionId, RequestError> {
        let content = if request.stream { Content::Stream } else { Content::File };
        self.put_as(now, request, content)
    }

    /// Sends a file marked as a bundle.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn put_bundle(
        &mut self,
        now: Time,
        request: PutRequest,
    ) -> Result<SessionId, RequestError> {
        self.put_as(now, request, Content::Bundle)
    }

    fn put_as(
        &mut self,
        now: Time,
        request: PutRequest,
        content: Content,
    ) -> Result<SessionId, RequestError> {
        self.knows_more_than_get()?;
        check_name(&request.name)?;
        let order = Order {
            source: request.source,
            name: request.name,
            content,
            put: request.put,
            is_requested: false,
            resumes: request.resumes,
            delete: request.delete,
            descriptor: self.core.config.descriptor,
            udp_lite: self.core.config.udp_lite && !request.delete,
        };
        let id = self.new_id(request.peer, Role::Sender, request.session)?;
        self.begin_sender(now, id, order);
        Ok(id)
    }

    /// Fetches a file.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn get(&mut self, now: Time, request: GetRequest) -> Result<SessionId, RequestError> {
        check_name(&request.name)?;
        let kind = if request.delete { RequestKind::Take } else { RequestKind::Get };
        if request.delete {
            self.knows_more_than_get()?;
        }
        let destination = Some(request.destination);
        self.wish(now, request.peer, Wish { kind, name: request.name, destination })
    }

    /// Requests the listing of a directory; an empty name is the peer's root.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn list(
        &mut self,
        now: Time,
        peer: PathId,
        directory: String,
    ) -> Result<SessionId, RequestError> {
        self.knows_more_than_get()?;
        if !directory.is_empty() {
            check_name(&directory)?;
        }
        let kind = RequestKind::GetDir;
        self.wish(now, peer, Wish { kind, name: directory, destination: None })
    }

    /// Requests the deletion of a file.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn delete(
        &mut self,
        now: Time,
        peer: PathId,
        name: String,
    ) -> Result<SessionId, RequestError> {
        self.knows_more_than_get()?;
        check_name(&name)?;
        let id = self.new_id(peer, Role::Receiver, None)?;
        self.core.user.indicate(Indication::Started { id, name: name.clone() });
        self.sessions.begin(&mut self.core, now, id, |core, base| {
            Session::Errand(Box::new(Errand::ask(base, id, name, core, now)))
        });
        Ok(id)
    }

    /// Cancels a session and notifies the peer.
    ///
    /// # Errors
    /// No such session is under way.
    pub fn cancel(&mut self, now: Time, id: SessionId) -> Result<(), RequestError> {
        let handle = self.sessions.find(&id).ok_or(RequestError::NoSession(id))?;
        let code = StatusCode::NotInterested;
        match self.sessions.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.end(&mut self.core, code),
            Some(Session::Receiver(receiver)) => receiver.refuse(&mut self.core, now, code),
            Some(Session::Errand(errand)) => errand.give_up(&mut self.core),
            None => {}
        }
        self.settle(handle);
        Ok(())
    }

    fn knows_more_than_get(&self) -> Result<(), RequestError> {
        match self.core.config.version {
            Version::V0 => Err(RequestError::OnlyGet),
            Version::V1 => Ok(()),
        }
    }

    fn wish(&mut self, now: Time, peer: PathId, wish: Wish) -> Result<SessionId, RequestError> {
        let id = self.new_id(peer, Role::Receiver, None)?;
        self.begin_receiver(now, id, Some(wish));
        Ok(id)
    }

    /// The wanted session number, or a random one if it is in use.
    fn new_id(
        &mut self,
        peer: PathId,
        role: Role,
        wanted: Option<u32>,
    ) -> Result<SessionId, RequestError> {
        if self.sessions.len() >= self.core.config.limits.sessions {
            return Err(RequestError::TooManySessions);
        }
        let mut wanted = wanted;
        loop {
            let number = wanted.take().unwrap_or_else(|| self.core.rng.next_u64() as u32);
            let ids = [Role::Sender, Role::Receiver].map(|role| SessionId { peer, number, role });
            if number != 0 && !ids.iter().any(|id| self.sessions.is_taken(id)) {
                return Ok(SessionId { peer, number, role });
            }
        }
    }

    fn begin_sender(&mut self, now: Time, id: SessionId, order: Order) {
        self.core.user.indicate(Indication::Started { id, name: order.name.clone() });
        self.sessions.begin(&mut self.core, now, id, |core, base| {
            let sender = Sender::new(base, id, order, core, now);
            core.shared.senders += 1;
            Session::Sender(Box::new(sender))
        });
    }

    fn begin_receiver(&mut self, now: Time, id: SessionId, wish: Option<Wish>) -> Handle {
        let name = wish.as_ref().map(|wish| wish.name.clone()).unwrap_or_default();
        self.core.drop_partials();
        self.core.user.indicate(Indication::Started { id, name });
        // The number names the working file, so it must be unique.
        let number = loop {
            let number = self.core.rng.next_u64() as u32;
            if !self.core.partials.has(number) {
                break number;
            }
        };
        self.sessions.begin(&mut self.core, now, id, |core, base| {
            Session::Receiver(Box::new(Receiver::new(base, id, wish, number, core, now)))
        })
    }

    /// Refuses a session, now and when it is retried.
    fn refuse(&mut self, id: SessionId, code: StatusCode) {
        let word = status(id.number, code);
        self.reply(id.peer, word.clone());
        self.sessions.remember(&self.core, id, word);
    }

    /// Sends a packet of version 1, translated to the configured version. Refusals are
    /// rate-limited.
    fn reply(&mut self, to: PathId, packet: Vec<u8>) {
        if is_refusal(&packet) && !self.core.admits_refusal(to) {
            return;
        }
        let Some(packet) = codec::translated(self.core.config.version, packet) else { return };
        if !self.core.shared.replies.push(to, packet) {
            self.core.stats.replies_dropped += 1;
            self.core.user.limit_reached(Limit::Replies);
        }
    }

    fn path_event(&mut self, now: Time, id: PathId, event: PathEvent) {
        let remote = self.core.config.remote(id);
        let pacing = Pacing {
            rate_bps: remote.rate_bps,
            interval: remote.interval,
            pace_as: remote.pace_as,
            catch_up: self.core.config.catch_up,
        };
        let Some(change) = self.core.shared.path_event(id, event, pacing) else { return };
        let resumed = change == Change::Resumed;
        // Most paths of strangers have no session.
        let concerned = if self.core.shared.paths.has_sessions(id) { usize::MAX } else { 0 };
        let sessions = self.sessions.iter_mut().take(concerned);
        for session in sessions.filter(|session| session.id().peer == id) {
            session.base().follow(&mut self.core.shared, now);
            if resumed {
                session.path_up(&mut self.core);
            }
        }
        let beacons = self.core.config.beacons.as_ref();
        if resumed && beacons.is_some_and(|beacons| beacons.paths.contains(&id)) {
            self.core.shared.timers.set((Handle::NOBODY, Alarm::Beacon), now, "beacon");
        }
    }

    fn effect_done(&mut self, now: Time, ticket: Ticket, answer: Result<Completion, EffectError>) {
        let Some((handle, job)) = self.core.shared.completed(ticket) else { return };
        if job == Job::Own(Task::Load) {
            self.restore(answer);
            return;
        }
        match self.sessions.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.done(&mut self.core, now, job, answer),
            Some(Session::Receiver(receiver)) => receiver.done(&mut self.core, now, job, answer),
            Some(Session::Errand(errand)) if job == Job::Own(Task::Delete) => {
                errand.done(&mut self.core, &answer);
            }
            Some(Session::Errand(_)) => {}
            None => {
                self.core.shared.orphaned(&job, &answer);
                if let Job::Own(Task::Record { number }) = job {
                    self.core.forget_record(number);
                }
            }
        }
        self.settle(handle);
    }

    /// Reads the records of an earlier run.
    fn restore(&mut self, answer: Result<Completion, EffectError>) {
        self.is_restored = true;
        let records = match answer {
            Ok(Completion::Records(records)) => records,
            Ok(_) | Err(_) => {
                self.core.stats.record_errors += 1;
                Vec::new()
            }
        };
        received::restore(&mut self.core, &records);
        for (key, value) in records {
            let Some(number) = partials::number(&key) else { continue };
            match Partial::decode(&value) {
                Some(partial) => self.core.keep_partial(number, partial),
                None => {
                    self.core.stats.record_errors += 1;
                    self.core.forget_record(number);
                }
            }
        }
        let partials = self.core.partials.len();
        self.core.user.indicate(Indication::Restored { partials });
    }
}

fn check_name(name: &str) -> Result<(), RequestError> {
    let fits = !name.is_empty() && name.len() < packet::PATH_MAX && !name.contains('\0');
    if fits { Ok(()) } else { Err(RequestError::Name) }
}

impl Turns for Node {
    type Alarm = Alarm;
    type Job = Task;

    fn shared(&mut self) -> &mut Shared {
        &mut self.core.shared
    }

    fn seat(&mut self, handle: Handle) -> Option<&mut Seat> {
        self.sessions.get_mut(handle).map(|session| &mut session.base().seat)
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        let Core { shared, stats, config, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |bytes| {
            if let Ok(packet) = codec::decode(config.version, bytes) {
                stats.sent.count(&packet);
            }
        });
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        match self.sessions.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.emit(&mut self.core, class, burst),
            Some(Session::Receiver(receiver)) => receiver.emit(&mut self.core, burst),
            Some(Session::Errand(errand)) => errand.emit(&mut self.core, burst),
            None => Turn::Over,
        }
    }

    /// Forgets a finished session, except for the packet that replies to later requests.
    fn settle(&mut self, handle: Handle) {
        if let Some((id, word)) = self.sessions.settle(&mut self.core, handle) {
            self.reply(id.peer, word);
        }
        if std::mem::take(&mut self.core.shared.flush_wanted) {
            for session in self.sessions.iter_mut() {
                if let Session::Receiver(receiver) = session {
                    receiver.flush(&mut self.core);
                }
            }
        }
    }
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.core.now = now;
        match input {
            Input::Receive(receive) => {
                for datagram in receive.datagrams() {
                    self.receive(now, receive.from, datagram);
                }
            }
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, answer) => self.effect_done(now, ticket, answer),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.core.now = now;
        while let Some((handle, alarm)) = self.core.shared.timers.pop_due(now) {
            if handle == Handle::NOBODY {
                self.beacon(now);
                continue;
            }
            let Some(session) = self.sessions.get_mut(handle) else { continue };
            session.base().disarm(&mut self.core.shared, alarm);
            match session {
                Session::Sender(sender) => sender.alarm(&mut self.core, now, alarm),
                Session::Receiver(receiver) => receiver.alarm(&mut self.core, now, alarm),
                Session::Errand(errand) => errand.alarm(&mut self.core, alarm),
            }
            self.settle(handle);
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.core.now = now;
        self.take_turns(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.shared.next_effect()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.core.user.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.core.shared.timers.next()
    }
}
