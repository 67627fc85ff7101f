//! One world, from its beginning to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use engine::{FileName, PathId, Rng, Time};
use serde::Serialize;
use sim::{Action, HostConfig, HostId, Limit, LinkId, Outcome, TraceRow, World};
use thiserror::Error;

use crate::engines::{AnyEngine, AnyIndication, End, EngineConfig, Send as SendRequest};
use crate::link_spec::time;
use crate::metrics::{LinkMetrics, ReceiverWatch, TransferMetrics, Watch};
use crate::overlay::{self, Overlay};
use crate::quantity::Size;
use crate::scenario::{Content, Node, Scenario, StoreFaults, Transfer};
use crate::text::SpecError;
use crate::topology::Topology;

/// Where a run is recorded.
#[derive(Default)]
pub struct Recorders {
    /// Gets a pcapng of all links of the node that the scenario captures at.
    pub pcap: Option<Box<dyn Write + Send>>,
    /// Gets a line for every packet of every link.
    pub trace: Option<Box<dyn Write + Send>>,
}

/// What became of a world.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// How the run ended: `idle`, `time limit`, `event limit`, `cancelled` or `stuck: ...`.
    pub ended: String,
    /// The virtual time then, in seconds.
    pub time_s: f64,
    /// Events until then.
    pub events: u64,
    /// The transfers, in the scenario's order.
    pub transfers: Vec<TransferMetrics>,
    /// The links, in the scenario's order.
    pub links: Vec<LinkMetrics>,
    /// Transfers that engines still had under way at the end, by their nodes; none of a world that
    /// came to rest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub under_way: BTreeMap<String, usize>,
}

/// Why a world could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The scenario cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A recorder failed.
    #[error("cannot record the run")]
    Record(#[from] io::Error),
}

impl Run {
    /// Whether every transfer completed and the world came to rest.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.ended == "idle" && self.transfers.iter().all(|transfer| transfer.completed)
    }
}

/// The files of a scenario, in the order of its transfers.
///
/// # Errors
///
/// When a file cannot be read or held in memory.
pub fn contents(scenario: &Scenario) -> Result<Vec<Bytes>, SpecError> {
    let transfers = scenario.transfers.iter().enumerate();
    transfers.map(|(index, transfer)| content(scenario.seed, index, transfer)).collect()
}

fn content(seed: u64, index: usize, transfer: &Transfer) -> Result<Bytes, SpecError> {
    if let Some(path) = &transfer.file {
        return match std::fs::read(path) {
            Ok(content) => Ok(content.into()),
            Err(error) => Err(SpecError::Unreadable { path: path.clone(), error }),
        };
    }
    let size = transfer.size.unwrap_or(crate::scenario::SIZE).bytes();
    match transfer.content.unwrap_or_default() {
        Content::Random => made_up(seed, index, size),
        Content::Zeros => Ok(zeros(size)?.into()),
    }
}

/// The made-up content of the transfer of this index, the same for the same seed.
///
/// # Errors
///
/// When memory cannot hold it.
pub fn made_up(seed: u64, index: usize, len: u64) -> Result<Bytes, SpecError> {
    let mut content = zeros(len)?;
    let name = match index {
        0 => "file content".to_owned(),
        _ => format!("file content {index}"),
    };
    Rng::new(seed, &name).fill(&mut content);
    Ok(content.into())
}

fn zeros(len: u64) -> Result<Vec<u8>, SpecError> {
    let mut content = Vec::new();
    let too_large = || SpecError::invalid(format!("no memory for a file of {}", Size(len)));
    let len = usize::try_from(len).map_err(|_| too_large())?;
    content.try_reserve_exact(len).map_err(|_| too_large())?;
    content.resize(len, 0);
    Ok(content)
}

/// Runs a resolved scenario with the given files.
///
/// # Errors
///
/// When the scenario cannot be used or a recorder fails.
pub fn run(scenario: &Scenario, contents: &[Bytes], recorders: Recorders) -> Result<Run, RunError> {
    run_unless(&AtomicBool::new(false), scenario, contents, recorders)
}

