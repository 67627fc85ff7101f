//! Packs that a program sends: files that exist only while they are read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::fs::Dir;
use crossbeam_channel::Sender;
use engine::{EffectError, FileName};
use tree::{Existing, Pack, ReadError, Refusal, UnpackError, Unpacked};

use super::system::reason;

/// Packs by their names, to which others may be added while a store reads them.
#[derive(Debug, Default)]
pub struct Packs(Mutex<BTreeMap<FileName, Arc<Pack>>>);

impl Packs {
    /// Adds a pack.
    pub fn add(&self, name: FileName, pack: Pack) {
        self.lock().insert(name, Arc::new(pack));
    }

    /// Removes a pack. Engines that have it open can still read it.
    pub fn remove(&self, name: &FileName) {
        self.lock().remove(name);
    }

    pub(super) fn get(&self, name: &FileName) -> Option<Arc<Pack>> {
        self.lock().get(name).cloned()
    }

    /// Each change is one operation, so a panic elsewhere leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileName, Arc<Pack>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts the error of a pack.
pub(super) fn read_error(error: &ReadError) -> EffectError {
    match error {
        ReadError::Changed(_) => EffectError::Changed,
        ReadError::Io { source, .. } => reason(source),
    }
}

/// Unpacking of received packs.
#[derive(Clone, Debug)]
pub struct Unpack {
    /// Treatment of files that exist.
    pub existing: Existing,
    /// Whether packs are stored as other files are.
    pub keeps_packs: bool,
    /// Receiver of a report about each pack.
    pub reports: Sender<Unpacked>,
}

/// Unpacks packs below the root of a store.
#[derive(Debug)]
pub(super) struct Unpacker {
    tree: tree::Unpacker,
    pub(super) keeps_packs: bool,
    reports: Sender<Unpacked>,
}

impl Unpacker {
    pub(super) fn new(root: Dir, staging: Dir, unpack: &Unpack) -> io::Result<Self> {
        let umask = tree::process_umask()?;
        let tree = tree::Unpacker { root, staging, existing: unpack.existing, umask };
        Ok(Self { tree, keeps_packs: unpack.keeps_packs, reports: unpack.reports.clone() })
    }

    /// Treatment of files that exist.
    pub(super) fn existing(&self) -> Existing {
        self.tree.existing
    }

    /// Permissions that no file gets.
    pub(super) fn umask(&self) -> u32 {
        self.tree.umask
    }

    /// Unpacks an archive and reports what became of its entries.
    ///
    /// # Errors
    ///
    /// An entry could not be installed, for the first reason that there was.
    pub(super) fn unpack(&self, archive: &File) -> Result<(), EffectError> {
        let unpacked = self.tree.unpack(archive).map_err(|error| unpack_error(&error))?;
        let refused = unpacked.refused.first().map(|refused| refusal(&refused.reason));
        // A program that ends takes no reports.
        let _ = self.reports.send(unpacked);
        refused.map_or(Ok(()), Err)
    }
}

/// Converts the reason for which an entry was not installed; the report has its own words for it.
fn refusal(reason: &Refusal) -> EffectError {
    match reason {
        Refusal::TooLong => EffectError::NameTooLong,
        Refusal::NotFolder | Refusal::Folder | Refusal::File | Refusal::Exists => {
            EffectError::Exists
        }
        Refusal::TooLarge => EffectError::NoSpace,
        Refusal::Absolute
        | Refusal::Parent
        | Refusal::Nul
        | Refusal::Empty
        | Refusal::Reserved
        | Refusal::Target
        | Refusal::Kind(_)
        | Refusal::Unsupported => EffectError::NotAllowed,
    }
}

fn unpack_error(error: &UnpackError) -> EffectError {
    match error {
        UnpackError::Archive { .. } => EffectError::Failed(error.to_string()),
        UnpackError::Io { source, .. } => {
            tracing::warn!("{error}");
            reason(source)
        }
    }
}
