//! Stream-specific part of reception (RFC 5740 §4.2.1, NORM_OBJECT_STREAM). A stream has no known
//! end, its bytes are delivered in order as they arrive, and its sender keeps only the most recent
//! ones.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::Time;

use super::pieces::{Contradiction, Pieces};
use super::requests::{request_run, request_symbols};
use super::{
    Block, Coding, Core, Failure, Flags, Incoming, Indication, Limit, PIECE_COST, Partition, Shape,
    State,
};
use crate::bits::Bits;
use crate::config::{Join, Limits};
use crate::indication::Piece;
use crate::message::{
    Data, Fti, PayloadId, Position, Request, RequestFlags, RequestWriter, STREAM_HEADER_LEN,
    Scheme, StreamHeader,
};
use crate::requested::Requested;

/// Segment of a stream, with an unwrapped block number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: u64,
    symbol: u16,
}

/// Stream being received.
#[derive(Debug)]
pub(super) struct Stream {
    block_len: u16,
    parity: u16,
    /// Number of parity segments used in a block.
    usable: u16,
    /// Bytes of a coded segment.
    symbol_len: usize,
    /// Largest block number in messages, after which numbers wrap.
    mask: u32,
    /// Number of blocks kept by the sender, and here.
    kept: u64,
    window: u64,
    /// Next segment to deliver; `None` until the first is known.
    next: Option<Place>,
    /// Highest block number received.
    newest: u64,
    /// Position of the sender: all earlier segments are known to have been sent.
    through: Place,
    blocks: BTreeMap<u64, Part>,
    requested: Requested,
    pieces: Pieces,
}

/// Block that was not delivered yet.
#[derive(Debug)]
struct Part {
    block: Block,
    /// Whether all source segments arrived.
    is_whole: bool,
}

impl Stream {
    fn new(fti: &Fti, coding: &Coding, limits: &Limits) -> Option<Self> {
        let symbol_len = STREAM_HEADER_LEN + usize::from(fti.segment_size);
        let block = u64::from(fti.block_len) * u64::from(fti.segment_size);
        let mask = coding.scheme.block_mask(16);
        let most = u64::from(mask / 4).max(2);
        let kept = fti.object_size.checked_div(block)?.clamp(1, most);
        let window = limits.stream / (usize::from(fti.block_len) * symbol_len).max(1);
        let window = window.min(limits.repairs);
        (window > 0).then(|| Self {
            block_len: fti.block_len,
            parity: coding.parity,
            usable: coding.parity_most(fti.block_len, limits.coding_work),
            symbol_len,
            mask,
            kept,
            window: kept.min(window as u64),
            next: None,
            newest: 0,
            through: Place::default(),
            blocks: BTreeMap::new(),
            requested: Requested::default(),
            pieces: Pieces::default(),
        })
    }

    pub(super) fn memory(&self) -> usize {
        let blocks = self.blocks.values().map(|part| part.block.cost + size_of::<Part>());
        // Readable bytes are accounted for where written ones are.
        blocks.sum::<usize>() + self.requested.memory() + size_of::<Self>()
    }

    pub(super) fn delivered(&self) -> u64 {
        self.pieces.appended
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.pieces.has_gap
    }

    /// Unwraps the block number of a message relative to the newest block.
    fn unwrap(&self, block: u32) -> u64 {
        let half = self.mask / 2;
        let ahead = block.wrapping_sub((self.newest & u64::from(self.mask)) as u32) & self.mask;
        if ahead <= half {
            self.newest + u64::from(ahead)
        } else {
            let behind = self.mask - ahead + 1;
            self.newest.saturating_sub(u64::from(behind))
        }
    }

    fn wire(&self, block: u64) -> u32 {
        (block & u64::from(self.mask)) as u32
    }

    /// Notes a received block number; the first one decides where the stream begins here.
    fn note_block(&mut self, block: u32, join: Option<Join>) -> u64 {
        if self.next.is_none() {
            // Numbers before the first must be representable.
            let origin = u64::from(self.mask) + 1;
            self.newest = origin + u64::from(block);
            let is_kept = u64::from(block) < self.kept && join == Some(Join::Beginning);
            let first = if is_kept { origin } else { self.newest };
            self.next = Some(Place { block: first, symbol: 0 });
            self.through = Place { block: self.newest, symbol: 0 };
        }
        let number = self.unwrap(block);
        self.newest = self.newest.max(number);
        number
    }

