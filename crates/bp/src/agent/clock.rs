//! Clocks of a node: the driver's, the wall clock, and the clock of records.
//!
//! The driver's clock counts the time of one run. The wall clock may be set at any time. Ages and
//! remaining lifetimes go on by the driver's clock, whatever happens to the wall clock. Records
//! have times of a clock that goes on from one run to the next: by the time since boot if both
//! runs are of the same boot, otherwise by the wall clock.

use std::time::Duration;

use engine::Time;

use super::config::{Boot, Config, millis};
use super::head::Head;
use crate::codec::bp6;
use crate::codec::bp7::Bounds;

/// Longest time between two records of the clocks while there are bundles.
pub(super) const NOTE: Duration = Duration::from_secs(60);

/// Conversions between the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Milliseconds from the start of 2000 to [`Time::ZERO`], if known.
    pub(super) dtn: Option<u64>,
    /// Milliseconds of the clock of records at [`Time::ZERO`].
    pub(super) kept: i64,
}

impl Clock {
    /// The DTN time of a moment (RFC 9171 §4.2.6).
    pub(super) fn dtn_time(self, at: Time) -> Option<u64> {
        self.dtn.map(|clock| clock.saturating_add(ms(at)))
    }

    /// The time in the format of version 6; 0 from a node without a clock.
    pub(super) fn version_six_time(self, at: Time) -> bp6::DtnTime {
        let ms = self.dtn_time(at).unwrap_or(0);
        bp6::DtnTime { seconds: ms / 1000, nanoseconds: ms % 1000 * 1_000_000 }
    }

    /// Milliseconds under which a moment is stored in records.
    pub(super) fn kept_ms(self, at: Time) -> u64 {
        ms(at).saturating_add_signed(self.kept)
    }

    /// Moment of stored milliseconds; at least now.
    pub(super) fn moment(self, now: Time, kept_ms: u64) -> Time {
        let at = i128::from(kept_ms) - i128::from(self.kept);
        let at = u64::try_from(at.max(0)).unwrap_or(u64::MAX);
        (Time::ZERO + Duration::from_millis(at)).max(now)
    }
}

/// All clocks at one moment, recorded so that a later run knows the time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) kept_ms: u64,
    /// Number of the machine's boot, and milliseconds since then.
    pub(super) boot: Option<(u64, u64)>,
    pub(super) dtn_ms: Option<u64>,
}

/// The clock of records.
#[derive(Debug)]
pub(super) struct Life {
    /// Its milliseconds at [`Time::ZERO`].
    pub(super) kept: i64,
    /// Clocks of an earlier boot, and the first number of this run: the time between the two boots
    /// is not known until the wall clock is right.
    gap: Option<(Clocks, u64)>,
    /// Time of the last record of the clocks.
    pub(super) noted: Option<Time>,
}

impl Life {
    /// Clock of records of a node without any.
    pub(super) fn new(clock: Option<u64>) -> Self {
        let kept = i64::try_from(clock.unwrap_or(0)).unwrap_or(i64::MAX);
        Self { kept, gap: None, noted: None }
    }

    /// Sets the clock such that it goes on from the end of an earlier run. `first` is the first
    /// number of a bundle of this run.
    pub(super) fn resume(&mut self, now: Time, config: &Config, before: Clocks, first: u64) {
        let boot = config.boot.map(|boot| since_boot(boot, now));
        let dtn_ms = config.clock.map(|clock| clock.saturating_add(ms(now)));
        let passed = match (boot, before.boot) {
            (Some((id, now_ms)), Some((same, then_ms))) if id == same => {
                now_ms.saturating_sub(then_ms)
            }
            _ => {
                // The machine was on at least since it was booted.
                let up_ms = boot.zip(before.boot).map_or(0, |((_, up_ms), _)| up_ms);
                let by_clock =
                    dtn_ms.zip(before.dtn_ms).and_then(|(now, then)| now.checked_sub(then));
                self.gap = by_clock.is_none().then_some((before, first));
                by_clock.unwrap_or(0).max(up_ms)
            }
        };
        let kept_ms = i128::from(before.kept_ms) + i128::from(passed) - i128::from(ms(now));
        self.kept = i64::try_from(kept_ms).unwrap_or(self.kept);
    }

