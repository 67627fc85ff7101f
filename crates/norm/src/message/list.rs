//! Lists of nodes and of objects, which fill the rest of a message.

use wire::cursor::{Reader, Writer};
use wire::list::{Entry, Field, List};
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

/// Reads entries of `len` bytes each up to the end.
pub(super) fn read_list<'a, T: Entry<'a>>(
    mut reader: Reader<'a>,
    len: usize,
) -> Result<List<'a, T>, DecodeError> {
    let count = reader.remaining() / len;
    let bytes = reader.take(count * len)?;
    reader.finish()?;
    Ok(List::validated(bytes, count, ()))
}

impl Entry<'_> for NodeId {
    fn read(reader: &mut Reader<'_>, (): ()) -> Result<Self, DecodeError> {
        reader.u32().map(Self)
    }
}

impl Field for NodeId {
    fn encoded_len(&self) -> usize {
        4
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(&self.0.to_be_bytes())
    }
}

impl Entry<'_> for CcNode {
    fn read(reader: &mut Reader<'_>, (): ()) -> Result<Self, DecodeError> {
        Ok(Self {
            node: NodeId::read(reader, ())?,
            flags: CcFlags(reader.u8()?),
            rtt: reader.u8()?,
            rate: reader.u16()?,
        })
    }
}

impl Field for CcNode {
    fn encoded_len(&self) -> usize {
        8
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.node.write(writer)?;
        writer.put(&[self.flags.0, self.rtt])?;
        self.rate.write(writer)
    }
}
