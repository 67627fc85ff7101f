//! Saratoga version 1 (draft-wood-tsvwg-saratoga-22).
//!
//! A [`Node`] puts, gets, lists and deletes files, in any number of sessions at once. It is an
//! [`engine::Engine`]: it holds no socket, file or clock. Saratoga fills a link at the rate that it
//! was given, and shares it with nobody: it is for private links. Where others use the way, too,
//! [`Congestion::Tfrc`] makes it heed them.
//!
//! What came of a file is kept, so that a later session goes on, be it after a restart of either
//! side: a file is known again by what its METADATA says of it.

mod codec;
mod config;
mod congestion;
mod core;
mod directory;
mod ending;
mod errand;
mod indication;
pub mod lite;
mod partials;
mod places;
mod profile;
mod received;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod tfrc;
mod times;

use std::collections::BTreeMap;

use engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileName, IndexRequest, Input, PathEvent,
    PathId, Rng, Ticket, Time, Transmit, TxBuf,
};
use wire::saratoga::{
    Ability, Beacon, Content, Metadata, Packet, Request, RequestKind, Status, StatusCode,
    Timestamp, Width,
};

pub use self::config::{
    Beacons, ChecksumKind, Config, Congestion, JournalPolicy, Limits, Named, Permissions, Remote,
    Timer, Version,
};
pub use self::indication::{
    About, Failure, Finished, GetRequest, Indication, Limit, Listed, PacketCounts, Put, PutRequest,
    Report, RequestError, Role, SessionId, Stats,
};
pub use self::profile::profile;
pub use wire::saratoga as packet;

use self::core::{Alarm, Core, Job, Shared, Task};
use self::ending::{is_metadata, is_refusal, ok, stamped, status};
use self::errand::Errand;
use self::partials::Partial;
use self::receiver::{Receiver, Wish};
use self::sender::{Order, Sender};
use crate::path::{Burst, Class, Handle, Pacing, Path, Turn};
use crate::recent::Recent;
use crate::session::{Base, Change, Seat, Slots, Turns};

/// A Saratoga peer.
#[derive(Debug)]
pub struct Node {
    core: Core,
    slots: Slots<Session>,
    by_id: BTreeMap<SessionId, Handle>,
    /// Sessions that are over, and the packet that answers who asks about them.
    closed: Recent<SessionId, Vec<u8>>,
    /// Whether the records of an earlier run were taken up.
    is_restored: bool,
    /// What its beacons say of the room it has, in KiB.
    free_kib: Option<u64>,
}

#[derive(Debug)]
enum Session {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
    Errand(Box<Errand>),
}

impl Session {
    fn base(&mut self) -> &mut Base<Alarm> {
        match self {
            Self::Sender(sender) => &mut sender.base,
            Self::Receiver(receiver) => &mut receiver.base,
            Self::Errand(errand) => &mut errand.base,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_done(),
            Self::Receiver(receiver) => receiver.is_done(),
            Self::Errand(errand) => errand.is_done(),
        }
    }

    fn id(&self) -> SessionId {
        match self {
            Self::Sender(sender) => sender.id,
            Self::Receiver(receiver) => receiver.id,
            Self::Errand(errand) => errand.id,
        }
    }

    fn report(&self) -> Report {
        match self {
            Self::Sender(sender) => sender.report(),
            Self::Receiver(receiver) => receiver.report(),
            Self::Errand(errand) => errand.report(),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Sender(sender) => size_of::<Sender>() + sender.memory(),
            Self::Receiver(receiver) => size_of::<Receiver>() + receiver.memory(),
            Self::Errand(errand) => size_of::<Errand>() + errand.memory(),
        }
    }

    fn want_all(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.want_all(core),
            Self::Receiver(receiver) => receiver.want_all(core),
            Self::Errand(errand) => errand.base.want(&mut core.shared, Class::Control),
        }
    }

    /// A direction of the path came up: what waits for a reply is requested at once.
    fn path_up(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.path_up(core),
            Self::Receiver(receiver) => receiver.path_up(core),
            Self::Errand(errand) => errand.path_up(core),
        }
    }

    /// The request for it came again.
    fn asked_again(&mut self, core: &mut Core) {
        match self {
            Self::Receiver(receiver) => receiver.requested(core),
            Self::Sender(_) | Self::Errand(_) => self.want_all(core),
        }
    }

    /// Whether it uses a file, so that this must not be deleted.
    fn uses(&self, name: &FileName) -> bool {
        match self {
            Self::Sender(sender) => sender.uses(name),
            Self::Receiver(receiver) => receiver.uses(name),
            Self::Errand(_) => false,
        }
    }
}

