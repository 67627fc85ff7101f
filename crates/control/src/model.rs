//! Data model of the interface, as JSON.

use std::collections::BTreeMap;

use lab::metrics::TransferMetrics;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A running world.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct World {
    /// Name.
    pub name: String,
    /// Start, in seconds since 1970.
    pub began: f64,
    /// Seconds since then: the time base of the links' schedules.
    pub now: f64,
    /// Whether links run with a priority above all programs'.
    pub real_time: bool,
    /// Hosts.
    pub hosts: Vec<Host>,
    /// Links, one for each direction.
    pub links: Vec<Link>,
    /// Listening address for clients with the token; the Unix socket always exists.
    pub listen: Option<String>,
    /// Reasons why measurements are not valid; empty if they are.
    pub doubts: Vec<String>,
    /// Packets dropped because the memory for packets was full.
    pub no_memory: u64,
    /// Packets without a route, or not of IP.
    pub unreadable: u64,
}

/// A host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Name.
    pub name: String,
    /// IPv4 address.
    pub address: String,
    /// IPv6 address.
    pub address6: String,
    /// Descriptor of its network namespace in the emulator's process.
    pub descriptor: i32,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Name: `from:to`.
    pub name: String,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Whether it is up, or has an outage.
    pub up: bool,
    /// Settings: the keys of a link in a scenario, with all defaults.
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    /// Fate of packets.
    pub counters: Counters,
    /// Lateness of packets after their logical times.
    pub lateness: Lateness,
}

/// Fate of a link's packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Offered to the link.
    pub pushed: Count,
    /// Delivered, including damaged ones.
    pub delivered: Count,
    /// Delivered damaged.
    pub damaged: Count,
    /// Waiting or in flight.
    pub queued: Count,
    /// Lost, by cause.
    pub lost: BTreeMap<String, Count>,
    /// Packets waiting for the line.
    pub waiting: u64,
    /// Packets refused by the receiving host.
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

/// Lateness of packets, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lateness {
    /// Number of measured packets.
    pub packets: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub most_us: f64,
}

/// A future outage.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageRequest {
    /// Start, from now on: `"10 s"`; default: at once.
    #[serde(default = "at_once")]
    pub at: String,
    /// Duration: `"30 s"`.
    #[serde(rename = "for")]
    pub lasts: String,
}

fn at_once() -> String {
    "0 s".to_owned()
}

/// A packet capture on hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Absolute path of the folder for the files.
    pub folder: String,
    /// Hosts; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Size after which a new file is started; default: `"256 MiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<String>,
    /// Number of newest files kept per host; default: 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u16>,
}

/// State of the capture.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Capture {
    /// Request of the running capture; `null` if none runs.
    pub running: Option<CaptureRequest>,
}

/// Result of a capture.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CaptureReport {
    /// Remaining files, oldest first.
    pub files: Vec<String>,
    /// Packets written.
    pub packets: u64,
    /// Packets dropped because the disk was too slow.
    pub missed: u64,
}

/// A command to run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Host.
    pub host: String,
    /// Program and its arguments.
    pub argv: Vec<String>,
}

/// A command that was run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Command {
    /// Number.
    pub id: u64,
    /// Host.
    pub host: String,
    /// Program and its arguments.
    pub argv: Vec<String>,
    /// Whether it still runs.
    pub running: bool,
    /// Exit code; 128 plus the signal's number if a signal ended it.
    pub exit_code: Option<i32>,
    /// End of its output, at most 64 KiB.
    pub output: String,
    /// Bytes of output before that.
    pub output_before: u64,
    /// Start, in seconds of the world's time.
    pub began: f64,
    /// End.
    pub ended: Option<f64>,
}

/// A file transfer to start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Protocol, with its profile: `"cfdp"`, `"norm-fec"`; default: the protocol of the hosts in
    /// the world's scenario, or CFDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// External program in place of a protocol: the name of an adapter, or the absolute path of one
    /// that ends in `.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Absolute path of the file; default: generated content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Size of the generated content; default: `"10 MB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Time limit; default: `"10 min"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A requested transfer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Number.
    pub id: u64,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Protocol with its profile, or the tool.
    pub protocol: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// State.
    pub state: TransferState,
    /// Reason why it did not complete.
    pub why: Option<String>,
    /// Time of the request, in seconds of the world's time.
    pub began: f64,
    /// Time of its end.
    pub ended: Option<f64>,
    /// Whether the world's measurements were valid until it ended; `null` while it runs.
    pub trusted: Option<bool>,
    /// Reasons why they were not.
    pub doubts: Vec<String>,
    /// Metrics of the transfer, as in `emu run --json`.
    #[schema(value_type = Option<Object>)]
    pub result: Option<TransferMetrics>,
}

/// State of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// It is running.
    Running,
    /// The file has arrived and was compared, or the tool has finished its measurement.
    Completed,
    /// It failed, or exceeded its time limit.
    Failed,
    /// It was stopped.
    Stopped,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Time, in seconds of the world's time.
    pub at: f64,
    /// Type and details.
    #[serde(flatten)]
    pub what: What,
}

/// Type of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A link was changed.
    LinkChanged {
        /// Name of the link.
        link: String,
        /// Changed keys and their values.
        #[schema(value_type = Object)]
        settings: Map<String, Value>,
    },
    /// A link went down.
    OutageBegan {
        /// Name of the link.
        link: String,
    },
    /// A link came up.
    OutageEnded {
        /// Name of the link.
        link: String,
    },
    /// A capture started.
    CaptureStarted {
        /// Folder.
        folder: String,
    },
    /// The capture stopped.
    CaptureStopped {
        /// Packets written.
        packets: u64,
    },
    /// A command was started.
    CommandStarted {
        /// Number.
        id: u64,
        /// Host.
        host: String,
    },
    /// A command ended.
    CommandEnded {
        /// Number.
        id: u64,
        /// Host.
        host: String,
        /// Exit code.
        exit_code: i32,
    },
    /// A transfer was requested.
    TransferStarted {
        /// Number.
        id: u64,
        /// Sending host.
        from: String,
        /// Receiving host.
        to: String,
    },
    /// A transfer ended.
    TransferEnded {
        /// Number.
        id: u64,
        /// Sending host.
        from: String,
        /// Receiving host.
        to: String,
        /// Result.
        state: TransferState,
    },
    /// Measurements are not valid from now on, for example because the emulator was late.
    Doubt {
        /// Affected link, if any.
        link: Option<String>,
        /// Reason.
        reason: String,
    },
    /// Events were dropped because they were not read in time.
    Missed {
        /// Number of events.
        events: u64,
    },
}

impl What {
    /// Returns its name, as in JSON.
    #[must_use]
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["event"].as_str().unwrap_or_default().to_owned()
    }
}
