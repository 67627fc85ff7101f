//! Presets: named links, built in or in files.

use std::path::Path;

use serde::{Deserialize, Serialize};
use transport::files;
use transport::text::{self, SpecError};

use crate::link_spec::LinkSpec;

/// A path of one or more hops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Description, in one line.
    #[serde(default)]
    pub about: String,
    /// Other users; unknown by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Hops, from the sender to the receiver; between two of them is a relay that forwards packets.
    pub hops: Vec<LinkSpec>,
}

/// Other users of a path: decides whether transports without congestion control may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Others use it too, or this is unknown.
    #[default]
    Shared,
    /// One sender has the whole rate.
    Dedicated,
}

macro_rules! presets {
    ($($name:literal)*) => {
        /// Built-in links: name and TOML.
        pub const ALL: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../scenarios/links/", $name, ".toml")))),*
        ];
    };
}

presets! {
    "terrestrial" "leo" "geo" "geo-ku" "cislunar" "moon-farside" "mars-near" "mars-far" "grc-1m"
    "grc-10m"
}

impl Preset {
    /// Returns a preset of one hop.
    #[must_use]
    pub fn single(hop: LinkSpec) -> Self {
        Self { about: String::new(), sharing: None, hops: vec![hop] }
    }

    /// Finds the preset called `name`, or else the file of that name.
    ///
    /// # Errors
    ///
    /// Names the existing presets, or the file's fault.
    pub fn find(name: &str) -> Result<Self, SpecError> {
        if let Some((_, text)) = ALL.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        if files::exists(path) {
            return Self::parse(&text::read_text(path)?, name);
        }
        let near = text::did_you_mean(name, ALL.iter().map(|(known, _)| *known));
        let known = ALL.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        let name = wire::excerpt(name);
        Err(SpecError::invalid(format!(
            "there is no link and no file {name:?}{near} (links: {known})"
        )))
    }

    /// Parses the preset in `text`, which came from `origin`.
    ///
    /// # Errors
    ///
    /// Fault of the text.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        if has_flat_settings(text) {
            let remedy = "write `[[hops]]` above the link's settings; each such table is a hop";
            return Err(SpecError::invalid(format!("{origin}: {remedy}")));
        }
        text::parse::<Self>(text, origin)?.checked(origin)
    }

    /// Returns the links of a scenario from `near` to `far` and back, hop by hop; between two hops
    /// is a node `relay-1` and so on.
    #[must_use]
    pub fn chain(&self, near: &str, far: &str) -> Vec<LinkSpec> {
        let node = |index: usize| match index {
            0 => near.to_owned(),
            _ if index == self.hops.len() => far.to_owned(),
            _ => relay(index),
        };
        let between = |spec: LinkSpec, from: usize, to: usize| LinkSpec {
            from: Some(node(from)),
            to: Some(node(to)),
            back: None,
            ..spec
        };
        let both = |(index, hop): (usize, &LinkSpec)| {
            let there = between(hop.clone(), index, index + 1);
            [there, between(hop.way_back(), index + 1, index)]
        };
        self.hops.iter().enumerate().flat_map(both).collect()
    }

    fn checked(self, origin: &str) -> Result<Self, SpecError> {
        if self.hops.is_empty() {
            return Err(SpecError::invalid(format!("{origin}: a link needs at least one hop")));
        }
        for hop in &self.hops {
            let named = hop.from.as_ref().or(hop.to.as_ref()).or(hop.link.as_ref());
            if named.is_some() {
                return Err(SpecError::invalid(format!(
                    "{origin}: `from`, `to` and `link` belong into a scenario"
                )));
            }
            hop.clone().resolved().config()?;
            hop.way_back().resolved().config()?;
        }
        Ok(self)
    }
}

/// Whether a file has settings of a link in place of hops.
fn has_flat_settings(text: &str) -> bool {
    let Ok(mut table) = toml::from_str::<toml::Table>(text) else { return false };
    let has_hops = table.remove("hops").is_some();
    table.remove("about");
    !has_hops && !table.is_empty() && table.try_into::<LinkSpec>().is_ok()
}

/// Returns the name of the host behind this hop of several.
pub(crate) fn relay(hop: usize) -> String {
    format!("relay-{hop}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_link() {
        for (name, text) in ALL {
            let preset = Preset::find(name).unwrap();
            assert!(!preset.about.is_empty() && text.starts_with("# "), "{name} says nothing");
        }
        assert_eq!(Preset::find("moon-farside").unwrap().hops.len(), 2);
    }

    #[test]
    fn the_folder_and_the_list_agree() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/links");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut listed: Vec<_> = ALL.iter().map(|(name, _)| format!("{name}.toml")).collect();
        listed.sort();
        assert_eq!(files, listed);
    }

    #[test]
    fn links_without_hops_are_refused_with_a_remedy() {
        let refused = |text: &str| Preset::parse(text, "my.toml").unwrap_err().to_string();
        let flat = "about = \"mine\"\nrate = \"8 Mbit/s\"\nber = \"1e-6\"";
        let expected =
            "my.toml: write `[[hops]]` above the link's settings; each such table is a hop";
        assert_eq!(refused(flat), expected);
        assert!(refused("about = \"mine\"\nraet = \"8 Mbit/s\"").contains("unknown field `raet`"));
        assert!(Preset::parse(&flat.replace("rate", "[[hops]]\nrate"), "my.toml").is_ok());
    }

    #[test]
    fn unknown_names_are_refused_with_a_remedy() {
        let error = Preset::find("goe").unwrap_err().to_string();
        assert!(error.contains("did you mean \"geo\"") && error.contains("cislunar"), "{error}");
    }
}