impl Node {
    /// A peer with these settings. It asks its store for the records of an earlier run at once.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let mut core = Core::new(config, rng);
        let is_restored = !core.config.journal.enabled;
        if !is_restored {
            core.shared.index(Handle::NOBODY, Job::Own(Task::Load), IndexRequest::Load);
        }
        Self {
            core,
            slots: Slots::new(),
            by_id: BTreeMap::new(),
            closed: Recent::new(),
            is_restored,
            free_kib: None,
        }
    }

    /// A peer that takes bundles and nothing else (draft-wood-dtnrg-saratoga): as files of the names that they come with.
    #[must_use]
    pub fn for_bundles(config: Config, rng: Rng) -> Self {
        let mut node = Self::new(config, rng);
        node.core.takes_bundles = true;
        node
    }

    /// The file that is received on whose behalf an effect was asked for that is not answered.
    pub(crate) fn asker(&self, ticket: Ticket) -> Option<Report> {
        match self.slots.get(self.core.shared.asker(ticket)?)? {
            Session::Receiver(receiver) => Some(receiver.report()),
            Session::Sender(_) | Session::Errand(_) => None,
        }
    }

    /// The peer's settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters since the peer began.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Whether the records of an earlier run were taken up. Until then nothing is received.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// The sessions under way.
    pub fn sessions(&self) -> impl Iterator<Item = Report> + '_ {
        self.slots.iter().map(Session::report)
    }

    /// Tells how much room there is for files, in KiB, for the beacons to come.
    pub fn set_free_space(&mut self, kib: Option<u64>) {
        self.free_kib = kib;
    }

    /// Octets of memory held on account of sessions. An estimate from below; bounded by
    /// [`Limits`], whatever the files' sizes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let words: usize = self.closed.values().map(|word| word.len() + 64).sum();
        self.slots.iter().map(Session::memory).sum::<usize>()
            + self.core.shared.room.held()
            + self.core.partials.memory()
            + self.core.received.memory()
            + words
            + self.core.shared.replies.memory()
    }

    /// Sends a file.
    ///
    /// # Errors
    /// The request cannot be carried out; nothing was begun.
    pub fn put(&mut self, now: Time, request: PutRequest) -> Result<SessionId, RequestError> {
        let content = if request.stream { Content::Stream } else { Content::File };
        self.put_as(now, request, content)
    }

    /// Sends a file that is a bundle, which is said with it.
    ///
    /// # Errors
    /// The request cannot be carried out; nothing was begun.
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
            is_asked_for: false,
            delete: request.delete,
            descriptor: self.core.config.descriptor,
            udp_lite: self.core.config.udp_lite && !request.delete,
        };
        let id = self.new_id(request.peer, Role::Sender)?;
        self.begin_sender(now, id, order);
        Ok(id)
    }

    /// Fetches a file.
    ///
    /// # Errors
    /// The request cannot be carried out; nothing was begun.
    pub fn get(&mut self, now: Time, request: GetRequest) -> Result<SessionId, RequestError> {
        check_name(&request.name)?;
        let kind = if request.delete { RequestKind::Take } else { RequestKind::Get };
        if request.delete {
            self.knows_more_than_get()?;
        }
        let destination = Some(request.destination);
        self.wish(now, request.peer, Wish { kind, name: request.name, destination })
    }

    /// Asks what a directory holds; an empty name is the other peer's root.
    ///
    /// # Errors
    /// The request cannot be carried out; nothing was begun.
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

    /// Asks that a file be deleted.
    ///
    /// # Errors
    /// The request cannot be carried out; nothing was begun.
    pub fn delete(
        &mut self,
        now: Time,
        peer: PathId,
        name: String,
    ) -> Result<SessionId, RequestError> {
        self.knows_more_than_get()?;
        check_name(&name)?;
        let id = self.new_id(peer, Role::Receiver)?;
        let handle = self.slots.reserve();
        let base = Base::new(&self.core.shared.paths, handle, Some(peer), now);
        self.core.user.indicate(Indication::Started { id, name: name.clone() });
        let errand = Errand::ask(base, id, name, &mut self.core, now);
        self.fill(handle, Session::Errand(Box::new(errand)));
        Ok(id)
    }

    /// Ends a session early, and tells the other peer.
    ///
    /// # Errors
    /// There is no such session.
    pub fn cancel(&mut self, now: Time, id: SessionId) -> Result<(), RequestError> {
        let handle = *self.by_id.get(&id).ok_or(RequestError::NoSession(id))?;
        let code = StatusCode::NotInterested;
        match self.slots.get_mut(handle) {
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
        let id = self.new_id(peer, Role::Receiver)?;
        self.begin_receiver(now, id, Some(wish));
        Ok(id)
    }

    /// A random session number that is not in use.
    fn new_id(&mut self, peer: PathId, role: Role) -> Result<SessionId, RequestError> {
        if self.by_id.len() >= self.core.config.limits.sessions {
            return Err(RequestError::TooManySessions);
        }
        loop {
            let number = self.core.rng.next_u64() as u32;
            let ids = [Role::Sender, Role::Receiver].map(|role| SessionId { peer, number, role });
            let taken = |id: &SessionId| self.by_id.contains_key(id) || self.closed.contains(id);
            if number != 0 && !ids.iter().any(taken) {
                return Ok(SessionId { peer, number, role });
            }
        }
    }

    fn begin_sender(&mut self, now: Time, id: SessionId, order: Order) {
        let handle = self.slots.reserve();
        let base = Base::new(&self.core.shared.paths, handle, Some(id.peer), now);
        self.core.user.indicate(Indication::Started { id, name: order.name.clone() });
        let sender = Sender::new(base, id, order, &mut self.core);
        self.core.shared.senders += 1;
        self.fill(handle, Session::Sender(Box::new(sender)));
    }

    fn begin_receiver(&mut self, now: Time, id: SessionId, wish: Option<Wish>) -> Handle {
        let handle = self.slots.reserve();
        let base = Base::new(&self.core.shared.paths, handle, Some(id.peer), now);
        let name = wish.as_ref().map(|wish| wish.name.clone()).unwrap_or_default();
        self.core.user.indicate(Indication::Started { id, name });
        // The working file is named by a number that no other has.
        let number = loop {
            let number = self.core.rng.next_u64() as u32;
            if !self.core.partials.has(number) {
                break number;
            }
        };
        let receiver = Receiver::new(base, id, wish, number, &mut self.core, now);
        self.fill(handle, Session::Receiver(Box::new(receiver)));
        handle
    }

    fn fill(&mut self, handle: Handle, session: Session) {
        self.by_id.insert(session.id(), handle);
        self.slots.fill(handle, session);
    }

    fn remember(&mut self, id: SessionId, word: Vec<u8>) {
        self.closed.insert_within(self.core.config.limits.closed, id, word);
    }

    /// One datagram arrived.
    fn receive(&mut self, now: Time, from: PathId, datagram: &[u8]) {
        let Ok(packet) = codec::decode(self.core.config.version, datagram) else {
            self.core.stats.decode_errors += 1;
            return;
        };
        self.core.stats.received.count(&packet);
        match &packet {
            Packet::Beacon(beacon) => self.on_beacon(from, beacon),
            Packet::Request(request) => self.on_request(now, from, request),
            Packet::Status(status) => self.on_status(now, from, status),
            Packet::Metadata(metadata) => {
                let id = SessionId { peer: from, number: metadata.session, role: Role::Receiver };
                let identity = receiver::identity(metadata);
                if self.was_received(id, metadata, &identity) {
                    return;
                }
                self.unite(now, id, &identity);
                let Some(handle) =
                    self.reception(now, id, !metadata.is_over, !metadata.is_over, None)
                else {
                    return;
                };
                if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
                    receiver.on_metadata(&mut self.core, now, metadata);
                }
                self.settle(handle);
            }
            Packet::Data(data) => {
                let id = SessionId { peer: from, number: data.session, role: Role::Receiver };
                let Some(handle) = self.reception(now, id, true, data.wants_status, data.timestamp)
                else {
                    return;
                };
                if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
                    receiver.on_data(&mut self.core, now, data);
                }
                self.settle(handle);
            }
        }
    }

    /// Confirms a session whose file was received before, by an earlier run or on another path.
    fn was_received(&mut self, id: SessionId, metadata: &Metadata<'_>, identity: &[u8]) -> bool {
        let key = received::key(id.number, identity);
        let Some(len) = self.core.received.get(&key).filter(|_| !self.closed.contains(&id)) else {
            return false;
        };
        if let Some(handle) = self.by_id.get(&id).copied() {
            // Its data arrived ahead of the METADATA.
            let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else {
                return false;
            };
            if !receiver.is_unknown() {
                return false;
            }
            receiver.vanish(&mut self.core);
            self.slots.take(handle);
            self.by_id.remove(&id);
        }
        let word = ok(id.number, metadata.descriptor, len);
        self.reply(id.peer, word.clone());
        self.remember(id, word);
        true
    }

    /// A sender that was started again describes the file that another session is about: that
    /// session goes on under the new number. On another path it may be another sender: there, the
    /// session goes on only if nothing came for as long as an answer takes.
    fn unite(&mut self, now: Time, id: SessionId, identity: &[u8]) {
        if self.closed.contains(&id) {
            return;
        }
        let about = |session: &Session| match session {
            Session::Receiver(receiver) => receiver.is_about(identity),
            Session::Sender(_) | Session::Errand(_) => false,
        };
        let other = self.slots.iter().find(|session| about(session)).map(Session::id);
        let Some(other) = other.filter(|other| *other != id) else { return };
        if other.peer != id.peer && !self.is_silent(now, other) {
            return;
        }
        if let Some(handle) = self.by_id.get(&id).copied() {
            let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return };
            if !receiver.is_unknown() {
                return;
            }
            receiver.vanish(&mut self.core);
            self.slots.take(handle);
            self.by_id.remove(&id);
        }
        let Some(handle) = self.by_id.remove(&other) else { return };
        self.by_id.insert(id, handle);
        if other.number != id.number {
            // If its sender lives after all, it must not fetch the reception back, for ever.
            self.remember(other, status(other.number, StatusCode::InUse));
        }
        if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
            receiver.adopt(&mut self.core, now, id);
        }
    }

    /// Whether nothing came for a session within the time of an answer.
    fn is_silent(&mut self, now: Time, id: SessionId) -> bool {
        let session = self.by_id.get(&id).and_then(|handle| self.slots.get_mut(*handle));
        session.is_some_and(|session| {
            let remote = self.core.config.remote(id.peer);
            let base = session.base();
            now.since(base.last_heard) >= self.core.answer_time(base, remote)
        })
    }

    /// The reception a packet is for. One that is over is answered if the sender asks; a new one
    /// begins if that is allowed.
    fn reception(
        &mut self,
        now: Time,
        id: SessionId,
        begins: bool,
        asks: bool,
        timestamp: Option<Timestamp>,
    ) -> Option<Handle> {
        if let Some(handle) = self.by_id.get(&id) {
            return Some(*handle);
        }
        if let Some(word) = self.closed.get(&id) {
            let word = stamped(word, timestamp);
            if asks {
                self.reply(id.peer, word);
            }
            return None;
        }
        // Version 0 knows no put.
        if !begins || !self.is_restored || self.core.config.version == Version::V0 {
            self.core.stats.stray += 1;
            return None;
        }
        if !self.core.config.permissions.put {
            self.refuse(id, StatusCode::AccessDenied);
            return None;
        }
        if !self.has_place(now, id.peer) {
            if asks {
                let word = status(id.number, StatusCode::ReceiverResources);
                self.reply(id.peer, word);
            }
            return None;
        }
        Some(self.begin_receiver(now, id, None))
    }

    /// Refuses a session, now and when it is tried again.
    fn refuse(&mut self, id: SessionId, code: StatusCode) {
        let word = status(id.number, code);
        self.reply(id.peer, word.clone());
        self.remember(id, word);
    }

    /// Sends a packet of version 1 in the version that is spoken. Refusals have a greatest rate.
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

    fn on_beacon(&mut self, from: PathId, beacon: &Beacon<'_>) {
        let about = About {
            eid: String::from_utf8_lossy(beacon.eid).into_owned(),
            descriptor: beacon.descriptor,
            streams: beacon.streams,
            udp_lite: beacon.udp_lite,
            sends: beacon.sends,
            receives: beacon.receives,
            free_kib: beacon.free_space.map(|(_, kib)| kib),
        };
        self.core.user.indicate(Indication::Beacon { from, about });
    }

    /// The other peer asks for something (§4.2).
    fn on_request(&mut self, now: Time, from: PathId, request: &Request<'_>) {
        let role = match request.kind {
            RequestKind::Put | RequestKind::Give => Role::Receiver,
            RequestKind::NoOp => return,
            RequestKind::Get
            | RequestKind::Take
            | RequestKind::Delete
            | RequestKind::GetDir
            | RequestKind::Other(_) => Role::Sender,
        };
        let id = SessionId { peer: from, number: request.session, role };
        if let Some(handle) = self.by_id.get(&id).copied() {
            // It was asked before, and the answer may be lost.
            if let Some(session) = self.slots.get_mut(handle) {
                session.asked_again(&mut self.core);
            }
            return;
        }
        if let Some(word) = self.closed.get(&id) {
            let word = word.clone();
            self.reply(from, word);
            return;
        }
        let permissions = self.core.config.permissions;
        let allowed = match request.kind {
            RequestKind::Get | RequestKind::GetDir => permissions.get,
            RequestKind::Take => permissions.get && permissions.delete,
            RequestKind::Put | RequestKind::Give => permissions.put,
            RequestKind::Delete => permissions.delete,
            RequestKind::NoOp | RequestKind::Other(_) => {
                self.refuse(id, StatusCode::UnsupportedRequest);
                return;
            }
        };
        let name = std::str::from_utf8(request.path).ok();
        // `.` and `./` name the root of what is served, as an empty path does.
        let is_root = request.kind == RequestKind::GetDir && name.is_some_and(is_root);
        let file = if is_root {
            Some(FileName::root())
        } else {
            name.and_then(|name| FileName::file(name).ok())
        };
        let Some((file, name)) = file.zip(name).filter(|_| allowed) else {
            self.refuse(id, StatusCode::AccessDenied);
            return;
        };
        if !self.is_restored {
            // It is asked again.
            self.core.stats.stray += 1;
            return;
        }
        if !self.has_place(now, from) {
            let word = status(id.number, StatusCode::ReceiverResources);
            self.reply(from, word);
            return;
        }
        self.grant(now, id, request, file, name);
    }

    /// Does what is asked for.
    fn grant(
        &mut self,
        now: Time,
        id: SessionId,
        request: &Request<'_>,
        file: FileName,
        name: &str,
    ) {
        match request.kind {
            RequestKind::Put | RequestKind::Give => {
                let handle = self.begin_receiver(now, id, None);
                if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
                    receiver.requested(&mut self.core);
                }
            }
            RequestKind::Delete if self.slots.iter().any(|session| session.uses(&file)) => {
                self.refuse(id, StatusCode::InUse);
            }
            RequestKind::Delete => {
                let handle = self.slots.reserve();
                let base = Base::new(&self.core.shared.paths, handle, Some(id.peer), now);
                let errand = Errand::carry_out(base, id, file, &mut self.core);
                self.fill(handle, Session::Errand(Box::new(errand)));
            }
            RequestKind::Get | RequestKind::Take | RequestKind::GetDir => {
                let order = Order {
                    source: file,
                    name: name.to_owned(),
                    content: match request.kind {
                        RequestKind::GetDir => Content::Directory,
                        _ => Content::File,
                    },
                    put: Put::Push,
                    is_asked_for: true,
                    delete: request.kind == RequestKind::Take,
                    descriptor: request.descriptor.min(self.core.config.descriptor),
                    udp_lite: self.core.config.udp_lite
                        && request.udp_lite
                        && request.kind == RequestKind::Get,
                };
                self.begin_sender(now, id, order);
            }
            RequestKind::NoOp | RequestKind::Other(_) => {}
        }
    }

    /// A STATUS is for who sends, or for who asked (§4.5).
    fn on_status(&mut self, now: Time, from: PathId, status: &Status<'_>) {
        let id = |role| SessionId { peer: from, number: status.session, role };
        let sends = self.by_id.get(&id(Role::Sender));
        let Some(handle) = sends.or_else(|| self.by_id.get(&id(Role::Receiver))).copied() else {
            match self.closed.get(&id(Role::Sender)) {
                // The receiver goes on: it did not hear that the session is over. A STATUS is never
                // answered with another one, or two peers would answer each other without end.
                Some(word) if status.code == StatusCode::Ok && is_metadata(word) => {
                    let word = word.clone();
                    self.reply(from, word);
                }
                Some(_) => {}
                None => self.core.stats.stray += 1,
            }
            return;
        };
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.on_status(&mut self.core, now, status),
            Some(Session::Receiver(receiver)) => receiver.on_status(&mut self.core, now, status),
            Some(Session::Errand(errand)) if errand.id.role == Role::Receiver => {
                errand.on_status(&mut self.core, status.code);
            }
            Some(Session::Errand(_)) | None => {}
        }
        self.settle(handle);
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
        for session in self.slots.iter_mut().filter(|session| session.id().peer == id) {
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

    /// Says that it is there, and when to say so again.
    fn beacon(&mut self, now: Time) {
        let Some(beacons) = self.core.config.beacons.clone() else { return };
        let permissions = self.core.config.permissions;
        let able = |yes| if yes { Ability::Yes } else { Ability::NotNow };
        let packet = Packet::Beacon(Beacon {
            descriptor: self.core.config.descriptor,
            bundles: false,
            streams: true,
            sends: able(permissions.get),
            receives: able(permissions.put),
            udp_lite: self.core.config.udp_lite,
            // The greatest number that a field can hold means "more".
            free_space: self.free_kib.map(|kib| (Width::fitting(kib.saturating_add(1)), kib)),
            eid: self.core.config.eid.as_bytes(),
        });
        let octets = packet.to_vec().unwrap_or_default();
        let mut any = false;
        for path in beacons.paths {
            if self.core.shared.paths.get(&path).is_some_and(Path::is_up) {
                self.reply(path, octets.clone());
                any = true;
            }
        }
        if any {
            let at = now + beacons.interval.max(crate::timer::TICK);
            self.core.shared.timers.set((Handle::NOBODY, Alarm::Beacon), at, "beacon");
        }
    }

    fn effect_done(&mut self, now: Time, ticket: Ticket, answer: Result<Completion, EffectError>) {
        let Some((handle, job)) = self.core.shared.answered(ticket) else { return };
        if job == Job::Own(Task::Load) {
            self.restore(answer);
            return;
        }
        match self.slots.get_mut(handle) {
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

    /// Takes up the records of an earlier run.
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
    let fits = !name.is_empty() && name.len() < wire::saratoga::PATH_MAX && !name.contains('\0');
    if fits { Ok(()) } else { Err(RequestError::Name) }
}

/// Whether a path has no part but `.`.
fn is_root(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

impl Turns for Node {
    type Alarm = Alarm;
    type Job = Task;

    fn shared(&mut self) -> &mut Shared {
        &mut self.core.shared
    }

    fn seat(&mut self, handle: Handle) -> Option<&mut Seat> {
        self.slots.get_mut(handle).map(|session| &mut session.base().seat)
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        let Core { shared, stats, config, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |octets| {
            if let Ok(packet) = codec::decode(config.version, octets) {
                stats.sent.count(&packet);
            }
        });
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.emit(&mut self.core, class, burst),
            Some(Session::Receiver(receiver)) => receiver.emit(&mut self.core, burst),
            Some(Session::Errand(errand)) => errand.emit(&mut self.core, burst),
            None => Turn::Over,
        }
    }

    /// One that is over is forgotten, but for the packet that answers who asks.
    fn settle(&mut self, handle: Handle) {
        if self.slots.get_mut(handle).is_some_and(|session| session.is_done()) {
            let Some(mut session) = self.slots.take(handle) else { return };
            session.base().disarm_all(&mut self.core.shared);
            let id = session.id();
            self.by_id.remove(&id);
            let word = match &session {
                Session::Sender(sender) => {
                    self.core.shared.senders -= 1;
                    sender.last_word()
                }
                Session::Receiver(receiver) => receiver.last_word(),
                Session::Errand(errand) => {
                    errand.outcome.map(|code| status(id.number, code)).unwrap_or_default()
                }
            };
            let answers = match &session {
                // Who asked for the file, or for it to be deleted, hears of a failure once.
                Session::Sender(sender) => sender.is_refusal(),
                Session::Errand(errand) => errand.outcome.is_some(),
                Session::Receiver(_) => false,
            };
            if answers {
                self.reply(id.peer, word.clone());
            }
            self.remember(id, word);
            self.core.user.limit_left(Limit::Sessions);
        }
        if std::mem::take(&mut self.core.shared.flush_wanted) {
            for session in self.slots.iter_mut() {
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
            let Some(session) = self.slots.get_mut(handle) else { continue };
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
        self.core.shared.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.core.user.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.core.shared.timers.next()
    }
}
