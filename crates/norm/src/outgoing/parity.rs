//! Parity of an object: proactive parity for each block, and parity computed for repairs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::fec::{Encoder, LongWork};
use bytes::Bytes;

use super::Shape;
use crate::bits::Bits;
use crate::message::PayloadId;

/// Number of blocks read for repair parity at the same time.
const BLOCKS_AHEAD: usize = 8;

/// Proactive parity of the current block.
#[derive(Debug, Default)]
pub(super) struct ProactiveParity {
    encoder: Option<Encoder>,
    /// Number of proactive parity segments of this block.
    pub(super) count: u16,
    /// Number of the object's first block among all blocks sent.
    pub(super) first_block: Option<u64>,
}

impl ProactiveParity {
    /// Adds a source segment of the block.
    pub(super) fn add(&mut self, shape: &Shape, symbol: u16, data: &[u8]) {
        if self.count == 0 {
            return;
        }
        if self.encoder.as_ref().map_or(0, Encoder::room) < usize::from(self.count) {
            self.encoder = shape.coding.encoder(shape.symbol_len, self.count);
        }
        if let Some(encoder) = self.encoder.as_mut() {
            if symbol == 0 {
                encoder.reset_rows(0..usize::from(self.count));
            }
            encoder.add(symbol, data);
        }
    }

    /// Parity segment of the block, if it has that many.
    pub(super) fn segment(&mut self, row: u16) -> Option<&[u8]> {
        let encoder = self.encoder.as_mut().filter(|_| row < self.count)?;
        Some(encoder.parity(usize::from(row)))
    }
}

/// Number of windows of parity kept.
const WINDOWS: usize = 2;

/// Parity of long blocks: consecutive segments of some blocks, computed together.
#[derive(Debug, Default)]
pub(super) struct Windows {
    made: VecDeque<Window>,
    /// Block being read, and the rows to compute.
    reading: Option<(u32, Range<u16>)>,
}

/// Consecutive parity segments of a block.
#[derive(Debug)]
struct Window {
    block: u32,
    first: u16,
    segments: Vec<Bytes>,
}

impl Windows {
    /// Parity segment of a block, if computed.
    pub(super) fn get(&self, block: u32, row: u16) -> Option<&Bytes> {
        self.made.iter().rev().find_map(|window| {
            let at = row.checked_sub(window.first).filter(|_| window.block == block)?;
            window.segments.get(usize::from(at))
        })
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Notes that a block is being read.
    pub(super) fn reads(&mut self, block: u32, rows: Range<u16>) {
        self.reading = Some((block, rows));
    }

    /// Rows to compute for a block that was read.
    pub(super) fn read(&mut self, block: u32) -> Option<Range<u16>> {
        self.reading.take_if(|(other, _)| *other == block).map(|(_, rows)| rows)
    }

    /// Adds parity segments of a block from a row on.
    pub(super) fn insert(&mut self, block: u32, first: u16, segments: impl Iterator<Item = Bytes>) {
        if self.made.len() >= WINDOWS {
            self.made.pop_front();
        }
        self.made.push_back(Window { block, first, segments: segments.collect() });
    }
}

/// Parity computed for repairs.
#[derive(Debug, Default)]
pub(super) struct RepairParity {
    /// Parity to compute, by block.
    plans: BTreeMap<u32, Bits>,
    /// Blocks being read for that.
    reading: Vec<(u32, Bits)>,
    /// Parity ready to be sent.
    ready: VecDeque<(PayloadId, Bytes)>,
}

impl RepairParity {
    pub(super) fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.reading.is_empty() && self.ready.is_empty()
    }

    /// Plans parity segments of a block, given by row, except those already queued. Returns whether
    /// there was room among `most` blocks.
    pub(super) fn plan(
        &mut self,
        block: u32,
        block_len: u16,
        rows: impl Iterator<Item = u16>,
        most: usize,
    ) -> bool {
        let reading = self.reading.iter().find(|(other, _)| *other == block);
        let mut ready = Bits::new();
        for (id, _) in self.ready.iter().filter(|(id, _)| id.block == block) {
            ready.insert(id.symbol);
        }
        let is_read = |row: &u16| reading.is_some_and(|(_, rows)| rows.contains(*row));
        let rows = rows.filter(|row| !is_read(row) && !ready.contains(block_len + row));
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return true;
        }
        if !self.plans.contains_key(&block) && self.plans.len() >= most {
            return false;
        }
        let plan = self.plans.entry(block).or_default();
        rows.for_each(|row| _ = plan.insert(row));
        true
    }

    /// Next block to compute parity for, with the rows needed.
    pub(super) fn next(&mut self) -> Option<(u32, Bits)> {
        let has_room = self.reading.len() < BLOCKS_AHEAD && self.ready.len() < 4 * BLOCKS_AHEAD;
        if has_room { self.plans.pop_first() } else { None }
    }

    /// Notes that a block is being read.
    pub(super) fn reads(&mut self, block: u32, rows: Bits) {
        self.reading.push((block, rows));
    }

    /// Rows to compute for a block that was read.
    pub(super) fn read(&mut self, block: u32) -> Option<Bits> {
        let at = self.reading.iter().position(|(other, _)| *other == block)?;
        Some(self.reading.remove(at).1)
    }

    /// Computes parity of a block.
    pub(super) fn make(
        &mut self,
        work: &mut LongWork,
        shape: &Shape,
        block: u32,
        rows: &Bits,
        data: &[u8],
    ) {
        let block_len = shape.block_len(block);
        for (row, parity) in shape.coding.rows(work, shape.symbol_len, block_len, data, rows) {
            self.ready.push_back((shape.id(block, block_len + row), parity));
        }
    }

    /// Next segment to send.
    pub(super) fn front(&self) -> Option<(PayloadId, &Bytes)> {
        self.ready.front().map(|(id, parity)| (*id, parity))
    }

    /// Removes the segment that was sent.
    pub(super) fn pop_front(&mut self) {
        self.ready.pop_front();
    }

    /// Forgets a block that is no longer held.
    pub(super) fn forget(&mut self, block: u32) {
        self.plans.remove(&block);
    }
}
