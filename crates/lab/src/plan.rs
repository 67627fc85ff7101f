//! Plan of a scenario's engines: their nodes, paths and requests. The simulator and the emulator
//! use the same plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::Bytes;
use engine::{FileName, PathId, PathInfo, PathKind};
use ltp::ltpt::{Otherwise, Routing};
use transport::contract::Feature;
use transport::overlay::Overlay;
use transport::quantity::Size;
use transport::text::SpecError;
use transport::{Configuration, SendRequest};

use crate::overlay::{self, Hop, hops};
use crate::scenario::{Node, Scenario, StoreFaults, Transfer};
use crate::topology::Topology;
use crate::ways::Ways;

/// Engine of one node.
#[derive(Debug)]
pub struct EnginePlan {
    /// Number of the node.
    pub host: usize,
    /// UDP port.
    pub port: u16,
    /// Configuration.
    pub config: Box<dyn Configuration>,
    /// Paths, in the order in which they are added.
    pub paths: Vec<PathPlan>,
    /// IP interfaces, by their links, if the engine handles whole packets; then it has no paths.
    pub interfaces: Vec<(PathId, usize, PathInfo)>,
}

/// Path of an engine.
#[derive(Clone, Debug)]
pub enum PathPlan {
    /// A peer.
    Peer {
        /// Number of the path.
        path: PathId,
        /// Address and port.
        remote: SocketAddrV4,
        /// First link of the route.
        link: usize,
        /// Properties of the route.
        info: PathInfo,
    },
    /// Peers without a link back: the engine only receives from them.
    Listen {
        /// Properties of paths to unknown peers.
        info: PathInfo,
    },
    /// A group.
    Group {
        /// Number of the path.
        path: PathId,
        /// Address and port.
        remote: SocketAddrV4,
        /// Combined properties of the routes to its members.
        info: PathInfo,
        /// Links of the multicast tree, with the hosts where they start.
        links: Vec<(usize, usize)>,
        /// Source address.
        source: Ipv4Addr,
    },
}

/// Returns the engines of a resolved scenario.
///
/// # Errors
///
/// The scenario is not resolved, or an engine's configuration is invalid.
pub fn engines(scenario: &Scenario, topology: &Topology<'_>) -> Result<Vec<EnginePlan>, SpecError> {
    let plan = Planner { scenario, topology, neighbours: overlay::neighbours(&scenario.transfers) };
    let mut engines = Vec::new();
    for (index, (name, node)) in scenario.nodes.iter().enumerate() {
        engines.extend(plan.engine(index, name, node)?);
    }
    Ok(engines)
}

