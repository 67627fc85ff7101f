//! Saratoga version 0: packets in the layout that this project calls `grc-perl-2011`.
//!
//! The specification of version 0 was never published, and neither was the Perl program that a
//! study of 2011 measured. This page separates facts from this project's reading.
//!
//! Certain, because captured or computed from a capture:
//! - UDP port 4000 at both ends; files are fetched, never pushed;
//! - the request for a name of 12 bytes has 32 bytes, the sender's first reply 10, METADATA 266;
//! - DATA has a header of 10 bytes and a payload of at most 1024;
//! - the last report of the receiver, "complete", has 7 bytes;
//! - after the last DATA the sender repeats a packet of 18 bytes once a second until that report
//!   arrives.
//!
//! This project's reading:
//! - all fields within these lengths, after draft-wood-dtnrg-saratoga-00 (2007), whose DATA header
//!   also has these 10 bytes;
//! - the first reply is the header of a DATA packet without data;
//! - the packet of 18 bytes is a poll: the header of a DATA packet, and 8 bytes of zeros;
//! - the bit that distinguishes a poll from DATA of 8 bytes: 0x02 of the flags, which the draft
//!   leaves undefined in DATA;
//! - METADATA is the length of the file and its name in 256 bytes;
//! - a report with holes has 8 bytes for each.
//!
//! So packets of another program of version 0 may have another meaning: its polls decode as DATA
//! of 8 bytes, unless they carry that bit. No program ever negotiated versions: the first byte is
//! 0x00 to 0x04 here, 0x40 to 0x44 in the drafts of 2007, 0x20 to 0x24 in version 1.
//!
//! All fields are in network byte order. Each packet starts with its type (1 byte) and flags (1);
//! all but a BEACON continue with the session number (4):
//!
//! | type | packet | flags | behind the session number |
//! |---|---|---|---|
//! | 0 | BEACON | | (without that number) name of the peer |
//! | 1 | REQUEST | | path, NUL, NULs up to 26 bytes |
//! | 2 | METADATA | | length (4), path, NUL, NULs up to 256 bytes |
//! | 3 | DATA | 0x01: STATUS wanted | offset (4), data |
//! | 3 | acceptance | | offset 0 (4), nothing more |
//! | 3 | poll | 0x03: STATUS wanted, poll | offset (4), 8 zeros |
//! | 4 | STATUS | 0x01: more holes | status (1), holes: first, last byte (4 each) |
//! | | | 0x02: METADATA has arrived | |
//!
//! Other flag bits are sent as 0 and ignored. The decoder also ignores bytes behind the NUL of a
//! path, the 8 bytes of a poll and any behind them. A remainder of less than 8 bytes behind the
//! holes is ignored too.
//!
//! Offsets and lengths have 32 bits, so a file has at most [`FILE_LEN_MAX`] bytes, 4 GiB less one.

mod display;
#[cfg(test)]
mod tests;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::status::write_holes;
use super::{Holes, StatusCode, Width, read_path, write_path};

/// UDP port of version 0, at both ends.
pub const PORT: u16 = 4000;

/// Maximum file size, in bytes.
pub const FILE_LEN_MAX: u32 = u32::MAX;

/// Length of a DATA packet without its data, and of an acceptance.
pub const DATA_OVERHEAD: usize = 10;

/// Maximum captured payload of a packet, in bytes. A decoder accepts more.
pub const DATA_LEN: usize = 1024;

/// Length of a poll, in bytes.
pub const POLL_LEN: usize = DATA_OVERHEAD + POLL_FILL.len();

/// Minimum length of the path in a REQUEST, padded with NULs.
pub const REQUEST_PATH_LEN: usize = 26;

/// Minimum length of the path in METADATA, padded with NULs.
pub const METADATA_PATH_LEN: usize = 256;

/// Length of the common header, in bytes: type, flags, session number.
const HEADER_LEN: usize = 6;

const POLL_FILL: [u8; 8] = [0; 8];

const BEACON: u8 = 0;
const REQUEST: u8 = 1;
const METADATA: u8 = 2;
const DATA: u8 = 3;
const STATUS: u8 = 4;

