//! Storage effects on a real file system, carried out in the calling thread.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions};
use cap_std::time::SystemTime;
use engine::{
    Area, Completion, DirEntry, EffectError, EntryKind, FileName, FilestoreRequest, IndexRequest,
    OpenMode,
};
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use tree::{Existing, Pack};

use super::Access;
use super::index::Index;
use super::log::Log;
use super::packs::Unpacker;
use super::system::{reason, sync_directory};

/// Temporary file in which a copy is assembled before it replaces a file.
const WORKING: &str = "copy.tmp";
/// Temporary file with a list, which has no name while it is read.
const LIST: &str = "list.tmp";

/// Properties of an opened file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) len: u64,
    /// Seconds since 1970.
    pub(super) modified: Option<u64>,
    /// State of the content, if the file is a source whose readers rely on it.
    state: Option<State>,
}

/// State of a file's content: while it is the same, so is the content.
///
/// The time has the resolution of the kernel's clock tick, up to 10 ms. A change within the tick
/// of an earlier change is not detected, nor is one after which a program resets the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl From<&std::fs::Metadata> for State {
    fn from(found: &std::fs::Metadata) -> Self {
        Self { len: found.len(), modified: (found.mtime(), found.mtime_nsec()) }
    }
}

impl Found {
    /// Verifies that a source still has the content with which it was opened.
    pub(super) fn verify(&self, file: &File) -> Result<(), EffectError> {
        let Some(before) = &self.state else { return Ok(()) };
        let found = file.metadata().map_err(|error| reason(&error))?;
        if State::from(&found) == *before { Ok(()) } else { Err(EffectError::Changed) }
    }
}

/// Converts a time for engines; `None` before 1970 or if the file system has none.
fn seconds(time: io::Result<std::time::SystemTime>) -> Option<u64> {
    time.ok()?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// The two areas of a store and its index.
///
/// Names are resolved relative to directory handles. Every operation refuses a symbolic link that
/// leads out of an area, regardless of its origin.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) files: Dir,
    pub(super) spool: Dir,
    pub(super) records: Records,
    pub(super) access: Access,
    /// Unpacks received packs below the root, if they are to be unpacked.
    pub(super) unpacker: Option<Unpacker>,
    /// Whether the store is being closed, so that nobody takes a list any more.
    pub(super) is_closing: AtomicBool,
    /// Name below [`Area::Files`] of the spool, hidden from listings.
    pub(super) hidden: &'static str,
}

pub(super) type Answer = Result<Completion, EffectError>;

/// Storage of an engine's records.
#[derive(Debug)]
pub(super) enum Records {
    Files(Index),
    Log(Box<Log>),
}

impl Records {
    /// Applies changes in order: those that succeed survive a crash when this returns.
    pub(super) fn change(&self, requests: &[&IndexRequest]) -> Vec<Result<(), EffectError>> {
        let index = match self {
            Self::Log(log) => return log.change(requests),
            Self::Files(index) => index,
        };
        let one = |request: &&IndexRequest| {
            let done = match request {
                IndexRequest::Put { key, value } => index.put(key, value),
                IndexRequest::Remove { key } => index.remove(key),
                IndexRequest::Load { .. } => Ok(()),
            };
            done.map_err(|error| reason(&error))
        };
        requests.iter().map(one).collect()
    }

    /// Does what changes leave to be done, after their answers; later changes wait.
    pub(super) fn tidy(&self) {
        match self {
            Self::Files(_) => {}
            Self::Log(log) => log.tidy(),
        }
    }

    /// Loads the records whose keys have this prefix, in order of their keys.
    pub(super) fn load(&self, prefix: &str) -> io::Result<Vec<(String, Bytes)>> {
        match self {
            Self::Files(index) => index.load(prefix),
            Self::Log(log) => log.load(prefix),
        }
    }

    /// Removes all records.
    pub(super) fn clear(&self) -> io::Result<()> {
        match self {
            Self::Files(index) => empty(index.directory()),
            Self::Log(log) => log.clear(),
        }
    }
}

/// Removes everything in a directory.
pub(super) fn empty(directory: &Dir) -> io::Result<()> {
    for entry in directory.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directory.remove_dir_all(entry.file_name())?;
        } else {
            entry.remove_file()?;
        }
    }
    sync_directory(directory)
}

