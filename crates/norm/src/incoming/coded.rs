//! Blocks of a coded file that are received into the file itself.
//!
//! Source segments go to their place. A parity segment goes to the place of a missing one, and is
//! lost if that one arrives later. Once a block has enough segments, a computation over the file
//! recovers it and returns its digest. Memory has only which segments are there.

use bytes::{Bytes, BytesMut};
use engine::Work;

use super::block::whole;
use super::blocks::{Blocks, Segment};
use super::{Block, Outcome, PIECE_COST, Shape, Verdict};
use crate::core::Core;
use crate::digest::{BlockDigest, first_bytes};
use crate::indication::Limit;
use crate::jobs::{Recover, Span};
use crate::message::Extensions;

/// Maximum size of a write, and of the bytes of all objects that wait for one.
const WRITE: usize = 256 << 10;
const WAITING_MAX: usize = 4 << 20;

/// Memory for the place of a parity segment, in bytes.
const PLACE_COST: usize = 8;

impl Blocks {
    /// Adds a segment to its block in the file.
    pub(super) fn take_to_disk(&mut self, core: &mut Core, segment: Segment<'_>) -> Outcome {
        let Segment { block: number, block_len, symbol, payload } = segment;
        if !core.admit_write() {
            return Outcome::Taken;
        }
        if !self.parts.contains_key(&number) {
            let cost = Block::disk_cost(block_len, &self.shape);
            if cost > core.assembly_room() {
                return Outcome::NoRoom;
            }
            if self.exceeds_repairs(core, number) {
                return Outcome::Taken;
            }
            core.assembling += cost;
            self.parts.insert(number, Block::new(BytesMut::new(), cost));
        }
        let Some(block) = self.parts.get_mut(&number) else { return Outcome::Taken };
        if block.is_recovering || !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        let (last, len) = (block_len - 1, self.shape.room.segment);
        let place = if segment.is_parity() {
            let place = block.free_place(block_len);
            if let Some(place) = place {
                block.parity.insert(place, symbol);
            }
            place
        } else {
            // A late source segment takes the place of parity.
            block.drop_parity(symbol);
            block.spare = block.spare.take().filter(|_| symbol != last);
            self.received += payload.len() as u64;
            Some(symbol)
        };
        let is_enough = block.have.len() >= block.needed(block_len);
        let has_short = usize::from(self.shape.partition.segment_len(number, last)) < len;
        match place {
            None => block.extra.push((symbol, whole(payload, len))),
            // Beyond the end of the file there is no place for parity.
            Some(place) if segment.is_parity() && place == last && has_short => {
                block.spare = Some(whole(payload, len));
            }
            Some(place) => {
                let at = self.shape.partition.segment_offset(number, place);
                if segment.is_parity() && payload.len() < len {
                    self.write(core, at, &whole(payload, len));
                } else {
                    self.write(core, at, payload);
                }
            }
        }
        if is_enough {
            self.flush_run(core);
            self.start_recovery(core, number);
        }
        Outcome::Taken
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
            self.sink.put(core, start, bytes);
        }
    }

    /// Starts the recovery of a block of which enough segments are in the file.
    pub(super) fn start_recovery(&mut self, core: &mut Core, number: u32) {
        let (block_len, offset) =
            (self.block_len(number), self.shape.partition.block_offset(number));
        let span = Span { offset, len: self.span(number) };
        let code = self.shape.coding.long_code(block_len, self.shape.room.segment);
        let (Some(code), Some(block)) = (code, self.parts.get_mut(&number)) else { return };
        block.is_recovering = true;
        let job = Recover {
            code,
            span,
            missing: block.have.missing(block_len).collect(),
            parity: block.rows(block_len),
            spare: block.spare.clone().map(|spare| (block_len - 1, spare)),
            extra: block.extra_rows(block_len),
        };
        self.sink.work(core, number, Work::new(job));
    }

    /// Notes that a block was recovered, with the digest of its bytes.
    pub(super) fn on_recovered(&mut self, core: &mut Core, number: u32, digest: &[u8]) -> Outcome {
        let Some(block) = self.remove_part(core, number) else { return Outcome::Taken };
        core.user.limit_left(Limit::Assembly);
        core.stats.recovered += block.have.missing(self.block_len(number)).count() as u64;
        let verdict = self.digests.complete(number, first_bytes(digest));
        self.received -= block.counted(&self.shape, number);
        let outcome = self.judge_digest(core, number, verdict);
        if outcome != Outcome::Completed {
            return outcome;
        }
        self.received += self.span(number);
        self.complete(number)
    }

    /// Notes that the segments of a block did not suffice for its recovery.
    pub(super) fn on_unrecovered(&mut self, number: u32) {
        if let Some(block) = self.parts.get_mut(&number) {
            block.want_another();
        }
    }

    /// Notes the digests that NORM_INFO announces.
    pub(super) fn on_digests(&mut self, core: &mut Core, others: &Extensions<'_>) -> Outcome {
        let blocks = self.shape.partition.blocks();
        let is_long = self.shape.coding.is_long();
        let digests = others.iter().filter(|_| is_long).filter_map(|it| BlockDigest::decode(&it));
        for digest in digests.filter(|digest| u32::from(digest.block) < blocks) {
            let verdict = self.digests.announce(digest.block.into(), digest.digest);
            if self.judge_digest(core, digest.block.into(), verdict) == Outcome::Damaged {
                return Outcome::Damaged;
            }
        }
        Outcome::Completed
    }

    /// Handles the comparison of a block's digests. The block is complete unless they differ.
    pub(super) fn judge_digest(
        &mut self,
        core: &mut Core,
        block: u32,
        verdict: Verdict,
    ) -> Outcome {
        match verdict {
            Verdict::Waits | Verdict::Confirmed => return Outcome::Completed,
            Verdict::Differs | Verdict::Fails => {}
        }
        core.stats.digest_failures += 1;
        if self.has(block) {
            self.received = self.received.saturating_sub(self.span(block));
            self.whole.remove(u64::from(block), u64::from(block) + 1);
        }
        if verdict == Verdict::Fails { Outcome::Damaged } else { Outcome::Taken }
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
