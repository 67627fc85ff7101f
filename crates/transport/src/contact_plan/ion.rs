//! ION's commands, one per line: `a contact`, `a range`, and `@`, the reference of relative times
//! (ionrc(5)). Other commands are skipped.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use engine::Time;
use proto::bp::contacts::{Contact, ContactPlan, Range};

use super::{malformed, seconds, whole_seconds};
use crate::text::SpecError;

/// First words of commands unrelated to contacts.
const OTHERS: [&str; 11] = ["1", "e", "v", "s", "m", "l", "i", "r", "w", "q", "h"];

pub(super) fn read(text: &str, origin: &str, epoch: SystemTime) -> Result<ContactPlan, SpecError> {
    let mut reader =
        Reader { epoch, reference: Time::ZERO, contacts: Vec::new(), ranges: Vec::new() };
    for (line, number) in text.lines().zip(1..) {
        let at_line = |message| malformed(origin, format!("line {number}: {message}"));
        reader.line(line).map_err(at_line)?;
    }
    super::plan(reader.contacts, &reader.ranges, origin)
}

pub(super) fn write(plan: &ContactPlan) -> String {
    let mut text = String::new();
    for range in plan.ranges() {
        let (start, end) = (seconds(range.start), seconds(range.end));
        let owlt = whole_seconds(range.owlt);
        let _ = writeln!(text, "a range +{start} +{end} {} {} {owlt}", range.from, range.to);
    }
    for contact in plan.contacts() {
        let (start, end) = (seconds(contact.start), seconds(contact.end));
        let bytes = contact.rate_bps / 8;
        let _ = write!(text, "a contact +{start} +{end} {} {} {bytes}", contact.from, contact.to);
        if contact.confidence < 1.0 {
            let _ = write!(text, " {}", contact.confidence);
        }
        text.push('\n');
    }
    text
}

struct Reader {
    epoch: SystemTime,
    reference: Time,
    contacts: Vec<Contact>,
    ranges: Vec<Range>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => Ok(()),
            [first, ..] if first.starts_with('#') => Ok(()),
            ["@", time] => {
                self.reference = self.time(time)?;
                Ok(())
            }
            ["a", "contact", start, end, from, to, rate] => {
                self.contact([start, end], [from, to], rate, "1")
            }
            // The optional last word states whether the contact is announced.
            ["a", "contact", start, end, from, to, rate, confidence]
            | ["a", "contact", start, end, from, to, rate, confidence, _] => {
                self.contact([start, end], [from, to], rate, confidence)
            }
            ["a", "range", start, end, from, to, owlt]
            | ["a", "range", start, end, from, to, owlt, _] => {
                self.range([start, end], [from, to], owlt)
            }
            ["a", what @ ("contact" | "range"), ..] => {
                let last = if *what == "contact" { "RATE [CONFIDENCE]" } else { "SECONDS" };
                Err(format!("expected \"a {what} START END FROM TO {last}\""))
            }
            [first, ..] if OTHERS.contains(first) => Ok(()),
            _ => Err(format!("{:?} is no command of a contact plan", words.join(" "))),
        }
    }

    fn contact(
        &mut self,
        times: [&str; 2],
        nodes: [&str; 2],
        rate: &str,
        confidence: &str,
    ) -> Result<(), String> {
        let ([start, end], [from, to]) = (self.times(times)?, numbers(nodes)?);
        let bytes: u64 = number(rate, "a rate in bytes a second")?;
        let confidence: f64 = number(confidence, "a confidence from 0 to 1")?;
        if !(0.0..=1.0).contains(&confidence) {
            return Err(format!("a confidence is from 0 to 1, not {confidence}"));
        }
        let rate_bps = bytes.checked_mul(8).ok_or_else(|| format!("{bytes} is too high a rate"))?;
        // For loopback ION requires a contact of a node with itself; loopback needs no plan here.
        if from != to {
            self.contacts.push(Contact { from, to, start, end, rate_bps, confidence });
        }
        Ok(())
    }

    fn range(&mut self, times: [&str; 2], nodes: [&str; 2], owlt: &str) -> Result<(), String> {
        let ([start, end], [from, to]) = (self.times(times)?, numbers(nodes)?);
        let owlt = Duration::from_secs(number(owlt, "a light time in seconds")?);
        if from != to {
            self.ranges.push(Range { from, to, start, end, owlt });
        }
        Ok(())
    }

    fn times(&self, [start, end]: [&str; 2]) -> Result<[Time; 2], String> {
        Ok([self.time(start)?, self.time(end)?])
    }

    /// `+SECONDS` after the reference, or a date in UTC.
    fn time(&self, word: &str) -> Result<Time, String> {
        if let Some(relative) = word.strip_prefix('+') {
            let seconds: u64 = number(relative, "a time in seconds")?;
            return Ok(self.reference + Duration::from_secs(seconds));
        }
        let wrong = || format!("{word:?} is no time: +SECONDS or YYYY/MM/DD-HH:MM:SS");
        let (date, clock) = word.split_once('-').ok_or_else(wrong)?;
        let stamp = format!("{}T{clock}Z", date.replace('/', "-"));
        let moment = humantime::parse_rfc3339(&stamp).map_err(|_| wrong())?;
        let since = moment.duration_since(self.epoch).map_err(|_| {
            let epoch = humantime::format_rfc3339_seconds(self.epoch);
            format!("{word} is before {epoch}, from which this plan counts")
        })?;
        Ok(Time::ZERO + since)
    }
}

fn numbers([from, to]: [&str; 2]) -> Result<[u64; 2], String> {
    Ok([number(from, "the number of a node")?, number(to, "the number of a node")?])
}

fn number<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not {what}"))
}
