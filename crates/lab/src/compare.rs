//! Comparison: one file over one link by several protocols, many times.
//!
//! With several receivers the link becomes a star. The sender's rate, queue and outages belong to
//! a link to a hub. From there a link leads to each receiver, without its own rate and with
//! independent errors, as from a satellite. Half of the delay is on either side of the hub. The
//! return path is the reverse: all receivers share its rate. A multicast protocol sends the file
//! once. Any other sends it to each receiver separately, all at once and at an equal share of the
//! rate, the fastest way without multicast.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use transport::contract::{BufferLimits, Feature};
use transport::pep::PepSettings;
use transport::protocol::{ContentKind, Protocol};
use transport::quantity::{Rate, Size, Span};
use transport::records::Record;
use transport::settings::tcp::TcpSettings;
use transport::settings::{Settings, check_interval};
use transport::text::SpecError;

use crate::groups::{Group, MEMBERS_MAX};
use crate::link_spec::{Erasure, Errors, LinkSpec, Queue};
use crate::metrics::{LatencyMetrics, Traffic, TransferMetrics};
use crate::parallel;
use crate::preset::{self, Preset};
use crate::run::{self, Recorders, RunError};
use crate::scenario::{Capture, Limits, Node, Scenario, Transfer};
use crate::stats::{Summary, mean};

/// Parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hops from the sender to the receiver; the return path of each is its `return`.
    pub link: Preset,
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Content of the file.
    pub content: Bytes,
    /// Name of the file.
    pub name: String,
    /// Number of receivers; 1 to [`MEMBERS_MAX`].
    pub receivers: u32,
    /// Runs per protocol, with the seeds from `seed` on.
    pub runs: u32,
    /// First seed.
    pub seed: u64,
    /// Inactivity timeout; default: each protocol's own.
    pub inactivity: Option<Span>,
    /// Settings that differ from the profiles of protocols over TCP.
    pub tcp: Option<TcpSettings>,
    /// Byte ranges to read for `scps-fp-read`, or that differ for `scps-fp-update`.
    pub records: Option<Vec<Record>>,
    /// Gateways between the ends and the link, and their treatment of connections.
    pub pep: Option<Between>,
    /// Whether the hosts between the hops of the link are waypoints for protocols that support
    /// them: bundles, LTP-T, and CFDP's store-and-forward overlay. Otherwise they route.
    pub relay: bool,
    /// Length of bundles; default: that of bundle nodes.
    pub part: Option<Size>,
    /// Events after which a run ends; default: that of a scenario.
    pub events: Option<u64>,
    /// Threads; `None` for one per core.
    pub jobs: Option<usize>,
}

impl Plan {
    /// Returns a comparison with one run of each protocol, one receiver, and default settings.
    #[must_use]
    pub fn new(link: Preset, protocols: Vec<Protocol>, content: Bytes) -> Self {
        Self {
            link,
            protocols,
            content,
            name: "file".to_owned(),
            receivers: 1,
            runs: 1,
            seed: 1,
            inactivity: None,
            tcp: None,
            records: None,
            pep: None,
            relay: false,
            part: None,
            events: None,
            jobs: None,
        }
    }
}

/// Gateways between the ends and the link. They are connected to the ends by links of 100 Mbit/s
/// and 0.1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Between {
    /// Gateways only route.
    None,
    /// Gateways split connections, with a modern TCP and large buffers on the link between them.
    Tcp,
    /// Gateways split connections, with SCPS-TP at the link's rate between them.
    Scps,
}

impl Between {
    /// Settings of a gateway.
    fn settings(self) -> Option<PepSettings> {
        match self {
            Self::None => None,
            Self::Tcp => Some(PepSettings::default()),
            Self::Scps => {
                let wan = PepSettings::default().with(&["wan", "profile"], SCPS);
                Some(wan.with(&["lan", "buffer"], SCPS_LAN.to_string()))
            }
        }
    }
}

/// Profile of the SCPS reference implementation's gateway: a fixed rate without congestion control
/// towards the satellite, and small buffers towards the hosts.
const SCPS: &str = "scps-rate";
const SCPS_LAN: Size = Size(32_768);

