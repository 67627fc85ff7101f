//! Destinations of paths, and lookups of host names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine::PathId;
use thiserror::Error;

use crate::Waker;

/// Longest host name, and longest part of it between two dots (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;
/// Threads of one driver that wait for a resolver: for most names, and for those whose last lookup
/// was long, so that they do not hold up the others.
const THREADS_MAX: [usize; 2] = [32, 8];
/// Duration of a long lookup.
const LONG: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 2000 });

/// Destination of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// IP address and port.
    Address(SocketAddr),
    /// Host name and port; the name is resolved when its address is needed.
    Host(HostPort),
}

/// Host name with a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    name: String,
    port: u16,
}

/// Text that is no destination.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid address {0:?}: expected an IP address or a host name with a port: \"192.0.2.2:4556\", \
     \"[2001:db8::2]:4556\", \"earth.example:4556\""
)]
pub struct ParseDestinationError(String);

impl Destination {
    /// Returns the address, unless it is a host name.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Host(_) => None,
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host(host) => host.fmt(f),
        }
    }
}

impl FromStr for Destination {
    type Err = ParseDestinationError;

    fn from_str(text: &str) -> Result<Self, ParseDestinationError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let wrong = || ParseDestinationError(wire::excerpt(text));
        let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        if !is_host_name(name) {
            return Err(wrong());
        }
        Ok(Self::Host(HostPort { name: name.to_owned(), port }))
    }
}

/// Whether a text may be a host name (RFC 1123 §2.1), with underscores as many networks use them.
fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        (1..=LABEL_MAX).contains(&label.len())
            && !label.starts_with('-')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A name whose last part is a number is a mistyped IPv4 address.
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= NAME_MAX
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

type Request = (PathId, HostPort);

/// Result of a lookup.
struct Reply {
    lane: usize,
    path: PathId,
    host: HostPort,
    found: Found,
    took: Duration,
}

/// Addresses of a name in the resolver's order, at least one.
type Found = io::Result<Vec<SocketAddr>>;
pub(crate) type Resolver = fn(&HostPort) -> Found;
type Work = Box<dyn FnOnce() + Send>;

/// Threads for some of the lookups.
#[derive(Debug)]
struct Lane {
    requests: (Sender<Request>, Receiver<Request>),
    threads: usize,
    /// Lookups without a result.
    busy: usize,
}

/// Lookups of host names, by the system's resolver in threads of their own: it may take long, and
/// cannot be interrupted.
#[derive(Debug)]
pub(crate) struct Lookups {
    waker: Waker,
    resolver: Resolver,
    /// Starts a thread.
    spawn: fn(Work) -> io::Result<()>,
    lanes: [Lane; 2],
    results: (Sender<Reply>, Receiver<Reply>),
    /// Paths whose last lookup was long.
    long: BTreeSet<PathId>,
    /// Paths whose names are being looked up.
    pending: BTreeMap<PathId, HostPort>,
    /// Paths whose names have no usable address, which is logged once.
    unresolved: BTreeSet<PathId>,
}

impl Lookups {
    /// Creates lookups that wake `waker` with each result.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            waker,
            resolver: addresses,
            spawn,
            lanes: [(); 2].map(|()| Lane { requests: unbounded(), threads: 0, busy: 0 }),
            results: unbounded(),
            long: BTreeSet::new(),
            pending: BTreeMap::new(),
            unresolved: BTreeSet::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn set_resolver(&mut self, resolver: Resolver) {
        self.resolver = resolver;
    }

    /// Looks up the name of a path; no effect while that is being done. Returns whether a result
    /// will follow: without a thread there is none, and a later start tries again.
    pub(crate) fn start(&mut self, path: PathId, host: &HostPort) -> bool {
        if self.pending.get(&path) == Some(host) {
            return true;
        }
        let number = usize::from(self.long.contains(&path));
        let Lane { threads, busy, .. } = self.lanes[number];
        if threads <= busy && threads < THREADS_MAX[number] {
            self.begin_thread(number);
        }
        let lane = &mut self.lanes[number];
        if lane.threads == 0 {
            return false;
        }
        lane.busy += 1;
        self.pending.insert(path, host.clone());
        // Its receiver is in this struct.
        let _ = lane.requests.0.send((path, host.clone()));
        true
    }

