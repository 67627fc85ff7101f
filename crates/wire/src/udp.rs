//! The UDP header and its checksum over IPv4 (RFC 768, RFC 1122 §4.1.3.4).
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 0–1 | source port | [`Udp::source`] |
//! | 2–3 | destination port | [`Udp::destination`] |
//! | 4–5 | length, header included | [`encode`] computes, [`Udp::decode`] verifies |
//! | 6–7 | checksum over pseudo header, header and data; 0 for none | [`Checksum`] |

use std::fmt;
use std::net::Ipv4Addr;

use crate::DecodeError;
use crate::ip::{PROTOCOL_UDP, checksum_error, fold, sum, truncated};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 8;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// Whether a datagram carries a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Computed by the sender, and verified by the receiver.
    Full,
    /// Zero: damage to the data is not detected here.
    None,
}

impl Udp {
    /// Decodes a datagram, the payload of an IPv4 packet between these addresses. Verifies its
    /// checksum if it has one, and returns the header and the data.
    ///
    /// # Errors
    /// When the datagram is truncated, its length field is wrong or its checksum fails.
    pub fn decode(
        bytes: &[u8],
        source: Ipv4Addr,
        destination: Ipv4Addr,
    ) -> Result<(Self, &[u8]), DecodeError> {
        let (head, _) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        let len = u16::from_be_bytes([head[4], head[5]]);
        if usize::from(len) < HEADER_LEN {
            return Err(DecodeError::invalid(4, "the length is below the header's"));
        }
        let datagram = bytes.get(..usize::from(len));
        let datagram = datagram.ok_or(truncated(usize::from(len), bytes.len()))?;
        if head[6..8] != [0, 0] {
            let total = fold(pseudo_header(source, destination, len) + sum(datagram));
            if total != 0xffff {
                return Err(checksum_error(6, [head[6], head[7]], total));
            }
        }
        let udp = Self {
            source: u16::from_be_bytes([head[0], head[1]]),
            destination: u16::from_be_bytes([head[2], head[3]]),
        };
        Ok((udp, &datagram[HEADER_LEN..]))
    }
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UDP {} > {}", self.source, self.destination)
    }
}

/// Writes the header before the data, which is already in `datagram[8..]`.
///
/// # Panics
/// If `datagram` is shorter than the header or longer than 65,535 bytes.
pub fn encode(
    udp: Udp,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    checksum: Checksum,
    datagram: &mut [u8],
) {
    let len = u16::try_from(datagram.len()).expect("a datagram has at most 65,535 bytes");
    datagram[0..2].copy_from_slice(&udp.source.to_be_bytes());
    datagram[2..4].copy_from_slice(&udp.destination.to_be_bytes());
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
    datagram[6..8].fill(0);
    let value = match checksum {
        // A computed zero is sent as all ones, its equal in one's complement (RFC 768).
        Checksum::Full => match !fold(pseudo_header(source, destination, len) + sum(datagram)) {
            0 => 0xffff,
            value => value,
        },
        Checksum::None => 0,
    };
    datagram[6..8].copy_from_slice(&value.to_be_bytes());
}

/// Returns the checksum's initial sum, of addresses, protocol and length.
fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, len: u16) -> u64 {
    let halves = |address: Ipv4Addr| {
        let bits = u64::from(address.to_bits());
        (bits >> 16) + (bits & 0xffff)
    };
    halves(source) + halves(destination) + u64::from(PROTOCOL_UDP) + u64::from(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 31);
    const B: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 30);
    const PORTS: Udp = Udp { source: 20, destination: 10 };

    fn datagram(data: &[u8], checksum: Checksum) -> Vec<u8> {
        let mut bytes = vec![0xa5; HEADER_LEN + data.len()];
        bytes[HEADER_LEN..].copy_from_slice(data);
        encode(PORTS, A, B, checksum, &mut bytes);
        bytes
    }

    #[test]
    fn a_vector_computed_by_hand() {
        // Pseudo header: addresses, protocol, length; then ports, length, "Hi". The words sum to
        // 0x1ca39, folded 0xca3a, whose complement is 0x35c5.
        let words: [u32; 10] =
            [0xc0a8, 0x001f, 0xc0a8, 0x001e, 0x0011, 10, 0x0014, 0x000a, 10, 0x4869];
        let total: u32 = words.iter().sum();
        let expected = !((total & 0xffff) as u16 + (total >> 16) as u16);
        assert_eq!(expected, 0x35c5);
        let bytes = datagram(b"Hi", Checksum::Full);
        assert_eq!(bytes, [0, 20, 0, 10, 0, 10, 0x35, 0xc5, b'H', b'i']);
        assert_eq!(Udp::decode(&bytes, A, B), Ok((PORTS, &b"Hi"[..])));
        assert_eq!(PORTS.to_string(), "UDP 20 > 10");
    }

    #[test]
    fn a_computed_zero_is_sent_as_all_ones() {
        let plain = datagram(&[0, 0], Checksum::Full);
        // With the checksum itself as data the sum is all ones and its complement zero.
        let zero = datagram(&plain[6..8], Checksum::Full);
        assert_eq!(zero[6..8], [0xff, 0xff]);
        assert!(Udp::decode(&zero, A, B).is_ok());
    }

    #[test]
    fn without_a_checksum_damage_passes() {
        let mut bytes = datagram(b"data", Checksum::None);
        bytes[9] ^= 1;
        assert_eq!(Udp::decode(&bytes, A, B), Ok((PORTS, &b"d`ta"[..])));
    }

    #[test]
    fn errors_name_the_place() {
        let bytes = datagram(b"data", Checksum::Full);
        let error = |bytes: &[u8]| Udp::decode(bytes, A, B).unwrap_err().to_string();
        assert_eq!(error(&bytes[..7]), "byte 0: 8 bytes are needed and 7 are left");
        assert_eq!(error(&bytes[..11]), "byte 0: 12 bytes are needed and 11 are left");
        let mut short = bytes.clone();
        short[5] = 7;
        assert_eq!(error(&short), "byte 4: the length is below the header's");
        assert_eq!(Udp::decode(&bytes, A, A).unwrap_err().offset, 6);
    }

    proptest! {
        #[test]
        fn one_flipped_bit_never_passes(data in prop::collection::vec(any::<u8>(), 0..50), bit: u16) {
            let mut bytes = datagram(&data, Checksum::Full);
            prop_assert_eq!(Udp::decode(&bytes, A, B), Ok((PORTS, &data[..])));
            let bit = usize::from(bit) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A checksum damaged to 0 would mean "none". From any value but a power of two, that
            // takes at least two flipped bits.
            let none = bytes[6..8] == [0, 0];
            prop_assert!(none || Udp::decode(&bytes, A, B).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Udp::decode(&bytes, A, B);
        }
    }
}
