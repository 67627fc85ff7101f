//! Working files of a transfer, and the state from which the same command resumes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result, anyhow};
use cfdp::PutRequest;
use engine::FileName;
use serde::{Deserialize, Serialize};

use super::job::{SendFile, Wish};
use crate::sockets::transfer::Options;
use crate::state::state_home;

/// Place of the working files of one transfer.
#[derive(Debug)]
pub(crate) enum Place {
    /// State that is kept until the transfer is over.
    Kept(State),
    /// A temporary folder of this process.
    Temporary(
        #[expect(dead_code, reason = "it is removed when this is dropped")] tempfile::TempDir,
    ),
    /// The folder of the received file.
    Root,
}

impl Place {
    /// Store for a request to the peer at `to`. Only fetched files leave anything behind, and files
    /// that the same command resumes.
    pub(super) fn open(
        wish: &Wish,
        options: &Options,
        to: &str,
        resumes: bool,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Self)> {
        let temporary = || tempfile::tempdir().context("cannot make a directory for working files");
        let passing = |file: &SendFile| {
            let state = temporary()?;
            let store = of_one(&file.root.join(&file.name), state.path().join("state"), waker)?;
            Ok((store, Self::Temporary(state)))
        };
        match wish {
            Wish::Send(file) if file.put.is_some() => {
                State::of_send(file, options, to)?.open_store(waker)
            }
            Wish::Send(file) if resumes && state_home().is_ok() => {
                let state = State::of_send(file, options, to)?;
                match of_one(&state.transfer.file, state.directory.clone(), waker) {
                    // Another process sends the same file, or the state cannot be kept.
                    Err(error) if is_of_state(&error) => passing(file),
                    store => state.keep(store?),
                }
            }
            Wish::Send(file) => passing(file),
            Wish::Get { root, .. } => {
                let mut store = rt::FileStore::open(rt::StoreConfig::new(root), waker)?;
                super::sweep(&mut store, options.protocol.kind.adapter().spools())?;
                Ok((store, Self::Root))
            }
            Wish::List(_) | Wish::Delete(_) => {
                let state = temporary()?;
                let store = rt::FileStore::open(rt::StoreConfig::new(state.path()), waker)?;
                Ok((store, Self::Temporary(state)))
            }
        }
    }

    /// Folder of the state that is kept, if any is.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Kept(state) => Some(&state.directory),
            Self::Temporary(_) | Self::Root => None,
        }
    }

    /// Whether the transfer resumes one of a process that was killed.
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self, Self::Kept(state) if state.is_resumed)
    }

    /// Removes the state of a transfer that has ended.
    pub(crate) fn forget(self) {
        if let Self::Kept(state) = self
            && let Err(error) = std::fs::remove_dir_all(&state.directory)
        {
            tracing::warn!(directory = %state.directory.display(), %error, "cannot be removed");
        }
    }
}

/// Store that reads `file` alone.
fn of_one(file: &Path, state: PathBuf, waker: &rt::Waker) -> Result<rt::FileStore> {
    let (root, name) = (file.parent().unwrap_or(Path::new("")), file.file_name());
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    let access = rt::Access::ReadOne(FileName::file(name)?);
    let config = rt::StoreConfig { access, state, ..rt::StoreConfig::new(root) };
    Ok(rt::FileStore::open(config, waker)?)
}

/// Folder of one transfer: the engine's records, and the transfer they belong to.
#[derive(Debug)]
pub(crate) struct State {
    directory: PathBuf,
    transfer: Transfer,
    /// Whether an earlier process began it.
    is_resumed: bool,
}

/// Properties by which a transfer resumes an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Transfer {
    file: PathBuf,
    bytes: u64,
    modified_ns: u128,
    /// An address, or the socket of a node.
    to: String,
    request: String,
}

/// Beginning of the requests of bundles.
pub(crate) const BUNDLES: &str = "bundles";

/// Name of the file that holds the [`Transfer`].
pub(crate) const TRANSFER: &str = "transfer.json";

impl State {
    /// State of sending a file to `to`, below --state or the user's state folder.
    fn of_send(file: &SendFile, options: &Options, to: &str) -> Result<Self> {
        let path = file.root.join(&file.name);
        let request = match &file.put {
            Some(put) => described(put),
            None => format!("{} {}", options.protocol.kind.name(), file.remote),
        };
        Self::of_file(file.state.as_deref(), &path, to, request)
    }

    /// State of sending several files and folders to `to` on these terms, below `base` or the user's
    /// state folder.
    pub(crate) fn of_paths(
        base: Option<&Path>,
        paths: &[PathBuf],
        to: &str,
        request: &str,
    ) -> Result<Self> {
        let whole = |path: &PathBuf| {
            path.canonicalize().with_context(|| format!("cannot read {}", path.display()))
        };
        let paths = paths.iter().map(whole).collect::<Result<Vec<_>>>()?;
        let request = format!("{request} of {paths:?}");
        let key = format!("{to}\n{request}");
        let file = paths.into_iter().next().unwrap_or_default();
        let transfer = Transfer { file, bytes: 0, modified_ns: 0, to: to.to_owned(), request };
        Self::new(base, &key, transfer)
    }

