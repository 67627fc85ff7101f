//! Conversion of scenarios into plans of the emulator.

mod error;
mod host;
mod paths;
pub mod single;
pub mod tools;
pub mod transfers;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use lab::link_spec::LinkSpec;
use lab::preset::Preset;
use lab::scenario::{Capture, Limits, Node, Scenario, Transfer};
use lab::topology::Topology;
use transport::settings::tcp::TcpBuffers;
use transport::text::SpecError;

pub use self::error::TransfersError;

/// Default memory for packets in flight.
pub const MEMORY: u64 = 1 << 30;

/// Returns the emulator's plan of a resolved scenario. Hosts have the nodes' numbers and addresses
/// in the order of their names, and links the scenario's numbers; routes are the simulator's.
///
/// # Errors
///
/// The scenario is not resolved, or has links that the emulator does not support.
pub fn plan(scenario: &Scenario) -> Result<emu::Plan, SpecError> {
    let topology = Topology::new(scenario)?;
    let mut hosts = Vec::new();
    for (index, (name, node)) in scenario.nodes.iter().enumerate() {
        let address = node.address.ok_or_else(|| {
            SpecError::invalid(format!("nodes.{name}: has no address; resolve the scenario first"))
        })?;
        let forwards = topology.forwards(index);
        let (name, address6) = (name.clone(), address6(address));
        hosts.push(emu::HostPlan { name, address, address6, forwards });
    }
    let mut links = Vec::new();
    for (index, spec) in scenario.links.iter().enumerate() {
        let (from, to) = topology.ends(index);
        if spec.backpressure == Some(true) {
            let (from, to) = (&hosts[from].name, &hosts[to].name);
            return Err(SpecError::invalid(format!(
                "link {from} -> {to}: backpressure is for the simulator; a full queue of the \
                 emulator drops: remove the key"
            )));
        }
        links.push(emu::LinkPlan { from, to, config: spec.config()?, mtu: mtu(spec)? });
    }
    let routes = (0..hosts.len()).flat_map(|at| routes(&topology, at, hosts.len())).collect();
    let hubs = hubs(scenario, &topology);
    let group_routes = group_routes(scenario, &topology);
    let (seed, memory) = (scenario.seed, MEMORY);
    Ok(emu::Plan { hosts, links, hubs, routes, group_routes, seed, memory, uplink: None })
}

/// Limits the buffers of the kernel's TCP on every host of a world: to `limit`, or by default to
/// the settings of its node in the resolved scenario. Otherwise they are unlimited.
///
/// # Errors
///
/// The system refuses.
pub fn limit_tcp_buffers(
    world: &emu::World,
    scenario: &Scenario,
    limit: Option<TcpBuffers>,
) -> io::Result<()> {
    for host in world.hosts() {
        let node = scenario.nodes.get(&host.plan().name);
        let (send, receive) = most_tcp_buffers(node, limit);
        host.set_tcp_buffers(send, receive)?;
    }
    Ok(())
}

/// Maximum bytes of the send and the receive buffer of a host's TCP.
pub(crate) fn most_tcp_buffers(node: Option<&Node>, limit: Option<TcpBuffers>) -> (u64, u64) {
    let settings = || node?.mib.as_ref()?.tcp()?.most_buffers();
    limit.map(TcpBuffers::most).or_else(settings).unwrap_or_else(|| TcpBuffers::default().most())
}

/// Names of the hosts of a link without a scenario.
pub const ENDS: (&str, &str) = ("near", "far");

/// Returns a scenario of two hosts and a link of one or more hops between them, without transfers.
///
/// # Errors
///
/// The link contradicts itself.
pub fn between_two(link: &Preset, seed: u64) -> Result<Scenario, SpecError> {
    Scenario {
        seed,
        about: link.about.clone(),
        limits: Limits::default(),
        capture: Capture::default(),
        nodes: BTreeMap::new(),
        groups: BTreeMap::new(),
        links: link.chain(ENDS.0, ENDS.1),
        transfers: Vec::new(),
    }
    .resolved()
}

/// Moves the default addresses of a resolved scenario's nodes into a range that is unused around
/// the world.
pub fn shift(scenario: &mut Scenario, range: emu::Range) {
    for node in scenario.nodes.values_mut() {
        node.address = node.address.map(|address| range.shifted(address));
    }
}

