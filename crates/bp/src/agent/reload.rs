//! Settings and plans that change while an agent runs.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;

use super::super::layer::Command;
use super::super::routes::Router;
use super::config::{Config, Entry, Routing};
use super::next_hop::Planned;
use super::shares::Account;
use super::{Agent, LinkRef};
use crate::codec::bp7::Eid;

impl Agent {
    /// Replaces the settings, and routes all bundles again. The node, the clock, the store and the
    /// links stay as they are.
    pub fn reload(&mut self, now: Time, config: Config) {
        let was_planned = self.is_planned();
        self.leave_routes();
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
        self.open_links(was_planned);
        self.plan_changed(now);
    }

    /// Replaces the links to neighbours: configured ones, and `discovered` ones, which announced
    /// themselves. The layers got them before. Links that are left out go down by themselves.
    pub fn set_links(
        &mut self,
        now: Time,
        links: BTreeMap<LinkRef, Eid>,
        discovered: BTreeSet<LinkRef>,
    ) {
        let former = std::mem::replace(&mut self.core.config.links, links);
        for at in former.keys().filter(|&at| !self.core.config.links.contains_key(at)) {
            self.forwarder.set_open(*at, false);
        }
        self.forwarder.set_discovered(discovered);
        if self.is_planned() {
            return self.contacts(now);
        }
        for at in self.core.config.links.keys().filter(|&at| !former.contains_key(at)) {
            self.forwarder.set_open(*at, true);
            self.core.commands.push_back((at.layer, Command::Open { link: at.link }));
        }
        self.dispatch_again(now);
    }

    /// Replaces the static routes, and routes all bundles again; no effect where bundles are copied.
    pub fn set_routes(&mut self, now: Time, entries: Vec<Entry>) {
        self.leave_routes();
        match &mut self.core.config.routing {
            Routing::Static(before) | Routing::ContactGraph(_, before) => *before = entries,
            Routing::Epidemic | Routing::Spray { .. } => {}
        }
        self.plan_changed(now);
    }

    /// Changes the contact plan, if there is one, and routes all bundles again.
    pub fn change_plan<T>(
        &mut self,
        now: Time,
        change: impl FnOnce(&mut Router) -> T,
    ) -> Option<T> {
        if !self.is_planned() {
            return None;
        }
        self.leave_routes();
        let Routing::ContactGraph(router, _) = &mut self.core.config.routing else { return None };
        let result = change(router);
        self.plan_changed(now);
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

    pub(super) const fn is_planned(&self) -> bool {
        matches!(self.core.config.routing, Routing::ContactGraph(..))
    }

    /// Takes all bundles out of the queues, so that they wait for a route. Transmissions go on.
    fn leave_routes(&mut self) {
        let numbers: Vec<u64> = self.core.stock.all();
        for number in numbers {
            let Some(held) = self.core.stock.get_mut(number) else { continue };
            for (_, sending) in held.sending.iter_mut() {
                sending.route = None;
            }
            if held.queued.is_empty() {
                continue;
            }
            let nodes: Vec<_> = held.queued.keys().cloned().collect();
            // Before it leaves its last queue, so that it is never without a purpose.
            held.waits = true;
            self.forwarder.waiting.insert(number);
            for node in nodes {
                self.unqueue(number, &node);
            }
        }
    }

    /// Opens all links if no plan does that any more; notes that they are open if a plan begins.
    fn open_links(&mut self, was_planned: bool) {
        if was_planned && self.is_planned() {
            return;
        }
        let links: Vec<LinkRef> = self.core.config.links.keys().copied().collect();
        for at in links {
            if self.forwarder.set_open(at, true) && was_planned {
                self.core.commands.push_back((at.layer, Command::Open { link: at.link }));
            }
        }
    }

    fn plan_changed(&mut self, now: Time) {
        self.planned = Planned::new(&self.core.config);
        let failed = self.forwarder.failed.clone();
        self.look_at_plan(now);
        for node in failed {
            self.set_failed(now, &node, true);
        }
        self.forwarder.wait_again();
        self.dispatch_again(now);
        if self.is_copying() {
            self.spread(now);
        }
    }
}
