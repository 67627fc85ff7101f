//! Metrics of a world.

use service::http::{Kind, Metrics};

use crate::model::{Count, Link, World};

/// Returns all metrics.
pub(crate) fn metrics(world: &World) -> Metrics {
    let mut metrics = Metrics::new("slowlight");
    let links = &world.links;
    let by_outcome = |count: fn(Count) -> u64| {
        links.iter().flat_map(move |link| {
            let counters = &link.counters;
            let outcomes = [
                ("pushed", counters.pushed),
                ("delivered", counters.delivered),
                ("damaged", counters.damaged),
            ];
            outcomes.map(|(outcome, of)| {
                (vec![("link", link.name.clone()), ("outcome", outcome.to_owned())], count(of))
            })
        })
    };
    let help = "Packets of a link: offered, delivered, and of those damaged";
    metrics.family(Kind::Counter, "link_packets", help, by_outcome(|count| count.packets));
    let help = "Bytes of IP packets of a link";
    metrics.family(Kind::Counter, "link_bytes", help, by_outcome(|count| count.bytes));
    let lost = links.iter().flat_map(|link| {
        let lost = link.counters.lost.iter();
        lost.map(|(cause, count)| {
            (vec![("link", link.name.clone()), ("cause", cause.clone())], count.packets)
        })
    });
    metrics.family(Kind::Counter, "link_lost_packets", "Packets that a link lost, by cause", lost);
    let mut by_link = |kind: Kind, name: &str, help: &str, value: fn(&Link) -> u64| {
        let values = links.iter().map(|link| (vec![("link", link.name.clone())], value(link)));
        metrics.family(kind, name, help, values);
    };
    let help = "Packets that a host would not take";
    by_link(Kind::Counter, "link_refused_packets", help, |link| link.counters.refused);
    let help = "1 where a link carries packets, 0 in an outage";
    by_link(Kind::Gauge, "link_up", help, |link| link.up.into());
    let help = "Packets waiting or on their way";
    by_link(Kind::Gauge, "link_queued_packets", help, |link| link.counters.queued.packets);
    let help = "Packets waiting for the line";
    by_link(Kind::Gauge, "link_waiting_packets", help, |link| link.counters.waiting);
    let lateness = links.iter().flat_map(|link| {
        let late = link.lateness;
        let quantiles = [("0.5", late.p50_us), ("0.99", late.p99_us), ("1", late.most_us)];
        quantiles.map(|(quantile, micros)| {
            (vec![("link", link.name.clone()), ("quantile", quantile.to_owned())], micros / 1e6)
        })
    });
    let help = "Lateness of packets after their logical times";
    metrics.family_of_seconds("link_lateness", help, lateness);
    let help = "Lost for want of memory for packets";
    metrics.add(Kind::Counter, "no_memory_packets", help, world.no_memory);
    metrics.add_seconds("world", "Since the world began", world.now);
    metrics
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_have_metrics_by_outcome_cause_and_quantile() {
        let count = |packets: u64| json!({ "packets": packets, "bytes": 100 * packets });
        let world: World = serde_json::from_value(json!({
            "name": "w", "began": 1.0, "now": 12.5, "real_time": true, "hosts": [], "doubts": [],
            "no_memory": 3, "unreadable": 4,
            "links": [{
                "name": "a:b", "from": "a", "to": "b", "up": true, "settings": {},
                "counters": {
                    "pushed": count(9), "delivered": count(5), "damaged": count(1),
                    "queued": count(2), "lost": { "queue": count(4) }, "waiting": 7, "refused": 8,
                },
                "lateness": { "packets": 1, "p50_us": 1.5, "p99_us": 12.0, "most_us": 2e6 },
            }],
        }))
        .unwrap();
        let text = metrics(&world).text();
        for line in [
            r#"link_packets_total{link="a:b",outcome="pushed"} 9"#,
            r#"link_bytes_total{link="a:b",outcome="delivered"} 500"#,
            r#"link_packets_total{link="a:b",outcome="damaged"} 1"#,
            r#"link_lost_packets_total{link="a:b",cause="queue"} 4"#,
            r#"link_refused_packets_total{link="a:b"} 8"#,
            r#"link_up{link="a:b"} 1"#,
            r#"link_queued_packets{link="a:b"} 2"#,
            r#"link_waiting_packets{link="a:b"} 7"#,
            r#"link_lateness_seconds{link="a:b",quantile="0.5"} 0.0000015"#,
            r#"link_lateness_seconds{link="a:b",quantile="1"} 2.0"#,
            "no_memory_packets_total 3",
            "world_seconds 12.5",
        ] {
            assert!(text.contains(&format!("\nslowlight_{line}\n")), "{line}: {text}");
        }
    }
}
