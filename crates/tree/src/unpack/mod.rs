//! Installs the members of an archive below a root.
//!
//! First all content is written to a working folder, and synced with one call. Then each file is
//! renamed into place, folders get their permissions and times, and a second call syncs the names.
//! An interrupted archive can be unpacked again: what is in place already is left as it is.

pub(crate) mod content;
mod folders;
pub(crate) mod names;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;

use cap_std::fs::Dir;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT, chmodat,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, syncfs, utimensat,
};
use rustix::io::Errno;
use thiserror::Error;

use crate::archive::{Content, Member, Members};
use crate::entry::{Modified, parent};
use crate::error::{Fault, UnpackError};
use crate::existing::Existing;
use crate::names::numbered;
use content::Copier;
pub use content::is_same_content;
use folders::Folders;

/// Folder in the staging directory for the content of one archive.
const WORK: &str = "unpack";
/// Largest number of members: 1,048,576, about 300 MB of memory.
const MEMBERS_MAX: usize = 1 << 20;

/// Unpacks archives below a root, one at a time.
#[derive(Debug)]
pub struct Unpacker {
    /// Folder that gets the files. Nothing is written outside it, nor to its working files.
    pub root: Dir,
    /// Folder for working files, in the same file system. What an interrupted call left there is
    /// removed, so that no two unpackers may have the same.
    pub staging: Dir,
    /// Policy for files that exist.
    pub existing: Existing,
    /// Permissions that no file gets; see [`process_umask`].
    pub umask: u32,
}

/// Result of one archive.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// Files installed.
    pub files: u64,
    /// Folders created or updated.
    pub directories: u64,
    /// Symbolic links installed.
    pub links: u64,
    /// Files and links that were there already, with the same content, permissions and time.
    pub unchanged: u64,
    /// Files and links left as they were by [`Existing::Skip`] and [`Existing::Newer`].
    pub skipped: u64,
    /// Files moved aside by [`Existing::Rename`].
    pub renamed: Vec<Renamed>,
    /// Members that were not installed.
    pub refused: Vec<Refused>,
    /// Bytes written to installed files.
    pub bytes: u64,
}

/// File that was moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Name below the root.
    pub from: Vec<u8>,
    /// New name below the root.
    pub to: Vec<u8>,
}

/// Member that was not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name in the archive.
    pub name: Vec<u8>,
    /// Why it was not installed.
    pub reason: Refusal,
}

/// Reason for which a member is not installed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Name that begins with `/`.
    #[error("its name is absolute")]
    Absolute,
    /// Name with a part `..`.
    #[error("its name has a part \"..\"")]
    Parent,
    /// Name or target with a NUL.
    #[error("its name or target has a NUL")]
    Nul,
    /// File or link without a name.
    #[error("it has no name")]
    Empty,
    /// Name or target longer than 4,096 bytes, or a part longer than 255.
    #[error("its name or target is too long")]
    TooLong,
    /// Name in the folder of the receiver's working files.
    #[error("its name is reserved for working files")]
    Reserved,
    /// Link that could lead out of the root.
    #[error("its target is absolute or leads out of the folder")]
    Target,
    /// Hard link, device, or another kind that is never unpacked.
    #[error("it is {0}")]
    Kind(&'static str),
    /// Part of its name that is no folder. Links are not followed.
    #[error("a folder of its name is a file or a symbolic link here")]
    NotFolder,
    /// A folder has the name of a file.
    #[error("a folder has its name")]
    Folder,
    /// A file or a link has the name of a folder.
    #[error("a file or a symbolic link has its name")]
    File,
    /// It exists, and the policy is [`Existing::Fail`].
    #[error("it exists")]
    Exists,
    /// Longer than the file system stores.
    #[error("it is larger than a file can be here")]
    TooLarge,
    /// Name or target that the file system does not accept.
    #[error("the file system does not accept its name")]
    Unsupported,
}

/// Reason for which an operation on one member did not succeed.
enum Obstacle {
    /// The member is left out, and the rest goes on.
    Refused(Refusal),
    /// The archive cannot be unpacked.
    Failed(io::Error),
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Errno> for Obstacle {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NAMETOOLONG | Errno::ILSEQ => Self::Refused(Refusal::Unsupported),
            error => Self::Failed(error.into()),
        }
    }
}

impl Obstacle {
    /// Converts the error of a call that creates a name. Some file systems refuse characters.
    fn creating(error: Errno) -> Self {
        match error {
            Errno::INVAL => Self::Refused(Refusal::Unsupported),
            error => error.into(),
        }
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Failed(error),
        }
    }
}

/// Returns the permissions that new files of this process do not get.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn process_umask() -> io::Result<u32> {
    // umask(2) returns it only when it sets another, which would affect other threads.
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let value = value.and_then(|value| u32::from_str_radix(value.trim(), 8).ok());
    value.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "/proc has no umask"))
}

