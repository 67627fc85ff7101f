//! `slowlight study`: many worlds of one kind, and what came of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context as _;
use testbed::study::results::{self, Of};
use testbed::study::{
    self, BUILT_IN, Done, Filter, Finished, How, Journal, Place, Selection, Sheet, Study,
    StudyError,
};
use transport::quantity::Span;

use crate::Usage;
use crate::compute::show;
use crate::compute::table::{Cell, Column, Page, Table, Tone};
use crate::exit::Exit;
use crate::stop::stop_flag;

mod python;

/// Options of `study`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the built-in studies
    List,
    /// Show the runs of a study
    Show(ShowArgs),
    /// Run a study
    Run(RunArgs),
    /// Write a study's report in HTML and PDF (needs the Python package)
    Report(python::ReportArgs),
    /// Check papers' claims against results (needs the Python package)
    Claims(python::ClaimsArgs),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Study: a name of `slowlight study list`, or a file
    #[arg(value_parser = crate::known::study(), hide_possible_values = true)]
    name: String,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Study: a name of `slowlight study list`, or a file
    #[arg(value_parser = crate::known::study(), hide_possible_values = true)]
    name: String,

    /// Edition [default: the only one, or `published`]
    #[arg(long, value_name = "NAME")]
    edition: Option<String>,

    /// Number of runs in parallel; it does not change results [default: one per core]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = crate::whole::within(1_u16..=u16::MAX))]
    jobs: Option<u16>,

    /// Resume an earlier run, and add new cells
    #[arg(long, conflicts_with = "again")]
    resume: bool,

    /// Remove earlier results and start over
    #[arg(long)]
    again: bool,

    /// Sheets to run, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sheet: Vec<String>,

    /// Values of an axis to run, e.g. "delay=25 ms,250 ms"; repeatable for other axes
    #[arg(long, value_name = "AXIS=LIST")]
    filter: Vec<Filter>,

    /// Runs of each cell [default: the study's]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = crate::whole::within(1_u32..=1_000_000))]
    runs: Option<u32>,

    /// Simulator, or emulator in real time with real programs instead of models
    #[arg(long, value_enum, default_value = "sim")]
    world: World,

    /// Timeout of a run in the emulator
    #[arg(long, value_name = "DURATION", default_value = "10 min")]
    timeout: Span,

    /// Dask cluster to run on, e.g. "tcp://10.0.0.1:8786", or `local` (needs the Python package)
    ///
    /// `local` runs processes on this machine. Results are the same.
    #[arg(long, value_name = "ADDRESS")]
    dask: Option<String>,

    /// Folder for results [default: results/NAME-EDITION]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Where worlds are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum World {
    /// The simulator.
    Sim,
    /// The emulator.
    Emu,
}

