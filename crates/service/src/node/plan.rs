//! Contact plan of a node, with times relative to the node's start.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::contact_plan::{self, Format};
use transport::text::{self, SpecError};

/// A contact plan: its file, or a table with the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Plan {
    /// Path of the file, relative to the folder of the configuration.
    pub file: PathBuf,
    /// Format: `toml`, `ion` or `hdtn`; default: by the file's name.
    pub format: Option<String>,
    /// Epoch of its times, as `2026-11-22T08:00:00Z`; default: the node's start.
    pub epoch: Option<String>,
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
        Ok(Plan { file: PathBuf::from(file), format: None, epoch: None })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Plan, A::Error> {
        Plan::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Plan {
    /// Reads the plan for a node that starts now.
    ///
    /// # Errors
    ///
    /// The file is not a plan, or its epoch is not a time.
    pub fn read(&self, now: SystemTime) -> Result<ContactPlan, SpecError> {
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
        let plan = contact_plan::read(format, &text::read_text(&self.file)?, &origin, epoch)?;
        shifted(&plan, epoch, now)
            .map_err(|error| SpecError::Malformed { origin, message: error.to_string() })
    }
}

/// Converts a plan with times relative to `epoch` to one relative to `now`. Drops ended contacts.
fn shifted(
    plan: &ContactPlan,
    epoch: SystemTime,
    now: SystemTime,
) -> Result<ContactPlan, proto::bp::contacts::PlanError> {
    let (later, by) = match now.duration_since(epoch) {
        Ok(by) => (true, by),
        Err(error) => (false, error.duration()),
    };
    let moved = |time: Time| moved(time, later, by);
    let contacts = plan.contacts().iter().filter(|contact| moved(contact.end) > Time::ZERO);
    let contacts = contacts.map(|contact| Contact {
        start: moved(contact.start),
        end: moved(contact.end),
        ..*contact
    });
    let ranges = plan.ranges().filter(|range| moved(range.end) > Time::ZERO);
    let ranges: Vec<Range> = ranges
        .map(|range| Range { start: moved(range.start), end: moved(range.end), ..*range })
        .collect();
    ContactPlan::new(contacts.collect(), &ranges)
}

fn moved(time: Time, later: bool, by: Duration) -> Time {
    if later { Time::ZERO + time.since(Time::ZERO + by) } else { time + by }
}
