//! Reception from a peer.

use std::time::Duration;

use bytes::Bytes;
use engine::{PathEffect, PathId, Time};
use wire::DecodeErrorKind;

use super::super::layer::{Event, LinkId, Outcome, Refusal, TransferId};
use super::decoding::{self, Received};
use super::protocol::{Protocol, Version3};
use super::session::{Coming, Phase, Reply, reason, refusal};
use super::{Alarm, Proof, Tcpcl, Tls};
use crate::codec::bp7::Eid;
use crate::codec::tcpcl3;
use crate::codec::tcpcl4::{
    CONTACT_LEN, ContactHeader, Extensions, Message, RefuseReason, RejectReason, Segment,
    SegmentFlags, SessionInit, TRANSFER_LENGTH, TermReason, transfer_length,
};

impl Tcpcl {
    /// Handles a piece of a stream.
    pub(super) fn receive(&mut self, now: Time, path: PathId, came: &[u8]) {
        let mut bytes = came;
        // Bundles that arrive together share one buffer.
        let mut kept = None;
        if let Some(session) = self.sessions.get_mut(&path) {
            session.silence.last_received = now;
            if session.incoming.segment.is_some() {
                session.incoming.last_data = now;
            }
        }
        while !bytes.is_empty() {
            let Some(session) = self.sessions.get_mut(&path).filter(|session| !session.is_over)
            else {
                return;
            };
            let left = match session.incoming.segment {
                Some((left, _)) => {
                    let at = came.len() - bytes.len();
                    let kept = kept.get_or_insert_with(|| Bytes::copy_from_slice(came));
                    self.data(path, left, &mut bytes, kept.slice(at..))
                }
                None => self.message(now, path, &mut bytes),
            };
            if !left {
                return;
            }
        }
    }

    /// Handles data of the current segment.
    fn data(&mut self, path: PathId, left: u64, bytes: &mut &[u8], mut kept: Bytes) -> bool {
        let here = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        *bytes = &bytes[here..];
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let link = session.link;
        if let Some((left, _)) = &mut session.incoming.segment {
            *left -= here as u64;
        }
        if let Some(coming) = &mut session.incoming.coming {
            coming.received += here as u64;
            if !coming.is_unwanted && here > 0 {
                kept.truncate(here);
                let (transfer, bytes) = (coming.id, kept);
                self.events.push_back(Event::Piece { link, transfer, bytes });
            }
        }
        self.segment_ends(path);
        true
    }

    /// Ends the current segment if it is complete.
    fn segment_ends(&mut self, path: PathId) {
        let most = self.config.limits.unanswered;
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let Some((0, flags)) = session.incoming.segment else { return };
        session.incoming.segment = None;
        let ends_early = |coming: &Coming| coming.total.is_some_and(|it| it != coming.received);
        let is_wrong = flags.end && session.incoming.coming.as_ref().is_some_and(ends_early);
        if is_wrong && !self.refuse_length(path) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let Some(coming) = session.incoming.coming else { return };
        let Coming { id, transfer, received: length, is_unwanted, .. } = coming;
        if flags.end {
            session.incoming.coming = None;
        }
        if !is_unwanted {
            if flags.end {
                session.reply(Reply::Whole { id, flags, transfer, length });
                let (link, file) = (session.link, None);
                self.events.push_back(Event::Whole { link, transfer: id, file });
                self.statistics.received += 1;
            } else {
                session.reply(Reply::Ack { flags, transfer, length });
            }
            if session.replies.len() >= most && !session.is_paused {
                session.is_paused = true;
                self.effects.pause(path, true);
            }
        } else if session.agreement.acks && !session.agreement.refusals {
            // It could not be refused, so it is acknowledged and discarded.
            session.reply(Reply::Ack { flags, transfer, length });
        }
        self.ready.insert(path);
        self.end_if_done(path);
    }

