//! Conversion between DTN times and the driver's clock.

use std::time::Duration;

use engine::Time;

/// Milliseconds from the start of 2000 to [`Time::ZERO`], if known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(pub(super) Option<u64>);

impl Clock {
    /// The DTN time of a moment (RFC 9171 §4.2.6).
    pub(super) fn dtn_time(self, at: Time) -> Option<u64> {
        self.0.map(|clock| clock.saturating_add(at.as_nanos() / 1_000_000))
    }

    /// Milliseconds under which a moment is stored in records: since the DTN epoch if there is a
    /// clock, otherwise of the driver's clock.
    pub(super) fn kept_ms(self, at: Time) -> u64 {
        self.dtn_time(at).unwrap_or(at.as_nanos() / 1_000_000)
    }

    /// Moment of stored milliseconds; at least now.
    pub(super) fn moment(self, now: Time, kept_ms: u64) -> Time {
        let offset = self.0.unwrap_or(0);
        (Time::ZERO + Duration::from_millis(kept_ms.saturating_sub(offset))).max(now)
    }
}
