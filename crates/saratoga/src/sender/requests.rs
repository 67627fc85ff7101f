//! Requests for a STATUS.
//!
//! Each carries its number in its timestamp, which the receiver echoes. The sender thus knows
//! which data followed the request, and does not retransmit data that the STATUS could not report.

use std::time::Duration;

use engine::{Rng, Time};

use crate::packet::{Status, TIMESTAMP_LEN, Timestamp};

/// Limits of the time between two requests with `Timer::Auto`.
const INTERVAL_LEAST: Duration = Duration::from_millis(10);
const INTERVAL_MOST: Duration = Duration::from_secs(60);

/// Waits for a reply shorter than this may be normal for the path.
const OUTAGE_LEAST: Duration = Duration::from_secs(10);

/// Request that a STATUS replies to: its sending time and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) at: Time,
    pub(super) number: u64,
}

/// Progress of a transfer, as shown by a STATUS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    progress: u64,
    in_response_to: u64,
    missing: u64,
    sent: u64,
}

/// Requests for a STATUS of one session, and their replies.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Number of requests so far.
    count: u64,
    /// Mask of the timestamps: only who received one can return it.
    mask: Timestamp,
    /// Time of the next request while new data is sent.
    next: Option<Time>,
    /// Whether a request is due after everything else is sent.
    pub(super) is_due: bool,
    /// Number of requests when the end was first sent.
    end: Option<u64>,
    /// Consecutive requests without a reply.
    pub(super) misses: u32,
    /// Number of requests when the last request timed out.
    overdue: u64,
    /// Whether one has no reply.
    is_waiting: bool,
    /// Progress at the last STATUS, if any.
    standing: Option<Standing>,
}

impl Requests {
    /// Requests whose timestamps neither a peer nor another process can guess.
    pub(super) fn masked(rng: &mut Rng) -> Self {
        let mut mask = [0; TIMESTAMP_LEN];
        mask[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        mask[8..15].copy_from_slice(&rng.next_u64().to_be_bytes()[1..]);
        Self { mask, ..Self::default() }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a STATUS has arrived.
    pub(super) fn has_reply(&self) -> bool {
        self.standing.is_some()
    }

    /// Whether a request has no reply.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether the end was sent.
    pub(super) fn end_sent(&self) -> bool {
        self.end.is_some()
    }

    /// Whether a request is due at this time. The first request always is.
    pub(super) fn is_due_at(&self, at: Time, first: bool) -> bool {
        self.next.is_some_and(|next| next <= at) || first && self.count == 0
    }

    /// Makes a request due with the next data.
    pub(super) fn hurry(&mut self, now: Time) {
        self.next = Some(now);
    }

    /// Timestamp of the next one.
    pub(super) fn timestamp(&self, at: Time) -> Timestamp {
        masked(stamp(at, self.count + 1), self.mask)
    }

    /// Notes a sent request. Returns whether the wait for a reply starts with it.
    pub(super) fn left(&mut self) -> bool {
        self.count += 1;
        !std::mem::replace(&mut self.is_waiting, true)
    }

    /// Schedules the next request after the usual time, and `within` a limit.
    pub(super) fn plan(&mut self, at: Time, usual: Option<Duration>, within: Option<Duration>) {
        self.next = usual.into_iter().chain(within).min().map(|wait| at + wait);
    }

    /// Default time between two requests where a STATUS takes `reply`.
    pub(super) fn interval(reply: Duration) -> Duration {
        (reply / 2).clamp(INTERVAL_LEAST, INTERVAL_MOST)
    }

    /// Notes that the end was sent, with a request or without.
    pub(super) fn end_left(&mut self) {
        self.end.get_or_insert(self.count);
        self.is_due = false;
    }

    /// Notes a timeout of the last request.
    pub(super) fn missed(&mut self) {
        self.misses += 1;
        self.overdue = self.count;
        self.is_due = true;
    }

    /// Notes a STATUS that arrived after `sent` bytes were sent. Returns whether it brings news.
    pub(super) fn arrived(&mut self, status: &Status<'_>, sent: u64) -> bool {
        let standing = Standing {
            progress: status.progress,
            in_response_to: status.in_response_to,
            missing: missing(status),
            sent,
        };
        let before = self.standing.replace(standing).unwrap_or_default();
        standing != before
    }

    /// Notes a sign of life.
    pub(super) fn news(&mut self) {
        self.misses = 0;
        self.is_waiting = false;
    }

    /// Request that a STATUS replies to, if it belongs to this session.
    pub(super) fn echo(&self, status: &Status<'_>, now: Time) -> Option<Echo> {
        let echo = status.timestamp.and_then(|timestamp| unstamp(&masked(timestamp, self.mask)))?;
        (echo.at <= now && (1..=self.count).contains(&echo.number)).then_some(echo)
    }

    /// Whether a reply's delay measures the path, where replies usually take `reply`. Replies that
    /// waited for the end of an outage do not predict later ones: after a sample of 650 s, the next
    /// probe would wait longer than 650 s.
    pub(super) fn is_sample(&self, echo: Echo, now: Time, reply: Duration) -> bool {
        echo.number > self.overdue || now.since(echo.at) <= OUTAGE_LEAST + 8 * reply
    }

    /// Whether the request that a STATUS replies to was sent after the end.
    pub(super) fn knows_end(&self, status: &Status<'_>, echo: Option<Echo>) -> bool {
        self.end.is_some_and(|end| echo.map_or(!status.is_voluntary, |echo| echo.number >= end))
    }
}

/// Bytes listed as missing.
pub(super) fn missing(status: &Status<'_>) -> u64 {
    let holes = status.holes.iter().map(|hole| (hole.last - hole.start).saturating_add(1));
    holes.fold(0, u64::saturating_add)
}

/// Timestamp with a mask applied, or removed.
fn masked(timestamp: Timestamp, mask: Timestamp) -> Timestamp {
    std::array::from_fn(|i| timestamp[i] ^ mask[i])
}

/// Opaque timestamp (appendix A, type 0): sending time and number of the request.
fn stamp(at: Time, number: u64) -> Timestamp {
    let mut bytes = [0; TIMESTAMP_LEN];
    bytes[..8].copy_from_slice(&at.as_nanos().to_be_bytes());
    bytes[8..15].copy_from_slice(&number.to_be_bytes()[1..]);
    bytes
}

/// Sending time and number of the request with this timestamp.
fn unstamp(bytes: &Timestamp) -> Option<Echo> {
    let (at, rest) = bytes.split_first_chunk::<8>()?;
    let number = rest.first_chunk::<8>().filter(|rest| rest[7] == 0)?;
    let at = Time::from_nanos(u64::from_be_bytes(*at));
    Some(Echo { at, number: u64::from_be_bytes(*number) >> 8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        let at = Time::from_nanos(123_456_789_000);
        assert_eq!(unstamp(&stamp(at, 77)), Some(Echo { at, number: 77 }));
        assert_eq!(unstamp(&[1; 16]), None);
    }
}
