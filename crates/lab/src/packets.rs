//! Packets of a capture: times, addresses, and decoded contents.

use std::collections::BTreeMap;
use std::io::Read;

use engine::Time;
use pcap::{ReadError, Reader, Record};
use tcp::segment::{self, Flags, SackBlock, Segment, TcpOption};
use wire::DecodeError;
use wire::ip::Ipv4;

use crate::decode::{self, How, Language, Pdus, Votes};

/// An IPv4 packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Capture time.
    pub at: Time,
    /// The interface's number in the capture.
    pub interface: u32,
    /// IP header.
    pub ip: Ipv4,
    /// Source and destination port of a UDP datagram or a TCP segment.
    pub ports: Option<(u16, u16)>,
    /// Bytes of payload.
    pub data: Option<usize>,
    /// Decoded UDP payload, or the decoding error.
    pub says: Option<String>,
    /// Decoded TCP header.
    pub tcp: Option<Tcp>,
    /// Comment in the capture: the fate of the packet if slowlight wrote the capture.
    pub comment: Option<String>,
}

/// Header of a TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Sender's window in bytes, scaled as negotiated (RFC 7323 §2).
    pub window: u32,
    /// SACK blocks (RFC 2018 §3).
    pub sack: Vec<SackBlock>,
}

/// Contents of a capture.
#[derive(Debug)]
pub struct Packets {
    /// IPv4 packets, in order.
    pub packets: Vec<Packet>,
    /// Error that ended reading before the end, if any.
    pub cut: Option<ReadError>,
}

/// Interface, sender and ports: segments of one direction have the same window scale.
type Direction = (u32, [u8; 4], (u16, u16));

/// Reads a capture whose datagrams are of the protocol `requested`, or of the one that can decode
/// most of them.
///
/// # Errors
///
/// The source does not start with a capture's header.
pub fn read(source: impl Read, requested: Option<Language>) -> Result<Packets, ReadError> {
    let (mut records, mut cut) = (Vec::new(), None);
    for record in Reader::new(source)? {
        match record {
            Ok(record) => records.push(record),
            Err(error) => cut = Some(error),
        }
    }
    let language = requested.unwrap_or_else(|| {
        let mut votes = Votes::default();
        records.iter().filter_map(Record::udp).for_each(|datagram| votes.record(datagram.data));
        votes.most_likely()
    });
    let mut scales = BTreeMap::new();
    let packets = records.iter().flat_map(|record| read_record(record, language, &mut scales));
    Ok(Packets { packets: packets.collect(), cut })
}

/// Packets of a record: none if it is not IPv4, and several if segmentation offload joined them.
fn read_record(
    record: &Record,
    language: Language,
    scales: &mut BTreeMap<Direction, u8>,
) -> Vec<Packet> {
    let Some(Ok((ip, payload))) = record.ip().map(Ipv4::decode) else { return Vec::new() };
    let (at, interface, comment) = (record.at, record.interface, record.comment.clone());
    let (ports, data, says, tcp) = (None, None, None, None);
    let mut packet = Packet { at, interface, ip, ports, data, says, tcp, comment };
    if let Some(datagram) = record.udp() {
        packet.ports = Some((datagram.udp.source, datagram.udp.destination));
        return datagrams(&packet, datagram.data, language);
    }
    // Checksums are not checked: network cards write them after the capture.
    if ip.protocol == segment::PROTOCOL
        && !ip.is_fragment()
        && let Ok(segment) = Segment::decode_unchecked(payload)
    {
        packet.ports = Some((segment.header.source, segment.header.destination));
        packet.data = Some(segment.payload.len());
        packet.tcp = Some(of_segment(interface, ip, &segment, scales));
    }
    vec![packet]
}

/// The packets of the datagrams in one packet, as on the line.
fn datagrams(packet: &Packet, bytes: &[u8], language: Language) -> Vec<Packet> {
    let unread = |error: DecodeError| format!("not {language}: {error}");
    let with = |data: usize, says: String| {
        let joined = (bytes.len() - data) as u16;
        let ip = Ipv4 { total_len: packet.ip.total_len - joined, ..packet.ip };
        Packet { ip, data: Some(data), says: Some(says), ..packet.clone() }
    };
    match language.pdus(bytes, How::Requested) {
        Err(error) => vec![with(bytes.len(), unread(error))],
        Ok(Pdus { lines, surplus }) if lines.len() == 1 => {
            let says = lines.into_iter().map(|(_, line)| line.unwrap_or_else(unread));
            let says = says.collect::<String>() + &decode::surplus(surplus);
            vec![with(bytes.len(), says)]
        }
        Ok(pdus) => {
            let lines = pdus.lines.into_iter();
            lines.map(|(len, line)| with(len, line.unwrap_or_else(unread))).collect()
        }
    }
}

