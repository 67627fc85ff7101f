//! An object that is sent: its segments, the parity of its blocks, and what was asked for again.

mod marks;
mod repairs;
mod ring;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{Completion, EffectError, FileId, OpenMode, StoreEffect, Time};
use wire::checksum::ChecksumType;
use wire::norm::{
    Body, Data, Extensions, Flags, Fti, Info, PayloadId, RequestFlags, RequestWriter, Scheme,
};

use self::marks::{Due, Mark, Marks};
use self::ring::Ring;
use super::INFO_HEADER;
use super::bits::Bits;
use super::coding::Coding;
use super::core::{Core, Job, Task};
use super::incoming::joined::JOINED_MAX;
use super::indication::{Content, Failure, Limit, ObjectId};
use super::repaired::Repaired;
use super::voice::Voice;
use crate::fec::{Encoder, Partition};
use crate::path::{Burst, Handle, Turn};
use crate::source::Source;
use crate::storage::Storage as _;

/// Blocks of which parity is computed for repairs at one time.
const BLOCKS_AHEAD: usize = 8;

/// An object that is sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: ObjectId,
    handle: Handle,
    content: Content,
    pub(crate) info: Bytes,
    pub(crate) size: u64,
    shape: Option<Shape>,
    source: Option<Source>,
    /// Its octets if it is a stream.
    ring: Option<Ring>,
    state: State,
    /// The next segment that was never sent.
    at: Position,
    /// Parity that is sent unasked with the block under way.
    auto_parity: u16,
    /// The number of its first block among all that were sent.
    first_block: Option<u64>,
    /// As many segments as are sent in the time of a round of repairs, if it is the last object.
    pub(crate) tail: u64,
    encoder: Option<Encoder>,
    info_due: bool,
    /// Whether anything of it was sent.
    has_begun: bool,
    /// Until then, who asks for NORM_INFO has not yet got what was sent again.
    info_until: Option<Time>,
    /// What receivers asked for since the last time their requests were collected.
    marks: Marks,
    /// What was asked for by receivers that others do not hear, and is to be told to those.
    advertised: Marks,
    /// Blocks that are sent again as a whole, when it is their turn.
    due: Due,
    repaired: BTreeMap<u32, Repaired>,
    /// Parity to compute, in order of the blocks.
    plans: BTreeMap<u32, Bits>,
    /// Blocks that are being read for that.
    reading: Vec<(u32, Bits)>,
    /// Parity that waits to be sent.
    ready: VecDeque<(PayloadId, Bytes)>,
    pub(crate) told: Option<Told>,
    pub(crate) failure: Option<Failure>,
    /// Segments of a stream that were told of.
    told_of: u64,
    /// Whether the user wants to write to a stream that is not open yet.
    is_awaited: bool,
    /// Whether the user ended a stream.
    is_ended: bool,
}

/// What decides where its segments begin.
#[derive(Clone, Debug)]
struct Shape {
    partition: Partition,
    coding: Coding,
    fti: Fti,
    /// Whether NORM_DATA carries it.
    has_fti: bool,
    /// Octets of a segment as it is coded.
    symbol_len: u16,
    /// Whether it has no end that is known, and all blocks are equally long.
    is_stream: bool,
}

impl Shape {
    fn id(&self, block: u32, symbol: u16) -> PayloadId {
        self.coding.payload_id(self.block_len(block), block, symbol)
    }

    /// Source segments of a block.
    fn block_len(&self, block: u32) -> u16 {
        if self.is_stream { self.coding.block_len() } else { self.partition.block_len(block) }
    }

    /// Where a block begins and ends.
    fn span(&self, block: u32) -> (u64, u64) {
        (self.partition.block_offset(block), self.partition.block_offset(block + 1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    /// It is open, and waits until the path says how long a segment may be.
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

/// Segments of a block that one receiver asks for: all of them if there are none.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Those it names.
    pub(crate) named: Bits,
    /// How many besides, whichever these are.
    pub(crate) count: u32,
}

/// When its end was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) first: Time,
    /// Whether it was told of more than once.
    pub(crate) is_again: bool,
}

/// How segments are cut, as settings and the path's MTU give it.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) segment: u16,
    /// Octets of the longest one that the path takes.
    pub(crate) room: u16,
    pub(crate) coding: Coding,
    /// Whether NORM_DATA carries the FEC object transmission information.
    pub(crate) has_fti: bool,
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
            auto_parity: 0,
            first_block: None,
            tail: 0,
            encoder: None,
            info_due: true,
            has_begun: false,
            info_until: None,
            marks: Marks::default(),
            advertised: Marks::default(),
            due: Due::default(),
            repaired: BTreeMap::new(),
            plans: BTreeMap::new(),
            reading: Vec::new(),
            ready: VecDeque::new(),
            told: None,
            failure: None,
            told_of: 0,
            is_awaited: false,
            is_ended: false,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Asks for what is sent.
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

    /// Whether it is open and waits to be cut into segments.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether nothing of it is known yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.state == State::Opening
    }

