//! Moments of contact plans.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Time;
use wire::excerpt;

use crate::quantity::Span;

const SECOND: i128 = 1_000_000_000;

/// Meaning of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Time from which relative times count.
    pub epoch: SystemTime,
    /// Time that is [`Time::ZERO`] in the plan.
    pub zero: SystemTime,
}

impl Base {
    /// Relative times that stay as they are.
    #[must_use]
    pub const fn from_epoch(epoch: SystemTime) -> Self {
        Self { epoch, zero: epoch }
    }

    /// Nanoseconds of a time from the zero of the plan.
    pub(super) fn offset_of(&self, time: SystemTime) -> i128 {
        nanos(time) - nanos(self.zero)
    }

    /// Nanoseconds of a time after the epoch.
    pub(super) fn after_epoch(&self, since: i128) -> i128 {
        self.offset_of(self.epoch) + since
    }

    /// Nanoseconds of seconds as JSON and A-SABR have them: from 1e9 on they are Unix time, which
    /// was in 2001, and below it they count from the epoch. Also whether they do.
    pub(super) fn number(&self, seconds: f64) -> Option<(i128, bool)> {
        let since = self.exact(seconds)?;
        if since < SECOND * SECOND {
            Some((self.after_epoch(since), true))
        } else {
            Some((since - nanos(self.zero), false))
        }
    }

    /// Nanoseconds of a number of seconds.
    fn exact(&self, seconds: f64) -> Option<i128> {
        // 2^64 ns are 584 years.
        (seconds.is_finite() && seconds.abs() < 1.8e10).then(|| {
            let whole = seconds.floor();
            (whole as i128) * SECOND + ((seconds - whole) * 1e9).round() as i128
        })
    }
}

/// Nanoseconds from 1970.
fn nanos(time: SystemTime) -> i128 {
    let signed = |since: Duration| since.as_nanos() as i128;
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => signed(since),
        Err(before) => -signed(before.duration()),
    }
}

/// Nanoseconds as a time of the plan, which begins at 0.
pub(super) fn clamped(nanos: i128) -> Time {
    Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

impl Base {
    /// Time of the plan that a text names: `60 s` or `+60` after the epoch, or a date like
    /// `2026-11-22T08:00:00Z`.
    ///
    /// # Errors
    ///
    /// The text is neither.
    pub fn parse(&self, text: &str) -> Result<Time, String> {
        let since = match text.strip_prefix('+') {
            Some(seconds) => format!("{seconds} s").parse::<Span>(),
            None => text.parse::<Span>(),
        };
        if let Ok(Span(since)) = since {
            return Ok(clamped(self.after_epoch(since.as_nanos() as i128)));
        }
        let date = humantime::parse_rfc3339_weak(text).map_err(|_| {
            format!("invalid time {:?}: expected \"60 s\" after the epoch, or a date like \"2026-11-22T08:00:00Z\"", excerpt(text))
        })?;
        Ok(clamped(self.offset_of(date)))
    }

    /// A time of the plan in words: seconds, or a date from 2001 on.
    #[must_use]
    pub fn show(&self, time: Time) -> String {
        let unix = nanos(self.zero) + i128::from(time.as_nanos());
        if unix < SECOND * SECOND {
            return format!("{} s", time.as_secs_f64());
        }
        let since = Duration::from_nanos(u64::try_from(unix).unwrap_or(u64::MAX));
        humantime::format_rfc3339(UNIX_EPOCH + since).to_string()
    }
}
