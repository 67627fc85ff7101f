//! Requests for repair, the payload of NACK and of CMD(REPAIR_ADV) (RFC 5740 §4.3.1).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | form: 1 items, 2 ranges, 3 erasures |
//! | 1 | flags: what is needed of what the items name |
//! | 2 | bytes of the items |
//! | … | items, each `fec_id`, a reserved byte, the object, the payload id |
//!
//! Several may follow each other, in the order of what they name.

use std::fmt;

use super::fec::{FIELD_BITS_ASSUMED, Position};
use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

/// Bytes before the items.
const HEAD_LEN: usize = 4;

/// How the items of a request are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// 1: each by itself.
    Items,
    /// 2: in pairs, the first and the last of a range.
    Ranges,
    /// 3: each is a block with the number of symbols that are missing in it.
    Erasures,
    /// A form that the specification does not name.
    Other(u8),
}

super::flags! {
    /// What is needed of what the items of a request name.
    RequestFlags {
        /// The symbols.
        SEGMENT = 0x01, "segments";
        /// The blocks, whole.
        BLOCK = 0x02, "blocks";
        /// The objects' NORM_INFO.
        INFO = 0x04, "INFO";
        /// The objects, whole, with their NORM_INFO if there is one.
        OBJECT = 0x08, "objects";
    }
}

/// The requests of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Requests<'a> {
    bytes: &'a [u8],
    field_bits: u8,
}

/// One request of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// How the items are meant.
    pub form: Form,
    /// What is needed of them.
    pub flags: RequestFlags,
    items: &'a [u8],
    field_bits: u8,
}

/// Writes requests into a slice. Neighbours of the same form and flags share a head.
#[derive(Debug)]
pub struct RequestWriter<'a> {
    out: &'a mut [u8],
    field_bits: u8,
    len: usize,
    /// Where the last request begins, its form and its flags.
    last: Option<(usize, Form, RequestFlags)>,
}

impl Form {
    /// The form of a code.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Items,
            2 => Self::Ranges,
            3 => Self::Erasures,
            other => Self::Other(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Items => 1,
            Self::Ranges => 2,
            Self::Erasures => 3,
            Self::Other(code) => code,
        }
    }
}

impl<'a> Requests<'a> {
    /// None.
    pub const NONE: Self = Self { bytes: &[], field_bits: FIELD_BITS_ASSUMED };

    /// Reads requests, which are all of `bytes`. m of scheme 2 is `field_bits`.
    ///
    /// # Errors
    /// The bytes are no requests; the error says where.
    pub fn decode(bytes: &'a [u8], field_bits: u8) -> Result<Self, DecodeError> {
        Self::read(Reader::new(bytes), field_bits)
    }

    /// The bytes on the wire.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One after the other.
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
    /// What it names, one after the other; of ranges, first and last by turns. Nothing if the form is
    /// not known.
    pub fn positions(&self) -> impl Iterator<Item = Position> + use<'a> {
        let items = match self.form {
            Form::Items | Form::Ranges | Form::Erasures => self.items,
            Form::Other(_) => &[],
        };
        let (mut reader, field_bits) = (Reader::new(items), self.field_bits);
        std::iter::from_fn(move || Position::read(&mut reader, field_bits).ok())
    }

    /// What it names as ranges, first and last, both included; an item is a range of one.
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

    /// The request, and its items for reading.
    fn read(reader: &mut Reader<'a>, field_bits: u8) -> Result<(Self, Reader<'a>), DecodeError> {
        let form = Form::from_code(reader.u8()?);
        let flags = RequestFlags(reader.u8()?);
        let len = usize::from(reader.u16()?);
        let items = reader.part(len)?;
        Ok((Self { form, flags, items: items.left(), field_bits }, items))
    }
}

impl<'a> RequestWriter<'a> {
    /// A writer for `out`, whose length is the bound. m of scheme 2 is `field_bits`.
    pub const fn new(out: &'a mut [u8], field_bits: u8) -> Self {
        Self { out, field_bits, len: 0, last: None }
    }

    /// Bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Asks for one symbol, block, object or NORM_INFO.
    ///
    /// # Errors
    /// There is not enough room, or a field has no form on the wire; nothing has changed.
    pub fn item(&mut self, flags: RequestFlags, item: Position) -> Result<(), EncodeError> {
        self.append(Form::Items, flags, &[item])
    }

    /// Asks for a range, both ends included.
    ///
    /// # Errors
    /// There is not enough room, or a field has no form on the wire; nothing has changed.
    pub fn range(
        &mut self,
        flags: RequestFlags,
        first: Position,
        last: Position,
    ) -> Result<(), EncodeError> {
        self.append(Form::Ranges, flags, &[first, last])
    }

    /// Says how many symbols of a block are missing, in the place of the symbol's number.
    ///
    /// # Errors
    /// There is not enough room, or a field has no form on the wire; nothing has changed.
    pub fn erasures(&mut self, flags: RequestFlags, block: Position) -> Result<(), EncodeError> {
        self.append(Form::Erasures, flags, &[block])
    }

    /// The requests written.
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
