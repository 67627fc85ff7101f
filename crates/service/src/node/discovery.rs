//! Discovery of neighbours, configured by TOML, and links to the nodes that are found.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bp::codec::bp7::Eid;
use bp::discovery::{Config, Found, News, Statistics};
use engine::Rng;
use rt::{Discoverer, DiscoveryConfig};
use serde::{Deserialize, Serialize};
use transport::quantity::Span;
use transport::settings::check_interval;
use transport::text::SpecError;

use super::admit::Strangers;
use super::{Layer, NodeSpec, Way, node};

/// Longest period of beacons; other nodes expect none that is longer.
const PERIOD_MAX: Duration = Duration::from_secs(300);
/// Most nodes that may be found.
const NODES_MAX: usize = 1024;

/// Discovery of neighbours by beacons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverySpec {
    /// Names of the interfaces on which beacons are sent and received.
    pub interfaces: Vec<String>,
    /// Multicast groups with their ports.
    #[serde(default = "groups")]
    pub groups: Vec<SocketAddr>,
    /// Period of the beacons.
    #[serde(default = "period")]
    pub period: Span,
    /// Whether this node announces itself.
    #[serde(default = "super::yes")]
    pub announce: bool,
    /// Nodes that may be found: a list, or all.
    pub accept: Option<Vec<String>>,
    /// Maximum number of nodes that are found at one time.
    #[serde(default = "nodes")]
    pub nodes: usize,
}

/// Groups of dtn7.
fn groups() -> Vec<SocketAddr> {
    let ipv6 = [0xff02, 0, 0, 0, 0, 0, 0, 1];
    vec![([224, 0, 0, 26], 3003).into(), (ipv6, 3003).into()]
}

const fn period() -> Span {
    Span(Duration::from_secs(10))
}

const fn nodes() -> usize {
    64
}

impl DiscoverySpec {
    fn check(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        if self.interfaces.is_empty() {
            return invalid("discovery.interfaces is empty; write [\"eth0\"]".to_owned());
        }
        let is_one = |group: &&SocketAddr| !group.ip().is_multicast() || group.port() == 0;
        if let Some(group) = self.groups.iter().find(is_one) {
            return invalid(format!(
                "discovery.groups: invalid multicast group {group}: expected a multicast address and \
                 a port; the default is [\"224.0.0.26:3003\", \"[ff02::1]:3003\"]"
            ));
        }
        check_interval("discovery.period", Some(self.period))?;
        let period = self.period.duration();
        if !(Duration::from_secs(1)..=PERIOD_MAX).contains(&period) {
            return invalid("discovery.period is not between 1 s and 5 min".to_owned());
        }
        if self.nodes > NODES_MAX {
            return invalid(format!("discovery.nodes is more than {NODES_MAX}"));
        }
        self.accepted().map(drop)
    }

    fn accepted(&self) -> Result<Option<BTreeSet<Eid>>, SpecError> {
        let Some(accept) = &self.accept else { return Ok(None) };
        accept.iter().map(|name| node("discovery.accept", name)).collect::<Result<_, _>>().map(Some)
    }
}

impl NodeSpec {
    pub(super) fn check_discovery(&self) -> Result<(), SpecError> {
        let Some(spec) = &self.discovery else { return Ok(()) };
        spec.check()?;
        let is_deaf = spec.accept.as_ref().is_some_and(Vec::is_empty) || spec.nodes == 0;
        if !is_deaf && self.discovery_layers().is_empty() {
            return Err(SpecError::invalid(
                "discovery: no layer may connect to nodes that are found: streams are needed, and with \
                 limits.strangers = \"refuse\" also `tls`; write accept = [] to announce this node only",
            ));
        }
        Ok(())
    }

    /// Returns the layers over which found nodes are reached: name in beacons, and index.
    fn discovery_layers(&self) -> Vec<(String, usize)> {
        let layers = self.layers.iter().map(Layer::spec).enumerate();
        let usable = layers.filter_map(|(number, layer)| {
            let is_open = self.limits.strangers != Strangers::Refuse || layer.proves_names();
            Some((layer.announced().filter(|_| is_open)?.to_owned(), number))
        });
        usable.collect()
    }

