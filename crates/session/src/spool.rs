//! Working file of a reception: data collected into large writes, and the checksum of the written
//! data.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, OpenMode};

use crate::UnexpectedLength;
use crate::path::Handle;
use crate::ranges::Ranges;
use crate::storage::Storage;
use crate::sum::{READS_MAX, Reading, Sum, Value};

/// Overhead of a piece of data in memory, in bytes.
const PIECE_COST: usize = 64;

/// Capacity of the first buffer of a file, in bytes.
const FIRST_BUFFER: usize = 4 << 10;

/// Working file of a reception. Its [`Delivery`](crate::delivery::Delivery) decides when it is
/// written, synced and read.
#[derive(Debug)]
pub struct Spool {
    /// Name of the file.
    pub name: FileName,
    file: Option<FileId>,
    /// Length of the file when it was opened.
    len: u64,
    /// Data not passed to the store yet: `buffer` begins at `start`.
    start: u64,
    buffer: BytesMut,
    /// Capacity of the last buffer when it was allotted.
    allotted: usize,
    /// Pieces waiting for the file to be open.
    parked: VecDeque<(u64, Bytes)>,
    parked_len: usize,
    /// Whether opening was requested, so that new data counts as unwritten.
    opening: bool,
    writes: usize,
    digest: Option<Digest>,
}

/// Checksum of the file, as far as computed.
#[derive(Debug)]
struct Digest {
    reading: Reading,
    /// Parts to read back, for a checksum that takes them in any order.
    owed: VecDeque<(u64, u64)>,
}

impl Spool {
    /// A file that is not open yet.
    pub(crate) fn new(name: FileName) -> Self {
        Self {
            name,
            file: None,
            len: 0,
            start: 0,
            buffer: BytesMut::new(),
            allotted: 0,
            parked: VecDeque::new(),
            parked_len: 0,
            opening: false,
            writes: 0,
            digest: None,
        }
    }

    /// Opens the file, with a checksum or none. `kept` are the parts written by an earlier run.
    pub(crate) fn open(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        sum: Option<Sum>,
        mode: OpenMode,
        kept: &Ranges,
    ) {
        self.digest = sum.map(|sum| Digest {
            owed: if sum.is_sequential() { VecDeque::new() } else { kept.iter().collect() },
            reading: Reading::new(sum),
        });
        self.opening = true;
        storage.room().parked -= self.parked_len;
        storage.room().unwritten += self.parked_len;
        self.parked_len = 0;
        storage.open(handle, self.name.clone(), mode);
    }

    /// Handles the opened file of `len` bytes. Parts of an earlier run beyond that are lost:
    /// removes them from `ranges`, which also hold later arrivals.
    pub(crate) fn opened(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        file: FileId,
        len: u64,
        ranges: &mut Ranges,
    ) {
        self.file = Some(file);
        self.len = len;
        if let Some(digest) = self.digest.as_mut() {
            digest.owed.retain_mut(|(start, end)| {
                *end = (*end).min(len);
                *start < *end
            });
        }
        ranges.remove(len, u64::MAX);
        ranges.insert(self.start, self.start + self.buffer.len() as u64);
        for (offset, bytes) in std::mem::take(&mut self.parked) {
            ranges.insert(offset, offset + bytes.len() as u64);
            self.submit(storage, handle, offset, bytes);
        }
    }

    /// Whether opening was requested.
    pub const fn is_started(&self) -> bool {
        self.opening
    }

    /// The file, once it is open.
    pub fn file(&self) -> Option<FileId> {
        self.file
    }

    /// Whether an earlier run wrote data beyond `size`.
    pub fn was_longer_than(&self, size: u64) -> bool {
        self.len > size
    }

    /// Appends new data. `false` if there is no room for it.
    #[inline]
    pub(crate) fn append(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        offset: u64,
        data: &[u8],
    ) -> bool {
        if !self.has_room(storage, data.len() + PIECE_COST) {
            return false;
        }
        let contiguous = self.start + self.buffer.len() as u64 == offset;
        let is_full = self.buffer.capacity() - self.buffer.len() < data.len();
        let piece = storage.room().write_piece;
        let len = self.buffer.len() + data.len();
        if contiguous && is_full && self.allotted < piece && len <= piece {
            let collected = std::mem::take(&mut self.buffer);
            self.buffer = self.larger_buffer(storage, len);
            self.buffer.extend_from_slice(&collected);
        } else if !contiguous || is_full {
            self.flush(storage, handle);
            self.start = offset;
            // Pieces that do not follow each other share a buffer; otherwise each would hold one.
            if self.buffer.capacity() < data.len() {
                self.buffer = self.larger_buffer(storage, data.len());
            }
        }
        let begins = self.buffer.is_empty();
        self.buffer.extend_from_slice(data);
        let cost = if begins { data.len() + PIECE_COST } else { data.len() };
        if self.opening {
            storage.room().unwritten += cost;
        } else {
            storage.room().parked += cost;
            self.parked_len += cost;
        }
        true
    }

