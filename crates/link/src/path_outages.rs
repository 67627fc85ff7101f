//! Known outages of a path, as events for the engine at its near end.

use std::time::Duration;

use engine::{PathEvent, PathInfo, Time};

use crate::Outages;

/// Changes looked at for the next contact. A path whose directions are never up together has none.
const CHANGES_MAX: usize = 10_000;

/// Outages of a path in both directions, known beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOutages {
    /// Outages of the first links: as long as one of them is up, the path is.
    pub first: Vec<Outages>,
    /// The last link from the peer, where there is one peer and its route is known.
    pub back: Option<Back>,
}

/// The last link from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// Outages at its near end.
    pub outages: Outages,
    /// One-way light time: an outage starts and ends that much later at the far end.
    pub delay: Duration,
}

impl Back {
    /// Returns the departure time of an arrival at `now`.
    fn left(&self, now: Time) -> Time {
        Time::ZERO + now.since(Time::ZERO + self.delay)
    }

    /// Whether anything can arrive.
    fn is_up(&self, now: Time) -> bool {
        self.outages.is_up(self.left(now))
    }

    /// Returns the next change after `now`.
    fn next_change(&self, now: Time) -> Option<Time> {
        self.outages.next_change(self.left(now)).map(|at| at + self.delay)
    }
}

impl PathOutages {
    /// Returns the state of a path with the properties `info` in both directions: `Up` until the
    /// next outage, or `Down`; then `ReturnDown` if nothing can arrive.
    #[must_use]
    pub fn state(&self, now: Time, mut info: PathInfo) -> Vec<PathEvent> {
        let up = || self.first.iter().filter(|outages| outages.is_up(now));
        let event = if self.is_up(now) {
            info.until = info.until.or(up().filter_map(|outages| outages.next_change(now)).min());
            PathEvent::Up(info)
        } else {
            PathEvent::Down
        };
        let mut events = vec![event];
        if self.back.as_ref().is_some_and(|back| !back.is_up(now)) {
            events.push(PathEvent::ReturnDown);
        }
        events
    }

    /// Returns the changes after `before` and until `now`, as the state at `now`.
    #[must_use]
    pub fn changed(&self, before: Time, now: Time, info: &PathInfo) -> Vec<PathEvent> {
        let is_due = |change: Option<Time>| change.is_some_and(|next| next <= now);
        let mut events = Vec::new();
        if self.first.iter().any(|it| is_due(it.next_change(before))) {
            events.extend(self.state(now, info.clone()));
        }
        if let Some(back) = self.back.as_ref().filter(|back| is_due(back.next_change(before))) {
            let is_up = back.is_up(now);
            events.push(if is_up { PathEvent::ReturnUp } else { PathEvent::ReturnDown });
        }
        events
    }

    /// Returns the first time after `now` at which a direction goes up or down.
    #[must_use]
    pub fn next_change(&self, now: Time) -> Option<Time> {
        let first = self.first.iter().filter_map(|outages| outages.next_change(now));
        let back = self.back.as_ref().and_then(|back| back.next_change(now));
        first.chain(back).min()
    }

    /// Whether anything can be sent.
    fn is_up(&self, now: Time) -> bool {
        self.first.is_empty() || self.first.iter().any(|outages| outages.is_up(now))
    }

    /// Whether both directions are up.
    #[must_use]
    pub fn is_contact(&self, now: Time) -> bool {
        self.is_up(now) && self.back.as_ref().is_none_or(|back| back.is_up(now))
    }

    /// Returns the first time from `now` on at which both directions are up; `None` if there is
    /// none.
    #[must_use]
    pub fn next_contact(&self, now: Time) -> Option<Time> {
        let changes = std::iter::successors(Some(now), |at| self.next_change(*at));
        changes.take(CHANGES_MAX).find(|at| self.is_contact(*at))
    }

    /// Whether it is down in either direction and will come up. Outages recur for ever, so those of
    /// a path that is up do not count.
    #[must_use]
    pub fn will_come_up(&self, now: Time) -> bool {
        let comes_up =
            !self.is_up(now) && self.first.iter().any(|outages| outages.next_change(now).is_some());
        let back = self.back.as_ref().filter(|back| !back.is_up(now));
        comes_up || back.is_some_and(|back| back.next_change(now).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;

    const fn secs(s: u64) -> Time {
        Time::from_secs(s)
    }

    /// A path up from 10 s to 20 s and from 50 s to 60 s, whose peer is 4 s away.
    fn passes() -> PathOutages {
        let windows = [(10, 20), (50, 60)];
        let windows = windows.map(|(start, end)| Window { start: secs(start), end: secs(end) });
        let outages = Outages::Contacts(windows.to_vec());
        let back = Back { outages: outages.clone(), delay: Duration::from_secs(4) };
        PathOutages { first: vec![outages], back: Some(back) }
    }

    #[test]
    fn each_direction_changes_at_its_own_time() {
        let (path, info) = (passes(), PathInfo::datagram(100));
        let up = |until| PathEvent::Up(PathInfo { until: Some(secs(until)), ..info.clone() });
        let down = [PathEvent::Down, PathEvent::ReturnDown];
        assert_eq!(path.state(secs(0), info.clone()), down);
        // Sending is possible from 10 s on; the first reply can arrive at 14 s.
        assert_eq!(path.state(secs(10), info.clone()), [up(20), PathEvent::ReturnDown]);
        assert_eq!(path.state(secs(14), info.clone()), [up(20)]);
        let changed = |before, now| path.changed(secs(before), secs(now), &info);
        assert_eq!(changed(10, 13), []);
        assert_eq!(changed(10, 14), [PathEvent::ReturnUp]);
        assert_eq!(changed(14, 20), [PathEvent::Down]);
        assert_eq!(changed(20, 24), [PathEvent::ReturnDown]);
        // A late look sees both.
        assert_eq!(
            changed(14, 30),
            [PathEvent::Down, PathEvent::ReturnDown, PathEvent::ReturnDown]
        );
        let changes = std::iter::successors(path.next_change(secs(0)), |at| path.next_change(*at));
        assert_eq!(changes.collect::<Vec<_>>(), [10, 14, 20, 24, 50, 54, 60, 64].map(secs));
    }

    #[test]
    fn a_contact_is_when_both_directions_are_up() {
        let path = passes();
        assert_eq!(path.next_contact(secs(0)), Some(secs(14)));
        assert_eq!(path.next_contact(secs(15)), Some(secs(15)));
        assert_eq!(path.next_contact(secs(20)), Some(secs(54)));
        assert_eq!(path.next_contact(secs(60)), None);
        assert!(path.will_come_up(secs(0)) && !path.will_come_up(secs(15)));
        assert!(path.will_come_up(secs(22)) && !path.will_come_up(secs(64)));
        // Directions that alternate for ever are never up together.
        let half = |offset| Outages::Periodic {
            period: Duration::from_secs(2),
            down: Duration::from_secs(1),
            offset: secs(offset),
        };
        let back = Back { outages: half(1), delay: Duration::ZERO };
        let path = PathOutages { first: vec![half(0)], back: Some(back) };
        assert_eq!(path.next_contact(secs(2)), None);
    }
}
