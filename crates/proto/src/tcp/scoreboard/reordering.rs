//! Order of arrival, and how late a segment may be (RFC 8985).

use std::time::Duration;

use engine::Time;

/// Recoveries for which a longer allowance for reordering lasts (`TCP_RACK_RECOVERY_THRESH`).
const STEPS_LAST: u32 = 16;

/// Segment that was sent last of those that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    sent_at: Time,
    end: u64,
    /// Time that it took.
    pub(super) took: Duration,
}

impl Rack {
    /// Whether a segment was sent before it.
    pub(super) fn is_after(&self, sent_at: Time, end: u64) -> bool {
        (sent_at, end) < (self.sent_at, self.end)
    }
}

/// Order in which segments arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    rack: Option<Rack>,
    /// Behind the highest byte that arrived.
    highest: u64,
    /// Something arrived after what was sent later.
    reordered: bool,
    /// Quarters of the least round trip that something may be late.
    steps: u32,
    /// Recoveries after which that is one quarter again.
    steps_last: u32,
}

impl Reordering {
    pub(super) fn new(at: u64) -> Self {
        Self { rack: None, highest: at, reordered: false, steps: 1, steps_last: 0 }
    }

    pub(super) fn rack(&self) -> Option<Rack> {
        self.rack
    }

    pub(super) fn is_seen(&self) -> bool {
        self.reordered
    }

    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// A segment up to `end` arrived. Only those count that arrived before its acknowledgment did.
    pub(super) fn arrived(&mut self, end: u64, sent_once: bool, before: &mut Option<u64>) {
        // One acknowledgment may cover segments on both sides of a gap, in any order of its blocks:
        // only what arrived before it shows that the path reorders.
        let highest = *before.get_or_insert(self.highest);
        self.reordered |= sent_once && end < highest;
        self.highest = self.highest.max(end);
    }

    /// A segment arrived of which it is certain when it was sent.
    pub(super) fn advance(&mut self, sent_at: Time, end: u64, took: Duration) {
        if self.rack.is_none_or(|rack| (sent_at, end) > (rack.sent_at, rack.end)) {
            self.rack = Some(Rack { sent_at, end, took });
        }
    }

    /// A segment held for lost was late: it may be later from now on (RFC 8985 §6.2, step 4).
    pub(super) fn allow_more(&mut self) {
        self.reordered = true;
        self.steps = (self.steps + 1).min(16);
        self.steps_last = STEPS_LAST;
    }

    /// A recovery is over. After 16 of them without a late segment, one quarter of the least round
    /// trip is enough again (RFC 8985 §6.2, step 4).
    pub(super) fn recovered(&mut self) {
        self.steps_last = self.steps_last.saturating_sub(1);
        if self.steps_last == 0 {
            self.steps = 1;
        }
    }
}