struct Planner<'a> {
    scenario: &'a Scenario,
    topology: &'a Topology<'a>,
    neighbours: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl Planner<'_> {
    fn engine(
        &self,
        index: usize,
        name: &str,
        node: &Node,
    ) -> Result<Option<EnginePlan>, SpecError> {
        let Self { scenario, topology, neighbours } = self;
        let Some(protocol) = &node.protocol else { return Ok(None) };
        let entity = node.entity.ok_or_else(|| unresolved(name))?;
        let port = node.port.ok_or_else(|| unresolved(name))?;
        let mut config = transport::configure(protocol, entity, node.mib.as_ref())?;
        if let Some(silence) = node.inactivity {
            config.set_inactivity(silence.duration());
        }
        let is_incoming = |t: &&Transfer| t.to.names().any(|to| to == name);
        let incoming = scenario.transfers.iter().find(is_incoming);
        if let Some(file) = incoming.and_then(|transfer| transfer.name.as_deref()) {
            config.store_unnamed(Some(file));
        }
        let interfaces = self.interfaces(index, node, config.as_mut());
        let mut paths = Vec::new();
        let tree = topology.tree(index);
        let shares = self.shares(name)?;
        for &peer_name in neighbours.get(name).into_iter().flatten() {
            let (peer, peer_node) = (self.node(peer_name)?, &scenario.nodes[peer_name]);
            let Some(route) = tree.route(peer) else {
                // A peer that only sends to this node may have no link back.
                let way = topology.route(peer, index);
                paths.extend(way.map(|way| PathPlan::Listen { info: topology.path_info(&way) }));
                continue;
            };
            let path = PathId(u32::try_from(peer).unwrap_or(u32::MAX));
            let (Some(address), Some(remote), Some(entity), Some(link)) =
                (peer_node.address, peer_node.port, peer_node.entity, route.first().copied())
            else {
                return Err(unresolved(peer_name));
            };
            let back = topology.route(peer, index);
            let return_bps = back.and_then(|back| topology.path_info(&back).rate_bps);
            let info = PathInfo { return_bps, ..topology.shared_info(&route, &shares) };
            paths.push(PathPlan::Peer {
                path,
                remote: SocketAddrV4::new(address, remote),
                link,
                info,
            });
            config.set_path(entity, path);
            if let Some(interfaces) = config.interfaces() {
                interfaces.set_peer(path, address, remote, interface(link));
            }
            for behind in self.behind(name, peer_name)? {
                config.set_path(behind, path);
            }
        }
        let to = self.next_engines(name)?;
        if let Some(routing) = config.relaying() {
            *routing = Routing::Static { to, otherwise: Otherwise::Itself };
        }
        self.join_groups(index, node, config.as_mut(), &mut paths)?;
        Ok(Some(EnginePlan { host: index, port, config, paths, interfaces }))
    }

    /// Interfaces of a node that uses them: one for each link that starts there.
    fn interfaces(
        &self,
        index: usize,
        node: &Node,
        config: &mut dyn Configuration,
    ) -> Vec<(PathId, usize, PathInfo)> {
        let Some(interfaces) = config.interfaces() else { return Vec::new() };
        let links = self.scenario.links.iter().enumerate();
        let own = links.filter(|(link, _)| self.topology.ends(*link).0 == index);
        if let (Some(address), Some(port)) = (node.address, node.port) {
            let paths: Vec<_> = own.clone().map(|(link, _)| interface(link)).collect();
            interfaces.set_own(address, port, &paths);
        }
        let info = |link: usize, mtu: u64| PathInfo {
            kind: PathKind::Datagram { mtu: usize::try_from(mtu).unwrap_or(usize::MAX) },
            ..self.topology.path_info(&[link])
        };
        own.map(|(link, spec)| (interface(link), link, info(link, spec.mtu_bytes()))).collect()
    }

    /// Number of a node's own transfers over each link, where it sends one file to several
    /// receivers by unicast.
    fn shares(&self, name: &str) -> Result<BTreeMap<usize, u64>, SpecError> {
        let mut shares = BTreeMap::new();
        let fans_out = |transfer: &&Transfer| {
            transfer.from == name && transfer.to.0.len() > 1 && !transfer.is_multicast()
        };
        for transfer in self.scenario.transfers.iter().filter(fans_out) {
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

    /// Routes to the receivers of a transfer; `None` if there is no route.
    fn routes(&self, transfer: &Transfer) -> Result<Vec<Option<Vec<usize>>>, SpecError> {
        let tree = self.topology.tree(self.node(&transfer.from)?);
        transfer.to.names().map(|to| Ok(tree.route(self.node(to)?))).collect()
    }

    /// Makes a node a member of the groups that it sends or listens to, with routes for its
    /// multicast.
    fn join_groups(
        &self,
        index: usize,
        node: &Node,
        config: &mut dyn Configuration,
        paths: &mut Vec<PathPlan>,
    ) -> Result<(), SpecError> {
        let Self { scenario, topology, .. } = self;
        for (number, (name, group)) in scenario.groups.iter().enumerate() {
            let uses = |t: &&Transfer| t.is_multicast() && t.group.as_ref() == Some(name);
            let transfers = || scenario.transfers.iter().filter(uses);
            let all = transfers().flat_map(Transfer::everybody).map(|name| self.node(name));
            let all = all.collect::<Result<BTreeSet<_>, _>>()?;
            if !all.contains(&index) {
                continue;
            }
            let tree = topology.tree(index);
            let mut routes: Vec<_> =
                all.iter().filter(|to| **to != index).filter_map(|to| tree.route(*to)).collect();
            let (Some(source), Some(address), Some(remote)) =
                (node.address, group.address, group.port)
            else {
                return Err(unresolved(name));
            };
            let links: BTreeSet<_> = routes.iter().flatten().copied().collect();
            let links = links.into_iter().map(|link| (topology.ends(link).0, link)).collect();
            if routes.is_empty() {
                // A node without routes to the group can only receive.
                for transfer in transfers() {
                    routes.extend(topology.route(self.node(&transfer.from)?, index));
                }
            }
            let info = topology.group_info(&routes);
            let path = group_path(scenario, number);
            paths.push(PathPlan::Group {
                path,
                remote: SocketAddrV4::new(address, remote),
                info,
                links,
                source,
            });
            if let Some(membership) = config.membership() {
                membership.join(path);
            }
        }
        Ok(())
    }

    /// Neighbours to which `name` forwards by LTP-T, in both directions.
    fn next_engines(&self, name: &str) -> Result<BTreeMap<u64, u64>, SpecError> {
        let mut routes = BTreeMap::new();
        let entity = |name: &str| self.scenario.nodes[name].entity.ok_or_else(|| unresolved(name));
        let is_passed_on =
            |t: &&Transfer| t.protocol.as_ref().is_some_and(|p| p.kind.has(Feature::Relays));
        for transfer in self.scenario.transfers.iter().filter(is_passed_on) {
            for Hop { next, to, .. } in transfer.ways().flat_map(hops).filter(|hop| hop.at == name)
            {
                let next = entity(next)?;
                if routes.insert(entity(to)?, next).is_some_and(|other| other != next) {
                    return Err(SpecError::invalid(format!(
                        "two ways lead from {name} to {to}: an engine of LTP-T has one"
                    )));
                }
            }
        }
        Ok(routes)
    }

    /// Entities with which `name` has transactions that neighbour `next` forwards.
    fn behind(&self, name: &str, next: &str) -> Result<Vec<u64>, SpecError> {
        let mut entities = Vec::new();
        for transfer in &self.scenario.transfers {
            if transfer.overlay != Some(Overlay::Extended) {
                continue;
            }
            let Some(mut waypoints) = transfer.ways().next() else { continue };
            for _ in ["there", "back"] {
                let far = waypoints[waypoints.len() - 1];
                if waypoints[..2] == [name, next] {
                    let entity = self.scenario.nodes[far].entity;
                    entities.push(entity.ok_or_else(|| unresolved(far))?);
                }
                waypoints.reverse();
            }
        }
        Ok(entities)
    }

    fn node(&self, name: &str) -> Result<usize, SpecError> {
        self.topology.node(name).ok_or_else(|| unresolved(name))
    }
}

/// Returns the requests of a transfer with their nodes: one if all receivers are sent to as a
/// group, else one for each.
pub fn requests<'s>(
    scenario: &'s Scenario,
    transfer: &'s Transfer,
) -> Result<Vec<(&'s str, SendRequest)>, SpecError> {
    let protocol = transfer.protocol.as_ref().ok_or_else(|| unresolved(&transfer.from))?;
    let group = transfer.group.as_ref().filter(|_| transfer.is_multicast());
    let group = group.and_then(|name| scenario.groups.keys().position(|known| known == name));
    let request = |receiver: &'s str| {
        let (begins, other) = if protocol.kind.top().is_fetched {
            (receiver, transfer.from.as_str())
        } else {
            (transfer.from.as_str(), receiver)
        };
        let request = SendRequest {
            group: group.map(|number| group_path(scenario, number)),
            records: transfer.records.clone().unwrap_or_default(),
            class: scenario.class(transfer, receiver),
            overlay: transfer.overlay,
            ..SendRequest::new(
                file_name(transfer)?,
                transfer.name.as_deref().unwrap_or_default(),
                scenario.nodes[other].entity.ok_or_else(|| unresolved(other))?,
                protocol.kind,
            )
        };
        Ok((begins, request))
    };
    let count = if group.is_some() { 1 } else { usize::MAX };
    transfer.to.names().take(count).map(request).collect()
}

