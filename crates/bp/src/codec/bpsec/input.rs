//! Inputs of hash and authentication (RFC 9173 §3.7 and §4.7.2), up to the target's data. The
//! caller feeds the data next, in pieces if necessary.

use super::Scope;
use crate::codec::bp7::{Block, BlockFlags, PAYLOAD, PAYLOAD_NUMBER, Payload};
use crate::codec::cbor::{self, Major};

/// Fields of a block, in addition to its data, that a security context protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The block type.
    pub kind: u64,
    /// The block number.
    pub number: u64,
    /// The block processing control flags.
    pub flags: BlockFlags,
}

impl BlockHeader {
    /// Returns the header of the payload block.
    #[must_use]
    pub const fn of_payload(payload: &Payload) -> Self {
        Self { kind: PAYLOAD, number: PAYLOAD_NUMBER, flags: payload.flags }
    }

    fn write(&self, out: &mut Vec<u8>) {
        for value in [self.kind, self.number, self.flags.0] {
            cbor::put_uint(out, value);
        }
    }
}

impl From<&Block> for BlockHeader {
    fn from(block: &Block) -> Self {
        Self { kind: block.kind(), number: block.number(), flags: block.flags() }
    }
}

/// Target of a BIB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Primary block, whose bytes are its data.
    Primary,
    /// Another block.
    Block {
        /// Header of the block.
        header: BlockHeader,
        /// Length of its data, in bytes.
        len: u64,
    },
}

/// Returns the bytes before the target's data in the integrity-protected plaintext of
/// BIB-HMAC-SHA2 (§3.7). The data follow and end the input. For the primary block, the result is
/// complete.
///
/// `primary` is the primary block as in the bundle. The target must have no CRC: a node that adds
/// a BIB removes the target's CRC first (§3.8.1).
#[must_use]
pub fn integrity_input(
    scope: Scope,
    primary: &[u8],
    target: Target,
    security: BlockHeader,
) -> Vec<u8> {
    let header = match target {
        Target::Primary => None,
        Target::Block { header, .. } => Some(header),
    };
    let mut out = before_target(scope, primary, header, security);
    match target {
        Target::Primary => cbor::put_bytes(&mut out, primary),
        Target::Block { len, .. } => cbor::put(&mut out, Major::Bytes, len),
    }
    out
}

/// Returns the additional authenticated data of BCB-AES-GCM (§4.7.2). The target's data are
/// encrypted and not part of it.
#[must_use]
pub fn additional_data(
    scope: Scope,
    primary: &[u8],
    target: BlockHeader,
    security: BlockHeader,
) -> Vec<u8> {
    before_target(scope, primary, Some(target), security)
}

fn before_target(
    scope: Scope,
    primary: &[u8],
    target: Option<BlockHeader>,
    security: BlockHeader,
) -> Vec<u8> {
    let mut out = Vec::new();
    cbor::put_uint(&mut out, scope.flags());
    // The primary block is not protected twice, and has no such header.
    if let Some(target) = target {
        if scope.primary {
            out.extend_from_slice(primary);
        }
        if scope.target_header {
            target.write(&mut out);
        }
    }
    if scope.security_header {
        security.write(&mut out);
    }
    out
}
