//! Positions of the segments in a packet, and packets made of some of them.

use std::ops::Range;

use wire::ip::{fold, sum};

use super::vnet::{Checksum, Cut, Kind, Vnet};

/// Maximum length of the headers, IP and transport, of a packet that can be segmented.
pub const HEADER_MAX: usize = 256;

pub(super) const IPV4_LEN: usize = 20;
pub(super) const IPV6_LEN: usize = 40;
pub(super) const TCP_LEN: usize = 20;
pub(super) const UDP_LEN: usize = 8;
/// Maximum length of an IP packet.
pub(super) const LEN_MAX: usize = 65_535;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// Don't Fragment bit in IPv4's byte of flags.
pub(super) const DONT_FRAGMENT: u8 = 0x40;
pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const CWR: u8 = 0x80;

/// A packet of one or more segments, parsed as far as needed to separate them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    len: usize,
    checksum: Option<Checksum>,
    cut: Option<Pieces>,
}

/// Layout of a packet of several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pieces {
    how: Cut,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    header: usize,
    count: u16,
}

/// Error of a packet that is not IP or whose lengths contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable packet: {0}")]
pub struct Unreadable(&'static str);

impl Shape {
    /// Parses a packet that has this virtio-net header.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] if it is not IP or cannot be segmented according to its header.
    pub fn from_packet(vnet: &Vnet, packet: &[u8]) -> Result<Self, Unreadable> {
        let least = match packet.first().map(|byte| byte >> 4) {
            Some(4) => IPV4_LEN,
            Some(6) => IPV6_LEN,
            Some(_) | None => return Err(Unreadable("neither IPv4 nor IPv6")),
        };
        if packet.len() < least {
            return Err(Unreadable("shorter than its IP header"));
        }
        if let Some(checksum) = vnet.checksum {
            let at = usize::from(checksum.start) + usize::from(checksum.offset);
            if at + 2 > packet.len() {
                return Err(Unreadable("its checksum is behind its end"));
            }
        }
        let cut = vnet.cut.map(|how| Pieces::from_packet(how, vnet, packet)).transpose()?;
        // A single segment is an ordinary packet and needs no segmentation offload.
        let cut = cut.filter(|pieces| pieces.count > 1);
        Ok(Self { len: packet.len(), checksum: vnet.checksum, cut })
    }

    /// Returns the number of segments, at least 1.
    #[must_use]
    pub fn segments(&self) -> u16 {
        self.cut.map_or(1, |pieces| pieces.count)
    }

    /// Returns the position of the checksum that is still to be computed, if any.
    #[must_use]
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    /// Returns the length of segment `index` as a separate IP packet.
    #[must_use]
    pub fn segment_len(&self, index: u16) -> usize {
        let Some(pieces) = &self.cut else { return self.len };
        let payload = self.payload(index..index + 1);
        pieces.header + payload.len()
    }

    /// Returns the range of the payload of these segments: the whole packet if it is not segmented.
    #[must_use]
    pub fn payload(&self, segments: Range<u16>) -> Range<usize> {
        let Some(pieces) = &self.cut else { return 0..self.len };
        let at = |index: u16| {
            let before = usize::from(index) * usize::from(pieces.how.segment);
            (pieces.header + before).min(self.len)
        };
        at(segments.start)..at(segments.end)
    }

    /// Builds the headers of a packet of these segments and its virtio-net header; the caller
    /// appends [`payload`](Self::payload). Without segmentation the headers are empty.
    pub fn header(
        &self,
        packet: &[u8],
        segments: Range<u16>,
        out: &mut [u8; HEADER_MAX],
    ) -> (Vnet, usize) {
        let Some(pieces) = &self.cut else {
            return (Vnet { checksum: self.checksum, ..Vnet::default() }, 0);
        };
        let header = &mut out[..pieces.header];
        header.copy_from_slice(&packet[..pieces.header]);
        let payload = self.payload(segments.clone()).len();
        fix_ip(header, segments.start, payload);
        pieces.mend_transport(header, &segments, payload);
        let several = segments.len() > 1;
        let ecn = pieces.how.ecn && segments.start == 0;
        let vnet = Vnet {
            checksum: self.checksum,
            cut: several.then_some(Cut { ecn, ..pieces.how }),
            header_len: if several { pieces.header as u16 } else { 0 },
        };
        (vnet, pieces.header)
    }
}

impl Pieces {
    fn from_packet(how: Cut, vnet: &Vnet, packet: &[u8]) -> Result<Self, Unreadable> {
        // The kernel leaves the checksum of a GSO packet to the device that segments it.
        let checksum = vnet.checksum.ok_or(Unreadable("to be cut, with a complete checksum"))?;
        let transport = usize::from(checksum.start);
        let ip = match (how.kind, packet[0] >> 4) {
            (Kind::TcpV4 | Kind::Udp, 4) => usize::from(packet[0] & 0x0f) * 4,
            (Kind::TcpV6 | Kind::Udp, 6) => IPV6_LEN,
            _ => return Err(Unreadable("not of the IP version that it is to be cut as")),
        };
        let (least, offset) = match how.kind {
            Kind::TcpV4 | Kind::TcpV6 => (TCP_LEN, 16),
            Kind::Udp => (UDP_LEN, 6),
        };
        if ip < IPV4_LEN || transport < ip || usize::from(checksum.offset) != offset {
            return Err(Unreadable("its checksum is not where its transport has it"));
        }
        if transport + least > packet.len() {
            return Err(Unreadable("shorter than its transport header"));
        }
        let header = transport
            + match how.kind {
                Kind::TcpV4 | Kind::TcpV6 => usize::from(packet[transport + 12] >> 4) * 4,
                Kind::Udp => UDP_LEN,
            };
        if header < transport + least || header > packet.len().min(HEADER_MAX) {
            return Err(Unreadable("its transport header has an impossible length"));
        }
        let count = (packet.len() - header).div_ceil(usize::from(how.segment));
        let count = u16::try_from(count).map_err(|_| Unreadable("too many segments"))?;
        Ok(Self { how, transport, header, count: count.max(1) })
    }

    fn mend_transport(&self, header: &mut [u8], segments: &Range<u16>, payload: usize) {
        let at = self.transport;
        match self.how.kind {
            Kind::TcpV4 | Kind::TcpV6 => {
                let len = header.len() - at + payload;
                let bytes = u32::from(segments.start) * u32::from(self.how.segment);
                let word = &mut header[at + 4..at + 8];
                let sequence = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                word.copy_from_slice(&sequence.wrapping_add(bytes).to_be_bytes());
                if segments.end < self.count {
                    header[at + 13] &= !(FIN | PSH);
                }
                if segments.start > 0 {
                    header[at + 13] &= !CWR;
                }
                let pseudo = pseudo_sum(header, TCP, len);
                put(header, at + 16, pseudo);
            }
            Kind::Udp => fix_udp(header, at, payload),
        }
    }
}

/// Sets length and, for IPv4, identification and checksum as the kernel does when it segments.
fn fix_ip(header: &mut [u8], first: u16, payload: usize) {
    let len = header.len() + payload;
    if header[0] >> 4 == 6 {
        put(header, 4, (len - IPV6_LEN) as u16);
        return;
    }
    put(header, 2, len as u16);
    let id = u16::from_be_bytes([header[4], header[5]]);
    put(header, 4, id.wrapping_add(first));
    put(header, 10, 0);
    let ip = usize::from(header[0] & 0x0f) * 4;
    let checksum = !fold(sum(&header[..ip]));
    put(header, 10, checksum);
}

/// Sets the length, and the sum of the pseudo header in place of the checksum.
fn fix_udp(header: &mut [u8], at: usize, payload: usize) {
    let len = header.len() - at + payload;
    put(header, at + 4, len as u16);
    let pseudo = pseudo_sum(header, UDP, len);
    put(header, at + 6, pseudo);
}

/// Sets the lengths in the headers of a datagram whose transport header is at `at`.
pub(super) fn fix_datagram(header: &mut [u8], at: usize, payload: usize) {
    fix_ip(header, 0, payload);
    fix_udp(header, at, payload);
}

/// Sets the lengths in the headers of a segment whose transport header is at `at`.
pub(super) fn fix_segment(header: &mut [u8], at: usize, payload: usize) {
    fix_ip(header, 0, payload);
    let pseudo = pseudo_sum(header, TCP, header.len() - at + payload);
    put(header, at + 16, pseudo);
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Returns the sum of the pseudo header, folded and not complemented: the initial value of a
/// checksum that is still to be computed.
fn pseudo_sum(header: &[u8], protocol: u8, len: usize) -> u16 {
    let addresses = if header[0] >> 4 == 6 { 8..IPV6_LEN } else { 12..IPV4_LEN };
    fold(sum(&header[addresses]) + u64::from(protocol) + len as u64)
}

/// Computes a checksum that the sender left to its device. Must run before bits are flipped, or
/// damaged data would get a valid checksum.
///
/// # Panics
///
/// If the checksum is beyond the packet's end, which [`Shape::from_packet`] refuses.
pub fn complete(packet: &mut [u8], checksum: Checksum) {
    let start = usize::from(checksum.start);
    let at = start + usize::from(checksum.offset);
    let made = !fold(sum(&packet[start..]));
    // UDP sends 0 for "no checksum" (RFC 768), so a computed 0 becomes 0xffff.
    let made = if made == 0 && usize::from(checksum.offset) == 6 { 0xffff } else { made };
    put(packet, at, made);
}

/// Length of the IP header of a complete, unfragmented packet of this protocol without IP options.
pub(super) fn plain_ip(packet: &[u8], protocol: u8) -> Option<usize> {
    let word =
        |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    let (ip, says) = match packet.first()? {
        0x45 if packet.get(9) == Some(&protocol) && packet[6] & 0x3f == 0 && packet[7] == 0 => {
            (IPV4_LEN, word(2)?)
        }
        first if first >> 4 == 6 && packet.get(6) == Some(&protocol) => {
            (IPV6_LEN, word(4)? + IPV6_LEN)
        }
        _ => return None,
    };
    (says == packet.len()).then_some(ip)
}

/// Whether the IP header of a packet is the one of the `count`-th packet after `first`, with an IP
/// header of `ip` bytes.
pub(super) fn ip_follows(ip: usize, first: &[u8], packet: &[u8], count: u16) -> bool {
    let same = |range: Range<usize>| first[range.clone()] == packet[range];
    if ip == IPV6_LEN {
        return same(0..4) && same(6..IPV6_LEN);
    }
    // With fragmentation allowed, the kernel numbers the pieces from the first one's
    // identification. Without it the identification has no meaning (RFC 6864 §4.1).
    let number = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
    let counts = || number(packet) == number(first).wrapping_add(count);
    same(0..2) && same(6..10) && same(12..IPV4_LEN) && (first[6] & DONT_FRAGMENT != 0 || counts())
}

#[cfg(test)]
mod tests;
