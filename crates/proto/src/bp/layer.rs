//! What stands between a bundle protocol agent and its convergence layers (RFC 9171 §7.2).
//!
//! A layer is an engine of its own, with paths, timers and effects; what it has to say to its agent are its
//! indications, what the agent wants of it are [`Command`]s. Neither waits for the other and no memory is shared, so
//! a simulator runs both in one host, and a node on real sockets runs each in a thread of its own.
//!
//! A transfer in either direction is one bundle. What a layer hears of it comes as pieces, or as a working file that the
//! layer wrote itself, in the same store; what it is to send is bytes, or a part of a file in that store. The agent answers for
//! every transfer that came whole: until it has said [`Command::Accept`], the layer does not let its peer
//! believe that the bundle is safe.

use bytes::Bytes;
use engine::{Engine, FileName, Time};
use wire::bp7::Eid;

use crate::stack::OverTcp;

/// A neighbour, as one convergence layer reaches it. Numbered by whoever configures the layer; neighbours
/// that come by themselves get numbers of the layer's from [`LinkId::CAME`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The first number of neighbours that came by themselves.
    pub const CAME: Self = Self(1 << 31);
}

/// A bundle to be sent, as its agent calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// A bundle that comes, as its layer calls it. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Where bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file.
    File {
        /// Which.
        name: FileName,
        /// Where they begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
}

impl Content {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A bundle on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// What comes before the payload.
    pub head: Bytes,
    /// The payload.
    pub payload: Content,
    /// What comes behind it.
    pub tail: Bytes,
    /// Whether the layer is to see to it that it arrives, where it can do either: a red block, not a green one.
    pub reliable: bool,
}

impl Outgoing {
    /// Bytes of the bundle.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.payload.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why an agent refuses a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It has the bundle.
    Completed,
    /// It has no room for it.
    NoResources,
    /// What came is damaged: once more.
    Retransmit,
    /// What came is no bundle, or none for this node.
    NotAcceptable,
}

/// What an agent wants of a layer. Of links and transfers that are over nothing is wanted any more: such a
/// command changes nothing. Where both sides are threads, a command may be older than the last end of its link: the bundle may be
/// gone then, and its file with it, which is a failure like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The neighbour may be reached from now on, as far as the agent knows: a contact begins.
    Open {
        /// Which.
        link: LinkId,
    },
    /// It may not: a contact ends. What is under way may end first, where the layer can do that.
    Close {
        /// Which.
        link: LinkId,
    },
    /// Send a bundle. At most [`Neighbour::window`] are under way at one time, or more of them with
    /// [`Neighbour::window_bytes`] together. Answered by [`Event::Sent`].
    Send {
        /// Whereto.
        link: LinkId,
        /// What the answer calls it.
        tag: Tag,
        /// The bundle.
        bundle: Outgoing,
    },
    /// Send it no longer, if that can be. Answered by [`Event::Sent`], too.
    Cancel {
        /// Whereto.
        link: LinkId,
        /// Which.
        tag: Tag,
    },
    /// The bundle that came whole is safe: the peer may know that. A working file is the agent's from here on.
    Accept {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
    },
    /// The bundle that comes, or came, is not wanted.
    Refuse {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
        /// Why.
        why: Refusal,
    },
    /// Hand in no further pieces for now; what a peer sends waits at the peer, where it can.
    Pause {
        /// From where.
        link: LinkId,
    },
    /// Hand in pieces again.
    Resume {
        /// From where.
        link: LinkId,
    },
}

/// What a layer knows of a neighbour that can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The node, if it said.
    pub node: Option<Eid>,
    /// Whether that is proved, by a certificate or a key.
    pub is_authenticated: bool,
    /// Bytes of the longest bundle that it takes.
    pub bundle_max: u64,
    /// Bundles that may be under way to it at one time; 0 while it takes none, as one with which the session ends.
    pub window: usize,
    /// Bytes of bundles that may be under way to it at one time where `window` is full, so that many short ones go together;
    /// 0 if that is all.
    pub window_bytes: u64,
}

/// How sending a bundle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The neighbour has it.
    Acknowledged,
    /// It has left; nobody knows whether it arrives.
    Left,
    /// The neighbour does not want it.
    Refused(Refusal),
    /// The link broke, the contact ended, or the agent cancelled it.
    Failed {
        /// Bytes from the first on that the neighbour has acknowledged and keeps, where layers make
        /// fragments of what was cut off (RFC 7242 §3.2).
        acknowledged: u64,
    },
}

/// What a layer has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour can be reached, or what is known of it changed.
    Up {
        /// Which.
        link: LinkId,
        /// What is known of it.
        neighbour: Neighbour,
    },
    /// It cannot be reached. What was under way was told of before.
    Down {
        /// Which.
        link: LinkId,
        /// Why, for people.
        why: &'static str,
    },
    /// A bundle begins to come.
    Begins {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
        /// Its length, if the peer said.
        bytes: Option<u64>,
    },
    /// The next bytes of it.
    Piece {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
        /// These. They may be a part of the memory in which others came, too: what is to stay for long is copied.
        bytes: Bytes,
    },
    /// It is whole: all pieces were handed in, or it is in this working file, which is synced. Answered by
    /// [`Command::Accept`] or [`Command::Refuse`].
    Whole {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
        /// The file and its length, if there were no pieces.
        file: Option<(FileName, u64)>,
    },
    /// It does not come whole.
    Broken {
        /// From where.
        link: LinkId,
        /// Which.
        transfer: TransferId,
        /// What came of it is to be kept as a fragment (RFC 7242 §3.2).
        keep: bool,
    },
    /// Sending a bundle ended.
    Sent {
        /// Whereto.
        link: LinkId,
        /// Which.
        tag: Tag,
        /// How.
        outcome: Outcome,
    },
    /// The peer did what it may not do.
    PeerFault {
        /// Which.
        link: LinkId,
        /// What, for people.
        what: &'static str,
    },
}

/// A convergence layer.
pub trait Layer: Engine<Indication = Event> {
    /// Takes what the agent wants. What becomes of it is an event.
    fn command(&mut self, now: Time, command: Command);
}

/// A layer over streams, over this crate's TCP.
impl<L: Layer> Layer for OverTcp<L> {
    fn command(&mut self, now: Time, command: Command) {
        self.call(now, |layer| layer.command(now, command));
    }
}
