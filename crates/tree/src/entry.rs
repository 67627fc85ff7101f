//! Entries of a tree: files, folders and symbolic links.

use std::cmp::Ordering;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// File, folder or symbolic link to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute path on this machine.
    #[serde(with = "path")]
    pub source: PathBuf,
    /// Name below the receiver's folder: parts joined by `/`, any bytes but NUL.
    #[serde(with = "bytes")]
    pub name: Vec<u8>,
    /// File, folder or link.
    pub kind: Kind,
    /// Permissions, with the bits of setuid, setgid and sticky.
    pub mode: u32,
    /// Time of the last modification.
    pub modified: Modified,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Regular file.
    File {
        /// Length in bytes, with holes.
        len: u64,
        /// Ranges with data of a sparse file, in order; `None` for any other file. They are part
        /// of the entry, because a file system may report others later, and the archive would
        /// have other bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extents: Option<Box<[Extent]>>,
    },
    /// Folder.
    Directory,
    /// Symbolic link.
    Link {
        /// Text of the link.
        #[serde(with = "bytes")]
        target: Vec<u8>,
    },
}

/// Range of a sparse file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Extent {
    /// First byte after the range.
    #[must_use]
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Time since 1970, as file systems store it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Modified {
    /// Seconds, rounded down: negative before 1970.
    pub secs: i64,
    /// Nanoseconds after `secs`, less than 1,000,000,000.
    pub nanos: u32,
}

/// Compares names part by part, so that a folder is directly before its content.
pub(crate) fn order(a: &[u8], b: &[u8]) -> Ordering {
    // No name has a NUL: the end of a part is less than any other byte.
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// Name of the folder that has the entry; `None` at the top.
pub(crate) fn parent(name: &[u8]) -> Option<&[u8]> {
    let end = name.iter().rposition(|byte| *byte == b'/')?;
    name.get(..end)
}

/// Whether a name is the folder's or below it.
pub(crate) fn is_below(name: &[u8], folder: &[u8]) -> bool {
    name.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Names of the folders that have the entry, from the top.
pub fn folders_above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.filter_map(|(at, _)| name.get(..at))
}

/// Bytes that are UTF-8 in most cases: text in formats for people, and else a list of numbers.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(bytes) {
            Ok(text) => to.serialize_str(text),
            Err(_) => bytes.serialize(to),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Form::deserialize(from)? {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes(bytes) => bytes,
        })
    }
}

/// Paths, which serde accepts only if they are UTF-8.
mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    use super::bytes;

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        bytes::serialize(path.as_os_str().as_bytes(), to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        bytes::deserialize(from).map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
    }
}
