//! Hop-by-hop transfers (LTP-T): their sessions are admitted, start, end, and are retried.

use bytes::Bytes;
use engine::{FileId, FilestoreRequest, Time};
use routing::routes::{Priority, Wanted};
use session::path::Handle;
use session::storage::Storage as _;
use session::timer::TICK;
use session::{Alarm as _, Turns as _};

use super::core::{Alarm, Core, Job};
use super::sender::Sender;
use super::transport::flow::{
    Finished, Flow, Flows, Origin, Outcome, Relay, Seq, Shape, Stored, is_final,
};
use super::transport::record;
use super::{
    Failure, Finished as Ended, Indication, Limit, Node, RequestError, SendRequest, Session,
};
use crate::config::transport::{Config, Otherwise, Routing};
use crate::indication::transport::{FlowId, Indication as Notice, Undeliverable};
use crate::segment::ltpt::{Address, Congestion, CongestionReason, End, Lifetime, Transport};
use crate::segment::{CancelReason, Data, End as Side, Segment, SessionId};

/// Reason why a transfer ends here.
#[derive(Clone, Copy, Debug)]
enum Stop {
    Failed(Failure),
    Expired,
    NoRoute,
}

/// Outcome of the admission of a new session.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Accepted without LTP-T.
    Plain,
    /// Accepted: brings a block for this engine.
    Last(Seq),
    /// Accepted: brings a block for another engine.
    Onward(Seq, Box<Relay>),
    /// Ignored until a segment arrives that names the transfer.
    Unknown,
    /// Not needed: another session has brought or brings the whole block.
    Known,
    /// Refused.
    Refused(CancelReason, Option<Congestion>),
}

const UNREACHABLE: Intake = Intake::Refused(CancelReason::Unreachable, None);

