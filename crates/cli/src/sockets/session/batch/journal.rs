//! Journal of a batch: its packs, and which of them were delivered. The same command resumes it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tree::{Entry, Kind, Plan};

/// Name of the file with the packs.
const PACKS: &str = "packs.json";
/// Name of the file with the numbers of delivered packs, a line each.
const DELIVERED: &str = "delivered";

/// Packs of a batch, as they are stored.
#[derive(Debug, Serialize, Deserialize)]
struct Packs {
    /// Number of the batch, which makes the names of its packs unique at the receiver.
    set: u64,
    /// Number of the next pack.
    next: u32,
    packs: BTreeMap<u32, Plan>,
}

/// Journal of a batch.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    stored: Packs,
    delivered: File,
    /// Numbers of the packs that were not delivered yet.
    waiting: Vec<u32>,
    /// Bytes of a pack, except for one with a large file.
    pack_bytes: u64,
}

/// What earlier runs of a command delivered of its files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Earlier {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Earlier {
    fn count(&mut self, entry: &Entry) {
        if let Kind::File { len, .. } = entry.kind {
            self.files += 1;
            self.bytes += len;
        }
    }
}

impl Journal {
    /// Opens the journal in `folder` for these entries. Those that earlier runs delivered, and that
    /// have not changed since, are left out; packs that were under way are kept, if their files are
    /// the same.
    pub(crate) fn open(
        folder: &Path,
        entries: Vec<Entry>,
        pack_bytes: u64,
        set: u64,
    ) -> Result<(Self, Earlier)> {
        let earlier: Option<Packs> =
            read(&folder.join(PACKS))?.and_then(|text| serde_json::from_slice(&text).ok());
        let path = folder.join(DELIVERED);
        let mut delivered = read(&path)?.unwrap_or_default();
        // Without its end, a number may be another one.
        delivered
            .truncate(delivered.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        if earlier.is_none() {
            delivered.clear();
        }
        let mut stored = earlier.unwrap_or(Packs { set, next: 1, packs: BTreeMap::new() });
        let numbers: Vec<u32> = String::from_utf8_lossy(&delivered)
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        let (planned, counted) = {
            let now: BTreeMap<&[u8], &Entry> =
                entries.iter().map(|entry| (entry.name.as_slice(), entry)).collect();
            let is_same = |entry: &Entry| now.get(entry.name.as_slice()) == Some(&entry);
            let is_current =
                |plan: &Plan| plan.entries.iter().filter(|it| !is_folder(it)).all(is_same);
            stored.packs.retain(|number, plan| numbers.contains(number) || is_current(plan));
            let mut counted = Earlier::default();
            let mut planned = BTreeMap::new();
            for (number, plan) in &stored.packs {
                for entry in plan.entries.iter().filter(|entry| is_same(entry)) {
                    if numbers.contains(number) {
                        counted.count(entry);
                    }
                    planned.insert(entry.name.clone(), ());
                }
            }
            (planned, counted)
        };
        let is_new = |entry: &Entry| !planned.contains_key(&entry.name);
        let adds_files = entries.iter().any(|entry| is_new(entry) && !is_folder(entry));
        let rest: Vec<Entry> = entries
            .into_iter()
            // A file that is added to a folder changes the folder's time.
            .filter(|entry| is_new(entry) || adds_files && is_folder(entry))
            .collect();
        let waiting = stored.packs.keys().filter(|number| !numbers.contains(number)).copied();
        let waiting = waiting.collect();
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.set_len(delivered.len() as u64)?;
        let mut journal =
            Self { folder: folder.to_owned(), waiting, stored, delivered: file, pack_bytes };
        journal.add(rest)?;
        Ok((journal, counted))
    }

    /// Plans packs of these entries, and stores the plan.
    fn add(&mut self, entries: Vec<Entry>) -> Result<()> {
        for plan in tree::plan(entries, self.pack_bytes) {
            let number = self.stored.next;
            self.stored.next += 1;
            self.stored.packs.insert(number, plan);
            self.waiting.push(number);
        }
        let path = self.folder.join(PACKS);
        let new = path.with_extension("json.new");
        let write = || -> io::Result<()> {
            let mut file = io::BufWriter::new(File::create(&new)?);
            serde_json::to_writer(&mut file, &self.stored)?;
            file.into_inner()?.sync_all()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Number of the batch.
    pub(crate) fn set(&self) -> u64 {
        self.stored.set
    }

    /// Packs that were not delivered yet.
    pub(crate) fn waiting(&self) -> &[u32] {
        &self.waiting
    }

    /// Entries of a pack.
    pub(crate) fn plan(&self, number: u32) -> Option<&Plan> {
        self.stored.packs.get(&number)
    }

    /// Notes that a pack was delivered.
    pub(crate) fn deliver(&mut self, number: u32) -> Result<()> {
        self.waiting.retain(|waiting| *waiting != number);
        writeln!(self.delivered, "{number}")
            .and_then(|()| self.delivered.sync_data())
            .context("cannot note what was delivered")
    }

    /// Replaces a pack whose files changed by packs of these entries; returns their numbers.
    pub(crate) fn replace(&mut self, number: u32, entries: Vec<Entry>) -> Result<Vec<u32>> {
        self.waiting.retain(|waiting| *waiting != number);
        self.stored.packs.remove(&number);
        let before = self.waiting.len();
        self.add(entries)?;
        Ok(self.waiting[before..].to_vec())
    }
}

fn is_folder(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Directory)
}

/// Content of a file, if there is one.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
