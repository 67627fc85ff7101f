//! Settings that change while a node runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bp::admission::Admission;
use bp::agent::{Agent, LinkRef};
use bp::codec::bp7::Eid;
use bp::discovery::Statistics;
use bp::layer::{Configured, LinkId, Remote};
use engine::{PathId, Time};
use rt::node::{Handle, LayerUpdate};
use serde::Deserialize;
use tracing::warn;
use transport::text::{self, SpecError};

use super::discovery::{Discovering, Listed, text as text_of};
use super::plan::{InForce, NO_PLAN, Outcome};
use super::route::entries;
use super::{NodeSpec, Plan, PlanInForce, RouteSpec, Way};

/// Settings of a running node, which can be read again.
#[derive(Debug)]
pub struct Reload {
    path: PathBuf,
    /// Settings of the start.
    started: NodeSpec,
    /// Settings in force.
    spec: Mutex<NodeSpec>,
    links: Mutex<Links>,
    discovering: Mutex<Discovering>,
    plan: PlanInForce,
    handle: Handle,
}

/// Limits of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApplicationLimits {
    /// Maximum length of payloads that are passed to the agent in memory.
    pub(crate) inline: usize,
    /// Maximum length of a payload in bytes.
    pub(crate) payload: u64,
}

/// Links to the neighbours of a running node.
#[derive(Debug)]
struct Links {
    ways: BTreeMap<LinkRef, Way>,
    /// Number of the next link; none is used twice.
    next: u32,
}

impl Links {
    /// Replaces the links. One that stays keeps its number.
    fn replace(&mut self, ways: Vec<(usize, Way)>) {
        let former = std::mem::take(&mut self.ways).into_iter();
        let mut former: BTreeMap<(usize, Way), LinkRef> =
            former.map(|(at, way)| ((at.layer, way), at)).collect();
        for (layer, way) in ways {
            let at = former.remove(&(layer, way.clone())).unwrap_or_else(|| {
                self.next += 1;
                LinkRef { layer, link: LinkId(self.next - 1) }
            });
            self.ways.insert(at, way);
        }
    }

    /// Nodes of the links, and the links to nodes that announced themselves.
    fn of_agent(&self) -> (BTreeMap<LinkRef, Eid>, BTreeSet<LinkRef>) {
        let nodes = self.ways.iter().map(|(at, way)| (*at, way.node.clone()));
        let found = self.ways.iter().filter(|(_, way)| way.is_found);
        (nodes.collect(), found.map(|(at, _)| *at).collect())
    }

    fn of_layer(&self, layer: usize, admission: &Admission) -> LayerUpdate {
        let own = self.ways.iter().filter(|(at, _)| at.layer == layer);
        let remote = |way: &Way| Remote {
            node: way.node.clone(),
            server_name: way.name.clone(),
            engine: way.engine,
        };
        let links = own.clone().map(|(at, way)| (at.link, remote(way))).collect();
        let found = own.clone().filter(|(_, way)| way.is_found);
        let discovered = found.map(|(at, _)| at.link).collect();
        LayerUpdate {
            layer,
            configured: Configured { links, discovered, admission: admission.clone() },
            destinations: own.map(|(at, way)| (PathId(at.link.0), way.address.clone())).collect(),
        }
    }
}

/// Routes in place of those of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Routes {
    #[serde(default, rename = "route")]
    routes: Vec<RouteSpec>,
}

impl Reload {
    /// Settings of a node that was started with `spec` from the file at `path`, and with a contact
    /// plan.
    #[must_use]
    pub fn new(path: PathBuf, spec: NodeSpec, plan: PlanInForce, handle: Handle) -> Self {
        let ways = spec.links().unwrap_or_default();
        let links = Mutex::new(Links {
            next: u32::try_from(spec.neighbours.len() + 1).unwrap_or(u32::MAX),
            ways,
        });
        let (started, spec) = (spec.clone(), Mutex::new(spec));
        let discovering = Mutex::default();
        Self { path, started, spec, links, discovering, plan, handle }
    }

