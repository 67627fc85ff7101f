//! Indications of a node to its user, and the user's requests.

use std::fmt;

use bytes::Bytes;
use engine::{EffectError, FileName, NameError, PathId};
use session::StoreRefusal;
use thiserror::Error;

/// Object under way at this node. A restarted sender may reuse the number of a finished one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// Path on which the object is sent; for a received object, the sender's path.
    pub peer: PathId,
    /// `NormNodeId` of the object's sender.
    pub sender: u32,
    /// Transport identifier, unwrapped: messages carry its low 16 bits.
    pub number: u64,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.sender, self.number)
    }
}

/// Content of an object to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// File: a `NORM_OBJECT_FILE`.
    File(FileName),
    /// Bytes in memory: a `NORM_OBJECT_DATA`.
    Data(Bytes),
    /// Stream: a `NORM_OBJECT_STREAM`, whose bytes are written later and delivered as they arrive.
    /// See [`Node::write`](super::Node::write).
    Stream(StreamOptions),
}

/// Options of a stream to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes kept for retransmission, rounded down to whole blocks, at least two. At most
    /// [`Limits::stream`](super::Limits).
    pub buffer: usize,
    /// Whether new bytes overwrite the oldest block even if receivers may lack it: fresh data
    /// matters more than complete data. Otherwise the writer waits.
    pub push: bool,
}

/// Request to send an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Path to send it on.
    pub peer: PathId,
    /// Content.
    pub content: Content,
    /// Content of NORM_INFO: the name of a file. If empty, no NORM_INFO is sent.
    pub info: Bytes,
}

/// Error of a local request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::objects`](super::Limits) objects are already queued.
    #[error("as many objects as allowed are under way")]
    TooManyObjects,
    /// No object with this identifier is under way.
    #[error("there is no object {0}")]
    NoObject(ObjectId),
    /// NORM_INFO does not fit one message.
    #[error("the name has {len} bytes; one message holds at most {max}")]
    InfoTooLong {
        /// Size of NORM_INFO in bytes.
        len: usize,
        /// Maximum size in bytes.
        max: usize,
    },
    /// The settings are unusable.
    #[error("{0}")]
    Settings(String),
    /// Nothing can be sent after a stream until that has ended.
    #[error("a stream is under way on this path")]
    Stream,
    /// The object is not a stream, or was closed.
    #[error("{0} is not a stream that can be written to")]
    NotWritable(ObjectId),
    /// The command does not fit in one message.
    #[error("the command or answer has {len} bytes; one message holds at most {max}")]
    CommandTooLong {
        /// Size of the command in bytes.
        len: usize,
        /// Maximum size in bytes.
        max: usize,
    },
    /// [`Limits::commands`](super::Limits) commands are already queued.
    #[error("too many commands or questions are queued")]
    TooManyCommands,
    /// No receiver was named, and none is known.
    #[error("no receiver is known")]
    NobodyToAsk,
    /// Kinds below 16 are reserved (RFC 5740 §4.2.3.6).
    #[error("{0} is a reserved kind of question; applications use 16 to 255")]
    NoKind(u8),
    /// No such question was received, or it has been forgotten.
    #[error("there is no such question")]
    NoQuestion,
    /// The session is ending and accepts nothing more.
    #[error("the session ends")]
    Ending,
}

/// Piece of a received stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that follow the previous ones.
    Bytes {
        /// Stream offset of the first byte. On a late join only the low 32 bits of the first offset
        /// are known.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
        /// Offsets in `bytes` at which messages begin: the first in each segment.
        messages: Vec<usize>,
    },
    /// Missing bytes that the sender no longer has.
    Gap {
        /// Offset of the first missing byte.
        from: u64,
        /// Offset after the last missing byte.
        to: u64,
    },
}

