//! Segments in IP packets.

use std::net::{IpAddr, SocketAddr};

use engine::Ecn;
use wire::DecodeErrorKind;
use wire::icmp::{self, Quoted, TooBig};
use wire::ip::{self, Ipv4};
use wire::ipv6::{self, Ipv6};

use crate::segment::scps::{self, Compressed, Head};
use crate::segment::{self, Header, PseudoHeader, Segment, TcpOption};

/// Received segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) tuple: Tuple,
    pub(crate) ecn: Ecn,
    /// IP protocol number: TCP's, or SCPS-TP's.
    pub(crate) carrier: u8,
    pub(crate) segment: Segment<'a>,
}

/// Received packet with a compressed header; its connection follows from the sender and its number
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedCompressed<'a> {
    pub(crate) remote: IpAddr,
    pub(crate) local: IpAddr,
    pub(crate) ecn: Ecn,
    pub(crate) packet: Compressed<'a>,
}

/// Router's report that a packet of this host was too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) ends: Ends,
    /// Sequence number of its segment, as on the wire.
    pub(crate) sequence: u32,
    /// Length of the packet, in bytes.
    pub(crate) len: usize,
    /// Longest packet that would have passed; 0 if not reported.
    pub(crate) mtu: u32,
}

/// Connection of a quoted packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    /// By its ports.
    Ports(Tuple),
    /// Connection by this host's number for compressed headers (CCSDS 714.0-B-2).
    Number { local: IpAddr, remote: IpAddr, number: u8 },
}

impl Ends {
    /// Host that the packet was sent to.
    pub(crate) fn remote(&self) -> IpAddr {
        match self {
            Self::Ports(tuple) => tuple.remote.ip(),
            Self::Number { remote, .. } => *remote,
        }
    }
}

/// Content of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketContent<'a> {
    Segment(Arrived<'a>),
    Compressed(ArrivedCompressed<'a>),
    Refused(Refused),
}

/// Addresses of a connection, from this host's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuple {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
}

/// Reason for ignoring a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Another protocol, or an extension header.
    NotTcp,
    /// Fragment.
    Fragment,
    /// A checksum is wrong.
    Checksum,
    /// Malformed packet or segment.
    Malformed,
}

impl From<wire::DecodeError> for Fault {
    fn from(error: wire::DecodeError) -> Self {
        match error.kind {
            DecodeErrorKind::Checksum { .. } => Self::Checksum,
            DecodeErrorKind::Truncated { .. }
            | DecodeErrorKind::Trailing { .. }
            | DecodeErrorKind::Version(_)
            | DecodeErrorKind::Invalid(_) => Self::Malformed,
        }
    }
}

/// Decodes a packet.
pub(crate) fn read(bytes: &[u8]) -> Result<PacketContent<'_>, Fault> {
    let (protocol, traffic_class, source, destination, payload) =
        if bytes.first().is_some_and(|first| first >> 4 == 6) {
            let (ip, payload) = Ipv6::decode(bytes)?;
            (ip.next_header, ip.traffic_class, ip.source.into(), ip.destination.into(), payload)
        } else {
            let (ip, payload) = Ipv4::decode(bytes)?;
            if ip.is_fragment() {
                return Err(Fault::Fragment);
            }
            let (source, destination) = (IpAddr::V4(ip.source), IpAddr::V4(ip.destination));
            (ip.protocol, ip.traffic_class, source, destination, payload)
        };
    if let Some(report) = too_big(protocol, source, destination, payload)? {
        return refused(&report).map(PacketContent::Refused);
    }
    let pseudo = PseudoHeader::new(source, destination, protocol);
    let ecn = match traffic_class & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    };
    if protocol == scps::COMPRESSED_PROTOCOL {
        let packet = Compressed::decode(payload, pseudo)?;
        let (remote, local) = (source, destination);
        return Ok(PacketContent::Compressed(ArrivedCompressed { remote, local, ecn, packet }));
    }
    if protocol != segment::PROTOCOL && protocol != scps::PROTOCOL {
        return Err(Fault::NotTcp);
    }
    let segment = Segment::decode(payload, pseudo)?;
    let tuple = Tuple {
        remote: SocketAddr::new(source, segment.header.source),
        local: SocketAddr::new(destination, segment.header.destination),
    };
    Ok(PacketContent::Segment(Arrived { tuple, ecn, carrier: protocol, segment }))
}

