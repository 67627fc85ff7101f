//! Convergence layers over streams: TCPCL, versions 4 (RFC 9174) and 3 (RFC 7242), MTCP and STCP.
//!
//! A [`Tcpcl`] is a [`Layer`]: it serves any number of neighbours, each over a stream that it
//! opened or accepted. Streams may come from a simulator's TCP or the kernel's, with TLS where
//! both sides support it.

mod config;
mod decoding;
mod out;
mod places;
mod protocol;
mod receiving;
mod sending;
mod session;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Deadline, Effect, EffectResult, Engine, Input, PathEffect, PathEvent, PathId, PathInfo,
    Receive, StreamEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

pub use self::config::{Config, Limits, Peer, Proof, Tls, WholeSeconds};
pub use self::protocol::{Protocol, Version3};
pub use crate::codec::mtcp::Framing;

use self::sending::Sending;
use self::session::{Phase, Remote, Session};
use super::admission::Standing;
use super::effects::Effects;
use super::layer::{Command, Configured, Event, Layer, LinkId, Neighbour, Outcome, Outgoing, Tag};
use crate::codec::bp7::Eid;
use crate::codec::tcpcl3;
use crate::codec::tcpcl4::{ContactHeader, Extensions, Message, SessionInit, TermReason};

/// Unsent bytes of a session beyond which no further segment is made.
const OUT: usize = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Timeout of a slow or silent peer.
    Silence(PathId),
    /// A keepalive is due.
    Keepalive(PathId),
    /// Timeout of a transfer that stands still.
    Stall(PathId),
    /// A connection is retried.
    Reconnect(LinkId),
}

/// A neighbour to connect to.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Pause before the next attempt.
    pause: Duration,
    is_opening: bool,
}

/// Purpose of a read or an opened file.
#[derive(Clone, Copy, Debug)]
struct Use {
    path: PathId,
    tag: Tag,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sessions established.
    pub sessions: u64,
    /// Streams that ended before that.
    pub failed: u64,
    /// Bundles acknowledged by neighbours, or sent if the protocol has no acknowledgments.
    pub sent: u64,
    /// Bundles received whole.
    pub received: u64,
    /// Protocol violations by peers.
    pub faults: u64,
}

/// The convergence layer over streams.
#[derive(Debug)]
pub struct Tcpcl {
    config: Config,
    sessions: BTreeMap<PathId, Session>,
    paths: BTreeMap<LinkId, PathId>,
    /// Links to nodes that announced themselves.
    discovered: BTreeSet<LinkId>,
    wanted: BTreeMap<LinkId, Wanted>,
    /// Sessions that may have data to send.
    ready: BTreeSet<PathId>,
    events: VecDeque<Event>,
    effects: Effects<Use>,
    timers: Timers<Alarm>,
    next_transfer: u64,
    next_came: u32,
    statistics: Statistics,
}

