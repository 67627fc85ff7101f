//! Contact plan of a node, with times relative to the node's start.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bp::agent::{Agent, Routing};
use bp::codec::bp7::Eid;
use bp::contacts::ContactPlan;
use bp::routes::Router;
use engine::Time;
use routing::changes::{Change, Draft};
use routing::settings::Settings;
use rt::node::OnStep;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::contact_plan::{self, Base, Changes, Format};
use transport::quantity::Span;
use transport::settings::{RouterSettings, check_interval};
use transport::text::{self, SpecError};

/// Notes about a plan that are logged.
const NOTES_LOGGED: usize = 20;

/// A contact plan: its file, or a table with the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Plan {
    /// Path of the file, relative to the folder of the configuration.
    pub file: PathBuf,
    /// Format: `toml`, `ion`, `hdtn`, `tvg-util` or `a-sabr`; default: by the file's name.
    pub format: Option<String>,
    /// Epoch of its relative times, as `2026-11-22T08:00:00Z`; default: the node's start.
    pub epoch: Option<String>,
    /// Choice of routes through it.
    #[serde(default)]
    pub routing: RouterSettings,
    /// Wait for the link to a neighbour from the start of a contact; beyond it bundles take other
    /// routes until the link is up.
    pub timeout: Option<Span>,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileOrTable)
    }
}

struct FileOrTable;

impl<'de> de::Visitor<'de> for FileOrTable {
    type Value = Plan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file, or a table with `file`")
    }

    fn visit_str<E: de::Error>(self, file: &str) -> Result<Plan, E> {
        let (file, routing) = (PathBuf::from(file), RouterSettings::default());
        Ok(Plan { file, format: None, epoch: None, routing, timeout: None })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Plan, A::Error> {
        Plan::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Plan {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a setting is out of its range.
    pub(super) fn text(&self) -> Result<String, SpecError> {
        check_interval("contact_plan.timeout", self.timeout)?;
        text::read_text(&self.file)
    }

    /// Parses the text of a plan of this format for a node that starts now.
    ///
    /// # Errors
    ///
    /// The text is not a plan, or its epoch is not a time.
    pub(super) fn parse(&self, plan: &str, now: SystemTime) -> Result<ContactPlan, SpecError> {
        let origin = self.file.display().to_string();
        let format = match &self.format {
            Some(name) => name
                .parse()
                .map_err(|error| SpecError::invalid(format!("contact_plan.format: {error}")))?,
            None => Format::of_name(&origin).ok_or_else(|| {
                SpecError::invalid(format!(
                    "contact_plan.file: {origin} does not show its format; add format = \"ion\""
                ))
            })?,
        };
        let base = base(self.epoch.as_deref(), now)?;
        let document = contact_plan::read(format, plan, &origin, base)?;
        for note in document.notes.iter().take(NOTES_LOGGED) {
            tracing::warn!("{origin}: {note}");
        }
        if let Some(more) = document.notes.len().checked_sub(NOTES_LOGGED + 1) {
            tracing::warn!("{origin}: {} more such lines", more + 1);
        }
        if document.is_relative && self.epoch.is_none() {
            tracing::warn!(
                "{origin}: its times count from the node's start, and move with each restart; add \
                 contact_plan.epoch"
            );
        }
        Ok(document.plan)
    }

    /// Settings of the router.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub(super) fn routing(&self) -> Result<Settings, SpecError> {
        let mut settings = Settings::default();
        self.routing.apply(&mut settings).map_err(|error| error.below("contact_plan.routing"))?;
        Ok(settings)
    }
}

/// Base of the times in a text for a node that starts now.
fn base(epoch: Option<&str>, now: SystemTime) -> Result<Base, SpecError> {
    let epoch = match epoch {
        None => now,
        Some(text) => humantime::parse_rfc3339_weak(text).map_err(|error| {
            SpecError::invalid(format!(
                "contact_plan.epoch: {error}; write the moment like \"2026-11-22T08:00:00Z\""
            ))
        })?,
    };
    Ok(Base { epoch, zero: now })
}

/// Contact plan in force, without which a node has none. A change of the clock moves its times.
/// Written in the agent's thread, so that it changes in the same order as the router.
#[derive(Clone, Debug, Default)]
pub struct PlanInForce(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) plan: Option<InForce>,
    /// Wall-clock time at the node's start, by the clock as it was last set while the node runs.
    set: Option<SystemTime>,
}

