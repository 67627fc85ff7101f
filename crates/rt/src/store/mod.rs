//! Files on disk: carries out storage effects off the packet path.

mod disk;
mod index;
mod lock;
mod log;
mod packs;
mod system;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use engine::{
    Completion, EffectError, FileId, FileName, MemoryStore, OpenMode, StoreEffect, Ticket,
};
use thiserror::Error;

use crate::Waker;
use disk::{Disk, Records};
use index::Index;
use lock::Lock;
use log::Log;
use packs::Unpacker;
pub use packs::{Packs, Unpack};
use worker::{Answers, Content, Done, Job, Others};

/// Directories and limits of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The directory of [`engine::Area::Files`]; it must exist.
    pub root: PathBuf,
    /// Directory of [`engine::Area::Spool`], the index and the lock; created if missing. It must be
    /// on the root's file system for files to be installed from it.
    pub state: PathBuf,
    /// Access of the engine to files below the root.
    pub access: Access,
    /// Unpacks received packs below the root; without it they are files like others.
    pub unpack: Option<Unpack>,
    /// Format of the records.
    pub index: RecordsIn,
    /// Threads for reading and writing; a further one serves names and records, and some sync.
    pub threads: usize,
    /// Bytes in progress at which the store counts as full.
    pub bytes_max: usize,
    /// Effects in progress at which the store counts as full.
    pub effects_max: usize,
}

/// Format of an engine's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsIn {
    /// One file each, for engines that have few.
    Files,
    /// A log in segments, in which concurrent changes share one sync.
    Log,
}

/// Lists that wait until they are made. Each may take long, but a sender may request hundreds.
const LISTS_MAX: usize = 1024;

/// Threads that sync files: concurrent syncs share the file system's work.
const SYNCS: usize = 4;

/// Access of an engine to files below the root.
#[derive(Clone, Debug)]
pub enum Access {
    /// Full access.
    Full,
    /// Read this one file, for a program that only sends it. Filestore requests fail, from any
    /// entity.
    ReadOne(FileName),
    /// Read these packs, in the same way.
    ReadPacks(Arc<Packs>),
}

/// Reason why a store cannot be opened. The message names the remedy.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The root does not exist, or is not a directory.
    #[error("the directory {} cannot be opened: {error}; create it first", path.display())]
    Root {
        /// Root directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The spool cannot be set up.
    #[error("the working directory {} cannot be set up: {error}", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another process uses the spool.
    #[error(
        "{} is in use by {owner}; stop that process first, or choose another directory",
        path.display()
    )]
    InUse {
        /// Directory.
        path: PathBuf,
        /// Process that uses it.
        owner: String,
    },
}

impl StoreError {
    /// Returns the underlying system error, if any.
    #[must_use]
    pub fn system(&self) -> Option<&io::Error> {
        match self {
            Self::Root { error, .. } | Self::State { error, .. } => Some(error),
            Self::InUse { .. } => None,
        }
    }
}

/// One thread's handle of a store, over two directories of a real file system or in memory.
///
/// One thread carries out the effects on one file in order, except syncs, which only wait for the
/// writes before them. Another thread carries out filestore and index requests in order. Results
/// are returned by [`FileStore::poll`], and the waker given to [`FileStore::open`] is called when
/// there are any. Other threads get a handle of the same store from [`FileStore::share`]; each
/// opens its own files.
#[derive(Debug)]
pub struct FileStore {
    place: Place,
    done: Receiver<Done>,
    answers: Arc<Answers>,
    /// Worker of each open file, from its opening to its closing.
    files: BTreeMap<FileId, usize>,
    effects: usize,
    bytes: usize,
    bytes_max: usize,
    effects_max: usize,
}

/// Location of a store.
#[derive(Clone, Debug)]
enum Place {
    Disk(Arc<Shared>),
    Memory(Arc<Mutex<MemoryStore>>),
}

/// Reads files of a store, or the packs that it has in their place, from any thread.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Disk>);

impl Reader {
    /// Opens a file, or a pack.
    ///
    /// # Errors
    ///
    /// The store may not read it, or errors of the file system.
    pub fn open(&self, name: &FileName) -> Result<Source, EffectError> {
        Content::open(&self.0, name, OpenMode::Read).map(Source)
    }
}

/// Open file or pack.
#[derive(Debug)]
pub struct Source(Content);

impl Source {
    /// Fills a buffer with the bytes at an offset.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if there are fewer, or errors of the file system.
    pub fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(offset, to) {
            Ok(count) if count == to.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

/// State shared by all handles of a store.
#[derive(Debug)]
struct Shared {
    workers: Vec<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    disk: Arc<Disk>,
    opened: AtomicU64,
    config: StoreConfig,
    _lock: Lock,
}

impl Drop for Shared {
    /// Waits until started effects are done.
    fn drop(&mut self) {
        self.disk.is_closing.store(true, Ordering::Relaxed);
        self.workers.clear();
        for thread in self.threads.drain(..) {
            // A worker that panicked has reported it.
            let _ = thread.join();
        }
    }
}

impl StoreConfig {
    /// Returns a configuration with full access below `root`, which also holds the working files.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            state: root.join(FileName::SPOOL_DIRECTORY),
            root,
            access: Access::Full,
            unpack: None,
            index: RecordsIn::Files,
            threads: 2,
            bytes_max: 4 << 20,
            effects_max: 8192,
        }
    }
}