impl Node {
    /// Bytes of blocks stored for other engines, or that will be once complete.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.flows.stored
    }

    /// Number of LTP-T transfers under way: from, through and to this engine.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.flows.len()
    }

    /// Starts a transfer from here, if this engine speaks LTP-T.
    pub(crate) fn send_onward(
        &mut self,
        now: Time,
        config: &Config,
        request: SendRequest,
    ) -> Result<SessionId, RequestError> {
        let destination = request.destination;
        if self.flows.len() >= config.limits.transfers {
            return Err(RequestError::TooManySessions);
        }
        let Some((next, _)) = next_hop(config, &self.flows, now, destination, 0) else {
            return Err(RequestError::NoRoute(destination));
        };
        self.check_destination(next)?;
        let id = self.new_id();
        let end = |engine| End {
            address: Address::Engine(engine),
            port: 0,
            service: self.core.config.service,
        };
        let source = end(self.core.config.engine);
        let flow = FlowId { source, number: id.number };
        let onward = Transport {
            source: Some(source),
            destination: Some(end(destination)),
            // The file is not open yet: its length is unknown.
            size: Some(0),
            lifetime: Some(lifetime(config, now)),
            flow: Some(id.number),
            ..Transport::default()
        };
        let flow = Flow::new(flow, destination, onward, Origin::Here { request, id });
        let seq = self.flows.insert(flow);
        self.arm_expiry(seq, now);
        self.core.user.indicate(Indication::Started(id));
        self.begin_hop(now, seq);
        Ok(id)
    }

    fn arm_expiry(&mut self, seq: Seq, now: Time) {
        let Some(config) = self.core.config.transport.as_ref() else { return };
        let Some(lifetime) = self.flows.get(seq).and_then(|flow| flow.onward.lifetime) else {
            return;
        };
        let at = time_of(config, lifetime).max(now + TICK);
        let alarm = Alarm::Expiry(seq);
        self.core.shared.timers.set((Handle::NOBODY, alarm), at, alarm.why());
    }

    fn arm_retry(&mut self, seq: Seq, at: Time) {
        let (at, alarm) = (at.max(self.core.now + TICK), Alarm::Retry(seq));
        self.core.shared.timers.set((Handle::NOBODY, alarm), at, alarm.why());
    }

    /// Assigns a new session to a transfer whose block it brings.
    pub(crate) fn arrives(&mut self, now: Time, seq: Seq, handle: Handle) {
        if let Some(flow) = self.flows.get_mut(seq) {
            flow.incoming = Some(handle);
        }
        if self.flows.get(seq).is_none_or(|flow| flow.is_last) {
            // Data is welcome however late it arrives.
            return;
        }
        self.arm_expiry(seq, now);
        if self.core.config.transport.as_ref().is_some_and(|config| config.cut_through) {
            self.begin_hop(now, seq);
        }
    }

    /// Starts a session to the next engine, or waits until one can start.
    fn begin_hop(&mut self, now: Time, seq: Seq) {
        let Some(config) = self.core.config.transport.clone() else { return };
        let Some(flow) = self.flows.get(seq) else { return };
        if flow.outgoing.is_some() || flow.is_forwarded {
            return;
        }
        let bytes = flow.onward.size.unwrap_or_default();
        let route = next_hop(&config, &self.flows, now, flow.destination, bytes);
        let Some((next, from)) = route else {
            self.give_up(seq, Stop::NoRoute);
            return;
        };
        let has_path =
            self.core.config.remote(next).path.is_some() || self.core.shared.only_path().is_some();
        let has_room = self.by_id.len() < self.core.config.limits.sessions;
        if from > now || !has_path || !has_room {
            self.arm_retry(seq, from.max(now + config.retry));
            return;
        }
        self.begin_session(now, seq, next);
    }

    fn begin_session(&mut self, now: Time, seq: Seq, next: u64) {
        let Some(flow) = self.flows.get(seq) else { return };
        let number = match &flow.origin {
            // The user identifies the transfer by its first session.
            Origin::Here { id, .. } => Some(*id).filter(|_| flow.sessions == 0),
            Origin::Before(_) => None,
        };
        let (base, mut peer) = self.new_session(now, next);
        if let Some(id) = number {
            peer.session = id;
        }
        let Self { core, flows, slots, .. } = self;
        let Some(flow) = flows.get_mut(seq) else { return };
        peer.set_transport(&flow.onward);
        let handle = base.seat.handle;
        let mut sender = match (&flow.kept, &flow.origin, flow.incoming) {
            (Some(stored), ..) => Sender::of_stored(base, peer, next, stored, core),
            (None, Origin::Here { request, .. }, _) => {
                Sender::of_file(base, peer, request.clone(), core)
            }
            (None, Origin::Before(_), incoming) => {
                let arrived = incoming.and_then(|incoming| match slots.get(incoming) {
                    Some(Session::Receiver(receiver)) => Some(receiver.arrived().clone()),
                    Some(Session::Sender(_)) | None => None,
                });
                Sender::of_passage(
                    base,
                    peer,
                    next,
                    flow.service,
                    arrived.unwrap_or_default(),
                    core,
                )
            }
        };
        sender.set_flow(seq);
        flow.outgoing = Some(handle);
        flow.sessions += 1;
        let incoming = flow.incoming;
        core.shared.senders += 1;
        let id = sender.id();
        self.fill(handle, id, Session::Sender(Box::new(sender)));
        if let Some(incoming) = incoming {
            self.pass_on(incoming);
        }
    }

    /// Forwards data that arrived in a session.
    pub(crate) fn pass_on(&mut self, incoming: Handle) {
        let Self { core, slots, flows, .. } = self;
        let Some(Session::Receiver(receiver)) = slots.get_mut(incoming) else { return };
        let Some(seq) = receiver.relays() else { return };
        let ((red, is_red_known), news) = receiver.news();
        let Some(config) = core.config.transport.as_ref() else { return };
        if !flows.reserve(seq, receiver.arrived().covered(), config.limits.storage) {
            let congestion = congestion(config);
            core.user.limit_reached(Limit::Storage);
            receiver.refuse_more(core, congestion);
            return;
        }
        let outgoing = flows.get(seq).and_then(|flow| flow.outgoing);
        if let Some(Session::Sender(sender)) = outgoing.and_then(|handle| slots.get_mut(handle)) {
            sender.pass_on(core, red, is_red_known, news);
        }
    }

    /// Forwards data of all sessions, which senders can read once the store has written it.
    pub(crate) fn pass_on_all(&mut self) {
        let incoming: Vec<_> = self.flows.iter().filter_map(|(_, flow)| flow.incoming).collect();
        for handle in incoming {
            self.pass_on(handle);
        }
    }

    /// Processes the results of hops.
    pub(crate) fn settle_transfers(&mut self) {
        while let Some(outcome) = self.core.outcomes.pop_front() {
            match outcome {
                Outcome::Sent { flow, result, is_confirmed, size, congestion } => match result {
                    Ok(()) => self.hop_is_over(flow, is_confirmed, size),
                    Err(failure) => {
                        let wait = self.hop_failed(flow, failure, congestion);
                        if let Some(at) = wait {
                            self.arm_retry(flow, at);
                        }
                    }
                },
                Outcome::Kept { flow, file, shape } => self.on_kept(flow, file, shape),
                Outcome::Delivered { flow } => self.finish(flow),
                Outcome::Broken { flow, failure } => self.arrival_broke(flow, failure),
            }
        }
    }

    /// Processes the end of a session to the next engine, which has the block.
    fn hop_is_over(&mut self, seq: Seq, is_confirmed: bool, size: u64) {
        let Some(flow) = self.flows.get_mut(seq) else { return };
        flow.outgoing = None;
        flow.is_forwarded = true;
        match &flow.origin {
            Origin::Here { request, id } => {
                let (id, name, result) = (*id, request.name.clone(), Ok(()));
                let ended = Ended { id, role: Side::Sender, result, is_confirmed, name, size };
                self.core.user.indicate(Indication::Finished(ended));
                self.finish(seq);
            }
            Origin::Before(_) if flow.kept.is_some() => self.release(seq),
            // The transfer is kept until the session with the previous engine is settled.
            Origin::Before(_) => {}
        }
    }

    /// Processes the failure of a session to the next engine, and schedules a retry.
    fn hop_failed(
        &mut self,
        seq: Seq,
        failure: Failure,
        congestion: Option<Congestion>,
    ) -> Option<Time> {
        let config = self.core.config.transport.clone()?;
        let flow = self.flows.get_mut(seq)?;
        flow.outgoing = None;
        let is_from_here = flow.before().is_none();
        if is_final(failure, is_from_here) {
            self.give_up(seq, Stop::Failed(failure));
            return None;
        }
        let retry_after = flow.back_off(&config, congestion);
        if congestion.is_some() {
            let notice = Notice::Congested { transfer: flow.transfer(), retry_after };
            self.core.user.indicate(Indication::Transport(notice));
        }
        Some(self.core.now + retry_after)
    }

    /// Notes that a block for another engine is completely stored.
    fn on_kept(&mut self, seq: Seq, file: Option<FileId>, shape: Shape) {
        let Self { core, flows, slots, .. } = self;
        let Some(flow) = flows.get_mut(seq) else {
            if let Some(file) = file {
                core.shared.close(file);
            }
            return;
        };
        let Origin::Before(session) = flow.origin else { return };
        flow.incoming = None;
        flow.kept = Some(Stored { file: record::file(session), service: flow.service, shape });
        core.ranges += flow.ranges();
        core.user.indicate(Indication::Transport(Notice::Kept(flow.transfer())));
        let (is_forwarded, waits) = (flow.is_forwarded, flow.sessions == 0);
        let sender = flow.outgoing.and_then(|handle| slots.get_mut(handle));
        match (sender, file) {
            (Some(Session::Sender(sender)), Some(file)) => sender.take_over(core, file),
            (Some(Session::Receiver(_)) | None, Some(file)) => core.shared.close(file),
            (_, None) => {}
        }
        if is_forwarded {
            self.release(seq);
        } else if waits {
            self.begin_hop(self.core.now, seq);
        }
    }

    /// Ends the session to the next engine, because the session that brought the block ended
    /// early.
    fn arrival_broke(&mut self, seq: Seq, failure: Failure) {
        let Some(flow) = self.forget(seq) else { return };
        let reason = match failure.by {
            Side::Sender => failure.reason,
            Side::Receiver => CancelReason::System,
        };
        self.cancel_onward(flow.outgoing, reason);
    }

    fn cancel_onward(&mut self, outgoing: Option<Handle>, reason: CancelReason) {
        if let Some(handle) = outgoing
            && let Some(Session::Sender(sender)) = self.slots.get_mut(handle)
        {
            sender.cancel(&mut self.core, reason);
            self.settle(handle);
        }
    }

    /// Discards a transfer that the previous engine restarted.
    pub(crate) fn supersede(&mut self, seq: Seq) {
        let Some(flow) = self.forget(seq) else { return };
        if let Some(handle) = flow.incoming
            && let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle)
        {
            receiver.supersede(&mut self.core);
            self.settle(handle);
        }
        self.cancel_onward(flow.outgoing, CancelReason::System);
    }

    /// Ends a transfer that did not reach the next engine.
    fn give_up(&mut self, seq: Seq, end: Stop) {
        let Some(flow) = self.forget(seq) else { return };
        let (reason, notice) = match end {
            Stop::Failed(failure) => (failure.reason, Undeliverable::Cancelled(failure.reason)),
            Stop::Expired => (CancelReason::Unreachable, Undeliverable::Expired),
            Stop::NoRoute => (CancelReason::Unreachable, Undeliverable::NoRoute),
        };
        self.cancel_onward(flow.outgoing, reason);
        if let Some(handle) = flow.incoming
            && let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle)
        {
            receiver.cancel(&mut self.core, reason);
            self.settle(handle);
        }
        match &flow.origin {
            Origin::Here { request, id } => {
                let failure = match end {
                    Stop::Failed(failure) => failure,
                    Stop::Expired | Stop::NoRoute => Failure::new(Side::Sender, reason),
                };
                let (id, name, result) = (*id, request.name.clone(), Err(failure));
                let (role, is_confirmed, size) = (Side::Sender, false, 0);
                let ended = Ended { id, role, result, is_confirmed, name, size };
                self.core.user.indicate(Indication::Finished(ended));
            }
            Origin::Before(session) => {
                if flow.kept.is_some() {
                    self.remove_stored(*session);
                    let transfer = flow.transfer();
                    let notice = Notice::Undeliverable { transfer, reason: notice };
                    self.core.user.indicate(Indication::Transport(notice));
                }
            }
        }
    }

    /// Releases a stored block that the next engine has.
    fn release(&mut self, seq: Seq) {
        let Some(flow) = self.flows.get(seq) else { return };
        let transfer = flow.transfer();
        if let Origin::Before(session) = flow.origin {
            self.remove_stored(session);
        }
        self.core.user.indicate(Indication::Transport(Notice::Forwarded(transfer)));
        self.finish(seq);
    }

    fn remove_stored(&mut self, session: SessionId) {
        self.core.remove_record(session);
        let request = FilestoreRequest::DenyFile(record::file(session));
        self.core.shared.filestore(Handle::NOBODY, Job::Forget, request);
    }

    /// Finishes a transfer; another session of it is not accepted.
    fn finish(&mut self, seq: Seq) {
        let Some(flow) = self.forget(seq) else { return };
        let Some(config) = self.core.config.transport.as_ref() else { return };
        let finished = Finished { before: flow.before(), is_last: flow.is_last };
        self.flows.finished.insert_within(config.limits.finished, flow.id, finished);
    }

    fn forget(&mut self, seq: Seq) -> Option<Flow> {
        let flow = self.flows.remove(seq)?;
        self.core.ranges -= flow.ranges();
        for alarm in [Alarm::Retry(seq), Alarm::Expiry(seq)] {
            self.core.shared.timers.cancel((Handle::NOBODY, alarm));
        }
        self.core.user.limit_left(Limit::Storage);
        Some(flow)
    }

    /// Retries the next engine.
    pub(crate) fn retry(&mut self, now: Time, seq: Seq) {
        self.begin_hop(now, seq);
    }

    /// Ends a transfer whose lifetime has expired.
    pub(crate) fn expire(&mut self, seq: Seq) {
        self.give_up(seq, Stop::Expired);
    }

    /// Cancels a transfer that waits for its next attempt, or whose session has another number by
    /// now.
    pub(crate) fn cancel_transfer(&mut self, user: SessionId) -> bool {
        let found = self.flows.iter().find_map(|(seq, flow)| match &flow.origin {
            Origin::Here { id, .. } => (*id == user).then_some(seq),
            Origin::Before(_) => None,
        });
        let Some(seq) = found else { return false };
        let failure = Failure::new(Side::Sender, CancelReason::User);
        self.give_up(seq, Stop::Failed(failure));
        true
    }

    /// Restores blocks stored by an earlier run.
    pub(crate) fn restore_kept(&mut self, now: Time, records: &[(String, Bytes)]) {
        let Some(config) = self.core.config.transport.clone() else { return };
        let mut blocks = 0;
        for (key, value) in records {
            let Some((session, onward, stored)) = record::decode(key, value) else { continue };
            // Everything of the block that was announced has arrived.
            self.lost.settled(&mut self.core, session);
            let (Some(source), Some(number)) = (onward.source, onward.flow) else { continue };
            let Some(Address::Engine(destination)) = onward.destination.map(|end| end.address)
            else {
                continue;
            };
            let id = FlowId { source, number };
            let mut flow = Flow::new(id, destination, onward, Origin::Before(session));
            (flow.service, flow.reserved) = (stored.service, stored.shape.parts.covered());
            flow.kept = Some(stored);
            self.core.ranges += flow.ranges();
            let seq = self.flows.insert(flow);
            self.arm_expiry(seq, now);
            self.arm_retry(seq, now + config.retry);
            blocks += 1;
        }
        if blocks > 0 {
            self.core.user.indicate(Indication::Transport(Notice::Restored { blocks }));
        }
    }

    /// Decides about a session that starts with this segment.
    pub(crate) fn admit(&mut self, now: Time, segment: &Segment<'_>, data: &Data<'_>) -> Intake {
        if self.core.config.transport.is_none() {
            return Intake::Plain;
        }
        let Ok(transport) = Transport::from_extensions(segment.header) else {
            self.core.stats.decode_errors += 1;
            return Intake::Unknown;
        };
        let Some(destination) = transport.destination else {
            // These two kinds of segments carry the extension, if there is one.
            let says = data.offset == 0 || data.checkpoint.is_some();
            return if says { Intake::Plain } else { Intake::Unknown };
        };
        let (Some(source), Some(number)) = (transport.source, transport.flow) else {
            return UNREACHABLE;
        };
        let id = FlowId { source, number };
        match self.known(id, destination, segment.session) {
            Some(admission) => admission,
            None => self.admit_new(now, id, destination, data.service, segment.session, transport),
        }
    }

    /// Decides about a session of a known transfer, if the state of the transfer settles it.
    fn known(&mut self, id: FlowId, to: End, session: SessionId) -> Option<Intake> {
        let before = Some(session.originator);
        let is_last = to.address == Address::Engine(self.core.config.engine);
        if let Some(finished) = self.flows.finished.get(&id) {
            // Another path indicates a routing loop.
            let is_same = is_last && finished.is_last || finished.before == before;
            return Some(if is_same { Intake::Known } else { UNREACHABLE });
        }
        let known: Vec<_> =
            self.flows.with_id(id).map(|(seq, flow)| (seq, flow.before())).collect();
        for (seq, from) in known {
            if from == before {
                let flow = self.flows.get(seq)?;
                if flow.kept.is_some() {
                    return Some(Intake::Known);
                }
                // The previous engine restarted the transfer: data that was sent to it so far is
                // useless.
                self.supersede(seq);
            } else if !is_last {
                return Some(UNREACHABLE);
            }
        }
        None
    }

    fn admit_new(
        &mut self,
        now: Time,
        id: FlowId,
        to: End,
        service: u64,
        session: SessionId,
        transport: Transport,
    ) -> Intake {
        let Self { core, flows, .. } = self;
        let Some(config) = core.config.transport.as_ref() else { return Intake::Plain };
        let Address::Engine(destination) = to.address else { return UNREACHABLE };
        let is_last = destination == core.config.engine;
        let lifetime = transport.lifetime.unwrap_or_else(|| lifetime(config, now));
        // Blocks for this engine are welcome however late they arrive.
        if !is_last && (time_of(config, lifetime) <= now || lifetime.hops == 0) {
            return UNREACHABLE;
        }
        let size = transport.size.unwrap_or_default();
        let hops = lifetime.hops.saturating_sub(1);
        let onward = Transport {
            lifetime: Some(Lifetime { hops, ..lifetime }),
            congestion: None,
            ..transport
        };
        let mut flow = Flow::new(id, destination, onward, Origin::Before(session));
        (flow.is_last, flow.service) = (is_last, service);
        flow.reserved = if is_last { 0 } else { size };
        if is_last {
            // Only relayed blocks take storage meant for others.
            return if flows.len() < config.limits.transfers {
                Intake::Last(flows.insert(flow))
            } else {
                no_room(core, &flow)
            };
        }
        // A block that never fits is refused permanently.
        if size > config.limits.storage || next_hop(config, flows, now, destination, size).is_none()
        {
            return UNREACHABLE;
        }
        if flows.keeps(session) {
            // The working file is named after the session; the block can arrive by another session.
            return Intake::Refused(CancelReason::System, None);
        }
        let is_full = flows.len() >= config.limits.transfers
            || size > config.limits.storage.saturating_sub(flows.stored);
        if is_full {
            return no_room(core, &flow);
        }
        core.user.indicate(Indication::Transport(Notice::Relaying(flow.transfer())));
        let seq = flows.insert(flow);
        Intake::Onward(seq, Box::new(Relay::new(service, onward)))
    }
}

