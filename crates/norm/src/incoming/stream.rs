//! Stream-specific part of reception (RFC 5740 §4.2.1, NORM_OBJECT_STREAM). A stream has no known
//! end, its bytes are delivered in order as they arrive, and its sender keeps only the most recent
//! ones.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use engine::Time;

use super::pieces::{Contradiction, Pieces};
use super::requests::{request_run, request_symbols};
use super::{
    Block, Core, Failure, Indication, Limit, ObjectId, Outcome, PIECE_COST, Piece, RequestRound,
    Shape,
};
use crate::bits::Bits;
use crate::config::Join;
use crate::message::{
    Data, PayloadId, Position, Request, RequestFlags, RequestWriter, STREAM_HEADER_LEN,
    StreamHeader,
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
    id: ObjectId,
    pub(super) shape: Shape,
    block_len: u16,
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
    pub(super) newest: u64,
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
    /// Stream of this shape; an error if there is no room for its blocks.
    pub(super) fn new(core: &mut Core, id: ObjectId, shape: Shape) -> Result<Self, Failure> {
        let (fti, limits) = (shape.fti, &core.config.limits);
        let symbol_len = STREAM_HEADER_LEN + usize::from(fti.segment_size);
        let block = u64::from(fti.block_len) * u64::from(fti.segment_size);
        let mask = shape.scheme.block_mask(16);
        let most = u64::from(mask / 4).max(2);
        let window = limits.stream / (usize::from(fti.block_len) * symbol_len).max(1);
        let window = window.min(limits.repairs) as u64;
        let kept = fti.object_size.checked_div(block).filter(|_| window > 0);
        let Some(kept) = kept.map(|kept| kept.clamp(1, most)) else {
            core.user.limit_reached(Limit::Stream);
            return Err(Failure::Settings("its blocks are larger than allowed".to_owned()));
        };
        let room = shape.coding.room(fti.block_len, symbol_len, limits.coding_work);
        Ok(Self {
            id,
            shape: Shape { room, ..shape },
            block_len: fti.block_len,
            symbol_len,
            mask,
            kept,
            window: kept.min(window),
            next: None,
            newest: 0,
            through: Place::default(),
            blocks: BTreeMap::new(),
            requested: Requested::default(),
            pieces: Pieces::default(),
        })
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
    fn expected(&self) -> Range<u64> {
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
            part.block.wanted(self.block_len, &self.shape.coding, self.shape.room.usable)
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

    fn position(&self, object: u16, block: u64, symbol: u16) -> Position {
        let Shape { scheme, coding, .. } = &self.shape;
        let id = coding.payload_id(self.block_len, self.wire(block), symbol);
        Position { fec: *scheme, object, id }
    }

    /// Requests everything missing. Returns `false` if there was no room for all.
    pub(super) fn request(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        RequestRound { now, since, .. }: RequestRound,
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
            while let Some((first, end)) = empty.next_if(|(first, _)| *first < number) {
                if !self.request_blocks(writer, object, first..end, now) {
                    return false;
                }
            }
            if !self.request_part(writer, object, number, now) {
                return false;
            }
        }
        empty.all(|(first, end)| self.request_blocks(writer, object, first..end, now))
    }

    fn request_blocks(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        blocks: Range<u64>,
        now: Time,
    ) -> bool {
        let Range { start: mut first, end } = blocks;
        while first < end {
            // A range must not wrap.
            let stop = end.min((first | u64::from(self.mask)) + 1);
            if !request_run(writer, first..stop, |number| self.position(object, number, 0)) {
                return false;
            }
            self.requested.note_blocks(first..stop, now);
            first = stop;
        }
        true
    }

    fn request_part(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        number: u64,
        now: Time,
    ) -> bool {
        let part = self.blocks.get(&number);
        let wanted = self.wanted(number, part);
        let is_requested = self.requested.is_block_requested(number)
            || part.is_some_and(|part| part.block.is_requested(&wanted, self.block_len));
        let position = |symbol| self.position(object, number, symbol);
        if !is_requested && !request_symbols(writer, &wanted, position) {
            return false;
        }
        match self.blocks.get_mut(&number) {
            Some(part) => part.block.requested_at = Some(now),
            None => self.requested.note_blocks(number..number + 1, now),
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
            self.requested.note_blocks_by_others(start..end);
            return;
        }
        let number = self.unwrap(from);
        let (block_len, parity) = (self.block_len, self.shape.coding.parity);
        if let Some(part) = self.blocks.get_mut(&number) {
            let (first, last) = (first.id.symbol, last.id.symbol);
            part.block.note_others(request.form, first, last, block_len, parity);
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
        self.requested.forget_others_of(number);
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

    /// Notes that this is the sender's last segment so far.
    pub(super) fn on_flush(&mut self, core: &Core, id: PayloadId) {
        if self.pieces.has_ended {
            return;
        }
        let block = self.note_block(id.block, core.config.receiver.streams);
        let symbol = id.symbol.saturating_add(1);
        let is_last = symbol >= self.block_len;
        // If an earlier message named a later segment, either that was damaged, or this one is late
        // and the next corrects it.
        self.through =
            if is_last { Place { block: block + 1, symbol: 0 } } else { Place { block, symbol } };
    }

    /// Notes that the sender dropped all blocks before this one.
    pub(super) fn prune(&mut self, core: &mut Core, id: PayloadId) -> Outcome {
        let Some(next) = self.next else { return Outcome::Taken };
        let block = self.unwrap(id.block);
        // The sender still has something; the block must not be far ahead of those received.
        if block <= next.block || block > self.newest + self.kept {
            return Outcome::Taken;
        }
        let result = self.skip_to(core, block);
        self.on_delivered(core, &result)
    }

    /// Processes a segment.
    pub(super) fn on_data(&mut self, core: &mut Core, data: &Data<'_>) -> Outcome {
        let (shape, symbol, len) = (&self.shape, data.id.symbol, data.payload.len());
        let is_source = symbol < self.block_len;
        let fits = u32::from(symbol) < u32::from(self.block_len) + u32::from(shape.fti.parity)
            && (1..=self.symbol_len).contains(&len)
            && (!is_source || StreamHeader::decode(data.payload).is_ok());
        if shape.scheme != data.fec || !fits {
            return Outcome::Misplaced;
        }
        if !is_source && shape.room.usable == 0 {
            core.stats.data_dropped += 1;
            return Outcome::Taken;
        }
        if !core.admit_write() {
            return Outcome::Taken;
        }
        let number = self.note_block(data.id.block, core.config.receiver.streams);
        self.through = self.through.max(Place { block: number, symbol: 0 });
        let Some(next) = self.next else { return Outcome::Taken };
        if number < next.block || self.pieces.has_ended {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        if number - next.block >= self.kept {
            // Blocks farther back were overwritten.
            let result = self.skip_to(core, number + 1 - self.kept);
            let outcome = self.on_delivered(core, &result);
            let is_behind = self.next.is_none_or(|next| number < next.block);
            if outcome == Outcome::Garbled || is_behind || self.pieces.has_ended {
                return outcome;
            }
        }
        self.put(core, number, data)
    }

    fn put(&mut self, core: &mut Core, number: u64, data: &Data<'_>) -> Outcome {
        let (symbol, block_len) = (data.id.symbol, self.block_len);
        if self.next.is_none_or(|next| number - next.block >= self.window) {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Stream);
            return Outcome::Taken;
        }
        if !self.room_for(core, number) {
            return Outcome::NoRoom;
        }
        let Some(part) = self.blocks.get_mut(&number) else { return Outcome::Taken };
        let block = &mut part.block;
        if symbol >= block_len && block.parity.len() >= usize::from(self.shape.room.usable) {
            core.stats.data_dropped += 1;
            return Outcome::Taken;
        }
        if part.is_whole || !block.have.insert(symbol) {
            core.stats.duplicate_data += 1;
            return Outcome::Taken;
        }
        block.add(symbol, block_len, self.symbol_len, data.payload);
        if block.have.len() >= u32::from(block_len) {
            part.is_whole = block.parity.is_empty() || self.shape.recover(core, block, block_len);
            core.stats.data_dropped += u64::from(!part.is_whole);
        }
        let result = self.deliver(core);
        self.on_delivered(core, &result)
    }

    /// Indicates readable data.
    fn on_delivered(&mut self, core: &mut Core, result: &Result<(), Contradiction>) -> Outcome {
        if result.is_err() {
            return Outcome::Garbled;
        }
        core.user.limit_left(Limit::Stream);
        if self.pieces.announce() {
            core.user.indicate(Indication::Readable { id: self.id });
        }
        Outcome::Completed
    }

    /// Whether the whole stream was read.
    pub(super) fn is_read(&self) -> bool {
        self.pieces.has_ended && self.pieces.is_empty()
    }

    /// Takes the next readable piece.
    pub(super) fn read(&mut self, core: &mut Core) -> Option<Piece> {
        let piece = self.pieces.read(core);
        if piece.is_some() {
            core.user.limit_left(Limit::WriteBuffer);
        }
        piece
    }

    /// Makes room for a block by dropping the last block after it.
    pub(super) fn make_room(&mut self, core: &mut Core, before: Option<u32>) -> bool {
        let before = before.map(|block| self.unwrap(block));
        let last = self.blocks.last_key_value();
        let last = last.filter(|(last, _)| before.is_none_or(|before| before < **last));
        let Some((number, part)) = last else { return false };
        core.stats.data_dropped += u64::from(part.block.have.len());
        let number = *number;
        self.drop_block(core, number);
        true
    }
}