/// Checks that there are routes for all transfers.
pub fn check_ways(scenario: &Scenario, topology: &Topology<'_>) -> Result<(), SpecError> {
    let mut ways = Ways::new(scenario, topology);
    scenario.transfers.iter().try_for_each(|transfer| ways.check(transfer))
}

/// Puts the files that a node sends into its store, which has the scenario's faults.
pub fn fill_store(
    store: &mut sim::Store,
    scenario: &Scenario,
    name: &str,
    node: &Node,
    contents: &[Bytes],
) -> Result<(), SpecError> {
    if let Some(faults) = &node.store {
        store.set_faults(store_faults(faults));
    }
    // The files are held in memory already; any host may obtain a copy.
    let longest = contents.iter().map(|content| content.len() as u64).max().unwrap_or(0);
    store.files_mut().raise_file_max(longest);
    for (transfer, content) in scenario.transfers.iter().zip(contents) {
        let (sends, receives) = (transfer.from == name, transfer.to.names().any(|to| to == name));
        if !sends && !receives {
            continue;
        }
        let files = transfer.files(content);
        if let Some(content) = files.at_sender.filter(|_| sends) {
            store.insert(file_name(transfer)?, content);
        }
        if let Some((file, content)) = files.at_receiver.filter(|_| receives) {
            store.insert(named(&file)?, content);
        }
    }
    Ok(())
}

/// Returns the interface over a link.
pub fn interface(link: usize) -> PathId {
    PathId(u32::try_from(link).unwrap_or(u32::MAX))
}

/// Returns the path of the group of this number, after the paths of nodes.
fn group_path(scenario: &Scenario, number: usize) -> PathId {
    PathId(u32::try_from(scenario.nodes.len() + number).unwrap_or(u32::MAX))
}

/// Returns the name of a transfer's file at its receiver.
///
/// # Errors
///
/// The name is not valid for a file.
pub fn file_name(transfer: &Transfer) -> Result<FileName, SpecError> {
    named(transfer.name.as_deref().unwrap_or_default())
}

fn named(name: &str) -> Result<FileName, SpecError> {
    FileName::file(name).map_err(|error| SpecError::invalid(format!("{name:?}: {error}")))
}

/// Returns the error of a scenario with a node `name` that is not resolved.
#[must_use]
pub fn unresolved(name: &str) -> SpecError {
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
