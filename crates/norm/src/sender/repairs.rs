//! Repair requests: collected, advertised, repaired or refused (RFC 5740 §4.2.3, §4.3.1, §5.4).
//!
//! A NACK may name the same data in many ranges, and a range may cover all of a large object. Its
//! requests are first merged into ranges, so that its cost depends only on its length.

use std::collections::BTreeMap;

use engine::Time;
use session::path::{Burst, Class};
use session::ranges::Ranges;

use super::Sender;
use crate::coding::first_id;
use crate::core::{Alarm, Core};
use crate::incoming::requests::EXT_LACKS;
use crate::message::{
    self, Body, CcFeedback, Command, Extensions, FIELD_BITS_ASSUMED, Form, Nack, NodeId,
    ObjectList, PayloadId, Position, Request, RequestFlags, RequestWriter, find_extension,
};
use crate::outgoing::{Outgoing, Symbols};

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

/// Number of earlier objects that messages can name.
const PAST: u16 = 0x8000;

/// Requests of one NACK for available objects. Objects are counted from the first that messages
/// can name.
#[derive(Debug, Default)]
struct Requested {
    /// Objects named at all.
    named: Ranges,
    /// Objects of which a receiver has nothing.
    whole: Ranges,
    /// Objects whose NORM_INFO is missing.
    info: Ranges,
    /// Identifier of the first segment requested of one of these objects.
    id: PayloadId,
    /// Blocks of which the receiver has nothing, by object.
    blocks: BTreeMap<u16, Ranges>,
    /// Segments by object and block. A receiver may need several requests for the segments of one
    /// block.
    segments: BTreeMap<(u16, u32), Symbols>,
    /// Largest number of segments missing from each requested block, if reported.
    lacks: Option<u16>,
    /// Blocks that lack at most `lacks` segments: object, first and last block.
    counted: Vec<(u16, u32, u32)>,
}

