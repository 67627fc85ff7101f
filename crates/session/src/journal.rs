//! Journal of an engine's sessions: ordered operations on each record, and the progress of a
//! reception, which is synced before it is recorded.

use engine::IndexRequest;

use crate::path::Handle;
use crate::ranges::Ranges;
use crate::spool::Spool;
use crate::storage::JournalPolicy;
use crate::{Alarm, Job, Shared};

/// Operations on the record of one session. Storage effects may overtake each other, so only one
/// is pending at a time, and only the last of the waiting ones counts.
#[derive(Debug, Default)]
pub struct Slot {
    is_busy: bool,
    is_used: bool,
    waiting: Option<IndexRequest>,
}

impl Slot {
    /// Executes an operation, now or after the pending one; `job` is the purpose of either.
    pub fn submit<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        job: Job<J>,
        request: IndexRequest,
    ) {
        self.is_used = true;
        if self.is_busy {
            self.waiting = Some(request);
            return;
        }
        self.is_busy = true;
        shared.index(handle, job, request);
    }

    /// Records that the pending operation completed. Returns whether none is left.
    pub fn done<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        job: Job<J>,
    ) -> bool {
        self.is_busy = false;
        let Some(request) = self.waiting.take() else { return true };
        self.submit(shared, handle, job, request);
        false
    }

    /// Whether a record is being written.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether a record was ever written.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Records that an earlier run left a record.
    pub fn mark_used(&mut self) {
        self.is_used = true;
    }

    /// Drops the waiting operation.
    pub fn drop_waiting(&mut self) {
        self.waiting = None;
    }
}

/// Safely stored progress of a reception.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes covered at the last save.
    covered: u64,
    safe: Ranges,
    /// Parts being synced, to be safe next.
    syncing: Option<Ranges>,
    /// Pending syncs.
    syncs: u32,
}

impl Progress {
    /// Progress recorded by an earlier run.
    pub fn restored(safe: Ranges) -> Self {
        Self { covered: safe.covered(), safe, ..Self::default() }
    }

    /// Safe parts.
    pub fn safe(&self) -> &Ranges {
        &self.safe
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let syncing = self.syncing.as_ref().map_or(0, Ranges::len);
        (self.safe.len() + syncing) * 2 * size_of::<u64>()
    }

    /// Whether there is enough new data for a save.
    pub fn is_due(&self, ranges: &Ranges, policy: JournalPolicy) -> bool {
        ranges.covered().saturating_sub(self.covered) >= policy.bytes
    }

    /// Whether there is no new data.
    pub fn is_current(&self, ranges: &Ranges) -> bool {
        self.covered == ranges.covered()
    }

    /// Whether parts are being synced, to be safe next.
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Records that the present parts are about to be saved.
    pub fn begin(&mut self, ranges: &Ranges) {
        self.covered = ranges.covered();
    }

    /// Syncs the written parts.
    pub fn sync_parts<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        spool: &Spool,
        ranges: &Ranges,
    ) {
        self.syncing = Some(ranges.clone());
        self.sync(shared, handle, spool);
    }

    /// Syncs the working file.
    pub fn sync<A: Alarm, J>(&mut self, shared: &mut Shared<A, J>, handle: Handle, spool: &Spool) {
        if spool.file().is_some() {
            self.syncs += 1;
            spool.sync(shared, handle);
        }
    }

    /// Records that a sync completed. Returns whether others are pending: an earlier one proves
    /// nothing about data written after its request.
    pub fn synced(&mut self) -> bool {
        self.syncs = self.syncs.saturating_sub(1);
        self.syncs > 0
    }

    /// Marks the synced parts as safe; returns whether there were any.
    pub fn settle(&mut self) -> bool {
        let synced = self.syncing.take();
        let any = synced.is_some();
        if let Some(synced) = synced {
            self.safe = synced;
        }
        any
    }

    /// Drops the parts being synced.
    pub fn drop_syncing(&mut self) {
        self.syncing = None;
    }

    /// Marks all present parts as safe.
    pub fn complete(&mut self, ranges: &Ranges) {
        self.safe = ranges.clone();
    }

    /// Forgets safe parts beyond `len`: the file is shorter than its record.
    pub fn truncate(&mut self, len: u64) {
        self.safe.remove(len, u64::MAX);
    }

    /// Forgets all safe parts.
    pub fn forget(&mut self) {
        self.safe = Ranges::new();
    }
}
