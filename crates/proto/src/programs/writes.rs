//! What waits for a stream, each write by itself.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::Time;

/// Writes in their order, each with the moment before which its program has not made it.
#[derive(Debug, Default)]
pub(super) struct Writes {
    queue: VecDeque<(Time, Bytes)>,
    held: usize,
    /// When the program is done with all of them.
    busy_until: Time,
}

impl Writes {
    /// A write that takes its program so long.
    pub(super) fn push(&mut self, now: Time, cost: Duration, bytes: Bytes) {
        self.busy_until = self.busy_until.max(now) + cost;
        self.held += bytes.len();
        if !bytes.is_empty() {
            self.queue.push_back((self.busy_until, bytes));
        }
    }

    /// The program does something else for so long.
    pub(super) fn delay(&mut self, now: Time, cost: Duration) {
        self.busy_until = self.busy_until.max(now) + cost;
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// When the next one is made.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// What is to be written now, at most `len` bytes of one write.
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
