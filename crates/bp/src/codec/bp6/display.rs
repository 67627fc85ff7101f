//! One-line display of heads and records.

use std::fmt;

use super::{AdministrativeRecord, BundleFlags, CreationTimestamp, DtnTime, Head, Subject};
use crate::codec::bundle::fmt_blocks;

impl fmt::Display for CreationTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time_s, self.sequence)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let primary = self.primary();
        write!(f, "{} to {} ", primary.source, primary.destination)?;
        if primary.flags.contains(BundleFlags::ADMINISTRATIVE) {
            f.write_str("administrative ")?;
        }
        write!(f, "{} for {} s, {} B", primary.creation, primary.lifetime_s, self.payload().len)?;
        if let Some(fragment) = primary.fragment {
            write!(f, " from {} of {}", fragment.offset, fragment.total)?;
        }
        if primary.flags.contains(BundleFlags::CUSTODY) {
            write!(f, ", custody of {}", primary.custodian)?;
        }
        fmt_blocks(f, self.blocks().iter().map(|block| block.kind().into()), |_| None)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.creation)?;
        match self.fragment {
            Some((offset, len)) => write!(f, " {len} B from {offset}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for DtnTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl fmt::Display for AdministrativeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custody = |succeeded| if succeeded { "custody taken" } else { "custody not taken" };
        match self {
            Self::StatusReport(report) => {
                report.subject.fmt(f)?;
                for (what, time) in [
                    ("received", report.received),
                    ("in custody", report.custody),
                    ("forwarded", report.forwarded),
                    ("delivered", report.delivered),
                    ("deleted", report.deleted),
                ] {
                    if let Some(time) = time {
                        write!(f, " {what} at {time}")?;
                    }
                }
                write!(f, ": {}", report.reason)
            }
            Self::CustodySignal(signal) => {
                let what = custody(signal.succeeded);
                write!(f, "{} {what} at {}: {}", signal.subject, signal.time, signal.reason)
            }
            Self::AggregateCustodySignal(signal) => {
                let (what, count) = (custody(signal.succeeded), signal.fills.len());
                write!(f, "{what} of bundles in {count} runs: {}", signal.reason)
            }
            Self::Other { first, content } => {
                write!(f, "record of type {}, {} B", first >> 4, content.len())
            }
        }
    }
}
