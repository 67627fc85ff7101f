//! Interface between a bundle protocol agent and its convergence layers (RFC 9171 §7.2).
//!
//! A layer is a separate engine, with paths, timers and effects. Its indications are events for
//! the agent; the agent's requests are [`Command`]s. Neither waits for the other and no memory is
//! shared, so a simulator runs both in one host, and a node on real sockets runs each in its own
//! thread.
//!
//! A transfer in either direction is one bundle. A received bundle comes as pieces, or as a
//! working file that the layer wrote in the same store. A bundle to send is bytes, or a part of a
//! file in that store. The agent replies to every complete transfer. Until [`Command::Accept`],
//! the layer does not confirm the bundle to its peer.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{Engine, FileName, Time};
use stack::OverTcp;

use super::admission::Admission;
use crate::codec::bp7::Eid;

/// A neighbour of one convergence layer. Configured neighbours are numbered by the configuration;
/// unconfigured ones get numbers from [`LinkId::CAME`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// First number of unconfigured neighbours.
    pub const CAME: Self = Self(1 << 31);
}

/// Identifier of a bundle to send, assigned by the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Identifier of a bundle being received, assigned by the layer and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Bytes in memory or in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file.
    File {
        /// Name of the file.
        name: FileName,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A bundle to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Blocks before the payload.
    pub head: Bytes,
    /// The payload.
    pub payload: Content,
    /// Bytes behind the payload.
    pub tail: Bytes,
    /// Whether delivery must be reliable, where the layer supports both: red blocks, not green
    /// ones.
    pub reliable: bool,
    /// Its identity over restarts of the node; `None` if it always starts over.
    pub identity: Option<Identity>,
}

/// Identity of a bundle that is sent, over restarts of the node. The peer may have a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number that all runs derive from the bytes of the bundle. Other nodes cannot guess it.
    pub number: u64,
    /// Whether an earlier run may have sent the bundle.
    pub resumes: bool,
}

impl Outgoing {
    /// Length of the bundle in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.payload.len()
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reason of an agent to refuse a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It already has the bundle.
    Completed,
    /// It has no room for it.
    NoResources,
    /// The bundle is damaged; it should be retransmitted.
    Retransmit,
    /// Not a bundle, or not one for this node.
    NotAcceptable,
}

/// Request of an agent to a layer. A command for an ended link or transfer has no effect. Between
/// threads, a command may be older than the last end of its link. Its bundle and file may then no
/// longer exist, which is a failure like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A contact begins: according to the agent, the neighbour can be reached.
    Open {
        /// The neighbour.
        link: LinkId,
    },
    /// A contact ends. Bundles in transit may complete first, where the layer can do that.
    Close {
        /// The neighbour.
        link: LinkId,
    },
    /// Sends a bundle. At most [`Neighbour::window`] bundles are in transit at one time, or more of
    /// them with [`Neighbour::window_bytes`] together. Ends with [`Event::Sent`].
    Send {
        /// The neighbour.
        link: LinkId,
        /// Identifier in the event.
        tag: Tag,
        /// The bundle.
        bundle: Outgoing,
    },
    /// Cancels a bundle if possible. Ends with [`Event::Sent`], too.
    Cancel {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        tag: Tag,
    },
    /// Accepts a complete bundle, which is safe: the layer may confirm it to the peer. The agent
    /// owns a working file from here on.
    Accept {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
    },
    /// Refuses a bundle, whole or partly received.
    Refuse {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
        /// The reason.
        why: Refusal,
    },
    /// Stops handing in pieces; data waits at the peer if the protocol can stop it.
    Pause {
        /// The neighbour.
        link: LinkId,
    },
    /// Hands in pieces again.
    Resume {
        /// The neighbour.
        link: LinkId,
    },
}