    /// State of sending `file` to `to` on these terms, below `base` or the user's state folder.
    pub(crate) fn of_file(
        base: Option<&Path>,
        file: &Path,
        to: &str,
        request: String,
    ) -> Result<Self> {
        let found = file.metadata()?;
        let modified = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let key = format!("{}\n{to}\n{request}", file.display());
        let transfer = Transfer {
            file: file.to_owned(),
            bytes: found.len(),
            modified_ns: modified.as_nanos(),
            to: to.to_owned(),
            request,
        };
        Self::new(base, &key, transfer)
    }

    /// State in the folder of a key, below `base` or the user's state folder.
    fn new(base: Option<&Path>, key: &str, transfer: Transfer) -> Result<Self> {
        let base = base.map(Path::to_owned).map_or_else(state_home, Ok)?;
        let directory = base.join(format!("send-{:016x}", hash(key.as_bytes())));
        Ok(Self { directory, transfer, is_resumed: false })
    }

    /// Store that reads the file alone, with the records of an earlier process that sent the same.
    pub(crate) fn open_store(self, waker: &rt::Waker) -> Result<(rt::FileStore, Place)> {
        let store = of_one(&self.transfer.file, self.directory.clone(), waker)?;
        self.keep(store)
    }

    /// Store that reads packs, with the records of an earlier process that sent the same.
    pub(crate) fn open_packs(
        self,
        packs: &Arc<rt::Packs>,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Place)> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot make {}", self.directory.display()))?;
        let config = rt::StoreConfig {
            access: rt::Access::ReadPacks(Arc::clone(packs)),
            state: self.directory.clone(),
            ..rt::StoreConfig::new(&self.directory)
        };
        let store = rt::FileStore::open(config, waker)?;
        self.keep(store)
    }

    /// Keeps the store of an earlier process that sent the same, or clears it.
    fn keep(mut self, mut store: rt::FileStore) -> Result<(rt::FileStore, Place)> {
        self.is_resumed = self.is_current()?;
        if !self.is_resumed {
            store.reset().context("cannot forget an earlier transfer")?;
            self.begin()?;
        }
        Ok((store, Place::Kept(self)))
    }

    /// Whether the folder belongs to this transfer.
    fn is_current(&self) -> Result<bool> {
        match std::fs::read(self.directory.join(TRANSFER)) {
            Ok(text) => {
                let earlier: Option<Transfer> = serde_json::from_slice(&text).ok();
                Ok(earlier.as_ref() == Some(&self.transfer))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(anyhow!(error).context(self.directory.display().to_string())),
        }
    }

    /// Assigns the folder, which must have no records, to this transfer.
    fn begin(&mut self) -> Result<()> {
        let path = self.directory.join(TRANSFER);
        let text = serde_json::to_vec_pretty(&self.transfer)?;
        // The next run ignores a torn file and starts over.
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Whether a store cannot keep the state of a transfer.
fn is_of_state(error: &anyhow::Error) -> bool {
    use rt::StoreError::{InUse, State};
    matches!(error.downcast_ref(), Some(InUse { .. } | State { .. }))
}

/// Terms of a request; a request with other terms does not resume the transfer.
pub(super) fn described(put: &PutRequest) -> String {
    let way = (put.destination, &put.destination_name, put.mode, put.closure, put.unbounded);
    let along = (&put.messages, &put.filestore_requests, &put.fault_handlers);
    format!("{way:?} {along:?}")
}

/// FNV-1a, 64 bits: a short name, not a secret. After a collision a transfer restarts.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_another_transfer() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"one").unwrap();
        let to = "127.0.0.1:1";
        let put = PutRequest { destination_name: "there".into(), ..PutRequest::default() };
        let open = |put: &PutRequest| {
            State::of_file(Some(place.path()), &file, to, described(put)).unwrap()
        };
        let mut state = open(&put);
        std::fs::create_dir(&state.directory).unwrap();
        assert!(!state.is_current().unwrap());
        state.begin().unwrap();
        assert!(open(&put).is_current().unwrap());
        std::fs::write(&file, b"other").unwrap();
        assert_eq!(open(&put).directory, state.directory);
        assert!(!open(&put).is_current().unwrap());
        let other = PutRequest { destination_name: "elsewhere".into(), ..put };
        assert_ne!(open(&other).directory, state.directory);
        let directory = state.directory.clone();
        Place::Kept(state).forget();
        assert!(!directory.exists());
    }
}
