//! Settings of streams on top of TCP.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::PathId;

use crate::settings::{Settings, Visited, Visitor};
use crate::tcp::scps::Bets;
use crate::tcp::{self, Backlog, Options};
use crate::visit;

/// Settings of TCP below an engine of streams.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the stack below.
    pub tcp: tcp::Config,
    /// The settings of each connection.
    pub options: Options,
    /// The host's own addresses: connections begin at the first of the family of their goal.
    pub addresses: Vec<IpAddr>,
    /// Peers of the paths that the engine above may open.
    pub peers: BTreeMap<PathId, SocketAddr>,
    /// Addresses at which streams of others are awaited.
    pub listen: Vec<SocketAddr>,
    /// Number of them that may wait to be established.
    pub backlog: Backlog,
    /// Time at which those who ask for one are answered.
    pub acceptance: Acceptance,
    /// Time for which a stream that was left, and on which something is still to arrive, discards
    /// what its peer sends. After that the peer is reset if it goes on.
    pub linger: Duration,
    /// Whether the driver has streams of its own, beside those of the stack. A stream that the engine
    /// above connects from the far end of one of these ([`engine::StreamEffect::Connect`]) is then of
    /// the stack, and all others are the driver's: so a proxy stands between the two. The driver's
    /// have numbers below [`Config::DRIVERS`].
    pub has_driver_streams: bool,
    /// Time for which either side tries on streams that the engine above requests as best-effort,
    /// unless [`Config::options`] sets it for all.
    pub best_effort: Bets,
    /// Bounds on what is held, beyond those of the stack.
    pub limits: Limits,
}

/// Settings of TCP that are of a host, not of a connection.
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
    /// Numbers of paths below this one are of streams that the driver has itself, where it has some
    /// ([`Config::has_driver_streams`]).
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

/// Time at which peers that ask for a stream are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// As any host does.
    AtOnce,
    /// When a connection to where they ask for was opened in their name, for the engine above to
    /// connect to. If it is refused, so are they. For a transparent proxy: its clients get the
    /// answers that they would get without it, one round trip later than by a proxy that answers
    /// at once.
    WhenConnected {
        /// Streams of the engine above, those included that are on their way to it, beyond which
        /// peers are refused. Each peer takes two.
        most: usize,
    },
}

/// Bounds on what is held. For each stream that is one transmit of the engine above at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams, those included that were left and are not over. Others are reset, or not made.
    pub streams: usize,
    /// Streams that the engine above waits for at one time.
    pub listeners: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { streams: 1024, listeners: 256 }
    }
}
