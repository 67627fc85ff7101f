//! ION's commands, one per line: `a`, `c` and `d` of contacts and ranges, and `@`, the reference
//! of relative times (ionrc(5)). Other commands and the sections of other programs are skipped.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use engine::Time;
use routing::changes::{Change, ChangeError};
use routing::contacts::{Begin, Contact, ContactPlan, Range};
use wire::{EXCERPT_MAX, excerpt};

use super::times::clamped;
use super::{Base, Changes, Document, LISTED_MAX, Losses, Reading, malformed, seconds_up, whole};
use crate::text::SpecError;

/// Program whose commands make a contact plan. A file may have sections for several programs,
/// `## begin NAME` to `## end NAME` (ionscript(1)); outside of sections, commands are this one's.
const PROGRAM: &str = "ionadmin";
/// Edits that make a contact or a range of another word: such a word is a mistake. Objects of
/// ION's other commands differ by more.
const MISTAKE: usize = 2;

pub(super) fn read(text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let mut reader = Reader::new(base);
    let mut reading = Reading::default();
    for (line, number) in text.lines().zip(1..) {
        let at_line = |message| malformed(origin, format!("line {number}: {message}"));
        let Some(command) = reader.line(line).map_err(at_line)? else { continue };
        let applied = match command {
            Command::AddContact(contact, window) => reading.contact(contact, window),
            Command::AddRange(range, window) => reading.range(range, window),
            Command::Other(change) => reading.draft.apply(&change),
            Command::Ignored(why) => {
                reading.note(format_args!("line {number}: {why}"));
                Ok(())
            }
            Command::Unrelated(_) => {
                let kind = "commands that are not about contacts or ranges";
                reading.skip(kind, format_args!("line {number}"));
                Ok(())
            }
        };
        match applied {
            Ok(()) => {}
            // ION ignores these, too.
            Err(
                error @ (ChangeError::ContactOverlaps(_)
                | ChangeError::RangeOverlaps(_)
                | ChangeError::NoContact { .. }
                | ChangeError::NoRange { .. }),
            ) => reading.note(format_args!("line {number}: {error}; ignored")),
            Err(error @ (ChangeError::Empty | ChangeError::OfOne | ChangeError::WithoutRate)) => {
                return Err(at_line(error.to_string()));
            }
        }
    }
    reading.is_relative = reader.is_relative;
    reading.finish(origin)
}

pub(super) fn changes(text: &str, origin: &str, base: Base) -> Result<Changes, SpecError> {
    let mut reader = Reader::new(base);
    let mut read = Changes::default();
    for (line, number) in text.lines().zip(1..) {
        let at_line = |message| malformed(origin, format!("line {number}: {message}"));
        let change = match reader.line(line).map_err(at_line)? {
            None => continue,
            Some(Command::AddContact(contact, window)) => window_of(window)
                .map(|(begin, end)| Change::contact(Contact { end, ..contact }, begin)),
            Some(Command::AddRange(range, window)) => {
                window_of(window).map(|(begin, end)| Change::range(Range { end, ..range }, begin))
            }
            Some(Command::Other(change)) => Ok(change),
            Some(Command::Ignored(why)) => Err(why.to_owned()),
            Some(Command::Unrelated(what)) => {
                Err(format!("{:?} does not change a plan; skipped", excerpt(&what)))
            }
        };
        match change {
            Ok(change) => read.changes.push((number, change)),
            Err(why) if read.skipped.len() < LISTED_MAX => read.skipped.push((number, why)),
            Err(_) => read.more += 1,
        }
    }
    Ok(read)
}

/// Window in the time of the plan. One that does not end after its begin stays so, for the error.
fn window_of([start, end]: [i128; 2]) -> Result<(Begin, Time), String> {
    if start < end && end <= 0 {
        return Err("it is over; ignored".to_owned());
    }
    Ok((Begin(start), clamped(end)))
}

