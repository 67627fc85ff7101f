//! Datagrams in the packets of a capture: link-layer headers with VLAN tags, IPv4 and IPv6 with
//! their fragments, UDP.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use wire::ip::{self, Ipv4, PROTOCOL_UDP};
use wire::ipv6::Ipv6;
use wire::udp::Udp;
use wire::{DecodeError, DecodeErrorKind};

use crate::fragments::{Fragment, Fragments, Key};
use crate::{LinkType, Record};

/// EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
const IPV6: u16 = 0x86dd;
/// EtherTypes of a VLAN tag: IEEE 802.1Q, 802.1ad, and two that switches used before 802.1ad.
const TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// Length of a VLAN tag with the EtherType behind it.
const TAG_LEN: usize = 4;
/// Headers between the header of IPv6 and UDP that are skipped: hop-by-hop options, routing,
/// destination options (RFC 8200 §4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// Fragment header of IPv6 (RFC 8200 §4.5).
const FRAGMENT: u8 = 44;

/// A UDP datagram in a packet over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Header of the packet.
    pub ip: Ipv4,
    /// Header of the datagram.
    pub udp: Udp,
    /// Payload.
    pub data: &'a [u8],
    /// State of the UDP checksum.
    pub checksum: Checksum,
}

/// A UDP datagram in one packet, or in the fragments of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// Payload.
    pub data: &'a [u8],
    /// State of the UDP checksum.
    pub checksum: Checksum,
    /// Number of fragments in which it came; 1 for one packet.
    pub fragments: usize,
}

/// State of a UDP checksum in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Correct, or absent.
    Right,
    /// The sum of the pseudo-header alone, to be completed by the network card. Appears in captures
    /// at the sender and on loopback.
    Unfinished,
    /// Incorrect.
    Wrong,
}

/// Reason why a packet has no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skipped {
    /// The header before the IP header is unknown; the link type.
    LinkType(u16),
    /// Neither IPv4 nor IPv6; the EtherType.
    EtherType(u16),
    /// Not UDP; the protocol of the IP packet.
    Protocol(u8),
    /// The capture holds the beginning of the packet only.
    Cut,
    /// A fragment that waits for others of its packet.
    Fragment,
    /// A header does not follow its format.
    Malformed,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkType(number) => write!(f, "the link type {number} is unknown"),
            Self::EtherType(0x0806) => f.write_str("ARP"),
            Self::EtherType(0x8864) => f.write_str("PPPoE"),
            Self::EtherType(number) => write!(f, "EtherType {number:#06x}, not IP"),
            Self::Protocol(1 | 58) => f.write_str("ICMP"),
            Self::Protocol(6) => f.write_str("TCP"),
            Self::Protocol(number) => write!(f, "IP protocol {number}, not UDP"),
            Self::Cut => f.write_str("captured in part; capture whole packets, without a limit"),
            Self::Fragment => f.write_str("IP fragments of packets that are incomplete"),
            Self::Malformed => f.write_str("malformed IP or UDP header"),
        }
    }
}

impl Record {
    /// Returns the packet from its IP header on; `None` for an unknown link type or another
    /// protocol than IP. VLAN tags are skipped.
    #[must_use]
    pub fn ip(&self) -> Option<&[u8]> {
        self.network().ok()
    }

