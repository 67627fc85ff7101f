//! Segments delivered with one write.

use std::ops::Range;

use engine::Time;

use crate::store::PacketId;
use rt::frame::Joint;

/// Adjacent segments of one packet that are due.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) packet: PacketId,
    pub(super) segments: Range<u16>,
    pub(super) due: Time,
}

/// Segments delivered as one packet: adjacent segments of one packet, or consecutive datagrams.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) runs: Vec<Run>,
    /// Consecutive datagrams.
    pub(super) joint: Option<Joint>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
