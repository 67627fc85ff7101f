//! Indications of a peer to its user, and the user's requests.

use std::fmt;

use engine::{FileName, PathId};
use session::StoreRefusal;
use thiserror::Error;

use crate::packet::{Ability, EntryKind, StatusCode, Width};

/// Role of a peer in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sends the file, or deletes one on request.
    Sender,
    /// Receives the file, or requested a deletion.
    Receiver,
}

/// Session identifier: its number is unique only between two peers, and for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    /// Path to the peer.
    pub peer: PathId,
    /// Number on the wire.
    pub number: u32,
    /// Role of this peer.
    pub role: Role,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.number)
    }
}

/// Mode of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Put {
    /// Starts at once, and retransmits until everything has arrived.
    #[default]
    Push,
    /// Requests permission first.
    Ask,
    /// Sends everything once without expecting replies, for paths without a return link.
    Blind,
}

/// Request to send a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRequest {
    /// Path to the receiving peer.
    pub peer: PathId,
    /// Local file.
    pub source: FileName,
    /// Name at the peer.
    pub name: String,
    /// Mode.
    pub put: Put,
    /// Whether to delete it here after delivery: a give.
    pub delete: bool,
    /// Whether it is sent as a stream: its length is unknown until its end was read, and it has no
    /// checksum.
    pub stream: bool,
    /// Session number, so that a receiver recognises the session of an earlier process that sent
    /// the same file; random if there is none, or if it is in use.
    pub session: Option<u32>,
    /// Whether an earlier session may have sent a part of the file: data is sent once the receiver
    /// has reported what is missing, or does not reply.
    pub resumes: bool,
}

impl PutRequest {
    /// Request to put a file under this name.
    #[must_use]
    pub fn new(peer: PathId, source: FileName, name: impl Into<String>) -> Self {
        Self {
            peer,
            source,
            name: name.into(),
            put: Put::Push,
            delete: false,
            stream: false,
            session: None,
            resumes: false,
        }
    }
}

/// Request to fetch a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// Path to the sending peer.
    pub peer: PathId,
    /// Name at the peer.
    pub name: String,
    /// Local name.
    pub destination: FileName,
    /// Whether to delete it at the peer after delivery: a take.
    pub delete: bool,
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
    #[error("the name of the file must have 1 to 1023 bytes, and none that is 0")]
    Name,
    /// The configured version has no such request.
    #[error("version 0 supports only get")]
    OnlyGet,
}

/// Indication to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// The records of an earlier run were read; receptions may resume.
    Restored {
        /// Number of incomplete files.
        partials: usize,
    },
    /// Start of a session, local or remote.
    Started {
        /// The session.
        id: SessionId,
        /// Name of the file at the peer, empty if unknown.
        name: String,
    },
    /// The file to receive became known.
    Receiving {
        /// The session.
        id: SessionId,
        /// Local name of the file.
        name: String,
        /// Size of the file in bytes, if known.
        size: Option<u64>,
        /// Bytes received by earlier sessions.
        resumed: u64,
    },
    /// End of a session at this peer.
    Finished(Finished),
    /// Content of a directory.
    Listing {
        /// Session that requested it.
        id: SessionId,
        /// Entries of the directory.
        entries: Vec<Listed>,
    },
    /// Beacon of another peer.
    Beacon {
        /// Path on which it was received.
        from: PathId,
        /// Content of the beacon.
        about: About,
    },
    /// A limit of [`Limits`](super::Limits) was reached, for the first time or again after it was
    /// no longer reached.
    LimitReached(Limit),
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The session.
    pub id: SessionId,
    /// Success or failure: on success the file arrived completely, or was deleted as requested.
    pub result: Result<(), Failure>,
    /// Whether the peer confirmed the result, or this peer observed it. A blind sender has no
    /// information.
    pub is_confirmed: bool,
    /// Name of the file at the receiver, empty if unknown.
    pub name: String,
    /// Size of the file in bytes, 0 if unknown.
    pub size: u64,
    /// Bytes received by earlier sessions.
    pub resumed: u64,
}

/// Reason for the failure of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}: {code}", if *.is_ours { "given up here" } else { "ended by the other peer" })]
pub struct Failure {
    /// Whether this peer ended it.
    pub is_ours: bool,
    /// Status code.
    pub code: StatusCode,
    /// Reason why this peer cannot store the file, which is more specific than the code.
    pub cause: Option<StoreRefusal>,
}

impl Failure {
    /// Failure found by this peer.
    pub(crate) fn here(code: StatusCode) -> Self {
        Self { is_ours: true, code, cause: None }
    }

