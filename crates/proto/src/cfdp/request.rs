//! What a user asks of an entity (CCSDS 727.0-B-5 §3.4).

use bytes::Bytes;
use engine::{FileName, NameError};
use thiserror::Error;
use wire::cfdp::{
    self, ChecksumType, ConditionCode, FaultHandler, FilestoreAction, FilestoreStatus,
    RecordContinuation, TransactionId, TransmissionMode, Version,
};

use super::config::Remote;

/// A request to send a file, messages or filestore requests to another entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutRequest {
    /// The entity that shall receive it.
    pub destination: u64,
    /// The file here; `None` sends messages and filestore requests alone.
    pub source: Option<FileName>,
    /// The name the receiver is told the file has here; `None` takes the path of `source`.
    pub source_name: Option<String>,
    /// The name the file shall have there.
    pub destination_name: String,
    /// Transmission mode; `None` takes the remote entity's default.
    pub mode: Option<TransmissionMode>,
    /// Whether an unacknowledged receiver shall say how it ended; `None` takes the default.
    pub closure: Option<bool>,
    /// Checksum type; `None` takes the remote entity's default.
    pub checksum: Option<ChecksumType>,
    /// What the receiver shall do in its filestore once the file is there, in this order.
    pub filestore_requests: Vec<FilestoreRequest>,
    /// Messages to the receiver's user, each of at most 255 bytes.
    pub messages: Vec<Bytes>,
    /// What to do about faults in this transaction, at both sides.
    pub fault_handlers: Vec<(ConditionCode, FaultHandler)>,
    /// A flow label of at most 255 bytes.
    pub flow_label: Option<Bytes>,
    /// Something to say with every piece of the file.
    pub segment_metadata: Option<SegmentMetadata>,
    /// Whether record boundaries are said to be preserved.
    pub segmentation_control: bool,
    /// Whether the file's size is left open until its end is reached.
    pub unbounded: bool,
    /// Whether an interrupted transaction of an earlier run, with the same source, destination
    /// and names, goes on in place of a new one.
    pub resume: bool,
}

/// What accompanies every piece of a file (§5.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMetadata {
    /// Where records begin and end.
    pub continuation: RecordContinuation,
    /// At most 63 bytes.
    pub metadata: Bytes,
}

/// Something to be done in the receiver's filestore (§4.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilestoreRequest {
    /// What.
    pub action: FilestoreAction,
    /// With which file.
    pub first: String,
    /// The second name, of actions that take two.
    pub second: String,
}

/// What a filestore request gave (§4.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilestoreResponse {
    /// What was asked.
    pub action: FilestoreAction,
    /// How it ended.
    pub status: FilestoreStatus,
    /// With which file.
    pub first: String,
    /// The second name, of actions that take two.
    pub second: String,
    /// What the filestore says of it; often empty.
    pub message: String,
}

impl PutRequest {
    /// Whether a Metadata PDU can say all this.
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
    pub(crate) fn from_wire(request: &cfdp::FilestoreRequest<'_>) -> Self {
        Self {
            action: request.action,
            first: request.first.to_str_lossy().into_owned(),
            second: request.second.to_str_lossy().into_owned(),
        }
    }

    pub(crate) fn to_wire(&self) -> cfdp::FilestoreRequest<'_> {
        cfdp::FilestoreRequest {
            action: self.action,
            first: self.first.as_str().into(),
            second: self.second.as_str().into(),
        }
    }
}

impl FilestoreResponse {
    pub(crate) fn from_wire(response: &cfdp::FilestoreResponse<'_>) -> Self {
        Self {
            action: response.action,
            status: response.status,
            first: response.first.to_str_lossy().into_owned(),
            second: response.second.to_str_lossy().into_owned(),
            message: response.message.to_str_lossy().into_owned(),
        }
    }

    pub(crate) fn to_wire(&self) -> cfdp::FilestoreResponse<'_> {
        cfdp::FilestoreResponse {
            action: self.action,
            status: self.status,
            first: self.first.as_str().into(),
            second: self.second.as_str().into(),
            message: self.message.as_str().into(),
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::transactions`](super::Limits) are under way.
    #[error("as many transactions as allowed are under way")]
    TooManyTransactions,
    /// There is no such transaction under way.
    #[error("there is no transaction {0}")]
    NoTransaction(TransactionId),
    /// The request does not apply to this transaction.
    #[error("this transaction does not take that request: {0}")]
    NotApplicable(&'static str),
    /// A name cannot be used.
    #[error("the name {name:?} cannot be used: {error}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        error: NameError,
    },
    /// A name or an option does not fit a Metadata PDU, or the PDU does not fit the path.
    #[error("{0} is too long")]
    TooLong(&'static str),
    /// Several paths are known, and the settings do not say which leads to this entity.
    #[error("no path is set for entity {0}, and there are several")]
    NoPath(u64),
    /// A number does not fit its width on the wire.
    #[error("{0} does not fit its width")]
    Width(&'static str),
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// All sequence numbers of the configured width belong to transactions under way.
    #[error("every sequence number of this width is under way")]
    NoSequenceNumber,
    /// The records of an earlier run are not loaded yet, so it is not known what can be resumed,
    /// and which sequence numbers were given.
    #[error("the records of an earlier run are not loaded yet")]
    NotReady,
}
