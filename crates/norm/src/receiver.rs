//! State of a remote sender at a node (RFC 5740 §5.2, §5.3, §5.5).

mod acknowledgement;
mod coded;
mod numbers;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::{PathId, Time};
use session::Base;
use session::allowance::Allowance;
use session::path::{Burst, Class, Handle, Turn};
use session::timer::{self, TICK};

use self::acknowledgement::{Acknowledgement, Feedback};
use self::coded::CodedReports;
pub(crate) use self::coded::Yield;
use self::numbers::Numbers;
use self::requests::{Round, Rounds};
use super::answers::Answers;
use super::config::{Nacking, RepairBoundary, SyncPolicy};
use super::core::{Alarm, Core};
use super::incoming::identity::Origin;
use super::incoming::{Incoming, Reach};
use super::indication::{Failure, Indication, Limit, ObjectId, Report};
use super::refusal::Refused;
use crate::message::{self, Body, Command, Flags, Message, NodeId, Position, Scheme};

/// Maximum silence before missing data is requested: the sender's advertised round trip may be
/// wrong.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Maximum silence after which a sender needs no more reports: its advertised round trip may be
/// wrong.
const CLOSING_MOST: Duration = Duration::from_secs(600);

/// Minimum time for which messages of a sender's previous instance are ignored.
const FORMER_MIN: Duration = Duration::from_secs(1);

/// `K` of the back-off at or above which a receiver delays new requests until the requested
/// repairs should have arrived, as in the RFC. In a large group NACKs must be few.
const BACKOFF_OF_MANY: u8 = 4;

/// Type of a private header extension: the first object that a receiver vouches for. Its
/// acknowledgements cover nothing before it: a restarted receiver has no record of earlier
/// objects, and objects that failed here must not seem delivered. Other implementations skip it.
pub(crate) const EXT_BEGAN: u8 = 193;

/// Number of requests for the NORM_INFO of an object that may resume, before one for all of it.
const INFO_FIRST: u8 = 3;

/// Number of messages after which a sender keeps its slot while it is active.
const HALF_OPEN_MESSAGES: u8 = 8;

/// Minimum silence of a sender with an object under way before another may replace it.
const SILENT_MIN: Duration = Duration::from_secs(10);

/// Order in which senders give way to a new one, which keeps no other out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GivesWay {
    /// Few messages and nothing complete: the number of messages, and the time of the last.
    Opening(u8, Time),
    /// Nothing under way that needs another report: the time of the last message.
    Done(Time),
    /// Silent for some time: complete objects, bytes of those under way, and the time of the last
    /// message.
    Silent(u64, u64, Time),
    /// Complete, and perhaps still without the report: the time of the last message. The sender
    /// would send everything again if it were forgotten.
    Complete(Time),
}

/// One instance of a sender: from its start to its restart.
#[derive(Debug)]
struct Life {
    instance: u16,
    /// Number of messages received, up to 255.
    messages: u8,
    /// Previous instance, and the time until which its messages may still arrive.
    former: Option<(u16, Time)>,
    /// Whether the sender reported the end of its session.
    has_ended: bool,
    /// Whether the first object was recorded.
    is_recorded: bool,
}

/// Round trip and group size from the header of a sender's messages.
#[derive(Clone, Copy, Debug)]
struct Timing {
    grtt: Duration,
    backoff: u8,
    group: u32,
}

impl Timing {
    fn new(grtt: Duration, header: message::Sender) -> Self {
        let message::Sender { backoff, group_size, .. } = header;
        Self { grtt, backoff, group: message::group_size(group_size) }
    }
}

/// Remote sender.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) sender: SenderId,
    /// Path its messages arrive on.
    from: PathId,
    life: Life,
    timing: Timing,
    scheme: Scheme,
    objects: BTreeMap<u64, Incoming>,
    /// Number from which on objects may resume others next.
    fresh_from: u64,
    numbers: Numbers,
    /// Position up to which everything should have arrived.
    reach: Reach,
    nack: Rounds,
    feedback: Feedback,
    acknowledgement: Acknowledgement,
    answers: Answers,
    refused: Refused,
    /// Limit of what the sender's address gets, which may be forged.
    allowance: Allowance,
    /// Whether nothing is missing of the objects under way; the sender may then be silent for
    /// longer.
    rests: bool,
    sequence: u16,
    coded: CodedReports,
}

