//! State of the world for the interface.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use engine::Time;
use lab::link_spec::LinkSpec;
use lab::scenario::Scenario;
use serde_json::{Map, Value};
use service::http::Refusal;
use testbed::emulation::tools::Ports;
use tokio::sync::{Notify, broadcast};
use transport::quantity::Span;
use transport::quantity::Window;
use transport::text;

use crate::list::command::Commands;
use crate::list::transfer::Transfers;
use crate::model::{self, CaptureRequest, Event, What};

/// Number of events that a client may be behind.
const EVENTS: usize = 1024;
/// Keys of a link that are fixed when the world starts.
const FIXED: [&str; 6] = ["from", "to", "link", "mtu", "datagram", "return"];
/// Maximum future outages of a link.
const OUTAGES_MAX: usize = 1000;

/// Ends of a link, and its current settings.
#[derive(Debug)]
struct LinkState {
    name: String,
    from: String,
    to: String,
    spec: LinkSpec,
}

/// State shared by handlers.
#[derive(Debug)]
pub(crate) struct State {
    name: String,
    listen: Option<SocketAddr>,
    began: SystemTime,
    pub(crate) world: Arc<emu::World>,
    links: Mutex<Vec<LinkState>>,
    pub(crate) capture: Mutex<Option<CaptureRequest>>,
    pub(crate) commands: Mutex<Commands>,
    pub(crate) transfers: Mutex<Transfers>,
    /// Ports of tools that transfers run.
    pub(crate) ports: Ports,
    /// Scenario of the world.
    scenario: Scenario,
    events: broadcast::Sender<Event>,
    /// Notified when a link's outages may have changed.
    pub(crate) changed: Notify,
    /// Notified when the world must end.
    pub(crate) end: Notify,
    /// Bounds of lateness.
    pub(crate) bounds: emu::Bounds,
}

