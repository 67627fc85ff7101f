//! Bundles: the head before the payload and the trailer behind it.

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::block::Frame;
use super::{Block, BlockFlags, Bounds, PAYLOAD, Primary, Reference};
use crate::codec::bundle::{check_end, or_more};

/// Payload block without its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Flags of the payload block; [`BlockFlags::LAST`] means that no block follows it.
    pub flags: BlockFlags,
    /// Endpoints the payload block refers to.
    pub references: Vec<Reference>,
    /// Length of the payload, in bytes.
    pub len: u64,
}

impl Payload {
    /// Whether it is the last block.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.flags.contains(BlockFlags::LAST)
    }
}

/// The part of a bundle before the payload's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    primary: Primary,
    primary_bytes: Box<[u8]>,
    blocks: Vec<Block>,
    payload: Payload,
    payload_bytes: Box<[u8]>,
}

impl Head {
    /// Creates a head of these blocks, in this order.
    ///
    /// # Errors
    /// The primary block cannot be encoded ([`Primary::to_vec`]).
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

    /// Decodes a head from the start of a bundle; `None` if more bytes are needed.
    ///
    /// Decoding restarts with each call, so a caller that receives a bundle in small pieces should
    /// wait until it has twice as many bytes as last time.
    ///
    /// # Errors
    /// The bytes are not a bundle of version 6, have no payload, or the head exceeds a bound.
    pub fn decode(prefix: &[u8], bounds: &Bounds) -> Result<Option<Self>, DecodeError> {
        match or_more(Self::read(prefix, bounds), bounds.head_max, TOO_LONG)? {
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

    /// Encodes the bytes up to the payload. Decoded blocks keep their original bytes.
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

    /// Length of the head in bytes, which is the payload's offset, both decoded and encoded.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.bytes().len()).sum();
        self.primary_bytes.len() + blocks + self.payload_bytes.len()
    }

    /// Returns the primary block.
    #[must_use]
    pub const fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Returns the blocks between the primary and the payload block.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the first of these blocks with a type.
    #[must_use]
    pub fn block_of(&self, kind: u8) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kind() == kind)
    }

    /// Returns the payload block without its data.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Replaces the primary block, for instance to change the custodian.
    ///
    /// # Errors
    /// The block cannot be encoded, or its dictionary does not start with the current one, to
    /// which blocks refer; nothing is changed.
    pub fn set_primary(&mut self, primary: Primary) -> Result<(), EncodeError> {
        let goes_on = match (&self.primary.dictionary, &primary.dictionary) {
            (Some(before), Some(after)) => after.starts_with(before),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !goes_on {
            return Err(EncodeError::Conflict(
                "the dictionary must start with the one blocks refer to",
            ));
        }
        let (bytes, dictionary) = primary.encode()?;
        self.primary_bytes = bytes.into();
        self.primary = Primary { dictionary, ..primary };
        Ok(())
    }

    /// Replaces the blocks between the primary and the payload block.
    pub fn set_blocks(&mut self, blocks: Vec<Block>) {
        self.blocks = blocks.into_iter().map(|block| block.placed(false)).collect();
    }
}

const TOO_LONG: &str = "the blocks before or behind the payload exceed the limit";
const TOO_MANY: &str = "a bundle has more blocks than the bound";

/// Blocks behind the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    blocks: Vec<Block>,
}

impl Trailer {
    /// Creates a trailer of these blocks, in this order.
    #[must_use]
    pub fn new(blocks: Vec<Block>) -> Self {
        let count = blocks.len();
        let placed = blocks.into_iter().enumerate();
        Self { blocks: placed.map(|(i, block)| block.placed(i + 1 == count)).collect() }
    }

    /// Decodes the bytes behind the payload of a bundle and returns their length; `None` if more
    /// bytes are needed. If the payload block is the last one, there is no trailer to decode.
    ///
    /// # Errors
    /// The bytes are not blocks, there is another payload, or they exceed a bound.
    pub fn decode(rest: &[u8], bounds: &Bounds) -> Result<Option<(Self, usize)>, DecodeError> {
        or_more(Self::read(rest, bounds), bounds.head_max, TOO_LONG)
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

    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Encodes the trailer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.blocks.iter().flat_map(|block| block.bytes().iter().copied()).collect()
    }
}

/// A bundle in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// Part before the payload.
    pub head: Head,
    /// Payload, of the length in the head.
    pub payload: &'a [u8],
    /// Part behind the payload; empty if and only if the payload block is the last.
    pub trailer: Trailer,
}

impl<'a> Bundle<'a> {
    /// Decodes a bundle that is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a bundle of version 6, or exceed a bound.
    pub fn decode(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let (bundle, len) = Self::decode_first(bytes, bounds)?;
        check_end(len, bytes)?;
        Ok(bundle)
    }

    /// Decodes the first of several consecutive bundles, and returns its length.
    ///
    /// # Errors
    /// As [`Bundle::decode`].
    pub fn decode_first(bytes: &'a [u8], bounds: &Bounds) -> Result<(Self, usize), DecodeError> {
        let kind = DecodeErrorKind::Truncated { needed: 1, found: 0 };
        let cut = DecodeError { offset: bytes.len(), kind };
        let head = Head::decode(bytes, bounds)?.ok_or(cut)?;
        let start = head.encoded_len();
        let mut reader = Reader::with_base(start, &bytes[start..]);
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

    /// Encodes the bundle.
    ///
    /// # Errors
    /// The payload's length differs from the head's, or the head's last-block flag contradicts the
    /// trailer.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        if self.head.payload.len != self.payload.len() as u64 {
            return Err(EncodeError::Conflict("the payload's length differs from the head's"));
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
