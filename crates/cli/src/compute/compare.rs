//! `slowlight compare`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use engine::FileName;
use lab::compare::{self, Between, Plan, Row};
use lab::link_spec::{Framing, LinkSpec};
use lab::preset::Preset;
use lab::stats::Summary;
use serde::Serialize;
use transport::SpecError;
use transport::protocol::{ContentKind, Kind, Protocol};
use transport::quantity::Window;
use transport::quantity::{Size, Span};
use transport::records::Record;
use transport::settings::tcp::{Congestion, TcpBuffers, TcpSettings};

use crate::Usage;
use crate::compute::link_options::LinkOptions;
use crate::compute::show;
use crate::stop::stop_flag;
use crate::switch::{self, Switch};

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send; its bytes cross and the copy is verified
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Size of a made-up file, like "10MB"
    #[arg(long, value_name = "SIZE", default_value = "10MB", allow_hyphen_values = true)]
    size: Size,

    /// Protocols, separated by commas; a profile follows a slash, as in cfdp/gsfc-2007
    /// [default: those that repeat what is lost, without models of programs, SCPS-FP's records and CFDP in bundles]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    protocol: Vec<Protocol>,

    /// Receivers behind the link, each with errors of its own, 1000 at most; protocols that know
    /// groups send once to all, the others to each at an equal share of the rate
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(lab::groups::MEMBERS_MAX)))]
    receivers: u32,

    /// Runs of each protocol, each with a seed of its own
    #[arg(long, value_name = "N", default_value = "10", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,

    /// The first seed; the same seeds are used for every protocol
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Silence after which either end gives up, like "1 d"; each protocol's own if left out
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    inactivity: Option<Span>,

    /// Congestion control of protocols over TCP; that of the profile if left out
    #[arg(long, value_name = "NAME", value_parser = switch::congestion())]
    congestion: Option<Congestion>,

    /// Growth limit of the buffers of protocols over TCP [default: unlimited, but for kernels'
    /// profiles]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    /// Time stamps of protocols over TCP; as in the profile if left out
    #[arg(long, value_name = "ON|OFF")]
    timestamps: Option<Switch>,

    /// Bytes of the file that scps-fp-read reads, or that differ for scps-fp-update, separated by
    /// commas, like "0-99,5000-"
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    records: Vec<Record>,

    /// Hosts between the ends and the link, with short links of 100 Mbit/s to the ends: they split
    /// the TCP connections that cross them, or route
    #[arg(long, value_name = "NONE|TCP|SCPS")]
    pep: Option<Pep>,

    /// The hosts between the hops of a link that has several keep what they hand on: bundles, blocks
    /// of LTP-T, and files by CFDP; for all other protocols they route
    #[arg(long)]
    relay: bool,

    /// Threads; one a core if left out
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    // Flattened groups come last: their headings hold for every option after them.
    #[command(flatten)]
    link: LinkOptions,
}

/// What hosts between the ends and the link do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pep {
    /// They route.
    None,
    /// They split connections, with TCP of today on both sides.
    Tcp,
    /// They split connections, with SCPS-TP at the link's rate between them.
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

    /// What is said of TCP, if anything is.
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

    /// Whether what was said of TCP is for any of the protocols that were named.
    fn check(&self) -> anyhow::Result<()> {
        let is_over_tcp =
            |protocol: &Protocol| protocol.kind.runs_over_tcp() || protocol.kind.has_nodes();
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
        let is_usual = |kind: &Kind| {
            kind.is_reliable()
                && kind.program().is_none()
                && kind.carries() == ContentKind::File
                // Bundles have been sent over each of their layers already.
                && !kind.is_entity_in_bundles()
        };
        let every = || Kind::all().filter(is_usual);
        let protocols = match self.protocol.as_slice() {
            [] => every().map(Protocol::plain).collect(),
            some => some.to_vec(),
        };
        let mut seen = Vec::new();
        let protocols = protocols.into_iter().filter(|protocol| {
            let new = !seen.contains(protocol);
            seen.push(protocol.clone());
            new
        });
        Ok(Plan {
            link: self.link.preset()?,
            protocols: protocols.collect(),
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
        })
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
        writeln!(io::stderr(), "stopped")?;
        // What a shell reports for a program that ctrl-C ended.
        return Ok(ExitCode::from(130));
    };
    let is_done = |row: &Row| row.completed == row.runs;
    // Without names the question is which of all can do it: FTP cannot reach Mars.
    let succeeded = match args.protocol.as_slice() {
        [] => rows.iter().any(is_done),
        _ => rows.iter().all(is_done),
    };
    crate::exit_code(print_results(args, &plan, &rows), succeeded)
}

