//! Lists of routes, best first: Lawler's partition of the routes that are left (Yen's method
//! without routes found twice), each part with its best route by all keys.

use std::cmp::Reverse;

use super::graph::{Graph, Load, SlotIndex};
use super::search::{Source, follow};
use super::selection::{Found, solve};
use super::settings::{Settings, Ties};

/// Most routes examined for the first candidate.
pub(super) const EXAMINED_MAX: usize = 1000;

/// Routes that begin with `prefix` and do not continue with `banned`, and the best of them.
struct Part {
    prefix: usize,
    banned: Vec<SlotIndex>,
    best: Found,
}

/// Order of routes: the four keys, then the order of the plan.
type Key = (u64, usize, Reverse<u64>, u32, Vec<u64>);

/// Routes from a source to a node, the best first.
pub(super) struct Routes<'a> {
    graph: &'a Graph,
    source: &'a Source,
    load: &'a Load,
    target: u32,
    settings: &'a Settings,
    parts: Vec<(Key, Part)>,
    /// Part whose best route was the last result. It is split only if another one is wanted.
    last: Option<Part>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        source: &'a Source,
        load: &'a Load,
        target: u32,
        settings: &'a Settings,
    ) -> Self {
        let parts = Vec::new();
        let mut routes = Self { graph, source, load, target, settings, parts, last: None };
        if let Some(best) = solve(graph, source, load, target, settings.ties, settings.hops) {
            routes.add(Part { prefix: 0, banned: Vec::new(), best });
        }
        routes
    }

    fn add(&mut self, part: Part) {
        let key = self.key(&part.best);
        self.parts.push((key, part));
    }

    fn key(&self, found: &Found) -> Key {
        let entry = found.slots.first().map_or(0, |&slot| self.graph.pair_of(slot).to);
        let ranks = found.slots.iter().map(|&slot| {
            let rank = u64::from(self.graph.slot(slot).rank);
            match self.settings.ties {
                Ties::First => rank,
                Ties::Last => u64::MAX - rank,
            }
        });
        let terminates = Reverse(found.terminates(self.graph));
        (found.arrives(), found.slots.len(), terminates, entry, ranks.collect())
    }

    /// Splits what is left of a part without its best route.
    fn split(&mut self, part: &Part) {
        for length in part.prefix..part.best.slots.len() {
            let mut banned = if length == part.prefix { part.banned.clone() } else { Vec::new() };
            banned.push(part.best.slots[length]);
            let hops = self.settings.hops.saturating_sub(length);
            let Some(source) = self.after(&part.best.slots[..length], &banned) else { continue };
            let Some(rest) =
                solve(self.graph, &source, self.load, self.target, self.settings.ties, hops)
            else {
                continue;
            };
            let mut slots = part.best.slots[..length].to_vec();
            slots.extend(rest.slots);
            let Some(passages) = follow(self.graph, self.source, self.load, &slots) else {
                continue;
            };
            self.add(Part { prefix: length, banned, best: Found { slots, passages } });
        }
    }

    /// Source behind some contacts.
    fn after(&self, prefix: &[SlotIndex], banned: &[SlotIndex]) -> Option<Source> {
        let mut source = self.source.clone();
        source.banned = banned.to_vec();
        let passages = follow(self.graph, self.source, self.load, prefix)?;
        let Some((&last, passage)) = prefix.last().zip(passages.last()) else {
            return Some(source);
        };
        source.node = self.graph.pair_of(last).to;
        source.at = passage.arrives;
        source.is_first = false;
        source.banned_nodes.clear();
        for &slot in prefix {
            let slot_end = self.graph.slot(slot).end;
            source.end_min = source.end_min.min(slot_end);
            if !self.settings.revisits
                && let Some(closed) = source.closed.get_mut(self.graph.pair_of(slot).to as usize)
            {
                *closed = true;
            }
        }
        Some(source)
    }
}

impl Iterator for Routes<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if let Some(part) = self.last.take() {
            self.split(&part);
        }
        let place = (0..self.parts.len()).min_by(|&a, &b| self.parts[a].0.cmp(&self.parts[b].0))?;
        let (_, part) = self.parts.swap_remove(place);
        Some(self.last.insert(part).best.clone())
    }
}
