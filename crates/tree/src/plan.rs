//! Divides a tree into packs.

use serde::{Deserialize, Serialize};

use crate::archive::{END, padded};
use crate::entry::{Entry, Kind, is_below, order, parent};
use crate::header;

/// Content of one pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Entries in the order of the archive.
    pub entries: Vec<Entry>,
}

impl Plan {
    /// Length of the archive in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.iter().map(Self::cost).fold(END, u64::saturating_add)
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of an entry in an archive.
    pub(crate) fn cost(entry: &Entry) -> u64 {
        header::len(entry).saturating_add(padded(header::stored(entry)))
    }
}

/// Divides entries into packs of up to `bytes_max` bytes, in the order of [`scan`](crate::scan).
///
/// An entry that is larger by itself gets a pack of its own. Every pack has the folders of its
/// entries, so that each can be unpacked without the others. The same entries give the same packs.
#[must_use]
pub fn plan(mut entries: Vec<Entry>, bytes_max: u64) -> Vec<Plan> {
    entries.sort_by(|a, b| order(&a.name, &b.name));
    let mut plans = Vec::new();
    let mut open = Open::default();
    // Folders of the current entry, from the top.
    let mut folders: Vec<Entry> = Vec::new();
    for entry in entries {
        let within = parent(&entry.name);
        while let Some(last) = folders.last()
            && !within.is_some_and(|within| is_below(within, &last.name))
        {
            folders.pop();
        }
        if open.len_with(&folders, &entry) > bytes_max {
            let alone = Open::default().len_with(&folders, &entry);
            if alone > bytes_max && matches!(entry.kind, Kind::File { .. }) {
                let mut own = Open::default();
                own.add(&folders, entry);
                plans.extend(own.close());
                continue;
            }
            plans.extend(std::mem::take(&mut open).close());
        }
        if entry.kind == Kind::Directory {
            open.add(&folders, entry.clone());
            folders.push(entry);
        } else {
            open.add(&folders, entry);
        }
    }
    plans.extend(open.close());
    plans
}

/// Pack that is being filled.
#[derive(Default)]
struct Open {
    entries: Vec<Entry>,
    len: u64,
    /// Folders of the last entry that the pack has, from the top.
    folders: Vec<Vec<u8>>,
}

impl Open {
    /// Folders that the pack does not have yet. Those that it has come first, because entries are
    /// in order.
    fn missing<'a>(&self, folders: &'a [Entry]) -> &'a [Entry] {
        let pairs = self.folders.iter().zip(folders);
        let present = pairs.take_while(|(name, folder)| **name == folder.name).count();
        folders.get(present..).unwrap_or_default()
    }

    fn len_with(&self, folders: &[Entry], entry: &Entry) -> u64 {
        let more = self.missing(folders).iter().chain([entry]).map(Plan::cost);
        more.fold(self.len.saturating_add(END), u64::saturating_add)
    }

    fn add(&mut self, folders: &[Entry], entry: Entry) {
        let missing = self.missing(folders).to_vec();
        self.folders.truncate(folders.len() - missing.len());
        for folder in missing {
            self.push(folder);
        }
        self.push(entry);
    }

    fn push(&mut self, entry: Entry) {
        self.len = self.len.saturating_add(Plan::cost(&entry));
        if entry.kind == Kind::Directory {
            self.folders.push(entry.name.clone());
        }
        self.entries.push(entry);
    }

    fn close(self) -> Option<Plan> {
        (!self.entries.is_empty()).then_some(Plan { entries: self.entries })
    }
}
