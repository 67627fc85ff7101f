//! One file to several receivers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use lab::compare::{Plan, Row, compare};
use lab::content;
use lab::link_spec::{Errors, LinkSpec};
use lab::preset::Preset;
use lab::run::{self, Recorders, Run, RunError};
use lab::scenario::Scenario;
use lab::theory;
use slowlight_lab as lab;
use transport::quantity::{Probability, Rate, Span};

fn run_once(text: &str) -> Run {
    let scenario = Scenario::parse(text, "world").unwrap().resolved().unwrap();
    run::run(&scenario, &run::contents(&scenario).unwrap(), Recorders::default()).unwrap()
}

/// A transfer of 300 kB from Earth to a fleet of three behind a relay, one of them with a loss of
/// one packet in ten.
fn world(protocol: &str) -> String {
    format!(
        r#"
        seed = 4
        groups.fleet.members = ["a", "b", "c"]
        [[links]]
        from = "earth"
        to = "relay"
        rate = "1 Mbit/s"
        [[links]]
        from = "relay"
        to = "earth"
        rate = "1 Mbit/s"
        [[links]]
        from = "relay"
        to = "fleet"
        delay = "100 ms"
        [[links]]
        from = "fleet"
        to = "relay"
        delay = "100 ms"
        [[transfers]]
        from = "earth"
        to = "fleet"
        protocol = "{protocol}"
        size = "300 kB"
        "#
    )
}

#[test]
fn without_groups_each_receiver_gets_a_share_of_the_rate() {
    let run = run_once(&world("cfdp"));
    assert!(run.succeeded(), "{run:?}");
    let transfer = &run.transfers[0];
    assert_eq!((transfer.to.as_str(), transfer.receivers.len()), ("fleet", 3));
    assert!(run.links.iter().all(|link| link.lost.is_empty()), "{:?}", run.links);
    // About three times the file's transmission time: 204 frames of 1,514 bytes, and the protocol's
    // headers.
    let least = 3.0 * 204.0 * 8.0 * 1514.0 / 1e6 + 0.1;
    let delivered = transfer.delivered_s.unwrap();
    assert!((least..1.03 * least).contains(&delivered), "{delivered}");
    for receiver in &transfer.receivers {
        let one = receiver.delivered_s.unwrap();
        assert!(receiver.verified && one > 0.97 * delivered, "{receiver:?}");
    }
    let each: u64 = transfer.receivers.iter().filter_map(|r| r.packets_rts).sum();
    assert_eq!(Some(each), transfer.traffic.packets_rts);
    assert!(transfer.confirmed_s.unwrap() > delivered);
    assert!((0.3..0.34).contains(&transfer.efficiency.unwrap()), "{:?}", transfer.efficiency);
}

#[test]
fn groups_receive_one_transmission() {
    let run = run_once(&world("saratoga-blind"));
    assert!(run.succeeded(), "{run:?}");
    let transfer = &run.transfers[0];
    assert!(transfer.efficiency.unwrap() > 0.97, "{:?}", transfer.efficiency);
    let (sent, links) = (transfer.traffic.packets_str.unwrap(), &run.links);
    let on = |from: &str, to: &str| {
        links.iter().find(|l| (l.from.as_str(), l.to.as_str()) == (from, to)).unwrap().pushed
    };
    assert_eq!(on("earth", "relay"), sent);
    assert!(["a", "b", "c"].iter().all(|receiver| on("relay", receiver) == sent));
    // Only the final report of each receiver.
    assert!(transfer.traffic.packets_rts.unwrap() <= 6, "{:?}", transfer.traffic.packets_rts);
}

#[test]
fn receivers_without_the_file_fail_the_transfer() {
    let text = world("saratoga-blind") + "\n[nodes.b.store]\nfail_write_probability = 1";
    let run = run_once(&text);
    let transfer = &run.transfers[0];
    assert!(!transfer.completed && !transfer.wrong_success);
    assert!(transfer.delivered_s.is_none() && transfer.receivers[2].delivered_s.is_some());
    let why = transfer.failure.as_deref().unwrap();
    assert!(why.contains("b: ") && why.contains("1 of 3 receivers are without"), "{why}");
}

fn plan(protocols: &[&str], receivers: u32, per: f64) -> Plan {
    let mut link = Preset::find("geo").unwrap();
    for hop in &mut link.hops {
        let lossy = LinkSpec {
            errors: Errors { per: Some(Probability(per)), ..Errors::default() },
            rate: Some(Rate(10_000_000)),
            delay: Some(Span(std::time::Duration::from_millis(250))),
            ..LinkSpec::default()
        };
        *hop = lossy.over(hop);
    }
    Plan {
        receivers,
        runs: 3,
        jobs: Some(2),
        ..Plan::new(
            link,
            protocols.iter().map(|protocol| protocol.parse().unwrap()).collect(),
            content::made_up(1, 0, 500_000).unwrap(),
        )
    }
}

