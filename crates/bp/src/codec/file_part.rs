//! Files in bundles: the header of each part of a file sent as bundle payloads.
//!
//! No specification defines file transfer over plain bundles, so this layout is this project's
//! own. A payload consists of this header and the part's bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `53 4c 46 01`: "SLF", version 1 |
//! | 4 | CRC-32C of all that follows, the part's bytes included |
//! | 8 | number of the transfer, drawn by the sender; the same in all parts of a file |
//! | 8 | size of the file, bytes |
//! | 8 | offset of the part in the file |
//! | 2 | bytes of the name |
//! | – | name of the file at the receiver, UTF-8 |
//!
//! Parts of one file may arrive in any order. Together they cover the file without gaps or
//! overlaps.

use std::fmt;

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

const MAGIC: &[u8] = b"SLF";
const VERSION: u8 = 1;

/// Maximum length of the name, in bytes.
pub const NAME_MAX: usize = 1024;
/// Length of the header before the name, in bytes.
const FIXED: usize = 34;
/// Bytes before those that the CRC covers.
const UNCHECKED: usize = 8;
/// Maximum length of the header, in bytes.
pub const HEADER_MAX: usize = FIXED + NAME_MAX;

/// Header of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart<'a> {
    /// Number of the transfer.
    pub transfer: u64,
    /// Size of the file, in bytes.
    pub total: u64,
    /// Offset of the part in the file.
    pub offset: u64,
    /// Name of the file.
    pub name: &'a str,
}

impl<'a> FilePart<'a> {
    /// Length of this header, in bytes.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        FIXED + self.name.len()
    }

    /// The check so far, before any of the part's bytes.
    ///
    /// # Errors
    /// The name is too long.
    pub fn crc(&self) -> Result<u32, EncodeError> {
        Ok(crc32c::crc32c(&self.encode(0)?[UNCHECKED..]))
    }

    /// Encodes the header, with the CRC over it and the part's bytes.
    ///
    /// # Errors
    /// The name is too long.
    pub fn encode(&self, crc: u32) -> Result<Vec<u8>, EncodeError> {
        if self.name.len() > NAME_MAX {
            return Err(EncodeError::TooLarge { field: "name" });
        }
        let len = u16::try_from(self.name.len()).unwrap_or(u16::MAX);
        let mut out = Vec::with_capacity(self.header_len());
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&crc.to_be_bytes());
        for number in [self.transfer, self.total, self.offset] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(self.name.as_bytes());
        Ok(out)
    }

    /// Decodes the header at the start of a payload, and returns the CRC in it. The part follows.
    ///
    /// # Errors
    /// There is no header, or it is incomplete: [`HEADER_MAX`] bytes are always enough.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, u32), DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(DecodeError::invalid(0, "not the header of a file part"));
        }
        let offset = reader.offset();
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError { offset, kind: DecodeErrorKind::Version(version) });
        }
        let crc = reader.u32()?;
        let transfer = reader.uint(8)?;
        let total = reader.uint(8)?;
        let at = reader.offset();
        let offset = reader.uint(8)?;
        if offset > total {
            return Err(DecodeError::invalid(at, "the part starts behind the file's end"));
        }
        let at = reader.offset();
        let len = usize::from(reader.u16()?);
        if len > NAME_MAX {
            return Err(DecodeError::invalid(at, "the name is too long"));
        }
        let at = reader.offset();
        let name = std::str::from_utf8(reader.take(len)?)
            .map_err(|_| DecodeError::invalid(at, "the name is not UTF-8"))?;
        Ok((Self { transfer, total, offset, name }, crc))
    }
}

/// Continues the CRC over more of the part's bytes.
#[must_use]
pub fn crc_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

impl fmt::Display for FilePart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transfer, total, offset, name } = self;
        write!(f, "part of {name:?} from byte {offset} of {total}, transfer {transfer:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: FilePart<'_> = FilePart { transfer: 0xa1b2, total: 5, offset: 3, name: "log" };

    #[test]
    fn a_part_has_the_layout_of_the_table() {
        let crc = crc_append(PART.crc().unwrap(), b"xy");
        let bytes = PART.encode(crc).unwrap();
        assert_eq!(bytes[..4], *b"SLF\x01");
        assert_eq!(
            bytes[8..],
            *b"\0\0\0\0\0\0\xa1\xb2\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\0\x03log"
        );
        let all = [&bytes[8..], b"xy"].concat();
        assert_eq!(bytes[4..8], crc32c::crc32c(&all).to_be_bytes());
        assert_eq!(FilePart::decode(&bytes), Ok((PART, crc)));
        assert_eq!(bytes.len(), PART.header_len());
    }

    #[test]
    fn truncated_or_invalid_parts_are_refused() {
        let bytes = PART.encode(7).unwrap();
        for len in 0..bytes.len() {
            assert!(FilePart::decode(&bytes[..len]).is_err(), "{len}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            FilePart::decode(&bytes).unwrap_err().kind
        };
        assert_eq!(with(3, 2), DecodeErrorKind::Version(2));
        assert!(matches!(with(0, b'T'), DecodeErrorKind::Invalid(_)));
        assert!(matches!(with(31, 6), DecodeErrorKind::Invalid(_)));
        assert!(matches!(with(32, 0xff), DecodeErrorKind::Invalid(_)));
        assert!(matches!(with(34, 0xff), DecodeErrorKind::Invalid(_)));
        let name = "n".repeat(NAME_MAX + 1);
        assert!(FilePart { name: &name, ..PART }.encode(0).is_err());
    }
}
