//! Stream-specific part of sending (RFC 5740 §4.2.1, NORM_OBJECT_STREAM): bytes are written over
//! time, all blocks have the full length, and new blocks overwrite the oldest.

use std::time::Duration;

use crate::fec::Partition;
use engine::Time;

use super::ring::{Place, Ring, Size};
use super::{
    Core, Cut, EXPLICIT, Failure, Flags, Mark, Outgoing, Output, Repaired, Shape, State, Turn,
};
use crate::bits::Bits;
use crate::indication::{Content, StreamOptions};
use crate::message::{PayloadId, STREAM_HEADER_LEN};

/// State of a writable stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writing {
    /// Number of segments up to the announced end.
    announced: u64,
    /// Whether the user waits to write to a stream that is not open yet.
    is_awaited: bool,
    /// Whether the user closed it.
    is_ended: bool,
}

impl Outgoing {
    /// Partitions a stream into segments.
    pub(super) fn cut_stream(&mut self, cut: Cut, options: StreamOptions) -> Result<(), Failure> {
        let header = STREAM_HEADER_LEN as u16;
        let most = cut.room.saturating_sub(header);
        let segment = cut.coding.fitting(cut.segment.min(most));
        if segment == 0 {
            return Err(Failure::Settings("the path takes no segment of a stream".to_owned()));
        }
        let scheme = cut.coding.scheme;
        let mask = scheme.block_mask(16);
        let size = Size { block_len: cut.coding.block_len, segment, mask };
        let mut ring = Ring::new(size, options.buffer, options.push);
        if self.writing.is_ended {
            ring.close();
        }
        let fti = cut.coding.fti(ring.bytes(), segment);
        let settings = |error: crate::fec::PartitionError| Failure::Settings(error.to_string());
        let partition = Partition::new(0, segment, size.block_len).map_err(settings)?;
        self.shape = Some(Shape {
            object: self.number(),
            flags: self.flags(),
            partition,
            coding: cut.coding,
            fti,
            has_fti: cut.has_fti,
            symbol_len: segment + header,
            is_stream: true,
        });
        self.ring = Some(ring);
        self.state = State::Sending;
        Ok(())
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    /// Whether the object is a stream that is writable, or whose end was not sent.
    pub(crate) fn is_open_stream(&self) -> bool {
        self.is_stream() && !self.ring.as_ref().is_some_and(Ring::has_ended)
    }

    /// Whether everything written and all requested repairs were sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_sent() && !self.has_repairs() && self.requests.marks.is_empty()
    }

    /// Notes that segments up to this number were announced often enough.
    pub(crate) fn on_announced(&mut self, segments: u64) {
        self.writing.announced = self.writing.announced.max(segments);
    }

    pub(crate) fn segments_announced(&self) -> u64 {
        self.writing.announced
    }

    /// Number of segments sent.
    pub(crate) fn segments_sent(&self) -> u64 {
        let Some(ring) = &self.ring else { return 0 };
        let (next, block_len) = (ring.next, ring.block_len());
        next.block * u64::from(block_len) + u64::from(next.symbol.min(block_len))
    }

