//! The settings of a proxy.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Receive;

/// The settings of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Connections at one time. The client of a further one is reset.
    pub connections: usize,
    /// Octets that are held for each direction of a connection; at least [`Receive::PIECE_MAX`].
    pub buffer: usize,
    /// Octets that are held for all together. Each direction may hold [`Receive::PIECE_MAX`] whatever
    /// this says, so that none waits for others: see [`Config::octets_max`].
    pub buffer_total: usize,
    /// How long a server may take to accept.
    pub connect_timeout: Duration,
    /// After so long without an octet in either direction both ends are reset; `None`: never.
    pub idle: Option<Duration>,
    /// Whether the second stream begins at the client's address and port, or at one of the driver's.
    pub transparent: bool,
    /// Where the proxy itself is reached; port 0 stands for any. A stream that leads there would be
    /// connected to itself for ever: it is reset.
    pub own: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections: 1000,
            buffer: 256 << 10,
            buffer_total: 256 << 20,
            connect_timeout: Duration::from_secs(75),
            idle: Some(Duration::from_secs(7200)),
            transparent: true,
            own: Vec::new(),
        }
    }
}

impl Config {
    /// The most octets that are held for one direction.
    #[must_use]
    pub fn direction_max(&self) -> usize {
        self.buffer.max(Receive::PIECE_MAX)
    }

    /// The most octets that are held for all connections together.
    #[must_use]
    pub fn octets_max(&self) -> usize {
        self.buffer_total.max(self.pieces())
    }

    /// What directions may hold together beyond one piece each.
    pub(super) fn pool(&self) -> usize {
        self.octets_max() - self.pieces()
    }

    /// Whether a stream to that address would lead to the proxy itself.
    pub(super) fn is_own(&self, to: SocketAddr) -> bool {
        let is_it = |own: &SocketAddr| own.ip() == to.ip() && [0, to.port()].contains(&own.port());
        self.own.iter().any(is_it)
    }

    /// One piece for each direction of each connection.
    fn pieces(&self) -> usize {
        self.connections.saturating_mul(2 * Receive::PIECE_MAX)
    }
}
