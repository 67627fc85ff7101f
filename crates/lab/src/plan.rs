//! Plan of a scenario's engines: their nodes, their paths, their requests. It is the same in the
//! simulator and in the emulator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use bytes::Bytes;
use engine::{FileName, PathId, PathInfo, PathKind};
use proto::ltpt::Otherwise;
use transport::overlay::Overlay;
use transport::quantity::Size;
use transport::text::SpecError;
use transport::{Configuration, SendRequest};

use crate::overlay::{self, Hop, hops};
use crate::scenario::{Node, Scenario, StoreFaults, Transfer};
use crate::topology::Topology;

/// Engine of one node.
#[derive(Debug)]
pub struct EnginePlan {
    /// The node's number.
    pub host: usize,
    /// The UDP port that it sends from and listens on.
    pub port: u16,
    /// Its configuration.
    pub config: Box<dyn Configuration>,
    /// Its paths, in the order in which they are added.
    pub paths: Vec<PathPlan>,
    /// Its IP interfaces, by the links that they lead over, if it reads and writes whole packets;
    /// then it has no paths.
    pub interfaces: Vec<(PathId, usize, PathInfo)>,
}

/// Path of an engine.
#[derive(Clone, Debug)]
pub enum PathPlan {
    /// A peer.
    Peer {
        /// What the engine calls it.
        path: PathId,
        /// Its address and port.
        remote: (Ipv4Addr, u16),
        /// The first link on the way.
        link: usize,
        /// What the engine is told of the way.
        info: PathInfo,
    },
    /// Peers to which no links lead back: it only hears them.
    Listen {
        /// What the engine is told of ways to peers that it did not know.
        info: PathInfo,
    },
    /// A group.
    Group {
        /// What the engine calls it.
        path: PathId,
        /// Its address and port.
        remote: (Ipv4Addr, u16),
        /// What the engine is told of the ways to its members.
        info: PathInfo,
        /// The links that what it sends to the group goes over, with the hosts where they begin.
        links: Vec<(usize, usize)>,
        /// Its own address.
        source: Ipv4Addr,
    },
}

/// The engines of a resolved scenario.
///
/// # Errors
///
/// When the scenario is not resolved, or an engine cannot be what it says.
pub fn engines(scenario: &Scenario, topology: &Topology<'_>) -> Result<Vec<EnginePlan>, SpecError> {
    let plan = Planner { scenario, topology };
    let mut engines = Vec::new();
    for (index, (name, node)) in scenario.nodes.iter().enumerate() {
        engines.extend(plan.engine(index, name, node)?);
    }
    Ok(engines)
}

struct Planner<'a> {
    scenario: &'a Scenario,
    topology: &'a Topology<'a>,
}

