//! Windowed maximum filter over rounds.

use std::collections::VecDeque;

/// Values that may become the maximum: each larger than all later ones, at most one per round.
#[derive(Debug)]
pub(super) struct MaxFilter {
    rounds: u64,
    values: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    /// Filter over the round of the newest value and the `rounds` before it.
    pub(super) fn new(rounds: u64) -> Self {
        Self { rounds, values: VecDeque::new() }
    }

    pub(super) fn add(&mut self, round: u64, value: f64) {
        while self.values.back().is_some_and(|(_, last)| *last <= value) {
            self.values.pop_back();
        }
        if self.values.back().is_none_or(|(last, _)| *last < round) {
            self.values.push_back((round, value));
        }
        while self.values.front().is_some_and(|(first, _)| first + self.rounds < round) {
            self.values.pop_front();
        }
    }

    /// Maximum; 0 without values.
    pub(super) fn max(&self) -> f64 {
        self.values.front().map_or(0.0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_forgets_after_its_rounds() {
        let mut filter = MaxFilter::new(10);
        filter.add(1, 5.0);
        for round in 2..=11 {
            filter.add(round, 1.0 + round as f64 / 100.0);
            assert_eq!(filter.max(), 5.0, "round {round}");
        }
        filter.add(12, 1.0);
        assert_eq!(filter.max(), 1.11);
        filter.add(12, 1.05);
        filter.add(12, 1.02);
        assert_eq!(filter.values.len(), 2, "one a round");
    }
}
