//! Header extensions (RFC 5740 §4.1).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, the type |
//! | 1 | below 128: `hel`, the length of the whole extension in words of 4 bytes |
//! | … | below 128: content, 2 bytes less than those words; from 128 on: 3 bytes |

use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

/// Type of congestion control feedback.
pub const EXT_CC: u8 = 3;
/// Type of FEC object transmission information.
pub const EXT_FTI: u8 = 64;
/// Type of the sender's rate.
pub const EXT_RATE: u8 = 128;

/// Types from here on have no length field and are one word long.
const FIXED_LENGTH: u8 = 128;

/// A header extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// `het`, the type.
    pub kind: u8,
    /// Content. Below type 128: 2 bytes less than a multiple of 4, at most 1018. From 128 on: 3
    /// bytes, of which the first is reserved.
    pub value: &'a [u8],
}

/// Header extensions of a message that have no field of their own.
#[derive(Clone, Copy)]
pub struct Extensions<'a>(Source<'a>);

/// Fields to be written, or validated bytes. The bytes may also hold extensions of a type for
/// which the message has a field.
#[derive(Clone, Copy)]
enum Source<'a> {
    Fields(&'a [Extension<'a>]),
    Bytes { bytes: &'a [u8], known: Option<u8> },
}

impl<'a> Extensions<'a> {
    /// No extensions.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// Creates a list of extensions to send.
    #[must_use]
    pub const fn new(extensions: &'a [Extension<'a>]) -> Self {
        Self(Source::Fields(extensions))
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the extensions in order.
    pub fn iter(&self) -> impl Iterator<Item = Extension<'a>> + use<'a> {
        let (fields, bytes, known) = match self.0 {
            Source::Fields(fields) => (fields, &[][..], None),
            Source::Bytes { bytes, known } => (&[][..], bytes, known),
        };
        let mut reader = Reader::new(bytes);
        let read = std::iter::from_fn(move || {
            loop {
                let (extension, _) = Extension::read(&mut reader).ok()?;
                if Some(extension.kind) != known {
                    return Some(extension);
                }
            }
        });
        fields.iter().copied().chain(read)
    }

    /// Returns the content of the first extension of a type.
    #[must_use]
    pub fn find(&self, kind: u8) -> Option<&'a [u8]> {
        self.iter().find(|extension| extension.kind == kind).map(|extension| extension.value)
    }

    /// Reads the rest of a header. Returns the content of the first extension of type `known`
    /// separately, and omits all of that type from the list.
    pub(super) fn read(
        mut reader: Reader<'a>,
        known: Option<u8>,
    ) -> Result<(Option<Reader<'a>>, Self), DecodeError> {
        if reader.is_empty() {
            return Ok((None, Self::NONE));
        }
        let bytes = reader.left();
        let mut found = None;
        while !reader.is_empty() {
            let (extension, content) = Extension::read(&mut reader)?;
            if found.is_none() && Some(extension.kind) == known {
                found = Some(content);
            }
        }
        Ok((found, Self(Source::Bytes { bytes, known })))
    }

    /// Length on the wire, in bytes.
    pub(super) fn encoded_len(&self) -> usize {
        self.iter().map(|extension| extension.encoded_len()).sum()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        for extension in self.iter() {
            let len = extension.encoded_len();
            if !len.is_multiple_of(4) || (extension.kind >= FIXED_LENGTH && len != 4) {
                return Err(EncodeError::Conflict("a header extension is not made of whole words"));
            }
            write_head(writer, extension.kind, len)?;
            writer.put(extension.value)?;
        }
        Ok(())
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

impl<'a> Extension<'a> {
    const fn encoded_len(&self) -> usize {
        let head = if self.kind < FIXED_LENGTH { 2 } else { 1 };
        head + self.value.len()
    }

    /// Reads an extension; also returns a reader of its content.
    fn read(reader: &mut Reader<'a>) -> Result<(Self, Reader<'a>), DecodeError> {
        let kind = reader.u8()?;
        let content = if kind < FIXED_LENGTH {
            let at = reader.offset();
            let words = usize::from(reader.u8()?);
            if words == 0 {
                return Err(DecodeError::invalid(at, "a header extension has no length"));
            }
            reader.part(4 * words - 2)?
        } else {
            reader.part(3)?
        };
        Ok((Self { kind, value: content.left() }, content))
    }
}

/// Writes the type of an extension of `len` bytes, and the length if the type has one.
pub(super) fn write_head(writer: &mut Writer<'_>, kind: u8, len: usize) -> Result<(), EncodeError> {
    writer.u8(kind)?;
    if kind < FIXED_LENGTH {
        writer.uint((len / 4) as u64, 1, "the length of a header extension")?;
    }
    Ok(())
}
