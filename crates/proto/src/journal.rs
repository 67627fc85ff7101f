//! Records of the sessions of an engine: the operations on the record of one, in their order, and
//! the progress of a reception that is made safe before a record says so.

use engine::IndexRequest;

use crate::path::Handle;
use crate::ranges::Ranges;
use crate::session::{Alarm, Job, Shared};
use crate::spool::Spool;
use crate::storage::JournalPolicy;

/// Operations on the record of one session. Storage effects may overtake each other, so there is
/// one at a time, and of those that wait only the last counts.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    is_busy: bool,
    is_used: bool,
    waiting: Option<IndexRequest>,
}

impl Slot {
    /// Carries out an operation, now or once the one under way is done; `job` is what either is
    /// for.
    pub(crate) fn submit<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        (handle, job): (Handle, Job<J>),
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

    /// Notes that the operation under way is done. Returns whether all of them are.
    pub(crate) fn done<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        to: (Handle, Job<J>),
    ) -> bool {
        self.is_busy = false;
        let Some(request) = self.waiting.take() else { return true };
        self.submit(shared, to, request);
        false
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether there was ever a record.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Notes that there is a record of an earlier run.
    pub(crate) fn mark_used(&mut self) {
        self.is_used = true;
    }

    /// Drops the operation that waits.
    pub(crate) fn drop_waiting(&mut self) {
        self.waiting = None;
    }
}

/// Progress of a reception that is made safe.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes covered when it was last about to be saved.
    covered: u64,
    safe: Ranges,
    /// Parts that are being synced, to be safe next.
    syncing: Option<Ranges>,
    /// Syncs under way.
    syncs: u32,
}

impl Progress {
    /// Progress that an earlier run made safe.
    pub(crate) fn restored(safe: Ranges) -> Self {
        Self { covered: safe.covered(), safe, ..Self::default() }
    }

    /// Parts that are safe.
    pub(crate) fn safe(&self) -> &Ranges {
        &self.safe
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let syncing = self.syncing.as_ref().map_or(0, Ranges::len);
        (self.safe.len() + syncing) * 2 * size_of::<u64>()
    }

    /// Whether enough is new to be saved.
    pub(crate) fn is_due(&self, ranges: &Ranges, policy: JournalPolicy) -> bool {
        ranges.covered().saturating_sub(self.covered) >= policy.bytes
    }

    /// Whether nothing is new.
    pub(crate) fn is_current(&self, ranges: &Ranges) -> bool {
        self.covered == ranges.covered()
    }

    /// Whether parts are being synced, to be safe next.
    pub(crate) fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Notes that what is there is about to be saved.
    pub(crate) fn begin(&mut self, ranges: &Ranges) {
        self.covered = ranges.covered();
    }

    /// Syncs the parts that were written, which are safe then.
    pub(crate) fn sync_parts<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        (spool, ranges): (&Spool, &Ranges),
    ) {
        self.syncing = Some(ranges.clone());
        self.sync(shared, handle, spool);
    }

    /// Syncs the working file.
    pub(crate) fn sync<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        spool: &Spool,
    ) {
        if spool.file().is_some() {
            self.syncs += 1;
            spool.sync(shared, handle);
        }
    }

    /// Notes that a sync is done. Returns whether others are under way: an earlier one says nothing
    /// about what was written after it was requested.
    pub(crate) fn synced(&mut self) -> bool {
        self.syncs = self.syncs.saturating_sub(1);
        self.syncs > 0
    }

    /// Takes the parts that were synced for safe; whether there were any.
    pub(crate) fn settle(&mut self) -> bool {
        let synced = self.syncing.take();
        let any = synced.is_some();
        if let Some(synced) = synced {
            self.safe = synced;
        }
        any
    }

    /// Drops the parts that are being synced: they are of no use.
    pub(crate) fn drop_syncing(&mut self) {
        self.syncing = None;
    }

    /// Takes all that is there for safe.
    pub(crate) fn complete(&mut self, ranges: &Ranges) {
        self.safe = ranges.clone();
    }

    /// Forgets what is safe beyond `len`: the file is shorter than its record says.
    pub(crate) fn truncate(&mut self, len: u64) {
        self.safe.remove(len, u64::MAX);
    }

    /// Forgets what is safe.
    pub(crate) fn forget(&mut self) {
        self.safe = Ranges::new();
    }
}
