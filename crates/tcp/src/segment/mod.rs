//! The TCP segment and its checksum (RFC 9293 §3.1).
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 0–1 | source port | [`Header::source`] |
//! | 2–3 | destination port | [`Header::destination`] |
//! | 4–7 | sequence number | [`Header::sequence`] |
//! | 8–11 | acknowledgment number | [`Header::acknowledgment`] |
//! | 12–13 | data offset in 32-bit words (4 bits) | computed |
//! | | reserved (4 bits), control bits | [`Header::flags`] |
//! | 14–15 | window | [`Header::window`] |
//! | 16–17 | checksum over pseudo header, header and data | verified, computed |
//! | 18–19 | urgent pointer | [`Header::urgent`] |
//! | 20– | options, padded to a multiple of four | [`Options`] |

mod options;
pub mod scps;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::ops::{BitOr, BitOrAssign};

use wire::flags;
use wire::ip::{checksum_error, fold, sum, truncated};
use wire::{DecodeError, EncodeError};

pub(crate) use self::options::encode as write_options;
pub use self::options::{Capabilities, Options, SackBlock, SackBlocks, TcpOption, options_len};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of the options in a header, in bytes.
pub const OPTIONS_MAX: usize = 40;
/// Protocol number of TCP.
pub const PROTOCOL: u8 = 6;

/// Control bits, and the reserved ones above them: 12 bits as on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u16);

flags!(Flags);

impl Flags {
    /// No bits.
    pub const NONE: Self = Self(0);
    /// FIN: no more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// SYN: synchronises sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// RST: resets the connection.
    pub const RST: Self = Self(0x004);
    /// PSH: deliver to the receiver's user at once.
    pub const PSH: Self = Self(0x008);
    /// ACK: the acknowledgment number is valid.
    pub const ACK: Self = Self(0x010);
    /// URG: the urgent pointer is valid.
    pub const URG: Self = Self(0x020);
    /// ECE: congestion was experienced (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// CWR: the congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);

    /// Creates flags from 12 bits; ignores higher ones.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x0fff)
    }

    /// Returns the 12 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, rhs: Self) {
        *self = *self | rhs;
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut first = true;
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0);
        for (_, name) in set {
            f.write_str(if first { "" } else { "," })?;
            f.write_str(name)?;
            first = false;
        }
        match self.0 >> 8 {
            0 => Ok(()),
            reserved => write!(f, "{}{reserved:#x}", if first { "" } else { "," }),
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}

/// A header without its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first data byte, or of the SYN.
    pub sequence: u32,
    /// Sequence number of the next expected byte.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window, unscaled as on the wire.
    pub window: u16,
    /// End of urgent data, relative to the sequence number.
    pub urgent: u16,
}

/// Sum of the pseudo header of IPv4 (RFC 9293 §3.1) or IPv6 (RFC 8200 §8.1), which the checksum
/// covers in addition to the segment: addresses and protocol, without the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoHeader(u64);

