//! The IPv4 header and the Internet checksum (RFC 791 §3.1, RFC 1071).
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 0 | version (4 bits, 4), header length in 32-bit words (4 bits) | decoded: 5–15, encoded: 5 |
//! | 1 | DSCP (6 bits), ECN (2 bits) | [`Ipv4::traffic_class`] |
//! | 2–3 | total length, header included | [`Ipv4::total_len`] |
//! | 4–5 | identification | [`Ipv4::id`] |
//! | 6–7 | reserved, DF, MF (3 bits), fragment offset in 8 bytes (13 bits) | [`Ipv4::fragment`] |
//! | 8 | TTL | [`Ipv4::ttl`] |
//! | 9 | protocol | [`Ipv4::protocol`] |
//! | 10–11 | header checksum | verified, computed |
//! | 12–15 | source | [`Ipv4::source`] |
//! | 16–19 | destination | [`Ipv4::destination`] |
//! | 20– | options | skipped when decoding, never written |

use std::fmt;
use std::net::Ipv4Addr;

use crate::{DecodeError, DecodeErrorKind};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Bit of [`Ipv4::fragment`] that forbids fragmentation.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Bit of [`Ipv4::fragment`] set if more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 header without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Total length of the packet, in bytes.
    pub total_len: u16,
    /// Identification of the packet among the packets of its source.
    pub id: u16,
    /// Flags and fragment offset, as on the wire.
    pub fragment: u16,
    /// TTL: number of routers the packet may still cross.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Decodes a header and returns it with the packet's payload, without padding.
    ///
    /// # Errors
    /// When the bytes are not an IPv4 packet, are truncated or fail the header checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (head, _) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        if head[0] >> 4 != 4 {
            return Err(DecodeError { offset: 0, kind: DecodeErrorKind::Version(head[0] >> 4) });
        }
        let header_len = usize::from(head[0] & 0x0f) * 4;
        if header_len < HEADER_LEN {
            return Err(DecodeError::invalid(0, "the header length is below 20"));
        }
        let header = bytes.get(..header_len).ok_or(truncated(header_len, bytes.len()))?;
        let total = fold(sum(header));
        if total != 0xffff {
            return Err(checksum_error(10, [head[10], head[11]], total));
        }
        let total_len = u16::from_be_bytes([head[2], head[3]]);
        if usize::from(total_len) < header_len {
            return Err(DecodeError::invalid(2, "the total length is below the header's"));
        }
        let payload = bytes.get(header_len..usize::from(total_len));
        let payload = payload.ok_or(truncated(usize::from(total_len), bytes.len()))?;
        let ip = Self {
            traffic_class: head[1],
            total_len,
            id: u16::from_be_bytes([head[4], head[5]]),
            fragment: u16::from_be_bytes([head[6], head[7]]),
            ttl: head[8],
            protocol: head[9],
            source: Ipv4Addr::new(head[12], head[13], head[14], head[15]),
            destination: Ipv4Addr::new(head[16], head[17], head[18], head[19]),
        };
        Ok((ip, payload))
    }

    /// Writes the header, including its checksum.
    pub fn encode(&self, out: &mut [u8; HEADER_LEN]) {
        out[0] = 0x45;
        out[1] = self.traffic_class;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.id.to_be_bytes());
        out[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
        let checksum = !fold(sum(out));
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Whether the packet is a fragment.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment & !DONT_FRAGMENT & 0x7fff != 0
    }
}

impl fmt::Display for Ipv4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv4 {} > {} protocol {} length {} id {} ttl {}",
            self.source, self.destination, self.protocol, self.total_len, self.id, self.ttl
        )
    }
}

/// Error of a packet that is shorter than its headers say.
pub const fn truncated(needed: usize, found: usize) -> DecodeError {
    DecodeError { offset: 0, kind: DecodeErrorKind::Truncated { needed, found } }
}

/// Returns the error of a checksum whose covered bytes, including itself, sum to `total` instead
/// of 0xffff.
pub fn checksum_error(offset: usize, found: [u8; 2], total: u16) -> DecodeError {
    let found = u16::from_be_bytes(found);
    // One's complement: the correct value is the complement of the sum of all but the value found.
    let computed = !fold(u64::from(total) + u64::from(!found));
    let kind = DecodeErrorKind::Checksum { found: u32::from(found), computed: u32::from(computed) };
    DecodeError { offset, kind }
}

/// Decrements the TTL and updates the checksum (RFC 1624 §3), as a router does.
///
/// Returns `false` and changes nothing if the packet has expired.
pub fn decrement_ttl(header: &mut [u8; HEADER_LEN]) -> bool {
    if header[8] <= 1 {
        return false;
    }
    header[8] -= 1;
    // HC' = ~(~HC + ~m + m'); the TTL is the upper byte of its word, so the word falls by 0x0100
    // and ~m + m' is ~0x0100.
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let updated = !fold(u64::from(!checksum) + u64::from(!0x0100_u16));
    header[10..12].copy_from_slice(&updated.to_be_bytes());
    true
}

