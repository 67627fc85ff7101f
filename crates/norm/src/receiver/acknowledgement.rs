//! Acknowledgements of watermarks and of a sender's end (RFC 5740 §4.2.3.1, §5.5.3).

use engine::Time;
use session::path::{Burst, Class};

use super::requests::HOLDOFF_LEAST;
use super::{BACKOFF_OF_MANY, EXT_BEGAN, Receiver, is_listed};
use crate::core::{Alarm, Core};
use crate::indication::Failure;
use crate::message::{
    self, Ack, Body, Extension, Extensions, FIELD_BITS_ASSUMED, ObjectList, Position,
};
use crate::report::EXT_REPORT;

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

impl Receiver {
    /// Processes a flush, which names the end of the sent data (§4.2.3).
    pub(super) fn on_flush(
        &mut self,
        core: &mut Core,
        position: Position,
        ackers: &message::NodeList<'_>,
    ) {
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
}
