//! Metrics of a run.
//!
//! Times of a transfer start at its request: **delivered** (the receiver has the whole file),
//! **confirmed** (the sender received the confirmation) and **quiet** (the last packet of the
//! exchange). An outage at the start counts. Only **wire** is from packet to packet: the first to
//! the last at the receiver. Packets are counted by host, so packet counts are omitted in a world
//! with several transfers. `docs/metrics.md` describes all metrics.

use engine::Time;
use link::LossCause;
use models::programs::Latency;
use serde::{Deserialize, Serialize};
use sim::HostStats;
use transport::Ended;
use transport::contract::BufferLimits;

use crate::adapter::Verdict;
use crate::bound::{self, Hop};
use crate::link_spec::LinkSpec;
use crate::scenario::Transfer;

/// Metrics of one transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferMetrics {
    /// Sender.
    pub from: String,
    /// Receiver, or the group of receivers.
    pub to: String,
    /// Protocol with its profile, or the tool.
    pub protocol: String,
    /// Verdict of a transfer by a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Name of the file at the receiver.
    pub name: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Whether the file arrived whole and both ends learned the outcome.
    pub completed: bool,
    /// Whether the received file equals the sent one, byte by byte.
    pub verified: bool,
    /// Whether an end reported success without a complete file.
    pub wrong_success: bool,
    /// Reason why the transfer did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Seconds until the receiver had the whole file.
    pub delivered_s: Option<f64>,
    /// Seconds until the sender received the confirmation of delivery.
    pub confirmed_s: Option<f64>,
    /// Seconds until a server and its client were ready for the file: connections and login. `None`
    /// for protocols without such a moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
    /// Seconds from `ready_s` until the client received the confirmation of the end, as FTP clients
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_s: Option<f64>,
    /// Keystroke latency, if keys were typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyMetrics>,
    /// Seconds until the last packet. This and all other packet metrics are `None` if other
    /// transfers share the world.
    pub quiet_s: Option<f64>,
    /// Seconds from the first to the last packet at the receiver.
    pub wire_s: Option<f64>,
    /// 8 × file bytes / delivered.
    pub goodput_bps: Option<f64>,
    /// 8 × file bytes / (wire + round trip).
    pub goodput_grc_bps: Option<f64>,
    /// Minimum time to delivery on this route; `None` if the route never carries the file.
    pub bound_s: Option<f64>,
    /// Assumptions and capacity of the bound.
    #[serde(flatten)]
    pub least: Least,
    /// Bound / delivered. A mean if the bound is one.
    pub efficiency: Option<f64>,
    /// Link bytes / file bytes: the capacity that the transfer took.
    pub spent: Option<f64>,
    /// Traffic of the transfer; packet counts are `None` if other transfers share the world.
    #[serde(flatten)]
    pub traffic: Traffic<Option<u64>, u64>,
    /// Metrics of each receiver of a group. The metrics above then cover all receivers: the file is
    /// delivered when the last of them has it, and their packets are summed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ReceiverMetrics>,
}

/// The transfer whose time is the bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Least {
    /// Whether the bound is a mean over many runs, because losses are random. A lucky run may be
    /// faster.
    pub bound_is_mean: bool,
    /// Payload of the bound's packets in bytes.
    pub bound_payload: u64,
    /// Minimum of `spent` on average; `None` where there is no closed form, or with several
    /// receivers.
    pub bound_spent: Option<f64>,
}

/// Traffic of a transfer: counts of one run, or means of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic<Count, Repairs> {
    /// Bits accepted by the first link, frames included, / quiet.
    pub throughput_bps: Option<f64>,
    /// Packets sent by the sender.
    pub packets_str: Count,
    /// Packets sent by the receiver.
    pub packets_rts: Count,
    /// Bytes of IP packets sent by the sender.
    pub bytes_str: Count,
    /// Bytes of IP packets sent by the receiver.
    pub bytes_rts: Count,
    /// Bytes of frames, parity of erasure codes included, on the link to the receivers that carried
    /// most.
    pub link_bytes: Count,
    /// Repair segments sent by the sender, including parity, since its last start; `None` if they
    /// are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_str: Option<Repairs>,
    /// Repair requests of the receiver since its last start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nacks_rts: Option<Repairs>,
    /// Times for which full buffers stopped the sender; `None` if they are not counted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<BufferLimits>,
}

