//! The file being sent: read ahead, summed up, and read again for retransmissions.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::FileId;
use wire::checksum::{Checksum, ChecksumType};

use crate::UnexpectedLength;
use crate::path::Handle;
use crate::repairs::{Repairs, Segment};
use crate::storage::Storage;

/// The file being sent.
#[derive(Debug)]
pub struct Source {
    /// The open file.
    pub file: FileId,
    /// Length of the file; `None` until the end of an unbounded file was read.
    pub size: Option<u64>,
    /// Bytes sent in an earlier run: they are summed up and not sent.
    skip: u64,
    /// Bytes read and not yet sent, in order.
    pieces: VecDeque<(u64, Bytes)>,
    /// Bytes in `pieces` that were not sent, and bytes being read.
    held: usize,
    next_read: u64,
    reads: usize,
    /// Offset of the next byte to send.
    sent: u64,
    checksum: Checksum,
    repairs: Repairs,
    /// The whole content, if it is in memory.
    whole: Option<Bytes>,
}

impl Source {
    /// Source `file` of `size` bytes; the first `skip` of them are sent only on request. `None` if
    /// the checksum type is unknown.
    pub fn new(file: FileId, size: Option<u64>, skip: u64, checksum: ChecksumType) -> Option<Self> {
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

    /// Source of bytes in memory. `None` if the checksum type is unknown.
    pub fn in_memory(bytes: Bytes, checksum: ChecksumType) -> Option<Self> {
        let len = bytes.len();
        let mut source = Self::new(FileId(0), Some(len as u64), 0, checksum)?;
        source.next_read = len as u64;
        source.held = len;
        source.pieces.push_back((0, bytes.clone()));
        source.whole = Some(bytes);
        Some(source)
    }

    /// Closes the file, if it is one.
    pub fn close(&self, storage: &mut impl Storage) {
        if self.whole.is_none() {
            storage.close(self.file);
        }
    }

    /// Bytes sent once, from the start.
    pub fn sent(&self) -> u64 {
        self.sent.max(self.skip)
    }

    /// Whether the whole file was sent once and summed up.
    pub fn at_end(&self) -> bool {
        self.size == Some(self.sent)
    }

    /// Reads ahead within the bound on memory; pieces are whole multiples of `segment`.
    pub fn read_ahead(&mut self, storage: &mut impl Storage, handle: Handle, segment: usize) {
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

    /// Accepts the result of a read. An error if the file is shorter than it was, or longer than
    /// `size_max`.
    pub fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
        size_max: u64,
    ) -> Result<(), UnexpectedLength> {
        if offset + bytes.len() as u64 > size_max {
            return Err(UnexpectedLength);
        }
        self.reads = self.reads.saturating_sub(1);
        self.held = self.held.saturating_sub(requested - bytes.len().min(requested));
        if bytes.len() < requested {
            match self.size {
                Some(size) if offset + (bytes.len() as u64) < size => return Err(UnexpectedLength),
                Some(_) => {}
                None => self.size = Some(offset + bytes.len() as u64),
            }
        }
        let end = offset + bytes.len() as u64;
        if bytes.is_empty() || end <= self.sent {
            // The data was skipped while it was being read.
            self.held -= bytes.len();
        } else {
            self.held -= self.sent.saturating_sub(offset) as usize;
            let place = self.pieces.partition_point(|(other, _)| *other < offset);
            self.pieces.insert(place, (offset, bytes));
        }
        self.skip_sent();
        Ok(())
    }

    /// Continues behind data the receiver already has, which are not summed up.
    pub fn skip_to(&mut self, to: u64) {
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

    /// Sums up the bytes sent in an earlier run.
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

    /// Next new data to send, at most `len` bytes; `None` while it is being read.
    pub fn next_new(&self, len: usize) -> Option<Segment<'_>> {
        let (offset, bytes) = self.pieces.front()?;
        let from = usize::try_from(self.sent.checked_sub(*offset)?).ok()?;
        let data = bytes.get(from..)?;
        (!data.is_empty())
            .then(|| Segment { offset: self.sent, data: &data[..len.min(data.len())] })
    }

    /// Records that the first `len` bytes returned by [`Source::next_new`] were sent.
    pub fn new_sent(&mut self, len: usize) {
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

    /// Checksum of the bytes sent so far.
    pub fn checksum(&self) -> u32 {
        let mut checksum = self.checksum;
        if let Some((offset, bytes)) = self.pieces.front()
            && *offset < self.sent
        {
            checksum.update(*offset, &bytes[..(self.sent - offset) as usize]);
        }
        checksum.finish()
    }

    /// Queues the bytes of `start..end` that were sent before and are not queued yet; returns
    /// whether the queue had room. At most `max` parts wait.
    pub fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        self.repairs.request(start, end.min(self.sent()), max)
    }

    /// Queues the bytes of `start..end` that were sent before, without a request.
    pub fn repeat(&mut self, start: u64, end: u64, max: usize) {
        self.repairs.repeat(start, end.min(self.sent()), max);
    }

    /// Chooses the number of copies of each repair (see [`Repairs::choose_copies`]).
    pub fn choose_copies(&mut self, max: u32, segment: usize, times: Option<(Duration, Duration)>) {
        self.repairs.choose_copies(max, segment, times, self.sent.max(self.skip));
    }

    /// Drops all repairs. Pending reads are dropped on completion.
    pub fn forget_repairs(&mut self) {
        self.repairs.forget();
    }

    /// Whether repairs are left.
    pub fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Number of repairs that are not being read yet.
    pub fn repairs_waiting(&self) -> usize {
        self.repairs.waiting()
    }

    /// Whether the next repair is in memory.
    pub fn repair_ready(&self) -> bool {
        self.repairs.next(1).is_some()
    }

    /// Reads repairs, within the bound on memory.
    pub fn read_repairs(&mut self, storage: &mut impl Storage, handle: Handle) {
        match &self.whole {
            Some(whole) => self.repairs.take_from(storage, whole),
            None => self.repairs.read(storage, handle, self.file),
        }
    }

    /// Accepts a part that was read again. An error if the file is shorter than it was.
    pub fn repair_done(&mut self, offset: u64, bytes: Bytes) -> Result<(), UnexpectedLength> {
        self.repairs.read_done(offset, bytes)
    }

    /// Next data to retransmit, at most `len` bytes.
    pub fn next_repair(&self, len: usize) -> Option<Segment<'_>> {
        self.repairs.next(len)
    }

    /// Records that the first `len` bytes returned by [`Source::next_repair`] were sent.
    pub fn repair_sent(&mut self, len: usize) {
        self.repairs.sent(len);
    }
}
