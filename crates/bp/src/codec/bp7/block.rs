//! Canonical blocks (RFC 9171 §4.3.2), and the data of that specification's extension blocks
//! (§4.4).
//!
//! | item | field |
//! |---|---|
//! | number | block type |
//! | number | block number |
//! | number | block processing control flags |
//! | number | CRC type |
//! | byte string | data of the block's type |
//! | byte string | CRC, if its type is not 0 |

use std::ops::Range;
use std::sync::Arc;

use wire::cursor::Reader;
use wire::{DecodeError, EncodeError};

use super::crc::Check;
use super::{
    BUNDLE_AGE, BlockFlags, Bounds, CrcType, HOP_COUNT, PAYLOAD, PAYLOAD_NUMBER, PREVIOUS_NODE,
    PRIMARY_NUMBER,
};
use crate::codec::cbor::{self, Array, Major};
use crate::codec::eid::Eid;

/// Extension block, with its original or encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    kind: u64,
    number: u64,
    flags: BlockFlags,
    crc: CrcType,
    data: Range<usize>,
    bytes: Arc<[u8]>,
}

impl Block {
    /// Creates a block in the shortest form.
    ///
    /// # Errors
    /// The type is the payload's, or the number is that of the primary or payload block.
    pub fn new(
        kind: u64,
        number: u64,
        flags: BlockFlags,
        crc: CrcType,
        data: &[u8],
    ) -> Result<Self, EncodeError> {
        if kind == PAYLOAD {
            return Err(EncodeError::Conflict("an extension block has the payload's type"));
        }
        if matches!(number, PRIMARY_NUMBER | PAYLOAD_NUMBER) {
            return Err(EncodeError::Conflict("an extension block has a number from 2 on"));
        }
        let mut out = Frame { kind, number, flags, crc, len: data.len() as u64 }.to_vec();
        let start = out.len();
        out.extend_from_slice(data);
        let data = start..out.len();
        let mut check = Check::new(crc);
        check.update(&out);
        crc.write_value(check, &mut out, &[]);
        Ok(Self { kind, number, flags, crc, data, bytes: out.into() })
    }

    /// Returns the block type.
    #[must_use]
    pub const fn kind(&self) -> u64 {
        self.kind
    }

    /// Returns the block number, from 2 on.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the flags.
    #[must_use]
    pub const fn flags(&self) -> BlockFlags {
        self.flags
    }

    /// Returns the type of its CRC.
    #[must_use]
    pub const fn crc(&self) -> CrcType {
        self.crc
    }

    /// Returns the type-specific data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data.clone()]
    }

    /// Returns the bytes of the block in the bundle.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the data, if RFC 9171 defines the type. Meaningless if a security block encrypts it.
    ///
    /// # Errors
    /// The data do not match the type; offsets count from the data's first byte.
    pub fn extension(&self, bounds: &Bounds) -> Result<Extension, DecodeError> {
        let mut reader = Reader::new(self.data());
        let extension = match self.kind {
            PREVIOUS_NODE => Extension::PreviousNode(Eid::read(&mut reader, bounds.eid_max)?),
            BUNDLE_AGE => Extension::BundleAge { age_ms: cbor::uint(&mut reader)? },
            HOP_COUNT => Extension::HopCount(HopCount::read(&mut reader)?),
            _ => return Ok(Extension::Other),
        };
        reader.finish()?;
        Ok(extension)
    }

    /// Reads the rest of a block whose frame, starting at `offset`, was read.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        offset: usize,
        bytes: &[u8],
        array: Array,
        frame: Frame,
    ) -> Result<Self, DecodeError> {
        let start = reader.offset() - offset;
        let len = reader.take(usize::try_from(frame.len).unwrap_or(usize::MAX))?.len();
        frame.crc.read_end(reader, array, bytes, offset)?;
        let bytes = &bytes[..reader.offset() - offset];
        let Frame { kind, number, flags, crc, .. } = frame;
        Ok(Self { kind, number, flags, crc, data: start..start + len, bytes: bytes.into() })
    }
}

/// A block without its data and its CRC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: u64,
    pub(super) number: u64,
    pub(super) flags: BlockFlags,
    pub(super) crc: CrcType,
    /// Bytes of the data.
    pub(super) len: u64,
}

impl Frame {
    /// Reads up to the first byte of the data.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Array, Self), DecodeError> {
        let mut array = Array::begin(reader)?;
        let kind = array.uint(reader)?;
        array.item(reader)?;
        let at = reader.offset();
        let number = cbor::uint(reader)?;
        if (kind == PAYLOAD) != (number == PAYLOAD_NUMBER) || number == PRIMARY_NUMBER {
            let what = "the block number is the primary block's, or only one of type and number is the payload's";
            return Err(DecodeError::invalid(at, what));
        }
        let flags = BlockFlags(array.uint(reader)?);
        let crc = array.read(reader, CrcType::read)?;
        let len = array.read(reader, cbor::bytes_len)?;
        Ok((array, Self { kind, number, flags, crc, len }))
    }

    /// Encodes the bytes before the data.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        cbor::put_array(&mut out, 5 + usize::from(self.crc != CrcType::None));
        for value in [self.kind, self.number, self.flags.0, self.crc.code()] {
            cbor::put_uint(&mut out, value);
        }
        cbor::put(&mut out, Major::Bytes, self.len);
        out
    }
}

/// Number of times a bundle was forwarded, and its limit (§4.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HopCount {
    /// Hop limit, 1 to 255.
    pub limit: u64,
    /// Hops so far.
    pub count: u64,
}

impl HopCount {
    /// Whether the count exceeds the limit.
    #[must_use]
    pub const fn is_exceeded(self) -> bool {
        self.count > self.limit
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        array.item(reader)?;
        let at = reader.offset();
        let limit = cbor::uint(reader)?;
        if !matches!(limit, 1..=255) {
            return Err(DecodeError::invalid(at, "the hop limit is not 1 to 255"));
        }
        let count = array.uint(reader)?;
        array.end(reader)?;
        Ok(Self { limit, count })
    }
}

/// Decoded data of an extension block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Type 6: node that forwarded the bundle.
    PreviousNode(Eid),
    /// Type 7: age of the bundle when it was last forwarded.
    BundleAge {
        /// Milliseconds.
        age_ms: u64,
    },
    /// Type 10: hop count.
    HopCount(HopCount),
    /// Any type that RFC 9171 does not define.
    Other,
}

impl Extension {
    /// Encodes it as a block.
    ///
    /// # Errors
    /// The extension is [`Extension::Other`], a hop limit is not 1 to 255, an endpoint cannot be
    /// encoded in this version, or the number is reserved.
    pub fn to_block(
        &self,
        number: u64,
        flags: BlockFlags,
        crc: CrcType,
    ) -> Result<Block, EncodeError> {
        let mut data = Vec::new();
        let kind = match self {
            Self::PreviousNode(eid) => {
                eid.write(&mut data)?;
                PREVIOUS_NODE
            }
            Self::BundleAge { age_ms } => {
                cbor::put_uint(&mut data, *age_ms);
                BUNDLE_AGE
            }
            Self::HopCount(HopCount { limit: limit @ 1..=255, count }) => {
                cbor::put_array(&mut data, 2);
                cbor::put_uint(&mut data, *limit);
                cbor::put_uint(&mut data, *count);
                HOP_COUNT
            }
            Self::HopCount(_) => return Err(EncodeError::TooLarge { field: "the hop limit" }),
            Self::Other => return Err(EncodeError::Conflict("another block is made of its data")),
        };
        Block::new(kind, number, flags, crc, &data)
    }
}
