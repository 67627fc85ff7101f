//! The bodies of file directives and of file data (CCSDS 727.0-B-5 §5.2, §5.3).

use wire::checksum::ChecksumType;
use wire::cursor::{Reader, Writer};
use wire::list::{Entry, Field as _, List};
use wire::{DecodeError, EncodeError};

use super::codes::{
    Acknowledged, ConditionCode, DeliveryCode, FileStatus, PromptResponse, RecordContinuation,
    TransactionStatus, Version,
};
use super::header::Header;
use super::tlv::{IdField, Lv, Tlv, Tlvs, nibbles, tlvs_len, write_tlvs};

/// A part of the file (§5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileData<'a> {
    /// Application's metadata of the segment; version 1 only.
    pub segment_metadata: Option<SegmentMetadata<'a>>,
    /// Offset of the data in the file.
    pub offset: u64,
    /// Data.
    pub data: &'a [u8],
}

/// Application's metadata of a segment (§5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentMetadata<'a> {
    /// Position of record boundaries.
    pub continuation: RecordContinuation,
    /// Up to 63 bytes.
    pub metadata: &'a [u8],
}

impl<'a> SegmentMetadata<'a> {
    pub(super) const fn encoded_len(&self) -> usize {
        1 + self.metadata.len()
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        let metadata = reader.take(usize::from(byte & 0x3f))?;
        Ok(Self { continuation: RecordContinuation::from_bits(byte >> 6), metadata })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let len = match u8::try_from(self.metadata.len()) {
            Ok(len) if len <= 0x3f => len,
            Ok(_) | Err(_) => return Err(EncodeError::TooLarge { field: "segment metadata" }),
        };
        writer.u8(self.continuation.bits() << 6 | len)?;
        writer.put(self.metadata)
    }
}

impl<'a> FileData<'a> {
    #[inline]
    pub(super) fn read(
        header: &Header,
        segment_metadata: bool,
        reader: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let segment_metadata =
            if segment_metadata { Some(SegmentMetadata::read(reader)?) } else { None };
        let offset = reader.uint(header.file_size_len())?;
        Ok(Self { segment_metadata, offset, data: reader.rest() })
    }
}

/// End of the file's transmission, or cancellation by the sender (§5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eof {
    /// Condition.
    pub condition: ConditionCode,
    /// Checksum over all file bytes, of the type in the Metadata.
    pub checksum: u32,
    /// File size in bytes; of a cancelled file, the bytes sent so far.
    pub file_size: u64,
    /// Entity at which the fault arose; `None` without an error, and older implementations omit it.
    pub fault_location: Option<IdField>,
}

impl Eof {
    pub(super) fn read(header: &Header, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let condition = ConditionCode::from_code(reader.u8()? >> 4);
        let checksum = reader.u32()?;
        let file_size = reader.uint(header.file_size_len())?;
        let mut fault_location = None;
        if !reader.is_empty() {
            let offset = reader.offset();
            let Tlv::EntityId(id) = Tlv::read(reader, ())? else {
                return Err(DecodeError::invalid(offset, "a fault location is an entity id TLV"));
            };
            fault_location = Some(id);
        }
        reader.finish()?;
        Ok(Self { condition, checksum, file_size, fault_location })
    }

    pub(super) fn write(
        &self,
        header: &Header,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        writer.u8(nibbles(self.condition.code(), 0)?)?;
        writer.put(&self.checksum.to_be_bytes())?;
        writer.uint(self.file_size, header.file_size_len(), "file size")?;
        match self.fault_location {
            Some(id) => Tlv::EntityId(id).write(writer),
            None => Ok(()),
        }
    }

    pub(super) fn encoded_len(&self, header: &Header) -> usize {
        let fault = self.fault_location.map_or(0, |id| Tlv::EntityId(id).encoded_len());
        5 + header.file_size_len() + fault
    }
}