fn rows(plan: &Plan) -> Vec<Row> {
    compare(plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels")
}

#[test]
fn transfers_by_every_protocol_are_compared() {
    let protocols = ["cfdp", "ltp", "saratoga", "saratoga-get", "norm", "saratoga-blind"];
    let some = rows(&plan(&protocols, 5, 0.0));
    assert_eq!(some, rows(&plan(&protocols, 5, 0.0)), "the same seeds, the same result");
    assert!(some.iter().all(|row| row.completed == 3), "{some:?}");
    let mut groups: Vec<_> = some[..2].iter().map(|row| row.protocol.kind.name()).collect();
    groups.sort_unstable();
    assert_eq!(groups, ["norm", "saratoga-blind"]);
    assert!(some.iter().enumerate().all(|(rank, row)| row.multicast == Some(rank < 2)));
    let goodput = |row: &Row| row.goodput_bps.unwrap().mean;
    assert!(some[2..].iter().all(|row| goodput(row) < 0.35 * goodput(&some[1])), "{some:?}");
    for row in &some {
        let (all, each) = (row.delivered_s.unwrap(), row.each_delivered_s.unwrap());
        assert!(each.max <= all.max && each.mean <= all.mean, "{row:?}");
        // No protocol is faster than the bound of a sender that sends each packet once.
        assert!(row.efficiency.unwrap() <= 1.0, "{row:?}");
    }
}

#[test]
fn losses_at_many_receivers_are_repaired_one_by_one() {
    let one = rows(&plan(&["cfdp"], 1, 0.02)).remove(0);
    let many = rows(&plan(&["cfdp"], 8, 0.02)).remove(0);
    assert_eq!((one.completed, many.completed), (3, 3));
    assert!(one.multicast.is_none() && one.each_delivered_s.is_none());
    assert!(many.delivered_s.unwrap().mean > 4.0 * (one.delivered_s.unwrap().mean - 0.75));
    assert!(many.traffic.packets_str > 7.5 * one.traffic.packets_str);
    // 2 % of losses, and the worst of eight receivers.
    let (alone, all) = (one.bound_s.unwrap() - 0.25, many.bound_s.unwrap() - 0.25);
    assert!((1.005..1.05).contains(&(all / alone)), "{alone} {all}");
}

#[test]
fn parity_repairs_different_losses_per_receiver() {
    let repaired = |receivers| {
        let plan = Plan { runs: 1, ..plan(&["norm"], receivers, 0.01) };
        rows(&Plan { content: content::made_up(1, 0, 2_000_000).unwrap(), ..plan }).remove(0)
    };
    let row = repaired(30);
    assert_eq!((row.completed, row.multicast), (1, Some(true)), "{row:?}");
    // 1,370 segments in 22 blocks of 64, of which the worst of 30 receivers lacks about three each.
    let blocks = 2_000_000.0 / (64.0 * 1_460.0);
    let worst = theory::multicast_worst_losses(30.0, 64, 0.01);
    // Requested or proactive: with 250 ms, losses near the end would be detected too late.
    let repairs = row.traffic.packets_str - 1_370.0;
    assert!(row.traffic.repairs_str.unwrap() < repairs, "{row:?}");
    assert!((0.8..2.2).contains(&(repairs / (blocks * worst))), "{repairs} {blocks} {worst}");
    // Retransmitting each lost segment would cost 26 %, and there would be 590 requests without
    // suppression.
    let repeated = 1_370.0 * (theory::multicast_transmissions(30.0, 0.01) - 1.0);
    assert!(repairs < 0.5 * repeated, "{repairs} {repeated}");
    assert!(row.traffic.nacks_rts.unwrap() < 0.5 * 30.0 * blocks, "{row:?}");
}

#[test]
fn number_of_receivers_is_bounded() {
    for receivers in [0, 1001] {
        let refused = compare(&plan(&["cfdp"], receivers, 0.0), &AtomicBool::new(false), &|| ());
        assert!(matches!(refused, Err(RunError::Spec(_))), "{receivers}");
    }
    let plan = Plan { runs: 1, ..plan(&["saratoga-blind"], 1000, 0.0) };
    let plan = Plan { content: content::made_up(1, 0, 3_000).unwrap(), ..plan };
    let row = rows(&plan).remove(0);
    assert_eq!((row.completed, row.traffic.packets_str), (1, 4.0), "{row:?}");
}
