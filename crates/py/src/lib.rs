//! Native module of the Python package: worlds, studies, decoders and theory, without the
//! interpreter's lock. Values are passed as texts (TOML in, JSON out) and columns;
//! `python/slowlight` adds types.

#![expect(clippy::needless_pass_by_value, reason = "what Python hands in is converted to values")]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lab::run::{self, Recorders, RunError};
use lab::scenario::Scenario;
use pyo3::exceptions::{PyIndexError, PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use testbed::study::results::{self, Of};
use testbed::study::table::{Values, table};
use testbed::study::{
    self, Done, Filter, Given, How, Journal, JournalError, Selection, Source, Study, StudyError,
};
use transport::SpecError;

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn of_spec(error: &SpecError) -> PyErr {
    match error {
        SpecError::Unreadable { .. } => PyOSError::new_err(error.to_string()),
        SpecError::Malformed { .. } | SpecError::Invalid(_) => refused(error),
    }
}

fn of_run(error: &RunError) -> PyErr {
    match error {
        RunError::Spec(error) => of_spec(error),
        RunError::Record(_) => PyOSError::new_err(chain(error)),
    }
}

fn of_study(error: &StudyError) -> PyErr {
    match error {
        StudyError::Run(error) => of_run(error),
        StudyError::Journal(error) => of_journal(error),
        StudyError::Emulator(_) | StudyError::Transfers(_) | StudyError::Threads(_) => {
            PyOSError::new_err(chain(error))
        }
    }
}

fn of_journal(error: &JournalError) -> PyErr {
    match error {
        JournalError::Io { .. } | JournalError::InUse { .. } => PyOSError::new_err(chain(error)),
        JournalError::Damaged { .. } | JournalError::Version { .. } => refused(error),
    }
}

/// Formats an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the version of slowlight.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns a scenario with all defaults, as TOML.
#[pyfunction]
fn resolve(scenario: &str, origin: &str, folder: PathBuf) -> PyResult<String> {
    let read = Scenario::parse(scenario, origin).map(|scenario| scenario.placed(&folder));
    let resolved = read.and_then(Scenario::resolved).and_then(|scenario| scenario.to_toml());
    resolved.map_err(|error| of_spec(&error))
}

/// Returns the text of a built-in scenario.
#[pyfunction]
fn scenario(name: &str) -> PyResult<&'static str> {
    study::scenario(name).map_err(|error| of_spec(&error))
}

/// Returns a scenario with keys set from a JSON object, after others were removed.
#[pyfunction]
fn changed(scenario: &str, origin: &str, set: &str, unset: Vec<String>) -> PyResult<String> {
    let set = serde_json::from_str(set).map_err(refused)?;
    study::changed(scenario, origin, &set, &unset).map_err(|error| of_spec(&error))
}

/// Recording of a run, in memory.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<u8>>>);

impl Recorded {
    /// Returns its sink, if it is wanted.
    fn sink(&self, is_wanted: bool) -> Option<Box<dyn Write + Send>> {
        is_wanted.then(|| -> Box<dyn Write + Send> { Box::new(self.clone()) })
    }

    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs one world. Returns its metrics as JSON and, if requested, the packets of all links as
/// tab-separated lines, and a capture at a node as pcapng.
#[pyfunction]
fn single<'py>(
    py: Python<'py>,
    scenario: &str,
    origin: &str,
    folder: PathBuf,
    trace: bool,
    capture_at: Option<String>,
) -> PyResult<(String, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (lines, capture) = (Recorded::default(), Recorded::default());
    let recorders =
        Recorders { pcap: capture.sink(capture_at.is_some()), trace: lines.sink(trace) };
    let run = unlocked(py, |cancelled| {
        let mut scenario = Scenario::parse(scenario, origin)?.placed(&folder);
        if let Some(at) = capture_at {
            (scenario.capture.pcap, scenario.capture.at) = (true, Some(at));
        }
        let scenario = scenario.resolved()?;
        let contents = run::contents(&scenario)?;
        run::run_unless(cancelled, &scenario, &contents, recorders)
    })?;
    let run = run.map_err(|error| of_run(&error))?;
    let metrics = serde_json::to_string(&run).map_err(refused)?;
    Ok((metrics, lines.bytes(py), capture.bytes(py)))
}

/// Runs `work` without the interpreter's lock in a separate thread, while this one polls for
/// Ctrl-C.
fn unlocked<T: Send>(py: Python<'_>, work: impl FnOnce(&AtomicBool) -> T + Send) -> PyResult<T> {
    let cancelled = AtomicBool::new(false);
    let progress = &cancelled;
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || work(progress));
        let mut signal = None;
        while !worker.is_finished() {
            py.detach(|| std::thread::sleep(POLL));
            if let Err(error) = py.check_signals() {
                cancelled.store(true, Ordering::Relaxed);
                signal.get_or_insert(error);
            }
        }
        let result = py.detach(|| worker.join());
        match (signal, result) {
            (Some(signal), _) => Err(signal),
            (None, Ok(result)) => Ok(result),
            (None, Err(_)) => Err(refused("a world panicked; its output says why")),
        }
    })
}

