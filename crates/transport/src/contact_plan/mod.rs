//! Contact plans in common formats: this project's TOML, ION's commands and HDTN's JSON. Times of
//! a plan count from an epoch given by the reader; units depend on the format.

mod hdtn;
mod ion;
pub mod orbits;
mod own;
#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};

use crate::text::SpecError;

/// Format of a contact plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML: `[[contact]]` and `[[range]]`, quantities with their units.
    Toml,
    /// ION's `a contact` and `a range` (ionrc): rates in bytes per second, light times in seconds.
    Ion,
    /// HDTN's JSON: rates in bits per second, light times in seconds.
    Hdtn,
}

impl Format {
    /// Format of a file by the ending of its name: `.toml`, `.json`, `.ionrc`, `.cprc`, `.rc`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Hdtn),
            "ionrc" | "cprc" | "rc" => Some(Self::Ion),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "toml" => Ok(Self::Toml),
            "ion" => Ok(Self::Ion),
            "hdtn" => Ok(Self::Hdtn),
            other => Err(format!("there is no format {other:?} (formats: toml, ion, hdtn)")),
        }
    }
}

/// Reads a plan from `origin`. Times without a date count from `epoch`.
///
/// # Errors
/// Place and remedy, if the text has another format or contradicts itself.
pub fn read(
    format: Format,
    text: &str,
    origin: &str,
    epoch: SystemTime,
) -> Result<ContactPlan, SpecError> {
    match format {
        Format::Toml => own::read(text, origin),
        Format::Ion => ion::read(text, origin, epoch),
        Format::Hdtn => hdtn::read(text, origin),
    }
}

/// Writes a plan. Times and light times are rounded to the precision of the format: seconds for
/// ION and HDTN, whole bytes for ION's rates.
#[must_use]
pub fn write(format: Format, plan: &ContactPlan) -> String {
    match format {
        Format::Toml => own::write(plan),
        Format::Ion => ion::write(plan),
        Format::Hdtn => hdtn::write(plan),
    }
}

/// Plan of these contacts and ranges; `places` holds the place of each for error messages.
fn plan(contacts: Vec<Contact>, ranges: &[Range], origin: &str) -> Result<ContactPlan, SpecError> {
    ContactPlan::new(contacts, ranges).map_err(|error| malformed(origin, error.to_string()))
}

fn malformed(origin: &str, message: String) -> SpecError {
    SpecError::Malformed { origin: origin.to_owned(), message }
}

/// Whole seconds of a moment, rounded down.
fn seconds(time: Time) -> u64 {
    time.as_nanos() / 1_000_000_000
}

/// Light times are rounded up to whole seconds.
fn whole_seconds(owlt: Duration) -> u64 {
    owlt.as_secs() + u64::from(owlt.subsec_nanos() > 0)
}
