//! CRCs of blocks (RFC 9171 §4.2.1 and §4.2.2).

use std::ops::Range;

use crc::{CRC_16_IBM_SDLC, Crc, Table};
use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind};

use crate::codec::cbor::{self, Array};

static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_IBM_SDLC);

/// CRC type of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrcType {
    /// 0: none.
    #[default]
    None,
    /// 1: the CRC-16 of X.25.
    Crc16,
    /// 2: CRC-32C.
    Crc32c,
}

impl CrcType {
    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u64 {
        self as u64
    }

    /// Bytes of the value.
    pub(super) const fn width(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc16 => 2,
            Self::Crc32c => 4,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        match cbor::uint(reader)? {
            0 => Ok(Self::None),
            1 => Ok(Self::Crc16),
            2 => Ok(Self::Crc32c),
            _ => Err(DecodeError::invalid(at, "the CRC type is undefined")),
        }
    }

    /// Reads the end of a block behind its data, and verifies the CRC. `bytes` begin with the block,
    /// which is at `offset` of the input.
    pub(super) fn read_end(
        self,
        reader: &mut Reader<'_>,
        mut array: Array,
        bytes: &[u8],
        offset: usize,
    ) -> Result<(), DecodeError> {
        if self == Self::None {
            return array.end(reader);
        }
        let (found, place) = array.read(reader, |reader| self.read_value(reader))?;
        array.end(reader)?;
        verify(Check::new(self), found, &bytes[..reader.offset() - offset], &place, offset)
    }

    /// Reads a CRC value and its position.
    pub(super) fn read_value(
        self,
        reader: &mut Reader<'_>,
    ) -> Result<(u32, Range<usize>), DecodeError> {
        let at = reader.offset();
        // Checked before the bytes are, so that a wrong length is an error and not a request for
        // more bytes.
        if cbor::bytes_len(reader)? != self.width() as u64 {
            return Err(DecodeError::invalid(at, "a CRC has not the length of its type"));
        }
        let at = reader.offset();
        let value = reader.uint(self.width())? as u32;
        Ok((value, at..at + self.width()))
    }

    /// Writes the CRC of the bytes before it, of zeros in place of its value, and of the bytes
    /// behind.
    ///
    /// `behind` are bytes of the block that follow the value.
    pub(super) fn write_value(self, mut check: Check, out: &mut Vec<u8>, behind: &[u8]) {
        if self == Self::None {
            return;
        }
        let at = out.len();
        cbor::put_bytes(out, &[0; 4][..self.width()]);
        check.update(&out[at..]);
        check.update(behind);
        let value = check.finish().to_be_bytes();
        let place = out.len() - self.width();
        out[place..].copy_from_slice(&value[4 - self.width()..]);
    }
}

/// CRC computation in progress.
#[derive(Clone)]
pub(super) enum Check {
    None,
    Crc16(crc::Digest<'static, u16, Table<16>>),
    Crc32c(u32),
}

impl Check {
    pub(super) fn new(kind: CrcType) -> Self {
        match kind {
            CrcType::None => Self::None,
            CrcType::Crc16 => Self::Crc16(CRC16.digest()),
            CrcType::Crc32c => Self::Crc32c(0),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Crc16(digest) => digest.update(bytes),
            Self::Crc32c(value) => *value = crc32c::crc32c_append(*value, bytes),
        }
    }

    pub(super) fn finish(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Crc16(digest) => u32::from(digest.finalize()),
            Self::Crc32c(value) => value,
        }
    }
}

/// Compares the value at `place`, in the bytes from `offset` of the input on, with the computed
/// one.
pub(super) fn verify(
    mut check: Check,
    found: u32,
    bytes: &[u8],
    place: &Range<usize>,
    offset: usize,
) -> Result<(), DecodeError> {
    let (start, end) = (place.start - offset, place.end - offset);
    check.update(&bytes[..start]);
    check.update(&[0; 4][..end - start]);
    check.update(&bytes[end..]);
    let computed = check.finish();
    if computed == found {
        return Ok(());
    }
    let kind = DecodeErrorKind::Checksum { found, computed };
    Err(DecodeError { offset: place.start, kind })
}
