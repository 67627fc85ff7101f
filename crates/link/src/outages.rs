//! Plans of when a link is up.

use std::time::Duration;

use engine::Time;

use crate::ConfigError;

/// A span of time: includes `start`, excludes `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First moment.
    pub start: Time,
    /// First moment after it.
    pub end: Time,
}

/// Times at which the near end cannot transmit, on the transmitter's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outages {
    /// The link is always up.
    #[default]
    Never,
    /// Down in these windows, ascending; they may touch.
    List(Vec<Window>),
    /// Down for `down` from `offset` on, repeated every `period`. Up before `offset`.
    Periodic {
        /// Time from the start of one outage to the next.
        period: Duration,
        /// Duration of each outage, less than `period`.
        down: Duration,
        /// Start of the first outage.
        offset: Time,
    },
    /// A contact plan: up only in these windows, ascending; they may touch.
    Contacts(Vec<Window>),
}

impl Outages {
    /// Whether the near end can transmit at `at`.
    #[must_use]
    pub fn is_up(&self, at: Time) -> bool {
        match self {
            Self::Never => true,
            Self::List(windows) => !within(windows, at),
            Self::Contacts(windows) => within(windows, at),
            Self::Periodic { period, down, offset } => match phase(*period, *offset, at) {
                Some(phase) => u128::from(phase) >= down.as_nanos(),
                None => true,
            },
        }
    }

    /// Returns the first moment after `at` at which [`is_up`](Self::is_up) changes; `None` if
    /// never.
    #[must_use]
    pub fn next_change(&self, at: Time) -> Option<Time> {
        match self {
            Self::Never => None,
            Self::List(windows) | Self::Contacts(windows) => next_edge(windows, at),
            Self::Periodic { down, .. } if down.is_zero() => None,
            Self::Periodic { period, down, offset } => {
                let change = match phase(*period, *offset, at) {
                    None => *offset,
                    Some(phase) => {
                        let phase = Duration::from_nanos(phase);
                        at + (if phase < *down { *down } else { *period } - phase)
                    }
                };
                // Time saturates at its end, where nothing changes any more.
                (change > at).then_some(change)
            }
        }
    }

    /// Returns the first moment from `at` on at which the link is up.
    pub(crate) fn up_from(&self, at: Time) -> Option<Time> {
        if self.is_up(at) { Some(at) } else { self.next_change(at) }
    }

    /// Returns the first moment from `at` on at which the link is down.
    pub(crate) fn down_from(&self, at: Time) -> Option<Time> {
        match self {
            Self::Never => None,
            Self::List(_) | Self::Periodic { .. } | Self::Contacts(_) => {
                if self.is_up(at) {
                    self.next_change(at)
                } else {
                    Some(at)
                }
            }
        }
    }

    /// Checks that windows are not empty and ascend, and that the link is up between outages.
    ///
    /// # Errors
    ///
    /// Names the first window that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Never => Ok(()),
            Self::List(windows) => ascending("outages", windows),
            Self::Contacts(windows) => ascending("contacts", windows),
            Self::Periodic { period, down, .. } if down >= period => {
                Err(ConfigError::NeverUp { period: *period, down: *down })
            }
            Self::Periodic { .. } => Ok(()),
        }
    }
}

/// Checks that windows are not empty and follow one another.
pub(crate) fn ascending(what: &'static str, windows: &[Window]) -> Result<(), ConfigError> {
    let mut end = Time::ZERO;
    for (number, window) in (1..).zip(windows) {
        if window.end <= window.start {
            return Err(ConfigError::EmptyWindow { what, number });
        }
        if window.start < end {
            return Err(ConfigError::Overlap { what, number });
        }
        end = window.end;
    }
    Ok(())
}

/// Returns nanoseconds since the latest outage started, `None` before the first.
fn phase(period: Duration, offset: Time, at: Time) -> Option<u64> {
    let passed = at.as_nanos().checked_sub(offset.as_nanos())?;
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    Some(passed % period.max(1))
}

/// Returns the index of the first window that ends after `at`.
fn first_open(windows: &[Window], at: Time) -> usize {
    windows.partition_point(|window| window.end <= at)
}

fn within(windows: &[Window], at: Time) -> bool {
    windows.get(first_open(windows, at)).is_some_and(|window| window.start <= at)
}

fn next_edge(windows: &[Window], at: Time) -> Option<Time> {
    let mut index = first_open(windows, at);
    let window = windows.get(index)?;
    if at < window.start {
        return Some(window.start);
    }
    // Windows that touch count as one.
    let mut end = window.end;
    while let Some(next) = windows.get(index + 1).filter(|next| next.start == end) {
        (end, index) = (next.end, index + 1);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(s: u64) -> Time {
        Time::from_secs(s)
    }

    fn windows(list: &[(u64, u64)]) -> Vec<Window> {
        list.iter().map(|&(start, end)| Window { start: secs(start), end: secs(end) }).collect()
    }

    #[test]
    fn windows_change_at_their_edges_and_touching_ones_are_one() {
        let plan = Outages::Contacts(windows(&[(1, 2), (2, 4), (6, 7)]));
        plan.validate().unwrap();
        let up: Vec<bool> = (0..8).map(|s| plan.is_up(secs(s))).collect();
        assert_eq!(up, [false, true, true, true, false, false, true, false]);
        let changes: Vec<_> = (0..8).map(|s| plan.next_change(secs(s))).collect();
        let at = |s| Some(secs(s));
        assert_eq!(changes, [at(1), at(4), at(4), at(4), at(6), at(6), at(7), None]);
        let list = Outages::List(windows(&[(1, 2), (2, 4), (6, 7)]));
        assert!((0..8).all(|s| list.is_up(secs(s)) != plan.is_up(secs(s))));
        assert_eq!(list.up_from(secs(1)), at(4));
        assert_eq!(list.down_from(secs(4)), at(6));
        assert_eq!((list.up_from(secs(9)), list.down_from(secs(9))), (at(9), None));
    }

    #[test]
    fn periodic_outages_repeat_for_ever() {
        let plan = Outages::Periodic {
            period: Duration::from_secs(10),
            down: Duration::from_secs(3),
            offset: secs(5),
        };
        for s in 0..200 {
            assert_eq!(plan.is_up(secs(s)), s < 5 || (s - 5) % 10 >= 3, "{s}");
            let next = plan.next_change(secs(s)).unwrap();
            let expected = (s + 1..).find(|&n| plan.is_up(secs(n)) != plan.is_up(secs(s)));
            assert_eq!(Some(next), expected.map(secs), "{s}");
        }
        assert_eq!(plan.next_change(Time::MAX), None);
    }

    #[test]
    fn invalid_bytes_are_refused() {
        for bad in [&[(2, 1)][..], &[(1, 1)], &[(1, 3), (2, 4)], &[(3, 4), (1, 2)]] {
            assert!(Outages::List(windows(bad)).validate().is_err(), "{bad:?}");
        }
        let day = Duration::from_secs(86_400);
        let never_up = Outages::Periodic { period: day, down: day, offset: secs(0) };
        assert!(never_up.validate().is_err());
    }
}
