//! Digests of blocks of coded objects: header extension EXT_DIGEST of this implementation, in
//! NORM_INFO.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 71 |
//! | 1 | `hel`, 5 |
//! | 2 | block |
//! | 16 | first 16 bytes of SHA-256 of the block's source bytes |
//!
//! EXT_VERSION in NORM_INFO tells contents of a file apart:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 73 |
//! | 1 | `hel`, 2 |
//! | 6 | version, from the modification time of the file |

use sha2::{Digest as _, Sha256};

use crate::message::{Extension, Extensions, find_extension};

/// Type of the extension.
pub(crate) const EXT_DIGEST: u8 = 71;

/// Type of the extension with the version of a file.
pub(crate) const EXT_VERSION: u8 = 73;

/// Type of the extension of the NORM_INFO of an object that an earlier process began to send: its
/// content has the instance of the sender then, behind a reserved byte. Other implementations skip
/// it.
pub(crate) const EXT_FORMER: u8 = 196;

/// Bytes of EXT_FORMER in a header.
pub(crate) const FORMER_LEN: usize = 4;

/// Instance of the sender in an earlier process that began to send the object, from the extensions
/// of NORM_INFO.
pub(crate) fn former_of(extensions: &Extensions<'_>) -> Option<u16> {
    find_extension(extensions, EXT_FORMER)?.last_chunk().map(|it| u16::from_be_bytes(*it))
}

/// Bytes of EXT_VERSION in a header.
pub(crate) const VERSION_LEN: usize = 8;

/// Content of EXT_VERSION; `None` if the version is unknown.
pub(crate) fn version_content(version: u64) -> Option<[u8; 6]> {
    let [_, _, content @ ..] = version.to_be_bytes();
    (version > 0).then_some(content)
}

/// Version of a file from the extensions of NORM_INFO; 0 if unknown.
pub(crate) fn version_of(extensions: &Extensions<'_>) -> u64 {
    let content =
        find_extension(extensions, EXT_VERSION).and_then(|value| value.first_chunk::<6>());
    content.map_or(0, |&[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

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
        let (block, digest) = (u16::from_be_bytes([content[0], content[1]]), &content[2..]);
        Some(Self { block, digest: first_bytes(digest) })
    }
}
