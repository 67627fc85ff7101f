//! How long timers run.

use std::time::Duration;

/// The least time a timer runs, so that it cannot go off twice at one moment.
pub(crate) const TICK: Duration = Duration::from_nanos(1);

/// Default limit of a peer's silence: one hour and eight reply times.
///
/// An hour covers a peer that is restarted or that serves others first. The replies cover lost
/// ones: at 22 minutes of light, one repair round takes 44 minutes. 3,600 s + 8 * 2,650 s = 6 h 53.
pub(crate) fn inactivity(reply: Duration) -> Duration {
    Duration::from_secs(3600) + reply * 8
}

/// How long a timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// As long as the light time, the measured answers and the data under way suggest, longer
    /// with each expiry in a row.
    Auto,
    /// Always this long.
    Fixed(Duration),
}

impl Timer {
    /// The timer's length after `misses` expiries in a row without a sign of life; `auto` is what
    /// is known of the path.
    pub(crate) fn duration(self, auto: Duration, misses: u32) -> Duration {
        let time = match self {
            Self::Fixed(fixed) => fixed,
            // The first three repeat at once, because a single loss is the likely cause; then
            // the peer is probably out of reach and waits get longer.
            Self::Auto => {
                let longer = auto.saturating_mul(1 << misses.saturating_sub(2).min(10));
                longer.min(auto.saturating_mul(4).max(Duration::from_secs(60)))
            }
        };
        time.max(TICK)
    }
}