    /// Reads a message or its beginning; returns whether the following bytes can be read.
    fn message(&mut self, now: Time, path: PathId, bytes: &mut &[u8]) -> bool {
        let bounds = self.config.limits.messages;
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        if session.phase == Phase::Contact {
            return match session.agreement.protocol {
                Protocol::Tcpcl4 => self.contact_header(path, bytes),
                Protocol::Tcpcl3(ours) => self.contact_header_3(now, path, ours, bytes),
                Protocol::Framed(_) => false,
            };
        }
        if session.phase == Phase::Securing {
            // Bytes in the clear behind the contact header are not part of TLS.
            return false;
        }
        let had = session.incoming.beginning.len();
        let input = session.incoming.gather(bytes);
        match decoding::read(session, &input, &bounds) {
            Ok(Some((received, len))) => {
                *bytes = &bytes[len - had..];
                match received {
                    Received::Message(message) => self.handle(now, path, &message, input[0]),
                    Received::Length(length) => {
                        session.incoming.next_length = Some(length);
                        true
                    }
                    Received::Shutdown(reconnect_s) => {
                        self.shut_down(path, reconnect_s);
                        false
                    }
                }
            }
            Ok(None) => {
                session.incoming.beginning = input.into_owned();
                *bytes = &[];
                true
            }
            Err(_) => {
                let header = input[0];
                self.reject(path, RejectReason::Unsupported, header, "an undecodable message");
                false
            }
        }
    }

    /// Ends the session of a peer whose message is rejected (RFC 9174 §5.1.2). Other protocols have
    /// no message for it.
    fn reject(&mut self, path: PathId, reason: RejectReason, header: u8, what: &'static str) {
        if let Some(session) = self.sessions.get_mut(&path) {
            session.send(&Message::Reject { reason, header });
        }
        self.fault(path, what);
    }

