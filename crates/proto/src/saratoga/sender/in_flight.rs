//! Parts that were sent again, and on which no STATUS reported since.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;

use super::requests::Echo;

/// Parts on their way, by their first byte.
#[derive(Debug, Default)]
pub(super) struct InFlight(BTreeMap<u64, Part>);

#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    /// Requests for a STATUS before it left.
    before: u64,
    at: Time,
}

impl InFlight {
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.0.len() * 64
    }

    /// Notes that a part left after so many requests for a STATUS.
    pub(super) fn sent(&mut self, (start, end): (u64, u64), before: u64, at: Time) {
        self.0.insert(start, Part { end, before, at });
    }

    /// Forgets those that the request before a STATUS followed: they are there, or lost. Without
    /// an echo, those that left `recent` ago.
    pub(super) fn settle(&mut self, echo: Option<Echo>, now: Time, recent: Duration) {
        self.0.retain(|_, part| match echo {
            Some(echo) => part.before >= echo.number,
            None => now.since(part.at) < recent,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the first part of `at..end` that is not on its way.
    pub(super) fn gap(&self, mut at: u64, end: u64) -> Option<(u64, u64)> {
        while at < end {
            match self.0.range(..=at).next_back() {
                Some((_, part)) if part.end > at => at = part.end,
                Some(_) | None => {
                    let next = self.0.range(at..end).next().map_or(end, |(start, _)| *start);
                    return Some((at, next));
                }
            }
        }
        None
    }
}
