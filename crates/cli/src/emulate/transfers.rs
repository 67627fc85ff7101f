//! `slowlight emu run` without a program: the transfers of the scenario.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use emu::{Isolation, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::run::{self, Run};
use lab::scenario::Scenario;
use testbed::account::Account;
use testbed::emulation;
use testbed::emulation::transfers::{self, Progress};

use super::{RunArgs, ended};
use crate::Usage;
use crate::compute::show;
use crate::compute::simulate;

/// Interval of progress updates.
const SHOW: Duration = Duration::from_millis(200);

/// Result of a world: the metrics of a simulated one, and the emulator's account.
#[derive(serde::Serialize)]
struct Emulated {
    #[serde(flatten)]
    run: Run,
    emulator: Account,
}

/// Runs the transfers.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.options.outside.is_some() || args.options.user.is_some() {
        let message = "--uplink, --publish and --user are for a program; name it after `--`";
        return Err(Usage(message.to_owned()).into());
    }
    args.options.demands.check()?;
    let scenario = args.scenario()?;
    if scenario.transfers.is_empty() {
        let message = "the scenario has no transfers; name a program after `--`";
        return Err(Usage(message.to_owned()).into());
    }
    emulation::tools::check(&scenario)?;
    let mut plan = emulation::plan(&scenario)?;
    match emu::isolate()? {
        Isolation::Over(code) => return Ok(ended(code)),
        Isolation::Inside => {}
    }
    args.options.demands.settle(&scenario, &mut plan)?;
    let stop = crate::stop::stop_flag()?;
    if let Some(folder) = &args.out {
        simulate::prepare(folder, &args.scenario, &scenario)?;
    }
    let contents = run::contents(&scenario)?;
    run::refuse_streams(&scenario)?;
    emu::name_hosts(&plan.hosts, &[]).context("naming the hosts in /etc/hosts")?;
    let world = World::start(&plan)?;
    super::limit_tcp_buffers(&world, &scenario, args.tcp_buffers)?;
    let captures = captures(args, &scenario);
    if let Some(folder) = &captures {
        world.links().capture(None, folder, args.options.recording.limits())?;
    }
    let mut line = Line::new();
    let ran = transfers::run(&world, &scenario, &contents, &stop, |progress| line.show(progress));
    line.clear();
    let run = ran?;
    let captured = if captures.is_some() { super::end_capture(&world) } else { Ok(()) };
    let emulator = args.options.demands.account(&scenario, &world.stop()?)?;
    let succeeded = run.succeeded() && args.options.demands.accept(&emulator);
    let emulated = Emulated { run, emulator };
    let metrics = serde_json::to_string_pretty(&emulated)?;
    if let Some(folder) = &args.out {
        simulate::write(&folder.join("metrics.json"), &metrics)?;
    }
    captured?;
    let form = simulate::Form::new(args.json, false, &metrics);
    let printed = simulate::print_run(form, &args.scenario, &scenario, &emulated.run);
    crate::exit_code(printed, succeeded)
}

/// Folder of captures: that of --pcap, or beside the results if the scenario requests captures.
fn captures(args: &RunArgs, scenario: &Scenario) -> Option<PathBuf> {
    let out = args.out.as_ref().filter(|_| scenario.capture.pcap);
    args.options.recording.pcap.clone().or_else(|| out.map(|folder| folder.join("captures")))
}

/// Progress line on a terminal.
struct Line {
    bar: ProgressBar,
    shown: Option<Duration>,
}

impl Line {
    fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), shown: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, shown: None }
    }

    fn show(&mut self, progress: Progress) {
        let Progress { elapsed, received, received_bytes, ended } = progress;
        if self.shown.is_some_and(|shown| elapsed.saturating_sub(shown) < SHOW) {
            return;
        }
        self.shown = Some(elapsed);
        self.bar.set_message(format!(
            "{}: {received} datagrams received, {}; {ended} ends of transfers",
            show::seconds(elapsed.as_secs_f64()),
            show::bytes(received_bytes as f64),
        ));
        self.bar.tick();
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
        // A closed standard error has no reader.
        let _ = io::stderr().flush();
    }
}