    /// A buffer for at least `len` bytes, twice as large as the last one: many receptions with
    /// little data, which a stranger can begin, take memory for little more than that.
    fn larger_buffer(&mut self, storage: &mut impl Storage, len: usize) -> BytesMut {
        let piece = storage.room().write_piece;
        self.allotted = (2 * self.allotted).max(FIRST_BUFFER).min(piece).max(len);
        if self.allotted < piece {
            BytesMut::with_capacity(self.allotted)
        } else {
            storage.room().take_buffer(self.allotted)
        }
    }

    fn has_room(&self, storage: &mut impl Storage, len: usize) -> bool {
        let limit = storage.room().write_buffer;
        if self.opening {
            storage.room().unwritten + len <= limit
        } else {
            // Nothing can be written before the Metadata; half of the bound is for such data.
            storage.room().parked + len <= limit / 2
        }
    }

    /// Passes collected data to the store.
    pub fn flush(&mut self, storage: &mut impl Storage, handle: Handle) {
        if self.buffer.is_empty() {
            return;
        }
        let bytes = if self.buffer.len() > self.buffer.capacity() / 2 {
            let bytes = std::mem::take(&mut self.buffer).freeze();
            if self.allotted >= storage.room().write_piece {
                storage.room().keep_buffer(&bytes);
            }
            bytes
        } else {
            // A short piece leaves the rest of the buffer to the next one.
            self.buffer.split().freeze()
        };
        let start = self.start;
        self.start += bytes.len() as u64;
        if self.file.is_some() {
            self.submit(storage, handle, start, bytes);
        } else {
            self.parked.push_back((start, bytes));
        }
    }

    fn submit(&mut self, storage: &mut impl Storage, handle: Handle, offset: u64, bytes: Bytes) {
        let Some(file) = self.file else { return };
        if let Some(digest) = self.digest.as_mut() {
            digest.reading.feed(offset, &bytes);
        }
        self.writes += 1;
        let cost = bytes.len() + PIECE_COST;
        storage.write(handle, file, offset, bytes, cost);
    }

    /// Records a completed write.
    pub(crate) fn written(&mut self) {
        self.writes = self.writes.saturating_sub(1);
    }

    /// Whether writes are pending.
    pub(crate) fn is_writing(&self) -> bool {
        self.writes > 0
    }

    /// Requests that everything written so far is stored safely.
    pub(crate) fn sync(&self, storage: &mut impl Storage, handle: Handle) {
        let Some(file) = self.file else { return };
        storage.sync(handle, file);
    }

    /// Reads back the data needed to continue the checksum: the written part of the first `prefix`
    /// bytes, all of which are present.
    pub(crate) fn sum_up(&mut self, storage: &mut impl Storage, handle: Handle, prefix: u64) {
        let (Some(digest), Some(file)) = (self.digest.as_mut(), self.file) else { return };
        let piece = storage.room().read_piece.max(1);
        let reading = &mut digest.reading;
        while let Some((start, end)) = digest.owed.front_mut().filter(|_| reading.reads < READS_MAX)
        {
            let len = piece.min(usize::try_from(*end - *start).unwrap_or(piece));
            storage.read(handle, file, *start, len);
            reading.reads += 1;
            *start += len as u64;
            if start >= end {
                digest.owed.pop_front();
            }
        }
        if reading.sum.is_sequential() {
            let in_buffer = !self.buffer.is_empty() && self.start < prefix;
            let written = if in_buffer { self.start } else { prefix };
            reading.read_on(storage, handle, file, written);
        }
    }