/// Keystroke latency: time until an echo.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyMetrics {
    /// Number of keystrokes.
    pub count: u64,
    /// Minimum in seconds.
    pub min_s: f64,
    /// Median in seconds.
    pub median_s: f64,
    /// 95th percentile in seconds.
    pub p95_s: f64,
    /// 99th percentile in seconds.
    pub p99_s: f64,
    /// Maximum in seconds.
    pub max_s: f64,
}

impl From<Latency> for LatencyMetrics {
    fn from(latency: Latency) -> Self {
        Self {
            count: latency.count,
            min_s: latency.min.as_secs_f64(),
            median_s: latency.median.as_secs_f64(),
            p95_s: latency.p95.as_secs_f64(),
            p99_s: latency.p99.as_secs_f64(),
            max_s: latency.max.as_secs_f64(),
        }
    }
}

/// Metrics of a transfer at one of several receivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverMetrics {
    /// Name of the receiver.
    pub node: String,
    /// Whether the receiver's file equals the sent one, byte by byte.
    pub verified: bool,
    /// Seconds until the receiver had the whole file.
    pub delivered_s: Option<f64>,
    /// Packets sent by the receiver.
    pub packets_rts: Option<u64>,
    /// Bytes of IP packets sent by the receiver.
    pub bytes_rts: Option<u64>,
}

/// Metrics of one link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkMetrics {
    /// Sending node.
    pub from: String,
    /// Receiving node.
    pub to: String,
    /// Packets offered.
    pub pushed: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets delivered damaged, part of `delivered`.
    pub damaged: u64,
    /// Packets still in the link when the run ended.
    pub queued: u64,
    /// Packets recovered by the link's erasure code, part of `delivered`.
    #[serde(skip_serializing_if = "is_zero")]
    pub recovered: u64,
    /// Parity frames of the link's erasure code.
    #[serde(skip_serializing_if = "is_zero")]
    pub parity: u64,
    /// Packets lost, by cause.
    pub lost: std::collections::BTreeMap<&'static str, u64>,
}

