//! Settings, events, errors and statistics of a driver.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::PathInfo;
use thiserror::Error;

use crate::{Buffers, Contact, UdpLite};

/// Settings of a [`Driver`](super::Driver).
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to bind; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Properties of the path to an unconfigured peer, as engines see them.
    pub path: PathInfo,
    /// Maximum number of unconfigured peers; 0 refuses all of them.
    pub peers_max: usize,
    /// Silence after which such a peer may be replaced by another although it has a transfer.
    pub silence: Duration,
    /// Sizes of the kernel's socket buffers.
    pub buffers: Buffers,
    /// Interval of observer calls without an indication.
    pub tick: Duration,
    /// UDP-Lite in addition to UDP, if used.
    pub udp_lite: Option<UdpLite>,
}

impl Config {
    /// Returns the configuration of a driver on `listen` whose peers have paths like `path`.
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
    /// A [`Config::tick`] has passed: time to show progress.
    Tick,
    /// No socket listens at the address of [`Driver::connect_peer`](super::Driver::connect_peer);
    /// reported at most once a tick.
    Refused(SocketAddr),
    /// First datagram of a peer that is not configured, for the observer's messages. Some are left
    /// out when many peers appear at once.
    NewPeer {
        /// Address of the peer.
        from: SocketAddr,
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// A contact of [`Driver::follow`](super::Driver::follow)'s schedule began or ended, or is not
    /// open at the start.
    Contact(Contact),
}

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Continue.
    Continue,
    /// Finish disk operations in progress, send due packets, and return.
    Stop,
}

/// Error that ends a driver.
#[derive(Debug, Error)]
pub enum RunError {
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
    /// Datagrams refused because the table of peers was full, or their source is no host.
    pub datagrams_refused: u64,
    /// Datagrams that the system refused to send.
    pub datagrams_unsent: u64,
}
