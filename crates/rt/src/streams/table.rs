//! Streams of a driver, by path.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use engine::{PathId, Ticket};

use super::kernel_stream::{KernelStream, Phase};
use super::poll::Poll;

/// First number that is not used for a stream: an engine numbers its other paths itself.
const STREAMS: u32 = 1 << 31;

/// Streams of a driver, by path.
#[derive(Debug)]
pub(super) struct Table {
    streams: BTreeMap<PathId, KernelStream>,
    first_path: u32,
    next_path: u32,
    /// Streams that may be readable, each once.
    readable: VecDeque<PathId>,
    /// Index of the listener by which a peer connected to an address, while the stream exists.
    came_by: BTreeMap<(SocketAddr, SocketAddr), usize>,
    peak: usize,
}

impl Table {
    /// Returns an empty table, which numbers streams from `first` on.
    pub(super) fn new(first: u32) -> Self {
        Self {
            streams: BTreeMap::new(),
            first_path: first,
            next_path: first,
            readable: VecDeque::new(),
            came_by: BTreeMap::new(),
            peak: 0,
        }
    }

    /// Numbers further streams from `first` on.
    pub(super) fn begin_at(&mut self, first: u32) {
        (self.first_path, self.next_path) = (first, self.next_path.max(first));
    }

    pub(super) fn get(&self, path: PathId) -> Option<&KernelStream> {
        self.streams.get(&path)
    }

    pub(super) fn get_mut(&mut self, path: PathId) -> Option<&mut KernelStream> {
        self.streams.get_mut(&path)
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the maximum number of concurrent streams so far.
    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    /// Returns the bytes that wait for room in the kernel.
    pub(super) fn kept(&self) -> usize {
        self.streams.values().map(KernelStream::kept).sum()
    }

    /// Returns a number that no path has and, as long as such numbers remain, that no path had
    /// before.
    pub(super) fn new_path(&mut self, is_taken: impl Fn(PathId) -> bool) -> PathId {
        loop {
            let path = PathId(self.next_path);
            self.next_path += 1;
            if self.next_path >= STREAMS {
                self.next_path = self.first_path;
            }
            if !self.streams.contains_key(&path) && !is_taken(path) {
                return path;
            }
        }
    }

    /// Adds a stream and watches it.
    pub(super) fn insert(
        &mut self,
        poll: &Poll,
        path: PathId,
        stream: KernelStream,
    ) -> io::Result<()> {
        poll.add_stream(path, stream.socket())?;
        self.streams.insert(path, stream);
        self.peak = self.peak.max(self.streams.len());
        Ok(())
    }

    /// Removes a stream; dropping the result closes its socket.
    pub(super) fn remove(&mut self, path: PathId) -> Option<KernelStream> {
        let stream = self.streams.remove(&path)?;
        if let Some(ends) = stream.ends {
            self.came_by.remove(&ends);
        }
        Some(stream)
    }

    /// Returns the stream with the lowest number that the engine has left.
    pub(super) fn oldest_left(&self) -> Option<PathId> {
        let left = |(_, stream): &(&PathId, &KernelStream)| stream.phase == Phase::Left;
        self.streams.iter().find(left).map(|(path, _)| *path)
    }

    /// Returns the stream that is being connected for an effect.
    pub(super) fn opening(&self, ticket: Ticket) -> Option<PathId> {
        let phase = Phase::Opening(Some(ticket));
        self.streams.iter().find(|(_, stream)| stream.phase == phase).map(|(path, _)| *path)
    }

    /// Records the listener that accepted the stream between these addresses.
    pub(super) fn set_place(&mut self, local: SocketAddr, remote: SocketAddr, place: usize) {
        self.came_by.insert((local, remote), place);
    }

    /// Returns the listener that accepted the stream between these addresses.
    pub(super) fn place(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        self.came_by.get(&(local, remote)).copied()
    }

    /// Pauses or resumes reading from a stream.
    pub(super) fn pause(&mut self, path: PathId, is_paused: bool) {
        if let Some(stream) = self.streams.get_mut(&path) {
            stream.paused = is_paused;
            self.enqueue(path);
        }
    }

    /// Queues a stream for reading, unless it is paused, has nothing, or is queued already.
    pub(super) fn enqueue(&mut self, path: PathId) {
        if let Some(stream) = self.streams.get_mut(&path)
            && stream.readable
            && !stream.paused
            && !std::mem::replace(&mut stream.queued, true)
        {
            self.readable.push_back(path);
        }
    }

    pub(super) fn next_readable(&mut self) -> Option<PathId> {
        self.readable.pop_front()
    }

    pub(super) fn has_readable(&self) -> bool {
        !self.readable.is_empty()
    }
}
