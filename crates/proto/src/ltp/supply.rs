//! Where a session that sends has its block from: a file that is there, or a reception that goes on.

use std::time::Duration;

use bytes::Bytes;

use super::core::Core;
use super::transport::passage::Passage;
use crate::path::Handle;
use crate::repairs::Segment;
use crate::source::Source;

/// A block to send.
#[derive(Debug)]
pub(crate) enum Supply {
    /// A file, or bytes in memory.
    Source(Source),
    /// What arrives from another engine, as it comes.
    Passage(Passage),
}

impl Supply {
    /// Lets what it reads go.
    pub(crate) fn close(&self, core: &mut Core) {
        match self {
            Self::Source(source) => source.close(&mut core.shared),
            Self::Passage(passage) => passage.close(&mut core.shared),
        }
    }

    /// Behind the highest byte that was sent.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Source(source) => source.sent(),
            Self::Passage(passage) => passage.sent(),
        }
    }

    /// Where what is sent next begins.
    pub(crate) fn next_offset(&self) -> u64 {
        match self {
            Self::Source(source) => source.sent(),
            Self::Passage(passage) => passage.next_offset(),
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Source(source) => source.memory(),
            Self::Passage(passage) => passage.memory(),
        }
    }

    /// Whether all of it was sent once.
    pub(crate) fn at_end(&self) -> bool {
        match self {
            Self::Source(source) => source.at_end(),
            Self::Passage(passage) => passage.at_end(),
        }
    }

    /// Whether with `start..end` all of the first `red` bytes will have been sent, out of their order.
    pub(crate) fn completes(&self, start: u64, end: u64, red: u64) -> bool {
        match self {
            // In order the last bytes are the end, which asks anyway.
            Self::Source(_) => false,
            Self::Passage(passage) => passage.completes(start, end, red),
        }
    }

    /// The checksum of what was sent so far. What only passes through is not summed up.
    pub(crate) fn checksum(&self) -> u32 {
        match self {
            Self::Source(source) => source.checksum(),
            Self::Passage(_) => 0,
        }
    }

    /// Asks for as much of it as may be held.
    pub(crate) fn read_ahead(&mut self, core: &mut Core, handle: Handle, segment: usize) {
        match self {
            Self::Source(source) => source.read_ahead(&mut core.shared, handle, segment),
            Self::Passage(passage) => {
                core.shared.flush_wanted |= !passage.read_ahead(&mut core.shared, handle, segment);
            }
        }
    }

    /// Takes what a read gave. An error if the file is shorter than it was.
    pub(crate) fn read_done(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), ()> {
        match self {
            Self::Source(source) => source.read_done(offset, requested, bytes, u64::MAX),
            Self::Passage(passage) => passage.read_done(offset, requested, bytes),
        }
    }

    /// The next new data to send, at most `len` bytes.
    pub(crate) fn next_new(&self, len: usize) -> Option<Segment<'_>> {
        match self {
            Self::Source(source) => source.next_new(len),
            Self::Passage(passage) => passage.next_new(len),
        }
    }

    /// The first `len` bytes of what [`Supply::next_new`] gave were sent.
    pub(crate) fn new_sent(&mut self, len: usize) {
        match self {
            Self::Source(source) => source.new_sent(len),
            Self::Passage(passage) => passage.new_sent(len),
        }
    }

    /// Queues what of `start..end` was sent before; whether the queue had room.
    pub(crate) fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        match self {
            Self::Source(source) => source.request(start, end, max),
            Self::Passage(passage) => passage.request(start, end, max),
        }
    }

    /// Queues what of `start..end` was sent before, although nobody requested it. What only passes
    /// through is not.
    pub(crate) fn repeat(&mut self, start: u64, end: u64, max: usize) {
        match self {
            Self::Source(source) => source.repeat(start, end, max),
            Self::Passage(_) => {}
        }
    }

    /// What of `start..end` was sent.
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

    /// Whether anything waits to be sent again.
    pub(crate) fn has_repairs(&self) -> bool {
        match self {
            Self::Source(source) => source.has_repairs(),
            Self::Passage(passage) => passage.has_repairs(),
        }
    }

    /// Reads the parts to send again, within the bound on what is held.
    pub(crate) fn read_repairs(&mut self, core: &mut Core, handle: Handle) {
        match self {
            Self::Source(source) => source.read_repairs(&mut core.shared, handle),
            Self::Passage(passage) => {
                core.shared.flush_wanted |= !passage.read_repairs(&mut core.shared, handle);
            }
        }
    }

    /// Takes a part that was read again. An error if the file is shorter than it was.
    pub(crate) fn repair_done(&mut self, offset: u64, bytes: Bytes) -> Result<(), ()> {
        match self {
            Self::Source(source) => source.repair_done(offset, bytes),
            Self::Passage(passage) => passage.repair_done(offset, bytes),
        }
    }

    /// The next data to send again, at most `len` bytes.
    pub(crate) fn next_repair(&self, len: usize) -> Option<Segment<'_>> {
        match self {
            Self::Source(source) => source.next_repair(len),
            Self::Passage(passage) => passage.next_repair(len),
        }
    }

    /// The first `len` bytes of what [`Supply::next_repair`] gave were sent.
    pub(crate) fn repair_sent(&mut self, len: usize) {
        match self {
            Self::Source(source) => source.repair_sent(len),
            Self::Passage(passage) => passage.repair_sent(len),
        }
    }
}
