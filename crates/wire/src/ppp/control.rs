//! Packets of LCP and of the network control protocols (RFC 1661 §5 and §6, RFC 1332).
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 1 | code | [`Code`] |
//! | 1 | identifier: matches replies to requests | [`Packet::id`] |
//! | 2 | length of the whole packet | computed, verified |
//! | – | data; of Configure packets options: type, length, value | [`Packet::options`] |

use std::fmt;
use std::net::Ipv4Addr;

use crate::cursor::{Reader, Writer};
use crate::vj::Slots;
use crate::{DecodeError, DecodeErrorKind, EncodeError};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 4;

/// Code of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// 1: requests these options.
    ConfigureRequest,
    /// 2: accepts all options.
    ConfigureAck,
    /// 3: suggests other values for known options.
    ConfigureNak,
    /// 4: rejects unknown options.
    ConfigureReject,
    /// 5: requests to close.
    TerminateRequest,
    /// 6: confirms the close.
    TerminateAck,
    /// 7: reports an unknown code.
    CodeReject,
    /// 8: reports an unknown protocol. LCP only.
    ProtocolReject,
    /// 9: requests an Echo-Reply. LCP only.
    EchoRequest,
    /// 10: responds to an Echo-Request. LCP only.
    EchoReply,
    /// 11: is dropped by the receiver. LCP only.
    DiscardRequest,
    /// Any other code.
    Other(u8),
}

impl From<u8> for Code {
    fn from(code: u8) -> Self {
        match code {
            1 => Self::ConfigureRequest,
            2 => Self::ConfigureAck,
            3 => Self::ConfigureNak,
            4 => Self::ConfigureReject,
            5 => Self::TerminateRequest,
            6 => Self::TerminateAck,
            7 => Self::CodeReject,
            8 => Self::ProtocolReject,
            9 => Self::EchoRequest,
            10 => Self::EchoReply,
            11 => Self::DiscardRequest,
            other => Self::Other(other),
        }
    }
}

impl From<Code> for u8 {
    fn from(code: Code) -> Self {
        match code {
            Code::ConfigureRequest => 1,
            Code::ConfigureAck => 2,
            Code::ConfigureNak => 3,
            Code::ConfigureReject => 4,
            Code::TerminateRequest => 5,
            Code::TerminateAck => 6,
            Code::CodeReject => 7,
            Code::ProtocolReject => 8,
            Code::EchoRequest => 9,
            Code::EchoReply => 10,
            Code::DiscardRequest => 11,
            Code::Other(other) => other,
        }
    }
}

/// A packet of LCP or IPCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Code.
    pub code: Code,
    /// Identifier, which matches replies to requests.
    pub id: u8,
    /// Bytes behind the header.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Decodes a packet; bytes beyond its length are padding.
    ///
    /// # Errors
    /// When the packet is truncated, or its length is below the header's.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (code, id) = (Code::from(reader.u8()?), reader.u8()?);
        let len = usize::from(reader.u16()?);
        let data = len.checked_sub(HEADER_LEN);
        let data = data.ok_or(DecodeError::invalid(2, "the length is below the header's"))?;
        Ok(Self { code, id, data: reader.take(data)? })
    }

    /// Writes the packet and returns its length.
    ///
    /// # Errors
    /// When the packet is too long for its length field, or for `out`.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let len = HEADER_LEN + self.data.len();
        let mut writer = Writer::new(out);
        writer.u8(self.code.into())?;
        writer.u8(self.id)?;
        writer.uint(len as u64, 2, "the length of a control packet")?;
        writer.put(self.data)?;
        Ok(len)
    }

    /// Returns the options of a Configure packet.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        Options { reader: Reader::with_base(HEADER_LEN, self.data) }
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} id {} length {}", self.code, self.id, HEADER_LEN + self.data.len())
    }
}

/// Iterator over options.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let option = RawOption::read(&mut self.reader);
        if option.is_err() {
            // The start of the next option is unknown.
            self.reader = Reader::with_base(self.reader.offset(), &[]);
        }
        Some(option)
    }
}

/// Option, whose meaning depends on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Type.
    pub kind: u8,
    /// Value.
    pub value: &'a [u8],
}

