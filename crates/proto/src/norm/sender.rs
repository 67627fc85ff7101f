//! A sender on one path (RFC 5740 §5.1, §5.4, §5.5).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use engine::{PathId, Time};
use wire::norm::{
    self, Ack, Body, CcNodes, Command, Extensions, FIELD_BITS_ASSUMED, Form, Nack, NodeId,
    NodeList, ObjectList, PayloadId, Position, RequestFlags, RequestWriter, SendTime,
};

use super::coding::{Coding, first_id};
use super::config::{EndGame, SenderConfig};
use super::core::{Alarm, Core, send_time, since_sent};
use super::grtt::Grtt;
use super::indication::{Failure, Finished, Indication, Limit, Report};
use super::outgoing::{Cut, Outgoing, Symbols};
use super::receiver::EXT_BEGAN;
use super::voice::Voice;
use crate::kernel::Base;
use crate::path::{Burst, Class, Path, Turn};

/// Octets of NORM_CMD(FLUSH) before its list, with the longest payload identifier.
const FLUSH_HEADER: usize = 24;

/// Most time between flushes that wait for receivers far away.
const FLUSH_GAP_MAX: Duration = Duration::from_secs(60);

/// Most objects that one range of a request may name.
const OBJECTS_MAX: u16 = 1023;

/// The segments that one NACK asks for, by object and block. A receiver may need several requests
/// for those of one block.
type Asked = BTreeMap<(u16, u32), Symbols>;

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
    /// Whether requests for repairs are being collected.
    is_collecting: bool,
    /// Whether others shall hear what was asked for by a receiver that they do not hear.
    adv_due: bool,
    /// Objects that were asked for and are no longer here.
    squelch: Option<Position>,
    members: BTreeMap<NodeId, Member>,
}

#[derive(Debug, Default)]
struct Probe {
    sequence: u16,
    interval: Duration,
    due: bool,
}

/// The end of what there is to send is being told.
#[derive(Debug)]
struct Flush {
    /// When it began, or somebody was last heard.
    since: Time,
    /// The last of the receivers that were asked to acknowledge, if some are left that did not fit
    /// the same message.
    after: Option<NodeId>,
    sent: u32,
    due: bool,
}

/// A receiver that was heard of.
#[derive(Debug, Default)]
struct Member {
    /// Whether it acknowledged what is being flushed.
    has_acknowledged: bool,
    /// The first object that it heard of, if it says so: it acknowledges nothing before.
    first: Option<u16>,
}

