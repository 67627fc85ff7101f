//! Journal of a file: its record, its resumption by a later session, and the list of what a coded
//! file lacks then.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use engine::Time;

use super::blocks::{Blocks, List};
use super::identity::{Description, Identity, Origin};
use super::partials::{Partial, Record, encode};
use super::requests::Missing;
use super::{Bits, Block, Incoming, Kind, Requested, Shape, Sink, State};
use crate::core::Core;
use crate::indication::Failure;
use crate::message::{Flags, Fti, NodeId, RequestFlags, RequestWriter};

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
    /// Object in its session.
    fn origin(&self) -> Origin {
        Origin { node: NodeId(self.id.sender), instance: self.instance, number: self.number() }
    }

    /// Properties by which a later session resumes the object.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (blocks, name) = (self.blocks()?, self.info.clone().or_else(|| self.restored.clone())?);
        let is_named = self.flags.contains(Flags::FILE) && !name.is_empty();
        let Fti { object_size: size, segment_size, block_len, .. } = blocks.shape.fti;
        let version = blocks.journal.version;
        let is_kept = is_named && blocks.journal.is_kept;
        is_kept.then_some(Identity { name, size, segment_size, block_len, version })
    }

    fn description(&self) -> Option<Description> {
        let (identity, shape) = (self.identity()?, self.shape()?);
        let (scheme, fti) = (shape.scheme, shape.fti);
        Some(Description { identity, origin: self.origin(), flags: self.flags, scheme, fti })
    }

    /// Whether nothing of a resumable object is stored yet. Without digests of its blocks, an
    /// object resumes only what its sender says.
    pub(crate) fn is_fresh(&self, core: &Core) -> bool {
        let is_resumable = self.is_coded() || self.former.is_some();
        !self.is_held
            && self.state == State::Receiving
            && core.config.journal.enabled
            && is_resumable
            && self.blocks().is_some_and(|blocks| blocks.is_empty() && blocks.sink.is_unopened())
            && self.identity().is_some()
    }

    /// Whether the object has long blocks.
    fn is_coded(&self) -> bool {
        self.shape().is_some_and(|shape| shape.coding.is_long())
    }

    /// Resumes what another session received that has ended by now, or waits for it: until then
    /// nothing is reported.
    pub(crate) fn resume_late(&mut self, core: &mut Core, waits: bool) {
        self.resume(core);
        if let Kind::Blocks(blocks) = &mut self.kind
            && self.state == State::Receiving
        {
            blocks.journal.waits = waits;
            if blocks.journal.resumed > 0 {
                core.user.indicate(blocks.receiving(self.id));
            }
        }
    }

    /// Resumes what an earlier session received, if there is any.
    pub(super) fn resume(&mut self, core: &mut Core) {
        let Some(of) = self.description().filter(|_| core.config.journal.enabled) else { return };
        if core.partials.is_stored(&of, self.former) {
            // The sender's next session names this one as the former.
            core.note_stored(&of);
            self.skip(core);
        }
        if !self.is_fresh(core) {
            return;
        }
        let found = core.partials.take(&of, self.former.is_some());
        if let (Some((number, partial)), Kind::Blocks(blocks)) = (found, &mut self.kind) {
            blocks.resume(core, number, partial);
            // The next record has the session of this object.
            blocks.journal.covered = 0;
        }
    }

    /// Ends an object that was stored before.
    fn skip(&mut self, core: &mut Core) {
        self.state = State::Done;
        if let Kind::Blocks(blocks) = &mut self.kind {
            blocks.discard(core);
        }
        self.finished(core, Err(Failure::Resumed), None);
    }

    /// Restores what an earlier process received of the object in the same session. NORM_INFO
    /// confirms that it is the same file.
    pub(crate) fn restore(&mut self, core: &mut Core) {
        let Some((number, partial)) = core.partials.take_object(self.origin()) else { return };
        let (of, work) = (partial.of.clone(), core.config.limits.coding_work);
        let Ok(shape) = Shape::new(of.scheme, of.fti, false, work) else {
            core.forget_partial(number, partial.file);
            return;
        };
        self.flags = of.flags;
        self.is_held = false;
        let mut blocks = Blocks::new(shape, Sink::new(self.handle, true, false), 0);
        (blocks.journal.version, blocks.journal.is_kept) = (of.identity.version, true);
        blocks.resume(core, number, partial);
        self.restored = Some(of.identity.name);
        self.announce(core);
        core.user.indicate(blocks.receiving(self.id));
        self.kind = Kind::Blocks(Box::new(blocks));
    }

    /// Whether NORM_INFO has another name or version than the restored file.
    pub(super) fn contradicts(&mut self, core: &mut Core, name: &[u8], version: u64) -> bool {
        let known = self.blocks().map_or(0, |blocks| blocks.journal.version);
        let Some(restored) = self.restored.take() else { return false };
        // Now there is a list to send.
        core.has_resumed |= self.is_coded();
        restored != name || version != known
    }

    /// Drops the object if it was restored, but not confirmed before a file of this name was
    /// stored.
    pub(crate) fn drop_restored(&mut self, core: &mut Core, name: &Bytes) {
        if self.restored.as_ref() == Some(name) {
            self.fail(core, Failure::Damaged);
        }
    }

    /// Whether only NORM_INFO is requested for now: then a list of what a restored coded file lacks
    /// follows, or what another session received of a file without digests.
    pub(super) fn awaits_session(&self) -> bool {
        let waits = self.blocks().is_some_and(|blocks| blocks.journal.waits);
        if self.is_coded() { self.restored.is_some() } else { waits }
    }

    /// Takes the place of the object of another session, with everything that was received of it.
    /// Returns that object, of which nothing is left.
    pub(crate) fn adopt(&mut self, core: &mut Core, mut former: Self) -> Self {
        if let (Kind::Blocks(own), Kind::Blocks(blocks)) = (&self.kind, &mut former.kind) {
            blocks.adopt(core, &own.shape);
            core.user.indicate(blocks.receiving(self.id));
            std::mem::swap(&mut self.kind, &mut former.kind);
            std::mem::swap(&mut self.handle, &mut former.handle);
        }
        former
    }

    /// Whether progress was made that is not recorded, and whether a record is due.
    pub(crate) fn unsaved(&self, core: &Core) -> (bool, bool) {
        let blocks = self.blocks().filter(|_| self.state == State::Receiving);
        blocks.map_or((false, false), |blocks| blocks.unsaved(core))
    }

    /// Syncs the segments received so far, and then records them.
    pub(crate) fn save(&mut self, core: &mut Core) {
        let of = self.description().filter(|_| self.unsaved(core).0);
        if let (Some(of), Kind::Blocks(blocks)) = (of, &mut self.kind) {
            blocks.save(core, &of);
        }
    }

    /// Notes that the file was stored.
    pub(super) fn note_stored(&self, core: &mut Core) {
        if let Some(of) = self.description().filter(|_| core.config.journal.enabled) {
            core.note_stored(&of);
        }
    }

    /// Whether another session with this file can take the object over; `None` if it is another
    /// file, or stored.
    pub(crate) fn is_adoptable(&self, identity: &Identity) -> Option<bool> {
        let is_same = !self.is_held && self.identity().as_ref() == Some(identity);
        (is_same && !self.is_over()).then_some(self.state == State::Receiving)
    }

    /// Whether the object may be one that another session resumes.
    pub(crate) fn is_resumable(&self) -> bool {
        !self.is_over() && self.blocks().is_some_and(|blocks| blocks.journal.is_kept)
    }

    /// Indicates that another session takes the object over.
    pub(crate) fn yields(&mut self, core: &mut Core) {
        self.finished(core, Err(Failure::Resumed), None);
    }

    /// Keeps the file for a later session. Returns `false` if that is impossible.
    pub(super) fn suspend(&mut self, core: &mut Core) -> bool {
        let of = self.description().filter(|_| core.config.journal.enabled);
        let (Some(of), Kind::Blocks(blocks)) = (of, &mut self.kind) else {
            return false;
        };
        if blocks.is_on_disk() { blocks.suspend(core, of) } else { blocks.suspend_saved(core) }
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
        is_due && self.state == State::Receiving && self.restored.is_none()
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
        let Partial { whole, blocks, file, of } = partial;
        let end = u64::from(self.shape.partition.blocks());
        let is_coded = self.shape.coding.is_long();
        if !is_coded {
            let parts =
                blocks.iter().map(|(number, it)| (*number, self.block_len(*number), &it.have));
            self.journal.saved = Some(encode(&of, &whole, parts));
        }
        for (from, to) in whole.iter().map(|(from, to)| (from, to.min(end))) {
            if is_coded {
                (from..to).for_each(|block| self.resume_block(core, block as u32, None));
            } else if from < to {
                self.resume_whole(from as u32, to as u32);
            }
        }
        for (number, mut block) in blocks {
            if !is_coded {
                self.resume_direct(core, number, &block.have);
                continue;
            }
            // The sender may use another code than before.
            if of.fti.instance != self.shape.fti.instance {
                block.forget_parity();
            }
            self.resume_block(core, number, Some(block));
        }
        self.journal.covered = self.received;
        self.journal.is_used = true;
        self.note_resumed(core);
        if self.sink.resume(core, number, file) {
            self.verify(core);
        }
    }

    /// Lets the sender of a coded file know what is missing.
    fn note_resumed(&mut self, core: &mut Core) {
        self.journal.resumed = self.received;
        if self.shape.coding.is_long() {
            self.journal.list = List::Due;
            core.has_resumed = true;
        }
    }

    /// Continues as the object of another session with the same file.
    fn adopt(&mut self, core: &mut Core, shape: &Shape) {
        if self.shape.fti.instance != shape.fti.instance {
            let parts = self.parts.values_mut().filter(|block| !block.is_recovering);
            parts.for_each(Block::forget_parity);
        }
        self.shape = shape.clone();
        self.requested = Requested::default();
        for (number, block) in &mut self.parts {
            block.forget_requests();
            self.digests.resume(*number);
        }
        (self.journal.lists, self.journal.waits) = (0, false);
        // The next record has the new session.
        self.journal.covered = 0;
        self.note_resumed(core);
    }

    /// Adds complete blocks of an earlier session.
    fn resume_whole(&mut self, from: u32, to: u32) {
        let partition = &self.shape.partition;
        self.received += partition.block_offset(to) - partition.block_offset(from);
        self.highest = self.highest.max(to - 1);
        self.whole.insert(from.into(), to.into());
    }

    /// Adds the segments of an incomplete block that are in the file, without parity.
    fn resume_direct(&mut self, core: &mut Core, number: u32, have: &Bits) {
        let block_len = self.block_len(number);
        let cost = Block::direct_cost(block_len);
        let is_sound = have.last().is_some_and(|last| last < block_len);
        if !is_sound || cost > core.assembly_room() {
            return;
        }
        if have.len() >= block_len.into() {
            self.resume_whole(number, number + 1);
            return;
        }
        let mut block = Block::direct(cost);
        block.have = have.clone();
        core.assembling += cost;
        self.received += block.counted(&self.shape, number);
        self.highest = self.highest.max(number);
        self.parts.insert(number, block);
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
        let before = self.received;
        let (partition, segment) = (&self.shape.partition, self.shape.room.segment as u64);
        if !self.shape.coding.is_long()
            && let Some(at) = partition.locate(len)
        {
            let lost: Vec<_> =
                self.whole.iter().filter(|(_, to)| *to > u64::from(at.sbn)).collect();
            for (from, to) in lost {
                let from = from.max(at.sbn.into());
                self.received -=
                    partition.block_offset(to as u32) - partition.block_offset(from as u32);
            }
            self.whole.remove(at.sbn.into(), u64::MAX);
        }
        for (number, block) in &mut self.parts {
            let is_in_file = self.shape.coding.is_long() || block.is_direct;
            let is_inside = partition.block_offset(number + 1) <= len;
            if is_inside || block.is_recovering || !is_in_file {
                continue;
            }
            self.received -= block.counted(&self.shape, *number);
            let inside = len.saturating_sub(partition.block_offset(*number)) / segment.max(1);
            let block_len = partition.block_len(*number);
            block.forget_from(inside.min(block_len.into()) as u16, block_len);
            self.received += block.counted(&self.shape, *number);
        }
        if self.received < before {
            self.journal.saved = None;
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
        if is_waiting || !self.journal.is_kept || !core.config.journal.enabled {
            return (false, false);
        }
        let more = self.received.saturating_sub(self.journal.covered);
        let step = (self.shape.fti.object_size / RECORDS).max(BYTES_LEAST);
        (more > 0, more >= step.min(core.config.journal.bytes))
    }

    fn save(&mut self, core: &mut Core, of: &Description) {
        self.flush_run(core);
        self.write_parts(core);
        if !self.sink.save(core) {
            self.journal.is_due_on_open = true;
            return;
        }
        let parts = self.parts.iter();
        let parts = parts.map(|(number, block)| (*number, self.block_len(*number), &block.have));
        let record = encode(of, &self.whole, parts);
        self.journal.pending = Some(record);
        self.journal.covered = self.received;
    }

    /// Writes the source segments of blocks in memory to their places in the file.
    fn write_parts(&mut self, core: &mut Core) {
        if self.is_on_disk() {
            return;
        }
        let (partition, segment) = (&self.shape.partition, self.shape.room.segment);
        for (number, block) in &mut self.parts {
            for (first, last) in block.take_unwritten(partition.block_len(*number)) {
                let start = partition.segment_offset(*number, first);
                let end = partition.segment_offset(*number, last)
                    + u64::from(partition.segment_len(*number, last));
                let at = usize::from(first) * segment;
                let bytes = &block.buffer[at..at + (end - start) as usize];
                self.sink.put(core, start, Bytes::copy_from_slice(bytes));
            }
        }
    }

    /// Writes the record of segments that are synced.
    pub(super) fn saved(&mut self, core: &mut Core, is_synced: bool) {
        if let Some(record) = self.journal.pending.take().filter(|_| is_synced) {
            self.journal.is_used = true;
            if !self.is_on_disk() {
                self.journal.saved = Some(record.clone());
            }
            core.put_record(Record::Received(self.sink.number()), record);
        }
    }

    /// Removes the record of an object that is over.
    pub(super) fn forget_record(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.journal.is_used) {
            core.remove_record(Record::Received(self.sink.number()));
        }
    }

    /// Keeps what the last record has for a later session. Blocks in memory are lost, and writes
    /// that are not synced may fail.
    fn suspend_saved(&mut self, core: &mut Core) -> bool {
        let saved = self.journal.saved.take().and_then(|record| Partial::decode(&record));
        let (Some(partial), true) = (saved, self.sink.is_open()) else { return false };
        let partial = Partial { file: self.sink.release(), ..partial };
        core.keep_partial(self.sink.number(), partial);
        true
    }

    fn suspend(&mut self, core: &mut Core, of: Description) -> bool {
        // A file that was never opened is not opened to be kept.
        if !self.sink.is_open() || self.parts.is_empty() && self.whole.covered() == 0 {
            return false;
        }
        self.flush_run(core);
        let Some(file) = self.sink.release() else { return false };
        let blocks = std::mem::take(&mut self.parts);
        core.assembling -= blocks.values().map(|block| block.cost).sum::<usize>();
        let whole = std::mem::take(&mut self.whole);
        let partial = Partial { of, whole, blocks, file: Some(file) };
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
                Missing::Run(first, end) => self.list_run(writer, object, first..end, now),
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
        Range { start: first, end }: Range<u32>,
        now: Time,
    ) -> bool {
        let position = |block| self.shape.position(object, block, 0);
        let went = match end - first {
            1 => writer.item(RequestFlags::BLOCK, position(first)),
            _ => writer.range(RequestFlags::BLOCK, position(first), position(end - 1)),
        };
        if went.is_ok() {
            self.requested.note_blocks(first.into()..end.into(), now);
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
