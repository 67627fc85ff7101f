//! Bytes of a stream being sent: unsent ones, and those kept for retransmission.

use std::collections::{BTreeSet, VecDeque};

use bytes::BytesMut;
use engine::Time;

use crate::message::{STREAM_HEADER_LEN, StreamHeader};

/// Minimum number of blocks kept, as in the reference library.
const BLOCKS_MIN: usize = 2;

/// Segment of a stream, with an unwrapped block number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) block: u64,
    pub(super) symbol: u16,
}

/// Dimensions of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Source segments of a block.
    pub(super) block_len: u16,
    /// Bytes of stream data in a segment.
    pub(super) segment: u16,
    /// Largest block number in messages, after which numbers wrap.
    pub(super) mask: u32,
}

/// Most recent blocks of a stream.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    size: Size,
    /// Maximum number of blocks held.
    pub(super) capacity: usize,
    /// Whether written data overwrites the oldest block, even if receivers lack it.
    push: bool,
    blocks: VecDeque<Block>,
    /// Number of the first block held.
    pub(super) first: u64,
    /// Next segment to be sent for the first time; proactive parity is numbered after the block's
    /// segments.
    pub(super) next: Place,
    /// Bytes that do not fill a segment yet.
    rest: BytesMut,
    /// Offset of the first message start in `rest` plus 1; 0 if none.
    message_start: u16,
    /// Whether the next byte begins a message.
    begins_message: bool,
    /// Bytes written so far.
    pub(super) written: u64,
    /// Bytes up to the end of the last segment sent.
    pub(super) sent: u64,
    end: End,
    /// First block that may not be overwritten.
    free: u64,
    /// Segments to retransmit.
    again: BTreeSet<Place>,
    /// Whether the user waits for room.
    wants_room: bool,
    /// Whether an incomplete segment waits for room to be flushed.
    is_flush_due: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Closed for writing; the segment that ends the stream has no room yet.
    Closing,
    Closed,
}

#[derive(Debug)]
struct Block {
    /// Concatenated segments, short ones padded with zeros.
    buffer: BytesMut,
    /// Length of each segment as sent.
    lens: Vec<u16>,
    /// Time of its last transmission or request.
    touched: Time,
}

impl Ring {
    pub(super) fn new(size: Size, bytes: usize, push: bool) -> Self {
        let block = usize::from(size.block_len) * usize::from(size.segment);
        // Receivers distinguish old from new numbers by half of the number space.
        let most = usize::try_from(size.mask / 4).unwrap_or(usize::MAX).max(BLOCKS_MIN);
        let capacity = (bytes / block).clamp(BLOCKS_MIN, most);
        Self { size, capacity, push, begins_message: true, ..Self::default() }
    }

    /// Capacity in bytes: announced as the object's size (RFC 5740 §5.1).
    pub(super) fn bytes(&self) -> u64 {
        let block = u64::from(self.size.block_len) * u64::from(self.size.segment);
        self.capacity as u64 * block
    }

    /// Bytes of a coded segment.
    fn symbol_len(&self) -> usize {
        STREAM_HEADER_LEN + usize::from(self.size.segment)
    }

    /// Block number in messages.
    pub(super) fn wire(&self, block: u64) -> u32 {
        (block & u64::from(self.size.mask)) as u32
    }

    /// Unwraps a block number of a message relative to the next block to be sent.
    pub(super) fn unwrap(&self, block: u32) -> Option<u64> {
        let behind = self.wire(self.next.block).wrapping_sub(block) & self.size.mask;
        self.next.block.checked_sub(u64::from(behind))
    }

    /// Block named in a message, if it is held and something of it was sent.
    pub(super) fn find(&self, block: u32) -> Option<u64> {
        let block = self.unwrap(block)?;
        let was_sent = Place { block, symbol: 0 } < self.next;
        (was_sent && block >= self.first).then_some(block)
    }

    /// Whether a message names a block that was sent and is no longer held.
    pub(super) fn has_left(&self, block: u32) -> bool {
        self.unwrap(block).is_some_and(|block| block < self.first)
    }

    /// Blocks held that were sent at least in part.
    pub(super) fn sent_blocks(&self) -> std::ops::Range<u64> {
        let last = self.next.block + u64::from(self.next.symbol > 0);
        self.first..last.max(self.first)
    }

