//! Streams whose peer is answered only once another stream is open for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use engine::PathId;

use crate::tcp::ConnectionId;

/// Where a stream was asked for, and what for: the peer, and whom it asked.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A peer's SYN that waits.
#[derive(Debug)]
pub(super) struct PendingSyn {
    pub(super) ends: Ends,
    /// Over which interface it came.
    pub(super) path: PathId,
    pub(super) syn: Vec<u8>,
}

/// Connections that were opened for a peer before it was accepted.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Those that are being opened.
    pending: BTreeMap<ConnectionId, PendingSyn>,
    /// Those that are open, whose peers were answered.
    ready: BTreeMap<Ends, ConnectionId>,
    ends: BTreeMap<Ends, ConnectionId>,
}

impl Late {
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Whether a connection is being opened for a peer that asks again.
    pub(super) fn is_pending(&self, ends: Ends) -> bool {
        self.ends.contains_key(&ends) && !self.ready.contains_key(&ends)
    }

    /// Whether it is open, and the peer was answered.
    pub(super) fn is_ready(&self, ends: Ends) -> bool {
        self.ready.contains_key(&ends)
    }

    pub(super) fn insert(&mut self, connection: ConnectionId, pending: PendingSyn) {
        self.ends.insert(pending.ends, connection);
        self.pending.insert(connection, pending);
    }

    /// A connection is open: the peer can be answered.
    pub(super) fn connected(&mut self, connection: ConnectionId) -> Option<PendingSyn> {
        let pending = self.pending.remove(&connection)?;
        self.ready.insert(pending.ends, connection);
        Some(pending)
    }

    /// A connection is over before anybody had it; its peer, if that was not answered yet.
    pub(super) fn over(&mut self, connection: ConnectionId) -> Option<PendingSyn> {
        self.ready.retain(|_, other| *other != connection);
        self.ends.retain(|_, other| *other != connection);
        self.pending.remove(&connection)
    }

    /// The connection that was opened for a peer goes to a stream.
    pub(super) fn claim(&mut self, ends: Ends) -> Option<ConnectionId> {
        let connection = self.ready.remove(&ends)?;
        self.ends.remove(&ends);
        Some(connection)
    }

    /// Whether nobody has the connection yet.
    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.ends.values().any(|other| *other == connection)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        let syns = self.pending.values().map(|pending| pending.syn.capacity());
        syns.sum::<usize>() + self.ends.len() * (size_of::<PendingSyn>() + 3 * size_of::<Ends>())
    }
}
