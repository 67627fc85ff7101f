//! Paths of an emulated host, with their outages.

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use engine::{PathEvent, PathId, PathInfo, Time};
use link::Outages;

/// A path that is announced to the engine when it starts.
#[derive(Clone, Debug)]
pub(crate) struct KnownPath {
    /// The engine's number for it.
    pub(crate) path: PathId,
    /// Its properties.
    pub(crate) info: PathInfo,
    /// Outages of the first links: as long as one of them is up, the path is.
    pub(crate) outages: Vec<Outages>,
    /// The last link from the peer, where there is one peer and its route is known.
    pub(crate) back: Option<Back>,
}

/// The last link from a peer.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    /// Outages at its near end.
    pub(crate) outages: Outages,
    /// One-way light time: an outage starts and ends that much later at the far end.
    pub(crate) delay: Duration,
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

/// All paths of a host.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) known: Vec<KnownPath>,
    /// Properties of paths to unannounced peers, and the existing paths.
    stranger: PathInfo,
    strangers: BTreeSet<PathId>,
    /// Time of the next change of a known path, and when it was computed.
    change: Option<Time>,
    looked: Time,
}

/// Events for the engine, in order.
type Events = Vec<(PathId, PathEvent)>;

impl Paths {
    pub(super) fn new(known: Vec<KnownPath>, stranger: PathInfo) -> Self {
        let (strangers, change, looked) = (BTreeSet::new(), None, Time::ZERO);
        Self { known, stranger, strangers, change, looked }
    }

    /// Starts looking for changes at `now`.
    pub(super) fn begin(&mut self, now: Time) {
        self.looked = now;
        self.change = self.next_change(now);
    }

    /// Returns the next change of a known path.
    pub(super) fn change(&self) -> Option<Time> {
        self.change
    }

    /// Returns the state of all paths, for an engine that starts.
    pub(super) fn all(&self, now: Time) -> Events {
        let known = self.known.iter().flat_map(|known| known.state(now));
        let up = || PathEvent::Up(self.stranger.clone());
        known.chain(self.strangers.iter().map(|path| (*path, up()))).collect()
    }

    /// Returns events of the known paths that have changed by `now`; `None` if no change was due.
    pub(super) fn changed(&mut self, now: Time) -> Option<Events> {
        self.change.filter(|at| *at <= now)?;
        let before = mem::replace(&mut self.looked, now);
        let is_due = |change: Option<Time>| change.is_some_and(|next| next <= now);
        let mut events = Events::new();
        for known in &self.known {
            if known.outages.iter().any(|it| is_due(it.next_change(before))) {
                events.extend(known.state(now));
            }
            if known.back.as_ref().is_some_and(|back| is_due(back.next_change(before))) {
                events.push((known.path, known.return_state(now)));
            }
        }
        self.change = self.next_change(now);
        Some(events)
    }

    /// Returns the engine's events for a path event of the driver. For known paths, outages are
    /// added.
    pub(super) fn reported(&mut self, now: Time, path: PathId, event: PathEvent) -> Events {
        match (self.known.iter().find(|known| known.path == path), &event) {
            (Some(known), PathEvent::Up(_)) => known.state(now),
            (None, PathEvent::Up(_)) => {
                self.strangers.insert(path);
                vec![(path, PathEvent::Up(self.stranger.clone()))]
            }
            _ => {
                self.strangers.remove(&path);
                vec![(path, event)]
            }
        }
    }

    /// Whether a known path is down in either direction and will come up. Outages recur for ever,
    /// so outages of paths that are up do not count, as in the simulator.
    pub(super) fn will_come_up(&self, now: Time) -> bool {
        let comes_up = |known: &KnownPath| {
            let down = !known.outages.is_empty() && known.outages.iter().all(|it| !it.is_up(now));
            down && known.outages.iter().any(|it| it.next_change(now).is_some())
        };
        let returns = |known: &KnownPath| {
            let back = known.back.as_ref().filter(|back| !back.is_up(now));
            back.is_some_and(|back| back.next_change(now).is_some())
        };
        self.known.iter().any(|known| comes_up(known) || returns(known))
    }

    /// Returns the first time after `now` at which a known path changes in either direction.
    fn next_change(&self, now: Time) -> Option<Time> {
        let outages = self.known.iter().flat_map(|known| &known.outages);
        let there = outages.filter_map(|outages| outages.next_change(now));
        let back = self.known.iter().filter_map(|known| known.back.as_ref()?.next_change(now));
        there.chain(back).min()
    }
}

impl KnownPath {
    /// Returns its state in both directions.
    fn state(&self, now: Time) -> Events {
        let mut info = self.info.clone();
        let up = || self.outages.iter().filter(|outages| outages.is_up(now));
        let event = if self.outages.is_empty() || up().next().is_some() {
            info.until = info.until.or(up().filter_map(|outages| outages.next_change(now)).min());
            PathEvent::Up(info)
        } else {
            PathEvent::Down
        };
        let mut events = vec![(self.path, event)];
        if self.back.as_ref().is_some_and(|back| !back.is_up(now)) {
            events.push((self.path, PathEvent::ReturnDown));
        }
        events
    }

    /// Whether anything can arrive from the peer.
    fn return_state(&self, now: Time) -> PathEvent {
        let is_up = self.back.as_ref().is_none_or(|back| back.is_up(now));
        if is_up { PathEvent::ReturnUp } else { PathEvent::ReturnDown }
    }
}
