//! Built-in studies and the scenarios that they vary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use transport::text::{self, SpecError};

macro_rules! texts {
    ($(#[$doc:meta])* $visibility:vis $all:ident, $folder:literal: $($name:literal)*) => {
        $(#[$doc])*
        $visibility const $all: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../", $folder, "/", $name, ".toml")))),*
        ];
    };
}

texts! {
    /// Built-in studies: name and TOML.
    pub BUILT_IN, "studies":
    "grc-2012" "ltpt-2007" "global-hawk-2012" "small-sat-2000" "cislunar-2009" "choose"
    "coded-2026"
}

texts! {
    /// Built-in scenarios: name and TOML.
    pub SCENARIOS, "scenarios":
    "grc" "grc-10kb" "grc-10mb" "ltpt-one-hop" "ltpt-two-hops" "global-hawk" "sgls" "cislunar-bp"
    "geo" "geo-fleet" "geo-tools" "gateways" "dumbbell" "far-side" "lander" "moon-bundles" "moon-sfo"
}

/// Returns the text of a built-in scenario.
///
/// # Errors
///
/// Names the existing scenarios.
pub fn scenario(name: &str) -> Result<&'static str, SpecError> {
    let found = SCENARIOS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let names = || SCENARIOS.iter().map(|(known, _)| *known);
        let near = text::did_you_mean(name, names());
        let known = names().collect::<Vec<_>>().join(", ");
        SpecError::invalid(format!("there is no scenario {name:?}{near} (scenarios: {known})"))
    })
}

/// A scenario passed as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// TOML.
    pub text: String,
    /// Folder of the files that it names.
    pub folder: PathBuf,
}

/// Location of a study's scenarios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built-in.
    BuiltIn,
    /// This folder, which has the study, too.
    Folder(PathBuf),
    /// These, by their names in the study.
    Given(BTreeMap<PathBuf, Given>),
}

impl Source {
    /// Returns the text of a scenario named by a study.
    ///
    /// # Errors
    ///
    /// The file does not exist.
    pub fn read(&self, world: &Path) -> Result<String, SpecError> {
        match self {
            Self::Folder(folder) => text::read_text(&folder.join(world)),
            Self::Given(worlds) => {
                let given = worlds.get(world).map(|given| given.text.clone());
                let none = || format!("no scenario {} was given", world.display());
                given.ok_or_else(|| SpecError::invalid(none()))
            }
            Self::BuiltIn => {
                let name = world.file_stem().unwrap_or_default();
                scenario(&name.to_string_lossy()).map(str::to_owned)
            }
        }
    }

    /// Returns a scenario named by a study.
    ///
    /// # Errors
    ///
    /// The file does not exist.
    pub fn given(&self, world: &Path) -> Result<Given, SpecError> {
        Ok(Given { text: self.read(world)?, folder: self.folder_of(world) })
    }

    /// Returns the folder of the files that the scenario names.
    #[must_use]
    pub fn folder_of(&self, world: &Path) -> PathBuf {
        match self {
            Self::BuiltIn => PathBuf::new(),
            Self::Given(worlds) => {
                worlds.get(world).map_or_else(PathBuf::new, |given| given.folder.clone())
            }
            Self::Folder(folder) => folder.join(world).parent().unwrap_or(Path::new("")).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Study;
    use super::*;

    #[test]
    fn the_folders_and_the_lists_agree() {
        for (folder, list) in [("studies", BUILT_IN), ("scenarios", SCENARIOS)] {
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let mut files: Vec<_> = std::fs::read_dir(place)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.ends_with(".toml") && name != "claims.toml")
                .collect();
            files.sort();
            let mut listed: Vec<_> = list.iter().map(|(name, _)| format!("{name}.toml")).collect();
            listed.sort();
            assert_eq!(files, listed);
        }
    }

    #[test]
    fn scenarios_are_named() {
        assert!(scenario("grc").unwrap().contains("[[links]]"));
        let error = scenario("gcr").unwrap_err().to_string();
        assert!(error.contains("did you mean") && error.contains("moon-sfo"), "{error}");
    }

    #[test]
    fn every_cell_of_every_study_is_a_world() {
        for (name, _) in BUILT_IN {
            let (study, source) = Study::find(name).unwrap();
            for sheet in study.editions.values().flat_map(|edition| &edition.sheets) {
                let world = sheet.world(&source).unwrap();
                for cell in sheet.cells() {
                    world.scenario(&cell, sheet.seed).unwrap();
                }
            }
        }
    }
}
