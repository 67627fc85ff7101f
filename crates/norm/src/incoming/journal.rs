//! Journal of a coded file: its record, its resumption by a later session, and the list of what is
//! missing then.

use bytes::BytesMut;
use engine::Time;

use super::blocks::{Blocks, List};
use super::partials::{Identity, Partial, Record, encode};
use super::requests::Missing;
use super::{Block, Incoming, Kind, State};
use crate::core::Core;
use crate::message::{Flags, Fti, RequestFlags, RequestWriter};

/// Number of records in the time of a short file.
const RECORDS: u64 = 64;

/// Minimum number of bytes between two records.
const BYTES_LEAST: u64 = 64 << 10;

/// Maximum number of runs of missing segments of a block that are listed, and their least length.
/// Parity covers the others.
const RUNS_MAX: usize = 16;
const RUN_LEAST: u16 = 8;

/// Maximum number of lists of an object.
const LISTS_MAX: u8 = 32;

impl Incoming {
    /// Properties by which a later session resumes the object.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (blocks, name) = (self.blocks()?, self.info.clone()?);
        let is_named = self.flags.contains(Flags::FILE) && !name.is_empty();
        let Fti { object_size: size, segment_size, block_len, .. } = blocks.shape.fti;
        (is_named && blocks.is_on_disk()).then(|| Identity {
            name,
            size,
            segment_size,
            block_len,
            version: blocks.journal.version,
        })
    }

    /// Whether nothing of a resumable object is stored yet.
    pub(crate) fn is_fresh(&self, core: &Core) -> bool {
        !self.is_held
            && self.state == State::Receiving
            && core.config.journal.enabled
            && self.blocks().is_some_and(|blocks| blocks.is_empty() && blocks.sink.is_unopened())
            && self.identity().is_some()
    }

    /// Resumes what another session received that has ended by now, or waits for it: until then
    /// nothing is reported.
    pub(crate) fn resume_late(&mut self, core: &mut Core, waits: bool) {
        self.resume(core);
        if let Kind::Blocks(blocks) = &mut self.kind {
            blocks.journal.waits = waits;
            if blocks.journal.resumed > 0 {
                core.user.indicate(blocks.receiving(self.id));
            }
        }
    }

    /// Resumes what an earlier session received, if there is any.
    pub(super) fn resume(&mut self, core: &mut Core) {
        if !self.is_fresh(core) {
            return;
        }
        let found = self.identity().and_then(|identity| core.partials.take(&identity));
        if let (Some((number, partial)), Kind::Blocks(blocks)) = (found, &mut self.kind) {
            blocks.resume(core, number, partial);
        }
    }

    /// Whether progress was made that is not recorded, and whether a record is due.
    pub(crate) fn unsaved(&self, core: &Core) -> (bool, bool) {
        let blocks = self.blocks().filter(|_| self.state == State::Receiving);
        blocks.map_or((false, false), |blocks| blocks.unsaved(core))
    }

    /// Syncs the segments received so far, and then records them.
    pub(crate) fn save(&mut self, core: &mut Core) {
        let identity = self.identity().filter(|_| self.unsaved(core).0);
        if let (Some(identity), Kind::Blocks(blocks)) = (identity, &mut self.kind) {
            blocks.save(core, &identity);
        }
    }

    /// Whether the object has data that a later session could resume.
    pub(crate) fn is_suspendable(&self) -> bool {
        let is_open = self.blocks().is_some_and(|blocks| blocks.sink.is_open());
        is_open && self.state == State::Receiving && !self.is_held
    }

    /// Keeps the file for a later session. Returns `false` if that is impossible.
    pub(super) fn suspend(&mut self, core: &mut Core) -> bool {
        let identity = self.identity().filter(|_| core.config.journal.enabled);
        let (Some(identity), Kind::Blocks(blocks)) = (identity, &mut self.kind) else {
            return false;
        };
        blocks.suspend(core, identity)
    }

    /// Requests a repetition of the list if it may be lost. Returns whether one is due.
    pub(crate) fn repeat_list(&mut self) -> bool {
        let Kind::Blocks(blocks) = &mut self.kind else { return false };
        let journal = &mut blocks.journal;
        if journal.list == List::Sent && journal.lists < LISTS_MAX {
            journal.list = List::Due;
        }
        journal.list == List::Due
    }

    /// Whether the list of what is missing is due.
    pub(crate) fn is_list_due(&self) -> bool {
        let is_due = self.blocks().is_some_and(|blocks| blocks.journal.list == List::Due);
        is_due && self.state == State::Receiving
    }

    /// Lists everything that is missing. Returns the end of the listed blocks.
    pub(crate) fn list(&mut self, writer: &mut RequestWriter<'_>, now: Time) -> u32 {
        let (object, is_unheard) = (self.number(), self.arrived == 0);
        let Kind::Blocks(blocks) = &mut self.kind else { return 0 };
        blocks.journal.lists = blocks.journal.lists.saturating_add(1);
        blocks.journal.list = if is_unheard { List::Sent } else { List::None };
        blocks.list(writer, object, now)
    }
}

