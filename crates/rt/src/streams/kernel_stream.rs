//! A stream of the kernel's TCP, as its driver holds it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use engine::Ticket;
use socket2::SockRef;

use super::Got;
use super::options::{StreamOptions, deliver_at_close, reset_at_close};
use super::tls::{Tls, TlsStream};

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connecting, for the effect of this ticket, or for a configured path.
    Opening(Option<Ticket>),
    /// Reported to the engine as up.
    Up,
    /// Left by the engine; sent data is still to be delivered.
    Left,
}

/// A stream of the kernel's TCP.
#[derive(Debug)]
pub(super) struct KernelStream {
    socket: TcpStream,
    pub(super) phase: Phase,
    /// Time without acknowledgment after which the system gives up a stream that is connected, if it
    /// differs while connecting.
    timeout: Option<Option<Duration>>,
    /// Addresses, ours and the peer's.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// Rest of one transmit that the kernel did not take yet, from `sent` on.
    kept: Vec<u8>,
    sent: usize,
    /// Whether the engine was informed that there is no room.
    pub(super) blocked: bool,
    /// Whether the engine has paused receiving.
    pub(super) paused: bool,
    /// Whether the kernel may have something to read.
    pub(super) readable: bool,
    /// Whether the stream is in the queue of readable streams.
    pub(super) queued: bool,
    /// Whether the engine ends its direction after the kept bytes.
    shut: bool,
    shut_down: bool,
    /// Whether the peer's end was reported to the engine.
    pub(super) ended: bool,
    /// Whether writing has failed: the connection has ended.
    broken: bool,
    /// TLS state.
    tls: Option<Box<TlsStream>>,
}

impl KernelStream {
    pub(super) fn new(socket: socket2::Socket, phase: Phase) -> Self {
        Self {
            socket: socket.into(),
            phase,
            timeout: None,
            ends: None,
            kept: Vec::new(),
            sent: 0,
            blocked: false,
            paused: false,
            readable: false,
            queued: false,
            shut: false,
            shut_down: false,
            ended: false,
            broken: false,
            tls: None,
        }
    }

    /// A stream that is being connected with these options.
    pub(super) fn opening(
        socket: socket2::Socket,
        ticket: Option<Ticket>,
        options: &StreamOptions,
    ) -> Self {
        let timeout = options.connecting.map(|_| options.timeout);
        Self { timeout, ..Self::new(socket, Phase::Opening(ticket)) }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Returns the number of bytes that wait for room in the kernel.
    pub(super) fn kept(&self) -> usize {
        self.kept.len() - self.sent
    }

    /// Result of an attempt to connect, once the kernel reports its end.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        if let Some(timeout) = self.timeout.take() {
            SockRef::from(&self.socket).set_tcp_user_timeout(timeout)?;
        }
        self.ends = Some((self.socket.local_addr()?, self.socket.peer_addr()?));
        Ok(())
    }

    /// Whether writing has failed, so that nothing more can be sent.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Starts TLS for all further bytes: as the client of `server` if given.
    pub(super) fn secure(
        &mut self,
        tls: &Tls,
        server: Option<&str>,
        early: &[u8],
    ) -> Result<(), rustls::Error> {
        let (_, peer) = self
            .ends
            .ok_or_else(|| rustls::Error::General("the stream is not connected".to_owned()))?;
        let mut stream = tls.stream(server, peer.ip())?;
        stream.early(early)?;
        self.tls = Some(Box::new(stream));
        self.give_made();
        Ok(())
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Got {
        let Some(tls) = &mut self.tls else { return self.read_plain(buffer) };
        let got = tls.read(&self.socket, buffer);
        // A reply to the input: more of the handshake, or an alert.
        self.give_made();
        got
    }

    fn read_plain(&self, buffer: &mut [u8]) -> Got {
        loop {
            return match (&self.socket).read(buffer) {
                // Writing has consumed the error that reading would return.
                Ok(0) if self.broken => Got::Lost,
                Ok(0) => Got::End,
                Ok(len) => Got::Bytes(len),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => Got::Nothing,
                    _ => Got::Lost,
                },
            };
        }
    }

    /// Writes the pulled bytes to the kernel, and keeps the rest.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            Some(tls) => {
                tls.write(bytes);
                self.give_made();
            }
            None => self.give(bytes),
        }
        self.end_if_written();
    }

    /// Writes the output of TLS to the kernel.
    fn give_made(&mut self) {
        while let Some(tls) = &mut self.tls {
            let made = tls.made();
            if made.is_empty() {
                return;
            }
            self.give(&made);
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        if self.kept() > 0 {
            self.kept.extend_from_slice(bytes);
            return;
        }
        let taken = self.put(bytes);
        if taken < bytes.len() {
            self.kept.clear();
            self.sent = 0;
            self.kept.extend_from_slice(&bytes[taken..]);
        }
    }

    /// Writes more of the kept bytes to the kernel. Returns whether all were written.
    pub(super) fn write_on(&mut self) -> bool {
        if self.kept() > 0 {
            let kept = std::mem::take(&mut self.kept);
            self.sent += self.put(&kept[self.sent..]);
            self.kept = kept;
            if self.kept() > 0 {
                return false;
            }
        }
        // Few streams wait at one time, so the other streams hold no memory.
        self.kept = Vec::new();
        self.sent = 0;
        self.end_if_written();
        true
    }

    /// Ends the direction after the kept bytes, or after the next transmit if that is held back.
    pub(super) fn shut_down(&mut self, holds: bool) {
        self.shut = true;
        if !holds {
            self.end_if_written();
        }
    }

    /// Whether both directions have ended, as far as detected here.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.shut_down
    }

    /// Whether the kernel has all bytes and the end of the direction.
    pub(super) fn is_written(&self) -> bool {
        self.shut_down
    }

    fn end_if_written(&mut self) {
        if self.shut && !self.shut_down && self.kept() == 0 {
            if let Some(tls) = &mut self.tls {
                tls.close();
                self.give_made();
                if self.kept() > 0 {
                    return;
                }
            }
            self.shut_down = true;
            // The kernel has all data: it is delivered even if the process dies now.
            deliver_at_close(&self.socket);
            // An ended connection needs no end; reading reports it.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Writes bytes and returns how many the kernel accepted: all if the connection has ended, so
    /// that nothing is kept for it.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            match (&self.socket).write(&bytes[taken..]) {
                Ok(len) => taken += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken,
                Err(_) => {
                    self.broken = true;
                    return bytes.len();
                }
            }
        }
        taken
    }

    /// Resets the connection.
    pub(super) fn reset(self) {
        reset_at_close(&self.socket);
    }
}
