//! Interface of the layer below an entity.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use engine::{Engine, PathInfo, Time};

use bp::layer::Content;

/// Identifier of a PDU passed to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit(pub u64);

/// Identifier of an arrival, assigned by the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(pub u64);

/// Event of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A path to an entity is up, or its properties changed.
    Up {
        /// Number of the entity.
        entity: u64,
        /// Properties that determine PDU length and response timeouts.
        info: PathInfo,
    },
    /// The path to an entity is down for a while, and timers stop.
    Down {
        /// Number of the entity.
        entity: u64,
    },
    /// Nothing an entity sends can arrive from now on
    /// ([`PathEvent::ReturnDown`](engine::PathEvent)).
    ReturnDown {
        /// Number of the entity.
        entity: u64,
    },
    /// Data from the peer entity can arrive again.
    ReturnUp {
        /// Number of the entity.
        entity: u64,
    },
    /// One or several PDUs arrived. They stay below until accepted.
    Came {
        /// Identifier for acceptance.
        arrival: Arrival,
        /// Number of the sending entity.
        from: u64,
        /// Where the PDUs are.
        content: Content,
        /// Whether their file, if any, has no owner once they are accepted.
        leaves_file: bool,
    },
    /// An arrival is no longer below, and cannot be accepted.
    Gone {
        /// The arrival.
        arrival: Arrival,
    },
    /// A unit was delivered, or sent where the layer reports no more.
    Delivered {
        /// The unit.
        unit: Unit,
    },
    /// The layer reports something that concerns no PDU.
    Noted(Note),
    /// A PDU was refused for lack of room ([`Refused::Later`]), and there is room again.
    Room,
    /// A unit was not delivered.
    Failed {
        /// The unit.
        unit: Unit,
        /// Whether a retry would fail, too.
        is_final: bool,
        /// Reason as text.
        why: &'static str,
    },
}

/// Report of a layer that concerns no PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An LTP engine sends from an address other than the configured one.
    Elsewhere {
        /// Number of its entity.
        entity: u64,
        /// Address from which it sends, if known.
        address: Option<SocketAddr>,
        /// Whether its segments are accepted.
        is_taken: bool,
    },
    /// The node does not take a bundle, for this reason.
    Refused(String),
    /// A bundle of this many bytes, which contains no PDUs, was dropped.
    TooLong(u64),
    /// A limit of LTP was reached, for the first time or again after it was no longer reached.
    LimitReached(ltp::Limit),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere { entity, address, is_taken } => {
                write!(f, "engine {entity} sends from ")?;
                match address {
                    Some(address) => write!(f, "{address}")?,
                    None => f.write_str("another address")?,
                }
                f.write_str(if *is_taken {
                    "; replies go to its own address"
                } else {
                    "; its segments are dropped, as that is not its host"
                })
            }
            Self::Refused(why) => write!(f, "the node does not take a bundle: {why}"),
            Self::TooLong(bytes) => {
                write!(f, "a bundle of {bytes} bytes is longer than PDUs are; it is dropped")
            }
            Self::LimitReached(limit) => write!(f, "LTP: limit reached: {limit:?}"),
        }
    }
}

/// Reason to refuse a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room: retry later.
    Later,
    /// Never acceptable, with the reason.
    Never(&'static str),
}

/// A layer that carries PDUs: the unitdata transfer layer of CCSDS 727.0-B-5 §4.1.
pub trait Below: Engine<Indication = Event> {
    /// Whether the entity retries failed units and keeps them until then; otherwise the layer does.
    const REPEATS: bool;

    /// Sends a PDU to an entity.
    ///
    /// # Errors
    ///
    /// The reason to refuse it.
    fn carry(&mut self, now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused>;

    /// Accepts an arrival, which may be discarded.
    fn accept(&mut self, now: Time, arrival: Arrival);

    /// Refuses an unreadable arrival: the layer delivers it again, or keeps it.
    fn refuse(&mut self, now: Time, arrival: Arrival);

    /// Requests a path to an unconfigured entity; [`Event::Up`] reports it, if there is one.
    fn meet(&mut self, entity: u64);

    /// Forgets an unconfigured entity, which makes room for another.
    fn part(&mut self, _entity: u64) {}

    /// Number of PDUs in transit that fill the path to an entity, if known.
    fn window(&self, to: u64) -> Option<usize>;
}
