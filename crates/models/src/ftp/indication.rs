//! Indications to the user.

use engine::{EffectError, PathId};
use thiserror::Error;

use crate::message::Reply;

/// Request of this node's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Indication to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// The client has logged in at a server.
    LoggedIn {
        /// The control connection.
        path: PathId,
    },
    /// The server is ready for a file, or starts to send one.
    Begun {
        /// The request.
        request: RequestId,
    },
    /// Server's reply to a command without a data transfer.
    Answered {
        /// The request.
        request: RequestId,
        /// The reply.
        reply: Reply,
    },
    /// A request is finished: an upload is confirmed by the server, a download has its name.
    Finished {
        /// The request.
        request: RequestId,
        /// Bytes of the file from its beginning.
        bytes: u64,
        /// Number of missing bytes among them, replaced by zeros here, or at the server if it
        /// reports them. Nonzero only with a best-effort data connection.
        missing: u64,
    },
    /// Bytes of a file are missing on a best-effort data connection (BETS), at this client or
    /// server, and are replaced by zeros.
    Missing {
        /// The control connection.
        path: PathId,
        /// Name of the file at the server.
        name: String,
        /// Offset in the file, or in the transferred data if lines are converted.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A request failed.
    Failed {
        /// The request.
        request: RequestId,
        /// Reason.
        why: Failure,
    },
    /// Server: a client's file was stored.
    Received {
        /// The control connection.
        path: PathId,
        /// Name of the file.
        name: String,
        /// Bytes transferred.
        bytes: u64,
        /// Number of missing bytes among them.
        missing: u64,
    },
    /// Server: a file was changed by UPDT, or created by COPY, and stored.
    Changed {
        /// The control connection.
        path: PathId,
        /// Name of the file.
        name: String,
    },
    /// Server: a whole file was passed to the data connection.
    Sent {
        /// The control connection.
        path: PathId,
        /// Name of the file.
        name: String,
        /// Bytes transferred.
        bytes: u64,
    },
    /// Server: a transfer was aborted.
    Aborted {
        /// The control connection.
        path: PathId,
        /// Name of the file.
        name: String,
        /// Whether the client was the sender.
        incoming: bool,
    },
    /// Server: a connection was refused for lack of room.
    Refused {
        /// The control connection, which is closed.
        path: PathId,
    },
}

/// Reason for the failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Error reply of the server.
    #[error("the server says: {0}")]
    Reply(Reply),
    /// Protocol violation by the server.
    #[error("invalid reply of the server: {0}")]
    Nonsense(String),
    /// The control connection ended.
    #[error("the control connection ended")]
    Control,
    /// The data connection failed.
    #[error("no data connection: {0}")]
    Data(String),
    /// Local storage error.
    #[error("the store: {0}")]
    Store(EffectError),
    /// The server's file differs from the sent one by its CRC (SITE crc).
    #[error("the server's CRC is {there}, and here it is {here}")]
    Checksum {
        /// CRC of the sent file.
        here: u32,
        /// CRC reported by the server.
        there: u32,
    },
    /// Silence of the server.
    #[error("the peer was silent for too long")]
    Silence,
    /// Cancelled by the user.
    #[error("cancelled")]
    Cancelled,
}

/// Error of a local request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The queue is full.
    #[error("too many requests are queued")]
    Full,
    /// Both servers of a transfer are the same.
    #[error("both servers are the same")]
    Same,
    /// The name has a line break or another control character.
    #[error("the name has a control character in it")]
    Name,
}
