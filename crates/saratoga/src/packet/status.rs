//! Status of a transfer (draft-wood-tsvwg-saratoga-22 §4.5).

use wire::cursor::{Reader, Writer};
use wire::list::{Entry, List};
use wire::named_codes;
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

/// Holes of a STATUS packet, with the width of their offsets.
pub type Holes<'a> = List<'a, Hole, Width>;

impl Entry<'_, Width> for Hole {
    fn read(reader: &mut Reader<'_>, width: Width) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let (start, last) = (width.read(reader)?, width.read(reader)?);
        if last < start {
            return Err(DecodeError::invalid(at, "a hole ends before it begins"));
        }
        Ok(Self { start, last })
    }
}

pub(super) fn write_holes(
    holes: Holes<'_>,
    writer: &mut Writer<'_>,
    width: Width,
) -> Result<(), EncodeError> {
    for hole in holes {
        width.write(writer, hole.start, "a hole")?;
        width.write(writer, hole.last, "a hole")?;
    }
    Ok(())
}

named_codes! {
    /// Status of a transfer, or the reason for its failure.
    StatusCode(u8, "status {:#04x}") {
        /// Success.
        Ok = 0x00, "well";
        /// Unspecified error.
        Unspecified = 0x01, "failed";
        /// The sender lacks resources.
        SenderResources = 0x02, "the sender lacks resources";
        /// The receiver lacks resources.
        ReceiverResources = 0x03, "the receiver lacks resources";
        /// No such file.
        NotFound = 0x04, "no such file";
        /// Access denied.
        AccessDenied = 0x05, "access denied";
        /// No such session.
        UnknownId = 0x06, "no such session";
        /// The file was not deleted.
        NotDeleted = 0x07, "not deleted";
        /// The file is too long for the request.
        TooLong = 0x08, "the file is too long";
        /// The descriptor's width does not match.
        DescriptorMismatch = 0x09, "the descriptor does not fit";
        /// Unsupported packet type.
        UnsupportedPacket = 0x0a, "packet type not supported";
        /// Unsupported request.
        UnsupportedRequest = 0x0b, "request not supported";
        /// The request timed out.
        RequestTimeout = 0x0c, "the request was not answered in time";
        /// Flags changed during a session.
        FlagsChanged = 0x0d, "flags changed";
        /// The receiver is no longer interested.
        NotInterested = 0x0e, "not wanted any more";
        /// The file is in use.
        InUse = 0x0f, "the file is in use";
        /// METADATA is required.
        MetadataRequired = 0x10, "METADATA required";
        /// Unexpected STATUS packet.
        UnexpectedStatus = 0x11, "unexpected STATUS";
        /// The sender timed out.
        SenderTimeout = 0x12, "the sender was silent";
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
            holes: Holes::read_all(reader, descriptor)?,
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
        write_holes(self.holes, writer, self.descriptor)
    }
}
