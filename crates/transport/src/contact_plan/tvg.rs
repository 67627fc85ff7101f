//! JSON of dtn-tvg-util: a time-varying graph with predicted contacts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;
use routing::contacts::{Contact, ContactPlan};
use serde::Deserialize;
use serde_json::{Value, json};
use wire::excerpt;

use super::{Base, Document, Losses, Reading, json_fault, malformed};
use crate::text::SpecError;

#[derive(Debug, Deserialize)]
struct Graph {
    vertices: BTreeMap<String, Value>,
    edges: Vec<Edge>,
    contact_type: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    contacts: Vec<Value>,
}

/// A contact of a predicted graph: sender, receiver, window, generations.
type Predicted = (String, String, f64, f64, Vec<(f64, f64, Vec<[f64; 3]>)>);
/// A contact of a factual graph: its steps are time, rate, bit error rate and delay.
type Factual = (String, String, f64, f64, Vec<[f64; 4]>);

/// Rate and delay from a moment on.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: f64,
    rate_bps: f64,
    delay: f64,
}

#[derive(Debug)]
struct Known {
    nodes: [String; 2],
    window: [f64; 2],
    confidence: f64,
    steps: Vec<Step>,
}

pub(super) fn read(text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let graph: Graph =
        serde_json::from_str(text).map_err(|error| malformed(origin, json_fault(&error)))?;
    let is_factual = match graph.contact_type.as_deref() {
        Some("PredictedContact_v2") | None => false,
        Some("Contact_v2") => true,
        Some(other) => {
            let known = "PredictedContact_v2 and Contact_v2 are read";
            return Err(malformed(
                origin,
                format!("contact_type is {:?}; {known}", excerpt(other)),
            ));
        }
    };
    let mut reading = Reading::default();
    let numbers = numbers(&graph, &mut reading);
    let entries = graph.edges.iter().flat_map(|edge| &edge.contacts);
    for (entry, place) in entries.zip(0_usize..) {
        let wrong = |error: String| malformed(origin, format!("contact {place}: {error}"));
        let known = known(entry, is_factual).map_err(|error| wrong(json_fault(&error)))?;
        add(&mut reading, &numbers, &known, place, base).map_err(wrong)?;
    }
    reading.finish(origin)
}

/// Numbers of the vertices: their names, or their places in the order of the names.
fn numbers(graph: &Graph, reading: &mut Reading) -> BTreeMap<String, u64> {
    let by_name = graph.vertices.keys().map(|name| Some((name.clone(), name.parse().ok()?)));
    if let Some(numbers) = by_name.collect::<Option<BTreeMap<String, u64>>>() {
        return numbers;
    }
    let numbers: BTreeMap<String, u64> = graph.vertices.keys().cloned().zip(1..).collect();
    let list = numbers.iter().map(|(name, number)| format!("{number} = {name}"));
    reading.notes.push(format!(
        "nodes by the order of their names: {}",
        list.collect::<Vec<_>>().join(", ")
    ));
    numbers
}

fn known(entry: &Value, is_factual: bool) -> Result<Known, serde_json::Error> {
    if is_factual {
        let (from, to, start, end, steps) = Factual::deserialize(entry)?;
        let steps =
            steps.into_iter().map(|[from, rate_bps, _, delay]| Step { from, rate_bps, delay });
        let (nodes, window) = ([from, to], [start, end]);
        return Ok(Known { nodes, window, confidence: 1.0, steps: steps.collect() });
    }
    let (from, to, start, end, generations) = Predicted::deserialize(entry)?;
    // Later generations replace earlier ones.
    let (_, confidence, steps) = generations.into_iter().next_back().unwrap_or_default();
    let steps = steps.into_iter().map(|[from, rate_bps, delay]| Step { from, rate_bps, delay });
    Ok(Known { nodes: [from, to], window: [start, end], confidence, steps: steps.collect() })
}

/// Adds a contact for each step.
fn add(
    reading: &mut Reading,
    numbers: &BTreeMap<String, u64>,
    known: &Known,
    place: usize,
    base: Base,
) -> Result<(), String> {
    let number = |name: &String| {
        numbers.get(name).copied().ok_or_else(|| format!("unknown vertex {:?}", excerpt(name)))
    };
    let (from, to) = (number(&known.nodes[0])?, number(&known.nodes[1])?);
    let [begin, end] = known.window;
    let starts = known.steps.iter().map(|step| step.from.max(begin));
    let ends = known.steps.iter().skip(1).map(|step| step.from.min(end)).chain([end]);
    for ((step, start), end) in known.steps.iter().zip(starts).zip(ends) {
        let moment = |seconds| base.number(seconds).ok_or("a time is out of range");
        let ((start, is_relative), (end, _)) = (moment(start)?, moment(end)?);
        let owlt = Duration::try_from_secs_f64(step.delay);
        let owlt = owlt.map_err(|_| "a delay is out of range")?;
        if !(0.0..1.8e19).contains(&step.rate_bps) || !(0.0..=1.0).contains(&known.confidence) {
            return Err("a rate or a probability is out of range".to_owned());
        }
        if start >= end || step.rate_bps < 1.0 {
            reading.skip("steps without a rate or a duration", format_args!("contact {place}"));
            continue;
        }
        reading.is_relative |= is_relative;
        let (never, rate_bps) = (Time::ZERO, step.rate_bps as u64);
        let confidence = known.confidence;
        let contact = Contact { from, to, start: never, end: never, rate_bps, confidence };
        let place = format_args!("contact {place}");
        let added = reading.contact_with_light(contact, owlt, [start, end], place);
        added.map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(super) fn write(plan: &ContactPlan, losses: &mut Losses) -> String {
    let mut vertices: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut edges: BTreeMap<(u64, u64), Vec<Value>> = BTreeMap::new();
    for contact in plan.contacts() {
        let (from, to) = (contact.from.to_string(), contact.to.to_string());
        vertices.entry(to.clone()).or_default();
        vertices.entry(from.clone()).or_default().insert(to.clone());
        let steps = plan.light_times(contact).into_iter().map(|(at, owlt)| {
            json!([seconds(at, losses), contact.rate_bps as f64, owlt.as_secs_f64()])
        });
        let steps: Vec<Value> = steps.collect();
        let generation = json!([0.0, contact.confidence, steps]);
        let window = [contact.start, contact.end].map(|time| seconds(time, losses));
        let entry = json!([from, to, window[0], window[1], [generation]]);
        edges.entry((contact.from, contact.to)).or_default().push(entry);
    }
    let edges: Vec<Value> = edges
        .into_iter()
        .map(|((from, to), contacts)| {
            json!({ "vertices": [from.to_string(), to.to_string()], "contacts": contacts })
        })
        .collect();
    let graph = json!({
        "vertices": vertices, "edges": edges, "contact_type": "PredictedContact_v2"
    });
    format!("{graph:#}\n")
}

/// Seconds with a fraction.
fn seconds(time: Time, losses: &mut Losses) -> f64 {
    let seconds = time.as_secs_f64();
    if (seconds * 1e9).round() as u64 != time.as_nanos() {
        losses.add("times rounded to what a floating-point number holds");
    }
    seconds
}
