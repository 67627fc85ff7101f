//! Reading TOML that people write: errors that show the line and the nearest right key.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::de::{DeTable, DeValue, ValueDeserializer};

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
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Names the table in which the key stands that it begins with.
    pub fn below(self, table: &str) -> Self {
        match self {
            Self::Invalid(message) => Self::Invalid(format!("{table}.{message}")),
            named @ (Self::Unreadable { .. } | Self::Malformed { .. }) => named,
        }
    }

    /// Names the file at `path`, in which it stands, if that is not said already.
    pub fn within(self, path: &Path) -> Self {
        match self {
            Self::Invalid(message) => {
                Self::Malformed { origin: path.display().to_string(), message }
            }
            named @ (Self::Unreadable { .. } | Self::Malformed { .. }) => named,
        }
    }
}

/// Reads `text`, which came from `origin`.
///
/// # Errors
///
/// Names the line, the key and, for a key that does not exist, the nearest that does.
pub fn parse<T: DeserializeOwned>(text: &str, origin: &str) -> Result<T, SpecError> {
    toml::from_str(text).map_err(|error| malformed(&error, origin))
}

/// Reads the table that `keys` lead to in `text`, which came from `origin`, by `read`.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_at<T>(
    text: &str,
    origin: &str,
    keys: &[&str],
    read: impl FnOnce(ValueDeserializer<'_>) -> Result<T, toml::de::Error>,
) -> Result<T, SpecError> {
    let located = |mut error: toml::de::Error| {
        error.set_input(Some(text));
        malformed(&error, origin)
    };
    let document = DeTable::parse(text).map_err(located)?;
    let span = document.span();
    let mut value = toml::Spanned::new(span, DeValue::Table(document.into_inner()));
    for key in keys {
        let found = match value.into_inner() {
            DeValue::Table(mut table) => table.remove(*key),
            _ => None,
        };
        value = found.ok_or_else(|| SpecError::invalid(format!("{origin}: no table {key}")))?;
    }
    read(ValueDeserializer::from(value)).map_err(located)
}

/// Reads the file at `path`.
///
/// # Errors
///
/// As [`parse`], and when the file cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SpecError> {
    parse(&read_text(path)?, &path.display().to_string())
}

/// The text of the file at `path`.
pub fn read_text(path: &Path) -> Result<String, SpecError> {
    std::fs::read_to_string(path)
        .map_err(|error| SpecError::Unreadable { path: path.to_owned(), error })
}

fn malformed(error: &toml::de::Error, origin: &str) -> SpecError {
    SpecError::Malformed { origin: origin.to_owned(), message: message(error) }
}

/// Error with its place and remedy. A line that holds a secret is not shown.
pub fn message(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let mut is_secret = false;
    let shown = text.trim_end().lines().filter(|line| {
        let Some((margin, source)) = line.split_once('|') else { return true };
        if margin.trim().parse::<usize>().is_ok() {
            is_secret = source.contains("secret");
        }
        !is_secret
    });
    let shown = shown.collect::<Vec<_>>().join("\n");
    format!("{shown}{}", suggestion(error.message()))
}

/// Line `did you mean ...?` for serde's message about an unknown name, from the names that it lists;
/// empty for other messages.
#[must_use]
pub fn suggestion(message: &str) -> String {
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

/// End of a message about the unknown name `given`: a question with the nearest name, or nothing.
pub fn did_you_mean<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest(given, names).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
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
