//! Reports of the receiver: their claims, repetitions, and acknowledgements.

use std::collections::VecDeque;

use session::ranges::Ranges;

use crate::segment::Report;

/// Number of remembered runs of report serial numbers, for recognising repeated reports.
const REPORTS_KEPT: usize = 256;

/// Maximum number of queued acknowledgements. Reports beyond it are retransmitted by the peer.
const ACKS_MAX: usize = 1024;

/// Reports of the receiver.
#[derive(Debug)]
pub(super) struct Reports {
    /// Claimed parts of the red part.
    claimed: Ranges,
    /// Serial numbers of reports received. They count up, so that few runs cover many.
    seen: Ranges,
    acks_due: VecDeque<u64>,
    /// Consecutive reports without news.
    pub(super) cycles: u32,
}

impl Reports {
    pub(super) fn new() -> Self {
        Self { claimed: Ranges::new(), seen: Ranges::new(), acks_due: VecDeque::new(), cycles: 0 }
    }

    /// Claimed parts of the red part.
    pub(super) fn claimed(&self) -> &Ranges {
        &self.claimed
    }

    /// Whether any report arrived.
    pub(super) fn any(&self) -> bool {
        self.seen.covered() > 0
    }

    /// Queues the acknowledgement of a report.
    pub(super) fn acknowledge(&mut self, serial: u64) {
        if self.acks_due.len() < ACKS_MAX && !self.acks_due.contains(&serial) {
            self.acks_due.push_back(serial);
        }
    }

    /// Returns the serial number of the report to acknowledge next.
    pub(super) fn next_ack(&self) -> Option<u64> {
        self.acks_due.front().copied()
    }

    /// Notes that this acknowledgement was sent.
    pub(super) fn acknowledged(&mut self) {
        self.acks_due.pop_front();
    }

    /// Notes a report. Returns whether it was received before.
    pub(super) fn note_serial(&mut self, report: &Report<'_>) -> bool {
        let (start, end) = (report.serial, report.serial.saturating_add(1));
        let is_seen = self.seen.gaps(start, end).next().is_none();
        self.seen.insert(start, end);
        let oldest = self.seen.iter().next();
        if let Some((start, end)) = oldest.filter(|_| self.seen.len() > REPORTS_KEPT) {
            self.seen.remove(start, end);
        }
        is_seen
    }

    /// Notes the claims of a report, in at most `max` gaps. Returns whether they are new, and
    /// whether something was left out.
    ///
    /// A claim is a promise, which an older or smaller report does not withdraw. A receiver that
    /// lost claimed data cancels the session.
    pub(super) fn claim(&mut self, report: &Report<'_>, max: usize) -> (bool, bool) {
        let before = self.claimed.covered();
        let mut is_cut = false;
        for (start, end) in report.received() {
            if self.claimed.len() > max && self.claimed.would_add_range(start, end) {
                // The claimed data is retransmitted, and the gap closes once the data in between
                // has arrived.
                is_cut = true;
                continue;
            }
            self.claimed.insert(start, end);
        }
        let brings = self.claimed.covered() > before;
        self.cycles = if brings { 0 } else { self.cycles + 1 };
        (brings, is_cut)
    }
}