/// Settings and text of a contact plan, and its changes since.
#[derive(Debug)]
pub(super) struct InForce {
    form: Plan,
    text: String,
    changes: Vec<Commands>,
    /// Wall-clock time at the zero of its times. Changes name contacts by their begins, so it is
    /// the same for them, to the nanosecond.
    zero: SystemTime,
}

/// Maximum bytes of the changes of a plan.
pub(crate) const CHANGES_MAX: usize = 16 << 20;

/// Commands that change a plan.
#[derive(Debug)]
struct Commands {
    text: Arc<str>,
    epoch: Option<String>,
}

impl Commands {
    fn read(&self, zero: SystemTime) -> Result<Changes, SpecError> {
        contact_plan::read_changes(&self.text, "changes", base(self.epoch.as_deref(), zero)?)
    }
}

/// Outcome of commands that change a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Number of changes.
    pub(crate) applied: usize,
    /// Lines that change nothing, with the reason: the first ones.
    pub(crate) skipped: Vec<(usize, String)>,
    /// Number of the others.
    pub(crate) more: usize,
}

/// Outcome of a request for changes: they are made, or the clock was set since they were read, so
/// that they are to be read again.
pub(crate) type Outcome = Result<Option<Changed>, String>;

impl InForce {
    /// Plan of a node that starts at `zero`.
    pub(super) const fn new(form: Plan, text: String, zero: SystemTime) -> Self {
        Self { form, text, changes: Vec::new(), zero }
    }

    /// The plan with its changes.
    pub(super) fn plan(&self) -> Result<ContactPlan, SpecError> {
        let plan = self.form.parse(&self.text, self.zero)?;
        if self.changes.is_empty() {
            return Ok(plan);
        }
        let mut draft = Draft::new(&plan);
        for commands in &self.changes {
            for (_, change) in commands.read(self.zero)?.changes {
                // One that is over by the new time is not there to be changed.
                let _ = draft.apply(&change);
            }
        }
        draft.plan().map_err(|error| SpecError::invalid(error.to_string()))
    }

    pub(super) fn router(&self, number: u64) -> Result<Router, SpecError> {
        Ok(Router::new(number, self.plan()?, self.form.routing()?))
    }

    /// Applies commands to the plan of an agent. All changes are made, or none.
    fn change(
        &mut self,
        now: Time,
        agent: &mut Agent,
        commands: Commands,
        read: Changes,
    ) -> Result<Changed, String> {
        self.check_room(&commands)?;
        let (lines, changes): (Vec<usize>, Vec<Change>) = read.changes.into_iter().unzip();
        let (skipped, more) = (read.skipped, read.more);
        if changes.is_empty() {
            return Ok(Changed { applied: 0, skipped, more });
        }
        let Routing::ContactGraph(router, _) = &agent.config().routing else {
            return Err(NO_PLAN.to_owned());
        };
        // Bundles take other routes only if there is another plan.
        let mut plan = router.changed(&changes).map_err(|(number, error)| {
            let line = lines.get(number).copied().unwrap_or_default();
            format!("line {line}: {error}; the plan stays as it was")
        })?;
        // Otherwise it would grow with each change.
        plan.forget_before(now);
        agent.change_plan(now, |router| router.replace_plan(plan));
        self.changes.push(commands);
        Ok(Changed { applied: changes.len(), skipped, more })
    }

