//! Blocks behind the primary block (RFC 5050 §4.5.2).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | block type |
//! | SDNV | block processing control flags |
//! | SDNV, … | if flag 0x40: number of endpoint references, and two SDNVs for each |
//! | SDNV | bytes of the data |
//! | … | data |

use std::ops::Range;

use wire::cursor::Reader;
use wire::sdnv;
use wire::{DecodeError, EncodeError};

use super::{BlockFlags, Bounds, CUSTODY_ENHANCEMENT, PAYLOAD, PREVIOUS_HOP, Primary};
use crate::codec::eid::Eid;

/// Endpoint as the offsets of its two halves in the dictionary, or as node and service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Offset of the scheme, or the node.
    pub scheme: u64,
    /// Offset of the scheme-specific part, or the service.
    pub part: u64,
}

impl Reference {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { scheme: sdnv::read(reader)?, part: sdnv::read(reader)? })
    }
}

/// Block other than the payload block, with its original or encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    kind: u8,
    flags: BlockFlags,
    references: Vec<Reference>,
    data: Range<usize>,
    bytes: Box<[u8]>,
}

impl Block {
    /// Creates a block with numbers in their shortest form, not marked as last.
    ///
    /// # Errors
    /// The type is the payload's.
    pub fn new(
        kind: u8,
        flags: BlockFlags,
        references: Vec<Reference>,
        data: &[u8],
    ) -> Result<Self, EncodeError> {
        if kind == PAYLOAD {
            return Err(EncodeError::Conflict("a block has the payload's type"));
        }
        Ok(Self::made(kind, flags.without(BlockFlags::LAST), references, data))
    }

    fn made(kind: u8, flags: BlockFlags, references: Vec<Reference>, data: &[u8]) -> Self {
        let frame = Frame { kind, flags, references, len: data.len() as u64 };
        let mut bytes = frame.to_vec();
        let start = bytes.len();
        bytes.extend_from_slice(data);
        let Frame { references, .. } = frame;
        let flags = frame.flags.with_references(!references.is_empty());
        Self { kind, flags, references, data: start..bytes.len(), bytes: bytes.into() }
    }

    /// Returns the block with or without the mark of the last block of its bundle.
    #[must_use]
    pub(super) fn placed(self, is_last: bool) -> Self {
        if self.flags.contains(BlockFlags::LAST) == is_last {
            return self;
        }
        let flags = if is_last {
            self.flags.with(BlockFlags::LAST)
        } else {
            self.flags.without(BlockFlags::LAST)
        };
        let data = self.data().to_vec();
        Self::made(self.kind, flags, self.references, &data)
    }

    /// Returns the block type.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// Returns the flags.
    #[must_use]
    pub const fn flags(&self) -> BlockFlags {
        self.flags
    }

    /// Returns the endpoints to which the block refers.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Returns the data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data.clone()]
    }

    /// Returns the bytes of the block in the bundle.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns a copy with the flag that a node forwarded it unprocessed (§5.6).
    #[must_use]
    pub fn forwarded(&self) -> Self {
        let flags = self.flags.with(BlockFlags::FORWARDED);
        Self::made(self.kind, flags, self.references.clone(), self.data())
    }

    /// Creates a block that names the node that forwards the bundle, with the name in its data. A
    /// node that cannot process it removes it (RFC 6259 §2).
    ///
    /// # Errors
    /// The endpoint has no text.
    pub fn previous_hop(eid: &Eid) -> Result<Self, EncodeError> {
        let mut data = eid.to_text()?.replacen(':', "\0", 1).into_bytes();
        data.push(0);
        Self::new(PREVIOUS_HOP, BlockFlags::DISCARD, Vec::new(), &data)
    }

    /// Returns the node named by a block of type [`PREVIOUS_HOP`].
    ///
    /// # Errors
    /// The block is of another type, or names no endpoint; offsets count from the data's first
    /// byte.
    pub fn to_previous_hop(&self, primary: &Primary) -> Result<Eid, DecodeError> {
        if self.kind != PREVIOUS_HOP {
            return Err(DecodeError::invalid(0, "the block does not name the previous hop"));
        }
        if let [reference] = self.references[..] {
            return primary.resolve(reference);
        }
        let texts: Vec<_> = self.data().split(|byte| *byte == 0).map(str::from_utf8).collect();
        let [Ok(scheme), Ok(part), Ok("")] = texts[..] else {
            return Err(DecodeError::invalid(0, "the previous hop is not two texts"));
        };
        let eid = format!("{scheme}:{part}").parse();
        eid.map_err(|_| DecodeError::invalid(0, "the previous hop is not an endpoint"))
    }

    /// Reads the rest of a block whose frame, starting at `offset`, was read.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        offset: usize,
        bytes: &[u8],
        frame: Frame,
    ) -> Result<Self, DecodeError> {
        let start = reader.offset() - offset;
        let len = reader.take(usize::try_from(frame.len).unwrap_or(usize::MAX))?.len();
        let Frame { kind, flags, references, .. } = frame;
        let bytes = bytes[..start + len].into();
        Ok(Self { kind, flags, references, data: start..start + len, bytes })
    }
}

