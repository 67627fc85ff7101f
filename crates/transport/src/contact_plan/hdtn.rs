//! HDTN's JSON: one list of contacts, each with its light time.

use std::time::Duration;

use engine::Time;
use proto::routing::contacts::{Contact, ContactPlan, Range};
use serde::{Deserialize, Serialize};

use super::{
    Base, Document, Losses, Reading, json_fault, longest, malformed, seconds_up, tvg, whole,
    without_confidence,
};
use crate::text::SpecError;

/// Rate of a contact without one: HDTN's router assumes 1 Gbit/s.
const RATE_BPS: u64 = 1_000_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    contacts: Vec<Entry>,
}

/// Times are seconds from the start of the plan, or Unix time. HDTN reads only these keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    contact: u64,
    source: u64,
    dest: u64,
    start_time: serde_json::Number,
    end_time: serde_json::Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_sec: Option<u64>,
    /// Rate in Mbit/s, as older releases write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(default = "none")]
    owlt: serde_json::Number,
}

fn none() -> serde_json::Number {
    0.into()
}

pub(super) fn read(text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let spec: Plan = match serde_json::from_str(text) {
        Ok(spec) => spec,
        Err(error) => {
            let other = serde_json::from_str::<serde_json::Value>(text);
            if other.is_ok_and(|value| value.get("edges").is_some()) {
                return tvg::read(text, origin, base);
            }
            return Err(malformed(origin, json_fault(&error)));
        }
    };
    let mut reading = Reading::default();
    let (mut unlimited, mut fractions) = (0, 0);
    for entry in &spec.contacts {
        let wrong =
            |error: String| malformed(origin, format!("contact {}: {error}", entry.contact));
        let window = [&entry.start_time, &entry.end_time];
        fractions += usize::from(window.iter().chain([&&entry.owlt]).any(|n| !n.is_u64()));
        let [start, end] = window.map(|number| base.number(number.as_f64().unwrap_or(f64::NAN)));
        let ((start, is_relative), (end, _)) =
            start.zip(end).ok_or_else(|| wrong("a time is out of range".to_owned()))?;
        reading.is_relative |= is_relative;
        let of_mbits = || entry.rate.and_then(|rate| rate.checked_mul(1_000_000));
        let rate_bps = entry.rate_bits_per_sec.or_else(of_mbits).filter(|rate| *rate > 0);
        unlimited += usize::from(rate_bps.is_none());
        let (from, to) = (entry.source, entry.dest);
        if from == to {
            continue;
        }
        let owlt = entry.owlt.as_f64().and_then(|owlt| Duration::try_from_secs_f64(owlt).ok());
        let owlt = owlt.ok_or_else(|| wrong("owlt is no light time in seconds".to_owned()))?;
        let (never, rate_bps) = (Time::ZERO, rate_bps.unwrap_or(RATE_BPS));
        let contact = Contact { from, to, start: never, end: never, rate_bps, confidence: 1.0 };
        reading.contact(contact, [start, end]).map_err(|error| wrong(error.to_string()))?;
        let range = Range { from, to, start: never, end: never, owlt };
        reading.range(range, [start, end]).map_err(|error| wrong(error.to_string()))?;
    }
    if unlimited > 0 {
        let note = "contacts without a rate: 1 Gbit/s, as HDTN's router assumes";
        reading.notes.push(format!("{note}: {unlimited}"));
    }
    if fractions > 0 {
        let note = "contacts with fractions of seconds, which HDTN reads as 0";
        reading.notes.push(format!("{note}: {fractions}"));
    }
    reading.finish(origin)
}

pub(super) fn write(plan: &ContactPlan, losses: &mut Losses) -> String {
    let mut entries = Vec::new();
    for contact in plan.contacts() {
        without_confidence(contact, losses);
        let Some([start, end, rate]) = whole(contact, 1, losses) else { continue };
        let owlt = seconds_up(longest(plan, contact, losses), losses);
        entries.push(Entry {
            contact: entries.len() as u64,
            source: contact.from,
            dest: contact.to,
            start_time: start.into(),
            end_time: end.into(),
            rate_bits_per_sec: Some(rate),
            rate: None,
            owlt: owlt.into(),
        });
    }
    let spec = Plan { contacts: entries };
    let mut text = serde_json::to_string_pretty(&spec).expect("numbers are JSON");
    text.push('\n');
    text
}