/// What was compared and what came of it, for other programs.
#[derive(Serialize)]
struct Report<'a> {
    /// The version of this program.
    slowlight: &'static str,
    /// The first seed.
    seed: u64,
    /// How many received the file.
    receivers: u32,
    /// The link, with the changes that options made.
    link: &'a Preset,
    /// What hosts between the ends and the link do, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pep: Option<Between>,
    /// The ranking.
    protocols: &'a [Row],
}

/// Prints the ranking.
fn print_results(args: &Args, plan: &Plan, rows: &[Row]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let report = Report {
            slowlight: env!("CARGO_PKG_VERSION"),
            seed: plan.seed,
            receivers: plan.receivers,
            link: &plan.link,
            pep: plan.pep,
            protocols: rows,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        describe(args, plan)?;
        writeln!(out, "{}", table(plan, rows))?;
    }
    Ok(explain(rows)?)
}

/// Says what was compared.
fn describe(args: &Args, plan: &Plan) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let size = show::bytes(plan.content.len() as f64);
    let to = match plan.receivers {
        1 => String::new(),
        several => format!(" to {several} receivers"),
    };
    writeln!(
        err,
        "{size} over {}{to}, {} runs a protocol from seed {}",
        args.link.name(),
        plan.runs,
        plan.seed
    )?;
    match plan.pep {
        None => {}
        Some(Between::None) => writeln!(err, "  between two hosts that route")?,
        Some(Between::Tcp) => writeln!(err, "  between two gateways that split connections (TCP)")?,
        Some(Between::Scps) => {
            writeln!(err, "  between two gateways that split connections (SCPS-TP)")?;
        }
    }
    for hop in &plan.link.hops {
        let (there, back) = (line_of(hop), line_of(&hop.way_back()));
        if there == back {
            writeln!(err, "  both ways: {there}")?;
        } else {
            writeln!(err, "  there: {there}")?;
            writeln!(err, "  back: {back}")?;
        }
    }
    Ok(())
}

/// What one direction of a hop is like.
fn line_of(spec: &LinkSpec) -> String {
    let spec = spec.clone().resolved();
    // A rate of 0 is without limit.
    let limit = spec.rate.filter(|rate| rate.bps() > 0);
    let rate = match (&spec.rate_steps, limit) {
        (Some(_), _) => "a rate that changes".to_owned(),
        (None, Some(rate)) => rate.to_string(),
        (None, None) => "any rate".to_owned(),
    };
    let delay = match &spec.delay_points {
        Some(_) => "a delay that changes".to_owned(),
        None => spec.delay.unwrap_or_default().to_string(),
    };
    let mut parts = vec![rate, delay];
    parts.extend(spec.errors.summary());
    let list = |windows: &Vec<Window>| {
        windows.iter().map(Window::to_string).collect::<Vec<_>>().join(", ")
    };
    parts.extend(spec.outages.as_ref().map(|windows| format!("down {}", list(windows))));
    parts.extend(spec.outage_every.map(|o| format!("down {} every {}", o.down, o.period)));
    parts.extend(spec.contacts.as_ref().map(|windows| format!("up {} only", list(windows))));
    parts.extend(spec.queue.map(|queue| format!("queue {queue}")));
    let framing = spec.framing.filter(|framing| *framing != Framing::default());
    parts.extend(framing.map(|framing| format!("framing {framing}")));
    if spec.header_compression == Some(true) {
        parts.push("headers compressed".to_owned());
    }
    parts.extend(spec.mtu.map(|mtu| format!("MTU {mtu}")));
    parts.extend(spec.datagram.map(|datagram| format!("datagram {datagram}")));
    parts.join(", ")
}

