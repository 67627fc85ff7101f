//! Settings that change while a node runs.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::Time;
use proto::bp::agent::Agent;
use rt::node::Handle;
use serde::Deserialize;
use tracing::warn;
use transport::text::{self, SpecError};

use super::{NodeSpec, Plan, PlanInForce, RouteSpec};

/// Settings of a running node, which can be read again.
#[derive(Debug)]
pub struct Reload {
    path: PathBuf,
    spec: Mutex<NodeSpec>,
    plan: PlanInForce,
    handle: Handle,
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
        Self { path, spec: Mutex::new(spec), plan, handle }
    }

    fn spec(&self) -> MutexGuard<'_, NodeSpec> {
        self.spec.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file again, and applies plan, routes, keys, security rules, limits, reports and
    /// custody. Returns the changed settings that only a restart applies.
    ///
    /// # Errors
    ///
    /// The fault and its location; then nothing changes.
    pub fn read(&self) -> Result<Vec<&'static str>, SpecError> {
        let new = NodeSpec::read(&self.path)?;
        let plan = new.plan()?;
        let agent = new.agent(self.handle.zero(), plan.as_ref())?;
        let mut spec = self.spec();
        let later = spec.fixed_settings_changed(&new)?;
        if !later.is_empty() {
            warn!(settings = later.join(", "), "changed settings wait for a restart of the node");
        }
        // The next comparison is with the settings in force.
        *spec = NodeSpec {
            id: spec.id.clone(),
            socket: spec.socket.clone(),
            clock: spec.clock,
            echo: spec.echo.clone(),
            drain: spec.drain,
            store: spec.store.clone(),
            layers: spec.layers.clone(),
            neighbours: spec.neighbours_in_force(&new),
            ..new
        };
        drop(spec);
        self.apply(plan, move |now, node| node.reload(now, agent));
        Ok(later)
    }

    /// Replaces the static routes by those of a text in the form of the file, until the file is read
    /// again.
    ///
    /// # Errors
    ///
    /// The text has no routes, a next hop is no neighbour, or the node copies bundles.
    pub fn set_routes(&self, toml: &str) -> Result<(), SpecError> {
        let Routes { routes } = text::parse(toml, "routes")?;
        let mut spec = self.spec();
        let new = NodeSpec { routes, ..spec.clone() };
        new.check()?;
        let entries = new.entries()?;
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
        let spec = self.spec();
        let Some(before) = &spec.contact_plan else {
            return Err(SpecError::invalid(
                "the node has no contact plan; name one in its file, and restart it".to_owned(),
            ));
        };
        let epoch = epoch.or_else(|| before.epoch.clone());
        let form =
            Plan { format: format.or_else(|| before.format.clone()), epoch, ..before.clone() };
        drop(spec);
        let contacts = form.parse(plan, self.handle.zero())?;
        let in_force = Some((form, plan.to_owned()));
        self.apply(in_force, move |now, node| {
            // Contacts that stay keep their bookings.
            node.change_plan(now, |router| router.replace_plan(contacts));
        });
        Ok(())
    }

    /// Puts a contact plan in force by a request to the agent.
    fn apply(
        &self,
        plan: Option<(Plan, String)>,
        request: impl FnOnce(Time, &mut Agent) + Send + 'static,
    ) {
        let mut in_force = self.plan.lock();
        *in_force = plan;
        // Before another plan, so that the agent gets them in the same order.
        self.handle.ask(request);
    }
}

impl NodeSpec {
    /// Changed settings that only a restart applies.
    fn fixed_settings_changed(&self, new: &Self) -> Result<Vec<&'static str>, SpecError> {
        let changes = [
            ("id", self.id != new.id),
            ("socket", self.socket != new.socket),
            ("clock", self.clock != new.clock),
            ("echo", self.echo != new.echo),
            ("drain", self.drain != new.drain),
            ("store", self.store != new.store),
            ("layer", self.layers != new.layers),
            ("neighbour.address", self.links()? != new.links()?),
            ("limits.bundle", self.limits.bundle != new.limits.bundle),
        ];
        Ok(changes
            .into_iter()
            .filter(|(_, has_changed)| *has_changed)
            .map(|(key, _)| key)
            .collect())
    }

    /// Neighbours of the new settings; the old ones while their addresses differ.
    fn neighbours_in_force(&self, new: &Self) -> Vec<super::Neighbour> {
        let has_same_links =
            matches!((self.links(), new.links()), (Ok(old), Ok(new)) if old == new);
        if has_same_links { new.neighbours.clone() } else { self.neighbours.clone() }
    }
}
