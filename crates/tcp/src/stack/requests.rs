//! Requests of a user to a stack (RFC 9293 §3.9.1).

use std::net::SocketAddr;

use bytes::BufMut;
use engine::{PathId, Time};

use super::arrival::is_host;
use super::{Listener, Stack};
use crate::config::{Backlog, Options};
use crate::connection::{Connection, Negotiated};
use crate::indication::{CloseReason, ConnectionId, Info, ListenerId, RequestError, State};
use crate::packet::{self, Arrived, Tuple};
use crate::scps::Holes;
use crate::segment::Flags;

impl Stack {
    /// Listens on an address and port. An unspecified address (`0.0.0.0`, `::`) means any of its
    /// family, port 0 any port: the more specific listener takes precedence.
    ///
    /// # Errors
    /// [`RequestError::InUse`] if there is a listener already.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        options: Options,
        backlog: Backlog,
    ) -> Result<ListenerId, RequestError> {
        let local = plain(local);
        if self.listening.contains_key(&local) {
            return Err(RequestError::InUse);
        }
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        self.listening.insert(local, id);
        let listener = Listener { local, options, backlog, half_open: 0, reported_full: false };
        self.listeners.insert(id, listener);
        Ok(id)
    }

    /// Stops listening. Established connections stay; others are dropped.
    ///
    /// # Errors
    /// [`RequestError::UnknownListener`].
    pub fn unlisten(&mut self, now: Time, id: ListenerId) -> Result<(), RequestError> {
        let listener = self.listeners.remove(&id).ok_or(RequestError::UnknownListener)?;
        self.listening.remove(&listener.local);
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            if connection.listener() == Some(id) && connection.state() == State::SynReceived {
                connection.end(CloseReason::Aborted);
                self.settle(now, index);
            }
        }
        Ok(())
    }

    /// Opens a connection. Port 0 of `local` means any free port.
    ///
    /// # Errors
    /// The addresses do not match, are in use or cannot be reached, or there are too many
    /// connections.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        options: Options,
    ) -> Result<ConnectionId, RequestError> {
        let (local, remote) = (plain(local), plain(remote));
        let sound = local.is_ipv4() == remote.is_ipv4()
            && !local.ip().is_unspecified()
            && is_host(remote.ip())
            && remote.port() != 0;
        if !sound {
            return Err(RequestError::Address);
        }
        if self.is_full() {
            return Err(RequestError::Full);
        }
        let path = self.route(remote.ip()).ok_or(RequestError::NoRoute)?;
        let mtu = self.interfaces.get(&path).ok_or(RequestError::NoRoute)?.mtu;
        let tuple = self.free_tuple(Tuple { local, remote }).ok_or(RequestError::InUse)?;
        let options = self.config.interfaces.get(&path).cloned().unwrap_or(options);
        let at = Negotiated {
            path_mtu: self.path_mtus.get(now, path, remote.ip()),
            tuple,
            path,
            mtu,
            initial: self.secret.initial(now, tuple),
            stamp_offset: self.secret.stamp_offset(tuple),
            seed: self.rng.next_u64(),
            carrier: options.scps.map_or(crate::segment::PROTOCOL, |scps| scps.protocol.number()),
            own_number: self.numbers.take(&mut self.rng, tuple, &options),
        };
        let connection = Connection::active(now, &at, options, self.rules);
        let index = self.place(now, connection, true);
        self.settle(now, index);
        Ok(self.id(index))
    }

    /// Addresses of a packet, the peer's first, if it opens a new connection that a listener would
    /// accept.
    #[must_use]
    pub fn asks(&self, packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
        let Arrived { tuple, segment, .. } = packet::decode(packet).ok()?;
        let flags = segment.header.flags;
        let asks = flags.contains(Flags::SYN)
            && !flags.intersects(Flags::ACK | Flags::RST | Flags::FIN)
            && !self.by_tuple.contains_key(&tuple)
            && self.is_for_this(tuple)
            && self.listener_for(tuple.local).is_some();
        asks.then_some((tuple.remote, tuple.local))
    }

    /// Replies to a packet of an interface as without a listener.
    pub fn refuse(&mut self, path: PathId, packet: &[u8]) {
        if let Ok(arrived) = packet::decode(packet) {
            self.reset(path, &arrived);
        }
    }

    /// Addresses with a free port (RFC 6056 §3.3.1).
    fn free_tuple(&mut self, tuple: Tuple) -> Option<Tuple> {
        let taken = |stack: &Self, tuple: Tuple| {
            stack.by_tuple.contains_key(&tuple) || stack.time_wait.get(tuple).is_some()
        };
        if tuple.local.port() != 0 {
            return (!taken(self, tuple)).then_some(tuple);
        }
        let (first, last) = (*self.config.ports.start(), *self.config.ports.end());
        let count = u64::from(last.checked_sub(first)?) + 1;
        let start = self.rng.below(count);
        (0..count).find_map(|n| {
            let port = first + ((start + n) % count) as u16;
            let tuple = Tuple { local: SocketAddr::new(tuple.local.ip(), port), ..tuple };
            (!taken(self, tuple)).then_some(tuple)
        })
    }

    /// Writes to a connection. Returns the number of bytes accepted; if that is not all,
    /// [`Indication::Writable`](super::super::Indication::Writable) reports when there is room
    /// again.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`]; [`RequestError::Closing`] after [`Stack::shut_down`].
    pub fn send(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<usize, RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        if connection.is_finished() || connection.state() == State::Closed {
            return Err(RequestError::Closing);
        }
        let taken = connection.write(bytes);
        self.settle(now, id.index);
        Ok(taken)
    }

    /// Bytes that [`Stack::send`] would accept.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn room(&self, id: ConnectionId) -> Result<u64, RequestError> {
        let connection = self.look_at(id)?;
        Ok(if connection.is_finished() { 0 } else { connection.room() })
    }

    /// Readable data, in one or two pieces. It stays until [`Stack::consume`].
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn peek(&self, id: ConnectionId) -> Result<(&[u8], &[u8]), RequestError> {
        self.look_at(id).map(Connection::peek)
    }

    /// Removes bytes that were read, which opens the window.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn consume(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: usize,
    ) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.consume(now, bytes as u64);
        self.settle(now, id.index);
        Ok(())
    }

    /// Reads as much as is available and fits into `out`. Returns the number of bytes.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn receive(
        &mut self,
        now: Time,
        id: ConnectionId,
        out: &mut impl BufMut,
    ) -> Result<usize, RequestError> {
        let (first, second) = self.peek(id)?;
        let mut read = 0;
        for piece in [first, second] {
            let len = piece.len().min(out.remaining_mut());
            out.put_slice(&piece[..len]);
            read += len;
        }
        self.consume(now, id, read)?;
        Ok(read)
    }

    /// Enables or disables the immediate sending of short segments (`TCP_NODELAY`).
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn set_no_delay(
        &mut self,
        now: Time,
        id: ConnectionId,
        on: bool,
    ) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.set_no_delay(on);
        self.settle(now, id.index);
        Ok(())
    }

    /// Closes the sending half; the peer's data can still be read. Written data is still sent.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn shut_down(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.shut_down();
        self.settle(now, id.index);
        Ok(())
    }

    /// Closes both halves. Written data is still sent, unless there is unread data: then the peer
    /// is reset, as it would otherwise consider that data delivered.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn close(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        if connection.detach(now) {
            return self.abort(now, id);
        }
        self.settle(now, id.index);
        Ok(())
    }

    /// Ends a connection at once; the peer is reset.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn abort(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        let state = connection.state();
        if !matches!(state, State::SynSent | State::Closed | State::TimeWait) {
            self.reset_peer(id.index);
        }
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.detach(now);
        connection.end(CloseReason::Aborted);
        self.settle(now, id.index);
        Ok(())
    }

    /// Marks the end of a record after the last byte written (CCSDS 714.0-B-2). Must be called
    /// before anything else, or that byte may be sent without the mark.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`]; the peer does not support records, there are too many,
    /// or the byte was already sent.
    pub fn end_record(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.end_record()?;
        self.settle(now, id.index);
        Ok(())
    }

    /// Number of bytes from the next one to read to the end of its record, if the whole record can
    /// be read.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn record(&self, id: ConnectionId) -> Result<Option<u64>, RequestError> {
        self.look_at(id).map(Connection::record)
    }

    /// Data skipped by the best-effort service since the last call.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn take_holes(&mut self, now: Time, id: ConnectionId) -> Result<Holes, RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        let holes = connection.take_holes();
        self.settle(now, id.index);
        Ok(holes)
    }

    /// Notes an outage of the link beyond the next router, reported by the network (CCSDS
    /// 714.0-B-2): a connection with suspension stops, and occasionally probes for its end.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn link_away(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        if connection.suspends() {
            connection.suspend(now, true);
        }
        self.settle(now, id.index);
        Ok(())
    }

    /// Notes the end of that outage.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn link_back(&mut self, now: Time, id: ConnectionId) -> Result<(), RequestError> {
        let connection = self.connection(id).ok_or(RequestError::UnknownConnection)?;
        connection.resume(now);
        self.settle(now, id.index);
        Ok(())
    }

    /// Notes that the layer below an interface lost a packet to corruption, which is reported to
    /// peers with SCPS-TP.
    pub fn corruption_experienced(&mut self, now: Time, path: PathId) {
        if let Some(interface) = self.interfaces.get_mut(&path) {
            interface.corrupted_at = Some(now);
        }
    }

    /// Information about a connection.
    ///
    /// # Errors
    /// [`RequestError::UnknownConnection`].
    pub fn info(&self, id: ConnectionId) -> Result<Info, RequestError> {
        self.look_at(id).map(Connection::info)
    }

    /// Connections known to the user, including closed ones with unread data.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.known && slot.connection.is_some())
            .map(|(index, slot)| ConnectionId { index: index as u32, generation: slot.generation })
    }
}

/// Address without IPv6's scope and flow, which packets do not carry back.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
