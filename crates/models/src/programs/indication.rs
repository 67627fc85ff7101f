//! Indications to the user.

use std::time::Duration;

use engine::{EffectError, PathId};
use thiserror::Error;

/// Request of this node's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Indication to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// The file transfer can start.
    Begun {
        /// The request.
        request: RequestId,
    },
    /// Echo delays of keystrokes.
    Echoed {
        /// The request.
        request: RequestId,
        /// The delays.
        latency: Latency,
    },
    /// A request is finished and confirmed by the remote program.
    Finished {
        /// The request.
        request: RequestId,
        /// Bytes of the file.
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
        /// The connection.
        path: PathId,
        /// Name of the file.
        name: String,
        /// Bytes of the file.
        bytes: u64,
    },
    /// Server: a file transfer was aborted.
    Aborted {
        /// The connection.
        path: PathId,
        /// Name of the file.
        name: String,
    },
    /// Server: a connection was refused for lack of room, or for a missing login.
    Refused {
        /// The connection, which is closed.
        path: PathId,
    },
}

/// Echo delays of keystrokes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Number of keystrokes.
    pub count: u64,
    /// Minimum.
    pub min: Duration,
    /// Median.
    pub median: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

impl Latency {
    /// Statistics of some delays; `None` without any. Quantile `q` is the value at place ⌈q n⌉ in
    /// ascending order.
    #[must_use]
    pub fn from_times(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let share = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            count: times.len() as u64,
            min: *times.first()?,
            median: share(50),
            p95: share(95),
            p99: share(99),
            max: *times.last()?,
        })
    }
}

/// Reason for the failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Error reported by the peer.
    #[error("the server says: {0}")]
    Server(String),
    /// Protocol violation by the peer.
    #[error("invalid message of the peer: {0}")]
    Nonsense(&'static str),
    /// The connection ended.
    #[error("the connection ended")]
    Connection,
    /// The connection ended before the login.
    #[error(
        "the connection ended before the login was done (a server waits for its LoginGraceTime)"
    )]
    Login,
    /// Local storage error.
    #[error("the store: {0}")]
    Store(EffectError),
    /// Silence of the peer.
    #[error("the peer was silent for too long")]
    Silence,
    /// More keystrokes than allowed in one session.
    #[error("more keys than are typed in one session")]
    TooMany,
}

/// Error of a local request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The queue is full.
    #[error("too many requests are queued")]
    Full,
    /// The name has a line break or another control character, or is too long.
    #[error("the name has a control character in it, or is too long")]
    Name,
}
