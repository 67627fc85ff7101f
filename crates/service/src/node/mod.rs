//! A bundle node on real sockets, configured by TOML: its identity, store, convergence layers and
//! routes.

mod admit;
mod clock;
mod discovery;
mod layer_spec;
mod layers;
mod neighbour;
mod over_files;
mod over_ltp;
mod over_streams;
mod over_udp;
mod plan;
mod reload;
mod route;
mod security;
mod socket;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bp::agent::{self, LinkRef, Pattern, Routing};
use bp::codec::bp7::Eid;
use bp::layer::LinkId;
use engine::{PathId, PathInfo, Rng};
use rt::Destination;
use rt::node::{Carrier, LayerConfig, NodeConfig};
use serde::{Deserialize, Serialize};
use transport::quantity::{Rate, Size, Span};
use transport::settings::Combined;
use transport::text::{self, SpecError};

pub use self::admit::{AcceptRule, Strangers};
pub use self::clock::ClockUse;
pub use self::discovery::DiscoverySpec;
pub(crate) use self::discovery::Listed;
use self::layer_spec::Host;
pub use self::layers::Layer;
pub use self::neighbour::Neighbour;
pub use self::over_files::OverFiles;
pub use self::over_ltp::OverLtp;
pub use self::over_streams::OverStreams;
pub use self::over_udp::OverUdp;
use self::plan::InForce;
pub(crate) use self::plan::{CHANGES_MAX, Changed};
pub use self::plan::{Plan, PlanInForce};
pub(crate) use self::reload::ApplicationLimits;
pub use self::reload::Reload;
pub use self::route::RouteSpec;
pub use self::security::{KeySpec, Rule};
pub use self::socket::Socket;
pub use self::tls::{Tls, Use};

/// Error of a neighbour over LTP without an engine number, and its remedy.
const NO_ENGINE: &str = "it has no node number, and engines of LTP have numbers; write engine = 1";

/// Configuration of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Settings of the agent, whose keys are beside those of the other fields.
    #[serde(skip, default = "agent_settings")]
    pub settings: agent::Config,
    /// Administrative endpoint of the node: `ipn:1.0`, `dtn://node/`.
    pub id: String,
    /// Other node IDs whose endpoints are this node's, too.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Versions of the Bundle Protocol that it accepts and sends: 6, 7.
    #[serde(default = "versions")]
    pub versions: Vec<u8>,
    /// Unix socket of its interface for applications.
    #[serde(default)]
    pub socket: Socket,
    /// Use of this machine's clock: from the start on, not at all, or when it is synchronised.
    /// Without it bundles carry their age.
    #[serde(default)]
    pub clock: ClockUse,
    /// Service of the echo: a number, or a name in the `dtn` scheme; empty for none.
    #[serde(default = "echo")]
    pub echo: String,
    /// Time for sessions to end when the node is stopped.
    #[serde(default = "drain")]
    pub drain: Span,
    /// Store of bundles.
    pub store: Store,
    /// Limits beside those of the agent.
    #[serde(default)]
    pub limits: Limits,
    /// Convergence layers.
    #[serde(rename = "layer")]
    pub layers: Vec<Layer>,
    /// Neighbours.
    #[serde(default, rename = "neighbour")]
    pub neighbours: Vec<Neighbour>,
    /// Discovery of further neighbours; without it there is none.
    pub discovery: Option<DiscoverySpec>,
    /// Static routes for destinations without a route in the contact plan.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteSpec>,
    /// Epidemic routing: a copy for every neighbour that has not had one, in place of routes.
    #[serde(default)]
    pub epidemic: bool,
    /// Spray routing: number of copies of each bundle from here. A node gives half of its copies to
    /// each neighbour without one. In place of routes.
    #[serde(default)]
    pub spray: Option<u32>,
    /// Contact plan of the routes.
    pub contact_plan: Option<Plan>,
    /// Keys that protect blocks of bundles, by the names that rules use.
    #[serde(default)]
    pub keys: BTreeMap<String, KeySpec>,
    /// Security rules for bundles of version 7; the first match applies.
    #[serde(default, rename = "security")]
    pub rules: Vec<Rule>,
}