impl<'a> RawOption<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = reader.u8()?;
        let at = reader.offset();
        let len = usize::from(reader.u8()?).checked_sub(2);
        let len = len.ok_or(DecodeError::invalid(at, "the length of an option is below 2"))?;
        Ok(Self { kind, value: reader.take(len)? })
    }

    fn fixed<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        let (needed, found) = (N, self.value.len());
        let kind = DecodeErrorKind::Truncated { needed, found };
        let wrong = if found > N { DecodeErrorKind::Trailing { count: found - N } } else { kind };
        self.value.try_into().map_err(|_| DecodeError { offset: 0, kind: wrong })
    }
}

/// Appends an option.
fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let len = u8::try_from(2 + value.len()).expect("a value has at most 253 bytes");
    out.extend([kind, len]);
    out.extend_from_slice(value);
}

/// Option of LCP (RFC 1661 §6, RFC 1662 §7.1, RFC 1570 §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LcpOption<'a> {
    /// 1: maximum receive unit of the sender.
    Mru(u16),
    /// 2: control characters to be escaped in data sent to it.
    Accm(u32),
    /// 5: random number, to detect a looped-back line.
    Magic(u32),
    /// 7: protocols may be compressed to one byte.
    CompressProtocol,
    /// 8: address and control may be omitted.
    CompressAddress,
    /// 9: bit set of accepted check sequences: 1 none, 2 for 16 bits, 4 for 32 bits.
    FcsAlternatives(u8),
    /// Any other, for instance authentication (3) and quality (4).
    Other(RawOption<'a>),
}

impl<'a> LcpOption<'a> {
    /// Decodes an option of LCP.
    ///
    /// # Errors
    /// When the option's value has a wrong length; the offset is within the value.
    pub fn decode(option: RawOption<'a>) -> Result<Self, DecodeError> {
        match option.kind {
            1 => Ok(Self::Mru(u16::from_be_bytes(option.fixed()?))),
            2 => Ok(Self::Accm(u32::from_be_bytes(option.fixed()?))),
            5 => Ok(Self::Magic(u32::from_be_bytes(option.fixed()?))),
            7 => option.fixed::<0>().map(|_| Self::CompressProtocol),
            8 => option.fixed::<0>().map(|_| Self::CompressAddress),
            9 => option.fixed::<1>().map(|[bits]| Self::FcsAlternatives(bits)),
            _ => Ok(Self::Other(option)),
        }
    }

    /// Appends the option.
    ///
    /// # Panics
    /// If the value of another option is longer than 253 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mru(mru) => put(out, 1, &mru.to_be_bytes()),
            Self::Accm(accm) => put(out, 2, &accm.to_be_bytes()),
            Self::Magic(magic) => put(out, 5, &magic.to_be_bytes()),
            Self::CompressProtocol => put(out, 7, &[]),
            Self::CompressAddress => put(out, 8, &[]),
            Self::FcsAlternatives(bits) => put(out, 9, &[*bits]),
            Self::Other(option) => put(out, option.kind, option.value),
        }
    }
}

/// Option of IPCP (RFC 1332 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcpOption<'a> {
    /// 2 with protocol 0x002d: the sender accepts compressed headers, with this many slots (§4).
    VjCompression(Slots),
    /// 3: address of the sender.
    Address(Ipv4Addr),
    /// Any other.
    Other(RawOption<'a>),
}

impl<'a> IpcpOption<'a> {
    /// Decodes an option of IPCP.
    ///
    /// # Errors
    /// When the option's value has a wrong length; the offset is within the value.
    pub fn decode(option: RawOption<'a>) -> Result<Self, DecodeError> {
        match (option.kind, option.value) {
            (2, [0x00, 0x2d, max, may_omit @ (0 | 1)]) => {
                Ok(Self::VjCompression(Slots { max: *max, may_omit: *may_omit == 1 }))
            }
            (3, _) => Ok(Self::Address(Ipv4Addr::from(option.fixed::<4>()?))),
            (_, _) => Ok(Self::Other(option)),
        }
    }

