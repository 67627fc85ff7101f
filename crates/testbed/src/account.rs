//! Report of the emulator after a run, and whether its measurements are valid.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use emu::{Bounds, Doubt, Report};
use lab::link_spec::LinkSpec;
use lab::scenario::Scenario;
use link::{LossCause, Stats};
use serde::Serialize;

/// Report of the emulator after a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// Whether the measurements are valid.
    pub trusted: bool,
    /// Reasons against it.
    pub doubts: Vec<String>,
    /// Fate of packets, by link.
    pub links: Vec<LinkAccount>,
    /// Lateness of slowlight's own engines, by host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostAccount>,
    /// Packets dropped because the memory for packets was full.
    pub no_memory: u64,
    /// Longest time that packets may have waited to be read, in microseconds.
    pub unattended_us: f64,
}

/// Lateness of a host's engine after its timers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostAccount {
    /// Name of the host.
    pub host: String,
    /// Median lateness in microseconds.
    pub late_half_us: f64,
    /// 99th percentile of the lateness in microseconds.
    pub late_99_us: f64,
    /// Maximum lateness in microseconds.
    pub late_most_us: f64,
}

impl HostAccount {
    fn new(name: &str, lateness: &emu::Lateness) -> Self {
        Self {
            host: name.to_owned(),
            late_half_us: micros(lateness.quantile(0.5)),
            late_99_us: micros(lateness.quantile(0.99)),
            late_most_us: micros(lateness.most()),
        }
    }
}

/// Fate of a link's packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkAccount {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Packets that the sending host passed to the link.
    pub offered: u64,
    /// Packets delivered, including damaged ones.
    pub delivered: u64,
    /// Packets delivered damaged.
    pub damaged: u64,
    /// Packets lost or refused.
    pub lost: u64,
    /// Number of lost packets by cause; causes without packets are left out.
    pub lost_by: BTreeMap<&'static str, u64>,
    /// Clauses that name the causes of loss; each starts with a comma.
    #[serde(skip)]
    pub why_lost: String,
    /// Packets refused by the receiving host.
    pub refused: u64,
    /// Median lateness of packets in microseconds.
    pub late_half_us: f64,
    /// 99th percentile of the lateness in microseconds.
    pub late_99_us: f64,
    /// Maximum lateness in microseconds.
    pub late_most_us: f64,
}

impl Account {
    /// Returns the report of a run of this scenario.
    #[must_use]
    pub fn new(scenario: &Scenario, report: &Report, bounds: &Bounds) -> Self {
        let doubts = report.doubts(bounds);
        let about = |doubt: &Doubt| {
            let link = doubt.link().and_then(|link| scenario.links.get(link));
            let host = doubt.host().and_then(|host| scenario.nodes.keys().nth(host));
            match (link.map(LinkSpec::ends), host) {
                (Some((from, to)), _) => format!("{from} -> {to}: {doubt}"),
                (None, Some(host)) => format!("{host}: {doubt}"),
                (None, None) => doubt.to_string(),
            }
        };
        let hosts = scenario.nodes.keys().zip(&report.hosts);
        let played = hosts.filter(|(_, lateness)| lateness.packets() > 0);
        let links = scenario.links.iter().zip(&report.links);
        Self {
            trusted: doubts.is_empty(),
            doubts: doubts.iter().map(about).collect(),
            links: links.map(|(spec, link)| LinkAccount::new(spec, link)).collect(),
            hosts: played.map(|(name, lateness)| HostAccount::new(name, lateness)).collect(),
            no_memory: report.no_memory,
            unattended_us: micros(report.unattended),
        }
    }
}

impl LinkAccount {
    fn new(spec: &LinkSpec, link: &emu::LinkReport) -> Self {
        let (from, to) = spec.ends();
        Self {
            from,
            to,
            offered: link.stats.pushed.packets,
            delivered: link.stats.delivered.packets,
            damaged: link.stats.damaged.packets,
            lost: link.stats.lost_total().packets,
            lost_by: lost_by(&link.stats),
            why_lost: why_lost(&link.stats),
            refused: link.refused,
            late_half_us: micros(link.lateness.quantile(0.5)),
            late_99_us: micros(link.lateness.quantile(0.99)),
            late_most_us: micros(link.lateness.most()),
        }
    }
}

fn lost_by(stats: &Stats) -> BTreeMap<&'static str, u64> {
    let causes = LossCause::ALL.into_iter();
    let counts = causes.map(|cause| (cause.name(), stats.lost(cause).packets));
    counts.filter(|(_, packets)| *packets > 0).collect()
}

/// Clauses for packets that did not arrive intact; each starts with a comma.
fn why_lost(stats: &Stats) -> String {
    let mut text = String::new();
    let mut clause = |count: u64, what: &str| {
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {count} {what}");
        }
    };
    let errors = LossCause::ALL.into_iter().filter(|cause| cause.is_error());
    clause(stats.damaged.packets, "of them damaged");
    clause(stats.lost(LossCause::QueueFull).packets, "dropped by the full queue");
    clause(errors.map(|cause| stats.lost(cause).packets).sum(), "lost to link errors");
    clause(stats.lost(LossCause::Outage).packets, "lost in outages");
    clause(stats.recovered.packets, "recovered by the erasure code");
    clause(stats.queued.packets, "still in transit");
    text
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Delay up to which the standard bounds of lateness grow.
const SCALED_MOST: Duration = Duration::from_secs(10);

