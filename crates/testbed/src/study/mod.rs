//! Studies: many worlds of one type, made from a base scenario, a grid of changes, and seeds.
//!
//! A study is a TOML file with one or more *editions* (a paper's as published, and the same with
//! today's protocols). An edition has *sheets*; a sheet is a scenario, changes that apply to all
//! of it, and *axes*. A *cell* is one value of each axis. It runs with the seeds `seed`,
//! `seed + 1` and so on, the same for every cell, so that cells differ by their axes only. Each
//! sheet becomes one table, with a row for each transfer of each run.
//!
//! [`Journal`] stores completed runs; [`run`] adds the missing ones; [`table`] orders all of them,
//! independent of the order of their execution.

mod axes;
mod built_in;
mod cells;
mod conditions;
mod emulated;
mod figures;
mod journal;
pub mod results;
mod runner;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use transport::text::{self, SpecError};

pub use axes::{Axis, Number, Unit, Value, changed};
pub use built_in::{BUILT_IN, Given, SCENARIOS, Source, scenario};
pub use cells::Cell;
pub use conditions::Conditions;
pub use journal::{Done, Journal, JournalError};
pub use runner::{
    Filter, Finished, How, Job, Place, Selection, StudyError, digest_of, jobs, once, run,
};

/// A parameter study and its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Subject, in one line.
    pub about: String,
    /// Source of its conditions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Short name of a paper, such as `S0`, whose claims it checks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub paper: String,
    /// Its editions, by name.
    pub editions: BTreeMap<String, Edition>,
    /// Figures; read by the Python package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<toml::Table>,
}

/// A variant of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// Description, in one line.
    #[serde(default)]
    pub about: String,
    /// Sheets.
    pub sheets: Vec<Sheet>,
}

/// A scenario, and the grid of changes to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// Name, also of its table.
    pub name: String,
    /// Description, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Path of the scenario, relative to the study.
    pub world: PathBuf,
    /// Runs per cell.
    #[serde(default = "default_number")]
    pub runs: u32,
    /// First seed.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// Changes for every cell: keys like `links.*.queue` and their values.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    /// Axes; the first changes slowest.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// Cells to skip: those that have, for each named axis, one of the labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<BTreeMap<String, Labels>>,
}

/// One or several labels of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Labels {
    /// One.
    One(String),
    /// Several.
    Some(Vec<String>),
}

impl Labels {
    fn contains(&self, label: &str) -> bool {
        match self {
            Self::One(one) => one == label,
            Self::Some(some) => some.iter().any(|one| one == label),
        }
    }

    fn each(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Some(some) => some,
        }
    }
}

fn default_number() -> u32 {
    1
}

fn first_seed() -> u64 {
    1
}

/// Maximum cells of a sheet.
const CELLS_MAX: u64 = 1_000_000;

