//! Policies for files that are already there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Policy for a file or link of a pack whose name exists at the receiver.
///
/// One with the same content, permissions and time is left as it is under every policy. A folder
/// never replaces anything else, nor is it replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Existing {
    /// Keeps the file that is there.
    Skip,
    /// Replaces it if that of the pack is newer.
    Newer,
    /// Replaces it.
    Replace,
    /// Moves it to `NAME.~N~`, with the first free number, unless it has the same content.
    #[default]
    Rename,
    /// Keeps it, and reports that of the pack as refused.
    Fail,
}

impl Existing {
    /// All policies.
    pub const ALL: [Self; 5] = [Self::Skip, Self::Newer, Self::Replace, Self::Rename, Self::Fail];
}

impl fmt::Display for Existing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Skip => "skip",
            Self::Newer => "newer",
            Self::Replace => "replace",
            Self::Rename => "rename",
            Self::Fail => "fail",
        })
    }
}

/// Error when a text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no policy for existing files; write skip, newer, replace, rename or fail")]
pub struct UnknownPolicy(String);

impl FromStr for Existing {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.to_string() == text);
        found.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in Existing::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "overwrite".parse::<Existing>().unwrap_err();
        assert!(error.to_string().contains("skip, newer, replace, rename or fail"), "{error}");
    }
}
