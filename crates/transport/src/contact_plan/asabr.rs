//! A-SABR's text: tokens between white space, comments from `#` to the end of the line.
//!
//! Rates are in bits a second here; A-SABR leaves units to its user.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use engine::Time;
use routing::changes::ChangeError;
use routing::contacts::{Contact, ContactPlan, Range};
use wire::excerpt;

use super::{Base, Document, Losses, OVERLAPS, Reading, longest, malformed, without_confidence};
use crate::text::SpecError;

/// First words of entries.
pub(super) const ENTRIES: [&str; 4] = ["node", "enode", "vnode", "contact"];
/// Markers of plans with several kinds of contacts: one rate and one delay.
const CONSTANT: [&str; 9] = ["evl", "pevl", "pbevl", "eto", "peto", "pbeto", "qd", "pqd", "pbqd"];
/// Markers of contacts with several rates and delays.
const SEGMENTED: [&str; 2] = ["seg", "pseg"];

/// Segment of a contact: begin, end and rate or delay.
type Segment = [f64; 3];

/// Words with the numbers of their lines.
struct Tokens<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<(usize, &'a str)>>,
    /// Line of the last word.
    line: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let lines = lines.enumerate();
        let words = lines.flat_map(|(line, text)| text.split_whitespace().map(move |w| (line, w)));
        let mut parts = Vec::new();
        for (line, word) in words {
            let mut rest = word;
            while let Some(at) = rest.find(['[', ']', ',']) {
                let pair = [&rest[..at], &rest[at..=at]];
                parts.extend(pair.into_iter().filter(|part| !part.is_empty()).map(|p| (line, p)));
                rest = &rest[at + 1..];
            }
            parts.extend((!rest.is_empty()).then_some((line, rest)));
        }
        Self { words: parts.into_iter().peekable(), line: 0 }
    }

    fn next(&mut self) -> Option<&'a str> {
        let (line, word) = self.words.next()?;
        self.line = line;
        Some(word)
    }

    fn peek(&mut self) -> Option<&'a str> {
        self.words.peek().map(|(_, word)| *word)
    }

    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("{what} is missing at the end"))
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("{:?} is not {what}", excerpt(word)))
    }

    /// Skips the words of a resource manager behind an entry: the rest of its line up to the next
    /// entry, and numbers on the lines behind it. Returns the first word.
    fn managers(&mut self) -> Option<&'a str> {
        let mut first = None;
        while let Some(&(line, word)) = self.words.peek() {
            let is_one = line == self.line || word.parse::<f64>().is_ok();
            if ENTRIES.contains(&word) || !is_one {
                break;
            }
            first = first.or(self.next());
        }
        first
    }

    /// `[s e v, s e v]`.
    fn segments(&mut self) -> Result<Vec<Segment>, String> {
        let mut segments = Vec::new();
        if self.word("[")? != "[" {
            return Err("segments begin with [".to_owned());
        }
        loop {
            match self.peek() {
                Some("]") => {
                    self.next();
                    return Ok(segments);
                }
                Some(",") => {
                    self.next();
                }
                Some(_) | None => {
                    let mut value = || self.number("a number of a segment");
                    segments.push([value()?, value()?, value()?]);
                }
            }
        }
    }

    /// Rates and delays of a contact in a window.
    fn capacity(&mut self, [start, end]: [f64; 2]) -> Result<[Vec<Segment>; 2], String> {
        let marker = self.peek().unwrap_or_default();
        let is_segmented = SEGMENTED.contains(&marker) || ["rate", "delay"].contains(&marker);
        if SEGMENTED.contains(&marker) || CONSTANT.contains(&marker) {
            self.next();
        }
        if !is_segmented {
            let rate = self.number("a rate in bit/s")?;
            let delay = self.number("a delay in seconds")?;
            return Ok([vec![[start, end, rate]], vec![[start, end, delay]]]);
        }
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..2 {
            let place = match self.word("rate or delay")? {
                "rate" => 0,
                "delay" => 1,
                other => return Err(format!("{:?} is neither rate nor delay", excerpt(other))),
            };
            found[place] = self.segments()?;
        }
        Ok(found)
    }
}

