//! Settings, events and statistics of a driver of streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::PathId;

use super::options::StreamOptions;
use super::tls::Tls;

/// Where streams of others are awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address and port.
    pub address: SocketAddr,
    /// Options of its streams.
    pub options: StreamOptions,
    /// Options of streams that the engine connects from the peer's address
    /// ([`engine::StreamEffect::Connect`]) on behalf of one that came here; `None`: as
    /// [`StreamConfig::options`] says.
    pub onward: Option<StreamOptions>,
}

/// Settings of a driver of streams.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Where streams of others are awaited.
    pub listen: Vec<Listening>,
    /// Addresses of the paths that the engine may open.
    pub peers: BTreeMap<PathId, SocketAddr>,
    /// Options of streams that the engine opens, connects or waits for.
    pub options: StreamOptions,
    /// Time for which a stream that was left, and on which something is still to arrive, discards what
    /// its peer sends. After that the peer is reset if it goes on.
    pub linger: Duration,
    /// Streams at one time, those included that were left and are not over. Others are reset, or not
    /// made.
    pub streams_max: usize,
    /// TLS for streams that the engine secures; without it they end.
    pub tls: Option<Tls>,
    /// Streams that the engine waits for at one time ([`engine::StreamEffect::Listen`]).
    pub listeners_max: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            peers: BTreeMap::new(),
            options: StreamOptions::default(),
            linger: Duration::from_secs(60),
            streams_max: 1024,
            tls: None,
            listeners_max: 256,
        }
    }
}

/// Event for the observer of a [`StreamDriver::run`](super::StreamDriver::run).
#[derive(Debug)]
pub enum StreamEvent<I> {
    /// The engine has something to say.
    Indication(I),
    /// Once in each turn of the loop, which a [`Waker`](crate::Waker) and every
    /// [`StreamDriver::TICK`](super::StreamDriver::TICK) brings about at the latest: time to hand over
    /// what other threads have brought.
    Turn,
}

/// Statistics of a driver of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Streams there are, those included that were left and are not over.
    pub streams: usize,
    /// The most there were.
    pub streams_peak: usize,
    /// Streams of others that were taken.
    pub accepted: u64,
    /// Streams of others that were reset because there are too many.
    pub turned_away: u64,
    /// Streams that were connected.
    pub connected: u64,
    /// Streams that could not be connected.
    pub failed: u64,
    /// Times that a listener rested because no descriptor was left.
    pub rests: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes that the engine has sent and wait for room in the kernel.
    pub kept: usize,
}