    /// Returns the UDP datagram in the packet, if it is a complete one over IPv4.
    ///
    /// A checksum mismatch is reported, not refused: captures on hosts whose network card computes
    /// checksums hold unfinished ones.
    #[must_use]
    pub fn udp(&self) -> Option<Datagram<'_>> {
        let (ip, payload) = Ipv4::decode(self.ip()?).ok()?;
        if ip.protocol != PROTOCOL_UDP || ip.is_fragment() {
            return None;
        }
        let (udp, data, checksum) = read_udp(payload, ip.source.into(), ip.destination.into())?;
        Some(Datagram { ip, udp, data, checksum })
    }

    fn network(&self) -> Result<&[u8], Skipped> {
        let (type_at, len) = match self.link_type {
            LinkType::Ethernet => (12, 14),
            LinkType::LinuxCooked => (14, 16),
            LinkType::LinuxCooked2 => (0, 20),
            // These have no EtherType; the IP header begins with its version.
            LinkType::Null => return self.bytes.get(4..).ok_or(self.broken()),
            LinkType::Raw => return Ok(&self.bytes),
            LinkType::Other(number) => return Err(Skipped::LinkType(number)),
        };
        let ether_type =
            |at: usize| Some(u16::from_be_bytes([*self.bytes.get(at)?, *self.bytes.get(at + 1)?]));
        let (mut kind, mut start) = (ether_type(type_at).ok_or(self.broken())?, len);
        while TAGS.contains(&kind) {
            kind = ether_type(start + 2).ok_or(self.broken())?;
            start += TAG_LEN;
        }
        match kind {
            IPV4 | IPV6 => self.bytes.get(start..).ok_or(self.broken()),
            other => Err(Skipped::EtherType(other)),
        }
    }

    /// Reason why a packet ends early.
    fn broken(&self) -> Skipped {
        let is_cut = (self.bytes.len() as u64) < u64::from(self.original_len);
        if is_cut { Skipped::Cut } else { Skipped::Malformed }
    }

    fn refused(&self, error: &DecodeError) -> Skipped {
        match error.kind {
            DecodeErrorKind::Truncated { .. } => self.broken(),
            DecodeErrorKind::Checksum { .. }
            | DecodeErrorKind::Trailing { .. }
            | DecodeErrorKind::Version(_)
            | DecodeErrorKind::Invalid(_) => Skipped::Malformed,
        }
    }
}

/// Finds the UDP datagrams of a capture, also those of fragments, of which it holds a bounded
/// amount.
#[derive(Debug, Default)]
pub struct Datagrams {
    fragments: Fragments,
    /// Payload of the last packet that was put together.
    whole: Vec<u8>,
}

impl Datagrams {
    /// Returns the datagram that a packet completes. Packets come in the order of the capture.
    ///
    /// # Errors
    /// Reason why there is none.
    pub fn next<'a>(&'a mut self, record: &'a Record) -> Result<Found<'a>, Skipped> {
        let bytes = record.network()?;
        let packet = match bytes.first().map(|first| first >> 4) {
            Some(6) => {
                let (ip, payload) = Ipv6::decode(bytes).map_err(|error| record.refused(&error))?;
                over_ipv6(&ip, payload)?
            }
            _ => {
                let (ip, payload) = Ipv4::decode(bytes).map_err(|error| record.refused(&error))?;
                over_ipv4(&ip, payload)
            }
        };
        let Packet { source, destination, payload, protocol, fragment } = packet;
        let (protocol, payload, fragments) = match fragment {
            None => (protocol, payload, 1),
            Some(fragment) => {
                // Only the first fragment of IPv6 has the protocol of the packet.
                let protocol_of_all = if source.is_ipv4() { protocol } else { FRAGMENT };
                let key = Key {
                    interface: record.interface,
                    addresses: (source, destination),
                    protocol: protocol_of_all,
                    id: fragment.id,
                };
                let whole = self.fragments.add(record.at, key, fragment, protocol, payload);
                let whole = whole.ok_or(Skipped::Fragment)?;
                self.whole = whole.payload;
                let (protocol, payload) = upper(whole.protocol, &self.whole)?;
                (protocol, payload, whole.fragments)
            }
        };
        if protocol != PROTOCOL_UDP {
            return Err(Skipped::Protocol(protocol));
        }
        let read = read_udp(payload, source, destination).ok_or(Skipped::Malformed)?;
        let (udp, data, checksum) = read;
        let source = SocketAddr::new(source, udp.source);
        let destination = SocketAddr::new(destination, udp.destination);
        Ok(Found { source, destination, data, checksum, fragments })
    }

