//! What goes over the interface, as JSON.

use std::collections::BTreeMap;

use lab::metrics::TransferMetrics;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A world that runs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct World {
    /// What it is called.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// Seconds since then: the time that schedules of links go by.
    pub now: f64,
    /// Whether links run with a priority above all programs'.
    pub real_time: bool,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// Its links, one for each direction.
    pub links: Vec<Link>,
    /// The address that it listens on for those who have the token; the Unix socket is always there.
    pub listen: Option<String>,
    /// Why what is measured in it is not to be trusted; nothing, if it is.
    pub doubts: Vec<String>,
    /// Packets that no link took, because the memory for packets was full.
    pub no_memory: u64,
    /// Packets that led nowhere, or were none of IP.
    pub unreadable: u64,
}

/// A host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// What it is called.
    pub name: String,
    /// Its IPv4 address.
    pub address: String,
    /// Its IPv6 address.
    pub address6: String,
    /// The number of the emulator's descriptor of its network namespace.
    pub descriptor: i32,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// What it is called: `from:to`.
    pub name: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Whether it carries packets now, or has an outage.
    pub up: bool,
    /// What it does to packets: the keys of a scenario's table of a link, with all defaults.
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    /// What became of packets.
    pub counters: Counters,
    /// How much later than their logical times packets were handed over.
    pub lateness: Lateness,
}

/// What became of a link's packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Offered to the link.
    pub pushed: Count,
    /// Arrived, those that were damaged, too.
    pub delivered: Count,
    /// Arrived damaged.
    pub damaged: Count,
    /// Waiting or on their way.
    pub queued: Count,
    /// Lost, by cause.
    pub lost: BTreeMap<String, Count>,
    /// Packets waiting for the line.
    pub waiting: u64,
    /// Packets that the receiving host would not take.
    pub refused: u64,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

/// How late packets were, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lateness {
    /// Packets that were measured.
    pub packets: u64,
    /// Half of them were not later.
    pub p50_us: f64,
    /// 99 of 100 were not later.
    pub p99_us: f64,
    /// The latest.
    pub most_us: f64,
}

/// An outage to come.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageRequest {
    /// When it begins, from now on: `"10 s"`; at once if left out.
    #[serde(default = "at_once")]
    pub at: String,
    /// How long it lasts: `"30 s"`.
    #[serde(rename = "for")]
    pub lasts: String,
}

fn at_once() -> String {
    "0 s".to_owned()
}

/// A capture of what hosts send and receive.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// The folder for the files, from the root on.
    pub folder: String,
    /// Which hosts; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// A new file is begun after so much, `"256 MiB"` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<String>,
    /// So many files a host are kept, the newest; 8 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u16>,
}

/// Whether there is a capture.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Capture {
    /// What was asked for; nothing where none runs.
    pub running: Option<CaptureRequest>,
}

/// What a capture held when it ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CaptureReport {
    /// The files that are left, oldest first.
    pub files: Vec<String>,
    /// Packets written.
    pub packets: u64,
    /// Packets that were left out because the disk was too slow.
    pub missed: u64,
}

/// A command to be run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// On which host.
    pub host: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// A command that was run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Command {
    /// Its number.
    pub id: u64,
    /// The host it runs on.
    pub host: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Whether it runs still.
    pub running: bool,
    /// What it ended with; 128 and the signal's number if one ended it.
    pub exit_code: Option<i32>,
    /// The end of what it wrote, at most 64 KiB.
    pub output: String,
    /// Bytes that it wrote before those.
    pub output_before: u64,
    /// When it began, in seconds of the world's time.
    pub began: f64,
    /// When it ended.
    pub ended: Option<f64>,
}

/// A file to be carried.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The host that has the file.
    pub from: String,
    /// The host that shall have it.
    pub to: String,
    /// The protocol, with its profile: `"cfdp"`, `"norm-fec"`; that of the hosts in the world's
    /// scenario, or CFDP, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// A program of others, in place of a protocol: the name of an adapter, or the path of one, from
    /// the root on, that ends in `.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The file, from the root on; one is made up if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How large the file is that is made up: `"10 MB"` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// How long it may take: `"10 min"` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A transfer that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Its number.
    pub id: u64,
    /// The host that has the file.
    pub from: String,
    /// The host that shall have it.
    pub to: String,
    /// The protocol with its profile, or the tool.
    pub protocol: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// How it stands.
    pub state: TransferState,
    /// Why it did not complete.
    pub why: Option<String>,
    /// When it was asked for, in seconds of the world's time.
    pub began: f64,
    /// When it ended.
    pub ended: Option<f64>,
    /// Whether nothing in its world, by the time it ended, says that what is measured there is not to
    /// be trusted; `null` while it runs.
    pub trusted: Option<bool>,
    /// What says so.
    pub doubts: Vec<String>,
    /// What is measured of a transfer, as `emu run --json` tells it.
    #[schema(value_type = Option<Object>)]
    pub result: Option<TransferMetrics>,
}

/// How a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// It is under way.
    Running,
    /// The file has arrived and was compared, or the tool has measured what it measures.
    Completed,
    /// It failed, or took too long.
    Failed,
    /// It was stopped.
    Stopped,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// When, in seconds of the world's time.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A link does something else from now on.
    LinkChanged {
        /// Which.
        link: String,
        /// The keys that changed, and what they are now.
        #[schema(value_type = Object)]
        settings: Map<String, Value>,
    },
    /// A link went down.
    OutageBegan {
        /// Which.
        link: String,
    },
    /// A link came up.
    OutageEnded {
        /// Which.
        link: String,
    },
    /// What hosts send and receive is written from now on.
    CaptureStarted {
        /// Where.
        folder: String,
    },
    /// It is not any more.
    CaptureStopped {
        /// Packets written.
        packets: u64,
    },
    /// A command was started.
    CommandStarted {
        /// Its number.
        id: u64,
        /// The host it runs on.
        host: String,
    },
    /// A command came to its end.
    CommandEnded {
        /// Its number.
        id: u64,
        /// The host it ran on.
        host: String,
        /// What it ended with.
        exit_code: i32,
    },
    /// A transfer was asked for.
    TransferStarted {
        /// Its number.
        id: u64,
        /// The host that has the file.
        from: String,
        /// The host that shall have it.
        to: String,
    },
    /// A transfer came to its end.
    TransferEnded {
        /// Its number.
        id: u64,
        /// The host that has the file.
        from: String,
        /// The host that should have it.
        to: String,
        /// How it ended.
        state: TransferState,
    },
    /// What is measured is not to be trusted from now on: the emulator was late, for one.
    Doubt {
        /// Of which link, if of one.
        link: Option<String>,
        /// Why not.
        reason: String,
    },
    /// So many events were not told, because they were not read in time.
    Missed {
        /// How many.
        events: u64,
    },
}

impl What {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::LinkChanged { .. } => "link-changed",
            Self::OutageBegan { .. } => "outage-began",
            Self::OutageEnded { .. } => "outage-ended",
            Self::CaptureStarted { .. } => "capture-started",
            Self::CaptureStopped { .. } => "capture-stopped",
            Self::CommandStarted { .. } => "command-started",
            Self::CommandEnded { .. } => "command-ended",
            Self::TransferStarted { .. } => "transfer-started",
            Self::TransferEnded { .. } => "transfer-ended",
            Self::Doubt { .. } => "doubt",
            Self::Missed { .. } => "missed",
        }
    }
}
