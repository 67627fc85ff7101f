//! Metrics of a node.

use super::model::{Node, Traffic};
use crate::http::{Kind, Metrics};

/// Returns all metrics.
pub(super) fn metrics(node: &Node) -> Metrics {
    let mut metrics = Metrics::new("slowlight_node");
    let (counts, beacons) = (&node.counts, &node.beacons);
    for (name, help, value) in [
        ("bundles_sourced", "Bundles sent by applications", counts.sourced),
        ("bundles_received", "Bundles received completely", counts.received),
        ("bundles_duplicate", "Duplicate bundles received", counts.duplicates),
        ("bundles_returned", "Bundles that came back", counts.returned),
        ("bundles_refused", "Bundles refused", counts.refused),
        ("bundles_malformed", "Input that was no bundle, or damaged", counts.malformed),
        ("bundles_forwarded", "Bundles accepted by neighbours", counts.forwarded),
        ("bundles_delivered", "Bundles confirmed by applications", counts.delivered),
        ("bundles_expired", "Bundles expired", counts.expired),
        ("bundles_deleted", "Bundles deleted before their time", counts.deleted),
        ("bundles_insecure", "Bundles that violated a security rule", counts.insecure),
        ("custody_signals_ignored", "Custody signals not believed", counts.signals_ignored),
        (
            "custody_retransmissions",
            "Bundles retransmitted without a custody signal",
            counts.resent,
        ),
        ("forwarding_failures", "Failed attempts to forward", counts.failed),
        ("beacons_sent", "Beacons sent", beacons.sent),
        ("beacons_received", "Datagrams received as beacons", beacons.received),
        ("beacons_malformed", "Datagrams that were no beacons", beacons.malformed),
        ("beacons_ignored", "Beacons without effect", beacons.ignored),
    ] {
        metrics.add(Kind::Counter, name, help, value);
    }
    let (neighbours, discovered) = (node.neighbours.len() as u64, node.discovered.len() as u64);
    let oldest = node.oldest.map_or(0, |seconds| seconds as u64);
    let has_trouble = u64::from(node.trouble.is_some());
    for (name, help, value) in [
        ("bundles_held", "Bundles in the store", counts.bundles),
        ("bytes_held", "Bytes of bundles in the store", counts.bytes),
        ("bundles_held_most", "Maximum number of bundles in the store", counts.bundles_peak),
        ("bytes_held_most", "Maximum bytes of bundles in the store", counts.bytes_peak),
        ("neighbours_up", "Reachable neighbours", neighbours),
        ("neighbours_discovered", "Discovered neighbours", discovered),
        ("bundles_unrouted", "Bundles without a route", node.unrouted),
        ("oldest_bundle_seconds", "Time since the oldest bundle arrived", oldest),
        ("trouble", "1 while the store fails or a bound is reached", has_trouble),
    ] {
        metrics.add(Kind::Gauge, name, help, value);
    }
    let mut by_neighbour = |name: &str, help: &str, value: fn(&Traffic) -> u64| {
        let values =
            node.traffic.iter().map(|with| (vec![("neighbour", with.node.clone())], value(with)));
        metrics.family(Kind::Gauge, name, help, values);
    };
    by_neighbour("neighbour_links_up", "Links to the neighbour that are up", |with| with.links);
    by_neighbour("neighbour_bundles_queued", "Bundles queued for the neighbour", |with| {
        with.queued
    });
    by_neighbour("neighbour_bundles_sending", "Bundles in transit to it", |with| with.sending);
    by_neighbour("neighbour_bytes_sending", "Bytes in transit to it", |with| with.sending_bytes);
    metrics
}
