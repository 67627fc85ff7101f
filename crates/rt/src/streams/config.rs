//! Settings, events and statistics of a driver of streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::PathId;

use super::options::StreamOptions;
use super::tls::Tls;
use crate::lookup::Destination;

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Address and port.
    pub address: SocketAddr,
    /// Options of its streams.
    pub options: StreamOptions,
    /// Options of streams that the engine connects from the peer's address
    /// ([`engine::StreamEffect::Connect`]) on behalf of an accepted stream; `None` uses
    /// [`StreamConfig::options`].
    pub onward: Option<StreamOptions>,
}

/// Configuration of a driver of streams.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Listeners for incoming streams.
    pub listen: Vec<Listening>,
    /// Destinations of the paths that the engine may open. A host name is resolved whenever its
    /// path is opened, and its addresses are tried in order.
    pub peers: BTreeMap<PathId, Destination>,
    /// Options of streams that the engine opens, connects or waits for.
    pub options: StreamOptions,
    /// Time for which a closed stream that still delivers data discards what its peer sends. After
    /// that the peer is reset if it keeps sending.
    pub linger: Duration,
    /// Maximum concurrent streams, including closed ones that still deliver data. Further incoming
    /// streams are reset; further outgoing ones are not opened.
    pub streams_max: usize,
    /// Whether a closed stream that still delivers data is given up for a new one when there are
    /// `streams_max`.
    pub forgets_left: bool,
    /// TLS for streams that the engine secures; without it such streams end.
    pub tls: Option<Tls>,
    /// Maximum streams that the engine waits for at one time ([`engine::StreamEffect::Listen`]).
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
            forgets_left: false,
            tls: None,
            listeners_max: 256,
        }
    }
}

/// Event for the observer of a [`StreamDriver::run`](super::StreamDriver::run).
#[derive(Debug)]
pub enum StreamEvent<I> {
    /// An indication of the engine.
    Indication(I),
    /// One turn of the loop, so that the observer can take input from other threads. A
    /// [`Waker`](crate::Waker) starts a turn at once; without events a turn starts after
    /// [`StreamDriver::TICK`](super::StreamDriver::TICK).
    Turn,
}

/// Statistics of a driver of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Current streams, including closed ones that still deliver data.
    pub streams: usize,
    /// Maximum of that.
    pub streams_peak: usize,
    /// Incoming streams accepted.
    pub accepted: u64,
    /// Incoming streams reset because there are too many.
    pub turned_away: u64,
    /// Outgoing streams connected.
    pub connected: u64,
    /// Outgoing streams that could not be connected.
    pub failed: u64,
    /// Times that a listener paused because no descriptor was left.
    pub rests: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes sent by the engine that wait for room in the kernel.
    pub kept: usize,
}
