//! Journal of a batch: its packs, and which of them were delivered. The same command resumes it.

use std::collections::{BTreeMap, BTreeSet};
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
/// Name of the file with the numbers of packs of which a part was perhaps sent, a line each.
const STARTED: &str = "started";

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
    started: Started,
    /// Numbers of the packs that were not delivered yet.
    waiting: Vec<u32>,
    /// Bytes of a pack, except for one with a large file.
    pack_bytes: u64,
    /// Whether an earlier run began the batch.
    pub(crate) is_resumed: bool,
    /// Files that earlier runs delivered, and that have not changed since.
    pub(crate) earlier: Earlier,
}

/// Files that earlier runs of a command delivered.
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
    ) -> Result<Self> {
        let (mut journal, rest) = Self::resume(folder, entries, pack_bytes, set)?;
        journal.add(rest)?;
        Ok(journal)
    }

    /// Opens the journal as [`Journal::open`] does; returns the entries that are in none of its
    /// packs.
    pub(crate) fn resume(
        folder: &Path,
        entries: Vec<Entry>,
        pack_bytes: u64,
        set: u64,
    ) -> Result<(Self, Vec<Entry>)> {
        let earlier = packs(folder)?;
        let path = folder.join(DELIVERED);
        let mut delivered = whole_lines(&path)?;
        if earlier.is_none() {
            delivered.clear();
        }
        let is_resumed = earlier.is_some();
        let mut stored = earlier.unwrap_or(Packs { set, next: 1, packs: BTreeMap::new() });
        let numbers = numbers(&delivered);
        // A number that was noted is not used again.
        stored.next = numbers.iter().map(|number| number + 1).fold(stored.next, u32::max);
        let (planned, earlier) = {
            let now: BTreeMap<&[u8], &Entry> =
                entries.iter().map(|entry| (entry.name.as_slice(), entry)).collect();
            let is_same = |entry: &Entry| now.get(entry.name.as_slice()) == Some(&entry);
            // The latest pack decides what the receiver has, also one that was not confirmed.
            let mut latest = BTreeMap::new();
            stored.packs.retain(|number, plan| {
                let mut files = plan.entries.iter().filter(|entry| !is_folder(entry));
                let is_kept = numbers.contains(number) || files.all(is_same);
                for entry in &plan.entries {
                    latest.insert(entry.name.clone(), (*number, is_kept && is_same(entry)));
                }
                is_kept
            });
            latest.retain(|_, (_, is_current)| *is_current);
            let mut earlier = Earlier::default();
            for entry in &entries {
                if latest.get(&entry.name).is_some_and(|(number, _)| numbers.contains(number)) {
                    earlier.count(entry);
                }
            }
            (latest, earlier)
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
        let file = append_to(&path, &delivered)?;
        let started = Started::open(folder, is_resumed)?;
        let journal = Self {
            folder: folder.to_owned(),
            waiting,
            stored,
            delivered: file,
            started,
            pack_bytes,
            is_resumed,
            earlier,
        };
        Ok((journal, rest))
    }

    /// Forgets which packs earlier runs delivered, if their receiver says itself what it has.
    pub(crate) fn forget_delivered(folder: &Path) -> Result<()> {
        let Some(mut stored) = packs(folder)? else { return Ok(()) };
        for number in numbers(&whole_lines(&folder.join(DELIVERED))?) {
            stored.packs.remove(&number);
            stored.next = stored.next.max(number + 1);
        }
        store(folder, &stored)?;
        fs::write(folder.join(DELIVERED), b"").context("cannot forget what was delivered")
    }

    /// Plans packs of these entries, and stores the plan. Returns their numbers.
    pub(crate) fn add(&mut self, entries: Vec<Entry>) -> Result<Vec<u32>> {
        let before = self.waiting.len();
        for plan in tree::plan(entries, self.pack_bytes) {
            let number = self.stored.next;
            self.stored.next += 1;
            self.stored.packs.insert(number, plan);
            self.waiting.push(number);
        }
        store(&self.folder, &self.stored)?;
        if self.waiting.len() == self.stored.packs.len() {
            // No stored pack was delivered.
            self.delivered.set_len(0).context("cannot forget what was delivered")?;
        }
        Ok(self.waiting[before..].to_vec())
    }

    /// Number of the batch.
    pub(crate) fn batch_number(&self) -> u64 {
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

    /// Notes that a pack is being sent.
    pub(crate) fn start(&mut self, number: u32) -> Result<()> {
        if self.started.numbers.insert(number) {
            // After a crash of the machine it only costs time that a number is lost.
            let line = format!("{number}\n");
            self.started
                .file
                .write_all(line.as_bytes())
                .context("cannot note what is being sent")?;
        }
        Ok(())
    }

    /// Whether a part of a pack was perhaps sent before.
    pub(crate) fn is_started(&self, number: u32) -> bool {
        self.started.numbers.contains(&number)
    }

    /// Notes that a pack was delivered.
    pub(crate) fn deliver(&mut self, number: u32) -> Result<()> {
        self.waiting.retain(|waiting| *waiting != number);
        // In one piece: a part would be another number.
        self.delivered
            .write_all(format!("{number}\n").as_bytes())
            .and_then(|()| self.delivered.sync_data())
            .context("cannot note what was delivered")
    }

    /// Replaces a pack whose files changed by packs of these entries; returns their numbers.
    pub(crate) fn replace(&mut self, number: u32, entries: Vec<Entry>) -> Result<Vec<u32>> {
        self.remove(number);
        self.add(entries)
    }

    /// Removes a pack from the next plan that is stored.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Plan> {
        self.waiting.retain(|waiting| *waiting != number);
        self.stored.packs.remove(&number)
    }

    /// Folders of the batch that contain one of these entries.
    pub(crate) fn folders_above(&self, entries: &[Entry]) -> Vec<Entry> {
        let above: BTreeSet<&[u8]> =
            entries.iter().flat_map(|entry| tree::folders_above(&entry.name)).collect();
        let all = self.stored.packs.values().flat_map(|plan| &plan.entries);
        let folders = all.filter(|entry| entry.kind == Kind::Directory);
        folders.filter(|entry| above.contains(&entry.name[..])).cloned().collect()
    }

    /// Packs that were delivered.
    pub(crate) fn delivered(&self) -> Vec<u32> {
        let is_delivered = |number: &u32| !self.waiting.contains(number);
        self.stored.packs.keys().copied().filter(is_delivered).collect()
    }
}

