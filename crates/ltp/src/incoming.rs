//! Dispatch of received segments: origin checks, and the sessions they belong to.

use std::time::Duration;

use engine::{PathId, Time};
use session::path::Handle;
use session::timer::TICK;
use session::{Alarm as _, Turns as _};

use super::Node;
use super::core::Alarm;
use super::indication::{Cause, Failure};
use super::session::Session;
use super::silence::Silence;
use crate::segment::ltpt::Transport;
use crate::segment::{Body, End, Segment};
use crate::{authentication, refusal};

/// Minimum silence of a path after which the path's sessions are examined.
const SILENCE_MIN: Duration = Duration::from_secs(1);

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
            if !self.hears(engine, &remote, from) {
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
}

/// Whether a segment requests a reply.
fn requests_reply(segment: &Segment<'_>) -> bool {
    match segment.body {
        Body::Data(data) => data.checkpoint.is_some(),
        Body::Report(_) => true,
        Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => false,
    }
}