/// Identity of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SenderId {
    /// Path of its messages: a group's, or the sender's own.
    pub(crate) path: PathId,
    pub(crate) node: NodeId,
}

impl Receiver {
    pub(crate) fn new(
        base: Base<Alarm>,
        sender: SenderId,
        from: PathId,
        header: message::Sender,
        former: Option<(u16, Time)>,
    ) -> Self {
        Self {
            base,
            sender,
            from,
            life: Life {
                instance: header.instance,
                messages: 1,
                former,
                has_ended: false,
                is_recorded: false,
            },
            timing: Timing::new(message::rtt(header.grtt), header),
            scheme: Scheme::ReedSolomon8,
            objects: BTreeMap::new(),
            fresh_from: 0,
            numbers: Numbers::default(),
            reach: Reach { object: 0, block: 0 },
            nack: Rounds::default(),
            feedback: Feedback::new(),
            acknowledgement: Acknowledgement::default(),
            answers: Answers::default(),
            refused: Refused::default(),
            allowance: Allowance::default(),
            rests: false,
            sequence: 0,
            coded: CodedReports::default(),
        }
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.objects.values().map(Incoming::report)
    }

    pub(crate) fn report(&self, number: u64) -> Option<Report> {
        self.objects.get(&number).map(Incoming::report)
    }

    /// Order in which the sender gives way to another, if it does.
    pub(crate) fn gives_way(&self, now: Time) -> Option<GivesWay> {
        let last = self.base.last_received;
        let silence = now.since(last);
        let completed = self.numbers.completed();
        if completed == 0 && self.life.messages < HALF_OPEN_MESSAGES {
            return Some(GivesWay::Opening(self.life.messages, last));
        }
        if self.is_idle() {
            let is_done = silence >= self.silence_of_end();
            return Some(if is_done { GivesWay::Done(last) } else { GivesWay::Complete(last) });
        }
        let bytes = self.objects.values().map(|object| object.report().progress).sum();
        (silence >= SILENT_MIN).then_some(GivesWay::Silent(completed, bytes, last))
    }

    /// Silence after which the sender needs no more reports: six of its commands were due in it,
    /// two round trips apart. Zero if it ended its session, or has sent nothing complete.
    pub(crate) fn silence_of_end(&self) -> Duration {
        if self.life.has_ended || self.numbers.completed() == 0 {
            return Duration::ZERO;
        }
        (self.timing.grtt * 12).clamp(Duration::from_secs(1), CLOSING_MOST)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.objects.is_empty()
    }

    /// Lets the driver keep the sender while an object is under way, and from its first complete
    /// object to the end of its session: on another path the sender would be another one.
    pub(crate) fn reseat(&self, core: &mut Core) {
        let seat = &self.base.seat;
        if self.is_idle() && self.silence_of_end().is_zero() {
            core.shared.paths.leave_seat(seat.handle);
        } else {
            core.shared.paths.take_seat(seat.handle, seat.path);
        }
    }

    pub(crate) fn object(&mut self, number: u64) -> Option<&mut Incoming> {
        self.objects.get_mut(&number)
    }

    /// Whether replies may go to the sender alone, with no other receiver to wait for.
    fn is_alone(&self) -> bool {
        self.timing.backoff == 0 || self.sender.path == self.from
    }