/// Results of one protocol. Times and rates are of the completed runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Protocol with its profile.
    pub protocol: Protocol,
    /// With several receivers: whether it was sent once to all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<bool>,
    /// Runs.
    pub runs: usize,
    /// Runs in which the complete file arrived and both sides were notified.
    pub completed: usize,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// 8 × file bytes / delivered.
    pub goodput_bps: Option<Summary>,
    /// 8 × file bytes / (wire + round trip).
    pub goodput_grc_bps: Option<Summary>,
    /// Seconds until the receiver, or the last of several, had the whole file.
    pub delivered_s: Option<Summary>,
    /// Seconds until each of several receivers had the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each_delivered_s: Option<Summary>,
    /// Seconds until the sender received the confirmation of delivery.
    pub confirmed_s: Option<Summary>,
    /// Seconds until a server and its client were ready for the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<Summary>,
    /// Seconds from `ready_s` until the client received the confirmation of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_s: Option<Summary>,
    /// Keystroke latency: the means of the runs' values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyMetrics>,
    /// Seconds until the last packet.
    pub quiet_s: Option<Summary>,
    /// Seconds from the first to the last packet at the receiver.
    pub wire_s: Option<Summary>,
    /// Mean of the bounds of all runs.
    pub bound_s: Option<f64>,
    /// Mean bound / mean delivered, of the completed runs.
    pub efficiency: Option<f64>,
    /// Mean link bytes / file bytes, of the completed runs.
    pub spent: Option<f64>,
    /// Mean of the minimum of `spent`, of the completed runs.
    pub bound_spent: Option<f64>,
    /// Mean traffic: packets of all runs, throughput and times of the completed ones.
    #[serde(flatten)]
    pub traffic: Traffic<f64, f64>,
    /// Failed runs: the seed and the reason.
    #[serde(skip)]
    pub failures: Vec<(u64, String)>,
}

/// Names of the ends of a compared link.
const ENDS: (&str, &str) = ("sender", "receiver");

/// Name of the hub, and of the group of receivers.
const STAR: (&str, &str) = ("hub", "receivers");

/// Names of the gateways.
const BETWEEN: (&str, &str) = ("gateway-1", "gateway-2");

impl Plan {
    /// Returns the world of one run.
    ///
    /// # Errors
    ///
    /// The link contradicts itself.
    pub fn scenario(&self, protocol: &Protocol, seed: u64) -> Result<Scenario, SpecError> {
        self.scenario_with(protocol, None, seed)
    }

    /// Returns the world of one run in which the protocol has these settings.
    pub(crate) fn scenario_with(
        &self,
        protocol: &Protocol,
        settings: Option<&Settings>,
        seed: u64,
    ) -> Result<Scenario, SpecError> {
        check_interval("inactivity", self.inactivity)?;
        let many = self.receivers > 1;
        let (far, to) = if many { STAR } else { (ENDS.1, ENDS.1) };
        if many && self.pep.is_some() {
            let message = "with hosts between the ends and the link there is one receiver";
            return Err(SpecError::invalid(message));
        }
        let mut links = match self.pep {
            Some(_) => self.links_with_gateways(),
            None => self.link.chain(ENDS.0, far),
        };
        if many && let (Some(back), Some(there)) = (links.pop(), links.pop()) {
            if [&there, &back].iter().any(|hop| hop.erasure.and_then(Erasure::code).is_some()) {
                let message = "an erasure code of the link protects one receiver; omit `erasure`";
                return Err(SpecError::invalid(message));
            }
            let (there, branch) = parted(there);
            let (back, branch_back) = parted_back(back);
            let ends = |spec: LinkSpec, from: &str, to: &str| LinkSpec {
                from: Some(from.to_owned()),
                to: Some(to.to_owned()),
                ..spec
            };
            let (branch, branch_back) =
                (ends(branch, STAR.0, STAR.1), ends(branch_back, STAR.1, STAR.0));
            links.extend([there, back, branch, branch_back]);
        }
        let takes_records =
            matches!(protocol.kind.top().carries, ContentKind::Records | ContentKind::Changes);
        let group = many.then(|| Group::made_up(ENDS.1, self.receivers)).transpose()?;
        let tcp = self.tcp.clone();
        let mib = tcp.and_then(|tcp| Settings::of_tcp(protocol.kind.adapter(), tcp));
        let mib = self.in_parts(protocol, settings.cloned().or(mib))?;
        let ends = Node { inactivity: self.inactivity, mib, ..Node::default() };
        Scenario {
            seed,
            about: self.link.about.clone(),
            limits: Limits { events: self.events, ..Limits::default() },
            capture: Capture::default(),
            nodes: self.nodes(to, &ends),
            groups: group.map(|group| (STAR.1.to_owned(), group)).into_iter().collect(),
            links,
            transfers: vec![Transfer {
                from: ENDS.0.to_owned(),
                to: to.into(),
                group: None,
                via: self.via(protocol)?,
                overlay: None,
                protocol: Some(protocol.clone()),
                tool: None,
                file: None,
                size: Some(Size(self.content.len() as u64)),
                content: None,
                records: self.records.clone().filter(|_| takes_records),
                name: Some(self.name.clone()),
                start: None,
            }],
        }
        .resolved()
    }