impl BlockFlags {
    pub(super) const fn with_references(self, has: bool) -> Self {
        if has { self.with(Self::REFERENCES) } else { self.without(Self::REFERENCES) }
    }
}

/// A block without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: BlockFlags,
    pub(super) references: Vec<Reference>,
    /// Bytes of the data.
    pub(super) len: u64,
}

impl Frame {
    pub(super) fn read(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let kind = reader.u8()?;
        let flags = BlockFlags(sdnv::read(reader)?);
        let mut references = Vec::new();
        if flags.contains(BlockFlags::REFERENCES) {
            let at = reader.offset();
            let count = sdnv::read(reader)?;
            if count > bounds.references_max as u64 {
                let what = "a block refers to more endpoints than the bound";
                return Err(DecodeError::invalid(at, what));
            }
            for _ in 0..count {
                references.push(Reference::read(reader)?);
            }
        }
        Ok(Self { kind, flags, references, len: sdnv::read(reader)? })
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![self.kind];
        sdnv::append(&mut out, self.flags.with_references(!self.references.is_empty()).0);
        if !self.references.is_empty() {
            sdnv::append(&mut out, self.references.len() as u64);
            for reference in &self.references {
                sdnv::append(&mut out, reference.scheme);
                sdnv::append(&mut out, reference.part);
            }
        }
        sdnv::append(&mut out, self.len);
        out
    }
}

/// Custody number of a bundle, so that one signal can acknowledge several bundles (CCSDS 734.2-B,
/// custody transfer enhancement block).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustodyEnhancement {
    /// Number the custodian gave the bundle.
    pub id: u64,
    /// Custodian that assigned the number.
    pub custodian: Eid,
}

impl CustodyEnhancement {
    /// Decodes a block's data.
    ///
    /// # Errors
    /// The block is of another type, or its data are malformed; offsets count from the data's first
    /// byte.
    pub fn from_block(block: &Block) -> Result<Self, DecodeError> {
        if block.kind != CUSTODY_ENHANCEMENT {
            return Err(DecodeError::invalid(0, "the block is not a custody enhancement"));
        }
        let mut reader = Reader::new(block.data());
        let id = sdnv::read(&mut reader)?;
        let at = reader.offset();
        let text = str::from_utf8(reader.rest()).ok();
        let custodian = text.and_then(|text| text.parse().ok());
        let custodian =
            custodian.ok_or(DecodeError::invalid(at, "the custodian is not an endpoint"))?;
        Ok(Self { id, custodian })
    }

    /// Encodes it as a block.
    ///
    /// # Errors
    /// The custodian has no text.
    pub fn to_block(&self, flags: BlockFlags) -> Result<Block, EncodeError> {
        let mut data = Vec::new();
        sdnv::append(&mut data, self.id);
        data.extend_from_slice(self.custodian.to_text()?.as_bytes());
        Block::new(CUSTODY_ENHANCEMENT, flags, Vec::new(), &data)
    }
}
