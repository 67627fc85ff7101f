//! Bundles: the head before the payload and the bytes behind it.

use std::sync::Arc;

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::block::{Block, Frame};
use super::crc::Check;
use super::{BlockFlags, Bounds, CrcType, FIRST_BYTE, PAYLOAD, PAYLOAD_NUMBER, Primary};
use crate::codec::bundle::{check_end, or_more};
use crate::codec::cbor::{Array, BREAK};

/// Payload block without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The payload block's flags.
    pub flags: BlockFlags,
    /// CRC type of the payload block.
    pub crc: CrcType,
    /// Length of the payload, in bytes.
    pub len: u64,
}

impl Payload {
    const fn frame(self) -> Frame {
        let Self { flags, crc, len } = self;
        Frame { kind: PAYLOAD, number: PAYLOAD_NUMBER, flags, crc, len }
    }
}

/// The part of a bundle before the payload's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    primary: Primary,
    /// Shared, because a forwarded head is copied and keeps its source's bytes.
    primary_bytes: Arc<[u8]>,
    blocks: Vec<Block>,
    payload: Payload,
    payload_bytes: Arc<[u8]>,
    /// Whether a break ends the payload block.
    block_breaks: bool,
    /// Whether a break ends the bundle, as required; always true in encoded bundles.
    bundle_breaks: bool,
    payload_offset: usize,
}

impl Head {
    /// Creates a head of these blocks, in this order.
    ///
    /// # Errors
    /// Two blocks have the same number, or the primary block cannot be encoded
    /// ([`Primary::to_vec`]).
    pub fn new(
        primary: Primary,
        blocks: Vec<Block>,
        payload: Payload,
    ) -> Result<Self, EncodeError> {
        let primary_bytes = primary.to_vec()?.into();
        let mut head = Self {
            primary,
            primary_bytes,
            blocks: Vec::new(),
            payload,
            payload_bytes: payload.frame().to_vec().into(),
            block_breaks: false,
            bundle_breaks: true,
            payload_offset: 0,
        };
        head.set_blocks(blocks)?;
        Ok(head)
    }

    /// Decodes a head from the start of a bundle; `None` if more bytes are needed.
    ///
    /// Verifies the CRC of every block that has one. Decoding restarts with each call, so a caller
    /// that receives a bundle in small pieces should wait until it has twice as many bytes as last
    /// time.
    ///
    /// # Errors
    /// The bytes are not a bundle of version 7, a CRC does not match, or the head exceeds a bound.
    pub fn decode(prefix: &[u8], bounds: &Bounds) -> Result<Option<Self>, DecodeError> {
        match or_more(Self::read(prefix, bounds), bounds.head_max, TOO_LONG)? {
            Some(head) if head.payload_offset > bounds.head_max => {
                Err(DecodeError::invalid(0, TOO_LONG))
            }
            head => Ok(head),
        }
    }

    fn read(prefix: &[u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(prefix);
        let mut bundle = Array::begin(&mut reader)?;
        let bundle_breaks = bundle.is_indefinite();
        bundle.item(&mut reader)?;
        let start = reader.offset();
        let primary = Primary::read(&mut reader, bounds)?;
        let primary_bytes = prefix[start..reader.offset()].into();
        let mut blocks: Vec<Block> = Vec::new();
        loop {
            bundle.item(&mut reader)?;
            let start = reader.offset();
            let (array, frame) = Frame::read(&mut reader)?;
            if frame.kind == PAYLOAD {
                // The CRC, if any, is all that follows the payload.
                array.leaves(usize::from(frame.crc != CrcType::None))?;
                if !bundle_breaks {
                    bundle.end(&mut reader)?;
                }
                let Frame { flags, crc, len, .. } = frame;
                return Ok(Self {
                    primary,
                    primary_bytes,
                    blocks,
                    payload: Payload { flags, crc, len },
                    payload_bytes: prefix[start..reader.offset()].into(),
                    block_breaks: array.is_indefinite(),
                    bundle_breaks,
                    payload_offset: reader.offset(),
                });
            }
            if blocks.iter().any(|block| block.number() == frame.number) {
                return Err(DecodeError::invalid(start, "two blocks have the same number"));
            }
            if blocks.len() >= bounds.blocks_max {
                return Err(DecodeError::invalid(start, "a bundle has more blocks than the bound"));
            }
            blocks.push(Block::read(&mut reader, start, &prefix[start..], array, frame)?);
        }
    }

    /// Encodes the bytes up to the payload. Decoded blocks keep their original bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        out.push(FIRST_BYTE);
        out.extend_from_slice(&self.primary_bytes);
        for block in &self.blocks {
            out.extend_from_slice(block.bytes());
        }
        out.extend_from_slice(&self.payload_bytes);
        out
    }

