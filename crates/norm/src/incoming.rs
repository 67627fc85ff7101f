//! Object being received: its blocks, its missing parts, and the file it is written to.

mod block;
mod coded;
mod contradictions;
mod digests;
mod ending;
pub(crate) mod joined;
mod journal;
mod parked;
pub(crate) mod partials;
mod pieces;
pub(crate) mod price;
mod recovery;
mod requests;
mod sink;
mod stream;

use std::collections::BTreeMap;

use crate::fec::Partition;
use bytes::Bytes;
use engine::{Completion, EffectError};
use session::path::Handle;
use session::ranges::Ranges;

use self::block::Block;
use self::coded::Run;
use self::digests::{Digests, Verdict};
use self::journal::Journal;
use self::parked::Parked;
pub(crate) use self::parked::parked_max;
use self::sink::{Finish, Sink};
use self::stream::Stream;
use super::bits::Bits;
use super::coding::{Coding, is_long};
use super::core::{Core, Job, Room, Task};
use super::digest::{digest_of, version_of};
use super::indication::{Failure, Indication, Limit, ObjectId, Report};
use super::refusal::Reason;
use super::requested::Requested;
use crate::message::{Data, Flags, Fti, Info, PayloadId, Scheme};

/// Prefix of the names of working files.
pub const SPOOL_PREFIX: &str = "norm-";

/// Memory overhead of a piece of data, in bytes.
const PIECE_COST: usize = 64;

/// Object being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: ObjectId,
    pub(crate) handle: Handle,
    shape: Option<Shape>,
    flags: Flags,
    info: Option<Bytes>,
    /// Complete blocks.
    whole: Ranges,
    /// Incomplete blocks.
    blocks: BTreeMap<u32, Block>,
    received: u64,
    /// NORM_DATA received, duplicates included.
    arrived: u32,
    /// Highest block of which anything arrived.
    highest: u32,
    sink: Sink,
    pub(crate) state: State,
    requested: Requested,
    /// Bytes reserved for an object that is not a file.
    reserved: usize,
    /// Number of messages that contradicted the FEC information since a message confirmed it.
    contradictions: u32,
    /// Segments that arrived before the partition was known.
    parked: Parked,
    digests: Digests,
    run: Run,
    journal: Journal,
    /// Received state of a stream.
    stream: Option<Box<Stream>>,
    /// Whether only NORM_INFO is requested.
    is_info_only: bool,
    /// Whether the user was notified of the object.
    is_announced: bool,
    /// Whether the object's sender has sent only one message so far. The user is notified with the
    /// second.
    pub(crate) is_held: bool,
}

/// Partition and coding.
#[derive(Clone, Debug)]
struct Shape {
    scheme: Scheme,
    fti: Fti,
    partition: Partition,
    coding: Coding,
    /// Memory needed to recover a block.
    room: Room,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Receiving,
    Syncing,
    Installing,
    /// Complete and stored.
    Done,
    /// The object was given up; `is_refused` if for a local reason, so that it must not count as
    /// delivered.
    Failed {
        is_refused: bool,
        /// Reason, if the object could not be stored.
        cannot_store: Option<Reason>,
    },
}

/// Position in a transfer, or of a request: number of objects, blocks, and symbols before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reach {
    pub(crate) object: u64,
    pub(crate) block: u64,
}

impl Incoming {
    pub(crate) fn new(id: ObjectId, handle: Handle, is_info_only: bool) -> Self {
        Self {
            id,
            handle,
            shape: None,
            flags: Flags::NONE,
            info: None,
            whole: Ranges::new(),
            blocks: BTreeMap::new(),
            received: 0,
            arrived: 0,
            highest: 0,
            sink: Sink::new(handle),
            state: State::Receiving,
            requested: Requested::default(),
            reserved: 0,
            contradictions: 0,
            parked: Parked::default(),
            digests: Digests::default(),
            run: Run::default(),
            journal: Journal::default(),
            stream: None,
            is_info_only,
            is_announced: false,
            is_held: false,
        }
    }

