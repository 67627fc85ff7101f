//! TCPCL, version 4 (RFC 9174): bundles over TCP.
//!
//! Both sides send a [`ContactHeader`] and then messages. A [`Message`] excludes the data of a
//! segment, which may be as long as a disk: [`Message::decode`] decodes its header, which holds
//! the length of the data.
//!
//! | type | message | fields |
//! |---|---|---|
//! | 1 | XFER_SEGMENT | flags u8, transfer id u64; in the first segment: length u32 of its |
//! | | | extension items, the items; length of the data u64, the data |
//! | 2 | XFER_ACK | flags u8, transfer id u64, bytes acknowledged u64 |
//! | 3 | XFER_REFUSE | reason u8, transfer id u64 |
//! | 4 | KEEPALIVE | |
//! | 5 | SESS_TERM | flags u8, reason u8 |
//! | 6 | MSG_REJECT | reason u8, first byte of the message u8 |
//! | 7 | SESS_INIT | keepalive interval u16, segment MRU u64, transfer MRU u64, length u16 |
//! | | | of the node ID, the node ID, length u32 of extension items, the items |

mod display;
mod extension;
#[cfg(test)]
mod tests;

use wire::cursor::Reader;
use wire::named_codes;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

pub use self::extension::{Extension, Extensions, TRANSFER_LENGTH, transfer_length};
use self::extension::{read_extensions, write_extensions};
pub use crate::codec::tcpcl::{MAGIC, PORT};

use crate::codec::bundle::or_more;
use crate::codec::tcpcl;

/// Version in the contact header.
pub const VERSION: u8 = 4;
/// Length of a contact header, in bytes.
pub const CONTACT_LEN: usize = 6;

/// Limits of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes of a node ID.
    pub node_id_max: usize,
    /// Maximum bytes of all extension items of a message.
    pub extensions_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { node_id_max: crate::codec::eid::LEN_MAX, extensions_max: 4096 }
    }
}

/// First bytes of each side (§4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContactHeader {
    /// Whether it supports TLS. Unknown flags are dropped.
    pub can_tls: bool,
}

impl ContactHeader {
    /// Decodes a contact header from the start of a stream; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes do not start a contact header, or it has another version.
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

    /// Encodes the header.
    #[must_use]
    pub const fn encode(self) -> [u8; CONTACT_LEN] {
        let [d, t, n, mark] = MAGIC;
        [d, t, n, mark, VERSION, self.can_tls as u8]
    }
}

/// Message without the data of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Part of a bundle (§5.2.2). Its data follow in the stream.
    Segment(Segment<'a>),
    /// Acknowledgement of a segment (§5.2.3).
    Ack {
        /// Flags of the segment.
        flags: SegmentFlags,
        /// Transfer ID.
        transfer: u64,
        /// Received bytes of the transfer.
        length: u64,
    },
    /// Refusal of a transfer (§5.2.4).
    Refuse {
        /// Reason.
        reason: RefuseReason,
        /// Transfer ID.
        transfer: u64,
    },
    /// Keepalive (§5.1.1).
    Keepalive,
    /// End of the session: no new transfers start (§6.1).
    Terminate {
        /// Whether it replies to the peer's SESS_TERM.
        is_reply: bool,
        /// Reason.
        reason: TermReason,
    },
    /// Rejection of a message (§5.1.2).
    Reject {
        /// Reason.
        reason: RejectReason,
        /// First byte of the message.
        header: u8,
    },
    /// Session parameters (§4.6).
    Init(SessionInit<'a>),
    /// Message of unknown type. Its end is unknown: reject it and close the connection.
    Unknown {
        /// Type.
        kind: u8,
    },
}

/// Position of a segment in its transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentFlags {
    /// Whether the segment is the first.
    pub start: bool,
    /// Whether the segment is the last.
    pub end: bool,
}

/// Part of a bundle, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Position in the transfer.
    pub flags: SegmentFlags,
    /// Transfer ID.
    pub transfer: u64,
    /// Extensions of the transfer; only in its first segment.
    pub extensions: Extensions<'a>,
    /// Length of the data that follow, in bytes.
    pub length: u64,
}

/// Session parameters of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInit<'a> {
    /// Keepalive interval in seconds; 0 for none.
    pub keepalive_s: u16,
    /// Maximum bytes of data in a segment to this side.
    pub segment_mru: u64,
    /// Maximum bytes of a bundle to this side.
    pub transfer_mru: u64,
    /// Node ID of this side, as text; may be empty.
    pub node_id: &'a str,
    /// Extensions of the session.
    pub extensions: Extensions<'a>,
}

