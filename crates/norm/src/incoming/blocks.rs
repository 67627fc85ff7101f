//! File, or bytes in memory: blocks that are received into memory or into the file itself.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use session::ranges::Ranges;

use super::{Block, Digests, ObjectId, Outcome, PIECE_COST, Requested, Shape, Sink};
use crate::core::Core;
use crate::digest::digest_of;
use crate::indication::{Indication, Limit};
use crate::message::PayloadId;
use crate::report::ReportOf;

/// Blocks of an object being received.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) shape: Shape,
    /// Complete blocks.
    pub(super) whole: Ranges,
    /// Incomplete blocks.
    pub(super) parts: BTreeMap<u32, Block>,
    pub(super) received: u64,
    /// Highest block of which anything arrived.
    pub(super) highest: u32,
    pub(super) sink: Sink,
    pub(super) requested: Requested,
    /// Bytes reserved for an object that is not a file.
    reserved: usize,
    pub(super) digests: Digests,
    pub(super) run: Run,
    pub(super) journal: Journal,
}

/// Consecutive bytes that wait to be written together.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) bytes: BytesMut,
}

impl Run {
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the bytes, with their offset.
    pub(super) fn take(&mut self, core: &mut Core) -> Option<(u64, Bytes)> {
        if self.bytes.is_empty() {
            return None;
        }
        core.collected -= self.bytes.len();
        Some((self.start, self.bytes.split().freeze()))
    }
}

/// List of everything that is missing, for the sender of a resumed file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    #[default]
    None,
    Due,
    /// Sent; a probe requests it again until data arrives.
    Sent,
}

/// Journal of an object.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Whether the file can resume.
    pub(super) is_kept: bool,
    /// Version of the sender's file.
    pub(super) version: u64,
    /// Bytes received at the last record.
    pub(super) covered: u64,
    /// Record that waits for its data to be synced.
    pub(super) pending: Option<Bytes>,
    /// Last record of a file with blocks in memory.
    pub(super) saved: Option<Bytes>,
    /// Whether a record is due once the working file is open.
    pub(super) is_due_on_open: bool,
    /// Whether a record was ever written.
    pub(super) is_used: bool,
    pub(super) list: List,
    /// Number of lists sent.
    pub(super) lists: u8,
    /// Bytes of an earlier session.
    pub(super) resumed: u64,
    /// Whether another session may have a part of the file.
    pub(super) waits: bool,
}

/// Segment that has a place in the partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) block: u32,
    pub(super) block_len: u16,
    pub(super) symbol: u16,
    pub(super) payload: &'a [u8],
}

impl Segment<'_> {
    pub(super) fn is_parity(&self) -> bool {
        self.symbol >= self.block_len
    }
}

impl Blocks {
    pub(super) fn new(shape: Shape, sink: Sink, reserved: usize) -> Self {
        Self {
            shape,
            whole: Ranges::new(),
            parts: BTreeMap::new(),
            received: 0,
            highest: 0,
            sink,
            requested: Requested::default(),
            reserved,
            digests: Digests::default(),
            run: Run::default(),
            journal: Journal::default(),
        }
    }

    /// Indication of the object's size.
    pub(super) fn receiving(&self, id: ObjectId) -> Indication {
        let (size, resumed) = (self.shape.fti.object_size, self.journal.resumed);
        Indication::Receiving { id, size, resumed }
    }

    /// Whether blocks are received into the file.
    pub(super) fn is_on_disk(&self) -> bool {
        self.shape.coding.is_long() && !self.sink.is_memory()
    }

    pub(super) fn block_len(&self, block: u32) -> u16 {
        self.shape.partition.block_len(block)
    }

    /// Bytes of a block.
    pub(super) fn span(&self, block: u32) -> u64 {
        let partition = &self.shape.partition;
        partition.block_offset(block + 1) - partition.block_offset(block)
    }

    pub(super) fn has(&self, block: u32) -> bool {
        self.whole.contains(block.into())
    }

    /// Whether all blocks are complete and confirmed.
    pub(super) fn is_whole(&self) -> bool {
        let blocks = self.shape.partition.blocks();
        self.whole.covered() >= u64::from(blocks)
            && (!self.shape.coding.is_long() || self.digests.are_confirmed(blocks))
    }

