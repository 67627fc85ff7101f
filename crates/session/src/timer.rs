//! Durations of timers.

use std::time::Duration;

/// Minimum duration of a timer, so that it cannot expire twice at one moment.
pub const TICK: Duration = Duration::from_nanos(1);

/// Longest wait between two probes of a silent peer, unless half a reply takes longer.
const PROBE_MOST: Duration = Duration::from_millis(250);

/// Default limit of a peer's silence: one hour and eight reply times.
///
/// An hour covers a peer that is restarted or that serves others first. The replies cover lost
/// ones: at 22 minutes of light, one repair round takes 44 minutes. 3,600 s + 8 * 2,650 s = 6 h
/// 53.
pub fn inactivity(reply: Duration) -> Duration {
    Duration::from_secs(3600) + reply * 8
}

/// Duration of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timer {
    /// Estimated from the light time, the measured replies and the data in flight; longer with each
    /// expiry in a row.
    #[default]
    Auto,
    /// Always this long.
    Fixed(Duration),
}

impl Timer {
    /// Duration of the timer after `misses` expiries in a row without a response; `auto` is the
    /// estimate for the path.
    pub fn duration(self, auto: Duration, misses: u32) -> Duration {
        let time = match self {
            Self::Fixed(fixed) => fixed,
            // The first three repeat at once, because a single loss is the likely cause. After that
            // the peer is probably out of reach, and waits get longer.
            Self::Auto => {
                let longer = auto.saturating_mul(1 << misses.saturating_sub(2).min(10));
                longer.min(auto.saturating_mul(4).max(Duration::from_secs(60)))
            }
        };
        time.max(TICK)
    }

    /// Wait before the next probe of a peer that left `misses` probes unanswered in a row; `reply`
    /// is the response time.
    ///
    /// Probes of `Auto` do not back off beyond the response time, because the outage of a peer ends
    /// without notice. A wait of a minute on a path of half a second would leave it idle for a
    /// minute. Later probes leave after half a response time, so that a lost one costs half a round
    /// trip. Over short paths the wait doubles up to 250 ms: 6, 6, 12, 24, ... ms at 6 ms. A probe
    /// of 60 bytes each 250 ms is 2 kbit/s, 0.9 MB an hour.
    pub fn probe(self, reply: Duration, misses: u32) -> Duration {
        match self {
            Self::Fixed(_) => self.duration(reply, misses),
            Self::Auto if misses == 0 => reply.max(TICK),
            Self::Auto => {
                let longer = reply.saturating_mul(1 << (misses - 1).min(10));
                longer.min(PROBE_MOST).max(reply / 2).max(TICK)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_wait_half_a_reply_at_most_beyond_a_quarter_of_a_second() {
        let waits = |millis: u64| {
            let reply = Duration::from_millis(millis);
            [0, 1, 2, 3, 4, 10, 100, u32::MAX]
                .map(|misses| Timer::Auto.probe(reply, misses).as_millis())
        };
        assert_eq!(waits(6), [6, 6, 12, 24, 48, 250, 250, 250]);
        assert_eq!(waits(536), [536, 268, 268, 268, 268, 268, 268, 268]);
        assert_eq!(waits(2_650_000)[..2], [2_650_000, 1_325_000]);
        let fixed = Timer::Fixed(Duration::from_secs(1));
        assert_eq!(fixed.probe(Duration::from_millis(6), 9), Duration::from_secs(1));
    }
}