    /// Cuts it into segments; an error if that cannot be done.
    pub(crate) fn cut(&mut self, core: &mut Core, cut: Cut) -> Result<(), Failure> {
        let State::Open { file } = self.state else { return Ok(()) };
        if let Content::Stream(options) = self.content {
            return self.cut_stream(cut, options);
        }
        let settings = |error: String| Failure::Settings(error);
        let partition = Partition::new(self.size, cut.segment, cut.coding.block_len())
            .map_err(|error| settings(error.to_string()))?;
        if u64::from(partition.blocks()) > cut.coding.blocks_max() {
            return Err(settings(format!(
                "the object has {} blocks, of which the FEC scheme can number {}",
                partition.blocks(),
                cut.coding.blocks_max()
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
        let (coding, has_fti) = (cut.coding, cut.has_fti);
        let symbol_len = cut.segment;
        self.shape = Some(Shape { partition, coding, fti, has_fti, symbol_len, is_stream: false });
        self.state = State::Sending;
        self.read_ahead(core);
        Ok(())
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let (Some(source), Some(shape)) = (self.source.as_mut(), &self.shape) else { return };
        source.read_ahead(&mut core.shared, self.handle, usize::from(shape.fti.segment_size));
    }

    /// Octets sent once.
    pub(crate) fn progress(&self) -> u64 {
        match &self.ring {
            Some(ring) => ring.sent(),
            None => self.source.as_ref().map_or(0, Source::sent),
        }
    }

    /// Whether all of it was sent once.
    pub(crate) fn is_sent(&self) -> bool {
        let Some(shape) = &self.shape else { return false };
        if let Some(ring) = &self.ring {
            return !self.info_due && !ring.has_new();
        }
        !self.info_due && u64::from(self.at.block) >= u64::from(shape.partition.blocks())
    }

    /// Whether repairs wait to be sent, or are being made.
    pub(crate) fn has_repairs(&self) -> bool {
        let source = match &self.ring {
            Some(ring) => ring.next_again().is_some(),
            None => self.source.as_ref().is_some_and(Source::has_repairs),
        };
        let parity = !self.plans.is_empty() || !self.reading.is_empty() || !self.ready.is_empty();
        source || parity || !self.due.is_empty() || self.has_begun() && self.info_due
    }

    /// Whether all of it was sent, and everything that was asked for again.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_idle() && !self.is_open_stream()
    }

    /// Whether it is being sent, and something of it was: before its turn it has nothing to repair.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_sending() && self.has_begun
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.state == State::Sending
    }

    /// Its last segment: what a flush names.
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

    /// Octets held.
    pub(crate) fn memory(&self) -> usize {
        let ready: usize = self.ready.iter().map(|(_, bytes)| bytes.len() + 64).sum();
        let segment = self.shape.as_ref().map_or(0, |shape| usize::from(shape.symbol_len));
        let ring = self.ring.as_ref().map_or(0, Ring::memory);
        let encoder = self.encoder.as_ref().map_or(0, |encoder| encoder.room() * segment);
        let marks = self.marks.len() + self.advertised.len() + self.due.len();
        let marks = marks + self.repaired.len() + self.plans.len();
        self.source.as_ref().map_or(0, Source::memory)
            + ring
            + ready
            + encoder
            + marks * 96
            + self.info.len()
    }

    fn flags(&self) -> Flags {
        let info = if self.has_info() { Flags::INFO } else { Flags::NONE };
        match self.content {
            Content::File(_) => info | Flags::FILE,
            Content::Data(_) => info,
            Content::Stream(_) => info | Flags::STREAM,
        }
    }

    /// Sends NORM_INFO if that is due.
    pub(crate) fn emit_info(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
    ) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let turn = self.emit_info_of(core, voice, burst, &shape);
        self.shape = Some(shape);
        turn
    }

    fn emit_info_of(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
        shape: &Shape,
    ) -> Turn {
        if !self.info_due {
            return Turn::Over;
        }
        if !self.has_info() {
            self.info_due = false;
            return Turn::Over;
        }
        let flags = self.flags();
        let body = Body::Info(Info {
            sender: voice.header(),
            flags,
            fec: shape.coding.scheme(),
            object: self.number(),
            fti: Some(shape.fti),
            others: Extensions::NONE,
            payload: &self.info,
        });
        let is_first = !self.has_begun;
        if !voice.say(core, burst, body) {
            return Turn::More;
        }
        self.info_due = false;
        self.has_begun = true;
        if !is_first {
            self.info_until = Some(burst.departure() + voice.round_trip());
        }
        Turn::Over
    }

    /// The identifier in messages.
    pub(crate) fn number(&self) -> u16 {
        (self.id.number & 0xffff) as u16
    }

    /// Sends new segments, and the parity that goes with their blocks.
    pub(crate) fn emit_new(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
    ) -> Turn {
        let turn = self.emit_segments(core, voice, burst);
        self.read_ahead(core);
        match turn {
            // The last block may be followed by NORM_INFO once more.
            Turn::Over => self.emit_info(core, voice, burst),
            Turn::More => Turn::More,
        }
    }

    fn emit_segments(&mut self, core: &mut Core, voice: &mut Voice, burst: &mut Burst<'_>) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let turn = loop {
            if self.emit_info_of(core, voice, burst, &shape) == Turn::More {
                break Turn::More;
            }
            if self.ring.is_some() {
                break self.emit_stream(core, voice, burst, &shape);
            }
            if u64::from(self.at.block) >= u64::from(shape.partition.blocks()) {
                break Turn::Over;
            }
            let block_len = shape.partition.block_len(self.at.block);
            let turn = if self.at.symbol < block_len {
                self.emit_source(core, voice, burst, &shape)
            } else {
                self.emit_auto_parity(core, voice, burst, &shape)
            };
            if let Some(turn) = turn {
                break turn;
            }
        };
        self.shape = Some(shape);
        turn
    }

