//! One-line display of packets.

use std::fmt;

use super::{Accept, Beacon, Data, Metadata, Packet, Poll, Request, Status};
use crate::packet::StatusCode;
use crate::packet::display::write_holes;

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beacon(beacon) => beacon.fmt(f),
            Self::Request(request) => request.fmt(f),
            Self::Accept(accept) => accept.fmt(f),
            Self::Metadata(metadata) => metadata.fmt(f),
            Self::Data(data) => data.fmt(f),
            Self::Poll(poll) => poll.fmt(f),
            Self::Status(status) => status.fmt(f),
        }
    }
}

impl fmt::Display for Beacon<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BEACON \"{}\"", self.eid.escape_ascii())
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} REQUEST get \"{}\"", self.session, self.path.escape_ascii())
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} accepted", self.session)
    }
}

impl fmt::Display for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, length, path } = self;
        write!(f, "{session:08x} METADATA \"{}\" of {length} B", path.escape_ascii())
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = u64::from(self.offset) + self.data.len() as u64;
        write!(f, "{:08x} DATA {}..{end}", self.session, self.offset)?;
        if self.wants_status { f.write_str(" STATUS requested") } else { Ok(()) }
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} poll at {}", self.session, self.offset)
    }
}

impl fmt::Display for Status<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} STATUS {}", self.session, self.code)?;
        if self.code != StatusCode::Ok {
            // The holes of a failure are meaningless.
            return Ok(());
        }
        if self.is_complete() {
            return f.write_str(", complete");
        }
        if self.lacks_metadata {
            f.write_str(" without METADATA")?;
        }
        write_holes(f, self.holes)?;
        if self.is_partial { f.write_str(" and others") } else { Ok(()) }
    }
}
