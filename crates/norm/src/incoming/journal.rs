//! Journal of a coded file: its record, its resumption by a later session, and the list of what is
//! missing then.

use bytes::{Bytes, BytesMut};
use engine::{Time, Work};

use super::partials::{Identity, Partial, Record, encode};
use super::requests::shape_id;
use super::{Block, Incoming, Shape, State};
use crate::core::Core;
use crate::indication::Indication;
use crate::message::{Flags, Position, RequestFlags, RequestWriter};

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
    /// Version of the sender's file.
    pub(super) version: u64,
    /// Bytes received at the last record.
    covered: u64,
    /// Record that waits for its data to be synced.
    pending: Option<Bytes>,
    /// Whether a record is due once the working file is open.
    is_due_on_open: bool,
    /// Whether a record was ever written.
    is_used: bool,
    pub(super) list: List,
    /// Number of lists sent.
    lists: u8,
    /// Bytes of an earlier session.
    pub(super) resumed: u64,
    /// Whether another session may have a part of the file.
    waits: bool,
    /// Whether an earlier session may have a part of the object: until NORM_INFO describes it,
    /// nothing else is requested.
    pub(super) may_resume: bool,
}

impl Incoming {
    /// Whether a later session could resume the object.
    pub(super) fn is_resumable(&self, core: &Core) -> bool {
        core.config.journal.enabled && self.identity().is_some() && self.is_on_disk()
    }

