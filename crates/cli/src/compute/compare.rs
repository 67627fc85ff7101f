//! `slowlight compare`.

mod csv;
mod ranking;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use engine::FileName;
use lab::advise;
use lab::compare::{self, Between, Plan, Row};
use lab::passes;
use lab::preset::Preset;
use serde::Serialize;
use transport::SpecError;
use transport::contract::Feature;
use transport::protocol::Protocol;
use transport::quantity::{Size, Span};
use transport::records::Record;
use transport::settings::tcp::{Congestion, TcpBuffers, TcpSettings};

use crate::Usage;
use crate::compute::link_options::LinkOptions;
use crate::compute::table::Page;
use crate::compute::{conditions, show};
use crate::exit::Exit;
use crate::stop::stop_flag;
use crate::switch::{self, Switch};

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send; the received copy is verified
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Size of a generated file, e.g. "10 MB"
    #[arg(long, value_name = "SIZE", default_value = "10 MB", allow_hyphen_values = true)]
    size: Size,

    /// Protocols or stacks, separated by commas [default: those that `advise` considers]
    ///
    /// A profile follows a slash, e.g. cfdp/gsfc-2007, norm/coded, norm/coded-eager, ftp/bbr.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::known::protocol(), hide_possible_values = true)]
    protocol: Vec<Protocol>,

    /// Print every protocol, instead of the fastest of each family
    #[arg(long, conflicts_with = "protocol")]
    all: bool,

    /// Receivers behind the link, each with independent errors (1 to 1000)
    ///
    /// Multicast protocols send once to all; others send to each at an equal share of the rate.
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = crate::whole::within(1_u32..=lab::groups::MEMBERS_MAX))]
    receivers: u32,

    /// Runs of each protocol, each with its own seed
    #[arg(long, value_name = "N", default_value = "10", allow_hyphen_values = true, value_parser = crate::whole::within(1_u32..=1_000_000))]
    runs: u32,

    /// First seed; every protocol uses the same seeds
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Inactivity timeout of both ends, e.g. "1 d" [default: the protocol's]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    inactivity: Option<Span>,

    /// Congestion control of protocols over TCP [default: the profile's]
    #[arg(long, value_name = "NAME", value_parser = switch::congestion())]
    congestion: Option<Congestion>,

    /// Limit of the autotuned buffers of protocols over TCP [default: unlimited; profiles of
    /// kernels: theirs]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    /// Timestamps option of protocols over TCP [default: the profile's]
    #[arg(long, value_name = "ON|OFF")]
    timestamps: Option<Switch>,

    /// Byte ranges of SCPS-FP's records, e.g. "0-99,5000-"
    ///
    /// scps-fp-read reads them; scps-fp-update changes them.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    records: Vec<Record>,

    /// Hosts on both sides of the link that route, or split TCP connections
    ///
    /// Links of 100 Mbit/s and short delay connect them to the ends.
    #[arg(long, value_name = "NONE|TCP|SCPS")]
    pep: Option<Pep>,

    /// Store and forward at the hosts between the hops of a link
    ///
    /// They store bundles, LTP-T blocks and CFDP files; for all other protocols they route.
    #[arg(long)]
    relay: bool,

    /// Number of runs in parallel [default: one per core]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = crate::whole::within(1_u16..=u16::MAX))]
    jobs: Option<u16>,

    /// Print every column, however long the lines: packets, goodput, standard deviations and others
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    wide: bool,

    /// Print comma-separated values in full precision: every protocol, with the conditions as comments
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print the result as JSON: every protocol, fastest first
    #[arg(long)]
    json: bool,

    // Flattened groups come last: their headings hold for every option after them.
    #[command(flatten)]
    link: LinkOptions,
}

/// Gateways between the ends and the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pep {
    /// The hosts route only.
    None,
    /// The hosts split connections, with current TCP on both sides.
    Tcp,
    /// The hosts split connections, with SCPS-TP at the link's rate between them.
    Scps,
}

impl From<Pep> for Between {
    fn from(pep: Pep) -> Self {
        match pep {
            Pep::None => Self::None,
            Pep::Tcp => Self::Tcp,
            Pep::Scps => Self::Scps,
        }
    }
}

impl Args {
    fn content(&self) -> anyhow::Result<(String, Bytes)> {
        let Some(path) = &self.file else {
            let content = lab::content::made_up(self.seed, 0, self.size.bytes())?;
            return Ok(("file".to_owned(), content));
        };
        let content = std::fs::read(path)
            .map_err(|error| SpecError::Unreadable { path: path.clone(), error })?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        // A name that cannot be a receiver's, such as that of its working folder, is no matter
        // here: nobody sees it.
        let name = name.filter(|name| FileName::file(name).is_ok());
        Ok((name.unwrap_or_else(|| "file".to_owned()), content.into()))
    }

