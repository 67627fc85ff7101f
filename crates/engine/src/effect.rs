//! Storage and path operations an engine requests from its driver.

use std::net::SocketAddr;

use bytes::Bytes;
use thiserror::Error;

use crate::{FileName, PathId, Work};

/// Ties an effect to its [`Input::Done`](crate::Input::Done). Chosen by the engine, unique among
/// its pending effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An open file, numbered by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Mode in which to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read; the file must exist.
    Read,
    /// Read and write; creates the file if it does not exist, keeps its content otherwise.
    Write,
    /// Read and write; creates the file if it does not exist, truncates it otherwise.
    Truncate,
}

/// An operation on files or records that the driver carries out. Operations on one file are
/// carried out in order; others may overtake each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEffect {
    /// Open a file; completes with [`Completion::Opened`].
    Open {
        /// Ticket of the completion.
        ticket: Ticket,
        /// The file.
        name: FileName,
        /// Mode.
        mode: OpenMode,
    },
    /// Read up to `len` bytes; completes with [`Completion::Read`], shorter only at the file's end.
    Read {
        /// Ticket of the completion.
        ticket: Ticket,
        /// The file.
        file: FileId,
        /// Offset, in bytes.
        offset: u64,
        /// Length, in bytes.
        len: usize,
    },
    /// Write all of `bytes`; completes with [`Completion::Done`]. A gap before `offset` reads as 0.
    Write {
        /// Ticket of the completion.
        ticket: Ticket,
        /// The file.
        file: FileId,
        /// Offset, in bytes.
        offset: u64,
        /// Content.
        bytes: Bytes,
    },
    /// Make written data survive a crash; completes with [`Completion::Done`].
    Sync {
        /// Ticket of the completion.
        ticket: Ticket,
        /// The file.
        file: FileId,
    },
    /// Compute over the bytes of a file; completes with [`Completion::Read`]. Effects on the file
    /// before it are done before it begins; later ones may overlap with it.
    Work {
        /// Ticket of the completion.
        ticket: Ticket,
        /// The file.
        file: FileId,
        /// The computation.
        work: Work,
    },
    /// Close a file after its pending effects. Has no completion.
    Close {
        /// The file.
        file: FileId,
    },
    /// Change or list files and directories by name.
    Filestore {
        /// Ticket of the completion.
        ticket: Ticket,
        /// Operation.
        request: FilestoreRequest,
    },
    /// Keep, remove or load the engine's own small records, each written atomically and synced.
    Index {
        /// Ticket of the completion.
        ticket: Ticket,
        /// Operation.
        request: IndexRequest,
    },
}

/// Operation on any path, datagrams and streams alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEffect {
    /// Bring up a path known to the driver, or join a group; completes with a path event.
    Open {
        /// The path.
        path: PathId,
    },
    /// Close a path, or leave a group: data pulled before is still sent, nothing more is received.
    /// Has no completion: the path is down from here on.
    Close {
        /// The path.
        path: PathId,
    },
    /// Deliver no more from this path until [`PathEffect::ResumeRead`]: the engine is full. A
    /// stream's peer is held back by flow control; datagrams wait in the driver's buffer and are
    /// dropped when it is full. The end of a stream waits behind its bytes.
    PauseRead {
        /// The path.
        path: PathId,
    },
    /// Deliver bytes again.
    ResumeRead {
        /// The path.
        path: PathId,
    },
    /// Keep the peer of a path: there is a transfer with it. A driver may forget other peers that
    /// it did not know beforehand, when further ones arrive.
    Retain {
        /// The path.
        path: PathId,
    },
    /// The last transfer with the peer of a path has ended.
    Release {
        /// The path.
        path: PathId,
    },
}

/// Operation on streams alone. A driver without streams refuses those that have a ticket and
/// ignores the others ([`StreamEffect::ticket`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// Connect a stream to an address that the protocol itself names, as FTP's PORT and PASV do
    /// (RFC 959 §4.1.2). It comes up as a path chosen by the driver, with this ticket in
    /// [`PathInfo::ticket`]. Completes only on failure.
    ///
    /// [`PathInfo::ticket`]: crate::PathInfo::ticket
    Connect {
        /// Ticket of the path that comes up, or of the error.
        ticket: Ticket,
        /// Source address and port, which may be another host's: a transparent proxy uses its
        /// client's. `None`: chosen by the driver.
        from: Option<SocketAddr>,
        /// Destination.
        to: SocketAddr,
        /// Whether the stream may skip bytes that do not arrive; each gap is reported
        /// ([`PathEvent::Missing`](crate::PathEvent::Missing)). Driver and peer must support this;
        /// otherwise nothing is skipped.
        best_effort: bool,
    },
    /// Cancel a [`StreamEffect::Connect`] whose stream has not come up. Has no completion.
    StopConnecting {
        /// Ticket of the request.
        ticket: Ticket,
    },
    /// Wait for one stream that a peer opens to this host; completes with
    /// [`Completion::Listening`]. The stream comes up as a path chosen by the driver, with this
    /// ticket in [`PathInfo::ticket`].
    ///
    /// [`PathInfo::ticket`]: crate::PathInfo::ticket
    Listen {
        /// Ticket of the completion, and of the path that comes up.
        ticket: Ticket,
        /// Stream whose peer is expected to connect: the listening address is one that this peer
        /// reaches.
        near: PathId,
        /// Whether the stream may skip bytes that do not arrive, as in [`StreamEffect::Connect`].
        best_effort: bool,
    },
    /// Cancel a [`StreamEffect::Listen`] whose stream has not come up. Has no completion.
    StopListening {
        /// Ticket of the request.
        ticket: Ticket,
    },
    /// Abort a stream: pulled but unsent data is discarded, and the peer is reset so that it does
    /// not take partial data for complete. Has no completion: the path is down from here on.
    Reset {
        /// The stream.
        path: PathId,
    },
    /// Close the sending half of a stream, after the data pulled before. An engine requests it when
    /// its last bytes are pulled, not when it has them.
    ShutdownWrite {
        /// The stream.
        path: PathId,
    },
    /// Switch a stream to TLS; completes with a path event.
    StartTls {
        /// The stream.
        path: PathId,
        /// Name the peer's certificate must carry; `None` when the peer is the client.
        server_name: Option<String>,
        /// Bytes the engine received behind the last plaintext byte. They belong to TLS: the peer
        /// may have started already, and a piece of a stream ends anywhere.
        early: Bytes,
    },
    /// Send a stream's data at once, however little (`TCP_NODELAY`). No-op for drivers whose
    /// streams always do so.
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