pub(super) fn read(text: &str, origin: &str, base: Base) -> Result<Document, SpecError> {
    let mut reading = Reading::default();
    let mut tokens = Tokens::new(text);
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut contacts = Vec::new();
    let mut at = 0;
    while let Some(kind) = tokens.next() {
        at += 1;
        let entry = match kind {
            "node" | "enode" => node(&mut tokens, &mut names),
            "vnode" => {
                reading.skip("virtual nodes", format_args!("entry {at}"));
                virtual_node(&mut tokens)
            }
            "contact" => contact(&mut tokens).map(|contact| contacts.push(contact)),
            other => Err(format!("{:?} is neither node, enode, vnode nor contact", excerpt(other))),
        };
        entry.map_err(|error| malformed(origin, format!("entry {at}: {error}")))?;
        if let Some(word) = tokens.managers() {
            let kind = "words of resource managers and budgets";
            reading.skip(kind, format_args!("{:?} of entry {at}", excerpt(word)));
        }
    }
    let numbers = names.iter().map(|(id, name)| Some((*id, name.parse::<u64>().ok()?)));
    let numbers = numbers.collect::<Option<BTreeMap<u64, u64>>>().unwrap_or_default();
    if numbers.is_empty() && !names.is_empty() {
        let list = names.iter().map(|(id, name)| format!("{id} = {name}"));
        let list = excerpt(&list.collect::<Vec<_>>().join(", "));
        reading.notes.push(format!("nodes by their ids: {list}"));
    }
    for (entry, number) in contacts.iter().zip(0..) {
        let of = |id: u64| numbers.get(&id).copied().unwrap_or(id);
        let added = add(&mut reading, of(entry.nodes.0), of(entry.nodes.1), entry, number, base);
        added.map_err(|error| malformed(origin, format!("contact {number}: {error}")))?;
    }
    reading.finish(origin)
}

fn node(tokens: &mut Tokens<'_>, names: &mut BTreeMap<u64, String>) -> Result<(), String> {
    let id = tokens.number("the id of a node")?;
    let name = tokens.word("the name of a node")?;
    names.insert(id, name.to_owned());
    Ok(())
}

fn virtual_node(tokens: &mut Tokens<'_>) -> Result<(), String> {
    let _: u64 = tokens.number("the id of a virtual node")?;
    tokens.word("the name of a virtual node")?;
    if tokens.peek() == Some("[") {
        while tokens.word("]")? != "]" {}
    }
    Ok(())
}

/// A contact as it stands in the file.
struct Entry {
    nodes: (u64, u64),
    window: [f64; 2],
    rates: Vec<Segment>,
    delays: Vec<Segment>,
}

fn contact(tokens: &mut Tokens<'_>) -> Result<Entry, String> {
    let nodes = (tokens.number("the id of a node")?, tokens.number("the id of a node")?);
    let window = [tokens.number("a begin in seconds")?, tokens.number("an end in seconds")?];
    let [rates, delays] = tokens.capacity(window)?;
    Ok(Entry { nodes, window, rates, delays })
}

fn add(
    reading: &mut Reading,
    from: u64,
    to: u64,
    entry: &Entry,
    number: usize,
    base: Base,
) -> Result<(), String> {
    let never = Time::ZERO;
    let window = |&[start, end, _]: &Segment| {
        let [begin, until] = entry.window;
        let ends = [start.max(begin), end.min(until)].map(|seconds| base.number(seconds));
        let [Some((start, is_relative)), Some((end, _))] = ends else {
            return Err("a time is out of range".to_owned());
        };
        Ok(([start, end], is_relative))
    };
    for segment in &entry.rates {
        let (window, is_relative) = window(segment)?;
        reading.is_relative |= is_relative;
        if !(1.0..1.8e19).contains(&segment[2]) {
            return Err(format!("invalid rate {}: expected bit/s", segment[2]));
        }
        let rate_bps = segment[2] as u64;
        let contact = Contact { from, to, start: never, end: never, rate_bps, confidence: 1.0 };
        match reading.contact(contact, window) {
            Ok(()) => {}
            Err(ChangeError::ContactOverlaps(_)) => {
                reading.skip(OVERLAPS, format_args!("contact {number}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    for segment in &entry.delays {
        let owlt = Duration::try_from_secs_f64(segment[2]);
        let owlt = owlt.map_err(|_| format!("invalid delay {}: expected seconds", segment[2]))?;
        let range = Range { from, to, start: never, end: never, owlt };
        match reading.range(range, window(segment)?.0) {
            // The light time of a contact that was left out.
            Ok(()) | Err(ChangeError::RangeOverlaps(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

pub(super) fn write(plan: &ContactPlan, losses: &mut Losses) -> String {
    let nodes = plan.contacts().iter().flat_map(|contact| [contact.from, contact.to]);
    let numbers: std::collections::BTreeSet<u64> = nodes.collect();
    let ids: BTreeMap<u64, usize> = numbers.into_iter().zip(0..).collect();
    let mut text = "# Rates in bit/s, times in seconds.\n".to_owned();
    for (number, id) in &ids {
        let _ = writeln!(text, "node {id} {number}");
    }
    for contact in plan.contacts() {
        without_confidence(contact, losses);
        let light = longest(plan, contact, losses);
        let id = |number| ids.get(&number).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "contact {} {} {} {} {} {}",
            id(contact.from),
            id(contact.to),
            decimal(u128::from(contact.start.as_nanos())),
            decimal(u128::from(contact.end.as_nanos())),
            contact.rate_bps,
            decimal(light.as_nanos()),
        );
    }
    text
}

/// Seconds with as many digits as they have.
fn decimal(nanos: u128) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
