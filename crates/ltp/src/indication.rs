//! Indications of an engine to its user (RFC 5326 §7).

pub(crate) mod transport;

use std::fmt;
use std::net::SocketAddr;

use ::session::StoreRefusal;
use bytes::Bytes;
use engine::{FileName, PathId};
use thiserror::Error;

use crate::segment::{CancelReason, End, SessionId};

/// Indication to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Start of a session that sends (§7.1).
    Started(SessionId),
    /// Start of a session of another engine.
    Receiving {
        /// The session.
        id: SessionId,
        /// Client service of the session.
        service: u64,
    },
    /// A reception made room for another. It begins again with its sender's next segment.
    Displaced(SessionId),
    /// Unit of client data that arrived, alone or with others in a block.
    Data {
        /// The session that brought it.
        id: SessionId,
        /// Client service of the unit.
        service: u64,
        /// Content of the unit.
        bytes: Bytes,
    },
    /// End of a session at this engine (§7.2 to §7.6).
    Finished(Finished),
    /// Sessions left behind by an earlier run: they are cancelled when a segment of their senders
    /// arrives.
    Interrupted {
        /// Number of sessions.
        sessions: usize,
    },
    /// State of an LTP-T block.
    Transport(transport::Indication),
    /// An engine sends from an address other than the configured one, as some engines do that
    /// listen on another port. Indicated once; replies go to the configured address.
    Elsewhere {
        /// Number of the engine.
        engine: u64,
        /// Address from which it sends, if known.
        address: Option<SocketAddr>,
        /// Whether the engine's segments are accepted ([`Remote::pin`](super::Remote)).
        is_taken: bool,
    },
    /// A limit of [`Limits`](super::Limits) was reached, for the first time or again after it was
    /// no longer reached.
    LimitReached(Limit),
    /// Protocol violation by a peer.
    PeerError {
        /// The session.
        id: SessionId,
        /// Kind of violation.
        error: PeerError,
    },
}

/// Complete block, for the user of an engine of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Session that brought the block. Reply with
    /// [`Node::accept_block`](super::Node::accept_block) or [`Node::cancel`](super::Node::cancel).
    pub id: SessionId,
    /// Client service of the block.
    pub service: u64,
    /// Path of the block's last segment, unless that path was closed.
    pub path: Option<PathId>,
    /// Content of the block.
    pub content: BlockContent,
}

/// Storage of a block's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// In memory, up to [`Limits::units`](super::Limits).
    Bytes(Bytes),
    /// In a synced working file of this length.
    File(FileName, u64),
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The session.
    pub id: SessionId,
    /// Role of this engine.
    pub role: End,
    /// Success or failure: at the sender, whether the receiver has the red part; at the receiver,
    /// whether the file has its name.
    pub result: Result<(), Failure>,
    /// Whether the peer confirmed the whole block. Green data is never confirmed.
    pub is_confirmed: bool,
    /// Name of the file at the receiver, empty if unknown.
    pub name: String,
    /// Size of the file in bytes, 0 if unknown.
    pub size: u64,
}

/// Reason for the failure of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct Failure {
    /// Side that ended it.
    pub by: End,
    /// Reason code sent to the peer.
    pub reason: CancelReason,
    /// Cause, if known: a local one, or one that the receiver reports.
    pub cause: Option<Cause>,
}

impl Failure {
    /// Failure without a known cause.
    #[must_use]
    pub const fn new(by: End, reason: CancelReason) -> Self {
        Self { by, reason, cause: None }
    }

    /// Failure of a receiver to store the block.
    #[must_use]
    pub const fn of_store(cause: StoreRefusal) -> Self {
        let reason = match cause {
            StoreRefusal::NameRefused | StoreRefusal::NameTooLong => CancelReason::Unreachable,
            StoreRefusal::Failed
            | StoreRefusal::NoSpace
            | StoreRefusal::NotAllowed
            | StoreRefusal::NoFolder
            | StoreRefusal::Exists
            | StoreRefusal::Other(_) => CancelReason::System,
        };
        Self { by: End::Receiver, reason, cause: Some(Cause::Store(cause)) }
    }

    /// Whether the receiver has no client service of this number: the programs at both ends use
    /// different protocols over LTP.
    #[must_use]
    pub const fn is_of_other_service(&self) -> bool {
        let is_unreachable = matches!(self.reason, CancelReason::Unreachable);
        matches!(self.by, End::Receiver) && is_unreachable && self.cause.is_none()
    }

