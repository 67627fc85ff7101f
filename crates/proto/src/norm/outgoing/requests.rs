//! Requests of receivers for an object.

use engine::Time;
use wire::norm::{RequestFlags, RequestWriter, Scheme};

use super::marks::{Due, Marks};
use super::{Core, Limit, Outgoing};
use crate::norm::bits::Bits;
use crate::norm::incoming::joined::JOINED_MAX;

/// Segments of a block that one receiver requests: all of them if none are given.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Segments by number.
    pub(crate) named: Bits,
    /// Number of further segments, whichever they are.
    pub(crate) count: u32,
}

/// Requests that are not repaired yet.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requests since they were last collected.
    pub(super) marks: Marks,
    /// Requests of receivers that others do not receive, and that are to be repeated to those.
    pub(super) advertised: Marks,
    /// Blocks that are sent again as a whole, when it is their turn.
    pub(super) due: Due,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.marks.len() + self.advertised.len() + self.due.len()
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.advertised.clear();
        self.due.clear();
    }
}

impl Outgoing {
    /// A receiver has no NORM_INFO; whether there is one for it.
    pub(crate) fn mark_info(&mut self, now: Time) -> bool {
        let is_under_way = self.info_turn.is_under_way(now);
        if !self.is_sending() || !self.has_info() || is_under_way {
            return false;
        }
        self.info_turn.call();
        true
    }

    /// Segments of a block, with its parity; 0 if nothing of it was sent yet: that cannot be missing.
    pub(crate) fn symbols(&self, block: u32) -> u16 {
        let Some(shape) = self.shape.as_ref() else { return 0 };
        if let Some(ring) = &self.ring {
            let most = shape.coding.block_len().saturating_add(shape.coding.parity());
            return ring.find(block).map_or(0, |_| most);
        }
        if block > self.at.block || block >= shape.partition.blocks() {
            return 0;
        }
        shape.partition.block_len(block).saturating_add(shape.coding.parity())
    }

    /// Notes that a receiver lacks these segments of a block; all of it if there are none. Returns
    /// whether that can be repaired.
    pub(crate) fn mark(&mut self, core: &mut Core, block: u32, symbols: &Symbols) -> bool {
        let most = self.symbols(block);
        let Some(shape) = self.shape.as_ref().filter(|_| most > 0) else { return false };
        let missing = symbols.named.len() + symbols.count;
        // More than parity makes up for, and not named: it may be any of them.
        let is_whole = missing == 0 || symbols.count > u32::from(shape.coding.parity());
        if is_whole && self.ring.is_none() {
            return self.mark_blocks(core, block, block);
        }
        let parts = &mut self.requests.marks.parts;
        if !parts.contains_key(&block) && parts.len() >= core.config.limits.repairs {
            core.user.limit_reached(Limit::Repairs);
            return false;
        }
        let mark = parts.entry(block).or_default();
        if is_whole {
            (mark.is_whole, mark.missing) = (true, u32::from(shape.block_len(block)));
            return true;
        }
        mark.symbols.union(&symbols.named);
        mark.missing = mark.missing.max(missing).min(u32::from(most));
        true
    }

    /// A receiver has nothing of some blocks, from the first to the last.
    pub(crate) fn mark_blocks(&mut self, core: &mut Core, first: u32, last: u32) -> bool {
        if self.ring.is_some() {
            return self.mark_stream_blocks(core, first, last);
        }
        let Some(shape) = &self.shape else { return false };
        // What was not sent yet cannot be missing.
        let end = (u64::from(self.at.block) + 1).min(shape.partition.blocks().into());
        let range = (u64::from(first), end.min(u64::from(last.max(first)) + 1));
        if range.0 >= range.1 {
            return false;
        }
        let is_noted = self.requests.marks.add_whole(range, core.config.limits.repairs);
        if !is_noted {
            core.user.limit_reached(Limit::Repairs);
        }
        is_noted
    }

    /// A receiver lacks so many segments of each of some blocks, from the first to the last, at the
    /// most. Requests for more blocks than receivers make at once are cut short.
    pub(crate) fn mark_counted(
        &mut self,
        core: &mut Core,
        (first, last): (u32, u32),
        count: u16,
    ) -> bool {
        let count = u32::from(count);
        let last = last.min(self.at.block).min(first.saturating_add(JOINED_MAX as u32 - 1));
        let symbols = Symbols { named: Bits::new(), count };
        let mut any = false;
        for block in first..=last {
            any |= self.mark(core, block, &symbols);
        }
        any
    }

    /// A receiver has nothing of it.
    pub(crate) fn mark_all(&mut self, core: &mut Core) -> bool {
        self.mark_blocks(core, 0, u32::MAX)
    }

    /// Writes what was requested, so that others need not request it. `false` if there was no room
    /// for all.
    pub(crate) fn advertise(&self, fec: Scheme, writer: &mut RequestWriter<'_>) -> bool {
        let Some(shape) = self.shape.as_ref() else { return true };
        let object = self.number();
        let position =
            |block, symbol| wire::norm::Position { fec, object, id: shape.id(block, symbol) };
        let info = self.info_turn.is_due() && self.has_begun;
        if info && writer.item(RequestFlags::INFO, position(0, 0)).is_err() {
            return false;
        }
        self.requests.advertised.write(writer, position, shape.coding.parity() > 0)
    }
}
