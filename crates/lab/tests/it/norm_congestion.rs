//! NORM with congestion control, over modelled links.

use lab::run::Recorders;
use norm::message::{self, Body, Command, Message};
use slowlight_lab as lab;

use crate::bottleneck::{bottleneck, goodput, lost};
use crate::runs::{Shared, row, run_once};

/// Rates in a sender's probes, in Mbit/s, and their times.
fn rates(capture: &Shared) -> Vec<(f64, f64)> {
    let records = capture.records();
    let rate = |record: &pcap::Record| {
        let datagram = record.udp()?;
        match Message::decode(datagram.data).ok()?.body {
            Body::Command(Command::Cc { rate: Some(rate), .. }) => {
                Some((record.at.as_secs_f64(), 8e-6 * message::rate(rate)))
            }
            _ => None,
        }
    };
    records.iter().filter_map(rate).collect()
}

#[test]
fn congestion_control_finds_the_bottleneck_rate() {
    // With headers and frames the link carries 9.5 Mbit/s of a file. Slow start takes a part of a
    // short transfer, and of one over a long round trip.
    for (queue, delay, size, lost_most, least) in [
        (50, 25, "20 MB", 0.01, 8.0),
        (50, 25, "100 MB", 0.004, 8.5),
        (20, 5, "20 MB", 0.02, 8.0),
        (20, 25, "20 MB", 0.01, 7.6),
        (50, 25, "2 MB", 0.08, 5.0),
        // The one loss event, at the end of slow start, sets the rate for minutes (RFC 5348 §6.3.1).
        (100, 250, "100 MB", 0.01, 6.2),
        (600, 250, "100 MB", 0.02, 5.0),
    ] {
        let capture = Shared::default();
        let (packets, millis) = (format!("{queue} packets"), format!("{delay} ms"));
        let run = bottleneck("norm/cc", &packets, &millis, &[size], capture.recorders());
        let (lost, goodput) = (lost(&run), goodput(&run, 0));
        println!("{queue} packets, {delay} ms, {size}: {lost:.4} lost, {goodput:.2} Mbit/s");
        assert!(lost < lost_most, "{lost}");
        assert!(goodput > least, "{goodput}");
        let rates = rates(&capture);
        let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        // The light time is known: a first window of 4,380 bytes in a round trip (RFC 5348 §4.2).
        let first = 4380.0 * 8e-6 / (2e-3 * f64::from(delay));
        assert!(rates[0].1 < 1.05 * first, "it begins with {}, not {first}", rates[0].1);
        assert!(most < 21.0, "twice what arrives: {most}");
        // At most one reply per round trip, and requests.
        let answers = capture.sent_between(2501, 10.0, 11.0);
        assert!(answers < (1000 / delay as usize).max(40), "{answers} in a second");
    }
}

#[test]
fn two_senders_share_a_bottleneck() {
    // The second has 10 MB to send while the first is sending.
    for (queue, delay) in [(50, 25), (50, 5), (20, 25)] {
        let (packets, millis) = (format!("{queue} packets"), format!("{delay} ms"));
        let run = |sizes| bottleneck("norm/cc", &packets, &millis, sizes, Recorders::default());
        let (alone, run) = (run(&["10 MB"][..]), run(&["80 MB", "10 MB"][..]));
        let share = goodput(&run, 1) / goodput(&alone, 0);
        let lost = lost(&run);
        println!("{queue} packets, {delay} ms: {lost:.4} lost, the newcomer has {share:.2} of it");
        assert!((0.25..0.75).contains(&share), "{share}");
        assert!(lost < 0.03, "{lost}");
    }
}

#[test]
fn group_rate_follows_the_slowest_path() {
    let text = r#"
        seed = 4
        nodes.earth.mib.rate = "100 Mbit/s"
        groups.fleet.members = ["a", "b", "c"]
        links = [
            { from = "earth", to = "relay", rate = "100 Mbit/s" },
            { from = "relay", to = "earth", rate = "100 Mbit/s" },
            { from = "relay", to = "a", rate = "8 Mbit/s", delay = "20 ms", queue = "40 packets" },
            { from = "relay", to = "b", rate = "4 Mbit/s", delay = "20 ms", queue = "40 packets" },
            { from = "relay", to = "c", rate = "2 Mbit/s", delay = "20 ms", queue = "40 packets" },
            { from = "fleet", to = "relay", rate = "2 Mbit/s", delay = "20 ms" },
        ]
        transfers = [{ from = "earth", to = "fleet", protocol = "norm/cc", size = "10 MB" }]
        "#;
    let run = run_once(text, Recorders::default());
    assert!(run.succeeded(), "{run:?}");
    let link = |to: &str| run.links.iter().find(|link| link.to == to).unwrap();
    let lost = |to: &str| link(to).lost.values().sum::<u64>() as f64 / link(to).pushed as f64;
    let goodput = goodput(&run, 0);
    println!("{:.4}, {:.4}, {:.4} lost, {goodput:.2} Mbit/s", lost("a"), lost("b"), lost("c"));
    // The slowest receiver carries 1.9 Mbit/s of a file. Others may lose packets at the start,
    // until its feedback arrives.
    assert!((1.4..1.95).contains(&goodput), "{goodput}");
    assert!(lost("a") < 0.02 && lost("c") < 0.06, "{} {}", lost("a"), lost("c"));
}

#[test]
fn random_losses_count_as_congestion() {
    for (per, from, to) in [(1e-3, 0.6, 1.4), (1e-2, 0.6, 1.4)] {
        let capture = Shared::default();
        let text = format!(
            r#"
            seed = 4
            nodes.a.mib.rate = "100 Mbit/s"
            links = [
                {{ from = "a", to = "b", rate = "100 Mbit/s", delay = "25 ms", per = {per} }},
                {{ from = "b", to = "a", rate = "100 Mbit/s", delay = "25 ms" }},
            ]
            transfers = [{{ from = "a", to = "b", protocol = "norm/cc", size = "20 MB" }}]
            "#
        );
        let run = run_once(&text, capture.recorders());
        assert!(run.succeeded(), "{run:?}");
        let rates = rates(&capture);
        let settled = &rates[rates.len() / 4..];
        let mean = settled.iter().map(|(_, rate)| rate).sum::<f64>() / settled.len() as f64;
        // RFC 4654 §2.1, with messages of 1,472 bytes and the round trip in messages.
        let rtt = message::rtt(message::quantise_rtt(std::time::Duration::from_millis(50)));
        let slowness = (2.0 * per / 3.0_f64).sqrt()
            + 12.0 * (3.0 * per / 8.0).sqrt() * per * (1.0 + 32.0 * per * per);
        let fair = 8e-6 * 1472.0 / (rtt.as_secs_f64() * slowness);
        println!(
            "{per}: {mean:.2} Mbit/s, by the equation {fair:.2}, {:.2} of a file",
            goodput(&run, 0)
        );
        assert!((from * fair..to * fair).contains(&mean), "{mean} {fair}");
    }
}

#[test]
fn efficiency_with_congestion_control_is_in_range() {
    // Limited by the known rate of the link.
    for (per, least, most) in [(0.0, 0.75, 1.0), (1e-2, 0.1, 0.35)] {
        let row = row("norm/cc", "25 ms", per, 3);
        assert_eq!(row.completed, row.runs, "{:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!("packet errors {per}: efficiency {efficiency:.4}");
        assert!((least..most).contains(&efficiency), "{efficiency}");
    }
}