    /// Adds the time between two boots, once the wall clock shows it. Returns the added
    /// milliseconds and the first number of this run.
    pub(super) fn fill_gap(&mut self, now: Time, dtn_ms: Option<u64>) -> Option<(u64, u64)> {
        let (before, first) = self.gap?;
        let passed = dtn_ms?.checked_sub(before.dtn_ms?)?;
        self.gap = None;
        let counted = ms(now).saturating_add_signed(self.kept).saturating_sub(before.kept_ms);
        let missing = passed.checked_sub(counted).filter(|missing| *missing > 0)?;
        self.kept = self.kept.saturating_add_unsigned(missing);
        Some((missing, first))
    }
}

/// Age in milliseconds of an arriving bundle, and its expiry (RFC 9171 §5.5). The age block counts
/// if there is no creation time or no local clock, or if one of them is wrong: the creation time
/// is in the future.
pub(super) fn ages(
    head: &Head,
    now: Time,
    clock: Clock,
    lifetime_max_ms: u64,
    bounds: &Bounds,
) -> (u64, Time) {
    let made_ms = head.creation().time_ms;
    let age = head.age_ms(bounds);
    let by_clock =
        clock.dtn_time(now).filter(|_| made_ms > 0).and_then(|now_ms| now_ms.checked_sub(made_ms));
    let age_ms = by_clock.or(age).unwrap_or(0);
    let lifetime_ms = head.lifetime_ms().min(lifetime_max_ms);
    let left = millis(lifetime_ms.saturating_sub(age_ms));
    (age.unwrap_or(age_ms), now + left)
}

fn ms(at: Time) -> u64 {
    at.as_nanos() / 1_000_000
}

pub(super) fn since_boot(boot: Boot, now: Time) -> (u64, u64) {
    (boot.id, boot.ms.saturating_add(ms(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(boot: Option<(u64, u64)>, clock: Option<u64>) -> Config {
        Config { boot: boot.map(|(id, ms)| Boot { id, ms }), clock, ..Config::default() }
    }

    /// Milliseconds that pass by the clock of records between two runs.
    fn passed(
        boot: Option<(u64, u64)>,
        dtn_ms: Option<u64>,
        boot_after: Option<(u64, u64)>,
        dtn_ms_after: Option<u64>,
    ) -> u64 {
        let now = Time::from_secs(2);
        let mut life = Life::new(dtn_ms_after);
        let before = Clocks { kept_ms: 5_000_000, boot, dtn_ms };
        life.resume(now, &config(boot_after, dtn_ms_after), before, 9);
        let clock = Clock { dtn: dtn_ms_after, kept: life.kept };
        assert_eq!(clock.moment(Time::ZERO, clock.kept_ms(now)), now);
        clock.kept_ms(now) - 5_000_000
    }

    #[test]
    fn the_clock_of_records_goes_on_from_run_to_run() {
        let boot = |ms| Some((1, ms));
        // By the time since boot, whatever the wall clock does.
        assert_eq!(passed(boot(10_000), None, boot(60_000), None), 52_000);
        assert_eq!(passed(boot(10_000), Some(900), boot(60_000), Some(5)), 52_000);
        assert_eq!(passed(boot(10_000), Some(5), boot(60_000), Some(900_000_000)), 52_000);
        // After another boot by the wall clock, and at least by the time since then.
        let other = |ms| Some((2, ms));
        assert_eq!(passed(boot(10_000), Some(9000), other(1000), Some(57_000)), 50_000);
        assert_eq!(passed(boot(10_000), Some(9000), other(1000), Some(7500)), 3000);
        assert_eq!(passed(boot(10_000), None, other(40_000), None), 42_000);
        // Without a boot by the wall clock alone.
        assert_eq!(passed(None, Some(9000), None, Some(57_000)), 50_000);
        assert_eq!(passed(None, None, None, None), 0);
    }
}
