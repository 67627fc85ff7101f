//! `slowlight advise`.

mod commands;
mod outages;
mod words;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;

use lab::advise::{self, Advice, Basis, Candidate, Question};
use lab::preset::Sharing;
use serde::Serialize;
use transport::quantity::{Size, Span};

use self::outages::Request;
use crate::compute::link_options::LinkOptions;
use crate::compute::table::{Cell, Column, Page, Table, Tone};
use crate::compute::{conditions, show};
use crate::exit::Exit;
use crate::stop::stop_flag;

/// Options of `advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Size of the file, e.g. "10 MB"
    #[arg(long, value_name = "SIZE", default_value = "10 MB", allow_hyphen_values = true)]
    size: Size,

    /// No return link: transports send parity in advance, or no repairs
    #[arg(long)]
    no_return: bool,

    /// Number of receivers
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = crate::whole::within(1_u32..=lab::groups::MEMBERS_MAX))]
    receivers: u32,

    /// The receiver reads the bytes in order during the transfer
    #[arg(long)]
    in_order: bool,

    /// The hosts between the hops of the link store and forward
    #[arg(long)]
    relay: bool,

    /// Deadline for the delivery, e.g. "8 min" of a pass; a transport meets it with 95 % of its
    /// runs
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    deadline: Option<Span>,

    /// Prefer the least capacity among transports that meet the deadline, or without one take at
    /// most 10 % longer than the fastest
    #[arg(long)]
    thrifty: bool,

    /// Shared path: recommend only transports with congestion control [default: the link's setting;
    /// without one, up to 200 ms one way]
    #[arg(long, conflicts_with = "dedicated")]
    shared: bool,

    /// Dedicated path: also recommend transports without congestion control
    #[arg(long)]
    dedicated: bool,

    /// Processor time for simulations, e.g. "1 min"; a second counts as 250,000 packets
    #[arg(long, value_name = "DURATION", default_value = "15 s", value_parser = budget)]
    budget: Span,

    /// First seed
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Number of runs in parallel [default: one per core]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = crate::whole::within(1_u16..=u16::MAX))]
    jobs: Option<u16>,

    /// Rows of the ranking to print
    #[arg(long, value_name = "N", default_value = "8", value_parser = crate::whole::within(1_u16..=u16::MAX))]
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

/// A budget for which anything can be simulated.
fn budget(text: &str) -> Result<Span, String> {
    let budget: Span = text.parse().map_err(|error| format!("{error}"))?;
    if budget.duration().is_zero() {
        return Err("nothing can be simulated in no time; give at least 1 s".to_owned());
    }
    Ok(budget)
}

impl Args {
    /// The question, and the datagram size chosen for bit errors, if any.
    fn question(&self) -> anyhow::Result<(Question, Option<Size>)> {
        let given = [(self.shared, Sharing::Shared), (self.dedicated, Sharing::Dedicated)];
        let mut link = self.link.preset()?;
        // Options describe the link, not the named one that they start from.
        link.sharing = link.sharing.filter(|_| !self.link.is_assumed());
        let mut question = Question {
            link,
            size: self.size,
            has_return: !self.no_return,
            receivers: self.receivers,
            relay: self.relay,
            deadline: self.deadline,
            thrifty: self.thrifty,
            sharing: given.into_iter().find_map(|(is_given, sharing)| is_given.then_some(sharing)),
            budget: self.budget,
            seed: self.seed,
            jobs: self.jobs.map(usize::from),
        };
        let suited = question.suit_datagrams()?;
        Ok((question, suited))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (question, suited) = args.question()?;
    let cancelled = stop_flag()?;
    let Some(advice) = advise::advise(&question, &cancelled)? else {
        writeln!(io::stderr(), "stopped by a signal; no result")?;
        return Ok(Exit::Interrupted.into());
    };
    let serves = advice.ranking.first().is_some_and(|best| serves(&question, best));
    crate::exit_code(print(args, &question, suited, &advice), serves)
}

/// Whether a transport is known to deliver the file in [`advise::SURE`] of the runs, in time if
/// there is a deadline. Without one, an estimate from shorter files counts.
fn serves(question: &Question, best: &Candidate) -> bool {
    match (best.success, best.basis) {
        (Some(success), _) => success >= advise::SURE,
        (None, Basis::Estimated) => question.deadline.is_none(),
        (None, Basis::Simulated | Basis::Unknown) => false,
    }
}

/// Everything, for other programs.
#[derive(Serialize)]
struct Report<'a> {
    slowlight: &'static str,
    seed: u64,
    advice: &'a Advice,
    /// Commands of each transport that has some, as they are printed for the first.
    commands: BTreeMap<String, Vec<String>>,
    /// The world of the first, with every setting.
    scenario: String,
}