impl Tcpcl {
    /// A layer with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            sessions: BTreeMap::new(),
            paths: BTreeMap::new(),
            discovered: BTreeSet::new(),
            wanted: BTreeMap::new(),
            ready: BTreeSet::new(),
            events: VecDeque::new(),
            effects: Effects::default(),
            timers: Timers::new(),
            next_transfer: 0,
            next_came: LinkId::CAME.0,
            statistics: Statistics::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn stream_up(&mut self, now: Time, path: PathId, info: &PathInfo) {
        if self.sessions.contains_key(&path) {
            return;
        }
        let configured = self.config.peers.iter().find(|(_, peer)| peer.path == path);
        let (link, is_active) = match configured.map(|(link, _)| *link) {
            Some(link) => (link, true),
            None => {
                self.next_came = self.next_came.wrapping_add(1).max(LinkId::CAME.0);
                (LinkId(self.next_came), false)
            }
        };
        if let Some(wanted) = self.wanted.get_mut(&link) {
            wanted.is_opening = false;
        }
        let address = info.ends.map(|(_, far)| far.ip());
        let Some(standing) = self.place(now, link, is_active, address) else {
            self.effects.push(StreamEffect::Reset { path });
            self.try_later(now, link);
            return;
        };
        let protocol = self.config.protocol;
        let peer = Remote { address, standing, node: None, since: now };
        let mut session = Session::new(link, is_active, protocol, peer);
        // In version 4 the listening side waits for the contact header of the connecting side (RFC
        // 9174 §4.3).
        if is_active || matches!(protocol, Protocol::Tcpcl3(_)) {
            session.out.push(self.contact());
        }
        self.sessions.insert(path, session);
        self.paths.insert(link, path);
        self.ready.insert(path);
        let greeting = if is_active { self.config.patience } else { self.config.greeting };
        let at = now + greeting.min(self.config.patience);
        self.timers.set(Alarm::Silence(path), at, "a session being established");
        if let Some(address) = address.filter(|_| !is_active) {
            let here: BTreeSet<Eid> = self.config.admission.nodes_at(address).cloned().collect();
            self.connect_soon(now, |node| here.contains(node));
        }
        if self.config.tls == Tls::Always && protocol != Protocol::Tcpcl4 {
            self.fault(path, "TLS is required, but the protocol has none");
        } else if let Protocol::Framed(framing) = protocol {
            self.established_framed(now, path, framing);
        }
    }

    /// Contact header of this side; empty if the protocol has none.
    fn contact(&self) -> Bytes {
        match self.config.protocol {
            Protocol::Tcpcl4 => {
                let can_tls = self.config.tls != Tls::Never;
                Bytes::copy_from_slice(&ContactHeader { can_tls }.encode())
            }
            Protocol::Tcpcl3(settings) => self.contact_3(settings).into(),
            Protocol::Framed(_) => Bytes::new(),
        }
    }

    fn contact_3(&self, settings: Version3) -> Vec<u8> {
        let Version3 { acks, reactive_fragmentation, refusals, lengths, .. } = settings;
        let flags = tcpcl3::Flags { acks, reactive_fragmentation, refusals, lengths };
        let (keepalive_s, eid) = (self.config.keepalive_s, self.node_id());
        tcpcl3::ContactHeader { version: tcpcl3::VERSION, flags, keepalive_s, eid: &eid }.to_vec()
    }

    /// Node ID announced to peers.
    fn node_id(&self) -> String {
        if self.config.node.is_none() { String::new() } else { self.config.node.to_string() }
    }

    /// Handles the end of a stream, and of all its transfers.
    fn stream_down(&mut self, now: Time, path: PathId, why: &'static str) {
        self.timers.cancel(Alarm::Silence(path));
        self.timers.cancel(Alarm::Keepalive(path));
        self.timers.cancel(Alarm::Stall(path));
        self.ready.remove(&path);
        let opening = self.config.peers.iter().find(|(_, peer)| peer.path == path);
        let link = opening.map(|(link, _)| *link);
        let session = self.sessions.remove(&path);
        let is_new = session.as_ref().is_none_or(|session| session.phase != Phase::Established);
        let was_opening = |link: &LinkId| {
            session.is_some() || self.wanted.get(link).is_some_and(|wanted| wanted.is_opening)
        };
        let failed = link.filter(|link| is_new && was_opening(link));
        if let Some(session) = session {
            self.paths.remove(&session.link);
            if let Some(coming) = session.incoming.coming.filter(|coming| !coming.is_unwanted) {
                let (link, transfer) = (session.link, coming.id);
                let keep = session.agreement.reactive && coming.received > 0;
                self.events.push_back(Event::Broken { link, transfer, keep });
            }
            for sending in session.sending {
                let acknowledged =
                    if session.agreement.reactive { sending.acknowledged } else { 0 };
                self.report_sent(session.link, &sending, Outcome::Failed { acknowledged });
            }
            if session.phase == Phase::Established {
                self.events.push_back(Event::Down { link: session.link, why });
            } else {
                self.statistics.failed += 1;
            }
        }
        if let Some(link) = failed {
            self.events.push_back(Event::Down { link, why });
        }
        if let Some(link) = link {
            self.try_later(now, link);
        }
    }

