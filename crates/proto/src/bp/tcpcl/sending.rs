//! Bundles on their way to a neighbour, segment by segment (RFC 9174 §5.2.2).

use std::collections::VecDeque;

use bytes::Bytes;
use engine::{FileId, FileName};
use wire::tcpcl4::{Extension, Extensions, Message, Segment, SegmentFlags};

use super::super::layer::{Content, Outgoing, Tag};

/// Octets of a file that are read at one time.
pub(super) const READ: u64 = 256 << 10;

/// A part of a bundle that lies in one place.
#[derive(Debug)]
enum Part {
    Octets(Bytes),
    /// The payload, as far as it is not read.
    File,
}

/// The file that a payload is in.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) name: FileName,
    pub(super) file: Option<FileId>,
    /// Up to here it was asked for.
    pub(super) at: u64,
    pub(super) end: u64,
    /// What was read and not sent, in order.
    ready: VecDeque<Bytes>,
    pub(super) held: usize,
    pub(super) reading: bool,
    /// What is to be sent of it.
    left: u64,
}

/// A bundle on its way.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) tag: Tag,
    pub(super) transfer: u64,
    parts: VecDeque<Part>,
    pub(super) payload: Option<Payload>,
    pub(super) len: u64,
    pub(super) sent: u64,
    /// The last segment has gone.
    pub(super) is_out: bool,
    /// Nothing more of it is sent: it was refused, cancelled, or cannot be read.
    pub(super) is_dropped: bool,
}

impl Sending {
    pub(super) fn new(tag: Tag, transfer: u64, bundle: Outgoing) -> Self {
        let len = bundle.len();
        let mut parts = VecDeque::from([Part::Octets(bundle.head)]);
        let mut payload = None;
        match bundle.payload {
            Content::Octets(octets) => parts.push_back(Part::Octets(octets)),
            Content::File { name, offset, len } => {
                parts.push_back(Part::File);
                let end = offset.saturating_add(len);
                let (ready, held) = (VecDeque::new(), 0);
                let (file, at, left, reading) = (None, offset, len, false);
                payload = Some(Payload { name, file, at, end, ready, held, reading, left });
            }
        }
        parts.push_back(Part::Octets(bundle.tail));
        Self { tag, transfer, parts, payload, len, sent: 0, is_out: false, is_dropped: false }
    }

    /// Octets that can be sent now.
    fn available(&self) -> u64 {
        let mut sum = 0;
        for part in &self.parts {
            match part {
                Part::Octets(octets) => sum += octets.len() as u64,
                Part::File => {
                    let Some(payload) = &self.payload else { break };
                    sum += payload.held as u64;
                    if (payload.held as u64) < payload.left {
                        break;
                    }
                }
            }
        }
        sum
    }

    /// Puts the next segment, of `most` octets of data, behind what is to be sent; whether there was one.
    pub(super) fn next_segment(&mut self, most: u64, out: &mut VecDeque<Bytes>) -> bool {
        if self.is_out || self.is_dropped {
            return false;
        }
        // A bundle whose file cannot be read is not begun, for it could not be ended.
        let unread = |payload: &Payload| payload.held == 0 && payload.left > 0;
        if self.sent == 0 && self.payload.as_ref().is_some_and(unread) {
            return false;
        }
        let data = self.available().min(most);
        if data == 0 && self.len > 0 {
            return false;
        }
        let flags = SegmentFlags { start: self.sent == 0, end: self.sent + data == self.len };
        // A bundle that is one segment says its length by that.
        let length = self.len.to_be_bytes();
        let items = [Extension::transfer_length(&length)];
        let extensions =
            if flags.start && !flags.end { Extensions::new(&items) } else { Extensions::NONE };
        let segment = Segment { flags, transfer: self.transfer, extensions, length: data };
        let message = Message::Segment(segment).to_vec();
        out.push_back(
            message.expect("a segment that begins has one extension, others none").into(),
        );
        self.take(data, out);
        self.sent += data;
        self.is_out = flags.end;
        true
    }

    fn take(&mut self, mut count: u64, out: &mut VecDeque<Bytes>) {
        while count > 0 {
            let Some(part) = self.parts.front_mut() else { return };
            match part {
                Part::Octets(octets) => {
                    let here = octets.len().min(usize::try_from(count).unwrap_or(usize::MAX));
                    out.push_back(octets.split_to(here));
                    count -= here as u64;
                    if octets.is_empty() {
                        self.parts.pop_front();
                    }
                }
                Part::File => {
                    let Some(payload) = &mut self.payload else { return };
                    let taken = payload.take(count, out);
                    count -= taken;
                    if payload.left == 0 {
                        self.parts.pop_front();
                    } else if taken == 0 {
                        return;
                    }
                }
            }
        }
    }
}

impl Payload {
    /// The next part that is to be read, if there is room for it.
    pub(super) fn next_read(&mut self, ahead: usize) -> Option<(u64, usize)> {
        if self.reading || self.at >= self.end || self.held >= ahead {
            return None;
        }
        let len = (self.end - self.at).min(READ);
        let at = self.at;
        self.reading = true;
        Some((at, len as usize))
    }

    /// Takes what was read; whether it is what was to be there.
    pub(super) fn read(&mut self, octets: Bytes) -> bool {
        self.reading = false;
        if octets.is_empty() {
            return false;
        }
        self.at += octets.len() as u64;
        self.held += octets.len();
        self.ready.push_back(octets);
        true
    }

    fn take(&mut self, count: u64, out: &mut VecDeque<Bytes>) -> u64 {
        let mut taken = 0;
        while taken < count {
            let Some(octets) = self.ready.front_mut() else { break };
            let left = usize::try_from(count - taken).unwrap_or(usize::MAX);
            let here = octets.len().min(left);
            out.push_back(octets.split_to(here));
            if octets.is_empty() {
                self.ready.pop_front();
            }
            self.held -= here;
            self.left -= here as u64;
            taken += here as u64;
        }
        taken
    }
}
