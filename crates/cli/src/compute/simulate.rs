//! `slowlight sim`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use lab::adapter::Verdict;
use lab::metrics::TransferMetrics;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use serde_json::json;
use transport::quantity::Size;
use transport::settings::tcp::TcpBuffers;

use crate::compute::table::{Cell, Column, Page, Table, Tone};
use crate::compute::{conditions, show};
use crate::switch;

/// Options of `sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Seed [default: the scenario's]
    #[arg(long, allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: Option<u64>,

    /// Limit of the autotuned buffers of protocols over TCP [default: the scenario's, or unlimited;
    /// profiles of kernels: theirs]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    /// Write a capture (pcapng) of all links
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,

    /// Write a trace with a line for each packet of each link
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Folder for the scenario, a manifest, the metrics and the scenario's recordings
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print every column, however long the lines
    #[arg(long, conflicts_with = "json")]
    wide: bool,

    /// Print the metrics as JSON
    #[arg(long)]
    json: bool,
}

/// Scenario of a file, resolved, with this seed and this growth limit of TCP's buffers if given.
pub(crate) fn scenario(
    path: &Path,
    seed: Option<u64>,
    tcp_buffers: Option<TcpBuffers>,
) -> anyhow::Result<Scenario> {
    let mut scenario = Scenario::read(path)?;
    scenario.seed = seed.unwrap_or(scenario.seed);
    scenario.resolved_with(tcp_buffers).with_context(|| path.display().to_string())
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = scenario(&args.scenario, args.seed, args.tcp_buffers)?;
    run::refuse_tools(&scenario)?;
    if scenario.transfers.is_empty() {
        let place = args.scenario.display();
        let message = format!("{place} has no transfers; add one with [[transfers]]");
        return Err(crate::Usage(message).into());
    }
    if let Some(folder) = &args.out {
        prepare(folder, &args.scenario, &scenario)?;
    }
    let run = run::run(&scenario, &run::contents(&scenario)?, recorders(args, &scenario)?)?;
    let metrics = serde_json::to_string_pretty(&run)?;
    if let Some(folder) = &args.out {
        write(&folder.join("metrics.json"), &metrics)?;
    }
    let form = Form::new(args.json, args.wide, &metrics);
    crate::exit_code(print_run(form, &args.scenario, &scenario, &run), run.succeeded())
}

/// Prints the result of a world's run.
pub(crate) fn print_run(
    form: Form<'_>,
    path: &Path,
    scenario: &Scenario,
    run: &Run,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let page = match form {
        Form::Json(metrics) => {
            writeln!(out, "{metrics}")?;
            let mut err = io::stderr().lock();
            return Ok(notes(run).iter().try_for_each(|note| writeln!(err, "{note}"))?);
        }
        Form::Table { is_wide } => Page::stdout().wide(is_wide),
    };
    let about = if scenario.about.is_empty() { "" } else { ": " };
    let title = format!("{}, seed {}{about}{}", path.display(), scenario.seed, scenario.about);
    writeln!(out, "{}", page.paragraph(&title))?;
    for line in conditions::of_links(&scenario.links) {
        writeln!(out, "{}", page.wrapped(&line))?;
    }
    writeln!(out, "\n{}", table(&run.transfers).drawn(page))?;
    if run.transfers.iter().any(|transfer| transfer.least.bound_is_mean) {
        let note = format!("{MEAN}: mean of many runs, as losses are drawn; one run may be faster");
        writeln!(out, "{}", page.wrapped(&note))?;
    }
    for note in notes(run) {
        writeln!(out, "{}", page.wrapped(&note))?;
    }
    Ok(())
}

/// Form in which a run is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'a> {
    /// These metrics, which are JSON.
    Json(&'a str),
    /// A table, of every column if it is wide.
    Table { is_wide: bool },
}

impl<'a> Form<'a> {
    /// JSON if it is wanted, or else a table.
    pub(crate) fn new(is_json: bool, is_wide: bool, metrics: &'a str) -> Self {
        if is_json { Self::Json(metrics) } else { Self::Table { is_wide } }
    }
}

fn recorders(args: &Args, scenario: &Scenario) -> anyhow::Result<Recorders> {
    let in_folder = |is_wanted: bool, name: &str| {
        args.out.as_ref().filter(|_| is_wanted).map(|folder| folder.join(name))
    };
    let capture = &scenario.capture;
    let pcap = args.pcap.clone().or_else(|| in_folder(capture.pcap, "capture.pcapng"));
    let trace = args.trace.clone().or_else(|| in_folder(capture.trace, "trace.tsv"));
    if (capture.pcap && pcap.is_none()) || (capture.trace && trace.is_none()) {
        tracing::warn!("the scenario requests recordings; give a folder for them with --out");
    }
    Ok(Recorders { pcap: sink(pcap)?, trace: sink(trace)? })
}

