//! Joining of datagrams that arrived as separate packets (GSO for UDP).

use super::shape::{HEADER_MAX, LEN_MAX, Shape, UDP, UDP_LEN, fix_datagram, ip_follows, plain_ip};
use super::vnet::{Checksum, Cut, Kind, Vnet};

/// Offset of the checksum in a UDP header.
const CHECKSUM: u16 = 6;
/// Maximum number of datagrams a kernel accepts as one packet.
const COUNT_MAX: u16 = 64;

/// Datagrams of one flow, all of equal length except the last, as their program sent them with one
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// Bytes of the headers.
    header: usize,
    /// Bytes of the first datagram's payload.
    segment: usize,
    /// Bytes of all payloads.
    payload: usize,
    count: u16,
    /// Whether the last was shorter, so that nothing may follow.
    over: bool,
}

impl Joint {
    /// Starts a batch with this packet; `None` unless it is a datagram with an incomplete checksum.
    #[must_use]
    pub fn begin(shape: &Shape, packet: &[u8]) -> Option<Self> {
        let header = header_len(shape, packet)?;
        let segment = packet.len() - header;
        let least = 1..=usize::from(u16::MAX);
        least.contains(&segment).then_some(Self {
            header,
            segment,
            payload: segment,
            count: 1,
            over: false,
        })
    }

    /// Appends a further packet if it belongs to the same flow with the same headers. `first` is
    /// the first packet of the batch.
    pub fn take(&mut self, first: &[u8], shape: &Shape, packet: &[u8]) -> bool {
        let fits = !self.over
            && self.count < COUNT_MAX
            && header_len(shape, packet) == Some(self.header)
            && (1..=self.segment).contains(&(packet.len() - self.header))
            && self.payload + packet.len() <= LEN_MAX
            && self.follows(first, packet);
        if fits {
            let len = packet.len() - self.header;
            self.payload += len;
            self.count += 1;
            self.over = len < self.segment;
        }
        fits
    }

    fn follows(&self, first: &[u8], packet: &[u8]) -> bool {
        let ip = self.header - UDP_LEN;
        let ports = ip..ip + 4;
        first[ports.clone()] == packet[ports] && ip_follows(ip, first, packet, self.count)
    }

    /// Returns the number of datagrams.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Builds the headers of the joined packet and its virtio-net header. The caller appends the
    /// payload of each datagram's packet, which starts after the same number of header bytes in
    /// each.
    #[must_use]
    pub fn header(&self, first: &[u8], out: &mut [u8; HEADER_MAX]) -> (Vnet, usize) {
        let start = (self.header - UDP_LEN) as u16;
        out[..self.header].copy_from_slice(&first[..self.header]);
        fix_datagram(&mut out[..self.header], start.into(), self.payload);
        let cut = Cut { kind: Kind::Udp, segment: self.segment as u16, ecn: false };
        let vnet = Vnet {
            checksum: Some(Checksum { start, offset: CHECKSUM }),
            cut: (self.count > 1).then_some(cut),
            header_len: if self.count > 1 { self.header as u16 } else { 0 },
        };
        (vnet, self.header)
    }
}

/// Length of the headers of a single datagram with an incomplete checksum, unfragmented and
/// without IP options.
fn header_len(shape: &Shape, packet: &[u8]) -> Option<usize> {
    let checksum = shape.checksum().filter(|_| shape.segments() == 1)?;
    let ip = plain_ip(packet, UDP)?;
    let says = packet.get(ip + 4..ip + 6)?;
    let is_whole = usize::from(u16::from_be_bytes([says[0], says[1]])) + ip == packet.len();
    let at = usize::from(checksum.start) == ip && checksum.offset == CHECKSUM;
    (at && is_whole && packet.len() > ip + UDP_LEN).then_some(ip + UDP_LEN)
}

#[cfg(test)]
mod tests {
    use super::super::shape::{DONT_FRAGMENT, IPV4_LEN, IPV6_LEN};
    use super::*;

