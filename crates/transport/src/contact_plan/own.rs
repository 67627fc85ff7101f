//! This project's TOML.

use std::time::Duration;

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};
use serde::{Deserialize, Serialize};

use crate::quantity::{Probability, Rate, Span};
use crate::text::{self, SpecError};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
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

pub(super) fn read(text: &str, origin: &str) -> Result<ContactPlan, SpecError> {
    let spec: Plan = text::parse(text, origin)?;
    let contacts = spec.contact.iter().map(|spec| Contact {
        from: spec.from,
        to: spec.to,
        start: moment(spec.start),
        end: moment(spec.end),
        rate_bps: spec.rate.bps(),
        confidence: spec.confidence.value(),
    });
    let ranges: Vec<Range> = spec
        .range
        .iter()
        .map(|spec| Range {
            from: spec.from,
            to: spec.to,
            start: moment(spec.start),
            end: moment(spec.end),
            owlt: spec.owlt.duration(),
        })
        .collect();
    super::plan(contacts.collect(), &ranges, origin)
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
    let spec = Plan { contact: contact.collect(), range: range.collect() };
    toml::to_string(&spec).expect("numbers and strings are TOML")
}

fn moment(span: Span) -> Time {
    Time::ZERO + span.duration()
}

fn span(time: Time) -> Span {
    Span(Duration::from_nanos(time.as_nanos()))
}
