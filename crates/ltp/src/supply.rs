//! Source of a sending session's block: an existing file, or a reception under way.

use std::time::Duration;

use ::session::UnexpectedLength;
use bytes::Bytes;
use session::path::Handle;
use session::repairs::Segment;
use session::source::Source;

use super::core::Core;
use super::transport::passage::Passage;

/// Block to send.
#[derive(Debug)]
pub(crate) enum Supply {
    /// File, or bytes in memory.
    Source(Source),
    /// Data of another engine as it arrives.
    Passage(Passage),
}

impl Supply {
    /// Closes the underlying file.
    pub(crate) fn close(&self, core: &mut Core) {
        match self {
            Self::Source(source) => source.close(&mut core.shared),
            Self::Passage(passage) => passage.close(&mut core.shared),
        }
    }

    /// Offset after the highest byte sent.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Source(source) => source.sent(),
            Self::Passage(passage) => passage.sent(),
        }
    }

    /// Offset of the next new data.
    pub(crate) fn next_offset(&self) -> u64 {
        match self {
            Self::Source(source) => source.sent(),
            Self::Passage(passage) => passage.next_offset(),
        }
    }

    /// Whether the whole supply was sent once.
    pub(crate) fn at_end(&self) -> bool {
        match self {
            Self::Source(source) => source.at_end(),
            Self::Passage(passage) => passage.at_end(),
        }
    }

    /// Whether sending `start..end` completes the first `red` bytes out of order.
    pub(crate) fn completes(&self, start: u64, end: u64, red: u64) -> bool {
        match self {
            // In order, the last bytes are the end, which is a checkpoint anyway.
            Self::Source(_) => false,
            Self::Passage(passage) => passage.completes(start, end, red),
        }
    }

    /// Checksum of the data sent so far. Forwarded data is not included.
    pub(crate) fn checksum(&self) -> u32 {
        match self {
            Self::Source(source) => source.checksum(),
            Self::Passage(_) => 0,
        }
    }

    /// Reads ahead as much as the buffers allow.
    pub(crate) fn read_ahead(&mut self, core: &mut Core, handle: Handle, segment: usize) {
        match self {
            Self::Source(source) => source.read_ahead(&mut core.shared, handle, segment),
            Self::Passage(passage) => {
                core.shared.flush_wanted |= !passage.read_ahead(&mut core.shared, handle, segment);
            }
        }
    }

    /// Takes the result of a read. An error if the file was truncated.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        match self {
            Self::Source(source) => source.read_done(offset, requested, bytes, u64::MAX),
            Self::Passage(passage) => passage.read_done(offset, requested, bytes),
        }
    }

    /// Next new data to send, at most `len` bytes.
    pub(crate) fn next_new(&self, len: usize) -> Option<Segment<'_>> {
        match self {
            Self::Source(source) => source.next_new(len),
            Self::Passage(passage) => passage.next_new(len),
        }
    }

    /// Notes that the first `len` bytes of [`Supply::next_new`] were sent.
    pub(crate) fn new_sent(&mut self, len: usize) {
        match self {
            Self::Source(source) => source.new_sent(len),
            Self::Passage(passage) => passage.new_sent(len),
        }
    }

    /// Queues the parts of `start..end` that were sent before. Returns whether the queue had room.
    pub(crate) fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        match self {
            Self::Source(source) => source.request(start, end, max),
            Self::Passage(passage) => passage.request(start, end, max),
        }
    }

    /// Queues the parts of `start..end` that were sent before, without a request. Forwarded data is
    /// not queued.
    pub(crate) fn repeat(&mut self, start: u64, end: u64, max: usize) {
        match self {
            Self::Source(source) => source.repeat(start, end, max),
            Self::Passage(_) => {}
        }
    }

    /// Parts of `start..end` that were sent.
    pub(crate) fn sent_of(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        match self {
            Self::Source(_) => vec![(start, end)],
            Self::Passage(passage) => passage.sent_of(start, end),
        }
    }

    /// Decides how many copies of each repair to send.
    pub(crate) fn choose_copies(
        &mut self,
        max: u32,
        segment: usize,
        times: Option<(Duration, Duration)>,
    ) {
        match self {
            Self::Source(source) => source.choose_copies(max, segment, times),
            Self::Passage(passage) => passage.choose_copies(max, segment, times),
        }
    }

    /// Whether anything waits to be retransmitted.
    pub(crate) fn has_repairs(&self) -> bool {
        match self {
            Self::Source(source) => source.has_repairs(),
            Self::Passage(passage) => passage.has_repairs(),
        }
    }

    /// Reads the parts to retransmit, within the memory limit.
    pub(crate) fn read_repairs(&mut self, core: &mut Core, handle: Handle) {
        match self {
            Self::Source(source) => source.read_repairs(&mut core.shared, handle),
            Self::Passage(passage) => {
                core.shared.flush_wanted |= !passage.read_repairs(&mut core.shared, handle);
            }
        }
    }

    /// Takes the result of a read for a repair. Returns an error if the file was truncated.
    pub(crate) fn repair_done(
        &mut self,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        match self {
            Self::Source(source) => source.repair_done(offset, bytes),
            Self::Passage(passage) => passage.repair_done(offset, bytes),
        }
    }

    /// Next data to retransmit, at most `len` bytes.
    pub(crate) fn next_repair(&self, len: usize) -> Option<Segment<'_>> {
        match self {
            Self::Source(source) => source.next_repair(len),
            Self::Passage(passage) => passage.next_repair(len),
        }
    }

    /// Notes that the first `len` bytes of [`Supply::next_repair`] were sent.
    pub(crate) fn repair_sent(&mut self, len: usize) {
        match self {
            Self::Source(source) => source.repair_sent(len),
            Self::Passage(passage) => passage.repair_sent(len),
        }
    }
}