/// Indication to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Start of an object, sent or received.
    Started {
        /// The object.
        id: ObjectId,
        /// Whether this node sends it.
        is_sender: bool,
        /// Content of NORM_INFO, empty if unknown.
        info: Bytes,
    },
    /// Size of a received object became known.
    Receiving {
        /// The object.
        id: ObjectId,
        /// Size of the object in bytes.
        size: u64,
        /// Bytes of an earlier session from which a coded file resumes.
        resumed: u64,
    },
    /// Start of a received stream, whose bytes are read by [`Node::read`](super::Node::read).
    Stream {
        /// The stream.
        id: ObjectId,
        /// Bytes kept by its sender.
        buffer: u64,
    },
    /// The stream became readable.
    Readable {
        /// The stream.
        id: ObjectId,
    },
    /// The stream became writable again.
    Writable {
        /// The stream.
        id: ObjectId,
    },
    /// The end of the written bytes was announced or acknowledged.
    Flushed {
        /// The stream.
        id: ObjectId,
        /// Number of the announced or acknowledged bytes since the start of the stream.
        bytes: u64,
        /// Number of receivers that acknowledged the bytes.
        acknowledged: u32,
    },
    /// NORM_INFO of an object was received.
    Info {
        /// The object.
        id: ObjectId,
        /// Content of the NORM_INFO.
        info: Bytes,
    },
    /// End of an object at this node.
    Finished(Finished),
    /// New sender, indicated with its second message: senders of a single message are not reported.
    SenderDiscovered {
        /// Path of its messages.
        peer: PathId,
        /// Node number of the sender.
        node: u32,
    },
    /// Command of a sender's application (RFC 5740 §4.2.3.7). Repetitions are filtered out if the
    /// sender runs this implementation; repetitions of other implementations are all indicated.
    Command {
        /// The path of its messages.
        peer: PathId,
        /// Sender's node number.
        node: u32,
        /// Content of the command.
        bytes: Bytes,
    },
    /// Last repetition of a command of this node was sent.
    CommandSent {
        /// Path it was sent on.
        peer: PathId,
        /// Number of the command.
        number: u64,
    },
    /// Question of a sender's application (§4.2.3.6), indicated once, however often it is repeated;
    /// reply with [`Node::answer`](super::Node::answer).
    Question {
        /// The path of its messages.
        peer: PathId,
        /// Sender's node number.
        node: u32,
        /// Kind of question, 16 to 255.
        kind: u8,
        /// Number of the question.
        id: u8,
    },
    /// Receiver's answer to a question of this node.
    Answered {
        /// Path the question was sent on.
        peer: PathId,
        /// Receiver's node number.
        node: u32,
        /// Kind of question.
        kind: u8,
        /// Number of the question.
        id: u8,
        /// Content of the answer.
        bytes: Bytes,
    },
    /// End of a question: no further answer is expected.
    QuestionOver {
        /// Path the question was sent on.
        peer: PathId,
        /// Kind of question.
        kind: u8,
        /// Number of the question.
        id: u8,
        /// Number of receivers given up without an answer.
        silent: u32,
    },
    /// End of a sender's session: it sends nothing more and repairs nothing (§4.2.3.2).
    SenderEnded {
        /// The path of its messages.
        peer: PathId,
        /// Node number of the sender.
        node: u32,
    },
    /// Last repetition of the end of this node's session was sent.
    SessionEnded {
        /// Path it was sent on.
        peer: PathId,
    },
    /// A limit of [`Limits`](super::Limits) was reached, for the first time or again after it was
    /// no longer reached.
    LimitReached(Limit),
}

/// Result of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The object.
    pub id: ObjectId,
    /// Whether this node was the object's sender.
    pub is_sender: bool,
    /// Success or failure. NORM guarantees a sender nothing: without acknowledgements, success only
    /// means that no receiver requested more.
    pub result: Result<(), Failure>,
    /// Number of receivers that acknowledged the object, at the sender.
    pub acknowledged: u32,
    /// Whether every receiver expected to acknowledge did; at a receiver, whether the object is
    /// complete. Never `true` once there were more receivers than
    /// [`Limits::receivers`](super::Limits), because some were not polled.
    pub is_confirmed: bool,
    /// Content of NORM_INFO.
    pub info: Bytes,
    /// Name of the file stored by a receiver.
    pub name: Option<FileName>,
    /// Content of an object that is not a file and was not stored
    /// ([`ReceiverConfig::store_data`](super::ReceiverConfig)).
    pub data: Option<Bytes>,
    /// Size of the object in bytes.
    pub size: u64,
}

