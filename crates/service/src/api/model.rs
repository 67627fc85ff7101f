//! Data model of a node's interface.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A running node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Administrative endpoint.
    pub id: String,
    /// Process ID.
    pub pid: u32,
    /// Seconds since its start.
    pub seconds: f64,
    /// Whether it has loaded its store and accepts bundles.
    pub is_ready: bool,
    /// Whether bundles survive the end of the process.
    pub is_persistent: bool,
    /// Convergence layers.
    pub layers: Vec<Layer>,
    /// Reachable neighbours.
    pub neighbours: Vec<String>,
    /// Endpoints of applications.
    pub endpoints: Vec<String>,
    /// Counters.
    pub counts: Counts,
    /// Last failure of the store, or the bound that was reached.
    pub trouble: Option<String>,
}

/// A convergence layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name.
    pub name: String,
    /// Listening addresses.
    pub listening: Vec<SocketAddr>,
}

/// Counters since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bundles sent by applications.
    pub sourced: u64,
    /// Bundles received completely, including duplicates.
    pub received: u64,
    /// Duplicates among these.
    pub duplicates: u64,
    /// Bundles that came back from neighbours to which they were forwarded.
    #[serde(default)]
    pub returned: u64,
    /// Bundles refused.
    pub refused: u64,
    /// Input that was no bundle, or damaged.
    pub malformed: u64,
    /// Bundles accepted by neighbours.
    pub forwarded: u64,
    /// Bundles confirmed by applications.
    pub delivered: u64,
    /// Bundles expired.
    pub expired: u64,
    /// Bundles deleted for another reason.
    pub deleted: u64,
    /// Custody signals that were not believed.
    #[serde(default)]
    pub signals_ignored: u64,
    /// Failed attempts to forward.
    pub failed: u64,
    /// Bundles held.
    pub bundles: u64,
    /// Bytes of the held bundles.
    pub bytes: u64,
    /// Maximum number of bundles held.
    pub bundles_peak: u64,
    /// Maximum bytes held.
    pub bytes_peak: u64,
}

/// A held bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Source and creation timestamp: `ipn:1.1 848563200000.0`.
    pub id: String,
    /// Destination.
    pub destination: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Seconds since it arrived.
    pub here: f64,
    /// Seconds until it expires.
    pub left: f64,
    /// State: `storing`, `delivering`, `sending`, `queued` or `waiting`.
    pub state: String,
}

/// Parameters of a bundle to send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Destination endpoint.
    pub to: String,
    /// Source endpoint; default: the node's own.
    pub from: Option<String>,
    /// Lifetime in milliseconds; default: a day.
    pub lifetime_ms: Option<u64>,
    /// Priority: `bulk`, `normal` or `expedited`.
    pub priority: Option<String>,
    /// Version of the Bundle Protocol, 6 or 7; default: 7.
    pub version: Option<u8>,
    /// Whether custody is requested (version 6).
    #[serde(default)]
    pub custody: bool,
}

/// A bundle that was accepted and stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bundle ID.
    pub id: String,
}

/// Reference to a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Bundle ID.
    pub id: String,
}

/// Reference to a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// Bundle ID; the delivery is not confirmed if its number belongs to another bundle after a
    /// restart of the node.
    pub id: Option<String>,
}

/// Parameters of an application that receives bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// Endpoint: in full, or the number or name of its service.
    pub endpoint: String,
    /// Whether delivery counts as confirmation; otherwise each is confirmed by a request.
    #[serde(default)]
    pub confirm: bool,
}

/// Line before the payload of a delivered bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Number to confirm.
    pub delivery: u64,
    /// Bundle ID.
    pub id: String,
    /// Source endpoint.
    pub source: String,
    /// Version of the Bundle Protocol, 6 or 7.
    #[serde(default)]
    pub version: u8,
    /// Numbers, from 1 on, of the node's security rules whose operations the bundle passed.
    #[serde(default)]
    pub verified: Vec<u32>,
    /// Length in bytes of the payload, which follows the line.
    pub bytes: u64,
}

/// Parameters of a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingRequest {
    /// Echo endpoint.
    pub to: String,
    /// Number of pings.
    #[serde(default = "once")]
    pub count: u32,
    /// Interval in milliseconds.
    #[serde(default)]
    pub interval_ms: u64,
    /// Length of the payload in bytes, at least 16.
    #[serde(default)]
    pub bytes: usize,
    /// Timeout of a reply in milliseconds.
    #[serde(default = "patience")]
    pub timeout_ms: u64,
}

const fn once() -> u32 {
    1
}

const fn patience() -> u64 {
    10_000
}

/// Result of one ping: a line each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Number, from 0.
    pub number: u32,
    /// Round-trip time in microseconds; absent without a reply.
    pub rtt_us: Option<f64>,
}

/// Parameters of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Destination endpoint.
    pub to: String,
    /// Time to wait for reports, in milliseconds.
    #[serde(default = "patience")]
    pub timeout_ms: u64,
}

/// A node's status report of a bundle: a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Node that reports.
    pub from: String,
    /// Events: `received`, `forwarded`, `delivered`, `deleted`.
    pub what: Vec<String>,
    /// Reason.
    pub reason: String,
    /// Seconds since the bundle was sent.
    pub seconds: f64,
}
