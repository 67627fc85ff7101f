//! Asynchronous reports of gaps by a receiver (RFC 5326 §6.11).
//!
//! A gap is certain once later data of the first pass has arrived; checkpoints cover the data of
//! later passes. The first gap is reported at once. Gaps that appear within a fraction of a round
//! trip after it share the next report. That bounds the number of reports on the way, however many
//! gaps there are.

use std::time::Duration;

/// Unacknowledged reports above which no further one is made.
pub(crate) const OUTSTANDING_MAX: usize = 64;

/// Maximum number of asynchronous reports per round trip.
const PARTS: u32 = 8;

/// Gaps that a receiver has not reported.
#[derive(Debug)]
pub(crate) struct GapWatch {
    /// End of the red data received so far.
    front: u64,
    state: State,
    /// Serial numbers of the reports made.
    pub(crate) serials: Vec<u64>,
}

/// Run of data that arrived again in order, since the last report on such data.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    run: Option<(u64, u64)>,
}

impl Repeats {
    /// Notes data that does not advance the front. A pass that starts over ends a run; a copy does
    /// not.
    pub(crate) fn arrived(&mut self, start: u64, end: u64) {
        self.run = match self.run {
            Some((from, to)) if start >= to => Some((from, end)),
            Some((from, to)) if end == to => Some((from, to)),
            Some(_) | None => Some((start, end)),
        };
    }

    /// Whether the run has at least `least` bytes.
    pub(crate) fn is_long(&self, least: u64) -> bool {
        self.run.is_some_and(|(from, to)| to - from >= least)
    }

    /// Takes the run to report it now.
    pub(crate) fn take(&mut self) -> Option<(u64, u64)> {
        let (from, to) = self.run?;
        self.run = Some((to, to));
        Some((from, to))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No gap to report.
    Quiet,
    /// A report is due when it can be sent.
    Due,
    /// A report was sent recently; the flag states whether gaps have appeared since then.
    Resting { more: bool },
}

impl GapWatch {
    pub(crate) const fn new() -> Self {
        Self { front: 0, state: State::Quiet, serials: Vec::new() }
    }

    /// End of the red data received so far: the upper bound of a report.
    pub(crate) const fn front(&self) -> u64 {
        self.front
    }

    /// Notes red data. Returns whether the gap before it must be reported.
    pub(crate) fn arrived(&mut self, start: u64, end: u64) -> bool {
        let is_gap = start > self.front;
        self.front = self.front.max(end);
        if !is_gap {
            return false;
        }
        match self.state {
            State::Quiet => {
                self.state = State::Due;
                true
            }
            State::Due => false,
            State::Resting { .. } => {
                self.state = State::Resting { more: true };
                false
            }
        }
    }

    /// Notes that everything up to the front was reported for another reason.
    pub(crate) fn reported(&mut self) {
        self.state = match self.state {
            State::Quiet | State::Due => State::Quiet,
            State::Resting { .. } => State::Resting { more: false },
        };
    }

    pub(crate) fn is_due(&self) -> bool {
        self.state == State::Due
    }

    /// Starts the pause after a report; `more` if another report is still due.
    pub(crate) fn rest(&mut self, more: bool) {
        self.state = State::Resting { more };
    }

    /// Ends the pause. Returns whether a report is due.
    pub(crate) fn rested(&mut self) -> bool {
        let more = self.state == State::Resting { more: true };
        self.state = if more { State::Due } else { State::Quiet };
        more
    }

    /// Length of the pause if a reply takes `round_trip`.
    pub(crate) fn pause(round_trip: Duration) -> Duration {
        // 25 ms one way: one report per 6.25 ms.
        round_trip / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_repeats_ends_where_the_next_pass_begins() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.take(), None);
        repeats.arrived(100, 110);
        repeats.arrived(130, 140);
        repeats.arrived(130, 140);
        assert!(repeats.is_long(40) && !repeats.is_long(41));
        assert_eq!(repeats.take(), Some((100, 140)));
        assert!(!repeats.is_long(1));
        repeats.arrived(50, 60);
        assert_eq!(repeats.take(), Some((50, 60)));
    }

    #[test]
    fn gaps_share_a_report_while_one_rests() {
        let mut gaps = GapWatch::new();
        assert!(!gaps.arrived(0, 10) && !gaps.is_due());
        assert!(gaps.arrived(20, 30) && gaps.is_due());
        assert!(!gaps.arrived(40, 50), "it is due already");
        assert_eq!(gaps.front(), 50);
        gaps.rest(false);
        assert!(!gaps.arrived(10, 20), "a repair is no gap");
        assert!(!gaps.rested() && !gaps.is_due());
        assert!(gaps.arrived(60, 70));
        gaps.rest(false);
        assert!(!gaps.arrived(80, 90) && !gaps.arrived(100, 110));
        assert!(gaps.rested() && gaps.is_due());
        gaps.reported();
        assert!(!gaps.is_due());
    }
}
