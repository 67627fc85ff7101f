//! Late acceptance: a peer's SYN gets its reply once a connection to its destination is open.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use engine::PathId;

use tcp::ConnectionId;

/// Ends of a requested stream: the peer, and the address it connects to.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A peer's SYN that waits.
#[derive(Debug)]
pub(super) struct PendingSyn {
    pub(super) ends: Ends,
    /// Interface on which it arrived.
    pub(super) path: PathId,
    pub(super) syn: Vec<u8>,
}

/// Connections opened for a peer before it was accepted.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Connections being opened.
    pending: BTreeMap<ConnectionId, PendingSyn>,
    /// Open connections whose peers were accepted.
    ready: BTreeMap<Ends, ConnectionId>,
    ends: BTreeMap<Ends, ConnectionId>,
}

impl Late {
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Whether a connection is being opened for a peer that retransmits its SYN.
    pub(super) fn is_pending(&self, ends: Ends) -> bool {
        self.ends.contains_key(&ends) && !self.ready.contains_key(&ends)
    }

    /// Whether it is open, and the peer was accepted.
    pub(super) fn is_ready(&self, ends: Ends) -> bool {
        self.ready.contains_key(&ends)
    }

    pub(super) fn insert(&mut self, connection: ConnectionId, pending: PendingSyn) {
        self.ends.insert(pending.ends, connection);
        self.pending.insert(connection, pending);
    }

    /// Records that a connection is open, and returns the SYN to reply to.
    pub(super) fn connected(&mut self, connection: ConnectionId) -> Option<PendingSyn> {
        let pending = self.pending.remove(&connection)?;
        self.ready.insert(pending.ends, connection);
        Some(pending)
    }

    /// Removes an unclaimed connection that ended; returns the SYN if it got no reply.
    pub(super) fn over(&mut self, connection: ConnectionId) -> Option<PendingSyn> {
        self.ready.retain(|_, other| *other != connection);
        self.ends.retain(|_, other| *other != connection);
        self.pending.remove(&connection)
    }

    /// Takes the connection opened for a peer.
    pub(super) fn claim(&mut self, ends: Ends) -> Option<ConnectionId> {
        let connection = self.ready.remove(&ends)?;
        self.ends.remove(&ends);
        Some(connection)
    }

    /// Whether the connection is unclaimed.
    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.ends.values().any(|other| *other == connection)
    }
}
