//! Scratch folders that end with their process, even if it is killed.
//!
//! They are temporary folders, locked by the process that made them. The next process removes
//! those without a lock.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tempfile::{Builder, TempDir};

/// Prefix of their names.
const PREFIX: &str = "slowlight-scratch-";

/// A scratch folder of this process, removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// Lock of the folder; not inherited by programs.
    _lock: File,
}

impl Scratch {
    /// Creates a folder.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&env::temp_dir())
    }

    fn new_in(base: &Path) -> io::Result<Self> {
        loop {
            let folder = Builder::new().prefix(PREFIX).tempdir_in(base)?;
            // Before it was locked, another process may have removed it as abandoned.
            let Some(lock) = lock(folder.path())? else { continue };
            return Ok(Self { folder, _lock: lock });
        }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder; `None` if another process holds the lock or the folder no longer exists.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(folder.is_dir().then_some(file))
}

/// Removes this user's folders of dead processes.
///
/// # Errors
///
/// The system refused.
pub fn remove_dead() -> io::Result<()> {
    remove_dead_in(&env::temp_dir(), fs::metadata("/proc/self")?.uid())
}

fn remove_dead_in(base: &Path, user: u32) -> io::Result<()> {
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Metadata of the entry itself, not of a link's target: anybody can make a link.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir()
            && found.uid() == user
            && let Some(_lock) = lock(&entry.path())?
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let user = fs::metadata(base.path()).unwrap().uid();
        let left = || fs::read_dir(base.path()).unwrap().count();
        let living = Scratch::new_in(base.path()).unwrap();
        fs::write(living.path().join("file"), "of the living").unwrap();
        // A killed process's folder: nobody holds its lock.
        let dead = base.path().join(format!("{PREFIX}dead"));
        fs::create_dir_all(dead.join("in")).unwrap();
        fs::write(dead.join("in/file"), "of the dead").unwrap();
        for other in ["another", "slowlight-scratch"] {
            fs::create_dir(base.path().join(other)).unwrap();
        }
        std::os::unix::fs::symlink(base.path(), base.path().join(format!("{PREFIX}link"))).unwrap();
        remove_dead_in(base.path(), user + 1).unwrap();
        assert_eq!(left(), 5, "those of others stay");
        remove_dead_in(base.path(), user).unwrap();
        assert!(!dead.exists() && living.path().join("file").exists());
        assert_eq!(left(), 4);
        drop(living);
        assert_eq!(left(), 3);
    }
}
