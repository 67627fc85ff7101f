//! Queue of writes for a stream, kept separate.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::Time;

/// Queued writes, each with the time at which its program makes it.
#[derive(Debug, Default)]
pub(super) struct Writes {
    queue: VecDeque<(Time, Bytes)>,
    held: usize,
    /// Time at which the program has made all of them.
    busy_until: Time,
}

impl Writes {
    /// Adds a write that takes its program `cost`.
    pub(super) fn push(&mut self, now: Time, cost: Duration, bytes: Bytes) {
        self.busy_until = self.busy_until.max(now) + cost;
        self.held += bytes.len();
        if !bytes.is_empty() {
            self.queue.push_back((self.busy_until, bytes));
        }
    }

    /// Delays later writes by `cost`.
    pub(super) fn delay(&mut self, now: Time, cost: Duration) {
        self.busy_until = self.busy_until.max(now) + cost;
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Time of the next write.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Data to be written now, at most `len` bytes of one write.
    pub(super) fn take(&mut self, now: Time, len: usize) -> Option<Bytes> {
        let (at, bytes) = self.queue.front_mut()?;
        if *at > now {
            return None;
        }
        let taken = bytes.split_to(len.min(bytes.len()));
        if bytes.is_empty() {
            self.queue.pop_front();
        }
        self.held -= taken.len();
        Some(taken)
    }
}
