//! `slowlight emu baseline`: capacity of this machine.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use emu::measure::{self, Load, Pace};
use emu::{Capacity, Host, Isolation, World};
use link::{Config, Delay, Queue, Rate};
use serde::{Deserialize, Serialize};
use transport::quantity::Span;

use super::ended;
use crate::compute::show;
use crate::compute::table::{Cell, Column, Page, Table};
use crate::exit::Exit;
use crate::state::state_home;

/// File name below the state folder.
const FILE: &str = "emulator.json";
/// Bytes of a datagram, and of its headers.
const DATAGRAM: usize = 1_024;
const HEADERS: usize = 28;
/// Delay of the link: long enough to hold packets, short enough not to fill the memory.
const DELAY: Duration = Duration::from_millis(10);
const MEMORY: u64 = 1 << 30;
/// Packets that measure lateness: 1,000 bytes every 400 us on a line of 100 Mbit/s.
const PACKET: usize = 1_000;
const LINE_BPS: u64 = 100_000_000;
const GAP: Duration = Duration::from_micros(400);
/// Measurements of a rate, each twice as long, until one finds any.
const ATTEMPTS: u32 = 5;

/// Options of `emu baseline`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Duration of each measurement
    #[arg(long, value_name = "DURATION", default_value = "1 s")]
    time: Span,

    /// Print the measurements as JSON
    #[arg(long)]
    json: bool,
}

/// Capacity of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// Kernel of the measurement.
    kernel: String,
    /// Number of processors.
    processors: usize,
    /// Whether the emulator had real-time priority.
    real_time: bool,
    /// Two hosts with a veth pair between them.
    wire: Figures,
    /// Two hosts with an emulated link between them.
    link: Figures,
    /// Lateness of packets over an emulated link, in microseconds.
    late: Late,
}

/// Throughput between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Figures {
    /// Datagrams of 1,024 bytes per second, sent in batches.
    batched_datagrams_s: f64,
    /// Datagrams of 1,024 bytes per second, sent one by one.
    single_datagrams_s: f64,
    /// Throughput of TCP.
    tcp_bps: f64,
}

/// Quantiles of lateness.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Late {
    half_us: f64,
    of_100_us_99: f64,
    of_1000_us_999: f64,
}

/// Runs `emu baseline`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match emu::isolate()? {
        Isolation::Over(code) => return Ok(ended(code)),
        Isolation::Inside => {}
    }
    let baseline = Baseline::measure(args.time.duration())?;
    let text = serde_json::to_string_pretty(&baseline)?;
    let path = path()?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(&path, text.clone() + "\n").with_context(|| path.display().to_string())?;
    if args.json {
        writeln!(io::stdout(), "{text}")?;
    } else {
        writeln!(io::stdout(), "{}", baseline.table().drawn(Page::stdout()))?;
        let late = baseline.late;
        writeln!(
            io::stdout(),
            "lateness: median {:.0} us, 99th percentile {:.0} us, 99.9th percentile {:.0} us{}",
            late.half_us,
            late.of_100_us_99,
            late.of_1000_us_999,
            if baseline.real_time { "" } else { "; without real-time priority" },
        )?;
    }
    writeln!(io::stderr(), "saved in {}", path.display())?;
    Ok(Exit::Done.into())
}

fn path() -> anyhow::Result<PathBuf> {
    Ok(state_home()?.join(FILE))
}

fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Baseline {
    /// Measurement of this machine with this kernel and number of processors, if there is one.
    pub(super) fn read() -> Option<Self> {
        let text = fs::read_to_string(path().ok()?).ok()?;
        let baseline: Self = serde_json::from_str(&text).ok()?;
        let holds = baseline.kernel == kernel() && baseline.processors == processors();
        holds.then_some(baseline)
    }

    /// Capacity for a world.
    pub(super) fn capacity(&self) -> Capacity {
        let Figures { batched_datagrams_s, single_datagrams_s, tcp_bps } = self.link;
        let bytes = batched_datagrams_s * (DATAGRAM + HEADERS) as f64;
        Capacity { packets: single_datagrams_s, bytes: bytes.max(tcp_bps / 8.0) }
    }

    fn measure(time: Duration) -> anyhow::Result<Self> {
        let [near, far] = measure::wire().context("a wire between two hosts")?;
        let wire = Figures::measure("a wire", &near, &far, time)?;
        let config = Config {
            delay: Delay::Constant(DELAY),
            queue: Queue { packets: None, bytes: None },
            ..Config::default()
        };
        let world = World::start(&measure::pair(config.clone(), config.clone(), 1, MEMORY))?;
        let [near, far] = ends(&world)?;
        let link = Figures::measure("a link", near, far, time)?;
        let real_time = world.is_real_time();
        world.stop()?;
        print("times of packets over a link")?;
        let there = Config { rate: Rate::Constant(LINE_BPS), ..config.clone() };
        let world = World::start(&measure::pair(there, config, 1, MEMORY))?;
        let [near, far] = ends(&world)?;
        let count = (time.as_nanos() / GAP.as_nanos()).max(1) as u32;
        let patience = Duration::from_millis(200);
        let pace = Pace { len: PACKET, gap: GAP, count, at_once: 1, patience };
        let (crossings, _) = measure::cross(near, far, &pace)?;
        let errors = measure::errors(&crossings, PACKET, Some(LINE_BPS), DELAY);
        let micros = |share| errors.quantile(share) as f64 / 1e3;
        let late = Late {
            half_us: micros(0.5),
            of_100_us_99: micros(0.99),
            of_1000_us_999: micros(0.999),
        };
        world.stop()?;
        Ok(Self { kernel: kernel(), processors: processors(), real_time, wire, link, late })
    }

    fn table(&self) -> Table {
        let heads = ["wire", "link", "link / wire"].map(Column::right);
        let mut table = Table::new([Column::left("")].into_iter().chain(heads));
        let mut row = |what: &str, of: fn(&Figures) -> f64, show: fn(f64) -> String| {
            let (wire, link) = (of(&self.wire), of(&self.link));
            let shown = [what.to_owned(), show(wire), show(link), format!("{:.2}", link / wire)];
            table.row(shown.map(Cell::from));
        };
        let count: fn(f64) -> String = |count| format!("{count:.0} /s");
        row("UDP, batches", |figures| figures.batched_datagrams_s, count);
        row("UDP, one by one", |figures| figures.single_datagrams_s, count);
        row("TCP", |figures| figures.tcp_bps, show::rate);
        table
    }
}

impl Figures {
    fn measure(between: &str, near: &Host, far: &Host, time: Duration) -> anyhow::Result<Self> {
        let flood = |batches: bool| {
            let how = if batches { "in batches" } else { "one by one" };
            print(&format!("datagrams {how} over {between}"))?;
            measured(time, |time| {
                let load = Load { datagram: DATAGRAM, batches, time };
                Ok(measure::flood(near, far, &load)?.per_second())
            })
        };
        let (batched_datagrams_s, single_datagrams_s) = (flood(true)?, flood(false)?);
        print(&format!("TCP over {between}"))?;
        let tcp_bps = measured(time, |time| {
            let stream = measure::stream(near, far, time, None)?;
            if !stream.intact {
                return Err(anyhow!("{between} did not carry what was sent"));
            }
            Ok(stream.bps())
        })?;
        Ok(Self { batched_datagrams_s, single_datagrams_s, tcp_bps })
    }
}

/// Measures a rate, and again for twice the time while none was found: on a busy machine the
/// receiver may run only after everything was sent.
fn measured(
    time: Duration,
    mut measure: impl FnMut(Duration) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    for double in 0..ATTEMPTS {
        let rate = measure(time.saturating_mul(1 << double))?;
        if rate > 0.0 {
            return Ok(rate);
        }
    }
    Err(anyhow!("this machine is too busy to be measured; stop other programs and repeat"))
}

fn ends(world: &World) -> anyhow::Result<[&Host; 2]> {
    match world.hosts() {
        [near, far] => Ok([near, far]),
        _ => Err(anyhow!("a pair has two hosts")),
    }
}

fn print(what: &str) -> io::Result<()> {
    writeln!(io::stderr(), "measuring: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_measured_for_longer_until_there_is_one() {
        let second = Duration::from_secs(1);
        let mut times = Vec::new();
        let rate = measured(second, |time| {
            times.push(time.as_secs());
            Ok(if times.len() < 3 { 0.0 } else { 7.0 })
        });
        assert_eq!(rate.ok(), Some(7.0));
        assert_eq!(times, [1, 2, 4]);

        let mut attempts = 0;
        let busy = measured(second, |_| {
            attempts += 1;
            Ok(0.0)
        });
        assert!(busy.is_err_and(|error| error.to_string().contains("too busy")));
        assert_eq!(attempts, ATTEMPTS);
    }
}
