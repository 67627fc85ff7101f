//! Gateways that split TCP connections as nodes of a simulated world.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use engine::{
    Deadline, Effect, Engine, Input, PathId, PathInfo, PathKind, Rng, Time, Transmit, TxBuf,
};
use proto::stack::{Gateway, GatewayConfig};
use proto::tcp::{Counts, Route};
use serde::Serialize;
use transport::pep::{PepConfig, buffer_for};
use transport::settings::PepSettings;
use transport::text::SpecError;
use transport::{Event, Transport};

use crate::link_spec::LinkSpec;
use crate::plan::{interface, unresolved};
use crate::scenario::{Node, Scenario};
use crate::topology::Topology;

/// The gateway of one node.
#[derive(Debug)]
pub(crate) struct GatewayPlan {
    /// The node's number.
    pub(crate) host: usize,
    /// Its configuration.
    pub(crate) config: GatewayConfig,
    /// Its interfaces, by the links that they lead over, and whether that is the satellite's side.
    pub(crate) interfaces: Vec<(PathId, usize, PathInfo)>,
    /// Those of the satellite's side.
    pub(crate) wan: BTreeSet<PathId>,
}

/// The gateways of a resolved scenario.
///
/// # Errors
///
/// When the scenario is not resolved, or a gateway cannot be what it says.
pub(crate) fn gateways(
    scenario: &Scenario,
    topology: &Topology<'_>,
) -> Result<Vec<GatewayPlan>, SpecError> {
    let nodes = scenario.nodes.iter().enumerate();
    let gateways = nodes.filter_map(|(index, (name, node))| {
        let settings = node.pep.as_ref()?;
        Some(gateway(scenario, topology, index, (name, node), settings))
    });
    gateways.collect()
}

fn gateway(
    scenario: &Scenario,
    topology: &Topology<'_>,
    host: usize,
    (name, node): (&str, &Node),
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

/// Where packets to others go: over the satellite to all that are not known to be elsewhere. All of
/// these are one route, so that they share what a route has of its own.
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

/// Fills in what the scenario's gateways leave out.
///
/// # Errors
///
/// When a node cannot be a gateway, or cannot be what it says.
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
                "a gateway is no end of a transfer; put it between two nodes",
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

/// The one-way delay of a link at the beginning.
fn owlt(link: &LinkSpec) -> Time {
    link.config().map_or(Time::ZERO, |config| Time::ZERO + config.delay.at(Time::ZERO))
}

/// The neighbour towards which the satellite's side leads: the one that is named, else the only one
/// that is a gateway, too, else the farthest.
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
            "say with wan.towards to which neighbour the satellite's side leads ({})",
            known()
        ))),
    }
}

/// What a gateway did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatewayMetrics {
    /// Connections that it took, and what became of them.
    pub accepted: u64,
    /// Connections that both ends closed.
    pub completed: u64,
    /// Connections that an end reset.
    pub reset: u64,
    /// Connections whose server did not accept.
    pub not_connected: u64,
    /// Connections that were silent for too long.
    pub idle: u64,
    /// Connections that it did not take.
    pub turned_away: u64,
    /// The most connections at one time.
    pub open_peak: usize,
    /// The most bytes that it held for all connections.
    pub buffered_peak: usize,
    /// Bytes that it passed on to servers.
    pub bytes_to_servers: u64,
    /// Bytes that it passed on to clients.
    pub bytes_to_clients: u64,
    /// Its connections on the satellite's side.
    pub wan: SideMetrics,
    /// Its connections on the other side.
    pub lan: SideMetrics,
}

/// What a gateway's connections on one side did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SideMetrics {
    /// Bytes of data that it sent, those that were sent again included.
    pub bytes_sent: u64,
    /// Segments that it sent again.
    pub retransmissions: u64,
    /// Time-outs.
    pub timeouts: u64,
}

impl SideMetrics {
    fn of(counts: Counts) -> Self {
        let Counts { bytes_sent, retransmissions, timeouts, .. } = counts;
        Self { bytes_sent, retransmissions, timeouts }
    }
}

/// Engine of a node: that of a protocol, or a gateway.
#[derive(Debug)]
pub(crate) enum HostEngine {
    Engine(Box<dyn Transport>),
    Gateway(Box<GatewayNode>),
}

/// A gateway, with what its interfaces are.
#[derive(Debug)]
pub(crate) struct GatewayNode {
    gateway: Gateway,
    wan: BTreeSet<PathId>,
    lan: BTreeSet<PathId>,
}

impl GatewayPlan {
    /// A gateway so configured.
    pub(crate) fn build(&self, rng: Rng) -> HostEngine {
        let all = self.interfaces.iter().map(|(path, _, _)| *path);
        let lan = all.filter(|path| !self.wan.contains(path)).collect();
        let gateway = self.config.build(rng);
        HostEngine::Gateway(Box::new(GatewayNode { gateway, wan: self.wan.clone(), lan }))
    }
}

impl GatewayNode {
    /// What it did.
    pub(crate) fn metrics(&self) -> GatewayMetrics {
        let proxy = self.gateway.above().statistics();
        let below = self.gateway.below();
        let side = |paths: &BTreeSet<PathId>| {
            let counts = paths.iter().map(|path| below.totals_over(*path));
            SideMetrics::of(counts.fold(Counts::default(), |sum, counts| sum + counts))
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

    /// Connections there are.
    pub(crate) fn under_way(&self) -> usize {
        self.gateway.above().statistics().open
    }
}

impl HostEngine {
    /// The engine, if it speaks a protocol.
    pub(crate) fn engine(&self) -> Option<&dyn Transport> {
        match self {
            Self::Engine(engine) => Some(engine.as_ref()),
            Self::Gateway(_) => None,
        }
    }

    /// The engine, to ask something of it.
    pub(crate) fn engine_mut(&mut self) -> Option<&mut dyn Transport> {
        match self {
            Self::Engine(engine) => Some(engine.as_mut()),
            Self::Gateway(_) => None,
        }
    }

    /// The gateway, if it is one.
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
                // A transfer's ends tell of it; what gateways did is counted.
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
