//! Small records of a command's progress. Writes are atomic: after a crash there is the old record
//! or the new one.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a record, if it exists. Ignores records of other versions.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Writes a record durably.
pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let new = path.with_extension("new");
    let written = || -> Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        sync_folder_of(path).map_err(Into::into)
    };
    written().with_context(|| path.display().to_string())
}

/// Syncs the folder of `path`, so that its names survive a crash.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
