//! What a node tells its user, and what its user asks of it.

use std::fmt;

use bytes::Bytes;
use engine::{EffectError, FileName, PathId};
use thiserror::Error;

/// An object under way at this node. A sender that began anew may use the number of one that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// The path on which it is sent; the sender's own if it is received.
    pub peer: PathId,
    /// Who sends it, `NormNodeId`.
    pub sender: u32,
    /// Its transport identifier, without end: the message carries the last 16 bits.
    pub number: u64,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.sender, self.number)
    }
}

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file: a `NORM_OBJECT_FILE`.
    File(FileName),
    /// Bytes: a `NORM_OBJECT_DATA`.
    Data(Bytes),
    /// Bytes that are handed in later, bit by bit, and delivered as they come: a
    /// `NORM_OBJECT_STREAM`. See [`Node::write`](super::Node::write).
    Stream(StreamOptions),
}

/// How a stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes kept, so that they can be sent again; as many whole blocks as fit, and two at the
    /// least. [`Limits::stream`](super::Limits) is the most.
    pub buffer: usize,
    /// Whether the oldest block makes room for new bytes even if receivers may lack it: what is
    /// new matters more than what is whole. Otherwise the writer waits.
    pub push: bool,
}

/// An object to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// To whom.
    pub peer: PathId,
    /// What.
    pub content: Content,
    /// What NORM_INFO says of it: the name of a file. Empty sends none.
    pub info: Bytes,
}

/// Why a request was refused here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// [`Limits::objects`](super::Limits) wait to be sent.
    #[error("as many objects as allowed are under way")]
    TooManyObjects,
    /// There is no such object under way.
    #[error("there is no object {0}")]
    NoObject(ObjectId),
    /// NORM_INFO does not fit one message.
    #[error("the name is too long: {len} bytes, of which one message takes {max}")]
    InfoTooLong {
        /// Its bytes.
        len: usize,
        /// Most bytes.
        max: usize,
    },
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Nothing is sent behind a stream until that is over.
    #[error("a stream is under way on this path")]
    Stream,
    /// It is no stream, or was closed.
    #[error("{0} is not a stream that can be written to")]
    NotWritable(ObjectId),
    /// What the application says does not fit one message.
    #[error("{len} bytes are said at once, of which one message takes {max}")]
    CommandTooLong {
        /// Its bytes.
        len: usize,
        /// Most bytes.
        max: usize,
    },
    /// [`Limits::commands`](super::Limits) wait to be said.
    #[error("as much as allowed waits to be said")]
    TooManyCommands,
    /// No receiver was named, and none was heard of.
    #[error("there is nobody to be asked")]
    NobodyToAsk,
    /// Kinds of questions before 16 are not the application's (RFC 5740 §4.2.3.6).
    #[error("{0} is no kind of question of an application; these begin with 16")]
    NoKind(u8),
    /// Nobody asked that, or it is long ago.
    #[error("there is no such question")]
    NoQuestion,
    /// The session ends, and takes nothing more.
    #[error("the session ends")]
    Ending,
}

/// What a stream brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes.
    Bytes {
        /// How many bytes of the stream were before these. The first that are delivered tell where
        /// the reader joined; before that only the last 32 bits are known.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
        /// Where messages begin in them: the first of each segment.
        messages: Vec<usize>,
    },
    /// Bytes are missing that the sender no longer has.
    Gap {
        /// The first.
        from: u64,
        /// The one behind the last.
        to: u64,
    },
}

/// A notice to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// An object began, here or there.
    Started {
        /// The object.
        id: ObjectId,
        /// Whether this node sends it.
        is_sender: bool,
        /// What NORM_INFO says, as far as it is known.
        info: Bytes,
    },
    /// It is known what is received.
    Receiving {
        /// The object.
        id: ObjectId,
        /// Its bytes.
        size: u64,
    },
    /// A stream is received: its bytes are fetched by [`Node::read`](super::Node::read).
    Stream {
        /// The stream.
        id: ObjectId,
        /// Bytes that its sender keeps.
        buffer: u64,
    },
    /// There are bytes to read, where there were none.
    Readable {
        /// The stream.
        id: ObjectId,
    },
    /// There is room for bytes, where there was too little.
    Writable {
        /// The stream.
        id: ObjectId,
    },
    /// The end of what was written to a stream was told, or acknowledged.
    Flushed {
        /// The stream.
        id: ObjectId,
        /// How many bytes these are in all.
        bytes: u64,
        /// Receivers that acknowledged them.
        acknowledged: u32,
    },
    /// NORM_INFO of an object came.
    Info {
        /// The object.
        id: ObjectId,
        /// What it says.
        info: Bytes,
    },
    /// An object is over at this end.
    Finished(Finished),
    /// A second message of a sender arrived: strangers that send one are not reported.
    SenderDiscovered {
        /// The path of its messages.
        peer: PathId,
        /// Its number.
        node: u32,
    },
    /// A sender's application says something to all receivers (RFC 5740 §4.2.3.7). Repetitions are left
    /// out if the sender is of this implementation; of others each of them is told.
    Command {
        /// The path of its messages.
        peer: PathId,
        /// The sender's number.
        node: u32,
        /// What it says.
        bytes: Bytes,
    },
    /// A command of this node was repeated as often as it should be.
    CommandSent {
        /// The path it was sent on.
        peer: PathId,
        /// Its number.
        number: u64,
    },
    /// A sender's application asks something (§4.2.3.6), once however often that is repeated;
    /// [`Node::answer`](super::Node::answer) answers.
    Question {
        /// The path of its messages.
        peer: PathId,
        /// The sender's number.
        node: u32,
        /// The kind of question, 16 to 255.
        kind: u8,
        /// Its number.
        id: u8,
    },
    /// A receiver answered a question of this node.
    Answered {
        /// The path it was asked on.
        peer: PathId,
        /// The receiver's number.
        node: u32,
        /// The kind of question.
        kind: u8,
        /// Its number.
        id: u8,
        /// What it answered.
        bytes: Bytes,
    },
    /// Nobody is left of whom an answer is expected.
    QuestionOver {
        /// The path it was asked on.
        peer: PathId,
        /// The kind of question.
        kind: u8,
        /// Its number.
        id: u8,
        /// Receivers that were asked in vain.
        silent: u32,
    },
    /// A sender's session is over: nothing more comes, and nothing is repaired (§4.2.3.2).
    SenderEnded {
        /// The path of its messages.
        peer: PathId,
        /// Its number.
        node: u32,
    },
    /// The end of a session of this node was told as often as it should be.
    SessionEnded {
        /// The path it was sent on.
        peer: PathId,
    },
    /// A bound of [`Limits`](super::Limits) was reached for the first time since it was last left.
    LimitReached(Limit),
}

