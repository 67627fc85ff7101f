//! TCPCL, version 4 (RFC 9174): bundles over TCP.
//!
//! Both sides send a [`ContactHeader`] and then messages. Here a message is everything but the data of a
//! segment, which may be as long as a disk: [`Message::decode`] reads its header, which tells how many bytes of data
//! follow.
//!
//! | type | message | fields |
//! |---|---|---|
//! | 1 | XFER_SEGMENT | flags u8, transfer id u64, if it begins a transfer the bytes of its extension items u32 and these, bytes of data u64, the data |
//! | 2 | XFER_ACK | flags u8, transfer id u64, bytes acknowledged u64 |
//! | 3 | XFER_REFUSE | reason u8, transfer id u64 |
//! | 4 | KEEPALIVE | |
//! | 5 | SESS_TERM | flags u8, reason u8 |
//! | 6 | MSG_REJECT | reason u8, first byte of the message u8 |
//! | 7 | SESS_INIT | keepalive interval u16, segment MRU u64, transfer MRU u64, bytes of the node ID u16 and these, bytes of extension items u32 and these |

mod display;
mod extension;
#[cfg(test)]
mod tests;

pub use self::extension::{Extension, Extensions, TRANSFER_LENGTH};
pub use crate::tcpcl::{MAGIC, PORT};

use crate::codes::codes;
use crate::cursor::{Reader, Writer};
use crate::{DecodeError, DecodeErrorKind, EncodeError, tcpcl};

/// The version in the contact header.
pub const VERSION: u8 = 4;
/// Bytes of a contact header.
pub const CONTACT_LEN: usize = 6;

/// What a decoder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a node ID.
    pub node_id_max: usize,
    /// Bytes of all extension items of a message.
    pub extensions_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { node_id_max: crate::eid::LEN_MAX, extensions_max: 4096 }
    }
}

/// What each side begins with (§4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContactHeader {
    /// It can use TLS. Other flags have no meaning and are not kept.
    pub can_tls: bool,
}

impl ContactHeader {
    /// Reads a contact header from the beginning of a stream; `None` if more of it is needed.
    ///
    /// # Errors
    /// The bytes do not begin a contact header, or one of another version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        match tcpcl::version(bytes)? {
            None => return Ok(None),
            Some(VERSION) => {}
            Some(other) => {
                let kind = DecodeErrorKind::Version(other);
                return Err(DecodeError { offset: MAGIC.len(), kind });
            }
        }
        Ok(bytes.get(MAGIC.len() + 1).map(|flags| Self { can_tls: flags & 1 != 0 }))
    }

    /// Its bytes.
    #[must_use]
    pub const fn encode(self) -> [u8; CONTACT_LEN] {
        let [d, t, n, mark] = MAGIC;
        [d, t, n, mark, VERSION, self.can_tls as u8]
    }
}

/// A message without the data of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A part of a bundle (§5.2.2). So many bytes of data follow it in the stream.
    Segment(Segment<'a>),
    /// A segment arrived (§5.2.3).
    Ack {
        /// Flags of the segment.
        flags: SegmentFlags,
        /// The transfer.
        transfer: u64,
        /// Bytes of the transfer that have arrived.
        length: u64,
    },
    /// A transfer is not wanted (§5.2.4).
    Refuse {
        /// Why.
        reason: RefuseReason,
        /// The transfer.
        transfer: u64,
    },
    /// Somebody is there (§5.1.1).
    Keepalive,
    /// No transfer begins any more (§6.1).
    Terminate {
        /// It answers the same message of the other side.
        is_reply: bool,
        /// Why.
        reason: TermReason,
    },
    /// A message was not understood (§5.1.2).
    Reject {
        /// Why.
        reason: RejectReason,
        /// Its first byte.
        header: u8,
    },
    /// What each side asks for (§4.6).
    Init(SessionInit<'a>),
    /// A message of an unknown type. Where it ends cannot be known: it is to be rejected, and the connection closed.
    Unknown {
        /// The type.
        kind: u8,
    },
}

/// Which part of a transfer a segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentFlags {
    /// The first.
    pub start: bool,
    /// The last.
    pub end: bool,
}

