//! Attempts to connect to host names: one address after the other.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine::PathId;

use crate::Waker;
use crate::lookup::{HostPort, Lookups};

/// Longest wait for a resolver.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Age up to which a result that was late is used for the next attempt.
const LATE: Duration = Duration::from_secs(120);

/// An attempt to connect to a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It goes on already.
    Before,
    /// It waits for the resolver.
    Waits,
    /// The resolver replied to an earlier one that had ended: the first address.
    Resolved(SocketAddr),
}

/// Addresses that the resolver found after the end of the attempt.
#[derive(Debug)]
struct Late {
    host: HostPort,
    found: VecDeque<SocketAddr>,
    at: Instant,
}

/// Attempts to connect to host names.
#[derive(Debug)]
pub(super) struct Attempts {
    lookups: Lookups,
    /// Paths that wait for the addresses of their names.
    waiting: BTreeMap<PathId, HostPort>,
    /// Addresses that are tried if the present one fails.
    rest: BTreeMap<PathId, VecDeque<SocketAddr>>,
    late: BTreeMap<PathId, Late>,
}

impl Attempts {
    pub(super) fn new(waker: Waker) -> Self {
        let (waiting, rest, late) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { lookups: Lookups::new(waker), waiting, rest, late }
    }

    #[cfg(test)]
    pub(super) fn set_resolver(&mut self, resolver: crate::lookup::Resolver) {
        self.lookups.set_resolver(resolver);
    }

    /// Begins an attempt.
    pub(super) fn begin(&mut self, path: PathId, host: HostPort) -> Start {
        if self.waiting.contains_key(&path) {
            return Start::Before;
        }
        let late = self.late.remove(&path);
        if let Some(late) = late.filter(|late| late.host == host && late.at.elapsed() < LATE) {
            self.lookups.succeeded(path, &host);
            self.rest.insert(path, late.found);
            if let Some(address) = self.next(path) {
                return Start::Resolved(address);
            }
        }
        // Without a thread for it the attempt ends by its timeout.
        self.lookups.start(path, &host);
        self.waiting.insert(path, host);
        Start::Waits
    }

    /// Returns a path whose lookup has ended, with the first address.
    pub(super) fn poll(&mut self) -> Option<(PathId, Option<SocketAddr>)> {
        loop {
            let (path, host, found) = self.lookups.poll()?;
            if self.waiting.remove(&path).is_none() {
                // After the timeout, or after the engine has given up.
                if let Ok(found) = found {
                    let (found, at) = (found.into(), Instant::now());
                    self.late.retain(|_, late| late.at.elapsed() < LATE);
                    self.late.insert(path, Late { host, found, at });
                }
                continue;
            }
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

#[cfg(test)]
mod tests {
    use crate::Destination;

    use super::*;

    #[test]
    fn a_late_result_serves_the_next_attempt() {
        let waker = Waker::new().unwrap();
        let mut attempts = Attempts::new(waker.clone());
        attempts.set_resolver(|_| {
            std::thread::sleep(Duration::from_millis(100));
            Ok(vec!["192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap()])
        });
        let host = |name: &str| match name.parse().unwrap() {
            Destination::Host(host) => host,
            Destination::Address(address) => panic!("{address}"),
        };
        let path = PathId(1);
        let limit = Instant::now() + Duration::from_secs(60);
        for name in ["earth.example:1", "moon.example:1"] {
            assert_eq!(attempts.begin(path, host(name)), Start::Waits);
            assert_eq!(attempts.begin(path, host(name)), Start::Before);
            assert!(attempts.expire(path));
            while attempts.late.is_empty() {
                assert!(Instant::now() < limit);
                waker.wait_alone(Some(Duration::from_millis(100))).unwrap();
                assert_eq!(attempts.poll(), None);
            }
            if name.starts_with("earth") {
                let address = "192.0.2.1:1".parse().unwrap();
                assert_eq!(attempts.begin(path, host(name)), Start::Resolved(address));
                assert_eq!(attempts.next(path), "192.0.2.2:1".parse().ok());
                attempts.end(path);
            }
        }
        // It was for another name.
        assert_eq!(attempts.begin(path, host("mars.example:1")), Start::Waits);
    }
}
