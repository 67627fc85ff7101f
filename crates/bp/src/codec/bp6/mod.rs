//! The Bundle Protocol, version 6 (RFC 5050), with endpoints as numbers (RFC 6260).
//!
//! A bundle is a primary block, blocks, the payload block, and maybe more blocks. The part before
//! the payload's first byte is a [`Head`], decoded from the start of a bundle however long its
//! payload is; the part behind the payload is a [`Trailer`]. A bundle that is completely in memory
//! is a [`Bundle`].
//!
//! Blocks refer to endpoints in a dictionary in the primary block. A re-encoded primary block
//! keeps its dictionary and appends to it, so these references stay valid; blocks keep their
//! original bytes.

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
pub use self::block::{Block, CustodyEnhancement, Reference};
pub use self::head::{Bundle, Head, Payload, Trailer};
pub use self::primary::{CreationTimestamp, Primary, Priority};
pub use crate::codec::bundle::{BlockFlags, Bounds, BundleFlags, Fragment};
pub use crate::codec::eid::Eid;

/// The version in the primary block, and the first byte of every bundle.
pub const VERSION: u8 = 6;

/// Block type: the payload.
pub const PAYLOAD: u8 = 1;
/// Block type: the node that forwarded the bundle (RFC 6259).
pub const PREVIOUS_HOP: u8 = 5;
/// Block type: custody under a number (CCSDS 734.2-B).
pub const CUSTODY_ENHANCEMENT: u8 = 10;

/// Turns a request for more bytes into an error, for input that is complete.
fn whole<T>(read: Result<T, wire::DecodeError>) -> Result<T, wire::DecodeError> {
    read.map_err(|error| match error.kind {
        wire::DecodeErrorKind::Truncated { .. } => {
            wire::DecodeError::invalid(error.offset, "a field goes beyond its block")
        }
        _ => error,
    })
}
