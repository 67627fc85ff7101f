//! Metrics of a completed world, simulated or emulated.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{FileName, Time};
use sim::HostStats;

use models::programs::Latency;
use transport::Ended;
use transport::contract::{BufferLimits, BundleMetrics, Feature};
use transport::overlay::Overlay;
use transport::protocol::ContentKind;
use transport::text::SpecError;

use crate::link_spec::time;
use crate::metrics::{LinkMetrics, ReceiverWatch, TransferMetrics, Watch};
use crate::scenario::{Scenario, Transfer};
use crate::topology::Topology;
use crate::{passes, plan};

/// Reports of hosts, by host and name of the file.
#[derive(Debug)]
pub struct ByFile<T>(BTreeMap<usize, BTreeMap<String, Vec<T>>>);

impl<T> Default for ByFile<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByFile<T> {
    /// Adds a report of a host.
    pub fn push(&mut self, host: usize, file: String, report: T) {
        self.0.entry(host).or_default().entry(file).or_default().push(report);
    }

    fn reports(&self, host: usize, file: &str) -> &[T] {
        self.0.get(&host).and_then(|files| files.get(file)).map_or(&[], Vec::as_slice)
    }
}

/// Observations of the transfers of a world. Hosts and links have the scenario's numbers.
pub struct Observations {
    /// Sender's reply to each request; `None` if it was not made.
    pub answers: Vec<Option<Result<(), String>>>,
    /// Times when files were ready to cross, reported by clients.
    pub begins: ByFile<Time>,
    /// Keystroke latencies reported by clients.
    pub latencies: ByFile<Latency>,
    /// Ends of transfers reported by engines, in order.
    pub ends: ByFile<(Time, Ended)>,
    /// Packets sent and received by hosts.
    pub hosts: Vec<HostStats>,
    /// Repairs sent by hosts, and their repair requests.
    pub repairs: Vec<Option<(u64, u64)>>,
    /// Times for which full buffers stopped hosts.
    pub buffers: Vec<Option<BufferLimits>>,
    /// Bundles of hosts that are nodes.
    pub bundles: Vec<Option<BundleMetrics>>,
    /// Fate of packets.
    pub links: Vec<link::Stats>,
    /// Whether the world had no other traffic.
    pub alone: bool,
}

impl Observations {
    /// Returns the metrics of the links.
    pub fn links(&self, scenario: &Scenario) -> Vec<LinkMetrics> {
        let links = scenario.links.iter().zip(&self.links);
        links.map(|(spec, stats)| LinkMetrics::new(spec, stats)).collect()
    }

    /// Returns the metrics of the transfers. `is_there` returns whether a host has a file with this
    /// content.
    pub fn transfers(
        &self,
        scenario: &Scenario,
        topology: &Topology<'_>,
        contents: &[Bytes],
        mut is_there: impl FnMut(usize, &FileName, &[u8]) -> bool,
    ) -> Result<Vec<TransferMetrics>, SpecError> {
        let transfers = scenario.transfers.iter().zip(contents).enumerate();
        let one = |(index, (transfer, content))| {
            let content: &Bytes = &Transfer::files(transfer, content).expected;
            let is_there = |host: usize, file: &FileName| is_there(host, file, content);
            let watch = self.watch(scenario, topology, index, transfer, content, is_there)?;
            let mut metrics = watch.metrics(transfer, scenario.seed);
            if let Some(failure) = &mut metrics.failure
                && let Some(why) = passes::reason(
                    scenario,
                    topology,
                    transfer,
                    content.len() as u64,
                    &self.bundles,
                )
            {
                *failure = format!("{failure}; {why}");
            }
            Ok(metrics)
        };
        transfers.map(one).collect()
    }

