//! The driver's clock.

use std::time::Instant;

use engine::Time;

/// Nanoseconds since the clock was made, never going back whatever happens to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts at [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}
