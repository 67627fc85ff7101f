//! Simulation of one world.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use engine::Time;
use serde::Serialize;
use sim::{Action, HostConfig, HostId, Limit, LinkId, Outcome, TraceRow, World};
use thiserror::Error;
use transport::Event;
use transport::contract::BundleMetrics;
use transport::dissect;
use transport::files;
use transport::text::SpecError;

use crate::content::{made_up, zeros};
use crate::link_spec::time;
use crate::metrics::{LinkMetrics, TransferMetrics};
use crate::outcome::{ByFile, Observations};
use crate::pep::{self, GatewayMetrics, HostEngine};
use crate::plan::{self, EnginePlan, PathPlan, unresolved};
use crate::scenario::{Content, Scenario, Transfer};
use crate::topology::Topology;

/// `ended` of a run that reached its limit of events.
pub(crate) const EVENT_LIMIT: &str = "event limit";

/// Outputs of a run.
#[derive(Default)]
pub struct Recorders {
    /// Output for a pcapng of all links of the scenario's capture node.
    pub pcap: Option<Box<dyn Write + Send>>,
    /// Output for a line per packet of every link.
    pub trace: Option<Box<dyn Write + Send>>,
}

/// Result of a world.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Seed.
    pub seed: u64,
    /// Reason for the end: `idle`, `time limit`, `event limit`, `cancelled` or `stuck: ...`.
    pub ended: String,
    /// Virtual time at the end, in seconds.
    pub time_s: f64,
    /// Events until then.
    pub events: u64,
    /// Transfers, in the scenario's order.
    pub transfers: Vec<TransferMetrics>,
    /// Links, in the scenario's order.
    pub links: Vec<LinkMetrics>,
    /// Metrics of gateways that split connections, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<String, GatewayMetrics>,
    /// Metrics of bundle nodes since their last start, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bundle_nodes: BTreeMap<String, BundleMetrics>,
    /// Transfers that engines still had under way at the end, by node; empty if the world came to
    /// rest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub under_way: BTreeMap<String, usize>,
}

/// Reason why a world could not be run.
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

/// Returns the files of a scenario, in the order of its transfers.
///
/// # Errors
///
/// A file cannot be read or held in memory.
pub fn contents(scenario: &Scenario) -> Result<Vec<Bytes>, SpecError> {
    contents_within(scenario, u64::MAX)
}

/// Returns the files, each cut to at most `most` bytes: a file may grow while it is read.
///
/// # Errors
///
/// A file cannot be read or held in memory.
pub fn contents_within(scenario: &Scenario, most: u64) -> Result<Vec<Bytes>, SpecError> {
    let transfers = scenario.transfers.iter().enumerate();
    transfers.map(|(index, transfer)| content(scenario.seed, index, transfer, most)).collect()
}

/// Checks that no transfer is by a tool, which takes real time.
///
/// # Errors
///
/// Names the first such transfer, and a remedy.
pub fn refuse_tools(scenario: &Scenario) -> Result<(), SpecError> {
    let by_tool = |transfer: &Transfer| transfer.tool.is_some();
    let Some(index) = scenario.transfers.iter().position(by_tool) else { return Ok(()) };
    let tool = scenario.transfers[index].carrier();
    Err(SpecError::invalid(format!(
        "transfers[{index}]: {tool} is a program and cannot be simulated; run the scenario with \
         `slowlight emu run`"
    )))
}

/// Checks that no transfer is by a protocol over slowlight's own TCP, which is not part of real
/// hosts, and that no gateway splits connections.
///
/// # Errors
///
/// Names the first of these, and a remedy.
pub fn refuse_streams(scenario: &Scenario) -> Result<(), SpecError> {
    if let Some((name, _)) = scenario.nodes.iter().find(|(_, node)| node.pep.is_some()) {
        return Err(SpecError::invalid(format!(
            "nodes.{name}.pep: gateways that split connections run in the simulator: slowlight sim"
        )));
    }
    let is_stream = |transfer: &Transfer| {
        let protocol = transfer.protocol.as_ref();
        transfer.tool.is_none() && protocol.is_some_and(|protocol| !protocol.kind.has_sockets())
    };
    let Some(index) = scenario.transfers.iter().position(is_stream) else { return Ok(()) };
    Err(SpecError::invalid(format!(
        "transfers[{index}]: {} runs in the simulator: slowlight sim; for real programs in the \
         emulator write tool = \"ftp\" in place of the protocol",
        scenario.transfers[index].carrier()
    )))
}