    fn watch<'s>(
        &self,
        scenario: &'s Scenario,
        topology: &Topology<'_>,
        index: usize,
        transfer: &Transfer,
        content: &Bytes,
        mut is_there: impl FnMut(usize, &FileName) -> bool,
    ) -> Result<Watch<'s>, SpecError> {
        let alone = scenario.transfers.len() == 1;
        let node = |name: &str| topology.node(name).ok_or_else(|| plan::unresolved(name));
        let light_time =
            |route: &[usize]| topology.path_info(route).owlt.unwrap_or_default().as_secs_f64();
        let file = plan::file_name(transfer)?;
        let mut receivers = Vec::new();
        let mut link_bytes = 0;
        for waypoints in transfer.ways() {
            let mut waypoints = waypoints.into_iter().map(node).collect::<Result<Vec<_>, _>>()?;
            let host = waypoints[waypoints.len() - 1];
            let route = topology.route_by(&waypoints).unwrap_or_default();
            let carried = route.iter().map(|link| self.links[*link].line.bytes);
            link_bytes = carried.fold(link_bytes, u64::max);
            waypoints.reverse();
            let back = topology.route_by(&waypoints).unwrap_or_default();
            let kind = transfer.protocol.as_ref().map(|protocol| protocol.kind);
            receivers.push(ReceiverWatch {
                restarts: kind.is_some_and(|kind| kind.has(Feature::Scps)),
                verified: is_there(host, &file),
                ends: self.ends_of(transfer, host, false, alone),
                stats: self.hosts[host].clone(),
                nacks: self.repairs[host].map(|(_, nacks)| nacks),
                rtt: light_time(&route) + light_time(&back),
                hops: if kind.is_some_and(|kind| kind.has(Feature::Tcp)) {
                    topology.hops_of_mtu(&route)
                } else {
                    topology.hops(&route)
                },
                first_link: route.first().copied(),
            });
        }
        let first_link = receivers.first().and_then(|receiver| receiver.first_link);
        let sender = node(&transfer.from)?;
        let receiver = transfer.to.names().next().map_or(Ok(sender), node)?;
        let is_fetched = transfer.protocol.as_ref().is_some_and(|p| p.kind.top().is_fetched);
        Ok(Watch {
            alone: alone && self.alone,
            reliable: scenario.is_reliable(transfer),
            start: time(transfer.start.unwrap_or_default()),
            file_bytes: content.len() as u64,
            answer: self.answers[index].clone(),
            requests: plan::requests(scenario, transfer)?.len(),
            started: self.started(transfer, if is_fetched { receiver } else { sender }),
            is_fetched,
            is_whole: transfer.carries() == ContentKind::File,
            latency: self.latency(transfer, sender),
            at_sender: self.ends_of(transfer, sender, true, alone),
            sender: self.hosts[sender].clone(),
            repairs: self.repairs[sender].map(|(repairs, _)| repairs),
            buffers: self.buffers[sender],
            receivers,
            first_link: first_link.map(|link| (&scenario.links[link], self.links[link].clone())),
            link_bytes,
        })
    }

    /// Time when the file was ready to cross to the only receiver.
    fn started(&self, transfer: &Transfer, client: usize) -> Option<Time> {
        let name = transfer.name.as_deref().unwrap_or_default();
        match self.begins.reports(client, name) {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Keystroke latency of a transfer.
    fn latency(&self, transfer: &Transfer, client: usize) -> Option<Latency> {
        let name = transfer.name.as_deref().unwrap_or_default();
        self.latencies.reports(client, name).first().copied()
    }

    /// Ends of a transfer that a host reported.
    fn ends_of(
        &self,
        transfer: &Transfer,
        host: usize,
        at_sender: bool,
        alone: bool,
    ) -> Vec<(Time, Ended)> {
        let name = transfer.name.as_deref().unwrap_or_default();
        // Delivery to the first waypoint does not imply delivery to the receiver. With LTP-T there
        // is no later report.
        let by_report = at_sender && transfer.overlay == Some(Overlay::Sfo);
        let kind = transfer.protocol.as_ref().map(|protocol| protocol.kind);
        let by_first = at_sender
            && kind.is_some_and(|kind| kind.has(Feature::Relays))
            && !transfer.via.is_empty();
        // A reception that failed early may lack the file's name.
        let unnamed = if alone && !name.is_empty() { self.ends.reports(host, "") } else { &[] };
        let mut ends: Vec<_> = self.ends.reports(host, name).iter().chain(unnamed).collect();
        ends.retain(|(_, end)| {
            end.at_sender == at_sender && (!by_report || end.is_report || !end.is_success())
        });
        ends.sort_by_key(|(at, _)| *at);
        let known = |end: Ended| Ended { is_confirmed: end.is_confirmed && !by_first, ..end };
        ends.into_iter().map(|(at, end)| (*at, known(end.clone()))).collect()
    }
}
