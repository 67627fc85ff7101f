//! User operations: messages to user defined by CFDP itself (CCSDS 727.0-B-5 §6).
//!
//! Each starts with the four letters "cfdp" and a type byte.

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::codes::{
    ConditionCode, DeliveryCode, FaultHandler, FileStatus, TransactionStatus, TransmissionMode,
};
use super::directive::{outcome_byte, outcome_from_byte, two_bits};
use super::header::{EntityId, TransactionId, Width};
use super::sfo::{SfoReport, SfoRequest};
use super::tlv::{FilestoreRequest, FilestoreResponse, IdField, Lv, nibbles};

/// Prefix of every user operation.
const PREFIX: &[u8; 4] = b"cfdp";

/// A transaction identifier inside a message, with the widths of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionField {
    /// The source entity.
    pub source: IdField,
    /// The sequence number.
    pub sequence: IdField,
}

impl TransactionField {
    /// Creates a field from a transaction and the widths in its PDU headers.
    #[must_use]
    pub const fn new(id: TransactionId, entity_width: Width, sequence_width: Width) -> Self {
        Self {
            source: IdField::new(id.source, entity_width),
            sequence: IdField { value: id.sequence, width: sequence_width },
        }
    }

    /// Returns the transaction.
    #[must_use]
    pub const fn id(&self) -> TransactionId {
        TransactionId { source: EntityId(self.source.value), sequence: self.sequence.value }
    }

