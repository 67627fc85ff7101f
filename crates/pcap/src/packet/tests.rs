use std::net::{Ipv4Addr, Ipv6Addr};

use engine::Time;
use proptest::prelude::*;
use wire::ipv6;

use super::*;

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn record(link_type: LinkType, bytes: Vec<u8>) -> Record {
    let original_len = bytes.len() as u32;
    let (at, interface) = (Time::ZERO, 0);
    Record { at, interface, interface_name: None, link_type, bytes, original_len, comment: None }
}

/// A datagram from port 40000 to 2500, without a checksum.
fn udp(data: &[u8]) -> Vec<u8> {
    let len = (8 + data.len()) as u16;
    [&[0x9c, 0x40, 0x09, 0xc4][..], &len.to_be_bytes(), &[0, 0], data].concat()
}

/// A packet of IPv4: the identification, flags and offset of a fragment, and the payload.
fn ipv4(id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let total_len = (20 + payload.len()) as u16;
    let (traffic_class, ttl, protocol) = (0, 64, PROTOCOL_UDP);
    let (source, destination) = (A, B);
    let ip = Ipv4 { traffic_class, total_len, id, fragment, ttl, protocol, source, destination };
    let mut bytes = vec![0; 20];
    ip.encode(bytes.first_chunk_mut().unwrap());
    bytes.extend_from_slice(payload);
    bytes
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let (traffic_class, flow_label, hop_limit) = (0, 0, 64);
    let (source, destination) = (A6, B6);
    let ip = Ipv6 {
        traffic_class,
        flow_label,
        payload_len,
        next_header,
        hop_limit,
        source,
        destination,
    };
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    ip.encode(bytes.first_chunk_mut().unwrap());
    bytes.extend_from_slice(payload);
    bytes
}

/// Payload of the datagram that completes with the last of these packets.
fn data_of(packets: &[Record]) -> Result<Vec<u8>, Skipped> {
    let mut datagrams = Datagrams::default();
    let mut last = Err(Skipped::Malformed);
    for packet in packets {
        last = datagrams.next(packet).map(|found| found.data.to_vec());
    }
    last
}

/// Fragments of `len` bytes of a payload over IPv4.
fn fragments(id: u16, payload: &[u8], len: usize) -> Vec<Record> {
    let last = payload.len().div_ceil(len) - 1;
    let parts = payload.chunks(len).enumerate().map(|(number, part)| {
        let more = if number < last { ip::MORE_FRAGMENTS } else { 0 };
        record(LinkType::Raw, ipv4(id, more | (number * len / 8) as u16, part))
    });
    parts.collect()
}

/// Fragments of `len` bytes of a payload over IPv6.
fn fragments6(id: u32, next_header: u8, payload: &[u8], len: usize) -> Vec<Record> {
    let last = payload.len().div_ceil(len) - 1;
    let parts = payload.chunks(len).enumerate().map(|(number, part)| {
        let place = (number * len) as u16 | u16::from(number < last);
        let header = [&[next_header, 0][..], &place.to_be_bytes(), &id.to_be_bytes()].concat();
        record(LinkType::Raw, ipv6(FRAGMENT, &[&header[..], part].concat()))
    });
    parts.collect()
}

