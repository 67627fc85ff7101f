//! Quantities as a user writes them: a number and its unit, `"10 Mbit/s"`, `"1.28 s"`, `"10 MB"`.
//!
//! A number without a unit is an error wherever a unit exists, because nobody remembers whether a
//! bare `10` was bits or bytes, seconds or milliseconds. Zero is zero in every unit and needs
//! none; a probability has no unit.
//!
//! Every type parses with [`FromStr`] (so it can be a command line value), reads and writes as a
//! string with serde, and prints exactly: a printed value parses to the same value.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use wire::excerpt;

/// Rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A number of bytes; kB are 1,000 and KiB 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A period of time: its start and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Start of the period.
    pub at: Span,
    /// The duration.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Periodic outages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// Time from the start of one outage to the next.
    pub period: Span,
    /// Duration of each outage.
    pub down: Span,
    /// Start of the first outage; default: at once.
    #[serde(default)]
    pub first: Span,
}

/// A probability or ratio from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(pub f64);

/// Reason why a text is not the expected quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// There is no number at the text's start.
    #[error("{text:?} is not {kind}; write one like {example:?}")]
    NotANumber {
        /// Text that was given.
        text: String,
        /// Expected quantity, with its article.
        kind: &'static str,
        /// A right one.
        example: &'static str,
    },
    /// A number without its unit.
    #[error(
        "{text} has no unit; write it with one, like \"{text} {}\" or \"{text} {}\" (units: {units})",
        like[0], like[1]
    )]
    NoUnit {
        /// Text that was given.
        text: String,
        /// Two units that were probably meant.
        like: [&'static str; 2],
        /// All units, for the message.
        units: String,
    },
    /// Duration of zero.
    #[error("{text:?} lasts no time; an outage is longer than 0 s")]
    NoTime {
        /// Text that was given.
        text: String,
    },
    /// Outage that lasts for its whole period.
    #[error("{text:?}: the outage of {down} must be shorter than its period of {period}")]
    NeverUp {
        /// Text that was given.
        text: String,
        /// Time from the start of one outage to the next.
        period: Span,
        /// Duration of each outage.
        down: Span,
    },
    /// Unit that this kind of quantity does not have.
    #[error("{unit:?} is not a unit of {kind}{nearest} (units: {units})")]
    UnknownUnit {
        /// Text that was given.
        unit: String,
        /// Expected quantity, with its article.
        kind: &'static str,
        /// `; did you mean "s"?`, or nothing.
        nearest: String,
        /// All units, for the message.
        units: String,
    },
    /// Value out of range for the quantity.
    #[error("{text:?} is out of range for {kind}: {range}")]
    OutOfRange {
        /// Text that was given.
        text: String,
        /// Expected quantity, with its article.
        kind: &'static str,
        /// Allowed range.
        range: &'static str,
    },
}

/// One kind of quantity counted in whole steps of its smallest unit.
pub(crate) struct Kind {
    name: &'static str,
    example: &'static str,
    /// Two units that were probably meant in a number without unit.
    like: [&'static str; 2],
    range: &'static str,
    /// Units with their size in smallest units.
    units: &'static [(&'static str, u128)],
    /// Other spellings, accepted but not shown.
    aliases: &'static [(&'static str, u128)],
}

pub(crate) const RATE: Kind = Kind {
    name: "a rate",
    example: "10 Mbit/s",
    like: ["bit/s", "Mbit/s"],
    range: "0, or from 1 bit/s to 18 Ebit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
    ],
    aliases: &[
        ("b/s", 1),
        ("kb/s", 1_000),
        ("Mb/s", 1_000_000),
        ("Gb/s", 1_000_000_000),
        ("bps", 1),
        ("kbps", 1_000),
        ("Mbps", 1_000_000),
        ("Gbps", 1_000_000_000),
    ],
};

pub(crate) const SPAN: Kind = Kind {
    name: "a time",
    example: "250 ms",
    like: ["ms", "s"],
    range: "0, or from 1 ns to 584 years",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
    aliases: &[("µs", 1_000), ("sec", 1_000_000_000)],
};

pub(crate) const SIZE: Kind = Kind {
    name: "a size",
    example: "10 MB",
    like: ["B", "MB"],
    range: "0, or from 1 B to 18 EB",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ],
    aliases: &[("KB", 1_000), ("bytes", 1), ("byte", 1)],
};