    /// Starts the discovery of neighbours, if the settings have one now or later. `listening` has
    /// the addresses of each layer.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn discover(&self, listening: Vec<Vec<SocketAddr>>) -> Result<(), SpecError> {
        let mut discovering = self.discovering();
        discovering.begin(listening);
        discovering.apply(&self.spec()).map(drop)
    }

    fn discovering(&self) -> MutexGuard<'_, Discovering> {
        self.discovering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens links to neighbours that were discovered, and closes those to lost ones. Returns lines
    /// for the log.
    pub(crate) fn follow(&self) -> Vec<String> {
        let mut discovering = self.discovering();
        let (news, is_changed) = discovering.follow();
        let spec = self.spec();
        // The spec was valid when it was read.
        if let (true, Ok(mut ways), Ok(admission)) =
            (is_changed, spec.running_links(), spec.admission())
        {
            let layers = spec.layers.len();
            drop(spec);
            ways.extend(discovering.ways());
            let (nodes, found) = self.wire(ways, layers, &admission);
            self.handle.ask(move |now, node: &mut Agent| node.set_links(now, nodes, found));
        }
        news.iter().map(text_of).collect()
    }

    /// Replaces the links to configured and to found neighbours in the layers.
    fn wire(
        &self,
        ways: Vec<(usize, Way)>,
        layers: usize,
        admission: &Admission,
    ) -> (BTreeMap<LinkRef, Eid>, BTreeSet<LinkRef>) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.replace(ways);
        let updates = (0..layers).map(|layer| links.of_layer(layer, admission));
        self.handle.configure(updates.collect());
        links.of_agent()
    }

    /// Returns the neighbours that were discovered, and counters of beacons.
    pub(crate) fn discovered(&self) -> (Vec<Listed>, Statistics) {
        let discovering = self.discovering();
        discovering.listed(&self.spec())
    }

    fn spec(&self) -> MutexGuard<'_, NodeSpec> {
        self.spec.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the limits of applications.
    pub(crate) fn limits(&self) -> ApplicationLimits {
        self.spec().application_limits()
    }

    /// Reads the file again, and applies neighbours, plan, routes, keys, security rules, limits,
    /// reports and custody. Returns the changed settings that only a restart applies.
    ///
    /// # Errors
    ///
    /// The fault and its location; then nothing changes.
    pub fn read(&self) -> Result<Vec<&'static str>, SpecError> {
        let (new, later) = self.started.reloaded(NodeSpec::read(&self.path)?);
        let set = self.plan.set();
        let plan = new.plan(self.handle.zero())?;
        let agent = new.agent(plan.as_ref())?;
        let (mut ways, admission) = (new.running_links()?, new.admission()?);
        if !later.is_empty() {
            warn!(settings = later.join(", "), "changed settings wait for a restart of the node");
        }
        let mut discovering = self.discovering();
        discovering.apply(&new)?;
        ways.extend(discovering.ways());
        let (nodes, found) = self.wire(ways, new.layers.len(), &admission);
        *self.spec() = new;
        drop(discovering);
        self.handle.ask(self.in_place(plan, set, move |now, node| {
            node.set_links(now, nodes, found);
            node.reload(now, agent);
        }));
        Ok(later)
    }

    /// Replaces the static routes by those of a text in the form of the file, until the file is
    /// read again.
    ///
    /// # Errors
    ///
    /// The text has no routes, a next hop is no neighbour, or the node copies bundles.
    pub fn set_routes(&self, toml: &str) -> Result<(), SpecError> {
        let Routes { routes } = text::parse(toml, "routes")?;
        let mut spec = self.spec();
        let new = NodeSpec { routes, ..spec.clone() };
        new.check_copying()?;
        let entries = entries(&new.routes, &new.neighbours)?;
        *spec = new;
        drop(spec);
        self.handle.ask(move |now, node: &mut Agent| node.set_routes(now, entries));
        Ok(())
    }

    /// Replaces the contact plan, until the file is read again.
    ///
    /// # Errors
    ///
    /// The text is no plan of this format, or the node has none.
    pub fn set_plan(
        &self,
        plan: &str,
        format: Option<String>,
        epoch: Option<String>,
    ) -> Result<(), SpecError> {
        self.handle.ask(self.new_plan(plan, format, epoch)?);
        Ok(())
    }

    /// Reads a contact plan. Returns the request to the agent that puts it in force.
    pub(super) fn new_plan(
        &self,
        plan: &str,
        format: Option<String>,
        epoch: Option<String>,
    ) -> Result<impl FnOnce(Time, &mut Agent) + Send + use<>, SpecError> {
        let spec = self.spec();
        let before = spec.contact_plan.as_ref();
        let before = before.ok_or_else(|| SpecError::invalid(NO_PLAN.to_owned()))?;
        let epoch = epoch.or_else(|| before.epoch.clone());
        let form =
            Plan { format: format.or_else(|| before.format.clone()), epoch, ..before.clone() };
        drop(spec);
        let set = self.plan.set();
        let in_force = InForce::new(form, plan.to_owned(), self.handle.zero());
        let mut contacts = in_force.plan()?;
        Ok(self.in_place(Some(in_force), set, move |now, node| {
            contacts.forget_before(now);
            // Contacts that stay keep their bookings.
            node.change_plan(now, |router| router.replace_plan(contacts));
        }))
    }

    /// Returns the date from which the times of the contact plan in force count.
    pub(crate) fn plan_zero(&self) -> Option<SystemTime> {
        self.plan.zero()
    }

    /// Reads commands of ION that change the contact plan in force, until the file is read again.
    /// Returns the request to the agent that applies them.
    ///
    /// # Errors
    ///
    /// A command or the epoch is wrong, or the node has no plan.
    pub(crate) fn plan_changes(
        &self,
        commands: Arc<str>,
        epoch: Option<String>,
    ) -> Result<impl FnOnce(Time, &mut Agent) -> Outcome + Send + use<>, SpecError> {
        self.plan.changes(commands, epoch)
    }

    /// Returns the request that also puts a contact plan in force, with its times by the clock as
    /// it is by then. The plan was read after the clock was last `set`.
    fn in_place<R: FnOnce(Time, &mut Agent) + Send + 'static>(
        &self,
        plan: Option<InForce>,
        set: Option<SystemTime>,
        request: R,
    ) -> impl FnOnce(Time, &mut Agent) + Send + use<R> {
        let in_force = self.plan.clone();
        move |now: Time, node: &mut Agent| {
            in_force.lock().plan = plan;
            request(now, node);
            in_force.follow(now, node, set);
        }
    }
}

