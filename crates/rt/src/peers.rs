//! Table of paths and peer addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use engine::{PathId, PathKind, Time};

/// The peers of one socket by path and by address, at most a fixed number.
///
/// Static peers are configured and stay. Others appear when a datagram comes from them. When the
/// table is full, the peer that has been silent longest gives way to a new one, at once if the
/// engine has no transfer with it. A peer with a transfer gives way only after a long silence, so
/// that forged addresses cannot drive it out, or if its host has more peers than any other.
#[derive(Debug)]
pub struct Peers {
    by_path: BTreeMap<PathId, Peer>,
    by_address: BTreeMap<SocketAddr, PathId>,
    /// Dynamic peers, those that give way first at the front.
    dynamic: BTreeSet<Rank>,
    /// Peer that sent last. In a bulk transfer, it is nearly always the next sender too.
    last: Option<(SocketAddr, PathId)>,
    next: u32,
    peers_max: usize,
    silence: Duration,
    /// Earliest time of the next search for the host with the most peers.
    search_at: Time,
}

/// Resolution of the order. A sender is moved at most so often, and stays ahead of a flood in
/// which each address sends once.
const TICK: Duration = Duration::from_millis(16);

/// Interval of searches for the host with the most peers, which look at all peers.
const SEARCH: Duration = Duration::from_millis(20);

/// Order in which dynamic peers give way: whether the engine retains the peer, the [`TICK`] in
/// which it was last received, its path.
type Rank = (bool, u64, PathId);

/// Addresses of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Address of the peer.
    pub address: SocketAddr,
    /// Our address to which the peer last sent, and from which it expects replies.
    pub ours: Option<IpAddr>,
    /// Longest datagram to the peer, in bytes, if the system accepts none as long as configured.
    pub(crate) mtu: Option<usize>,
    last_received: Time,
    fixed: bool,
    /// Whether the engine has a transfer with the peer.
    retained: bool,
    /// Whether the peer accepts UDP-Lite, if indicated.
    lite: Option<bool>,
}

impl Peer {
    fn new(address: SocketAddr, ours: Option<IpAddr>, last_received: Time, fixed: bool) -> Self {
        Self { address, ours, mtu: None, last_received, fixed, retained: false, lite: None }
    }

    fn rank(&self, path: PathId) -> Rank {
        let ticks = self.last_received.since(Time::ZERO).as_nanos() / TICK.as_nanos();
        (self.retained, ticks as u64, path)
    }
}

/// Origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A known peer.
    Known(PathId),
    /// A new peer; the second path was removed to make room for it.
    New(PathId, Option<PathId>),
    /// The table is full of peers with transfers.
    Refused,
    /// No reply can be sent to the address, or it belongs to no single host: port 0, a group, a
    /// broadcast or unspecified address.
    Invalid,
}

impl Peers {
    /// Returns an empty table of at most `peers_max` dynamic peers. One with a transfer may be
    /// replaced after `silence`.
    #[must_use]
    pub fn new(peers_max: usize, silence: Duration) -> Self {
        Self {
            by_path: BTreeMap::new(),
            by_address: BTreeMap::new(),
            dynamic: BTreeSet::new(),
            last: None,
            next: 0,
            peers_max,
            silence,
            search_at: Time::ZERO,
        }
    }

    /// Adds a static peer. The same address always has the same path.
    pub fn add(&mut self, address: SocketAddr) -> PathId {
        let path = match self.by_address.get(&address) {
            Some(&path) => path,
            None => self.insert(address, None, Time::ZERO, true),
        };
        if let Some(peer) = self.by_path.get_mut(&path) {
            self.dynamic.remove(&peer.rank(path));
            peer.fixed = true;
        }
        path
    }

    /// Adds a static peer whose path has this number. Number and address must both be unused.
    pub fn add_at(&mut self, path: PathId, address: SocketAddr) {
        self.by_path.insert(path, Peer::new(address, None, Time::ZERO, true));
        self.by_address.insert(address, path);
    }

