//! The subset of CBOR (RFC 8949) that bundles need.
//!
//! A custom reader over [`Reader`]. A bundle's head needs exact byte positions, because a CRC
//! covers its own bytes zeroed. Errors must name such positions and distinguish "need more bytes"
//! from "malformed". Hostile input must not take unbounded time and memory. CBOR crates have their
//! own errors and types around the same thirty lines. `minicbor`, which borrows its input and
//! allocates nothing, has a licence that is not on this project's list.
//!
//! Reads any form: definite and indefinite lengths, numbers longer than needed. Writes the
//! shortest.

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind};

/// Maximum nesting depth of skipped items.
const DEPTH_MAX: usize = 16;
/// Byte that ends an item of indefinite length.
pub(crate) const BREAK: u8 = 0xff;

/// The kind of an item, in the order of the numbers on the wire (RFC 8949 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Major {
    Unsigned,
    Negative,
    Bytes,
    Text,
    Array,
    Map,
    Tag,
    Simple,
}

impl Major {
    const ALL: [Self; 8] = [
        Self::Unsigned,
        Self::Negative,
        Self::Bytes,
        Self::Text,
        Self::Array,
        Self::Map,
        Self::Tag,
        Self::Simple,
    ];
}

/// Initial bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Initial {
    pub(crate) major: Major,
    /// Number, length or count; `None` if the length is indefinite, or the item is a break.
    pub(crate) argument: Option<u64>,
}

impl Initial {
    const fn is_break(self) -> bool {
        matches!(self, Self { major: Major::Simple, argument: None })
    }
}

/// Reads the initial bytes of an item.
#[inline]
pub(crate) fn initial(reader: &mut Reader<'_>) -> Result<Initial, DecodeError> {
    match reader.left().first() {
        // Most are one byte.
        Some(byte) if byte & 0x1f < 24 => {
            reader.take(1)?;
            let major = Major::ALL[usize::from(byte >> 5)];
            Ok(Initial { major, argument: Some(u64::from(byte & 0x1f)) })
        }
        Some(_) | None => initial_of_several_bytes(reader),
    }
}

fn initial_of_several_bytes(reader: &mut Reader<'_>) -> Result<Initial, DecodeError> {
    let at = reader.offset();
    let byte = reader.u8()?;
    let major = Major::ALL[usize::from(byte >> 5)];
    let argument = match byte & 0x1f {
        value @ 0..=23 => Some(u64::from(value)),
        24 => Some(u64::from(reader.u8()?)),
        25 => Some(u64::from(reader.u16()?)),
        26 => Some(u64::from(reader.u32()?)),
        27 => Some(reader.uint(8)?),
        28..=30 => return Err(DecodeError::invalid(at, "an item's length has a reserved form")),
        _ => match major {
            Major::Bytes | Major::Text | Major::Array | Major::Map | Major::Simple => None,
            Major::Unsigned | Major::Negative | Major::Tag => {
                return Err(DecodeError::invalid(at, "a number has no indefinite form"));
            }
        },
    };
    Ok(Initial { major, argument })
}

/// Reads an unsigned number.
pub(crate) fn uint(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let at = reader.offset();
    match initial(reader)? {
        Initial { major: Major::Unsigned, argument: Some(value) } => Ok(value),
        _ => Err(DecodeError::invalid(at, "an unsigned number is expected")),
    }
}

/// Reads a signed number.
pub(crate) fn int(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let at = reader.offset();
    let Initial { major, argument } = initial(reader)?;
    // A negative number is -1 minus the argument: -1 - n is the complement of n.
    let value = match (major, argument.and_then(|value| i64::try_from(value).ok())) {
        (Major::Unsigned, Some(value)) => value,
        (Major::Negative, Some(value)) => !value,
        _ => return Err(DecodeError::invalid(at, "a number of 64 bits with a sign is expected")),
    };
    Ok(value)
}

/// Reads false or true.
pub(crate) fn boolean(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    let at = reader.offset();
    match reader.u8()? {
        0xf4 => Ok(false),
        0xf5 => Ok(true),
        _ => Err(DecodeError::invalid(at, "false or true is expected")),
    }
}

/// Reads the initial bytes of a byte string of definite length; returns its length.
pub(crate) fn bytes_len(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let at = reader.offset();
    match initial(reader)? {
        Initial { major: Major::Bytes, argument: Some(len) } => Ok(len),
        _ => Err(DecodeError::invalid(at, "a byte string of definite length is expected")),
    }
}

/// Reads a byte string of definite length.
pub(crate) fn bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = bytes_len(reader)?;
    reader.take(usize::try_from(len).unwrap_or(usize::MAX))
}

