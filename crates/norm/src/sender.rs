//! A sender on one path (RFC 5740 §5.1, §5.4, §5.5).

mod coded;
mod flush;
mod probing;
mod repairs;
mod stream;

use std::collections::VecDeque;
use std::time::Duration;

use engine::{PathId, Time};
use session::Base;
use session::path::{Burst, Class, Path, Turn};

use self::flush::Flushes;
use self::repairs::Repairs;
use self::stream::Flow;
use super::coding::Coding;
use super::commands::Commands;
use super::config::GRTT_MOST;
use super::core::{Alarm, Core};
use super::group_size::{self, GroupSize};
use super::grtt::Grtt;
use super::indication::{Failure, Finished, Indication, Report};
use super::members::Members;
use super::outgoing::{Cut, Outgoing};
use super::receiver::EXT_BEGAN;
use super::refusal::Refusal;
use super::transmission::{Output, Transmission};
use crate::message::{Ack, FIELD_BITS_ASSUMED, NodeId, Position, find_extension};

/// A sender on one path.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) path: PathId,
    is_group: bool,
    transmission: Transmission,
    coding: Coding,
    objects: VecDeque<Outgoing>,
    /// Number of the next object.
    pub(crate) next_number: u64,
    probe: Probe,
    flushes: Flushes,
    /// Receivers' progress in the stream being sent.
    flow: Option<Flow>,
    repairs: Repairs,
    members: Members,
    group_size: GroupSize,
    pub(crate) commands: Commands,
    /// Loss of coded objects before, and the number of segments that it was measured with.
    pub(crate) loss_before: Option<(f64, f64)>,
}

