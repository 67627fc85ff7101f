//! Resources of a world, and the exactness of a run.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use emu::{Bounds, Misfit, Plan, Report};
use lab::scenario::Scenario;
use testbed::account::{self, Account};
use transport::quantity::{Size, Span};

use super::baseline::Baseline;
use crate::{Usage, doubts};

/// Options of all commands that start a world.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Demands {
    /// Memory for packets in transit; packets beyond it are dropped and counted
    #[arg(long, help_heading = "Exactness", value_name = "SIZE", default_value = "1 GiB")]
    memory: Size,

    /// Refuse a world beyond this machine's baseline, and fail if the run was not exact
    ///
    /// `slowlight emu baseline` measures the baseline.
    #[arg(long, help_heading = "Exactness")]
    strict: bool,

    /// Lateness bound for 99 % of each link's packets in a trusted run [default: the scenario's, or
    /// 1 ms, with long delays a thousandth of the shortest one, up to 10 ms]
    #[arg(long, help_heading = "Exactness", value_name = "DURATION")]
    late: Option<Span>,

    /// Lateness bound for every packet in a trusted run [default: the scenario's, or 10 ms, with long
    /// delays a hundredth of the shortest one, up to 100 ms]
    #[arg(long, help_heading = "Exactness", value_name = "DURATION")]
    late_most: Option<Span>,

    /// Write packet counts, lateness and whether the run is trusted as JSON
    #[arg(long, help_heading = "Exactness", value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Demands {
    /// Checks the options before anything is created.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match (self.late, self.late_most) {
            (Some(late), Some(most)) if late > most => Err(Usage(format!(
                "--late {late} is more than --late-most {most}, which holds for every packet"
            ))),
            _ => Ok(()),
        }
    }

    /// Sets the limits of the world, and warns of resources that the machine lacks; with --strict
    /// that is an error.
    pub(super) fn settle(&self, scenario: &Scenario, plan: &mut Plan) -> anyhow::Result<()> {
        plan.memory = self.memory.bytes();
        let baseline = Baseline::read();
        if self.strict && baseline.is_none() {
            bail!(
                "--strict: this machine was not measured yet; run `slowlight emu baseline` first"
            );
        }
        let capacity = baseline.as_ref().map(Baseline::capacity);
        let misfits = plan.misfits(capacity.as_ref(), available());
        for misfit in &misfits {
            let about = match misfit {
                Misfit::Memory { link, .. } => {
                    let (from, to) = scenario.links[*link].ends();
                    format!("{from} -> {to}: ")
                }
                Misfit::Packets { .. } | Misfit::Bytes { .. } | Misfit::Machine { .. } => {
                    String::new()
                }
            };
            let kind = if self.strict { "error" } else { "warning" };
            writeln!(io::stderr(), "{kind}: {about}{misfit}")?;
        }
        if self.strict && !misfits.is_empty() {
            bail!("the scenario does not fit this machine (--strict)");
        }
        Ok(())
    }

    /// Prints the counters of the links, and whether they were exact.
    pub(super) fn account(&self, scenario: &Scenario, report: &Report) -> anyhow::Result<Account> {
        let account = Account::new(scenario, report, &self.bounds(scenario));
        if let Some(path) = &self.report {
            let text = serde_json::to_string_pretty(&account)? + "\n";
            fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        let mut err = io::stderr().lock();
        for link in &account.links {
            writeln!(
                err,
                "{} -> {}: {} of {} packets arrived{}; lateness: median {:.0} us, 99th percentile \
                 {:.0} us, maximum {:.0} us",
                link.from,
                link.to,
                link.delivered,
                link.offered,
                link.why_lost,
                link.late_half_us,
                link.late_99_us,
                link.late_most_us,
            )?;
        }
        if let Some(lines) = doubts::lines(&account.doubts, doubts::EMULATOR) {
            writeln!(err, "{lines}")?;
        }
        Ok(account)
    }

    /// Whether a run with this account succeeded.
    pub(super) fn accept(&self, account: &Account) -> bool {
        account.trusted || !self.strict
    }

    /// Bounds of lateness.
    pub(super) fn bounds(&self, scenario: &Scenario) -> Bounds {
        let of_scenario = account::bounds(scenario);
        Bounds {
            usual: self.late.map_or(of_scenario.usual, Span::duration),
            most: self.late_most.map_or(of_scenario.most, Span::duration),
        }
    }
}

/// Available memory of the machine, in bytes.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
