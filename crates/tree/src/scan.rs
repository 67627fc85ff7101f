//! Collects the entries below paths of this machine.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use thiserror::Error;
use walkdir::{DirEntry, WalkDir};

use crate::entry::{Entry, Kind, Modified, order};
use crate::extents::extents;
use crate::names::is_reserved;
use crate::patterns::Patterns;
use crate::unpack::Refusal;
use crate::unpack::names::check_target;

/// Options of a scan.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Patterns of entries that are not sent; nothing below such a folder is, either.
    ///
    /// A pattern with `/` is compared with the whole name below the receiver's folder, any other
    /// with the last part. `*` stays within a part, `**` does not.
    pub exclude: Vec<String>,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// Entries to send, in the order of their names: a folder is before its content.
    pub entries: Vec<Entry>,
    /// Files and folders that cannot be sent, with the reason.
    pub skipped: Vec<Skipped>,
}

/// Something on this machine that is not sent.
#[derive(Debug)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// Why it is not sent.
    pub reason: SkipReason,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        write!(f, "left out {}: {}", path.escape_debug(), self.reason)
    }
}

/// Reason for which something is not sent.
#[derive(Debug, Error)]
pub enum SkipReason {
    /// Named pipe.
    #[error("it is a named pipe")]
    Pipe,
    /// Unix socket.
    #[error("it is a socket")]
    Socket,
    /// Device.
    #[error("it is a device")]
    Device,
    /// Working files at the top of a receiver's folder, which every receiver refuses.
    #[error("it has the working files of a receiver")]
    Reserved,
    /// Link that every receiver refuses.
    #[error("receivers make no such link: {0}")]
    Link(#[source] Refusal),
    /// Cannot be read, or has disappeared since its folder was listed.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
}

/// Error that ends a scan.
#[derive(Debug, Error)]
pub enum ScanError {
    /// One of the paths cannot be read.
    #[error("{}: {source}", path.display())]
    Path {
        /// The path as given.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// Two entries have the same name at the receiver.
    #[error(
        "{} and {} would both be {:?} at the receiver; send them one after the other",
        first.display(), second.display(), String::from_utf8_lossy(name)
    )]
    Duplicate {
        /// Their name at the receiver.
        name: Vec<u8>,
        /// Path of one.
        first: PathBuf,
        /// Path of the other.
        second: PathBuf,
    },
    /// A pattern cannot be parsed.
    #[error("exclude pattern: {0}")]
    Pattern(#[from] globset::Error),
}

/// Collects everything below the given paths.
///
/// A folder `a/photos` has names that begin with `photos/`, a file has its last part, and `.`,
/// `a/.` and `a/..` give the content of the folder without a common first part. A path that is a
/// symbolic link is followed if it leads somewhere; links below it are sent as links.
///
/// # Errors
/// [`ScanError`]. Files and folders below the paths that cannot be read are in [`Scan::skipped`].
pub fn scan(paths: &[PathBuf], options: &ScanOptions) -> Result<Scan, ScanError> {
    let exclude = Patterns::new(&options.exclude)?;
    let mut scan = Scan::default();
    for path in paths {
        scan.add(path, &exclude)
            .map_err(|source| ScanError::Path { path: path.clone(), source })?;
    }
    scan.entries.sort_by(|a, b| order(&a.name, &b.name));
    let pairs = scan.entries.iter().zip(scan.entries.iter().skip(1));
    if let Some((first, second)) = pairs.into_iter().find(|(a, b)| a.name == b.name) {
        return Err(ScanError::Duplicate {
            name: first.name.clone(),
            first: first.source.clone(),
            second: second.source.clone(),
        });
    }
    Ok(scan)
}

impl Scan {
    /// Adds what is below a path.
    fn add(&mut self, path: &Path, exclude: &Patterns) -> io::Result<()> {
        let top = top(path);
        let source = std::path::absolute(path)?;
        let metadata = match fs::metadata(&source) {
            Ok(metadata) => metadata,
            // A link that leads nowhere is sent itself.
            Err(error) => match fs::symlink_metadata(&source) {
                Ok(link) if link.is_symlink() => {
                    let name = top.map(|top| top.as_bytes().to_vec()).unwrap_or_default();
                    self.push(source, name, &link);
                    return Ok(());
                }
                _ => return Err(error),
            },
        };
        if !metadata.is_dir() {
            let name = top.map(|top| top.as_bytes().to_vec()).unwrap_or_default();
            if !exclude.matches(&name) {
                self.push(source, name, &metadata);
            }
            return Ok(());
        }
        let below = |entry: &DirEntry| {
            let rest = entry.path().strip_prefix(&source).unwrap_or(entry.path());
            let name = Path::new(top.unwrap_or_default()).join(rest).into_os_string().into_vec();
            // `join` with an empty path ends in `/`.
            name.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(name)
        };
        let walk = WalkDir::new(&source).follow_root_links(true).sort_by_file_name();
        let mut walk = walk.into_iter().filter_entry(|entry| !exclude.matches(&below(entry)));
        while let Some(found) = walk.next() {
            let found = found.and_then(|entry| {
                let metadata =
                    if entry.depth() == 0 { Ok(metadata.clone()) } else { entry.metadata() };
                metadata.map(|metadata| (entry, metadata))
            });
            match found {
                Ok((entry, metadata)) => {
                    let name = below(&entry);
                    if metadata.is_dir() && is_reserved(&name) {
                        walk.skip_current_dir();
                    }
                    self.push(entry.into_path(), name, &metadata);
                }
                Err(error) => {
                    let path = error.path().unwrap_or(&source).to_owned();
                    self.skip(path, SkipReason::Unreadable(error.into()));
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, mut source: PathBuf, mut name: Vec<u8>, metadata: &Metadata) {
        if name.is_empty() {
            // The folder whose content is sent has no name at the receiver.
            return;
        }
        if is_reserved(&name) {
            return self.skip(source, SkipReason::Reserved);
        }
        let found = kind(&source, metadata).and_then(|kind| match &kind {
            Kind::Link { target } => {
                check_target(&name, target).map(|()| kind).map_err(SkipReason::Link)
            }
            Kind::File { .. } | Kind::Directory => Ok(kind),
        });
        match found {
            Ok(kind) => {
                // A tree may have a million of them.
                source.shrink_to_fit();
                name.shrink_to_fit();
                let mode = metadata.mode() & 0o7777;
                let modified = modified(metadata);
                self.entries.push(Entry { source, name, kind, mode, modified });
            }
            Err(reason) => self.skip(source, reason),
        }
    }

    fn skip(&mut self, path: PathBuf, reason: SkipReason) {
        self.skipped.push(Skipped { path, reason });
    }
}

impl Entry {
    /// The entry as it is now, without following links; `None` if it cannot be read.
    #[must_use]
    pub fn refreshed(&self) -> Option<Self> {
        let metadata = fs::symlink_metadata(&self.source).ok()?;
        let kind = kind(&self.source, &metadata).ok()?;
        let (mode, modified) = (metadata.mode() & 0o7777, modified(&metadata));
        Some(Self { kind, mode, modified, ..self.clone() })
    }
}

/// Whether a path means the content of a folder, as `.` and `a/.` do: names below it have no
/// common first part.
#[must_use]
pub fn is_content(path: &Path) -> bool {
    top(path).is_none()
}

/// Common first part of the names below a path; `None` if the path means the content of a folder.
fn top(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let bytes = bytes.get(..end).unwrap_or_default();
    // `Path::file_name` drops a last `.`.
    if bytes == b"." || bytes.ends_with(b"/.") { None } else { path.file_name() }
}

/// Time of the last modification.
pub(crate) fn modified(metadata: &Metadata) -> Modified {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or_default();
    Modified { secs: metadata.mtime(), nanos }
}

fn kind(source: &Path, metadata: &Metadata) -> Result<Kind, SkipReason> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        // Its listing fails separately if it cannot be read.
        Ok(Kind::Directory)
    } else if kind.is_symlink() {
        let target = fs::read_link(source).map_err(SkipReason::Unreadable)?;
        Ok(Kind::Link { target: target.into_os_string().into_vec() })
    } else if kind.is_fifo() {
        Err(SkipReason::Pipe)
    } else if kind.is_socket() {
        Err(SkipReason::Socket)
    } else if kind.is_file() {
        accessat(CWD, source, Access::READ_OK, AtFlags::EACCESS)
            .map_err(|error| SkipReason::Unreadable(error.into()))?;
        let extents = extents(source, metadata).map_err(SkipReason::Unreadable)?;
        Ok(Kind::File { len: metadata.len(), extents })
    } else {
        Err(SkipReason::Device)
    }
}