    /// Datagrams of these lengths of one flow; `last` is the last byte of the addresses.
    fn datagrams(v6: bool, lens: &[usize], last: u8) -> Vec<(Shape, Vec<u8>)> {
        let datagram = |(index, &len): (usize, &usize)| {
            let ip = if v6 { IPV6_LEN } else { IPV4_LEN };
            let mut packet = vec![0; ip];
            let whole = (ip + UDP_LEN + len) as u16;
            if v6 {
                packet[0] = 0x60;
                packet[4..6].copy_from_slice(&(whole - IPV6_LEN as u16).to_be_bytes());
                (packet[6], packet[39]) = (UDP, last);
            } else {
                packet[0] = 0x45;
                packet[2..4].copy_from_slice(&whole.to_be_bytes());
                packet[5] = 9 + index as u8;
                (packet[9], packet[19]) = (UDP, last);
            }
            packet.extend([1, 2, 3, 4]);
            packet.extend(((UDP_LEN + len) as u16).to_be_bytes());
            packet.extend([0, 0]);
            packet.extend((0..len).map(|byte| (byte + index * 100) as u8));
            let checksum = Some(Checksum { start: ip as u16, offset: CHECKSUM });
            let vnet = Vnet { checksum, ..Vnet::default() };
            (Shape::from_packet(&vnet, &packet).unwrap(), packet)
        };
        lens.iter().enumerate().map(datagram).collect()
    }

    fn joined(packets: &[(Shape, Vec<u8>)]) -> Joint {
        let (shape, first) = &packets[0];
        let mut joint = Joint::begin(shape, first).unwrap();
        for (shape, packet) in &packets[1..] {
            joint.take(first, shape, packet);
        }
        joint
    }

    #[test]
    fn joined_packets_are_segmented_into_the_same() {
        for v6 in [false, true] {
            let packets = datagrams(v6, &[100, 100, 100, 40], 1);
            let joint = joined(&packets);
            assert_eq!(joint.count(), 4);
            let mut out = [0xa5; HEADER_MAX];
            let (vnet, len) = joint.header(&packets[0].1, &mut out);
            let mut whole = out[..len].to_vec();
            packets.iter().for_each(|(_, packet)| whole.extend(&packet[len..]));
            let shape = Shape::from_packet(&vnet, &whole).unwrap();
            assert_eq!(shape.segments(), 4);
            for (index, (single, packet)) in (0..).zip(&packets) {
                let mut expected = packet.clone();
                let mut again = [0; HEADER_MAX];
                let (vnet, len) = shape.header(&whole, index..index + 1, &mut again);
                let mut piece = again[..len].to_vec();
                piece.extend(&whole[shape.payload(index..index + 1)]);
                assert_eq!(vnet.checksum, single.checksum());
                // The loop above skipped the header's checksum and the sum of the pseudo header.
                expected[len - 2..len].copy_from_slice(&piece[len - 2..len]);
                if !v6 {
                    expected[10..12].copy_from_slice(&piece[10..12]);
                }
                assert_eq!(piece, expected);
            }
        }
    }

    #[test]
    fn different_datagrams_are_not_joined() {
        assert_eq!(joined(&datagrams(false, &[100, 100, 101], 1)).count(), 2, "longer");
        assert_eq!(joined(&datagrams(false, &[100, 40, 40], 1)).count(), 2, "behind the last");
        assert_eq!(joined(&datagrams(true, &[900; 80], 1)).count(), 64, "no more at once");
        assert_eq!(joined(&datagrams(true, &[1_400; 64], 1)).count(), 46, "the longest packet");
        let mut packets = datagrams(false, &[100, 100], 1);
        packets.extend(datagrams(false, &[100], 2));
        assert_eq!(joined(&packets).count(), 2, "another address");
        let mut packets = datagrams(false, &[100, 100], 1);
        packets[1].1[5] = 77;
        assert_eq!(joined(&packets).count(), 1, "a number that does not follow");
        packets.iter_mut().for_each(|(_, packet)| packet[6] = DONT_FRAGMENT);
        assert_eq!(joined(&packets).count(), 2, "a number that says nothing");
        packets[0].1[6] = 0x20;
        assert_eq!(Joint::begin(&packets[0].0, &packets[0].1), None, "a fragment");
        let complete = Shape::from_packet(&Vnet::default(), &packets[1].1).unwrap();
        assert_eq!(Joint::begin(&complete, &packets[1].1), None, "with its checksum");
    }
}
