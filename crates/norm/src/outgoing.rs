//! Object being sent: its segments, the parity of its blocks, and requested repairs.

mod again;
mod carousel;
mod coded;
mod fresh;
mod info;
mod known;
mod marks;
mod parity;
mod repairs;
mod requests;
mod resume;
mod ring;
mod runs;
mod shape;
mod states;
mod stream;

use std::collections::BTreeMap;

use crate::fec::Partition;
use bytes::Bytes;
use engine::{Completion, EffectError, FileId, OpenMode, StoreEffect, Time};
use session::UnexpectedLength;
use session::path::{Handle, Turn};
use session::source::Source;
use session::storage::Storage as _;
use wire::checksum::ChecksumType;

use self::coded::{BLOCKS_MAX, Coded, Step};
use self::info::InfoTurn;
use self::marks::{Mark, Marks};
use self::parity::{ProactiveParity, RepairParity};
use self::requests::Requests;
pub(crate) use self::requests::Symbols;
pub(crate) use self::resume::List;
use self::resume::Resume;
use self::ring::Ring;
pub(crate) use self::shape::Cut;
use self::shape::Shape;
use self::stream::Writing;
use super::INFO_HEADER;
use super::core::{Core, Job, Task};
use super::indication::{Content, Failure, Limit, ObjectId};
use super::repaired::Repaired;
use super::transmission::{Output, Transmission};
use crate::message::{Flags, Fti, PayloadId};

/// Flags of source segments that are sent as repairs.
///
/// The reference library never sets `REPAIR` but honours it: no receiver should start with a
/// repair.
const EXPLICIT: Flags = Flags(Flags::REPAIR.0 | Flags::EXPLICIT.0);

/// Object being sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: ObjectId,
    pub(crate) handle: Handle,
    content: Content,
    pub(crate) info: Bytes,
    pub(crate) size: u64,
    shape: Option<Shape>,
    source: Option<Source>,
    /// Bytes of a stream.
    ring: Option<Ring>,
    state: State,
    /// Next segment to be sent for the first time.
    at: Position,
    proactive: ProactiveParity,
    /// Number of segments sent in the time of a round of repairs, if this is the last object.
    pub(crate) tail: u64,
    info_turn: InfoTurn,
    /// Whether any part of the object was sent.
    has_begun: bool,
    requests: Requests,
    repaired: BTreeMap<u32, Repaired>,
    parity: RepairParity,
    pub(crate) announced: Option<Announced>,
    pub(crate) failure: Option<Failure>,
    writing: Writing,
    coded: Coded,
    resume: Resume,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    /// Open, and waiting until the path's MTU is known.
    Open {
        file: Option<FileId>,
    },
    Sending,
    Closed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    block: u32,
    symbol: u16,
}

/// Announcements of an object's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) first: Time,
    /// Whether the end was announced more than once.
    pub(crate) is_again: bool,
}

impl Outgoing {
    pub(crate) fn new(id: ObjectId, handle: Handle, content: Content, info: Bytes) -> Self {
        Self {
            id,
            handle,
            content,
            info,
            size: 0,
            shape: None,
            source: None,
            ring: None,
            state: State::Opening,
            at: Position::default(),
            proactive: ProactiveParity::default(),
            tail: 0,
            info_turn: InfoTurn::default(),
            has_begun: false,
            requests: Requests::default(),
            repaired: BTreeMap::new(),
            parity: RepairParity::default(),
            announced: None,
            failure: None,
            writing: Writing::default(),
            coded: Coded::default(),
            resume: Resume::default(),
        }
    }

    /// Opens the file to send.
    pub(crate) fn open(&mut self, core: &mut Core) {
        match &self.content {
            Content::File(name) => core.shared.open(self.handle, name.clone(), OpenMode::Read),
            Content::Data(data) => {
                self.size = data.len() as u64;
                self.state = State::Open { file: None };
            }
            Content::Stream(_) => self.state = State::Open { file: None },
        }
    }