    /// Gives the static peer of a path an address. Returns the dynamic peers that are removed for
    /// it: the one that had the address, and the one whose path had the number.
    pub(crate) fn set_static(&mut self, path: PathId, address: SocketAddr) -> Vec<PathId> {
        let mut removed: Vec<PathId> = Vec::new();
        removed.extend(self.by_address.get(&address).filter(|other| **other != path));
        removed.extend(self.by_path.contains_key(&path).then_some(path));
        removed.retain(|path| self.by_path.get(path).is_some_and(|peer| !peer.fixed));
        removed.iter().for_each(|path| self.remove(*path));
        self.remove(path);
        self.add_at(path, address);
        removed
    }

    /// Whether a path has a static peer.
    pub(crate) fn is_static(&self, path: PathId) -> bool {
        self.by_path.get(&path).is_some_and(|peer| peer.fixed)
    }

    /// Whether a static peer of another path has this address.
    pub(crate) fn has_other(&self, path: PathId, address: SocketAddr) -> bool {
        let other = self.by_address.get(&address).filter(|other| **other != path);
        other.is_some_and(|other| self.is_static(*other))
    }

    /// Returns the path of a datagram that came from `address` to `ours`.
    pub fn origin(&mut self, now: Time, address: SocketAddr, ours: Option<IpAddr>) -> Origin {
        let known = match self.last {
            Some((last, path)) if last == address => Some(path),
            Some(_) | None => self.by_address.get(&address).copied(),
        };
        if let Some(path) = known {
            self.last = Some((address, path));
            self.change(path, |peer| {
                peer.last_received = now;
                // A group is not one of our addresses.
                peer.ours = ours.or(peer.ours);
            });
            return Origin::Known(path);
        }
        if !is_of_a_host(address) {
            return Origin::Invalid;
        }
        let mut forgotten = None;
        if self.dynamic.len() >= self.peers_max {
            let first = self.dynamic.first().copied();
            let idle = first.filter(|(retained, _, path)| self.gives_way(now, *retained, *path));
            let idle = idle.map(|(.., path)| path);
            match idle.or_else(|| self.of_crowded_host(now, address)) {
                Some(path) => forgotten = Some(path),
                None => return Origin::Refused,
            }
        }
        if let Some(path) = forgotten {
            self.remove(path);
        }
        Origin::New(self.insert(address, ours, now, false), forgotten)
    }

    /// Whether a dynamic peer gives way to a new one.
    fn gives_way(&self, now: Time, retained: bool, path: PathId) -> bool {
        let last = self.by_path.get(&path).map_or(Time::ZERO, |peer| peer.last_received);
        !retained || now.since(last) >= self.silence
    }

    /// Searches the peer that has been silent longest of the host with the most peers, if that is
    /// another host than that of `address` and has more than one.
    fn of_crowded_host(&mut self, now: Time, address: SocketAddr) -> Option<PathId> {
        if now < self.search_at {
            return None;
        }
        self.search_at = now + SEARCH;
        let mut hosts: BTreeMap<IpAddr, (usize, PathId)> = BTreeMap::new();
        for (.., path) in &self.dynamic {
            let peer = self.by_path.get(path)?;
            hosts.entry(host(peer.address)).or_insert((0, *path)).0 += 1;
        }
        let (crowded, (count, path)) = hosts.into_iter().max_by_key(|(_, (count, _))| *count)?;
        (count > 1 && crowded != host(address)).then_some(path)
    }

    /// Changes a peer, and its rank with it.
    fn change(&mut self, path: PathId, change: impl FnOnce(&mut Peer)) {
        let Some(peer) = self.by_path.get_mut(&path) else { return };
        let before = peer.rank(path);
        change(peer);
        let after = peer.rank(path);
        if before != after && self.dynamic.remove(&before) {
            self.dynamic.insert(after);
        }
    }

    /// Records whether the engine has a transfer with a peer.
    pub(crate) fn set_retained(&mut self, path: PathId, retained: bool) {
        self.change(path, |peer| peer.retained = retained);
    }

