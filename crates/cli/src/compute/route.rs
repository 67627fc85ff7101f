//! `slowlight route`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use engine::Time;
use routing::contacts::{Contact, ContactPlan};
use routing::routes::{Priority, Route, Router, Wanted};
use routing::settings::Settings;
use serde::Serialize;
use transport::contact_plan::{self, Base, Format};
use transport::quantity::{Size, Span};
use transport::settings::RouterSettings;

use crate::Usage;
use crate::exit::Exit;

/// Options of `route`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Contact plan
    ///
    /// Times count from the plan's epoch, or are dates.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// Format: toml, ion, hdtn, tvg-util or a-sabr [default: by the name]
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Node that has the bundle
    #[arg(long, value_name = "NODE", required_unless_present = "write")]
    from: Option<u64>,

    /// Destination node
    #[arg(long, value_name = "NODE", required_unless_present = "write")]
    to: Option<u64>,

    /// Time: after the epoch ("60 s"), or a date
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    at: String,

    /// Length of the bundle, without the overhead of lower layers; 0 routes by time alone
    #[arg(long, value_name = "SIZE", default_value = "0")]
    size: Size,

    /// Priority: bulk, normal or expedited
    #[arg(long, value_name = "PRIORITY", default_value = "normal")]
    priority: String,

    /// Lifetime [default: unlimited]
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,

    /// Node that is not the next hop; repeatable
    #[arg(long, value_name = "NODE")]
    exclude: Vec<u64>,

    /// Number of routes to list, the best first
    #[arg(long, value_name = "N", default_value = "1")]
    all: usize,

    /// Print times and volumes of each contact, and the key that decided
    #[arg(long)]
    explain: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Setting of the router, like margin=ion; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// File to write the plan to, in the format of its name
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Times without a date count from 1970, so that both kinds keep their values.
const BASE: Base = Base::from_epoch(UNIX_EPOCH);

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let origin = args.plan.display().to_string();
    let format = match &args.format {
        Some(name) => {
            name.parse::<Format>().map_err(|error| Usage(format!("--format: {error}")))?
        }
        None => named(&origin)?,
    };
    let text = transport::text::read_text(&args.plan)?;
    let document = contact_plan::read(format, &text, &origin, BASE)?;
    for note in &document.notes {
        tracing::warn!("{origin}: {note}");
    }
    if let Some(path) = &args.write {
        let name = path.display().to_string();
        let written = contact_plan::write(named(&name)?, &document.plan);
        for note in &written.notes {
            tracing::warn!("{name}: {note}");
        }
        std::fs::write(path, written.text).with_context(|| format!("cannot write {name}"))?;
    }
    let (Some(from), Some(to)) = (args.from, args.to) else { return Ok(Exit::Done.into()) };
    let (text, is_found) = found(document.plan, args, from, to)?;
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::if_succeeded(is_found).into())
}

/// Text for the routes of a plan, and whether there are any.
fn found(plan: ContactPlan, args: &Args, from: u64, to: u64) -> anyhow::Result<(String, bool)> {
    let router = Router::new(from, plan, settings(&args.settings)?);
    for node in [from, to] {
        let has = |contact: &Contact| [contact.from, contact.to].contains(&node);
        if !router.plan().contacts().iter().any(has) {
            let origin = args.plan.display();
            return Err(Usage(format!("{origin} has no contact of node {node}")).into());
        }
    }
    let answer = answer(&router, args, from, to)?;
    let mut out = Vec::new();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(&mut out, &answer, args.explain)?;
    }
    Ok((String::from_utf8(out)?, !answer.routes.is_empty()))
}

fn named(name: &str) -> Result<Format, Usage> {
    Format::of_name(name).ok_or_else(|| {
        Usage(format!(
            "{name} does not show its format; add --format, or a name that ends in .ionrc, .json, \
             .toml, .tvg or .cp"
        ))
    })
}

