//! Acknowledgments that are owed to the peer.

use std::time::Duration;

use engine::Time;

/// Acknowledgments owed at most; more of the same report nothing new.
const OWED_MAX: u32 = 64;

/// Last acknowledgment, and those that are owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acks {
    /// Last.ACK.sent.
    last: u64,
    /// Acknowledgments without delay that are left at the beginning.
    quick: u32,
    /// Acknowledgments without data to be sent at once, each by itself.
    owed: u32,
    /// One is due with whatever is sent first, or at once.
    is_due: bool,
    /// Bytes that arrived twice.
    duplicate: Option<(u64, u64)>,
    last_challenge: Option<Time>,
}

impl Acks {
    pub(super) fn new(quick: u32) -> Self {
        Self { last: 0, quick, owed: 0, is_due: false, duplicate: None, last_challenge: None }
    }

    /// The peer's stream begins at `next`.
    pub(super) fn begin(&mut self, next: u64) {
        self.last = next;
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Owes one more, at once and by itself.
    pub(super) fn owe(&mut self) {
        self.owed = (self.owed + 1).min(OWED_MAX);
    }

    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// One of those owed left.
    pub(super) fn pay(&mut self) {
        self.owed -= 1;
    }

    /// Owes exactly one.
    pub(super) fn owe_one(&mut self) {
        self.owed = 1;
    }

    /// One is due with whatever is sent first.
    pub(super) fn hasten(&mut self) {
        self.is_due = true;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Owes one for what should not have come, at most one an interval (RFC 5961 §5).
    pub(super) fn challenge(&mut self, now: Time, interval: Duration) {
        if self.last_challenge.is_none_or(|last| now.since(last) >= interval) {
            self.last_challenge = Some(now);
            self.owe();
        }
    }

    /// Whether this segment is acknowledged without delay, because the connection is new.
    pub(super) fn take_quick(&mut self) -> bool {
        let is_quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        is_quick
    }

    pub(super) fn note_duplicate(&mut self, start: u64, end: u64) {
        self.duplicate = Some((start, end));
    }

    pub(super) fn duplicate(&self) -> Option<(u64, u64)> {
        self.duplicate
    }

    /// An acknowledgment of all before `next` left.
    pub(super) fn left(&mut self, next: u64) {
        self.last = next;
        self.is_due = false;
        self.duplicate = None;
    }

    /// Nothing is acknowledged any more.
    pub(super) fn stop(&mut self) {
        (self.owed, self.is_due) = (0, false);
    }
}
