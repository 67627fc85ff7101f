//! The settings of the layer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;

use super::super::layer::LinkId;
use crate::ltp;
use crate::settings;
use crate::settings::form::Leaf;
use crate::settings::{Base, Kind, Value};

/// The client service of bundles (CCSDS 734.2-B-1 annex B, SANA registry of LTP client services).
pub const BUNDLE_SERVICE: u64 = 1;

settings! {
    /// Settings of an [`Ltpcl`](super::Ltpcl).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// The LTP engine: its number, its timers and bounds, and settings of the engines of
        /// neighbours. Their paths are those of `peers`. Its client service is 1 and its format that
        /// of blocks, whatever these settings are; a block that exceeds [`ltp::Limits::units`]
        /// arrives as a file.
        pub ltp: ltp::Config = ltp::Config::default(),
        /// Neighbours.
        pub peers: BTreeMap<LinkId, Peer> = BTreeMap::new(),
        /// Red part of a block: what the agent wants to arrive (everything), all, nothing, or the
        /// first bytes.
        pub color: Color as ColorForm = Color::AsAsked,
        /// Aggregation of short bundles in a block (client service 2, each a unit); `None` sends each
        /// in one of its own. Such blocks are taken if [`ltp::Config::aggregation`] is set.
        pub aggregation: Option<ltp::Aggregation> = None,
        /// Time that a path may be down, or a contact be over, before what is under way is given up.
        /// Until then its sessions stand still.
        pub patience: Duration as Span [Interval] = Duration::from_secs(3600),
        /// Bounds on what the layer holds.
        pub limits: Limits as Inline = Limits::default(),
    }
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of its LTP engine; in networks of CCSDS its node number.
    pub engine: u64,
    /// The path to it.
    pub path: PathId,
}

/// What of a block is red.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// All, or nothing where the agent does not ask for more.
    #[default]
    AsAsked,
    /// All.
    Red,
    /// Nothing: nobody hears of what is lost.
    Green,
    /// Its first bytes: of what is lost behind them nobody hears.
    Mixed(u64),
}

/// Form of a [`Color`].
#[derive(Debug)]
pub struct ColorForm;

const AS_ASKED: &str = "as-asked";
const RED: &str = "red";
const GREEN: &str = "green";
const MIXED: &str = "mixed";

impl Leaf<Color> for ColorForm {
    fn kind() -> Kind {
        let mixed = Kind::from(Base::Named(MIXED, Box::new(Base::Size)));
        mixed.or(AS_ASKED).or(RED).or(GREEN)
    }

    fn get(color: &Color) -> Option<Value> {
        Some(match color {
            Color::AsAsked => Value::Word(AS_ASKED),
            Color::Red => Value::Word(RED),
            Color::Green => Value::Word(GREEN),
            Color::Mixed(bytes) => Value::Named(MIXED, Box::new(Value::Size(*bytes))),
        })
    }

    fn set(color: &mut Color, value: Value) -> Result<(), String> {
        *color = match value {
            Value::Word(RED) => Color::Red,
            Value::Word(GREEN) => Color::Green,
            Value::Named(_, bytes) => match *bytes {
                Value::Size(bytes) => Color::Mixed(bytes),
                _ => return Err(".mixed is a size".to_owned()),
            },
            _ => Color::AsAsked,
        };
        Ok(())
    }
}

settings! {
    /// Bounds on what the layer holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles under way to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 64,
        /// Bytes of a bundle in memory up to which it is one piece there; a longer one is read part
        /// by part.
        pub inline: usize = 64 << 10,
        /// Engines that came by themselves.
        pub strangers: usize = 256,
    }
}
