//! Destination of received data: a file, or memory for objects that are not files.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, FilestoreRequest, OpenMode, StoreEffect, Work};
use session::path::Handle;
use session::storage::Storage as _;

use super::PIECE_COST;
use super::partials::spool_name;
use crate::core::{Core, Job, Task};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Store {
    /// In memory: the object is not a file.
    Memory,
    /// Nothing has to be written to the object's file yet.
    Unopened,
    Opening(FileName),
    Open(FileName, FileId),
    /// Complete and about to be renamed.
    Closed(FileName),
    /// Renamed or deleted.
    Gone,
}

/// Effect on the file.
#[derive(Debug)]
enum Parked {
    /// Writes bytes at an offset.
    Write(u64, Bytes),
    /// Recovers a block.
    Work(u32, Work),
}

/// Step towards a stored object.
#[derive(Debug)]
pub(super) enum Finish {
    /// Writes are pending.
    Waits,
    /// Delivers an object that is not a file.
    Delivers(Bytes),
    /// Everything is written, and being synced.
    Syncs,
}

/// Destination of a received object.
#[derive(Debug)]
pub(super) struct Sink {
    handle: Handle,
    store: Store,
    /// Effects that wait until the file is open.
    parked: VecDeque<Parked>,
    writes: usize,
    /// Bytes of an object that is not a file.
    data: BTreeMap<u64, Bytes>,
    /// Name of the stored file.
    stored: Option<FileName>,
    /// Number in the name of the working file.
    number: u64,
    /// Whether the sender is unconfirmed: it causes no file.
    is_held: bool,
}

impl Sink {
    /// Chooses a file or memory. If `is_held`, no file is opened yet.
    pub(super) fn new(handle: Handle, is_file: bool, is_held: bool) -> Self {
        Self {
            handle,
            store: if is_file { Store::Unopened } else { Store::Memory },
            parked: VecDeque::new(),
            writes: 0,
            data: BTreeMap::new(),
            stored: None,
            number: 0,
            is_held,
        }
    }

    pub(super) fn is_memory(&self) -> bool {
        self.store == Store::Memory
    }

    /// Opens the working file once there is data to write and a second message of the sender
    /// arrived: unconfirmed senders cause no files.
    fn open(&mut self, core: &mut Core) {
        self.number = core.rng.next_u64();
        let name = spool_name(self.number);
        core.shared.open(self.handle, name.clone(), OpenMode::Truncate);
        self.store = Store::Opening(name);
    }

    /// Number in the name of the working file.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether nothing was stored yet.
    pub(super) fn is_unopened(&self) -> bool {
        self.store == Store::Unopened && self.parked.is_empty()
    }

    /// Continues with a working file of an earlier session. Returns whether it is open.
    pub(super) fn resume(&mut self, core: &mut Core, number: u64, file: Option<FileId>) -> bool {
        self.number = number;
        let name = spool_name(number);
        if let Some(file) = file {
            self.store = Store::Open(name, file);
            return true;
        }
        core.shared.open(self.handle, name.clone(), OpenMode::Write);
        self.store = Store::Opening(name);
        false
    }

    /// Releases the open working file to a later session.
    pub(super) fn release(&mut self) -> Option<FileId> {
        let Store::Open(_, file) = self.store else { return None };
        self.store = Store::Gone;
        Some(file)
    }

    /// Makes the writes so far survive a crash. Returns `false` if there is no file.
    pub(super) fn save(&self, core: &mut Core) -> bool {
        let Store::Open(_, file) = self.store else { return false };
        let ticket = core.shared.ticket(self.handle, Job::Own(Task::Save));
        core.shared.effects.push_back(StoreEffect::Sync { ticket, file }.into());
        true
    }

    /// Notes that the sender is confirmed.
    pub(super) fn show(&mut self, core: &mut Core) {
        self.is_held = false;
        if self.store == Store::Unopened && !self.parked.is_empty() {
            self.open(core);
        }
    }

    /// Stores bytes at their offset. No file is opened for an unconfirmed sender.
    pub(super) fn put(&mut self, core: &mut Core, start: u64, bytes: Bytes) {
        if self.store == Store::Unopened && !self.is_held {
            self.open(core);
        }
        match self.store {
            Store::Memory => {
                self.data.insert(start, bytes);
            }
            Store::Opening(_) | Store::Unopened => {
                core.shared.room.unwritten += bytes.len() + PIECE_COST;
                self.parked.push_back(Parked::Write(start, bytes));
            }
            Store::Open(_, file) => {
                core.shared.room.unwritten += bytes.len() + PIECE_COST;
                self.write(core, file, start, bytes);
            }
            Store::Closed(_) | Store::Gone => {}
        }
    }