impl Kind {
    fn all_units(&self) -> String {
        self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Example of its notation, for messages.
    pub(crate) fn expected(&self) -> String {
        format!("{} as a string, like {:?}", self.name, self.example)
    }

    /// Value of `text` in smallest units, rounded to the nearest.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let text = text.trim();
        let (number, unit) = split_number(text);
        let not_a_number = || QuantityError::NotANumber {
            text: excerpt(text),
            kind: self.name,
            example: self.example,
        };
        let out_of_range = || QuantityError::OutOfRange {
            text: excerpt(text),
            kind: self.name,
            range: self.range,
        };
        if let Some(positive) = number.strip_prefix('-')
            && Decimal::parse(positive).is_some()
        {
            return Err(out_of_range());
        }
        let decimal = Decimal::parse(number).ok_or_else(not_a_number)?;
        if unit.is_empty() {
            return if decimal.digits == 0 { Ok(0) } else { Err(self.no_unit(number)) };
        }
        if self.name == SIZE.name
            && let Some(bytes) = bytes_of_bits(decimal, unit)
        {
            return Err(QuantityError::UnknownUnit {
                unit: excerpt(unit),
                kind: self.name,
                nearest: format!("; sizes are in bytes: write {:?}", Size(bytes).to_string()),
                units: self.all_units(),
            });
        }
        let scale = self.scale(unit)?;
        let value = decimal.times(scale).ok_or_else(out_of_range)?;
        if value == 0 && decimal.digits != 0 {
            return Err(out_of_range());
        }
        Ok(value)
    }

    fn scale(&self, unit: &str) -> Result<u128, QuantityError> {
        let known = self.units.iter().chain(self.aliases);
        if let Some((_, scale)) = known.clone().find(|(name, _)| *name == unit) {
            return Ok(*scale);
        }
        let unit = &excerpt(unit);
        let near = known
            .map(|(name, scale)| {
                let is_other = !name.eq_ignore_ascii_case(unit);
                // "m" is a mistake for "ms" or "min", not for "d".
                let is_start = name.to_ascii_lowercase().starts_with(&unit.to_ascii_lowercase());
                let distance = strsim::damerau_levenshtein(name, unit);
                // "PB" is a mistake for "TB", not for "B".
                let is_alike = name.chars().next() == unit.chars().next();
                let rest = (!is_alike, name.len() != unit.len(), Reverse(*scale));
                (is_other, !is_start, distance, rest, *name)
            })
            .min()
            .filter(|(is_other, is_no_start, distance, ..)| {
                !is_other || !is_no_start || (*distance <= 2 && unit.len() > 1)
            });
        let nearest = if unit.ends_with("B/s") {
            // The units with similar spellings count bits, and a bit is an eighth of a byte.
            "; rates count bits: write 8 times the number, in bit/s".to_owned()
        } else {
            near.map(|(.., name)| format!("; did you mean {name:?}?")).unwrap_or_default()
        };
        Err(QuantityError::UnknownUnit {
            unit: unit.to_owned(),
            kind: self.name,
            nearest,
            units: self.all_units(),
        })
    }

    /// Error message for a number without unit.
    pub(crate) fn no_unit(&self, number: &str) -> QuantityError {
        let text = excerpt(number);
        if number.starts_with('-') {
            return QuantityError::OutOfRange { text, kind: self.name, range: self.range };
        }
        QuantityError::NoUnit { text, like: self.like, units: self.all_units() }
    }
}

/// Bytes of a number of bits, if that is the unit.
fn bytes_of_bits(number: Decimal, unit: &str) -> Option<u64> {
    let unit = unit.strip_suffix('s').unwrap_or(unit);
    let of_rate = |(rate, scale): &(&str, u128)| {
        rate.strip_suffix("/s").filter(|bits| *bits == unit).map(|_| *scale)
    };
    Some(number.times(RATE.units.iter().find_map(of_rate)?)?.div_ceil(8))
}