    fn opened(&mut self, core: &mut Core, file: FileId, len: u64) {
        if self.state != State::Opening {
            core.shared.close(file);
            return;
        }
        self.size = len;
        self.state = State::Open { file: Some(file) };
    }

    /// Whether the object is open and waits for its partition.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether the size of the object is unknown so far.
    pub(crate) fn is_opening(&self) -> bool {
        self.state == State::Opening
    }

    /// Partitions the object into blocks and segments; an error if that is impossible.
    pub(crate) fn cut(&mut self, core: &mut Core, cut: Cut, instance: u16) -> Result<(), Failure> {
        let State::Open { file } = self.state else { return Ok(()) };
        let settings = |error: String| Failure::Settings(error);
        if let Content::Stream(options) = self.content {
            if cut.coding.is_long() {
                return Err(settings("streams have no long blocks".to_owned()));
            }
            return self.cut_stream(cut, options);
        }
        let mut cut = cut;
        let config = &core.config.sender;
        let coding = cut.coding.for_object(config, self.size, cut.segment, cut.loss);
        cut.coding = coding.map_err(settings)?;
        cut.segment = cut.coding.segment_size(self.size, cut.segment);
        let partition = Partition::new(self.size, cut.segment, cut.coding.block_len)
            .map_err(|error| settings(error.to_string()))?;
        if u64::from(partition.blocks()) > cut.coding.blocks_max() {
            return Err(settings(format!(
                "the object has {} blocks, of which the FEC scheme can number {}",
                partition.blocks(),
                cut.coding.blocks_max()
            )));
        }
        if config.carousel.is_some() && partition.blocks() > BLOCKS_MAX {
            return Err(settings(format!(
                "the object has {} blocks, of which a carousel can repeat {BLOCKS_MAX}",
                partition.blocks()
            )));
        }
        let fti = cut.coding.fti(self.size, cut.segment);
        let source = match (&self.content, file) {
            (Content::Data(data), _) => Source::in_memory(data.clone(), ChecksumType::Null),
            (Content::File(_), Some(file)) => {
                Source::new(file, Some(self.size), 0, ChecksumType::Null)
            }
            (Content::File(_), None) | (Content::Stream(_), _) => None,
        };
        self.source = source;
        let symbol_len = cut.coding.symbol_len(partition.segment_len(0, 0), cut.segment);
        let Cut { coding, has_fti, .. } = cut;
        let (object, flags, is_stream) = (self.number(), self.flags(), false);
        self.shape =
            Some(Shape { object, flags, partition, coding, fti, has_fti, symbol_len, is_stream });
        self.state = State::Sending;
        self.record(core, instance);
        self.read_ahead(core);
        Ok(())
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let (Some(source), Some(shape)) = (self.source.as_mut(), &self.shape) else { return };
        source.read_ahead(&mut core.shared, self.handle, usize::from(shape.fti.segment_size));
    }

    /// Number of segments, once known.
    pub(crate) fn segments(&self) -> u64 {
        self.shape.as_ref().map_or(0, |shape| shape.partition.segments())
    }

    /// Bytes sent for the first time; of a coded object those that its receivers have.
    pub(crate) fn progress(&self) -> u64 {
        match &self.ring {
            Some(ring) => ring.sent,
            None if self.is_coded() && !self.coded.is_one_way => self.delivered(),
            None => self.source.as_ref().map_or(0, Source::sent),
        }
    }

    /// Whether the whole object was sent once.
    pub(crate) fn is_sent(&self) -> bool {
        let Some(shape) = &self.shape else { return false };
        if let Some(ring) = &self.ring {
            return !self.info_turn.is_due && !ring.has_new();
        }
        !self.info_turn.is_due && u64::from(self.at.block) >= u64::from(shape.partition.blocks())
    }

    /// Whether repairs are queued or being computed.
    pub(crate) fn has_repairs(&self) -> bool {
        let source = match &self.ring {
            Some(ring) => ring.next_again().is_some(),
            None => self.source.as_ref().is_some_and(Source::has_repairs),
        };
        source
            || !self.parity.is_empty()
            || !self.requests.due.is_empty()
            || self.is_coded_short()
            || self.has_begun() && self.info_turn.is_due
    }

