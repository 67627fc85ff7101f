//! Extension items of sessions and transfers (RFC 9174 §4.8 and §5.2.5).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | flags: 0x01 critical |
//! | 2 | type |
//! | 2 | bytes of the value |
//! | … | value |

use wire::cursor::Reader;
use wire::list::{Entry, List};
use wire::{DecodeError, EncodeError};

use super::short_len;

/// Type of a transfer extension: length of the bundle, as an 8-byte integer (§5.2.5.1).
pub const TRANSFER_LENGTH: u16 = 1;

const CRITICAL: u8 = 0x01;

/// An extension item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Whether a node that does not support it must refuse the session or transfer.
    pub is_critical: bool,
    /// Type.
    pub kind: u16,
    /// Value.
    pub value: &'a [u8],
}

/// Extension items of a message.
pub type Extensions<'a> = List<'a, Extension<'a>>;

impl<'a> Extension<'a> {
    /// Creates the length extension of a transfer; `bytes` is the encoded length.
    #[must_use]
    pub const fn transfer_length(bytes: &'a [u8; 8]) -> Self {
        Self { is_critical: true, kind: TRANSFER_LENGTH, value: bytes }
    }
}

impl<'a> Entry<'a> for Extension<'a> {
    fn read(reader: &mut Reader<'a>, (): ()) -> Result<Self, DecodeError> {
        let is_critical = reader.u8()? & CRITICAL != 0;
        let kind = reader.u16()?;
        let len = usize::from(reader.u16()?);
        Ok(Self { is_critical, kind, value: reader.take(len)? })
    }
}

/// Length of the bundle in bytes, if the first segment gives it.
#[must_use]
pub fn transfer_length(extensions: &Extensions<'_>) -> Option<u64> {
    let item = extensions.iter().find(|item| item.kind == TRANSFER_LENGTH)?;
    Some(u64::from_be_bytes(item.value.try_into().ok()?))
}

/// Reads the length of all items, which is at most `max`, and the items.
pub(super) fn read_extensions<'a>(
    reader: &mut Reader<'a>,
    max: usize,
) -> Result<Extensions<'a>, DecodeError> {
    let at = reader.offset();
    let len = reader.uint(4)? as usize;
    if len > max {
        return Err(DecodeError::invalid(at, "extension items are longer than the bound"));
    }
    let mut items = reader.part(len)?;
    let bytes = items.left();
    let mut count = 0;
    while !items.is_empty() {
        let at = items.offset();
        // The list is complete, so an item beyond its end is an error and not a request for
        // more bytes.
        Extension::read(&mut items, ()).map_err(|_| {
            DecodeError::invalid(at, "an extension item is longer than all items together")
        })?;
        count += 1;
    }
    Ok(Extensions::validated(bytes, count, ()))
}

/// Appends the length of all items, and the items.
pub(super) fn write_extensions(
    extensions: &Extensions<'_>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut items = Vec::new();
    for item in extensions {
        items.push(u8::from(item.is_critical));
        items.extend(item.kind.to_be_bytes());
        items.extend(short_len(item.value, "an extension item's length")?);
        items.extend_from_slice(item.value);
    }
    let field = "the extension items' length";
    let len = u32::try_from(items.len()).map_err(|_| EncodeError::TooLarge { field })?;
    out.extend(len.to_be_bytes());
    out.extend(items);
    Ok(())
}
