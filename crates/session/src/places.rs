//! Places of sessions that peers began, and the session that gives way when none is free.
//!
//! Places are counted by [host](Host), because a host has many ports. The session that gained
//! least for its age gives way, in whichever state it is. Each byte of new data is worth
//! [`WORTH`] of age, so a transfer at 1 bit/s stays ahead of sessions that begin later with less
//! than a packet. A session younger than [`GRACE`] gives way only if the weakest [`CANDIDATES`]
//! are all as young.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use engine::{PathId, Time};

use super::Admission;
use crate::path::Handle;

/// Age that a byte of new data makes up for: half a bit per second.
const WORTH: Duration = Duration::from_secs(16);

/// Unit in which new data counts. Less, as anyone can send in one datagram, counts as nothing.
const UNIT: u64 = 32;

/// Age below which a session gives way only if the weakest ones are all as young.
const GRACE: Duration = Duration::from_secs(10);

/// Weakest sessions among which an older one is preferred.
const CANDIDATES: usize = 16;

/// Host of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 network of 64 bits.
    V6(u64),
    /// Path without addresses.
    Path(PathId),
}

impl Host {
    /// Host of a path with this address, if known.
    pub fn new(path: PathId, address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address),
            Some(IpAddr::V6(address)) => Self::V6((address.to_bits() >> 64) as u64),
            None => Self::Path(path),
        }
    }
}

/// Peer that begins a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Host of the peer.
    pub host: Host,
    /// Whether it is at the address of a configured peer.
    pub is_known: bool,
}

/// Result of a search for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacancy {
    /// There is a free place.
    Free,
    /// This session gives way.
    Of(Handle),
    /// No session can give way.
    None,
}

/// Strength of a session, weakest first.
type Rank = (Time, Handle);

/// Sessions of peers.
#[derive(Debug, Default)]
pub struct Places {
    held: BTreeMap<Handle, Held>,
    /// Sessions of strangers that can give way.
    strangers: BTreeSet<Rank>,
    /// Sessions of configured peers that can give way.
    known: BTreeSet<Rank>,
    /// Number of sessions of configured peers.
    known_count: usize,
    hosts: BTreeMap<Host, OfHost>,
}

/// Session that holds a place.
#[derive(Debug)]
struct Held {
    guest: Guest,
    began: Time,
    /// Bytes of new data at the last ranking.
    ranked: u64,
    /// Strength; `None` if it ends by itself.
    rank: Option<Time>,
}

/// Sessions of a host.
#[derive(Debug, Default)]
struct OfHost {
    count: usize,
    ranks: BTreeSet<Rank>,
}

impl Held {
    fn strength(&self) -> Time {
        let worth = (self.ranked / UNIT * UNIT).saturating_mul(WORTH.as_nanos() as u64);
        Time::from_nanos(self.began.as_nanos().saturating_add(worth))
    }
}

impl Places {
    /// Searches a place for a session of this peer beside `active` sessions, own ones included.
    pub fn search(&self, shares: Admission, active: usize, now: Time, guest: Guest) -> Vacancy {
        if active < shares.unshared {
            return Vacancy::Free;
        }
        let of_host = self.hosts.get(&guest.host);
        if let Some(of_host) = of_host.filter(|host| host.count >= shares.of_path)
            && !guest.is_known
        {
            return self.weakest(&of_host.ranks, now);
        }
        let strangers = self.held.len() - self.known_count;
        let is_free = active < shares.all
            && self.held.len() < shares.of_peers
            && (guest.is_known || strangers < shares.of_strangers);
        if is_free {
            return Vacancy::Free;
        }
        match self.weakest(&self.strangers, now) {
            Vacancy::None if guest.is_known => self.weakest(&self.known, now),
            vacancy => vacancy,
        }
    }

    /// Weakest session of any stranger.
    pub fn weakest_stranger(&self, now: Time) -> Vacancy {
        self.weakest(&self.strangers, now)
    }

    fn weakest(&self, ranks: &BTreeSet<Rank>, now: Time) -> Vacancy {
        let is_old = |handle: &Handle| {
            self.held.get(handle).is_some_and(|held| now.since(held.began) >= GRACE)
        };
        let mut candidates = ranks.iter().take(CANDIDATES).map(|(_, handle)| *handle);
        let old = candidates.clone().find(is_old);
        old.or_else(|| candidates.next()).map_or(Vacancy::None, Vacancy::Of)
    }

    /// Gives a place to a session.
    pub fn enter(&mut self, handle: Handle, now: Time, guest: Guest) {
        self.leave(handle);
        self.held.insert(handle, Held { guest, began: now, ranked: 0, rank: None });
        self.known_count += usize::from(guest.is_known);
        self.hosts.entry(guest.host).or_default().count += 1;
        self.rank(handle, Some(now));
    }

    /// Notes the bytes of new data that a session has received so far.
    pub fn gained(&mut self, handle: Handle, bytes: u64) {
        let Some(held) = self.held.get_mut(&handle) else { return };
        // Ranking at each doubling keeps the work of a datagram constant.
        if bytes < UNIT || bytes < held.ranked.saturating_mul(2) {
            return;
        }
        held.ranked = bytes;
        let rank = held.rank.map(|_| held.strength());
        self.rank(handle, rank);
    }

    /// Makes a session the first to give way, because it has nothing to gain.
    pub fn yield_first(&mut self, handle: Handle) {
        if let Some(held) = self.held.get_mut(&handle) {
            held.began = Time::ZERO;
            self.rank(handle, Some(Time::ZERO));
        }
    }

    /// Exempts a session that ends by itself.
    pub fn exempt(&mut self, handle: Handle) {
        self.rank(handle, None);
    }