/// Store of bundles: a directory, or memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Directory; its content survives the end of the process.
    pub directory: Option<PathBuf>,
    /// Memory of this size; its content ends with the process, even bundles that were acknowledged.
    pub memory: Option<Size>,
}

/// Limits of a node beside those of its agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of one received bundle.
    pub bundle: Size,
    /// Rights of peers that this file does not name, or that do not prove their names.
    pub strangers: Strangers,
    /// Rules for bundles of neighbours; the first that matches applies.
    pub accept: Vec<AcceptRule>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bundle: Size(16 << 30), strangers: Strangers::default(), accept: Vec::new() }
    }
}

/// Returns the settings of the agent of a node whose file has none.
fn agent_settings() -> agent::Config {
    let limits = agent::Limits {
        inline: 1 << 20,
        strangers_share: 25,
        reserve: 5,
        ..agent::Limits::default()
    };
    agent::Config { limits, ..agent::Config::default() }
}

fn versions() -> Vec<u8> {
    vec![6, 7]
}

const fn yes() -> bool {
    true
}

fn echo() -> String {
    "2047".to_owned()
}

const fn drain() -> Span {
    Span(Duration::from_secs(10))
}

/// Returns the size that fits an Ethernet packet.
const fn datagram() -> Size {
    Size(1472)
}

const fn patience() -> Span {
    Span(Duration::from_secs(3600))
}

const fn window() -> usize {
    64
}

