//! Decoding of PDUs, one line each, and detection of their protocol.

use std::fmt;
use std::str::FromStr;

use transport::contract::Feature;
use transport::dissect::{self, Dissector};
use transport::protocol::Protocol;
use transport::text::SpecError;
use wire::{DecodeError, DecodeErrorKind};

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
            let what =
                if kind.has(Feature::Nodes) { "bundles come in pieces" } else { "FTP is text" };
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

    /// Decodes the PDUs of a datagram, or of a packet with several datagrams, as captures on hosts
    /// with segmentation offload have them.
    ///
    /// # Errors
    ///
    /// Reason why no PDU can be decoded.
    pub fn pdus(self, packet: &[u8], how: How) -> Result<Pdus<'_>, DecodeError> {
        let read = |part: &[u8]| match how {
            How::Requested => self.line(part),
            How::Guessed => self.likely(part),
        };
        let mut pdus = Pdus { lines: Vec::new(), surplus: &[] };
        let (mut start, mut first_error) = (0, None);
        for part in (self.0.split)(packet) {
            let line = read(part);
            let error = line.as_ref().err().copied();
            // A damaged PDU is one.
            let is_none =
                |error: DecodeError| !matches!(error.kind, DecodeErrorKind::Checksum { .. });
            first_error = first_error.or(error);
            if error.is_some_and(is_none) {
                pdus.surplus = &packet[start..];
                break;
            }
            pdus.lines.push((part.len(), line));
            start += part.len();
        }
        if pdus.lines.iter().any(|(_, line)| line.is_ok()) {
            return Ok(pdus);
        }
        Err(first_error.unwrap_or(DecodeError::invalid(0, "no bytes")))
    }
}

/// Strictness of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The protocol was requested: any PDU.
    Requested,
    /// The protocol is a guess: formats that match almost any bytes are rejected.
    Guessed,
}

/// PDUs that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdus<'a> {
    /// Length in bytes and line of each PDU, of which at least one is undamaged.
    pub lines: Vec<(usize, Result<String, DecodeError>)>,
    /// Bytes behind the last PDU that are none.
    pub surplus: &'a [u8],
}

impl Pdus<'_> {
    /// Whether zeros at most follow the PDUs: padding.
    fn is_all(&self) -> bool {
        self.surplus.iter().all(|byte| *byte == 0)
    }
}

/// Number of datagrams that each protocol can decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Votes([u64; dissect::ALL.len()]);

impl Votes {
    /// Counts a datagram.
    pub fn record(&mut self, datagram: &[u8]) {
        for (count, language) in self.0.iter_mut().zip(Language::all()) {
            let pdus = language.pdus(datagram, How::Guessed);
            *count += u64::from(pdus.is_ok_and(|pdus| pdus.is_all()));
        }
    }

    /// Returns the protocol that can decode most of them; of equals the first.
    #[must_use]
    pub fn most_likely(&self) -> Language {
        // `max_by_key` takes the last of equals.
        let counted: Vec<_> = Language::all().zip(self.0).collect();
        let best = counted.into_iter().rev().max_by_key(|(_, count)| *count);
        best.map_or_else(Language::default, |(language, _)| language)
    }
}

/// Returns a line for each PDU, of the requested protocol or of the first that can decode them.
///
/// # Errors
///
/// Reason why no protocol, or not the requested one, can decode the first PDU.
pub fn lines(bytes: &[u8], requested: Option<Language>) -> Result<String, String> {
    let how = if requested.is_some() { How::Requested } else { How::Guessed };
    let tried = requested.map_or_else(|| Language::all().collect(), |language| vec![language]);
    let mut reasons = Vec::new();
    for language in &tried {
        match language.pdus(bytes, how) {
            Ok(pdus) if requested.is_some() || pdus.is_all() => {
                let lines = pdus.lines.iter().map(|(len, line)| match line {
                    Ok(text) => text.clone(),
                    Err(error) => format!("{len} bytes, not {language}: {error}"),
                });
                return Ok(lines.collect::<Vec<_>>().join("\n") + &surplus(pdus.surplus));
            }
            Ok(pdus) => reasons.push(format!("not {language}:{}", surplus(pdus.surplus))),
            Err(error) => reasons.push(format!("not {language}: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// Remark on bytes behind the PDU of a line; empty if there are none.
#[must_use]
pub fn surplus(bytes: &[u8]) -> String {
    match bytes.len() {
        0 => String::new(),
        1 => " (1 byte follows)".to_owned(),
        count => format!(" ({count} bytes follow)"),
    }
}