/// Settings of the router by `--set`.
fn settings(given: &[String]) -> anyhow::Result<Settings> {
    let mut text = String::new();
    for pair in given {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            Usage(format!("--set {pair} has no value; write it like --set margin=ion"))
        })?;
        let is_bare = value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok();
        let value = if is_bare { value.to_owned() } else { format!("{value:?}") };
        text.push_str(&format!("{key} = {value}\n"));
    }
    let changes: RouterSettings = transport::text::parse(&text, "--set")?;
    let mut settings = Settings::default();
    changes.apply(&mut settings)?;
    Ok(settings)
}

fn priority(name: &str) -> Result<Priority, Usage> {
    match name {
        "bulk" => Ok(Priority::Bulk),
        "normal" => Ok(Priority::Normal),
        "expedited" => Ok(Priority::Expedited),
        other => Err(Usage(format!("--priority is bulk, normal or expedited, not {other:?}"))),
    }
}

/// Output of the command.
#[derive(Debug, Serialize)]
struct Answer {
    from: u64,
    to: u64,
    at_s: f64,
    bytes: u64,
    /// With the overhead of lower layers.
    volume: u64,
    routes: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    next_hop: u64,
    leaves_s: f64,
    arrives_s: f64,
    best_case_s: Option<f64>,
    terminates_s: f64,
    volume_limit: Option<u64>,
    /// Key by which it is better than the next route.
    decided_by: Option<&'static str>,
    contacts: Vec<Passed>,
    #[serde(skip)]
    route: Route,
}

#[derive(Debug, Serialize)]
struct Passed {
    from: u64,
    to: u64,
    start_s: f64,
    end_s: f64,
    rate_bps: u64,
    first_byte_s: f64,
    last_byte_s: f64,
    arrives_s: f64,
    volume_limit: u64,
    #[serde(skip)]
    times: [Time; 5],
}

fn answer(router: &Router, args: &Args, from: u64, to: u64) -> anyhow::Result<Answer> {
    let at = BASE.parse(&args.at).map_err(|error| Usage(format!("--at: {error}")))?;
    let excluded: BTreeSet<u64> = args.exclude.iter().copied().collect();
    let wanted = Wanted {
        destination: to,
        bytes: args.size.0,
        priority: priority(&args.priority)?,
        expires: args.lifetime.map_or(Time::MAX, |lifetime| at + lifetime.0),
        excluded: &excluded,
    };
    // One more tells what decided on the last.
    let found = router.routes(at, &wanted, args.all.saturating_add(1));
    let routes = found.iter().enumerate().take(args.all).map(|(place, route)| {
        let decided_by = found.get(place + 1).map(|next| deciding(route, next));
        shown(router, at, wanted.priority, route, decided_by)
    });
    Ok(Answer {
        from,
        to,
        at_s: at.as_secs_f64(),
        bytes: args.size.0,
        volume: router.settings().volume(args.size.0),
        routes: routes.collect(),
    })
}

/// First key in which two routes differ.
fn deciding(route: &Route, next: &Route) -> &'static str {
    if route.arrives != next.arrives {
        "projected arrival"
    } else if route.legs.len() != next.legs.len() {
        "number of contacts"
    } else if route.terminates != next.terminates {
        "termination"
    } else if route.next_hop != next.next_hop {
        "number of the entry node"
    } else {
        "order of the plan"
    }
}

fn shown(
    router: &Router,
    at: Time,
    priority: Priority,
    route: &Route,
    decided_by: Option<&'static str>,
) -> Shown {
    let limits = router.volume_limits(route, priority);
    let passed = route.legs.iter().zip(&limits).filter_map(|(leg, limit)| {
        let contact = router.contact(leg.contact)?;
        Some(Passed {
            from: contact.from,
            to: contact.to,
            start_s: contact.start.as_secs_f64(),
            end_s: contact.end.as_secs_f64(),
            rate_bps: contact.rate_bps,
            first_byte_s: leg.first.as_secs_f64(),
            last_byte_s: leg.last.as_secs_f64(),
            arrives_s: leg.arrives.as_secs_f64(),
            volume_limit: *limit,
            times: [contact.start, contact.end, leg.first, leg.last, leg.arrives],
        })
    });
    Shown {
        next_hop: route.next_hop,
        leaves_s: route.leaves.as_secs_f64(),
        arrives_s: route.arrives.as_secs_f64(),
        best_case_s: router.best_case(at, route).map(Time::as_secs_f64),
        terminates_s: route.terminates.as_secs_f64(),
        volume_limit: limits.iter().min().copied(),
        decided_by,
        contacts: passed.collect(),
        route: route.clone(),
    }
}