fn content(seed: u64, index: usize, transfer: &Transfer, most: u64) -> Result<Bytes, SpecError> {
    if let Some(path) = &transfer.file {
        return Ok(files::read_within(path, most)?.into());
    }
    let size = transfer.size.unwrap_or(crate::scenario::SIZE).bytes();
    match transfer.content.unwrap_or_default() {
        Content::Random => made_up(seed, index, size),
        Content::Zeros => Ok(zeros(size)?.into()),
    }
}

/// Runs a resolved scenario with the given files.
///
/// # Errors
///
/// The scenario is invalid or a recorder fails.
pub fn run(scenario: &Scenario, contents: &[Bytes], recorders: Recorders) -> Result<Run, RunError> {
    run_unless(&AtomicBool::new(false), scenario, contents, recorders)
}

/// Runs a resolved scenario with the given files until another thread sets `cancelled`.
///
/// # Errors
///
/// The scenario is invalid or a recorder fails.
pub fn run_unless(
    cancelled: &AtomicBool,
    scenario: &Scenario,
    contents: &[Bytes],
    recorders: Recorders,
) -> Result<Run, RunError> {
    refuse_tools(scenario)?;
    let mut simulation = Simulation::build(scenario, contents)?;
    let trace = simulation.record(scenario, recorders)?;
    let outcome = simulation.play(scenario, cancelled)?;
    simulation.world.finish_captures()?;
    if let Some(trace) = trace {
        trace.lock().unwrap_or_else(PoisonError::into_inner).finish()?;
    }
    let ended = match outcome {
        Outcome::Idle => "idle".to_owned(),
        Outcome::TimeLimit => "time limit".to_owned(),
        Outcome::EventLimit => EVENT_LIMIT.to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Stuck { host, why } => {
            format!("stuck: {}: {why}", simulation.world.host_name(host))
        }
    };
    let observations = simulation.observations();
    let transfers = observations.transfers(
        scenario,
        &simulation.topology,
        contents,
        |host, file, content| {
            simulation.world.store(simulation.hosts[host]).get(file) == Some(content)
        },
    )?;
    Ok(Run {
        seed: scenario.seed,
        ended,
        time_s: simulation.world.now().as_secs_f64(),
        events: simulation.world.events(),
        transfers,
        links: observations.links(scenario),
        gateways: simulation.gateways(),
        bundle_nodes: scenario
            .nodes
            .keys()
            .zip(observations.bundles)
            .filter_map(|(name, metrics)| Some((name.clone(), metrics?)))
            .collect(),
        under_way: simulation.under_way(),
    })
}

/// A trace being written.
struct TraceFile {
    sink: Box<dyn Write + Send>,
    /// First error.
    error: Option<io::Error>,
}

impl TraceFile {
    fn line(&mut self, row: &TraceRow<'_>) {
        if self.error.is_none() {
            self.error = writeln!(self.sink, "{row}").err();
        }
    }

    /// Writes the rest of a buffer.
    fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or_else(|| self.sink.flush(), Err)
    }
}

/// A simulated world with the scenario's hosts, links and engines.
struct Simulation<'a> {
    world: World<HostEngine>,
    topology: Topology<'a>,
    hosts: Vec<HostId>,
    links: Vec<LinkId>,
    /// Sender's reply to each request; `None` until it was made.
    answers: Vec<Option<Result<(), String>>>,
}

