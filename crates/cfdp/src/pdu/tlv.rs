//! Length-value and type-length-value fields (CCSDS 727.0-B-5 §5.1.8, §5.1.9, §5.4).

use std::borrow::Cow;
use std::fmt;

use wire::cursor::{Reader, Writer};
use wire::list::{Entry, Field, List};
use wire::{DecodeError, EncodeError};

use super::codes::{ConditionCode, FaultHandler, FilestoreAction};
use super::header::{EntityId, Width};

/// String of up to 255 bytes after its length: file names and messages. The book does not define a
/// character set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lv<'a>(pub &'a [u8]);

impl<'a> Lv<'a> {
    /// Returns the bytes as text, with U+FFFD for invalid UTF-8.
    #[must_use]
    pub fn to_str_lossy(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }

    /// Returns the bytes as text, if they are UTF-8.
    #[must_use]
    pub fn to_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Length on the wire in bytes, including the length field.
    #[must_use]
    pub const fn encoded_len(self) -> usize {
        1 + self.0.len()
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let len = usize::from(reader.u8()?);
        Ok(Self(reader.take(len)?))
    }

    pub(super) fn write(
        self,
        writer: &mut Writer<'_>,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        let len = u8::try_from(self.0.len()).map_err(|_| EncodeError::TooLarge { field })?;
        writer.u8(len)?;
        writer.put(self.0)
    }
}

impl<'a> From<&'a str> for Lv<'a> {
    fn from(text: &'a str) -> Self {
        Self(text.as_bytes())
    }
}

impl fmt::Debug for Lv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Lv<'_> {
    /// Writes it in quotes, with control characters escaped so that a name cannot control a
    /// terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_str() {
            Some(text) => write!(f, "{text:?}"),
            None => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// Identifier with its width on the wire, where no header gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdField {
    /// Identifier.
    pub value: u64,
    /// Width.
    pub width: Width,
}

impl IdField {
    /// Creates a field from an entity identifier and its width in a PDU header.
    #[must_use]
    pub const fn new(entity: EntityId, width: Width) -> Self {
        Self { value: entity.0, width }
    }

    /// Returns the value as an entity identifier.
    #[must_use]
    pub const fn entity(self) -> EntityId {
        EntityId(self.value)
    }

    /// Reads all remaining bytes as one identifier.
    pub(super) fn read_all(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        let width = u8::try_from(reader.remaining())
            .ok()
            .and_then(Width::new)
            .ok_or(DecodeError::invalid(offset, "an identifier has 1 to 8 bytes"))?;
        Ok(Self { value: reader.uint(width.bytes())?, width })
    }

    /// Reads an identifier after its length byte.
    pub(super) fn read_lv(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = usize::from(reader.u8()?);
        Self::read_all(reader.part(len)?)
    }

    /// Length of the identifier with its length byte.
    pub(super) const fn lv_len(self) -> usize {
        1 + self.width.bytes()
    }

    pub(super) fn write_lv(
        self,
        writer: &mut Writer<'_>,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        writer.u8(self.width.bytes() as u8)?;
        writer.uint(self.value, self.width.bytes(), field)
    }
}

impl fmt::Display for IdField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)
    }
}

/// Action in the receiver's filestore after the file arrived (§5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilestoreRequest<'a> {
    /// Action.
    pub action: FilestoreAction,
    /// First file name.
    pub first: Lv<'a>,
    /// Second file name; on the wire only for actions that take two.
    pub second: Lv<'a>,
}

impl<'a> FilestoreRequest<'a> {
    /// Length on the wire in bytes, without type and length.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let second = if self.action.has_second_name() { self.second.encoded_len() } else { 0 };
        1 + self.first.encoded_len() + second
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let action = FilestoreAction::from_code(reader.u8()? >> 4);
        let first = Lv::read(reader)?;
        let second = if action.has_second_name() { Lv::read(reader)? } else { Lv::default() };
        Ok(Self { action, first, second })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(nibbles(self.action.code(), 0)?)?;
        self.first.write(writer, "first file name")?;
        if self.action.has_second_name() {
            self.second.write(writer, "second file name")?;
        } else if !self.second.is_empty() {
            return Err(EncodeError::Conflict("this filestore action has one file name"));
        }
        Ok(())
    }
}

/// Status of a filestore request: four bits whose meaning depends on the action (§5.4.2, table
/// 5-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilestoreStatus(pub u8);