    /// Properties by which a later session resumes the object.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (shape, name) = (self.shape.as_ref()?, self.info.clone()?);
        let is_named = self.flags.contains(Flags::FILE) && !name.is_empty();
        (is_named && shape.coding.is_long()).then(|| Identity {
            name,
            size: shape.fti.object_size,
            segment_size: shape.fti.segment_size,
            block_len: shape.fti.block_len,
            version: self.journal.version,
        })
    }

    /// Whether nothing of a resumable object is stored yet.
    pub(crate) fn is_fresh(&self, core: &Core) -> bool {
        !self.is_held
            && self.state == State::Receiving
            && self.run.memory() == 0
            && self.blocks.is_empty()
            && self.whole.covered() == 0
            && self.sink.is_unopened()
            && self.is_resumable(core)
    }

    /// Notes that an earlier session may have a part of the object.
    pub(crate) fn expect_resumption(&mut self) {
        self.journal.may_resume = true;
    }

    /// Notes whether another session may have a part of the file. Until then nothing is reported.
    pub(crate) fn wait_for_other(&mut self, waits: bool) {
        self.journal.waits = waits;
    }

    /// Whether reports would be premature.
    pub(super) fn is_waiting_for_other(&self) -> bool {
        self.journal.waits && self.arrived == 0
    }

    /// Resumes what another session received that has ended by now.
    pub(crate) fn resume_late(&mut self, core: &mut Core) {
        self.resume(core);
        if let Some(shape) = self.shape.as_ref().filter(|_| self.journal.resumed > 0) {
            let (size, resumed) = (shape.fti.object_size, self.journal.resumed);
            core.user.indicate(Indication::Receiving { id: self.id, size, resumed });
        }
    }

    /// Resumes what an earlier session received, if there is any.
    pub(super) fn resume(&mut self, core: &mut Core) {
        if !self.is_fresh(core) {
            return;
        }
        let found = self.identity().and_then(|identity| core.partials.take(&identity));
        let (Some((number, partial)), Some(shape)) = (found, self.shape.clone()) else { return };
        let Partial { whole, blocks, file, instance, identity: _ } = partial;
        let end = u64::from(shape.partition.blocks());
        for (from, to) in whole.iter() {
            for block in from..to.min(end) {
                self.resume_block(core, &shape, block as u32, None);
            }
        }
        for (number, mut block) in blocks {
            // The sender may use another code than before.
            if instance != shape.fti.instance {
                block.forget_parity();
            }
            self.resume_block(core, &shape, number, Some(block));
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
    fn resume_block(&mut self, core: &mut Core, shape: &Shape, number: u32, block: Option<Block>) {
        let block_len = shape.partition.block_len(number);
        if block_len == 0 {
            return;
        }
        let is_part = |block: &Block| !block.is_recovering;
        let (mut block, cost) = match block.filter(is_part) {
            Some(block) => (block, Block::disk_cost(block_len, shape)),
            None => {
                // It only waits for its digest, without parity.
                let mut block = Block::new(BytesMut::new(), 0);
                block.have.insert_all(0, block_len - 1);
                let cost = block.disk_memory();
                (block, cost)
            }
        };
        let room = core.config.limits.assembly.saturating_sub(core.assembling + core.reserved);
        if cost > room {
            return;
        }
        let end = block_len.saturating_add(shape.coding.parity);
        if block.have.iter().any(|symbol| symbol >= end) {
            return;
        }
        block.cost = cost;
        block.requested_at = None;
        core.assembling += cost;
        self.received += block.counted(shape, number);
        self.highest = self.highest.max(number);
        self.digests.resume(number);
        self.blocks.insert(number, block);
    }

    /// Forgets segments of an earlier session beyond the end of the working file, which is shorter
    /// than its record, and computes the digests of complete blocks.
    pub(super) fn reopened(&mut self, core: &mut Core, len: u64) {
        let Some(shape) = self.shape.clone().filter(|_| self.journal.resumed > 0) else { return };
        for (number, block) in &mut self.blocks {
            let start = shape.partition.block_offset(*number);
            let end = shape.partition.block_offset(number + 1);
            if end <= len || block.is_recovering {
                continue;
            }
            self.received -= block.counted(&shape, *number);
            let segment = shape.room.segment as u64;
            let inside = len.saturating_sub(start) / segment.max(1);
            let block_len = shape.partition.block_len(*number);
            block.forget_from(inside.min(block_len.into()) as u16, block_len);
            self.received += block.counted(&shape, *number);
        }
        self.verify(core);
    }

    /// Drops a block of an earlier session that cannot be recovered. Returns `false` if it is not
    /// one.
    pub(super) fn drop_resumed(&mut self, core: &mut Core, number: u32) -> bool {
        let (true, Some(shape)) = (self.digests.drop_resumed(number), &self.shape) else {
            return false;
        };
        if let Some(block) = self.blocks.remove(&number) {
            core.assembling -= block.cost;
            self.received -= block.counted(shape, number);
        }
        core.stats.digest_failures += 1;
        true
    }

    /// Computes the digests of blocks that an earlier session received completely.
    fn verify(&mut self, core: &mut Core) {
        let Some(shape) = self.shape.clone() else { return };
        for (number, block) in &mut self.blocks {
            let block_len = shape.partition.block_len(*number);
            if block.is_recovering || block.have.len() < block.needed(block_len) {
                continue;
            }
            let lens = (block_len, shape.room.segment);
            let Some(job) = Self::recovery(&shape, *number, block, lens) else { return };
            self.sink.work(core, *number, Work::new(job), self.is_held);
        }
    }

    /// Whether progress was made that is not recorded, and whether a record is due.
    pub(crate) fn unsaved(&self, core: &Core) -> (bool, bool) {
        let is_waiting = self.journal.pending.is_some() || self.journal.is_due_on_open;
        if self.state != State::Receiving || is_waiting {
            return (false, false);
        }
        let is_kept = |shape: &&Shape| shape.coding.is_long() && core.config.journal.enabled;
        let Some(shape) = self.shape.as_ref().filter(is_kept) else { return (false, false) };
        let more = self.received.saturating_sub(self.journal.covered);
        let step = (shape.fti.object_size / RECORDS).max(BYTES_LEAST);
        (more > 0, more >= step.min(core.config.journal.bytes))
    }

    /// Syncs the segments received so far, and then records them.
    pub(crate) fn save(&mut self, core: &mut Core) {
        if !self.is_resumable(core) || !self.unsaved(core).0 {
            return;
        }
        self.flush_run(core);
        if !self.sink.is_open() {
            self.journal.is_due_on_open = true;
            return;
        }
        let (Some(identity), Some(shape)) = (self.identity(), &self.shape) else { return };
        let blocks = self
            .blocks
            .iter()
            .map(|(number, block)| (*number, shape.partition.block_len(*number), &block.have));
        let record = encode(&identity, &self.whole, blocks);
        if self.sink.save(core) {
            self.journal.pending = Some(record);
            self.journal.covered = self.received;
        }
    }

    /// Saves the progress that was due before the working file was open.
    pub(super) fn save_on_open(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.journal.is_due_on_open) {
            self.save(core);
        }
    }

    /// Writes the record of segments that are synced.
    pub(super) fn saved(&mut self, core: &mut Core, is_synced: bool) {
        let Some(record) = self.journal.pending.take().filter(|_| is_synced) else { return };
        if self.state == State::Receiving {
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

    /// Whether the object has data that a later session could resume.
    pub(crate) fn is_suspendable(&self) -> bool {
        self.state == State::Receiving && !self.is_held && self.sink.is_open()
    }

    /// Keeps the file for a later session. Returns `false` if that is impossible.
    pub(super) fn suspend(&mut self, core: &mut Core) -> bool {
        let is_empty = self.blocks.is_empty() && self.whole.covered() == 0;
        if is_empty || !self.sink.is_open() || !self.is_resumable(core) {
            return false;
        }
        self.flush_run(core);
        let instance = self.shape.as_ref().map_or(0, |shape| shape.fti.instance);
        let (Some(identity), Some(file)) = (self.identity(), self.sink.release()) else {
            return false;
        };
        let blocks = std::mem::take(&mut self.blocks);
        core.assembling -= blocks.values().map(|block| block.cost).sum::<usize>();
        let whole = std::mem::take(&mut self.whole);
        let partial = Partial { identity, instance, whole, blocks, file: Some(file) };
        core.keep_partial(self.sink.number(), partial);
        true
    }

    /// Requests a repetition of the list if it may be lost.
    pub(crate) fn probed(&mut self) -> bool {
        if self.journal.list == List::Sent && self.journal.lists < LISTS_MAX {
            self.journal.list = List::Due;
        }
        self.journal.list == List::Due
    }

    /// Whether the list of what is missing is due.
    pub(crate) fn is_list_due(&self) -> bool {
        self.state == State::Receiving && self.journal.list == List::Due
    }

    /// Lists everything that is missing: blocks and long runs of segments, and for the other
    /// segments of a block as many rows of parity that were not received. Returns the end of the
    /// listed blocks.
    pub(crate) fn list(&mut self, writer: &mut RequestWriter<'_>, now: Time) -> u32 {
        let Some(shape) = self.shape.clone() else { return 0 };
        self.journal.lists = self.journal.lists.saturating_add(1);
        self.journal.list = if self.arrived == 0 { List::Sent } else { List::None };
        let blocks = shape.partition.blocks();
        let gaps: Vec<_> = self.whole.gaps(0, blocks.into()).collect();
        for (from, to) in gaps {
            let (mut at, to) = (from as u32, to as u32);
            while at < to {
                let part = self.blocks.range(at..to).next().map(|(number, _)| *number);
                let end = part.unwrap_or(to);
                if !self.list_blocks(writer, &shape, (at, end), now) {
                    return at;
                }
                let Some(part) = part else { break };
                if !self.list_part(writer, &shape, part, now) {
                    return part;
                }
                at = part + 1;
            }
        }
        blocks
    }

    fn list_blocks(
        &mut self,
        writer: &mut RequestWriter<'_>,
        shape: &Shape,
        (first, end): (u32, u32),
        now: Time,
    ) -> bool {
        if first == end {
            return true;
        }
        let (fec, object) = (shape.scheme, self.number());
        let position = |block| Position { fec, object, id: shape_id(shape, block, 0) };
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
        shape: &Shape,
        number: u32,
        now: Time,
    ) -> bool {
        let (fec, object) = (shape.scheme, self.number());
        let position = |symbol| Position { fec, object, id: shape_id(shape, number, symbol) };
        let block_len = shape.partition.block_len(number);
        let Some(block) = self.blocks.get_mut(&number) else { return true };
        let ranges = ranges_of(block, block_len, shape.coding.parity);
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
fn ranges_of(block: &Block, block_len: u16, parity: u16) -> Vec<(u16, u16)> {
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
        let found = ranges_of(&block((0..600).filter(|n| n % 10 != 3)), 1_000, 1_024);
        assert_eq!(found, [(600, 999), (1_000, 1_059)]);
        // Rows that were received are not requested again.
        let rows = (0..600).filter(|n| n % 10 != 3).chain([1_000, 1_006]);
        assert_eq!(ranges_of(&block(rows), 1_000, 1_024), [(600, 999), (1_007, 1_064)]);
        // Parity covers a part of the run.
        let found = ranges_of(&block((0..600).chain(1_000..1_300)), 1_000, 1_024);
        assert_eq!(found, [(900, 999)]);
        assert_eq!(ranges_of(&block(0..1_000), 1_000, 1_024), []);
        let few = ranges_of(&block((0..1_000).filter(|n| n % 10 != 3)), 1_000, 64);
        assert_eq!(few, [(1_000, 1_063)]);
    }
}