    /// Closes the file of a bundle that is no longer in transit, and reports the result.
    fn report_sent(&mut self, link: LinkId, sending: &Sending, outcome: Outcome) {
        sending.source.close(&mut self.effects);
        self.events.push_back(Event::Sent { link, tag: sending.tag, outcome });
    }

    /// Ends a transfer to a peer, by its place among those of the session.
    fn end_transfer(&mut self, path: PathId, at: usize, outcome: Outcome) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let link = session.link;
        let Some(sending) = session.sending.remove(at) else { return };
        if matches!(outcome, Outcome::Acknowledged | Outcome::Left) {
            self.statistics.sent += 1;
        }
        self.report_sent(link, &sending, outcome);
        self.ready.insert(path);
        self.end_if_done(path);
    }

    fn try_later(&mut self, now: Time, link: LinkId) {
        let longest = self.config.reconnect_max;
        let Some(wanted) = self.wanted.get_mut(&link) else { return };
        wanted.is_opening = false;
        let at = now + wanted.pause;
        wanted.pause = (2 * wanted.pause).min(longest);
        self.timers.set(Alarm::Reconnect(link), at, "a reconnection");
    }

    fn open(&mut self, link: LinkId) {
        let Some(peer) = self.config.peers.get(&link) else { return };
        let path = peer.path;
        let Some(wanted) = self.wanted.get_mut(&link) else { return };
        if !wanted.is_opening && !self.paths.contains_key(&link) {
            wanted.is_opening = true;
            self.effects.push(PathEffect::Open { path });
        }
    }

    /// Closes a neighbour. Returns whether its stream is still being opened.
    fn close(&mut self, now: Time, link: LinkId) -> bool {
        let was_opening = self.wanted.remove(&link).is_some_and(|wanted| wanted.is_opening);
        self.timers.cancel(Alarm::Reconnect(link));
        let path = self.paths.get(&link).copied();
        if let Some(path) = path {
            self.end(now, path, TermReason::Unknown);
        }
        was_opening && path.is_none()
    }

    fn send(&mut self, link: LinkId, tag: Tag, bundle: Outgoing) {
        let session = self.paths.get(&link).and_then(|path| self.sessions.get_mut(path));
        let open = |session: &&mut Session| {
            let is_open = session.phase == Phase::Established && session.ends == (false, false);
            // MTCP and STCP are one-way.
            is_open && (session.is_active || !session.agreement.is_framed())
        };
        let Some(session) = session.filter(open) else {
            let outcome = Outcome::Failed { acknowledged: 0 };
            return self.events.push_back(Event::Sent { link, tag, outcome });
        };
        let sending = Sending::new(tag, session.next_transfer, bundle);
        session.next_transfer += 1;
        let path = self.paths[&link];
        sending.source.open(Use { path, tag }, &mut self.effects);
        session.sending.push_back(sending);
        self.ready.insert(path);
    }

    /// Drops a bundle that was not started. Returns whether there was one: a transfer in progress
    /// can only be ended with its session.
    fn drop_unsent(&mut self, path: PathId, tag: Tag) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        let is_it = |sending: &Sending| sending.tag == tag && sending.sent == 0;
        let Some(at) = session.sending.iter().position(is_it) else { return false };
        self.end_transfer(path, at, Outcome::Failed { acknowledged: 0 });
        true
    }

    /// Requests a peer to end the session.
    fn end(&mut self, now: Time, path: PathId, reason: TermReason) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        if !session.ends.0 {
            let is_reply = session.ends.1;
            session.ends.0 = true;
            match session.agreement.protocol {
                Protocol::Tcpcl4 => session.send(&Message::Terminate { is_reply, reason }),
                // These send their only end message last, and it has no reply.
                Protocol::Tcpcl3(_) | Protocol::Framed(_) => {
                    (session.ends.1, session.end_reason) = (true, reason);
                }
            }
            let at = now + self.config.patience;
            self.timers.set(Alarm::Silence(path), at, "a session being ended");
        }
        let link = session.link;
        // First report that the window is closed, or the agent would send returned bundles to this
        // neighbour again.
        if let Some(neighbour) = session.neighbour.take() {
            let neighbour = Neighbour { window: 0, window_bytes: 0, ..neighbour };
            self.events.push_back(Event::Up { link, neighbour });
        }
        // Bundles not started are returned to the agent.
        let unsent = |sending: &Sending| sending.sent == 0;
        while let Some(session) = self.sessions.get(&path)
            && let Some(at) = session.sending.iter().position(unsent)
        {
            self.end_transfer(path, at, Outcome::Failed { acknowledged: 0 });
        }
        self.ready.insert(path);
        self.end_if_done(path);
    }

    /// Closes a stream that both sides have ended, once no transfer is left.
    fn end_if_done(&mut self, path: PathId) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let quiet = session.sending.is_empty()
            && session.replies.is_empty()
            && session.incoming.coming.is_none_or(|coming| coming.is_unwanted);
        if session.ends == (true, true) && quiet && !session.is_over {
            if matches!(session.agreement.protocol, Protocol::Tcpcl3(_)) {
                let reason = session.end_reason;
                session.send(&Message::Terminate { is_reply: false, reason });
            }
            session.is_over = true;
            self.ready.insert(path);
        }
    }

    /// Ends the session of a peer that violated the protocol.
    fn fault(&mut self, path: PathId, what: &'static str) {
        self.statistics.faults += 1;
        if let Some(session) = self.sessions.get_mut(&path) {
            session.is_over = true;
            self.events.push_back(Event::PeerFault { link: session.link, what });
            self.ready.insert(path);
        }
    }

    /// Sends the parameters of the session.
    fn begin_session(&mut self, path: PathId) {
        let node_id = self.node_id();
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let init = SessionInit {
            keepalive_s: self.config.keepalive_s,
            segment_mru: self.config.segment_mru,
            transfer_mru: self.config.transfer_mru,
            node_id: &node_id,
            extensions: Extensions::NONE,
        };
        session.send(&Message::Init(init));
        session.phase = Phase::Init;
        self.ready.insert(path);
    }

    fn established(&mut self, now: Time, path: PathId, init: &SessionInit<'_>) {
        if !self.admit_peer(now, path, init.node_id) {
            return;
        }
        let Limits { window, window_bytes, .. } = self.config.limits;
        let Some(session) = self.sessions.get_mut(&path) else { return };
        session.phase = Phase::Established;
        session.segment_mru = init.segment_mru;
        session.silence.keepalive_s = init.keepalive_s.min(self.config.keepalive_s);
        session.silence.last_sent = now;
        let node = session.peer.node.clone();
        let is_authenticated = node.is_some() && session.tls.names_itself(init.node_id);
        let bundle_max = init.transfer_mru;
        // Nothing is sent to strangers that connect.
        let (window, window_bytes) = match session.peer.standing {
            Standing::Stranger if !session.is_active => (0, 0),
            Standing::Stranger | Standing::Neighbour => (window.max(1), window_bytes),
        };
        let neighbour = Neighbour { node, is_authenticated, bundle_max, window, window_bytes };
        session.neighbour = Some(neighbour.clone());
        let is_active = session.is_active;
        self.events.push_back(Event::Up { link: session.link, neighbour: neighbour.clone() });
        self.statistics.sessions += 1;
        let shortest = self.config.reconnect;
        if let Some(wanted) = self.wanted.get_mut(&session.link) {
            wanted.pause = shortest;
        }
        self.timers.cancel(Alarm::Silence(path));
        self.watch(now, path);
        if let Some(node) = neighbour.node.filter(|_| !is_active) {
            self.connect_soon(now, |other| *other == node);
            self.report_second(path);
        }
    }

    /// Establishes a session without messages: the connecting side sends, the listening side
    /// receives.
    fn established_framed(&mut self, now: Time, path: PathId, framing: Framing) {
        let is_active = self.sessions.get(&path).is_some_and(|session| session.is_active);
        let (keepalive_s, transfer_mru) =
            if is_active { (self.config.keepalive_s, framing.bundle_max()) } else { (0, 0) };
        let init = SessionInit {
            keepalive_s,
            segment_mru: u64::MAX,
            transfer_mru,
            node_id: "",
            extensions: Extensions::NONE,
        };
        self.established(now, path, &init);
    }

    /// Sets the timers of an established session.
    fn watch(&mut self, now: Time, path: PathId) {
        let Some(session) = self.sessions.get(&path) else { return };
        if session.phase != Phase::Established || session.ends.0 {
            return;
        }
        if let Some(interval) = session.silence.interval() {
            let due = (session.silence.last_sent + interval).max(now);
            self.timers.set(Alarm::Keepalive(path), due, "a keepalive");
        }
        if let Some(silent) = self.silent_at(session) {
            self.timers.set(Alarm::Silence(path), silent.max(now), "a silent peer");
        }
    }

    fn keepalive(&mut self, now: Time, path: PathId) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let Some(interval) = session.silence.interval() else { return };
        if session.silence.last_sent + interval <= now {
            session.send(&Message::Keepalive);
            session.silence.last_sent = now;
            self.ready.insert(path);
        }
        let at = self.sessions[&path].silence.last_sent + interval;
        self.timers.set(Alarm::Keepalive(path), at, "a keepalive");
    }

    fn silence(&mut self, now: Time, path: PathId) {
        let Some(session) = self.sessions.get(&path) else { return };
        if session.phase == Phase::Established && !session.ends.0 {
            let Some(silent) = self.silent_at(session) else { return };
            // A peer that is not read is not silent.
            if silent > now || session.is_paused {
                let wait = silent.since(session.silence.last_received);
                let at = if silent > now { silent } else { now + wait };
                self.timers.set(Alarm::Silence(path), at, "a silent peer");
                return;
            }
            self.timers.cancel(Alarm::Keepalive(path));
            self.end(now, path, TermReason::IdleTimeout);
            return;
        }
        // The time to establish or end the session has expired.
        self.effects.push(StreamEffect::Reset { path });
        self.stream_down(now, path, "the peer does not respond");
    }

    /// Makes the next segments of a session, as far as its buffers allow.
    fn fill(&mut self, path: PathId) {
        let most = self.config.segment as u64;
        let ahead = self.config.limits.read_ahead;
        let Some(session) = self.sessions.get_mut(&path) else { return };
        if session.phase != Phase::Established || session.is_over {
            return;
        }
        let most = most.min(session.segment_mru).max(1);
        let window = self.config.limits.unacknowledged;
        let mut room = if window == u64::MAX || !session.agreement.acks {
            u64::MAX
        } else {
            window.saturating_sub(session.unacknowledged())
        };
        for sending in &mut session.sending {
            while session.out.waiting() < OUT && room > 0 {
                let before = sending.sent;
                if !sending.next_segment(most.min(room), session.agreement, &mut session.out) {
                    break;
                }
                room -= sending.sent - before;
            }
            let of = Use { path, tag: sending.tag };
            sending.source.read(of, ahead, &mut self.effects);
            // Segments of two bundles do not mix (RFC 9174 §5.2.2).
            if !sending.is_out {
                break;
            }
        }
    }

    /// Reports unacknowledged bundles whose last byte has been sent.
    fn left(&mut self, path: PathId) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let taken = session.out.taken();
        let has_left = |sending: &&Sending| sending.is_out && sending.ends_at <= taken;
        for _ in 0..session.sending.iter().take_while(has_left).count() {
            self.end_transfer(path, 0, Outcome::Left);
        }
        self.end_if_done(path);
    }

    fn done(&mut self, ticket: Ticket, result: EffectResult) {
        let Some(Use { path, tag }) = self.effects.take(ticket) else { return };
        let sending = self
            .sessions
            .get_mut(&path)
            .and_then(|session| session.sending.iter_mut().find(|sending| sending.tag == tag));
        let Some(sending) = sending else {
            self.effects.close_orphan(&result);
            return;
        };
        if !sending.source.completed(result)
            && !self.drop_unsent(path, tag)
            && let Some(session) = self.sessions.get_mut(&path)
        {
            session.is_over = true;
        }
        self.ready.insert(path);
    }
}

