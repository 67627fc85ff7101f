//! Streams of the engine above, and those that it has left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use engine::{PathId, Ticket};

use tcp::{ConnectionId, ListenerId};

/// Phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connecting, for the effect of this ticket or for a path to be opened.
    Opening(Option<Ticket>),
    /// Reported to the engine above as up.
    Up,
}

/// A stream of the engine above.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    /// Local and remote address.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    pub(super) phase: Phase,
    /// Polled bytes that the connection has not taken yet: the rest of one transmission.
    pub(super) kept: Vec<u8>,
    /// Whether the engine above was notified that there is no room.
    pub(super) blocked: bool,
    /// Whether the engine above paused it.
    pub(super) paused: bool,
    /// Whether nothing follows the kept bytes.
    pub(super) shut: bool,
    /// Whether the peer sends nothing behind the unread data, and whether that was reported.
    pub(super) ended: bool,
    pub(super) end_reported: bool,
    /// Whether the connection has ended.
    pub(super) over: bool,
}

impl Stream {
    pub(super) fn new(connection: ConnectionId, phase: Phase) -> Self {
        Self {
            connection,
            ends: None,
            phase,
            kept: Vec::new(),
            blocked: false,
            paused: false,
            shut: false,
            ended: false,
            end_reported: false,
            over: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }
}

/// Owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A stream of the engine above.
    Stream(PathId),
    /// No owner: the stream was left with data still to be delivered.
    Nobody,
}

/// Use of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Any number of streams, by the configuration.
    Any,
    /// One stream, by this effect.
    One(Ticket),
}

/// All streams of an engine.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) by_path: BTreeMap<PathId, Stream>,
    pub(super) owners: BTreeMap<ConnectionId, Owner>,
    /// Bytes of left streams that their connections have not taken yet.
    pub(super) left: BTreeMap<ConnectionId, Vec<u8>>,
    pub(super) listeners: BTreeMap<ListenerId, Awaited>,
    /// Streams that may have data to deliver.
    pub(super) readable: BTreeSet<PathId>,
    first_path: u32,
    next_path: u32,
}

impl Streams {
    /// No streams; unrequested ones get numbers from `first` on.
    pub(super) fn from(first: u32) -> Self {
        Self { first_path: first, next_path: first, ..Self::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn insert(&mut self, path: PathId, stream: Stream) {
        self.owners.insert(stream.connection, Owner::Stream(path));
        self.by_path.insert(path, stream);
    }

    /// Removes a stream: its connection has no owner from here on.
    pub(super) fn remove(&mut self, path: PathId) -> Option<Stream> {
        let stream = self.by_path.remove(&path)?;
        self.owners.remove(&stream.connection);
        self.readable.remove(&path);
        Some(stream)
    }

    /// Returns a number that no stream has and, while unused numbers are left, that no stream ever
    /// had.
    pub(super) fn new_path(&mut self, is_taken: impl Fn(PathId) -> bool) -> PathId {
        loop {
            let path = PathId(self.next_path);
            self.next_path = self.next_path.checked_add(1).unwrap_or(self.first_path);
            if !is_taken(path) && !self.by_path.contains_key(&path) {
                return path;
            }
        }
    }

    pub(super) fn get_by_connection(
        &mut self,
        connection: ConnectionId,
    ) -> Option<(PathId, &mut Stream)> {
        match self.owners.get(&connection)? {
            Owner::Stream(path) => Some((*path, self.by_path.get_mut(path)?)),
            Owner::Nobody => None,
        }
    }

    /// Listener of an effect.
    pub(super) fn listener(&self, ticket: Ticket) -> Option<ListenerId> {
        let found = self.listeners.iter().find(|(_, awaited)| **awaited == Awaited::One(ticket));
        found.map(|(id, _)| *id)
    }

    /// Stream being connected for an effect.
    pub(super) fn opening(&self, ticket: Ticket) -> Option<PathId> {
        let pending = Phase::Opening(Some(ticket));
        self.by_path.iter().find(|(_, stream)| stream.phase == pending).map(|(path, _)| *path)
    }
}
