//! A sender on one path (RFC 5740 §5.1, §5.4, §5.5).

mod heed;
mod requests;
mod stream;
mod talk;

use std::collections::VecDeque;
use std::time::Duration;

use engine::{PathId, Time};
use wire::norm::{
    Ack, Body, CcFeedback, Command, Extensions, FIELD_BITS_ASSUMED, Nack, NodeId, NodeList,
    ObjectList, PayloadId, Position, RequestWriter,
};

use self::stream::Flow;
use super::coding::{Coding, first_id};
use super::commands::Commands;
use super::config::{EndGame, GRTT_MOST};
use super::core::{Alarm, Core};
use super::group_size::{self, GroupSize};
use super::grtt::Grtt;
use super::indication::{Failure, Finished, Indication, Report};
use super::members::{Members, Persistence, Standing};
use super::outgoing::{Cut, Outgoing, Told};
use super::receiver::EXT_BEGAN;
use super::voice::Voice;
use crate::path::{Burst, Class, Path, Turn};
use crate::session::Base;
use crate::timer;

/// Octets of NORM_CMD(FLUSH) before its list, with the longest payload identifier.
const FLUSH_HEADER: usize = 24;

/// Least time between flushes that nobody acknowledges: over a path of microseconds all of them would
/// be said before a receiver that is not scheduled just then could ask for anything.
const FLUSH_GAP_MIN: Duration = Duration::from_millis(50);

/// Most time between flushes to a group that wait for receivers far away.
const FLUSH_GAP_MAX: Duration = Duration::from_secs(60);

/// Flushes in a round trip to a single receiver that is silent, and the least time between two.
///
/// Where an outage ends that nobody announced, the first flush behind it brings the request for
/// what is missing. A quarter of a round trip until it leaves, half a one until it arrives, and a
/// whole one for the request and its repairs are less than two.
const FLUSHES_IN_SILENCE: u32 = 4;
const FLUSH_GAP_IN_SILENCE: Duration = Duration::from_millis(100);

/// Time for which a receiver is polled that is received, but neither acknowledges nor requests
/// anything.
const REFUSAL: Duration = Duration::from_secs(600);

/// A sender on one path.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) path: PathId,
    is_group: bool,
    voice: Voice,
    coding: Coding,
    objects: VecDeque<Outgoing>,
    next_number: u64,
    probe: Probe,
    flush: Option<Flush>,
    /// Who has how much of a stream that is being sent.
    flow: Option<Flow>,
    /// Whether requests for repairs are being collected.
    is_collecting: bool,
    /// Whether others shall hear what was asked for by a receiver that they do not hear.
    adv_due: bool,
    /// Objects that were asked for and are no longer here.
    squelch: Option<Position>,
    /// The lowest report that not all heard.
    suppressing: Option<CcFeedback>,
    members: Members,
    group_size: GroupSize,
    commands: Commands,
    /// When a flush that asks in the middle of a transfer may go out at the earliest.
    next_flush: Time,
}

#[derive(Debug, Default)]
struct Probe {
    sequence: u16,
    interval: Duration,
    due: bool,
    /// When the first one left: no answer can be older.
    first_at: Option<Time>,
    /// When the last one left.
    sent_at: Time,
    /// When the greatest round trip was last looked at.
    round_since: Time,
}

/// It is being told how far all was sent and repaired: to the end, or with
/// [`EndGame::Acknowledged`] to the end of an object while later ones are still being sent.
#[derive(Debug)]
struct Flush {
    /// The last object of which all was sent.
    through: u64,
    /// Whether there is no other behind it.
    is_end: bool,
    /// The last of the receivers that were asked to acknowledge, if some are left that did not fit
    /// the same message.
    after: Option<NodeId>,
    sent: u32,
    due: bool,
}