    /// Settings of an end, with the length of bundles if the protocol sends files in bundles.
    fn in_parts(
        &self,
        protocol: &Protocol,
        mib: Option<Settings>,
    ) -> Result<Option<Settings>, SpecError> {
        let kind = protocol.kind;
        let is_cut = kind.has(Feature::Nodes) && !kind.is_entity_in_bundles();
        let Some(part) = self.part.filter(|_| is_cut) else { return Ok(mib) };
        let empty = || Settings::parse("", "settings", &[], kind.adapter());
        let mut mib = mib.map_or_else(empty, Ok)?;
        mib.set(&["bundle_size"], part.to_string());
        Ok(Some(mib))
    }

    /// Waypoints of a transfer.
    fn via(&self, protocol: &Protocol) -> Result<Vec<String>, SpecError> {
        if !self.relay {
            return Ok(Vec::new());
        }
        let count = self.link.hops.len();
        if count < 2 {
            let message = "the link has one hop, so there is no relay; take one with several, such as \
                           moon-farside";
            return Err(SpecError::invalid(message));
        }
        if self.receivers > 1 || self.pep.is_some() {
            let message = "over relays there is one receiver, and no other host splits connections";
            return Err(SpecError::invalid(message));
        }
        // A waypoint forwards no packets, and CFDP's overlay reports its files.
        let hands_on = protocol.kind.hands_on();
        Ok(if hands_on { (1..count).map(preset::relay).collect() } else { Vec::new() })
    }

    /// The ends, and the hosts between them and the link.
    fn nodes(&self, to: &str, ends: &Node) -> BTreeMap<String, Node> {
        let mut nodes: BTreeMap<_, _> =
            [ENDS.0, to].map(|end| (end.to_owned(), ends.clone())).into();
        if let Some(pep) = self.pep.and_then(Between::settings) {
            // `towards` defaults to the far end of the link.
            for name in [BETWEEN.0, BETWEEN.1] {
                nodes.insert(name.to_owned(), Node { pep: Some(pep.clone()), ..Node::default() });
            }
        }
        nodes
    }

    /// The link between two gateways, and a short one from each to an end.
    fn links_with_gateways(&self) -> Vec<LinkSpec> {
        let hops = self.link.chain(BETWEEN.0, BETWEEN.1);
        let short = |from: &str, to: &str| LinkSpec {
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
            rate: Some(Rate(100_000_000)),
            delay: Some(Span(Duration::from_micros(100))),
            // Packets must not be fragmented.
            mtu: self.link.hops.first().and_then(|hop| hop.mtu),
            datagram: self.link.hops.first().and_then(|hop| hop.datagram),
            ..LinkSpec::default()
        };
        let ends =
            [(ENDS.0, BETWEEN.0), (BETWEEN.0, ENDS.0), (BETWEEN.1, ENDS.1), (ENDS.1, BETWEEN.1)];
        ends.into_iter().map(|(from, to)| short(from, to)).chain(hops).collect()
    }

    /// One run; `None` if it was cancelled.
    fn once(&self, cancelled: &AtomicBool, task: &Task<'_>) -> Result<Option<Measured>, RunError> {
        let seed = self.seed.wrapping_add(u64::from(task.run));
        let scenario = self.scenario_with(task.protocol, task.settings, seed)?;
        let contents = std::slice::from_ref(&self.content);
        let run = run::run_unless(cancelled, &scenario, contents, Recorders::default())?;
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (ended, events) = (run.ended, run.events);
        let mut transfers = run.transfers.into_iter();
        let mut metrics = transfers
            .next()
            .ok_or_else(|| SpecError::invalid("a compared world has one transfer".to_owned()))?;
        let is_limited = ended == run::EVENT_LIMIT;
        // What follows a completed transfer, such as timers of nodes, is not worth the budget.
        let is_over = is_limited && self.events.is_some() && metrics.completed;
        let is_cut = is_limited && !is_over;
        if ended != "idle" && !is_over {
            metrics.completed = false;
            metrics.failure.get_or_insert(ended);
        }
        Ok(Some(Measured { metrics, events, is_cut }))
    }
}