/// Returns the one's complement sum of big-endian 16-bit words, not folded; an odd last byte
/// counts as the upper half of a word. Sums of pieces of even length may be added.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    // RFC 1071 §2 (B): the sum may be computed in any byte order and swapped at the end, and over
    // wider words. The halves of 64-bit words are summed separately, each in four lanes, which
    // cannot overflow below 2^37 bytes and which compilers vectorise.
    const LANES: usize = 4;
    let mut low = [0_u64; LANES];
    let mut high = [0_u64; LANES];
    let mut blocks = bytes.chunks_exact(8 * LANES);
    for block in &mut blocks {
        for (lane, word) in block.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            low[lane] += word & 0xffff_ffff;
            high[lane] += word >> 32;
        }
    }
    let mut total = low.iter().chain(&high).sum::<u64>();
    let mut words = blocks.remainder().chunks_exact(2);
    for word in &mut words {
        total += u64::from(u16::from_le_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        total += u64::from(*last);
    }
    u64::from(fold(total).swap_bytes())
}

/// Folds a sum into 16 bits with end-around carry.
#[must_use]
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet of a widely printed worked example: 45 00 00 73 ... checksum b861.
    const EXAMPLE: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    fn example() -> Ipv4 {
        Ipv4 {
            traffic_class: 0,
            total_len: 0x73,
            id: 0,
            fragment: DONT_FRAGMENT,
            ttl: 64,
            protocol: PROTOCOL_UDP,
            source: Ipv4Addr::new(192, 168, 0, 1),
            destination: Ipv4Addr::new(192, 168, 0, 199),
        }
    }

    fn error(bytes: &[u8]) -> String {
        Ipv4::decode(bytes).unwrap_err().to_string()
    }

    #[test]
    fn worked_example_round_trips() {
        let mut bytes = [0xa5; 20];
        example().encode(&mut bytes);
        assert_eq!(bytes, EXAMPLE);
        let mut packet = EXAMPLE.to_vec();
        packet.resize(0x73 + 5, 7);
        let (ip, payload) = Ipv4::decode(&packet).unwrap();
        assert_eq!((ip, payload.len()), (example(), 0x73 - 20));
        assert!(!ip.is_fragment());
        assert_eq!(
            ip.to_string(),
            "IPv4 192.168.0.1 > 192.168.0.199 protocol 17 length 115 id 0 ttl 64"
        );
    }

    #[test]
    fn the_checksum_example_of_rfc_1071() {
        // RFC 1071 §3: 0001 f203 f4f5 f6f7 sum to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(error(&EXAMPLE[..19]), "byte 0: 20 bytes are needed and 19 are left");
        assert_eq!(error(&EXAMPLE), "byte 0: 115 bytes are needed and 20 are left");
        let with = |index: usize, value| {
            let mut bytes = EXAMPLE;
            bytes[index] = value;
            error(&bytes)
        };
        assert_eq!(with(0, 0x65), "byte 0: version 6 is unknown");
        assert_eq!(with(0, 0x44), "byte 0: the header length is below 20");
        assert_eq!(with(0, 0x46), "byte 0: 24 bytes are needed and 20 are left");
        assert_eq!(with(10, 0xb9), "byte 10: the checksum is 0xb961, computed 0xb861");
        let mut short = [0; 20];
        Ipv4 { total_len: 19, ..example() }.encode(&mut short);
        assert_eq!(error(&short), "byte 2: the total length is below the header's");
    }

    #[test]
    fn a_router_updates_the_checksum() {
        let mut header = EXAMPLE;
        for ttl in (1..64).rev() {
            assert!(decrement_ttl(&mut header));
            let mut fresh = [0; 20];
            Ipv4 { ttl, ..example() }.encode(&mut fresh);
            assert_eq!(header, fresh);
        }
        assert!(!decrement_ttl(&mut header) && header[8] == 1);
    }

    proptest! {
        #[test]
        fn sums_like_the_plain_loop(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let plain: u64 = bytes
                .chunks(2)
                .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)))
                .sum();
            prop_assert_eq!(fold(sum(&bytes)), fold(plain));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((ip, payload)) = Ipv4::decode(&bytes) {
                prop_assert!(payload.len() < usize::from(ip.total_len));
            }
        }

        #[test]
        fn any_header_round_trips(
            traffic_class: u8, id: u16, fragment: u16, ttl: u8, protocol: u8,
            source: u32, destination: u32, len in 0..64_usize,
        ) {
            let ip = Ipv4 {
                traffic_class, id, fragment, ttl, protocol,
                total_len: (HEADER_LEN + len) as u16,
                source: source.into(), destination: destination.into(),
            };
            let mut bytes = vec![0xa5; HEADER_LEN + len];
            ip.encode(bytes.first_chunk_mut().unwrap());
            let (back, payload) = Ipv4::decode(&bytes).unwrap();
            prop_assert_eq!((back, payload.len()), (ip, len));
        }
    }
}
