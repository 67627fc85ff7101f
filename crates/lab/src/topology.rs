//! Routes between nodes over the links of a scenario.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{PathInfo, PathKind, Time};
use transport::quantity::Size;
use transport::text::{self, SpecError};

use crate::bound::Hop;
use crate::link_spec::LinkSpec;
use crate::overlay;
use crate::scenario::{Node, Scenario, Transfer};
use crate::theory::IP_UDP_BYTES;

/// Nodes and links of a resolved scenario.
#[derive(Debug)]
pub struct Topology<'a> {
    names: Vec<&'a str>,
    /// Whether each node forwards packets; waypoints do not.
    forwards: Vec<bool>,
    links: Vec<Edge<'a>>,
    /// Links that start at each node, in the order of the scenario.
    leaving: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct Edge<'a> {
    from: usize,
    to: usize,
    spec: &'a LinkSpec,
    pace: Pace,
}

/// Properties of one link at the epoch, for engines.
#[derive(Debug)]
struct Pace {
    mtu: u64,
    owlt: Duration,
    /// Rate, if any, and overhead of each datagram in bytes.
    limit: Option<(u64, usize)>,
    /// Time for a full datagram.
    busy: Duration,
}

impl Pace {
    fn new(spec: &LinkSpec) -> Result<Self, SpecError> {
        let config = spec.config()?;
        let (mtu, owlt) = (spec.payload_max(), config.delay.at(Time::ZERO));
        let Some(rate) = config.rate_at(Time::ZERO) else {
            return Ok(Self { mtu, owlt, limit: None, busy: Duration::ZERO });
        };
        // The additional time per packet counts as the bytes that take as long: 60 us at 10.24
        // Mbit/s are 77 bytes.
        let idle = config.per_packet.as_nanos() * u128::from(rate);
        let idle = u64::try_from(idle.div_ceil(8_000_000_000)).unwrap_or(u64::MAX);
        let overhead = usize::try_from(IP_UDP_BYTES + config.framing.overhead() as u64 + idle)
            .unwrap_or(usize::MAX);
        let info = PathInfo { rate_bps: Some(rate), overhead, ..PathInfo::datagram(0) };
        let busy = info.transmission_time(usize::try_from(mtu).unwrap_or(1024));
        Ok(Self { mtu, owlt, limit: Some((rate, overhead)), busy })
    }
}

/// Shortest routes (fewest hops) from one node to all others; of equals, the links written first.
/// No route leads through a waypoint.
#[derive(Clone, Debug)]
pub struct Tree {
    root: usize,
    /// Link by which each node was reached, and the previous node.
    came_over: Vec<Option<(usize, usize)>>,
}

impl Tree {
    /// Returns the links from the root to a node; `None` if there is no route.
    #[must_use]
    pub fn route(&self, to: usize) -> Option<Vec<usize>> {
        let mut route = Vec::new();
        let mut node = to;
        while node != self.root {
            let (link, before) = self.came_over[node]?;
            route.push(link);
            node = before;
        }
        route.reverse();
        Some(route)
    }
}

