//! The two lists in segments: reception claims and extensions.

use std::fmt;

use wire::cursor::{Reader, Writer};
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
#[derive(Clone, Copy)]
pub struct Claims<'a>(Source<'a, Claim>);

/// An extension of a segment (RFC 5326 §3.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Tag: 0 is authentication, 1 a cookie (RFC 5327).
    pub tag: u8,
    /// Value.
    pub value: &'a [u8],
}

/// Extensions before or behind the content of a segment.
#[derive(Clone, Copy)]
pub struct Extensions<'a>(Source<'a, Extension<'a>>);

/// Fields to be written, or validated bytes.
#[derive(Clone, Copy)]
enum Source<'a, T> {
    Fields(&'a [T]),
    Bytes { bytes: &'a [u8], count: usize },
}

impl<'a> Claims<'a> {
    /// Creates a list of claims to send.
    #[must_use]
    pub const fn new(claims: &'a [Claim]) -> Self {
        Self(Source::Fields(claims))
    }

    /// Number of claims.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Bytes { count, .. } => count,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the claims in order.
    pub fn iter(&self) -> impl Iterator<Item = Claim> + 'a {
        let (fields, bytes) = match self.0 {
            Source::Fields(fields) => (fields, &[][..]),
            Source::Bytes { bytes, .. } => (&[][..], bytes),
        };
        let mut reader = Reader::new(bytes);
        let read = std::iter::from_fn(move || {
            let offset = sdnv::read(&mut reader).ok()?;
            Some(Claim { offset, length: sdnv::read(&mut reader).ok()? })
        });
        fields.iter().copied().chain(read)
    }

    pub(super) fn read(reader: &mut Reader<'a>, scope: u64) -> Result<Self, DecodeError> {
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
            let (offset, length) = (sdnv::read(&mut walk)?, sdnv::read(&mut walk)?);
            let end = offset.checked_add(length).filter(|end| *end <= scope);
            match end {
                Some(end) if length > 0 && offset >= free => free = end,
                Some(_) | None => {
                    return Err(DecodeError::invalid(at, "a claim is empty or out of place"));
                }
            }
        }
        let bytes = reader.take(walk.offset() - reader.offset())?;
        Ok(Self(Source::Bytes { bytes, count }))
    }

    pub(super) fn encoded_len(&self) -> usize {
        let claims = self.iter().map(|claim| sdnv::len(claim.offset) + sdnv::len(claim.length));
        sdnv::len(self.len() as u64) + claims.sum::<usize>()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        sdnv::write(writer, self.len() as u64)?;
        for claim in self.iter() {
            sdnv::write(writer, claim.offset)?;
            sdnv::write(writer, claim.length)?;
        }
        Ok(())
    }
}

impl PartialEq for Claims<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Claims<'_> {}

impl fmt::Debug for Claims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Extensions<'a> {
    /// No extensions.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// Creates a list of extensions to send.
    #[must_use]
    pub const fn new(extensions: &'a [Extension<'a>]) -> Self {
        Self(Source::Fields(extensions))
    }

    /// Number of extensions.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Bytes { count, .. } => count,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the extensions in order.
    pub fn iter(&self) -> impl Iterator<Item = Extension<'a>> + 'a {
        let (fields, bytes) = match self.0 {
            Source::Fields(fields) => (fields, &[][..]),
            Source::Bytes { bytes, .. } => (&[][..], bytes),
        };
        let mut reader = Reader::new(bytes);
        let read = std::iter::from_fn(move || Extension::read(&mut reader).ok());
        fields.iter().copied().chain(read)
    }

    pub(super) fn read(reader: &mut Reader<'a>, count: u8) -> Result<Self, DecodeError> {
        let count = usize::from(count);
        let mut walk = *reader;
        for _ in 0..count {
            Extension::read(&mut walk)?;
        }
        let bytes = reader.take(walk.offset() - reader.offset())?;
        Ok(Self(Source::Bytes { bytes, count }))
    }

    /// Returns the count in the form of the segment header.
    pub(super) fn count(&self) -> Result<u8, EncodeError> {
        u8::try_from(self.len())
            .ok()
            .filter(|count| *count <= 15)
            .ok_or(EncodeError::TooLarge { field: "the number of extensions" })
    }

    pub(super) fn encoded_len(&self) -> usize {
        self.iter().map(Extension::encoded_len).sum()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        for extension in self.iter() {
            writer.u8(extension.tag)?;
            sdnv::write(writer, extension.value.len() as u64)?;
            writer.put(extension.value)?;
        }
        Ok(())
    }
}

impl<'a> Extension<'a> {
    /// Length on the wire, in bytes.
    #[must_use]
    pub const fn encoded_len(self) -> usize {
        1 + sdnv::len(self.value.len() as u64) + self.value.len()
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let tag = reader.u8()?;
        let len = sdnv::read(reader)?;
        let value = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(Self { tag, value })
    }
}

impl PartialEq for Extensions<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Extensions<'_> {}

impl fmt::Debug for Extensions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
