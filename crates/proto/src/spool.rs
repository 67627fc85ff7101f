//! The working file of a reception: data collected into large writes, and the checksum of what
//! was written.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, OpenMode};
use wire::checksum::{Checksum, ChecksumType};

use crate::path::Handle;
use crate::ranges::Ranges;
use crate::storage::Storage;
use crate::sum::{READS_MAX, Reading, Sum, Value};

/// What a piece of data costs beside its bytes.
const PIECE_COST: usize = 64;

/// The working file of a reception.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(crate) name: FileName,
    file: Option<FileId>,
    /// The file's length when it was opened.
    len: u64,
    /// Data not handed to the store yet: `buffer` begins at `start`.
    start: u64,
    buffer: BytesMut,
    /// Pieces that wait for the file to be open.
    parked: VecDeque<(u64, Bytes)>,
    parked_len: usize,
    /// Whether the file is asked for, so that what comes counts as unwritten data.
    opening: bool,
    writes: usize,
    digest: Option<Digest>,
}

/// The checksum of the file as far as it was summed up.
#[derive(Debug)]
struct Digest {
    reading: Reading,
    /// Parts to read back, of a checksum that takes them in any order.
    owed: VecDeque<(u64, u64)>,
}

impl Spool {
    pub(crate) fn new(name: FileName) -> Self {
        Self {
            name,
            file: None,
            len: 0,
            start: 0,
            buffer: BytesMut::new(),
            parked: VecDeque::new(),
            parked_len: 0,
            opening: false,
            writes: 0,
            digest: None,
        }
    }

    /// Opens the file. `kept` is what an earlier run wrote.
    pub(crate) fn open(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        checksum: ChecksumType,
        mode: OpenMode,
        kept: &Ranges,
    ) {
        self.open_summed(storage, handle, Checksum::new(checksum).map(Sum::Check), mode, kept);
    }

    /// The same with a checksum of any kind, or none.
    pub(crate) fn open_summed(
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

    /// The file is open and has `len` bytes. What an earlier run wrote beyond that is lost: takes
    /// it out of `ranges`, which also hold what arrived since.
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

    /// Whether the file was asked for.
    pub(crate) const fn is_begun(&self) -> bool {
        self.opening
    }

    pub(crate) fn file(&self) -> Option<FileId> {
        self.file
    }

    /// Whether an earlier run wrote something beyond `size`.
    pub(crate) fn was_longer_than(&self, size: u64) -> bool {
        self.len > size
    }

    /// Takes new data. `false` if there is no room for it.
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
        if !contiguous || self.buffer.capacity() - self.buffer.len() < data.len() {
            self.flush(storage, handle);
            self.start = offset;
            // Pieces that do not follow each other share a buffer, or each would hold one.
            if self.buffer.capacity() < data.len() {
                let piece = storage.room().write_piece;
                // A reception of which nothing is known may hold a single datagram for long.
                let most = if self.opening { piece } else { piece.min(2 * self.parked_len) };
                let len = most.max(data.len());
                self.buffer = storage.room().take_buffer(len);
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

    fn has_room(&self, storage: &mut impl Storage, len: usize) -> bool {
        let limit = storage.room().write_buffer;
        if self.opening {
            storage.room().unwritten + len <= limit
        } else {
            // Before the Metadata nothing can be written; half of the bound is for that.
            storage.room().parked + len <= limit / 2
        }
    }

    /// Hands what was collected to the store.
    pub(crate) fn flush(&mut self, storage: &mut impl Storage, handle: Handle) {
        if self.buffer.is_empty() {
            return;
        }
        let bytes = if self.buffer.len() > self.buffer.capacity() / 2 {
            let bytes = std::mem::take(&mut self.buffer).freeze();
            storage.room().keep_buffer(&bytes);
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

    /// A write is over.
    pub(crate) fn written(&mut self) {
        self.writes = self.writes.saturating_sub(1);
    }

    /// Whether writes are under way.
    pub(crate) fn is_writing(&self) -> bool {
        self.writes > 0
    }

    pub(crate) fn sync(&self, storage: &mut impl Storage, handle: Handle) {
        let Some(file) = self.file else { return };
        storage.sync(handle, file);
    }

    /// Reads back what is needed to go on with the checksum: what is written of the first
    /// `prefix` bytes, which are all there.
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

    /// Takes what was read back. An error if it is less than was written.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), ()> {
        self.digest.as_mut().map_or(Ok(()), |digest| digest.reading.take(offset, requested, bytes))
    }

    /// The checksum of a file of `size` bytes that is wholly here, once all of it was summed up.
    pub(crate) fn checksum(&self, size: u64) -> Option<u32> {
        self.value(size).map(|value| value.check().unwrap_or_default())
    }

    /// The same for a checksum of any kind; without one it is 0.
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

    /// Forgets all data; the file must be closed and removed by the caller.
    pub(crate) fn abandon(&mut self, storage: &mut impl Storage) {
        if self.opening {
            // Writes under way are given back when they are answered.
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

    /// What is collected and was not handed to the store yet.
    pub(crate) fn unwritten(&self) -> (u64, u64) {
        (self.start, self.start + self.buffer.len() as u64)
    }

    /// Leaves the open file to the caller; everything must be written.
    pub(crate) fn release(&mut self) -> Option<FileId> {
        self.file.take()
    }

    /// Closes the file; everything must be written.
    pub(crate) fn close(&mut self, storage: &mut impl Storage) {
        if let Some(file) = self.file.take() {
            storage.close(file);
        }
    }
}
