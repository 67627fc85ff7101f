//! SCPS-TP's compressed header (CCSDS 714.0-B-2, as its reference implementation writes it), a
//! packet of IP protocol 105 instead of a TCP segment.
//!
//! All present fields are absolute, never differences, so a lost packet does not affect others.
//! Absent fields keep their last values. A SYN is never compressed.
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 1 | connection number, assigned by its sender | [`Head::connection`] |
//! | 1 | presence: more (80), TSval (40), TSecr (20), record boundary (10), | |
//! | | SNACK (08), PSH (04), sequence (02), acknowledgment (01) | |
//! | 0 or 1 | more: options (80), padding (40), urgent (20), no acknowledgment (10), | |
//! | | RST (04), FIN (01) | |
//! | 0 or 2 | urgent pointer | [`Head::urgent`] |
//! | 0 or 6 | window, acknowledgment number | [`Head::acknowledgment`] |
//! | 0 or 4 | sequence number | [`Head::sequence`] |
//! | 0, 4 or 8 | TSval, TSecr | [`Head::stamp`], [`Head::echo`] |
//! | 0 or 1 + n | bytes of options, options except above ones | [`Compressed::options`] |
//! | 0 or 1 | padding to an even length | |
//! | 2 | checksum over pseudo header (protocol 105), header, data | verified, computed |

use std::fmt;

use wire::ip::{checksum_error, truncated};
use wire::{DecodeError, EncodeError};

use crate::segment::{Flags, Header, OPTIONS_MAX, Options, PseudoHeader, TcpOption};

/// Protocol number of SCPS-TP with a TCP header.
pub const PROTOCOL: u8 = 106;
/// Protocol number of SCPS-TP with a compressed header.
pub const COMPRESSED_PROTOCOL: u8 = 105;

const MORE: u8 = 0x80;
const STAMP: u8 = 0x40;
const ECHO: u8 = 0x20;
const RECORD: u8 = 0x10;
const SNACK: u8 = 0x08;
const PUSH: u8 = 0x04;
const SEQUENCE: u8 = 0x02;
const ACKNOWLEDGMENT: u8 = 0x01;

const OPTIONS: u8 = 0x80;
const PADDED: u8 = 0x40;
const URGENT: u8 = 0x20;
const NO_ACK: u8 = 0x10;
const RESET: u8 = 0x04;
const FINISH: u8 = 0x01;
/// Undefined bits of the second byte.
const RESERVED: u8 = 0x0a;

/// Fields of a compressed header, without its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Connection number, which the packet's sender announced in its SYN; not 0.
    pub connection: u8,
    /// FIN, RST, PSH and ACK.
    pub flags: Flags,
    /// End of urgent data; implies the flag URG.
    pub urgent: Option<u16>,
    /// Window, unscaled as in a segment, and acknowledgment number.
    pub acknowledgment: Option<(u16, u32)>,
    /// Sequence number of the first data byte.
    pub sequence: Option<u32>,
    /// TSval.
    pub stamp: Option<u32>,
    /// TSecr.
    pub echo: Option<u32>,
    /// Whether a record ends with this segment.
    pub ends_record: bool,
    /// Bit of a SNACK, which is among the options; the reference implementation never sets it.
    pub snack: bool,
    /// Undefined bits.
    pub reserved: u8,
}

/// A packet with a compressed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// Header.
    pub head: Head,
    /// Options, without time stamps and record boundary.
    pub options: Options<'a>,
    /// Data.
    pub payload: &'a [u8],
}

/// Values of absent fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number: the next one expected.
    pub sequence: u32,
    /// Last window and acknowledgment number received.
    pub acknowledgment: (u16, u32),
    /// Last TSval and TSecr received.
    pub stamps: (u32, u32),
}

/// Reads consecutive fields.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at + len;
        let taken = self.bytes.get(self.at..end).ok_or(truncated(end, self.bytes.len()))?;
        self.at = end;
        Ok(taken)
    }

    fn read_byte(&mut self) -> Result<u8, DecodeError> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn two(&mut self) -> Result<u16, DecodeError> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn four(&mut self) -> Result<u32, DecodeError> {
        self.take(4).map(|o| u32::from_be_bytes([o[0], o[1], o[2], o[3]]))
    }
}

