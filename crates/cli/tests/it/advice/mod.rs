//! The commands that `advise` prints, run over the emulated link beside their prediction.
//!
//! Each command runs as it is printed, in a folder with the file `FILE` and the folder `inbox`.
//! Only the address of the peer is put in. A time counts only in a run that the emulator trusts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use emu::measure::is_calm;
use serde_json::Value;

use self::cases::{CASES, Case, DAILY};
use self::run::{Ran, Roles};
use crate::guard::guarded_for;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Number of concurrent worlds, which mostly wait.
const AT_ONCE: usize = 6;
/// Attempts until a time agrees.
const ATTEMPTS: usize = 4;
/// Share by which a time may differ from its prediction.
const TOLERANCE: f64 = 0.05;
/// Share for the kernel's TCP, from which the simulator's differs by up to a tenth.
const KERNEL_TOLERANCE: f64 = 0.1;
/// Seconds in which programs start, and in which the end of a file is noticed.
const START_S: f64 = 0.4;

/// A transport of a case, its commands, and the interval of its predicted times.
struct Advised<'a> {
    case: &'a Case,
    title: String,
    lines: Vec<String>,
    predicted: (f64, f64),
}

/// Advice for the link of a case.
fn advised(case: &Case) -> Vec<Advised<'_>> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in case.files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let mut command = Command::new(SLOWLIGHT);
    command.current_dir(folder.path());
    command.args(["advise", "--json", "--budget", "300 ms", "--size", case.size]);
    command.args(case.link).args(case.needs).stdin(Stdio::null()).stdout(Stdio::piped());
    let started = guarded_for(run::LIMIT, command.stderr(Stdio::piped()));
    let output = started.child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{}: {error}: {}", case.name, text(&output.stderr)));
    let commands: BTreeMap<String, Vec<String>> =
        serde_json::from_value(report["commands"].clone()).unwrap();
    let ranking = report["advice"]["ranking"].as_array().unwrap();
    let row = |(title, lines): (String, Vec<String>)| {
        let candidate = ranking.iter().find(|candidate| self::title(candidate) == title).unwrap();
        let mean = candidate["mean_s"].as_f64()?;
        let end = |at: usize| candidate["interval_s"][at].as_f64().unwrap_or(mean);
        Some(Advised { case, title, lines, predicted: (end(0), end(1)) })
    };
    commands.into_iter().filter_map(row).collect()
}

/// Name of a transport with its mode.
fn title(candidate: &Value) -> String {
    let protocol = candidate["protocol"].as_str().unwrap();
    match candidate.get("one_way") {
        None => protocol.to_owned(),
        Some(mode) if mode.get("carousel").is_some() => format!("{protocol} carousel"),
        Some(_) => format!("{protocol} one-way"),
    }
}

/// Outcome of the attempts with the commands of a transport.
enum Outcome {
    /// Seconds until delivery.
    Agrees(f64),
    /// No attempt was trusted on a calm machine.
    Busy(String),
    Fails(String),
}

/// Runs the commands of a transport until the time agrees. A busy machine excuses a late delivery,
/// but not a file that differs.
fn judged(advised: &Advised<'_>) -> Outcome {
    let (low, high) = advised.predicted;
    let share = if over_kernel(&advised.title) { KERNEL_TOLERANCE } else { TOLERANCE };
    // What an outage cuts off depends on when the programs start.
    let early_s = if advised.case.link.contains(&"--outage-every") { START_S } else { 0.0 };
    let expected = low * (1.0 - share) - early_s..high * (1.0 + share) + START_S;
    let (mut excused, mut wrong, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ATTEMPTS {
        let was_calm = is_calm();
        let ran = Roles::new(advised.case, &advised.lines).run();
        let (delivered, is_trusted) = match ran {
            Ran::Delivered { after_s, is_trusted } => (after_s, is_trusted),
            Ran::Differs(why) => return Outcome::Fails(why),
        };
        if expected.contains(&delivered) {
            return Outcome::Agrees(delivered);
        }
        times.push(delivered);
        let why = format!("{delivered:.3} s, not {:.3} to {:.3} s", expected.start, expected.end);
        if is_trusted && was_calm && is_calm() {
            wrong.push(why);
        } else {
            excused.push(why);
        }
        // Two runs that nothing excuses are no coincidence.
        if wrong.len() == 2 {
            return Outcome::Fails(wrong.join("; "));
        }
    }
    excused.extend(wrong);
    if is_constant(&times, &expected) {
        Outcome::Fails(excused.join("; "))
    } else {
        Outcome::Busy(excused.join("; "))
    }
}

/// Whether all times differ much from the expected ones and little from each other. A busy machine
/// scatters times.
fn is_constant(times: &[f64], expected: &Range<f64>) -> bool {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let is_far = least > 1.2 * expected.end || most < 0.8 * expected.start;
    is_far && most < 1.03 * least
}

/// Whether the commands of a transport run: some every day, and with `SLOWLIGHT_ADVICE` those
/// whose names contain its value.
fn is_chosen(advised: &Advised<'_>) -> bool {
    let (case, title) = (advised.case.name, advised.title.as_str());
    let named = std::env::var("SLOWLIGHT_ADVICE");
    let is_named = named.is_ok_and(|part| title.contains(&part));
    // With bit errors, CUBIC takes up to 82 s.
    let is_predicted =
        !over_kernel(title) || case == "plain" || has_cubic() && case != "bit errors";
    is_named && is_predicted || DAILY.contains(&(case, title))
}

/// Whether the commands use the kernel's TCP.
fn over_kernel(title: &str) -> bool {
    ["bp-tcpcl", "bp-stcp", "bp-mtcp"].iter().any(|name| title.starts_with(name))
}

/// Whether the kernel has the congestion control of predictions. In an emulated world it cannot be
/// changed; BBR needs a third of the time where bits get lost.
fn has_cubic() -> bool {
    read(Path::new("/proc/sys/net/ipv4/tcp_congestion_control")).trim() == "cubic"
}

#[test]
fn printed_commands_take_the_predicted_time() {
    if !possible(false) {
        return;
    }
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = CASES.iter().map(|case| scope.spawn(|| advised(case))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let known: BTreeSet<_> = all.iter().map(|it| (it.case.name, it.title.as_str())).collect();
    for daily in DAILY {
        assert!(known.contains(daily), "{daily:?} is not advised");
    }
    let left = Mutex::new(all.iter().filter(|it| is_chosen(it)));
    let work = || {
        let next = || left.lock().unwrap().next();
        std::iter::from_fn(next).map(|it| (it, judged(it))).collect::<Vec<_>>()
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (mut table, mut failures) = (String::new(), Vec::new());
    for (it, outcome) in outcomes {
        let (low, high) = it.predicted;
        let found = match outcome {
            Outcome::Agrees(after_s) => format!("{after_s:.3} s"),
            Outcome::Busy(why) => format!("not measured on this busy machine: {why}"),
            Outcome::Fails(why) => {
                failures.push(format!("{}, {}: {why}", it.case.name, it.title));
                why
            }
        };
        writeln!(table, "{:14} {:22} {low:.3} to {high:.3} s: {found}", it.case.name, it.title)
            .unwrap();
    }
    eprintln!("predicted, and delivered over the emulator:\n{table}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for title in all.iter().map(|it| it.title.as_str()).collect::<BTreeSet<_>>() {
        let is_run = DAILY.iter().any(|(_, daily)| *daily == title);
        assert!(is_run, "no case runs the commands of {title}");
    }
}

/// Reads a file that may be missing.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
