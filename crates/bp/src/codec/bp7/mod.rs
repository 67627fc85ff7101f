//! The Bundle Protocol, version 7 (RFC 9171): bundles.
//!
//! A bundle is a CBOR array of blocks, ended by a break: the primary block, extension blocks, and
//! last the payload block. The part before the payload's first byte is a [`Head`]. It is small,
//! while the payload may be as long as a disk. So a head is decoded from the start of a bundle,
//! the caller streams the payload, and [`PayloadCrc`], fed with the payload in pieces, verifies
//! the end. A bundle that is completely in memory is a [`Bundle`].
//!
//! Blocks keep their original bytes. A node that forwards a bundle writes them unchanged, so it
//! needs to understand neither them nor the encoding their sender chose.
//!
//! Endpoint identifiers: [`crate::codec::eid`].

mod admin;
mod block;
mod crc;
mod display;
mod head;
mod primary;
#[cfg(test)]
mod tests;

pub use self::admin::{AdministrativeRecord, Reason, Status, StatusReport};
pub use self::block::{Block, Extension, HopCount};
pub use self::crc::CrcType;
pub use self::head::{Bundle, Head, Payload, PayloadCrc};
pub use self::primary::{BundleId, CreationTimestamp, Primary};
pub use crate::codec::bundle::{BlockFlags, Bounds, BundleFlags, Fragment};
pub use crate::codec::eid::Eid;

/// The version in the primary block.
pub const VERSION: u8 = 7;
/// First byte of every bundle; distinguishes it from version 6 (whose first byte is 6).
pub const FIRST_BYTE: u8 = 0x9f;

/// Block type: the payload.
pub const PAYLOAD: u64 = 1;
/// Block type: the node that forwarded the bundle (§4.4.1).
pub const PREVIOUS_NODE: u64 = 6;
/// Block type: age of the bundle (§4.4.2).
pub const BUNDLE_AGE: u64 = 7;
/// Block type: hop count (§4.4.3).
pub const HOP_COUNT: u64 = 10;

/// Number of the primary block in security blocks.
pub const PRIMARY_NUMBER: u64 = 0;
/// Number of the payload block.
pub const PAYLOAD_NUMBER: u64 = 1;
