//! Intervals between retransmissions of a segment whose reply is missing.
//!
//! While the peer replies to other segments of the session, a single loss is the likely cause: a
//! segment is retransmitted after each reply time. A peer that has been silent for several reply
//! times is probably unreachable. Then one segment of the session is retransmitted for all, at
//! short intervals: it soon detects the end of an outage, and takes a small share of the path.

use std::time::Duration;

use session::timer::Timer;

/// Reply times of silence after which the peer is probably unreachable.
const SILENT_AFTER: u32 = 4;

/// Interval between retransmissions to an unreachable peer, over all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Retransmission of a checkpoint; the receiver repeats its reports in reply: four per reply
    /// time, at most one every 500 ms.
    Checkpoint,
    /// Retransmission of a report, whose sender retransmits as well: one per reply time, at least
    /// one per second.
    Report,
}

impl Probe {
    fn interval(self, reply: Duration) -> Duration {
        match self {
            Self::Checkpoint => (reply / 4).max(Duration::from_millis(500)),
            Self::Report => reply.max(Duration::from_secs(1)),
        }
    }
}

/// Maximum share of a path used by probes of all sessions together: 1 / `PROBE_SHARE`.
const PROBE_SHARE: u32 = 8;

/// Maximum interval between retransmissions of a cancellation.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Silence of a peer from which replies are expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Time within which a reply is expected.
    pub(crate) reply: Duration,
    /// Time since the last reply.
    pub(crate) lasts: Duration,
}

impl Silence {
    /// Whether the peer is probably unreachable.
    pub(crate) fn is_long(self) -> bool {
        self.lasts >= self.reply.saturating_mul(SILENT_AFTER)
    }

    /// Time until the next retransmission of each of `sessions`. `packet` is the transmission time
    /// of a packet of maximum size.
    pub(crate) fn wait(
        self,
        timer: Timer,
        probe: Probe,
        packet: Duration,
        sessions: usize,
    ) -> Duration {
        let auto = match timer {
            Timer::Fixed(_) => return timer.duration(self.reply, 0),
            Timer::Auto if !self.is_long() => return timer.duration(self.reply, 0),
            Timer::Auto => self.reply,
        };
        // 5 ms of reply time: 5 ms apart after 20 ms of silence, 500 ms apart from 2 s on. 44 min:
        // 11 min apart.
        let most = probe.interval(auto).max(packet.saturating_mul(PROBE_SHARE));
        let one = (self.lasts / 4).clamp(auto.min(most), most);
        one.saturating_mul(u32::try_from(sessions.max(1)).unwrap_or(u32::MAX))
    }
}

/// Time until the next retransmission to a peer that may be gone. It doubles from the `steady`th
/// on.
pub(crate) fn backed_off(timer: Timer, reply: Duration, attempts: u32, steady: u32) -> Duration {
    let once = timer.duration(reply, 0);
    match timer {
        Timer::Fixed(_) => once,
        Timer::Auto => {
            let longer = once.saturating_mul(1 << attempts.saturating_sub(steady).min(10));
            longer.min(once.saturating_mul(4).max(BACKOFF_MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_ms(reply: u64, lasts: u64, packet: u64, sessions: usize) -> u128 {
        let [reply, lasts, packet] = [reply, lasts, packet].map(Duration::from_millis);
        Silence { reply, lasts }.wait(Timer::Auto, Probe::Checkpoint, packet, sessions).as_millis()
    }

    #[test]
    fn a_peer_that_replies_is_retransmitted_to_after_each_reply_time() {
        assert_eq!(wait_ms(200, 0, 1, 1), 200);
        assert_eq!(wait_ms(200, 799, 1, 1), 200);
        assert_eq!(wait_ms(2_650_000, 10_000_000, 1, 1), 2_650_000);
    }

    #[test]
    fn a_silent_peer_is_probed_at_short_intervals() {
        assert_eq!(wait_ms(540, 2160, 1, 1), 500);
        assert_eq!(wait_ms(540, 18_000_000, 1, 1), 500);
        assert_eq!(
            [20, 80, 1000, 1_000_000].map(|lasts| wait_ms(5, lasts, 1, 1)),
            [5, 20, 250, 500]
        );
        assert_eq!(wait_ms(2_640_000, 20_000_000, 1, 1), 660_000);
    }

    #[test]
    fn probes_take_a_share_of_the_path() {
        // 64 sessions: two probes per second in total, or with packets of 120 ms one in eight.
        assert_eq!(wait_ms(540, 18_000_000, 12, 64), 32_000);
        assert_eq!(wait_ms(540, 18_000_000, 120, 64), 61_440);
    }

    #[test]
    fn cancellations_back_off() {
        let at =
            |attempts| backed_off(Timer::Auto, Duration::from_millis(200), attempts, 2).as_millis();
        assert_eq!([1, 2, 3, 4, 12, 30].map(at), [200, 200, 400, 800, 60_000, 60_000]);
        let fixed = Timer::Fixed(Duration::from_secs(7));
        assert_eq!(backed_off(fixed, Duration::ZERO, 30, 2), Duration::from_secs(7));
    }
}
