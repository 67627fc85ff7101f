//! Settings of an entity over another layer, in addition to its own.

use std::collections::BTreeSet;

use session::settings;

/// Minimum bytes of a PDU: room for the header, and for Metadata with file names.
const PDU_MIN: u64 = 256;

/// Maximum bytes of a PDU: its data field has a length of 16 bits.
const PDU_MAX: u64 = 65_535;

settings! {
    /// Settings of a [`LayeredEntity`](super::LayeredEntity).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Longest PDU in bytes; 65,535 bytes of data field plus the header are possible.
        pub pdu_max("pdu"): usize as Size [Range(PDU_MIN, PDU_MAX)] = 65_535,
        /// Entities with a known path; others are learned when they send or are sent to.
        pub peers: BTreeSet<u64> = BTreeSet::new(),
        /// Attempts to send a PDU before it is lost, where the layer below reports failures.
        pub attempts: u32 as Number [Least(1)] = 8,
        /// Bounds on memory between the two.
        pub limits: Limits as Inline = Limits::default(),
    }
}

settings! {
    /// Bounds on memory between the two.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Maximum PDUs in transit to an entity; fewer if fewer fill the path. The entity makes no
        /// more.
        pub window: usize as Number [Least(1)] = 256,
        /// Arrivals being read or not yet safe; further ones wait below. As many ends of files
        /// whose beginnings are missing are kept; beyond that, the oldest is refused.
        pub arrivals: usize as Number [Least(1)] = 64,
        /// Unconfigured entities that are remembered.
        pub strangers: usize = 256,
    }
}
