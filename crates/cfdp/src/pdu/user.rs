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
    /// 00: put a file on behalf of the requester (§6.2.2).
    ProxyPutRequest {
        /// Entity that receives the file.
        destination: IdField,
        /// Name at the sender.
        source_name: Lv<'a>,
        /// Name at the receiver.
        destination_name: Lv<'a>,
    },
    /// 01: a message to user of the proxy's put (§6.2.3).
    ProxyMessageToUser(Lv<'a>),
    /// 02: a filestore request of the proxy's put (§6.2.4).
    ProxyFilestoreRequest(FilestoreRequest<'a>),
    /// 03: a fault handler override of the proxy's put (§6.2.5).
    ProxyFaultHandlerOverride {
        /// The fault.
        condition: ConditionCode,
        /// Action on the fault.
        handler: FaultHandler,
    },
    /// 04: transmission mode of the proxy's put (§6.2.6).
    ProxyTransmissionMode(TransmissionMode),
    /// 05: flow label of the proxy's put (§6.2.7).
    ProxyFlowLabel(Lv<'a>),
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
    /// 08: a filestore response to the proxy's put (§6.2.11).
    ProxyFilestoreResponse(FilestoreResponse<'a>),
    /// 09: cancel the proxy's put (§6.2.12).
    ProxyPutCancel,
    /// 0A: the transaction that caused this one (§6.2.13).
    OriginatingTransactionId(TransactionField),
    /// 0B: whether the proxy's put requests closure (§6.2.9).
    ProxyClosureRequest(bool),
    /// 10: list a directory (§6.3.2).
    DirectoryListingRequest {
        /// Directory.
        directory: Lv<'a>,
        /// File name under which the requester wants the listing.
        file: Lv<'a>,
    },
    /// 11: response, sent along with the listing file (§6.3.3).
    DirectoryListingResponse {
        /// Whether the listing could be made.
        success: bool,
        /// Requested directory.
        directory: Lv<'a>,
        /// Requested file name.
        file: Lv<'a>,
    },
    /// 20: report the state of a transaction (§6.4.2).
    RemoteStatusReportRequest {
        /// Transaction.
        transaction: TransactionField,
        /// File name under which the requester wants the report.
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
    /// 30: suspend a transaction (§6.5.2).
    RemoteSuspendRequest(TransactionField),
    /// 31: response (§6.5.3).
    RemoteSuspendResponse {
        /// Whether the transaction is suspended now.
        suspended: bool,
        /// State of the transaction.
        status: TransactionStatus,
        /// Requested transaction.
        transaction: TransactionField,
    },
    /// 38: resume a transaction (§6.6.2).
    RemoteResumeRequest(TransactionField),
    /// 39: response (§6.6.3).
    RemoteResumeResponse {
        /// Whether the transaction is still suspended.
        suspended: bool,
        /// State of the transaction.
        status: TransactionStatus,
        /// Requested transaction.
        transaction: TransactionField,
    },
    /// 40: forward a file toward its destination.
    SfoRequest(SfoRequest<'a>),
    /// 41: a message to user for the destination.
    SfoMessageToUser(Lv<'a>),
    /// 42: flow label of the hops.
    SfoFlowLabel(Lv<'a>),
    /// 43: fault handler override of the hops.
    SfoFaultHandlerOverride {
        /// The fault.
        condition: ConditionCode,
        /// Action on the fault.
        handler: FaultHandler,
    },
    /// 44: a filestore request for the destination.
    SfoFilestoreRequest(FilestoreRequest<'a>),
    /// 45: progress of the file.
    SfoReport(SfoReport<'a>),
    /// 46: a filestore response from the destination.
    SfoFilestoreResponse(FilestoreResponse<'a>),
    /// Type that the book does not define.
    Other {
        /// The type.
        code: u8,
        /// Bytes behind it.
        data: &'a [u8],
    },
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
        let operation = match code {
            0x00..=0x0b => Self::read_proxy(code, &mut reader)?,
            0x10..=0x39 => Self::read_remote(code, &mut reader)?,
            code => Self::read_sfo(code, &mut reader)?,
        };
        reader.finish()?;
        Ok(Some(operation))
    }

    fn read_proxy(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x00 => Self::ProxyPutRequest {
                destination: IdField::read_lv(reader)?,
                source_name: Lv::read(reader)?,
                destination_name: Lv::read(reader)?,
            },
            0x01 => Self::ProxyMessageToUser(Lv::read(reader)?),
            0x02 => Self::ProxyFilestoreRequest(read_lv(reader, FilestoreRequest::read)?),
            0x03 => {
                let (condition, handler) = fault_handler_override(reader.u8()?);
                Self::ProxyFaultHandlerOverride { condition, handler }
            }
            0x04 => Self::ProxyTransmissionMode(match reader.u8()? & 1 {
                0 => TransmissionMode::Acknowledged,
                _ => TransmissionMode::Unacknowledged,
            }),
            0x05 => Self::ProxyFlowLabel(Lv::read(reader)?),
            0x06 => Self::ProxySegmentationControl(reader.u8()? & 1 != 0),
            0x07 => {
                let (condition, delivery, file_status) = outcome_from_byte(reader.u8()?);
                Self::ProxyPutResponse { condition, delivery, file_status }
            }
            0x08 => Self::ProxyFilestoreResponse(read_lv(reader, FilestoreResponse::read)?),
            0x09 => Self::ProxyPutCancel,
            0x0a => Self::OriginatingTransactionId(TransactionField::read(reader)?),
            0x0b => Self::ProxyClosureRequest(reader.u8()? & 1 != 0),
            code => Self::Other { code, data: reader.rest() },
        })
    }

    fn read_remote(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x10 => Self::DirectoryListingRequest {
                directory: Lv::read(reader)?,
                file: Lv::read(reader)?,
            },
            0x11 => Self::DirectoryListingResponse {
                success: reader.u8()? & 0x80 == 0,
                directory: Lv::read(reader)?,
                file: Lv::read(reader)?,
            },
            0x20 => Self::RemoteStatusReportRequest {
                transaction: TransactionField::read(reader)?,
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
            0x30 => Self::RemoteSuspendRequest(TransactionField::read(reader)?),
            0x31 => {
                let (suspended, status) = suspension(reader.u8()?);
                let transaction = TransactionField::read(reader)?;
                Self::RemoteSuspendResponse { suspended, status, transaction }
            }
            0x38 => Self::RemoteResumeRequest(TransactionField::read(reader)?),
            0x39 => {
                let (suspended, status) = suspension(reader.u8()?);
                let transaction = TransactionField::read(reader)?;
                Self::RemoteResumeResponse { suspended, status, transaction }
            }
            code => Self::Other { code, data: reader.rest() },
        })
    }

    fn read_sfo(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            0x40 => Self::SfoRequest(SfoRequest::read(reader)?),
            0x41 => Self::SfoMessageToUser(Lv::read(reader)?),
            0x42 => Self::SfoFlowLabel(Lv::read(reader)?),
            0x43 => {
                let (condition, handler) = fault_handler_override(reader.u8()?);
                Self::SfoFaultHandlerOverride { condition, handler }
            }
            0x44 => Self::SfoFilestoreRequest(read_lv(reader, FilestoreRequest::read)?),
            0x45 => Self::SfoReport(SfoReport::read(reader)?),
            0x46 => Self::SfoFilestoreResponse(read_lv(reader, FilestoreResponse::read)?),
            code => Self::Other { code, data: reader.rest() },
        })
    }

    /// Returns the type byte.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::ProxyPutRequest { .. } => 0x00,
            Self::ProxyMessageToUser(_) => 0x01,
            Self::ProxyFilestoreRequest(_) => 0x02,
            Self::ProxyFaultHandlerOverride { .. } => 0x03,
            Self::ProxyTransmissionMode(_) => 0x04,
            Self::ProxyFlowLabel(_) => 0x05,
            Self::ProxySegmentationControl(_) => 0x06,
            Self::ProxyPutResponse { .. } => 0x07,
            Self::ProxyFilestoreResponse(_) => 0x08,
            Self::ProxyPutCancel => 0x09,
            Self::OriginatingTransactionId(_) => 0x0a,
            Self::ProxyClosureRequest(_) => 0x0b,
            Self::DirectoryListingRequest { .. } => 0x10,
            Self::DirectoryListingResponse { .. } => 0x11,
            Self::RemoteStatusReportRequest { .. } => 0x20,
            Self::RemoteStatusReportResponse { .. } => 0x21,
            Self::RemoteSuspendRequest(_) => 0x30,
            Self::RemoteSuspendResponse { .. } => 0x31,
            Self::RemoteResumeRequest(_) => 0x38,
            Self::RemoteResumeResponse { .. } => 0x39,
            Self::SfoRequest(_) => 0x40,
            Self::SfoMessageToUser(_) => 0x41,
            Self::SfoFlowLabel(_) => 0x42,
            Self::SfoFaultHandlerOverride { .. } => 0x43,
            Self::SfoFilestoreRequest(_) => 0x44,
            Self::SfoReport(_) => 0x45,
            Self::SfoFilestoreResponse(_) => 0x46,
            Self::Other { code, .. } => *code,
        }
    }

    /// Length of the message, in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let rest = match self {
            Self::ProxyPutRequest { destination, source_name, destination_name } => {
                destination.lv_len() + source_name.encoded_len() + destination_name.encoded_len()
            }
            Self::ProxyMessageToUser(value)
            | Self::ProxyFlowLabel(value)
            | Self::SfoMessageToUser(value)
            | Self::SfoFlowLabel(value) => value.encoded_len(),
            Self::ProxyFilestoreRequest(request) | Self::SfoFilestoreRequest(request) => {
                1 + request.encoded_len()
            }
            Self::ProxyFilestoreResponse(response) | Self::SfoFilestoreResponse(response) => {
                1 + response.encoded_len()
            }
            Self::ProxyFaultHandlerOverride { .. }
            | Self::SfoFaultHandlerOverride { .. }
            | Self::ProxyTransmissionMode(_)
            | Self::ProxySegmentationControl(_)
            | Self::ProxyPutResponse { .. }
            | Self::ProxyClosureRequest(_) => 1,
            Self::ProxyPutCancel => 0,
            Self::OriginatingTransactionId(transaction)
            | Self::RemoteSuspendRequest(transaction)
            | Self::RemoteResumeRequest(transaction) => transaction.encoded_len(),
            Self::DirectoryListingRequest { directory, file } => {
                directory.encoded_len() + file.encoded_len()
            }
            Self::DirectoryListingResponse { directory, file, .. } => {
                1 + directory.encoded_len() + file.encoded_len()
            }
            Self::RemoteStatusReportRequest { transaction, file } => {
                transaction.encoded_len() + file.encoded_len()
            }
            Self::RemoteStatusReportResponse { transaction, .. }
            | Self::RemoteSuspendResponse { transaction, .. }
            | Self::RemoteResumeResponse { transaction, .. } => 1 + transaction.encoded_len(),
            Self::SfoRequest(request) => request.encoded_len(),
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
            Self::ProxyPutRequest { destination, source_name, destination_name } => {
                destination.write_lv(writer, "destination entity id")?;
                source_name.write(writer, "source file name")?;
                destination_name.write(writer, "destination file name")
            }
            Self::ProxyMessageToUser(value) | Self::SfoMessageToUser(value) => {
                value.write(writer, "message to user")
            }
            Self::ProxyFlowLabel(value) | Self::SfoFlowLabel(value) => {
                value.write(writer, "flow label")
            }
            Self::ProxyFilestoreRequest(request) | Self::SfoFilestoreRequest(request) => {
                write_len(request.encoded_len(), writer)?;
                request.write(writer)
            }
            Self::ProxyFilestoreResponse(response) | Self::SfoFilestoreResponse(response) => {
                write_len(response.encoded_len(), writer)?;
                response.write(writer)
            }
            Self::ProxyFaultHandlerOverride { condition, handler }
            | Self::SfoFaultHandlerOverride { condition, handler } => {
                writer.u8(nibbles(condition.code(), handler.code())?)
            }
            Self::ProxyTransmissionMode(mode) => {
                writer.u8(u8::from(*mode == TransmissionMode::Unacknowledged))
            }
            Self::ProxySegmentationControl(flag) | Self::ProxyClosureRequest(flag) => {
                writer.u8(u8::from(*flag))
            }
            Self::ProxyPutResponse { condition, delivery, file_status } => {
                writer.u8(outcome_byte(*condition, *delivery, *file_status)?)
            }
            Self::ProxyPutCancel => Ok(()),
            Self::OriginatingTransactionId(transaction)
            | Self::RemoteSuspendRequest(transaction)
            | Self::RemoteResumeRequest(transaction) => transaction.write(writer),
            Self::DirectoryListingRequest { directory, file } => {
                directory.write(writer, "directory name")?;
                file.write(writer, "directory file name")
            }
            Self::DirectoryListingResponse { success, directory, file } => {
                writer.u8(u8::from(!*success) << 7)?;
                directory.write(writer, "directory name")?;
                file.write(writer, "directory file name")
            }
            Self::RemoteStatusReportRequest { transaction, file } => {
                transaction.write(writer)?;
                file.write(writer, "report file name")
            }
            Self::RemoteStatusReportResponse { status, success, transaction } => {
                let status = two_bits(status.code(), "transaction status")?;
                writer.u8(status << 6 | u8::from(!*success))?;
                transaction.write(writer)
            }
            Self::RemoteSuspendResponse { suspended, status, transaction }
            | Self::RemoteResumeResponse { suspended, status, transaction } => {
                let status = two_bits(status.code(), "transaction status")?;
                writer.u8(u8::from(*suspended) << 7 | status << 5)?;
                transaction.write(writer)
            }
            Self::SfoRequest(request) => request.write(writer),
            Self::SfoReport(report) => report.write(writer),
            Self::Other { data, .. } => writer.put(data),
        }
    }
}

/// Decodes suspension indicator (bit 7) and transaction status (bits 6-5) of §6.5.3 and §6.6.3.
fn suspension(byte: u8) -> (bool, TransactionStatus) {
    (byte & 0x80 != 0, TransactionStatus::from_code(byte >> 5 & 3))
}

fn fault_handler_override(byte: u8) -> (ConditionCode, FaultHandler) {
    (ConditionCode::from_code(byte >> 4), FaultHandler::from_code(byte & 0x0f))
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