/// Reads a text of at most `max` bytes.
pub(crate) fn text(reader: &mut Reader<'_>, max: usize) -> Result<String, DecodeError> {
    let at = reader.offset();
    let mut bytes = Vec::new();
    let mut add = |reader: &mut Reader<'_>, len: u64| {
        let len = usize::try_from(len).ok().filter(|len| *len <= max - bytes.len());
        let Some(len) = len else {
            return Err(DecodeError::invalid(at, "a text is longer than the bound"));
        };
        bytes.extend_from_slice(reader.take(len)?);
        Ok(())
    };
    match initial(reader)? {
        Initial { major: Major::Text, argument: Some(len) } => add(reader, len)?,
        Initial { major: Major::Text, argument: None } => loop {
            match initial(reader)? {
                Initial { major: Major::Text, argument: Some(len) } => add(reader, len)?,
                end if end.is_break() => break,
                _ => return Err(DecodeError::invalid(at, "a text is made of other items")),
            }
        },
        _ => return Err(DecodeError::invalid(at, "a text is expected")),
    }
    String::from_utf8(bytes).map_err(|_| DecodeError::invalid(at, "a text is not UTF-8"))
}

/// Array that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    at: usize,
    /// Remaining items; `None` if a break ends the array.
    left: Option<u64>,
}

impl Array {
    /// Reads the initial bytes of an array.
    pub(crate) fn begin(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        match initial(reader)? {
            Initial { major: Major::Array, argument } => Ok(Self { at, left: argument }),
            _ => Err(DecodeError::invalid(at, "an array is expected")),
        }
    }

    /// Whether a break ends the array.
    pub(crate) const fn is_indefinite(self) -> bool {
        self.left.is_none()
    }

    /// Returns whether another item follows. Consumes the break.
    pub(crate) fn more(&mut self, reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
        match &mut self.left {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => {
                let next = *reader.left().first().ok_or(DecodeError {
                    offset: reader.offset(),
                    kind: DecodeErrorKind::Truncated { needed: 1, found: 0 },
                })?;
                if next == BREAK {
                    reader.u8()?;
                    self.left = Some(0);
                }
                Ok(next != BREAK)
            }
        }
    }

    /// Checks that another item follows, and counts it as read.
    pub(crate) fn item(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        if self.more(reader)? {
            return Ok(());
        }
        Err(DecodeError::invalid(self.at, "an array has fewer items than its kind"))
    }

