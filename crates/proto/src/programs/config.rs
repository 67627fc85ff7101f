//! What a node is told to be.

use std::time::Duration;

use crate::settings::form::{Flag, Leaf};
use crate::settings::{Kind, Settings, Value, Visited, Visitor};
use crate::visit;

/// A program that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// scp of OpenSSH.
    Scp,
    /// sftp of OpenSSH.
    Sftp,
    /// rsync over OpenSSH.
    Rsync,
    /// rsync to its own daemon.
    RsyncDaemon,
    /// Somebody who types, and sees what he types when it comes back.
    Telnet,
}

/// A release of OpenSSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 9.2 (2023): scp speaks SFTP.
    #[default]
    OpenSsh92,
    /// The same, with `scp -O`: scp speaks its own protocol.
    OpenSsh92Legacy,
    /// 4.2 (2005).
    OpenSsh42,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenSsh92, Self::OpenSsh92Legacy, Self::OpenSsh42];

    /// Its name in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenSsh92 => "openssh-9.2",
            Self::OpenSsh92Legacy => "openssh-9.2-legacy",
            Self::OpenSsh42 => "openssh-4.2",
        }
    }

    /// The window of a channel, in bytes (`CHAN_SES_WINDOW_DEFAULT`).
    #[must_use]
    pub const fn window(self) -> u32 {
        match self {
            Self::OpenSsh92 | Self::OpenSsh92Legacy => 2 << 20,
            Self::OpenSsh42 => 128 << 10,
        }
    }

    /// How many writes of sftp may wait for their answers, and bytes of each.
    #[must_use]
    pub const fn writes(self) -> (u32, usize) {
        match self {
            // What the server offers by limits@openssh.com: 256 KiB less 1 KiB.
            Self::OpenSsh92 | Self::OpenSsh92Legacy => (64, 255 << 10),
            Self::OpenSsh42 => (16, 32 << 10),
        }
    }
}

/// A node: a client of the peers that it is asked to talk to, and a server to those who come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What it is.
    pub tool: Tool,
    /// Of which release, where that is OpenSSH.
    pub version: Version,
    /// The window that a channel's receiver offers, in bytes.
    pub window: u32,
    /// How long a server waits for a login (`LoginGraceTime`).
    pub grace: Duration,
    /// How long either end waits while nothing comes.
    pub timeout: Duration,
    /// The mean time between two keys that are typed.
    pub key_interval: Duration,
    /// What the programs themselves take.
    pub costs: Costs,
    /// What it may hold.
    pub limits: Limits,
}

impl Config {
    /// A tool as it comes: two minutes for a login, two hours of silence, five keys a second.
    #[must_use]
    pub fn new(tool: Tool, version: Version) -> Self {
        Self {
            tool,
            version,
            window: version.window(),
            grace: Duration::from_secs(120),
            timeout: Duration::from_secs(7200),
            key_interval: Duration::from_millis(200),
            costs: Costs::default(),
            limits: Limits::default(),
        }
    }
}

/// Least window of a channel: two messages.
const WINDOW_MIN: u64 = 64 << 10;

impl Settings for Config {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Bytes of the window of an SSH channel.
            "window": self.window as Size [Range(WINDOW_MIN, u32::MAX as u64)],
            /// Time that a server waits for a login.
            "grace": self.grace as Span [Interval],
            /// Mean time between two keys that are typed.
            "key_interval": self.key_interval as Span [Interval],
            /// Whether programs take time of their own.
            "costs": self.costs as AnyCosts,
        }
        Ok(())
    }
}

/// Form of [`Costs`] by whether there are any.
#[derive(Debug)]
struct AnyCosts;

impl Leaf<Costs> for AnyCosts {
    fn kind() -> Kind {
        Flag::kind()
    }

    fn get(costs: &Costs) -> Option<Value> {
        Some(Value::Flag(*costs != Costs::none()))
    }

    fn set(costs: &mut Costs, value: Value) -> Result<(), String> {
        let mut any = true;
        Flag::set(&mut any, value)?;
        *costs = if any { Costs::default() } else { Costs::none() };
        Ok(())
    }
}

/// The time that programs take for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A client is started.
    pub client: Duration,
    /// A server makes a process for a connection.
    pub accept: Duration,
    /// A client makes its half of a key.
    pub keys: Duration,
    /// A server answers it, and signs.
    pub sign: Duration,
    /// A client verifies that.
    pub verify: Duration,
    /// A server refuses a login that proves nothing.
    pub refuse: Duration,
    /// A server lets somebody in.
    pub login: Duration,
    /// A server starts what a client asks for through a shell.
    pub start: Duration,
    /// One write follows another.
    pub write: Duration,
}

impl Default for Costs {
    /// What OpenSSH 9.2 took on two virtual cores, rounded.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            client: ms(20),
            accept: ms(15),
            keys: ms(100),
            sign: ms(30),
            verify: ms(50),
            refuse: ms(8),
            login: ms(12),
            start: ms(300),
            write: Duration::from_micros(50),
        }
    }
}

impl Costs {
    /// Programs that take no time.
    #[must_use]
    pub fn none() -> Self {
        let none = Duration::ZERO;
        Self {
            client: none,
            accept: none,
            keys: none,
            sign: none,
            verify: none,
            refuse: none,
            login: none,
            start: none,
            write: Duration::from_micros(1),
        }
    }
}

/// What a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of others.
    pub sessions: usize,
    /// Requests of the user that wait.
    pub requests: usize,
    /// Bytes of a file that are read before they can be sent.
    pub read_ahead: usize,
    /// Bytes of one read.
    pub piece: usize,
    /// Bytes of a file that arrived and are not written yet.
    pub write_buffer: usize,
    /// Bytes that wait for the stream.
    pub write_ahead: usize,
    /// Bytes of a message, beyond those of a channel's window.
    pub message: usize,
    /// Keys that are typed in one session.
    pub keys: u64,
}

impl Default for Limits {
    /// 64 sessions, 1,024 requests, 1 MiB ahead in pieces of 64 KiB, 1 MiB to be written, 256 KiB
    /// to be sent, messages of 512 KiB, a million keys.
    fn default() -> Self {
        Self {
            sessions: 64,
            requests: 1024,
            read_ahead: 1 << 20,
            piece: 64 << 10,
            write_buffer: 1 << 20,
            write_ahead: 256 << 10,
            message: 512 << 10,
            keys: 1_000_000,
        }
    }
}
