//! Indications and counters of a proxy.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Time;

/// Identifier of a connection through the proxy; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(pub u64);

/// Indication to the user of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A client's stream was accepted; the server is being connected.
    Opened {
        /// The connection.
        id: PairId,
        /// The client.
        client: SocketAddr,
        /// The server.
        server: SocketAddr,
    },
    /// The server accepted the connection.
    Connected {
        /// The connection.
        id: PairId,
        /// Time from request to connection.
        took: Duration,
    },
    /// A connection ended.
    Closed {
        /// Final state of the connection.
        report: Report,
        /// The reason.
        end: End,
    },
    /// A client's stream was rejected.
    TurnedAway {
        /// Client and server, if the driver reported them.
        ends: Option<(SocketAddr, SocketAddr)>,
        /// The reason.
        why: Refusal,
    },
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Both ends closed the connection, and all bytes were delivered.
    Complete,
    /// The client reset the connection, or does not respond.
    ClientReset,
    /// The server reset the connection, or does not respond.
    ServerReset,
    /// The server refused the connection, or has no route.
    NotConnected,
    /// The server did not accept in time
    /// ([`Config::connect_timeout`](super::Config::connect_timeout)).
    ConnectTimeout,
    /// No data for too long ([`Config::idle`](super::Config::idle)).
    Idle,
    /// The user ended it ([`Pep::reset_all`](super::Pep::reset_all)).
    Aborted,
}

/// Reason to reject a client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The connection limit is reached.
    Full,
    /// The driver did not report the destination.
    NoDestination,
    /// The destination is the proxy itself.
    Loop,
    /// No more streams are accepted ([`Pep::stop_accepting`](super::Pep::stop_accepting)).
    Stopping,
}

/// State of a connection, current or final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The connection.
    pub id: PairId,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// Time at which the client's stream came up.
    pub opened: Time,
    /// Time at which the server accepted.
    pub connected: Option<Time>,
    /// Time of its end.
    pub closed: Option<Time>,
    /// Bytes forwarded to the server, and to the client.
    pub bytes: [u64; 2],
    /// Bytes buffered for the server, and for the client.
    pub buffered: [usize; 2],
    /// Maximum bytes buffered for the server, and for the client, at any time.
    pub buffer_peak: [usize; 2],
}

/// Counters of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Client streams accepted.
    pub accepted: u64,
    /// Accepted streams whose server accepted.
    pub connected: u64,
    /// Open connections.
    pub open: usize,
    /// Maximum connections open at one time.
    pub open_peak: usize,
    /// Client streams rejected.
    pub turned_away: u64,
    /// Connections closed by both ends.
    pub completed: u64,
    /// Connections reset by an end.
    pub reset: u64,
    /// Connections whose server did not accept.
    pub not_connected: u64,
    /// Connections that were idle for too long.
    pub idle: u64,
    /// Connections aborted by the user.
    pub aborted: u64,
    /// Bytes forwarded to servers, and to clients.
    pub bytes: [u64; 2],
    /// Bytes buffered.
    pub buffered: usize,
    /// Maximum bytes buffered at any time.
    pub buffered_peak: usize,
}

impl Statistics {
    pub(super) fn count(&mut self, end: End) {
        let count = match end {
            End::Complete => &mut self.completed,
            End::ClientReset | End::ServerReset => &mut self.reset,
            End::NotConnected | End::ConnectTimeout => &mut self.not_connected,
            End::Idle => &mut self.idle,
            End::Aborted => &mut self.aborted,
        };
        *count += 1;
    }
}
