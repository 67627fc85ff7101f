//! Joining of TCP segments that arrived as separate packets (GRO).

use std::ops::Range;

use super::shape::{
    CWR, FIN, HEADER_MAX, IPV6_LEN, LEN_MAX, PSH, TCP, TCP_LEN, fix_segment, ip_follows, plain_ip,
};
use super::vnet::{Checksum, Cut, Kind, Vnet};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;
/// Offset of the checksum in a TCP header.
const CHECKSUM: u16 = 16;
/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;

/// Consecutive segments of one connection, all of equal length except the last, as a kernel passes
/// them to its device for segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Bytes of the IP header.
    ip: usize,
    /// Bytes of all headers.
    header: usize,
    /// Bytes of the first segment's payload.
    segment: usize,
    /// Bytes of all payloads.
    payload: usize,
    count: u16,
    /// Flags of the last segment.
    flags: u8,
    /// Whether nothing may follow: the last was shorter, or has PSH or FIN.
    over: bool,
}

impl Train {
    /// Starts a batch with this packet, whose checksums are complete; `None` unless it is a segment
    /// with data that others could follow.
    #[must_use]
    pub fn begin(packet: &[u8]) -> Option<Self> {
        let (ip, header) = headers(packet)?;
        let flags = packet[ip + FLAGS];
        let payload = packet.len() - header;
        let plain = flags & (SYN | RST | URG) == 0 && payload > 0;
        plain.then_some(Self {
            ip,
            header,
            segment: payload,
            payload,
            count: 1,
            flags,
            over: flags & FIN != 0,
        })
    }

    /// Appends a further packet if it is the next of the same connection with the same headers.
    /// `first` is the first packet of the batch.
    pub fn take(&mut self, first: &[u8], packet: &[u8]) -> bool {
        let fits = !self.over
            && headers(packet) == Some((self.ip, self.header))
            && (1..=self.segment).contains(&(packet.len() - self.header))
            && self.payload + packet.len() <= LEN_MAX
            && self.follows(first, packet);
        if fits {
            let len = packet.len() - self.header;
            self.payload += len;
            self.count += 1;
            self.flags = packet[self.ip + FLAGS];
            self.over = len < self.segment || self.flags & FIN != 0;
        }
        fits
    }

    fn follows(&self, first: &[u8], packet: &[u8]) -> bool {
        let same = |range: Range<usize>| first[range.clone()] == packet[range];
        let at = self.ip;
        let number =
            |of: &[u8]| u32::from_be_bytes([of[at + 4], of[at + 5], of[at + 6], of[at + 7]]);
        // Segmentation sets PSH and FIN on the last segment only, and CWR on the first only.
        let flags = packet[at + FLAGS];
        let allowed = first[at + FLAGS] & !(CWR | PSH) == flags & !(FIN | PSH)
            && self.flags & PSH == 0
            && flags & CWR == 0;
        allowed
            && number(packet) == number(first).wrapping_add(self.payload as u32)
            && same(at..at + 4)
            && same(at + 8..at + FLAGS)
            && same(at + FLAGS + 1..at + usize::from(CHECKSUM))
            && same(at + usize::from(CHECKSUM) + 2..self.header)
            && ip_follows(at, first, packet, self.count)
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Builds the headers of the joined packet and its virtio-net header. The caller appends the
    /// payload of each segment's packet, which starts after the same number of header bytes in
    /// each. A single segment keeps its own headers and checksum.
    #[must_use]
    pub fn header(&self, first: &[u8], out: &mut [u8; HEADER_MAX]) -> (Vnet, usize) {
        let header = &mut out[..self.header];
        header.copy_from_slice(&first[..self.header]);
        if self.count == 1 {
            return (Vnet::default(), self.header);
        }
        header[self.ip + FLAGS] |= self.flags & (FIN | PSH);
        fix_segment(header, self.ip, self.payload);
        let kind = if self.ip == IPV6_LEN { Kind::TcpV6 } else { Kind::TcpV4 };
        let ecn = header[self.ip + FLAGS] & CWR != 0;
        let vnet = Vnet {
            checksum: Some(Checksum { start: self.ip as u16, offset: CHECKSUM }),
            cut: Some(Cut { kind, segment: self.segment as u16, ecn }),
            header_len: self.header as u16,
        };
        (vnet, self.header)
    }
}

/// Ends of the IP and the TCP header of a complete packet without IP options.
fn headers(packet: &[u8]) -> Option<(usize, usize)> {
    let ip = plain_ip(packet, TCP)?;
    let tcp = usize::from(packet.get(ip + 12)? >> 4) * 4;
    let header = ip + tcp;
    let is_sound = tcp >= TCP_LEN && header <= packet.len().min(HEADER_MAX);
    is_sound.then_some((ip, header))
}

#[cfg(test)]
mod tests;
