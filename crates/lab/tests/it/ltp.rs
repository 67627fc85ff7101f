//! LTP over modelled links: efficiency, long delays, and the measurements of 2011.

use lab::run::{Recorders, Run};
use slowlight_lab as lab;

use crate::runs::{Shared, row, run_once};

#[test]
fn ten_megabytes_at_six_error_rates() {
    for (per, least) in
        [(0.0, 0.98), (1e-5, 0.98), (1e-4, 0.98), (1e-3, 0.98), (1e-2, 0.97), (1e-1, 0.95)]
    {
        let row = row("ltp", "25 ms", per, 10);
        assert_eq!(row.completed, row.runs, "{per}: {:?}", row.failures);
        let (efficiency, back) = (row.efficiency.unwrap(), row.traffic.packets_rts);
        println!("packet errors {per}: efficiency {efficiency:.4}, {back} RTS");
        assert!((least..1.0).contains(&efficiency), "{per}: {efficiency}");
        // Without losses there are at most two reports.
        assert!(per > 0.0 || back <= 2.0, "{back} packets back");
    }
}

#[test]
fn long_delay_efficiency_matches_deferred_reports() {
    // The formula for reports after each round gives 0.53; more checkpoints and reports of gaps
    // repair sooner.
    for (protocol, least) in
        [("ltp", 0.525), ("ltp/checkpoints", 0.60), ("ltp/async-reports", 0.66)]
    {
        let row = row(protocol, "1250 ms", 1e-1, 10);
        assert_eq!(row.completed, row.runs, "{:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!("{protocol}, 1250 ms, one packet in ten lost: efficiency {efficiency:.4}");
        assert!(efficiency >= least, "{efficiency}");
    }
}

/// Ports of the nodes "far" and "near".
const FAR: u16 = 2501;
const NEAR: u16 = 2502;

#[test]
fn twenty_minutes_away_with_losses_and_a_long_outage() {
    let world = |outages: &str| {
        format!(
            r#"
            seed = 7
            [capture]
            at = "near"
            [nodes.near]
            [nodes.far]
            [[links]]
            from = "near"
            to = "far"
            rate = "1 Mbit/s"
            delay = "20 min"
            per = 0.05
            {outages}
            [[links]]
            from = "far"
            to = "near"
            rate = "1 Mbit/s"
            delay = "20 min"
            per = 0.05
            {outages}
            [[transfers]]
            from = "near"
            to = "far"
            protocol = "ltp"
            size = "1 MB"
            "#
        )
    };
    let without = run_once(&world(""), Recorders::default());
    // The outage starts when the first replies are in flight.
    let outage = "outages = [{ at = \"1500 s\", for = \"7200 s\" }]";
    let sink = Shared::default();
    let with = run_once(&world(outage), sink.recorders());
    // The sender's 680 segments or more leave before the outage, and no packet does during it.
    assert!(sink.sent_between(NEAR, 0.0, 1500.0) >= 680);
    assert_eq!(sink.sent_between(NEAR, 1500.0, 8700.0), 0);
    assert_eq!(sink.sent_between(FAR, 2700.0, 8700.0), 0);
    let sent = |run: &Run| {
        let transfer = &run.transfers[0];
        assert!(transfer.completed && transfer.verified, "{transfer:?}");
        transfer.traffic.packets_str.unwrap()
    };
    println!("{} packets without an outage, {} with one", sent(&without), sent(&with));
    // Packets in flight are retransmitted once.
    assert!(sent(&with) <= sent(&without) + 80, "{} and {}", sent(&with), sent(&without));
    let delivered = |run: &Run| run.transfers[0].delivered_s.unwrap();
    assert!(delivered(&with) < delivered(&without) + 7200.0 + 3000.0);
}

#[test]
fn files_about_as_long_as_the_red_part_arrive() {
    for size in (950..=1050).chain([0, 1, 5_000]) {
        let world = format!(
            "seed = 1
            links = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]
            transfers = [{{ from = \"a\", to = \"b\", protocol = \"ltp-1k-red\", size = \"{size} B\" }}]"
        );
        let run = run_once(&world, Recorders::default());
        assert!(run.succeeded() && run.under_way.is_empty(), "{size}: {run:?}");
    }
}

#[test]
fn segments_of_the_library_of_2011() {
    let sink = Shared::default();
    let run = run_once(
        r#"
        seed = 1
        [nodes.sender]
        [nodes.receiver]
        [[links]]
        from = "sender"
        to = "receiver"
        rate = "1 Mbit/s"
        delay = "1250 ms"
        [[links]]
        from = "receiver"
        to = "sender"
        rate = "1 Mbit/s"
        delay = "1250 ms"
        [[transfers]]
        from = "sender"
        to = "receiver"
        protocol = "ltp/ltplib-2011"
        size = "10 kB"
        "#,
        sink.recorders(),
    );
    assert!(run.succeeded(), "{run:?}");
    let (mut sizes, mut answers, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for record in sink.records() {
        let datagram = record.udp().unwrap();
        times.push(record.at.as_secs_f64());
        if datagram.udp.source == 2502 { &mut sizes } else { &mut answers }
            .push(datagram.data.len());
    }
    // The last one is the report acknowledgment.
    let mut expected = vec![1009];
    expected.extend([1010; 9]);
    expected.extend([100, 15]);
    assert_eq!(sizes, expected);
    assert_eq!(answers, [24]);
    for pair in times[..10].windows(2) {
        let gap = pair[1] - pair[0];
        assert!((gap / 0.020_25 - 1.0).abs() < 0.01, "{gap} s");
    }
    let whole = times.last().unwrap() - times[0];
    assert!((whole / 2.734 - 1.0).abs() < 0.01, "{whole} s");
}

#[test]
fn segments_of_the_library_of_2007() {
    let sink = Shared::default();
    let link = "rate = \"10 Mbit/s\"\ndelay = \"25 ms\"\ndatagram = \"1472 B\"";
    let world = format!(
        "seed = 1
        [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
        [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"100 kB\"\nprotocol = \"ltp/ltplib-2007\""
    );
    assert!(run_once(&world, sink.recorders()).succeeded());
    let full: Vec<_> = sink
        .records()
        .iter()
        .filter(|record| record.udp().unwrap().data.len() == 1472)
        .map(|record| record.at.as_secs_f64())
        .collect();
    assert!(full.len() > 60, "{}", full.len());
    for pair in full.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((gap / 0.02 - 1.0).abs() < 0.01, "{gap} s");
    }
}

/// Number of seeds for the tests below.
const SEEDS: u32 = 12;

/// 1 MB at 1 Mbit/s over 100 ms, with half of the packets lost in both directions: the bound is
/// 16.8 s.
#[test]
fn half_lossy_links_have_no_long_tail() {
    // The default has its first checkpoint at the end of the block.
    for (protocol, limit) in [("ltp", 23.0), ("ltp/checkpoints", 22.0), ("ltp/async-reports", 22.0)]
    {
        let (mut delivered, mut rest) = (Vec::new(), Vec::new());
        for seed in 1..=SEEDS {
            let link = "rate = \"1 Mbit/s\"\ndelay = \"100 ms\"\nper = 0.5";
            let run = run_once(
                &format!(
                    "seed = {seed}
                    [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
                    [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
                    [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"1 MB\"\nprotocol = \"{protocol}\""
                ),
                Recorders::default(),
            );
            let transfer = &run.transfers[0];
            assert!(transfer.completed && transfer.verified, "{protocol} {seed}: {transfer:?}");
            delivered.push(transfer.delivered_s.unwrap());
            rest.push(transfer.quiet_s.unwrap() - transfer.delivered_s.unwrap());
        }
        let mean = delivered.iter().sum::<f64>() / f64::from(SEEDS);
        let most = delivered.iter().copied().fold(0.0, f64::max);
        let last = rest.iter().copied().fold(0.0, f64::max);
        println!("{protocol}: delivered {mean:.1} s, {most:.1} at most; at rest {last:.1} s later");
        assert!(mean <= limit, "{protocol}: {delivered:?}");
        assert!(last <= 5.0, "{protocol}: {rest:?}");
    }
}

/// 2 MB at 10 Mbit/s over 250 ms, one packet in 20 lost; between six outages of 30 s are contacts
/// of 0.5 to 0.8 s.
#[test]
fn short_contacts_are_used_at_once() {
    let outages: Vec<_> = [0.3, 30.8, 61.6, 92.4, 123.2, 154.0]
        .iter()
        .map(|at| format!("{{ at = \"{at} s\", for = \"30 s\" }}"))
        .collect();
    let link = format!(
        "rate = \"10 Mbit/s\"\ndelay = \"250 ms\"\nper = 0.05\noutages = [{}]",
        outages.join(", ")
    );
    let mut means = Vec::new();
    for protocol in ["cfdp", "saratoga", "ltp", "ltp/checkpoints", "ltp/async-reports"] {
        let delivered = (1..=6).map(|seed| {
            let run = run_once(
                &format!(
                    "seed = {seed}
                    [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
                    [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
                    [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"2 MB\"\nprotocol = \"{protocol}\""
                ),
                Recorders::default(),
            );
            let transfer = &run.transfers[0];
            assert!(transfer.completed, "{protocol} {seed}: {transfer:?}");
            transfer.delivered_s.unwrap()
        });
        let delivered: Vec<f64> = delivered.collect();
        let mean = delivered.iter().sum::<f64>() / 6.0;
        println!("{protocol}: {mean:.1} s, {delivered:.1?}");
        means.push((protocol, mean));
    }
    let best = means.iter().map(|(_, mean)| *mean).fold(f64::MAX, f64::min);
    for (protocol, mean) in means.iter().filter(|(protocol, _)| protocol.starts_with("ltp")) {
        assert!(*mean <= 1.12 * best, "{protocol}: {mean} s, best {best} s");
    }
}