#[derive(Debug, Default)]
struct Probe {
    sequence: u16,
    interval: Duration,
    due: bool,
    /// Time of the first probe: no reply can be older.
    first_at: Option<Time>,
    /// Time of the last probe.
    sent_at: Time,
    /// Time at which the greatest round trip was last checked.
    round_since: Time,
    /// Since when a reply that took very long waits for another one to confirm it.
    doubts_since: Option<Time>,
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
            transmission: Transmission::new(instance, grtt, backoff, group_size),
            coding,
            objects: VecDeque::new(),
            next_number: u64::from(first),
            probe: Probe::default(),
            flushes: Flushes::default(),
            flow: None,
            repairs: Repairs::default(),
            members: Members::default(),
            group_size: GroupSize::new(),
            commands: Commands::new(path),
            loss_before: core.config.sender.loss_before,
        }
    }

    /// Instance of the sender.
    pub(crate) fn instance(&self) -> u16 {
        self.transmission.instance
    }

    /// Takes another instance number, because a sender on another path uses the current one.
    pub(crate) fn renumber(&mut self) {
        self.transmission.instance = self.transmission.instance.wrapping_add(1);
    }

    /// Whether this is the sender's instance.
    pub(crate) fn is(&self, instance: u16) -> bool {
        self.transmission.instance == instance
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

    /// Queues an object.
    pub(crate) fn add(&mut self, core: &mut Core, now: Time, mut object: Outgoing) {
        if self.is_idle() {
            self.begin(core);
        }
        self.next_number += 1;
        if self.coding.is_long() {
            object.set_coded(self.info_copies(&core.config.sender));
        }
        object.open(core);
        if let Some(last) = self.objects.back_mut() {
            last.tail = 0;
        }
        self.objects.push_back(object);
        self.begin_stream();
        self.advance(core, now);
    }

    /// Whether there is nothing to send.
    fn is_idle(&self) -> bool {
        self.objects.is_empty() && self.commands.is_empty()
    }

    /// Starts a series of objects with a probe of the round trip.
    fn begin(&mut self, core: &mut Core) {
        let config = &core.config.sender;
        let known = core.shared.paths.get(&self.path).and_then(Path::light);
        let initial = match known.filter(|_| config.grtt_of_path) {
            Some(light) => light + self.base.seat.round_trip(&core.shared.paths).margin(),
            None => config.grtt_initial,
        };
        if self.members.is_empty() {
            self.transmission.grtt = Grtt::new(initial, self.segment_time(core), config.grtt_max);
        }
        self.start_congestion_control(core);
        self.probe.interval = Duration::ZERO;
        self.probe.doubts_since = None;
        self.probe.due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Transmission time of one segment at the path's rate.
    fn segment_time(&self, core: &Core) -> Duration {
        let Some(path) = core.shared.paths.get(&self.path) else { return Duration::ZERO };
        path.time_of(path.mtu())
    }

    /// Rules for the partition of objects with or without NORM_INFO, once the path is up.
    fn cut(&self, core: &Core, has_info: bool) -> Option<Result<Cut, Failure>> {
        let path = core.shared.paths.get(&self.path).filter(|path| path.mtu() > 0)?;
        let config = &core.config.sender;
        // Without NORM_INFO, only NORM_DATA can announce the coding.
        let has_fti = config.fti_in_data || !has_info;
        let room = path.mtu().saturating_sub(self.coding.data_header(has_fti));
        let most = u16::try_from(room).unwrap_or(u16::MAX);
        let segment = self.coding.fitting(config.segment_size.unwrap_or(most).min(most));
        let least = self.coding.least_path(config.end, has_fti);
        if segment == 0 || path.mtu() < least {
            return Some(Err(Failure::Settings(too_narrow(path.mtu(), least))));
        }
        let loss = self.loss_of_code(config, path.rate_bps());
        Some(Ok(Cut { segment, room: most, coding: self.coding.clone(), loss, has_fti }))
    }

    /// Advances everything that can proceed.
    pub(crate) fn advance(&mut self, core: &mut Core, now: Time) {
        // An earlier process may have started to send the objects.
        if core.partials.is_restored
            && self.objects.iter().any(Outgoing::is_open)
            && let (Some(with_info), Some(without)) = (self.cut(core, true), self.cut(core, false))
        {
            for object in self.objects.iter_mut().filter(|object| object.is_open()) {
                let cut = if object.has_info() { &with_info } else { &without };
                let instance = self.transmission.instance;
                let result = cut.clone().and_then(|cut| object.cut(core, cut, instance));
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

    /// Notes the path's light time if its round trip is too long for messages to express.
    fn learn_light(&mut self, core: &Core) {
        let config = &core.config.sender;
        let light = core.shared.paths.get(&self.path).and_then(Path::light);
        let light = light.filter(|_| config.grtt_of_path && config.grtt_max >= GRTT_MOST);
        self.transmission.light = light.filter(|light| *light > GRTT_MOST).unwrap_or_default();
    }

    fn want_data(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Bulk);
        self.want_repairs(core);
    }

    fn want_repairs(&mut self, core: &mut Core) {
        if self.objects.iter().any(Outgoing::has_repairs) {
            self.base.want(&mut core.shared, Class::Repair);
        }
    }

    /// Excludes an outage of a direction of the path, in which no message arrives, from all
    /// waits.
    pub(crate) fn shift(&mut self, away: Duration) {
        self.all_members().for_each(|members| members.shift(away));
    }

    /// Resumes after an outage of the path or of its return link.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        self.resume_stream();
        // Every flush restarts the wait for the next: outages that are more frequent would keep
        // its end from ever coming.
        self.finish_objects(core, now);
        self.flushes.repeat();
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
            core.free.push(object.handle);
            let end = Err(failure);
            finished(core, &object, end, 0, false);
            // Receivers with a part of it are informed that no more follows.
            if object.fti().is_some() {
                self.refuse(core, object.number(), object.end());
            }
        }
        self.rest(core);
    }

    /// Stops all timers once nothing is left.
    fn rest(&mut self, core: &mut Core) {
        if !self.is_idle() {
            return;
        }
        self.flushes.stop();
        self.flow = None;
        let own = [Alarm::Probe, Alarm::Pace, Alarm::Flush, Alarm::Aggregate];
        for alarm in own.into_iter().chain([Alarm::Room, Alarm::Watermark]) {
            self.base.disarm(&mut core.shared, alarm);
        }
        self.repairs.stop();
        self.probe.due = false;
    }

    /// Cancels an object.
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

    /// Applies `job` to the commands of the sender.
    pub(crate) fn command<T>(
        &mut self,
        core: &mut Core,
        job: impl FnOnce(&mut Commands, &Members, &mut Core) -> T,
    ) -> T {
        let was_idle = self.is_idle();
        let result = job(&mut self.commands, &self.members, core);
        if !self.commands.is_empty() {
            if was_idle {
                self.begin(core);
            }
            self.base.want(&mut core.shared, Class::Control);
        }
        result
    }

    /// Ends the session. Objects under way are given up, which is also announced separately:
    /// libnorm ignores the end of a session.
    pub(crate) fn end(&mut self, core: &mut Core, now: Time) {
        let all: Vec<_> = self.objects.iter().map(|object| object.id.number).collect();
        // The next process may resume them.
        self.objects.iter_mut().for_each(Outgoing::keep_record);
        for number in all {
            self.cancel(core, now, number, Failure::Cancelled);
        }
        self.command(core, |commands, _, core| commands.end(core, now));
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Command => {
                self.commands.expire(core, now);
                self.base.want(&mut core.shared, Class::Control);
                self.rest(core);
            }
            Alarm::Probe => self.probe(core, now),
            // Held-back messages are still queued.
            Alarm::Pace => {}
            Alarm::Flush => self.flush_again(core, now),
            Alarm::Aggregate => self.commit(core, now),
            // There may be room for the end of a closed stream.
            Alarm::Room => self.written(core, now),
            Alarm::Watermark => self.mark_again(core, now),
            Alarm::Squelch
            | Alarm::Nack
            | Alarm::Feedback
            | Alarm::Acknowledge
            | Alarm::Answer
            | Alarm::Save
            | Alarm::Inactivity => {}
        }
    }

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
        // The squelch precedes the end of the session, which other implementations do not
        // understand.
        if !self.emit_squelch(core, burst) {
            return Turn::More;
        }
        if !self.commands.is_empty() {
            let mut out = Output { core, transmission: &mut self.transmission, burst };
            if !self.commands.emit(&mut out, &mut self.base) {
                return Turn::More;
            }
            self.rest(core);
        }
        if self.probe.due && !self.emit_probe(core, burst) {
            return Turn::More;
        }
        if self.repairs.adv_due && !self.emit_repair_adv(core, burst) {
            return Turn::More;
        }
        let went = !self.flushes.is_due() || self.emit_flush(core, burst);
        if went && self.emit_mark(core, burst) { Turn::Over } else { Turn::More }
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let out = &mut Output { core, transmission: &mut self.transmission, burst };
        for object in self.objects.iter_mut().filter(|object| object.has_begun()) {
            if object.emit_info(out) == Turn::More || object.emit_repairs(out) == Turn::More {
                return Turn::More;
            }
        }
        self.check_flush(core, burst.departure());
        self.check_stream(core, burst.departure());
        self.emit_control(core, burst)
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        self.set_tail(core);
        self.set_terms(core);
        let before = self.objects.iter().filter(|object| object.is_sent()).count();
        let turn = self.emit_segments(core, burst);
        if let Some(time) = core.config.sender.carousel {
            self.objects.iter_mut().for_each(|object| object.time_rounds(burst.departure(), time));
        }
        let after = self.objects.iter().filter(|object| object.is_sent()).count();
        if std::mem::take(&mut self.transmission.has_queried) {
            self.probe.due = true;
        }
        if self.coding.is_long() {
            if after > before {
                self.probe_end(core);
            }
            self.want_repairs(core);
        }
        self.check_flush(core, burst.departure());
        self.check_stream(core, burst.departure());
        match turn {
            // The flush goes out with the last segment, not one batch later.
            Turn::Over => self.emit_control(core, burst),
            Turn::More => Turn::More,
        }
    }

    fn emit_segments(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let out = &mut Output { core, transmission: &mut self.transmission, burst };
        for object in self.objects.iter_mut().filter(|object| !object.is_sent()) {
            if object.emit_new(out) == Turn::More {
                return Turn::More;
            }
            if !object.is_sent() {
                // The object is being read or opened: later objects wait.
                return Turn::Over;
            }
        }
        Turn::Over
    }

    /// Sets the number of segments that the last object sends in the time of a round of repairs.
    fn set_tail(&mut self, core: &Core) {
        let Some(last) = self.objects.back_mut() else { return };
        let path = core.shared.paths.get(&self.path);
        let paced = path.map_or(Duration::ZERO, |path| path.time_of(last.datagram()));
        let congestion = self.transmission.congestion.as_ref();
        let each = congestion.map_or(paced, |congestion| congestion.interval()).as_nanos();
        let tail = self.transmission.round().as_nanos().checked_div(each);
        let tail = tail.filter(|_| core.config.sender.tail_parity).unwrap_or(0);
        last.tail = u64::try_from(tail).unwrap_or(u64::MAX);
    }

    /// Processes a receiver's acknowledgement (§4.3.2). `is_private` if the other receivers did not
    /// receive it.
    pub(crate) fn on_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        ack: &Ack<'_>,
        is_private: bool,
    ) {
        self.on_feedback(core, now, node, ack.grtt_response, ack.cc, is_private);
        self.on_report(core, now, node, &ack.others);
        if let Some(refusal) = Refusal::find(&ack.others) {
            self.on_refusal(core, now, node, refusal);
        }
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
        // An acknowledged position is the end of an object, and covers all objects before it.
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

    /// Object with this number.
    pub(crate) fn object(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.objects.iter_mut().find(|object| object.id.number == number)
    }
}

fn finished(
    core: &mut Core,
    object: &Outgoing,
    result: Result<(), Failure>,
    acknowledged: u32,
    is_confirmed: bool,
) {
    let is_confirmed = is_confirmed && result.is_ok();
    object.forget_record(core);
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

/// Error text for a path that is too narrow.
fn too_narrow(mtu: usize, least: usize) -> String {
    format!(
        "the path takes messages of {mtu} bytes, and NORM needs {least}: \
         an MTU of {} with the headers of IPv4 and UDP",
        least + 28
    )
}

/// First object known to a receiver, if reported.
fn began_with(ack: &Ack<'_>) -> Option<u16> {
    find_extension(&ack.others, EXT_BEGAN)?.last_chunk().map(|number| u16::from_be_bytes(*number))
}

/// Default `K` of the back-off. The RFC's 4 is for groups of 10,000: each round of repairs then
/// takes about 3 K greatest round trips, and in a small group it saves few NACKs.
fn usual_backoff(is_group: bool, group_size: u32) -> u8 {
    match (is_group, group_size) {
        (false, _) => 0,
        (true, ..=200) => 1,
        (true, 201..=2000) => 2,
        (true, _) => 4,
    }
}
