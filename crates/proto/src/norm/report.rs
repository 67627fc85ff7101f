//! Reports of receivers on coded objects: header extension EXT_REPORT of this implementation.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | `het`, 70 |
//! | 1 | `hel`, 4 |
//! | 2 | object |
//! | 2 | number of the last NORM_CMD(CC) received |
//! | 2 | highest block that has begun |
//! | 2 | symbols that this block lacks; 0: it was recovered |
//! | 4 | NORM_DATA of the object received |
//! | 2 | runs of lost messages |

use wire::norm::Extension;

/// Type of the extension.
pub(crate) const EXT_REPORT: u8 = 70;

/// Bytes of the content.
const CONTENT: usize = 14;

/// Bytes of the extension in a header.
pub(crate) const REPORT_LEN: usize = 2 + CONTENT;

/// State of a coded object at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportOf {
    /// Highest block that has begun.
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
    /// Number of the newest probe received.
    pub(crate) probe: u16,
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
        let halves = [self.object, self.probe, block, self.of.missing];
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
            probe: half(2),
            of: ReportOf {
                block: half(4).into(),
                missing: half(6),
                arrived: u32::from(half(8)) << 16 | u32::from(half(10)),
            },
            runs: half(12),
        })
    }
}
