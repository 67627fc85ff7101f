//! Lists of nodes and of objects, which fill the rest of a message.

use std::fmt;

use super::{CcFlags, NodeId};
use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

/// Nodes that are asked to acknowledge (`acking_node_list`).
pub type NodeList<'a> = List<'a, NodeId>;

/// Objects that are not repaired any more (`invalid_object_list`).
pub type ObjectList<'a> = List<'a, u16>;

/// What the sender knows of receivers' congestion control (`cc_node_list`).
pub type CcNodes<'a> = List<'a, CcNode>;

/// What the sender knows of one receiver's congestion control (RFC 5740 §4.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcNode {
    /// The receiver.
    pub node: NodeId,
    /// Its part.
    pub flags: CcFlags,
    /// Its round-trip time, quantised ([`super::rtt`]); it counts only with [`CcFlags::RTT`].
    pub rtt: u8,
    /// Its rate, quantised ([`super::rate`]).
    pub rate: u16,
}

/// Octets of the longest entry.
const ENTRY_LEN_MAX: usize = 8;

/// Entries of a fixed length, to be written or read.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

/// Entries to be written, or octets of whole entries.
#[derive(Clone, Copy)]
enum Source<'a, T> {
    Fields(&'a [T]),
    Octets(&'a [u8]),
}

/// An entry of a list: a node, an object, or a receiver's state.
pub trait Entry: private::Fixed {}

impl<T: private::Fixed> Entry for T {}

mod private {
    /// A value in a fixed number of octets.
    pub trait Fixed: Copy + PartialEq + std::fmt::Debug {
        /// How many.
        const LEN: usize;

        /// The value of so many octets.
        fn from_octets(octets: &[u8]) -> Self;

        /// Writes it to so many octets.
        fn put(self, octets: &mut [u8]);
    }
}

impl<'a, T: Entry> List<'a, T> {
    /// An empty list.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// These entries.
    #[must_use]
    pub const fn new(entries: &'a [T]) -> Self {
        Self(Source::Fields(entries))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Octets(octets) => octets.len() / T::LEN,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (fields, octets) = match self.0 {
            Source::Fields(fields) => (fields, &[][..]),
            Source::Octets(octets) => (&[][..], octets),
        };
        fields.iter().copied().chain(octets.chunks_exact(T::LEN).map(T::from_octets))
    }

    /// Reads all that is left.
    pub(super) fn read(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let whole = reader.remaining() / T::LEN * T::LEN;
        let octets = reader.take(whole)?;
        reader.finish()?;
        Ok(Self(Source::Octets(octets)))
    }

    pub(super) const fn encoded_len(&self) -> usize {
        self.len() * T::LEN
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.iter().try_for_each(|entry| {
            let mut octets = [0; ENTRY_LEN_MAX];
            entry.put(&mut octets[..T::LEN]);
            writer.put(&octets[..T::LEN])
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

    fn from_octets(octets: &[u8]) -> Self {
        Self(u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]))
    }

    fn put(self, octets: &mut [u8]) {
        octets.copy_from_slice(&self.0.to_be_bytes());
    }
}

impl private::Fixed for u16 {
    const LEN: usize = 2;

    fn from_octets(octets: &[u8]) -> Self {
        Self::from_be_bytes([octets[0], octets[1]])
    }

    fn put(self, octets: &mut [u8]) {
        octets.copy_from_slice(&self.to_be_bytes());
    }
}

impl private::Fixed for CcNode {
    const LEN: usize = ENTRY_LEN_MAX;

    fn from_octets(octets: &[u8]) -> Self {
        let node = NodeId::from_octets(octets);
        Self {
            node,
            flags: CcFlags(octets[4]),
            rtt: octets[5],
            rate: u16::from_octets(&octets[6..]),
        }
    }

    fn put(self, octets: &mut [u8]) {
        self.node.put(&mut octets[..4]);
        octets[4] = self.flags.0;
        octets[5] = self.rtt;
        self.rate.put(&mut octets[6..]);
    }
}
