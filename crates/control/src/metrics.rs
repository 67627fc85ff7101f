//! Counters in the format of Prometheus.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::model::{Link, World};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLink {
    link: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    link: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    link: String,
    cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Quantile {
    link: String,
    quantile: &'static str,
}

#[derive(Default)]
struct OfLinks {
    packets: Family<Outcome, Counter>,
    bytes: Family<Outcome, Counter>,
    lost: Family<Cause, Counter>,
    refused: Family<OfLink, Counter>,
    up: Family<OfLink, Gauge>,
    queued: Family<OfLink, Gauge>,
    waiting: Family<OfLink, Gauge>,
    lateness: Family<Quantile, Gauge<f64, AtomicU64>>,
}

/// Returns all counters in the text format of OpenMetrics.
pub(crate) fn encoded(world: &World) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("slowlight");
    let families = OfLinks::default();
    for link in &world.links {
        families.add(link);
    }
    families.register(&mut registry);
    let no_memory = Counter::<u64>::default();
    no_memory.inc_by(world.no_memory);
    registry.register("no_memory_packets", "Lost for want of memory for packets", no_memory);
    let age = Gauge::<f64, AtomicU64>::default();
    age.set(world.now);
    registry.register_with_unit("world", "Since the world began", Unit::Seconds, age);
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

impl OfLinks {
    fn add(&self, of: &Link) {
        let link = &of.name;
        let counters = &of.counters;
        for (outcome, count) in [
            ("pushed", counters.pushed),
            ("delivered", counters.delivered),
            ("damaged", counters.damaged),
        ] {
            let label = Outcome { link: link.clone(), outcome };
            self.packets.get_or_create(&label).inc_by(count.packets);
            self.bytes.get_or_create(&label).inc_by(count.bytes);
        }
        for (cause, count) in &counters.lost {
            let label = Cause { link: link.clone(), cause: cause.clone() };
            self.lost.get_or_create(&label).inc_by(count.packets);
        }
        let label = OfLink { link: link.clone() };
        self.refused.get_or_create(&label).inc_by(counters.refused);
        self.up.get_or_create(&label).set(i64::from(of.up));
        let queued = i64::try_from(counters.queued.packets).unwrap_or(i64::MAX);
        self.queued.get_or_create(&label).set(queued);
        let waiting = i64::try_from(counters.waiting).unwrap_or(i64::MAX);
        self.waiting.get_or_create(&label).set(waiting);
        let late = of.lateness;
        for (quantile, micros) in [("0.5", late.p50_us), ("0.99", late.p99_us), ("1", late.most_us)]
        {
            let label = Quantile { link: link.clone(), quantile };
            self.lateness.get_or_create(&label).set(micros / 1e6);
        }
    }

    fn register(self, registry: &mut Registry) {
        let help = "Packets of a link: offered, delivered, and of those damaged";
        registry.register("link_packets", help, self.packets);
        let help = "Bytes of IP packets of a link";
        registry.register("link_bytes", help, self.bytes);
        registry.register("link_lost_packets", "Packets that a link lost, by cause", self.lost);
        registry.register(
            "link_refused_packets",
            "Packets that a host would not take",
            self.refused,
        );
        registry.register("link_up", "1 where a link carries packets, 0 in an outage", self.up);
        registry.register("link_queued_packets", "Packets waiting or on their way", self.queued);
        registry.register("link_waiting_packets", "Packets waiting for the line", self.waiting);
        let help = "Lateness of packets after their logical times";
        registry.register_with_unit("link_lateness", help, Unit::Seconds, self.lateness);
    }
}
