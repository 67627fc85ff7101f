//! Layout of a block: its content, the description after it, and the end of its red part.

use crate::file::Description;
use crate::request::Red;
use crate::transport::flow::Last;

/// Layout of a block.
#[derive(Debug)]
pub(super) struct Layout {
    /// Bytes of the file.
    pub(super) content: u64,
    /// Bytes of the block: the file and its description.
    pub(super) total: u64,
    /// Bytes of the red part, or an upper bound.
    pub(super) red: u64,
    /// Whether the end of the red part is known; a block being received does not show it at first.
    pub(super) is_red_known: bool,
    /// Whether the end of another engine's block is known.
    pub(super) is_end_known: bool,
    /// Last segment of another engine's block.
    last: Option<Last>,
    /// Whether a description follows the content.
    is_described: bool,
    /// Description, once all content was sent; it is a separate segment.
    description: Vec<u8>,
    /// Whether the description must be sent again.
    pub(super) description_due: bool,
}

impl Layout {
    pub(super) const fn new(is_described: bool) -> Self {
        Self {
            content: 0,
            total: 0,
            red: 0,
            is_red_known: true,
            is_end_known: true,
            last: None,
            is_described,
            description: Vec::new(),
            description_due: false,
        }
    }

    /// Sets the length of the content with this name, and the red part. Returns the length of the
    /// description.
    pub(super) fn measure(&mut self, len: u64, name: &str, color: Red) -> u64 {
        let description = if self.is_described { Description::len(name) } else { 0 };
        (self.content, self.total) = (len, len + description);
        self.red = match color {
            Red::All => self.total,
            // A segment is red or green, and the description is one segment.
            Red::Prefix(red) if red > len => self.total,
            Red::Prefix(red) => red,
            Red::None => 0,
        };
        description
    }

    /// Whether a description follows the content.
    pub(super) fn is_described(&self) -> bool {
        self.is_described
    }

    /// First byte that a sender sends which continues a file of `len` bytes, to request a report:
    /// the description, or the last byte.
    pub(super) fn asks_from(&self, len: u64) -> u64 {
        len.saturating_sub(u64::from(!self.is_described))
    }

    /// Omits the description.
    pub(super) fn set_bare(&mut self) {
        self.is_described = false;
    }

    /// Marks the ends of another engine's block, whose red part ends at `red`, as unknown.
    pub(super) fn set_open(&mut self, red: u64) {
        (self.content, self.total, self.red) = (u64::MAX, u64::MAX, red);
    }

    /// Sets the end of another engine's block, and its last segment if that remains a single
    /// segment.
    pub(super) fn end_at(&mut self, total: u64, last: Option<Last>) {
        self.is_end_known = true;
        self.is_described = last.is_some();
        self.total = total;
        self.content = last.as_ref().map_or(total, |last| last.offset);
        self.last = last;
    }

    /// Whether all of the block is red.
    pub(super) fn is_red(&self) -> bool {
        self.red == self.total
    }

    /// Maximum bytes of a segment at `offset`: it is red or green, not both.
    pub(super) fn of_one_color(&self, offset: u64) -> usize {
        let left = if offset < self.red { self.red - offset } else { u64::MAX };
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Whether everything after the content was sent.
    pub(super) fn is_description_sent(&self) -> bool {
        !self.is_described || !self.description.is_empty()
    }

    /// Takes the description to send it. `make` creates it the first time, unless it is another
    /// engine's.
    pub(super) fn take_description(&mut self, make: impl FnOnce(u64) -> Description) -> Vec<u8> {
        if self.description.is_empty() {
            return match &self.last {
                Some(last) => last.bytes.to_vec(),
                None => make(self.content).to_vec(),
            };
        }
        std::mem::take(&mut self.description)
    }

    /// Puts the description back.
    pub(super) fn set_description(&mut self, description: Vec<u8>) {
        self.description = description;
    }
}
