//! What is wrong with bytes somebody sent, and where; and what cannot be put into bytes.

use thiserror::Error;

/// Bytes that are not what the format says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: {kind}")]
pub struct DecodeError {
    /// Where the field begins that could not be read, counted from the first byte given to the
    /// decoder; never beyond the end of the input.
    pub offset: usize,
    /// What is wrong there.
    pub kind: DecodeErrorKind,
}

/// What is wrong with bytes, sorted by whose fault it probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The input ends too early: the path cut it, or the length field is damaged.
    #[error("{needed} bytes are needed and {found} are left")]
    Truncated {
        /// Bytes that the field at the offset takes.
        needed: usize,
        /// Bytes that are left there.
        found: usize,
    },
    /// A check over the bytes does not match: the path damaged them.
    #[error("the checksum is {found:#06x}, computed {computed:#06x}")]
    Checksum {
        /// The value the bytes carry.
        found: u32,
        /// The value they should carry.
        computed: u32,
    },
    /// Bytes are left after the end of the last field: the sender's fault.
    #[error("{count} bytes follow the last field")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// The sender speaks a version that this decoder does not.
    #[error("version {0} is unknown")]
    Version(u8),
    /// A field holds what it must not: the sender's fault.
    #[error("{0}")]
    Invalid(&'static str),
}

impl DecodeError {
    /// A field at `offset` that holds what it must not.
    #[must_use]
    pub const fn invalid(offset: usize, what: &'static str) -> Self {
        Self { offset, kind: DecodeErrorKind::Invalid(what) }
    }
}

/// A value that has no form on the wire. The caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The output slice is too short.
    #[error("the output has room for {room} bytes and {needed} are needed")]
    NoRoom {
        /// Bytes needed, at least.
        needed: usize,
        /// Bytes given.
        room: usize,
    },
    /// A value does not fit the width of its field.
    #[error("{field} does not fit its field")]
    TooLarge {
        /// The field's name in the specification.
        field: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
}
