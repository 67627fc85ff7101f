//! Settings, events, errors and statistics of a driver.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::PathInfo;
use thiserror::Error;

use crate::{Buffers, UdpLite};

/// Settings of a [`Driver`](super::Driver).
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to bind; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Properties of a path, as engines see them, to a peer that shows up by itself.
    pub path: PathInfo,
    /// Peers that may show up by themselves; 0 refuses all but the static ones.
    pub peers_max: usize,
    /// Silence of such a peer after which another may take its place.
    pub silence: Duration,
    /// The kernel's socket buffers.
    pub buffers: Buffers,
    /// Interval of calls of the observer without an indication.
    pub tick: Duration,
    /// Use of UDP-Lite beside UDP, if any.
    pub udp_lite: Option<UdpLite>,
}

impl Config {
    /// A driver on `listen` whose peers are reached by datagrams as `path` says.
    #[must_use]
    pub fn new(listen: SocketAddr, path: PathInfo) -> Self {
        Self {
            listen,
            path,
            peers_max: 1024,
            silence: Duration::from_secs(300),
            buffers: Buffers::default(),
            tick: Duration::from_millis(100),
            udp_lite: None,
        }
    }
}

/// Event for the observer of a [`Driver::run`](super::Driver::run).
#[derive(Debug)]
pub enum Event<I> {
    /// An indication of the engine.
    Indication(I),
    /// A [`Config::tick`] passed: time to show progress.
    Tick,
    /// Nobody listens at the address of
    /// [`Driver::connect_peer`](super::Driver::connect_peer); reported at most once a tick.
    Refused(SocketAddr),
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Finish what is under way to the disk, send what is due, and return.
    Stop,
}

/// Why a driver gave up.
#[derive(Debug, Error)]
pub enum RunError {
    /// A datagram is larger than the network interface takes.
    #[error(
        "a datagram of {len} bytes to {to} is larger than the network interface takes; \
         use smaller datagrams (Ethernet carries 1472 bytes over IPv4, 1452 over IPv6)"
    )]
    DatagramTooLarge {
        /// The datagram's length.
        len: usize,
        /// Where it was to go.
        to: SocketAddr,
    },
    /// The system refuses to send there.
    #[error("cannot send to {to}: {error}")]
    Send {
        /// Where the datagram was to go.
        to: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// Statistics of a [`Driver`](super::Driver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// Datagrams of peers for which there was no room.
    pub datagrams_refused: u64,
}
