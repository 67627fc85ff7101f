//! Bundles on their way to a neighbour, segment by segment (RFC 9174 §5.2.2).

use wire::tcpcl4::{Extension, Extensions, Message, Segment, SegmentFlags};

use super::super::layer::{Outgoing, Tag};
use super::super::source::Source;
use super::out::Out;
use super::protocol::Agreement;

/// A bundle on its way.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) tag: Tag,
    pub(super) transfer: u64,
    pub(super) source: Source,
    pub(super) len: u64,
    pub(super) sent: u64,
    /// The neighbour said that it has so much.
    pub(super) acknowledged: u64,
    /// The last segment has gone.
    pub(super) is_out: bool,
    /// Bytes of the stream up to its last, once that is so.
    pub(super) ends_at: u64,
    /// Nothing more of it is sent: it was refused, cancelled, or cannot be read.
    pub(super) is_dropped: bool,
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
            is_dropped: false,
        }
    }

    /// Puts the next segment, of `most` bytes of data, behind what is to be sent; whether there was one.
    pub(super) fn next_segment(&mut self, most: u64, agreement: Agreement, out: &mut Out) -> bool {
        if self.is_out || self.is_dropped {
            return false;
        }
        // A bundle whose file cannot be read is not begun, for it could not be ended.
        if self.sent == 0 && self.source.is_unread() {
            return false;
        }
        let data = self.source.available().min(most);
        if data == 0 && self.len > 0 {
            return false;
        }
        let flags = SegmentFlags { start: self.sent == 0, end: self.sent + data == self.len };
        // Where a bundle is one segment, its length is that of the bundle, and more data of it follows.
        let length = if agreement.is_framed() { self.len } else { data };
        if flags.start || !agreement.is_framed() {
            self.say_segment(flags, length, agreement, out);
        }
        self.source.take(data, |bytes| out.push(bytes));
        self.sent += data;
        self.is_out = flags.end;
        self.ends_at = out.put();
        true
    }

    fn say_segment(&self, flags: SegmentFlags, length: u64, agreement: Agreement, out: &mut Out) {
        // A bundle that is one segment says its length by that.
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
