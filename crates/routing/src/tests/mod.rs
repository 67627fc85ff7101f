mod bookings;
mod changes;
mod kept;
mod lunar;
mod oracle;
mod vectors;

use std::collections::BTreeSet;
use std::time::Duration;

use engine::Time;

use super::contacts::{Contact, ContactPlan, Range};
use super::routes::{Priority, Route, Router, Wanted};
use super::settings::Settings;

static NOBODY: BTreeSet<u64> = BTreeSet::new();

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// A bundle of normal priority that never expires.
fn wanted(destination: u64, bytes: u64) -> Wanted<'static> {
    let priority = Priority::Normal;
    Wanted { destination, bytes, priority, expires: Time::MAX, excluded: &NOBODY }
}

/// No overhead of lower layers.
fn bare() -> Settings {
    Settings { overhead_ppm: 0, overhead_min: 0, ..Settings::default() }
}

/// Plan of contacts like `1-2 0-60/1`: nodes, begin and end, light time; `*500` adds the rate in
/// bytes a second, which is 1,000 otherwise.
fn plan(text: &str) -> ContactPlan {
    let (mut contacts, mut ranges) = (Vec::new(), Vec::new());
    for entry in text.split(',') {
        let (nodes, times) = entry.trim().split_once(' ').unwrap();
        let (times, rate) = times.split_once('*').unwrap_or((times, "1000"));
        let (times, light) = times.split_once('/').unwrap();
        let pair = |text: &str| -> (u64, u64) {
            let (one, other) = text.split_once('-').unwrap();
            (one.parse().unwrap(), other.parse().unwrap())
        };
        let ((from, to), (start, end)) = (pair(nodes), pair(times));
        let rate_bps = rate.parse::<u64>().unwrap() * 8;
        let (start, end) = (at(start), at(end));
        contacts.push(Contact { from, to, start, end, rate_bps, confidence: 1.0 });
        let owlt = Duration::from_secs_f64(light.parse().unwrap());
        ranges.push(Range { from, to, start, end, owlt });
    }
    ContactPlan::new(contacts, &ranges).unwrap()
}

fn router(local: u64, text: &str) -> Router {
    Router::new(local, plan(text), bare())
}

/// Nodes of a route after the first, and its arrival in seconds.
fn nodes(router: &Router, route: &Route) -> (Vec<u64>, f64) {
    let nodes = route.contacts().map(|id| router.contact(id).unwrap().to);
    (nodes.collect(), route.arrives.as_secs_f64())
}