fn no_room(core: &mut Core, flow: &Flow) -> Intake {
    core.user.limit_reached(Limit::Storage);
    let notice = Notice::Refused { transfer: flow.transfer() };
    core.user.indicate(Indication::Transport(notice));
    Intake::Refused(CancelReason::System, core.config.transport.as_ref().map(congestion))
}

/// Congestion reported to a peer whose block has no room.
pub(crate) fn congestion(config: &Config) -> Congestion {
    let retry_after_s = config.retry_after.as_secs().max(1);
    Congestion { reason: CongestionReason::Storage, retry_after_s }
}

/// Lifetime of a block sent now.
pub(crate) fn lifetime(config: &Config, now: Time) -> Lifetime {
    let end = now + config.lifetime;
    let expiry_s = (config.clock / 1000).saturating_add(end.as_nanos().div_ceil(1_000_000_000));
    Lifetime { hops: config.hops, expiry_s }
}

/// Time at which a lifetime ends.
pub(crate) fn time_of(config: &Config, lifetime: Lifetime) -> Time {
    let seconds = lifetime.expiry_s.saturating_sub(config.clock / 1000);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000))
}

/// Next engine on the route, and when it can be reached.
pub(crate) fn next_hop(
    config: &Config,
    flows: &Flows,
    now: Time,
    destination: u64,
    bytes: u64,
) -> Option<(u64, Time)> {
    match &config.routing {
        Routing::Static { to, otherwise } => {
            let next = match (to.get(&destination), otherwise) {
                (Some(next), _) | (None, Otherwise::By(next)) => *next,
                (None, Otherwise::Itself) => destination,
                (None, Otherwise::Nowhere) => return None,
            };
            Some((next, now))
        }
        Routing::Contacts(_) => {
            let wanted = Wanted {
                destination,
                bytes,
                priority: Priority::Normal,
                expires: now + config.lifetime,
                excluded: &std::collections::BTreeSet::new(),
            };
            let route = flows.router.as_ref()?.routes(now, &wanted, 1).pop()?;
            Some((route.next_hop, route.leaves))
        }
    }
}