    /// Accepts data read back. An error if it is less than was written.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        self.digest.as_mut().map_or(Ok(()), |digest| digest.reading.take(offset, requested, bytes))
    }

    /// Checksum of a complete file of `size` bytes, once all of it was summed up; without one it is
    /// 0.
    pub(crate) fn value(&self, size: u64) -> Option<Value> {
        let Some(digest) = self.digest.as_ref() else { return Some(Value::Check(0)) };
        let sum = &digest.reading.sum;
        let whole = if sum.is_sequential() {
            sum.position() >= size
        } else {
            digest.owed.is_empty() && digest.reading.reads == 0
        };
        let submitted = self.file.is_some() && self.buffer.is_empty();
        (whole && submitted).then(|| sum.finish())
    }

    /// Discards all data; the caller must close and remove the file.
    pub(crate) fn abandon(&mut self, storage: &mut impl Storage) {
        if self.opening {
            // Pending writes are counted back on completion.
            let pieces = self.parked.iter().map(|(_, bytes)| bytes.len());
            let pieces = pieces.chain([self.buffer.len()]).filter(|len| *len > 0);
            let held: usize = pieces.map(|len| len + PIECE_COST).sum();
            if held > 0 {
                storage.written(held);
            }
        } else {
            storage.room().parked = storage.room().parked.saturating_sub(self.parked_len);
            self.parked_len = 0;
        }
        self.parked.clear();
        self.buffer = BytesMut::new();
        self.close(storage);
    }

    /// Range of collected data that was not passed to the store yet.
    pub fn unwritten(&self) -> (u64, u64) {
        (self.start, self.start + self.buffer.len() as u64)
    }

    /// Releases the open file to the caller; everything must be written.
    pub fn release(&mut self) -> Option<FileId> {
        self.file.take()
    }

    /// Closes the file; everything must be written.
    pub fn close(&mut self, storage: &mut impl Storage) {
        if let Some(file) = self.file.take() {
            storage.close(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::storage::Room;

    const HANDLE: Handle = Handle { index: 0, generation: 0 };

    /// A store that notes what is to be written, and its costs.
    struct Writes {
        room: Room,
        pieces: Vec<(u64, Bytes)>,
        costs: usize,
    }

    impl Storage for Writes {
        fn room(&mut self) -> &mut Room {
            &mut self.room
        }

        fn read_ahead(&self) -> usize {
            0
        }

        fn open(&mut self, _handle: Handle, _name: FileName, _mode: OpenMode) {}

        fn read(&mut self, _handle: Handle, _file: FileId, _offset: u64, _len: usize) {}

        fn read_again(&mut self, _handle: Handle, _file: FileId, _offset: u64, _len: usize) {}

        fn write(&mut self, _: Handle, _: FileId, offset: u64, bytes: Bytes, cost: usize) {
            self.pieces.push((offset, bytes));
            self.costs += cost;
        }

        fn sync(&mut self, _handle: Handle, _file: FileId) {}

        fn close(&mut self, _file: FileId) {}

        fn written(&mut self, cost: usize) {
            self.room.unwritten -= cost;
        }
    }

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    /// Bytes left out before a datagram, its length, and whether the file is flushed after it.
    fn datagrams() -> impl Strategy<Value = Vec<(u64, usize, bool)>> {
        let gap = prop_oneof![8 => Just(0), 1 => 1u64..5000];
        let len = prop_oneof![8 => 1usize..3000, 1 => 1usize..40_000];
        prop::collection::vec((gap, len, prop::bool::weighted(0.05)), 1..80)
    }

    proptest! {
        #[test]
        fn all_bytes_are_written_once_from_buffers_of_their_size(
            piece in 1usize..70_000, datagrams in datagrams(), opens in 0usize..80,
        ) {
            let room = Room::new(usize::MAX / 4, piece, 0);
            let mut store = Writes { room, pieces: Vec::new(), costs: 0 };
            let mut spool = Spool::new(FileName::spool("working").expect("letters"));
            let (mut expected, mut ranges) = (Vec::new(), Ranges::new());
            let (mut end, mut received, mut largest) = (0, 0, 0);
            for (number, (gap, len, is_flushed)) in datagrams.into_iter().enumerate() {
                if number == opens {
                    spool.open(&mut store, HANDLE, None, OpenMode::Truncate, &Ranges::new());
                    spool.opened(&mut store, HANDLE, FileId(1), 0, &mut ranges);
                }
                let offset = end + gap;
                end = offset + len as u64;
                let data: Vec<_> = (offset..end).map(byte).collect();
                prop_assert!(spool.append(&mut store, HANDLE, offset, &data));
                expected.extend(offset..end);
                received += len;
                largest = largest.max(len);
                let most = (4 * received).max(FIRST_BUFFER).min(piece.max(2 * largest));
                prop_assert!(spool.buffer.capacity() <= most, "{} of {most}", spool.buffer.capacity());
                if is_flushed {
                    spool.flush(&mut store, HANDLE);
                }
            }
            if !spool.is_started() {
                spool.open(&mut store, HANDLE, None, OpenMode::Truncate, &Ranges::new());
                spool.opened(&mut store, HANDLE, FileId(1), 0, &mut ranges);
            }
            spool.flush(&mut store, HANDLE);
            let mut written = Vec::new();
            for (offset, bytes) in &store.pieces {
                for (at, found) in (*offset..).zip(bytes) {
                    prop_assert_eq!(*found, byte(at));
                    written.push(at);
                }
            }
            written.sort_unstable();
            prop_assert!(written == expected);
            prop_assert_eq!((store.room.unwritten, store.room.parked), (store.costs, 0));
        }
    }
}