#[test]
fn vlan_tags_of_any_depth_are_skipped() {
    let ethernet = [2; 12];
    let cooked = [&[0, 0, 0, 1, 0, 6][..], &[2; 8]].concat();
    let tags = [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x88a8, 0x8100, 0x8100]];
    for (tags, packet) in tags.iter().flat_map(|tags| {
        [(0x0800_u16, ipv4(1, 0, &udp(b"hi"))), (0x86dd, ipv6(PROTOCOL_UDP, &udp(b"hi")))]
            .map(|packet| (tags, packet))
    }) {
        let (kind, packet) = packet;
        let kinds: Vec<u16> = tags.iter().copied().chain([kind]).collect();
        let mut tagged = Vec::new();
        for kind in &kinds[1..] {
            tagged.extend_from_slice(&[0, 100]);
            tagged.extend_from_slice(&kind.to_be_bytes());
        }
        tagged.extend_from_slice(&packet);
        let first = kinds[0].to_be_bytes();
        let second = [&first[..], &[0; 18], &tagged].concat();
        for (link_type, bytes) in [
            (LinkType::Ethernet, [&ethernet[..], &first, &tagged].concat()),
            (LinkType::LinuxCooked, [&cooked[..], &first, &tagged].concat()),
            (LinkType::LinuxCooked2, second),
        ] {
            let record = record(link_type, bytes);
            assert_eq!(
                data_of(std::slice::from_ref(&record)).as_deref(),
                Ok(&b"hi"[..]),
                "{link_type:?}"
            );
            assert_eq!(record.ip(), Some(&packet[..]));
            assert_eq!(record.udp().is_some(), kind == 0x0800);
        }
    }
    // A tag without what it tags.
    let cut = record(LinkType::Ethernet, [&ethernet[..], &[0x81, 0, 0, 1, 0x81]].concat());
    assert_eq!(data_of(&[cut]), Err(Skipped::Malformed));
}

#[test]
fn padding_of_short_frames_is_left_out() {
    let head = [&[2; 12][..], &[0x08, 0x00]].concat();
    let mut frame = [&head[..], &ipv4(1, 0, &udp(b"short"))].concat();
    assert!(frame.len() < 60);
    frame.resize(64, 0x5a);
    let padded = record(LinkType::Ethernet, frame);
    assert_eq!(padded.udp().unwrap().data, b"short");
    assert_eq!(data_of(&[padded]).unwrap(), b"short");
    // Bytes behind the datagram in its packet, as options of UDP (RFC 9868).
    let behind = [&udp(b"short")[..], &[7; 9]].concat();
    assert_eq!(data_of(&[record(LinkType::Raw, ipv4(1, 0, &behind))]).unwrap(), b"short");
    let behind = record(LinkType::Raw, ipv6(PROTOCOL_UDP, &behind));
    assert_eq!(data_of(&[behind]).unwrap(), b"short");
}

#[test]
fn fragments_in_any_order_make_their_datagram() {
    let payload = udp(&[7; 100]);
    let four = fragments(3, &payload, 24);
    let six = fragments6(3, PROTOCOL_UDP, &payload, 24);
    for parts in [four, six] {
        assert_eq!(parts.len(), 5);
        for first in 0..parts.len() {
            let mut order = parts.clone();
            order.rotate_left(first);
            // A copy of each but the last.
            let copies: Vec<_> = order[..4].iter().flat_map(|part| [part, part]).cloned().collect();
            let all = [&copies[..], &order[4..]].concat();
            assert_eq!(data_of(&all).unwrap(), [7; 100], "{first}");
            assert_eq!(data_of(&order[..4]), Err(Skipped::Fragment));
        }
        let mut datagrams = Datagrams::default();
        let (last, before) = parts.split_last().unwrap();
        assert!(before.iter().all(|part| datagrams.next(part) == Err(Skipped::Fragment)));
        assert!(datagrams.held() > 96);
        assert_eq!(datagrams.next(last).unwrap().fragments, 5);
        assert_eq!(datagrams.held(), 0);
    }
}

#[test]
fn fragments_of_several_packets_are_told_apart() {
    let (one, other) = (udp(&[1; 30]), udp(&[2; 30]));
    let (one, other) = (fragments(1, &one, 16), fragments(2, &other, 16));
    let mut elsewhere = one.clone();
    elsewhere.iter_mut().for_each(|part| part.interface = 1);
    let mut datagrams = Datagrams::default();
    let mut found = Vec::new();
    for ((one, other), elsewhere) in one.iter().zip(&other).zip(&elsewhere) {
        for part in [one, other, elsewhere] {
            found.extend(datagrams.next(part).map(|found| found.data[0]));
        }
    }
    assert_eq!(found, [1, 2, 1]);
}

