//! Recovery of lost segments by parity, and the check of the result.

use crate::fec::{Received, SliceColumns};

use super::{Block, Incoming, Verdict};
use crate::coding::Coding;
use crate::core::{Core, Room};
use crate::digest::BlockDigest;
use crate::indication::Failure;
use crate::message::{Data, Info};
use crate::report::ReportOf;

impl Incoming {
    /// Keeps a segment until NORM_INFO describes the object.
    pub(super) fn park(&mut self, core: &mut Core, data: &Data<'_>) {
        let half = core.config.limits.assembly / 2;
        match self.parked.keep(data, half.saturating_sub(core.reserved)) {
            Some(cost) => {
                core.reserved += cost;
                self.reserved += cost;
            }
            None => core.stats.data_dropped += 1,
        }
    }

    /// Processes the segments that waited for the partition.
    pub(super) fn unpark(&mut self, core: &mut Core) {
        if self.shape.is_none() {
            return;
        }
        let (segments, bytes) = self.parked.take();
        core.reserved -= bytes;
        self.reserved -= bytes;
        for (id, payload) in segments {
            if self.is_over() || !self.on_segment(core, id, &payload) {
                core.stats.data_dropped += 1;
            }
        }
    }

    /// Notes the digests that NORM_INFO announces.
    pub(super) fn learn_digests(&mut self, core: &mut Core, info: &Info<'_>) {
        let Some(shape) = self.shape.as_ref().filter(|shape| shape.coding.is_long()) else {
            return;
        };
        let blocks = shape.partition.blocks();
        for digest in info.others.iter().filter_map(|it| BlockDigest::decode(&it)) {
            let block = u32::from(digest.block);
            if block < blocks && !self.is_over() {
                let verdict = self.digests.announce(block, digest.digest);
                self.judge_digest(core, block, verdict);
            }
        }
    }

    /// Handles the comparison of a block's digests. Returns `false` if the block is not complete
    /// any more.
    pub(super) fn judge_digest(&mut self, core: &mut Core, block: u32, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Waits | Verdict::Confirmed => return true,
            Verdict::Differs | Verdict::Fails => {}
        }
        core.stats.digest_failures += 1;
        let number = u64::from(block);
        if self.whole.contains(number)
            && let Some(shape) = &self.shape
        {
            self.received = self.received.saturating_sub(Self::span(shape, block));
            self.whole.remove(number, number + 1);
        }
        if verdict == Verdict::Fails {
            self.fail(core, Failure::Damaged);
        }
        false
    }

    /// State of the highest block with a received segment, if the object has long blocks.
    pub(crate) fn report_of(&self) -> Option<ReportOf> {
        let shape = self.shape.as_ref().filter(|shape| shape.coding.is_long())?;
        if self.is_waiting_for_other() {
            return None;
        }
        let block = self.highest;
        let missing = if self.is_over() || self.is_whole(block) {
            0
        } else {
            let block_len = shape.partition.block_len(block);
            let lacks = |block: &Block| block.needed(block_len).saturating_sub(block.have.len());
            self.blocks.get(&block).map_or(block_len.into(), lacks)
        };
        // A block has at most 65,535 segments.
        Some(ReportOf { block, missing: missing as u16, arrived: self.arrived })
    }

    /// Recovers the missing source segments.
    pub(super) fn recover(
        core: &mut Core,
        (coding, room): (&Coding, Room),
        block: &mut Block,
        block_len: u16,
    ) -> bool {
        let segment = room.segment;
        let full = usize::from(block_len) * segment;
        block.buffer.resize(full, 0);
        let missing: Vec<_> = block.have.missing(block_len).collect();
        if missing.is_empty() {
            return true;
        }
        if let Some(code) = coding.long_code(block_len, segment) {
            let (parity, extra) = (block.rows(block_len), block.extra_rows(block_len));
            let mut columns = SliceColumns::new(&mut block.buffer, segment);
            let received = Received { missing: &missing, parity: &parity, extra: &extra };
            if code.recover(&mut core.long, &mut columns, &received).is_err() {
                return false;
            }
            core.stats.recovered += missing.len() as u64;
            return true;
        }
        let decoder = coding.kind().and_then(|kind| core.decoder(kind, room));
        let Some(decoder) = decoder else { return false };
        decoder.start(block_len);
        for symbol in block.have.iter().take_while(|symbol| *symbol < block_len) {
            let at = usize::from(symbol) * segment;
            decoder.add(symbol, &block.buffer[at..at + segment]);
        }
        for (place, symbol) in &block.parity {
            let at = usize::from(*place) * segment;
            decoder.add(*symbol, &block.buffer[at..at + segment]);
        }
        if decoder.recover().is_err() {
            return false;
        }
        for symbol in &missing {
            let at = usize::from(*symbol) * segment;
            if let Some(made) = decoder.symbol(*symbol) {
                block.buffer[at..at + segment].copy_from_slice(&made[..segment]);
            }
        }
        core.stats.recovered += missing.len() as u64;
        true
    }
}
