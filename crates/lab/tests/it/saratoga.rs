//! Saratoga over modelled links: efficiency, long delays, restarts, and the measurements of 2011.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::run::{Recorders, Run};
use slowlight_lab as lab;

use crate::bottleneck::{bottleneck, goodput, lost};
use crate::runs::{Shared, row, run_once};

#[test]
fn ten_megabytes_at_six_error_rates() {
    for protocol in ["saratoga", "saratoga-get"] {
        for (per, least) in
            [(0.0, 0.98), (1e-5, 0.98), (1e-4, 0.98), (1e-3, 0.98), (1e-2, 0.97), (1e-1, 0.95)]
        {
            let row = row(protocol, "25 ms", per, 10);
            assert_eq!(row.completed, row.runs, "{per}: {:?}", row.failures);
            let (efficiency, back) = (row.efficiency.unwrap(), row.traffic.packets_rts);
            println!("{protocol}, packet errors {per}: efficiency {efficiency:.4}, {back} RTS");
            assert!((least..1.0).contains(&efficiency), "{protocol}, {per}: {efficiency}");
        }
    }
}

#[test]
fn early_status_requests_speed_up_repairs_over_long_delays() {
    // With a request only at the end, the formula for reports after each round gives 0.53.
    for (protocol, least) in [("saratoga/deferred", 0.53), ("saratoga", 0.70)] {
        let row = row(protocol, "1250 ms", 1e-1, 10);
        assert_eq!(row.completed, row.runs, "{:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!("{protocol}, 1250 ms, one packet in ten lost: efficiency {efficiency:.4}");
        assert!(efficiency >= least, "{efficiency}");
    }
}

/// A world of two nodes with these keys of the link in both directions, and of the receiver.
fn world(protocol: &str, size: &str, link: &str, receiver: &str) -> String {
    format!(
        r#"
        seed = 3
        [nodes.near]
        [nodes.far]
        {receiver}
        [[links]]
        from = "near"
        to = "far"
        {link}
        [[links]]
        from = "far"
        to = "near"
        {link}
        [[transfers]]
        from = "near"
        to = "far"
        protocol = "{protocol}"
        size = "{size}"
        "#
    )
}

fn sent(run: &Run) -> u64 {
    let transfer = &run.transfers[0];
    assert!(transfer.completed && transfer.verified, "{transfer:?}");
    transfer.traffic.packets_str.unwrap()
}

#[test]
fn one_kilobyte_packets_at_a_bit_error_rate_of_1e_5() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"25 ms\"\nber = 1e-5\ndatagram = \"1024 B\"";
    for protocol in ["saratoga", "saratoga-get", "ltp"] {
        sent(&run_once(&world(protocol, "10 MB", link, ""), Recorders::default()));
    }
}

#[test]
fn twenty_minutes_away_with_losses_and_a_long_outage() {
    let link = "rate = \"1 Mbit/s\"\ndelay = \"20 min\"\nper = 0.05";
    let without = run_once(&world("saratoga", "1 MB", link, ""), Recorders::default());
    let outage = format!("{link}\noutages = [{{ at = \"1500 s\", for = \"7200 s\" }}]");
    let sink = Shared::default();
    let capture = "[capture]\nat = \"near\"";
    let world = world("saratoga", "1 MB", &outage, "").replacen(
        "[nodes.near]",
        &format!("{capture}\n[nodes.near]"),
        1,
    );
    let with = run_once(&world, sink.recorders());
    // Ports of the nodes "far" and "near": at least 680 packets of the file leave before the
    // outage, and none during it.
    assert!(sink.sent_between(2502, 0.0, 1500.0) >= 680);
    assert_eq!(sink.sent_between(2502, 1500.0, 8700.0), 0);
    assert_eq!(sink.sent_between(2501, 2700.0, 8700.0), 0);
    println!("{} packets without an outage, {} with one", sent(&without), sent(&with));
    // Requests are repeated, and requested data once.
    assert!(sent(&with) <= sent(&without) + 200, "{} and {}", sent(&with), sent(&without));
}

#[test]
fn restarted_receivers_request_only_the_rest() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"25 ms\"";
    let crash = "crashes = [{ at = \"20 s\", restart = \"21 s\" }]";
    let whole = sent(&run_once(&world("saratoga", "40 MB", link, ""), Recorders::default()));
    let again = sent(&run_once(&world("saratoga", "40 MB", link, crash), Recorders::default()));
    println!("{whole} packets at once, {again} with a restart in the middle");
    // The data of the last two seconds was not synced, and a second passed without the receiver.
    assert!(again > whole && again < whole + whole / 5, "{whole} and {again}");
}

