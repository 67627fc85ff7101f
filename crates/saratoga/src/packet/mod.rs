//! Saratoga version 1 (draft-wood-tsvwg-saratoga-22): packets.
//!
//! The draft numbers the bits of the first 32-bit word from the most significant, 0, to the least
//! significant, 31; so do the comments here. Undefined bits are ignored. Version 0, which has
//! another layout and another port, is in [`v0`].

mod display;
mod entry;
mod status;
#[cfg(test)]
mod tests;
pub mod v0;

use wire::cursor::{Reader, Writer};
use wire::named_codes;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

pub use self::entry::{Entry, EntryKind};
pub use self::status::{Hole, Holes, Status, StatusCode};

/// UDP port of Saratoga.
pub const PORT: u16 = 7542;

/// Maximum length of a path in bytes, including the NUL.
pub const PATH_MAX: usize = 1024;

const VERSION: u8 = 1;

/// Length of a timestamp, in bytes.
pub const TIMESTAMP_LEN: usize = 16;

/// Timestamp, echoed unchanged by a receiver.
pub type Timestamp = [u8; TIMESTAMP_LEN];

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Announcement of a peer (§4.1).
    Beacon(Beacon<'a>),
    /// Request for a file, offer of a file, or request to delete one (§4.2).
    Request(Request<'a>),
    /// Description of the transfer (§4.3).
    Metadata(Metadata<'a>),
    /// Part of the content (§4.4).
    Data(Data<'a>),
    /// Status of the transfer (§4.5).
    Status(Status<'a>),
}

/// Width of the offsets and lengths of a transfer: its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// 16 bits.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
    /// 128 bits, of which this codec uses the lower 64.
    W128,
}

impl Width {
    /// Returns the narrowest width that holds a value.
    #[must_use]
    pub const fn fitting(value: u64) -> Self {
        match value {
            0..=0xffff => Self::W16,
            0x1_0000..=0xffff_ffff => Self::W32,
            _ => Self::W64,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        2 << self as usize
    }

    const fn from_code(code: u32) -> Self {
        match code & 3 {
            0 => Self::W16,
            1 => Self::W32,
            2 => Self::W64,
            _ => Self::W128,
        }
    }

    fn read(self, reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
        if self != Self::W128 {
            return reader.uint(self.bytes());
        }
        let at = reader.offset();
        if reader.uint(8)? != 0 {
            return Err(DecodeError::invalid(at, "a descriptor exceeds 64 bits"));
        }
        reader.uint(8)
    }

    fn write(
        self,
        writer: &mut Writer<'_>,
        value: u64,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        if self == Self::W128 {
            writer.put(&[0; 8])?;
            return writer.uint(value, 8, field);
        }
        writer.uint(value, self.bytes(), field)
    }
}

/// Willingness of a peer to send, or to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// The peer cannot.
    No,
    /// The peer could, but cannot now.
    NotNow,
    /// The peer can.
    Yes,
}

impl Ability {
    fn from_code(code: u32) -> Result<Self, DecodeError> {
        match code & 3 {
            0 => Ok(Self::No),
            2 => Ok(Self::NotNow),
            3 => Ok(Self::Yes),
            _ => Err(DecodeError::invalid(1, "somebody is willing to do what it cannot")),
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::No => 0,
            Self::NotNow => 2,
            Self::Yes => 3,
        }
    }
}

/// Announcement of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beacon<'a> {
    /// Widest descriptor it supports.
    pub descriptor: Width,
    /// Whether it delivers bundles to an agent (the convergence layer's draft).
    pub bundles: bool,
    /// Whether it supports streams.
    pub streams: bool,
    /// Whether it sends.
    pub sends: Ability,
    /// Whether it receives.
    pub receives: Ability,
    /// Whether it supports UDP-Lite.
    pub udp_lite: bool,
    /// Free space in KiB, and the width of that field.
    pub free_space: Option<(Width, u64)>,
    /// Name.
    pub eid: &'a [u8],
}

named_codes! {
    /// Kind of a request.
    RequestKind(u8, "request {}") {
        /// No operation.
        NoOp = 0, "no-op";
        /// Send a file to the requester.
        Get = 1, "get";
        /// Receive a file from the requester.
        Put = 2, "put";
        /// Send a file to the requester, and delete it once received.
        Take = 3, "take";
        /// Receive a file, which the requester deletes once received.
        Give = 4, "give";
        /// Delete a file.
        Delete = 5, "delete";
        /// Send a directory to the requester.
        GetDir = 6, "getdir";
    }
}

/// Request for a file, offer of a file, or request to delete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Kind of request.
    pub kind: RequestKind,
    /// Widest descriptor the requester supports.
    pub descriptor: Width,
    /// Whether it supports bundles.
    pub bundles: bool,
    /// Whether it supports streams.
    pub streams: bool,
    /// Whether it supports UDP-Lite.
    pub udp_lite: bool,
    /// Session number.
    pub session: u32,
    /// Path of the file without the NUL; empty for any file.
    pub path: &'a [u8],
    /// Credentials; the draft does not define their form.
    pub authentication: &'a [u8],
}

/// Content of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// A file.
    File,
    /// Entries of a directory.
    Directory,
    /// A bundle (the convergence layer's draft).
    Bundle,
    /// A stream of unknown length.
    Stream,
}