fn print(
    args: &Args,
    question: &Question,
    suited: Option<Size>,
    advice: &Advice,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let Some(best) = advice.ranking.first() else { return Ok(()) };
    let request = Request { question, contacts: args.link.contact_options()? };
    if args.json {
        let scenario = question.scenario_of(best)?.to_toml()?;
        let (slowlight, seed) = (crate::VERSION, question.seed);
        let commands = commands::all(&request, advice);
        let report = Report { slowlight, seed, advice, commands, scenario };
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    let page = Page::stdout();
    let paragraph = words::paragraph(question, advice, best, args.in_order);
    if args.text {
        if args.link.is_assumed() {
            writeln!(io::stderr(), "link: {}{ASSUMED}", args.link.name())?;
        }
        writeln!(out, "{paragraph}")?;
    } else {
        for line in conditions(args, question, suited, advice) {
            writeln!(out, "{}", page.wrapped(&line))?;
        }
        if advice.runs > 0 {
            writeln!(out, "\n{}", table(advice, usize::from(args.top)).drawn(page))?;
        }
        writeln!(out)?;
        writeln!(out, "{}", page.paragraph(&paragraph))?;
    }
    for line in commands::lines(&request, advice, best) {
        let is_command = line.contains(": ") && line.contains(" slowlight ");
        let text = if is_command { page.command(&line) } else { page.wrapped(&line) };
        writeln!(out, "{text}")?;
    }
    Ok(())
}

/// Stands behind the name of the link if the command line names none.
const ASSUMED: &str = " (assumed; --link chooses one of `slowlight links`)";

/// Conditions of the advice, one a line.
fn conditions(
    args: &Args,
    question: &Question,
    suited: Option<Size>,
    advice: &Advice,
) -> Vec<String> {
    let to = match question.receivers {
        1 => String::new(),
        several => format!(" to {several} receivers"),
    };
    let back = if question.has_return { "" } else { " without a return link" };
    let (size, link, seed) = (question.size, args.link.name(), question.seed);
    let assumed = if args.link.is_assumed() { ASSUMED } else { "" };
    let mut lines = vec![format!("{size} over {link}{assumed}{to}{back}, seeds from {seed}")];
    lines.extend(conditions::of_link(&question.link));
    lines.extend(conditions::known_outages(&question.link));
    lines.extend(conditions::of_parts(question.part()));
    lines.extend(suited.map(|size| {
        format!("  datagrams of {size} suit these bit errors; --datagram gives another size")
    }));
    let bound = advice.ranking.first().and_then(|best| best.bound_s);
    lines.extend(bound.map(|bound| {
        format!("  bound: {}; no transport is faster on average", show::duration(bound))
    }));
    lines
}

fn table(advice: &Advice, top: usize) -> Table {
    let mut table = Table::new([
        Column::right(""),
        Column::left("protocol"),
        Column::right("delivered"),
        Column::left("90 % of runs").spare(1),
        Column::right("of bound"),
        Column::bar().spare(4),
        Column::right("spent").spare(2),
        Column::right("success"),
        Column::right("runs").spare(3),
    ]);
    for (at, candidate) in advice.ranking.iter().take(top).enumerate() {
        let mark = if candidate.basis == Basis::Simulated { "" } else { "~" };
        let share = candidate.bound_s.zip(candidate.mean_s).map(|(bound, mean)| bound / mean);
        let rank =
            if (1..advice.tied).contains(&at) { "=".to_owned() } else { (at + 1).to_string() };
        let name = Cell::from(candidate.title());
        let success = candidate.success.map(|share| {
            let tone = if share < 1.0 { Tone::Bad } else { Tone::Plain };
            Cell::from(format!("{mark}{}", show::percent(share))).tone(tone)
        });
        let marked = |text: String| format!("{mark}{text}");
        table.row([
            rank.into(),
            if at < advice.tied { name.tone(Tone::Strong) } else { name },
            Cell::optional(candidate.mean_s.map(show::duration).map(marked)),
            Cell::optional(
                candidate.interval_s.and_then(|(low, high)| span(low, high)).map(marked),
            ),
            Cell::optional(share.map(show::percent).map(marked)),
            share.map_or_else(|| Cell::from(""), Cell::Bar),
            Cell::optional(candidate.spent.map(show::factor).map(marked)),
            success.unwrap_or(Cell::None),
            candidate.runs.to_string().into(),
        ]);
    }
    table
}

/// An interval, which may have no upper limit; `None` if both limits print as the same.
fn span(low: f64, high: Option<f64>) -> Option<String> {
    match high {
        Some(high) => show::range(low, high),
        None => Some(format!("at least {}", show::duration(low))),
    }
}

#[cfg(all(test, feature = "sockets"))]
mod tests;
