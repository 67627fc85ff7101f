//! The studies that come with slowlight, and the scenarios that they vary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::text::{self, SpecError};

macro_rules! texts {
    ($(#[$doc:meta])* $visibility:vis $all:ident, $folder:literal: $($name:literal)*) => {
        $(#[$doc])*
        $visibility const $all: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../", $folder, "/", $name, ".toml")))),*
        ];
    };
}

texts! {
    /// The studies that come with slowlight: name and TOML.
    pub BUILT_IN, "studies":
    "grc-2012" "ltpt-2007" "global-hawk-2012" "small-sat-2000" "cislunar-2009" "choose"
}

texts! {
    SCENARIOS, "scenarios":
    "grc" "ltpt-one-hop" "ltpt-two-hops" "global-hawk" "sgls" "cislunar-bp"
}

/// Where the scenarios of a study are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// They come with slowlight.
    BuiltIn,
    /// They are beside the study, in this folder.
    Folder(PathBuf),
    /// They are these texts, by the names that the study has for them, and the files that they name
    /// are in this folder.
    Given(BTreeMap<PathBuf, String>, PathBuf),
}

impl Source {
    /// The text of a scenario that a study names.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    pub fn read(&self, world: &Path) -> Result<String, SpecError> {
        match self {
            Self::Folder(folder) => text::read_text(&folder.join(world)),
            Self::Given(texts, _) => texts.get(world).cloned().ok_or_else(|| {
                SpecError::invalid(format!("no scenario {} was given", world.display()))
            }),
            Self::BuiltIn => {
                let name = world.file_stem().unwrap_or_default();
                let known = SCENARIOS.iter().find(|(known, _)| **known == *name);
                known.map(|(_, text)| (*text).to_owned()).ok_or_else(|| {
                    SpecError::invalid(format!(
                        "{} does not come with slowlight; give the study as a file",
                        world.display()
                    ))
                })
            }
        }
    }

    /// The folder that files are looked for in which the scenario names.
    #[must_use]
    pub fn folder_of(&self, world: &Path) -> PathBuf {
        match self {
            Self::BuiltIn => PathBuf::new(),
            Self::Given(_, folder) => folder.clone(),
            Self::Folder(folder) => folder.join(world).parent().unwrap_or(Path::new("")).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Study;
    use super::*;

    #[test]
    fn the_folder_and_the_list_agree() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "claims.toml")
            .collect();
        files.sort();
        let mut listed: Vec<_> = BUILT_IN.iter().map(|(name, _)| format!("{name}.toml")).collect();
        listed.sort();
        assert_eq!(files, listed);
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
