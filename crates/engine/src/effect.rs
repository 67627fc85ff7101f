//! Storage and path operations an engine asks its driver for.

use std::net::SocketAddr;

use bytes::Bytes;
use thiserror::Error;

use crate::{FileName, PathId};

/// Ties an effect to its [`Input::Done`](crate::Input::Done). Chosen by the engine, unique among
/// its effects under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An open file, numbered by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To read; it must exist.
    Read,
    /// To read and write; made if it does not exist, kept as it is if it does.
    Write,
    /// To read and write; made if it does not exist, emptied if it does.
    Truncate,
}

/// An operation on files or records that the driver carries out. Those on one file are carried out in their order; others
/// may overtake each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEffect {
    /// Open a file; answered by [`Completion::Opened`].
    Open {
        /// Names the answer.
        ticket: Ticket,
        /// The file.
        name: FileName,
        /// What for.
        mode: OpenMode,
    },
    /// Read up to `len` bytes; answered by [`Completion::Read`], shorter only at the file's end.
    Read {
        /// Names the answer.
        ticket: Ticket,
        /// The file.
        file: FileId,
        /// Where from, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: usize,
    },
    /// Write all of `bytes`; answered by [`Completion::Done`]. A gap before `offset` reads as 0.
    Write {
        /// Names the answer.
        ticket: Ticket,
        /// The file.
        file: FileId,
        /// Where to, in bytes.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// Make what was written survive a crash; answered by [`Completion::Done`].
    Sync {
        /// Names the answer.
        ticket: Ticket,
        /// The file.
        file: FileId,
    },
    /// Close a file, after the effects on it that are under way. Not answered.
    Close {
        /// The file.
        file: FileId,
    },
    /// Change or list files and directories by name.
    Filestore {
        /// Names the answer.
        ticket: Ticket,
        /// What to do.
        request: FilestoreRequest,
    },
    /// Keep, forget or load the engine's own small records, each written atomically and synced.
    Index {
        /// Names the answer.
        ticket: Ticket,
        /// What to do.
        request: IndexRequest,
    },
}

/// Operation on any path, datagrams and streams alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEffect {
    /// Bring up a path the driver knows how to reach, or join a group; answered by a path event.
    Open {
        /// The path.
        path: PathId,
    },
    /// Give up a path, or leave a group: what was pulled before is still sent, nothing more is
    /// received. Not answered: the path is down from here on.
    Close {
        /// The path.
        path: PathId,
    },
    /// Hand in nothing more from this path until [`PathEffect::ResumeRead`]: the engine is full. A
    /// stream's peer is held back by it; datagrams wait in the driver until its buffer is full,
    /// and are then lost. The end of a stream waits behind its bytes.
    PauseRead {
        /// The path.
        path: PathId,
    },
    /// Hand in bytes again.
    ResumeRead {
        /// The path.
        path: PathId,
    },
}

