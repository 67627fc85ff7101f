//! Probes of the round trip, the receivers' replies, and the rate and group size that follow from
//! them (RFC 5740 §5.5.1, §5.5.2).

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class, Path};

use super::{Sender, usual_backoff};
use crate::config::EndGame;
use crate::congestion::{Congestion, Setup};
use crate::core::{Alarm, Core, send_time, since_sent};
use crate::indication::Limit;
use crate::message::{
    self, Ack, Body, CcFeedback, CcFlags, CcNodes, Command, Extensions, NodeId, SendTime,
};

/// Minimum time between two probes with congestion control.
const PROBES_APART: Duration = Duration::from_millis(10);

/// Maximum drift of a receiver's clock while it delays its reply.
const CLOCK_SLACK: Duration = Duration::from_millis(1);

/// Minimum silence of a receiver before another may take its place.
const SILENT_MIN: Duration = Duration::from_secs(1);

impl Sender {
    /// Starts congestion control, if configured.
    pub(super) fn start_congestion_control(&mut self, core: &Core) {
        if !core.config.sender.congestion_control || self.transmission.congestion.is_some() {
            return;
        }
        let light = core.shared.paths.get(&self.path).and_then(Path::light);
        let setup = Setup {
            segment: core.shared.paths.get(&self.path).map_or(0, Path::mtu),
            ceiling: self.ceiling(core),
            grtt: self.transmission.round_trip(),
            is_group: self.is_group,
            light: light.filter(|_| core.config.sender.grtt_of_path),
            reporters_max: core.config.limits.receivers,
            robust_factor: core.config.sender.robust_factor,
            late: core.config.catch_up,
        };
        let congestion = Congestion::new(setup);
        self.transmission.grtt.set_least(congestion.interval());
        self.transmission.congestion = Some(Box::new(congestion));
    }

    /// The path's rate in bytes a second.
    fn ceiling(&self, core: &Core) -> f64 {
        let path = core.shared.paths.get(&self.path);
        path.and_then(Path::rate_bps).map_or(f64::INFINITY, |rate| rate as f64 / 8.0)
    }

    /// Whether there is anything to send except the end.
    fn is_busy(&self) -> bool {
        let mut objects = self.objects.iter();
        objects.any(|object| !object.is_sent() || object.has_repairs())
    }

    /// Sends a probe of the round trip with congestion control feedback (§4.2.3.4).
    pub(super) fn emit_probe(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let at = burst.departure();
        let ceiling = self.ceiling(core);
        let is_busy = self.is_busy();
        let grtt = self.transmission.round_trip();
        let sequence = self.probe.sequence;
        let mut entries = Vec::new();
        let mut rate = ceiling;
        if let Some(congestion) = self.transmission.congestion.as_mut() {
            congestion.set_ceiling(ceiling);
            congestion.probes(at, sequence, is_busy, grtt);
            entries = congestion.entries();
            rate = congestion.rate;
        }
        let body = Body::Command(Command::Cc {
            sender: self.transmission.header(),
            sequence,
            send_time: send_time(at),
            rate: Some(message::quantise_rate(rate.min(1e12))),
            nodes: CcNodes::new(&entries),
            others: Extensions::NONE,
            reserved: 0,
        });
        if !self.transmission.push(core, burst, body) {
            return false;
        }
        self.probe.due = false;
        self.probe.first_at.get_or_insert(at);
        self.probe.sent_at = at;
        let most = self.transmission.round_trip() * u32::from(self.transmission.backoff.max(4));
        self.group_size.probed(sequence, at, most, self.transmission.group_size());
        self.judge_group(core);
        self.probe.sequence = sequence.wrapping_add(1);
        self.probe.interval = self.next_interval(core, at);
        self.base.alarm(&mut core.shared, Alarm::Probe, at, self.probe.interval);
        true
    }

