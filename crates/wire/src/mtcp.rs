//! MTCP and STCP: bundles over TCP with nothing around them but their lengths.
//!
//! Neither has an RFC. MTCP is draft-ietf-dtn-mtcpcl-01, as dtn7 and µD3TN speak it; STCP is what ION and HDTN speak.
//! Both go one way, from who connects to who listens, and nothing is acknowledged.
//!
//! | protocol | before each bundle | nobody's bundle, a sign of life |
//! |---|---|---|
//! | MTCP | the head of a CBOR byte string of definite length (RFC 8949 §3.1) | 0x40 |
//! | STCP | the bytes of the bundle, u32 | 0x00000000 |

use std::fmt;

use crate::cbor::{self, Major};
use crate::cursor::Reader;
use crate::{DecodeError, EncodeError, tcpcl};

/// Bytes of the longest length.
pub const LEN_MAX: usize = 9;

/// How bundles are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By the heads of CBOR byte strings.
    Mtcp,
    /// By lengths of four bytes.
    Stcp,
}

impl Framing {
    /// Bytes of the longest bundle.
    #[must_use]
    pub const fn bundle_max(self) -> u64 {
        match self {
            Self::Mtcp => u64::MAX,
            Self::Stcp => u32::MAX as u64,
        }
    }

    /// Reads the length before a bundle from the beginning of a stream: the bytes of the bundle, and those of the length. `None`
    /// if more are needed; [`LEN_MAX`] are always enough.
    ///
    /// # Errors
    /// It is no byte string of definite length.
    pub fn decode(self, bytes: &[u8]) -> Result<Option<(u64, usize)>, DecodeError> {
        let read = |mut reader: Reader<'_>| {
            let len = match self {
                Self::Mtcp => cbor::bytes_len(&mut reader)?,
                Self::Stcp => u64::from(reader.u32()?),
            };
            Ok((len, reader.offset()))
        };
        tcpcl::or_more(read(Reader::new(bytes)), LEN_MAX)
    }

    /// The bytes before a bundle of this length.
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

    /// The lengths of RFC 8949 appendix A, of byte strings.
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
        // A length that is written longer than it need be is one; one that is not definite is none, nor is a text.
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