    /// Blocks that may be incomplete and for which there is room.
    fn expected(&self) -> std::ops::Range<u64> {
        let Some(next) = self.next.filter(|_| !self.pieces.has_ended) else { return 0..0 };
        let end = self.through.block + u64::from(self.through.symbol > 0);
        next.block..end.min(next.block + self.window).max(next.block)
    }

    /// Segments to request of an incomplete or unfinished block.
    fn wanted(&self, number: u64, part: Option<&Part>) -> Vec<(u16, u16)> {
        if part.is_some_and(|part| part.is_whole) {
            return Vec::new();
        }
        if number >= self.through.block && self.through.symbol < self.block_len {
            // An incomplete block has no parity yet.
            let delivered = self.next.filter(|next| next.block == number);
            let from = delivered.map_or(0, |next| next.symbol);
            let none = Bits::new();
            let have = part.map_or(&none, |part| &part.block.have);
            return have.gaps(from..self.through.symbol).collect();
        }
        part.map_or(Vec::new(), |part| {
            part.block.wanted(self.block_len, (self.parity, false), self.usable)
        })
    }

    /// Block at the end of the sent part, if it is only known to have started.
    fn tail(&self) -> Option<u64> {
        let block = self.through.block;
        (self.expected().contains(&block) && !self.blocks.contains_key(&block)).then_some(block)
    }

    /// Whether anything missing was not requested after `since`.
    pub(super) fn lacks(&self, since: Time) -> bool {
        let (expected, known) = (self.expected(), self.requested.blocks(since));
        let is_due = |tail: &u64| !known.contains(*tail) && !self.wanted(*tail, None).is_empty();
        let tail = self.tail();
        if tail.as_ref().is_some_and(is_due) {
            return true;
        }
        let mut at = expected.start;
        for (number, part) in self.blocks.range(expected.clone()) {
            let is_due = !part.block.was_requested(since);
            if known.gaps(at, *number).next().is_some()
                || is_due && !self.wanted(*number, Some(part)).is_empty()
            {
                return true;
            }
            at = number + 1;
        }
        known.gaps(at, tail.unwrap_or(expected.end)).next().is_some()
    }

    /// Requests everything missing. Returns `false` if there was no room for all.
    pub(super) fn request(
        &mut self,
        writer: &mut RequestWriter<'_>,
        position: impl Fn(u32, u16) -> Position,
        (now, since): (Time, Time),
    ) -> bool {
        self.requested.forget_before(since);
        let (expected, tail) = (self.expected(), self.tail());
        let tail_due = tail.filter(|tail| !self.requested.blocks(since).contains(*tail));
        let mut covered = self.requested.covered(since);
        let mut parts = Vec::new();
        for (number, part) in self.blocks.range(expected.clone()) {
            covered.insert(*number, number + 1);
            if !part.block.was_requested(since) && !self.wanted(*number, Some(part)).is_empty() {
                parts.push(*number);
            }
        }
        parts.extend(tail_due.filter(|tail| !self.wanted(*tail, None).is_empty()));
        let end = tail.unwrap_or(expected.end);
        let empty: Vec<_> = covered.gaps(expected.start, end).collect();
        let mut empty = empty.into_iter().peekable();
        for number in parts {
            while let Some(run) = empty.next_if(|(first, _)| *first < number) {
                if !self.request_blocks(writer, &position, run, now) {
                    return false;
                }
            }
            if !self.request_part(writer, &position, number, now) {
                return false;
            }
        }
        empty.all(|run| self.request_blocks(writer, &position, run, now))
    }

    fn request_blocks(
        &mut self,
        writer: &mut RequestWriter<'_>,
        position: &impl Fn(u32, u16) -> Position,
        (mut first, end): (u64, u64),
        now: Time,
    ) -> bool {
        while first < end {
            // A range must not wrap.
            let stop = end.min((first | u64::from(self.mask)) + 1);
            if !request_run(writer, (first, stop), |number| position(self.wire(number), 0)) {
                return false;
            }
            self.requested.note_blocks((first, stop), now);
            first = stop;
        }
        true
    }

