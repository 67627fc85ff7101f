//! Reports of the receiver: what they claim, which of them came before, and the acknowledgements
//! that they get.

use std::collections::VecDeque;

use wire::ltp::Report;

use crate::ranges::Ranges;

/// Runs of reports' serial numbers that are remembered, to see one that comes again.
const REPORTS_KEPT: usize = 256;

/// Acknowledgements that wait to be sent. Reports beyond it come again.
const ACKS_MAX: usize = 1024;

/// Reports of the receiver.
#[derive(Debug)]
pub(super) struct Reports {
    /// Parts of the red part that the receiver has.
    claimed: Ranges,
    /// Serial numbers of reports. They count up, so that however many they are, few runs hold them.
    seen: Ranges,
    acks_due: VecDeque<u64>,
    /// Reports in a row that brought nothing.
    pub(super) cycles: u32,
}

impl Reports {
    pub(super) fn new() -> Self {
        Self { claimed: Ranges::new(), seen: Ranges::new(), acks_due: VecDeque::new(), cycles: 0 }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let ranges = (self.claimed.len() + self.seen.len()) * 2 * size_of::<u64>();
        let reports = self.seen.len() * 2 + self.acks_due.len();
        ranges + reports * size_of::<u64>()
    }

    /// Parts of the red part that the receiver has.
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

    /// Notes that this acknowledgement left.
    pub(super) fn acknowledged(&mut self) {
        self.acks_due.pop_front();
    }

    /// Notes a report. Returns whether it came before.
    pub(super) fn is_repeated(&mut self, report: &Report<'_>) -> bool {
        let (start, end) = (report.serial, report.serial.saturating_add(1));
        let is_seen = self.seen.gaps(start, end).next().is_none();
        self.seen.insert(start, end);
        let oldest = self.seen.iter().next();
        if let Some((start, end)) = oldest.filter(|_| self.seen.len() > REPORTS_KEPT) {
            self.seen.remove(start, end);
        }
        is_seen
    }

    /// Notes what a report claims, in at most `max` gaps. Returns whether that is news, and whether
    /// something was left out.
    ///
    /// A claim is a promise, which a report that is older or claims less does not take back. A
    /// receiver that lost what it claimed cancels the session.
    pub(super) fn claim(&mut self, report: &Report<'_>, max: usize) -> (bool, bool) {
        let before = self.claimed.covered();
        let mut is_cut = false;
        for (start, end) in report.received() {
            if self.claimed.len() > max && self.claimed.would_add_range(start, end) {
                // It is sent again, and gone once what is between is there.
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