/// In DATA: a STATUS is requested now.
const WANTS_STATUS: u8 = 0x01;
/// In DATA: this is a poll.
const POLL: u8 = 0x02;
/// In STATUS: there are more holes.
const PARTIAL: u8 = 0x01;
/// In STATUS: METADATA has arrived. Version 1 inverted the bit.
const HAS_METADATA: u8 = 0x02;

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Announcement of a peer. No such packet was captured; the layout is the draft's.
    Beacon(Beacon<'a>),
    /// Request for a file.
    Request(Request<'a>),
    /// The sender has the file and will send it.
    Accept(Accept),
    /// Description of the transfer.
    Metadata(Metadata<'a>),
    /// Part of the file.
    Data(Data<'a>),
    /// Request for a report after all was sent.
    Poll(Poll),
    /// Progress of a transfer, or the reason for its failure.
    Status(Status<'a>),
}

/// Announcement of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beacon<'a> {
    /// Name.
    pub eid: &'a [u8],
}

/// Request for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Session number, chosen by the requester.
    pub session: u32,
    /// Path of the file without the NUL.
    pub path: &'a [u8],
}

/// The sender has the file and will send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// Session number.
    pub session: u32,
}

/// Description of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Session number.
    pub session: u32,
    /// File size, in bytes.
    pub length: u32,
    /// Path of the file without the NUL.
    pub path: &'a [u8],
}

/// Part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Whether a STATUS is requested now.
    pub wants_status: bool,
    /// Session number.
    pub session: u32,
    /// Offset of the bytes.
    pub offset: u32,
    /// Data. Empty data at offset 0 without a STATUS request would be an acceptance.
    pub data: &'a [u8],
}

/// Request for a report after all was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Session number.
    pub session: u32,
    /// Byte behind all sent data.
    pub offset: u32,
}

/// Progress of a transfer, or the reason for its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// Whether METADATA is missing.
    pub lacks_metadata: bool,
    /// Whether there are more holes than listed.
    pub is_partial: bool,
    /// Session number.
    pub session: u32,
    /// Status; the draft's codes 0 to 9, which version 1 kept.
    pub code: StatusCode,
    /// Missing bytes.
    pub holes: Holes<'a>,
}

impl<'a> Packet<'a> {
    /// Decodes a packet that is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a packet of version 0.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let code = reader.u8()?;
        if let Some(version) = other_version(code) {
            return Err(DecodeError { offset: 0, kind: DecodeErrorKind::Version(version) });
        }
        let flags = reader.u8()?;
        match code {
            BEACON => Ok(Self::Beacon(Beacon { eid: reader.rest() })),
            REQUEST => Request::read(&mut reader).map(Self::Request),
            METADATA => Metadata::read(&mut reader).map(Self::Metadata),
            DATA => Self::read_data(flags, &mut reader),
            STATUS => Status::read(flags, &mut reader).map(Self::Status),
            _ => Err(DecodeError::invalid(0, "the packet type is undefined")),
        }
    }

    /// Length on the wire, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Beacon(beacon) => 2 + beacon.eid.len(),
            Self::Request(request) => HEADER_LEN + padded_len(request.path, REQUEST_PATH_LEN),
            Self::Accept(_) => DATA_OVERHEAD,
            Self::Metadata(metadata) => {
                HEADER_LEN + 4 + padded_len(metadata.path, METADATA_PATH_LEN)
            }
            Self::Data(data) => DATA_OVERHEAD + data.data.len(),
            Self::Poll(_) => POLL_LEN,
            Self::Status(status) => HEADER_LEN + 1 + 8 * status.holes.len(),
        }
    }

    /// Writes the packet to exactly `out`.
    ///
    /// # Errors
    /// `out` has another length, or a field cannot be encoded.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        match self {
            Self::Beacon(beacon) => {
                writer.put(&[BEACON, 0])?;
                writer.put(beacon.eid)?;
            }
            Self::Request(request) => request.write(&mut writer)?,
            Self::Accept(accept) => {
                write_header(&mut writer, DATA, 0, accept.session)?;
                writer.put(&[0; 4])?;
            }
            Self::Metadata(metadata) => metadata.write(&mut writer)?,
            Self::Data(data) => data.write(&mut writer)?,
            Self::Poll(poll) => {
                write_header(&mut writer, DATA, WANTS_STATUS | POLL, poll.session)?;
                writer.put(&poll.offset.to_be_bytes())?;
                writer.put(&POLL_FILL)?;
            }
            Self::Status(status) => status.write(&mut writer)?,
        }
        writer.finish()
    }

    /// Encodes the packet into a vector.
    ///
    /// # Errors
    /// A field cannot be encoded.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out)?;
        Ok(out)
    }

    /// Reads DATA, an acceptance or a poll: all have the type of DATA.
    fn read_data(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let at = reader.offset();
        let offset = reader.u32()?;
        if flags & POLL != 0 {
            reader.take(POLL_FILL.len())?;
            return Ok(Self::Poll(Poll { session, offset }));
        }
        let data =
            Data { wants_status: flags & WANTS_STATUS != 0, session, offset, data: reader.rest() };
        if data.is_acceptance() {
            return Ok(Self::Accept(Accept { session }));
        }
        if data.ends_too_late() {
            return Err(DecodeError::invalid(at, "the data ends beyond 2^32 - 1 bytes"));
        }
        Ok(Self::Data(data))
    }
}

