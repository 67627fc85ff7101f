//! The IPv6 header (RFC 8200 §3), without extension headers.
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 0–3 | version (4 bits, 6) | |
//! | | traffic class (8 bits) | [`Ipv6::traffic_class`] |
//! | | flow label (20 bits) | [`Ipv6::flow_label`] |
//! | 4–5 | payload length | [`Ipv6::payload_len`] |
//! | 6 | next header | [`Ipv6::next_header`] |
//! | 7 | hop limit | [`Ipv6::hop_limit`] |
//! | 8–23 | source | [`Ipv6::source`] |
//! | 24–39 | destination | [`Ipv6::destination`] |

use std::fmt;
use std::net::Ipv6Addr;

use crate::ip::truncated;
use crate::{DecodeError, DecodeErrorKind};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 40;

/// An IPv6 header.
///
/// An extension header appears as a [`next_header`](Self::next_header) like any other, and the
/// payload starts with it. A caller that expects a transport's number finds another one and
/// refuses the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, in the lower 20 bits.
    pub flow_label: u32,
    /// Length of the payload, in bytes.
    pub payload_len: u16,
    /// Protocol of the payload's first header.
    pub next_header: u8,
    /// Hop limit: number of routers the packet may still cross.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Decodes a header and returns it with the packet's payload, without padding.
    ///
    /// # Errors
    /// When the bytes are not an IPv6 packet or are truncated.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (head, rest) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        if head[0] >> 4 != 6 {
            return Err(DecodeError { offset: 0, kind: DecodeErrorKind::Version(head[0] >> 4) });
        }
        let payload_len = u16::from_be_bytes([head[4], head[5]]);
        let payload = rest.get(..usize::from(payload_len));
        let needed = HEADER_LEN + usize::from(payload_len);
        let payload = payload.ok_or(truncated(needed, bytes.len()))?;
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&head[at..at + 16]);
            Ipv6Addr::from(bytes)
        };
        let ip = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_len,
            next_header: head[6],
            hop_limit: head[7],
            source: address(8),
            destination: address(24),
        };
        Ok((ip, payload))
    }

    /// Writes the header. Ignores bits of the flow label beyond its 20.
    pub fn encode(&self, out: &mut [u8; HEADER_LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        out[0..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..40].copy_from_slice(&self.destination.octets());
    }
}

impl fmt::Display for Ipv6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv6 {} > {} next header {} length {} hops {}",
            self.source, self.destination, self.next_header, self.payload_len, self.hop_limit
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Ipv6 {
        Ipv6 {
            traffic_class: 0xb9,
            flow_label: 0x12345,
            payload_len: 3,
            next_header: 6,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "fe80::2".parse().unwrap(),
        }
    }

    #[test]
    fn a_vector_written_by_hand() {
        let mut bytes = [0xa5; 45];
        example().encode(bytes.first_chunk_mut().unwrap());
        let head = [0x6b, 0x91, 0x23, 0x45, 0, 3, 6, 64, 0x20, 0x01, 0x0d, 0xb8];
        assert_eq!(bytes[..12], head);
        assert_eq!(bytes[23..26], [1, 0xfe, 0x80]);
        assert_eq!(Ipv6::decode(&bytes), Ok((example(), &[0xa5; 3][..])), "padding is left out");
        let text = "IPv6 2001:db8::1 > fe80::2 next header 6 length 3 hops 64";
        assert_eq!(example().to_string(), text);
    }

    #[test]
    fn errors_name_the_place() {
        let mut bytes = [0; 43];
        example().encode(bytes.first_chunk_mut().unwrap());
        let error = |bytes: &[u8]| Ipv6::decode(bytes).unwrap_err().to_string();
        assert_eq!(error(&bytes[..39]), "byte 0: 40 bytes are needed and 39 are left");
        assert_eq!(error(&bytes[..42]), "byte 0: 43 bytes are needed and 42 are left");
        bytes[0] = 0x45;
        assert_eq!(error(&bytes), "byte 0: version 4 is unknown");
    }

    proptest! {
        #[test]
        fn any_header_round_trips(
            traffic_class: u8, flow_label in 0..1_u32 << 20, next_header: u8, hop_limit: u8,
            source: u128, destination: u128, len in 0..64_usize,
        ) {
            let ip = Ipv6 {
                traffic_class, flow_label, next_header, hop_limit, payload_len: len as u16,
                source: source.into(), destination: destination.into(),
            };
            let mut bytes = vec![0xa5; HEADER_LEN + len];
            ip.encode(bytes.first_chunk_mut().unwrap());
            let (back, payload) = Ipv6::decode(&bytes).unwrap();
            prop_assert_eq!((back, payload.len()), (ip, len));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Ipv6::decode(&bytes);
        }
    }
}
