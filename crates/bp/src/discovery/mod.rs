//! Discovery of neighbours by beacons ([`crate::codec::ipnd`]): announcements of this node, and a
//! table of the nodes that announce themselves on the same links.
//!
//! Beacons are not authenticated. A node that is found therefore is a stranger with an address:
//!
//! * It never has a name of this node or of a configured neighbour.
//! * Its address is the source of its beacon, which must belong to a network of the link.
//! * The first address of a name stays until its beacons stop. A second one is ignored.
//! * Their number is bounded, in all, by address and by second.
//!
//! Pure state: a driver passes in datagrams and time, and sends a beacon on each link when one is
//! due.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::{Rng, Time};

use super::admission::Network;
use crate::codec::eid::Eid;
use crate::codec::ipnd::{Beacon, Offer};

/// Periods without a beacon after which a node is lost.
const MISSED: u32 = 3;
/// Bounds on the period of another node, as far as it counts.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(300);
/// Longest datagram that is read, in bytes.
pub const DATAGRAM_MAX: usize = 2048;
/// Most nodes at one address, and most that are found within a second.
const PER_ADDRESS: usize = 8;
const PER_SECOND: u32 = 8;
/// Lowest port that is connected to: services below belong to the machine.
const PORT_MIN: u16 = 1024;
/// Shortest time between two reports of another node with the name of this one.
const PATIENCE: Duration = Duration::from_secs(60);
/// News that wait for the user; further ones are dropped.
const NEWS_MAX: usize = 256;

/// Settings of the discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Node ID that is announced.
    pub node: Eid,
    /// Other names of this node.
    pub aliases: BTreeSet<Eid>,
    /// Configured neighbours, which are not discovered.
    pub neighbours: BTreeSet<Eid>,
    /// Nodes that may be found; `None` for all.
    pub accept: Option<BTreeSet<Eid>>,
    /// Layers that are announced: name in the beacon, and listening address.
    pub offers: Vec<(String, SocketAddr)>,
    /// Layers over which this node connects, in order of preference: name in the beacon, and index.
    pub layers: Vec<(String, usize)>,
    /// Period of the beacons.
    pub period: Duration,
    /// Most nodes that are found at one time.
    pub nodes: usize,
}

/// Address of this node on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Address.
    pub address: IpAddr,
    /// Network that is reached without a router.
    pub network: Network,
}

/// A link with beacons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Name of the interface.
    pub interface: String,
    /// Addresses of this node on it.
    pub own: Vec<Own>,
}

impl Link {
    /// Whether an address is one of a neighbour on this link.
    fn reaches(&self, address: IpAddr) -> bool {
        let is_one = |own: &Own| {
            own.network.contains(address)
                && (own.address == address || own.network.is_host(address))
        };
        !address.is_unspecified() && !address.is_multicast() && self.own.iter().any(is_one)
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.address == address)
    }

    /// Whether a listener is reached over this link by a family of addresses.
    fn has_listener(&self, listener: IpAddr, is_ipv4: bool) -> bool {
        listener.is_ipv4() == is_ipv4 && (listener.is_unspecified() || self.is_own(listener))
    }
}

/// A node that announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its node ID, without proof.
    pub node: Eid,
    /// Address and port of its layer.
    pub address: SocketAddr,
    /// Index of the layer over which it is reached.
    pub layer: usize,
    /// Interface on which its beacons arrive.
    pub interface: String,
}

/// Change or event that an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A node was found.
    Found(Found),
    /// A node is lost.
    Lost {
        /// Its node ID.
        node: Eid,
        /// Reason as text.
        why: &'static str,
    },
    /// A known node is announced from another address, too, which is ignored.
    Rival {
        /// Its node ID.
        node: Eid,
        /// Its address, which stays.
        known: SocketAddr,
        /// The other address.
        other: IpAddr,
    },
    /// Another machine announces a name of this node.
    OwnName(IpAddr),
    /// As many nodes are found as permitted.
    Full,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Beacons that were due on the links.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that were no beacons.
    pub malformed: u64,
    /// Beacons without effect, those of this node not counted.
    pub ignored: u64,
}

#[derive(Debug)]
struct Entry {
    found: Found,
    lost_at: Time,
    has_rival: bool,
}

