//! The fixed PDU header (CCSDS 727.0-B-5 §5.1).
//!
//! | byte | bits | field |
//! |---|---|---|
//! | 0 | 7-5 | version: 001 is issue 5, 000 are issues 1 to 4 |
//! |   | 4 | PDU type: 0 file directive, 1 file data |
//! |   | 3 | direction: 0 toward the receiver, 1 toward the sender |
//! |   | 2 | transmission mode: 0 acknowledged, 1 unacknowledged |
//! |   | 1 | CRC present |
//! |   | 0 | large file: file sizes and offsets have 64 bits (version 1 only) |
//! | 1-2 | | data field length: all bytes after the header, CRC included |
//! | 3 | 7 | segmentation control: 1 record boundaries are preserved (version 1 only) |
//! |   | 6-4 | length of entity identifiers, less one |
//! |   | 3 | segment metadata present (file data, version 1 only) |
//! |   | 2-0 | length of the transaction sequence number, less one |
//! | 4… | | source entity, transaction sequence number, destination entity |

use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::codes::{Direction, TransmissionMode, Version};

/// Length of the header before the identifiers, in bytes.
const FIXED_LEN: usize = 4;

/// Width of an identifier on the wire: 1 to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Width(u8);

impl Width {
    /// One byte.
    pub const ONE: Self = Self(1);
    /// Two bytes.
    pub const TWO: Self = Self(2);
    /// Four bytes.
    pub const FOUR: Self = Self(4);
    /// Eight bytes.
    pub const EIGHT: Self = Self(8);

    /// Creates a width of 1 to 8 bytes, or `None`.
    #[must_use]
    pub const fn new(bytes: u8) -> Option<Self> {
        if bytes >= 1 && bytes <= 8 { Some(Self(bytes)) } else { None }
    }

    /// Returns the smallest width that holds a value: 1 for 0, 2 for 256.
    #[must_use]
    pub const fn fitting(value: u64) -> Self {
        // 0 and 1..=255 need 1 byte: (64 − leading zeros + 7) / 8 bytes.
        let bytes = (64 - value.leading_zeros()).div_ceil(8);
        if bytes == 0 { Self(1) } else { Self(bytes as u8) }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the largest value that fits.
    #[must_use]
    pub const fn max_value(self) -> u64 {
        u64::MAX >> (64 - 8 * self.0 as u32)
    }

    const fn from_bits(bits: u8) -> Self {
        Self((bits & 7) + 1)
    }

    const fn bits(self) -> u8 {
        self.0 - 1
    }
}

/// Number of a CFDP entity. Its width on the wire is not part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(pub u64);

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A transaction: the entity that started it and that entity's sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The entity that sends the file.
    pub source: EntityId,
    /// Sequence number of the transaction.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.source, self.sequence)
    }
}

/// Header fields shared by all PDUs of a transaction. PDU type, data field length and the segment
/// metadata flag follow from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Issue of the book.
    pub version: Version,
    /// Direction in which this PDU travels. Source and destination do not swap with it.
    pub direction: Direction,
    /// Transmission mode of the transaction.
    pub mode: TransmissionMode,
    /// Whether a CRC-16 ends the PDU.
    pub crc: bool,
    /// Whether file sizes and offsets take 64 bits; false in version 0.
    pub large_file: bool,
    /// Whether record boundaries are preserved. Version 1 has it in each header. Version 0 has it
    /// inverted, and only in the Metadata PDU, so other version 0 PDUs decode as false.
    pub segmentation_control: bool,
    /// Width of both entity identifiers.
    pub entity_width: Width,
    /// Width of the sequence number.
    pub sequence_width: Width,
    /// Entity that sends the file.
    pub source: EntityId,
    /// Transaction sequence number, assigned by the source.
    pub sequence: u64,
    /// Entity that receives the file.
    pub destination: EntityId,
}

/// Header fields that describe the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    pub(super) file_data: bool,
    pub(super) segment_metadata: bool,
    pub(super) data_field_len: usize,
}

