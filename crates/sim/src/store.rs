//! A host's store: files in memory behind a disk that may be slow, fail, fill up or forget.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, EffectError, FileName, FilestoreRequest, MemoryStore, OpenMode, Rng, StoreEffect,
    Ticket, Time,
};

/// How a store misbehaves. The default is a store that does everything at once and never fails.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    /// Time each effect takes.
    pub latency: Duration,
    /// Bytes read or written a second, on top of the latency; `None` is without limit.
    pub bytes_per_second: Option<u64>,
    /// Which writes fail, the first being 1, counted over the store's whole life.
    pub fail_writes: BTreeSet<u64>,
    /// The probability of each write to fail.
    pub fail_write_probability: f64,
    /// Bytes all files together may hold.
    pub capacity: Option<u64>,
    /// The probability of a write that was not synced to be lost in a crash.
    pub lose_unsynced: f64,
}

/// Files, directories and records of one host. They outlive the host's engine.
#[derive(Debug)]
pub struct Store {
    memory: MemoryStore,
    faults: StoreFaults,
    rng: Rng,
    /// Effects under way, in order, and when each is done.
    queue: VecDeque<(Time, StoreEffect)>,
    /// When the disk is free again.
    busy_until: Time,
    writes: u64,
    failed_writes: u64,
    /// What a crash may take away, kept only where the faults ask for it.
    unsynced: BTreeMap<FileName, Unsynced>,
}

/// A file's content when it was last synced, and what was written since.
#[derive(Debug)]
struct Unsynced {
    durable: Vec<u8>,
    writes: Vec<(u64, Bytes)>,
}

type Answer = (Ticket, Result<Completion, EffectError>);

impl Store {
    /// The empty one of a host of this name.
    #[must_use]
    pub fn of_host(seed: u64, host: &str) -> Self {
        Self::new(Rng::new(seed, &format!("store {host}")))
    }

    /// An empty one; `rng` decides which writes fail where that is left to chance.
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

    /// Changes how the store misbehaves; effects under way keep their times.
    pub fn set_faults(&mut self, faults: StoreFaults) {
        self.memory.set_capacity(faults.capacity);
        self.faults = faults;
    }

    /// How the store misbehaves.
    #[must_use]
    pub fn faults(&self) -> &StoreFaults {
        &self.faults
    }

    /// The files themselves.
    #[must_use]
    pub fn files(&self) -> &MemoryStore {
        &self.memory
    }

    /// The files themselves, to change them behind the engine's back.
    pub fn files_mut(&mut self) -> &mut MemoryStore {
        &mut self.memory
    }

    /// Puts a file in, in place of what has its name.
    pub fn insert(&mut self, name: FileName, content: impl Into<Bytes>) {
        self.unsynced.remove(&name);
        self.memory.insert(name, content);
    }

    /// A file's content, if there is such a file.
    #[must_use]
    pub fn get(&self, name: &FileName) -> Option<&[u8]> {
        self.memory.get(name)
    }

    /// Writes that were made to fail.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes
    }

    /// Takes an effect. It is carried out at once when nothing is before it and it takes no time;
    /// otherwise [`Store::next`] says when.
    pub fn submit(&mut self, now: Time, effect: StoreEffect) -> Option<Answer> {
        let done = self.busy_until.max(now) + self.duration(&effect);
        self.busy_until = done;
        if done <= now && self.queue.is_empty() {
            return self.execute(effect);
        }
        self.queue.push_back((done, effect));
        None
    }

    /// When the next effect is done.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.queue.front().map(|(done, _)| *done)
    }

    /// Carries out the effects that are done by `now` up to the first that has an answer.
    pub fn pop(&mut self, now: Time) -> Option<Answer> {
        while self.next().is_some_and(|done| done <= now) {
            let (_, effect) = self.queue.pop_front()?;
            if let Some(answer) = self.execute(effect) {
                return Some(answer);
            }
        }
        None
    }

    /// The host loses power: effects under way are not carried out, open files are forgotten and
    /// writes that were not synced may be lost.
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
        let bytes = effect.bytes() as u64;
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
            | StoreEffect::Close { .. }
            | StoreEffect::Index { .. } => None,
        };
        let answer = self.memory.execute(effect);
        if let (Some(request), Some((_, Ok(_)))) = (request, &answer) {
            self.follow_names(&request);
        }
        answer
    }

    /// Notes what a crash would undo. Names, directories and records are durable at once.
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

    /// Whether a write will be refused for want of space.
    fn full(&self, content: &[u8], offset: u64, len: usize) -> bool {
        let growth = offset.saturating_add(len as u64).saturating_sub(content.len() as u64);
        self.faults
            .capacity
            .is_some_and(|capacity| self.memory.used().saturating_add(growth) > capacity)
    }

    /// What a crash would undo has another name from now on, or is gone.
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