impl Blocks {
    /// Whether nothing was received.
    fn is_empty(&self) -> bool {
        self.run.memory() == 0 && self.parts.is_empty() && self.whole.covered() == 0
    }

    /// Resumes an incomplete file.
    fn resume(&mut self, core: &mut Core, number: u64, partial: Partial) {
        let Partial { whole, blocks, file, instance, identity: _ } = partial;
        let end = u64::from(self.shape.partition.blocks());
        for (from, to) in whole.iter() {
            for block in from..to.min(end) {
                self.resume_block(core, block as u32, None);
            }
        }
        for (number, mut block) in blocks {
            // The sender may use another code than before.
            if instance != self.shape.fti.instance {
                block.forget_parity();
            }
            self.resume_block(core, number, Some(block));
        }
        self.journal.resumed = self.received;
        self.journal.covered = self.received;
        self.journal.is_used = true;
        self.journal.list = List::Due;
        core.has_resumed = true;
        if self.sink.resume(core, number, file) {
            self.verify(core);
        }
    }

    /// Adds a block of an earlier session; a complete one if `block` is `None`. One that was being
    /// recovered counts as complete: if it is not, its digest differs.
    fn resume_block(&mut self, core: &mut Core, number: u32, block: Option<Block>) {
        let block_len = self.block_len(number);
        if block_len == 0 {
            return;
        }
        let is_part = |block: &Block| !block.is_recovering;
        let (mut block, cost) = match block.filter(is_part) {
            Some(block) => (block, Block::disk_cost(block_len, &self.shape)),
            None => {
                // It only waits for its digest, without parity.
                let mut block = Block::new(BytesMut::new(), 0);
                block.have.insert_all(0, block_len - 1);
                let cost = block.disk_memory();
                (block, cost)
            }
        };
        let end = block_len.saturating_add(self.shape.coding.parity);
        if cost > core.assembly_room() || block.have.last().is_some_and(|last| last >= end) {
            return;
        }
        block.cost = cost;
        block.requested_at = None;
        core.assembling += cost;
        self.received += block.counted(&self.shape, number);
        self.highest = self.highest.max(number);
        self.digests.resume(number);
        self.parts.insert(number, block);
    }

    /// Forgets segments of an earlier session beyond the end of the working file, which is shorter
    /// than its record, and computes the digests of complete blocks.
    pub(super) fn on_reopened(&mut self, core: &mut Core, len: u64) {
        if self.journal.resumed == 0 {
            return;
        }
        let (partition, segment) = (&self.shape.partition, self.shape.room.segment as u64);
        for (number, block) in &mut self.parts {
            if partition.block_offset(number + 1) <= len || block.is_recovering {
                continue;
            }
            self.received -= block.counted(&self.shape, *number);
            let inside = len.saturating_sub(partition.block_offset(*number)) / segment.max(1);
            let block_len = partition.block_len(*number);
            block.forget_from(inside.min(block_len.into()) as u16, block_len);
            self.received += block.counted(&self.shape, *number);
        }
        self.verify(core);
    }