impl Content {
    const fn from_code(code: u32) -> Self {
        match code & 3 {
            0 => Self::File,
            1 => Self::Directory,
            2 => Self::Bundle,
            _ => Self::Stream,
        }
    }
}

/// Checksum of a file. MD5 and SHA-1 detect accidents, not attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChecksum<'a> {
    /// Type 0.
    None,
    /// Type 1: CRC-32C.
    Crc32(u32),
    /// Type 2: MD5.
    Md5([u8; 16]),
    /// Type 3: SHA-1.
    Sha1([u8; 20]),
    /// Type that the draft does not define, or a length that does not match it.
    Other {
        /// Type, 4 bits.
        kind: u8,
        /// Bytes, a multiple of four.
        bytes: &'a [u8],
    },
}

impl<'a> FileChecksum<'a> {
    fn read(kind: u8, bytes: &'a [u8]) -> Self {
        match (kind, bytes.len()) {
            (0, 0) => Self::None,
            (1, 4) => Self::Crc32(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            (2, 16) => bytes.try_into().map_or(Self::Other { kind, bytes }, Self::Md5),
            (3, 20) => bytes.try_into().map_or(Self::Other { kind, bytes }, Self::Sha1),
            _ => Self::Other { kind, bytes },
        }
    }

    const fn code(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc32(_) => 1,
            Self::Md5(_) => 2,
            Self::Sha1(_) => 3,
            Self::Other { kind, .. } => *kind,
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32(_) => 4,
            Self::Md5(_) => 16,
            Self::Sha1(_) => 20,
            Self::Other { bytes, .. } => bytes.len(),
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::None => Ok(()),
            Self::Crc32(crc) => writer.put(&crc.to_be_bytes()),
            Self::Md5(bytes) => writer.put(bytes),
            Self::Sha1(bytes) => writer.put(bytes),
            Self::Other { bytes, .. } => writer.put(bytes),
        }
    }
}

/// Description of a transfer: name, size, times and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Width of the transfer's descriptor.
    pub descriptor: Width,
    /// Content.
    pub content: Content,
    /// Whether the transfer has ended.
    pub is_over: bool,
    /// Whether it may be sent over UDP-Lite.
    pub udp_lite: bool,
    /// Session number.
    pub session: u32,
    /// Checksum.
    pub checksum: FileChecksum<'a>,
    /// Directory entry.
    pub entry: Entry<'a>,
}

/// Part of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Width of the transfer's descriptor.
    pub descriptor: Width,
    /// Content.
    pub content: Content,
    /// Send time.
    pub timestamp: Option<Timestamp>,
    /// Whether a STATUS is requested now.
    pub wants_status: bool,
    /// Whether this is the end of the content.
    pub is_end: bool,
    /// Session number.
    pub session: u32,
    /// Offset of the bytes.
    pub offset: u64,
    /// Data.
    pub data: &'a [u8],
}

