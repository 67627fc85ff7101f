//! NACK-Oriented Reliable Multicast (RFC 5740, with the building blocks of RFC 5401 and 5052).
//!
//! A [`Node`] sends objects to a group or to one receiver, and receives objects from any number of
//! senders. It is an [`engine::Engine`]: it holds no socket, file or clock. Receivers request lost
//! segments, in a group after a random wait that suppresses duplicate requests. The sender repairs
//! with parity segments, each of which repairs a different loss at each receiver.
//!
//! Where the reference implementation of the U.S. Naval Research Laboratory differs from the RFC,
//! this one follows the implementation, as it is the one deployed.
//!
//! # States
//!
//! A sender opens an object, sends NORM_INFO and its segments, then flushes: it requests NACKs,
//! or for acknowledgments by name, until no receiver lacks anything. Requests lead to repairs,
//! parity first. A carousel starts again instead.
//!
//! A receiver synchronises with a sender at an object's first segments, collects blocks, requests
//! what a completed block lacks after a random wait, recovers blocks from any sufficient set of
//! segments, and syncs and renames the file when all are there.
//!
//! # Driving it
//!
//! `examples/norm_lossy_link.rs` has a driver of 20 lines. A path is a peer or a group
//! ([`Config::groups`]). [`Node::send`] starts an object, whose end is [`Indication::Finished`].
//!
//! # What it bounds
//!
//! [`Limits`] bounds objects, senders, buffered blocks and streams; reaching one is an
//! [`Indication`].

#![forbid(unsafe_code)]

mod answers;
mod bits;
mod coding;
mod commands;
mod config;
mod congestion;
mod core;
mod digest;
mod endgame;
pub mod fec;
mod group_size;
mod grtt;
mod incoming;
mod indication;
mod input;
mod jobs;
mod losses;
mod members;
pub mod message;
mod outgoing;
mod profile;
mod receiver;
mod reception;
mod refusal;
mod repaired;
mod report;
mod requested;
mod sender;
mod stream;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;
#[cfg(test)]
mod tests;
mod transmission;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
/// The contract with a driver.
pub use engine;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, Input, PathEvent, PathId, Rng, Ticket, Time,
    Transmit, TxBuf,
};
use session::path::{Burst, Class, Handle, Pacing, Path, Turn};

pub use session::timer::Timer;
use session::{Base, Change, Seat, Slots, Turns};

pub use self::config::{
    Config, EndGame, Join, Limits, Nacking, ReceiverConfig, RepairBoundary, SenderConfig,
    SyncPolicy, Waste,
};
pub use self::incoming::SPOOL_PREFIX;
pub use self::indication::{
    Content, Failure, Finished, Indication, Limit, MessageCounts, ObjectId, Piece, Report,
    RequestError, SendRequest, Stats, StreamOptions,
};
pub use self::profile::profile;
pub use crate::message::Scheme;

use self::coding::Coding;
use self::commands::Commands;
use self::core::{Alarm, Core, Job, Shared, Task};
use self::members::Members;
use self::outgoing::Outgoing;
use self::receiver::{Receiver, SenderId};
use self::sender::Sender;
use crate::message::NodeId;

/// A NORM node.
#[derive(Debug)]
pub struct Node {
    core: Core,
    slots: Slots<Session>,
    senders: BTreeMap<PathId, Handle>,
    receivers: BTreeMap<SenderId, Handle>,
}

#[derive(Debug)]
enum Session {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
    /// Object of a session, which receives the results of its effects.
    Object {
        of: Handle,
        number: u64,
    },
}

impl Node {
    /// Creates a node with these settings. It requests the records of an earlier run from its store
    /// at once, if any object may resume.
    #[must_use]
    pub fn new(mut config: Config, rng: Rng) -> Self {
        let sender = &mut config.sender;
        if sender.is_one_way() {
            // Receivers cannot acknowledge.
            sender.end = EndGame::Flush;
        }
        let mut core = Core::new(config, rng);
        core.load_records();
        Self { core, slots: Slots::new(), senders: BTreeMap::new(), receivers: BTreeMap::new() }
    }