impl Sender {
    pub(crate) fn new(base: Base<Alarm>, path: PathId, coding: Coding, core: &mut Core) -> Self {
        let is_group = core.config.is_group(path);
        let config = &core.config.sender;
        let least = Duration::from_micros(1);
        let grtt = Grtt::new(config.grtt_initial, least, config.grtt_max);
        let backoff =
            config.backoff.unwrap_or_else(|| usual_backoff(is_group, config.group_size)).min(15);
        let group_size = config.group_size;
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
            is_collecting: false,
            adv_due: false,
            squelch: None,
            members: BTreeMap::new(),
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
            size: (!object.is_opening()).then_some(object.size),
            info: object.info.clone(),
        })
    }

    pub(crate) fn memory(&self) -> usize {
        let objects: usize = self.objects.iter().map(Outgoing::memory).sum();
        objects + self.objects.len() * size_of::<Outgoing>() + self.members.len() * 32
    }

    /// Sends another object.
    pub(crate) fn add(&mut self, core: &mut Core, now: Time, mut object: Outgoing) {
        if self.objects.is_empty() {
            self.begin(core);
        }
        self.next_number += 1;
        object.open(core);
        self.objects.push_back(object);
        self.end_flush(core);
        self.advance(core, now);
    }

    /// The first of some objects: probes the round trip.
    fn begin(&mut self, core: &mut Core) {
        let config = &core.config.sender;
        let known = core.kernel.paths.get(&self.path).and_then(Path::light);
        let initial = match known.filter(|_| config.grtt_of_path) {
            Some(light) => light + self.base.seat.round_trip(&core.kernel.paths).margin(),
            None => config.grtt_initial,
        };
        if self.members.is_empty() {
            self.voice.grtt = Grtt::new(initial, self.segment_time(core), config.grtt_max);
        }
        self.probe.interval = Duration::ZERO;
        self.probe.due = true;
        self.base.want(&mut core.kernel, Class::Control);
    }

    /// The time of one segment at the path's rate.
    fn segment_time(&self, core: &Core) -> Duration {
        let Some(path) = core.kernel.paths.get(&self.path) else { return Duration::ZERO };
        path.time_of(path.mtu())
    }

    /// How objects are cut that have NORM_INFO or not, once the path is up.
    fn cut(&self, core: &Core, has_info: bool) -> Option<Result<Cut, Failure>> {
        let path = core.kernel.paths.get(&self.path).filter(|path| path.mtu() > 0)?;
        let config = &core.config.sender;
        // Where there is no other message to tell how it is coded, NORM_DATA must.
        let has_fti = config.fti_in_data || !has_info;
        let room = path.mtu().saturating_sub(self.coding.data_header(has_fti));
        let most = u16::try_from(room).unwrap_or(u16::MAX);
        let segment = self.coding.fitting(config.segment_size.unwrap_or(most).min(most));
        if segment == 0 {
            return Some(Err(Failure::Settings("the path takes no segment".to_owned())));
        }
        Some(Ok(Cut { segment, coding: self.coding.clone(), has_fti }))
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
        let mtu = core.kernel.paths.get(&self.path).map_or(0, Path::mtu);
        for object in self.objects.iter_mut().filter(|object| object.datagram() > mtu) {
            let failure = Failure::Settings("the path takes its segments no longer".to_owned());
            object.failure.get_or_insert(failure);
        }
        self.drop_failed(core);
        if self.objects.iter().any(Outgoing::is_sending) {
            self.want_data(core);
        }
        self.check_flush(core, now);
    }

    fn want_data(&mut self, core: &mut Core) {
        self.base.want(&mut core.kernel, Class::Bulk);
        if self.objects.iter().any(Outgoing::has_repairs) {
            self.base.want(&mut core.kernel, Class::Repair);
        }
    }

    pub(crate) fn want_all(&mut self, core: &mut Core, now: Time) {
        self.base.want(&mut core.kernel, Class::Control);
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
        if !self.objects.is_empty() {
            return;
        }
        self.flush = None;
        for alarm in [Alarm::Probe, Alarm::Flush, Alarm::Aggregate] {
            self.base.disarm(&mut core.kernel, alarm);
        }
        self.is_collecting = false;
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

    /// Begins to tell where the end is, if all was sent and nothing waits to be repaired.
    fn check_flush(&mut self, core: &mut Core, now: Time) {
        let is_idle = !self.is_collecting
            && self.objects.iter().all(|object| object.is_sent() && !object.has_repairs());
        if self.objects.is_empty() || !is_idle || self.flush.is_some() {
            return;
        }
        for member in self.members.values_mut() {
            member.has_acknowledged = false;
        }
        self.flush = Some(Flush { since: now, after: None, sent: 0, due: true });
        self.base.want(&mut core.kernel, Class::Control);
    }

    /// There is something to send again: the end is told anew after that.
    fn end_flush(&mut self, core: &mut Core) {
        self.flush = None;
        self.base.disarm(&mut core.kernel, Alarm::Flush);
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Probe => {
                self.voice.grtt.round_over();
                self.probe.due = true;
                self.base.want(&mut core.kernel, Class::Control);
            }
            Alarm::Flush => self.flush_again(core, now),
            Alarm::Aggregate => self.commit(core, now),
            Alarm::Squelch
            | Alarm::Nack
            | Alarm::Feedback
            | Alarm::Acknowledge
            | Alarm::Inactivity => {}
        }
    }

    fn flush_again(&mut self, core: &mut Core, now: Time) {
        if self.is_acknowledged(core) {
            self.finish(core, &Ok(()));
            return;
        }
        let config = &core.config.sender;
        let Some(flush) = self.flush.as_mut() else { return };
        let waits = config.end == EndGame::Acknowledged && now.since(flush.since) < config.patience;
        if flush.sent < config.robust_factor || waits {
            flush.due = true;
            self.base.want(&mut core.kernel, Class::Control);
            return;
        }
        let known = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let acknowledged = self.acknowledged();
        let expected = known.max(core.config.sender.receivers);
        let result = match core.config.sender.end {
            EndGame::Flush => Ok(()),
            EndGame::Acknowledged if expected == 0 => Err(Failure::NoReceiver),
            EndGame::Acknowledged if acknowledged >= expected => Ok(()),
            EndGame::Acknowledged => {
                Err(Failure::Unacknowledged { missing: expected - acknowledged, known: expected })
            }
        };
        self.finish(core, &result);
    }

    fn acknowledged(&self) -> u32 {
        let those = self.members.values().filter(|member| member.has_acknowledged).count();
        u32::try_from(those).unwrap_or(u32::MAX)
    }

    /// Whether every receiver that was heard of has everything.
    fn is_acknowledged(&self, core: &Core) -> bool {
        let config: &SenderConfig = &core.config.sender;
        let Some(flush) = self.flush.as_ref() else { return false };
        if config.end != EndGame::Acknowledged || self.members.is_empty() {
            return false;
        }
        let expected = (self.members.len() as u32).max(config.receivers);
        // In a group of unknown size, others get a second chance to be heard.
        let least = if self.is_group && config.receivers == 0 { 2 } else { 1 };
        self.acknowledged() >= expected && flush.sent >= least
    }

    fn finish(&mut self, core: &mut Core, result: &Result<(), Failure>) {
        let acknowledged = self.acknowledged();
        let is_confirmed = acknowledged > 0 && acknowledged as usize == self.members.len();
        let known = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        for mut object in std::mem::take(&mut self.objects) {
            object.close(core);
            core.free.push(object.handle());
            // A receiver that was started again does not know what came before.
            let number = object.number();
            let late = self.members.values().filter(|member| {
                let first = member.first.filter(|_| member.has_acknowledged);
                first.is_some_and(|first| number.wrapping_sub(first) >= 0x8000)
            });
            let missing = u32::try_from(late.count()).unwrap_or(u32::MAX);
            let result = match result {
                Ok(()) if missing > 0 && core.config.sender.end == EndGame::Acknowledged => {
                    Err(Failure::Unacknowledged { missing, known })
                }
                result => result.clone(),
            };
            let is_confirmed = is_confirmed && missing == 0;
            finished(core, &object, result, (acknowledged - missing, is_confirmed));
        }
        self.rest(core);
        // A receiver that left is not waited for when more is sent.
        self.members.retain(|_, member| member.has_acknowledged);
    }

    /// Ends because the node ends it.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        match class {
            Class::Control => self.emit_control(core, burst),
            Class::Metadata => Turn::Over,
            Class::Repair => self.emit_repairs(core, burst),
            Class::Bulk => self.emit_new(core, burst),
        }
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.probe.due && !self.emit_probe(core, burst) {
            return Turn::More;
        }
        if self.adv_due && !self.emit_repair_adv(core, burst) {
            return Turn::More;
        }
        if let Some(at) = self.squelch
            && !self.emit_squelch(core, burst, at)
        {
            return Turn::More;
        }
        if self.flush.as_ref().is_some_and(|flush| flush.due) && !self.emit_flush(core, burst) {
            return Turn::More;
        }
        Turn::Over
    }

    /// Asks how long the round trip is (§4.2.3, §5.4).
    fn emit_probe(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let at = burst.departure();
        let path = core.kernel.paths.get(&self.path);
        let rate = path.and_then(Path::rate_bps).map_or(f64::MAX, |rate| rate as f64 / 8.0);
        let body = Body::Command(Command::Cc {
            sender: self.voice.header(),
            sequence: self.probe.sequence,
            send_time: send_time(at),
            rate: Some(norm::quantise_rate(rate.min(1e12))),
            nodes: CcNodes::NONE,
            others: Extensions::NONE,
            reserved: 0,
        });
        if !self.voice.say(core, burst, body) {
            return false;
        }
        self.probe.due = false;
        self.probe.sequence = self.probe.sequence.wrapping_add(1);
        let config = &core.config.sender;
        let least = config.probe_interval_min.max(self.voice.grtt.advertised());
        let most = config.probe_interval_max.max(least);
        self.probe.interval = match self.probe.interval {
            Duration::ZERO => least,
            interval => (interval * 3 / 2).clamp(least, most),
        };
        self.base.alarm(&mut core.kernel, Alarm::Probe, at, self.probe.interval);
        true
    }

    /// Tells where the end is (§4.2.3, §5.1.1), and asks receivers to acknowledge (§5.5.3), in as
    /// many messages as it takes to name them.
    fn emit_flush(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(position) = self.end(core) else { return true };
        loop {
            let room = (burst.mtu().saturating_sub(FLUSH_HEADER) / 4).max(1);
            let mut nodes = self.ackers(core, room + 1);
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
            let Some(flush) = self.flush.as_mut() else { return true };
            flush.after = nodes.last().copied().filter(|_| !is_last);
            if is_last {
                flush.due = false;
                flush.sent += 1;
                break;
            }
        }
        let mut wait = self.voice.twice();
        if let Some(flush) = self.flush.as_ref() {
            let rarer = flush.sent.saturating_sub(core.config.sender.robust_factor);
            wait = (wait * (1 << rarer.min(16))).min(wait.max(FLUSH_GAP_MAX));
        }
        self.base.alarm(&mut core.kernel, Alarm::Flush, burst.departure(), wait);
        true
    }

    /// The next receivers that are asked to acknowledge, at most `max`.
    fn ackers(&self, core: &Core, max: usize) -> Vec<NodeId> {
        let config = &core.config.sender;
        if config.end != EndGame::Acknowledged {
            return Vec::new();
        }
        let after = self.flush.as_ref().and_then(|flush| flush.after);
        let is_unknown = self.members.is_empty() || self.members.len() < config.receivers as usize;
        // Whoever it is.
        let unknown = (is_unknown && after.is_none()).then_some(NodeId::NONE);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let members = self.members.range((from, Bound::Unbounded));
        let missing = members.filter(|(_, member)| !member.has_acknowledged).map(|(node, _)| *node);
        unknown.into_iter().chain(missing).take(max).collect()
    }

    /// The last segment of the last object.
    fn end(&self, core: &Core) -> Option<Position> {
        let object = self.objects.back()?;
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
        self.emit_control(core, burst)
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        for object in &mut self.objects {
            if object.is_sent() {
                continue;
            }
            if object.emit_new(core, &mut self.voice, burst) == Turn::More {
                return Turn::More;
            }
            if !object.is_sent() {
                // It is being read, or opened: those behind it wait for their turn.
                return Turn::Over;
            }
        }
        self.check_flush(core, burst.departure());
        // The end goes out with the last segment, and not a batch later.
        self.emit_control(core, burst)
    }

    /// Takes note of who is there, and how long the way takes.
    fn heard(&mut self, core: &mut Core, now: Time, node: NodeId, response: SendTime) {
        if response.is_some()
            && let Some(took) = since_sent(now, response)
        {
            self.voice.grtt.answered(took);
            let took = took.min(core.config.sender.grtt_max);
            self.base.seat.sample(&mut core.kernel.paths, took);
        }
        if self.members.contains_key(&node) {
            return;
        }
        if self.members.len() >= core.config.limits.receivers {
            core.limit_reached(Limit::Receivers);
            return;
        }
        self.members.insert(node, Member::default());
        if core.config.sender.end == EndGame::Acknowledged
            && !self.is_group
            && let Some(flush) = self.flush.as_mut()
        {
            // Only now is it known whom to ask.
            flush.due = true;
            self.base.want(&mut core.kernel, Class::Control);
        }
    }

    /// A receiver acknowledges (§4.3.2).
    pub(crate) fn on_ack(&mut self, core: &mut Core, now: Time, node: NodeId, ack: &Ack<'_>) {
        self.heard(core, now, node, ack.grtt_response);
        if ack.kind != Ack::FLUSH || self.flush.is_none() {
            return;
        }
        let position = Position::decode(ack.payload, FIELD_BITS_ASSUMED);
        let (Ok(position), Some(end)) = (position, self.end(core)) else { return };
        let is_there = position.object == end.object
            && (position.id.block, position.id.symbol) == (end.id.block, end.id.symbol);
        if !is_there {
            return;
        }
        let Some(member) = self.members.get_mut(&node) else { return };
        if !std::mem::replace(&mut member.has_acknowledged, true)
            && let Some(flush) = self.flush.as_mut()
        {
            flush.since = now;
        }
        member.first = began_with(ack);
        if self.is_acknowledged(core) {
            self.finish(core, &Ok(()));
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
        self.heard(core, now, node, nack.grtt_response);
        let was_flushing = self.flush.is_some();
        let mut any = false;
        let mut asked = Asked::new();
        for request in nack.requests.iter() {
            any |= self.mark(core, now, &request, &mut asked);
        }
        for ((object, block), symbols) in &asked {
            let object = self.objects.iter_mut().find(|other| other.number() == *object);
            any |= object.is_some_and(|object| object.mark(core, *block, symbols));
        }
        if !any {
            return;
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.has_acknowledged = false;
        }
        let wait = self.voice.aggregation();
        if wait.is_zero() {
            self.commit(core, now);
        } else {
            if is_private && self.is_group {
                self.adv_due = true;
                self.base.want(&mut core.kernel, Class::Control);
            }
            if !self.is_collecting {
                self.is_collecting = true;
                self.base.alarm(&mut core.kernel, Alarm::Aggregate, now, wait);
            }
        }
        if was_flushing && (self.is_collecting || self.objects.iter().any(Outgoing::has_repairs)) {
            self.end_flush(core);
        }
    }

    /// Notes what one request asks for, segments in `asked`; whether there is any of the rest.
    fn mark(
        &mut self,
        core: &mut Core,
        now: Time,
        request: &norm::Request<'_>,
        asked: &mut Asked,
    ) -> bool {
        let flags = request.flags;
        let mut any = false;
        for (first, last) in request.ranges() {
            if flags.contains(RequestFlags::OBJECT) {
                any |= self.mark_objects(core, now, first, last.object, true);
                continue;
            }
            if flags.contains(RequestFlags::INFO) {
                any |= self.mark_objects(core, now, first, last.object, false);
            }
            if !flags.contains(RequestFlags::BLOCK) && !flags.contains(RequestFlags::SEGMENT) {
                continue;
            }
            let mut objects = self.objects.iter_mut();
            let Some(object) = objects.find(|object| object.number() == first.object) else {
                self.refuse_unknown(core, first.object, first);
                continue;
            };
            let block = first.id.block;
            if flags.contains(RequestFlags::BLOCK) {
                any |= object.mark_blocks(core, block, last.id.block);
                continue;
            }
            let most = object.symbols(block);
            // A block has no such segment: that is no reason to send others.
            if most == 0 || request.form != Form::Erasures && first.id.symbol >= most {
                continue;
            }
            let symbols = asked.entry((first.object, block)).or_default();
            match request.form {
                // A count, in the place of a number.
                Form::Erasures => symbols.count += u32::from(first.id.symbol),
                Form::Items | Form::Ranges | Form::Other(_) => {
                    (first.id.symbol..=last.id.symbol.min(most - 1)).for_each(|symbol| {
                        symbols.named.insert(symbol);
                    });
                }
            }
        }
        any
    }

    /// Notes that a receiver has nothing of some objects, or not their NORM_INFO.
    fn mark_objects(
        &mut self,
        core: &mut Core,
        now: Time,
        first: Position,
        last: u16,
        all: bool,
    ) -> bool {
        let mut any = false;
        let count = last.wrapping_sub(first.object).min(OBJECTS_MAX);
        for number in 0..=count {
            let number = first.object.wrapping_add(number);
            let object = self.objects.iter_mut().find(|object| object.number() == number);
            let Some(object) = object else {
                self.refuse_unknown(core, number, first);
                continue;
            };
            any |= object.mark_info(now);
            if all {
                any |= object.mark_all(core);
            }
        }
        if any {
            self.base.want(&mut core.kernel, Class::Repair);
        }
        any
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
        self.base.want(&mut core.kernel, Class::Control);
    }

    /// Says what no longer is sent: everything before the first object that is here.
    fn emit_squelch(&mut self, core: &mut Core, burst: &mut Burst<'_>, at: Position) -> bool {
        // One that is still being opened will be sent, too.
        let first = self.objects.front();
        // From there on there is something; what was asked for beyond that is named.
        let position = first.map_or(
            Position { object: self.next_number as u16, id: first_id(at.fec), ..at },
            |object| Position { object: object.number(), id: first_id(at.fec), ..at },
        );
        let is_behind = at.object.wrapping_sub(position.object) < 0x8000;
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
        self.base.alarm(&mut core.kernel, Alarm::Squelch, burst.departure(), wait);
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
            cc: None,
            requests: writer.finish(),
            others: Extensions::NONE,
        });
        if !self.voice.say(core, burst, body) {
            return false;
        }
        self.adv_due = false;
        true
    }

    /// Turns what was asked for into repairs.
    fn commit(&mut self, core: &mut Core, now: Time) {
        self.is_collecting = false;
        let grtt = self.voice.grtt.advertised();
        for object in &mut self.objects {
            object.commit(core, now, grtt);
        }
        if self.objects.iter().any(Outgoing::has_repairs) {
            self.end_flush(core);
            self.base.want(&mut core.kernel, Class::Repair);
        }
        self.check_flush(core, now);
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
    core.kernel.senders = core.kernel.senders.saturating_sub(1);
    core.indicate(Indication::Finished(Finished {
        id: object.id,
        is_sender: true,
        result,
        acknowledged,
        is_confirmed,
        info: object.info.clone(),
        data: None,
        size: object.size,
    }));
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
