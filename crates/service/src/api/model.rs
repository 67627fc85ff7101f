//! Data model of a node's interface.

use std::net::SocketAddr;

use bp::codec::bp7::BundleFlags;
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
    /// Traffic with each neighbour that is reachable, or for which bundles are queued.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// Neighbours that were discovered.
    #[serde(default)]
    pub discovered: Vec<Discovered>,
    /// Counters of their beacons.
    #[serde(default)]
    pub beacons: Beacons,
    /// Bundles without a route.
    #[serde(default)]
    pub unrouted: u64,
    /// Seconds since the oldest bundle arrived, if there is one.
    #[serde(default)]
    pub oldest: Option<f64>,
    /// Endpoints of applications.
    pub endpoints: Vec<String>,
    /// Counters.
    pub counts: Counts,
    /// Failure of the store, or bound that is reached, until its cause has gone.
    pub trouble: Option<String>,
}

/// Traffic with a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Neighbour.
    pub node: String,
    /// Links that are up.
    pub links: u64,
    /// Bundles queued for it.
    pub queued: u64,
    /// Bundles in transit to it.
    pub sending: u64,
    /// Bytes in transit to it.
    pub sending_bytes: u64,
}

/// A neighbour that was discovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovered {
    /// Node ID that it announces, without proof.
    pub node: String,
    /// Address to which this node connects.
    pub address: SocketAddr,
    /// Interface on which its beacons arrive.
    pub interface: String,
    /// Layer over which it is reached.
    pub layer: String,
}

/// Counters of beacons since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacons {
    /// Beacons sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that were no beacons.
    pub malformed: u64,
    /// Beacons without effect: of configured neighbours, from other networks, beyond a bound.
    pub ignored: u64,
}

/// Reply to a request to read the settings again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Changed settings that only a restart of the node applies.
    pub restart: Vec<String>,
}

/// Reply to commands that change the contact plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChanged {
    /// Number of changes that were made.
    pub applied: usize,
    /// Commands that change nothing: the first 1,000.
    pub skipped: Vec<SkippedLine>,
    /// Number of the others.
    #[serde(default)]
    pub more: usize,
}

/// A command that changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedLine {
    /// Number of its line, from 1.
    pub line: usize,
    /// Reason.
    pub why: String,
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
    /// Bundles among these that violated a security rule.
    #[serde(default)]
    pub insecure: u64,
    /// Custody signals that were not believed.
    #[serde(default)]
    pub signals_ignored: u64,
    /// Bundles retransmitted because no custody signal came.
    #[serde(default)]
    pub resent: u64,
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
    /// Number in the store, in order of arrival; `after` continues a list behind it.
    #[serde(default)]
    pub number: u64,
    /// Source and creation timestamp: `ipn:1.1 848563200000.0`.
    pub id: String,
    /// Source.
    #[serde(default)]
    pub source: String,
    /// Destination.
    pub destination: String,
    /// Neighbours in whose queues it is, or to which it is being sent.
    #[serde(default)]
    pub next_hops: Vec<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Seconds since it arrived.
    pub here: f64,
    /// Seconds until it expires.
    pub left: f64,
    /// State: `storing`, `delivering`, `sending`, `queued` or `waiting`.
    pub state: String,
    /// Priority: `bulk`, `normal` or `expedited`.
    #[serde(default)]
    pub priority: String,
    /// Whether the node has custody of it.
    #[serde(default)]
    pub custody: bool,
    /// Most bytes of its payload that a neighbour without the complete bundle has.
    #[serde(default)]
    pub sent: u64,
    /// Seconds until the next contact of the plan with one of its next hops, 0 during one.
    #[serde(default)]
    pub next_contact: Option<f64>,
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
    /// Endpoint that gets status reports; default: the node's own.
    pub report_to: Option<String>,
    /// Requested status reports, separated by commas: `received`, `forwarded`, `delivered`,
    /// `deleted`.
    pub reports: Option<String>,
    /// Whether reports have times.
    #[serde(default)]
    pub report_times: bool,
    /// Whether the bundle must not be fragmented; always true for the source `dtn:none`.
    #[serde(default)]
    pub must_not_fragment: bool,
    /// Hop limit; default: the node's. Version 7 only.
    pub hop_limit: Option<u8>,
    /// Key of the request: a repeated request with the same key sends no second bundle.
    pub key: Option<String>,
    /// Length of the payload in bytes, in a stream of bundles.
    pub bytes: Option<u64>,
    /// Version of the Bundle Protocol, 6 or 7; default: 7.
    pub version: Option<u8>,
    /// Whether custody is requested (version 6).
    #[serde(default)]
    pub custody: bool,
}

