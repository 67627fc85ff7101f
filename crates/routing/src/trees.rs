//! Results of searches kept for later bundles.
//!
//! Bookings, failures and time only ever make routes later. A label of an earlier search is
//! therefore a lower bound, and exact if the path to it still arrives then. The same holds for the
//! best route: if it still arrives as early as it did, no other does better, because the other
//! keys do not depend on time. Whatever makes a route earlier empties the trees: a cancelled
//! booking, a contact that works again, a changed plan.

use std::collections::BTreeMap;

use super::graph::{Graph, Load, NodeIndex};
use super::search::{Labels, Source, follow};
use super::selection::{Found, Selection, select};
use super::settings::Ties;

/// Trees that are kept.
const TREES_MAX: usize = 16;

/// A search.
#[derive(Clone, Debug)]
struct Tree {
    source: Source,
    load: Load,
    labels: Labels,
    /// Best routes by destination.
    best: BTreeMap<NodeIndex, Known>,
}

/// Best route of a search that the tree bounds.
#[derive(Clone, Debug)]
struct Known {
    load: Load,
    banned_nodes: Vec<NodeIndex>,
    found: Found,
}

impl Tree {
    /// Whether its labels bound those of a search.
    fn bounds(&self, source: &Source, load: &Load) -> bool {
        let is_closed = |node: usize| source.closed.get(node).copied().unwrap_or_default();
        self.load.volume <= load.volume
            && self.load.level >= load.level
            && (self.load.volume == 0) == (load.volume == 0)
            && self.source.at <= source.at
            && self.source.banned_nodes.iter().all(|node| source.banned_nodes.contains(node))
            && self.source.closed.iter().enumerate().all(|(node, was)| !was || is_closed(node))
    }
}

/// Trees of the last searches, the latest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees {
    trees: Vec<Tree>,
}

impl Trees {
    pub(super) fn clear(&mut self) {
        self.trees.clear();
    }

    /// Best route to a node.
    pub(super) fn best(
        &mut self,
        graph: &Graph,
        source: &Source,
        load: &Load,
        target: NodeIndex,
        ties: Ties,
        hops: usize,
    ) -> Option<Found> {
        if let Some(place) = self.trees.iter().position(|tree| tree.bounds(source, load)) {
            self.trees[..=place].rotate_right(1);
            let tree = &mut self.trees[0];
            if let Some(found) = tree.known(graph, source, load, target) {
                return Some(found);
            }
            if let Some(found) = tree.next(graph, source, load, target, ties, hops) {
                return found;
            }
        }
        let labels = Labels::new(graph, source, load);
        let best = BTreeMap::new();
        let mut tree = Tree { source: source.clone(), load: *load, labels, best };
        let found = tree.next(graph, source, load, target, ties, hops).flatten();
        // A newer search bounds no more than the older one did.
        self.trees
            .retain(|other| !(tree.bounds(&other.source, &other.load) || other.is_like(&tree)));
        self.trees.truncate(TREES_MAX - 1);
        self.trees.insert(0, tree);
        found
    }
}

impl Tree {
    /// Whether it is of the same load and exclusions.
    fn is_like(&self, other: &Self) -> bool {
        self.load == other.load
            && self.source.banned_nodes == other.source.banned_nodes
            && self.source.closed == other.source.closed
    }

    /// A best route that is known and still holds.
    fn known(
        &self,
        graph: &Graph,
        source: &Source,
        load: &Load,
        target: NodeIndex,
    ) -> Option<Found> {
        let Known { load: least, banned_nodes, found: known } = self.best.get(&target)?;
        if least.volume > load.volume
            || least.level < load.level
            || !banned_nodes.iter().all(|node| source.banned_nodes.contains(node))
        {
            return None;
        }
        let entry = known.slots.first().map(|&slot| graph.pair_of(slot).to)?;
        let is_allowed = source.may_enter(entry)
            && known.slots.iter().all(|&slot| !source.is_closed(graph.pair_of(slot).to));
        let passages = is_allowed.then(|| follow(graph, source, load, &known.slots)).flatten()?;
        let found = Found { slots: known.slots.clone(), passages };
        (found.arrives() == known.arrives()).then_some(found)
    }

    /// Best route by its labels, if they are exact for the destination.
    fn next(
        &mut self,
        graph: &Graph,
        source: &Source,
        load: &Load,
        target: NodeIndex,
        ties: Ties,
        hops: usize,
    ) -> Option<Option<Found>> {
        let Some(arrives) = self.labels.settle(graph, &self.source, &self.load, target) else {
            // Nothing leads there, and nothing will.
            return Some(None);
        };
        let path = self.labels.path(graph, &self.source, target)?;
        let entry = path.first().map(|&slot| graph.pair_of(slot).to)?;
        let is_allowed = source.may_enter(entry)
            && path.iter().all(|&slot| !source.is_closed(graph.pair_of(slot).to));
        if !is_allowed || follow(graph, source, load, &path)?.last()?.arrives != arrives {
            return None;
        }
        let labels = &self.labels;
        let selection = Selection { graph, source, load, labels, target, ties, hops };
        let found = select(&selection, arrives);
        if let Some(found) = &found
            && found.arrives() == arrives
            && source.closed == self.source.closed
        {
            let (load, banned_nodes) = (*load, source.banned_nodes.clone());
            self.best.insert(target, Known { load, banned_nodes, found: found.clone() });
        }
        Some(found)
    }
}