named_codes! {
    /// Reason for refusing a transfer (§5.2.4).
    RefuseReason(u8, "reason {}") {
        /// 0: no reason given.
        Unknown = 0, "no reason";
        /// 1: the receiver has the whole bundle.
        Completed = 1, "the receiver has the bundle";
        /// 2: the receiver's resources are exhausted.
        NoResources = 2, "the receiver has no resources";
        /// 3: retransmit the bundle from its start.
        Retransmit = 3, "to be sent again from its beginning";
        /// 4: the bundle or the request for it is not acceptable.
        NotAcceptable = 4, "not acceptable";
        /// 5: an extension failed.
        ExtensionFailure = 5, "an extension failed";
        /// 6: the session is ending.
        SessionTerminating = 6, "the session is ending";
    }
}

named_codes! {
    /// Reason for ending a session (§6.1).
    TermReason(u8, "reason {}") {
        /// 0: no reason given.
        Unknown = 0, "no reason";
        /// 1: the session was idle.
        IdleTimeout = 1, "idle";
        /// 2: the versions do not match.
        VersionMismatch = 2, "the versions do not fit";
        /// 3: the node is too busy.
        Busy = 3, "busy";
        /// 4: contact headers or session parameters are incompatible.
        ContactFailure = 4, "contact failure";
        /// 5: resources are exhausted.
        ResourceExhaustion = 5, "resources are exhausted";
    }
}

named_codes! {
    /// Reason for rejecting a message (§5.1.2).
    RejectReason(u8, "reason {}") {
        /// 1: its type is unknown.
        TypeUnknown = 1, "its type is unknown";
        /// 2: its type is known but not supported.
        Unsupported = 2, "not supported";
        /// 3: its type is not allowed at this point.
        Unexpected = 3, "not expected";
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
    /// Decodes a message, without the data of a segment, from the start of a stream, and returns
    /// its length. `None` if more bytes are needed.
    ///
    /// # Errors
    /// A field has an invalid value, or the message exceeds a bound.
    pub fn decode(bytes: &'a [u8], bounds: &Bounds) -> Result<Option<(Self, usize)>, DecodeError> {
        // The longest message is a SESS_INIT.
        let max = 25 + bounds.node_id_max.saturating_add(bounds.extensions_max);
        or_more(Self::read(bytes, bounds), max, tcpcl::TOO_LONG)
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

    /// Encodes the message, without the data of a segment.
    ///
    /// # Errors
    /// A field does not fit, or a segment other than the first has extensions.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        // The length of acknowledgments and of segments without extensions: `Bytes` takes a full
        // vector as it is.
        let is_first = matches!(self, Self::Segment(segment) if segment.flags.start);
        let mut out = Vec::with_capacity(if is_first { 22 } else { 18 });
        match *self {
            Self::Segment(segment) => segment.write(&mut out)?,
            Self::Ack { flags, transfer, length } => {
                out.extend([2, flags.byte()]);
                put(&mut out, [transfer, length]);
            }
            Self::Refuse { reason, transfer } => {
                out.extend([3, reason.code()]);
                put(&mut out, [transfer]);
            }
            Self::Keepalive => out.push(4),
            Self::Terminate { is_reply, reason } => {
                out.extend([5, u8::from(is_reply), reason.code()]);
            }
            Self::Reject { reason, header } => out.extend([6, reason.code(), header]),
            Self::Init(init) => init.write(&mut out)?,
            Self::Unknown { kind } => out.push(kind),
        }
        Ok(out)
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
}

/// Length of a field with its length in two bytes.
fn short_len(bytes: &[u8], field: &'static str) -> Result<[u8; 2], EncodeError> {
    let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge { field })?;
    Ok(len.to_be_bytes())
}

impl<'a> Segment<'a> {
    fn read(reader: &mut Reader<'a>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let flags = SegmentFlags::from_byte(reader.u8()?);
        let transfer = reader.uint(8)?;
        let extensions = if flags.start {
            read_extensions(reader, bounds.extensions_max)?
        } else {
            Extensions::NONE
        };
        Ok(Self { flags, transfer, extensions, length: reader.uint(8)? })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend([1, self.flags.byte()]);
        put(out, [self.transfer]);
        if self.flags.start {
            write_extensions(&self.extensions, out)?;
        } else if !self.extensions.is_empty() {
            return Err(EncodeError::Conflict("only a transfer's first segment has extensions"));
        }
        put(out, [self.length]);
        Ok(())
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
        let extensions = read_extensions(reader, bounds.extensions_max)?;
        Ok(Self { keepalive_s, segment_mru, transfer_mru, node_id, extensions })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(7);
        out.extend(self.keepalive_s.to_be_bytes());
        put(out, [self.segment_mru, self.transfer_mru]);
        out.extend(short_len(self.node_id.as_bytes(), "the node ID's length")?);
        out.extend_from_slice(self.node_id.as_bytes());
        write_extensions(&self.extensions, out)
    }
}
