//! Content of files: copied from the archive, and compared with it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, openat, seek, statat};
use rustix::io::Errno;

use super::{Obstacle, Refusal};
use crate::entry::Extent;
use crate::extents::SAVED_MIN;

/// Unit of a copy. Zeros of this length in a sparse file become a hole.
const CHUNK: usize = 64 * 1024;
const _: () = assert!(CHUNK as u64 == SAVED_MIN);

/// Copies and compares content of one archive, with buffers that are used again.
pub(super) struct Copier<'a> {
    archive: &'a File,
    buffer: Box<[u8]>,
    other: Box<[u8]>,
}

/// Range of a file that is stored in the archive from `start`.
struct Range {
    start: u64,
    offset: u64,
    len: u64,
}

impl<'a> Copier<'a> {
    pub(super) fn new(archive: &'a File) -> Self {
        Self { archive, buffer: vec![0; CHUNK].into(), other: vec![0; CHUNK].into() }
    }

    /// Creates a file with the content of a member that begins at `start` in the archive.
    pub(super) fn write(
        &mut self,
        work: &Dir,
        name: &str,
        start: u64,
        len: u64,
        extents: &Option<Box<[Extent]>>,
    ) -> Result<File, Obstacle> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(openat(work, name, flags, Mode::from_raw_mode(0o600))?);
        let is_sparse = extents.is_some();
        if is_sparse {
            let len = i64::try_from(len).map_err(|_| Refusal::TooLarge)?;
            match rustix::fs::ftruncate(&file, len.unsigned_abs()) {
                Err(Errno::FBIG | Errno::INVAL) => return Err(Refusal::TooLarge.into()),
                result => result?,
            }
        }
        for range in ranges(start, len, extents) {
            self.copy(&file, &range, is_sparse)?;
        }
        Ok(file)
    }

    fn copy(&mut self, file: &File, range: &Range, is_sparse: bool) -> io::Result<()> {
        let mut done = 0;
        while done < range.len {
            let chunk = chunk(&mut self.buffer, range.len - done);
            self.archive.read_exact_at(chunk, range.start + done)?;
            let is_hole = is_sparse && chunk.len() == CHUNK && is_zero(chunk);
            if !is_hole {
                file.write_all_at(chunk, range.offset + done)?;
            }
            done += chunk.len() as u64;
        }
        Ok(())
    }

    /// Whether a file of the same length has the content of a member: holes or zeros where the
    /// member has holes.
    pub(super) fn is_same(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        start: u64,
        len: u64,
        extents: &Option<Box<[Extent]>>,
    ) -> io::Result<bool> {
        let file = open(folder, name)?;
        let mut end = 0;
        for range in ranges(start, len, extents) {
            if !self.is_hole(&file, end, range.offset)? || !self.is_same_range(&file, &range)? {
                return Ok(false);
            }
            end = range.offset + range.len;
        }
        self.is_hole(&file, end, len)
    }

    fn is_same_range(&mut self, file: &File, range: &Range) -> io::Result<bool> {
        let mut done = 0;
        while done < range.len {
            let chunk = chunk(&mut self.buffer, range.len - done);
            self.archive.read_exact_at(chunk, range.start + done)?;
            let (found, _) = self.other.split_at_mut(chunk.len());
            match file.read_exact_at(found, range.offset + done) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                result => result?,
            }
            if found != chunk {
                return Ok(false);
            }
            done += chunk.len() as u64;
        }
        Ok(true)
    }

    /// Whether a file has nothing but zeros in a range. Holes are not read, so that the time does
    /// not depend on the length that an archive claims.
    fn is_hole(&mut self, file: &File, mut at: u64, end: u64) -> io::Result<bool> {
        while at < end {
            let data_end = match seek(file.as_fd(), SeekFrom::Data(at)) {
                Ok(data) => {
                    at = data;
                    seek(file.as_fd(), SeekFrom::Hole(at))?.min(end)
                }
                Err(Errno::NXIO) => return Ok(true),
                // The file system has no list of holes.
                Err(Errno::INVAL) => end,
                Err(error) => return Err(error.into()),
            };
            while at < data_end {
                let chunk = chunk(&mut self.buffer, data_end - at);
                file.read_exact_at(chunk, at)?;
                if !is_zero(chunk) {
                    return Ok(false);
                }
                at += chunk.len() as u64;
            }
        }
        Ok(true)
    }
}

/// Opens a file of a folder for reading. No link is followed, and a pipe does not block.
pub(crate) fn open(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(folder, name, flags, Mode::empty())?))
}

/// Whether a file of a folder has the content of another. A link has not: it is not followed.
///
/// # Errors
/// Errors of the file system.
pub fn is_same_content(content: &File, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let len = content.metadata()?.len();
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || u64::try_from(found.st_size) != Ok(len) {
        return Ok(false);
    }
    Copier::new(content).is_same(folder, name, 0, len, &None)
}

fn ranges(
    start: u64,
    len: u64,
    extents: &Option<Box<[Extent]>>,
) -> impl Iterator<Item = Range> + '_ {
    let whole = extents.is_none().then_some(Extent { offset: 0, len });
    let mut start = start;
    extents.iter().flatten().copied().chain(whole).map(move |Extent { offset, len }| {
        let range = Range { start, offset, len };
        start += len;
        range
    })
}

fn chunk(buffer: &mut [u8], len: u64) -> &mut [u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
    buffer.split_at_mut(len).0
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
