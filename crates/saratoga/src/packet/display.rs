//! One-line display of packets.

use std::fmt;

use super::{
    Ability, Beacon, Content, Data, Entry, FileChecksum, Holes, Metadata, Packet, Request, Status,
    StatusCode,
};

/// Maximum holes shown; if there are more, only their number is shown.
const HOLES_SHOWN: usize = 8;

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beacon(beacon) => beacon.fmt(f),
            Self::Request(request) => request.fmt(f),
            Self::Metadata(metadata) => metadata.fmt(f),
            Self::Data(data) => data.fmt(f),
            Self::Status(status) => status.fmt(f),
        }
    }
}

impl fmt::Display for Beacon<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ability = |ability: Ability| match ability {
            Ability::No => "no",
            Ability::NotNow => "not now",
            Ability::Yes => "yes",
        };
        write!(
            f,
            "BEACON \"{}\" {} bits, sends: {}, receives: {}",
            self.eid.escape_ascii(),
            8 * self.descriptor.bytes(),
            ability(self.sends),
            ability(self.receives)
        )?;
        match self.free_space {
            Some((_, kib)) => write!(f, ", {kib} KiB free"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, path) = (self.session, self.path.escape_ascii());
        write!(f, "{session:08x} REQUEST {} \"{path}\"", self.kind)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Bundle => "bundle",
            Self::Stream => "stream",
        })
    }
}

impl fmt::Display for FileChecksum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no checksum"),
            Self::Crc32(crc) => write!(f, "CRC-32C {crc:08x}"),
            Self::Md5(_) => f.write_str("MD5"),
            Self::Sha1(_) => f.write_str("SHA-1"),
            Self::Other { kind, .. } => write!(f, "checksum of type {kind}"),
        }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" of {} B", self.path.escape_ascii(), self.size)
    }
}

impl fmt::Display for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, content, entry, checksum, .. } = self;
        write!(f, "{session:08x} METADATA {content} {entry}, {checksum}")?;
        if self.is_over { f.write_str(", over") } else { Ok(()) }
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = u128::from(self.offset) + self.data.len() as u128;
        write!(f, "{:08x} DATA {}..{end}", self.session, self.offset)?;
        for (flag, text) in [(self.is_end, " EOD"), (self.wants_status, " STATUS requested")] {
            if flag {
                f.write_str(text)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Status<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, code, progress, in_response_to, .. } = self;
        write!(f, "{session:08x} STATUS {code}")?;
        if *code != StatusCode::Ok {
            // The offsets of a failure are meaningless.
            return Ok(());
        }
        write!(f, " {progress} of {in_response_to}")?;
        if self.is_voluntary {
            f.write_str(" voluntary")?;
        }
        if self.lacks_metadata {
            f.write_str(" without METADATA")?;
        }
        write_holes(f, self.holes)?;
        if self.is_partial { f.write_str(" and others") } else { Ok(()) }
    }
}

/// Writes the first holes, and the number of the others.
pub(super) fn write_holes(f: &mut fmt::Formatter<'_>, holes: Holes<'_>) -> fmt::Result {
    for hole in holes.iter().take(HOLES_SHOWN) {
        write!(f, " {}..={}", hole.start, hole.last)?;
    }
    match holes.len().saturating_sub(HOLES_SHOWN) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}
