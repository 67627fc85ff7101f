//! The Bundle Protocol, version 7 (RFC 9171): bundles.
//!
//! A bundle is an array of blocks in CBOR, which a break ends: the primary block, extension blocks, and last the
//! payload block. What stands before the payload's first byte is a [`Head`]; it is small, and the
//! payload may be as long as a disk. So a head is read from the beginning of a bundle, the payload goes where the
//! reader wants it, and what follows it is checked by [`PayloadCrc`], which is fed the payload in pieces. A bundle
//! that is in memory anyway is a [`Bundle`].
//!
//! Blocks keep the bytes that they were read from. A node that forwards a bundle writes them again as they came,
//! so that it needs to understand neither them nor the order in which their sender wrote what.
//!
//! Names: [`crate::eid`].

mod admin;
mod block;
mod crc;
mod display;
mod head;
mod primary;
#[cfg(test)]
mod tests;

pub use self::admin::{AdministrativeRecord, Reason, Status, StatusReport};
pub use self::block::{Block, BlockFlags, Extension, HopCount};
pub use self::crc::CrcType;
pub use self::head::{Bundle, Head, Payload, PayloadCrc};
pub use self::primary::{BundleFlags, BundleId, CreationTimestamp, Fragment, Primary};
pub use crate::eid::Eid;

use crate::eid;

/// The version in the primary block.
pub const VERSION: u8 = 7;
/// The first byte of every bundle, which tells it from version 6 (whose first is 6).
pub const FIRST_BYTE: u8 = 0x9f;

/// Block type: the payload.
pub const PAYLOAD: u64 = 1;
/// Block type: the node that forwarded the bundle (§4.4.1).
pub const PREVIOUS_NODE: u64 = 6;
/// Block type: how old the bundle is (§4.4.2).
pub const BUNDLE_AGE: u64 = 7;
/// Block type: how often it was forwarded (§4.4.3).
pub const HOP_COUNT: u64 = 10;

/// The number of the primary block, as security blocks give it.
pub const PRIMARY_NUMBER: u64 = 0;
/// The number of the payload block.
pub const PAYLOAD_NUMBER: u64 = 1;

/// What a decoder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes before the payload's first one.
    pub head_max: usize,
    /// Extension blocks.
    pub blocks_max: usize,
    /// Bytes of an endpoint's text.
    pub eid_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { head_max: 64 << 10, blocks_max: 64, eid_max: eid::LEN_MAX }
    }
}
