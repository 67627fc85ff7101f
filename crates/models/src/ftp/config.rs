//! Settings of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use session::settings;
use session::settings::form::{Flag, Leaf};
use session::settings::{Field, Kind, Setting, Settings, Value, Visited, Visitor};
use session::visit;
use session::words;

pub use crate::message::Representation;

/// Settings of a node: client for its user's requests, and server for its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Settings of the client.
    pub client: ClientConfig,
    /// Settings of the server.
    pub server: ServerConfig,
    /// Limits of the node.
    pub limits: Limits,
}

/// Settings of FTP, except the client's timeout, which other programs share, and the settings of
/// SCPS-FP.
impl Settings for Config {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Side that opens the data connection: `pasv`, `epsv` or `port`.
            "data": self.client.data as Word,
            /// Silence on a control connection after which a server closes it.
            "idle": self.server.idle as Span [Interval],
            /// Time for which a server waits for a data connection.
            "data_timeout": self.server.data_timeout as Span [Interval],
        }
        let doc = &[
            " Whether data connections may lead to, and come from, other hosts than control connections.",
        ];
        let field = Field { key: "third_party", doc, bound: None };
        visitor.value(&field, &mut ThirdParty(self))
    }
}

/// Third parties of client and server, as one setting.
struct ThirdParty<'a>(&'a mut Config);

impl Setting for ThirdParty<'_> {
    fn kind(&self) -> Kind {
        Flag::kind()
    }

    fn get(&self) -> Option<Value> {
        Flag::get(&self.0.server.third_party)
    }

    fn set(&mut self, value: Value) -> Result<(), String> {
        Flag::set(&mut self.0.server.third_party, value)?;
        self.0.client.third_party = self.0.server.third_party;
        Ok(())
    }
}

/// Settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// User name sent with USER.
    pub user: String,
    /// Password sent with PASS if required.
    pub password: String,
    /// Side that opens the data connection.
    pub data: DataConnection,
    /// Representation type of files.
    pub representation: Representation,
    /// Whether the data connection may lead to another host than the server, or come from one: the
    /// reply to PASV may name any (RFC 2577 §3). Otherwise the server's address replaces the named
    /// one, and connections from others are reset.
    pub third_party: bool,
    /// Silence after which the client stops waiting for a reply or the data connection.
    pub timeout: Duration,
    /// SCPS-FP extensions, if used.
    pub scps: Option<ScpsClient>,
}

settings! {
    /// Settings of a client with a server that supports SCPS-FP (CCSDS 717.0-B-1).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScpsClient {
        /// Whether an interrupted transfer resumes (ARST).
        pub auto_restart: bool as Flag = true,
        /// Maximum number of resumptions.
        pub restarts: u32 as Number = 99,
        /// Time before it resumes.
        pub restart_wait: Duration as Span [Interval] = Duration::from_secs(5),
        /// Whether the server omits the texts of its replies (SUPP).
        pub suppress: bool = false,
        /// Whether data connections continue without lost bytes (BETS), if driver and server
        /// support it. Zeros replace the lost bytes, and users get an indication.
        pub best_effort: bool = false,
        /// Whether the CRC of a sent file is compared with the server's (SITE crc).
        pub verify: bool as Flag = false,
    }
}

impl Default for ClientConfig {
    /// Anonymous, PASV, no third party, binary files, ten minutes.
    fn default() -> Self {
        Self {
            user: "anonymous".to_owned(),
            password: "slowlight@".to_owned(),
            data: DataConnection::Pasv,
            third_party: false,
            representation: Representation::Image,
            timeout: Duration::from_secs(600),
            scps: None,
        }
    }
}

/// Side that opens the data connection, and the command for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataConnection {
    /// Client, to the address in PASV's reply (RFC 959 §4.1.2, RFC 1123 §4.1.2.6).
    Pasv,
    /// Client, to the server's address with the port in EPSV's reply (RFC 2428 §3).
    Epsv,
    /// Server, to the address in PORT, or EPRT if it is not IPv4.
    Port,
}

words!(DataConnection { "pasv" = Self::Pasv, "epsv" = Self::Epsv, "port" = Self::Port });

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Whether it accepts clients.
    pub enabled: bool,
    /// Permitted users.
    pub accounts: Accounts,
    /// Maximum silence of a control connection (RFC 1123 §4.1.3.2: at least five minutes).
    pub idle: Duration,
    /// Maximum wait for a data connection.
    pub data_timeout: Duration,
    /// Whether PORT may name a host other than the client, and other hosts may connect after PASV
    /// or EPSV. Transfers between two servers need it. It also allows anyone to send data to
    /// arbitrary hosts, and to take another client's file (RFC 2577 §§3 and 6).
    pub third_party: bool,
    /// Whether it supports the commands of SCPS-FP (CCSDS 717.0-B-1).
    pub scps: bool,
}

impl Default for ServerConfig {
    /// Any user, fifteen minutes, two minutes, no third party.
    fn default() -> Self {
        Self {
            enabled: true,
            accounts: Accounts::Anybody,
            idle: Duration::from_secs(900),
            data_timeout: Duration::from_secs(120),
            third_party: false,
            scps: false,
        }
    }
}

/// Permitted users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// Any name with any password.
    Anybody,
    /// These names, each with its password.
    Named(BTreeMap<String, String>),
}

/// Limits of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of peers' control connections.
    pub sessions: usize,
    /// Number of queued requests of the user.
    pub requests: usize,
    /// Bytes of a file read ahead.
    pub read_ahead: usize,
    /// Bytes of a received file not written yet; beyond that, reading is paused.
    pub write_buffer: usize,
    /// Bytes per read.
    pub piece: usize,
    /// Number of queued commands of a peer.
    pub commands: usize,
    /// Bytes of a file for COPY, READ and UPDT.
    pub edit: usize,
}

impl Default for Limits {
    /// 64 sessions, 1,024 requests, 512 KiB read ahead, 1 MiB write buffer, 64 KiB per read, 32
    /// commands, 64 MiB to be edited.
    fn default() -> Self {
        Self {
            sessions: 64,
            requests: 1024,
            read_ahead: 512 << 10,
            write_buffer: 1 << 20,
            piece: 64 << 10,
            commands: 32,
            edit: 64 << 20,
        }
    }
}