impl Data<'_> {
    /// Length of a DATA packet without its data, in bytes.
    #[must_use]
    pub const fn overhead(descriptor: Width, timestamp: bool) -> usize {
        8 + descriptor.bytes() + if timestamp { TIMESTAMP_LEN } else { 0 }
    }
}

/// Flags of a packet, by the draft's bit numbers.
#[derive(Clone, Copy)]
struct Flags(u32);

impl Flags {
    const fn new(code: u8) -> Self {
        Self((VERSION as u32) << 29 | (code as u32) << 24)
    }

    const fn bit(self, number: u32) -> bool {
        self.0 >> (31 - number) & 1 != 0
    }

    /// Returns bits `number` and `number + 1`.
    const fn two(self, number: u32) -> u32 {
        self.0 >> (30 - number) & 3
    }

    const fn with(self, number: u32, value: bool) -> Self {
        Self(self.0 | (value as u32) << (31 - number))
    }

    const fn with_two(self, number: u32, value: u32) -> Self {
        Self(self.0 | (value & 3) << (30 - number))
    }

    const fn with_last(self, byte: u8) -> Self {
        Self(self.0 | byte as u32)
    }

    const fn last(self) -> u8 {
        self.0 as u8
    }
}

impl<'a> Packet<'a> {
    /// Decodes a packet that is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a packet of version 1.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let flags = Flags(reader.u32()?);
        let version = (flags.0 >> 29) as u8;
        if version != VERSION {
            return Err(DecodeError { offset: 0, kind: DecodeErrorKind::Version(version) });
        }
        match flags.0 >> 24 & 0x1f {
            0 => Beacon::read(flags, &mut reader).map(Self::Beacon),
            1 => Request::read(flags, &mut reader).map(Self::Request),
            2 => Metadata::read(flags, &mut reader).map(Self::Metadata),
            3 => Data::read(flags, &mut reader).map(Self::Data),
            4 => Status::read(flags, &mut reader).map(Self::Status),
            _ => Err(DecodeError::invalid(0, "the packet type is undefined")),
        }
    }

    /// Length on the wire, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Beacon(beacon) => {
                let space = beacon.free_space.map_or(0, |(width, _)| width.bytes());
                4 + space + beacon.eid.len()
            }
            Self::Request(request) => 8 + request.path.len() + 1 + request.authentication.len(),
            Self::Metadata(metadata) => 8 + metadata.checksum.len() + metadata.entry.encoded_len(),
            Self::Data(data) => {
                Data::overhead(data.descriptor, data.timestamp.is_some()) + data.data.len()
            }
            Self::Status(status) => status.encoded_len(),
        }
    }

    /// Writes the packet to exactly `out`.
    ///
    /// # Errors
    /// `out` has another length, or a field cannot be encoded.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        match self {
            Self::Beacon(beacon) => beacon.write(&mut writer)?,
            Self::Request(request) => request.write(&mut writer)?,
            Self::Metadata(metadata) => metadata.write(&mut writer)?,
            Self::Data(data) => data.write(&mut writer)?,
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
}

