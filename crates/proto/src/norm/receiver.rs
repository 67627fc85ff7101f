//! What a node keeps of a sender that it receives from (RFC 5740 §5.2, §5.3, §5.5).

mod feedback;
mod questions;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{PathId, Time};
use wire::norm::{
    self, Ack, Body, Command, Extension, Extensions, FIELD_BITS_ASSUMED, Flags, NodeId, Position,
    Scheme, SendTime,
};

use self::requests::{HOLDOFF_LEAST, Round, Rounds};
use super::answers::Answers;
use super::config::{Nacking, RepairBoundary, SyncPolicy};
use super::core::{Alarm, Core};
use super::incoming::{Incoming, Reach};
use super::indication::{Failure, Indication, Limit, ObjectId, Report};
use super::reception::Reception;
use crate::path::{Burst, Class, Handle, Turn};
use crate::ranges::Ranges;
use crate::session::Base;
use crate::timer::{self, TICK};

/// Most time of silence before a sender is asked for what is missing: what it says of the round trip
/// may be false.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// How long messages of a sender's former life are ignored at the least.
const FORMER_MIN: Duration = Duration::from_secs(1);

/// Objects before the first that is heard of, with [`SyncPolicy::All`]: as many as the reference
/// library asks for.
const SYNC_BACK: u64 = 255;

/// `K` of the back-off from which on a receiver asks for nothing until the repairs of what was asked
/// for before should be there, as the RFC has it: in a large group NACKs must be few.
const BACKOFF_OF_MANY: u8 = 4;

/// The type of a header extension of our own, which others skip: the first object that a receiver
/// vouches for. What it acknowledges begins there: a receiver that was started again knows nothing of
/// what came before, and what failed here shall not seem to have arrived.
pub(crate) const EXT_BEGAN: u8 = 193;

/// Messages from which on a sender keeps its place against others for as long as it is received.
const HALF_OPEN_MESSAGES: u8 = 8;

/// A sender that is received from.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) sender: SenderId,
    /// Whence its messages come.
    from: PathId,
    instance: u16,
    /// Messages of it that arrived, up to 255.
    messages: u8,
    /// Its life before this one, and until when messages of that may still be under way.
    pub(crate) former: Option<(u16, Time)>,
    grtt: Duration,
    backoff: u8,
    group: u32,
    scheme: Scheme,
    objects: BTreeMap<u64, Incoming>,
    /// The first object of which it spoke here.
    first: u64,
    /// The highest one; `None` before the first.
    newest: Option<u64>,
    /// What is over: here, or given up.
    done: Ranges,
    failed: Ranges,
    /// The last object that failed for a reason at this end: what is acknowledged begins after it.
    refused: Option<u64>,
    /// What should be here by now: all before this.
    reach: Reach,
    probe: Option<Probe>,
    nack: Rounds,
    reception: Reception,
    feedback_due: bool,
    /// Before this, an answer to a probe is not needed; and the rate told when the wait for one began.
    quiet_until: Time,
    claimed: f64,
    /// Up to where it wants an acknowledgement, if something is missing there.
    wanted: Option<Position>,
    /// Up to where everything is here that it wants acknowledged.
    confirmed: Option<Position>,
    acknowledge_due: bool,
    answers: Answers,
    answer_due: bool,
    /// Whether nothing is missing of what is under way, which may be silent for longer.
    rests: bool,
    sequence: u16,
    /// Whether it said that its session is over.
    has_ended: bool,
}

/// Whose messages these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SenderId {
    /// The path they come by: a group, or the sender's own.
    pub(crate) path: PathId,
    pub(crate) node: NodeId,
}

/// The last probe of the round trip.
#[derive(Clone, Copy, Debug)]
struct Probe {
    send_time: SendTime,
    heard_at: Time,
    sequence: u16,
    rate: Option<u16>,
}