/// Splits a direction's last hop to several receivers into the shared part and the part of each
/// receiver.
fn parted(hop: LinkSpec) -> (LinkSpec, LinkSpec) {
    let shared = LinkSpec { errors: Errors::default(), ..hop.clone() };
    let branch = LinkSpec {
        rate: None,
        rate_steps: None,
        bucket: None,
        per_packet: None,
        release: None,
        queue: Some(Queue::Unlimited),
        delay_points: None,
        delay_between: None,
        outages: None,
        outage_every: None,
        contacts: None,
        while_down: None,
        ..hop
    };
    // A table of delays is not divided: it stays in the shared part.
    let delay = if shared.delay_points.is_some() { None } else { shared.delay };
    let half = delay.map(|delay| Span(delay.duration() / 2));
    let rest =
        delay.zip(half).map(|(all, half)| Span(all.duration().saturating_sub(half.duration())));
    (LinkSpec { delay: rest.or(shared.delay), ..shared }, LinkSpec { delay: half, ..branch })
}

/// Splits the return path likewise. Its outages are on each receiver's own part, and the receiver
/// is notified of them.
fn parted_back(hop: LinkSpec) -> (LinkSpec, LinkSpec) {
    let up = |spec: LinkSpec| LinkSpec {
        outages: None,
        outage_every: None,
        contacts: None,
        while_down: None,
        ..spec
    };
    let branch = LinkSpec {
        outages: hop.outages.clone(),
        outage_every: hop.outage_every,
        contacts: hop.contacts.clone(),
        while_down: hop.while_down,
        ..parted(hop.clone()).1
    };
    (up(parted(hop).0), branch)
}

/// Runs everything and ranks the protocols: by completed runs, then by mean time to delivery.
/// `None` if `cancelled` was set meanwhile. `done` is called after each run. The result does not
/// depend on the number of threads.
///
/// # Errors
///
/// The plan cannot be run; failed transfers are part of the result.
pub fn compare(
    plan: &Plan,
    cancelled: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Result<Option<Vec<Row>>, RunError> {
    if !(1..=MEMBERS_MAX).contains(&plan.receivers) {
        let message = format!("{} receivers; there are 1 to {MEMBERS_MAX}", plan.receivers);
        return Err(SpecError::invalid(message).into());
    }
    let task = |protocol, run| Task { protocol, settings: None, run };
    let tasks: Vec<_> = plan
        .protocols
        .iter()
        .flat_map(|protocol| (0..plan.runs).map(move |run| task(protocol, run)))
        .collect();
    let Some(runs) = measure(plan, &tasks, cancelled, done)? else { return Ok(None) };
    let runs: Vec<_> = runs.into_iter().map(|run| run.metrics).collect();
    let mut rows: Vec<_> = runs
        .chunks((plan.runs as usize).max(1))
        .zip(&plan.protocols)
        .map(|(runs, protocol)| Row::new(plan, protocol, runs))
        .collect();
    rows.sort_by(|a, b| {
        let time = |row: &Row| row.delivered_s.map_or(f64::INFINITY, |delivered| delivered.mean);
        b.completed.cmp(&a.completed).then(time(a).total_cmp(&time(b)))
    });
    Ok(Some(rows))
}

/// One run of a protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    /// Protocol.
    pub(crate) protocol: &'a Protocol,
    /// Settings of both ends; `None` for the defaults.
    pub(crate) settings: Option<&'a Settings>,
    /// Number of the run, which is added to the first seed.
    pub(crate) run: u32,
}

/// Result of one run.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Metrics of its transfer.
    pub(crate) metrics: TransferMetrics,
    /// Events of its world.
    pub(crate) events: u64,
    /// Whether it ended at the limit of events.
    pub(crate) is_cut: bool,
}

