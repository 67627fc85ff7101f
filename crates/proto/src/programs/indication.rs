//! What users hear.

use std::time::Duration;

use engine::{EffectError, PathId};
use thiserror::Error;

/// A request of this node's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// All is ready for the file.
    Begun {
        /// Which request.
        request: RequestId,
    },
    /// How long keys took to come back.
    Echoed {
        /// Which request.
        request: RequestId,
        /// How long.
        latency: Latency,
    },
    /// A request is done, and the program at the other end said so.
    Finished {
        /// Which request.
        request: RequestId,
        /// Bytes of the file.
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
        /// The connection.
        path: PathId,
        /// The file's name.
        name: String,
        /// Bytes of the file.
        bytes: u64,
    },
    /// As a server: a file broke off.
    Aborted {
        /// The connection.
        path: PathId,
        /// The file's name.
        name: String,
    },
    /// As a server: somebody came and there is no room for him, or he did not log in in time.
    Refused {
        /// The connection, which is closed.
        path: PathId,
    },
}

/// How long keys took to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The least.
    pub min: Duration,
    /// Half of them took no longer.
    pub median: Duration,
    /// 95 of 100 took no longer.
    pub p95: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// The most.
    pub max: Duration,
}

impl Latency {
    /// What is told of some; nothing if there are none. A share of `q` takes no longer than the one
    /// at place ⌈q n⌉ in their order.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Option<Self> {
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

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The other end says so.
    #[error("the server says: {0}")]
    Server(String),
    /// The other end says what no program says.
    #[error("what the peer says makes no sense: {0}")]
    Nonsense(&'static str),
    /// The connection ended.
    #[error("the connection ended")]
    Connection,
    /// The connection ended before anybody had logged in.
    #[error(
        "the connection ended before the login was done (a server waits for its LoginGraceTime)"
    )]
    Login,
    /// The store here failed.
    #[error("the store: {0}")]
    Store(EffectError),
    /// Nothing came for too long.
    #[error("nothing came for too long")]
    Silence,
    /// More keys than are typed in one session.
    #[error("more keys than are typed in one session")]
    TooMany,
}

/// Why a request is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// As many wait as may.
    #[error("too many requests wait")]
    Full,
    /// It has a line break or another control character in it, or is too long.
    #[error("the name has a control character in it, or is too long")]
    Name,
}