    /// Sends the next source segment; what that came to if no more follow now.
    fn emit_source(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
        shape: &Shape,
    ) -> Option<Turn> {
        let at = self.at;
        if at.symbol == 0 {
            self.auto_parity = self.parity_unasked(voice, shape);
        }
        let len = usize::from(shape.partition.segment_len(at.block, at.symbol));
        let id = shape.id(at.block, at.symbol);
        let flags = self.flags();
        let number = self.number();
        let Some(next) = self.source.as_ref().and_then(|source| source.next_new(len)) else {
            return Some(Turn::Over);
        };
        let data = next.data;
        let body = data_body(voice, shape, (flags, number), id, data);
        if !voice.say(core, burst, body) {
            return Some(Turn::More);
        }
        if at.symbol == 0 {
            let number = voice.losses.block_begins();
            self.first_block.get_or_insert(number);
        }
        if self.auto_parity > 0 {
            let room = self.encoder.as_ref().map_or(0, Encoder::room);
            if room < usize::from(self.auto_parity) {
                self.encoder = shape.coding.encoder(shape.symbol_len, self.auto_parity);
            }
            if let Some(encoder) = self.encoder.as_mut() {
                if at.symbol == 0 {
                    encoder.reset_rows(0..usize::from(self.auto_parity));
                }
                encoder.add(at.symbol, data);
            }
        }
        let sent = data.len();
        if let Some(source) = self.source.as_mut() {
            source.new_sent(sent);
        }
        self.at.symbol += 1;
        self.has_begun = true;
        // It is asked for when the second block begins: before that, it is said three times.
        let block_len = shape.partition.block_len(0);
        if at.block == 0 && (at.symbol == block_len / 2 || at.symbol + 1 == block_len) {
            self.repeat_info(core, shape);
        }
        None
    }

    /// Sends the next parity segment of a block whose source segments all went.
    fn emit_auto_parity(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
        shape: &Shape,
    ) -> Option<Turn> {
        let at = self.at;
        let row = at.symbol - shape.partition.block_len(at.block);
        let id = shape.id(at.block, at.symbol);
        let object = (self.flags(), self.number());
        let encoder = self.encoder.as_mut().filter(|_| row < self.auto_parity);
        let Some(encoder) = encoder else {
            self.block_went(core, shape);
            return None;
        };
        let body = data_body(voice, shape, object, id, encoder.parity(usize::from(row)));
        if !voice.say(core, burst, body) {
            return Some(Turn::More);
        }
        core.stats.auto_parity += 1;
        self.at.symbol += 1;
        None
    }