impl Sender {
    pub(crate) fn new(base: Base<Alarm>, path: PathId, coding: Coding, core: &mut Core) -> Self {
        let is_group = core.config.is_group(path);
        let config = &core.config.sender;
        let least = Duration::from_micros(1);
        let grtt = Grtt::new(config.grtt_initial, least, config.grtt_max);
        let group_size = config.group_size.unwrap_or(group_size::LEAST);
        let backoff = config.backoff.unwrap_or_else(|| usual_backoff(is_group, group_size)).min(15);
        let instance = core.rng.next_u32() as u16;
        let first = core.rng.next_u32() & 0xff;
        Self {
            base,
            path,
            is_group,
            voice: Voice::new(instance, grtt, backoff, group_size),
            coding,
            objects: VecDeque::new(),
            next_number: u64::from(first),
            probe: Probe::default(),
            flush: None,
            flow: None,
            is_collecting: false,
            adv_due: false,
            squelch: None,
            suppressing: None,
            members: Members::default(),
            group_size: GroupSize::new(),
            commands: Commands::new(path),
            next_flush: Time::ZERO,
        }
    }

    /// Which life of the sender it is.
    pub(crate) fn instance(&self) -> u16 {
        self.voice.instance
    }

    /// Takes another number for this life, because a sender on another path has the same.
    pub(crate) fn renumber(&mut self) {
        self.voice.instance = self.voice.instance.wrapping_add(1);
    }

    /// Whether it is this life of the sender.
    pub(crate) fn is(&self, instance: u16) -> bool {
        self.voice.instance == instance
    }

