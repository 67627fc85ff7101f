//! Paths of an emulated host, with their outages.

use std::collections::BTreeSet;
use std::mem;

use engine::{PathEvent, PathId, PathInfo, Time};
use link::PathOutages;

/// A path that is announced to the engine when it starts.
#[derive(Clone, Debug)]
pub(crate) struct KnownPath {
    /// The engine's number for it.
    pub(crate) path: PathId,
    /// Its properties.
    pub(crate) info: PathInfo,
    /// Its outages in both directions.
    pub(crate) outages: PathOutages,
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
        let mut events = Events::new();
        for known in &self.known {
            let changed = known.outages.changed(before, now, &known.info);
            events.extend(changed.into_iter().map(|event| (known.path, event)));
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
        self.known.iter().any(|known| known.outages.will_come_up(now))
    }

    /// Returns the first time after `now` at which a known path changes in either direction.
    fn next_change(&self, now: Time) -> Option<Time> {
        self.known.iter().filter_map(|known| known.outages.next_change(now)).min()
    }
}

impl KnownPath {
    /// Returns its state in both directions.
    fn state(&self, now: Time) -> Events {
        let state = self.outages.state(now, self.info.clone());
        state.into_iter().map(|event| (self.path, event)).collect()
    }
}
