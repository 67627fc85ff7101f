//! Host names of a driver's peers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{PathId, Time, Timers};

use crate::Waker;
use crate::lookup::{HostPort, Lookups};

/// Time from one lookup to the next: after a success, and after a failure.
const REFRESH: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);
/// Reason of a timer.
const LOOKUP: &str = "another lookup of a name";

/// Host names of a driver's peers, looked up again and again.
#[derive(Debug)]
pub(super) struct Names {
    lookups: Lookups,
    hosts: BTreeMap<PathId, HostPort>,
    due: Timers<PathId>,
}

impl Names {
    pub(super) fn new(waker: Waker) -> Self {
        Self { lookups: Lookups::new(waker), hosts: BTreeMap::new(), due: Timers::new() }
    }

    #[cfg(test)]
    pub(super) fn set_resolver(&mut self, resolver: crate::lookup::Resolver) {
        self.lookups.set_resolver(resolver);
    }

    /// Has all names looked up again.
    #[cfg(test)]
    pub(super) fn look_again(&mut self, at: Time) {
        self.hosts.keys().for_each(|path| self.due.set(*path, at, LOOKUP));
    }

    pub(super) fn insert(&mut self, path: PathId, host: HostPort) {
        if !self.lookups.start(path, &host) {
            self.due.set(path, Time::ZERO, LOOKUP);
        }
        self.hosts.insert(path, host);
    }

    pub(super) fn remove(&mut self, path: PathId) {
        self.hosts.remove(&path);
        self.due.cancel(path);
        self.lookups.forget(path);
    }

    /// Returns the addresses of a name that has been resolved, and begins lookups that are due.
    pub(super) fn poll(&mut self, now: Time) -> Option<(PathId, Vec<SocketAddr>)> {
        while let Some(path) = self.due.pop_due(now) {
            if let Some(host) = self.hosts.get(&path)
                && !self.lookups.start(path, host)
            {
                self.due.set(path, now + RETRY, LOOKUP);
            }
        }
        loop {
            let (path, _, found) = self.lookups.poll()?;
            if !self.hosts.contains_key(&path) {
                continue;
            }
            match found {
                Ok(addresses) => {
                    self.due.set(path, now + REFRESH, LOOKUP);
                    return Some((path, addresses));
                }
                Err(error) => self.failed(now, path, &error.to_string()),
            }
        }
    }

    /// Records that a name has no usable address now. A former one stays in use.
    pub(super) fn failed(&mut self, now: Time, path: PathId, error: &str) {
        self.due.set(path, now + RETRY, LOOKUP);
        if let Some(host) = self.hosts.get(&path) {
            self.lookups.failed(path, host, error);
        }
    }

    /// Records that a name has an address.
    pub(super) fn succeeded(&mut self, path: PathId) {
        if let Some(host) = self.hosts.get(&path) {
            self.lookups.succeeded(path, host);
        }
    }
}
