//! Whole numbers within limits.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::{Error, ErrorKind};
use transport::quantity::Size;

/// Parser of whole numbers in a range; its error names the option and the range.
#[derive(Clone, Debug)]
pub(crate) struct Within<T> {
    range: RangeInclusive<T>,
    /// Whether the numbers are bytes, and may have a unit.
    is_size: bool,
}

/// Parser of whole numbers in a range.
pub(crate) fn within<T>(range: RangeInclusive<T>) -> Within<T> {
    Within { range, is_size: false }
}

/// Parser of numbers of bytes in a range, with or without a unit.
#[cfg(feature = "sockets")]
pub(crate) fn bytes_within<T>(range: RangeInclusive<T>) -> Within<T> {
    Within { range, is_size: true }
}

impl<T: FromStr + PartialOrd + TryFrom<u64>> Within<T> {
    fn read(&self, text: &str) -> Option<T> {
        let size = || text.parse::<Size>().ok().filter(|_| self.is_size);
        let found = text.parse().ok().or_else(|| T::try_from(size()?.bytes()).ok());
        found.filter(|number| self.range.contains(number))
    }
}

impl<T> TypedValueParser for Within<T>
where
    T: Clone + Display + FromStr + PartialOrd + TryFrom<u64> + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        _: &clap::Command,
        option: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, Error> {
        let text = value.to_string_lossy();
        self.read(&text).ok_or_else(|| {
            let name = match option.and_then(clap::Arg::get_long) {
                Some(long) => format!("--{long}"),
                None => option.map_or_else(|| "the value".to_owned(), ToString::to_string),
            };
            let is_number = text.parse::<i128>().is_ok() || self.is_size;
            let kind = if is_number { "" } else { "a whole number " };
            let unit = if self.is_size { " bytes" } else { "" };
            let (first, last) = (self.range.start(), self.range.end());
            let message = format!(
                "{name} must be {kind}between {first} and {last}{unit}\n\n\
                 For more information, try '--help'.\n"
            );
            Error::raw(ErrorKind::ValueValidation, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_option_and_both_limits() {
        let option = || clap::Arg::new("runs").long("runs").value_parser(within(1_u16..=9));
        let command = || clap::Command::new("x").arg(option());
        let parsed = |text: &str| command().try_get_matches_from(["x", "--runs", text]);
        assert_eq!(parsed("9").unwrap().get_one("runs"), Some(&9_u16));
        let refused = |text: &str| parsed(text).unwrap_err().to_string();
        for text in ["0", "10", "70000"] {
            assert!(refused(text).contains("error: --runs must be between 1 and 9\n"), "{text}");
        }
        assert!(refused("x").contains("--runs must be a whole number between 1 and 9"));
    }
}
