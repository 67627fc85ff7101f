//! Checks that the links of a scenario support its transfers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use transport::Configuration;
use transport::protocol::Protocol;
use transport::quantity::Size;
use transport::text::SpecError;

use crate::scenario::{Scenario, Transfer};
use crate::theory::IP_UDP_BYTES;
use crate::topology::{Topology, Tree};

/// Ways of a scenario's transfers over the links of a world. Routes and settings are computed
/// once, whatever the number of transfers.
#[derive(Debug)]
pub struct Ways<'a> {
    scenario: &'a Scenario,
    topology: &'a Topology<'a>,
    trees: BTreeMap<usize, Tree>,
    senders: BTreeMap<(&'a str, &'a Protocol), Box<dyn Configuration>>,
}

impl<'a> Ways<'a> {
    /// Returns the ways between nodes of a resolved scenario.
    #[must_use]
    pub fn new(scenario: &'a Scenario, topology: &'a Topology<'a>) -> Self {
        Self { scenario, topology, trees: BTreeMap::new(), senders: BTreeMap::new() }
    }

    /// Checks that there is a route to each receiver of a transfer, and back if it replies, and
    /// that the links support the protocol's smallest datagrams.
    ///
    /// # Errors
    ///
    /// Names the two nodes without a route, and a possibly misspelled name, or the link that is too
    /// narrow.
    pub fn check(&mut self, transfer: &'a Transfer) -> Result<(), SpecError> {
        for waypoints in transfer.ways() {
            for pair in waypoints.windows(2) {
                let &[near, far] = pair else { continue };
                self.check_pair(transfer, near, far)?;
            }
        }
        Ok(())
    }

    fn check_pair(
        &mut self,
        transfer: &'a Transfer,
        near: &'a str,
        far: &'a str,
    ) -> Result<(), SpecError> {
        let suggest_name = |topology: &Topology<'_>| topology.suggest_name().unwrap_or_default();
        let Some(route) = self.route(near, far) else {
            let suggestion = suggest_name(self.topology);
            return Err(SpecError::invalid(format!(
                "no links lead from {near} to {far}{suggestion}"
            )));
        };
        self.check_width(transfer, near, far, &route)?;
        if self.scenario.is_reliable(transfer) && self.route(far, near).is_none() {
            return Err(SpecError::invalid(format!(
                "no links lead back from {far} to {near}, and {} needs replies{}",
                transfer.carrier(),
                suggest_name(self.topology)
            )));
        }
        Ok(())
    }

    fn route(&mut self, from: &str, to: &str) -> Option<Vec<usize>> {
        let (from, to) = (self.topology.node(from)?, self.topology.node(to)?);
        self.trees.entry(from).or_insert_with(|| self.topology.tree(from)).route(to)
    }

    /// Checks that all links on a route support the smallest datagrams of a transfer.
    fn check_width(
        &mut self,
        transfer: &'a Transfer,
        near: &'a str,
        far: &str,
        route: &[usize],
    ) -> Result<(), SpecError> {
        let Some(protocol) = &transfer.protocol else { return Ok(()) };
        let (sender, receiver) = (&self.scenario.nodes[near], &self.scenario.nodes[far]);
        let config = match self.senders.entry((near, protocol)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let entity = sender.entity.unwrap_or_default();
                new.insert(transport::configure(protocol, entity, sender.mib.as_ref())?)
            }
        };
        let name = transfer.name.as_deref().unwrap_or_default();
        let entity = receiver.entity.unwrap_or_default();
        let least = config.least_datagram(entity, name, transfer.bytes())?;
        let narrowest = self.topology.narrowest(route).zip(least);
        match narrowest.filter(|((_, mtu), least)| mtu < least) {
            Some((((from, to), mtu), least)) => Err(SpecError::invalid(format!(
                "link {from} -> {to}: datagrams are {} at most, and {protocol} needs {} for {name:?}: \
                 set `mtu` to {} or more",
                Size(mtu),
                Size(least),
                Size(least + IP_UDP_BYTES),
            ))),
            None => Ok(()),
        }
    }
}