/// Operation on files and directories, named as in CFDP's filestore requests (CCSDS 727.0-B-5
/// §4.9), which cover the needs of every protocol here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilestoreRequest {
    /// Create an empty file; fails if it exists.
    CreateFile(FileName),
    /// Delete a file.
    DeleteFile(FileName),
    /// Rename a file; fails if the new name is taken.
    RenameFile {
        /// Old name.
        from: FileName,
        /// New name.
        to: FileName,
    },
    /// Append the content of one file to another.
    AppendFile {
        /// File that grows; must exist.
        to: FileName,
        /// File whose content is appended; must exist.
        from: FileName,
    },
    /// Replace the content of one file by the content of another.
    ReplaceFile {
        /// File to replace; must exist.
        to: FileName,
        /// File whose content replaces that of the first; must exist.
        from: FileName,
    },
    /// Create a directory; its parent must exist.
    CreateDirectory(FileName),
    /// Remove an empty directory.
    RemoveDirectory(FileName),
    /// Delete a file if it exists.
    DenyFile(FileName),
    /// Remove an empty directory if it exists.
    DenyDirectory(FileName),
    /// Rename a complete working file to its final name, replacing any file of that name. Atomic
    /// across a crash.
    Install {
        /// Working file.
        from: FileName,
        /// Final name; its directory must exist.
        to: FileName,
    },
    /// List a directory; completes with [`Completion::Listing`].
    List(FileName),
}

/// Operation on the engine's own records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexRequest {
    /// Store `value` under `key`, replacing any earlier value.
    Put {
        /// The record's name.
        key: String,
        /// Content of the record.
        value: Bytes,
    },
    /// Remove a record, if it exists.
    Remove {
        /// The record's name.
        key: String,
    },
    /// Return the records whose keys have this prefix, in order of their keys; completes with
    /// [`Completion::Records`].
    Load {
        /// First part of the keys. Engines that share a store do not load each other's records.
        prefix: String,
    },
}

/// Completion of an effect, or its error.
pub type EffectResult = Result<Completion, EffectError>;

/// Result of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Success.
    Done,
    /// The file is open.
    Opened {
        /// Number of the open file.
        file: FileId,
        /// Length of the file, in bytes.
        len: u64,
        /// Modification time, in seconds since 1970, if known.
        modified: Option<u64>,
    },
    /// Bytes read.
    Read(Bytes),
    /// Entries of a directory, ordered by name.
    Listing(Vec<DirEntry>),
    /// The engine's records, ordered by key.
    Records(Vec<(String, Bytes)>),
    /// Address at which the driver waits for the stream, to be sent to the peer.
    Listening(SocketAddr),
}

/// One line of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name within the directory.
    pub name: String,
    /// Kind of entry.
    pub kind: EntryKind,
    /// Modification time, in seconds since 1970, if known.
    pub modified: Option<u64>,
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file of this many bytes.
    File(u64),
    /// A directory.
    Directory,
}

/// Reason why an effect failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EffectError {
    /// There is no such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// A directory where a file was needed, or the reverse.
    #[error("a file where a directory was needed, or the other way round")]
    WrongKind,
    /// The directory is not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name leads out of the root, or the system forbids access.
    #[error("not allowed")]
    NotAllowed,
    /// The store has no names of this length.
    #[error("the name is too long")]
    NameTooLong,
    /// The file is not as it was when it was opened to be read.
    #[error("changed while it was sent")]
    Changed,
    /// The store is full.
    #[error("no space left")]
    NoSpace,
    /// Any other error, in the store's words.
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
    /// Returns the ticket of its completion; `None` for [`StoreEffect::Close`], which has none.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match *self {
            Self::Open { ticket, .. }
            | Self::Read { ticket, .. }
            | Self::Write { ticket, .. }
            | Self::Sync { ticket, .. }
            | Self::Work { ticket, .. }
            | Self::Filestore { ticket, .. }
            | Self::Index { ticket, .. } => Some(ticket),
            Self::Close { .. } => None,
        }
    }

    /// Returns the number of bytes that the effect holds, or will hold until it completes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Read { len, .. } => *len,
            Self::Write { bytes, .. } => bytes.len(),
            Self::Open { .. }
            | Self::Sync { .. }
            | Self::Work { .. }
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
            | Self::Work { ticket, .. }
            | Self::Filestore { ticket, .. }
            | Self::Index { ticket, .. } => Some(ticket),
            Self::Close { .. } => None,
        }
    }
}

impl StreamEffect {
    /// Returns the ticket of its completion; `None` if it has none.
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

    /// Returns the ticket it carries: its own, or the ticket of the request it cancels.
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
    /// Returns the ticket of its completion; `None` if it has none.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Store(effect) => effect.ticket(),
            Self::Path(_) => None,
            Self::Stream(effect) => effect.ticket(),
        }
    }

    /// Replaces its ticket, if it has one: a layer that owns several engines distinguishes their
    /// completions by its own tickets.
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