    /// Failure that the other peer reports.
    pub(crate) fn there(code: StatusCode) -> Self {
        Self { is_ours: false, code, cause: None }
    }

    /// Failure of this peer to store a file.
    pub(crate) fn of_store(cause: StoreRefusal) -> Self {
        let code = match cause {
            StoreRefusal::NoFolder => StatusCode::NotFound,
            StoreRefusal::NotAllowed
            | StoreRefusal::NameRefused
            | StoreRefusal::NameTooLong
            | StoreRefusal::Exists => StatusCode::AccessDenied,
            StoreRefusal::NoSpace | StoreRefusal::Failed | StoreRefusal::Other(_) => {
                StatusCode::ReceiverResources
            }
        };
        Self { cause: Some(cause), ..Self::here(code) }
    }

    /// Reason why the receiver of a file cannot store it, as its STATUS reports it to the sender: a
    /// code may have several.
    pub fn reported_cause(&self) -> Option<&'static str> {
        let causes = [
            (StatusCode::NotFound, "no such folder"),
            (StatusCode::AccessDenied, "not allowed, or the name is refused or taken"),
            (StatusCode::ReceiverResources, "no space left, or its limits are reached"),
        ];
        let known = causes.into_iter().find(|(code, _)| *code == self.code && !self.is_ours);
        known.map(|(_, cause)| cause)
    }
}

/// Entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name within the directory.
    pub name: String,
    /// Kind of entry.
    pub kind: EntryKind,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Time of the last change, in seconds since 1970, if reported.
    pub modified: Option<u64>,
}

/// Content of a beacon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Endpoint identifier of the peer.
    pub eid: String,
    /// Widest descriptor it accepts.
    pub descriptor: Width,
    /// Whether it accepts streams.
    pub streams: bool,
    /// Whether it accepts DATA by UDP-Lite.
    pub udp_lite: bool,
    /// Whether it sends files.
    pub sends: Ability,
    /// Whether it receives files.
    pub receives: Ability,
    /// Free space in KiB, if reported.
    pub free_kib: Option<u64>,
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::sessions`](super::Limits) or `sessions_per_path`: another session was refused.
    Sessions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): a reply was dropped.
    Replies,
    /// Ten refusals per second were sent to a peer: further ones are suppressed until it retries
    /// later.
    Refusals,
    /// [`Limits::partials`](super::Limits): an incomplete file was deleted.
    Partials,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// Progress of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session.
    pub id: SessionId,
    /// Bytes sent or received.
    pub progress: u64,
    /// Bytes that the receiver has, by its STATUS; `None` at a receiver, and before the first one.
    pub confirmed: Option<u64>,
    /// Size of the file in bytes, if known.
    pub size: Option<u64>,
    /// Name of the file, if known.
    pub name: String,
}

/// Counters since the peer's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets sent.
    pub sent: PacketCounts,
    /// Valid packets received.
    pub received: PacketCounts,
    /// Datagrams that are not valid packets.
    pub decode_errors: u64,
    /// Packets that belong to no session.
    pub stray: u64,
    /// Duplicate DATA packets.
    pub duplicate_data: u64,
    /// DATA packets dropped because of a limit, or because they fit no file.
    pub data_dropped: u64,
    /// Half-open sessions of peers dropped for others.
    pub evicted: u64,
    /// Bytes of files retransmitted.
    pub repair_bytes: u64,
    /// Failed storage effects.
    pub storage_errors: u64,
    /// Records that could not be read or stored.
    pub record_errors: u64,
    /// Replies dropped because of a limit.
    pub replies_dropped: u64,
    /// Refusals suppressed because a peer got ten within a second.
    pub refusals_left_out: u64,
    /// Packets dropped because they exceed the path's MTU.
    pub oversize: u64,
}

/// Number of packets by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// BEACON.
    pub beacons: u64,
    /// REQUEST.
    pub requests: u64,
    /// METADATA.
    pub metadata: u64,
    /// DATA.
    pub data: u64,
    /// STATUS.
    pub status: u64,
}

impl PacketCounts {
    pub(crate) fn count(&mut self, packet: &crate::packet::Packet<'_>) {
        use crate::packet::Packet;
        let counter = match packet {
            Packet::Beacon(_) => &mut self.beacons,
            Packet::Request(_) => &mut self.requests,
            Packet::Metadata(_) => &mut self.metadata,
            Packet::Data(_) => &mut self.data,
            Packet::Status(_) => &mut self.status,
        };
        *counter += 1;
    }

    /// Total of all types.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.beacons + self.requests + self.metadata + self.data + self.status
    }
}
