//! Journal of an engine's sessions: ordered operations on each record.

use engine::IndexRequest;

use crate::path::Handle;
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
