//! TOML written by people: errors show the line and the nearest right key.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use wire::{EXCERPT_MAX, excerpt};

/// Maximum length of a message in characters. Lists of names are the longest that are not input.
const MESSAGE_MAX: usize = 1600;

/// Reason why a user's file cannot be used.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The text is not the expected TOML.
    #[error("{origin}: {message}")]
    Malformed {
        /// File or other origin of the text.
        origin: String,
        /// Line, key and remedy.
        message: String,
    },
    /// The text contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

impl SpecError {
    /// Contradictory text.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(shortened(&message.into(), MESSAGE_MAX))
    }

    /// Prepends the name of the table to a message that starts with a key.
    pub fn below(self, table: &str) -> Self {
        match self {
            Self::Invalid(message) => Self::Invalid(format!("{table}.{message}")),
            named @ (Self::Unreadable { .. } | Self::Malformed { .. }) => named,
        }
    }

    /// Names the file at `path` in the message, unless named already.
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
/// Same as [`parse`], and also if the file cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SpecError> {
    parse(&read_text(path)?, &path.display().to_string())
}

/// The text of the file at `path`.
pub fn read_text(path: &Path) -> Result<String, SpecError> {
    std::fs::read_to_string(path).map_err(|error| {
        let error = match error.kind() {
            io::ErrorKind::InvalidData => io::Error::other("it is not a text file"),
            _ => error,
        };
        SpecError::Unreadable { path: path.to_owned(), error }
    })
}

fn malformed(error: &toml::de::Error, origin: &str) -> SpecError {
    SpecError::Malformed { origin: origin.to_owned(), message: message(error) }
}

/// Error with its line, its key and a remedy. Lines that hold a secret are left out.
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
    let Some(place) = shown.strip_suffix(error.message()) else {
        return shortened(&shown, MESSAGE_MAX) + &suggestion(error.message());
    };
    let mut message: String = place.split_inclusive('\n').map(line_excerpt).collect();
    let translated = unknown(error.message());
    match translated.or_else(|| in_toml(error.message(), source_line(&text))) {
        Some(translated) => message += &translated,
        None => {
            message += &shortened(error.message(), MESSAGE_MAX);
            message += &suggestion(error.message());
        }
    }
    message
}

/// Excerpt of a line with its end.
fn line_excerpt(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => excerpt(line) + "\n",
        None => excerpt(line),
    }
}

/// Text of up to `max` characters, without the middle of a longer one: an error message begins
/// with the place and ends with the remedy.
#[must_use]
pub fn shortened(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let end = max / 4;
    let begin: String = text.chars().take(max - end).collect();
    let end: String = text.chars().skip(count - end).collect();
    format!("{begin}… ({} characters left out) …{end}", count - max)
}

/// Width of lines of names.
const WIDTH: usize = 100;

/// Message of serde about an unknown name, with the nearest right name first and the others on
/// lines below; `None` for other messages.
fn unknown(message: &str) -> Option<String> {
    let (head, expected) = message.split_once(", expected ")?;
    if !message.starts_with("unknown ") {
        return None;
    }
    let head = shortened(head, EXCERPT_MAX);
    let near = suggestion(message).replace('\n', "; ");
    let names = expected.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(", ");
    let mut lines = vec!["expected one of".to_owned()];
    if expected.matches('`').count() == 2 {
        lines = vec!["expected".to_owned()];
    }
    for name in names.split(' ') {
        if lines.last().is_some_and(|line| line.len() + 1 + name.len() > WIDTH) {
            lines.push(" ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(name);
        }
    }
    Some(format!("{head}{near}\n{}", lines.join("\n")))
}

/// First line of the file that an error of the TOML parser shows.
fn source_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter_map(|line| line.split_once('|'));
    let (_, line) = lines.find(|(margin, _)| margin.trim().parse::<usize>().is_ok())?;
    Some(line.trim())
}

/// Message of serde in TOML's words, with a remedy; `None` for messages that need no translation.
/// `line` is the line of the file.
fn in_toml(message: &str, line: Option<&str>) -> Option<String> {
    if message == "invalid socket address syntax" {
        return Some(format!(
            "{}expected an IP address and a port, e.g. \"192.0.2.1:4556\" or \"[2001:db8::1]:4556\"; \
             host names are not resolved here",
            key(line).map(|key| format!("`{}`: ", excerpt(key))).unwrap_or_default()
        ));
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return Some(format!("the key {name} is missing"));
    }
    let rest = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.split_once(", expected ")?;
    let key = key(line).map(excerpt);
    let remedy = remedy(found, expected, key.as_deref(), line);
    let key = key.map(|key| format!("`{key}`: ")).unwrap_or_default();
    let (kind, found) = (kind(expected), shortened(&value(found), EXCERPT_MAX));
    Some(format!("{key}expected {kind}, found {found}{remedy}"))
}

