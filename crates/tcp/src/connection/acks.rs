//! Acknowledgments that are owed to the peer.

use std::time::Duration;

use engine::Time;

/// Maximum number of acknowledgments owed; more would report nothing new.
const OWED_MAX: u32 = 64;

/// Last acknowledgment, and those owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acks {
    /// Last.ACK.sent.
    last: u64,
    /// Remaining initial acknowledgments without delay.
    quick: u32,
    /// Number of separate acknowledgments without data to send at once.
    owed: u32,
    /// Whether one is due with the next segment, or at once.
    is_due: bool,
    /// Range received twice.
    duplicate: Option<(u64, u64)>,
    last_challenge: Option<Time>,
}

impl Acks {
    pub(super) fn new(quick: u32) -> Self {
        Self { last: 0, quick, owed: 0, is_due: false, duplicate: None, last_challenge: None }
    }

    /// Sets the start of the peer's stream.
    pub(super) fn begin(&mut self, next: u64) {
        self.last = next;
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Owes another separate acknowledgment.
    pub(super) fn owe(&mut self) {
        self.owed = (self.owed + 1).min(OWED_MAX);
    }

    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// Notes that one of the acknowledgments owed was sent.
    pub(super) fn pay(&mut self) {
        self.owed -= 1;
    }

    /// Owes exactly one.
    pub(super) fn owe_one(&mut self) {
        self.owed = 1;
    }

    /// Makes an acknowledgment due with the next segment.
    pub(super) fn hasten(&mut self) {
        self.is_due = true;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Owes a challenge ACK, at most one per interval (RFC 5961 §5).
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

    /// Notes that everything before `next` was acknowledged.
    pub(super) fn left(&mut self, next: u64) {
        self.last = next;
        self.is_due = false;
        self.duplicate = None;
    }

    /// Stops acknowledging.
    pub(super) fn stop(&mut self) {
        (self.owed, self.is_due) = (0, false);
    }
}
