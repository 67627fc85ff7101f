//! `slowlight sim`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use comfy_table::Table;
use lab::adapter::Verdict;
use lab::metrics::TransferMetrics;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use serde_json::json;
use transport::settings::tcp::TcpBuffers;

use crate::compute::show;
use crate::switch;

/// Options of `sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The world, as TOML
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Seed, in place of the scenario's
    #[arg(long, allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: Option<u64>,

    /// Growth limit of the buffers of protocols over TCP [default: what the scenario says, or
    /// unlimited, but for kernels' profiles]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    /// Write a capture (pcapng) to this file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,

    /// Write a line for every packet of every link to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Keep the scenario as given and resolved, a manifest, the metrics and what the scenario asks
    /// to be recorded in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

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
    if let Some(folder) = &args.out {
        prepare(folder, &args.scenario, &scenario)?;
    }
    let run = run::run(&scenario, &run::contents(&scenario)?, recorders(args, &scenario)?)?;
    let metrics = serde_json::to_string_pretty(&run)?;
    if let Some(folder) = &args.out {
        write(&folder.join("metrics.json"), &metrics)?;
    }
    crate::exit_code(print_run(args.json, &run, &metrics), run.succeeded())
}

/// Prints what became of the world.
pub(crate) fn print_run(json: bool, run: &Run, metrics: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{metrics}")?;
    } else {
        writeln!(out, "{}", table(&run.transfers))?;
        if run.transfers.iter().any(|transfer| transfer.bound_is_mean) {
            writeln!(
                io::stderr(),
                "{MEAN}: losses are drawn, so the bound is that of a mean of many runs; a lucky run beats it"
            )?;
        }
    }
    Ok(explain(run)?)
}

fn recorders(args: &Args, scenario: &Scenario) -> anyhow::Result<Recorders> {
    let in_folder = |is_wanted: bool, name: &str| {
        args.out.as_ref().filter(|_| is_wanted).map(|folder| folder.join(name))
    };
    let capture = &scenario.capture;
    let pcap = args.pcap.clone().or_else(|| in_folder(capture.pcap, "capture.pcapng"));
    let trace = args.trace.clone().or_else(|| in_folder(capture.trace, "trace.tsv"));
    if (capture.pcap && pcap.is_none()) || (capture.trace && trace.is_none()) {
        tracing::warn!("the scenario asks for recordings; say with --out where they shall go");
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
        "slowlight": env!("CARGO_PKG_VERSION"),
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

/// What became of transfers, as people read it.
pub(crate) fn table(transfers: &[TransferMetrics]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "transfer",
        "protocol",
        "file",
        "delivered",
        "confirmed",
        "goodput",
        "bound",
        "efficiency",
        "STR",
        "RTS",
        "result",
    ]);
    let or_dash = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    for transfer in transfers {
        let mean = if transfer.bound_is_mean { MEAN } else { "" };
        let of_bound = |shown: String| if shown == "-" { shown } else { format!("{mean}{shown}") };
        table.add_row([
            format!("{} {} -> {}", transfer.name, transfer.from, transfer.to),
            transfer.protocol.clone(),
            show::bytes(transfer.file_bytes as f64),
            or_dash(transfer.delivered_s, show::seconds),
            or_dash(transfer.confirmed_s, show::seconds),
            or_dash(transfer.goodput_bps, show::rate),
            of_bound(or_dash(transfer.bound_s, show::seconds)),
            of_bound(or_dash(transfer.efficiency, show::percent)),
            or_dash(transfer.traffic.packets_str.map(|count| count as f64), show::count),
            or_dash(transfer.traffic.packets_rts.map(|count| count as f64), show::count),
            result(transfer).to_owned(),
        ]);
    }
    table
}

fn result(transfer: &TransferMetrics) -> &'static str {
    match transfer.verdict {
        Some(Verdict::Measured) => "measured",
        Some(Verdict::Different) => "another file",
        Some(Verdict::Identical | Verdict::Failed) | None if transfer.completed => "verified",
        Some(Verdict::Identical | Verdict::Failed) | None => "failed",
    }
}

/// Tells people what went wrong.
fn explain(run: &Run) -> io::Result<()> {
    let mut err = io::stderr().lock();
    if run.ended != "idle" {
        writeln!(err, "the run did not come to its end: {}", run.ended)?;
    }
    for transfer in &run.transfers {
        if let Some(note) = show::buffer_limits(transfer.traffic.buffers, transfer.delivered_s) {
            writeln!(err, "{}: {note}", transfer.name)?;
        }
        if let Some(failure) = &transfer.failure {
            writeln!(err, "{} failed: {failure}", transfer.name)?;
        }
    }
    Ok(())
}
