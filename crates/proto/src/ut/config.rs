//! Settings of an entity over another layer, beside its own.

use std::collections::BTreeSet;

use crate::settings;

/// Least bytes of a PDU: the header, and what describes a file with names.
const PDU_MIN: u64 = 256;

/// Most bytes of a PDU, whose data field has a length of 16 bits.
const PDU_MAX: u64 = 65_535;

settings! {
    /// Settings of a [`LayeredEntity`](super::LayeredEntity).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Most bytes of a PDU: 65,535 of its data field and its header are the most there can be.
        pub pdu_max("pdu"): usize as Size [Range(PDU_MIN, PDU_MAX)] = 65_535,
        /// Entities with a known path; others are met when they send or are sent to.
        pub peers: BTreeSet<u64> = BTreeSet::new(),
        /// Attempts to pass a PDU down before it is lost, where the layer below reports failures.
        pub attempts: u32 as Number [Least(1)] = 8,
        /// Bounds on what is held between the two.
        pub limits: Limits as Inline = Limits::default(),
    }
}

settings! {
    /// Bounds on what is held between the two.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Most PDUs under way to an entity in the layer below: fewer where fewer fill the path. More
        /// are not made.
        pub window: usize as Number [Least(1)] = 256,
        /// Arrivals that are read, or of which something is not safe yet. More wait below. As many
        /// ends of files whose beginnings are missing are kept; beyond that, the oldest is refused.
        pub arrivals: usize as Number [Least(1)] = 64,
        /// Entities that were met and not named.
        pub strangers: usize = 256,
    }
}