impl<'a> Compressed<'a> {
    /// Decodes a packet, the payload of IP, and verifies its checksum.
    ///
    /// # Errors
    /// When the packet is truncated, its connection is 0, its header has an odd length, or its
    /// checksum fails.
    pub fn decode(bytes: &'a [u8], pseudo: PseudoHeader) -> Result<Self, DecodeError> {
        let (packet, checksum_at) = Self::decode_unchecked(bytes)?;
        let total = pseudo.total(bytes);
        if total != 0xffff {
            let found = [bytes[checksum_at], bytes[checksum_at + 1]];
            return Err(checksum_error(checksum_at, found, total));
        }
        Ok(packet)
    }

    /// Decodes a packet whose checksum the caller verified; also returns the checksum's offset.
    ///
    /// # Errors
    /// As [`Compressed::decode`], except for the checksum.
    pub fn decode_unchecked(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        let connection = reader.read_byte()?;
        if connection == 0 {
            return Err(DecodeError::invalid(0, "connection 0 has no compressed header"));
        }
        let first = reader.read_byte()?;
        let second = if first & MORE != 0 { reader.read_byte()? } else { 0 };
        let urgent = if second & URGENT != 0 { Some(reader.two()?) } else { None };
        let acknowledgment =
            if first & ACKNOWLEDGMENT != 0 { Some((reader.two()?, reader.four()?)) } else { None };
        let mut number = |bit| if first & bit != 0 { reader.four().map(Some) } else { Ok(None) };
        let (sequence, stamp, echo) = (number(SEQUENCE)?, number(STAMP)?, number(ECHO)?);
        let options = if second & OPTIONS != 0 {
            let len = reader.read_byte()?;
            reader.take(usize::from(len))?
        } else {
            &[]
        };
        if second & PADDED != 0 {
            reader.read_byte()?;
        }
        let checksum_at = reader.at;
        if !checksum_at.is_multiple_of(2) {
            return Err(DecodeError::invalid(checksum_at, "the compressed header's length is odd"));
        }
        reader.two()?;
        let mut flags = if second & NO_ACK != 0 { Flags::NONE } else { Flags::ACK };
        for (there, flag) in [
            (first & PUSH, Flags::PSH),
            (second & RESET, Flags::RST),
            (second & FINISH, Flags::FIN),
            (second & URGENT, Flags::URG),
        ] {
            flags |= if there != 0 { flag } else { Flags::NONE };
        }
        let head = Head {
            connection,
            flags,
            urgent,
            acknowledgment,
            sequence,
            stamp,
            echo,
            ends_record: first & RECORD != 0,
            snack: first & SNACK != 0,
            reserved: second & RESERVED,
        };
        let payload = &bytes[reader.at..];
        Ok((Self { head, options: Options::new(options), payload }, checksum_at))
    }

    /// Returns the header of the segment that this packet replaces, and its options, which are
    /// written to `place`.
    ///
    /// # Errors
    /// When the options exceed the room in a header.
    pub fn expand<'o>(
        &self,
        inherited: &Inherited,
        place: &'o mut [u8; OPTIONS_MAX],
    ) -> Result<(Header, Options<'o>), DecodeError> {
        let mut len = 0;
        let mut add = |bytes: &[u8]| {
            let end = len + bytes.len();
            let room = place.get_mut(len..end);
            let room = room.ok_or(DecodeError::invalid(2, "the options are more than 40 bytes"))?;
            room.copy_from_slice(bytes);
            len = end;
            Ok::<(), DecodeError>(())
        };
        if self.head.stamp.is_some() || self.head.echo.is_some() {
            let (stamp, echo) = inherited.stamps;
            let stamp = self.head.stamp.unwrap_or(stamp).to_be_bytes();
            let echo = self.head.echo.unwrap_or(echo).to_be_bytes();
            add(&[8, 10])?;
            add(&stamp)?;
            add(&echo)?;
        }
        if self.head.ends_record {
            add(&[22, 2])?;
        }
        add(self.options.as_bytes())?;
        let (window, acknowledgment) = self.head.acknowledgment.unwrap_or(inherited.acknowledgment);
        let header = Header {
            source: inherited.source,
            destination: inherited.destination,
            sequence: self.head.sequence.unwrap_or(inherited.sequence),
            acknowledgment,
            flags: self.head.flags,
            window,
            urgent: self.head.urgent.unwrap_or(0),
        };
        Ok((header, Options::new(&place[..len])))
    }
}