    /// Drops a block of an earlier session that cannot be recovered. Returns `false` if it is not
    /// one.
    pub(super) fn drop_resumed(&mut self, core: &mut Core, number: u32) -> bool {
        if !self.digests.drop_resumed(number) {
            return false;
        }
        if let Some(block) = self.remove_part(core, number) {
            self.received -= block.counted(&self.shape, number);
        }
        core.stats.digest_failures += 1;
        true
    }

    /// Computes the digests of blocks that an earlier session received completely.
    fn verify(&mut self, core: &mut Core) {
        let is_due = |(number, block): &(&u32, &Block)| {
            let needed = block.needed(self.shape.partition.block_len(**number));
            !block.is_recovering && block.have.len() >= needed
        };
        let due: Vec<_> = self.parts.iter().filter(is_due).map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.start_recovery(core, number));
    }

    fn unsaved(&self, core: &Core) -> (bool, bool) {
        let is_waiting = self.journal.pending.is_some() || self.journal.is_due_on_open;
        if is_waiting || !self.shape.coding.is_long() || !core.config.journal.enabled {
            return (false, false);
        }
        let more = self.received.saturating_sub(self.journal.covered);
        let step = (self.shape.fti.object_size / RECORDS).max(BYTES_LEAST);
        (more > 0, more >= step.min(core.config.journal.bytes))
    }

    fn save(&mut self, core: &mut Core, identity: &Identity) {
        self.flush_run(core);
        if !self.sink.save(core) {
            self.journal.is_due_on_open = true;
            return;
        }
        let parts = self.parts.iter();
        let parts = parts.map(|(number, block)| (*number, self.block_len(*number), &block.have));
        let record = encode(identity, &self.whole, parts);
        self.journal.pending = Some(record);
        self.journal.covered = self.received;
    }

    /// Writes the record of segments that are synced.
    pub(super) fn saved(&mut self, core: &mut Core, is_synced: bool) {
        if let Some(record) = self.journal.pending.take().filter(|_| is_synced) {
            self.journal.is_used = true;
            core.put_record(Record::Received(self.sink.number()), record);
        }
    }

    /// Removes the record of an object that is over.
    pub(super) fn forget_record(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.journal.is_used) {
            core.remove_record(Record::Received(self.sink.number()));
        }
    }

    fn suspend(&mut self, core: &mut Core, identity: Identity) -> bool {
        // A file that was never opened is not opened to be kept.
        if !self.sink.is_open() || self.parts.is_empty() && self.whole.covered() == 0 {
            return false;
        }
        self.flush_run(core);
        let Some(file) = self.sink.release() else { return false };
        let blocks = std::mem::take(&mut self.parts);
        core.assembling -= blocks.values().map(|block| block.cost).sum::<usize>();
        let whole = std::mem::take(&mut self.whole);
        let instance = self.shape.fti.instance;
        let partial = Partial { identity, instance, whole, blocks, file: Some(file) };
        core.keep_partial(self.sink.number(), partial);
        true
    }

    /// Lists everything that is missing: blocks and long runs of segments, and for the other
    /// segments of a block as many rows of parity that were not received. Returns the end of the
    /// listed blocks.
    fn list(&mut self, writer: &mut RequestWriter<'_>, object: u16, now: Time) -> u32 {
        let blocks = self.shape.partition.blocks();
        let mut at = 0;
        while let Some(missing) = self.next_missing(at, blocks) {
            let went = match missing {
                Missing::Run(first, end) => self.list_run(writer, object, (first, end), now),
                Missing::Part(number) => self.list_part(writer, object, number, now),
            };
            if !went {
                return missing.start();
            }
            at = missing.end();
        }
        blocks
    }

    fn list_run(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        (first, end): (u32, u32),
        now: Time,
    ) -> bool {
        let position = |block| self.shape.position(object, block, 0);
        let went = match end - first {
            1 => writer.item(RequestFlags::BLOCK, position(first)),
            _ => writer.range(RequestFlags::BLOCK, position(first), position(end - 1)),
        };
        if went.is_ok() {
            self.requested.note_blocks((first.into(), end.into()), now);
        }
        went.is_ok()
    }

    fn list_part(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        number: u32,
        now: Time,
    ) -> bool {
        let position = |symbol| self.shape.position(object, number, symbol);
        let block_len = self.shape.partition.block_len(number);
        let Some(block) = self.parts.get_mut(&number) else { return true };
        let ranges = ranges_to_list(block, block_len, self.shape.coding.parity);
        let went = ranges.into_iter().all(|(first, last)| match last - first {
            0 => writer.item(RequestFlags::SEGMENT, position(first)).is_ok(),
            _ => writer.range(RequestFlags::SEGMENT, position(first), position(last)).is_ok(),
        });
        if went && !block.is_recovering {
            (block.requested_at, block.is_answered) = (Some(now), false);
        }
        went
    }
}

