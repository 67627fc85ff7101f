//! The driver's clock.

use std::time::Instant;

use engine::Time;

/// Nanoseconds since the clock was made; monotonic, unaffected by the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Returns a clock that starts at [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}
