//! Errors while an archive is unpacked.

use std::io;

use thiserror::Error;

/// Error that ends the unpacking of an archive.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The archive is invalid.
    #[error("byte {offset} of the archive: {fault}")]
    Archive {
        /// Offset of the header that is invalid.
        offset: u64,
        /// Its fault.
        fault: Fault,
    },
    /// An operation on files failed.
    #[error("{}: {source}", String::from_utf8_lossy(name))]
    Io {
        /// Name in the archive, or what was done.
        name: Vec<u8>,
        /// Error of the file system.
        source: io::Error,
    },
}

impl UnpackError {
    /// Kind of the error: `InvalidData` for an invalid archive.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Archive { .. } => io::ErrorKind::InvalidData,
            Self::Io { source, .. } => source.kind(),
        }
    }

    pub(crate) fn archive(source: io::Error) -> Self {
        Self::Io { name: b"reading the archive".to_vec(), source }
    }

    pub(crate) fn during(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { name: step.as_bytes().to_vec(), source }
    }
}

/// Fault of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A header's checksum does not match.
    #[error("there is no tar header here; the file is damaged or no tar archive")]
    Checksum,
    /// A number in a header cannot be read.
    #[error("the header has an invalid number")]
    Number,
    /// The archive ends within a member.
    #[error("the archive ends before this member does")]
    Truncated,
    /// A member with records or a long name is larger than 64 KiB.
    #[error("the extended header is larger than 64 KiB")]
    RecordsTooLong,
    /// A record has no length, no key or an invalid value.
    #[error("the extended header has an invalid record")]
    Record,
    /// Ranges of a sparse file overlap, do not begin on a block, or have another sum than its size.
    #[error("the ranges of the sparse file are inconsistent")]
    Extents,
    /// More than 1,048,576 ranges in a sparse file.
    #[error("the sparse file has too many ranges")]
    TooManyExtents,
    /// More than 1,048,576 members.
    #[error("the archive has too many members; send it in several packs")]
    TooManyMembers,
}
