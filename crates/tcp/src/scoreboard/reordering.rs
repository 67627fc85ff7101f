//! Order of arrival, and the allowed lateness of a segment (RFC 8985).

use std::time::Duration;

use engine::Time;

/// Recoveries for which a longer reordering allowance lasts (`TCP_RACK_RECOVERY_THRESH`).
const STEPS_LAST: u32 = 16;

/// Most recently sent of the segments that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    sent_at: Time,
    end: u64,
    /// Round trip of the segment.
    pub(super) took: Duration,
}

impl Rack {
    /// Whether it was sent after a given segment.
    pub(super) fn is_after(&self, sent_at: Time, end: u64) -> bool {
        (sent_at, end) < (self.sent_at, self.end)
    }
}

/// Order in which segments arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    rack: Option<Rack>,
    /// End of the highest byte that arrived.
    highest: u64,
    /// Whether data arrived after data sent later.
    reordered: bool,
    /// Allowed lateness in quarters of the minimum round trip.
    steps: u32,
    /// Recoveries until it is one quarter again.
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

    /// Notes the arrival of a segment up to `end`. Only earlier arrivals are compared.
    pub(super) fn arrived(&mut self, end: u64, sent_once: bool, before: &mut Option<u64>) {
        // One acknowledgment may cover segments on both sides of a gap, in any order of its blocks:
        // only earlier arrivals show reordering.
        let highest = *before.get_or_insert(self.highest);
        self.reordered |= sent_once && end < highest;
        self.highest = self.highest.max(end);
    }

    /// Notes the arrival of a segment with a certain sending time.
    pub(super) fn advance(&mut self, sent_at: Time, end: u64, took: Duration) {
        if self.rack.is_none_or(|rack| (sent_at, end) > (rack.sent_at, rack.end)) {
            self.rack = Some(Rack { sent_at, end, took });
        }
    }

    /// Allows more lateness after a segment considered lost was late (RFC 8985 §6.2, step 4).
    pub(super) fn allow_more(&mut self) {
        self.reordered = true;
        self.steps = (self.steps + 1).min(16);
        self.steps_last = STEPS_LAST;
    }

    /// Notes the end of a recovery. After 16 without a late segment, the allowance is one quarter
    /// of the minimum round trip again (RFC 8985 §6.2, step 4).
    pub(super) fn recovered(&mut self) {
        self.steps_last = self.steps_last.saturating_sub(1);
        if self.steps_last == 0 {
            self.steps = 1;
        }
    }
}