    /// Number of bytes of incomplete packets that are held, at most [`Self::HELD_MAX`].
    #[must_use]
    pub const fn held(&self) -> usize {
        self.fragments.held()
    }

    /// Maximum of [`Self::held`].
    pub const HELD_MAX: usize = Fragments::HELD_MAX;
}

/// An IP packet.
struct Packet<'a> {
    source: IpAddr,
    destination: IpAddr,
    /// Protocol of the payload. In IPv6, of the fragmentable part.
    protocol: u8,
    payload: &'a [u8],
    fragment: Option<Fragment>,
}

fn over_ipv4<'a>(ip: &Ipv4, payload: &'a [u8]) -> Packet<'a> {
    let fragment = ip.is_fragment().then(|| Fragment {
        id: ip.id.into(),
        offset: usize::from(ip.fragment & 0x1fff) * 8,
        is_last: ip.fragment & ip::MORE_FRAGMENTS == 0,
    });
    let (source, destination) = (ip.source.into(), ip.destination.into());
    Packet { source, destination, protocol: ip.protocol, payload, fragment }
}

fn over_ipv6<'a>(ip: &Ipv6, payload: &'a [u8]) -> Result<Packet<'a>, Skipped> {
    let (protocol, payload) = upper(ip.next_header, payload)?;
    let (source, destination) = (ip.source.into(), ip.destination.into());
    let packet = Packet { source, destination, protocol, payload, fragment: None };
    if protocol != FRAGMENT {
        return Ok(packet);
    }
    let (head, rest) = payload.split_first_chunk::<8>().ok_or(Skipped::Malformed)?;
    let place = u16::from_be_bytes([head[2], head[3]]);
    let fragment = Fragment {
        id: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        offset: usize::from(place & !7),
        is_last: place & 1 == 0,
    };
    if fragment.offset == 0 && fragment.is_last {
        // A fragment that is the whole packet (RFC 6946).
        let (protocol, payload) = upper(head[0], rest)?;
        return Ok(Packet { protocol, payload, ..packet });
    }
    Ok(Packet { protocol: head[0], payload: rest, fragment: Some(fragment), ..packet })
}

/// Skips extension headers. Returns the protocol behind them, and its bytes.
fn upper(mut protocol: u8, mut payload: &[u8]) -> Result<(u8, &[u8]), Skipped> {
    while EXTENSIONS.contains(&protocol) {
        let [next, len, ..] = *payload else { return Err(Skipped::Malformed) };
        payload = payload.get(8 * (usize::from(len) + 1)..).ok_or(Skipped::Malformed)?;
        protocol = next;
    }
    Ok((protocol, payload))
}

/// Reads a datagram between two addresses; `None` if a length is wrong.
fn read_udp(payload: &[u8], source: IpAddr, destination: IpAddr) -> Option<(Udp, &[u8], Checksum)> {
    let (head, _) = payload.split_first_chunk::<{ wire::udp::HEADER_LEN }>()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let len = word(4);
    let datagram = payload.get(..usize::from(len))?;
    let data = datagram.get(wire::udp::HEADER_LEN..)?;
    // The pseudo-header: addresses, protocol and length (RFC 768, RFC 8200 §8.1).
    let sum = |address: IpAddr| match address {
        IpAddr::V4(address) => ip::sum(&address.to_bits().to_be_bytes()),
        IpAddr::V6(address) => ip::sum(&address.to_bits().to_be_bytes()),
    };
    let pseudo = sum(source) + sum(destination) + u64::from(PROTOCOL_UDP) + u64::from(len);
    let checksum = match word(6) {
        0 => Checksum::Right,
        _ if ip::fold(pseudo + ip::sum(datagram)) == 0xffff => Checksum::Right,
        // Systems leave it to their network cards, not complemented.
        field if field == ip::fold(pseudo) => Checksum::Unfinished,
        _ => Checksum::Wrong,
    };
    Some((Udp { source: word(0), destination: word(2) }, data, checksum))
}

#[cfg(test)]
mod tests;