    /// The number of the next object.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.objects.iter().map(|object| Report {
            id: object.id,
            is_sender: true,
            progress: object.progress(),
            size: (!object.is_opening() && !object.is_stream()).then_some(object.size),
            info: object.info.clone(),
        })
    }

    pub(crate) fn memory(&self) -> usize {
        let objects: usize = self.objects.iter().map(Outgoing::memory).sum();
        let congestion = self.voice.congestion.as_ref().map_or(0, |congestion| congestion.memory());
        objects
            + self.objects.len() * size_of::<Outgoing>()
            + self.members.memory()
            + self.commands.memory()
            + congestion
    }

    /// Sends another object.
    pub(crate) fn add(&mut self, core: &mut Core, now: Time, mut object: Outgoing) {
        if self.is_idle() {
            self.begin(core);
        }
        self.next_number += 1;
        object.open(core);
        if let Some(last) = self.objects.back_mut() {
            last.tail = 0;
        }
        self.objects.push_back(object);
        self.begin_stream();
        self.advance(core, now);
    }

    /// Whether there is nothing to send and to say.
    fn is_idle(&self) -> bool {
        self.objects.is_empty() && self.commands.is_empty()
    }

    /// The first of some objects: probes the round trip.
    fn begin(&mut self, core: &mut Core) {
        let config = &core.config.sender;
        let known = core.shared.paths.get(&self.path).and_then(Path::light);
        let initial = match known.filter(|_| config.grtt_of_path) {
            Some(light) => light + self.base.seat.round_trip(&core.shared.paths).margin(),
            None => config.grtt_initial,
        };
        if self.members.is_empty() {
            self.voice.grtt = Grtt::new(initial, self.segment_time(core), config.grtt_max);
        }
        self.begin_to_heed(core);
        self.probe.interval = Duration::ZERO;
        self.probe.due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// The time of one segment at the path's rate.
    fn segment_time(&self, core: &Core) -> Duration {
        let Some(path) = core.shared.paths.get(&self.path) else { return Duration::ZERO };
        path.time_of(path.mtu())
    }

    /// How objects are cut that have NORM_INFO or not, once the path is up.
    fn cut(&self, core: &Core, has_info: bool) -> Option<Result<Cut, Failure>> {
        let path = core.shared.paths.get(&self.path).filter(|path| path.mtu() > 0)?;
        let config = &core.config.sender;
        // Where there is no other message to tell how it is coded, NORM_DATA must.
        let has_fti = config.fti_in_data || !has_info;
        let room = path.mtu().saturating_sub(self.coding.data_header(has_fti));
        let most = u16::try_from(room).unwrap_or(u16::MAX);
        let segment = self.coding.fitting(config.segment_size.unwrap_or(most).min(most));
        let least = self.coding.least_path(config.end, has_fti);
        if segment == 0 || path.mtu() < least {
            return Some(Err(Failure::Settings(too_narrow(path.mtu(), least))));
        }
        Some(Ok(Cut { segment, room: most, coding: self.coding.clone(), has_fti }))
    }

    /// Goes on with whatever can be done.
    pub(crate) fn advance(&mut self, core: &mut Core, now: Time) {
        if self.objects.iter().any(Outgoing::is_open)
            && let (Some(with_info), Some(without)) = (self.cut(core, true), self.cut(core, false))
        {
            for object in self.objects.iter_mut().filter(|object| object.is_open()) {
                let cut = if object.has_info() { &with_info } else { &without };
                let result = cut.clone().and_then(|cut| object.cut(core, cut));
                if let Err(failure) = result {
                    object.failure.get_or_insert(failure);
                }
            }
        }
        let mtu = core.shared.paths.get(&self.path).map_or(0, Path::mtu);
        for object in self.objects.iter_mut().filter(|object| object.datagram() > mtu) {
            let failure = Failure::Settings("the path takes its segments no longer".to_owned());
            object.failure.get_or_insert(failure);
        }
        self.learn_light(core);
        self.drop_failed(core);
        if self.objects.iter().any(Outgoing::is_sending) {
            self.want_data(core);
        }
        self.check_flush(core, now);
        self.check_stream(core, now);
    }

    /// Notes the light time of the path where messages cannot name a round trip so long.
    fn learn_light(&mut self, core: &Core) {
        let config = &core.config.sender;
        let light = core.shared.paths.get(&self.path).and_then(Path::light);
        let light = light.filter(|_| config.grtt_of_path && config.grtt_max >= GRTT_MOST);
        self.voice.light = light.filter(|light| *light > GRTT_MOST).unwrap_or_default();
    }

    fn want_data(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Bulk);
        if self.objects.iter().any(Outgoing::has_repairs) {
            self.base.want(&mut core.shared, Class::Repair);
        }
    }

    /// No receiver could be received for some time, because a direction of the path was down.
    pub(crate) fn shift(&mut self, away: Duration) {
        self.members.shift(away);
        self.shift_stream(away);
    }

    /// The path, or its return link, is up again.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        self.resume_stream();
        if let Some(flush) = self.flush.as_mut().filter(|flush| flush.sent > 0) {
            flush.due = true;
        }
        self.base.want(&mut core.shared, Class::Control);
        self.advance(core, now);
    }

    fn drop_failed(&mut self, core: &mut Core) {
        let mut at = 0;
        while let Some(object) = self.objects.get_mut(at) {
            let Some(failure) = object.failure.take() else {
                at += 1;
                continue;
            };
            let Some(mut object) = self.objects.remove(at) else { return };
            object.close(core);
            core.free.push(object.handle());
            let end = Err(failure);
            finished(core, &object, end, (0, false));
            // Who has a part of it is told that no more comes.
            if object.fti().is_some() {
                self.refuse(core, object.number(), object.end());
            }
        }
        self.rest(core);
    }

    /// Nothing is left: nothing runs on.
    fn rest(&mut self, core: &mut Core) {
        if !self.is_idle() {
            return;
        }
        (self.flush, self.flow) = (None, None);
        let own = [Alarm::Probe, Alarm::Pace, Alarm::Flush, Alarm::Aggregate];
        for alarm in own.into_iter().chain([Alarm::Room, Alarm::Watermark]) {
            self.base.disarm(&mut core.shared, alarm);
        }
        (self.is_collecting, self.adv_due) = (false, false);
        self.suppressing = None;
        self.probe.due = false;
    }

    /// Ends an object early.
    pub(crate) fn cancel(
        &mut self,
        core: &mut Core,
        now: Time,
        number: u64,
        failure: Failure,
    ) -> bool {
        let mut objects = self.objects.iter_mut();
        let Some(object) = objects.find(|object| object.id.number == number) else {
            return false;
        };
        object.failure = Some(failure);
        self.advance(core, now);
        true
    }

    /// The last of the objects of which, as of all before them, everything was sent that was asked
    /// for, and whether it is the last of all.
    fn sent_through(&self) -> Option<(u64, bool)> {
        let mut objects = self.objects.iter();
        let sent = objects.by_ref().take_while(|object| object.is_settled());
        let last = sent.last()?.id.number;
        // What was written to a stream so far is told of by itself.
        let end = self.objects.iter().rev().find(|object| !object.is_open_stream());
        let is_end = end.is_some_and(|object| object.id.number == last);
        Some((last, is_end && !self.is_collecting))
    }

    /// Tells how far everything was sent, if that has changed.
    fn check_flush(&mut self, core: &mut Core, now: Time) {
        let is_asking = core.config.sender.end == EndGame::Acknowledged;
        let sent = self.sent_through().filter(|(_, is_end)| *is_end || is_asking);
        let Some((through, is_end)) = sent else {
            self.end_flush(core);
            return;
        };
        let wait = self.next_flush.since(now);
        match self.flush.as_mut() {
            Some(flush) if (flush.through, flush.is_end) == (through, is_end) => return,
            // It is about to be told.
            Some(flush) if flush.sent == 0 && !is_end => {
                flush.through = through;
                return;
            }
            Some(_) | None => self.end_flush(core),
        }
        // One question for all small objects of a round trip, and no more answers than segments.
        let due = is_end || wait.is_zero();
        self.flush = Some(Flush { through, is_end, after: None, sent: 0, due });
        if due {
            self.base.want(&mut core.shared, Class::Control);
        } else {
            self.base.alarm(&mut core.shared, Alarm::Flush, now, wait);
        }
    }

    /// What was being told does not hold any more.
    fn end_flush(&mut self, core: &mut Core) {
        self.flush = None;
        self.base.disarm(&mut core.shared, Alarm::Flush);
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Command => {
                self.commands.expire(core, now);
                self.base.want(&mut core.shared, Class::Control);
                self.rest(core);
            }
            Alarm::Probe => self.probe(core, now),
            // What was held back is still in its queue.
            Alarm::Pace => {}
            Alarm::Flush => self.flush_again(core, now),
            Alarm::Aggregate => self.commit(core, now),
            // There may be room for the end of a stream that was closed.
            Alarm::Room => self.written(core, now),
            Alarm::Watermark => self.mark_again(core, now),
            Alarm::Squelch
            | Alarm::Nack
            | Alarm::Feedback
            | Alarm::Acknowledge
            | Alarm::Answer
            | Alarm::Inactivity => {}
        }
    }

    fn flush_again(&mut self, core: &mut Core, now: Time) {
        self.finish_objects(core, now);
        self.check_flush(core, now);
        let robust = core.config.sender.robust_factor;
        let Some(flush) = self.flush.as_mut() else { return };
        if core.config.sender.end == EndGame::Flush && flush.sent >= robust {
            let open = usize::from(self.objects.back().is_some_and(Outgoing::is_open_stream));
            self.finish_front(core, self.objects.len() - open, None, |_| Ok(()));
        } else if !self.base.is_armed(Alarm::Flush) {
            flush.due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    fn persistence(&self, core: &Core) -> Persistence {
        let config = &core.config.sender;
        let auto = timer::inactivity(self.voice.round_trip());
        let patience = config.patience.duration(auto, 0);
        Persistence { polls: config.robust_factor, patience, refusal: REFUSAL.min(patience) }
    }

    /// Ends objects that every receiver has, or for which receivers were asked in vain.
    fn finish_objects(&mut self, core: &mut Core, now: Time) {
        let config = &core.config.sender;
        let Some(flush) = self.flush.as_ref().filter(|_| config.end == EndGame::Acknowledged)
        else {
            return;
        };
        let (through, receivers) = (flush.through, config.receivers);
        let most = self.persistence(core);
        let wait = self.voice.twice();
        let are_unknown = self.is_group && receivers == 0;
        let taken = self.stream_taken((now, most), receivers).filter(|number| *number <= through);
        let is_over = |object: &&Outgoing| {
            if taken == Some(object.id.number) {
                return true;
            }
            let number = object.id.number;
            let standing = self.members.standing(number, receivers);
            // In a group of unknown size, there is time for all to answer, and they are asked again.
            let told = object.told.filter(|_| number <= through);
            told.is_some_and(|told| !are_unknown || told.is_again && now >= told.first + wait)
                && (standing.is_complete()
                    || self.members.is_in_vain(number, receivers, (now, most)))
        };
        let count = self.objects.iter().take_while(is_over).count();
        self.finish_front(core, count, taken, |standing| match standing {
            Standing { expected: 0, .. } => Err(Failure::NoReceiver),
            Standing { expected, have, .. } if have < expected => {
                Err(Failure::Unacknowledged { missing: expected - have, known: expected })
            }
            Standing { .. } => Ok(()),
        });
    }

    /// Ends the first objects.
    fn finish_front(
        &mut self,
        core: &mut Core,
        count: usize,
        taken: Option<u64>,
        result: impl Fn(Standing) -> Result<(), Failure>,
    ) {
        let mut last = None;
        for mut object in self.objects.drain(..count) {
            object.close(core);
            core.free.push(object.handle());
            last = Some(object.id.number);
            let standing = self.members.standing(object.id.number, core.config.sender.receivers);
            let is_confirmed = standing.have > 0
                && standing.have >= self.members.len()
                && !self.members.are_more();
            let is_taken = taken == Some(object.id.number);
            let result = if is_taken { Ok(()) } else { result(standing) };
            finished(core, &object, result, (standing.have, is_confirmed || is_taken));
        }
        if let Some(last) = last.filter(|_| self.objects.is_empty()) {
            self.members.keep(last);
        }
        self.rest(core);
    }

    /// Ends because the node ends it.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        let turn = match class {
            Class::Control => self.emit_control(core, burst),
            Class::Metadata => Turn::Over,
            Class::Repair => self.emit_repairs(core, burst),
            Class::Bulk => self.emit_new(core, burst),
        };
        self.wait_for_pace(core, burst.departure());
        turn
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        // What is no more is said before the end of all, which others do not understand.
        if let Some(at) = self.squelch
            && !self.emit_squelch(core, burst, at)
        {
            return Turn::More;
        }
        if !self.commands.is_empty() {
            if !self.commands.emit(core, &mut self.voice, &mut self.base, burst) {
                return Turn::More;
            }
            self.rest(core);
        }
        if self.probe.due && !self.emit_probe(core, burst) {
            return Turn::More;
        }
        if self.adv_due && !self.emit_repair_adv(core, burst) {
            return Turn::More;
        }
        if self.flush.as_ref().is_some_and(|flush| flush.due) && !self.emit_flush(core, burst) {
            return Turn::More;
        }
        if !self.emit_mark(core, burst) {
            return Turn::More;
        }
        Turn::Over
    }

    /// Tells where the end is (§4.2.3, §5.1.1), and asks receivers to acknowledge (§5.5.3), in as
    /// many messages as it takes to name them.
    fn emit_flush(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let through = self.flush.as_ref().map(|flush| flush.through);
        let Some(position) = through.and_then(|through| self.end_of(core, through)) else {
            self.end_flush(core);
            return true;
        };
        loop {
            let room = (burst.mtu().saturating_sub(FLUSH_HEADER) / 4).max(1);
            let mut nodes = self.ackers(core, burst.departure(), room + 1);
            let is_last = nodes.len() <= room;
            nodes.truncate(room);
            let body = Body::Command(Command::Flush {
                sender: self.voice.header(),
                fec: position.fec,
                object: position.object,
                id: position.id,
                ackers: NodeList::new(&nodes),
                others: Extensions::NONE,
            });
            if !self.voice.say(core, burst, body) {
                return false;
            }
            self.members.asked(&nodes, burst.departure());
            let Some(flush) = self.flush.as_mut() else { return true };
            flush.after = nodes.last().copied().filter(|_| !is_last);
            if is_last {
                flush.due = false;
                flush.sent += 1;
                break;
            }
        }
        for object in self.objects.iter_mut().filter(|object| Some(object.id.number) <= through) {
            let first = object.told.map(|told| told.first);
            let is_again = first.is_some();
            object.told = Some(Told { first: first.unwrap_or(burst.departure()), is_again });
        }
        let at = burst.departure();
        let answers = self.segment_time(core) * self.members.len();
        self.next_flush = at + self.voice.twice().max(answers);
        let sent = self.flush.as_ref().map_or(0, |flush| flush.sent);
        let wait = self.flush_gap(core, at, sent);
        self.base.alarm(&mut core.shared, Alarm::Flush, at, wait);
        true
    }

    /// Time until the next flush, after so many.
    fn flush_gap(&self, core: &Core, now: Time, sent: u32) -> Duration {
        let config = &core.config.sender;
        let twice = self.voice.twice();
        if config.end == EndGame::Flush {
            return twice.max(FLUSH_GAP_MIN);
        }
        if self.is_group {
            let rarer = sent.saturating_sub(config.robust_factor);
            return (twice * (1 << rarer.min(16))).min(twice.max(FLUSH_GAP_MAX));
        }
        let is_silent = sent > 1 && now.since(self.base.last_heard) >= twice;
        let often = (self.voice.round_trip() / FLUSHES_IN_SILENCE).max(FLUSH_GAP_IN_SILENCE);
        if is_silent { often } else { twice }
    }

    /// The next receivers that are asked to acknowledge, at most `max`.
    fn ackers(&self, core: &Core, now: Time, max: usize) -> Vec<NodeId> {
        let config = &core.config.sender;
        let Some(flush) = self.flush.as_ref().filter(|_| config.end == EndGame::Acknowledged)
        else {
            return Vec::new();
        };
        let most = self.persistence(core);
        // Those that others kept from answering probes were not heard of yet.
        let are_unknown = self.is_group && config.receivers == 0 && flush.sent == 0;
        let whoever = are_unknown || self.members.expects_others(config.receivers);
        self.members.to_ask(flush.through, whoever, (now, most), (flush.after, max))
    }

    /// The last segment of an object.
    fn end_of(&self, core: &Core, number: u64) -> Option<Position> {
        let object = self.objects.iter().find(|object| object.id.number == number)?;
        Some(Position { fec: core.config.sender.fec, object: object.number(), id: object.end() })
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        for object in &mut self.objects {
            if object.has_begun()
                && (object.emit_info(core, &mut self.voice, burst) == Turn::More
                    || object.emit_repairs(core, &mut self.voice, burst) == Turn::More)
            {
                return Turn::More;
            }
        }
        self.check_flush(core, burst.departure());
        self.check_stream(core, burst.departure());
        self.emit_control(core, burst)
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        self.set_tail(core);
        let turn = self.emit_segments(core, burst);
        self.check_flush(core, burst.departure());
        self.check_stream(core, burst.departure());
        match turn {
            // The end goes out with the last segment, and not a batch later.
            Turn::Over => self.emit_control(core, burst),
            Turn::More => Turn::More,
        }
    }

    fn emit_segments(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        for object in self.objects.iter_mut().filter(|object| !object.is_sent()) {
            if object.emit_new(core, &mut self.voice, burst) == Turn::More {
                return Turn::More;
            }
            if !object.is_sent() {
                // It is being read, or opened: those behind it wait for their turn.
                return Turn::Over;
            }
        }
        Turn::Over
    }

    /// Tells the last object how many segments go out in the time of a round of repairs.
    fn set_tail(&mut self, core: &Core) {
        let Some(last) = self.objects.back_mut() else { return };
        let path = core.shared.paths.get(&self.path);
        let paced = path.map_or(Duration::ZERO, |path| path.time_of(last.datagram()));
        let congestion = self.voice.congestion.as_ref();
        let each = congestion.map_or(paced, |congestion| congestion.interval()).as_nanos();
        let tail = self.voice.round().as_nanos().checked_div(each);
        let tail = tail.filter(|_| core.config.sender.tail_parity).unwrap_or(0);
        last.tail = u64::try_from(tail).unwrap_or(u64::MAX);
    }

    /// A receiver acknowledges (§4.3.2). `is_private` if the others did not hear it.
    pub(crate) fn on_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        ack: &Ack<'_>,
        is_private: bool,
    ) {
        self.heard(core, now, node, (ack.grtt_response, ack.cc, is_private));
        if ack.kind == Ack::CC {
            self.count_answer(core, now, ack);
        }
        if ack.kind >= Ack::APPLICATION {
            self.commands.on_answer(core, node, ack);
            self.rest(core);
        }
        if ack.kind != Ack::FLUSH {
            return;
        }
        self.on_stream_ack(core, now, node, ack);
        let Ok(at) = Position::decode(ack.payload, FIELD_BITS_ASSUMED) else { return };
        // What is acknowledged is the end of an object, and with that all before it.
        let object = self.objects.iter().find(|object| {
            let end = object.end();
            object.number() == at.object
                && object.is_sent()
                && !object.is_open_stream()
                && (end.block, end.symbol) == (at.id.block, at.id.symbol)
        });
        let Some(number) = object.map(|object| object.id.number) else { return };
        if self.members.acknowledge(node, number, began_with(ack)) {
            self.finish_objects(core, now);
            self.check_flush(core, now);
        }
    }

    /// A receiver asks for repairs (§5.4.1). `is_private` if the others did not hear it.
    pub(crate) fn on_nack(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        nack: &Nack<'_>,
        is_private: bool,
    ) {
        self.heard(core, now, node, (nack.grtt_response, nack.cc, is_private));
        let asked = self.note_requests(core, now, nack);
        if !asked.any {
            return;
        }
        if let Some(number) = asked.first {
            self.members.lacks(node, number);
            self.stream_lacks(node);
        }
        let wait = self.voice.aggregation();
        if is_private && self.is_group && !wait.is_zero() {
            let most = core.config.limits.repairs;
            self.objects.iter_mut().for_each(|object| object.tell(most));
            self.adv_due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
        if wait.is_zero() || !core.config.sender.collect {
            self.commit(core, now);
        } else if !self.is_collecting {
            self.is_collecting = true;
            self.base.alarm(&mut core.shared, Alarm::Aggregate, now, wait);
        }
        self.check_flush(core, now);
    }

    /// A receiver asks for what is no longer here (§4.2.3, SQUELCH).
    fn refuse_unknown(&mut self, core: &mut Core, number: u16, at: Position) {
        let behind = number.wrapping_sub(self.next_number as u16) < 0x8000;
        if behind {
            return;
        }
        self.refuse(core, number, at.id);
    }

    fn refuse(&mut self, core: &mut Core, number: u16, id: PayloadId) {
        if self.base.is_armed(Alarm::Squelch) {
            return;
        }
        self.squelch = Some(Position { fec: core.config.sender.fec, object: number, id });
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Says what no longer is sent: everything before the first object that is here.
    fn emit_squelch(&mut self, core: &mut Core, burst: &mut Burst<'_>, at: Position) -> bool {
        // One that is still being opened will be sent, too.
        let first = self.objects.front();
        // From there on there is something; what was asked for beyond that is named.
        let position = first.map_or(
            Position { object: self.next_number as u16, id: first_id(at.fec), ..at },
            |object| {
                let id = object.first_id().unwrap_or_else(|| first_id(at.fec));
                Position { object: object.number(), id, ..at }
            },
        );
        // Of a stream that is here it is the first block that says what is no more.
        let is_behind = (1..0x8000).contains(&at.object.wrapping_sub(position.object));
        let invalid = [at.object];
        let invalid = if is_behind { &invalid[..] } else { &[] };
        let body = Body::Command(Command::Squelch {
            sender: self.voice.header(),
            fec: position.fec,
            object: position.object,
            id: position.id,
            invalid: ObjectList::new(invalid),
            others: Extensions::NONE,
        });
        if !self.voice.say(core, burst, body) {
            return false;
        }
        self.squelch = None;
        // Once for each round trip is enough.
        let wait = self.voice.twice();
        self.base.alarm(&mut core.shared, Alarm::Squelch, burst.departure(), wait);
        true
    }

    /// Repeats what was asked for, for receivers that do not hear each other (§4.2.3).
    fn emit_repair_adv(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let mut room = vec![0; burst.mtu().saturating_sub(16)];
        let mut writer = RequestWriter::new(&mut room, FIELD_BITS_ASSUMED);
        let fec = core.config.sender.fec;
        let is_all = self.objects.iter().all(|object| object.advertise(fec, &mut writer));
        let flags = if is_all { 0 } else { Command::REPAIR_ADV_LIMIT };
        let body = Body::Command(Command::RepairAdv {
            sender: self.voice.header(),
            flags,
            cc: self.suppressing,
            requests: writer.finish(),
            others: Extensions::NONE,
        });
        if !self.voice.say(core, burst, body) {
            return false;
        }
        self.adv_due = false;
        self.suppressing = None;
        self.objects.iter_mut().for_each(Outgoing::was_told);
        true
    }

    /// Turns what was asked for into repairs.
    fn commit(&mut self, core: &mut Core, now: Time) {
        self.is_collecting = false;
        let is_last =
            core.config.sender.tail_parity && self.objects.iter().all(Outgoing::is_ending);
        for object in &mut self.objects {
            object.commit(core, now, &mut self.voice, is_last);
        }
        if self.objects.iter().any(Outgoing::has_repairs) {
            self.base.want(&mut core.shared, Class::Repair);
        }
        self.check_flush(core, now);
        self.check_stream(core, now);
    }

    /// An effect of one of its objects was carried out.
    pub(crate) fn object(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.objects.iter_mut().find(|object| object.id.number == number)
    }
}

fn finished(
    core: &mut Core,
    object: &Outgoing,
    result: Result<(), Failure>,
    (acknowledged, is_confirmed): (u32, bool),
) {
    let is_confirmed = is_confirmed && result.is_ok();
    core.shared.senders = core.shared.senders.saturating_sub(1);
    core.user.indicate(Indication::Finished(Finished {
        id: object.id,
        is_sender: true,
        result,
        acknowledged,
        is_confirmed,
        info: object.info.clone(),
        name: None,
        data: None,
        size: object.size,
    }));
}

/// Why a path cannot be used.
fn too_narrow(mtu: usize, least: usize) -> String {
    format!(
        "the path takes messages of {mtu} bytes, and NORM needs {least}: \
         an MTU of {} with the headers of IPv4 and UDP",
        least + 28
    )
}

/// The first object that a receiver heard of, if it says so.
fn began_with(ack: &Ack<'_>) -> Option<u16> {
    let mut others = ack.others.iter();
    let value = others.find(|extension| extension.kind == EXT_BEGAN)?.value;
    value.last_chunk::<2>().map(|number| u16::from_be_bytes(*number))
}

/// `K` of the back-off where none is given. The RFC's 4 is for groups of 10,000: every round of
/// repairs takes about 3 K greatest round trips, and in a small group few NACKs are saved by it.
fn usual_backoff(is_group: bool, group_size: u32) -> u8 {
    match (is_group, group_size) {
        (false, _) => 0,
        (true, ..=200) => 1,
        (true, 201..=2000) => 2,
        (true, _) => 4,
    }
}