/// Returns the IPv6 address of a node: its IPv4 address with a unique local prefix (RFC 4193).
#[must_use]
pub fn address6(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets();
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfd73, 0x6c6f, 0x7700, 0, 0, 0, word(a, b), word(c, d))
}

fn mtu(spec: &LinkSpec) -> Result<u32, SpecError> {
    let bytes = spec.mtu_bytes();
    // IPv6 requires 1,280 (RFC 8200 §5), and an IPv4 packet is at most 65,535.
    let mtu = u32::try_from(bytes).ok().filter(|mtu| (68..=65_535).contains(mtu));
    mtu.ok_or_else(|| {
        SpecError::invalid(format!(
            "mtu: {bytes} bytes; the emulator carries packets of 68 to 65535"
        ))
    })
}

fn routes(topology: &Topology<'_>, at: usize, hosts: usize) -> Vec<emu::Route> {
    let tree = topology.tree(at);
    let others = (0..hosts).filter(|to| *to != at);
    let route = |to| Some(emu::Route { at, to, over: *tree.route(to)?.first()? });
    others.filter_map(route).collect()
}

/// Links of hubs: where one `links` table of the scenario leads to a whole group, multicast is
/// sent once.
fn hubs(scenario: &Scenario, topology: &Topology<'_>) -> Vec<Vec<usize>> {
    let mut hubs = Vec::new();
    for group in scenario.groups.values() {
        let members: Vec<_> =
            group.members.iter().filter_map(|member| topology.node(member)).collect();
        let of_members = |link: usize| members.contains(&topology.ends(link).1);
        for from in 0..scenario.nodes.len() {
            let leaves = |link: &usize| topology.ends(*link).0 == from && of_members(*link);
            let links: Vec<_> = (0..scenario.links.len()).filter(leaves).collect();
            if links.len() > 1 && !hubs.contains(&links) {
                hubs.push(links);
            }
        }
    }
    hubs
}

