//! HDTN's JSON: one list of contacts, each with its light time.

use std::fmt;
use std::time::Duration;

use engine::Time;
use routing::contacts::{Contact, ContactPlan};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;

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

/// Times are seconds from the start of the plan, or Unix time. HDTN reads only these keys, and
/// each number also from a string: its property tree has texts alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(deserialize_with = "whole_number")]
    contact: u64,
    #[serde(deserialize_with = "whole_number")]
    source: u64,
    #[serde(deserialize_with = "whole_number")]
    dest: u64,
    #[serde(deserialize_with = "number")]
    start_time: Number,
    #[serde(deserialize_with = "number")]
    end_time: Number,
    #[serde(default, deserialize_with = "rate", skip_serializing_if = "Option::is_none")]
    rate_bits_per_sec: Option<u64>,
    /// Rate in Mbit/s, as older releases write it.
    #[serde(default, deserialize_with = "rate", skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(default = "none", deserialize_with = "number")]
    owlt: Number,
}

fn none() -> Number {
    0.into()
}

/// A number, or the text of one.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
    from.deserialize_any(Figure)
}

fn whole_number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = number(from)?;
    let wrong = || {
        D::Error::custom(format_args!("invalid number {number}: expected a whole number from 0 on"))
    };
    number.as_u64().ok_or_else(wrong)
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole_number(from).map(Some)
}

struct Figure;

impl Visitor<'_> for Figure {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
        Number::from_f64(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
        text.trim().parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
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
        let place = format_args!("contact {}", entry.contact);
        // HDTN takes both, and sends nothing by them.
        if from == to || start >= end {
            reading.skip("contacts without a window, or of a node with itself", place);
            continue;
        }
        let owlt = entry.owlt.as_f64().and_then(|owlt| Duration::try_from_secs_f64(owlt).ok());
        let owlt =
            owlt.ok_or_else(|| wrong("invalid owlt: expected a light time in seconds".to_owned()))?;
        let (never, rate_bps) = (Time::ZERO, rate_bps.unwrap_or(RATE_BPS));
        let contact = Contact { from, to, start: never, end: never, rate_bps, confidence: 1.0 };
        let added = reading.contact_with_light(contact, owlt, [start, end], place);
        added.map_err(|error| wrong(error.to_string()))?;
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
