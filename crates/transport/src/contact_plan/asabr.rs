//! A-SABR's text: tokens between white space, comments from `#` to the end of the line.
//!
//! Rates are in bits a second here; A-SABR leaves units to its user.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use engine::Time;
use proto::routing::contacts::{Contact, ContactPlan, Range};
use wire::excerpt;

use super::{Base, Document, Losses, Reading, longest, malformed, without_confidence};
use crate::text::SpecError;

/// Markers of plans with several kinds of contacts: one rate and one delay.
const CONSTANT: [&str; 9] = ["evl", "pevl", "pbevl", "eto", "peto", "pbeto", "qd", "pqd", "pbqd"];
/// Markers of contacts with several rates and delays.
const SEGMENTED: [&str; 2] = ["seg", "pseg"];

/// Segment of a contact: begin, end and rate or delay.
type Segment = [f64; 3];

struct Tokens<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let mut words = Vec::new();
        for word in lines.flat_map(str::split_whitespace) {
            let mut rest = word;
            while let Some(at) = rest.find(['[', ']', ',']) {
                words.extend([&rest[..at], &rest[at..=at]].iter().filter(|part| !part.is_empty()));
                rest = &rest[at + 1..];
            }
            words.extend((!rest.is_empty()).then_some(rest));
        }
        Self { words: words.into_iter().peekable() }
    }

    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| format!("{what} is missing at the end"))
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("{:?} is not {what}", excerpt(word)))
    }

    fn is_number(&mut self) -> bool {
        self.words.peek().is_some_and(|word| word.parse::<f64>().is_ok())
    }

    /// `[s e v, s e v]`.
    fn segments(&mut self) -> Result<Vec<Segment>, String> {
        let mut segments = Vec::new();
        if self.word("[")? != "[" {
            return Err("segments begin with [".to_owned());
        }
        loop {
            match self.words.peek().copied() {
                Some("]") => {
                    self.words.next();
                    return Ok(segments);
                }
                Some(",") => {
                    self.words.next();
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
        let marker = self.words.peek().copied().unwrap_or_default();
        let is_segmented = SEGMENTED.contains(&marker) || ["rate", "delay"].contains(&marker);
        if SEGMENTED.contains(&marker) || CONSTANT.contains(&marker) {
            self.words.next();
        }
        if !is_segmented {
            let rate = self.number("a rate in bit/s")?;
            let delay = self.number("a delay in seconds")?;
            // Budgets of three priorities may follow.
            while self.is_number() {
                self.words.next();
            }
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
    while let Some(kind) = tokens.words.next() {
        at += 1;
        let entry = match kind {
            "node" | "enode" => node(&mut tokens, &mut names),
            "vnode" => {
                reading.notes.push("virtual nodes left out".to_owned());
                virtual_node(&mut tokens)
            }
            "contact" => contact(&mut tokens).map(|contact| contacts.push(contact)),
            other => Err(format!("{:?} is neither node, enode, vnode nor contact", excerpt(other))),
        };
        entry.map_err(|error| malformed(origin, format!("entry {at}: {error}")))?;
    }
    reading.notes.dedup();
    let numbers = names.iter().map(|(id, name)| Some((*id, name.parse::<u64>().ok()?)));
    let numbers = numbers.collect::<Option<BTreeMap<u64, u64>>>().unwrap_or_default();
    if numbers.is_empty() && !names.is_empty() {
        let list = names.iter().map(|(id, name)| format!("{id} = {name}"));
        let list = excerpt(&list.collect::<Vec<_>>().join(", "));
        reading.notes.push(format!("nodes by their ids: {list}"));
    }
    for (entry, number) in contacts.iter().zip(0..) {
        let of = |id: u64| numbers.get(&id).copied().unwrap_or(id);
        let nodes = (of(entry.nodes.0), of(entry.nodes.1));
        let added = add(&mut reading, nodes, entry, base);
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
    if tokens.words.next_if_eq(&"[").is_some() {
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
    (from, to): (u64, u64),
    entry: &Entry,
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
            return Err(format!("{} is no rate in bit/s", segment[2]));
        }
        let rate_bps = segment[2] as u64;
        let contact = Contact { from, to, start: never, end: never, rate_bps, confidence: 1.0 };
        reading.contact(contact, window).map_err(|error| error.to_string())?;
    }
    for segment in &entry.delays {
        let owlt = Duration::try_from_secs_f64(segment[2]);
        let owlt = owlt.map_err(|_| format!("{} is no delay in seconds", segment[2]))?;
        let range = Range { from, to, start: never, end: never, owlt };
        reading.range(range, window(segment)?.0).map_err(|error| error.to_string())?;
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
