//! Counters of a node in the format of Prometheus.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::model::{Node, Traffic};

/// Reads a number of the traffic with a neighbour.
type Figure = fn(&Traffic) -> u64;

/// Returns all counters in the text format of OpenMetrics.
pub(super) fn encoded(node: &Node) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("slowlight_node");
    let counts = &node.counts;
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
        ("beacons_sent", "Beacons sent", node.beacons.sent),
        ("beacons_received", "Datagrams received as beacons", node.beacons.received),
        ("beacons_malformed", "Datagrams that were no beacons", node.beacons.malformed),
        ("beacons_ignored", "Beacons without effect", node.beacons.ignored),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let neighbours = node.neighbours.len() as u64;
    for (name, help, value) in [
        ("bundles_held", "Bundles in the store", counts.bundles),
        ("bytes_held", "Bytes of bundles in the store", counts.bytes),
        ("bundles_held_most", "Maximum number of bundles in the store", counts.bundles_peak),
        ("bytes_held_most", "Maximum bytes of bundles in the store", counts.bytes_peak),
        ("neighbours_up", "Reachable neighbours", neighbours),
        ("neighbours_discovered", "Discovered neighbours", node.discovered.len() as u64),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
    let oldest = node.oldest.map_or(0, |seconds| seconds as u64);
    for (name, help, value) in [
        ("bundles_unrouted", "Bundles without a route", node.unrouted),
        ("oldest_bundle_seconds", "Time since the oldest bundle arrived", oldest),
        (
            "trouble",
            "1 while the store fails or a bound is reached",
            u64::from(node.trouble.is_some()),
        ),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
    by_neighbour(&mut registry, &node.traffic);
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Registers gauges with the neighbour as their label.
fn by_neighbour(registry: &mut Registry, traffic: &[Traffic]) {
    let gauges: [(&str, &str, Figure); 4] = [
        ("neighbour_links_up", "Links to the neighbour that are up", |with| with.links),
        ("neighbour_bundles_queued", "Bundles queued for the neighbour", |with| with.queued),
        ("neighbour_bundles_sending", "Bundles in transit to it", |with| with.sending),
        ("neighbour_bytes_sending", "Bytes in transit to it", |with| with.sending_bytes),
    ];
    for (name, help, value) in gauges {
        let family = Family::<[(&str, String); 1], Gauge>::default();
        for with in traffic {
            let value = i64::try_from(value(with)).unwrap_or(i64::MAX);
            family.get_or_create(&[("neighbour", with.node.clone())]).set(value);
        }
        registry.register(name, help, family);
    }
}
