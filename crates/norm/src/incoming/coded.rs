//! Blocks of a coded file that are received into the file itself.
//!
//! Source segments go to their place. A parity segment goes to the place of a missing one, and is
//! lost if that one arrives later. Once a block has enough segments, a computation over the file
//! recovers it and returns its digest. Memory has only which segments are there.

use bytes::{Bytes, BytesMut};
use engine::Work;

use super::block::whole;
use super::{Block, Incoming, PIECE_COST, Shape};
use crate::core::Core;
use crate::digest::first_bytes;
use crate::indication::Limit;
use crate::jobs::{Recover, Span};

/// Maximum size of a write, and of the bytes of all objects that wait for one.
const WRITE: usize = 256 << 10;
const WAITING_MAX: usize = 4 << 20;

/// Memory for the place of a parity segment, in bytes.
const PLACE_COST: usize = 8;

/// Consecutive bytes that wait to be written together.
#[derive(Debug, Default)]
pub(super) struct Run {
    start: u64,
    bytes: BytesMut,
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

impl Incoming {
    /// Whether blocks are received into the file.
    pub(super) fn is_on_disk(&self) -> bool {
        let is_long = self.shape.as_ref().is_some_and(|shape| shape.coding.is_long());
        is_long && !self.sink.is_memory()
    }

    /// Adds a segment to its block in the file. Returns `false` if there is no room.
    pub(super) fn take_to_disk(
        &mut self,
        core: &mut Core,
        (number, block_len): (u32, u16),
        symbol: u16,
        segment: usize,
        payload: &[u8],
    ) -> bool {
        let Some(shape) = self.shape.as_ref() else { return true };
        if core.shared.room.unwritten > core.config.limits.buffers.write_buffer {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::WriteBuffer);
            return true;
        }
        let offset = shape.partition.block_offset(number);
        let len = |place| usize::from(shape.partition.segment_len(number, place));
        let last = block_len - 1;
        let has_short = len(last) < segment;
        if !self.blocks.contains_key(&number) {
            let cost = Block::disk_cost(block_len, shape);
            let room = core.config.limits.assembly.saturating_sub(core.assembling + core.reserved);
            if cost > room {
                return false;
            }
            if self.exceeds_repairs(core, number) {
                return true;
            }
            core.assembling += cost;
            self.blocks.insert(number, Block::new(BytesMut::new(), cost));
        }
        let Some(block) = self.blocks.get_mut(&number) else { return true };
        if block.is_recovering || !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return true;
        }
        let place = if symbol < block_len {
            // A late source segment takes the place of parity.
            block.drop_parity(symbol);
            block.spare = block.spare.take().filter(|_| symbol != last);
            self.received += payload.len() as u64;
            Some(symbol)
        } else {
            let place = block.free_place(block_len);
            if let Some(place) = place {
                block.parity.insert(place, symbol);
            }
            place
        };
        let is_enough = block.have.len() >= block.needed(block_len);
        match place {
            None => block.extra.push((symbol, whole(payload, segment))),
            // Beyond the end of the file there is no place for parity.
            Some(place) if symbol >= block_len && place == last && has_short => {
                block.spare = Some(whole(payload, segment));
            }
            Some(place) => {
                let at = offset + u64::from(place) * segment as u64;
                match symbol >= block_len && payload.len() < segment {
                    true => self.write(core, at, &whole(payload, segment)),
                    false => self.write(core, at, payload),
                }
            }
        }
        if is_enough {
            self.recover_on_disk(core, number, block_len, segment);
        }
        true
    }

    /// Adds bytes to those that wait to be written.
    fn write(&mut self, core: &mut Core, at: u64, bytes: &[u8]) {
        let run = &self.run;
        let follows = run.start + run.bytes.len() as u64 == at;
        if !follows || run.bytes.len() + bytes.len() > WRITE {
            self.flush_run(core);
            self.run.start = at;
        }
        core.collected += bytes.len();
        self.run.bytes.extend_from_slice(bytes);
        // Objects that receive nothing more keep what they have.
        if core.collected > WAITING_MAX {
            self.flush_run(core);
        }
    }

    pub(super) fn flush_run(&mut self, core: &mut Core) {
        if let Some((start, bytes)) = self.run.take(core) {
            self.sink.put(core, start, bytes, self.is_held);
        }
    }

    /// Starts the recovery of a block of which enough segments arrived.
    fn recover_on_disk(&mut self, core: &mut Core, number: u32, block_len: u16, segment: usize) {
        self.flush_run(core);
        let (Some(block), Some(shape)) = (self.blocks.get_mut(&number), &self.shape) else {
            return;
        };
        let Some(job) = Self::recovery(shape, number, block, (block_len, segment)) else { return };
        self.sink.work(core, number, Work::new(job), self.is_held);
    }

    /// Recovery of a block of which enough segments are in the file.
    pub(super) fn recovery(
        shape: &Shape,
        number: u32,
        block: &mut Block,
        (block_len, segment): (u16, usize),
    ) -> Option<Recover> {
        let code = shape.coding.long_code(block_len, segment)?;
        block.is_recovering = true;
        let offset = shape.partition.block_offset(number);
        Some(Recover {
            code,
            span: Span { offset, len: Self::span(shape, number) },
            missing: block.have.missing(block_len).collect(),
            parity: block.rows(block_len),
            spare: block.spare.clone().map(|spare| (block_len - 1, spare)),
            extra: block.extra_rows(block_len),
        })
    }

    /// Notes that a block was recovered, with the digest of its bytes.
    pub(super) fn recovered(&mut self, core: &mut Core, number: u32, digest: &[u8]) {
        let Some(block) = self.blocks.remove(&number) else { return };
        let Some(shape) = &self.shape else { return };
        core.assembling -= block.cost;
        core.user.limit_left(Limit::Assembly);
        core.stats.recovered +=
            block.have.missing(shape.partition.block_len(number)).count() as u64;
        let span = Self::span(shape, number);
        let counted = block.counted(shape, number);
        let verdict = self.digests.complete(number, first_bytes(digest));
        self.received -= counted;
        if self.judge_digest(core, number, verdict) {
            self.received += span;
            self.whole.insert(u64::from(number), u64::from(number) + 1);
            self.check_complete(core);
        }
    }

    /// Notes that the segments of a block did not suffice for its recovery.
    pub(super) fn unrecovered(&mut self, number: u32) {
        if let Some(block) = self.blocks.get_mut(&number) {
            block.want_another();
        }
    }

    /// Bytes of a block.
    pub(super) fn span(shape: &Shape, number: u32) -> u64 {
        shape.partition.block_offset(number + 1) - shape.partition.block_offset(number)
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
}

impl Block {
    /// Memory of a block in the file: which segments are there, the places of parity, and parity
    /// beyond the missing segments.
    pub(super) fn disk_cost(block_len: u16, shape: &Shape) -> usize {
        let parity = shape.coding.parity;
        let extra = shape.coding.surplus_memory(shape.room.segment);
        let bits = 2 * (usize::from(block_len) + usize::from(parity)).div_ceil(8);
        let places = PLACE_COST * usize::from(parity.min(block_len));
        size_of::<Self>() + bits + places + extra + PIECE_COST
    }

    /// Memory of a block in the file while nothing arrives.
    pub(super) fn disk_memory(&self) -> usize {
        let bits = self.have.memory() + self.by_others.memory();
        let bytes = self.extra.iter().map(|(_, bytes)| bytes).chain(&self.spare).map(Bytes::len);
        size_of::<Self>()
            + bits
            + PLACE_COST * self.parity.len()
            + bytes.sum::<usize>()
            + PIECE_COST
    }
}
