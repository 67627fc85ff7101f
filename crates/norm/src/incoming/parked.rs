//! Segments that arrive before NORM_INFO describes their object.

use bytes::Bytes;

use super::PIECE_COST;
use crate::core::Core;
use crate::message::{Data, PayloadId};

/// Maximum number of segments kept for an object.
const SEGMENTS_MAX: usize = 64;

/// Maximum memory of an object's segments, in bytes.
const MEMORY_MAX: usize = 128 << 10;

/// Returns the number of segments of this length that are kept.
pub(crate) fn parked_max(segment: usize) -> usize {
    (MEMORY_MAX / (segment + PIECE_COST)).min(SEGMENTS_MAX)
}

/// Segments of an object of unknown shape.
#[derive(Debug, Default)]
pub(super) struct Parked {
    segments: Vec<(PayloadId, Bytes)>,
    bytes: usize,
}

impl Parked {
    /// Keeps a segment if there is room.
    pub(super) fn keep(&mut self, core: &mut Core, data: &Data<'_>) {
        let cost = data.payload.len() + PIECE_COST;
        let room = (core.config.limits.assembly / 2).saturating_sub(core.reserved);
        if self.segments.len() >= SEGMENTS_MAX || cost > room.min(MEMORY_MAX - self.bytes) {
            core.stats.data_dropped += 1;
            return;
        }
        core.reserved += cost;
        self.bytes += cost;
        self.segments.push((data.id, Bytes::copy_from_slice(data.payload)));
    }

    /// Takes all segments, and releases their memory.
    pub(super) fn take(&mut self, core: &mut Core) -> Vec<(PayloadId, Bytes)> {
        core.reserved -= std::mem::take(&mut self.bytes);
        std::mem::take(&mut self.segments)
    }
}
