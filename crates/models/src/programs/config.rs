//! Settings of a node.

use std::time::Duration;

use session::settings::form::{Flag, Leaf};
use session::settings::{Kind, Settings, Value, Visited, Visitor};
use session::visit;

/// Modelled program.
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
    /// Terminal session that echoes the user's input.
    Telnet,
}

/// Release of OpenSSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 9.2 (2023): scp uses SFTP.
    #[default]
    OpenSsh92,
    /// 9.2 with `scp -O`: scp uses its own protocol.
    OpenSsh92Legacy,
    /// 4.2 (2005).
    OpenSsh42,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenSsh92, Self::OpenSsh92Legacy, Self::OpenSsh42];

    /// Name in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenSsh92 => "openssh-9.2",
            Self::OpenSsh92Legacy => "openssh-9.2-legacy",
            Self::OpenSsh42 => "openssh-4.2",
        }
    }

    /// Channel window in bytes (`CHAN_SES_WINDOW_DEFAULT`).
    #[must_use]
    pub const fn window(self) -> u32 {
        match self {
            Self::OpenSsh92 | Self::OpenSsh92Legacy => 2 << 20,
            Self::OpenSsh42 => 128 << 10,
        }
    }

    /// Maximum number of outstanding sftp writes, and bytes of each.
    #[must_use]
    pub const fn writes(self) -> (u32, usize) {
        match self {
            // Limit that the server offers by limits@openssh.com: 256 KiB less 1 KiB.
            Self::OpenSsh92 | Self::OpenSsh92Legacy => (64, 255 << 10),
            Self::OpenSsh42 => (16, 32 << 10),
        }
    }
}

/// Settings of a node: client for its user's requests, and server for its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Modelled program.
    pub tool: Tool,
    /// Release, for OpenSSH.
    pub version: Version,
    /// Window offered by a channel's receiver, in bytes.
    pub window: u32,
    /// Time for which a server waits for a login (`LoginGraceTime`).
    pub grace: Duration,
    /// Silence after which either side gives up.
    pub timeout: Duration,
    /// Mean time between two keystrokes.
    pub key_interval: Duration,
    /// Processing times of the programs.
    pub costs: Costs,
    /// Limits of the node.
    pub limits: Limits,
}

impl Config {
    /// Default settings of a tool: two minutes for a login, two hours of silence, five keystrokes
    /// per second.
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

/// Minimum window of a channel: two messages.
const WINDOW_MIN: u64 = 64 << 10;

impl Settings for Config {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Bytes of the window of an SSH channel.
            "window": self.window as Size [Range(WINDOW_MIN, u32::MAX as u64)],
            /// Time for which a server waits for a login.
            "grace": self.grace as Span [Interval],
            /// Mean time between two keystrokes.
            "key_interval": self.key_interval as Span [Interval],
            /// Whether programs have processing times.
            "costs": self.costs as AnyCosts,
        }
        Ok(())
    }
}

/// Form of [`Costs`] as a flag.
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

/// Processing times of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Start of a client.
    pub client: Duration,
    /// Creation of a server process for a connection.
    pub accept: Duration,
    /// Key generation of a client.
    pub keys: Duration,
    /// Reply and signature of a server.
    pub sign: Duration,
    /// Verification by a client.
    pub verify: Duration,
    /// Refusal of a login attempt without proof by a server.
    pub refuse: Duration,
    /// Login at a server.
    pub login: Duration,
    /// Start of the client's command through a shell by a server.
    pub start: Duration,
    /// Time between two writes.
    pub write: Duration,
}

impl Default for Costs {
    /// Times of OpenSSH 9.2 measured on two virtual cores, rounded.
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
    /// Programs without processing times.
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

/// Limits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of peers' connections.
    pub sessions: usize,
    /// Number of queued requests of the user.
    pub requests: usize,
    /// Bytes of a file read ahead.
    pub read_ahead: usize,
    /// Bytes per read.
    pub piece: usize,
    /// Bytes of a received file not written yet.
    pub write_buffer: usize,
    /// Bytes queued for the stream.
    pub write_ahead: usize,
    /// Bytes of a message, in addition to a channel's window.
    pub message: usize,
    /// Keystrokes in one session.
    pub keys: u64,
}

impl Default for Limits {
    /// 64 sessions, 1,024 requests, 1 MiB read ahead in pieces of 64 KiB, 1 MiB write buffer, 256
    /// KiB queued, messages of 512 KiB, a million keystrokes.
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
