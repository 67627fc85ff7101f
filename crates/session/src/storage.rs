//! Interface of working files and sources to their engine: memory bounds, and requests for
//! effects.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, OpenMode};

use crate::path::Handle;
use crate::settings;

/// Storage effects of an engine; the completion of each goes to the transfer `handle`.
pub trait Storage {
    /// Memory used for files, and its bounds.
    fn room(&mut self) -> &mut Room;

    /// Bytes that one source may read ahead.
    fn read_ahead(&self) -> usize;

    /// Opens a file.
    fn open(&mut self, handle: Handle, name: FileName, mode: OpenMode);

    /// Reads a part of a file.
    fn read(&mut self, handle: Handle, file: FileId, offset: u64, len: usize);

    /// Reads a part of a source for a retransmission.
    fn read_again(&mut self, handle: Handle, file: FileId, offset: u64, len: usize);

    /// Writes to a file; `cost` is counted back on completion.
    fn write(&mut self, handle: Handle, file: FileId, offset: u64, bytes: Bytes, cost: usize);

    /// Syncs a file.
    fn sync(&mut self, handle: Handle, file: FileId);

    /// Closes a file.
    fn close(&mut self, file: FileId);

    /// Counts back `cost`.
    fn written(&mut self, cost: usize);
}

/// Memory of an engine used for files, and its bounds.
#[derive(Debug)]
pub struct Room {
    /// Maximum bytes waiting to be written.
    pub write_buffer: usize,
    /// Bytes collected into one write.
    pub write_piece: usize,
    /// Bytes requested in one read.
    pub read_piece: usize,
    /// Bytes received and not written yet, in all transfers.
    pub unwritten: usize,
    /// Bytes received before their file was known, in all transfers.
    pub parked: usize,
    /// Buffers of recent writes, reused because fresh memory costs more than copying.
    spare: VecDeque<Bytes>,
}

impl Room {
    /// Empty room with these bounds.
    pub fn new(write_buffer: usize, write_piece: usize, read_piece: usize) -> Self {
        Self {
            write_buffer,
            write_piece,
            read_piece,
            unwritten: 0,
            parked: 0,
            spare: VecDeque::new(),
        }
    }

    /// An empty buffer for a write of up to `len` bytes.
    pub fn take_buffer(&mut self, len: usize) -> BytesMut {
        if self.spare.front().is_some_and(Bytes::is_unique)
            && let Some(Ok(mut buffer)) = self.spare.pop_front().map(Bytes::try_into_mut)
        {
            buffer.clear();
            if buffer.capacity() >= len {
                return buffer;
            }
        }
        BytesMut::with_capacity(len)
    }

    /// Keeps the buffer of a write for reuse.
    pub fn keep_buffer(&mut self, bytes: &Bytes) {
        if self.spare.len() > self.write_buffer / self.write_piece.max(1) {
            self.spare.pop_front();
        }
        self.spare.push_back(bytes.clone());
    }
}

settings! {
    /// Journal of receptions. A restart loses data received after the last entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalPolicy {
        /// Whether progress is saved at all.
        pub enabled: bool as Flag = true,
        /// Bytes received since the last entry after which progress is saved.
        pub bytes: u64 as Size = 64 << 20,
        /// Longest time since the last entry until progress is saved, if there are new bytes.
        pub interval: Duration as Span = Duration::from_secs(2),
    }
}