/// Operation on streams alone. A driver without streams refuses those that have a ticket and
/// ignores the others ([`StreamEffect::ticket`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// Connect a stream to an address that the protocol itself names, as FTP's PORT and PASV do
    /// (RFC 959 §4.1.2). It comes up as a path of the driver's choice whose [`PathInfo::ticket`] is
    /// the ticket; answered only if that cannot be.
    ///
    /// [`PathInfo::ticket`]: crate::PathInfo::ticket
    Connect {
        /// Names the path that comes up, or the answer.
        ticket: Ticket,
        /// Where it begins: an address and port, which may be another host's, as those of the client
        /// that a transparent proxy stands for. `None`: wherever the driver likes.
        from: Option<SocketAddr>,
        /// Destination.
        to: SocketAddr,
        /// Whether the stream may go on without bytes that do not come, each of which is then
        /// reported ([`PathEvent::Missing`](crate::PathEvent::Missing)). That takes a driver and a
        /// peer that know of it; with others nothing is left out.
        best_effort: bool,
    },
    /// Connect no longer the stream of a [`StreamEffect::Connect`] that has not come up. Not
    /// answered.
    StopConnecting {
        /// Ticket of the request.
        ticket: Ticket,
    },
    /// Wait for one stream that a peer opens to this host; answered by [`Completion::Listening`]. It
    /// comes up as a path of the driver's choice whose [`PathInfo::ticket`] is the ticket.
    ///
    /// [`PathInfo::ticket`]: crate::PathInfo::ticket
    Listen {
        /// Names the answer, and the path that comes up.
        ticket: Ticket,
        /// The stream whose peer is expected: the address is one that this peer reaches.
        near: PathId,
        /// Whether the stream may go on without bytes that do not come, as in
        /// [`StreamEffect::Connect`].
        best_effort: bool,
    },
    /// Wait no longer for the stream of a [`StreamEffect::Listen`] that has not come. Not answered.
    StopListening {
        /// Ticket of the request.
        ticket: Ticket,
    },
    /// Give up a stream at once: what was pulled before and is not sent is thrown away, and the peer
    /// is reset, so that it does not take what it has for all. Not answered: the path is down from
    /// here on.
    Reset {
        /// The stream.
        path: PathId,
    },
    /// End the sending half of a stream, after what was pulled before; so an engine asks for it
    /// when its last bytes are pulled, not when it has them.
    ShutdownWrite {
        /// The stream.
        path: PathId,
    },
    /// Turn a stream into TLS; answered by a path event.
    StartTls {
        /// The stream.
        path: PathId,
        /// The name the peer's certificate must carry; `None` when the peer is the client.
        server_name: Option<String>,
        /// Bytes the engine was handed behind the last plain one: the peer may have begun already,
        /// and a piece of a stream ends anywhere. They belong to TLS.
        early: Bytes,
    },
    /// Send what a stream has as soon as it has it, however short (`TCP_NODELAY`). A driver whose
    /// streams do so anyway has nothing to do.
    NoDelay {
        /// The stream.
        path: PathId,
    },
}

/// An operation the driver carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Operation on files or records.
    Store(StoreEffect),
    /// Operation on a path of any kind.
    Path(PathEffect),
    /// Operation on a stream.
    Stream(StreamEffect),
}

/// What to do with files and directories. The names are those of CFDP's filestore requests
/// (CCSDS 727.0-B-5 §4.9), which cover what every protocol here needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilestoreRequest {
    /// Make an empty file; fails if there is one.
    CreateFile(FileName),
    /// Delete a file.
    DeleteFile(FileName),
    /// Rename a file; fails if the new name is taken.
    RenameFile {
        /// What it is called.
        from: FileName,
        /// What it shall be called.
        to: FileName,
    },
    /// Append one file's content to another.
    AppendFile {
        /// The file that grows; it must exist.
        to: FileName,
        /// The file whose content is added; it must exist.
        from: FileName,
    },
    /// Replace one file's content by another's.
    ReplaceFile {
        /// The file that is replaced; it must exist.
        to: FileName,
        /// The file whose content it gets; it must exist.
        from: FileName,
    },
    /// Make a directory; its parent must exist.
    CreateDirectory(FileName),
    /// Remove an empty directory.
    RemoveDirectory(FileName),
    /// Delete a file if there is one.
    DenyFile(FileName),
    /// Remove an empty directory if there is one.
    DenyDirectory(FileName),
    /// Give a complete working file its final name, in place of any file that has it, in one step
    /// that survives a crash either wholly or not at all.
    Install {
        /// The working file.
        from: FileName,
        /// Its final name; the directory must exist.
        to: FileName,
    },
    /// List a directory; answered by [`Completion::Listing`].
    List(FileName),
}

/// What to do with the engine's own records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexRequest {
    /// Keep `value` under `key`, in place of what was there.
    Put {
        /// The record's name.
        key: String,
        /// Its content.
        value: Bytes,
    },
    /// Forget a record, if there is one.
    Remove {
        /// The record's name.
        key: String,
    },
    /// Return all records, in order of their keys; answered by [`Completion::Records`].
    Load,
}

