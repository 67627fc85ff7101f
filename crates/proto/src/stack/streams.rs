//! The streams that the engine above knows, and those that it has left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use engine::{PathId, Ticket};

use crate::tcp::{ConnectionId, ListenerId};

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being connected, for the effect that this ticket names, or for a path that was to be
    /// opened.
    Opening(Option<Ticket>),
    /// The engine above was told that it is up.
    Up,
}

/// A stream of the engine above.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    /// Ours and the peer's.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    pub(super) phase: Phase,
    /// What was pulled and the connection did not take yet: the rest of one transmit.
    pub(super) kept: Vec<u8>,
    /// The engine above was told that there is no room.
    pub(super) blocked: bool,
    /// It asked to be handed in nothing.
    pub(super) paused: bool,
    /// It sends nothing behind what is kept.
    pub(super) shut: bool,
    /// The peer sends nothing behind what waits to be read, and was it told?
    pub(super) ended: bool,
    pub(super) end_reported: bool,
    /// The connection is over.
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

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A stream of the engine above.
    Stream(PathId),
    /// Nobody's: it was left, but what was sent on it is still to arrive.
    Nobody,
}

/// A place where one stream, or any number of them, is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Any number, by the configuration.
    Any,
    /// One, by this effect.
    One(Ticket),
}

/// All streams of an engine.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) by_path: BTreeMap<PathId, Stream>,
    pub(super) owners: BTreeMap<ConnectionId, Owner>,
    /// What was left and is not taken by its connection yet.
    pub(super) left: BTreeMap<ConnectionId, Vec<u8>>,
    pub(super) listeners: BTreeMap<ListenerId, Awaited>,
    /// Streams that may have something to be handed in.
    pub(super) readable: BTreeSet<PathId>,
    first_path: u32,
    next_path: u32,
}

impl Streams {
    /// Streams, of which those that nobody asked for by number get numbers from `first` on.
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

    /// Forgets a stream: its connection is nobody's from here on.
    pub(super) fn remove(&mut self, path: PathId) -> Option<Stream> {
        let stream = self.by_path.remove(&path)?;
        self.owners.remove(&stream.connection);
        self.readable.remove(&path);
        Some(stream)
    }

    /// A number that no stream has and, as long as there are others, none had.
    pub(super) fn new_path(&mut self, is_taken: impl Fn(PathId) -> bool) -> PathId {
        loop {
            let path = PathId(self.next_path);
            self.next_path = self.next_path.checked_add(1).unwrap_or(self.first_path);
            if !is_taken(path) && !self.by_path.contains_key(&path) {
                return path;
            }
        }
    }

    pub(super) fn of(&mut self, connection: ConnectionId) -> Option<(PathId, &mut Stream)> {
        match self.owners.get(&connection)? {
            Owner::Stream(path) => Some((*path, self.by_path.get_mut(path)?)),
            Owner::Nobody => None,
        }
    }

    /// The listener that waits for the stream of an effect.
    pub(super) fn listener(&self, ticket: Ticket) -> Option<ListenerId> {
        let found = self.listeners.iter().find(|(_, awaited)| **awaited == Awaited::One(ticket));
        found.map(|(id, _)| *id)
    }

    /// The stream that is being connected for an effect.
    pub(super) fn opening(&self, ticket: Ticket) -> Option<PathId> {
        let pending = Phase::Opening(Some(ticket));
        self.by_path.iter().find(|(_, stream)| stream.phase == pending).map(|(path, _)| *path)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        let kept = self.by_path.values().map(|stream| stream.kept.capacity());
        let left = self.left.values().map(Vec::capacity);
        kept.sum::<usize>()
            + left.sum::<usize>()
            + self.by_path.len() * (size_of::<Stream>() + 16)
            + self.owners.len() * 32
            + self.listeners.len() * 32
    }
}
