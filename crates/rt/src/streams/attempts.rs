//! Attempts to connect to host names: one address after the other.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use engine::PathId;

use crate::Waker;
use crate::lookup::{HostPort, Lookups};

/// Longest wait for a resolver.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts to connect to host names.
#[derive(Debug)]
pub(super) struct Attempts {
    lookups: Lookups,
    /// Paths that wait for the addresses of their names.
    waiting: BTreeMap<PathId, HostPort>,
    /// Addresses that are tried if the present one fails.
    rest: BTreeMap<PathId, VecDeque<SocketAddr>>,
}

impl Attempts {
    pub(super) fn new(waker: Waker) -> Self {
        Self { lookups: Lookups::new(waker), waiting: BTreeMap::new(), rest: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn set_resolver(&mut self, resolver: crate::lookup::Resolver) {
        self.lookups.set_resolver(resolver);
    }

    /// Begins an attempt. Returns whether it waits for the resolver from now on.
    pub(super) fn begin(&mut self, path: PathId, host: HostPort) -> bool {
        if self.waiting.contains_key(&path) {
            return false;
        }
        // Without a thread for it the attempt ends by its timeout.
        self.lookups.start(path, &host);
        self.waiting.insert(path, host);
        true
    }

    /// Returns a path whose lookup has ended, with the first address.
    pub(super) fn poll(&mut self) -> Option<(PathId, Option<SocketAddr>)> {
        loop {
            let (path, found) = self.lookups.poll()?;
            // Results after the timeout, or after the engine has given up, are of no use.
            let Some(host) = self.waiting.remove(&path) else { continue };
            match found {
                Ok(addresses) => {
                    self.lookups.succeeded(path, &host);
                    self.rest.insert(path, addresses.into());
                    return Some((path, self.next(path)));
                }
                Err(error) => {
                    self.lookups.failed(path, &host, &error.to_string());
                    return Some((path, None));
                }
            }
        }
    }

    /// Ends the wait of a path for the resolver. Returns whether it waited.
    pub(super) fn expire(&mut self, path: PathId) -> bool {
        let Some(host) = self.waiting.remove(&path) else { return false };
        self.lookups.failed(path, &host, "the resolver does not reply");
        true
    }

    /// Returns the next address of a path to try.
    pub(super) fn next(&mut self, path: PathId) -> Option<SocketAddr> {
        let rest = self.rest.get_mut(&path)?;
        let next = rest.pop_front();
        if next.is_none() {
            self.rest.remove(&path);
        }
        next
    }

    /// Ends the attempt of a path, by success or because the engine gives it up.
    pub(super) fn end(&mut self, path: PathId) {
        self.waiting.remove(&path);
        self.rest.remove(&path);
    }
}