    fn contact_header(&mut self, path: PathId, bytes: &mut &[u8]) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let had = session.incoming.beginning.len();
        let input = session.incoming.gather(bytes);
        let header = match ContactHeader::decode(&input) {
            Ok(Some(header)) => header,
            Ok(None) => {
                session.incoming.beginning = input.into_owned();
                *bytes = &[];
                return true;
            }
            Err(error) => {
                // A peer that connects with another version gets our header and the reason (§4.3),
                // any other peer nothing.
                if matches!(error.kind, DecodeErrorKind::Version(_)) && !session.is_active {
                    self.reply_to_contact(path);
                    self.terminate(path, TermReason::VersionMismatch);
                }
                self.fault(path, "no contact header of version 4");
                return false;
            }
        };
        *bytes = &bytes[CONTACT_LEN - had..];
        if !session.is_active {
            let at = session.peer.since + self.config.patience;
            self.timers.set(Alarm::Silence(path), at, "a session being established");
            self.reply_to_contact(path);
        }
        self.ready.insert(path);
        let both = header.can_tls && self.config.tls != Tls::Never;
        if both {
            return self.secure(path, bytes);
        }
        if self.config.tls == Tls::Always {
            self.terminate(path, TermReason::ContactFailure);
            self.fault(path, "a peer without TLS, which is required here");
            return false;
        }
        self.begin_session(path);
        true
    }

    /// Queues the contact header of the side that accepted the stream.
    fn reply_to_contact(&mut self, path: PathId) {
        let contact = self.contact();
        if let Some(session) = self.sessions.get_mut(&path) {
            session.out.push(contact);
        }
    }

    /// Queues the end of a session that was not established.
    fn terminate(&mut self, path: PathId, reason: TermReason) {
        if let Some(session) = self.sessions.get_mut(&path) {
            session.send(&Message::Terminate { is_reply: false, reason });
        }
    }

    /// Handles the contact header of version 3, which establishes the session (RFC 7242 §4.2).
    fn contact_header_3(
        &mut self,
        now: Time,
        path: PathId,
        ours: Version3,
        bytes: &mut &[u8],
    ) -> bool {
        let eid_max = self.config.limits.messages.node_id_max;
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let had = session.incoming.beginning.len();
        let input = session.incoming.gather(bytes);
        let (header, len) = match tcpcl3::ContactHeader::decode(&input, eid_max) {
            Ok(Some(header)) => header,
            Ok(None) => {
                session.incoming.beginning = input.into_owned();
                *bytes = &[];
                return true;
            }
            Err(_) => {
                let reason = TermReason::VersionMismatch;
                session.send(&Message::Terminate { is_reply: false, reason });
                self.fault(path, "no contact header of version 3");
                return false;
            }
        };
        *bytes = &bytes[len - had..];
        session.agreement.agree(ours, header.flags);
        let init = SessionInit {
            keepalive_s: header.keepalive_s,
            segment_mru: u64::MAX,
            transfer_mru: u64::MAX,
            node_id: header.eid,
            extensions: Extensions::NONE,
        };
        self.established(now, path, &init);
        self.ready.insert(path);
        true
    }

    /// Handles the shutdown message of a peer.
    fn shut_down(&mut self, path: PathId, reconnect_s: Option<u64>) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        session.is_over = true;
        self.ready.insert(path);
        let link = session.link;
        match reconnect_s {
            None => {}
            // No reconnection (RFC 7242 §6.1) until the agent opens the neighbour again.
            Some(0) => {
                self.wanted.remove(&link);
            }
            Some(seconds) => {
                let longest = self.config.reconnect_max;
                if let Some(wanted) = self.wanted.get_mut(&link) {
                    let named = Duration::from_secs(seconds).min(longest);
                    wanted.pause = wanted.pause.max(named);
                }
            }
        }
    }

    fn secure(&mut self, path: PathId, bytes: &mut &[u8]) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        session.phase = Phase::Securing;
        let peer = self.config.peers.get(&session.link);
        let server_name = peer.filter(|_| session.is_active).map(|peer| peer.server_name.clone());
        let early = Bytes::copy_from_slice(bytes);
        *bytes = &[];
        session.tls.secures = Some((server_name, early));
        true
    }

    /// Handles the completed TLS handshake.
    pub(super) fn secured(&mut self, path: PathId, names: Vec<String>) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        if session.phase == Phase::Securing {
            session.tls.names = Some(names);
            self.begin_session(path);
        }
    }

    /// Handles a message; returns whether the following bytes can be read.
    fn handle(&mut self, now: Time, path: PathId, message: &Message<'_>, first: u8) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        match (session.phase, message) {
            (Phase::Init, Message::Init(init)) => return self.init_came(now, path, init),
            (Phase::Established, Message::Segment(segment)) => {
                return self.segment_begins(now, path, segment, first);
            }
            (Phase::Established, Message::Ack { flags, transfer, length }) => {
                self.acknowledged(path, *flags, *transfer, *length);
            }
            (Phase::Established, Message::Refuse { reason, transfer }) => {
                self.refused(path, *reason, *transfer);
            }
            (_, Message::Keepalive) => {}
            (_, Message::Terminate { reason, .. }) => {
                session.ends.1 = true;
                let reason = *reason;
                if session.ends.0 {
                    self.end_if_done(path);
                } else {
                    self.end(now, path, reason);
                }
            }
            (_, Message::Reject { .. }) => {
                self.fault(path, "the peer rejected a message");
                return false;
            }
            (_, Message::Unknown { .. }) => {
                // The message's length is unknown, so nothing that follows can be read (§5.1.2).
                let what = "a message of an unknown type";
                self.reject(path, RejectReason::TypeUnknown, first, what);
                return false;
            }
            (
                Phase::Contact | Phase::Securing | Phase::Init | Phase::Established,
                Message::Init(_)
                | Message::Segment(_)
                | Message::Ack { .. }
                | Message::Refuse { .. },
            ) => {
                self.reject(path, RejectReason::Unexpected, first, "an unexpected message");
                return false;
            }
        }
        true
    }

    fn init_came(&mut self, now: Time, path: PathId, init: &SessionInit<'_>) -> bool {
        // A critical extension is unknown: none are implemented.
        if init.extensions.iter().any(|item| item.is_critical) || init.segment_mru == 0 {
            self.end(now, path, TermReason::ContactFailure);
            self.fault(path, "incompatible session parameters");
            return false;
        }
        if !self.has_proved(path, init.node_id) {
            self.end(now, path, TermReason::ContactFailure);
            self.fault(path, "a certificate that does not name the node");
            return false;
        }
        self.established(now, path, init);
        true
    }

    /// Whether a peer has proved the node ID that it announces, as far as required.
    fn has_proved(&self, path: PathId, named: &str) -> bool {
        let Some(session) = self.sessions.get(&path) else { return false };
        match &self.config.proof {
            Proof::Node(wanted) if session.tls.names.is_some() => {
                let is_wanted =
                    |node: &Eid| named.parse::<Eid>().is_ok_and(|named| named.node() == *node);
                session.tls.names_itself(named) && wanted.get(&session.link).is_none_or(is_wanted)
            }
            // If TLS is required, the stream uses it.
            Proof::Node(_) | Proof::Authority => true,
        }
    }

    fn segment_begins(
        &mut self,
        now: Time,
        path: PathId,
        segment: &Segment<'_>,
        first: u8,
    ) -> bool {
        let Segment { flags, transfer, length, .. } = *segment;
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let mru = match session.agreement.protocol {
            Protocol::Tcpcl4 => self.config.segment_mru,
            // These protocols announce no limit; longer bundles are handed over in pieces all the
            // same.
            Protocol::Tcpcl3(_) | Protocol::Framed(_) => u64::MAX,
        };
        let follows = match session.incoming.coming {
            // A refused transfer need not be completed (§5.2.4).
            Some(coming) if flags.start => coming.is_unwanted,
            Some(coming) => coming.transfer == transfer,
            None => flags.start,
        };
        if !follows {
            self.reject(path, RejectReason::Unexpected, first, "a segment of no transfer");
            return false;
        }
        if length > mru {
            self.reject(path, RejectReason::Unsupported, first, "a too long segment");
            return false;
        }
        if flags.start && !self.transfer_begins(now, path, segment) {
            return false;
        }
        self.segment_follows(path, flags, length, first)
    }

    /// Begins a transfer, or refuses it; returns whether the session continues.
    fn transfer_begins(&mut self, now: Time, path: PathId, segment: &Segment<'_>) -> bool {
        let Segment { flags, transfer, extensions, length } = *segment;
        let most = self.config.transfer_mru;
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let total = transfer_length(&extensions).or(session.incoming.next_length.take());
        let bytes = total.or(flags.end.then_some(length));
        let unknown = extensions.iter().any(|i| i.is_critical && i.kind != TRANSFER_LENGTH);
        let lengths = extensions.iter().filter(|item| item.kind == TRANSFER_LENGTH).count();
        let refused = if unknown {
            Some(RefuseReason::ExtensionFailure)
        } else if lengths > 1 {
            // At most one item gives the length (§5.2.5.1).
            Some(RefuseReason::NotAcceptable)
        } else if bytes.is_some_and(|bytes| bytes > most) {
            Some(RefuseReason::NoResources)
        } else if session.ends.0 {
            Some(RefuseReason::SessionTerminating)
        } else {
            None
        };
        let is_unwanted = refused.is_some();
        let agreement = session.agreement;
        if is_unwanted && agreement.acks && !agreement.refusals {
            self.fault(path, "a refused bundle, without refusals in the session");
            return false;
        }
        session.incoming.coming = Some(Coming { id, transfer, received: 0, total, is_unwanted });
        let link = session.link;
        match refused {
            Some(reason) => {
                session.reply(Reply::Refuse { reason, transfer });
                self.ready.insert(path);
            }
            None => {
                self.events.push_back(Event::Begins { link, transfer: id, bytes });
                self.watch_transfer(now, path);
            }
        }
        true
    }

    /// Refuses a bundle that is not as long as announced (§5.2.5.1); returns whether the session
    /// continues.
    fn refuse_length(&mut self, path: PathId) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let (link, agreement) = (session.link, session.agreement);
        let coming = session.incoming.coming.as_mut().filter(|coming| !coming.is_unwanted);
        let Some(coming) = coming else { return true };
        coming.is_unwanted = true;
        let (id, transfer, reason) = (coming.id, coming.transfer, RefuseReason::NotAcceptable);
        self.events.push_back(Event::Broken { link, transfer: id, keep: false });
        if agreement.acks && !agreement.refusals {
            // An acknowledgment would confirm it.
            self.fault(path, "a bundle of another length than announced");
            return false;
        }
        session.reply(Reply::Refuse { reason, transfer });
        self.ready.insert(path);
        true
    }

    fn segment_follows(
        &mut self,
        path: PathId,
        flags: SegmentFlags,
        length: u64,
        first: u8,
    ) -> bool {
        let most = self.config.transfer_mru;
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let is_past = |coming: Coming| {
            coming.total.is_some_and(|total| coming.received.saturating_add(length) > total)
        };
        if session.incoming.coming.is_some_and(is_past) && !self.refuse_length(path) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let is_long =
            |coming: Coming| !coming.is_unwanted && coming.received.saturating_add(length) > most;
        if session.incoming.coming.is_some_and(is_long) {
            let what = "a bundle longer than agreed";
            self.reject(path, RejectReason::Unsupported, first, what);
            return false;
        }
        session.incoming.segment = Some((length, flags));
        self.segment_ends(path);
        true
    }

    fn acknowledged(&mut self, path: PathId, flags: SegmentFlags, transfer: u64, length: u64) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let of = |s: &super::Sending| s.transfer == transfer;
        let Some(at) = session.sending.iter().position(of) else { return };
        let Some(sending) = session.sending.get_mut(at) else { return };
        // Version 3 has no flags here, and some peers of version 4 do not echo the flags of the
        // segment (RFC 9174 §5.2.3). An acknowledgment of all bytes after the last segment means
        // the same.
        if !(sending.is_out && (flags.end || length >= sending.len)) {
            if !flags.end {
                sending.acknowledged = length.clamp(sending.acknowledged, sending.sent);
                self.ready.insert(path);
            }
            return;
        }
        self.end_transfer(path, at, Outcome::Acknowledged);
    }

    fn refused(&mut self, path: PathId, reason: RefuseReason, transfer: u64) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let of = |s: &super::Sending| s.transfer == transfer && s.sent > 0;
        let Some(at) = session.sending.iter().position(of) else { return };
        // No more of it is sent; the next transfer begins with its own segment (§5.2.4).
        self.end_transfer(path, at, Outcome::Refused(refusal(reason)));
    }

    /// Handles the agent's decision on a bundle.
    pub(super) fn decided(&mut self, link: LinkId, id: TransferId, why: Option<Refusal>) {
        let Some(path) = self.paths.get(&link).copied() else { return };
        let most = self.config.limits.unanswered;
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let why = match why {
            // It cannot be refused and must not be acknowledged: the session ends, and the peer
            // retries.
            Some(Refusal::NoResources | Refusal::Retransmit)
                if session.agreement.acks && !session.agreement.refusals =>
            {
                session.is_over = true;
                self.ready.insert(path);
                return;
            }
            Some(Refusal::Completed | Refusal::NotAcceptable) if !session.agreement.refusals => {
                session.drop_coming(id);
                None
            }
            Some(why) => Some(why),
            None => None,
        };
        if !session.decide(id, why)
            && let Some(why) = why
            && let Some(coming) = &mut session.incoming.coming
            && coming.id == id
            && !coming.is_unwanted
        {
            coming.is_unwanted = true;
            let (reason, transfer) = (reason(why), coming.transfer);
            session.reply(Reply::Refuse { reason, transfer });
        }
        if session.is_paused && !session.is_held && session.replies.len() < most / 2 {
            session.is_paused = false;
            self.effects.pause(path, false);
        }
        self.ready.insert(path);
        self.end_if_done(path);
    }

    /// Pauses or resumes a peer.
    pub(super) fn hold(&mut self, link: LinkId, is_held: bool) {
        let Some(path) = self.paths.get(&link).copied() else { return };
        let most = self.config.limits.unanswered;
        let Some(session) = self.sessions.get_mut(&path) else { return };
        session.is_held = is_held;
        let pauses = is_held || session.replies.len() >= most;
        if pauses != session.is_paused {
            session.is_paused = pauses;
            self.effects.pause(path, pauses);
        }
    }

    /// Handles the end of a peer's stream, with or without a prior message.
    pub(super) fn read_closed(&mut self, now: Time, path: PathId) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        if session.ends.1 {
            session.is_over = true;
            self.ready.insert(path);
            return;
        }
        self.effects.push(PathEffect::Close { path });
        self.stream_down(now, path, "the peer closed the stream");
    }
}