/// A part of a bundle, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Which part it is.
    pub flags: SegmentFlags,
    /// The transfer.
    pub transfer: u64,
    /// Extensions of the transfer; only its first segment has some.
    pub extensions: Extensions<'a>,
    /// Bytes of data that follow.
    pub length: u64,
}

/// What one side asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInit<'a> {
    /// Seconds between signs of life; 0 for none.
    pub keepalive_s: u16,
    /// Bytes of data that a segment to this side may have.
    pub segment_mru: u64,
    /// Bytes that a bundle to this side may have.
    pub transfer_mru: u64,
    /// This side's node, as text; empty if it does not say.
    pub node_id: &'a str,
    /// Extensions of the session.
    pub extensions: Extensions<'a>,
}

codes! {
    /// Why a transfer is not wanted (§5.2.4).
    RefuseReason {
        /// 0: nothing is said.
        Unknown = 0,
        /// 1: the receiver has the whole bundle.
        Completed = 1,
        /// 2: the receiver's resources are exhausted.
        NoResources = 2,
        /// 3: it is to be sent again from its beginning.
        Retransmit = 3,
        /// 4: the bundle or the request for it is not acceptable.
        NotAcceptable = 4,
        /// 5: an extension failed.
        ExtensionFailure = 5,
        /// 6: the session is ending.
        SessionTerminating = 6,
    }
}

codes! {
    /// Why a session ends (§6.1).
    TermReason {
        /// 0: nothing is said.
        Unknown = 0,
        /// 1: nothing was to be sent for long.
        IdleTimeout = 1,
        /// 2: the versions do not fit.
        VersionMismatch = 2,
        /// 3: the node is too busy.
        Busy = 3,
        /// 4: contact headers or session parameters do not fit.
        ContactFailure = 4,
        /// 5: resources are exhausted.
        ResourceExhaustion = 5,
    }
}

codes! {
    /// Why a message was not understood (§5.1.2).
    RejectReason {
        /// 1: its type is unknown.
        TypeUnknown = 1,
        /// 2: its type is known, and not supported.
        Unsupported = 2,
        /// 3: it came where none of its type may.
        Unexpected = 3,
    }
}

const START: u8 = 0x02;
const END: u8 = 0x01;
const REPLY: u8 = 0x01;

impl SegmentFlags {
    const fn from_byte(byte: u8) -> Self {
        Self { start: byte & START != 0, end: byte & END != 0 }
    }

    const fn byte(self) -> u8 {
        (if self.start { START } else { 0 }) | (if self.end { END } else { 0 })
    }
}

impl<'a> Message<'a> {
    /// Reads a message, without the data of a segment, from the beginning of a stream: the message and its bytes. `None` if
    /// more of it are needed.
    ///
    /// # Errors
    /// A field holds what it must not, or the message exceeds a bound.
    pub fn decode(bytes: &'a [u8], bounds: &Bounds) -> Result<Option<(Self, usize)>, DecodeError> {
        // The longest message is a SESS_INIT.
        let max = 25 + bounds.node_id_max.saturating_add(bounds.extensions_max);
        tcpcl::or_more(Self::read(bytes, bounds), max)
    }

