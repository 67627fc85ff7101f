//! Settings of streams on top of TCP.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::PathId;

use ::tcp::scps::Bets;
use ::tcp::{self, Backlog, Options};
use session::settings::{Settings, Visited, Visitor};
use session::visit;

/// Settings of TCP below an engine of streams.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of the stack below.
    pub tcp: tcp::Config,
    /// Options of each connection.
    pub options: Options,
    /// The host's own addresses: connections use the first of their destination's family as source.
    pub addresses: Vec<IpAddr>,
    /// Peers of the paths that the engine above may open.
    pub peers: BTreeMap<PathId, SocketAddr>,
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Backlog of unaccepted connections.
    pub backlog: Backlog,
    /// Time at which connection requests are accepted.
    pub acceptance: Acceptance,
    /// Time for which a left stream with undelivered data discards what its peer sends. Afterwards
    /// the peer is reset if it continues.
    pub linger: Duration,
    /// Whether the driver has its own streams, in addition to the stack's. The engine above then
    /// connects from the far end of a driver's stream ([`engine::StreamEffect::Connect`]) over the
    /// stack, and all others over the driver: a proxy is thus between the two. The driver's streams
    /// have numbers below [`Config::DRIVERS`].
    pub has_driver_streams: bool,
    /// Time for which each side retransmits on best-effort streams of the engine above, unless
    /// [`Config::options`] sets it for all.
    pub best_effort: Bets,
    /// Bounds on memory, in addition to the stack's.
    pub limits: Limits,
}

/// Settings of TCP for a host, not for a connection.
#[derive(Debug)]
pub struct Host<'a>(pub &'a mut Config);

impl Settings for Host<'_> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Config { tcp, backlog, .. } = &mut *self.0;
        visit! { visitor;
            /// Checks of RFC 5961 on resets, SYNs and acknowledgments within a connection.
            "robust": tcp.robust as Flag,
            /// Time for which a closed connection is remembered.
            "time_wait": tcp.time_wait as Span,
        }
        backlog.visit(visitor)
    }
}

impl Config {
    /// First path number of the stack if the driver has its own streams
    /// ([`Config::has_driver_streams`]); lower ones are the driver's.
    pub const DRIVERS: PathId = PathId(1 << 31);
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: tcp::Config::default(),
            options: Options::default(),
            addresses: Vec::new(),
            peers: BTreeMap::new(),
            listen: Vec::new(),
            backlog: Backlog::default(),
            acceptance: Acceptance::AtOnce,
            linger: Duration::from_secs(60),
            has_driver_streams: false,
            best_effort: Bets::default(),
            limits: Limits::default(),
        }
    }
}

/// Time at which connection requests of peers are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// At once, as any host does.
    AtOnce,
    /// Once a connection to the requested destination is open; the engine above then uses that
    /// connection. If the connection is refused, so is the peer. For a transparent proxy: its
    /// clients get the same responses as without it, one round trip later than with acceptance at
    /// once.
    WhenConnected {
        /// Streams of the engine above, including those being opened, beyond which peers are
        /// refused. Each peer takes two.
        most: usize,
    },
}

/// Bounds on memory. Each stream holds at most one transmission of the engine above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams, including those left and not over. Further ones are reset, or not opened.
    pub streams: usize,
    /// Streams that the engine above awaits at one time.
    pub listeners: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { streams: 1024, listeners: 256 }
    }
}
