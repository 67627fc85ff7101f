//! Transfers of a scenario by external programs, in addition to slowlight's own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use emu::World;
use engine::Time;
use lab::adapter::{self, Adapter, Ready, Verdict};
use lab::bound::{self, Hop};
use lab::link_spec::time;
use lab::metrics::{Least, Traffic, TransferMetrics};
use lab::plan;
use lab::scenario::{Scenario, Transfer};
use lab::topology::Topology;
use rt::Clock;
use sha2::{Digest as _, Sha256};
use transport::text::SpecError;

use super::error::TransfersError;
use crate::scratch::Scratch;
use crate::tool::{self, Job, Outcome};

/// Polling interval for start and stop.
const LOOK: Duration = Duration::from_millis(25);
/// Number of ports tried for a server.
const PORTS_TRIED: usize = 100;

/// A transfer by a tool.
#[derive(Debug)]
pub(super) struct Errand<'a> {
    /// Its number.
    pub(super) index: usize,
    adapter: Adapter,
    file: PathBuf,
    bytes: u64,
    sha256: [u8; 32],
    from: &'a emu::Host,
    to: &'a emu::Host,
    port: Held<'a>,
    port2: Option<Held<'a>>,
    rate: Option<u64>,
    start: Time,
    until: Time,
}

/// Channels between errands and the world.
pub(super) struct Ties<'a> {
    /// Notified when the preparation of the clients is done.
    pub(super) ready: mpsc::Sender<Result<(), TransfersError>>,
    /// Receives the world's start.
    pub(super) begin: mpsc::Receiver<Clock>,
    /// Set when all must end.
    pub(super) stop: &'a AtomicBool,
    /// Number of unfinished errands.
    pub(super) at_work: &'a AtomicUsize,
}

/// Checks that this machine has the tools of a resolved scenario.
///
/// # Errors
///
/// Names the first missing tool, and how to install it.
pub fn check(scenario: &Scenario) -> Result<(), SpecError> {
    for (index, transfer) in scenario.transfers.iter().enumerate() {
        let Some(tool) = &transfer.tool else { continue };
        let failed = |error| SpecError::invalid(format!("transfers[{index}].tool: {error}"));
        adapter::named(tool).and_then(|adapter| tool::check(&adapter)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the transfers by tools. Generated files are written into a folder. Servers get the
/// ports of their adapters, or the next free ones.
pub(super) fn errands<'a>(
    world: &'a World,
    ports: &'a Ports,
    scenario: &Scenario,
    topology: &Topology<'_>,
    contents: &[Bytes],
    folder: &Scratch,
) -> Result<Vec<Errand<'a>>, TransfersError> {
    let mut errands = Vec::new();
    let engines = of_engines(scenario);
    for (index, (transfer, content)) in scenario.transfers.iter().zip(contents).enumerate() {
        let Some(tool) = &transfer.tool else { continue };
        let adapter = adapter::named(tool)?;
        let Some(receiver) = transfer.to.names().next() else { continue };
        let host = |name: &str| world.host(name).ok_or_else(|| plan::unresolved(name));
        let server = if adapter.pulls { &transfer.from } else { receiver };
        let server = host(server)?;
        let take = |wanted| ports.take(server, wanted, &engines);
        let (port, port2) = (take(adapter.port)?, adapter.port2.map(take).transpose()?);
        let file = match &transfer.file {
            Some(file) => file.clone(),
            None => folder.path().join(format!("file-{}", index + 1)),
        };
        if transfer.file.is_none() {
            fs::write(&file, content).map_err(|error| TransfersError::Tool {
                tool: adapter.name.clone(),
                error: io::Error::new(error.kind(), format!("{}: {error}", file.display())),
            })?;
        }
        errands.push(Errand {
            index,
            file,
            bytes: content.len() as u64,
            sha256: Sha256::digest(content).into(),
            from: host(&transfer.from)?,
            to: host(receiver)?,
            port,
            port2,
            rate: topology.path_info(&route(topology, transfer)).rate_bps,
            start: time(transfer.start.unwrap_or_default()),
            until: scenario.limits.time.map_or(Time::MAX, time),
            adapter,
        });
    }
    Ok(errands)
}

/// A port of a host.
type Port = (String, u16);

/// Ports of tools' servers in a world, including reserved ones.
#[derive(Debug, Default)]
pub struct Ports(Mutex<BTreeSet<Port>>);

/// A reserved port.
#[derive(Debug)]
struct Held<'a> {
    ports: &'a Ports,
    host: String,
    port: u16,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.ports.locked().remove(&(mem::take(&mut self.host), self.port));
    }
}