/// Requests for reports by their names.
pub(super) const REPORTS: [(BundleFlags, &str); 4] = [
    (BundleFlags::REPORT_RECEPTION, "received"),
    (BundleFlags::REPORT_FORWARDING, "forwarded"),
    (BundleFlags::REPORT_DELIVERY, "delivered"),
    (BundleFlags::REPORT_DELETION, "deleted"),
];

/// Parses names of requested reports, separated by commas.
///
/// # Errors
///
/// There is no such report.
pub fn report_flags(names: &str) -> Result<BundleFlags, String> {
    names.split(',').try_fold(BundleFlags::default(), |flags, name| {
        let known = REPORTS.iter().find(|(_, known)| *known == name.trim());
        let (flag, _) = known.ok_or_else(|| {
            let known = REPORTS.map(|(_, known)| known).join(", ");
            format!("reports: {:?} is none of {known}", name.trim())
        })?;
        Ok(flags.with(*flag))
    })
}

/// Options of a stream of bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendStream {
    /// Whether the order is kept: if there is no room for a bundle, all behind it are refused with
    /// status 503.
    #[serde(default)]
    pub ordered: bool,
}

/// A bundle that was accepted and stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bundle ID.
    pub id: String,
}

/// Result of a bundle in a stream of bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSent {
    /// Number of the bundle in the stream, from 0.
    pub number: u64,
    /// Bundle ID, if it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Status of a refusal, as of a request by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Selection of bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Bundle ID.
    pub id: Option<String>,
    /// Source: a node, an endpoint or `*`.
    pub source: Option<String>,
    /// Destination: a node, an endpoint or `*`.
    pub destination: Option<String>,
    /// State.
    pub state: Option<String>,
    /// Only bundles behind the one with this number.
    pub after: Option<u64>,
    /// Maximum number of bundles; default: 10,000.
    pub limit: Option<usize>,
}

/// Result of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Number of deleted bundles.
    pub deleted: u64,
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
    /// Whether other applications may receive at the same endpoint.
    #[serde(default)]
    pub share: Share,
}

/// Use of an endpoint by several applications at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// None: the endpoint has one application.
    #[default]
    No,
    /// Each bundle goes to one of them, to the one with the fewest unconfirmed bundles.
    Turns,
    /// Each bundle goes to all of them.
    Copies,
}

/// Line before the payload of a delivered bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Destination endpoint.
    #[serde(default)]
    pub destination: String,
    /// Lifetime that the source gave it, in milliseconds.
    #[serde(default)]
    pub lifetime_ms: u64,
    /// Age in milliseconds.
    #[serde(default)]
    pub age_ms: u64,
    /// Hop limit and hop count, if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<Hops>,
    /// Length in bytes of the payload, which follows the line.
    pub bytes: u64,
}

/// Hops of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hops {
    /// Hop limit.
    pub limit: u64,
    /// Hop count.
    pub count: u64,
}

/// Parameters of a reader of status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportsRequest {
    /// Source of the bundles: an endpoint of this node, or its service.
    pub source: Option<String>,
    /// Bundle ID.
    pub id: Option<String>,
    /// Whether later reports follow.
    #[serde(default)]
    pub follow: bool,
}

/// A status report of a bundle that an application sent: a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// Bundle ID.
    pub id: String,
    /// Node that reports.
    pub from: String,
    /// Events: `received`, `forwarded`, `delivered`, `deleted`.
    pub what: Vec<String>,
    /// Reason.
    pub reason: String,
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
    /// Timeout of a reply in milliseconds; default: 10 s, or three times the time to the
    /// destination by the contact plan.
    pub timeout_ms: Option<u64>,
}

const fn once() -> u32 {
    1
}

/// Result of one ping: a line each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Number, from 0.
    pub number: u32,
    /// Round-trip time in microseconds; absent without a reply.
    pub rtt_us: Option<f64>,
    /// Timeout in milliseconds.
    #[serde(default)]
    pub timeout_ms: u64,
}

/// Parameters of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Destination endpoint.
    pub to: String,
    /// Time to wait for reports, in milliseconds; default as for a ping.
    pub timeout_ms: Option<u64>,
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
