//! virtio-net header that a TUN device puts in front of each packet (`struct virtio_net_hdr`).

/// Length of the header in bytes.
pub const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
/// Flag of a packet with CWR set: only its first segment may have it.
const GSO_ECN: u8 = 0x80;

/// The kernel's description of a packet, in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// Checksum that is still to be computed; its field holds the sum of the pseudo header.
    pub checksum: Option<Checksum>,
    /// Segmentation of the packet.
    pub cut: Option<Cut>,
    /// Bytes of all headers, according to the kernel.
    pub header_len: u16,
}

/// A checksum that is still to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Start of the covered bytes: the transport header.
    pub start: u16,
    /// Offset of the checksum field from the start.
    pub offset: u16,
}

/// Segmentation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Transport of the segments.
    pub kind: Kind,
    /// Payload of each segment but the last, in bytes.
    pub segment: u16,
    /// Whether the first segment has CWR (congestion window reduced) set.
    pub ecn: bool,
}

/// Transport of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either.
    Udp,
}

impl Vnet {
    /// Decodes the header; `None` if it uses an offload that was not requested.
    #[must_use]
    pub fn decode(bytes: &[u8; LEN]) -> Option<Self> {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let kind = match bytes[1] & !GSO_ECN {
            0 => None,
            1 => Some(Kind::TcpV4),
            4 => Some(Kind::TcpV6),
            5 => Some(Kind::Udp),
            _ => return None,
        };
        let ecn = bytes[1] & GSO_ECN != 0;
        let cut = kind.map(|kind| Cut { kind, segment: word(4), ecn });
        if cut.is_some_and(|cut| cut.segment == 0) {
            return None;
        }
        let checksum = Checksum { start: word(6), offset: word(8) };
        let checksum = (bytes[0] & NEEDS_CSUM != 0).then_some(checksum);
        Some(Self { checksum, cut, header_len: word(2) })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut put = |at: usize, word: u16| {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        };
        put(2, self.header_len);
        if let Some(cut) = self.cut {
            put(4, cut.segment);
        }
        if let Some(checksum) = self.checksum {
            put(6, checksum.start);
            put(8, checksum.offset);
            bytes[0] = NEEDS_CSUM;
        }
        bytes[1] = self.cut.map_or(0, |cut| {
            let kind = match cut.kind {
                Kind::TcpV4 => 1,
                Kind::TcpV6 => 4,
                Kind::Udp => 5,
            };
            kind | if cut.ecn { GSO_ECN } else { 0 }
        });
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_round_trips() {
        for kind in [None, Some(Kind::TcpV4), Some(Kind::TcpV6), Some(Kind::Udp)] {
            for ecn in [false, true] {
                let cut = kind.map(|kind| Cut { kind, segment: 1448, ecn });
                let checksum = Some(Checksum { start: 20, offset: 16 });
                let vnet = Vnet { checksum, cut, header_len: 52 };
                assert_eq!(Vnet::decode(&vnet.encode()), Some(vnet));
            }
        }
        let plain = Vnet::default();
        assert_eq!(plain.encode(), [0; LEN]);
        assert_eq!(Vnet::decode(&[0; LEN]), Some(plain));
    }

    #[test]
    fn unrequested_offloads_are_refused() {
        // UDP fragmentation offload, and segments of nothing.
        let mut bytes = [0; LEN];
        bytes[1] = 3;
        assert_eq!(Vnet::decode(&bytes), None);
        bytes[1] = 1;
        assert_eq!(Vnet::decode(&bytes), None);
    }
}
