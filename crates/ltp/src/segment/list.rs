//! The two lists in segments: reception claims and extensions.

use wire::cursor::{Reader, Writer};
use wire::list::{Entry, Field, List};
use wire::sdnv;
use wire::{DecodeError, EncodeError};

/// A received part of the red part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Offset from the report's lower bound.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub length: u64,
}

/// Reception claims of a report, in order and disjoint.
pub type Claims<'a> = List<'a, Claim>;

/// An extension of a segment (RFC 5326 §3.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Tag: 0 is authentication, 1 a cookie (RFC 5327).
    pub tag: u8,
    /// Value.
    pub value: &'a [u8],
}

/// Extensions before or behind the content of a segment.
pub type Extensions<'a> = List<'a, Extension<'a>>;

impl Entry<'_> for Claim {
    fn read(reader: &mut Reader<'_>, (): ()) -> Result<Self, DecodeError> {
        let offset = sdnv::read(reader)?;
        Ok(Self { offset, length: sdnv::read(reader)? })
    }
}

impl Field for Claim {
    fn encoded_len(&self) -> usize {
        sdnv::len(self.offset) + sdnv::len(self.length)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        sdnv::write(writer, self.offset)?;
        sdnv::write(writer, self.length)
    }
}

/// Reads the number of claims and the claims of a report over `scope` bytes.
pub(super) fn read_claims<'a>(
    reader: &mut Reader<'a>,
    scope: u64,
) -> Result<Claims<'a>, DecodeError> {
    let at = reader.offset();
    let count = sdnv::read(reader)?;
    // A claim has at least two bytes.
    let count = usize::try_from(count).ok().filter(|count| *count <= reader.remaining() / 2);
    let Some(count) = count else {
        return Err(DecodeError::invalid(at, "a report has more claims than bytes for them"));
    };
    let mut walk = *reader;
    let mut free = 0;
    for _ in 0..count {
        let at = walk.offset();
        let Claim { offset, length } = Claim::read(&mut walk, ())?;
        let end = offset.checked_add(length).filter(|end| *end <= scope);
        match end {
            Some(end) if length > 0 && offset >= free => free = end,
            Some(_) | None => {
                return Err(DecodeError::invalid(at, "a claim is empty or out of place"));
            }
        }
    }
    let bytes = reader.take(walk.offset() - reader.offset())?;
    Ok(Claims::validated(bytes, count, ()))
}

/// Number of extensions in the form of the segment header.
pub(super) fn header_count(extensions: &Extensions<'_>) -> Result<u8, EncodeError> {
    u8::try_from(extensions.len())
        .ok()
        .filter(|count| *count <= 15)
        .ok_or(EncodeError::TooLarge { field: "the number of extensions" })
}

impl<'a> Entry<'a> for Extension<'a> {
    fn read(reader: &mut Reader<'a>, (): ()) -> Result<Self, DecodeError> {
        let tag = reader.u8()?;
        let len = sdnv::read(reader)?;
        let value = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(Self { tag, value })
    }
}

impl Extension<'_> {
    /// Length on the wire, in bytes.
    #[must_use]
    pub const fn encoded_len(self) -> usize {
        1 + sdnv::len(self.value.len() as u64) + self.value.len()
    }
}

impl Field for Extension<'_> {
    fn encoded_len(&self) -> usize {
        Self::encoded_len(*self)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(self.tag)?;
        sdnv::write(writer, self.value.len() as u64)?;
        writer.put(self.value)
    }
}
