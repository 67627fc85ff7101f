//! Repair requests: collected, advertised, repaired or refused (RFC 5740 §4.2.3, §5.4).

use engine::Time;
use session::path::{Burst, Class};

use super::Sender;
use crate::coding::first_id;
use crate::core::{Alarm, Core};
use crate::message::{
    self, Body, CcFeedback, Command, Extensions, FIELD_BITS_ASSUMED, Nack, NodeId, ObjectList,
    PayloadId, Position, RequestWriter,
};
use crate::outgoing::Outgoing;

/// Repair requests under way.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Whether requests are being collected.
    pub(super) is_collecting: bool,
    /// Whether requests and reports must be advertised to receivers that cannot receive them.
    pub(super) adv_due: bool,
    /// Position up to which requested objects are no longer available.
    squelch: Option<Position>,
    /// Lowest reported rate that not all receivers received.
    suppressing: Option<CcFeedback>,
}

impl Repairs {
    /// Notes a report that the others did not receive: the lowest rate is advertised.
    pub(super) fn suppress(&mut self, cc: CcFeedback) {
        let is_lower = |other: &CcFeedback| message::rate(other.rate) <= message::rate(cc.rate);
        self.suppressing = self.suppressing.filter(is_lower).or(Some(cc));
        self.adv_due = true;
    }

    /// Stops all repairs.
    pub(super) fn stop(&mut self) {
        (self.is_collecting, self.adv_due) = (false, false);
        self.suppressing = None;
    }
}

impl Sender {
    /// Processes a NACK (§5.4.1). `is_private` if the other receivers did not receive it.
    pub(crate) fn on_nack(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        nack: &Nack<'_>,
        is_private: bool,
    ) {
        self.on_feedback(core, now, node, nack.grtt_response, nack.cc, is_private);
        let report = self.on_report(core, now, node, &nack.others);
        if self.on_list(core, now, node, report, nack) {
            return;
        }
        let noted = self.note_requests(core, now, nack);
        self.answer_coded(core, now, node, report);
        if !noted.any {
            return;
        }
        if let Some(number) = noted.first {
            self.members.lacks(node, number);
            self.stream_lacks(node);
        }
        let wait = self.transmission.aggregation();
        if is_private && self.is_group && !wait.is_zero() {
            let most = core.config.limits.repairs;
            self.objects.iter_mut().for_each(|object| object.publish(most));
            self.repairs.adv_due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
        if wait.is_zero() || !core.config.sender.collect {
            self.commit(core, now);
        } else if !self.repairs.is_collecting {
            self.repairs.is_collecting = true;
            self.base.alarm(&mut core.shared, Alarm::Aggregate, now, wait);
        }
        self.check_flush(core, now);
    }

    /// Refuses a request for an object that is no longer available (§4.2.3, SQUELCH).
    pub(super) fn refuse_unknown(&mut self, core: &mut Core, number: u16, at: Position) {
        let behind = number.wrapping_sub(self.next_number as u16) < 0x8000;
        if behind {
            return;
        }
        self.refuse(core, number, at.id);
    }

    pub(super) fn refuse(&mut self, core: &mut Core, number: u16, id: PayloadId) {
        if self.base.is_armed(Alarm::Squelch) {
            return;
        }
        self.repairs.squelch = Some(Position { fec: core.config.sender.fec, object: number, id });
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Sends a squelch: everything before the first available object was dropped.
    pub(super) fn emit_squelch(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(at) = self.repairs.squelch else { return true };
        // An object that is being opened will be sent, too.
        let first = self.objects.front();
        // Everything from there on exists; requests beyond it are named.
        let position = first.map_or(
            Position { object: self.next_number as u16, id: first_id(at.fec), ..at },
            |object| {
                let id = object.first_id().unwrap_or_else(|| first_id(at.fec));
                Position { object: object.number(), id, ..at }
            },
        );
        // For a stream, the squelch names its first available block.
        let is_behind = (1..0x8000).contains(&at.object.wrapping_sub(position.object));
        let invalid = [at.object];
        let invalid = if is_behind { &invalid[..] } else { &[] };
        let body = Body::Command(Command::Squelch {
            sender: self.transmission.header(),
            fec: position.fec,
            object: position.object,
            id: position.id,
            invalid: ObjectList::new(invalid),
            others: Extensions::NONE,
        });
        if !self.transmission.push(core, burst, body) {
            return false;
        }
        self.repairs.squelch = None;
        // Once per round trip suffices.
        let wait = self.transmission.twice();
        self.base.alarm(&mut core.shared, Alarm::Squelch, burst.departure(), wait);
        true
    }

    /// Advertises requests to receivers that do not receive each other's messages (§4.2.3).
    pub(super) fn emit_repair_adv(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let mut room = vec![0; burst.mtu().saturating_sub(16)];
        let mut writer = RequestWriter::new(&mut room, FIELD_BITS_ASSUMED);
        let fec = core.config.sender.fec;
        let is_all = self.objects.iter().all(|object| object.advertise(fec, &mut writer));
        let flags = if is_all { 0 } else { Command::REPAIR_ADV_LIMIT };
        let body = Body::Command(Command::RepairAdv {
            sender: self.transmission.header(),
            flags,
            cc: self.repairs.suppressing,
            requests: writer.finish(),
            others: Extensions::NONE,
        });
        if !self.transmission.push(core, burst, body) {
            return false;
        }
        self.repairs.adv_due = false;
        self.repairs.suppressing = None;
        self.objects.iter_mut().for_each(Outgoing::on_published);
        true
    }

    /// Turns requests into repairs.
    pub(super) fn commit(&mut self, core: &mut Core, now: Time) {
        self.repairs.is_collecting = false;
        let is_last =
            core.config.sender.tail_parity && self.objects.iter().all(Outgoing::is_ending);
        for object in &mut self.objects {
            object.commit(core, now, &mut self.transmission, is_last);
        }
        self.want_repairs(core);
        self.check_flush(core, now);
        self.check_stream(core, now);
    }
}
