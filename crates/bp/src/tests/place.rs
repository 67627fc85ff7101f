//! A node with a store in memory and a user that takes every delivery.

use engine::{Effect, Engine as _, Input, MemoryStore, PathId, Rng, Time};

use super::super::agent::{Agent, Config, Indication};
use super::super::layer::Layer;
use super::super::node::{Node, Paths};
use super::world::endpoint;
use crate::codec::bp7::BundleId;

/// Path to another place.
pub(super) fn path(to: usize) -> PathId {
    PathId(100 + to as u32)
}

/// Place at the end of a path.
pub(super) fn behind(path: PathId) -> usize {
    (path.0 - 100) as usize
}

pub(super) struct Place {
    pub(super) node: Node,
    store: MemoryStore,
    /// Bundles taken by its user, and their payload lengths.
    pub(super) taken: Vec<(BundleId, usize)>,
    /// Number of the user's bundles that were stored.
    pub(super) stored: usize,
}

impl Place {
    pub(super) fn new(config: Config, layer: Box<dyn Layer>, paths: Paths, seed: u64) -> Self {
        let agent = Agent::new(config, Rng::new(seed, "agent"));
        let node = Node::new(agent, vec![layer], paths);
        Self { node, store: MemoryStore::new(), taken: Vec::new(), stored: 0 }
    }

    /// Registers the user.
    pub(super) fn register(&mut self, now: Time, at: usize) {
        let register = |agent: &mut Agent| agent.register(&endpoint(at));
        self.node.with_agent(now, register).expect("it is nobody's");
    }

    /// Executes pending effects and indications; returns whether there were any. `paths` gets the
    /// other effects.
    pub(super) fn turn(&mut self, now: Time, mut paths: impl FnMut(Effect)) -> bool {
        let mut some = false;
        while let Some(effect) = self.node.poll_effect() {
            some = true;
            if let Effect::Store(effect) = effect {
                if let Some((ticket, result)) = self.store.execute(effect) {
                    self.node.handle_input(now, Input::Done(ticket, result));
                }
            } else {
                paths(effect);
            }
        }
        let mut offered = Vec::new();
        while let Some(indication) = self.node.poll_indication() {
            some = true;
            match indication {
                Indication::Delivered { delivery, id, payload, .. } => {
                    offered.push((delivery, id, payload.len() as usize));
                }
                Indication::Stored { .. } => self.stored += 1,
                _ => {}
            }
        }
        for (delivery, id, len) in offered {
            let confirm = |agent: &mut Agent| agent.confirm(now, delivery);
            self.node.with_agent(now, confirm).expect("it was handed over");
            self.taken.push((id, len));
        }
        some
    }

    /// Payload lengths of a bundle, for each time it was taken.
    pub(super) fn lengths(&self, id: &BundleId) -> Vec<usize> {
        self.taken.iter().filter(|(of, _)| of == id).map(|(_, len)| *len).collect()
    }
}