    /// Lets an exempt session give way again.
    pub fn include(&mut self, handle: Handle) {
        let rank = self.held.get(&handle).map(Held::strength);
        self.rank(handle, rank);
    }

    /// Frees the place of a session.
    pub fn leave(&mut self, handle: Handle) {
        self.rank(handle, None);
        let Some(held) = self.held.remove(&handle) else { return };
        self.known_count -= usize::from(held.guest.is_known);
        if let Some(of_host) = self.hosts.get_mut(&held.guest.host) {
            of_host.count -= 1;
            if of_host.count == 0 {
                self.hosts.remove(&held.guest.host);
            }
        }
    }

    fn rank(&mut self, handle: Handle, rank: Option<Time>) {
        let Self { held, strangers, known, hosts, .. } = self;
        let Some(held) = held.get_mut(&handle) else { return };
        let of_all = if held.guest.is_known { known } else { strangers };
        let of_host = hosts.get_mut(&held.guest.host).map(|host| &mut host.ranks);
        for ranks in [Some(of_all), of_host].into_iter().flatten() {
            if let Some(before) = held.rank {
                ranks.remove(&(before, handle));
            }
            if let Some(rank) = rank {
                ranks.insert((rank, handle));
            }
        }
        held.rank = rank;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Admission = Admission {
        all: 80,
        of_peers: 70,
        of_strangers: 60,
        unshared: 40,
        of_path: 50,
        half_open: 20,
    };

    fn handle(index: u32) -> Handle {
        Handle { index, generation: 0 }
    }

    fn guest(host: u8) -> Guest {
        Guest { host: Host::V4(Ipv4Addr::new(10, 0, 0, host)), is_known: false }
    }

    fn known(host: u8) -> Guest {
        Guest { is_known: true, ..guest(host) }
    }

    /// Full table: a session each second, from another host each.
    fn full(bytes: u64) -> Places {
        let mut places = Places::default();
        for index in 0..60 {
            places.enter(handle(index), Time::from_secs(u64::from(index)), guest(index as u8));
            places.gained(handle(index), bytes);
        }
        places
    }

    #[test]
    fn hosts_are_addresses_without_ports() {
        let host = |text: &str| Host::new(PathId(1), Some(text.parse().unwrap()));
        assert_eq!(host("10.0.0.1"), host("::ffff:10.0.0.1"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_ne!(Host::new(PathId(1), None), Host::new(PathId(2), None));
    }

    #[test]
    fn the_session_that_gained_least_for_its_age_gives_way() {
        let mut places = full(1);
        let now = Time::from_secs(100);
        let search = |places: &Places| places.search(SHARES, 60, now, guest(200));
        assert_eq!(search(&places), Vacancy::Of(handle(0)));
        // 32 bytes make up for 512 s.
        places.gained(handle(0), 32);
        assert_eq!(search(&places), Vacancy::Of(handle(1)));
        places.yield_first(handle(7));
        assert_eq!(search(&places), Vacancy::Of(handle(7)));
        places.leave(handle(7));
        assert_eq!(search(&places), Vacancy::Free);
    }

    #[test]
    fn slow_transfers_are_not_displaced_by_strangers() {
        let mut places = Places::default();
        let began = Time::from_secs(1);
        places.enter(handle(99), began, guest(1));
        // 1 bit/s for 44 minutes, and then 44 minutes of silence: 330 bytes.
        for bytes in 1..=330 {
            places.gained(handle(99), bytes);
        }
        for index in 0..59 {
            places.enter(handle(index), Time::from_secs(4000), guest(100 + index as u8));
            places.gained(handle(index), 1);
        }
        let found = places.search(SHARES, 60, Time::from_secs(5000), guest(2));
        assert_eq!(found, Vacancy::Of(handle(0)));
    }

    #[test]
    fn a_new_session_has_time_to_gain_something() {
        let mut places = full(1400);
        places.leave(handle(59));
        places.enter(handle(59), Time::from_secs(99), guest(200));
        let at = |second| places.search(SHARES, 60, Time::from_secs(second), guest(201));
        assert_eq!(at(100), Vacancy::Of(handle(0)), "older ones have had their time");
        assert_eq!(at(109), Vacancy::Of(handle(59)));
    }

    #[test]
    fn a_host_is_limited_to_a_share_whatever_its_port() {
        let mut places = Places::default();
        for index in 0..50 {
            places.enter(handle(index), Time::from_secs(1), guest(1));
        }
        let now = Time::from_secs(20);
        assert_eq!(places.search(SHARES, 50, now, guest(1)), Vacancy::Of(handle(0)));
        assert_eq!(places.search(SHARES, 50, now, guest(2)), Vacancy::Free);
        assert_eq!(places.search(SHARES, 39, now, guest(1)), Vacancy::Free, "room enough");
    }

    #[test]
    fn known_peers_have_places_of_their_own() {
        let mut places = full(1_000_000);
        let now = Time::from_secs(100);
        let search = |places: &Places, guest| places.search(SHARES, places.held.len(), now, guest);
        for index in 60..70 {
            assert_eq!(search(&places, known(250)), Vacancy::Free);
            places.enter(handle(index), now, known(250));
        }
        // A stranger takes the place of a stranger, and so does a configured peer.
        assert_eq!(search(&places, guest(200)), Vacancy::Of(handle(0)));
        assert_eq!(search(&places, known(250)), Vacancy::Of(handle(0)));
        (0..60).for_each(|index| places.exempt(handle(index)));
        assert_eq!(search(&places, guest(200)), Vacancy::None);
        assert_eq!(search(&places, known(250)), Vacancy::Of(handle(60)));
        places.include(handle(5));
        assert_eq!(search(&places, guest(200)), Vacancy::Of(handle(5)));
    }
}
