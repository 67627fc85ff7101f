//! What the layer is told.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;

use super::super::layer::LinkId;
use crate::ltp;

/// The client service of bundles (CCSDS 734.2-B-1 annex B, SANA registry of LTP client services).
pub const BUNDLE_SERVICE: u64 = 1;

/// Settings of an [`Ltpcl`](super::Ltpcl).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The LTP engine: its number, its timers and bounds, and what is known of the engines of neighbours. Their paths are set
    /// from `peers`. Its client service is 1 and its format that of blocks, whatever is said here; a block that exceeds
    /// [`ltp::Limits::units`] comes as a file.
    pub ltp: ltp::Config,
    /// Neighbours.
    pub peers: BTreeMap<LinkId, Peer>,
    /// What of a block is red.
    pub color: Color,
    /// How short bundles share a block (client service 2, each a unit); `None` sends each in one of its own. Such blocks are taken
    /// if [`ltp::Config::aggregation`] is set.
    pub aggregation: Option<ltp::Aggregation>,
    /// How long a path may be down, or a contact be over, before what is under way is given up. Until then its sessions stand still.
    pub patience: Duration,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ltp: ltp::Config::default(),
            peers: BTreeMap::new(),
            color: Color::AsAsked,
            aggregation: None,
            patience: Duration::from_secs(3600),
            limits: Limits::default(),
        }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// All, or nothing where the agent does not ask for more.
    AsAsked,
    /// All.
    Red,
    /// Nothing: nobody hears of what is lost.
    Green,
    /// Its first octets: of what is lost behind them nobody hears.
    Mixed(u64),
}

/// Bounds on what the layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bundles under way to a neighbour at one time.
    pub window: usize,
    /// Octets of a bundle that is in memory up to which it is one piece there; a longer one is read part by part.
    pub inline: usize,
    /// Engines that came by themselves.
    pub strangers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { window: 64, inline: 64 << 10, strangers: 256 }
    }
}