impl fmt::Display for Compressed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { connection, flags, sequence, acknowledgment, .. } = self.head;
        write!(f, "SCPS-TP {connection} [{flags}]")?;
        if let Some(sequence) = sequence {
            write!(f, " seq {sequence}")?;
        }
        if let Some((window, acknowledgment)) = acknowledgment {
            write!(f, " ack {acknowledgment} win {window}")?;
        }
        write!(f, " len {}", self.payload.len())?;
        if self.head.ends_record {
            f.write_str(" eor")?;
        }
        for option in self.options.map_while(Result::ok) {
            write!(f, " {option}")?;
        }
        Ok(())
    }
}

impl Head {
    /// Returns the two presence bytes, without padding; the second is 0 if it can be omitted.
    fn bytes(&self, options: usize) -> (u8, u8) {
        let first = [
            (self.stamp.is_some(), STAMP),
            (self.echo.is_some(), ECHO),
            (self.ends_record, RECORD),
            (self.snack, SNACK),
            (self.flags.contains(Flags::PSH), PUSH),
            (self.sequence.is_some(), SEQUENCE),
            (self.acknowledgment.is_some(), ACKNOWLEDGMENT),
        ];
        let second = [
            (options > 0, OPTIONS),
            (self.urgent.is_some(), URGENT),
            (!self.flags.contains(Flags::ACK), NO_ACK),
            (self.flags.contains(Flags::RST), RESET),
            (self.flags.contains(Flags::FIN), FINISH),
        ];
        let sum =
            |bits: &[(bool, u8)]| bits.iter().filter(|bit| bit.0).fold(0, |all, bit| all | bit.1);
        (sum(&first), sum(&second) | self.reserved & RESERVED)
    }

    /// Length of the header with this many bytes of options, and whether it needs a byte of
    /// padding.
    fn len_with(&self, options: usize) -> (usize, bool) {
        let fields = [
            (self.urgent.is_some(), 2),
            (self.acknowledgment.is_some(), 6),
            (self.sequence.is_some(), 4),
            (self.stamp.is_some(), 4),
            (self.echo.is_some(), 4),
            (options > 0, 1 + options),
            (self.bytes(options).1 != 0, 1),
        ];
        let len = 4 + fields.iter().filter(|field| field.0).map(|field| field.1).sum::<usize>();
        (len.next_multiple_of(2), !len.is_multiple_of(2))
    }

    /// Length of the header with these options, in bytes: even, at least 4.
    #[must_use]
    pub fn encoded_len(&self, options: &[TcpOption<'_>]) -> usize {
        self.len_with(options.iter().map(TcpOption::encoded_len).sum()).0
    }
}

/// Writes the header before the data, which is already in `packet[head.encoded_len(options)..]`,
/// with the checksum over all of it. Time stamps and record boundaries are in [`Head`] and must
/// not be among the options.
///
/// # Errors
/// When the connection is 0, the options exceed [`OPTIONS_MAX`] bytes or cannot be encoded, or
/// `packet` is too short.
pub fn encode(
    head: &Head,
    options: &[TcpOption<'_>],
    pseudo: PseudoHeader,
    packet: &mut [u8],
) -> Result<(), EncodeError> {
    if head.connection == 0 {
        return Err(EncodeError::Conflict("connection 0 has no compressed header"));
    }
    let bytes: usize = options.iter().map(TcpOption::encoded_len).sum();
    if bytes > OPTIONS_MAX {
        return Err(EncodeError::TooLarge { field: "options" });
    }
    let (len, is_odd) = head.len_with(bytes);
    let room = packet.len();
    let Some(place) = packet.get_mut(..len) else {
        return Err(EncodeError::NoRoom { needed: len, room });
    };
    let (mut first, mut second) = head.bytes(bytes);
    if second != 0 {
        first |= MORE;
        second |= if is_odd { PADDED } else { 0 };
    } else if is_odd {
        // A second byte of zeros is shorter than flagging padding.
        first |= MORE;
    }
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        place[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[head.connection, first]);
    if first & MORE != 0 {
        put(&[second]);
    }
    if let Some(urgent) = head.urgent {
        put(&urgent.to_be_bytes());
    }
    if let Some((window, acknowledgment)) = head.acknowledgment {
        put(&window.to_be_bytes());
        put(&acknowledgment.to_be_bytes());
    }
    for number in [head.sequence, head.stamp, head.echo].into_iter().flatten() {
        put(&number.to_be_bytes());
    }
    if bytes > 0 {
        put(&[bytes as u8]);
        let mut list = [0; OPTIONS_MAX];
        crate::segment::write_options(options, &mut list[..bytes])?;
        put(&list[..bytes]);
    }
    if second & PADDED != 0 {
        put(&[0]);
    }
    put(&[0, 0]);
    let checksum = !pseudo.total(packet);
    packet[len - 2..len].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pseudo() -> PseudoHeader {
        PseudoHeader::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), COMPRESSED_PROTOCOL)
    }

