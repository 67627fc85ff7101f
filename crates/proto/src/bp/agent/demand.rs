//! Whom an agent wants to reach.

use std::collections::BTreeSet;

use wire::bp7::Eid;

use super::{Agent, LinkRef};

impl Agent {
    /// The neighbours for which bundles wait, or to which they are on their way: a driver that opens links on demand opens
    /// these.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Eid> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let sending = self.links.values().filter(|link| !link.sending.is_empty());
        let sending = sending.filter_map(|link| link.node.clone());
        waiting.map(|(node, _)| node.clone()).chain(sending).collect()
    }

    /// The neighbours that can be reached.
    #[must_use]
    pub fn nodes_up(&self) -> BTreeSet<Eid> {
        let up = self.links.values().filter(|link| link.up.is_some());
        up.filter_map(|link| link.node.clone()).collect()
    }

    /// The links that can be used.
    pub fn links_up(&self) -> impl Iterator<Item = LinkRef> {
        self.links.iter().filter(|(_, link)| link.up.is_some()).map(|(at, _)| *at)
    }

    /// Whether a neighbour can be reached.
    #[must_use]
    pub fn reaches(&self, node: &Eid) -> bool {
        self.links.values().any(|link| link.up.is_some() && link.node.as_ref() == Some(node))
    }
}
