//! Stream, or the channel within one, as programs use it.

use bytes::{Buf as _, BytesMut};
use engine::Time;

use super::config::Config;
use super::ssh::{Command, Ssh};
use super::writes::Writes;

/// Carrier of a program's bytes.
#[derive(Debug)]
pub(super) enum Conn {
    /// Plain stream.
    Plain(Plain),
    /// SSH channel.
    Ssh(Box<Ssh>),
}

/// Stream used by a single program.
#[derive(Debug, Default)]
pub(super) struct Plain {
    out: Writes,
    data: BytesMut,
    eof_in: bool,
    /// Whether nothing more is written, and whether the program has exited.
    ended: bool,
    exited: bool,
}

impl Conn {
    pub(super) fn plain() -> Self {
        Self::Plain(Plain::default())
    }

    pub(super) fn client(config: &Config, command: Command) -> Self {
        Self::Ssh(Box::new(Ssh::client(config, command)))
    }

    pub(super) fn server(config: &Config) -> Self {
        Self::Ssh(Box::new(Ssh::server(config)))
    }

    pub(super) fn out(&mut self) -> &mut Writes {
        match self {
            Self::Plain(plain) => &mut plain.out,
            Self::Ssh(ssh) => &mut ssh.out,
        }
    }

    /// Whether programs can use it.
    pub(super) fn is_up(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Ssh(ssh) => ssh.is_up(),
        }
    }

    /// Whether the login is done, or not needed.
    pub(super) fn is_logged_in(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Ssh(ssh) => ssh.logged_in,
        }
    }

    pub(super) fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), &'static str> {
        match self {
            Self::Plain(plain) => {
                plain.data.extend_from_slice(bytes);
                Ok(())
            }
            Self::Ssh(ssh) => ssh.receive(now, bytes),
        }
    }

    /// Received bytes not read yet.
    pub(super) fn data(&self) -> &[u8] {
        match self {
            Self::Plain(plain) => &plain.data,
            Self::Ssh(ssh) => &ssh.data,
        }
    }

    pub(super) fn consume(&mut self, now: Time, len: usize) {
        match self {
            Self::Plain(plain) => plain.data.advance(len),
            Self::Ssh(ssh) => ssh.consume(now, len),
        }
    }

    /// Bytes queued for sending.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.out.held(),
            Self::Ssh(ssh) => ssh.waiting(),
        }
    }

    /// Adds one write of a program.
    pub(super) fn write(&mut self, now: Time, config: &Config, bytes: Vec<u8>) {
        match self {
            Self::Plain(plain) => plain.out.push(now, config.costs.write, bytes.into()),
            Self::Ssh(ssh) => ssh.write(&bytes),
        }
    }

    /// Whether the other program writes no more.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.eof_in && plain.data.is_empty(),
            Self::Ssh(ssh) => ssh.eof_in && ssh.data.is_empty(),
        }
    }

    /// Whether the other program has exited.
    pub(super) fn has_exited(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.eof_in && plain.data.is_empty(),
            Self::Ssh(ssh) => ssh.closed_in,
        }
    }

    /// Notes that the stream's peer sends no more.
    pub(super) fn read_closed(&mut self) {
        match self {
            Self::Plain(plain) => plain.eof_in = true,
            Self::Ssh(ssh) => (ssh.eof_in, ssh.closed_in) = (true, true),
        }
    }

    /// Ends the output.
    pub(super) fn end(&mut self) {
        match self {
            Self::Plain(plain) => plain.ended = true,
            Self::Ssh(ssh) => ssh.end(),
        }
    }

    /// Notes that the program has exited.
    pub(super) fn exit(&mut self) {
        match self {
            Self::Plain(plain) => plain.exited = true,
            Self::Ssh(ssh) => ssh.exit(),
        }
    }

    /// Whether the stream's sending half is to be shut down now.
    pub(super) fn take_shutdown(&mut self) -> bool {
        match self {
            Self::Plain(plain) => plain.out.is_empty() && std::mem::take(&mut plain.ended),
            Self::Ssh(_) => false,
        }
    }

    /// Whether the stream is to disable Nagle's algorithm.
    pub(super) fn take_no_delay(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Ssh(ssh) => std::mem::take(&mut ssh.wants_no_delay),
        }
    }

    /// Whether everything was sent and the stream can be closed.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.out.is_empty() && plain.exited,
            Self::Ssh(ssh) => ssh.is_over(),
        }
    }

    /// Sends pending data.
    pub(super) fn flush(&mut self, now: Time, ahead: usize) {
        if let Self::Ssh(ssh) = self {
            ssh.go_on(now);
            ssh.flush(now, ahead);
        }
    }
}
