//! Requests for a STATUS.
//!
//! Each carries its number in its timestamp, which the receiver sends back. So the sender knows
//! what it sent after the request, and does not send that again because the STATUS could not know
//! of it.

use std::time::Duration;

use engine::Time;
use wire::saratoga::{Status, TIMESTAMP_LEN, Timestamp};

/// The shortest and the longest time between two requests that `Timer::Auto` chooses.
const INTERVAL_LEAST: Duration = Duration::from_millis(10);
const INTERVAL_MOST: Duration = Duration::from_secs(60);

/// Shorter waits for a reply may be those of the path.
const OUTAGE_LEAST: Duration = Duration::from_secs(10);

/// The request to which a STATUS replies: when it left, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) at: Time,
    pub(super) number: u64,
}

/// Progress of a transfer, as a STATUS shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    progress: u64,
    in_response_to: u64,
    missing: u64,
    sent: u64,
}

/// Requests for a STATUS of one session, and the replies to them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requests so far.
    count: u64,
    /// When the next one is due while new data is sent.
    next: Option<Time>,
    /// Whether something was sent for which one is due once all else is sent.
    pub(super) is_due: bool,
    /// Requests so far when the end was first sent.
    end: Option<u64>,
    /// Requests in a row without a reply.
    pub(super) misses: u32,
    /// Requests so far when the last one was overdue.
    overdue: u64,
    /// Whether one has no reply.
    is_waiting: bool,
    /// Progress at the last STATUS, if one arrived.
    standing: Option<Standing>,
}

impl Requests {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a STATUS arrived.
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

    /// Whether one is due at a time, which the first one always is.
    pub(super) fn is_due_at(&self, at: Time, first: bool) -> bool {
        self.next.is_some_and(|next| next <= at) || first && self.count == 0
    }

    /// Has one go with the next data.
    pub(super) fn hurry(&mut self, now: Time) {
        self.next = Some(now);
    }

    /// Returns the timestamp of the next one.
    pub(super) fn timestamp(&self, at: Time) -> Timestamp {
        stamp(at, self.count + 1)
    }

    /// Notes that one left. Returns whether the wait for a reply begins with it.
    pub(super) fn left(&mut self) -> bool {
        self.count += 1;
        !std::mem::replace(&mut self.is_waiting, true)
    }

    /// Plans the next one after the usual time, and `within` a limit.
    pub(super) fn plan(&mut self, at: Time, usual: Option<Duration>, within: Option<Duration>) {
        self.next = usual.into_iter().chain(within).min().map(|wait| at + wait);
    }

    /// Default time between two requests where a STATUS takes `reply`.
    pub(super) fn interval(reply: Duration) -> Duration {
        (reply / 2).clamp(INTERVAL_LEAST, INTERVAL_MOST)
    }

    /// Notes that the end left, with a request or without.
    pub(super) fn end_left(&mut self) {
        self.end.get_or_insert(self.count);
        self.is_due = false;
    }

    /// Notes that the last one is overdue.
    pub(super) fn missed(&mut self) {
        self.misses += 1;
        self.overdue = self.count;
        self.is_due = true;
    }

    /// Notes a STATUS that arrived when `sent` bytes had been sent. Returns whether it brings news.
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

    /// Returns the request to which a STATUS replies, if it is one of this session.
    pub(super) fn echo(&self, status: &Status<'_>, now: Time) -> Option<Echo> {
        let echo = status.timestamp.and_then(|timestamp| unstamp(&timestamp))?;
        (echo.at <= now && (1..=self.count).contains(&echo.number)).then_some(echo)
    }

    /// Whether the time of a reply is one of the path, where replies usually take `reply`. What
    /// waited for the end of an outage says nothing of replies after it: one sample of 650 s would
    /// have the next probe wait for longer than that.
    pub(super) fn is_sample(&self, echo: Echo, now: Time, reply: Duration) -> bool {
        echo.number > self.overdue || now.since(echo.at) <= OUTAGE_LEAST + 8 * reply
    }

    /// Whether a STATUS that replies to a request knows of the end.
    pub(super) fn knows_end(&self, status: &Status<'_>, echo: Option<Echo>) -> bool {
        self.end.is_some_and(|end| echo.map_or(!status.is_voluntary, |echo| echo.number >= end))
    }
}

/// Bytes that a STATUS lists as missing.
pub(super) fn missing(status: &Status<'_>) -> u64 {
    let holes = status.holes.iter().map(|hole| (hole.last - hole.start).saturating_add(1));
    holes.fold(0, u64::saturating_add)
}

/// A timestamp of the kind that means something only to its sender (appendix A, type 0): when it
/// left, and the number of the request.
fn stamp(at: Time, number: u64) -> Timestamp {
    let mut bytes = [0; TIMESTAMP_LEN];
    bytes[..8].copy_from_slice(&at.as_nanos().to_be_bytes());
    bytes[8..15].copy_from_slice(&number.to_be_bytes()[1..]);
    bytes
}

/// When the packet with this timestamp left, and the number of its request.
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
    fn timestamps_come_back() {
        let at = Time::from_nanos(123_456_789_000);
        assert_eq!(unstamp(&stamp(at, 77)), Some(Echo { at, number: 77 }));
        assert_eq!(unstamp(&[1; 16]), None);
    }
}
