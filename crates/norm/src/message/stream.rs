//! The header of the payload of a stream's source symbols (RFC 5740 §4.2.1).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | `payload_len` |
//! | 2 | `payload_msg_start`, or a control code if the length is 0 |
//! | 4 | `payload_offset` |
//!
//! The header is part of the coded data, so these bytes of a parity symbol mean nothing by
//! themselves.

use wire::DecodeError;
use wire::cursor::Reader;

/// Length of the header, in bytes.
pub const STREAM_HEADER_LEN: usize = 8;

/// Header of a source symbol of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHeader {
    /// Bytes of the stream in this symbol; 0 for a control code.
    pub len: u16,
    /// 1 plus the offset of the first message that starts in this symbol's bytes; 0 if none does.
    /// If `len` is 0, the control code, of which only 0 is defined: end of stream.
    pub message_start: u16,
    /// Offset of the bytes in the stream, modulo 2^32.
    pub offset: u32,
}

impl StreamHeader {
    /// Creates NORM_STREAM_END: the stream ends at `offset`.
    #[must_use]
    pub const fn end(offset: u32) -> Self {
        Self { len: 0, message_start: 0, offset }
    }

    /// Whether the stream ends here.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        self.len == 0 && self.message_start == 0
    }

    /// Decodes the header and returns it with the stream's bytes behind it.
    ///
    /// # Errors
    /// The symbol is shorter than its header and the announced bytes.
    pub fn decode(symbol: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut reader = Reader::new(symbol);
        let (len, message_start) = (reader.u16()?, reader.u16()?);
        let header = Self { len, message_start, offset: reader.u32()? };
        if len > 0 && message_start > len {
            return Err(DecodeError::invalid(2, "a message starts behind the symbol's end"));
        }
        Ok((header, reader.take(usize::from(len))?))
    }

    /// Encodes the header.
    #[must_use]
    pub const fn encode(&self) -> [u8; STREAM_HEADER_LEN] {
        let [a, b] = self.len.to_be_bytes();
        let [c, d] = self.message_start.to_be_bytes();
        let [e, f, g, h] = self.offset.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }
}
