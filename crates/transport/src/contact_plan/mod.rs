//! Contact plans in common formats: this project's TOML, ION's commands,
//! HDTN's JSON, the JSON of dtn-tvg-util and A-SABR's text.

mod asabr;
mod hdtn;
mod ion;
mod list;
pub mod orbits;
mod own;
#[cfg(test)]
mod tests;
mod times;
mod tvg;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use routing::changes::{Change, ChangeError, Draft};
use routing::contacts::{Begin, Contact, ContactPlan, Range};
use wire::{EXCERPT_MAX, excerpt};

pub use self::list::read_list;
pub use self::times::Base;
use crate::text::{self, SpecError};

/// Format of a contact plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML: `[[contact]]` and `[[range]]`, quantities with their units.
    Toml,
    /// ION's commands (ionrc): rates in bytes per second, whole seconds.
    Ion,
    /// HDTN's JSON: rates in bits per second, whole seconds.
    Hdtn,
    /// JSON of dtn-tvg-util: rates in bits per second, seconds with a fraction.
    TvgUtil,
    /// A-SABR's text: rates in bits per second, seconds with a fraction.
    Asabr,
}

/// Formats and their names.
const FORMATS: [(&str, Format); 5] = [
    ("toml", Format::Toml),
    ("ion", Format::Ion),
    ("hdtn", Format::Hdtn),
    ("tvg-util", Format::TvgUtil),
    ("a-sabr", Format::Asabr),
];

impl Format {
    /// Format of a file by the extension of its name. A `.json` file may also have the form of
    /// dtn-tvg-util, which is recognized when it is read.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Hdtn),
            "ionrc" | "cprc" | "rc" | "ion" => Some(Self::Ion),
            "tvg" | "ptvg" | "tvgutil" => Some(Self::TvgUtil),
            "cp" | "asabr" => Some(Self::Asabr),
            _ => None,
        }
    }

    /// Format that a text seems to have, by its first word.
    fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let word = line.split_whitespace().next()?;
        if word.starts_with('{') {
            return Some(if text.contains("\"edges\"") { Self::TvgUtil } else { Self::Hdtn });
        }
        if asabr::ENTRIES.contains(&word) {
            return Some(Self::Asabr);
        }
        if word.starts_with("[[") || line.contains('=') {
            return Some(Self::Toml);
        }
        (word.len() == 1).then_some(Self::Ion)
    }

    fn name(self) -> &'static str {
        let known = FORMATS.iter().find(|(_, format)| *format == self);
        known.map_or("", |(name, _)| *name)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = FORMATS.iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
            format!("there is no format {:?} (formats: {})", excerpt(text), names.join(", "))
        })
    }
}

/// Kind of contacts that formats of other programs may have, and plans here cannot.
const OVERLAPS: &str = "contacts that overlap another of their pair";

/// Lines without effect that are listed; others are counted.
const LISTED_MAX: usize = 1000;

/// A plan that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The plan.
    pub plan: ContactPlan,
    /// Whether times in it count from the epoch, rather than being dates.
    pub is_relative: bool,
    /// Parts of the file that were left out or changed.
    pub notes: Vec<String>,
}

/// A plan in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Text of the file.
    pub text: String,
    /// Counts of what was rounded or left out.
    pub notes: Vec<String>,
}

/// Reads a plan from `origin`. Contacts that ended before the zero of `base` are left out; current
/// ones start there.
///
/// # Errors
///
/// Place and remedy, if the text has another format or contradicts itself.
pub fn read(format: Format, text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let read = match format {
        Format::Toml => own::read(text, origin, base),
        Format::Ion => ion::read(text, origin, base),
        Format::Hdtn => hdtn::read(text, origin, base),
        Format::TvgUtil => tvg::read(text, origin, base),
        Format::Asabr => asabr::read(text, origin, base),
    };
    read.map_err(|error| match (error, Format::of_text(text)) {
        // HDTN's reader passes graphs on.
        (error, Some(Format::TvgUtil)) if format == Format::Hdtn => error,
        (SpecError::Malformed { origin, message }, Some(other)) if other != format => {
            let (given, name) = (format.name(), other.name());
            let remedy = format!(
                "it was read as {given} and looks like {name}; the option --format, or format \
                 beside the file's name, selects {name}"
            );
            SpecError::Malformed { origin, message: format!("{message}; {remedy}") }
        }
        (error, _) => error,
    })
}

/// Changes of a plan that were read, with the numbers of their lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Changes in order.
    pub changes: Vec<(usize, Change)>,
    /// Commands without effect on a plan, with the reason: the first ones.
    pub skipped: Vec<(usize, String)>,
    /// Number of the others.
    pub more: usize,
}

/// Reads changes of a plan from ION's commands `a`, `c` and `d`. All other commands of ION are
/// skipped.
///
/// # Errors
///
/// Line and remedy, if a command is wrong.
pub fn read_changes(text: &str, origin: &str, base: Base) -> Result<Changes, SpecError> {
    ion::changes(text, origin, base)
}

/// Writes a plan. A contact becomes no longer by rounding, a light time no shorter.
#[must_use]
pub fn write(format: Format, plan: &ContactPlan) -> Written {
    let mut losses = Losses::default();
    let text = match format {
        Format::Toml => own::write(plan),
        Format::Ion => ion::write(plan, &mut losses),
        Format::Hdtn => hdtn::write(plan, &mut losses),
        Format::TvgUtil => tvg::write(plan, &mut losses),
        Format::Asabr => asabr::write(plan, &mut losses),
    };
    Written { text, notes: losses.notes() }
}