fn print(out: &mut impl Write, answer: &Answer, explain: bool) -> io::Result<()> {
    if answer.routes.is_empty() {
        return writeln!(out, "no route from {} to {}", answer.from, answer.to);
    }
    if explain {
        let Answer { bytes, volume, .. } = answer;
        writeln!(out, "{bytes} bytes take a volume of {volume} bytes")?;
    }
    for shown in &answer.routes {
        let nodes = shown.contacts.iter().map(|contact| contact.to.to_string());
        let nodes: Vec<String> = [answer.from.to_string()].into_iter().chain(nodes).collect();
        let (arrives, leaves) = (BASE.show(shown.route.arrives), BASE.show(shown.route.leaves));
        writeln!(out, "{}: leaves {leaves}, arrives {arrives}", nodes.join(" > "))?;
        if !explain {
            continue;
        }
        for contact in &shown.contacts {
            let [start, end, first, last, arrives] = contact.times.map(|time| BASE.show(time));
            let Passed { from, to, volume_limit, .. } = contact;
            writeln!(out, "  {from} > {to}: contact {start} to {end}")?;
            writeln!(out, "    first byte {first}, last byte {last}, arrives {arrives}")?;
            writeln!(out, "    volume limit {volume_limit} bytes")?;
        }
        let terminates = BASE.show(shown.route.terminates);
        writeln!(out, "  contacts: {}, terminates {terminates}", shown.contacts.len())?;
        if let Some(key) = shown.decided_by {
            writeln!(out, "  better than the next route by: {key}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    const PLAN: &str = include_str!("../../testdata/lunar.ionrc");

    /// Output of a command line about the plan above.
    fn output(line: &str) -> String {
        let line = line.trim_start_matches("slowlight route");
        let mut quoted = false;
        let words = line.split(|c: char| {
            quoted ^= c == '"';
            c == ' ' && !quoted
        });
        let words = words.filter(|word| !word.is_empty()).map(|word| word.replace('"', ""));
        let args =
            Line::try_parse_from(["route".to_owned()].into_iter().chain(words)).unwrap().args;
        let plan = contact_plan::read(Format::Ion, PLAN, "lunar.ionrc", BASE).unwrap().plan;
        let (from, to) = args.from.zip(args.to).unwrap();
        found(plan, &args, from, to).unwrap().0
    }

    #[test]
    fn outputs_in_the_documentation_are_current() {
        let page = include_str!("../../../../docs/routing.md");
        assert!(page.contains(PLAN), "the page has the plan");
        let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
        let mut commands = 0;
        for pair in blocks.windows(2) {
            let (Some(command), Some(shown)) =
                (pair[0].strip_prefix("sh\nslowlight"), pair[1].split_once('\n'))
            else {
                continue;
            };
            let command = format!("slowlight{}", command.trim_end());
            if !command.contains("--write") {
                assert_eq!(output(&command), shown.1, "{command}");
                commands += 1;
            }
        }
        assert_eq!(commands, 4);
    }

    #[test]
    fn wrong_options_are_named() {
        let error = settings(&["margin".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("--set margin=ion"), "{error}");
        let error = settings(&["margins=ion".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("margin"), "{error}");
        let given = ["margin=ion", "hops=3", "overhead_min=36 B", "partial=true"];
        let settings = settings(&given.map(str::to_owned)).unwrap();
        assert_eq!((settings.hops, settings.overhead_min, settings.partial), (3, 36, true));
        assert!(priority("urgent").unwrap_err().to_string().contains("expedited"));
    }
}
