//! Requests of a user to an entity (CCSDS 727.0-B-5 §3.4).

use bytes::Bytes;
use engine::{FileName, NameError};
use session::StoreRefusal;
use thiserror::Error;

use super::config::Remote;
use crate::pdu::{
    self, ChecksumType, ConditionCode, FaultHandler, FilestoreAction, FilestoreStatus,
    RecordContinuation, TransactionId, TransmissionMode, Version,
};

/// Request to send a file, messages or filestore requests to another entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutRequest {
    /// Receiving entity.
    pub destination: u64,
    /// Local file; `None` sends only messages and filestore requests.
    pub source: Option<FileName>,
    /// Name of the file here as announced to the receiver; `None` uses the path of `source`.
    pub source_name: Option<String>,
    /// Name of the file at the receiver.
    pub destination_name: String,
    /// Transmission mode; `None` uses the remote entity's default.
    pub mode: Option<TransmissionMode>,
    /// Whether an unacknowledged receiver reports the outcome; `None` uses the default.
    pub closure: Option<bool>,
    /// Checksum type; `None` uses the remote entity's default.
    pub checksum: Option<ChecksumType>,
    /// Filestore requests that the receiver carries out after delivery, in this order.
    pub filestore_requests: Vec<FilestoreRequest>,
    /// Messages to the receiver's user, at most 255 bytes each.
    pub messages: Vec<Bytes>,
    /// Fault handlers of this transaction, at both sides.
    pub fault_handlers: Vec<(ConditionCode, FaultHandler)>,
    /// Flow label of at most 255 bytes.
    pub flow_label: Option<Bytes>,
    /// Segment metadata sent with every segment of the file.
    pub segment_metadata: Option<SegmentMetadata>,
    /// Whether record boundaries are announced as preserved.
    pub segmentation_control: bool,
    /// Whether the file's size is unknown until its end is reached.
    pub unbounded: bool,
    /// Whether an interrupted transaction of an earlier run with the same source, destination and
    /// names is resumed instead of starting a new one.
    pub resume: bool,
}

/// Segment metadata of a file (§5.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMetadata {
    /// Record continuation state.
    pub continuation: RecordContinuation,
    /// Metadata of at most 63 bytes.
    pub metadata: Bytes,
}

/// Filestore request to the receiver (§4.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilestoreRequest {
    /// Action.
    pub action: FilestoreAction,
    /// First file name.
    pub first: String,
    /// Second file name, for actions that take two.
    pub second: String,
}

/// Filestore response (§4.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilestoreResponse {
    /// Requested action.
    pub action: FilestoreAction,
    /// Status.
    pub status: FilestoreStatus,
    /// First file name.
    pub first: String,
    /// Second file name, for actions that take two.
    pub second: String,
    /// Filestore message; often empty.
    pub message: String,
}

impl PutRequest {
    /// Checks that a Metadata PDU can express the request.
    pub(crate) fn check(&self, remote: &Remote) -> Result<(), RequestError> {
        let short = |len: usize, what| {
            if len > 255 { Err(RequestError::TooLong(what)) } else { Ok(()) }
        };
        if let Some(source) = &self.source {
            short(self.source_name.as_deref().unwrap_or(source.path()).len(), "the source name")?;
            short(self.destination_name.len(), "the destination name")?;
            if self.destination_name.is_empty() {
                return Err(RequestError::Conflict("a file needs a destination name"));
            }
        } else if self.unbounded {
            return Err(RequestError::Conflict("only a file can be unbounded"));
        }
        for message in &self.messages {
            short(message.len(), "a message to the user")?;
        }
        short(self.flow_label.as_ref().map_or(0, Bytes::len), "the flow label")?;
        for request in &self.filestore_requests {
            let second =
                if request.action.has_second_name() { request.second.len() + 1 } else { 0 };
            short(request.first.len() + 2 + second, "a filestore request")?;
            if !request.action.has_second_name() && !request.second.is_empty() {
                return Err(RequestError::Conflict("this filestore action takes one name"));
            }
        }
        let metadata = self.segment_metadata.as_ref();
        if metadata.is_some_and(|metadata| metadata.metadata.len() > 63) {
            return Err(RequestError::TooLong("the segment metadata"));
        }
        if metadata.is_some() && remote.version == Version::V0 {
            return Err(RequestError::Conflict("version 0 has no segment metadata"));
        }
        let checksum = self.checksum.unwrap_or(remote.checksum);
        if !checksum.is_supported() {
            return Err(RequestError::Conflict("this checksum type cannot be computed"));
        }
        Ok(())
    }
}

