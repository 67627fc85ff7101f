//! Errors of the file system, and directories whose names survive a crash.

use std::io;

use cap_std::fs::Dir;
use engine::EffectError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Syncs a directory, so that its names survive a crash.
pub(super) fn sync_directory(directory: &Dir) -> io::Result<()> {
    // The handle may have been opened with O_PATH, which cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    rustix::fs::fsync(readable)?;
    Ok(())
}

/// Converts an error of the file system.
pub(super) fn reason(error: &io::Error) -> EffectError {
    match Errno::from_io_error(error) {
        // A file in place of a directory: the requested name does not exist.
        Some(Errno::NOENT | Errno::NOTDIR) => EffectError::NotFound,
        Some(Errno::EXIST) => EffectError::Exists,
        Some(Errno::ISDIR) => EffectError::WrongKind,
        Some(Errno::NOTEMPTY) => EffectError::NotEmpty,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::LOOP | Errno::XDEV) => {
            EffectError::NotAllowed
        }
        // A name that the file system has no characters for.
        Some(Errno::ILSEQ) => EffectError::NotAllowed,
        Some(Errno::NAMETOOLONG) => EffectError::NameTooLong,
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => EffectError::NoSpace,
        // cap-std refuses a path that leaves its area with an error without a system code.
        _ if error.kind() == io::ErrorKind::PermissionDenied => EffectError::NotAllowed,
        _ => EffectError::Failed(error.to_string()),
    }
}
