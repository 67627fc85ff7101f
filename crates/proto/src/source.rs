//! The file being sent: read ahead, summed up, and read again where parts were lost.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::FileId;
use wire::checksum::{Checksum, ChecksumType};

use crate::path::Handle;
use crate::repairs::{Repairs, Segment};
use crate::storage::Storage;

/// The file being sent.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: FileId,
    /// The file's end; `None` until an unbounded file's end was read.
    pub(crate) size: Option<u64>,
    /// Up to here the file went out in an earlier run: it is summed up and not sent.
    skip: u64,
    /// What was read and not yet sent, in order.
    pieces: VecDeque<(u64, Bytes)>,
    /// Bytes in `pieces` that were not sent, and bytes being read.
    held: usize,
    next_read: u64,
    reads: usize,
    /// The next byte to send.
    sent: u64,
    checksum: Checksum,
    repairs: Repairs,
    /// All of it, if it is no file.
    whole: Option<Bytes>,
}

impl Source {
    /// The source `file` of `size` bytes; the first `skip` of them are not sent unless asked for.
    /// `None` if the checksum type is unknown.
    pub(crate) fn new(
        file: FileId,
        size: Option<u64>,
        skip: u64,
        checksum: ChecksumType,
    ) -> Option<Self> {
        Some(Self {
            file,
            size,
            skip,
            pieces: VecDeque::new(),
            held: 0,
            next_read: 0,
            reads: 0,
            sent: 0,
            checksum: Checksum::new(checksum)?,
            repairs: Repairs::new(),
            whole: None,
        })
    }

    /// Bytes that are in memory. `None` if the checksum type is unknown.
    pub(crate) fn in_memory(bytes: Bytes, checksum: ChecksumType) -> Option<Self> {
        let len = bytes.len();
        let mut source = Self::new(FileId(0), Some(len as u64), 0, checksum)?;
        source.next_read = len as u64;
        source.held = len;
        source.pieces.push_back((0, bytes.clone()));
        source.whole = Some(bytes);
        Some(source)
    }

    /// Lets the file go, if it is one.
    pub(crate) fn close(&self, storage: &mut impl Storage) {
        if self.whole.is_none() {
            storage.close(self.file);
        }
    }

