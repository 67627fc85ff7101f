//! Settings of the layer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{FileName, PathId};
use session::settings;
use session::settings::form::Leaf;
use session::settings::{Base, Kind, Value};
use session::words;

use super::super::agent;
use super::super::layer::LinkId;

/// The client service of bundles (CCSDS 734.2-B-1 annex B, SANA registry of LTP client services).
pub const BUNDLE_SERVICE: u64 = 1;

settings! {
    /// Settings of an [`Ltpcl`](super::Ltpcl).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Settings of the LTP engine: its number, timers and bounds, and settings for the engines
        /// of neighbours. Paths come from `peers`. The client service is always 1 and the format
        /// always blocks; a block longer than [`ltp::Limits::units`] arrives as a file.
        pub ltp: ltp::Config = ltp::Config::default(),
        /// Neighbours.
        pub peers: BTreeMap<LinkId, Peer> = BTreeMap::new(),
        /// Red part of a block: as the agent requests, all, nothing, or the first bytes. As requested
        /// means red for a bundle that must be reliable, otherwise green.
        pub color: Color as ColorForm = Color::AsAsked,
        /// Aggregation of short bundles in a block, all red; `None` sends each in its own block.
        /// Blocks of several bundles are accepted in any case, those of client service 2 if
        /// [`ltp::Config::aggregation`] is set.
        pub aggregation: Option<Aggregation> as Off<Table> = None,
        /// Longest outage of a path or a contact before the bundles in transit are given up. Until
        /// then its sessions are suspended.
        pub patience: Duration as Span [Interval] = Duration::from_secs(3600),
        /// Directory of the agent in the store, where files are handed over:
        /// [`agent::Config::directory`].
        pub directory: FileName = agent::Config::default().directory,
        /// Bounds on the layer's memory.
        pub limits: Limits as Inline = Limits::default(),
    }
}

settings! {
    /// Aggregation of short bundles in a block.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Aggregation {
        /// Longest block of several bundles; a longer bundle is sent alone
        pub bytes: usize as Size = 64 << 10,
        /// Longest wait of the first bundle of a block
        pub delay: Duration as Span = Duration::from_millis(100),
        /// Form of the block: bundles one after another in client service 1, as ION makes them, or
        /// units preceded by their lengths in client service 2
        pub form: Sharing as Word = Sharing::Bundles,
    }
}

/// Form of a block of several bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Bundles one after another, in client service 1.
    #[default]
    Bundles,
    /// Units of client service 2, each preceded by its length (CCSDS 734.1-B).
    Units,
}

words!(Sharing { "bundles" = Sharing::Bundles, "units" = Sharing::Units });

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Number of its LTP engine; in CCSDS networks its node number.
    pub engine: u64,
    /// The path to it.
    pub path: PathId,
}

/// Red part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// All if the bundle is to be reliable, otherwise nothing.
    #[default]
    AsAsked,
    /// All.
    Red,
    /// Nothing: losses are not reported.
    Green,
    /// First bytes: losses behind them are not reported.
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
    /// Bounds on the layer's memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles in transit to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 64,
        /// Longest bundle in memory that is kept in one piece there, in bytes; a longer one is read
        /// part by part.
        pub inline: usize = 64 << 10,
        /// Unconfigured neighbours that are remembered.
        pub strangers: usize = 256,
    }
}
