//! Routes between nodes over the links of a scenario.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{PathInfo, PathKind, Time};
use transport::text::{self, SpecError};

use crate::bound::Hop;
use crate::link_spec::LinkSpec;
use crate::overlay;
use crate::scenario::Scenario;
use crate::theory::IP_UDP_BYTES;

/// Nodes and links of a resolved scenario.
#[derive(Debug)]
pub struct Topology<'a> {
    names: Vec<&'a str>,
    /// Numbers of the nodes.
    numbers: BTreeMap<&'a str, usize>,
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
    hop: Hop,
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
    fn new(hop: &Hop) -> Self {
        let config = hop.config();
        let (mtu, owlt) = (hop.payload_max, config.delay.propagation_at(Time::ZERO));
        let Some(rate) = config.rate_at(Time::ZERO) else {
            return Self { mtu, owlt, limit: None, busy: Duration::ZERO };
        };
        // The additional time per packet counts as the bytes that take as long: 60 us at 10.24
        // Mbit/s are 77 bytes.
        let idle = config.per_packet.as_nanos() * u128::from(rate);
        let idle = u64::try_from(idle.div_ceil(8_000_000_000)).unwrap_or(u64::MAX);
        let overhead = usize::try_from(IP_UDP_BYTES + config.framing.overhead() as u64 + idle)
            .unwrap_or(usize::MAX);
        let info = PathInfo { rate_bps: Some(rate), overhead, ..PathInfo::datagram(0) };
        let busy = info.transmission_time(usize::try_from(mtu).unwrap_or(1024));
        Self { mtu, owlt, limit: Some((rate, overhead)), busy }
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
    /// A link names no existing node, or contradicts itself.
    pub fn new(scenario: &'a Scenario) -> Result<Self, SpecError> {
        let names: Vec<_> = scenario.nodes.keys().map(String::as_str).collect();
        let numbers: BTreeMap<_, _> = names.iter().copied().zip(0..).collect();
        let find = |name: &Option<String>| {
            name.as_deref().and_then(|name| numbers.get(name).copied()).ok_or_else(|| {
                SpecError::invalid("links: each link leads from a node to a node".to_owned())
            })
        };
        let mut parallel = BTreeMap::<_, usize>::new();
        let edge = |spec: &'a LinkSpec| {
            let (from, to) = (find(&spec.from)?, find(&spec.to)?);
            let before = parallel.entry((from, to)).or_default();
            let hop = Hop::new(link::stream(names[from], names[to], *before), spec)?;
            *before += 1;
            Ok(Edge { from, to, spec, pace: Pace::new(&hop), hop })
        };
        let links: Vec<_> = scenario.links.iter().map(edge).collect::<Result<_, SpecError>>()?;
        let waypoints = overlay::waypoints(scenario);
        let forwards = names.iter().map(|name| !waypoints.contains(name)).collect();
        let mut leaving = vec![Vec::new(); names.len()];
        for (index, link) in links.iter().enumerate() {
            leaving[link.from].push(index);
        }
        Ok(Self { names, numbers, forwards, links, leaving })
    }

    /// Returns the number of a node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
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

    /// Returns the link with the smallest datagrams on a route, by the names of its ends, and the
    /// bytes of the longest.
    #[must_use]
    pub fn narrowest(&self, route: &[usize]) -> Option<((&'a str, &'a str), u64)> {
        let links = route.iter().map(|link| &self.links[*link]);
        let link = links.min_by_key(|link| link.pace.mtu)?;
        Some(((self.names[link.from], self.names[link.to]), link.pace.mtu))
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

    /// A name that only one link has, and that resembles another node's.
    pub(crate) fn suggest_name(&self) -> Option<String> {
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
    #[must_use]
    pub fn hops(&self, route: &[usize]) -> Vec<Hop> {
        route.iter().map(|link| self.links[*link].hop.clone()).collect()
    }

    /// Returns hops for transports whose packets are as long as the MTU, regardless of the datagram
    /// limit: TCP, and the bound of all transports.
    #[must_use]
    pub fn hops_of_mtu(&self, route: &[usize]) -> Vec<Hop> {
        let hop = |link: &usize| {
            let Edge { hop, spec, .. } = &self.links[*link];
            let mut hop = hop.clone();
            hop.payload_max = spec.datagram_max();
            hop
        };
        route.iter().map(hop).collect()
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
        // A link may have thousands of contacts: bounds of all transfers share it.
        let (one, other) = (topology.hops(&[0]), topology.hops_of_mtu(&[0]));
        assert!(std::ptr::eq(one[0].config(), other[0].config()));
    }
}
