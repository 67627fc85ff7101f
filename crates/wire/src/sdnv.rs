//! Self-delimiting numeric values (RFC 5326 §2.1, RFC 6256): seven bits per byte, the highest bit
//! set on all but the last.

use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

/// Length of the longest 64-bit value, in bytes.
pub const LEN_MAX: usize = 10;

/// Length of a value in its shortest form, in bytes.
#[must_use]
pub const fn len(value: u64) -> usize {
    let bits = (u64::BITS - value.leading_zeros()) as usize;
    if bits == 0 { 1 } else { bits.div_ceil(7) }
}

/// Reads a value. Accepts leading zeros up to the length of the longest value.
#[inline]
pub fn read(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let start = reader.offset();
    let mut value = 0_u64;
    for _ in 0..LEN_MAX {
        let byte = reader.u8()?;
        if value >> 57 != 0 {
            return Err(DecodeError::invalid(start, "an SDNV exceeds 64 bits"));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::invalid(start, "an SDNV is longer than 10 bytes"))
}

/// Writes a value in its shortest form.
#[inline]
pub fn write(writer: &mut Writer<'_>, value: u64) -> Result<(), EncodeError> {
    bytes(value).try_for_each(|byte| writer.u8(byte))
}

/// Appends a value in its shortest form.
pub fn append(out: &mut Vec<u8>, value: u64) {
    out.extend(bytes(value));
}

/// Returns the bytes of a value in its shortest form.
#[inline]
fn bytes(value: u64) -> impl Iterator<Item = u8> {
    let more = |i: usize| if i > 0 { 0x80 } else { 0 };
    (0..len(value)).rev().map(move |i| more(i) | (value >> (7 * i)) as u8 & 0x7f)
}
