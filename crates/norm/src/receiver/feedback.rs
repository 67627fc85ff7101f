//! Replies to probes: the round trip, and the rate that suits this receiver (RFC 5740 §5.5.2.2).

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class};

use super::Receiver;
use crate::core::{Alarm, Core};
use crate::group_size::BIASED;
use crate::grtt::backoff;
use crate::message::{
    self, Ack, Body, CcFeedback, CcFlags, CcNodes, Extension, Extensions, SendTime,
};
use crate::reception::{Reception, Role};
use crate::report::{EXT_REPORT, Report};

/// Minimum `K` of the random wait before a reply, larger than for requests: in most groups replies
/// are more frequent and less urgent.
const BACKOFF_LEAST: u8 = 4;

/// Redundancy of reports: ratio of another receiver's reported rate to this receiver's rate below
/// which this receiver's report is redundant.
const NEAR: f64 = 0.9;

/// Most recent probe of the round trip.
#[derive(Clone, Copy, Debug)]
struct Probe {
    send_time: SendTime,
    arrived_at: Time,
    sequence: u16,
    rate: Option<u16>,
}

/// Feedback on the sender's round trip and rate.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    probe: Option<Probe>,
    reception: Reception,
    is_due: bool,
    /// Time until which no reply to a probe is needed.
    quiet_until: Time,
    /// Fair rate when the wait before this report began.
    claimed: f64,
}

impl Feedback {
    pub(super) fn new() -> Self {
        Self { reception: Reception::new(), ..Self::default() }
    }

    /// Rate advertised by the sender, in bytes per second.
    pub(super) fn sender_rate(&self) -> Option<f64> {
        self.probe.and_then(|probe| probe.rate).map(message::rate)
    }

    /// Echoed sending time, corrected by the time since the probe arrived.
    pub(super) fn response(&self, at: Time) -> SendTime {
        let Some(probe) = self.probe else { return SendTime::NONE };
        let held = u64::try_from(at.since(probe.arrived_at).as_micros()).unwrap_or(u64::MAX);
        SendTime::from_micros(probe.send_time.micros().saturating_add(held))
    }

    /// Congestion control feedback, if the sender uses it.
    pub(super) fn report(&self, grtt: Duration) -> Option<CcFeedback> {
        let probe = self.probe?;
        let rate = message::rate(probe.rate?);
        Some(self.reception.feedback(probe.sequence, grtt, rate))
    }

    /// Whether another receiver's report makes this one redundant: higher rates carry little
    /// information for the sender.
    fn is_covered_by(&self, cc: CcFeedback, grtt: Duration) -> bool {
        // The CLR replies in any case, and its report says nothing about others.
        let is_measure = !cc.flags.contains(CcFlags::CLR) && cc.rate != 0;
        // Rates computed without a measured round trip cannot be compared with measured ones.
        let compares = self.reception.has_rtt() || !cc.flags.contains(CcFlags::RTT);
        let Some(rate) = self.sender_rate() else { return false };
        let (fair, _) = self.reception.fair(grtt, rate);
        is_measure && compares && fair.max(self.claimed) > NEAR * message::rate(cc.rate)
    }
}

impl Receiver {
    /// Processes the arrival of any message of the sender.
    pub(crate) fn arrived(&mut self, core: &mut Core, sequence: u16, len: usize, is_data: bool) {
        let now = core.now;
        self.allowance.received(len);
        self.coded.arrived(sequence);
        if is_data {
            self.nack.arrivals.arrived(now, len);
        }
        let rate = self.feedback.sender_rate();
        let reception = &mut self.feedback.reception;
        let grtt = self.timing.grtt;
        let is_event = reception.arrived(now, sequence, len, is_data, grtt, rate);
        // The sender waits for this report, because this receiver sets its rate.
        if is_event && rate.is_some() && reception.role != Role::Other {
            self.answer(core);
        }
    }

    /// Processes a probe of the round trip and the feedback in it (§4.2.3).
    pub(super) fn on_probe(
        &mut self,
        core: &mut Core,
        sequence: u16,
        send_time: SendTime,
        rate: Option<u16>,
        nodes: &CcNodes<'_>,
    ) {
        let now = core.now;
        self.feedback.probe = Some(Probe { send_time, arrived_at: now, sequence, rate });
        let own = nodes.iter().find(|entry| entry.node == core.node);
        self.feedback.reception.assigned(own);
        let due = self.objects.values_mut().filter_map(|object| object.repeat_list().then_some(()));
        if due.count() > 0 {
            self.want_list(core);
        }
        let Some(rate) = rate.map(message::rate).filter(|_| !core.config.receiver.silent) else {
            return;
        };
        if self.is_alone() || self.feedback.reception.role != Role::Other {
            self.answer(core);
        } else if !self.base.is_armed(Alarm::Feedback) && now >= self.feedback.quiet_until {
            let (grtt, most) = (self.timing.grtt, self.quiet());
            let wait = backoff(&mut core.rng, most, f64::from(self.timing.group));
            let bias = self.feedback.reception.bias(grtt, rate);
            let wait = most.mul_f64(BIASED * bias) + wait.mul_f64(1.0 - BIASED);
            (self.feedback.claimed, _) = self.feedback.reception.fair(grtt, rate);
            self.base.alarm(&mut core.shared, Alarm::Feedback, now, wait);
        }
    }

    /// Longest wait before a reply, and the minimum time between two.
    fn quiet(&self) -> Duration {
        self.timing.grtt * u32::from(self.timing.backoff.max(BACKOFF_LEAST))
    }

    pub(super) fn answer(&mut self, core: &mut Core) {
        self.feedback.is_due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Notes that a message with feedback was sent, or that others reported enough.
    pub(super) fn feedback_left(&mut self, core: &mut Core, now: Time) {
        if self.feedback.sender_rate().is_none() {
            return;
        }
        self.base.disarm(&mut core.shared, Alarm::Feedback);
        self.feedback.is_due = false;
        self.feedback.quiet_until = now + self.quiet();
    }

    /// Notes another receiver's reply to the probe.
    pub(crate) fn on_other_feedback(
        &mut self,
        core: &mut Core,
        cc: Option<CcFeedback>,
        report: Option<Report>,
    ) {
        let now = core.now;
        let Some(cc) = cc.filter(|_| self.base.is_armed(Alarm::Feedback)) else { return };
        let is_covered = match self.coded_report() {
            Some(own) => report.is_some_and(|other| own.is_covered_by(&other)),
            None => self.feedback.is_covered_by(cc, self.timing.grtt),
        };
        if is_covered {
            self.feedback_left(core, now);
        }
    }

    pub(super) fn emit_feedback(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        if !self.feedback.is_due {
            return true;
        }
        let report = self.coded_report().map(|report| report.encode());
        let report = report.as_ref().map(|value| [Extension { kind: EXT_REPORT, value }]);
        let others = report.as_ref().map_or(Extensions::NONE, |report| Extensions::new(report));
        let ack = self.ack(Ack::CC, burst.departure(), &[]);
        let body = Body::Ack(Ack { others, ..ack });
        let went = self.push(core, burst, body);
        if went {
            self.feedback.is_due = false;
            self.feedback_left(core, burst.departure());
        }
        went
    }
}