/// A plan that is being read.
#[derive(Debug, Default)]
struct Reading {
    draft: Draft,
    is_relative: bool,
    over: usize,
    current: usize,
    notes: Vec<String>,
    /// Number of notes beyond the first ones.
    more: usize,
    /// Parts of the file that were left out, by their kind: number, and place of the first.
    skipped: BTreeMap<&'static str, (usize, String)>,
}

impl Reading {
    /// Counts a part of the file that is left out.
    fn skip(&mut self, kind: &'static str, place: std::fmt::Arguments<'_>) {
        let (count, _) = self.skipped.entry(kind).or_insert_with(|| (0, place.to_string()));
        *count += 1;
    }

    /// Adds a contact with its light time. A contact that overlaps another of its pair is left
    /// out: a plan has one rate of a pair at a time.
    fn contact_with_light(
        &mut self,
        contact: Contact,
        owlt: Duration,
        window: [i128; 2],
        place: std::fmt::Arguments<'_>,
    ) -> Result<(), ChangeError> {
        match self.contact(contact, window) {
            Err(ChangeError::ContactOverlaps(_)) => {
                self.skip(OVERLAPS, place);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => {
                let Contact { from, to, start, end, .. } = contact;
                self.range(Range { from, to, start, end, owlt }, window)
            }
        }
    }

    /// Notes something about a line.
    fn note(&mut self, note: std::fmt::Arguments<'_>) {
        if self.notes.len() < LISTED_MAX {
            self.notes.push(note.to_string());
        } else {
            self.more += 1;
        }
    }

    /// Adds a contact, in nanoseconds from the zero of the plan.
    fn contact(&mut self, contact: Contact, [start, end]: [i128; 2]) -> Result<(), ChangeError> {
        if !self.count_contact(start, end)? {
            return Ok(());
        }
        let contact = Contact { end: times::clamped(end), ..contact };
        self.draft.apply(&Change::contact(contact, Begin(start)))
    }

    fn range(&mut self, range: Range, [start, end]: [i128; 2]) -> Result<(), ChangeError> {
        if start >= end {
            return Err(ChangeError::Empty);
        }
        if end <= 0 {
            return Ok(());
        }
        let range = Range { end: times::clamped(end), ..range };
        self.draft.apply(&Change::range(range, Begin(start)))
    }

    /// Counts a contact. Returns whether any of it is left from the zero of the plan on.
    fn count_contact(&mut self, start: i128, end: i128) -> Result<bool, ChangeError> {
        if start >= end {
            return Err(ChangeError::Empty);
        }
        if end <= 0 {
            self.over += 1;
            return Ok(false);
        }
        self.current += usize::from(start < 0);
        Ok(true)
    }

    fn finish(mut self, origin: &str) -> Result<Document, SpecError> {
        if self.more > 0 {
            self.notes.push(format!("and {} such lines more", self.more));
        }
        for (kind, (count, first)) in &self.skipped {
            self.notes.push(format!("{kind}, left out: {count}; the first is {first}"));
        }
        if self.over > 0 {
            self.notes.push(format!("{} contacts are over", self.over));
        }
        if self.current > 0 {
            self.notes.push(format!("{} contacts have started already", self.current));
        }
        let plan = self.draft.plan().map_err(|error| malformed(origin, error.to_string()))?;
        Ok(Document { plan, is_relative: self.is_relative, notes: self.notes })
    }
}

/// Counts of what a format could not hold.
#[derive(Debug, Default)]
struct Losses(BTreeMap<&'static str, usize>);

impl Losses {
    fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn notes(&self) -> Vec<String> {
        self.0.iter().map(|(what, count)| format!("{what}: {count}")).collect()
    }
}

/// Window of a contact in whole seconds, and its rate in units of `unit` bit/s; `None` if nothing
/// is left of it.
fn whole(contact: &Contact, unit: u64, losses: &mut Losses) -> Option<[u64; 3]> {
    const SECOND: u64 = 1_000_000_000;
    let (start, end) = (contact.start.as_nanos(), contact.end.as_nanos());
    let (from, until) = (start.div_ceil(SECOND), end / SECOND);
    if from * SECOND != start {
        losses.add("starts of contacts rounded up to whole seconds");
    }
    if until * SECOND != end {
        losses.add("ends of contacts rounded down to whole seconds");
    }
    if !contact.rate_bps.is_multiple_of(unit) {
        losses.add("rates rounded down to whole bytes a second");
    }
    let rate = contact.rate_bps / unit;
    if from >= until || rate == 0 {
        losses.add("contacts left out: nothing remained of them");
        return None;
    }
    Some([from, until, rate])
}

/// Longest light time of a contact.
fn longest(plan: &ContactPlan, contact: &Contact, losses: &mut Losses) -> Duration {
    let lights = plan.light_times(contact);
    let longest = lights.iter().map(|(_, owlt)| *owlt).max().unwrap_or_default();
    if lights.iter().any(|(_, owlt)| *owlt != longest) {
        losses.add("light times that change within a contact: the longest kept");
    }
    longest
}

/// Light time in whole seconds, rounded up.
fn seconds_up(owlt: Duration, losses: &mut Losses) -> u64 {
    if owlt.subsec_nanos() > 0 {
        losses.add("light times rounded up to whole seconds");
    }
    owlt.as_secs() + u64::from(owlt.subsec_nanos() > 0)
}

/// Records that a format has no confidence.
fn without_confidence(contact: &Contact, losses: &mut Losses) {
    if contact.confidence < 1.0 {
        losses.add("confidences left out");
    }
}

/// Message of a JSON parser, which quotes values and ends with their place.
fn json_fault(error: &serde_json::Error) -> String {
    text::shortened(&error.to_string(), 2 * EXCERPT_MAX)
}

fn malformed(origin: &str, message: String) -> SpecError {
    SpecError::Malformed { origin: origin.to_owned(), message }
}
