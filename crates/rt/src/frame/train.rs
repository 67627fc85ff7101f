//! Segments of TCP that came as packets of their own, and are handed over as one.

use std::ops::Range;

use super::shape::{
    CWR, FIN, HEADER_MAX, IPV6_LEN, LEN_MAX, PSH, TCP, TCP_LEN, ip_follows, mend_segment, plain_ip,
};
use super::vnet::{Checksum, Cut, Kind, Vnet};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;
/// Where a TCP header has its checksum.
const CHECKSUM: u16 = 16;
/// Where it has its flags.
const FLAGS: usize = 13;

/// Segments of one connection that follow each other, as long as each other but for the last: as a
/// kernel would have sent them as one packet, to be cut by its device.
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
    /// The flags of the last.
    flags: u8,
    /// Nothing may follow: the last was shorter, or ends something.
    over: bool,
}

impl Train {
    /// Begins with this packet, which has its checksums; `None` if it is no segment with data that
    /// others could follow.
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

    /// Takes a further packet, if it follows: of the same connection, the next in order, and with the
    /// same headers. `first` is the packet that this began with.
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
        // Only the last of what is cut is pushed or ends, and only the first reduced the window.
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

    /// How many segments these are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The headers of all of them as one packet, and what the device is to be told of it; the
    /// payloads follow, which begin behind as many bytes of each packet. For one segment, whose
    /// checksum is good, that is its own header.
    #[must_use]
    pub fn header(&self, first: &[u8], out: &mut [u8; HEADER_MAX]) -> (Vnet, usize) {
        let header = &mut out[..self.header];
        header.copy_from_slice(&first[..self.header]);
        if self.count == 1 {
            return (Vnet::default(), self.header);
        }
        header[self.ip + FLAGS] |= self.flags & (FIN | PSH);
        mend_segment(header, self.ip, self.payload);
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

/// Where IP's header ends and where TCP's does, of a packet that is whole and has no options of IP.
fn headers(packet: &[u8]) -> Option<(usize, usize)> {
    let ip = plain_ip(packet, TCP)?;
    let tcp = usize::from(packet.get(ip + 12)? >> 4) * 4;
    let header = ip + tcp;
    let is_sound = tcp >= TCP_LEN && header <= packet.len().min(HEADER_MAX);
    is_sound.then_some((ip, header))
}

#[cfg(test)]
mod tests;
