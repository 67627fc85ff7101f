//! The folder of results: the study as it was run, a table a sheet, and what there is.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use super::journal::JOURNAL;
use super::{Edition, Finished, Study, table};

/// The study as it was run.
const STUDY: &str = "study.toml";
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
        || [JOURNAL, MANIFEST, STUDY].iter().any(|name| path.ends_with(name))
}

/// Keeps the study beside its results.
///
/// # Errors
///
/// When the system refuses.
pub fn keep_study(folder: &Path, study: &Study) -> io::Result<()> {
    let text = toml::to_string(study).map_err(io::Error::other)?;
    replace(&folder.join(STUDY), text.as_bytes())
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