/// Multicast routes from every host to the group's members and to the scenario's senders, which
/// receive the replies of others. They use the simulator's routes.
fn group_routes(scenario: &Scenario, topology: &Topology<'_>) -> Vec<emu::GroupRoute> {
    let mut group_routes = Vec::new();
    for (name, group) in &scenario.groups {
        let Some(address) = group.address else { continue };
        let uses = |t: &&Transfer| t.is_multicast() && t.group.as_ref() == Some(name);
        let users = scenario.transfers.iter().filter(uses).flat_map(Transfer::everybody);
        let members = group.members.iter().map(String::as_str);
        let all: BTreeSet<_> =
            members.chain(users).filter_map(|name| topology.node(name)).collect();
        for source in 0..scenario.nodes.len() {
            let tree = topology.tree(source);
            let routes = all.iter().filter(|to| **to != source).filter_map(|to| tree.route(*to));
            let over: BTreeSet<_> = routes.flatten().collect();
            if !over.is_empty() {
                let over = over.into_iter().collect();
                group_routes.push(emu::GroupRoute { source, group: address, over });
            }
        }
    }
    group_routes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resolved(text: &str) -> Scenario {
        Scenario::parse(text, "test").unwrap().resolved().unwrap()
    }

    #[test]
    fn hosts_links_and_routes_match_the_scenario() {
        let scenario = resolved(
            r#"
            seed = 7
            transfers = []
            links = [
                { from = "lander", to = "relay", rate = "1 Mbit/s", delay = "1 s", mtu = "1400B" },
                { from = "relay", to = "lander", delay = "1 s" },
                { from = "relay", to = "earth", delay = "2 s" },
                { from = "earth", to = "relay", delay = "2 s" },
            ]
            "#,
        );
        let plan = plan(&scenario).unwrap();
        let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["earth", "lander", "relay"]);
        assert_eq!(plan.hosts[1].address, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(plan.hosts[1].address6.to_string(), "fd73:6c6f:7700::a00:2");
        let forwards: Vec<_> = plan.hosts.iter().map(|host| host.forwards).collect();
        assert_eq!(forwards, [false, false, true], "who has one link has nothing to forward");
        let first = &plan.links[0];
        assert_eq!((first.from, first.to, first.mtu), (1, 2, 1400));
        assert_eq!(first.config.delay, link::Delay::Constant(Duration::from_secs(1)));
        let way = |at, to| plan.routes.iter().find(|r| (r.at, r.to) == (at, to)).unwrap().over;
        assert_eq!((way(1, 0), way(0, 1), way(2, 0)), (0, 3, 2));
        assert!(plan.hubs.is_empty());
    }

    #[test]
    fn links_to_a_group_share_a_device() {
        let scenario = resolved(
            r#"
            seed = 1
            groups.fleet.count = 3
            links = [
                { from = "ground", to = "fleet", delay = "1 s" },
                { from = "fleet", to = "ground", delay = "1 s" },
            ]
            transfers = [{ from = "ground", to = "fleet", protocol = "norm" }]
            "#,
        );
        let plan = plan(&scenario).unwrap();
        assert_eq!(plan.hubs.len(), 1);
        let to: Vec<_> = plan.hubs[0].iter().map(|link| plan.links[*link].to).collect();
        assert_eq!(to.len(), 3);
        assert!(
            plan.hubs[0].iter().all(|link| plan.hosts[plan.links[*link].from].name == "ground")
        );
    }

    #[test]
    fn multicast_takes_the_routes_to_its_members() {
        let scenario = resolved(
            r#"
            seed = 1
            groups.fleet.count = 2
            links = [
                { from = "ground", to = "sky" }, { from = "sky", to = "ground" },
                { from = "sky", to = "fleet" }, { from = "fleet", to = "sky" },
            ]
            transfers = [{ from = "ground", to = "fleet", protocol = "norm" }]
            "#,
        );
        let plan = plan(&scenario).unwrap();
        let ends = |over: &usize| {
            let link = &plan.links[*over];
            [link.from, link.to].map(|host| plan.hosts[host].name.as_str())
        };
        let ways = |name: &str| {
            let from = |route: &&emu::GroupRoute| plan.hosts[route.source].name == name;
            let mut routes = plan.group_routes.iter().filter(from);
            let over: BTreeSet<_> = routes.next().unwrap().over.iter().map(ends).collect();
            assert!(routes.next().is_none());
            over
        };
        let down = [["sky", "fleet-1"], ["sky", "fleet-2"]];
        assert_eq!(ways("ground"), BTreeSet::from([["ground", "sky"], down[0], down[1]]));
        let expected = [["fleet-1", "sky"], ["sky", "ground"], down[1]];
        assert_eq!(ways("fleet-1"), BTreeSet::from(expected), "the sender hears it as well");
    }

    #[test]
    fn host_buffers_follow_the_node_unless_limited() {
        let scenario = resolved(
            r#"
            seed = 1
            links = [{ from = "a", to = "b" }, { from = "b", to = "a" }]
            transfers = [{ from = "a", to = "b", protocol = "ftp" }]
            [nodes.a.mib.tcp]
            buffers = "linux"
            [nodes.b.mib.tcp]
            receive_buffer = "54750 B"
            [nodes.c]
            "#,
        );
        let most = |name: &str, limit| most_tcp_buffers(scenario.nodes.get(name), limit);
        let (linux, unlimited) = (TcpBuffers::Linux.most(), TcpBuffers::Unlimited.most());
        assert_eq!(most("a", None), linux);
        assert_eq!(most("b", None), (unlimited.0, 87_600), "the memory of this window");
        assert_eq!(most("c", None), unlimited);
        assert_eq!(most("b", Some(TcpBuffers::Linux)), linux);
        assert_eq!(most("a", Some(TcpBuffers::Unlimited)), unlimited);
    }

    #[test]
    fn links_with_backpressure_are_refused() {
        let scenario = resolved(
            r#"
            seed = 1
            transfers = []
            links = [{ from = "a", to = "b", backpressure = true }]
            "#,
        );
        let error = plan(&scenario).unwrap_err().to_string();
        assert!(error.contains("link a -> b: backpressure is for the simulator"), "{error}");
    }

    #[test]
    fn invalid_mtus_are_refused() {
        let scenario = resolved(
            r#"
            seed = 1
            transfers = []
            links = [{ from = "a", to = "b", mtu = "1 MB" }]
            "#,
        );
        let error = plan(&scenario).unwrap_err().to_string();
        assert!(error.contains("68 to 65535"), "{error}");
    }
}