/// Returns the ports of slowlight's own engines.
fn of_engines(scenario: &Scenario) -> BTreeSet<Port> {
    let nodes = scenario.nodes.iter().filter(|(_, node)| node.protocol.is_some());
    nodes.filter_map(|(name, node)| Some((name.clone(), node.port?))).collect()
}

impl Ports {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first free port, from `wanted` on.
    fn take(
        &self,
        host: &emu::Host,
        wanted: u16,
        engines: &BTreeSet<Port>,
    ) -> Result<Held<'_>, TransfersError> {
        let name = &host.plan().name;
        let used = |port| {
            let used = |ready| tool::listens(host, ready, port);
            used(Ready::Tcp).and_then(|tcp| Ok(tcp || used(Ready::Udp)?))
        };
        let failed = |error| TransfersError::Tool { tool: "looking for a port".to_owned(), error };
        let none =
            || SpecError::invalid(format!("{name}: no port is free for the servers of tools"));
        let held = self.hold(name.as_str(), wanted, engines, used).map_err(failed)?;
        held.ok_or_else(|| none().into())
    }

    /// Reserves the first port that is neither reserved nor in use, from `wanted` on.
    fn hold(
        &self,
        host: &str,
        wanted: u16,
        engines: &BTreeSet<Port>,
        used: impl Fn(u16) -> io::Result<bool>,
    ) -> io::Result<Option<Held<'_>>> {
        let mut held = self.locked();
        let of = |port: u16| (host.to_owned(), port);
        let taken = |port: &u16| held.contains(&of(*port)) || engines.contains(&of(*port));
        let free: Vec<_> = (wanted..=u16::MAX).filter(|it| !taken(it)).take(PORTS_TRIED).collect();
        for port in free {
            if !used(port)? {
                held.insert(of(port));
                return Ok(Some(Held { ports: self, host: host.to_owned(), port }));
            }
        }
        Ok(None)
    }
}

/// Links to the receiver.
fn route(topology: &Topology<'_>, transfer: &Transfer) -> Vec<usize> {
    let ends = transfer.to.names().next().and_then(|to| topology.node(to));
    let ends = topology.node(&transfer.from).zip(ends);
    ends.and_then(|(from, to)| topology.route(from, to)).unwrap_or_default()
}

