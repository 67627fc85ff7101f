//! What PDUs say, a line each, and which protocol they are of.

use std::fmt;
use std::str::FromStr;

use transport::dissect::{self, Dissector};
use transport::protocol::Protocol;
use transport::text::SpecError;
use wire::DecodeError;

/// A protocol whose datagrams can be read alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(&'static Dissector);

impl Default for Language {
    /// The one that is tried first.
    fn default() -> Self {
        Self(dissect::ALL[0])
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// By the name of a protocol that speaks it.
impl FromStr for Language {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let kind = text.parse::<Protocol>()?.kind;
        let readable = kind.dissector().filter(|dissector| dissector.line.is_some());
        readable.map(Self).ok_or_else(|| {
            let what = if kind.has_nodes() { "bundles come in pieces" } else { "FTP is text" };
            SpecError::invalid(format!("{what} over TCP, which is not put together here"))
        })
    }
}

impl Language {
    /// All of them, in the order in which they are tried.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        dissect::ALL.iter().copied().filter(|dissector| dissector.line.is_some()).map(Self)
    }

    /// One line about a datagram.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn line(self, datagram: &[u8]) -> Result<String, DecodeError> {
        self.0.line(datagram)
    }

    /// Line about a PDU of a guessed protocol: what almost any bytes could be counts for
    /// nothing.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or that it could be anything.
    pub fn likely(self, datagram: &[u8]) -> Result<String, DecodeError> {
        self.0.likely(datagram)
    }
}

/// How many datagrams each protocol can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Votes([u64; dissect::ALL.len()]);

impl Votes {
    /// Counts a datagram.
    pub fn hear(&mut self, datagram: &[u8]) {
        for (count, language) in self.0.iter_mut().zip(Language::all()) {
            *count += u64::from(language.likely(datagram).is_ok());
        }
    }

    /// The protocol that can read most of them; of equals the first.
    #[must_use]
    pub fn most(&self) -> Language {
        // `max_by_key` takes the last of equals.
        let counted: Vec<_> = Language::all().zip(self.0).collect();
        let best = counted.into_iter().rev().max_by_key(|(_, count)| *count);
        best.map_or_else(Language::default, |(language, _)| language)
    }
}

/// The line about one PDU, of the protocol that is named, or of the first that can read it.
///
/// # Errors
///
/// Why none of them can.
pub fn one(bytes: &[u8], requested: Option<Language>) -> Result<String, String> {
    let line = |language: &Language| match requested {
        Some(_) => language.line(bytes),
        None => language.likely(bytes),
    };
    let tried = requested.map_or_else(|| Language::all().collect(), |language| vec![language]);
    let mut reasons = Vec::new();
    for language in &tried {
        match line(language) {
            Ok(text) => return Ok(text),
            Err(error) => reasons.push(format!("not {language}: {error}")),
        }
    }
    Err(reasons.join("; "))
}
