//! Receivers' requests for an object.

use std::ops::RangeInclusive;

use engine::Time;

use super::marks::{Due, Marks};
use super::{Core, Limit, Outgoing};
use crate::bits::Bits;
use crate::incoming::requests::JOINED_MAX;
use crate::message::{RequestFlags, RequestWriter, Scheme};

/// Segments of a block requested by one receiver; none given means all.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Segments by number.
    pub(crate) named: Bits,
    /// Number of further segments without a number.
    pub(crate) count: u32,
}

/// Requests that are not repaired yet.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requests since the last commit.
    pub(super) marks: Marks,
    /// Requests to be advertised to receivers that cannot receive them directly.
    pub(super) advertised: Marks,
    /// Blocks to be retransmitted as a whole, in turn.
    pub(super) due: Due,
}

impl Outgoing {
    /// Notes that a receiver lacks NORM_INFO. Returns whether the object has NORM_INFO to send.
    pub(crate) fn mark_info(&mut self, now: Time) -> bool {
        let is_under_way = self.info_turn.until.is_some_and(|until| now < until);
        if !self.is_sending() || !self.has_info() || is_under_way {
            return false;
        }
        self.info_turn.is_due = true;
        true
    }

    /// Number of segments of a block with its parity; 0 if nothing of it was sent yet, so none can
    /// be missing.
    pub(crate) fn symbols(&self, block: u32) -> u16 {
        let Some(shape) = self.shape.as_ref() else { return 0 };
        if let Some(ring) = &self.ring {
            let most = shape.coding.block_len.saturating_add(shape.coding.parity);
            return ring.find(block).map_or(0, |_| most);
        }
        if block > self.at.block || block >= shape.partition.blocks() {
            return 0;
        }
        shape.partition.block_len(block).saturating_add(shape.coding.parity)
    }

    /// Notes that a receiver lacks these segments of a block, or all of it if none are given.
    /// Returns whether the block can be repaired.
    pub(crate) fn mark(&mut self, core: &mut Core, block: u32, symbols: &Symbols) -> bool {
        let most = self.symbols(block);
        let Some(shape) = self.shape.as_ref().filter(|_| most > 0) else { return false };
        let missing = symbols.named.len() + symbols.count;
        if shape.coding.is_long() {
            self.note_named(block, &symbols.named);
            return self.note_lacking(block, (missing > 0).then_some(missing));
        }
        // More segments are missing than parity can cover, and they were not named: any segment
        // may be missing.
        let is_whole = missing == 0 || symbols.count > u32::from(shape.coding.parity);
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

    /// Notes that a receiver has nothing of the blocks from `first` to `last`.
    pub(crate) fn mark_blocks(&mut self, core: &mut Core, first: u32, last: u32) -> bool {
        if self.ring.is_some() {
            return self.mark_stream_blocks(core, first, last);
        }
        let Some(shape) = &self.shape else { return false };
        if shape.coding.is_long() {
            return self.note_lacking_blocks(first, last);
        }
        // Unsent blocks cannot be missing.
        let end = (u64::from(self.at.block) + 1).min(shape.partition.blocks().into());
        let range = u64::from(first)..end.min(u64::from(last.max(first)) + 1);
        if range.is_empty() {
            return false;
        }
        let is_noted = self.requests.marks.add_whole(range, core.config.limits.repairs);
        if !is_noted {
            core.user.limit_reached(Limit::Repairs);
        }
        is_noted
    }

    /// Notes that a receiver lacks at most `count` segments of each of these blocks.
    /// Ranges longer than receivers make are cut short.
    pub(crate) fn mark_counted(
        &mut self,
        core: &mut Core,
        blocks: RangeInclusive<u32>,
        count: u16,
    ) -> bool {
        let count = u32::from(count);
        let (first, last) = blocks.into_inner();
        let last = last.min(self.at.block).min(first.saturating_add(JOINED_MAX as u32 - 1));
        let symbols = Symbols { named: Bits::new(), count };
        let mut any = false;
        for block in first..=last {
            any |= self.mark(core, block, &symbols);
        }
        any
    }

    /// Notes that a receiver has nothing of the object.
    pub(crate) fn mark_all(&mut self, core: &mut Core) -> bool {
        self.mark_blocks(core, 0, u32::MAX)
    }

    /// Writes the requests, so that other receivers need not repeat them. Returns `false` if there
    /// was no room for all.
    pub(crate) fn advertise(&self, fec: Scheme, writer: &mut RequestWriter<'_>) -> bool {
        let Some(shape) = self.shape.as_ref() else { return true };
        let position = |block, symbol| {
            let id = shape.id(block, symbol);
            crate::message::Position { fec, object: shape.object, id }
        };
        let info = self.info_turn.is_due && self.has_begun;
        if info && writer.item(RequestFlags::INFO, position(0, 0)).is_err() {
            return false;
        }
        self.requests.advertised.write(writer, position, shape.coding.parity > 0)
    }
}