/// Locks a mutex whose holder cannot have left a partial change.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn new(
        name: &str,
        listen: Option<SocketAddr>,
        scenario: &Scenario,
        bounds: emu::Bounds,
        capture: Option<CaptureRequest>,
        world: Arc<emu::World>,
    ) -> Self {
        let link = |spec: &LinkSpec| {
            let (from, to) = spec.ends();
            LinkState { name: format!("{from}:{to}"), from, to, spec: spec.clone() }
        };
        let since = Duration::from_nanos(world.links().now().as_nanos());
        Self {
            name: name.to_owned(),
            listen,
            began: SystemTime::now().checked_sub(since).unwrap_or(UNIX_EPOCH),
            world,
            links: Mutex::new(scenario.links.iter().map(link).collect()),
            capture: Mutex::new(capture),
            commands: Mutex::new(Commands::default()),
            transfers: Mutex::new(Transfers::default()),
            ports: Ports::default(),
            scenario: scenario.clone(),
            events: broadcast::channel(EVENTS).0,
            changed: Notify::new(),
            end: Notify::new(),
            bounds,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.world.links().now()
    }

    pub(crate) fn log_event(&self, at: Time, what: What) {
        // There may be no listener.
        let _ = self.events.send(Event { at: at.as_secs_f64(), what });
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    pub(crate) fn has_listeners(&self) -> bool {
        self.events.receiver_count() > 0
    }

    pub(crate) fn report(&self) -> Result<emu::Report, Refusal> {
        let gone = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the links have stopped");
        self.world.links().report().ok_or_else(gone)
    }

    pub(crate) fn world(&self) -> Result<model::World, Refusal> {
        let report = self.report()?;
        Ok(model::World {
            name: self.name.clone(),
            began: self.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            now: self.now().as_secs_f64(),
            real_time: self.world.is_real_time(),
            hosts: self.hosts(),
            links: self.links_of(&report),
            listen: self.listen.map(|address| address.to_string()),
            doubts: self.doubts(&report).into_iter().map(|(_, doubt)| doubt).collect(),
            no_memory: report.no_memory,
            unreadable: report.unreadable,
        })
    }

    /// Reasons why results are not valid, each with the link it concerns, if any.
    pub(crate) fn doubts(&self, report: &emu::Report) -> Vec<(Option<String>, String)> {
        let links = locked(&self.links);
        let doubts = report.doubts(&self.bounds).into_iter();
        let message = |doubt: emu::Doubt| {
            let link = doubt.link().and_then(|link| links.get(link)).map(|link| link.name.clone());
            let hosts = self.world.hosts();
            let host = doubt.host().and_then(|host| hosts.get(host)).map(|it| &it.plan().name);
            let of = link.as_ref().or(host).map(|of| format!("{of}: ")).unwrap_or_default();
            (link, format!("{of}{doubt}"))
        };
        doubts.map(message).collect()
    }

    pub(crate) fn hosts(&self) -> Vec<model::Host> {
        let host = |host: &emu::Host| model::Host {
            name: host.plan().name.clone(),
            address: host.plan().address.to_string(),
            address6: host.plan().address6.to_string(),
            descriptor: host.descriptor(),
        };
        self.world.hosts().iter().map(host).collect()
    }

    pub(crate) fn host(&self, name: &str) -> Result<&emu::Host, Refusal> {
        let names = || self.world.hosts().iter().map(|host| host.plan().name.as_str());
        self.world.host(name).ok_or_else(|| unknown("host", name, names()))
    }

    pub(crate) fn links_of(&self, report: &emu::Report) -> Vec<model::Link> {
        let now = self.now();
        let links = locked(&self.links);
        links.iter().zip(&report.links).map(|(link, report)| shown(link, report, now)).collect()
    }

    /// Returns the scenario of the world with the current state of its links.
    pub(crate) fn scenario(&self) -> Scenario {
        let links = locked(&self.links).iter().map(|link| link.spec.clone()).collect();
        Scenario { links, ..self.scenario.clone() }
    }

    /// Returns the number of a link.
    pub(crate) fn link(&self, name: &str) -> Result<usize, Refusal> {
        let links = locked(&self.links);
        let found = links.iter().position(|link| link.name == name);
        found.ok_or_else(|| unknown("link", name, links.iter().map(|link| link.name.as_str())))
    }

    /// Returns the outages of all links, in order.
    pub(crate) fn outages(&self) -> Vec<(String, link::Outages)> {
        let links = locked(&self.links);
        let plan = |link: &LinkState| {
            let outages = link.spec.config().map(|config| config.outages);
            (link.name.clone(), outages.unwrap_or_default())
        };
        links.iter().map(plan).collect()
    }

    /// Changes a link by keys of a scenario's table; `null` removes a key.
    pub(crate) fn change(&self, index: usize, keys: Map<String, Value>) -> Result<(), Refusal> {
        let mut links = locked(&self.links);
        let spec = changed(&links[index].spec, &keys)?;
        self.carry_out(&mut links[index], index, spec, keys)
    }

    /// Adds an outage, and returns its start and end.
    pub(crate) fn add_outage(&self, index: usize, after: Window) -> Result<(Time, Time), Refusal> {
        let mut links = locked(&self.links);
        let spec = &links[index].spec;
        for (key, given) in
            [("contacts", spec.contacts.is_some()), ("outage_every", spec.outage_every.is_some())]
        {
            if given {
                let error = format!(
                    "{} goes by `{key}`, which no outage can be added to; change that, or set it to \
                     null first",
                    links[index].name
                );
                return Err(Refusal::new(StatusCode::CONFLICT, error));
            }
        }
        let now = self.now();
        let begin = now + after.at.duration();
        let window = Window { at: Span(since_zero(begin)), lasts: after.lasts };
        let over =
            |window: &Window| Time::ZERO + window.at.duration() + window.lasts.duration() <= now;
        let mut outages = spec.outages.clone().unwrap_or_default();
        outages.retain(|window| !over(window));
        if outages.len() >= OUTAGES_MAX {
            let error = format!("{OUTAGES_MAX} outages lie ahead already");
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        if let Some(other) = outages.iter().find(|other| overlap(other, &window)) {
            return Err(Refusal::new(StatusCode::CONFLICT, taken(&links[index].name, other, now)));
        }
        outages.push(window);
        outages.sort_by_key(|window| window.at);
        let spec = LinkSpec { outages: Some(outages.clone()), ..spec.clone() };
        let message = serde_json::to_value(&outages).unwrap_or_default();
        let keys = Map::from_iter([("outages".to_owned(), message)]);
        self.carry_out(&mut links[index], index, spec, keys)?;
        Ok((begin, begin + after.lasts.duration()))
    }

    fn carry_out(
        &self,
        link: &mut LinkState,
        index: usize,
        spec: LinkSpec,
        keys: Map<String, Value>,
    ) -> Result<(), Refusal> {
        let config = spec.config().map_err(|error| Refusal::wrong(error.to_string()))?;
        let done = self.world.links().change(index, move |_| config);
        done.map_err(|error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
        link.spec = spec;
        self.log_event(self.now(), What::LinkChanged { link: link.name.clone(), settings: keys });
        self.changed.notify_one();
        Ok(())
    }
}

/// Whether two windows overlap.
fn overlap(one: &Window, other: &Window) -> bool {
    let begins_before_the_end = |one: &Window, other: &Window| {
        one.at.duration() < other.at.duration() + other.lasts.duration()
    };
    begins_before_the_end(one, other) && begins_before_the_end(other, one)
}

/// Error of an outage that overlaps another.
fn taken(link: &str, other: &Window, now: Time) -> String {
    let begin = Time::ZERO + other.at.duration();
    let left = |at: Time| at.since(now).as_secs_f64();
    let until = left(begin + other.lasts.duration());
    let from = if begin > now {
        format!("begins in {:.3} s and ends", left(begin))
    } else {
        "ends".to_owned()
    };
    format!(
        "{link}: another outage {from} in {until:.3} s; let this one begin then or later, or end \
         before it, or take all of them away first with outages=null"
    )
}

fn since_zero(time: Time) -> Duration {
    Duration::from_nanos(time.as_nanos())
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Refusal {
    let near = text::did_you_mean(name, known.clone());
    let known = known.collect::<Vec<_>>().join(", ");
    let error = format!("there is no {kind} {name:?}{near} ({kind}s: {known})");
    Refusal::new(StatusCode::NOT_FOUND, error)
}

/// Returns a link's table with changes.
fn changed(base: &LinkSpec, keys: &Map<String, Value>) -> Result<LinkSpec, Refusal> {
    let mut changes = LinkSpec::default();
    let mut rest = as_map(base);
    for (key, value) in keys {
        if FIXED.contains(&key.as_str()) {
            let error = format!("`{key}` cannot change while the world runs; start another");
            return Err(Refusal::wrong(error));
        }
        if value.is_null() {
            rest.remove(key);
            continue;
        }
        // One by one, so that the error names the key.
        let one = Map::from_iter([(key.clone(), value.clone())]);
        let one: LinkSpec = serde_json::from_value(one.into()).map_err(|error| {
            let text = error.to_string();
            let near = text::suggestion(&text).replace('\n', "; ");
            Refusal::wrong(if text.starts_with("unknown field") {
                format!("{text}{near}")
            } else {
                format!("{key}: {text}")
            })
        })?;
        changes = one.over(&changes);
    }
    // All at once: keys that exclude each other.
    let given = keys.iter().filter(|(_, value)| !value.is_null());
    let given = given.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>();
    serde_json::from_value::<LinkSpec>(given.into())
        .map_err(|error| Refusal::wrong(error.to_string()))?;
    let rest: LinkSpec = serde_json::from_value(rest.into())
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(changes.over(&rest))
}

fn as_map(spec: &LinkSpec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(map)) => map,
        // A table is an object, and all of its keys are texts.
        Ok(_) | Err(_) => Map::new(),
    }
}

fn shown(link: &LinkState, report: &emu::LinkReport, now: Time) -> model::Link {
    let outages = link.spec.config().map(|config| config.outages).unwrap_or_default();
    let mut settings = as_map(&link.spec.clone().resolved());
    settings.remove("from");
    settings.remove("to");
    model::Link {
        name: link.name.clone(),
        from: link.from.clone(),
        to: link.to.clone(),
        up: outages.is_up(now),
        settings,
        counters: counters(report),
        lateness: lateness(&report.lateness),
    }
}

fn count(count: link::Count) -> model::Count {
    model::Count { packets: count.packets, bytes: count.bytes }
}

fn counters(report: &emu::LinkReport) -> model::Counters {
    let stats = &report.stats;
    let lost = link::LossCause::ALL.into_iter();
    let lost = lost.map(|cause| (cause.name().to_owned(), count(stats.lost(cause))));
    model::Counters {
        pushed: count(stats.pushed),
        delivered: count(stats.delivered),
        damaged: count(stats.damaged),
        queued: count(stats.queued),
        lost: lost.filter(|(_, count)| count.packets > 0).collect(),
        waiting: report.waiting as u64,
        refused: report.refused,
    }
}

fn lateness(lateness: &emu::Lateness) -> model::Lateness {
    let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
    model::Lateness {
        packets: lateness.packets(),
        p50_us: micros(lateness.quantile(0.5)),
        p99_us: micros(lateness.quantile(0.99)),
        most_us: micros(lateness.most()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> LinkSpec {
        serde_json::from_value(value).unwrap()
    }

    fn keys(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn changes_merge_and_null_removes_keys() {
        let base = spec(json!({ "delay": "1 s", "rate": "1 Mbit/s", "per": "1e-3" }));
        let after = changed(&base, &keys(&json!({ "delay": "2 s", "per": null }))).unwrap();
        assert_eq!(after, spec(json!({ "delay": "2 s", "rate": "1 Mbit/s" })));
        let steps = json!({ "rate_steps": [{ "at": "0 s", "rate": "2 Mbit/s" }] });
        let stepped = changed(&base, &keys(&steps)).unwrap();
        assert!(matches!(stepped.config().unwrap().rate, link::Rate::Steps(_)));
        let constant = changed(&stepped, &keys(&json!({ "rate": "3 Mbit/s" }))).unwrap();
        assert_eq!(constant.config().unwrap().rate, link::Rate::Constant(3_000_000));
        let mut both = keys(&steps);
        both.insert("rate".to_owned(), "3 Mbit/s".into());
        let refused = changed(&base, &both).unwrap_err().error;
        assert!(refused.contains("`rate` and `rate_steps` exclude each other"), "{refused}");
    }

    #[test]
    fn overlapping_outages_are_refused_with_their_time() {
        let window = |at: &str, lasts: &str| -> Window {
            serde_json::from_value(json!({ "at": at, "for": lasts })).unwrap()
        };
        let one = window("10 s", "5 s");
        for (at, lasts, overlaps) in [
            ("1 s", "9 s", false),
            ("1 s", "10 s", true),
            ("12 s", "1 s", true),
            ("15 s", "1 s", false),
        ] {
            let other = window(at, lasts);
            assert_eq!(
                (overlap(&one, &other), overlap(&other, &one)),
                (overlaps, overlaps),
                "{at}"
            );
        }
        let message = |at| taken("a:b", &one, Time::ZERO + Duration::from_secs(at));
        assert!(
            message(4).starts_with("a:b: another outage begins in 6.000 s and ends in 11.000 s;")
        );
        assert!(message(12).starts_with("a:b: another outage ends in 3.000 s;"));
    }

    #[test]
    fn invalid_changes_are_named() {
        let refused =
            |value: Value| changed(&LinkSpec::default(), &keys(&value)).unwrap_err().error;
        let message = refused(json!({ "dealy": "1 s" }));
        assert!(message.contains("did you mean `delay`?"), "{message}");
        let message = refused(json!({ "delay": "5" }));
        assert!(message.starts_with("delay: ") && message.contains("unit"), "{message}");
        let message = refused(json!({ "per": "2" }));
        assert!(message.starts_with("per: "), "{message}");
        let message = refused(json!({ "mtu": "1400 B" }));
        assert!(message.contains("`mtu` cannot change"), "{message}");
    }
}