/// Packet-too-big report in this packet, if it is one.
fn too_big(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    payload: &[u8],
) -> Result<Option<TooBig<'_>>, Fault> {
    Ok(match (protocol, source, destination) {
        (icmp::PROTOCOL, IpAddr::V4(_), _) => TooBig::decode(payload)?,
        (icmp::PROTOCOL_V6, IpAddr::V6(source), IpAddr::V6(destination)) => {
            TooBig::decode_v6(payload, source, destination)?
        }
        (_, _, _) => None,
    })
}

/// Decodes the packet quoted by a router: at least 8 bytes of the segment, which are its ports and
/// its sequence number, or a whole compressed header.
fn refused(report: &TooBig<'_>) -> Result<Refused, Fault> {
    let quoted = Quoted::decode(report.quoted)?;
    let (len, mtu) = (quoted.len, report.mtu);
    if quoted.protocol == scps::COMPRESSED_PROTOCOL {
        let (Compressed { head, .. }, _) = Compressed::decode_unchecked(quoted.payload)?;
        let (local, remote) = (quoted.source, quoted.destination);
        let ends = Ends::Number { local, remote, number: head.connection };
        let sequence = head.sequence.ok_or(Fault::Malformed)?;
        return Ok(Refused { ends, sequence, len, mtu });
    }
    if quoted.protocol != segment::PROTOCOL && quoted.protocol != scps::PROTOCOL {
        return Err(Fault::NotTcp);
    }
    let head: &[u8; 8] = quoted.payload.first_chunk().ok_or(Fault::Malformed)?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let tuple = Tuple {
        local: SocketAddr::new(quoted.source, port(0)),
        remote: SocketAddr::new(quoted.destination, port(2)),
    };
    let sequence = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    Ok(Refused { ends: Ends::Ports(tuple), sequence, len, mtu })
}

/// Decodes a packet with a whole header.
pub(crate) fn decode(bytes: &[u8]) -> Result<Arrived<'_>, Fault> {
    match read(bytes)? {
        PacketContent::Segment(arrived) => Ok(arrived),
        PacketContent::Compressed(_) | PacketContent::Refused(_) => Err(Fault::NotTcp),
    }
}

/// Fields common to the packets of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) tuple: Tuple,
    pseudo: PseudoHeader,
    carrier: u8,
    hop_limit: u8,
    dscp: u8,
    /// Whether routers may fragment its IPv4 packets.
    pub(crate) may_fragment: bool,
    /// Identification of the next packet; consecutive numbers, for compressed headers.
    id: u16,
}

impl Flow {
    pub(crate) fn new(tuple: Tuple, hop_limit: u8, dscp: u8, id: u16) -> Self {
        let pseudo = PseudoHeader::new(tuple.local.ip(), tuple.remote.ip(), segment::PROTOCOL);
        let (carrier, dscp) = (segment::PROTOCOL, dscp & 0x3f);
        Self { tuple, pseudo, carrier, hop_limit, dscp, may_fragment: false, id }
    }

    /// Same flow with another protocol number.
    pub(crate) fn with_carrier(mut self, carrier: u8) -> Self {
        self.pseudo = PseudoHeader::new(self.tuple.local.ip(), self.tuple.remote.ip(), carrier);
        self.carrier = carrier;
        self
    }

    /// Bytes of the IP header.
    pub(crate) fn ip_len(&self) -> usize {
        ip_len(self.tuple.remote.ip())
    }