    fn begin_thread(&mut self, lane: usize) {
        let (requests, results) = (self.lanes[lane].requests.1.clone(), self.results.0.clone());
        let (waker, resolver) = (self.waker.clone(), self.resolver);
        let started = (self.spawn)(Box::new(move || {
            for (path, host) in requests {
                let started = Instant::now();
                let found = resolver(&host);
                let reply = Reply { lane, path, host, found, took: started.elapsed() };
                if results.send(reply).is_err() {
                    return;
                }
                waker.wake();
            }
        }));
        match started {
            Ok(()) => self.lanes[lane].threads += 1,
            // The others serve it.
            Err(error) => tracing::warn!(%error, "a thread for host names cannot be started"),
        }
    }

    /// Returns the result of a lookup.
    pub(crate) fn poll(&mut self) -> Option<(PathId, HostPort, Found)> {
        loop {
            let Reply { lane, path, host, found, took } = self.results.1.try_recv().ok()?;
            self.lanes[lane].busy -= 1;
            // The path may have another name since then.
            if self.pending.get(&path) == Some(&host) {
                self.pending.remove(&path);
                if took >= LONG {
                    self.long.insert(path)
                } else {
                    self.long.remove(&path)
                };
                return Some((path, host, found));
            }
        }
    }

    /// Logs that the name of a path has no usable address now.
    pub(crate) fn failed(&mut self, path: PathId, host: &HostPort, error: &str) {
        if self.unresolved.insert(path) {
            tracing::warn!(%host, error, "a host name is not resolved");
        }
    }

    /// Logs that the name of a path has an address again.
    pub(crate) fn succeeded(&mut self, path: PathId, host: &HostPort) {
        if self.unresolved.remove(&path) {
            tracing::info!(%host, "a host name is resolved again");
        }
    }

    /// Forgets a path.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.unresolved.remove(&path);
        self.long.remove(&path);
    }
}

fn spawn(work: Work) -> io::Result<()> {
    std::thread::Builder::new().name("resolver".to_owned()).spawn(work).map(drop)
}

