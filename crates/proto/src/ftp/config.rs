//! What a node is told to be.

use std::collections::BTreeMap;
use std::time::Duration;

pub use wire::ftp::Representation;

use crate::settings::form::{Flag, Leaf};
use crate::settings::{Field, Kind, Setting, Settings, Value, Visited, Visitor};
use crate::{settings, visit, words};

/// A node: a client of the peers that it is asked to talk to, and a server to those who come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What it does as a client.
    pub client: ClientConfig,
    /// What it does as a server.
    pub server: ServerConfig,
    /// What it may hold.
    pub limits: Limits,
}

/// Settings of FTP but the client's time-out, which other programs have, too, and SCPS-FP's.
impl Settings for Config {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Side that opens the data connection: `pasv`, `epsv` or `port`.
            "data": self.client.data as Word,
            /// Silence on a control connection after which a server closes it.
            "idle": self.server.idle as Span [Interval],
            /// Time that a server waits for a data connection.
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

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Sent with USER.
    pub user: String,
    /// Sent with PASS if the server wants one.
    pub password: String,
    /// Who opens the data connection.
    pub data: DataConnection,
    /// How files stand on the data connection.
    pub representation: Representation,
    /// Whether the data connection may lead to, or come from, another host than the server: the reply
    /// to PASV may name any (RFC 2577 §3). Otherwise the server's address is taken in its place, and
    /// whoever else comes is reset.
    pub third_party: bool,
    /// How long it waits for a reply, or for the data connection, while nothing comes.
    pub timeout: Duration,
    /// What it does beyond FTP.
    pub scps: Option<ScpsClient>,
}

settings! {
    /// Settings of a client beyond FTP, with a server that has SCPS-FP (CCSDS 717.0-B-1).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScpsClient {
        /// Whether a transfer that broke off resumes (ARST).
        pub auto_restart: bool as Flag = true,
        /// Times that it resumes.
        pub restarts: u32 as Number = 99,
        /// Time before it resumes.
        pub restart_wait: Duration as Span [Interval] = Duration::from_secs(5),
        /// Whether the server leaves out the texts of its replies (SUPP).
        pub suppress: bool = false,
        /// Whether data connections continue without bytes that are lost (BETS), where the driver and
        /// the server have that. Zeros stand in their place, and users get an indication.
        pub best_effort: bool = false,
        /// Whether the CRC of a file that was sent is compared with the server's (SITE crc).
        pub verify: bool as Flag = false,
    }
}

impl Default for ClientConfig {
    /// Anonymous, PASV, no third party, files as they are, ten minutes.
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

/// Who opens the data connection, and how the other one is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataConnection {
    /// The client, where PASV's reply says (RFC 959 §4.1.2, RFC 1123 §4.1.2.6).
    Pasv,
    /// The client, at the server's address with the port of EPSV's reply (RFC 2428 §3).
    Epsv,
    /// The server, where PORT says, or EPRT if the address is none of IPv4.
    Port,
}

words!(DataConnection { "pasv" = Self::Pasv, "epsv" = Self::Epsv, "port" = Self::Port });

/// How a server behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Whether it answers those who come.
    pub enabled: bool,
    /// Who may come.
    pub accounts: Accounts,
    /// How long a control connection may be silent (RFC 1123 §4.1.3.2: five minutes at least).
    pub idle: Duration,
    /// How long it waits for a data connection.
    pub data_timeout: Duration,
    /// Whether PORT may name a host other than the client, and one may come to the data connection
    /// that PASV or EPSV awaits. Transfers between two servers need it; it also lets anybody send what
    /// he likes to whom he likes, and take a file that is another's (RFC 2577 §§3 and 6).
    pub third_party: bool,
    /// Whether it knows the commands of SCPS-FP (CCSDS 717.0-B-1).
    pub scps: bool,
}

impl Default for ServerConfig {
    /// Anybody, fifteen minutes, two minutes, no third party.
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

/// Who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// Any name with any password.
    Anybody,
    /// These names, each with its password.
    Named(BTreeMap<String, String>),
}

/// What a node may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Control connections of others.
    pub sessions: usize,
    /// Requests of the user that wait.
    pub requests: usize,
    /// Bytes of a file that are read before they can be sent.
    pub read_ahead: usize,
    /// Bytes of a file that arrived and are not written yet; beyond, reading is paused.
    pub write_buffer: usize,
    /// Bytes of one read.
    pub piece: usize,
    /// Commands of a peer that wait until one before is done.
    pub commands: usize,
    /// Bytes of a file that COPY, READ and UPDT take.
    pub edit: usize,
}

impl Default for Limits {
    /// 64 sessions, 1,024 requests, 512 KiB ahead, 1 MiB to be written, 64 KiB a read, 32 commands, 64 MiB
    /// to be edited.
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
