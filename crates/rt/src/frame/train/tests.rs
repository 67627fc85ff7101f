use std::net::IpAddr;

use proptest::prelude::*;
use tcp::segment::{self, Flags, Header, PseudoHeader, Segment, TcpOption};
use wire::ip::{self, Ipv4};
use wire::ipv6::Ipv6;

use super::super::shape::IPV4_LEN;
use super::*;
use crate::frame::{Shape, complete};

const STAMPS: [TcpOption<'static>; 3] =
    [TcpOption::NoOperation, TcpOption::NoOperation, TcpOption::Timestamps { value: 5, echo: 6 }];

/// Summary of a segment: its number, its flags, bytes of its payload.
type Summary = (u32, Flags, usize);

fn segment(v6: bool, (sequence, flags, len): Summary) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = if v6 {
        ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
    } else {
        ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap())
    };
    let ip = if v6 { IPV6_LEN } else { IPV4_LEN };
    let mut packet = vec![0xa5; ip];
    packet.extend([0; 32]);
    packet.extend((0..len).map(|byte| (byte + sequence as usize) as u8));
    let (head, rest) = packet.split_at_mut(ip);
    let header = Header {
        source: 80,
        destination: 999,
        sequence,
        acknowledgment: 7,
        flags,
        window: 500,
        ..Header::default()
    };
    segment::encode(&header, &STAMPS, PseudoHeader::new(from, to, segment::PROTOCOL), rest)
        .unwrap();
    let total = (ip + rest.len()) as u16;
    match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4 {
                traffic_class: 0,
                total_len: total,
                id: sequence as u16,
                fragment: ip::DONT_FRAGMENT,
                ttl: 64,
                protocol: segment::PROTOCOL,
                source,
                destination,
            };
            header.encode(head.first_chunk_mut().unwrap());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6 {
                traffic_class: 0,
                flow_label: 0,
                payload_len: total - IPV6_LEN as u16,
                next_header: segment::PROTOCOL,
                hop_limit: 64,
                source,
                destination,
            };
            header.encode(head.first_chunk_mut().unwrap());
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => unreachable!(),
    }
    packet
}

/// Consecutive segments of these lengths.
fn segments(v6: bool, lens: &[usize]) -> Vec<Vec<u8>> {
    let mut sequence = u32::MAX - 150;
    let next = |len: &usize| {
        let packet = segment(v6, (sequence, Flags::ACK, *len));
        sequence = sequence.wrapping_add(*len as u32);
        packet
    };
    lens.iter().map(next).collect()
}

fn joined(packets: &[Vec<u8>]) -> Train {
    let mut train = Train::begin(&packets[0]).unwrap();
    for packet in &packets[1..] {
        if !train.take(&packets[0], packet) {
            break;
        }
    }
    train
}

/// Segments a joined packet as a kernel's device does.
fn cut(packets: &[Vec<u8>], train: &Train) -> Vec<Vec<u8>> {
    let mut out = [0xa5; HEADER_MAX];
    let (vnet, len) = train.header(&packets[0], &mut out);
    let mut whole = out[..len].to_vec();
    packets.iter().for_each(|packet| whole.extend(&packet[len..]));
    let shape = Shape::from_packet(&vnet, &whole).unwrap();
    let piece = |index: u16| {
        let mut header = [0; HEADER_MAX];
        let (vnet, len) = shape.header(&whole, index..index + 1, &mut header);
        let mut piece = header[..len].to_vec();
        piece.extend(&whole[shape.payload(index..index + 1)]);
        if let Some(checksum) = vnet.checksum {
            complete(&mut piece, checksum);
        }
        piece
    };
    (0..shape.segments()).map(piece).collect()
}

#[test]
fn joined_packets_are_segmented_into_the_same() {
    for v6 in [false, true] {
        let mut packets = segments(v6, &[100, 100, 100]);
        packets.push(segment(v6, (149, Flags::ACK | Flags::PSH | Flags::FIN, 40)));
        packets[0] = segment(v6, (u32::MAX - 150, Flags::ACK | Flags::CWR, 100));
        let train = joined(&packets);
        assert_eq!(train.count(), 4);
        let mut pieces = cut(&packets, &train);
        if !v6 {
            // The kernel numbers packets from the first one's identification.
            for (piece, packet) in pieces.iter_mut().zip(&packets) {
                piece[4..6].copy_from_slice(&packet[4..6]);
                piece[10..12].copy_from_slice(&packet[10..12]);
            }
        }
        assert_eq!(pieces, packets);
    }
}