    /// Checks that there is room for more changes.
    fn check_room(&self, commands: &Commands) -> Result<(), String> {
        let kept: usize = self.changes.iter().map(|commands| commands.text.len()).sum();
        if kept + commands.text.len() > CHANGES_MAX {
            return Err(format!(
                "the changes since the plan was read are longer than {CHANGES_MAX} bytes; replace \
                 the plan with PUT"
            ));
        }
        Ok(())
    }

    /// Moves the times of the plan of the node `number` to another zero: parses it again.
    fn set_zero(&mut self, now: Time, agent: &mut Agent, number: u64, zero: SystemTime) {
        let before = std::mem::replace(&mut self.zero, zero);
        match self.router(number) {
            // The bookings are of other times.
            Ok(new) => {
                agent.change_plan(now, |router| *router = new);
            }
            Err(error) => {
                self.zero = before;
                tracing::warn!(
                    %error, "the contact plan keeps the times before the clock was set"
                );
            }
        }
    }
}

/// Error of a change without a plan.
pub(super) const NO_PLAN: &str =
    "the node has no contact plan; name one in its file, and have it read again";

impl PlanInForce {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Date from which the times of the plan count.
    pub(super) fn zero(&self) -> Option<SystemTime> {
        self.lock().plan.as_ref().map(|in_force| in_force.zero)
    }

    /// Reaction of the node `number` to a change of its clock: it parses the plan again, for the
    /// times.
    pub(super) fn on_step(&self, number: u64) -> OnStep {
        let plan = self.clone();
        Box::new(move |now: Time, agent: &mut Agent, zero: SystemTime| {
            let mut state = plan.lock();
            state.set = Some(zero);
            if let Some(in_force) = &mut state.plan {
                in_force.set_zero(now, agent, number, zero);
            }
        })
    }

    /// Wall-clock time at the node's start since the clock was last set, to be passed to
    /// [`PlanInForce::follow`]. To be read before the zero of a plan.
    pub(super) fn set(&self) -> Option<SystemTime> {
        self.lock().set
    }

    /// Moves the times of a plan that was put in force if the clock has been set since `before`.
    pub(super) fn follow(&self, now: Time, agent: &mut Agent, before: Option<SystemTime>) {
        let Eid::Ipn { node: number, .. } = agent.config().node else { return };
        let mut state = self.lock();
        if let (Some(zero), true) = (state.set, state.set != before)
            && let Some(in_force) = &mut state.plan
        {
            in_force.set_zero(now, agent, number, zero);
        }
    }

    /// Reads commands of ION that change the plan. Returns the request that applies them.
    ///
    /// # Errors
    ///
    /// A command or the epoch is wrong, or the node has no plan.
    pub(super) fn changes(
        &self,
        text: Arc<str>,
        epoch: Option<String>,
    ) -> Result<impl FnOnce(Time, &mut Agent) -> Outcome + Send + use<>, SpecError> {
        let plan = self.clone();
        let mut commands = Commands { text, epoch };
        let (zero, room) = {
            let state = plan.lock();
            let known = state.plan.as_ref();
            let known = known.ok_or_else(|| SpecError::invalid(NO_PLAN.to_owned()))?;
            commands.epoch = commands.epoch.or_else(|| known.form.epoch.clone());
            (known.zero, known.check_room(&commands))
        };
        // Without room they are not even read.
        let read = match room {
            Ok(()) => Ok(commands.read(zero)?),
            Err(full) => Err(full),
        };
        Ok(move |now: Time, agent: &mut Agent| match &mut plan.lock().plan {
            // The clock was set meanwhile, or the plan was replaced. Reading them takes too long
            // for the agent's thread.
            Some(in_force) if read.is_ok() && in_force.zero != zero => Ok(None),
            Some(in_force) => in_force.change(now, agent, commands, read?).map(Some),
            None => Err(NO_PLAN.to_owned()),
        })
    }
}