    /// Last segment sent; `None` before the first.
    pub(super) fn last_sent(&self) -> Option<Place> {
        let Place { block, symbol } = self.next;
        match symbol.min(self.size.block_len) {
            0 => {
                let symbol = self.size.block_len - 1;
                Some(Place { block: block.checked_sub(1)?, symbol })
            }
            symbol => Some(Place { block, symbol: symbol - 1 }),
        }
    }

    /// Whether all source segments of a block were sent.
    pub(super) fn is_complete(&self, block: u64) -> bool {
        block < self.next.block
            || block == self.next.block && self.next.symbol >= self.size.block_len
    }

    /// Whether its end was sent.
    pub(super) fn has_ended(&self) -> bool {
        self.end == End::Closed && !self.has_new()
    }

    /// Whether to notify the waiting user of new room; `true` once.
    pub(super) fn announce_room(&mut self) -> bool {
        let has_room = self.wants_room && self.has_room();
        self.wants_room &= !has_room;
        has_room
    }

    pub(super) fn wants_room(&self) -> bool {
        self.wants_room || self.is_flush_due || self.end == End::Closing
    }

    /// Marks the next byte written as the beginning of a message.
    pub(super) fn begin_message(&mut self) {
        self.begins_message = true;
    }

    /// Appends as many bytes as there is room for. Returns their number and the blocks overwritten.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> (usize, Vec<u64>) {
        let len = bytes.len();
        let mut left = Vec::new();
        let segment = usize::from(self.size.segment);
        while !bytes.is_empty() && self.end == End::Open {
            // A full segment that found no room before.
            if self.rest.len() == segment && !self.commit(&mut left) {
                break;
            }
            if std::mem::take(&mut self.begins_message) && self.message_start == 0 {
                self.message_start = self.rest.len() as u16 + 1;
            }
            let (now, later) = bytes.split_at(bytes.len().min(segment - self.rest.len()));
            self.rest.extend_from_slice(now);
            self.written += now.len() as u64;
            bytes = later;
            if self.rest.len() == segment {
                self.commit(&mut left);
            }
        }
        self.wants_room |= !bytes.is_empty() && self.end == End::Open;
        (len - bytes.len(), left)
    }

    /// Makes a segment of the remaining bytes. Returns the blocks overwritten.
    pub(super) fn flush(&mut self) -> Vec<u64> {
        let mut left = Vec::new();
        self.is_flush_due = !self.rest.is_empty() && !self.commit(&mut left);
        if self.end == End::Closing && !self.is_flush_due && self.commit(&mut left) {
            self.end = End::Closed;
        }
        left
    }

    /// Closes the stream (RFC 5740 §4.2.1, NORM_STREAM_END). Returns the blocks overwritten.
    pub(super) fn close(&mut self) -> Vec<u64> {
        if self.end == End::Open {
            self.end = End::Closing;
        }
        self.flush()
    }

    /// Makes a segment of the remaining bytes. Returns `false` if there is no room for it.
    fn commit(&mut self, left: &mut Vec<u64>) -> bool {
        if !self.make_room(left) {
            return false;
        }
        let symbol_len = self.symbol_len();
        let len = self.rest.len() as u16;
        let header = StreamHeader {
            len,
            message_start: self.message_start,
            offset: (self.written - u64::from(len)) as u32,
        };
        let Some(block) = self.blocks.back_mut() else { return false };
        block.buffer.extend_from_slice(&header.encode());
        block.buffer.extend_from_slice(&self.rest);
        block.lens.push(STREAM_HEADER_LEN as u16 + len);
        block.buffer.resize(block.lens.len() * symbol_len, 0);
        self.rest.clear();
        self.message_start = 0;
        true
    }

    fn is_full(&self, block: &Block) -> bool {
        block.lens.len() >= usize::from(self.size.block_len)
    }

    pub(super) fn has_room(&self) -> bool {
        self.blocks.back().is_some_and(|block| !self.is_full(block))
            || self.blocks.len() < self.capacity
            || self.may_leave()
    }

    /// Whether the first block may be overwritten.
    fn may_leave(&self) -> bool {
        let was_sent = self.first < self.next.block;
        self.push || was_sent && self.first < self.free
    }

    /// Makes room for one more segment in the last block.
    fn make_room(&mut self, left: &mut Vec<u64>) -> bool {
        if self.blocks.back().is_some_and(|block| !self.is_full(block)) {
            return true;
        }
        let size = usize::from(self.size.block_len) * self.symbol_len();
        let mut buffer = None;
        if self.blocks.len() >= self.capacity {
            if !self.may_leave() {
                return false;
            }
            let old = self.blocks.pop_front();
            left.push(self.first);
            self.first += 1;
            if self.next.block < self.first {
                self.next = Place { block: self.first, symbol: 0 };
            }
            self.again = self.again.split_off(&Place { block: self.first, symbol: 0 });
            buffer = old.map(|old| old.buffer);
        }
        let mut buffer = buffer.unwrap_or_else(|| BytesMut::with_capacity(size));
        buffer.clear();
        self.blocks.push_back(Block { buffer, lens: Vec::new(), touched: Time::ZERO });
        true
    }

    fn block(&self, block: u64) -> Option<&Block> {
        let at = usize::try_from(block.checked_sub(self.first)?).ok()?;
        self.blocks.get(at)
    }

    /// A segment as it is sent.
    pub(super) fn segment(&self, place: Place) -> Option<&[u8]> {
        let block = self.block(place.block)?;
        let len = usize::from(*block.lens.get(usize::from(place.symbol))?);
        let at = usize::from(place.symbol) * self.symbol_len();
        block.buffer.get(at..at + len)
    }

    /// Concatenated segments of a block, for its parity; `None` if the block is incomplete.
    pub(super) fn coded(&self, block: u64) -> Option<&[u8]> {
        let block = self.block(block).filter(|block| self.is_full(block))?;
        Some(&block.buffer)
    }

    /// Whether there are unsent segments or unsent proactive parity.
    pub(super) fn has_new(&self) -> bool {
        self.next.symbol >= self.size.block_len || self.segment(self.next).is_some()
    }

    pub(super) fn block_len(&self) -> u16 {
        self.size.block_len
    }

    /// Place of a segment counted from 1.
    pub(super) fn place(&self, segment: u64) -> Place {
        let block_len = u64::from(self.size.block_len);
        let before = segment.saturating_sub(1);
        Place { block: before / block_len, symbol: (before % block_len) as u16 }
    }

    /// Advances after a new segment or proactive parity segment was sent.
    pub(super) fn on_new_sent(&mut self, at: Time) {
        if self.next.symbol < self.size.block_len {
            self.sent = self.bytes_through(self.next).unwrap_or(self.sent);
        }
        self.touch(self.next.block, at);
        self.next.symbol += 1;
    }

    /// Bytes up to the end of a segment that is held.
    pub(super) fn bytes_through(&self, place: Place) -> Option<u64> {
        let (header, _) = StreamHeader::decode(self.segment(place)?).ok()?;
        let end = header.offset.wrapping_add(u32::from(header.len));
        // Segments held are closer than the offsets' wrap-around.
        Some(self.written - u64::from((self.written as u32).wrapping_sub(end)))
    }

    /// Ends the block being sent, with its parity.
    pub(super) fn on_block_sent(&mut self) {
        self.next = Place { block: self.next.block + 1, symbol: 0 };
    }

    /// Notes a transmission or a request of a block.
    pub(super) fn touch(&mut self, block: u64, at: Time) {
        let index = block.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(block) = index.and_then(|index| self.blocks.get_mut(index)) {
            block.touched = block.touched.max(at);
        }
    }

    /// Allows blocks before this one to be overwritten.
    pub(super) fn release(&mut self, before: u64) -> Vec<u64> {
        self.free = self.free.max(before);
        let is_due = self.is_flush_due || self.end == End::Closing;
        if is_due { self.flush() } else { Vec::new() }
    }

    /// First block that may not be overwritten though it was sent, and the time it was last
    /// touched.
    pub(super) fn oldest(&self) -> Option<(u64, Time)> {
        let block = self.first.max(self.free);
        let touched = self.block(block).filter(|_| block < self.next.block)?.touched;
        Some((block, touched))
    }

    /// Queues a segment for retransmission, if it was sent before.
    pub(super) fn retransmit(&mut self, place: Place) {
        if place < self.next && self.segment(place).is_some() {
            self.again.insert(place);
        }
    }

    /// Next segment to retransmit.
    pub(super) fn next_again(&self) -> Option<Place> {
        self.again.first().copied()
    }

    pub(super) fn on_again_sent(&mut self, place: Place, at: Time) {
        self.again.remove(&place);
        self.touch(place.block, at);
    }
}
