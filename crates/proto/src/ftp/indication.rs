//! What users hear.

use engine::{EffectError, PathId};
use thiserror::Error;
use wire::ftp::Reply;

/// A request of this node's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A server let this client in.
    LoggedIn {
        /// The control connection.
        path: PathId,
    },
    /// The server is ready for a file, or begins to send one.
    Begun {
        /// Which request.
        request: RequestId,
    },
    /// The server's answer to a command that moves no data.
    Answered {
        /// Which request.
        request: RequestId,
        /// What it says.
        reply: Reply,
    },
    /// A request is done: for a file that was sent, the server says it has it; one that was fetched
    /// is in its place.
    Finished {
        /// Which request.
        request: RequestId,
        /// Bytes of the file, from its beginning to where it ended.
        bytes: u64,
        /// Bytes among them that did not come: there are zeros in their place, here or at the server
        /// if it says so. None but of a best-effort data connection.
        missing: u64,
    },
    /// Bytes of a file did not come on a best-effort data connection (BETS), to this client or server:
    /// there are zeros in their place.
    Missing {
        /// The control connection.
        path: PathId,
        /// The file's name at the server.
        name: String,
        /// Where they begin: in the file, or in what crosses if lines are converted.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A request came to nothing.
    Failed {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Failure,
    },
    /// As a server: a client left a file here, which is safe.
    Received {
        /// The control connection.
        path: PathId,
        /// The file's name.
        name: String,
        /// Bytes that crossed the data connection.
        bytes: u64,
        /// Bytes among them that did not come.
        missing: u64,
    },
    /// As a server: a file was changed here by UPDT, or made by COPY, and is safe.
    Changed {
        /// The control connection.
        path: PathId,
        /// The file's name.
        name: String,
    },
    /// As a server: all of a file was handed to the data connection.
    Sent {
        /// The control connection.
        path: PathId,
        /// The file's name.
        name: String,
        /// Bytes that crossed the data connection.
        bytes: u64,
    },
    /// As a server: a transfer broke off.
    Aborted {
        /// The control connection.
        path: PathId,
        /// The file's name.
        name: String,
        /// Whether the client sent it.
        incoming: bool,
    },
    /// As a server: somebody came and there is no room for him.
    Refused {
        /// The control connection, which is closed.
        path: PathId,
    },
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The server says so.
    #[error("the server says: {0}")]
    Reply(Reply),
    /// The server says what no server may.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    /// The control connection ended.
    #[error("the control connection ended")]
    Control,
    /// There was no data connection, or it broke.
    #[error("no data connection: {0}")]
    Data(String),
    /// The store here failed.
    #[error("the store: {0}")]
    Store(EffectError),
    /// The server has something else than what was sent, by the CRC of all of it (SITE crc).
    #[error("the server's CRC is {there}, and here it is {here}")]
    Checksum {
        /// Of the file that was sent.
        here: u32,
        /// What the server says.
        there: u32,
    },
    /// Nothing came for too long.
    #[error("nothing came for too long")]
    Silence,
    /// The user took it back.
    #[error("it was taken back")]
    Cancelled,
}

/// Why a request is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// As many wait as may.
    #[error("too many requests wait")]
    Full,
    /// A transfer between two servers would be of one.
    #[error("both servers are the same")]
    Same,
    /// It has a line break or another control character in it.
    #[error("the name has a control character in it")]
    Name,
}
