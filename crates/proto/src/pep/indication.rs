//! What a proxy tells its user, and counts.

use std::net::SocketAddr;
use std::time::Duration;

use engine::Time;

/// A connection through the proxy; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(pub u64);

/// What a proxy tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A client's stream was taken; the server is being asked.
    Opened {
        /// The connection.
        id: PairId,
        /// The client.
        client: SocketAddr,
        /// Where it wants to go.
        server: SocketAddr,
    },
    /// The server has accepted.
    Connected {
        /// The connection.
        id: PairId,
        /// How long that took.
        took: Duration,
    },
    /// A connection is over.
    Closed {
        /// What it was.
        report: Report,
        /// How it ended.
        end: End,
    },
    /// A client's stream was not taken.
    TurnedAway {
        /// The client and where it wanted to go, where the driver said.
        ends: Option<(SocketAddr, SocketAddr)>,
        /// Why.
        why: Refusal,
    },
}

/// How a connection through the proxy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Both ends closed it, and all bytes were passed on.
    Complete,
    /// The client reset it, or does not answer.
    ClientReset,
    /// The server reset it, or does not answer.
    ServerReset,
    /// Nobody listens at the server, or there is no way.
    NotConnected,
    /// The server did not accept in time ([`Config::connect_timeout`](super::Config::connect_timeout)).
    ConnectTimeout,
    /// Nothing came for too long ([`Config::idle`](super::Config::idle)).
    Idle,
    /// The user ended it ([`Pep::reset_all`](super::Pep::reset_all)).
    Aborted,
}

/// Why a client's stream is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// There are as many connections as there may be.
    Full,
    /// The driver did not say where it was to lead.
    NoDestination,
    /// It was to lead to the proxy itself.
    Loop,
    /// No more streams are taken ([`Pep::stop_accepting`](super::Pep::stop_accepting)).
    Stopping,
}

/// One connection, as it is or was at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The connection.
    pub id: PairId,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// When the client's stream came up.
    pub opened: Time,
    /// When the server accepted.
    pub connected: Option<Time>,
    /// When it ended.
    pub closed: Option<Time>,
    /// Bytes passed on to the server, and to the client.
    pub bytes: [u64; 2],
    /// Bytes held for the server, and for the client.
    pub buffered: [usize; 2],
    /// The most of each at any time.
    pub buffer_peak: [usize; 2],
}

/// What was counted of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Clients' streams that were taken.
    pub accepted: u64,
    /// Those of them whose server accepted.
    pub connected: u64,
    /// Connections there are.
    pub open: usize,
    /// The most there were.
    pub open_peak: usize,
    /// Clients' streams that were not taken.
    pub turned_away: u64,
    /// Connections that both ends closed.
    pub completed: u64,
    /// Connections that an end reset.
    pub reset: u64,
    /// Connections whose server did not accept.
    pub not_connected: u64,
    /// Connections that were idle for too long.
    pub idle: u64,
    /// Connections that the user ended.
    pub aborted: u64,
    /// Bytes passed on to servers, and to clients.
    pub bytes: [u64; 2],
    /// Bytes held.
    pub buffered: usize,
    /// The most bytes held at any time.
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
