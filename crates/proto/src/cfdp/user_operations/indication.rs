//! What an entity tells its user about user operations.

use bytes::Bytes;
use wire::cfdp::{
    ConditionCode, DeliveryCode, EntityId, FileStatus, TransactionId, TransactionStatus,
};

use crate::cfdp::request::FilestoreResponse;

/// What became of an operation asked of another entity, or what another entity asked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationIndication {
    /// A put that another entity made on our behalf is over (§6.2.10).
    ProxyPutResponse {
        /// The entity that made it.
        from: EntityId,
        /// The transaction that asked for it.
        id: TransactionId,
        /// Why it ended.
        condition: ConditionCode,
        /// Whether all arrived.
        delivery: DeliveryCode,
        /// What became of the file.
        file_status: FileStatus,
        /// What its filestore requests gave.
        filestore_responses: Vec<FilestoreResponse>,
    },
    /// A put was begun here on another's behalf (§6.2).
    ProxyPut {
        /// On whose.
        from: EntityId,
        /// The transaction that asked for it.
        original: TransactionId,
        /// The put.
        id: TransactionId,
    },
    /// A directory listing arrived, or was refused (§6.3.3).
    DirectoryListing {
        /// Who answers.
        from: EntityId,
        /// The transaction that asked for it.
        id: TransactionId,
        /// Whether there is a listing.
        success: bool,
        /// The directory.
        directory: String,
        /// The file here that holds the listing.
        file: String,
    },
    /// The state of a transaction at another entity (§6.4.3).
    RemoteStatusReport {
        /// Who answers.
        from: EntityId,
        /// The transaction that asked for it.
        id: TransactionId,
        /// The transaction asked about.
        transaction: TransactionId,
        /// Its state.
        status: TransactionStatus,
        /// Whether a report was sent along.
        success: bool,
        /// The file here that holds the report; empty without one.
        file: String,
    },
    /// The answer to a request to suspend (§6.5.3).
    RemoteSuspend {
        /// Who answers.
        from: EntityId,
        /// The transaction asked about.
        transaction: TransactionId,
        /// Whether it is suspended.
        suspended: bool,
        /// Its state.
        status: TransactionStatus,
    },
    /// The answer to a request to resume (§6.6.3).
    RemoteResume {
        /// Who answers.
        from: EntityId,
        /// The transaction asked about.
        transaction: TransactionId,
        /// Whether it is still suspended.
        suspended: bool,
        /// Its state.
        status: TransactionStatus,
    },
    /// A file, or messages alone, arrived over waypoints.
    SfoReceived {
        /// The last hop's transaction.
        id: TransactionId,
        /// The original source.
        source: EntityId,
        /// The source's own name for its request.
        label: Bytes,
        /// Waypoints passed.
        prior_waypoints: u8,
        /// The file's name here; empty if there is none.
        destination_name: String,
        /// The messages to the user, in order.
        messages: Vec<Bytes>,
        /// What the filestore requests gave.
        filestore_responses: Vec<FilestoreResponse>,
    },
    /// A file was handed on to the next entity on its way, or could not be.
    SfoForwarded {
        /// The transaction that brought it.
        original: TransactionId,
        /// The next entity.
        next: EntityId,
        /// How the hop ended.
        condition: ConditionCode,
    },
    /// An entity on the way reports how far a file came.
    SfoReport(SfoReported),
    /// A file of class 4 is at its end system, or will not get there.
    Relayed {
        /// The transaction, which is the same on all hops.
        id: TransactionId,
        /// How it ended.
        condition: ConditionCode,
    },
    /// Another entity asked for what it may not have, or what cannot be done.
    Refused {
        /// Who asked.
        from: EntityId,
        /// The transaction that asked.
        id: TransactionId,
        /// Why it was refused.
        reason: Refusal,
    },
}

/// A report of the store-and-forward overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SfoReported {
    /// The source's own name for its request.
    pub label: Bytes,
    /// The original source.
    pub source: EntityId,
    /// The final destination.
    pub destination: EntityId,
    /// Who reports.
    pub reporter: EntityId,
    /// Waypoints before the reporter.
    pub prior_waypoints: u8,
    /// What is reported: [`SfoReported::DELIVERED`], [`SfoReported::FORWARDED`] or
    /// [`SfoReported::FAILED`], as this implementation numbers them.
    pub code: u8,
    /// How the reporter's hop ended.
    pub condition: ConditionCode,
    /// Whether all arrived.
    pub delivery: DeliveryCode,
    /// What became of the file.
    pub file_status: FileStatus,
    /// What the filestore requests gave at the destination.
    pub filestore_responses: Vec<FilestoreResponse>,
}

impl SfoReported {
    /// The file is at its destination.
    pub const DELIVERED: u8 = 0;
    /// A waypoint handed the file on.
    pub const FORWARDED: u8 = 1;
    /// A waypoint could not hand the file on, and gave it up.
    pub const FAILED: u8 = 2;
}

/// Why a request of another entity was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// [`Permissions`](super::Permissions) do not allow it.
    #[error("it is not permitted")]
    NotPermitted,
    /// A file or directory name leads out of the root, or cannot be used.
    #[error("a name in it cannot be used")]
    Name,
    /// It names this entity as the one to send to.
    #[error("it leads back to this entity")]
    Loop,
    /// The file passed more waypoints than allowed, or would go back where it came from.
    #[error("there is no way on")]
    NoRoute,
    /// As much as allowed is stored or being served.
    #[error("as much as allowed is under way")]
    Full,
    /// The store, or the put that was asked for, refused it.
    #[error("it cannot be carried out")]
    Impossible,
}