    fn block_went(&mut self, core: &Core, shape: &Shape) {
        let most = core.config.limits.repairs;
        let usual = shape.coding.auto_parity_of(shape.partition.block_len(self.at.block));
        if self.auto_parity != usual && self.repaired.len() < most {
            let auto = self.auto_parity;
            self.repaired.entry(self.at.block).or_insert_with(|| Repaired::new(auto));
        }
        self.at = Position { block: self.at.block + 1, symbol: 0 };
        let every = core.config.sender.info_every;
        let is_last = self.at.block >= shape.partition.blocks();
        if every > 0 && self.at.block.is_multiple_of(every) || is_last {
            self.repeat_info(core, shape);
        }
    }

    /// NORM_INFO goes out again where parity is sent unasked, so that nobody need ask for it.
    fn repeat_info(&mut self, core: &Core, shape: &Shape) {
        if shape.coding.auto_parity() > 0 && core.config.sender.info_every > 0 {
            self.info_due = !self.info.is_empty();
        }
    }

    /// A receiver has no NORM_INFO; whether there is one for it.
    pub(crate) fn mark_info(&mut self, now: Time) -> bool {
        let is_under_way = self.info_until.is_some_and(|until| now < until);
        if !self.is_sending() || !self.has_info() || is_under_way {
            return false;
        }
        self.info_due = true;
        true
    }

    /// Segments of a block, with its parity; 0 if nothing of it was sent yet: that cannot be missing.
    pub(crate) fn symbols(&self, block: u32) -> u16 {
        let Some(shape) = self.shape.as_ref() else { return 0 };
        if let Some(ring) = &self.ring {
            let most = shape.coding.block_len().saturating_add(shape.coding.parity());
            return ring.find(block).map_or(0, |_| most);
        }
        if block > self.at.block || block >= shape.partition.blocks() {
            return 0;
        }
        shape.partition.block_len(block).saturating_add(shape.coding.parity())
    }

    /// A receiver misses these segments of a block; all of it if there are none. Whether that can be
    /// mended.
    pub(crate) fn mark(&mut self, core: &mut Core, block: u32, symbols: &Symbols) -> bool {
        let most = self.symbols(block);
        let Some(shape) = self.shape.as_ref().filter(|_| most > 0) else { return false };
        let missing = symbols.named.len() + symbols.count;
        // More than parity makes up for, and not named: it may be any of them.
        let is_whole = missing == 0 || symbols.count > u32::from(shape.coding.parity());
        if is_whole && self.ring.is_none() {
            return self.mark_blocks(core, block, block);
        }
        let parts = &mut self.marks.parts;
        if !parts.contains_key(&block) && parts.len() >= core.config.limits.repairs {
            core.user.limit_reached(Limit::Repairs);
            return false;
        }
        let mark = parts.entry(block).or_default();
        if is_whole {
            (mark.is_whole, mark.missing) = (true, u32::from(shape.block_len(block)));
            return true;
        }
        mark.symbols.union(&symbols.named);
        mark.missing = mark.missing.max(missing).min(u32::from(most));
        true
    }

    /// A receiver has nothing of some blocks, from the first to the last.
    pub(crate) fn mark_blocks(&mut self, core: &mut Core, first: u32, last: u32) -> bool {
        if self.ring.is_some() {
            return self.mark_stream_blocks(core, first, last);
        }
        let Some(shape) = &self.shape else { return false };
        // What was not sent yet cannot be missing.
        let end = (u64::from(self.at.block) + 1).min(shape.partition.blocks().into());
        let range = (u64::from(first), end.min(u64::from(last.max(first)) + 1));
        if range.0 >= range.1 {
            return false;
        }
        let is_noted = self.marks.add_whole(range, core.config.limits.repairs);
        if !is_noted {
            core.user.limit_reached(Limit::Repairs);
        }
        is_noted
    }

    /// A receiver lacks so many segments of each of some blocks, from the first to the last, at the
    /// most. Requests for more blocks than receivers make at once are cut short.
    pub(crate) fn mark_counted(
        &mut self,
        core: &mut Core,
        (first, last): (u32, u32),
        count: u16,
    ) -> bool {
        let count = u32::from(count);
        let last = last.min(self.at.block).min(first.saturating_add(JOINED_MAX as u32 - 1));
        let symbols = Symbols { named: Bits::new(), count };
        let mut any = false;
        for block in first..=last {
            any |= self.mark(core, block, &symbols);
        }
        any
    }