    fn request_part(
        &mut self,
        writer: &mut RequestWriter<'_>,
        position: &impl Fn(u32, u16) -> Position,
        number: u64,
        now: Time,
    ) -> bool {
        let part = self.blocks.get(&number);
        let wanted = self.wanted(number, part);
        let is_requested = self.requested.is_block_requested(number)
            || part.is_some_and(|part| part.block.is_requested(&wanted, self.block_len));
        let wire = self.wire(number);
        if !is_requested && !request_symbols(writer, &wanted, |symbol| position(wire, symbol)) {
            return false;
        }
        match self.blocks.get_mut(&number) {
            Some(part) => part.block.requested_at = Some(now),
            None => self.requested.note_blocks((number, number + 1), now),
        }
        true
    }

    /// Notes a request of another receiver.
    pub(super) fn on_others(&mut self, request: &Request<'_>, first: Position, last: Position) {
        let (from, flags) = (first.id.block, request.flags);
        if flags.contains(RequestFlags::BLOCK) {
            let count = last.id.block.wrapping_sub(from) & self.mask;
            let (start, expected) = (self.unwrap(from), self.expected());
            let end = (start + u64::from(count) + 1).min(expected.end);
            let start = start.max(expected.start);
            self.requested.note_blocks_by_others((start, end));
            return;
        }
        let (number, lens) = (self.unwrap(from), (self.block_len, self.parity));
        if let Some(part) = self.blocks.get_mut(&number) {
            part.block.note_others(request.form, (first.id.symbol, last.id.symbol), lens);
        }
    }

    pub(super) fn forget_others(&mut self) {
        self.requested.forget_others();
        for part in self.blocks.values_mut() {
            part.block.by_others = Bits::new();
        }
    }

    /// Whether all segments up to and including this one were delivered.
    pub(super) fn has_through(&self, id: PayloadId) -> bool {
        let place = Place { block: self.unwrap(id.block), symbol: id.symbol };
        self.next.is_some_and(|next| next > place) || self.pieces.has_ended
    }

    /// Delivers the next segments in order.
    fn deliver(&mut self, core: &mut Core) -> Result<(), Contradiction> {
        while let Some(next) = self.next.filter(|_| !self.pieces.has_ended) {
            let Some(part) = self.blocks.get(&next.block) else { break };
            if !part.block.have.contains(next.symbol) && !part.is_whole {
                break;
            }
            let at = usize::from(next.symbol) * self.symbol_len;
            let end = (at + self.symbol_len).min(part.block.buffer.len());
            let (header, bytes) =
                StreamHeader::decode(&part.block.buffer[at..end]).map_err(|_| Contradiction)?;
            let bytes = Bytes::copy_from_slice(bytes);
            self.pieces.append(core, header, &bytes)?;
            self.step(core, next);
        }
        Ok(())
    }

    /// Advances to the next segment.
    fn step(&mut self, core: &mut Core, next: Place) {
        let symbol = next.symbol + 1;
        if symbol < self.block_len {
            self.next = Some(Place { symbol, ..next });
            return;
        }
        self.next = Some(Place { block: next.block + 1, symbol: 0 });
        self.drop_block(core, next.block);
    }

    fn drop_block(&mut self, core: &mut Core, number: u64) {
        if let Some(part) = self.blocks.remove(&number) {
            core.assembling -= part.block.cost;
        }
    }

    /// Skips to a block because the sender dropped everything before; received segments in between
    /// are delivered.
    fn skip_to(&mut self, core: &mut Core, block: u64) -> Result<(), Contradiction> {
        while let Some(next) = self.next.filter(|next| next.block < block && !self.pieces.has_ended)
        {
            let is_here = self
                .blocks
                .get(&next.block)
                .is_some_and(|part| part.is_whole || part.block.have.contains(next.symbol));
            if is_here {
                self.deliver(core)?;
            } else if self.blocks.contains_key(&next.block) {
                self.step(core, next);
            } else {
                let next = self.blocks.keys().next().map_or(block, |first| block.min(*first));
                self.next = Some(Place { block: next, symbol: 0 });
            }
        }
        self.requested.forget_blocks(block);
        self.deliver(core)
    }

