//! Runs of a study: their list, and their execution.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Rng;
use lab::run::{self, Recorders, RunError};
use lab::scenario::Scenario;
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use transport::quantity::Span;
use transport::text::SpecError;

use super::emulated::{self, Emulated};
use super::journal::{Done, Journal, JournalError};
use super::{Cell, Edition, Sheet, Source, cells};
use crate::emulation::TransfersError;

/// Reason why a study stopped.
#[derive(Debug, Error)]
pub enum StudyError {
    /// A world could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Results could not be stored.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The emulator could not be started.
    #[error("cannot emulate")]
    Emulator(#[from] emu::WorldError),
    /// An emulated world could not be run.
    #[error(transparent)]
    Transfers(#[from] TransfersError),
    /// The system has no threads.
    #[error("cannot start threads")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl From<SpecError> for StudyError {
    fn from(error: SpecError) -> Self {
        Self::Run(error.into())
    }
}

/// An axis and its selected labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Axis.
    pub axis: String,
    /// Labels.
    pub labels: Vec<String>,
}

impl std::str::FromStr for Filter {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let invalid = || {
            SpecError::invalid(format!(
                "invalid filter {text:?}: expected AXIS=LABEL or AXIS=LABEL,LABEL"
            ))
        };
        let (axis, labels) = text.split_once('=').ok_or_else(invalid)?;
        let labels: Vec<_> = labels.split(',').map(|label| label.trim().to_owned()).collect();
        if axis.is_empty() || labels.iter().any(String::is_empty) {
            return Err(invalid());
        }
        Ok(Self { axis: axis.trim().to_owned(), labels })
    }
}

/// Selected runs of an edition.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Sheets; empty for all.
    pub sheets: Vec<String>,
    /// Filters that cells must all match.
    pub filters: Vec<Filter>,
    /// Runs per cell; default: the sheet's.
    pub runs: Option<u32>,
}

impl Selection {
    /// Whether the whole edition is selected.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.sheets.is_empty() && self.filters.is_empty() && self.runs.is_none()
    }

    fn takes_sheet(&self, sheet: &Sheet) -> bool {
        self.sheets.is_empty() || self.sheets.contains(&sheet.name)
    }

    fn takes(&self, labels: &[(&str, String)]) -> bool {
        self.filters.iter().all(|filter| {
            let has = |(axis, label): &(&str, String)| {
                *axis == filter.axis && filter.labels.contains(label)
            };
            labels.iter().any(has)
        })
    }

    /// Refuses unknown names.
    fn check(&self, edition: &Edition) -> Result<(), SpecError> {
        for name in &self.sheets {
            if edition.sheet(name).is_none() {
                let known: Vec<_> = edition.sheets.iter().map(|s| s.name.as_str()).collect();
                let near = transport::text::did_you_mean(name, known.iter().copied());
                let known = known.join(", ");
                return Err(SpecError::invalid(format!(
                    "there is no sheet {name:?}{near} (sheets: {known})"
                )));
            }
        }
        for filter in &self.filters {
            // An axis need not be in every sheet; a label need not be in every sheet that has the
            // axis.
            let sheets = edition.sheets.iter().filter(|sheet| self.takes_sheet(sheet));
            for label in &filter.labels {
                let mut found = sheets.clone().map(|s| s.axis(&filter.axis)?.value(label));
                let first = found.next().unwrap_or(Ok(0));
                if first.is_err() && !found.any(|found| found.is_ok()) {
                    first?;
                }
            }
        }
        Ok(())
    }
}

/// One run of a study.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Sheet.
    pub sheet: &'a Sheet,
    /// Cell.
    pub cell: Arc<Cell>,
    /// Number of the run of the cell, from 0.
    pub run: u32,
    world: Arc<cells::World<'a>>,
}

impl Done {
    /// Returns the result of this world's run.
    pub(super) fn from_run(world: String, run: run::Run) -> Self {
        let mut transfers = run.transfers;
        if run.ended != "idle" {
            for transfer in &mut transfers {
                transfer.completed = false;
                transfer.failure.get_or_insert_with(|| run.ended.clone());
            }
        }
        let lost = run.links.iter().flat_map(|link| link.lost.values()).sum();
        let (ended, time_s, events) = (run.ended, run.time_s, run.events);
        Self { world, ended, time_s, events, lost, trusted: None, transfers }
    }