impl Study {
    /// Finds the study called `name`, or else the file of that name, and the location of its
    /// scenarios.
    ///
    /// # Errors
    ///
    /// Names the existing studies, or the file's fault.
    pub fn find(name: &str) -> Result<(Self, Source), SpecError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Ok((Self::parse(text, name)?, Source::BuiltIn));
        }
        // `my-study` also finds `my-study.toml`.
        let files = [PathBuf::from(name), PathBuf::from(format!("{name}.toml"))];
        if let Some(path) = files.iter().find(|path| path.is_file()) {
            let study = Self::parse(&text::read_text(path)?, &path.display().to_string())?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            return Ok((study, Source::Folder(folder)));
        }
        let near = text::did_you_mean(name, BUILT_IN.iter().map(|(known, _)| *known));
        let known = BUILT_IN.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        Err(SpecError::invalid(format!(
            "there is no study and no file {name:?}{near} (studies: {known})"
        )))
    }

    /// Parses a study from `text`, which came from `origin`.
    ///
    /// # Errors
    ///
    /// Line, key and remedy of the first fault.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        let study: Self = text::parse(text, origin)?;
        study.check().map_err(|error| error.within(Path::new(origin)))?;
        Ok(study)
    }

    /// Returns the edition of this name; by default the only one, or `published`.
    ///
    /// # Errors
    ///
    /// Names the existing editions.
    pub fn edition(&self, name: Option<&str>) -> Result<(&str, &Edition), SpecError> {
        let usual = match self.editions.len() {
            1 => self.editions.keys().next().map_or(PUBLISHED, String::as_str),
            _ => PUBLISHED,
        };
        let requested = name.unwrap_or(usual);
        let found = self.editions.get_key_value(requested);
        found.map(|(name, edition)| (name.as_str(), edition)).ok_or_else(|| {
            let names = || self.editions.keys().map(String::as_str);
            let near = text::did_you_mean(requested, names());
            let known = names().collect::<Vec<_>>().join(", ");
            SpecError::invalid(format!(
                "there is no edition {requested:?}{near} (editions: {known})"
            ))
        })
    }

    /// Checks the figures, which are drawn after all runs.
    ///
    /// # Errors
    ///
    /// Place of the first mistake, and the nearest right name.
    pub fn check_figures(&self, source: &Source) -> Result<(), SpecError> {
        figures::check(self, source)
    }

    /// Checks everything that a run of any edition and a report would check: every cell's world,
    /// files named by worlds, and figures.
    ///
    /// # Errors
    ///
    /// Place of the first mistake.
    pub fn check_all(&self, source: &Source) -> Result<(), SpecError> {
        for edition in self.editions.values() {
            let one = Selection { runs: Some(1), ..Selection::default() };
            runner::files(&jobs(edition, source, &one)?)?;
        }
        self.check_figures(source)
    }

    fn check(&self) -> Result<(), SpecError> {
        if self.editions.is_empty() {
            return Err(SpecError::invalid("a study needs an edition: [editions.NAME]"));
        }
        for (name, edition) in &self.editions {
            edition.check().map_err(|error| error.below(&format!("editions.{name}")))?;
        }
        Ok(())
    }
}

/// Default edition where there are several.
const PUBLISHED: &str = "published";

impl Edition {
    /// Returns the sheet of this name.
    #[must_use]
    pub fn sheet(&self, name: &str) -> Option<&Sheet> {
        self.sheets.iter().find(|sheet| sheet.name == name)
    }

    fn check(&self) -> Result<(), SpecError> {
        let mut names = BTreeSet::new();
        for sheet in &self.sheets {
            let Sheet { name, .. } = sheet;
            if !is_name(name) {
                return Err(SpecError::invalid(format!(
                    "sheets: {name:?} cannot name a table; take letters, digits, `-` and `_`"
                )));
            }
            if !names.insert(name) {
                return Err(SpecError::invalid(format!("sheets: two are called {name:?}")));
            }
            sheet.check().map_err(|error| error.below(&format!("sheets.{name}")))?;
        }
        Ok(())
    }
}

/// Whether a name is valid for a file and a column.
fn is_name(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.chars().all(is_usual)
}

impl Sheet {
    /// Number of cells in the full grid, including skipped ones.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.axes.iter().map(|axis| axis.values.len() as u64).fold(1, u64::saturating_mul)
    }

    fn check(&self) -> Result<(), SpecError> {
        if self.runs == 0 {
            return Err(SpecError::invalid("runs: each cell is run at least once"));
        }
        let mut names: BTreeSet<_> = table::columns().collect();
        for axis in &self.axes {
            axis.check()?;
            if !names.insert(&axis.name) {
                return Err(SpecError::invalid(format!(
                    "axes: {:?} is the name of another axis or of a result; take another",
                    axis.name
                )));
            }
        }
        if self.span() > CELLS_MAX {
            let message = format!("axes: {} cells; there are at most {CELLS_MAX}", self.span());
            return Err(SpecError::invalid(message));
        }
        for (name, labels) in self.skip.iter().flatten() {
            let axis = self.axis(name).map_err(|error| error.below("skip"))?;
            for label in labels.each() {
                axis.value(label).map_err(|error| error.below("skip"))?;
            }
        }
        Ok(())
    }

    /// Returns the axis of this name.
    ///
    /// # Errors
    ///
    /// Names the existing axes.
    pub fn axis(&self, name: &str) -> Result<&Axis, SpecError> {
        self.axes.iter().find(|axis| axis.name == name).ok_or_else(|| {
            let names = || self.axes.iter().map(|axis| axis.name.as_str());
            let near = text::did_you_mean(name, names());
            let known = names().collect::<Vec<_>>().join(", ");
            SpecError::invalid(format!(
                "{name}: sheet {:?} has no such axis{near} (axes: {known})",
                self.name
            ))
        })
    }
}
