//! A stream of the kernel's as its driver carries it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use engine::Ticket;

use super::options::{deliver_at_close, reset_at_close};
use super::tls::{Tls, TlsStream};

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being connected, for the effect that this ticket names, or for a path that was to be
    /// opened.
    Opening(Option<Ticket>),
    /// The engine was told that it is up.
    Up,
    /// The engine has left it; what it sent is still to go.
    Left,
}

/// What reading gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// TLS is established; the nodes that the peer's certificate names.
    Secured(Vec<String>),
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The peer sends no more, and TLS has said so where there is TLS.
    End,
    /// The connection is over: reset, or given up by the system.
    Lost,
}

/// A stream of the kernel's.
#[derive(Debug)]
pub(super) struct KernelStream {
    socket: TcpStream,
    pub(super) phase: Phase,
    /// Ours and the peer's.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// What was pulled and the kernel did not take yet, from `sent` on: the rest of one transmit.
    kept: Vec<u8>,
    sent: usize,
    /// The engine was told that there is no room.
    pub(super) blocked: bool,
    /// The engine asked to be handed in nothing.
    pub(super) paused: bool,
    /// The kernel may have something to read.
    pub(super) readable: bool,
    /// It waits in the queue of those that may have something to be handed in.
    pub(super) queued: bool,
    /// The engine sends nothing behind what is kept, and was the kernel told?
    shut: bool,
    shut_down: bool,
    /// The peer sends no more, and the engine knows.
    pub(super) ended: bool,
    /// Writing has failed: the connection is over.
    broken: bool,
    /// What secures it.
    tls: Option<Box<TlsStream>>,
}

impl KernelStream {
    pub(super) fn new(socket: socket2::Socket, phase: Phase) -> Self {
        Self {
            socket: socket.into(),
            phase,
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

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Bytes that wait for room in the kernel.
    pub(super) fn kept(&self) -> usize {
        self.kept.len() - self.sent
    }

    /// How an attempt to connect ended, once the kernel says that it did.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        self.ends = Some((self.socket.local_addr()?, self.socket.peer_addr()?));
        Ok(())
    }

    /// Whether writing has failed, so that nothing more can be sent.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Secures all that follows: as the client of `server` if that is said.
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
        // An answer to what came: more of the handshake, or what is wrong with it.
        self.give_made();
        got
    }

    fn read_plain(&self, buffer: &mut [u8]) -> Got {
        loop {
            return match (&self.socket).read(buffer) {
                // Writing has taken the error that reading would tell of.
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

    /// Gives the kernel what was pulled, and keeps what it does not take.
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

    /// Gives the kernel what TLS has made.
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

    /// Gives the kernel more of what is kept; whether nothing is left.
    pub(super) fn write_on(&mut self) -> bool {
        if self.kept() > 0 {
            let kept = std::mem::take(&mut self.kept);
            self.sent += self.put(&kept[self.sent..]);
            self.kept = kept;
            if self.kept() > 0 {
                return false;
            }
        }
        // Few streams wait at one time: the others hold no memory.
        self.kept = Vec::new();
        self.sent = 0;
        self.end_if_written();
        true
    }

    /// Nothing is sent behind what is kept, and behind the next transmit if that is held back.
    pub(super) fn shut_down(&mut self, holds: bool) {
        self.shut = true;
        if !holds {
            self.end_if_written();
        }
    }

    /// Whether both halves have ended, as far as this host knows.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.shut_down
    }

    /// Whether all that was sent is the kernel's, and it knows that there is no more.
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
            // The kernel has all of it: who dies now leaves nothing out.
            deliver_at_close(&self.socket);
            // A connection that is over needs no end; reading tells of it.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// How much of this the kernel takes: of a connection that is over all, for nothing is to be kept
    /// for it.
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

    /// Ends it at once.
    pub(super) fn reset(self) {
        reset_at_close(&self.socket);
    }
}
