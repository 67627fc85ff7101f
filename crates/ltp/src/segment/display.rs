//! One-line display of segments.

use std::fmt;

use super::{Body, Data, DataKind, End, Report, Segment, SessionId};

/// Maximum claims shown; if there are more, only their number is shown.
const CLAIMS_SHOWN: usize = 8;

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.originator, self.number)
    }
}

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.session, self.body)?;
        for (place, extensions) in [("header", self.header), ("trailer", self.trailer)] {
            for extension in extensions.iter() {
                let (tag, len) = (extension.tag, extension.value.len());
                write!(f, " {place} extension {tag:#04x} of {len} B")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => data.fmt(f),
            Self::Report(report) => report.fmt(f),
            Self::ReportAck { serial } => write!(f, "report {serial} acknowledged"),
            Self::Cancel { by, reason } => write!(f, "cancelled by the {by}: {reason}"),
            Self::CancelAck { by } => write!(f, "cancel by the {by} acknowledged"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Red => "red data",
            Self::Checkpoint => "red data CP",
            Self::EndOfRedPart => "red data CP EORP",
            Self::EndOfRedBlock => "red data CP EORP EOB",
            Self::Green => "green data",
            Self::EndOfGreenBlock => "green data EOB",
        })
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = u128::from(self.offset) + self.data.len() as u128;
        write!(f, "{} {}..{end} service {}", self.kind, self.offset, self.service)?;
        match self.checkpoint {
            Some(checkpoint) if checkpoint.report > 0 => {
                write!(f, " checkpoint {} after report {}", checkpoint.serial, checkpoint.report)
            }
            Some(checkpoint) => write!(f, " checkpoint {}", checkpoint.serial),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "report {}", self.serial)?;
        if self.checkpoint > 0 {
            write!(f, " on checkpoint {}", self.checkpoint)?;
        }
        write!(f, " of {}..{}: received", self.lower, self.upper)?;
        for (start, end) in self.received().take(CLAIMS_SHOWN) {
            write!(f, " {start}..{end}")?;
        }
        match self.claims.len() {
            0 => f.write_str(" nothing"),
            count if count > CLAIMS_SHOWN => write!(f, " and {} more", count - CLAIMS_SHOWN),
            _ => Ok(()),
        }
    }
}
