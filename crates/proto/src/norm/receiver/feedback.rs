//! Answers to probes: of the round trip, and of the rate that suits this receiver (RFC 5740
//! §5.5.2.2).

use std::time::Duration;

use engine::Time;
use wire::norm::{self, Ack, Body, CcFeedback, CcFlags, CcNodes, SendTime};

use super::{Probe, Receiver};
use crate::norm::core::{Alarm, Core};
use crate::norm::group_size::BIASED;
use crate::norm::grtt::backoff;
use crate::norm::reception::Role;
use crate::path::{Burst, Class};

/// `K` of the random wait before an answer, if that of requests is smaller: in most groups there are
/// more answers than requests, and they are less urgent.
const BACKOFF_LEAST: u8 = 4;

/// Others that report a rate below so many times this one's need not be told of this one.
const NEAR: f64 = 0.9;

impl Receiver {
    /// A message of the sender arrived, whatever it is.
    pub(crate) fn arrived(
        &mut self,
        core: &mut Core,
        now: Time,
        sequence: u16,
        (len, is_data): (usize, bool),
    ) {
        if is_data {
            self.nack.arrivals.arrived(now, len);
        }
        let rate = self.probe.and_then(|probe| probe.rate).map(norm::rate);
        let is_event = self.reception.arrived(now, sequence, (len, is_data), (self.grtt, rate));
        // The sender waits to hear of that from those who set its rate.
        if is_event && rate.is_some() && self.reception.role() != Role::Other {
            self.answer(core);
        }
    }

    /// The sender asks how long the round trip is, and tells what it knows (§4.2.3).
    pub(super) fn on_probe(
        &mut self,
        core: &mut Core,
        now: Time,
        (sequence, send_time, rate): (u16, SendTime, Option<u16>),
        nodes: &CcNodes<'_>,
    ) {
        self.probe = Some(Probe { send_time, heard_at: now, sequence, rate });
        self.reception.told(nodes.iter().find(|entry| entry.node == core.node));
        let Some(rate) = rate.map(norm::rate).filter(|_| !core.config.receiver.silent) else {
            return;
        };
        if self.is_alone() || self.reception.role() != Role::Other {
            self.answer(core);
        } else if !self.base.is_armed(Alarm::Feedback) && now >= self.quiet_until {
            let most = self.quiet();
            let wait = backoff(&mut core.rng, most, f64::from(self.group));
            let bias = self.reception.bias(self.grtt, rate);
            let wait = most.mul_f64(BIASED * bias) + wait.mul_f64(1.0 - BIASED);
            (self.claimed, _) = self.reception.fair(self.grtt, rate);
            self.base.alarm(&mut core.shared, Alarm::Feedback, now, wait);
        }
    }

    /// Greatest wait before an answer, and the least time from one to the next.
    fn quiet(&self) -> Duration {
        self.grtt * u32::from(self.backoff.max(BACKOFF_LEAST))
    }

    pub(super) fn answer(&mut self, core: &mut Core) {
        self.feedback_due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// What is known was told, or others told as much.
    pub(super) fn told(&mut self, core: &mut Core, now: Time) {
        if self.probe.is_none_or(|probe| probe.rate.is_none()) {
            return;
        }
        self.feedback_due = false;
        self.base.disarm(&mut core.shared, Alarm::Feedback);
        self.quiet_until = now + self.quiet();
    }

    /// Another receiver answered the probe. Who could do with more than that tells the sender
    /// little.
    pub(crate) fn on_other_feedback(&mut self, core: &mut Core, now: Time, cc: Option<CcFeedback>) {
        let Some(cc) = cc.filter(|_| self.base.is_armed(Alarm::Feedback)) else { return };
        // Who sets the rate speaks anyway, and is not a measure for others.
        let is_measure = !cc.flags.contains(CcFlags::CLR) && cc.rate != 0;
        // Who did not measure the round trip cannot tell how its rate compares to a measured one.
        let compares = self.reception.has_rtt() || !cc.flags.contains(CcFlags::RTT);
        let Some(rate) = self.probe.and_then(|probe| probe.rate).map(norm::rate) else { return };
        let (fair, _) = self.reception.fair(self.grtt, rate);
        if is_measure && compares && fair.max(self.claimed) > NEAR * norm::rate(cc.rate) {
            self.told(core, now);
        }
    }

    /// When the sender would have sent its probe, had it come just now.
    pub(super) fn response(&self, at: Time) -> SendTime {
        let Some(probe) = self.probe else { return SendTime::NONE };
        let held = u64::try_from(at.since(probe.heard_at).as_micros()).unwrap_or(u64::MAX);
        SendTime::from_micros(probe.send_time.micros().saturating_add(held))
    }

    /// What is known for congestion control, if the sender asks for that.
    pub(super) fn feedback(&self) -> Option<CcFeedback> {
        let probe = self.probe?;
        let rate = norm::rate(probe.rate?);
        Some(self.reception.feedback(probe.sequence, self.grtt, rate))
    }

    pub(super) fn emit_feedback(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let body = Body::Ack(self.ack(Ack::CC, burst.departure(), &[]));
        let went = self.say(core, burst, body);
        if went {
            self.feedback_due = false;
            self.told(core, burst.departure());
        }
        went
    }
}
