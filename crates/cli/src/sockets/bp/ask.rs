//! `slowlight bp ping`, `trace`, `query` and `cancel`: requests to a node.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use service::api::model::{self, Node, Pong, Report};
use transport::quantity::{Size, Span};

use super::{Place, held, print};
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
pub(super) struct PingArgs {
    /// Echo endpoint, e.g. ipn:2.2047
    to: String,

    /// Number of bundles
    #[arg(long, short, value_name = "N", default_value_t = 4)]
    count: u32,

    /// Pause between a reply and the next bundle
    #[arg(long, short, value_name = "DURATION", default_value = "1 s")]
    interval: Span,

    /// Timeout of each reply [default: three times the time to the endpoint by the contact plan of
    /// the node, at least 10 s]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,

    /// Payload size of a bundle
    #[arg(long, value_name = "SIZE", default_value = "64 B")]
    size: Size,

    /// Print a summary as JSON at the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

fn millis(span: Span) -> String {
    span.duration().as_millis().to_string()
}

pub(super) fn ping(args: &PingArgs) -> Result<ExitCode> {
    let mut client = args.place.connect()?;
    let (count, interval) = (args.count.to_string(), millis(args.interval));
    let (bytes, timeout) = (args.size.bytes().to_string(), args.timeout.map(millis));
    let mut query = vec![
        ("to", args.to.as_str()),
        ("count", &count),
        ("interval_ms", &interval),
        ("bytes", &bytes),
    ];
    query.extend(timeout.as_deref().map(|timeout| ("timeout_ms", timeout)));
    let mut times = Vec::new();
    let mut sent = 0_u32;
    let (mut printed, mut waited) = (Ok(()), Span::default());
    client.lines("/ping", &query, |pong: Pong| {
        sent += 1;
        waited = Span(Duration::from_millis(pong.timeout_ms));
        let line = match pong.rtt_us {
            Some(rtt) => format!("{} from {}: {:.3} ms", pong.number, args.to, rtt / 1000.0),
            None => format!("{} from {}: no reply within {waited}", pong.number, args.to),
        };
        times.extend(pong.rtt_us);
        if !args.json {
            printed = print(&line);
        }
        printed.is_ok()
    })?;
    printed?;
    times.sort_by(f64::total_cmp);
    let text = if args.json {
        json!({
            "sent": sent,
            "answered": times.len(),
            "rtt_us": {
                "p50": quantile(&times, 0.5),
                "p90": quantile(&times, 0.9),
                "p99": quantile(&times, 0.99),
                "max": times.last(),
            },
        })
        .to_string()
    } else {
        let mut text = summary(sent, &times);
        if times.len() < sent as usize && args.timeout.is_none() {
            text += &format!("\n{waited} waited; a reply over a long path takes longer: --timeout");
        }
        text
    };
    crate::exit_code(print(&text), times.len() == sent as usize)
}

/// Last line of a ping, from round trips in microseconds, sorted.
fn summary(sent: u32, times: &[f64]) -> String {
    let answered = times.len();
    let [p50, p99] = [0.5, 0.99].map(|q| quantile(times, q).map(|rtt| rtt / 1000.0));
    let within = p50
        .zip(p99)
        .map(|(p50, p99)| format!("; half within {p50:.3} ms, 99 % within {p99:.3} ms"));
    format!("{sent} sent, {answered} received{}", within.unwrap_or_default())
}

/// Quantile of sorted values, by the nearest rank.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[derive(Debug, clap::Args)]
pub(super) struct TraceArgs {
    /// Destination endpoint, e.g. ipn:2.2047
    to: String,

    /// Time to wait for reports [default: three times the time to the endpoint by the contact plan
    /// of the node, at least 10 s]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,

