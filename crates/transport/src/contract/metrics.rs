//! Counters that transports report to their users.

use bp::agent;
use serde::{Deserialize, Serialize};

/// Counters of a transport; `None` where it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Datagrams with content, sent and received.
    pub datagrams: Option<(u64, u64)>,
    /// Segments retransmitted or sent as parity to repair losses, and its requests for repairs.
    pub repairs: Option<(u64, u64)>,
    /// Bytes of files retransmitted, if everything counts as such that an earlier process began to
    /// send.
    pub repair_bytes: Option<u64>,
    /// Times for which the peers' receive windows and its send buffers blocked its connections.
    pub buffers: Option<BufferLimits>,
    /// Counters of its bundle node.
    pub bundles: Option<BundleMetrics>,
}

/// Times in seconds for which buffers, instead of the congestion window, stopped a sender of TCP,
/// summed over its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferLimits {
    /// The peer's receive window was full.
    pub peer_window_limited_s: f64,
    /// All data in the send buffer was sent, and the buffer was full.
    pub send_buffer_limited_s: f64,
}

impl BufferLimits {
    pub(crate) fn from_counts(counts: &tcp::Counts) -> Self {
        Self {
            peer_window_limited_s: counts.peer_window_limited.as_secs_f64(),
            send_buffer_limited_s: counts.send_buffer_limited.as_secs_f64(),
        }
    }

    /// Sum of both in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.peer_window_limited_s + self.send_buffer_limited_s
    }
}

/// Counters of a bundle node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleMetrics {
    /// Bundles created here.
    pub sourced: u64,
    /// Bundles received, duplicates included.
    pub received: u64,
    /// Duplicates among them.
    pub duplicates: u64,
    /// Bundles refused.
    pub refused: u64,
    /// Bundles accepted by a neighbour.
    pub forwarded: u64,
    /// Bundles accepted by their user.
    pub delivered: u64,
    /// Bundles that expired.
    pub expired: u64,
    /// Bundles deleted for another reason.
    pub deleted: u64,
    /// Failed attempts to forward.
    pub failed: u64,
    /// Bundles held at the end.
    pub held: u64,
    /// Maximum number of bundles held.
    pub held_peak: u64,
    /// Maximum number of bytes held.
    pub bytes_peak: u64,
}

impl BundleMetrics {
    pub(crate) fn new(statistics: &agent::Statistics) -> Self {
        Self {
            sourced: statistics.sourced,
            received: statistics.received,
            duplicates: statistics.duplicates,
            refused: statistics.refused,
            forwarded: statistics.forwarded,
            delivered: statistics.delivered,
            expired: statistics.expired,
            deleted: statistics.deleted,
            failed: statistics.failed,
            held: statistics.bundles as u64,
            held_peak: statistics.bundles_peak as u64,
            bytes_peak: statistics.bytes_peak,
        }
    }
}
