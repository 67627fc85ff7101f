//! Decoding errors with their position, and encoding errors.

use thiserror::Error;

/// Error in bytes that do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: {kind}")]
pub struct DecodeError {
    /// Offset of the field that could not be read, counted from the first byte given to the
    /// decoder; never beyond the end of the input.
    pub offset: usize,
    /// Kind of error.
    pub kind: DecodeErrorKind,
}

/// Kind of decoding error, sorted by its likely cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The input ends too early: it was truncated in transit, or the length field is damaged.
    #[error("{needed} bytes are needed and {found} are left")]
    Truncated {
        /// Length of the field at the offset, in bytes.
        needed: usize,
        /// Bytes left there.
        found: usize,
    },
    /// A checksum does not match: the bytes were damaged in transit.
    #[error("the checksum is {found:#06x}, computed {computed:#06x}")]
    Checksum {
        /// Checksum in the input.
        found: u32,
        /// Checksum of the input.
        computed: u32,
    },
    /// Bytes are left after the last field: the sender's fault.
    #[error("{count} bytes follow the last field")]
    Trailing {
        /// Number of bytes.
        count: usize,
    },
    /// The sender uses a version that this decoder does not support.
    #[error("version {0} is unknown")]
    Version(u8),
    /// A field has an invalid value: the sender's fault.
    #[error("{0}")]
    Invalid(&'static str),
}

impl DecodeError {
    /// Creates the error of an invalid field at `offset`.
    #[must_use]
    pub const fn invalid(offset: usize, what: &'static str) -> Self {
        Self { offset, kind: DecodeErrorKind::Invalid(what) }
    }
}

/// Value that cannot be encoded: the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The output slice is too short.
    #[error("the output has room for {room} bytes and {needed} are needed")]
    NoRoom {
        /// Minimum length needed, in bytes.
        needed: usize,
        /// Length of the slice, in bytes.
        room: usize,
    },
    /// A value does not fit the width of its field.
    #[error("{field} does not fit its field")]
    TooLarge {
        /// Name of the field in the specification.
        field: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
}