    /// Whether every transfer completed and the world came to rest.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.ended == "idle" && self.transfers.iter().all(|transfer| transfer.completed)
    }
}

impl Job<'_> {
    /// Returns its seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.sheet.seed.wrapping_add(u64::from(self.run))
    }

    /// Returns its scenario.
    ///
    /// # Errors
    ///
    /// The cell is not a valid scenario.
    pub fn scenario(&self) -> Result<Scenario, SpecError> {
        self.world.scenario(&self.cell, self.seed())
    }
}

/// Returns the runs of an edition, in the order of its tables.
///
/// # Errors
///
/// The selection has unknown names, or a scenario cannot be read.
pub fn jobs<'a>(
    edition: &'a Edition,
    source: &Source,
    selection: &Selection,
) -> Result<Vec<Job<'a>>, SpecError> {
    selection.check(edition)?;
    let mut jobs = Vec::new();
    for sheet in edition.sheets.iter().filter(|sheet| selection.takes_sheet(sheet)) {
        let world = Arc::new(sheet.world(source)?);
        for cell in sheet.cells().filter(|cell| selection.takes(&sheet.labels(cell))) {
            let cell = Arc::new(cell);
            let of = |run| Job { sheet, cell: Arc::clone(&cell), run, world: Arc::clone(&world) };
            jobs.extend((0..selection.runs.unwrap_or(sheet.runs)).map(of));
        }
    }
    Ok(jobs)
}

/// Digests of files that scenarios name, so that each file is read once.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Identifies a world: digest of its settings, its seed, and its files.
fn digest(scenario: &Scenario, files: &Files) -> Result<String, SpecError> {
    let mut hash = Sha256::new();
    let text = serde_json::to_vec(scenario).map_err(|e| SpecError::invalid(e.to_string()))?;
    hash.update(text);
    for path in named_files(scenario) {
        match files.get(path) {
            Some(known) => hash.update(known),
            None => hash.update(file_digest(path)?),
        }
    }
    // 96 bits: in a million worlds two are the same with a probability of 6e-18.
    Ok(hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the digest of a world; [`Done::world`] of its run.
///
/// # Errors
///
/// A file that it names cannot be read.
pub fn digest_of(scenario: &Scenario) -> Result<String, SpecError> {
    digest(scenario, &Files::new())
}

fn named_files(scenario: &Scenario) -> impl Iterator<Item = &Path> {
    scenario.transfers.iter().filter_map(|transfer| transfer.file.as_deref())
}

fn file_digest(path: &Path) -> Result<Vec<u8>, SpecError> {
    let content = std::fs::read(path)
        .map_err(|error| SpecError::Unreadable { path: path.to_owned(), error })?;
    Ok(Sha256::digest(content).to_vec())
}

/// Digests of the files that all of these runs name. Every cell's world is read for it.
pub(super) fn files(jobs: &[Job<'_>]) -> Result<Files, SpecError> {
    let mut files = Files::new();
    // Cells may name different files; runs of one cell do not.
    for job in jobs.iter().filter(|job| job.run == 0) {
        for path in named_files(&job.scenario()?) {
            if !files.contains_key(path) {
                files.insert(path.to_owned(), file_digest(path)?);
            }
        }
    }
    Ok(files)
}

/// Runs a world and returns its result; `None` if it was cancelled.
///
/// # Errors
///
/// The world cannot be run.
pub fn once(scenario: &Scenario, cancelled: &AtomicBool) -> Result<Option<Done>, RunError> {
    once_known(scenario, digest_of(scenario)?, cancelled)
}

fn once_known(
    scenario: &Scenario,
    world: String,
    cancelled: &AtomicBool,
) -> Result<Option<Done>, RunError> {
    let contents = run::contents(scenario)?;
    let run = run::run_unless(cancelled, scenario, &contents, Recorders::default())?;
    if cancelled.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some(Done::from_run(world, run)))
}

/// Place where worlds are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the simulator.
    #[default]
    Simulator,
    /// In the emulator, one after another, each for at most this time. Real programs replace
    /// models; worlds without such a program are skipped. The process must be isolated
    /// ([`emu::isolate`]).
    Emulator(Span),
}

impl Place {
    /// Returns the world of a run and its digest; `None` if it cannot be run here.
    fn world(self, job: &Job<'_>, files: &Files) -> Result<Option<(Site, String)>, SpecError> {
        let scenario = job.scenario()?;
        match self {
            Self::Simulator => {
                let world = digest(&scenario, files)?;
                Ok(Some((Site::Simulated(scenario), world)))
            }
            Self::Emulator(limit) => {
                let Some(site) = emulated::emulated(scenario, limit)? else { return Ok(None) };
                // Measured results differ from simulated ones.
                let world = format!("emu-{}{}", digest(&site.scenario, files)?, site.suffix());
                Ok(Some((Site::Emulated(site), world)))
            }
        }
    }
}

/// World of one run.
enum Site {
    Simulated(Scenario),
    Emulated(Emulated),
}

impl Site {
    fn once(&self, world: String, cancelled: &AtomicBool) -> Result<Option<Done>, StudyError> {
        match self {
            Self::Simulated(scenario) => Ok(once_known(scenario, world, cancelled)?),
            Self::Emulated(emulated) => emulated::once(emulated, world, cancelled),
        }
    }
}

/// Options for running a study.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Place.
    pub place: Place,
    /// Threads; `None` for one per core. The emulator uses one.
    pub threads: Option<usize>,
}

