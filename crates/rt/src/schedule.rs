//! Outages of a driver's paths that are known beforehand: a contact plan, or a schedule.

use std::time::{Duration, UNIX_EPOCH};

use engine::{PathEvent, PathInfo, Time};
use link::PathOutages;

use crate::Clock;
use crate::wall::{Wall, WallClock};

/// Zero of the times of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The driver's start. The wall clock has no effect.
    Start,
    /// 1970, by the wall clock. When that is set, the schedule follows.
    Unix,
}

/// Known outages of all paths of a driver.
#[derive(Clone, Debug)]
pub struct Schedule {
    outages: PathOutages,
    wall: Wall,
    /// Time of the schedule at the driver's zero.
    zero: Duration,
    /// Time of the last look.
    looked: Time,
    /// Time of the next change, on the driver's clock.
    change: Option<Time>,
    contact: Contact,
}

/// Whether a contact of a schedule is under way: whether datagrams can be sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contact {
    /// It is, or there is no schedule.
    #[default]
    Open,
    /// None is; the next one begins then, if there is one.
    Closed(Option<Time>),
}

/// Reason why paths change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A change of the schedule after this time is due.
    Due(Time),
    /// The wall clock was set.
    Set,
}

impl Schedule {
    /// Returns a schedule of outages whose times count from `zero`.
    #[must_use]
    pub const fn new(outages: PathOutages, zero: Zero) -> Self {
        let wall = match zero {
            Zero::Start => WallClock::Unused,
            Zero::Unix => WallClock::Always,
        };
        Self {
            outages,
            wall: Wall::new(wall),
            zero: Duration::ZERO,
            looked: Time::ZERO,
            change: None,
            contact: Contact::Open,
        }
    }

    /// Time of the schedule.
    fn there(&self, now: Time) -> Time {
        now + self.zero
    }

    /// Time of the driver; zero if it is before its start.
    fn here(&self, at: Time) -> Time {
        at - self.zero
    }

    /// Begins to follow the schedule.
    pub(crate) fn begin(&mut self, now: Time, clock: Clock) {
        self.look_at_clock(now, clock);
        self.look_ahead(now);
    }

    /// Returns the time of the next change.
    pub(crate) const fn change(&self) -> Option<Time> {
        self.change
    }

    /// Returns the change that paths need to know, if any. Reads the wall clock if `is_tick`.
    pub(crate) fn look(&mut self, now: Time, clock: Clock, is_tick: bool) -> Option<Change> {
        let is_set = is_tick && self.look_at_clock(now, clock);
        if !is_set && self.change.is_none_or(|at| at > now) {
            return None;
        }
        let before = self.looked;
        self.look_ahead(now);
        Some(if is_set { Change::Set } else { Change::Due(before) })
    }

    /// Compares with the wall clock; returns whether that was set.
    fn look_at_clock(&mut self, now: Time, clock: Clock) -> bool {
        let Some((zero, _)) = self.wall.follow(now, || clock.zero(), || true) else { return false };
        self.zero = zero.duration_since(UNIX_EPOCH).unwrap_or_default();
        true
    }

    fn look_ahead(&mut self, now: Time) {
        self.looked = now;
        let there = self.there(now);
        self.change = self.outages.next_change(there).map(|at| self.here(at));
        self.contact = if self.outages.is_contact(there) {
            Contact::Open
        } else {
            Contact::Closed(self.outages.next_contact(there).map(|at| self.here(at)))
        };
    }

    /// Returns whether there is a contact.
    pub(crate) const fn contact(&self) -> Contact {
        self.contact
    }

    /// Returns the state of a path with the properties `info`.
    pub(crate) fn state(&self, now: Time, info: PathInfo) -> Vec<PathEvent> {
        self.translated(self.outages.state(self.there(now), info))
    }

    /// Returns what a change means for a path.
    pub(crate) fn changed(&self, now: Time, change: Change, info: PathInfo) -> Vec<PathEvent> {
        match change {
            Change::Due(before) => {
                let (before, now) = (self.there(before), self.there(now));
                self.translated(self.outages.changed(before, now, &info))
            }
            Change::Set => {
                let mut events = self.state(now, info);
                if events.last() != Some(&PathEvent::ReturnDown) {
                    events.push(PathEvent::ReturnUp);
                }
                events
            }
        }
    }

    /// Events with the times of the driver.
    fn translated(&self, mut events: Vec<PathEvent>) -> Vec<PathEvent> {
        for event in &mut events {
            if let PathEvent::Up(info) = event {
                info.until = info.until.map(|at| self.here(at));
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use link::{Outages, Window};

    use super::*;

    #[test]
    fn a_schedule_of_dates_follows_the_wall_clock() {
        let clock = Clock::start();
        let unix = clock.zero().0.duration_since(UNIX_EPOCH).unwrap();
        let at = |s: u64| Time::ZERO + unix + Duration::from_secs(1_000 + s);
        let windows = vec![Window { start: at(0), end: at(60) }];
        let outages =
            PathOutages { first: vec![Outages::Contacts(windows)], ..PathOutages::default() };
        let mut schedule = Schedule::new(outages, Zero::Unix);
        schedule.begin(Time::ZERO, clock);
        let Contact::Closed(Some(next)) = schedule.contact() else { panic!("it begins later") };
        let off = |time: Time, s: u64| time.since(Time::ZERO).abs_diff(Duration::from_secs(s));
        assert!(off(next, 1_000) < Duration::from_millis(100), "{next}");
        let info = PathInfo::datagram(100);
        assert_eq!(schedule.state(Time::from_secs(5), info.clone()), [PathEvent::Down]);
        let [PathEvent::Up(up)] = &*schedule.state(Time::from_secs(1_010), info.clone()) else {
            panic!("it is up")
        };
        assert!(off(up.until.unwrap(), 1_060) < Duration::from_millis(100));
        assert_eq!(schedule.look(Time::from_secs(9), clock, true), None);
        // The clock was an hour behind.
        let hour = Duration::from_secs(3_600);
        schedule.wall = Wall::new(WallClock::Always);
        let before = clock.zero().0 - hour;
        let known = schedule.wall.follow(Time::ZERO, || (before, Duration::ZERO), || true);
        assert!(known.is_some());
        schedule.zero = unix - hour;
        schedule.look_ahead(Time::from_secs(9));
        assert_eq!(schedule.look(Time::from_secs(10), clock, false), None, "it is not a tick");
        assert_eq!(schedule.look(Time::from_secs(10), clock, true), Some(Change::Set));
        let changed = schedule.changed(Time::from_secs(1_010), Change::Set, info);
        assert!(matches!(&*changed, [PathEvent::Up(_), PathEvent::ReturnUp]), "{changed:?}");
    }
}