impl Errand<'_> {
    /// Prepares the tool, and runs it at its start time; `None` if that was never reached.
    pub(super) fn run(&self, ties: &Ties<'_>) -> Option<Result<Outcome, TransfersError>> {
        let outcome = self.carry(ties);
        ties.at_work.fetch_sub(1, Ordering::Relaxed);
        let tool = || self.adapter.name.clone();
        Some(outcome?.map_err(|error| TransfersError::Tool { tool: tool(), error }))
    }

    fn carry(&self, Ties { ready, begin, stop, .. }: &Ties<'_>) -> Option<io::Result<Outcome>> {
        let job = Job {
            adapter: &self.adapter,
            file: &self.file,
            bytes: self.bytes,
            sha256: self.sha256,
            from: self.from,
            to: self.to,
            port: self.port.port,
            port2: self.port2.as_ref().map(|held| held.port),
            rate: self.rate,
            limit: self.until.since(self.start),
        };
        let prepared = job.prepare(stop);
        // If one host fails, there is no receiver.
        let _ = ready.send(Ok(()));
        let clock = begin.recv().ok()?;
        while clock.now() < self.start {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            thread::sleep(LOOK.min(self.start.since(clock.now())));
        }
        match prepared {
            Ok(Ok(prepared)) => Some(prepared.run(stop)),
            Ok(Err(outcome)) => Some(Ok(outcome)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the metrics of the transfer.
    pub(super) fn metrics(
        &self,
        scenario: &Scenario,
        topology: &Topology<'_>,
        outcome: Option<Outcome>,
    ) -> Result<TransferMetrics, SpecError> {
        let transfer = &scenario.transfers[self.index];
        let outcome = outcome.unwrap_or_else(|| Outcome {
            verdict: Verdict::Failed,
            seconds: None,
            goodput_bps: None,
            why: Some("it was never requested".to_owned()),
        });
        let verified = outcome.verdict == Verdict::Identical;
        let completed = verified || outcome.verdict == Verdict::Measured;
        let ways = [topology.hops(&route(topology, transfer))];
        let bound = bound::bound_of_all(&ways, self.bytes, self.start, scenario.seed);
        let bound_s = bound.seconds.is_finite().then_some(bound.seconds);
        let delivered_s = outcome.seconds.filter(|_| verified);
        let efficiency =
            |(bound, delivered): (f64, f64)| (delivered > 0.0).then_some(bound / delivered);
        Ok(TransferMetrics {
            from: transfer.from.clone(),
            to: transfer.group.clone().unwrap_or_else(|| transfer.to.to_string()),
            protocol: self.adapter.name.clone(),
            verdict: Some(outcome.verdict),
            name: transfer.name.clone().unwrap_or_default(),
            file_bytes: self.bytes,
            completed,
            verified,
            wrong_success: outcome.verdict == Verdict::Different,
            failure: outcome.why,
            delivered_s,
            // A sender reports only the exit status of the program.
            confirmed_s: outcome.seconds,
            ready_s: None,
            latency: None,
            transfer_s: None,
            quiet_s: None,
            wire_s: None,
            goodput_bps: outcome.goodput_bps,
            goodput_grc_bps: None,
            bound_s,
            least: Least {
                bound_is_mean: ways.iter().flatten().any(Hop::is_random),
                bound_payload: bound.payload,
                bound_spent: None,
            },
            efficiency: bound_s.zip(delivered_s).and_then(efficiency),
            spent: None,
            traffic: Traffic::default(),
            receivers: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(transfers: &str) -> Result<Scenario, SpecError> {
        let text = format!(
            "seed = 1\nlinks = [{{ from = \"a\", to = \"b\", rate = \"1 Mbit/s\" }}, \
             {{ from = \"b\", to = \"a\" }}]\ntransfers = [{transfers}]\n"
        );
        Scenario::parse(&text, "test")?.resolved()
    }

    #[test]
    fn invalid_tools_are_refused() {
        for (more, why) in [
            (
                "tool = \"spc\"",
                "transfers[0].tool: there is no tool \"spc\"; did you mean \"scp\"?",
            ),
            ("tool = \"nowhere/x.toml\"", "nowhere/x.toml"),
            ("tool = \"scp\", protocol = \"cfdp\"", "give `tool` or `protocol`, not both"),
            ("tool = \"scp\", via = [\"c\"]", "transfers[0].via"),
        ] {
            let failed = resolved(&format!("{{ from = \"a\", to = \"b\", {more} }}")).unwrap_err();
            assert!(failed.to_string().contains(why), "{failed}");
        }
    }

    #[test]
    fn servers_of_a_host_get_their_own_ports() {
        let one = "{ from = \"a\", to = \"b\", tool = \"scp\" }";
        let own = "{ from = \"b\", to = \"a\", protocol = \"cfdp\" }";
        let scenario = resolved(&format!("{one}, {one}, {own}")).unwrap();
        assert_eq!(scenario.nodes["a"].protocol, scenario.nodes["b"].protocol);
        let (ports, engines) = (Ports::default(), of_engines(&scenario));
        let hold = |host, wanted| {
            let used = |port| Ok(port == 2224);
            ports.hold(host, wanted, &engines, used).unwrap().unwrap()
        };
        let first = hold("b", 2222);
        let others = [hold("b", 2222), hold("b", 2222), hold("a", 2222)];
        assert_eq!(first.port, 2222);
        assert_eq!(others.each_ref().map(|held| held.port), [2223, 2225, 2222], "one is in use");
        assert_eq!(hold("a", 2501).port, 2502, "an engine has the first");
        drop(first);
        assert_eq!(hold("b", 2222).port, 2222, "it was given back");
    }

    #[test]
    fn simulated_scenarios_have_no_tools() {
        let scenario = resolved("{ from = \"a\", to = \"b\", tool = \"iperf3-cubic\" }").unwrap();
        let failed = lab::run::refuse_tools(&scenario).unwrap_err().to_string();
        assert!(
            failed.contains("iperf3-cubic") && failed.contains("slowlight emu run"),
            "{failed}"
        );
        let failed = scenario.to_toml().unwrap();
        let again = Scenario::parse(&failed, "again").unwrap().resolved().unwrap();
        assert_eq!(again, scenario, "{failed}");
    }
}
