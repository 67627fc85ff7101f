//! Transfers via waypoints, which store and forward files or bundles.
//!
//! A waypoint forwards no IP packets, so nodes behind it are reached only through its entity or
//! bundle node.

use std::collections::{BTreeMap, BTreeSet};

use transport::contract::{Adapter, Feature};
use transport::overlay::Overlay;
use transport::protocol::Protocol;
use transport::settings::Settings;
use transport::text::SpecError;

use crate::scenario::{Node, Scenario, Transfer};

impl Transfer {
    /// Returns the nodes on the way to each receiver whose entities exchange PDUs, both ends
    /// included.
    pub fn ways(&self) -> impl Iterator<Item = Vec<&str>> {
        self.to.names().map(|to| {
            let via = self.via.iter().map(String::as_str);
            [self.from.as_str()].into_iter().chain(via).chain([to]).collect()
        })
    }

    /// Returns all nodes that take part.
    pub fn everybody(&self) -> impl Iterator<Item = &str> {
        let via = self.via.iter().map(String::as_str);
        [self.from.as_str()].into_iter().chain(via).chain(self.to.names())
    }
}

/// Returns the nodes with whose entities each node's entity exchanges PDUs directly.
pub(crate) fn neighbours(transfers: &[Transfer]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut neighbours = BTreeMap::<_, BTreeSet<_>>::new();
    for waypoints in transfers.iter().flat_map(Transfer::ways) {
        for pair in waypoints.windows(2) {
            let &[near, far] = pair else { continue };
            neighbours.entry(near).or_default().insert(far);
            neighbours.entry(far).or_default().insert(near);
        }
    }
    neighbours
}

/// Returns the nodes that are waypoints.
pub(crate) fn waypoints(scenario: &Scenario) -> BTreeSet<&str> {
    let via = scenario.transfers.iter().flat_map(|transfer| &transfer.via);
    via.map(String::as_str).collect()
}

/// One node of a route with its neighbours.
pub(crate) struct Hop<'a> {
    /// Previous node.
    pub(crate) from: Option<&'a str>,
    pub(crate) at: &'a str,
    pub(crate) next: &'a str,
    /// End of the route.
    pub(crate) to: &'a str,
}

/// Returns the nodes of a route, in both directions.
pub(crate) fn hops(mut waypoints: Vec<&str>) -> Vec<Hop<'_>> {
    let mut hops = Vec::new();
    for _ in ["there", "back"] {
        let mut from = None;
        if let Some(&to) = waypoints.last() {
            hops.extend(waypoints.windows(2).map(|pair| {
                let from = from.replace(pair[0]);
                Hop { from, at: pair[0], next: pair[1], to }
            }));
        }
        waypoints.reverse();
    }
    hops
}

/// Adds the routes of transfers via waypoints to the nodes' settings, in both directions, and
/// permits neighbours to have files forwarded.
///
/// # Errors
///
/// A node has two routes, or the protocol is not CFDP.
pub(crate) fn settle(
    transfers: &[Transfer],
    nodes: &mut BTreeMap<String, Node>,
) -> Result<(), SpecError> {
    for transfer in transfers.iter().filter(|transfer| !transfer.via.is_empty()) {
        let kind = transfer.protocol.as_ref().unwrap_or(&Protocol::default()).kind;
        if !kind.hands_on() {
            return Err(SpecError::invalid(format!(
                "waypoints forward CFDP, ltp-t and bundles, not {}",
                kind.name()
            )));
        }
        if kind.has(Feature::Relays) {
            // The engines get their routes when they are made.
            continue;
        }
        // With waypoints there is one receiver.
        let Some(waypoints) = transfer.ways().next() else { continue };
        for Hop { from, at, next, to } in hops(waypoints) {
            if next != to {
                route(nodes, at, to, next)?;
            }
            if let Some(from) = from {
                permit(nodes, at, from, transfer.overlay)?;
            }
        }
    }
    Ok(())
}

fn entity(nodes: &BTreeMap<String, Node>, name: &str) -> u64 {
    nodes.get(name).and_then(|node| node.entity).unwrap_or_default()
}

/// Routes traffic for `to` at `at` to `next`.
fn route(
    nodes: &mut BTreeMap<String, Node>,
    at: &str,
    to: &str,
    next: &str,
) -> Result<(), SpecError> {
    let (to_entity, next_entity) = (entity(nodes, to), entity(nodes, next));
    let known = settings_of(nodes, at, |adapter, settings| {
        adapter.add_route(settings, to_entity, next_entity)
    })?;
    match known {
        Some(other) if other != next_entity => Err(SpecError::invalid(format!(
            "two ways lead from {at} to {to}: by {next}, entity {next_entity}, and by entity {other}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Permits forwarding at `at` for traffic from `from`, unless the scenario has its own setting.
fn permit(
    nodes: &mut BTreeMap<String, Node>,
    at: &str,
    from: &str,
    overlay: Option<Overlay>,
) -> Result<(), SpecError> {
    let from = entity(nodes, from);
    let overlay = overlay.unwrap_or(Overlay::Sfo);
    settings_of(nodes, at, |adapter, settings| adapter.permit(settings, from, overlay)).map(drop)
}

/// Changes the settings of a node by the adapter of its protocol.
fn settings_of<T: Default>(
    nodes: &mut BTreeMap<String, Node>,
    name: &str,
    change: impl FnOnce(&dyn Adapter, &mut Settings) -> Result<T, SpecError>,
) -> Result<T, SpecError> {
    let Some(node) = nodes.get_mut(name) else { return Ok(T::default()) };
    let kind = node.protocol.as_ref().unwrap_or(&Protocol::default()).kind;
    change(kind.adapter(), node.mib.get_or_insert_default())
}