/// Decision about a file or link.
enum Verdict {
    Install,
    /// A file with the same content is in place: nothing is lost with it.
    Replace,
    Keep(Kept),
    /// Another file is in place, and the policy is [`Existing::Fail`].
    Refuse,
}

/// Permissions and time that a file gets, or has.
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) modified: Modified,
}

impl From<&Stat> for Attributes {
    fn from(found: &Stat) -> Self {
        let nanos = u32::try_from(found.st_mtime_nsec).unwrap_or_default();
        let modified = Modified { secs: found.st_mtime, nanos };
        Self { mode: found.st_mode & 0o7777, modified }
    }
}

/// Reason for which the file that is in place is kept.
enum Kept {
    /// It is the same.
    Unchanged,
    /// The policy.
    Skipped,
}

impl Unpacked {
    fn count(&mut self, kept: &Kept) {
        match kept {
            Kept::Unchanged => self.unchanged += 1,
            Kept::Skipped => self.skipped += 1,
        }
    }
}

/// Member that is ready to be installed.
struct Item {
    /// Checked name below the root.
    name: Vec<u8>,
    member: Member,
    step: Step,
}

/// Last step for a member, when all content is stored.
enum Step {
    Folder,
    /// Moves this file or link of the working folder into place.
    Move(String),
    /// Nothing: another file is kept.
    Keep(Kept),
}

/// Permissions and time of a folder when everything is in place.
struct Final {
    mode: u32,
    modified: Option<Modified>,
}

impl Unpacker {
    /// Unpacks an archive. Members that are not allowed are refused; the others are installed.
    ///
    /// # Errors
    /// [`UnpackError`]. If the archive is invalid, or its content cannot be stored, nothing of it
    /// is installed. After any error it can be unpacked again.
    pub fn unpack(&self, archive: &File) -> Result<Unpacked, UnpackError> {
        let work = Work::create(&self.staging)
            .map_err(UnpackError::during("creating the working folder"))?;
        let mut run = Run {
            unpacker: self,
            archive,
            work: &work.folder,
            folders: Folders::new(&self.root, self.umask),
            copier: Copier::new(archive),
            report: Unpacked::default(),
        };
        let items = run.stage()?;
        if items.iter().any(|item| matches!(item.step, Step::Move(_))) {
            work.sync().map_err(UnpackError::during("syncing files"))?;
        }
        let installed = run.install(&items);
        // After an error as well: folders that were made writable get their permissions back.
        let closed = run.folders.close();
        installed?;
        closed.map_err(UnpackError::during("setting permissions and times of folders"))?;
        work.sync().map_err(UnpackError::during("syncing names"))?;
        let report = run.report;
        tracing::debug!(
            files = report.files,
            unchanged = report.unchanged,
            refused = report.refused.len(),
            "unpacked an archive"
        );
        Ok(report)
    }

    fn mode(&self, member: &Member) -> u32 {
        granted(member.mode, self.umask)
    }
}

/// Permissions that a file with these gets where a umask takes some.
pub(crate) fn granted(mode: u32, umask: u32) -> u32 {
    mode & 0o777 & !umask
}

/// Working folder of one archive; removed when dropped.
struct Work<'a> {
    staging: &'a Dir,
    folder: Dir,
}

impl<'a> Work<'a> {
    fn create(staging: &'a Dir) -> io::Result<Self> {
        match staging.remove_dir_all(WORK) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        staging.create_dir(WORK)?;
        Ok(Self { staging, folder: staging.open_dir(WORK)? })
    }

    /// Syncs the file system of the working folder and the root.
    fn sync(&self) -> io::Result<()> {
        // The handle may have been opened with O_PATH, which cannot be synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(syncfs(openat(&self.folder, ".", flags, Mode::empty())?)?)
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.staging.remove_dir_all(WORK) {
            tracing::warn!(%error, "the working folder of an archive cannot be removed");
        }
    }
}

/// Unpacking of one archive.
struct Run<'a> {
    unpacker: &'a Unpacker,
    archive: &'a File,
    work: &'a Dir,
    folders: Folders<'a>,
    copier: Copier<'a>,
    report: Unpacked,
}