/// Returns the results of these runs, in order; `None` if `cancelled` was set meanwhile. `done` is
/// called after each.
pub(crate) fn measure(
    plan: &Plan,
    tasks: &[Task<'_>],
    cancelled: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Result<Option<Vec<Measured>>, RunError> {
    let one = |task: &Task<'_>| {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let measured = plan.once(cancelled, task)?;
        done();
        Ok(measured)
    };
    parallel::map(plan.jobs, tasks, one)
}

/// Means of the runs that have values.
fn mean_latency(runs: &[LatencyMetrics]) -> Option<LatencyMetrics> {
    if runs.is_empty() {
        return None;
    }
    let of = |field: fn(&LatencyMetrics) -> f64| mean(&runs.iter().map(field).collect::<Vec<_>>());
    Some(LatencyMetrics {
        count: runs.iter().map(|latency| latency.count).sum(),
        min_s: of(|latency| latency.min_s),
        median_s: of(|latency| latency.median_s),
        p95_s: of(|latency| latency.p95_s),
        p99_s: of(|latency| latency.p99_s),
        max_s: of(|latency| latency.max_s),
    })
}

/// Means of the runs that have values.
fn mean_limits(runs: &[BufferLimits]) -> Option<BufferLimits> {
    let of = |field: fn(&BufferLimits) -> f64| mean(&runs.iter().map(field).collect::<Vec<_>>());
    (!runs.is_empty()).then(|| BufferLimits {
        peer_window_limited_s: of(|limits| limits.peer_window_limited_s),
        send_buffer_limited_s: of(|limits| limits.send_buffer_limited_s),
    })
}

/// Mean traffic of all runs; throughput and buffers of the completed ones.
fn mean_traffic(runs: &[TransferMetrics]) -> Traffic<f64, f64> {
    type Counts = Traffic<Option<u64>, u64>;
    let average = |field: fn(&Counts) -> Option<u64>| {
        let counts = runs.iter().filter_map(|run| field(&run.traffic)).map(|count| count as f64);
        mean(&counts.collect::<Vec<_>>())
    };
    let counted = |field: fn(&Counts) -> Option<u64>| {
        runs.iter().all(|run| field(&run.traffic).is_some()).then(|| average(field))
    };
    let completed = || runs.iter().filter(|run| run.completed).map(|run| &run.traffic);
    let throughputs: Vec<_> = completed().filter_map(|traffic| traffic.throughput_bps).collect();
    let limits: Vec<_> = completed().filter_map(|traffic| traffic.buffers).collect();
    Traffic {
        throughput_bps: Summary::from_samples(&throughputs).map(|summary| summary.mean),
        packets_str: average(|traffic| traffic.packets_str),
        packets_rts: average(|traffic| traffic.packets_rts),
        bytes_str: average(|traffic| traffic.bytes_str),
        bytes_rts: average(|traffic| traffic.bytes_rts),
        link_bytes: average(|traffic| traffic.link_bytes),
        repairs_str: counted(|traffic| traffic.repairs_str),
        nacks_rts: counted(|traffic| traffic.nacks_rts),
        buffers: mean_limits(&limits),
    }
}

impl Row {
    fn new(plan: &Plan, protocol: &Protocol, runs: &[TransferMetrics]) -> Self {
        let completed: Vec<_> = runs.iter().filter(|run| run.completed).collect();
        let summary = |field: fn(&TransferMetrics) -> Option<f64>| {
            Summary::from_samples(
                &completed.iter().filter_map(|run| field(run)).collect::<Vec<_>>(),
            )
        };
        let bounds: Option<Vec<_>> = runs.iter().map(|run| run.bound_s).collect();
        let delivered_s = summary(|run| run.delivered_s);
        let reached = summary(|run| run.bound_s)
            .zip(delivered_s)
            .filter(|(_, delivered)| delivered.mean > 0.0);
        let failures = runs.iter().enumerate().filter_map(|(index, run)| {
            Some((plan.seed.wrapping_add(index as u64), run.failure.clone()?))
        });
        let each = completed.iter().flat_map(|run| &run.receivers);
        let latencies: Vec<_> = completed.iter().filter_map(|run| run.latency).collect();
        let each: Vec<_> = each.filter_map(|receiver| receiver.delivered_s).collect();
        Self {
            protocol: protocol.clone(),
            multicast: (plan.receivers > 1).then(|| protocol.kind.has(Feature::Multicast)),
            runs: runs.len(),
            completed: completed.len(),
            file_bytes: plan.content.len() as u64,
            goodput_bps: summary(|run| run.goodput_bps),
            goodput_grc_bps: summary(|run| run.goodput_grc_bps),
            delivered_s,
            each_delivered_s: Summary::from_samples(&each),
            confirmed_s: summary(|run| run.confirmed_s),
            ready_s: summary(|run| run.ready_s),
            transfer_s: summary(|run| run.transfer_s),
            latency: mean_latency(&latencies),
            quiet_s: summary(|run| run.quiet_s),
            wire_s: summary(|run| run.wire_s),
            bound_s: bounds.map(|bounds| mean(&bounds)),
            efficiency: reached.map(|(bound, delivered)| bound.mean / delivered.mean),
            spent: summary(|run| run.spent).map(|spent| spent.mean),
            bound_spent: summary(|run| run.least.bound_spent).map(|spent| spent.mean),
            traffic: mean_traffic(runs),
            failures: failures.collect(),
        }
    }
}
