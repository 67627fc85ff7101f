//! The wall clock, which may be set while a process runs.

use std::time::{Duration, SystemTime};

use engine::Time;

/// Difference by which the wall clock has been set, not corrected gradually.
const STEP: Duration = Duration::from_millis(10);
/// Difference of which users are warned.
const WARN: Duration = Duration::from_millis(500);
/// Interval at which a clock that is not synchronised is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Seconds from 1970 to the start of 2000 (RFC 9171 §4.2.6).
const DTN_EPOCH_S: u64 = 946_684_800;

/// Use of the machine's wall clock by a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WallClock {
    /// None: the agent's clock stays as configured.
    #[default]
    Unused,
    /// From the start on. When it is set, the agent's clock follows.
    Always,
    /// As [`WallClock::Always`], but from the moment on at which the kernel reports it as
    /// synchronised. Until then the agent has no clock.
    WhenSynchronised,
}

/// Change of the agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has a clock now.
    Known,
    /// The clock was set forward by this time.
    Forward(Duration),
    /// The clock was set back by this time.
    Back(Duration),
}

/// The wall clock as its user knows it.
#[derive(Clone, Debug)]
pub(crate) struct Wall {
    wanted: WallClock,
    /// Wall-clock time at [`Time::ZERO`].
    zero: Option<SystemTime>,
    next_look: Time,
}

impl Wall {
    pub(crate) const fn new(wanted: WallClock) -> Self {
        Self { wanted, zero: None, next_look: Time::ZERO }
    }

    /// Compares a reading of the wall clock with the last one: its time at [`Time::ZERO`], and how
    /// far that may be off. Returns whether the agent's clock changes.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        read: impl FnOnce() -> (SystemTime, Duration),
        is_synchronised: impl FnOnce() -> bool,
    ) -> Option<(SystemTime, Change)> {
        let change = match (self.wanted, self.zero) {
            (WallClock::Unused, _) => return None,
            (WallClock::WhenSynchronised, None) => {
                if now < self.next_look {
                    return None;
                }
                self.next_look = now + LOOK;
                if !is_synchronised() {
                    return None;
                }
                (read().0, Change::Known)
            }
            (WallClock::Always, None) => (read().0, Change::Known),
            (WallClock::Always | WallClock::WhenSynchronised, Some(before)) => {
                let (zero, off) = read();
                let (change, by) = match zero.duration_since(before) {
                    Ok(by) => (Change::Forward(by), by),
                    Err(error) => (Change::Back(error.duration()), error.duration()),
                };
                if by <= STEP + off {
                    return None;
                }
                (zero, change)
            }
        };
        self.zero = Some(change.0);
        Some(change)
    }
}

impl Change {
    /// Logs the change.
    pub(crate) fn log(self) {
        let show = |by: Duration| format!("{:.1} s", by.as_secs_f64());
        match self {
            Self::Known => tracing::debug!("the agent has a clock"),
            Self::Forward(by) if by >= WARN => {
                let by = show(by);
                tracing::warn!(%by, "the clock was set forward; bundles keep their ages");
            }
            Self::Back(by) if by >= WARN => {
                let by = show(by);
                tracing::warn!(%by, "the clock was set back; bundles keep their ages");
            }
            Self::Forward(by) | Self::Back(by) => {
                tracing::debug!(by = %show(by), "the clock was set");
            }
        }
    }
}

/// Returns the DTN time (RFC 9171 §4.2.6) of a wall-clock time: milliseconds since the start of
/// 2000.
#[must_use]
pub fn dtn_ms(at: SystemTime) -> u64 {
    let unix = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(unix).unwrap_or(u64::MAX).saturating_sub(DTN_EPOCH_S * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds)
    }

    fn follow(wall: &mut Wall, zero: SystemTime) -> Option<Change> {
        let reading = (zero, Duration::ZERO);
        wall.follow(Time::from_secs(1), || reading, || true).map(|(_, change)| change)
    }

    #[test]
    fn steps_are_followed_in_the_turn_in_which_they_are_seen() {
        let mut wall = Wall::new(WallClock::Always);
        assert_eq!(follow(&mut wall, at(0)), Some(Change::Known));
        assert_eq!(follow(&mut wall, at(0)), None);
        assert_eq!(follow(&mut wall, at(1)), Some(Change::Forward(Duration::from_secs(1))));
        assert_eq!(follow(&mut wall, at(1)), None);
        assert_eq!(follow(&mut wall, at(1) + YEAR), Some(Change::Forward(YEAR)));
        assert_eq!(follow(&mut wall, at(0)), Some(Change::Back(YEAR + Duration::from_secs(1))));
        // Gradual corrections change both clocks; what is left is the error of reading them.
        assert_eq!(follow(&mut wall, at(0) + Duration::from_millis(9)), None);
        let late = (at(5), Duration::from_secs(6));
        assert_eq!(wall.follow(Time::ZERO, || late, || true), None);
        let mut wall = Wall::new(WallClock::Unused);
        assert_eq!(follow(&mut wall, at(0)), None);
    }

    #[test]
    fn a_clock_is_used_when_it_is_synchronised() {
        let mut wall = Wall::new(WallClock::WhenSynchronised);
        let reading = (at(0), Duration::ZERO);
        let never = || -> bool { panic!("it is not looked at") };
        assert_eq!(wall.follow(Time::ZERO, || reading, || false), None);
        assert_eq!(wall.follow(Time::from_nanos(1), || reading, never), None);
        let known = Some((at(0), Change::Known));
        assert_eq!(wall.follow(Time::from_secs(1), || reading, || true), known);
        // It is kept when the kernel no longer reports it.
        assert_eq!(wall.follow(Time::from_secs(2), || reading, never), None);
        let reading = (at(3), Duration::ZERO);
        let set = Some((at(3), Change::Forward(Duration::from_secs(3))));
        assert_eq!(wall.follow(Time::from_secs(2), || reading, never), set);
    }

    /// Requirements: B14.
    #[test]
    fn dtn_time_begins_in_2000() {
        assert_eq!(dtn_ms(SystemTime::UNIX_EPOCH), 0);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(DTN_EPOCH_S);
        assert_eq!(dtn_ms(start + Duration::from_millis(5)), 5);
    }
}
