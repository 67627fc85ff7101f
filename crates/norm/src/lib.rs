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
//! `examples/norm_lossy_link.rs` has a driver of 15 lines. A path is a peer or a group
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
use std::net::SocketAddr;
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
    slots: Slots<Slot>,
    senders: BTreeMap<PathId, Box<Sender>>,
    receivers: BTreeMap<SenderId, Box<Receiver>>,
}

/// Session, or object of a session, which receives the results of its effects.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Sender(PathId),
    Receiver(SenderId),
    Sent(PathId, u64),
    Received(SenderId, u64),
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
        let mut losses = self.senders.values().filter_map(|sender| sender.loss_before);
        losses.find(|loss| Some(*loss) != self.core.config.sender.loss_before)
    }

    /// Silence of the remote senders after which none needs another report on a finished object;
    /// zero if all have ended their sessions.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let silences = self.receivers.values().map(|receiver| receiver.silence_of_end());
        silences.max().unwrap_or_default()
    }

    /// Whether the records of an earlier run were read. Until then no file begins.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.core.partials.is_restored
    }

    /// Objects under way.
    pub fn objects(&self) -> impl Iterator<Item = Report> + '_ {
        let sent = self.senders.values().flat_map(|sender| sender.reports());
        sent.chain(self.receivers.values().flat_map(|receiver| receiver.reports()))
    }

    /// Address of the peer of an object under way, if it is known; of a received object the
    /// sender's own, also in a group.
    #[must_use]
    pub fn peer_address(&self, id: ObjectId) -> Option<SocketAddr> {
        self.core.shared.paths.get(&id.peer)?.peer()
    }

    /// Received object that waits for the effect with this ticket.
    pub fn asker(&self, ticket: Ticket) -> Option<Report> {
        let slot = self.slots.get(self.core.shared.asker(ticket)?)?;
        let Slot::Received(key, number) = slot else { return None };
        self.receivers.get(key)?.report(*number)
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
        let peer = request.peer;
        self.begin_sender(now, peer)?;
        let Some(sender) = self.senders.get_mut(&peer) else {
            return Err(RequestError::TooManyObjects);
        };
        let number = sender.next_number;
        let handle = self.slots.reserve();
        self.slots.fill(handle, Slot::Sent(peer, number));
        let id = ObjectId { peer, sender: self.core.node.0, number };
        self.core.user.indicate(Indication::Started {
            id,
            is_sender: true,
            info: request.info.clone(),
        });
        self.core.shared.senders += 1;
        let object = Outgoing::new(id, handle, request.content, request.info);
        sender.add(&mut self.core, now, object);
        Ok(id)
    }

    /// Cancels an object.
    ///
    /// # Errors
    /// No such object is under way.
    pub fn cancel(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.core.now = now;
        let core = &mut self.core;
        let ours = id.sender == core.node.0;
        let sender = self.senders.get_mut(&id.peer).filter(|_| ours);
        let mut found =
            sender.is_some_and(|sender| sender.cancel(core, now, id.number, Failure::Cancelled));
        for receiver in self.receivers.values_mut().filter(|it| it.sender.node.0 == id.sender) {
            if let Some(object) = receiver.object(id.number).filter(|object| object.id == id) {
                object.fail(core, Failure::Cancelled);
                receiver.settle(core);
                found = true;
            }
        }
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
        let Some(sender) = self.senders.get_mut(&peer) else {
            return Err(RequestError::NoQuestion);
        };
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
        peer: PathId,
        node: u32,
        kind: u8,
        id: u8,
        bytes: Bytes,
    ) -> Result<(), RequestError> {
        self.core.now = now;
        let max = self.room(peer, ANSWER_HEADER);
        if bytes.len() > max {
            return Err(RequestError::CommandTooLong { len: bytes.len(), max });
        }
        let key = SenderId { path: peer, node: NodeId(node) };
        let Some(receiver) = self.receivers.get_mut(&key) else {
            return Err(RequestError::NoQuestion);
        };
        let found = receiver.answer_question(&mut self.core, kind, id, bytes);
        if found { Ok(()) } else { Err(RequestError::NoQuestion) }
    }

    /// Ends the session on a path (RFC 5740 §4.2.3.2). Everything under way is given up, and
    /// receivers are notified `robust_factor` times. They do not depend on it; it saves them
    /// requests to a vanished sender. Later objects belong to a new session. Returns `false` if
    /// there is no session; otherwise [`Indication::SessionEnded`] follows the last notification.
    pub fn end(&mut self, now: Time, peer: PathId) -> bool {
        let Some(sender) = self.senders.get_mut(&peer) else { return false };
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
        if !self.senders.contains_key(&path) {
            self.begin_sender(now, path)?;
        }
        let sender = self.senders.get_mut(&path).filter(|sender| !sender.commands.is_ending());
        sender.map(|sender| sender.command(&mut self.core, job)).ok_or(RequestError::Ending)
    }

    /// Forgets a sender whose session has ended.
    fn forget_ended(&mut self, handle: Handle) {
        let Some(Slot::Sender(path)) = self.slots.get(handle) else { return };
        let Some(sender) = self.senders.get_mut(path) else { return };
        if sender.commands.has_ended() {
            sender.base.disarm_all(&mut self.core.shared);
            self.senders.remove(path);
            self.slots.take(handle);
        }
    }

    /// Begins a sender on a path. If there is one, checks that it accepts another object.
    fn begin_sender(&mut self, now: Time, path: PathId) -> Result<(), RequestError> {
        if let Some(sender) = self.senders.get(&path) {
            return match sender {
                _ if sender.has_stream() => Err(RequestError::Stream),
                _ if sender.commands.is_ending() => Err(RequestError::Ending),
                _ if sender.objects() >= self.core.config.limits.objects => {
                    Err(RequestError::TooManyObjects)
                }
                _ => Ok(()),
            };
        }
        let coding = Coding::new(&self.core.config.sender).map_err(RequestError::Settings)?;
        let handle = self.slots.reserve();
        let base = Base::new(&mut self.core.shared.paths, handle, Some(path), now);
        let mut sender = Sender::new(base, path, coding, &mut self.core);
        // Replies identify the session by this number alone.
        while self.senders.values().any(|other| other.is(sender.instance())) {
            sender.renumber();
        }
        self.slots.fill(handle, Slot::Sender(path));
        self.senders.insert(path, Box::new(sender));
        Ok(())
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
        let core = &mut self.core;
        let sender = self.senders.get_mut(&id);
        let Some(change) = core.shared.path_event(id, event, pacing) else {
            if let Some(sender) = sender.filter(|_| is_renewed) {
                sender.advance(core, now);
                self.free_places();
            }
            return;
        };
        if let Some(sender) = sender {
            let before = sender.base.last_received;
            sender.base.follow(&mut core.shared, now);
            sender.shift(sender.base.last_received.since(before));
            if change == Change::Resumed {
                sender.resume(core, now);
            }
        }
        for receiver in self.receivers.values_mut().filter(|it| it.base.seat.path == Some(id)) {
            receiver.base.follow(&mut core.shared, now);
            if change == Change::Resumed {
                receiver.resume(core);
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
        self.senders.values_mut().for_each(|sender| sender.advance(&mut self.core, now));
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
        let core = &mut self.core;
        match self.slots.get(handle) {
            Some(Slot::Sent(path, number)) if let Some(sender) = self.senders.get_mut(path) => {
                match sender.object(*number) {
                    Some(object) => object.done(core, job, answer),
                    None => core.orphaned(handle, &job, &answer),
                }
                sender.advance(core, now);
            }
            Some(Slot::Received(key, number))
                if let Some(receiver) = self.receivers.get_mut(key) =>
            {
                match receiver.object(*number) {
                    Some(object) => object.done(core, job, answer),
                    None => core.orphaned(handle, &job, &answer),
                }
                receiver.settle(core);
                receiver.reseat(core);
            }
            Some(_) | None => core.orphaned(handle, &job, &answer),
        }
        if let Some(name) = self.core.superseded.take() {
            let receivers = self.receivers.values_mut();
            receivers.for_each(|receiver| receiver.drop_restored(&mut self.core, &name));
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
        match self.slots.get(handle)? {
            Slot::Sender(path) => Some(&mut self.senders.get_mut(path)?.base.seat),
            Slot::Receiver(key) => Some(&mut self.receivers.get_mut(key)?.base.seat),
            Slot::Sent(..) | Slot::Received(..) => None,
        }
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        let Core { shared, stats, .. } = &mut self.core;
        stats.oversize += shared.replies.emit(id, burst, |_| {});
    }

    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn {
        let core = &mut self.core;
        let turn = match self.slots.get(handle) {
            Some(Slot::Sender(path)) => {
                self.senders.get_mut(path).map(|sender| sender.emit(core, class, burst))
            }
            Some(Slot::Receiver(key)) => {
                self.receivers.get_mut(key).map(|receiver| receiver.emit(core, class, burst))
            }
            Some(Slot::Sent(..) | Slot::Received(..)) | None => None,
        };
        turn.unwrap_or(Turn::Over)
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
            let core = &mut self.core;
            match self.slots.get(handle) {
                Some(Slot::Sender(path)) if let Some(sender) = self.senders.get_mut(path) => {
                    sender.base.disarm(&mut core.shared, alarm);
                    sender.alarm(core, now, alarm);
                }
                Some(Slot::Receiver(key)) if let Some(receiver) = self.receivers.get_mut(key) => {
                    receiver.base.disarm(&mut core.shared, alarm);
                    receiver.alarm(core, alarm);
                    receiver.reseat(core);
                }
                Some(_) | None => {}
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
