//! The head of the payload of a stream's source symbols (RFC 5740 §4.2.1).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | `payload_len` |
//! | 2 | `payload_msg_start`, or a control code if the length is 0 |
//! | 4 | `payload_offset` |
//!
//! It is part of what is coded, so in a parity symbol these bytes mean nothing by themselves.

use crate::DecodeError;
use crate::cursor::Reader;

/// Bytes of the head.
pub const STREAM_HEADER_LEN: usize = 8;

/// The head of a source symbol of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHeader {
    /// Bytes of the stream in this symbol; 0 if it is a control code.
    pub len: u16,
    /// 1 more than the place where the first message begins in this symbol's bytes; 0 if none begins
    /// here. If `len` is 0, the control code, of which 0 is the only one: the stream ends.
    pub message_start: u16,
    /// Where the bytes stand in the stream, modulo 2^32.
    pub offset: u32,
}

impl StreamHeader {
    /// NORM_STREAM_END: the stream ends at `offset`.
    #[must_use]
    pub const fn end(offset: u32) -> Self {
        Self { len: 0, message_start: 0, offset }
    }

    /// Whether the stream ends here.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        self.len == 0 && self.message_start == 0
    }

    /// Reads the head, and tells the stream's bytes behind it.
    ///
    /// # Errors
    /// The symbol is shorter than its head and the bytes that the head announces.
    pub fn decode(symbol: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut reader = Reader::new(symbol);
        let (len, message_start) = (reader.u16()?, reader.u16()?);
        let header = Self { len, message_start, offset: reader.u32()? };
        if len > 0 && message_start > len {
            return Err(DecodeError::invalid(2, "a message starts behind the symbol's end"));
        }
        Ok((header, reader.take(usize::from(len))?))
    }

    /// The bytes of the head.
    #[must_use]
    pub const fn encode(&self) -> [u8; STREAM_HEADER_LEN] {
        let [a, b] = self.len.to_be_bytes();
        let [c, d] = self.message_start.to_be_bytes();
        let [e, f, g, h] = self.offset.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }
}
