//! Sets of ports.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of ports: a list of numbers and of ranges, as `[80, "8000-8999"]`, or `"all"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Ordered, with a gap between any two.
    ranges: Vec<RangeInclusive<u16>>,
}

impl Default for Ports {
    fn default() -> Self {
        Self { ranges: vec![1..=u16::MAX] }
    }
}

impl Ports {
    /// Returns the set of some ranges.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Self {
        let mut given: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        given.sort_by_key(|range| *range.start());
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for range in given {
            match ranges.last_mut() {
                Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                Some(_) | None => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the set contains a port.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.ranges.iter().any(|range| range.contains(&port))
    }

    /// Returns the ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u16>> + '_ {
        self.ranges.iter().cloned()
    }

    /// Returns the ports that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = self.ranges.clone();
        for other in &others.ranges {
            let cut = |range: RangeInclusive<u16>| {
                let (start, end) = (*range.start(), *range.end());
                let before = other.start().checked_sub(1).map(|last| start..=last.min(end));
                let after = other.end().checked_add(1).map(|first| first.max(start)..=end);
                [before, after].into_iter().flatten().filter(|range| !range.is_empty())
            };
            left = left.into_iter().flat_map(cut).collect();
        }
        Self { ranges: left }
    }
}

impl fmt::Display for Ports {
    /// Formats the set for nftables: `{ 80, 8000-8999 }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{ ")?;
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match (range.start(), range.end()) {
                (start, end) if start == end => write!(f, "{comma}{start}")?,
                (start, end) => write!(f, "{comma}{start}-{end}")?,
            }
        }
        f.write_str(" }")
    }
}

fn parse(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("invalid port {text:?}: expected 80, \"8000-8999\" or \"all\"");
    if text == "all" {
        return Ok(1..=u16::MAX);
    }
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if first == 0 || first > last { Err(wrong()) } else { Ok(first..=last) }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.ranges.iter().map(|range| match (range.start(), range.end()) {
            (start, end) if start == end => start.to_string(),
            (start, end) => format!("{start}-{end}"),
        }))
    }
}

/// A port or a range of ports.
struct Item(RangeInclusive<u16>);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrRange;

        impl Visitor<'_> for OneOrRange {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, a range of ports as \"8000-8999\", or \"all\"")
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Item, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Item, E> {
                parse(text).map(Item).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(OneOrRange)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of ports, or \"all\"")
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Ports, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Ports, E> {
                parse(text).map(|range| Ports::new([range])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Ports, A::Error> {
                let mut ranges = Vec::new();
                while let Some(Item(range)) = items.next_element()? {
                    if ranges.len() >= RANGES_MAX {
                        return Err(A::Error::custom("there are too many ports in a list"));
                    }
                    ranges.push(range);
                }
                Ok(Ports::new(ranges))
            }
        }

        deserializer.deserialize_any(All)
    }
}

/// Maximum items of a list.
const RANGES_MAX: usize = 1024;