    /// Processes the common header. Returns `false` if the sender restarted.
    pub(crate) fn greet(&mut self, core: &mut Core, from: PathId, header: message::Sender) -> bool {
        let now = core.now;
        if header.instance != self.life.instance {
            return false;
        }
        self.timing = Timing::new(self.round_trip(core, header.grtt), header);
        if from != self.from {
            // Replies go to the most recent address.
            self.from = from;
            if core.config.receiver.unicast_nack {
                self.base.move_to(&mut core.shared, now, from);
                self.base.want(&mut core.shared, Class::Control);
            }
        }
        self.base.last_received = now;
        self.life.messages = self.life.messages.saturating_add(1);
        if self.life.messages == 2 {
            let SenderId { path: peer, node: NodeId(node) } = self.sender;
            core.user.indicate(Indication::SenderDiscovered { peer, node });
            self.objects.values_mut().for_each(|object| object.show(core));
            // One that was stored before is over.
            self.settle(core);
        }
        true
    }

    /// Greatest round trip. If longer than messages can express, the path's light time, if known:
    /// at 22 minutes one way 2,640 s instead of 1,000 s.
    fn round_trip(&self, core: &Core, code: u8) -> Duration {
        let named = message::rtt(code);
        if code < u8::MAX || !core.config.sender.grtt_of_path {
            return named;
        }
        let paths = [self.from, self.sender.path];
        let lights = paths.iter().filter_map(|id| core.shared.paths.get(id)?.light());
        lights.fold(named, Duration::max)
    }

    /// Returns this instance as the previous one of a restarted sender, and the time until which
    /// its messages may arrive.
    pub(crate) fn former(&self, now: Time) -> (u16, Time) {
        (self.life.instance, now + (self.timing.grtt * 2).max(FORMER_MIN))
    }

    /// Whether a message is a late one of the previous instance.
    pub(crate) fn is_former(&self, now: Time, instance: u16) -> bool {
        self.life.former.is_some_and(|(former, until)| former == instance && now < until)
    }

    /// Arms the inactivity timer after a message was processed.
    pub(crate) fn greeted(&mut self, core: &mut Core) {
        let now = core.now;
        // A timer for each message would be expensive: this one checks the time of the last message
        // when it fires.
        if !self.objects.is_empty() && !self.base.is_armed(Alarm::Inactivity) {
            let wait = self.silence(core);
            self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
        }
        if std::mem::take(&mut core.has_resumed) {
            self.want_list(core);
        }
        self.record(core);
    }

    /// Records the first object of the session once its sender is confirmed.
    fn record(&mut self, core: &mut Core) {
        let is_due = !self.life.is_recorded && self.life.messages > 1 && self.numbers.has_begun();
        if is_due && self.is_single(core) && core.config.journal.enabled {
            self.life.is_recorded = true;
            core.note_session(self.origin(self.numbers.first()));
        }
    }

    /// Silence after which missing data is requested (RFC 5740 §5.3).
    fn silence(&self, core: &Core) -> Duration {
        let robust = core.config.receiver.robust_factor;
        let round = (self.timing.grtt * 2 * robust).clamp(Duration::from_secs(1), SILENCE_MAX);
        round.min(self.inactivity(core)).max(TICK)
    }

    /// Silence after which the sender is given up.
    fn inactivity(&self, core: &Core) -> Duration {
        let auto = timer::inactivity(self.timing.grtt);
        let limit = core.config.receiver.inactivity.duration(auto, 0);
        if self.rests { limit.max(core.config.receiver.stream_silence) } else { limit }
    }

    /// Objects that start when a message names this one.
    pub(crate) fn to_begin(&self, core: &Core, number: u16) -> std::ops::Range<u64> {
        let most = core.config.limits.objects;
        let room = most.saturating_sub(self.objects.len()) as u64;
        let is_restarted = !self.numbers.has_begun() && self.is_single(core);
        let back = if is_restarted { core.partials.back(self.origin(number)) } else { 0 };
        self.numbers.to_begin(number, room, most as u64, core.config.receiver.sync, back)
    }

    /// Whether this is the only receiver of the sender, which may resume objects.
    fn is_single(&self, core: &Core) -> bool {
        self.sender.path == self.from && !core.config.is_group(self.from)
    }

    fn origin(&self, number: u16) -> Origin {
        Origin { node: self.sender.node, instance: self.life.instance, number }
    }