/// Result of recording a NACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// Whether the NACK requests anything that can be repaired.
    pub(super) any: bool,
    /// First available object that the NACK names.
    pub(super) first: Option<u64>,
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

    /// Records the requests of a NACK.
    pub(super) fn note_requests(&mut self, core: &mut Core, now: Time, nack: &Nack<'_>) -> Noted {
        let mut requested = Requested { lacks: lacks(nack), ..Requested::default() };
        let mut any = false;
        for request in nack.requests.iter() {
            any |= self.gather(core, &request, &mut requested);
        }
        self.refuse_objects(core, &requested);
        let past = self.past();
        let (mut is_urgent, mut first) = (false, None);
        for object in &mut self.objects {
            let number = object.number();
            let place = u64::from(number.wrapping_sub(past));
            if requested.named.contains(place) {
                first.get_or_insert(object.id.number);
            }
            let is_whole = requested.whole.contains(place);
            if is_whole || requested.info.contains(place) {
                is_urgent |= object.mark_info(now);
            }
            if is_whole {
                is_urgent |= object.mark_all(core);
                continue;
            }
            for (first, end) in requested.blocks.get(&number).into_iter().flat_map(Ranges::iter) {
                any |= object.mark_blocks(core, first as u32, (end - 1) as u32);
            }
            let counted = requested.counted.iter().filter(|(object, ..)| *object == number);
            for (_, first, last) in counted {
                any |=
                    object.mark_counted(core, *first..=*last, requested.lacks.unwrap_or_default());
            }
            for ((_, block), symbols) in requested.segments.range((number, 0)..=(number, u32::MAX))
            {
                any |= object.mark(core, *block, symbols);
            }
        }
        if is_urgent {
            self.base.want(&mut core.shared, Class::Repair);
        }
        Noted { any: any || is_urgent, first }
    }

    /// First object that a message can name: earlier numbers belong to future objects.
    fn past(&self) -> u16 {
        (self.next_number as u16).wrapping_sub(PAST)
    }

    /// Index of an available object.
    fn index(&self, number: u16) -> Option<usize> {
        let back = (self.next_number as u16).wrapping_sub(number);
        let number = self.next_number.checked_sub(back.into())?;
        self.objects.binary_search_by_key(&number, |object| object.id.number).ok()
    }

    /// Adds one request. Returns whether it names blocks of a stream, which are recorded at once:
    /// they are few, and their numbers wrap.
    fn gather(
        &mut self,
        core: &mut Core,
        request: &Request<'_>,
        requested: &mut Requested,
    ) -> bool {
        let flags = request.flags;
        let past = self.past();
        let mut any = false;
        for (first, last) in request.ranges() {
            let start = u64::from(first.object.wrapping_sub(past));
            let end = start + u64::from(last.object.wrapping_sub(first.object)) + 1;
            let is_all = flags.contains(RequestFlags::OBJECT);
            if flags.contains(RequestFlags::INFO)
                && let Some(at) = self.index(first.object)
            {
                self.objects[at].want_digest(first.id.block);
            }
            if is_all || flags.contains(RequestFlags::INFO) {
                let objects = if is_all { &mut requested.whole } else { &mut requested.info };
                objects.insert(start, end);
                requested.named.insert(start, end);
                requested.id = first.id;
            }
            let is_part =
                flags.contains(RequestFlags::BLOCK) || flags.contains(RequestFlags::SEGMENT);
            if is_all || !is_part {
                continue;
            }
            requested.named.insert(start, start + 1);
            let Some(at) = self.index(first.object) else {
                self.refuse_unknown(core, first.object, first);
                continue;
            };
            let object = &mut self.objects[at];
            let block = first.id.block;
            let has_left = object.has_left(block);
            if flags.contains(RequestFlags::BLOCK) {
                if object.is_stream() {
                    any |= object.mark_blocks(core, block, last.id.block);
                } else if requested.lacks.is_some() {
                    requested.counted.push((first.object, block, last.id.block));
                } else {
                    let end = u64::from(last.id.block.max(block)) + 1;
                    requested.blocks.entry(first.object).or_default().insert(block.into(), end);
                }
            }
            // A block has no such segment: no reason to send others.
            let most = object.symbols(block);
            let is_odd = most == 0 || request.form != Form::Erasures && first.id.symbol >= most;
            if has_left {
                self.refuse(core, first.object, first.id);
            }
            if has_left || is_odd || flags.contains(RequestFlags::BLOCK) {
                continue;
            }
            let symbols = requested.segments.entry((first.object, block)).or_default();
            match request.form {
                // Here the symbol number holds a count.
                Form::Erasures => symbols.count += u32::from(first.id.symbol),
                Form::Items | Form::Ranges | Form::Other(_) => {
                    symbols.named.insert_all(first.id.symbol, last.id.symbol.min(most - 1));
                }
            }
        }
        any
    }

    /// Refuses requested objects that were dropped: a refusal of the last one covers most of them.
    fn refuse_objects(&mut self, core: &mut Core, requested: &Requested) {
        let past = self.past();
        let gone = |ranges: &Ranges| {
            let mut here = self.objects.iter().rev().peekable();
            let ranges: Vec<_> = ranges.iter().filter(|(start, _)| *start < PAST.into()).collect();
            ranges.into_iter().rev().find_map(|(start, end)| {
                let all = (start..end.min(PAST.into())).rev();
                let mut numbers = all.map(|place| past.wrapping_add(place as u16));
                numbers.find(|number| {
                    let ahead = |other: u16| (1..=PAST).contains(&other.wrapping_sub(*number));
                    while here.next_if(|object| ahead(object.number())).is_some() {}
                    here.peek().is_none_or(|object| object.number() != *number)
                })
            })
        };
        if let Some(number) = gone(&requested.whole).max(gone(&requested.info)) {
            self.refuse(core, number, requested.id);
        }
    }
}

/// Largest number of segments missing from each requested block, if reported.
fn lacks(nack: &Nack<'_>) -> Option<u16> {
    let count = find_extension(&nack.others, EXT_LACKS)?.last_chunk()?;
    Some(u16::from_be_bytes(*count)).filter(|count| *count > 0)
}
