//! A contact plan as a node has it: its times count from when the node began.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::contact_plan::{self, Format};
use transport::text::{self, SpecError};

/// A contact plan: its file, or a table with that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Plan {
    /// The file, as seen from the folder of the configuration.
    pub file: PathBuf,
    /// `toml`, `ion` or `hdtn`; by its name if nothing is said.
    pub format: Option<String>,
    /// The moment from which its times count, as `2026-11-22T08:00:00Z`; when the node begins, if nothing is said.
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
    /// Reads it for a node that begins now.
    ///
    /// # Errors
    /// It is no plan, or its epoch is no moment.
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

/// A plan whose times count from `epoch` as one whose times count from `now`. What is over is left out.
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