impl Run<'_> {
    /// Reads the whole archive, and writes what is to be installed to the working folder.
    fn stage(&mut self) -> Result<Vec<Item>, UnpackError> {
        let mut members = Members::new(self.archive)?;
        let mut items = Vec::new();
        let mut count = 0;
        loop {
            let offset = members.offset();
            let Some(member) = members.next()? else {
                drop_superseded(&mut items);
                return Ok(items);
            };
            if count == MEMBERS_MAX {
                return Err(UnpackError::Archive { offset, fault: Fault::TooManyMembers });
            }
            count += 1;
            let name = member.name.clone();
            match self.stage_member(member, count) {
                Ok(item) => items.extend(item),
                Err(obstacle) => self.refuse(name, obstacle)?,
            }
        }
    }

    fn stage_member(&mut self, member: Member, number: usize) -> Result<Option<Item>, Obstacle> {
        let name = names::checked(&member.name)?;
        let is_folder = matches!(member.content, Content::Directory);
        if name.is_empty() {
            // `./` is the root itself, which keeps its permissions.
            return if is_folder { Ok(None) } else { Err(Refusal::Empty.into()) };
        }
        match &member.content {
            Content::Other(kind) => return Err(Refusal::Kind(kind).into()),
            Content::Directory => return Ok(Some(Item { name, member, step: Step::Folder })),
            Content::Link { target } => names::check_target(&name, target)?,
            Content::File { .. } => {}
        }
        if let Some(folder) = self.folders.find(parent(&name))? {
            let wanted =
                Attributes { mode: self.unpacker.mode(&member), modified: member.modified };
            match verdict(self.unpacker, &mut self.copier, folder, &name, &member, &wanted)? {
                // A file is refused when the attributes are known that the file system gives it.
                Verdict::Install | Verdict::Replace | Verdict::Refuse => {}
                Verdict::Keep(kept) => {
                    return Ok(Some(Item { name, member, step: Step::Keep(kept) }));
                }
            }
        }
        let staged = number.to_string();
        match &member.content {
            Content::Link { target } => {
                symlinkat(target.as_slice(), self.work, staged.as_str())
                    .map_err(Obstacle::creating)?;
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                utimensat(self.work, staged.as_str(), &times(member.modified), flags)?;
            }
            Content::File { len, extents } => {
                let file = self.copier.write(self.work, &staged, member.start, *len, extents)?;
                let mode = Mode::from_raw_mode(self.unpacker.mode(&member));
                rustix::fs::fchmod(&file, mode)?;
                rustix::fs::futimens(&file, &times(member.modified))?;
            }
            Content::Directory | Content::Other(_) => return Ok(None),
        }
        Ok(Some(Item { name, member, step: Step::Move(staged) }))
    }

    fn refuse(&mut self, name: Vec<u8>, obstacle: Obstacle) -> Result<(), UnpackError> {
        match obstacle {
            Obstacle::Refused(reason) => self.report.refused.push(Refused { name, reason }),
            Obstacle::Failed(source) => return Err(UnpackError::Io { name, source }),
        }
        Ok(())
    }

    /// Creates the folders, and moves what was staged into place.
    fn install(&mut self, items: &[Item]) -> Result<(), UnpackError> {
        for item in items {
            let installed = match &item.step {
                Step::Folder => self.install_folder(item),
                Step::Move(staged) => self.install_file(item, staged),
                Step::Keep(kept) => {
                    self.report.count(kept);
                    Ok(())
                }
            };
            if let Err(obstacle) = installed {
                self.refuse(item.name.clone(), obstacle)?;
            }
        }
        Ok(())
    }

    fn install_folder(&mut self, item: &Item) -> Result<(), Obstacle> {
        let Item { name, member, .. } = item;
        match self.folders.create(Some(name)) {
            Ok(_) => {}
            Err(Obstacle::Refused(Refusal::NotFolder)) => return Err(self.obstacle(name)),
            Err(obstacle) => return Err(obstacle),
        }
        let mode = self.unpacker.mode(member);
        self.folders.set_final(name, Final { mode, modified: Some(member.modified) });
        self.report.directories += 1;
        Ok(())
    }

    /// Distinguishes a folder's own name from the names of its parents.
    fn obstacle(&mut self, name: &[u8]) -> Obstacle {
        match self.folders.find(parent(name)) {
            Ok(_) => Refusal::File.into(),
            Err(obstacle) => obstacle,
        }
    }

    fn install_file(&mut self, item: &Item, staged: &str) -> Result<(), Obstacle> {
        let Item { name, member, .. } = item;
        let folder = self.folders.create(parent(name))?;
        let last = names::last(name);
        match rename_new(self.work, staged.as_bytes(), folder, last) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                // Compared once more: some file systems store other times than they are given.
                let wanted = statat(self.work, staged, AtFlags::SYMLINK_NOFOLLOW)?;
                let wanted = Attributes::from(&wanted);
                let verdict =
                    verdict(self.unpacker, &mut self.copier, folder, name, member, &wanted)?;
                match verdict {
                    Verdict::Install | Verdict::Replace => {}
                    Verdict::Refuse => return Err(Refusal::Exists.into()),
                    Verdict::Keep(kept) => {
                        self.report.count(&kept);
                        return Ok(());
                    }
                }
                if self.unpacker.existing == Existing::Rename
                    && matches!(verdict, Verdict::Install)
                    && let Some(aside) = set_aside(folder, last)?
                {
                    let to = sibling(name, &aside);
                    self.report.renamed.push(Renamed { from: name.clone(), to });
                }
                renameat(self.work, staged, folder, last)?;
            }
            Err(error) => return Err(Obstacle::creating(error)),
        }
        match &member.content {
            Content::File { len, extents } => {
                self.report.files += 1;
                let stored =
                    extents.as_ref().map(|list| list.iter().map(|extent| extent.len).sum());
                self.report.bytes += stored.unwrap_or(*len);
            }
            Content::Link { .. } => self.report.links += 1,
            Content::Directory | Content::Other(_) => {}
        }
        Ok(())
    }
}

