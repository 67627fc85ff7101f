//! One row per packet and link.

use std::borrow::Cow;
use std::fmt;

use engine::Time;

/// Description of a datagram in its protocol's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Kind of protocol data unit.
    pub kind: Cow<'static, str>,
    /// Sequence number or offset, depending on the protocol.
    pub offset: Option<u64>,
}

impl From<(&'static str, Option<u64>)> for Description {
    fn from((kind, offset): (&'static str, Option<u64>)) -> Self {
        Self { kind: kind.into(), offset }
    }
}

impl From<(String, Option<u64>)> for Description {
    fn from((kind, offset): (String, Option<u64>)) -> Self {
        Self { kind: kind.into(), offset }
    }
}

/// Fate of a packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// Arrived intact.
    Delivered,
    /// Arrived damaged.
    Damaged,
    /// Lost in propagation; holds the link model's name of the cause.
    Lost(String),
    /// Rejected by a full queue.
    Rejected,
}

/// One packet on one link. Rows are in the order in which fates are known.
#[derive(Clone, Debug)]
pub struct TraceRow<'a> {
    /// Time at which the packet was pushed onto the link.
    pub sent: Time,
    /// Time at which the packet arrived or would have arrived; time of sending, if the queue
    /// rejected it.
    pub at: Time,
    /// Name of the host that sent or forwarded the packet.
    pub from: &'a str,
    /// Name of the host at the other end.
    pub to: &'a str,
    /// Length from the IP header on.
    pub ip_len: usize,
    /// Description in its protocol's terms.
    pub description: Description,
    /// Fate.
    pub fate: PacketFate,
}

impl TraceRow<'_> {
    /// Names of the columns that [`fmt::Display`] writes, separated by tabs.
    pub const HEADER: &'static str = "sent_s\tat_s\tfrom\tto\tip_bytes\tkind\toffset\tfate";
}

impl fmt::Display for TraceRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, at, from, to, ip_len, description, fate } = self;
        write!(f, "{sent}\t{at}\t{from}\t{to}\t{ip_len}\t{}\t", description.kind)?;
        if let Some(offset) = description.offset {
            write!(f, "{offset}")?;
        }
        match fate {
            PacketFate::Delivered => f.write_str("\tdelivered"),
            PacketFate::Damaged => f.write_str("\tdamaged"),
            PacketFate::Lost(cause) => write!(f, "\tlost: {cause}"),
            PacketFate::Rejected => f.write_str("\tqueue full"),
        }
    }
}

type Describe = Box<dyn FnMut(&[u8]) -> Description + Send>;

/// Callback for packets, and the function that describes them.
pub(crate) struct Trace {
    pub(crate) describe: Describe,
    pub(crate) sink: Box<dyn FnMut(&TraceRow<'_>) + Send>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