/// Runs a resolved scenario with the given files until another thread sets `cancelled`.
///
/// # Errors
///
/// When the scenario cannot be used or a recorder fails.
pub fn run_unless(
    cancelled: &AtomicBool,
    scenario: &Scenario,
    contents: &[Bytes],
    recorders: Recorders,
) -> Result<Run, RunError> {
    let mut stage = Stage::build(scenario, contents)?;
    let trace = stage.record(scenario, recorders)?;
    let outcome = stage.play(scenario, cancelled)?;
    stage.world.finish_captures()?;
    if let Some(trace) = trace {
        trace.lock().unwrap_or_else(PoisonError::into_inner).finish()?;
    }
    let ended = match outcome {
        Outcome::Idle => "idle".to_owned(),
        Outcome::TimeLimit => "time limit".to_owned(),
        Outcome::EventLimit => "event limit".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Stuck { host, why } => format!("stuck: {}: {why}", stage.world.host_name(host)),
    };
    let transfers = stage.transfer_metrics(scenario, contents)?;
    let mut links = Vec::with_capacity(stage.links.len());
    for (spec, link) in scenario.links.iter().zip(&stage.links) {
        links.push(LinkMetrics::new(spec, stage.world.link_stats(*link)));
    }
    Ok(Run {
        seed: scenario.seed,
        ended,
        time_s: stage.world.now().as_secs_f64(),
        events: stage.world.events(),
        transfers,
        links,
        under_way: stage.under_way(),
    })
}

/// A trace that is being written.
struct TraceFile {
    sink: Box<dyn Write + Send>,
    /// The first error.
    error: Option<io::Error>,
}

impl TraceFile {
    fn line(&mut self, row: &TraceRow<'_>) {
        if self.error.is_none() {
            self.error = writeln!(self.sink, "{row}").err();
        }
    }

    /// Writes what a buffer still holds.
    fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or_else(|| self.sink.flush(), Err)
    }
}

/// A world with what was put into it.
struct Stage<'a> {
    world: World<AnyEngine>,
    topology: Topology<'a>,
    hosts: Vec<HostId>,
    links: Vec<LinkId>,
    /// What each transfer's sender said to the request; `None` until it was made.
    answers: Vec<Option<Result<(), String>>>,
}

impl<'a> Stage<'a> {
    fn build(scenario: &'a Scenario, contents: &[Bytes]) -> Result<Self, RunError> {
        let topology = Topology::new(scenario)?;
        let mut world = World::new(scenario.seed);
        let mut hosts = Vec::new();
        for (name, node) in &scenario.nodes {
            let address = node.address.ok_or_else(|| unresolved(name))?;
            hosts.push(world.add_host(HostConfig::new(name.clone(), address)));
        }
        let mut links = Vec::new();
        for (index, spec) in scenario.links.iter().enumerate() {
            let (from, to) = topology.ends(index);
            let link = world
                .add_link(hosts[from], hosts[to], spec.config()?)
                .map_err(|error| SpecError::invalid(error.to_string()))?;
            links.push(link);
        }
        let answers = vec![None; scenario.transfers.len()];
        let mut stage = Self { world, topology, hosts, links, answers };
        stage.add_routes(scenario);
        stage.add_engines(scenario)?;
        stage.fill_stores(scenario, contents)?;
        stage.plan_crashes(scenario);
        Ok(stage)
    }

    fn add_routes(&mut self, scenario: &Scenario) {
        for from in 0..self.hosts.len() {
            let tree = self.topology.tree(from);
            for (to, node) in scenario.nodes.values().enumerate().filter(|(to, _)| *to != from) {
                let first = tree.route(to).and_then(|route| route.first().copied());
                if let (Some(link), Some(address)) = (first, node.address) {
                    self.world.add_route(self.hosts[from], address, self.links[link]);
                }
            }
        }
    }