    /// Settings of the node.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Number of the node, `NormNodeId`.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.core.node.0
    }

    /// Counters since the node's start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Loss of coded objects to the receiver that lost most, and the number of segments that it was
    /// measured with.
    #[must_use]
    pub fn loss(&self) -> Option<(f64, f64)> {
        let mut senders = self.slots.iter().filter_map(|session| match session {
            Session::Sender(sender) => sender.loss_before,
            Session::Receiver(_) | Session::Object { .. } => None,
        });
        senders.find(|loss| Some(*loss) != self.core.config.sender.loss_before)
    }

    /// Silence of the remote senders after which none needs another report on a finished object;
    /// zero if all have ended their sessions.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let silence = |session: &Session| match session {
            Session::Receiver(receiver) => receiver.silence_of_end(),
            Session::Sender(_) | Session::Object { .. } => Duration::ZERO,
        };
        self.slots.iter().map(silence).max().unwrap_or_default()
    }

    /// Whether the records of an earlier run were read. Until then no coded file begins.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.core.partials.is_restored
    }

    /// Objects under way.
    pub fn objects(&self) -> impl Iterator<Item = Report> + '_ {
        self.slots.iter().flat_map(|session| -> Box<dyn Iterator<Item = Report> + '_> {
            match session {
                Session::Sender(sender) => Box::new(sender.reports()),
                Session::Receiver(receiver) => Box::new(receiver.reports()),
                Session::Object { .. } => Box::new(std::iter::empty()),
            }
        })
    }

    /// Received object that waits for the effect with this ticket.
    pub fn asker(&self, ticket: Ticket) -> Option<Report> {
        let Session::Object { of, number } = self.slots.get(self.core.shared.asker(ticket)?)?
        else {
            return None;
        };
        match self.slots.get(*of)? {
            Session::Receiver(receiver) => receiver.report(*number),
            Session::Sender(_) | Session::Object { .. } => None,
        }
    }

    /// Bytes of memory used for objects. A lower estimate, bounded by [`Limits`] for objects of any
    /// size.
    #[must_use]
    pub fn memory(&self) -> usize {
        let of = |session: &Session| match session {
            Session::Sender(sender) => size_of::<Sender>() + sender.memory(),
            Session::Receiver(receiver) => size_of::<Receiver>() + receiver.memory(),
            Session::Object { .. } => size_of::<Session>(),
        };
        self.slots.iter().map(of).sum::<usize>()
            + self.core.shared.room.held()
            + self.core.partials.memory()
            + self.core.decoder_memory()
            + self.core.shared.replies.memory()
    }

    /// Queues an object for sending.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn send(&mut self, now: Time, request: SendRequest) -> Result<ObjectId, RequestError> {
        let path = self.core.shared.paths.get(&request.peer);
        let mtu = path.map(Path::mtu).filter(|mtu| *mtu > 0);
        let is_coded = self.core.config.sender.has_long_blocks();
        let others = digest::DIGEST_LEN + digest::VERSION_LEN;
        let header = INFO_HEADER + if is_coded { others } else { 0 };
        let max = mtu.map_or(usize::from(u16::MAX), |mtu| mtu.saturating_sub(header));
        if request.info.len() > max {
            return Err(RequestError::InfoTooLong { len: request.info.len(), max });
        }
        stream::check(&self.core.config, &request.content)?;
        let parent = self.sender(now, request.peer)?;
        let handle = self.slots.reserve();
        let Some(Session::Sender(sender)) = self.slots.get_mut(parent) else {
            return Err(RequestError::TooManyObjects);
        };
        let number = sender.next_number;
        let id = ObjectId { peer: request.peer, sender: self.core.node.0, number };
        self.core.user.indicate(Indication::Started {
            id,
            is_sender: true,
            info: request.info.clone(),
        });
        self.core.shared.senders += 1;
        let object = Outgoing::new(id, handle, request.content, request.info);
        sender.add(&mut self.core, now, object);
        self.slots.fill(handle, Session::Object { of: parent, number });
        Ok(id)
    }

    /// Cancels an object.
    ///
    /// # Errors
    /// No such object is under way.
    pub fn cancel(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        let ours = id.sender == self.core.node.0;
        let found = self.slots.iter_mut().any(|session| match session {
            Session::Sender(sender) if ours && sender.path == id.peer => {
                sender.cancel(&mut self.core, now, id.number, Failure::Cancelled)
            }
            Session::Receiver(receiver) if receiver.sender.node.0 == id.sender => {
                let object = receiver.object(id.number).filter(|object| object.id == id);
                let found = object.map(|object| object.fail(&mut self.core, Failure::Cancelled));
                receiver.settle(&mut self.core, now);
                found.is_some()
            }
            Session::Sender(_) | Session::Receiver(_) | Session::Object { .. } => false,
        });
        self.free_places();
        if found { Ok(()) } else { Err(RequestError::NoObject(id)) }
    }

    /// Sends a command to all receivers on a path, ahead of data (RFC 5740 §4.2.3.7). It is sent
    /// `times` times, by default `robust_factor` times, at intervals of twice the greatest round
    /// trip. The returned number identifies it in [`Indication::CommandSent`] and
    /// [`Node::stop_command`]. Receivers of this implementation indicate it once.
    ///
    /// # Errors
    /// The command is refused; nothing was started.
    pub fn command(
        &mut self,
        now: Time,
        peer: PathId,
        bytes: Bytes,
        times: Option<u32>,
    ) -> Result<u64, RequestError> {
        // A command must not exceed a segment (§4.2.3.7), whose header is the longer one.
        let config = &self.core.config.sender;
        let coding = Coding::new(config).map_err(RequestError::Settings)?;
        let longest = config.segment_size.map_or(usize::from(u16::MAX), usize::from);
        let max = self.room(peer, coding.data_header(true)).min(longest);
        if bytes.len() > max {
            return Err(RequestError::CommandTooLong { len: bytes.len(), max });
        }
        let times = times.unwrap_or(self.core.config.sender.robust_factor);
        self.on_path(now, peer, |commands, _, core| commands.queue(core, now, bytes, times))?
    }

    /// Stops repeating a command.
    ///
    /// # Errors
    /// No command with this number is being repeated.
    pub fn stop_command(&mut self, peer: PathId, number: u64) -> Result<(), RequestError> {
        let handle = self.senders.get(&peer).copied();
        let session = handle.and_then(|handle| self.slots.get_mut(handle));
        let Some(Session::Sender(sender)) = session else { return Err(RequestError::NoQuestion) };
        let found = sender.command(&mut self.core, |commands, _, _| commands.stop_command(number));
        if found { Ok(()) } else { Err(RequestError::NoQuestion) }
    }

    /// Sends a question to the receivers' applications (RFC 5740 §4.2.3.6): to `nodes`, or to all
    /// known receivers if empty. The application defines the meaning of `kind`, 16 to 255. The
    /// returned number identifies the question in [`Indication::Answered`] and
    /// [`Indication::QuestionOver`]. Questions are sent one after the other.
    ///
    /// # Errors
    /// The question is refused; nothing was started.
    pub fn question(
        &mut self,
        now: Time,
        peer: PathId,
        kind: u8,
        nodes: &[u32],
    ) -> Result<u8, RequestError> {
        if kind < message::Ack::APPLICATION {
            return Err(RequestError::NoKind(kind));
        }
        self.on_path(now, peer, |commands, members, core| {
            let given = nodes.iter().copied().map(NodeId);
            let received = members.iter().filter(|_| nodes.is_empty());
            commands.question(core, now, kind, given.chain(received))
        })?
    }

    /// Answers a sender's question, each time it is repeated: `peer` and `node` come from
    /// [`Indication::Question`].
    ///
    /// # Errors
    /// The question does not exist, or the answer does not fit in one message.
    pub fn answer(
        &mut self,
        now: Time,
        (peer, node): (PathId, u32),
        (kind, id): (u8, u8),
        bytes: Bytes,
    ) -> Result<(), RequestError> {
        let max = self.room(peer, ANSWER_HEADER);
        if bytes.len() > max {
            return Err(RequestError::CommandTooLong { len: bytes.len(), max });
        }
        let handle = self.receivers.get(&SenderId { path: peer, node: NodeId(node) }).copied();
        let session = handle.and_then(|handle| self.slots.get_mut(handle));
        let Some(Session::Receiver(receiver)) = session else {
            return Err(RequestError::NoQuestion);
        };
        let found = receiver.answer_question(&mut self.core, now, (kind, id), bytes);
        if found { Ok(()) } else { Err(RequestError::NoQuestion) }
    }

    /// Ends the session on a path (RFC 5740 §4.2.3.2). Everything under way is given up, and
    /// receivers are notified `robust_factor` times. They do not depend on it; it saves them
    /// requests to a vanished sender. Later objects belong to a new session. Returns `false` if
    /// there is no session; otherwise [`Indication::SessionEnded`] follows the last notification.
    pub fn end(&mut self, now: Time, peer: PathId) -> bool {
        let handle = self.senders.get(&peer).copied();
        let session = handle.and_then(|handle| self.slots.get_mut(handle));
        let Some(Session::Sender(sender)) = session else { return false };
        sender.end(&mut self.core, now);
        self.free_places();
        true
    }

    /// Bytes available in a message on a path after a header of `header` bytes.
    fn room(&self, path: PathId, header: usize) -> usize {
        let mtu = self.core.shared.paths.get(&path).map(Path::mtu).filter(|mtu| *mtu > 0);
        mtu.map_or(usize::from(u16::MAX), |mtu| mtu.saturating_sub(header))
    }

    /// Applies `job` to the commands of the sender on a path.
    fn on_path<T>(
        &mut self,
        now: Time,
        path: PathId,
        job: impl FnOnce(&mut Commands, &Members, &mut Core) -> T,
    ) -> Result<T, RequestError> {
        let handle = match self.senders.get(&path).copied() {
            Some(handle) => handle,
            None => self.sender(now, path)?,
        };
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) if !sender.commands.is_ending() => {
                Ok(sender.command(&mut self.core, job))
            }
            Some(Session::Sender(_) | Session::Receiver(_) | Session::Object { .. }) | None => {
                Err(RequestError::Ending)
            }
        }
    }

    /// Forgets a sender whose session has ended.
    fn forget_ended(&mut self, handle: Handle) {
        let Some(Session::Sender(sender)) = self.slots.get_mut(handle) else { return };
        if !sender.commands.has_ended() {
            return;
        }
        sender.base.disarm_all(&mut self.core.shared);
        self.senders.remove(&sender.path);
        self.slots.take(handle);
    }

    /// Sender on a path, if it accepts another object.
    fn sender(&mut self, now: Time, path: PathId) -> Result<Handle, RequestError> {
        if let Some(handle) = self.senders.get(&path).copied() {
            let most = self.core.config.limits.objects;
            return match self.slots.get(handle) {
                Some(Session::Sender(sender)) if sender.has_stream() => Err(RequestError::Stream),
                Some(Session::Sender(it)) if it.commands.is_ending() => Err(RequestError::Ending),
                Some(Session::Sender(sender)) if sender.objects() >= most => {
                    Err(RequestError::TooManyObjects)
                }
                _ => Ok(handle),
            };
        }
        let coding = Coding::new(&self.core.config.sender).map_err(RequestError::Settings)?;
        let handle = self.slots.reserve();
        let base = Base::new(&mut self.core.shared.paths, handle, Some(path), now);
        let mut sender = Sender::new(base, path, coding, &mut self.core);
        // Replies identify the session by this number alone.
        let is_taken = |instance| {
            self.slots
                .iter()
                .any(|session| matches!(session, Session::Sender(other) if other.is(instance)))
        };
        while is_taken(sender.instance()) {
            sender.renumber();
        }
        self.slots.fill(handle, Session::Sender(Box::new(sender)));
        self.senders.insert(path, handle);
        Ok(handle)
    }

    /// Releases the slots of finished objects.
    fn free_places(&mut self) {
        for handle in std::mem::take(&mut self.core.free) {
            self.slots.take(handle);
        }
    }

    fn path_event(&mut self, now: Time, id: PathId, event: PathEvent) {
        let config = &self.core.config;
        let pacing = Pacing {
            rate_bps: config.rate_bps.get(&id).copied().or(config.rate_all_bps),
            catch_up: config.catch_up,
            ..Pacing::default()
        };
        let is_renewed = matches!(event, PathEvent::Up(_));
        let Some(change) = self.core.shared.path_event(id, event, pacing) else {
            let sender = self.senders.get(&id).copied().filter(|_| is_renewed);
            if let Some(Session::Sender(sender)) = sender.and_then(|at| self.slots.get_mut(at)) {
                sender.advance(&mut self.core, now);
                self.free_places();
            }
            return;
        };
        for session in self.slots.iter_mut() {
            let base = match session {
                Session::Sender(sender) => &mut sender.base,
                Session::Receiver(receiver) => &mut receiver.base,
                Session::Object { .. } => continue,
            };
            if base.seat.path != Some(id) {
                continue;
            }
            let before = base.last_received;
            base.follow(&mut self.core.shared, now);
            let away = base.last_received.since(before);
            match session {
                Session::Sender(sender) => {
                    sender.shift(away);
                    if change == Change::Resumed {
                        sender.resume(&mut self.core, now);
                    }
                }
                Session::Receiver(receiver) if change == Change::Resumed => {
                    receiver.resume(&mut self.core, now);
                }
                Session::Receiver(_) | Session::Object { .. } => {}
            }
        }
        self.free_places();
    }

    /// Processes the records of an earlier run.
    fn restored(&mut self, now: Time, answer: Result<Completion, EffectError>) {
        let records = match answer {
            Ok(Completion::Records(records)) => records,
            Ok(_) | Err(_) => {
                self.core.stats.storage_errors += 1;
                Vec::new()
            }
        };
        self.core.restore(records);
        for handle in self.senders.values() {
            if let Some(Session::Sender(sender)) = self.slots.get_mut(*handle) {
                sender.advance(&mut self.core, now);
            }
        }
        self.free_places();
    }

    fn effect_done(&mut self, now: Time, ticket: Ticket, answer: Result<Completion, EffectError>) {
        let Some((handle, job)) = self.core.shared.completed(ticket) else { return };
        match job {
            Job::Own(Task::Load) => return self.restored(now, answer),
            Job::Own(Task::Record(record)) => {
                self.core.stats.storage_errors += u64::from(answer.is_err());
                return self.core.record_done(record);
            }
            _ => {}
        }
        let Some(Session::Object { of, number }) = self.slots.get(handle) else {
            self.core.orphaned(handle, &job, &answer);
            return;
        };
        let (of, number) = (*of, *number);
        match self.slots.get_mut(of) {
            Some(Session::Sender(sender)) => {
                match sender.object(number) {
                    Some(object) => object.done(&mut self.core, job, answer),
                    None => self.core.orphaned(handle, &job, &answer),
                }
                sender.advance(&mut self.core, now);
            }
            Some(Session::Receiver(receiver)) => {
                match receiver.object(number) {
                    Some(object) => object.done(&mut self.core, job, answer),
                    None => self.core.orphaned(handle, &job, &answer),
                }
                receiver.settle(&mut self.core, now);
                receiver.reseat(&mut self.core);
            }
            Some(Session::Object { .. }) | None => self.core.orphaned(handle, &job, &answer),
        }
        self.free_places();
    }
}