impl<'a> Topology<'a> {
    /// Returns the topology of a resolved scenario.
    ///
    /// # Errors
    ///
    /// A link names no existing node.
    pub fn new(scenario: &'a Scenario) -> Result<Self, SpecError> {
        let names: Vec<_> = scenario.nodes.keys().map(String::as_str).collect();
        let index: BTreeMap<_, _> = names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
        let find = |name: &Option<String>| {
            name.as_deref().and_then(|name| index.get(name).copied()).ok_or_else(|| {
                SpecError::invalid("links: each link leads from a node to a node".to_owned())
            })
        };
        let edge = |spec: &'a LinkSpec| {
            let (from, to) = (find(&spec.from)?, find(&spec.to)?);
            Ok(Edge { from, to, spec, pace: Pace::new(spec)? })
        };
        let links: Vec<_> = scenario.links.iter().map(edge).collect::<Result<_, SpecError>>()?;
        let waypoints = overlay::waypoints(scenario);
        let forwards = names.iter().map(|name| !waypoints.contains(name)).collect();
        let mut leaving = vec![Vec::new(); names.len()];
        for (index, link) in links.iter().enumerate() {
            leaving[link.from].push(index);
        }
        Ok(Self { names, forwards, links, leaving })
    }

    /// Returns the number of a node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    /// Whether a node forwards packets of others.
    #[must_use]
    pub fn forwards(&self, node: usize) -> bool {
        self.forwards[node] && self.leaving[node].len() > 1
    }

    /// Returns the sending and the receiving node of a link.
    #[must_use]
    pub fn ends(&self, link: usize) -> (usize, usize) {
        (self.links[link].from, self.links[link].to)
    }

    /// Returns the routes from a node to all others.
    #[must_use]
    pub fn tree(&self, root: usize) -> Tree {
        let mut came_over: Vec<Option<(usize, usize)>> = vec![None; self.names.len()];
        let mut next = VecDeque::from([root]);
        while let Some(node) = next.pop_front() {
            if node != root && !self.forwards[node] {
                continue;
            }
            for index in &self.leaving[node] {
                let to = self.links[*index].to;
                if to != root && came_over[to].is_none() {
                    came_over[to] = Some((*index, node));
                    next.push_back(to);
                }
            }
        }
        Tree { root, came_over }
    }

    /// Returns the links from one node to another; `None` if there is no route. See [`Tree`].
    #[must_use]
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        self.tree(from).route(to)
    }

    /// Returns the links of an overlay's routes from waypoint to waypoint; `None` if there is no
    /// route.
    #[must_use]
    pub fn route_by(&self, waypoints: &[usize]) -> Option<Vec<usize>> {
        let hops = waypoints.windows(2).map(|pair| self.route(pair[0], pair[1]));
        Some(hops.collect::<Option<Vec<_>>>()?.concat())
    }

    /// Checks that there is a route to the receiver of a transfer, and back if it replies.
    ///
    /// # Errors
    ///
    /// Names the two nodes without a route, and a possibly misspelled name.
    pub fn check_ways(&self, scenario: &Scenario, transfer: &Transfer) -> Result<(), SpecError> {
        let ways: Vec<_> = transfer.ways().collect();
        let leads = |from: &str, to: &str| match (self.node(from), self.node(to)) {
            (Some(from), Some(to)) => self.route(from, to).is_some(),
            _ => false,
        };
        let slip = || self.slip().unwrap_or_default();
        for pair in ways.iter().flat_map(|waypoints| waypoints.windows(2)) {
            let &[near, far] = pair else { continue };
            self.check_width(scenario, transfer, (near, far))?;
            if !leads(near, far) {
                return Err(SpecError::invalid(format!(
                    "no links lead from {near} to {far}{}",
                    slip()
                )));
            }
            if scenario.is_reliable(transfer) && !leads(far, near) {
                return Err(SpecError::invalid(format!(
                    "no links lead back from {far} to {near}, and {} needs its answers{}",
                    transfer.carrier(),
                    slip()
                )));
            }
        }
        Ok(())
    }

    /// Checks that all links on a route support the smallest datagrams of a transfer.
    fn check_width(
        &self,
        scenario: &Scenario,
        transfer: &Transfer,
        (near, far): (&str, &str),
    ) -> Result<(), SpecError> {
        let route = self.node(near).zip(self.node(far)).and_then(|(from, to)| self.route(from, to));
        let (Some(protocol), Some(route)) = (&transfer.protocol, route) else { return Ok(()) };
        let (sender, receiver) = (&scenario.nodes[near], &scenario.nodes[far]);
        let entity = |node: &Node| node.entity.unwrap_or_default();
        let config = transport::configure(protocol, entity(sender), sender.mib.as_ref())?;
        let name = transfer.name.as_deref().unwrap_or_default();
        let least = config.least_datagram(entity(receiver), name, transfer.bytes())?;
        let narrow = route.iter().map(|link| &self.links[*link]).min_by_key(|link| link.pace.mtu);
        match narrow.zip(least).filter(|(link, least)| link.pace.mtu < *least) {
            Some((link, least)) => Err(SpecError::invalid(format!(
                "link {} -> {}: datagrams are {} at most, and {protocol} needs {} for {name:?}: \
                 set `mtu` to {} or more",
                self.names[link.from],
                self.names[link.to],
                Size(link.pace.mtu),
                Size(least),
                Size(least + IP_UDP_BYTES),
            ))),
            None => Ok(()),
        }
    }

    /// A name that only one link has, and that resembles another node's.
    fn slip(&self) -> Option<String> {
        let ends = |node: usize| {
            let at = |link: &&Edge<'_>| link.from == node || link.to == node;
            self.links.iter().filter(at).count()
        };
        (0..self.names.len()).filter(|node| ends(*node) == 1).find_map(|node| {
            let name = self.names[node];
            let others = self.names.iter().copied().filter(|other| *other != name);
            let near = text::nearest(name, others)?;
            Some(format!("; only one link names {name:?}: did you mean {near:?}?"))
        })
    }

    /// Returns the properties of a route for engines: the largest datagram, the slowest hop's rate
    /// and overhead, and the light time, all at the epoch.
    #[must_use]
    pub fn path_info(&self, route: &[usize]) -> PathInfo {
        self.shared_info(route, &BTreeMap::new())
    }

    /// Returns the properties for one of several transfers of one sender: `shares` is the number of
    /// transfers over each link, which share its rate equally.
    #[must_use]
    pub fn shared_info(&self, route: &[usize], shares: &BTreeMap<usize, u64>) -> PathInfo {
        self.info(&[route], shares)
    }

    /// Returns the properties of a group for engines, by the routes to its members: the largest
    /// datagram that reaches all, the slowest hop's rate and overhead, and the longest light time.
    #[must_use]
    pub fn group_info(&self, routes: &[Vec<usize>]) -> PathInfo {
        let routes: Vec<_> = routes.iter().map(Vec::as_slice).collect();
        self.info(&routes, &BTreeMap::new())
    }

    fn info(&self, routes: &[&[usize]], shares: &BTreeMap<usize, u64>) -> PathInfo {
        let mut info = PathInfo::datagram(0);
        let (mut mtu, mut slowest) = (u64::MAX, Duration::ZERO);
        for link in routes.iter().copied().flatten() {
            let pace = &self.links[*link].pace;
            let share = shares.get(link).copied().unwrap_or(1).max(1);
            let busy = pace.busy.saturating_mul(u32::try_from(share).unwrap_or(u32::MAX));
            mtu = mtu.min(pace.mtu);
            if let Some((rate, overhead)) = pace.limit.filter(|_| busy > slowest) {
                slowest = busy;
                (info.rate_bps, info.overhead) = (Some((rate / share).max(1)), overhead);
            }
        }
        info.kind = PathKind::Datagram { mtu: usize::try_from(mtu).unwrap_or(usize::MAX) };
        let light_time = |route: &&[usize]| -> Duration {
            route.iter().map(|link| self.links[*link].pace.owlt).sum()
        };
        info.owlt = Some(routes.iter().map(light_time).max().unwrap_or_default());
        info
    }

    /// Returns the route as the bound models it. Links have the simulator's names, so that their
    /// errors are drawn alike.
    ///
    /// # Errors
    ///
    /// A link contradicts itself.
    pub fn hops(&self, route: &[usize]) -> Result<Vec<Hop>, SpecError> {
        let hop = |link: &usize| {
            let Edge { from, to, spec, .. } = &self.links[*link];
            let before = &self.links[..*link];
            let count = before.iter().filter(|l| (l.from, l.to) == (*from, *to)).count();
            let name = link::stream(self.names[*from], self.names[*to], count);
            Hop::new(name, spec)
        };
        route.iter().map(hop).collect()
    }

    /// Returns hops for transports whose packets are as long as the MTU, regardless of the datagram
    /// limit: TCP, and the bound of all transports.
    ///
    /// # Errors
    ///
    /// A link contradicts itself.
    pub fn hops_of_mtu(&self, route: &[usize]) -> Result<Vec<Hop>, SpecError> {
        let mut hops = self.hops(route)?;
        for (hop, link) in hops.iter_mut().zip(route) {
            hop.payload_max = self.links[*link].spec.datagram_max();
        }
        Ok(hops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_take_the_fewest_hops() {
        let scenario = Scenario::parse(
            r#"
            seed = 1
            transfers = []
            links = [
                { from = "a", to = "b", rate = "2 Mbit/s", delay = "1 s" },
                { from = "b", to = "c", rate = "1 Mbit/s", delay = "2 s", per_packet = "80 us" },
                { from = "c", to = "a", rate = "9 kbit/s" },
            ]
            "#,
            "test",
        )
        .unwrap()
        .resolved()
        .unwrap();
        let topology = Topology::new(&scenario).unwrap();
        let node = |name| topology.node(name).unwrap();
        assert_eq!(topology.route(node("a"), node("c")), Some(vec![0, 1]));
        assert_eq!(topology.route(node("c"), node("b")), Some(vec![2, 0]));
        let info = topology.path_info(&[0, 1]);
        assert_eq!(info.kind, PathKind::Datagram { mtu: 1472 });
        // 28 + 14 bytes of headers, and 80 us at 1 Mbit/s are 10 bytes.
        assert_eq!((info.rate_bps, info.overhead), (Some(1_000_000), 52));
        assert_eq!(info.owlt, Some(Duration::from_secs(3)));
    }
}