impl FileStore {
    /// Opens the store and starts its threads; `waker` is called when there are results.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(config: StoreConfig, waker: &Waker) -> Result<Self, StoreError> {
        let root_error = |error| StoreError::Root { path: config.root.clone(), error };
        let state_error = |error| StoreError::State { path: config.state.clone(), error };
        let files = Dir::open_ambient_dir(&config.root, ambient_authority()).map_err(root_error)?;
        std::fs::create_dir_all(&config.state).map_err(state_error)?;
        if std::fs::symlink_metadata(&config.state).map_err(state_error)?.is_symlink() {
            // A user who may write to the root must not choose where the records go.
            return Err(state_error(io::Error::other("it is a symbolic link; remove it")));
        }
        let state =
            Dir::open_ambient_dir(&config.state, ambient_authority()).map_err(state_error)?;
        let lock = Lock::take(&state, &config.state)?;
        let below = |name: &str| {
            state.create_dir_all(name)?;
            state.open_dir(name)
        };
        let index = Index::new(below("index").map_err(state_error)?);
        let records = match config.index {
            RecordsIn::Files => Records::Files(index),
            RecordsIn::Log => {
                Records::Log(Box::new(log(&config.state, &index).map_err(state_error)?))
            }
        };
        let spool = below("spool").map_err(state_error)?;
        let unpacker = match &config.unpack {
            Some(unpack) => {
                let staging = below("unpacking").map_err(state_error)?;
                let root = files.try_clone().map_err(root_error)?;
                Some(Unpacker::new(root, staging, unpack).map_err(state_error)?)
            }
            None => None,
        };
        let disk = Arc::new(Disk {
            files,
            spool,
            records,
            access: config.access.clone(),
            unpacker,
            is_closing: AtomicBool::new(false),
            hidden: FileName::SPOOL_DIRECTORY,
        });
        let (syncs, to_sync) = unbounded();
        let (computations, to_compute) = unbounded();
        let (packs, to_unpack) = unbounded();
        let (lists, to_list) = bounded(LISTS_MAX);
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..=config.threads.max(1) {
            let (jobs, queue) = unbounded();
            let disk = Arc::clone(&disk);
            let others = Others {
                syncs: syncs.clone(),
                computations: computations.clone(),
                packs: packs.clone(),
                lists: lists.clone(),
            };
            let work = move || worker::run(&disk, &queue, &others);
            threads.push(spawn(format!("files-{number}"), work).map_err(state_error)?);
            workers.push(jobs);
        }
        drop(syncs);
        drop(computations);
        drop(packs);
        drop(lists);
        if disk.unpacker.is_some() {
            let disk_to_list = Arc::clone(&disk);
            let work = move || worker::list(&disk_to_list, &to_list);
            threads.push(spawn("lists".to_owned(), work).map_err(state_error)?);
            let disk = Arc::clone(&disk);
            let work = move || worker::unpack(&disk, &to_unpack);
            threads.push(spawn("packs".to_owned(), work).map_err(state_error)?);
        }
        let compute = move || worker::compute(&to_compute);
        threads.push(spawn("computations".to_owned(), compute).map_err(state_error)?);
        for number in 0..SYNCS {
            let to_sync = to_sync.clone();
            let work = move || worker::sync(&to_sync);
            threads.push(spawn(format!("sync-{number}"), work).map_err(state_error)?);
        }
        let opened = AtomicU64::new(0);
        let shared = Shared { workers, threads, disk, opened, config, _lock: lock };
        let (bytes_max, effects_max) = (shared.config.bytes_max, shared.config.effects_max);
        Ok(Self::over(Place::Disk(Arc::new(shared)), bytes_max, effects_max, waker))
    }

    /// Creates a store in memory with this capacity in bytes; its content ends with the process.
    #[must_use]
    pub fn in_memory(bytes: u64, waker: &Waker) -> Self {
        let mut store = MemoryStore::new();
        store.set_capacity(Some(bytes));
        let place = Place::Memory(Arc::new(Mutex::new(store)));
        Self::over(place, usize::MAX, usize::MAX, waker)
    }

    fn over(place: Place, bytes_max: usize, effects_max: usize, waker: &Waker) -> Self {
        let (answers, done) = unbounded();
        let answers = Arc::new(Answers { done: answers, waker: waker.clone() });
        let files = BTreeMap::new();
        Self { place, done, answers, files, effects: 0, bytes: 0, bytes_max, effects_max }
    }

    /// Returns a handle of the same store for another thread, which `waker` wakes.
    #[must_use]
    pub fn share(&self, waker: &Waker) -> Self {
        Self::over(self.place.clone(), self.bytes_max, self.effects_max, waker)
    }

    /// Returns a reader of the files that this store may read; `None` in memory.
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        match &self.place {
            Place::Disk(shared) => Some(Reader(Arc::clone(&shared.disk))),
            Place::Memory(_) => None,
        }
    }

    /// Removes all records and working files, including an earlier process's. May only be called
    /// before any effect.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub fn reset(&mut self) -> io::Result<()> {
        let disk = match &self.place {
            Place::Disk(shared) => &shared.disk,
            Place::Memory(store) => {
                *lock(store) = MemoryStore::new();
                return Ok(());
            }
        };
        disk.records.clear()?;
        disk::empty(&disk.spool)
    }

    /// Deletes orphaned working files of an earlier process: those whose names begin with `prefix`
    /// and for which there is no record `key_prefix` + name. Returns their number.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub fn sweep(&mut self, prefix: &str, key_prefix: &str) -> io::Result<usize> {
        let disk = match &self.place {
            Place::Disk(shared) => &shared.disk,
            // A store in memory starts empty.
            Place::Memory(_) => return Ok(0),
        };
        let records = disk.records.load(&format!("{key_prefix}{prefix}"))?;
        let keys: HashSet<&str> = records.iter().map(|(key, _)| key.as_str()).collect();
        let mut swept = 0;
        for entry in disk.spool.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(prefix)) else {
                continue;
            };
            let key = format!("{key_prefix}{name}");
            if entry.file_type()?.is_file() && !keys.contains(key.as_str()) {
                entry.remove_file()?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Starts an effect.
    pub fn submit(&mut self, effect: StoreEffect) {
        let shared = match &self.place {
            Place::Disk(shared) => Arc::clone(shared),
            Place::Memory(store) => {
                let done = lock(store).execute(effect);
                if let Some((ticket, answer)) = done {
                    self.effects += 1;
                    self.answers.give(Done { ticket, answer, size: 0, failed_to_open: None });
                }
                return;
            }
        };
        let opens = matches!(effect, StoreEffect::Open { .. })
            .then(|| FileId(shared.opened.fetch_add(1, Ordering::Relaxed) + 1));
        let worker = self.worker_of(&effect, opens, shared.workers.len());
        if let StoreEffect::Close { file } = effect {
            self.files.remove(&file);
        } else {
            self.effects += 1;
            self.bytes += effect.bytes();
        }
        let job = Job { effect, opens, answers: Arc::clone(&self.answers) };
        // A worker lives as long as its queue has a sender.
        let _ = shared.workers[worker].send(job);
    }

    /// Whether the operations in progress are so many that no other should be started.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.effects >= self.effects_max || self.bytes >= self.bytes_max
    }

    /// Returns the number of effects whose results were not taken yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.effects
    }

    /// Returns the next result, if any.
    pub fn poll(&mut self) -> Option<(Ticket, Result<Completion, EffectError>)> {
        let done = self.done.try_recv().ok()?;
        self.effects = self.effects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(done.size);
        if let Some(file) = done.failed_to_open {
            self.files.remove(&file);
        }
        Some((done.ticket, done.answer))
    }

    /// Worker for an effect: 0 for names and records, another for a file.
    fn worker_of(&mut self, effect: &StoreEffect, opens: Option<FileId>, workers: usize) -> usize {
        match *effect {
            StoreEffect::Open { .. } => {
                let Some(file) = opens else { return 0 };
                // The file's number chooses its worker: 1, 2, 1, 2, ...
                let others = (workers - 1) as u64;
                let worker = 1 + (file.0 % others) as usize;
                self.files.insert(file, worker);
                worker
            }
            StoreEffect::Read { file, .. }
            | StoreEffect::Write { file, .. }
            | StoreEffect::Sync { file, .. }
            | StoreEffect::Work { file, .. }
            | StoreEffect::Close { file } => self.files.get(&file).copied().unwrap_or(0),
            StoreEffect::Filestore { .. } | StoreEffect::Index { .. } => 0,
        }
    }
}

/// Opens the log of a directory. Moves records into it that were files.
fn log(state: &Path, earlier: &Index) -> io::Result<Log> {
    let log = Log::open(state)?;
    let records = earlier.load("")?.into_iter();
    let records: Vec<_> =
        records.map(|(key, value)| engine::IndexRequest::Put { key, value }).collect();
    if !records.is_empty() {
        for answer in log.change(&records.iter().collect::<Vec<_>>()) {
            answer.map_err(|error| io::Error::other(error.to_string()))?;
        }
        disk::empty(earlier.directory())?;
    }
    Ok(log)
}

/// Locks a store in memory. It is consistent even after another thread's panic, because each
/// effect is carried out whole.
fn lock(store: &Mutex<MemoryStore>) -> std::sync::MutexGuard<'_, MemoryStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(work)
}

/// Returns the free bytes in a directory, for users without privileges.
///
/// # Errors
///
/// The directory does not exist, or its file system does not report free space.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
