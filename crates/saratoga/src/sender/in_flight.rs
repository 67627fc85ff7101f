//! Retransmitted parts without a later STATUS.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;

use super::requests::Echo;

/// Retransmitted parts by offset.
#[derive(Debug, Default)]
pub(super) struct InFlight(BTreeMap<u64, Part>);

#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    /// Number of STATUS requests sent before the part.
    before: u64,
    at: Time,
}

impl InFlight {
    /// Notes a part sent after `before` requests for a STATUS.
    pub(super) fn sent(&mut self, start: u64, end: u64, before: u64, at: Time) {
        self.0.insert(start, Part { end, before, at });
    }

    /// Forgets the parts sent before the request that a STATUS replies to: they arrived or are
    /// lost. Without an echo, those sent more than `recent` ago.
    pub(super) fn settle(&mut self, echo: Option<Echo>, now: Time, recent: Duration) {
        self.0.retain(|_, part| match echo {
            Some(echo) => part.before >= echo.number,
            None => now.since(part.at) < recent,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// First part of `at..end` that is not in flight.
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