impl FilestoreRequest {
    pub(crate) fn from_wire(request: &pdu::FilestoreRequest<'_>) -> Self {
        Self {
            action: request.action,
            first: request.first.to_str_lossy().into_owned(),
            second: request.second.to_str_lossy().into_owned(),
        }
    }

    pub(crate) fn to_wire(&self) -> pdu::FilestoreRequest<'_> {
        pdu::FilestoreRequest {
            action: self.action,
            first: self.first.as_str().into(),
            second: self.second.as_str().into(),
        }
    }
}

impl FilestoreResponse {
    /// Response of a receiver that cannot store the file itself: a Finished PDU has no other field
    /// for the reason (§5.2.3). No request asked for it.
    pub(crate) fn refused(file: &str, reason: StoreRefusal) -> Self {
        Self {
            action: FilestoreAction::CreateFile,
            status: FilestoreStatus::CREATE_FILE_NOT_ALLOWED,
            first: file.to_owned(),
            second: String::new(),
            message: reason.to_string(),
        }
    }

    /// Reason why the receiver cannot store the file, if the response has one.
    pub fn store_refusal(&self) -> Option<StoreRefusal> {
        let is_refused = self.action == FilestoreAction::CreateFile
            && self.status == FilestoreStatus::CREATE_FILE_NOT_ALLOWED;
        StoreRefusal::from_text(&self.message).filter(|_| is_refused)
    }

    pub(crate) fn from_wire(response: &pdu::FilestoreResponse<'_>) -> Self {
        Self {
            action: response.action,
            status: response.status,
            first: response.first.to_str_lossy().into_owned(),
            second: response.second.to_str_lossy().into_owned(),
            message: response.message.to_str_lossy().into_owned(),
        }
    }

    pub(crate) fn to_wire(&self) -> pdu::FilestoreResponse<'_> {
        pdu::FilestoreResponse {
            action: self.action,
            status: self.status,
            first: self.first.as_str().into(),
            second: self.second.as_str().into(),
            message: self.message.as_str().into(),
        }
    }
}

/// Error of a local request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::transactions`](super::Limits) transactions are under way.
    #[error("as many transactions as allowed are under way")]
    TooManyTransactions,
    /// No transaction with this identifier is under way.
    #[error("there is no transaction {0}")]
    NoTransaction(TransactionId),
    /// The request does not apply to this transaction.
    #[error("the request does not apply to this transaction: {0}")]
    NotApplicable(&'static str),
    /// The name is not usable.
    #[error("the name {name:?} cannot be used: {error}")]
    Name {
        /// The name.
        name: String,
        /// Reason.
        error: NameError,
    },
    /// A name or an option does not fit a Metadata PDU, or the PDU does not fit the path.
    #[error("{0} is too long")]
    TooLong(&'static str),
    /// There are several paths, and no setting names the path to this entity.
    #[error("no path is set for entity {0}, and there are several")]
    NoPath(u64),
    /// A number does not fit its width on the wire.
    #[error("{0} does not fit its width")]
    Width(&'static str),
    /// Two settings are incompatible.
    #[error("{0}")]
    Conflict(&'static str),
    /// All sequence numbers of the configured width are in use by transactions under way.
    #[error("every sequence number of this width is under way")]
    NoSequenceNumber,
    /// The records of an earlier run are not loaded yet: resumable transactions and used sequence
    /// numbers are unknown.
    #[error("the records of an earlier run are not loaded yet")]
    NotReady,
}
