//! What is hashed or authenticated (RFC 9173 §3.7 and §4.7.2), up to the target's data, which the caller feeds
//! behind it, in pieces if it likes.

use super::Scope;
use crate::bp7::{Block, BlockFlags, PAYLOAD, PAYLOAD_NUMBER, Payload};
use crate::cbor::{self, Major};

/// What a security context protects of a block besides its data.
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
    /// That of the payload block.
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

/// What a BIB protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The primary block, the bytes of which are its data.
    Primary,
    /// Another block.
    Block {
        /// What it is.
        header: BlockHeader,
        /// Bytes of its data.
        len: u64,
    },
}

/// What stands before the target's data in the integrity-protected plaintext of BIB-HMAC-SHA2 (§3.7). The data follow it;
/// nothing follows them. Of the primary block, everything is here.
///
/// `primary` is the primary block as it is in the bundle. A target has no CRC when this is computed: who adds a
/// BIB takes the CRC from its target first (§3.8.1).
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

/// The additional authenticated data of BCB-AES-GCM (§4.7.2). The target's data are what is encrypted, and no part of it.
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
