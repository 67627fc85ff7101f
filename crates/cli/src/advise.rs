//! `slowlight advise`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use lab::advise::{self, Advice, Candidate, Question};
use lab::quantity::{Size, Span};
use serde::Serialize;

use crate::link_options::LinkOptions;
use crate::show;
use crate::transfer::stop_flag;

/// Options of `advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Size of the file, like "10MB"
    #[arg(long, value_name = "SIZE", default_value = "10MB", allow_hyphen_values = true)]
    size: Size,

    /// Nothing comes back from the receiver
    #[arg(long)]
    no_return: bool,

    /// How many receive it
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(lab::groups::MEMBERS_MAX)))]
    receivers: u32,

    /// The receiver wants the octets in their order, as they come
    #[arg(long)]
    in_order: bool,

    /// The hosts between the hops of the link keep what they hand on
    #[arg(long)]
    relay: bool,

    /// When the file must be there, like "8 min" of a pass
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    deadline: Option<Span>,

    /// The first seed
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::seed)]
    seed: u64,

    /// Threads; one a core if left out
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// How many of the ranking are shown
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,

    /// Print a paragraph for a mission's documents in place of a table
    #[arg(long, conflicts_with = "json")]
    text: bool,

    /// Print everything as JSON, with the world in which the first was simulated
    #[arg(long)]
    json: bool,

    // Flattened groups come last: their headings hold for every option after them.
    #[command(flatten)]
    link: LinkOptions,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let question = Question {
        link: args.link.preset()?,
        size: args.size,
        has_return: !args.no_return,
        receivers: args.receivers,
        in_order: args.in_order,
        relay: args.relay,
        deadline: args.deadline,
        seed: args.seed,
        jobs: args.jobs.map(usize::from),
    };
    let cancelled = stop_flag()?;
    let Some(advice) = advise::advise(&question, &cancelled)? else {
        writeln!(io::stderr(), "stopped")?;
        return Ok(ExitCode::from(130));
    };
    let can = advice.ranking.first().is_some_and(|best| best.success > 0.0);
    crate::told(tell(args, &question, &advice), can)
}

/// Everything, for other programs.
#[derive(Serialize)]
struct Report<'a> {
    slowlight: &'static str,
    seed: u64,
    advice: &'a Advice,
    /// The world of the first, with every setting.
    scenario: String,
}

fn tell(args: &Args, question: &Question, advice: &Advice) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let Some(best) = advice.ranking.first() else { return Ok(()) };
    if args.json {
        let scenario = question.scenario(&best.protocol)?.to_toml()?;
        let (slowlight, seed) = (env!("CARGO_PKG_VERSION"), question.seed);
        let report = Report { slowlight, seed, advice, scenario };
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    let paragraph = paragraph(question, advice, best);
    if args.text {
        writeln!(out, "{paragraph}")?;
        return Ok(());
    }
    writeln!(out, "{}", table(advice, usize::from(args.top)))?;
    writeln!(out, "{paragraph}")?;
    Ok(())
}

fn table(advice: &Advice, top: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "",
        "protocol",
        "there in",
        "5 to 95 of 100",
        "of the bound",
        "came",
        "runs",
    ]);
    let dash = || "-".to_owned();
    for (rank, candidate) in advice.ranking.iter().take(top).enumerate() {
        let interval = |(low, high)| format!("{} to {}", show::seconds(low), show::seconds(high));
        let share = candidate.bound_s.zip(candidate.mean_s).map(|(bound, mean)| bound / mean);
        table.add_row([
            (rank + 1).to_string(),
            candidate.protocol.to_string(),
            candidate.mean_s.map_or_else(dash, show::seconds),
            candidate.interval_s.map_or_else(dash, interval),
            share.map_or_else(dash, show::percent),
            show::percent(candidate.success),
            candidate.runs.to_string(),
        ]);
    }
    table
}

