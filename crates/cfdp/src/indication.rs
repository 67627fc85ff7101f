//! Indications of an entity to its user (CCSDS 727.0-B-5 §3.4).

pub(crate) mod user_operations;

use bytes::Bytes;
use engine::PathId;
use session::StoreRefusal;
use wire::DecodeError;

use self::user_operations::OperationIndication;
use super::request::FilestoreResponse;
use crate::pdu::{
    ChecksumType, ConditionCode, DeliveryCode, EntityId, FaultHandler, FileStatus, TransactionId,
    TransactionStatus,
};

/// Indication of an entity to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A put was accepted under this identifier.
    Transaction(TransactionId),
    /// The EOF was sent for the first time.
    EofSent(TransactionId),
    /// Metadata of a file was received.
    MetadataReceived(MetadataReceived),
    /// A segment of a file was received. Off by default.
    FileSegmentReceived {
        /// The transaction.
        id: TransactionId,
        /// Offset of the segment in the file.
        offset: u64,
        /// Length of the segment in bytes.
        len: u64,
        /// Segment metadata, without the record continuation state.
        metadata: Bytes,
    },
    /// The EOF was received for the first time.
    EofReceived(TransactionId),
    /// End of a transaction. Its last indication.
    TransactionFinished(TransactionFinished),
    /// A transaction was suspended.
    Suspended {
        /// The transaction.
        id: TransactionId,
        /// Reason.
        condition: ConditionCode,
    },
    /// A transaction was resumed.
    Resumed {
        /// The transaction.
        id: TransactionId,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// Reply to a report request.
    Report(Report),
    /// PDUs for another entity arrived, and were dropped. Indicated for a few entities only.
    Misdirected {
        /// Path they arrived on.
        path: PathId,
        /// Entity they are for.
        destination: u64,
    },
    /// A fault was ignored by its handler.
    Fault {
        /// The transaction.
        id: TransactionId,
        /// Condition of the fault.
        condition: ConditionCode,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// A transaction was abandoned without notifying the peer. Its last indication.
    Abandoned {
        /// The transaction.
        id: TransactionId,
        /// Condition of the fault.
        condition: ConditionCode,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// A reception made room for another. It begins again with its sender's next PDU.
    Displaced(TransactionId),
    /// A file of class 1 is lost, because its reception was refused or made room for another.
    /// Indicated ten times a second at most.
    NoRoom(NoRoom),
    /// Protocol violation by a peer; its PDU was ignored.
    PeerError {
        /// Path it arrived on.
        path: PathId,
        /// Transaction it named.
        id: TransactionId,
        /// Kind of violation.
        error: PeerError,
    },
    /// The Finished PDU of a finished reception was repeated from memory at the sender's request.
    FinishedRepeated {
        /// The transaction.
        id: TransactionId,
        /// Condition with which it ended.
        condition: ConditionCode,
        /// Whether everything had arrived.
        delivery: DeliveryCode,
    },
    /// A limit of [`Limits`](super::Limits) was reached, for the first time or again after it was
    /// no longer reached.
    LimitReached(Limit),
    /// A record of an earlier run is unreadable; its transaction is lost.
    RecordRefused {
        /// Key of the record.
        key: String,
    },
    /// Event of a user operation: a response, or a request of another entity.
    UserOperation(OperationIndication),
    /// The entity has read its records; transactions of an earlier run continue.
    Restored {
        /// Number of transactions.
        transactions: usize,
    },
}

/// File of class 1 for whose reception there was no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The transaction.
    pub id: TransactionId,
    /// Name of the file here; empty if unknown.
    pub name: String,
    /// Bytes received.
    pub progress: u64,
}

/// Content of a received Metadata PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataReceived {
    /// The transaction.
    pub id: TransactionId,
    /// Source of the file.
    pub source: EntityId,
    /// Size in bytes; `None` if it is known only at the end, or if there is no file.
    pub size: Option<u64>,
    /// Name of the file at the source; empty if there is no file.
    pub source_name: String,
    /// Name of the file here; empty if there is no file.
    pub destination_name: String,
    /// Messages to user, in order.
    pub messages: Vec<Bytes>,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionFinished {
    /// The transaction.
    pub id: TransactionId,
    /// Role of this entity.
    pub role: Role,
    /// Peer entity.
    pub peer: EntityId,
    /// Condition with which it ended.
    pub condition: ConditionCode,
    /// Whether everything arrived.
    pub delivery: DeliveryCode,
    /// Status of the file.
    pub file_status: FileStatus,
    /// Name of the file at the source; empty if there is no file.
    pub source_name: String,
    /// Name of the file at the destination; empty if there is no file.
    pub destination_name: String,
    /// Size of the file in bytes, 0 if unknown.
    pub size: u64,
    /// Messages to user, received or sent, in order.
    pub messages: Vec<Bytes>,
    /// Responses to the filestore requests, after the reason why the file could not be stored, if
    /// there is one.
    pub filestore_responses: Vec<FilestoreResponse>,
    /// Entity that detected the fault, if named.
    pub fault_location: Option<EntityId>,
}

impl TransactionFinished {
    /// Reason why the receiver cannot store the file, if known.
    pub fn store_refusal(&self) -> Option<StoreRefusal> {
        let is_refused = self.condition == ConditionCode::FilestoreRejection;
        self.filestore_responses.first().filter(|_| is_refused)?.store_refusal()
    }
}

/// Role of an entity in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The entity sends the file.
    Sender,
    /// The entity receives the file.
    Receiver,
}