impl<'a> Simulation<'a> {
    fn build(scenario: &'a Scenario, contents: &[Bytes]) -> Result<Self, RunError> {
        let topology = Topology::new(scenario)?;
        let mut world = World::new(scenario.seed);
        let mut hosts = Vec::new();
        for (name, node) in &scenario.nodes {
            let address = node.address.ok_or_else(|| unresolved(name))?;
            // A gateway intercepts TCP segments of others, and forwards everything else.
            let intercepts = node.pep.iter().map(|_| tcp::segment::PROTOCOL).collect();
            let config = HostConfig::new(name.clone(), address);
            hosts.push(world.add_host(HostConfig { intercepts, ..config }));
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
        let mut simulation = Self { world, topology, hosts, links, answers };
        simulation.add_routes(scenario);
        simulation.add_engines(scenario)?;
        simulation.add_gateways(scenario)?;
        simulation.fill_stores(scenario, contents)?;
        simulation.plan_crashes(scenario);
        Ok(simulation)
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
        for EnginePlan { host, port, config, paths, interfaces } in
            plan::engines(scenario, &self.topology)?
        {
            let host = self.hosts[host];
            let by_packet = !interfaces.is_empty();
            for (path, link, info) in interfaces {
                self.world.add_interface(host, path, self.links[link], info);
            }
            for way in paths.into_iter().filter(|_| !by_packet) {
                match way {
                    PathPlan::Peer { path, remote, info, .. } => {
                        self.world.add_path(host, path, port, remote, info);
                    }
                    PathPlan::Listen { info } => self.world.listen(host, port, info),
                    PathPlan::Group { path, remote, info, links, source } => {
                        for (from, link) in links {
                            let (from, link) = (self.hosts[from], self.links[link]);
                            self.world.add_group_route(from, source, *remote.ip(), link);
                        }
                        self.world.add_path(host, path, port, remote, info);
                    }
                }
            }
            self.world.install(host, move |_, rng| HostEngine::Engine(config.build(rng)));
        }
        Ok(())
    }

    fn add_gateways(&mut self, scenario: &Scenario) -> Result<(), SpecError> {
        for part in pep::gateways(scenario, &self.topology)? {
            let host = self.hosts[part.host];
            for (path, link, info) in &part.interfaces {
                self.world.add_interface(host, *path, self.links[*link], info.clone());
            }
            self.world.install(host, move |_, rng| part.build(rng));
        }
        Ok(())
    }

    fn fill_stores(&mut self, scenario: &Scenario, contents: &[Bytes]) -> Result<(), SpecError> {
        plan::check_ways(scenario, &self.topology)?;
        for (host, (name, node)) in self.hosts.iter().zip(&scenario.nodes) {
            plan::fill_store(self.world.store(*host), scenario, name, node, contents)?;
        }
        Ok(())
    }

    fn plan_crashes(&mut self, scenario: &Scenario) {
        for (host, node) in self.hosts.iter().zip(scenario.nodes.values()) {
            for crash in &node.crashes {
                self.world.schedule(time(crash.at), Action::Crash(*host));
                if let Some(restart) = crash.restart {
                    self.world.schedule(time(restart), Action::Restart(*host));
                }
            }
        }
    }

    /// Attaches the recorders. Returns the trace, to be finished after the run.
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
        let mut known: Vec<_> = spoken.filter_map(|protocol| protocol.kind.dissector()).collect();
        known.sort_by_key(|one| dissect::ALL.iter().position(|other| other == one));
        known.dedup();
        let describe = move |datagram: &[u8]| dissect::describe(&known, datagram);
        self.world.trace(describe, move |row| {
            lines.lock().unwrap_or_else(PoisonError::into_inner).line(row);
        });
        Ok(Some(trace))
    }

