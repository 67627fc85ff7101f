//! Erasure code of a link, in TOML and as a short form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transport::quantity::{QuantityError, Span};

/// Least time without a frame after which a matrix closes, unless `close` is given.
const CLOSE: Duration = Duration::from_millis(10);

/// Setting `erasure` of a link: a code, or `"off"` where a return link has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// No code.
    Off,
    /// Code over frames.
    On(Code),
}

/// Systematic erasure code over frames (see [`link::Erasure`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// Data frames of a matrix.
    pub k: u32,
    /// Data and parity frames of a matrix.
    pub n: u32,
    /// Time without another data frame after which a matrix closes; default: four frames with their
    /// parity, at least 10 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close: Option<Span>,
}

impl Code {
    /// Returns the code of the link model, with the least `close` if none is given.
    pub(super) fn model(self) -> link::Erasure {
        let close = self.close.map_or(CLOSE, Span::duration);
        link::Erasure { k: self.k, n: self.n, close }
    }
}

impl Erasure {
    /// Returns the code, if any.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Off => None,
            Self::On(code) => Some(code),
        }
    }
}

impl FromStr for Erasure {
    type Err = QuantityError;

    /// Parses `512+128`, or `512+128+50 ms`: data and parity frames of a matrix, and the time
    /// without a frame after which it closes; or `off`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError::NotANumber {
            text: text.to_owned(),
            kind: "numbers of data and parity frames",
            example: "512+128",
        };
        if text.trim() == "off" {
            return Ok(Self::Off);
        }
        let mut parts = text.split('+').map(str::trim);
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
        let (data, parity) = number().zip(number()).ok_or_else(wrong)?;
        let close = parts.next().map(str::parse).transpose()?;
        let n = data.checked_add(parity).filter(|_| parts.next().is_none()).ok_or_else(wrong)?;
        Ok(Self::On(Code { k: data, n, close }))
    }
}

impl fmt::Display for Erasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(code) => {
                write!(f, "{}+{}", code.k, code.n.saturating_sub(code.k))?;
                code.close.map_or(Ok(()), |close| write!(f, "+{close}"))
            }
        }
    }
}

impl Serialize for Erasure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.collect_str(self),
            Self::On(code) => code.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Erasure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// Reads a table, or the short form.
struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Erasure;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, like { k = 512, n = 640 }, or \"off\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Erasure, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Erasure, A::Error> {
        Code::deserialize(MapAccessDeserializer::new(table))
            .map(Erasure::On)
            .map_err(A::Error::custom)
    }
}