impl NodeSpec {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// The fault and its location.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let mut spec = Self::of_text(&text::read_text(path)?, path)?;
        // Paths are relative to the folder of the configuration file.
        if let Some(folder) = path.parent() {
            if let Some(plan) = &mut spec.contact_plan {
                plan.file = folder.join(&plan.file);
            }
            spec.keys.values_mut().for_each(|key| key.file = folder.join(&key.file));
            spec.layers.iter_mut().for_each(|layer| layer.place(folder));
        }
        spec.check().map_err(|error| error.within(path))?;
        Ok(spec)
    }

    /// Parses a text that came from `origin`.
    ///
    /// # Errors
    ///
    /// The fault and its location.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        let origin = Path::new(origin);
        let spec = Self::of_text(text, origin)?;
        spec.check().map_err(|error| error.within(origin))?;
        Ok(spec)
    }

    /// Parses a text without checking it as a whole.
    fn of_text(text: &str, origin: &Path) -> Result<Self, SpecError> {
        let Combined { own: mut spec, settings }: Combined<Self, agent::Config> =
            text::parse(text, &origin.display().to_string())?;
        settings.apply(&mut spec.settings).map_err(|error| error.within(origin))?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        self.node()?;
        self.echo_endpoint()?;
        self.socket.check()?;
        match (&self.store.directory, self.store.memory) {
            (Some(_), None) | (None, Some(_)) => {}
            (Some(_), Some(_)) => {
                return invalid("store has `directory` and `memory`; keep one".to_owned());
            }
            (None, None) => {
                return invalid(
                    "store has neither `directory` nor `memory`; write directory = \"/var/lib/slowlight\" \
                     if bundles are to survive"
                        .to_owned(),
                );
            }
        }
        if self.layers.is_empty() {
            return invalid("there is no [[layer]]; add one with its kind".to_owned());
        }
        let mut names = BTreeSet::new();
        for layer in self.layers.iter().map(Layer::spec) {
            if !names.insert(layer.name().to_owned()) {
                let name = layer.name();
                return invalid(format!("two layers are called {name:?}; name one otherwise"));
            }
            layer.check(&self.node()?)?;
        }
        self.check_copying()?;
        self.agent_versions()?;
        self.rules.iter().try_for_each(|rule| rule.check(&self.keys))?;
        self.links()?;
        route::entries(&self.routes, &self.neighbours)?;
        self.check_discovery()?;
        self.check_admission()
    }

    /// Checks that bundles are either copied or routed.
    fn check_copying(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        let copying = match (self.epidemic, self.spray) {
            (true, Some(_)) => {
                return invalid("`epidemic` and `spray` exclude each other".to_owned());
            }
            (true, None) => Some("epidemic"),
            (false, Some(0)) => return invalid("spray is 0; it must be at least 1".to_owned()),
            (false, Some(_)) => Some("spray"),
            (false, None) => None,
        };
        if let Some(what) = copying
            && (self.contact_plan.is_some() || !self.routes.is_empty())
        {
            return invalid(format!(
                "`{what}` uses neither contact_plan nor routes; remove one of them"
            ));
        }
        Ok(())
    }

    /// Returns the node's administrative endpoint.
    ///
    /// # Errors
    ///
    /// The ID is not an administrative endpoint.
    pub fn node(&self) -> Result<Eid, SpecError> {
        node("id", &self.id)
    }

    /// Returns the endpoint of the echo.
    ///
    /// # Errors
    ///
    /// It is not an endpoint of this node.
    pub fn echo_endpoint(&self) -> Result<Option<Eid>, SpecError> {
        if self.echo.is_empty() {
            return Ok(None);
        }
        self.endpoint(&self.echo)
            .map(Some)
            .map_err(|error| SpecError::invalid(format!("echo: {error}")))
    }

    /// Returns an endpoint of this node, by its service or in full.
    ///
    /// # Errors
    ///
    /// The text is not an endpoint of this node.
    pub fn endpoint(&self, service: &str) -> Result<Eid, SpecError> {
        self.node()?.endpoint(service).map_err(|error| SpecError::invalid(error.to_string()))
    }

    /// Returns the neighbours that have an address, with the number of their layer.
    fn links(&self) -> Result<BTreeMap<LinkRef, Way>, SpecError> {
        let mut links = BTreeMap::new();
        let mut places = BTreeMap::new();
        let specs: Vec<_> = self.layers.iter().map(Layer::spec).collect();
        for (neighbour, number) in self.neighbours.iter().zip(1..) {
            let node = node("neighbour.node", &neighbour.node)?;
            let Some(address) = neighbour.address.clone() else {
                if let Some(layer) = &neighbour.layer {
                    return Err(SpecError::invalid(format!(
                        "neighbour {node}: it is reached over {layer:?}, but has no `address`; one that comes by \
                         itself needs neither"
                    )));
                }
                continue;
            };
            let name = neighbour.layer.as_deref().unwrap_or_else(|| specs[0].name());
            let names = || specs.iter().map(|layer| layer.name());
            let Some(layer) = names().position(|other| other == name) else {
                let near = text::did_you_mean(name, names());
                return Err(SpecError::invalid(format!(
                    "neighbour {node}: there is no layer {name:?}{near}"
                )));
            };
            let of_ltp = specs[layer].has_engines();
            if neighbour.engine.is_some() && !of_ltp {
                return Err(SpecError::invalid(format!(
                    "neighbour {node}: `engine` is of LTP, and layer {name:?} is not"
                )));
            }
            let mut engine = 0;
            if of_ltp {
                engine = over_ltp::engine(neighbour.engine, &node)
                    .ok_or_else(|| SpecError::invalid(format!("neighbour {node}: {NO_ENGINE}")))?;
                if let Some(other) = places.insert((layer, engine), node.clone()) {
                    return Err(SpecError::invalid(format!(
                        "neighbours {other} and {node} have the same LTP engine, {engine}, over layer {name:?}"
                    )));
                }
            }
            let name = neighbour.name.clone().unwrap_or_default();
            let at = LinkRef { layer, link: LinkId(number) };
            links.insert(at, Way { node, address, name, engine, is_found: false });
        }
        Ok(links)
    }

    /// Reads the contact plan of a node that starts now, if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn plan(&self, now: SystemTime) -> Result<Option<InForce>, SpecError> {
        let read = |plan: &Plan| Ok(InForce::new(plan.clone(), plan.text()?, now));
        self.contact_plan.as_ref().map(read).transpose()
    }

    /// Returns the configuration of the agent of a node with a contact plan, without links.
    ///
    /// # Errors
    ///
    /// The plan is faulty, or a key cannot be read.
    fn agent(&self, plan: Option<&InForce>) -> Result<agent::Config, SpecError> {
        let entries = route::entries(&self.routes, &self.neighbours)?;
        let node = self.node()?;
        self.limits.warn_of_shadows();
        let routing = match (plan, self.spray) {
            _ if self.epidemic => Routing::Epidemic,
            (_, Some(copies)) => Routing::Spray { copies },
            (None, None) => Routing::Static(entries),
            (Some(plan), None) => {
                let Eid::Ipn { node: number, .. } = node else {
                    return Err(SpecError::invalid(format!(
                        "{node} has no number, and plans have nodes by numbers; take an id like ipn:1.0"
                    )));
                };
                Routing::ContactGraph(Box::new(plan.router(number)?), entries)
            }
        };
        let timeout = self.contact_plan.as_ref().and_then(|plan| plan.timeout);
        let aliases = self.aliases.iter().map(|alias| self::node("aliases", alias));
        Ok(agent::Config {
            aliases: aliases.collect::<Result<_, _>>()?,
            versions: self.agent_versions()?,
            persistent: self.store.directory.is_some(),
            contact_timeout: timeout.map_or(self.settings.contact_timeout, |span| span.duration()),
            routing,
            security: security::policy(&self.rules, &self.keys, self.agent_limits().bytes)?,
            accept: self.limits.rules()?,
            limits: self.agent_limits(),
            node,
            ..self.settings.clone()
        })
    }

    fn agent_versions(&self) -> Result<BTreeSet<agent::Version>, SpecError> {
        let version = |number: &u8| match number {
            6 => Ok(agent::Version::Six),
            7 => Ok(agent::Version::Seven),
            _ => Err(SpecError::invalid(format!("versions: there is no {number}; write 6, 7"))),
        };
        let versions: BTreeSet<_> = self.versions.iter().map(version).collect::<Result<_, _>>()?;
        if versions.is_empty() {
            return Err(SpecError::invalid("versions: it is empty; write [6, 7]"));
        }
        Ok(versions)
    }

    fn agent_limits(&self) -> agent::Limits {
        match self.store.memory {
            None => self.settings.limits,
            // There are no files, so all payloads are kept in memory.
            Some(memory) => agent::Limits {
                bytes: memory.bytes(),
                inline: usize::MAX,
                inline_total: usize::MAX,
                ..self.settings.limits
            },
        }
    }

    /// Returns the maximum size of a bundle.
    fn longest(&self) -> Size {
        self.limits.bundle.min(Size(self.agent_limits().bytes))
    }

    /// Returns the limits of applications.
    fn application_limits(&self) -> ApplicationLimits {
        let of = self.agent_limits();
        ApplicationLimits { inline: of.inline, payload: self.limits.bundle.bytes().min(of.bytes) }
    }

    /// Returns the configuration of a node that starts now. Its contact plan is put in force.
    ///
    /// # Errors
    ///
    /// The plan, a certificate or a key cannot be read.
    pub fn config(
        &self,
        now: SystemTime,
        seed: u64,
        in_force: &PlanInForce,
    ) -> Result<NodeConfig, SpecError> {
        let plan = self.plan(now)?;
        let (links, admission) = (self.links()?, self.admission()?);
        let agent = agent::Config {
            links: links.iter().map(|(at, way)| (*at, way.node.clone())).collect(),
            ..self.agent(plan.as_ref())?
        };
        // Links in a contact plan start closed.
        let by_plan = self.contact_plan.is_some();
        let memory = self.store.memory;
        let longest = self.longest();
        let mut layers = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let own = links.iter().filter(|(at, _)| at.layer == number);
            let own: BTreeMap<LinkId, Way> = own.map(|(at, way)| (at.link, way.clone())).collect();
            let open = if by_plan { BTreeSet::new() } else { own.keys().copied().collect() };
            let spec = layer.spec();
            let name = spec.name().to_owned();
            let (node, rng) = (&agent.node, Rng::new(seed, &name));
            let found = self.discovery.as_ref().map_or(0, |spec| spec.nodes);
            let admission = &admission;
            let store = Size(self.agent_limits().bytes);
            let links = &own;
            let host = Host { node, rng, links, found, admission, longest, store, memory };
            let (layer, carrier) = spec.build(host)?;
            layers.push(LayerConfig { name, layer, carrier, open });
        }
        in_force.lock().plan = plan;
        let on_step = match agent.node {
            // A plan may be added later.
            Eid::Ipn { node, .. } => Some(in_force.on_step(node)),
            Eid::Dtn(_) | Eid::None | Eid::Uri(_) | Eid::Unknown { .. } => None,
        };
        Ok(NodeConfig { agent, seed, layers, wall: self.clock.wall(), on_step })
    }
}

