//! Packets of toy.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 1 for data, 2 for an acknowledgement |
//! | 4 | number of the transfer |
//! | 8 | offset of the data, or the first byte that is not acknowledged |
//! | 1 | of data: 1 if it is the last |
//! | 1 | of data: bytes of the file's name, which follows |
//! | … | of data: the data |

use std::fmt;

use transport::dissect::{Described, Dissector};
use wire::DecodeError;

const DATA: u8 = 1;
const ACK: u8 = 2;
const HEADER: usize = 13;

/// Reader of packets.
pub(crate) const DISSECTOR: Dissector = Dissector {
    title: "toy",
    line: Some(|datagram| Packet::decode(datagram).map(|packet| packet.to_string())),
    plausible: |datagram| Packet::decode(datagram).map(drop),
    split: |packet| vec![packet],
    begins: |_| false,
    describe,
};

fn describe(datagram: &[u8]) -> Described {
    match Packet::decode(datagram) {
        Ok(Packet::Data { offset, .. }) => ("data".to_owned(), Some(offset)),
        Ok(Packet::Ack { next, .. }) => ("acknowledgement".to_owned(), Some(next)),
        Err(error) => (format!("not toy: {error}"), None),
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// Piece of a file.
    Data {
        /// Number of the transfer.
        transfer: u32,
        /// Offset of the piece.
        offset: u64,
        /// Whether it is the last.
        is_last: bool,
        /// Name of the file.
        name: &'a str,
        /// The piece.
        data: &'a [u8],
    },
    /// Acknowledgement.
    Ack {
        /// Number of the transfer.
        transfer: u32,
        /// First byte that is not acknowledged.
        next: u64,
    },
}

impl<'a> Packet<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// The bytes are not a packet.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (kind, rest) = bytes.split_first().ok_or(DecodeError::invalid(0, "no packet"))?;
        let short = || DecodeError::invalid(bytes.len(), "a packet that is too short");
        let (transfer, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (offset, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (transfer, offset) = (u32::from_be_bytes(*transfer), u64::from_be_bytes(*offset));
        match *kind {
            ACK => Ok(Self::Ack { transfer, next: offset }),
            DATA => {
                let ([is_last, len], rest) = rest.split_first_chunk().ok_or_else(short)?;
                let (name, data) = rest.split_at_checked((*len).into()).ok_or_else(short)?;
                let name = std::str::from_utf8(name);
                let name = name.map_err(|_| DecodeError::invalid(HEADER + 2, "a name"))?;
                Ok(Self::Data { transfer, offset, is_last: *is_last == 1, name, data })
            }
            _ => Err(DecodeError::invalid(0, "an unknown kind of packet")),
        }
    }

    /// The packet's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = |kind: u8, transfer: u32, offset: u64| {
            [&[kind][..], &transfer.to_be_bytes(), &offset.to_be_bytes()].concat()
        };
        match *self {
            Self::Ack { transfer, next } => head(ACK, transfer, next),
            Self::Data { transfer, offset, is_last, name, data } => {
                let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
                let name = &name.as_bytes()[..len.into()];
                let lens = [u8::from(is_last), len];
                [&head(DATA, transfer, offset)[..], &lens, name, data].concat()
            }
        }
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { transfer, offset, data, .. } => {
                write!(f, "data {transfer} {offset}+{}", data.len())
            }
            Self::Ack { transfer, next } => write!(f, "acknowledgement {transfer} {next}"),
        }
    }
}