    /// Time until the next probe.
    fn next_interval(&self, core: &Core, now: Time) -> Duration {
        let config = &core.config.sender;
        let former = self.probe.interval;
        let grtt = self.transmission.round_trip();
        let often = self.often();
        if let Some(coded) = self.coded_interval(core, now) {
            return often.map_or(coded, |often| often.min(coded));
        }
        if let Some(often) = often {
            return often;
        }
        let (least, grown) = match self.transmission.congestion {
            // No receiver replies yet, or there is nothing to send.
            Some(_) => (grtt.max(PROBES_APART), former * 2),
            None => (config.probe_interval_min.max(grtt), former * 3 / 2),
        };
        grown.clamp(least, config.probe_interval_max.max(least))
    }

    /// Interval of probes while a receiver sets the rate of the data being sent (§5.5.2.1): its
    /// round trip, but not more probes than segments.
    fn often(&self) -> Option<Duration> {
        let congestion = self.transmission.congestion.as_ref().filter(|_| self.is_busy())?;
        let rtt = congestion.rtt()?.min(self.transmission.round_trip());
        Some(rtt.max(congestion.interval()).max(PROBES_APART))
    }

    /// Brings the next probe forward if there is reason to.
    pub(super) fn hasten(&mut self, core: &mut Core, now: Time) {
        let Some(often) = self.often().filter(|often| *often < self.probe.interval) else {
            return;
        };
        if self.probe.due || !self.base.is_armed(Alarm::Probe) {
            return;
        }
        self.probe.interval = often;
        let wait = (self.probe.sent_at + often).since(now);
        self.base.alarm(&mut core.shared, Alarm::Probe, now, wait);
    }