    /// Runs the world.
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
                    // Nothing happens before this: the clock advances.
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
        for (begins, request) in plan::requests(scenario, transfer)? {
            let host = self.hosts[self.node(begins)?];
            let crashed = |world: &World<HostEngine>| {
                // At its start a world has no engines; the call creates them.
                world.now() > Time::ZERO && world.engine(host).is_none()
            };
            // An engine that just started may wait for its store.
            let is_ready = |installed: &mut HostEngine| {
                installed.engine().is_none_or(|engine| engine.is_ready())
            };
            while !crashed(&self.world)
                && !self.world.call(host, |installed, _| is_ready(installed))
            {
                if self.world.step().is_none() {
                    break;
                }
            }
            let answered = if crashed(&self.world) {
                Err(format!("{begins} was down"))
            } else {
                self.world.call(host, |installed, now| match installed.engine_mut() {
                    Some(engine) => {
                        engine.send(now, &request).map(drop).map_err(|error| error.to_string())
                    }
                    None => Err(format!("{begins} is a gateway")),
                })
            };
            answer = answer.and(answered);
        }
        self.answers[index] = Some(answer);
        Ok(())
    }

    /// Transfers under way in engines, by node.
    fn under_way(&self) -> BTreeMap<String, usize> {
        let installed = self.hosts.iter().map(|host| (*host, self.world.engine(*host)));
        let count = |(host, installed): (HostId, Option<&HostEngine>)| {
            let count = installed.map_or(0, |installed| match installed {
                HostEngine::Engine(engine) => engine.under_way(),
                HostEngine::Gateway(gateway) => gateway.under_way(),
            });
            (count > 0).then(|| (self.world.host_name(host).to_owned(), count))
        };
        installed.filter_map(count).collect()
    }

    /// Metrics of gateways, by node.
    fn gateways(&self) -> BTreeMap<String, GatewayMetrics> {
        let of = |host: &HostId| {
            let gateway = self.world.engine(*host)?.gateway()?;
            Some((self.world.host_name(*host).to_owned(), gateway.metrics()))
        };
        self.hosts.iter().filter_map(of).collect()
    }

    /// Observations of its transfers.
    fn observations(&mut self) -> Observations {
        let hosts = self.hosts.iter();
        let index: BTreeMap<_, _> =
            hosts.clone().zip(0..).map(|(host, index)| (*host, index)).collect();
        let answered = self.world.drain_indications();
        let mut begins = ByFile::default();
        let (mut latencies, mut ends) = (ByFile::default(), ByFile::default());
        for (at, host, event) in answered {
            let Some(host) = index.get(&host).copied() else { continue };
            if let Some(end) = event.end() {
                ends.push(host, end.name.clone(), (at, end));
            } else if let Event::Begins(name) = event {
                begins.push(host, name, at);
            } else if let Event::Latency(name, latency) = event {
                latencies.push(host, name, latency);
            }
        }
        let engine = |host: &HostId| self.world.engine(*host).and_then(HostEngine::engine);
        let repairs = |host: &HostId| engine(host)?.counters().repairs;
        let buffers = |host: &HostId| engine(host)?.counters().buffers;
        let bundles = |host: &HostId| engine(host)?.counters().bundles;
        Observations {
            answers: self.answers.clone(),
            begins,
            latencies,
            ends,
            hosts: hosts.clone().map(|host| self.world.host_stats(*host).clone()).collect(),
            repairs: hosts.clone().map(repairs).collect(),
            buffers: hosts.clone().map(buffers).collect(),
            bundles: hosts.map(bundles).collect(),
            links: self.links.iter().map(|link| self.world.link_stats(*link).clone()).collect(),
            alone: true,
        }
    }

    fn node(&self, name: &str) -> Result<usize, SpecError> {
        self.topology.node(name).ok_or_else(|| unresolved(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_initial_length_of_a_grown_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        std::fs::write(&file, "0123456789").unwrap();
        let text = format!(
            "seed = 1\nlinks = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]\n\
             transfers = [{{ from = \"a\", to = \"b\", file = {file:?} }}]\n"
        );
        let scenario = Scenario::parse(&text, "test").unwrap().resolved().unwrap();
        assert_eq!(contents_within(&scenario, 4).unwrap()[0], "0123");
        assert_eq!(contents_within(&scenario, 40).unwrap()[0], "0123456789");
        assert_eq!(contents(&scenario).unwrap()[0], "0123456789");
    }

    #[test]
    fn stores_accept_the_longest_file() {
        let world = r#"
            seed = 1
            links = [{ from = "a", to = "b" }, { from = "b", to = "a" }]
            transfers = [{ from = "a", to = "b" }]
        "#;
        let world = Scenario::parse(world, "world").unwrap().resolved().unwrap();
        // Untouched pages of zeros take no memory.
        let len = (1 << 30) + 1;
        let mut simulation = Simulation::build(&world, &[vec![0; len].into()]).unwrap();
        for host in simulation.hosts.clone() {
            assert_eq!(simulation.world.store(host).files().file_max(), len as u64);
        }
    }
}
