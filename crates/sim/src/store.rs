//! A host's store: files in memory behind a disk that may be slow, fail, fill up or lose data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, EffectError, FileName, FilestoreRequest, MemoryStore, OpenMode, Rng, StoreEffect,
    Ticket, Time,
};

/// Faults of a store. The default store does everything at once and never fails.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    /// Time per effect.
    pub latency: Duration,
    /// Bytes read or written per second, on top of the latency; `None` is unlimited.
    pub bytes_per_second: Option<u64>,
    /// Writes that fail, the first being 1, counted over the store's whole life.
    pub fail_writes: BTreeSet<u64>,
    /// Probability that a write fails.
    pub fail_write_probability: f64,
    /// Maximum total size of all files, in bytes.
    pub capacity: Option<u64>,
    /// Probability that a crash loses a write that was not synced.
    pub lose_unsynced: f64,
}

/// Files, directories and records of one host. They outlive the host's engine.
#[derive(Debug)]
pub struct Store {
    memory: MemoryStore,
    faults: StoreFaults,
    rng: Rng,
    /// Pending effects, in order, and the time each completes.
    queue: VecDeque<(Time, StoreEffect)>,
    /// Time at which the disk is free again.
    busy_until: Time,
    writes: u64,
    failed_writes: u64,
    /// Data a crash may lose, kept only if the faults need it.
    unsynced: BTreeMap<FileName, Unsynced>,
}

/// A file's content at its last sync, and the writes since.
#[derive(Debug)]
struct Unsynced {
    durable: Vec<u8>,
    writes: Vec<(u64, Bytes)>,
}

type Answer = (Ticket, Result<Completion, EffectError>);

impl Store {
    /// Creates the empty store of a host of this name.
    #[must_use]
    pub fn of_host(seed: u64, host: &str) -> Self {
        Self::new(Rng::new(seed, &format!("store {host}")))
    }

    /// Creates an empty store; `rng` draws random write failures.
    #[must_use]
    pub fn new(rng: Rng) -> Self {
        Self {
            memory: MemoryStore::new(),
            faults: StoreFaults::default(),
            rng,
            queue: VecDeque::new(),
            busy_until: Time::ZERO,
            writes: 0,
            failed_writes: 0,
            unsynced: BTreeMap::new(),
        }
    }

    /// Sets the store's faults; pending effects keep their times.
    pub fn set_faults(&mut self, faults: StoreFaults) {
        self.memory.set_capacity(faults.capacity);
        self.faults = faults;
    }

    /// Returns the store's faults.
    #[must_use]
    pub fn faults(&self) -> &StoreFaults {
        &self.faults
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> &MemoryStore {
        &self.memory
    }

    /// Returns the files, to change them without the engine.
    pub fn files_mut(&mut self) -> &mut MemoryStore {
        &mut self.memory
    }

    /// Stores a file, replacing any file of that name.
    pub fn insert(&mut self, name: FileName, content: impl Into<Bytes>) {
        self.unsynced.remove(&name);
        self.memory.insert(name, content);
    }

    /// Returns a file's content, if it exists.
    #[must_use]
    pub fn get(&self, name: &FileName) -> Option<&[u8]> {
        self.memory.get(name)
    }

    /// Number of writes that failed on purpose.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes
    }

    /// Takes an effect. Carries it out at once if none is pending and it takes no time; otherwise
    /// [`Store::next`] returns the time at which it completes.
    pub fn submit(&mut self, now: Time, effect: StoreEffect) -> Option<Answer> {
        let done = self.busy_until.max(now) + self.duration(&effect);
        self.busy_until = done;
        if done <= now && self.queue.is_empty() {
            return self.execute(effect);
        }
        self.queue.push_back((done, effect));
        None
    }

