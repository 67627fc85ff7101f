//! NACK-Oriented Reliable Multicast (RFC 5740; 5052, 5445 and 5510 for its codes): messages.
//!
//! A sender transmits objects as blocks of symbols, source and parity, to any number of receivers,
//! which request missing symbols.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version 4 bits, 1; type 4 bits |
//! | 1 | length of the header, with its extensions, in words of 4 bytes |
//! | 2 | sequence |
//! | 4 | node that sent the message |
//! | … | content of the type |
//! | … | header extensions |
//! | … | payload |

mod command;
mod display;
mod extension;
mod fec;
mod feedback;
mod list;
mod quantise;
mod request;
mod stream;
#[cfg(test)]
mod tests;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, DecodeErrorKind, EncodeError};

pub use self::command::Command;
pub(crate) use self::extension::find_extension;
use self::extension::read_extensions;
pub use self::extension::{EXT_CC, EXT_FTI, EXT_RATE, Extension, Extensions};
pub use self::fec::{
    FIELD_BITS_ASSUMED, FIELD_BITS_DEFAULT, Fti, OBJECT_SIZE_MAX, PayloadId, Position, Scheme,
};
pub use self::feedback::{Ack, CcFeedback, CcFlags, Nack, SendTime};
pub use self::list::{CcNode, CcNodes, NodeList, ObjectList};
pub use self::quantise::{
    RTT_MAX, RTT_MIN, group_size, loss, quantise_group_size, quantise_loss, quantise_rate,
    quantise_rtt, rate, rtt,
};
pub use self::request::{Form, Request, RequestFlags, RequestWriter, Requests};
pub use self::stream::{STREAM_HEADER_LEN, StreamHeader};

/// Version of RFC 5740.
pub const VERSION: u8 = 1;

const INFO: u8 = 1;
const DATA: u8 = 2;
const CMD: u8 = 3;
const NACK: u8 = 4;
const ACK: u8 = 5;
const REPORT: u8 = 6;

/// Length of the common header, in bytes.
const COMMON_LEN: usize = 8;
/// Length of the header of INFO without extensions, and of DATA without its payload ID.
const OBJECT_LEN: usize = 16;

/// Declares a set of flags in one byte, each with a name. Unknown flags are kept.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $flag:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u8);

        impl $name {
            /// No flags.
            pub const NONE: Self = Self(0);
            $($(#[$item])* pub const $flag: Self = Self($value);)*
        }

        wire::flags!($name);

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut unnamed = self.0;
                let mut gap = "";
                $(if self.contains(Self::$flag) {
                    unnamed &= !Self::$flag.0;
                    write!(f, "{gap}{}", $text)?;
                    gap = " ";
                })*
                if unnamed > 0 {
                    write!(f, "{gap}flags {unnamed:#04x}")?;
                }
                Ok(())
            }
        }
    };
}
use flags;

