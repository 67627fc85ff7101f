//! One row for each packet on each link.

use std::borrow::Cow;
use std::fmt;

use engine::Time;

/// What a protocol calls a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The kind of protocol data unit.
    pub kind: Cow<'static, str>,
    /// Its sequence number or offset, whichever the protocol uses.
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

/// What became of a packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It arrived whole.
    Delivered,
    /// It arrived damaged.
    Damaged,
    /// It was lost on the way, in the link model's words.
    Lost(String),
    /// The queue was full.
    Rejected,
}

/// One packet on one link. Rows come in the order in which the fates are known.
#[derive(Clone, Debug)]
pub struct TraceRow<'a> {
    /// When it was handed to the link.
    pub sent: Time,
    /// When it arrived or would have arrived; when it was sent, if the queue did not take it.
    pub at: Time,
    /// The name of the host that sent or forwarded it.
    pub from: &'a str,
    /// The name of the host at the other end.
    pub to: &'a str,
    /// Its length from the IP header on.
    pub ip_len: usize,
    /// What the protocol calls it.
    pub description: Description,
    /// What became of it.
    pub fate: PacketFate,
}

impl TraceRow<'_> {
    /// The names of the columns that [`fmt::Display`] writes, separated by tabs.
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

/// Who is told of packets, and who knows what they are.
pub(crate) struct Trace {
    pub(crate) describe: Describe,
    pub(crate) sink: Box<dyn FnMut(&TraceRow<'_>) + Send>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
