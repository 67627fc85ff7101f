//! Indications about user operations.

use bytes::Bytes;

use crate::pdu::{
    ConditionCode, DeliveryCode, EntityId, FileStatus, TransactionId, TransactionStatus,
};
use crate::request::FilestoreResponse;

/// Result of an operation requested from another entity, or a request of another entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationIndication {
    /// End of a put that another entity made for this one (§6.2.10).
    ProxyPutResponse {
        /// Entity that made it.
        from: EntityId,
        /// Transaction that requested it.
        id: TransactionId,
        /// Condition with which it ended.
        condition: ConditionCode,
        /// Whether everything arrived.
        delivery: DeliveryCode,
        /// Status of the file.
        file_status: FileStatus,
        /// Responses to its filestore requests.
        filestore_responses: Vec<FilestoreResponse>,
    },
    /// Start of a put made for another entity (§6.2).
    ProxyPut {
        /// Requesting entity.
        from: EntityId,
        /// Transaction that requested it.
        original: TransactionId,
        /// The put.
        id: TransactionId,
    },
    /// A directory listing arrived, or was refused (§6.3.3).
    DirectoryListing {
        /// Responding entity.
        from: EntityId,
        /// Transaction that requested it.
        id: TransactionId,
        /// Whether there is a listing.
        success: bool,
        /// The directory.
        directory: String,
        /// Local file with the listing.
        file: String,
    },
    /// State of a transaction at another entity (§6.4.3).
    RemoteStatusReport {
        /// Responding entity.
        from: EntityId,
        /// Transaction that requested it.
        id: TransactionId,
        /// Transaction reported on.
        transaction: TransactionId,
        /// State of the transaction.
        status: TransactionStatus,
        /// Whether a report was attached.
        success: bool,
        /// Local file with the report; empty without one.
        file: String,
    },
    /// Response to a suspend request (§6.5.3).
    RemoteSuspend {
        /// Responding entity.
        from: EntityId,
        /// Transaction concerned.
        transaction: TransactionId,
        /// Whether it is suspended.
        suspended: bool,
        /// State of the transaction.
        status: TransactionStatus,
    },
    /// Response to a resume request (§6.6.3).
    RemoteResume {
        /// Responding entity.
        from: EntityId,
        /// Transaction concerned.
        transaction: TransactionId,
        /// Whether it is still suspended.
        suspended: bool,
        /// State of the transaction.
        status: TransactionStatus,
    },
    /// A file, or messages alone, arrived through waypoints.
    SfoReceived {
        /// Transaction of the last hop.
        id: TransactionId,
        /// The original source.
        source: EntityId,
        /// Label that the source gave its request.
        label: Bytes,
        /// Number of waypoints passed.
        prior_waypoints: u8,
        /// Local name of the file; empty if there is none.
        destination_name: String,
        /// Messages to user, in order.
        messages: Vec<Bytes>,
        /// Responses to the filestore requests.
        filestore_responses: Vec<FilestoreResponse>,
    },
    /// A file was forwarded to the next entity, or could not be.
    SfoForwarded {
        /// Transaction that brought it.
        original: TransactionId,
        /// The next entity.
        next: EntityId,
        /// Condition with which the hop ended.
        condition: ConditionCode,
    },
    /// Report of an entity on the route about a file.
    SfoReport(SfoReported),
    /// A class 4 file reached its end system, or failed.
    Relayed {
        /// Transaction, which is the same on all hops.
        id: TransactionId,
        /// Condition with which it ended.
        condition: ConditionCode,
    },
    /// A request of another entity was refused.
    Refused {
        /// Requesting entity.
        from: EntityId,
        /// Transaction of the request.
        id: TransactionId,
        /// Reason.
        reason: Refusal,
    },
}

/// Report of the store-and-forward overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SfoReported {
    /// Label that the source gave its request.
    pub label: Bytes,
    /// The original source.
    pub source: EntityId,
    /// The final destination.
    pub destination: EntityId,
    /// Reporting entity.
    pub reporter: EntityId,
    /// Number of waypoints before the reporter.
    pub prior_waypoints: u8,
    /// Event: [`SfoReported::DELIVERED`], [`SfoReported::FORWARDED`] or [`SfoReported::FAILED`], as
    /// numbered by this implementation.
    pub code: u8,
    /// Condition with which the reporter's hop ended.
    pub condition: ConditionCode,
    /// Whether everything arrived.
    pub delivery: DeliveryCode,
    /// Status of the file.
    pub file_status: FileStatus,
    /// Responses to the filestore requests at the destination.
    pub filestore_responses: Vec<FilestoreResponse>,
}

impl SfoReported {
    /// The file reached its destination.
    pub const DELIVERED: u8 = 0;
    /// A waypoint forwarded the file.
    pub const FORWARDED: u8 = 1;
    /// A waypoint could not forward the file, and gave up.
    pub const FAILED: u8 = 2;
}

/// Reason for refusing another entity's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// [`Permissions`](crate::Permissions) do not allow it.
    #[error("it is not permitted")]
    NotPermitted,
    /// A file or directory name is outside the root, or unusable.
    #[error("a name in it cannot be used")]
    Name,
    /// The request names this entity as its destination.
    #[error("it leads back to this entity")]
    Loop,
    /// The file passed more waypoints than allowed, or would return to the previous entity.
    #[error("there is no way on")]
    NoRoute,
    /// The limit on stored files or requests being served is reached.
    #[error("as much as allowed is under way")]
    Full,
    /// The store, or the requested put, failed.
    #[error("it cannot be carried out")]
    Impossible,
}