    fn add_engines(&mut self, scenario: &Scenario) -> Result<(), SpecError> {
        for (index, (name, node)) in scenario.nodes.iter().enumerate() {
            let Some(protocol) = &node.protocol else { continue };
            let entity = node.entity.ok_or_else(|| unresolved(name))?;
            let mut config = EngineConfig::new(protocol, entity, node.mib.as_ref())?;
            config.set_inactivity(node.inactivity);
            let is_incoming = |t: &&Transfer| t.to.names().any(|to| to == name);
            let incoming = scenario.transfers.iter().find(is_incoming);
            if let Some(file) = incoming.and_then(|transfer| transfer.name.as_deref()) {
                config.set_file_name(file);
            }
            let tree = self.topology.tree(index);
            let shares = self.shares(scenario, name)?;
            for (peer, (peer_name, peer_node)) in scenario.nodes.iter().enumerate() {
                if !overlay::are_neighbours(&scenario.transfers, name, peer_name) {
                    continue;
                }
                let Some(route) = tree.route(peer) else {
                    self.listen_only(index, peer, node)?;
                    continue;
                };
                let path = PathId(u32::try_from(peer).unwrap_or(u32::MAX));
                let (Some(address), Some(port), Some(local), Some(entity)) =
                    (peer_node.address, peer_node.port, node.port, peer_node.entity)
                else {
                    return Err(unresolved(peer_name));
                };
                let info = self.topology.shared_info(&route, &shares);
                self.world.add_path(self.hosts[index], path, local, (address, port), info);
                config.set_path(entity, path);
                for behind in self.behind(scenario, name, peer_name)? {
                    config.set_path(behind, path);
                }
            }
            self.join_groups(scenario, index, &mut config)?;
            self.world.install(self.hosts[index], move |_, rng| config.build(rng));
        }
        Ok(())
    }

    /// How many transfers of its own a node has over each link, where it sends one file to several
    /// receivers, each by itself.
    fn shares(&self, scenario: &Scenario, name: &str) -> Result<BTreeMap<usize, u64>, SpecError> {
        let mut shares = BTreeMap::new();
        let fans_out = |transfer: &&Transfer| {
            transfer.from == name && transfer.to.0.len() > 1 && !transfer.is_multicast()
        };
        for transfer in scenario.transfers.iter().filter(fans_out) {
            let mut counts = BTreeMap::<usize, u64>::new();
            for route in self.routes(transfer)?.into_iter().flatten() {
                route.into_iter().for_each(|link| *counts.entry(link).or_default() += 1);
            }
            for (link, count) in counts {
                let share = shares.entry(link).or_insert(1);
                *share = count.max(*share);
            }
        }
        Ok(shares)
    }

    /// The routes to the receivers of a transfer, each `None` if there is no way.
    fn routes(&self, transfer: &Transfer) -> Result<Vec<Option<Vec<usize>>>, SpecError> {
        let tree = self.topology.tree(self.node(&transfer.from)?);
        transfer.to.names().map(|to| Ok(tree.route(self.node(to)?))).collect()
    }

    /// Makes a host a member of the groups that it sends or listens to, and leads what it sends
    /// there to all others.
    fn join_groups(
        &mut self,
        scenario: &Scenario,
        index: usize,
        config: &mut EngineConfig,
    ) -> Result<(), SpecError> {
        for (number, (name, group)) in scenario.groups.iter().enumerate() {
            let uses = |t: &&Transfer| t.is_multicast() && t.group.as_ref() == Some(name);
            let transfers = || scenario.transfers.iter().filter(uses);
            let all = transfers().flat_map(Transfer::everybody).map(|name| self.node(name));
            let all = all.collect::<Result<BTreeSet<_>, _>>()?;
            if !all.contains(&index) {
                continue;
            }
            let tree = self.topology.tree(index);
            let mut routes: Vec<_> =
                all.iter().filter(|to| **to != index).filter_map(|to| tree.route(*to)).collect();
            let (source, port) = scenario
                .nodes
                .values()
                .nth(index)
                .map_or((None, None), |node| (node.address, node.port));
            let (Some(source), Some(port), Some(address), Some(remote)) =
                (source, port, group.address, group.port)
            else {
                return Err(unresolved(name));
            };
            let links: BTreeSet<_> = routes.iter().flatten().copied().collect();
            for link in links {
                let (from, _) = self.topology.ends(link);
                self.world.add_group_route(self.hosts[from], source, address, self.links[link]);
            }
            if routes.is_empty() {
                // It can only listen.
                for transfer in transfers() {
                    routes.extend(self.topology.route(self.node(&transfer.from)?, index));
                }
            }
            let info = self.topology.group_info(&routes);
            let path = group_path(scenario, number);
            self.world.add_path(self.hosts[index], path, port, (address, remote), info);
            config.add_group(path);
        }
        Ok(())
    }

