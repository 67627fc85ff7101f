//! Gateways that split TCP connections, as nodes of a simulated world.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use engine::{
    Deadline, Effect, Engine, Input, PathId, PathInfo, PathKind, Rng, Time, Transmit, TxBuf,
};
use serde::Serialize;
use stack::{Gateway, GatewayConfig};
use tcp::{Counts, Route};
use transport::pep::{PepConfig, PepSettings, buffer_for};
use transport::text::SpecError;
use transport::{Event, Transport};

use crate::link_spec::LinkSpec;
use crate::plan::{interface, unresolved};
use crate::scenario::{Node, Scenario};
use crate::topology::Topology;

/// The gateway of one node.
#[derive(Debug)]
pub(crate) struct GatewayPlan {
    /// Number of the node.
    pub(crate) host: usize,
    /// Configuration of the gateway.
    pub(crate) config: GatewayConfig,
    /// Interfaces, by their links, and whether each is on the satellite's side.
    pub(crate) interfaces: Vec<(PathId, usize, PathInfo)>,
    /// Interfaces of the satellite's side.
    pub(crate) wan: BTreeSet<PathId>,
}

/// Returns the gateways of a resolved scenario.
///
/// # Errors
///
/// The scenario is not resolved, or a gateway is invalid.
pub(crate) fn gateways(
    scenario: &Scenario,
    topology: &Topology<'_>,
) -> Result<Vec<GatewayPlan>, SpecError> {
    let nodes = scenario.nodes.iter().enumerate();
    let gateways = nodes.filter_map(|(index, (name, node))| {
        let settings = node.pep.as_ref()?;
        Some(gateway(scenario, topology, index, name, node, settings))
    });
    gateways.collect()
}

fn gateway(
    scenario: &Scenario,
    topology: &Topology<'_>,
    host: usize,
    name: &str,
    node: &Node,
    settings: &PepSettings,
) -> Result<GatewayPlan, SpecError> {
    let own = IpAddr::V4(node.address.ok_or_else(|| unresolved(name))?);
    let mut given = PepConfig::default();
    let applied = settings.apply(&mut given);
    applied.map_err(|error| SpecError::invalid(format!("nodes.{name}.pep: {error}")))?;
    let PepConfig { proxy: pep, early_accept, wan: satellite, lan } = given;
    let towards = satellite.towards.and_then(|towards| topology.node(&towards));
    let towards = towards.ok_or_else(|| unresolved(name))?;
    let addresses = vec![own];
    let mut config = GatewayConfig { pep, addresses, early_accept, ..GatewayConfig::default() };
    let (mut interfaces, mut wan) = (Vec::new(), BTreeSet::new());
    for (link, spec) in scenario.links.iter().enumerate() {
        let (from, to) = topology.ends(link);
        if from != host {
            continue;
        }
        let path = interface(link);
        let mtu = usize::try_from(spec.mtu_bytes()).unwrap_or(usize::MAX);
        let kind = PathKind::Datagram { mtu };
        interfaces.push((path, link, PathInfo { kind, ..topology.path_info(&[link]) }));
        let side = if to == towards { &satellite.connections } else { &lan };
        config.tcp.interfaces.insert(path, side.options.clone());
        if to == towards {
            wan.insert(path);
        }
    }
    config.tcp.routes = routes(scenario, topology, host, &wan);
    Ok(GatewayPlan { host, config, interfaces, wan })
}

/// Routes of a gateway: the default is over the satellite. All destinations beyond the satellite
/// share this route, and thus the state that belongs to a route.
fn routes(
    scenario: &Scenario,
    topology: &Topology<'_>,
    host: usize,
    wan: &BTreeSet<PathId>,
) -> Vec<Route> {
    let tree = topology.tree(host);
    let others = scenario.nodes.values().enumerate().filter(|(index, _)| *index != host);
    let known = others.filter_map(|(index, node)| {
        let first = tree.route(index)?.first().copied()?;
        Some(Route { prefix: IpAddr::V4(node.address?), bits: 32, path: interface(first) })
    });
    let elsewhere = known.filter(|route| !wan.contains(&route.path));
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let by_satellite = wan.first().map(|path| Route { prefix: any, bits: 0, path: *path });
    elsewhere.chain(by_satellite).collect()
}