impl NodeSpec {
    /// Returns the settings in force after the node of these settings has read new ones, and the
    /// changed settings that only a restart applies.
    pub(super) fn reloaded(&self, new: Self) -> (Self, Vec<&'static str>) {
        let mut later = Vec::new();
        for (key, has_changed) in [
            ("id", self.id != new.id),
            ("aliases", self.aliases != new.aliases),
            ("socket", self.socket != new.socket),
            ("clock", self.clock != new.clock),
            ("echo", self.echo != new.echo),
            ("drain", self.drain != new.drain),
            ("store", self.store != new.store),
            ("layer", self.layers != new.layers),
            ("limits.bundle", self.limits.bundle != new.limits.bundle),
            ("limits.strangers", self.limits.strangers != new.limits.strangers),
        ] {
            if has_changed {
                later.push(key);
            }
        }
        let mut merged = Self {
            id: self.id.clone(),
            aliases: self.aliases.clone(),
            socket: self.socket.clone(),
            clock: self.clock,
            echo: self.echo.clone(),
            drain: self.drain,
            store: self.store.clone(),
            layers: self.layers.clone(),
            limits: super::Limits {
                bundle: self.limits.bundle,
                strangers: self.limits.strangers,
                ..new.limits
            },
            ..new
        };
        // Layers have their longest bundle from the start.
        if merged.longest() != self.longest() {
            later.push("limits.bytes");
            merged.settings.limits.bytes = self.settings.limits.bytes;
        }
        (merged, later)
    }

    /// Returns the neighbours over the layers that are running: others wait for their layer.
    fn running_links(&self) -> Result<Vec<(usize, Way)>, SpecError> {
        let names: BTreeSet<String> =
            self.layers.iter().map(|layer| layer.spec().name().to_owned()).collect();
        let mut running = self.clone();
        running
            .neighbours
            .retain(|neighbour| neighbour.layer.as_ref().is_none_or(|layer| names.contains(layer)));
        Ok(running.links()?.into_iter().map(|(at, way)| (at.layer, way)).collect())
    }
}