    /// A receiver has nothing of it.
    pub(crate) fn mark_all(&mut self, core: &mut Core) -> bool {
        self.mark_blocks(core, 0, u32::MAX)
    }

    /// Writes what was asked for: others need not ask for it. `false` if there was no room for all.
    pub(crate) fn advertise(&self, fec: Scheme, writer: &mut RequestWriter<'_>) -> bool {
        let Some(shape) = self.shape.as_ref() else { return true };
        let object = self.number();
        let position =
            |block, symbol| wire::norm::Position { fec, object, id: shape.id(block, symbol) };
        if self.info_due && self.has_begun {
            let item = position(0, 0);
            if writer.item(RequestFlags::INFO, item).is_err() {
                return false;
            }
        }
        let mut whole = self.advertised.whole.iter().peekable();
        for (block, mark) in &self.advertised.parts {
            while let Some(range) = whole.next_if(|(first, _)| *first <= u64::from(*block)) {
                if !advertise_blocks(writer, position, range) {
                    return false;
                }
            }
            if mark.is_whole {
                if writer.item(RequestFlags::BLOCK, position(*block, 0)).is_err() {
                    return false;
                }
                continue;
            }
            // Of parity it matters only how much is asked for, and the ones asked for come last.
            let parity = shape.coding.parity() > 0;
            let len = if parity { mark.missing as usize } else { usize::MAX };
            let skip = (mark.symbols.len() as usize).saturating_sub(len);
            for (first, last) in mark.symbols.runs(skip) {
                let (first, last) = (position(*block, first), position(*block, last));
                if writer.range(RequestFlags::SEGMENT, first, last).is_err() {
                    return false;
                }
            }
        }
        whole.all(|range| advertise_blocks(writer, position, range))
    }

    /// Octets of its longest datagram, once it is cut.
    pub(crate) fn datagram(&self) -> usize {
        self.shape.as_ref().map_or(0, |shape| {
            let header = shape.coding.data_header(shape.has_fti);
            let data = header + usize::from(shape.symbol_len);
            data.max(INFO_HEADER + self.info.len())
        })
    }

    /// Whether it has NORM_INFO. An object without octets is known by that alone.
    pub(crate) fn has_info(&self) -> bool {
        let is_stream = matches!(self.content, Content::Stream(_));
        !self.info.is_empty() || self.size == 0 && !is_stream
    }

    /// Reads blocks of which parity is wanted.
    fn make_parity(&mut self, core: &mut Core) {
        let Some(shape) = self.shape.clone() else { return };
        while self.reading.len() < BLOCKS_AHEAD && self.ready.len() < 4 * BLOCKS_AHEAD {
            let Some((block, rows)) = self.plans.pop_first() else { return };
            if self.ring.is_some() {
                self.make_stream_parity(&shape, block, &rows);
                continue;
            }
            let (start, end) = shape.span(block);
            match (&self.content, self.source.as_ref()) {
                (Content::Data(data), _) => {
                    let data = data.slice(start as usize..end as usize);
                    self.parity_made(&shape, block, &rows, &data);
                }
                (Content::File(_), Some(source)) => {
                    let ticket = core.shared.ticket(self.handle, Job::Own(Task::Block { block }));
                    let (file, len) = (source.file, (end - start) as usize);
                    core.shared
                        .effects
                        .push_back(StoreEffect::Read { ticket, file, offset: start, len }.into());
                    self.reading.push((block, rows));
                }
                (Content::File(_), None) | (Content::Stream(_), _) => {}
            }
        }
    }

    fn parity_made(&mut self, shape: &Shape, block: u32, rows: &Bits, data: &[u8]) {
        let block_len = shape.block_len(block);
        for (row, parity) in shape.coding.rows(shape.symbol_len, data, rows) {
            self.ready.push_back((shape.id(block, block_len + row), parity));
        }
    }