    /// Starts objects in the slots made for them. Returns the number that a message names; `None`
    /// if that is finished or may not start. `may_resume` if another session may have received a
    /// part of them.
    pub(crate) fn begin(
        &mut self,
        core: &mut Core,
        number: u16,
        places: &[Handle],
        may_resume: bool,
    ) -> Option<u64> {
        let is_single = self.is_single(core);
        let number = self.numbers.unwrap(number);
        let first = (number + 1).saturating_sub(places.len() as u64);
        let named = number;
        for (number, place) in (first..).zip(places) {
            let id = ObjectId { peer: self.from, sender: self.sender.node.0, number };
            let is_info_only = core.config.receiver.nacking == Nacking::InfoOnly;
            let instance = self.life.instance;
            let mut object = Incoming::new(id, instance, *place, is_info_only, is_single);
            if self.life.messages == 1 {
                object.is_held = true;
            }
            if may_resume || core.partials.may_resume() {
                object.info_first = INFO_FIRST;
            }
            if is_single {
                object.restore(core);
            }
            // The sender may no longer have objects before the first known one.
            if self.numbers.has_begun() || number == named {
                object.announce(core);
            }
            self.objects.insert(number, object);
        }
        let is_full = if places.is_empty() {
            self.numbers.is_beyond(number)
        } else {
            self.numbers.begin(first, number)
        };
        if is_full {
            core.user.limit_reached(Limit::Objects);
        }
        self.objects.contains_key(&number).then_some(number)
    }

    fn advance(&mut self, object: u64, block: u64) {
        self.reach = self.reach.max(Reach { object, block });
    }

    pub(crate) fn on_info(&mut self, core: &mut Core, number: u64, info: &message::Info<'_>) {
        self.scheme = info.fec;
        self.nack.unanswered = 0;
        if let Some(object) = self.objects.get_mut(&number) {
            object.on_info(core, info);
        }
        self.advance(number, 0);
        self.settle(core);
        self.confirm_stored(core, info);
        self.check_repairs(core);
    }

    pub(crate) fn on_data(&mut self, core: &mut Core, number: u64, data: &message::Data<'_>) {
        let now = core.now;
        self.scheme = data.fec;
        self.nack.unanswered = 0;
        let is_over = loop {
            let Some(object) = self.objects.get_mut(&number) else { return };
            if let Some(requested_at) = object.answered(data.id.block) {
                self.learn_answer(now, requested_at);
                continue;
            }
            if object.on_data(core, data) {
                break object.is_over();
            }
            core.user.limit_reached(Limit::Assembly);
            if !self.make_room(core, number, data.id.block) {
                core.stats.data_dropped += 1;
                break false;
            }
        };
        if is_over {
            self.settle(core);
        } else {
            self.save(core, number);
        }
        if core.shared.room.unwritten > core.config.limits.buffers.write_buffer / 4 * 3 {
            core.shared.pause(self.sender.path);
        }
        let before = self.reach;
        let object = self.objects.get(&number);
        let is_stream = object.is_some_and(Incoming::is_stream);
        let block = object.map_or(u64::from(data.id.block), |object| object.reached(data.id.block));
        self.advance(
            number,
            match core.config.receiver.repair_boundary {
                // A stream has no end to wait for.
                RepairBoundary::Object if !is_stream => 0,
                RepairBoundary::Object | RepairBoundary::Block => block,
            },
        );
        if self.reach != before {
            self.check_repairs(core);
        }
        if is_stream && self.acknowledgement.is_wanted() {
            self.acknowledge(core);
        }
    }

    /// Drops an incomplete block to make room for an earlier one.
    fn make_room(&mut self, core: &mut Core, object: u64, block: u32) -> bool {
        let mut behind = self.objects.range_mut(object + 1..).rev();
        if behind.any(|(_, object)| object.make_room(core, None)) {
            return true;
        }
        let first = self.objects.get_mut(&object);
        first.is_some_and(|object| object.make_room(core, Some(block)))
    }

