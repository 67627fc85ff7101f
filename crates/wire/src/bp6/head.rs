//! Bundles: what stands before the payload, and what follows it.

use super::block::Frame;
use super::{Block, BlockFlags, Bounds, PAYLOAD, Primary, Reference};
use crate::cursor::Reader;
use crate::{DecodeError, DecodeErrorKind, EncodeError};

/// What says how the payload is carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The payload block's flags; [`BlockFlags::LAST`] says that no block follows it.
    pub flags: BlockFlags,
    /// Endpoints that the payload block refers to.
    pub references: Vec<Reference>,
    /// Bytes of the payload.
    pub len: u64,
}

impl Payload {
    /// Whether no block follows it.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.flags.contains(BlockFlags::LAST)
    }
}

/// Everything of a bundle that stands before the payload's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    primary: Primary,
    primary_bytes: Box<[u8]>,
    blocks: Vec<Block>,
    payload: Payload,
    payload_bytes: Box<[u8]>,
}

impl Head {
    /// A head of these blocks, in this order.
    ///
    /// # Errors
    /// The primary block has no form ([`Primary::to_vec`]).
    pub fn new(
        primary: Primary,
        blocks: Vec<Block>,
        payload: Payload,
    ) -> Result<Self, EncodeError> {
        let (bytes, dictionary) = primary.encode()?;
        let (primary, primary_bytes) = (Primary { dictionary, ..primary }, bytes.into());
        let blocks = blocks.into_iter().map(|block| block.placed(false)).collect();
        let Payload { flags, references, len } = payload;
        let flags = flags.with_references(!references.is_empty());
        let frame = Frame { kind: PAYLOAD, flags, references, len };
        let payload_bytes = frame.to_vec().into();
        let payload = Payload { flags, references: frame.references, len };
        Ok(Self { primary, primary_bytes, blocks, payload, payload_bytes })
    }

    /// Reads a head from the beginning of a bundle; `None` if more of it is needed.
    ///
    /// Reading begins anew with each call, so a caller that gets a bundle in small pieces waits until it has twice as much as
    /// the last time.
    ///
    /// # Errors
    /// The bytes are no bundle of version 6, have no payload, or the head exceeds a bound.
    pub fn decode(prefix: &[u8], bounds: &Bounds) -> Result<Option<Self>, DecodeError> {
        match or_more(Self::read(prefix, bounds), bounds)? {
            Some(head) if head.encoded_len() > bounds.head_max => {
                Err(DecodeError::invalid(0, TOO_LONG))
            }
            head => Ok(head),
        }
    }

    fn read(prefix: &[u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(prefix);
        let primary = Primary::read(&mut reader, bounds)?;
        let primary_bytes = prefix[..reader.offset()].into();
        let mut blocks = Vec::new();
        loop {
            let start = reader.offset();
            let frame = Frame::read(&mut reader, bounds)?;
            if frame.kind == PAYLOAD {
                let Frame { flags, references, len, .. } = frame;
                let payload_bytes = prefix[start..reader.offset()].into();
                let payload = Payload { flags, references, len };
                return Ok(Self { primary, primary_bytes, blocks, payload, payload_bytes });
            }
            if frame.flags.contains(BlockFlags::LAST) {
                return Err(DecodeError::invalid(start, "the last block comes before the payload"));
            }
            if blocks.len() >= bounds.blocks_max {
                return Err(DecodeError::invalid(start, TOO_MANY));
            }
            blocks.push(Block::read(&mut reader, start, &prefix[start..], frame)?);
        }
    }

    /// The bytes up to the payload's first one. Blocks that were read are written as they were.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        out.extend_from_slice(&self.primary_bytes);
        for block in &self.blocks {
            out.extend_from_slice(block.bytes());
        }
        out.extend_from_slice(&self.payload_bytes);
        out
    }

    /// Bytes of the head; where the payload begins, both where it was read and where it is written.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.bytes().len()).sum();
        self.primary_bytes.len() + blocks + self.payload_bytes.len()
    }

    /// The primary block.
    #[must_use]
    pub const fn primary(&self) -> &Primary {
        &self.primary
    }

    /// The blocks between the primary and the payload block.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The first of these of a type.
    #[must_use]
    pub fn block_of(&self, kind: u8) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kind() == kind)
    }

    /// How the payload is carried.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Puts another primary block in the place of this one, for instance with another custodian.
    ///
    /// # Errors
    /// It has no form, or its dictionary does not begin with that of this one, to which blocks refer; nothing is changed.
    pub fn set_primary(&mut self, primary: Primary) -> Result<(), EncodeError> {
        let goes_on = match (&self.primary.dictionary, &primary.dictionary) {
            (Some(before), Some(after)) => after.starts_with(before),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !goes_on {
            return Err(EncodeError::Conflict(
                "a dictionary begins with that which blocks refer to",
            ));
        }
        let (bytes, dictionary) = primary.encode()?;
        self.primary_bytes = bytes.into();
        self.primary = Primary { dictionary, ..primary };
        Ok(())
    }

    /// Puts other blocks in the place of those between the primary and the payload block.
    pub fn set_blocks(&mut self, blocks: Vec<Block>) {
        self.blocks = blocks.into_iter().map(|block| block.placed(false)).collect();
    }
}

