//! MTCP and STCP: bundles over TCP, framed by their lengths alone.
//!
//! Neither has an RFC. MTCP is draft-ietf-dtn-mtcpcl-01, as in dtn7 and µD3TN; STCP is used by ION
//! and HDTN. Both are unidirectional, from the connecting to the listening side, without
//! acknowledgements.
//!
//! | protocol | before each bundle | keepalive, an empty bundle |
//! |---|---|---|
//! | MTCP | the head of a CBOR byte string of definite length (RFC 8949 §3.1) | 0x40 |
//! | STCP | the bytes of the bundle, u32 | 0x00000000 |

use std::fmt;

use wire::cursor::Reader;
use wire::{DecodeError, EncodeError};

use crate::codec::bundle::or_more;
use crate::codec::cbor::{self, Major};
use crate::codec::tcpcl;

/// Maximum length of the length field, in bytes.
pub const LEN_MAX: usize = 9;

/// Framing of bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Heads of CBOR byte strings.
    Mtcp,
    /// Lengths of four bytes.
    Stcp,
}

impl Framing {
    /// Maximum length of a bundle, in bytes.
    #[must_use]
    pub const fn bundle_max(self) -> u64 {
        match self {
            Self::Mtcp => u64::MAX,
            Self::Stcp => u32::MAX as u64,
        }
    }

    /// Decodes the length before a bundle from the start of a stream. Returns the length of the
    /// bundle and of the length field. `None` if more bytes are needed; [`LEN_MAX`] are always
    /// enough.
    ///
    /// # Errors
    /// The item is not a byte string of definite length.
    pub fn decode(self, bytes: &[u8]) -> Result<Option<(u64, usize)>, DecodeError> {
        let read = |mut reader: Reader<'_>| {
            let len = match self {
                Self::Mtcp => cbor::bytes_len(&mut reader)?,
                Self::Stcp => u64::from(reader.u32()?),
            };
            Ok((len, reader.offset()))
        };
        or_more(read(Reader::new(bytes)), LEN_MAX, tcpcl::TOO_LONG)
    }

    /// Returns the bytes before a bundle of this length.
    ///
    /// # Errors
    /// The bundle is longer than [`Framing::bundle_max`].
    pub fn to_vec(self, len: u64) -> Result<Vec<u8>, EncodeError> {
        match self {
            Self::Mtcp => {
                let mut out = Vec::with_capacity(LEN_MAX);
                cbor::put(&mut out, Major::Bytes, len);
                Ok(out)
            }
            Self::Stcp => match u32::try_from(len) {
                Ok(len) => Ok(len.to_be_bytes().to_vec()),
                Err(_) => Err(EncodeError::TooLarge { field: "the length of a bundle" }),
            },
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mtcp => "MTCP",
            Self::Stcp => "STCP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the lengths of byte strings in RFC 8949 appendix A.
    #[test]
    fn mtcp_has_the_heads_of_byte_strings() {
        let heads: [(u64, &[u8]); 7] = [
            (0, &[0x40]),
            (4, &[0x44]),
            (24, &[0x58, 24]),
            (100, &[0x58, 100]),
            (1000, &[0x59, 0x03, 0xe8]),
            (1_000_000, &[0x5a, 0x00, 0x0f, 0x42, 0x40]),
            (1_000_000_000_000, &[0x5b, 0x00, 0x00, 0x00, 0xe8, 0xd4, 0xa5, 0x10, 0x00]),
        ];
        for (len, bytes) in heads {
            assert_eq!(Framing::Mtcp.to_vec(len).unwrap(), bytes);
            assert_eq!(Framing::Mtcp.decode(bytes), Ok(Some((len, bytes.len()))));
            assert_eq!(Framing::Mtcp.decode(&bytes[..bytes.len() - 1]), Ok(None));
        }
        // Overlong lengths are accepted; indefinite lengths and texts are not.
        assert_eq!(Framing::Mtcp.decode(&[0x59, 0, 4]), Ok(Some((4, 3))));
        assert!(Framing::Mtcp.decode(&[0x5f, 0x41]).is_err());
        assert!(Framing::Mtcp.decode(&[0x64, 0x41]).is_err());
        assert!(Framing::Mtcp.decode(&[0x5c]).is_err());
    }

    #[test]
    fn stcp_has_four_bytes() {
        let framing = Framing::Stcp;
        assert_eq!(framing.to_vec(0x0102_0304).unwrap(), [1, 2, 3, 4]);
        assert_eq!(framing.decode(&[1, 2, 3, 4, 9]), Ok(Some((0x0102_0304, 4))));
        assert_eq!(framing.decode(&[1, 2, 3]), Ok(None));
        assert_eq!(framing.to_vec(framing.bundle_max()).unwrap(), [0xff; 4]);
        assert!(framing.to_vec(1 << 32).is_err());
    }
}
