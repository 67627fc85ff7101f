//! What a NACK asks for, as a sender takes note of it (RFC 5740 §4.3.1, §5.4.1).
//!
//! A NACK may name the same thing in many ranges. What it asks for is put together first, so that no
//! NACK costs more than what can be asked for at all.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;
use wire::norm::{Form, Nack, Position, Request, RequestFlags};

use super::Sender;
use crate::norm::core::Core;
use crate::norm::outgoing::Symbols;
use crate::path::Class;
use crate::ranges::Ranges;

/// Most objects that one range of a request may name.
const OBJECTS_MAX: u16 = 1023;

/// What one NACK asks for of what is here.
#[derive(Debug, Default)]
struct Asked {
    /// Objects of which a receiver has nothing.
    whole: BTreeSet<u16>,
    /// Objects of which it lacks NORM_INFO.
    info: BTreeSet<u16>,
    /// Blocks of which it has nothing, by object.
    blocks: BTreeMap<u16, Ranges>,
    /// Segments, by object and block. A receiver may need several requests for those of one block.
    segments: BTreeMap<(u16, u32), Symbols>,
}

impl Sender {
    /// Notes what a NACK asks for; whether there is any of it.
    pub(super) fn note_requests(&mut self, core: &mut Core, now: Time, nack: &Nack<'_>) -> bool {
        let mut asked = Asked::default();
        let mut any = false;
        for request in nack.requests.iter() {
            any |= self.gather(core, &request, &mut asked);
        }
        let mut is_urgent = false;
        for object in &mut self.objects {
            let number = object.number();
            let is_whole = asked.whole.contains(&number);
            if is_whole || asked.info.contains(&number) {
                is_urgent |= object.mark_info(now);
            }
            if is_whole {
                is_urgent |= object.mark_all(core);
                continue;
            }
            for (first, end) in asked.blocks.get(&number).into_iter().flat_map(Ranges::iter) {
                any |= object.mark_blocks(core, first as u32, (end - 1) as u32);
            }
            for ((_, block), symbols) in asked.segments.range((number, 0)..=(number, u32::MAX)) {
                any |= object.mark(core, *block, symbols);
            }
        }
        if is_urgent {
            self.base.want(&mut core.kernel, Class::Repair);
        }
        any || is_urgent
    }

    /// Adds what one request asks for. Whether blocks of a stream are among that, which are noted at
    /// once: there are few, and their numbers wrap.
    fn gather(&mut self, core: &mut Core, request: &Request<'_>, asked: &mut Asked) -> bool {
        let flags = request.flags;
        let mut any = false;
        for (first, last) in request.ranges() {
            if flags.contains(RequestFlags::OBJECT) {
                self.gather_objects(core, first, last.object, &mut asked.whole);
                continue;
            }
            if flags.contains(RequestFlags::INFO) {
                self.gather_objects(core, first, last.object, &mut asked.info);
            }
            if !flags.contains(RequestFlags::BLOCK) && !flags.contains(RequestFlags::SEGMENT) {
                continue;
            }
            let mut objects = self.objects.iter_mut();
            let Some(object) = objects.find(|object| object.number() == first.object) else {
                self.refuse_unknown(core, first.object, first);
                continue;
            };
            let block = first.id.block;
            let has_left = object.has_left(block);
            if flags.contains(RequestFlags::BLOCK) {
                if object.is_stream() {
                    any |= object.mark_blocks(core, block, last.id.block);
                } else {
                    let end = u64::from(last.id.block.max(block)) + 1;
                    asked.blocks.entry(first.object).or_default().insert(block.into(), end);
                }
            }
            // A block has no such segment: that is no reason to send others.
            let most = object.symbols(block);
            let is_odd = most == 0 || request.form != Form::Erasures && first.id.symbol >= most;
            if has_left {
                self.refuse(core, first.object, first.id);
            }
            if has_left || is_odd || flags.contains(RequestFlags::BLOCK) {
                continue;
            }
            let symbols = asked.segments.entry((first.object, block)).or_default();
            match request.form {
                // A count, in the place of a number.
                Form::Erasures => symbols.count += u32::from(first.id.symbol),
                Form::Items | Form::Ranges | Form::Other(_) => {
                    (first.id.symbol..=last.id.symbol.min(most - 1)).for_each(|symbol| {
                        symbols.named.insert(symbol);
                    });
                }
            }
        }
        any
    }

    /// Adds those of some objects that are here, from `first` to `last`.
    fn gather_objects(
        &mut self,
        core: &mut Core,
        first: Position,
        last: u16,
        here: &mut BTreeSet<u16>,
    ) {
        let count = last.wrapping_sub(first.object).min(OBJECTS_MAX);
        let numbers = self.objects.iter().map(|object| object.number());
        let numbers = numbers.filter(|number| number.wrapping_sub(first.object) <= count);
        let numbers: BTreeSet<_> = numbers.collect();
        if numbers.len() <= usize::from(count) {
            // The last one that is no longer here tells most.
            let all = (0..=count).rev().map(|number| first.object.wrapping_add(number));
            let next = self.next_number as u16;
            let mut gone = all.filter(|number| number.wrapping_sub(next) >= 0x8000);
            if let Some(number) = gone.find(|number| !numbers.contains(number)) {
                self.refuse(core, number, first.id);
            }
        }
        here.extend(numbers);
    }
}