    /// Returns the settings of the discovery. `listening` has the addresses of each layer.
    ///
    /// # Errors
    ///
    /// A name is not that of a node.
    fn discovery_config(
        &self,
        listening: &[Vec<SocketAddr>],
    ) -> Result<Option<DiscoveryConfig>, SpecError> {
        let Some(spec) = &self.discovery else { return Ok(None) };
        let mut offers = Vec::new();
        for (layer, listening) in self.layers.iter().zip(listening).filter(|_| spec.announce) {
            if let Some(name) = layer.spec().announced() {
                offers.extend(listening.iter().map(|at| (name.to_owned(), *at)));
            }
        }
        let neighbours = self.neighbours.iter().map(|it| node("neighbour.node", &it.node));
        let aliases = self.aliases.iter().map(|alias| node("aliases", alias));
        let discovery = Config {
            node: self.node()?,
            aliases: aliases.collect::<Result<_, _>>()?,
            neighbours: neighbours.collect::<Result<_, _>>()?,
            accept: spec.accepted()?,
            offers,
            layers: self.discovery_layers(),
            period: spec.period.duration(),
            nodes: spec.nodes,
        };
        let (interfaces, groups) = (spec.interfaces.clone(), spec.groups.clone());
        Ok(Some(DiscoveryConfig { interfaces, groups, discovery }))
    }
}

/// Discovery of a running node.
#[derive(Debug, Default)]
pub(super) struct Discovering {
    /// Listening addresses of each layer, once the discovery may start.
    listening: Option<Vec<Vec<SocketAddr>>>,
    running: Option<Discoverer>,
    /// Configured neighbours, which are not found: the thread applies changes of them later.
    neighbours: BTreeSet<Eid>,
    found: Vec<Found>,
}

/// A node that was found, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) found: Found,
    /// Name of its layer.
    pub(crate) layer: String,
}

impl Discovering {
    /// Permits the discovery to start.
    pub(super) fn begin(&mut self, listening: Vec<Vec<SocketAddr>>) {
        self.listening = Some(listening);
    }

    /// Applies settings. Links to nodes that are excluded are left out at once.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub(super) fn apply(&mut self, spec: &NodeSpec) -> Result<(), SpecError> {
        let Some(listening) = &self.listening else { return Ok(()) };
        let failed = |error: std::io::Error| SpecError::invalid(format!("discovery: {error}"));
        let config = spec.discovery_config(listening)?;
        self.neighbours =
            config.as_ref().map(|it| it.discovery.neighbours.clone()).unwrap_or_default();
        match (config, &self.running) {
            (Some(config), Some(running)) => running.configure(config),
            (Some(config), None) => {
                let seed = rt::entropy().map_err(failed)?.next_u64();
                let started = Discoverer::start(&config, Rng::new(seed, "discovery"));
                self.running = Some(started.map_err(failed)?);
            }
            (None, _) => {
                self.running = None;
                self.found.clear();
            }
        }
        self.found.retain(|found| !self.neighbours.contains(&found.node));
        Ok(())
    }

    /// Takes changes of the thread. Returns the news, and whether other nodes are found now.
    pub(super) fn follow(&mut self) -> (Vec<News>, bool) {
        let Some(running) = &self.running else { return (Vec::new(), false) };
        let mut found = running.found();
        found.retain(|found| !self.neighbours.contains(&found.node));
        let is_changed = found != self.found;
        self.found = found;
        (running.news(), is_changed)
    }

    /// Returns the links to the nodes that are found, each with the index of its layer.
    pub(super) fn ways(&self) -> Vec<(usize, Way)> {
        let way = |found: &Found| {
            let (node, address) = (found.node.clone(), found.address.into());
            (found.layer, Way { node, address, name: String::new(), engine: 0, is_found: true })
        };
        self.found.iter().map(way).collect()
    }

    /// Returns the nodes that are found, and the counters.
    pub(super) fn listed(&self, spec: &NodeSpec) -> (Vec<Listed>, Statistics) {
        let layer =
            |found: &Found| spec.layers.get(found.layer).map(|it| it.spec().name().to_owned());
        let listed = self
            .found
            .iter()
            .map(|found| Listed { found: found.clone(), layer: layer(found).unwrap_or_default() });
        let statistics = self.running.as_ref().map(Discoverer::statistics);
        (listed.collect(), statistics.unwrap_or_default())
    }
}

/// Text of news for the log.
pub(super) fn text(news: &News) -> String {
    match news {
        News::Found(Found { node, address, interface, .. }) => {
            format!("{node} was discovered at {address} on {interface}")
        }
        News::Lost { node, why } => format!("{node} is not discovered any more: {why}"),
        News::Rival { node, known, other } => {
            format!("{node} is announced by {other}, too, which is ignored: it is at {known}")
        }
        News::OwnName(address) => format!("{address} announces a name of this node"),
        News::Full => "discovery.nodes is reached: further nodes are not discovered".to_owned(),
    }
}