    /// Whether the whole object and all requested repairs were sent.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_idle() && !self.is_open_stream()
    }

    /// Whether the transmission of the object has started: before that it has nothing to repair.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_sending() && self.has_begun
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.state == State::Sending
    }

    /// Last segment, which a flush names.
    pub(crate) fn end(&self) -> PayloadId {
        let Some(shape) = &self.shape else { return PayloadId::default() };
        if let Some(ring) = &self.ring {
            let last = ring.last_sent().unwrap_or_default();
            return shape.id(ring.wire(last.block), last.symbol);
        }
        let block = shape.partition.blocks().saturating_sub(1);
        let len = shape.partition.block_len(block);
        shape.id(block, len.saturating_sub(1))
    }

    pub(crate) fn fti(&self) -> Option<&Fti> {
        self.shape.as_ref().map(|shape| &shape.fti)
    }

    /// Properties of the object, known once it is open.
    fn flags(&self) -> Flags {
        let info = if self.has_info() { Flags::INFO } else { Flags::NONE };
        match self.content {
            Content::File(_) => info | Flags::FILE,
            Content::Data(_) => info,
            Content::Stream(_) => info | Flags::STREAM,
        }
    }

    /// Transport identifier in messages.
    pub(crate) fn number(&self) -> u16 {
        (self.id.number & 0xffff) as u16
    }

    /// Bytes of the object's longest datagram, once partitioned.
    pub(crate) fn datagram(&self) -> usize {
        self.shape.as_ref().map_or(0, |shape| {
            let header = shape.coding.data_header(shape.has_fti);
            let data = header + usize::from(shape.symbol_len);
            data.max(INFO_HEADER + self.info.len())
        })
    }

    /// Whether the object has NORM_INFO. An object without bytes is only known by its NORM_INFO.
    pub(crate) fn has_info(&self) -> bool {
        let is_stream = matches!(self.content, Content::Stream(_));
        !self.info.is_empty() || (self.size == 0 || self.coded.is_wanted) && !is_stream
    }

    /// Reads blocks to compute their parity.
    fn make_parity(&mut self, core: &mut Core) {
        let Some(shape) = self.shape.clone() else { return };
        while let Some((block, rows)) = self.parity.next() {
            if self.ring.is_some() {
                self.make_stream_parity(core, &shape, block, &rows);
                continue;
            }
            let (start, end) = shape.span(block);
            match (&self.content, self.source.as_ref()) {
                (Content::Data(data), _) => {
                    let data = data.slice(start as usize..end as usize);
                    self.parity.make(&mut core.long, &shape, block, &rows, &data);
                }
                (Content::File(_), Some(source)) => {
                    let ticket = core.shared.ticket(self.handle, Job::Own(Task::Block { block }));
                    let (file, len) = (source.file, (end - start) as usize);
                    core.shared
                        .effects
                        .push_back(StoreEffect::Read { ticket, file, offset: start, len }.into());
                    self.parity.reads(block, rows);
                }
                (Content::File(_), None) | (Content::Stream(_), _) => {}
            }
        }
    }

    /// Sends repairs: parity first, as it serves all receivers.
    pub(crate) fn emit_repairs(&mut self, out: &mut Output<'_, '_>) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let round_trip = out.transmission.round_trip();
        let turn = loop {
            let turn = self.emit_requested(out, &shape);
            self.end_repeats();
            self.read_repairs(out.core);
            if turn == Turn::Over && shape.coding.is_long() {
                match self.emit_coded_repairs(out, &shape) {
                    Step::Full => break Turn::More,
                    Step::Sent | Step::Enough => break Turn::Over,
                    Step::Waits => {
                        self.read_repairs(out.core);
                        if !self.source.as_ref().is_some_and(Source::repair_ready) {
                            break Turn::Over;
                        }
                    }
                }
                continue;
            }
            if turn == Turn::More || !self.take_due(out.core, round_trip, &shape) {
                break turn;
            }
            self.read_repairs(out.core);
        };
        self.shape = Some(shape);
        self.make_parity(out.core);
        turn
    }

    /// Sends the repairs that are queued.
    fn emit_requested(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Turn {
        while let Some((id, parity)) = self.parity.front() {
            if !shape.push(out, Flags::REPAIR, id, parity) {
                return Turn::More;
            }
            out.core.stats.parity_repairs += 1;
            self.on_repair_sent(out, id.block);
            self.parity.pop_front();
        }
        if self.ring.is_some() {
            return self.emit_again(out, shape);
        }
        let segment = usize::from(shape.fti.segment_size);
        loop {
            let next = self.source.as_ref().and_then(|source| source.next_repair(segment));
            let Some(next) = next else { return Turn::Over };
            let Some(at) = shape.partition.locate(next.offset) else { return Turn::Over };
            let (message, departure) = (out.transmission.sequence, out.departure());
            let len = next.data.len();
            if !shape.push(out, EXPLICIT, shape.id(at.sbn, at.esi), next.data) {
                return Turn::More;
            }
            out.core.stats.explicit_repairs += 1;
            out.core.stats.repair_bytes += len as u64;
            if shape.coding.is_long() {
                self.on_repeated(at.sbn, at.esi, message, departure, shape);
            }
            self.on_repair_sent(out, at.sbn);
            if let Some(source) = self.source.as_mut() {
                source.repair_sent(len);
            }
        }
    }

    /// Notes a sent repair of a block: for a round trip, requests for the block cannot account for
    /// it.
    fn on_repair_sent(&mut self, out: &Output<'_, '_>, block: u32) {
        if let Some(repaired) = self.repaired.get_mut(&block) {
            repaired.on_sent(out.departure());
        }
    }

    /// Processes the result of one of its effects.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                core.stats.storage_errors += 1;
                self.failure.get_or_insert(Failure::Storage(error));
                return;
            }
        };
        let changed = match (job, answer) {
            (Job::Open, Completion::Opened { file, len, modified }) => {
                // Seconds fit in 48 bits.
                self.resume.version = modified.unwrap_or_default() & 0xffff_ffff_ffff;
                self.opened(core, file, len);
                Ok(())
            }
            (Job::Read { offset, len }, Completion::Read(bytes)) => {
                let size = self.size;
                let source = self.source.as_mut();
                source.map_or(Ok(()), |source| source.read_done(offset, len, bytes, size))
            }
            (Job::Repair { offset }, Completion::Read(bytes)) => {
                self.source.as_mut().map_or(Ok(()), |source| source.repair_done(offset, bytes))
            }
            (Job::Own(Task::Encode { block }), Completion::Read(bytes)) => {
                self.encoded(block, &bytes);
                Ok(())
            }
            (Job::Own(Task::Block { block }), Completion::Read(bytes)) => {
                self.block_read(core, block, &bytes)
            }
            _ => Ok(()),
        };
        if changed.is_err() {
            self.failure.get_or_insert(Failure::Changed);
        }
        self.make_parity(core);
    }

    fn block_read(
        &mut self,
        core: &mut Core,
        block: u32,
        bytes: &[u8],
    ) -> Result<(), UnexpectedLength> {
        let Some(rows) = self.parity.read(block) else { return Ok(()) };
        let Some(shape) = self.shape.take() else { return Ok(()) };
        let (start, end) = shape.span(block);
        let is_whole = bytes.len() as u64 == end - start;
        if is_whole {
            self.parity.make(&mut core.long, &shape, block, &rows, bytes);
        }
        self.shape = Some(shape);
        if is_whole { Ok(()) } else { Err(UnexpectedLength) }
    }

    /// Closes the file.
    pub(crate) fn close(&mut self, core: &mut Core) {
        if let State::Open { file: Some(file) } = self.state {
            core.shared.close(file);
        }
        if let Some(source) = self.source.take() {
            source.close(&mut core.shared);
        }
        self.state = State::Closed;
    }
}