    /// Length of [`Head::encode`]'s result, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.bytes().len()).sum();
        1 + self.primary_bytes.len() + blocks + self.payload_bytes.len()
    }

    /// Offset of the payload: in the original bytes of a decoded head, in the encoded bytes of a
    /// created or changed one.
    #[must_use]
    pub const fn payload_offset(&self) -> usize {
        self.payload_offset
    }

    /// Returns the primary block.
    #[must_use]
    pub const fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Returns the bytes of the primary block.
    #[must_use]
    pub fn primary_bytes(&self) -> &[u8] {
        &self.primary_bytes
    }

    /// Returns the extension blocks, in the order of the bundle.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the first extension block of a type.
    #[must_use]
    pub fn block_of(&self, kind: u64) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kind() == kind)
    }

    /// Returns the payload block without its data.
    #[must_use]
    pub const fn payload(&self) -> Payload {
        self.payload
    }

    /// Replaces all extension blocks.
    ///
    /// # Errors
    /// Two blocks have the same number; nothing is changed.
    pub fn set_blocks(&mut self, blocks: Vec<Block>) -> Result<(), EncodeError> {
        let is_taken = |(at, block): (usize, &Block)| {
            blocks[..at].iter().any(|before| before.number() == block.number())
        };
        if blocks.iter().enumerate().any(is_taken) {
            return Err(EncodeError::Conflict("two blocks have the same number"));
        }
        self.blocks = blocks;
        self.on_change();
        Ok(())
    }

    /// Replaces the block with the same number, or inserts it before the payload.
    pub fn put_block(&mut self, block: Block) {
        match self.blocks.iter_mut().find(|other| other.number() == block.number()) {
            Some(place) => *place = block,
            None => self.blocks.push(block),
        }
        self.on_change();
    }

    /// Removes the block with a number; returns whether there was one.
    pub fn remove_block(&mut self, number: u64) -> bool {
        let before = self.blocks.len();
        self.blocks.retain(|block| block.number() != number);
        self.on_change();
        self.blocks.len() != before
    }

    /// Replaces the payload block, for instance to drop its CRC. The bytes behind the payload must
    /// be computed again.
    pub fn set_payload(&mut self, payload: Payload) {
        self.payload = payload;
        self.payload_bytes = payload.frame().to_vec().into();
        self.block_breaks = false;
        self.on_change();
    }

    /// Updates what a decoded head tells of its original bytes.
    fn on_change(&mut self) {
        self.bundle_breaks = true;
        self.payload_offset = self.encoded_len();
    }

    /// Returns the lowest free block number.
    #[must_use]
    pub fn free_number(&self) -> u64 {
        let is_free = |number: &u64| self.blocks.iter().all(|block| block.number() != *number);
        // n blocks leave one of n + 1 numbers free.
        (2..).find(is_free).unwrap_or(u64::MAX)
    }
}

/// CRC of a payload block, computed while the payload streams through.
#[derive(Clone)]
pub struct PayloadCrc {
    check: Check,
    kind: CrcType,
    block_breaks: bool,
    bundle_breaks: bool,
}

