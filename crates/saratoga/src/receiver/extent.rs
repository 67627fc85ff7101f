//! Received parts of a file, and its end.

use session::ranges::Ranges;

use crate::packet::{Content, Data, StatusCode, Width};

/// Received parts of a file, and its end.
#[derive(Debug)]
pub(super) struct Extent {
    /// Received ranges.
    pub(super) ranges: Ranges,
    /// Offset after the highest byte named by the sender.
    highest: u64,
    /// End of the file, if known.
    end: Option<u64>,
    /// End of a stream that arrived before its description.
    early_end: Option<u64>,
    /// Width of the descriptors.
    width: Width,
}

impl Extent {
    pub(super) fn new() -> Self {
        Self { ranges: Ranges::new(), highest: 0, end: None, early_end: None, width: Width::W16 }
    }

    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }

    /// Whether everything up to the end has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.ranges.gaps(0, end).next().is_none())
    }

    /// Bytes that the sender has not sent so far, of a file whose end is known.
    pub(super) fn to_come(&self) -> u64 {
        self.end.map_or(0, |end| end.saturating_sub(self.highest))
    }

    /// Whether the early end of a stream contradicts its data.
    pub(super) fn is_contradictory(&self) -> bool {
        self.early_end.is_some_and(|end| end < self.highest)
    }

    /// Sets width and size from the METADATA; a stream has no size.
    pub(super) fn describe(&mut self, width: Width, size: Option<u64>) {
        self.width = width;
        self.end = size.or(self.early_end);
    }

    /// Adds ranges from an earlier session, and drops those that arrived before the description and
    /// lie beyond the end: they were damaged.
    pub(super) fn begin(&mut self, earlier: &Ranges) {
        for (start, end) in earlier.iter() {
            self.ranges.insert(start, end);
        }
        if let Some(end) = self.end {
            self.ranges.remove(end, u64::MAX);
            self.highest = self.highest.min(end);
        }
        self.highest = self.highest.max(self.ranges.end());
    }

    /// Contradiction between a packet and the METADATA (§4.4, §6.6) of a file with this content.
    pub(super) fn contradiction(&self, content: Content, data: &Data<'_>) -> Option<StatusCode> {
        let end = data.offset + data.data.len() as u64;
        let is_stream = content == Content::Stream;
        let is_beyond = self.end.is_some_and(|known| end > known);
        if content != data.content {
            Some(StatusCode::FlagsChanged)
        } else if data.descriptor != self.width {
            Some(StatusCode::DescriptorMismatch)
        } else if data.is_end && self.end.is_some_and(|known| end < known) {
            Some(StatusCode::Unspecified)
        } else if is_stream && (is_beyond || data.is_end && end < self.highest) {
            // Only the packets of a stream give its length: they must agree.
            Some(StatusCode::Unspecified)
        } else {
            None
        }
    }

    /// Learns from the header of a packet that ends at `end`, whether METADATA has arrived or not.
    pub(super) fn learn(&mut self, data: &Data<'_>, end: u64, is_described: bool) {
        if !is_described {
            self.width = self.width.max(data.descriptor);
        }
        if data.is_end && data.content == Content::Stream {
            if is_described {
                self.end = Some(end);
            } else {
                self.early_end = Some(self.early_end.map_or(end, |other| other.min(end)));
            }
        }
        self.highest = self.highest.max(end);
    }
}
