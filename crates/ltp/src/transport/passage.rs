//! Block that is forwarded while it arrives.
//!
//! Data is kept in memory until it was sent, within the sender's read-ahead limit. Data beyond
//! that is read back from the reception's working file, as is data lost on the onward hop.
//! Segments are sent in the order of their arrival, so a gap on one hop does not delay the next.

use std::collections::VecDeque;
use std::time::Duration;

use ::session::UnexpectedLength;
use bytes::Bytes;
use engine::FileId;
use session::path::Handle;
use session::ranges::Ranges;
use session::repairs::{Repairs, Segment};
use session::storage::Storage;

use super::flow::Last;

/// Block as its onward sender sees it.
#[derive(Debug)]
pub(crate) struct Passage {
    /// Working file, once open.
    file: Option<FileId>,
    /// Whether the reception has ended and handed over the file.
    owns: bool,
    /// Range that the reception has not handed to the store yet, and that cannot be read.
    unwritten: (u64, u64),
    arrived: Ranges,
    sent: Ranges,
    /// Unsent data in memory, in order of arrival.
    fresh: VecDeque<(u64, Bytes)>,
    /// Bytes in `fresh`, and bytes being read.
    held: usize,
    /// Unsent data that is only in the file.
    stored: Ranges,
    reads: usize,
    repairs: Repairs,
    total: Option<u64>,
    /// Whether nothing more will arrive.
    is_over: bool,
}

/// Update of a reception for its onward sender.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Data received since the last update, in order.
    pub(crate) fresh: Vec<(u64, Bytes)>,
    pub(crate) file: Option<FileId>,
    pub(crate) unwritten: (u64, u64),
    /// End of the block, if known.
    pub(crate) total: Option<u64>,
    /// Last segment, if received.
    pub(crate) last: Option<Last>,
}

impl Passage {
    /// Block of which these parts have arrived before.
    pub(crate) fn new(arrived: Ranges) -> Self {
        Self {
            file: None,
            owns: false,
            unwritten: (0, 0),
            stored: arrived.clone(),
            arrived,
            sent: Ranges::new(),
            fresh: VecDeque::new(),
            held: 0,
            reads: 0,
            repairs: Repairs::new(),
            total: None,
            is_over: false,
        }
    }

    /// Sets the end of the block; data after it is sent by other means. `is_green` if the passage
    /// does not wait for missing data before the end.
    pub(crate) fn end_at(&mut self, total: u64, is_green: bool) {
        self.total = Some(total);
        self.is_over |= is_green;
        self.stored.remove(total, u64::MAX);
    }

    /// Takes new data; what exceeds `ahead` stays in the file.
    pub(crate) fn take(&mut self, news: News, ahead: usize) {
        self.file = self.file.or(news.file);
        self.unwritten = news.unwritten;
        for (offset, bytes) in news.fresh {
            let end = offset + bytes.len() as u64;
            let is_known = self.arrived.gaps(offset, end).next().is_none();
            self.arrived.insert(offset, end);
            if is_known || self.total.is_some_and(|total| offset >= total) {
                continue;
            }
            if self.held > 0 && self.held + bytes.len() > ahead {
                self.stored.insert(offset, end);
            } else {
                self.held += bytes.len();
                self.fresh.push_back((offset, bytes));
            }
        }
    }

    /// Takes over the file after the reception has ended.
    pub(crate) fn take_over(&mut self, file: FileId) {
        (self.file, self.owns) = (Some(file), true);
        self.unwritten = (0, 0);
        self.is_over = true;
        // The end of a green block may be lost.
        self.total = self.total.or(Some(self.arrived.end()));
    }

    /// Closes the file, if it was handed over.
    pub(crate) fn close(&self, storage: &mut impl Storage) {
        if let Some(file) = self.file.filter(|_| self.owns) {
            storage.close(file);
        }
    }