    fn built(head: &Head, options: &[TcpOption<'_>], payload: &[u8]) -> Vec<u8> {
        let len = head.encoded_len(options);
        let mut bytes = vec![0xa5; len + payload.len()];
        bytes[len..].copy_from_slice(payload);
        encode(head, options, pseudo(), &mut bytes).unwrap();
        bytes
    }

    /// Returns the folded complement of pseudo header and words, computed independently.
    fn checksum(words: &[u16], len: u16) -> u16 {
        let pseudo = [0x0a00, 0x0001, 0x0a00, 0x0002, 105, len];
        let sum: u32 = words.iter().chain(&pseudo).map(|word| u32::from(*word)).sum();
        !((sum & 0xffff) as u16 + (sum >> 16) as u16)
    }

    #[test]
    fn data_takes_eight_bytes() {
        let head = Head {
            connection: 5,
            flags: Flags::ACK | Flags::PSH,
            sequence: Some(0x0102_0304),
            ..Head::default()
        };
        let bytes = built(&head, &[], b"data");
        let sum = checksum(&[0x0506, 0x0102, 0x0304, 0x6461, 0x7461], 12);
        let mut expected = vec![5, 0x06, 1, 2, 3, 4];
        expected.extend(sum.to_be_bytes());
        expected.extend(b"data");
        assert_eq!(bytes, expected);
        // 0506 + 0102 + 0304 + 6461 + 7461 = e1ce; + 0a00 + 1 + 0a00 + 2 + 69 + c = f646; inverted.
        assert_eq!(sum, !0xf646);
    }

    #[test]
    fn an_acknowledgment_with_stamps_and_a_hole() {
        let head = Head {
            connection: 255,
            flags: Flags::ACK,
            acknowledgment: Some((512, 0x0a0b_0c0d)),
            sequence: Some(7),
            stamp: Some(0x1111_1111),
            echo: Some(0x2222_2222),
            ..Head::default()
        };
        let hole = TcpOption::Snack { offset: 3, size: 2, bits: &[] };
        let bytes = built(&head, &[hole], &[]);
        // 1 + 1 + 1 + 6 + 4 + 8 + 7 + 2 = 30: even, so nothing is padded.
        let expected = [
            255,
            0x80 | 0x40 | 0x20 | 0x02 | 0x01,
            0x80,
            2,
            0,
            0x0a,
            0x0b,
            0x0c,
            0x0d,
            0,
            0,
            0,
            7,
            0x11,
            0x11,
            0x11,
            0x11,
            0x22,
            0x22,
            0x22,
            0x22,
            6,
            21,
            6,
            0,
            3,
            0,
            2,
        ];
        assert_eq!(bytes.len(), expected.len() + 2);
        assert_eq!(bytes[..expected.len()], expected);
        let packet = Compressed::decode(&bytes, pseudo()).unwrap();
        assert_eq!(packet.head, head);
        assert_eq!(packet.options.collect::<Vec<_>>(), [Ok(hole)]);
    }

    #[test]
    fn an_odd_header_is_made_even() {
        // 1 + 1 + 2 = 4: even already.
        let plain = Head { connection: 1, flags: Flags::ACK, ..Head::default() };
        assert_eq!(built(&plain, &[], b"x")[..2], [1, 0]);
        // FIN: 1 + 1 + 1 + 6 + 2 = 11, and one of padding.
        let fin = Head { flags: Flags::ACK | Flags::FIN, acknowledgment: Some((1, 2)), ..plain };
        let bytes = built(&fin, &[], &[]);
        assert_eq!((bytes.len(), &bytes[..3]), (12, &[1, 0x81, 0x41][..]));
        assert_eq!(bytes[9], 0, "padding");
        assert_eq!(Compressed::decode(&bytes, pseudo()).unwrap().head, fin);
        // A header with a second byte of zeros is accepted.
        let mut odd = vec![1, 0x80, 0, 0, 0, 0];
        odd[2] = 0x40;
        let sum = checksum(&[0x0180, 0x4000], 6);
        odd[4..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Compressed::decode(&odd, pseudo()).unwrap().head, plain);
    }

    #[test]
    fn absent_fields_are_inherited() {
        let inherited = Inherited {
            source: 80,
            destination: 4000,
            sequence: 11,
            acknowledgment: (22, 33),
            stamps: (44, 55),
        };
        let head = Head {
            connection: 9,
            flags: Flags::ACK,
            echo: Some(66),
            ends_record: true,
            ..Head::default()
        };
        let bytes = built(&head, &[], b"data");
        let packet = Compressed::decode(&bytes, pseudo()).unwrap();
        let mut place = [0; OPTIONS_MAX];
        let (header, options) = packet.expand(&inherited, &mut place).unwrap();
        let expected = Header {
            source: 80,
            destination: 4000,
            sequence: 11,
            acknowledgment: 33,
            flags: Flags::ACK,
            window: 22,
            urgent: 0,
        };
        assert_eq!(header, expected);
        let stamps = TcpOption::Timestamps { value: 44, echo: 66 };
        assert_eq!(options.collect::<Vec<_>>(), [Ok(stamps), Ok(TcpOption::RecordBoundary)]);
    }

    #[test]
    fn invalid_fields_are_refused() {
        let head = Head { connection: 5, flags: Flags::ACK, sequence: Some(1), ..Head::default() };
        let good = built(&head, &[], b"data");
        for len in 0..8 {
            assert!(Compressed::decode(&good[..len], pseudo()).is_err(), "{len}");
        }
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Compressed::decode(&bytes, pseudo()).is_err(), "{bit}");
        }
        assert!(Compressed::decode_unchecked(&[0, 0, 0, 0]).is_err(), "connection 0");
        assert!(Compressed::decode_unchecked(&[1, 0x80, 0, 0, 0]).is_err(), "an odd length");
        let none = Head { connection: 0, ..head };
        assert!(encode(&none, &[], pseudo(), &mut [0; 20]).is_err());
        assert!(encode(&head, &[], pseudo(), &mut [0; 7]).is_err());
        // A segment cannot have 41 bytes of options.
        let mut bytes = vec![1, 0x80, 0x80, 42];
        bytes.extend([1; 42]);
        bytes.extend([0, 0]);
        let (packet, _) = Compressed::decode_unchecked(&bytes).unwrap();
        assert!(packet.expand(&Inherited::default(), &mut [0; OPTIONS_MAX]).is_err());
    }

    fn heads() -> impl Strategy<Value = Head> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let numbers = (
            any::<Option<u16>>(),
            any::<Option<(u16, u32)>>(),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
        );
        (1..=255_u8, flags, numbers, any::<(bool, bool)>(), any::<u8>()).prop_map(
            |(connection, flags, numbers, (ends_record, snack), reserved)| {
                let (urgent, acknowledgment, sequence, stamp, echo) = numbers;
                let all = [
                    (flags.0, Flags::ACK),
                    (flags.1, Flags::PSH),
                    (flags.2, Flags::RST),
                    (flags.3, Flags::FIN),
                    (urgent.is_some(), Flags::URG),
                ];
                let set = all.into_iter().filter(|flag| flag.0);
                Head {
                    connection,
                    flags: set.fold(Flags::NONE, |all, flag| all | flag.1),
                    urgent,
                    acknowledgment,
                    sequence,
                    stamp,
                    echo,
                    ends_record,
                    snack,
                    reserved: reserved & RESERVED,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(
            head in heads(),
            hole in any::<Option<(u16, u16)>>(),
            corrupted in any::<bool>(),
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut options = Vec::new();
            options.extend(hole.map(|(offset, size)| TcpOption::Snack { offset, size, bits: &[1] }));
            options.extend(corrupted.then_some(TcpOption::CorruptionExperienced));
            let bytes = built(&head, &options, &payload);
            prop_assert_eq!(head.encoded_len(&options) % 2, 0);
            let packet = Compressed::decode(&bytes, pseudo()).unwrap();
            prop_assert_eq!(packet.head, head);
            prop_assert_eq!(packet.payload, &payload[..]);
            let read: Vec<_> = packet.options.map(Result::unwrap).collect();
            prop_assert_eq!(read, options);
            prop_assert!(!packet.to_string().is_empty());
        }

        #[test]
        fn arbitrary_input_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Compressed::decode(&bytes, pseudo());
        }
    }
}
