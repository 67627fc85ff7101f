//! The best route by the four keys of CCSDS 734.3-B-1 §3.2.8.1.4: earliest arrival, fewest
//! contacts, latest termination, smallest entry node.
//!
//! A list of visited nodes finds the first key alone: it closes a node that was reached early by
//! many contacts to routes with fewer. So the search has two passes. The first finds the arrival
//! ([`Labels`]). The second goes back from the destination and finds, for each number of contacts,
//! the last moment at which the load has to be at a node to arrive then ([`Deadlines`]). The
//! number of contacts with which the source is in time first is the second key. The same pass over
//! the contacts that end late enough decides on the third key, and its result on the fourth.

use super::graph::{Graph, Load, NodeIndex, Passage, SlotIndex};
use super::search::{Labels, Source};
use super::settings::Ties;

/// A route that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) slots: Vec<SlotIndex>,
    pub(super) passages: Vec<Passage>,
}

impl Found {
    pub(super) fn arrives(&self) -> u64 {
        self.passages.last().map_or(0, |passage| passage.arrives)
    }

    /// Earliest end of its contacts.
    pub(super) fn terminates(&self, graph: &Graph) -> u64 {
        self.slots.iter().map(|&slot| graph.slot(slot).end).min().unwrap_or(u64::MAX)
    }
}

/// Deadlines of nodes by the number of contacts that are left.
#[derive(Debug)]
struct Deadlines {
    /// Nodes in order, with the last moment at which the load has to be there.
    rounds: Vec<Vec<(NodeIndex, u64)>>,
}

impl Deadlines {
    fn get(&self, left: usize, node: NodeIndex) -> Option<u64> {
        let round = self.rounds.get(left)?;
        let place = round.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        round.get(place).map(|(_, deadline)| *deadline)
    }
}

/// Search for one destination.
pub(super) struct Selection<'a> {
    pub(super) graph: &'a Graph,
    pub(super) source: &'a Source,
    pub(super) load: &'a Load,
    pub(super) labels: &'a Labels,
    pub(super) target: NodeIndex,
    pub(super) ties: Ties,
    /// Most contacts.
    pub(super) hops: usize,
}

/// Rule for the next contact of a route, among those that keep its deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The one that ends last.
    Widest,
    /// The smallest entry node, then the order of the plan.
    Keys,
}

