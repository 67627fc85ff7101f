//! Licklider Transmission Protocol (RFC 5326; profile CCSDS 734.1-B).
//!
//! A [`Node`] sends and receives files as blocks, in any number of concurrent sessions. It is an
//! [`engine::Engine`]: it holds no socket, file or clock. Red data goes to a working file as it
//! arrives, so that a block may be larger than memory. A report claims the whole red part only
//! when it is safely stored. Sessions with red files go on after a restart of either side.
//!
//! # States
//!
//! A sending session opens its file, sends the red part with a checkpoint at its end and the
//! green part after it, and retransmits what reports do not claim, each time with a new
//! checkpoint. It is closed when a report claims all red data. Checkpoints without a report are
//! repeated.
//!
//! A receiving session collects data in any order and replies to each checkpoint with reports,
//! which it repeats until they are acknowledged. When the red part is complete it verifies, syncs
//! and renames the file, and then claims it. Either side cancels, and repeats that until it is
//! acknowledged. Timers stop while the path or its return is down.
//!
//! # Driving it
//!
//! `examples/ltp_lossy_link.rs` has a driver of 15 lines. [`Node::send`] starts a session, whose
//! end is [`Indication::Finished`] at both sides.
//!
//! # What it bounds
//!
//! [`Limits`] bounds sessions, unwritten data, claims and replies to strangers; reaching one is an
//! [`Indication`].

#![forbid(unsafe_code)]

mod authentication;
pub(crate) mod config;
pub(crate) mod cookies;
pub(crate) mod core;
mod file;
mod gaps;
mod hops;
mod incoming;
mod indication;
mod key;
pub mod ltpt;
mod profile;
mod receiver;
mod records;
mod refusal;
mod reports;
mod request;
pub mod segment;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;

pub(crate) mod sealed;
mod sender;
mod session;
mod silence;
mod supply;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
mod units;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

pub use ::session::authentication::{Authentication, Ciphersuite, Key};
use ::session::path::{Burst, Class, Handle, Pacing, Turn};
use ::session::recent::Recent;
use ::session::{Base, Change, Guest, Host, Seat, Slots, Turns};
use bytes::Bytes;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, IndexRequest, Input, PathEvent, PathId, Rng,
    Ticket, Time, Transmit, TxBuf,
};

/// The contract with a driver.
pub use engine;

pub use self::config::{Aggregation, Config, FILE_SERVICE, Format, Limits, Pin, Remote, Timer};
pub use self::indication::{
    Block, BlockContent, Cause, Failure, Finished, Indication, Limit, PeerError, Report,
    RequestError, SegmentCounts, Stats,
};
pub use self::profile::profile;
pub use self::records::{RECORD_PREFIX, SPOOL_PREFIX};
pub use self::request::{Again, Red, SendRequest};
pub(crate) use self::session::Session;

use self::core::{Alarm, Core, Job, Peer, Shared, Task};
use self::receiver::{Receiver, Stored};
use self::records::{Lost, Sending};
use self::sender::Sender;
use self::transport::flow::Flows;
use self::units::Gathered;
use crate::segment::ltpt::Congestion;
use crate::segment::{CancelReason, Segment, SessionId};

/// An LTP engine.
#[derive(Debug)]
pub struct Node {
    pub(crate) core: Core,
    pub(crate) slots: Slots<Session>,
    pub(crate) by_id: BTreeMap<SessionId, Handle>,
    /// Finished sessions.
    pub(crate) closed: Recent<SessionId, Closed>,
    /// LTP-T transfers.
    pub(crate) flows: Flows,
    /// Sessions of an earlier run.
    pub(crate) lost: Lost,
    gathered: Gathered,
    /// Paths on which engines without a configured path were last received.
    ways: BTreeMap<u64, PathId>,
    /// Receptions with a single segment, oldest first.
    half_open: Recent<SessionId, ()>,
    /// Sending sessions to engines that have not proven that they receive any, oldest first.
    answers: Recent<SessionId, ()>,
    /// Engines that sent from an unexpected address and were indicated.
    elsewhere: BTreeSet<u64>,
    /// Segments held for the processing delay of this host.
    held: VecDeque<(Time, PathId, Vec<u8>)>,
}

/// State remembered of a finished session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    /// Peer engine.
    peer: u64,
    left: Left,
}

/// Remains of a finished session.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Nothing.
    Nothing,
    /// Complete red part of this many bytes.
    Safe(u64),
    /// Not needed: another session brought the block.
    Elsewhere,
    /// Refused.
    Refused(CancelReason, Option<Congestion>),
}

