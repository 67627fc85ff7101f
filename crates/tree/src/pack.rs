//! A pack that is read from the files themselves.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::archive::{END, padded};
use crate::entry::{Entry, Kind};
use crate::extents::open;
use crate::header;
use crate::plan::Plan;
use crate::scan::modified;

/// Number of files that a pack keeps open.
const OPEN_MAX: usize = 4;

/// Error while a pack is read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file is no longer as it was when the pack was planned.
    #[error("{} has changed since it was listed; send it again", .0.display())]
    Changed(PathBuf),
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// Archive of a [`Plan`]'s entries that is not stored anywhere: each read takes the bytes from the
/// files. It has the same bytes as long as the files do not change.
#[derive(Debug)]
pub struct Pack {
    plan: Plan,
    /// Offsets of the entries' headers and content.
    places: Box<[Place]>,
    len: u64,
    /// Files that were read last, the latest at the end, by the number of their entry.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    header: u64,
    content: u64,
}

impl Pack {
    /// Prepares to read the archive; opens no file yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut places = Vec::with_capacity(plan.entries.len());
        let mut end = 0_u64;
        for entry in &plan.entries {
            let content = end.saturating_add(header::len(entry));
            places.push(Place { header: end, content });
            let stored = padded(header::stored(entry));
            end = content.saturating_add(stored);
        }
        let len = end.saturating_add(END);
        Self { plan, places: places.into_boxed_slice(), len, open: Mutex::default() }
    }

    /// Entries of the archive.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Length of the archive in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plan.is_empty()
    }

    /// Reads bytes of the archive from `offset`: as many as `to` takes, fewer only at the end.
    ///
    /// # Errors
    /// [`ReadError`]; then the content of `to` is of no use.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize, ReadError> {
        let len = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (to, _) = to.split_at_mut(len.min(to.len()));
        let end = offset.saturating_add(to.len() as u64);
        let first = self.places.partition_point(|place| place.header <= offset).saturating_sub(1);
        let entries = self.plan.entries.iter().zip(&self.places).enumerate().skip(first);
        for (number, (entry, place)) in entries.take_while(|(_, (_, place))| place.header < end) {
            if offset < place.content {
                copy(&header::encode(entry), place.header, offset, to);
            }
            if end > place.content {
                self.read_content(number, entry, Window { start: place.content, offset, to })?;
            }
        }
        Window { start: self.len - END, offset, to }.clear(0, END);
        Ok(to.len())
    }

    /// Reads the part of an entry's content that is in the window.
    fn read_content(
        &self,
        number: usize,
        entry: &Entry,
        mut window: Window<'_>,
    ) -> Result<(), ReadError> {
        let Kind::File { len, extents } = &entry.kind else { return Ok(()) };
        let stored = header::stored(entry);
        window.clear(stored, padded(stored) - stored);
        if window.part(0, stored).is_none() {
            return Ok(());
        }
        let failed = |source| ReadError::Io { path: entry.source.clone(), source };
        let file = self.file(number, entry)?;
        let read = match extents {
            None => window.read(&file, 0, *len, 0),
            Some(extents) => {
                let mut at = 0;
                extents.iter().try_for_each(|extent| {
                    let read = window.read(&file, at, extent.len, extent.offset);
                    at = at.saturating_add(extent.len);
                    read
                })
            }
        };
        match read {
            Ok(()) => {}
            // It was cut in the meantime.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ReadError::Changed(entry.source.clone()));
            }
            Err(error) => return Err(failed(error)),
        }
        // After the read: what was read before a change is that of the plan.
        verify(&file, entry)
    }

    /// Returns the file of an entry, opened now or recently.
    fn file(&self, number: usize, entry: &Entry) -> Result<Arc<File>, ReadError> {
        let mut recent = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = recent.iter().position(|(found, _)| *found == number)
            && let Some(found) = recent.remove(position)
        {
            let file = Arc::clone(&found.1);
            recent.push_back(found);
            return Ok(file);
        }
        drop(recent);
        let file = match open(&entry.source) {
            Ok(file) => Arc::new(file),
            Err(error) if is_gone(&error) => {
                return Err(ReadError::Changed(entry.source.clone()));
            }
            Err(source) => return Err(ReadError::Io { path: entry.source.clone(), source }),
        };
        verify(&file, entry)?;
        let mut recent = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= OPEN_MAX {
            recent.pop_front();
        }
        recent.push_back((number, Arc::clone(&file)));
        Ok(file)
    }
}

/// Whether the file or one of its folders has been removed or replaced.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Verifies that a file is still that of its entry.
///
/// The time has the resolution of the kernel's clock tick, up to 10 ms: a second change within one
/// tick is not detected. Nor is a change after which a program resets the time.
fn verify(file: &File, entry: &Entry) -> Result<(), ReadError> {
    let path = || entry.source.clone();
    let metadata = file.metadata().map_err(|source| ReadError::Io { path: path(), source })?;
    let is_same = metadata.is_file()
        && matches!(entry.kind, Kind::File { len, .. } if len == metadata.len())
        && modified(&metadata) == entry.modified;
    if is_same { Ok(()) } else { Err(ReadError::Changed(path())) }
}

/// Copies the part of `from`, which is at `start` in the archive, that `to` at `offset` covers.
fn copy(from: &[u8], start: u64, offset: u64, to: &mut [u8]) {
    let mut window = Window { start, offset, to };
    if let Some(Part { skip, to }) = window.part(0, from.len() as u64) {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        for (to, from) in to.iter_mut().zip(from.iter().skip(skip)) {
            *to = *from;
        }
    }
}

/// Buffer for a range of the archive, in which an entry's content begins at `start`.
struct Window<'a> {
    start: u64,
    offset: u64,
    to: &'a mut [u8],
}

/// Part of a range that is in a window.
struct Part<'a> {
    /// Bytes of the range before the window.
    skip: u64,
    to: &'a mut [u8],
}

impl Window<'_> {
    /// Finds the part of a range of the content that is in the window.
    fn part(&mut self, at: u64, len: u64) -> Option<Part<'_>> {
        let begin = self.start.saturating_add(at);
        let from = begin.max(self.offset);
        let end = begin.saturating_add(len).min(self.offset + self.to.len() as u64);
        if from >= end {
            return None;
        }
        let position = |at: u64| usize::try_from(at - self.offset).unwrap_or(usize::MAX);
        let (first, last) = (position(from), position(end));
        Some(Part { skip: from - begin, to: self.to.get_mut(first..last)? })
    }

    /// Writes zeros to the part of a range.
    fn clear(&mut self, at: u64, len: u64) {
        if let Some(Part { to, .. }) = self.part(at, len) {
            to.fill(0);
        }
    }

    /// Reads the part of a range from its place in the file.
    fn read(&mut self, file: &File, at: u64, len: u64, place: u64) -> io::Result<()> {
        match self.part(at, len) {
            Some(Part { skip, to }) => file.read_exact_at(to, place.saturating_add(skip)),
            None => Ok(()),
        }
    }
}

// Several threads may read one pack.
const _: () = {
    const fn assert_sync<T: Send + Sync>() {}
    assert_sync::<Pack>();
};