impl Selection<'_> {
    /// Best route that arrives at `arrives`, the earliest arrival.
    pub(super) fn best(&self, arrives: u64) -> Option<Found> {
        let mut deadlines = self.deadlines(arrives, 0, self.hops)?;
        let hops = deadlines.rounds.len();
        let mut end_min = 0;
        let terminates = loop {
            let widest = self.route(&deadlines, end_min, Rule::Widest)?;
            let reached = widest.terminates(self.graph);
            if reached >= self.source.end_min {
                // What comes before the source ends no later.
                break self.source.end_min;
            }
            match self.deadlines(arrives, reached + 1, hops) {
                Some(better) => (deadlines, end_min) = (better, reached + 1),
                None => break reached,
            }
        };
        if terminates > end_min {
            deadlines = self.deadlines(arrives, terminates, hops)?;
        }
        self.route(&deadlines, terminates, Rule::Keys)
    }

    /// Deadlines for the fewest contacts with which the load arrives at `arrives`, by contacts that
    /// end at `end_min` or later.
    fn deadlines(&self, arrives: u64, end_min: u64, hops: usize) -> Option<Deadlines> {
        let mut latest: Vec<u64> = vec![0; self.graph.nodes.len()];
        let mut rounds = vec![vec![(self.target, arrives)]];
        while rounds.len() <= hops {
            let round = rounds.last()?;
            if self.is_in_time(round, end_min) {
                return Some(Deadlines { rounds });
            }
            let mut next: Vec<NodeIndex> = Vec::new();
            for &(node, deadline) in round {
                for pair in self.graph.into(node) {
                    let from = pair.from;
                    // Moments are kept plus 1, so that 0 is none.
                    let known = latest[from as usize];
                    let bound = self.labels.bound(from);
                    if from == self.target
                        || self.source.is_closed(from)
                        || known > deadline.saturating_sub(pair.light_min)
                        || bound.saturating_add(pair.light_min) > deadline
                    {
                        continue;
                    }
                    if let Some(at) =
                        self.graph.latest(pair, deadline, bound.max(known), end_min, self.load)
                    {
                        latest[from as usize] = at.saturating_add(1);
                        next.push(from);
                    }
                }
            }
            if next.is_empty() {
                return None;
            }
            next.sort_unstable();
            next.dedup();
            let moments = next.into_iter().map(|node| (node, latest[node as usize] - 1));
            rounds.push(moments.collect());
        }
        None
    }

    /// Whether one contact from the source leads to one of these nodes in time.
    fn is_in_time(&self, round: &[(NodeIndex, u64)], end_min: u64) -> bool {
        let Source { at, banned, is_first, .. } = self.source;
        self.graph.out(self.source.node).iter().any(|pair| {
            let place = round.binary_search_by_key(&pair.to, |(node, _)| *node);
            let deadline = place.ok().and_then(|place| round.get(place)).map(|(_, by)| *by);
            deadline.is_some_and(|deadline| {
                self.source.may_enter(pair.to)
                    && self
                        .graph
                        .passage(pair, *at, end_min, banned, *is_first, self.load)
                        .is_some_and(|(_, passage)| passage.arrives <= deadline)
            })
        })
    }

    /// Route that keeps all deadlines.
    fn route(&self, deadlines: &Deadlines, end_min: u64, rule: Rule) -> Option<Found> {
        let (mut at, mut node) = (self.source.at, self.source.node);
        let mut found = Found { slots: Vec::new(), passages: Vec::new() };
        for left in (0..deadlines.rounds.len()).rev() {
            let (slot, passage) = self.next(node, at, deadlines, left, end_min, rule)?;
            found.slots.push(slot);
            found.passages.push(passage);
            (at, node) = (passage.arrives, self.graph.pair_of(slot).to);
        }
        Some(found)
    }

    /// Next contact by a rule.
    fn next(
        &self,
        node: NodeIndex,
        at: u64,
        deadlines: &Deadlines,
        left: usize,
        end_min: u64,
        rule: Rule,
    ) -> Option<(SlotIndex, Passage)> {
        let is_next = left + 1 == deadlines.rounds.len();
        let is_first = is_next && self.source.is_first;
        let banned: &[SlotIndex] = if is_next { &self.source.banned } else { &[] };
        let mut best: Option<((u64, u64), SlotIndex, Passage)> = None;
        for pair in self.graph.out(node) {
            let Some(deadline) = deadlines.get(left, pair.to) else { continue };
            if is_next && !self.source.may_enter(pair.to) {
                continue;
            }
            for index in self.graph.slots_after(pair, at.max(end_min)) {
                let slot = self.graph.slot(index);
                if slot.start.saturating_add(pair.light_min) > deadline {
                    break;
                }
                let passage = slot.passage(at, self.load, is_first);
                let in_time = passage.filter(|passage| passage.arrives <= deadline);
                if let Some(passage) = in_time.filter(|_| !banned.contains(&index)) {
                    let entry = if is_first { u64::from(pair.to) } else { 0 };
                    let order = match (rule, self.ties) {
                        (Rule::Widest, _) => (u64::MAX - slot.end, 0),
                        (Rule::Keys, Ties::First) => (entry, u64::from(slot.rank)),
                        (Rule::Keys, Ties::Last) => (entry, u64::MAX - u64::from(slot.rank)),
                    };
                    if best.is_none_or(|(known, ..)| order < known) {
                        best = Some((order, index, passage));
                    }
                }
            }
        }
        best.map(|(_, slot, passage)| (slot, passage))
    }

    /// Earliest arrival with at most as many contacts as allowed, where the earliest of all has
    /// more.
    pub(super) fn bounded(&self) -> Option<u64> {
        let mut at: Vec<u64> = vec![u64::MAX; self.graph.nodes.len()];
        let mut changed = vec![(self.source.node, self.source.at)];
        for hop in 0..self.hops {
            let before = std::mem::take(&mut changed);
            for (node, moment) in before {
                for pair in self.graph.out(node) {
                    let (is_next, banned): (_, &[SlotIndex]) =
                        if hop == 0 { (true, &self.source.banned) } else { (false, &[]) };
                    let may = if is_next {
                        self.source.may_enter(pair.to)
                    } else {
                        !self.source.is_closed(pair.to)
                    };
                    let first = is_next && self.source.is_first;
                    let passage = self.graph.passage(pair, moment, 0, banned, first, self.load);
                    if let Some((_, passage)) = passage.filter(|_| may)
                        && passage.arrives < at[pair.to as usize]
                    {
                        at[pair.to as usize] = passage.arrives;
                        changed.push((pair.to, passage.arrives));
                    }
                }
            }
        }
        let arrives = at[self.target as usize];
        (arrives < u64::MAX).then_some(arrives)
    }
}

/// Best route from a source, without labels of an earlier search.
pub(super) fn solve(
    graph: &Graph,
    source: &Source,
    load: &Load,
    target: NodeIndex,
    ties: Ties,
    hops: usize,
) -> Option<Found> {
    let mut labels = Labels::new(graph, source, load);
    let arrives = labels.settle(graph, source, load, target)?;
    select(&Selection { graph, source, load, labels: &labels, target, ties, hops }, arrives)
}

/// Best route if the earliest arrival is known.
pub(super) fn select(selection: &Selection<'_>, arrives: u64) -> Option<Found> {
    selection.best(arrives).or_else(|| selection.best(selection.bounded()?))
}