/// Number of segments of a refused session after which the session is refused again, in case the
/// refusal was lost.
const REFUSE_EVERY: u64 = 16;

impl Node {
    /// Creates an engine with these settings.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let mut core = Core::new(config, rng);
        let flows = Flows::new(core.config.engine, core.config.transport.as_ref());
        let journal = core.config.journal;
        if journal {
            let load = IndexRequest::Load { prefix: RECORD_PREFIX.to_owned() };
            core.shared.index(Handle::NOBODY, Job::Own(Task::Load), load);
        }
        Self {
            core,
            slots: Slots::new(),
            by_id: BTreeMap::new(),
            ways: BTreeMap::new(),
            closed: Recent::new(),
            flows,
            lost: Lost::new(!journal),
            gathered: Gathered::default(),
            half_open: Recent::new(),
            answers: Recent::new(),
            elsewhere: BTreeSet::new(),
            held: VecDeque::new(),
        }
    }

    /// Creates an engine of blocks: nothing but the block is sent, and received blocks are handed
    /// over by [`Node::poll_block`] without a name. [`Config::format`] is ignored.
    #[must_use]
    pub fn of_blocks(config: Config, rng: Rng) -> Self {
        let format = Format::Raw { name: "block".to_owned() };
        let mut node = Self::new(Config { format, ..config }, rng);
        node.core.blocks = Some(VecDeque::new());
        node
    }

    /// Next complete block. Its sender is informed of the complete delivery when it is accepted.
    pub fn poll_block(&mut self) -> Option<Block> {
        self.core.blocks.as_mut()?.pop_front()
    }

    /// Accepts a block, which confirms it to its sender. A working file then belongs to the user.
    ///
    /// # Errors
    /// No such session is under way.
    pub fn accept_block(&mut self, now: Time, id: SessionId) -> Result<(), RequestError> {
        let handle = *self.by_id.get(&id).ok_or(RequestError::NoSession(id))?;
        if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
            receiver.accepted(&mut self.core, now);
        }
        self.settle(handle);
        Ok(())
    }

    /// Sends bytes as a block.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn send_bytes(
        &mut self,
        now: Time,
        destination: u64,
        service: u64,
        block: Bytes,
        red: Red,
    ) -> Result<SessionId, RequestError> {
        self.check_destination(destination)?;
        if !self.has_room() {
            return Err(RequestError::TooManySessions);
        }
        let (base, peer) = self.new_session(now, destination);
        let sender = Sender::of_bytes(base, peer, destination, service, block, red, &mut self.core);
        Ok(self.begin(sender))
    }

    /// Whether another session can start here.
    pub fn has_room(&self) -> bool {
        self.by_id.len() < self.core.config.limits.sessions
    }

    /// Whether the records of an earlier run were read, and its sessions go on.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.lost.is_known
    }

    /// Settings of the engine.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters since the engine's start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Sessions under way, in order of their identifiers.
    pub fn sessions(&self) -> impl Iterator<Item = Report> + '_ {
        self.by_id.values().filter_map(|handle| self.slots.get(*handle)).map(Session::report)
    }

    /// Address of the peer of a session under way, if it is known.
    #[must_use]
    pub fn peer_address(&self, id: SessionId) -> Option<SocketAddr> {
        let session = self.slots.get(*self.by_id.get(&id)?)?;
        self.core.shared.paths.get(&session.base_of().seat.path?)?.peer()
    }

    /// Sends a file to another engine. A request that an earlier run began goes on.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn send(&mut self, now: Time, request: SendRequest) -> Result<SessionId, RequestError> {
        self.send_as(now, request, None)
    }

    /// Sends a block, all red, as a session whose number all runs of this engine derive from its
    /// content. If another session had the number, a random one starts over.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn send_again(
        &mut self,
        now: Time,
        request: SendRequest,
        again: Again,
    ) -> Result<SessionId, RequestError> {
        self.send_as(now, request, Some(again))
    }

    fn send_as(
        &mut self,
        now: Time,
        request: SendRequest,
        again: Option<Again>,
    ) -> Result<SessionId, RequestError> {
        if request.name.is_empty() || request.name.len() > file::NAME_MAX {
            return Err(RequestError::Name);
        }
        self.core.now = self.core.now.max(now);
        if let Some(config) = self.core.config.transport.clone() {
            if request.destination == self.core.config.engine {
                return Err(RequestError::Oneself);
            }
            return self.send_onward(now, &config, request);
        }
        self.check_destination(request.destination)?;
        if let Some(id) = self.slots.iter().find_map(|session| session.continues(&request)) {
            return Ok(id);
        }
        if !self.has_room() {
            return Err(RequestError::TooManySessions);
        }
        let (base, mut peer) = self.new_session(now, request.destination);
        let wanted = again.map(|again| (self.id_of(again.number), again.resumes));
        let wanted = wanted.filter(|(id, _)| self.is_free(*id));
        if let Some((id, _)) = wanted {
            peer.session = id;
        }
        let mut sender = Sender::of_file(base, peer, request, &mut self.core);
        if wanted.is_some_and(|(_, resumes)| resumes) {
            sender.go_on();
        }
        Ok(self.begin(sender))
    }

    /// Checks whether an engine can be sent to.
    pub(crate) fn check_destination(&self, destination: u64) -> Result<(), RequestError> {
        if destination == self.core.config.engine {
            return Err(RequestError::Oneself);
        }
        if self.way_to(destination).is_none() && self.core.shared.paths.len() > 1 {
            return Err(RequestError::NoPath(destination));
        }
        Ok(())
    }

    /// Sets the path to an engine without a configured one: sessions to it use this path, and its
    /// segments are accepted on others. The caller bounds the number of entries.
    pub fn set_way(&mut self, engine: u64, path: PathId) {
        self.ways.insert(engine, path);
    }

    /// Forgets the path set to an engine.
    pub fn forget_way(&mut self, engine: u64) {
        self.ways.remove(&engine);
    }

    /// Path to an engine, if configured or set.
    fn way_to(&self, engine: u64) -> Option<PathId> {
        self.core.config.remote(engine).path.or_else(|| self.ways.get(&engine).copied())
    }

    /// Initial state of a session to an engine.
    pub(crate) fn new_session(&mut self, now: Time, destination: u64) -> (Base<Alarm>, Peer) {
        let remote = self.core.config.remote(destination).clone();
        let path = self.way_to(destination).or_else(|| self.core.shared.only_path());
        let mut peer = Peer::new(self.new_id(), remote);
        // An engine known only by its segments gets no more than its share before it replies.
        let is_answer = peer.remote.path.is_none() && self.ways.contains_key(&destination);
        peer.is_proven = !is_answer || path.is_some_and(|path| self.core.proven.contains(&path));
        let handle = self.slots.reserve();
        (Base::new(&mut self.core.shared.paths, handle, path, now), peer)
    }

    fn begin(&mut self, sender: Sender) -> SessionId {
        let id = sender.id();
        self.core.user.indicate(Indication::Started(id));
        self.core.shared.senders += 1;
        if !sender.peer.is_proven {
            self.make_room_for_answer();
            self.answers.insert(id, ());
        }
        self.fill(sender.base.seat.handle, id, Session::Sender(Box::new(sender)));
        id
    }

    pub(crate) fn fill(&mut self, handle: Handle, id: SessionId, session: Session) {
        self.by_id.insert(id, handle);
        self.core.sessions = self.by_id.len();
        self.slots.fill(handle, session);
    }

    /// Cancels a session and notifies the peer (§6.19).
    ///
    /// # Errors
    /// No such session is under way.
    pub fn cancel(&mut self, now: Time, id: SessionId) -> Result<(), RequestError> {
        self.cancel_for(now, id, CancelReason::User)
    }

    /// Cancels a session for this reason.
    ///
    /// # Errors
    /// No such session is under way.
    pub fn cancel_for(
        &mut self,
        now: Time,
        id: SessionId,
        reason: CancelReason,
    ) -> Result<(), RequestError> {
        self.core.now = self.core.now.max(now);
        if self.cancel_transfer(id) {
            return Ok(());
        }
        let handle = *self.by_id.get(&id).ok_or(RequestError::NoSession(id))?;
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.cancel(&mut self.core, reason),
            Some(Session::Receiver(receiver)) => receiver.cancel(&mut self.core, reason),
            None => {}
        }
        self.settle(handle);
        Ok(())
    }

    /// Changes the settings for a remote engine. Sessions in progress keep theirs, but move to its
    /// path: a reception would otherwise report to an address that is no longer used.
    pub fn set_remote(&mut self, now: Time, engine: u64, remote: Remote) {
        self.core.now = self.core.now.max(now);
        let path = remote.path;
        self.core.config.remotes.insert(engine, remote);
        let Self { core, slots, .. } = self;
        for session in slots.iter_mut().filter(|session| session.engine() == engine) {
            session.peer_mut().remote.path = path;
            if let Some(path) = path.filter(|path| session.base_of().seat.path != Some(*path)) {
                session.base().move_to(&mut core.shared, now, path);
                session.want_all(core);
            }
        }
    }

    /// Random session number that is not in use (RFC 5326 §9.1).
    pub(crate) fn new_id(&mut self) -> SessionId {
        loop {
            let number = self.core.rng.next_u64();
            let id = self.id_of(number);
            if self.is_free(id) {
                return id;
            }
        }
    }

    /// Session whose number, within the configured bounds, a number of 64 bits stands for.
    fn id_of(&self, number: u64) -> SessionId {
        let (least, most) = self.core.config.session_numbers();
        let above = (u128::from(number) * u128::from(most - least)) >> 64;
        SessionId { originator: self.core.config.engine, number: least + above as u64 }
    }

    /// Whether no session has this number, and none that is remembered had it.
    fn is_free(&self, id: SessionId) -> bool {
        !self.by_id.contains_key(&id) && !self.closed.contains(&id)
    }

    fn path_event(&mut self, now: Time, id: PathId, event: PathEvent) {
        let config = &self.core.config;
        let remote = config.remotes.values().find(|remote| remote.path == Some(id));
        let remote = remote.unwrap_or(&config.default_remote);
        let pacing = Pacing {
            rate_bps: remote.rate_bps,
            interval: remote.interval,
            pace_as: None,
            catch_up: config.catch_up,
        };
        if event == PathEvent::Down {
            self.core.forget_path(id);
        }
        let Some(change) = self.core.shared.path_event(id, event, pacing) else { return };
        let only = self.core.shared.only_path();
        if only.is_none() && !self.core.shared.paths.has_sessions(id) {
            return;
        }
        for session in self.slots.iter_mut() {
            let base = session.base();
            if base.seat.path.is_none()
                && let Some(only) = only
            {
                base.seat.set_path(&mut self.core.shared.paths, only);
            }
            if base.seat.path != Some(id) {
                continue;
            }
            // Time does not count while the link is known to be down (§6.5).
            base.follow(&mut self.core.shared, now);
            if change == Change::Resumed {
                session.resume(&mut self.core, now);
            }
        }
    }

    fn restore(&mut self, answer: Result<Completion, EffectError>) {
        let records = match answer {
            Ok(Completion::Records(records)) => records,
            Ok(_) | Err(_) => {
                self.core.stats.storage_errors += 1;
                Vec::new()
            }
        };
        self.lost.is_known = true;
        for (id, red) in records::restore_done(&mut self.core, &records) {
            let (max, left) = (self.core.config.limits.closed, Left::Safe(red));
            self.closed.insert_within(max, id, Closed { peer: id.originator, left });
        }
        for (id, record) in key::with_sessions(&records, SPOOL_PREFIX) {
            self.resume_receiving(id, record);
        }
        for (id, record) in key::with_sessions(&records, records::SENT_PREFIX) {
            self.resume_sending(id, record);
        }
        self.restore_kept(self.core.now, &records);
        if self.lost.len() > 0 {
            self.core.user.indicate(Indication::Interrupted { sessions: self.lost.len() });
        }
    }

    /// Continues a reception of an earlier run, or makes sure that it is cancelled.
    fn resume_receiving(&mut self, id: SessionId, record: &Bytes) {
        let stored = Stored::decode(record).filter(|_| self.has_room());
        let Some(stored) = stored else {
            self.lost.add(&mut self.core, id);
            return;
        };
        if self.closed.contains(&id) {
            // The file has its name.
            records::forget_reception(&mut self.core, id);
            return;
        }
        let peer = Peer::new(id, self.core.config.remote(id.originator).clone());
        let path = peer.remote.path;
        // Whose it is shows when its peer sends again.
        let host = path.map(|path| self.core.shared.paths.host(path));
        let host = host.unwrap_or(Host::Path(PathId(u32::MAX)));
        let guest = Guest { host, is_known: path.is_some() };
        let handle = self.slots.reserve();
        let base = Base::new(&mut self.core.shared.paths, handle, path, self.core.now);
        let receiver = Receiver::resumed(base, peer, &mut self.core, stored);
        self.core.shared.places.enter(handle, self.core.now, guest);
        self.core.shared.places.gained(handle, receiver.arrived().covered());
        self.fill(handle, id, Session::Receiver(Box::new(receiver)));
        self.settle(handle);
    }

    /// Continues to send a file of an earlier run.
    fn resume_sending(&mut self, id: SessionId, record: &Bytes) {
        let sending = Sending::decode(record).filter(|_| self.has_room());
        let Some(sending) = sending else {
            records::forget_sending(&mut self.core, id);
            return;
        };
        let (base, mut peer) = self.new_session(self.core.now, sending.request.destination);
        peer.session = id;
        let sender = Sender::resumed(base, peer, sending, &mut self.core);
        self.begin(sender);
    }

    fn effect_done(&mut self, now: Time, ticket: Ticket, answer: Result<Completion, EffectError>) {
        let Some((handle, job)) = self.core.shared.completed(ticket) else { return };
        if job == Job::Forget {
            return;
        }
        if job == Job::Own(Task::Load) {
            self.restore(answer);
            return;
        }
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.done(&mut self.core, job, answer),
            Some(Session::Receiver(receiver)) => receiver.done(&mut self.core, now, job, answer),
            None => self.core.shared.orphaned(&job, &answer),
        }
        self.pass_on(handle);
        self.settle(handle);
    }
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
        let Core { shared, stats, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |bytes| {
            if let Ok(segment) = Segment::decode(bytes) {
                stats.sent.count(&segment.body);
            }
        });
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.emit(&mut self.core, class, burst),
            Some(Session::Receiver(receiver)) => receiver.emit(&mut self.core, burst),
            None => Turn::Over,
        }
    }

    fn settle(&mut self, handle: Handle) {
        self.settle_transfers();
        if self.slots.get(handle).is_some_and(Session::is_done) {
            let Some(mut session) = self.slots.take(handle) else { return };
            session.base().disarm_all(&mut self.core.shared);
            let (id, peer, left) = match &mut session {
                Session::Sender(sender) => {
                    self.core.shared.senders -= 1;
                    self.core.units -= sender.units();
                    (sender.id(), sender.destination(), Left::Nothing)
                }
                Session::Receiver(receiver) => {
                    receiver.let_go(&mut self.core);
                    let left = match (receiver.delivered(), receiver.refused()) {
                        (Some(red), _) => Left::Safe(red),
                        (None, Some(reason)) => Left::Refused(reason, None),
                        (None, None) => Left::Nothing,
                    };
                    (receiver.id(), receiver.id().originator, left)
                }
            };
            self.by_id.remove(&id);
            self.core.shared.places.leave(handle);
            self.answers.forget(&id);
            self.core.sessions = self.by_id.len();
            // One that made room for another leaves the limit reached.
            if self.by_id.len() * 2 <= self.core.config.limits.sessions {
                self.core.user.limit_left(Limit::Sessions);
            }
            self.core.user.limit_left(Limit::Units);
            // If the session was dropped for others, the peer's next segment starts it again.
            let is_displaced =
                matches!(&session, Session::Receiver(receiver) if receiver.is_displaced());
            if self.half_open.forget(&id).is_none() && !is_displaced {
                let max = self.core.config.limits.closed;
                self.closed.insert_within(max, id, Closed { peer, left });
            }
        }
        if std::mem::take(&mut self.core.shared.flush_wanted) {
            let mut is_any_flushed = false;
            for session in self.slots.iter_mut() {
                if let Session::Receiver(receiver) = session {
                    is_any_flushed |= receiver.flush(&mut self.core);
                }
            }
            // Otherwise there is nothing more to read, and a sender that waits for more would loop.
            if is_any_flushed {
                self.pass_on_all();
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
            match alarm {
                Alarm::Units(destination) => {
                    self.units_are_due(now, destination);
                    continue;
                }
                Alarm::Host => {
                    self.take_held(now);
                    continue;
                }
                Alarm::Retry(flow) => {
                    self.retry(now, flow);
                    self.settle(Handle::NOBODY);
                    continue;
                }
                Alarm::Expiry(flow) => {
                    self.expire(flow);
                    self.settle(Handle::NOBODY);
                    continue;
                }
                Alarm::Checkpoint(_)
                | Alarm::Report(_)
                | Alarm::Cancel
                | Alarm::Inactivity
                | Alarm::Gaps => {}
            }
            let Some(session) = self.slots.get_mut(handle) else { continue };
            session.base().disarm(&mut self.core.shared, alarm);
            match session {
                Session::Sender(sender) => sender.alarm(&mut self.core, now, alarm),
                Session::Receiver(receiver) => receiver.alarm(&mut self.core, now, alarm),
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