    /// Indicates the start, once.
    pub(crate) fn announce(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.is_announced, true) && !self.is_held {
            self.started(core);
        }
    }

    fn started(&self, core: &mut Core) {
        let info = Bytes::new();
        core.user.indicate(Indication::Started { id: self.id, is_sender: false, info });
    }

    /// Ends the withholding of indications: the sender sent a second message.
    pub(crate) fn show(&mut self, core: &mut Core) {
        if !std::mem::take(&mut self.is_held) {
            return;
        }
        self.sink.show(core);
        if !self.is_announced {
            return;
        }
        self.started(core);
        self.begins(core);
        if let Some(info) = self.info.clone() {
            core.user.indicate(Indication::Info { id: self.id, info });
        }
    }

    /// Resumes an earlier session, if there is one, and indicates the size of the object.
    fn begins(&mut self, core: &mut Core) {
        let Some(shape) = self.shape.as_ref().filter(|_| self.stream.is_none() && !self.is_held)
        else {
            return;
        };
        let size = shape.fti.object_size;
        self.resume(core);
        let resumed = self.journal.resumed;
        core.user.indicate(Indication::Receiving { id: self.id, size, resumed });
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.id,
            is_sender: false,
            progress: self.stream.as_ref().map_or(self.received, |stream| stream.delivered()),
            size: self.shape.as_ref().filter(|_| !self.is_stream()).map(|it| it.fti.object_size),
            info: self.info.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let blocks: usize = self.blocks.values().map(|block| block.cost + size_of::<Block>()).sum();
        let info = self.info.as_ref().map_or(0, Bytes::len);
        let stream = self.stream.as_ref().map_or(0, |stream| stream.memory());
        blocks
            + self.sink.memory()
            + stream
            + self.whole.len() * 32
            + self.requested.memory()
            + self.parked.memory()
            + self.digests.memory()
            + self.run.memory()
            + info
    }

    fn number(&self) -> u16 {
        (self.id.number & 0xffff) as u16
    }

    /// Whether the object is complete or was given up.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Failed { .. })
    }

    /// Whether the object failed for a local reason: then it must not count as delivered.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, State::Failed { is_refused: true, .. })
    }

    /// Reason why the object could not be stored.
    pub(crate) fn cannot_store(&self) -> Option<Reason> {
        match self.state {
            State::Failed { cannot_store, .. } => cannot_store,
            State::Receiving | State::Syncing | State::Installing | State::Done => None,
        }
    }

    /// Learns the partition; an error ends the object.
    fn learn(
        &mut self,
        core: &mut Core,
        flags: Flags,
        scheme: Scheme,
        fti: Option<&Fti>,
    ) -> Result<(), Failure> {
        if let (Some(fti), Some(shape)) = (fti, &self.shape) {
            let learnt = (&shape.fti, shape.scheme, self.is_stream());
            return self.compare((fti, scheme, flags.contains(Flags::STREAM)) == learnt);
        }
        self.announce(core);
        let Some(fti) = fti else { return Ok(()) };
        let unknown = || Failure::Settings("its FEC scheme is not understood".to_owned());
        let coding = Coding::from_fti(scheme, fti).ok_or_else(unknown)?;
        let partition = Partition::new(fti.object_size, fti.segment_size, fti.block_len)
            .map_err(|error| Failure::Settings(error.to_string()))?;
        let is_stream = flags.contains(Flags::STREAM);
        if is_stream && core.config.receiver.streams.is_none() {
            return Err(Failure::Settings("streams are not received".to_owned()));
        }
        let is_file = flags.contains(Flags::FILE) || is_stream || core.config.receiver.store_data;
        let most = core.config.limits.object;
        let half = core.config.limits.assembly / 2;
        let most = if is_file { most } else { most.min(half as u64) };
        if fti.object_size > most && !is_stream {
            core.user.limit_reached(Limit::Object);
            return Err(Failure::Settings("it is larger than allowed".to_owned()));
        }
        let longest = partition.block_len(0).max(1);
        if coding.is_long() && (is_stream || coding.check_long(longest).is_err()) {
            return Err(unknown());
        }
        let work = core.config.limits.coding_work;
        // All blocks of a stream have the full length.
        let room = match is_stream {
            true => coding.room(fti.block_len, fti.segment_size.into(), work),
            false => coding.room(longest, partition.segment_len(0, 0).into(), work),
        };
        let is_on_disk = is_file && coding.is_long();
        if is_on_disk && !core.partials.is_restored {
            // An earlier process may have received a part of it.
            return Ok(());
        }
        let is_in_pieces = is_on_disk && coding.is_in_pieces();
        let bytes = room.bytes() + coding.surplus_memory(room.segment);
        if !is_in_pieces && bytes + PIECE_COST > half {
            core.user.limit_reached(Limit::Assembly);
            return Err(Failure::Settings("its blocks are larger than allowed".to_owned()));
        }
        if is_stream {
            return self.learn_stream(core, (flags, scheme), *fti, (coding, partition));
        }
        if !is_file {
            // An object without a slot is requested again once others complete.
            let len = fti.object_size as usize;
            if core.reserved + len > half {
                core.user.limit_reached(Limit::Assembly);
                return Ok(());
            }
            core.reserved += len;
            self.reserved += len;
        }
        self.flags = flags;
        let fti = *fti;
        self.shape = Some(Shape { scheme, fti, partition, coding, room });
        self.sink.begin(is_file);
        Ok(())
    }

    /// Processes NORM_INFO (§4.2.2).
    pub(crate) fn on_info(&mut self, core: &mut Core, info: &Info<'_>) {
        if self.state != State::Receiving {
            return;
        }
        let was_known = self.shape.is_some();
        if let Err(failure) = self.learn(core, info.flags, info.fec, info.fti.as_ref()) {
            self.fail(core, failure);
            return;
        }
        let is_new = !was_known && self.shape.is_some();
        if is_new {
            self.journal.version = version_of(&info.others);
        }
        if self.info.is_none() {
            let info = Bytes::copy_from_slice(info.payload);
            if !self.is_held {
                core.user.indicate(Indication::Info { id: self.id, info: info.clone() });
            }
            self.info = Some(info);
        }
        if is_new {
            self.begins(core);
        }
        self.unpark(core);
        self.learn_digests(core, info);
        self.check_complete(core);
    }

    /// Processes a segment (§4.2.1). Returns `false` if room must be made for its block.
    pub(crate) fn on_data(&mut self, core: &mut Core, data: &Data<'_>) -> bool {
        self.arrived = self.arrived.saturating_add(1);
        if self.state != State::Receiving {
            core.stats.duplicate_data += 1;
            return true;
        }
        let was_known = self.shape.is_some();
        if let Err(failure) = self.learn(core, data.flags, data.fec, data.fti.as_ref()) {
            self.fail(core, failure);
            return true;
        }
        if !was_known {
            self.begins(core);
        }
        if self.stream.is_some() {
            return self.on_stream_data(core, data);
        }
        self.unpark(core);
        if self.shape.is_none() && is_long(data.fec) {
            self.park(core, data);
            return true;
        }
        if self.shape.as_ref().is_none_or(|shape| shape.scheme != data.fec) {
            core.stats.data_dropped += 1;
            return true;
        }
        self.on_segment(core, data.id, data.payload)
    }

    /// Processes a segment of an object whose partition is known. Returns `false` if room must be
    /// made for its block.
    fn on_segment(&mut self, core: &mut Core, id: PayloadId, payload: &[u8]) -> bool {
        let Some(shape) = self.shape.as_ref() else { return true };
        let (block, symbol) = (id.block, id.symbol);
        let block_len = shape.partition.block_len(block);
        let most = u32::from(block_len) + u32::from(shape.fti.parity.max(shape.coding.parity));
        if block >= shape.partition.blocks() || u32::from(symbol) >= most {
            self.contradict(core);
            return true;
        }
        if symbol >= block_len && shape.room.usable == 0 {
            core.stats.data_dropped += 1;
            return true;
        }
        self.highest = self.highest.max(block);
        if self.is_whole(block) {
            core.stats.duplicate_data += 1;
            return true;
        }
        let (segment, usable) = (shape.room.segment, usize::from(shape.room.usable));
        let expected = match symbol < block_len {
            true => usize::from(shape.partition.segment_len(block, symbol)),
            // Parity is as long as the longest segment of its block.
            false => usize::from(shape.partition.segment_len(block, 0)),
        };
        let len = payload.len();
        let most = usize::from(shape.fti.segment_size);
        let is_whole = len == most || len == segment;
        let fits = len == expected || symbol >= block_len && is_whole;
        if !fits {
            self.contradict(core);
            return true;
        }
        // The rest of a longer parity segment is zeros.
        let payload = &payload[..len.min(segment)];
        if self.is_on_disk() {
            return self.take_to_disk(core, (block, block_len), symbol, segment, payload);
        }
        self.take(core, (block, block_len), symbol, (segment, usable), payload)
    }

    /// Makes room for a block by dropping the last block after it, if there is one. Earlier blocks
    /// must complete first, or blocks could wait for each other's memory for ever.
    pub(crate) fn make_room(&mut self, core: &mut Core, before: Option<u32>) -> bool {
        if self.stream.is_some() {
            return self.make_stream_room(core, before);
        }
        let last = self.blocks.last_key_value().map(|(number, _)| *number);
        let Some(last) = last.filter(|last| before.is_none_or(|before| before < *last)) else {
            return false;
        };
        let (Some(block), Some(shape)) = (self.blocks.remove(&last), &self.shape) else {
            return false;
        };
        core.assembling -= block.cost;
        self.received -= block.counted(shape, last);
        core.stats.data_dropped += u64::from(block.have.len());
        true
    }

    /// Adds a segment to its block. Returns `false` if there is no room.
    fn take(
        &mut self,
        core: &mut Core,
        (block, block_len): (u32, u16),
        symbol: u16,
        (segment, usable): (usize, usize),
        payload: &[u8],
    ) -> bool {
        let full = usize::from(block_len) * segment;
        if !self.blocks.contains_key(&block) {
            let extra = self.shape.as_ref().map_or(0, |shape| shape.coding.surplus_memory(segment));
            let cost = full + extra + PIECE_COST;
            let limits = &core.config.limits;
            if core.shared.room.unwritten > limits.buffers.write_buffer {
                core.stats.data_dropped += 1;
                core.user.limit_reached(Limit::WriteBuffer);
                return true;
            }
            if self.exceeds_repairs(core, block) {
                return true;
            }
            let limits = &core.config.limits;
            let room = limits.assembly.saturating_sub(core.assembling + core.reserved);
            let small = Block::direct_cost(block_len);
            let state = if cost <= room {
                let buffer = core.shared.room.take_buffer(full);
                Block::new(buffer, cost)
            } else if small <= room && !self.sink.is_memory() {
                core.user.limit_reached(Limit::Assembly);
                Block::direct(small)
            } else {
                return false;
            };
            core.assembling += state.cost;
            self.blocks.insert(block, state);
        }
        let Some(state) = self.blocks.get_mut(&block) else { return true };
        if state.is_direct {
            self.pass_on(core, (block, block_len), symbol, segment, payload);
            return true;
        }
        if symbol >= block_len && state.parity.len() + state.extra.len() >= usable {
            core.stats.data_dropped += 1;
            return true;
        }
        if !state.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return true;
        }
        state.add(symbol, block_len, segment, payload);
        if symbol < block_len {
            self.received += payload.len() as u64;
        }
        if state.have.len() >= state.needed(block_len) {
            self.block_came(core, block);
        }
        true
    }

    /// Writes a segment of a block that has no room in memory.
    fn pass_on(
        &mut self,
        core: &mut Core,
        (number, block_len): (u32, u16),
        symbol: u16,
        segment: usize,
        payload: &[u8],
    ) {
        let (Some(block), Some(shape)) = (self.blocks.get_mut(&number), &self.shape) else {
            return;
        };
        let is_full = core.shared.room.unwritten > core.config.limits.buffers.write_buffer;
        if symbol >= block_len || is_full {
            core.stats.data_dropped += 1;
            if is_full {
                core.user.limit_reached(Limit::WriteBuffer);
            }
            return;
        }
        if !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return;
        }
        let is_whole = block.have.len() >= u32::from(block_len);
        let at = shape.partition.block_offset(number) + u64::from(symbol) * segment as u64;
        self.received += payload.len() as u64;
        if is_whole && let Some(block) = self.blocks.remove(&number) {
            core.assembling -= block.cost;
            self.whole.insert(u64::from(number), u64::from(number) + 1);
        }
        self.sink.put(core, at, Bytes::copy_from_slice(payload), self.is_held);
        self.check_complete(core);
    }

    fn is_whole(&self, block: u32) -> bool {
        // Blocks mostly arrive in order: search from the end.
        let block = u64::from(block);
        self.whole.contains(block)
    }

    /// Completes a block of which enough segments arrived.
    fn block_came(&mut self, core: &mut Core, number: u32) {
        let Some(mut block) = self.blocks.remove(&number) else { return };
        let Some(shape) = self.shape.clone() else { return };
        core.assembling -= block.cost;
        core.user.limit_left(Limit::Assembly);
        let block_len = shape.partition.block_len(number);
        let how = (&shape.coding, shape.room);
        if !block.parity.is_empty() && !Self::recover(core, how, &mut block, block_len) {
            if shape.coding.surplus() > 0 {
                core.assembling += block.cost;
                block.want_another();
                self.blocks.insert(number, block);
            } else {
                core.stats.data_dropped += 1;
            }
            return;
        }
        let start = shape.partition.block_offset(number);
        let end = shape.partition.block_offset(number + 1);
        let counted = block.counted(&shape, number);
        block.buffer.truncate((end - start) as usize);
        if shape.coding.is_long() {
            let verdict = self.digests.complete(number, digest_of(&block.buffer));
            if !self.judge_digest(core, number, verdict) {
                self.received -= counted;
                return;
            }
        }
        self.whole.insert(u64::from(number), u64::from(number) + 1);
        self.received += (end - start).saturating_sub(counted);
        let bytes = block.buffer.freeze();
        core.shared.room.keep_buffer(&bytes);
        self.sink.put(core, start, bytes, self.is_held);
        self.check_complete(core);
    }

    /// Finishes the object if everything arrived.
    fn check_complete(&mut self, core: &mut Core) {
        let Some(shape) = self.shape.as_ref().filter(|_| self.stream.is_none()) else { return };
        let has_info = self.info.is_some() || !self.flags.contains(Flags::INFO);
        let blocks = u64::from(shape.partition.blocks());
        let is_coded = shape.coding.is_long();
        let is_confirmed = !is_coded || self.digests.are_confirmed(shape.partition.blocks());
        let is_whole = self.whole.covered() >= blocks && has_info && is_confirmed;
        if self.state != State::Receiving || !is_whole {
            return;
        }
        match self.sink.finish(core) {
            Finish::Waits => {}
            Finish::Delivers(data) => {
                self.state = State::Done;
                self.release(core);
                self.finished(core, Ok(()), Some(data));
            }
            Finish::Syncs => self.state = State::Syncing,
        }
    }

    /// Releases reserved memory.
    fn release(&mut self, core: &mut Core) {
        drop(self.parked.take());
        core.reserved -= std::mem::take(&mut self.reserved);
        core.user.limit_left(Limit::Assembly);
    }

    /// Processes the result of one of its effects.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        if let Job::Write { cost } = job {
            self.sink.written(core, cost);
            core.user.limit_left(Limit::WriteBuffer);
        }
        if job == Job::Own(Task::Save) {
            self.saved(core, answer.is_ok());
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if let Job::Own(Task::Recover { block }) = job
                    && self.drop_resumed(core, block)
                {
                    return;
                }
                core.stats.storage_errors += 1;
                if job != Job::Forget && job != Job::Own(Task::Save) {
                    self.fail(core, Failure::Storage(error));
                }
                return;
            }
        };
        match (job, answer) {
            (Job::Open, Completion::Opened { file, len, .. }) => {
                self.sink.opened(core, file);
                self.reopened(core, len);
                self.save_on_open(core);
                self.check_complete(core);
            }
            (Job::Write { .. }, _) => self.check_complete(core),
            (Job::Own(Task::Recover { block }), Completion::Read(digest))
                if self.state == State::Receiving && digest.len() >= 16 =>
            {
                self.recovered(core, block, &digest);
            }
            (Job::Own(Task::Recover { block }), Completion::Read(_)) => {
                self.unrecovered(block);
            }
            (Job::Sync, _) if self.state == State::Syncing => self.synced(core),
            (Job::Install, _) if self.state == State::Installing => {
                self.state = State::Done;
                self.sink.installed();
                self.forget_record(core);
                if let Some(name) = &self.info {
                    core.supersede(name);
                }
                self.finished(core, Ok(()), None);
            }
            _ => {}
        }
    }

    /// Whether the object is complete and stored.
    pub(crate) fn is_here(&self) -> bool {
        self.state == State::Done
    }
}
