//! What an engine tells its user (RFC 5326 §7).

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use engine::{FileName, PathId};
use thiserror::Error;
use wire::ltp::{CancelReason, End, SessionId};

/// A notice to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A session began here, to send (§7.1).
    Started(SessionId),
    /// A session of another engine began.
    Receiving {
        /// The session.
        id: SessionId,
        /// The client service it is for.
        service: u64,
    },
    /// A unit of client data arrived, alone or with others in a block.
    Data {
        /// The session that brought it.
        id: SessionId,
        /// The client service it is for.
        service: u64,
        /// Its bytes.
        bytes: Bytes,
    },
    /// A session is over at this end (§7.2 to §7.6).
    Finished(Finished),
    /// Sessions that an earlier run left behind: they are cancelled when their senders are heard.
    Interrupted {
        /// How many.
        sessions: usize,
    },
    /// Of a block of LTP-T on its way.
    Transport(super::transport::Indication),
    /// An engine sends from another address than the settings name, as some do that listen on
    /// another port. It is indicated once; replies go to the address of the settings.
    Elsewhere {
        /// The number of the engine.
        engine: u64,
        /// The address from which it sends, where that is known.
        address: Option<SocketAddr>,
        /// Whether its segments are taken ([`Remote::pin`](super::Remote)).
        is_taken: bool,
    },
    /// A bound of [`Limits`](super::Limits) was reached for the first time since it was last left.
    LimitReached(Limit),
    /// A peer broke the protocol.
    PeerError {
        /// The session.
        id: SessionId,
        /// How.
        error: PeerError,
    },
}

/// A block that is whole, for a user who takes it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The session that brought it. It is answered by [`Node::accept_block`](super::Node::accept_block) or
    /// [`Node::cancel`](super::Node::cancel).
    pub id: SessionId,
    /// The client service it is for.
    pub service: u64,
    /// The path over which it came last, unless that is gone.
    pub path: Option<PathId>,
    /// Its bytes.
    pub content: BlockContent,
}

/// Where the bytes of a block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// In memory, up to [`Limits::units`](super::Limits).
    Bytes(Bytes),
    /// In a working file of this length, which is synced.
    File(FileName, u64),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The session.
    pub id: SessionId,
    /// Which side this engine was on.
    pub role: End,
    /// Whether all is well: at the sender, that the receiver has the red part; at the receiver, that
    /// the file has its name.
    pub result: Result<(), Failure>,
    /// Whether the other side said so of the whole block. Nobody says what became of green data.
    pub is_confirmed: bool,
    /// The file's name at the receiver, as far as it is known.
    pub name: String,
    /// The file's bytes, as far as they are known.
    pub size: u64,
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct Failure {
    /// Who ended it.
    pub by: End,
    /// Why, as the peer is informed.
    pub reason: CancelReason,
    /// Cause that this engine knows beyond that.
    pub cause: Option<Cause>,
}

impl Failure {
    /// A failure of which no more is known.
    #[must_use]
    pub const fn new(by: End, reason: CancelReason) -> Self {
        Self { by, reason, cause: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, reason, cause } = self;
        match cause {
            Some(cause) => write!(f, "cancelled by the {by}: {cause}"),
            None => write!(f, "cancelled by the {by}: {reason}"),
        }
    }
}

/// Cause of a session's end, where its reason says little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    /// Nothing arrived for [`Remote::inactivity`](super::Remote).
    #[error("the peer was silent for too long")]
    Silence,
    /// The block has no bytes: nothing would be sent, and nobody would reply.
    #[error("an empty file is no block; the format \"described\" sends its name")]
    Empty,
    /// The path's datagrams are too short, for the description of the file or for any data.
    #[error(
        "datagrams of {mtu} bytes are too short, as the block needs {least}; allow larger ones, \
         or shorten the file's name"
    )]
    TooNarrow {
        /// Bytes of a datagram that the block needs.
        least: u64,
        /// Bytes that the path takes.
        mtu: u64,
    },
}

