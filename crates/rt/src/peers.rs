//! Table of paths and peer addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::{PathId, Time};

/// The peers of one socket by path and by address, at most a fixed number.
///
/// Static peers are configured and stay. Others appear when a datagram comes from them, and may be
/// replaced after a long silence. Until then datagrams from further addresses are refused, so that
/// forged addresses cannot drive out real peers.
#[derive(Debug)]
pub struct Peers {
    by_path: BTreeMap<PathId, Peer>,
    by_address: BTreeMap<SocketAddr, PathId>,
    /// Peer that sent last. In a bulk transfer, it is nearly always the next sender too.
    last: Option<(SocketAddr, PathId)>,
    next: u32,
    peers_max: usize,
    silence: Duration,
}

/// Addresses of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Address of the peer.
    pub address: SocketAddr,
    /// Our address to which the peer last sent, and from which it expects replies.
    pub ours: Option<IpAddr>,
    last_received: Time,
    fixed: bool,
    /// Whether the peer accepts UDP-Lite, if indicated.
    lite: Option<bool>,
}

/// Origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A known peer.
    Known(PathId),
    /// A new peer; the second path was removed to make room for it.
    New(PathId, Option<PathId>),
    /// The table is full.
    Refused,
}

impl Peers {
    /// Returns an empty table of at most `peers_max` peers; one may be replaced after `silence`.
    #[must_use]
    pub fn new(peers_max: usize, silence: Duration) -> Self {
        Self {
            by_path: BTreeMap::new(),
            by_address: BTreeMap::new(),
            last: None,
            next: 0,
            peers_max,
            silence,
        }
    }

    /// Adds a static peer. The same address always has the same path.
    pub fn add(&mut self, address: SocketAddr) -> PathId {
        let path = match self.by_address.get(&address) {
            Some(&path) => path,
            None => self.insert(address, None, Time::ZERO),
        };
        if let Some(peer) = self.by_path.get_mut(&path) {
            peer.fixed = true;
        }
        path
    }

    /// Adds a static peer whose path has this number. Number and address must both be unused.
    pub fn add_at(&mut self, path: PathId, address: SocketAddr) {
        let peer = Peer { address, ours: None, last_received: Time::ZERO, fixed: true, lite: None };
        self.by_path.insert(path, peer);
        self.by_address.insert(address, path);
    }

    /// Gives the static peer of a path an address. Returns the dynamic peers that are removed for it:
    /// the one that had the address, and the one whose path had the number.
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
            if let Some(peer) = self.by_path.get_mut(&path) {
                peer.last_received = now;
                // A group is not one of our addresses.
                peer.ours = ours.or(peer.ours);
            }
            return Origin::Known(path);
        }
        let dynamic = self.by_path.iter().filter(|(_, peer)| !peer.fixed);
        let mut forgotten = None;
        if dynamic.clone().count() >= self.peers_max {
            let oldest = dynamic.min_by_key(|(_, peer)| peer.last_received);
            match oldest.filter(|(_, peer)| now.since(peer.last_received) >= self.silence) {
                Some((&path, _)) => forgotten = Some(path),
                None => return Origin::Refused,
            }
        }
        if let Some(path) = forgotten {
            self.remove(path);
        }
        Origin::New(self.insert(address, ours, now), forgotten)
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
        if let Some(peer) = self.by_path.remove(&path)
            && self.by_address.get(&peer.address) == Some(&path)
        {
            self.by_address.remove(&peer.address);
        }
        self.last = None;
    }

    /// Returns all paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.by_path.keys().copied()
    }

    fn insert(&mut self, address: SocketAddr, ours: Option<IpAddr>, last_received: Time) -> PathId {
        // 2^32 new peers take over a year at a hundred per second; a path still in use after that
        // keeps its number.
        while self.by_path.contains_key(&PathId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let path = PathId(self.next);
        self.next = self.next.wrapping_add(1);
        self.by_path.insert(path, Peer { address, ours, last_received, fixed: false, lite: None });
        self.by_address.insert(address, path);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn silent_peers_make_room_and_static_ones_stay() {
        let mut peers = Peers::new(2, Duration::from_secs(60));
        let fixed = peers.add(at(1));
        assert_eq!(peers.add(at(1)), fixed);
        let second = Time::from_secs;
        assert_eq!(peers.origin(second(1), at(2), None), Origin::New(PathId(1), None));
        assert_eq!(peers.origin(second(2), at(3), None), Origin::New(PathId(2), None));
        assert_eq!(peers.origin(second(3), at(2), None), Origin::Known(PathId(1)));
        assert_eq!(peers.origin(second(4), at(4), None), Origin::Refused);
        let evicted = Origin::New(PathId(3), Some(PathId(2)));
        assert_eq!(peers.origin(second(62), at(4), None), evicted);
        assert_eq!(peers.get(fixed).unwrap().address, at(1));
        assert!(peers.get(PathId(2)).is_none());
        assert_eq!(peers.paths().count(), 3);
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