/// Splits a text into its number and its unit. An `e` belongs to the number only when digits
/// follow it.
fn split_number(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let exponent_sign = matches!(bytes[end], b'+' | b'-')
            && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        let exponent = matches!(bytes[end], b'e' | b'E')
            && matches!(bytes.get(end + 1), Some(b'0'..=b'9' | b'+' | b'-'));
        if !(matches!(bytes[end], b'0'..=b'9' | b'.' | b'_') || exponent || exponent_sign) {
            break;
        }
        end += 1;
    }
    (&text[..end], text[end..].trim_start())
}

/// A decimal number, digits × 10^exponent, without rounding.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = 0_u128;
        let mut count = 0;
        for c in whole.chars().chain(fraction.chars()).filter(|c| *c != '_') {
            digits = digits.checked_mul(10)?.checked_add(u128::from(c.to_digit(10)?))?;
            count += 1;
        }
        let shift = i32::try_from(fraction.chars().filter(|c| *c != '_').count()).ok()?;
        (count > 0).then_some(Self { digits, exponent: exponent.checked_sub(shift)? })
    }

    /// The product with `scale`, to the nearest whole number; `None` beyond 64 bits.
    fn times(self, scale: u128) -> Option<u64> {
        let product = self.digits.checked_mul(scale)?;
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs());
        let value = match power {
            _ if product == 0 => 0,
            Some(power) if self.exponent >= 0 => product.checked_mul(power)?,
            Some(power) => product.checked_add(power / 2)? / power,
            None if self.exponent >= 0 => return None,
            None => 0,
        };
        u64::try_from(value).ok()
    }
}

/// Prints `value` in `unit` exactly; `scale` is a power of ten.
fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, scale: u64, unit: &str) -> fmt::Result {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return f.pad(&format!("{whole} {unit}"));
    }
    let width = scale.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    f.pad(&format!("{whole}.{} {unit}", fraction.trim_end_matches('0')))
}

impl Rate {
    /// Bits a second.
    #[must_use]
    pub fn bps(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        RATE.parse(text).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => (1, "bit/s"),
            1_000..1_000_000 => (1_000, "kbit/s"),
            1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
            1_000_000_000.. => (1_000_000_000, "Gbit/s"),
        };
        write_decimal(f, self.0, scale, unit)
    }
}

impl Span {
    /// Standard library form of the span.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        SPAN.parse(text).map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        const SECOND: u64 = 1_000_000_000;
        for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("min", 60)] {
            if nanos > 0 && nanos % (seconds * SECOND) == 0 {
                return f.pad(&format!("{} {unit}", nanos / (seconds * SECOND)));
            }
        }
        let (scale, unit) = match nanos {
            0 => (1, "s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..SECOND => (1_000_000, "ms"),
            SECOND.. => (SECOND, "s"),
        };
        write_decimal(f, nanos, scale, unit)
    }
}

impl Size {
    /// Bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        SIZE.parse(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        if !bytes.is_multiple_of(1_000) {
            let binary =
                [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
            if let Some((unit, scale)) = binary.into_iter().find(|(_, s)| bytes.is_multiple_of(*s))
            {
                return f.pad(&format!("{} {unit}", bytes / scale));
            }
        }
        let (scale, unit) = match bytes {
            0..10_000 if !bytes.is_multiple_of(1_000) => (1, "B"),
            0 => (1, "B"),
            1..1_000_000 => (1_000, "kB"),
            1_000_000..1_000_000_000 => (1_000_000, "MB"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "GB"),
            1_000_000_000_000.. => (1_000_000_000_000, "TB"),
        };
        write_decimal(f, bytes, scale, unit)
    }
}

impl Probability {
    /// The value, from 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }

    fn checked(value: f64, text: &str) -> Result<Self, QuantityError> {
        if (0.0..=1.0).contains(&value) {
            return Ok(Self(value));
        }
        Err(QuantityError::OutOfRange {
            text: excerpt(text),
            kind: "a probability",
            range: "from 0 to 1",
        })
    }
}

impl FromStr for Probability {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let (number, percent) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (text, false),
        };
        let value: f64 = number.parse().map_err(|_| QuantityError::NotANumber {
            text: excerpt(text),
            kind: "a probability",
            example: "1e-5",
        })?;
        Self::checked(if percent { value / 100.0 } else { value }, text)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both forms print the shortest text that parses to the same number.
        if self.0 == 0.0 || self.0 >= 0.001 {
            f.pad(&format!("{}", self.0))
        } else {
            f.pad(&format!("{:e}", self.0))
        }
    }
}

