//! Ranges of a file that have data.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::archive::BLOCK;
use crate::entry::Extent;

/// Holes of fewer bytes in all are sent as zeros: the list of ranges has a cost, too.
pub(crate) const SAVED_MIN: u64 = 64 * 1024;
/// Number of ranges of one file: 192 KiB of headers. The smallest holes beyond that are sent.
const EXTENTS_MAX: usize = 8192;

/// Opens a file for reading, without waiting for a writer if it has become a pipe.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Finds the ranges with data of a file whose holes are worth it; `None` for any other.
pub(crate) fn extents(path: &Path, metadata: &Metadata) -> io::Result<Option<Box<[Extent]>>> {
    let len = metadata.len();
    // Files without holes are not opened. `blocks` counts units of 512 bytes on every system.
    if metadata.blocks().saturating_mul(512).saturating_add(SAVED_MIN) > len {
        return Ok(None);
    }
    let found = data(open(path)?, len)?;
    let stored: u64 = found.iter().map(|extent| extent.len).sum();
    Ok((len.saturating_sub(stored) >= SAVED_MIN).then(|| found.into_boxed_slice()))
}

/// Lists the ranges with data up to `len`, in whole blocks except at the end.
fn data(file: impl AsFd, len: u64) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut hole_min = 1;
    let mut at = 0;
    while at < len {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // The file system has no list of holes.
            Err(Errno::INVAL) => return Ok(vec![Extent { offset: 0, len }]),
            Err(error) => return Err(error.into()),
        };
        let end = seek(&file, SeekFrom::Hole(start))?;
        at = end;
        // GNU tar begins each range in a new block.
        let start = start / BLOCK * BLOCK;
        let end = end.next_multiple_of(BLOCK).min(len);
        if start >= end {
            break;
        }
        match found.last_mut() {
            Some(last) if start.saturating_sub(last.end()) < hole_min => {
                last.len = end.saturating_sub(last.offset);
            }
            _ => found.push(Extent { offset: start, len: end - start }),
        }
        while found.len() > EXTENTS_MAX {
            hole_min = hole_min.max(BLOCK).saturating_mul(2);
            found.dedup_by(|next, last| {
                let joins = next.offset.saturating_sub(last.end()) < hole_min;
                if joins {
                    last.len = next.end().saturating_sub(last.offset);
                }
                joins
            });
        }
    }
    Ok(found)
}