/// Progress of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The transaction.
    pub id: TransactionId,
    /// Role of this entity.
    pub role: Role,
    /// Peer entity.
    pub peer: EntityId,
    /// Bytes sent or received.
    pub progress: u64,
    /// Bytes that the receiver has, by its last Keep Alive; `None` at a receiver, and before the
    /// first one.
    pub confirmed: Option<u64>,
    /// Size of the file in bytes, if known.
    pub size: Option<u64>,
    /// State.
    pub state: State,
    /// Condition so far.
    pub condition: ConditionCode,
    /// Status that an ACK would carry.
    pub status: TransactionStatus,
    /// Name of the file at the source.
    pub source_name: String,
    /// Name of the file at the destination.
    pub destination_name: String,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waiting for its files to open.
    Opening,
    /// Sending or receiving.
    Transferring,
    /// The sender has sent everything and waits for the receiver.
    Waiting,
    /// The receiver has everything, verifies it and renames it.
    Completing,
    /// The outcome is being reported to the peer.
    Closing,
    /// Suspended.
    Suspended,
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::transactions`](super::Limits): a peer's transaction was ignored.
    Transactions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): a reply was dropped.
    Replies,
    /// Ten ACK PDUs of unknown transactions per second were sent to a peer: further ones are
    /// suppressed.
    Refusals,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// Protocol violation by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Two different ends of one file.
    #[error("two EOF PDUs of one transaction differ")]
    ConflictingEof,
    /// Two different descriptions of one transaction.
    #[error("two Metadata PDUs of one transaction differ")]
    ConflictingMetadata,
    /// Request for data beyond the end of the file.
    #[error("a NAK asks for data that does not exist")]
    NakBeyondEnd,
    /// More options than [`Limits::options`](super::Limits).
    #[error("a Metadata PDU has too many options")]
    TooManyOptions,
    /// Report of a complete file before its length was announced.
    #[error("a Finished PDU without an error came before the EOF was sent")]
    FinishedBeforeEof,
    /// File name that is not allowed here.
    #[error("the file's name is refused: it must be UTF-8 and stay below the root")]
    NameRefused,
    /// File to be stored for another entity that exceeds the limits.
    #[error("there is no room to keep the file for another entity")]
    NoRoomToStore,
    /// Requests for metadata that was sent. Indicated once for a transaction.
    #[error("the peer requests the Metadata PDU although it was sent {times} times: {parts}")]
    MetadataNotAccepted {
        /// Number of Metadata PDUs sent.
        times: u32,
        /// Parts of the PDU.
        parts: MetadataParts,
    },
    /// PDU of a transaction under way that does not follow the format. Indicated once a minute.
    #[error("the {name} PDU of the peer cannot be decoded, {error}")]
    Undecodable {
        /// Name of the PDU by its header and directive code.
        name: &'static str,
        /// Position and kind of the fault.
        error: DecodeError,
    },
    /// Bytes behind a PDU of a transaction under way; the PDU was accepted. Indicated once a
    /// minute.
    #[error(
        "{count} bytes follow the {name} PDU in its datagram and are ignored; one datagram has \
         one PDU"
    )]
    Surplus {
        /// Name of the PDU.
        name: &'static str,
        /// Number of bytes.
        count: usize,
    },
}

/// Parts of a Metadata PDU that a peer may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataParts {
    /// Checksum type.
    pub checksum: ChecksumType,
    /// Whether it has filestore requests.
    pub requests: bool,
    /// Whether it has messages to user.
    pub messages: bool,
    /// Whether it has fault handler overrides or a flow label.
    pub options: bool,
}

impl std::fmt::Display for MetadataParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it may not know the checksum type {}", self.checksum)?;
        let options = [
            (self.requests, "filestore requests"),
            (self.messages, "messages to user"),
            (self.options, "fault handler overrides or a flow label"),
        ];
        for (_, name) in options.iter().filter(|(is_used, _)| *is_used) {
            write!(f, ", or {name}")?;
        }
        Ok(())
    }
}

/// Handler of a fault, or cancellation if it is unknown.
pub(crate) fn handler_or_cancel(handler: FaultHandler) -> FaultHandler {
    match handler {
        FaultHandler::Cancel
        | FaultHandler::Suspend
        | FaultHandler::Ignore
        | FaultHandler::Abandon => handler,
        FaultHandler::Other(_) => FaultHandler::Cancel,
    }
}
