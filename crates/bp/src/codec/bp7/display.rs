//! One-line display of heads and records.

use std::fmt;

use super::{
    AdministrativeRecord, BUNDLE_AGE, Block, BundleFlags, BundleId, CreationTimestamp, HOP_COUNT,
    Head, PREVIOUS_NODE, Status, StatusReport,
};
use crate::codec::bundle::fmt_blocks;

impl fmt::Display for CreationTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time_ms, self.sequence)
    }
}

impl fmt::Display for BundleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.creation)?;
        match self.offset {
            Some(offset) => write!(f, " from {offset}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let primary = self.primary();
        write!(f, "{} to {} ", primary.source, primary.destination)?;
        if primary.flags.contains(BundleFlags::ADMINISTRATIVE) {
            f.write_str("administrative ")?;
        }
        write!(f, "{} for {} ms, {} B", primary.creation, primary.lifetime_ms, self.payload().len)?;
        if let Some(fragment) = primary.fragment {
            write!(f, " from {} of {}", fragment.offset, fragment.total)?;
        }
        fmt_blocks(f, self.blocks().iter().map(Block::kind), |kind| match kind {
            PREVIOUS_NODE => Some("previous node"),
            BUNDLE_AGE => Some("age"),
            HOP_COUNT => Some("hop count"),
            _ => None,
        })
    }
}

impl fmt::Display for AdministrativeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StatusReport(report) => report.fmt(f),
            Self::Other { kind, content } => {
                write!(f, "record of type {kind}, {} B", content.len())
            }
        }
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.creation)?;
        if let Some((offset, len)) = self.fragment {
            write!(f, " {len} B from {offset}")?;
        }
        for (what, status) in [
            ("received", self.received),
            ("forwarded", self.forwarded),
            ("delivered", self.delivered),
            ("deleted", self.deleted),
        ] {
            match status {
                Status::NotAsserted => {}
                Status::Asserted => write!(f, " {what}")?,
                Status::At(time) => write!(f, " {what} at {time}")?,
            }
        }
        write!(f, ": {}", self.reason)
    }
}
