//! Host names of a driver's peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use engine::{PathId, Time, Timers};

use crate::Waker;
use crate::lookup::{HostPort, Lookups};

/// Time from one lookup to the next: after a success, and after a failure.
const REFRESH: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);

/// Host names of a driver's peers, looked up again and again.
#[derive(Debug)]
pub(super) struct Names {
    lookups: Lookups,
    hosts: BTreeMap<PathId, HostPort>,
    due: Timers<PathId>,
    /// Paths without a usable address, which is logged once.
    unresolved: BTreeSet<PathId>,
}

impl Names {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            lookups: Lookups::new(waker),
            hosts: BTreeMap::new(),
            due: Timers::new(),
            unresolved: BTreeSet::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn set_resolver(&mut self, resolver: crate::lookup::Resolver) {
        self.lookups.set_resolver(resolver);
    }

    /// Has all names looked up again.
    #[cfg(test)]
    pub(super) fn look_again(&mut self, at: Time) {
        self.hosts.keys().for_each(|path| self.due.set(*path, at, "another lookup of a name"));
    }

    pub(super) fn insert(&mut self, path: PathId, host: HostPort) {
        if !self.lookups.start(path, &host) {
            self.due.set(path, Time::ZERO, "another lookup of a name");
        }
        self.hosts.insert(path, host);
    }

    pub(super) fn remove(&mut self, path: PathId) {
        self.hosts.remove(&path);
        self.due.cancel(path);
        self.unresolved.remove(&path);
    }

    /// Returns the addresses of a name that has been resolved, and begins lookups that are due.
    pub(super) fn poll(&mut self, now: Time) -> Option<(PathId, Vec<SocketAddr>)> {
        while let Some(path) = self.due.pop_due(now) {
            if let Some(host) = self.hosts.get(&path)
                && !self.lookups.start(path, host)
            {
                self.due.set(path, now + RETRY, "another lookup of a name");
            }
        }
        loop {
            let (path, found) = self.lookups.poll()?;
            if !self.hosts.contains_key(&path) {
                continue;
            }
            match found {
                Ok(addresses) => {
                    self.due.set(path, now + REFRESH, "another lookup of a name");
                    return Some((path, addresses));
                }
                Err(error) => self.failed(now, path, &error.to_string()),
            }
        }
    }

    /// Records that a name has no usable address now. A former one stays in use.
    pub(super) fn failed(&mut self, now: Time, path: PathId, error: &str) {
        self.due.set(path, now + RETRY, "another lookup of a name");
        if let Some(host) = self.hosts.get(&path)
            && self.unresolved.insert(path)
        {
            tracing::warn!(%host, error, "a host name is not resolved");
        }
    }

    /// Records that a name has an address.
    pub(super) fn succeeded(&mut self, path: PathId) {
        if let Some(host) = self.hosts.get(&path)
            && self.unresolved.remove(&path)
        {
            tracing::info!(%host, "a host name is resolved again");
        }
    }
}
