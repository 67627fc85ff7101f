//! Numbers that an agent gives: to bundles that it holds, and to those that it makes.

/// Numbers that an agent gives.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    /// The last time that a bundle was made here, and how many were then.
    made: (u64, u64),
}

impl Numbers {
    /// Numbers of an agent that has given none; without a clock, bundles count from `first` on.
    pub(super) const fn new(first: u64) -> Self {
        Self { next: 1, made: (0, first) }
    }

    /// A number for a bundle, its file and its record.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Notes a number that an earlier run gave.
    pub(super) fn is_given(&mut self, number: u64) {
        self.next = self.next.max(number.saturating_add(1));
    }

    /// The last time that a bundle was made here, and how many were then.
    pub(super) const fn made(&self) -> (u64, u64) {
        self.made
    }

    /// Notes that a bundle was made at this time, as the last of so many.
    pub(super) fn set_made(&mut self, made: (u64, u64)) {
        self.made = made;
    }

    /// Notes that an earlier run made a bundle at this time, with this number.
    pub(super) fn was_made(&mut self, made: (u64, u64)) {
        self.made = self.made.max(made);
    }
}
