//! TCPCL, version 3 (RFC 7242): bundles over TCP.
//!
//! Both sides send a [`ContactHeader`] and then messages. A [`Message`] excludes the data of a
//! segment, which may be as long as a disk: [`Message::decode`] decodes its header, which holds
//! the length of the data. The first byte of a message is its type, 4 bits, and flags:
//!
//! | byte | message | fields |
//! |---|---|---|
//! | 0x10 to 0x13 | DATA_SEGMENT, flags start 2 and end 1 | bytes of data SDNV, the data |
//! | 0x20 | ACK_SEGMENT | received bytes of the bundle SDNV |
//! | 0x30 to 0x3f | REFUSE_BUNDLE, reason in the flags | |
//! | 0x40 | KEEPALIVE | |
//! | 0x50 to 0x53 | SHUTDOWN, flags reason 2 and delay 1 | reason u8, seconds SDNV, if flagged |
//! | 0x60 | LENGTH | bytes of the bundle SDNV |

use std::fmt;

use wire::cursor::Reader;
use wire::named_codes;
use wire::sdnv;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use crate::codec::bundle::or_more;
use crate::codec::tcpcl;
pub use crate::codec::tcpcl::{MAGIC, PORT};

#[cfg(test)]
mod tests;

/// Version in the contact header.
pub const VERSION: u8 = 3;

const ACKS: u8 = 0x01;
const REACTIVE_FRAGMENTATION: u8 = 0x02;
const REFUSALS: u8 = 0x04;
const LENGTHS: u8 = 0x08;
const START: u8 = 0x02;
const END: u8 = 0x01;
const HAS_REASON: u8 = 0x02;
const HAS_DELAY: u8 = 0x01;

/// Capabilities and requests of one side (§4.1). Unknown flags are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// 0x01: acknowledgments of segments.
    pub acks: bool,
    /// 0x02: the received part of a bundle is kept as a fragment.
    pub reactive_fragmentation: bool,
    /// 0x04: refusals of bundles.
    pub refusals: bool,
    /// 0x08: LENGTH messages to this side.
    pub lengths: bool,
}

/// First bytes of each side (§4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContactHeader<'a> {
    /// Version. Versions above 3 decode as 3, to which their sender must fall back.
    pub version: u8,
    /// Capabilities and requests of this side.
    pub flags: Flags,
    /// Keepalive interval in seconds; 0 for none.
    pub keepalive_s: u16,
    /// Endpoint of this side, as text.
    pub eid: &'a str,
}

impl Flags {
    const fn from_byte(byte: u8) -> Self {
        Self {
            acks: byte & ACKS != 0,
            reactive_fragmentation: byte & REACTIVE_FRAGMENTATION != 0,
            refusals: byte & REFUSALS != 0,
            lengths: byte & LENGTHS != 0,
        }
    }

    fn byte(self) -> u8 {
        let bits = [
            (self.acks, ACKS),
            (self.reactive_fragmentation, REACTIVE_FRAGMENTATION),
            (self.refusals, REFUSALS),
            (self.lengths, LENGTHS),
        ];
        bits.iter().map(|(set, bit)| if *set { *bit } else { 0 }).sum()
    }
}

impl<'a> ContactHeader<'a> {
    /// Decodes a contact header from the start of a stream and returns its length; `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// The bytes do not start a contact header, its version is below 3, or its endpoint is longer
    /// than `eid_max` or not text.
    pub fn decode(bytes: &'a [u8], eid_max: usize) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some(version) = tcpcl::version(bytes)? else { return Ok(None) };
        if version < VERSION {
            let kind = DecodeErrorKind::Version(version);
            return Err(DecodeError { offset: MAGIC.len(), kind });
        }
        let max = eid_max.saturating_add(8 + sdnv::LEN_MAX);
        or_more(Self::read(bytes, version, eid_max), max, tcpcl::TOO_LONG)
    }

    fn read(bytes: &'a [u8], version: u8, eid_max: usize) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.take(MAGIC.len() + 1)?;
        let flags = Flags::from_byte(reader.u8()?);
        let keepalive_s = reader.u16()?;
        let at = reader.offset();
        let len = sdnv::read(&mut reader)?;
        if len > eid_max as u64 {
            return Err(DecodeError::invalid(at, "an endpoint is longer than the bound"));
        }
        let at = reader.offset();
        let Ok(eid) = str::from_utf8(reader.take(len as usize)?) else {
            return Err(DecodeError::invalid(at, "an endpoint is not UTF-8"));
        };
        Ok((Self { version, flags, keepalive_s, eid }, reader.offset()))
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([self.version, self.flags.byte()]);
        out.extend(self.keepalive_s.to_be_bytes());
        sdnv::append(&mut out, self.eid.len() as u64);
        out.extend_from_slice(self.eid.as_bytes());
        out
    }
}