    /// Sends the probe that is due.
    pub(super) fn probe(&mut self, core: &mut Core, now: Time) {
        self.check_silence(core, now);
        self.query_again(core, now);
        let busy = self.transmission.congestion.as_ref().filter(|_| self.is_busy());
        let since = self.probe.sent_at;
        if let Some(due) = busy.and_then(|congestion| congestion.waits(now, since)) {
            // There must not be more probes than data (§5.5.2.1).
            self.base.alarm(&mut core.shared, Alarm::Probe, now, due.since(now));
            return;
        }
        match self.transmission.congestion {
            None => self.transmission.grtt.round_over(),
            Some(_) if now.since(self.probe.round_since) >= self.transmission.round_trip() => {
                self.transmission.grtt.decay();
                self.probe.round_since = now;
            }
            Some(_) => {}
        }
        self.probe.due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Round trip measured by a reply that echoes its probe's sending time, corrected by the
    /// receiver's delay.
    fn took(&self, now: Time, response: SendTime) -> Option<Duration> {
        let took = since_sent(now, response.is_some().then_some(response)?)?;
        // Before the first probe there was nothing to reply to.
        let most = now.since(self.probe.first_at?) + CLOCK_SLACK;
        (took <= most).then_some(took)
    }

    /// Notes the receiver and the measured round trip.
    pub(super) fn on_feedback(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        response: SendTime,
        cc: Option<CcFeedback>,
        is_private: bool,
    ) {
        self.base.last_received = now;
        if let Some(flow) = self.flow.as_mut() {
            flow.members.received(node, now);
        }
        let took = self.took(now, response).filter(|took| !self.doubts(core, now, *took));
        if let Some(took) = took {
            let took = self.transmission.grtt.answered(took);
            self.base.seat.sample(&mut core.shared.paths, took);
        }
        self.follow(core, now, node, cc, took, is_private);
        self.forget_former(core, now, node);
        if self.members.received(node, now) {
            return;
        }
        if self.members.len() as usize >= core.config.limits.receivers {
            core.user.limit_reached(Limit::Receivers);
            let before = now - self.transmission.twice().max(SILENT_MIN);
            let Some(former) = self.members.make_room(before) else { return };
            self.all_members().for_each(|members| members.remove(former));
        }
        self.all_members().for_each(|members| members.insert(node, now));
        self.judge_group(core);
        if core.config.sender.end == EndGame::Acknowledged
            && !self.is_group
            && self.flushes.repeat()
        {
            // Only now are the receivers to poll known.
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// Whether a round trip of the only receiver has to be confirmed by another probe, which is
    /// sent at once: a probe that a link held back during an outage looks like a long way.
    fn doubts(&mut self, core: &mut Core, now: Time, took: Duration) -> bool {
        let is_odd = !self.is_group && self.transmission.grtt.is_odd(took);
        if self.is_idle() {
            return is_odd;
        }
        match self.probe.doubts_since {
            None if is_odd => {
                self.probe.doubts_since = Some(now);
                // There must not be more probes than usual (§5.5.2.1).
                if now.since(self.probe.sent_at) >= PROBES_APART {
                    self.probe.due = true;
                    self.base.want(&mut core.shared, Class::Control);
                }
                true
            }
            // A reply to an earlier probe.
            Some(since) if took > now.since(since) => is_odd,
            _ => {
                self.probe.doubts_since = None;
                false
            }
        }
    }

    /// Processes a receiver's congestion control feedback. `took` is the round trip, if measured;
    /// `is_private` if the other receivers did not receive it.
    pub(super) fn follow(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        cc: Option<CcFeedback>,
        took: Option<Duration>,
        is_private: bool,
    ) {
        let grtt = self.transmission.round_trip();
        let (Some(cc), Some(congestion)) = (cc, self.transmission.congestion.as_mut()) else {
            return;
        };
        if !self.is_group
            && let Some(took) = took
        {
            self.transmission.grtt.believe(took);
        }
        let before = congestion.rate;
        congestion.received(now, node, &cc, took, grtt);
        let is_changed = congestion.rate.total_cmp(&before).is_ne();
        self.transmission.grtt.set_least(congestion.interval());
        if is_changed {
            // Held-back messages may be sent earlier.
            self.base.disarm(&mut core.shared, Alarm::Pace);
        }
        // No receiver reports on data while none is sent. Forwarding a report would look like a
        // sign of life, and could make receivers request data that never existed.
        let is_sending = !self.objects.is_empty();
        if is_private && self.is_group && is_sending && !cc.flags.contains(CcFlags::CLR) {
            self.repairs.suppress(cc);
            self.base.want(&mut core.shared, Class::Control);
        }
        self.hasten(core, now);
    }

    /// Notes how long a receiver waited before it replied to a probe. The CLR does not wait.
    pub(super) fn count_answer(&mut self, core: &Core, now: Time, ack: &Ack<'_>) {
        let waits =
            |cc: &CcFeedback| !cc.flags.contains(CcFlags::CLR) && !cc.flags.contains(CcFlags::PLR);
        let Some(cc) = ack.cc.filter(waits) else { return };
        let Some(way) = since_sent(now, ack.grtt_response) else { return };
        let path = core.shared.paths.get(&self.path);
        let fixed = path.and_then(Path::rate_bps).map_or(f64::MAX, |rate| rate as f64 / 8.0);
        let congestion = self.transmission.congestion.as_ref();
        let rate = congestion.map_or(fixed, |congestion| congestion.rate);
        let share = message::rate(cc.rate) / rate.max(1.0);
        let bias = if cc.flags.contains(CcFlags::START) {
            share / 2.0
        } else {
            (share.clamp(0.5, 0.9) - 0.5) / 0.4
        };
        self.group_size.answered(now, cc.sequence, way, bias);
    }

    /// Announces the estimated group size, unless one is configured.
    pub(super) fn judge_group(&mut self, core: &Core) {
        let config = &core.config.sender;
        if !self.is_group || config.group_size.is_some() {
            return;
        }
        let size = self.group_size.estimate(self.members.len());
        self.transmission.set_group_size(size);
        let usual = usual_backoff(true, size);
        self.transmission.backoff = config.backoff.unwrap_or(usual).min(15);
    }

    /// Arms the timer for held-back messages.
    pub(super) fn wait_for_pace(&mut self, core: &mut Core, now: Time) {
        let Some(at) = self.transmission.held.take() else { return };
        if !self.base.is_armed(Alarm::Pace) {
            self.base.alarm(&mut core.shared, Alarm::Pace, now, at.since(now));
        }
    }
}
