//! What is below an entity, as it sees it.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use engine::{Engine, PathInfo, Time};

use crate::bp::layer::Content;
use crate::ltp;

/// What a layer was given to carry, as the layer calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit(pub u64);

/// What a layer has brought, as the layer calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(pub u64);

/// What a layer has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a way to an entity, or what is known of it changed.
    Up {
        /// Its number.
        entity: u64,
        /// What its PDUs are to fit, and the time after which answers are late.
        info: PathInfo,
    },
    /// There is no way to an entity for a while, and time stands still.
    Down {
        /// Its number.
        entity: u64,
    },
    /// Nothing an entity sends can arrive from now on ([`PathEvent::ReturnDown`](engine::PathEvent)).
    ReturnDown {
        /// Its number.
        entity: u64,
    },
    /// Data from the peer entity can arrive again.
    ReturnUp {
        /// Its number.
        entity: u64,
    },
    /// PDUs came, one or several. They stay below until they are accepted.
    Came {
        /// What accepts them.
        arrival: Arrival,
        /// From which entity they were brought.
        from: u64,
        /// Where they are.
        content: Content,
        /// Whether their file, if they are in one, is nobody's once they are accepted.
        leaves_file: bool,
    },
    /// What came is not below any longer, and cannot be accepted.
    Gone {
        /// What.
        arrival: Arrival,
    },
    /// A unit arrived, or left where the layer reports no more.
    Delivered {
        /// What.
        unit: Unit,
    },
    /// The layer reports something that concerns no PDU.
    Noted(Note),
    /// A PDU was refused for lack of room ([`Refused::Later`]), and there is room again.
    Room,
    /// It was not carried.
    Failed {
        /// What.
        unit: Unit,
        /// Whether it would not be carried the next time either.
        is_final: bool,
        /// Why, for people.
        why: &'static str,
    },
}

/// Report of a layer that concerns no PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// An LTP engine sends from another address than the settings name.
    Elsewhere {
        /// The number of its entity.
        entity: u64,
        /// The address from which it sends, where that is known.
        address: Option<SocketAddr>,
        /// Whether its segments are taken.
        is_taken: bool,
    },
    /// A bound of LTP was reached for the first time since it was last left.
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
                f.write_str(match is_taken {
                    true => "; replies go to its own address",
                    false => "; its segments are dropped, as that is not its host",
                })
            }
            Self::LimitReached(limit) => write!(f, "LTP: limit reached: {limit:?}"),
        }
    }
}

/// Why a layer does not take a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has no room: another time.
    Later,
    /// It never would.
    Never(&'static str),
}

/// A layer that carries PDUs: the unitdata transfer layer of CCSDS 727.0-B-5 §4.1.
pub trait Below: Engine<Indication = Event> {
    /// Whether it is told again what failed, which is kept until then; if not, it keeps it itself.
    const REPEATS: bool;

    /// Carries a PDU to an entity.
    ///
    /// # Errors
    /// Why it is not taken.
    fn carry(&mut self, now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused>;

    /// What came may go.
    fn accept(&mut self, now: Time, arrival: Arrival);

    /// What came cannot be read: it comes again, or stays.
    fn refuse(&mut self, now: Time, arrival: Arrival);

    /// Asks for a way to an entity of which nothing was said; [`Event::Up`] tells of it, if there is one.
    fn meet(&mut self, entity: u64);

    /// How many PDUs may be under way to an entity and fill the way there, if that is known.
    fn window(&self, to: u64) -> Option<usize>;

    /// Bytes of memory held on account of others.
    fn memory(&self) -> usize;
}