/// Properties of a neighbour that can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Node ID of the peer, if it announced one that counts.
    pub node: Option<Eid>,
    /// Whether a certificate or key proves the node ID.
    pub is_authenticated: bool,
    /// Longest bundle that it accepts, in bytes.
    pub bundle_max: u64,
    /// Bundles in transit to it at one time; 0 while it accepts none, for example while the session
    /// ends.
    pub window: usize,
    /// Bytes in transit below which further bundles may follow although `window` is full, so that
    /// many short bundles go together; 0 for no such allowance.
    pub window_bytes: u64,
}

/// Result of sending a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The neighbour acknowledged it.
    Acknowledged,
    /// It was sent; delivery is unconfirmed.
    Left,
    /// The neighbour refused it.
    Refused(Refusal),
    /// The link broke, the contact ended, or the agent cancelled it.
    Failed {
        /// Leading bytes that the neighbour has acknowledged and keeps, where layers turn the
        /// received part into a fragment (RFC 7242 §3.2).
        acknowledged: u64,
    },
}

/// Event of a layer for its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour can be reached, or its properties changed.
    Up {
        /// The neighbour.
        link: LinkId,
        /// Its properties.
        neighbour: Neighbour,
    },
    /// It can no longer be reached: the end of each bundle in transit was reported before. Or an
    /// attempt to reach it failed.
    Down {
        /// The neighbour.
        link: LinkId,
        /// Reason as text.
        why: &'static str,
    },
    /// Reception of a bundle begins.
    Begins {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
        /// Its length in bytes, if the peer announced it.
        bytes: Option<u64>,
    },
    /// Next bytes of a bundle.
    Piece {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
        /// The bytes. They may be part of a buffer shared with others: copy them to keep them for
        /// long.
        bytes: Bytes,
    },
    /// The bundle is complete: all pieces were handed in, or it is in this working file, which is
    /// synced. The agent replies with [`Command::Accept`] or [`Command::Refuse`].
    Whole {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
        /// File and length in bytes, if there were no pieces.
        file: Option<(FileName, u64)>,
    },
    /// Reception of a bundle ended early.
    Broken {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        transfer: TransferId,
        /// Whether the received part is to be kept as a fragment (RFC 7242 §3.2).
        keep: bool,
    },
    /// Sending of a bundle ended.
    Sent {
        /// The neighbour.
        link: LinkId,
        /// The bundle.
        tag: Tag,
        /// The result.
        outcome: Outcome,
    },
    /// The layer refused a bundle before the agent knew of it.
    Refused {
        /// The neighbour.
        link: LinkId,
        /// The reason.
        why: Refusal,
    },
    /// An event that an operator should know of; it needs no action.
    Notice {
        /// The peer.
        link: LinkId,
        /// Description as text.
        what: &'static str,
    },
    /// The peer violated the protocol.
    PeerFault {
        /// The peer.
        link: LinkId,
        /// Description as text.
        what: &'static str,
    },
}

/// Configured neighbours of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// Neighbours by their links. The path to each has the same number as its link.
    pub links: BTreeMap<LinkId, Remote>,
    /// Links of these to nodes that nobody configured: they announced themselves, without proof.
    pub discovered: BTreeSet<LinkId>,
    /// Peers that may connect, and the names that they may have.
    pub admission: Admission,
}

/// A configured neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its node ID.
    pub node: Eid,
    /// DNS name required in its certificate, or empty.
    pub server_name: String,
    /// Number of its LTP engine.
    pub engine: u64,
}

/// A convergence layer.
pub trait Layer: Engine<Indication = Event> {
    /// Handles a command of the agent. Its result is an event.
    fn command(&mut self, now: Time, command: Command);

    /// Replaces the configured neighbours. Links that are left out end like links of contacts that
    /// are over; others stay as they are. A link never gets another neighbour.
    fn configure(&mut self, now: Time, configured: Configured);
}

/// Layer over streams, on slowlight's TCP.
impl<L: Layer> Layer for OverTcp<L> {
    fn command(&mut self, now: Time, command: Command) {
        self.call(now, |layer| layer.command(now, command));
    }

    fn configure(&mut self, now: Time, configured: Configured) {
        self.call(now, |layer| layer.configure(now, configured));
    }
}