    /// Appends the option.
    ///
    /// # Panics
    /// If the value of another option is longer than 253 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::VjCompression(slots) => {
                put(out, 2, &[0x00, 0x2d, slots.max, u8::from(slots.may_omit)]);
            }
            Self::Address(address) => put(out, 3, &address.octets()),
            Self::Other(option) => put(out, option.kind, option.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_on_the_line_has_the_expected_bytes() {
        let mut options = Vec::new();
        let wanted = [
            LcpOption::Mru(1_500),
            LcpOption::Accm(0),
            LcpOption::Magic(0x0102_0304),
            LcpOption::CompressProtocol,
            LcpOption::CompressAddress,
            LcpOption::FcsAlternatives(4),
            LcpOption::Other(RawOption { kind: 3, value: &[0xc0, 0x23] }),
        ];
        for option in &wanted {
            option.encode(&mut options);
        }
        let packet = Packet { code: Code::ConfigureRequest, id: 7, data: &options };
        let mut out = [0xa5; 40];
        let len = packet.encode(&mut out).unwrap();
        let expected = [
            1, 7, 0, 31, 1, 4, 0x05, 0xdc, 2, 6, 0, 0, 0, 0, 5, 6, 1, 2, 3, 4, 7, 2, 8, 2, 9, 3, 4,
            3, 4, 0xc0, 0x23,
        ];
        assert_eq!(out[..len], expected);
        let back = Packet::decode(&out).unwrap();
        assert_eq!(back, packet);
        assert_eq!(back.to_string(), "ConfigureRequest id 7 length 31");
        let read: Vec<LcpOption<'_>> =
            back.options().map(|option| LcpOption::decode(option.unwrap()).unwrap()).collect();
        assert_eq!(read, wanted);
    }

    #[test]
    fn ipcp_requests_compression_with_slots() {
        let mut options = Vec::new();
        IpcpOption::VjCompression(Slots::default()).encode(&mut options);
        IpcpOption::Address(Ipv4Addr::new(10, 0, 0, 1)).encode(&mut options);
        assert_eq!(options, [2, 6, 0x00, 0x2d, 15, 1, 3, 6, 10, 0, 0, 1]);
        let packet = Packet { code: Code::ConfigureAck, id: 1, data: &options };
        let read: Vec<IpcpOption<'_>> =
            packet.options().map(|option| IpcpOption::decode(option.unwrap()).unwrap()).collect();
        let slots = IpcpOption::VjCompression(Slots { max: 15, may_omit: true });
        assert_eq!(read, [slots, IpcpOption::Address(Ipv4Addr::new(10, 0, 0, 1))]);
    }

    #[test]
    fn errors_name_the_place() {
        let error = |bytes: &[u8]| Packet::decode(bytes).unwrap_err().to_string();
        assert_eq!(error(&[1, 1, 0]), "byte 2: 2 bytes are needed and 1 are left");
        assert_eq!(error(&[1, 1, 0, 3]), "byte 2: the length is below the header's");
        assert_eq!(error(&[1, 1, 0, 6, 9]), "byte 4: 2 bytes are needed and 1 are left");
        let packet = Packet { code: Code::ConfigureRequest, id: 0, data: &[8, 2, 7, 1, 8, 2] };
        let options: Vec<String> = packet
            .options()
            .map(|option| option.map_or_else(|error| error.to_string(), |_| "read".to_owned()))
            .collect();
        assert_eq!(options, ["read", "byte 7: the length of an option is below 2"]);
        let short = RawOption { kind: 1, value: &[5] };
        let error = LcpOption::decode(short).unwrap_err().to_string();
        assert_eq!(error, "byte 0: 2 bytes are needed and 1 are left");
        let long = RawOption { kind: 7, value: &[5] };
        let error = LcpOption::decode(long).unwrap_err().to_string();
        assert_eq!(error, "byte 0: 1 bytes follow the last field");
    }

    proptest! {
        #[test]
        fn any_packet_round_trips(code: u8, id: u8, data in prop::collection::vec(any::<u8>(), 0..50)) {
            let packet = Packet { code: Code::from(code), id, data: &data };
            let mut out = vec![0xa5; HEADER_LEN + data.len()];
            prop_assert_eq!(packet.encode(&mut out), Ok(out.len()));
            prop_assert_eq!(Packet::decode(&out), Ok(packet));
            prop_assert_eq!(u8::from(packet.code), code);
            // Decoded options encode to the original bytes.
            let mut written = Vec::new();
            for option in packet.options().map_while(Result::ok) {
                if let Ok(option) = LcpOption::decode(option) { option.encode(&mut written) } else { break }
            }
            prop_assert!(data.starts_with(&written));
        }
    }
}