/// Segments to list for a block, as (first, last).
fn ranges_to_list(block: &Block, block_len: u16, parity: u16) -> Vec<(u16, u16)> {
    let lacks = block.needed(block_len).saturating_sub(block.have.len());
    if lacks == 0 || block.is_recovering {
        return Vec::new();
    }
    let mut long: Vec<_> = block.have.gaps(0..block_len).collect();
    long.retain(|(first, last)| last - first + 1 >= RUN_LEAST);
    long.sort_by_key(|(first, last)| std::cmp::Reverse(last - first));
    long.truncate(RUNS_MAX);
    let (mut ranges, mut left) = (Vec::new(), lacks);
    // A source segment of no more use than the parity at its place is not listed.
    let mut free = u32::from(block_len).saturating_sub(block.have.len());
    for (first, last) in long {
        let count = u32::from(last - first + 1).min(free);
        if count == 0 {
            break;
        }
        (free, left) = (free - count, left - count);
        // Later segments are less likely to be under way.
        ranges.push((last + 1 - count as u16, last));
    }
    ranges.sort_unstable();
    // Rows above all that were received.
    let highest = block.have.last().filter(|symbol| *symbol >= block_len);
    let first = highest.map_or(block_len, |symbol| symbol + 1);
    let rest = u32::from(block_len.saturating_add(parity)).saturating_sub(first.into());
    if let Some(last) = left.min(rest).checked_sub(1) {
        ranges.push((first, first + last as u16));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(have: impl Iterator<Item = u16>) -> Block {
        let mut block = Block::new(BytesMut::new(), 0);
        have.for_each(|symbol| _ = block.have.insert(symbol));
        block
    }

    #[test]
    fn long_runs_are_listed_and_parity_for_the_rest() {
        // Every tenth segment of the first 600 was lost, and all later ones.
        let found = ranges_to_list(&block((0..600).filter(|n| n % 10 != 3)), 1_000, 1_024);
        assert_eq!(found, [(600, 999), (1_000, 1_059)]);
        // Rows that were received are not requested again.
        let rows = (0..600).filter(|n| n % 10 != 3).chain([1_000, 1_006]);
        assert_eq!(ranges_to_list(&block(rows), 1_000, 1_024), [(600, 999), (1_007, 1_064)]);
        // Parity covers a part of the run.
        let found = ranges_to_list(&block((0..600).chain(1_000..1_300)), 1_000, 1_024);
        assert_eq!(found, [(900, 999)]);
        assert_eq!(ranges_to_list(&block(0..1_000), 1_000, 1_024), []);
        let few = ranges_to_list(&block((0..1_000).filter(|n| n % 10 != 3)), 1_000, 64);
        assert_eq!(few, [(1_000, 1_063)]);
    }
}