    /// Appends bytes to a stream, as many as fit.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(ring) = self.ring.as_mut() else {
            self.writing.is_awaited |= !bytes.is_empty();
            return 0;
        };
        let (taken, left) = ring.write(bytes);
        self.size = ring.written;
        self.forget(left);
        taken
    }

    /// Whether to notify the waiting user of new room; `true` once.
    pub(crate) fn announce_room(&mut self) -> bool {
        let Some(ring) = self.ring.as_mut() else { return false };
        std::mem::take(&mut self.writing.is_awaited) || ring.announce_room()
    }

    /// Marks the next byte as the beginning of a message.
    pub(crate) fn begin_message(&mut self) {
        if let Some(ring) = self.ring.as_mut() {
            ring.begin_message();
        }
    }

    /// Sends an incomplete segment.
    pub(crate) fn flush(&mut self) {
        let left = self.ring.as_mut().map(Ring::flush);
        self.forget(left.unwrap_or_default());
    }

    /// Closes a stream.
    pub(crate) fn end_stream(&mut self) {
        self.writing.is_ended = true;
        let left = self.ring.as_mut().map(Ring::close);
        self.forget(left.unwrap_or_default());
    }

    /// Whether a stream accepts data.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_stream() && !self.writing.is_ended
    }

    /// Whether it has unsent segments.
    pub(crate) fn has_new(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::has_new)
    }

    /// Forgets requests for blocks that were overwritten.
    fn forget(&mut self, left: Vec<u64>) {
        for block in left {
            let Some(block) = self.ring.as_ref().map(|ring| ring.wire(block)) else { return };
            self.requests.marks.parts.remove(&block);
            self.repaired.remove(&block);
            self.parity.forget(block);
        }
    }

    /// Whether a block of a stream is no longer held.
    pub(crate) fn has_left(&self, block: u32) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.has_left(block))
    }

    /// First segment held.
    pub(crate) fn first_id(&self) -> Option<PayloadId> {
        let ring = self.ring.as_ref()?;
        self.shape.as_ref().map(|shape| shape.id(ring.wire(ring.first), 0))
    }

    /// Sends new segments.
    pub(super) fn emit_stream(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Turn {
        loop {
            let Some(ring) = self.ring.as_ref() else { return Turn::Over };
            let turn = if ring.next.symbol < shape.coding.block_len {
                self.emit_stream_source(out, shape)
            } else {
                self.emit_stream_parity(out, shape)
            };
            if let Some(turn) = turn {
                return turn;
            }
        }
    }

    /// Sends the next source segment. Returns the turn's outcome if no more can follow now.
    fn emit_stream_source(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Option<Turn> {
        let Some(ring) = self.ring.as_mut() else { return Some(Turn::Over) };
        let at = ring.next;
        let Some(payload) = ring.segment(at) else { return Some(Turn::Over) };
        let id = shape.id(ring.wire(at.block), at.symbol);
        if !shape.push(out, Flags::NONE, id, payload) {
            return Some(Turn::More);
        }
        if at.symbol == 0 {
            self.proactive.count = shape.coding.auto_parity;
        }
        self.proactive.add(shape, at.symbol, payload);
        ring.on_new_sent(out.departure());
        self.has_begun = true;
        None
    }

    /// Sends the next proactive parity segment of a block whose source segments were all sent.
    fn emit_stream_parity(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Option<Turn> {
        let Some(ring) = self.ring.as_mut() else { return Some(Turn::Over) };
        let at = ring.next;
        let row = at.symbol - shape.coding.block_len;
        let Some(payload) = self.proactive.segment(row) else {
            ring.on_block_sent();
            self.repeat_stream_info(out.core, at.block + 1);
            return None;
        };
        let id = shape.id(ring.wire(at.block), at.symbol);
        if !shape.push(out, Flags::NONE, id, payload) {
            return Some(Turn::More);
        }
        out.core.stats.auto_parity += 1;
        ring.on_new_sent(out.departure());
        None
    }

    /// Notes that a block was sent with its parity: a repetition of NORM_INFO may be due.
    fn repeat_stream_info(&mut self, core: &Core, blocks: u64) {
        let every = u64::from(core.config.sender.info_every);
        let is_coded = core.config.sender.auto_parity > 0;
        if is_coded && every > 0 && blocks.is_multiple_of(every) {
            self.info_turn.is_due = self.has_info();
        }
    }

    /// Notes that a receiver has nothing of some blocks, given by their numbers in messages.
    pub(super) fn mark_stream_blocks(&mut self, core: &mut Core, first: u32, last: u32) -> bool {
        let Some(ring) = &self.ring else { return false };
        let mask = self.shape.as_ref().map_or(0, |shape| shape.coding.scheme.block_mask(16));
        let is_all = (first, last) == (0, u32::MAX);
        let count = last.wrapping_sub(first) & mask;
        let blocks = ring.sent_blocks().map(|block| ring.wire(block));
        let blocks = blocks.filter(|block| is_all || block.wrapping_sub(first) & mask <= count);
        let blocks: Vec<_> = blocks.collect();
        let mut any = false;
        for block in blocks {
            any |= self.mark(core, block, &super::Symbols::default());
        }
        any
    }

    /// Decides how to repair an incomplete block, which has no parity yet. Returns `true` if
    /// nothing else can be done.
    pub(super) fn commit_stream_block(
        &mut self,
        now: Time,
        round_trip: Duration,
        shape: &Shape,
        block: u32,
        mark: &Mark,
    ) -> bool {
        let Some(ring) = self.ring.as_mut() else { return false };
        let Some(number) = ring.find(block) else { return true };
        ring.touch(number, now);
        if ring.is_complete(number) {
            return false;
        }
        let block_len = shape.coding.block_len;
        let auto_parity = shape.coding.auto_parity;
        let repaired = self.repaired.entry(block).or_insert_with(|| Repaired::new(auto_parity));
        repaired.requested(now, round_trip);
        // Parity exists only when the whole block is written: for any parity request, source
        // segments are missing.
        let is_whole = mark.is_whole || mark.symbols.len() < mark.missing;
        let is_whole = is_whole || mark.symbols.iter().any(|symbol| symbol >= block_len);
        let is_requested = |symbol: &u16| is_whole || mark.symbols.contains(*symbol);
        let symbols = (0..block_len).filter(is_requested).filter(|symbol| repaired.again(*symbol));
        let symbols: Vec<_> = symbols.collect();
        self.retransmit(block, symbols);
        true
    }

    /// Queues segments of a block for retransmission.
    pub(super) fn retransmit(&mut self, block: u32, symbols: Vec<u16>) {
        let Some(ring) = self.ring.as_mut() else { return };
        let Some(block) = ring.find(block) else { return };
        for symbol in symbols {
            ring.retransmit(Place { block, symbol });
        }
    }

    /// Computes parity of a complete block.
    pub(super) fn make_stream_parity(
        &mut self,
        core: &mut Core,
        shape: &Shape,
        block: u32,
        rows: &Bits,
    ) {
        let Some(ring) = self.ring.take() else { return };
        if let Some(data) = ring.find(block).and_then(|number| ring.coded(number)) {
            self.parity.make(&mut core.long, shape, block, rows, data);
        }
        self.ring = Some(ring);
    }

    /// Retransmits segments.
    pub(super) fn emit_again(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Turn {
        loop {
            let Some(ring) = self.ring.as_mut() else { return Turn::Over };
            let Some(place) = ring.next_again() else { return Turn::Over };
            let block = ring.wire(place.block);
            if let Some(payload) = ring.segment(place) {
                if !shape.push(out, EXPLICIT, shape.id(block, place.symbol), payload) {
                    return Turn::More;
                }
                out.core.stats.explicit_repairs += 1;
            }
            ring.on_again_sent(place, out.departure());
            self.on_repair_sent(out, block);
        }
    }

    /// Number, counted from 1, of the segment that a message names, if it was sent.
    pub(crate) fn segment_number(&self, id: PayloadId) -> Option<u64> {
        let ring = self.ring.as_ref()?;
        let block = ring.unwrap(id.block)?;
        let number = block * u64::from(ring.block_len()) + u64::from(id.symbol) + 1;
        let is_one = id.symbol < ring.block_len() && number <= self.segments_sent();
        is_one.then_some(number)
    }

    /// Allows blocks to be overwritten that end before the segments acknowledged by all receivers.
    pub(crate) fn release(&mut self, segments: u64) {
        let block_len = self.ring.as_ref().map_or(1, Ring::block_len);
        self.release_before(segments / u64::from(block_len));
    }

    fn release_before(&mut self, block: u64) {
        let left = self.ring.as_mut().map(|ring| ring.release(block));
        self.forget(left.unwrap_or_default());
    }

    /// Allows blocks to be overwritten that were neither sent nor requested for `keep`. Returns the
    /// time of the next, if the user waits for room.
    pub(crate) fn release_old(&mut self, now: Time, keep: Duration) -> Option<Time> {
        while let Some(ring) = self.ring.as_ref().filter(|ring| ring.wants_room()) {
            let (block, touched) = ring.oldest()?;
            if touched + keep > now {
                return (!ring.has_room()).then_some(touched + keep);
            }
            self.release_before(block + 1);
        }
        None
    }

    /// Number of segments in sent blocks, if it exceeds the number of announced segments by half
    /// of the capacity, so that acknowledgements are due. Otherwise 0.
    pub(crate) fn half_sent(&self) -> u64 {
        let Some(ring) = &self.ring else { return 0 };
        let block_len = u64::from(ring.block_len());
        let segments = ring.next.block * block_len;
        let half = (ring.capacity as u64 / 2).max(1) * block_len;
        if segments >= self.writing.announced + half { segments } else { 0 }
    }

    /// Payload identifier of a segment counted from 1.
    pub(crate) fn segment_id(&self, segment: u64) -> PayloadId {
        let (Some(ring), Some(shape)) = (&self.ring, &self.shape) else {
            return PayloadId::default();
        };
        let place = ring.place(segment);
        shape.id(ring.wire(place.block), place.symbol)
    }

    /// Bytes of the stream up to a segment counted from 1.
    pub(crate) fn bytes_before(&self, segment: u64) -> u64 {
        let Some(ring) = &self.ring else { return 0 };
        ring.bytes_through(ring.place(segment)).unwrap_or(ring.sent)
    }
}
