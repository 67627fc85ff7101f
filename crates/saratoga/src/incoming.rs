//! Dispatch of received packets: the sessions they belong to, start and refuse.

use bytes::Bytes;
use engine::{FileName, PathId, Time};
use session::Turns as _;
use session::path::{Handle, Path};

use super::codec;
use super::config::Version;
use super::ending::{is_metadata, ok, stamped, status};
use super::errand::Errand;
use super::indication::{Put, Role, SessionId};
use super::receiver;
use super::sender::Order;
use super::sessions::Session;
use super::{Node, received};
use crate::packet::{
    Content, Metadata, Packet, Request, RequestKind, Status, StatusCode, Timestamp,
};

impl Node {
    /// Processes a received datagram.
    pub(super) fn receive(&mut self, now: Time, from: PathId, datagram: &[u8]) {
        let Ok(packet) = codec::decode(self.core.config.version, datagram) else {
            self.core.stats.decode_errors += 1;
            return;
        };
        self.core.stats.received.count(&packet);
        self.core.arrived = datagram.len();
        match &packet {
            Packet::Beacon(beacon) => self.on_beacon(from, beacon),
            Packet::Request(request) => self.on_request(now, from, request),
            Packet::Status(status) => self.on_status(now, from, status),
            Packet::Metadata(metadata) => {
                let id = SessionId { peer: from, number: metadata.session, role: Role::Receiver };
                let identity = receiver::identity(metadata);
                if self.confirm_again(id, metadata, &identity) {
                    return;
                }
                let former = self.unite(now, id, &identity);
                let Some(handle) =
                    self.reception(now, id, !metadata.is_over, !metadata.is_over, None)
                else {
                    return;
                };
                if let Some(Session::Receiver(receiver)) = self.sessions.get_mut(handle) {
                    receiver.former = former.or(receiver.former);
                    receiver.on_metadata(&mut self.core, now, metadata);
                }
                self.settle(handle);
            }
            Packet::Data(data) => {
                let id = SessionId { peer: from, number: data.session, role: Role::Receiver };
                self.continue_former(now, id);
                let described = self.described_before(id);
                let Some(handle) = self.reception(now, id, true, data.wants_status, data.timestamp)
                else {
                    return;
                };
                if let Some(Session::Receiver(receiver)) = self.sessions.get_mut(handle) {
                    if let Some(Ok(Packet::Metadata(metadata))) =
                        described.as_deref().map(Packet::decode)
                    {
                        receiver.on_metadata(&mut self.core, now, &metadata);
                    }
                    receiver.on_data(&mut self.core, now, data);
                }
                self.settle(handle);
            }
        }
    }

    /// METADATA of a session that this peer does not know, because it was restarted.
    fn described_before(&self, id: SessionId) -> Option<Bytes> {
        let is_known = self.sessions.find(&id).is_some() || self.sessions.is_closed(&id);
        self.core.partials.identity_of(id.number).filter(|_| !is_known).cloned()
    }

    /// Confirms a session whose file was received before, by an earlier run or on another path.
    fn confirm_again(&mut self, id: SessionId, metadata: &Metadata<'_>, identity: &[u8]) -> bool {
        let key = received::key(id.number, identity);
        let Some(len) = self.core.received.get(&key).filter(|_| !self.sessions.is_closed(&id))
        else {
            return false;
        };
        // Data of the session may have arrived ahead of the METADATA.
        if !self.sessions.forget_unknown(&mut self.core, &id) {
            return false;
        }
        let word = ok(id.number, metadata.descriptor, len);
        self.reply(id.peer, word.clone());
        self.sessions.remember(&self.core, id, word);
        true
    }

    /// Continues an existing session under a new number, because a restarted sender describes the
    /// same file. On another path it may be another sender: there, it continues only if its number
    /// and host are the same, or if the session was silent for a reply time. Returns the session of
    /// another path that was not.
    fn unite(&mut self, now: Time, id: SessionId, identity: &[u8]) -> Option<SessionId> {
        if self.sessions.is_closed(&id) {
            return None;
        }
        let about = |session: &Session| match session {
            Session::Receiver(receiver) => {
                let is_open = receiver.is_receiving() || receiver.id.number == id.number;
                is_open && receiver.is_about(identity)
            }
            Session::Sender(_) | Session::Errand(_) => false,
        };
        let other = self.sessions.iter().find(|session| about(session)).map(Session::id);
        let other = other.filter(|other| *other != id)?;
        if other.peer != id.peer && !self.is_restart(other, id) && !self.is_silent(now, other) {
            return Some(other);
        }
        if self.sessions.forget_unknown(&mut self.core, &id) {
            self.move_to(now, other, id);
        }
        None
    }

    /// Continues the session of an earlier sender of the same file once it was silent for a reply
    /// time, if it has more data: a sender may restart within that time.
    fn continue_former(&mut self, now: Time, id: SessionId) {
        let Some(receiver) = self.sessions.receiver(&id) else { return };
        let Some(former) = receiver.former else { return };
        let progress = receiver.report().progress;
        let identity = receiver.identity().cloned();
        let Some(other) = self.sessions.receiver(&former) else { return };
        let is_same = identity.is_some_and(|identity| other.is_about(&identity));
        if is_same && other.report().progress > progress && self.is_silent(now, former) {
            self.sessions.vanish(&mut self.core, &id);
            self.move_to(now, former, id);
        }
    }

