//! Admission of peers: addresses of neighbours, and the use of the node IDs that peers announce
//! (RFC 9174 §4.6, RFC 9758 §5.4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::codec::bp7::Eid;

/// Network of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    /// Leading bits that all its addresses have in common.
    bits: u8,
}

/// Text that names no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid network {0:?}: expected an address, or an address and a prefix: 192.0.2.0/24")]
pub struct ParseNetworkError(String);

impl Network {
    /// All addresses of IPv4, and all of IPv6.
    pub const ALL: [Self; 2] = [
        Self { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), bits: 0 },
        Self { address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), bits: 0 },
    ];

    /// Returns the network of an address with a prefix of this length.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Self {
        let address = address.to_canonical();
        Self { address, bits: bits.min(if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// Whether an address of the network can be that of one host: it is neither the network's own
    /// address nor its broadcast address.
    #[must_use]
    pub fn is_host(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) if self.bits < 31 => {
                let hosts = u32::MAX >> self.bits;
                address.to_bits() & hosts != 0 && address.to_bits() & hosts != hosts
            }
            IpAddr::V4(_) | IpAddr::V6(_) => true,
        }
    }

    /// Whether an address belongs to the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = |bits: u128, width: u32| {
            bits.checked_shr(width.saturating_sub(u32::from(self.bits))).unwrap_or(0)
        };
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                prefix(own.to_bits().into(), 32) == prefix(other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                prefix(own.to_bits(), 128) == prefix(other.to_bits(), 128)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self::new(address, u8::MAX)
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let wrong = || ParseNetworkError(wire::excerpt(text));
        let Some((address, bits)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(|_| wrong());
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Rights of peers that are not neighbours of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strangers {
    /// None: their sessions end.
    Refuse,
    /// They may hand in bundles, but get none.
    Receive,
    /// They get bundles, too, under names that no neighbour has.
    #[default]
    Both,
}

/// Standing of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Neighbour,
    Stranger,
}

/// Rules of admission. The default admits every name, which suits only closed networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Neighbours, and the networks from which their names count without a proof.
    pub neighbours: BTreeMap<Eid, Vec<Network>>,
    /// Names of this node beside its node ID, which no peer may have.
    pub aliases: BTreeSet<Eid>,
    /// Rights of all other peers.
    pub strangers: Strangers,
}

impl Admission {
    /// Whether a neighbour may connect from an address. An unknown address, as in simulations, is
    /// one of these.
    pub(super) fn is_of_neighbour(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return true };
        self.neighbours.values().flatten().any(|network| network.contains(address))
    }

    /// Neighbours that may connect from an address.
    pub(super) fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &Eid> {
        let here = move |networks: &Vec<Network>| networks.iter().any(|it| it.contains(address));
        self.neighbours.iter().filter(move |(_, networks)| here(networks)).map(|(node, _)| node)
    }

    /// Node ID of a peer as far as it counts, and its standing. An error says why no session is
    /// possible with the name.
    ///
    /// A proved name counts always. An unproved one counts for a neighbour at one of its addresses
    /// (RFC 9174 §4.6: it should not be used to route).
    pub(super) fn judge(
        &self,
        own: &Eid,
        named: &str,
        is_proved: bool,
        address: Option<IpAddr>,
    ) -> Result<(Option<Eid>, Standing), &'static str> {
        if named.is_empty() {
            let is_near = address.is_some() && self.is_of_neighbour(address);
            let standing = if is_near { Standing::Neighbour } else { Standing::Stranger };
            return Ok((None, standing));
        }
        let node = named.parse::<Eid>().map(|eid| eid.node());
        let node = match node {
            Ok(node @ (Eid::Ipn { .. } | Eid::Dtn(_))) => node,
            Ok(Eid::None) => return Err("a peer that calls itself dtn:none"),
            Ok(Eid::Uri(_) | Eid::Unknown { .. }) | Err(_) => {
                return Err("a node ID of another scheme than ipn and dtn");
            }
        };
        if node.is_local() {
            return Err("a peer that calls itself ipn:!.0");
        }
        if node == own.node() || self.aliases.contains(&node) {
            return Err("a peer with a name of this node");
        }
        let counts = match self.neighbours.get(&node) {
            _ if is_proved => true,
            Some(networks) => {
                address.is_none_or(|address| networks.iter().any(|it| it.contains(address)))
            }
            None => self.strangers == Strangers::Both,
        };
        Ok(if counts { (Some(node), Standing::Neighbour) } else { (None, Standing::Stranger) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let of = |text: &str| text.parse::<Network>().unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(of("192.0.2.0/24").contains(ip("192.0.2.255")));
        assert!(!of("192.0.2.0/24").contains(ip("192.0.3.0")));
        assert!(of("192.0.2.7").contains(ip("::ffff:192.0.2.7")));
        assert!(of("0.0.0.0/0").contains(ip("255.1.2.3")) && !of("0.0.0.0/0").contains(ip("::1")));
        assert!(of("2001:db8::/32").contains(ip("2001:db8:1::9")));
        assert!(!of("2001:db8::/32").contains(ip("2001:db9::")));
        assert!(of("::/0").contains(ip("::1")) && of("::1").contains(ip("::1")));
        assert_eq!(of("192.0.2.7").to_string(), "192.0.2.7/32");
        for wrong in ["", "192.0.2", "192.0.2.0/33", "::/129", "192.0.2.0/", "host"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_count_by_proof_or_address() {
        let two = Eid::ipn(2, 0);
        let networks = vec!["192.0.2.0/24".parse().unwrap()];
        let admission = |strangers| Admission {
            neighbours: [(two.clone(), networks.clone())].into(),
            aliases: ["dtn://one/".parse().unwrap()].into(),
            strangers,
        };
        let near = Some("192.0.2.9".parse().unwrap());
        let far = Some("203.0.113.9".parse().unwrap());
        let judge = |strangers, named, is_proved, address| {
            admission(strangers).judge(&Eid::ipn(1, 0), named, is_proved, address)
        };
        let neighbour = |node: u32| Ok((Some(Eid::ipn(node, 0)), Standing::Neighbour));
        let stranger = || Ok((None, Standing::Stranger));
        for strangers in [Strangers::Refuse, Strangers::Receive, Strangers::Both] {
            assert_eq!(judge(strangers, "ipn:2.0", false, near), neighbour(2));
            assert_eq!(judge(strangers, "ipn:2.0", true, far), neighbour(2));
            assert_eq!(judge(strangers, "ipn:9.0", true, far), neighbour(9));
            // Another's name does not count even where strangers have every right.
            assert_eq!(judge(strangers, "ipn:2.0", false, far), stranger());
            for named in ["ipn:1.0", "ipn:1.7", "dtn://one/", "ipn:!.0", "dtn:none", "http://x"] {
                assert!(judge(strangers, named, true, near).is_err(), "{named}");
            }
        }
        assert_eq!(judge(Strangers::Receive, "ipn:9.0", false, near), stranger());
        assert_eq!(judge(Strangers::Both, "ipn:9.0", false, far), neighbour(9));
        assert_eq!(judge(Strangers::Both, "", false, far), stranger());
        assert_eq!(judge(Strangers::Both, "", false, near), Ok((None, Standing::Neighbour)));
    }
}