impl Planner<'_> {
    fn engine(
        &self,
        index: usize,
        name: &str,
        node: &Node,
    ) -> Result<Option<EnginePlan>, SpecError> {
        let Self { scenario, topology } = self;
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
            config.set_file_name(file);
        }
        let interfaces = self.interfaces(index, node, config.as_mut());
        let mut paths = Vec::new();
        let tree = topology.tree(index);
        let shares = self.shares(name)?;
        for (peer, (peer_name, peer_node)) in scenario.nodes.iter().enumerate() {
            if !overlay::are_neighbours(&scenario.transfers, name, peer_name) {
                continue;
            }
            let Some(route) = tree.route(peer) else {
                // No links lead back to a peer that it may hear.
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
            paths.push(PathPlan::Peer { path, remote: (address, remote), link, info });
            config.set_path(entity, path);
            config.set_peer(path, (address, remote), interface(link));
            for behind in self.behind(name, peer_name)? {
                config.set_path(behind, path);
            }
        }
        config.set_routes(self.next_engines(name)?, Otherwise::Itself);
        self.join_groups(index, node, config.as_mut(), &mut paths)?;
        Ok(Some(EnginePlan { host: index, port, config, paths, interfaces }))
    }

    /// The interfaces of a node that has such: one for each link that begins there.
    fn interfaces(
        &self,
        index: usize,
        node: &Node,
        config: &mut dyn Configuration,
    ) -> Vec<(PathId, usize, PathInfo)> {
        if !config.has_interfaces() {
            return Vec::new();
        }
        let links = self.scenario.links.iter().enumerate();
        let own = links.filter(|(link, _)| self.topology.ends(*link).0 == index);
        if let (Some(address), Some(port)) = (node.address, node.port) {
            let interfaces: Vec<_> = own.clone().map(|(link, _)| interface(link)).collect();
            config.set_own((address, port), &interfaces);
        }
        let info = |link: usize, mtu: u64| PathInfo {
            kind: PathKind::Datagram { mtu: usize::try_from(mtu).unwrap_or(usize::MAX) },
            ..self.topology.path_info(&[link])
        };
        own.map(|(link, spec)| (interface(link), link, info(link, spec.mtu_bytes()))).collect()
    }

    /// How many transfers of its own a node has over each link, where it sends one file to several
    /// receivers, each by itself.
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

    /// The routes to the receivers of a transfer, each `None` if there is no way.
    fn routes(&self, transfer: &Transfer) -> Result<Vec<Option<Vec<usize>>>, SpecError> {
        let tree = self.topology.tree(self.node(&transfer.from)?);
        transfer.to.names().map(|to| Ok(tree.route(self.node(to)?))).collect()
    }

    /// Makes a node a member of the groups that it sends or listens to, and leads what it sends
    /// there to all others.
    fn join_groups(
        &self,
        index: usize,
        node: &Node,
        config: &mut dyn Configuration,
        paths: &mut Vec<PathPlan>,
    ) -> Result<(), SpecError> {
        let Self { scenario, topology } = self;
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
                // It can only listen.
                for transfer in transfers() {
                    routes.extend(topology.route(self.node(&transfer.from)?, index));
                }
            }
            let info = topology.group_info(&routes);
            let path = group_path(scenario, number);
            paths.push(PathPlan::Group { path, remote: (address, remote), info, links, source });
            config.add_group(path);
        }
        Ok(())
    }

    /// The neighbour to which `name` passes on what is for others by LTP-T, there and back.
    fn next_engines(&self, name: &str) -> Result<BTreeMap<u64, u64>, SpecError> {
        let mut routes = BTreeMap::new();
        let entity = |name: &str| self.scenario.nodes[name].entity.ok_or_else(|| unresolved(name));
        let is_passed_on = |t: &&Transfer| t.protocol.as_ref().is_some_and(|p| p.kind.has_relays());
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

    /// The entities with which `name` has transactions that neighbour `next` hands on.
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

/// What has to be asked for a transfer, and of which nodes: once where all receivers are sent to as
/// a group, else for each of them.
pub fn requests<'s>(
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

/// Checks that there are ways for all transfers.
pub fn check_ways(scenario: &Scenario, topology: &Topology<'_>) -> Result<(), SpecError> {
    scenario.transfers.iter().try_for_each(|transfer| topology.check_ways(scenario, transfer))
}

/// Puts the files that a node sends into its store, which misbehaves as the scenario says.
pub fn fill_store(
    store: &mut sim::Store,
    scenario: &Scenario,
    (name, node): (&str, &Node),
    contents: &[Bytes],
) -> Result<(), SpecError> {
    if let Some(faults) = &node.store {
        store.set_faults(store_faults(faults));
    }
    // What is sent is held in memory already; any host may come to hold a copy of it.
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

/// The interface over a link.
pub fn interface(link: usize) -> PathId {
    PathId(u32::try_from(link).unwrap_or(u32::MAX))
}

/// The path that stands for the group of this number, behind those that stand for nodes.
fn group_path(scenario: &Scenario, number: usize) -> PathId {
    PathId(u32::try_from(scenario.nodes.len() + number).unwrap_or(u32::MAX))
}

/// Name of a transfer's file at its receiver.
///
/// # Errors
///
/// When it cannot be that of a file.
pub fn file_name(transfer: &Transfer) -> Result<FileName, SpecError> {
    named(transfer.name.as_deref().unwrap_or_default())
}

fn named(name: &str) -> Result<FileName, SpecError> {
    FileName::file(name).map_err(|error| SpecError::invalid(format!("{name:?}: {error}")))
}

/// Error of a scenario with a node `name` that is not resolved.
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
