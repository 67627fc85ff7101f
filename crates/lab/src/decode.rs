//! Decoding of PDUs, one line each, and detection of their protocol.

use std::fmt;
use std::str::FromStr;

use transport::dissect::{self, Dissector};
use transport::protocol::Protocol;
use transport::text::SpecError;
use wire::DecodeError;

/// A protocol whose datagrams can be decoded independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(&'static Dissector);

impl Default for Language {
    /// Returns the protocol that is tried first.
    fn default() -> Self {
        Self(dissect::ALL[0])
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses the name of a protocol.
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
    /// Returns all protocols, in the order in which they are tried.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        dissect::ALL.iter().copied().filter(|dissector| dissector.line.is_some()).map(Self)
    }

    /// Returns one line about a datagram.
    ///
    /// # Errors
    ///
    /// Reason why the datagram cannot be decoded.
    pub fn line(self, datagram: &[u8]) -> Result<String, DecodeError> {
        self.0.line(datagram)
    }

    /// Returns one line about a PDU of a guessed protocol; formats that match almost any bytes are
    /// rejected.
    ///
    /// # Errors
    ///
    /// Reason why it cannot be decoded, or that it is ambiguous.
    pub fn likely(self, datagram: &[u8]) -> Result<String, DecodeError> {
        self.0.likely(datagram)
    }
}

/// Number of datagrams that each protocol can decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Votes([u64; dissect::ALL.len()]);

impl Votes {
    /// Counts a datagram.
    pub fn hear(&mut self, datagram: &[u8]) {
        for (count, language) in self.0.iter_mut().zip(Language::all()) {
            *count += u64::from(language.likely(datagram).is_ok());
        }
    }

    /// Returns the protocol that can decode most of them; of equals the first.
    #[must_use]
    pub fn most(&self) -> Language {
        // `max_by_key` takes the last of equals.
        let counted: Vec<_> = Language::all().zip(self.0).collect();
        let best = counted.into_iter().rev().max_by_key(|(_, count)| *count);
        best.map_or_else(Language::default, |(language, _)| language)
    }
}

/// Returns the line about one PDU, of the requested protocol or of the first that can decode it.
///
/// # Errors
///
/// Reason why no protocol, or not the requested one, can decode the PDU.
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
