//! Contact plan of a node, with times relative to the node's start.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use engine::Time;
use proto::bp::agent::Agent;
use proto::bp::contacts::ContactPlan;
use proto::bp::routes::Router;
use proto::routing::settings::Settings;
use rt::node::OnStep;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::contact_plan::{self, Base, Format};
use transport::quantity::Span;
use transport::settings::{RouterSettings, check_interval};
use transport::text::{self, SpecError};

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
                    "contact_plan.file: {origin} does not say its format; add format = \"ion\""
                ))
            })?,
        };
        let epoch = match &self.epoch {
            None => now,
            Some(text) => humantime::parse_rfc3339_weak(text).map_err(|error| {
                SpecError::invalid(format!(
                    "contact_plan.epoch: {error}; write the moment like \"2026-11-22T08:00:00Z\""
                ))
            })?,
        };
        let document = contact_plan::read(format, plan, &origin, Base { epoch, zero: now })?;
        for note in &document.notes {
            tracing::warn!("{origin}: {note}");
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

/// Contact plan in force: its settings and its text, without which a node has none. A change of
/// the clock moves its times.
#[derive(Clone, Debug, Default)]
pub struct PlanInForce(Arc<Mutex<Option<(Plan, String)>>>);

impl PlanInForce {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<(Plan, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reaction of the node `number` to a change of its clock: it parses the plan again, for the
    /// times.
    pub(super) fn on_step(&self, number: u64) -> OnStep {
        let plan = self.clone();
        Box::new(move |now: Time, agent: &mut Agent, zero: SystemTime| {
            let Some((form, text)) = &*plan.lock() else { return };
            let read = form.parse(text, zero).and_then(|plan| Ok((plan, form.routing()?)));
            match read {
                // The bookings are of other times.
                Ok((plan, settings)) => {
                    agent.change_plan(now, |router| *router = Router::new(number, plan, settings));
                }
                Err(error) => tracing::warn!(
                    %error, "the contact plan keeps the times before the clock was set"
                ),
            }
        })
    }
}
