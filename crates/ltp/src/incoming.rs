//! Dispatch of received segments: origin checks, the sessions that they belong to or start, and
//! replies to others.

use std::time::Duration;

use engine::{PathId, Time};
use session::path::{Handle, Path};
use session::timer::TICK;
use session::{Alarm as _, Base, Guest, Turns as _, Vacancy};

use super::config::{Pin, Remote};
use super::cookies::Cookies;
use super::core::{Alarm, Core, Peer};
use super::hops::Intake;
use super::indication::{Cause, Failure, Indication, Limit};
use super::receiver::Receiver;
use super::sealed::Sealed;
use super::silence::Silence;
use super::{Closed, Left, Node, REFUSE_EVERY, Session};
use crate::segment::ltpt::{Congestion, Transport};
use crate::segment::{
    Body, CancelReason, Claim, Claims, End, Report as ReportSegment, Segment, SessionId,
};
use crate::{authentication, refusal};

/// Minimum silence of a path after which the path's sessions are examined.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// Maximum number of engines with an unexpected address that are indicated.
const ELSEWHERE_MAX: usize = 256;

/// Session that a peer begins.
struct Opening {
    id: SessionId,
    service: u64,
    guest: Guest,
}

impl Node {
    /// Processes a received datagram.
    pub(super) fn receive(&mut self, now: Time, from: PathId, datagram: &[u8]) {
        // Four zero bytes keep a NAT mapping alive (RFC 7122 §3).
        if datagram == [0; 4] {
            return;
        }
        let Ok(segment) = Segment::decode(datagram) else {
            self.core.stats.decode_errors += 1;
            return;
        };
        let authentication = self.peer(from, segment.session).authentication.as_ref();
        if authentication.is_some_and(|keys| !authentication::admits(keys, datagram, &segment)) {
            self.core.stats.unauthenticated += 1;
            return;
        }
        self.core.stats.received.count(&segment.body);
        let is_ours = segment.session.originator == self.core.config.engine;
        let for_sender = match segment.body {
            Body::Report(_)
            | Body::Cancel { by: End::Receiver, .. }
            | Body::CancelAck { by: End::Sender } => true,
            Body::Data(_)
            | Body::ReportAck { .. }
            | Body::Cancel { by: End::Sender, .. }
            | Body::CancelAck { by: End::Receiver } => false,
        };
        if is_ours != for_sender {
            self.core.stats.stray += 1;
            return;
        }
        let wait = self.peer(from, segment.session).host_delay;
        if wait.is_zero() || !requests_reply(&segment) {
            self.take(now, from, &segment, datagram.len());
        } else if self.held.len() < self.core.config.limits.buffers.replies {
            let alarm = (Handle::NOBODY, Alarm::Host);
            self.held.push_back((now + wait, from, datagram.to_vec()));
            let first = self.held.front().map_or(now, |(at, ..)| *at);
            self.core.shared.timers.set(alarm, first.max(now + TICK), Alarm::Host.why());
        }
    }