impl Disk {
    /// Opens a file and returns its length.
    pub(super) fn open(
        &self,
        name: &FileName,
        mode: OpenMode,
    ) -> Result<(File, Found), EffectError> {
        match (&self.access, name.area(), mode) {
            (Access::Full, _, _) | (_, Area::Spool, _) => {}
            (Access::ReadOne(only), Area::Files, OpenMode::Read) if only == name => {}
            (Access::ReadOne(_) | Access::ReadPacks(_), Area::Files, _) => {
                return Err(EffectError::NotAllowed);
            }
        }
        if name.path().is_empty() {
            return Err(EffectError::WrongKind);
        }
        let area = self.area(name);
        match area.metadata(name.path()).map_err(|error| reason(&error)) {
            // Opening a pipe or device can block for ever.
            Ok(found) if !found.is_file() => return Err(EffectError::WrongKind),
            Ok(_) => {}
            Err(EffectError::NotFound) if mode != OpenMode::Read => self.parent_exists(name)?,
            Err(error) => return Err(error),
        }
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Write => options.read(true).write(true).create(true),
            OpenMode::Truncate => options.read(true).write(true).create(true).truncate(true),
        };
        let file = area.open_with(name.path(), &options).map_err(|error| reason(&error))?;
        let file = file.into_std();
        let found = file.metadata().map_err(|error| reason(&error))?;
        let is_source = mode == OpenMode::Read && name.area() == Area::Files;
        let state = is_source.then(|| State::from(&found));
        let found = Found { len: found.len(), modified: seconds(found.modified()), state };
        Ok((file, found))
    }

    /// The pack of a name, if the engine reads packs in place of files.
    pub(super) fn pack(
        &self,
        name: &FileName,
        mode: OpenMode,
    ) -> Result<Option<Arc<Pack>>, EffectError> {
        match (&self.access, name.area(), mode) {
            (Access::ReadPacks(packs), Area::Files, OpenMode::Read) => {
                packs.get(name).map(Some).ok_or(EffectError::NotFound)
            }
            _ => Ok(None),
        }
    }

    /// The working file and the name of a received pack, if this request gives it its name: it is
    /// unpacked in place of that.
    pub(super) fn to_unpack<'a>(
        &self,
        request: &'a FilestoreRequest,
    ) -> Option<(&'a FileName, &'a FileName)> {
        let (FilestoreRequest::Install { from, to } | FilestoreRequest::RenameFile { from, to }) =
            request
        else {
            return None;
        };
        let unpacks = self.unpacker.as_ref().is_some_and(|unpacker| !unpacker.keeps_packs);
        // Peers can rename files below the root, and may call one like a pack.
        let is_received = from.area() == Area::Spool && to.area() == Area::Files;
        (unpacks && is_received && tree::is_pack(to.path())).then_some((from, to))
    }

    /// Whether a file of this name is the list of what is below another name: for stores that
    /// unpack, which may have what a sender would send.
    pub(super) fn is_listed(&self, name: &FileName, mode: OpenMode) -> bool {
        let is_read = name.area() == Area::Files && mode == OpenMode::Read;
        is_read && self.unpacker.is_some() && tree::listed(name.path()).is_some()
    }

    /// Lists what is below the name that a list is about.
    pub(super) fn list_below(&self, name: &FileName) -> Result<(File, Found), EffectError> {
        let (Some(unpacker), Some(listed)) = (&self.unpacker, tree::listed(name.path())) else {
            return Err(EffectError::NotFound);
        };
        let list = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(true);
            let file = self.spool.open_with(LIST, options)?.into_std();
            self.spool.remove_file(LIST)?;
            let (umask, stop) = (unpacker.umask(), &self.is_closing);
            tree::write_list(&self.files, listed, umask, stop, &mut BufWriter::new(&file))?;
            let len = file.metadata()?.len();
            Ok((file, Found { len, modified: None, state: None }))
        };
        list().map_err(|error: io::Error| reason(&error))
    }

    /// Unpacks a complete working file below the root, and removes it. After a crash at any time
    /// this can be done again.
    pub(super) fn unpack(&self, from: &FileName) -> Result<(), EffectError> {
        let Some(unpacker) = &self.unpacker else { return Err(EffectError::NotAllowed) };
        let area = self.area(from);
        let archive = area.open(from.path()).map_err(|error| reason(&error))?;
        unpacker.unpack(&archive.into_std())?;
        area.remove_file(from.path()).map_err(|error| reason(&error))
    }

    /// Carries out a filestore request.
    pub(super) fn filestore(&self, request: &FilestoreRequest) -> Answer {
        use FilestoreRequest as R;
        if !matches!(self.access, Access::Full) {
            return Err(EffectError::NotAllowed);
        }
        match request {
            R::CreateFile(name) => {
                self.vacant(name)?;
                let mut options = OpenOptions::new();
                self.area(name)
                    .open_with(name.path(), options.write(true).create_new(true))
                    .map_err(|error| reason(&error))?;
            }
            R::DeleteFile(name) => {
                self.must_be_file(name)?;
                self.area(name).remove_file(name.path()).map_err(|error| reason(&error))?;
            }
            R::RenameFile { from, to } => {
                self.must_be_file(from)?;
                self.vacant(to)?;
                self.rename_to_new(from, to)?;
            }
            R::AppendFile { to, from } => self.append(to, from)?,
            R::ReplaceFile { to, from } => self.replace(to, from)?,
            R::CreateDirectory(name) => {
                self.vacant(name)?;
                self.area(name).create_dir(name.path()).map_err(|error| reason(&error))?;
            }
            R::RemoveDirectory(name) => self.remove_directory(name)?,
            R::DenyFile(name) => match self.must_be_file(name) {
                Ok(()) => {
                    self.area(name).remove_file(name.path()).map_err(|error| reason(&error))?;
                }
                Err(EffectError::NotFound) => {}
                Err(error) => return Err(error),
            },
            R::DenyDirectory(name) => match self.remove_directory(name) {
                Ok(()) | Err(EffectError::NotFound) => {}
                Err(error) => return Err(error),
            },
            R::Install { from, to } => self.install(from, to)?,
            R::List(name) => return self.list(name),
        }
        Ok(Completion::Done)
    }

    /// Loads the records whose keys have this prefix.
    pub(super) fn load(&self, prefix: &str) -> Answer {
        self.records.load(prefix).map(Completion::Records).map_err(|error| reason(&error))
    }

    fn area(&self, name: &FileName) -> &Dir {
        match name.area() {
            Area::Files => &self.files,
            Area::Spool => &self.spool,
        }
    }

    /// Whether a name is a directory. A link that leaves the area is an error.
    fn is_directory(&self, name: &FileName) -> Result<bool, EffectError> {
        let found = self.area(name).symlink_metadata(name.path());
        found.map(|found| found.is_dir()).map_err(|error| reason(&error))
    }

    fn must_be_file(&self, name: &FileName) -> Result<(), EffectError> {
        if self.is_directory(name)? { Err(EffectError::WrongKind) } else { Ok(()) }
    }

    fn vacant(&self, name: &FileName) -> Result<(), EffectError> {
        if name.path().is_empty() {
            return Err(EffectError::Exists);
        }
        match self.is_directory(name) {
            Ok(_) => Err(EffectError::Exists),
            Err(EffectError::NotFound) => self.parent_exists(name),
            Err(error) => Err(error),
        }
    }

    /// Checks that the parent directory of a name exists.
    fn parent_exists(&self, name: &FileName) -> Result<(), EffectError> {
        let Some(parent) = name.parent() else { return Ok(()) };
        let found = self.area(&parent).metadata(parent.path()).map_err(|error| reason(&error))?;
        if found.is_dir() { Ok(()) } else { Err(EffectError::WrongKind) }
    }

    fn rename(&self, from: &FileName, to: &FileName) -> Result<(), EffectError> {
        let target = self.area(to);
        self.area(from)
            .rename(from.path(), target, to.path())
            .and_then(|()| self.sync_parent(to))
            .map_err(|error| reason(&error))
    }

    /// Renames a file, and fails if the new name exists by now: other processes may write here.
    fn rename_to_new(&self, from: &FileName, to: &FileName) -> Result<(), EffectError> {
        let renamed = self.place(from).and_then(|(from, old)| {
            let (to, new) = self.place(to)?;
            Ok(renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE)?)
        });
        match renamed {
            Ok(()) => self.sync_parent(to).map_err(|error| reason(&error)),
            // Some file systems have no such operation.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.rename(from, to)
            }
            Err(error) => Err(reason(&error)),
        }
    }

    fn install(&self, from: &FileName, to: &FileName) -> Result<(), EffectError> {
        self.must_be_file(from)?;
        if to.path().is_empty() {
            return Err(EffectError::WrongKind);
        }
        let exists = match self.must_be_file(to) {
            Ok(()) => true,
            Err(EffectError::NotFound) => {
                self.make_parent(to)?;
                false
            }
            Err(error) => return Err(error),
        };
        // Sync the content first: a name that survives a crash must not refer to a partial file.
        let content = self.area(from).open(from.path()).map_err(|error| reason(&error))?.into_std();
        content.sync_all().map_err(|error| reason(&error))?;
        let existing = self.unpacker.as_ref().map(Unpacker::existing).filter(|_| exists);
        match existing {
            Some(Existing::Rename | Existing::Fail) if self.is_same(&content, to)? => {
                self.discard(from)
            }
            Some(Existing::Fail) => Err(EffectError::Exists),
            Some(Existing::Skip) => self.discard(from),
            Some(Existing::Rename) => {
                self.set_aside(to)?;
                self.rename(from, to)
            }
            // A file without its time is newer than any other.
            Some(Existing::Newer | Existing::Replace) | None => self.rename(from, to),
        }
    }

    /// Checks that a name has a folder; makes it where received files may have new ones.
    fn make_parent(&self, name: &FileName) -> Result<(), EffectError> {
        match (self.parent_exists(name), name.parent()) {
            (Err(EffectError::NotFound), Some(parent)) if self.unpacker.is_some() => {
                self.area(name).create_dir_all(parent.path()).map_err(|error| reason(&error))
            }
            (checked, _) => checked,
        }
    }

    /// Whether a file has this content.
    fn is_same(&self, content: &File, name: &FileName) -> Result<bool, EffectError> {
        let compare = || {
            let (folder, last) = self.place(name)?;
            tree::is_same_content(content, folder.as_fd(), last.as_bytes())
        };
        compare().map_err(|error: io::Error| reason(&error))
    }

    fn discard(&self, name: &FileName) -> Result<(), EffectError> {
        self.area(name).remove_file(name.path()).map_err(|error| reason(&error))
    }

    /// Renames a file to a name that no other has.
    fn set_aside(&self, name: &FileName) -> Result<(), EffectError> {
        let (folder, last) = self.place(name).map_err(|error| reason(&error))?;
        let aside = tree::set_aside(folder.as_fd(), last.as_bytes());
        aside.map(drop).map_err(|error| reason(&error.into()))
    }

    /// Folder of a name, and its last part.
    fn place<'a>(&self, name: &'a FileName) -> io::Result<(Dir, &'a str)> {
        let (parent, last) = name.path().rsplit_once('/').unwrap_or((".", name.path()));
        Ok((self.area(name).open_dir(parent)?, last))
    }

    fn append(&self, to: &FileName, from: &FileName) -> Result<(), EffectError> {
        self.must_be_file(to)?;
        let (source, found) = self.open(from, OpenMode::Read)?;
        let (mut target, _) = self.open(to, OpenMode::Write)?;
        // Copies only the length at the start, because source and target may be the same file.
        let copied = target
            .seek(io::SeekFrom::End(0))
            .and_then(|_| io::copy(&mut source.take(found.len), &mut target));
        copied.and_then(|_| target.sync_all()).map_err(|error| reason(&error))
    }

    fn replace(&self, to: &FileName, from: &FileName) -> Result<(), EffectError> {
        self.must_be_file(to)?;
        let (mut source, _) = self.open(from, OpenMode::Read)?;
        let mut options = OpenOptions::new();
        let copy = self.spool.open_with(WORKING, options.write(true).create(true).truncate(true));
        copy.and_then(|mut copy| {
            io::copy(&mut source, &mut copy)?;
            copy.sync_all()?;
            self.spool.rename(WORKING, self.area(to), to.path())?;
            self.sync_parent(to)
        })
        .map_err(|error| reason(&error))
    }

    fn remove_directory(&self, name: &FileName) -> Result<(), EffectError> {
        if !self.is_directory(name)? {
            return Err(EffectError::WrongKind);
        }
        self.area(name).remove_dir(name.path()).map_err(|error| reason(&error))
    }

    fn list(&self, name: &FileName) -> Answer {
        let at_root = name.path().is_empty();
        if !at_root && !self.is_directory(name)? {
            return Err(EffectError::WrongKind);
        }
        let list = || -> io::Result<Vec<DirEntry>> {
            let area = self.area(name);
            let directory = if at_root { area.try_clone()? } else { area.open_dir(name.path())? };
            let mut entries = Vec::new();
            for entry in directory.entries()? {
                // A name that is not UTF-8 cannot be requested, so it is not listed.
                let Ok(name) = entry?.file_name().into_string() else { continue };
                let hidden = at_root && name == self.hidden;
                // A link that leads out or nowhere does not exist for a peer.
                let Ok(found) = directory.metadata(&name) else { continue };
                let kind = if found.is_dir() {
                    EntryKind::Directory
                } else {
                    EntryKind::File(found.len())
                };
                if !hidden {
                    let modified = seconds(found.modified().map(SystemTime::into_std));
                    entries.push(DirEntry { name, kind, modified });
                }
            }
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        list().map(Completion::Listing).map_err(|error| reason(&error))
    }

    fn sync_parent(&self, name: &FileName) -> io::Result<()> {
        let area = self.area(name);
        match name.path().rsplit_once('/') {
            Some((parent, _)) => sync_directory(&area.open_dir(parent)?),
            None => sync_directory(area),
        }
    }
}

/// Reads into `buffer` until it is full or the file ends; returns the number of bytes.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, EffectError> {
    let mut done = 0;
    while done < buffer.len() {
        let Some(at) = offset.checked_add(done as u64) else { break };
        match file.read_at(&mut buffer[done..], at) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Beyond the maximum file offset is beyond the file's end.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => return Err(reason(&error)),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`.
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> Answer {
    let end = offset.checked_add(bytes.len() as u64);
    // No file is longer than the system's signed offsets.
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(EffectError::NoSpace);
    }
    file.write_all_at(bytes, offset).map(|()| Completion::Done).map_err(|error| reason(&error))
}
