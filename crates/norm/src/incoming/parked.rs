//! Segments that arrive before NORM_INFO describes their object.

use bytes::Bytes;

use super::PIECE_COST;
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
    /// Keeps a segment if there is room for `room` bytes. Returns the memory that it takes.
    pub(super) fn keep(&mut self, data: &Data<'_>, room: usize) -> Option<usize> {
        let cost = data.payload.len() + PIECE_COST;
        if self.segments.len() >= SEGMENTS_MAX || cost > room.min(MEMORY_MAX - self.bytes) {
            return None;
        }
        self.bytes += cost;
        self.segments.push((data.id, Bytes::copy_from_slice(data.payload)));
        Some(cost)
    }

    /// Takes all segments, and the memory that they took.
    pub(super) fn take(&mut self) -> (Vec<(PayloadId, Bytes)>, usize) {
        (std::mem::take(&mut self.segments), std::mem::take(&mut self.bytes))
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes
    }
}
