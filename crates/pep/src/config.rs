//! Settings of a proxy.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Receive;

use session::settings;

/// Minimum bytes for a direction: the longest piece of a stream.
const PIECE: u64 = Receive::PIECE_MAX as u64;

settings! {
    /// Settings of a proxy.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Concurrent connections; the clients of further ones are reset.
        pub connections: usize as Number [Least(1)] = 1000,
        /// Buffer of each direction of a connection, in bytes.
        pub buffer: usize as Size [Least(PIECE)] = 256 << 10,
        /// Buffer of all connections together, in bytes. Each direction may also hold one piece of
        /// a stream ([`Receive::PIECE_MAX`]), so that none waits for others: see
        /// [`Config::bytes_max`].
        pub buffer_total: usize as Size = 256 << 20,
        /// Connect timeout to servers.
        pub connect_timeout: Duration as Span [Interval] = Duration::from_secs(75),
        /// Idle timeout in both directions, after which both ends are reset, or `off`.
        pub idle: Option<Duration> as Off<Span> [Interval] = Some(Duration::from_secs(7200)),
        /// Whether the second stream uses the client's address and port as its source, rather than
        /// the driver's.
        pub transparent: bool = true,
        /// Addresses of the proxy itself; port 0 means any. A stream to one of them would loop for
        /// ever, so it is reset.
        pub own: Vec<SocketAddr> = Vec::new(),
    }
}

impl Config {
    /// Maximum bytes buffered for one direction.
    #[must_use]
    pub fn direction_max(&self) -> usize {
        self.buffer.max(Receive::PIECE_MAX)
    }

    /// Maximum bytes buffered for all connections together.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.buffer_total.max(self.pieces())
    }

    /// Bytes shared by all directions, beyond one piece each.
    pub(super) fn pool(&self) -> usize {
        self.bytes_max() - self.pieces()
    }

    /// Whether a stream to that address would lead to the proxy itself.
    pub(super) fn is_own(&self, to: SocketAddr) -> bool {
        let is_it = |own: &SocketAddr| own.ip() == to.ip() && [0, to.port()].contains(&own.port());
        self.own.iter().any(is_it)
    }

    /// Bytes of one piece for each direction of each connection.
    fn pieces(&self) -> usize {
        self.connections.saturating_mul(2 * Receive::PIECE_MAX)
    }
}
