//! Files that hold secrets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Warns about a key file that users other than its owner may read.
pub fn warn_of_readers(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        tracing::warn!("others may read the key {}; give it the mode 600", path.display());
    }
}