/// Key of a line of TOML: the key of a value, or of the table that it opens.
fn key(line: Option<&str>) -> Option<&str> {
    let line = line?;
    let opened = line.strip_prefix('[').map(|line| line.trim_start_matches('['));
    let name = match opened {
        Some(opened) => opened.split(']').next()?,
        // Within an inline table the key may differ.
        None => line.split_once('=').filter(|(_, value)| !value.contains('{'))?.0,
    };
    Some(name.trim()).filter(|name| !name.is_empty())
}

/// Remedy for a value of the wrong type, for the usual mistakes.
fn remedy(found: &str, expected: &str, key: Option<&str>, line: Option<&str>) -> String {
    let is_table_line = line.is_some_and(|line| line.starts_with('[') && !line.starts_with("[["));
    match (kind(expected), key) {
        ("an array", Some(key)) if is_table_line => format!("; write `[[{key}]]`"),
        ("an array", Some(_)) if found != "map" => "; put it in brackets: `[...]`".to_owned(),
        ("a string", _) if found.starts_with("integer") || found.starts_with("floating") => {
            "; put it in quotes".to_owned()
        }
        (expected, _)
            if found.starts_with("string")
                && (expected.starts_with("a whole number")
                    || matches!(expected, "a number" | "true or false")) =>
        {
            "; write it without quotes".to_owned()
        }
        _ => String::new(),
    }
}

/// Type of TOML for a type of Rust or serde.
fn kind(expected: &str) -> &str {
    match expected {
        "a map" => "a table",
        "a sequence" => "an array",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Value as TOML calls it, for a value as serde calls it.
fn value(found: &str) -> String {
    let literal = || found.split_once(' ').map_or(found, |(_, value)| value).replace('`', "");
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "an array".to_owned(),
        _ if found.starts_with("string ") => format!("the string {}", literal()),
        _ if found.starts_with("integer ") => format!("the number {}", literal()),
        _ if found.starts_with("floating point ") => {
            format!("the number {}", found.trim_start_matches("floating point ").replace('`', ""))
        }
        _ if found.starts_with("boolean ") => literal(),
        other => other.to_owned(),
    }
}

/// Line `did you mean ...?` for serde's message about an unknown name, from the names it lists;
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

/// Name most similar to `given`, if any is similar at all.
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (given.len() / 3).max(2);
    let len = given.chars().count();
    names
        // A name of another length is not compared: the time grows with the product.
        .filter(|name| name.chars().count().abs_diff(len) <= limit)
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Suggestion at the end of a message about the unknown name `given`: the nearest name. Empty if
/// no name is similar.
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
        let end = "unknown field `delya`; did you mean `delay`?\nexpected one of rate, delay";
        assert!(text.ends_with(end), "{text}");
        let far = parse::<Spec>("colour = 1", "a.toml").unwrap_err().to_string();
        assert!(!far.contains("did you mean"), "{far}");
        let names = ["`a_long_name`"; 30].join(", ");
        let many = unknown(&format!("unknown field `x`, expected one of {names}")).unwrap();
        assert!(many.lines().all(|line| line.len() <= WIDTH) && many.lines().count() > 3, "{many}");
    }

    #[test]
    fn long_lines_are_quoted_in_part() {
        let long = "ä".repeat(1_000_000);
        for (text, expected) in [
            (format!("{long:?} = 1"), "expected one of rate, delay"),
            (format!("colour_{} = 1", "x".repeat(1_000_000)), "expected one of rate, delay"),
            (format!("rate = [\"{long}\"]"), "expected a string, found a"),
            (format!("rate = 1 # {long}"), "found the number 1; put it in quotes"),
            (format!("rate = {}", "x".repeat(1_000_000)), ""),
        ] {
            let error = parse::<Spec>(&text, "a.toml").unwrap_err().to_string();
            let begin: String = error.chars().take(500).collect();
            assert!(error.chars().count() < 1000 && error.contains(expected), "{begin}");
        }
        let message = SpecError::invalid(format!("{long} is wrong; write 1")).to_string();
        assert!(message.starts_with("ää") && message.ends_with("ä is wrong; write 1"));
        assert!(message.contains("… (998418 characters left out) …"), "{message}");
    }

    #[test]
    fn wrong_types_are_reported_with_toml_type_names() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only the errors are looked at")]
        struct World {
            #[serde(default)]
            seed: u64,
            #[serde(default)]
            name: String,
            #[serde(default)]
            transfers: Vec<Spec>,
            limits: Spec,
            address: Option<std::net::SocketAddr>,
        }
        let refused = |text: &str| parse::<World>(text, "a.toml").unwrap_err().to_string();
        testing::snapshot!("refusals/types.txt", refused);
    }
}
