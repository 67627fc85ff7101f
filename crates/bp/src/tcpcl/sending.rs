//! Transmission of bundles in segments (RFC 9174 §5.2.2).

use crate::codec::tcpcl4::{Extension, Extensions, Message, Segment, SegmentFlags};

use super::super::layer::{Outgoing, Tag};
use super::super::source::Source;
use super::out::Out;
use super::protocol::Agreement;

/// A bundle in transit.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) tag: Tag,
    pub(super) transfer: u64,
    pub(super) source: Source,
    pub(super) len: u64,
    pub(super) sent: u64,
    /// Bytes acknowledged by the neighbour.
    pub(super) acknowledged: u64,
    /// Whether the last segment was sent.
    pub(super) is_out: bool,
    /// Position in the stream behind its last byte, once sent.
    pub(super) ends_at: u64,
}

impl Sending {
    pub(super) fn new(tag: Tag, transfer: u64, bundle: Outgoing) -> Self {
        let len = bundle.len();
        Self {
            tag,
            transfer,
            source: Source::new(bundle),
            len,
            sent: 0,
            acknowledged: 0,
            is_out: false,
            ends_at: 0,
        }
    }

    /// Appends the next segment, of at most `most` bytes of data, to the output; returns whether
    /// there was one.
    pub(super) fn next_segment(&mut self, most: u64, agreement: Agreement, out: &mut Out) -> bool {
        if self.is_out {
            return false;
        }
        // A bundle whose file cannot be read is not started, because it could not be ended.
        if self.sent == 0 && self.source.is_unread() {
            return false;
        }
        let data = self.source.available().min(most);
        if data == 0 && self.len > 0 {
            return false;
        }
        let flags = SegmentFlags { start: self.sent == 0, end: self.sent + data == self.len };
        // If a bundle is one segment, this is the length of the bundle, and more data follows.
        let length = if agreement.is_framed() { self.len } else { data };
        if flags.start || !agreement.is_framed() {
            self.write_segment(flags, length, agreement, out);
        }
        self.source.take(data, |bytes| out.push(bytes));
        self.sent += data;
        self.is_out = flags.end;
        self.ends_at = out.put();
        true
    }

    fn write_segment(&self, flags: SegmentFlags, length: u64, agreement: Agreement, out: &mut Out) {
        // A bundle of one segment needs no extension for its length.
        let bytes = self.len.to_be_bytes();
        let items = [Extension::transfer_length(&bytes)];
        let extensions =
            if flags.start && !flags.end { Extensions::new(&items) } else { Extensions::NONE };
        let segment = Segment { flags, transfer: self.transfer, extensions, length };
        if let Some(bytes) = agreement.write(&Message::Segment(segment)) {
            out.push(bytes.into());
        }
    }
}
