//! NORM_ACK messages of a receiver (RFC 5740 §4.3.2): replies to probes (§5.5.2.2),
//! acknowledgements of watermarks and of a sender's end (§4.2.3.1, §5.5.3), replies of the
//! application (§4.2.3.6), and reports of objects that cannot be stored.

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class};

use super::requests::HOLDOFF_LEAST;
use super::{BACKOFF_OF_MANY, EXT_BEGAN, Receiver, SenderId, is_listed};
use crate::answers::QuestionState;
use crate::core::{Alarm, Core};
use crate::group_size::BIASED;
use crate::grtt::backoff;
use crate::indication::{Failure, Indication};
use crate::message::{
    self, Ack, Body, CcFeedback, CcFlags, CcNodes, Extension, Extensions, FIELD_BITS_ASSUMED,
    NodeId, NodeList, ObjectList, Position, SendTime,
};
use crate::reception::{Reception, Role};
use crate::refusal::EXT_REFUSED;
use crate::report::{EXT_REPORT, Report};

/// Minimum `K` of the random wait before a reply, larger than for requests: in most groups replies
/// are more frequent and less urgent.
const BACKOFF_LEAST: u8 = 4;

/// Redundancy of reports: ratio of another receiver's reported rate to this receiver's rate below
/// which this receiver's report is redundant.
const NEAR: f64 = 0.9;

/// Acknowledgement requested by a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Confirmed {
    #[default]
    Nothing,
    /// Sent after a delay, so that receivers of a group do not all send theirs at once.
    Delayed(Position),
    Due(Position),
}

/// Acknowledgements of a sender's positions.
#[derive(Debug, Default)]
pub(super) struct Acknowledgement {
    /// Position to acknowledge once everything before it has arrived.
    wanted: Option<Position>,
    /// Position up to which everything has arrived.
    confirmed: Confirmed,
}

impl Acknowledgement {
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    pub(super) fn is_due(&self) -> bool {
        matches!(self.confirmed, Confirmed::Due(_))
    }

    /// Notes that everything up to the requested position has arrived.
    fn confirm(&mut self, position: Position, at_once: bool) {
        self.wanted = None;
        self.confirmed = if at_once || self.is_due() {
            Confirmed::Due(position)
        } else {
            Confirmed::Delayed(position)
        };
    }