/// Returns the lateness bounds of a scenario. The standard ones grow with the light time: where it
/// is 8 s on all links, a packet that is 8 ms late is late by one part in a thousand.
#[must_use]
pub fn bounds(scenario: &Scenario) -> Bounds {
    let delays =
        scenario.links.iter().map(|link| link.delay.map_or(Duration::ZERO, |delay| delay.0));
    // Timers of protocols do not grow with it, so the bounds are at most ten times the standard.
    let shortest = delays.min().unwrap_or_default().min(SCALED_MOST);
    let (standard, limits) = (Bounds::default(), &scenario.limits);
    Bounds {
        usual: limits.late.map_or_else(|| standard.usual.max(shortest / 1000), |late| late.0),
        most: limits.late_most.map_or_else(|| standard.most.max(shortest / 100), |late| late.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(limits: &str) -> Scenario {
        let text = format!(
            "seed = 1\ntransfers = []\n{limits}\n[[links]]\nfrom = \"moon\"\nto = \"earth\"\n"
        );
        Scenario::parse(&text, "test").unwrap().resolved().unwrap()
    }

    #[test]
    fn scenarios_set_the_lateness_limit() {
        assert_eq!(bounds(&scenario("")), Bounds::default());
        let mut far = scenario("");
        far.links[0].delay = Some("8 s".parse().unwrap());
        let (usual, most) = (Duration::from_millis(8), Duration::from_millis(80));
        assert_eq!(bounds(&far), Bounds { usual, most });
        far.links[0].delay = Some("22 min".parse().unwrap());
        let (usual, most) = (Duration::from_millis(10), Duration::from_millis(100));
        assert_eq!(bounds(&far), Bounds { usual, most });
        let own = scenario("limits = { late = \"5 ms\", late_most = \"1 s\" }");
        let expected = Bounds { usual: Duration::from_millis(5), most: Duration::from_secs(1) };
        assert_eq!(bounds(&own), expected);
    }

    #[test]
    fn losses_of_the_emulator_are_reported() {
        let report = Report {
            links: Vec::new(),
            hosts: Vec::new(),
            no_memory: 7,
            unreadable: 0,
            unattended: Duration::from_micros(80),
        };
        let account = Account::new(&scenario(""), &report, &Bounds::default());
        assert!(!account.trusted);
        assert_eq!(account.doubts.len(), 1);
        assert!(account.doubts[0].starts_with("7 packets"), "{:?}", account.doubts);
        assert!((account.unattended_us - 80.0).abs() < 1e-9);
    }

    #[test]
    fn packets_that_did_not_arrive_are_named_by_cause() {
        let config = link::Config {
            rate: link::Rate::Constant(8_000),
            queue: link::Queue { packets: Some(2), bytes: None },
            errors: vec![link::ErrorModel::dropping(link::ErrorKind::DropList(vec![0]))],
            ..link::Config::default()
        };
        let mut link = link::Link::new(config, engine::Rng::new(1, "link")).unwrap();
        // One is in service, two wait, two find the queue full. The first one is lost by a bit
        // error.
        let taken = (0..5).filter(|_| link.push(engine::Time::ZERO, 1_000, ()).is_ok()).count();
        assert_eq!(taken, 3);
        while link.pop(engine::Time::ZERO + Duration::from_millis(2_500)).is_some() {}
        let expected = ", 2 dropped by the full queue, 1 lost to link errors, 1 still in transit";
        assert_eq!(why_lost(link.stats()), expected);
        assert_eq!(lost_by(link.stats()), BTreeMap::from([("drop list", 1), ("queue full", 2)]));
        assert_eq!(why_lost(&Stats::default()), "");
    }

    #[test]
    fn late_hosts_are_named() {
        let (idle, late) = (emu::Timings::new(), emu::Timings::new());
        late.record(Duration::from_millis(30), 1);
        let scenario = scenario("");
        let names: Vec<_> = scenario.nodes.keys().cloned().collect();
        let report = Report {
            links: Vec::new(),
            hosts: vec![idle.so_far(), late.so_far()],
            no_memory: 0,
            unreadable: 0,
            unattended: Duration::ZERO,
        };
        let account = Account::new(&scenario, &report, &Bounds::default());
        assert_eq!(
            account.doubts,
            [format!("{}: a timer or wake-up was 30.0ms late (bound 10ms)", names[1])]
        );
        let [host] = &account.hosts[..] else { panic!("{:?}", account.hosts) };
        assert_eq!((&host.host, account.trusted), (&names[1], false));
        assert!((host.late_most_us - 30_000.0).abs() < 1e-9);
    }
}
