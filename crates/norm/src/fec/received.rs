//! Symbols that a decoder has.

use bytes::Bytes;

/// Symbols of a block that arrived, except source symbols, which are at their places.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Places of missing source symbols, in ascending order.
    pub missing: &'a [u16],
    /// Rows of parity symbols, and their places: those of missing symbols.
    pub parity: &'a [(u16, u16)],
    /// Rows of further parity symbols, with their bytes.
    pub extra: &'a [(u16, Bytes)],
}
