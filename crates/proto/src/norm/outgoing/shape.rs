//! Blocks and segments of an object.

use wire::norm::{Fti, PayloadId};

use crate::fec::Partition;
use crate::norm::coding::Coding;

/// Partition of an object into blocks and segments.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) partition: Partition,
    pub(super) coding: Coding,
    pub(super) fti: Fti,
    /// Whether NORM_DATA carries it.
    pub(super) has_fti: bool,
    /// Bytes of a segment as it is coded.
    pub(super) symbol_len: u16,
    /// Whether it has no end that is known, and all blocks are equally long.
    pub(super) is_stream: bool,
}

impl Shape {
    pub(super) fn id(&self, block: u32, symbol: u16) -> PayloadId {
        self.coding.payload_id(self.block_len(block), block, symbol)
    }

    /// Source segments of a block.
    pub(super) fn block_len(&self, block: u32) -> u16 {
        if self.is_stream { self.coding.block_len() } else { self.partition.block_len(block) }
    }

    /// Where a block begins and ends.
    pub(super) fn span(&self, block: u32) -> (u64, u64) {
        (self.partition.block_offset(block), self.partition.block_offset(block + 1))
    }
}

/// Rules for segments, from settings and the path's MTU.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) segment: u16,
    /// Bytes of the longest one that the path takes.
    pub(crate) room: u16,
    pub(crate) coding: Coding,
    /// Whether NORM_DATA carries the FEC object transmission information.
    pub(crate) has_fti: bool,
}