/// A bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::sessions`](super::Limits) or `sessions_per_path`: a peer's session was refused.
    Sessions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): an answer was dropped.
    Replies,
    /// Ten refusals in a second were sent to a peer: more are left out. A session that is refused
    /// without a word is refused again when its sender asks later.
    Refusals,
    /// [`Limits::units_total`](super::Limits): data was dropped.
    Units,
    /// The bounds of [`crate::ltpt::Limits`]: a block for another engine was refused.
    Storage,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum PeerError {
    /// It reported on what was never sent.
    #[error("a report is about more than the red part")]
    ReportBeyondEnd,
    /// The red part has two ends.
    #[error("the block has two ends")]
    ConflictingEnd,
    /// What came last does not describe the file.
    #[error("the block does not end with a description of the file")]
    NotDescribed,
    /// A block of units is not made of whole ones.
    #[error("the block is not made of whole units")]
    NotUnits,
    /// The content does not fit its description.
    #[error("the file's checksum or size is wrong")]
    WrongContent,
}

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session.
    pub id: SessionId,
    /// Which side this engine is on.
    pub role: End,
    /// Bytes sent, or received.
    pub progress: u64,
    /// Bytes of the block, if they are known.
    pub size: Option<u64>,
    /// The file's name, if it is known.
    pub name: String,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::sessions`](super::Limits) are under way.
    #[error("as many sessions as allowed are under way")]
    TooManySessions,
    /// There is no such session under way.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The name cannot be sent.
    #[error("the name of the file must have 1 to 255 bytes")]
    Name,
    /// Several paths are known, and the settings do not say which leads to this engine.
    #[error("no path is set for engine {0}, and there are several")]
    NoPath(u64),
    /// No way leads to this engine.
    #[error("no route leads to engine {0}")]
    NoRoute(u64),
    /// There are no settings for units.
    #[error("units of client data are not sent: no aggregation is set")]
    NoAggregation,
    /// A unit exceeds [`Limits::units`](super::Limits).
    #[error("the unit takes {0} bytes, more than a block of units may have")]
    LargeUnit(usize),
    /// [`Limits::units_total`](super::Limits) are gathered and under way.
    #[error("too many units wait to be sent or acknowledged")]
    TooManyUnits,
    /// An engine sends nothing to itself.
    #[error("an engine sends nothing to itself")]
    Oneself,
}

/// Counters since the engine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments sent.
    pub sent: SegmentCounts,
    /// Segments received, whole and understood.
    pub received: SegmentCounts,
    /// Datagrams that were no segment.
    pub decode_errors: u64,
    /// Segments dropped because they do not carry what shows that the peer sent them.
    pub unauthenticated: u64,
    /// Segments dropped because they do not carry the cookies of their session.
    pub wrong_cookies: u64,
    /// Segments of sessions that are not under way, or that the other side would send.
    pub stray: u64,
    /// Data segments that brought nothing new.
    pub duplicate_data: u64,
    /// Data segments dropped because of a bound.
    pub data_dropped: u64,
    /// Bytes of the block sent again.
    pub repair_bytes: u64,
    /// Storage effects that failed.
    pub storage_errors: u64,
    /// Answers dropped because of a bound.
    pub replies_dropped: u64,
    /// Receptions with a segment or two that gave way to others.
    pub half_open_dropped: u64,
    /// Cancellations left out because too many were sent to a peer within a second.
    pub refusals_left_out: u64,
    /// Segments left out because the path does not take any that large.
    pub oversize: u64,
}

/// Segments by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Data.
    pub data: u64,
    /// Reports.
    pub reports: u64,
    /// Acknowledgements of reports.
    pub report_acks: u64,
    /// Cancellations.
    pub cancels: u64,
    /// Acknowledgements of cancellations.
    pub cancel_acks: u64,
}

impl SegmentCounts {
    pub(crate) fn count(&mut self, body: &wire::ltp::Body<'_>) {
        use wire::ltp::Body;
        let counter = match body {
            Body::Data(_) => &mut self.data,
            Body::Report(_) => &mut self.reports,
            Body::ReportAck { .. } => &mut self.report_acks,
            Body::Cancel { .. } => &mut self.cancels,
            Body::CancelAck { .. } => &mut self.cancel_acks,
        };
        *counter += 1;
    }

    /// Segments of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.data + self.reports + self.report_acks + self.cancels + self.cancel_acks
    }
}
