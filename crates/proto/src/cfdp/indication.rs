//! What an entity tells its user (CCSDS 727.0-B-5 §3.4).

use bytes::Bytes;
use engine::PathId;
use wire::cfdp::{
    ConditionCode, DeliveryCode, EntityId, FaultHandler, FileStatus, TransactionId,
    TransactionStatus,
};

use super::request::FilestoreResponse;
use super::user_operations::OperationIndication;

/// What an entity tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A put was accepted and has this id.
    Transaction(TransactionId),
    /// The end of the file was sent for the first time.
    EofSent(TransactionId),
    /// A file is being received, and this is what it is.
    MetadataReceived(MetadataReceived),
    /// A piece of a file was received. Off by default.
    FileSegmentReceived {
        /// The transaction.
        id: TransactionId,
        /// Where the piece lies in the file.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// What the sender said of it, without the record continuation state.
        metadata: Bytes,
    },
    /// The end of the file was received for the first time.
    EofReceived(TransactionId),
    /// A transaction is over. The last indication of it.
    TransactionFinished(TransactionFinished),
    /// A transaction was suspended.
    Suspended {
        /// The transaction.
        id: TransactionId,
        /// Why.
        condition: ConditionCode,
    },
    /// A transaction goes on.
    Resumed {
        /// The transaction.
        id: TransactionId,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// The answer to a report request.
    Report(Report),
    /// PDUs for another entity came, and were dropped. Told of a few entities only.
    Misdirected {
        /// Where they came from.
        path: PathId,
        /// Whom they are for.
        destination: u64,
    },
    /// A fault that is ignored by its handler.
    Fault {
        /// The transaction.
        id: TransactionId,
        /// What went wrong.
        condition: ConditionCode,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// A transaction was given up without telling the peer. The last indication of it.
    Abandoned {
        /// The transaction.
        id: TransactionId,
        /// What went wrong.
        condition: ConditionCode,
        /// Bytes sent or received so far.
        progress: u64,
    },
    /// A peer broke the protocol; its PDU was ignored.
    PeerError {
        /// The path it came on.
        path: PathId,
        /// The transaction it named.
        id: TransactionId,
        /// What was wrong with it.
        error: PeerError,
    },
    /// A sender asked how a reception ended that is over, and was told from memory.
    FinishedRepeated {
        /// The transaction.
        id: TransactionId,
        /// How it had ended.
        condition: ConditionCode,
        /// Whether everything had arrived.
        delivery: DeliveryCode,
    },
    /// A bound of [`Limits`](super::Limits) was reached for the first time since it was last
    /// left.
    LimitReached(Limit),
    /// A record of an earlier run cannot be read; its transaction is lost.
    RecordRefused {
        /// The record's key.
        key: String,
    },
    /// Something about a user operation: an answer, or what another entity asked here.
    UserOperation(OperationIndication),
    /// The entity has taken up its records; transactions of an earlier run go on.
    Restored {
        /// How many.
        transactions: usize,
    },
}

/// What arrived in a Metadata PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataReceived {
    /// The transaction.
    pub id: TransactionId,
    /// Who sends the file.
    pub source: EntityId,
    /// Its size in bytes; `None` if it is known only at the end, or if there is no file.
    pub size: Option<u64>,
    /// The file's name at the source; empty if there is no file.
    pub source_name: String,
    /// The name it shall have here; empty if there is no file.
    pub destination_name: String,
    /// The messages to the user, in order.
    pub messages: Vec<Bytes>,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionFinished {
    /// The transaction.
    pub id: TransactionId,
    /// Which side this entity was on.
    pub role: Role,
    /// The entity at the other side.
    pub peer: EntityId,
    /// Why it ended.
    pub condition: ConditionCode,
    /// Whether everything arrived.
    pub delivery: DeliveryCode,
    /// What became of the file.
    pub file_status: FileStatus,
    /// The file's name at the source; empty if there is no file.
    pub source_name: String,
    /// The file's name at the destination; empty if there is no file.
    pub destination_name: String,
    /// The file's size in bytes, as far as it is known.
    pub size: u64,
    /// The messages to the user, in order: those received, or those sent.
    pub messages: Vec<Bytes>,
    /// What the filestore requests gave.
    pub filestore_responses: Vec<FilestoreResponse>,
    /// Who detected the fault, if it says so.
    pub fault_location: Option<EntityId>,
}

/// Which side of a transaction an entity is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It sends the file.
    Sender,
    /// It receives the file.
    Receiver,
}

/// How far a transaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The transaction.
    pub id: TransactionId,
    /// Which side this entity is on.
    pub role: Role,
    /// The entity at the other side.
    pub peer: EntityId,
    /// Bytes sent, or received.
    pub progress: u64,
    /// The file's size in bytes, if it is known.
    pub size: Option<u64>,
    /// What it is doing.
    pub state: State,
    /// Its condition so far.
    pub condition: ConditionCode,
    /// The status an ACK would carry.
    pub status: TransactionStatus,
    /// The file's name at the source.
    pub source_name: String,
    /// The file's name at the destination.
    pub destination_name: String,
}

/// What a transaction is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waiting for its files to open.
    Opening,
    /// Sending or receiving.
    Transferring,
    /// A sender that sent everything and waits for the receiver.
    Waiting,
    /// A receiver that has everything, checks it and gives it its name.
    Completing,
    /// Telling the peer how it ended.
    Closing,
    /// Suspended.
    Suspended,
}

/// A bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::transactions`](super::Limits): a peer's transaction was ignored.
    Transactions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): an answer was dropped.
    Replies,
    /// Ten ACK PDUs of unknown transactions in a second were sent to a peer: more are left out.
    Refusals,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum PeerError {
    /// It announced two different ends of one file.
    #[error("two EOF PDUs of one transaction differ")]
    ConflictingEof,
    /// It described one transaction in two ways.
    #[error("two Metadata PDUs of one transaction differ")]
    ConflictingMetadata,
    /// It asked for data beyond the end of the file.
    #[error("a NAK asks for data that does not exist")]
    NakBeyondEnd,
    /// More options than [`Limits::options`](super::Limits).
    #[error("a Metadata PDU has too many options")]
    TooManyOptions,
    /// It said that it has the whole file before it was told how long the file is.
    #[error("a Finished PDU without an error came before the EOF was sent")]
    FinishedBeforeEof,
    /// It named a file that cannot be here.
    #[error("the file's name is refused: it must be UTF-8 and stay below the root")]
    NameRefused,
    /// The file shall be kept for another entity, beyond what the settings allow.
    #[error("there is no room to keep the file for another entity")]
    NoRoomToStore,
}

/// How a fault was handled, kept for the seam to user operations.
pub(crate) fn handler_or_cancel(handler: FaultHandler) -> FaultHandler {
    match handler {
        FaultHandler::Cancel
        | FaultHandler::Suspend
        | FaultHandler::Ignore
        | FaultHandler::Abandon => handler,
        FaultHandler::Other(_) => FaultHandler::Cancel,
    }
}
