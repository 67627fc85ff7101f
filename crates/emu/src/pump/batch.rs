//! What is handed over at once.

use std::ops::Range;

use engine::Time;

use crate::store::PacketId;
use rt::frame::Joint;

/// Segments that were neighbours in one packet, and are due.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) packet: PacketId,
    pub(super) segments: Range<u16>,
    pub(super) due: Time,
}

/// What is to be handed over as one packet: neighbours of one, or datagrams that follow each other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) runs: Vec<Run>,
    /// Of what follows each other.
    pub(super) joint: Option<Joint>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