/// Bytes of NORM_ACK before the application's answer, with EXT_CC.
const ANSWER_HEADER: usize = 36;

/// Bytes of NORM_INFO before its content, with the longest FEC object transmission information.
pub(crate) const INFO_HEADER: usize = 32;

impl Turns for Node {
    type Alarm = Alarm;
    type Job = Task;

    fn shared(&mut self) -> &mut Shared {
        &mut self.core.shared
    }

    fn seat(&mut self, handle: Handle) -> Option<&mut Seat> {
        match self.slots.get_mut(handle)? {
            Session::Sender(sender) => Some(&mut sender.base.seat),
            Session::Receiver(receiver) => Some(&mut receiver.base.seat),
            Session::Object { .. } => None,
        }
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        let Core { shared, stats, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |_| {});
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        match self.slots.get_mut(handle) {
            Some(Session::Sender(sender)) => sender.emit(&mut self.core, class, burst),
            Some(Session::Receiver(receiver)) => receiver.emit(&mut self.core, class, burst),
            Some(Session::Object { .. }) | None => Turn::Over,
        }
    }

    fn settle(&mut self, handle: Handle) {
        self.forget_ended(handle);
        self.free_places();
    }
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.core.now = now;
        match input {
            Input::Receive(receive) => {
                for datagram in receive.datagrams() {
                    self.receive(now, &receive, datagram);
                }
            }
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, answer) => self.effect_done(now, ticket, answer),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.core.now = now;
        while let Some((handle, alarm)) = self.core.shared.timers.pop_due(now) {
            match self.slots.get_mut(handle) {
                Some(Session::Sender(sender)) => {
                    sender.base.disarm(&mut self.core.shared, alarm);
                    sender.alarm(&mut self.core, now, alarm);
                }
                Some(Session::Receiver(receiver)) => {
                    receiver.base.disarm(&mut self.core.shared, alarm);
                    receiver.alarm(&mut self.core, now, alarm);
                    receiver.reseat(&mut self.core);
                }
                Some(Session::Object { .. }) | None => {}
            }
            self.free_places();
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
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