    /// Ends the delay.
    pub(super) fn ripen(&mut self) {
        if let Confirmed::Delayed(position) = self.confirmed {
            self.confirmed = Confirmed::Due(position);
        }
    }
}

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
    /// Processes a flush, which names the end of the sent data (§4.2.3).
    pub(super) fn on_flush(&mut self, core: &mut Core, position: Position, ackers: &NodeList<'_>) {
        if !self.numbers.has_begun() {
            return;
        }
        self.scheme = position.fec;
        let number = self.numbers.unwrap(position.object);
        let mut block = u64::from(position.id.block) + 1;
        if let Some(object) = self.objects.get_mut(&number) {
            object.on_flush(core, position.id);
            if object.is_stream() {
                block = object.reached(position.id.block);
            }
        }
        self.advance(number, block);
        if is_listed(core.node, ackers) {
            self.acknowledgement.wanted = Some(position);
            if self.refused.repeat(number) {
                self.want_refusal(core);
            }
        }
        self.acknowledge(core);
        // A sender that flushes has nothing else to send: either the repairs were sent before, or
        // it did not receive the request.
        let wait = match self.timing.backoff {
            BACKOFF_OF_MANY.. => self.holdoff(),
            _ => self.answer_time().max(HOLDOFF_LEAST),
        };
        self.check_repairs_after(core, wait);
    }

    /// Acknowledges if requested and if everything has arrived.
    pub(super) fn acknowledge(&mut self, core: &mut Core) {
        let now = core.now;
        let wanted = self.acknowledgement.wanted.filter(|_| !core.config.receiver.silent);
        let Some(position) = wanted else { return };
        let number = self.numbers.unwrap(position.object);
        let is_here = match self.objects.first_key_value() {
            Some((first, object)) if *first == number => object.has_through(position.id),
            Some((first, _)) if *first < number => false,
            Some(_) | None => self.numbers.is_done(number),
        };
        if self.numbers.is_refused(number) || !is_here {
            return;
        }
        self.acknowledgement.confirm(position, self.is_alone());
        if self.is_alone() {
            self.base.want(&mut core.shared, Class::Control);
        } else if !self.base.is_armed(Alarm::Acknowledge) {
            let wait = self.timing.grtt.mul_f64(core.rng.unit());
            self.base.alarm(&mut core.shared, Alarm::Acknowledge, now, wait);
        }
    }

    /// Processes a squelch: the sender no longer has some objects.
    pub(super) fn on_squelch(
        &mut self,
        core: &mut Core,
        position: Position,
        invalid: &ObjectList<'_>,
    ) {
        if !self.numbers.has_begun() {
            return;
        }
        let first = self.numbers.unwrap(position.object);
        let invalid: Vec<_> = invalid.iter().map(|number| self.numbers.unwrap(number)).collect();
        for (number, object) in &mut self.objects {
            if *number < first || invalid.contains(number) {
                object.abandon(core, Failure::Abandoned);
            } else if *number == first {
                object.prune(core, position.id);
            }
        }
        self.settle(core);
    }

    pub(super) fn emit_acknowledgement(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Confirmed::Due(position) = self.acknowledgement.confirmed else { return true };
        let mut payload = [0; 12];
        let len = position.encode(&mut payload, FIELD_BITS_ASSUMED).unwrap_or(0);
        let [high, low] = self.numbers.vouched().to_be_bytes();
        let began = [0, high, low];
        let began = Extension { kind: EXT_BEGAN, value: &began };
        let report = self.coded_report().map(|report| report.encode());
        let others = match &report {
            Some(value) => &[Extension { kind: EXT_REPORT, value }, began][..],
            None => &[began][..],
        };
        let ack = self.ack(Ack::FLUSH, burst.departure(), &payload[..len]);
        let body = Body::Ack(Ack { others: Extensions::new(others), ..ack });
        let went = self.push(core, burst, body);
        if went {
            self.acknowledgement.confirmed = Confirmed::Nothing;
            self.feedback_left(core, burst.departure());
        }
        went
    }

    pub(super) fn ack<'a>(&self, kind: u8, at: Time, payload: &'a [u8]) -> Ack<'a> {
        Ack {
            server: self.sender.node,
            instance: self.life.instance,
            kind,
            id: 0,
            grtt_response: self.feedback.response(at),
            cc: self.feedback.report(self.timing.grtt),
            others: Extensions::NONE,
            payload,
        }
    }

    /// Processes a question of the sender's application (§4.2.3.6). Acknowledgements of probes and
    /// flushes are not requested in this way, and other kinds are undefined.
    pub(super) fn on_question(&mut self, core: &mut Core, kind: u8, id: u8, ackers: &NodeList<'_>) {
        if kind < Ack::APPLICATION {
            core.stats.stray += 1;
            return;
        }
        if core.config.receiver.silent || !is_listed(core.node, ackers) {
            return;
        }
        match self.answers.question(kind, id) {
            QuestionState::New => {
                let SenderId { path: peer, node: NodeId(node) } = self.sender;
                core.user.indicate(Indication::Question { peer, node, kind, id });
            }
            QuestionState::Answered => self.want_answer(core),
            QuestionState::Waiting => {}
        }
    }

    /// Stores the application's answer to a question. Returns `false` if there is no such question.
    pub(crate) fn answer_question(
        &mut self,
        core: &mut Core,
        kind: u8,
        id: u8,
        bytes: bytes::Bytes,
    ) -> bool {
        let is_known = self.answers.answer(kind, id, bytes);
        if is_known {
            self.want_answer(core);
        }
        is_known
    }

    /// Schedules the reply within a round trip, so that not all receivers reply at once (§5.5.3).
    fn want_answer(&mut self, core: &mut Core) {
        let now = core.now;
        if self.is_alone() {
            self.answers.is_due = true;
            self.base.want(&mut core.shared, Class::Control);
        } else if !self.base.is_armed(Alarm::Answer) {
            let wait = self.timing.grtt.mul_f64(core.rng.unit());
            self.base.alarm(&mut core.shared, Alarm::Answer, now, wait);
        }
    }

    /// Sends the application's answers. Returns `false` if an answer must wait for the next batch.
    pub(super) fn emit_answers(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        while self.answers.is_due
            && let Some((kind, id, bytes)) = self.answers.due()
        {
            let ack = Ack { id, ..self.ack(kind, burst.departure(), &bytes) };
            if !self.push(core, burst, Body::Ack(ack)) {
                return false;
            }
            self.answers.went(kind, id);
        }
        self.answers.is_due = false;
        true
    }

    /// Reports an object that cannot be stored: when that shows, and for each flush of the object.
    pub(super) fn want_refusal(&mut self, core: &mut Core) {
        if !core.config.receiver.silent {
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    pub(super) fn emit_refusal(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(refusal) = self.refused.due().filter(|_| !core.config.receiver.silent) else {
            return true;
        };
        let value = refusal.encode();
        let others = [Extension { kind: EXT_REFUSED, value: &value }];
        let ack = self.ack(Ack::CC, burst.departure(), &[]);
        let went =
            self.push(core, burst, Body::Ack(Ack { others: Extensions::new(&others), ..ack }));
        if went {
            self.refused.sent();
            self.feedback_left(core, burst.departure());
        }
        went
    }

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