    /// Bytes sent once, from the start.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.max(self.skip)
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.held + self.repairs.memory()
    }

    /// Whether all of the file was sent once and summed up.
    pub(crate) fn at_end(&self) -> bool {
        self.size == Some(self.sent)
    }

    /// Asks for as much of the file as may be held; pieces are whole multiples of `segment`.
    pub(crate) fn read_ahead(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        segment: usize,
    ) {
        let ahead = storage.read_ahead();
        let piece = (storage.room().read_piece.min(ahead) / segment * segment).max(segment);
        while self.size.is_none_or(|size| self.next_read < size)
            && (self.held == 0 || self.held + piece <= ahead)
        {
            let left = self.size.map_or(u64::MAX, |size| size - self.next_read);
            let len = piece.min(usize::try_from(left).unwrap_or(usize::MAX));
            storage.read(handle, self.file, self.next_read, len);
            self.next_read += len as u64;
            self.held += len;
            self.reads += 1;
        }
    }

    /// Takes what a read gave. An error if the file is shorter than it was, or longer than
    /// `size_max`.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
        size_max: u64,
    ) -> Result<(), ()> {
        if offset + bytes.len() as u64 > size_max {
            return Err(());
        }
        self.reads = self.reads.saturating_sub(1);
        self.held = self.held.saturating_sub(requested - bytes.len().min(requested));
        if bytes.len() < requested {
            match self.size {
                Some(size) if offset + (bytes.len() as u64) < size => return Err(()),
                Some(_) => {}
                None => self.size = Some(offset + bytes.len() as u64),
            }
        }
        let end = offset + bytes.len() as u64;
        if bytes.is_empty() || end <= self.sent {
            // It was skipped while it was being read.
            self.held -= bytes.len();
        } else {
            self.held -= self.sent.saturating_sub(offset) as usize;
            let place = self.pieces.partition_point(|(other, _)| *other < offset);
            self.pieces.insert(place, (offset, bytes));
        }
        self.skip_sent();
        Ok(())
    }

    /// Goes on behind what the receiver turned out to have; nothing of it is summed up.
    pub(crate) fn skip_to(&mut self, to: u64) {
        let to = self.size.map_or(to, |size| to.min(size));
        if to <= self.sent {
            return;
        }
        let from = std::mem::replace(&mut self.sent, to);
        self.next_read = self.next_read.max(to);
        let held = &mut self.held;
        self.pieces.retain(|(offset, bytes)| {
            let end = offset + bytes.len() as u64;
            *held -= to.min(end).saturating_sub(from.max(*offset)) as usize;
            end > to
        });
    }

    /// Sums up what an earlier run sent.
    fn skip_sent(&mut self) {
        while let Some((offset, bytes)) = self.pieces.front() {
            let end = offset + bytes.len() as u64;
            if *offset != self.sent || end > self.skip {
                return;
            }
            self.checksum.update(*offset, bytes);
            self.sent = end;
            self.held -= bytes.len();
            self.pieces.pop_front();
        }
    }

    /// The next new data to send, at most `len` bytes; `None` while it is being read.
    pub(crate) fn next_new(&self, len: usize) -> Option<Segment<'_>> {
        let (offset, bytes) = self.pieces.front()?;
        let from = usize::try_from(self.sent.checked_sub(*offset)?).ok()?;
        let data = bytes.get(from..)?;
        (!data.is_empty())
            .then(|| Segment { offset: self.sent, data: &data[..len.min(data.len())] })
    }

    /// The first `len` bytes of what [`Source::next_new`] gave were sent.
    pub(crate) fn new_sent(&mut self, len: usize) {
        self.sent += len as u64;
        self.held -= len;
        if let Some((offset, bytes)) = self.pieces.front()
            && offset + bytes.len() as u64 <= self.sent
        {
            let position = self.checksum.position().max(*offset);
            self.checksum.update(position, &bytes[(position - offset) as usize..]);
            self.pieces.pop_front();
        }
    }

    /// The checksum of what was sent so far.
    pub(crate) fn checksum(&self) -> u32 {
        let mut checksum = self.checksum;
        if let Some((offset, bytes)) = self.pieces.front()
            && *offset < self.sent
        {
            checksum.update(*offset, &bytes[..(self.sent - offset) as usize]);
        }
        checksum.finish()
    }

    /// Queues what of `start..end` was sent before and is not queued yet; whether the queue had
    /// room. At most `max` parts wait.
    pub(crate) fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        self.repairs.request(start, end.min(self.sent()), max)
    }

    /// Queues what of `start..end` was sent before, although nobody requested it.
    pub(crate) fn repeat(&mut self, start: u64, end: u64, max: usize) {
        self.repairs.repeat(start, end.min(self.sent()), max);
    }

    /// Decides how many copies of each repair to send (see [`Repairs::choose_copies`]).
    pub(crate) fn choose_copies(
        &mut self,
        max: u32,
        segment: usize,
        times: Option<(Duration, Duration)>,
    ) {
        self.repairs.choose_copies(max, segment, times, self.sent.max(self.skip));
    }

    /// Nothing will be sent again. What is being read for that is dropped when it comes.
    pub(crate) fn forget_repairs(&mut self) {
        self.repairs.forget();
    }

    /// Whether anything waits to be sent again.
    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Parts to send again that are not being read yet.
    pub(crate) fn repairs_waiting(&self) -> usize {
        self.repairs.waiting()
    }

    /// Whether the next part to send again is in memory.
    pub(crate) fn repair_ready(&self) -> bool {
        self.repairs.next(1).is_some()
    }

    /// Reads the parts to send again, within the bound on what is held.
    pub(crate) fn read_repairs(&mut self, storage: &mut impl Storage, handle: Handle) {
        match &self.whole {
            Some(whole) => self.repairs.take_from(storage, whole),
            None => self.repairs.read(storage, handle, self.file),
        }
    }

    /// Takes a part that was read again. An error if the file is shorter than it was.
    pub(crate) fn repair_done(&mut self, offset: u64, bytes: Bytes) -> Result<(), ()> {
        self.repairs.read_done(offset, bytes)
    }

    /// The next data to send again, at most `len` bytes.
    pub(crate) fn next_repair(&self, len: usize) -> Option<Segment<'_>> {
        self.repairs.next(len)
    }

    /// The first `len` bytes of what [`Source::next_repair`] gave were sent.
    pub(crate) fn repair_sent(&mut self, len: usize) {
        self.repairs.sent(len);
    }
}
