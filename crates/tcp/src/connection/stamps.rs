//! Timestamps (RFC 7323).

use std::time::Duration;

use engine::Time;

use crate::seq;

/// Age of the peer's last timestamp after which it is not compared any more (RFC 7323 §5.5).
const LAST: Duration = Duration::from_secs(24 * 86_400);

/// Timestamp clock, and the peer's last timestamp if both sides use them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// Offset of the clock.
    offset: u32,
    /// TS.Recent, and its time.
    recent: Option<(u32, Time)>,
}

impl Stamps {
    pub(super) fn new(offset: u32) -> Self {
        Self { offset, recent: None }
    }

    /// Records the peer's first timestamp, if both sides use them.
    pub(super) fn agree(&mut self, now: Time, first: Option<u32>) {
        self.recent = first.map(|first| (first, now));
    }

    pub(super) fn are_agreed(&self) -> bool {
        self.recent.is_some()
    }

    /// Last timestamp of the peer, and the offset of the clock.
    pub(super) fn recent(&self) -> Option<(u32, u32)> {
        self.recent.map(|(recent, _)| (recent, self.offset))
    }

    /// Clock in milliseconds.
    pub(super) fn clock(&self, now: Time) -> u32 {
        self.offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
    }

    /// TSval and TSecr of a segment.
    pub(super) fn of_segment(&self, now: Time) -> Option<(u32, u32)> {
        self.recent.map(|(recent, _)| (self.clock(now), recent))
    }

    /// Time since the echoed timestamp was sent.
    pub(super) fn since(&self, now: Time, echo: u32) -> Option<Duration> {
        let took = self.clock(now).wrapping_sub(echo);
        (echo != 0 && took < 1 << 30).then(|| Duration::from_millis(u64::from(took.max(1))))
    }

    /// Whether a timestamp is older than the last (RFC 7323 §5.3).
    pub(super) fn is_old(&self, now: Time, value: u32) -> bool {
        let is_old = |(recent, at)| seq::is_older(value, recent) && now.since(at) <= LAST;
        self.recent.is_some_and(is_old)
    }

    /// Records the peer's timestamp, unless it is older than the last (RFC 7323 §4.3).
    pub(super) fn update(&mut self, now: Time, value: u32) {
        if let Some(recent) = &mut self.recent
            && !seq::is_older(value, recent.0)
        {
            *recent = (value, now);
        }
    }
}