/// Message without the data of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Part of a bundle (§5.2). Its data follow in the stream.
    Segment {
        /// Whether this is the first part of the bundle.
        start: bool,
        /// Whether this is the last part of the bundle.
        end: bool,
        /// Length of the data, in bytes.
        length: u64,
    },
    /// Acknowledgement of a segment (§5.3).
    Ack {
        /// Received bytes of the bundle.
        length: u64,
    },
    /// Refusal of a bundle (§5.4).
    Refuse {
        /// Reason.
        reason: RefuseReason,
    },
    /// Keepalive (§5.6).
    Keepalive,
    /// End of the connection (§6.1).
    Shutdown {
        /// Reason, if given.
        reason: Option<ShutdownReason>,
        /// Seconds to wait before reconnecting, if given; 0 for never.
        reconnect_s: Option<u64>,
    },
    /// Length of the next bundle (§5.5).
    Length {
        /// Length in bytes.
        length: u64,
    },
    /// Message of unknown type. Its end is unknown.
    Unknown {
        /// First byte.
        first: u8,
    },
}

named_codes! {
    /// Reason for refusing a bundle, 0 to 15 (§5.4).
    RefuseReason(u8, "reason {}") {
        /// 0: no reason given.
        Unknown = 0, "no reason";
        /// 1: the receiver has the whole bundle.
        Completed = 1, "the receiver has the bundle";
        /// 2: the receiver's resources are exhausted.
        NoResources = 2, "the receiver has no resources";
        /// 3: retransmit the bundle from its start.
        Retransmit = 3, "to be sent again from its beginning";
    }
}

named_codes! {
    /// Reason for ending a connection (§6.1).
    ShutdownReason(u8, "reason {}") {
        /// 0: the connection was idle.
        IdleTimeout = 0, "idle";
        /// 1: the versions do not match.
        VersionMismatch = 1, "the versions do not fit";
        /// 2: the node is too busy.
        Busy = 2, "busy";
    }
}

impl Message {
    /// Decodes a message, without the data of a segment, from the start of a stream, and returns
    /// its length. `None` if more bytes are needed; twelve are always enough.
    ///
    /// # Errors
    /// A number exceeds 64 bits.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        or_more(Self::read(bytes), usize::MAX, tcpcl::TOO_LONG)
    }

    fn read(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        let flags = first & 0x0f;
        let message = match first >> 4 {
            1 => Self::Segment {
                start: flags & START != 0,
                end: flags & END != 0,
                length: sdnv::read(&mut reader)?,
            },
            2 => Self::Ack { length: sdnv::read(&mut reader)? },
            3 => Self::Refuse { reason: RefuseReason::from_code(flags) },
            4 => Self::Keepalive,
            5 => {
                let reason = match flags & HAS_REASON {
                    0 => None,
                    _ => Some(ShutdownReason::from_code(reader.u8()?)),
                };
                let reconnect_s = match flags & HAS_DELAY {
                    0 => None,
                    _ => Some(sdnv::read(&mut reader)?),
                };
                Self::Shutdown { reason, reconnect_s }
            }
            6 => Self::Length { length: sdnv::read(&mut reader)? },
            _ => Self::Unknown { first },
        };
        Ok((message, reader.offset()))
    }

    /// Encodes the message, without the data of a segment.
    ///
    /// # Errors
    /// The reason of a refusal exceeds 15.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let (first, reason, number) = match *self {
            Self::Segment { start, end, length } => {
                (0x10 | flag(start, START) | flag(end, END), None, Some(length))
            }
            Self::Ack { length } => (0x20, None, Some(length)),
            Self::Refuse { reason } if reason.code() > 15 => {
                return Err(EncodeError::TooLarge { field: "the reason of a refusal" });
            }
            Self::Refuse { reason } => (0x30 | reason.code(), None, None),
            Self::Keepalive => (0x40, None, None),
            Self::Shutdown { reason, reconnect_s } => {
                let has_reason = flag(reason.is_some(), HAS_REASON);
                (0x50 | has_reason | flag(reconnect_s.is_some(), HAS_DELAY), reason, reconnect_s)
            }
            Self::Length { length } => (0x60, None, Some(length)),
            Self::Unknown { first } => (first, None, None),
        };
        // The exact length: `Bytes` takes a full vector as it is.
        let len = 1 + usize::from(reason.is_some()) + number.map_or(0, sdnv::len);
        let mut out = Vec::with_capacity(len);
        out.push(first);
        out.extend(reason.map(ShutdownReason::code));
        if let Some(number) = number {
            sdnv::append(&mut out, number);
        }
        Ok(out)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment { start, end, length } => {
                let start = if *start { " start" } else { "" };
                write!(f, "DATA_SEGMENT{start}{} {length} B", if *end { " end" } else { "" })
            }
            Self::Ack { length } => write!(f, "ACK_SEGMENT {length} B"),
            Self::Refuse { reason } => write!(f, "REFUSE_BUNDLE: {reason}"),
            Self::Keepalive => f.write_str("KEEPALIVE"),
            Self::Shutdown { reason, reconnect_s } => {
                f.write_str("SHUTDOWN")?;
                if let Some(reason) = reason {
                    write!(f, ": {reason}")?;
                }
                match reconnect_s {
                    Some(0) => f.write_str(", not to connect again"),
                    Some(seconds) => write!(f, ", to connect again after {seconds} s"),
                    None => Ok(()),
                }
            }
            Self::Length { length } => write!(f, "LENGTH {length} B"),
            Self::Unknown { first } => write!(f, "message {first:#04x}"),
        }
    }
}
