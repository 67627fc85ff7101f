//! Files named by users. Other crates read them only here, so that they build for targets without
//! files.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use crate::text::{self, SpecError};

/// Content of the file at `path`, at most `most` bytes, because the file may grow meanwhile.
///
/// # Errors
///
/// When the file cannot be read or held in memory.
pub fn read_within(path: &Path, most: u64) -> Result<Vec<u8>, SpecError> {
    let mut content = Vec::new();
    match File::open(path).and_then(|file| file.take(most).read_to_end(&mut content)) {
        Ok(_) => Ok(content),
        Err(error) => Err(SpecError::Unreadable { path: path.to_owned(), error }),
    }
}

/// Whether there is a file at `path`.
#[must_use]
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Length of the file at `path` in bytes; 0 if there is none.
#[must_use]
pub fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Names, without the ending, and texts of the files `*.toml` in `folder`, in the order of names.
///
/// # Errors
///
/// When the folder or a file in it cannot be read.
pub fn toml_files(folder: &Path) -> Result<Vec<(String, String)>, SpecError> {
    let unreadable = |error| SpecError::Unreadable { path: folder.to_owned(), error };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|e| e == "toml")) {
            files.push((name.to_owned(), text::read_text(&path)?));
        }
    }
    files.sort();
    Ok(files)
}