/// Reason for the failure of an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Cancelled by the user.
    #[error("cancelled")]
    Cancelled,
    /// Abandoned by the sender, or the sender restarted.
    #[error("given up by the sender")]
    Abandoned,
    /// The sender's session ended before the object was complete.
    #[error("the sender ended its session")]
    Ended,
    /// The sender fell silent.
    #[error("the sender fell silent")]
    Silence,
    /// Another session of the sender resumed the object.
    #[error("another session resumed it")]
    Resumed,
    /// No receiver replied.
    #[error("no receiver replies")]
    NoReceiver,
    /// Some receivers did not acknowledge.
    #[error("{missing} of {known} receivers did not acknowledge")]
    Unacknowledged {
        /// Number of receivers that did not acknowledge.
        missing: u32,
        /// Number of known receivers.
        known: u32,
    },
    /// Storage error.
    #[error("storage: {0}")]
    Storage(EffectError),
    /// No receiver could store the object, for this reason of the last one.
    #[error("the receiver could not store it: {0}")]
    Refused(StoreRefusal),
    /// The file was truncated while it was sent.
    #[error("the file changed while it was sent")]
    Changed,
    /// The digests of blocks and of their received bytes differed too often.
    #[error("received blocks differ from those that were sent")]
    Damaged,
    /// NORM_INFO is not a valid file name.
    #[error("{0}")]
    Name(NameError),
    /// The settings do not allow sending the object.
    #[error("{0}")]
    Settings(String),
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::senders`](super::Limits): another sender was ignored.
    Senders,
    /// [`Limits::objects`](super::Limits): another object was ignored.
    Objects,
    /// [`Limits::receivers`](super::Limits): another receiver is not remembered.
    Receivers,
    /// [`Limits::object`](super::Limits): a larger object was ignored.
    Object,
    /// [`Limits::stream`](super::Limits): data of a stream was dropped, to be requested again.
    Stream,
    /// [`Limits::assembly`](super::Limits): data was dropped, to be requested again.
    Assembly,
    /// [`Limits::write_buffer`](super::Limits): data was dropped, to be requested again.
    WriteBuffer,
    /// [`Limits::repairs`](super::Limits): a repair request was ignored.
    Repairs,
    /// [`Limits::partials`](super::Limits), their bytes or age: an incomplete file was deleted.
    Partials,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// Progress of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The object.
    pub id: ObjectId,
    /// Whether this node sends it.
    pub is_sender: bool,
    /// Bytes sent or received.
    pub progress: u64,
    /// Size of the object in bytes, if known.
    pub size: Option<u64>,
    /// Content of NORM_INFO, empty if unknown.
    pub info: Bytes,
}

/// Counters since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages sent.
    pub sent: MessageCounts,
    /// Valid messages received.
    pub received: MessageCounts,
    /// Datagrams that are not valid messages.
    pub decode_errors: u64,
    /// Messages that belong to nothing under way.
    pub stray: u64,
    /// Duplicate NORM_DATA messages.
    pub duplicate_data: u64,
    /// NORM_DATA messages dropped because of a limit, or because they fit no object.
    pub data_dropped: u64,
    /// Proactive parity segments sent.
    pub auto_parity: u64,
    /// Parity segments sent as repairs.
    pub parity_repairs: u64,
    /// Source segments sent as repairs.
    pub explicit_repairs: u64,
    /// Bytes of files in them.
    pub repair_bytes: u64,
    /// Segments recovered by parity.
    pub recovered: u64,
    /// Blocks that differed from those sent.
    pub digest_failures: u64,
    /// NACKs suppressed because others requested the same.
    pub suppressed: u64,
    /// Failed storage effects.
    pub storage_errors: u64,
    /// Messages dropped because they exceed the path's MTU.
    pub oversize: u64,
    /// Messages dropped because the sender's address was sent three times what came from it.
    pub replies_dropped: u64,
}

/// Number of messages by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// NORM_INFO.
    pub info: u64,
    /// NORM_DATA.
    pub data: u64,
    /// NORM_CMD of all flavours.
    pub commands: u64,
    /// NORM_NACK.
    pub nacks: u64,
    /// NORM_ACK.
    pub acks: u64,
    /// NORM_REPORT.
    pub reports: u64,
}

impl MessageCounts {
    pub(crate) fn count(&mut self, body: &crate::message::Body<'_>) {
        use crate::message::Body;
        let counter = match body {
            Body::Info(_) => &mut self.info,
            Body::Data(_) => &mut self.data,
            Body::Command(_) => &mut self.commands,
            Body::Nack(_) => &mut self.nacks,
            Body::Ack(_) => &mut self.acks,
            Body::Report(_) => &mut self.reports,
        };
        *counter += 1;
    }

    /// Total of all types.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.info + self.data + self.commands + self.nacks + self.acks + self.reports
    }
}