impl PseudoHeader {
    /// Returns the pseudo header of a packet from `source` to `destination`.
    #[must_use]
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => sum(&address.octets()),
            IpAddr::V6(address) => sum(&address.octets()),
        };
        Self(address(source) + address(destination) + u64::from(protocol))
    }

    /// Returns the folded sum over pseudo header and segment: 0xffff if the segment is intact and
    /// includes its checksum.
    #[must_use]
    pub fn total(self, segment: &[u8]) -> u16 {
        // IPv6's pseudo header has a 32-bit length, whose upper half is zero for a packet.
        fold(self.0 + segment.len() as u64 + sum(segment))
    }
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Header.
    pub header: Header,
    /// Options.
    pub options: Options<'a>,
    /// Data.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Decodes a segment, the payload of an IP packet, and verifies its checksum.
    ///
    /// Options are decoded on demand, and may be malformed.
    ///
    /// # Errors
    /// When the segment is truncated, its data offset is wrong or its checksum fails.
    pub fn decode(bytes: &'a [u8], pseudo: PseudoHeader) -> Result<Self, DecodeError> {
        let segment = Self::decode_unchecked(bytes)?;
        let total = pseudo.total(bytes);
        if total != 0xffff {
            return Err(checksum_error(16, [bytes[16], bytes[17]], total));
        }
        Ok(segment)
    }

    /// Decodes a segment whose checksum the caller verified.
    ///
    /// # Errors
    /// When the segment is truncated or its data offset is wrong.
    pub fn decode_unchecked(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, _) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated(HEADER_LEN, bytes.len()))?;
        let header_len = usize::from(head[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(DecodeError::invalid(12, "the data offset is below 5"));
        }
        let Some((header, payload)) = bytes.split_at_checked(header_len) else {
            return Err(truncated(header_len, bytes.len()));
        };
        let two = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let four =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Ok(Self {
            header: Header {
                source: two(0),
                destination: two(2),
                sequence: four(4),
                acknowledgment: four(8),
                flags: Flags::from_bits(two(12)),
                window: two(14),
                urgent: two(18),
            },
            options: Options::new(&header[HEADER_LEN..]),
            payload,
        })
    }

    /// Returns the number of sequence numbers that the segment occupies: its data, a SYN and a
    /// FIN.
    #[must_use]
    pub fn occupies(&self) -> u32 {
        let has = |flag| u32::from(self.header.flags.contains(flag));
        self.payload.len() as u32 + has(Flags::SYN) + has(Flags::FIN)
    }
}

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { source, destination, sequence, acknowledgment, flags, window, urgent } =
            self.header;
        write!(f, "TCP {source} > {destination} [{flags}] seq {sequence}")?;
        if flags.contains(Flags::ACK) {
            write!(f, " ack {acknowledgment}")?;
        }
        write!(f, " win {window} len {}", self.payload.len())?;
        if flags.contains(Flags::URG) {
            write!(f, " urg {urgent}")?;
        }
        for option in self.options {
            match option {
                Ok(TcpOption::NoOperation) => {}
                Ok(option) => write!(f, " {option}")?,
                Err(error) => write!(f, " (options: {error})")?,
            }
        }
        Ok(())
    }
}

/// Writes the header and its options before the data, which is already in `segment[HEADER_LEN +
/// options_len(options)..]`, with the checksum over all of it.
///
/// # Errors
/// When the options exceed [`OPTIONS_MAX`] bytes, one of them cannot be encoded, or `segment` is
/// too short for them.
pub fn encode(
    header: &Header,
    options: &[TcpOption<'_>],
    pseudo: PseudoHeader,
    segment: &mut [u8],
) -> Result<(), EncodeError> {
    let len = options_len(options);
    let header_len = HEADER_LEN + len;
    if len > OPTIONS_MAX {
        return Err(EncodeError::TooLarge { field: "options" });
    }
    let room = segment.len();
    let Some(head) = segment.get_mut(..header_len) else {
        return Err(EncodeError::NoRoom { needed: header_len, room });
    };
    head[0..2].copy_from_slice(&header.source.to_be_bytes());
    head[2..4].copy_from_slice(&header.destination.to_be_bytes());
    head[4..8].copy_from_slice(&header.sequence.to_be_bytes());
    head[8..12].copy_from_slice(&header.acknowledgment.to_be_bytes());
    let words = (header_len / 4) as u16;
    head[12..14].copy_from_slice(&(words << 12 | header.flags.bits()).to_be_bytes());
    head[14..16].copy_from_slice(&header.window.to_be_bytes());
    head[16..18].fill(0);
    head[18..20].copy_from_slice(&header.urgent.to_be_bytes());
    options::encode(options, &mut head[HEADER_LEN..])?;
    // A computed zero stays: unlike UDP's, this checksum is never omitted.
    let checksum = !pseudo.total(segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}
