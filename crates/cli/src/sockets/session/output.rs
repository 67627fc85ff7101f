//! Received files to standard output, one after another.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use crossbeam_channel::{Receiver, Sender};
use tempfile::TempDir;

/// Writer of received files, in a thread of its own: the reader may be slow.
pub(super) struct Output {
    /// Folder of the files that wait.
    folder: TempDir,
    number: u64,
    files: Sender<PathBuf>,
    thread: JoinHandle<io::Result<()>>,
}

impl Output {
    pub(super) fn start(root: &Path) -> Result<Self> {
        // On the same file system, so that files can be renamed to it.
        let folder = tempfile::Builder::new().prefix(".").tempdir_in(root)?;
        let (files, waiting) = crossbeam_channel::unbounded();
        let thread =
            thread::Builder::new().name("output".to_owned()).spawn(move || write(&waiting))?;
        Ok(Self { folder, number: 0, files, thread })
    }

    /// Takes a received file, before another one of its name replaces it.
    pub(super) fn take(&mut self, file: &Path) -> Result<()> {
        self.number += 1;
        let to = self.folder.path().join(self.number.to_string());
        fs::rename(file, &to).with_context(|| file.display().to_string())?;
        self.files.send(to).map_err(|_| anyhow!("standard output has been closed"))
    }

    /// Whether nothing more can be written.
    pub(super) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until all files are written.
    pub(super) fn end(self) -> Result<()> {
        drop(self.files);
        let written = self.thread.join().map_err(|_| anyhow!("the thread panicked"))?;
        written.context("standard output")
    }
}

fn write(files: &Receiver<PathBuf>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for path in files {
        io::copy(&mut File::open(&path)?, &mut out)?;
        out.flush()?;
        fs::remove_file(path)?;
    }
    Ok(())
}