/// A neighbour with an address, configured or found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    node: Eid,
    address: Destination,
    /// DNS name in its certificate, or empty.
    name: String,
    /// LTP engine number over a layer of LTP, otherwise 0.
    engine: u64,
    /// Whether it announced itself.
    is_found: bool,
}

/// Checks the paths and the window of a layer over datagrams.
fn check_datagrams(name: &str, datagram: Size, rate: Rate, window: usize) -> Result<(), SpecError> {
    let invalid = |message: String| Err(SpecError::invalid(message));
    if !(128..=engine::DATAGRAM_MAX as u64).contains(&datagram.bytes()) {
        return invalid(format!("layer {name}: datagram is not between 128 B and 65507 B"));
    }
    if rate.bps() == 0 {
        return invalid(format!(
            "layer {name}: rate is 0; write what the network carries, as \"100 Mbit/s\""
        ));
    }
    if window == 0 {
        return invalid(format!("layer {name}: window is 0: no bundle could leave"));
    }
    Ok(())
}

/// Lateness of a turn up to which the rate is caught up.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Returns the socket of a layer of datagrams. Its paths and links have the same numbers.
fn datagrams(
    listen: SocketAddr,
    datagram: Size,
    rate: Rate,
    links: &BTreeMap<LinkId, Destination>,
) -> Carrier {
    let datagram = usize::try_from(datagram.bytes()).unwrap_or(usize::MAX);
    let path = PathInfo { rate_bps: Some(rate.bps()), ..PathInfo::datagram(datagram) };
    let peers = links.iter().map(|(link, to)| (PathId(link.0), to.clone())).collect();
    Carrier::Datagrams { config: rt::Config::new(listen, path), peers }
}

fn eid(key: &str, text: &str) -> Result<Eid, SpecError> {
    text.parse().map_err(|error| SpecError::invalid(format!("{key}: {error}")))
}

/// Parses a set of endpoints.
fn pattern(key: &str, text: &str) -> Result<Pattern, SpecError> {
    text.parse().map_err(|error| SpecError::invalid(format!("{key}: {error}")))
}

/// Parses an administrative endpoint.
fn node(key: &str, text: &str) -> Result<Eid, SpecError> {
    let eid = eid(key, text)?;
    if eid.is_none() || eid != eid.node() {
        return Err(SpecError::invalid(format!(
            "{key}: {text:?} names no node; write its administrative endpoint, ipn:NODE.0 or dtn://NODE/"
        )));
    }
    Ok(eid)
}