    fn room_for(&mut self, core: &mut Core, number: u64) -> bool {
        if self.blocks.contains_key(&number) {
            return true;
        }
        let full = usize::from(self.block_len) * self.symbol_len;
        let cost = full + PIECE_COST;
        if core.assembling + core.reserved + cost > core.config.limits.assembly {
            return false;
        }
        core.assembling += cost;
        let buffer = core.shared.room.take_buffer(full);
        self.blocks.insert(number, Part { block: Block::new(buffer, cost), is_whole: false });
        true
    }

    /// Drops all data.
    pub(super) fn clear(&mut self, core: &mut Core) {
        for part in std::mem::take(&mut self.blocks).into_values() {
            core.assembling -= part.block.cost;
        }
        self.pieces.clear(core);
    }
}

impl Incoming {
    /// Learns the partition of a stream.
    pub(super) fn learn_stream(
        &mut self,
        core: &mut Core,
        (flags, scheme): (Flags, Scheme),
        fti: Fti,
        (coding, partition): (Coding, Partition),
    ) -> Result<(), Failure> {
        let Some(stream) = Stream::new(&fti, &coding, &core.config.limits) else {
            core.user.limit_reached(Limit::Stream);
            return Err(Failure::Settings("its blocks are larger than allowed".to_owned()));
        };
        let work = core.config.limits.coding_work;
        let room = coding.room(fti.block_len, stream.symbol_len, work);
        self.shape = Some(Shape { scheme, fti, partition, coding, room });
        self.flags = flags;
        self.stream = Some(Box::new(stream));
        self.show(core);
        core.user.indicate(Indication::Stream { id: self.id, buffer: fti.object_size });
        Ok(())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether everything known to have been sent has arrived, of an object that may never end.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| !stream.lacks(Time::MAX)) && !self.lacks_info()
    }

    /// Unwraps the sender's block number.
    pub(crate) fn reached(&self, block: u32) -> u64 {
        self.stream.as_ref().map_or(u64::from(block), |stream| stream.newest)
    }

    /// Whether the stream was delivered up to and including this segment.
    pub(crate) fn has_through(&self, id: PayloadId) -> bool {
        let is_here = |stream: &Stream| stream.has_through(id);
        self.state == State::Receiving
            && self.stream.as_deref().is_some_and(is_here)
            && !self.lacks_info()
    }

    /// Notes that this is the sender's last segment so far.
    pub(crate) fn on_flush(&mut self, core: &Core, id: PayloadId) {
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.pieces.has_ended) else {
            return;
        };
        let block = stream.note_block(id.block, core.config.receiver.streams);
        let symbol = id.symbol.saturating_add(1);
        let place = if symbol >= stream.block_len {
            Place { block: block + 1, symbol: 0 }
        } else {
            Place { block, symbol }
        };
        // If an earlier message named a later segment, either that was damaged, or this one is late
        // and the next corrects it.
        stream.through = place;
    }

    /// Notes that the sender dropped all blocks before this one.
    pub(crate) fn prune(&mut self, core: &mut Core, id: PayloadId) {
        let Some(stream) = self.stream.as_mut() else { return };
        let Some(next) = stream.next else { return };
        let block = stream.unwrap(id.block);
        // The sender still has something; the block must not be far ahead of those received.
        if block <= next.block || block > stream.newest + stream.kept {
            return;
        }
        let result = stream.skip_to(core, block);
        self.delivered(core, &result);
    }

    /// Processes a segment of a stream. Returns `false` if room must be made for its block.
    pub(super) fn on_stream_data(&mut self, core: &mut Core, data: &Data<'_>) -> bool {
        let (Some(shape), Some(stream)) = (&self.shape, self.stream.as_mut()) else { return true };
        let (symbol, len) = (data.id.symbol, data.payload.len());
        let is_source = symbol < stream.block_len;
        let fits = u32::from(symbol) < u32::from(stream.block_len) + u32::from(shape.fti.parity)
            && (1..=stream.symbol_len).contains(&len)
            && (!is_source || StreamHeader::decode(data.payload).is_ok());
        if shape.scheme != data.fec || !fits {
            self.contradict(core);
            return true;
        }
        if !is_source && stream.usable == 0 {
            core.stats.data_dropped += 1;
            return true;
        }
        if core.shared.room.unwritten > core.config.limits.buffers.write_buffer {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::WriteBuffer);
            return true;
        }
        let number = stream.note_block(data.id.block, core.config.receiver.streams);
        stream.through = stream.through.max(Place { block: number, symbol: 0 });
        let Some(next) = stream.next else { return true };
        if number < next.block || stream.pieces.has_ended {
            core.stats.duplicate_data += 1;
            return true;
        }
        if number - next.block >= stream.kept {
            // Blocks farther back were overwritten.
            let result = stream.skip_to(core, number + 1 - stream.kept);
            self.delivered(core, &result);
            let Some(stream) = self.stream.as_mut() else { return true };
            if stream.next.is_none_or(|next| number < next.block) || stream.pieces.has_ended {
                return true;
            }
        }
        self.put(core, number, data)
    }

    fn put(&mut self, core: &mut Core, number: u64, data: &Data<'_>) -> bool {
        let (Some(shape), Some(stream)) = (&self.shape, self.stream.as_mut()) else { return true };
        let (symbol, block_len, symbol_len) = (data.id.symbol, stream.block_len, stream.symbol_len);
        if stream.next.is_none_or(|next| number - next.block >= stream.window) {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Stream);
            return true;
        }
        if !stream.room_for(core, number) {
            return false;
        }
        let Some(part) = stream.blocks.get_mut(&number) else { return true };
        let block = &mut part.block;
        if symbol >= block_len && block.parity.len() >= usize::from(stream.usable) {
            core.stats.data_dropped += 1;
            return true;
        }
        if part.is_whole || !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return true;
        }
        block.add(symbol, block_len, symbol_len, data.payload);
        if block.have.len() >= u32::from(block_len) {
            let how = (&shape.coding, shape.room);
            if block.parity.is_empty() || Self::recover(core, how, block, block_len) {
                part.is_whole = true;
            } else {
                core.stats.data_dropped += 1;
            }
        }
        let result = stream.deliver(core);
        self.delivered(core, &result);
        true
    }

    /// Indicates readable data and the end of the stream.
    fn delivered(&mut self, core: &mut Core, result: &Result<(), Contradiction>) {
        if result.is_err() {
            let why = "the sender contradicts itself about the stream's bytes";
            self.fail(core, Failure::Settings(why.to_owned()));
            return;
        }
        let Some(stream) = self.stream.as_mut() else { return };
        core.user.limit_left(Limit::Stream);
        if stream.pieces.announce() {
            core.user.indicate(Indication::Readable { id: self.id });
        }
        self.check_ended(core);
    }

    fn check_ended(&mut self, core: &mut Core) {
        let Some(stream) = self.stream.as_mut() else { return };
        if self.state == State::Receiving && stream.pieces.has_ended && stream.pieces.is_empty() {
            stream.clear(core);
            self.state = State::Done;
            self.finished(core, Ok(()), None);
        }
    }

    /// Takes the next readable piece.
    pub(crate) fn read(&mut self, core: &mut Core) -> Option<Piece> {
        let stream = self.stream.as_mut()?;
        let piece = stream.pieces.read(core);
        if piece.is_some() {
            core.user.limit_left(Limit::WriteBuffer);
        }
        self.check_ended(core);
        piece
    }

    /// Makes room for a block by dropping the last block after it.
    pub(super) fn make_stream_room(&mut self, core: &mut Core, before: Option<u32>) -> bool {
        let Some(stream) = self.stream.as_mut() else { return false };
        let before = before.map(|block| stream.unwrap(block));
        let last = stream.blocks.keys().next_back().copied();
        let Some(last) = last.filter(|last| before.is_none_or(|before| before < *last)) else {
            return false;
        };
        let part = stream.blocks.get(&last);
        core.stats.data_dropped += part.map_or(0, |part| u64::from(part.block.have.len()));
        stream.drop_block(core, last);
        true
    }
}
