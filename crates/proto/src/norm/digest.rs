//! Digests of blocks of coded objects: header extension EXT_DIGEST of this implementation, in
//! NORM_INFO.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 71 |
//! | 1 | `hel`, 5 |
//! | 2 | block |
//! | 16 | first 16 bytes of SHA-256 of the block's source bytes |

use sha2::{Digest as _, Sha256};
use wire::norm::Extension;

/// Type of the extension.
pub(crate) const EXT_DIGEST: u8 = 71;

/// Bytes of the content.
const CONTENT: usize = 18;

/// Bytes of the extension in a header.
pub(crate) const DIGEST_LEN: usize = 2 + CONTENT;

/// Maximum number of digests in a NORM_INFO, and in a request for them.
pub(crate) const DIGESTS_MAX: usize = 8;

/// Digest of a block's source bytes.
pub(crate) type Digest = [u8; 16];

/// Computes the digest of a block.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    first_bytes(&Sha256::digest(bytes))
}

/// Digest from a whole SHA-256.
pub(crate) fn first_bytes(whole: &[u8]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&whole[..16]);
    digest
}

/// Content of EXT_DIGEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockDigest {
    pub(crate) block: u16,
    pub(crate) digest: Digest,
}

impl BlockDigest {
    /// Content of the extension.
    pub(crate) fn encode(&self) -> [u8; CONTENT] {
        let mut content = [0; CONTENT];
        content[..2].copy_from_slice(&self.block.to_be_bytes());
        content[2..].copy_from_slice(&self.digest);
        content
    }

    /// Reads the extension; `None` if it is another one.
    pub(crate) fn decode(extension: &Extension<'_>) -> Option<Self> {
        let content: &[u8; CONTENT] =
            extension.value.try_into().ok().filter(|_| extension.kind == EXT_DIGEST)?;
        let mut digest = [0; 16];
        digest.copy_from_slice(&content[2..]);
        Some(Self { block: u16::from_be_bytes([content[0], content[1]]), digest })
    }
}