/// What to take, what to expect of it, and why, in sentences.
fn paragraph(question: &Question, advice: &Advice, best: &Candidate) -> String {
    let Some(mean) = best.mean_s else {
        let why = best.failures.keys().next().map_or("", String::as_str);
        return format!("None of them brings the file over this link. Of the first: {why}.");
    };
    let first = match question.deadline {
        Some(deadline) if best.success == 0.0 => {
            format!("None is there within {deadline}. The soonest is {}.", best.protocol)
        }
        Some(_) | None => format!("Take {}.", best.protocol),
    };
    let mut said = vec![first];
    let expected = match best.interval_s {
        Some((low, high)) if high > low => format!(
            "{} are there {} after they are asked for, in 90 of 100 runs between {} and {}",
            question.size,
            show::seconds(mean),
            show::seconds(low),
            show::seconds(high)
        ),
        _ => {
            format!("{} are there {} after they are asked for", question.size, show::seconds(mean))
        }
    };
    let bound = best.bound_s.map_or(String::new(), |bound| {
        let least = show::seconds(bound);
        format!("; no transport can do it in less than {least} in the mean")
    });
    said.push(format!("{expected}{bound}."));
    if best.success > 0.0 && best.success < 1.0 {
        let late = if question.deadline.is_some() { " in time" } else { "" };
        said.push(format!("It came{late} in {} of the runs.", show::percent(best.success)));
    } else if let Some(deadline) = question.deadline.filter(|_| best.success > 0.0) {
        said.push(format!("It was there within {deadline} in all runs."));
    }
    said.extend(advice.ranking.get(1).map(|second| of_second(best, second)));
    said.extend(of_tcp(advice, mean));
    let how = if advice.extrapolated {
        format!(
            "Files of {} and half of that were simulated, and the rest was drawn on from these",
            Size(advise::SIMULATED_MAX)
        )
    } else {
        "All of this was simulated".to_owned()
    };
    said.push(format!(
        "{how}, in {} worlds, seeds from {} on, by slowlight {}.",
        advice.runs,
        question.seed,
        env!("CARGO_PKG_VERSION")
    ));
    said.join(" ")
}

/// How the second compares.
fn of_second(best: &Candidate, second: &Candidate) -> String {
    let name = &second.protocol;
    match (best.mean_s, second.mean_s) {
        (Some(first), Some(mean)) if second.success >= best.success => {
            let more = 100.0 * (mean / first - 1.0);
            format!(
                "{name} is next, with {} ({more:+.1} %){}.",
                show::seconds(mean),
                why(best, second)
            )
        }
        (_, Some(mean)) => format!(
            "{name} is next: it came in {} of the runs, in {}.",
            show::percent(second.success),
            show::seconds(mean)
        ),
        (_, None) => format!("No other came: {name} did not in any run."),
    }
}

/// What of a candidate's time explains that it is behind.
fn why(best: &Candidate, other: &Candidate) -> String {
    let ready = other.ready_s.unwrap_or(0.0) - best.ready_s.unwrap_or(0.0);
    let behind = other.mean_s.unwrap_or(0.0) - best.mean_s.unwrap_or(0.0);
    let packets = other.packets_ratio.zip(best.packets_ratio).map(|(other, best)| other / best);
    if ready > 0.0 && ready >= 0.5 * behind {
        return format!("; it needs {} before the file can begin to cross", show::seconds(ready));
    }
    match packets {
        Some(ratio) if ratio > 1.05 => {
            format!("; its sender sends {:.0} % more packets", 100.0 * (ratio - 1.0))
        }
        _ => String::new(),
    }
}

/// What becomes of it over TCP, which is what people have.
fn of_tcp(advice: &Advice, best_s: f64) -> Option<String> {
    let is_tcp = |candidate: &&Candidate| candidate.protocol.to_string() == "ftp";
    let ftp = advice.ranking.iter().skip(2).find(is_tcp)?;
    Some(match ftp.mean_s {
        Some(mean) => {
            format!("FTP takes {}, {:.1} times as long.", show::seconds(mean), mean / best_s)
        }
        None => "FTP does not bring it.".to_owned(),
    })
}
