//! Header extensions (RFC 5740 §4.1).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, the type |
//! | 1 | below 128: `hel`, the length of the whole extension in words of 4 bytes |
//! | … | below 128: content, 2 bytes less than those words; from 128 on: 3 bytes |

use wire::cursor::{Reader, Writer};
use wire::list::{Entry, Field, List};
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

/// Header extensions of a message that have no field of their own. Received bytes may also hold
/// extensions of one type for which the message has a field; the list omits those.
pub type Extensions<'a> = List<'a, Extension<'a>, Option<u8>>;

/// Returns the content of the first extension of a type.
pub(crate) fn find_extension<'a>(extensions: &Extensions<'a>, kind: u8) -> Option<&'a [u8]> {
    extensions.iter().find(|extension| extension.kind == kind).map(|extension| extension.value)
}

/// Reads the rest of a header. Returns the content of the first extension of type `known`
/// separately, and omits all of that type from the list.
pub(super) fn read_extensions(
    mut reader: Reader<'_>,
    known: Option<u8>,
) -> Result<(Option<Reader<'_>>, Extensions<'_>), DecodeError> {
    let bytes = reader.left();
    let mut found = None;
    let mut count = 0;
    while !reader.is_empty() {
        let (extension, content) = Extension::read_any(&mut reader)?;
        if Some(extension.kind) != known {
            count += 1;
        } else if found.is_none() {
            found = Some(content);
        }
    }
    Ok((found, Extensions::validated(bytes, count, known)))
}

impl<'a> Entry<'a, Option<u8>> for Extension<'a> {
    fn read(reader: &mut Reader<'a>, known: Option<u8>) -> Result<Self, DecodeError> {
        loop {
            let (extension, _) = Self::read_any(reader)?;
            if Some(extension.kind) != known {
                return Ok(extension);
            }
        }
    }
}

impl Field for Extension<'_> {
    fn encoded_len(&self) -> usize {
        let head = if self.kind < FIXED_LENGTH { 2 } else { 1 };
        head + self.value.len()
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let len = self.encoded_len();
        if !len.is_multiple_of(4) || (self.kind >= FIXED_LENGTH && len != 4) {
            return Err(EncodeError::Conflict("a header extension is not made of whole words"));
        }
        write_head(writer, self.kind, len)?;
        writer.put(self.value)
    }
}

impl<'a> Extension<'a> {
    /// Reads an extension; also returns a reader of its content.
    fn read_any(reader: &mut Reader<'a>) -> Result<(Self, Reader<'a>), DecodeError> {
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
