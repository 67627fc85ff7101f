//! This project's TOML.

use std::time::Duration;

use engine::Time;
use routing::contacts::{Contact, ContactPlan, Range};
use serde::{Deserialize, Serialize};

use super::{Base, Document, Reading, malformed};
use crate::quantity::{Probability, Rate, Span};
use crate::text::{self, SpecError};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// Time from which the others count, in place of the one that the reader has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contact: Vec<ContactSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    range: Vec<RangeSpec>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContactSpec {
    from: u64,
    to: u64,
    start: Span,
    end: Span,
    rate: Rate,
    #[serde(default = "sure", skip_serializing_if = "is_sure")]
    confidence: Probability,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeSpec {
    from: u64,
    to: u64,
    start: Span,
    end: Span,
    owlt: Span,
}

fn sure() -> Probability {
    Probability(1.0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_sure(confidence: &Probability) -> bool {
    confidence.0 >= 1.0
}

pub(super) fn read(text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let spec: Plan = text::parse(text, origin)?;
    let mut reading = Reading { is_relative: spec.epoch.is_none(), ..Reading::default() };
    let epoch = spec.epoch.as_ref().map(|text| {
        humantime::parse_rfc3339_weak(text).map_err(|error| {
            let example = "write the moment like \"2026-11-22T08:00:00Z\"";
            malformed(origin, format!("epoch: {error}; {example}"))
        })
    });
    let base = Base { epoch: epoch.transpose()?.unwrap_or(base.epoch), ..base };
    let window = |[start, end]: [Span; 2]| {
        [start, end].map(|span| base.after_epoch(span.0.as_nanos() as i128))
    };
    for (spec, number) in spec.contact.iter().zip(0..) {
        let contact = Contact {
            from: spec.from,
            to: spec.to,
            start: Time::ZERO,
            end: Time::ZERO,
            rate_bps: spec.rate.bps(),
            confidence: spec.confidence.value(),
        };
        let window = window([spec.start, spec.end]);
        let added = reading.contact(contact, window);
        added.map_err(|error| malformed(origin, format!("contact {number}: {error}")))?;
    }
    for (spec, number) in spec.range.iter().zip(0..) {
        let owlt = spec.owlt.duration();
        let range =
            Range { from: spec.from, to: spec.to, start: Time::ZERO, end: Time::ZERO, owlt };
        let added = reading.range(range, window([spec.start, spec.end]));
        added.map_err(|error| malformed(origin, format!("range {number}: {error}")))?;
    }
    reading.finish(origin)
}

pub(super) fn write(plan: &ContactPlan) -> String {
    let contact = plan.contacts().iter().map(|contact| ContactSpec {
        from: contact.from,
        to: contact.to,
        start: span(contact.start),
        end: span(contact.end),
        rate: Rate(contact.rate_bps),
        confidence: Probability(contact.confidence),
    });
    let range = plan.ranges().map(|range| RangeSpec {
        from: range.from,
        to: range.to,
        start: span(range.start),
        end: span(range.end),
        owlt: Span(range.owlt),
    });
    let spec = Plan { epoch: None, contact: contact.collect(), range: range.collect() };
    toml::to_string(&spec).expect("numbers and strings are TOML")
}

fn span(time: Time) -> Span {
    Span(Duration::from_nanos(time.as_nanos()))
}
