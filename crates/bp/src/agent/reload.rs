//! Settings and plans that change while an agent runs.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;

use super::super::routes::Router;
use super::config::{Config, Entry, Routing};
use super::shares::Account;
use super::{Agent, LinkRef};
use crate::codec::bp7::Eid;

impl Agent {
    /// Replaces the settings, and routes all bundles again. The node, the clock, the store and the
    /// links stay as they are.
    pub fn reload(&mut self, now: Time, config: Config) {
        let was_planned = self.core.config.routing.is_planned();
        self.forwarder.leave_routes(&mut self.core);
        // Rules and aliases decide whose share a bundle takes.
        for ((account, rule), bytes) in self.shares_held() {
            self.core.stock.shares.release(&account, rule, bytes);
        }
        let before = &mut self.core.config;
        *before = Config {
            node: before.node.clone(),
            clock: before.clock,
            boot: before.boot,
            persistent: before.persistent,
            directory: before.directory.clone(),
            links: std::mem::take(&mut before.links),
            ..config
        };
        for ((account, rule), bytes) in self.shares_held() {
            self.core.stock.shares.hold(account, rule, bytes);
        }
        self.forwarder.open_links(&mut self.core, was_planned);
        self.forwarder.plan_changed(&mut self.core, now);
    }

    /// Replaces the links to neighbours: configured ones, and `discovered` ones, which announced
    /// themselves. The layers got them before. Links that are left out go down by themselves.
    pub fn set_links(
        &mut self,
        now: Time,
        links: BTreeMap<LinkRef, Eid>,
        discovered: BTreeSet<LinkRef>,
    ) {
        self.forwarder.set_links(&mut self.core, now, links, discovered);
    }

    /// Replaces the static routes, and routes all bundles again; no effect where bundles are copied.
    pub fn set_routes(&mut self, now: Time, entries: Vec<Entry>) {
        self.forwarder.leave_routes(&mut self.core);
        match &mut self.core.config.routing {
            Routing::Static(before) | Routing::ContactGraph(_, before) => *before = entries,
            Routing::Epidemic | Routing::Spray { .. } => {}
        }
        self.forwarder.plan_changed(&mut self.core, now);
    }

    /// Changes the contact plan, if there is one, and routes all bundles again.
    pub fn change_plan<T>(
        &mut self,
        now: Time,
        change: impl FnOnce(&mut Router) -> T,
    ) -> Option<T> {
        if !self.core.config.routing.is_planned() {
            return None;
        }
        self.forwarder.leave_routes(&mut self.core);
        let Routing::ContactGraph(router, _) = &mut self.core.config.routing else { return None };
        let result = change(router);
        self.forwarder.plan_changed(&mut self.core, now);
        Some(result)
    }

    fn shares_held(&self) -> Vec<((Account, Option<usize>), u64)> {
        self.core
            .stock
            .bundles
            .values()
            .map(|held| (self.core.share_of(held), held.bytes()))
            .collect()
    }
}