    /// Recovers a block after the writes so far.
    pub(super) fn work(&mut self, core: &mut Core, block: u32, work: Work) {
        if self.store == Store::Unopened && !self.is_held {
            self.open(core);
        }
        match self.store {
            Store::Opening(_) | Store::Unopened => {
                self.parked.push_back(Parked::Work(block, work));
            }
            Store::Open(_, file) => self.start(core, file, block, work),
            Store::Memory | Store::Closed(_) | Store::Gone => {}
        }
    }

    fn start(&self, core: &mut Core, file: FileId, block: u32, work: Work) {
        let ticket = core.shared.ticket(self.handle, Job::Own(Task::Recover { block }));
        core.shared.effects.push_back(StoreEffect::Work { ticket, file, work }.into());
    }

    fn write(&mut self, core: &mut Core, file: FileId, offset: u64, bytes: Bytes) {
        self.writes += 1;
        let cost = bytes.len() + PIECE_COST;
        core.shared.write(self.handle, file, offset, bytes, cost);
    }

    /// Notes that the working file is open, or closes it if no longer needed.
    pub(super) fn opened(&mut self, core: &mut Core, file: FileId) {
        let Store::Opening(name) = self.store.clone() else {
            core.shared.close(file);
            return;
        };
        self.store = Store::Open(name, file);
        for parked in std::mem::take(&mut self.parked) {
            match parked {
                Parked::Write(offset, bytes) => self.write(core, file, offset, bytes),
                Parked::Work(block, work) => self.start(core, file, block, work),
            }
        }
    }

    /// Notes a completed write.
    pub(super) fn written(&mut self, core: &mut Core, cost: usize) {
        self.writes = self.writes.saturating_sub(1);
        core.shared.written(cost);
    }

    /// Proceeds towards the end after the last byte was put.
    pub(super) fn finish(&mut self, core: &mut Core) -> Finish {
        match &self.store {
            Store::Memory => return Finish::Delivers(self.take_data()),
            // The object is empty or has a single segment.
            Store::Unopened => self.open(core),
            Store::Open(_, file) if self.writes == 0 => {
                core.shared.sync(self.handle, *file);
                return Finish::Syncs;
            }
            Store::Open(..) | Store::Opening(_) | Store::Closed(_) | Store::Gone => {}
        }
        Finish::Waits
    }

    fn take_data(&mut self) -> Bytes {
        let parts = std::mem::take(&mut self.data);
        let len = parts.values().map(Bytes::len).sum();
        let mut data = BytesMut::with_capacity(len);
        parts.values().for_each(|part| data.extend_from_slice(part));
        data.freeze()
    }

    /// Whether the working file is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.store, Store::Open(..))
    }

    /// Renames the synced file.
    pub(super) fn install(&mut self, core: &mut Core, to: FileName) {
        let Store::Open(from, file) = self.store.clone() else { return };
        core.shared.close(file);
        self.store = Store::Closed(from.clone());
        self.stored = Some(to.clone());
        core.shared.install(self.handle, from, to);
    }

    /// Notes that the file was renamed.
    pub(super) fn installed(&mut self) {
        self.store = Store::Gone;
    }

    /// Takes the name of the stored file.
    pub(super) fn take_name(&mut self) -> Option<FileName> {
        self.stored.take()
    }

    /// Discards all data.
    pub(super) fn discard(&mut self, core: &mut Core) {
        for parked in std::mem::take(&mut self.parked) {
            match parked {
                Parked::Write(_, bytes) => core.shared.written(bytes.len() + PIECE_COST),
                Parked::Work(..) => {}
            }
        }
        self.data.clear();
        match std::mem::replace(&mut self.store, Store::Gone) {
            Store::Open(name, file) => {
                core.shared.close(file);
                self.deny(core, name);
            }
            // Deleting it now might have no effect: effects are not ordered.
            Store::Opening(name) => {
                core.doomed.insert(self.handle, name);
            }
            Store::Closed(name) => self.deny(core, name),
            Store::Memory | Store::Unopened | Store::Gone => {}
        }
    }

    fn deny(&self, core: &mut Core, name: FileName) {
        let request = FilestoreRequest::DenyFile(name);
        core.shared.filestore(self.handle, Job::Forget, request);
    }
}