/// Reads a quantity, or an accepted substitute, from a string; a number is refused with its
/// missing unit.
pub struct Text<T> {
    /// Expected quantity, for the message about any other type.
    expected: String,
    /// Value of a number without unit, or the error message.
    number: fn(f64, &str) -> Result<T, QuantityError>,
}

impl Text<Span> {
    /// Time, or a word of `T`.
    pub fn time_or_word<T>(word: &str) -> Text<T> {
        let number = |_, text: &str| Err(SPAN.no_unit(text));
        Text { expected: format!("{}, or {word:?}", SPAN.expected()), number }
    }
}

impl Text<Size> {
    /// A length of a queue.
    pub fn queue<T>() -> Text<T> {
        let number = |_, text: &str| match SIZE.no_unit(text) {
            QuantityError::NoUnit { text, units, .. } => Err(QuantityError::NoUnit {
                text,
                like: ["packets", "kB"],
                units: format!("packets, {units}"),
            }),
            other => Err(other),
        };
        Text { expected: "a queue length as a string, like \"1000 packets\"".to_owned(), number }
    }
}

impl<T> de::Visitor<'_> for Text<T>
where
    T: FromStr<Err = QuantityError>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        (self.number)(value as f64, &value.to_string()).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        (self.number)(value as f64, &value.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        (self.number)(value, &value.to_string()).map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($type:ty, $expected:expr, $number:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text { expected: $expected, number: $number })
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text! {
    Rate, RATE.expected(), |_, text| Err(RATE.no_unit(text));
    Span, SPAN.expected(), |_, text| Err(SPAN.no_unit(text));
    Size, SIZE.expected(), |_, text| Err(SIZE.no_unit(text));
    Probability, "a probability, like \"1e-5\"".to_owned(), Probability::checked;
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.at, self.lasts)
    }
}

impl FromStr for Window {
    type Err = QuantityError;

    /// `10 s+30 s`: a start and a duration.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (at, lasts) = text.split_once('+').ok_or_else(|| QuantityError::NotANumber {
            text: excerpt(text),
            kind: "an outage",
            example: "10 s+30 s",
        })?;
        let window = Self { at: at.parse()?, lasts: lasts.parse()? };
        if window.lasts.duration().is_zero() {
            return Err(QuantityError::NoTime { text: excerpt(text) });
        }
        Ok(window)
    }
}

/// Splits a text at plus signs into the parts of a form; all but the last are required.
///
/// # Errors
///
/// The text has fewer or more parts, or an empty one.
pub fn parts<'a, const N: usize>(
    text: &'a str,
    kind: &'static str,
    example: &'static str,
) -> Result<[Option<&'a str>; N], QuantityError> {
    let wrong = || QuantityError::NotANumber { text: text.to_owned(), kind, example };
    let mut parts = [None; N];
    for (index, part) in text.split('+').map(str::trim).enumerate() {
        *parts.get_mut(index).filter(|_| !part.is_empty()).ok_or_else(wrong)? = Some(part);
    }
    if parts[..N - 1].iter().all(Option::is_some) { Ok(parts) } else { Err(wrong()) }
}

impl fmt::Display for Periodic {
    /// The form that is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { period, down, first } = self;
        write!(f, "{period}+{down}")?;
        if first.duration().is_zero() { Ok(()) } else { write!(f, "+{first}") }
    }
}

impl FromStr for Periodic {
    type Err = QuantityError;

    /// Parses `60 s+5 s`, or `60 s+5 s+10 s`: period, duration of each outage, start of the first,
    /// by default at once.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (kind, example) = ("a period and an outage", "60 s+5 s");
        let [period, down, first] = parts(text, kind, example)?;
        let first = first.map_or(Ok(Span::default()), str::parse)?;
        let this = Self {
            period: period.unwrap_or_default().parse()?,
            down: down.unwrap_or_default().parse()?,
            first,
        };
        if this.down.duration().is_zero() {
            return Err(QuantityError::NoTime { text: text.to_owned() });
        }
        if this.down >= this.period {
            let Self { period, down, .. } = this;
            return Err(QuantityError::NeverUp { text: text.to_owned(), period, down });
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests;