/// Polling interval for Ctrl-C.
const POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// Some or all runs of an edition of a study.
#[pyclass(frozen, module = "slowlight._native")]
struct Plan {
    study: Study,
    name: String,
    edition: String,
    source: Source,
    selection: Selection,
}

/// Returns a completed run as JSON.
fn line(done: &Done) -> PyResult<String> {
    serde_json::to_string(done).map_err(refused)
}

impl Plan {
    fn edition(&self) -> PyResult<&study::Edition> {
        let found = self.study.edition(Some(&self.edition));
        found.map(|(_, edition)| edition).map_err(|error| of_spec(&error))
    }

    fn jobs(&self) -> PyResult<Vec<study::Job<'_>>> {
        let jobs = study::jobs(self.edition()?, &self.source, &self.selection);
        jobs.map_err(|error| of_spec(&error))
    }

    fn of(&self) -> PyResult<Of<'_>> {
        Ok(Of {
            study: &self.study,
            name: &self.name,
            edition_name: &self.edition,
            edition: self.edition()?,
            slowlight: env!("SLOWLIGHT_VERSION"),
        })
    }
}

#[pymethods]
impl Plan {
    /// Finds a study of this name or path.
    #[staticmethod]
    #[pyo3(signature = (name, edition, sheets, filters, runs))]
    fn find(
        name: &str,
        edition: Option<&str>,
        sheets: Vec<String>,
        filters: Vec<(String, Vec<String>)>,
        runs: Option<u32>,
    ) -> PyResult<Self> {
        let (study, source) = Study::find(name).map_err(|error| of_spec(&error))?;
        let stem = std::path::Path::new(name).file_stem().unwrap_or_default();
        let name = stem.to_string_lossy().into_owned();
        Self::new(study, name, source, edition, selection(sheets, filters, runs))
    }

    /// Parses a study from text, whose scenarios are given by their names.
    #[staticmethod]
    fn given(
        study: &str,
        name: String,
        worlds: BTreeMap<PathBuf, String>,
        folder: PathBuf,
    ) -> PyResult<Self> {
        let read = Study::parse(study, &name).map_err(|error| of_spec(&error))?;
        let given = |(name, text)| (name, Given { text, folder: folder.clone() });
        let source = Source::Given(worlds.into_iter().map(given).collect());
        Self::new(read, name, source, None, Selection::default())
    }

    /// Returns the number of runs.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.jobs()?.len())
    }

    /// Returns the name of the study.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the edition.
    #[getter]
    fn edition_name(&self) -> &str {
        &self.edition
    }

    /// Returns the names of the sheets.
    #[getter]
    fn sheets(&self) -> PyResult<Vec<&str>> {
        Ok(self.edition()?.sheets.iter().map(|sheet| sheet.name.as_str()).collect())
    }

    /// Returns the scenario of one run, as TOML.
    fn scenario(&self, index: usize) -> PyResult<String> {
        let jobs = self.jobs()?;
        let job = jobs.get(index).ok_or_else(|| PyIndexError::new_err("no such run"))?;
        job.scenario().and_then(|s| s.to_toml()).map_err(|error| of_spec(&error))
    }

    /// Executes some runs and returns their results as JSON: the work of one task on another
    /// machine.
    fn some(&self, py: Python<'_>, indices: Vec<usize>) -> PyResult<Vec<String>> {
        let jobs = self.jobs()?;
        let done = unlocked(py, |cancelled| -> Result<Vec<Option<Done>>, RunError> {
            let one = |index: &usize| match jobs.get(*index) {
                Some(job) => study::once(&job.scenario()?, cancelled),
                None => Ok(None),
            };
            indices.iter().map(one).collect()
        })?;
        let done = done.map_err(|error| of_run(&error))?;
        done.iter().flatten().map(line).collect()
    }

    /// Returns the runs that a folder of results lacks.
    fn missing(&self, journal: &Results) -> PyResult<Vec<usize>> {
        let jobs = self.jobs()?;
        let journal = journal.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            let world = job.scenario().and_then(|scenario| study::digest_of(&scenario));
            if journal.get(&world.map_err(|error| of_spec(&error))?).is_none() {
                missing.push(index);
            }
        }
        Ok(missing)
    }

    /// Executes all runs and returns the columns of each sheet, by name. With a folder, results are
    /// stored there, and existing ones are not repeated. `progress` is called with the number of
    /// completed runs.
    #[pyo3(signature = (jobs, folder, progress))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        jobs: Option<usize>,
        folder: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let all = self.jobs()?;
        let journal = folder.as_deref().map(Journal::open).transpose();
        let journal = journal.map_err(|error| of_journal(&error))?;
        let progress = |_: &Done, _: bool| {
            if let Some(progress) = &progress {
                // A failed progress bar does not stop the run.
                Python::attach(|py| drop(progress.call1(py, (1,))));
            }
        };
        let how = How { threads: jobs, ..How::default() };
        let run =
            |cancelled: &AtomicBool| study::run(&all, journal.as_ref(), how, cancelled, &progress);
        let done = unlocked(py, run)?.map_err(|error| of_study(&error))?;
        let Some(all) = done else { return Err(PyKeyboardInterrupt::new_err(())) };
        if let Some(folder) = &folder {
            let write = || -> PyResult<io::Result<()>> {
                let of = self.of()?;
                let complete = self.selection.is_all();
                Ok(results::keep_study(folder, &self.study, &self.source)
                    .and_then(|()| of.write(folder, &all, complete)))
            };
            write()?.map_err(|error| PyOSError::new_err(chain(&error)))?;
        }
        let sheets = PyDict::new(py);
        for sheet in &self.edition()?.sheets {
            let columns = PyDict::new(py);
            for column in table(sheet, &all) {
                match column.values {
                    Values::Flags(values) => columns.set_item(column.name, values)?,
                    Values::Counts(values) => columns.set_item(column.name, values)?,
                    Values::Numbers(values) => columns.set_item(column.name, values)?,
                    Values::Texts(values) => columns.set_item(column.name, values)?,
                }
            }
            sheets.set_item(&sheet.name, columns)?;
        }
        Ok(sheets)
    }
}

