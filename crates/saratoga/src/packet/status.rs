//! Status of a transfer (draft-wood-tsvwg-saratoga-22 §4.5).

use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::{Flags, Timestamp, Width, read_timestamp};

/// Missing bytes: from the first to the last one, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First missing byte.
    pub start: u64,
    /// Last missing byte.
    pub last: u64,
}

/// Holes of a STATUS packet.
#[derive(Clone, Copy)]
pub struct Holes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Fields(&'a [Hole]),
    /// Validated bytes.
    Bytes(&'a [u8], Width),
}

/// Status of a transfer, or the reason for its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusCode {
    /// 0x00: success.
    Ok,
    /// 0x01: unspecified error.
    Unspecified,
    /// 0x02: the sender lacks resources.
    SenderResources,
    /// 0x03: the receiver lacks resources.
    ReceiverResources,
    /// 0x04: no such file.
    NotFound,
    /// 0x05: access denied.
    AccessDenied,
    /// 0x06: no such session.
    UnknownId,
    /// 0x07: the file was not deleted.
    NotDeleted,
    /// 0x08: the file is too long for the request.
    TooLong,
    /// 0x09: the descriptor's width does not match.
    DescriptorMismatch,
    /// 0x0a: unsupported packet type.
    UnsupportedPacket,
    /// 0x0b: unsupported request.
    UnsupportedRequest,
    /// 0x0c: the request timed out.
    RequestTimeout,
    /// 0x0d: flags changed during a session.
    FlagsChanged,
    /// 0x0e: the receiver is no longer interested.
    NotInterested,
    /// 0x0f: the file is in use.
    InUse,
    /// 0x10: METADATA is required.
    MetadataRequired,
    /// 0x11: unexpected STATUS packet.
    UnexpectedStatus,
    /// 0x12: the sender timed out.
    SenderTimeout,
    /// Code that the draft does not define.
    Other(u8),
}

impl StatusCode {
    const KNOWN: [Self; 19] = [
        Self::Ok,
        Self::Unspecified,
        Self::SenderResources,
        Self::ReceiverResources,
        Self::NotFound,
        Self::AccessDenied,
        Self::UnknownId,
        Self::NotDeleted,
        Self::TooLong,
        Self::DescriptorMismatch,
        Self::UnsupportedPacket,
        Self::UnsupportedRequest,
        Self::RequestTimeout,
        Self::FlagsChanged,
        Self::NotInterested,
        Self::InUse,
        Self::MetadataRequired,
        Self::UnexpectedStatus,
        Self::SenderTimeout,
    ];

    /// Returns the status of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self::KNOWN.get(usize::from(code)).copied().unwrap_or(Self::Other(code))
    }

    /// Returns the code on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => Self::KNOWN.iter().position(|other| *other == known).map_or(1, |i| i as u8),
        }
    }
}

/// Progress of a transfer, or the reason for its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// Width of the transfer's descriptor.
    pub descriptor: Width,
    /// Timestamp of the DATA packet that triggered the STATUS.
    pub timestamp: Option<Timestamp>,
    /// Whether METADATA is missing.
    pub lacks_metadata: bool,
    /// Whether there are more holes than listed.
    pub is_partial: bool,
    /// Whether the STATUS was sent without a request.
    pub is_voluntary: bool,
    /// Status.
    pub code: StatusCode,
    /// Session number.
    pub session: u32,
    /// First byte not received.
    pub progress: u64,
    /// Offset of the byte behind the DATA packet that triggered the STATUS, or behind all received
    /// data.
    pub in_response_to: u64,
    /// Missing bytes before that.
    pub holes: Holes<'a>,
}

impl<'a> Status<'a> {
    pub(super) fn encoded_len(&self) -> usize {
        let offsets = 2 + 2 * self.holes.len();
        8 + self.timestamp.map_or(0, |timestamp| timestamp.len())
            + offsets * self.descriptor.bytes()
    }

    pub(super) fn read(flags: Flags, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let session = reader.u32()?;
        let timestamp = read_timestamp(flags, reader)?;
        let descriptor = Width::from_code(flags.two(8));
        let progress = descriptor.read(reader)?;
        let in_response_to = descriptor.read(reader)?;
        Ok(Self {
            descriptor,
            timestamp,
            lacks_metadata: flags.bit(13),
            is_partial: flags.bit(14),
            is_voluntary: flags.bit(15),
            code: StatusCode::from_code(flags.last()),
            session,
            progress,
            in_response_to,
            holes: Holes::read(reader, descriptor)?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let flags = Flags::new(4)
            .with_two(8, self.descriptor as u32)
            .with(12, self.timestamp.is_some())
            .with(13, self.lacks_metadata)
            .with(14, self.is_partial)
            .with(15, self.is_voluntary)
            .with_last(self.code.code());
        writer.put(&flags.0.to_be_bytes())?;
        writer.put(&self.session.to_be_bytes())?;
        if let Some(timestamp) = &self.timestamp {
            writer.put(timestamp)?;
        }
        self.descriptor.write(writer, self.progress, "the progress")?;
        self.descriptor.write(writer, self.in_response_to, "what it is in response to")?;
        self.holes.write(writer, self.descriptor)
    }
}

impl<'a> Holes<'a> {
    /// No holes.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// Creates a list of holes to send.
    #[must_use]
    pub const fn new(holes: &'a [Hole]) -> Self {
        Self(Source::Fields(holes))
    }

    /// Number of holes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Bytes(bytes, width) => bytes.len() / (2 * width.bytes()),
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the holes in order.
    pub fn iter(&self) -> impl Iterator<Item = Hole> + 'a {
        let (fields, bytes, width) = match self.0 {
            Source::Fields(fields) => (fields, &[][..], Width::W16),
            Source::Bytes(bytes, width) => (&[][..], bytes, width),
        };
        let mut reader = Reader::new(bytes);
        let read = std::iter::from_fn(move || {
            let start = width.read(&mut reader).ok()?;
            Some(Hole { start, last: width.read(&mut reader).ok()? })
        });
        fields.iter().copied().chain(read)
    }

    pub(super) fn read(reader: &mut Reader<'a>, width: Width) -> Result<Self, DecodeError> {
        let mut walk = *reader;
        while !walk.is_empty() {
            let at = walk.offset();
            let (start, last) = (width.read(&mut walk)?, width.read(&mut walk)?);
            if last < start {
                return Err(DecodeError::invalid(at, "a hole ends before it begins"));
            }
        }
        Ok(Self(Source::Bytes(reader.rest(), width)))
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>, width: Width) -> Result<(), EncodeError> {
        for hole in self.iter() {
            width.write(writer, hole.start, "a hole")?;
            width.write(writer, hole.last, "a hole")?;
        }
        Ok(())
    }
}

impl PartialEq for Holes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Holes<'_> {}

impl fmt::Debug for Holes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