    const fn encoded_len(&self) -> usize {
        1 + self.source.width.bytes() + self.sequence.width.bytes()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let widths = reader.u8()?;
        let source = usize::from(widths >> 4 & 7) + 1;
        let sequence = usize::from(widths & 7) + 1;
        Ok(Self {
            source: IdField::read_all(reader.part(source)?)?,
            sequence: IdField::read_all(reader.part(sequence)?)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let source = self.source.width.bytes();
        let sequence = self.sequence.width.bytes();
        writer.u8((source as u8 - 1) << 4 | (sequence as u8 - 1))?;
        writer.uint(self.source.value, source, "source entity id")?;
        writer.uint(self.sequence.value, sequence, "transaction sequence number")
    }
}

/// Message to user that requests a service of an entity, or responds to such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserOperation<'a> {
    /// Request for a service.
    Request(UserRequest<'a>),
    /// 01, 02, 03, 05, 08: detail of a proxy's put (§6.2).
    Proxy(PutDetail<'a>),
    /// 04: transmission mode of the proxy's put (§6.2.6).
    ProxyTransmissionMode(TransmissionMode),
    /// 06: whether the proxy's put preserves record boundaries (§6.2.8).
    ProxySegmentationControl(bool),
    /// 07: result of the proxy's put (§6.2.10).
    ProxyPutResponse {
        /// Condition code of the end of the put.
        condition: ConditionCode,
        /// Completeness of the delivery.
        delivery: DeliveryCode,
        /// Status of the file.
        file_status: FileStatus,
    },
    /// 0A: the transaction that caused this one (§6.2.13).
    OriginatingTransactionId(TransactionField),
    /// 0B: whether the proxy's put requests closure (§6.2.9).
    ProxyClosureRequest(bool),
    /// 11: response, sent along with the listing file (§6.3.3).
    DirectoryListingResponse {
        /// Whether the listing could be made.
        success: bool,
        /// Requested directory.
        directory: Lv<'a>,
        /// Requested file name.
        file: Lv<'a>,
    },
    /// 21: response (§6.4.3).
    RemoteStatusReportResponse {
        /// State of the transaction.
        status: TransactionStatus,
        /// Whether a report file is sent along.
        success: bool,
        /// Requested transaction.
        transaction: TransactionField,
    },
    /// 31: response to a request to suspend (§6.5.3).
    RemoteSuspendResponse(Suspension),
    /// 39: response to a request to resume (§6.6.3).
    RemoteResumeResponse(Suspension),
    /// 41 to 44, 46: detail of a put through waypoints.
    Sfo(PutDetail<'a>),
    /// 45: progress of a put through waypoints.
    SfoReport(SfoReport<'a>),
    /// Type that the book does not define.
    Other {
        /// The type.
        code: u8,
        /// Bytes behind it.
        data: &'a [u8],
    },
}

/// Request for a service of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRequest<'a> {
    /// 00: put a file on behalf of the requester (§6.2.2).
    ProxyPut(ProxyPut<'a>),
    /// 09: cancel the proxy's put (§6.2.12).
    ProxyPutCancel,
    /// 10: list a directory (§6.3.2).
    DirectoryListing {
        /// Directory.
        directory: Lv<'a>,
        /// File name under which the requester wants the listing.
        file: Lv<'a>,
    },
    /// 20: report the state of a transaction (§6.4.2).
    RemoteStatusReport {
        /// Transaction.
        transaction: TransactionField,
        /// File name under which the requester wants the report.
        file: Lv<'a>,
    },
    /// 30: suspend a transaction (§6.5.2).
    RemoteSuspend(TransactionField),
    /// 38: resume a transaction (§6.6.2).
    RemoteResume(TransactionField),
    /// 40: forward a file toward its destination.
    Sfo(SfoRequest<'a>),
}

/// Put requested of another entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyPut<'a> {
    /// Entity that receives the file.
    pub destination: IdField,
    /// Name at the sender.
    pub source_name: Lv<'a>,
    /// Name at the receiver.
    pub destination_name: Lv<'a>,
}

/// Detail of a put that another entity makes, or waypoints forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutDetail<'a> {
    /// Message to the user at the destination (§6.2.3).
    MessageToUser(Lv<'a>),
    /// Filestore request for the destination (§6.2.4).
    FilestoreRequest(FilestoreRequest<'a>),
    /// Fault handler override of the put, or of the hops (§6.2.5).
    FaultHandlerOverride {
        /// The fault.
        condition: ConditionCode,
        /// Action on the fault.
        handler: FaultHandler,
    },
    /// Flow label of the put, or of the hops (§6.2.7).
    FlowLabel(Lv<'a>),
    /// Filestore response of the destination (§6.2.11).
    FilestoreResponse(FilestoreResponse<'a>),
}

/// Whether a transaction is suspended, in a response to a request to suspend or resume it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Whether the transaction is suspended now.
    pub suspended: bool,
    /// State of the transaction.
    pub status: TransactionStatus,
    /// Requested transaction.
    pub transaction: TransactionField,
}

impl<'a> UserOperation<'a> {
    /// Decodes the content of a message to user; `None` if it is not a user operation.
    ///
    /// # Errors
    /// The message has the prefix of a user operation and is malformed.
    pub fn decode(message: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(message);
        match reader.take(PREFIX.len()) {
            Ok(prefix) if prefix == PREFIX => {}
            Ok(_) | Err(_) => return Ok(None),
        }
        let code = reader.u8()?;
        let operation = match UserRequest::read(code, &mut reader)? {
            Some(request) => Self::Request(request),
            None => Self::read(code, &mut reader)?,
        };
        reader.finish()?;
        Ok(Some(operation))
    }

    fn read(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x01..=0x03 | 0x05 | 0x08 => Self::Proxy(PutDetail::read(code, reader)?),
            0x04 => Self::ProxyTransmissionMode(match reader.u8()? & 1 {
                0 => TransmissionMode::Acknowledged,
                _ => TransmissionMode::Unacknowledged,
            }),
            0x06 => Self::ProxySegmentationControl(reader.u8()? & 1 != 0),
            0x07 => {
                let (condition, delivery, file_status) = outcome_from_byte(reader.u8()?);
                Self::ProxyPutResponse { condition, delivery, file_status }
            }
            0x0a => Self::OriginatingTransactionId(TransactionField::read(reader)?),
            0x0b => Self::ProxyClosureRequest(reader.u8()? & 1 != 0),
            0x11 => Self::DirectoryListingResponse {
                success: reader.u8()? & 0x80 == 0,
                directory: Lv::read(reader)?,
                file: Lv::read(reader)?,
            },
            0x21 => {
                let byte = reader.u8()?;
                Self::RemoteStatusReportResponse {
                    status: TransactionStatus::from_code(byte >> 6),
                    success: byte & 1 == 0,
                    transaction: TransactionField::read(reader)?,
                }
            }
            0x31 => Self::RemoteSuspendResponse(Suspension::read(reader)?),
            0x39 => Self::RemoteResumeResponse(Suspension::read(reader)?),
            0x41..=0x44 | 0x46 => Self::Sfo(PutDetail::read(code, reader)?),
            0x45 => Self::SfoReport(SfoReport::read(reader)?),
            code => Self::Other { code, data: reader.rest() },
        })
    }

    /// Returns the type byte.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Request(request) => request.code(),
            Self::Proxy(detail) => detail.proxy_code(),
            Self::ProxyTransmissionMode(_) => 0x04,
            Self::ProxySegmentationControl(_) => 0x06,
            Self::ProxyPutResponse { .. } => 0x07,
            Self::OriginatingTransactionId(_) => 0x0a,
            Self::ProxyClosureRequest(_) => 0x0b,
            Self::DirectoryListingResponse { .. } => 0x11,
            Self::RemoteStatusReportResponse { .. } => 0x21,
            Self::RemoteSuspendResponse(_) => 0x31,
            Self::RemoteResumeResponse(_) => 0x39,
            Self::Sfo(detail) => detail.sfo_code(),
            Self::SfoReport(_) => 0x45,
            Self::Other { code, .. } => *code,
        }
    }

    /// Length of the message, in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let rest = match self {
            Self::Request(request) => request.encoded_len(),
            Self::Proxy(detail) | Self::Sfo(detail) => detail.encoded_len(),
            Self::ProxyTransmissionMode(_)
            | Self::ProxySegmentationControl(_)
            | Self::ProxyPutResponse { .. }
            | Self::ProxyClosureRequest(_) => 1,
            Self::OriginatingTransactionId(transaction) => transaction.encoded_len(),
            Self::DirectoryListingResponse { directory, file, .. } => {
                1 + directory.encoded_len() + file.encoded_len()
            }
            Self::RemoteStatusReportResponse { transaction, .. }
            | Self::RemoteSuspendResponse(Suspension { transaction, .. })
            | Self::RemoteResumeResponse(Suspension { transaction, .. }) => {
                1 + transaction.encoded_len()
            }
            Self::SfoReport(report) => report.encoded_len(),
            Self::Other { data, .. } => data.len(),
        };
        PREFIX.len() + 1 + rest
    }

    /// Writes the message to the start of `out` and returns its length, [`Self::encoded_len`].
    ///
    /// # Errors
    /// `out` is too short, or a value does not fit its field.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let mut writer = Writer::new(out);
        writer.put(PREFIX)?;
        writer.u8(self.code())?;
        self.write_contents(&mut writer)?;
        Ok(writer.position())
    }