    /// Lets a host hear a peer to which no links lead back.
    fn listen_only(&mut self, index: usize, peer: usize, node: &Node) -> Result<(), SpecError> {
        let Some((way, port)) = self.topology.route(peer, index).zip(node.port) else {
            return Ok(());
        };
        let info = self.topology.path_info(&way);
        self.world.listen(self.hosts[index], port, info);
        Ok(())
    }

    /// The entities with which `name` has transactions that neighbour `next` hands on.
    fn behind(&self, scenario: &Scenario, name: &str, next: &str) -> Result<Vec<u64>, SpecError> {
        let mut entities = Vec::new();
        for transfer in &scenario.transfers {
            if transfer.overlay != Some(Overlay::Extended) {
                continue;
            }
            let Some(mut stations) = transfer.ways().next() else { continue };
            for _ in ["there", "back"] {
                let far = stations[stations.len() - 1];
                if stations[..2] == [name, next] {
                    entities.push(scenario.nodes[far].entity.ok_or_else(|| unresolved(far))?);
                }
                stations.reverse();
            }
        }
        Ok(entities)
    }

    fn fill_stores(&mut self, scenario: &Scenario, contents: &[Bytes]) -> Result<(), SpecError> {
        for (host, node) in self.hosts.iter().zip(scenario.nodes.values()) {
            if let Some(faults) = &node.store {
                self.world.store(*host).set_faults(store_faults(faults));
            }
        }
        // What is sent is held in memory already; any host may come to hold a copy of it.
        let longest = contents.iter().map(|content| content.len() as u64).max().unwrap_or(0);
        for host in &self.hosts {
            self.world.store(*host).files_mut().raise_file_max(longest);
        }
        for (transfer, content) in scenario.transfers.iter().zip(contents) {
            self.topology.check_ways(scenario, transfer)?;
            let host = self.hosts[self.node(&transfer.from)?];
            self.world.store(host).insert(file_name(transfer)?, content.clone());
        }
        Ok(())
    }

    fn plan_crashes(&mut self, scenario: &Scenario) {
        for (host, node) in self.hosts.iter().zip(scenario.nodes.values()) {
            for crash in &node.crashes {
                self.world.at(time(crash.at), Action::Crash(*host));
                if let Some(restart) = crash.restart {
                    self.world.at(time(restart), Action::Restart(*host));
                }
            }
        }
    }

    /// Attaches the recorders; the answer is the trace, to be finished after the run.
    fn record(
        &mut self,
        scenario: &Scenario,
        recorders: Recorders,
    ) -> Result<Option<Arc<Mutex<TraceFile>>>, RunError> {
        if let Some(pcap) = recorders.pcap {
            let at = scenario.capture.at.as_deref();
            let Some(at) = at.and_then(|name| self.topology.node(name)) else {
                return Err(SpecError::invalid("nothing to capture: no node").into());
            };
            self.world.capture_host(self.hosts[at], pcap)?;
        }
        let Some(mut sink) = recorders.trace else { return Ok(None) };
        writeln!(sink, "{}", TraceRow::HEADER)?;
        let trace = Arc::new(Mutex::new(TraceFile { sink, error: None }));
        let lines = Arc::clone(&trace);
        let spoken = scenario.nodes.values().filter_map(|node| node.protocol.as_ref());
        let families: BTreeSet<_> = spoken.map(|protocol| protocol.kind.family()).collect();
        let families: Vec<_> = families.into_iter().collect();
        let describe = move |datagram: &[u8]| crate::engines::describe(&families, datagram);
        self.world.trace(describe, move |row| {
            lines.lock().unwrap_or_else(PoisonError::into_inner).line(row);
        });
        Ok(Some(trace))
    }

    /// Lets everything happen.
    fn play(&mut self, scenario: &Scenario, cancelled: &AtomicBool) -> Result<Outcome, SpecError> {
        let until = scenario.limits.time.map_or(Time::MAX, time);
        let events = scenario.limits.events.unwrap_or(u64::MAX);
        let mut order: Vec<_> = (0..scenario.transfers.len()).collect();
        let start = |index: usize| time(scenario.transfers[index].start.unwrap_or_default());
        order.sort_by_key(|index| start(*index));
        for index in order {
            if start(index) > Time::ZERO {
                let limit = Limit { until: start(index).min(until), events };
                match self.world.run_unless(cancelled, limit) {
                    // Nothing is left to happen before: the clock moves on.
                    Outcome::Idle | Outcome::TimeLimit => {
                        let _ = self.world.run_until(limit.until);
                    }
                    over @ (Outcome::EventLimit | Outcome::Cancelled | Outcome::Stuck { .. }) => {
                        return Ok(over);
                    }
                }
            }
            self.start(scenario, index)?;
        }
        Ok(self.world.run_unless(cancelled, Limit { until, events }))
    }

