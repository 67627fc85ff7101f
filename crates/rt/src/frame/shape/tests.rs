use proptest::prelude::*;
use wire::ip::Ipv4;

use super::*;

const MSS: usize = 1000;

/// A TCP packet with FIN, PSH and CWR, its checksum left to the device.
fn tcp(version: u8, payload: &[u8]) -> (Vnet, Vec<u8>) {
    let ip = if version == 4 { IPV4_LEN } else { IPV6_LEN };
    let mut packet = vec![0; ip];
    // Time stamps make the header 32 bytes long.
    packet.extend([0x12, 0x34, 0x00, 0x50, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1, 0x80, 0x99, 1, 1]);
    packet.extend([0, 0, 0, 0, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet.extend(payload);
    finish(version, TCP, (ip, 16), &mut packet);
    let kind = if version == 4 { Kind::TcpV4 } else { Kind::TcpV6 };
    let checksum = Some(Checksum { start: ip as u16, offset: 16 });
    let cut = Some(Cut { kind, segment: MSS as u16, ecn: true });
    (Vnet { checksum, cut, header_len: (ip + 32) as u16 }, packet)
}

fn udp(version: u8, payload: &[u8]) -> (Vnet, Vec<u8>) {
    let ip = if version == 4 { IPV4_LEN } else { IPV6_LEN };
    let mut packet = vec![0; ip];
    packet.extend([0x12, 0x34, 0x00, 0x50]);
    packet.extend(((payload.len() + 8) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    finish(version, UDP, (ip, 6), &mut packet);
    let checksum = Some(Checksum { start: ip as u16, offset: 6 });
    let cut = Some(Cut { kind: Kind::Udp, segment: MSS as u16, ecn: false });
    (Vnet { checksum, cut, header_len: (ip + 8) as u16 }, packet)
}

/// Prepends an IP header and stores the pseudo header's sum in the checksum field.
fn finish(version: u8, protocol: u8, (ip, offset): (usize, usize), packet: &mut [u8]) {
    let len = packet.len();
    if version == 4 {
        packet[0] = 0x45;
        put(packet, 2, len as u16);
        put(packet, 4, 0xfffe);
        (packet[6], packet[8], packet[9]) = (0x40, 64, protocol);
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = !fold(sum(&packet[..20]));
        put(packet, 10, checksum);
    } else {
        packet[0] = 0x60;
        put(packet, 4, (len - IPV6_LEN) as u16);
        (packet[6], packet[7], packet[8], packet[24]) = (protocol, 64, 0xfd, 0xfd);
        (packet[23], packet[39]) = (1, 2);
    }
    let pseudo = pseudo_sum(packet, protocol, len - ip);
    put(packet, ip + offset, pseudo);
}

/// A packet of these segments as a device without offloads would see it.
fn cut_out(shape: &Shape, packet: &[u8], segments: Range<u16>) -> (Vnet, Vec<u8>) {
    let mut header = [0; HEADER_MAX];
    let (vnet, len) = shape.header(packet, segments.clone(), &mut header);
    let mut out = header[..len].to_vec();
    out.extend(&packet[shape.payload(segments)]);
    (vnet, out)
}

/// Whether a TCP or UDP packet's checksum is valid, computed independently.
fn is_sound(packet: &[u8]) -> bool {
    let (ip, protocol) =
        if packet[0] >> 4 == 4 { (IPV4_LEN, packet[9]) } else { (IPV6_LEN, packet[6]) };
    let pseudo = pseudo_sum(packet, protocol, packet.len() - ip);
    fold(u64::from(pseudo) + sum(&packet[ip..])) == 0xffff
}

#[test]
fn segments_match_kernel_segmentation() {
    for version in [4, 6] {
        let (vnet, packet) = tcp(version, &[7; 2500]);
        let shape = Shape::from_packet(&vnet, &packet).unwrap();
        assert_eq!(shape.segments(), 3);
        let header = usize::from(vnet.header_len);
        for index in 0..3 {
            let (alone, mut segment) = cut_out(&shape, &packet, index..index + 1);
            assert_eq!((alone.cut, alone.checksum), (None, vnet.checksum));
            assert_eq!(segment.len(), shape.segment_len(index));
            let payload = if index == 2 { 500 } else { 1000 };
            assert_eq!(segment.len(), header + payload);
            complete(&mut segment, alone.checksum.unwrap());
            assert!(is_sound(&segment), "version {version}, segment {index}");
            let at = header - 32;
            let sequence = u32::from_be_bytes(segment[at + 4..at + 8].try_into().unwrap());
            assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(u32::from(index) * 1000));
            let flags = [0x90, 0x10, 0x19][usize::from(index)];
            assert_eq!(segment[at + 13], flags, "CWR on the first, FIN and PSH on the last");
            if version == 4 {
                let (ip, _) = Ipv4::decode(&segment).unwrap();
                assert_eq!(usize::from(ip.total_len), segment.len());
                assert_eq!(ip.id, 0xfffe_u16.wrapping_add(index));
            } else {
                let len = u16::from_be_bytes([segment[4], segment[5]]);
                assert_eq!(usize::from(len), segment.len() - IPV6_LEN);
            }
        }
    }
}

#[test]
fn datagrams_get_their_length_and_checksum() {
    for version in [4, 6] {
        let (vnet, packet) = udp(version, &[9; 2001]);
        let shape = Shape::from_packet(&vnet, &packet).unwrap();
        assert_eq!(shape.segments(), 3);
        let (alone, mut last) = cut_out(&shape, &packet, 2..3);
        complete(&mut last, alone.checksum.unwrap());
        assert!(is_sound(&last));
        let at = usize::from(vnet.header_len) - 8;
        assert_eq!(last[at + 4..at + 6], [0, 9]);
        let (pair, bytes) = cut_out(&shape, &packet, 1..3);
        assert_eq!(pair.cut, vnet.cut);
        assert_eq!(Shape::from_packet(&pair, &bytes).unwrap().segments(), 2);
    }
}

#[test]
fn ordinary_packets_pass_unchanged() {
    let (vnet, packet) = udp(4, &[1; 100]);
    let plain = Vnet { cut: None, ..vnet };
    let shape = Shape::from_packet(&plain, &packet).unwrap();
    assert_eq!((shape.segments(), shape.segment_len(0)), (1, packet.len()));
    let (cut_header, bytes) = cut_out(&shape, &packet, 0..1);
    assert_eq!(bytes, packet);
    assert_eq!(cut_header, Vnet { checksum: vnet.checksum, ..Vnet::default() });
    // A packet marked for segmentation that fits one segment is an ordinary packet, too.
    let shape = Shape::from_packet(&vnet, &packet).unwrap();
    assert_eq!(cut_out(&shape, &packet, 0..1), (cut_header, packet));
}

#[test]
fn udp_checksum_of_zero_is_sent_as_all_ones() {
    let (vnet, mut packet) = udp(4, &[0, 0]);
    let checksum = vnet.checksum.unwrap();
    // A payload that complements the sum of everything else.
    let rest = fold(sum(&packet[20..]));
    put(&mut packet, 28, !rest);
    complete(&mut packet, checksum);
    assert_eq!(packet[26..28], [0xff, 0xff]);
    assert!(is_sound(&packet));
}

#[test]
fn contradictions_are_refused() {
    let (vnet, packet) = tcp(4, &[7; 2500]);
    let refused = |vnet: Vnet, packet: &[u8]| Shape::from_packet(&vnet, packet).is_err();
    assert!(refused(vnet, &packet[..30]));
    assert!(refused(vnet, &[]));
    assert!(refused(Vnet { checksum: None, ..vnet }, &packet));
    let elsewhere = Some(Checksum { start: 20, offset: 6 });
    assert!(refused(Vnet { checksum: elsewhere, ..vnet }, &packet));
    let behind = Some(Checksum { start: 2540, offset: 16 });
    assert!(refused(Vnet { checksum: behind, cut: None, ..vnet }, &packet));
    let six = Cut { kind: Kind::TcpV6, segment: 1000, ecn: false };
    assert!(refused(Vnet { cut: Some(six), ..vnet }, &packet));
    let mut short = packet.clone();
    short[32] = 0x10;
    assert!(refused(vnet, &short));
    let mut arp = packet;
    arp[0] = 0x08;
    assert!(refused(Vnet::default(), &arp));
}

proptest! {
    /// Segments stay the same, however they are grouped into packets that are segmented again.
    #[test]
    fn rejoining_and_cutting_again_changes_nothing(
        version in prop_oneof![Just(4_u8), Just(6)],
        is_tcp in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 1001..9_999),
        cuts in prop::collection::vec(1_u16..4, 1..9),
    ) {
        let (vnet, packet) = if is_tcp { tcp(version, &payload) } else { udp(version, &payload) };
        let shape = Shape::from_packet(&vnet, &packet).unwrap();
        let count = shape.segments();
        let mut first = 0;
        for step in cuts.into_iter().chain([count]) {
            let end = (first + step).min(count);
            if first == end {
                break;
            }
            let (part, bytes) = cut_out(&shape, &packet, first..end);
            let again = Shape::from_packet(&part, &bytes).unwrap();
            prop_assert_eq!(again.segments(), end - first);
            for index in first..end {
                let (mut a, mut one) = cut_out(&shape, &packet, index..index + 1);
                let (b, two) = cut_out(&again, &bytes, index - first..index - first + 1);
                // A packet that was alone keeps its device's header length.
                a.header_len = b.header_len;
                prop_assert_eq!(a, b);
                prop_assert_eq!(&one, &two);
                complete(&mut one, a.checksum.unwrap());
                prop_assert!(is_sound(&one));
            }
            first = end;
        }
        prop_assert_eq!(first, count);
    }

    /// Parsing arbitrary bytes of a device never panics.
    #[test]
    fn any_bytes_are_read_or_refused(
        header in any::<[u8; vnet_len()]>(),
        mut packet in prop::collection::vec(any::<u8>(), 0..300),
        first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        if let Some(byte) = packet.first_mut() {
            *byte = first;
        }
        let Some(vnet) = Vnet::decode(&header) else { return Ok(()) };
        let Ok(shape) = Shape::from_packet(&vnet, &packet) else { return Ok(()) };
        for index in 0..shape.segments() {
            let (cut_header, mut bytes) = cut_out(&shape, &packet, index..index + 1);
            prop_assert_eq!(bytes.len(), shape.segment_len(index));
            if let Some(checksum) = cut_header.checksum {
                complete(&mut bytes, checksum);
            }
        }
    }
}

const fn vnet_len() -> usize {
    super::super::vnet::LEN
}