/// Resolves a name.
fn addresses(host: &HostPort) -> Found {
    let found = (host.name.as_str(), host.port).to_socket_addrs()?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostPort {
        match text.parse().unwrap() {
            Destination::Host(host) => host,
            Destination::Address(address) => panic!("{address}"),
        }
    }

    #[test]
    fn destinations_are_addresses_or_names_with_a_port() {
        for text in ["192.0.2.2:4556", "[2001:db8::2]:4556", "[fe80::1%2]:4556"] {
            let destination: Destination = text.parse().unwrap();
            assert_eq!(destination.address().unwrap().to_string(), text);
            assert_eq!(destination.to_string(), text);
        }
        for text in ["earth.example:4556", "localhost:1", "a_b-c.d1.:65535", "4you:9"] {
            assert_eq!(host(text).to_string(), text);
        }
        let long = format!("{}:1", "a".repeat(64));
        let longest = format!("{}:1", ["a".repeat(63).as_str(); 4].join("."));
        for text in [
            "",
            "earth",
            "earth:",
            ":4556",
            "earth:0",
            "earth:65536",
            "-a:1",
            "a..b:1",
            ".:1",
            "a b:1",
            "300.1.2.3:1",
            "1:2:3",
            "[::1:4",
            "é:1",
            &long,
            &longest,
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_lookup_without_a_thread_can_be_started_again() {
        let waker = Waker::new().unwrap();
        let mut lookups = Lookups::new(waker.clone());
        lookups.set_resolver(|_| Ok(vec!["192.0.2.1:1".parse().unwrap()]));
        lookups.spawn = |_| Err(io::ErrorKind::WouldBlock.into());
        for _ in 0..2 {
            assert!(!lookups.start(PathId(1), &host("earth.example:1")));
            assert!(lookups.pending.is_empty() && lookups.lanes[0].requests.1.is_empty());
        }
        lookups.spawn = spawn;
        assert!(lookups.start(PathId(1), &host("earth.example:1")));
        let limit = Instant::now() + Duration::from_secs(60);
        let found = loop {
            assert!(Instant::now() < limit);
            waker.wait_alone(Some(Duration::from_millis(100))).unwrap();
            if let Some(found) = lookups.poll() {
                break found;
            }
        };
        assert_eq!((found.0, found.2.unwrap().len()), (PathId(1), 1));
        // Threads that run serve others, too.
        lookups.spawn = |_| Err(io::ErrorKind::WouldBlock.into());
        assert!(lookups.start(PathId(1), &host("earth.example:1")));
        assert!(lookups.start(PathId(2), &host("moon.example:1")));
    }

    #[test]
    fn names_are_resolved_in_other_threads() {
        let waker = Waker::new().unwrap();
        let mut lookups = Lookups::new(waker.clone());
        // More than there are threads, and each once.
        for path in (0..100).map(PathId) {
            lookups.start(path, &host("localhost:4556"));
            lookups.start(path, &host("localhost:4556"));
        }
        // RFC 6761 §6.4: it never resolves.
        lookups.start(PathId(100), &host("host.invalid:1"));
        let limit = Instant::now() + Duration::from_secs(60);
        let mut found = BTreeMap::new();
        while found.len() < 101 {
            assert!(Instant::now() < limit);
            waker.wait_alone(Some(Duration::from_millis(100))).unwrap();
            while let Some((path, _, result)) = lookups.poll() {
                assert!(found.insert(path, result).is_none());
            }
        }
        assert!(lookups.lanes[0].threads <= THREADS_MAX[0] && lookups.pending.is_empty());
        assert!(found.remove(&PathId(100)).unwrap().is_err());
        for addresses in found.into_values().map(Result::unwrap) {
            assert!(addresses.iter().all(|it| it.ip().is_loopback() && it.port() == 4556));
        }
    }

    #[test]
    fn long_lookups_do_not_hold_up_others() {
        let waker = Waker::new().unwrap();
        let mut lookups = Lookups::new(waker.clone());
        lookups.set_resolver(|host| {
            if host.name.starts_with("slow") {
                std::thread::sleep(LONG);
            }
            Ok(vec!["192.0.2.1:1".parse().unwrap()])
        });
        let slow: Vec<PathId> = (1..=200).map(PathId).collect();
        let start = |lookups: &mut Lookups| {
            slow.iter().for_each(|path| assert!(lookups.start(*path, &host("slow.example:1"))));
        };
        let limit = Instant::now() + Duration::from_secs(60);
        let wait = || {
            assert!(Instant::now() < limit);
            waker.wait_alone(Some(Duration::from_millis(100))).unwrap();
        };
        start(&mut lookups);
        let mut found = 0;
        while found < slow.len() {
            wait();
            found += std::iter::from_fn(|| lookups.poll()).count();
        }
        // These take 25 turns of their threads now.
        start(&mut lookups);
        assert!(lookups.start(PathId(0), &host("earth.example:1")));
        let mut before = Vec::new();
        while !before.contains(&PathId(0)) {
            wait();
            before.extend(std::iter::from_fn(|| lookups.poll()).map(|(path, ..)| path));
        }
        assert!(before.len() < slow.len() / 2, "{}", before.len());
        assert!(lookups.lanes.iter().zip(THREADS_MAX).all(|(lane, max)| lane.threads <= max));
    }
}
