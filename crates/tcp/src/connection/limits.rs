//! Times during which a buffer limits the sender, counted as in Linux (`tcp_chrono`).

use engine::Time;

use super::Connection;
use crate::indication::Counts;

/// Buffer that limits a sender whose congestion window has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Receive window of the peer.
    PeerWindow,
    /// Send buffer: all its data is sent, and it has no room for more.
    SendBuffer,
}

/// Current limit, and its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limited(Option<(Limit, Time)>);

impl Limited {
    /// Replaces the limit, and adds the duration of the previous one to `counts`.
    fn set(&mut self, now: Time, limit: Option<Limit>, counts: &mut Counts) {
        if let Some((before, since)) = self.0 {
            let total = match before {
                Limit::PeerWindow => &mut counts.peer_window_limited,
                Limit::SendBuffer => &mut counts.send_buffer_limited,
            };
            *total += now.since(since);
        }
        self.0 = limit.map(|limit| (limit, now));
    }
}

impl Connection {
    /// Counts for the buffer that now limits the sender, if any.
    pub(super) fn count_limit(&mut self, now: Time) {
        let limit = if self.may_send() { self.limit(now) } else { None };
        self.limited.set(now, limit, &mut self.counts);
    }

    /// Buffer that limits the sender. Repairs, congestion window and pacing take precedence.
    fn limit(&mut self, now: Time) -> Option<Limit> {
        let mss = self.mss();
        let paced = self.timers.pace_at.is_some_and(|at| at > now);
        let full = self.in_flight() + mss > self.congestion_window();
        if paced || full || self.board.next_lost().is_some() {
            return None;
        }
        let waits = self.send.end().saturating_sub(self.snd.nxt());
        if waits > self.snd.usable() && self.snd.usable() < mss {
            return Some(Limit::PeerWindow);
        }
        let stuck = self.send.is_wanted() || self.send.room() < mss;
        (waits < mss && stuck && !self.send.is_finished()).then_some(Limit::SendBuffer)
    }
}
