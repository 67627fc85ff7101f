//! One-line display of heads and records.

use std::fmt;

use super::{
    AdministrativeRecord, BUNDLE_AGE, BundleFlags, BundleId, CreationTimestamp, HOP_COUNT, Head,
    PREVIOUS_NODE, Reason, Status, StatusReport,
};

/// Maximum blocks shown by name; if there are more, only their number is shown.
const BLOCKS_SHOWN: usize = 8;

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
        for block in self.blocks().iter().take(BLOCKS_SHOWN) {
            match block.kind() {
                PREVIOUS_NODE => f.write_str(", previous node")?,
                BUNDLE_AGE => f.write_str(", age")?,
                HOP_COUNT => f.write_str(", hop count")?,
                kind => write!(f, ", block of type {kind}")?,
            }
        }
        match self.blocks().len().saturating_sub(BLOCKS_SHOWN) {
            0 => Ok(()),
            more => write!(f, ", {more} blocks more"),
        }
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoInformation => "no additional information",
            Self::LifetimeExpired => "lifetime expired",
            Self::UnidirectionalLink => "forwarded over a unidirectional link",
            Self::TransmissionCanceled => "transmission canceled",
            Self::DepletedStorage => "depleted storage",
            Self::DestinationUnavailable => "destination endpoint unavailable",
            Self::NoRoute => "no known route to the destination",
            Self::NoTimelyContact => "no timely contact with the next node",
            Self::BlockUnintelligible => "block unintelligible",
            Self::HopLimitExceeded => "hop limit exceeded",
            Self::TrafficPared => "traffic pared",
            Self::BlockUnsupported => "block unsupported",
            Self::MissingSecurity => "missing security operation",
            Self::UnknownSecurity => "unknown security operation",
            Self::UnexpectedSecurity => "unexpected security operation",
            Self::FailedSecurity => "failed security operation",
            Self::ConflictingSecurity => "conflicting security operation",
            Self::Other(code) => return write!(f, "reason {code}"),
        })
    }
}
