//! Numbers of the messages that carried an object's data.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

/// Number of runs remembered: those of several round trips.
const RUNS_MAX: usize = 512;

/// Message numbers on the wire repeat after as many messages.
const WRAP: u64 = 1 << 16;

/// Segments sent in consecutive messages.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of the first message, and its time.
    first: u64,
    at: Time,
    count: u64,
    /// Number of segments sent before.
    before: u64,
}

/// Segments sent, by the numbers of their messages.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: VecDeque<Run>,
    /// Segments that receivers have without these messages.
    skipped: u64,
}

impl Runs {
    pub(super) fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    /// Notes a segment sent in the message with this number.
    pub(super) fn sent(&mut self, number: u64, at: Time) {
        let mut before = 0;
        if let Some(last) = self.runs.back_mut() {
            if last.first + last.count == number {
                last.count += 1;
                return;
            }
            before = last.before + last.count;
        }
        if self.runs.len() >= RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(Run { first: number, at, count: 1, before });
    }

    /// Counts segments that receivers have without a message as sent before all others.
    pub(super) fn skip(&mut self, count: u64) {
        self.skipped += count;
    }

    /// Segments sent up to and including the message with this number.
    pub(super) fn through(&self, number: u64) -> u64 {
        self.skipped + self.sent_through(number)
    }

    fn sent_through(&self, number: u64) -> u64 {
        let run = self.runs.iter().rev().find(|run| run.first <= number);
        run.map_or_else(
            || self.runs.front().map_or(0, |run| run.before),
            |run| run.before + run.count.min((number - run.first).saturating_add(1)),
        )
    }

    /// Number of a message from its number on the wire, if it was received a round trip ago.
    /// `newest` is the number of the newest message sent.
    pub(super) fn unwrap(
        &self,
        wire: u16,
        newest: u64,
        now: Time,
        round_trip: Duration,
        interval: Duration,
    ) -> u64 {
        let back = (newest as u16).wrapping_sub(wire);
        let mut number = newest.saturating_sub(back.into());
        // Only on long and fast paths are there several messages with the number on the path.
        if interval * WRAP as u32 > round_trip * 2 {
            return number;
        }
        let soon = round_trip / 4 * 3;
        while number >= WRAP && self.time_of(number, interval) + soon > now {
            number -= WRAP;
        }
        number
    }

    /// Number of the last message sent up to a time, approximately.
    pub(super) fn number_at(&self, time: Time) -> u64 {
        let run = self.runs.iter().rev().find(|run| run.at <= time);
        run.map_or(0, |run| run.first + run.count)
    }

    fn time_of(&self, number: u64, interval: Duration) -> Time {
        let run = self.runs.iter().rev().find(|run| run.first <= number);
        run.map_or(Time::ZERO, |run| {
            let ahead = (number - run.first).min(run.count);
            run.at + interval * u32::try_from(ahead).unwrap_or(u32::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_by_messages() {
        let mut runs = Runs::default();
        let at = Time::ZERO;
        for number in (5..10).chain(12..15).chain([20]) {
            runs.sent(number, at);
        }
        let found = [0, 4, 5, 9, 10, 11, 12, 14, 19, 20, 99].map(|number| runs.through(number));
        assert_eq!(found, [0, 0, 1, 5, 5, 5, 6, 8, 8, 9, 9]);
        runs.skip(10);
        assert_eq!([0, 5, 99].map(|number| runs.through(number)), [10, 11, 19]);
    }

    #[test]
    fn old_runs_are_forgotten() {
        let mut runs = Runs::default();
        for number in 0..2_000 {
            runs.sent(2 * number, Time::ZERO);
        }
        assert_eq!(runs.through(3_998), 2_000);
        assert_eq!(runs.through(0), 2_000 - RUNS_MAX as u64);
    }

    #[test]
    fn more_segments_are_counted_than_32_bits_hold() {
        let mut runs = Runs::default();
        let most = u32::MAX;
        runs.runs.push_back(Run { first: 1, at: Time::ZERO, count: most.into(), before: 0 });
        let next = 1 + u64::from(most);
        runs.sent(next, Time::ZERO);
        runs.sent(next + 2, Time::ZERO);
        assert_eq!([next, next + 2].map(|number| runs.through(number)), [1 << 32, (1 << 32) + 1]);
    }

    #[test]
    fn numbers_on_the_wire_repeat() {
        let mut runs = Runs::default();
        let millis = Duration::from_millis(1);
        // A message every millisecond: 200,000 of them in 200 s.
        for number in 0..200_000_u64 {
            if number % 100 != 99 {
                runs.sent(number, Time::ZERO + millis * number as u32);
            }
        }
        let now = Time::from_secs(200);
        let near = Duration::from_secs(1);
        assert_eq!(runs.unwrap(199_000_u32 as u16, 199_999, now, near, millis), 199_000);
        let far = Duration::from_secs(100);
        assert_eq!(runs.unwrap(100_000_u32 as u16, 199_999, now, far, millis), 100_000);
        assert_eq!(runs.unwrap(3, 10, now, far, millis), 3);
    }
}