fn sink(path: Option<PathBuf>) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    let Some(path) = path else { return Ok(None) };
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some(Box::new(BufWriter::new(file))))
}

/// Writes what is known before the run.
pub(crate) fn prepare(folder: &Path, given: &Path, scenario: &Scenario) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let text = fs::read_to_string(given).with_context(|| format!("{}", given.display()))?;
    write(&folder.join("scenario.toml"), &text)?;
    write(&folder.join("resolved.toml"), &scenario.to_toml()?)?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let manifest = json!({
        "seed": scenario.seed,
        "slowlight": crate::VERSION,
        "host": {
            "name": host.trim(),
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
        },
        "scenario": given.display().to_string(),
    });
    write(&folder.join("manifest.json"), &serde_json::to_string_pretty(&manifest)?)
}

pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Stands before a bound that is a mean, and before what follows from it.
const MEAN: &str = "~";

/// One row a transfer.
pub(crate) fn table(transfers: &[TransferMetrics]) -> Table {
    let mut table = Table::new([
        Column::left("transfer"),
        Column::left("from and to").spare(2),
        Column::left("protocol"),
        Column::right("file").spare(1),
        Column::left("result"),
        Column::right("delivered"),
        Column::right("bound"),
        Column::right("of bound"),
        Column::bar().spare(0),
        Column::right("spent").spare(3),
        Column::right("confirmed").spare(4),
        Column::right("goodput").spare(5),
        Column::right("packets back").spare(6),
        Column::right("packets sent").spare(7),
        Column::right("ready").wide(),
        Column::right("transfer").wide(),
        Column::right("bytes sent").wide(),
        Column::right("bytes back").wide(),
    ]);
    for transfer in transfers {
        let of_bound = |text: String| {
            if transfer.least.bound_is_mean { format!("{MEAN}{text}") } else { text }
        };
        let of = |value: Option<f64>, show: fn(f64) -> String| Cell::optional(value.map(show));
        let count = |count: Option<u64>, show: fn(f64) -> String| {
            Cell::optional(count.map(|count| show(count as f64)))
        };
        let traffic = &transfer.traffic;
        table.row([
            Cell::from(transfer.name.as_str()),
            Cell::from(format!("{} -> {}", transfer.from, transfer.to)),
            Cell::from(transfer.protocol.as_str()),
            Cell::from(Size(transfer.file_bytes).to_string()),
            result(transfer),
            of(transfer.delivered_s, show::duration),
            Cell::optional(transfer.bound_s.map(show::duration).map(of_bound)),
            Cell::optional(transfer.efficiency.map(show::percent).map(of_bound)),
            transfer.efficiency.map_or_else(|| Cell::from(""), Cell::Bar),
            of(transfer.spent, show::factor),
            of(transfer.confirmed_s, show::duration),
            of(transfer.goodput_bps, show::rate),
            count(traffic.packets_rts, show::count),
            count(traffic.packets_str, show::count),
            of(transfer.ready_s, show::duration),
            of(transfer.transfer_s, show::duration),
            count(traffic.bytes_str, show::bytes),
            count(traffic.bytes_rts, show::bytes),
        ]);
    }
    table
}

fn result(transfer: &TransferMetrics) -> Cell {
    let (text, tone) = match transfer.verdict {
        Some(Verdict::Measured) => ("measured", Tone::Plain),
        Some(Verdict::Different) => ("another file", Tone::Bad),
        Some(Verdict::Identical | Verdict::Failed) | None if transfer.completed => {
            ("verified", Tone::Good)
        }
        Some(Verdict::Identical | Verdict::Failed) | None => ("failed", Tone::Bad),
    };
    Cell::from(text).tone(tone)
}

/// Lines that say what went wrong, and what was limited by buffers.
fn notes(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if run.ended != "idle" {
        let remedy = match run.ended.as_str() {
            "time limit" => " (raise `limits.time` in the scenario)",
            "event limit" => " (raise `limits.events` in the scenario)",
            _ => "",
        };
        notes.push(format!("the run was cut off: {}{remedy}", run.ended));
    }
    for transfer in &run.transfers {
        if let Some(note) = show::buffer_limits(transfer.traffic.buffers, transfer.delivered_s) {
            notes.push(format!("{}: {note}", transfer.name));
        }
        if let Some(failure) = &transfer.failure {
            notes.push(format!("{} failed: {failure}", transfer.name));
        }
    }
    notes
}