/// Runs the jobs missing in `journal`, adds them to it, and returns all results in the order of
/// `jobs`, without jobs that the place cannot run; `None` if `cancelled` was set meanwhile. `done`
/// is called for each run, with `true` if the journal already had it. The results do not depend on
/// the number of threads or on interruptions.
///
/// # Errors
///
/// A world cannot be run or a result cannot be stored. Earlier results are kept.
pub fn run<'a>(
    jobs: &[Job<'a>],
    journal: Option<&Journal>,
    how: How,
    cancelled: &AtomicBool,
    done: &(dyn Fn(&Done, bool) + Sync),
) -> Result<Option<Finished<'a>>, StudyError> {
    let files = files(jobs)?;
    // A random order, so that the remaining time can be estimated from the elapsed time.
    let mut order: Vec<_> = (0..jobs.len()).collect();
    shuffle(&mut order);
    let threads = match how.place {
        Place::Simulator => how.threads.unwrap_or(0),
        Place::Emulator(_) => 1,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let one = |index: usize| -> Result<One, StudyError> {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(One::Cancelled);
        }
        let Some((site, world)) = how.place.world(&jobs[index], &files)? else {
            return Ok(One::LeftOut);
        };
        if let Some(known) = journal.and_then(|journal| journal.get(&world)) {
            done(&known, true);
            return Ok(One::Done(index, known));
        }
        let Some(new) = site.once(world, cancelled)? else {
            return Ok(One::Cancelled);
        };
        if let Some(journal) = journal {
            journal.add(&new)?;
        }
        done(&new, false);
        Ok(One::Done(index, Arc::new(new)))
    };
    let found: Vec<_> = pool
        .install(|| order.into_iter().par_bridge().map(one).collect::<Result<_, StudyError>>())?;
    let mut all = Vec::new();
    for one in found {
        match one {
            One::Done(index, done) => all.push((index, done)),
            One::LeftOut => {}
            One::Cancelled => return Ok(None),
        }
    }
    all.sort_by_key(|(index, _)| *index);
    let (ran, done) = all.into_iter().map(|(index, done)| (jobs[index].clone(), done)).unzip();
    Ok(Some(Finished { jobs: ran, done }))
}

/// Completed runs.
#[derive(Clone, Debug)]
pub struct Finished<'a> {
    /// Jobs, in the order of tables.
    pub jobs: Vec<Job<'a>>,
    /// Result of each.
    pub done: Vec<Arc<Done>>,
}

/// Result of one attempt.
enum One {
    Done(usize, Arc<Done>),
    LeftOut,
    Cancelled,
}

fn shuffle(order: &mut [usize]) {
    let mut rng = Rng::new(0, "order of runs");
    for last in (1..order.len()).rev() {
        let other = rng.below(last as u64 + 1);
        order.swap(last, usize::try_from(other).unwrap_or_default());
    }
}
