//! Numbers an agent assigns to held bundles, and to the bundles it creates.

/// Numbers an agent assigns.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    /// Creation time of the last bundle created here, and its sequence number.
    made: (u64, u64),
}

impl Numbers {
    /// Numbers of a new agent; without a clock, sequence numbers begin at `first`.
    pub(super) const fn new(first: u64) -> Self {
        Self { next: 1, made: (0, first) }
    }

    /// Next number for a bundle, its file and its record.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Records a number that an earlier run assigned.
    pub(super) fn is_given(&mut self, number: u64) {
        self.next = self.next.max(number.saturating_add(1));
    }

    /// Creation time of the last bundle created here, and its sequence number.
    pub(super) const fn made(&self) -> (u64, u64) {
        self.made
    }

    /// Sets creation time and sequence number of the last bundle created here.
    pub(super) fn set_made(&mut self, made: (u64, u64)) {
        self.made = made;
    }

    /// Records creation time and sequence number of a bundle of an earlier run.
    pub(super) fn was_made(&mut self, made: (u64, u64)) {
        self.made = self.made.max(made);
    }
}