    fn start(&mut self, scenario: &Scenario, index: usize) -> Result<(), SpecError> {
        let transfer = &scenario.transfers[index];
        let mut answer = Ok(());
        for (begins, request) in self.requests(scenario, transfer)? {
            let host = self.hosts[self.node(begins)?];
            let crashed = |world: &World<AnyEngine>| {
                // A world that has not moved yet has made no engine; calling makes it.
                world.now() > Time::ZERO && world.engine(host).is_none()
            };
            // An engine that just began may wait for its store.
            while !crashed(&self.world) && !self.world.call(host, |engine, _| engine.is_ready()) {
                if self.world.step().is_none() {
                    break;
                }
            }
            let told = if crashed(&self.world) {
                Err(format!("{begins} was down"))
            } else {
                self.world.call(host, |engine, now| engine.send(now, &request))
            };
            answer = answer.and(told);
        }
        self.answers[index] = Some(answer);
        Ok(())
    }

    /// What has to be asked for a transfer, and of which nodes: once where all receivers are sent
    /// to as a group, else for each of them.
    fn requests<'s>(
        &self,
        scenario: &'s Scenario,
        transfer: &'s Transfer,
    ) -> Result<Vec<(&'s str, SendRequest)>, SpecError> {
        let protocol = transfer.protocol.as_ref().ok_or_else(|| unresolved(&transfer.from))?;
        let group = transfer.group.as_ref().filter(|_| transfer.is_multicast());
        let group = group.and_then(|name| scenario.groups.keys().position(|known| known == name));
        let request = |receiver: &'s str| {
            let (begins, other) = if protocol.kind.is_fetched() {
                (receiver, transfer.from.as_str())
            } else {
                (transfer.from.as_str(), receiver)
            };
            let request = SendRequest {
                source: file_name(transfer)?,
                name: transfer.name.clone().unwrap_or_default(),
                destination: scenario.nodes[other].entity.ok_or_else(|| unresolved(other))?,
                group: group.map(|number| group_path(scenario, number)),
                kind: protocol.kind,
                class: scenario.class(transfer, receiver),
                overlay: transfer.overlay,
            };
            Ok((begins, request))
        };
        transfer
            .to
            .names()
            .take(if group.is_some() { 1 } else { usize::MAX })
            .map(request)
            .collect()
    }

    fn transfer_metrics(
        &mut self,
        scenario: &Scenario,
        contents: &[Bytes],
    ) -> Result<Vec<TransferMetrics>, SpecError> {
        let ends: Vec<(Time, HostId, End)> = self
            .world
            .drain_indications()
            .into_iter()
            .filter_map(|(at, host, told): (_, _, AnyIndication)| Some((at, host, told.end()?)))
            .collect();
        let alone = scenario.transfers.len() == 1;
        let mut all = Vec::new();
        for (index, (transfer, content)) in scenario.transfers.iter().zip(contents).enumerate() {
            let told = |host: HostId, at_sender: bool| {
                let name = transfer.name.clone().unwrap_or_default();
                // That the first waypoint has the file does not mean that the receiver has it.
                let by_report = at_sender && transfer.overlay == Some(Overlay::Sfo);
                let of_transfer = ends.iter().filter(move |(_, at, end)| {
                    *at == host
                        && end.at_sender == at_sender
                        // A reception that failed early may not know its file's name.
                        && (end.name == name || alone && end.name.is_empty())
                        && (!by_report || end.is_report || !end.success)
                });
                of_transfer.cloned().map(|(at, _, end)| (at, end)).collect::<Vec<_>>()
            };
            let file = file_name(transfer)?;
            let mut receivers = Vec::new();
            for stations in transfer.ways() {
                let mut stations = stations
                    .into_iter()
                    .map(|name| self.node(name))
                    .collect::<Result<Vec<_>, _>>()?;
                let host = self.hosts[stations[stations.len() - 1]];
                let route = self.topology.route_by(&stations).unwrap_or_default();
                stations.reverse();
                let back = self.topology.route_by(&stations).unwrap_or_default();
                receivers.push(ReceiverWatch {
                    verified: self.world.store(host).get(&file) == Some(content.as_ref()),
                    told: told(host, false),
                    stats: self.world.host_stats(host).clone(),
                    nacks: self.repairs(host).map(|(_, nacks)| nacks),
                    rtt: self.light_time(&route) + self.light_time(&back),
                    hops: self.topology.hops(&route)?,
                    first_link: route.first().copied(),
                });
            }
            let first_link = receivers.first().and_then(|receiver| receiver.first_link);
            let sender = self.hosts[self.node(&transfer.from)?];
            let watch = Watch {
                alone,
                reliable: scenario.is_reliable(transfer),
                start: time(transfer.start.unwrap_or_default()),
                file_bytes: content.len() as u64,
                answer: self.answers[index].clone(),
                requests: self.requests(scenario, transfer)?.len(),
                at_sender: told(sender, true),
                sender: self.world.host_stats(sender).clone(),
                repairs: self.repairs(sender).map(|(repairs, _)| repairs),
                receivers,
                first_link: first_link.map(|link| {
                    (&scenario.links[link], self.world.link_stats(self.links[link]).clone())
                }),
            };
            all.push(watch.metrics(transfer, scenario.seed));
        }
        Ok(all)
    }

    /// What engines still have to do, by the names of their nodes.
    fn under_way(&self) -> BTreeMap<String, usize> {
        let engines = self.hosts.iter().map(|host| (*host, self.world.engine(*host)));
        let count = |(host, engine): (HostId, Option<&AnyEngine>)| {
            let count = engine.map_or(0, AnyEngine::under_way);
            (count > 0).then(|| (self.world.host_name(host).to_owned(), count))
        };
        engines.filter_map(count).collect()
    }

    fn light_time(&self, route: &[usize]) -> f64 {
        self.topology.path_info(route).owlt.unwrap_or_default().as_secs_f64()
    }

    fn repairs(&self, host: HostId) -> Option<(u64, u64)> {
        self.world.engine(host).and_then(AnyEngine::repairs)
    }

    fn node(&self, name: &str) -> Result<usize, SpecError> {
        self.topology.node(name).ok_or_else(|| unresolved(name))
    }
}