impl Layer for Tcpcl {
    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Open { link } => {
                let pause = self.config.reconnect;
                if self.config.peers.contains_key(&link) {
                    // A contact begins: what failed before it says nothing of it.
                    let first = Wanted { pause, is_opening: false };
                    self.wanted.entry(link).or_insert(first).pause = pause;
                    self.open(link);
                }
            }
            Command::Close { link } => {
                self.close(now, link);
            }
            Command::Send { link, tag, bundle } => self.send(link, tag, bundle),
            Command::Cancel { link, tag } => {
                if let Some(path) = self.paths.get(&link).copied() {
                    self.drop_unsent(path, tag);
                }
            }
            Command::Accept { link, transfer } => self.decided(link, transfer, None),
            Command::Refuse { link, transfer, why } => self.decided(link, transfer, Some(why)),
            Command::Pause { link } => self.hold(link, true),
            Command::Resume { link } => self.hold(link, false),
        }
    }

    fn configure(&mut self, now: Time, configured: Configured) {
        self.replace_peers(now, configured);
    }
}

impl Engine for Tcpcl {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(Receive { path, bytes, .. }) => self.receive(now, path, bytes),
            Input::Path(path, event) => match event {
                PathEvent::Up(info) => self.stream_up(now, path, &info),
                PathEvent::Down => self.stream_down(now, path, "the stream broke"),
                PathEvent::Blocked | PathEvent::Writable => {
                    if let Some(session) = self.sessions.get_mut(&path) {
                        session.is_blocked = event == PathEvent::Blocked;
                        self.ready.insert(path);
                    }
                }
                PathEvent::ReadClosed => self.read_closed(now, path),
                PathEvent::Secured(names) => self.secured(path, names),
                PathEvent::Unsent | PathEvent::ReturnDown | PathEvent::ReturnUp => {}
                // Best effort was not requested: a stream with a gap is useless.
                PathEvent::Missing { .. } => self.fault(path, "bytes of the stream are missing"),
            },
            Input::Done(ticket, result) => self.done(ticket, result),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(alarm) = self.timers.pop_due(now) {
            match alarm {
                Alarm::Silence(path) => self.silence(now, path),
                Alarm::Keepalive(path) => self.keepalive(now, path),
                Alarm::Stall(path) => self.stalled(now, path),
                Alarm::Reconnect(link) => self.open(link),
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        while let Some(path) = self.ready.first().copied() {
            self.fill(path);
            let session = self.sessions.get_mut(&path).filter(|session| !session.is_blocked);
            let Some(session) = session else {
                self.ready.remove(&path);
                continue;
            };
            let len = session.out.waiting().min(tx.longest()).min(Receive::PIECE_MAX);
            if len == 0 {
                self.ready.remove(&path);
                if let Some((server_name, early)) = session.tls.secures.take() {
                    self.effects.push(StreamEffect::StartTls { path, server_name, early });
                }
                if session.is_over {
                    self.effects.push(PathEffect::Close { path });
                    self.stream_down(now, path, "the session ended");
                }
                continue;
            }
            session.out.fill(tx.push(len)?);
            session.silence.last_sent = now;
            if !session.agreement.acks {
                self.left(path);
            }
            return tx.transmit(path, now);
        }
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.poll()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
