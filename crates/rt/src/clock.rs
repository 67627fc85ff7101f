//! Clocks of the machine: the driver's, and the wall clock.

use std::time::{Duration, SystemTime};

use bp::agent::Boot;
use engine::Time;

/// Nanoseconds since the clock was made; monotonic, unaffected by the wall clock. Counts the time
/// in which the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Duration);

impl Clock {
    /// Returns a clock that starts at [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self(since_boot())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + since_boot().saturating_sub(self.0)
    }

    /// Returns the machine's boot, if the system names it.
    #[must_use]
    pub fn boot(&self) -> Option<Boot> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        let id = u64::from_str_radix(&digits, 16).ok()?;
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        Some(Boot { id, ms })
    }

    /// Returns the wall-clock time at [`Time::ZERO`], and how far it may be off.
    #[must_use]
    pub fn zero(&self) -> (SystemTime, Duration) {
        let before = since_boot();
        let wall = SystemTime::now();
        let between = since_boot().saturating_sub(before);
        let at = (before + between / 2).saturating_sub(self.0);
        (wall.checked_sub(at).unwrap_or(SystemTime::UNIX_EPOCH), between)
    }
}

/// Time since the machine was booted, time in suspension included.
#[expect(unsafe_code, reason = "a clock that the standard library does not read")]
fn since_boot() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` alone, which outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(result, 0, "every Linux since 2.6.39 has this clock");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns whether the wall clock is synchronised (adjtimex).
#[must_use]
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
pub(crate) fn is_synchronised() -> bool {
    // SAFETY: zeroes are a valid value of this struct of numbers.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to `state` alone, which outlives the call; without modes it
    // changes nothing.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    result >= 0 && result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_go_on_together() {
        let clock = Clock::start();
        let (zero, off) = clock.zero();
        let first = clock.now();
        let again = clock.zero();
        assert!(clock.now() >= first);
        let apart = again.0.duration_since(zero).unwrap_or_else(|error| error.duration());
        assert!(apart <= off + again.1 + Duration::from_millis(1), "{apart:?}");
        assert!(clock.boot().is_none_or(|boot| boot == clock.boot().unwrap() && boot.ms > 0));
    }
}