impl Receiver {
    pub(crate) fn new(
        base: Base<Alarm>,
        sender: SenderId,
        from: PathId,
        header: norm::Sender,
    ) -> Self {
        Self {
            base,
            sender,
            from,
            instance: header.instance,
            messages: 1,
            former: None,
            grtt: norm::rtt(header.grtt),
            backoff: header.backoff,
            group: norm::group_size(header.group_size),
            scheme: Scheme::ReedSolomon8,
            objects: BTreeMap::new(),
            first: 0,
            newest: None,
            done: Ranges::new(),
            failed: Ranges::new(),
            refused: None,
            reach: Reach { object: 0, block: 0 },
            probe: None,
            nack: Rounds::new(),
            reception: Reception::new(),
            feedback_due: false,
            quiet_until: Time::ZERO,
            claimed: 0.0,
            wanted: None,
            confirmed: None,
            acknowledge_due: false,
            answers: Answers::default(),
            answer_due: false,
            rests: false,
            sequence: 0,
            has_ended: false,
        }
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.objects.values().map(Incoming::report)
    }

    pub(crate) fn report(&self, number: u64) -> Option<Report> {
        self.objects.get(&number).map(Incoming::report)
    }

    pub(crate) fn memory(&self) -> usize {
        let objects: usize = self.objects.values().map(Incoming::memory).sum();
        let over = (self.done.len() + self.failed.len()) * 32;
        objects + self.objects.len() * size_of::<Incoming>() + over + self.answers.memory()
    }

    /// How much would be lost with it: the objects that it sent, the octets of those under way, and when
    /// it last spoke.
    pub(crate) fn worth(&self) -> (u64, u64, Time) {
        let octets = self.objects.values().map(|object| object.report().progress).sum();
        (self.done.covered(), octets, self.base.last_heard)
    }

