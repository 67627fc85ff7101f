//! What the interface of a node speaks.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A node that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its administrative endpoint.
    pub id: String,
    /// The number of its process.
    pub pid: u32,
    /// Seconds since it began.
    pub seconds: f64,
    /// Whether it has read its store and takes bundles.
    pub is_ready: bool,
    /// Whether bundles survive the end of the process.
    pub is_persistent: bool,
    /// Its convergence layers.
    pub layers: Vec<Layer>,
    /// Neighbours that can be reached now.
    pub neighbours: Vec<String>,
    /// Endpoints that applications have.
    pub endpoints: Vec<String>,
    /// What was counted.
    pub counts: Counts,
    /// What the store said when it failed last, or which bound was reached.
    pub trouble: Option<String>,
}

/// A convergence layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
}

/// What was counted since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bundles that applications handed in.
    pub sourced: u64,
    /// Bundles that came whole, those included that were here before.
    pub received: u64,
    /// Of these, those that had been here.
    pub duplicates: u64,
    /// Bundles that were refused.
    pub refused: u64,
    /// What came and was no bundle, or damaged.
    pub malformed: u64,
    /// Bundles that neighbours took.
    pub forwarded: u64,
    /// Bundles that applications confirmed.
    pub delivered: u64,
    /// Bundles that expired.
    pub expired: u64,
    /// Bundles that were deleted for another reason.
    pub deleted: u64,
    /// Attempts to forward that failed.
    pub failed: u64,
    /// Bundles that are held.
    pub bundles: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// The most bundles that were held.
    pub bundles_peak: u64,
    /// The most bytes that were held.
    pub bytes_peak: u64,
}

/// A bundle that is held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Its source, and when it was made: `ipn:1.1 848563200000.0`.
    pub id: String,
    /// For whom it is.
    pub destination: String,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Seconds that it has been here.
    pub here: f64,
    /// Seconds until it expires.
    pub left: f64,
    /// What it waits for: `storing`, `delivering`, `sending`, `queued` or `waiting`.
    pub state: String,
}

/// What is wanted of a bundle that is handed in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The endpoint for which it is.
    pub to: String,
    /// The endpoint from which it comes; the node's own if it is not said.
    pub from: Option<String>,
    /// Milliseconds that it is of use; a day if it is not said.
    pub lifetime_ms: Option<u64>,
    /// `bulk`, `normal` or `expedited`.
    pub priority: Option<String>,
    /// The version of the Bundle Protocol, 6 or 7; 7 if it is not said.
    pub version: Option<u8>,
    /// Whether custody is asked for, which version 6 has.
    #[serde(default)]
    pub custody: bool,
}

/// A bundle that was handed in and is safe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// What it is called.
    pub id: String,
}

/// Which bundle is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// As it is called.
    pub id: String,
}

/// Which delivery is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// What the bundle is called; another one, which has its number since the node began anew, is not confirmed.
    pub id: Option<String>,
}

/// Which bundles an application takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// The endpoint: whole, or the number or name of its service.
    pub endpoint: String,
    /// Whether handing them over confirms them; otherwise each is confirmed by itself.
    #[serde(default)]
    pub confirm: bool,
}

/// What stands before the payload of a bundle that is handed over, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// What confirms it.
    pub delivery: u64,
    /// What it is called.
    pub id: String,
    /// From whom it is.
    pub source: String,
    /// Bytes of the payload, which follow the line.
    pub bytes: u64,
}

/// What a ping asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingRequest {
    /// The endpoint that sends back what comes.
    pub to: String,
    /// How often.
    #[serde(default = "once")]
    pub count: u32,
    /// Milliseconds from one to the next.
    #[serde(default)]
    pub interval_ms: u64,
    /// Bytes of the payload, 16 at least.
    #[serde(default)]
    pub bytes: usize,
    /// Milliseconds that an answer is waited for.
    #[serde(default = "patience")]
    pub timeout_ms: u64,
}

const fn once() -> u32 {
    1
}

const fn patience() -> u64 {
    10_000
}

/// What became of one ping: a line each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Which, from 0.
    pub number: u32,
    /// Microseconds until the answer; none came if there is none.
    pub rtt_us: Option<f64>,
}

/// Where a bundle is to be followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The endpoint for which it is.
    pub to: String,
    /// Milliseconds that reports are waited for.
    #[serde(default = "patience")]
    pub timeout_ms: u64,
}

/// What a node says of a bundle: a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who says it.
    pub from: String,
    /// `received`, `forwarded`, `delivered`, `deleted`.
    pub what: Vec<String>,
    /// Why.
    pub reason: String,
    /// Seconds since the bundle was sent.
    pub seconds: f64,
}
