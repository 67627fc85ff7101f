//! Transfer of a file between a store and a stream.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{FileId, StoreEffect, Ticket};

use crate::message::{Crc, Representation};

/// Purpose of an effect of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Read,
    Write { len: usize },
    Sync,
}

/// Bounds on reading ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    /// Bytes of one read.
    pub(crate) piece: usize,
    /// Bytes that may wait to be sent.
    pub(crate) most: usize,
}

/// An outgoing file or text.
#[derive(Debug)]
pub(crate) struct Outflow {
    file: Option<FileId>,
    next_read: u64,
    /// Bytes being read.
    reading: usize,
    end_read: bool,
    /// Bytes read, in order.
    pieces: VecDeque<Bytes>,
    held: usize,
    representation: Representation,
    /// CRC of the bytes taken, if requested.
    crc: Option<Crc>,
    /// Last converted byte.
    last: u8,
    pub(crate) sent: u64,
}

impl Outflow {
    pub(crate) fn file(file: FileId, offset: u64, representation: Representation) -> Self {
        Self {
            file: Some(file),
            next_read: offset,
            reading: 0,
            end_read: false,
            pieces: VecDeque::new(),
            held: 0,
            representation,
            crc: None,
            last: 0,
            sent: 0,
        }
    }

    /// A text in memory, with its line ends in network form.
    pub(crate) fn text(text: Bytes) -> Self {
        let mut flow = Self::file(FileId(0), 0, Representation::Image);
        flow.file = None;
        flow.end_read = true;
        flow.keep(text);
        flow
    }

    /// Computes the CRC of the bytes taken from here on.
    pub(crate) fn with_crc(mut self, wanted: bool) -> Self {
        self.crc = wanted.then(Crc::default);
        self
    }

    pub(crate) fn crc(&self) -> Option<u32> {
        self.crc.as_ref().map(Crc::value)
    }

    fn keep(&mut self, bytes: Bytes) {
        self.held += bytes.len();
        if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
    }

    /// Next read, if there is room for its result.
    ///
    /// Only one is pending at a time: the end of the file is known when it completes.
    pub(crate) fn read(&mut self, ticket: Ticket, bounds: ReadAhead) -> Option<StoreEffect> {
        let file = self.file.filter(|_| !self.end_read && self.reading == 0)?;
        if self.held + bounds.piece > bounds.most.max(bounds.piece) {
            return None;
        }
        self.reading = bounds.piece;
        Some(StoreEffect::Read { ticket, file, offset: self.next_read, len: bounds.piece })
    }

    pub(crate) fn read_done(&mut self, bytes: Bytes) {
        self.end_read = bytes.len() < self.reading;
        self.reading = 0;
        self.next_read += bytes.len() as u64;
        let converted = match self.representation {
            Representation::Image => bytes,
            Representation::Ascii => self.in_network_form(&bytes),
        };
        self.keep(converted);
    }

    /// Converts line ends to CR LF (RFC 959 §3.1.1.1); existing ones are kept.
    fn in_network_form(&mut self, bytes: &[u8]) -> Bytes {
        let mut converted = BytesMut::with_capacity(bytes.len() + bytes.len() / 16);
        for byte in bytes {
            if *byte == b'\n' && self.last != b'\r' {
                converted.extend_from_slice(b"\r");
            }
            converted.extend_from_slice(&[*byte]);
            self.last = *byte;
        }
        converted.freeze()
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Takes the next bytes to send, at most `len`.
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        let Some(piece) = self.pieces.front_mut() else { return Bytes::new() };
        let bytes = piece.split_to(len.min(piece.len()));
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        self.held -= bytes.len();
        self.sent += bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            crc.update(&bytes);
        }
        bytes
    }

    /// Bytes that can be taken at once.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing is left to be read.
    pub(crate) fn is_read(&self) -> bool {
        self.end_read
    }

    /// Whether everything was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.end_read && self.pieces.is_empty()
    }

    pub(crate) fn close(self) -> Option<StoreEffect> {
        self.file.map(|file| StoreEffect::Close { file })
    }
}

/// An incoming file.
#[derive(Debug)]
pub(crate) struct Inflow {
    file: FileId,
    /// Offset of its first byte in the file.
    pub(crate) origin: u64,
    next_write: u64,
    /// Bytes being written.
    pub(crate) writing: usize,
    writes: usize,
    /// Whether the peer has sent its last byte.
    ended: bool,
    syncing: bool,
    pub(crate) synced: bool,
    representation: Representation,
    /// CRC of the bytes received, if requested.
    crc: Option<Crc>,
    /// Whether a CR is held back that may belong to a line end.
    carriage: bool,
    pub(crate) received: u64,
}

impl Inflow {
    pub(crate) fn new(file: FileId, offset: u64, representation: Representation) -> Self {
        Self {
            file,
            origin: offset,
            next_write: offset,
            writing: 0,
            writes: 0,
            ended: false,
            syncing: false,
            synced: false,
            representation,
            crc: None,
            carriage: false,
            received: 0,
        }
    }

    /// Computes the CRC of the bytes received from here on.
    pub(crate) fn with_crc(mut self, wanted: bool) -> Self {
        self.crc = wanted.then(Crc::default);
        self
    }

    pub(crate) fn crc(&self) -> Option<u32> {
        self.crc.as_ref().map(Crc::value)
    }

    /// Write of a received piece.
    pub(crate) fn write(&mut self, ticket: Ticket, bytes: &[u8]) -> Option<(StoreEffect, Job)> {
        self.received += bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        let bytes = match self.representation {
            Representation::Image => Bytes::copy_from_slice(bytes),
            Representation::Ascii => self.in_local_form(bytes),
        };
        self.put(ticket, bytes)
    }

    fn put(&mut self, ticket: Ticket, bytes: Bytes) -> Option<(StoreEffect, Job)> {
        let len = bytes.len();
        if len == 0 {
            return None;
        }
        let (file, offset) = (self.file, self.next_write);
        self.next_write += len as u64;
        self.writing += len;
        self.writes += 1;
        Some((StoreEffect::Write { ticket, file, offset, bytes }, Job::Write { len }))
    }

    /// Converts CR LF to LF, the local line end.
    fn in_local_form(&mut self, bytes: &[u8]) -> Bytes {
        let mut converted = BytesMut::with_capacity(bytes.len() + 1);
        for byte in bytes {
            if std::mem::take(&mut self.carriage) && *byte != b'\n' {
                converted.extend_from_slice(b"\r");
            }
            if *byte == b'\r' {
                self.carriage = true;
            } else {
                converted.extend_from_slice(&[*byte]);
            }
        }
        converted.freeze()
    }

    pub(crate) fn written(&mut self, len: usize) {
        self.writing -= len;
        self.writes -= 1;
    }

    /// Records the peer's last byte; returns the write of a held-back CR.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Option<(StoreEffect, Job)> {
        self.ended = true;
        let left: &'static [u8] = if std::mem::take(&mut self.carriage) { b"\r" } else { b"" };
        self.put(ticket, Bytes::from_static(left))
    }

    /// Sync, once everything is written.
    pub(crate) fn sync(&mut self, ticket: Ticket) -> Option<(StoreEffect, Job)> {
        if !self.ended || self.writes > 0 || self.syncing {
            return None;
        }
        self.syncing = true;
        Some((StoreEffect::Sync { ticket, file: self.file }, Job::Sync))
    }

    pub(crate) fn close(self) -> StoreEffect {
        StoreEffect::Close { file: self.file }
    }
}
