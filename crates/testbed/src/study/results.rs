//! The folder of results: the study as it was run, a table a sheet, and what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use transport::text::{self, SpecError};

use super::journal::JOURNAL;
use super::{Edition, Finished, Given, Source, Study, table};

/// The study as it was run.
const STUDY: &str = "study.toml";
/// The scenarios that it varies, by its names for them.
const WORLDS: &str = "worlds.toml";
/// What there is.
const MANIFEST: &str = "manifest.json";

/// What results are of.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// The study.
    pub study: &'a Study,
    /// Its name.
    pub name: &'a str,
    /// The name of its edition.
    pub edition_name: &'a str,
    /// The edition.
    pub edition: &'a Edition,
}

/// What was run, for whoever finds the folder.
#[derive(Serialize)]
struct Manifest<'a> {
    slowlight: &'static str,
    study: &'a str,
    edition: &'a str,
    /// Whether all of the edition is there, or what was selected.
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

/// Whether a file of a folder is one that is written here.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
        || [JOURNAL, MANIFEST, STUDY, WORLDS].iter().any(|name| path.ends_with(name))
}

/// Keeps the study beside its results, with the scenarios of its sheets and figures.
///
/// # Errors
///
/// When a scenario cannot be read, or the system refuses.
pub fn keep_study(folder: &Path, study: &Study, source: &Source) -> io::Result<()> {
    let sheets = study.editions.values().flat_map(|edition| &edition.sheets);
    // Without the ending it is the name of one that comes with slowlight.
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

/// The study that a folder has results of, and its scenarios: those that come with slowlight, where
/// none were kept.
///
/// # Errors
///
/// When the folder has no such files, or they were changed so that they cannot be read.
pub fn kept_study(folder: &Path) -> Result<(Study, Source), SpecError> {
    let (study, worlds) = (folder.join(STUDY), folder.join(WORLDS));
    let read = Study::parse(&text::read_text(&study)?, &study.display().to_string())?;
    if !worlds.exists() {
        return Ok((read, Source::BuiltIn));
    }
    let kept = text::parse(&text::read_text(&worlds)?, &worlds.display().to_string())?;
    Ok((read, Source::Given(kept)))
}

/// The scenario of a cell that a folder has results of: of axes that are not named the first value.
///
/// # Errors
///
/// When the folder has none, or there is no such sheet, axis or value.
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

/// Writes a file in one step.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    table::replace(path, |mut file| file.write_all(content))
}

impl Of<'_> {
    /// Writes the table of each sheet that has runs, and what there is.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn write(&self, folder: &Path, all: &Finished<'_>, complete: bool) -> io::Result<()> {
        let mut sheets = Vec::new();
        for sheet in &self.edition.sheets {
            let runs = all.jobs.iter().filter(|job| job.sheet.name == sheet.name).count();
            if runs == 0 {
                continue;
            }
            let about = [
                ("slowlight", env!("CARGO_PKG_VERSION").to_owned()),
                ("study", self.name.to_owned()),
                ("edition", self.edition_name.to_owned()),
                ("sheet", sheet.name.clone()),
                ("paper", self.study.paper.clone()),
            ];
            let name = format!("{}.parquet", sheet.name);
            table::write(&folder.join(&name), &table::table(sheet, all), &about)?;
            sheets.push(Part { name: &sheet.name, table: name, runs, first_seed: sheet.seed });
        }
        let manifest = Manifest {
            slowlight: env!("CARGO_PKG_VERSION"),
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
