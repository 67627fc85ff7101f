//! Router reports that a packet exceeds the MTU of its next link (RFC 792, RFC 1191 §4, RFC 4443
//! §3.2).
//!
//! | bytes | ICMP for IPv4 | ICMPv6 |
//! |---|---|---|
//! | 0 | type, 3 | type, 2 |
//! | 1 | code, 4 | code, ignored |
//! | 2–3 | checksum over the message | checksum over pseudo header and message |
//! | 4–5 | unused | MTU of the next link, upper half |
//! | 6–7 | MTU of the next link, 0 from routers before RFC 1191 | its lower half |
//! | 8– | the packet, truncated | the packet, truncated |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ip::{self, checksum_error, fold, sum, truncated};
use crate::{DecodeError, DecodeErrorKind, ipv6};

/// Protocol number of ICMP for IPv4.
pub const PROTOCOL: u8 = 1;
/// Protocol number of ICMPv6.
pub const PROTOCOL_V6: u8 = 58;
/// Length of the header before the quoted packet, in bytes.
pub const HEADER_LEN: usize = 8;

/// Destination unreachable, with the code for "fragmentation needed".
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
/// Packet too big.
const TOO_BIG_V6: u8 = 2;

/// Router's report that a packet is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig<'a> {
    /// MTU of the next link, in bytes; 0 if the router does not report it.
    pub mtu: u32,
    /// Start of the packet, see [`Quoted::decode`].
    pub quoted: &'a [u8],
}

impl<'a> TooBig<'a> {
    /// Decodes the payload of an IPv4 packet whose protocol is [`PROTOCOL`]; `None` for other ICMP
    /// messages.
    ///
    /// # Errors
    /// When the message is truncated or its checksum fails.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let (head, quoted) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        if head[..2] != [UNREACHABLE, FRAGMENTATION_NEEDED] {
            return Ok(None);
        }
        let total = fold(sum(bytes));
        if total != 0xffff {
            return Err(checksum_error(2, [head[2], head[3]], total));
        }
        let mtu = u32::from(u16::from_be_bytes([head[6], head[7]]));
        Ok(Some(Self { mtu, quoted }))
    }

    /// Decodes the payload of an IPv6 packet between these addresses whose next header is
    /// [`PROTOCOL_V6`]; `None` for other ICMPv6 messages.
    ///
    /// # Errors
    /// When the message is truncated or its checksum fails.
    pub fn decode_v6(
        bytes: &'a [u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<Option<Self>, DecodeError> {
        let (head, quoted) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        if head[0] != TOO_BIG_V6 {
            return Ok(None);
        }
        let total = fold(pseudo_header(source, destination, bytes.len()) + sum(bytes));
        if total != 0xffff {
            return Err(checksum_error(2, [head[2], head[3]], total));
        }
        Ok(Some(Self { mtu: u32::from_be_bytes([head[4], head[5], head[6], head[7]]), quoted }))
    }
}

impl fmt::Display for TooBig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ICMP packet too big, MTU {}", self.mtu)?;
        match Quoted::decode(self.quoted) {
            Ok(quoted) => write!(f, ", {quoted}"),
            Err(_) => write!(f, ", {} bytes quoted", self.quoted.len()),
        }
    }
}

/// Writes the IPv4 header before the quoted packet, which is already in `message[8..]`. An `mtu`
/// of more than 16 bits is written as 65,535.
///
/// # Panics
/// If `message` is shorter than the header.
pub fn encode(mtu: u32, message: &mut [u8]) {
    let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
    let head = [UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0, high, low];
    message[..HEADER_LEN].copy_from_slice(&head);
    let checksum = !fold(sum(message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the ICMPv6 header, whose checksum covers these addresses.
///
/// # Panics
/// If `message` is shorter than the header.
pub fn encode_v6(mtu: u32, source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    message[..4].copy_from_slice(&[TOO_BIG_V6, 0, 0, 0]);
    message[4..8].copy_from_slice(&mtu.to_be_bytes());
    let checksum = !fold(pseudo_header(source, destination, message.len()) + sum(message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Returns the checksum's initial sum, of addresses, length and next header (RFC 8200 §8.1).
fn pseudo_header(source: Ipv6Addr, destination: Ipv6Addr, len: usize) -> u64 {
    sum(&source.octets()) + sum(&destination.octets()) + len as u64 + u64::from(PROTOCOL_V6)
}

/// Headers of a packet quoted by a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Source of the packet.
    pub source: IpAddr,
    /// Destination of the packet.
    pub destination: IpAddr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Length of the whole packet, in bytes.
    pub len: usize,
    /// Quoted bytes of the payload: at least 8 from a router that follows RFC 792.
    pub payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// Decodes a packet that may be truncated after its header. Does not verify the header's
    /// checksum: a router may have changed the TTL.
    ///
    /// # Errors
    /// When the bytes are not a packet, are truncated within the header, or are a fragment other
    /// than the first.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.first().ok_or(truncated(1, 0))? >> 4 {
            4 => Self::decode_v4(bytes),
            6 => Self::decode_v6(bytes),
            version => Err(DecodeError { offset: 0, kind: DecodeErrorKind::Version(version) }),
        }
    }

    fn decode_v4(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, _) = bytes
            .split_first_chunk::<{ ip::HEADER_LEN }>()
            .ok_or(truncated(ip::HEADER_LEN, bytes.len()))?;
        let header_len = usize::from(head[0] & 0x0f) * 4;
        if header_len < ip::HEADER_LEN {
            return Err(DecodeError::invalid(0, "the header length is below 20"));
        }
        if u16::from_be_bytes([head[6], head[7]]) & 0x1fff != 0 {
            return Err(DecodeError::invalid(6, "a fragment without the payload's header"));
        }
        let payload = bytes.get(header_len..).ok_or(truncated(header_len, bytes.len()))?;
        Ok(Self {
            source: Ipv4Addr::new(head[12], head[13], head[14], head[15]).into(),
            destination: Ipv4Addr::new(head[16], head[17], head[18], head[19]).into(),
            protocol: head[9],
            len: usize::from(u16::from_be_bytes([head[2], head[3]])),
            payload,
        })
    }

    fn decode_v6(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, payload) = bytes
            .split_first_chunk::<{ ipv6::HEADER_LEN }>()
            .ok_or(truncated(ipv6::HEADER_LEN, bytes.len()))?;
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&head[at..at + 16]);
            IpAddr::V6(bytes.into())
        };
        Ok(Self {
            source: address(8),
            destination: address(24),
            protocol: head[6],
            len: ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([head[4], head[5]])),
            payload,
        })
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, len, .. } = self;
        write!(f, "{source} > {destination} protocol {protocol} length {len}")
    }
}

#[cfg(test)]
mod tests;
