//! Blocks and segments of an object.

use crate::fec::Partition;

use crate::coding::Coding;
use crate::message::{Body, Data, Extensions, Flags, Fti, PayloadId};
use crate::transmission::Output;

/// Partition of an object into blocks and segments.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Transport identifier in messages.
    pub(super) object: u16,
    pub(super) flags: Flags,
    pub(super) partition: Partition,
    pub(super) coding: Coding,
    pub(super) fti: Fti,
    /// Whether NORM_DATA carries it.
    pub(super) has_fti: bool,
    /// Bytes of a coded segment.
    pub(super) symbol_len: u16,
    /// Whether the object has no known end, and all blocks have the full length.
    pub(super) is_stream: bool,
}

impl Shape {
    /// Sends a segment. Returns `false` if it must wait for the next batch.
    pub(super) fn push(
        &self,
        out: &mut Output<'_, '_>,
        flags: Flags,
        id: PayloadId,
        payload: &[u8],
    ) -> bool {
        out.push(Body::Data(Data {
            sender: out.transmission.header(),
            flags: self.flags | flags,
            fec: self.coding.scheme,
            object: self.object,
            id,
            fti: self.has_fti.then_some(self.fti),
            others: Extensions::NONE,
            payload,
        }))
    }

    pub(super) fn id(&self, block: u32, symbol: u16) -> PayloadId {
        self.coding.payload_id(self.block_len(block), block, symbol)
    }

    /// Number of source segments of a block.
    pub(super) fn block_len(&self, block: u32) -> u16 {
        if self.is_stream { self.coding.block_len } else { self.partition.block_len(block) }
    }

    /// Number of source and parity segments of a block.
    pub(super) fn symbols(&self, block: u32) -> u32 {
        u32::from(self.block_len(block)) + u32::from(self.coding.parity)
    }

    /// Offsets at which a block begins and ends.
    pub(super) fn span(&self, block: u32) -> (u64, u64) {
        (self.partition.block_offset(block), self.partition.block_offset(block + 1))
    }

    /// Offsets at which a source segment begins and ends.
    pub(super) fn segment_span(&self, block: u32, symbol: u16) -> (u64, u64) {
        let start = self.partition.segment_offset(block, symbol);
        (start, start + u64::from(self.partition.segment_len(block, symbol)))
    }
}

/// Rules for the partition, from settings and the path's MTU.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) segment: u16,
    /// Longest segment that the path's MTU allows, in bytes.
    pub(crate) room: u16,
    pub(crate) coding: Coding,
    /// Loss that determines the parity positions of long blocks, if known.
    pub(crate) loss: Option<f64>,
    /// Whether NORM_DATA carries the FEC object transmission information.
    pub(crate) has_fti: bool,
}