#[test]
fn different_segments_are_not_joined() {
    let count = |packets: &[Vec<u8>]| joined(packets).count();
    assert_eq!(count(&segments(false, &[100, 100, 101])), 2, "longer");
    assert_eq!(count(&segments(false, &[100, 40, 40])), 2, "behind the last");
    assert_eq!(count(&segments(true, &[1_448; 64])), 45, "the longest packet");
    let mut packets = segments(false, &[100, 100]);
    packets.push(segment(false, (60, Flags::ACK, 100)));
    assert_eq!(count(&packets), 2, "a number that does not follow");
    let second = |flags| {
        vec![segments(false, &[100]).remove(0), segment(false, (u32::MAX - 50, flags, 100))]
    };
    assert_eq!(count(&second(Flags::ACK)), 2);
    assert_eq!(count(&second(Flags::ACK | Flags::PSH)), 2);
    assert_eq!(count(&second(Flags::ACK | Flags::CWR)), 1, "the window reduced");
    assert_eq!(count(&second(Flags::ACK | Flags::ECE)), 1, "another flag");
    let mut packets = second(Flags::ACK | Flags::PSH);
    packets.push(segment(false, (49, Flags::ACK, 100)));
    assert_eq!(count(&packets), 2, "behind what is pushed");
    let mut packets = segments(false, &[100, 100]);
    packets[1][30] ^= 1;
    assert_eq!(count(&packets), 1, "another acknowledgment");
    let mut packets = segments(false, &[100, 100]);
    packets[1][19] ^= 1;
    assert_eq!(count(&packets), 1, "another address");
    let mut packets = segments(false, &[100, 100]);
    packets.iter_mut().for_each(|packet| packet[6] = 0);
    assert_eq!(count(&packets), 1, "a number of packets that could be cut");
    for flags in [Flags::SYN, Flags::RST, Flags::URG] {
        assert_eq!(Train::begin(&segment(false, (1, flags, 10))), None);
    }
    assert_eq!(Train::begin(&segment(false, (1, Flags::ACK, 0))), None, "without data");
    let mut packet = segment(false, (1, Flags::ACK, 10));
    packet[6] = 0x20;
    assert_eq!(Train::begin(&packet), None, "a fragment");
    assert_eq!(Train::begin(&packet[..30]), None, "not whole");
    assert_eq!(Train::begin(&[]), None);
}

proptest! {
    #[test]
    fn bytes_and_checksums_survive(
        v6: bool,
        first in 1..1_500usize,
        count in 1..70usize,
        last in 1..1_500usize,
        flags in prop::sample::select(vec![Flags::ACK, Flags::ACK | Flags::PSH, Flags::ACK | Flags::PSH | Flags::FIN]),
    ) {
        let mut packets = segments(v6, &vec![first; count]);
        let sequence = (u32::MAX - 150).wrapping_add((first * count) as u32);
        packets.push(segment(v6, (sequence, flags, last)));
        let train = joined(&packets);
        let taken = usize::from(train.count());
        prop_assert!(taken >= 1);
        let packets = &packets[..taken];
        if taken > 1 {
            for (piece, packet) in cut(packets, &train).iter().zip(packets) {
                let skip = if v6 { IPV6_LEN } else { IPV4_LEN };
                prop_assert_eq!(&piece[skip..], &packet[skip..]);
                if !v6 {
                    prop_assert_eq!(ip::fold(ip::sum(&piece[..skip])), 0xffff);
                }
            }
        } else {
            let mut out = [0; HEADER_MAX];
            let (vnet, len) = train.header(&packets[0], &mut out);
            prop_assert_eq!(vnet, Vnet::default());
            prop_assert_eq!(&out[..len], &packets[0][..len]);
        }
        let ip = if v6 { IPV6_LEN } else { IPV4_LEN };
        let (from, to) = if v6 { ("fd00::1", "fd00::2") } else { ("10.9.0.1", "10.9.0.2") };
        let pseudo = PseudoHeader::new(from.parse().unwrap(), to.parse().unwrap(), segment::PROTOCOL);
        prop_assert!(Segment::decode(&packets[0][ip..], pseudo).is_ok());
    }

    #[test]
    fn random_packets_cause_no_panic(packet in prop::collection::vec(any::<u8>(), 0..200), other in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(mut train) = Train::begin(&packet) {
            train.take(&packet, &other);
            let _ = train.header(&packet, &mut [0; HEADER_MAX]);
        }
    }
}