impl RunArgs {
    /// Suffix of the folder, by the world that was measured.
    fn suffix(&self) -> &'static str {
        match self.world {
            World::Sim => "",
            World::Emu => "-emu",
        }
    }

    fn place(&self) -> Place {
        match self.world {
            World::Sim => Place::Simulator,
            World::Emu => Place::Emulator(self.timeout),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List => crate::exit_code(list(), true),
        Command::Show(args) => crate::exit_code(show(args), true),
        Command::Run(args) => go(args),
        Command::Report(args) => python::report(args),
        Command::Claims(args) => python::claims(args),
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (name, text) in BUILT_IN {
        let study = Study::parse(text, name)?;
        writeln!(out, "{name:<18} {}", study.about)?;
        for (edition, spec) in &study.editions {
            let runs: u64 = spec.sheets.iter().map(runs_of).sum();
            writeln!(out, "{:<18}   {edition}: {runs} runs; {}", "", spec.about)?;
        }
    }
    Ok(())
}

/// Number of runs of a sheet.
fn runs_of(sheet: &Sheet) -> u64 {
    sheet.cells().count() as u64 * u64::from(sheet.runs)
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let (study, source) = Study::find(&args.name)?;
    let mut out = io::stdout().lock();
    let page = Page::stdout();
    writeln!(out, "{}", page.paragraph(&study.about))?;
    if !study.source.is_empty() {
        writeln!(out, "{}", page.wrapped(&format!("source: {}", study.source)))?;
    }
    for (name, edition) in &study.editions {
        writeln!(out, "\n{}", page.wrapped(&format!("edition {name}: {}", edition.about)))?;
        let names = ["sheet", "axis"].map(Column::left);
        let numbers = ["cells", "runs each", "runs"].map(Column::right);
        let values = Column::prose("values");
        let mut table = Table::new(names.into_iter().chain(numbers).chain([values]));
        for sheet in &edition.sheets {
            let (cells, runs) = (sheet.cells().count(), sheet.runs);
            let counts = [cells.to_string(), runs.to_string(), runs_of(sheet).to_string()];
            let counts = counts.map(Cell::from);
            let [name, about] = [&sheet.name, &sheet.about].map(|text| Cell::from(text.as_str()));
            let head = [name.tone(Tone::Strong), "".into()].into_iter();
            table.row(head.chain(counts).chain([about.tone(Tone::Dim)]));
            for axis in &sheet.axes {
                let labels: Vec<_> = axis.values.iter().map(study::Value::label).collect();
                let blank = || Cell::from("");
                let name = axis.name.as_str().into();
                let values = labels.join(", ").into();
                table.row([blank(), name, blank(), blank(), blank(), values]);
            }
        }
        writeln!(out, "{}", table.drawn(page))?;
    }
    out.flush()?;
    // The check reads every cell's world and every named file, which may take a while.
    study.check_all(&source).map_err(|error| error.within(Path::new(&args.name)))?;
    Ok(())
}

fn go(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let (study, source) = Study::find(&args.name)?;
    study.check_figures(&source).map_err(|error| error.within(Path::new(&args.name)))?;
    let (edition_name, edition) = study.edition(args.edition.as_deref())?;
    let selection =
        Selection { sheets: args.sheet.clone(), filters: args.filter.clone(), runs: args.runs };
    let jobs = study::jobs(edition, &source, &selection)?;
    if jobs.is_empty() {
        return Err(Usage("no cell of the study has all of these values".to_owned()).into());
    }
    if args.world == World::Emu {
        if args.dask.is_some() {
            return Err(Usage(
                "--world emu is for this machine alone; leave out --dask".to_owned(),
            )
            .into());
        }
        match emu::isolate()? {
            emu::Isolation::Over(code) => return Ok(crate::emulate::ended(code)),
            emu::Isolation::Inside => {}
        }
    }
    let name = Path::new(&args.name).file_stem().unwrap_or_default().to_string_lossy();
    let usual = || Path::new("results").join(format!("{name}-{edition_name}{}", args.suffix()));
    let folder = args.out.clone().unwrap_or_else(usual);
    let journal = open(args, &folder)?;
    if let Some(address) = &args.dask {
        // The other process opens it.
        drop(journal);
        return python::run_on(address, args, &folder);
    }
    let context = || format!("cannot write the results in {}", folder.display());
    results::keep_study(&folder, &study, &source).with_context(context)?;
    let cancelled = stop_flag()?;
    let bar = show::progress(jobs.len() as u64, "runs");
    let (old, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = |done: &Done, was_there: bool| {
        old.fetch_add(u64::from(was_there), Relaxed);
        failed.fetch_add(u64::from(!done.succeeded()), Relaxed);
        bar.inc(1);
    };
    let how = How { place: args.place(), threads: args.jobs.map(usize::from) };
    let all = study::run(&jobs, Some(&journal), how, &cancelled, &done);
    bar.finish_and_clear();
    let Some(all) = all? else {
        writeln!(io::stderr(), "stopped by a signal; --resume continues")?;
        return Ok(Exit::Interrupted.into());
    };
    let slowlight = crate::VERSION;
    let of = Of { study: &study, name: &name, edition_name, edition, slowlight };
    let complete = selection.is_all() && all.jobs.len() == jobs.len();
    of.write(&folder, &all, complete).with_context(context)?;
    let left_out = jobs.len() - all.jobs.len();
    if left_out > 0 {
        let message = "were skipped: the emulator has no program for their protocol";
        writeln!(io::stderr(), "{left_out} runs {message}")?;
    }
    let untrusted = all.done.iter().filter(|done| done.trusted == Some(false)).count();
    if untrusted > 0 {
        let message = "are not trusted: the machine was too slow (column `trusted`)";
        writeln!(io::stderr(), "{untrusted} runs {message}")?;
    }
    print_failures(&all)?;
    let (total, old, failed) = (all.done.len(), old.into_inner(), failed.into_inner());
    let text =
        format!("{total} runs, {old} of them from earlier; {failed} failed\n{}", folder.display());
    crate::exit_code(writeln!(io::stderr(), "{text}").map_err(Into::into), true)
}

/// Cells that are named of those in which runs failed.
const FAILED_CELLS: usize = 5;

/// Prints the cells with failed runs, each with its first reason.
fn print_failures(all: &Finished<'_>) -> anyhow::Result<()> {
    let mut cells: BTreeMap<String, (u64, u64, Option<&str>)> = BTreeMap::new();
    for (job, done) in all.jobs.iter().zip(&all.done) {
        let labels = job.sheet.labels(&job.cell);
        let labels: Vec<_> =
            labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
        let cell = format!("{}: {}", job.sheet.name, labels.join(", "));
        let (runs, failed, why) = cells.entry(cell).or_default();
        *runs += 1;
        if !done.succeeded() {
            *failed += 1;
            let mut failures =
                done.transfers.iter().filter_map(|transfer| transfer.failure.as_deref());
            *why = why.or_else(|| failures.next());
        }
    }
    let bad: Vec<_> = cells.iter().filter(|(_, (_, failed, _))| *failed > 0).collect();
    if bad.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new([Column::left("without success"), Column::left("cell"), Column::prose("why")]);
    for (cell, (runs, failed, why)) in bad.iter().take(FAILED_CELLS) {
        let share = Cell::from(format!("{failed} of {runs} runs")).tone(Tone::Bad);
        table.row([share, cell.as_str().into(), Cell::optional(why.map(str::to_owned))]);
    }
    writeln!(io::stderr(), "{}", table.drawn(Page::stderr()))?;
    if bad.len() > FAILED_CELLS {
        let more = bad.len() - FAILED_CELLS;
        writeln!(
            io::stderr(),
            "and some of {more} other cells (columns `completed` and `failure`)"
        )?;
    }
    Ok(())
}

/// Opens the results, once it is clear what is to become of those that are there.
fn open(args: &RunArgs, folder: &Path) -> anyhow::Result<Journal> {
    if args.again {
        // Opened first: nobody else writes there.
        let locked = match Journal::open(folder) {
            Err(error @ study::JournalError::InUse { .. }) => {
                return Err(StudyError::from(error).into());
            }
            other => other.ok(),
        };
        for entry in fs::read_dir(folder).context("cannot look into the folder of results")? {
            let path = entry?.path();
            if results::is_ours(&path) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        drop(locked);
    }
    let journal = Journal::open(folder).map_err(StudyError::from)?;
    if !journal.is_empty() && !args.resume {
        let message = format!(
            "{} has {} runs; --resume continues with them, --again starts over",
            folder.display(),
            journal.len()
        );
        return Err(Usage(message).into());
    }
    Ok(journal)
}
