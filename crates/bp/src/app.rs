//! Interface between an application and its bundle node: orders to the node, and its events.
//!
//! An [`Application`] is an engine that sends and receives bundles, whatever world it runs in. A
//! [`Hosted`](crate::hosted::Hosted) application is in one engine with its node, as in a
//! simulation; the driver of another program's node carries the same orders to the node's
//! interface.

use bytes::Bytes;
use engine::{Engine, FileName, Time};

use crate::agent::SendRequest;
use crate::codec::bp7::Eid;

/// Identifier of a bundle to send, chosen by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId(pub u64);

/// Identifier of a delivered bundle, until it is confirmed or left, or the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrivalId(pub u64);

/// Request to the node.
#[derive(Clone, Debug)]
pub enum Order {
    /// Sends a bundle. [`Event::Stored`] or [`Event::Refused`] follows.
    Send(Box<Outgoing>),
    /// Reads the next bytes of a delivered payload. [`Event::Read`] or [`Event::Expired`] follows.
    Read(ArrivalId),
    /// Confirms a bundle: the node deletes it.
    Confirm(ArrivalId),
    /// Leaves a bundle unconfirmed: the node delivers it again after a restart of either side.
    Leave(ArrivalId),
    /// Reports about a bundle are no longer wanted.
    Forget(OutgoingId),
}

/// A bundle to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its identifier.
    pub id: OutgoingId,
    /// The bundle. Its payload is [`Content::Bytes`](crate::layer::Content::Bytes), followed by
    /// the excerpt. A repeated request with the same key sends no second bundle.
    pub request: SendRequest,
    /// Part of a file at the end of the payload.
    pub excerpt: Option<Excerpt>,
}

impl Outgoing {
    /// Length of the payload in bytes.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        let excerpt = self.excerpt.as_ref().map_or(0, |excerpt| excerpt.len);
        self.request.payload.len().saturating_add(excerpt)
    }
}

/// A range of bytes in a file of the application's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The file.
    pub file: FileName,
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Checksum before its bytes
    /// ([`crc_append`](crate::codec::file_part::crc_append)).
    pub crc_before: u32,
    /// Checksum after its bytes. If it differs, the file has changed, and the bundle is refused.
    pub crc_after: u32,
}

/// Reason to refuse an excerpt that changed.
pub const CHANGED: &str =
    "the file was changed while it was sent; send it again when it is complete";

/// Event of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node responds.
    Up(NodeFacts),
    /// The node no longer responds. Its deliveries are void; it repeats those not confirmed.
    Down,
    /// A bundle came. It stays in the node until it is confirmed.
    Came(Delivery),
    /// Bytes of a payload were read.
    Read {
        /// The delivery.
        arrival: ArrivalId,
        /// The bytes.
        piece: Piece,
    },
    /// A delivered bundle is no longer in the node, or cannot be read.
    Expired(ArrivalId),
    /// The node has no room for a bundle, and is asked again.
    Waiting {
        /// The bundle.
        id: OutgoingId,
        /// Reason as text.
        why: String,
    },
    /// The node has read bytes of an excerpt.
    Passed {
        /// The bundle.
        id: OutgoingId,
        /// Number of bytes so far.
        bytes: u64,
    },
    /// A bundle is safe in the node's store.
    Stored(OutgoingId),
    /// The node refuses a bundle for good.
    Refused {
        /// The bundle.
        id: OutgoingId,
        /// Reason as text.
        why: String,
    },
    /// A bundle was sent to a neighbour. This and the following are reported only if
    /// [`NodeFacts::follows`].
    Forwarded(OutgoingId),
    /// A status report says that a bundle was delivered.
    Delivered(OutgoingId),
    /// A bundle was deleted before it was sent or delivered.
    Deleted(OutgoingId),
}

/// Facts about a node that responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Number of the process if its store is in memory, and ends with it.
    pub memory_of: Option<u32>,
    /// Whether it reports forwarding, delivery and deletion of bundles that it has stored.
    pub follows: bool,
}

/// A delivered bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its identifier.
    pub arrival: ArrivalId,
    /// Identifier of the bundle, as text.
    pub bundle: String,
    /// Its source endpoint.
    pub source: Eid,
    /// Length of the payload in bytes.
    pub len: u64,
    /// The first bytes, if the node has them at hand.
    pub first: Piece,
}

/// Consecutive bytes of a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes, perhaps none.
    pub bytes: Bytes,
    /// Whether these are the last ones.
    pub is_last: bool,
}

/// An application of a bundle node.
pub trait Application: Engine {
    /// Endpoint at which it receives bundles; `None` if it only sends.
    fn endpoint(&self) -> Option<Eid>;

    /// Next order for the node.
    fn poll_order(&mut self) -> Option<Order>;

    /// Handles an event of the node.
    fn handle_event(&mut self, now: Time, event: Event);

    /// Whether it accepts more deliveries; others wait in the node.
    fn takes_more(&self) -> bool;

    /// Prepares its end: it accepts no delivery and begins no bundle any more.
    fn stop(&mut self) {}
}
