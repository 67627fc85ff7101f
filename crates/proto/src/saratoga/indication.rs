//! What a peer tells its user, and what its user asks of it.

use std::fmt;

use engine::{FileName, PathId};
use thiserror::Error;
use wire::saratoga::{Ability, EntryKind, StatusCode, Width};

/// Which side of a session a peer is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It sends the file, or deletes one when asked to.
    Sender,
    /// It receives the file, or asked for one to be deleted.
    Receiver,
}

/// A session: its number is unique only between two peers, and for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    /// The path to the other peer.
    pub peer: PathId,
    /// The number on the wire.
    pub number: u32,
    /// The side this peer is on.
    pub role: Role,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.number)
    }
}

/// How to put a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Put {
    /// Begin at once, and repeat until all is there.
    #[default]
    Push,
    /// Ask first, and wait for the answer.
    Ask,
    /// Send everything once and expect no answer, because there is no way back.
    Blind,
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRequest {
    /// Who shall have it.
    pub peer: PathId,
    /// The file here.
    pub source: FileName,
    /// Its name there.
    pub name: String,
    /// How.
    pub put: Put,
    /// Whether to delete it here once it is there: a give.
    pub delete: bool,
    /// Whether it is sent as a stream: its length is not known until its end was read, and no
    /// checksum goes with it.
    pub stream: bool,
}

/// A file to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// Who has it.
    pub peer: PathId,
    /// Its name there.
    pub name: String,
    /// Its name here.
    pub destination: FileName,
    /// Whether it shall be deleted there once it is here: a take.
    pub delete: bool,
}

/// Why a request was refused here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::sessions`](super::Limits) are under way.
    #[error("as many sessions as allowed are under way")]
    TooManySessions,
    /// There is no such session under way.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The name cannot be sent.
    #[error("the name of the file must have 1 to 1023 bytes, and none that is 0")]
    Name,
    /// The version that is spoken has no such request.
    #[error("version 0 knows no other request than get")]
    OnlyGet,
}

/// A notice to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// The records of an earlier run were taken up; so many receptions may go on.
    Restored {
        /// Receptions that came in part.
        partials: usize,
    },
    /// A session began, here or there.
    Started {
        /// The session.
        id: SessionId,
        /// The file's name there, as far as it is known.
        name: String,
    },
    /// It is known what is received.
    Receiving {
        /// The session.
        id: SessionId,
        /// The file's name here.
        name: String,
        /// Its bytes, if they are known.
        size: Option<u64>,
        /// Bytes of it that an earlier session brought.
        resumed: u64,
    },
    /// A session is over at this end.
    Finished(Finished),
    /// What a directory holds.
    Listing {
        /// The session that asked.
        id: SessionId,
        /// Its entries.
        entries: Vec<Listed>,
    },
    /// Another peer says that it is there.
    Beacon {
        /// The path on which it was heard.
        from: PathId,
        /// What it says of itself.
        about: About,
    },
    /// A bound of [`Limits`](super::Limits) was reached for the first time since it was last left.
    LimitReached(Limit),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The session.
    pub id: SessionId,
    /// Whether all is well: the file is there, whole, or deleted as asked.
    pub result: Result<(), Failure>,
    /// Whether the other side said so, or this one saw it. A blind sender does not know.
    pub is_confirmed: bool,
    /// The file's name at the receiver, as far as it is known.
    pub name: String,
    /// The file's bytes, as far as they are known.
    pub size: u64,
    /// Bytes of it that an earlier session brought.
    pub resumed: u64,
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}: {code}", if *.is_ours { "given up here" } else { "ended by the other peer" })]
pub struct Failure {
    /// Whether this peer ended it.
    pub is_ours: bool,
    /// Why.
    pub code: StatusCode,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name within the directory.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Its bytes; 0 of a directory.
    pub size: u64,
    /// When it was last changed, in seconds since 1970, if the peer says so.
    pub modified: Option<u64>,
}

/// What a beacon says of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub eid: String,
    /// The widest descriptor it takes.
    pub descriptor: Width,
    /// Whether it takes streams.
    pub streams: bool,
    /// Whether it takes DATA by UDP-Lite.
    pub udp_lite: bool,
    /// Whether it sends files.
    pub sends: Ability,
    /// Whether it receives files.
    pub receives: Ability,
    /// How much it may store, in KiB, if it says so.
    pub free_kib: Option<u64>,
}

/// A bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::sessions`](super::Limits) or `sessions_per_path`: another peer was refused.
    Sessions,
    /// [`Limits::gaps`](super::Limits): data was dropped.
    Gaps,
    /// [`Limits::write_buffer`](super::Limits): data was dropped.
    WriteBuffer,
    /// [`Limits::replies`](super::Limits): an answer was dropped.
    Replies,
    /// Ten refusals in a second were sent to a peer: more are left out, until it tries again later.
    Refusals,
    /// [`Limits::partials`](super::Limits): a file that came in part was deleted.
    Partials,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session.
    pub id: SessionId,
    /// Bytes sent, or received.
    pub progress: u64,
    /// Bytes of the file, if they are known.
    pub size: Option<u64>,
    /// The file's name, if it is known.
    pub name: String,
}

/// Counters since the peer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets sent.
    pub sent: PacketCounts,
    /// Packets received, whole and understood.
    pub received: PacketCounts,
    /// Datagrams that were no packet.
    pub decode_errors: u64,
    /// Packets that belong to no session.
    pub stray: u64,
    /// DATA packets that brought nothing new.
    pub duplicate_data: u64,
    /// DATA packets dropped because of a bound, or because they fit no file.
    pub data_dropped: u64,
    /// Half-open sessions of peers that made room for others.
    pub evicted: u64,
    /// Bytes of files sent again.
    pub repair_bytes: u64,
    /// Storage effects that failed.
    pub storage_errors: u64,
    /// Records that could not be read or kept.
    pub record_errors: u64,
    /// Answers dropped because of a bound.
    pub replies_dropped: u64,
    /// Refusals left out because a peer got ten within a second.
    pub refusals_left_out: u64,
    /// Packets left out because the path takes none that large.
    pub oversize: u64,
}

/// Packets by kind.
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
    pub(crate) fn count(&mut self, packet: &wire::saratoga::Packet<'_>) {
        use wire::saratoga::Packet;
        let counter = match packet {
            Packet::Beacon(_) => &mut self.beacons,
            Packet::Request(_) => &mut self.requests,
            Packet::Metadata(_) => &mut self.metadata,
            Packet::Data(_) => &mut self.data,
            Packet::Status(_) => &mut self.status,
        };
        *counter += 1;
    }

    /// Packets of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.beacons + self.requests + self.metadata + self.data + self.status
    }
}
