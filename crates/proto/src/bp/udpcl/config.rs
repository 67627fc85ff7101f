//! What the layer is told.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;

use super::super::layer::LinkId;

/// Settings of a [`Udpcl`](super::Udpcl).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Neighbours, and the paths to them.
    pub peers: BTreeMap<LinkId, PathId>,
    /// What happens to bundles that are longer than a datagram.
    pub fragmentation: Fragmentation,
    /// Bytes of the longest datagram that is sent; `None` for the path's MTU. More than a packet of the network takes
    /// are cut by IP, which loses all of them with one.
    pub datagram_max: Option<usize>,
    /// Rate in bit/s in place of the path's own; `Some(0)` does not pace. RFC 7122 has no congestion control: who knows neither
    /// rate nor path sends too fast.
    pub rate_bps: Option<u64>,
    /// Least time between two datagrams.
    pub interval: Duration,
    /// How much of a path's rate may be made up for when the driver comes late.
    pub catch_up: Duration,
    /// Time without a datagram after which a sign of life is sent to an open neighbour; `None` sends none, so that an idle layer
    /// has nothing to do. Less than 15 s counts as 15 s (RFC 7122 §3.5.1).
    pub keepalive: Option<Duration>,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            peers: BTreeMap::new(),
            fragmentation: Fragmentation::Never,
            datagram_max: None,
            rate_bps: None,
            interval: Duration::ZERO,
            catch_up: Duration::ZERO,
            keepalive: None,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// As DTN2 2.3.0 sent with the patch of "LTP-T and BP" (2007): fragments that fill an Ethernet packet, one every
    /// 20 ms.
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

/// What happens to bundles that are longer than a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// They are not taken: the agent makes fragments, or another layer carries them (RFC 7122 §3.1).
    Never,
    /// The layer cuts them ([`wire::udpcl::Fragment`]), and its peer puts them together. Other implementations do not read that. One
    /// fragment that is lost loses the bundle.
    OfLayer,
}

/// Bounds on what the layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neighbours that came by themselves.
    pub strangers: usize,
    /// Bundles under way to a neighbour at one time.
    pub window: usize,
    /// Bundles that came and are not answered for, before what comes waits outside.
    pub unanswered: usize,
    /// Bundles that are put together at one time, of all neighbours. The one that waits longest makes room.
    pub incoming: usize,
    /// Bytes of fragments that came before those in front of them, in all. More are thrown away.
    pub early: usize,
    /// Time without a fragment after which a bundle is given up.
    pub patience: Duration,
    /// Bytes that are read ahead of a bundle that is in a file.
    pub read_ahead: usize,
    /// Bytes of a bundle that is cut.
    pub bundle: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            strangers: 1024,
            window: 64,
            unanswered: 4096,
            incoming: 64,
            early: 4 << 20,
            patience: Duration::from_secs(60),
            read_ahead: 512 << 10,
            bundle: 1 << 30,
        }
    }
}
