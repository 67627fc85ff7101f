//! Reports of receivers on coded objects: header extension EXT_REPORT of this implementation.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 70 |
//! | 1 | `hel`, 4 |
//! | 2 | object |
//! | 2 | number of the newest message received of the sender |
//! | 2 | highest block of which something was received |
//! | 2 | symbols that this block lacks; 0: it was recovered |
//! | 4 | NORM_DATA of the object received |
//! | 2 | runs of lost messages |
//!
//! EXT_LIST in a NACK: its requests are all that a receiver lacks of a resumed object.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 72 |
//! | 1 | `hel`, 2 |
//! | 2 | object |
//! | 4 | end of the blocks that are listed |

use crate::message::{Extension, Extensions, find_extension};

/// Type of the extension of a NACK with a list.
pub(crate) const EXT_LIST: u8 = 72;

/// Content of EXT_LIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListOf {
    pub(crate) object: u16,
    /// End of the blocks that are listed.
    pub(crate) end: u32,
}

impl ListOf {
    /// Content of the extension.
    pub(crate) fn encode(self) -> [u8; 6] {
        let ([a, b], [c, d, e, f]) = (self.object.to_be_bytes(), self.end.to_be_bytes());
        [a, b, c, d, e, f]
    }

    /// Finds the extension among others.
    pub(crate) fn find(extensions: &Extensions<'_>) -> Option<Self> {
        let [a, b, c, d, e, f] = *find_extension(extensions, EXT_LIST)?.first_chunk::<6>()?;
        let (object, end) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
        Some(Self { object, end })
    }
}

/// Type of the extension.
pub(crate) const EXT_REPORT: u8 = 70;

/// Bytes of the content.
const CONTENT: usize = 14;

/// Bytes of the extension in a header.
pub(crate) const REPORT_LEN: usize = 2 + CONTENT;

/// State of a coded object at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportOf {
    /// Highest block of which something was received.
    pub(crate) block: u32,
    /// Symbols that it lacks.
    pub(crate) missing: u16,
    /// NORM_DATA of the object received, duplicates included.
    pub(crate) arrived: u32,
}

/// Content of EXT_REPORT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) object: u16,
    /// Number of the newest message received of the sender.
    pub(crate) newest: u16,
    pub(crate) of: ReportOf,
    /// Runs of lost messages.
    pub(crate) runs: u16,
}

impl Report {
    /// Content of the extension.
    pub(crate) fn encode(&self) -> [u8; CONTENT] {
        let mut content = [0; CONTENT];
        // Blocks have 16-bit numbers in the codes of coded objects.
        let block = (self.of.block & 0xffff) as u16;
        let halves = [self.object, self.newest, block, self.of.missing];
        for (place, half) in content.chunks_exact_mut(2).zip(halves) {
            place.copy_from_slice(&half.to_be_bytes());
        }
        content[8..12].copy_from_slice(&self.of.arrived.to_be_bytes());
        content[12..].copy_from_slice(&self.runs.to_be_bytes());
        content
    }

    /// Reads the extension; `None` if it is another one.
    pub(crate) fn decode(extension: &Extension<'_>) -> Option<Self> {
        let content: &[u8; CONTENT] =
            extension.value.try_into().ok().filter(|_| extension.kind == EXT_REPORT)?;
        let half = |at: usize| u16::from_be_bytes([content[at], content[at + 1]]);
        Some(Self {
            object: half(0),
            newest: half(2),
            of: ReportOf {
                block: half(4).into(),
                missing: half(6),
                arrived: u32::from(half(8)) << 16 | u32::from(half(10)),
            },
            runs: half(12),
        })
    }

    /// Whether another receiver's report makes this one redundant: it lost at least as much of the
    /// same block. The messages between the two reports are counted, as either may be older.
    pub(crate) fn is_covered_by(&self, other: &Self) -> bool {
        let later = i64::from(self.newest.wrapping_sub(other.newest) as i16);
        let lost = |report: &Self| i64::from(report.of.missing);
        (other.object, other.of.block) == (self.object, self.of.block)
            && (self.of.missing == 0 || lost(self) + later <= lost(other) + later.max(0) / 8)
    }

    /// Finds the extension among others.
    pub(crate) fn find(extensions: &Extensions<'_>) -> Option<Self> {
        extensions.iter().find_map(|extension| Self::decode(&extension))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(newest: u16, missing: u16) -> Report {
        let of = ReportOf { block: 2, missing, arrived: 70_000 };
        Report { object: 9, newest, of, runs: 3 }
    }

    #[test]
    fn reports_are_read_as_written() {
        let report = report(0x1234, 0xfffe);
        let value = report.encode();
        let extensions =
            [Extension { kind: 3, value: &[0; 10] }, Extension { kind: EXT_REPORT, value: &value }];
        assert_eq!(Report::find(&Extensions::new(&extensions)), Some(report));
        assert_eq!(Report::find(&Extensions::new(&extensions[..1])), None);
        let short = [Extension { kind: EXT_REPORT, value: &value[..10] }];
        assert_eq!(Report::find(&Extensions::new(&short)), None);
    }

    #[test]
    fn the_worst_report_covers_others() {
        assert!(report(100, 50).is_covered_by(&report(100, 50)));
        assert!(!report(100, 51).is_covered_by(&report(100, 50)));
        // 80 messages later 75 more have arrived; the other one had lost five less.
        assert!(report(180, 55).is_covered_by(&report(100, 125)));
        assert!(!report(180, 65).is_covered_by(&report(100, 125)));
        assert!(report(20, 0).is_covered_by(&report(65_500, 0)));
        let other = Report { object: 8, ..report(100, 90) };
        assert!(!report(100, 50).is_covered_by(&other));
    }
}
