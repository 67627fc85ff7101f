//! The Bundle Protocol, version 6 (RFC 5050), with endpoints as numbers (RFC 6260).
//!
//! A bundle is a primary block, blocks, the payload block, and maybe more blocks. What stands before the payload's
//! first byte is a [`Head`], read from the beginning of a bundle however long its payload is; what follows the payload is a
//! [`Trailer`]. A bundle that is in memory anyway is a [`Bundle`].
//!
//! Endpoints stand in a dictionary in the primary block, to which blocks refer. A primary block that is written anew keeps the
//! dictionary that it was read with and adds to it, so that these references still hold; blocks keep
//! the bytes that they were read from.

mod admin;
mod block;
mod display;
mod head;
mod primary;
#[cfg(test)]
mod tests;

pub use self::admin::{
    AdministrativeRecord, AggregateCustodySignal, CustodyReason, CustodySignal, DtnTime, Fill,
    Reason, StatusReport, Subject,
};
pub use self::block::{Block, BlockFlags, CustodyEnhancement, Reference};
pub use self::head::{Bundle, Head, Payload, Trailer};
pub use self::primary::{BundleFlags, BundleId, CreationTimestamp, Fragment, Primary, Priority};
pub use crate::eid::Eid;

use crate::eid;

/// The version in the primary block, and the first byte of every bundle.
pub const VERSION: u8 = 6;

/// Block type: the payload.
pub const PAYLOAD: u8 = 1;
/// Block type: the node that forwarded the bundle (RFC 6259).
pub const PREVIOUS_HOP: u8 = 5;
/// Block type: custody under a number (CCSDS 734.2-B).
pub const CUSTODY_ENHANCEMENT: u8 = 10;

/// What a decoder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes before the payload's first one, and behind its last one.
    pub head_max: usize,
    /// Blocks before the payload, and behind it.
    pub blocks_max: usize,
    /// Endpoints that a block refers to.
    pub references_max: usize,
    /// Bytes of an endpoint's text.
    pub eid_max: usize,
    /// Fills of an aggregate custody signal.
    pub fills_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_max: 64 << 10,
            blocks_max: 64,
            references_max: 16,
            eid_max: eid::LEN_MAX,
            fills_max: 4096,
        }
    }
}

/// A want of more bytes where all are there is an error.
fn whole<T>(read: Result<T, crate::DecodeError>) -> Result<T, crate::DecodeError> {
    read.map_err(|error| match error.kind {
        crate::DecodeErrorKind::Truncated { .. } => {
            crate::DecodeError::invalid(error.offset, "a field goes beyond its block")
        }
        _ => error,
    })
}
