//! Conversations with exact losses: times of reports and repairs.

use std::time::Duration;

use engine::Time;

use super::world::{World, content, lose_numbers, lose_one_in};
use crate::segment::{Body, Claim, Claims, Report, Segment};
use crate::{Config, Format, Red, Remote, Timer};

fn config(remote: Remote) -> Config {
    Config { default_remote: remote, ..Config::default() }
}

fn reporting_gaps() -> Config {
    config(Remote { report_gaps: true, segment_max: Some(1000), ..Remote::default() })
}

/// Index of the first line with this prefix.
fn first(lines: &[String], start: &str) -> usize {
    lines.iter().position(|line| line.starts_with(start)).expect("the line exists")
}

#[test]
fn a_gap_is_repaired_before_the_end_of_the_block() {
    // 100 segments of 0.85 ms are longer than a round trip of 50 ms.
    let world = World::crossed_with(&reporting_gaps(), 100_000, Red::All, lose_numbers(&[1]));
    let lines = world.transcript();
    assert_eq!(lines[..3], ["> red 0-1000", ">x red 1000-2000", "> red 2000-3000"]);
    let around: Vec<_> = lines
        .iter()
        .filter(|line| !line.starts_with("> red") || line.contains("CP"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        around,
        [
            ">x red 1000-2000",
            "< RS 1/0 0-3000: 0-1000 2000-3000",
            "> RA 1",
            "> red 1000-2000 CP 1/1",
            "< RS 2/1 0-3000: 0-3000",
            "> red EOB 100000-100024 CP 2/0",
            "> RA 2",
            "< RS 3/2 0-100024: 0-100024",
            "> RA 3",
        ]
    );
}

#[test]
fn gaps_of_a_fraction_of_a_round_trip_share_a_report() {
    let world =
        World::crossed_with(&reporting_gaps(), 100_000, Red::All, lose_numbers(&[1, 4, 6, 8, 40]));
    let lines = world.transcript();
    let asynchronous: Vec<_> =
        lines.iter().filter(|l| l.starts_with("< RS") && l.contains("/0 ")).collect();
    assert_eq!(asynchronous.len(), 3, "{asynchronous:?}");
    assert!(asynchronous[1].contains("0 3000-"), "the next begins where one ended");
}

#[test]
fn lost_gap_reports_are_retransmitted() {
    let world = World::crossed_with(
        &reporting_gaps(),
        200_000,
        Red::All,
        Box::new(|side, number, _| (side, number) == (0, 1) || (side, number) == (1, 0)),
    );
    let lines = world.transcript();
    assert_eq!(
        lines.iter().filter(|line| line.ends_with("RS 1/0 0-3000: 0-1000 2000-3000")).count(),
        2
    );
    let repair = first(&lines, "> red 1000-2000 CP 1/1");
    assert!(repair < first(&lines, "> red EOB"), "{lines:#?}");
}

#[test]
fn reports_of_gaps_stay_few() {
    let world = World::crossed_with(
        &config(Remote { report_gaps: true, ..Remote::default() }),
        10_000_000,
        Red::All,
        lose_one_in(10, 3),
    );
    let lost = world.log.iter().filter(|sent| sent.from == 0 && sent.lost).count();
    let reports = world.hosts[1].engine.stats().sent.reports as usize;
    let data = world.hosts[0].engine.stats().sent.data;
    println!("{lost} lost of {data}, {reports} reports, until {}", world.now);
    // Each gets a checkpoint in reply, which requests another.
    assert!(lost > 1000 && reports < 2 * lost, "{lost} lost, {reports} reports");
    // 10 % is retransmitted, and 10 % of that; in the last rounds copies are sent.
    let least = 10_000_000.0 / 1_005.0 / 0.9;
    assert!((data as f64) < 1.03 * least, "{data} segments");
}

#[test]
fn overtaken_checkpoints_get_a_report() {
    let file = content(100_000);
    let remote = Remote {
        checkpoint_every: Some(10_000),
        segment_max: Some(1000),
        // No second attempt without a reply.
        retransmission_limit: Some(1),
        ..Remote::default()
    };
    let mut world = World::with(&config(remote));
    // The first checkpoint.
    world.lose(lose_numbers(&[9]));
    world.send(&file, Red::All);
    world.run();
    world.assert_delivered(&file);
    let lines = world.transcript();
    assert!(
        lines.iter().any(|line| line.starts_with("< RS") && line.contains("/1 9000-10000")),
        "{lines:#?}"
    );
}

#[test]
fn checkpoints_are_sent_by_time() {
    let file = content(100_000);
    let remote = Remote {
        checkpoint_interval: Some(Duration::from_millis(20)),
        segment_max: Some(1000),
        ..Remote::default()
    };
    let mut world = World::with(&config(remote));
    world.lose(lose_numbers(&[30]));
    world.send(&file, Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(80));
    let report = world.hosts[0].engine.sessions().next().expect("it is under way");
    assert_eq!(report.confirmed, Some(25_000), "what the first report claims");
    world.run();
    world.assert_delivered(&file);
    let checkpoints: Vec<_> =
        world.transcript().into_iter().filter(|line| line.contains(" CP ")).collect();
    // 1000 bytes, 17 of LTP and 42 below take 0.847 ms: the 25th segment leaves 20.3 ms after the
    // first.
    assert_eq!(
        checkpoints,
        [
            "> red 24000-25000 CP 1/0",
            "> red 48000-49000 CP 2/0",
            "> red 72000-73000 CP 3/0",
            "> red 96000-97000 CP 4/0",
            "> red EOB 100000-100024 CP 5/0",
            "> red 30000-31000 CP 6/2",
        ]
    );
}

#[test]
fn checkpoints_are_sent_by_bytes() {
    // The segments fill the datagrams, and are shorter where they carry serial numbers.
    let file = content(50_000);
    let remote = Remote { checkpoint_every: Some(10_000), ..Remote::default() };
    let mut world = World::with(&config(remote));
    world.send(&file, Red::All);
    world.run();
    world.assert_delivered(&file);
    let checkpoints: Vec<_> =
        world.transcript().into_iter().filter(|line| line.contains(" CP ")).collect();
    assert_eq!(checkpoints.len(), 5, "{checkpoints:?}");
    assert!(checkpoints[0].starts_with("> red 9109-"), "{checkpoints:?}");
}

/// A receiver that reports gaps may be restarted, and then nobody repeats the report.
#[test]
fn missing_gap_reports_are_requested() {
    let file = content(100_000);
    for format in [Format::Described, Format::Raw { name: "copy".to_owned() }] {
        let end = if format == Format::Described { "100000-100024" } else { "99999-100000" };
        let report_timer = Timer::Fixed(Duration::from_secs(86_400));
        let remote = Remote { report_timer, ..reporting_gaps().default_remote };
        let mut world = World::with(&Config { format, ..config(remote) });
        // For the second segment, which the first report covers.
        world.lose(|side, number, _| (side, number) == (0, 1) || (side, number) == (1, 0));
        world.send(&file, Red::All);
        world.run_until(Time::ZERO + Duration::from_secs(2));
        assert_eq!(world.finished(0).map(|finished| finished.result), Some(Ok(())));
        let lines = world.transcript();
        let ask = first(&lines, &format!("> red EOB {end} CP 2/0"));
        assert_eq!(first(&lines[ask..], "< RS 3/2 0-"), 1, "{lines:#?}");
        world.run();
        world.assert_delivered(&file);
    }
}

#[test]
fn repeated_reports_do_not_count_as_cycles() {
    // More reports than cycles, and more than are remembered individually.
    const PARTS: u64 = 600;
    let remote = Remote {
        checkpoint_every: Some(1000),
        segment_max: Some(1000),
        checkpoint_timer: Timer::Fixed(Duration::from_secs(3600)),
        ..Remote::default()
    };
    let mut world = World::with(&config(remote));
    world.lose(|_, _, _| true);
    let session = world.send(&content(1000 * PARTS as usize), Red::All);
    world.run_until(Time::ZERO + Duration::from_secs(10));
    let sent: Vec<_> = world.log.iter().map(|sent| sent.bytes.clone()).collect();
    let checkpoints: Vec<u64> = sent
        .iter()
        .filter_map(|datagram| match Segment::decode(datagram).expect("a segment").body {
            Body::Data(data) => Some(data.checkpoint?.serial),
            _ => None,
        })
        .collect();
    assert_eq!(checkpoints.len() as u64, PARTS + 1);
    // The first part never arrives.
    let parts: Vec<u64> = (1..PARTS).collect();
    for part in parts.iter().chain(&parts) {
        let lower = 1000 * part;
        let claims = [Claim { offset: 0, length: 1000 }];
        let report = Report {
            serial: part + 1,
            checkpoint: checkpoints[*part as usize],
            upper: lower + 1000,
            lower,
            claims: Claims::new(&claims),
        };
        let segment = Segment::new(session, Body::Report(report));
        world.hear(0, &segment.to_vec().expect("a segment"));
        assert_eq!(world.finished(0).map(|finished| finished.result), None, "report {part}");
    }
}

/// 500 kB at 10 Mbit/s take 0.4 s; 34 claims take 0.7 s at 2 kbit/s.
#[test]
fn thin_return_links_join_claims() {
    let claims_of = |return_bps| {
        let file = content(500_000);
        let mut world = World::with(&config(Remote::default()));
        let info = world.hops[0].info.clone();
        world.hops[0].info.rate_bps = Some(return_bps);
        world.up(1);
        world.hops[0].info = info;
        world.lose(lose_one_in(10, 3));
        world.send(&file, Red::All);
        world.run();
        world.assert_delivered(&file);
        let claims = world.log.iter().filter_map(|sent| {
            match Segment::decode(&sent.bytes).expect("a segment").body {
                Body::Report(report) => Some(report.received().count()),
                _ => None,
            }
        });
        claims.max().expect("there is a report")
    };
    assert!(claims_of(10_000_000) > 20);
    assert!(claims_of(2_000) < 10);
}

#[test]
fn late_reports_do_not_withdraw_claims() {
    let remote = Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() };
    let mut world = World::with(&config(remote));
    world.lose(|_, _, _| true);
    let id = world.send(&content(3000), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(10));
    world.answer(id, 2, &[(0, 2000)], 3000);
    world.answer(id, 1, &[(0, 1000)], 3000);
    world.run_until(Time::ZERO + Duration::from_millis(20));
    let is_it = |datagram: &[u8]| match Segment::decode(datagram).expect("a segment").body {
        Body::Data(data) => data.offset == 1000,
        _ => false,
    };
    assert_eq!(world.log.iter().filter(|sent| is_it(&sent.bytes)).count(), 1);
}
