//! UDPCL (RFC 7122): one bundle per datagram.
//!
//! The first byte determines the type of a datagram:
//!
//! | byte | datagram |
//! |---|---|
//! | 0x00, four of them and nothing else | a keepalive |
//! | 0x06 | a bundle of version 6: its version |
//! | 0x9f | a bundle of version 7: head of a CBOR array of indefinite length (RFC 9171 §4.1) |
//! | 0x46 | a [`Fragment`] |
//!
//! Fragments are not part of RFC 7122, which leaves longer bundles to fragmentation by the Bundle
//! Protocol. They are this project's own: other implementations do not support them.
//!
//! | bytes | field of a fragment |
//! |---|---|
//! | 1 | 0x46 |
//! | 4 | the sender's number of the bundle |
//! | 4 | length of the bundle, bytes |
//! | 4 | offset of the data in the bundle |
//! | … | data, at least one byte |

use std::fmt;

use wire::DecodeError;
use wire::cursor::Reader;

/// UDP port (RFC 7122 §3.3).
pub const PORT: u16 = 4556;
/// Maximum length of a datagram in bytes: 65,535 − 20 of IPv4 − 8 of UDP.
pub const DATAGRAM_MAX: usize = 65_507;
/// Keepalive (RFC 7122 §3.5.1).
pub const KEEPALIVE: [u8; 4] = [0; 4];
/// Length of a fragment's header, in bytes.
pub const FRAGMENT_HEADER_LEN: usize = 13;

const VERSION_6: u8 = 0x06;
const VERSION_7: u8 = 0x9f;
const FRAGMENT: u8 = 0x46;

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// Keepalive.
    Keepalive,
    /// Bundle of either version, judged by its first byte alone.
    Bundle(&'a [u8]),
    /// Part of a bundle.
    Fragment(Fragment<'a>),
}

/// Part of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Sender's number of the bundle.
    pub bundle: u32,
    /// Length of the bundle, in bytes.
    pub length: u32,
    /// Offset of the data in the bundle.
    pub offset: u32,
    /// Data.
    pub data: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Decodes a datagram.
    ///
    /// # Errors
    /// The datagram has none of these types, or is a fragment that exceeds its bundle.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.first() {
            Some(&(VERSION_6 | VERSION_7)) => Ok(Self::Bundle(bytes)),
            Some(&FRAGMENT) => Ok(Self::Fragment(Fragment::read(bytes)?)),
            Some(0) if bytes == KEEPALIVE => Ok(Self::Keepalive),
            Some(_) | None => Err(DecodeError::invalid(0, "the datagram holds no bundle")),
        }
    }
}

impl<'a> Fragment<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.u8()?;
        let (bundle, length, offset) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let data = &bytes[reader.offset()..];
        let end = u64::from(offset) + data.len() as u64;
        if data.is_empty() || end > u64::from(length) {
            return Err(DecodeError::invalid(9, "a fragment is not within its bundle"));
        }
        Ok(Self { bundle, length, offset, data })
    }

    /// Encodes the bytes before the data.
    #[must_use]
    pub fn header(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let mut out = [FRAGMENT; FRAGMENT_HEADER_LEN];
        out[1..5].copy_from_slice(&self.bundle.to_be_bytes());
        out[5..9].copy_from_slice(&self.length.to_be_bytes());
        out[9..].copy_from_slice(&self.offset.to_be_bytes());
        out
    }
}

impl fmt::Display for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keepalive => f.write_str("keep-alive"),
            Self::Bundle(bytes) => write!(f, "bundle of {} B", bytes.len()),
            Self::Fragment(Fragment { bundle, length, offset, data }) => {
                let len = data.len();
                write!(f, "bundle {bundle}: {len} B at {offset} of {length} B")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: U01a, U03.
    #[test]
    fn the_first_byte_determines_the_datagram_type() {
        assert_eq!(Datagram::decode(&[0; 4]), Ok(Datagram::Keepalive));
        assert_eq!(Datagram::decode(&[0x06, 1]), Ok(Datagram::Bundle(&[0x06, 1])));
        assert_eq!(Datagram::decode(&[0x9f, 1]), Ok(Datagram::Bundle(&[0x9f, 1])));
        for none in [&[][..], &[0; 3], &[0; 5], &[0x07], &[0x9e], b"hello"] {
            assert!(Datagram::decode(none).is_err(), "{none:?}");
        }
    }

    #[test]
    fn a_fragment_is_within_its_bundle() {
        let bytes = [0x46, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0xfe, 7, 8];
        let fragment = Fragment { bundle: 9, length: 256, offset: 254, data: &[7, 8] };
        assert_eq!(Datagram::decode(&bytes), Ok(Datagram::Fragment(fragment)));
        assert_eq!(fragment.header(), bytes[..13]);
        assert!(Datagram::decode(&bytes[..13]).is_err(), "without data");
        assert!(Datagram::decode(&bytes[..12]).is_err(), "without its offset");
        assert!(Datagram::decode(&[&bytes[..], &[9]].concat()).is_err(), "beyond the end");
        let past = [0x46, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 7];
        assert!(Datagram::decode(&past).is_err());
    }
}
