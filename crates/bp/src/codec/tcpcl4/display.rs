//! One-line display of messages.

use std::fmt;

use super::{Message, Segment, SegmentFlags, SessionInit, transfer_length};

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(segment) => segment.fmt(f),
            Self::Ack { flags, transfer, length } => {
                write!(f, "XFER_ACK {transfer}{flags} {length} B")
            }
            Self::Refuse { reason, transfer } => write!(f, "XFER_REFUSE {transfer}: {reason}"),
            Self::Keepalive => f.write_str("KEEPALIVE"),
            Self::Terminate { is_reply: false, reason } => write!(f, "SESS_TERM: {reason}"),
            Self::Terminate { is_reply: true, reason } => write!(f, "SESS_TERM reply: {reason}"),
            Self::Reject { reason, header } => write!(f, "MSG_REJECT {header:#04x}: {reason}"),
            Self::Init(init) => init.fmt(f),
            Self::Unknown { kind } => write!(f, "message of type {kind:#04x}"),
        }
    }
}

impl fmt::Display for SegmentFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.start, self.end) {
            (false, false) => "",
            (true, false) => " START",
            (false, true) => " END",
            (true, true) => " START END",
        })
    }
}

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, transfer, extensions, length } = self;
        write!(f, "XFER_SEGMENT {transfer}{flags} {length} B")?;
        match transfer_length(extensions) {
            Some(total) => write!(f, " of {total}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SessionInit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keepalive_s, segment_mru, transfer_mru, node_id, extensions: _ } = self;
        write!(
            f,
            "SESS_INIT {node_id:?} keepalive {keepalive_s} s, segments up to {segment_mru} B, \
             transfers up to {transfer_mru} B"
        )
    }
}