    /// Continues a session under another number.
    fn move_to(&mut self, now: Time, other: SessionId, id: SessionId) {
        if other.number != id.number {
            // If its sender is alive after all, it must not take the reception back, or both would
            // alternate for ever.
            let word = status(other.number, StatusCode::InUse);
            self.sessions.remember(&self.core, other, word);
        }
        if let Some(receiver) = self.sessions.rename(&other, id) {
            receiver.adopt(&mut self.core, now, id);
        }
    }

    /// Whether a session is that of another process of the same host, which has its number: nobody
    /// off the path knows that.
    fn is_restart(&self, other: SessionId, id: SessionId) -> bool {
        let host = |path| self.core.shared.paths.get(&path).and_then(Path::host);
        let is_same = host(other.peer).is_some_and(|other| host(id.peer) == Some(other));
        other.number == id.number && is_same
    }

    /// Whether a session was silent for a reply time.
    fn is_silent(&self, now: Time, id: SessionId) -> bool {
        let session = self.sessions.find(&id).and_then(|handle| self.sessions.get(handle));
        session.is_some_and(|session| {
            let remote = self.core.config.remote(id.peer);
            let base = session.base_of();
            now.since(base.last_received) >= self.core.answer_time(base, remote)
        })
    }

    /// Reception that a packet belongs to. A finished one replies if requested; a new one starts if
    /// permitted.
    fn reception(
        &mut self,
        now: Time,
        id: SessionId,
        begins: bool,
        asks: bool,
        timestamp: Option<Timestamp>,
    ) -> Option<Handle> {
        if let Some(handle) = self.sessions.find(&id) {
            return Some(handle);
        }
        if let Some(word) = self.sessions.closed(&id) {
            let word = stamped(word, timestamp);
            if asks {
                self.reply(id.peer, word);
            }
            return None;
        }
        // Version 0 has no put.
        if !begins || !self.is_restored || self.core.config.version == Version::V0 {
            self.core.stats.stray += 1;
            return None;
        }
        if !self.core.config.permissions.put {
            self.refuse(id, StatusCode::AccessDenied);
            return None;
        }
        if !self.sessions.make_place(&mut self.core, now, id.peer) {
            if asks {
                let word = status(id.number, StatusCode::ReceiverResources);
                self.reply(id.peer, word);
            }
            return None;
        }
        Some(self.begin_receiver(now, id, None))
    }

    /// Processes a request of the peer (§4.2).
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
        if let Some(handle) = self.sessions.find(&id) {
            // The session was requested before, and the reply may be lost.
            if let Some(session) = self.sessions.get_mut(handle) {
                session.requested_again(&mut self.core, now);
            }
            return;
        }
        if let Some(word) = self.sessions.closed(&id) {
            let word = word.clone();
            self.reply(from, word);
            return;
        }
        let permissions = self.core.config.permissions;
        // Nothing in version 0 proves that a requester receives what it requested.
        let can_prove = self.core.config.version != Version::V0 || self.core.config.knows(from);
        let allowed = can_prove
            && match request.kind {
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
        // `.` and `./` name the root of the served files, as an empty path does.
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
            // The peer will request it again.
            self.core.stats.stray += 1;
            return;
        }
        if !self.sessions.make_place(&mut self.core, now, from) {
            let word = status(id.number, StatusCode::ReceiverResources);
            self.reply(from, word);
            return;
        }
        self.grant(now, id, request, file, name);
    }

    /// Carries out a permitted request.
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
                if let Some(Session::Receiver(receiver)) = self.sessions.get_mut(handle) {
                    receiver.requested(&mut self.core);
                }
            }
            RequestKind::Delete if self.sessions.iter().any(|session| session.uses(&file)) => {
                self.refuse(id, StatusCode::InUse);
            }
            RequestKind::Delete => {
                self.sessions.begin(&mut self.core, now, id, |core, base| {
                    Session::Errand(Box::new(Errand::carry_out(base, id, file, core)))
                });
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
                    is_requested: true,
                    resumes: false,
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

    /// Processes a STATUS for the sender of a file, or for a requester (§4.5).
    fn on_status(&mut self, now: Time, from: PathId, status: &Status<'_>) {
        let id = |role| SessionId { peer: from, number: status.session, role };
        let sends = self.sessions.find(&id(Role::Sender));
        let Some(handle) = sends.or_else(|| self.sessions.find(&id(Role::Receiver))) else {
            match self.sessions.closed(&id(Role::Sender)) {
                // The receiver continues because it was not informed of the end of the session. A
                // STATUS is never replied to by a STATUS, or two peers would reply without end.
                Some(word) if status.code == StatusCode::Ok && is_metadata(word) => {
                    let word = word.clone();
                    self.reply(from, word);
                }
                Some(_) => {}
                None => self.core.stats.stray += 1,
            }
            return;
        };
        match self.sessions.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.on_status(&mut self.core, now, status),
            Some(Session::Receiver(receiver)) => receiver.on_status(&mut self.core, now, status),
            Some(Session::Errand(errand)) if errand.id.role == Role::Receiver => {
                errand.on_status(&mut self.core, status.code);
            }
            Some(Session::Errand(_)) | None => {}
        }
        self.settle(handle);
    }
}

/// Whether a path has no component except `.`.
fn is_root(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}
