//! Earliest arrivals at all nodes (Dijkstra): the label of a node is a lower bound of the arrival
//! of any route to it.
//!
//! A load that is ready later never arrives earlier over a contact, so the earliest arrival at a
//! node is never a disadvantage for what follows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::{Graph, Load, NodeIndex, Passage, SlotIndex};

/// Start of a search: a node, and what its first contact may not be.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) node: NodeIndex,
    pub(super) at: u64,
    /// Whether the next contact is the first of the route.
    pub(super) is_first: bool,
    /// Contacts that are not the next one.
    pub(super) banned: Vec<SlotIndex>,
    /// Nodes that are not the next one, in order.
    pub(super) banned_nodes: Vec<NodeIndex>,
    /// Nodes that are not visited, by index.
    pub(super) closed: Vec<bool>,
    /// Earliest end of the contacts before.
    pub(super) end_min: u64,
}

impl Source {
    pub(super) fn is_closed(&self, node: NodeIndex) -> bool {
        self.closed.get(node as usize).copied().unwrap_or_default()
    }

    pub(super) fn may_enter(&self, node: NodeIndex) -> bool {
        !self.is_closed(node) && self.banned_nodes.binary_search(&node).is_err()
    }
}

/// State of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Settled,
    /// Settled, and its contacts have been followed.
    Expanded,
}

#[derive(Clone, Copy, Debug)]
struct Label {
    at: u64,
    by: SlotIndex,
    state: State,
}

const UNREACHED: Label = Label { at: u64::MAX, by: SlotIndex::MAX, state: State::Unknown };

/// Labels of all nodes, as far as the search went.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    of: Vec<Label>,
    open: BinaryHeap<Reverse<(u64, NodeIndex)>>,
}

impl Labels {
    /// Labels of the nodes after the first contact.
    pub(super) fn new(graph: &Graph, source: &Source, load: &Load) -> Self {
        let of = vec![UNREACHED; graph.nodes.len()];
        let mut labels = Self { of, open: BinaryHeap::new() };
        for pair in graph.out(source.node) {
            if source.may_enter(pair.to)
                && let Some((slot, passage)) =
                    graph.passage(pair, source.at, 0, &source.banned, source.is_first, load)
            {
                labels.improve(pair.to, passage.arrives, slot);
            }
        }
        labels
    }

    fn improve(&mut self, node: NodeIndex, at: u64, by: SlotIndex) {
        if let Some(label) = self.of.get_mut(node as usize)
            && at < label.at
        {
            (label.at, label.by) = (at, by);
            self.open.push(Reverse((at, node)));
        }
    }

    fn label(&self, node: NodeIndex) -> &Label {
        self.of.get(node as usize).unwrap_or(&UNREACHED)
    }

    /// Continues the search until `target` is settled; returns its label.
    pub(super) fn settle(
        &mut self,
        graph: &Graph,
        source: &Source,
        load: &Load,
        target: NodeIndex,
    ) -> Option<u64> {
        let known = self.label(target);
        if known.state != State::Unknown {
            return Some(known.at);
        }
        while let Some(Reverse((at, node))) = self.open.pop() {
            let label = &mut self.of[node as usize];
            if label.state == State::Expanded || at > label.at {
                continue;
            }
            if node == target {
                label.state = State::Settled;
                self.open.push(Reverse((at, node)));
                return Some(at);
            }
            label.state = State::Expanded;
            self.expand(graph, source, load, node, at);
        }
        None
    }

    fn expand(&mut self, graph: &Graph, source: &Source, load: &Load, node: NodeIndex, at: u64) {
        for pair in graph.out(node) {
            let label = self.label(pair.to);
            if label.state != State::Unknown
                || label.at <= at.saturating_add(pair.light_min)
                || source.is_closed(pair.to)
            {
                continue;
            }
            if let Some((slot, passage)) = graph.passage(pair, at, 0, &[], false, load) {
                self.improve(pair.to, passage.arrives, slot);
            }
        }
    }

    /// Lower bound of the arrival at a node.
    pub(super) fn bound(&self, node: NodeIndex) -> u64 {
        let label = self.label(node);
        match label.state {
            State::Settled | State::Expanded => label.at,
            State::Unknown => self.open.peek().map_or(u64::MAX, |Reverse((at, _))| *at),
        }
    }

    /// Contacts of the path to a settled node.
    pub(super) fn path(
        &self,
        graph: &Graph,
        source: &Source,
        target: NodeIndex,
    ) -> Option<Vec<SlotIndex>> {
        let mut path = Vec::new();
        let mut node = target;
        while path.len() <= graph.nodes.len() {
            let by = self.label(node).by;
            if by == SlotIndex::MAX {
                return None;
            }
            path.push(by);
            node = graph.pair_of(by).from;
            if node == source.node {
                path.reverse();
                return Some(path);
            }
        }
        None
    }
}

/// Passages of a load over the contacts of a route from a source; `None` if it cannot take them.
pub(super) fn follow(
    graph: &Graph,
    source: &Source,
    load: &Load,
    slots: &[SlotIndex],
) -> Option<Vec<Passage>> {
    let mut at = source.at;
    let mut passages = Vec::with_capacity(slots.len());
    for (index, &slot) in slots.iter().enumerate() {
        let passage = graph.slot(slot).passage(at, load, source.is_first && index == 0)?;
        at = passage.arrives;
        passages.push(passage);
    }
    Some(passages)
}