    /// Kind of the path to a peer, whose MTU may be lower than the configured one.
    pub(crate) fn kind(&self, path: PathId, configured: PathKind) -> PathKind {
        let lower = self.get(path).and_then(|peer| peer.mtu).unwrap_or(usize::MAX);
        match configured {
            PathKind::Datagram { mtu } => PathKind::Datagram { mtu: mtu.min(lower) },
            PathKind::Message { max } => PathKind::Message { max: max.min(lower) },
            PathKind::Stream => PathKind::Stream,
        }
    }

    /// Records the longest datagram to a peer.
    pub(crate) fn set_mtu(&mut self, path: PathId, mtu: usize) {
        self.change(path, |peer| peer.mtu = Some(mtu));
    }

    /// Lets the kernel choose the source address of datagrams to a peer, until its next datagram.
    pub(crate) fn forget_ours(&mut self, path: PathId) {
        self.change(path, |peer| peer.ours = None);
    }

    /// Returns the peer of a path.
    #[must_use]
    pub fn get(&self, path: PathId) -> Option<Peer> {
        self.by_path.get(&path).copied()
    }

    /// Whether a peer accepts UDP-Lite, if indicated.
    pub(crate) fn takes_lite(&self, path: PathId) -> Option<bool> {
        self.by_path.get(&path).and_then(|peer| peer.lite)
    }

    /// Records whether the peer at an address accepts UDP-Lite.
    pub(crate) fn set_takes_lite(&mut self, address: SocketAddr, takes: bool) {
        let path = self.by_address.get(&address);
        if let Some(peer) = path.and_then(|path| self.by_path.get_mut(path)) {
            peer.lite = Some(takes);
        }
    }

    /// Removes a peer.
    pub fn remove(&mut self, path: PathId) {
        if let Some(peer) = self.by_path.remove(&path) {
            self.dynamic.remove(&peer.rank(path));
            if self.by_address.get(&peer.address) == Some(&path) {
                self.by_address.remove(&peer.address);
            }
        }
        self.last = None;
    }

    /// Returns all paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.by_path.keys().copied()
    }

    fn insert(
        &mut self,
        address: SocketAddr,
        ours: Option<IpAddr>,
        last_received: Time,
        fixed: bool,
    ) -> PathId {
        // 2^32 new peers take over a year at a hundred per second; a path still in use after that
        // keeps its number.
        while self.by_path.contains_key(&PathId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let path = PathId(self.next);
        self.next = self.next.wrapping_add(1);
        let peer = Peer::new(address, ours, last_received, fixed);
        if !fixed {
            self.dynamic.insert(peer.rank(path));
        }
        self.by_path.insert(path, peer);
        self.by_address.insert(address, path);
        path
    }
}

/// Host of an address: an IPv4 address, or an IPv6 network of 64 bits.
fn host(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}