impl Plan {
    fn new(
        study: Study,
        name: String,
        source: Source,
        edition: Option<&str>,
        selection: Selection,
    ) -> PyResult<Self> {
        let found = study.edition(edition).map(|(edition, _)| edition.to_owned());
        let edition = found.map_err(|error| of_spec(&error))?;
        let plan = Self { study, name, edition, source, selection };
        plan.jobs()?;
        Ok(plan)
    }
}

fn selection(
    sheets: Vec<String>,
    filters: Vec<(String, Vec<String>)>,
    runs: Option<u32>,
) -> Selection {
    let filters = filters.into_iter().map(|(axis, labels)| Filter { axis, labels }).collect();
    Selection { sheets, filters, runs }
}

/// A folder of results open for writing.
#[pyclass(frozen, module = "slowlight._native")]
struct Results(Mutex<Journal>);

#[pymethods]
impl Results {
    #[new]
    fn new(folder: PathBuf) -> PyResult<Self> {
        let journal = Journal::open(&folder).map_err(|error| of_journal(&error))?;
        Ok(Self(Mutex::new(journal)))
    }

    /// Returns the number of runs when it was opened.
    fn __len__(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Adds a run, as [`Plan::some`] returns it.
    fn add(&self, line: &str) -> PyResult<()> {
        let done = serde_json::from_str(line).map_err(refused)?;
        let journal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        journal.add(&done).map_err(|error| of_journal(&error))
    }
}

/// Returns the names and descriptions of the built-in studies.
#[pyfunction]
fn studies() -> PyResult<Vec<(&'static str, String)>> {
    let about = |(name, text): &(&'static str, &str)| {
        Study::parse(text, name).map(|study| (*name, study.about)).map_err(|error| of_spec(&error))
    };
    study::BUILT_IN.iter().map(about).collect()
}

/// Returns the text of a built-in study; `None` if there is none of this name.
#[pyfunction]
fn study_text(name: &str) -> Option<&'static str> {
    study::BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the claims of papers, as TOML.
#[pyfunction]
fn claims() -> &'static str {
    include_str!("../../../studies/claims.toml")
}

/// A scenario's text, and the folder of the files that it names.
type World = (String, PathBuf);

/// Returns the scenario of a cell in a folder's results, with the first value of axes that are not
/// named.
#[pyfunction]
fn cell(
    results: PathBuf,
    edition: &str,
    sheet: &str,
    labels: BTreeMap<String, String>,
) -> PyResult<World> {
    world(results::cell(&results, edition, sheet, &labels))
}

/// Returns a scenario in a folder of results, by its name in the study.
#[pyfunction]
fn kept(results: PathBuf, name: PathBuf) -> PyResult<World> {
    world(results::kept_study(&results).and_then(|(_, source)| source.given(&name)))
}

fn world(found: Result<Given, SpecError>) -> PyResult<World> {
    found.map(|given| (given.text, given.folder)).map_err(|error| of_spec(&error))
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::packets::{decode, packets};

    #[pymodule_export]
    use super::{
        Plan, Results, cell, changed, claims, kept, resolve, scenario, single, studies, study_text,
        version,
    };

    #[pymodule_export]
    use super::theory::{
        best_payload_bits, coded_s, deferred_nak_s, expected_rounds, ideal_s, immediate_nak_s,
        multicast_transmissions, multicast_worst_losses, reno_bps, window_bps,
    };
}

mod packets;
mod theory;