/// Reason why a beacon has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ignored {
    /// It is one of this node.
    Own,
    Other,
}

/// State of the discovery.
#[derive(Debug)]
pub struct Discovery {
    config: Config,
    rng: Rng,
    entries: BTreeMap<Eid, Entry>,
    news: VecDeque<News>,
    next_beacon: Time,
    sequence: u32,
    /// Start of the current second, and nodes found in it.
    second: (Time, u32),
    own_name_at: Option<Time>,
    is_full: bool,
    statistics: Statistics,
}

impl Discovery {
    /// Starts the discovery; the first beacon is due at once.
    #[must_use]
    pub fn new(now: Time, config: Config, rng: Rng) -> Self {
        Self {
            config,
            rng,
            entries: BTreeMap::new(),
            news: VecDeque::new(),
            next_beacon: now,
            sequence: 0,
            second: (now, 0),
            own_name_at: None,
            is_full: false,
            statistics: Statistics::default(),
        }
    }

    /// Replaces the settings. Nodes that are no longer permitted are lost.
    pub fn configure(&mut self, now: Time, config: Config) {
        self.config = config;
        self.next_beacon = self.next_beacon.min(now + self.config.period);
        let over: Vec<Eid> = self
            .entries
            .values()
            .map(|entry| &entry.found)
            .enumerate()
            .filter(|(number, found)| *number >= self.config.nodes || !self.permits(found))
            .map(|(_, found)| found.node.clone())
            .collect();
        for node in over {
            self.lose(node, "the settings exclude it");
        }
    }

    fn permits(&self, found: &Found) -> bool {
        let Config { layers, .. } = &self.config;
        self.is_permitted(&found.node) && layers.iter().any(|(_, layer)| *layer == found.layer)
    }

    fn is_permitted(&self, node: &Eid) -> bool {
        let Config { neighbours, accept, .. } = &self.config;
        !self.is_own(node)
            && !neighbours.contains(node)
            && accept.as_ref().is_none_or(|accept| accept.contains(node))
    }

    fn is_own(&self, node: &Eid) -> bool {
        *node == self.config.node || self.config.aliases.contains(node)
    }

