//! Folder of results: the study as it was run, a table for each sheet, and a manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use transport::text::{self, SpecError};

use super::journal::JOURNAL;
use super::{Conditions, Edition, Finished, Given, Source, Study, table};

/// The study as it was run.
const STUDY: &str = "study.toml";
/// Its scenarios, by their names in the study.
const WORLDS: &str = "worlds.toml";
/// Manifest.
const MANIFEST: &str = "manifest.json";
/// Ending of the conditions of a sheet, behind its name.
const CONDITIONS: &str = ".conditions.json";

/// Origin of results.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Study.
    pub study: &'a Study,
    /// Name.
    pub name: &'a str,
    /// Name of the edition.
    pub edition_name: &'a str,
    /// Edition.
    pub edition: &'a Edition,
    /// Version of the program, with its commit if known.
    pub slowlight: &'static str,
}

/// Description of the folder.
#[derive(Serialize)]
struct Manifest<'a> {
    slowlight: &'static str,
    study: &'a str,
    edition: &'a str,
    /// Whether the edition is complete, or only a selection.
    complete: bool,
    runs: usize,
    failed: usize,
    sheets: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    table: String,
    runs: usize,
    first_seed: u64,
}

/// Whether a file of a folder is written by this module.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    let ends_with = |ending| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.ends_with(ending))
    };
    ends_with(".parquet")
        || ends_with(CONDITIONS)
        || [JOURNAL, MANIFEST, STUDY, WORLDS].iter().any(|name| path.ends_with(name))
}

/// Stores the study beside its results, with the scenarios of its sheets and figures.
///
/// # Errors
///
/// A scenario cannot be read, or the system refuses.
pub fn keep_study(folder: &Path, study: &Study, source: &Source) -> io::Result<()> {
    let sheets = study.editions.values().flat_map(|edition| &edition.sheets);
    // A name without an ending denotes a built-in scenario.
    let is_file = |name: &&str| Path::new(name).extension().is_some();
    let of_figures =
        study.figures.iter().filter_map(|figure| figure.get("scenario")?.as_str()).filter(is_file);
    let names: BTreeSet<&Path> =
        sheets.map(|sheet| sheet.world.as_path()).chain(of_figures.map(Path::new)).collect();
    let mut worlds = BTreeMap::new();
    for name in names {
        let mut given = source.given(name).map_err(io::Error::other)?;
        if *source != Source::BuiltIn {
            given.folder = std::path::absolute(Path::new(".").join(given.folder))?;
        }
        worlds.insert(name, given);
    }
    for (file, text) in [(STUDY, toml::to_string(study)), (WORLDS, toml::to_string(&worlds))] {
        replace(&folder.join(file), text.map_err(io::Error::other)?.as_bytes())?;
    }
    Ok(())
}

/// Returns the study of a folder's results and its scenarios: the built-in ones if none were
/// stored.
///
/// # Errors
///
/// The folder has no such files, or they are invalid.
pub fn kept_study(folder: &Path) -> Result<(Study, Source), SpecError> {
    let (study, worlds) = (folder.join(STUDY), folder.join(WORLDS));
    let read = Study::parse(&text::read_text(&study)?, &study.display().to_string())?;
    if !worlds.exists() {
        return Ok((read, Source::BuiltIn));
    }
    let kept = text::parse(&text::read_text(&worlds)?, &worlds.display().to_string())?;
    Ok((read, Source::Given(kept)))
}

/// Returns the scenario of a cell in a folder's results, with the first value of axes that are not
/// named.
///
/// # Errors
///
/// The folder has no results, or the sheet, axis or value does not exist.
pub fn cell(
    folder: &Path,
    edition: &str,
    sheet: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Given, SpecError> {
    let (study, source) = kept_study(folder)?;
    let (_, edition) = study.edition(Some(edition))?;
    let found = edition.sheet(sheet);
    let sheet = found.ok_or_else(|| SpecError::invalid(format!("there is no sheet {sheet:?}")))?;
    sheet.world(&source)?.given(&sheet.cell_of(labels)?)
}

/// Writes a file atomically.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    table::replace(path, |mut file| file.write_all(content))
}

impl Of<'_> {
    /// Writes the table and conditions of each sheet that has runs, and the manifest.
    ///
    /// # Errors
    ///
    /// A file that a scenario names has gone, or the system refuses.
    pub fn write(&self, folder: &Path, all: &Finished<'_>, complete: bool) -> io::Result<()> {
        let mut sheets = Vec::new();
        for sheet in &self.edition.sheets {
            let jobs = all.jobs.iter().filter(|job| job.sheet.name == sheet.name);
            let runs = jobs.clone().count();
            if runs == 0 {
                continue;
            }
            let about = [
                ("slowlight", self.slowlight.to_owned()),
                ("study", self.name.to_owned()),
                ("edition", self.edition_name.to_owned()),
                ("sheet", sheet.name.clone()),
                ("paper", self.study.paper.clone()),
            ];
            let name = format!("{}.parquet", sheet.name);
            table::write(&folder.join(&name), &table::table(sheet, all), &about)?;
            let conditions = Conditions::read(jobs).map_err(io::Error::other)?.to_json()?;
            let place = folder.join(format!("{}{CONDITIONS}", sheet.name));
            replace(&place, conditions.as_bytes())?;
            sheets.push(Part { name: &sheet.name, table: name, runs, first_seed: sheet.seed });
        }
        let manifest = Manifest {
            slowlight: self.slowlight,
            study: self.name,
            edition: self.edition_name,
            complete,
            runs: all.done.len(),
            failed: all.done.iter().filter(|done| !done.succeeded()).count(),
            sheets,
        };
        let mut text = serde_json::to_vec_pretty(&manifest)?;
        text.push(b'\n');
        replace(&folder.join(MANIFEST), &text)
    }
}