    #[command(flatten)]
    place: Place,
}

pub(super) fn trace(args: &TraceArgs) -> Result<ExitCode> {
    let mut client = args.place.connect()?;
    let timeout = args.timeout.map(millis);
    let mut query = vec![("to", args.to.as_str())];
    query.extend(timeout.as_deref().map(|timeout| ("timeout_ms", timeout)));
    let started = Instant::now();
    let own: Node = client.get("/node", &[])?;
    let (mut printed, mut arrived, mut is_end_alone) = (Ok(()), false, true);
    client.lines("/trace", &query, |report: Report| {
        arrived = report.what.iter().any(|what| what == "delivered");
        is_end_alone &= arrived && report.from != own.id;
        let gone = report.what.iter().any(|what| what == "deleted");
        let why = if gone { format!(" ({})", report.reason) } else { String::new() };
        let what = report.what.join(", ");
        printed = print(&format!("{:.3} s  {}: {what}{why}", report.seconds, report.from));
        printed.is_ok() && !arrived && !gone
    })?;
    if !arrived && printed.is_ok() {
        let waited = match started.elapsed() {
            short if short < Duration::from_secs(1) => {
                Duration::from_millis(short.as_millis() as u64)
            }
            long => Duration::from_secs(long.as_secs()),
        };
        let waited = Span(waited);
        printed = print(&format!(
            "no node reported the delivery within {waited}; reports over a long path take longer \
             (--timeout), and nodes send those that their [reports] settings allow"
        ));
    }
    if arrived && is_end_alone && printed.is_ok() {
        printed = print(
            "no other node reported; set `reports.forwarding = true` and `reports.reception = true` in \
             their settings",
        );
    }
    crate::exit_code(printed, arrived)
}

#[derive(Debug, clap::Args)]
pub(super) struct QueryArgs {
    /// List the bundles of the node too
    #[arg(long)]
    bundles: bool,

    #[command(flatten)]
    filter: held::Filter,

    /// Order of the bundles
    #[arg(long, value_name = "ORDER", default_value = "arrival")]
    sort: held::Order,

    /// Print as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn query(args: &QueryArgs) -> Result<ExitCode> {
    let mut client = args.place.connect()?;
    let node: Node = client.get("/node", &[])?;
    let is_listed = args.bundles || !args.filter.is_empty();
    let mut bundles = is_listed.then(|| held::list(&mut client, &args.filter)).transpose()?;
    if let Some(bundles) = &mut bundles {
        args.sort.sort(bundles);
    }
    if args.json {
        let mut value = serde_json::to_value(&node)?;
        if let Some(bundles) = &bundles {
            value["held"] = serde_json::to_value(bundles)?;
        }
        return crate::exit_code(print(&format!("{value:#}")), true);
    }
    let mut text = state(&node);
    for bundle in bundles.iter().flatten() {
        text += "\n";
        text += &held::line(bundle);
    }
    crate::exit_code(print(&text), true)
}

fn state(node: &Node) -> String {
    let list = |of: &[String]| if of.is_empty() { "none".to_owned() } else { of.join(", ") };
    let ready = if node.is_ready { "" } else { ", reads its store" };
    let kept = if node.is_persistent { "on disk" } else { "in memory" };
    let counts = &node.counts;
    let discovered = node
        .discovered
        .iter()
        .map(|model::Discovered { node, address, .. }| format!("{node} at {address}"));
    let discovered: Vec<String> = discovered.collect();
    let discovered = match &discovered[..] {
        [] => String::new(),
        some => format!("\ndiscovered: {}", list(some)),
    };
    let trouble =
        node.trouble.as_ref().map(|what| format!("\ntrouble: {what}")).unwrap_or_default();
    format!(
        "{}: process {}, up for {}{ready}\n\
         neighbours: {}{discovered}\n\
         endpoints: {}\n\
         {} bundles with {} bytes {kept}\n\
         {} sent from here, {} received ({} again), {} forwarded, {} delivered\n\
         {} refused, {} malformed, {} expired, {} deleted ({} by security rules){trouble}",
        node.id,
        node.pid,
        held::whole(node.seconds),
        list(&node.neighbours),
        list(&node.endpoints),
        counts.bundles,
        counts.bytes,
        counts.sourced,
        counts.received,
        counts.duplicates,
        counts.forwarded,
        counts.delivered,
        counts.refused,
        counts.malformed,
        counts.expired,
        counts.deleted,
        counts.insecure,
    )
}

#[derive(Debug, clap::Args)]
pub(super) struct CancelArgs {
    /// Bundle identifier, as `slowlight bp query --bundles` prints it
    id: String,

    #[command(flatten)]
    place: Place,
}

pub(super) fn cancel(args: &CancelArgs) -> Result<ExitCode> {
    args.place.connect()?.delete("/bundles", &[("id", &args.id)])?;
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_without_answers_has_no_times() {
        assert_eq!(summary(4, &[]), "4 sent, 0 received");
        let expected = "2 sent, 1 received; half within 2.500 ms, 99 % within 2.500 ms";
        assert_eq!(summary(2, &[2_500.0]), expected);
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let all: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&all, 0.5), Some(50.0));
        assert_eq!(quantile(&all, 0.99), Some(99.0));
        assert_eq!(quantile(&[7.0], 0.01), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