impl PayloadCrc {
    /// Starts the CRC; feed the whole payload next. `head` is the decoded head to verify a received
    /// bundle, or the head to be encoded to write one.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        let kind = head.payload.crc;
        let mut check = Check::new(kind);
        check.update(&head.payload_bytes);
        let Head { block_breaks, bundle_breaks, .. } = *head;
        Self { check, kind, block_breaks, bundle_breaks }
    }

    /// Adds the next bytes of the payload.
    pub fn update(&mut self, piece: &[u8]) {
        self.check.update(piece);
    }

    /// Encodes the bytes behind the payload of a written bundle.
    #[must_use]
    pub fn tail(self) -> Vec<u8> {
        let behind: &[u8] = if self.block_breaks { &[BREAK] } else { &[] };
        // A length of one byte, a value of at most four, and two breaks.
        let mut out = Vec::with_capacity(2 + self.kind.width() + behind.len());
        self.kind.write_value(self.check, &mut out, behind);
        out.extend_from_slice(behind);
        out.push(BREAK);
        out
    }

    /// Verifies the bytes behind the payload of a received bundle. Returns how many bytes of `rest`
    /// belong to the bundle, or `None` if more are needed. Seven are always enough for a bundle in
    /// its shortest form.
    ///
    /// # Errors
    /// The CRC does not match, or other bytes follow. Offsets count from the start of `rest`.
    pub fn verify(&self, rest: &[u8]) -> Result<Option<usize>, DecodeError> {
        or_more(self.read_tail(rest, true), usize::MAX, TOO_LONG)
    }

    /// Returns the length of the bytes behind the payload, as [`PayloadCrc::verify`], but without
    /// verifying the CRC: where the next of several consecutive bundles begins.
    ///
    /// # Errors
    /// The bytes are not the end of a bundle. Offsets count from the start of `rest`.
    pub fn tail_len(&self, rest: &[u8]) -> Result<Option<usize>, DecodeError> {
        or_more(self.read_tail(rest, false), usize::MAX, TOO_LONG)
    }

    fn read_tail(&self, rest: &[u8], verifies: bool) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(rest);
        let end = |reader: &mut Reader<'_>, what| match reader.u8() {
            Ok(BREAK) => Ok(()),
            Ok(_) => Err(DecodeError::invalid(reader.offset() - 1, what)),
            Err(error) => Err(error),
        };
        let value = match self.kind {
            CrcType::None => None,
            CrcType::Crc16 | CrcType::Crc32c => Some(self.kind.read_value(&mut reader)?),
        };
        if self.block_breaks {
            end(&mut reader, "the payload block has items behind its last one")?;
        }
        if let Some((found, place)) = value.filter(|_| verifies) {
            super::crc::verify(self.check.clone(), found, &rest[..reader.offset()], &place, 0)?;
        }
        if self.bundle_breaks {
            end(&mut reader, "something follows the payload block")?;
        }
        Ok(reader.offset())
    }
}

const TOO_LONG: &str = "a bundle's head is longer than the bound";

impl std::fmt::Debug for PayloadCrc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadCrc").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A bundle in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// Part before the payload.
    pub head: Head,
    /// Payload, of the length in the head.
    pub payload: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Decodes a bundle that is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a bundle of version 7, a CRC does not match, or the head exceeds a bound.
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
        let mut reader = Reader::with_base(head.payload_offset, &bytes[head.payload_offset..]);
        let payload = reader.take(usize::try_from(head.payload.len).unwrap_or(usize::MAX))?;
        let mut crc = PayloadCrc::new(&head);
        crc.update(payload);
        let at = reader.offset();
        let shifted = |error: DecodeError| DecodeError { offset: at + error.offset, ..error };
        let tail = crc.verify(reader.rest()).map_err(shifted)?.ok_or(cut)?;
        Ok((Self { head, payload }, at + tail))
    }

    /// Encodes the bundle.
    ///
    /// # Errors
    /// The payload's length differs from the head's.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        if self.head.payload.len != self.payload.len() as u64 {
            return Err(EncodeError::Conflict("the payload's length differs from the head's"));
        }
        let mut out = self.head.encode();
        out.extend_from_slice(self.payload);
        let mut crc = PayloadCrc::new(&self.head);
        crc.update(self.payload);
        out.extend(crc.tail());
        Ok(out)
    }
}
