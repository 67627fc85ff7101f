//! Where an unfinished transfer is remembered, so that the same command goes on with it.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result, anyhow};
use proto::cfdp::PutRequest;
use serde::{Deserialize, Serialize};

/// The directory of one transfer: the engine's records, and what they are about.
#[derive(Debug)]
pub(crate) struct State {
    directory: PathBuf,
    transfer: Transfer,
}

/// What makes a transfer the same as an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Transfer {
    file: PathBuf,
    bytes: u64,
    modified_ns: u128,
    /// An address, or the socket of a node.
    to: String,
    request: String,
}

/// The name of the file that holds the [`Transfer`].
const TRANSFER: &str = "transfer.json";

impl State {
    /// The state of sending `file` to `to` as `put` says, below `base` or the user's directory
    /// for such things.
    pub(crate) fn open(
        base: Option<&Path>,
        file: &Path,
        to: &str,
        put: &PutRequest,
    ) -> Result<Self> {
        let base = match base {
            Some(base) => base.to_owned(),
            None => state_home()?,
        };
        let found = file.metadata()?;
        let modified = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let transfer = Transfer {
            file: file.to_owned(),
            bytes: found.len(),
            modified_ns: modified.as_nanos(),
            to: to.to_owned(),
            request: described(put),
        };
        let key = format!("{}\n{to}\n{}", file.display(), transfer.request);
        let directory = base.join(format!("send-{:016x}", hash(key.as_bytes())));
        Ok(Self { directory, transfer })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether what is in the directory is about this very transfer.
    pub(crate) fn is_current(&self) -> Result<bool> {
        match std::fs::read(self.directory.join(TRANSFER)) {
            Ok(text) => {
                let earlier: Option<Transfer> = serde_json::from_slice(&text).ok();
                Ok(earlier.as_ref() == Some(&self.transfer))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(anyhow!(error).context(self.directory.display().to_string())),
        }
    }

    /// Makes the directory one about this transfer; it must be empty of records.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let path = self.directory.join(TRANSFER);
        let text = serde_json::to_vec_pretty(&self.transfer)?;
        // A torn file is about no transfer, so the next run begins anew.
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets the transfer.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "cannot be removed");
        }
    }
}

/// What is asked for, so that a request that differs is not taken for an interrupted one.
fn described(put: &PutRequest) -> String {
    let way = (put.destination, &put.destination_name, put.mode, put.closure, put.unbounded);
    let along = (&put.messages, &put.filestore_requests, &put.fault_handlers);
    format!("{way:?} {along:?}")
}

pub(crate) fn state_home() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local/state"));
    set("XDG_STATE_HOME")
        .or_else(home)
        .map(|base| base.join("slowlight"))
        .ok_or_else(|| anyhow!("there is no home directory for the state; give one with --state"))
}

/// FNV-1a, 64 bits: a short name, not a secret. Different transfers of one name would start anew.
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
        let open = |put: &PutRequest| State::open(Some(place.path()), &file, to, put).unwrap();
        let mut state = open(&put);
        std::fs::create_dir(state.directory()).unwrap();
        assert!(!state.is_current().unwrap());
        state.begin().unwrap();
        assert!(open(&put).is_current().unwrap());
        std::fs::write(&file, b"other").unwrap();
        assert_eq!(open(&put).directory(), state.directory());
        assert!(!open(&put).is_current().unwrap());
        let other = PutRequest { destination_name: "elsewhere".into(), ..put };
        assert_ne!(open(&other).directory(), state.directory());
        state.remove();
        assert!(!state.directory().exists());
    }
}
