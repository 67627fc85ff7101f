//! Facts about peers, kept from one transfer to the next in the state folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::state::state_home;

/// Number of peers remembered.
pub(super) const PEERS_MAX: usize = 256;

/// Fact about a peer.
pub(super) trait Fact: Serialize + DeserializeOwned {
    /// Name of the file of such facts.
    const FILE: &str;

    /// Time at which it was learnt, in seconds since 1970.
    fn learnt_at(&self) -> u64;
}

/// Facts by address of the peer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Remembered<T>(BTreeMap<String, T>);

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl<T: Fact> Remembered<T> {
    pub(super) fn read(base: &Path) -> Self {
        // A missing or torn file only costs time.
        let text = std::fs::read(base.join(T::FILE)).ok();
        let facts = text.and_then(|text| serde_json::from_slice(&text).ok());
        Self(facts.unwrap_or_default())
    }

    pub(super) fn write(&self, base: &Path) -> Result<()> {
        std::fs::create_dir_all(base)?;
        let path = base.join(T::FILE);
        let new = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        Ok(std::fs::rename(new, path)?)
    }

    pub(super) fn about(&self, peer: &str) -> Option<&T> {
        self.0.get(peer)
    }

    /// Number of peers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn note(&mut self, peer: &str, fact: T) {
        self.0.insert(peer.to_owned(), fact);
        while self.0.len() > PEERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, fact)| fact.learnt_at());
            let Some(oldest) = oldest.map(|(peer, _)| peer.clone()) else { return };
            self.0.remove(&oldest);
        }
    }
}

/// Keeps a fact about a peer for the next transfer.
pub(super) fn keep<T: Fact>(peer: &str, fact: T) {
    let Ok(base) = state_home() else { return };
    let mut facts = Remembered::read(&base);
    facts.note(peer, fact);
    if let Err(error) = facts.write(&base) {
        tracing::info!(%error, "{} cannot be written", T::FILE);
    }
}

/// Facts about all peers from earlier transfers.
pub(super) fn recall<T: Fact>() -> Option<Remembered<T>> {
    Some(Remembered::read(&state_home().ok()?))
}
