//! NORM over modelled links: the measurements of 2011, its end phase, its efficiency, and
//! proactive parity without requests. More seeds with `SLOWLIGHT_SEEDS`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::Time;
use lab::compare::{Plan, compare};
use lab::content;
use lab::link_spec::{Errors, LinkSpec};
use lab::preset::Preset;
use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use lab::theory;
use norm::message::{Body, Command, Message};
use rayon::prelude::*;
use slowlight_lab as lab;
use transport::quantity::Probability;

use crate::runs::{Shared, row, run_once};

fn seeds(default: u64) -> u64 {
    std::env::var("SLOWLIGHT_SEEDS").map_or(default, |text| text.parse().unwrap())
}

/// Ports of the nodes "a" and "b".
const SENDER: u16 = 2501;
const RECEIVER: u16 = 2502;

/// A file from a to b.
fn world(protocol: &str, seed: u64, size: &str, link: &str) -> String {
    format!(
        "seed = {seed}
        capture.at = \"a\"
        [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
        [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"{size}\"\nname = \"testfile.10k\"
        protocol = \"{protocol}\""
    )
}

/// Packets sent and received at the sender: time, whether it sent the packet, and the bytes.
fn exchange(text: &str, sink: &Shared) -> Vec<(Time, bool, Vec<u8>)> {
    let run = run_once(text, sink.recorders());
    assert!(run.transfers[0].verified, "{run:?}");
    let records = sink.records();
    let packets = records.iter().map(|record| {
        let datagram = record.udp().unwrap();
        (record.at, datagram.udp.source == SENDER, datagram.data.to_vec())
    });
    packets.collect()
}

/// Time of the last new data, and each flush with its advertised GRTT.
fn end(packets: &[(Time, bool, Vec<u8>)]) -> (Time, Vec<(Time, Duration)>) {
    let (mut data, mut flushes) = (Time::ZERO, Vec::new());
    for (at, is_sent, bytes) in packets {
        match Message::decode(bytes).unwrap().body {
            Body::Data(_) if *is_sent => (data, flushes) = (*at, Vec::new()),
            Body::Command(Command::Flush { sender, .. }) => {
                flushes.push((*at, norm::message::rtt(sender.grtt)));
            }
            _ => {}
        }
    }
    (data, flushes)
}

#[test]
fn ten_kilobytes_as_the_library_of_2011_sent_them() {
    let link = "rate = \"1024 kbit/s\"\ndelay = \"1250 ms\"\nper = 1e-4\ndatagram = \"1100 B\"";
    let tails: Vec<_> = (1..=seeds(20))
        .into_par_iter()
        .map(|seed| {
            let packets =
                exchange(&world("norm/nrl-2011", seed, "10 kB", link), &Shared::default());
            for (_, is_sent, bytes) in &packets {
                let message = Message::decode(bytes).unwrap();
                let (name, expected): (_, &[usize]) = match &message.body {
                    Body::Info(_) => ("INFO", &[40]),
                    // The last segment has 784 bytes.
                    Body::Data(_) => ("DATA", &[1056, 816]),
                    Body::Command(Command::Flush { .. }) => ("FLUSH", &[20]),
                    Body::Command(Command::Cc { .. }) => ("CC", &[28]),
                    Body::Nack(_) => ("NACK", &[48]),
                    Body::Ack(_) => ("ACK", &[36]),
                    other => panic!("{other:?}"),
                };
                assert!(expected.contains(&bytes.len()), "{name} of {} bytes", bytes.len());
                assert_eq!(*is_sent, !matches!(name, "NACK" | "ACK"), "{name}");
            }
            let (data, flushes) = end(&packets);
            assert_eq!(flushes.len(), 20, "seed {seed}");
            for pair in flushes.windows(2) {
                let [(first, grtt), (next, _)] = pair else { unreachable!("two of them") };
                let gap = next.since(*first);
                assert!(gap.abs_diff(2 * *grtt) < Duration::from_millis(1), "{gap:?} {grtt:?}");
            }
            let last = packets.iter().rfind(|(_, is_sent, _)| *is_sent).unwrap().0;
            last.since(data).as_secs_f64()
        })
        .collect();
    let (least, most) = tails.iter().fold((f64::MAX, 0.0_f64), |(a, b), t| (a.min(*t), b.max(*t)));
    println!("after the data: {least:.1} to {most:.1} s");
    assert!(tails.iter().all(|tail| (70.0..=82.0).contains(tail)), "{tails:?}");
}

#[test]
fn defaults_end_within_three_round_trips_and_a_second() {
    let delays = [0, 25, 250, 600, 1250, 10_000, 240_000];
    let worlds: Vec<_> = delays
        .into_iter()
        .flat_map(|delay| ["10 kB", "1 MB"].map(|size| (delay, size)))
        .flat_map(|(delay, size)| (1..=seeds(5)).map(move |seed| (delay, size, seed)))
        .collect();
    worlds.into_par_iter().for_each(|(delay, size, seed)| {
        let link = format!("rate = \"10 Mbit/s\"\ndelay = \"{delay} ms\"");
        let sink = Shared::default();
        let packets = exchange(&world("norm", seed, size, &link), &sink);
        let (data, _) = end(&packets);
        let last = packets.last().unwrap().0;
        let answers = sink.sent_between(RECEIVER, data.as_secs_f64(), last.as_secs_f64() + 1e-6);
        assert!(answers > 0, "the end is acknowledged");
        let took = last.since(data);
        let round_trip = Duration::from_millis(2 * delay);
        assert!(took < 3 * round_trip + Duration::from_secs(1), "{delay} ms {size}: {took:?}");
    });
}

#[test]
fn ten_megabytes_at_four_error_rates() {
    for per in [0.0, 1e-5, 1e-4, 1e-3] {
        let row = row("norm", "25 ms", per, u32::try_from(seeds(5)).unwrap());
        assert_eq!(row.completed, row.runs, "{per}: {:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!(
            "packet errors {per}: efficiency {efficiency:.4}, {} RTS",
            row.traffic.packets_rts
        );
        assert!((0.95..1.0).contains(&efficiency), "{per}: {efficiency}");
    }
}

#[test]
fn proactive_parity_needs_no_request_where_one_packet_in_ten_is_lost() {
    let text = "rate = \"10 Mbit/s\"\ndelay = \"1250 ms\"\ndatagram = \"1024 B\"\nper = 0.1";
    let scenario = |seed| {
        let text = world("norm-fec", seed, "10 MB", text).replace("capture.at = \"a\"\n", "");
        let scenario: Scenario = toml::from_str(&text).unwrap();
        scenario.resolved().unwrap()
    };
    let contents = run::contents(&scenario(1)).unwrap();
    let runs: Vec<_> = (1..=10 * seeds(2))
        .into_par_iter()
        .map(|seed| {
            let run = run::run(&scenario(seed), &contents, Recorders::default()).unwrap();
            assert!(run.succeeded(), "{run:?}");
            let transfer = &run.transfers[0];
            let share = transfer.delivered_s.unwrap() / transfer.bound_s.unwrap();
            (share, transfer.traffic.nacks_rts.unwrap())
        })
        .collect();
    let late = runs.iter().filter(|(share, _)| *share > 1.20).count();
    let requesting = runs.iter().filter(|(_, nacks)| *nacks > 0).count();
    let most = runs.iter().map(|(share, _)| *share).fold(0.0, f64::max);
    println!("{} runs, {most:.3} of the bound at most, {requesting} with requests", runs.len());
    // One run in a hundred may be later, or request repairs.
    assert!(
        late * 100 <= runs.len() && requesting * 100 <= runs.len(),
        "{late} {requesting} {runs:?}"
    );
}

/// Repairs and requests per block with `receivers` receivers and one loss in a hundred, without
/// proactive parity.
fn of_group(receivers: u32, seeds: u64) -> (f64, f64) {
    let text = |seed| {
        format!(
            r#"
            seed = {seed}
            groups.fleet.count = {receivers}
            [nodes.earth.mib.sender]
            tail_parity = false
            group_size = {receivers}
            backoff = 1
            [[links]]
            from = "earth"
            to = "hub"
            rate = "1 Mbit/s"
            delay = "12.5 ms"
            datagram = "1024 B"
            [[links]]
            from = "hub"
            to = "earth"
            delay = "12.5 ms"
            [[links]]
            from = "hub"
            to = "fleet"
            delay = "12.5 ms"
            per = 0.01
            [[links]]
            from = "fleet"
            to = "hub"
            delay = "12.5 ms"
            [[transfers]]
            from = "earth"
            to = "fleet"
            protocol = "norm"
            size = "{SIZE} B"
            "#
        )
    };
    let runs = (1..=seeds).into_par_iter().map(|seed| {
        let run = run_once(&text(seed), Recorders::default());
        assert!(run.succeeded(), "{run:?}");
        let transfer = &run.transfers[0];
        (transfer.traffic.repairs_str.unwrap() as f64, transfer.traffic.nacks_rts.unwrap() as f64)
    });
    let (repairs, requests) = runs.reduce(|| (0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let blocks = (BLOCKS * seeds) as f64;
    (repairs / blocks, requests / blocks)
}

/// Blocks of 64 segments of 992 bytes.
const BLOCKS: u64 = 30;
const SIZE: u64 = BLOCKS * 64 * 992;

#[test]
fn repairs_and_requests_of_groups_match_theory() {
    for (receivers, runs) in [(1, 30), (10, 10), (100, 2)] {
        let (repairs, requests) = of_group(receivers, runs);
        let many = f64::from(receivers);
        // Repairs are lost, too.
        let least = theory::multicast_worst_losses(many, 64, 0.01);
        let worst = theory::multicast_worst_losses(many, 64 + least.ceil() as u32, 0.01);
        // A GRTT of 50 ms plus the hosts' time, as advertised, and the path between two receivers.
        // A single receiver waits, too.
        let backoff = theory::Backoff { most: 0.0618, group: many.max(10.0), delay: 0.025 };
        let expected = backoff.requests(many, 64, 0.01);
        println!(
            "{receivers} receivers: {repairs:.2} repairs a block, theory {worst:.2}; \
             {requests:.2} requests, theory {expected:.2}"
        );
        assert!((0.9..1.15).contains(&(repairs / worst)), "{receivers}: {repairs} {worst}");
        assert!(
            (0.85..1.25).contains(&(requests / expected)),
            "{receivers}: {requests} {expected}"
        );
    }
}

#[test]
fn a_hundred_receivers_cost_little_more_than_one() {
    // Each receiver loses one packet in a hundred; retransmitting every segment that any of them
    // lacks would cost 64 %.
    let goodput = |receivers, delay: &str| {
        let mut link = Preset::find("terrestrial").unwrap();
        for hop in &mut link.hops {
            let delay = Some(delay.parse().unwrap());
            *hop = LinkSpec {
                errors: Errors { per: Some(Probability(0.01)), ..Errors::default() },
                delay,
                ..LinkSpec::default()
            }
            .over(hop);
        }
        let plan = Plan {
            receivers,
            runs: 2,
            ..Plan::new(
                link,
                vec!["norm".parse().unwrap()],
                content::made_up(1, 0, 10_000_000).unwrap(),
            )
        };
        let rows = compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().unwrap();
        assert_eq!(rows[0].completed, 2, "{:?}", rows[0].failures);
        rows[0].goodput_bps.unwrap().mean
    };
    // At 250 ms the last requests and repairs are a second of nine.
    for (delay, least) in [("25 ms", 0.92), ("250 ms", 0.86)] {
        let share = goodput(100, delay) / goodput(1, delay);
        println!("{delay}: {share:.3} of one receiver's goodput");
        assert!((least..1.0).contains(&share), "{delay}: {share}");
    }
}

#[test]
fn losses_at_the_farthest_mars_end_no_transfer() {
    let runs = if seeds(1) > 1 { 100 } else { 10 };
    for loss in [0.02, 0.1, 0.2, 0.3] {
        let mut link = Preset::find("mars-far").unwrap();
        for hop in &mut link.hops {
            hop.errors.per = Some(Probability(loss));
        }
        let content = content::made_up(1, 0, 1_000_000).unwrap();
        let plan = Plan { runs, ..Plan::new(link, vec!["norm".parse().unwrap()], content) };
        let rows = compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().unwrap();
        println!("losses of {loss}: {} of {}", rows[0].completed, rows[0].runs);
        assert_eq!(rows[0].completed, rows[0].runs, "{loss}: {:?}", rows[0].failures);
    }
}

/// Worst time of some runs until a file is delivered by `norm`, and the bound.
fn over_thin_return(link: &str, size: &str, seeds: u64) -> (f64, f64) {
    let runs = (1..=seeds).into_par_iter().map(|seed| {
        let [there, back] = link.split_once('|').map(<[&str; 2]>::from).unwrap();
        let text = format!(
            "seed = {seed}
            [[links]]\nfrom = \"a\"\nto = \"b\"\n{there}
            [[links]]\nfrom = \"b\"\nto = \"a\"\n{back}
            [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"{size}\"\nprotocol = \"norm\""
        );
        let run = run_once(&text, Recorders::default());
        assert!(run.succeeded(), "{run:?}");
        (run.transfers[0].delivered_s.unwrap(), run.transfers[0].bound_s.unwrap())
    });
    runs.reduce(|| (0.0, 0.0), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

#[test]
fn thin_return_links_keep_norm_near_the_bound() {
    let link = "rate = \"150 Mbit/s\"\ndelay = \"10 ms\"\nper = 0.1\n|\
                rate = \"2 kbit/s\"\ndelay = \"10 ms\"\nper = 0.1";
    let (worst, bound) = over_thin_return(link, "5 MB", seeds(4));
    println!("1:75,000: {worst:.2} s, bound {bound:.2} s");
    assert!(worst < 1.5, "{worst}");
    let link = "rate = \"10 Mbit/s\"\ndelay = \"250 ms\"\nper = 0.1\n|\
                rate = \"2 kbit/s\"\ndelay = \"250 ms\"";
    let (worst, bound) = over_thin_return(link, "5 MB", seeds(4));
    println!("1:5,000: {worst:.2} s, bound {bound:.2} s");
    assert!(worst < 2.0 * bound, "{worst}");
}
