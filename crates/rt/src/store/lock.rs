//! Lock of a working directory by one process.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use cap_std::fs::{Dir, File, OpenOptions};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StoreError;

/// The lock on a working directory, released when it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    /// The kernel ties the lock to the open file.
    _file: File,
}

impl Lock {
    /// Takes the lock, or returns an error that names its owner. `path` is the directory's path for
    /// the message.
    pub(super) fn take(directory: &Dir, path: &Path) -> Result<Self, StoreError> {
        let state_error = |error| StoreError::State { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        let mut file = directory.open_with("lock", options).map_err(state_error)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let known = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                let owner = if known {
                    format!("process {}", pid.trim())
                } else {
                    "another process".to_owned()
                };
                return Err(StoreError::InUse { path: path.to_owned(), owner });
            }
            Err(error) => return Err(state_error(error.into())),
        }
        let mut sign = || -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        sign().map_err(state_error)?;
        Ok(Self { _file: file })
    }
}