#[test]
fn extension_headers_are_skipped() {
    let options = [60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let more = [PROTOCOL_UDP, 0, 0, 0, 0, 0, 0, 0];
    let payload = [&options[..], &more, &udp(b"six")].concat();
    let whole = record(LinkType::Raw, ipv6(0, &payload));
    let mut datagrams = Datagrams::default();
    let found = datagrams.next(&whole).unwrap();
    assert_eq!((found.data, found.fragments), (&b"six"[..], 1));
    assert_eq!(found.source.to_string(), "[2001:db8::1]:40000");
    // Behind the fragment header, too; and a fragment that is the whole packet.
    let parts = fragments6(9, 60, &[&more[..], &udp(b"six")].concat(), 8);
    assert_eq!(data_of(&parts).unwrap(), b"six");
    let atomic = fragments6(9, 60, &[&more[..], &udp(b"six")].concat(), 800);
    assert_eq!(data_of(&atomic).unwrap(), b"six");
    let cut = record(LinkType::Raw, ipv6(0, &[60, 200]));
    assert_eq!(data_of(&[cut]), Err(Skipped::Malformed));
}

#[test]
fn checksums_over_ipv6_are_checked() {
    let mut payload = udp(b"hello");
    let sum = |payload: &[u8]| {
        let addresses = ip::sum(&A6.to_bits().to_be_bytes()) + ip::sum(&B6.to_bits().to_be_bytes());
        addresses + u64::from(PROTOCOL_UDP) + payload.len() as u64
    };
    let right = !ip::fold(sum(&payload) + ip::sum(&payload));
    for (field, checksum) in [
        (right, Checksum::Right),
        (ip::fold(sum(&payload)), Checksum::Unfinished),
        (right ^ 1, Checksum::Wrong),
    ] {
        payload[6..8].copy_from_slice(&field.to_be_bytes());
        let packet = record(LinkType::Raw, ipv6(PROTOCOL_UDP, &payload));
        assert_eq!(Datagrams::default().next(&packet).unwrap().checksum, checksum);
    }
}

#[test]
fn what_is_skipped_has_a_reason() {
    let ethernet = |kind: [u8; 2], payload: &[u8]| {
        record(LinkType::Ethernet, [&[2; 12][..], &kind, payload].concat())
    };
    let mut tcp = ipv4(0, 0, &[0; 20]);
    tcp[9] = 6;
    // RFC 1624: the checksum grows by what the protocol shrinks.
    let checksum = u16::from_be_bytes([tcp[10], tcp[11]]) + 11;
    tcp[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut cut = record(LinkType::Raw, ipv4(0, 0, &udp(&[7; 100])));
    cut.bytes.truncate(60);
    let short = [&udp(&[7; 9])[..4], &[0, 90, 0, 0]].concat();
    for (packet, reason, text) in [
        (record(LinkType::Other(147), vec![0; 60]), Skipped::LinkType(147), "link type 147"),
        (ethernet([8, 6], &[0; 46]), Skipped::EtherType(0x0806), "ARP"),
        (ethernet([0x88, 0x47], &[0; 46]), Skipped::EtherType(0x8847), "EtherType 0x8847"),
        (record(LinkType::Raw, tcp), Skipped::Protocol(6), "TCP"),
        (record(LinkType::Raw, ipv6(58, &[128, 0])), Skipped::Protocol(58), "ICMP"),
        (cut, Skipped::Cut, "in part"),
        (record(LinkType::Raw, vec![0x45; 10]), Skipped::Malformed, "malformed"),
        (record(LinkType::Null, vec![2, 0]), Skipped::Malformed, "malformed"),
        (record(LinkType::Raw, ipv4(0, 0, &short)), Skipped::Malformed, "malformed"),
        (fragments(0, &[7; 32], 16).remove(1), Skipped::Fragment, "fragments"),
    ] {
        assert_eq!(data_of(&[packet]), Err(reason));
        assert!(reason.to_string().contains(text), "{reason}");
    }
}

#[test]
fn fragments_that_contradict_each_other_are_dropped() {
    let part = |fragment, payload: &[u8]| record(LinkType::Raw, ipv4(5, fragment, payload));
    let first = part(ip::MORE_FRAGMENTS, &udp(&[1; 24]));
    let rest = part(4, &[2; 8]);
    assert!(data_of(&[first.clone(), rest.clone()]).is_ok());
    for wrong in [
        // An overlap, an end behind the end, an end before it.
        part(3 | ip::MORE_FRAGMENTS, &[9; 8]),
        part(9, &[9; 8]),
        part(2, &[9; 8]),
    ] {
        let parts = [rest.clone(), wrong.clone(), first.clone()];
        assert_eq!(data_of(&parts), Err(Skipped::Fragment), "{wrong:?}");
    }
    for ignored in [
        // A middle that is no multiple of eight bytes, nothing, and more than a packet holds.
        part(4 | ip::MORE_FRAGMENTS, &[9; 7]),
        part(6 | ip::MORE_FRAGMENTS, &[]),
        part(0x1fff, &[9; 8]),
    ] {
        let parts = [rest.clone(), ignored.clone(), first.clone()];
        assert!(data_of(&parts).is_ok(), "{ignored:?}");
    }
}

#[test]
fn what_is_incomplete_is_bounded() {
    let payload = [7; 1400];
    let mut datagrams = Datagrams::default();
    for number in 0..20_000_u32 {
        let mut part = record(LinkType::Raw, ipv4(number as u16, ip::MORE_FRAGMENTS, &payload));
        part.interface = number >> 16;
        assert_eq!(datagrams.next(&part), Err(Skipped::Fragment));
        assert!(datagrams.held() <= Datagrams::HELD_MAX);
    }
    // The oldest gave way to the newest, and all do after a minute.
    let last = |id: u16, at| {
        let end = record(LinkType::Raw, ipv4(id, 175, &[7; 8]));
        Record { at: Time::from_secs(at), ..end }
    };
    let held = datagrams.held();
    assert_eq!(datagrams.next(&last(0, 0)), Err(Skipped::Fragment));
    assert!(datagrams.held() > held - payload.len());
    assert_ne!(datagrams.next(&last(19_999, 0)), Err(Skipped::Fragment));
    assert_eq!(datagrams.next(&last(19_998, 61)), Err(Skipped::Fragment));
    assert!(datagrams.held() < 1000, "{}", datagrams.held());
}

proptest! {
    #[test]
    fn any_fragments_stay_within_bounds(
        parts in prop::collection::vec((0..4_u16, 0..12_u16, any::<bool>(), 0..40_usize, 0..90_u64), 0..200),
        six: bool,
    ) {
        let mut datagrams = Datagrams::default();
        for (id, place, more, len, at) in parts {
            let payload = vec![id as u8; len];
            let packet = if six {
                let place = (place * 8) | u16::from(more);
                let head = [&[PROTOCOL_UDP, 0][..], &place.to_be_bytes(), &[0, 0, 0, id as u8]];
                ipv6(FRAGMENT, &[&head.concat()[..], &payload].concat())
            } else {
                let more = if more { ip::MORE_FRAGMENTS } else { 0 };
                ipv4(id, place | more, &payload)
            };
            let mut packet = record(LinkType::Raw, packet);
            packet.at = Time::from_secs(at);
            if let Ok(found) = datagrams.next(&packet) {
                prop_assert!(found.data.len() <= 65_535);
            }
            // Four packets of at most 12 · 8 + 40 bytes in 13 parts.
            prop_assert!(datagrams.held() <= 4 * (136 + 13 * 128));
        }
    }

    #[test]
    fn any_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0..6_u16, version in 4..7_u8,
    ) {
        let kinds = [LinkType::Ethernet, LinkType::Raw, LinkType::Null, LinkType::LinuxCooked];
        let link_type = kinds.get(usize::from(kind)).copied().unwrap_or(LinkType::LinuxCooked2);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = *first & 0x0f | version << 4;
        }
        let packet = record(link_type, bytes);
        let _ = Datagrams::default().next(&packet).is_ok();
        let _ = packet.udp();
    }
}