fn of_segment(
    interface: u32,
    ip: Ipv4,
    segment: &Segment<'_>,
    scales: &mut BTreeMap<Direction, u8>,
) -> Tcp {
    let header = segment.header;
    let direction = (interface, ip.source.octets(), (header.source, header.destination));
    let mut sack = Vec::new();
    for option in segment.options.map_while(Result::ok) {
        match option {
            TcpOption::WindowScale(shift) => {
                // RFC 7323 §2.3: more than 14 counts as 14.
                scales.insert(direction, shift.min(14));
            }
            TcpOption::Sack(blocks) => sack.extend(blocks.as_slice()),
            TcpOption::NoOperation
            | TcpOption::MaximumSegmentSize(_)
            | TcpOption::SackPermitted
            | TcpOption::Timestamps { .. }
            | TcpOption::ScpsCapabilities(_)
            | TcpOption::ScpsExtended(_)
            | TcpOption::Snack { .. }
            | TcpOption::RecordBoundary
            | TcpOption::CorruptionExperienced
            | TcpOption::Unknown { .. } => {}
        }
    }
    let is_syn = header.flags.contains(Flags::SYN);
    // The window of a SYN is never scaled (RFC 7323 §2.2).
    let shift = scales.get(&direction).filter(|_| !is_syn).copied().unwrap_or_default();
    Tcp {
        sequence: header.sequence,
        acknowledgment: header.acknowledgment,
        flags: header.flags,
        window: u32::from(header.window) << shift,
        sack,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use pcap::{Direction as PathPlan, LinkType, Writer};
    use tcp::segment;
    use tcp::segment::{HEADER_LEN, Header, PseudoHeader};
    use wire::ip;

    use super::*;

    /// A packet with a segment from 10.0.0.1:1000 to 10.0.0.2:2000, or the reverse.
    fn packet(from: u8, header: Header, options: &[TcpOption<'_>], data: usize) -> Vec<u8> {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let (source, destination) = (address(from), address(3 - from));
        let ports = if from == 1 { (1000, 2000) } else { (2000, 1000) };
        let header = Header { source: ports.0, destination: ports.1, window: 1000, ..header };
        let mut segment = vec![0; HEADER_LEN + segment::options_len(options) + data];
        let pseudo = PseudoHeader::new(source.into(), destination.into(), segment::PROTOCOL);
        segment::encode(&header, options, pseudo, &mut segment).unwrap();
        let ip = Ipv4 {
            traffic_class: 0,
            total_len: (ip::HEADER_LEN + segment.len()) as u16,
            id: 0,
            fragment: 0,
            ttl: 64,
            protocol: segment::PROTOCOL,
            source,
            destination,
        };
        let mut head = [0; ip::HEADER_LEN];
        ip.encode(&mut head);
        [&head[..], &segment].concat()
    }

    fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let interface = writer.interface("eth", LinkType::Raw).unwrap();
        for (second, packet) in packets.iter().enumerate() {
            let at = Time::from_nanos(second as u64 * 1_000_000_000);
            writer.packet(at, interface, PathPlan::In, &[], packet, None).unwrap();
        }
        bytes
    }

    #[test]
    fn windows_are_scaled_and_sack_is_decoded() {
        let scale = [TcpOption::WindowScale(7), TcpOption::NoOperation];
        let block = SackBlock { left: 300, right: 400 };
        let sack = [
            TcpOption::NoOperation,
            TcpOption::NoOperation,
            TcpOption::Sack([block].into_iter().collect()),
        ];
        let header = |flags| Header { flags, ..Header::default() };
        let bytes = capture(&[
            packet(1, header(Flags::SYN), &[scale[0], scale[1]], 0),
            packet(2, header(Flags::SYN | Flags::ACK), &[scale[0], scale[1]], 0),
            packet(1, header(Flags::ACK), &[], 100),
            packet(2, header(Flags::ACK), &sack, 0),
        ]);
        let read = read(&bytes[..], None).unwrap();
        assert!(read.cut.is_none());
        let windows: Vec<_> =
            read.packets.iter().map(|one| one.tcp.as_ref().unwrap().window).collect();
        // A SYN's window is never scaled.
        assert_eq!(windows, [1000, 1000, 128_000, 128_000]);
        assert_eq!((read.packets[2].data, read.packets[2].ports), (Some(100), Some((1000, 2000))));
        assert_eq!(read.packets[3].tcp.as_ref().unwrap().sack, [block]);
        assert_eq!(read.packets[3].at, Time::from_nanos(3_000_000_000));
    }

    #[test]
    fn truncated_captures_are_read_up_to_the_cut() {
        let whole =
            capture(&[packet(1, Header::default(), &[], 9), packet(2, Header::default(), &[], 0)]);
        for len in 0..whole.len() {
            match read(&whole[..len], None) {
                Ok(read) => assert!(read.packets.len() < 2),
                Err(error) => assert!(len < 60, "{len}: {error}"),
            }
        }
        let cut = read(&whole[..whole.len() - 9], None).unwrap();
        assert_eq!(cut.packets.len(), 1);
        assert!(matches!(cut.cut, Some(ReadError::Truncated { .. })));
        assert!(read(&b"no capture at all"[..], None).is_err());
    }
}
