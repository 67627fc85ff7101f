//! Requests of a NACK, as a sender records them (RFC 5740 §4.3.1, §5.4.1).
//!
//! A NACK may name the same data in many ranges, and a range may cover all of a large object. Its
//! requests are first merged into ranges, so that its cost depends only on its length.

use std::collections::BTreeMap;

use engine::Time;
use session::path::Class;
use session::ranges::Ranges;

use super::Sender;
use crate::core::Core;
use crate::incoming::requests::EXT_LACKS;
use crate::message::{Form, Nack, PayloadId, Request, RequestFlags, find_extension};
use crate::outgoing::Symbols;

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

impl Sender {
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
