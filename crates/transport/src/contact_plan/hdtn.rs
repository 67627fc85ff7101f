//! HDTN's JSON: one list of contacts, each with its light time.

use std::time::Duration;

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};
use serde::{Deserialize, Serialize};

use super::{malformed, seconds, whole_seconds};
use crate::text::SpecError;

#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    contacts: Vec<Entry>,
}

/// Times are whole seconds from the start of the plan. HDTN reads only these keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    contact: u64,
    source: u64,
    dest: u64,
    start_time: u64,
    end_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_sec: Option<u64>,
    /// Rate in Mbit/s, as older releases write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(default)]
    owlt: u64,
}

pub(super) fn read(text: &str, origin: &str) -> Result<ContactPlan, SpecError> {
    let spec: Plan =
        serde_json::from_str(text).map_err(|error| malformed(origin, error.to_string()))?;
    let mut contacts = Vec::new();
    let mut ranges = Vec::new();
    for entry in &spec.contacts {
        let rate_bps = entry
            .rate_bits_per_sec
            .or_else(|| entry.rate.and_then(|rate| rate.checked_mul(1_000_000)))
            .ok_or_else(|| {
                let number = entry.contact;
                malformed(origin, format!("contact {number} has no rate: add rateBitsPerSec"))
            })?;
        let (from, to) = (entry.source, entry.dest);
        let (start, end) = (Time::from_secs(entry.start_time), Time::from_secs(entry.end_time));
        contacts.push(Contact { from, to, start, end, rate_bps, confidence: 1.0 });
        ranges.push(Range { from, to, start, end, owlt: Duration::from_secs(entry.owlt) });
    }
    super::plan(contacts, &ranges, origin)
}

pub(super) fn write(plan: &ContactPlan) -> String {
    let entries = plan.contacts().iter().zip(0..).map(|(contact, number)| Entry {
        contact: number,
        source: contact.from,
        dest: contact.to,
        start_time: seconds(contact.start),
        end_time: seconds(contact.end),
        rate_bits_per_sec: Some(contact.rate_bps),
        rate: None,
        owlt: whole_seconds(plan.owlt(contact.from, contact.to, contact.start)),
    });
    let spec = Plan { contacts: entries.collect() };
    let mut text = serde_json::to_string_pretty(&spec).expect("numbers are JSON");
    text.push('\n');
    text
}