/// A participant of a session, NormNodeId.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Wildcard for no node.
    pub const NONE: Self = Self(0);
    /// Wildcard for any node.
    pub const ANY: Self = Self(u32::MAX);
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Sequence number: of a sender's messages, or of a receiver's messages to one address.
    pub sequence: u16,
    /// Node that sent the message.
    pub source: NodeId,
    /// Content.
    pub body: Body<'a>,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Type 1: application information about an object.
    Info(Info<'a>),
    /// Type 2: a symbol.
    Data(Data<'a>),
    /// Type 3: a sender's command.
    Command(Command<'a>),
    /// Type 4: a receiver's request for repair.
    Nack(Nack<'a>),
    /// Type 5: a receiver's acknowledgement.
    Ack(Ack<'a>),
    /// Type 6: an experimental message.
    Report(Report<'a>),
}

/// State of a sender, included in all its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// `instance_id`: changes when the sender restarts.
    pub instance: u16,
    /// Round-trip time of the group, quantised ([`rtt`]).
    pub grtt: u8,
    /// Back-off factor K, 0 to 15.
    pub backoff: u8,
    /// Size of the group, quantised in four bits ([`group_size`]).
    pub group_size: u8,
}

flags! {
    /// Properties of an object, included in messages with content.
    Flags {
        /// The message is a repair.
        REPAIR = 0x01, "REPAIR";
        /// The repair is the requested symbol, not fresh parity.
        EXPLICIT = 0x02, "EXPLICIT";
        /// The object has NORM_INFO.
        INFO = 0x04, "INFO";
        /// The object is not repaired.
        UNRELIABLE = 0x08, "UNRELIABLE";
        /// The object is a file.
        FILE = 0x10, "FILE";
        /// The object is a stream.
        STREAM = 0x20, "STREAM";
        /// The sender probes for receivers. Defined by the reference implementation, not by RFC
        /// 5740.
        SYN = 0x40, "SYN";
    }
}

/// Application information about an object (§4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// State of the sender.
    pub sender: Sender,
    /// Properties of the object.
    pub flags: Flags,
    /// FEC scheme of the object.
    pub fec: Scheme,
    /// Object.
    pub object: u16,
    /// FEC object transmission information.
    pub fti: Option<Fti>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// Application information.
    pub payload: &'a [u8],
}

/// A symbol of an object (§4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// State of the sender.
    pub sender: Sender,
    /// Properties of the object.
    pub flags: Flags,
    /// FEC scheme of the object.
    pub fec: Scheme,
    /// Object.
    pub object: u16,
    /// Identifier of the symbol.
    pub id: PayloadId,
    /// FEC object transmission information.
    pub fti: Option<Fti>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// Symbol; a source symbol of a stream starts with a [`StreamHeader`]. To write it in place,
    /// encode the message with an empty payload: nothing before it depends on it.
    pub payload: &'a [u8],
}

/// A message without a defined form (§4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Rest of the header, a multiple of 4 bytes.
    pub header: &'a [u8],
    /// Bytes behind the header.
    pub payload: &'a [u8],
}

/// The two parts of a message behind the common header.
#[derive(Clone, Copy)]
struct Area<'a> {
    header: Reader<'a>,
    payload: Reader<'a>,
}

impl<'a> Message<'a> {
    /// Decodes a message that is all of `bytes`. m of scheme 2 comes from the message's EXT_FTI,
    /// and is [`FIELD_BITS_ASSUMED`] without one.
    ///
    /// # Errors
    /// The bytes are not a message of version 1.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode_with(bytes, FIELD_BITS_ASSUMED)
    }

    /// Decodes a message that is all of `bytes`. m of scheme 2 is `field_bits` unless the message
    /// has an EXT_FTI.
    ///
    /// # Errors
    /// The bytes are not a message of version 1.
    pub fn decode_with(bytes: &'a [u8], field_bits: u8) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        if first >> 4 != VERSION {
            let kind = DecodeErrorKind::Version(first >> 4);
            return Err(DecodeError { offset: 0, kind });
        }
        let words = usize::from(reader.u8()?);
        let sequence = reader.u16()?;
        let source = NodeId(reader.u32()?);
        let Some(rest) = (4 * words).checked_sub(COMMON_LEN) else {
            return Err(DecodeError::invalid(1, "the header is shorter than the common header"));
        };
        let area = Area { header: reader.part(rest)?, payload: reader };
        let body = Body::read(first & 0x0f, area, field_bits)?;
        Ok(Self { sequence, source, body })
    }

    /// Length on the wire, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.body.header_len() + self.body.payload_len()
    }

    /// Writes the message to the start of `out` and returns its length; m of scheme 2 as in
    /// [`Message::decode`].
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        self.encode_with(out, FIELD_BITS_ASSUMED)
    }

    /// Writes the message to the start of `out` and returns its length; m of scheme 2 as in
    /// [`Message::decode_with`].
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded.
    pub fn encode_with(&self, out: &mut [u8], field_bits: u8) -> Result<usize, EncodeError> {
        let header = self.body.header_len();
        if !header.is_multiple_of(4) {
            return Err(EncodeError::Conflict("a header is not made of whole words"));
        }
        let Ok(words) = u8::try_from(header / 4) else {
            return Err(EncodeError::TooLarge { field: "hdr_len" });
        };
        let mut writer = Writer::new(out);
        writer.put(&[VERSION << 4 | self.body.code(), words])?;
        writer.put(&self.sequence.to_be_bytes())?;
        writer.put(&self.source.0.to_be_bytes())?;
        self.body.write(&mut writer, field_bits)?;
        Ok(writer.position())
    }

    /// Encodes the message into a vector; m of scheme 2 as in [`Message::decode`].
    ///
    /// # Errors
    /// A field cannot be encoded.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        let len = self.encode(&mut out)?;
        out.truncate(len);
        Ok(out)
    }
}