    /// Writes a packet around the data at its end.
    pub(crate) fn write(
        &mut self,
        packet: &mut [u8],
        header: Header,
        options: &[TcpOption<'_>],
        ecn: Ecn,
    ) {
        let (_, segment) = packet.split_at_mut(self.ip_len());
        let ports = Header {
            source: self.tuple.local.port(),
            destination: self.tuple.remote.port(),
            ..header
        };
        segment::encode(&ports, options, self.pseudo, segment)
            .expect("the packet has room for them");
        self.write_ip(packet, self.carrier, ecn);
    }

    /// Writes a packet with a compressed header around the data at its end.
    pub(crate) fn write_compressed(
        &mut self,
        packet: &mut [u8],
        head: &Head,
        options: &[TcpOption<'_>],
    ) {
        let (local, remote) = (self.tuple.local.ip(), self.tuple.remote.ip());
        let pseudo = PseudoHeader::new(local, remote, scps::COMPRESSED_PROTOCOL);
        let (_, segment) = packet.split_at_mut(self.ip_len());
        scps::encode(head, options, pseudo, segment).expect("the packet has room for them");
        self.write_ip(packet, scps::COMPRESSED_PROTOCOL, Ecn::NotEct);
    }

    fn write_ip(&mut self, packet: &mut [u8], protocol: u8, ecn: Ecn) {
        let mark = match ecn {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        };
        let traffic_class = self.dscp << 2 | mark;
        let len = packet.len();
        let ip_len = self.ip_len();
        let (head, _) = packet.split_at_mut(ip_len);
        match (self.tuple.local.ip(), self.tuple.remote.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let ip = Ipv4 {
                    traffic_class,
                    total_len: len as u16,
                    id: self.id,
                    fragment: if self.may_fragment { 0 } else { ip::DONT_FRAGMENT },
                    ttl: self.hop_limit,
                    protocol,
                    source,
                    destination,
                };
                self.id = self.id.wrapping_add(1);
                ip.encode(head.first_chunk_mut().expect("the length of its header"));
            }
            (local, remote) => {
                let ip = Ipv6 {
                    traffic_class,
                    flow_label: 0,
                    payload_len: (len - ip_len) as u16,
                    next_header: protocol,
                    hop_limit: self.hop_limit,
                    source: v6(local),
                    destination: v6(remote),
                };
                ip.encode(head.first_chunk_mut().expect("the length of its header"));
            }
        }
    }
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Bytes of the IP header of packets to this address.
pub(crate) fn ip_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => ip::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    }
}

/// Default segment size of a peer that announces none (RFC 9293 §3.7.1).
pub(crate) fn mss_default(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => 576 - 40,
        IpAddr::V6(_) => 1280 - 60,
    }
}

#[cfg(test)]
mod tests {
    use crate::segment::Flags;

    use super::*;

    fn packet(local: &str, remote: &str, ecn: Ecn) -> Vec<u8> {
        let tuple = Tuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
        let mut flow = Flow::new(tuple, 64, 0, 7);
        let mut packet = vec![0xa5; flow.ip_len() + 24 + 3];
        let header = Header { flags: Flags::ACK, sequence: 5, ..Header::default() };
        flow.write(&mut packet, header, &[TcpOption::MaximumSegmentSize(9)], ecn);
        packet
    }

    #[test]
    fn packets_round_trip_between_the_ends() {
        for (local, remote) in [("10.0.0.1:80", "10.0.0.2:999"), ("[fe80::1]:80", "[fe80::2]:999")]
        {
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                let packet = packet(local, remote, ecn);
                let arrived = decode(&packet).expect("our own packet");
                assert_eq!(arrived.tuple.remote, local.parse().unwrap());
                assert_eq!(arrived.tuple.local, remote.parse().unwrap());
                assert_eq!((arrived.ecn, arrived.segment.payload), (ecn, &[0xa5; 3][..]));
            }
        }
    }

    #[test]
    fn invalid_segments_are_recognised() {
        let fault = |change: fn(&mut Vec<u8>)| {
            let mut packet = packet("10.0.0.1:80", "10.0.0.2:999", Ecn::NotEct);
            change(&mut packet);
            // The header's checksum is right again.
            if let Some(head) = packet.first_chunk_mut::<20>() {
                head[10..12].fill(0);
                let sum = !ip::fold(ip::sum(head));
                head[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            decode(&packet).err()
        };
        assert_eq!(fault(|_| {}), None);
        assert_eq!(fault(|packet| packet[9] = 17), Some(Fault::NotTcp));
        assert_eq!(fault(|packet| packet[6] = 0x20), Some(Fault::Fragment));
        assert_eq!(fault(|packet| packet[46] ^= 1), Some(Fault::Checksum));
        assert_eq!(fault(|packet| packet[0] = 0x55), Some(Fault::Malformed));
        assert_eq!(fault(|packet| packet.truncate(30)), Some(Fault::Malformed));
        assert_eq!(decode(&[]).err(), Some(Fault::Malformed));
    }
}