    /// Handles a datagram that arrived on a link.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, link: &Link, bytes: &[u8]) {
        self.statistics.received += 1;
        let beacon = match Beacon::decode(bytes) {
            Ok(beacon) if bytes.len() <= DATAGRAM_MAX => beacon,
            Ok(_) | Err(_) => {
                self.statistics.malformed += 1;
                return;
            }
        };
        match self.handle_beacon(now, from, link, &beacon) {
            Ok(()) | Err(Ignored::Own) => {}
            Err(Ignored::Other) => self.statistics.ignored += 1,
        }
    }

    fn handle_beacon(
        &mut self,
        now: Time,
        from: SocketAddr,
        link: &Link,
        beacon: &Beacon,
    ) -> Result<(), Ignored> {
        let (node, address) = (beacon.node.node(), from.ip());
        if !link.reaches(address) {
            return Err(Ignored::Other);
        }
        if self.is_own(&node) {
            if link.is_own(address) {
                return Err(Ignored::Own);
            }
            self.report_own_name(now, address);
            return Err(Ignored::Other);
        }
        let is_name = matches!(node, Eid::Ipn { .. } | Eid::Dtn(_)) && !node.is_local();
        if !is_name || node != beacon.node || !self.is_permitted(&node) {
            return Err(Ignored::Other);
        }
        let found = self.way(node, from, link, beacon).ok_or(Ignored::Other)?;
        let period = beacon.period_s.map_or(self.config.period, Duration::from_secs);
        let lost_at = now + MISSED * period.clamp(PERIOD_MIN, PERIOD_MAX);
        if let Some(entry) = self.entries.get_mut(&found.node) {
            if entry.found == found {
                entry.lost_at = lost_at;
                return Ok(());
            }
            if !std::mem::replace(&mut entry.has_rival, true) {
                let (node, known) = (found.node, entry.found.address);
                self.report(News::Rival { node, known, other: address });
            }
            return Err(Ignored::Other);
        }
        self.add(now, found, lost_at)
    }

    /// Layer and address by which a node is reached.
    fn way(&self, node: Eid, from: SocketAddr, link: &Link, beacon: &Beacon) -> Option<Found> {
        let mut ways = self.config.layers.iter().filter_map(|(name, layer)| {
            let offer = beacon.layers.iter().find(|offer| offer.name == *name)?;
            Some((*layer, offer.port.filter(|port| *port >= PORT_MIN)?))
        });
        let (layer, port) = ways.next()?;
        let mut address = from;
        address.set_port(port);
        Some(Found { node, address, layer, interface: link.interface.clone() })
    }

    fn add(&mut self, now: Time, found: Found, lost_at: Time) -> Result<(), Ignored> {
        if self.entries.len() >= self.config.nodes {
            if !std::mem::replace(&mut self.is_full, true) {
                self.report(News::Full);
            }
            return Err(Ignored::Other);
        }
        let at_it = |entry: &&Entry| entry.found.address.ip() == found.address.ip();
        if self.entries.values().filter(at_it).count() >= PER_ADDRESS {
            return Err(Ignored::Other);
        }
        let (since, count) = self.second;
        let (since, count) =
            if now.since(since) >= Duration::from_secs(1) { (now, 0) } else { (since, count) };
        if count >= PER_SECOND {
            return Err(Ignored::Other);
        }
        self.second = (since, count + 1);
        self.report(News::Found(found.clone()));
        self.entries.insert(found.node.clone(), Entry { found, lost_at, has_rival: false });
        Ok(())
    }

    fn report_own_name(&mut self, now: Time, address: IpAddr) {
        if self.own_name_at.is_none_or(|at| now.since(at) >= PATIENCE) {
            self.own_name_at = Some(now);
            self.report(News::OwnName(address));
        }
    }

    fn report(&mut self, news: News) {
        if self.news.len() < NEWS_MAX {
            self.news.push_back(news);
        }
    }

    fn lose(&mut self, node: Eid, why: &'static str) {
        if self.entries.remove(&node).is_some() {
            self.is_full = false;
            self.report(News::Lost { node, why });
        }
    }

    /// Removes nodes whose beacons have stopped.
    pub fn handle_timeout(&mut self, now: Time) {
        let over = self.entries.values().filter(|entry| entry.lost_at <= now);
        for node in over.map(|entry| entry.found.node.clone()).collect::<Vec<_>>() {
            self.lose(node, "its announcements have stopped");
        }
    }

    /// Returns whether beacons are due, and schedules the next.
    pub fn begin_beacons(&mut self, now: Time) -> bool {
        if now < self.next_beacon {
            return false;
        }
        // Nodes that start together do not stay together.
        let period = self.config.period;
        let early = self.rng.below((period.as_nanos() / 8).try_into().unwrap_or(u64::MAX).max(1));
        self.next_beacon = now + period - Duration::from_nanos(early);
        self.sequence = self.sequence.wrapping_add(1);
        true
    }

    /// Returns the beacon of the current round for a link and a family of addresses, if a layer is
    /// reached there.
    pub fn beacon(&mut self, link: &Link, is_ipv4: bool) -> Option<Vec<u8>> {
        let here = self.config.offers.iter().filter(|(_, at)| link.has_listener(at.ip(), is_ipv4));
        let layers: Vec<Offer> =
            here.map(|(name, at)| Offer { name: name.clone(), port: Some(at.port()) }).collect();
        if layers.is_empty() {
            return None;
        }
        let period = self.config.period;
        let beacon = Beacon {
            node: self.config.node.clone(),
            sequence: self.sequence.wrapping_sub(1),
            layers,
            period_s: Some(period.as_secs() + u64::from(period.subsec_nanos() > 0)),
            ..Beacon::default()
        };
        let bytes = beacon.encode().ok()?;
        self.statistics.sent += 1;
        Some(bytes)
    }

    /// Returns the time of the next beacons, or of the loss of a node.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        let lost = self.entries.values().map(|entry| entry.lost_at);
        lost.chain([self.next_beacon]).min().unwrap_or(self.next_beacon)
    }

    /// Returns the next of the news.
    pub fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Returns the nodes that are found now.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        self.entries.values().map(|entry| &entry.found)
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }
}
