//! Folders below the root, opened part by part so that no link is followed.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Final, Finals, Obstacle, Refusal, finish, names};
use crate::entry::parent;

const FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Permissions that the owner needs to change a folder.
const CHANGE: u32 = 0o300;

/// Folders of one archive.
pub(super) struct Folders<'a> {
    root: &'a Dir,
    umask: u32,
    /// Folder that was opened last. Members of one folder follow each other.
    last: Option<Opened>,
    /// Folder that was looked for last and does not exist.
    missing: Option<Vec<u8>>,
    finals: Finals,
}

struct Opened {
    name: Vec<u8>,
    folder: OwnedFd,
    may_change: bool,
}

impl<'a> Folders<'a> {
    pub(super) fn new(root: &'a Dir, umask: u32) -> Self {
        Self { root, umask, last: None, missing: None, finals: Finals::new() }
    }

    /// Opens a folder, the root for `None`; nothing if it does not exist, or cannot be searched.
    pub(super) fn find(&mut self, name: Option<&[u8]>) -> Result<Option<BorrowedFd<'_>>, Obstacle> {
        if name.is_some() && self.missing.as_deref() == name {
            return Ok(None);
        }
        match self.open(name, false) {
            Ok(()) => Ok(Some(self.opened(name))),
            Err(Obstacle::Failed(error)) if is_hidden(&error) => {
                self.missing = name.map(<[u8]>::to_vec);
                Ok(None)
            }
            Err(obstacle) => Err(obstacle),
        }
    }

    /// Opens a folder to change it. Creates those that are missing, and makes those of this user
    /// writable; [`Folders::close`] sets their permissions.
    pub(super) fn create(&mut self, name: Option<&[u8]>) -> Result<BorrowedFd<'_>, Obstacle> {
        self.missing = None;
        self.open(name, true)?;
        Ok(self.opened(name))
    }

    /// Notes permissions and time of a folder for [`Folders::close`].
    pub(super) fn set_final(&mut self, name: &[u8], end: Final) {
        self.finals.insert(name.to_vec(), end);
    }

    /// Sets permissions and times of folders, those of content before those of its folder.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for (name, end) in std::mem::take(&mut self.finals).iter().rev() {
            let set = match self.find(parent(name)) {
                Ok(Some(folder)) => finish(folder, names::last(name), end),
                // It was replaced by another program.
                Ok(None) | Err(Obstacle::Refused(_)) => Ok(()),
                Err(Obstacle::Failed(error)) => {
                    result = Err(error);
                    continue;
                }
            };
            if let Err(error) = set {
                result = Err(error.into());
            }
        }
        result
    }

    fn open(&mut self, name: Option<&[u8]>, change: bool) -> Result<(), Obstacle> {
        let Some(name) = name else { return Ok(()) };
        let is_open = self
            .last
            .as_ref()
            .is_some_and(|last| last.name == name && (last.may_change || !change));
        if !is_open {
            self.last = None;
            let folder = self.walk(name, change)?;
            self.last = Some(Opened { name: name.to_vec(), folder, may_change: change });
        }
        Ok(())
    }

    /// Folder after [`Folders::open`].
    fn opened(&self, name: Option<&[u8]>) -> BorrowedFd<'_> {
        let last = self.last.as_ref().filter(|_| name.is_some());
        last.map_or(self.root.as_fd(), |last| last.folder.as_fd())
    }

    fn walk(&mut self, name: &[u8], change: bool) -> Result<OwnedFd, Obstacle> {
        let mut folder = openat(self.root, ".", FLAGS, Mode::empty())?;
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = ends.map(|(end, _)| end).chain([name.len()]);
        for end in ends {
            let path = name.get(..end).unwrap_or(name);
            let part = names::last(path);
            let next = match openat(&folder, part, FLAGS, Mode::empty()) {
                Err(Errno::NOENT) if change => {
                    let mode = 0o777 & !self.umask;
                    mkdirat(&folder, part, Mode::from_raw_mode(mode | 0o700))
                        .map_err(Obstacle::creating)?;
                    self.finals.insert(path.to_vec(), Final { mode, modified: None });
                    openat(&folder, part, FLAGS, Mode::empty())?
                }
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(Refusal::NotFolder.into()),
                result => result?,
            };
            if change {
                self.let_change(&folder, part, &next, path)?;
            }
            folder = next;
        }
        Ok(folder)
    }

    /// Gives the owner of a folder the right to change it.
    fn let_change(
        &mut self,
        folder: &OwnedFd,
        part: &[u8],
        next: &OwnedFd,
        path: &[u8],
    ) -> Result<(), Errno> {
        let found = fstat(next)?;
        let mode = found.st_mode & 0o7777;
        if mode & CHANGE == CHANGE || found.st_uid != geteuid().as_raw() {
            return Ok(());
        }
        chmodat(folder, part, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?;
        self.finals.entry(path.to_vec()).or_insert(Final { mode, modified: None });
        Ok(())
    }
}

fn is_hidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
