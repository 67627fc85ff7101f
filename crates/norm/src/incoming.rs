//! Object being received: what all kinds of objects have in common.

mod block;
mod blocks;
mod coded;
mod digests;
mod ending;
pub(crate) mod identity;
mod journal;
mod parked;
pub(crate) mod partials;
mod pieces;
pub(crate) mod price;
mod recovery;
pub(crate) mod requests;
mod sink;
mod stored;
mod stream;

use bytes::Bytes;
use engine::{Completion, EffectError, Time};
use session::StoreRefusal;
use session::path::Handle;

use self::block::Block;
use self::blocks::Blocks;
use self::digests::{Digests, Verdict};
use self::parked::Parked;
pub(crate) use self::parked::parked_max;
pub(crate) use self::requests::RequestRound;
use self::sink::{Finish, Sink};
use self::stream::Stream;
use super::bits::Bits;
use super::coding::{Coding, is_long};
use super::core::{Core, Job, Room, Task};
use super::digest::{former_of, version_of};
use super::indication::{Failure, Indication, Limit, ObjectId, Piece, Report};
use super::requested::{InfoRequested, Requested};
use crate::fec::Partition;
use crate::message::{Data, Flags, Fti, Info, PayloadId, Scheme};
use crate::report::ReportOf;

/// Prefix of the names of working files.
pub const SPOOL_PREFIX: &str = "norm-";

/// Memory overhead of a piece of data, in bytes.
const PIECE_COST: usize = 64;

/// Messages that contradict the learnt FEC information, with none in between that confirms it,
/// after which the object is given up. The learnt information was then damaged.
const CONTRADICTIONS_MAX: u32 = 8;

/// Object being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: ObjectId,
    pub(crate) handle: Handle,
    flags: Flags,
    info: Option<Bytes>,
    kind: Kind,
    pub(crate) state: State,
    /// NORM_DATA received, duplicates included.
    arrived: u32,
    requested: InfoRequested,
    /// Number of messages that contradicted the FEC information since a message confirmed it.
    contradictions: u32,
    /// Whether only NORM_INFO is requested.
    is_info_only: bool,
    /// Whether the user was notified of the object.
    is_announced: bool,
    /// Whether the object's sender has sent only one message so far. The user is notified with the
    /// second.
    pub(crate) is_held: bool,
    /// Number of requests for NORM_INFO alone before anything else is requested: an earlier session
    /// may have a part of the object, or all.
    pub(crate) info_first: u8,
    /// Instance of the sender.
    instance: u16,
    /// Whether it is the only receiver, which may resume.
    is_single: bool,
    /// Instance of the sender in the earlier process whose object this one resumes.
    pub(crate) former: Option<u16>,
    /// Name of the file that was restored, until NORM_INFO confirms it.
    restored: Option<Bytes>,
}

/// Kind of an object, with what was received of it.
#[derive(Debug)]
enum Kind {
    /// The partition is not known yet: segments that arrived before it.
    Unknown(Parked),
    /// File, or bytes in memory.
    Blocks(Box<Blocks>),
    Stream(Box<Stream>),
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

impl Shape {
    /// Shape of an object with this FEC information. At most `work` coefficients may be computed to
    /// recover a block.
    fn new(scheme: Scheme, fti: Fti, is_stream: bool, work: usize) -> Result<Self, Failure> {
        let unknown = || Failure::Settings("its FEC scheme is not understood".to_owned());
        let coding = Coding::from_fti(scheme, &fti).ok_or_else(unknown)?;
        let partition = Partition::new(fti.object_size, fti.segment_size, fti.block_len)
            .map_err(|error| Failure::Settings(error.to_string()))?;
        let longest = partition.block_len(0).max(1);
        if coding.is_long() && (is_stream || coding.check_long(longest).is_err()) {
            return Err(unknown());
        }
        // All blocks of a stream have the full length.
        let room = if is_stream {
            coding.room(fti.block_len, fti.segment_size.into(), work)
        } else {
            coding.room(longest, partition.segment_len(0, 0).into(), work)
        };
        Ok(Self { scheme, fti, partition, coding, room })
    }
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
        cannot_store: Option<StoreRefusal>,
    },
}

/// Position in a transfer, or of a request: number of objects, blocks, and symbols before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reach {
    pub(crate) object: u64,
    pub(crate) block: u64,
}

/// Outcome of a segment, or of the recovery of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing was completed.
    Taken,
    /// A block was completed, or a part of a stream.
    Completed,
    /// The segment needs room for its block.
    NoRoom,
    /// The segment has no place in the learnt partition.
    Misplaced,
    /// The sender contradicts itself about the bytes of a stream.
    Garbled,
    /// Blocks differ from those that were sent.
    Damaged,
}