    /// Notes that a block is complete.
    pub(super) fn complete(&mut self, block: u32) -> Outcome {
        self.whole.insert(u64::from(block), u64::from(block) + 1);
        Outcome::Completed
    }

    /// Processes a segment.
    pub(super) fn on_segment(&mut self, core: &mut Core, id: PayloadId, payload: &[u8]) -> Outcome {
        let (shape, PayloadId { block, symbol, .. }) = (&self.shape, id);
        let block_len = shape.partition.block_len(block);
        let most = u32::from(block_len) + u32::from(shape.fti.parity.max(shape.coding.parity));
        if block >= shape.partition.blocks() || u32::from(symbol) >= most {
            return Outcome::Misplaced;
        }
        let is_parity = symbol >= block_len;
        if is_parity && shape.room.usable == 0 {
            core.stats.data_dropped += 1;
            return Outcome::Taken;
        }
        self.highest = self.highest.max(block);
        if self.has(block) {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        let segment = shape.room.segment;
        // Parity is as long as the longest segment of its block.
        let place = if is_parity { 0 } else { symbol };
        let len = payload.len();
        let is_full = len == usize::from(shape.fti.segment_size) || len == segment;
        let expected = usize::from(shape.partition.segment_len(block, place));
        if len != expected && !(is_parity && is_full) {
            return Outcome::Misplaced;
        }
        // The rest of a longer parity segment is zeros.
        let segment = Segment { block, block_len, symbol, payload: &payload[..len.min(segment)] };
        if self.is_on_disk() { self.take_to_disk(core, segment) } else { self.take(core, segment) }
    }

    /// Makes room for a block by dropping the last block after it, if there is one.
    pub(super) fn make_room(&mut self, core: &mut Core, before: Option<u32>) -> bool {
        let last = self.parts.last_entry();
        let last = last.filter(|last| before.is_none_or(|before| before < *last.key()));
        let Some((number, block)) = last.map(|last| last.remove_entry()) else { return false };
        core.assembling -= block.cost;
        self.received -= block.counted(&self.shape, number);
        core.stats.data_dropped += u64::from(block.have.len());
        true
    }

    /// Adds a block without segments. Returns the outcome for its first segment if that is
    /// impossible.
    fn begin_block(&mut self, core: &mut Core, number: u32, block_len: u16) -> Option<Outcome> {
        let segment = self.shape.room.segment;
        let full = usize::from(block_len) * segment;
        let cost = full + self.shape.coding.surplus_memory(segment) + PIECE_COST;
        if !core.admit_write() || self.exceeds_repairs(core, number) {
            return Some(Outcome::Taken);
        }
        let room = core.assembly_room();
        let small = Block::direct_cost(block_len);
        let block = if cost <= room {
            let buffer = core.shared.room.take_buffer(full);
            Block::new(buffer, cost)
        } else if small <= room && !self.sink.is_memory() {
            core.user.limit_reached(Limit::Assembly);
            Block::direct(small)
        } else {
            return Some(Outcome::NoRoom);
        };
        core.assembling += block.cost;
        self.parts.insert(number, block);
        None
    }

    /// Adds a segment to its block.
    fn take(&mut self, core: &mut Core, segment: Segment<'_>) -> Outcome {
        let Segment { block: number, block_len, symbol, payload } = segment;
        if !self.parts.contains_key(&number)
            && let Some(outcome) = self.begin_block(core, number, block_len)
        {
            return outcome;
        }
        let Some(block) = self.parts.get_mut(&number) else { return Outcome::Taken };
        if block.is_direct {
            return self.pass_on(core, segment);
        }
        let usable = usize::from(self.shape.room.usable);
        if segment.is_parity() && block.parity.len() + block.extra.len() >= usable {
            core.stats.data_dropped += 1;
            return Outcome::Taken;
        }
        if !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        block.add(symbol, block_len, self.shape.room.segment, payload);
        let is_enough = block.have.len() >= block.needed(block_len);
        if !segment.is_parity() {
            self.received += payload.len() as u64;
        }
        if is_enough { self.finish_block(core, number) } else { Outcome::Taken }
    }

    /// Writes a segment of a block that has no room in memory.
    fn pass_on(&mut self, core: &mut Core, segment: Segment<'_>) -> Outcome {
        let Segment { block: number, block_len, symbol, payload } = segment;
        if !core.admit_write() {
            return Outcome::Taken;
        }
        if segment.is_parity() {
            core.stats.data_dropped += 1;
            return Outcome::Taken;
        }
        let Some(block) = self.parts.get_mut(&number) else { return Outcome::Taken };
        if !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        let is_whole = block.have.len() >= u32::from(block_len);
        let at = self.shape.partition.segment_offset(number, symbol);
        self.received += payload.len() as u64;
        self.sink.put(core, at, Bytes::copy_from_slice(payload));
        if !is_whole {
            return Outcome::Taken;
        }
        self.remove_part(core, number);
        self.complete(number)
    }

    /// Removes an incomplete block from memory.
    pub(super) fn remove_part(&mut self, core: &mut Core, number: u32) -> Option<Block> {
        let block = self.parts.remove(&number)?;
        core.assembling -= block.cost;
        Some(block)
    }

    /// Completes a block of which enough segments arrived.
    fn finish_block(&mut self, core: &mut Core, number: u32) -> Outcome {
        let Some(mut block) = self.remove_part(core, number) else { return Outcome::Taken };
        core.user.limit_left(Limit::Assembly);
        let block_len = self.block_len(number);
        if !block.parity.is_empty() && !self.shape.recover(core, &mut block, block_len) {
            if self.shape.coding.surplus() > 0 {
                core.assembling += block.cost;
                block.want_another();
                self.parts.insert(number, block);
            } else {
                core.stats.data_dropped += 1;
            }
            return Outcome::Taken;
        }
        let (start, span) = (self.shape.partition.block_offset(number), self.span(number));
        let counted = block.counted(&self.shape, number);
        block.buffer.truncate(span as usize);
        if self.shape.coding.is_long() {
            let verdict = self.digests.complete(number, digest_of(&block.buffer));
            let outcome = self.judge_digest(core, number, verdict);
            if outcome != Outcome::Completed {
                self.received -= counted;
                return outcome;
            }
        }
        self.received += span.saturating_sub(counted);
        let bytes = block.buffer.freeze();
        core.shared.room.keep_buffer(&bytes);
        self.sink.put(core, start, bytes);
        self.complete(number)
    }

    /// Whether another complete block could not be remembered.
    pub(super) fn exceeds_repairs(&self, core: &mut Core, number: u32) -> bool {
        let number = u64::from(number);
        let is_full = self.whole.len() >= core.config.limits.repairs;
        if is_full && self.whole.would_add_range(number, number + 1) {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Repairs);
            return true;
        }
        false
    }

    /// State of the highest block with a received segment, if blocks are long.
    pub(super) fn report_of(&self, arrived: u32, is_over: bool) -> Option<ReportOf> {
        let is_waiting = self.journal.waits && arrived == 0;
        if !self.shape.coding.is_long() || is_waiting {
            return None;
        }
        let block = self.highest;
        let missing = if is_over || self.has(block) {
            0
        } else {
            let block_len = self.block_len(block);
            let lacks = |part: &Block| part.needed(block_len).saturating_sub(part.have.len());
            self.parts.get(&block).map_or(block_len.into(), lacks)
        };
        // A block has at most 65,535 segments.
        Some(ReportOf { block, missing: missing as u16, arrived })
    }

    /// Releases reserved memory.
    pub(super) fn release(&mut self, core: &mut Core) {
        core.reserved -= std::mem::take(&mut self.reserved);
        core.user.limit_left(Limit::Assembly);
    }

    /// Discards all data.
    pub(super) fn discard(&mut self, core: &mut Core) {
        self.release(core);
        for block in std::mem::take(&mut self.parts).into_values() {
            core.assembling -= block.cost;
        }
        drop(self.run.take(core));
        self.sink.discard(core);
    }
}