/// End of the transaction at the receiver (§5.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished<'a> {
    /// Condition.
    pub condition: ConditionCode,
    /// Whether the destination itself finished, not a waypoint (version 0, extended procedures).
    /// Version 1 has no such bit and decodes as true.
    pub end_system: bool,
    /// Completeness of the delivery.
    pub delivery: DeliveryCode,
    /// Status of the file.
    pub file_status: FileStatus,
    /// Filestore responses, then an entity ID TLV with the fault location.
    pub tlvs: Tlvs<'a>,
}

impl<'a> Finished<'a> {
    /// Returns the entity at which the fault arose, if the PDU names it.
    #[must_use]
    pub fn fault_location(&self) -> Option<IdField> {
        self.tlvs.iter().find_map(|tlv| if let Tlv::EntityId(id) = tlv { Some(id) } else { None })
    }

    pub(super) fn read(header: &Header, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        let (condition, delivery, file_status) = outcome_from_byte(byte);
        let end_system = header.version == Version::V1 || byte & 0x08 != 0;
        let tlvs = Tlvs::read_all(reader, ())?;
        Ok(Self { condition, end_system, delivery, file_status, tlvs })
    }

    pub(super) fn write(
        &self,
        header: &Header,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        let byte = outcome_byte(self.condition, self.delivery, self.file_status)?;
        let end_system = header.version == Version::V0 && self.end_system;
        writer.u8(byte | u8::from(end_system) << 3)?;
        write_tlvs(&self.tlvs, writer)
    }
}

/// Decodes condition, delivery code and file status, which share a byte in Finished PDUs and some
/// user operations.
pub(super) fn outcome_from_byte(byte: u8) -> (ConditionCode, DeliveryCode, FileStatus) {
    let delivery = if byte & 0x04 == 0 { DeliveryCode::Complete } else { DeliveryCode::Incomplete };
    (ConditionCode::from_code(byte >> 4), delivery, FileStatus::from_code(byte & 3))
}

/// The reverse of [`outcome_from_byte`].
pub(super) fn outcome_byte(
    condition: ConditionCode,
    delivery: DeliveryCode,
    file_status: FileStatus,
) -> Result<u8, EncodeError> {
    let delivery = u8::from(delivery == DeliveryCode::Incomplete) << 2;
    let file_status = two_bits(file_status.code(), "file status")?;
    Ok(nibbles(condition.code(), 0)? | delivery | file_status)
}

/// Returns a code after a check that it fits two bits.
pub(super) fn two_bits(code: u8, field: &'static str) -> Result<u8, EncodeError> {
    if code > 3 { Err(EncodeError::TooLarge { field }) } else { Ok(code) }
}

/// Acknowledgement of an EOF or Finished PDU (§5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Acknowledged directive.
    pub directive: Acknowledged,
    /// 1 for a Finished PDU (in the older issues: one produced by the end system), else 0.
    pub subtype: u8,
    /// Condition code of the acknowledged PDU.
    pub condition: ConditionCode,
    /// State of the transaction at the sender of the ACK.
    pub status: TransactionStatus,
}

impl Ack {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = reader.u8()?;
        let second = reader.u8()?;
        reader.finish()?;
        Ok(Self {
            directive: Acknowledged::from_code(first >> 4),
            subtype: first & 0x0f,
            condition: ConditionCode::from_code(second >> 4),
            status: TransactionStatus::from_code(second & 3),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(nibbles(self.directive.code(), self.subtype)?)?;
        let status = two_bits(self.status.code(), "transaction status")?;
        writer.u8(nibbles(self.condition.code(), 0)? | status)
    }
}

/// Description of the file for its receiver (§5.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Whether the sender of a class 1 transaction requests a Finished PDU.
    pub closure_requested: bool,
    /// Checksum type of the file.
    pub checksum_type: ChecksumType,
    /// File size in bytes; 0 for a file of unknown size.
    pub file_size: u64,
    /// Name of the file at the sender; empty if there is no file.
    pub source_name: Lv<'a>,
    /// Name of the file at the receiver; empty if there is no file.
    pub destination_name: Lv<'a>,
    /// Filestore requests, messages to user, fault handler overrides, a flow label.
    pub tlvs: Tlvs<'a>,
}