    fn read(bytes: &'a [u8], bounds: &Bounds) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            1 => Self::Segment(Segment::read(&mut reader, bounds)?),
            2 => Self::Ack {
                flags: SegmentFlags::from_byte(reader.u8()?),
                transfer: reader.uint(8)?,
                length: reader.uint(8)?,
            },
            3 => Self::Refuse {
                reason: RefuseReason::from_code(reader.u8()?),
                transfer: reader.uint(8)?,
            },
            4 => Self::Keepalive,
            5 => Self::Terminate {
                is_reply: reader.u8()? & REPLY != 0,
                reason: TermReason::from_code(reader.u8()?),
            },
            6 => {
                Self::Reject { reason: RejectReason::from_code(reader.u8()?), header: reader.u8()? }
            }
            7 => Self::Init(SessionInit::read(&mut reader, bounds)?),
            kind => Self::Unknown { kind },
        };
        Ok((message, reader.offset()))
    }

    /// The bytes of the message, without the data of a segment.
    ///
    /// # Errors
    /// A field does not fit, or extensions stand behind a segment that is not the first.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        let mut writer = Writer::new(&mut out);
        self.write(&mut writer)?;
        Ok(out)
    }

    /// Bytes on the wire, without the data of a segment.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Segment(segment) => {
                let extensions = segment.extensions.encoded_len();
                18 + if segment.flags.start { 4 + extensions } else { 0 }
            }
            Self::Ack { .. } => 18,
            Self::Refuse { .. } => 10,
            Self::Keepalive | Self::Unknown { .. } => 1,
            Self::Terminate { .. } | Self::Reject { .. } => 3,
            Self::Init(init) => 25 + init.node_id.len() + init.extensions.encoded_len(),
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match *self {
            Self::Segment(segment) => {
                writer.u8(1)?;
                segment.write(writer)
            }
            Self::Ack { flags, transfer, length } => {
                writer.put(&[2, flags.byte()])?;
                writer.uint(transfer, 8, "the transfer ID")?;
                writer.uint(length, 8, "the acknowledged length")
            }
            Self::Refuse { reason, transfer } => {
                writer.put(&[3, reason.code()])?;
                writer.uint(transfer, 8, "the transfer ID")
            }
            Self::Keepalive => writer.u8(4),
            Self::Terminate { is_reply, reason } => {
                writer.put(&[5, u8::from(is_reply), reason.code()])
            }
            Self::Reject { reason, header } => writer.put(&[6, reason.code(), header]),
            Self::Init(init) => {
                writer.u8(7)?;
                init.write(writer)
            }
            Self::Unknown { kind } => writer.u8(kind),
        }
    }
}

impl<'a> Segment<'a> {
    fn read(reader: &mut Reader<'a>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let flags = SegmentFlags::from_byte(reader.u8()?);
        let transfer = reader.uint(8)?;
        let extensions = if flags.start {
            Extensions::read(reader, bounds.extensions_max)?
        } else {
            Extensions::NONE
        };
        Ok(Self { flags, transfer, extensions, length: reader.uint(8)? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(self.flags.byte())?;
        writer.uint(self.transfer, 8, "the transfer ID")?;
        if self.flags.start {
            self.extensions.write(writer)?;
        } else if !self.extensions.is_empty() {
            return Err(EncodeError::Conflict("only a transfer's first segment has extensions"));
        }
        writer.uint(self.length, 8, "the data length")
    }
}

impl<'a> SessionInit<'a> {
    fn read(reader: &mut Reader<'a>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let keepalive_s = reader.u16()?;
        let segment_mru = reader.uint(8)?;
        let transfer_mru = reader.uint(8)?;
        let at = reader.offset();
        let len = usize::from(reader.u16()?);
        if len > bounds.node_id_max {
            return Err(DecodeError::invalid(at, "a node ID is longer than the bound"));
        }
        let Ok(node_id) = str::from_utf8(reader.take(len)?) else {
            return Err(DecodeError::invalid(at + 2, "a node ID is not UTF-8"));
        };
        let extensions = Extensions::read(reader, bounds.extensions_max)?;
        Ok(Self { keepalive_s, segment_mru, transfer_mru, node_id, extensions })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.uint(u64::from(self.keepalive_s), 2, "the keepalive interval")?;
        writer.uint(self.segment_mru, 8, "the segment MRU")?;
        writer.uint(self.transfer_mru, 8, "the transfer MRU")?;
        writer.uint(self.node_id.len() as u64, 2, "the node ID's length")?;
        writer.put(self.node_id.as_bytes())?;
        self.extensions.write(writer)
    }
}
