//! Listeners of a driver of streams.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use engine::Ticket;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::config::Listening;
use super::options::StreamOptions;
use super::poll::Poll;

/// Maximum streams that the kernel establishes before the driver accepts them.
const BACKLOG: i32 = 4096;

/// A listener.
#[derive(Debug)]
struct Listener {
    socket: socket2::Socket,
    /// Effect that waits for a single stream; if `None`, any number of streams is accepted.
    ticket: Option<Ticket>,
    /// Index in [`StreamConfig::listen`](super::StreamConfig::listen).
    place: Option<usize>,
}

/// Listeners, by number.
#[derive(Debug)]
pub(super) struct Listeners {
    by_number: BTreeMap<u32, Listener>,
    next: u32,
}

impl Listeners {
    /// Opens the configured listeners.
    pub(super) fn open(poll: &Poll, listen: &[Listening]) -> io::Result<Self> {
        let mut listeners = Self { by_number: BTreeMap::new(), next: 0 };
        for (place, Listening { address, options, .. }) in listen.iter().enumerate() {
            let socket = options.listen(*address, BACKLOG)?;
            listeners.add(poll, Listener { socket, ticket: None, place: Some(place) })?;
        }
        Ok(listeners)
    }

    /// Opens a listener for one stream at a port that the system chooses. Returns its address.
    pub(super) fn wait_for_one(
        &mut self,
        poll: &Poll,
        options: &StreamOptions,
        near: IpAddr,
        ticket: Ticket,
    ) -> io::Result<SocketAddr> {
        let socket = options.listen(SocketAddr::new(near, 0), 1)?;
        let address = address_of(&socket)?;
        self.add(poll, Listener { socket, ticket: Some(ticket), place: None })?;
        Ok(address)
    }

    /// Adds a listener and watches it.
    fn add(&mut self, poll: &Poll, listener: Listener) -> io::Result<()> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        poll.add_listener(number, &listener.socket)?;
        self.by_number.insert(number, listener);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.by_number.remove(&number);
    }

    /// Ends the wait for one stream.
    pub(super) fn stop_waiting(&mut self, ticket: Ticket) {
        self.by_number.retain(|_, listener| listener.ticket != Some(ticket));
    }

    /// Ends the configured listeners.
    pub(super) fn stop_configured(&mut self) {
        self.by_number.retain(|_, listener| listener.place.is_none());
    }

    /// Returns the addresses of the configured listeners, in order.
    pub(super) fn configured(&self) -> io::Result<Vec<SocketAddr>> {
        let configured = self.by_number.values().filter(|listener| listener.place.is_some());
        configured.map(|listener| address_of(&listener.socket)).collect()
    }

    /// Accepts a stream that waits at a listener.
    pub(super) fn accept(&self, number: u32) -> Accepted {
        let Some(listener) = self.by_number.get(&number) else { return Accepted::None };
        match accept_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let socket = socket2::Socket::from(socket);
                let Listener { ticket, place, .. } = *listener;
                match ends(&socket) {
                    Some(ends) => Accepted::Stream { socket, ends, ticket, place },
                    None => Accepted::Lost,
                }
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                Accepted::NoDescriptor
            }
            Err(Errno::AGAIN) => Accepted::None,
            Err(_) => Accepted::Lost,
        }
    }

    /// Starts or stops watching a listener.
    pub(super) fn watch(&self, poll: &Poll, number: u32, is_watched: bool) {
        if let Some(listener) = self.by_number.get(&number) {
            poll.watch_listener(number, &listener.socket, is_watched);
        }
    }
}

/// Result of an attempt to accept a stream.
#[derive(Debug)]
pub(super) enum Accepted {
    /// A stream.
    Stream {
        socket: socket2::Socket,
        /// Addresses: ours and the peer's.
        ends: (SocketAddr, SocketAddr),
        /// Ticket and index of the listener.
        ticket: Option<Ticket>,
        place: Option<usize>,
    },
    /// A stream that ended before it was accepted.
    Lost,
    /// No stream waits.
    None,
    /// The process, or the system, has no descriptor left.
    NoDescriptor,
}

/// Addresses of a stream: ours and the peer's.
fn ends(socket: &socket2::Socket) -> Option<(SocketAddr, SocketAddr)> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    local.as_socket().zip(peer.as_socket())
}

fn address_of(socket: &socket2::Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket();
    address.ok_or_else(|| io::Error::other("no address of IP"))
}