/// Fills in defaults of the scenario's gateways.
///
/// # Errors
///
/// A node cannot be a gateway, or its settings are invalid.
pub(crate) fn settle(scenario: &mut Scenario) -> Result<(), SpecError> {
    let gateways: BTreeSet<String> = {
        let nodes = scenario.nodes.iter().filter(|(_, node)| node.pep.is_some());
        nodes.map(|(name, _)| name.clone()).collect()
    };
    for name in &gateways {
        let invalid = |error: SpecError| SpecError::invalid(format!("nodes.{name}.pep: {error}"));
        let Some(node) = scenario.nodes.get(name) else { continue };
        if node.protocol.is_some() {
            return Err(invalid(SpecError::invalid(
                "a gateway cannot be the end of a transfer; put it between two nodes",
            )));
        }
        let Some(settings) = &node.pep else { continue };
        let towards = wan_neighbour(scenario, &gateways, name, settings).map_err(invalid)?;
        let between = |from: &str, to: &str| {
            let ends = |link: &&LinkSpec| {
                (link.from.as_deref(), link.to.as_deref()) == (Some(from), Some(to))
            };
            scenario.links.iter().find(ends)
        };
        let (there, back) = (between(name, &towards), between(&towards, name));
        let delay = |link: Option<&LinkSpec>| link.map_or(Time::ZERO, owlt).since(Time::ZERO);
        let rate = there.and_then(|link| link.rate).filter(|rate| rate.bps() > 0);
        let buffer = rate.map(|rate| buffer_for(rate.bps(), delay(there) + delay(back)));
        let settings = settings.written_out(&towards, buffer).map_err(invalid)?;
        if let Some(node) = scenario.nodes.get_mut(name) {
            node.pep = Some(settings);
        }
    }
    Ok(())
}

/// One-way delay of a link at the start.
fn owlt(link: &LinkSpec) -> Time {
    link.config().map_or(Time::ZERO, |config| Time::ZERO + config.delay.propagation_at(Time::ZERO))
}

/// Neighbour on the satellite's side: the configured one, else the only gateway, else the
/// farthest.
fn wan_neighbour(
    scenario: &Scenario,
    gateways: &BTreeSet<String>,
    name: &str,
    settings: &PepSettings,
) -> Result<String, SpecError> {
    let leaving = scenario.links.iter().filter(|link| link.from.as_deref() == Some(name));
    let neighbours: BTreeMap<&str, Time> =
        leaving.filter_map(|link| Some((link.to.as_deref()?, owlt(link)))).collect();
    if neighbours.len() < 2 {
        return Err(SpecError::invalid("a gateway needs links to at least two neighbours"));
    }
    let known = || neighbours.keys().copied().collect::<Vec<_>>().join(", ");
    let given = settings.get(&["wan", "towards"]).and_then(|towards| towards.as_str());
    if let Some(towards) = given {
        if neighbours.contains_key(towards) {
            return Ok(towards.to_owned());
        }
        return Err(SpecError::invalid(format!(
            "wan.towards: no link leads to {towards:?} (neighbours: {})",
            known()
        )));
    }
    let others: Vec<_> =
        neighbours.keys().filter(|neighbour| gateways.contains(**neighbour)).collect();
    if let [only] = others[..] {
        return Ok((*only).to_owned());
    }
    let longest = neighbours.values().max().copied().unwrap_or_default();
    let mut farthest = neighbours.iter().filter(|(_, delay)| **delay == longest);
    match (farthest.next(), farthest.next()) {
        (Some((neighbour, _)), None) => Ok((*neighbour).to_owned()),
        _ => Err(SpecError::invalid(format!(
            "set wan.towards to the neighbour on the satellite's side ({})",
            known()
        ))),
    }
}

/// Statistics of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatewayMetrics {
    /// Connections accepted, with the following outcomes.
    pub accepted: u64,
    /// Connections closed by both ends.
    pub completed: u64,
    /// Connections reset by an end.
    pub reset: u64,
    /// Connections refused by the server.
    pub not_connected: u64,
    /// Connections ended by the idle timeout.
    pub idle: u64,
    /// Connections refused by the gateway.
    pub turned_away: u64,
    /// Maximum concurrent connections.
    pub open_peak: usize,
    /// Maximum bytes buffered for all connections.
    pub buffered_peak: usize,
    /// Bytes forwarded to servers.
    pub bytes_to_servers: u64,
    /// Bytes forwarded to clients.
    pub bytes_to_clients: u64,
    /// Connections on the satellite's side.
    pub wan: SideMetrics,
    /// Connections on the other side.
    pub lan: SideMetrics,
}