impl<'a> Body<'a> {
    /// Returns the state of the sender, if it is a sender's message.
    #[must_use]
    pub const fn sender(&self) -> Option<Sender> {
        match self {
            Self::Info(info) => Some(info.sender),
            Self::Data(data) => Some(data.sender),
            Self::Command(command) => Some(command.sender()),
            Self::Nack(_) | Self::Ack(_) | Self::Report(_) => None,
        }
    }

    #[inline]
    fn read(code: u8, area: Area<'a>, field_bits: u8) -> Result<Self, DecodeError> {
        let Area { header, mut payload } = area;
        match code {
            INFO => Ok(Self::Info(Info::read(header, payload.rest())?)),
            DATA => Ok(Self::Data(Data::read(header, payload.rest(), field_bits)?)),
            CMD => Ok(Self::Command(Command::read(Area { header, payload }, field_bits)?)),
            NACK => Ok(Self::Nack(Nack::read(Area { header, payload }, field_bits)?)),
            ACK => Ok(Self::Ack(Ack::read(Area { header, payload })?)),
            REPORT => {
                let header = header.left();
                Ok(Self::Report(Report { header, payload: payload.rest() }))
            }
            _ => Err(DecodeError::invalid(0, "the message type is undefined")),
        }
    }

    const fn code(&self) -> u8 {
        match self {
            Self::Info(_) => INFO,
            Self::Data(_) => DATA,
            Self::Command(_) => CMD,
            Self::Nack(_) => NACK,
            Self::Ack(_) => ACK,
            Self::Report(_) => REPORT,
        }
    }

    /// Length of the header in bytes, with the common part and extensions.
    #[inline]
    fn header_len(&self) -> usize {
        match self {
            Self::Info(info) => {
                OBJECT_LEN + fti_len(info.fec, info.fti) + info.others.encoded_len()
            }
            Self::Data(data) => {
                OBJECT_LEN
                    + data.fec.payload_id_len().unwrap_or(0)
                    + fti_len(data.fec, data.fti)
                    + data.others.encoded_len()
            }
            Self::Command(command) => command.header_len(),
            Self::Nack(nack) => nack.header_len(),
            Self::Ack(ack) => ack.header_len(),
            Self::Report(report) => COMMON_LEN + report.header.len(),
        }
    }

    fn payload_len(&self) -> usize {
        match self {
            Self::Info(info) => info.payload.len(),
            Self::Data(data) => data.payload.len(),
            Self::Command(command) => command.payload_len(),
            Self::Nack(nack) => nack.requests.bytes().len(),
            Self::Ack(ack) => ack.payload.len(),
            Self::Report(report) => report.payload.len(),
        }
    }