    /// Processes a command of the sender (§4.2.3).
    pub(crate) fn on_command(&mut self, core: &mut Core, sequence: u16, command: &Command<'_>) {
        match command {
            Command::Flush { fec, object, id, ackers, .. } => {
                let position = Position { fec: *fec, object: *object, id: *id };
                self.on_flush(core, position, ackers);
            }
            Command::Squelch { fec, object, id, invalid, .. } => {
                let position = Position { fec: *fec, object: *object, id: *id };
                self.on_squelch(core, position, invalid);
            }
            Command::Cc { sequence, send_time, rate, nodes, .. } => {
                self.on_probe(core, *sequence, *send_time, *rate, nodes);
            }
            Command::RepairAdv { requests, cc, .. } => {
                self.on_other_requests(requests);
                self.on_other_feedback(core, *cc, None);
            }
            Command::Eot { .. } => self.on_end(core),
            Command::AckReq { kind, id, ackers, .. } => {
                self.on_question(core, *kind, *id, ackers);
            }
            Command::Application { others, payload, .. } => {
                if self.answers.note_command(sequence, others) {
                    let SenderId { path: peer, node: NodeId(node) } = self.sender;
                    let bytes = Bytes::copy_from_slice(payload);
                    core.user.indicate(Indication::Command { peer, node, bytes });
                }
            }
            Command::Other { .. } => core.stats.stray += 1,
        }
    }

    /// Whether a message may be the first one accepted of a sender (§5.2).
    pub(crate) fn may_begin(&self, core: &Core, message: &Body<'_>) -> bool {
        if self.numbers.has_begun() || core.config.receiver.sync != SyncPolicy::Current {
            return true;
        }
        match message {
            Body::Info(info) => !info.flags.contains(Flags::REPAIR),
            Body::Data(data) => {
                // A stream may be joined at any block.
                let is_first = data.id.block == 0 || data.flags.contains(Flags::STREAM);
                is_first && !data.flags.contains(Flags::REPAIR)
            }
            Body::Command(Command::Flush { ackers, .. }) => {
                ackers.iter().any(|node| node == core.node)
            }
            Body::Command(_) | Body::Nack(_) | Body::Ack(_) | Body::Report(_) => false,
        }
    }

    /// Processes the end of the sender's session (§4.2.3.2): incomplete objects fail.
    fn on_end(&mut self, core: &mut Core) {
        if std::mem::replace(&mut self.life.has_ended, true) {
            return;
        }
        let SenderId { path: peer, node: NodeId(node) } = self.sender;
        self.abandon(core, &Failure::Ended);
        core.user.indicate(Indication::SenderEnded { peer, node });
    }

    /// Gives up incomplete objects because the sender sends nothing more.
    fn abandon(&mut self, core: &mut Core, failure: &Failure) {
        for object in self.objects.values_mut() {
            object.abandon(core, failure.clone());
        }
        self.settle(core);
    }

    /// Drops what was restored of files of this name, because one was stored.
    pub(crate) fn drop_restored(&mut self, core: &mut Core, name: &Bytes) {
        self.objects.values_mut().for_each(|object| object.drop_restored(core, name));
        self.settle(core);
    }

    /// Forgets the sender and all objects under way.
    pub(crate) fn drop_all(&mut self, core: &mut Core, failure: &Failure) {
        for object in self.objects.values_mut() {
            object.fail(core, failure.clone());
        }
        self.settle(core);
    }

    /// Removes finished objects, whose slots become free.
    pub(crate) fn settle(&mut self, core: &mut Core) {
        let before = self.objects.len();
        let numbers = &mut self.numbers;
        self.objects.retain(|number, object| {
            if object.is_over() {
                if object.is_here() {
                    numbers.completes(*number);
                } else {
                    numbers.fails(*number, object.is_refused());
                    if let Some(reason) = object.cannot_store() {
                        self.refused.note(*number, reason);
                    }
                }
                core.free.push(object.handle);
            }
            !object.is_over()
        });
        if self.objects.len() < before {
            self.on_removed(core);
        }
    }

