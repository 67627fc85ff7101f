//! Settings of the layer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use session::settings;

use super::super::layer::LinkId;

settings! {
    /// Settings of a [`Udpcl`](super::Udpcl).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Neighbours, and the paths to them.
        pub peers: BTreeMap<LinkId, PathId> = BTreeMap::new(),
        /// Handling of bundles that are longer than a datagram.
        pub fragmentation: Fragmentation = Fragmentation::Never,
        /// Longest datagram in bytes; `None` for the path's MTU. IP fragments longer ones, and one
        /// lost fragment loses all.
        pub datagram_max: Option<usize> = None,
        /// Rate in bit/s in place of the path's own; `Some(0)` does not pace. RFC 7122 has no
        /// congestion control: the rate must suit the path.
        pub rate_bps: Option<u64> = None,
        /// Least time between two datagrams.
        pub interval: Duration = Duration::ZERO,
        /// Longest delay of a late driver for which the pacer catches up.
        pub catch_up: Duration = Duration::ZERO,
        /// Idle time after which a keepalive is sent to an open neighbour; `None` sends none, so
        /// that an idle layer needs no timers. At least 15 s (RFC 7122 §3.5.1).
        pub keepalive: Option<Duration> = None,
        /// Bounds on the layer's memory.
        pub limits: Limits = Limits::default(),
    }
}

impl Config {
    /// Settings of DTN2 2.3.0 with the patch of "LTP-T and BP" (2007): fragments that fill an
    /// Ethernet packet, one every 20 ms.
    #[must_use]
    pub fn dtn2_2007() -> Self {
        Self {
            fragmentation: Fragmentation::OfLayer,
            datagram_max: Some(1472),
            rate_bps: Some(0),
            interval: Duration::from_millis(20),
            ..Self::default()
        }
    }
}

/// Handling of bundles that are longer than a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// Refused: the agent fragments them, or another layer carries them (RFC 7122 §3.1).
    Never,
    /// Fragmented by the layer ([`crate::codec::udpcl::Fragment`]) and reassembled by its peer.
    /// Other implementations cannot read that. One lost fragment loses the bundle.
    OfLayer,
}

settings! {
    /// Bounds on the layer's memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Unconfigured neighbours that are remembered.
        pub strangers: usize = 1024,
        /// Bundles in transit to a neighbour at one time.
        pub window: usize = 64,
        /// Undecided received bundles beyond which the driver stops receiving.
        pub unanswered: usize = 4096,
        /// Bundles being reassembled at one time, of all neighbours. The one idle for longest makes
        /// room.
        pub incoming: usize = 64,
        /// Bytes of all fragments ahead of a gap. Further ones are dropped.
        pub early: usize = 4 << 20,
        /// Time without a fragment after which reassembly is given up.
        pub patience: Duration = Duration::from_secs(60),
        /// Bytes read ahead from a bundle's file.
        pub read_ahead: usize = 512 << 10,
        /// Longest fragmented bundle, in bytes.
        pub bundle: u32 = 1 << 30,
    }
}