    /// Sends repairs: parity first, because it serves everybody.
    pub(crate) fn emit_repairs(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
    ) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let round_trip = voice.round_trip();
        let turn = loop {
            let turn = self.emit_repairs_of(core, voice, burst, &shape);
            self.read_repairs(core);
            if turn == Turn::More || !self.take_due(core, round_trip, &shape) {
                break turn;
            }
            self.read_repairs(core);
        };
        self.shape = Some(shape);
        self.make_parity(core);
        turn
    }

    fn emit_repairs_of(
        &mut self,
        core: &mut Core,
        voice: &mut Voice,
        burst: &mut Burst<'_>,
        shape: &Shape,
    ) -> Turn {
        // The reference library never sets the flag, but heeds it: none of its receivers begins
        // with a repair, nor should one.
        let flags = self.flags() | Flags::REPAIR;
        let number = self.number();
        let grtt = voice.round_trip();
        while let Some((id, parity)) = self.ready.front() {
            let id = *id;
            let body = data_body(voice, shape, (flags, number), id, parity);
            if !voice.say(core, burst, body) {
                return Turn::More;
            }
            core.stats.parity_repairs += 1;
            self.repair_went(id.block, burst.departure() + grtt);
            self.ready.pop_front();
        }
        let flags = flags | Flags::EXPLICIT;
        if self.ring.is_some() {
            return self.emit_again(core, voice, burst, (shape, flags));
        }
        let segment = usize::from(shape.fti.segment_size);
        loop {
            let next = self.source.as_ref().and_then(|source| source.next_repair(segment));
            let Some(next) = next else { return Turn::Over };
            let Some(at) = shape.partition.locate(next.offset) else { return Turn::Over };
            let id = shape.id(at.sbn, at.esi);
            let body = data_body(voice, shape, (flags, number), id, next.data);
            let len = next.data.len();
            if !voice.say(core, burst, body) {
                return Turn::More;
            }
            core.stats.explicit_repairs += 1;
            self.repair_went(at.sbn, burst.departure() + grtt);
            if let Some(source) = self.source.as_mut() {
                source.repair_sent(len);
            }
        }
    }

    /// A repair of a block left: who asks for more of it before `until` has not yet got this.
    fn repair_went(&mut self, block: u32, until: Time) {
        if let Some(repaired) = self.repaired.get_mut(&block) {
            repaired.went(until);
        }
    }

    /// An effect of its own was carried out.
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
            (Job::Open, Completion::Opened { file, len, .. }) => {
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
            (Job::Own(Task::Block { block }), Completion::Read(bytes)) => {
                self.block_read(block, &bytes)
            }
            _ => Ok(()),
        };
        if changed.is_err() {
            self.failure.get_or_insert(Failure::Changed);
        }
        self.make_parity(core);
    }

    fn block_read(&mut self, block: u32, bytes: &[u8]) -> Result<(), ()> {
        let Some(at) = self.reading.iter().position(|(other, _)| *other == block) else {
            return Ok(());
        };
        let (_, rows) = self.reading.remove(at);
        let Some(shape) = self.shape.take() else { return Ok(()) };
        let (start, end) = shape.span(block);
        let is_whole = bytes.len() as u64 == end - start;
        if is_whole {
            self.parity_made(&shape, block, &rows, bytes);
        }
        self.shape = Some(shape);
        if is_whole { Ok(()) } else { Err(()) }
    }

    /// Lets the file go.
    pub(crate) fn close(&mut self, core: &mut Core) {
        if let State::Open { file: Some(file) } = self.state {
            core.shared.close(file);
        }
        if let Some(source) = self.source.take() {
            source.close(&mut core.shared);
        }
        self.ring = None;
        self.state = State::Closed;
        self.marks.clear();
        self.advertised.clear();
        self.due.clear();
        self.plans.clear();
        self.ready.clear();
    }
}

fn data_body<'a>(
    voice: &Voice,
    shape: &Shape,
    (flags, object): (Flags, u16),
    id: PayloadId,
    payload: &'a [u8],
) -> Body<'a> {
    Body::Data(Data {
        sender: voice.header(),
        flags,
        fec: shape.coding.scheme(),
        object,
        id,
        fti: shape.has_fti.then_some(shape.fti),
        others: Extensions::NONE,
        payload,
    })
}

/// Names blocks of which a receiver has nothing; `false` if there was no room for that.
fn advertise_blocks(
    writer: &mut RequestWriter<'_>,
    position: impl Fn(u32, u16) -> wire::norm::Position,
    (first, end): (u64, u64),
) -> bool {
    let (first, last) = (position(first as u32, 0), position((end - 1) as u32, 0));
    match first == last {
        true => writer.item(RequestFlags::BLOCK, first).is_ok(),
        false => writer.range(RequestFlags::BLOCK, first, last).is_ok(),
    }
}