/// The path that stands for the group of this number, behind those that stand for nodes.
fn group_path(scenario: &Scenario, number: usize) -> PathId {
    PathId(u32::try_from(scenario.nodes.len() + number).unwrap_or(u32::MAX))
}

fn file_name(transfer: &Transfer) -> Result<FileName, SpecError> {
    let name = transfer.name.as_deref().unwrap_or_default();
    FileName::file(name).map_err(|error| SpecError::invalid(format!("{name:?}: {error}")))
}

fn unresolved(name: &str) -> SpecError {
    SpecError::invalid(format!("{name}: the scenario is not resolved"))
}

fn store_faults(faults: &StoreFaults) -> sim::StoreFaults {
    sim::StoreFaults {
        latency: faults.latency.unwrap_or_default().duration(),
        bytes_per_second: faults.rate.map(|rate| rate.bps() / 8),
        fail_writes: faults.fail_writes.iter().copied().collect(),
        fail_write_probability: faults.fail_write_probability.unwrap_or_default().value(),
        capacity: faults.capacity.map(Size::bytes),
        lose_unsynced: faults.lose_unsynced.unwrap_or_default().value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_take_the_longest_file_there_is() {
        let world = r#"
            seed = 1
            links = [{ from = "a", to = "b" }, { from = "b", to = "a" }]
            transfers = [{ from = "a", to = "b" }]
        "#;
        let world = Scenario::parse(world, "world").unwrap().resolved().unwrap();
        // Pages of zeros that nobody touches take no memory.
        let len = (1 << 30) + 1;
        let mut stage = Stage::build(&world, &[vec![0; len].into()]).unwrap();
        for host in stage.hosts.clone() {
            assert_eq!(stage.world.store(host).files().file_max(), len as u64);
        }
    }
}
