//! Requests for repair, the payload of NACK and of CMD(REPAIR_ADV) (RFC 5740 §4.3.1).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | form: 1 items, 2 ranges, 3 erasures |
//! | 1 | flags: requested parts of the items |
//! | 2 | bytes of the items |
//! | … | items, each `fec_id`, a reserved byte, the object, the payload id |
//!
//! Several requests may follow each other, ordered by their positions.

use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::fec::{FIELD_BITS_ASSUMED, Position};

/// Length of the head before the items, in bytes.
const HEAD_LEN: usize = 4;

wire::codes! {
    /// Form of a request's items.
    Form {
        /// Single items.
        Items = 1;
        /// Pairs, the first and the last of a range.
        Ranges = 2;
        /// Blocks with their number of missing symbols.
        Erasures = 3;
    }
}

super::flags! {
    /// Requested parts of the items.
    RequestFlags {
        /// Symbols.
        SEGMENT = 0x01, "segments";
        /// Whole blocks.
        BLOCK = 0x02, "blocks";
        /// NORM_INFO of the objects.
        INFO = 0x04, "INFO";
        /// Whole objects, including NORM_INFO if they have any.
        OBJECT = 0x08, "objects";
    }
}

/// Requests of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Requests<'a> {
    bytes: &'a [u8],
    field_bits: u8,
}

/// One request of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Form of the items.
    pub form: Form,
    /// Requested parts of the items.
    pub flags: RequestFlags,
    items: &'a [u8],
    field_bits: u8,
}

/// Writes requests into a slice. Consecutive requests of the same form and flags share a head.
#[derive(Debug)]
pub struct RequestWriter<'a> {
    out: &'a mut [u8],
    field_bits: u8,
    len: usize,
    /// Offset of the last request, its form and its flags.
    last: Option<(usize, Form, RequestFlags)>,
}

impl<'a> Requests<'a> {
    /// No requests.
    pub const NONE: Self = Self { bytes: &[], field_bits: FIELD_BITS_ASSUMED };

    /// Decodes requests that are all of `bytes`. m of scheme 2 is `field_bits`.
    ///
    /// # Errors
    /// The bytes are not requests.
    pub fn decode(bytes: &'a [u8], field_bits: u8) -> Result<Self, DecodeError> {
        Self::read(Reader::new(bytes), field_bits)
    }

    /// Returns the bytes on the wire.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the requests in order.
    pub fn iter(&self) -> impl Iterator<Item = Request<'a>> + use<'a> {
        let (mut reader, field_bits) = (Reader::new(self.bytes), self.field_bits);
        std::iter::from_fn(move || Some(Request::read(&mut reader, field_bits).ok()?.0))
    }

    pub(super) fn read(mut reader: Reader<'a>, field_bits: u8) -> Result<Self, DecodeError> {
        let bytes = reader.left();
        while !reader.is_empty() {
            let (request, mut items) = Request::read(&mut reader, field_bits)?;
            match request.form {
                Form::Items | Form::Erasures | Form::Ranges => {}
                Form::Other(_) => continue,
            }
            while !items.is_empty() {
                Position::read(&mut items, field_bits)?;
                if request.form == Form::Ranges {
                    Position::read(&mut items, field_bits)?;
                }
            }
        }
        Ok(Self { bytes, field_bits })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(self.bytes)
    }
}

impl fmt::Debug for Requests<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Request<'a> {
    /// Returns the positions in order; of ranges, first and last alternate. Empty for an unknown
    /// form.
    pub fn positions(&self) -> impl Iterator<Item = Position> + use<'a> {
        let items = match self.form {
            Form::Items | Form::Ranges | Form::Erasures => self.items,
            Form::Other(_) => &[],
        };
        let (mut reader, field_bits) = (Reader::new(items), self.field_bits);
        std::iter::from_fn(move || Position::read(&mut reader, field_bits).ok())
    }

    /// Returns the positions as ranges, first and last inclusive; an item is a range of one.
    pub fn ranges(&self) -> impl Iterator<Item = (Position, Position)> + use<'a> {
        let (form, mut positions) = (self.form, self.positions());
        std::iter::from_fn(move || {
            let first = positions.next()?;
            let last = match form {
                Form::Ranges => positions.next()?,
                Form::Items | Form::Erasures | Form::Other(_) => first,
            };
            Some((first, last))
        })
    }

    /// Reads the request; also returns a reader of its items.
    fn read(reader: &mut Reader<'a>, field_bits: u8) -> Result<(Self, Reader<'a>), DecodeError> {
        let form = Form::from_code(reader.u8()?);
        let flags = RequestFlags(reader.u8()?);
        let len = usize::from(reader.u16()?);
        let items = reader.part(len)?;
        Ok((Self { form, flags, items: items.left(), field_bits }, items))
    }
}

impl<'a> RequestWriter<'a> {
    /// Creates a writer into `out`, whose length is the limit. m of scheme 2 is `field_bits`.
    pub const fn new(out: &'a mut [u8], field_bits: u8) -> Self {
        Self { out, field_bits, len: 0, last: None }
    }

    /// Number of bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Requests one symbol, block, object or NORM_INFO.
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded; nothing has changed.
    pub fn item(&mut self, flags: RequestFlags, item: Position) -> Result<(), EncodeError> {
        self.append(Form::Items, flags, &[item])
    }

    /// Requests a range, both ends inclusive.
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded; nothing has changed.
    pub fn range(
        &mut self,
        flags: RequestFlags,
        first: Position,
        last: Position,
    ) -> Result<(), EncodeError> {
        self.append(Form::Ranges, flags, &[first, last])
    }

    /// Requests a number of missing symbols of a block, given in place of the symbol's number.
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded; nothing has changed.
    pub fn erasures(&mut self, flags: RequestFlags, block: Position) -> Result<(), EncodeError> {
        self.append(Form::Erasures, flags, &[block])
    }

    /// Returns the written requests.
    #[must_use]
    pub fn finish(self) -> Requests<'a> {
        Requests { bytes: &self.out[..self.len], field_bits: self.field_bits }
    }

    fn append(
        &mut self,
        form: Form,
        flags: RequestFlags,
        items: &[Position],
    ) -> Result<(), EncodeError> {
        let joined = self.last.filter(|(_, f, g)| *f == form && *g == flags);
        let start = joined.map_or(self.len, |(start, ..)| start);
        let body = if joined.is_some() { self.len } else { self.len + HEAD_LEN };
        let room = self.out.len();
        let Some(free) = self.out.get_mut(body..) else {
            return Err(EncodeError::NoRoom { needed: body, room });
        };
        let mut writer = Writer::new(free);
        for item in items {
            item.write(&mut writer, self.field_bits)?;
        }
        let end = body + writer.position();
        let Ok(len) = u16::try_from(end - start - HEAD_LEN) else {
            return Err(EncodeError::TooLarge { field: "the length of a repair request" });
        };
        let [high, low] = len.to_be_bytes();
        self.out[start..start + HEAD_LEN].copy_from_slice(&[form.code(), flags.0, high, low]);
        self.len = end;
        self.last = Some((start, form, flags));
        Ok(())
    }
}