    /// Reads the next item.
    pub(crate) fn read<'a, T>(
        &mut self,
        reader: &mut Reader<'a>,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        self.item(reader)?;
        read(reader)
    }

    /// Reads the next item, an unsigned number.
    pub(crate) fn uint(&mut self, reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
        self.read(reader, uint)
    }

    /// Checks that this many items are left, unless a break ends the array.
    pub(crate) fn leaves(self, count: usize) -> Result<(), DecodeError> {
        match self.left {
            Some(left) if left != count as u64 => {
                Err(DecodeError::invalid(self.at, "an array has another length than its kind"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the array; fails if items are left.
    pub(crate) fn end(mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        if self.more(reader)? {
            return Err(DecodeError::invalid(self.at, "an array has more items than its kind"));
        }
        Ok(())
    }
}

/// Skips one item and returns its bytes.
pub(crate) fn item<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let (start, whole) = (reader.offset(), reader.left());
    // Open arrays: remaining items of each, `None` until a break.
    let mut open: [Option<u64>; DEPTH_MAX] = [Some(0); DEPTH_MAX];
    open[0] = Some(1);
    let mut depth = 1;
    while depth > 0 {
        let top = &mut open[depth - 1];
        if *top == Some(0) {
            depth -= 1;
            continue;
        }
        let at = reader.offset();
        let Initial { major, argument } = initial(reader)?;
        let is_break = Initial { major, argument }.is_break();
        match top {
            None if is_break => {
                depth -= 1;
                continue;
            }
            _ if is_break => return Err(DecodeError::invalid(at, "a break ends nothing")),
            Some(left) => *left -= 1,
            None => {}
        }
        let inside = match (major, argument) {
            (Major::Unsigned | Major::Negative | Major::Simple, _) => continue,
            (Major::Bytes | Major::Text, Some(len)) => {
                reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
                continue;
            }
            (Major::Bytes | Major::Text | Major::Array | Major::Map, None) => None,
            (Major::Array, Some(count)) => Some(count),
            (Major::Map, Some(pairs)) => Some(pairs.saturating_mul(2)),
            (Major::Tag, _) => Some(1),
        };
        let Some(place) = open.get_mut(depth) else {
            return Err(DecodeError::invalid(at, "items stand in each other too deep"));
        };
        *place = inside;
        depth += 1;
    }
    Ok(&whole[..reader.offset() - start])
}

/// Length of the initial bytes of an item with this argument.
pub(crate) const fn initial_len(argument: u64) -> usize {
    match argument {
        0..=23 => 1,
        24..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Writes the initial bytes of an item, in their shortest form.
pub(crate) fn put(out: &mut Vec<u8>, major: Major, argument: u64) {
    let major = (major as u8) << 5;
    let bytes = argument.to_be_bytes();
    match initial_len(argument) {
        1 => out.push(major | bytes[7]),
        2 => out.extend([major | 24, bytes[7]]),
        3 => {
            out.push(major | 25);
            out.extend(&bytes[6..]);
        }
        5 => {
            out.push(major | 26);
            out.extend(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend(bytes);
        }
    }
}

/// Writes an unsigned number.
pub(crate) fn put_uint(out: &mut Vec<u8>, value: u64) {
    put(out, Major::Unsigned, value);
}

/// Writes a signed number.
pub(crate) fn put_int(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => put(out, Major::Unsigned, value),
        // -1 is written as 0, -500 as 499: the complement.
        Err(_) => put(out, Major::Negative, (!value).unsigned_abs()),
    }
}

/// Writes false or true.
pub(crate) fn put_boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xf5 } else { 0xf4 });
}

/// Writes a byte string.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, Major::Bytes, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a text.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, Major::Text, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Writes the initial bytes of an array of this many items.
pub(crate) fn put_array(out: &mut Vec<u8>, count: usize) {
    put(out, Major::Array, count as u64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Requirements: B01.
    #[test]
    fn numbers_of_the_specification() {
        // RFC 8949, appendix A.
        for (value, bytes) in [
            (0, &[0x00][..]),
            (23, &[0x17]),
            (24, &[0x18, 0x18]),
            (1000, &[0x19, 0x03, 0xe8]),
            (1_000_000, &[0x1a, 0x00, 0x0f, 0x42, 0x40]),
            (1_000_000_000_000, &[0x1b, 0, 0, 0, 0xe8, 0xd4, 0xa5, 0x10, 0x00]),
            (-1, &[0x20]),
            (-10, &[0x29]),
            (-100, &[0x38, 0x63]),
            (-1000, &[0x39, 0x03, 0xe7]),
        ] {
            let mut out = Vec::new();
            put_int(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(int(&mut Reader::new(bytes)), Ok(value));
        }
        // Longer than needed.
        assert_eq!(uint(&mut Reader::new(&[0x1b, 0, 0, 0, 0, 0, 0, 0, 7])), Ok(7));
        assert_eq!(uint(&mut Reader::new(&[0x20])).map_err(|e| e.offset), Err(0));
    }

    #[test]
    fn texts_in_pieces() {
        // RFC 8949, appendix A: (_ "strea", "ming").
        let bytes = [0x7f, 0x65, 0x73, 0x74, 0x72, 0x65, 0x61, 0x64, 0x6d, 0x69, 0x6e, 0x67, 0xff];
        assert_eq!(text(&mut Reader::new(&bytes), 9).as_deref(), Ok("streaming"));
        assert!(text(&mut Reader::new(&bytes), 8).is_err());
        assert!(text(&mut Reader::new(&[0x61, 0xff]), 8).is_err(), "not UTF-8");
        assert!(text(&mut Reader::new(&[0x7f, 0x7f, 0xff, 0xff]), 8).is_err(), "in each other");
    }

    #[test]
    fn items_are_skipped() {
        // RFC 8949, appendix A: {"a": 1, "b": [2, 3]}, [_ 1, [2, 3], [_ 4, 5]], and a tagged text.
        for bytes in [
            &[0xa2, 0x61, 0x61, 0x01, 0x61, 0x62, 0x82, 0x02, 0x03][..],
            &[0x9f, 0x01, 0x82, 0x02, 0x03, 0x9f, 0x04, 0x05, 0xff, 0xff],
            &[0xc0, 0x61, 0x61],
            &[0x5f, 0x42, 1, 2, 0x41, 3, 0xff],
            &[0xfb, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            let longer = [bytes, &[0]].concat();
            let mut reader = Reader::new(&longer);
            assert_eq!(item(&mut reader), Ok(bytes));
            assert_eq!(reader.remaining(), 1);
            for end in 0..bytes.len() {
                let error = item(&mut Reader::new(&bytes[..end])).unwrap_err();
                assert!(matches!(error.kind, DecodeErrorKind::Truncated { .. }), "{error}");
            }
        }
        assert!(item(&mut Reader::new(&[0xff])).is_err());
        assert!(item(&mut Reader::new(&[0x81, 0xff])).is_err());
    }

    #[test]
    fn huge_lengths_end_with_an_error() {
        let deep = [0x81; 100_000];
        assert_eq!(item(&mut Reader::new(&deep)).map_err(|e| e.offset), Err(DEPTH_MAX - 1));
        let wide = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        assert!(item(&mut Reader::new(&wide)).is_err());
        let long = [0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        assert!(item(&mut Reader::new(&long)).is_err());
        let long = [0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        assert!(text(&mut Reader::new(&long), 100).is_err());
    }

    proptest! {
        #[test]
        fn numbers_round_trip(value: i64, positive: u64) {
            let mut out = Vec::new();
            put_int(&mut out, value);
            put_uint(&mut out, positive);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(int(&mut reader), Ok(value));
            let at = reader.offset();
            prop_assert_eq!(uint(&mut reader), Ok(positive));
            prop_assert_eq!(initial_len(positive), out.len() - at);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(one) = item(&mut reader) {
                prop_assert_eq!(one.len(), bytes.len() - reader.remaining());
                prop_assert!(!one.is_empty());
            }
        }
    }
}
