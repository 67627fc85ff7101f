//! Reading TOML that people write: errors that show the line and the nearest right key.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a file a user wrote cannot be used.
#[derive(Debug, Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is not the TOML asked for.
    #[error("{origin}: {message}")]
    Malformed {
        /// The file, or what else the text came from.
        origin: String,
        /// Line, key and remedy.
        message: String,
    },
    /// It contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

impl SpecError {
    /// A text that contradicts itself.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

/// Reads `text`, which came from `origin`.
///
/// # Errors
///
/// Names the line, the key and, for a key that does not exist, the nearest that does.
pub fn parse<T: DeserializeOwned>(text: &str, origin: &str) -> Result<T, SpecError> {
    toml::from_str(text).map_err(|error| SpecError::Malformed {
        origin: origin.to_owned(),
        message: format!("{}{}", error.to_string().trim_end(), suggestion(error.message())),
    })
}

/// Reads the file at `path`.
///
/// # Errors
///
/// As [`parse`], and when the file cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SpecError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| SpecError::Unreadable { path: path.to_owned(), error })?;
    parse(&text, &path.display().to_string())
}

/// `; did you mean ...?` for serde's message about an unknown name, from the names it lists.
fn suggestion(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown ") {
        return String::new();
    }
    let Some(given) = quoted.next() else { return String::new() };
    nearest(given, quoted).map(|name| format!("\ndid you mean `{name}`?")).unwrap_or_default()
}

/// The name most like `given`, if any is like it at all.
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (given.len() / 3).max(2);
    names
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Spec {
        #[expect(dead_code, reason = "only the errors are looked at")]
        rate: Option<String>,
        #[expect(dead_code, reason = "only the errors are looked at")]
        delay: Option<String>,
    }

    #[test]
    fn unknown_keys_name_line_and_nearest() {
        let error = parse::<Spec>("rate = \"x\"\ndelya = \"1 s\"", "a.toml").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("a.toml: ") && text.contains("line 2"), "{text}");
        assert!(text.contains("unknown field `delya`"), "{text}");
        assert!(text.contains("did you mean `delay`?"), "{text}");
        let far = parse::<Spec>("colour = 1", "a.toml").unwrap_err().to_string();
        assert!(!far.contains("did you mean"), "{far}");
    }
}
