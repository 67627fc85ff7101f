//! Lists of nodes and of objects, which fill the rest of a message.

use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::{CcFlags, NodeId};

/// Nodes requested to acknowledge (`acking_node_list`).
pub type NodeList<'a> = List<'a, NodeId>;

/// Objects that are no longer repaired (`invalid_object_list`).
pub type ObjectList<'a> = List<'a, u16>;

/// Congestion control states of receivers at the sender (`cc_node_list`).
pub type CcNodes<'a> = List<'a, CcNode>;

/// Congestion control state of one receiver at the sender (RFC 5740 §4.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcNode {
    /// Receiver.
    pub node: NodeId,
    /// State.
    pub flags: CcFlags,
    /// Round-trip time, quantised ([`super::rtt`]); valid only with [`CcFlags::RTT`].
    pub rtt: u8,
    /// Rate, quantised ([`super::rate`]).
    pub rate: u16,
}

/// Length of the longest entry, in bytes.
const ENTRY_LEN_MAX: usize = 8;

/// Entries of a fixed length, to be written or read.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

/// Entries to be written, or bytes of complete entries.
#[derive(Clone, Copy)]
enum Source<'a, T> {
    Fields(&'a [T]),
    Bytes(&'a [u8]),
}

/// An entry of a list: a node, an object, or a receiver's state.
pub trait Entry: private::Fixed {}

impl<T: private::Fixed> Entry for T {}

mod private {
    /// Value of a fixed number of bytes.
    pub trait Fixed: Copy + PartialEq + std::fmt::Debug {
        /// Number of bytes.
        const LEN: usize;

        /// Decodes a value from [`LEN`](Self::LEN) bytes.
        fn from_bytes(bytes: &[u8]) -> Self;

        /// Encodes it into [`LEN`](Self::LEN) bytes.
        fn put(self, bytes: &mut [u8]);
    }
}

impl<'a, T: Entry> List<'a, T> {
    /// An empty list.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// Creates a list of entries to send.
    #[must_use]
    pub const fn new(entries: &'a [T]) -> Self {
        Self(Source::Fields(entries))
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Bytes(bytes) => bytes.len() / T::LEN,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (fields, bytes) = match self.0 {
            Source::Fields(fields) => (fields, &[][..]),
            Source::Bytes(bytes) => (&[][..], bytes),
        };
        fields.iter().copied().chain(bytes.chunks_exact(T::LEN).map(T::from_bytes))
    }

    /// Reads all remaining bytes.
    pub(super) fn read(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let whole = reader.remaining() / T::LEN * T::LEN;
        let bytes = reader.take(whole)?;
        reader.finish()?;
        Ok(Self(Source::Bytes(bytes)))
    }

    pub(super) const fn encoded_len(&self) -> usize {
        self.len() * T::LEN
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.iter().try_for_each(|entry| {
            let mut bytes = [0; ENTRY_LEN_MAX];
            entry.put(&mut bytes[..T::LEN]);
            writer.put(&bytes[..T::LEN])
        })
    }
}

impl<T: Entry> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Entry> Eq for List<'_, T> {}

impl<T: Entry> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl private::Fixed for NodeId {
    const LEN: usize = 4;

    fn from_bytes(bytes: &[u8]) -> Self {
        Self(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn put(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.to_be_bytes());
    }
}

impl private::Fixed for u16 {
    const LEN: usize = 2;

    fn from_bytes(bytes: &[u8]) -> Self {
        Self::from_be_bytes([bytes[0], bytes[1]])
    }

    fn put(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_be_bytes());
    }
}

impl private::Fixed for CcNode {
    const LEN: usize = ENTRY_LEN_MAX;

    fn from_bytes(bytes: &[u8]) -> Self {
        let node = NodeId::from_bytes(bytes);
        Self { node, flags: CcFlags(bytes[4]), rtt: bytes[5], rate: u16::from_bytes(&bytes[6..]) }
    }

    fn put(self, bytes: &mut [u8]) {
        self.node.put(&mut bytes[..4]);
        bytes[4] = self.flags.0;
        bytes[5] = self.rtt;
        self.rate.put(&mut bytes[6..]);
    }
}