/// Mean times of a protocol, one a line.
fn times(row: &Row) -> String {
    let each = row.multicast.map(|_| row.each_delivered_s);
    let connection = row.ready_s.map(|_| [row.ready_s, row.transfer_s]);
    let times = [row.delivered_s].into_iter().chain(each).chain([row.confirmed_s]);
    let times = times.chain(connection.into_iter().flatten());
    let mean =
        |time: Option<Summary>| time.map_or("-".to_owned(), |summary| show::seconds(summary.mean));
    times.map(mean).collect::<Vec<_>>().join("\n")
}

/// Some lines a protocol, so that the table fits a terminal of 80 columns.
fn table(plan: &Plan, rows: &[Row]) -> Table {
    let best = rows.iter().filter_map(|row| row.goodput_bps).map(|g| g.mean).fold(0.0, f64::max);
    let unit = show::RateUnit::for_rate(best);
    let has_connections = rows.iter().any(|row| row.ready_s.is_some());
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        String::new(),
        "protocol\n/profile".to_owned(),
        format!("goodput {}\nmin to max", unit.name),
        {
            let times = match plan.receivers {
                1 => "delivered\nconfirmed",
                _ => "to all\nto each\nconfirmed",
            };
            format!("{times}{}", if has_connections { "\nready\ntransfer" } else { "" })
        },
        "bound\nefficiency".to_owned(),
        "STR pkts\nSTR bytes".to_owned(),
        "RTS pkts\nRTS bytes".to_owned(),
        "failed".to_owned(),
    ]);
    let name = |row: &Row| {
        let how = match row.multicast {
            None => String::new(),
            Some(true) => "\nto the group".to_owned(),
            Some(false) => format!("\n{} transfers", plan.receivers),
        };
        format!("{}{how}", row.protocol.replace('/', "\n/"))
    };
    for (rank, row) in rows.iter().enumerate() {
        let goodput = |g: Summary| {
            let (mean, sem) = unit.with_deviation(g.mean, g.sem);
            format!("{mean} ± {sem}\n{} to {}", unit.digits(g.min), unit.digits(g.max))
        };
        table.add_row([
            (rank + 1).to_string(),
            name(row),
            row.goodput_bps.map_or("-".to_owned(), goodput),
            times(row),
            format!(
                "{}\n{}",
                row.bound_s.map_or("-".to_owned(), show::seconds),
                row.efficiency.map_or("-".to_owned(), show::percent)
            ),
            format!(
                "{}\n{}",
                show::count(row.traffic.packets_str),
                show::bytes(row.traffic.bytes_str)
            ),
            format!(
                "{}\n{}",
                show::count(row.traffic.packets_rts),
                show::bytes(row.traffic.bytes_rts)
            ),
            format!("{}\nof {}", row.runs - row.completed, row.runs),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 0));
        if index >= 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Writes which protocols were limited by buffers, and failures by their reasons.
fn explain(rows: &[Row]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for row in rows {
        let took = row.delivered_s.map(|delivered| delivered.mean);
        if let Some(note) = show::buffer_limits(row.traffic.buffers, took) {
            writeln!(err, "{}: {note}", row.protocol)?;
        }
        let mut reasons = BTreeMap::<&str, Vec<u64>>::new();
        for (seed, why) in &row.failures {
            reasons.entry(why).or_default().push(*seed);
        }
        for (why, seeds) in reasons {
            let shown: Vec<_> = seeds.iter().take(5).map(u64::to_string).collect();
            let more = if seeds.len() > shown.len() { ", ..." } else { "" };
            writeln!(
                err,
                "{}: {} of {} failed: {why} (seeds {}{more})",
                row.protocol,
                seeds.len(),
                row.runs,
                shown.join(", ")
            )?;
        }
    }
    Ok(())
}
