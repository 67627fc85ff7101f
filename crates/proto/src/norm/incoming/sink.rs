//! Place of what is received: a file, or memory for what is none.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, FilestoreRequest, OpenMode};

use super::{PIECE_COST, SPOOL_PREFIX};
use crate::norm::core::{Core, Job};
use crate::path::Handle;
use crate::storage::Storage as _;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Store {
    /// Nothing is known of the object yet.
    None,
    /// It is no file.
    Memory,
    /// There is nothing to write to its file.
    Unopened,
    Opening(FileName),
    Open(FileName, FileId),
    /// It is complete, and about to get its name.
    Closed(FileName),
    /// The file has its name, or was deleted.
    Gone,
}

/// Step on the way to a stored object.
#[derive(Debug)]
pub(super) enum Finish {
    /// Something is not written yet.
    Waits,
    /// The object is no file.
    Delivers(Bytes),
    /// Everything is written, and being synced.
    Syncs,
}

/// Place of an object that is received.
#[derive(Debug)]
pub(super) struct Sink {
    handle: Handle,
    store: Store,
    /// Whole blocks that wait for the file to be open.
    parked: VecDeque<(u64, Bytes)>,
    writes: usize,
    /// Bytes of an object that is no file.
    data: BTreeMap<u64, Bytes>,
    /// Name under which it was stored.
    stored: Option<FileName>,
}

impl Sink {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            store: Store::None,
            parked: VecDeque::new(),
            writes: 0,
            data: BTreeMap::new(),
            stored: None,
        }
    }

    /// Handle of the session.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn memory(&self) -> usize {
        self.data.values().map(|part| part.len() + PIECE_COST).sum()
    }

    /// The object is a file, or none.
    pub(super) fn begin(&mut self, is_file: bool) {
        self.store = if is_file { Store::Unopened } else { Store::Memory };
    }

    pub(super) fn is_memory(&self) -> bool {
        self.store == Store::Memory
    }

    /// Opens the working file, once there is something to write and a second message of the sender
    /// arrived: what strangers begin has none.
    fn open(&mut self, core: &mut Core) {
        let number = core.rng.next_u64();
        let name = FileName::spool(&format!("{SPOOL_PREFIX}{number:016x}"));
        let name = name.expect("letters, digits and a dash are a name");
        core.shared.open(self.handle, name.clone(), OpenMode::Truncate);
        self.store = Store::Opening(name);
    }

    /// The sender is no stranger any more.
    pub(super) fn show(&mut self, core: &mut Core) {
        if self.store == Store::Unopened && !self.parked.is_empty() {
            self.open(core);
        }
    }

    /// Puts bytes in their place. A file is not opened for a sender that is held for a stranger.
    pub(super) fn put(&mut self, core: &mut Core, start: u64, bytes: Bytes, is_held: bool) {
        if self.store == Store::Unopened && !is_held {
            self.open(core);
        }
        match self.store {
            Store::Memory => {
                self.data.insert(start, bytes);
            }
            Store::Opening(_) | Store::Unopened | Store::None => {
                core.shared.room.unwritten += bytes.len() + PIECE_COST;
                self.parked.push_back((start, bytes));
            }
            Store::Open(_, file) => {
                core.shared.room.unwritten += bytes.len() + PIECE_COST;
                self.write(core, file, start, bytes);
            }
            Store::Closed(_) | Store::Gone => {}
        }
    }

    fn write(&mut self, core: &mut Core, file: FileId, offset: u64, bytes: Bytes) {
        self.writes += 1;
        let cost = bytes.len() + PIECE_COST;
        core.shared.write(self.handle, file, offset, bytes, cost);
    }

    /// The working file is open, which may be too late.
    pub(super) fn opened(&mut self, core: &mut Core, file: FileId) {
        let Store::Opening(name) = self.store.clone() else {
            core.shared.close(file);
            return;
        };
        self.store = Store::Open(name, file);
        for (offset, bytes) in std::mem::take(&mut self.parked) {
            self.write(core, file, offset, bytes);
        }
    }

    /// A write is done.
    pub(super) fn written(&mut self, core: &mut Core, cost: usize) {
        self.writes = self.writes.saturating_sub(1);
        core.shared.written(cost);
    }

    /// Everything was put: goes on to the end.
    pub(super) fn finish(&mut self, core: &mut Core) -> Finish {
        match &self.store {
            Store::Memory => return Finish::Delivers(self.take_data()),
            // It is empty, or of one segment.
            Store::Unopened => self.open(core),
            Store::Open(_, file) if self.writes == 0 => {
                core.shared.sync(self.handle, *file);
                return Finish::Syncs;
            }
            Store::Open(..) | Store::Opening(_) | Store::Closed(_) | Store::None | Store::Gone => {}
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

    /// Gives the synced file its name.
    pub(super) fn install(&mut self, core: &mut Core, to: FileName) {
        let Store::Open(from, file) = self.store.clone() else { return };
        core.shared.close(file);
        self.store = Store::Closed(from.clone());
        self.stored = Some(to.clone());
        let request = FilestoreRequest::Install { from, to };
        core.shared.filestore(self.handle, Job::Install, request);
    }

    /// The file has its name.
    pub(super) fn installed(&mut self) {
        self.store = Store::Gone;
    }

    /// Name under which the object was stored.
    pub(super) fn take_name(&mut self) -> Option<FileName> {
        self.stored.take()
    }

    /// Gives up everything that was put.
    pub(super) fn discard(&mut self, core: &mut Core) {
        for (_, bytes) in std::mem::take(&mut self.parked) {
            core.shared.written(bytes.len() + PIECE_COST);
        }
        self.data.clear();
        match std::mem::replace(&mut self.store, Store::Gone) {
            Store::Open(name, file) => {
                core.shared.close(file);
                self.deny(core, name);
            }
            // To delete it now might do nothing, because effects overtake each other.
            Store::Opening(name) => {
                core.doomed.insert(self.handle, name);
            }
            Store::Closed(name) => self.deny(core, name),
            Store::None | Store::Memory | Store::Unopened | Store::Gone => {}
        }
    }

    fn deny(&self, core: &mut Core, name: FileName) {
        let request = FilestoreRequest::DenyFile(name);
        core.shared.filestore(self.handle, Job::Forget, request);
    }
}