impl<'a> Request<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { session: reader.u32()?, path: read_path(reader)? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        write_header(writer, REQUEST, 0, self.session)?;
        write_padded(writer, self.path, REQUEST_PATH_LEN)
    }
}

impl<'a> Metadata<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { session: reader.u32()?, length: reader.u32()?, path: read_path(reader)? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        write_header(writer, METADATA, 0, self.session)?;
        writer.put(&self.length.to_be_bytes())?;
        write_padded(writer, self.path, METADATA_PATH_LEN)
    }
}

impl Data<'_> {
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.is_acceptance() {
            return Err(EncodeError::Conflict("DATA with nothing in it is an acceptance"));
        }
        if self.ends_too_late() {
            return Err(EncodeError::TooLarge { field: "the offset" });
        }
        let flags = if self.wants_status { WANTS_STATUS } else { 0 };
        write_header(writer, DATA, flags, self.session)?;
        writer.put(&self.offset.to_be_bytes())?;
        writer.put(self.data)
    }

    const fn is_acceptance(&self) -> bool {
        !self.wants_status && self.offset == 0 && self.data.is_empty()
    }

    /// Whether the packet reaches beyond the longest file.
    const fn ends_too_late(&self) -> bool {
        self.offset as u64 + self.data.len() as u64 > FILE_LEN_MAX as u64
    }
}

impl<'a> Status<'a> {
    /// Whether the packet reports that everything has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_whole = !self.lacks_metadata && !self.is_partial && self.holes.is_empty();
        is_whole && self.code == StatusCode::Ok
    }

    fn read(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let code = StatusCode::from_code(reader.u8()?);
        let mut holes = reader.part(reader.remaining() / 8 * 8)?;
        Ok(Self {
            lacks_metadata: flags & HAS_METADATA == 0,
            is_partial: flags & PARTIAL != 0,
            session,
            code,
            holes: Holes::read_all(&mut holes, Width::W32)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut flags = if self.lacks_metadata { 0 } else { HAS_METADATA };
        if self.is_partial {
            flags |= PARTIAL;
        }
        write_header(writer, STATUS, flags, self.session)?;
        writer.u8(self.code.code())?;
        write_holes(self.holes, writer, Width::W32)
    }
}

/// Returns the version with this first byte, if it is not version 0. The drafts of 2007 use two
/// bits for the version, later ones three.
const fn other_version(first: u8) -> Option<u8> {
    match first {
        0..0x20 => None,
        0x20..0x40 => Some(1),
        _ => Some(first >> 6),
    }
}

fn write_header(
    writer: &mut Writer<'_>,
    code: u8,
    flags: u8,
    session: u32,
) -> Result<(), EncodeError> {
    writer.put(&[code, flags])?;
    writer.put(&session.to_be_bytes())
}

/// Length of a path with its NUL, padded with NULs to at least `len`.
const fn padded_len(path: &[u8], len: usize) -> usize {
    if path.len() < len { len } else { path.len() + 1 }
}

fn write_padded(writer: &mut Writer<'_>, path: &[u8], len: usize) -> Result<(), EncodeError> {
    write_path(writer, path)?;
    for _ in path.len() + 1..len {
        writer.u8(0)?;
    }
    Ok(())
}