    /// Encodes the message into a vector.
    ///
    /// # Errors
    /// A value does not fit its field.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out)?;
        Ok(out)
    }

    fn write_contents(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Request(request) => request.write(writer),
            Self::Proxy(detail) | Self::Sfo(detail) => detail.write(writer),
            Self::ProxyTransmissionMode(mode) => {
                writer.u8(u8::from(*mode == TransmissionMode::Unacknowledged))
            }
            Self::ProxySegmentationControl(flag) | Self::ProxyClosureRequest(flag) => {
                writer.u8(u8::from(*flag))
            }
            Self::ProxyPutResponse { condition, delivery, file_status } => {
                writer.u8(outcome_byte(*condition, *delivery, *file_status)?)
            }
            Self::OriginatingTransactionId(transaction) => transaction.write(writer),
            Self::DirectoryListingResponse { success, directory, file } => {
                writer.u8(u8::from(!*success) << 7)?;
                directory.write(writer, "directory name")?;
                file.write(writer, "directory file name")
            }
            Self::RemoteStatusReportResponse { status, success, transaction } => {
                let status = two_bits(status.code(), "transaction status")?;
                writer.u8(status << 6 | u8::from(!*success))?;
                transaction.write(writer)
            }
            Self::RemoteSuspendResponse(suspension) | Self::RemoteResumeResponse(suspension) => {
                suspension.write(writer)
            }
            Self::SfoReport(report) => report.write(writer),
            Self::Other { data, .. } => writer.put(data),
        }
    }
}

impl<'a> From<UserRequest<'a>> for UserOperation<'a> {
    fn from(request: UserRequest<'a>) -> Self {
        Self::Request(request)
    }
}

impl<'a> UserRequest<'a> {
    const fn code(&self) -> u8 {
        match self {
            Self::ProxyPut(_) => 0x00,
            Self::ProxyPutCancel => 0x09,
            Self::DirectoryListing { .. } => 0x10,
            Self::RemoteStatusReport { .. } => 0x20,
            Self::RemoteSuspend(_) => 0x30,
            Self::RemoteResume(_) => 0x38,
            Self::Sfo(_) => 0x40,
        }
    }