    /// Offset after the highest byte sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.end()
    }

    /// Offset of the next new data.
    pub(crate) fn next_offset(&self) -> u64 {
        self.fresh.front().map_or(self.sent.end(), |(offset, _)| *offset)
    }

    /// Whether everything that exists of the block was sent once.
    pub(crate) fn at_end(&self) -> bool {
        let nothing_waits = self.fresh.is_empty() && self.stored.is_empty() && self.reads == 0;
        nothing_waits && self.total.is_some_and(|total| self.is_over || self.has_sent(0, total))
    }

    fn has_sent(&self, start: u64, end: u64) -> bool {
        self.sent.gaps(start, end).next().is_none()
    }

    /// Whether `start..end` is the last unsent part of the first `red` bytes.
    pub(crate) fn completes(&self, start: u64, end: u64, red: u64) -> bool {
        start < red && self.sent.gaps(0, red).all(|(from, to)| from >= start && to <= end)
    }

    /// Reads back data that did not fit in memory. Returns `false` if that needs data not handed to
    /// the store yet.
    pub(crate) fn read_ahead(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        segment: usize,
    ) -> bool {
        let Some(file) = self.file else { return true };
        let ahead = storage.read_ahead();
        let piece = (storage.room().read_piece.min(ahead) / segment * segment).max(segment);
        while self.held == 0 || self.held + piece <= ahead {
            let Some((start, end)) = self.stored.iter().next() else { break };
            let end = end.min(start + piece as u64);
            if self.is_unwritten(start, end) {
                return false;
            }
            self.stored.remove(start, end);
            storage.read(handle, file, start, (end - start) as usize);
            self.held += (end - start) as usize;
            self.reads += 1;
        }
        true
    }

    fn is_unwritten(&self, start: u64, end: u64) -> bool {
        let (from, to) = self.unwritten;
        start < to && end > from
    }

    /// Takes the result of a read. An error if the file is shorter than the written data.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        self.reads = self.reads.saturating_sub(1);
        if bytes.len() < requested {
            return Err(UnexpectedLength);
        }
        // A complete block is sent in order, in any order of completed reads.
        let place = if self.owns {
            self.fresh.partition_point(|(other, _)| *other < offset)
        } else {
            self.fresh.len()
        };
        self.fresh.insert(place, (offset, bytes));
        Ok(())
    }

    /// Next new data to send, at most `len` bytes.
    pub(crate) fn next_new(&self, len: usize) -> Option<Segment<'_>> {
        let (offset, bytes) = self.fresh.front()?;
        Some(Segment { offset: *offset, data: &bytes[..len.min(bytes.len())] })
    }

    /// Notes that the first `len` bytes of [`Passage::next_new`] were sent.
    pub(crate) fn new_sent(&mut self, len: usize) {
        let Some((offset, bytes)) = self.fresh.front_mut() else { return };
        let end = *offset + len as u64;
        self.sent.insert(*offset, end);
        self.held -= len;
        *offset = end;
        *bytes = bytes.split_off(len);
        if bytes.is_empty() {
            self.fresh.pop_front();
        }
    }

    /// Queues the parts of `start..end` that were sent before. Returns whether the queue had room.
    pub(crate) fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        self.sent_of(start, end).into_iter().all(|(from, to)| self.repairs.request(from, to, max))
    }

    /// Parts of `start..end` that were sent.
    pub(crate) fn sent_of(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut sent = Vec::new();
        let mut at = start;
        for (from, to) in self.sent.gaps(start, end).chain([(end, end)]) {
            if from > at {
                sent.push((at, from));
            }
            at = to;
        }
        sent
    }

    pub(crate) fn choose_copies(
        &mut self,
        max: u32,
        segment: usize,
        times: Option<(Duration, Duration)>,
    ) {
        self.repairs.choose_copies(max, segment, times, self.sent.covered());
    }

    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Reads the parts to retransmit. Returns `false` if that needs data not handed to the store
    /// yet.
    pub(crate) fn read_repairs(&mut self, storage: &mut impl Storage, handle: Handle) -> bool {
        let (from, to) = self.unwritten;
        if from < to && self.repairs.wants_any_of(from, to) {
            return false;
        }
        if let Some(file) = self.file {
            self.repairs.read(storage, handle, file);
        }
        true
    }

    pub(crate) fn repair_done(
        &mut self,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        self.repairs.read_done(offset, bytes)
    }

    pub(crate) fn next_repair(&self, len: usize) -> Option<Segment<'_>> {
        self.repairs.next(len)
    }

    pub(crate) fn repair_sent(&mut self, len: usize) {
        self.repairs.sent(len);
    }
}