impl LinkMetrics {
    pub(crate) fn new(spec: &LinkSpec, stats: &link::Stats) -> Self {
        let (from, to) = spec.ends();
        Self {
            from,
            to,
            pushed: stats.pushed.packets,
            delivered: stats.delivered.packets,
            damaged: stats.damaged.packets,
            queued: stats.queued.packets,
            recovered: stats.recovered.packets,
            parity: stats.parity.packets,
            lost: LossCause::ALL
                .into_iter()
                .map(|cause| (cause.name(), stats.lost(cause).packets))
                .filter(|(_, packets)| *packets > 0)
                .collect(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Observations of one transfer.
pub(crate) struct Watch<'a> {
    /// Whether the transfer was the world's only one.
    pub(crate) alone: bool,
    /// Whether losses are repaired, and the sender is informed of the end.
    pub(crate) reliable: bool,
    pub(crate) start: Time,
    pub(crate) file_bytes: u64,
    /// Sender's reply to the request; `None` if it was never made.
    pub(crate) answer: Option<Result<(), String>>,
    /// Number of requests: one per receiver, or one for a group.
    pub(crate) requests: usize,
    /// Time when the file was ready to cross.
    pub(crate) started: Option<Time>,
    /// Whether the receiver requested it.
    pub(crate) is_fetched: bool,
    /// Whether the whole file crosses, as the bound assumes.
    pub(crate) is_whole: bool,
    pub(crate) latency: Option<Latency>,
    pub(crate) at_sender: Vec<(Time, Ended)>,
    pub(crate) sender: HostStats,
    /// Repair segments that it sent.
    pub(crate) repairs: Option<u64>,
    /// Times for which full buffers stopped it.
    pub(crate) buffers: Option<BufferLimits>,
    /// At least one.
    pub(crate) receivers: Vec<ReceiverWatch>,
    pub(crate) first_link: Option<(&'a LinkSpec, link::Stats)>,
    /// Bytes of frames on the link to the receivers that carried most.
    pub(crate) link_bytes: u64,
}

/// Observations of a transfer at one receiver.
pub(crate) struct ReceiverWatch {
    /// Whether an interrupted transfer resumes under the same name.
    pub(crate) restarts: bool,
    pub(crate) verified: bool,
    pub(crate) ends: Vec<(Time, Ended)>,
    pub(crate) stats: HostStats,
    /// Number of its repair requests.
    pub(crate) nacks: Option<u64>,
    /// Round-trip light time in seconds.
    pub(crate) rtt: f64,
    pub(crate) hops: Vec<Hop>,
    pub(crate) first_link: Option<usize>,
}

impl ReceiverWatch {
    /// Last time it claimed to have the file, since an interrupted file may look whole.
    fn claimed(&self) -> Option<Time> {
        let mut claims = self.ends.iter().filter(|(_, end)| end.is_success()).map(|(at, _)| *at);
        if self.restarts { claims.next_back() } else { claims.next() }
    }

    /// Time when it had the file.
    fn delivered(&self) -> Option<Time> {
        self.claimed().filter(|_| self.verified)
    }
}

impl Watch<'_> {
    pub(crate) fn metrics(mut self, transfer: &Transfer, seed: u64) -> TransferMetrics {
        let protocol = transfer.protocol.as_ref();
        let verified = self.receivers.iter().all(|receiver| receiver.verified);
        let delivered: Option<Vec<_>> =
            self.receivers.iter().map(ReceiverWatch::delivered).collect();
        let delivered_at = delivered.and_then(|times| times.into_iter().max());
        // A sender may end successfully without a confirmation of delivery.
        let ended = |knows: bool| {
            let mut ends = self.at_sender.iter().filter(|(_, end)| {
                end.is_success() && self.reliable && (end.is_confirmed || !knows)
            });
            ends.nth(self.requests.max(1) - 1).map(|(at, _)| *at)
        };
        let (ended_at, confirmed_at) = (ended(false), ended(true));
        let wrong = |receiver: &ReceiverWatch| receiver.claimed().is_some() && !receiver.verified;
        let wrong_success =
            self.receivers.iter().any(wrong) || (confirmed_at.is_some() && !verified);
        let completed = delivered_at.is_some() && (ended_at.is_some() || !self.reliable);
        let since = |at: Time| at.since(self.start).as_secs_f64();
        let delivered_s = delivered_at.map(since);
        let quiet_s = self.last().map(since).filter(|_| self.alone);
        let wire_s = self.wire_s().filter(|_| self.alone);
        let rtt = self.receivers.iter().map(|receiver| receiver.rtt).fold(0.0, f64::max);
        let bits = 8.0 * self.file_bytes as f64;
        let rate = |seconds: f64| (seconds > 0.0).then_some(bits / seconds);
        let receivers = self.each(transfer);
        let ways: Vec<_> = self.receivers.iter_mut().map(|r| std::mem::take(&mut r.hops)).collect();
        let bound = bound::bound_of_all(&ways, self.file_bytes, self.start, seed);
        let bound_s = (self.is_whole && bound.seconds.is_finite()).then_some(bound.seconds);
        let share = |(bound, delivered): (f64, f64)| (delivered > 0.0).then_some(bound / delivered);
        let traffic = self.traffic(quiet_s);
        let spent = |bytes: u64| {
            (self.is_whole && self.file_bytes > 0).then(|| bytes as f64 / self.file_bytes as f64)
        };
        let least = self.least(&ways, bound.payload);
        TransferMetrics {
            from: transfer.from.clone(),
            to: transfer.group.clone().unwrap_or_else(|| transfer.to.to_string()),
            protocol: protocol.map(ToString::to_string).unwrap_or_default(),
            verdict: None,
            name: transfer.name.clone().unwrap_or_default(),
            file_bytes: self.file_bytes,
            completed,
            verified,
            wrong_success,
            failure: (!completed).then(|| self.failure(transfer)),
            delivered_s,
            confirmed_s: confirmed_at.map(since),
            ready_s: self.started.map(since),
            transfer_s: (if self.is_fetched { delivered_at } else { confirmed_at })
                .zip(self.started)
                .map(|(over, started)| over.since(started).as_secs_f64()),
            latency: self.latency.map(LatencyMetrics::from),
            quiet_s,
            wire_s,
            goodput_bps: delivered_s.and_then(rate),
            goodput_grc_bps: wire_s.filter(|_| completed).and_then(|wire| rate(wire + rtt)),
            bound_s,
            least,
            efficiency: bound_s.zip(delivered_s).and_then(share),
            spent: traffic.link_bytes.and_then(spent),
            traffic,
            receivers,
        }
    }

    /// Assumptions and capacity of the bound, for packets of `bound_payload` bytes.
    fn least(&self, ways: &[Vec<Hop>], bound_payload: u64) -> Least {
        let bound_spent = match ways {
            [hops] if self.is_whole => least_spent(hops, self.file_bytes, bound_payload),
            _ => None,
        };
        let bound_is_mean = ways.iter().flatten().any(Hop::is_random);
        Least { bound_is_mean, bound_payload, bound_spent }
    }

    /// Returns the traffic of the world's only transfer.
    fn traffic(&self, quiet_s: Option<f64>) -> Traffic<Option<u64>, u64> {
        if !self.alone {
            return Traffic::default();
        }
        let sum = |of: fn(&HostStats) -> u64| {
            Some(self.receivers.iter().map(|receiver| of(&receiver.stats)).sum())
        };
        Traffic {
            throughput_bps: self.throughput(quiet_s),
            packets_str: Some(self.sender.sent.packets),
            packets_rts: sum(|host| host.sent.packets),
            bytes_str: Some(self.sender.sent.ip_bytes),
            bytes_rts: sum(|host| host.sent.ip_bytes),
            link_bytes: Some(self.link_bytes),
            repairs_str: self.repairs,
            nacks_rts: self.receivers.iter().map(|receiver| receiver.nacks).sum(),
            buffers: self.buffers,
        }
    }

    /// Returns the metrics of each receiver of a group.
    fn each(&self, transfer: &Transfer) -> Vec<ReceiverMetrics> {
        if transfer.group.is_none() {
            return Vec::new();
        }
        let of = |(name, receiver): (&str, &ReceiverWatch)| ReceiverMetrics {
            node: name.to_owned(),
            verified: receiver.verified,
            delivered_s: receiver.delivered().map(|at| at.since(self.start).as_secs_f64()),
            packets_rts: self.alone.then_some(receiver.stats.sent.packets),
            bytes_rts: self.alone.then_some(receiver.stats.sent.ip_bytes),
        };
        transfer.to.names().zip(&self.receivers).map(of).collect()
    }

    /// Returns the time of the last packet at any end.
    fn last(&self) -> Option<Time> {
        let receivers = self.receivers.iter().map(|receiver| &receiver.stats);
        let hosts = receivers.chain([&self.sender]);
        hosts.flat_map(|host| [host.sent.last, host.received.last]).flatten().max()
    }

    fn wire_s(&self) -> Option<f64> {
        let receivers = || self.receivers.iter().map(|receiver| &receiver.stats);
        let first = receivers().flat_map(|host| [host.received.first, host.sent.first]);
        let last = receivers().flat_map(|host| [host.received.last, host.sent.last]);
        Some(last.flatten().max()?.since(first.flatten().min()?).as_secs_f64())
    }

    fn throughput(&self, quiet_s: Option<f64>) -> Option<f64> {
        let (spec, stats) = self.first_link.as_ref()?;
        let overhead = spec.config().ok()?.framing.overhead() as u64;
        let bits = taken_bits(stats, overhead);
        quiet_s.filter(|seconds| *seconds > 0.0).map(|seconds| bits as f64 / seconds)
    }

    fn failure(&self, transfer: &Transfer) -> String {
        match &self.answer {
            None => return "it was never requested".to_owned(),
            Some(Err(why)) => return format!("refused: {why}"),
            Some(Ok(())) => {}
        }
        let outcome = |ends: &[(Time, Ended)], who: &str| match ends.last() {
            Some((_, Ended { result: Ok(()), .. })) => format!("{who}: success"),
            Some((_, Ended { result: Err(why), .. })) => format!("{who}: {why}"),
            None => format!("{who}: {WAITING} at the end of the run"),
        };
        let mut receivers = self.receivers.iter().zip(transfer.to.names());
        let without = |(receiver, _): &(&ReceiverWatch, &str)| receiver.delivered().is_none();
        let missing = self.receivers.iter().filter(|r| r.delivered().is_none()).count();
        // Reports the first of several receivers that lacks the file.
        let named = self.receivers.len() > 1;
        let (whole, receiver) = match receivers.find(without) {
            Some((receiver, name)) => {
                let who = if named { name } else { "receiver" };
                (receiver.verified, outcome(&receiver.ends, who))
            }
            None => {
                let ends = self.receivers.first().map_or(&[][..], |receiver| &receiver.ends);
                (true, outcome(ends, if named { "receivers" } else { "receiver" }))
            }
        };
        let whole = if whole { "" } else { "; the file is missing at the receiver, or differs" };
        let how_many = if named && missing > 0 {
            format!("; {missing} of {} receivers are without", self.receivers.len())
        } else {
            String::new()
        };
        let text = if self.reliable {
            // Reports a failed request, if there are several.
            let failed =
                self.at_sender.iter().find(|(_, end)| !end.is_success() && self.requests > 1);
            let sender = match failed {
                Some(end) => outcome(std::slice::from_ref(end), "sender"),
                None => outcome(&self.at_sender, "sender"),
            };
            format!("{sender}; {receiver}{whole}{how_many}")
        } else {
            format!("{receiver}{whole}{how_many}")
        };
        let remedy = if text.contains(WAITING) { "; `inactivity` limits the wait" } else { "" };
        text + remedy
    }
}

/// Returns the minimum bytes on the line per byte of the file, of the hop that needs most.
fn least_spent(hops: &[Hop], file: u64, payload: u64) -> Option<f64> {
    let spent: Option<Vec<_>> =
        hops.iter().map(|hop| hop.channel().map(|channel| channel.spent(file, payload))).collect();
    spent?.into_iter().reduce(f64::max).filter(|spent| spent.is_finite() && file > 0)
}

/// State of an end without a result.
const WAITING: &str = "still waiting";

/// Bits of the frames that a link accepted. Packets refused by its full queue do not count.
fn taken_bits(stats: &link::Stats, overhead: u64) -> u64 {
    let refused = stats.lost(LossCause::QueueFull);
    let packets = stats.pushed.packets - refused.packets;
    8 * (stats.pushed.bytes - refused.bytes + overhead * packets)
}

#[cfg(test)]
mod tests {
    use engine::Rng;
    use link::{Config, Link, Queue, Rate};

    use super::*;

    #[test]
    fn packets_refused_by_the_queue_do_not_occupy_the_link() {
        let queue = Queue { packets: Some(2), bytes: None };
        let config = Config { rate: Rate::Constant(1000), queue, ..Config::default() };
        let mut link = Link::new(config, Rng::new(1, "link")).unwrap();
        let taken = (0..10).filter(|_| link.push(Time::ZERO, 100, ()).is_ok()).count() as u64;
        assert!((1..10).contains(&taken), "{taken}");
        assert_eq!(taken_bits(link.stats(), 14), 8 * 114 * taken);
    }
}