impl Incoming {
    pub(crate) fn new(
        id: ObjectId,
        instance: u16,
        handle: Handle,
        is_info_only: bool,
        is_single: bool,
    ) -> Self {
        Self {
            id,
            handle,
            flags: Flags::NONE,
            info: None,
            kind: Kind::Unknown(Parked::default()),
            state: State::Receiving,
            arrived: 0,
            requested: InfoRequested::default(),
            contradictions: 0,
            is_info_only,
            is_announced: false,
            is_held: false,
            info_first: 0,
            instance,
            is_single,
            former: None,
            restored: None,
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
        if let Kind::Blocks(blocks) = &mut self.kind {
            blocks.sink.show(core);
        }
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
        if !self.is_held {
            self.resume(core);
            if let Kind::Blocks(blocks) = &self.kind
                && !self.is_over()
            {
                core.user.indicate(blocks.receiving(self.id));
            }
        }
    }

    fn shape(&self) -> Option<&Shape> {
        match &self.kind {
            Kind::Unknown(_) => None,
            Kind::Blocks(blocks) => Some(&blocks.shape),
            Kind::Stream(stream) => Some(&stream.shape),
        }
    }

    fn blocks(&self) -> Option<&Blocks> {
        if let Kind::Blocks(blocks) = &self.kind { Some(blocks) } else { None }
    }

    fn stream(&self) -> Option<&Stream> {
        if let Kind::Stream(stream) = &self.kind { Some(stream) } else { None }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_))
    }

    /// Bytes received and, if known, of the object.
    fn progress(&self) -> (u64, Option<u64>) {
        match &self.kind {
            Kind::Unknown(_) => (0, None),
            Kind::Blocks(blocks) => (blocks.received, Some(blocks.shape.fti.object_size)),
            Kind::Stream(stream) => (stream.delivered(), None),
        }
    }

    pub(crate) fn report(&self) -> Report {
        let (progress, size) = self.progress();
        let info = self.info.clone().unwrap_or_default();
        Report { id: self.id, is_sender: false, progress, size, info }
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
    pub(crate) fn cannot_store(&self) -> Option<StoreRefusal> {
        let State::Failed { cannot_store, .. } = self.state else { return None };
        cannot_store
    }

    /// Learns the partition. Returns the segments that waited for it, if it is new; an error ends
    /// the object.
    fn learn(
        &mut self,
        core: &mut Core,
        flags: Flags,
        scheme: Scheme,
        fti: Option<&Fti>,
    ) -> Result<Option<Parked>, Failure> {
        let is_stream = flags.contains(Flags::STREAM);
        if let (Some(fti), Some(shape)) = (fti, self.shape()) {
            let learnt = (&shape.fti, shape.scheme, self.is_stream());
            return self.compare((fti, scheme, is_stream) == learnt).map(|()| None);
        }
        self.announce(core);
        let (Some(fti), Kind::Unknown(parked)) = (fti, &mut self.kind) else { return Ok(None) };
        if is_stream && core.config.receiver.streams.is_none() {
            return Err(Failure::Settings("streams are not received".to_owned()));
        }
        let shape = Shape::new(scheme, *fti, is_stream, core.config.limits.coding_work)?;
        let is_file = flags.contains(Flags::FILE) || is_stream || core.config.receiver.store_data;
        let most = core.config.limits.object;
        let half = core.config.limits.assembly / 2;
        let most = if is_file { most } else { most.min(half as u64) };
        if fti.object_size > most && !is_stream {
            core.user.limit_reached(Limit::Object);
            return Err(Failure::Settings("it is larger than allowed".to_owned()));
        }
        let Shape { coding, room, .. } = &shape;
        let is_on_disk = is_file && coding.is_long();
        let is_kept = is_file && (self.is_single || coding.is_long());
        let is_in_pieces = is_on_disk && coding.is_in_pieces();
        let bytes = room.bytes() + coding.surplus_memory(room.segment);
        if !is_in_pieces && bytes + PIECE_COST > half {
            core.user.limit_reached(Limit::Assembly);
            return Err(Failure::Settings("its blocks are larger than allowed".to_owned()));
        }
        // An object without a slot is requested again once others complete.
        let reserved = if is_file { 0 } else { fti.object_size as usize };
        if reserved > 0 && core.reserved + reserved > half {
            core.user.limit_reached(Limit::Assembly);
            return Ok(None);
        }
        if is_stream {
            let stream = Stream::new(core, self.id, shape)?;
            let parked = std::mem::take(parked);
            self.kind = Kind::Stream(Box::new(stream));
            self.flags = flags;
            self.show(core);
            core.user.indicate(Indication::Stream { id: self.id, buffer: fti.object_size });
            return Ok(Some(parked));
        }
        let parked = std::mem::take(parked);
        core.reserved += reserved;
        let sink = Sink::new(self.handle, is_file, self.is_held);
        let mut blocks = Blocks::new(shape, sink, reserved);
        blocks.journal.is_kept = is_kept;
        self.kind = Kind::Blocks(Box::new(blocks));
        self.flags = flags;
        Ok(Some(parked))
    }

    /// Counts messages that contradict the learnt FEC information. An object with the wrong
    /// partition would be requested without end.
    fn compare(&mut self, is_same: bool) -> Result<(), Failure> {
        self.contradictions = if is_same { 0 } else { self.contradictions + 1 };
        if self.contradictions < CONTRADICTIONS_MAX {
            return Ok(());
        }
        Err(Failure::Settings("the sender contradicts itself about its segments".to_owned()))
    }

    /// Processes NORM_INFO (§4.2.2).
    pub(crate) fn on_info(&mut self, core: &mut Core, info: &Info<'_>) {
        if self.state != State::Receiving {
            return;
        }
        let parked = match self.learn(core, info.flags, info.fec, info.fti.as_ref()) {
            Ok(parked) => parked,
            Err(failure) => return self.fail(core, failure),
        };
        if parked.is_some()
            && let Kind::Blocks(blocks) = &mut self.kind
        {
            blocks.journal.version = version_of(&info.others);
        }
        if self.contradicts(core, info.payload, version_of(&info.others)) {
            return self.fail(core, Failure::Damaged);
        }
        self.former = self.former.or(former_of(&info.others));
        if self.info.is_none() {
            let info = Bytes::copy_from_slice(info.payload);
            if !self.is_held {
                core.user.indicate(Indication::Info { id: self.id, info: info.clone() });
            }
            self.info = Some(info);
        }
        if let Some(parked) = parked {
            self.begins(core);
            self.unpark(core, parked);
        }
        if !self.is_over()
            && let Kind::Blocks(blocks) = &mut self.kind
        {
            let outcome = blocks.on_digests(core, &info.others);
            self.conclude(core, outcome);
        }
    }

    /// Processes a segment (§4.2.1). Returns `false` if room must be made for its block.
    pub(crate) fn on_data(&mut self, core: &mut Core, data: &Data<'_>) -> bool {
        self.arrived = self.arrived.saturating_add(1);
        if self.state != State::Receiving {
            core.stats.duplicate_data += 1;
            return true;
        }
        match self.learn(core, data.flags, data.fec, data.fti.as_ref()) {
            Ok(None) => {}
            Ok(Some(parked)) => {
                self.begins(core);
                self.unpark(core, parked);
            }
            Err(failure) => self.fail(core, failure),
        }
        if self.is_over() {
            return true;
        }
        let outcome = match &mut self.kind {
            Kind::Stream(stream) => stream.on_data(core, data),
            Kind::Blocks(blocks) if blocks.shape.scheme == data.fec => {
                blocks.on_segment(core, data.id, data.payload)
            }
            Kind::Unknown(parked) if is_long(data.fec) => {
                parked.keep(core, data);
                Outcome::Taken
            }
            Kind::Blocks(_) | Kind::Unknown(_) => {
                core.stats.data_dropped += 1;
                Outcome::Taken
            }
        };
        self.conclude(core, outcome)
    }

    /// Processes the segments that waited for the partition.
    fn unpark(&mut self, core: &mut Core, mut parked: Parked) {
        for (id, payload) in parked.take(core) {
            let is_over = self.is_over();
            let outcome = match &mut self.kind {
                Kind::Blocks(blocks) if !is_over => blocks.on_segment(core, id, &payload),
                Kind::Blocks(_) | Kind::Stream(_) | Kind::Unknown(_) => Outcome::NoRoom,
            };
            core.stats.data_dropped += u64::from(!self.conclude(core, outcome));
        }
    }

    /// Handles the outcome of a segment, or of the recovery of a block. Returns `false` if the
    /// segment needs room.
    fn conclude(&mut self, core: &mut Core, outcome: Outcome) -> bool {
        let failure = match outcome {
            Outcome::Taken => return true,
            Outcome::NoRoom => return false,
            Outcome::Completed => {
                self.check_complete(core);
                return true;
            }
            Outcome::Misplaced => {
                core.stats.data_dropped += 1;
                self.compare(false).err()
            }
            Outcome::Garbled => {
                let why = "the sender contradicts itself about the stream's bytes";
                Some(Failure::Settings(why.to_owned()))
            }
            Outcome::Damaged => Some(Failure::Damaged),
        };
        if let Some(failure) = failure {
            self.fail(core, failure);
        }
        true
    }

    /// Makes room for a block by dropping the last block after it, if there is one. Earlier blocks
    /// must complete first, or blocks could wait for each other's memory for ever.
    pub(crate) fn make_room(&mut self, core: &mut Core, before: Option<u32>) -> bool {
        match &mut self.kind {
            Kind::Unknown(_) => false,
            Kind::Blocks(blocks) => blocks.make_room(core, before),
            Kind::Stream(stream) => stream.make_room(core, before),
        }
    }

    /// Finishes the object if everything arrived.
    fn check_complete(&mut self, core: &mut Core) {
        if self.state != State::Receiving {
            return;
        }
        let lacks_info = self.lacks_info();
        match &mut self.kind {
            Kind::Blocks(blocks) if blocks.is_whole() && !lacks_info => {
                match blocks.sink.finish(core) {
                    Finish::Waits => {}
                    Finish::Delivers(data) => {
                        self.state = State::Done;
                        blocks.release(core);
                        self.finished(core, Ok(()), Some(data));
                    }
                    Finish::Syncs => self.state = State::Syncing,
                }
            }
            Kind::Stream(stream) if stream.is_read() => {
                stream.clear(core);
                self.state = State::Done;
                self.finished(core, Ok(()), None);
            }
            Kind::Unknown(_) | Kind::Blocks(_) | Kind::Stream(_) => {}
        }
    }

    /// Processes the result of one of its effects.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let is_receiving = self.state == State::Receiving;
        let Kind::Blocks(blocks) = &mut self.kind else { return };
        if let Job::Write { cost } = job {
            blocks.sink.written(core, cost);
            core.user.limit_left(Limit::WriteBuffer);
        }
        if job == Job::Own(Task::Save) {
            blocks.saved(core, is_receiving && answer.is_ok());
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if let Job::Own(Task::Recover { block }) = job
                    && blocks.drop_resumed(core, block)
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
                blocks.sink.opened(core, file);
                blocks.on_reopened(core, len);
                if std::mem::take(&mut blocks.journal.is_due_on_open) {
                    self.save(core);
                }
                self.check_complete(core);
            }
            (Job::Write { .. }, _) => self.check_complete(core),
            (Job::Own(Task::Recover { block }), Completion::Read(digest))
                if is_receiving && digest.len() >= 16 =>
            {
                let outcome = blocks.on_recovered(core, block, &digest);
                self.conclude(core, outcome);
            }
            (Job::Own(Task::Recover { block }), Completion::Read(_)) => {
                blocks.on_unrecovered(block);
            }
            (Job::Sync, _) if self.state == State::Syncing => self.on_synced(core),
            (Job::Install, _) if self.state == State::Installing => {
                self.state = State::Done;
                blocks.sink.installed();
                blocks.forget_record(core);
                self.note_stored(core);
                if let Some(name) = &self.info {
                    core.supersede(name);
                    core.superseded = Some(name.clone());
                }
                self.finished(core, Ok(()), None);
            }
            _ => {}
        }
    }

    /// State of the highest block with a received segment, if the object has long blocks.
    pub(crate) fn report_of(&self) -> Option<ReportOf> {
        // A restored object reports with its list.
        self.blocks().filter(|_| self.restored.is_none())?.report_of(self.arrived, self.is_over())
    }

    /// Whether the object is complete and stored.
    pub(crate) fn is_here(&self) -> bool {
        self.state == State::Done
    }

    /// Whether everything known to have been sent has arrived, of an object that may never end.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stream().is_some_and(|stream| !stream.lacks(Time::MAX)) && !self.lacks_info()
    }

    /// Unwraps the sender's block number.
    pub(crate) fn reached(&self, block: u32) -> u64 {
        self.stream().map_or(u64::from(block), |stream| stream.newest)
    }

    /// Whether the stream was delivered up to and including this segment.
    pub(crate) fn has_through(&self, id: PayloadId) -> bool {
        let is_here = self.stream().is_some_and(|stream| stream.has_through(id));
        is_here && self.state == State::Receiving && !self.lacks_info()
    }

    /// Notes that this is the sender's last segment so far.
    pub(crate) fn on_flush(&mut self, core: &Core, id: PayloadId) {
        if let Kind::Stream(stream) = &mut self.kind {
            stream.on_flush(core, id);
        }
    }

    /// Notes that the sender dropped all blocks before this one.
    pub(crate) fn prune(&mut self, core: &mut Core, id: PayloadId) {
        if let Kind::Stream(stream) = &mut self.kind {
            let outcome = stream.prune(core, id);
            self.conclude(core, outcome);
        }
    }

    /// Takes the next readable piece.
    pub(crate) fn read(&mut self, core: &mut Core) -> Option<Piece> {
        let Kind::Stream(stream) = &mut self.kind else { return None };
        let piece = stream.read(core);
        self.check_complete(core);
        piece
    }
}