    /// Processes held segments whose processing delay has expired.
    pub(super) fn take_held(&mut self, now: Time) {
        while self.held.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, from, datagram)) = self.held.pop_front() else { break };
            if let Ok(segment) = Segment::decode(&datagram) {
                self.take(now, from, &segment, datagram.len());
            }
        }
        if let Some((at, ..)) = self.held.front() {
            let alarm = (Handle::NOBODY, Alarm::Host);
            self.core.shared.timers.set(alarm, (*at).max(now + TICK), Alarm::Host.why());
        }
    }

    /// Processes a segment of `len` bytes.
    fn take(&mut self, now: Time, from: PathId, segment: &Segment<'_>, len: usize) {
        let known = self.by_id.get(&segment.session).copied();
        match known.or_else(|| self.accept(now, from, segment)) {
            Some(handle) => {
                self.deliver(now, from, handle, segment, len);
                if self.core.config.transport.is_some() {
                    self.pass_on(handle);
                    self.settle(handle);
                }
            }
            None => self.answer_stranger(now, from, segment, len),
        }
    }

    /// Resumes all sessions of a path at once after a long silence: one of them detected the end of
    /// an outage.
    fn end_silence(&mut self, now: Time, path: PathId) {
        let before = self.core.received_at.insert(path, now).unwrap_or(now);
        if now.since(before) < SILENCE_MIN {
            return;
        }
        self.core.probes.remove(&path);
        let Self { core, slots, .. } = self;
        for session in slots.iter_mut().filter(|it| it.base_of().seat.path == Some(path)) {
            let reply = core.answer_time(session.base_of(), &session.peer().remote);
            // Newer sessions have not waited that long.
            let lasts = now.since(before.max(session.base_of().last_received));
            if (Silence { reply, lasts }).is_long() {
                session.resume(core, now);
            }
        }
    }

    /// Checks that a segment of a session is from its peer, which may move to another path after a
    /// silence.
    fn admit_from(
        &mut self,
        now: Time,
        from: PathId,
        handle: Handle,
        segment: &Segment<'_>,
    ) -> bool {
        if let Some(session) =
            self.slots.get(handle).filter(|it| it.base_of().seat.path != Some(from))
        {
            let (engine, remote) = (session.engine(), session.peer().remote.clone());
            if !self.admit_path(engine, &remote, from) {
                self.core.stats.stray += 1;
                return false;
            }
        }
        let Self { core, slots, .. } = self;
        let Some(session) = slots.get_mut(handle) else { return false };
        if !session.peer_mut().cookies.admit(segment) {
            core.stats.wrong_cookies += 1;
            return false;
        }
        // Replies go to the configured address.
        if session.base().seat.path != Some(from) && session.peer().remote.path.is_none() {
            if !session.may_move(core, now) {
                core.stats.stray += 1;
                return false;
            }
            session.base().move_to(&mut core.shared, now, from);
            session.want_all(core);
        }
        true
    }

    /// Processes a segment of a session under way.
    fn deliver(
        &mut self,
        now: Time,
        from: PathId,
        handle: Handle,
        segment: &Segment<'_>,
        len: usize,
    ) {
        if !self.admit_from(now, from, handle, segment) {
            return;
        }
        if let Some(path) = self.slots.get(handle).and_then(|it| it.base_of().seat.path) {
            self.end_silence(now, path);
        }
        let Self { core, slots, half_open, answers, .. } = self;
        let Some(session) = slots.get_mut(handle) else { return };
        let path = session.base_of().seat.path.unwrap_or(from);
        if !session.peer().is_proven {
            core.earn(path, len);
        }
        if let Session::Sender(sender) = session {
            // The session's number is random.
            core.proven.insert(path);
            if !std::mem::replace(&mut sender.peer.is_proven, true) {
                answers.forget(&segment.session);
            }
        }
        match (session, segment.body) {
            (Session::Receiver(receiver), Body::Data(data)) => {
                let was_half_open = receiver.is_half_open();
                receiver.on_data(core, now, &data);
                if was_half_open && !receiver.is_half_open() {
                    half_open.forget(&segment.session);
                }
            }
            (Session::Receiver(receiver), Body::ReportAck { serial }) => {
                receiver.on_report_ack(core, now, serial);
            }
            (Session::Receiver(receiver), Body::Cancel { reason, .. }) => {
                receiver.on_cancel(core, reason);
            }
            (Session::Receiver(receiver), Body::CancelAck { .. }) => receiver.on_cancel_ack(core),
            (Session::Sender(sender), Body::Report(report)) => {
                sender.on_report(core, now, &report);
            }
            (Session::Sender(sender), Body::Cancel { reason, .. }) => {
                let transport = Transport::from_extensions(segment.header);
                let congestion = transport.ok().and_then(|transport| transport.congestion);
                let refusal = refusal::find(segment.header);
                let cause = refusal.map(Cause::Store);
                let failure = Failure { cause, ..Failure::new(End::Receiver, reason) };
                sender.on_cancel(core, failure, congestion);
            }
            (Session::Sender(sender), Body::CancelAck { .. }) => sender.on_cancel_ack(core),
            (Session::Receiver(_), Body::Report(_))
            | (Session::Sender(_), Body::Data(_) | Body::ReportAck { .. }) => {
                core.stats.stray += 1;
            }
        }
        self.settle(handle);
    }

    /// Whether segments of an engine are accepted on this path. Indicates once that an engine sends
    /// from an unexpected address.
    pub(super) fn admit_path(&mut self, engine: u64, remote: &Remote, from: PathId) -> bool {
        let may = may_speak(&self.core, remote, from);
        let is_elsewhere = remote.path.is_some_and(|path| path != from);
        if is_elsewhere && self.elsewhere.len() < ELSEWHERE_MAX && self.elsewhere.insert(engine) {
            let address = self.core.shared.paths.get(&from).and_then(Path::peer);
            let indication = Indication::Elsewhere { engine, address, is_taken: may };
            self.core.user.indicate(indication);
        }
        may
    }

    /// Settings for the peer engine of a session.
    pub(super) fn peer(&self, from: PathId, id: SessionId) -> &Remote {
        let handle = self.by_id.get(&id);
        if let Some(session) = handle.and_then(|handle| self.slots.get(*handle)) {
            return &session.peer().remote;
        }
        let config = &self.core.config;
        if id.originator != config.engine {
            return config.remote(id.originator);
        }
        if let Some(closed) = self.closed.get(&id) {
            return config.remote(closed.peer);
        }
        // Perhaps a session of an earlier run: then the engine there must have sent it.
        let there = config.remotes.values().find(|remote| remote.path == Some(from));
        there.unwrap_or(&config.default_remote)
    }

    /// Starts a reception, if this segment may start one.
    pub(super) fn accept(
        &mut self,
        now: Time,
        from: PathId,
        segment: &Segment<'_>,
    ) -> Option<Handle> {
        let Body::Data(data) = segment.body else { return None };
        let id = segment.session;
        if self.closed.contains(&id) || !self.lost.is_known || self.lost.contains(&id) {
            return None;
        }
        let remote = self.core.config.remote(id.originator).clone();
        if !self.admit_path(id.originator, &remote, from) {
            return None;
        }
        let paths = &self.core.shared.paths;
        let host = paths.host(from);
        let is_known = remote.path.is_some_and(|path| paths.host(path) == host);
        let guest = Guest { host, is_known };
        if !self.make_room(now, guest) {
            self.core.user.limit_reached(Limit::Sessions);
            return None;
        }
        let intake = self.admit(now, segment, &data);
        let left = match intake {
            Intake::Plain | Intake::Last(_) | Intake::Onward(..) => {
                let opening = Opening { id, service: data.service, guest };
                return Some(self.receive_new(now, from, opening, remote, intake));
            }
            Intake::Unknown => return None,
            Intake::Known => Left::Elsewhere,
            Intake::Refused(reason, congestion) => Left::Refused(reason, congestion),
        };
        let max = self.core.config.limits.closed;
        self.closed.insert_within(max, id, Closed { peer: id.originator, left });
        None
    }

    /// Makes room for a reception: the weakest one gives way.
    fn make_room(&mut self, now: Time, guest: Guest) -> bool {
        let limits = &self.core.config.limits;
        let shares = session::Admission::with_places(limits.sessions)
            .with_path_share(limits.sessions_per_path)
            .counting_own()
            .reserving_for_known(!self.core.config.remotes.is_empty());
        let (parked, units) = (limits.buffers.write_buffer / 4, limits.units_total / 2);
        while self.half_open.len() >= shares.half_open
            || self.core.shared.room.parked > parked
            || self.core.units > units
        {
            if !self.drop_half_open() && !self.drop_weak(now) {
                break;
            }
        }
        loop {
            match self.core.shared.places.search(shares, self.by_id.len(), now, guest) {
                Vacancy::Free => return true,
                Vacancy::None => return false,
                Vacancy::Of(handle) => {
                    self.core.user.limit_reached(Limit::Sessions);
                    self.displace(handle);
                }
            }
        }
    }

    /// Ends a reception to make room for another, unless it ends by itself.
    fn displace(&mut self, handle: Handle) {
        let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else {
            self.core.shared.places.leave(handle);
            return;
        };
        if !receiver.make_way(&mut self.core) {
            self.core.shared.places.exempt(handle);
            return;
        }
        self.core.stats.half_open_dropped += 1;
        self.settle(handle);
    }

    /// Ends the weakest session to save memory, if it was silent after one or two segments.
    fn drop_weak(&mut self, now: Time) -> bool {
        let Vacancy::Of(handle) = self.core.shared.places.weakest_stranger(now) else {
            return false;
        };
        let Some(Session::Receiver(receiver)) = self.slots.get(handle) else { return false };
        let silence = receiver.weak_for(now);
        let is_weak = silence.is_some_and(|silence| silence >= receiver.patience(&self.core));
        if is_weak {
            self.displace(handle);
        }
        is_weak
    }

    /// Makes room for a session to an engine that has not proven that it receives any: the oldest
    /// such session ends.
    pub(super) fn make_room_for_answer(&mut self) {
        let most = session::Admission::with_places(self.core.config.limits.sessions).half_open;
        while self.answers.len() >= most {
            let Some((oldest, ())) = self.answers.forget_oldest() else { break };
            let Some(handle) = self.by_id.get(&oldest).copied() else { continue };
            if let Some(Session::Sender(sender)) = self.slots.get_mut(handle) {
                sender.give_way(&mut self.core);
            }
            self.settle(handle);
        }
    }

    /// Forgets the oldest half-open session. Returns whether there was such a session.
    fn drop_half_open(&mut self) -> bool {
        let Some(oldest) = self.half_open.oldest() else { return false };
        let Some(handle) = self.by_id.get(&oldest).copied() else {
            self.half_open.forget(&oldest);
            return true;
        };
        if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
            receiver.give_way(&mut self.core);
            self.core.stats.half_open_dropped += 1;
        }
        self.settle(handle);
        true
    }

    /// Starts a reception that was admitted.
    fn receive_new(
        &mut self,
        now: Time,
        from: PathId,
        Opening { id, service, guest }: Opening,
        remote: Remote,
        intake: Intake,
    ) -> Handle {
        let mut peer = Peer::new(id, remote);
        peer.is_proven = guest.is_known;
        if self.core.config.cookies {
            peer.cookies = Cookies::random(&mut self.core.rng);
        }
        let handle = self.slots.reserve();
        let core = &mut self.core;
        // Replies are sent to the configured address, from whichever port the engine sends.
        let to = peer.remote.path.unwrap_or(from);
        let base = Base::new(&mut core.shared.paths, handle, Some(to), now);
        let (receiver, flow) = match intake {
            Intake::Onward(flow, relay) => {
                (Receiver::of_relay(base, peer, core, now, flow, *relay), Some(flow))
            }
            Intake::Last(flow) => {
                let mut receiver = Receiver::new(base, peer, core, now, service);
                receiver.set_flow(flow);
                receiver.establish(core);
                (receiver, Some(flow))
            }
            Intake::Plain | Intake::Unknown | Intake::Known | Intake::Refused(..) => {
                (Receiver::new(base, peer, core, now, service), None)
            }
        };
        self.core.shared.places.enter(handle, now, guest);
        if receiver.is_half_open() {
            self.half_open.insert(id, ());
        }
        self.fill(handle, id, Session::Receiver(Box::new(receiver)));
        if let Some(flow) = flow {
            self.arrives(now, flow, handle);
        }
        handle
    }

    /// Replies to a segment of no session under way, so that the peer can end it.
    pub(super) fn answer_stranger(
        &mut self,
        now: Time,
        from: PathId,
        segment: &Segment<'_>,
        len: usize,
    ) {
        self.core.stats.stray += 1;
        if !self.lost.is_known {
            // The peer will retransmit the segment once the reply is known.
            return;
        }
        if matches!(
            segment.body,
            Body::CancelAck { by: End::Receiver } | Body::Cancel { by: End::Sender, .. }
        ) {
            self.lost.settled(&mut self.core, segment.session);
        }
        let claims;
        let mut congestion = None;
        let body = match segment.body {
            // The peer would retransmit the segment for ever (§8.1).
            Body::Report(report) => Body::ReportAck { serial: report.serial },
            Body::Cancel { by, .. } => Body::CancelAck { by },
            Body::Data(data) => {
                let known = self.closed.get(&segment.session).map(|closed| closed.left);
                let end = data.offset + data.data.len() as u64;
                let again = data.offset == 0 || self.core.stats.stray.is_multiple_of(REFUSE_EVERY);
                let here = match known {
                    Some(Left::Safe(red)) => Some(red),
                    Some(Left::Elsewhere) => Some(end),
                    Some(Left::Nothing | Left::Refused(..)) | None => None,
                };
                match (here.filter(|red| *red > 0), known, data.checkpoint) {
                    (Some(red), _, Some(checkpoint)) => {
                        claims = [Claim { offset: 0, length: red }];
                        Body::Report(ReportSegment {
                            serial: self.core.first_serial(),
                            checkpoint: checkpoint.serial,
                            upper: red,
                            lower: 0,
                            claims: Claims::new(&claims),
                        })
                    }
                    (_, Some(Left::Refused(reason, short)), checkpoint)
                        if again || checkpoint.is_some() =>
                    {
                        congestion = short;
                        Body::Cancel { by: End::Receiver, reason }
                    }
                    // The session was refused for lack of room, or part of it is lost. Or its
                    // sender cancelled it, and has forgotten that: without a reply it would wait.
                    (None, None | Some(Left::Nothing), Some(_)) => {
                        Body::Cancel { by: End::Receiver, reason: CancelReason::System }
                    }
                    (_, Some(_), _) | (_, None, _) => return,
                }
            }
            Body::ReportAck { .. } | Body::CancelAck { .. } => return,
        };
        let to = self.peer(from, segment.session).path.unwrap_or(from);
        self.core.earn(to, len);
        self.reply(now, from, segment, body, congestion);
    }

    /// Queues a reply that belongs to no session, if the segment's origin is acceptable.
    fn reply(
        &mut self,
        now: Time,
        from: PathId,
        segment: &Segment<'_>,
        body: Body<'_>,
        congestion: Option<Congestion>,
    ) {
        let session = segment.session;
        let remote = self.peer(from, session);
        if !may_speak(&self.core, remote, from) {
            return;
        }
        let to = remote.path.unwrap_or(from);
        let is_refusal = matches!(body, Body::Cancel { .. });
        if is_refusal && !self.core.shared.replies.refusals.admit(now, to) {
            self.core.stats.refusals_left_out += 1;
            self.core.user.limit_reached(Limit::Refusals);
            return;
        }
        let authentication = self.peer(from, session).authentication.as_ref();
        // A peer that relies on its cookies would drop a reply without them.
        let cookies = &Cookies::echo(segment);
        let transport = Transport { congestion, ..Transport::default() };
        let sealed =
            Sealed { session, body, authentication, cookies, transport: &transport.values() };
        let Ok(sealed) = sealed.to_vec() else { return };
        if !self.core.spend(to, sealed.len()) {
            return;
        }
        if !self.core.shared.replies.push(to, sealed) {
            self.core.stats.replies_dropped += 1;
            self.core.user.limit_reached(Limit::Replies);
        }
    }
}

/// Whether a segment requests a reply.
fn requests_reply(segment: &Segment<'_>) -> bool {
    match segment.body {
        Body::Data(data) => data.checkpoint.is_some(),
        Body::Report(_) => true,
        Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => false,
    }
}

/// Whether a segment may arrive on this path, though another is configured. Some engines send from
/// another port than they listen on: an engine is identified by its number.
pub(super) fn may_speak(core: &Core, remote: &Remote, from: PathId) -> bool {
    let Some(path) = remote.path.filter(|path| *path != from) else { return true };
    let host = |path: &PathId| core.shared.paths.get(path).and_then(Path::host);
    match remote.pin {
        Pin::Off => true,
        Pin::Host => host(&path).is_some_and(|known| host(&from) == Some(known)),
        Pin::Address => false,
    }
}