/// Drops files and links that a later one of the same name replaces, as in an archive to which tar
/// has appended. If both were installed, a second call would install the first again.
fn drop_superseded(items: &mut Vec<Item>) {
    let mut later = HashSet::new();
    let mut kept: Vec<bool> = Vec::with_capacity(items.len());
    for item in items.iter().rev() {
        kept.push(matches!(item.step, Step::Folder) || later.insert(item.name.as_slice()));
    }
    items.retain(|_| kept.pop().unwrap_or(true));
}

/// Compares a member with what has its name.
fn verdict(
    unpacker: &Unpacker,
    copier: &mut Copier<'_>,
    folder: BorrowedFd<'_>,
    name: &[u8],
    member: &Member,
    wanted: &Attributes,
) -> Result<Verdict, Obstacle> {
    let last = names::last(name);
    let found = match statat(folder, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(Verdict::Install),
        Err(error) => return Err(error.into()),
    };
    let has = Attributes::from(&found);
    let mut has_content = false;
    let is_same = match (&member.content, FileType::from_raw_mode(found.st_mode)) {
        (_, FileType::Directory) => return Err(Refusal::Folder.into()),
        (Content::Link { target }, FileType::Symlink) => {
            readlinkat(folder, last, Vec::new())?.as_bytes() == target
        }
        (Content::File { len, extents }, FileType::RegularFile) => {
            let is_alike = has.mode == wanted.mode && has.modified == wanted.modified;
            let is_compared = is_alike || unpacker.existing == Existing::Rename;
            has_content = u64::try_from(found.st_size) == Ok(*len)
                && is_compared
                && match copier.is_same(folder, last, member.start, *len, extents) {
                    // Its permissions are those of the member, which may forbid to read it. Its
                    // length and time are the same as well.
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => is_alike,
                    compared => compared?,
                };
            is_alike && has_content
        }
        _ => false,
    };
    if is_same {
        return Ok(Verdict::Keep(Kept::Unchanged));
    }
    match unpacker.existing {
        Existing::Fail => Ok(Verdict::Refuse),
        Existing::Rename if has_content => Ok(Verdict::Replace),
        Existing::Skip => Ok(Verdict::Keep(Kept::Skipped)),
        Existing::Newer if wanted.modified <= has.modified => Ok(Verdict::Keep(Kept::Skipped)),
        Existing::Newer | Existing::Replace | Existing::Rename => Ok(Verdict::Install),
    }
}

/// Moves what has the name to `NAME.~N~` with the first free number, and returns the new name;
/// `None` if nothing has the name.
///
/// # Errors
/// Errors of the file system.
pub fn set_aside(folder: BorrowedFd<'_>, last: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut number = 1_u64;
    loop {
        let aside = numbered(last, number);
        match rename_new(folder, last, folder, &aside) {
            Ok(()) => return Ok(Some(aside)),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::EXIST) => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Name in the same folder.
fn sibling(name: &[u8], last: &[u8]) -> Vec<u8> {
    match parent(name) {
        Some(parent) => [parent, b"/", last].concat(),
        None => last.to_vec(),
    }
}

/// Renames a file to a name that nothing has; else `EXIST`.
fn rename_new(
    from: impl std::os::fd::AsFd,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> Result<(), Errno> {
    match renameat_with(&from, old, to, new, RenameFlags::NOREPLACE) {
        // Some file systems have no such operation.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(from, old, to, new),
            Ok(_) => Err(Errno::EXIST),
            Err(error) => Err(error),
        },
        result => result,
    }
}

/// Times for a call that leaves the time of the last access as it is.
fn times(modified: Modified) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.secs, tv_nsec: modified.nanos.into() },
    }
}

/// Folders by name. In reverse order content is before its folder.
type Finals = BTreeMap<Vec<u8>, Final>;

/// Sets permissions and time of a folder.
fn finish(folder: BorrowedFd<'_>, last: &[u8], end: &Final) -> Result<(), Errno> {
    if let Some(modified) = end.modified {
        utimensat(folder, last, &times(modified), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    chmodat(folder, last, Mode::from_raw_mode(end.mode), AtFlags::empty())
}