    #[inline]
    fn write(&self, writer: &mut Writer<'_>, field_bits: u8) -> Result<(), EncodeError> {
        match self {
            Self::Info(info) => info.write(writer),
            Self::Data(data) => data.write(writer, field_bits),
            Self::Command(command) => command.write(writer, field_bits),
            Self::Nack(nack) => nack.write(writer),
            Self::Ack(ack) => ack.write(writer),
            Self::Report(report) => {
                writer.put(report.header)?;
                writer.put(report.payload)
            }
        }
    }
}

impl Sender {
    #[inline]
    fn read(header: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let instance = header.u16()?;
        let grtt = header.u8()?;
        let both = header.u8()?;
        Ok(Self { instance, grtt, backoff: both >> 4, group_size: both & 0x0f })
    }

    #[inline]
    fn write(self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.backoff > 0x0f {
            return Err(EncodeError::TooLarge { field: "backoff" });
        }
        if self.group_size > 0x0f {
            return Err(EncodeError::TooLarge { field: "gsize" });
        }
        let [high, low] = self.instance.to_be_bytes();
        writer.put(&[high, low, self.grtt, self.backoff << 4 | self.group_size])
    }
}

impl<'a> Info<'a> {
    fn read(mut header: Reader<'a>, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let sender = Sender::read(&mut header)?;
        let flags = Flags(header.u8()?);
        let fec = Scheme::from_code(header.u8()?);
        let object = header.u16()?;
        let (fti, others) = read_fti(header, fec)?;
        Ok(Self { sender, flags, fec, object, fti, others, payload })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.sender.write(writer)?;
        writer.put(&[self.flags.0, self.fec.code()])?;
        writer.put(&self.object.to_be_bytes())?;
        if let Some(fti) = &self.fti {
            fti.write(writer, self.fec)?;
        }
        self.others.write(writer)?;
        writer.put(self.payload)
    }
}

impl<'a> Data<'a> {
    #[inline]
    fn read(
        mut header: Reader<'a>,
        payload: &'a [u8],
        field_bits: u8,
    ) -> Result<Self, DecodeError> {
        let sender = Sender::read(&mut header)?;
        let flags = Flags(header.u8()?);
        let at = header.offset();
        let fec = Scheme::from_code(header.u8()?);
        let object = header.u16()?;
        let Some(len) = fec.payload_id_len() else {
            return Err(DecodeError::invalid(at, "the FEC scheme is not known"));
        };
        // The extension behind the ID gives the layout of the ID.
        let mut id = header.part(len)?;
        let (fti, others) = read_fti(header, fec)?;
        let field_bits = fti.map_or(field_bits, |fti| fti.effective_field_bits());
        let id = PayloadId::read(&mut id, fec, field_bits)?;
        Ok(Self { sender, flags, fec, object, id, fti, others, payload })
    }

    #[inline]
    fn write(&self, writer: &mut Writer<'_>, field_bits: u8) -> Result<(), EncodeError> {
        self.sender.write(writer)?;
        writer.put(&[self.flags.0, self.fec.code()])?;
        writer.put(&self.object.to_be_bytes())?;
        let field_bits = self.fti.map_or(field_bits, |fti| fti.effective_field_bits());
        self.id.write(writer, self.fec, field_bits)?;
        if let Some(fti) = &self.fti {
            fti.write(writer, self.fec)?;
        }
        self.others.write(writer)?;
        writer.put(self.payload)
    }
}

/// Reads the extensions of INFO and DATA. For an unknown scheme, EXT_FTI stays among the others.
#[inline]
fn read_fti(header: Reader<'_>, fec: Scheme) -> Result<(Option<Fti>, Extensions<'_>), DecodeError> {
    let known = fec.fti_len().map(|_| EXT_FTI);
    let (content, others) = read_extensions(header, known)?;
    let fti = content.map(|content| Fti::read(content, fec)).transpose()?;
    Ok((fti, others))
}

fn fti_len(fec: Scheme, fti: Option<Fti>) -> usize {
    fti.and(fec.fti_len()).unwrap_or(0)
}