    /// Messages that arrived of a sender of which nothing is whole, if they are few: such a sender
    /// gives way to others.
    pub(crate) fn half_open(&self) -> Option<u8> {
        let is_few = self.messages < HALF_OPEN_MESSAGES && self.done.len() == 0;
        is_few.then_some(self.messages)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn object(&mut self, number: u64) -> Option<&mut Incoming> {
        self.objects.get_mut(&number)
    }

    /// Whether answers may go to one receiver's sender alone, with nobody to wait for.
    fn is_alone(&self) -> bool {
        self.backoff == 0 || self.sender.path == self.from
    }

    /// Takes what every message of a sender says; `false` if the sender began anew.
    pub(crate) fn greet(
        &mut self,
        core: &mut Core,
        now: Time,
        from: PathId,
        header: norm::Sender,
    ) -> bool {
        if header.instance != self.instance {
            return false;
        }
        self.grtt = self.round_trip(core, header.grtt);
        self.backoff = header.backoff;
        self.group = norm::group_size(header.group_size);
        if from != self.from {
            // The last address is the one to answer.
            self.from = from;
            if core.config.receiver.unicast_nack {
                self.base.move_to(&mut core.shared, now, from);
                self.base.want(&mut core.shared, Class::Control);
            }
        }
        self.base.last_heard = now;
        self.messages = self.messages.saturating_add(1);
        if self.messages == 2 {
            let SenderId { path: peer, node: NodeId(node) } = self.sender;
            core.user.indicate(Indication::SenderHeard { peer, node });
            self.objects.values_mut().for_each(|object| object.show(core));
        }
        true
    }

    /// The greatest round trip. Where that is more than messages can name, it is the light time of
    /// the path, if it is known: at 22 minutes one way 2,640 s in place of 1,000.
    fn round_trip(&self, core: &Core, code: u8) -> Duration {
        let named = norm::rtt(code);
        if code < u8::MAX || !core.config.sender.grtt_of_path {
            return named;
        }
        let paths = [self.from, self.sender.path];
        let lights = paths.iter().filter_map(|id| core.shared.paths.get(id)?.light());
        lights.fold(named, Duration::max)
    }

    /// This life of the sender, once it began another, and how long its messages may be under way.
    pub(crate) fn former(&self, now: Time) -> (u16, Time) {
        (self.instance, now + (self.grtt * 2).max(FORMER_MIN))
    }

    /// Whether a message is of a life that is over, and was late.
    pub(crate) fn is_former(&self, now: Time, instance: u16) -> bool {
        self.former.is_some_and(|(former, until)| former == instance && now < until)
    }

    /// Takes note that something is under way, once a message was looked at.
    pub(crate) fn greeted(&mut self, core: &mut Core, now: Time) {
        // A timer a message would be dear: it looks at the time of the last when it goes off.
        if !self.objects.is_empty() && !self.base.is_armed(Alarm::Inactivity) {
            let wait = self.silence(core);
            self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
        }
    }

    /// Silence after which the sender is asked for what is missing (RFC 5740 §5.3).
    fn silence(&self, core: &Core) -> Duration {
        let robust = core.config.receiver.robust_factor;
        let round = (self.grtt * 2 * robust).clamp(Duration::from_secs(1), SILENCE_MAX);
        round.min(self.inactivity(core)).max(TICK)
    }

    /// Silence after which it is given up.
    fn inactivity(&self, core: &Core) -> Duration {
        let auto = timer::inactivity(self.grtt);
        let limit = core.config.receiver.inactivity.duration(auto, 0);
        if self.rests { limit.max(core.config.receiver.stream_silence) } else { limit }
    }

    /// The object with this identifier, numbered without end.
    fn unwrap(&self, number: u16) -> u64 {
        let Some(newest) = self.newest else { return 1 << 16 | u64::from(number) };
        let ahead = number.wrapping_sub(newest as u16);
        if ahead < 0x8000 {
            newest + u64::from(ahead)
        } else {
            newest.saturating_sub(u64::from(ahead.wrapping_neg()))
        }
    }

    /// The objects that begin when a message names this one: it, and what came before it unseen. Where
    /// that is more than may ever be under way at once, those are the last of it: to wait for room
    /// would be in vain.
    pub(crate) fn to_begin(&self, core: &Core, number: u16) -> std::ops::Range<u64> {
        let number = self.unwrap(number);
        let room = core.config.limits.objects.saturating_sub(self.objects.len()) as u64;
        let first = match (self.newest, core.config.receiver.sync) {
            (Some(newest), _) => newest + 1,
            (None, SyncPolicy::Current | SyncPolicy::Object) => number,
            (None, SyncPolicy::All) => number - SYNC_BACK.min(room.saturating_sub(1)),
        };
        if first > number {
            return 0..0;
        }
        let unseen = number + 1 - first;
        if unseen > core.config.limits.objects as u64 {
            return number + 1 - room..number + 1;
        }
        if unseen > room { 0..0 } else { first..number + 1 }
    }

    /// Begins objects in the places made for them, and tells the one that a message names; `None`
    /// if that is over, or may not begin.
    pub(crate) fn begin(&mut self, core: &mut Core, number: u16, places: &[Handle]) -> Option<u64> {
        let number = self.unwrap(number);
        let first = (number + 1).saturating_sub(places.len() as u64);
        let named = number;
        for (number, place) in (first..).zip(places) {
            let id = ObjectId { peer: self.from, sender: self.sender.node.0, number };
            let is_info_only = core.config.receiver.nacking == Nacking::InfoOnly;
            let mut object = Incoming::new(id, *place, is_info_only);
            if self.messages == 1 {
                object.hold();
            }
            // Of what came before the first that was heard of, there may be nothing any more.
            if self.newest.is_some() || number == named {
                object.announce(core);
            }
            self.objects.insert(number, object);
        }
        if !places.is_empty() {
            match self.newest {
                None => self.first = first,
                Some(newest) if newest + 1 < first => self.skip(core, newest + 1..first),
                Some(_) => {}
            }
            self.newest = Some(number);
        } else if self.newest.is_none_or(|newest| number > newest) {
            core.user.limit_reached(Limit::Objects);
        }
        self.objects.contains_key(&number).then_some(number)
    }

    /// So many objects were never heard of that there is no room for these: they shall not seem to
    /// have been delivered.
    fn skip(&mut self, core: &mut Core, unseen: std::ops::Range<u64>) {
        self.failed.insert(unseen.start, unseen.end);
        self.refused = self.refused.max(Some(unseen.end - 1));
        core.user.limit_reached(Limit::Objects);
    }

    fn advance(&mut self, object: u64, block: u64) {
        self.reach = self.reach.max(Reach { object, block });
    }

    pub(crate) fn on_info(
        &mut self,
        core: &mut Core,
        now: Time,
        number: u64,
        info: &norm::Info<'_>,
    ) {
        self.scheme = info.fec;
        self.nack.unanswered = 0;
        if let Some(object) = self.objects.get_mut(&number) {
            object.on_info(core, info);
        }
        self.advance(number, 0);
        self.settle(core, now);
        self.check_repairs(core, now);
    }

    pub(crate) fn on_data(
        &mut self,
        core: &mut Core,
        now: Time,
        number: u64,
        data: &norm::Data<'_>,
    ) {
        self.scheme = data.fec;
        self.nack.unanswered = 0;
        let is_over = loop {
            let Some(object) = self.objects.get_mut(&number) else { return };
            if let Some(asked_at) = object.answered(data.id.block) {
                self.learn_answer(now, asked_at);
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
            self.settle(core, now);
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
                // A stream has no end that could be waited for.
                RepairBoundary::Object if !is_stream => 0,
                RepairBoundary::Object | RepairBoundary::Block => block,
            },
        );
        if self.reach != before {
            self.check_repairs(core, now);
        }
        if is_stream && self.wanted.is_some() {
            self.acknowledge(core, now);
        }
    }

    /// Forgets a block that came in part, behind one that has no room.
    fn make_room(&mut self, core: &mut Core, object: u64, block: u32) -> bool {
        let mut behind = self.objects.range_mut(object + 1..).rev();
        if behind.any(|(_, object)| object.make_room(core, None)) {
            return true;
        }
        let first = self.objects.get_mut(&object);
        first.is_some_and(|object| object.make_room(core, Some(block)))
    }

    /// The sender commands (§4.2.3).
    pub(crate) fn on_command(
        &mut self,
        core: &mut Core,
        now: Time,
        sequence: u16,
        command: &Command<'_>,
    ) {
        match command {
            Command::Flush { fec, object, id, ackers, .. } => {
                let position = Position { fec: *fec, object: *object, id: *id };
                self.on_flush(core, now, position, ackers);
            }
            Command::Squelch { fec, object, id, invalid, .. } => {
                let position = Position { fec: *fec, object: *object, id: *id };
                self.on_squelch(core, now, position, invalid);
            }
            Command::Cc { sequence, send_time, rate, nodes, .. } => {
                self.on_probe(core, now, (*sequence, *send_time, *rate), nodes);
            }
            Command::RepairAdv { requests, cc, .. } => {
                self.on_other_requests(requests);
                self.on_other_feedback(core, now, *cc);
            }
            Command::Eot { .. } => self.on_end(core, now),
            Command::AckReq { kind, id, ackers, .. } => {
                self.on_question(core, now, (*kind, *id), ackers);
            }
            Command::Application { others, payload, .. } => {
                if self.answers.is_new(sequence, others) {
                    let SenderId { path: peer, node: NodeId(node) } = self.sender;
                    let octets = bytes::Bytes::copy_from_slice(payload);
                    core.user.indicate(Indication::Command { peer, node, octets });
                }
            }
            Command::Other { .. } => core.stats.stray += 1,
        }
    }

    /// Whether a message may be the first that is heeded of a sender (§5.2).
    pub(crate) fn may_begin(&self, core: &Core, message: &Body<'_>) -> bool {
        if self.newest.is_some() || core.config.receiver.sync != SyncPolicy::Current {
            return true;
        }
        match message {
            Body::Info(info) => !info.flags.contains(Flags::REPAIR),
            Body::Data(data) => {
                // A stream may be joined anywhere.
                let is_first = data.id.block == 0 || data.flags.contains(Flags::STREAM);
                is_first && !data.flags.contains(Flags::REPAIR)
            }
            Body::Command(Command::Flush { ackers, .. }) => {
                ackers.iter().any(|node| node == core.node)
            }
            Body::Command(_) | Body::Nack(_) | Body::Ack(_) | Body::Report(_) => false,
        }
    }

    /// The sender says where its end is (§4.2.3).
    fn on_flush(
        &mut self,
        core: &mut Core,
        now: Time,
        position: Position,
        ackers: &norm::NodeList<'_>,
    ) {
        if self.newest.is_none() {
            return;
        }
        self.scheme = position.fec;
        let number = self.unwrap(position.object);
        let mut block = u64::from(position.id.block) + 1;
        if let Some(object) = self.objects.get_mut(&number) {
            object.on_flush(core, position.id);
            if object.is_stream() {
                block = object.reached(position.id.block);
            }
        }
        self.advance(number, block);
        if is_listed(core.node, ackers) {
            self.wanted = Some(position);
        }
        self.acknowledge(core, now);
        // A sender that says where its end is has nothing else to send: either the repairs went
        // before this, or it did not receive the request.
        let wait = match self.backoff {
            BACKOFF_OF_MANY.. => self.holdoff(),
            _ => self.answer_time().max(HOLDOFF_LEAST),
        };
        self.check_repairs_after(core, now, wait);
    }

    /// Acknowledges if that is wanted and all is here.
    fn acknowledge(&mut self, core: &mut Core, now: Time) {
        let Some(position) = self.wanted.filter(|_| !core.config.receiver.silent) else { return };
        let number = self.unwrap(position.object);
        let is_here = match self.objects.first_key_value() {
            Some((first, object)) if *first == number => object.has_through(position.id),
            Some((first, _)) if *first < number => false,
            Some(_) | None => self.done.contains(number),
        };
        let is_refused = self.refused.is_some_and(|refused| refused >= number);
        if is_refused || !is_here {
            return;
        }
        (self.confirmed, self.wanted) = (Some(position), None);
        if self.is_alone() {
            self.acknowledge_due = true;
            self.base.want(&mut core.shared, Class::Control);
        } else if !self.base.is_armed(Alarm::Acknowledge) {
            let wait = self.grtt.mul_f64(core.rng.unit());
            self.base.alarm(&mut core.shared, Alarm::Acknowledge, now, wait);
        }
    }

    /// The sender no longer has some objects.
    fn on_squelch(
        &mut self,
        core: &mut Core,
        now: Time,
        position: Position,
        invalid: &norm::ObjectList<'_>,
    ) {
        if self.newest.is_none() {
            return;
        }
        let first = self.unwrap(position.object);
        let invalid: Vec<_> = invalid.iter().map(|number| self.unwrap(number)).collect();
        for (number, object) in &mut self.objects {
            if *number < first || invalid.contains(number) {
                object.abandon(core, Failure::Abandoned);
            } else if *number == first {
                object.prune(core, position.id);
            }
        }
        self.settle(core, now);
    }

    /// Nothing more comes of the sender: what is not here is given up.
    fn abandon(&mut self, core: &mut Core, now: Time, failure: &Failure) {
        for object in self.objects.values_mut() {
            object.abandon(core, failure.clone());
        }
        self.settle(core, now);
    }

    /// The sender is forgotten, and all that is under way with it.
    pub(crate) fn drop_all(&mut self, core: &mut Core, now: Time, failure: &Failure) {
        for object in self.objects.values_mut() {
            object.fail(core, failure.clone());
        }
        self.settle(core, now);
    }

    /// Takes out what is over; those objects' places are free.
    pub(crate) fn settle(&mut self, core: &mut Core, now: Time) {
        let before = self.objects.len();
        let (done, failed) = (&mut self.done, &mut self.failed);
        let refused = &mut self.refused;
        self.objects.retain(|number, object| {
            if object.is_over() {
                let over = if object.is_here() { &mut *done } else { &mut *failed };
                over.insert(*number, number + 1);
                if object.is_refused() {
                    *refused = (*refused).max(Some(*number));
                }
                core.free.push(object.handle());
            }
            !object.is_over()
        });
        if self.objects.len() == before {
            return;
        }
        // Messages cannot name what is farther back.
        let past = self.newest.unwrap_or_default().saturating_sub(0x8000);
        self.done.remove(0, past);
        self.failed.remove(0, past);
        core.user.limit_left(Limit::Objects);
        if self.objects.is_empty() {
            self.base.disarm(&mut core.shared, Alarm::Inactivity);
            self.base.disarm(&mut core.shared, Alarm::Nack);
            self.nack.round = Round::Idle;
            self.nack.due = false;
        }
        self.acknowledge(core, now);
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Nack => match self.nack.round {
                Round::Backoff => self.ask(core),
                Round::Holdoff { since } => {
                    self.nack.round = Round::Idle;
                    // A sender that is silent does not hear either: its next word begins a round.
                    if self.base.last_heard > since {
                        self.check_repairs(core, now);
                    }
                }
                Round::Idle => {}
            },
            Alarm::Feedback => self.answer(core),
            Alarm::Acknowledge => {
                self.acknowledge_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            Alarm::Inactivity => self.silent(core, now),
            Alarm::Answer => {
                self.answer_due = true;
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

    /// Nothing came for long, if that is so: requests all that is known to be missing, or gives up.
    fn silent(&mut self, core: &mut Core, now: Time) {
        if self.objects.is_empty() {
            return;
        }
        self.rests = self.objects.values().all(Incoming::is_quiet);
        let limit = self.inactivity(core);
        let silent = now.since(self.base.last_heard);
        if silent >= limit {
            self.abandon(core, now, &Failure::Silence);
            return;
        }
        let round = if self.rests { limit } else { self.silence(core) };
        // Rarer and rarer: a sender that is there tells where it is, and one that is not does not
        // answer. 20 requests in an hour, the first after a second.
        let mut wait = round.max(silent / 2).min(limit - silent);
        if silent < round {
            wait = round - silent;
        } else {
            let config = &core.config.receiver;
            if !config.silent && config.nacking != Nacking::None {
                self.nack.round = Round::Idle;
                self.nack.since = now - TICK;
                self.ask(core);
            }
        }
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
    }

    /// The path is up again: requests from before may be lost, and the sender was not received.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        self.want_all(core);
        self.check_repairs(core, now);
    }

    pub(crate) fn want_all(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Control);
    }

    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        if class != Class::Control {
            return Turn::Over;
        }
        while self.nack.due {
            if !self.emit_nack(core, burst) {
                return Turn::More;
            }
        }
        if self.acknowledge_due && !self.emit_acknowledgement(core, burst) {
            return Turn::More;
        }
        if self.feedback_due && !self.emit_feedback(core, burst) {
            return Turn::More;
        }
        if self.answer_due && !self.emit_answers(core, burst) {
            return Turn::More;
        }
        Turn::Over
    }

    fn say(&mut self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let went = core.push(burst, self.sequence, body);
        self.sequence = self.sequence.wrapping_add(u16::from(went));
        went
    }

    fn emit_acknowledgement(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(position) = self.confirmed else {
            self.acknowledge_due = false;
            return true;
        };
        let mut payload = [0; 12];
        let len = position.encode(&mut payload, FIELD_BITS_ASSUMED).unwrap_or(0);
        // As a sender has only so many objects at once, it need not know how long ago that was.
        let past = self.newest.unwrap_or_default().saturating_sub(0x4000);
        let refused = self.refused.map_or(0, |refused| refused + 1);
        let first = self.first.max(refused).max(past);
        let [high, low] = (first as u16).to_be_bytes();
        let began = [Extension { kind: EXT_BEGAN, value: &[0, high, low] }];
        let ack = self.ack(Ack::FLUSH, burst.departure(), &payload[..len]);
        let body = Body::Ack(Ack { others: Extensions::new(&began), ..ack });
        let went = self.say(core, burst, body);
        if went {
            (self.acknowledge_due, self.confirmed) = (false, None);
            self.told(core, burst.departure());
        }
        went
    }

    fn ack<'a>(&self, kind: u8, at: Time, payload: &'a [u8]) -> Ack<'a> {
        Ack {
            server: self.sender.node,
            instance: self.instance,
            kind,
            id: 0,
            grtt_response: self.response(at),
            cc: self.feedback(),
            others: Extensions::NONE,
            payload,
        }
    }
}

/// Whether a node is among those that are asked: by its number, or because any is.
fn is_listed(node: NodeId, ackers: &norm::NodeList<'_>) -> bool {
    ackers.iter().any(|other| other == node || other == NodeId::NONE || other == NodeId::ANY)
}