    /// Reason why the receiver cannot store the block, if that is the cause.
    #[must_use]
    pub const fn store_refusal(&self) -> Option<StoreRefusal> {
        match self.cause {
            Some(Cause::Store(refusal)) => Some(refusal),
            Some(Cause::Silence | Cause::Empty | Cause::TooLong | Cause::TooNarrow { .. })
            | None => None,
        }
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

/// Cause of a session's end, more specific than its reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    /// Silence of the peer for [`Remote::inactivity`](super::Remote).
    #[error("the peer was silent for too long")]
    Silence,
    /// Empty block: nothing would be sent, and nothing confirmed.
    #[error("an empty file cannot be a block; the format \"described\" sends its name")]
    Empty,
    /// The receiver cannot store the block.
    #[error("it cannot store the file: {0}")]
    Store(StoreRefusal),
    /// Block longer than [`Limits::block`](super::Limits), for an engine of blocks.
    #[error("the block is longer than the bound")]
    TooLong,
    /// Path MTU too small for the description of the file, or for any data.
    #[error(
        "datagrams of {mtu} bytes are too short, as the block needs {least}; allow larger ones, \
         or shorten the file's name"
    )]
    TooNarrow {
        /// Bytes of a datagram that the block needs.
        least: u64,
        /// Path MTU in bytes.
        mtu: u64,
    },
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::sessions`](super::Limits) or `sessions_per_path`: a peer's session was refused.
    Sessions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): a reply was dropped.
    Replies,
    /// Ten refusals per second were sent to a peer; further ones are suppressed. A session whose
    /// refusal was suppressed is refused again when its sender retransmits.
    Refusals,
    /// [`Limits::units_total`](super::Limits): data was dropped.
    Units,
    /// The limits of [`crate::ltpt::Limits`]: a block for another engine was refused.
    Storage,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// Protocol violation by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum PeerError {
    /// Report on data that was never sent.
    #[error("a report exceeds the red part")]
    ReportBeyondEnd,
    /// Two different ends of the red part.
    #[error("the block has two ends")]
    ConflictingEnd,
    /// Block that does not end with a valid description of the file.
    #[error("the block does not end with a description of the file")]
    NotDescribed,
    /// Block of units that does not consist of whole units.
    #[error("the block is not made of whole units")]
    NotUnits,
    /// Content that does not match its description.
    #[error("the file's checksum or size is wrong")]
    WrongContent,
}

/// Progress of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session.
    pub id: SessionId,
    /// Role of this engine.
    pub role: End,
    /// Bytes sent or received.
    pub progress: u64,
    /// Bytes that the receiver's reports claim; `None` at a receiver, and before the first one.
    pub confirmed: Option<u64>,
    /// Size of the block in bytes, if known.
    pub size: Option<u64>,
    /// Name of the file, if known.
    pub name: String,
}

/// Error of a local request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::sessions`](super::Limits) sessions are under way.
    #[error("as many sessions as allowed are under way")]
    TooManySessions,
    /// No session with this identifier is under way.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The name cannot be sent.
    #[error("the name of the file must have 1 to 255 bytes")]
    Name,
    /// There are several paths, and no setting names the path to this engine.
    #[error("no path is set for engine {0}, and there are several")]
    NoPath(u64),
    /// There is no route to this engine.
    #[error("no route leads to engine {0}")]
    NoRoute(u64),
    /// Aggregation of units is not configured.
    #[error("units of client data are not sent: no aggregation is set")]
    NoAggregation,
    /// A unit exceeds [`Limits::units`](super::Limits).
    #[error("the unit takes {0} bytes, more than a block of units may have")]
    LargeUnit(usize),
    /// [`Limits::units_total`](super::Limits) bytes are queued and under way.
    #[error("too many units wait to be sent or acknowledged")]
    TooManyUnits,
    /// The destination is this engine.
    #[error("an engine sends nothing to itself")]
    Oneself,
}

/// Counters since the engine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments sent.
    pub sent: SegmentCounts,
    /// Valid segments received.
    pub received: SegmentCounts,
    /// Datagrams that are not valid segments.
    pub decode_errors: u64,
    /// Segments dropped because their authentication is missing or wrong.
    pub unauthenticated: u64,
    /// Segments dropped because the cookies of their session are missing.
    pub wrong_cookies: u64,
    /// Segments of no session under way, or of the wrong direction.
    pub stray: u64,
    /// Duplicate data segments.
    pub duplicate_data: u64,
    /// Data segments dropped because of a limit.
    pub data_dropped: u64,
    /// Bytes of block data retransmitted.
    pub repair_bytes: u64,
    /// Failed storage effects.
    pub storage_errors: u64,
    /// Replies dropped because of a limit.
    pub replies_dropped: u64,
    /// Receptions that were dropped for others.
    pub half_open_dropped: u64,
    /// Segments not sent because the peer has not proven that it receives any.
    pub held_back: u64,
    /// Cancellations suppressed because too many were sent to a peer within a second.
    pub refusals_left_out: u64,
    /// Segments dropped because they exceed the path's MTU.
    pub oversize: u64,
}

/// Number of segments by type.
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
    pub(crate) fn count(&mut self, body: &crate::segment::Body<'_>) {
        use crate::segment::Body;
        let counter = match body {
            Body::Data(_) => &mut self.data,
            Body::Report(_) => &mut self.reports,
            Body::ReportAck { .. } => &mut self.report_acks,
            Body::Cancel { .. } => &mut self.cancels,
            Body::CancelAck { .. } => &mut self.cancel_acks,
        };
        *counter += 1;
    }

    /// Total of all types.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.data + self.reports + self.report_acks + self.cancels + self.cancel_acks
    }
}