    /// Settings of TCP that the options change, if any.
    fn tcp(&self) -> Option<TcpSettings> {
        let timestamps = self.timestamps.map(bool::from);
        let mut tcp = TcpSettings::default();
        if let Some(congestion) = self.congestion {
            tcp.set(&["congestion"], congestion.name());
        }
        if let Some(buffers) = self.tcp_buffers {
            tcp.set(&["buffers"], buffers.name());
        }
        if let Some(timestamps) = timestamps {
            tcp.set(&["timestamps"], timestamps);
        }
        (!tcp.is_empty()).then_some(tcp)
    }

    /// Checks that options of TCP apply to at least one of the named protocols.
    fn check(&self) -> anyhow::Result<()> {
        let is_over_tcp = |protocol: &Protocol| {
            protocol.kind.has(Feature::Tcp) || protocol.kind.has(Feature::Nodes)
        };
        let none = !self.protocol.is_empty() && !self.protocol.iter().any(is_over_tcp);
        let options = [
            ("--congestion", self.congestion.is_some()),
            ("--tcp-buffers", self.tcp_buffers.is_some()),
            ("--timestamps", self.timestamps.is_some()),
        ];
        match options.iter().find(|(_, given)| none && *given) {
            Some((option, _)) => {
                let message = format!(
                    "{option} is for protocols over TCP, such as ftp, and --protocol names none"
                );
                Err(Usage(message).into())
            }
            None => Ok(()),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        self.check()?;
        let (name, content) = self.content()?;
        let link = self.link.preset()?;
        let plan = Plan {
            part: passes::part(&link, content.len() as u64),
            link,
            events: None,
            protocols: Vec::new(),
            content,
            name,
            receivers: self.receivers,
            runs: self.runs,
            seed: self.seed,
            inactivity: self.inactivity,
            tcp: self.tcp(),
            records: Some(self.records.clone()).filter(|records| !records.is_empty()),
            pep: self.pep.map(Between::from),
            relay: self.relay,
            jobs: self.jobs.map(usize::from),
        };
        let protocols = match self.protocol.as_slice() {
            [] => self.contenders(&plan)?,
            some => some.to_vec(),
        };
        let mut listed = Vec::new();
        let protocols = protocols.into_iter().filter(|protocol| {
            let new = !listed.contains(protocol);
            listed.push(protocol.clone());
            new
        });
        Ok(Plan { protocols: protocols.collect(), ..plan })
    }

    /// Protocols of a comparison that names none: those that the link supports.
    fn contenders(&self, plan: &Plan) -> Result<Vec<Protocol>, SpecError> {
        let mut all = advise::contenders(self.receivers);
        for protocol in all.iter_mut().filter(|_| self.congestion.is_some()) {
            // The option replaces the congestion control that the profile stands for.
            if protocol.kind.has(Feature::Tcp) {
                *protocol = Protocol::plain(protocol.kind);
            }
        }
        advise::possible(all, |protocol| plan.scenario(protocol, plan.seed))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let cancelled = stop_flag()?;
    let runs = u64::from(plan.runs) * plan.protocols.len() as u64;
    let bar = show::progress(runs, "runs");
    let rows = compare::compare(&plan, &cancelled, &|| bar.inc(1));
    bar.finish_and_clear();
    let Some(rows) = rows? else {
        writeln!(io::stderr(), "stopped by a signal; no result")?;
        return Ok(Exit::Interrupted.into());
    };
    let is_done = |row: &Row| row.completed == row.runs;
    // Without names the question is which of all can do it: FTP cannot reach Mars.
    let succeeded = match args.protocol.as_slice() {
        [] => rows.iter().any(is_done),
        _ => rows.iter().all(is_done),
    };
    crate::exit_code(print_results(args, &plan, &rows), succeeded)
}

/// Conditions and results, for other programs.
#[derive(Serialize)]
struct Report<'a> {
    /// The version of this program.
    slowlight: &'static str,
    /// The first seed.
    seed: u64,
    /// Number of receivers.
    receivers: u32,
    /// The link, with the changes that options made.
    link: &'a Preset,
    /// Gateways between the ends and the link, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pep: Option<Between>,
    /// The ranking.
    protocols: &'a [Row],
}

/// Prints the ranking.
fn print_results(args: &Args, plan: &Plan, rows: &[Row]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let ranked = ranking::ranked(rows);
    if args.json {
        let report = Report {
            slowlight: crate::VERSION,
            seed: plan.seed,
            receivers: plan.receivers,
            link: &plan.link,
            pep: plan.pep,
            protocols: rows,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else if args.csv {
        let mut conditions = conditions(args, plan);
        conditions.push(format!("slowlight {}", crate::VERSION));
        for line in csv::lines(&conditions, &ranked) {
            writeln!(out, "{line}")?;
        }
    } else {
        return print_table(args, plan, &ranked);
    }
    let mut err = io::stderr().lock();
    Ok(notes(&ranked).iter().try_for_each(|note| writeln!(err, "{note}"))?)
}

/// Prints the ranking for people: without names the fastest of each family.
fn print_table(args: &Args, plan: &Plan, ranked: &[&Row]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let page = Page::stdout().wide(args.wide);
    let shown = match args.protocol.as_slice() {
        [] if !args.all => ranking::leaders(ranked),
        _ => ranked.to_vec(),
    };
    for line in conditions(args, plan) {
        writeln!(out, "{}", page.wrapped(&line))?;
    }
    if let Some(bound) = ranking::common_bound(&shown) {
        writeln!(out, "  bound: {bound}; no protocol is faster on average")?;
    }
    let (table, has_ties) = ranking::table(&shown, plan.receivers);
    writeln!(out, "\n{}", table.drawn(page))?;
    let mut lines = Vec::new();
    if has_ties {
        lines.push("=: tied with the numbered row above, within the noise of the runs".to_owned());
    }
    lines.extend(ranking::legend(&shown));
    let hidden = ranked.len() - shown.len();
    if hidden > 0 {
        lines.push(format!("Fastest of each family; --all prints {hidden} more protocols."));
    }
    lines.extend(notes(&shown));
    Ok(lines.iter().try_for_each(|line| writeln!(out, "{}", page.wrapped(line)))?)
}

/// Conditions of the comparison, one a line.
fn conditions(args: &Args, plan: &Plan) -> Vec<String> {
    let size = Size(plan.content.len() as u64);
    let to = match plan.receivers {
        1 => String::new(),
        several => format!(" to {several} receivers"),
    };
    let runs = match plan.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    let (link, seed) = (args.link.name(), plan.seed);
    let mut lines = vec![format!("{size} over {link}{to}, {runs} per protocol from seed {seed}")];
    let between = match plan.pep {
        None => None,
        Some(Between::None) => Some("between two hosts that route"),
        Some(Between::Tcp) => Some("between two gateways that split connections (TCP)"),
        Some(Between::Scps) => Some("between two gateways that split connections (SCPS-TP)"),
    };
    lines.extend(between.map(|between| format!("  {between}")));
    lines.extend(conditions::of_link(&plan.link));
    lines.extend(conditions::known_outages(&plan.link).filter(|_| plan.pep.is_none()));
    let has_bundles = plan.protocols.iter().any(|protocol| protocol.kind.has(Feature::Nodes));
    lines.extend(conditions::of_parts(plan.part.filter(|_| has_bundles)));
    lines
}

/// Protocols that were limited by buffers, and failures by their reasons; protocols that failed
/// alike share a note.
fn notes(rows: &[&Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut failed = BTreeMap::<(String, Vec<u64>), Vec<&Row>>::new();
    for row in rows {
        let took = row.delivered_s.map(|delivered| delivered.mean);
        if let Some(note) = show::buffer_limits(row.traffic.buffers, took) {
            notes.push(format!("{}: {note}", row.protocol));
        }
        let mut reasons = BTreeMap::<&str, Vec<u64>>::new();
        for (seed, why) in &row.failures {
            reasons.entry(why).or_default().push(*seed);
        }
        for (why, seeds) in reasons {
            failed.entry((why.to_owned(), seeds)).or_default().push(row);
        }
    }
    for ((why, seeds), rows) in failed {
        let names: Vec<_> = rows.iter().map(|row| row.protocol.to_string()).collect();
        let shown: Vec<_> = seeds.iter().take(5).map(u64::to_string).collect();
        let more = if seeds.len() > shown.len() { ", ..." } else { "" };
        notes.push(format!(
            "{}: {} of {} failed: {why} (seeds {}{more})",
            names.join(", "),
            seeds.len(),
            rows[0].runs,
            shown.join(", ")
        ));
    }
    notes
}