impl FilestoreStatus {
    /// Any action: success.
    pub const SUCCESSFUL: Self = Self(0);
    /// Create file: not allowed.
    pub const CREATE_FILE_NOT_ALLOWED: Self = Self(1);
    /// Delete file: no such file.
    pub const DELETE_FILE_MISSING: Self = Self(1);
    /// Delete file: not allowed.
    pub const DELETE_FILE_NOT_ALLOWED: Self = Self(2);
    /// Rename file: no file of the old name.
    pub const RENAME_OLD_MISSING: Self = Self(1);
    /// Rename file: a file of the new name exists.
    pub const RENAME_NEW_EXISTS: Self = Self(2);
    /// Rename file: not allowed.
    pub const RENAME_NOT_ALLOWED: Self = Self(3);
    /// Append file: no first file.
    pub const APPEND_FIRST_MISSING: Self = Self(1);
    /// Append file: no second file.
    pub const APPEND_SECOND_MISSING: Self = Self(2);
    /// Append file: not allowed.
    pub const APPEND_NOT_ALLOWED: Self = Self(3);
    /// Replace file: no first file.
    pub const REPLACE_FIRST_MISSING: Self = Self(1);
    /// Replace file: no second file.
    pub const REPLACE_SECOND_MISSING: Self = Self(2);
    /// Replace file: not allowed.
    pub const REPLACE_NOT_ALLOWED: Self = Self(3);
    /// Create directory: it cannot be created.
    pub const CREATE_DIRECTORY_NOT_POSSIBLE: Self = Self(1);
    /// Remove directory: no such directory.
    pub const REMOVE_DIRECTORY_MISSING: Self = Self(1);
    /// Remove directory: not allowed.
    pub const REMOVE_DIRECTORY_NOT_ALLOWED: Self = Self(2);
    /// Deny file: not allowed.
    pub const DENY_FILE_NOT_ALLOWED: Self = Self(2);
    /// Deny directory: not allowed.
    pub const DENY_DIRECTORY_NOT_ALLOWED: Self = Self(2);
    /// Any action: not attempted, because an earlier request failed.
    pub const NOT_PERFORMED: Self = Self(15);

    /// Describes the status of a response to `action`.
    #[must_use]
    pub const fn meaning(self, action: FilestoreAction) -> &'static str {
        use FilestoreAction as A;
        match (action, self.0) {
            (_, 0) => "successful",
            (_, 15) => "not performed",
            (A::CreateFile, 1)
            | (A::DeleteFile | A::RemoveDirectory | A::DenyFile | A::DenyDirectory, 2)
            | (A::RenameFile | A::AppendFile | A::ReplaceFile, 3) => "not allowed",
            (A::DeleteFile, 1) => "the file does not exist",
            (A::RenameFile, 1) => "the old file does not exist",
            (A::RenameFile, 2) => "the new file exists",
            (A::AppendFile | A::ReplaceFile, 1) => "the first file does not exist",
            (A::AppendFile | A::ReplaceFile, 2) => "the second file does not exist",
            (A::CreateDirectory, 1) => "the directory cannot be created",
            (A::RemoveDirectory, 1) => "the directory does not exist",
            _ => "reserved",
        }
    }
}

/// Response to one filestore request (§5.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilestoreResponse<'a> {
    /// Requested action.
    pub action: FilestoreAction,
    /// Status.
    pub status: FilestoreStatus,
    /// First file name.
    pub first: Lv<'a>,
    /// Second file name; on the wire only for actions that take two.
    pub second: Lv<'a>,
    /// Message of the filestore; may be empty.
    pub message: Lv<'a>,
}

impl<'a> FilestoreResponse<'a> {
    /// Length on the wire in bytes, without type and length.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let second = if self.action.has_second_name() { self.second.encoded_len() } else { 0 };
        1 + self.first.encoded_len() + second + self.message.encoded_len()
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let codes = reader.u8()?;
        let action = FilestoreAction::from_code(codes >> 4);
        let first = Lv::read(reader)?;
        let second = if action.has_second_name() { Lv::read(reader)? } else { Lv::default() };
        let message = Lv::read(reader)?;
        Ok(Self { action, status: FilestoreStatus(codes & 0x0f), first, second, message })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(nibbles(self.action.code(), self.status.0)?)?;
        self.first.write(writer, "first file name")?;
        if self.action.has_second_name() {
            self.second.write(writer, "second file name")?;
        } else if !self.second.is_empty() {
            return Err(EncodeError::Conflict("this filestore action has one file name"));
        }
        self.message.write(writer, "filestore message")
    }
}

