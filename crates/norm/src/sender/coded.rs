//! Coded objects at their sender: reports of receivers, and the probes that request them.

use std::time::Duration;

use engine::Time;
use session::path::{Class, Path};

use super::Sender;
use crate::config::SenderConfig;
use crate::core::{Alarm, Core};
use crate::endgame::{Terms, info_copies};
use crate::message::{Extensions, Form, Nack, NodeId, RequestFlags};
use crate::outgoing::{List, Outgoing};
use crate::report::{ListOf, REPORT_LEN, Report};

/// Number of probes in a round trip.
const PROBES: u32 = 8;

/// Minimum number of segments between two probes, and the minimum time.
const SEGMENTS_APART: u32 = 16;
const PROBES_APART: Duration = Duration::from_millis(10);

/// Bytes of a reply to a probe with EXT_CC and EXT_REPORT, and of UDP, IP and link headers.
const REPLY_LEN: usize = 32 + REPORT_LEN + 40;

/// Share of the return link that replies may take, as a divisor.
const RETURN_SHARE: u32 = 8;

/// Round trips of silence after which probes become as rare as those of other objects.
const SILENT: u32 = 16;

/// Probability with which a round of a carousel is enough for a receiver, unless set.
const ROUND_CONFIDENCE: f64 = 0.99;

/// Rate in bit/s above which a path counts as fast.
const FAST_BPS: u64 = 300_000_000;

/// Loss assumed on fast paths for the number of parity positions: a quarter of the source
/// segments. Twice as many symbols take more than twice the time to recover.
const LOSS_FAST: f64 = 0.08;

/// Minimum silence of a receiver after which another one on its path has replaced it.
const FORMER_SILENCE: Duration = Duration::from_millis(500);

/// Age in symbols up to which a remembered loss has weight.
const REMEMBERED_MAX: f64 = 2_000.0;

/// Probability of delivery to receivers that cannot report, if there are any.
fn confidence(config: &SenderConfig) -> Option<f64> {
    config.confidence.or(config.carousel.map(|_| ROUND_CONFIDENCE))
}

impl Sender {
    /// Updates the circumstances that decide how much parity is sent unasked.
    pub(super) fn set_terms(&mut self, core: &Core) {
        if !self.coding.is_long() {
            return;
        }
        let config = &core.config.sender;
        let interval = self.interval(core);
        let receivers = if self.is_group {
            self.members.len().max(config.receivers).max(self.transmission.group_size())
        } else {
            1
        };
        self.transmission.terms = Terms {
            waste: config.waste,
            round_trip: self.transmission.round_trip().as_secs_f64(),
            interval: interval.as_secs_f64(),
            loss: self.loss_known(config).unwrap_or(config.loss_assumed),
            receivers,
            confidence: confidence(config),
            is_silent: self.transmission.terms.is_silent,
        };
        let segments = self.transmission.terms.round_trip / interval.as_secs_f64().max(1e-9);
        let window = (2.0 * segments) as u64;
        let (mut behind, mut rivals) = (0_u64, 1_u32);
        for object in self.objects.iter_mut().rev() {
            object.set_rivals(behind, rivals);
            behind = behind.saturating_add(object.segments());
            rivals += u32::from(behind < window);
        }
    }

    /// Copies of NORM_INFO that receivers without reports need.
    pub(super) fn info_copies(&self, config: &SenderConfig) -> Option<u32> {
        let loss = self.loss_known(config).unwrap_or(config.loss_assumed);
        confidence(config).map(|confidence| info_copies(confidence, loss))
    }

    /// Loss to the receivers, as set or as measured by earlier objects.
    fn loss_known(&self, config: &SenderConfig) -> Option<f64> {
        let before = self.loss_before.map(|(loss, symbols)| {
            // The upper end of a one-sided range of 95 %.
            loss + 1.65 * (loss * (1.0 - loss) / symbols.clamp(1.0, REMEMBERED_MAX)).sqrt()
        });
        config.loss.or(before)
    }

    /// Loss that determines the parity positions of long blocks, if known. On a fast path
    /// computing limits the rate, so that it matters more than a loss that is unlikely there.
    pub(super) fn loss_of_code(&self, config: &SenderConfig, rate_bps: Option<u64>) -> Option<f64> {
        let is_fast = !config.congestion_control && rate_bps.is_none_or(|rate| rate > FAST_BPS);
        self.loss_known(config).or(is_fast.then_some(LOSS_FAST))
    }

    /// Begins another round of a carousel, if its time has not passed. Returns whether one began.
    pub(super) fn next_round(&mut self, core: &mut Core, now: Time) -> bool {
        if core.config.sender.carousel.is_none() || !self.coding.is_long() {
            return false;
        }
        let mut any = false;
        for object in &mut self.objects {
            any |= object.next_round(now, &self.transmission.terms);
        }
        if any {
            self.base.want(&mut core.shared, Class::Repair);
        }
        any
    }

    /// Time between two segments.
    fn interval(&self, core: &Core) -> Duration {
        let congestion = self.transmission.congestion.as_ref();
        congestion.map_or_else(|| self.segment_time(core), |congestion| congestion.interval())
    }

