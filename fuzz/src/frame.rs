//! Packets of many segments, as read from a TUN device.

use rt::frame::{Checksum, HEADER_MAX, Joint, Shape, VNET_LEN, Vnet, complete};
use wire::ip::{fold, sum};

/// Splits a packet with the device's header into its segments, and joins them in pieces.
///
/// # Panics
/// If segments do not cover the packet, or are no packets themselves.
pub fn frame(data: &[u8]) {
    let Some((header, packet)) = data.split_first_chunk::<VNET_LEN>() else { return };
    let Some(vnet) = Vnet::decode(header) else { return };
    assert_eq!(Vnet::decode(&vnet.encode()), Some(vnet));
    let Ok(shape) = Shape::from_packet(&vnet, packet) else { return };
    let count = shape.segments();
    let mut end = shape.payload(0..1).start;
    for index in 0..count {
        let payload = shape.payload(index..index + 1);
        assert_eq!(payload.start, end);
        end = payload.end;
        let (vnet, mut segment) = part(&shape, packet, index..index + 1);
        assert_eq!(segment.len(), shape.segment_len(index));
        assert!(vnet.cut.is_none());
        let Some(checksum) = vnet.checksum else { continue };
        complete(&mut segment, checksum);
        if count > 1 {
            assert_eq!(transport_sum(&segment, checksum), 0xffff);
        }
    }
    assert_eq!(end, packet.len());
    if count > 1 {
        join(&shape, packet);
    }
    for middle in [1, count / 2, count.saturating_sub(1)] {
        part(&shape, packet, 0..middle);
        part(&shape, packet, middle.min(count - 1)..count);
    }
}

/// Joins segments into the original packet, or a part of it.
fn join(shape: &Shape, packet: &[u8]) {
    let single = |index| {
        let (vnet, segment) = part(shape, packet, index..index + 1);
        (Shape::from_packet(&vnet, &segment).expect("a part of the packet"), segment)
    };
    let (first_shape, first) = single(0);
    let Some(mut joint) = Joint::begin(&first_shape, &first) else { return };
    for index in 1..shape.segments() {
        let (next_shape, next) = single(index);
        if !joint.take(&first, &next_shape, &next) {
            break;
        }
    }
    let (mut header, mut expected) = ([0; HEADER_MAX], [0; HEADER_MAX]);
    let (vnet, len) = joint.header(&first, &mut header);
    let (vnet_expected, _) = shape.header(packet, 0..joint.count(), &mut expected);
    assert_eq!(header[..len], expected[..len]);
    assert_eq!(vnet.checksum, vnet_expected.checksum);
    assert_eq!(vnet.cut.map(|cut| cut.segment), vnet_expected.cut.map(|cut| cut.segment));
}

/// Returns these segments as one packet, which splits into as many.
fn part(shape: &Shape, packet: &[u8], segments: std::ops::Range<u16>) -> (Vnet, Vec<u8>) {
    let count = segments.len();
    let mut header = [0xa5; HEADER_MAX];
    if count == 0 {
        return (Vnet::default(), Vec::new());
    }
    let (vnet, len) = shape.header(packet, segments.clone(), &mut header);
    let whole = [&header[..len], &packet[shape.payload(segments)]].concat();
    let read = Shape::from_packet(&vnet, &whole).expect("a part of the packet");
    assert_eq!(usize::from(read.segments()), count);
    if shape.segments() > 1 {
        let ip_len = if whole[0] >> 4 == 6 { [whole[4], whole[5]] } else { [whole[2], whole[3]] };
        let before = if whole[0] >> 4 == 6 { 40 } else { 0 };
        assert_eq!(usize::from(u16::from_be_bytes(ip_len)) + before, whole.len());
    }
    (vnet, whole)
}

/// Returns the sum over a TCP segment or UDP datagram and its pseudo header.
fn transport_sum(packet: &[u8], checksum: Checksum) -> u16 {
    let start = usize::from(checksum.start);
    let protocol = if checksum.offset == 16 { 6 } else { 17 };
    let len = packet.len() - start;
    let addresses = if packet[0] >> 4 == 6 { 8..40 } else { 12..20 };
    fold(sum(&packet[addresses]) + protocol + len as u64 + sum(&packet[start..]))
}