impl<'a> Metadata<'a> {
    /// Reads the body. Version 0 has the segmentation control here; it is moved to the header.
    pub(super) fn read(header: &mut Header, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        if header.version == Version::V0 {
            header.segmentation_control = byte & 0x80 == 0;
        }
        Ok(Self {
            closure_requested: byte & 0x40 != 0,
            checksum_type: ChecksumType::from_code(byte & 0x0f),
            file_size: reader.uint(header.file_size_len())?,
            source_name: Lv::read(reader)?,
            destination_name: Lv::read(reader)?,
            tlvs: Tlvs::read_all(reader, ())?,
        })
    }

    pub(super) fn write(
        &self,
        header: &Header,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        let not_respected = header.version == Version::V0 && !header.segmentation_control;
        let byte = nibbles(0, self.checksum_type.code())?
            | u8::from(not_respected) << 7
            | u8::from(self.closure_requested) << 6;
        writer.u8(byte)?;
        writer.uint(self.file_size, header.file_size_len(), "file size")?;
        self.source_name.write(writer, "source file name")?;
        self.destination_name.write(writer, "destination file name")?;
        write_tlvs(&self.tlvs, writer)
    }

    pub(super) fn encoded_len(&self, header: &Header) -> usize {
        let names = self.source_name.encoded_len() + self.destination_name.encoded_len();
        1 + header.file_size_len() + names + tlvs_len(&self.tlvs)
    }
}

/// Parts missing at the receiver (§5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak<'a> {
    /// First byte of the file in this PDU's scope.
    pub scope_start: u64,
    /// One more than the last byte in this PDU's scope.
    pub scope_end: u64,
    /// Missing parts within the scope.
    pub requests: SegmentRequests<'a>,
}

impl<'a> Nak<'a> {
    pub(super) fn read(header: &Header, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let width = header.file_size_len();
        let scope_start = reader.uint(width)?;
        let scope_end = reader.uint(width)?;
        let whole = reader.remaining() / (2 * width) * (2 * width);
        let bytes = reader.take(whole)?;
        reader.finish()?;
        let requests = SegmentRequests::validated(bytes, whole / (2 * width), width);
        Ok(Self { scope_start, scope_end, requests })
    }

    pub(super) fn write(
        &self,
        header: &Header,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        let width = header.file_size_len();
        writer.uint(self.scope_start, width, "start of scope")?;
        writer.uint(self.scope_end, width, "end of scope")?;
        for SegmentRequest { start, end } in self.requests {
            writer.uint(start, width, "segment request")?;
            writer.uint(end, width, "segment request")?;
        }
        Ok(())
    }

    pub(super) fn encoded_len(&self, header: &Header) -> usize {
        2 * header.file_size_len() * (1 + self.requests.len())
    }
}

/// One missing part: `start..end`, in bytes of the file; 0..0 requests the Metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRequest {
    /// First byte missing.
    pub start: u64,
    /// One more than the last byte missing.
    pub end: u64,
}

impl SegmentRequest {
    /// Requests the Metadata PDU.
    pub const METADATA: Self = Self { start: 0, end: 0 };
}

/// Segment requests of a NAK, received or to be sent, with the width of their offsets. Equal if
/// their fields are equal.
pub type SegmentRequests<'a> = List<'a, SegmentRequest, usize>;

impl Entry<'_, usize> for SegmentRequest {
    #[inline]
    fn read(reader: &mut Reader<'_>, width: usize) -> Result<Self, DecodeError> {
        let start = reader.uint(width)?;
        Ok(Self { start, end: reader.uint(width)? })
    }
}

/// Request by the sender for a NAK or a Keep Alive (§5.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Requested response.
    pub response: PromptResponse,
}

/// Report of the receiver's progress (§5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// One more than the last byte received.
    pub progress: u64,
}