    /// Notes that objects were removed.
    fn on_removed(&mut self, core: &mut Core) {
        self.numbers.trim();
        self.want_refusal(core);
        core.user.limit_left(Limit::Objects);
        if self.objects.is_empty() {
            self.base.disarm(&mut core.shared, Alarm::Inactivity);
            self.base.disarm(&mut core.shared, Alarm::Save);
            self.base.disarm(&mut core.shared, Alarm::Nack);
            self.nack.stop();
        }
        self.acknowledge(core);
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, alarm: Alarm) {
        match alarm {
            Alarm::Nack => match self.nack.round {
                Round::Backoff => self.want_requests(core),
                Round::Holdoff { since } => {
                    self.nack.round = Round::Idle;
                    // A silent sender does not receive either: its next message starts a round.
                    if self.base.last_received > since {
                        self.check_repairs(core);
                    }
                }
                Round::Idle => {}
            },
            Alarm::Feedback => self.answer(core),
            Alarm::Acknowledge => {
                self.acknowledgement.ripen();
                self.base.want(&mut core.shared, Class::Control);
            }
            Alarm::Inactivity => self.silent(core),
            Alarm::Save => self.objects.values_mut().for_each(|object| object.save(core)),
            Alarm::Answer => {
                self.answers.is_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            Alarm::Command
            | Alarm::Probe
            | Alarm::Pace
            | Alarm::Flush
            | Alarm::Aggregate
            | Alarm::Squelch
            | Alarm::Room
            | Alarm::Watermark => {}
        }
    }

    /// After a long silence, requests everything known to be missing, or gives up.
    fn silent(&mut self, core: &mut Core) {
        let now = core.now;
        if self.objects.is_empty() {
            return;
        }
        self.rests = self.objects.values().all(Incoming::is_quiet);
        let limit = self.inactivity(core);
        let silent = now.since(self.base.last_received);
        if silent >= limit {
            self.abandon(core, &Failure::Silence);
            return;
        }
        let round = if self.rests { limit } else { self.silence(core) };
        // At increasing intervals: a live sender announces its position, and a dead one does not
        // reply. 20 requests in an hour, the first after a second.
        let mut wait = round.max(silent / 2).min(limit - silent);
        if silent < round {
            wait = round - silent;
        } else {
            let config = &core.config.receiver;
            if !config.silent && config.nacking != Nacking::None {
                self.nack.round = Round::Idle;
                self.nack.since = now - TICK;
                self.want_requests(core);
            }
        }
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
    }

    /// Resumes after an outage of the path: earlier requests may be lost, and the sender was not
    /// received.
    pub(crate) fn resume(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Control);
        self.check_repairs(core);
    }

    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        if class != Class::Control {
            return Turn::Over;
        }
        let went = self.emit_list(core, burst)
            && self.emit_nacks(core, burst)
            && self.emit_refusal(core, burst)
            && self.emit_acknowledgement(core, burst)
            && self.emit_feedback(core, burst)
            && self.emit_answers(core, burst);
        if went { Turn::Over } else { Turn::More }
    }

    fn emit_nacks(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        while self.nack.due {
            if !self.emit_nack(core, burst) {
                return false;
            }
        }
        true
    }

    /// Writes a message into the batch; `false` if it must wait for the next one. One beyond the
    /// allowance is dropped, as the path might do: the sender's next message is replied to.
    fn push(&mut self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let len = Message { sequence: self.sequence, source: core.node, body }.encoded_len();
        if !self.allowance.admits(len) {
            core.stats.replies_dropped += 1;
            return true;
        }
        let went = core.push(burst, self.sequence, body);
        if went {
            self.allowance.take(len);
            self.sequence = self.sequence.wrapping_add(1);
        }
        went
    }
}

/// Whether a node is addressed, by its number or as any node.
fn is_listed(node: NodeId, ackers: &message::NodeList<'_>) -> bool {
    ackers.iter().any(|other| other == node || other == NodeId::NONE || other == NodeId::ANY)
}