/// What an effect gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It was done.
    Done,
    /// The file is open.
    Opened {
        /// Its number from now on.
        file: FileId,
        /// Its length, in bytes.
        len: u64,
        /// When it was last changed, in seconds since 1970, if the store knows.
        modified: Option<u64>,
    },
    /// What was read.
    Read(Bytes),
    /// What a directory holds, in order of the names.
    Listing(Vec<DirEntry>),
    /// The engine's records, in order of their keys.
    Records(Vec<(String, Bytes)>),
    /// Where the driver waits for the stream; what the peer is told.
    Listening(SocketAddr),
}

/// One line of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// When it was last changed, in seconds since 1970, if the store knows.
    pub modified: Option<u64>,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file of this many bytes.
    File(u64),
    /// A directory.
    Directory,
}

/// Why an effect failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EffectError {
    /// There is no such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// A file was needed, a directory found, or the other way round.
    #[error("a file where a directory was needed, or the other way round")]
    WrongKind,
    /// The directory is not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name leads out of the root, or the system forbids the access.
    #[error("not allowed")]
    NotAllowed,
    /// The store is full.
    #[error("no space left")]
    NoSpace,
    /// Anything else, in the store's words.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreEffect> for Effect {
    fn from(effect: StoreEffect) -> Self {
        Self::Store(effect)
    }
}

impl From<PathEffect> for Effect {
    fn from(effect: PathEffect) -> Self {
        Self::Path(effect)
    }
}

impl From<StreamEffect> for Effect {
    fn from(effect: StreamEffect) -> Self {
        Self::Stream(effect)
    }
}

impl StoreEffect {
    /// The ticket its answer will carry; `None` for [`StoreEffect::Close`], which is not answered.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match *self {
            Self::Open { ticket, .. }
            | Self::Read { ticket, .. }
            | Self::Write { ticket, .. }
            | Self::Sync { ticket, .. }
            | Self::Filestore { ticket, .. }
            | Self::Index { ticket, .. } => Some(ticket),
            Self::Close { .. } => None,
        }
    }

    /// Bytes that it holds or will hold until it is answered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Read { len, .. } => *len,
            Self::Write { bytes, .. } => bytes.len(),
            Self::Open { .. }
            | Self::Sync { .. }
            | Self::Close { .. }
            | Self::Filestore { .. }
            | Self::Index { .. } => 0,
        }
    }

    fn ticket_mut(&mut self) -> Option<&mut Ticket> {
        match self {
            Self::Open { ticket, .. }
            | Self::Read { ticket, .. }
            | Self::Write { ticket, .. }
            | Self::Sync { ticket, .. }
            | Self::Filestore { ticket, .. }
            | Self::Index { ticket, .. } => Some(ticket),
            Self::Close { .. } => None,
        }
    }
}

impl StreamEffect {
    /// The ticket its answer will carry; `None` for those that are not answered.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match *self {
            Self::Connect { ticket, .. } | Self::Listen { ticket, .. } => Some(ticket),
            Self::StopConnecting { .. }
            | Self::StopListening { .. }
            | Self::Reset { .. }
            | Self::ShutdownWrite { .. }
            | Self::StartTls { .. }
            | Self::NoDelay { .. } => None,
        }
    }

    /// The ticket it names, its own or that of the request it takes back.
    fn ticket_mut(&mut self) -> Option<&mut Ticket> {
        match self {
            Self::Connect { ticket, .. }
            | Self::Listen { ticket, .. }
            | Self::StopConnecting { ticket }
            | Self::StopListening { ticket } => Some(ticket),
            Self::Reset { .. }
            | Self::ShutdownWrite { .. }
            | Self::StartTls { .. }
            | Self::NoDelay { .. } => None,
        }
    }
}

impl Effect {
    /// The ticket its answer will carry; `None` for those that are not answered.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Store(effect) => effect.ticket(),
            Self::Path(_) => None,
            Self::Stream(effect) => effect.ticket(),
        }
    }

    /// Names another ticket, where it has one: a layer that owns others tells their answers apart
    /// by tickets of its own.
    pub fn set_ticket(&mut self, to: Ticket) {
        let ticket = match self {
            Self::Store(effect) => effect.ticket_mut(),
            Self::Path(_) => None,
            Self::Stream(effect) => effect.ticket_mut(),
        };
        if let Some(ticket) = ticket {
            *ticket = to;
        }
    }
}
