//! What an entity over another layer is told beside its own settings.

use std::collections::BTreeSet;

/// Settings of a [`Carried`](super::Carried).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Octets of a PDU, at most: 65,535 of its data field and its header are the most there can be.
    pub pdu_max: usize,
    /// Entities to which there are ways from the beginning; others are met when they are heard or sent to.
    pub peers: BTreeSet<u64>,
    /// How often a PDU is handed down before it is lost, where the layer below says that it failed.
    pub attempts: u32,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self { pdu_max: 65_535, peers: BTreeSet::new(), attempts: 8, limits: Limits::default() }
    }
}

/// Bounds on what is held between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// PDUs under way to an entity below it, at most: fewer where fewer fill the way there. More are not
    /// made.
    pub window: usize,
    /// Arrivals that are read, or of which something is not safe yet. More wait below. As many ends
    /// of files whose beginnings are missing are kept; beyond that, the oldest is refused.
    pub arrivals: usize,
    /// Entities that were met and not named.
    pub strangers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { window: 256, arrivals: 64, strangers: 256 }
    }
}