pub(super) fn write(plan: &ContactPlan, losses: &mut Losses) -> String {
    let mut text = String::new();
    let ranges: Vec<&Range> = plan.ranges().collect();
    let pair = |range: &Range| (range.from, range.to);
    let pairs: BTreeSet<_> = ranges.iter().map(|range| pair(range)).collect();
    for (place, range) in ranges.iter().enumerate() {
        let next = ranges.get(place + 1).filter(|next| pair(next) == pair(range));
        // Rounded outwards, and to a common second between two ranges of a pair.
        let start = range.start.as_nanos() / 1_000_000_000;
        let end = range.end.as_nanos().div_ceil(1_000_000_000);
        let end = next.map_or(end, |next| end.min(next.start.as_nanos() / 1_000_000_000));
        if start * 1_000_000_000 != range.start.as_nanos()
            || end * 1_000_000_000 != range.end.as_nanos()
        {
            losses.add("windows of ranges rounded to whole seconds");
        }
        if start >= end {
            losses.add("ranges left out: nothing remained of them");
            continue;
        }
        let owlt = seconds_up(range.owlt, losses);
        // Only a range from the lower number holds for both directions.
        let serves_both = !pairs.contains(&(range.to, range.from));
        let (mut from, mut to) = pair(range);
        if from > to && serves_both {
            (from, to) = (to, from);
        }
        let _ = writeln!(text, "a range +{start} +{end} {from} {to} {owlt}");
    }
    for contact in plan.contacts() {
        let Some([start, end, bytes]) = whole(contact, 8, losses) else { continue };
        let _ = write!(text, "a contact +{start} +{end} {} {} {bytes}", contact.from, contact.to);
        if contact.confidence < 1.0 {
            let _ = write!(text, " {}", contact.confidence);
        }
        text.push('\n');
    }
    text
}

/// A command about the plan, its times in nanoseconds.
enum Command {
    AddContact(Contact, [i128; 2]),
    AddRange(Range, [i128; 2]),
    Other(Change),
    /// Valid in ION, and without effect here.
    Ignored(&'static str),
    /// First words of a command that is not about a plan.
    Unrelated(String),
}

struct Reader {
    base: Base,
    /// Reference of relative times.
    reference: i128,
    /// Whether `@` has set it.
    has_reference: bool,
    /// Whether a time counted from the epoch.
    is_relative: bool,
    /// Whether the current section is that of another program.
    is_elsewhere: bool,
}

impl Reader {
    fn new(base: Base) -> Self {
        let reference = base.after_epoch(0);
        Self { base, reference, has_reference: false, is_relative: false, is_elsewhere: false }
    }

    fn line(&mut self, line: &str) -> Result<Option<Command>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => Ok(None),
            ["##", "begin", program, ..] => {
                self.is_elsewhere = *program != PROGRAM;
                Ok(None)
            }
            ["##", "end", ..] => {
                self.is_elsewhere = false;
                Ok(None)
            }
            [first, ..] if first.starts_with('#') => Ok(None),
            [first, rest @ ..] if self.is_elsewhere => {
                Ok(Some(Command::Unrelated(named(first, rest))))
            }
            // The current time, which is that of the epoch.
            ["@", "0"] => {
                (self.reference, self.has_reference) = (self.base.after_epoch(0), false);
                Ok(None)
            }
            ["@", time] => {
                self.reference = self.time(time)?;
                self.has_reference |= !time.starts_with('+');
                Ok(None)
            }
            // An optional last word states whether the contact is announced.
            ["a", "contact", start, end, from, to, rate, rest @ ..] if rest.len() <= 2 => {
                let confidence = rest.first().copied().unwrap_or("1");
                self.contact([start, end], [from, to], rate, confidence).map(Some)
            }
            ["a", "range", start, end, from, to, owlt, rest @ ..] if rest.len() <= 1 => {
                self.range([start, end], [from, to], owlt).map(Some)
            }
            ["c", "contact", start, from, to, rate, rest @ ..] if rest.len() <= 1 => {
                let [from, to] = numbers([from, to])?;
                let start = Begin(self.time(start)?);
                let rate_bps = rate_bps(rate)?;
                let confidence = rest.first().map(|word| confidence(word)).transpose()?;
                let change = Change::ModifyContact { from, to, start, rate_bps, confidence };
                Ok(Some(Command::Other(change)))
            }
            ["d", what @ ("contact" | "range"), start, from, to] => {
                let [from, to] = numbers([from, to])?;
                let start = match *start {
                    "*" => None,
                    word => Some(Begin(self.time(word)?)),
                };
                let change = match *what {
                    "contact" => Change::DeleteContacts { from, to, start },
                    _ => Change::DeleteRanges { from, to, start },
                };
                Ok(Some(Command::Other(change)))
            }
            [command @ ("a" | "c" | "d"), what @ ("contact" | "range"), ..] => {
                Err(format!("expected \"{command} {what} {}\"", form(command, what)))
            }
            [first, rest @ ..] => match mistaken(first, rest) {
                None => Ok(Some(Command::Unrelated(named(first, rest)))),
                Some(remedy) => {
                    let line = words.join(" ");
                    Err(format!("invalid command of a contact plan {:?}{remedy}", excerpt(&line)))
                }
            },
        }
    }

    fn contact(
        &mut self,
        times: [&str; 2],
        nodes: [&str; 2],
        rate: &str,
        confidence_word: &str,
    ) -> Result<Command, String> {
        let [from, to] = numbers(nodes)?;
        // A contact of a node with itself is its registration, or loopback.
        if from == to {
            return Ok(Command::Ignored("a contact of a node with itself; ignored"));
        }
        if times[1] == "0" {
            return Ok(Command::Ignored("a hypothetical contact; ignored"));
        }
        let window = self.times(times)?;
        let (rate_bps, confidence) = (rate_bps(rate)?, confidence(confidence_word)?);
        let (start, end) = (Time::ZERO, Time::ZERO);
        let contact = Contact { from, to, start, end, rate_bps, confidence };
        Ok(Command::AddContact(contact, window))
    }

    fn range(&mut self, times: [&str; 2], nodes: [&str; 2], owlt: &str) -> Result<Command, String> {
        let (window, [from, to]) = (self.times(times)?, numbers(nodes)?);
        let light = owlt.parse().ok().and_then(|owlt| Duration::try_from_secs_f64(owlt).ok());
        let owlt =
            light.ok_or_else(|| format!("{:?} is not a light time in seconds", excerpt(owlt)))?;
        if from == to {
            return Ok(Command::Ignored("a range of a node with itself; ignored"));
        }
        let range = Range { from, to, start: Time::ZERO, end: Time::ZERO, owlt };
        Ok(Command::AddRange(range, window))
    }

    fn times(&mut self, [start, end]: [&str; 2]) -> Result<[i128; 2], String> {
        Ok([self.time(start)?, self.time(end)?])
    }

    /// `+SECONDS` after the reference, or a date in UTC; nanoseconds from the zero of the plan.
    fn time(&mut self, word: &str) -> Result<i128, String> {
        let wrong = || {
            format!("invalid time {:?}: expected +SECONDS or YYYY/MM/DD-HH:MM:SS", excerpt(word))
        };
        if let Some(relative) = word.strip_prefix('+') {
            let seconds = relative.parse().ok();
            let since = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let since =
                since.ok_or_else(|| format!("{:?} is not a time in seconds", excerpt(relative)))?;
            self.is_relative |= !self.has_reference;
            return Ok(self.reference + since.as_nanos() as i128);
        }
        let (date, clock) = word.split_once('-').ok_or_else(wrong)?;
        let stamp = format!("{}T{clock}Z", date.replace('/', "-"));
        let moment = humantime::parse_rfc3339(&stamp).map_err(|_| wrong())?;
        Ok(self.base.offset_of(moment))
    }
}