impl<'a> Beacon<'a> {
    fn read(flags: Flags, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let free_space = if flags.bit(17) {
            let width = Width::from_code(flags.two(18));
            Some((width, width.read(reader)?))
        } else {
            None
        };
        Ok(Self {
            descriptor: Width::from_code(flags.two(8)),
            bundles: flags.bit(10),
            streams: flags.bit(11),
            sends: Ability::from_code(flags.two(12))?,
            receives: Ability::from_code(flags.two(14))?,
            udp_lite: flags.bit(16),
            free_space,
            eid: reader.rest(),
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut flags = Flags::new(0)
            .with_two(8, self.descriptor as u32)
            .with(10, self.bundles)
            .with(11, self.streams)
            .with_two(12, self.sends.code())
            .with_two(14, self.receives.code())
            .with(16, self.udp_lite);
        if let Some((width, _)) = self.free_space {
            flags = flags.with(17, true).with_two(18, width as u32);
        }
        writer.put(&flags.0.to_be_bytes())?;
        if let Some((width, space)) = self.free_space {
            width.write(writer, space, "the free space")?;
        }
        writer.put(self.eid)
    }
}

impl<'a> Request<'a> {
    fn read(flags: Flags, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let path = read_path(reader)?;
        Ok(Self {
            kind: RequestKind::from_code(flags.last()),
            descriptor: Width::from_code(flags.two(8)),
            bundles: flags.bit(10),
            streams: flags.bit(11),
            udp_lite: flags.bit(16),
            session,
            path,
            authentication: reader.rest(),
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let flags = Flags::new(1)
            .with_two(8, self.descriptor as u32)
            .with(10, self.bundles)
            .with(11, self.streams)
            .with(16, self.udp_lite)
            .with_last(self.kind.code());
        writer.put(&flags.0.to_be_bytes())?;
        writer.put(&self.session.to_be_bytes())?;
        write_path(writer, self.path)?;
        writer.put(self.authentication)
    }
}

impl<'a> Metadata<'a> {
    fn read(flags: Flags, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let bytes = reader.take(4 * usize::from(flags.last() >> 4))?;
        let checksum = FileChecksum::read(flags.last() & 0x0f, bytes);
        Ok(Self {
            descriptor: Width::from_code(flags.two(8)),
            content: Content::from_code(flags.two(10)),
            is_over: flags.bit(12),
            udp_lite: flags.bit(13),
            session,
            checksum,
            entry: Entry::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let len = self.checksum.len();
        let words = u8::try_from(len / 4).ok().filter(|words| *words < 16 && len.is_multiple_of(4));
        let kind = Some(self.checksum.code()).filter(|kind| *kind < 16);
        let (Some(words), Some(kind)) = (words, kind) else {
            return Err(EncodeError::TooLarge { field: "the checksum" });
        };
        let flags = Flags::new(2)
            .with_two(8, self.descriptor as u32)
            .with_two(10, self.content as u32)
            .with(12, self.is_over)
            .with(13, self.udp_lite)
            .with_last(words << 4 | kind);
        writer.put(&flags.0.to_be_bytes())?;
        writer.put(&self.session.to_be_bytes())?;
        self.checksum.write(writer)?;
        self.entry.write(writer)
    }
}

impl<'a> Data<'a> {
    fn read(flags: Flags, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let timestamp = read_timestamp(flags, reader)?;
        let descriptor = Width::from_code(flags.two(8));
        let at = reader.offset();
        let offset = descriptor.read(reader)?;
        let data = reader.rest();
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(DecodeError::invalid(at, "the data ends beyond 2^64 bytes"));
        }
        Ok(Self {
            descriptor,
            content: Content::from_code(flags.two(10)),
            timestamp,
            wants_status: flags.bit(15),
            is_end: flags.bit(16),
            session,
            offset,
            data,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let flags = Flags::new(3)
            .with_two(8, self.descriptor as u32)
            .with_two(10, self.content as u32)
            .with(12, self.timestamp.is_some())
            .with(15, self.wants_status)
            .with(16, self.is_end);
        writer.put(&flags.0.to_be_bytes())?;
        writer.put(&self.session.to_be_bytes())?;
        if let Some(timestamp) = &self.timestamp {
            writer.put(timestamp)?;
        }
        self.descriptor.write(writer, self.offset, "the offset")?;
        writer.put(self.data)
    }
}

fn read_timestamp(flags: Flags, reader: &mut Reader<'_>) -> Result<Option<Timestamp>, DecodeError> {
    if !flags.bit(12) {
        return Ok(None);
    }
    let bytes = reader.take(TIMESTAMP_LEN)?;
    Ok(bytes.try_into().ok())
}

/// Reads a path and the NUL behind it.
fn read_path<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let at = reader.offset();
    let rest = reader.clone().rest();
    let Some(len) = rest.iter().take(PATH_MAX).position(|byte| *byte == 0) else {
        return Err(DecodeError::invalid(at, "a path has no end within 1024 bytes"));
    };
    let path = reader.take(len)?;
    reader.u8()?;
    Ok(path)
}

fn write_path(writer: &mut Writer<'_>, path: &[u8]) -> Result<(), EncodeError> {
    if path.len() >= PATH_MAX || path.contains(&0) {
        return Err(EncodeError::TooLarge { field: "the path" });
    }
    writer.put(path)?;
    writer.u8(0)
}
