//! Neighbours an agent needs to reach.

use std::collections::BTreeSet;

use crate::codec::bp7::Eid;

use super::{Agent, LinkRef};

impl Agent {
    /// Neighbours with queued bundles or bundles in transit, to which an on-demand driver opens
    /// links.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Eid> {
        self.forwarder.wanted()
    }

    /// Neighbours that can be reached.
    #[must_use]
    pub fn nodes_up(&self) -> BTreeSet<Eid> {
        self.forwarder.up().filter_map(|(_, node)| node.cloned()).collect()
    }

    /// Links that can be used.
    pub fn links_up(&self) -> impl Iterator<Item = LinkRef> {
        self.forwarder.up().map(|(at, _)| at)
    }

    /// Whether a neighbour can be reached.
    #[must_use]
    pub fn reaches(&self, node: &Eid) -> bool {
        self.forwarder.reaches(node)
    }
}