/// How an object ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The object.
    pub id: ObjectId,
    /// Whether this node sent it.
    pub is_sender: bool,
    /// Whether all is well. NORM itself promises a sender nothing: without acknowledgements its
    /// end only says that nobody asked for more.
    pub result: Result<(), Failure>,
    /// Receivers that acknowledged it, at a sender.
    pub acknowledged: u32,
    /// Whether every receiver that was to acknowledge did; or, at a receiver, that it is there. Never
    /// once more receivers were heard than [`Limits::receivers`](super::Limits): some were not asked.
    pub is_confirmed: bool,
    /// What NORM_INFO said.
    pub info: Bytes,
    /// The name under which a receiver stored it.
    pub name: Option<FileName>,
    /// The bytes of an object that is no file and was not stored
    /// ([`ReceiverConfig::store_data`](super::ReceiverConfig)).
    pub data: Option<Bytes>,
    /// Its bytes.
    pub size: u64,
}

/// Why an object failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The user ended it.
    #[error("cancelled")]
    Cancelled,
    /// The sender says that it sends no more of it, or began anew.
    #[error("given up by the sender")]
    Abandoned,
    /// The sender's session ended before it was here.
    #[error("the sender ended its session")]
    Ended,
    /// Nothing more came.
    #[error("the sender fell silent")]
    Silence,
    /// Nobody was heard.
    #[error("no receiver answers")]
    NoReceiver,
    /// Receivers did not acknowledge.
    #[error("{missing} of {known} receivers did not acknowledge")]
    Unacknowledged {
        /// Those that did not.
        missing: u32,
        /// Those that are known.
        known: u32,
    },
    /// The store.
    #[error("storage: {0}")]
    Storage(EffectError),
    /// The file became shorter while it was sent.
    #[error("the file changed while it was sent")]
    Changed,
    /// What NORM_INFO names cannot be the name of a file.
    #[error("the name is not allowed")]
    Name,
    /// It cannot be sent with these settings.
    #[error("{0}")]
    Settings(String),
}

/// A bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::senders`](super::Limits): another sender was not heard.
    Senders,
    /// [`Limits::objects`](super::Limits): another object was not received.
    Objects,
    /// [`Limits::receivers`](super::Limits): another receiver is not remembered.
    Receivers,
    /// [`Limits::object`](super::Limits): a larger object was not received.
    Object,
    /// [`Limits::stream`](super::Limits): data of a stream was dropped, and is asked for again.
    Stream,
    /// [`Limits::assembly`](super::Limits): data was dropped, and is asked for again.
    Assembly,
    /// [`Limits::write_buffer`](super::Limits): data was dropped, and is asked for again.
    WriteBuffer,
    /// [`Limits::repairs`](super::Limits): a request for repairs was not heeded.
    Repairs,
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The object.
    pub id: ObjectId,
    /// Whether this node sends it.
    pub is_sender: bool,
    /// Bytes sent, or received.
    pub progress: u64,
    /// Its bytes, if they are known.
    pub size: Option<u64>,
    /// What NORM_INFO says, as far as it is known.
    pub info: Bytes,
}

/// Counters since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages sent.
    pub sent: MessageCounts,
    /// Messages received, whole and understood.
    pub received: MessageCounts,
    /// Datagrams that were no message.
    pub decode_errors: u64,
    /// Messages that concern nothing under way.
    pub stray: u64,
    /// NORM_DATA that brought nothing new.
    pub duplicate_data: u64,
    /// NORM_DATA dropped because of a bound, or because it fits no object.
    pub data_dropped: u64,
    /// Parity sent unasked.
    pub auto_parity: u64,
    /// Segments sent as repairs: parity.
    pub parity_repairs: u64,
    /// Segments sent as repairs: the segments themselves.
    pub explicit_repairs: u64,
    /// Segments that were recovered by parity.
    pub recovered: u64,
    /// NACKs left out because others asked for the same.
    pub suppressed: u64,
    /// Storage effects that failed.
    pub storage_errors: u64,
    /// Messages left out because the path takes none that large.
    pub oversize: u64,
}

/// Messages by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// NORM_INFO.
    pub info: u64,
    /// NORM_DATA.
    pub data: u64,
    /// NORM_CMD of all kinds.
    pub commands: u64,
    /// NORM_NACK.
    pub nacks: u64,
    /// NORM_ACK.
    pub acks: u64,
    /// NORM_REPORT.
    pub reports: u64,
}

impl MessageCounts {
    pub(crate) fn count(&mut self, body: &wire::norm::Body<'_>) {
        use wire::norm::Body;
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

    /// Messages of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.info + self.data + self.commands + self.nacks + self.acks + self.reports
    }
}