const TOO_LONG: &str = "what stands before or behind a bundle's payload is longer than the bound";
const TOO_MANY: &str = "a bundle has more blocks than the bound";

fn or_more<T>(read: Result<T, DecodeError>, bounds: &Bounds) -> Result<Option<T>, DecodeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError { offset, kind: DecodeErrorKind::Truncated { needed, .. } }) => {
            if offset.saturating_add(needed) > bounds.head_max {
                return Err(DecodeError::invalid(offset, TOO_LONG));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The blocks behind the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    blocks: Vec<Block>,
}

impl Trailer {
    /// A trailer of these blocks, in this order.
    #[must_use]
    pub fn new(blocks: Vec<Block>) -> Self {
        let count = blocks.len();
        let placed = blocks.into_iter().enumerate();
        Self { blocks: placed.map(|(i, block)| block.placed(i + 1 == count)).collect() }
    }

    /// Reads what follows the payload of a bundle, and how many bytes it takes; `None` if more are needed. If the payload block is
    /// the last one, nothing follows, and nothing is to be read.
    ///
    /// # Errors
    /// The bytes are no blocks, there is another payload, or they exceed a bound.
    pub fn decode(rest: &[u8], bounds: &Bounds) -> Result<Option<(Self, usize)>, DecodeError> {
        or_more(Self::read(rest, bounds), bounds)
    }

    fn read(rest: &[u8], bounds: &Bounds) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(rest);
        let mut blocks: Vec<Block> = Vec::new();
        loop {
            let start = reader.offset();
            let frame = Frame::read(&mut reader, bounds)?;
            if frame.kind == PAYLOAD {
                return Err(DecodeError::invalid(start, "a bundle has two payloads"));
            }
            if blocks.len() >= bounds.blocks_max {
                return Err(DecodeError::invalid(start, TOO_MANY));
            }
            let is_last = frame.flags.contains(BlockFlags::LAST);
            blocks.push(Block::read(&mut reader, start, &rest[start..], frame)?);
            if reader.offset() > bounds.head_max {
                return Err(DecodeError::invalid(start, TOO_LONG));
            }
            if is_last {
                return Ok((Self { blocks }, reader.offset()));
            }
        }
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Their bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.blocks.iter().flat_map(|block| block.bytes().iter().copied()).collect()
    }
}

/// A bundle in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// What stands before the payload.
    pub head: Head,
    /// The payload, as long as the head says.
    pub payload: &'a [u8],
    /// What follows it; nothing if and only if the payload block is the last.
    pub trailer: Trailer,
}

impl<'a> Bundle<'a> {
    /// Reads a bundle, which is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are no bundle of version 6, or exceed a bound.
    pub fn decode(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let (bundle, len) = Self::decode_first(bytes, bounds)?;
        if len < bytes.len() {
            let kind = DecodeErrorKind::Trailing { count: bytes.len() - len };
            return Err(DecodeError { offset: len, kind });
        }
        Ok(bundle)
    }

    /// Reads the first of several bundles that stand one behind the other, and tells its length.
    ///
    /// # Errors
    /// As [`Bundle::decode`].
    pub fn decode_first(bytes: &'a [u8], bounds: &Bounds) -> Result<(Self, usize), DecodeError> {
        let kind = DecodeErrorKind::Truncated { needed: 1, found: 0 };
        let cut = DecodeError { offset: bytes.len(), kind };
        let head = Head::decode(bytes, bounds)?.ok_or(cut)?;
        let start = head.encoded_len();
        let mut reader = Reader::at(start, &bytes[start..]);
        let len = usize::try_from(head.payload.len).unwrap_or(usize::MAX);
        let payload = reader.take(len)?;
        let at = reader.offset();
        if head.payload.is_last() {
            return Ok((Self { head, payload, trailer: Trailer::default() }, at));
        }
        let shifted = |error: DecodeError| DecodeError { offset: at + error.offset, ..error };
        let trailer = Trailer::decode(reader.rest(), bounds).map_err(shifted)?;
        let (trailer, len) = trailer.ok_or(cut)?;
        Ok((Self { head, payload, trailer }, at + len))
    }

    /// The bytes of the bundle.
    ///
    /// # Errors
    /// The payload is not as long as the head says, or the head says wrongly whether something follows it.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        if self.head.payload.len != self.payload.len() as u64 {
            return Err(EncodeError::Conflict("the payload is not as long as its head says"));
        }
        if self.head.payload.is_last() != self.trailer.blocks.is_empty() {
            return Err(EncodeError::Conflict(
                "the payload block is the last one, or blocks follow",
            ));
        }
        let mut out = self.head.encode();
        out.extend_from_slice(self.payload);
        out.extend(self.trailer.encode());
        Ok(out)
    }
}