/// Statistics of a gateway's connections on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SideMetrics {
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl SideMetrics {
    fn from_counts(counts: Counts) -> Self {
        let Counts { bytes_sent, retransmissions, timeouts, .. } = counts;
        Self { bytes_sent, retransmissions, timeouts }
    }
}

/// Engine of a node: a protocol's engine, or a gateway.
#[derive(Debug)]
pub(crate) enum HostEngine {
    Engine(Box<dyn Transport>),
    Gateway(Box<GatewayNode>),
}

/// A gateway with its interfaces.
#[derive(Debug)]
pub(crate) struct GatewayNode {
    gateway: Gateway,
    wan: BTreeSet<PathId>,
    lan: BTreeSet<PathId>,
}

impl GatewayPlan {
    /// Creates a gateway.
    pub(crate) fn build(&self, rng: Rng) -> HostEngine {
        let all = self.interfaces.iter().map(|(path, _, _)| *path);
        let lan = all.filter(|path| !self.wan.contains(path)).collect();
        let gateway = self.config.build(rng);
        HostEngine::Gateway(Box::new(GatewayNode { gateway, wan: self.wan.clone(), lan }))
    }
}

impl GatewayNode {
    /// Returns its statistics.
    pub(crate) fn metrics(&self) -> GatewayMetrics {
        let proxy = self.gateway.above().statistics();
        let below = self.gateway.below();
        let side = |paths: &BTreeSet<PathId>| {
            let counts = paths.iter().map(|path| below.totals_over(*path));
            SideMetrics::from_counts(counts.fold(Counts::default(), |sum, counts| sum + counts))
        };
        GatewayMetrics {
            accepted: proxy.accepted,
            completed: proxy.completed,
            reset: proxy.reset,
            not_connected: proxy.not_connected,
            idle: proxy.idle,
            turned_away: proxy.turned_away + self.gateway.statistics().turned_away,
            open_peak: proxy.open_peak,
            buffered_peak: proxy.buffered_peak,
            bytes_to_servers: proxy.bytes[0],
            bytes_to_clients: proxy.bytes[1],
            wan: side(&self.wan),
            lan: side(&self.lan),
        }
    }

    /// Returns the number of open connections.
    pub(crate) fn under_way(&self) -> usize {
        self.gateway.above().statistics().open
    }
}

impl HostEngine {
    /// Returns the engine, if it is a protocol's.
    pub(crate) fn engine(&self) -> Option<&dyn Transport> {
        match self {
            Self::Engine(engine) => Some(engine.as_ref()),
            Self::Gateway(_) => None,
        }
    }

    /// Returns the engine for requests, if it is a protocol's.
    pub(crate) fn engine_mut(&mut self) -> Option<&mut dyn Transport> {
        match self {
            Self::Engine(engine) => Some(engine.as_mut()),
            Self::Gateway(_) => None,
        }
    }

    /// Returns the gateway, if it is one.
    pub(crate) fn gateway(&self) -> Option<&GatewayNode> {
        match self {
            Self::Engine(_) => None,
            Self::Gateway(gateway) => Some(gateway),
        }
    }
}

impl Engine for HostEngine {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match self {
            Self::Engine(engine) => engine.handle_input(now, input),
            Self::Gateway(node) => node.gateway.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Engine(engine) => engine.handle_timeout(now),
            Self::Gateway(node) => node.gateway.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match self {
            Self::Engine(engine) => engine.poll_transmit(now, tx),
            Self::Gateway(node) => node.gateway.poll_transmit(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Engine(engine) => engine.poll_effect(),
            Self::Gateway(node) => node.gateway.poll_effect(),
        }
    }

    fn poll_indication(&mut self) -> Option<Event> {
        match self {
            Self::Engine(engine) => engine.poll_indication(),
            Self::Gateway(node) => {
                // Transfers report their own ends; a gateway only counts.
                while node.gateway.poll_indication().is_some() {}
                None
            }
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Engine(engine) => engine.poll_timeout(),
            Self::Gateway(node) => node.gateway.poll_timeout(),
        }
    }
}