impl Header {
    /// Returns the transaction the PDU belongs to.
    #[must_use]
    pub const fn transaction(&self) -> TransactionId {
        TransactionId { source: self.source, sequence: self.sequence }
    }

    /// Length of the header, in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        FIXED_LEN + 2 * self.entity_width.bytes() + self.sequence_width.bytes()
    }

    /// Length of a file-size-sensitive field, in bytes: 4, or 8 with the large-file flag.
    #[must_use]
    pub const fn file_size_len(&self) -> usize {
        if self.large_file { 8 } else { 4 }
    }

    /// Length of the PDU's CRC, in bytes: 2 or 0.
    #[must_use]
    pub const fn crc_len(&self) -> usize {
        if self.crc { 2 } else { 0 }
    }

    /// Decodes only the header of a PDU: enough to find its transaction.
    ///
    /// # Errors
    /// An unknown version, or an input that ends within the header.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self::read(&mut Reader::new(bytes))?.0)
    }

    #[inline]
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Self, Contents), DecodeError> {
        let offset = reader.offset();
        let first = reader.u8()?;
        let version = match first >> 5 {
            0 => Version::V0,
            1 => Version::V1,
            other => return Err(DecodeError { offset, kind: DecodeErrorKind::Version(other) }),
        };
        let current = version == Version::V1;
        let data_field_len = usize::from(reader.u16()?);
        let fourth = reader.u8()?;
        let entity_width = Width::from_bits(fourth >> 4);
        let sequence_width = Width::from_bits(fourth);
        let source = EntityId(reader.uint(entity_width.bytes())?);
        let sequence = reader.uint(sequence_width.bytes())?;
        let destination = EntityId(reader.uint(entity_width.bytes())?);
        let header = Self {
            version,
            direction: match first & 0x08 {
                0 => Direction::TowardReceiver,
                _ => Direction::TowardSender,
            },
            mode: match first & 0x04 {
                0 => TransmissionMode::Acknowledged,
                _ => TransmissionMode::Unacknowledged,
            },
            crc: first & 0x02 != 0,
            large_file: current && first & 0x01 != 0,
            segmentation_control: current && fourth & 0x80 != 0,
            entity_width,
            sequence_width,
            source,
            sequence,
            destination,
        };
        let file_data = first & 0x10 != 0;
        let segment_metadata = current && file_data && fourth & 0x08 != 0;
        Ok((header, Contents { file_data, segment_metadata, data_field_len }))
    }

    #[inline]
    pub(super) fn write(
        &self,
        writer: &mut Writer<'_>,
        contents: Contents,
    ) -> Result<(), EncodeError> {
        let data_field_len = u16::try_from(contents.data_field_len)
            .map_err(|_| EncodeError::TooLarge { field: "PDU data field length" })?;
        let current = self.version == Version::V1;
        if !current && self.large_file {
            return Err(EncodeError::Conflict("version 0 has no large files"));
        }
        if !current && contents.segment_metadata {
            return Err(EncodeError::Conflict("version 0 has no segment metadata"));
        }
        let first = u8::from(current) << 5
            | u8::from(contents.file_data) << 4
            | u8::from(self.direction == Direction::TowardSender) << 3
            | u8::from(self.mode == TransmissionMode::Unacknowledged) << 2
            | u8::from(self.crc) << 1
            | u8::from(self.large_file);
        let fourth = u8::from(current && self.segmentation_control) << 7
            | self.entity_width.bits() << 4
            | u8::from(contents.segment_metadata) << 3
            | self.sequence_width.bits();
        let [high, low] = data_field_len.to_be_bytes();
        writer.put(&[first, high, low, fourth])?;
        writer.uint(self.source.0, self.entity_width.bytes(), "source entity id")?;
        writer.uint(self.sequence, self.sequence_width.bytes(), "transaction sequence number")?;
        writer.uint(self.destination.0, self.entity_width.bytes(), "destination entity id")
    }
}