    /// Processes a receiver's report on a coded object.
    pub(super) fn on_report(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        others: &Extensions<'_>,
    ) -> Option<Report> {
        let report = Report::find(others).filter(|_| self.coding.is_long())?;
        self.transmission.terms.is_silent = false;
        self.set_terms(core);
        let is_single = self.is_single(core);
        let most = core.config.limits.receivers;
        let mut objects = self.objects.iter_mut();
        let object = objects.find(|object| object.number() == report.object)?;
        object.on_report(now, node, &report, &self.transmission, most, is_single);
        self.loss_before = object.measured_loss().or(self.loss_before);
        if object.has_repairs() {
            self.base.want(&mut core.shared, Class::Repair);
        }
        self.base.want(&mut core.shared, Class::Bulk);
        self.check_flush(core, now);
        Some(report)
    }

    fn is_single(&self, core: &Core) -> bool {
        !self.is_group && core.config.sender.receivers <= 1
    }

    /// Forgets earlier processes of the receiver on a path to a single one.
    pub(super) fn forget_former(&mut self, core: &Core, now: Time, node: NodeId) {
        if !self.is_single(core) {
            return;
        }
        let silence = self.transmission.twice().max(FORMER_SILENCE);
        for former in self.members.replace(node, now - silence) {
            self.objects.iter_mut().for_each(|object| object.forget_receiver(former));
        }
    }

    /// Processes a list of everything that a receiver lacks of a resumed object. Returns `false` if
    /// the NACK has none, or receivers in a group lack other parts.
    pub(super) fn on_list(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        report: Option<Report>,
        nack: &Nack<'_>,
    ) -> bool {
        let is_possible = self.coding.is_long() && !self.is_group;
        let Some(of) = ListOf::find(&nack.others).filter(|_| is_possible) else { return false };
        let newest = report.map(|report| report.newest);
        let objects = &mut self.objects;
        let Some(object) = objects.iter_mut().find(|object| object.number() == of.object) else {
            return false;
        };
        if !object.is_sending() {
            return true;
        }
        let list = list_of(of, nack);
        object.on_list(core, now, node, newest, &list, &self.transmission);
        if !list.is_empty() {
            self.members.lacks(node, object.id.number);
        }
        self.want_data(core);
        self.check_flush(core, now);
        true
    }

    /// Repeats the query for what receivers have of objects that an earlier process sent.
    pub(super) fn query_again(&mut self, core: &mut Core, now: Time) {
        let round_trip = self.transmission.round_trip();
        let queries = self.objects.iter_mut().filter(|object| object.is_querying());
        let due = queries.filter_map(|object| object.query_again(now, round_trip).then_some(()));
        if due.count() > 0 {
            self.base.want(&mut core.shared, Class::Bulk);
        }
    }

    /// Decides what to send of coded objects to a receiver that sent a NACK.
    pub(super) fn answer_coded(
        &mut self,
        core: &Core,
        now: Time,
        node: NodeId,
        report: Option<Report>,
    ) {
        if !self.coding.is_long() {
            return;
        }
        self.set_terms(core);
        for object in self.objects.iter_mut().filter(|object| object.is_coded()) {
            object.answer(now, node, report.map(|report| report.newest), &self.transmission);
        }
    }

    /// Sends more parity if reports are overdue.
    pub(super) fn check_silence(&mut self, core: &mut Core, now: Time) {
        let silence = now.since(self.base.last_received);
        let overdue = self.transmission.round_trip() * 3 / 2;
        if !self.coding.is_long() || silence < overdue {
            return;
        }
        self.transmission.terms.is_silent = true;
        self.set_terms(core);
        for object in &mut self.objects {
            object.judge(&self.transmission.terms);
        }
        self.want_repairs(core);
        self.check_flush(core, now);
    }

    /// Interval of probes while a coded object is under way.
    pub(super) fn coded_interval(&self, core: &Core, now: Time) -> Option<Duration> {
        if !self.objects.iter().any(Outgoing::becomes_coded) {
            return None;
        }
        let round_trip = self.transmission.round_trip();
        let is_silent = now.since(self.base.last_received) > round_trip * SILENT;
        if is_silent && !self.objects.iter().any(Outgoing::is_querying) {
            return None;
        }
        let path = core.shared.paths.get(&self.path);
        let back = path.and_then(|path: &Path| path.return_time(REPLY_LEN)).unwrap_or_default();
        let often = if self.is_group { round_trip } else { round_trip / PROBES };
        let least = self.interval(core) * SEGMENTS_APART;
        Some(often.max(least).max(PROBES_APART).max(back * RETURN_SHARE))
    }

    /// Requests reports on a coded object whose segments were sent.
    pub(super) fn probe_end(&mut self, core: &mut Core) {
        if self.base.is_armed(Alarm::Probe) {
            self.probe.due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
    }
}

/// Requests of a NACK with a list.
fn list_of(of: ListOf, nack: &Nack<'_>) -> List {
    let mut list = List { end: of.end, ..List::default() };
    for request in nack.requests.iter().filter(|request| request.form != Form::Erasures) {
        let flags = request.flags;
        for (first, last) in request.ranges().filter(|(first, _)| first.object == of.object) {
            let block = first.id.block;
            if flags.contains(RequestFlags::BLOCK) {
                list.whole.insert(block.into(), u64::from(last.id.block.max(block)) + 1);
            } else if flags.contains(RequestFlags::SEGMENT) {
                let part = list.parts.entry(block).or_default();
                part.insert_all(first.id.symbol, last.id.symbol);
            }
        }
    }
    list
}
