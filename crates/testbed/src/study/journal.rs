//! Journal of a study: completed runs in a file that survives the end of the process.
//!
//! Each line is one run as JSON, written in one call when the run has ended. A line left
//! incomplete by a kill or a power failure is run again; an unreadable line in the middle is an
//! error. A run is identified by a digest of its whole world with its seed. Results of unchanged
//! worlds stay valid when a study is extended, and changed worlds are run again.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::metrics::TransferMetrics;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Digest of its world, including its seed.
    pub world: String,
    /// Reason for its end, as [`lab::run::Run::ended`].
    pub ended: String,
    /// Virtual time at the end, in seconds.
    pub time_s: f64,
    /// Events until then.
    pub events: u64,
    /// Packets lost by links, for any cause.
    pub lost: u64,
    /// Whether the emulator was in time; `None` for simulated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Results of its transfers.
    pub transfers: Vec<TransferMetrics>,
}

/// Name of the file.
pub(super) const JOURNAL: &str = "runs.jsonl";

/// Results of one edition of a study, as far as they exist.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    written: Mutex<Written>,
    /// Results present when it was opened, by world.
    known: HashMap<String, Arc<Done>>,
}

#[derive(Debug)]
struct Written {
    file: File,
    synced: Instant,
}

/// Reason why results cannot be kept or read.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The system refuses.
    #[error("cannot write {}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// Another process writes there.
    #[error("{} is in use by another run; wait for it, or take another folder", path.display())]
    InUse {
        /// File.
        path: PathBuf,
    },
    /// A line is no result.
    #[error(
        "{}, line {line}: no result of a run ({why}); remove the line to have that run again",
        path.display()
    )]
    Damaged {
        /// File.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Fault.
        why: String,
    },
    /// Another version wrote it, whose results may differ.
    #[error(
        "{} is of version {found}, and this is {}; results of two versions are not mixed: start over, or take \
         another folder",
        path.display(), VERSION
    )]
    Version {
        /// File.
        path: PathBuf,
        /// Version that wrote it.
        found: String,
    },
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// First line.
#[derive(Serialize, Deserialize)]
struct Head {
    slowlight: String,
}

/// Interval between syncs: the results that a power failure may cost.
const SYNC_EVERY: Duration = Duration::from_secs(5);

impl Journal {
    /// Opens the results in `folder`, which is created if missing, and locks them.
    ///
    /// # Errors
    ///
    /// Another process writes there, or the file cannot be read.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(JOURNAL);
        let io = |error| JournalError::Io { path: path.clone(), error };
        fs::create_dir_all(folder).map_err(io)?;
        let mut options = File::options();
        let options = options.read(true).append(true).create(true);
        let mut file = options.open(&path).map_err(io)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse { path: path.clone() },
            TryLockError::Error(error) => io(error),
        })?;
        let (known, whole) = read(&file, &path)?;
        file.set_len(whole).map_err(io)?;
        if whole == 0 {
            let head = Head { slowlight: VERSION.to_owned() };
            write_line(&mut file, &head).map_err(io)?;
        }
        let written = Mutex::new(Written { file, synced: Instant::now() });
        Ok(Self { path, written, known })
    }

    /// Whether it had no results when it was opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the number of runs when it was opened.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the result of a world, if it was present.
    #[must_use]
    pub fn get(&self, world: &str) -> Option<Arc<Done>> {
        self.known.get(world).cloned()
    }

    /// Adds a run. It survives the end of the process once this returns.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn add(&self, done: &Done) -> Result<(), JournalError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut add = || {
            write_line(&mut written.file, done)?;
            if written.synced.elapsed() >= SYNC_EVERY {
                written.file.sync_data()?;
                written.synced = Instant::now();
            }
            Ok(())
        };
        add().map_err(|error| JournalError::Io { path: self.path.clone(), error })
    }
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Reads results, and the number of bytes in complete lines.
fn read(mut file: &File, path: &Path) -> Result<(HashMap<String, Arc<Done>>, u64), JournalError> {
    let io = |error| JournalError::Io { path: path.to_owned(), error };
    file.rewind().map_err(io)?;
    let mut lines = BufReader::new(file);
    let mut known = HashMap::new();
    let (mut whole, mut text) = (0, Vec::new());
    for line in 1.. {
        text.clear();
        let len = lines.read_until(b'\n', &mut text).map_err(io)?;
        if text.last() != Some(&b'\n') {
            break;
        }
        let damaged = |error: serde_json::Error| JournalError::Damaged {
            path: path.to_owned(),
            line,
            why: error.to_string(),
        };
        if line == 1 {
            let Head { slowlight } = serde_json::from_slice(&text).map_err(damaged)?;
            if slowlight != VERSION {
                return Err(JournalError::Version { path: path.to_owned(), found: slowlight });
            }
        } else {
            let done: Done = serde_json::from_slice(&text).map_err(damaged)?;
            known.insert(done.world.clone(), Arc::new(done));
        }
        whole += len as u64;
    }
    Ok((known, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(world: &str) -> Done {
        Done {
            world: world.to_owned(),
            ended: "idle".to_owned(),
            time_s: 0.1 + 0.2,
            events: 7,
            lost: 0,
            trusted: None,
            transfers: Vec::new(),
        }
    }

    #[test]
    fn journal_entries_survive_but_torn_lines_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        assert!(journal.is_empty());
        journal.add(&done("a")).unwrap();
        journal.add(&done("b")).unwrap();
        let other = Journal::open(folder.path()).unwrap_err();
        assert!(matches!(other, JournalError::InUse { .. }), "{other}");
        drop(journal);
        let path = folder.path().join("runs.jsonl");
        let text = fs::read(&path).unwrap();
        for cut in 0..=text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            let journal = Journal::open(folder.path()).unwrap();
            let lines = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.len(), lines.saturating_sub(1));
            journal.add(&done("c")).unwrap();
            drop(journal);
            let journal = Journal::open(folder.path()).unwrap();
            assert_eq!(journal.get("c").as_deref(), Some(&done("c")));
        }
    }

    #[test]
    fn damage_and_other_versions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let head = format!("{{\"slowlight\":\"{VERSION}\"}}\n");
        fs::write(&path, format!("{head}{{}}\n")).unwrap();
        let text = Journal::open(folder.path()).unwrap_err().to_string();
        assert!(text.contains("line 2") && text.contains("missing field `world`"), "{text}");
        fs::write(&path, "{\"slowlight\":\"0.0.1\"}\n").unwrap();
        let text = Journal::open(folder.path()).unwrap_err().to_string();
        assert!(text.contains("version 0.0.1"), "{text}");
    }
}
