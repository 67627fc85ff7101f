//! Numbers an agent assigns to held bundles, and to the bundles it creates.
//!
//! No two bundles of a node have the same creation timestamp, even if the clock was set back
//! between two runs, or within one. A record has a time that no bundle of earlier runs exceeds;
//! up to this time sequence numbers begin at another place in each run. Nothing of it is derived
//! from bundles, which others can forge, and no creation time is ahead of the clock.

use crate::codec::bp7::CreationTimestamp;

/// Milliseconds that a record is ahead of creation times, so that few are written.
const AHEAD_MS: u64 = 60_000;
/// Bits of a sequence number within a run, at times that earlier runs may have used.
const RUN_BITS: u32 = 32;

/// Creation times that were used, as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// No bundle has a later creation time.
    pub(super) until_ms: u64,
    /// Number of the run, or of the part of it between two steps back of the clock.
    pub(super) run: u64,
}

/// Numbers an agent assigns.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    /// Creation time of the last bundle created here, and its sequence number in this run.
    made: (u64, u64),
    used: Used,
    /// Up to this time earlier runs may have created bundles.
    earlier_ms: u64,
    /// Whether `used` is recorded.
    is_recorded: bool,
}

impl Numbers {
    /// Numbers of a new agent; without a clock, sequence numbers begin at `first`.
    pub(super) const fn new(first: u64) -> Self {
        let used = Used { until_ms: 0, run: 0 };
        Self { next: 1, made: (0, first), used, earlier_ms: 0, is_recorded: false }
    }

    /// Next number for a bundle, its file and its record.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Records a number that an earlier run assigned.
    pub(super) fn reserve(&mut self, number: u64) {
        self.next = self.next.max(number.saturating_add(1));
    }

    /// Creation timestamp of a new bundle (RFC 9171 §4.2.7), and what is to be recorded first.
    /// Without a clock the time is 0.
    pub(super) fn create(&mut self, time_ms: u64) -> (CreationTimestamp, Option<Used>) {
        let (last, sequence) = self.made;
        if time_ms == 0 {
            let sequence = sequence.wrapping_add(1);
            self.made = (0, sequence);
            return (CreationTimestamp { time_ms, sequence }, None);
        }
        if time_ms < last {
            self.begin_run();
        }
        let sequence = if time_ms == last { sequence.wrapping_add(1) } else { 0 };
        self.made = (time_ms, sequence);
        let is_new = time_ms > self.used.until_ms;
        if is_new {
            self.used.until_ms = time_ms.saturating_add(AHEAD_MS);
        }
        let record = (is_new || !self.is_recorded).then_some(self.used);
        self.is_recorded = true;
        let sequence = if time_ms <= self.earlier_ms {
            sequence.saturating_add(self.used.run << RUN_BITS)
        } else {
            sequence
        };
        (CreationTimestamp { time_ms, sequence }, record)
    }

    /// Continues after an earlier run, which recorded the times that it used.
    pub(super) fn resume(&mut self, used: Used) {
        self.used = used;
        self.begin_run();
    }

    /// Handles that the store did not record the used times: the next bundle is to do so.
    pub(super) const fn on_unrecorded(&mut self) {
        self.is_recorded = false;
    }

    const fn begin_run(&mut self) {
        self.earlier_ms = self.used.until_ms;
        self.used.run = self.used.run.wrapping_add(1);
        self.is_recorded = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Restarts and steps of the clock in either direction; a bundle is only created when what
        /// is to be recorded was.
        ///
        /// Requirements: B15.
        #[test]
        fn no_timestamp_is_used_twice(steps in prop::collection::vec(
            (0u8..5, -200_000i64..200_000, 1u32..4), 1..60,
        )) {
            let (mut numbers, mut record) = (Numbers::new(0), None::<Used>);
            let (mut clock, mut seen) = (1_000_000i64, BTreeSet::new());
            for (kind, step, count) in steps {
                match kind {
                    0 => {
                        numbers = Numbers::new(0);
                        record.into_iter().for_each(|used| numbers.resume(used));
                    }
                    1 => clock = (clock + step).max(1),
                    _ => clock += step.abs() % 3,
                }
                for _ in 0..count {
                    let (made, used) = numbers.create(clock as u64);
                    record = used.or(record);
                    prop_assert_eq!(made.time_ms, clock as u64);
                    prop_assert!(seen.insert(made), "{:?} twice", made);
                }
            }
        }
    }

    /// Requirements: B16a, B16b.
    #[test]
    fn sequences_are_short_where_no_earlier_run_was() {
        let mut numbers = Numbers::new(0);
        let mut create = |time_ms| {
            let (made, record) = numbers.create(time_ms);
            (made.sequence, record.is_some())
        };
        assert_eq!([create(5), create(5), create(6)], [(0, true), (1, false), (0, false)]);
        assert_eq!(create(6 + AHEAD_MS), (0, true));
        let mut numbers = Numbers::new(9);
        assert_eq!(numbers.create(0).0.sequence, 10);
        numbers.resume(Used { until_ms: 100, run: 3 });
        let (made, record) = numbers.create(100);
        assert_eq!((made.sequence, record), (4 << RUN_BITS, Some(Used { until_ms: 100, run: 4 })));
        assert_eq!(numbers.create(101).0.sequence, 0);
    }
}
