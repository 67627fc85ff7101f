//! Reads and writes fields in network byte order, with bounds and offsets.

use crate::error::{DecodeError, DecodeErrorKind, EncodeError};

/// Reads consecutive fields. Offsets in errors count from the start of the whole input, also in a
/// part split off by [`Reader::part`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    base: usize,
    position: usize,
}

impl<'a> Reader<'a> {
    /// Reads these bytes from their start.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, base: 0, position: 0 }
    }

    /// Creates a reader whose first byte is byte `base` of the whole input.
    pub const fn with_base(base: usize, bytes: &'a [u8]) -> Self {
        Self { bytes, base, position: 0 }
    }

    /// Offset of the next field.
    pub const fn offset(&self) -> usize {
        self.base + self.position
    }

    /// Number of bytes left.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether no byte is left.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.position..];
        let Some((taken, _)) = rest.split_at_checked(count) else {
            let kind = DecodeErrorKind::Truncated { needed: count, found: rest.len() };
            return Err(DecodeError { offset: self.offset(), kind });
        };
        self.position += count;
        Ok(taken)
    }

    /// Returns the remaining bytes without consuming them.
    pub fn left(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Returns and consumes the remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.position..];
        self.position = self.bytes.len();
        rest
    }

    /// Returns a reader for the next `count` bytes.
    pub fn part(&mut self, count: usize) -> Result<Self, DecodeError> {
        let base = self.offset();
        Ok(Self::with_base(base, self.take(count)?))
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// Reads an unsigned integer of 1 to 8 bytes.
    #[inline]
    pub fn uint(&mut self, width: usize) -> Result<u64, DecodeError> {
        let taken = self.take(width)?;
        Ok(taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        let taken = self.take(2)?;
        Ok(u16::from_be_bytes([taken[0], taken[1]]))
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        let taken = self.take(4)?;
        Ok(u32::from_be_bytes([taken[0], taken[1], taken[2], taken[3]]))
    }

    /// Fails if bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.is_empty() {
            return Ok(());
        }
        let kind = DecodeErrorKind::Trailing { count: self.remaining() };
        Err(DecodeError { offset: self.offset(), kind })
    }
}

/// Writes consecutive fields into a slice.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    position: usize,
}

impl<'a> Writer<'a> {
    /// Writes into these bytes from their start.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Number of bytes written.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Fails if there is room left.
    pub const fn finish(&self) -> Result<(), EncodeError> {
        let (needed, room) = (self.position, self.bytes.len());
        if needed == room { Ok(()) } else { Err(EncodeError::NoRoom { needed, room }) }
    }

    /// Writes bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let room = self.bytes.len();
        let end = self.position + bytes.len();
        let Some(place) = self.bytes.get_mut(self.position..end) else {
            return Err(EncodeError::NoRoom { needed: end, room });
        };
        place.copy_from_slice(bytes);
        self.position = end;
        Ok(())
    }

    /// Writes a byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), EncodeError> {
        self.put(&[value])
    }

    /// Writes an unsigned integer of 1 to 8 bytes.
    #[inline]
    pub fn uint(
        &mut self,
        value: u64,
        width: usize,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        if width < 8 && value >> (8 * width) != 0 {
            return Err(EncodeError::TooLarge { field });
        }
        self.put(&value.to_be_bytes()[8 - width..])
    }
}