/// Words of a command that name it.
fn named(first: &str, rest: &[&str]) -> String {
    match (first, rest) {
        ("a" | "c" | "d" | "m", [what, ..]) => format!("{first} {what}"),
        _ => first.to_owned(),
    }
}

/// Reason why a command is not one of another object or program: a suggestion, or nothing to
/// suggest. All commands of ION have one character.
fn mistaken(first: &str, rest: &[&str]) -> Option<String> {
    let is_command = matches!(first.as_bytes(), [b'1' | b'a'..=b'z' | b'?' | b'^' | b'!' | b'@']);
    if !is_command {
        return Some(String::new());
    }
    let what = rest.first().filter(|_| matches!(first, "a" | "c" | "d"))?.to_lowercase();
    // The time of a comparison grows with the length.
    let what = Some(what).filter(|what| what.len() <= EXCERPT_MAX)?;
    let near = |object: &&str| strsim::damerau_levenshtein(object, &what) <= MISTAKE;
    let near = ["contact", "range"].into_iter().find(near)?;
    Some(format!("; did you mean \"{first} {near}\"?"))
}

/// Words of a command after its first two.
fn form(command: &str, what: &str) -> &'static str {
    match (command, what) {
        ("a", "contact") => "START END FROM TO RATE [CONFIDENCE]",
        ("a", _) => "START END FROM TO SECONDS",
        ("c", _) => "START FROM TO RATE [CONFIDENCE]",
        (_, _) => "START|* FROM TO",
    }
}

fn rate_bps(word: &str) -> Result<u64, String> {
    let bytes: u64 = number(word, "a rate in bytes a second")?;
    bytes.checked_mul(8).ok_or_else(|| format!("{bytes} is too high a rate"))
}

fn confidence(word: &str) -> Result<f64, String> {
    let confidence: f64 = number(word, "a confidence from 0 to 1")?;
    if !(0.0..=1.0).contains(&confidence) {
        return Err(format!("a confidence is from 0 to 1, not {confidence}"));
    }
    Ok(confidence)
}

fn numbers([from, to]: [&str; 2]) -> Result<[u64; 2], String> {
    Ok([number(from, "the number of a node")?, number(to, "the number of a node")?])
}

fn number<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{:?} is not {what}", excerpt(word)))
}