    /// Returns when the next effect completes.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.queue.front().map(|(done, _)| *done)
    }

    /// Carries out the effects that are done by `now`, up to the first that has a completion.
    pub fn pop(&mut self, now: Time) -> Option<Answer> {
        while self.next().is_some_and(|done| done <= now) {
            let (_, effect) = self.queue.pop_front()?;
            if let Some(answer) = self.execute(effect) {
                return Some(answer);
            }
        }
        None
    }

    /// Cuts the host's power: drops pending effects, closes open files, and may lose writes that
    /// were not synced.
    pub fn crash(&mut self, now: Time) {
        self.queue.clear();
        self.busy_until = now;
        self.memory.close_all();
        for (name, file) in std::mem::take(&mut self.unsynced) {
            let mut content = file.durable;
            for (offset, bytes) in file.writes {
                if !self.rng.chance(self.faults.lose_unsynced) {
                    overwrite(&mut content, offset, &bytes);
                }
            }
            self.memory.insert(name, content);
        }
    }

    fn duration(&self, effect: &StoreEffect) -> Duration {
        if let StoreEffect::Close { .. } = effect {
            return Duration::ZERO;
        }
        let bytes = match effect {
            StoreEffect::Work { work, .. } => work.cost(),
            StoreEffect::Open { .. }
            | StoreEffect::Read { .. }
            | StoreEffect::Write { .. }
            | StoreEffect::Sync { .. }
            | StoreEffect::Close { .. }
            | StoreEffect::Filestore { .. }
            | StoreEffect::Index { .. } => effect.bytes() as u64,
        };
        let transfer = self.faults.bytes_per_second.map_or(0, |rate| {
            (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1))) as u64
        });
        self.faults.latency + Duration::from_nanos(transfer)
    }

    fn execute(&mut self, effect: StoreEffect) -> Option<Answer> {
        if let StoreEffect::Write { ticket, .. } = &effect {
            self.writes += 1;
            let probability = self.faults.fail_write_probability;
            let bad_luck = probability > 0.0 && self.rng.chance(probability);
            if bad_luck || self.faults.fail_writes.contains(&self.writes) {
                self.failed_writes += 1;
                return Some((*ticket, Err(EffectError::Failed("the disk failed".into()))));
            }
        }
        if self.faults.lose_unsynced == 0.0 {
            return self.memory.execute(effect);
        }
        self.keep_for_crash(&effect);
        let request = match &effect {
            StoreEffect::Filestore { request, .. } => Some(request.clone()),
            StoreEffect::Open { .. }
            | StoreEffect::Read { .. }
            | StoreEffect::Write { .. }
            | StoreEffect::Sync { .. }
            | StoreEffect::Work { .. }
            | StoreEffect::Close { .. }
            | StoreEffect::Index { .. } => None,
        };
        let answer = self.memory.execute(effect);
        if let (Some(request), Some((_, Ok(_)))) = (request, &answer) {
            self.follow_names(&request);
        }
        answer
    }

    /// Records the state a crash would restore. Names, directories and records are durable at once.
    fn keep_for_crash(&mut self, effect: &StoreEffect) {
        if let StoreEffect::Write { file, offset, bytes, .. } = effect {
            let Some(name) = self.memory.name_of(*file) else { return };
            let Some(durable) = self.memory.get(name) else { return };
            if self.full(durable, *offset, bytes.len()) {
                return;
            }
            let entry = self
                .unsynced
                .entry(name.clone())
                .or_insert_with(|| Unsynced { durable: durable.to_vec(), writes: Vec::new() });
            entry.writes.push((*offset, bytes.clone()));
        } else if let StoreEffect::Sync { file, .. } = effect {
            if let Some(name) = self.memory.name_of(*file) {
                self.unsynced.remove(name);
            }
        } else if let StoreEffect::Open { name, mode: OpenMode::Truncate, .. } = effect {
            self.unsynced.remove(name);
        }
    }

    /// Whether a write will be refused for lack of space.
    fn full(&self, content: &[u8], offset: u64, len: usize) -> bool {
        let growth = offset.saturating_add(len as u64).saturating_sub(content.len() as u64);
        self.faults
            .capacity
            .is_some_and(|capacity| self.memory.used().saturating_add(growth) > capacity)
    }

    /// Applies a rename or deletion to the state a crash would restore.
    fn follow_names(&mut self, request: &FilestoreRequest) {
        match request {
            FilestoreRequest::RenameFile { from, to } | FilestoreRequest::Install { from, to } => {
                self.unsynced.remove(to);
                if let Some(file) = self.unsynced.remove(from) {
                    self.unsynced.insert(to.clone(), file);
                }
            }
            FilestoreRequest::DeleteFile(name) | FilestoreRequest::DenyFile(name) => {
                self.unsynced.remove(name);
            }
            FilestoreRequest::AppendFile { to, .. } | FilestoreRequest::ReplaceFile { to, .. } => {
                self.unsynced.remove(to);
            }
            FilestoreRequest::CreateFile(_)
            | FilestoreRequest::CreateDirectory(_)
            | FilestoreRequest::RemoveDirectory(_)
            | FilestoreRequest::DenyDirectory(_)
            | FilestoreRequest::List(_) => {}
        }
    }
}

fn overwrite(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    content.resize(content.len().max(end), 0);
    content[start..end].copy_from_slice(bytes);
}
