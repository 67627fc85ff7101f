//! Extension items of sessions and transfers (RFC 9174 §4.8 and §5.2.5).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | flags: 0x01 critical |
//! | 2 | type |
//! | 2 | bytes of the value |
//! | … | value |

use std::fmt;

use wire::cursor::Reader;
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
#[derive(Clone, Copy)]
pub struct Extensions<'a>(Source<'a>);

/// Items to be written, or validated bytes.
#[derive(Clone, Copy)]
enum Source<'a> {
    Items(&'a [Extension<'a>]),
    Bytes(&'a [u8]),
}

impl<'a> Extension<'a> {
    /// Creates the length extension of a transfer; `bytes` is the encoded length.
    #[must_use]
    pub const fn transfer_length(bytes: &'a [u8; 8]) -> Self {
        Self { is_critical: true, kind: TRANSFER_LENGTH, value: bytes }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let is_critical = reader.u8()? & CRITICAL != 0;
        let kind = reader.u16()?;
        let len = usize::from(reader.u16()?);
        Ok(Self { is_critical, kind, value: reader.take(len)? })
    }
}

impl<'a> Extensions<'a> {
    /// No items.
    pub const NONE: Self = Self(Source::Items(&[]));

    /// Creates a list of items to send.
    #[must_use]
    pub const fn new(items: &'a [Extension<'a>]) -> Self {
        Self(Source::Items(items))
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            Source::Items(items) => items.is_empty(),
            Source::Bytes(bytes) => bytes.is_empty(),
        }
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = Extension<'a>> + 'a {
        let (items, bytes) = match self.0 {
            Source::Items(items) => (items, &[][..]),
            Source::Bytes(bytes) => (&[][..], bytes),
        };
        let mut reader = Reader::new(bytes);
        items.iter().copied().chain(std::iter::from_fn(move || Extension::read(&mut reader).ok()))
    }

    /// Length of the bundle in bytes, if the first segment gives it.
    #[must_use]
    pub fn transfer_length(&self) -> Option<u64> {
        let item = self.iter().find(|item| item.kind == TRANSFER_LENGTH)?;
        Some(u64::from_be_bytes(item.value.try_into().ok()?))
    }

    pub(super) fn read(reader: &mut Reader<'a>, max: usize) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let len = reader.uint(4)? as usize;
        if len > max {
            return Err(DecodeError::invalid(at, "extension items are longer than the bound"));
        }
        let mut items = reader.part(len)?;
        let bytes = items.left();
        while !items.is_empty() {
            let at = items.offset();
            // The list is complete, so an item beyond its end is an error and not a request for
            // more bytes.
            Extension::read(&mut items).map_err(|_| {
                DecodeError::invalid(at, "an extension item is longer than all items together")
            })?;
        }
        Ok(Self(Source::Bytes(bytes)))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut items = Vec::new();
        for item in self.iter() {
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