/// Whether an address belongs to one host, at a port that can be sent to.
fn is_of_a_host(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    const SECOND: fn(u64) -> Time = Time::from_secs;

    #[test]
    fn silent_peers_make_room_and_static_ones_stay() {
        let mut peers = Peers::new(2, Duration::from_secs(60));
        let fixed = peers.add(at(1));
        assert_eq!(peers.add(at(1)), fixed);
        for (port, path) in [(2, PathId(1)), (3, PathId(2))] {
            assert_eq!(peers.origin(SECOND(port), at(port as u16), None), Origin::New(path, None));
            peers.set_retained(path, true);
        }
        assert_eq!(peers.origin(SECOND(3), at(2), None), Origin::Known(PathId(1)));
        assert_eq!(peers.origin(SECOND(4), at(4), None), Origin::Refused);
        let evicted = Origin::New(PathId(3), Some(PathId(1)));
        assert_eq!(peers.origin(SECOND(63), at(4), None), evicted);
        assert_eq!(peers.get(fixed).unwrap().address, at(1));
        assert!(peers.get(PathId(1)).is_none());
        assert_eq!(peers.paths().count(), 3);
    }

    #[test]
    fn peers_without_a_transfer_give_way_at_once() {
        let mut peers = Peers::new(3, Duration::from_secs(60));
        for (port, path) in (2..5).zip(0..) {
            let now = SECOND(u64::from(port));
            assert_eq!(peers.origin(now, at(port), None), Origin::New(PathId(path), None));
        }
        peers.set_retained(PathId(0), true);
        assert_eq!(peers.origin(SECOND(6), at(3), None), Origin::Known(PathId(1)));
        // The one that has been silent longest, of those without a transfer.
        let third = Origin::New(PathId(3), Some(PathId(2)));
        assert_eq!(peers.origin(SECOND(6), at(9), None), third);
        for port in 100..5000 {
            let Origin::New(_, Some(gone)) = peers.origin(SECOND(7), at(port), None) else {
                panic!("{port} finds no room");
            };
            assert_ne!(gone, PathId(0), "it has a transfer");
        }
        peers.set_retained(PathId(0), false);
        let next = peers.origin(SECOND(8), at(7000), None);
        assert!(matches!(next, Origin::New(_, Some(PathId(0)))), "{next:?}");
        assert_eq!(peers.paths().count(), 3);
    }

    #[test]
    fn a_host_with_many_peers_locks_out_no_other() {
        let mut peers = Peers::new(5, Duration::from_secs(60));
        for port in 1..6 {
            let Origin::New(path, None) = peers.origin(SECOND(1), at(port), None) else {
                panic!("{port} is refused");
            };
            peers.set_retained(path, true);
        }
        assert_eq!(peers.origin(SECOND(2), at(9), None), Origin::Refused, "the same host");
        for (second, host) in (3..).zip(1..5) {
            let other = SocketAddr::from(([192, 0, 2, host], 7));
            let origin = peers.origin(SECOND(second), other, None);
            let Origin::New(path, Some(gone)) = origin else { panic!("{other}: {origin:?}") };
            assert_eq!(gone, PathId(u32::from(host) - 1));
            peers.set_retained(path, true);
        }
        let last = peers.origin(SECOND(9), "198.51.100.1:7".parse().unwrap(), None);
        assert_eq!(last, Origin::Refused, "each host has one");
    }

    #[test]
    fn addresses_of_no_host_are_no_peers() {
        let mut peers = Peers::new(9, Duration::from_secs(60));
        for address in [
            "192.0.2.1:0",
            "0.0.0.0:7",
            "255.255.255.255:7",
            "224.0.0.1:7",
            "[2001:db8::1]:0",
            "[::]:7",
            "[ff02::1]:7",
            "[::ffff:255.255.255.255]:7",
            "[::ffff:224.0.0.1]:7",
        ] {
            let address = address.parse().unwrap();
            assert_eq!(peers.origin(Time::ZERO, address, None), Origin::Invalid, "{address}");
        }
        assert_eq!(peers.paths().count(), 0);
    }

    #[test]
    fn static_peers_change_their_addresses() {
        let mut peers = Peers::new(9, Duration::from_secs(60));
        assert_eq!(peers.set_static(PathId(1), at(1)), []);
        assert_eq!(peers.origin(Time::ZERO, at(2), None), Origin::New(PathId(0), None));
        assert!(peers.has_other(PathId(9), at(1)) && !peers.has_other(PathId(9), at(2)));
        // The address of a dynamic peer.
        assert_eq!(peers.set_static(PathId(1), at(2)), [PathId(0)]);
        assert_eq!(peers.origin(Time::ZERO, at(2), None), Origin::Known(PathId(1)));
        // The former address, and the number of its path.
        assert_eq!(peers.origin(Time::ZERO, at(1), None), Origin::New(PathId(2), None));
        assert_eq!(peers.set_static(PathId(2), at(3)), [PathId(2)]);
        assert_eq!(peers.paths().collect::<Vec<_>>(), [PathId(1), PathId(2)]);
        assert_eq!(peers.origin(Time::ZERO, at(1), None), Origin::New(PathId(3), None));
    }

    #[test]
    fn a_path_may_have_its_number_already() {
        let mut peers = Peers::new(2, Duration::from_secs(60));
        peers.add_at(PathId(1), at(7));
        assert_eq!(peers.origin(Time::ZERO, at(7), None), Origin::Known(PathId(1)));
        assert_eq!(peers.add(at(8)), PathId(0));
        assert_eq!(peers.origin(Time::ZERO, at(9), None), Origin::New(PathId(2), None));
    }
}