    /// Reads the contents of a message of this type; `None` if it is no request.
    fn read(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match code {
            0x00 => Self::ProxyPut(ProxyPut {
                destination: IdField::read_lv(reader)?,
                source_name: Lv::read(reader)?,
                destination_name: Lv::read(reader)?,
            }),
            0x09 => Self::ProxyPutCancel,
            0x10 => {
                Self::DirectoryListing { directory: Lv::read(reader)?, file: Lv::read(reader)? }
            }
            0x20 => Self::RemoteStatusReport {
                transaction: TransactionField::read(reader)?,
                file: Lv::read(reader)?,
            },
            0x30 => Self::RemoteSuspend(TransactionField::read(reader)?),
            0x38 => Self::RemoteResume(TransactionField::read(reader)?),
            0x40 => Self::Sfo(SfoRequest::read(reader)?),
            _ => return Ok(None),
        }))
    }

    const fn encoded_len(&self) -> usize {
        match self {
            Self::ProxyPut(ProxyPut { destination, source_name, destination_name }) => {
                destination.lv_len() + source_name.encoded_len() + destination_name.encoded_len()
            }
            Self::ProxyPutCancel => 0,
            Self::DirectoryListing { directory, file } => {
                directory.encoded_len() + file.encoded_len()
            }
            Self::RemoteStatusReport { transaction, file } => {
                transaction.encoded_len() + file.encoded_len()
            }
            Self::RemoteSuspend(transaction) | Self::RemoteResume(transaction) => {
                transaction.encoded_len()
            }
            Self::Sfo(request) => request.encoded_len(),
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::ProxyPut(ProxyPut { destination, source_name, destination_name }) => {
                destination.write_lv(writer, "destination entity id")?;
                source_name.write(writer, "source file name")?;
                destination_name.write(writer, "destination file name")
            }
            Self::ProxyPutCancel => Ok(()),
            Self::DirectoryListing { directory, file } => {
                directory.write(writer, "directory name")?;
                file.write(writer, "directory file name")
            }
            Self::RemoteStatusReport { transaction, file } => {
                transaction.write(writer)?;
                file.write(writer, "report file name")
            }
            Self::RemoteSuspend(transaction) | Self::RemoteResume(transaction) => {
                transaction.write(writer)
            }
            Self::Sfo(request) => request.write(writer),
        }
    }
}

impl<'a> PutDetail<'a> {
    const fn proxy_code(&self) -> u8 {
        match self {
            Self::MessageToUser(_) => 0x01,
            Self::FilestoreRequest(_) => 0x02,
            Self::FaultHandlerOverride { .. } => 0x03,
            Self::FlowLabel(_) => 0x05,
            Self::FilestoreResponse(_) => 0x08,
        }
    }

    const fn sfo_code(&self) -> u8 {
        match self {
            Self::MessageToUser(_) => 0x41,
            Self::FlowLabel(_) => 0x42,
            Self::FaultHandlerOverride { .. } => 0x43,
            Self::FilestoreRequest(_) => 0x44,
            Self::FilestoreResponse(_) => 0x46,
        }
    }

    /// Reads the contents of a message of one of the types above.
    fn read(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x01 | 0x41 => Self::MessageToUser(Lv::read(reader)?),
            0x02 | 0x44 => Self::FilestoreRequest(read_lv(reader, FilestoreRequest::read)?),
            0x03 | 0x43 => {
                let byte = reader.u8()?;
                let condition = ConditionCode::from_code(byte >> 4);
                let handler = FaultHandler::from_code(byte & 0x0f);
                Self::FaultHandlerOverride { condition, handler }
            }
            0x05 | 0x42 => Self::FlowLabel(Lv::read(reader)?),
            _ => Self::FilestoreResponse(read_lv(reader, FilestoreResponse::read)?),
        })
    }

    const fn encoded_len(&self) -> usize {
        match self {
            Self::MessageToUser(value) | Self::FlowLabel(value) => value.encoded_len(),
            Self::FilestoreRequest(request) => 1 + request.encoded_len(),
            Self::FilestoreResponse(response) => 1 + response.encoded_len(),
            Self::FaultHandlerOverride { .. } => 1,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::MessageToUser(value) => value.write(writer, "message to user"),
            Self::FlowLabel(value) => value.write(writer, "flow label"),
            Self::FilestoreRequest(request) => {
                write_len(request.encoded_len(), writer)?;
                request.write(writer)
            }
            Self::FilestoreResponse(response) => {
                write_len(response.encoded_len(), writer)?;
                response.write(writer)
            }
            Self::FaultHandlerOverride { condition, handler } => {
                writer.u8(nibbles(condition.code(), handler.code())?)
            }
        }
    }
}

impl Suspension {
    /// Suspension indicator (bit 7) and transaction status (bits 6-5), then the transaction.
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        Ok(Self {
            suspended: byte & 0x80 != 0,
            status: TransactionStatus::from_code(byte >> 5 & 3),
            transaction: TransactionField::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let status = two_bits(self.status.code(), "transaction status")?;
        writer.u8(u8::from(self.suspended) << 7 | status << 5)?;
        self.transaction.write(writer)
    }
}

fn write_len(len: usize, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
    writer.u8(u8::try_from(len).map_err(|_| EncodeError::TooLarge { field: "LV value" })?)
}

/// Reads a length, and a value that is this long.
fn read_lv<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let len = usize::from(reader.u8()?);
    let mut part = reader.part(len)?;
    let value = read(&mut part)?;
    part.finish()?;
    Ok(value)
}