/// Numbers of packs of which a part was perhaps sent.
#[derive(Debug)]
struct Started {
    file: File,
    numbers: BTreeSet<u32>,
}

impl Started {
    /// Opens the file in `folder`. Its numbers count if an earlier run began the same batch.
    fn open(folder: &Path, is_resumed: bool) -> Result<Self> {
        let path = folder.join(STARTED);
        let lines = if is_resumed { whole_lines(&path)? } else { Vec::new() };
        Ok(Self { file: append_to(&path, &lines)?, numbers: numbers(&lines) })
    }
}

/// Opens a file of which these lines stay, to append others.
fn append_to(path: &Path, lines: &[u8]) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    file.set_len(lines.len() as u64)?;
    Ok(file)
}

fn is_folder(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Directory)
}

/// Packs of an earlier run, if there was one.
fn packs(folder: &Path) -> Result<Option<Packs>> {
    Ok(read(&folder.join(PACKS))?.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Stores packs in place of those of an earlier run.
fn store(folder: &Path, packs: &Packs) -> Result<()> {
    let path = folder.join(PACKS);
    let new = path.with_extension("json.new");
    let write = || -> io::Result<()> {
        let mut file = io::BufWriter::new(File::create(&new)?);
        serde_json::to_writer(&mut file, packs)?;
        file.into_inner()?.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Whole lines of a file with the numbers of packs: without its end, a number may be another one.
fn whole_lines(path: &Path) -> Result<Vec<u8>> {
    let mut lines = read(path)?.unwrap_or_default();
    lines.truncate(lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    Ok(lines)
}

fn numbers(lines: &[u8]) -> BTreeSet<u32> {
    String::from_utf8_lossy(lines).lines().filter_map(|line| line.parse().ok()).collect()
}

/// Content of a file, if there is one.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Entries of a folder with these files.
    fn entries(folder: &Path, files: &[(&str, &str)]) -> Vec<Entry> {
        fs::create_dir_all(folder).unwrap();
        for (name, content) in files {
            fs::write(folder.join(name), content).unwrap();
            let file = File::options().write(true).open(folder.join(name)).unwrap();
            let age = content.bytes().map(u64::from).sum();
            let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(age);
            file.set_modified(modified).unwrap();
        }
        tree::scan(&[folder.to_owned()], &tree::ScanOptions::default()).unwrap().entries
    }

    /// Names of the files in the packs that wait.
    fn waiting(journal: &Journal) -> Vec<String> {
        let plans = journal.waiting().iter().filter_map(|number| journal.plan(*number));
        let files = plans.flat_map(|plan| plan.entries.iter().filter(|entry| !is_folder(entry)));
        let last = |entry: &Entry| String::from_utf8_lossy(&entry.name[2..]).into_owned();
        files.map(last).collect()
    }

    #[test]
    fn what_was_delivered_and_is_the_same_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path(), place.path().join("f"));
        // Every file has a pack of its own.
        let open = |files: &[(&str, &str)]| {
            let journal = Journal::open(state, entries(&folder, files), 4096, 7).unwrap();
            let (names, earlier) = (waiting(&journal), journal.earlier);
            (names, journal, earlier)
        };
        let (names, mut journal, earlier) = open(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!((names, earlier.files), (vec!["a".into(), "b".into(), "c".into()], 0));
        journal.start(3).unwrap();
        journal.deliver(1).unwrap();
        journal.deliver(2).unwrap();
        // One that was delivered has changed.
        let (names, mut journal, earlier) = open(&[("a", "2")]);
        assert_eq!((names, earlier.files), (vec!["c".into(), "a".into()], 1));
        assert_eq!((journal.batch_number(), journal.waiting()), (7, &[3, 4][..]));
        assert!(journal.is_started(3) && !journal.is_started(4));
        journal.deliver(4).unwrap();
        // The receiver has the changed one, not the first.
        let (names, journal, earlier) = open(&[("a", "1")]);
        assert_eq!((names, earlier.files), (vec!["c".into(), "a".into()], 1));
        assert_eq!(journal.waiting(), [3, 5]);
        // Perhaps it has the pack that was under way.
        let (names, _, _) = open(&[("a", "2")]);
        assert_eq!(names, ["c", "a"]);
    }

    #[test]
    fn deliveries_are_forgotten_and_packs_under_way_are_not() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path(), place.path().join("f"));
        let found = entries(&folder, &[("a", "1"), ("b", "1"), ("c", "1")]);
        Journal::forget_delivered(state).unwrap();
        let mut journal = Journal::open(state, found.clone(), 4096, 7).unwrap();
        journal.deliver(1).unwrap();
        drop(journal);
        Journal::forget_delivered(state).unwrap();
        let journal = Journal::open(state, found, 4096, 8).unwrap();
        assert_eq!(waiting(&journal), ["b", "c", "a"]);
        assert_eq!((journal.batch_number(), journal.waiting()), (7, &[2, 3, 4][..]));
    }

    #[test]
    fn torn_and_lost_files_only_cost_time() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path(), place.path().join("f"));
        let found = entries(&folder, &[("a", "1"), ("b", "1")]);
        let open = || Journal::open(state, found.clone(), 4096, 7).unwrap();
        let mut journal = open();
        journal.deliver(1).unwrap();
        fs::write(state.join(DELIVERED), "1\n2").unwrap();
        assert_eq!(open().waiting(), [2], "a torn number does not count");
        // The numbers outlived the packs: none is used again.
        fs::write(state.join(DELIVERED), "1\n9\n").unwrap();
        assert_eq!(open().stored.next, 10);
        journal.start(2).unwrap();
        fs::write(state.join(PACKS), "{").unwrap();
        let journal = open();
        assert!(!journal.is_started(2), "it is another pack");
        assert_eq!(journal.waiting().len(), 2);
        assert_eq!(fs::read(state.join(DELIVERED)).unwrap(), b"");
    }
}