#[test]
fn packets_of_the_program_of_2011() {
    let sink = Shared::default();
    let link = "rate = \"1 Mbit/s\"\ndelay = \"1250 ms\"\ndatagram = \"1034 B\"";
    let toml = world("saratoga-get/grc-perl-2011", "10 kB", link, "");
    let toml = format!("{toml}\nname = \"testfile.10k\"");
    let run = run_once(&toml, sink.recorders());
    assert!(run.succeeded(), "{run:?}");
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for record in sink.records() {
        let datagram = record.udp().unwrap();
        let list = if datagram.udp.source == 2502 { &mut there } else { &mut back };
        list.push((record.at.as_secs_f64(), datagram.data.len()));
    }
    let sizes = |list: &[(f64, usize)]| list.iter().map(|(_, len)| *len).collect::<Vec<_>>();
    // An acceptance, METADATA, nine full packets, the rest, and two polls before the STATUS
    // arrived.
    let mut expected = vec![10, 266];
    expected.extend([1034; 9]);
    expected.extend([794, 18, 18]);
    assert_eq!(sizes(&there), expected);
    assert_eq!(sizes(&back), [32, 7]);
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.01;
    // Each packet takes the time of a full one: (1034 + 28 + 14) * 8 bits at 1 Mbit/s.
    for pair in there[..12].windows(2) {
        // A short packet arrives earlier.
        let short = (1034 - pair[1].1.min(1034)) as f64 - (1034 - pair[0].1.min(1034)) as f64;
        let gap = pair[1].0 - pair[0].0 + short * 8e-6;
        assert!(near(gap, 8.608e-3), "{gap}");
    }
    for pair in there[11..].windows(2) {
        let gap = pair[1].0 - pair[0].0;
        assert!(near(gap, 1.0), "{gap}");
    }
    // From the first packet to the last, and to the STATUS.
    let first = back[0].0;
    let (last, status) = (there.last().unwrap().0 - first, back[1].0 - first);
    println!("{last:.4} s to the last packet, {status:.4} s to the STATUS");
    assert!(near(last, 4.599), "{last}");
    assert!(near(status, 2.60), "{status}");
}

#[test]
fn congestion_control_finds_the_bottleneck_rate() {
    let without = bottleneck("saratoga", "50 packets", "25 ms", &["20 MB"], Recorders::default());
    println!("without: {:.4} lost, {:.2} Mbit/s", lost(&without), goodput(&without, 0));
    assert!(lost(&without) > 0.8, "nine of ten packets find no room");
    // With headers and frames the link carries 9.5 Mbit/s of a file. Slow start takes a part of a
    // short transfer, and of one over a long round trip.
    for (queue, delay, size, lost_most, least) in [
        (50, 25, "20 MB", 0.01, 8.0),
        (50, 25, "100 MB", 0.003, 8.8),
        (20, 5, "20 MB", 0.006, 8.8),
        (20, 25, "20 MB", 0.01, 8.0),
        (50, 25, "2 MB", 0.06, 5.0),
        (100, 250, "100 MB", 0.01, 5.0),
    ] {
        let (packets, millis) = (format!("{queue} packets"), format!("{delay} ms"));
        let run = bottleneck("saratoga/tfrc", &packets, &millis, &[size], Recorders::default());
        let (lost, goodput) = (lost(&run), goodput(&run, 0));
        let transfer = &run.transfers[0];
        let every = transfer.delivered_s.unwrap() / transfer.traffic.packets_rts.unwrap() as f64;
        println!("{packets}, {millis}, {size}: {lost:.4} lost, {goodput:.2} Mbit/s, {every:.3} s");
        // A full packet takes 0.86 ms.
        let rtt_most = 2e-3 * f64::from(delay) + 0.86e-3 * f64::from(queue);
        assert!(every < rtt_most, "a STATUS in {every} s");
        assert!(lost < lost_most, "{lost}");
        assert!(goodput > least, "{goodput}");
    }
}

#[test]
fn congestion_controlled_senders_share_a_bottleneck() {
    // The second has 10 MB to send while the first is sending.
    for (queue, delay) in [("50 packets", "25 ms"), ("50 packets", "5 ms"), ("20 packets", "25 ms")]
    {
        let alone = bottleneck("saratoga/tfrc", queue, delay, &["10 MB"], Recorders::default());
        let run =
            bottleneck("saratoga/tfrc", queue, delay, &["80 MB", "10 MB"], Recorders::default());
        let share = goodput(&run, 1) / goodput(&alone, 0);
        println!(
            "{queue}, {delay}: {:.4} lost, the newcomer has {share:.2} of what it has alone",
            lost(&run)
        );
        assert!((0.3..0.7).contains(&share), "{share}");
        assert!(lost(&run) < 0.02, "{}", lost(&run));
    }
}

#[test]
fn tfrc_is_slow_when_errors_look_like_congestion() {
    for (per, least, most) in [(0.0, 0.9, 1.0), (1e-3, 0.5, 0.9), (1e-2, 0.1, 0.4)] {
        let row = row("saratoga/tfrc", "25 ms", per, 3);
        assert_eq!(row.completed, row.runs, "{:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!("tfrc, packet errors {per}: efficiency {efficiency:.4}");
        assert!((least..most).contains(&efficiency), "{efficiency}");
    }
}