/// One type-length-value field (§5.4, table 5-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tlv<'a> {
    /// Type 0.
    FilestoreRequest(FilestoreRequest<'a>),
    /// Type 1.
    FilestoreResponse(FilestoreResponse<'a>),
    /// Type 2; [`super::UserOperation::decode`] decodes the reserved ones.
    MessageToUser(Lv<'a>),
    /// Type 4.
    FaultHandlerOverride {
        /// The fault.
        condition: ConditionCode,
        /// Action on the fault.
        handler: FaultHandler,
    },
    /// Type 5.
    FlowLabel(Lv<'a>),
    /// Type 6: fault location.
    EntityId(IdField),
    /// Type that the book does not define.
    Other {
        /// The type.
        code: u8,
        /// The value.
        value: Lv<'a>,
    },
}

/// Length of type and length, before the value.
const TLV_OVERHEAD: usize = 2;

impl<'a> Tlv<'a> {
    /// Returns the type byte.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::FilestoreRequest(_) => 0,
            Self::FilestoreResponse(_) => 1,
            Self::MessageToUser(_) => 2,
            Self::FaultHandlerOverride { .. } => 4,
            Self::FlowLabel(_) => 5,
            Self::EntityId(_) => 6,
            Self::Other { code, .. } => *code,
        }
    }

    const fn value_len(&self) -> usize {
        match self {
            Self::FilestoreRequest(request) => request.encoded_len(),
            Self::FilestoreResponse(response) => response.encoded_len(),
            Self::MessageToUser(value) | Self::FlowLabel(value) | Self::Other { value, .. } => {
                value.0.len()
            }
            Self::FaultHandlerOverride { .. } => 1,
            Self::EntityId(id) => id.width.bytes(),
        }
    }
}

impl<'a> Entry<'a> for Tlv<'a> {
    fn read(reader: &mut Reader<'a>, (): ()) -> Result<Self, DecodeError> {
        let code = reader.u8()?;
        let len = usize::from(reader.u8()?);
        let mut value = reader.part(len)?;
        let tlv = match code {
            0 => Self::FilestoreRequest(FilestoreRequest::read(&mut value)?),
            1 => Self::FilestoreResponse(FilestoreResponse::read(&mut value)?),
            2 => Self::MessageToUser(Lv(value.rest())),
            4 => {
                let byte = value.u8()?;
                Self::FaultHandlerOverride {
                    condition: ConditionCode::from_code(byte >> 4),
                    handler: FaultHandler::from_code(byte & 0x0f),
                }
            }
            5 => Self::FlowLabel(Lv(value.rest())),
            6 => {
                Self::EntityId(IdField::read_all(Reader::with_base(value.offset(), value.rest()))?)
            }
            code => Self::Other { code, value: Lv(value.rest()) },
        };
        value.finish()?;
        Ok(tlv)
    }
}

impl Field for Tlv<'_> {
    fn encoded_len(&self) -> usize {
        TLV_OVERHEAD + self.value_len()
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let len = u8::try_from(self.value_len())
            .map_err(|_| EncodeError::TooLarge { field: "TLV value" })?;
        writer.put(&[self.code(), len])?;
        match self {
            Self::FilestoreRequest(request) => request.write(writer),
            Self::FilestoreResponse(response) => response.write(writer),
            Self::MessageToUser(value) | Self::FlowLabel(value) | Self::Other { value, .. } => {
                writer.put(value.0)
            }
            Self::FaultHandlerOverride { condition, handler } => {
                writer.u8(nibbles(condition.code(), handler.code())?)
            }
            Self::EntityId(id) => writer.uint(id.value, id.width.bytes(), "entity id"),
        }
    }
}

/// Packs two four-bit codes into a byte.
pub(super) fn nibbles(high: u8, low: u8) -> Result<u8, EncodeError> {
    if high > 0x0f || low > 0x0f {
        return Err(EncodeError::TooLarge { field: "four-bit code" });
    }
    Ok(high << 4 | low)
}

/// TLVs at the end of a PDU, received or to be sent. Equal if their fields are equal.
pub type Tlvs<'a> = List<'a, Tlv<'a>>;

/// Length of TLVs on the wire, in bytes.
pub(super) fn tlvs_len(tlvs: &Tlvs<'_>) -> usize {
    tlvs.bytes().map_or_else(|| tlvs.encoded_len(), <[u8]>::len)
}

/// Writes TLVs. Received ones keep their bytes, with the reserved bits.
pub(super) fn write_tlvs(tlvs: &Tlvs<'_>, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
    match tlvs.bytes() {
        Some(bytes) => writer.put(bytes),
        None => tlvs.write(writer),
    }
}
